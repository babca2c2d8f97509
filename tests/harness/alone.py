"""Gateways alone: real processes of a real domain over TLS, with the pipeline in process instead of Spark.

Guarantees: what is started is stopped, by its own process id. Waiting is bounded.
Leaves out: the supervisor and the Spark process (`harness.node`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
from websockets.asyncio.client import ClientConnection, connect

from harness.node import free_ports
from headgate.cli.node.init import make_domain
from headgate.gateway.http.operations import PROTOCOL
from headgate.lang import parse_condition
from headgate.model.changes import AddRule, Batch, Change, DeclarePrincipal, SetKey
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.node.config import Files
from headgate.node.domain import Domain
from headgate.pipeline.spark.ledger_tail import LedgerTail
from headgate.protocol import messages as wire
from headgate.trust.handshake import Challenge, new_nonce, prove
from headgate.trust.keys import PrivateKey
from headgate.trust.tls import certificate_of, client_context, fingerprint
from strategies.deciding import Decider

READY_SECONDS = 180.0
"""How long a gateway may take to start on a busy machine."""
STOP_SECONDS = 20.0
ANSWER_SECONDS = 60.0
DECIDE_SECONDS = 0.05
VERSIONS_TOGETHER = 4
"""Tests make many versions, which nobody waits for until there is an event: they are decided every so many looks."""
T = TypeVar("T")


@dataclass
class Process:
    """One gateway process."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    _read: int = 0
    """Bytes of the log that were looked at."""
    _faults: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def resident(self) -> int:
        """Bytes of memory that the process has, as the kernel counts them."""
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        """How many files and sockets it holds."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def sockets(self) -> frozenset[str]:
        """The sockets it holds, each by a name that no other has."""
        held = set()
        for one in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed in this moment
                held.add(str(one.readlink()))
        return frozenset(name for name in held if name.startswith("socket:"))

    def faults(self) -> list[dict[str, Any]]:
        """What it has logged as an error. Each line is read once: every test asks, and every request is a line."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # the rest of it is still to come
                self._read += len(line)
                with suppress(ValueError):  # on a full disk, a line may be cut off
                    told = json.loads(line.decode(errors="replace"))
                    self._faults += [told] if told["level"] == "error" else []
        return list(self._faults)

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


class Socket:
    """A WebSocket for tests that do one thing after another, on an event loop of its own."""

    def __init__(self, url: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self._connection = self._do(_open(url, options))
        except BaseException:
            self._end()
            raise

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_SECONDS)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def send(self, data: str | bytes | Iterable[str]) -> None:
        """Send a frame, or one in fragments."""
        self._do(self._connection.send(data))

    def recv(self) -> str | bytes:
        """The next frame."""
        return self._do(self._connection.recv())

    def close(self) -> None:
        """End the connection, if it has not ended."""
        try:
            self._do(self._connection.close())
        finally:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failed: object) -> None:
        self.close()


async def _open(url: str, options: Mapping[str, Any]) -> ClientConnection:
    return await connect(url, **options)


@dataclass
class Alone:
    """A domain in a directory, and its gateways."""

    directory: Path
    gateways: list[Process] = field(default_factory=list)
    name: str = "example"

    @property
    def files(self) -> Files:
        return Files(self.directory)

    @property
    def gateway(self) -> Process:
        return self.gateways[0]

    @property
    def binding(self) -> str:
        """What the handshake of this domain is bound to."""
        return fingerprint(certificate_of(self.files.tls_certificate))

    # -- making -----------------------------------------------------------------------------------------------

    def key(self, name: str) -> PrivateKey:
        """The key of a principal, made if there is none."""
        path = self.files.keys / f"{name}.pem"
        if not path.exists():
            PrivateKey.generate().save(path)
        return PrivateKey.load(path)

    def commit(self, *changes: Change, author: str = ADMINISTRATOR) -> int:
        """Change the policy, as another process would."""
        return self.domain.commit(Batch(author, changes))

    @cached_property
    def domain(self) -> Domain:
        """Its files, opened as by another process beside the gateways, until the domain is no longer needed."""
        return Domain.open(self.files.data)

    def close(self) -> None:
        """Stop the gateways, and let go of the files."""
        self.stop()
        if "domain" in self.__dict__:
            self.domain.close()

    def people(self, *names: str) -> list[Change]:
        """The changes that declare principals with keys."""
        keys = {name: self.key(name).public.did for name in names}
        return [*map(DeclarePrincipal, names), *(SetKey(name, key) for name, key in keys.items())]

    # -- running ----------------------------------------------------------------------------------------------

    def start(self, name: str = "g1", *, program: Sequence[str] = (), **settings: str) -> Process:
        """Start a gateway; returns when it is ready."""
        made = self.launch(name, free_ports(1), program=program, **settings)
        self.await_ready(made)
        return made

    def launch(self, name: str, port: int, *, program: Sequence[str] = (), **settings: str) -> Process:
        """Start a gateway, and do not wait for it."""
        log = self.directory / f"{name}.log"
        overrides = [
            part for key, value in settings.items() for part in ("--set", f"{key.replace('__', '.', 1)}={value}")
        ]
        module = list(program) or ["-m", "headgate.gateway.serve"]
        arguments = [str(self.directory), "--name", name, "--port", str(port), "--parent", str(os.getpid())]
        with log.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, *module, *arguments, *overrides], stdout=subprocess.PIPE, stderr=file
            )
        made = Process(name, port, process, log)
        self.gateways.append(made)
        return made

    def await_ready(self, made: Process) -> None:
        """Wait until a gateway is ready."""
        assert made.process.stdout is not None
        timer = threading.Timer(READY_SECONDS, made.process.kill)
        timer.start()
        try:
            line = made.process.stdout.readline()
        finally:
            timer.cancel()
        if b'"ready"' not in line:
            raise AssertionError(f"{made.name} did not start: {line!r}\n{made.said()}")

    def stop(self) -> None:
        """Stop every gateway."""
        while self.gateways:
            self.end(self.gateways[-1])

    def end(self, one: Process) -> None:
        """Stop one gateway."""
        self.gateways.remove(one)
        one.process.terminate()
        try:
            one.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            one.process.kill()
            one.process.wait()
        assert one.process.stdout is not None
        one.process.stdout.close()

    # -- using ------------------------------------------------------------------------------------------------

    def http(self, token: str | None = None, gateway: int = 0, **more: Any) -> httpx.Client:
        """A plain HTTP client that pins the domain's certificate."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        context = client_context(self.files.tls_certificate.read_bytes())
        return httpx.Client(
            base_url=self.gateways[gateway].url,
            verify=context,
            headers=headers,
            timeout=ANSWER_SECONDS,
            trust_env=False,
            **more,
        )

    def answered(self, http: httpx.Client, key: PrivateKey, binding: str | None = None) -> wire.SessionRequest:
        """Ask for a challenge and sign it, as whoever sees a certificate would."""
        mine = new_nonce()
        told = wire.decode(http.post("/v1/challenges", json={"nonce": mine}).content, wire.ChallengeAnswer)
        challenge = Challenge(told.nonce, told.broker, told.proof, told.expires)
        return wire.SessionRequest(
            key.public.did, mine, told.nonce, prove(key, challenge, mine, binding or self.binding)
        )

    @property
    def metrics_token(self) -> str:
        """With which the figures of the gateways are read."""
        return self.files.metrics_token.read_text().strip()

    def token(self, principal: str, gateway: int = 0) -> str:
        """A session of a principal."""
        with self.http(gateway=gateway) as http:
            answer = http.post("/v1/sessions", content=wire.encode(self.answered(http, self.key(principal))))
            assert answer.status_code == 201, answer.text
            return str(answer.json()["token"])

    def socket(self, token: str, gateway: int = 0, **more: Any) -> Socket:
        """A WebSocket of a session."""
        return Socket(
            f"wss://127.0.0.1:{self.gateways[gateway].port}/v1/socket",
            ssl=client_context(self.files.tls_certificate.read_bytes()),
            additional_headers={"authorization": f"Bearer {token}"},
            subprotocols=[PROTOCOL],
            max_size=2**26,
            open_timeout=ANSWER_SECONDS,
            close_timeout=1,
            ping_interval=None,
            proxy=None,
            **more,
        )

    @contextmanager
    def connected(self, gateway: int = 0) -> Iterator[ssl.SSLSocket]:
        """A TLS connection, to be spoken to byte by byte."""
        context = client_context(self.files.tls_certificate.read_bytes())
        with (
            socket.create_connection(("127.0.0.1", self.gateways[gateway].port), timeout=ANSWER_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            yield secured

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """While the block runs, what is published is decided, by the pipeline's own matcher in a thread."""
        over = threading.Event()

        def work() -> None:
            with ExitStack() as stack:
                domain = stack.enter_context(Domain.open(self.files.data))
                decider = Decider(domain)
                version, streams = -1, dict[str, int]()
                newest = stack.enter_context(closing(LedgerTail(domain.paths.ledger)))
                for look in itertools.count():
                    tails = {stream: tail.last for stream, tail in domain.log.tails().items()}
                    if streams != tails or (look % VERSIONS_TOGETHER == 0 and version != newest.version):
                        version, streams = newest.version, tails
                        decider.step()
                    if over.wait(DECIDE_SECONDS):
                        break
                decider.close()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def rule(id: str, who: str, may: str, type: str = "*", where: str | None = None, **more: Any) -> AddRule:
    """A rule."""
    condition = {} if where is None else {"where": parse_condition(where)}
    return AddRule(Rule(id, who, frozenset(Action(one) for one in may.split()), type, **condition, **more))


@contextmanager
def alone(directory: Path, policy: Callable[[Alone], Sequence[Change]], name: str = "example") -> Iterator[Alone]:
    """A domain with a policy; the test starts its gateways."""
    make_domain(directory, name, (), datetime.now(UTC))
    made = Alone(directory, name=name)
    made.commit(*policy(made))
    try:
        yield made
    finally:
        made.close()


def wait(ready: Callable[[], bool], what: str, seconds: float = ANSWER_SECONDS) -> None:
    """Wait for something, not for ever."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.05)


# -- byte by byte -------------------------------------------------------------------------------------------


def heard(connection: ssl.SSLSocket) -> bytes:
    """What has come back by now, if anything has."""
    connection.setblocking(False)
    try:
        return connection.recv(65_536)
    except ssl.SSLWantReadError:
        return b""
    finally:
        connection.settimeout(ANSWER_SECONDS)


def answer_of(connection: ssl.SSLSocket) -> bytes:
    """Everything that comes back until the connection ends."""
    found = b""
    try:
        while piece := connection.recv(65_536):
            found += piece
    except OSError:  # it is closed without waiting for the rest of the body
        pass
    return found


def head(path: str, token: str, *lines: str, method: str = "POST") -> bytes:
    all_lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {token}", *lines, "", ""]
    return "\r\n".join(all_lines).encode()
