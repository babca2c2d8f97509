"""A Spark standalone cluster on this machine, of a master and workers of one core each, from PySpark's own jars."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pyspark

from headgate.node.processes import kill_session, of_session
from headgate.pipeline.spark.session import BRIEF

SPARK = Path(pyspark.__file__).parent
EXECUTOR_MEGABYTES = 512
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
Process = subprocess.Popen[bytes]


def until(what: Callable[[], bool], why: Callable[[], str], seconds: float = 300) -> None:
    """Wait for a condition, however slow the machine is."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, why()
        time.sleep(0.1)


class SparkCluster:
    """The master and its workers, until they are stopped."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        self._processes: list[Process] = []
        self._start("master", "org.apache.spark.deploy.master.Master", "--port", str(_free_port()))
        until(lambda: self._said("master", _STARTED) is not None, lambda: self._log("master"))
        found = self._said("master", _STARTED)
        assert found is not None
        self.url = found
        memory = "--memory", f"{EXECUTOR_MEGABYTES + 128}m"
        for number in range(1, workers + 1):
            place = "--work-dir", str(directory / f"work-{number}")
            self._start(
                *(f"worker-{number}", "org.apache.spark.deploy.worker.Worker"),
                *("--port", "0", "--cores", "1", *memory, *place, self.url),
            )
        until(lambda: self._log("master").count("Registering worker") >= workers, lambda: self._log("master"))
        self.workers = self._processes[1:]

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": BRIEF,
        }
        command = [str(SPARK / "bin" / "spark-class"), kind, "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        with (self.directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
            )

    def _log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def _said(self, name: str, what: re.Pattern[str]) -> str | None:
        found = what.search(self._log(name))
        return None if found is None else found[1]

    def executors(self, worker: Process) -> list[int]:
        """The executors that a worker runs now."""
        return [pid for pid in of_session(worker.pid) if _EXECUTOR in _command(pid)]

    def kill(self, worker: Process) -> None:
        """End a worker, its executors and their Python, at once."""
        kill_session(worker.pid)
        worker.wait(30)

    def stop(self) -> None:
        """End all of it."""
        for process in self._processes:
            self.kill(process)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
