"""What changed of an index makes the next one of it, exactly, and is small where little changed."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.lang import parse_condition
from headgate.model.changes import (
    AddMember,
    AddRule,
    Batch,
    DeclareGroup,
    DeclarePrincipal,
    DeclareType,
    RemoveRule,
    Subscribe,
    Unsubscribe,
)
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.pipeline.index.build import FAR_SMALLER, IndexBuilder
from headgate.pipeline.index.delta import IndexMark, difference
from headgate.pipeline.index.index import PolicyIndex
from headgate.pipeline.spark import sharing
from headgate.pipeline.spark.sharing import MOST_CHANGES, IndexSharing, SharedIndex
from strategies.memory import MemoryLedger, play
from strategies.running import examples
from strategies.shipped import Travelling, unlike
from strategies.worlds import Story, worlds

SEES = frozenset({Action.SUBSCRIBE})


@examples(60)
@given(worlds(roles=True), st.data())
def test_a_copy_that_is_told_what_changed_is_the_index(story: Story, data: st.DataObject) -> None:
    ledger = play(story).ledger
    builder, copy = IndexBuilder(ledger), Travelling()
    since = 0
    for version in range(1, ledger.version + 1):
        if data.draw(st.booleans()) or version == ledger.version:
            since = data.draw(st.integers(since, version))
            index = builder.index(since, version)
            assert unlike(copy.sent(index), index) == ""


def ruled(who: str, bound: int) -> AddRule:
    return AddRule(Rule(f"of {who}", who, SEES, "shop.Sale", parse_condition(f"amount > {bound}")))


def market(subscriptions: int, principals: int = 20) -> MemoryLedger:
    """Subscriptions to one type, of principals in groups with a rule each."""
    ledger = MemoryLedger()
    admin = ledger.now.administrator
    groups = [f"g{n}" for n in range(5)]
    people = [f"p{n}" for n in range(principals)]
    ledger.commit(
        Batch(
            admin,
            (
                DeclareType(EventType("shop.Sale", admin, {"item": Kind.STRING, "amount": Kind.INT})),
                *map(DeclarePrincipal, people),
                *map(DeclareGroup, groups),
                *(AddMember(groups[n % 5], who) for n, who in enumerate(people)),
                *(ruled(group, 0) for group in groups),
            ),
        )
    )
    for n, who in enumerate(people):
        wanted = (subscription(who, m) for m in range(n, subscriptions, principals))
        ledger.commit(Batch(who, tuple(map(Subscribe, wanted))))
    return ledger


def subscription(who: str, number: int) -> Subscription:
    where = parse_condition(f"item = 'i{number % 100}' and amount > {number}")
    return Subscription(f"{who}:{number}", who, "shop.Sale", where)


def change_rule(ledger: MemoryLedger, bound: int) -> None:
    ledger.commit(Batch(ledger.now.administrator, (RemoveRule("of g1"), ruled("g1", bound))))


def size(thing: Any) -> int:
    return len(pickle.dumps(thing, protocol=5))


def test_a_changed_rule_costs_little_and_no_more_among_more_subscriptions() -> None:
    costs = []
    for subscriptions in (1_500, 6_000):
        ledger = market(subscriptions)
        builder, copy = IndexBuilder(ledger), Travelling()
        index = builder.index(ledger.version, ledger.version)
        copy.sent(index)
        first = size(index)
        for bound in (1, 2, 3):
            change_rule(ledger, bound)
            index = builder.index(ledger.version - 1, ledger.version)
            assert unlike(copy.sent(index), index) == ""
        costs.append((size(copy.change), first))
    (few, _), (many, first) = costs
    assert many < few * 1.1
    assert many * 100 <= first


def test_a_subscription_costs_little_whatever_there_is_and_few_segments_remain() -> None:
    ledger = market(3_000)
    builder, copy = IndexBuilder(ledger), Travelling()
    copy.sent(builder.index(ledger.version, ledger.version))
    first, total = size(builder.index(ledger.version, ledger.version)), 0
    for number in range(100):
        who = f"p{number % 20}"
        ledger.commit(Batch(who, (Subscribe(subscription(who, 10_000 + number)),)))
        if number % 3 == 0:
            ledger.commit(Batch(who, (Unsubscribe(f"{who}:{10_000 + number}"),)))
        index = builder.index(ledger.version, ledger.version)
        assert unlike(copy.sent(index), index) == ""
        total += size(copy.change)
    assert total < 2 * first  # of a hundred changes
    sizes = [sum(map(len, segment)) for segment in builder.segments]
    assert all(a >= FAR_SMALLER * b for a, b in pairwise(sizes))


def test_a_builder_that_began_anew_sends_everything() -> None:
    ledger = market(10)
    builder = IndexBuilder(ledger)
    mark = IndexMark.of(builder.index(0, ledger.version))
    wide = {f"a{n}": Kind.INT for n in range(70)}  # more attributes than fit in one word
    ledger.commit(Batch(ledger.now.administrator, (DeclareType(EventType("shop.Wide", "administrator", wide)),)))
    index = builder.index(0, ledger.version)
    change = difference(mark, index)
    assert getattr(change, "value", None) is index


# -- between driver and workers ---------------------------------------------------------------------------------


@dataclass
class Sent:
    """A broadcast, which every worker reads for itself."""

    blob: bytes
    _path: str
    gone: bool = False
    read: dict[int, Any] = field(default_factory=dict)
    worker: list[int] = field(default_factory=list)

    @property
    def value(self) -> Any:
        assert not self.gone
        if self.worker[0] not in self.read:
            self.read[self.worker[0]] = pickle.loads(self.blob)
        return self.read[self.worker[0]]

    def destroy(self) -> None:
        self.gone = True

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


class Cluster:
    """A session, and workers that are asked in turn."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.monkeypatch = directory, monkeypatch
        self.sent: list[Sent] = []
        self.worker = [0]
        self.held: dict[int, list[Any]] = {}
        self.sparkContext = SimpleNamespace(broadcast=self.broadcast)

    def broadcast(self, value: Any) -> Sent:
        path = self.directory / str(len(self.sent))
        path.write_bytes(blob := pickle.dumps(value, protocol=5))
        self.sent.append(Sent(blob, str(path), worker=self.worker))
        return self.sent[-1]

    def at(self, worker: int, shared: SharedIndex) -> PolicyIndex:
        self.worker[0] = worker
        self.monkeypatch.setattr(sharing, "_held", self.held.setdefault(worker, []))
        return shared.value


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


def test_every_worker_has_the_index_whenever_it_began(cluster: Cluster) -> None:
    ledger = market(1_000)
    builder, shares = IndexBuilder(ledger), IndexSharing(cluster)
    first = 0
    for number in range(2 * MOST_CHANGES + 5):
        index = builder.index(ledger.version - 1, ledger.version)
        shared = shares.share(index)
        assert shares.share(index) is shared
        first = first or shares.shipped
        assert number == 0 or shares.shipped * 10 < first
        # One is always there, others join late, miss some, or come back.
        for worker in {0, number // 7, number % 5 if number > 10 else 0}:
            held = cluster.at(worker, shared)
            assert unlike(held, index) == ""
            assert cluster.at(worker, shared) is held
        if number % 2:
            who = f"p{number % 20}"
            ledger.commit(Batch(who, (Subscribe(subscription(who, 50_000 + number)),)))
        else:
            change_rule(ledger, number)
    kept = [one for one in cluster.sent if not one.gone]
    assert len(kept) <= MOST_CHANGES + 1
    assert {id(one) for one in kept} == {id(one) for one in (shared.whole, *shared.changes)}


def test_an_index_that_is_mostly_new_is_sent_whole(cluster: Cluster) -> None:
    ledger = market(100)
    builder, shares = IndexBuilder(ledger), IndexSharing(cluster)
    before = shares.share(builder.index(ledger.version, ledger.version))
    more = tuple(Subscribe(subscription("p1", 10_000 + n)) for n in range(500))
    ledger.commit(Batch("p1", more))
    index = builder.index(ledger.version, ledger.version)
    shared = shares.share(index)
    assert shared.whole is not before.whole
    assert before.whole.gone
    assert unlike(cluster.at(0, shared), index) == ""
