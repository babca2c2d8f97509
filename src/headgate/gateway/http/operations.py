"""What a gateway can be asked, as data: the routes are made from it, and so is the OpenAPI document.

Guarantees: a request is checked for its session, its size and its shape before its handler sees it; what is described
is what is served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headgate.commands.sessions import Caller
from headgate.gateway.http.sessions import authenticated, still_authenticated
from headgate.model.errors import BadRequest, HeadgateError, TooBusy, TooLarge, UnsupportedMediaType
from headgate.protocol import messages as wire
from headgate.protocol.problems import problem

MAX_BODY: Final = 1_000_000
"""Bytes of a request that is not a publish."""

LARGE: Final = 65_536
"""Bytes of a request that costs something to read."""
RECEIVED: Final = "headgate.received"
"""Where a request keeps how many bytes of its body were read."""
UNREAD: Final = "headgate.unread"
"""Where it keeps that its body was left alone, so that the connection is of no more use."""

Handler: TypeAlias = Callable[[Request, Caller, Any], Awaitable[Response]]
Open: TypeAlias = Callable[[Request, Any], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query or a header."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    place: str = "query"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked. `answers` maps statuses to types; `errors` are the statuses of its refusals."""

    method: str
    path: str
    id: str
    summary: str
    handler: Handler | Open
    request: Any = None
    answers: Mapping[int, Any] = field(default_factory=dict)
    errors: tuple[int, ...] = ()
    session: bool = True
    parameters: tuple[Parameter, ...] = ()
    bodies: Mapping[str, Any] = field(default_factory=dict)
    """Content types and what they hold, where a handler reads the body itself."""
    media: str = wire.JSON
    streams: str | None = None
    """Another content type, of an answer that goes on, if the client accepts it."""
    limit: int = MAX_BODY
    """Bytes of its request."""

    async def __call__(self, request: Request) -> Response:
        """Check the request and carry it out."""
        _check_path(request)
        if self.session or self.request is not None:  # what only tells of the node needs no ledger
            await request.app.state.gateway.catch_up()
        caller = await authenticated(request) if self.session else None
        if caller is None:
            return await self._carried_out(request, None)
        if _is_large(request):
            try:
                await request.app.state.gateway.paces.wait_for_room(caller.principal)
            except TooBusy:
                request.scope[UNREAD] = True
                raise
        try:
            return await self._carried_out(request, caller)
        except HeadgateError as error:
            if problem(error).status < 500:  # what the gateway could not do is not held against who asked
                request.app.state.gateway.paces.count_refused(caller.principal, request.scope.get(RECEIVED, 0))
            raise

    async def _carried_out(self, request: Request, caller: Caller | None) -> Response:
        body = None
        if self.request is not None:
            content = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if content not in (wire.JSON, ""):
                raise UnsupportedMediaType(f"`{content[:100]}` is not read here", remedy=f"send `{wire.JSON}`")
            body = shaped(await read_body(request, self.limit), self.request)
        if caller is None:
            return await self.handler(request, body)  # type: ignore[call-arg, arg-type]
        return await self.handler(request, caller, body)  # type: ignore[call-arg]


def _is_large(request: Request) -> bool:
    """Is more to come than little? Who does not say how much is believed to have much."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal():
        return int(announced) > LARGE
    return "transfer-encoding" in request.headers


def _check_path(request: Request) -> None:
    """Refuse a path that is not text: servers put the same mark for whatever they cannot read."""
    if "\ufffd" in request.scope["path"]:
        try:
            unquote_to_bytes(request.scope["raw_path"]).decode()
        except UnicodeDecodeError:
            raise BadRequest("the path is not UTF-8") from None


async def read_body(request: Request, limit: int) -> bytes:
    """The body of a request, read no further than the limit, if its session is not over when it has come."""
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        request.scope[RECEIVED] = size
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    await still_authenticated(request)
    return b"".join(chunks)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes", remedy="send less at a time")


def shaped(body: bytes, kind: Any) -> Any:
    """A body of the shape that the protocol has."""
    try:
        return wire.decode(body, kind)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the body is not as it should be: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


def answer(
    content: object, status: int = 200, *, media: str = wire.JSON, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer as JSON."""
    return Response(wire.encode(content), status, dict(headers or {}), media)


def nothing() -> Response:
    """An answer that says nothing but that it is done."""
    return Response(status_code=204)
