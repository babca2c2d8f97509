"""Bad statements, put to a real gateway over TLS wherever one can be brought: each is refused, and nothing changes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from harness.alone import Alone
from headgate.gateway.http.operations import MAX_BODY
from headgate.model.limits import MAX_LIST_BYTES
from headgate.protocol import messages as wire
from headgate.trust.keys import PrivateKey
from headgate.trust.presented import MAX_SHOWN
from strategies.presenting import certificate, revocations
from unit.trust.test_corpus import CASES

SALE = "shop.Sale"
_ELSEWHERE = ("stale-list", "stale", "wrong-issuer", "second-successor", "later-end", "not-yet-valid")
HARMLESS = {("/v1/statements", reason) for reason in _ELSEWHERE}
"""What is bad only beside something else that is known, or at another time."""


def version(http: httpx.Client) -> int:
    return int(http.get("/v1/versions").json()["versions"][-1]["version"])


def refused(answer: httpx.Response) -> dict[str, Any]:
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text[:500])
    assert answer.headers["content-type"] == wire.PROBLEM
    told: dict[str, Any] = answer.json()
    return told


def test_no_bad_statement_is_taken_up_wherever_it_is_brought(shop: Alone, anna: str) -> None:
    with shop.http(anna) as http:
        before = version(http)
        for case in CASES:
            text = case.text
            if not text.isascii() or not text or len(text) > MAX_BODY // 2:
                continue
            for path, method, body in (
                ("/v1/statements", "POST", {"statements": [text]}),
                ("/v1/revocations", "POST", {"list": text}),
                (f"/v1/types/{SALE}", "PUT", {"statement": text}),
            ):
                found = http.request(method, path, json=body)
                if found.status_code == 200:  # good in itself, and about nobody here: there is nothing to take up
                    assert (path, case.reason) in HARMLESS, (case.name, path)
                    continue
                told = refused(found)
                assert told["code"] in {
                    "bad-statement",
                    "chain-invalid",
                    "expired",
                    "revoked",
                    "stale-list",
                    "not-found",
                    "already-exists",
                }, (case.name, path, told)
                assert ("reason" in told) == (told["code"] == "bad-statement")
        assert version(http) == before


def test_a_stranger_with_bad_statements_comes_no_further_than_one_without(shop: Alone, anna: str) -> None:
    key = PrivateKey.generate()
    with shop.http() as http, shop.http(anna) as inside:
        before = version(inside)
        for case in CASES[:: len(CASES) // 25]:
            if not case.text.isascii() or not case.text or len(case.text) > MAX_BODY // 2:
                continue
            body = shop.answered(http, key)
            body.present = [case.text]
            refused(http.post("/v1/sessions", content=wire.encode(body)))
        unsigned = shop.answered(http, key)
        unsigned.signature = "A" * 86
        unsigned.present = [certificate(PrivateKey.load(shop.files.admin_key), key)]
        assert refused(http.post("/v1/sessions", content=wire.encode(unsigned)))["code"] == "not-authenticated"
        assert version(inside) == before


def test_bags_and_lists_are_bounded(shop: Alone, anna: str) -> None:
    one = revocations(PrivateKey.generate(), 1)
    with shop.http(anna) as http:
        many = http.post("/v1/statements", json={"statements": [one] * (MAX_SHOWN + 1)})
        assert refused(many)["code"] == "bad-request"
        long = http.post("/v1/statements", json={"statements": ["x" * 450_000, "y" * 460_000]})
        assert refused(long)["code"] == "too-large"
        huge = http.post("/v1/revocations", json={"list": "x" * (MAX_LIST_BYTES + 2_000)})
        assert refused(huge)["code"] == "too-large"
        assert refused(http.post("/v1/revocations", json={"list": "x" * 4_000_000}))["code"] == "bad-statement"


def test_who_follows_is_bounded_by_address(shop: Alone) -> None:
    accept = {"accept": wire.EVENT_STREAM}
    with shop.http() as http:
        held: list[tuple[httpx.Response, Any]] = []
        try:
            for _ in range(16):
                one = http.send(http.build_request("GET", "/v1/revocations/stream", headers=accept), stream=True)
                assert one.status_code == 200
                lines = one.iter_lines()
                assert next(lines) == ": open"
                held.append((one, lines))
            assert refused(http.get("/v1/revocations/stream", headers=accept))["code"] == "too-many"
        finally:
            for one, _ in held:
                one.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/statements", {"statements": "text"}),
        ("/v1/statements", {"statements": [""]}),
        ("/v1/statements", {}),
        ("/v1/certificates", {"seconds": 0}),
        ("/v1/certificates", {"seconds": "1"}),
        ("/v1/certificates", {"rule": ""}),
        ("/v1/certificates", {"audience": ["x"] * 17}),
        ("/v1/identity", {"audience": "x"}),
        ("/v1/identity/guest", {"statement": "x"}),
        ("/v1/revocations", {"list": ""}),
    ],
)
def test_requests_of_another_shape_are_refused(shop: Alone, anna: str, path: str, body: object) -> None:
    with shop.http(anna) as http:
        assert refused(http.post(path, json=body))["code"] == "bad-request"
