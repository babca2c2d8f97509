"""Transport: what is slow, half, smuggled, packed or aimed elsewhere is closed or refused, and costs others nothing."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import zlib
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from websockets.exceptions import InvalidHandshake, InvalidStatus

from harness.alone import Alone, Socket, answer_of, head, wait
from harness.attack import MANY, SALE, event, fresh, person, publish, refused
from headgate.gateway.http.connection_limits import MAX_HEAD_BYTES
from headgate.gateway.http.operations import PROTOCOL
from headgate.protocol import messages as wire
from headgate.trust.tls import client_context

IMPATIENT = 1
"""The gateway of the south that gives up on slow clients soon."""


def kept(made: Alone, publisher: str) -> list[str]:
    return [one.id for one in made.domain.events() if one.publisher == publisher]


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def answers(data: bytes) -> list[int]:
    """The statuses of all answers in what came back."""
    return [int(one[:3]) for one in data.split(b"HTTP/1.1 ")[1:]]


# -- slow ---------------------------------------------------------------------------------------------------------


def closed(connection: socket.socket) -> bool:
    """Has the other end closed, without an answer?"""
    connection.settimeout(60)
    try:
        return connection.recv(65_536) == b""
    except OSError:
        return True


def test_a_head_that_comes_byte_by_byte_is_not_waited_for(world: Any, south: Alone) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(south.connected(IMPATIENT)) for _ in range(20)]
        whole = head("/v1/types", "x", method="GET")
        for one in slow:
            one.sendall(whole[:10])
        with suppress(OSError):
            for n in range(10, 40):
                for one in slow:
                    one.sendall(whole[n : n + 1])
                world.neighbours[1].publish(IMPATIENT) if n == 20 else None
        world.neighbours[1].publish(IMPATIENT)
        assert all(closed(one) for one in slow)
    found = south.gateways[IMPATIENT]
    wait(lambda: found.open_files() < 200, "the end of the slow connections")


def test_a_body_that_hardly_comes_is_given_up_and_nothing_of_it_is_kept(world: Any, south: Alone) -> None:
    name = person(south, "slow", ("publish", SALE))
    token, body = south.token(name), json.dumps(event(fresh("slow"))).encode()
    lines = (f"content-type: {wire.EVENT_JSON}", f"content-length: {len(body)}")
    with ExitStack() as stack:
        slow = [stack.enter_context(south.connected(IMPATIENT)) for _ in range(10)]
        for one in slow:
            one.sendall(head("/v1/events", token, *lines) + body[:-5])
        chunked = stack.enter_context(south.connected(IMPATIENT))
        chunked.sendall(head("/v1/events", token, lines[0], "transfer-encoding: chunked") + b'5\r\n{"spe\r\n')
        world.neighbours[1].publish(IMPATIENT)
        assert all(closed(one) for one in [*slow, chunked])
    assert kept(south, name) == []
    with south.http(token, IMPATIENT) as http:
        assert publish(http, event()).json()["status"] == "accepted"


def test_silent_and_half_shaken_connections_are_closed(world: Any, south: Alone) -> None:
    """Before TLS, in the middle of its handshake, and after it."""
    address = ("127.0.0.1", south.gateways[IMPATIENT].port)
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(100)]
        half = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(20)]
        for one in half:
            one.sendall(b"\x16\x03\x01\x02\x00\x01")
        shaken = [stack.enter_context(south.connected(IMPATIENT)) for _ in range(20)]
        world.neighbours[1].publish(IMPATIENT)
        assert all(closed(one) for one in [*silent, *half, *shaken])
        world.neighbours[1].publish(IMPATIENT)


def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(north: Alone) -> None:
    """The connection is cut after part of a batch, and right after all of it: kept whole or not at all."""
    name = person(north, "cut", ("publish", SALE))
    token = north.token(name)
    batches = [[event(f"{name}-{n}-{m}") for m in range(20)] for n in range(6)]
    for n, batch in enumerate(batches):
        body = json.dumps(batch).encode()
        lines = (f"content-type: {wire.BATCH_JSON}", f"content-length: {len(body)}")
        with north.connected() as connection:
            connection.sendall(head("/v1/events", token, *lines) + (body if n % 2 else body[:-1]))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    with north.http(token, 1) as http:
        assert publish(http, event(f"{name}-last")).json()["status"] == "accepted"
    found = set(kept(north, name))
    for n, batch in enumerate(batches):
        there = {one["id"] for one in batch} & found
        assert len(there) in ((0,) if n % 2 == 0 else (0, 20))


# -- heads --------------------------------------------------------------------------------------------------------

LONG = "x" * (MAX_HEAD_BYTES + 2_000)
LARGE_HEADS = {
    "one line": lambda token: head("/v1/types", token, f"x-long: {LONG}", method="GET"),
    "many lines": lambda token: head("/v1/types", token, *(f"x-{n}: {'y' * 50}" for n in range(1_300)), method="GET"),
    "a path": lambda token: head(f"/v1/types/{LONG}", token, method="GET"),
    "a token": lambda _: head("/v1/types", LONG, method="GET"),
    "after the body": lambda token: (
        head("/v1/statements", token, "transfer-encoding: chunked")
        + b"2\r\n{}\r\n0\r\nx-long: "
        + LONG.encode()
        + b"\r\n\r\n"
    ),
}


@pytest.mark.parametrize("how", LARGE_HEADS)
@pytest.mark.parametrize("size", ["in one read", "in many"])
def test_a_head_past_the_limit_is_refused_however_it_arrives(north: Alone, how: str, size: str) -> None:
    token = north.token("dora")
    data = LARGE_HEADS[how](token)
    with north.connected() as connection:
        with suppress(OSError):
            if size == "in one read":
                connection.sendall(data)
            else:
                for n in range(0, len(data), 997):
                    connection.sendall(data[n : n + 997])
        answer = answer_of(connection)
    assert status(answer) in ({400, 431} if how == "after the body" else {431, 0}), answer[:200]
    assert b'"types"' not in answer


SMUGGLED = b"DELETE /v1/sessions/current HTTP/1.1\r\nhost: x\r\nauthorization: Bearer @\r\n\r\n"
SMUGGLING: dict[str, list[str]] = {
    "a length and chunks": ["content-length: 0", "transfer-encoding: chunked"],
    "chunks and a length": ["transfer-encoding: chunked", "content-length: 0"],
    "two lengths": ["content-length: 0", "content-length: 80"],
    "two lengths in one line": ["content-length: 0, 80"],
    "a length with a sign": ["content-length: +0"],
    "a length in hex": ["content-length: 0x0"],
    "a folded line": ["x-a: b", " transfer-encoding: chunked", "content-length: 0"],
    "a folded length": ["content-length:", " 0"],
    "a space before the colon": ["transfer-encoding : chunked", "content-length: 0"],
    "another coding": ["transfer-encoding: xchunked", "content-length: 0"],
    "a coding after chunks": ["transfer-encoding: chunked, identity", "content-length: 0"],
    "a coding twice": ["transfer-encoding: chunked", "transfer-encoding: identity"],
    "a tab before the coding": ["transfer-encoding:\x0bchunked", "content-length: 0"],
}


@pytest.mark.parametrize("how", SMUGGLING)
def test_no_request_is_smuggled_in_the_body_of_another(north: Alone, how: str) -> None:
    """What a proxy may read as one request is never two here: it is refused, and the connection ends."""
    victim = north.token(person(north, "victim"))
    token = north.token(person(north, "smuggler"))
    inner = SMUGGLED.replace(b"@", victim.encode())
    body = b"0\r\n\r\n" + inner
    with north.connected() as connection, suppress(OSError):
        connection.sendall(head("/v1/statements", token, *SMUGGLING[how]) + body)
        connection.settimeout(60)
        found = answer_of_first(connection)
        assert 204 not in answers(found), found[:400]
        assert 200 not in answers(found), found[:400]
    with north.http(victim, 1) as http:
        assert http.get("/v1/sessions/current").status_code == 200


def answer_of_first(connection: ssl.SSLSocket) -> bytes:
    """What comes back until it ends, or nothing has come for a while."""
    found = b""
    connection.settimeout(0.5)
    with suppress(OSError):
        while piece := connection.recv(65_536):
            found += piece
    return found


PATHS = {
    "up": "/v1/../v1/subscriptions",
    "up and out": "/v1/../../etc/passwd",
    "encoded up": "/v1/%2e%2e/%2e%2e/etc/passwd",
    "encoded slash": "/v1%2fsubscriptions",
    "encoded twice": "/v1/%252e%252e/keys",
    "backslashes": "/v1\\..\\keys",
    "a null": "/v1/subscriptions%00.json",
    "a semicolon": "/v1/subscriptions;/..;/keys",
    "two slashes": "//v1//subscriptions",
    "a dot": "/v1/./subscriptions/.",
    "overlong": "/v1/%c0%ae%c0%ae/keys",
    "full width": "/v1/%ef%bc%8e%ef%bc%8e/keys",
    "another host": "https://evil.example/v1/subscriptions",
    "a file": "/keys/broker.pem",
    "a scheme": "file:///etc/passwd",
}


@pytest.mark.parametrize("how", PATHS)
def test_a_path_leads_nowhere_but_where_it_says(north: Alone, how: str) -> None:
    with north.connected() as connection:
        connection.sendall(head(PATHS[how], north.token("dora"), "connection: close", method="GET"))
        answer = answer_of(connection)
    found, told = status(answer), answer.split(b"\r\n\r\n", 1)[-1]
    assert found in (400, 401, 404, 405) or (found == 200 and told == b'{"subscriptions":[]}'), answer[:300]
    assert b"root:" not in answer
    assert b"PRIVATE KEY" not in answer


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "OPTIONS", "PATCH", "get", "PUT\t", "PRI"])
def test_methods_that_are_not_offered_do_nothing(north: Alone, method: str) -> None:
    name = person(north, "method", ("subscribe", SALE))
    token = north.token(name)
    with north.http(token) as http:
        assert http.put("/v1/subscriptions/mine", json={"type": SALE}).status_code == 201
        with north.connected() as connection:
            connection.sendall(head("/v1/subscriptions/mine", token, "connection: close", method=method))
            answer = answer_of(connection)
        assert status(answer) in (400, 404, 405, 501, 0), answer[:300]
        assert b"authorization" not in answer.lower(), "nothing is echoed"
        assert http.get("/v1/subscriptions/mine").status_code == 200


# -- packed -------------------------------------------------------------------------------------------------------

BOMB = b"[" + b" " * 30_000_000 + b"]"
PACKED = {
    "gzip": ("gzip", lambda: gzip.compress(BOMB, 1)),
    "deflate": ("deflate", lambda: zlib.compress(BOMB, 1)),
    "gzip in gzip": ("gzip, gzip", lambda: gzip.compress(gzip.compress(BOMB, 1), 1)),
    "said to be zstd": ("zstd", lambda: b"\x28\xb5\x2f\xfd" + bytes(100)),
    "said to be brotli": ("br", lambda: bytes(100)),
}


@pytest.mark.parametrize("how", PACKED)
def test_packed_bodies_are_not_unpacked(north: Alone, how: str) -> None:
    coding, pack = PACKED[how]
    body = pack()
    name = person(north, "bomb", ("publish", SALE))
    before = north.gateway.resident
    with north.http(north.token(name)) as http:
        headers = {**MANY, "content-encoding": coding}
        refused(http.post("/v1/events", content=body, headers=headers), "bad-request", "unsupported-media-type")
        refused(
            http.put("/v1/subscriptions/x", content=body, headers={"content-encoding": coding}),
            "bad-request",
            "unsupported-media-type",
        )
        good = gzip.compress(json.dumps(event()).encode())
        told = http.post(
            "/v1/events", content=good, headers={"content-type": wire.EVENT_JSON, "content-encoding": "gzip"}
        )
        refused(told, "bad-request", "unsupported-media-type")
    assert north.gateway.resident - before < 40 * 2**20
    assert kept(north, name) == []


# -- sockets ------------------------------------------------------------------------------------------------------


@pytest.fixture
def upgrade(north: Alone) -> Any:
    def ask(token: str | None, *protocols: str, **more: Any) -> Socket:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return Socket(
            f"wss://127.0.0.1:{north.gateway.port}/v1/socket",
            ssl=client_context(north.files.tls_certificate.read_bytes()),
            additional_headers={**headers, **more.pop("headers", {})},
            subprotocols=list(protocols) or None,
            open_timeout=60,
            close_timeout=1,
            proxy=None,
            **more,
        )

    return ask


def test_a_token_as_a_subprotocol_is_held_to_the_same_and_never_sent_back(
    north: Alone, south: Alone, upgrade: Any
) -> None:
    mine, foreign = north.token(person(north, "browser")), south.token("dora")
    for protocols in (
        (PROTOCOL, f"bearer.{foreign}"),
        (PROTOCOL, f"bearer.{mine[:-5]}AAAAA"),
        (PROTOCOL, "bearer."),
        (PROTOCOL, mine),
        (f"bearer.{foreign}", PROTOCOL),
        (PROTOCOL, f"bearer.{foreign}", f"bearer.{foreign}"),
    ):
        with pytest.raises((InvalidStatus, InvalidHandshake)) as denied, upgrade(None, *protocols):
            pass
        if isinstance(denied.value, InvalidStatus):
            assert denied.value.response.status_code in (400, 401)
            assert mine not in str(denied.value.response.headers)
    with upgrade(None, PROTOCOL, f"bearer.{mine}") as opened:
        assert opened._connection.subprotocol == PROTOCOL


def test_an_unknown_subprotocol_or_version_is_not_spoken(north: Alone, upgrade: Any) -> None:
    token = north.token("dora")
    for protocols in (("headgate.v0",), ("headgate.v2", "mqtt"), ("HEADGATE.V1",)):
        with suppress(InvalidStatus, InvalidHandshake), upgrade(token, *protocols) as opened:
            assert opened._connection.subprotocol is None
    lines = ("upgrade: websocket", "connection: upgrade", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==")
    for wrong in ("sec-websocket-version: 8", "sec-websocket-version: 13\r\nsec-websocket-version: 8", "x: y"):
        with north.connected() as connection:
            connection.sendall(head("/v1/socket", token, *lines, wrong, method="GET"))
            assert status(connection.recv(65_536)) in (400, 426)


def test_another_site_gets_nothing_through_a_browser(north: Alone, upgrade: Any) -> None:
    """No cookie counts, no origin is allowed, and what a form can send is not read."""
    token = north.token("dora")
    site = {"origin": "https://evil.example"}
    with pytest.raises(InvalidStatus) as denied, upgrade(None, PROTOCOL, headers={**site, "cookie": f"token={token}"}):
        pass
    assert denied.value.response.status_code == 401
    with north.http(token) as http:
        for method, path in (("GET", "/v1/types"), ("OPTIONS", "/v1/batches"), ("GET", "/v1")):
            asked = {**site, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
            answer = http.request(method, path, headers=asked)
            assert not [one for one in answer.headers if one.startswith("access-control-")]
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert answer.headers["x-content-type-options"] == "nosniff"
        for content in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            told = http.post("/v1/batches", content=b'{"changes": []}', headers={"content-type": content})
            refused(told, "unsupported-media-type")


def test_figures_are_not_for_everyone(north: Alone, south: Alone) -> None:
    member = north.token(person(north, "member", ("publish subscribe", SALE)))
    admin_elsewhere = south.token("administrator")
    for token in (None, member, admin_elsewhere, south.metrics_token, north.metrics_token[:-1], "x" * 3_000):
        with north.http(token) as http:
            refused(http.get("/metrics"), "not-authenticated", "govern-denied")
    with north.http() as http:
        refused(http.get("/metrics", params={"token": north.metrics_token}), "not-authenticated")
        refused(http.get("/metrics", headers={"cookie": f"token={north.metrics_token}"}), "not-authenticated")
    for gateway in (0, 1):
        with north.http(north.metrics_token, gateway) as http:
            assert http.get("/metrics").status_code == 200
            refused(http.get("/v1/types"), "not-authenticated")


def test_requests_in_a_row_are_answered_in_a_row_each_by_its_own_rights(north: Alone) -> None:
    """Pipelined on one connection: good, forged, good. Nothing of one counts for another."""
    good, forged = north.token("dora"), "x" * 50
    data = b"".join(head("/v1/sessions/current", token, method="GET") for token in (good, forged))
    with north.connected() as connection:
        connection.sendall(data + head("/v1/sessions/current", good, "connection: close", method="GET"))
        found = answer_of(connection)
    assert answers(found) == [200, 401, 200]
