"""What a detection keeps: state that stays flat, and a million evaluations that stay open. One machine, one process.

Flat: `$A(x); B(x) - C(x)` over 10,000,000 events. Every second one is an A with a value of x that no other has, and the
one after it a B or a C, in turn, of the A that came 333 before. So about 1,000 beads live at any time, and nothing ever
comes back to a value. A hundred times the machine is saved, as Spark's state has it; `detection_state.svg` is drawn
from the sizes. The figure is the largest state after the first tenth over the largest in the first tenth.

Open: `$A(x); B(x)` with a million A, each with a value of its own, in appends of 1,000, over three hours of their
times, and no B: a million beads that stay open. Told are the memory of the process, what is saved, and the events/s of
the last tenth over those of the first. With one bead more than the limit it must stop with `limit-reached`. Then, in a
machine of the same size, a B comes for each of them three hours after its A, when all are open, and all must signal.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.measure import console, report, resident
from headgate.decide.blocks import Moment, SourceFacts
from headgate.decide.composite import Occurrence
from headgate.decide.composite_check import resolve
from headgate.lang.composite import parse_composite
from headgate.model.errors import LimitReached
from headgate.model.state import State
from headgate.model.types import Catalog, EventType
from headgate.model.values import EPOCH, Kind, moment
from headgate.pipeline.detect import machine as machines
from headgate.pipeline.detect.machine import Horizons, Machine

EVENTS = 10_000_000
APPEND = 1_000
LIVE = 333
"""Evaluations that are open at a time, each of three beads."""
SAMPLES = 100
OPEN = 1_000_000
HOURS = 3
STREAM = "main"
FIGURE = Path(__file__).parent / "detection_state.svg"


def run() -> None:
    flat()
    stay_open()


def flat() -> None:
    """The size of the state over many events."""
    console.print(f"[bold]state of a detection[/]: {EVENTS:,} events with about {3 * LIVE:,} beads alive")
    with uncollected():
        machine, sizes, beads = detection("$A(x); B(x) - C(x)"), [], 0
        every = EVENTS // SAMPLES
        for at in range(0, EVENTS, APPEND):
            machine.arrive(append(at))
            if (at + APPEND) % every == 0:
                sizes.append(len(machine.saved()))
                beads = max(beads, machine.beads)
    tenth = len(sizes) // 10
    report("state of a detection, beads alive at most", beads, None, "lower")
    report("state of a detection, kB", max(sizes[tenth:]) / 1000, None, "lower")
    report(
        "state of a detection, after the first tenth over within it",
        max(sizes[tenth:]) / max(sizes[:tenth]),
        1.1,
        "lower",
    )
    if EVENTS >= 1_000_000:
        FIGURE.write_text(drawn(sizes))


def append(at: int) -> Moment:
    """The events from one on, in pairs: an A, and what ends the one that came `LIVE` pairs before."""
    some: list[Occurrence] = []
    for number in range(at, at + APPEND):
        pair = number // 2
        ends = number % 2
        name = "A" if not ends else "B" if pair % 2 else "C"
        some.append(event(name, pair - LIVE if ends else pair, number + 1))
    return Moment(tuple(some), {STREAM: some[-1].time}, some[-1].time)


def stay_open() -> None:
    """Many evaluations that nothing ends."""
    console.print(f"[bold]evaluations that stay open[/]: {OPEN:,}")
    with uncollected():
        before = resident(os.getpid())
        machine, rates = detection("$A(x); B(x)"), []
        for at in range(0, OPEN, OPEN // 10):
            begun = time.process_time()
            for first in range(at, at + OPEN // 10, APPEND):
                machine.arrive(opened("A", first))
            rates.append((OPEN // 10) / (time.process_time() - begun))
        report("evaluations that stay open, MB", resident(os.getpid()) - before, None, "lower")
        report("evaluations that stay open, MB saved", len(machine.saved()) / 1e6, None, "lower")
        report("evaluations that stay open, last tenth over first, events/s", rates[-1] / rates[0], None, "higher")
        most, machines.MAX_BEADS = machines.MAX_BEADS, machine.beads  # type: ignore[misc]
        try:
            machine.arrive(opened("A", OPEN))
            raise RuntimeError("a limit was passed")
        except LimitReached as error:
            console.print(f"  one more: {error}")
        machines.MAX_BEADS = most  # type: ignore[misc]
        machine = detection("$A(x); B(x)")
        signals = 0
        for at in range(0, OPEN, APPEND):
            machine.arrive(opened("A", at))
        for at in range(0, OPEN, APPEND):
            signals += len(machine.arrive(opened("B", at, OPEN)))
        signals += len(machine.arrive(Moment((), {STREAM: _opened_at(2 * OPEN)})))
        if signals != OPEN:
            raise RuntimeError(f"{signals} of {OPEN} came to an end")


def opened(name: str, first: int, after: int = 0) -> Moment:
    """Events of one type with values of their own."""
    some = tuple(
        Occurrence(_opened_at(after + x), (f"bench.{name}",), {"x": x}, STATE, STREAM, after + x + 1)
        for x in range(first, first + APPEND)
    )
    return Moment(some, {STREAM: some[-1].time}, some[-1].time)


def _opened_at(place: int) -> datetime:
    """The time of an event by its place: a million in three hours."""
    return EPOCH + timedelta(hours=HOURS) * (place + 1) / OPEN


@contextmanager
def uncollected() -> Iterator[None]:
    """As detections run: beads go when nothing refers to them."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def detection(expression: str) -> Machine:
    composite = resolve(parse_composite(expression), STATE).composite
    return Machine(composite, EPOCH, (), Horizons({STREAM: SourceFacts()}))


def event(name: str, x: int, milliseconds: int) -> Occurrence:
    return Occurrence(moment(1_000 * milliseconds), (f"bench.{name}",), {"x": x}, STATE, STREAM, milliseconds)


def _state() -> State:
    catalog = Catalog()
    for name in ("A", "B", "C"):
        catalog = catalog.declare(EventType(f"bench.{name}", "owner", {"x": Kind.INT}))
    return State(version=1, administrator="administrator", types=catalog)


STATE = _state()

# -- the figure ---------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 300, 60, 40, 30, 15
FONT = 'font-family="sans-serif" font-size="12"'


def drawn(sizes: list[int]) -> str:
    """The size of the state by events, from zero."""
    top = max(sizes) * 1.25

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at

    def y(size: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * size / top

    middle = 'text-anchor="middle"'
    line = " ".join(f"{x((n + 1) / len(sizes)):.1f},{y(size):.1f}" for n, size in enumerate(sizes))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18">state of $A(x); B(x) - C(x), kB, by events</text>',
        f'<path d="M{x(0)},{y(top)}V{y(0)}H{x(1)}" fill="none" stroke="#888"/>',
        *(
            f'<text x="{LEFT - 6}" y="{y(share * top) + 4:.1f}" text-anchor="end">{share * top / 1000:.0f}</text>'
            for share in (0, 0.25, 0.5, 0.75)
        ),
        *(
            f'<text x="{x(share):.1f}" y="{HEIGHT - BOTTOM + 18}" {middle}>{share * EVENTS / 1e6:g} M</text>'
            for share in (0, 0.25, 0.5, 0.75, 1)
        ),
        f'<polyline points="{line}" fill="none" stroke="#1f6fb2" stroke-width="2"/>',
    ]
    return "\n".join([*parts, "</svg>", ""])
