"""Whose session a request is of (`commands.sessions`): its token, in the header or offered as a subprotocol."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import HTTPConnection

from headgate.commands.sessions import Caller, Sessions
from headgate.model.errors import NotAuthenticated

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
