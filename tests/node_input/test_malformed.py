"""Requests that are broken, oversized or hostile: each is refused with a problem document, and costs little."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from harness.alone import Alone, answer_of, head, heard
from headgate.gateway.delivery.poll import MAX_AFTER
from headgate.gateway.http.operations import MAX_BODY
from headgate.model.limits import MAX_ATTRIBUTES, MAX_CLAUSES, MAX_EXPRESSION_CHARS, MAX_EXPRESSION_DEPTH
from headgate.protocol import messages as wire

SALE = "shop.Sale"
HUGE = 100 * 2**20
"""Bytes of a body that is never taken whole."""
PIECE = b"x" * 65_536
MAX_TAKEN = 40 * 2**20
"""Bytes of it that may be on their way, in the buffers of both ends and in the gateway, before it says no."""
MAX_GROWTH = 128 * 2**20
"""Bytes by which a gateway may grow over all that is done to it here."""


@pytest.fixture(scope="module", autouse=True)
def memory_stays_bounded(shop: Alone) -> Iterator[None]:
    before = shop.gateway.resident
    yield
    assert shop.gateway.resident - before < MAX_GROWTH


def refused(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    """The problem document of an answer with one of these statuses."""
    assert answer.status_code in statuses, (answer.status_code, answer.text[:500])
    assert answer.headers["content-type"] == wire.PROBLEM
    told: dict[str, Any] = answer.json()
    assert told["status"] == answer.status_code
    assert told["type"] == f"urn:headgate:problem:{told['code']}"
    assert len(answer.content) < 2_000, "a refusal repeats little of what was refused"
    return told


def event(**members: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": "1", "source": "s", "type": SALE, "data": {"item": "lamp"}, **members}


# -- JSON -------------------------------------------------------------------------------------------------------

BROKEN = {
    "nothing": b"",
    "a word": b"lamp",
    "cut off": b'{"type": "shop.Sale"',
    "not utf-8": b'{"type": "shop.\xff\xfe"}',
    "lone surrogate": b'{"type": "shop.\\ud800"}',
    "encoded surrogate": b'{"type": "shop.\xed\xa0\x80"}',
    "byte order mark": b'\xef\xbb\xbf{"type": "shop.Sale"}',
    "utf-16": '{"type": "shop.Sale"}'.encode("utf-16"),
    "two values": b'{"type": "shop.Sale"} {"type": "shop.Sale"}',
    "a comment": b'{"type": "shop.Sale" /* now */}',
    "a trailing comma": b'{"type": "shop.Sale",}',
    "not a number": b'{"type": NaN}',
    "nested too deep": b"[" * 100_000,
    "nested too deep within": b'{"type": ' + b'{"a": ' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    "a list": b'["shop.Sale"]',
    "null": b"null",
    "another member": b'{"type": "shop.Sale", "admin": true}',
    "another kind": b'{"type": 1}',
    "an empty name": b'{"type": ""}',
    "a long name": b'{"type": "' + b"x" * 201 + b'"}',
    "a huge number": b'{"type": "shop.Sale", "from": {"version": ' + b"9" * 1_000 + b"}}",
    "a huge float": b'{"type": "shop.Sale", "from": {"version": 1e999}}',
    "a negative version": b'{"type": "shop.Sale", "from": {"version": -1}}',
    "no time": b'{"type": "shop.Sale", "from": {"time": "yesterday"}}',
    "a time without a zone": b'{"type": "shop.Sale", "from": {"time": "2026-01-01T00:00:00"}}',
    "a time before all times": b'{"type": "shop.Sale", "from": {"time": "0001-01-01T00:00:00+14:00"}}',
    "a time after all times": b'{"type": "shop.Sale", "from": {"time": "9999-12-31T23:59:59-12:00"}}',
    "a version and a time": b'{"type": "shop.Sale", "from": {"version": 1, "time": "2026-01-01T00:00:00Z"}}',
    "neither": b'{"type": "shop.Sale", "from": {}}',
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_body_is_a_bad_request(shop: Alone, anna: str, how: str) -> None:
    with shop.http(anna) as http:
        for method, path in (("PUT", "/v1/subscriptions/broken"), ("POST", "/v1/subscriptions")):
            told = refused(http.request(method, path, content=BROKEN[how]), 400)
            assert told["code"] == "bad-request"
        assert http.get("/v1/subscriptions/broken").status_code == 404


@pytest.mark.parametrize(
    "content", ["text/plain", "application/xml", "multipart/form-data; boundary=x", "\xe4", ";", "x" * 9_000]
)
def test_another_content_type_is_not_read(shop: Alone, anna: str, content: str) -> None:
    raw = {"content-type": content.encode("latin-1")}
    with shop.http(anna) as http:
        told = refused(http.put("/v1/subscriptions/a", content=b"{}", headers=raw), 400, 415)  # type: ignore[arg-type]
        assert told["code"] in ("unsupported-media-type", "bad-request")
        refused(http.post("/v1/events", content=b"{}", headers=raw), 415)  # type: ignore[arg-type]


BAD_NAMES = ["%00", "a%00b", "%ED%A0%80", "%FF", "a%2Fb", "a%0Ab", "x" * 101, "%E2%80%AE", "%7F", "a%1Bb"]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("where", ["subscriptions", "reservations", "lookups", "types", "advertisements"])
def test_a_name_that_is_none_is_refused(shop: Alone, anna: str, where: str, name: str) -> None:
    bodies = {
        "subscriptions": {"type": SALE},
        "reservations": {"type": SALE, "seconds": 5},
        "lookups": {"type": SALE},
        "types": {"attributes": {"x": "int"}},
    }
    with shop.http(anna) as http:
        path = f"/v1/{where}/{name}"
        refused(http.put(path, json=bodies.get(where)), 400, 403, 404, 405, 422)
        refused(http.get(path), 400, 404, 405, 422)
        refused(http.delete(path), 400, 404, 405, 422)


def test_text_that_no_one_can_write_is_refused_or_kept_as_it_is(shop: Alone, anna: str) -> None:
    with shop.http(anna) as http:
        for text in ("\x00", "a\x00b", "\u202e", "\ufffe", "\U0010ffff", "e\u0301"):
            answer = http.put("/v1/subscriptions/odd", json={"type": SALE, "where": f"item = '{text}'"})
            if answer.status_code == 201:
                assert text in http.get("/v1/subscriptions/odd").json()["where"]
                assert http.delete("/v1/subscriptions/odd").status_code == 204
            else:
                refused(answer, 422)
            sent = http.post(
                "/v1/events", content=json.dumps(event(id=f"odd {text}", data={"item": text})), headers=ONE
            )
            assert sent.status_code in (200, 422), sent.text


# -- filters ----------------------------------------------------------------------------------------------------

ATOM = "amount = 1"
FILTERS = {
    "past its length": ATOM + " " * MAX_EXPRESSION_CHARS,
    "deep parentheses": "(" * (MAX_EXPRESSION_DEPTH + 1) + ATOM + ")" * (MAX_EXPRESSION_DEPTH + 1),
    "very deep parentheses": "(" * 4_000 + ATOM + ")" * 4_000,
    "unclosed parentheses": "(" * 9_000,
    "many nots": "not " * 2_000 + ATOM,
    "too many clauses": " and ".join(
        f"(item contains 'a{n}' or item has token 'b{n}')" for n in range(MAX_CLAUSES // 8)
    ),
    "a word": "lamp",
    "nothing": "",
    "blank": "   ",
    "an open quote": "item = 'lamp",
    "another kind": "amount = 'ten'",
    "no such attribute": "weight > 3",
    "no such group": "item in group nobody",
    "no such relation": "Knows(item)",
    "no such predicate": "predicate evil(item)",
    "a subject": "item = $rank",
    "a huge number": "amount = " + "9" * 5_000,
    "a huge power": "amount = 1e999999",
    "an odd zone": "timeofday(@time, '../../etc/passwd') > 3",
    "a long zone": f"timeofday(@time, '{'x' * 5_000}') > 3",
    "statements": "amount = 1; DROP TABLE rules",
}


@pytest.mark.parametrize("how", FILTERS)
def test_a_bad_filter_is_refused_wherever_it_is_sent(shop: Alone, anna: str, how: str) -> None:
    body = {"type": SALE, "where": FILTERS[how]}
    with shop.http(anna) as http:
        for path, more in (
            ("/v1/subscriptions/bad", {}),
            ("/v1/lookups/bad", {}),
            ("/v1/reservations/bad", {"seconds": 5}),
        ):
            refused(http.put(path, json={**body, **more}), 400, 422)
        assert http.get("/v1/subscriptions").json()["subscriptions"] == []
        assert http.get("/v1/reservations").json()["reservations"] == []


# -- events -----------------------------------------------------------------------------------------------------

ONE = {"content-type": wire.EVENT_JSON}
MANY = {"content-type": wire.BATCH_JSON}
ARROW = {"content-type": wire.ARROW}

EVENTS: dict[str, tuple[Any, int]] = {
    "no version": ({**event(), "specversion": "2.0"}, 400),
    "no id": ({**event(), "id": ""}, 400),
    "a long id": (event(id="x" * 1_001), 400),
    "data of text": (event(data="lamp"), 400),
    "binary data": (event(data_base64="AAAA"), 400),
    "other data": (event(datacontenttype="text/csv"), 400),
    "an unknown type": (event(type="shop.Ghost"), 404),
    "a type that is no name": (event(type="a\x00b"), 404),
    "another attribute": (event(data={"weight": 3}), 422),
    "text for a number": (event(data={"amount": "3"}), 422),
    "a list for text": (event(data={"item": ["lamp"]}), 422),
    "an object for text": (event(data={"item": {"a": 1}}), 422),
    "too large a number": (event(data={"count": 2**63}), 422),
    "a far larger number": (event(data={"count": 10**300}), 422),
    "no base64": (event(data={"raw": "!!"}), 422),
    "no time": (event(data={"at": "noon"}), 422),
    "a time before all times": (event(data={"at": "0001-01-01T00:00:00+14:00"}), 422),
}


@pytest.mark.parametrize("how", EVENTS)
def test_a_bad_event_is_refused_alone_and_in_a_batch(shop: Alone, anna: str, how: str) -> None:
    sent, status = EVENTS[how]
    with shop.http(anna) as http:
        refused(http.post("/v1/events", content=json.dumps(sent), headers=ONE), status)
        good = event(id=f"beside {how}")
        answer = http.post("/v1/events", content=json.dumps([good, sent]), headers=MANY)
        if answer.status_code == 200:
            first, second = answer.json()["results"]
            assert first["status"] in ("accepted", "duplicate")
            assert second["status"] == "refused"
        else:
            refused(answer, 400)  # it is no CloudEvent, so the batch is none


RAW_NUMBERS = {
    "infinite": b"1e999",
    "many digits": b"9" * 5_000,
    "a million digits": b"9" * 900_000,
    "a long fraction": b"0." + b"0" * 100_000 + b"1",
    "a huge power": b"1e" + b"9" * 1_000,
}


@pytest.mark.parametrize("how", RAW_NUMBERS)
def test_numbers_that_no_attribute_holds_are_refused(shop: Alone, anna: str, how: str) -> None:
    body = json.dumps(event(data={"count": "@"})).encode().replace(b'"@"', RAW_NUMBERS[how])
    with shop.http(anna) as http:
        refused(http.post("/v1/events", content=body, headers=ONE), 400, 422)


def test_data_that_nests_too_deep_is_refused(shop: Alone, anna: str) -> None:
    body = json.dumps(event()).replace('"lamp"', '{"a":' * 100_000 + "1" + "}" * 100_000)
    with shop.http(anna) as http:
        refused(http.post("/v1/events", content=body, headers=ONE), 400)


def test_a_batch_of_too_many_events_is_refused_whole(shop: Alone, anna: str) -> None:
    body = json.dumps([event(id=f"many {n}") for n in range(10_001)])
    with shop.http(anna) as http:
        assert refused(http.post("/v1/events", content=body, headers=MANY), 413)["code"] == "too-large"


# -- Arrow ------------------------------------------------------------------------------------------------------


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def sales(rows: int = 3) -> pa.Table:
    return pa.table({"id": [f"arrow {n}" for n in range(rows)], "item": ["lamp"] * rows, "amount": [1.5] * rows})


def test_arrow_that_is_cut_off_anywhere_is_refused(shop: Alone, anna: str) -> None:
    whole = stream(sales())
    with shop.http(anna) as http:
        for length in range(0, len(whole) - 8, max(1, len(whole) // 40)):
            answer = http.post("/v1/events", params={"type": SALE}, content=whole[:length], headers=ARROW)
            if answer.status_code == 200:  # a stream may end without a mark
                assert answer.json()["accepted"] + answer.json()["duplicates"] in (0, 3)
            else:
                refused(answer, 400, 422)


def test_arrow_with_any_byte_changed_is_answered(shop: Alone, anna: str) -> None:
    whole = stream(sales())
    with shop.http(anna) as http:
        for at in range(0, len(whole), max(1, len(whole) // 80)):
            changed = whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
            answer = http.post("/v1/events", params={"type": SALE}, content=changed, headers=ARROW)
            if answer.status_code != 200:
                refused(answer, 400, 404, 422)


BOMBS = {
    "compressed": lambda: stream(pa.table({"id": ["1"], "item": ["x" * 50_000_000]}), "zstd"),
    "many rows of nothing": lambda: stream(pa.table({"id": pa.nulls(200_000_000)})),
    "a text repeated": lambda: stream(
        pa.table(
            {
                "id": [str(n) for n in range(9_000)],
                "item": pa.DictionaryArray.from_arrays(pa.array([0] * 9_000, pa.int32()), pa.array(["x" * 900_000])),
            }
        )
    ),
    "many columns": lambda: stream(pa.table({f"c{n}": [1] for n in range(MAX_ATTRIBUTES + 100)})),
    "runs": lambda: stream(
        pa.table({"id": ["1"], "item": pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array(["x"]))})
    ),
    "lists in lists": lambda: stream(pa.table({"id": ["1"], "item": pa.array([[[[["x"]]]]])})),
    "another attribute": lambda: stream(pa.table({"id": ["1"], "weight": [1]})),
    "no id": lambda: stream(pa.table({"item": ["lamp"]})),
    "ids of numbers": lambda: stream(pa.table({"id": [1], "item": ["lamp"]})),
    "a file": lambda: b"ARROW1\0\0" + stream(sales()),
    "noise": lambda: bytes(range(256)) * 64,
    "a huge length": lambda: b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(64),
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("how", BOMBS)
def test_hostile_arrow_is_refused_before_it_is_unpacked(shop: Alone, anna: str, how: str) -> None:
    before = shop.gateway.resident
    with shop.http(anna) as http:
        answer = http.post("/v1/events", params={"type": SALE}, content=BOMBS[how](), headers=ARROW)
        refused(answer, 400, 413, 422)
    assert shop.gateway.resident - before < MAX_GROWTH


def test_arrow_without_a_type_or_with_a_strange_one_is_refused(shop: Alone, anna: str) -> None:
    with shop.http(anna) as http:
        for given in ({}, {"type": ""}, {"type": "\x00"}, {"type": "shop.Ghost"}, {"type": "x" * 5_000}):
            refused(http.post("/v1/events", params=given, content=stream(sales()), headers=ARROW), 400, 404, 422)


# -- size -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("path", "content"), [("/v1/batches", wire.JSON), ("/v1/events", wire.BATCH_JSON)])
def test_a_huge_body_is_refused_before_it_is_sent(
    shop: Alone, anna: str, path: str, content: str, chunked: bool
) -> None:
    before = shop.gateway.resident
    length = "transfer-encoding: chunked" if chunked else f"content-length: {HUGE}"
    piece = f"{len(PIECE):x}\r\n".encode() + PIECE + b"\r\n" if chunked else PIECE
    sent = 0
    with shop.connected() as connection:
        connection.sendall(head(path, anna, f"content-type: {content}", length))
        while sent < HUGE and not (begun := heard(connection)):
            connection.sendall(piece)
            sent += len(PIECE)
        answer = begun + answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 413 "), answer[:300]
    assert b'"code":"too-large"' in answer
    assert sent < MAX_TAKEN
    assert shop.gateway.resident - before < MAX_GROWTH


def test_a_body_just_past_the_limit_is_refused_and_one_below_it_is_read(shop: Alone) -> None:
    with shop.http(shop.token("dora")) as http:  # who has asked for nothing else, and so is not told to wait
        note = {"changes": [], "note": "x" * 900}
        below = json.dumps(note) + " " * (MAX_BODY - len(json.dumps(note)))
        assert http.post("/v1/batches", content=below).status_code == 200
        assert refused(http.post("/v1/batches", content=below + " "), 413)["code"] == "too-large"


HEADS = {
    "a long path": lambda token: head("/v1/types/" + "x" * 70_000, token),
    "a long header": lambda token: head("/v1/types", token, f"x-long: {'x' * 70_000}", method="GET"),
    "many headers": lambda token: head("/v1/types", token, *(f"x-{n}: y" for n in range(9_000)), method="GET"),
    "two lengths": lambda token: head("/v1/batches", token, "content-length: 2", "content-length: 5") + b"{}",
    "a length and chunks": lambda token: head("/v1/batches", token, "content-length: 2", "transfer-encoding: chunked"),
    "a negative length": lambda token: head("/v1/batches", token, "content-length: -2"),
    "a word for a length": lambda token: head("/v1/batches", token, "content-length: two"),
    "a length past all numbers": lambda token: head("/v1/batches", token, "content-length: " + "9" * 40),
    "no chunk size": lambda token: head("/v1/batches", token, "transfer-encoding: chunked") + b"zz\r\n",
    "a chunk size past all numbers": lambda token: (
        head("/v1/batches", token, "transfer-encoding: chunked") + b"f" * 40 + b"\r\n"
    ),
    "no method": lambda _: b"/v1/types HTTP/1.1\r\n\r\n",
    "another protocol": lambda _: b"SSH-2.0-OpenSSH_9.6\r\n",
    "noise": lambda _: bytes(range(256)),
    "a line that goes on": lambda token: head("/v1/types", token, "x-a: b\r\n c: d", method="GET"),
    "a bare line feed": lambda token: head("/v1/types", token, "x-a: b\nx-c: d", method="GET"),
}


@pytest.mark.parametrize("how", HEADS)
def test_what_is_hardly_http_is_refused_or_closed(shop: Alone, anna: str, how: str) -> None:
    with shop.connected() as connection:
        connection.sendall(HEADS[how](anna))
        connection.settimeout(20)
        answer = connection.recv(65_536)
    line = answer.split(b"\r\n", 1)[0]
    assert line.split(b" ")[1:2][0] in (b"400", b"404", b"414", b"431", b"200"), line
    if b" 200 " not in line:
        assert wire.PROBLEM.encode() in answer


@pytest.mark.parametrize(
    "query", ["wait=x", "wait=nan", "wait=-1", "wait=1e999", "limit=0", "limit=99999999", "limit="]
)
def test_a_bad_query_is_refused(shop: Alone, anna: str, query: str) -> None:
    with shop.http(anna) as http:
        http.put("/v1/subscriptions/asked", json={"type": SALE}).raise_for_status()
        refused(http.get(f"/v1/subscriptions/asked/events?{query}"), 400)
        refused(http.get("/v1/versions?after=" + "9" * 30), 400)
        refused(http.get("/v1/versions?after=-1"), 400)
        refused(http.get("/v1/versions?after=%C2%B2"), 400)
        many = "&".join(["after=" + "A" * 22] * (MAX_AFTER + 1))
        refused(http.get(f"/v1/subscriptions/asked/events?{many}"), 400)
        http.delete("/v1/subscriptions/asked").raise_for_status()


# -- policy -----------------------------------------------------------------------------------------------------

RULE = {"id": "x", "who": "anna", "may": "publish", "type": SALE}
BATCHES: dict[str, list[dict[str, Any]]] = {
    "groups": [
        {"op": "declare-group", "name": "g1"},
        {"op": "declare-group", "name": "g2"},
        {"op": "add-member", "group": "g1", "member": "g2"},
        {"op": "add-member", "group": "g2", "member": "g1"},
    ],
    "a group in itself": [
        {"op": "declare-group", "name": "g1"},
        {"op": "add-member", "group": "g1", "member": "g1"},
    ],
    "a chain of groups": [
        *({"op": "declare-group", "name": f"c{n}"} for n in range(100)),
        *({"op": "add-member", "group": f"c{n}", "member": f"c{n + 1}"} for n in range(99)),
    ],
    "a type from itself": [{"op": "declare-type", "name": "a.A", "type": {"extends": "a.A"}}],
    "types from each other": [
        {"op": "declare-type", "name": "a.A", "type": {"extends": "a.B"}},
        {"op": "declare-type", "name": "a.B", "type": {"extends": "a.A"}},
    ],
    "a tuple with null": [{"op": "add-row", "relation": "SecretTies", "row": [None]}],
    "a huge number": [{"op": "set-attribute", "principal": "anna", "name": "rank", "value": 2**70}],
    "a bad key": [{"op": "set-key", "principal": "anna", "key": "did:key:z6Mk" + "0" * 44}],
    "another's key": [{"op": "declare-principal", "name": "eve", "key": "@"}],
    "too many attributes": [
        {"op": "declare-type", "name": "a.A", "type": {"attributes": {f"a{n}": "int" for n in range(200)}}},
        {"op": "declare-type", "name": "a.B", "type": {"extends": "a.A", "attributes": {"b": "int"}}},
    ],
    "a name with a line end": [{"op": "declare-principal", "name": "a\nb"}],
    "a name of nothing": [{"op": "declare-group", "name": "\u200b"}],
    "a rule on a pattern that is none": [
        {"op": "add-rule", "rule": {"id": "x", "who": "anna", "may": "publish", "type": "**"}}
    ],
    "a forced value of another kind": [
        {
            "op": "add-rule",
            "rule": {"id": "x", "who": "anna", "may": "publish", "type": SALE, "attributes": {"count": "x"}},
        }
    ],
}


@pytest.mark.parametrize("how", BATCHES)
def test_a_bad_batch_changes_nothing(shop: Alone, how: str) -> None:
    changes = json.loads(json.dumps(BATCHES[how]).replace('"@"', json.dumps(shop.key("anna").public.did)))
    with shop.http(shop.token("administrator")) as http:
        before = http.get("/v1/versions").json()["versions"][-1]
        told = refused(http.post("/v1/batches", json={"changes": changes}), 400, 404, 422)
        assert told["code"] in ("bad-request", "bad-definition", "unknown-type", "type-mismatch"), told
        assert http.get("/v1/versions").json()["versions"][-1] == before
