"""What the evaluations of a detection wait for, and which sources hold them back: for people, and for programs.

Guarantees: changes nothing. An evaluation waits for an event that matches, for a time to be certain, for the clock, or
for the end of what a block is over; what it waits for says nothing that the views did not show. One that only passes on
what those below it signal waits for nothing of its own, and is not told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain

from headgate.decide.composite import FOREVER, Environment, later
from headgate.lang.composite import render_composite
from headgate.model.values import moment
from headgate.pipeline.detect.beads import Bead, BlockBead, TemplateBead, TimerBead, WithoutBead
from headgate.pipeline.detect.machine import Machine
from headgate.pipeline.detect.sources import SourcePromises
from headgate.pipeline.log.promises import ALL_TYPES, OF_STREAM


class WaitsFor(Enum):
    """What an evaluation waits for."""

    EVENT = "event"
    """One that matches."""
    HORIZON = "horizon"
    """That a time is certain: every source that matters must promise more."""
    CLOCK = "clock"
    """That so much time has passed since something was received (`Delay`)."""
    END = "end"
    """That what a block is over has ended."""


@dataclass(frozen=True, slots=True)
class BeadWait:
    """What one evaluation waits for: the part of the expression that it is of, since when, and with which values."""

    part: str
    start: datetime
    environment: Environment
    waits_for: WaitsFor
    until: datetime | None = None
    """The time that must be certain, or to which the clock must come."""
    types: tuple[str | None, ...] = ()
    """The types whose horizons are not past that time yet; None stands for all that the detection looks at."""


@dataclass(frozen=True, slots=True)
class SourceHorizon:
    """What a source has promised: a stream, a publisher in it (`OF_STREAM`: the gateway itself), a type, or all."""

    stream: str
    publisher: str
    type: str
    horizon: datetime
    holds: int
    """How many evaluations wait for it to promise more."""


def waiting(machine: Machine) -> Iterator[BeadWait]:
    """What the evaluations of a machine wait for; those that wait for the same in the same way once for each."""
    for bead in machine.every_bead():
        yield from _waits(machine, bead)


def _waits(machine: Machine, bead: Bead) -> Iterator[BeadWait]:
    match bead:
        case TemplateBead():
            template = bead.waits.template
            text = render_composite(template)
            if bead.rows_due:
                yield _held(machine, bead, text, bead.start, (template.type,))
            elif bead.always:
                yield BeadWait(f"${text}", bead.start, bead.env, WaitsFor.EVENT)
            elif bead.best < FOREVER:
                yield _held(machine, bead, text, bead.best, (template.type,))
            else:
                yield BeadWait(text, bead.start, bead.env, WaitsFor.EVENT)
        case TimerBead() if bead.signal is not None:
            yield _held(machine, bead, render_composite(bead.timer), bead.signal.time, (None,))
        case WithoutBead():
            text = render_composite(bead.part)
            for signal, received in bead.waiting.items():
                until = later(signal.time, bead.shift)
                yield _held(machine, bead, text, until, machine.program.sources(bead.part.right), signal.environment)
                if bead.part.delay is not None:
                    passed = later(received, timedelta(seconds=bead.part.delay))
                    yield BeadWait(text, bead.start, signal.environment, WaitsFor.CLOCK, passed)
        case BlockBead():
            yield BeadWait(" and ".join(_over(bead)), bead.start, bead.env, WaitsFor.END)
        case _:
            return


def _over(bead: BlockBead) -> Iterable[str]:
    """What a block is over, without its statements."""
    return (f"{{ {render_composite(queue.of)} }}" for queue in bead.block.queues)


def _held(
    machine: Machine,
    bead: Bead,
    text: str,
    until: datetime,
    types: Iterable[str | None],
    env: Environment | None = None,
) -> BeadWait:
    """An evaluation that waits for a time to be certain."""
    behind = tuple(type for type in types if machine.horizon_of(type) <= until)
    return BeadWait(text, bead.start, bead.env if env is None else env, WaitsFor.HORIZON, until, behind)


def horizons(promises: SourcePromises, types: frozenset[str], waits: Iterable[BeadWait]) -> list[SourceHorizon]:
    """What the sources have promised that matter to these types, those first that hold back most."""
    held = [(one.until, one.types) for one in waits if one.waits_for is WaitsFor.HORIZON and one.until is not None]

    def told(stream: str, publisher: str, type: str, at: int, carried: frozenset[str]) -> SourceHorizon:
        horizon = moment(at)
        holds = sum(
            1 for until, behind in held if horizon <= until and any(one is None or one in carried for one in behind)
        )
        return SourceHorizon(stream, publisher, type, horizon, holds)

    mine = {name: facts for name, facts in promises.times.items() if types.intersection(facts.lineage)}
    stamped = frozenset(chain.from_iterable(facts.lineage for facts in mine.values() if not facts.times.stated))
    found = []
    for stream, own in promises.promised.streams.items():
        if stamped or not mine:
            found.append(told(stream, OF_STREAM, ALL_TYPES, own, stamped))
        for name, facts in mine.items():
            if facts.times.stated:
                for publisher, at in promises.promised.sources(stream, name, facts.times):
                    found.append(told(stream, publisher, name, at, frozenset(facts.lineage)))
    return sorted(found, key=lambda one: (-one.holds, one.stream, one.type, one.publisher))
