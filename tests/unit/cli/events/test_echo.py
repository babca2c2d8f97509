"""`headgate echo`: two real gateways with the pipeline in process, an echo that is killed, and what it refuses."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.client import Client, connect
from headgate.client.echo import (
    BATCH,
    MAX_PENDING,
    Echo,
    InDoubt,
    Journal,
    Manner,
    Translation,
    hold,
    identity,
    kinds,
    translation,
)
from headgate.lang import parse_condition
from headgate.lang.rolefile import parse_role, parse_rolefile
from headgate.model.changes import AddRule, DeclareType, GrantRole, RemoveRule, SetRolefile
from headgate.model.errors import BadDefinition, Damaged, RoleDenied, TypeMismatch
from headgate.model.events import Event
from headgate.model.rights import Action, Effect, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.domain import Domain
from headgate.node.processes import Lock
from strategies.serving import PATIENCE, SALE, Served, eventually, serving
from strategies.small import grant

OURS = "home.Sale"
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ATTRIBUTES = {"item": Kind.STRING, "cost": Kind.FLOAT, "seller": Kind.STRING}
ECHO = frozenset({Action.SUBSCRIBE})


@dataclass
class Two:
    """The other domain and ours; `anna` is the echo in both."""

    there: Served
    home: Served
    keys: Path

    @property
    def options(self) -> list[str]:
        return [
            *("--from", f"http://127.0.0.1:{self.there.port}", "--to", f"http://127.0.0.1:{self.home.port}"),
            *("--key", str(self.keys / "home.pem"), "--from-key", str(self.keys / "there.pem")),
            *("--as-type", OURS, "--map", "amount=cost", "--map", "@publisher=seller"),
        ]

    def client(self, which: str) -> Client:
        served = self.there if which == "there" else self.home
        return connect(f"http://127.0.0.1:{served.port}", self.keys / f"{which}.pem")

    def echoed(self) -> list[Event]:
        """What is in the log at home, from the echo."""
        with Domain.open(self.home.domain.paths.directory) as domain:
            return [one for one in domain.events() if one.type == OURS]


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    place = tmp_path_factory.mktemp("two")
    with serving(place / "there") as there, serving(place / "home") as home:
        there.keys["anna"].save(place / "there.pem")
        home.keys["anna"].save(place / "home.pem")
        home.commit(
            DeclareType(EventType(OURS, ADMINISTRATOR, ATTRIBUTES)),
            grant("anna echoes", "anna", OURS, may=(Action.PUBLISH,)),
        )
        yield Two(there, home, place)


@pytest.fixture
def two(domains: Two) -> Two:
    return domains


def run(two: Two, *args: object, journal: Path) -> Result:
    environment = {"COLUMNS": "200", "NO_COLOR": "1", "HEADGATE_NODE": None, "HEADGATE_DOMAIN": None}
    given = ["echo", SALE, *map(str, args), "--journal", str(journal), *two.options]
    return CliRunner(env=environment).invoke(app, given)


@contextmanager
def deciding(served: Served) -> Iterator[None]:
    """Decide what is published, again and again, as the pipeline does."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.02):
            served.decide()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# -- between two gateways -------------------------------------------------------------------------------------


def test_events_come_under_our_names_and_hidden_stays_null(two: Two, tmp_path: Path) -> None:
    before = len(two.echoed())
    hidden = Rule("no items", "anna", ECHO, SALE, parse_condition("amount > 100"), ("item",), effect=Effect.FORBID)
    two.there.commit(RemoveRule("g-anna"), AddRule(hidden), grant("g-anna", "anna", "*"))
    with two.client("there") as reader:
        reader.subscribe("first", SALE).close()
    two.there.publish(1.5, 200, 3)
    two.there.decide()
    done = run(two, "--name", "first", "--count", "3", journal=tmp_path / "j")
    assert done.exit_code == 0, done.output
    assert done.stdout == "3 echoed\n"
    assert [dict(one.values) for one in two.echoed()[before:]] == [
        {"item": "tea", "cost": 1.5, "seller": "till"},
        {"item": None, "cost": 200.0, "seller": "till"},
        {"item": "tea", "cost": 3.0, "seller": "till"},
    ]
    two.there.publish(7)
    two.there.decide()
    again = run(two, "--name", "first", "--count", "1", journal=tmp_path / "j")
    assert again.stdout == "1 echoed\n"
    assert len(two.echoed()) == before + 4
    two.there.commit(RemoveRule("no items"))


KILLS = 3


@contextmanager
def started(two: Two, name: str, journal: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process of its own, which does not outlive the test."""
    command = [sys.executable, "-m", "headgate.cli.main", "echo", SALE, "--name", name, "--journal", str(journal)]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("HEADGATE_")}
    with subprocess.Popen([*command, *two.options], env=environ, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_kills_at_any_moment_lose_nothing_and_double_nothing(two: Two, tmp_path: Path) -> None:
    """SIGKILL between any two steps; what the other domain delivered is at home exactly once, in order."""
    before, dice, amounts = len(two.echoed()), random.Random(5), list[float]()
    with two.client("there") as reader:
        reader.subscribe("killed", SALE).close()

    def publish() -> None:
        for _ in range(10):
            some = [float(len(amounts) + n) for n in range(dice.randrange(1, 60))]
            two.there.publish(*some)
            amounts.extend(some)
            time.sleep(dice.random() / 20)

    with deciding(two.there):
        for _ in range(KILLS):
            known = len(two.echoed())
            with started(two, "killed", tmp_path / "j"):
                publish()
                eventually(lambda known=known: len(two.echoed()) > known)  # type: ignore[misc]
                time.sleep(dice.random() / 10)
        with started(two, "killed", tmp_path / "j") as last:
            publish()
            eventually(lambda: len(two.echoed()) - before >= len(amounts))
            last.send_signal(signal.SIGTERM)
            said, _ = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0
    assert b" echoed" in said
    assert [one.values["cost"] for one in two.echoed()[before:]] == amounts


DYING = """
import os, signal, sys, threading
from datetime import UTC, datetime
from pathlib import Path
from headgate.client import connect, echo

there, home, keys, journal, count, point, turn = sys.argv[1:]
left = [int(turn)]
echo.BATCH = 5

def pass_by(here):
    if here == point:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

class Journal(echo.Journal):
    def begin(self, ids, now):
        super().begin(ids, now)
        pass_by("begun")
    def done(self, ids):
        pass_by("acknowledged")
        super().done(ids)

class Translation(echo.Translation):
    __slots__ = ()
    def __call__(self, one):
        pass_by("sending")
        return super().__call__(one)

class Echo(echo.Echo):
    def _count(self, results):
        super()._count(results)
        pass_by("published")

with connect(there, Path(keys, "there.pem")) as theirs, connect(home, Path(keys, "home.pem")) as ours:
    of = echo.identity(theirs, "dying")
    reading = theirs.subscribe("dying", "shop.Sale", ack="manual")
    translate = Translation("home.Sale", {"cost": "amount"})
    clock = lambda: datetime.now(UTC)
    kept = Journal(Path(journal), of)
    Echo(reading, ours, translate, kept, source=of, clock=clock).run(threading.Event(), int(count))
    reading.close()
"""


@pytest.mark.parametrize("point", ["begun", "sending", "published", "acknowledged"])
def test_a_kill_at_each_step_loses_nothing_and_doubles_nothing(two: Two, tmp_path: Path, point: str) -> None:
    with two.client("there") as reader:
        reader.subscribe("dying", SALE).close()
    before = len(two.echoed())
    amounts = [float(n) for n in range(23)]
    two.there.publish(*amounts)
    two.there.decide()
    where = [f"http://127.0.0.1:{one.port}" for one in (two.there, two.home)]

    def run_until(step: str, turn: int, count: int) -> int:
        rest = [str(two.keys), str(tmp_path / "j"), str(count), step, str(turn)]
        return subprocess.run([sys.executable, "-c", DYING, *where, *rest], check=False, timeout=PATIENCE).returncode

    for turn in (0, 1):
        assert run_until(point, turn, len(amounts)) == -signal.SIGKILL
    two.there.publish(99.0)  # so that it is known when all have come
    two.there.decide()
    with two.client("there") as theirs, two.client("home") as ours:
        of = identity(theirs, "dying")
        translate = Translation(OURS, {"cost": "amount"})
        with theirs.subscribe("dying", SALE, ack="manual") as reading:
            journal = Journal(tmp_path / "j", of)
            made = Echo(reading, ours, translate, journal, source=of, clock=lambda: datetime.now(UTC))
            stop = threading.Event()
            thread = threading.Thread(target=made.run, args=(stop,))
            thread.start()
            eventually(lambda: two.echoed()[-1].values["cost"] == 99.0)
            stop.set()
            thread.join(PATIENCE)
    assert [one.values["cost"] for one in two.echoed()[before:]] == [*amounts, 99.0]


def test_one_echo_of_a_journal_at_a_time(two: Two, tmp_path: Path) -> None:
    with Lock(tmp_path / "j.lock", "the echo"):
        done = run(two, "--name", "x", journal=tmp_path / "j")
    assert done.exit_code == 2
    assert "already-running" in done.stderr


def test_what_home_refuses_stops_it_and_is_not_lost(two: Two, tmp_path: Path) -> None:
    before = len(two.echoed())
    with two.client("there") as reader:
        reader.subscribe("refused", SALE).close()
    two.home.commit(
        RemoveRule("anna echoes"),
        AddRule(Rule("dear", "anna", frozenset({Action.PUBLISH}), OURS, parse_condition("cost > 10"))),
    )
    two.there.publish(5, 50)
    two.there.decide()
    stopped = run(two, "--name", "refused", "--count", "2", journal=tmp_path / "j")
    assert stopped.exit_code == 2
    assert "echo-refused" in stopped.stderr
    skipped = run(two, "--name", "refused", "--count", "2", "--skip-refused", journal=tmp_path / "j")
    assert skipped.exit_code == 0, skipped.output
    assert skipped.stdout == "0 echoed, 1 had been published before, 1 refused at home\n"
    assert [one.values["cost"] for one in two.echoed()[before:]] == [50.0]
    two.home.commit(RemoveRule("dear"), grant("anna echoes", "anna", OURS, may=(Action.PUBLISH,)))


def test_a_role_there_is_entered_and_decides(two: Two, tmp_path: Path) -> None:
    by_role = Rule("proxies", "", ECHO, SALE, role=parse_role("Badges.Proxy"))
    two.there.commit(
        RemoveRule("g-anna"),
        SetRolefile("Badges", parse_rolefile("Proxy(d) <- Login.System(d)*")),
        GrantRole("system", "Login", "System", ("CL",), "anna"),
        AddRule(by_role),
    )
    before = len(two.echoed())
    denied = run(two, "--name", "role", "--enter", "Badges.Proxy('ORL')", "--count", "1", journal=tmp_path / "j")
    assert denied.exit_code == 1
    assert "role-denied" in denied.stderr
    with two.client("there") as reader:
        first = hold(reader, parse_role("Badges.Proxy('CL')"))
        assert hold(reader, parse_role("Badges.Proxy(_)")) == first  # it is held already
        reader.subscribe("role", SALE).close()
        with pytest.raises(RoleDenied):
            hold(reader, parse_role("Badges.Proxy('ORL')"))
    two.there.publish(11)
    two.there.decide()
    done = run(two, "--name", "role", "--enter", "Badges.Proxy('CL')", "--count", "1", journal=tmp_path / "j")
    assert done.exit_code == 0, done.output
    assert [one.values["cost"] for one in two.echoed()[before:]] == [11.0]
    two.there.commit(RemoveRule("proxies"), grant("g-anna", "anna", "*"))


@pytest.mark.parametrize(
    "args",
    [
        ("--map", "amount"),
        ("--map", "amount=cost", "--map", "item=cost"),
        ("--map", "nothing=cost"),
        ("--drop", "nothing"),
        ("--since", "yesterday"),
        ("--window", "soon"),
        ("--enter", "Login.("),
        ("--enter", "Proxy"),
        ("--doubt", "maybe"),
    ],
)
def test_bad_options_are_refused(two: Two, tmp_path: Path, args: tuple[str, ...]) -> None:
    done = run(two, *args, "--count", "1", journal=tmp_path / "j")
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output


# -- what is in doubt -----------------------------------------------------------------------------------------


def test_what_was_under_way_for_too_long_is_in_doubt(two: Two, tmp_path: Path) -> None:
    before = len(two.echoed())
    with two.client("there") as theirs, two.client("home") as ours:
        translate = translation(kinds(theirs, SALE), OURS, kinds(ours, OURS), {"amount": "cost"})
        of = identity(theirs, "doubt")
        theirs.subscribe("doubt", SALE).close()
        two.there.publish(1, 2)
        two.there.decide()
        with theirs.subscribe("doubt", SALE, ack="manual") as reading:
            first = reading.next(PATIENCE)
            assert first is not None
        journal = Journal(tmp_path / "j", of)
        journal.begin([first.position], NOW)  # and then it was killed

        def echo(now: datetime, **manner: Any) -> Echo:
            return Echo(
                theirs.subscribe("doubt", SALE, ack="manual"),
                ours,
                translate,
                Journal(tmp_path / "j", of),
                source=of,
                clock=lambda: now,
                manner=Manner(timedelta(minutes=10), **manner),
            )

        late = echo(NOW + timedelta(minutes=11))
        with pytest.raises(InDoubt):
            late.run(threading.Event(), 2)
        late._subscription.close()
        assert two.echoed()[before:] == []
        skipping = echo(NOW + timedelta(minutes=11), doubt="skip")
        tally = skipping.run(threading.Event(), 2)
        skipping._subscription.close()
        assert (tally.echoed, tally.skipped) == (1, 1)
    assert [one.values["cost"] for one in two.echoed()[before:]] == [2.0]
    assert Journal(tmp_path / "j", of).pending == {}


def test_stopping_is_prompt_and_writes_the_journal(two: Two, tmp_path: Path) -> None:
    with two.client("there") as theirs, two.client("home") as ours:
        stop = threading.Event()
        stop.set()
        reading = theirs.subscribe("stopped", SALE, ack="manual")
        made = Echo(reading, ours, Translation(OURS, {}), Journal(tmp_path / "j", "x"), source="x", clock=lambda: NOW)
        assert made.run(stop).echoed == 0
        reading.close()
    assert json.loads((tmp_path / "j").read_text())["pending"] == {}


# -- names and the journal ------------------------------------------------------------------------------------

THEIRS = {"user": Kind.STRING, "seen": Kind.INT, "room": Kind.STRING}
HERE = {"user": Kind.STRING, "seen": Kind.FLOAT, "place": Kind.STRING, "at": Kind.TIMESTAMP}


def test_attributes_go_by_name_unless_they_are_renamed_or_dropped() -> None:
    made = translation(THEIRS, "cl.Seen", HERE, {"room": "place", "@time": "at"})
    assert made.taken == {"user": "user", "seen": "seen", "place": "room", "at": "@time"}
    assert translation(THEIRS, "cl.Seen", HERE, {}, ["room"]).taken == {"user": "user", "seen": "seen"}


@pytest.mark.parametrize(
    ("ours", "renamed", "dropped", "error"),
    [
        (HERE, {}, (), BadDefinition),
        (HERE, {"room": "user"}, (), BadDefinition),
        (HERE, {"nothing": "place"}, ("room",), BadDefinition),
        (HERE, {"room": "at"}, (), TypeMismatch),
        ({**HERE, "seen": Kind.STRING}, {}, ("room",), TypeMismatch),
        (HERE, {}, ("nothing",), BadDefinition),
    ],
)
def test_what_cannot_become_ours_is_refused(
    ours: dict[str, Kind], renamed: dict[str, str], dropped: tuple[str, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        translation(THEIRS, "cl.Seen", ours, renamed, dropped)


def test_a_journal_keeps_when_each_was_first_sent_and_no_more_than_its_bound(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", "a#x")
    journal.begin(["p", "q"], NOW)
    journal.begin(["q", "r"], NOW + timedelta(minutes=5))
    journal.done(["p"])
    journal.save()
    assert Journal(tmp_path / "j", "a#x").pending == {"q": NOW, "r": NOW + timedelta(minutes=5)}
    with pytest.raises(BadDefinition):
        Journal(tmp_path / "j", "b#x")
    journal.begin([f"{n:022}" for n in range(MAX_PENDING + 1)], NOW)
    found = Journal(tmp_path / "j", "a#x").pending
    assert len(found) == MAX_PENDING
    assert "q" not in found
    assert BATCH < MAX_PENDING


@pytest.mark.parametrize("text", ["", "[]", "{", '{"echo": 2}', '{"echo": 1, "of": "x", "pending": {"p": "soon"}}'])
def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "j").write_text(text)
    with pytest.raises(Damaged):
        Journal(tmp_path / "j", "x")
