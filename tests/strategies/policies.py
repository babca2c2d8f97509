"""Roles and event policy for random stories: who holds what, rules for roles, and what clients may see of events.

Guarantees: arguments, attributes and constants come from the same small pools, and variables from a few names, so that
credentials often fit, and event and client often agree. Names are those of the story's world.
Leaves out: rolefiles (`strategies.rolefiles`), and whether what is drawn is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from headgate.decide.event_policy import parameters_of
from headgate.lang.render import render_event_policy
from headgate.lang.rolefile import parse_event_policy
from headgate.model.changes import (
    Change,
    EndCredential,
    GrantRole,
    HearPeer,
    MirrorRole,
    RemoveRepresentative,
    SetEventPolicy,
    SetPeer,
    SetRepresentative,
)
from headgate.model.errors import HeadgateError
from headgate.model.expressions import (
    AllOf,
    AnyOf,
    Apply,
    Argument,
    ClockPart,
    Combine,
    Compare,
    Condition,
    Constant,
    InGroup,
    InRange,
    InSet,
    Meta,
    Not,
    Operand,
    Related,
    RoleRef,
    TextMatch,
    Variable,
)
from headgate.model.rights import Rule
from headgate.model.rolefiles import EventEntry, EventPolicy, EventTemplate, Representative
from headgate.model.roles import Peer
from headgate.model.values import Kind
from strategies.conditions import COMMON
from strategies.drawing import pick, whole

if TYPE_CHECKING:
    from strategies.worlds import Names

ROLES: Final[Mapping[str, int]] = {"On": 2, "Tracker": 1, "Plain": 0}
"""Roles and how many arguments they have."""
SERVICES: Final = ("Login", "Login", "Met")
FAR: Final = "Far"
NOW: Final = datetime(2026, 1, 1, 9, tzinfo=UTC)
VARIABLES: Final = ("a", "b", "c", "u", "v")
MEMBERSHIPS: Final = 10


@st.composite
def arguments(draw: st.DrawFn, names: Names) -> Argument:
    """The value of an argument: often a principal, or what events have."""
    match draw(whole(0, 9)):
        case 0 | 1 | 2:
            return pick(draw, names.principals)
        case 3:
            return pick(draw, (frozenset("r"), frozenset("rw"), frozenset[str]()))
        case 4:
            return pick(draw, (True, False, 1, 1.0, 0))
        case 5 | 6:
            return pick(draw, COMMON[pick(draw, tuple(Kind))][:2])
        case _:
            return pick(draw, COMMON[Kind.STRING][:2])


@st.composite
def granted(draw: st.DrawFn, names: Names) -> Change:
    """Someone is given a role, or brings one from another domain."""
    role = pick(draw, ("On", "On", "Tracker", "Plain"))
    args = tuple(draw(arguments(names)) for _ in range(ROLES[role]))
    id, to = f"{names.prefix}m{draw(whole(0, MEMBERSHIPS - 1))}", pick(draw, names.principals)
    instance = pick(draw, ("", "", "", "x"))
    if draw(whole(0, 5)) == 0:
        state = pick(draw, (True, True, None))
        return MirrorRole(id, FAR, role, args, to, draw(whole(1, 4)), state, NOW, instance)
    return GrantRole(id, pick(draw, SERVICES), role, args, to, instance)


@st.composite
def turned(draw: st.DrawFn, names: Names) -> Change:
    """A membership ends, or another domain says something of its records."""
    if draw(whole(0, 2)):
        return EndCredential(f"{names.prefix}m{draw(whole(0, MEMBERSHIPS - 1))}")
    states = {draw(whole(1, 4)): pick(draw, (True, True, None, False))}
    return HearPeer(FAR, draw(whole(1, 5)), states, NOW)


def far() -> Change:
    """The other domain."""
    return SetPeer(Peer(FAR, "key", "Login", 60))


@st.composite
def role_rule(draw: st.DrawFn, names: Names, rule: Rule) -> Rule:
    """A rule that speaks to a role instead; conditions of stories name `$u` and `$v`."""
    ref = draw(role_ref(names, ("u", "v", "u", "v", "d", "_")))
    return replace(rule, who="", role=ref if ref.service else replace(ref, service=pick(draw, SERVICES)))


@st.composite
def role_ref(draw: st.DrawFn, names: Names, variables: tuple[str, ...]) -> RoleRef:
    """A role as rules and credentials name it."""
    role = pick(draw, ("On", "On", "Tracker", "Plain"))
    args: tuple[Any, ...] = ()
    if draw(whole(0, 2)):
        args = tuple(draw(_term(names, variables, 7)) for _ in range(ROLES[role]))
    service = pick(draw, (None, None, None, None, "Login", "Met", FAR))
    instance = pick(draw, (None, None, None, None, Constant("x"), Variable("i"))) if service else None
    return RoleRef(role, args, service, instance)


@st.composite
def _term(draw: st.DrawFn, names: Names, variables: tuple[str, ...], often: int) -> Any:
    if draw(whole(0, often)) == 0:
        return Constant(draw(arguments(names)))
    return Variable(pick(draw, variables))


@st.composite
def counted(draw: st.DrawFn, names: Names) -> tuple[str, ...] | None:
    """The memberships that a subscription counts; mostly all."""
    if draw(whole(0, 2)):
        return None
    every = [f"{names.prefix}m{number}" for number in range(MEMBERSHIPS)]
    return tuple(draw(st.lists(st.sampled_from(every), max_size=5)))


# -- event policy -------------------------------------------------------------------------------------------------


@st.composite
def represented(draw: st.DrawFn, names: Names) -> Change:
    """How event policy sees a type."""
    one = pick(draw, names.types).name
    focus = names.focus(one)
    if not focus or draw(whole(0, 5)) == 0:
        return RemoveRepresentative(one)
    made = [(f"k{at}", draw(_expression(names, tuple(n for n, _ in focus), 1))) for at in range(draw(whole(1, 2)))]
    functions = [r for r in names.relations if r.endswith("0")]
    if functions and draw(st.booleans()):
        texts = [n for n, kind in focus if kind is Kind.STRING] or [focus[0][0]]
        made[0] = ("k0", Apply(functions[0], (Variable(pick(draw, texts)),)))
    said = EventEntry(EventTemplate(one), (), Related("R", tuple(expression for _, expression in made)))
    return SetRepresentative(Representative(one, tuple(made if _written(EventPolicy((said,))) else made[:0])))


@st.composite
def event_policy(draw: st.DrawFn, names: Names) -> Change:
    """A few entries, one of which may let much through."""
    entries = [draw(_entry(names)) for _ in range(draw(whole(1, 6)))]
    for _ in range(pick(draw, (0, 1, 1, 2))):
        everyone = EventEntry(EventTemplate(pick(draw, names.types).name))
        entries.insert(draw(whole(0, len(entries))), everyone)
    entries = [one for one in entries if _written(EventPolicy((one,)))]
    if draw(whole(0, 9)) == 0:  # more than one word of bits
        entries = (entries * 70)[: draw(whole(60, 140))]
    return SetEventPolicy(EventPolicy(tuple(entries)))


def _written(policy: EventPolicy) -> bool:
    """Can it be written, and so be stored?"""
    try:
        return parse_event_policy(render_event_policy(policy)) == policy
    except HeadgateError:
        return False


@st.composite
def _entry(draw: st.DrawFn, names: Names) -> EventEntry:
    one = pick(draw, names.types).name
    kinds = names.attributes[one]
    seen = [(name, kinds[name]) for name, _ in parameters_of(None, tuple(kinds))][:5]
    args: list[Any] = []
    for _, kind in seen[: draw(whole(0, len(seen)))]:
        match draw(whole(0, 11)):
            case 0:
                args.append(Constant(pick(draw, COMMON[kind][:2])))
            case 1 | 2:
                args.append(Variable("_"))
            case _:
                args.append(Variable(pick(draw, VARIABLES)))
    refs = tuple(draw(role_ref(names, (*VARIABLES, "_"))) for _ in range(pick(draw, (0, 1, 1, 1, 2))))
    shown = [arg.name for ref in refs for arg in ref.args if isinstance(arg, Variable)]
    bound = sorted({arg.name for arg in args if isinstance(arg, Variable)} | set(shown) - {"_"})
    bound = [name for name in bound if name != "_"]
    constraint: Condition = AllOf()
    if bound and draw(whole(0, 3)):
        constraint = draw(_constraint(names, tuple(bound), pick(draw, (0, 0, 1, 2))))
    return EventEntry(EventTemplate(one, tuple(args)), refs, constraint, draw(whole(0, 3)) == 0)


@st.composite
def _constraint(draw: st.DrawFn, names: Names, bound: tuple[str, ...], depth: int) -> Condition:
    if depth:
        parts = tuple(draw(_constraint(names, bound, depth - 1)) for _ in range(2))
        match draw(whole(0, 3)):
            case 0:
                return Not(parts[0])
            case 1 | 2:
                return AllOf(parts)
            case _:
                return AnyOf(parts)
    return draw(_leaf(names, bound))


@st.composite
def _leaf(draw: st.DrawFn, names: Names, bound: tuple[str, ...]) -> Condition:
    one, other = draw(_expression(names, bound, 1)), draw(_expression(names, bound, 1))
    ops = st.sampled_from(("=", "=", "=", "!=", "<", "<=", ">", ">="))
    makers = ["compare", "compare", "constant", "between", "one of", "text", "sets", "time"]
    makers += ["group", "group"] if names.groups else []
    makers += ["relation", "relation", "relation"] if names.relations else []
    match pick(draw, makers):
        case "compare":
            return Compare(draw(ops), one, other)
        case "constant":
            return Compare(draw(ops), one, Constant(draw(arguments(names))))
        case "between":
            low, high = Constant(draw(arguments(names))), pick(draw, (other, Constant(1), Constant("b")))
            return InRange(one, low, high)
        case "one of":
            drawn = [draw(arguments(names)) for _ in range(3)]
            return InSet(one, tuple(value for value in drawn if not isinstance(value, frozenset)))
        case "text":
            part = pick(draw, (other, Constant("a"), Constant("p")))
            return TextMatch(pick(draw, ("starts with", "contains", "has token")), one, part)
        case "sets":
            op: Any = pick(draw, ("subset", "subseteq", "superset", "superseteq", "="))
            acl = Apply(pick(draw, ("acl", "unixacl")), (Constant(f"{names.principals[0]}=rw other=r *=r"), one))
            return Compare(op, acl, pick(draw, (other, Constant(frozenset("r")), Constant(frozenset("rw")))))
        case "time":
            clock = pick(draw, (ClockPart("timeofday", Meta("time"), "UTC"), Meta("time"), _moved(draw)))
            return Compare(draw(ops), clock, pick(draw, (Constant(9 * 3600), Constant(NOW), one, one)))
        case "group":
            return InGroup(one, pick(draw, names.groups))
        case _:
            relation = pick(draw, names.relations)
            second = pick(draw, (other, Variable("_"), Constant(1), other))
            args = (one, second) if relation.endswith("0") else (one,)
            return Related(relation, pick(draw, (args, args, args, ())))


def _moved(draw: st.DrawFn) -> Operand:
    """The time of the event and some seconds, or the seconds since a moment."""
    by = pick(draw, (Constant(1), Constant(-3600), Constant(NOW)))
    return Combine("-" if by.value == NOW else pick(draw, ("+", "-")), Meta("time"), by)


@st.composite
def _expression(draw: st.DrawFn, names: Names, bound: tuple[str, ...], depth: int) -> Operand:
    variable = Variable(pick(draw, bound))
    functions = [r for r in names.relations if r.endswith("0")]
    match draw(whole(0, 9)) if depth else 9:
        case 0 if functions:
            return Apply(functions[0], (draw(_expression(names, bound, depth - 1)),))
        case 1:
            return Combine(pick(draw, ("+", "-")), variable, draw(_expression(names, bound, depth - 1)))
        case 2:
            return ClockPart("weekday", variable, "Asia/Kathmandu")
        case 3:
            return Combine(pick(draw, ("union", "minus")), variable, Constant(frozenset("r")))
        case _:
            return variable
