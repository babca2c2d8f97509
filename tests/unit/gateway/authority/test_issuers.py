"""Following another domain: its revocations count here, its silence takes away, and hearing it again heals."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from headgate.gateway.authority.issuers import ask
from headgate.model.changes import AddRule, SetConnect
from headgate.model.errors import BadStatement
from headgate.model.rights import Action, Rule
from headgate.model.state import State
from headgate.node.config import IssuerSettings
from headgate.trust.keys import PrivateKey
from strategies.presenting import Visitor, certificate, network, now, types
from strategies.serving import SALE, Served, eventually, serving


class Relay:
    """A network between two domains, which can be cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._held: list[socket.socket] = []
        self.whole = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                came, _ = self._listener.accept()
                if not self.whole:
                    came.close()
                    continue
                gone = socket.create_connection(("127.0.0.1", self._to))
                self._held += [came, gone]
                for a, b in ((came, gone), (gone, came)):
                    threading.Thread(target=_pump, args=(a, b), daemon=True).start()

    def cut(self) -> None:
        self.whole = False
        for one in self._held:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        self._listener.close()


def _pump(a: socket.socket, b: socket.socket) -> None:
    with suppress(OSError):
        while data := a.recv(65_536):
            b.sendall(data)
    with suppress(OSError):
        b.shutdown(socket.SHUT_RDWR)


def state(served: Served) -> State:
    return served.domain.ledger.state()


def broker(served: Served) -> PrivateKey:
    return served.gateway.broker


def root(served: Served) -> PrivateKey:
    return PrivateKey.load(served.gateway.files.admin_key)


@contextmanager
def following(directory: Path, key: str, url: str) -> Iterator[Served]:
    """A domain that follows another."""
    tables = f'\n[[issuers]]\nname = "met"\nkey = "{key}"\nurl = "{url}"\n'
    with serving(directory, tables, authority__heartbeat="1s") as served:
        served.commit(SetConnect(False))
        yield served


@contextmanager
def met(directory: Path) -> Iterator[Served]:
    with serving(directory, authority__heartbeat="1s") as served:
        yield served


def take_back(served: Served, id: str) -> None:
    admin = Visitor(served, root(served))
    assert admin.connect().status_code == 201
    assert admin.ask("POST", f"/v1/certificates/{id}/revoke").status_code == 200


def test_a_revocation_there_takes_rights_away_here_and_heartbeats_make_no_versions(tmp_path: Path) -> None:
    with met(tmp_path / "met") as theirs:
        issuer = broker(theirs)
        with following(tmp_path / "pito", issuer.public.did, f"http://127.0.0.1:{theirs.port}") as ours:
            eventually(lambda: issuer.public.did in state(ours).lists)
            smith = Visitor(ours)
            link = certificate(root(ours), issuer.public.did, network(), types(SALE, "publish"), delegate=True)
            given = certificate(issuer, smith.key, network(), types(SALE, "publish"), id="smith", freshness=3600)
            came = smith.connect(link, given)
            assert came.status_code == 201, came.text
            assert smith.publish(SALE, "a", amount=1.0).status_code == 200
            version = state(ours).version
            heard = ours.gateway.register.heard_at()[issuer.public.did]
            eventually(lambda: ours.gateway.register.heard_at()[issuer.public.did] > heard + timedelta(seconds=2))
            assert state(ours).version == version, "signs of life that nothing needs"
            take_back(theirs, "smith")
            eventually(lambda: state(ours).version > version)
            assert state(ours).version == version + 1
            assert smith.did not in state(ours).bags or "smith" not in str(state(ours).bags[smith.did])
            assert smith.ask("GET", "/v1/types").json()["code"] == "connect-denied"
            text = ours.metrics()
            assert "headgate_revocations_heard_total 2.0" in text
            assert 'headgate_issuer_silence_seconds{issuer="met"}' in text
            assert "headgate_certificates 1.0" in text
            assert ours.http.get("/health").json()["status"] == "ok"


def test_a_silent_issuer_is_unknown_and_heals_when_it_is_heard_again(tmp_path: Path) -> None:
    with met(tmp_path / "met") as theirs, closing(Relay(theirs.port)) as network_between:
        issuer = broker(theirs)
        with following(tmp_path / "pito", issuer.public.did, f"http://127.0.0.1:{network_between.port}") as ours:
            eventually(lambda: issuer.public.did in state(ours).lists)
            ours.commit(AddRule(Rule("here", "anna", frozenset({Action.CONNECT}))))
            anna = Visitor(ours, ours.keys["anna"])
            assert anna.connect().status_code == 201
            link = certificate(root(ours), issuer.public.did, types(SALE, "publish"), delegate=True)
            given = certificate(issuer, anna.key, types(SALE, "publish"), freshness=4)
            shown = anna.show(link, given)
            assert shown.status_code == 200, shown.text
            assert anna.publish(SALE, "a", amount=1.0).status_code == 200
            begun = now()
            while now() < begun + timedelta(seconds=9):
                assert anna.publish(SALE, f"{time.monotonic_ns()}", amount=1.0).status_code == 200, (
                    "it is heard of all the time"
                )
                time.sleep(0.05)
            network_between.cut()
            eventually(lambda: anna.publish(SALE, f"{time.monotonic_ns()}", amount=1.0).status_code == 403)
            assert len(state(ours).bags["anna"]) == 2, "nothing was revoked"
            network_between.whole = True
            eventually(lambda: anna.publish(SALE, f"{time.monotonic_ns()}", amount=1.0).status_code == 200)


def test_an_issuer_that_cannot_be_reached_is_told_in_health_and_by_asking(tmp_path: Path) -> None:
    key = PrivateKey.generate().public.did
    with following(tmp_path / "pito", key, "http://127.0.0.1:9") as ours:
        found = ours.http.get("/health").json()
        assert found == {"status": "degraded", "reasons": ["the issuer met has not been heard"]}
        assert 'headgate_issuer_silence_seconds{issuer="met"} -1.0' in ours.metrics()
        assert ours.gateway._issuers.silences(now()) == {"met": None}


def test_a_list_of_another_key_is_not_taken_for_the_issuers(tmp_path: Path) -> None:
    with met(tmp_path / "met") as theirs:
        url = f"http://127.0.0.1:{theirs.port}"
        settings = IssuerSettings(broker(theirs).public.did, url, "met")
        assert ask(settings, tmp_path, now()).issuer == settings.key
        other = PrivateKey.generate().public.did
        with pytest.raises(BadStatement) as refused:
            ask(IssuerSettings(other, url, "met"), tmp_path, now())
        assert refused.value.reason == "wrong-issuer"
        with following(tmp_path / "pito", other, url) as ours:
            begun = now()
            eventually(lambda: now() > begun + timedelta(seconds=2))
            assert state(ours).lists == {}
            assert ours.gateway.register.heard_at() == {}


def test_what_was_revoked_by_whoever_died_comes_into_force_at_the_next_heartbeat(tmp_path: Path) -> None:
    with met(tmp_path / "met") as served:
        own, version = broker(served).public.did, state(served).version
        begun = now()
        eventually(lambda: now() > begun + timedelta(seconds=2))
        assert (state(served).version, own in state(served).lists) == (version, False), "nothing was revoked"
        served.gateway.register.revoke("half-revoked", now())  # and then it died
        eventually(lambda: own in state(served).lists)
        assert state(served).lists[own].revoked == {"half-revoked"}
        assert state(served).version == version + 1
