"""Requirements that publishers and subscribers place on each other, and policy rules over them: rule D11."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.decide.check import check_requirement, match
from headgate.decide.deliver import decide
from headgate.decide.publish import admit
from headgate.lang import parse_condition
from headgate.model.changes import RemovePrincipal, SetAttribute, SetPolicyRule, Subscribe
from headgate.model.errors import BadExpression, HeadgateError, PolicyRuleDenied
from headgate.model.events import Event
from headgate.model.expressions import Condition
from headgate.model.rights import Action, Subscription
from headgate.solver import check_policy_rule
from strategies.memory import MemoryLedger
from strategies.small import NOON, SEEN, commit, draft, grant, seen, world

SECRET, NORWAY = parse_condition("$clearance = 'secret'"), parse_condition("$nation = 'NO'")
PUBLISH = (Action.PUBLISH,)


def ledger(*changes: object, history: bool = False, asks: Condition | None = None) -> MemoryLedger:
    """Anna may see everything, and wants it."""
    wish = Subscribe(Subscription("s", "anna", SEEN, history=history, requires=asks))
    return world(grant("r", "anna"), *changes, wish)  # type: ignore[arg-type]


def receives(known: MemoryLedger, event: Event) -> bool:
    (wanted,) = known.every_subscription()
    return decide(event, wanted, known.state, {}) is not None


def sent(known: MemoryLedger, requires: Condition | None = None, version: int | None = None) -> Event:
    return replace(seen(known.version if version is None else version, speed=1), requires=requires)


# -- what a requirement is ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["speed = 1", "@time > timestamp '2026-01-01T00:00:00Z'", "@publisher = $name", "$name in group staff", "R($name)",
     "predicate p($name)", "timeofday(@time, 'UTC') > 3", "$a = 1 and (true or not speed is null)", "@rate < $limit"],
)  # fmt: skip
def test_a_requirement_looks_at_nothing_but_the_attributes_of_the_other_side(text: str) -> None:
    with pytest.raises(BadExpression):
        check_requirement(parse_condition(text))


@pytest.mark.parametrize(
    "text", ["$a = 1", "not $a in 1..3", "$a in {1, 'x'} or $b has token 'y'", "$a is null", "true", "$a < $b"]
)
def test_every_operator_over_attributes_will_do(text: str) -> None:
    check_requirement(parse_condition(text))


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("$a = 1", {"a": 1}, True),
        ("$a = 1", {"a": 1.0}, True),
        ("$a = 1", {"a": True}, None),
        ("$a = 1", {}, None),
        ("not $a = 1", {}, None),
        ("$a is null", {}, True),
        ("$a = 1 or $b = 2", {"b": 2}, True),
        ("$a > 'b'", {"a": 3}, None),
        ("$a has token 'no'", {"a": "se no fi"}, True),
    ],
)
def test_attributes_have_no_declared_kind(text: str, attributes: dict, expected: bool | None) -> None:
    assert match(parse_condition(text), attributes) is expected


# -- delivering ---------------------------------------------------------------------------------------------------


def test_a_receiver_must_meet_the_requirement_of_the_event() -> None:
    known = ledger(SetAttribute("anna", "clearance", "secret"))
    assert receives(known, sent(known, SECRET))
    assert receives(known, sent(known))
    assert not receives(known, sent(known, parse_condition("$clearance = 'top'")))
    assert not receives(known, sent(known, NORWAY))


def test_what_is_unknown_of_a_receiver_does_not_meet_a_requirement() -> None:
    known = ledger()
    assert not receives(known, sent(known, SECRET))
    assert not receives(known, sent(known, parse_condition("not $clearance = 'secret'")))
    assert receives(known, sent(known, parse_condition("$clearance is null")))


def test_the_attributes_at_the_version_of_the_event_count() -> None:
    known = ledger(SetAttribute("anna", "clearance", "secret"))
    then = known.version
    commit(known, SetAttribute("anna", "clearance", None))
    assert receives(known, sent(known, SECRET, then))
    assert not receives(known, sent(known, SECRET))


def test_whoever_is_not_there_has_no_attributes() -> None:
    known = ledger(SetAttribute("bob", "rank", 1), RemovePrincipal("bob"), asks=parse_condition("$rank is null"))
    assert receives(known, replace(sent(known), publisher="bob"))
    assert not receives(known, sent(known, parse_condition("$clearance = 'secret'")))


def test_a_publisher_must_meet_the_requirement_of_the_subscription() -> None:
    known = ledger(SetAttribute("cam", "nation", "NO"), asks=NORWAY)
    assert receives(known, sent(known))
    assert not receives(known, replace(sent(known), publisher="bob"))
    commit(known, SetAttribute("cam", "nation", "SE"))
    assert not receives(known, sent(known))
    assert receives(known, sent(known, version=known.version - 1))


def test_a_receiver_must_meet_the_policy_rule_of_the_publisher_too() -> None:
    known = ledger(SetAttribute("anna", "nation", "NO"), SetPolicyRule("cam", SECRET))
    assert not receives(known, sent(known, NORWAY))
    then = commit(known, SetAttribute("anna", "clearance", "secret")).version
    assert receives(known, sent(known, NORWAY))
    commit(known, SetPolicyRule("cam", parse_condition("$clearance = 'top'")))
    assert not receives(known, sent(known, NORWAY))
    assert receives(known, sent(known, NORWAY, then))


def test_history_asks_what_was_so_at_the_version_of_the_event() -> None:
    known = world(grant("r", "anna"))
    early = sent(known, SECRET)
    later = replace(early, version=commit(known, SetAttribute("anna", "clearance", "secret")).version)
    commit(known, SetAttribute("anna", "clearance", None))
    commit(known, Subscribe(Subscription("s", "anna", SEEN, history=True)))
    assert receives(known, later)
    assert not receives(known, early)
    assert receives(known, replace(early, requires=None))


# -- publishing ---------------------------------------------------------------------------------------------------


def refusal(known: MemoryLedger, requires: Condition | None, **values: object) -> HeadgateError | None:
    try:
        admit(
            known.now,
            replace(draft(**values), requires=requires),
            now=NOON,
            predicates={},
            policy_rule=check_policy_rule,
        )  # type: ignore[arg-type]
    except HeadgateError as error:
        return error
    return None


def test_a_policy_rule_must_be_wider_than_the_requirement() -> None:
    known = world(grant("r", "cam", may=PUBLISH), SetPolicyRule("cam", SECRET))
    assert refusal(known, SECRET) is None
    assert refusal(known, parse_condition("$clearance = 'secret' and $nation = 'NO'")) is None
    for too_wide in (NORWAY, parse_condition("$clearance in {'secret', 'open'}"), parse_condition("true"), None):
        assert isinstance(refusal(known, too_wide), PolicyRuleDenied)


def test_the_refusal_shows_a_receiver_who_would_get_past_the_policy_rule() -> None:
    known = world(grant("r", "cam", may=PUBLISH), SetPolicyRule("cam", SECRET))
    found = refusal(known, parse_condition("$clearance = 'open'"))
    assert found is not None
    assert found.code == "policy-rule"
    assert "`$clearance = open`" in (found.remedy or "")
    missing = refusal(known, None)
    assert missing is not None
    assert "has no requirement" in missing.message


def test_a_policy_rule_that_is_always_true_asks_for_nothing() -> None:
    known = world(grant("r", "cam", may=PUBLISH), SetPolicyRule("cam", parse_condition("true")))
    assert refusal(known, None) is None
    assert refusal(known, NORWAY) is None


def test_the_policy_rule_is_asked_last() -> None:
    known = world(SetPolicyRule("cam", SECRET))
    told = [refusal(known, NORWAY, speed="x"), refusal(known, parse_condition("speed = 1")), refusal(known, NORWAY)]
    assert [one and one.code for one in told] == ["type-mismatch", "bad-expression", "publish-denied"]
    commit(known, grant("r", "cam", may=PUBLISH))
    assert (refusal(known, NORWAY) or HeadgateError("")).code == "policy-rule"


def test_an_accepted_event_keeps_what_it_was_sent_with() -> None:
    known = world(grant("r", "cam", may=PUBLISH))
    event = admit(
        known.now,
        replace(draft(), requires=SECRET, origin="10.0.0.1"),
        now=NOON,
        predicates={},
        rate=3,
        policy_rule=check_policy_rule,
    )
    assert (event.requires, event.origin, event.rate) == (SECRET, "10.0.0.1", 3)


# -- what the gateway saw -----------------------------------------------------------------------------------------


def test_the_origin_is_that_of_the_holder_of_the_right() -> None:
    near = parse_condition("@origin starts with '10.'")
    known = world(grant("p", "cam", where=near, may=PUBLISH), grant("r", "anna", where=near))
    commit(known, Subscribe(Subscription("s", "anna", SEEN, origin="10.0.0.9")))
    commit(known, Subscribe(Subscription("t", "anna", SEEN, origin="192.168.0.1")))
    commit(known, Subscribe(Subscription("u", "anna", SEEN)))
    accepted = admit(
        known.now, replace(draft(), origin="10.0.0.1"), now=NOON, predicates={}, policy_rule=check_policy_rule
    )
    with pytest.raises(HeadgateError):
        admit(known.now, replace(draft(), origin="11.0.0.1"), now=NOON, predicates={}, policy_rule=check_policy_rule)
    far = replace(accepted, origin="172.16.0.1")  # where it came from is no matter to those who receive it
    got = [decide(far, s, known.state, {}) is not None for s in known.every_subscription()]
    assert got == [True, False, False]


def test_the_rate_on_the_event_counts_for_subscribers_too() -> None:
    known = world(grant("r", "anna", where=parse_condition("@rate <= 2")), Subscribe(Subscription("s", "anna", SEEN)))
    event = sent(known)
    assert [receives(known, replace(event, rate=n)) for n in (1, 2, 3, None)] == [True, True, False, False]


@pytest.mark.parametrize("text", ["@rate < 3", "@origin = '10.0.0.1'", "speed = 1 or not @rate is null"])
def test_a_filter_cannot_look_at_them(text: str) -> None:
    with pytest.raises(BadExpression, match="a filter cannot use"):
        world(Subscribe(Subscription("s", "anna", SEEN, parse_condition(text))))
