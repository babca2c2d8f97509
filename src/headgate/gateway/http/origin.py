"""Where a client is: the network address that `@origin` means (Capabilities V.D).

Guarantees: it is the address of whoever is connected, in its one way of writing. What a request says of it
(X-Forwarded-For) counts only as far as proxies of the settings say it: the last address in the chain that is none of
them. What is not an address is none, and so unknown.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final, TypeAlias

from starlette.requests import HTTPConnection

from headgate.node.config import Network

MAX_HOPS: Final = 16
"""Proxies, one behind the other, whose word is followed."""

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
