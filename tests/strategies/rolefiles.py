"""Random rolefiles, event policies and constraints, as syntax.

Guarantees: every shape that the grammar can give, odd names and edge values included; small enough to read.
Leaves out: what the grammar cannot give, and whether the types agree.
"""

from __future__ import annotations

from typing import Final, get_args

from hypothesis import strategies as st

from headgate.lang.literals import reading_beside
from headgate.model.expressions import (
    AllOf,
    AnyOf,
    Apply,
    Argument,
    ClockPart,
    Combine,
    CombineOp,
    Compare,
    CompareOp,
    Condition,
    Constant,
    Count,
    InGroup,
    InRange,
    InSet,
    Meta,
    Not,
    Operand,
    Related,
    RoleRef,
    Starred,
    Term,
    TextMatch,
    TextOp,
    Variable,
)
from headgate.model.rolefiles import (
    ArgumentType,
    Audit,
    ClockType,
    Credential,
    Declaration,
    Elector,
    EventEntry,
    EventPolicy,
    EventTemplate,
    Import,
    IntegerType,
    ObjectType,
    Revoker,
    Rolefile,
    SetType,
    Statement,
    StringType,
    TimestampType,
)
from headgate.model.values import Kind, Value
from strategies.conditions import ZONES, values
from strategies.drawing import pick

ROLES: Final = ("Chair", "Member", "LoggedOn", "def", "import", "count", "group", "Integer", "_", "subset", "timestamp")
"""Plain names, some of which are words elsewhere."""

ODD: Final = (
    "u", "x", "_", "h1", "group", "count", "subset", "union", "minus", "timestamp", "bytes", "weekday", "def", "import",
    "contains", "starts", "in", "and", "not", "true", "odd name", "ti`ck", "été", "1st", "a-b", "a.b", "a--b", "'",
    "x\ny", "#", ";", "(", "<-", "@time",
)  # fmt: skip
"""Names of variables, functions and relations, which backquotes let be anything."""

GROUPS: Final = (*ODD, "staff", "sales-uk.2", "in-house", "true-x", "group-x", "équipe", "7", "1.5", "a b")
EVENTS: Final = ("Seen", "badge.Seen", "badge-2.Moved", "été", "a--b", "odd name", "in", "uk.gov.pito.Numberplate", "1")
OBJECTS: Final = ("userid", "host", "Integers", "group")

roles = st.sampled_from(ROLES)
names = st.sampled_from(ODD)
variables = names.map(Variable)
letters: st.SearchStrategy[Argument] = st.frozensets(st.sampled_from("rwxaefé"), max_size=4)


def plain_values() -> st.SearchStrategy[Value]:
    """Any value but null."""
    return st.one_of([values(kind) for kind in Kind])


def arguments() -> st.SearchStrategy[Argument]:
    """A value, or a set of letters."""
    return st.one_of(plain_values(), letters)


givens: st.SearchStrategy[Constant] = st.deferred(lambda: arguments().map(Constant))
asked = st.sampled_from(("instance", "time", "origin", "client")).map(Meta)
terms: st.SearchStrategy[Term] = st.one_of(variables, givens, asked)
own_roles = st.builds(RoleRef, roles, st.lists(terms, max_size=3).map(tuple))
other_roles = st.builds(RoleRef, roles, st.lists(terms, max_size=3).map(tuple), roles, st.none() | terms)
references = st.one_of(own_roles, other_roles)


def _not_text(of: Operand) -> Operand:
    """Beside the clock or a part of it, and in a sum, text means a time."""
    return Constant(7) if isinstance(of, Constant) and isinstance(of.value, str) else of


def _combined(op: CombineOp, left: Operand, right: Operand) -> Operand:
    return Combine(op, _not_text(left), _not_text(right)) if op in ("+", "-") else Combine(op, left, right)


def _wider(inner: st.SearchStrategy[Operand]) -> st.SearchStrategy[Operand]:
    clocks = st.builds(ClockPart, st.sampled_from(("timeofday", "weekday")), inner, st.sampled_from(ZONES))
    combined = st.builds(_combined, st.sampled_from(get_args(CombineOp)), inner, inner)
    return st.one_of(combined, clocks, st.builds(Apply, names, st.lists(inner, max_size=3).map(tuple)))


_expressions: st.SearchStrategy[Operand] = st.recursive(st.one_of(terms, references.map(Count)), _wider, max_leaves=6)

# Deferred, so that the names of the strategies made of them stay short.
expressions: st.SearchStrategy[Operand] = st.deferred(lambda: _expressions)


def _compares(op: CompareOp, left: Operand, right: Operand) -> Condition:
    if any(reading_beside(one) for one in (left, right)):
        return Compare(op, _not_text(left), _not_text(right))
    return Compare(op, left, right)


def _between(of: Operand, low: Operand, high: Operand) -> Condition:
    if any(reading_beside(one) for one in (of, low, high)):
        return InRange(_not_text(of), _not_text(low), _not_text(high))
    return InRange(of, low, high)


def _one_of(of: Operand, values: list[Value]) -> Condition:
    return InSet(of, tuple(7 if reading_beside(of) and isinstance(v, str) else v for v in values))


_leaves: st.SearchStrategy[Condition] = st.one_of(
    st.builds(_compares, st.sampled_from(get_args(CompareOp)), expressions, expressions),
    st.builds(InGroup, expressions, st.sampled_from(GROUPS)),
    st.builds(_between, expressions, expressions, expressions),
    st.builds(_one_of, expressions, st.lists(plain_values(), min_size=1, max_size=3)),
    st.builds(TextMatch, st.sampled_from(get_args(TextOp)), expressions, expressions),
    st.builds(Related, names, st.lists(expressions, max_size=3).map(tuple)),
    st.just(AllOf()),
    st.just(AnyOf()),
)

leaves: st.SearchStrategy[Condition] = st.deferred(lambda: _leaves)


def _several(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[tuple[Condition, ...]]:
    return st.lists(inner, min_size=2, max_size=3).map(tuple)


def constraints(*, stars: bool = True) -> st.SearchStrategy[Condition]:
    """Any constraint; event policy has none with stars."""

    def wider(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
        made = [inner.map(Not), _several(inner).map(AllOf), _several(inner).map(AnyOf)]
        return st.one_of([*made, inner.map(Starred)] if stars else made)

    return st.recursive(leaves, wider, max_leaves=5)


types: st.SearchStrategy[ArgumentType] = st.one_of(
    st.just(IntegerType()),
    st.just(StringType()),
    st.just(TimestampType()),
    st.sampled_from(("timeofday", "weekday")).map(ClockType),
    st.lists(st.sampled_from("rwxaefé"), min_size=1, unique=True).map(lambda said: SetType("".join(said))),
    st.builds(ObjectType, st.sampled_from(OBJECTS), st.none() | st.sampled_from(("Login", "Doc"))),
)


@st.composite
def declarations(draw: st.DrawFn) -> Declaration:
    parameters = draw(st.lists(roles, max_size=3, unique=True).map(tuple))
    typed = [(name, draw(types)) for name in parameters if draw(st.booleans())]
    return Declaration(draw(roles), parameters, tuple(typed))


@st.composite
def statements(draw: st.DrawFn) -> Statement:
    star = draw(st.booleans())
    head = draw(own_roles)
    named = [at for at, one in enumerate(head.args) if isinstance(one, Variable) and one.name != "_"]
    return Statement(
        head,
        tuple(draw(st.lists(st.builds(Credential, references, st.booleans()), max_size=3))),
        tuple(draw(st.lists(st.builds(Elector, references, st.booleans(), st.booleans()), max_size=2))),
        tuple(draw(st.lists(st.builds(Revoker, references, st.just(star)), max_size=2))),
        draw(constraints()),
        asked=tuple(at for at in named if draw(st.booleans())),
    )


@st.composite
def rolefiles(draw: st.DrawFn) -> Rolefile:
    return Rolefile(
        tuple(draw(st.lists(st.builds(Import, roles, roles), max_size=2))),
        tuple(draw(st.lists(declarations(), max_size=2))),
        tuple(draw(st.lists(statements(), max_size=3))),
        tuple(draw(st.lists(st.lists(roles, min_size=1, max_size=2, unique=True).map(tuple).map(Audit), max_size=1))),
    )


@st.composite
def event_entries(draw: st.DrawFn) -> EventEntry:
    terms = tuple(draw(st.lists(st.one_of(variables, givens), max_size=3)))
    event = EventTemplate(pick(draw, EVENTS), terms)
    held = tuple(draw(st.lists(references, max_size=3)))
    return EventEntry(event, held, draw(constraints(stars=False)), draw(st.booleans()))


@st.composite
def event_policies(draw: st.DrawFn) -> EventPolicy:
    return EventPolicy(tuple(draw(st.lists(event_entries(), max_size=3))))
