"""One revocation that takes down 100,000 credential records, beside a plain walk over dictionaries of the same graph.

The walk visits every record that is reached, once, and does nothing there. A revocation is timed until every state is
what it should be, and then until it is told what changed: by revoking the record at the root, and by setting the fact
that it stands for to false. Each round starts from the same table, by going back to a mark, which is not timed.

Then the same in a ledger on disk: as many principals hold a role each that rests on one membership, which ends.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.progress import track

from benchmarks.measure import console, report, report_ratio, seconds
from headgate.lang.rolefile import parse_rolefile
from headgate.ledger import Ledger
from headgate.model.changes import (
    Batch,
    DeclarePrincipal,
    ElectRole,
    EndCredential,
    EnterRole,
    GrantRole,
    SetRolefile,
)
from headgate.model.roles import Link, Op, Reference, place_of
from headgate.model.state import ADMINISTRATOR
from headgate.model.values import EPOCH
from headgate.roles.records.records import Records

RECORDS = 100_000
PORTION = 1_000
"""Roles that are entered in one batch."""
MOST = 5.0
ROUNDS = 11
WARM = 2
WIDTH = 1_000
"""Records of one layer."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A table in which all rests on one record."""

    records: Records
    root: Reference


def run() -> None:
    console.print(f"[bold]cascade[/]: one revocation, {RECORDS:,} records fall")
    shapes: dict[str, Callable[[], Shape]] = {"star": star, "chain": chain, "tree": tree, "layers": layers}
    worst = max(measured(name, make()) for name, make in shapes.items())
    report("cascade, worst shape, over a dictionary walk", worst, MOST, "lower")
    in_a_ledger()


def in_a_ledger() -> None:
    """One membership ends, and with it all that rest on it, in one version of a ledger."""
    rolefile = parse_rolefile("Leaf <- <|* Root.In*")
    with tempfile.TemporaryDirectory() as directory, Ledger.create(Path(directory) / "ledger.db") as ledger:
        people = [f"p{number}" for number in range(RECORDS)]
        ledger.commit(Batch(ADMINISTRATOR, (DeclarePrincipal("root"), *map(DeclarePrincipal, people))))
        asked = [
            SetRolefile("S", rolefile),
            GrantRole("in", "Root", "In", (), "root"),
            ElectRole("e", "S", "Leaf", None, "root", ("in",), EPOCH),
        ]
        for one in asked:
            ledger.commit(Batch(ADMINISTRATOR, (one,)))
        for at in track(range(0, RECORDS, PORTION), description="entering", console=console):
            entering = [
                EnterRole(f"m {who}", "S", "Leaf", None, who, ("e",), EPOCH) for who in people[at : at + PORTION]
            ]
            ledger.commit(Batch(ADMINISTRATOR, tuple(entering)))
        before = ledger.version
        took = seconds(lambda: ledger.commit(Batch(ADMINISTRATOR, (EndCredential("in"),))))
        assert not ledger.state().roles.memberships
        report("cascade in a ledger, seconds", took, None, "lower")
        report("cascade in a ledger, microseconds a membership", took / RECORDS * 1e6, None, "lower")
        report("cascade in a ledger, versions", ledger.version - before, 1, "lower")


def measured(name: str, shape: Shape) -> float:
    """The higher ratio of the two ways in which a record falls."""
    graph = plain(shape)
    start = place_of(shape.root)
    records, root = shape.records, shape.root
    works: dict[str, Callable[[], object]] = {
        "revoked": lambda: records.revoke(root),
        "fact": lambda: records.set(root, False),
        "unknown": lambda: records.set(root, None),
    }
    times: dict[str, list[float]] = {one: [] for one in ("walk", *works, *(f"{one}, told" for one in works))}
    for round in range(ROUNDS + WARM):
        found = {"walk": seconds(lambda: walk(graph, start))}
        for way, work in works.items():
            records.mark()
            found[way] = seconds(work)
            found[f"{way}, told"] = found[way] + seconds(lambda: tell(records))
            records.rollback()
        if round >= WARM:
            for way, one in found.items():
                times[way].append(one)
    base = times["walk"]
    report_ratio(f"cascade, {name}, over a dictionary walk", times["revoked"], base, MOST, "lower")
    report_ratio(f"cascade, {name}, a fact turns false, over the walk", times["fact"], base, MOST, "lower")
    report_ratio(f"cascade, {name}, and told what changed, over the walk", times["revoked, told"], base, None, "lower")
    report_ratio(f"cascade, {name}, all unknown, over the walk", times["unknown"], base, None, "lower")
    report(f"cascade, {name}, nanoseconds a record", min(times["revoked"]) / RECORDS * 1e9, None, "lower")
    return max(statistics.median(times[way]) for way in ("revoked", "fact")) / statistics.median(base)


def walk(graph: dict[int, list[int]], start: int) -> None:
    seen = {start}
    queue = [start]
    for at in queue:
        for child in graph[at]:
            if child not in seen:
                seen.add(child)
                queue.append(child)
    assert len(seen) == RECORDS + 1


def tell(records: Records) -> None:
    assert len(records.take().changed) == RECORDS + 1


def plain(shape: Shape) -> dict[int, list[int]]:
    """The same graph by places, which are small numbers: the walk gets them at their fastest."""
    graph: dict[int, list[int]] = {place_of(one.ref): [] for one in shape.records.records()}
    for one in shape.records.records():
        for link in one.parents:
            graph[place_of(link.parent)].append(place_of(one.ref))
    return graph


# -- shapes -------------------------------------------------------------------------------------------------------


def star() -> Shape:
    records, root = planted()
    for _ in range(RECORDS):
        member(records, root)
    return settled(records, root)


def chain() -> Shape:
    records, root = planted()
    last = root
    for _ in range(RECORDS):
        last = member(records, last)
    return settled(records, root)


def tree() -> Shape:
    """Ten children each."""
    records, root = planted()
    made = [root]
    for at in range(RECORDS):
        made.append(member(records, made[at // 10]))
    return settled(records, root)


def layers() -> Shape:
    """Each rests on two of the layer above."""
    records, root = planted()
    above = [member(records, root) for _ in range(WIDTH)]
    for _ in range(RECORDS // WIDTH - 1):
        above = [member(records, above[at], above[(at * 7 + 1) % WIDTH]) for at in range(WIDTH)]
    return settled(records, root)


def planted() -> tuple[Records, Reference]:
    records = Records()
    return records, records.leaf()


def member(records: Records, *parents: Reference) -> Reference:
    """A membership: its record is latched, and in use."""
    made = records.combine(Op.AND, [Link(parent) for parent in parents], latch=True)
    records.hold(made)
    return made


def settled(records: Records, root: Reference) -> Shape:
    records.sweep()
    records.take()
    return Shape(records, root)
