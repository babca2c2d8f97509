"""What conditions and requirements may name, by who wrote them (D9, D11, D14), and what refusals tell."""

from __future__ import annotations

import pytest

from headgate.analysis.explain import Question, explain
from headgate.analysis.plan import plan
from headgate.decide.apply import apply
from headgate.decide.deliver import Books
from headgate.decide.publish import admit
from headgate.lang import parse_condition
from headgate.lang.rolefile import parse_role
from headgate.model.changes import (
    AddMember,
    AddRule,
    Advertise,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    RemoveGroup,
    RemoveRelation,
    RemoveRule,
    SetAttribute,
    SetOpen,
    SetPolicyRule,
    SetPrivate,
    Subscribe,
    Unsubscribe,
)
from headgate.model.errors import BadDefinition, BadExpression, ChainInvalid, GovernDenied, HeadgateError
from headgate.model.events import Draft, Event
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.solver import check_policy_rule
from strategies.authority import CCTV, DIDS, MET, PITO, PLATE, SEES, SMITH, at, cert, chains, over, present, then, world
from strategies.authority import WORLD as NETWORK

OWNED = "numberplate in group insiders"


def prepared(*more: Change) -> State:
    """The police network with a closed group and relation, open ones, and Smith's salary."""
    return world(
        DeclareGroup("insiders"),
        AddMember("insiders", SMITH),
        DeclareGroup("public", open=True),
        DeclareRelation("Knows"),
        DeclareRelation("Near", open=True),
        SetAttribute(SMITH, "salary", 5200),
        SetPrivate("salary", True),
        *more,
    )


def rule(where: str, id: str = "r", who: str = MET, **more: object) -> AddRule:
    """A rule on number plates."""
    return AddRule(Rule(id, who, SEES, PLATE, parse_condition(where), **more))  # type: ignore[arg-type]


def by(author: str, state: State, *changes: Change) -> State:
    """The state after a batch of somebody."""
    return apply(state, Batch(author, changes))


def refusal(state: State, author: str, *changes: Change) -> HeadgateError:
    """Why a batch is refused."""
    with pytest.raises(HeadgateError) as refused:
        by(author, state, *changes)
    return refused.value


# -- rules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    [
        "numberplate in group insiders",
        "numberplate in group nobody",
        "Knows(numberplate, 'x')",
        "Nothing(numberplate, 'x')",
        "lane = 1 or not (@publisher in group insiders)",
        "$salary in group insiders",
    ],
)
@pytest.mark.parametrize("effect", list(Effect))
def test_only_the_administrators_conditions_name_what_is_closed(where: str, effect: Effect) -> None:
    found = refusal(prepared(SetPrivate("salary", False)), PITO, rule(where, effect=effect))
    assert found.code == GovernDenied.code
    assert "`public`" not in str(found)  # no list of others


def test_a_closed_name_and_one_that_is_not_there_get_the_same_answer() -> None:
    state = prepared()
    for closed, absent, where in (
        ("insiders", "outsiders", "numberplate in group {}"),
        ("Knows", "Meets", "{}(numberplate)"),
    ):
        told = [str(refusal(state, PITO, rule(where.format(name)))).replace(name, "it") for name in (closed, absent)]
        assert told[0] == told[1]


def test_what_is_open_anyone_may_name_and_the_administrator_all() -> None:
    state = prepared()
    assert by(PITO, state, rule("numberplate in group public and Near(numberplate, 'x')"))
    assert by(ADMINISTRATOR, state, rule("numberplate in group insiders or Knows(numberplate) or $salary > 1"))
    assert "`insiders`" in str(refusal(state, ADMINISTRATOR, rule("numberplate in group nobody")))


def test_who_governs_nothing_is_told_nothing_of_names() -> None:
    found = {str(refusal(prepared(), CCTV, rule(f"numberplate in group {name}"))) for name in ("insiders", "nobody")}
    assert len(found) == 1


def test_nobody_learns_who_there_is_by_acting_as_them() -> None:
    state = prepared()
    for change in (lambda who: Advertise(who, PLATE), lambda who: Subscribe(Subscription("s", who, PLATE))):
        told = {str(refusal(state, CCTV, change(who))).replace(who, "it") for who in (SMITH, "nobody")}
        assert len(told) == 1
        assert refusal(state, ADMINISTRATOR, change("nobody")).code == "unknown-name"


# -- private attributes -----------------------------------------------------------------------------------------


def test_no_requirement_names_a_private_attribute() -> None:
    state, asks = prepared(), parse_condition("$rank = 1 or not ($salary > 5000)")
    wanted = Subscribe(Subscription("s", MET, PLATE, requires=asks))
    assert refusal(state, MET, wanted).code == BadExpression.code
    assert refusal(state, ADMINISTRATOR, wanted).code == BadExpression.code  # Met would receive what it lets through
    lets = then(state, AddRule(Rule("p", MET, frozenset({Action.PUBLISH}), PLATE)))
    with pytest.raises(BadExpression, match="`\\$salary` is private"):
        admit(lets, Draft("e", MET, PLATE, {}, requires=asks), now=at(0), predicates={}, policy_rule=check_policy_rule)
    assert by(MET, then(state, SetPrivate("salary", False)), wanted)


def test_a_policy_rule_and_the_administrators_conditions_may() -> None:
    assert then(prepared(), SetPolicyRule(MET, parse_condition("$salary > 1")), rule("$salary > 1"))


def test_an_owners_condition_may_not_but_an_argument_of_a_role_is_no_attribute() -> None:
    state = prepared()
    assert refusal(state, PITO, rule("lane > $salary")).code == BadExpression.code
    of_role = Rule("r", "", SEES, PLATE, parse_condition("lane > $salary"), role=parse_role("Pay.Band(salary)"))
    assert by(PITO, state, AddRule(of_role))
    of_other = Rule("r", "", SEES, PLATE, parse_condition("lane > $salary"), role=parse_role("Pay.Band(other)"))
    assert refusal(state, PITO, AddRule(of_other)).code == BadExpression.code


def test_only_the_administrator_says_what_is_private() -> None:
    assert refusal(prepared(), PITO, SetPrivate("salary", False)).code == GovernDenied.code


def test_an_explanation_keeps_the_value_from_all_but_the_administrator() -> None:
    state = prepared(rule("lane < $salary", who=SMITH))
    event = Event("e", CCTV, PLATE, {"location": None, "numberplate": "x", "lane": 3}, at(0), "main", 1, state.version)
    books = Books(state, lambda _: state, lambda _: {})
    told = {who: repr(explain(Question(who, SMITH, "e"), event, books)) for who in (PITO, ADMINISTRATOR)}
    assert "5200" in told[ADMINISTRATOR]
    assert "5200" not in told[PITO]
    assert explain(Question(PITO, SMITH, "e"), event, books).visible  # what came of it is the owner's to know


# -- closing ----------------------------------------------------------------------------------------------------


def test_a_name_is_closed_after_what_names_it_has_ended() -> None:
    openly = then(prepared(), SetOpen("insiders", True))
    ruled = by(PITO, openly, rule(OWNED))
    assert refusal(ruled, ADMINISTRATOR, SetOpen("insiders", False)).code == BadDefinition.code
    assert by(ADMINISTRATOR, ruled, RemoveRule("r"), SetOpen("insiders", False))
    assert then(openly, rule(OWNED), SetOpen("insiders", False))  # the administrator's own stays


def test_an_attribute_becomes_private_after_what_names_it_has_ended() -> None:
    public = then(prepared(), SetPrivate("salary", False))
    asked = by(MET, public, Subscribe(Subscription("s", MET, PLATE, requires=parse_condition("$salary > 1"))))
    assert refusal(asked, ADMINISTRATOR, SetPrivate("salary", True)).code == BadDefinition.code
    assert by(ADMINISTRATOR, asked, Unsubscribe("s"), SetPrivate("salary", True)).private == {"salary"}
    ruled = by(PITO, public, rule("lane > $salary"))
    assert refusal(ruled, ADMINISTRATOR, SetPrivate("salary", True)).code == BadDefinition.code


def test_a_plan_ends_what_names_it() -> None:
    came = DIDS[0]
    now = then(
        prepared(SetPrivate("salary", False), SetOpen("insiders", True)),
        DeclarePrincipal(came),
        AddRule(Rule("g", came, frozenset({Action.GOVERN}), PLATE)),
    )
    now = by(came, now, rule("lane > $salary"), rule(OWNED, "s"), rule("lane > 1", "kept"))
    now = by(MET, now, Subscribe(Subscription("s", MET, PLATE, requires=parse_condition("$salary > 1"))))
    wanted = apply(State(), Batch(ADMINISTRATOR, NETWORK))
    wanted = then(
        wanted,
        DeclareGroup("insiders"),
        AddMember("insiders", SMITH),
        SetPrivate("salary", True),
    )
    after = plan(now, wanted).after
    assert after.private == {"salary"}
    assert not after.subscriptions
    assert [one.id for one in after.rules] == ["kept"]


# -- certificates -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["$salary > 1", OWNED, "numberplate in group nobody", "Knows(numberplate, 'x')"])
def test_a_certificate_that_names_what_is_closed_is_left_out(where: str) -> None:
    closed, fine = cert("c", PITO, SMITH, over(where=where)), cert("d", PITO, SMITH, over(where="lane = 1"))
    state = prepared()
    with pytest.raises(ChainInvalid, match="not open here"):
        then(state, present(SMITH, closed))
    assert len(chains(then(state, present(SMITH, closed, fine)))) == 1
    ours = cert("e", ADMINISTRATOR, SMITH, over("*", where=where))
    assert chains(then(state, present(SMITH, fine, ours)))


@pytest.mark.parametrize(
    ("where", "closes"),
    [
        ("$rank > 1", SetPrivate("rank", True)),
        ("numberplate in group public", SetOpen("public", False)),
        ("numberplate in group public", RemoveGroup("public")),
        ("Near(numberplate, 'x')", SetOpen("Near", False)),
        ("Near(numberplate, 'x')", RemoveRelation("Near")),
    ],
)
def test_what_a_certificate_names_is_closed_and_it_gives_nothing(where: str, closes: Change) -> None:
    state = then(prepared(), present(SMITH, cert("c", PITO, SMITH, over(where=where))))
    assert chains(state)
    assert not chains(then(state, closes))
