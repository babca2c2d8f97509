"""The handshake, sessions, other gateways, and everything that must not be trusted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import jwt
import pytest

from headgate.client import Client, ClientClosed, Patience, Refused, Timing, Unreachable, aio, connect
from headgate.client.errors import refusal
from headgate.client.gateways import Address, GatewayLink
from headgate.model.errors import (
    BadDefinition,
    BadKey,
    BrokerNotTrusted,
    NotAuthenticated,
    NotFound,
    PublishDenied,
    UnknownType,
)
from headgate.trust.keys import PrivateKey
from headgate.trust.tls import make_certificate
from strategies.standin import HASTY, QUICK, SALE, StandIn, World

Start = Callable[..., StandIn]


def test_a_client_knows_who_it_is_and_who_the_broker_is(client: Client, directory: Path) -> None:
    till = PrivateKey.load(directory / "keys" / "till.pem").public.did
    assert client.whoami().did == till
    assert client.principal == "someone"
    assert client.broker == PrivateKey.load(directory / "keys" / "broker.pem").public.did


def test_closing_ends_the_session(gateway: StandIn, directory: Path, world: World) -> None:
    client = connect.from_directory(directory, "till")
    client.close()
    client.close()
    assert world.requests[-1] == "DELETE /v1/sessions/current"
    assert len(world.ended) == 1
    with pytest.raises(ClientClosed):
        client.whoami()


def test_another_broker_is_not_trusted(start: Start, directory: Path, world: World) -> None:
    start(broker=PrivateKey.generate())
    other = start(broker=PrivateKey.generate())
    before = len(world.requests)
    key = directory / "keys" / "till.pem"
    expected = PrivateKey.load(directory / "keys" / "broker.pem").public.did
    with pytest.raises(BrokerNotTrusted):
        connect(other.url, key, broker=expected, certificate=directory / "tls" / "tls.crt", requests=QUICK)
    assert world.requests[before:] == ["POST /v1/challenges"]  # nothing else was said to it


def test_another_certificate_is_not_trusted(start: Start, directory: Path, world: World, tmp_path: Path) -> None:
    make_certificate(tmp_path, [], datetime.now(UTC), 10)
    other = start(tls=tmp_path)
    before = len(world.requests)
    with pytest.raises(Unreachable, match="certificate") as caught:
        connect(other.url, directory / "keys" / "till.pem", certificate=directory / "tls" / "tls.crt", requests=HASTY)
    assert other.url in caught.value.tried[0]
    assert world.requests[before:] == []


def test_a_certificate_that_changes_must_be_proven_before_the_token_is_shown(
    start: Start, gateway: StandIn, directory: Path, world: World, tmp_path: Path
) -> None:
    make_certificate(tmp_path, [], datetime.now(UTC), 10)
    thief = start(tls=tmp_path, broker=PrivateKey.generate())
    own = directory / "tls" / "tls.crt"

    async def story() -> None:
        client = await aio.connect(gateway.url, directory / "keys" / "till.pem", certificate=own, requests=HASTY)
        session = client._session
        honest = session.ring.current
        # The same address now leads to the thief, whose certificate the machine would accept.
        stolen = GatewayLink(Address.parse(thief.url), (tmp_path / "tls.crt").read_bytes())
        stolen.proven = set(honest.proven)
        session.ring.gateways[0] = stolen
        before = len(world.requests)
        with pytest.raises(BrokerNotTrusted):
            await client.whoami()
        assert set(world.requests[before:]) == {"POST /v1/challenges"}
        await client._session.ring.close()
        await honest.close()

    asyncio.run(story())


def test_a_session_is_renewed_before_it_expires(gateway: StandIn, directory: Path, world: World) -> None:
    now = [0.0]

    async def story() -> None:
        timing = Timing(clock=lambda: now[0])
        async with aio.connect.from_directory(directory, "till", timing=timing) as client:
            first = await client.token()
            now[0] += 0.7 * 900
            assert await client.token() == first
            now[0] += 0.2 * 900
            assert await client.token() != first

    asyncio.run(story())
    assert world.requests.count("POST /v1/sessions") == 2


def test_a_session_that_a_gateway_no_longer_takes_is_replaced_once(client: Client, world: World) -> None:
    first = client.token()
    world.session_seconds = 1
    world.ended.add(jwt.decode(first, options={"verify_signature": False})["jti"])
    assert client.whoami()
    assert client.token() != first


def test_refused_sessions_are_not_tried_for_ever(client: Client, world: World) -> None:
    world.statuses = [401, 401]
    with pytest.raises(NotAuthenticated, match="not now"):
        client.whoami()
    assert world.statuses == []


def test_the_next_gateway_is_tried(start: Start, directory: Path, world: World) -> None:
    second = start()
    dead = "https://127.0.0.1:9"
    key, certificate = directory / "keys" / "till.pem", directory / "tls" / "tls.crt"
    with connect([dead, second.url], key, certificate=certificate, requests=QUICK) as client:
        assert client.whoami()


def test_a_client_moves_on_when_its_gateway_stops(start: Start, gateway: StandIn, directory: Path) -> None:
    start()
    with connect.from_directory(directory, "till", requests=QUICK) as client:
        assert client.publish(SALE, {"item": "tea"}).status == "accepted"
        gateway.stop()
        assert client.publish(SALE, {"item": "tea"}).status == "accepted"


def test_every_gateway_is_asked_before_the_time_is_up(gateway: StandIn, directory: Path) -> None:
    key, certificate = directory / "keys" / "till.pem", directory / "tls" / "tls.crt"
    none = Patience(seconds=0.0)
    with connect(["https://127.0.0.1:9", gateway.url], key, certificate=certificate, requests=none) as client:
        assert client.whoami()


def test_nobody_there(directory: Path) -> None:
    with pytest.raises(Unreachable) as caught:
        connect("https://127.0.0.1:9", directory / "keys" / "till.pem", requests=HASTY)
    assert caught.value.tried
    assert "127.0.0.1:9" in caught.value.message


def test_pauses_grow_and_end(directory: Path) -> None:
    pauses: list[float] = []
    now = [0.0]

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    async def story() -> None:
        timing = Timing(clock=lambda: now[0], sleep=sleep, dice=lambda: 1.0)
        with pytest.raises(Unreachable):
            await aio.connect("https://127.0.0.1:9", directory / "keys" / "till.pem", timing=timing)

    asyncio.run(story())
    assert pauses[:4] == [0.05, 0.1, 0.2, 0.4]
    assert max(pauses) == 2.0
    assert 28 < sum(pauses) <= 30


def test_not_now_is_tried_again(client: Client, world: World) -> None:
    world.statuses = [503, 503, 502]
    assert client.whoami()
    world.statuses = [500]
    with pytest.raises(Refused) as caught:
        client.whoami()
    assert caught.value.code == "internal-error"


@pytest.mark.parametrize(
    "url",
    [
        "gate.example.org",
        "ftp://gate.example.org",
        "https://",
        "https://user:secret@gate.example.org",
        "https://gate.example.org/path",
        "https://gate.example.org?x=1",
        "https://gate.example.org:99999",
        "http://gate.example.org:8443",
    ],
)
def test_bad_addresses(url: str) -> None:
    with pytest.raises(BadDefinition):
        Address.parse(url)


def test_addresses() -> None:
    assert Address.parse("https://gate.example.org:8443").socket == "wss://gate.example.org:8443/v1/socket"
    assert Address.parse("https://[::1]:8443").http == "https://[::1]:8443"
    assert Address.parse("http://127.0.0.1:80/").http == "http://127.0.0.1:80"
    with pytest.raises(BadDefinition):
        connect([], PrivateKey.generate())


def test_bad_keys(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(BadKey):
        connect("https://127.0.0.1:9", PrivateKey.generate(), broker="did:web:example")
    with pytest.raises(NotFound, match="ann"):
        connect.from_directory(directory, "nobody")
    with pytest.raises(NotFound):
        connect.from_directory(directory, "../tls/tls")
    with pytest.raises(NotFound):
        connect("https://127.0.0.1:9", PrivateKey.generate(), certificate=tmp_path / "none.crt")


def test_refusals_come_back_as_their_class() -> None:
    known = refusal({"code": "publish-denied", "detail": "no", "remedy": "ask"})
    assert isinstance(known, PublishDenied)
    assert (known.message, known.remedy) == ("no", "ask")
    assert isinstance(refusal({"code": "unknown-type", "detail": "no"}), UnknownType)
    other = refusal({"code": "of-the-future", "detail": "no"})
    assert isinstance(other, Refused)
    assert other.code == "of-the-future"
    assert refusal({"code": "stream-held"}, status=503).code == "stream-held"
    assert refusal({"code": 7, "detail": ["x"]}, status=500).code == "refused"
