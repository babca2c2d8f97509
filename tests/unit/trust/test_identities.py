"""Identity statements, guests and servers of other communities (Guard IV)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.lang import parse_condition
from headgate.model.authority import AttributeMap, Identity, Provider, Validity
from headgate.model.errors import BadStatement, Expired
from headgate.model.values import Value
from headgate.trust.identities import (
    IDENTITY,
    cross_domain,
    guest,
    issue_identity,
    made_by,
    mapping_digest,
    mapping_text,
    translated,
    verify_server,
)
from headgate.trust.statements import digest_of
from unit.trust.corpus import MALLORY, MET, NOW, PITO, SMITH, TFL, did

HOUR = timedelta(hours=1)
RULE = parse_condition("$nation = 'UK' and $level >= 3")
MAPPING = (
    AttributeMap("clearance", "sikkerhet", (("secret", "hemmelig"), ("open", "åpen"))),
    AttributeMap("nation", "nation"),
)
HOME = Provider(did(PITO), "uk", MAPPING)


def member(attributes: dict[str, Value] | None = None, **more: Any) -> str:
    said: dict[str, Any] = {"subject": did(SMITH), "validity": Validity(NOW, NOW + HOUR), "now": NOW}
    return issue_identity(PITO, attributes={} if attributes is None else attributes, **{**said, **more})


def refusal(what: Any, *args: Any, **named: Any) -> str:
    with pytest.raises(BadStatement) as refused:
        what(*args, **named)
    return refused.value.reason


VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.binary(max_size=8),
)


@given(st.dictionaries(st.sampled_from(["a", "nation", "é", "x y"]), VALUES), st.booleans())
def test_what_is_issued_is_verified_as_it_was(attributes: dict[str, Value], ruled: bool) -> None:
    rule = RULE if ruled else None
    found = IDENTITY.verify(member(attributes, policy_rule=rule, id="i1"), audience=None, now=NOW)
    assert found == Identity("i1", did(PITO), did(SMITH), attributes, Validity(NOW, NOW + HOUR), rule)
    assert repr(dict(found.attributes)) == repr(attributes)


def test_a_statement_is_short() -> None:
    day = timedelta(hours=24)
    assert member(validity=Validity(NOW, NOW + day))
    assert refusal(member, validity=Validity(NOW, NOW + day + timedelta(seconds=1))) == "too-long"
    assert refusal(member, validity=Validity(NOW)) == "missing-claim"
    assert refusal(member, validity=Validity(None, NOW + HOUR)) == "missing-claim"


# -- guests ---------------------------------------------------------------------------------------------------


def test_a_guest_has_what_the_mapping_gives_and_nothing_else() -> None:
    home = member({"clearance": "secret", "nation": "UK", "salary": 100})
    text = guest(home, home=HOME, host=TFL, now=NOW)
    found = IDENTITY.verify(text, audience=None, now=NOW)
    assert found.attributes == {"sikkerhet": "hemmelig", "nation": "UK"}
    assert (found.issuer, found.subject, found.guest_of) == (did(TFL), did(SMITH), did(PITO))
    assert found.origin == digest_of(home)
    assert made_by(text) == mapping_digest(MAPPING)
    assert made_by(home) is None


def test_a_value_that_is_not_mapped_is_left_out_and_kinds_count() -> None:
    assert translated({"clearance": "top secret"}, MAPPING) == {}
    numbers = (AttributeMap("level", "grade", ((1, "low"), (True, "yes"), (1.0, "float"))),)
    assert translated({"level": 1}, numbers) == {"grade": "low"}
    assert translated({"level": True}, numbers) == {"grade": "yes"}
    assert translated({"level": 1.0}, numbers) == {"grade": "float"}


def test_two_values_for_one_attribute_are_refused() -> None:
    both = (AttributeMap("a", "x"), AttributeMap("b", "x"))
    assert translated({"a": 1, "b": 1}, both) == {"x": 1}
    assert refusal(translated, {"a": 1, "b": 2}, both) == "ambiguous-mapping"
    assert refusal(translated, {"a": 1, "b": True}, both) == "ambiguous-mapping"


def test_every_difference_of_a_mapping_shows_in_its_digest() -> None:
    mappings = [
        MAPPING,
        MAPPING[:1],
        MAPPING[::-1],
        (AttributeMap("clearance", "sikkerhet"), MAPPING[1]),
        (AttributeMap("clearance", "sikkerhet", ()), MAPPING[1]),
        (AttributeMap("clearance", "sikkerhet", ((1, 1),)),),
        (AttributeMap("clearance", "sikkerhet", ((1, True),)),),
        (AttributeMap("clearance", "sikkerhet", ((1, 1.0),)),),
    ]
    assert len({mapping_digest(one) for one in mappings}) == len(mappings)
    assert "hemmelig" in mapping_text(MAPPING)
    assert refusal(mapping_text, [AttributeMap("a", "b")] * 1001) == "too-large"


def test_a_guest_stays_no_longer_than_at_home() -> None:
    home = member(validity=Validity(NOW, NOW + HOUR))
    later = NOW + HOUR / 2
    found = IDENTITY.verify(guest(home, home=HOME, host=TFL, now=later), audience=None)
    assert found.validity == Validity(later, NOW + HOUR)
    with pytest.raises(Expired):
        guest(home, home=HOME, host=TFL, now=NOW + HOUR)


def test_only_members_of_a_trusted_community_are_guests() -> None:
    home = member()
    assert refusal(guest, home, home=Provider(did(MALLORY), "x", MAPPING), host=TFL, now=NOW) == "wrong-issuer"
    assert refusal(guest, home, home=Provider(did(PITO), "uk"), host=TFL, now=NOW) == "no-mapping"
    assert refusal(guest, home, home=HOME, host=PITO, now=NOW) == "bad-claim"
    again = guest(home, home=HOME, host=TFL, now=NOW)
    assert refusal(guest, again, home=Provider(did(TFL), "no", MAPPING), host=MET, now=NOW) == "guest-of-guest"
    addressed = member(audience=["uk"])
    assert refusal(guest, addressed, home=HOME, host=TFL, now=NOW) == "wrong-audience"
    assert guest(addressed, home=HOME, host=TFL, now=NOW, heard_by="uk")


def test_nobody_loses_a_rule_by_travelling() -> None:
    home = member(policy_rule=RULE)
    assert refusal(guest, home, home=HOME, host=TFL, now=NOW) == "policy-rule"
    ours = parse_condition("$nation in {'UK', 'NO'}")
    found = IDENTITY.verify(guest(home, home=HOME, host=TFL, now=NOW, policy_rule=ours), audience=None)
    assert found.policy_rule == ours


# -- servers --------------------------------------------------------------------------------------------------

SERVER = issue_identity(
    TFL, subject=did(MET), attributes={"kind": "router"}, validity=Validity(NOW, NOW + HOUR), now=NOW
)


def crossing(**more: Any) -> str:
    return cross_domain(
        **{"provider": PITO, "other": did(TFL), "validity": Validity(NOW, NOW + HOUR), "now": NOW, **more}
    )


def server(text: str = SERVER, cross: str | None = None, **more: Any) -> Identity:
    return verify_server(text, cross, **{"anchor": did(PITO), "audience": None, "now": NOW, **more})


def test_a_server_is_vouched_for_by_its_provider_and_that_by_ours() -> None:
    assert server(cross=crossing()).subject == did(MET)
    assert server(anchor=did(TFL)).attributes == {"kind": "router"}
    assert refusal(server) == "wrong-issuer"
    assert refusal(server, cross=crossing(provider=MALLORY)) == "wrong-issuer"
    assert refusal(server, cross=crossing(other=did(MET))) == "wrong-subject"
    with pytest.raises(Expired):
        server(cross=crossing(validity=Validity(NOW - HOUR, NOW)))


def test_a_member_cannot_vouch_for_a_server() -> None:
    smith_says = issue_identity(SMITH, subject=did(MALLORY), attributes={}, validity=Validity(NOW, NOW + HOUR), now=NOW)
    assert refusal(server, smith_says, member()) == "unknown-claim"


def test_a_guest_of_another_community_is_no_server_of_it() -> None:
    visiting = guest(
        issue_identity(MET, subject=did(SMITH), attributes={}, validity=Validity(NOW, NOW + HOUR), now=NOW),
        home=Provider(did(MET), "met", ()),
        host=TFL,
        now=NOW,
    )
    assert refusal(server, visiting, crossing()) == "guest-of-guest"


def test_a_statement_about_a_provider_is_short_too() -> None:
    assert refusal(crossing, validity=Validity(NOW)) == "missing-claim"
    assert refusal(crossing, validity=Validity(NOW, NOW + timedelta(hours=25))) == "too-long"
