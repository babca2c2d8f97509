"""Housekeeping over real files: what goes, what stays, and who is told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from headgate.commands.publishing.local import LocalPublisher
from headgate.lang.composite import parse_composite
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType, Subscribe
from headgate.model.events import Draft
from headgate.model.rights import Action, Detection, Rule, Subscription
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import SIGNAL, EventType
from headgate.model.values import Kind, micros
from headgate.node.config import Config, RetentionSettings
from headgate.node.cursors import Ack, Cursors, Reservation
from headgate.node.domain import Domain
from headgate.node.health import read_chores
from headgate.node.pipeline_process import Housekeeper, limits_of
from headgate.pipeline.deliveries import BatchStats, DeliveryBlob, pack
from strategies.deciding import write_signals

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAY = 86_400.0


class World:
    """A domain whose clock the test sets, with deliveries as the pipeline would have written them."""

    def __init__(self, directory: Path, retention: RetentionSettings) -> None:
        self.now = BEGIN
        self.domain = Domain.create(directory, clock=lambda: self.now)
        self.cursors = Cursors(directory / Cursors.FILE)
        self.keeper = Housekeeper(
            Domain.open(directory, clock=lambda: self.now),
            Cursors(directory / Cursors.FILE),
            limits_of(Config(retention=retention)),
            lambda: self.now,
        )
        self.batch = 0
        self.domain.commit(
            Batch(
                ADMINISTRATOR,
                (
                    DeclarePrincipal("till"),
                    DeclarePrincipal("ann"),
                    DeclareType(EventType("Sale", ADMINISTRATOR, {"amount": Kind.INT})),
                    AddRule(Rule("p", "till", frozenset({Action.PUBLISH}), "Sale")),
                    AddRule(Rule("s", "ann", frozenset({Action.SUBSCRIBE}), "Sale")),
                ),
            )
        )

    def subscribe(self, name: str) -> int:
        return self.domain.commit(Batch("ann", (Subscribe(Subscription(name, "ann", "Sale")),)))

    def sell(self, count: int) -> None:
        """Events, decided and delivered at once."""
        before = self.domain.log.tails()["main"].last if self.domain.log.tails() else 0
        drafts = [Draft(f"e{before + n}", "till", "Sale", {"amount": n}) for n in range(count)]
        LocalPublisher(self.domain, advertise=False).publish_all(drafts, now=self.now)
        self.batch += 1
        version = self.domain.ledger.version
        blob = DeliveryBlob(
            "main", before + 1, before + count, version, 0, count, b"x" * 100, pack(np.array([0], np.int32))
        )
        stats = BatchStats(self.batch, micros(self.now), count, count, 1, version)
        self.domain.store.write(self.batch, version, [blob], stats=stats)

    def trimmed(self) -> tuple[int, int]:
        return self.domain.log.trimmed().get("main", 0), self.domain.store.trimmed().get("main", 0)

    def close(self) -> None:
        self.keeper.close()
        self.cursors.close()
        self.domain.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "data", RetentionSettings(log_age=7 * DAY, deliveries_age=7 * DAY, hold=30 * DAY))
    yield made
    made.close()


def test_old_data_goes_and_new_data_stays(world: World) -> None:
    world.sell(10)
    world.now += timedelta(days=5)
    world.sell(10)
    assert world.keeper.round().trimmed_bytes == 0
    world.now += timedelta(days=3)
    done = world.keeper.round()
    assert world.trimmed() == (10, 10)
    assert done.trimmed_bytes > 0
    assert done.lost_events == 0
    assert read_chores(world.domain.paths.directory) == done


def test_what_a_reader_has_not_seen_is_kept(world: World) -> None:
    version = world.subscribe("ann:all")
    world.sell(10)
    world.sell(10)
    world.cursors.ack_many([Ack("ann:all", version, {"main": 10})], world.now)
    world.now += timedelta(days=8)
    done = world.keeper.round()
    assert world.trimmed() == (20, 10), "the log is not needed for reading on; the deliveries are"
    assert done.holders == 1
    assert done.lost_events == 0


def test_an_absent_reader_is_waited_for_and_then_told_of(world: World, caplog: pytest.LogCaptureFixture) -> None:
    version = world.subscribe("ann:all")
    world.sell(10)
    world.cursors.ack_many([Ack("ann:all", version, {"main": 4})], world.now)
    world.now += timedelta(days=29)
    assert world.keeper.round().lost_events == 0
    world.now += timedelta(days=2)
    with caplog.at_level(logging.ERROR, "headgate"):
        done = world.keeper.round()
    assert world.trimmed()[1] == 10
    assert done.lost_events == 6
    (record,) = [one for one in caplog.records if one.msg == "removed-unread"]
    assert record.fields["holder"] == "ann:all"  # type: ignore[attr-defined]
    assert record.fields["events"] == 6  # type: ignore[attr-defined]
    assert world.keeper.round().lost_events == 6, "it is told once"


def test_what_is_not_decided_is_never_removed(world: World) -> None:
    world.sell(5)
    LocalPublisher(world.domain, advertise=False).publish(Draft("late", "till", "Sale", {"amount": 1}), now=world.now)
    world.now += timedelta(days=400)
    world.keeper.round()
    assert world.trimmed() == (5, 5)
    assert world.domain.log.tails()["main"].last == 6


@pytest.mark.parametrize("detects", [False, True])
def test_what_history_is_asked_for_and_was_not_given_yet_stays(world: World, detects: bool) -> None:
    world.sell(10)
    write_signals(world.domain)  # all of it was put to detections that there were
    world.cursors.reserve(
        Reservation("ann", "r", "Sale", None, {}, world.now, world.now + timedelta(days=1)), world.now
    )
    if detects:
        detection = Detection("$Sale(x)", parse_composite("$Sale(x)"), {}, world.now)
        wanted = Subscription("d", "ann", SIGNAL, history=True, detection=detection)
    else:
        wanted = Subscription("d", "ann", "Sale", history=True)
    world.domain.commit(Batch("ann", (Subscribe(wanted),)))
    world.now += timedelta(days=8)  # the reservation has expired before the query has come to it
    world.keeper.round()
    assert world.trimmed()[0] == 0
    world.sell(1)
    write_signals(world.domain)
    world.keeper.round()
    assert world.trimmed()[0] == 10


def test_temporary_subscriptions_end_when_their_reader_is_gone(world: World) -> None:
    kept, lost = world.subscribe("ann:durable"), world.subscribe("ann:short")
    world.cursors.touch([("ann:durable", kept)], world.now)
    world.cursors.mark_temporary("ann:short", lost, "gateway-1", world.now)
    assert world.keeper.round().temporary_closed == 0
    world.now += timedelta(hours=1)
    assert world.keeper.round().temporary_closed == 1
    assert set(world.domain.ledger.state().subscriptions) == {"ann:durable"}
    assert world.keeper.round().temporary_closed == 1
    assert world.cursors.temporary() == []


def test_a_new_subscription_under_an_old_name_is_left_alone(world: World) -> None:
    world.subscribe("ann:short")
    world.cursors.mark_temporary("ann:short", 1, "gateway-1", world.now)  # of an earlier one with this name
    world.now += timedelta(hours=1)
    assert world.keeper.round().temporary_closed == 0
    assert set(world.domain.ledger.state().subscriptions) == {"ann:short"}


def test_a_round_that_fails_is_counted_and_the_next_one_comes(world: World) -> None:
    world.sell(1)
    broken = Housekeeper(world.domain, world.cursors, limits_of(Config()), lambda: world.now)
    world.domain.store._db.execute("ALTER TABLE deliveries RENAME TO away")
    stop = threading.Event()
    thread = threading.Thread(target=broken.run, args=(stop, 0.01))
    thread.start()
    while broken.chores.failures < 2:
        stop.wait(0.01)
    other = Domain.open(world.domain.paths.directory)
    other.store._db.execute("ALTER TABLE away RENAME TO deliveries")
    other.close()
    while broken.chores.rounds < 1:
        stop.wait(0.01)
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
