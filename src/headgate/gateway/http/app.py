"""The application of a gateway: its routes, and what becomes of errors.

Guarantees: every refusal leaves as a problem document; what is no refusal tells nothing but that it happened, and is
logged. What the OpenAPI document describes is exactly what is routed here.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from headgate.gateway.authority import routes as granting
from headgate.gateway.delivery import push
from headgate.gateway.federation import present_routes as presenting
from headgate.gateway.federation import watch_routes as watching
from headgate.gateway.http import handlers
from headgate.gateway.http.openapi import document
from headgate.gateway.http.operations import UNREAD, Operation, Parameter
from headgate.gateway.roles import routes as roles
from headgate.gateway.runtime import Gateway
from headgate.model.errors import HeadgateError, RoleDenied
from headgate.node.logs import Log, fault
from headgate.protocol import messages as wire
from headgate.protocol.problems import TITLES, internal, problem

log = Log("app")

_ANY: Final = {"type": "object"}
_ARROW: Final = {"type": "string", "format": "binary"}
_NUMBER: Final = {"type": "integer", "minimum": 0, "maximum": 2**53}
_OPEN = {"session": False}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation("GET", "/v1", "about", "What this is", handlers.about, answers={200: wire.AboutAnswer}, session=False),
    Operation("GET", "/health", "health", "How the node is", handlers.health,
              answers={200: wire.HealthAnswer, 503: wire.HealthAnswer}, session=False),
    Operation("GET", "/metrics", "metrics", "Figures for Prometheus", handlers.metrics,
              answers={200: {"type": "string"}}, errors=(401, 403), session=False, media="text/plain"),
    Operation("POST", "/v1/challenges", "challenge", "Ask for a challenge", handlers.challenge,
              wire.ChallengeRequest, {201: wire.ChallengeAnswer}, (401, 415), session=False),
    Operation("POST", "/v1/sessions", "connect", "Answer a challenge and connect", handlers.connect,
              wire.SessionRequest, {201: wire.SessionAnswer}, (401, 403, 409, 415, 422, 507), session=False),
    Operation("GET", "/v1/sessions/current", "who", "Who one is", handlers.who, answers={200: wire.WhoAnswer}),
    Operation("DELETE", "/v1/sessions/current", "disconnect", "Disconnect", handlers.disconnect,
              answers={204: None}, errors=(507,)),
    Operation("GET", "/v1/types", "types", "Every event type", handlers.types, answers={200: wire.TypesAnswer}),
    Operation("GET", "/v1/types/{name}", "type", "One event type", handlers.type_,
              answers={200: wire.TypeAnswer}, errors=(404,)),
    Operation("PUT", "/v1/types/{name}", "declare", "Declare a type, or a new version of it", handlers.declare,
              wire.TypeRequest, {200: wire.TypeAnswer, 201: wire.TypeAnswer}, (404, 415, 422, 507)),
    Operation("DELETE", "/v1/types/{name}", "retire", "Remove a type", handlers.retire,
              answers={204: None}, errors=(404, 422, 507)),
    Operation("GET", "/v1/types/{name}/restriction", "type-restriction", "What one may see of a type",
              handlers.type_restriction, answers={200: _ANY}, errors=(404,)),
    Operation("POST", "/v1/events", "publish", "Publish events", handlers.publish,
              answers={200: {"anyOf": [
                  {"$ref": "#/components/schemas/EventResult"},
                  {"$ref": "#/components/schemas/PublishAnswer"},
                  {"$ref": "#/components/schemas/BulkAnswer"},
              ]}},
              errors=(404, 415, 422, 507),
              parameters=(Parameter("type", "The type of the events of an Arrow stream"),),
              bodies={wire.EVENT_JSON: wire.CloudEvent, wire.BATCH_JSON: list[wire.CloudEvent], wire.ARROW: _ARROW}),
    Operation("GET", "/v1/advertisements", "advertisements", "What one advertises", handlers.advertisements,
              answers={200: wire.AdvertisementsAnswer}),
    Operation("PUT", "/v1/advertisements/{name}", "advertise", "Advertise a type", handlers.advertise,
              answers={200: wire.AdvertisementAnswer, 201: wire.AdvertisementAnswer}, errors=(404, 422, 507)),
    Operation("DELETE", "/v1/advertisements/{name}", "unadvertise", "Advertise a type no more", handlers.unadvertise,
              answers={204: None}, errors=(404, 507)),
    Operation("GET", "/v1/advertisements/{name}/restriction", "publish-restriction", "What publishing a type comes to",
              handlers.publish_restriction, answers={200: _ANY}, errors=(404,)),
    Operation("GET", "/v1/subscriptions", "subscriptions", "One's subscriptions", handlers.subscriptions,
              answers={200: wire.SubscriptionsAnswer}),
    Operation("POST", "/v1/subscriptions", "subscribe-unnamed", "Subscribe, with an id of the gateway's choice",
              handlers.subscribe_unnamed, wire.SubscriptionRequest, {201: wire.SubscriptionAnswer},
              (404, 415, 422, 507)),
    Operation("GET", "/v1/subscriptions/{id}", "subscription", "One subscription", handlers.subscription,
              answers={200: wire.SubscriptionAnswer}, errors=(404, 422)),
    Operation("PUT", "/v1/subscriptions/{id}", "subscribe", "Subscribe", handlers.subscribe, wire.SubscriptionRequest,
              {200: wire.SubscriptionAnswer, 201: wire.SubscriptionAnswer}, (404, 409, 415, 422, 507)),
    Operation("DELETE", "/v1/subscriptions/{id}", "unsubscribe", "Unsubscribe", handlers.unsubscribe,
              answers={204: None}, errors=(404, 422, 507)),
    Operation("GET", "/v1/subscriptions/{id}/restriction", "restriction", "What a subscription loses to one's rights",
              handlers.restriction, answers={200: _ANY}, errors=(404, 422)),
    *push.OPERATIONS,
    *granting.OPERATIONS,
    *roles.OPERATIONS,
    *watching.OPERATIONS,
    *presenting.OPERATIONS,
    Operation("POST", "/v1/batches", "change", "Change policy, as one batch", handlers.change, wire.BatchRequest,
              {200: wire.BatchAnswer}, (404, 409, 415, 422, 507)),
    Operation("GET", "/v1/versions", "versions", "The versions of the policy", handlers.versions,
              answers={200: wire.VersionsAnswer}, parameters=(Parameter("after", "Only later ones", _NUMBER),)),
)  # fmt: skip


def create_app(gateway: Gateway) -> Starlette:
    """The application that serves a gateway."""
    described = wire.encode(document([*OPERATIONS, _ANSWERS]))

    async def openapi(request: Request) -> Response:  # noqa: ARG001
        return Response(described, media_type=wire.JSON)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001
        await gateway.start()
        try:
            yield
        finally:
            await gateway.stop()

    routes: list[Route | WebSocketRoute] = [
        Route(one.path, _endpoint(one), methods=[one.method], name=one.id) for one in OPERATIONS
    ]
    routes.append(Route("/openapi.json", openapi, methods=["GET"]))
    routes.append(WebSocketRoute("/v1/socket", push.socket))
    app = Starlette(
        routes=routes,
        exception_handlers={HeadgateError: _refused, HTTPException: _http, ClientDisconnect: _gone, Exception: _failed},
        lifespan=lifespan,
    )
    app.state.gateway = gateway
    return app


async def _nowhere(request: Request, body: None) -> Response:
    raise NotImplementedError


_ANSWERS: Final = Operation("GET", "/openapi.json", "openapi", "This document", _nowhere,
                            answers={200: _ANY}, session=False)  # fmt: skip


def _endpoint(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await operation(request)

    return endpoint


def _problem(told: wire.Problem, **headers: str) -> Response:
    return Response(wire.encode(told), told.status, headers, wire.PROBLEM)


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
    404: "not found: no such path",
    405: "not with this method",
    406: f"it is answered as a stream, to who accepts `{wire.EVENT_STREAM}`",
}
_HTTP_CODES: Final = {404: "not-found", 405: "method-not-allowed", 400: "bad-request", 406: "not-acceptable"}


async def _http(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """What the router refuses."""
    assert isinstance(error, HTTPException)
    status = error.status_code if error.status_code in _HTTP_CODES else 400
    code = _HTTP_CODES[status]
    detail = _HTTP_DETAILS.get(status, "the request cannot be read")
    headers: dict[str, Any] = dict(error.headers or {})
    return _problem(wire.Problem(f"urn:headgate:problem:{code}", TITLES[status], status, detail, code), **headers)


async def _gone(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Nobody is there to hear an answer."""
    return Response(status_code=400)


async def _failed(request: Request, error: Exception) -> Response:  # noqa: ARG001
    log.error("failed", **fault(error))
    return _problem(internal())
