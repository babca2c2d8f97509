"""What is logged, and above all what is not."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from headgate.model.errors import Damaged, HeadgateError, PublishDenied
from headgate.node.logs import (
    CALLER,
    MAX_LINE,
    MAX_TEXT,
    AccessLog,
    Lines,
    LineWriter,
    Log,
    fault,
    kept,
    loop_faults,
)

SECRET = "AE05 XYZ of the secret"


class Said(logging.Handler):
    """Keeps the lines that were said."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(Lines())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def last(self) -> dict[str, Any]:
        found = json.loads(self.lines[-1])
        assert isinstance(found, dict)
        return found


@pytest.fixture
def said() -> Iterator[Said]:
    handler, root, ours = Said(), logging.getLogger(), logging.getLogger("headgate")
    before = root.handlers[:], root.level, ours.level
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG)
    ours.setLevel(logging.DEBUG)
    yield handler
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


def test_a_line_is_one_object_with_its_fields(said: Said) -> None:
    Log("access").info("request", method="GET", route="/v1/types/{name}", status=200, ms=1.23456)
    found = said.last()
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "info",
        "logger": "headgate.access",
        "event": "request",
        "method": "GET",
        "route": "/v1/types/{name}",
        "status": 200,
        "ms": 1.235,
    }


def test_a_field_that_is_not_on_the_list_is_left_out(said: Said) -> None:
    Log("x").info("done", count=3, plate=SECRET, data={"plate": SECRET})  # type: ignore[call-arg]
    assert said.last()["count"] == 3
    assert SECRET not in said.lines[-1]
    assert "plate" not in said.lines[-1]


def test_a_field_that_is_no_plain_value_is_left_out(said: Said) -> None:
    Log("x").info("done", detail={"plate": SECRET}, reason=[SECRET], code=PublishDenied(SECRET))  # type: ignore[arg-type]
    assert SECRET not in said.lines[-1]
    assert set(said.last()) == {"time", "level", "logger", "event"}


@given(st.text(max_size=3 * MAX_LINE), st.text(max_size=50), st.sampled_from(["json", "text"]))
def test_a_line_is_one_line_of_bounded_length_whatever_is_in_it(detail: str, reason: str, format: str) -> None:
    record = logging.makeLogRecord({"name": "headgate.x", "msg": "done", "levelname": "INFO"})
    record.fields = {"detail": detail, "reason": reason}
    line = Lines(format).format(record)
    assert len(line.encode()) <= MAX_LINE
    assert line.isprintable()
    if format == "json":
        assert json.loads(line).get("detail", detail[:MAX_TEXT]) == detail[:MAX_TEXT]


def test_of_an_exception_the_kind_and_the_place_are_told_but_not_the_words() -> None:
    told = fault(raised(PublishDenied(f"no rule lets `camera` publish `{SECRET}`")))
    assert told["error"] == "PublishDenied"
    assert told["code"] == "publish-denied"
    assert "test_logs.py" in told["places"]
    assert SECRET not in str(told)
    assert SECRET not in str(fault(raised(ValueError(SECRET))))
    assert SECRET not in str(fault(raised(KeyError(SECRET))))


def test_words_about_the_nodes_own_files_are_told() -> None:
    assert "log.db" in fault(raised(Damaged("`log.db` lacks events 3 to 4")))["detail"]


@pytest.mark.parametrize("code", sorted({c.code for c in HeadgateError.__subclasses__()}))
def test_no_error_about_what_clients_send_is_told_in_words(code: str) -> None:
    error = HeadgateError(SECRET)
    error.code = code
    ours = {"already-running", "bad-config", "bad-environment", "bad-key", "damaged", "fenced"}
    ours |= {"storage-busy", "storage-full", "stream-held", "too-new", "too-old"}
    assert (SECRET in str(fault(error))) == (code in ours)


def test_what_libraries_say_is_not_repeated(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("uvicorn", "uvicorn.error"):  # servers that other tests ran here may have silenced it
        library = logging.getLogger(name)
        monkeypatch.setattr(library, "disabled", False)
        monkeypatch.setattr(library, "propagate", True)
        monkeypatch.setattr(library, "level", logging.NOTSET)
        monkeypatch.setattr(library, "_cache", {})
    told = f"Command to send: {SECRET}"
    logging.getLogger("py4j").warning(told)
    assert SECRET not in said.lines[-1]
    assert said.last()["event"] == "library"
    assert "test_logs.py" in said.last()["places"]
    failed = raised(RuntimeError(SECRET))
    logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=failed)
    assert said.last()["template"] == "Exception in ASGI application"
    assert said.last()["error"] == "RuntimeError"
    logging.getLogger("uvicorn.error").error("%s went wrong", SECRET)
    told = f"Traceback (most recent call last):\n ValueError: {SECRET}"
    logging.getLogger("uvicorn.error").error(told)
    loop_faults({"message": SECRET, "exception": raised(ValueError(SECRET)), "handle": SECRET})
    assert said.last()["error"] == "ValueError"
    assert SECRET not in "".join(said.lines)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"time": "2026-11-15T23:02:15.691Z", "level": "info"}', None),
        ("2026-11-15T23:02:15.691Z INFO    headgate.serve starting port=1", None),
        ("java.lang.OutOfMemoryError: Java heap space", None),
        ("# A fatal error has been detected by the Java Runtime Environment:", None),
        ('  File "/x/headgate/y.py", line 3, in z', None),
        ("ModuleNotFoundError: No module named 'uvloop'", None),
        (f"ValueError: bad value `{SECRET}`", "ValueError: ..."),
        (f"headgate.model.errors.PublishDenied: `{SECRET}`", "headgate.model.errors.PublishDenied: ..."),
        (SECRET, f"... ({len(SECRET)} characters that are not Headgate's)"),
        (f"    plate = {SECRET}", None),
    ],
)
def test_of_what_a_process_writes_only_what_cannot_hold_content_is_kept(line: str, found: str | None) -> None:
    if SECRET in line:
        assert SECRET not in kept(line)
    else:
        assert kept(line) == line
    if found is not None:
        assert kept(line) == found


def test_what_nobody_catches_is_said_without_its_words() -> None:
    program = textwrap.dedent(f"""
        import threading
        from headgate.node.logs import start_logging
        start_logging("info", "json")
        def fail():
            raise ValueError("{SECRET}")
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        fail()
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["uncaught-in-thread", "uncaught"]
    assert "ValueError" in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_a_pipe_that_nobody_reads_stops_nobody() -> None:
    reading, writing = os.pipe()
    try:
        handler = LineWriter(writing, wait=False)
        handler.setFormatter(Lines())
        record = logging.makeLogRecord({"name": "headgate.x", "msg": "done", "levelname": "INFO"})
        record.fields = {"detail": "x" * 300}
        for _ in range(1_000):  # many times what a pipe holds
            handler.emit(record)
        os.close(writing)
        writing = -1
        with os.fdopen(reading, "rb") as file:
            reading = -1
            lines = file.read().splitlines()
        assert 50 < len(lines) < 1_000
        assert all(json.loads(line)["event"] == "done" for line in lines), "none is cut"
    finally:
        for handle in (reading, writing):
            if handle >= 0:
                os.close(handle)


# -- requests -------------------------------------------------------------------------------------------------


async def plate(request: Request) -> PlainTextResponse:
    if request.path_params["plate"] == "known":
        request.scope[CALLER] = "smith"
    if request.path_params["plate"] == "broken":
        raise RuntimeError(SECRET)
    return PlainTextResponse(SECRET)


async def socket(socket: WebSocket) -> None:
    if "refuse" in socket.query_params:
        await socket.close(4401)
        return
    socket.scope[CALLER] = "smith"
    await socket.accept()
    await socket.send_text(SECRET)
    await socket.close()


class Knowing:
    """An application under which every request can say that its client is known."""

    def __init__(self, app: AccessLog) -> None:
        self.app, self.known = app, 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        scope.setdefault("state", {})["known"] = self._know
        await self.app(scope, receive, send)

    def _know(self) -> None:
        self.known += 1


@pytest.fixture
def served(said: Said) -> tuple[TestClient, list[tuple[str, str, int]], Knowing]:
    seen: list[tuple[str, str, int]] = []
    app = Starlette(routes=[Route("/plates/{plate}", plate), WebSocketRoute("/socket", socket)])
    knowing = Knowing(AccessLog(app, lambda method, route, status, seconds: seen.append((method, route, status))))
    return TestClient(knowing, raise_server_exceptions=False), seen, knowing


def test_requests_are_logged_by_template_with_no_query_and_no_body(
    served: tuple[TestClient, list[tuple[str, str, int]], Knowing], said: Said
) -> None:
    client, seen, knowing = served
    assert client.get(f"/plates/{SECRET}?plate={SECRET}", headers={"authorization": SECRET}).text == SECRET
    client.get(f"/nothing/{SECRET}")
    client.get("/plates/broken")
    assert knowing.known == 0
    client.get("/plates/known")
    assert knowing.known > 0
    assert seen == [
        ("GET", "/plates/{plate}", 200),
        ("GET", "?", 404),
        ("GET", "/plates/{plate}", 500),
        ("GET", "/plates/{plate}", 200),
    ]
    lines = [line for line in said.lines if "headgate.access" in line]
    assert [json.loads(line)["status"] for line in lines] == [200, 404, 500, 200]
    assert SECRET not in "".join(said.lines)


def test_web_sockets_are_logged_when_they_end(
    served: tuple[TestClient, list[tuple[str, str, int]], Knowing], said: Said
) -> None:
    client, seen, knowing = served
    with client.websocket_connect(f"/socket?plate={SECRET}") as connection:
        assert connection.receive_text() == SECRET
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/socket?refuse=1"):
        pass
    assert seen == [("SOCKET", "/socket", 101), ("SOCKET", "/socket", 403)]
    assert knowing.known >= 2, "also one that was refused is over"
    assert SECRET not in "".join(line for line in said.lines if "headgate.access" in line)


def test_why_an_application_does_not_start_is_kept() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise Damaged("`log.db` is damaged")

    access = AccessLog(app, lambda *_: None)

    async def run() -> None:
        with pytest.raises(Damaged):
            await access({"type": "lifespan"}, None, None)  # type: ignore[arg-type]

    asyncio.run(run())
    assert isinstance(access.failed, Damaged)
