"""Tokens and handshakes that are forged, replayed, relayed, borrowed or outlived: all are refused, and alike."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from harness.alone import Alone, Process, Socket, rule
from headgate.cli.node.init import make_domain
from headgate.client import connect
from headgate.client.gateways import Patience
from headgate.model.changes import RemovePrincipal, RemoveRule, SetKey
from headgate.model.errors import BrokerNotTrusted, HeadgateError, NotAuthenticated
from headgate.model.limits import MAX_TOKEN_CHARS
from headgate.node.config import Files
from headgate.protocol import messages as wire
from headgate.trust.handshake import Challenge, new_nonce, prove
from headgate.trust.keys import PrivateKey
from headgate.trust.tls import certificate_of, client_context, fingerprint, make_certificate, server_context
from headgate.trust.tokens import SESSION, issue

SALE = "shop.Sale"
LASTING = "2s"
"""How long a session of the second gateway lasts."""
HASTY = Patience(seconds=0.3, first=0.01, most=0.05)
"""Tries again only a little."""


@pytest.fixture(scope="module")
def second(shop: Alone) -> Iterator[Process]:
    made = shop.start("g2", gateway__session=LASTING)
    yield made
    shop.end(made)


@pytest.fixture
def fresh(shop: Alone, request: pytest.FixtureRequest) -> str:
    """A principal of the test's own that may connect."""
    name = f"p-{request.node.name[:60]}"
    shop.commit(*shop.people(name), rule(f"{name}-connects", name, "connect"))
    return name


def refused(answer: httpx.Response, status: int, code: str) -> bytes:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == wire.PROBLEM
    return answer.content


def hear_all(socket: Socket) -> None:
    while True:
        socket.recv()


def ended(socket: Socket) -> tuple[int, str]:
    """How the gateway ends a connection."""
    with pytest.raises(ConnectionClosed) as end:
        hear_all(socket)
    assert end.value.rcvd is not None
    return end.value.rcvd.code, end.value.rcvd.reason


# -- tokens -------------------------------------------------------------------------------------------------------


def claims(shop: Alone, **other: Any) -> dict[str, Any]:
    """The claims of a good token of anna, or almost."""
    now = int(datetime.now(UTC).timestamp())
    broker, anna = PrivateKey.load(shop.files.broker_key), shop.key("anna")
    good = {"iss": broker.public.did, "sub": anna.public.did, "jti": "0" * 32, "iat": now, "exp": now + 60}
    return {**good, "aud": "example", **other}


def signed(key: Any, body: dict[str, Any], algorithm: str = "EdDSA", **header: Any) -> str:
    payload = json.dumps(body).encode()
    return jwt.PyJWS().encode(payload, key, algorithm=algorithm, headers={"typ": SESSION.typ, **header})


def part(content: Any) -> str:
    return urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def forgeries(shop: Alone, good: str) -> dict[str, str]:
    """Tokens that are not good, each for another reason."""
    broker = PrivateKey.load(shop.files.broker_key)
    key, stranger = broker.native(), PrivateKey.generate().native()
    head, body, signature = good.split(".")
    past = int(datetime.now(UTC).timestamp()) - 3_600
    other = make_other_domain(shop)
    return {
        "another key": signed(stranger, claims(shop)),
        "the principal's own key": signed(shop.key("anna").native(), claims(shop)),
        "no algorithm": f"{part({'alg': 'none', 'typ': SESSION.typ})}.{part(claims(shop))}.",
        "no algorithm, old signature": f"{part({'alg': 'none', 'typ': SESSION.typ})}.{body}.{signature}",
        "a shared secret": signed(broker.public.did, claims(shop), "HS256"),
        "another type": signed(key, claims(shop), typ="JWT"),
        "another header": signed(key, claims(shop), kid="1"),
        "a header that names a key": signed(stranger, claims(shop), jwk={"kty": "OKP"}),
        "another body": f"{head}.{part(claims(shop, sub=shop.key('bob').public.did))}.{signature}",
        "expired": signed(key, claims(shop, iat=past, exp=past + 60)),
        "of the future": signed(key, claims(shop, iat=past + 7_200, exp=past + 9_000)),
        "without an end": signed(key, {k: v for k, v in claims(shop).items() if k != "exp"}),
        "an end past all times": signed(key, claims(shop, exp=2**70)),
        "for another domain": signed(key, claims(shop, aud="other")),
        "by another issuer": signed(key, claims(shop, iss="did:key:z6Mk")),
        "for nobody": signed(key, claims(shop, sub=PrivateKey.generate().public.did)),
        "for one without a key": signed(key, claims(shop, sub="anna")),
        "claims of another kind": signed(key, claims(shop, jti=7)),
        "of another domain": issue(other, principal=shop.key("anna").public, audience="example", now=datetime.now(UTC)),
        "cut off": good[:-10],
        "two signatures": f"{good}.{signature}",
        "noise": "x" * 100,
        "dots": "..",
        "too long": "x" * (MAX_TOKEN_CHARS + 1),
    }


def make_other_domain(shop: Alone) -> PrivateKey:
    """The broker of another domain of the same name."""
    place = shop.directory.parent / "other"
    if not place.exists():
        make_domain(place, "example", (), datetime.now(UTC))
    return PrivateKey.load(Files(place).broker_key)


def test_every_forged_token_is_refused_alike(shop: Alone, anna: str) -> None:
    control = signed(PrivateKey.load(shop.files.broker_key).native(), claims(shop))
    with shop.http(control) as http:  # what the forgeries differ from
        assert http.get("/v1/sessions/current").json()["principal"] == "anna"
    answers = {}
    for how, token in forgeries(shop, anna).items():
        with shop.http(token) as http:
            answers[how] = refused(http.get("/v1/subscriptions"), 401, "not-authenticated")
            refused(http.put("/v1/subscriptions/forged", json={"type": SALE}), 401, "not-authenticated")
        with pytest.raises(InvalidStatus) as denied, shop.socket(token):
            pass
        assert denied.value.response.status_code == 401
        assert denied.value.response.body == answers[how]
    # One that was good for somebody who has no such key any more is a session that is over.
    over = answers.pop("for nobody")
    assert json.loads(over)["detail"] == "the session is over"
    assert len(set(answers.values())) == 1


@pytest.mark.parametrize("header", ["", "Bearer", "Basic YTpi", "bearer\tx", "Bearer \xe9", "Bearer x y z"])
def test_a_header_without_a_token_is_refused(shop: Alone, header: str) -> None:
    with shop.http() as http:
        raw = {"authorization": header.encode("latin-1")}
        refused(http.get("/v1/types", headers=raw), 401, "not-authenticated")  # type: ignore[arg-type]


def test_a_token_in_the_query_or_a_cookie_is_none(shop: Alone, anna: str) -> None:
    with shop.http() as http:
        for path in (f"/v1/types?token={anna}", f"/v1/types?access_token={anna}", f"/v1/types?authorization={anna}"):
            refused(http.get(path), 401, "not-authenticated")
        refused(http.get("/v1/types", headers={"cookie": f"token={anna}"}), 401, "not-authenticated")


# -- challenges ---------------------------------------------------------------------------------------------------


def test_an_answered_challenge_is_worth_nothing_again(shop: Alone) -> None:
    with shop.http() as http:
        proof = wire.encode(shop.answered(http, shop.key("anna")))
        assert http.post("/v1/sessions", content=proof).status_code == 201
        refused(http.post("/v1/sessions", content=proof), 401, "not-authenticated")


def test_every_bad_answer_to_a_challenge_is_refused_alike(shop: Alone, second: Process) -> None:
    anna, bob = shop.key("anna"), shop.key("bob")
    with shop.http() as http, shop.http(gateway=1) as elsewhere:

        def answered(**other: str) -> dict[str, str]:
            found = shop.answered(http, anna)
            return {**json.loads(wire.encode(found)), **other}

        mixed = answered()
        attempts = {
            "another's name": answered(principal=bob.public.did),
            "a name without a key": answered(principal="anna"),
            "a key that nobody has": json.loads(wire.encode(shop.answered(http, PrivateKey.generate()))),
            "another nonce": answered(nonce=answered()["nonce"]),
            "another client's nonce": answered(client_nonce=new_nonce()),
            "a nonce of one's own": answered(nonce=new_nonce()),
            "another signature": answered(signature=answered()["signature"]),
            "no signature": answered(signature=""),
            "a challenge for another connection": careless(http, anna, "0" * 64),
            "a challenge of another broker": careless(http, anna, shop.binding, PrivateKey.generate().public.did),
            "halves of two": {**answered(), "nonce": mixed["nonce"], "client_nonce": mixed["client_nonce"]},
        }
        answers = {refused(http.post("/v1/sessions", json=one), 401, "not-authenticated") for one in attempts.values()}
        at_another_gateway = elsewhere.post("/v1/sessions", json=answered())
        answers.add(refused(at_another_gateway, 401, "not-authenticated"))
        assert len(answers) == 1


def careless(http: httpx.Client, key: PrivateKey, binding: str, broker: str | None = None) -> dict[str, str]:
    """A signature over a challenge by one who checks nothing, for a binding or broker that is not the gateway's."""
    mine = new_nonce()
    told = http.post("/v1/challenges", json={"nonce": mine}).json()
    did = broker or told["broker"]
    parts = ("headgate handshake 1: client", mine, told["nonce"], binding, did, key.public.did)
    message = b"".join(len(one).to_bytes(4) + one.encode() for one in parts)
    signature = urlsafe_b64encode(key.sign(message)).rstrip(b"=").decode()
    return {"principal": key.public.did, "client_nonce": mine, "nonce": told["nonce"], "signature": signature}


def test_one_who_may_not_connect_is_told_only_after_proving_who_it_is(shop: Alone) -> None:
    with shop.http() as http:
        proof = shop.answered(http, shop.key("carl"))
        told = refused(http.post("/v1/sessions", content=wire.encode(proof)), 403, "connect-denied")
        assert b"carl" in told
        proof.signature = shop.answered(http, shop.key("carl")).signature
        refused(http.post("/v1/sessions", content=wire.encode(proof)), 401, "not-authenticated")


# -- sessions that end --------------------------------------------------------------------------------------------


def test_an_ended_session_is_over_at_every_gateway(shop: Alone, second: Process, fresh: str) -> None:
    token = shop.token(fresh)
    with shop.http(token) as http, shop.http(token, 1) as elsewhere, shop.socket(token, 1) as socket:
        assert elsewhere.get("/v1/sessions/current").status_code == 200
        assert http.delete("/v1/sessions/current").status_code == 204
        refused(http.get("/v1/sessions/current"), 401, "not-authenticated")
        refused(elsewhere.get("/v1/sessions/current"), 401, "not-authenticated")
        assert ended(socket) == (4401, "not-authenticated")
    with pytest.raises(InvalidStatus), shop.socket(token):
        pass
    with shop.http(shop.token(fresh)) as http:  # another session of the same principal is not concerned
        assert http.get("/v1/sessions/current").status_code == 200


def test_a_session_ends_with_its_time(shop: Alone, second: Process, fresh: str) -> None:
    token = shop.token(fresh, gateway=1)
    with shop.socket(token) as socket, shop.http(token) as http:
        assert ended(socket) == (4401, "not-authenticated")
        refused(http.get("/v1/types"), 401, "not-authenticated")
        refused(http.delete("/v1/sessions/current"), 401, "not-authenticated")


def test_who_loses_the_right_to_connect_is_out_and_its_session_does_not_come_back(shop: Alone, fresh: str) -> None:
    token = shop.token(fresh)
    with shop.http(token) as http, shop.socket(token) as socket, shop.socket(token) as other:
        http.put("/v1/subscriptions/mine", json={"type": SALE}).raise_for_status()
        waiting = threading.Thread(target=lambda: http.get("/v1/subscriptions/mine/events?wait=60"))
        waiting.start()
        shop.commit(RemoveRule(f"{fresh}-connects"))
        assert ended(socket) == (4403, "connect-denied")
        waiting.join()
        assert ended(other) == (4403, "connect-denied")
        refused(http.get("/v1/types"), 403, "connect-denied")
        with pytest.raises(InvalidStatus) as denied, shop.socket(token):
            pass
        assert denied.value.response.status_code == 403
        shop.commit(rule(f"{fresh}-connects", fresh, "connect"))
        with shop.http() as stranger:
            proof = shop.answered(stranger, shop.key(fresh))
            again = stranger.post("/v1/sessions", content=wire.encode(proof))
            assert again.status_code == 201
        refused(http.get("/v1/types"), 401, "not-authenticated")


@pytest.mark.parametrize("how", ["another key", "no key", "removed"])
def test_who_loses_its_key_is_out(shop: Alone, fresh: str, how: str) -> None:
    token = shop.token(fresh)
    change = {
        "another key": SetKey(fresh, PrivateKey.generate().public.did),
        "no key": SetKey(fresh, None),
        "removed": RemovePrincipal(fresh),
    }[how]
    with shop.http(token) as http, shop.socket(token) as socket:
        shop.commit(change)
        assert ended(socket) == (4401, "not-authenticated")
        refused(http.get("/v1/types"), 401, "not-authenticated")
        with shop.http() as stranger:
            proof = shop.answered(stranger, shop.key(fresh))
            refused(stranger.post("/v1/sessions", content=wire.encode(proof)), 401, "not-authenticated")


def test_a_frame_after_the_session_is_over_is_not_carried_out(shop: Alone, fresh: str) -> None:
    token = shop.token(fresh)
    with shop.http(token) as http, shop.socket(token) as socket:
        http.put("/v1/subscriptions/mine", json={"type": SALE}).raise_for_status()
        assert http.delete("/v1/sessions/current").status_code == 204
        with suppress(ConnectionClosed):
            socket.send(json.dumps({"op": "open", "subscription": "mine"}))
            answer = socket.recv()
            raise AssertionError(answer)
        assert ended(socket)[0] == 4401


# -- someone in the middle ----------------------------------------------------------------------------------------


@contextmanager
def man_in_the_middle(upstream: int, directory: Path) -> Iterator[tuple[int, Path]]:
    """A real TLS proxy with a certificate of its own: its port and that certificate."""
    directory.mkdir()
    make_certificate(directory, (), datetime.now(UTC), 1)
    certificate = directory / "tls.crt"
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    loop, ready, port = asyncio.new_event_loop(), threading.Event(), 0

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", upstream, ssl=blind)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    async def serve() -> None:
        nonlocal port
        context = server_context(certificate, directory / "tls.key")
        server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        ready.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(serve())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield port, certificate
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def test_a_handshake_relayed_through_another_certificate_fails(shop: Alone, tmp_path: Path) -> None:
    anna = shop.key("anna")
    broker = PrivateKey.load(shop.files.broker_key).public.did
    with man_in_the_middle(shop.gateway.port, tmp_path / "middle") as (port, certificate):
        seen = fingerprint(certificate_of(certificate))
        context = client_context(certificate.read_bytes())  # who trusts whatever is shown, trusts this
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, trust_env=False) as http:
            assert http.get("/v1").json()["broker"] == broker, "it does relay"
            # 1. Who checks the broker's proof sees that it is for another connection.
            mine = new_nonce()
            told = wire.decode(http.post("/v1/challenges", json={"nonce": mine}).content, wire.ChallengeAnswer)
            challenge = Challenge(told.nonce, told.broker, told.proof, told.expires)
            with pytest.raises(BrokerNotTrusted):
                prove(anna, challenge, mine, seen)
            # 2. Who does not, signs for the connection it sees, which the gateway does not have.
            refused(http.post("/v1/sessions", json=careless(http, anna, seen)), 401, "not-authenticated")
        # 3. So the client does not even ask for a session, however careless its certificate.
        with pytest.raises(BrokerNotTrusted), connect(f"https://127.0.0.1:{port}", anna, certificate=certificate):
            pass
        # 4. With the right certificate it does not come so far.
        with pytest.raises(HeadgateError) as refusal, shop_client(shop, port):
            pass
        assert "certificate" in str(refusal.value)


def shop_client(shop: Alone, port: int, **more: Any) -> Any:
    given = {"broker": PrivateKey.load(shop.files.broker_key).public.did, "certificate": shop.files.tls_certificate}
    return connect(f"https://127.0.0.1:{port}", shop.key("anna"), **{**given, **more}, requests=HASTY)


def test_the_client_refuses_another_broker_another_certificate_and_a_key_that_is_not_known(
    shop: Alone, tmp_path: Path
) -> None:
    port = shop.gateway.port
    with shop_client(shop, port) as client:
        assert client.principal == "anna"
    other = PrivateKey.generate().public.did
    with pytest.raises(BrokerNotTrusted, match=f"not `{other}`"), shop_client(shop, port, broker=other):
        pass
    make_certificate(tmp_path, (), datetime.now(UTC) - timedelta(days=1), 30)
    with pytest.raises(HeadgateError) as refusal, shop_client(shop, port, certificate=tmp_path / "tls.crt"):
        pass
    assert "certificate" in str(refusal.value)
    with pytest.raises(HeadgateError) as unpinned, shop_client(shop, port, certificate=None):
        pass
    assert "certificate" in str(unpinned.value)
    stranger = PrivateKey.generate()
    with (
        pytest.raises(NotAuthenticated),
        connect(f"https://127.0.0.1:{port}", stranger, certificate=shop.files.tls_certificate),
    ):
        pass
