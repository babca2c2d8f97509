"""Where a client is: the address of the connection, unless a trusted proxy says otherwise."""

from __future__ import annotations

import ipaddress

import pytest
from starlette.requests import HTTPConnection

from headgate.gateway.http.operations import MAX_HOPS, origin_of

PROXIES = tuple(map(ipaddress.ip_network, ("10.0.0.0/8", "::1")))


def seen(peer: str | None, *said: str, proxies: tuple[object, ...] = PROXIES) -> str | None:
    headers = [(b"x-forwarded-for", one.encode()) for one in said]
    scope = {"type": "http", "headers": headers, "client": None if peer is None else (peer, 1)}
    return origin_of(HTTPConnection(scope), proxies)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("peer", "said", "expected"),
    [
        ("192.0.2.1", (), "192.0.2.1"),
        ("192.0.2.1", ("10.9.9.9",), "192.0.2.1"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("192.0.2.1",), "192.0.2.1"),
        ("10.0.0.1", ("198.51.100.7, 192.0.2.1",), "192.0.2.1"),
        ("10.0.0.1", ("198.51.100.7", "192.0.2.1"), "192.0.2.1"),
        ("10.0.0.1", ("192.0.2.1, 10.0.0.2",), "192.0.2.1"),
        ("10.0.0.1", ("10.0.0.3, 10.0.0.2",), "10.0.0.3"),
        ("10.0.0.1", ("nonsense",), None),
        ("10.0.0.1", ("192.0.2.1, nonsense",), None),
        ("::1", ("2001:DB8:0:0::1",), "2001:db8::1"),
        ("::ffff:192.0.2.1", (), "192.0.2.1"),
        ("::ffff:10.0.0.1", ("192.0.2.1",), "192.0.2.1"),
        ("testclient", (), None),
        (None, ("192.0.2.1",), None),
    ],
)
def test_who_is_believed(peer: str | None, said: tuple[str, ...], expected: str | None) -> None:
    assert seen(peer, *said) == expected


def test_without_proxies_nothing_that_is_said_counts() -> None:
    assert seen("10.0.0.1", "192.0.2.1", proxies=()) == "10.0.0.1"


def test_a_long_line_of_proxies_is_followed_so_far() -> None:
    assert seen("10.0.0.1", ", ".join(["192.0.2.1", *["10.0.0.2"] * (MAX_HOPS + 5)])) == "10.0.0.2"
