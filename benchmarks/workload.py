"""The made-up world that is measured: one or many event types, equality-plus-range filters, rights with masks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.lang import parse_condition
from headgate.model.expressions import Attribute, Compare, Constant, InRange, all_of
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import Catalog, EventType
from headgate.model.values import Kind
from headgate.pipeline.log.codec import places, to_blob

ATTRIBUTES = {
    "issue": Kind.STRING,
    "price": Kind.INT,
    "volume": Kind.INT,
    "venue": Kind.STRING,
    "at": Kind.TIMESTAMP,
    "bid": Kind.FLOAT,
    "ask": Kind.FLOAT,
    "open": Kind.BOOL,
    "currency": Kind.STRING,
    "note": Kind.STRING,
    "count": Kind.INT,
    "weight": Kind.FLOAT,
}
PRICES = 10_000
VIEWS = 5
"""Roles differ in what they may see in so many ways."""
CANDIDATES = 20
"""Subscriptions that share an equality value; half of them take in a given price."""


def type_name(number: int) -> str:
    return f"bench.T{number:03}"


@dataclass
class Changes:
    opened: list[Subscription]
    closed: list[Any] = field(default_factory=list)


@dataclass
class World:
    """A ledger made up in memory, with as many subscriptions, types and roles as asked for."""

    subscriptions_wanted: int
    types: int = 1
    roles: int = 100
    seed: int = 7
    version: int = 2

    def __post_init__(self) -> None:
        catalog = Catalog()
        for number in range(self.types):
            catalog = catalog.declare(EventType(type_name(number), "owner", ATTRIBUTES))
        self.values = max(1, self.subscriptions_wanted // CANDIDATES // self.types)
        some = [n for n in ATTRIBUTES if n != "note"]
        rules = [
            Rule("publish", "owner", frozenset({Action.PUBLISH}), "bench.*", author=ADMINISTRATOR),
            *(
                Rule(
                    f"role{r}",
                    f"role{r}",
                    frozenset({Action.SUBSCRIBE}),
                    "bench.*",
                    parse_condition(f"count >= {r % 5} and volume < {1_000_000 + r}"),
                    tuple(n for at, n in enumerate(some) if at % VIEWS != r % VIEWS or n in ("issue", "price")),
                    author=ADMINISTRATOR,
                )
                for r in range(self.roles)
            ),
        ]
        members = {f"role{r}": frozenset(f"p{p}" for p in range(r, 1000, self.roles)) for r in range(self.roles)}
        principals = {"owner": {}, **{f"p{p}": {} for p in range(1000)}}
        self._state = State(self.version, ADMINISTRATOR, catalog, tuple(rules), principals, members)

    def state(self, version: int, *, subscriptions: bool = True) -> State:  # noqa: ARG002
        return self._state if version else State()

    def policy_versions(self, after: int, through: int) -> list[int]:
        return [v for v in (1,) if after < v <= through]

    def subscriptions(self, after: int, through: int) -> Changes:
        return Changes(list(self._subscriptions()) if after < self.version <= through else [])

    def _subscriptions(self) -> Iterator[Subscription]:
        rng = random.Random(self.seed)
        for n in range(self.subscriptions_wanted):
            low = rng.randrange(PRICES // 2)
            where = all_of(
                Compare("=", Attribute("issue"), Constant(f"issue{n // self.types % self.values}")),
                InRange(Attribute("price"), Constant(low), Constant(low + PRICES // 2)),
            )
            yield Subscription(f"s{n}", f"p{n % 1000}", type_name(n % self.types), where, False, self.version)

    def appends(self, events: int, size: int = 1000, *, seed: int = 11) -> Iterator[bytes]:
        """Events as appends of `size`, types in turn."""
        rng = np.random.default_rng(seed)
        # Every type has the same attributes, and so the same places.
        columns = {name: place.slot.column for name, place in places(self._state.types, type_name(0)).items()}
        for start in range(0, events, size):
            n = min(size, events - start)
            number = np.arange(start, start + n)
            names = [type_name(t) for t in range(self.types)]
            issues = pa.array([f"issue{v}" for v in range(self.values)])
            values = {
                "issue": issues.take(pa.array(rng.integers(0, self.values, n))),
                "price": rng.integers(0, PRICES, n),
                "volume": rng.integers(0, 1_000_000, n),
                "venue": pa.repeat("XLON", n),
                "at": number * 1000,
                "bid": rng.random(n),
                "ask": rng.random(n),
                "open": rng.integers(0, 2, n),
                "currency": pa.repeat("GBP", n),
                "note": pa.nulls(n, pa.string()),
                "count": rng.integers(4, 100, n),
                "weight": rng.random(n),
            }
            yield to_blob(
                pa.table(
                    {
                        "id": pa.array(number).cast(pa.string()),
                        "type": pa.array(names).take(pa.array(number % self.types)),
                        "publisher": pa.repeat("owner", n),
                        "source": pa.repeat("", n),
                        **{columns[name]: column for name, column in values.items()},
                    }
                )
            )
