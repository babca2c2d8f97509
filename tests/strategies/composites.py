"""Composite events, and arrivals of events that keep the promises of their streams."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import strategies as st

from headgate.decide.blocks import Moment, SourceFacts
from headgate.decide.composite import Occurrence
from headgate.decide.composite_check import resolve
from headgate.lang.composite import parse_composite
from headgate.model import composite as model
from headgate.model.composite import Composite
from headgate.model.errors import BadExpression
from headgate.model.expressions import Combine, Compare, Constant, InRange, Variable
from headgate.model.state import State
from headgate.model.types import Catalog, EventType
from headgate.model.values import EPOCH, Kind, Value
from strategies.running import among

TYPES = (
    EventType("lab.A", "owner", {"x": Kind.INT}),
    EventType("lab.B", "owner", {"x": Kind.INT}),
    EventType("lab.C", "owner", {"x": Kind.INT, "y": Kind.INT}),
    EventType("lab.Row", "owner", {"x": Kind.INT, "y": Kind.INT}, key=("x",)),
    EventType("lab.Seen", "owner", {"b": Kind.STRING, "r": Kind.STRING}),
    EventType("lab.Alarm", "owner", {}),
    EventType("lab.Open", "owner", {"x": Kind.INT}),
    EventType("lab.Deposit", "owner", {"x": Kind.INT, "a": Kind.INT}),
    EventType("lab.Close", "owner", {"x": Kind.INT}),
)
TABLES = {"lab.Row": ("x",)}


def _catalog() -> Catalog:
    catalog = Catalog()
    for type in TYPES:
        catalog = catalog.declare(type)
    return catalog


STATE = State(version=1, administrator="administrator", types=_catalog())


def seconds(number: float) -> datetime:
    """A time of the story."""
    return EPOCH + timedelta(seconds=number)


def resolved(text: str, **bound: Value) -> Composite:
    """A composite event over these types."""
    return resolve(parse_composite(text), STATE, bound).composite


def event(name: str, time: float, *values: Value, stream: str = "main", seq: int = 0) -> Occurrence:
    """An event of one of these types."""
    type = f"lab.{name}"
    attributes = dict(zip(STATE.types.attributes(type), values, strict=True))
    key = tuple(attributes[a] for a in TABLES.get(type, ()))
    tables = (type,) if type in TABLES else ()
    return Occurrence(seconds(time), (type,), attributes, STATE, stream, seq, key, tables)


def arriving(events: Iterable[Occurrence], horizon: float = 1_000) -> list[Moment]:
    """The events one by one, then a promise."""
    moments = [Moment((one,), {}) for one in events]
    return [*moments, Moment((), {"main": seconds(horizon)})]


# -- random expressions -------------------------------------------------------------------------------------------

_TYPES = st.sampled_from(TYPES[:4])
_PARAMETERS = st.sampled_from(
    [Variable("x"), Variable("x"), Variable("y"), Variable("y"), None, Constant(1), Constant(2)]
)
Side = tuple[model.SideExpression, ...]
_SIDES: list[Side] = [
    (),
    (),
    (),
    (model.SideTest(Compare(">", Variable("x"), Constant(1))),),
    (model.SideTest(Compare("!=", Variable("y"), Constant(2))),),
    (model.SideAssignment("t", Combine("+", model.AT, Constant(2))),),
]


SILLY: list[Side] = [
    *_SIDES,
    (model.SideAssignment("t", model.AT),),
    (model.SideAssignment("t", Combine("-", model.AT, Constant(1))),),
    (model.SideAssignment("t", Constant(4)),),
    (model.SideTest(Compare("<", Variable("x"), Constant(2))),),
    (model.SideTest(Compare("=", Variable("x"), Constant(2))),),
    (model.SideTest(Compare("<", model.AT, Variable("t"))),),
    (model.SideTest(Compare("<=", model.AT, Combine("+", Variable("t"), Constant(1)))),),
    (model.SideTest(Compare("<=", model.AT, Constant(4))),),
    (model.SideTest(Compare(">", model.AT, Constant(4))),),
    (model.SideTest(InRange(Variable("x"), Constant(2), Constant(1))),),
]
"""Tests of which some contradict each other, or what comes before them."""


@st.composite
def templates(draw: st.DrawFn, sides: st.SearchStrategy[Side]) -> Composite:
    """A template of one of the first four types."""
    type = draw(_TYPES)
    parameters = tuple(draw(_PARAMETERS) for _ in type.attributes)
    return model.Template(type.name.rpartition(".")[2], parameters, draw(sides))


def _leaves(sides: list[Side]) -> st.SearchStrategy[Composite]:
    timers = [*(model.Timer(Constant(n)) for n in (3, 5, 8)), model.Timer(Variable("t"))]
    matches = templates(st.sampled_from(sides))
    return st.one_of(matches, matches, matches, st.sampled_from([model.NullEvent(), *timers]))


def composites(*, blocks: bool, sides: list[Side] = _SIDES) -> st.SearchStrategy[Composite]:
    """Composite events; with `blocks`, also what depends on arrival."""

    def above(inner: st.SearchStrategy[Composite]) -> st.SearchStrategy[Composite]:
        kinds: list[st.SearchStrategy[Composite]] = [
            st.builds(model.Sequence, inner, inner),
            st.builds(model.Sequence, st.builds(model.Whenever, inner), inner),
            st.builds(model.Without, inner, inner),
            st.builds(model.Without, st.builds(model.Whenever, inner), inner),
            st.builds(model.Either, inner, inner),
            st.builds(model.Whenever, inner),
        ]
        if blocks:
            by = st.sampled_from([(), (), ("x",)])
            plain = st.sampled_from(["count", "first", "last", "once"])
            kinds += [
                st.builds(model.Without, inner, inner, st.just(3)),
                st.builds(model.Aggregate, plain, inner, st.none(), by),
                st.builds(model.Aggregate, st.sampled_from(["sum", "min", "max"]), inner, st.just("x"), by),
            ]
        return st.one_of(kinds)

    return st.recursive(_leaves(sides), above, max_leaves=5)


def _accepted(c: Composite) -> Composite | None:
    """What is resolved of it, if it passes the checks."""
    try:
        return resolve(c, STATE).composite
    except BadExpression:
        return None


def is_accepted(c: Composite) -> bool:
    """Does it pass the checks?"""
    return _accepted(c) is not None


def accepted(*, blocks: bool, sides: list[Side] = _SIDES) -> st.SearchStrategy[Composite]:
    """Composite events that pass the checks, resolved."""
    return composites(blocks=blocks, sides=sides).map(_accepted).filter(lambda c: c is not None)


def doubted(c: Composite, probabilities: st.DataObject) -> Composite:
    """A composite event with random probabilities."""
    one = st.sampled_from([None, 0.1, 0.3, 0.9])
    match c:
        case model.Sequence(left, right):
            return model.Sequence(
                doubted(left, probabilities), doubted(right, probabilities), probabilities.draw(one, label="; ")
            )
        case model.Without(left, right, delay):
            return model.Without(
                doubted(left, probabilities), doubted(right, probabilities), delay, probabilities.draw(one, label="- ")
            )
        case model.Either(left, right):
            return model.Either(doubted(left, probabilities), doubted(right, probabilities))
        case model.Whenever(of) | model.Aggregate(_, of):
            return replace(c, of=doubted(of, probabilities))
        case _:
            return c


# -- random arrivals ----------------------------------------------------------------------------------------------


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[dict[str, SourceFacts], list[Moment]]:
    """Events of two or three streams, late and out of order, never below what their stream has promised."""
    streams = {"s1": SourceFacts(), "s2": SourceFacts(draw(among(None, frozenset({"lab.A", "lab.Row"}))))}
    if draw(st.booleans()):
        streams["s3"] = SourceFacts(frozenset({"lab.B"}))
    horizons = dict.fromkeys(streams, 0)
    moments: list[Moment] = []
    clock = 0

    def promised() -> dict[str, datetime]:
        return {name: seconds(at) for name, at in horizons.items()}

    for seq in range(draw(st.integers(4, 22))):
        stream = draw(among(*sorted(streams)))
        clock += draw(among(0, 1, 2))
        if draw(st.integers(0, 9)) < 6:
            types = streams[stream].types or {"lab.A", "lab.B", "lab.C", "lab.Row"}
            name = draw(among(*sorted(types))).rpartition(".")[2]
            time = horizons[stream] + draw(among(0, 1, 1, 2, 3, 5))
            width = len(STATE.types.attributes(f"lab.{name}"))
            values = [draw(among(1, 1, 2, 2, 3, None)) for _ in range(width)]
            moments.append(Moment((event(name, time, *values, stream=stream, seq=seq),), promised(), seconds(clock)))
        else:
            horizons[stream] += draw(among(1, 2, 4))
            moments.append(Moment((), promised(), seconds(clock)))
    horizons = dict.fromkeys(streams, 1_000)
    return streams, [*moments, Moment((), promised(), seconds(clock + 50))]
