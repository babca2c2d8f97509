"""What comes of the signals of a detection: events of a type of their own, or rows of a relation. Rules D15, D16.

Guarantees: pure functions. What a detection publishes or adds is settled when it is accepted: every attribute, and
every column, is surely bound, with a kind that fits. No event that is published by a detection leads back to it, over
however many detections, types and their subtypes. A signal makes one event with one id, whenever it is asked for.
What a detection is said to signal no more (`promise`), it does not signal, whatever arrives.
Leaves out: who publishes and adds, and when (`commands.deriving`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from headgate.decide.composite import Shift, earlier, lag
from headgate.decide.composite_check import Resolved
from headgate.decide.deliver import PredicatesOf, States, admits
from headgate.decide.publish import may_publish, no_right
from headgate.decide.views import View, view
from headgate.model import composite as model
from headgate.model.changes import AddRow
from headgate.model.composite import Composite, templates
from headgate.model.errors import BadDefinition, FeedsItself, GovernDenied, LimitReached, UnknownName
from headgate.model.events import Contributors, Draft, Event
from headgate.model.expressions import Constant, Operand, Related, Variable, plain
from headgate.model.limits import MAX_READERS
from headgate.model.rights import Detection, Subscription
from headgate.model.state import State
from headgate.model.types import PUBLISHER, Catalog
from headgate.model.values import NUMERIC, Kind, Value, brief, kind_of

DERIVED: Final = "derived-events"
"""The stream of events that detections publish."""


def check_derived(one: Subscription, detection: Detection, found: Resolved, state: State, author: str) -> None:
    """Refuse what a detection, which was resolved like this, cannot publish or add."""
    if detection.publishes is not None and detection.adds is not None:
        raise BadDefinition("a detection publishes or adds, not both", place="adds", remedy="make two detections")
    if detection.publishes is not None:
        _check_published(one.principal, detection.publishes, found, state)
        looked_at = tuple(template.type for template in templates(found.composite))
        _check_loops(one, looked_at, detection.publishes, state, author)
    if detection.adds is not None:
        _check_added(detection.adds, found, state, author)


def _check_published(principal: str, type: str, found: Resolved, state: State) -> None:
    attributes = state.types.attributes(type)
    if not may_publish(state, principal, type):  # else anyone could hold back what others detect
        raise no_right(state, principal, type)
    if not state.types.times(type).stated:
        raise BadDefinition(
            f"a `{type}` occurs when its gateway says so, and a signal has a time of its own",
            place="publishes",
            remedy=f"the type would say `times: {PUBLISHER}`",
        )
    for name, kind in attributes.items():
        _check_bound(name, found, f"attribute `{name}` of `{type}`")
        if not _fits(found.kinds[name], kind):
            raise BadDefinition(
                f"`{name}` is of kind {found.kinds[name].value}, and the attribute of kind {kind.value}",
                place=f"attribute `{name}` of `{type}`",
                remedy="let the expression bind another variable to that name",
            )


def _check_bound(name: str, found: Resolved, place: str) -> None:
    if name not in found.sure:
        raise BadDefinition(
            f"no variable `{brief(name)}` is surely bound when it signals",
            place=place,
            remedy="let a template or an assignment `<-` on every way to the signal bind it",
        )


def _fits(bound: Kind, declared: Kind) -> bool:
    return bound is declared or (declared is Kind.FLOAT and bound in NUMERIC)


def _check_added(row: Related, found: Resolved, state: State, author: str) -> None:
    if author != state.administrator:
        raise GovernDenied(f"`{author}` does not govern the relation `{brief(row.name)}`")
    if row.name not in state.relations:
        raise UnknownName(f"no relation `{brief(row.name)}`", place="adds", remedy="declare it first")
    arity = next((len(one) for one in state.relations[row.name]), len(row.args))
    if arity != len(row.args):
        raise BadDefinition(f"`{row.name}` takes {arity} values, not {len(row.args)}", place="adds")
    for at, column in enumerate(row.args, start=1):
        place = f"value {at} of `{row.name}`"
        if isinstance(column, Variable):
            _check_bound(column.name, found, place)
        elif not isinstance(column, Constant) or kind_of(plain(column.value)) is None:
            raise BadDefinition("a row has values of variables, and constants", place=place)


# -- loops ------------------------------------------------------------------------------------------------------


def _check_loops(one: Subscription, types: tuple[str, ...], publishes: str, state: State, author: str) -> None:
    """Refuse a detection of which an event would come that it, or what it leads to, looks at again."""
    others = [
        (other, other.types, other.detection.publishes)
        for other in state.subscriptions.values()
        if other.detection is not None and other.detection.publishes is not None and other.id != one.id
    ]
    way = _way(publishes, types, others, state.types)
    if way is None:
        return
    steps = [f"{_named(one, author, state)} publishes `{publishes}`"]
    steps += [f"{_named(other, author, state)} publishes `{made}`" for other, _, made in way]
    raise FeedsItself(
        f"{', '.join(steps)}, and the first looks at that",
        place="publishes",
        remedy="publish another type, or look at one that is not made of these",
    )


Published = tuple[Subscription, tuple[str, ...], str]
"""A detection, the types that it looks at, and the one that it publishes."""


def _way(made: str, looked_at: tuple[str, ...], others: list[Published], types: Catalog) -> list[Published] | None:
    """The detections by which an event of a type leads to one that somebody looks at; none of them twice."""
    left: list[tuple[str, list[Published]]] = [(made, [])]
    seen: set[str] = set()
    while left:
        at, way = left.pop(0)
        if _sees(looked_at, at, types):
            return way
        for other in others:
            if other[0].id not in seen and _sees(other[1], at, types):
                seen.add(other[0].id)
                left.append((other[2], [*way, other]))
    return None


def _sees(looked_at: Iterable[str], type: str, types: Catalog) -> bool:
    line = types.lineage(type)
    return any(one in line for one in looked_at)


def _named(one: Subscription, author: str, state: State) -> str:
    """A detection by its name, for those who may know of it."""
    if author in (one.principal, state.administrator):
        return f"the detection `{one.id.rpartition('/')[2]}`"
    return "a detection of another principal"


# -- what a signal makes ----------------------------------------------------------------------------------------


def derived_id(one: Subscription, signal: str) -> str:
    """The id of what a signal makes: always the same, and of no other signal, of whatever detection."""
    return hashlib.sha256(f"{one.first} {one.id} {signal}".encode()).hexdigest()[:32]


def derived_event(
    one: Subscription,
    signal: str,
    time: datetime,
    bindings: Mapping[str, Value],
    contributors: Contributors,
    types: Catalog,
) -> Draft:
    """The event that a signal of a detection is published as; what is not bound is null."""
    assert one.detection is not None
    assert one.detection.publishes is not None
    type = one.detection.publishes
    declared = types.attributes(type) if type in types else bindings
    values = {name: bindings[name] for name in declared if name in bindings}
    id = derived_id(one, signal)
    return Draft(id, one.principal, type, values, time=time, contributors=contributors, made_of=one.types)


def derived_row(row: Related, bindings: Mapping[str, Value]) -> AddRow:
    """The row that a signal adds."""
    return AddRow(row.name, tuple(_column(of, bindings) for of in row.args))


def _column(of: Operand, bindings: Mapping[str, Value]) -> Value:
    assert isinstance(of, Variable | Constant)
    return bindings.get(of.name) if isinstance(of, Variable) else plain(of.value)


# -- who may read it --------------------------------------------------------------------------------------------


def readers_of(
    one: Subscription,
    events: Sequence[Event],
    everyone: Iterable[str],
    states: States,
    predicates: PredicatesOf,
) -> tuple[str, ...]:
    """Those who could read all that a signal rests on, each event at its own version, in order of name (D16).

    That is: whoever might have received each of them, with every attribute that the detection's principal saw of it.
    """
    left = sorted(everyone)
    for event in events:
        state = states(event.version)
        known = predicates(state)
        own = view(state, one.principal, event, known, one.origin, one.counted)
        seen = frozenset(event.values) if own is None else own.attributes
        left = [who for who in left if admits(event, who, state) and _sees_all(view(state, who, event, known), seen)]
    if len(left) > MAX_READERS:
        raise LimitReached(
            f"more than MAX_READERS ({MAX_READERS}) could read what the event rests on",
            remedy="publish a type that is not `derived: contributors`",
        )
    return tuple(left)


def _sees_all(shown: View | None, attributes: frozenset[str]) -> bool:
    return shown is not None and attributes <= shown.attributes


# -- what it signals no more ------------------------------------------------------------------------------------


def may_hold(c: Composite) -> bool:
    """May it hold back in a block what was certain before, so that what it promises depends on what it holds?

    Aggregates that tell at the end when that was, or the first as soon as it is the first, do not, unless somebody
    waits for them.
    """
    match c:
        case model.Block():
            return True
        case model.Aggregate(function, of):
            return function in ("min", "max", "last") or not _is_plain(of)
        case model.Without(left, right):
            return may_hold(left) or not _is_plain(right)
        case _:
            return any(map(may_hold, model.inside(c)))


def _is_plain(c: Composite) -> bool:
    """Is there no block in it?"""
    return not isinstance(c, model.Aggregate | model.Block) and all(map(_is_plain, model.inside(c)))


def may_promise(c: Composite) -> bool:
    """Does it ever come to promise anything? Not if probabilities let it start ever earlier."""
    return lag(c, lambda _left, _right, p: timedelta(0 if p is None else p - 0.5)) < math.inf


def promise(c: Composite, start: datetime, horizon: datetime, held: datetime | None, shift: Shift) -> datetime:
    """Before which time a detection signals no more: by the least horizon of its sources, and the earliest it holds.

    What it holds is asked for if it `may_hold` anything, and None if that is not known.
    """
    if may_hold(c):
        horizon = start if held is None else min(horizon, held)
    return max(start, earlier(horizon, lag(c, shift)))
