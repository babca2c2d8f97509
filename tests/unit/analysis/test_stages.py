"""Figure 7.1 of OASIS, and the acceptance function beside the direct reading of the entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.analysis.stages import (
    Acceptance,
    Said,
    Shows,
    Stages,
    render_acceptance,
    render_clause,
    render_client,
    render_literal,
    render_stages,
    stages,
)
from headgate.decide.constraints import Scene, truth, value
from headgate.decide.event_policy import answers, means, policy_readings, settle_policy, settle_representative
from headgate.decide.rolebook import holders
from headgate.lang.rolefile import parse_event_policy, parse_representative
from headgate.model.events import Event
from headgate.model.expressions import (
    AllOf,
    AnyOf,
    Argument,
    Compare,
    Condition,
    Constant,
    InGroup,
    Not,
    Related,
    RoleRef,
    Variable,
)
from headgate.model.limits import MAX_POLICY_CLAUSES
from headgate.model.rights import Effect
from headgate.model.rolefiles import EventEntry, EventPolicy, EventTemplate
from headgate.model.roles import Membership, RoleBook
from headgate.model.state import State
from headgate.model.types import Catalog, EventType
from headgate.model.values import Kind
from strategies.running import examples

SEEN = "badge.Seen"
FIGURE = """
Seen(u, r) <= LoggedOn(u, h)
Seen('rmn', r) <= LoggedOn('akl', h)
Seen('rmn', r) <= LoggedOn(p, h) : p in staff
-Seen('rmn', r) <= LoggedOn(p, h) : p in student
Seen(u, r) <= LoggedOn(p, h) : u in staff and p in student
-Seen(u, r) <= LoggedOn(p, h) : u in student and p in student
Seen(u, r) <= LoggedOn(p, h) : u in staff and p in staff
"""
PEOPLE = ("rmn", "akl", "ann", "bob")
STATE = State(
    types=Catalog().declare(EventType(SEEN, "owner", {"user": Kind.STRING, "room": Kind.STRING})),
    groups={"staff": frozenset({"rmn", "akl"}), "student": frozenset({"ann", "akl"})},
    relations={"Boss": frozenset({("rmn", "ann"), ("akl", "akl")}), "Badge": frozenset({("b1", "rmn"), ("b2", "ann")})},
)


def accepts(policy: Stages, state: State, event: Event, shown: Iterable[Membership]) -> bool:
    """Is a client that shows these memberships, at most one of each role, told of an event by the policy alone?"""
    held = tuple(shown)
    scene = Scene(state, now=event.time, readings=policy_readings(state))
    bound: dict[str, Argument] = {name: value(one, event.values, scene) for name, one in policy.meaning.items()}
    for ref in policy.shown:
        for membership in held:
            if means(replace(ref, args=()), membership):  # another entry may name fewer of its arguments
                named = zip(ref.args, membership.args, strict=False)
                bound |= {term.name: argument for term, argument in named if isinstance(term, Variable)}

    def holds(atom: Said) -> bool | None:
        return any(means(atom.ref, m) for m in held) if isinstance(atom, Shows) else truth(atom, bound, scene)

    if policy.presumed is not None and not holds(policy.presumed):
        return False
    if policy.clauses is None:
        return any(_accepted(one, holds) for one in policy.acceptance)
    clients = [all(holds(one.atom) is one.wanted for one in each) for each in policy.clients]
    events = [holds(one.atom) for one in policy.events]
    return any(
        clients[one.client]
        and all(events[number] is wanted for number, wanted in one.events)
        and all(holds(each.atom) is each.wanted for each in one.mixed)
        for one in policy.clauses
    )


def _accepted(one: Acceptance, holds: Callable[[Said], bool | None]) -> bool:
    def all_of(terms: tuple[Said, ...]) -> bool:
        return all(holds(term) is True for term in terms)

    return all_of(one.terms) and not any(all_of(terms) for _, terms in one.unless)


def with_policy(text: str | EventPolicy, state: State = STATE) -> State:
    policy = parse_event_policy(text) if isinstance(text, str) else text
    return replace(state, roles=replace(state.roles, policy=settle_policy(state, policy)))


def with_held(state: State, *held: Membership) -> State:
    every = {one.id: one for one in held}
    return replace(state, roles=replace(state.roles, memberships=every, held=holders(every)))


def logged_on(user: str, role: str = "LoggedOn", *more: str) -> Membership:
    return Membership(f"m{role}", "Login", role, (user, *more), "client", 0)


def sighting(user: str, room: str = "T14") -> Event:
    return Event("e", "cam", SEEN, {"user": user, "room": room}, datetime(2026, 1, 1, tzinfo=UTC))


def directly(state: State, event: Event) -> bool:
    """Positive before any negative, by the direct reading."""
    for rule, holds in answers(state, "client", event, None):
        if rule.effect is Effect.FORBID and holds is not False:
            return False
        if rule.effect is Effect.GRANT and holds is True:
            return True
    return False


def clauses(found: Stages) -> set[str]:
    assert found.clauses is not None
    return {render_clause(one) for one in found.clauses}


def test_figure_7_1() -> None:
    found = stages(with_policy(FIGURE), SEEN)
    assert [render_acceptance(one) for one in found.acceptance] == [
        "p = u",
        "u = 'rmn' and p = 'akl'",
        "u = 'rmn' and p in staff",
        "u in staff and p in student and not (u = 'rmn' and p in student)",
        "u in staff and p in staff and not (u = 'rmn' and p in student) and not (u in student and p in student)",
    ]
    assert [render_client(one) for one in found.clients] == [
        "true",
        "p = 'akl'",
        "p in staff",
        "p in student",
        "not p in student and p in staff",
    ]
    assert [render_literal(one) for one in found.events] == ["u = 'rmn'", "u in staff", "u in student"]
    assert clauses(found) == {
        "C0 and p = u",
        "C1 and E0",
        "C2 and E0",
        "C3 and not E0 and E1",
        "C4 and not E0 and E1",
        "C4 and E1",
        "C2 and not E0 and E1 and not E2",
        "C4 and E1 and not E2",
    }


def test_what_the_figure_could_have_left_out_is_marked() -> None:
    found = stages(with_policy(FIGURE), SEEN)
    assert found.clauses is not None
    marked = {render_clause(one): one.implies for one in found.clauses if one.implies is not None}
    assert marked.keys() == {"C4 and not E0 and E1", "C4 and E1 and not E2"}
    assert {render_clause(found.clauses[at]) for at in marked.values()} == {"C4 and E1"}


def test_the_text_shows_every_stage() -> None:
    text = render_stages(stages(with_policy(FIGURE), SEEN))
    assert "  4. -badge.Seen('rmn', r) <= LoggedOn(p, h) : p in student" in text
    assert text.count("psi(Seen(u, r), LoggedOn(p, h)) =") == 2
    assert "  C4 <= (not p in student and p in staff)" in text
    assert "  E2 <= (u in student)" in text
    assert "or (C4 and not E0 and E1)   # implies C4 and E1" in text


def test_every_pair_of_figure_7_1() -> None:
    state = with_policy(FIGURE)
    found = stages(state, SEEN)
    seen = set()
    for user in PEOPLE:
        for client in PEOPLE:
            held = logged_on(client, "LoggedOn", "host")
            told = accepts(found, state, sighting(user), (held,))
            assert told == directly(with_held(state, held), sighting(user)), (user, client)
            seen.add(told)
    assert seen == {True, False}
    assert not accepts(found, state, sighting("rmn"), ())


def test_names_of_entries_do_not_matter() -> None:
    renamed = FIGURE.replace("Seen(u, r) <= LoggedOn(p, h) : u in staff and p in staff", "").strip()
    last = "Seen(p, u) <= LoggedOn(r, u2) : p in staff and r in staff"
    assert clauses(stages(with_policy(f"{renamed}\n{last}"), SEEN)) == clauses(stages(with_policy(FIGURE), SEEN))


def test_several_credentials_are_named_and_asked_for() -> None:
    both, everyone, late = "Login.LoggedOn(p, h) & Met.Tracker(p)", ": u in student", "Met.Tracker(x)"
    state = with_policy(f"Seen(u, r) <= {both}\nSeen(u, r) <= {everyone}\n-Seen(u, r) <= {late}")
    found = stages(state, SEEN)
    asked = {render_literal(one) for one in found.clients[0]}
    assert asked == {"shows Login.LoggedOn(p, h)", "shows Met.Tracker(p2)", "p2 = p"}
    assert found.clients[1] == ()
    assert len(found.acceptance) == 2  # the negative entry comes too late to matter
    assert not accepts(found, state, sighting("rmn"), (logged_on("rmn", "LoggedOn", "host"),))
    tracking = replace(logged_on("rmn", "Tracker"), service="Met")
    assert accepts(found, state, sighting("rmn"), (logged_on("rmn", "LoggedOn", "host"), tracking))
    assert accepts(found, state, sighting("ann"), ())


def test_a_representative_is_looked_at_by_its_own_name() -> None:
    badges = State(
        types=Catalog().declare(EventType(SEEN, "owner", {"badge": Kind.STRING, "room": Kind.STRING})),
        groups=STATE.groups,
        relations=STATE.relations,
    )
    one = settle_representative(badges, parse_representative(SEEN, {"user": "Badge(badge)"}))
    state = with_policy(FIGURE, replace(badges, roles=RoleBook(representatives={one.type: one})))
    found = stages(state, SEEN)
    assert clauses(found) == clauses(stages(with_policy(FIGURE), SEEN))
    event = replace(sighting("x"), values={"badge": "b1", "room": "T14"})
    assert accepts(found, state, event, (logged_on("rmn"),)) is directly(with_held(state, logged_on("rmn")), event)


def test_a_form_that_is_too_large_is_not_given() -> None:
    before = [f"-Seen(u, r) <= LoggedOn(p, h) : u != 'u{n}' and p != 'p{n}'" for n in range(12)]
    state = with_policy("\n".join([*before, "Seen(u, r) <= LoggedOn(p, h) : u in staff"]))
    found = stages(state, SEEN)
    assert 2 ** len(before) > MAX_POLICY_CLAUSES
    assert found.clauses is None
    assert len(found.acceptance[0].unless) == len(before)
    assert f"more than MAX_POLICY_CLAUSES ({MAX_POLICY_CLAUSES})" in render_stages(found)
    assert not accepts(found, state, sighting("rmn"), (logged_on("ann", "LoggedOn", "host"),))


def test_a_long_list_of_negative_entries_is_cut_off_early() -> None:
    before = [f"-Seen('u{n}', r) <=" for n in range(1500)]
    found = stages(with_policy("\n".join([*before, "Seen(u, r) <="])), SEEN)
    assert found.clauses is None
    assert len(found.acceptance) == 1


def test_without_entries_nobody_is_told() -> None:
    found = stages(STATE, SEEN)
    assert found.clauses == ()
    assert not accepts(found, STATE, sighting("rmn"), (logged_on("rmn"),))
    assert "(false)" in render_stages(found)


# -- beside the direct reading ------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")
ROLES = {"LoggedOn": 2, "Tracker": 1}


@st.composite
def terms(draw: st.DrawFn) -> Any:
    drawn = draw(st.integers(0, 5))
    if drawn == 0:
        return Constant(draw(st.sampled_from(PEOPLE)))
    return Variable("_" if drawn == 1 else draw(st.sampled_from(NAMES)))


@st.composite
def constraints(draw: st.DrawFn, bound: tuple[str, ...], depth: int) -> Condition:
    if depth and draw(st.booleans()):
        parts = tuple(draw(constraints(bound, depth - 1)) for _ in range(2))
        return draw(st.sampled_from((Not(parts[0]), AllOf(parts), AnyOf(parts))))
    one, other = Variable(draw(st.sampled_from(bound))), Variable(draw(st.sampled_from(bound)))
    return draw(
        st.sampled_from(
            (
                InGroup(one, "staff"),
                InGroup(one, "student"),
                Compare("=", one, other),
                Compare("!=", one, Constant("rmn")),
                Related("Boss", (one, other)),
                Related("Boss", (one, Variable("_"))),
            )
        )
    )


@st.composite
def entries(draw: st.DrawFn) -> EventEntry:
    args = tuple(draw(terms()) for _ in range(draw(st.integers(0, 2))))
    roles = draw(st.lists(st.sampled_from(tuple(ROLES)), max_size=2))
    refs = tuple(
        RoleRef(role, tuple(draw(terms()) for _ in range(draw(st.integers(0, ROLES[role])))), "Login") for role in roles
    )
    every = (*args, *(arg for ref in refs for arg in ref.args))
    bound = tuple(sorted({arg.name for arg in every if isinstance(arg, Variable)} - {"_"}))
    constraint = draw(constraints(bound, 2)) if bound and draw(st.booleans()) else AllOf()
    return EventEntry(EventTemplate(SEEN, args), refs, constraint, draw(st.integers(0, 2)) == 0)


@examples(120, soak=300)
@given(st.lists(entries(), max_size=5), st.data())
def test_the_acceptance_function_is_the_direct_reading(listed: list[EventEntry], data: st.DataObject) -> None:
    state = with_policy(EventPolicy(tuple(listed)))
    found = stages(state, SEEN)
    for _ in range(6):
        people = st.sampled_from(PEOPLE)
        shown = data.draw(st.lists(st.sampled_from(tuple(ROLES)), unique=True))
        held = tuple(
            logged_on(data.draw(people), role, *(data.draw(people) for _ in range(ROLES[role] - 1))) for role in shown
        )
        event = sighting(data.draw(people), data.draw(people))
        expected = directly(with_held(state, *held), event)
        assert accepts(found, state, event, held) is expected
        assert accepts(replace(found, clauses=None), state, event, held) is expected
