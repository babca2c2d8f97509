"""Many writers at once, and writers killed in the middle: always a run of whole batches.

Threads and processes here are real, and so are the kills.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import headgate
from headgate.decide.apply import apply
from headgate.ledger import Ledger
from headgate.model.changes import (
    AddMember,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareType,
    RemoveMember,
    Subscribe,
    Unsubscribe,
)
from headgate.model.errors import BadDefinition
from headgate.model.rights import Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType

SETTING = Batch(ADMINISTRATOR, (DeclareType(EventType("t.T", ADMINISTRATOR, {})), DeclareGroup("g")))


def pair(writer: str, n: int) -> Batch:
    """Two principals that come together, or it is half a batch."""
    names = (f"{writer}-{n}-left", f"{writer}-{n}-right")
    return Batch(ADMINISTRATOR, tuple(map(DeclarePrincipal, names)), f"{writer} {n}")


def whole(state: State) -> bool:
    lefts, rights = (
        {name.removesuffix(side) for name in state.principals if name.endswith(side)} for side in ("left", "right")
    )
    return lefts == rights


def names_at(ledger: Ledger, version: int) -> set[str]:
    return {one.name for one in ledger.difference(version - 1, version)}


def each_version_is_its_batch(ledger: Ledger, acknowledged: dict[int, str]) -> None:
    """Consecutive versions, each with exactly the batch whose author was told that number."""
    infos = ledger.versions(1)
    assert [info.version for info in infos] == list(range(2, ledger.version + 1))
    assert {info.version: info.note for info in infos} == acknowledged
    for info in infos:
        left, _, n = info.note.partition(" ")
        assert names_at(ledger, info.version) == {f"{left}-{n}-left", f"{left}-{n}-right"}
    ledger.check()


@contextmanager
def process(program: str, *args: object) -> Iterator[subprocess.Popen[str]]:
    """A process that has this module's batches, started fresh."""
    head = "import sys, time\nsys.path[:0] = sys.argv[1:3]\nfrom test_ledger_concurrency import *\n"
    source = str(Path(headgate.__file__).parents[1])
    command = [sys.executable, "-c", head + textwrap.dedent(program), source, str(Path(__file__).parent)]
    with subprocess.Popen(
        [*command, *map(str, args)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    with Ledger.create(path) as ledger:
        ledger.commit(SETTING)
    return path


def test_threads_of_two_ledgers_take_turns(path: Path) -> None:
    acknowledged: dict[int, str] = {}
    done = threading.Event()

    def write(ledger: Ledger, writer: str) -> None:
        for n in range(8):
            batch = pair(writer, n)
            version = ledger.commit(batch)
            assert version not in acknowledged
            acknowledged[version] = batch.note

    def read(ledger: Ledger) -> int:
        versions = []
        while not done.is_set():
            state = ledger.state()
            versions.append(state.version)
            assert whole(state)
        assert versions == sorted(versions)
        return len(versions)

    with Ledger.open(path) as one, Ledger.open(path) as two, ThreadPoolExecutor(10) as pool:
        readers = [pool.submit(read, ledger) for ledger in (one, two)]
        writers = [pool.submit(write, ledger, f"w{k}") for k, ledger in enumerate((one, one, one, two, two, two))]
        try:
            for writer in writers:
                writer.result(60)
        finally:
            done.set()
        assert all(reader.result(60) for reader in readers)
        assert one.version == two.version == 1 + 6 * 8
        assert one.state() == two.state()
        each_version_is_its_batch(one, acknowledged)


WRITER = """
    from headgate.model.errors import VersionConflict

    path, writer, count, careful = sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6] == "True"
    conflicts = 0
    with Ledger.open(path) as ledger:
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(count):
            while True:
                seen = ledger.version
                if careful:
                    time.sleep(0.002)
                try:
                    version = ledger.commit(pair(writer, n), expect=seen if careful else None)
                    break
                except VersionConflict as conflict:
                    assert f"not {seen} as expected" in str(conflict), conflict
                    conflicts += 1
            print(version, n, flush=True)
    print("conflicts", conflicts, flush=True)
"""


def test_processes_take_turns_and_conflicts_are_told(path: Path) -> None:
    acknowledged: dict[int, str] = {}
    conflicts = 0
    with (
        process(WRITER, path, "a", 20, False) as a,
        process(WRITER, path, "b", 20, False) as b,
        process(WRITER, path, "c", 10, True) as c,
        process(WRITER, path, "d", 10, True) as d,
    ):
        writers = {"a": a, "b": b, "c": c, "d": d}
        for writer in writers.values():
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers.values():
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for name, writer in writers.items():
            out, _ = writer.communicate(timeout=60)
            assert writer.returncode == 0
            for line in out.splitlines():
                version, n = line.split()
                if version == "conflicts":
                    conflicts += int(n)
                else:
                    assert int(version) not in acknowledged
                    acknowledged[int(version)] = f"{name} {n}"
    assert conflicts > 0
    with Ledger.open(path) as ledger:
        assert ledger.version == 1 + 60
        each_version_is_its_batch(ledger, acknowledged)


def test_one_of_many_creators_wins(tmp_path: Path) -> None:
    def create(_: int) -> bool:
        try:
            Ledger.create(tmp_path / "new.db").close()
        except BadDefinition:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(8))) == 1
    with Ledger.open(tmp_path / "new.db") as ledger:
        ledger.check()


def large(version: int) -> Batch:
    """The batch that makes a version: many rows in several tables, some closing what the one before opened."""
    changes: list[Change] = [DeclarePrincipal(f"p{version}", {"n": version}), AddMember("g", f"p{version}")]
    if version > 2:
        changes.append(RemoveMember("g", f"p{version - 1}"))
        changes += [Unsubscribe(f"s{i}") for i in range(0, 100, 2)]
        changes += [Subscribe(Subscription(f"s{i}", f"p{version}", "t.T")) for i in range(0, 100, 2)]
    else:
        changes += [Subscribe(Subscription(f"s{i}", f"p{version}", "t.T")) for i in range(100)]
    return Batch(ADMINISTRATOR, tuple(changes), str(version))


ENDLESS = """
    with Ledger.open(sys.argv[3]) as ledger:
        for version in itertools.count(ledger.version + 1):
            assert ledger.commit(large(version)) == version
            print(version, flush=True)
"""


def test_a_killed_writer_leaves_whole_batches_and_all_it_acknowledged(path: Path) -> None:
    rng = random.Random(int.from_bytes(os.urandom(4)))
    chain = [State(), apply(State(), SETTING)]
    for _ in range(6):
        with process(ENDLESS, path) as writer:
            assert writer.stdout is not None
            first = int(writer.stdout.readline())
            assert first == len(chain)
            time.sleep(rng.uniform(0, 0.12))
            writer.send_signal(signal.SIGKILL)
            # What was written to the pipe before the kill was acknowledged; a torn last line was not.
            rest = [int(line) for line in writer.stdout.read().split("\n")[:-1]]
            acknowledged = max([first, *rest])
        with Ledger.open(path) as ledger:
            ledger.check()
            assert acknowledged <= ledger.version <= acknowledged + 1
            while len(chain) <= ledger.version:
                chain.append(apply(chain[-1], large(len(chain))))
            assert ledger.state() == chain[-1]
            for version in rng.sample(range(len(chain)), 3):
                assert ledger.state(version) == chain[version]
    with Ledger.open(path) as ledger:
        assert [info.note for info in ledger.versions(1)] == [str(v) for v in range(2, len(chain))]
        assert all(a.version + 1 == b.version for a, b in itertools.pairwise(ledger.versions()))
