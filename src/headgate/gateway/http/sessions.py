"""Who makes a request (`commands.sessions`), and from where: the address that `@origin` means (Capabilities V.D).

Guarantees: the address is that of whoever is connected, in its one way of writing. What a request says of it
(X-Forwarded-For) counts only as far as proxies of the settings say it: the last address in the chain that is none of
them. What is not an address is none, and so unknown.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from starlette.requests import HTTPConnection

from headgate.commands.sessions import Caller, Sessions
from headgate.model.errors import NotAuthenticated
from headgate.node.config import Network

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
