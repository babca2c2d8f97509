"""Two domains as processes of their own, with a connection between them that can be cut.

`there` has the role service Login, whose roles count `here`, where whoever is logged on may publish. Guarantees: what
is started is stopped, by its own process id; waiting is bounded.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.alone import Alone, Process, rule, wait
from headgate.cli.node.init import make_domain
from headgate.commands.peer_roles import allowing
from headgate.model.changes import (
    AddRule,
    Batch,
    DeclarePrincipal,
    DeclareType,
    EndCredential,
    GrantRole,
    SetKey,
    SetPeer,
)
from headgate.model.expressions import RoleRef
from headgate.model.rights import Action, Rule
from headgate.model.roles import Peer
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.domain import Domain
from headgate.protocol import messages as wire
from headgate.trust.keys import PrivateKey

SERVICE = "Login"
SALE = "shop.Sale"
BOUND = 2
HEARTBEAT = "300ms"
DECIDER = Path(__file__).parents[1] / "faults" / "run_role_service.py"


class Cable:
    """A way from one port to another that can be cut: connections break, and new ones are refused."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.to = 0
        self._whole = True
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to), timeout=5) if self._whole else None
            except OSError:
                far = None
            if far is None:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._ends |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        self._break((one, other))

    def _break(self, ends: Any) -> None:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        with self._lock:
            self._ends -= set(ends)

    def cut(self) -> None:
        self._whole = False
        self._break(list(self._ends))

    def mend(self) -> None:
        self._whole = True

    def close(self) -> None:
        self.cut()
        self._listening.close()


@dataclass
class Part:
    """A process beside the gateways."""

    process: subprocess.Popen[bytes]

    def end(self) -> None:
        self.process.kill()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass
class Across:
    """Both domains, their processes, and the cable between them."""

    here: Alone
    there: Alone
    cable: Cable
    bound: int = BOUND
    settings: dict[str, str] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)

    # -- processes --------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """Start parts: `here`, `there`, `follower`, `decider`; one gateway after another, as each looks for a port."""
        gateways = [name for name in ("there", "here") if name in names]
        with ThreadPoolExecutor() as threads:
            others = [threads.submit(self._start, name) for name in names if name not in gateways]
            for name in gateways:
                self._start(name)
            for one in others:
                one.result()

    def _start(self, name: str) -> None:
        assert name not in self.parts, name
        match name:
            case "here":
                self.parts[name] = self.here.start("here")
            case "there":
                self.parts[name] = self.there.start("there", roles__heartbeat=HEARTBEAT, **self.settings)
                self.cable.to = self.parts[name].port
            case "follower":
                arguments = ["-m", "headgate.gateway.roles.following", str(self.here.directory)]
                self.parts[name] = self._run(name, arguments)
            case "decider":
                self.parts[name] = self._run(name, [str(DECIDER), str(self.there.files.data), str(os.getpid())])

    def _run(self, name: str, arguments: list[str]) -> Part:
        with (self.here.directory / f"{name}.log").open("ab") as log:
            made = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, stderr=log)
        assert made.stdout is not None
        line = made.stdout.readline()
        assert b"ready" in line, (name, line, self.said())
        return Part(made)

    def signal(self, name: str, how: signal.Signals) -> None:
        os.kill(self.parts[name].process.pid, how)

    def kill(self, name: str) -> None:
        """With SIGKILL."""
        one = self.parts.pop(name)
        if isinstance(one, Process):
            one.process.kill()
            (self.here if name == "here" else self.there).end(one)
        else:
            one.end()

    def stop(self) -> None:
        for name in list(self.parts):
            with suppress(ProcessLookupError):
                self.signal(name, signal.SIGCONT)
            self.kill(name)
        self.cable.close()

    def said(self) -> str:
        logs = [*self.here.directory.glob("*.log"), *self.there.directory.glob("*.log")]
        return "\n".join(f"--- {one}\n{one.read_text(errors='replace')[-3000:]}" for one in logs)

    # -- people -----------------------------------------------------------------------------------------------

    def welcome(self, *names: str) -> None:
        """Principals of both domains, with the same key in each."""
        for name in names:
            key = self.there.key(name)
            own = self.here.files.keys / f"{name}.pem"
            own.unlink(missing_ok=True)
            key.save(own)
            declared = (DeclarePrincipal(name), SetKey(name, key.public.did), rule(f"{name} in", name, "connect"))
            self.here.commit(*declared)
            self.there.commit(*declared)

    def log_on(self, name: str, host: str = "ely") -> str:
        """Give someone the role there; the id of the membership."""
        id = f"{name} at {host}"
        self.there.commit(GrantRole(id, SERVICE, "LoggedOn", (name, host), name))
        return id

    def certificate(self, name: str, id: str) -> str:
        with self.there.http(self.there.token(name)) as http:
            answer = http.post(f"/v1/roles/{SERVICE}/renew", json={"id": id})
            assert answer.status_code == 201, answer.text
            return str(answer.json()["certificate"])

    def show(self, name: str, certificate: str) -> dict[str, Any]:
        """Show a certificate here."""
        with self.here.http(self.here.token(name)) as http:
            answer = http.post("/v1/roles/present", json={"certificate": certificate})
        return {"status": answer.status_code, **answer.json()}

    def bring(self, name: str, host: str = "ely") -> str:
        """Log someone on there and let that count here; the id of the membership there."""
        id = self.log_on(name, host)
        told = self.show(name, self.certificate(name, id))
        assert told["status"] == 201, (told, self.said())
        return id

    def revoke(self, id: str) -> datetime:
        """Revoke there; when that was done."""
        self.there.commit(EndCredential(id))
        return datetime.now(UTC)

    # -- rights here ------------------------------------------------------------------------------------------

    def state(self) -> State:
        with Domain.open(self.here.files.data) as domain:
            return domain.ledger.state()

    def holds(self, name: str) -> bool | None:
        """Does someone hold the role here? None if that is unknown."""
        held = [one for one in self.state().roles.memberships.values() if one.holder == name]
        if not held:
            return False
        return True if any(one.state is True for one in held) else None


@contextmanager
def across(directory: Path, bound: int = BOUND, **settings: str) -> Iterator[Across]:
    """Two domains that know each other; nothing runs yet."""
    for name in ("here", "there"):
        make_domain(directory / name, name, (), datetime.now(UTC))
    here, there = Alone(directory / "here"), Alone(directory / "there")
    cable = Cable()
    _prepare(here, there, cable, bound)
    made = Across(here, there, cable, bound, dict(settings))
    try:
        yield made
    finally:
        made.stop()
        here.close()
        there.close()


def _prepare(here: Alone, there: Alone, cable: Cable, bound: int) -> None:
    ours, theirs = (PrivateKey.load(one.files.broker_key).public.did for one in (here, there))
    there.commit(DeclarePrincipal("cl"), SetKey("cl", ours), rule("cl in", "cl", "connect"))
    with Domain.open(there.files.data) as domain:
        domain.commit(Batch(ADMINISTRATOR, allowing(domain.ledger.state(), "cl", SERVICE)))
    here.files.peers.mkdir()
    (here.files.peers / f"{SERVICE}.crt").write_bytes(there.files.tls_certificate.read_bytes())
    here.commit(
        DeclareType(EventType(SALE, ADMINISTRATOR, {"item": Kind.STRING})),
        SetPeer(Peer(SERVICE, theirs, SERVICE, bound, f"https://127.0.0.1:{cable.port}")),
        AddRule(Rule("on", "", frozenset({Action.PUBLISH}), SALE, role=RoleRef("LoggedOn", service=SERVICE))),
    )


def publish(here: Alone, http: Any, id: str) -> bool:
    """Publish something here; was it accepted?"""
    event = {"specversion": "1.0", "id": id, "source": "s", "type": SALE, "data": {"item": "lamp"}}
    answer = http.post("/v1/events", content=json.dumps(event), headers={"content-type": wire.EVENT_JSON})
    assert answer.status_code in (200, 403), answer.text
    return bool(answer.status_code == 200)


__all__ = ["BOUND", "SALE", "SERVICE", "Across", "Cable", "across", "publish", "wait"]
