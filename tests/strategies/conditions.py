"""Random conditions and values that meet.

Guarantees: `conditions` makes only well-typed, flat trees (as the parser makes them) over the attributes it
is given; `values` draws from the same small pools, so that comparisons are often equal or just off.
Leaves out: nulls in `values` (say `st.none() | values(kind)`), and events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Final, TypeAlias, get_args

from hypothesis import strategies as st

from headgate.model.expressions import (
    FALSE,
    MIRRORED,
    TRUE,
    Attribute,
    Clock,
    ClockPart,
    Compare,
    CompareOp,
    Condition,
    Constant,
    InGroup,
    InRange,
    InSet,
    IsNull,
    Meta,
    Not,
    Operand,
    Predicate,
    Related,
    Subject,
    TextMatch,
    TextOp,
    all_of,
    any_of,
)
from headgate.model.values import INT_MAX, INT_MIN, NUMERIC, Kind, Value
from strategies.drawing import pick

COMMON: Final[Mapping[Kind, Sequence[Value]]] = {
    Kind.BOOL: (False, True),
    Kind.INT: (0, 1, 2, 3, 10),
    Kind.FLOAT: (0.0, 0.5, 1.0, 2.0, 2.5),
    Kind.STRING: ("a", "b", "ab", "a b", "anna"),
    Kind.TIMESTAMP: (
        datetime(2026, 1, 1, 9, tzinfo=UTC),
        datetime(2026, 1, 1, 9, 0, 0, 1, tzinfo=UTC),
        datetime(2026, 3, 29, 1, tzinfo=UTC),
    ),
    Kind.BYTES: (b"", b"\x00", b"\x00\xff"),
}
"""A few values of each kind, drawn often."""

EXTREME: Final[Mapping[Kind, Sequence[Value]]] = {
    Kind.BOOL: (False, True),
    Kind.INT: (-1, INT_MIN, INT_MIN + 1, INT_MAX, INT_MAX - 1, 2**53, 2**53 + 1, -(2**53) - 1),
    Kind.FLOAT: (-0.0, 5e-324, -1.5, 2.0**53, 2.0**63, -(2.0**63), 1.7976931348623157e308, -1e308, 0.1),
    # Code-point order differs from UTF-16 order between the last two; the rest try quoting and tokens.
    Kind.STRING: (
        "",
        " ",
        "a\tb",
        "A",
        "it's",
        '"',
        "`",
        "''",
        "\\",
        "a\nb",
        "null",
        "été",
        "\uffff",
        "\U0001f600",
    ),
    Kind.TIMESTAMP: (
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ),
    Kind.BYTES: (b"\xff" * 16, b"a"),
}
"""Values at the edges of each kind, drawn now and then."""

ZONES: Final = ("UTC", "Europe/London", "America/New_York", "Asia/Kathmandu", "Pacific/Apia")

_ANY: Final[Mapping[Kind, Callable[[], st.SearchStrategy[Value]]]] = {
    Kind.BOOL: st.booleans,
    Kind.INT: lambda: st.integers(INT_MIN, INT_MAX),
    Kind.FLOAT: lambda: st.floats(allow_nan=False, allow_infinity=False),
    Kind.STRING: lambda: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    Kind.TIMESTAMP: lambda: st.datetimes(timezones=st.just(UTC)).map(lambda t: t.replace(fold=0)),
    Kind.BYTES: lambda: st.binary(max_size=4),
}


@cache
def values(kind: Kind) -> st.SearchStrategy[Value]:
    """A value of the kind: mostly from a small pool, at times extreme, seldom anything at all."""
    common = st.sampled_from(COMMON[kind])
    return st.one_of(common, common, common, st.sampled_from(EXTREME[kind]), _ANY[kind]())


def conditions(
    attributes: Mapping[str, Kind],
    *,
    depth: int = 3,
    groups: Sequence[str] = (),
    relations: Mapping[str, int] | None = None,
    subjects: Sequence[str] = (),
    predicates: Mapping[str, int] | None = None,
    meta: bool = True,
) -> st.SearchStrategy[Condition]:
    """Well-typed conditions over these names; relations and predicates come with their arity.

    Without `meta`, `@time` and `@publisher` do not occur, nor the clock parts of `@time`.
    """
    names = _Names(attributes, subjects, meta=meta)
    made = _atoms(names, groups, relations or {}, predicates or {})
    for _ in range(depth):
        made = _grown(made)
    return made


@st.composite
def _grown(draw: st.DrawFn, parts: st.SearchStrategy[Condition]) -> Condition:
    """A part or a connective over parts, each as likely; `one_of` would weigh by the number of atoms."""
    match pick(draw, ("part", "not", "all", "any")):
        case "part":
            return draw(parts)
        case "not":
            return Not(draw(parts))
        case "all":
            return all_of(*draw(st.lists(parts, min_size=2, max_size=3)))
        case _:
            return any_of(*draw(st.lists(parts, min_size=2, max_size=3)))


@cache
def _comparable(kind: Kind) -> st.SearchStrategy[Value]:
    """A value that is comparable with the kind."""
    return st.one_of([values(each) for each in Kind if each is kind or {each, kind} <= NUMERIC])


@cache
def _constants(kind: Kind) -> st.SearchStrategy[Operand]:
    return _comparable(kind).map(Constant)


@cache
def _sets(kind: Kind) -> st.SearchStrategy[tuple[Value, ...]]:
    return st.lists(_comparable(kind), min_size=1, max_size=4).map(tuple)


_COMPARE: Final[st.SearchStrategy[CompareOp]] = st.sampled_from(list(MIRRORED))
_TEXT: Final[st.SearchStrategy[TextOp]] = st.sampled_from(get_args(TextOp))


class _Names:
    """The operands that may stand for a value of a kind."""

    def __init__(self, attributes: Mapping[str, Kind], subjects: Sequence[str], *, meta: bool) -> None:
        self.attributes: dict[Kind, list[Operand]] = {kind: [] for kind in Kind}
        for name, kind in attributes.items():
            self.attributes[kind].append(Attribute(name))
        if meta:
            self.attributes[Kind.TIMESTAMP].append(Meta("time"))
            self.attributes[Kind.STRING].append(Meta("publisher"))
        times = [of for of in self.attributes[Kind.TIMESTAMP] if isinstance(of, Attribute | Meta)]
        self.attributes[Kind.INT] += [
            ClockPart(part, of, zone) for part in get_args(Clock) for of in times for zone in ZONES
        ]
        self.subjects: list[Operand] = [Subject(name) for name in subjects]

    def referable(self) -> list[Kind]:
        """The kinds that something here refers to; all of them, if there are subjects."""
        return [kind for kind in Kind if self.subjects or self.references(kind)]

    def references(self, kind: Kind) -> list[Operand]:
        """What refers to a value comparable with the kind."""
        kinds = NUMERIC if kind in NUMERIC else (kind,)
        return [of for each in Kind if each in kinds for of in self.attributes[each]] + self.subjects

    def reference(self, kind: Kind) -> st.SearchStrategy[Operand]:
        return st.sampled_from(self.references(kind))

    def operand(self, kind: Kind) -> st.SearchStrategy[Operand]:
        """Mostly a constant, so that a comparison says something."""
        constant = _constants(kind)
        return st.one_of(constant, constant, self.reference(kind)) if self.references(kind) else constant


_Maker: TypeAlias = Callable[[], st.SearchStrategy[Condition]]


@st.composite
def _one(draw: st.DrawFn, makers: Sequence[_Maker]) -> Condition:
    """One of many, of which only those that are drawn are made."""
    return draw(pick(draw, makers)())


def _atoms(
    names: _Names, groups: Sequence[str], relations: Mapping[str, int], predicates: Mapping[str, int]
) -> st.SearchStrategy[Condition]:
    makers: list[_Maker] = [lambda: st.sampled_from((TRUE, FALSE))]
    for kind in names.referable():
        makers += _comparisons(names, kind)
    if Kind.STRING in names.referable():
        makers.append(lambda: st.builds(TextMatch, _TEXT, names.reference(Kind.STRING), names.operand(Kind.STRING)))
        makers.append(lambda: st.builds(TextMatch, _TEXT, names.operand(Kind.STRING), names.reference(Kind.STRING)))
        if groups:
            makers.append(lambda: st.builds(InGroup, names.reference(Kind.STRING), st.sampled_from(groups)))
    for relation, arity in relations.items():
        makers.append(lambda of=relation, arity=arity: st.builds(Related, st.just(of), _anything(names, arity)))
    for predicate, arity in predicates.items():
        makers.append(lambda of=predicate, arity=arity: st.builds(Predicate, st.just(of), _anything(names, arity)))
    return _one([cache(make) for make in makers])


def _anything(names: _Names, arity: int) -> st.SearchStrategy[tuple[Operand, ...]]:
    return st.tuples(*[st.one_of([names.operand(kind) for kind in Kind])] * arity)


def _comparisons(names: _Names, kind: Kind) -> list[_Maker]:
    return [
        lambda: st.builds(Compare, _COMPARE, names.reference(kind), names.operand(kind)),
        lambda: st.builds(Compare, _COMPARE, names.operand(kind), names.reference(kind)),
        lambda: st.builds(InRange, names.reference(kind), names.operand(kind), names.operand(kind)),
        lambda: st.builds(InSet, names.reference(kind), _sets(kind)),
        lambda: st.builds(IsNull, names.reference(kind)),
    ]
