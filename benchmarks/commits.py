"""One more subscription in a ledger of 100,000, beside one more in a ledger of 100: a commit costs what it changes.

Both are whole commits, durable on disk, in turn. Beside it, the same without the disk: what the batch makes of the
state, and the rows that follow.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.measure import console, report_ratio, seconds
from headgate.decide.apply import apply
from headgate.ledger import Ledger
from headgate.ledger.load import Delta, Ranks, delta
from headgate.model.changes import Batch, DeclarePrincipal, DeclareType, Subscribe
from headgate.model.rights import Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind

FEW, MANY = 100, 100_000
ROUNDS = 400
"""More than the commits after which changes are written out, so that this is in the figures."""
MOST = 2.0


def run() -> None:
    console.print(f"[bold]commits[/]: one more subscription, of {MANY:,} and of {FEW:,}")
    whole: dict[int, list[float]] = {FEW: [], MANY: []}
    pure: dict[int, list[float]] = {FEW: [], MANY: []}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as closing:
        ledgers = {count: closing.enter_context(furnished(Path(folder), count)) for count in whole}
        for number in range(ROUNDS):
            batch = Batch(ADMINISTRATOR, (subscribe(f"more {number}"),))
            for count, ledger in ledgers.items():
                pure[count].append(seconds(partial(worked_out, ledger.state(), batch)))
                whole[count].append(seconds(partial(ledger.commit, batch)))
    report_ratio("commit, 100,000 subscriptions over 100", whole[MANY], whole[FEW], MOST, "lower")
    report_ratio("commit without the disk, 100,000 subscriptions over 100", pure[MANY], pure[FEW], None, "lower")


def worked_out(state: State, batch: Batch) -> Delta:
    """What a batch makes of a state, as rows."""
    return delta(state, apply(state, batch), batch, Ranks)


def furnished(folder: Path, count: int) -> Ledger:
    """A ledger with so many subscriptions."""
    ledger = Ledger.create(folder / f"{count}.db")
    kind = EventType("news.Story", ADMINISTRATOR, {"title": Kind.STRING})
    ledger.commit(Batch(ADMINISTRATOR, (DeclareType(kind), DeclarePrincipal("bob"))))
    ledger.commit(Batch(ADMINISTRATOR, tuple(subscribe(f"s{number}") for number in range(count))))
    return ledger


def subscribe(id: str) -> Subscribe:
    return Subscribe(Subscription(id, "bob", "news.Story"))
