"""What a process of a node says about itself: one line a happening, and never what an event contains.

Guarantees: a line holds only the fields of the allow-list (`Fields`), which the type checker knows and which are looked
at again when the line is made; none of them can carry an event, a filter, a token or a key. Of an exception the kind,
the code and the places are told; its words only where they speak of the node's own files (`TELLING`). What libraries
log is told without its words, since nobody can say what those hold. A line is one line, no longer than `MAX_LINE`.
Leaves out: where lines go. They are written to standard error; `processes` keeps them in files.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from time import perf_counter
from types import TracebackType
from typing import Any, Final, TypedDict, Unpack

from headgate.model.errors import HeadgateError

ROOT: Final = "headgate"
MAX_TEXT: Final = 300  # characters of one field
MAX_LINE: Final = 4_000  # characters of one line, all of them ASCII: a pipe takes so much whole or not at all
MAX_PLACES: Final = 12  # places of the program told of an exception, the innermost
TELLING: Final = frozenset(
    {
        "already-running",
        "bad-config",
        "bad-environment",
        "bad-key",
        "damaged",
        "fenced",
        "storage-busy",
        "storage-full",
        "stream-held",
        "too-new",
        "too-old",
    }
)
"""Codes whose messages are made of file names, stream names and settings, and so may be told."""

_OUR_TEMPLATES: Final = frozenset({"uvicorn.error"})
"""Libraries that pass what varies as arguments: a template of one line may be told, the arguments may not."""

_OF_CLIENTS: Final = frozenset(
    {
        "ASGI callable returned without completing handshake.",  # said of every WebSocket that is refused
        "Invalid HTTP request received.",
        "Invalid UTF-8 sequence received from client.",
    }
)
"""What the server says whenever a client sends nonsense: those who do so must not be able to fill the log."""

_UNKNOWN: Final = "?"


class Fields(TypedDict, total=False):
    """The allow-list. Add a field only if nothing of an event, a filter, a token or a key can be in it."""

    attempt: int
    bytes: int
    code: str
    count: int
    deliveries: int
    detail: str
    error: str
    events: int
    exit_code: int
    gateway: str
    holder: str
    host: str
    issuer: str
    kind: str
    lag: int
    method: str
    ms: float
    part: str
    pid: int
    places: str
    port: int
    query: str
    reason: str
    route: str
    seconds: float
    sessions: int
    statement: str
    status: int
    stream: str
    subscriptions: int
    template: str
    version: int


_ALLOWED: Final = Fields.__annotations__.keys()


class Log:
    """Says what happens in one part of the program."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{ROOT}.{name}")

    def debug(self, event: str, **fields: Unpack[Fields]) -> None:
        """For whoever looks for a fault."""
        self._say(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Unpack[Fields]) -> None:
        """A change worth knowing of."""
        self._say(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Unpack[Fields]) -> None:
        """Something to look at."""
        self._say(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Unpack[Fields]) -> None:
        """Something that needs a person."""
        self._say(logging.ERROR, event, fields)

    def _say(self, level: int, event: str, fields: Fields) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})


def fault(error: BaseException, /, **more: Unpack[Fields]) -> Fields:
    """What may be told of an exception: kind, code, places, its words if they are of the node's files; and `more`."""
    fields: Fields = {**more, "error": type(error).__name__, "places": _places(error.__traceback__)}
    if isinstance(error, HeadgateError):
        fields["code"] = error.code
        if error.code in TELLING:
            fields["detail"] = str(error)
    elif isinstance(error, OSError) and error.strerror:
        fields["reason"] = error.strerror
    return fields


def _places(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace)[-MAX_PLACES:]
    return " > ".join(f"{_tail(frame.filename)}:{frame.lineno}" for frame in frames)


def _tail(filename: str) -> str:
    return "/".join(filename.rsplit("/", 2)[-2:])


# -- lines ----------------------------------------------------------------------------------------------------


class Lines(logging.Formatter):
    """A record as one line: JSON for programs, or text for people."""

    def __init__(self, format: str = "json") -> None:
        super().__init__()
        self._text = format == "text"

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        fields = _fields_of(record)
        event = record.msg if _ours(record) and isinstance(record.msg, str) else "library"
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._text:
            said = " ".join(f"{name}={_as_text(value)}" for name, value in fields.items())
            line = f"{at} {record.levelname:<7} {record.name} {event} {said}".rstrip()
            return line.encode("ascii", "backslashreplace").decode()[:MAX_LINE]
        head = {"time": at, "level": record.levelname.lower(), "logger": record.name, "event": event[:MAX_TEXT]}
        line = json.dumps({**head, **fields})
        return line if len(line) <= MAX_LINE else json.dumps({**head, "reason": "too long"})


def _ours(record: logging.LogRecord) -> bool:
    return record.name == ROOT or record.name.startswith(f"{ROOT}.")


def _fields_of(record: logging.LogRecord) -> dict[str, str | int | float | bool]:
    given: Mapping[str, Any] = getattr(record, "fields", {}) if _ours(record) else {}
    fields: dict[str, str | int | float | bool] = {}
    for name, value in given.items():
        if name in _ALLOWED and (shown := _plain(value)) is not None:
            fields[name] = shown
    if not _ours(record):
        fields["places"] = f"{_tail(record.pathname)}:{record.lineno}"
        if record.name in _OUR_TEMPLATES and isinstance(record.msg, str) and "\n" not in record.msg.strip():
            fields["template"] = record.msg.strip()[:MAX_TEXT]
    if record.exc_info and record.exc_info[1] is not None:
        fields.update({n: v for n, v in fault(record.exc_info[1]).items() if isinstance(v, str)})
    return fields


def _plain(value: object) -> str | int | float | bool | None:
    match value:
        case bool() | int():
            return value
        case float():
            return round(value, 3)
        case str():
            return value[:MAX_TEXT] if len(value) > MAX_TEXT else value
        case _:
            return None


def _as_text(value: str | float) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)


_LINE: Final = re.compile(r"\{\"time\": |[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{12}Z [A-Z]+ +[a-z]")
_MACHINE: Final = re.compile(
    r"#|OpenJDK |Error: |java\.lang\.OutOfMemoryError|Exception in thread|Traceback \(|  File \"|Fatal Python error"
)
_KIND: Final = re.compile(r"[\w.]{1,200}(?:Error|Exception|Interrupt|Warning|Exit|Denied|Damaged)(?=:|$)")
_IMPORTING: Final = ("ImportError", "ModuleNotFoundError", "SyntaxError")


def kept(line: str) -> str:
    """What may be kept of a line that a process wrote: all of Headgate's own, and of others what tells a crash."""
    if _LINE.match(line) or line.startswith(_IMPORTING) or _MACHINE.match(line):
        return line
    found = _KIND.match(line)
    return f"{found[0]}: ..." if found else f"... ({len(line)} characters that are not Headgate's)"


# -- where they come from -------------------------------------------------------------------------------------


class LineWriter(logging.Handler):
    """Writes lines to a file handle; one that would have to be waited for, on a pipe that nobody reads, is lost."""

    def __init__(self, handle: int, *, wait: bool) -> None:
        super().__init__()
        self._handle = handle
        if not wait and stat.S_ISFIFO(os.fstat(handle).st_mode):
            os.set_blocking(handle, False)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of a record."""
        with suppress(OSError):
            os.write(self._handle, self.format(record).encode("ascii", "backslashreplace") + b"\n")


def start_logging(level: str, format: str, *, handle: int = 2, wait: bool = True) -> None:
    """Send everything that any part of this process logs or fails with to standard error, as lines."""
    handler = LineWriter(handle, wait=wait)
    handler.setFormatter(Lines(format))
    handler.addFilter(lambda record: record.name not in _OUR_TEMPLATES or record.msg not in _OF_CLIENTS)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT).setLevel(level.upper())
    logging.raiseExceptions = False  # a line that cannot be written must not print what it was made of
    log = Log("process")
    sys.excepthook = lambda _, error, trace: log.error("uncaught", **fault(error.with_traceback(trace)))
    threading.excepthook = lambda args: (
        log.error("uncaught-in-thread", **fault(args.exc_value)) if args.exc_value is not None else None
    )
    sys.unraisablehook = lambda args: (
        log.error("unraisable", **fault(args.exc_value)) if args.exc_value is not None else None
    )


def loop_faults(context: Mapping[str, Any]) -> None:
    """What an event loop reports of a failed callback, without its words."""
    error = context.get("exception")
    Log("loop").error("callback-failed", **(fault(error) if isinstance(error, BaseException) else {}))


# -- requests -------------------------------------------------------------------------------------------------

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Observer = Callable[[str, str, int, float], None]  # is told method, route template, status and seconds of every request
CALLER: Final = "headgate.caller"  # where the application notes whose session a request has (`gateway.http.sessions`)


class AccessLog:
    """An application whose requests are logged and counted by route template: no path, no query, no principal.

    It also tells the connection (`gateway.http.connection_limits`) once its client is known.
    """

    def __init__(self, app: Application, observe: Observer, log: Log | None = None) -> None:
        self._app = app
        self._observe = observe
        self._log = log or Log("access")
        self.failed: BaseException | None = None  # why the application did not start, or not stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or one WebSocket from its first byte to its last."""
        if scope["type"] not in {"http", "websocket"}:
            try:
                await self._app(scope, receive, send)
            except BaseException as error:
                self.failed = error
                raise
            return
        began, status = perf_counter(), 500
        socket = scope["type"] == "websocket"
        known: Callable[[], None] = scope.get("state", {}).get("known", _nobody)

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            match message["type"]:
                case "http.response.start" | "websocket.http.response.start":
                    status = message["status"]
                case "websocket.accept":
                    status = 101
                case "websocket.close" if status == 500:
                    status = 403
            if CALLER in scope:
                known()
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            if socket:
                known()  # it is over, and no longer counts as a connection of a stranger
            seconds = perf_counter() - began
            method = "SOCKET" if socket else _method(scope["method"])
            route = getattr(scope.get("route"), "path", _UNKNOWN)
            self._observe(method, route, status, seconds)
            self._log.info("request", method=method, route=route, status=status, ms=seconds * 1000)


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


def _method(given: str) -> str:
    return given if given in _METHODS else _UNKNOWN


def _nobody() -> None:
    pass
