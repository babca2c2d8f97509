"""Identity statements, policy rules, providers and issuing rules: what they change, and what outlasts them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from headgate.authority.statement_state import next_moment
from headgate.decide.apply import apply
from headgate.decide.check import match
from headgate.lang import parse_condition
from headgate.model.authority import AttributeMap, Certificate, Identity, Issuing, Provider, Succession, Validity
from headgate.model.changes import (
    AddIssuing,
    Batch,
    DeclareGroup,
    DeclarePrincipal,
    Identify,
    RemoveGroup,
    RemoveIssuing,
    RemovePrincipal,
    RemoveProvider,
    SetAttribute,
    SetKey,
    SetPolicyRule,
    SetProvider,
    Subscribe,
    Succeed,
    Tick,
)
from headgate.model.errors import (
    AlreadyExists,
    BadExpression,
    ChainInvalid,
    Expired,
    GovernDenied,
    HeadgateError,
    Revoked,
    StaleList,
    UnknownName,
)
from headgate.model.expressions import AllOf, all_of
from headgate.model.rights import Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.values import Value
from strategies.authority import CCS, DIDS, MET, PITO, PLATE, SMITH, Step, at, over, revoked, stories, then, told, world
from strategies.running import examples

OURS = SetProvider(Provider(PITO, "home"))
GUESTS = SetProvider(Provider(CCS, "away", (AttributeMap("clearance", "level"),)))
SECRET = parse_condition("$clearance = 'secret'")
OPEN = parse_condition("$clearance = 'open'")


def says(
    id: str,
    subject: str = SMITH,
    issuer: str = PITO,
    *,
    start: float | None = None,
    until: float | None = 100,
    rule: str | None = None,
    now: float = 0,
    **attributes: Value,
) -> Identify:
    """A provider says something of a principal."""
    valid = Validity(None if start is None else at(start), None if until is None else at(until))
    policy = None if rule is None else parse_condition(rule)
    return Identify(SMITH, Identity(id, issuer, subject, attributes, valid, policy), at(now))


def of(state: State, principal: str = SMITH) -> dict[str, Value]:
    return dict(state.principals[principal])


def tick(seconds: float) -> Tick:
    return Tick(at(seconds))


# -- identity statements --------------------------------------------------------------------------------------


def test_what_a_provider_says_become_attributes_until_it_ends() -> None:
    state = world(OURS, says("i", clearance="secret", age=40))
    assert of(state) == {"clearance": "secret", "age": 40}
    assert next_moment(state, at(0)) == at(100)
    assert of(then(state, tick(99))) == {"clearance": "secret", "age": 40}
    ended = then(state, tick(100))
    assert (of(ended), dict(ended.identities)) == ({}, {})


def test_the_domains_own_word_stands() -> None:
    state = world(OURS, SetAttribute(SMITH, "clearance", "open"), says("i", clearance="secret", age=40))
    assert of(state) == {"clearance": "open", "age": 40}
    assert of(then(state, tick(100))) == {"clearance": "open"}


def test_the_domain_may_take_up_an_attribute_that_was_attested() -> None:
    state = world(OURS, says("i", clearance="secret"), SetAttribute(SMITH, "clearance", "open"))
    assert of(then(state, tick(100))) == {"clearance": "open"}
    assert of(then(state, says("j", clearance="secret", now=1))) == {"clearance": "open"}


def test_the_domain_may_take_an_attested_attribute_away() -> None:
    state = world(OURS, says("i", clearance="secret", age=4), SetAttribute(SMITH, "clearance", None))
    assert of(state) == {"age": 4}
    assert of(then(state, says("j", clearance="secret", now=1))) == {"clearance": "secret"}


def test_a_new_statement_takes_the_place_of_the_last_one_of_its_provider() -> None:
    state = world(OURS, says("i", clearance="secret", age=40), says("j", clearance="open", now=5, until=105))
    assert of(state) == {"clearance": "open"}
    assert set(state.identities) == {"pito#j"}
    assert of(then(state, tick(100))) == {"clearance": "open"}


def test_the_statement_that_began_last_counts() -> None:
    also = SetProvider(Provider(MET, "met"))
    first = says("i", clearance="secret", start=1, now=5)
    second = says("m", issuer=MET, clearance="open", start=2, until=50, now=5)
    for order in ((first, second), (second, first)):
        state = world(OURS, also, *order)
        assert of(state) == {"clearance": "open"}
        assert of(then(state, tick(50))) == {"clearance": "secret"}
        assert of(then(state, revoked(MET, 1, "m", issued=9))) == {"clearance": "secret"}


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        (says("i", issuer=MET), ChainInvalid),
        (says("i", issuer=CCS), ChainInvalid),
        (says("i", subject=MET), ChainInvalid),
        (says("i", until=5, now=5), Expired),
        (says("i", start=6, now=5), ChainInvalid),
        (says("gone"), Revoked),
        (says("i", rule="lane = 1"), BadExpression),
        (Identify("nobody", Identity("i", PITO, "nobody", {}, Validity()), at(0)), UnknownName),
    ],
    ids=["no-provider", "of-guests", "anothers", "expired", "not-yet", "revoked", "no-rule", "nobody"],
)
def test_statements_that_say_nothing_here(statement: Identify, error: type[HeadgateError]) -> None:
    state = world(OURS, GUESTS, revoked(PITO, 1, "gone"))
    with pytest.raises(error) as caught:
        then(state, statement)
    assert type(caught.value) is error


def test_a_revoked_statement_falls() -> None:
    state = world(OURS, says("i", clearance="secret"), revoked(PITO, 1, "i"))
    assert of(state) == {}


def test_a_provider_that_is_trusted_no_more_takes_its_word_along() -> None:
    state = world(OURS, says("i", clearance="secret"))
    assert of(then(state, RemoveProvider(PITO))) == {}
    mapped = SetProvider(Provider(PITO, "home", (AttributeMap("a", "b"),)))
    assert of(then(state, mapped)) == {}
    with pytest.raises(UnknownName):
        then(state, RemoveProvider(MET))


def test_a_provider_may_go_on_under_another_key() -> None:
    state = world(OURS, says("i", age=4), Succeed(Succession(PITO, DIDS[0]), at(1)))
    assert of(then(state, says("j", issuer=DIDS[0], age=5, now=2))) == {"age": 5}


def test_a_provider_speaks_with_no_key_that_has_ended() -> None:
    state = world(OURS, says("i", age=4), Succeed(Succession(PITO, DIDS[0], 0, at(10)), at(1)))
    assert of(state) == {"age": 4}
    assert next_moment(state, at(1)) == at(10)
    assert of(then(state, tick(10))) == {}
    assert of(then(state, Succeed(Succession(PITO, DIDS[0], 1, at(5)), at(6)))) == {}
    with pytest.raises(ChainInvalid, match="has ended"):
        then(state, says("j", age=5, now=10))
    assert of(then(state, tick(10), says("j", issuer=DIDS[0], age=5, now=11))) == {"age": 5}


def test_a_subject_is_known_by_its_key() -> None:
    state = world(OURS, SetKey(SMITH, DIDS[0]))
    with pytest.raises(ChainInvalid):
        then(state, says("i", age=4))
    assert of(then(state, says("i", subject=DIDS[0], age=4))) == {"age": 4}


def test_a_principal_that_goes_takes_what_was_said_of_it() -> None:
    state = world(OURS, says("i", age=4, rule="$clearance = 'secret'"), RemovePrincipal(SMITH))
    assert (dict(state.identities), dict(state.policy_rules), dict(state.attested_rules)) == ({}, {}, {})
    assert of(then(state, DeclarePrincipal(SMITH), tick(100))) == {}


# -- policy rules ---------------------------------------------------------------------------------------------


def test_a_policy_rule_outlasts_the_statement_that_brought_it() -> None:
    state = world(OURS, says("i", rule="$clearance = 'secret'"), tick(100))
    assert (dict(state.policy_rules), set(state.attested_rules)) == ({SMITH: SECRET}, {SMITH})
    for change in (RemoveProvider(PITO), revoked(PITO, 1, "i")):
        assert then(world(OURS, says("i", rule="$clearance = 'secret'")), change).policy_rules == {SMITH: SECRET}
    assert then(state, says("j", until=200, now=101)).policy_rules == {SMITH: SECRET}
    assert then(state, says("j", until=200, now=101, rule="$clearance = 'open'")).policy_rules == {SMITH: OPEN}


def test_the_domains_own_policy_rule_stands() -> None:
    state = world(OURS, SetPolicyRule(SMITH, OPEN), says("i", rule="$clearance = 'secret'"))
    assert (dict(state.policy_rules), dict(state.attested_rules)) == ({SMITH: OPEN}, {})
    own = then(world(OURS, says("i", rule="$clearance = 'secret'")), SetPolicyRule(SMITH, OPEN))
    assert (dict(own.policy_rules), dict(own.attested_rules)) == ({SMITH: OPEN}, {})
    assert then(own, SetPolicyRule(SMITH, None)).policy_rules == {}


def test_no_provider_lifts_the_rule_of_another() -> None:
    also = SetProvider(Provider(MET, "met"))
    first = says("i", rule="$clearance = 'secret'", clearance="secret")
    second = says("m", issuer=MET, rule="$a = 1 or not $a = 1")
    for order in ((first, second), (second, first)):
        state = world(OURS, also, *order)
        assert match(state.policy_rules[SMITH], {"clearance": "open", "a": 1}) is False
        assert match(state.policy_rules[SMITH], {"clearance": "secret", "a": 1}) is True
        assert state.policy_rules[SMITH] == all_of(parse_condition("$a = 1 or not $a = 1"), SECRET)
    for change in (revoked(PITO, 1, "i"), RemoveProvider(PITO), tick(100)):
        assert match(then(state, change).policy_rules[SMITH], {"clearance": "open", "a": 1}) is False
    # Each provider may say otherwise for its own part, under whichever of its keys.
    moved = then(state, Succeed(Succession(PITO, DIDS[0]), at(1)))
    anew = then(moved, says("j", issuer=DIDS[0], rule="$clearance = 'open'", now=2))
    assert {one.provider for one in anew.attested_rules[SMITH]} == {DIDS[0], MET}
    assert match(anew.policy_rules[SMITH], {"clearance": "open", "a": 1}) is True
    assert then(anew, SetPolicyRule(SMITH, None)).attested_rules == {}


def test_an_older_statement_brings_nothing_back() -> None:
    lax = says("old", start=0, rule="$a = 1 or $b = 1", clearance="top", now=12)
    strict = says("new", start=10, until=50, rule="$a = 1", clearance="none", now=11)
    state = world(OURS, says("old", start=0, rule="$a = 1 or $b = 1", clearance="top", now=1), strict)
    with pytest.raises(StaleList):
        then(state, lax)
    assert then(state, strict).identities == state.identities  # the very same again
    # Once the newer one is over, the older speaks of attributes again, but the rule does not get wider.
    later = then(state, tick(50), replace(lax, at=at(60)))
    assert of(later) == {"clearance": "top"}
    assert later.policy_rules == {SMITH: parse_condition("$a = 1")}
    assert then(later, says("next", start=61, rule="$b = 1", now=61)).policy_rules == {SMITH: parse_condition("$b = 1")}


def test_statements_of_two_providers_do_not_date_each_other() -> None:
    state = world(OURS, SetProvider(Provider(MET, "met")), says("i", start=5, age=4, now=6))
    assert of(then(state, says("m", issuer=MET, start=1, rank=2, now=7))) == {"age": 4, "rank": 2}


def test_rules_that_are_too_long_together_are_refused() -> None:
    def wordy(name: str) -> str:
        return f"${name} in {{{', '.join(map(str, range(100_000, 100_700)))}}}"

    state = world(OURS, SetProvider(Provider(MET, "met")), says("i", rule=wordy("a")))
    with pytest.raises(BadExpression, match="too long"):
        then(state, says("m", issuer=MET, rule=wordy("b")))


@pytest.mark.parametrize("text", ["lane = 1", "@time > timestamp '2026-01-01T00:00:00Z'", "$a in group g", "R($a)"])
def test_a_rule_about_receivers_looks_at_their_attributes_alone(text: str) -> None:
    state = world(OURS)
    with pytest.raises(BadExpression):
        then(state, SetPolicyRule(SMITH, parse_condition(text)))
    with pytest.raises(BadExpression):
        then(state, Subscribe(Subscription("s", SMITH, PLATE, requires=parse_condition(text))))
    with pytest.raises(UnknownName):
        then(state, SetPolicyRule("nobody", SECRET))


def test_nobody_else_says_who_is_trusted() -> None:
    state = world(OURS)
    issuing = AddIssuing(Issuing("r", SMITH, (over(),), 60))
    for change in (OURS, RemoveProvider(PITO), SetPolicyRule(SMITH, None), says("i"), issuing):
        with pytest.raises(GovernDenied):
            apply(state, Batch(PITO, (change,)))


# -- issuing --------------------------------------------------------------------------------------------------


def test_issuing_rules_come_and_go_with_whom_they_speak_of() -> None:
    state = world(DeclareGroup("staff"), AddIssuing(Issuing("r", "staff", (over(),), 60)))
    assert then(state, AddIssuing(Issuing("r", SMITH, (over(),), 30))).issuing["r"].seconds == 30
    assert then(state, RemoveIssuing("r")).issuing == {}
    assert then(state, RemoveGroup("staff")).issuing == {}
    mine = then(state, AddIssuing(Issuing("mine", SMITH, (over(),), 60)))
    assert set(then(mine, RemovePrincipal(SMITH)).issuing) == {"r"}
    for change in (AddIssuing(Issuing("x", "nobody", (over(),), 60)), RemoveIssuing("x")):
        with pytest.raises(UnknownName):
            then(state, change)


# -- together -------------------------------------------------------------------------------------------------


@examples(150)
@given(stories(steps=14, identities=True))
def test_statements_never_touch_what_is_the_domains_own(story: tuple[list[Certificate], list[Step]]) -> None:
    own: dict[str, dict[str, Value]] = {SMITH: {}, MET: {}}
    state = world()
    for state, _, batch in told(story):
        (change,) = batch.changes
        match change:
            case SetAttribute(principal, name, value):
                own[principal].pop(name, None)
                own[principal].update({} if value is None else {name: value})
            case RemovePrincipal(principal) | DeclarePrincipal(principal):
                own[principal] = {}
        for principal, values in own.items():
            found = state.principals.get(principal, {})
            assert {name: found.get(name) for name in values} == values
            given = {name for one in state.identities.values() if one.principal == principal for name in one.applied}
            assert given.isdisjoint(values)
            assert found.keys() == values.keys() | given
        assert state.attested_rules.keys() <= state.policy_rules.keys()
        for principal, rules in state.attested_rules.items():
            limit = state.policy_rules[principal]
            parts = limit.args if isinstance(limit, AllOf) else (limit,)
            assert set(parts) == {one.rule for one in rules}
            assert len({one.provider for one in rules}) == len(rules)
    for principal, values in own.items():
        if principal in state.principals:
            assert dict(then(state, Tick(at(10_000))).principals[principal]).items() >= values.items()


def test_an_end_counts_whatever_its_number() -> None:
    """A thief who uses up the numbers does not keep the owner from ending the key."""
    stolen = Succession(PITO, "pito'", number=2**62)
    state = then(world(), Succeed(Succession(PITO, "pito'"), at(0)), Succeed(stolen, at(1)))
    ended = then(state, Succeed(Succession(PITO, "pito'", number=1, until=at(2)), at(3)))
    assert ended.successions[PITO] == Succession(PITO, "pito'", number=2**62, until=at(2))
    with pytest.raises(StaleList):
        then(ended, Succeed(Succession(PITO, "pito'", number=2, until=at(2)), at(3)))


def test_an_administrator_is_nobody_to_be_attested() -> None:
    with pytest.raises(UnknownName):
        then(world(OURS), Identify(ADMINISTRATOR, Identity("i", PITO, ADMINISTRATOR, {}, Validity()), at(0)))


def test_a_statement_about_somebody_else_does_not_take_the_place_of_one_by_its_id() -> None:
    state = then(world(), SetProvider(Provider(CCS, "ccs")))
    state = then(state, Identify(SMITH, Identity("i", CCS, SMITH, {"a": 1}, Validity()), at(0)))
    with pytest.raises(AlreadyExists):
        then(state, Identify(MET, Identity("i", CCS, MET, {}, Validity()), at(0)))
    assert state.principals[SMITH] == {"a": 1}
