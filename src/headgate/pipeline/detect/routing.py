"""Which machines an event goes to: a detection is cut into shards that are evaluated apart.

Guarantees: an expression that begins with `$T(..., x, ...)` signals for each value of `x` by itself, so its signals are
those of machines that each see the events of some values of `x` and all events of templates that do not know `x`. What
cannot be cut is one shard. A value has one shard, whatever kind of number it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide.composite import Occurrence
from headgate.model import composite as model
from headgate.model.composite import Composite, Template
from headgate.model.expressions import Variable
from headgate.model.values import Value, micros
from headgate.pipeline.detect.machine import Machine
from headgate.pipeline.detect.program import Program, TemplateWaits

SHARDS: Final = 256
"""Of a detection whose events all go by one variable."""

FEW_SHARDS: Final = 8
"""Of a detection that has templates whose events go to all of them."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where events that a template may match go: to the shard of an attribute's value, or with None to all."""

    type: str
    attribute: str | None = None


@dataclass(frozen=True, slots=True)
class Routing:
    """The shards of a detection, and the way to them; each route once."""

    shards: int
    routes: tuple[Route, ...]
    variable: str = ""
    """By whose values it is cut."""

    @property
    def is_cut(self) -> bool:
        """Does a machine exist only once something has arrived for it?"""
        return self.shards > 1


def routing(program: Program, keys: Mapping[str, tuple[str, ...]]) -> Routing:
    """How a detection is cut; `keys` are those of the types that are keyed."""
    every = program.templates
    leading = _leading(program.composite)
    best = Routing(1, tuple(dict.fromkeys(Route(one.template.type) for one in every)))
    if leading is None:
        return best
    fewest = len(every)
    for name in sorted(set.intersection(*({n for n, _ in _variables(one)} for one in leading)) - program.bound):
        ways = [_route(one, name, leading, keys) for one in every]
        lost = sum(1 for way in ways if way.attribute is None)
        led = all(way.attribute for way, one in zip(ways, every, strict=True) if _is_among(one.template, leading))
        if led and lost < fewest:
            fewest = lost
            best = Routing(FEW_SHARDS if lost else SHARDS, tuple(dict.fromkeys(ways)), name)
    return best


def keep_to(machine: Machine, routing: Routing, shard: int) -> Machine:
    """Have a machine begin with the values of its own shard alone, whatever else it is shown."""
    ways = {route.attribute for route in routing.routes}
    if not routing.is_cut or (len(ways) == 1 and None not in ways):  # what is shown to a shard is its own
        return machine
    leading = _leading(machine.composite) or []
    for waits in machine.templates():
        if _is_among(waits.template, leading):
            attribute = next(a for n, a in _variables(waits.template) if n == routing.variable)
            waits.is_own = partial(_is_in_shard, attribute, routing.shards, shard)
    return machine


def _is_in_shard(attribute: str, shards: int, shard: int, one: Occurrence) -> bool:
    value = one.values.get(attribute)
    return value is not None and shard_of(value, shards) == shard


def _leading(c: Composite) -> list[Template] | None:
    """The templates, each under a `$`, one of which every signal begins with; None if there are no such."""
    match c:
        case model.Whenever(Template() as template):
            return [template]
        case model.Sequence(left, _) | model.Without(left, _):
            return _leading(left)
        case model.Either(left, right):
            one, other = _leading(left), _leading(right)
            return None if one is None or other is None else [*one, *other]
        case _:
            return None


def _is_among(template: Template, some: list[Template]) -> bool:
    """Is it one of these very templates? An equal one elsewhere is another."""
    return any(template is one for one in some)


def _variables(template: Template) -> list[tuple[str, str]]:
    """The variables of a template, with their attributes."""
    pairs = zip(template.parameters, template.attributes, strict=True)
    return [(one.name, attribute) for one, attribute in pairs if isinstance(one, Variable)]


def _route(waits: TemplateWaits, name: str, leading: list[Template], keys: Mapping[str, tuple[str, ...]]) -> Route:
    """The way of a template's events, by a variable if it knows that one."""
    template = waits.template
    leads = _is_among(template, leading)
    known = [a for n, a in _variables(template) if n == name and (leads or n in waits.names)]
    key = keys.get(template.type)
    if key is not None:  # a row that moves to another value must be missed where it was
        known = [attribute for attribute in known if attribute in key]
    return Route(template.type, known[0] if known else None)


def shard_of(value: Value, shards: int) -> int:
    """The shard of a value; equal values have the same."""
    match value:
        case bool():
            text = f"b{int(value)}"
        case int():
            text = f"n{value}"
        case float():
            text = f"n{int(value)}" if value.is_integer() else f"n{value!r}"
        case datetime():
            text = f"t{micros(value)}"
        case bytes():
            text = f"y{value.hex()}"
        case _:
            text = f"s{value}"
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) % shards


def shards_for(routing: Routing, types: Iterable[str], view: Mapping[str, Value]) -> list[int]:
    """The shards that an event of a type (with its ancestors) goes to, by what is seen of it."""
    found: set[int] = set()
    for route in routing.routes:
        if route.type not in types:
            continue
        if route.attribute is None:
            return list(range(routing.shards))
        value = view.get(route.attribute)
        if value is not None:
            found.add(shard_of(value, routing.shards))
    return sorted(found)


def shards_of(column: pa.Array, shards: int) -> npt.NDArray[np.int64]:
    """The shard of each value of a column; -1 for null, which matches no variable."""
    encoded = column.dictionary_encode()
    known = np.fromiter((shard_of(value, shards) for value in encoded.dictionary.to_pylist()), np.int64)
    at: npt.NDArray[np.int64] = pc.fill_null(encoded.indices, len(known)).to_numpy().astype(np.int64)
    return np.append(known, -1)[at]
