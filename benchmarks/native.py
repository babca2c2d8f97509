"""The same work as Spark's own joins do it: subscriptions as rows, matched by a nested loop or by a broadcast hash.

The same filters, types, versions, null masks, rights and masks as the matcher; the events are in memory as columns, so
the joins are spared reading the log, and they do not group deliveries by event and view.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.workload import ATTRIBUTES, PRICES, World
from headgate.model.rights import Action

EVENTS = 20_000
LAST = 2**62


def works(session: Any, world: World) -> dict[str, Callable[[], None]]:
    """The work by nested loop, and by broadcast hash join, over `EVENTS` events."""
    events, subscriptions, profiles = _events(session, world), _subscriptions(session, world), _profiles(session, world)
    same_type = (events.type >= subscriptions.of) & (events.type <= subscriptions.of)  # no equality to hash on
    same_issue = (events.issue >= subscriptions.wanted) & (events.issue <= subscriptions.wanted)
    rest = (
        (events.version >= subscriptions.opened)
        & (events.version < subscriptions.closed)
        & (events.nulls.bitwiseAND(subscriptions.need) == 0)
        & (events.price >= subscriptions.low)
        & (events.price <= subscriptions.high)
    )
    small = F.broadcast(subscriptions)
    loop = events.join(small, same_type & same_issue & rest)
    hashed = events.join(small, (events.type == subscriptions.of) & (events.issue == subscriptions.wanted) & rest)
    joins = {"loop": _controlled(loop, profiles), "hash": _controlled(hashed, profiles)}
    return {name: partial(_run, join) for name, join in joins.items()}


def _run(join: Any) -> None:
    join.write.format("noop").mode("overwrite").save()


def _controlled(join: Any, profiles: Any) -> Any:
    """The rights of each subscription's profile: its condition, and its mask over the attributes."""
    seen = join.join(F.broadcast(profiles), "profile").where(
        (F.col("count") >= F.col("least")) & (F.col("volume") < F.col("most"))
    )
    need_seen = (F.col("need").bitwiseAND(F.bitwise_not("view"))) == 0
    masked = [
        F.when(F.col("view").bitwiseAND(F.lit(1 << bit)) != 0, F.col(name)).alias(name)
        for bit, name in enumerate(ATTRIBUTES)
    ]
    return seen.where(need_seen).select("seq", "sub", *masked)


def _frame(session: Any, table: pa.Table) -> Any:
    frame = session.createDataFrame(table).repartition(2).cache()
    frame.count()
    return frame


def _events(session: Any, world: World) -> Any:
    rng = np.random.default_rng(5)
    n = EVENTS
    columns: dict[str, Any] = {
        "issue": pa.array([f"issue{v}" for v in rng.integers(0, world.values, n)]),
        "price": rng.integers(0, PRICES, n),
        "volume": rng.integers(0, 1_000_000, n),
        "venue": pa.repeat("XLON", n),
        "at": np.arange(n) * 1000,
        "bid": rng.random(n),
        "ask": rng.random(n),
        "open": rng.integers(0, 2, n),
        "currency": pa.repeat("GBP", n),
        "note": pa.nulls(n, pa.string()),
        "count": rng.integers(4, 100, n),
        "weight": rng.random(n),
    }
    nulls = 1 << list(ATTRIBUTES).index("note")
    stamped = {
        "seq": np.arange(n),
        "type": np.zeros(n, np.int64),
        "version": np.full(n, world.version),
        "nulls": np.full(n, nulls),
    }
    return _frame(session, pa.table({**stamped, **columns}))


def _subscriptions(session: Any, world: World) -> Any:
    opened = world.subscriptions(0, world.version).opened
    wheres: list[Any] = [s.where for s in opened]
    return _frame(
        session,
        pa.table(
            {
                "sub": [s.id for s in opened],
                "of": np.zeros(len(opened), np.int64),
                "wanted": [w.args[0].right.value for w in wheres],
                "low": [w.args[1].low.value for w in wheres],
                "high": [w.args[1].high.value for w in wheres],
                "need": np.full(len(opened), 0b11),
                "opened": [s.first for s in opened],
                "closed": np.full(len(opened), LAST),
                "profile": [int(s.principal[1:]) % world.roles for s in opened],
            }
        ),
    )


def _profiles(session: Any, world: World) -> Any:
    rules = [r for r in world.state(1).rules if Action.SUBSCRIBE in r.actions]
    bits = {name: 1 << bit for bit, name in enumerate(ATTRIBUTES)}
    return _frame(
        session,
        pa.table(
            {
                "profile": np.arange(len(rules)),
                "least": [r % 5 for r in range(len(rules))],
                "most": [1_000_000 + r for r in range(len(rules))],
                "view": [sum(bits[a] for a in r.attributes or ()) for r in rules],
            }
        ),
    )
