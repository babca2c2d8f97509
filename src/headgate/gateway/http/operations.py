"""What a gateway can be asked, as data: the routes are made from it, and so is the OpenAPI document.

Guarantees: a request is checked for its session, its size and its shape before its handler sees it; what is described
is what is served, by the very types that check it. The address that `@origin` means (Capabilities V.D) is that of
whoever is connected, in its one way of writing. What a request says of it (X-Forwarded-For) counts only as far as
proxies of the settings say it: the last address in the chain that is none of them. What is not an address is none.

    @Operation("GET", "/v1/types/{name}", errors=(404,))
    async def type_(call: Call) -> wire.TypeAnswer:
        "One event type."
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from inspect import getdoc
from types import ModuleType, UnionType
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from headgate import __version__
from headgate.commands.role_certificates import Asker
from headgate.commands.sessions import Caller, Sessions
from headgate.gateway.runtime import Gateway
from headgate.model.errors import BadRequest, HeadgateError, NotAuthenticated, TooBusy, TooLarge, UnsupportedMediaType
from headgate.node.config import Network
from headgate.protocol import messages as wire
from headgate.protocol.problems import TITLES, problem

MAX_BODY: Final = 1_000_000  # bytes of a request that is not a publish
LARGE: Final = 65_536  # bytes of a request that costs something to read
RECEIVED: Final = "headgate.received"  # where a request keeps how many bytes of its body were read
UNREAD: Final = "headgate.unread"
"""Where it keeps that its body was left alone, so that the connection is of no more use."""

T = TypeVar("T")

# -- who asks, and from where ---------------------------------------------------------------------------------

PROTOCOL: Final = "headgate.v1"
BEARER: Final = "bearer."


def token_of(connection: HTTPConnection) -> str:
    """The token of a request: in its header, or for a WebSocket offered as a subprotocol."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    for offered in connection.scope.get("subprotocols", ()):
        if offered.startswith(BEARER):
            return str(offered.removeprefix(BEARER))
    raise NotAuthenticated("no session token", remedy="send `Authorization: Bearer ...`")


async def authenticated(connection: HTTPConnection) -> Caller:
    """Who makes this request."""
    gateway: Any = connection.app.state.gateway
    sessions: Sessions = gateway.sessions
    token = token_of(connection)
    if not sessions.has_seen(token):
        await gateway.catch_up()  # another gateway, which gave the token, may know of a newer version
    caller = sessions.caller(token)
    connection.scope["headgate.caller"] = caller
    return caller


async def still_authenticated(connection: HTTPConnection) -> None:
    """Refuse a request whose session ended while its body was on its way, which may take hours."""
    caller = connection.scope.get("headgate.caller")
    if caller is not None:
        gateway: Any = connection.app.state.gateway
        await gateway.catch_up()
        gateway.sessions.check(caller)


MAX_HOPS: Final = 16  # proxies, one behind the other, whose word is followed

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def origin_of(connection: HTTPConnection, proxies: Sequence[Network] = ()) -> str | None:
    """The address that a request or a WebSocket comes from."""
    client = connection.client
    address = None if client is None else _address(client.host)
    if address is None or not _among(address, proxies):
        return None if address is None else str(address)
    said = ",".join(connection.headers.getlist("x-forwarded-for")).split(",")
    for hop in [one.strip() for one in reversed(said) if one.strip()][:MAX_HOPS]:
        address = _address(hop)
        if address is None:
            return None
        if not _among(address, proxies):
            break
    return str(address)


def _among(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == one.version and address in one for one in networks)


def _address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


# -- what is asked --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was let in: at which gateway, by whom, and from where."""

    request: Request
    session: Caller | None = None

    @property
    def gateway(self) -> Gateway:
        """The gateway that serves it."""
        gateway: Gateway = self.request.app.state.gateway
        return gateway

    @property
    def caller(self) -> Caller:
        """Who makes it, where that takes a session."""
        assert self.session is not None
        return self.session

    @property
    def principal(self) -> str:
        """The principal in whose name everything is done."""
        return self.caller.principal

    @property
    def origin(self) -> str | None:
        """The address that it comes from."""
        return origin_of(self.request, self.gateway.config.gateway.proxies)

    @property
    def asker(self) -> Asker:
        """Who asks about roles, and where from."""
        return Asker(self.principal, self.caller.did, self.origin)

    def named(self, parameter: str) -> str:
        """A part of its path."""
        return str(self.request.path_params[parameter])

    async def run(self, work: Callable[..., T], *args: Any, **how: Any) -> T:
        """Do work on files in another thread."""
        return await self.gateway.run_blocking(work, *args, **how)

    async def read_body(self, limit: int) -> bytes:
        """Its body, read no further than the limit, if its session is not over when it has come."""
        announced = self.request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            raise _too_large(limit)
        chunks: list[bytes] = []
        size = 0
        async for chunk in self.request.stream():
            size += len(chunk)
            self.request.scope[RECEIVED] = size
            if size > limit:
                raise _too_large(limit)
            chunks.append(chunk)
        await still_authenticated(self.request)
        return b"".join(chunks)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes", remedy="send less at a time")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query or a header."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    place: str = "query"
    required: bool = False


@dataclass(slots=True)
class Operation:
    """One thing that can be asked: what its route says, and what its handler says of itself.

    The handler's docstring is the summary. Its second parameter, if there is one, is what is sent. What it returns is
    answered with `status`; a pair of an answer and whether something is new with 201 or 200, and nothing with 204. A
    handler that returns a `Response` says what `answers` it gives, by status. `errors` are the statuses of refusals.
    """

    method: str
    path: str
    _: KW_ONLY
    status: int = 200
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
    id: str = ""
    summary: str = ""
    request: Any = None
    handler: Callable[..., Awaitable[Any]] = field(init=False)

    def __call__(self, handler: Callable[..., Awaitable[Any]]) -> Operation:
        """Be the operation of this handler."""
        hints = get_type_hints(handler)
        returned, sent = hints.pop("return"), list(hints.values())[1:]
        if get_origin(returned) is tuple:
            self.answers = dict.fromkeys((200, 201), get_args(returned)[0])
        elif not self.answers:
            self.answers = {204: None} if returned is type(None) else {self.status: returned}
        if sent:
            self.request = sent[0]
            self.bodies = {wire.JSON: self.request}
        if self.bodies:
            self.errors = (*self.errors, 415)
        self.id = handler.__name__.strip("_").replace("_", "-")
        self.summary = (getdoc(handler) or "").partition("\n")[0].removesuffix(".")
        self.handler = handler
        return self

    async def serve(self, request: Request) -> Response:
        """Check the request and carry it out."""
        _check_path(request)
        gateway: Gateway = request.app.state.gateway
        if self.session or self.request is not None:  # what only tells of the node needs no ledger
            await gateway.catch_up()
        if not self.session:
            return await self._carried_out(Call(request))
        caller = await authenticated(request)
        if _is_large(request):
            try:
                await gateway.paces.wait_for_room(caller.principal)
            except TooBusy:
                request.scope[UNREAD] = True
                raise
        try:
            return await self._carried_out(Call(request, caller))
        except HeadgateError as error:
            if problem(error).status < 500:  # what the gateway could not do is not held against who asked
                gateway.paces.count_refused(caller.principal, request.scope.get(RECEIVED, 0))
            raise

    async def _carried_out(self, call: Call) -> Response:
        if self.request is None:
            return self._answer(await self.handler(call))
        content = content_type(call.request)
        if content not in (wire.JSON, ""):
            raise UnsupportedMediaType(f"`{content[:100]}` is not read here", remedy=f"send `{wire.JSON}`")
        return self._answer(await self.handler(call, shaped(await call.read_body(self.limit), self.request)))

    def _answer(self, made: Any) -> Response:
        match made:
            case Response():
                return made
            case None:
                return Response(status_code=204)
            case (content, bool(is_new)):
                return answer(content, 201 if is_new else 200)
            case _:
                return answer(made, min(self.answers))


def operations_of(*modules: ModuleType) -> tuple[Operation, ...]:
    """The operations that modules define, in their order."""
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, Operation))


def content_type(request: Request) -> str:
    """What a request says that its body is."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


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


def shaped(body: bytes, kind: Any) -> Any:
    """A body of the shape that the protocol has."""
    try:
        return wire.decode(body, kind)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the body is not as it should be: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


def answer(content: object, status: int = 200, **headers: str) -> Response:
    """An answer as JSON."""
    return Response(wire.encode(content), status, headers, wire.JSON)


# -- the OpenAPI document -------------------------------------------------------------------------------------

_REFERENCE: Final = "#/components/schemas/{name}"
_PARAMETERS: Final = re.compile(r"{(\w+)(?::\w+)?}")
_ALWAYS: Final = (400, 413, 429, 431, 500, 503)  # what any request may be refused with
_SESSION: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "A session token: answer a challenge, or `headgate token`.",
}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Every operation, with its parameters, bodies, answers and refusals."""
    every = list(operations)
    told = [kind for one in every for kind in (*one.answers.values(), *one.bodies.values())]
    parts = [part for kind in (wire.Problem, *told) for part in (get_args(kind) if _is_choice(kind) else (kind,))]
    named = dict.fromkeys(part for part in parts if part is not None and not isinstance(part, Mapping))
    schemas, components = msgspec.json.schema_components(list(named), ref_template=_REFERENCE)
    known = dict(zip(named, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in every:
        paths.setdefault(_PARAMETERS.sub(r"{\1}", one.path), {})[one.method.lower()] = _operation(one, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate",
            "version": __version__,
            "description": "Access-controlled publish/subscribe. `docs/protocol.md` says what it means.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"session": _SESSION}},
    }


def _operation(operation: Operation, known: Mapping[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": _responses(operation, known),
    }
    in_path = {"in": "path", "required": True, "schema": {"type": "string", "minLength": 1, "maxLength": 200}}
    parameters = [{"name": name, **in_path} for name in _PARAMETERS.findall(operation.path)]
    parameters += [
        {"name": p.name, "in": p.place, "required": p.required, "description": p.description, "schema": dict(p.schema)}
        for p in operation.parameters
    ]
    if parameters:
        made["parameters"] = parameters
    if operation.bodies:
        content = {media: {"schema": _schema(kind, known)} for media, kind in operation.bodies.items()}
        made["requestBody"] = {"required": True, "content": content}
    if operation.session:
        made["security"] = [{"session": []}]
    return made


def _responses(operation: Operation, known: Mapping[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for status, kind in operation.answers.items():
        made[str(status)] = {"description": operation.summary}
        if kind is not None:
            made[str(status)]["content"] = {operation.media: {"schema": _schema(kind, known)}}
            if operation.streams is not None:
                made[str(status)]["content"][operation.streams] = {"schema": {"type": "string"}}
    refused = {wire.PROBLEM: {"schema": _schema(wire.Problem, known)}}
    for status in sorted({*_ALWAYS, *operation.errors, *((401, 403) if operation.session else ())}):
        made.setdefault(str(status), {"description": TITLES[status], "content": refused})
    return made


def _is_choice(kind: Any) -> bool:
    return isinstance(kind, UnionType)


def _schema(kind: Any, known: Mapping[Any, Any]) -> Any:
    if _is_choice(kind):
        return {"anyOf": [known[part] for part in get_args(kind)]}
    return dict(kind) if isinstance(kind, Mapping) else known[kind]
