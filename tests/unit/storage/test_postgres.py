"""A database that is away, cut off or not what it should be: what was kept is known, and errors say what to do."""

from __future__ import annotations

import signal
import threading
from contextlib import closing
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from psycopg import Rollback

from harness.postgres import PostgresServer, postgres_server
from harness.proxy import Proxy, proxy_to
from headgate.ledger import Ledger
from headgate.ledger import storage as ledger_storage
from headgate.model.changes import Batch, DeclarePrincipal
from headgate.model.errors import BadConfig, BadDefinition, BadEnvironment, HeadgateError, StorageBusy, TooNew, TooOld
from headgate.node.cursors import Ack, Cursors
from headgate.pipeline.spark.ledger_tail import LedgerTail
from headgate.storage import postgres as module
from headgate.storage.postgres import CommitWitness, check_server, checked_address, connected, shown
from headgate.storage.shared import SharedState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def through(proxy: Proxy, address: str) -> str:
    parts = urlsplit(address)
    return parts._replace(netloc=f"headgate@127.0.0.1:{proxy.port}").geturl()


def declare(ledger: Ledger, name: str) -> int:
    return ledger.commit(Batch(ledger.administrator, (DeclarePrincipal(name),)))


@pytest.mark.parametrize("heard", [True, False])
def test_a_commit_that_is_cut_off_is_known_to_be_kept_or_not(postgres: PostgresServer, heard: bool) -> None:
    address = postgres.database()
    Ledger.create(address).close()
    with proxy_to(postgres.port) as proxy, closing(Ledger.open(through(proxy, address))) as ledger:
        declare(ledger, "ann")
        proxy.cut_at(b"COMMIT\0", passes=heard)
        if heard:
            assert declare(ledger, "bob") == 2
        else:
            with pytest.raises(StorageBusy, match="nothing was kept"):
                declare(ledger, "bob")
        assert proxy.cuts == 1
        assert ("bob" in ledger.state().principals) is heard
        assert declare(ledger, "cat") == (3 if heard else 2)
        ledger.check()


@pytest.mark.parametrize("heard", [True, False])
def test_so_is_a_write_of_shared_state(postgres: PostgresServer, heard: bool) -> None:
    address = postgres.database()
    with proxy_to(postgres.port) as proxy, closing(Cursors(through(proxy, address))) as cursors:
        cursors.ack_many([Ack("s", 1, {"a": 1})], NOW)
        proxy.cut_at(b"COMMIT\0", passes=heard)
        if heard:
            cursors.ack_many([Ack("s", 1, {"a": 2})], NOW)
        else:
            with pytest.raises(StorageBusy, match="nothing was kept"):
                cursors.ack_many([Ack("s", 1, {"a": 2})], NOW)
        assert proxy.cuts == 1
        assert cursors.acked("s", 1) == {"a": 2 if heard else 1}


def test_what_was_answered_is_there_whenever_the_server_crashes() -> None:
    with postgres_server() as server:
        address = server.database()
        answered: set[str] = set()
        refused: dict[str, str] = {}
        done = threading.Event()

        def work(ledger: Ledger) -> None:
            number = 0
            while not done.is_set():
                number += 1
                try:
                    declare(ledger, f"p{number}")
                except StorageBusy as error:
                    refused[f"p{number}"] = error.message
                else:
                    answered.add(f"p{number}")

        with closing(Ledger.create(address)) as ledger, closing(Ledger.open(address)) as reader:
            worker = threading.Thread(target=work, args=(ledger,))
            worker.start()
            for how in (signal.SIGQUIT, signal.SIGINT, signal.SIGQUIT):
                enough = len(answered) + 20
                while len(answered) < enough and worker.is_alive():
                    done.wait(0.01)
                server.stop(how)
                server.start()
                assert reader.version >= len(answered) - 1  # who reads does not notice
            done.set()
            worker.join()
            there = set(reader.state().principals)
            assert answered <= there
            assert not refused.keys() & there
            assert all("nothing was kept" in words for words in refused.values())
            reader.check()


def test_without_a_server_everything_says_so() -> None:
    with postgres_server() as server:
        address = server.database()
        ledger, cursors = Ledger.create(address), Cursors(address)
        server.stop()
        for act in (
            lambda: ledger.version,
            lambda: declare(ledger, "ann"),
            lambda: cursors.acked("s", 1),
            lambda: cursors.ack_many([], NOW),
            lambda: Cursors(address),
            lambda: Ledger.open(address),
        ):
            with pytest.raises(StorageBusy, match="does not answer") as refused:
                act()
            assert refused.value.remedy == "start PostgreSQL there, or check the address; then try again"
        server.start()
        assert declare(ledger, "ann") == 1
        cursors.ack_many([Ack("s", 1, {"a": 1})], NOW)
        assert cursors.acked("s", 1) == {"a": 1}
        ledger.close()
        cursors.close()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("mysql://host/name", "is not the address of a PostgreSQL database"),
        ("postgresql://host", "is not the address of a PostgreSQL database"),
        ("postgresql://ann:secret@host/name", "has a password in it"),
        ("postgresql://host/name?password=secret", "has a password in it"),
        ("postgresql://[host/name", "is not an address"),
    ],
)
def test_what_is_no_address_is_refused_and_no_password_is_shown(address: str, words: str) -> None:
    with pytest.raises(BadConfig, match=words) as refused:
        checked_address(address)
    assert "secret" not in str(refused.value)
    assert refused.value.remedy


def test_an_address_is_shown_without_what_it_asks_for() -> None:
    assert shown("postgresql://ann:secret@h:1/n?password=x") == "postgresql://ann@h:1/n"
    assert checked_address("postgres://h/n") == "postgresql://h/n"


def test_a_server_that_is_too_old_is_refused() -> None:
    with pytest.raises(TooOld, match="PostgreSQL 12"):
        check_server(120_015, "UTF8", "h")
    check_server(130_000, "UTF8", "h")


def test_a_database_that_cannot_keep_all_text_is_refused(postgres: PostgresServer) -> None:
    with closing(connected(postgres.address("postgres"), "public")) as owner:
        owner.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    with pytest.raises(BadEnvironment, match="keeps text as LATIN1"):
        Notes(postgres.address("latin"))


def test_a_database_that_is_not_there_is_named(postgres: PostgresServer) -> None:
    for make in (Ledger.create, Cursors):
        with pytest.raises(BadEnvironment, match="does not exist") as refused:
            make(postgres.address("nowhere"))  # type: ignore[operator]
        assert refused.value.remedy is not None
        assert "createdb" in refused.value.remedy


def test_who_may_not_make_tables_is_told(postgres: PostgresServer) -> None:
    import psycopg

    address = postgres.database()
    with psycopg.connect(address, autocommit=True) as owner:
        owner.execute("CREATE ROLE guest LOGIN")
    theirs = address.replace("headgate@", "guest@")
    for make in (Ledger.create, Cursors):
        with pytest.raises(BadEnvironment, match="permission denied") as refused:
            make(theirs)  # type: ignore[operator]
        assert refused.value.remedy is not None


def test_a_database_has_one_ledger(postgres: PostgresServer) -> None:
    address = postgres.database()
    Ledger.create(address).close()
    with pytest.raises(BadDefinition, match="already exists"):
        Ledger.create(address)


class Notes(SharedState):
    FILE = "notes.db"
    FORMAT = 2
    SCHEMA = "CREATE TABLE notes (id TEXT PRIMARY KEY, words TEXT NOT NULL) WITHOUT ROWID"


class OldNotes(Notes):
    FORMAT = 1


class NewNotes(Notes):
    FORMAT = 3


def test_another_format_is_refused(postgres: PostgresServer) -> None:
    address = postgres.database()
    Notes(address).close()
    with pytest.raises(TooNew, match="format 2, this one reads 1"):
        OldNotes(address)
    with pytest.raises(TooOld, match="has format 2"):
        NewNotes(address)


def test_many_may_make_the_tables_at_once(postgres: PostgresServer) -> None:
    address = postgres.database()
    failed: list[HeadgateError] = []

    def make() -> None:
        try:
            Notes(address).close()
        except HeadgateError as error:
            failed.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []


def test_a_server_that_stays_away_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_SECONDS", 1)
    writer = CommitWitness("postgresql://headgate@127.0.0.1:1/x", "headgate_x", "x")
    with pytest.raises(StorageBusy, match="whether that was kept is not known"):
        writer.was_kept(patience=0.2)


def test_a_number_that_another_transaction_got_after_a_crash_is_not_taken_for_ours(postgres: PostgresServer) -> None:
    """What was lost in a crash may have had the same number as what is kept: the word left in it counts."""
    address = postgres.database()
    mine, other = (CommitWitness(address, "headgate_notes", "x") for _ in range(2))
    Notes(address).close()
    with closing(connected(address, "headgate_notes")) as made:
        for writer in (mine, other):
            with made.transaction():
                writer.begin(made.execute)
                writer.mark(made.execute)
            assert writer.was_kept()
        with made.transaction() as lost:
            mine.mark(made.execute)
            raise Rollback(lost)
    assert other.was_kept()
    assert not mine.was_kept()


def test_nobody_waits_for_a_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANSWER_SECONDS", "CONNECT_SECONDS", "AWAY_SECONDS"):
        monkeypatch.setattr(module, name, 1)
    monkeypatch.setattr(ledger_storage, "SILENCE_SECONDS", 1)
    with postgres_server() as server:
        address = server.database()
        with closing(Ledger.create(address)) as ledger, closing(Notes(address)) as notes:
            tail = LedgerTail(address)
            assert (ledger.version, tail.version) == (0, 0)
            with server.hanging():
                for act in (
                    lambda: tail.version,
                    lambda: ledger.version,
                    lambda: declare(ledger, "ann"),
                    notes.stamp,
                    lambda: Notes(address),
                ):
                    with pytest.raises(StorageBusy, match="does not answer"):
                        act()
            assert (declare(ledger, "ann"), tail.version) == (1, 1)
            notes.stamp()
            tail.close()


def test_a_writer_that_hangs_holds_up_others_for_a_while(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 1)
    monkeypatch.setattr(module, "IDLE_SECONDS", 3)
    address = postgres.database()
    with closing(Notes(address)) as slow, closing(Notes(address)) as other:
        refused: list[str] = []

        def hang() -> None:
            with slow._writing() as db:
                db.execute("INSERT INTO notes VALUES (?, ?)", ("a", "b"))
                while not refused or refused[-1]:  # until another gets its turn
                    refused.append(write())

        def write() -> str:
            try:
                with other._writing() as db:
                    db.execute("INSERT INTO notes VALUES (?, ?)", ("c", "d"))
            except StorageBusy as error:
                return error.message
            return ""

        with pytest.raises(StorageBusy, match="took too long"):
            hang()
        assert "another process was writing" in refused[0]
        assert slow._rows("SELECT id FROM notes") == [("c",)]


def test_a_server_that_takes_no_more_connections_is_one_to_ask_again(postgres: PostgresServer) -> None:
    address = postgres.database()
    with closing(connected(postgres.address("postgres"), "public")) as owner:
        owner.execute("CREATE ROLE few LOGIN CONNECTION LIMIT 0")
    with pytest.raises(StorageBusy, match="takes no more connections"):
        Notes(address.replace("headgate@", "few@"))
