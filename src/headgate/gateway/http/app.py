"""The application of a gateway: its routes, and what becomes of errors.

Guarantees: every refusal leaves as a problem document; what is no refusal tells nothing but that it happened, and is
logged. What the OpenAPI document describes is exactly what is routed here.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from headgate.gateway.authority import routes as granting
from headgate.gateway.delivery import poll, push
from headgate.gateway.http import detections, handlers
from headgate.gateway.http.operations import UNREAD, Call, Operation, document, operations_of
from headgate.gateway.roles import routes as roles
from headgate.gateway.runtime import Gateway
from headgate.model.errors import HeadgateError, RoleDenied
from headgate.node.logs import Log, fault
from headgate.protocol import messages as wire
from headgate.protocol.problems import STATUSES, internal, problem, told

log = Log("app")


@Operation("GET", "/openapi.json", answers={200: {"type": "object"}}, session=False)
async def openapi(call: Call) -> Response:  # noqa: ARG001
    """This document."""
    return Response(_document(), media_type=wire.JSON)


OPERATIONS: Final = (*operations_of(handlers, detections, poll, granting, roles), openapi)


@cache
def _document() -> bytes:
    return wire.encode(document(OPERATIONS))


def create_app(gateway: Gateway) -> Starlette:
    """The application that serves a gateway."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001
        await gateway.start()
        try:
            yield
        finally:
            await gateway.stop()

    app = Starlette(
        routes=[
            *(Route(one.path, one.serve, methods=[one.method], name=one.id) for one in OPERATIONS),
            WebSocketRoute("/v1/socket", push.socket),
        ],
        exception_handlers={HeadgateError: _refused, HTTPException: _http, ClientDisconnect: _gone, Exception: _failed},
        lifespan=lifespan,
    )
    app.state.gateway = gateway
    return app


def _problem(refusal: wire.Problem, **headers: str) -> Response:
    return Response(wire.encode(refusal), refusal.status, headers, wire.PROBLEM)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeadgateError)
    refusal = problem(error)
    gateway: Gateway = request.app.state.gateway
    gateway.metrics.denied(refusal.code)
    if isinstance(error, RoleDenied):
        roles.refused(gateway, request, error)
    if refusal.status == 500:
        log.error("failed", **fault(error))
    wait = str(math.ceil(getattr(error, "retry", None) or 1))
    headers = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": wait}, 413: {"connection": "close"}}
    if request.scope.get(UNREAD):
        headers.setdefault(refusal.status, {})["connection"] = "close"
    return _problem(refusal, **headers.get(refusal.status, {}))


_HTTP_DETAILS: Final = {
    400: "the request cannot be read",
    404: "not found: no such path",
    405: "not with this method",
    406: f"it is answered as a stream, to who accepts `{wire.EVENT_STREAM}`",
}


async def _http(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """What the router refuses."""
    assert isinstance(error, HTTPException)
    status = error.status_code if error.status_code in _HTTP_DETAILS else 400
    _, code, *_ = STATUSES[status]
    return _problem(told(status, code, _HTTP_DETAILS[status]), **dict(error.headers or {}))


async def _gone(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Nobody is there to hear an answer."""
    return Response(status_code=400)


async def _failed(request: Request, error: Exception) -> Response:  # noqa: ARG001
    log.error("failed", **fault(error))
    return _problem(internal())
