"""Certificates: what is issued is what is verified."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.lang import parse_condition
from headgate.model.authority import (
    NETWORK_ACTIONS,
    TYPE_ACTIONS,
    Authority,
    Certificate,
    NetworkAuthority,
    TypeAuthority,
    Validity,
)
from headgate.model.errors import BadStatement, Expired
from headgate.model.expressions import InGroup, Meta
from headgate.model.rights import Action
from headgate.model.values import EPOCH
from headgate.trust.certificates import CERTIFICATE, issue_certificate, new_id
from unit.trust.corpus import AT, CERT, HERE, MET, NOW, PITO, cert, did

NAMES = st.text(st.sampled_from("abcé_ "), min_size=1, max_size=8).filter(lambda t: t.strip() == t)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.binary(max_size=8),
    st.integers(0, 10**15).map(lambda n: EPOCH + timedelta(microseconds=n)),
)
CONDITIONS = st.sampled_from(
    ["true", "a = 1", "$x = 'é' or not (b in 1..2)", "timeofday(@time, 'Europe/London') < '18:00'", "a starts with 'x'"]
).map(parse_condition)
PATTERNS = st.sampled_from(["*", "uk.gov.pito.*", "a", "uk.gov.pito.Numberplate", "a-b.c_d"])


def actions(possible: frozenset[Action]) -> st.SearchStrategy[frozenset[Action]]:
    return st.frozensets(st.sampled_from(sorted(possible, key=lambda a: a.value)), min_size=1)


@st.composite
def type_authorities(draw: st.DrawFn) -> TypeAuthority:
    attributes = draw(st.none() | st.lists(NAMES, unique=True, max_size=4).map(tuple))
    forced = {name: draw(VALUES) for name in attributes or () if draw(st.booleans())}
    owner = draw(st.sampled_from([None, did(PITO), did(MET)]))
    return TypeAuthority(draw(actions(TYPE_ACTIONS)), draw(PATTERNS), owner, attributes, forced, draw(CONDITIONS))


AUTHORITIES = type_authorities() | st.builds(NetworkAuthority, actions(NETWORK_ACTIONS), NAMES | st.just("*"))
SECONDS = st.integers(1, 10**9)


@st.composite
def certificates(draw: st.DrawFn) -> Certificate:
    start = draw(st.none() | SECONDS.map(lambda n: EPOCH + timedelta(seconds=n)))
    until = draw(st.none() | SECONDS.map(lambda n: (start or EPOCH) + timedelta(seconds=n)))
    return Certificate(
        draw(st.sampled_from(["c1", "a.b-c_d", "x" * 64])),
        did(PITO),
        draw(st.sampled_from([did(MET), did(PITO)])),
        tuple(draw(st.lists(AUTHORITIES, min_size=1, max_size=4))),
        draw(st.booleans()),
        Validity(start, until),
        draw(st.none() | st.integers(1, 1000)),
    )


def exact(authority: Authority) -> object:
    """An authority with the kinds of its values, which Python takes for equal."""
    forced = {name: repr(value) for name, value in getattr(authority, "forced", {}).items()}
    return authority, forced, repr(getattr(authority, "where", None))


@given(certificates(), st.lists(st.sampled_from(["met", "tfl", "é"]), unique=True))
def test_what_is_issued_is_verified_as_it_was(wanted: Certificate, audience: list[str]) -> None:
    text = issue_certificate(
        PITO,
        subject=wanted.subject,
        authority=wanted.authority,
        now=NOW,
        delegate=wanted.delegate,
        validity=wanted.validity,
        freshness=wanted.freshness,
        audience=audience,
        id=wanted.id,
    )
    found = CERTIFICATE.verify(text, audience=audience[0] if audience else None)
    assert found == wanted
    assert [exact(one) for one in found.authority] == [exact(one) for one in wanted.authority]


def test_without_a_time_the_end_is_left_to_chains() -> None:
    until = NOW + timedelta(hours=1)
    text = cert(PITO, MET, exp=AT + 3600, nbf=AT)
    assert CERTIFICATE.verify(text, audience=None).validity == Validity(NOW, until)
    assert CERTIFICATE.verify(text, audience=None, now=until - timedelta(microseconds=1))
    with pytest.raises(Expired):
        CERTIFICATE.verify(text, audience=None, now=until)


def test_delegation_is_false_unless_it_is_said() -> None:
    given = [NetworkAuthority(frozenset({Action.CONNECT}))]
    text = issue_certificate(PITO, subject=did(MET), authority=given, now=NOW)
    assert CERTIFICATE.verify(text, audience=None).delegate is False
    assert CERTIFICATE.verify(CERT.signed(), audience=HERE).delegate is True


def test_ids_differ_and_have_128_random_bits() -> None:
    assert len({new_id() for _ in range(100)}) == 100
    assert len(new_id()) == 23
    assert new_id(lambda n: b"\xff" * n) == "s" + "_" * 21 + "w"


def test_a_star_is_every_action_of_its_kind() -> None:
    both = [{"type": "*", "actions": "*"}, {"network": "*", "actions": "*"}]
    found = CERTIFICATE.verify(cert(PITO, MET, both), audience=None).authority
    assert found == (TypeAuthority(TYPE_ACTIONS), NetworkAuthority(NETWORK_ACTIONS))


def test_one_audience_may_be_written_without_a_list() -> None:
    text = cert(PITO, MET, aud=HERE)
    assert CERTIFICATE.verify(text, audience=HERE)
    with pytest.raises(BadStatement):
        CERTIFICATE.verify(text, audience=None)


PUBLISH = frozenset({Action.PUBLISH})


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"subject": "met"}, "bad-claim"),
        ({"authority": []}, "bad-claim"),
        ({"authority": [TypeAuthority(PUBLISH, "uk.gov.pit\u043e.T")]}, "bad-name"),
        ({"authority": [TypeAuthority(PUBLISH, owner="pito")]}, "bad-claim"),
        ({"authority": [TypeAuthority(PUBLISH, forced={"a": 1})]}, "bad-claim"),
        ({"authority": [TypeAuthority(PUBLISH, attributes=("b",), forced={"a": 1})]}, "bad-claim"),
        ({"authority": [TypeAuthority(PUBLISH, attributes=("a",), forced={"a": None})]}, "bad-claim"),
        ({"authority": [TypeAuthority(PUBLISH, attributes=("a",), forced={"a": float("inf")})]}, "bad-claim"),
        ({"authority": [TypeAuthority(PUBLISH, where=InGroup(Meta("publisher"), "staff"))]}, "bad-condition"),
        ({"id": "a/b"}, "bad-claim"),
        ({"freshness": 0}, "bad-claim"),
        ({"audience": [""]}, "bad-claim"),
        ({"validity": Validity(NOW, NOW + timedelta(microseconds=1))}, "bad-claim"),
    ],
)
def test_nothing_is_issued_that_would_be_refused(changed: dict[str, Any], reason: str) -> None:
    usual = {"subject": did(MET), "authority": [TypeAuthority(PUBLISH)], "now": NOW}
    assert issue_certificate(PITO, **usual)  # type: ignore[arg-type]
    with pytest.raises(BadStatement) as refused:
        issue_certificate(PITO, **{**usual, **changed})
    assert refused.value.reason == reason
