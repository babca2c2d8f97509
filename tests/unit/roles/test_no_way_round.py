"""Ways to gain or keep a role that the rolefile does not give, none of which works."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from headgate.decide.event_policy import answers
from headgate.lang.rolefile import parse_event_policy, parse_role, parse_rolefile
from headgate.model.changes import (
    AddMember,
    AddRow,
    AddRule,
    Batch,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    ElectRole,
    EnterRole,
    GrantRole,
    HearPeer,
    MirrorRole,
    RegisterPredicate,
    RemoveMember,
    RemovePrincipal,
    SetEventPolicy,
    SetPeer,
    SetRolefile,
    Tick,
)
from headgate.model.errors import BadDefinition, RoleDenied
from headgate.model.events import Event
from headgate.model.limits import MAX_GROUP_DEPTH
from headgate.model.rights import Action, Rule
from headgate.model.roles import Peer
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import EPOCH, Kind
from headgate.roles.requests.transition import transition

LATE = EPOCH.replace(year=2000)


class Story:
    """A state that batches are put to, one after another."""

    def __init__(self, functions: Mapping[str, Callable[..., object]] | None = None) -> None:
        self.state = State()
        self.functions = functions or {}
        self(*map(DeclarePrincipal, ("ann", "eve", "chair")), DeclareGroup("staff"), AddMember("staff", "ann"))

    def __call__(self, *changes: object) -> None:
        batch = Batch(ADMINISTRATOR, changes)  # type: ignore[arg-type]
        self.state = transition(self.state, batch, functions=self.functions).after

    def roles(self, principal: str) -> list[str]:
        return [one.role for one in self.state.roles.held_by(principal)]


def entering(id: str, role: str, who: str, *using: str) -> EnterRole:
    return EnterRole(id, "S", role, None, who, using or None, EPOCH)


def test_a_function_that_answers_once_does_not_take_the_stars_away() -> None:
    left = ["1234"]
    story = Story({"otp": lambda word: left.pop() == word})
    story(
        SetRolefile("S", parse_rolefile("In(u) <- L.On(u, p) : (u in staff)* and otp(p)")),
        GrantRole("on", "L", "On", ("ann", "1234"), "ann"),
        entering("in", "In", "ann"),
    )
    assert story.roles("ann") == ["On", "In"]
    story(RemoveMember("staff", "ann"))
    assert story.roles("ann") == ["On"]


def test_a_function_that_returns_no_number_gives_nothing() -> None:
    story = Story({"grade": lambda _: float("nan")})
    story(
        SetRolefile("S", parse_rolefile("In(u) <- L.On(u) : (u in staff)* and x = grade(u) and x = x")),
        GrantRole("on", "L", "On", ("ann",), "ann"),
    )
    with pytest.raises(RoleDenied):
        story(entering("in", "In", "ann"))


def test_a_changed_rolefile_does_not_make_the_unknown_true() -> None:
    story = Story()
    story(
        SetPeer(Peer("P", "did:key:z6MkP", "Login", 30)),
        SetRolefile("S", parse_rolefile("In(u) <- P.On(u)*")),
        HearPeer("P", 1, {}, EPOCH),
        MirrorRole("m", "P", "On", ("ann",), "ann", 77, True, EPOCH),
        entering("in", "In", "ann"),
    )
    story(Tick(LATE))
    assert story.roles("ann") == []
    story(SetRolefile("S", parse_rolefile("In(u) <- P.On(u)")))
    assert story.roles("ann") == []
    assert story.state.roles.memberships["in"].state is None
    story(HearPeer("P", 2, {77: False}, LATE))
    assert story.roles("ann") == []
    assert "in" not in story.state.roles.memberships


def test_whoever_takes_a_name_over_has_none_of_its_roles() -> None:
    story = Story()
    story(
        SetRolefile("S", parse_rolefile("Chair(u) <- L.On(u)\nIn(u) <- L.On(u) <|* Chair(c)")),
        *(GrantRole(f"{who} on", "L", "On", (who,), who) for who in ("ann", "eve")),
        entering("chair", "Chair", "ann"),
        ElectRole("e", "S", "In", None, "ann", None, EPOCH),
    )
    story(entering("in", "In", "eve", "eve on", "e"))
    assert story.roles("eve") == ["On", "In"]
    story(RemovePrincipal("ann"), DeclarePrincipal("ann"))
    assert story.roles("ann") == []
    assert not story.state.roles.elections
    assert story.roles("eve") == ["On"]


def test_a_role_of_another_domain_is_not_meant_where_no_service_is_named() -> None:
    seen = EventType("badge.Seen", ADMINISTRATOR, {"user": Kind.STRING})
    story = Story()
    story(
        DeclareType(seen),
        SetEventPolicy(parse_event_policy("Seen(u) <= LoggedOn(u)")),
        SetPeer(Peer("Evil", "did:key:z6MkE", "Login", 30)),
        HearPeer("Evil", 1, {}, EPOCH),
        MirrorRole("m", "Evil", "LoggedOn", ("ann",), "eve", 7, True, EPOCH),
        GrantRole("on", "Login", "LoggedOn", ("ann",), "ann"),
    )
    event = Event("e", ADMINISTRATOR, "badge.Seen", {"user": "ann"}, EPOCH, version=story.state.version)
    assert [truth for _, truth in answers(story.state, "eve", event, None)] == [False]
    assert [truth for _, truth in answers(story.state, "ann", event, None)] == [True]
    with pytest.raises(BadDefinition, match="of no service"):
        story(AddRule(Rule("r", "", frozenset({Action.SUBSCRIBE}), "badge.Seen", role=parse_role("LoggedOn"))))


def test_a_variable_means_the_same_in_all_that_an_election_requires() -> None:
    story = Story()
    required = (parse_role("H.Doctor(w)"), parse_role("H.Trained(w)"))
    story(
        SetRolefile("S", parse_rolefile("Chair <- L.On(u)\nIn <- <| Chair")),
        GrantRole("on", "L", "On", ("chair",), "chair"),
        entering("chair in", "Chair", "chair"),
        ElectRole("e", "S", "In", None, "chair", None, EPOCH, required),
        GrantRole("d1", "H", "Doctor", (1,), "eve"),
        GrantRole("t2", "H", "Trained", (2,), "eve"),
    )
    with pytest.raises(RoleDenied):
        story(entering("in", "In", "eve", "d1", "t2", "e"))
    story(GrantRole("t1", "H", "Trained", (1,), "eve"), entering("in", "In", "eve", "d1", "t2", "t1", "e"))
    assert "In" in story.roles("eve")


def test_a_refusal_does_not_tell_the_condition() -> None:
    story = Story()
    story(
        SetRolefile("S", parse_rolefile("Seat(u) <- L.On(u) : (count(Seat(_)) <= 1)*")),
        *(GrantRole(f"{who} on", "L", "On", (who,), who) for who in ("ann", "eve")),
        entering("one", "Seat", "ann"),
    )
    with pytest.raises(RoleDenied) as refused:
        story(entering("two", "Seat", "eve"))
    assert "count(" not in str(refused.value)


def test_groups_in_groups_are_looked_at_once_each() -> None:
    story = Story()
    levels = [DeclareGroup(f"{side}{level}") for level in range(MAX_GROUP_DEPTH) for side in "ab"]
    inside = [
        AddMember(f"{side}{level}", f"{other}{level + 1}")
        for level in range(MAX_GROUP_DEPTH - 1)
        for side in "ab"
        for other in "ab"
    ]
    story(*levels, *inside, SetRolefile("S", parse_rolefile("In(u) <- L.On(u) : u in a0")))
    story(GrantRole("on", "L", "On", ("ann",), "ann"))
    with pytest.raises(RoleDenied):  # by 2^31 ways, had each way been gone
        story(entering("in", "In", "ann"))


def test_all_that_a_client_asks_for_in_one_batch_shares_its_steps() -> None:
    story = Story()
    story(
        DeclareRelation("R"),
        *(AddRow("R", (number, number)) for number in range(1_000)),
        SetRolefile("S", parse_rolefile("In(x) <- L.On(u) : R(x, y) and y = 999")),
        GrantRole("on", "L", "On", ("ann",), "ann"),
    )
    story(*(entering(f"few {number}", "In", "ann", "on") for number in range(10)))
    with pytest.raises(RoleDenied, match="MAX_ENTRY_STEPS"):
        story(*(entering(f"many {number}", "In", "ann", "on") for number in range(200)))


def test_a_relation_does_not_take_the_place_of_a_function() -> None:
    story = Story({"trusted": lambda _: False})
    story(
        RegisterPredicate("trusted", "m:trusted", "0" * 64),
        SetRolefile("S", parse_rolefile("In(u) <- L.On(u) : trusted(u)")),
    )
    with pytest.raises(BadDefinition, match="calls a function `trusted`"):
        story(DeclareRelation("trusted"))
