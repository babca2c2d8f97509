"""Requests about roles that are malformed or hostile: each is refused with a problem document, and changes nothing."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from harness.alone import Alone
from headgate.gateway.http.operations import MAX_BODY
from headgate.model.limits import MAX_ENTERED, MAX_ROLE_ARGUMENTS, MAX_SHOWN, MAX_STATEMENT_BYTES
from headgate.protocol import messages as wire
from unit.trust.test_corpus import CASES

NESTED: Any = {"set": {"set": {"set": "rw"}}}
BODIES: dict[str, list[dict[str, Any]]] = {
    "/v1/roles/Conf/enter": [
        {},
        {"role": ""},
        {"role": 1},
        {"role": "x" * 201},
        {"role": "A", "args": "text"},
        {"role": "A", "args": [[]]},
        {"role": "A", "args": ["x"] * (MAX_ROLE_ARGUMENTS + 1)},
        {"role": "A", "with": "m1"},
        {"role": "A", "with": [""]},
        {"role": "A", "with": ["x"] * (MAX_SHOWN + 1)},
        {"role": "A", "with": ["x" * (MAX_STATEMENT_BYTES + 1)]},
        {"role": "A", "instance": "x" * 201},
        {"role": "A", "request": "short"},
        {"role": "A", "request": "not/one" * 5},
        {"role": "A", "to": "anna"},
        {"roles": []},
        {"roles": [{"role": "A"}] * (MAX_ENTERED + 1)},
        {"roles": ["A"]},
        {"role": "A", "roles": [{"role": "A"}]},
    ],
    "/v1/roles/Conf/elect": [
        {"role": "A"},
        {"role": "A", "to": []},
        {"role": "A", "to": ["B"], "anyone": True},
        {"role": "A", "to": "B"},
        {"role": "A", "anyone": "yes"},
        {"role": "A", "anyone": True, "until": "tomorrow"},
        {"role": "A", "anyone": True, "until": "2026-01-01T00:00:00"},
        {"role": "A", "anyone": True, "until": "9999-12-31T23:59:59-12:00"},
    ],
    "/v1/roles/Conf/grant": [{"role": "A"}, {"to": "anna"}, {"role": "A", "to": "anna", "args": [None]}],
    "/v1/roles/Conf/renew": [{}, {"id": "a", "certificate": "b"}, {"id": ""}, {"certificate": 1}],
    "/v1/roles/Conf/revoke": [{}, {"role": "A", "args": [[]]}, {"role": "A", "args": None}],
    "/v1/roles/Conf/reinstate": [{}, {"role": "A", "args": [[]]}],
    "/v1/roles/Conf/parse": [{}, {"text": 1}, {"text": "x" * 100_001}],
    "/v1/roles/revocations": [{}, {"id": "a", "certificate": "b"}],
    "/v1/roles/elections/e/pass": [{}, {"to": ""}],
}


def version(http: httpx.Client) -> int:
    return int(http.get("/v1/versions").json()["versions"][-1]["version"])


def refused(answer: httpx.Response) -> dict[str, Any]:
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text[:500])
    assert answer.headers["content-type"] == wire.PROBLEM
    told: dict[str, Any] = answer.json()
    assert len(answer.content) < 2_000, "a refusal repeats little of what was refused"
    return told


@pytest.mark.parametrize("path", BODIES)
def test_requests_of_another_shape_are_refused(shop: Alone, anna: str, path: str) -> None:
    with shop.http(anna) as http:
        before = version(http)
        for body in BODIES[path]:
            assert refused(http.post(path, json=body))["code"] == "bad-request", body
        for content in (b"", b"[]", b"null", b"{", b'{"role": "\xff"}', b"[" * 100_000):
            assert refused(http.post(path, content=content))["code"] == "bad-request"
        assert refused(http.post(path, content=b" " * (MAX_BODY + 1)))["code"] == "too-large"
        assert refused(http.post(path, content=b"{}", headers={"content-type": "text/plain"}))["code"] == (
            "unsupported-media-type"
        )
        assert version(http) == before


@pytest.mark.parametrize(
    "args",
    [
        [NESTED],
        [{"set": "rr"}],
        [{"set": "1"}],
        [{"float": "x"}],
        [{"timestamp": 2**70}],
        [{"bytes": "0"}],
        [{}],
        [2**70],
    ],
)
def test_arguments_that_are_none(shop: Alone, anna: str, args: list[Any]) -> None:
    with shop.http(anna) as http:
        told = refused(http.post("/v1/roles/Conf/enter", json={"role": "A", "args": args}))
        assert told["code"] in {"type-mismatch", "bad-request"}, told


def test_names_that_are_none(shop: Alone, anna: str) -> None:
    with shop.http(anna) as http:
        for service in ("a%20b", "%00", "a.b", "%C3%A9", "1", "x" * 201, "%EF%BF%BD"):
            assert refused(http.post(f"/v1/roles/{service}/enter", json={"role": "A"}))["code"] == "bad-definition"
        for instance in ("a\nb", "\u0000", "\ufb01"):
            body = {"role": "A", "instance": instance}
            assert refused(http.post("/v1/roles/Conf/enter", json=body))["code"] == "bad-definition"
        for path in ("/v1/roles/memberships/x", "/v1/roles/memberships/%00", f"/v1/roles/memberships/{'x' * 1_000}"):
            assert refused(http.delete(path))["code"] == "not-found"
        for query in ("root=x", "root=%00", f"root={'x' * 5_000}"):
            assert refused(http.get(f"/v1/roles/graph?{query}"))["code"] == "not-found"


def test_nobody_asks_without_a_session_but_for_the_keys(shop: Alone) -> None:
    with shop.http() as http:
        for path in BODIES:
            assert refused(http.post(path, json={}))["code"] == "not-authenticated"
        for path in ("/v1/roles", "/v1/roles/graph", "/v1/roles/Conf/rolefile"):
            assert refused(http.get(path))["code"] == "not-authenticated"
        assert http.get("/v1/roles/keys").status_code == 200


def test_no_other_statement_passes_for_a_certificate_about_roles(shop: Alone, anna: str) -> None:
    texts = [case.text for case in CASES if case.text.isascii() and 0 < len(case.text) <= MAX_STATEMENT_BYTES]
    with shop.http(anna) as http:
        before = version(http)
        for text in texts[:: max(1, len(texts) // 60)]:
            for path, body in (
                ("/v1/roles/Conf/enter", {"role": "A", "with": [text]}),
                ("/v1/roles/Conf/renew", {"certificate": text}),
                ("/v1/roles/revocations", {"certificate": text}),
            ):
                told = refused(http.post(path, json=body))
                assert told["code"] == "role-denied", (path, told)
                assert told["failure"] in {"fraud", "misuse", "revocation"}
        assert version(http) == before
