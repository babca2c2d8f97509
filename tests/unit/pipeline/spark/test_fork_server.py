"""The Pythons of Spark, forked from a process that has everything imported."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import headgate.pipeline.spark
from headgate.pipeline.spark.fork_client import ANSWERING, SERVER

PYTHON = Path(headgate.pipeline.spark.__file__).parent / "python-for-spark"
SECONDS = 60.0


@contextmanager
def server(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server, listening."""
    command = [sys.executable, "-m", "headgate.pipeline.spark.fork_server", str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        end = time.monotonic() + SECONDS
        while not path.exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


class Jvm:
    """What Spark does: listens, starts a worker, and hears its secret and its process id."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(SECONDS)
        given = {
            "HEADGATE_PYTHON": sys.executable,
            "PYTHON_WORKER_FACTORY_PORT": str(self.listener.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "s3",
            SERVER: str(path),
        }
        self.worker = subprocess.Popen([PYTHON, "-m", ANSWERING[0]], env={**os.environ, **given})
        self.link, _ = self.listener.accept()
        self.link.settimeout(SECONDS)
        (size,) = struct.unpack("!i", self.link.recv(4, socket.MSG_WAITALL))
        assert self.link.recv(size, socket.MSG_WAITALL) == b"s3"
        self.link.sendall(struct.pack("!i", 2) + b"ok")
        (self.pid,) = struct.unpack("!i", self.link.recv(4, socket.MSG_WAITALL))

    def close(self) -> None:
        """Ask nothing more."""
        self.link.close()
        self.listener.close()
        self.worker.kill()
        self.worker.wait()

    def say_another_python(self) -> bytes:
        """The version that Spark was built for, as the first thing it says; what the worker answers."""
        self.link.sendall(struct.pack("!i", 3) + b"9.9")
        return self.link.recv(4, socket.MSG_WAITALL)


def test_workers_are_forked_one_after_the_other_and_the_server_ends_with_who_started_it(tmp_path: Path) -> None:
    path = tmp_path / "server"
    with server(path) as process:
        for _ in range(2):
            with closing(Jvm(path)) as jvm:
                assert jvm.pid == jvm.worker.pid
                assert jvm.say_another_python(), "the forked worker answers: this is another Python than its own"
                jvm.link.close()
                assert jvm.worker.wait(SECONDS) != 0
            assert process.poll() is None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(SECONDS) == 0


def test_a_worker_that_spark_ends_takes_what_was_forked_for_it_along(tmp_path: Path) -> None:
    path = tmp_path / "server"
    with server(path) as process, closing(Jvm(path)) as jvm:
        forked = wait_for_children(process.pid, 1)
        jvm.worker.terminate()
        jvm.worker.wait(SECONDS)
        assert wait_for_children(process.pid, 0) == []
        assert len(forked) == 1
        assert jvm.link.recv(1) == b"", "nobody holds the connection any more"


@pytest.mark.parametrize("there", [False, True])
def test_without_a_server_a_worker_does_it_all_itself(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "server"
    if there:  # one that is no more
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(str(path))
    with closing(Jvm(path)) as jvm:
        assert jvm.say_another_python()


class Daemon:
    """What Spark does to fork workers: it starts a process, hears its port, and asks there for workers."""

    def __init__(self, path: Path) -> None:
        given = {"HEADGATE_PYTHON": sys.executable, "PYTHON_WORKER_FACTORY_SECRET": "s3", SERVER: str(path)}
        self.process = subprocess.Popen(
            [PYTHON, "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **given},
        )
        assert self.process.stdout is not None
        (self.port,) = struct.unpack("!i", self.process.stdout.read(4))

    def worker(self) -> tuple[socket.socket, int]:
        """A connection to a new worker, and its process id."""
        link = socket.create_connection(("127.0.0.1", self.port), SECONDS)
        (pid,) = struct.unpack("!i", link.recv(4, socket.MSG_WAITALL))
        link.sendall(struct.pack("!i", 2) + b"s3")
        (size,) = struct.unpack("!i", link.recv(4, socket.MSG_WAITALL))
        assert link.recv(size, socket.MSG_WAITALL) == b"ok"
        return link, pid

    def close(self) -> None:
        """As the JVM's end does."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(SECONDS)


def test_what_forks_workers_is_forked_itself_and_ends_with_its_workers(tmp_path: Path) -> None:
    path = tmp_path / "server"
    with server(path) as process:
        for end in (lambda one: one.process.terminate(), lambda one: None):
            with closing(Daemon(path)) as daemon:
                (forked,) = wait_for_children(process.pid, 1)
                link, worker = daemon.worker()
                assert wait_for_children(int(forked), 1) == [str(worker)]
                end(daemon)
            assert link.recv(1) == b"", "the worker is gone"
            link.close()
            assert wait_for_children(process.pid, 0) == []


def test_without_a_server_what_forks_workers_is_what_spark_asked_for(tmp_path: Path) -> None:
    with closing(Daemon(tmp_path / "server")) as daemon:
        link, worker = daemon.worker()
        assert wait_for_children(daemon.process.pid, 1) == [str(worker)]
        link.close()


def wait_for_children(pid: int, count: int) -> list[str]:
    """The processes that a process has forked, once there are so many."""
    end = time.monotonic() + SECONDS
    while True:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if len(found) == count:
            return found
        assert time.monotonic() < end, found
        time.sleep(0.01)
