"""`headgate verify` finds and names whatever is not as it should be; a replay gives the identical deliveries."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from headgate.cli.policy import verify as command
from headgate.cli.shared.common import shows_errors
from headgate.commands.delivery.local import read_deliveries
from headgate.commands.publishing.local import LocalPublisher
from headgate.lang import parse_condition
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType, RemoveRule, Subscribe
from headgate.model.errors import BadDefinition, Damaged
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.types import EventType
from headgate.model.values import Kind as ValueKind
from headgate.node.domain import Domain
from headgate.pipeline.deliveries import DeliveryStore, pack
from headgate.pipeline.log.codec import from_blob, to_blob
from headgate.pipeline.spark.verify import DifferenceKind, Report, replay, verify

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SEES, SENDS = frozenset({Action.SUBSCRIBE}), frozenset({Action.PUBLISH})
WHO = "administrator"


def send(domain: Domain, first: int, count: int, stream: str = "main") -> None:
    """One append of so many events."""
    drafts = [
        Draft(f"{stream}{n}", "shop", "shop.Sale", {"item": "hat" if n % 2 else "cap", "price": n * 1.5})
        for n in range(first, first + count)
    ]
    answers = LocalPublisher(domain, advertise=False).publish_all(drafts, stream=stream, now=NOON)
    assert all(answer.refusal is None for answer in answers)


@pytest.fixture(scope="module")
def run(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A domain whose pipeline has decided two streams, several versions, and a subscription to history."""
    directory = tmp_path_factory.mktemp("verify") / "domain"
    with Domain.create(directory) as domain:
        sale = EventType("shop.Sale", "shop", {"item": ValueKind.STRING, "price": ValueKind.FLOAT})
        domain.commit(
            Batch(
                WHO,
                (
                    *(DeclarePrincipal(name) for name in ("shop", "ann", "bob")),
                    DeclareType(sale),
                    AddRule(Rule("sends", "shop", SENDS, "shop.Sale")),
                    AddRule(Rule("all", "ann", SEES, "shop.Sale")),
                    AddRule(Rule("items", "bob", SEES, "shop.Sale", attributes=("item",))),
                ),
            )
        )
        wanted = (
            Subscription("a", "ann", "shop.Sale", parse_condition("price > 2")),
            Subscription("b", "bob", "shop.Sale", parse_condition("item = 'hat'")),
        )
        domain.commit(Batch(WHO, tuple(Subscribe(one) for one in wanted)))
        send(domain, 1, 3)
        send(domain, 1, 2, "other")
        pipeline = domain.pipeline(spark)
        pipeline.catch_up()
        domain.commit(Batch(WHO, (RemoveRule("items"),)))
        send(domain, 4, 3)
        domain.commit(Batch(WHO, (Subscribe(Subscription("past", "ann", "shop.Sale", history=True)),)))
        send(domain, 7, 1)
        pipeline.catch_up()
        assert domain.store.reached().streams == {"main": 7, "other": 2}
    return directory


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """The same domain, to do damage to."""
    return Path(shutil.copytree(run, tmp_path / "domain"))


@pytest.fixture
def store(copy: Path) -> Iterator[sqlite3.Connection]:
    """Its store, opened behind Headgate's back."""
    with closing(sqlite3.connect(copy / "deliveries.db", isolation_level=None)) as connection:
        yield connection


def check(spark: Any, directory: Path) -> Report:
    with Domain.open(directory) as domain:
        return verify(domain.pipeline(spark))


def told(report: Report) -> set[tuple[DifferenceKind, str, int, str]]:
    return {(d.kind, d.stream, d.seq, d.subscription) for d in report.differences}


def rewrite(store: sqlite3.Connection, first: int, change: Any, part: int = 0) -> None:
    """Alter the rows of a blob and give it a checksum that fits."""
    where = "stream = 'main' AND first = ? AND part = ?"
    (blob,) = store.execute(f"SELECT blob FROM deliveries WHERE {where}", (first, part)).fetchone()
    table = from_blob(blob)
    new = to_blob(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema))
    store.execute(f"UPDATE deliveries SET blob = ?, crc = ? WHERE {where}", (new, zlib.crc32(new), first, part))


def test_a_sound_run_is_all_as_delivered(spark: Any, run: Path) -> None:
    report = check(spark, run)
    assert report.sound
    assert (report.events, report.version) == (9, 4)
    assert report.deliveries == report.held == 19
    assert report.undecided == {}


def test_events_that_are_not_decided_yet_are_no_differences(spark: Any, copy: Path) -> None:
    with Domain.open(copy) as domain:
        send(domain, 8, 2)
        send(domain, 1, 1, "new")
        domain.commit(Batch(WHO, (Subscribe(Subscription("later", "ann", "shop.Sale", history=True)),)))
        report = verify(domain.pipeline(spark))
    assert report.sound
    assert report.undecided == {"main": 2, "new": 1}


def test_a_deleted_blob_is_missing_delivery_by_delivery(spark: Any, copy: Path, store: sqlite3.Connection) -> None:
    store.execute("DELETE FROM deliveries WHERE stream = 'main' AND first = 1 AND part = 0")
    report = check(spark, copy)
    assert told(report) == {
        (DifferenceKind.MISSING, "main", 1, "b"),
        (DifferenceKind.MISSING, "main", 2, "a"),
        (DifferenceKind.MISSING, "main", 3, "a"),
        (DifferenceKind.MISSING, "main", 3, "b"),
    }
    view = next(d.should for d in report.differences if d.seq == 3 and d.subscription == "b")
    assert view is not None
    assert (view.event, view.version, dict(view.view)) == ("main3", 2, {"item": "hat", "price": None})


def test_an_altered_view_is_named_with_both_values(spark: Any, copy: Path, store: sqlite3.Connection) -> None:
    rewrite(store, 1, lambda rows: [{**r, "f1": 99.0} if r["seq"] == 2 else r for r in rows])
    (found,) = check(spark, copy).differences
    assert (found.kind, found.stream, found.seq, found.subscription) == (DifferenceKind.ALTERED, "main", 2, "a")
    assert found.should is not None
    assert found.is_ is not None
    assert (found.should.view["price"], found.is_.view["price"]) == (3.0, 99.0)


def test_an_unmasked_attribute_is_an_altered_view(spark: Any, copy: Path, store: sqlite3.Connection) -> None:
    rewrite(store, 1, lambda rows: [{**r, "f1": r["seq"] * 1.5} for r in rows])
    assert told(check(spark, copy)) == {
        (DifferenceKind.ALTERED, "main", 1, "b"),
        (DifferenceKind.ALTERED, "main", 3, "b"),
    }


@pytest.mark.parametrize("what", ["publisher", "source"])
def test_an_altered_publisher_or_source_is_found(spark: Any, copy: Path, store: sqlite3.Connection, what: str) -> None:
    rewrite(store, 7, lambda rows: [{**r, what: "bob"} for r in rows])
    assert told(check(spark, copy)) == {
        (DifferenceKind.ALTERED, "main", 7, "a"),
        (DifferenceKind.ALTERED, "main", 7, "past"),
    }


def test_an_extra_receiver_is_named(spark: Any, copy: Path, store: sqlite3.Connection) -> None:
    rewrite(store, 4, lambda rows: [{**r, "subscriptions": [*r["subscriptions"], 1, 77]} for r in rows])
    report = check(spark, copy)
    assert told(report) == {(DifferenceKind.EXTRA, "main", n, who) for n in (4, 5, 6) for who in ("b", "#77")}


def test_a_blob_out_of_place_is_extra(spark: Any, copy: Path, store: sqlite3.Connection) -> None:
    store.execute(
        "INSERT INTO deliveries SELECT stream, first, 9, last, version, count, written, crc, members, blob "
        "FROM deliveries WHERE stream = 'main' AND first = 7"
    )
    assert told(check(spark, copy)) == {
        (DifferenceKind.EXTRA, "main", 7, "a"),
        (DifferenceKind.EXTRA, "main", 7, "past"),
    }


def test_a_wrong_version_and_a_wrong_label_are_found(spark: Any, copy: Path, store: sqlite3.Connection) -> None:
    store.execute("UPDATE deliveries SET version = 3 WHERE stream = 'main' AND first = 7")
    store.execute("UPDATE deliveries SET count = count + 1 WHERE stream = 'main' AND first = 4 AND part = 0")
    store.execute("UPDATE deliveries SET members = ? WHERE stream = 'other'", (pack(np.array([77], np.int32)),))
    report = check(spark, copy)
    assert told(report) == {
        (DifferenceKind.VERSION, "main", 7, "a"),
        (DifferenceKind.VERSION, "main", 7, "past"),
        (DifferenceKind.LABEL, "main", 4, ""),
        (DifferenceKind.LABEL, "other", 1, ""),
    }


@pytest.mark.parametrize("what", ["log", "deliveries", "both"])
def test_what_was_trimmed_is_not_compared(spark: Any, copy: Path, store: sqlite3.Connection, what: str) -> None:
    with Domain.open(copy) as domain:
        if what != "deliveries":
            assert domain.log.trim("main", 5) == 3
        if what != "log":
            assert domain.store.trim("main", 3) > 0
    report = check(spark, copy)
    assert report.sound
    assert (report.events, report.trimmed) == (6, {"main": 3})
    store.execute("DELETE FROM deliveries WHERE stream = 'main' AND first = 7")
    assert {d.kind for d in check(spark, copy).differences} == {DifferenceKind.MISSING}


def test_a_subscription_to_history_reaches_back_to_where_the_log_was_trimmed(spark: Any, copy: Path) -> None:
    with Domain.open(copy) as domain:
        domain.log.trim("main", 3)
        domain.commit(Batch(WHO, (Subscribe(Subscription("late", "ann", "shop.Sale", history=True)),)))
        domain.pipeline(spark).catch_up()
        assert [d.seq for name, d in read_deliveries(domain) if (name, d.stream) == ("late", "main")] == [4, 5, 6, 7]
        figures = domain.store.stats(last=1)[0]
        assert (figures.events, figures.deliveries, figures.version) == (0, 6, 5)
        number = [s.id for s, _ in domain.ledger.all_subscriptions(5)].index("late")
        found = domain.store.for_subscription(number, "main", 0, 7, 10)
        assert [(b.first, b.part > 0) for b in found.blobs] == [(4, True), (7, True)]
    assert check(spark, copy).sound


def test_damage_names_the_file(spark: Any, run: Path, tmp_path: Path) -> None:
    damages = {
        "deliveries.db": ["UPDATE deliveries SET blob = x'00' WHERE first = 7"],
        "log.db": ["UPDATE batches SET blob = x'00' WHERE first = 4"],
        "ledger.db": ["UPDATE rules SET \"where\" = 'x'"],
    }
    cut = {"log.db": ["DELETE FROM batches WHERE first = 7", "UPDATE streams SET last = 6 WHERE stream = 'main'"]}
    for number, (name, statements) in enumerate([*damages.items(), *cut.items()]):
        directory = Path(shutil.copytree(run, tmp_path / str(number)))
        with closing(sqlite3.connect(directory / name, isolation_level=None)) as file:
            for statement in statements:
                file.execute(statement)
        with pytest.raises(Damaged) as found:
            check(spark, directory)
        assert name in str(found.value)


def test_an_unreadable_blob_names_the_store(spark: Any, copy: Path, store: sqlite3.Connection) -> None:
    store.execute("UPDATE deliveries SET blob = x'00', crc = ? WHERE first = 7", (zlib.crc32(b"\0"),))
    with pytest.raises(Damaged, match=r"deliveries\.db.*events 7 to 7 of stream `main` cannot be read"):
        check(spark, copy)


def test_a_replay_gives_the_identical_deliveries(spark: Any, copy: Path, tmp_path: Path) -> None:
    with Domain.open(copy) as domain:
        before = read_deliveries(domain)
        assert replay(domain.pipeline(spark), tmp_path / "again.db") == len(before)
        reached = domain.store.reached()
        with pytest.raises(BadDefinition, match="exists already"):
            replay(domain.pipeline(spark), tmp_path / "again.db")
    again = DeliveryStore.open(tmp_path / "again.db")
    assert again.reached() == reached
    again.close()
    shutil.copy(tmp_path / "again.db", copy / "deliveries.db")
    with Domain.open(copy) as domain:
        assert read_deliveries(domain) == before
        assert verify(domain.pipeline(spark)).sound


def test_the_command(spark: Any, copy: Path, store: sqlite3.Connection, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command("verify")(shows_errors(command.verify))
    args = ["--domain", str(copy)]
    sound = CliRunner().invoke(app, [*args, "--replay", str(tmp_path / "again.db")])
    assert sound.exit_code == 0
    assert "19 deliveries of 9 events recomputed: all as delivered" in sound.output
    assert (tmp_path / "again.db").exists()
    store.execute("DELETE FROM deliveries WHERE stream = 'main' AND first = 7")
    wrong = CliRunner().invoke(app, args)
    assert wrong.exit_code == 1
    assert "19 deliveries of 9 events recomputed: 2 missing" in wrong.output
    found = json.loads(CliRunner().invoke(app, [*args, "--json"]).stdout)
    assert [(d["kind"], d["seq"], d["subscription"]) for d in found["differences"]] == [
        ("missing", 7, "a"),
        ("missing", 7, "past"),
    ]
