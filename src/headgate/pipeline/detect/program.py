"""An expression as machines run it, worked out once for all machines of a detection.

Guarantees: a program does not change. What each machine adds to it, which evaluations wait for the events of a template
and which events are kept, begins anew with `waits`. What all machines of a program share is written as its place in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

from headgate.decide import composite as meaning
from headgate.decide.blocks import expanded
from headgate.decide.composite import Environment, Occurrence
from headgate.model import composite as model
from headgate.model.composite import Composite
from headgate.model.expressions import Constant, Variable
from headgate.model.values import Value, compare

if TYPE_CHECKING:
    from headgate.pipeline.detect.beads import TemplateBead

_NONE: Final[tuple[Any, ...]] = ()
Reducer: TypeAlias = Callable[[Any], Any]
"""What `pickle` writes in place of something."""


@dataclass(slots=True, eq=False)
class TemplateWaits:
    """A template as the machine has it: what waits for its events, and which of them are kept."""

    template: model.Template
    keyed: tuple[str, ...]
    """Attributes whose variables are surely bound when the template is started, and so are looked up."""
    names: tuple[str, ...]
    """Those variables, in the same order."""
    literals: tuple[tuple[str, Value], ...]
    free: tuple[tuple[str, str], ...]
    """The other variables, with their attributes."""
    is_own: Callable[[Occurrence], bool] | None = None
    """Which events are for this machine, where another shard has the others."""
    type: str = field(init=False)
    is_plain: bool = field(init=False)
    """Is no variable in it twice?"""
    beads: dict[tuple[Value, ...], dict[int, TemplateBead]] = field(default_factory=dict)
    kept: dict[tuple[Value, ...], list[Occurrence]] = field(default_factory=dict)
    place: int = 0
    """Among the templates of the program."""

    def __post_init__(self) -> None:
        self.type = self.template.type
        self.free = tuple(sorted(self.free, key=lambda pair: pair[1]))
        self.is_plain = len({name for _, name in self.free}) == len(self.free)

    def anew(self) -> TemplateWaits:
        """The same for another machine."""
        made: TemplateWaits = object.__new__(TemplateWaits)
        made.template, made.type, made.place, made.is_own = self.template, self.type, self.place, None
        made.keyed, made.names, made.literals = self.keyed, self.names, self.literals
        made.free, made.is_plain = self.free, self.is_plain
        made.beads, made.kept = {}, {}
        return made

    def bind(self, one: Occurrence, env: Environment) -> Environment | None:
        """What an event that was found by its values binds; None if it does not match. For templates without tests."""
        if not self.free:
            return env
        if not env and self.is_plain:
            values = one.values
            made = tuple([(name, values.get(attribute)) for attribute, name in self.free])
            return None if None in [value for _, value in made] else made
        bound = dict(env)
        for attribute, name in self.free:
            value = one.values.get(attribute)
            if value is None or compare("=", bound.setdefault(name, value), value) is not True:
                return None
        return meaning.environment(bound)

    def key(self, one: Occurrence) -> tuple[Value, ...] | None:
        """Under which values an event is looked up; None if it cannot match."""
        if self.is_own is not None and not self.is_own(one):
            return None
        values = one.values
        for attribute, literal in self.literals:
            value = values.get(attribute)
            if value != literal if type(value) is type(literal) else compare("=", literal, value) is not True:
                return None
        keyed = self.keyed
        if not keyed:
            return _NONE
        if len(keyed) == 1:
            value = values.get(keyed[0])
            return None if value is None else (value,)
        found = tuple([values.get(attribute) for attribute in self.keyed])
        return None if None in found else found


class Program:
    """An expression, with what machines must know of it."""

    def __init__(self, composite: Composite, bound: Iterable[str] = ()) -> None:
        self.composite = _without_aggregates(composite)
        self.bound = frozenset(bound)
        """The variables that have values from the start."""
        self._waits: dict[int, TemplateWaits] = {}
        _compile(self.composite, self.bound, self._waits)
        for place, waits in enumerate(self._waits.values()):
            waits.place = place
        parts = list(parts_of(self.composite))
        blocks = [part for part in parts if isinstance(part, model.Block)]
        self.has_blocks = bool(blocks)
        self.reaches_back = _reaches_back(self.composite)
        ordered = [part for part in parts if isinstance(part, model.Sequence | model.Without)]
        self.is_shifted = any(part.probability is not None for part in ordered)
        self.goes_back = any((part.probability or 1) < 0.5 for part in ordered)
        self.lasting: list[Any] = [*parts, *(queue for block in blocks for queue in block.queues)]
        """What is the same in every machine, in a fixed order."""
        self._reducing: dict[type, Reducer] = {}
        self._sources: dict[int, tuple[str | None, ...]] = {}

    @property
    def templates(self) -> list[TemplateWaits]:
        """Its templates, each with what is surely bound when it is started."""
        return list(self._waits.values())

    def waits(self) -> dict[int, TemplateWaits]:
        """Its templates for one machine, by where they stand in the expression."""
        return {at: one.anew() for at, one in self._waits.items()}

    def reducing(self, others: Mapping[type, Reducer]) -> dict[type, Reducer]:
        """How what lasts is written, by its classes, and with it others, always the same."""
        if not self._reducing:
            placed = partial(_placed, {id(one): place for place, one in enumerate(self.lasting)})
            self._reducing = {**dict.fromkeys(map(type, self.lasting), placed), **others}
        return self._reducing

    def sources(self, part: Composite) -> tuple[str | None, ...]:
        """On the horizons of which types a part depends; None, that of all streams, if it has timers."""
        found = self._sources.get(id(part))
        if found is None:
            timed = any(isinstance(one, model.Timer) for one in parts_of(part))
            found = self._sources[id(part)] = (*sorted(types_in(part)), *((None,) if timed else ()))
        return found


LASTING: Final = "lasting"


def referred(kind: str, number: int) -> Any:
    """Stands in what is written for something by its number; whoever reads has their own."""
    raise AssertionError((kind, number))


def _placed(places: Mapping[int, int], one: Any) -> Any:
    place = places.get(id(one))
    return one.__reduce_ex__(5) if place is None else (referred, (LASTING, place))


def _compile(c: Composite, sure: frozenset[str], waits: dict[int, TemplateWaits]) -> frozenset[str]:
    """Note each template with what is surely bound when it is started; what is surely bound after."""
    match c:
        case model.Template():
            names = [(a, p.name) for a, p in zip(c.attributes, c.parameters, strict=True) if isinstance(p, Variable)]
            there = [(attribute, name) for attribute, name in names if name in sure]
            literals = tuple(
                (a, p.value) for a, p in zip(c.attributes, c.parameters, strict=True) if isinstance(p, Constant)
            )
            free = tuple(pair for pair in names if pair not in there)
            waits[id(c)] = TemplateWaits(c, tuple(a for a, _ in there), tuple(n for _, n in there), literals, free)  # type: ignore[arg-type]
            assigned = (one.name for one in c.side if isinstance(one, model.SideAssignment))
            return sure.union((name for _, name in names), assigned)
        case model.Timer():
            return sure.union(one.name for one in c.side if isinstance(one, model.SideAssignment))
        case model.NullEvent():
            return sure
        case model.Sequence(left, right):
            return _compile(right, _compile(left, sure, waits), waits)
        case model.Either(left, right):
            return _compile(left, sure, waits) & _compile(right, sure, waits)
        case model.Without(left, right):
            _compile(right, sure, waits)
            return _compile(left, sure, waits)
        case model.Whenever(of) | model.Aggregate(_, of):
            return _compile(of, sure, waits)
        case model.Block(_, queues):
            after = [_compile(queue.of, sure, waits) for queue in queues]
            return after[0].intersection(*after[1:])
        case _:
            assert_never(c)


def types_in(c: Composite) -> frozenset[str]:
    """The types of its templates."""
    return frozenset(template.type for template in model.templates(c))


def parts_of(c: Composite) -> Iterator[Composite]:
    """A composite event and all that it is made of."""
    yield c
    for part in model.inside(c):
        yield from parts_of(part)


def _without_aggregates(c: Composite) -> Composite:
    """The expression with the blocks that its ready-made aggregates stand for, each template a node of its own."""
    match c:
        case model.Template():
            return replace(c)  # what is surely bound differs from place to place
        case model.Sequence(left, right) | model.Without(left, right) | model.Either(left, right):
            return replace(c, left=_without_aggregates(left), right=_without_aggregates(right))
        case model.Whenever(model.Whenever() as of):  # the same, with fewer evaluations
            return _without_aggregates(of)
        case model.Whenever(of):
            return model.Whenever(_without_aggregates(of))
        case model.Block() | model.Aggregate():
            block = expanded(c)
            queues = tuple(replace(queue, of=_without_aggregates(queue.of)) for queue in block.queues)
            return replace(block, queues=queues)
        case _:
            return c


def _reaches_back(c: Composite) -> bool:
    """May an evaluation start at the time of what a block accepted, which may be long past?"""
    match c:
        case model.Sequence(left) if any(isinstance(part, model.Block | model.Aggregate) for part in parts_of(left)):
            return True
        case model.Whenever(of) if any(isinstance(part, model.Block | model.Aggregate) for part in parts_of(of)):
            return True
        case _:
            return any(map(_reaches_back, model.inside(c)))
