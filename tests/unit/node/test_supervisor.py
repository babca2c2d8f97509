"""Real processes kept running and stopped, however they fail; waits, locks, limits and files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.model.errors import AlreadyRunning, BadConfig, BadEnvironment
from headgate.node import supervisor
from headgate.node.process_status import PID, ProcessStatus, read_processes, write_processes
from headgate.node.processes import Lock, heard, held_by, kill_session, listen, of_session, settings_from
from headgate.node.supervisor import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    STEADY_SECONDS,
    Backoff,
    ManagedProcess,
    Notice,
    RotatingFile,
    Supervisor,
    What,
    logging_to,
)

READY = """print('{"event": "ready", "pid": 1}', flush=True)"""
WAIT = f"import time\n{READY}\ntime.sleep(60)"


def part(name: str, program: str) -> ManagedProcess:
    return ManagedProcess(name, (sys.executable, "-c", textwrap.dedent(program)))


class Hands:
    """A clock that stands still, and goes to where the next attempt is due."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.now


class Run:
    """A supervisor in a thread, with what it told, and how its parts were each time."""

    def __init__(self, parts: list[ManagedProcess], logs: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.told: list[Notice] = []
        self.reports: list[dict[str, ProcessStatus]] = []
        self.ready = threading.Event()
        self.supervisor = Supervisor(
            parts,
            logs,
            self.told.append,
            report=lambda parts: self.reports.append(dict(parts)),
            all_ready=self.ready.set,
            clock=clock,
            dice=lambda: 1.0,
        )
        self.status: int | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self.status = self.supervisor.run()

    def stop(self, times: int = 1) -> int:
        for _ in range(times):
            self.supervisor.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert self.status is not None
        return self.status

    def what(self, name: str) -> list[What]:
        return [one.what for one in self.told if one.part == name]

    def pids(self, name: str) -> list[int]:
        return [int(one.words.split()[1]) for one in self.told if one.part == name and one.what is What.STARTED]


def until(what: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def test_parts_are_started_and_stopped(tmp_path: Path) -> None:
    run = Run([part("a", WAIT), part("b", WAIT)], tmp_path / "logs")
    assert run.ready.wait(30)
    assert run.stop() == 0
    for name in "ab":
        assert run.what(name) == [What.STARTED, What.READY, What.STOPPED]
        assert of_session(run.pids(name)[0]) == []


def test_what_dies_is_started_again(tmp_path: Path) -> None:
    run = Run([part("a", WAIT), part("b", WAIT)], tmp_path / "logs")
    assert run.ready.wait(30)
    os.kill(run.pids("a")[0], signal.SIGKILL)
    until(lambda: run.what("a").count(What.READY) == 2)
    assert run.stop() == 0
    assert run.what("a") == [What.STARTED, What.READY, What.DIED, What.STARTED, What.READY, What.STOPPED]
    assert run.what("b") == [What.STARTED, What.READY, What.STOPPED]
    (died,) = [one for one in run.told if one.what is What.DIED]
    assert "SIGKILL" in died.words


def test_nothing_that_a_part_began_outlives_it(tmp_path: Path) -> None:
    program = f"""
        import os, subprocess, sys, time
        child = "import os, time; os.setpgid(0, 0); time.sleep(60)"
        subprocess.Popen([sys.executable, "-c", child])
        {READY}
        time.sleep(60)
    """
    run = Run([part("a", program)], tmp_path / "logs")
    assert run.ready.wait(30)
    (first,) = run.pids("a")
    until(lambda: len(of_session(first)) == 2)
    os.kill(first, signal.SIGKILL)
    until(lambda: run.what("a").count(What.READY) == 2)
    assert of_session(first) == []
    second = run.pids("a")[1]
    assert run.stop() == 0
    assert of_session(second) == []


FAILING = """
    import sys
    from pathlib import Path
    if Path({mended!r}).exists():
        print('{{"event": "ready", "pid": 1}}', flush=True)
        import time; time.sleep(60)
    print("2026-11-15T23:02:15.691Z ERROR headgate.x no-java", file=sys.stderr)
    print("the secret", file=sys.stderr)
    print('{{"event": "failed", "code": "damaged", "message": "`log.db` is damaged"}}', flush=True)
    sys.exit({code})
"""
"""It fails until there is a file that mends it."""


@pytest.mark.parametrize(("code", "most"), [(1, 12), (2, 2), (3, 2)])
def test_a_part_that_keeps_failing_is_tried_again_for_ever_once_the_node_was_up(
    tmp_path: Path, code: int, most: int
) -> None:
    """Whatever it says: the other runs on, the waits grow to a minute, and once it is mended all is well by itself."""
    clock, mended = Hands(), tmp_path / "mended"
    mended.touch()
    bad = part("bad", FAILING.format(mended=str(mended), code=code))
    with logging_to(tmp_path / "node.log", "info", "json"):
        run = Run([part("good", WAIT), bad], tmp_path / "logs", clock=clock)
        assert run.ready.wait(30)
        mended.unlink()
        os.kill(run.pids("bad")[0], signal.SIGKILL)
        for times in range(1, most + 1):
            until(lambda n=times: run.what("bad").count(What.DIED) == n)
            due = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (times - 1))
            status = run.reports[-1]["bad"]
            assert (status.pause, status.restarts, status.is_away) == (due, times - 1, True)
            assert status.reason == ("it was ended by SIGKILL" if times == 1 else "damaged")
            if times in (1, most):
                clock.now += due - 0.001
                until(lambda looked=clock.asked: clock.asked > looked + 2)
                assert run.what("bad").count(What.STARTED) == times, "it is waited for"
                clock.now -= due - 0.001
            if times == most:
                mended.touch()
            clock.now += due + 0.001
        until(lambda: run.what("bad")[-1] is What.READY)
        assert run.reports[-1] == {"good": ProcessStatus(True), "bad": run.reports[-1]["bad"]}
        assert run.reports[-1]["bad"].ready
        assert run.reports[-1]["bad"].restarts == most
        assert run.stop() == 0
    assert run.what("good") == [What.STARTED, What.READY, What.STOPPED]
    assert What.GIVEN_UP not in run.what("bad")
    died = [one.words for one in run.told if one.what is What.DIED]
    assert died[0] == "it was ended by SIGKILL; it is started again in 0.2 s"
    assert died[-1] == f"`log.db` is damaged; it is started again in {due:.1f} s"
    written = (tmp_path / "logs" / "bad.log").read_text()
    assert written.count("no-java") == most - 1
    assert "secret" not in written
    lines = [json.loads(line) for line in (tmp_path / "node.log").read_text().splitlines()]
    degraded = [line for line in lines if line["event"] == "degraded"]
    assert len(degraded) == most
    assert degraded[-1] | {"time": ""} == {
        "time": "", "level": "warning", "logger": "headgate.supervisor", "event": "degraded",
        "part": "bad", "reason": "damaged", "seconds": due, "count": most - 1,
    }  # fmt: skip


def test_a_crash_before_the_node_was_up_is_tried_again(tmp_path: Path) -> None:
    clock, mended = Hands(), tmp_path / "mended"
    run = Run([part("bad", FAILING.format(mended=str(mended), code=1))], tmp_path / "logs", clock=clock)
    for times in range(1, 8):
        until(lambda n=times: run.what("bad").count(What.DIED) == n)
        assert not run.ready.is_set()
        if times == 7:
            mended.touch()
        clock.now += LONGEST_PAUSE
    assert run.ready.wait(30)
    assert run.stop() == 0
    (first, *_) = [one for one in run.told if one.what is What.DIED]
    assert first.lines[-2].endswith("no-java"), "whoever waits for it sees its last lines"


def test_a_wait_holds_up_no_stop(tmp_path: Path) -> None:
    """The clock stands still, so nothing but the stop can end the wait."""
    run = Run([part("good", WAIT), part("bad", "raise SystemExit(1)")], tmp_path / "logs", clock=Hands())
    until(lambda: What.DIED in run.what("bad") and What.READY in run.what("good"))
    assert run.stop() == 0
    assert run.what("bad") == [What.STARTED, What.DIED]
    assert run.what("good")[-1] is What.STOPPED
    assert of_session(run.pids("good")[0]) == []


def test_what_fails_in_a_part_that_runs_is_told_until_it_is_over(tmp_path: Path) -> None:
    over = tmp_path / "over"
    program = f"""
        import time
        from pathlib import Path
        {READY}
        for _ in range(3):
            print('{{"event": "degraded", "what": "detections", "code": "damaged"}}', flush=True)
        while not Path({str(over)!r}).exists():
            time.sleep(0.01)
        print('{{"event": "recovered", "what": "detections"}}', flush=True)
        time.sleep(60)
    """
    run = Run([part("pipeline", program)], tmp_path / "logs")
    until(lambda: What.FAILING in run.what("pipeline"))
    assert run.reports[-1]["pipeline"] == ProcessStatus(True, failing={"detections": "damaged"})
    over.touch()
    until(lambda: What.RECOVERED in run.what("pipeline"))
    assert run.reports[-1]["pipeline"] == ProcessStatus(True)
    run.stop()
    assert run.what("pipeline").count(What.FAILING) == 1, "it is said once"


def test_neither_who_is_told_nor_a_full_disk_ends_a_node(tmp_path: Path) -> None:
    def broken(_: object) -> None:
        raise OSError(28, "No space left on device")

    def gone(_: object) -> None:
        raise SystemExit(1)  # as a console does whose pipe is gone

    ready = threading.Event()
    supervisor = Supervisor([part("a", WAIT)], tmp_path / "logs", gone, report=broken, all_ready=ready.set)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        assert ready.wait(30)
    finally:
        supervisor.stop()
        thread.join(60)
    assert not thread.is_alive()


def test_a_part_that_cannot_even_be_started_is_tried_again(tmp_path: Path) -> None:
    clock = Hands()
    run = Run([ManagedProcess("gone", (str(tmp_path / "no-such-program"),))], tmp_path / "logs", clock=clock)
    for times in range(1, 4):
        until(lambda n=times: run.what("gone").count(What.DIED) == n)
        clock.now += LONGEST_PAUSE
    assert run.stop() == 0
    assert "cannot be started" in run.told[0].words


@pytest.mark.parametrize(("code", "status"), [(3, 3), (2, 1)])
def test_what_cannot_be_helped_is_not_tried_again(tmp_path: Path, code: int, status: int) -> None:
    program = f"""
        import sys
        print('{{"event": "failed", "code": "damaged", "message": "`log.db` is damaged"}}', flush=True)
        sys.exit({code})
    """
    run = Run([part("bad", program)], tmp_path / "logs")
    run.thread.join(60)
    assert run.status == status
    assert run.what("bad") == [What.STARTED, What.GIVEN_UP]
    assert run.told[-1].words == "`log.db` is damaged"


def test_what_does_not_stop_is_ended_by_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_SECONDS", 0.5)
    deaf = f"import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{READY}\ntime.sleep(60)"
    run = Run([part("deaf", deaf)], tmp_path / "logs")
    assert run.ready.wait(30)
    assert run.stop() == 0
    assert run.what("deaf") == [What.STARTED, What.READY, What.KILLED]
    assert of_session(run.pids("deaf")[0]) == []


def test_asked_twice_it_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_SECONDS", 600.0)
    deaf = f"import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{READY}\ntime.sleep(60)"
    run = Run([part("deaf", deaf)], tmp_path / "logs")
    assert run.ready.wait(30)
    run.supervisor.stop()
    time.sleep(0.5)
    assert run.thread.is_alive()
    assert run.stop() == 0
    assert run.what("deaf")[-1] is What.KILLED


def test_what_is_never_ready_counts_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "READY_SECONDS", 0.3)
    run = Run([part("slow", "import time; time.sleep(60)")], tmp_path / "logs")
    until(lambda: run.what("slow").count(What.STARTED) == 2)
    assert run.stop() == 0
    (first, *_) = [one for one in run.told if one.what is What.DIED]
    assert first.words.startswith("it was not ready after 0 s")


def test_a_part_ends_with_its_supervisor(tmp_path: Path) -> None:
    """A supervisor that is killed takes its parts with it, for it can no longer stop them."""
    program = f"""
        import os, sys
        from pathlib import Path
        from headgate.node.supervisor import ManagedProcess, Supervisor
        child = '''
        import os, sys, time
        from headgate.node.processes import announce, die_with
        die_with(int(sys.argv[1]))
        announce("ready", pid=os.getpid())
        time.sleep(60)
        '''
        import textwrap
        parts = [ManagedProcess("a", (sys.executable, "-c", textwrap.dedent(child), str(os.getpid())))]
        tell = lambda one: print(one.what.value, one.words, flush=True)
        Supervisor(parts, Path({str(tmp_path / "logs")!r}), tell).run()
    """
    code = textwrap.dedent(program).replace("        import os, sys, time", "import os, sys, time")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        started, ready = process.stdout.readline(), process.stdout.readline()
        assert ready.startswith("ready")
        child = int(started.split()[2])
        assert of_session(child) == [child]
        process.kill()
        process.wait(10)
        until(lambda: of_session(child) == [])
    finally:
        process.kill()
        process.wait(10)


# -- how often, how large -------------------------------------------------------------------------------------


def test_waits_grow_up_to_the_longest_and_begin_anew_after_a_while_that_went_well() -> None:
    clock = Hands()
    backoff = Backoff(LONGEST_PAUSE, clock, lambda: 1.0)
    growing = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert [backoff.failed() for _ in growing] == growing
    for _ in range(5_000):  # for days
        assert backoff.failed() == LONGEST_PAUSE

    clock.now += 1_000_000
    assert backoff.failed() == LONGEST_PAUSE, "it was not ready meanwhile, only away"
    backoff.ready()
    clock.now += STEADY_SECONDS - 0.001
    assert backoff.failed() == LONGEST_PAUSE, "not for long enough"
    backoff.ready()
    clock.now += STEADY_SECONDS
    assert [backoff.failed(), backoff.failed()] == [0.25, 0.5]


@pytest.mark.parametrize("dice", [0.0, 0.5, 0.999])
def test_a_part_of_a_wait_is_random_and_the_longest_is_never_passed(dice: float) -> None:
    backoff = Backoff(4.0, Hands(), lambda: dice)
    due = [0.25, 0.5, 1.0, 2.0, 4.0, 4.0]
    assert [backoff.failed() for _ in due] == [one * (0.5 + dice / 2) for one in due]


def test_word_of_processes_counts_while_its_supervisor_holds_the_node(tmp_path: Path) -> None:
    told = {
        "pipeline": ProcessStatus(restarts=3, reason="damaged", detail="`log.db` is damaged", pause=2.0),
        "gateway-1": ProcessStatus(True, failing={"detections": "damaged"}),
    }
    assert read_processes(tmp_path) == {}
    with Lock(tmp_path / PID, "the node"):
        assert read_processes(tmp_path) == {}
        write_processes(tmp_path, told)
        assert read_processes(tmp_path) == told
    assert read_processes(tmp_path) == {}, "whoever left it is gone"
    with Lock(tmp_path / PID, "the node"):
        for wrong in ("", "{", "[]", '{"pid": 1, "processes": {"a": 3}}'):
            (tmp_path / "processes.json").write_text(wrong)
            assert read_processes(tmp_path) == {}


def test_logs_that_are_taken_away_end_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = RotatingFile(tmp_path / "logs" / "a.log", most=100)
    log.write(b"x" * 90)
    shutil.rmtree(tmp_path / "logs")
    for _ in range(3):
        log.write(b"x" * 90)
    (tmp_path / "logs").mkdir()
    log.write(b"y" * 90)
    log.close()
    assert (tmp_path / "logs" / "a.log").read_bytes() == b"y" * 90 + b"\n"


def test_log_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = RotatingFile(path, most=1000, kept=5)
    for number in range(1_000):
        log.write(b"%04d and some more words" % number)
    log.close()
    files = sorted(one.name for one in tmp_path.iterdir())
    assert files == ["a.log", "a.log.1", "a.log.2", "a.log.3", "a.log.4"]
    assert all(one.stat().st_size <= 1000 for one in tmp_path.iterdir())
    kept = b"".join((tmp_path / name).read_bytes() for name in reversed(files)).splitlines()
    assert kept == [b"%04d and some more words" % n for n in range(1_000 - len(kept), 1_000)]
    assert path.stat().st_mode & 0o077 == 0
    RotatingFile(path).write(b"more")
    assert path.read_bytes().endswith(b"more\n"), "what is there already is kept"


def test_long_lines_and_lines_in_pieces(tmp_path: Path) -> None:
    program = f"""
        import sys, time
        sys.stderr.write("# " + "x" * 100000)
        sys.stderr.flush()
        sys.stderr.write("\\n# in ")
        sys.stderr.flush()
        time.sleep(0.3)
        sys.stderr.write("pieces\\n# and no end")
        sys.stderr.flush()
        {READY}
    """
    run = Run([part("a", program)], tmp_path / "logs")
    until(lambda: What.DIED in run.what("a"))
    run.stop()
    lines = (tmp_path / "logs" / "a.log").read_text().splitlines()
    assert max(map(len, lines)) <= supervisor.MAX_LINE_BYTES
    assert "# in pieces" in lines
    assert "# and no end" in lines


# -- what processes share -------------------------------------------------------------------------------------


def test_a_lock_is_held_by_one_process(tmp_path: Path) -> None:
    path = tmp_path / "up.pid"
    assert held_by(path) is None
    with Lock(path, "the node"):
        assert held_by(path) == os.getpid()
        with (
            pytest.raises(AlreadyRunning, match=f"running already, as process `{os.getpid()}`"),
            Lock(path, "the node"),
        ):
            pass
    assert held_by(path) is None
    with Lock(path, "the node"):
        pass


def test_a_lock_is_let_go_by_a_process_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "up.pid"
    program = f"""
        import time
        from pathlib import Path
        from headgate.node.processes import Lock
        with Lock(Path({str(path)!r}), "x"):
            print("held", flush=True)
            time.sleep(60)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    assert held_by(path) == process.pid
    assert kill_session(process.pid) == 1
    process.wait(10)
    with Lock(path, "x"):
        assert held_by(path) == os.getpid()


def test_announcements_are_told_from_other_lines() -> None:
    assert heard(b'{"event": "ready", "pid": 3}') == {"event": "ready", "pid": 3}
    for line in (b"", b"ready", b'{"event": ', b'{"event": 3}', b'{"time": "x", "event": "ready"}', b"\xff\xfe"):
        assert heard(line) is None


def test_settings_of_the_command_line() -> None:
    assert settings_from(["a.b=c", "d.e = f=g"]) == {"a.b": "c", "d.e": "f=g"}
    for wrong in ("a.b", "=x", ""):
        with pytest.raises(BadConfig, match="is not a setting"):
            settings_from([wrong])


def test_a_port_that_is_taken_is_named() -> None:
    taken = listen("127.0.0.1", 0)
    taken.listen()
    port = taken.getsockname()[1]
    with pytest.raises(BadEnvironment, match=f"port `{port}`"):
        listen("127.0.0.1", port)
    taken.close()
    listen("127.0.0.1", port).close()
    with pytest.raises(BadConfig, match="no address of this machine"):
        listen("no.such.host.invalid", port)
