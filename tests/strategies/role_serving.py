"""A small office with role services, at a real gateway: what tests of roles over HTTP share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import (
    AddMember,
    DeclareGroup,
    DeclarePrincipal,
    SetKey,
    SetRolefile,
)
from headgate.model.state import ADMINISTRATOR, State
from headgate.trust.keys import PrivateKey
from strategies.serving import Served, serving

CONF = """
def Member(u) u : String
Chair(u) <- Login.LoggedOn(u, h)* : (u in chairs)*
Member(u) <- Login.LoggedOn(u, h)* <|* Chair(c)
Guest(u) <- Login.LoggedOn(u, h)* |>* Chair
Speaker(u) <- Member(u)* & Login.LoggedOn(u, h)
Note(r) <- Login.LoggedOn(u, h) : r = {rw}
"""
PEOPLE = ("carl", "dora", "erik")
NAMES = ("anna", "bob", *PEOPLE)


class Office:
    """A gateway whose domain has the services Login (which has no rolefile) and Conf."""

    def __init__(self, served: Served) -> None:
        self.served = served

    @property
    def state(self) -> State:
        return self.served.domain.ledger.state()

    def ask(self, who: str, method: str, path: str, body: object = None, **more: Any) -> httpx.Response:
        return self.served.ask(who, method, f"/v1/roles{path}", body, **more)

    def post(self, who: str, path: str, **body: Any) -> httpx.Response:
        return self.ask(who, "POST", path, body)

    def made(self, who: str, path: str, **body: Any) -> dict[str, Any]:
        """What comes of a request that must succeed."""
        found = self.post(who, path, **body)
        assert found.status_code in (200, 201), found.text
        told: dict[str, Any] = found.json()
        return told

    def denied(self, who: str, path: str, **body: Any) -> tuple[str, str | None]:
        """The class and the reason of a refusal of a role."""
        return denial(self.post(who, path, **body))

    def log_on(self, who: str, host: str = "ely", **more: Any) -> dict[str, Any]:
        """Let someone be logged on; the membership."""
        told = self.made(ADMINISTRATOR, "/Login/grant", role="LoggedOn", args=[who, host], to=who, **more)
        (one,) = told["memberships"]
        return {**one, "certificate": told.get("certificate")}

    def enter(self, who: str, role: str, **more: Any) -> dict[str, Any]:
        """Enter a role of Conf; the membership, with its certificate."""
        told = self.made(who, "/Conf/enter", role=role, **more)
        (one,) = told["memberships"]
        return {**one, "certificate": told.get("certificate")}

    def holds(self, who: str, role: str) -> bool:
        return any(one.role == role for one in self.state.roles.held_by(who))

    def leave(self, who: str, id: str) -> httpx.Response:
        return self.ask(who, "DELETE", f"/memberships/{id}")


def denial(answer: httpx.Response) -> tuple[str, str | None]:
    told = answer.json()
    assert (answer.status_code, told["code"]) == (403, "role-denied"), answer.text
    return told["failure"], told.get("reason")


@contextmanager
def office(directory: Path, **settings: str) -> Iterator[Office]:
    """Serve the office."""
    with serving(directory, **settings) as served:
        open_office(served)
        yield Office(served)


def open_office(served: Served) -> None:
    """Give a served domain its people and rolefile."""
    keys = {name: PrivateKey.generate() for name in PEOPLE}
    assert isinstance(served.keys, dict)
    served.keys.update(keys)
    served.keys[ADMINISTRATOR] = PrivateKey.load(served.gateway.files.admin_key)
    served.commit(
        *(DeclarePrincipal(name) for name in PEOPLE),
        *(SetKey(name, key.public.did) for name, key in keys.items()),
        DeclareGroup("chairs"),
        AddMember("chairs", "anna"),
        AddMember("chairs", "bob"),
        SetRolefile("Conf", parse_rolefile(CONF)),
    )
