"""Statements for tests, and a client that shows them: the real handshake with a gateway on loopback."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from headgate.lang import parse_condition
from headgate.model.authority import Authority, NetworkAuthority, TypeAuthority, Validity
from headgate.model.rights import Action
from headgate.trust.certificates import issue_certificate, issue_revocations
from headgate.trust.handshake import Challenge, new_nonce, plaintext_binding, prove
from headgate.trust.identities import issue_identity
from headgate.trust.keys import PrivateKey
from strategies.serving import Served


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def network(*actions: str) -> NetworkAuthority:
    return NetworkAuthority(frozenset(map(Action, actions or ("connect",))))


def types(pattern: str, *actions: str, owner: str | None = None, where: str = "true", **more: Any) -> TypeAuthority:
    return TypeAuthority(frozenset(map(Action, actions)), pattern, owner, where=parse_condition(where), **more)


def certificate(
    issuer: PrivateKey,
    subject: PrivateKey | str,
    *authority: Authority,
    delegate: bool = False,
    seconds: float | None = None,
    ago: float = 0,
    freshness: int | None = None,
    id: str | None = None,
    audience: Sequence[str] = (),
) -> str:
    begun = now() - timedelta(seconds=ago)
    until = None if seconds is None else begun + timedelta(seconds=seconds)
    return issue_certificate(
        issuer,
        subject=subject if isinstance(subject, str) else subject.public.did,
        authority=authority or (network(),),
        delegate=delegate,
        validity=Validity(begun, until),
        freshness=freshness,
        now=begun,
        id=id,
        audience=audience,
    )


def revocations(issuer: PrivateKey, number: int, *ids: str, ago: float = 0) -> str:
    return issue_revocations(issuer, number=number, revoked=ids, now=now() - timedelta(seconds=ago))


def identity(provider: PrivateKey, subject: PrivateKey, seconds: float = 600, **attributes: Any) -> str:
    validity = Validity(now(), now() + timedelta(seconds=seconds))
    return issue_identity(provider, subject=subject.public.did, attributes=attributes, validity=validity, now=now())


class Visitor:
    """Whoever has a key, at one gateway."""

    def __init__(self, served: Served, key: PrivateKey | None = None) -> None:
        self.served = served
        self.key = key or PrivateKey.generate()
        self.token = ""

    @property
    def did(self) -> str:
        return self.key.public.did

    def proof(self) -> dict[str, Any]:
        """An answered challenge."""
        mine = new_nonce()
        told = self.served.http.post("/v1/challenges", json={"nonce": mine}).json()
        challenge = Challenge(told["nonce"], told["broker"], told["proof"], datetime.fromisoformat(told["expires"]))
        signature = prove(self.key, challenge, mine, plaintext_binding("127.0.0.1", self.served.port))
        return {"principal": self.did, "client_nonce": mine, "nonce": told["nonce"], "signature": signature}

    def connect(self, *present: str) -> httpx.Response:
        """Ask for a session, showing statements."""
        found = self.served.http.post("/v1/sessions", json={**self.proof(), "present": list(present)})
        if found.status_code == 201:
            self.token = found.json()["token"]
        return found

    def ask(self, method: str, path: str, body: object = None, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.token}", **more.pop("headers", {})}
        return self.served.http.request(method, path, json=body, headers=headers, **more)

    def show(self, *statements: str) -> httpx.Response:
        return self.ask("POST", "/v1/statements", {"statements": list(statements)})

    def publish(self, type: str, id: str = "1", requires: str | None = None, **data: Any) -> httpx.Response:
        event = {"specversion": "1.0", "id": id, "source": "s", "type": type, "data": data}
        body = event if requires is None else {**event, "requires": requires}
        return self.ask("POST", "/v1/events", body, headers={"content-type": "application/cloudevents+json"})
