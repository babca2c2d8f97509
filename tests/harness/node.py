"""A real node for tests: `headgate init`, `headgate policy apply` and `headgate up` as processes, on free ports.

Guarantees: whatever a test does, `stop` ends every process it started. Waiting is bounded.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx

from headgate.client import Client, connect
from headgate.client.gateways import Patience
from headgate.node.config import Files
from headgate.node.domain import Domain
from headgate.trust.keys import PrivateKey

HEADGATE = (str(Path(sys.executable).parent / "headgate"),)
START_SECONDS = 180.0
"""A cold Spark on a busy machine takes its time."""


def run(
    *arguments: str | Path, check: bool = True, timeout: float = 120, **more: Any
) -> subprocess.CompletedProcess[str]:
    """A command, to its end."""
    done = subprocess.run(
        [*HEADGATE, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, check=False, **more
    )
    if check and done.returncode != 0:
        raise AssertionError(f"headgate {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
    return done


_RESERVED: list[IO[bytes]] = []
"""Locked files, one for each port that this process has given out; other processes pass over them."""


def free_ports(count: int) -> int:
    """The first of some neighbouring ports that nobody uses, and that no other tests are about to use."""
    for first in range(20_000, 32_000, count):  # the system gives out those above by itself
        held: list[socket.socket] = []
        files: list[IO[bytes]] = []
        try:
            for port in range(first, first + count):
                files.append((Path(tempfile.gettempdir()) / f"headgate-tests-{port}.lock").open("ab"))
                fcntl.flock(files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.append(socket.socket())
                held[-1].bind(("127.0.0.1", port))
        except OSError:
            for file in files:
                file.close()
            continue
        finally:
            for one in held:
                one.close()
        _RESERVED.extend(files)
        return first
    raise AssertionError("no ports are free")


@dataclass
class Node:
    """A domain, and its processes while it is up."""

    directory: Path
    gateways: int = 2
    settings: Mapping[str, str] = field(default_factory=dict)
    database: str | None = None
    patience: Patience | None = None
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def files(self) -> Files:
        return Files(self.directory)

    @property
    def urls(self) -> list[str]:
        return [f"https://127.0.0.1:{self.port + n}" for n in range(self.gateways)]

    # -- making -----------------------------------------------------------------------------------------------

    def init(self, policy: Callable[[Callable[[str], str]], str] | None = None) -> None:
        """Make the domain; `policy` is given a function from a principal's name to its new key, and returns YAML."""
        run("init", self.directory, *(() if self.database is None else ("--database", self.database)))
        self.port = free_ports(self.gateways)
        if policy is not None:
            for old in self.files.policy.iterdir():
                old.unlink()
            (self.files.policy / "policy.yaml").write_text(policy(self.key))
        self.apply()

    def key(self, name: str) -> str:
        """The public key of a principal, made if there is none."""
        path = self.files.keys / f"{name}.pem"
        if not path.exists():
            PrivateKey.generate().save(path)
        return PrivateKey.load(path).public.did

    def apply(self) -> None:
        """Put the policy directory in force."""
        run("policy", "apply", self.files.policy, "--domain", self.directory, "--yes")

    # -- running ----------------------------------------------------------------------------------------------

    def start(self, *, wait: bool = True) -> None:
        """Start the node; returns when it is ready."""
        overrides = [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        arguments = ["up", str(self.directory), "--gateways", str(self.gateways), "--port", str(self.port), *overrides]
        with (self.directory / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*HEADGATE, *arguments], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until every gateway answers and the pipeline decides."""
        for n in range(self.gateways):
            self.wait(lambda n=n: self.answers(n), f"gateway {n + 1}")
        self.wait(lambda: b"pipeline ready" in (self.directory / "up.log").read_bytes(), "the pipeline")

    def answers(self, n: int) -> bool:
        """Does a gateway answer?"""
        try:
            return httpx.get(f"{self.urls[n]}/health", verify=False, timeout=5).status_code in (200, 503)
        except httpx.TransportError:
            return False

    def wait(self, ready: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
        """Wait for something, not for ever."""
        end = time.monotonic() + seconds
        while not ready():
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"the node ended while waiting for {what}:\n{self.said()}")
            if time.monotonic() > end:
                raise AssertionError(f"waited {seconds:.0f} s for {what}:\n{self.said()}")
            time.sleep(0.05)

    def said(self) -> str:
        """The end of what the node has said."""
        logs = sorted((self.directory / "logs").glob("*.log"))
        texts = [
            f"--- {one.name}\n{one.read_text(errors='replace')[-3000:]}" for one in [self.directory / "up.log", *logs]
        ]
        return "\n".join(texts)

    def pids(self) -> dict[str, int]:
        """The processes of the node by name: `pipeline`, `gateway-1`, ..."""
        assert self.process is not None
        found: dict[str, int] = {}
        for line in subprocess.run(
            ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(self.process.pid)],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.splitlines():
            pid, _, arguments = line.strip().partition(" ")
            words = arguments.split()
            if any("pipeline_process" in word for word in words):
                found["pipeline"] = int(pid)
            elif "--name" in words:
                found[words[words.index("--name") + 1]] = int(pid)
        return found

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> int | None:
        """Send a signal to one process of the node; returns its number, if it was there."""
        pid = self.pids().get(name)
        if pid is not None:
            try:
                os.kill(pid, how)
            except ProcessLookupError:
                return None
        return pid

    def stop(self) -> int | None:
        """Stop the node as Ctrl-C does; returns its exit status."""
        if self.process is None:
            return None
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise AssertionError(f"the node did not stop:\n{self.said()}") from None
        finally:
            self.process = None

    # -- using ------------------------------------------------------------------------------------------------

    def client(self, principal: str, gateways: Sequence[int] | None = None, **more: Any) -> Client:
        """A client of a principal, at all gateways or some."""
        urls = [self.urls[n] for n in (range(self.gateways) if gateways is None else gateways)]
        if self.patience is not None:
            more = {"requests": self.patience, "sockets": self.patience, **more}
        return connect(
            urls,
            self.files.keys / f"{principal}.pem",
            broker=PrivateKey.load(self.files.broker_key).public.did,
            certificate=self.files.tls_certificate,
            **more,
        )

    @contextmanager
    def domain(self) -> Iterator[Domain]:
        """The domain's files, beside the node."""
        with Domain.open(self.files.data) as opened:
            yield opened


@contextmanager
def running(
    directory: Path,
    policy: Callable[[Callable[[str], str]], str] | None = None,
    gateways: int = 2,
    *,
    database: str | None = None,
    patience: Patience | None = None,
    **settings: str,
) -> Iterator[Node]:
    """A node that is up while the block runs; `patience` is that of its clients."""
    overrides = {key.replace("__", "."): value for key, value in settings.items()}
    node = Node(directory, gateways, overrides, database, patience)
    node.init(policy)
    node.start()
    try:
        yield node
    finally:
        if node.process is not None:
            try:
                node.stop()
            finally:
                if node.process is not None:
                    os.killpg(node.process.pid, signal.SIGKILL)


def lines(text: str) -> list[Any]:
    """NDJSON as values."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]
