"""Rules that ask publishers for an identity statement in force (D6), and what is said of publishers without one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.analysis.advice import Concern, advise, unattested
from headgate.analysis.effects import Turn, effects
from headgate.analysis.proofs import Fault, check_policy
from headgate.analysis.restrictions import Reason, holds_now, restrict_publish
from headgate.decide.deliver import Books
from headgate.decide.publish import admit
from headgate.decide.views import governs
from headgate.lang import parse_condition, render_condition
from headgate.lang.rolefile import parse_role
from headgate.model.authority import AttributeMap, Identity, Provider, RevocationList, Validity
from headgate.model.changes import AddRule, Change, Identify, RemoveProvider, Revoke, SetProvider, Tick
from headgate.model.errors import BadDefinition, PublishDenied
from headgate.model.expressions import TRUE
from headgate.model.rights import Action, Effect, Rule
from headgate.model.state import State
from strategies.authority import CCTV, MET, PITO, PLATE, SENDS, SMITH, at, cert, over, present, then, world
from strategies.small import draft

IDP = SetProvider(Provider(MET, "the Met"))


def grant(id: str, who: str = CCTV, where: str = "true", *, attested: bool = True) -> Change:
    """A rule that lets someone publish number plates."""
    return AddRule(Rule(id, who, SENDS, PLATE, parse_condition(where), attested=attested))


def shows(who: str = CCTV, until: float | None = None, id: str = "i") -> Change:
    """Someone shows an identity statement."""
    valid = Validity(None, None if until is None else at(until))
    return Identify(who, Identity(id, MET, who, {}, valid), at(0))


def publishes(state: State, who: str = CCTV) -> bool:
    """May someone publish a number plate?"""
    sent = draft(PLATE, who, lane=1)
    try:
        admit(state, sent, now=at(0), predicates={})
    except PublishDenied:
        return False
    return True


def test_it_lets_in_only_publishers_of_whom_a_statement_is_in_force() -> None:
    state = world(IDP, grant("r"))
    assert not publishes(state)
    assert publishes(then(state, shows()))
    assert not publishes(then(state, shows(SMITH)))  # about somebody else


@pytest.mark.parametrize(
    "ends",
    [
        Tick(at(60)),
        Revoke(RevocationList(MET, 1, at(0), frozenset({"i"})), at(0)),
        RemoveProvider(MET),
        SetProvider(Provider(MET, "the Met", (AttributeMap("a", "b"),))),
    ],
)
def test_it_passes_over_from_the_version_on_at_which_the_statement_ends(ends: Change) -> None:
    state = world(IDP, grant("r"), shows(until=60))
    assert publishes(state)
    assert not publishes(then(state, ends))


def test_what_passes_over_is_not_there_and_the_next_is_tried() -> None:
    state = world(IDP, grant("r"), grant("s", where="lane = 1", attested=False))
    assert publishes(state)
    stopped = AddRule(Rule("f", CCTV, SENDS, PLATE, effect=Effect.FORBID))
    assert not publishes(then(world(IDP, grant("r")), stopped, grant("s", attested=False)))
    assert publishes(then(world(IDP, grant("r")), stopped, shows()))  # it stands before the forbid


def test_the_refusal_says_what_is_missing() -> None:
    with pytest.raises(PublishDenied, match="without an identity statement in force"):
        admit(world(IDP, grant("r")), draft(PLATE, CCTV), now=at(0), predicates={})
    with pytest.raises(PublishDenied) as refused:
        admit(world(IDP, grant("r")), draft(PLATE, SMITH), now=at(0), predicates={})
    assert "identity" not in str(refused.value)  # nothing would let it in


@pytest.mark.parametrize(
    ("actions", "effect"),
    [(SENDS, Effect.FORBID), ({Action.SUBSCRIBE}, Effect.GRANT), ({Action.CONNECT}, Effect.GRANT)],
)
def test_it_is_of_grants_of_publish(actions: set[Action], effect: Effect) -> None:
    with pytest.raises(BadDefinition, match="`attested`"):
        Rule("r", CCTV, frozenset(actions), PLATE, effect=effect, attested=True)


def test_other_actions_of_the_rule_are_granted_as_before() -> None:
    both = Rule("r", CCTV, frozenset({Action.PUBLISH, Action.GOVERN}), PLATE, attested=True)
    state = world(IDP, AddRule(both))
    assert not publishes(state)
    assert governs(state, CCTV, PLATE)


def test_time_and_rate_are_not_asked_of_whoever_is_passed_over() -> None:
    state = world(IDP, grant("r", where="@rate < 9"))
    assert holds_now(state, CCTV, PLATE, now=at(0), origin=None, rate=1) is None
    assert holds_now(then(state, shows()), CCTV, PLATE, now=at(0), origin=None, rate=1) is True


def test_restrictions_name_the_rule_that_passes_over() -> None:
    state = world(IDP, grant("r"))
    books = Books(state, lambda _: state, lambda _: {})
    found = restrict_publish(CCTV, CCTV, PLATE, state.version, books)
    assert found.reason is Reason.NO_IDENTITY
    assert [(one.rule, one.passed_over) for one in found.entries] == [("r", True)]
    shown = then(state, shows())
    found = restrict_publish(CCTV, CCTV, PLATE, shown.version, Books(shown, lambda _: shown, lambda _: {}))
    assert found.reason is None
    assert not found.entries[0].passed_over


# -- what is said of publishers ---------------------------------------------------------------------------------


def named(state: State) -> list[tuple[str, ...]]:
    """The publishers, or the rules for roles, that are warned of."""
    return [one.names for one in unattested(state)]


def test_publishers_that_could_do_without_are_warned_of_where_there_is_a_provider() -> None:
    rules = grant("r", CCTV), grant("s", SMITH, attested=False), shows(SMITH)
    assert named(world(*rules[:2])) == []
    assert named(world(SetProvider(Provider(PITO, "home", (AttributeMap("a", "b"),))), *rules[:2])) == []
    state = world(IDP, *rules)  # also whoever has one now: it may end
    assert named(state) == [(SMITH,)]
    assert Concern.UNATTESTED in {one.concern for one in advise(state)}
    never = AddRule(Rule("f", SMITH, SENDS, PLATE, TRUE, effect=Effect.FORBID), first=True)
    assert named(then(state, never)) == []


def test_chains_and_roles_are_warned_of_too() -> None:
    by_chain = present(CCTV, cert("c", PITO, CCTV, over(actions=SENDS)))
    assert named(world(IDP, by_chain)) == [(CCTV,)]
    role = Rule("r", "", SENDS, PLATE, role=parse_role("Desk.OnDuty(x)"))
    assert named(world(IDP, AddRule(role))) == [("r",)]
    assert named(world(IDP, AddRule(replace(role, attested=True)))) == []


def test_a_plan_says_who_loses_by_it() -> None:
    state = world(IDP, grant("r", attested=False), shows(SMITH), grant("s", SMITH, attested=False))
    after = then(state, grant("r"), grant("s", SMITH))
    found = {one.who: one.gains for one in effects(state, after, render_condition)}
    (lost,) = found[CCTV,]
    assert lost.turn is Turn.LOSES
    (otherwise,) = found[SMITH,]
    assert otherwise.turn is Turn.OTHERWISE
    assert otherwise.after == "everything while an identity statement is in force"


def test_a_rule_that_may_pass_over_makes_no_other_needless() -> None:
    state = world(IDP, grant("r"), grant("s", attested=False))
    assert [(one.rule, one.fault) for one in check_policy(state).findings] == [("r", Fault.REDUNDANT)]
    assert [one.concern for one in advise(state) if one.names == ("s",)] == []
