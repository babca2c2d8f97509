"""Sessions and keys: nothing of another domain or connection, and no key that another follows, lets anyone in."""

from __future__ import annotations

import json
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from harness.alone import Alone, answer_of, head, rule, wait
from harness.attack import SALE, enter, event, fresh, person, publish, refused, version
from headgate.model.changes import Change, DeclarePrincipal, RemovePrincipal, RemoveRule, SetKey
from headgate.protocol import messages as wire
from headgate.trust.certificates import amend_succession, consent_to, issue_succession
from headgate.trust.keys import PrivateKey
from headgate.trust.tls import client_context
from strategies.presenting import certificate, now, types


def stored(made: Alone, id: str) -> bool:
    return any(one.id == id for one in made.domain.events())


def test_a_session_of_one_domain_is_none_in_the_other_though_the_key_is_known_in_both(
    north: Alone, south: Alone
) -> None:
    name = person(south, "both", ("publish subscribe", SALE))
    north.commit(
        DeclarePrincipal(name),
        SetKey(name, south.key(name).public.did),
        rule(f"{name}-connects", name, "connect"),
        rule(f"{name}-all", name, "publish subscribe", SALE),
    )
    for gateway in (0, 1):
        token = south.token(name, gateway)
        with north.http(token, gateway) as http:
            refused(http.get("/v1/sessions/current"), "not-authenticated")
            refused(publish(http, event(f"stray-{gateway}")), "not-authenticated")
        with pytest.raises(InvalidStatus) as denied, north.socket(token, gateway):
            pass
        assert denied.value.response.status_code == 401
        assert not stored(north, f"stray-{gateway}")
    with north.http() as http:
        body = north.answered(http, south.key(name))
        assert http.post("/v1/sessions", content=wire.encode(body)).status_code == 201


def test_a_proof_for_one_domain_is_none_at_the_other(north: Alone, south: Alone) -> None:
    """Who runs one domain hands out the other's challenge, and hands on the answer."""
    victim = north.key("hana")
    with south.http() as here, north.http() as there:
        relayed = south.answered(here, victim)
        refused(there.post("/v1/sessions", content=wire.encode(relayed)), "not-authenticated")
        # The challenge is the other domain's own, and the victim signs it for the connection that it sees.
        with pytest.raises(Exception, match="broker"):
            north.answered(there, victim, binding=south.binding)


def test_a_proof_sent_many_times_at_once_makes_one_session(north: Alone) -> None:
    with north.http() as http, north.http(gateway=1) as other, ThreadPoolExecutor(8) as pool:
        body = wire.encode(north.answered(http, north.key("dora")))
        sent = [pool.submit(one.post, "/v1/sessions", content=body) for one in (http, other) * 8]
        answers = [one.result() for one in sent]
    assert [one.status_code for one in answers].count(201) == 1
    assert {one.status_code for one in answers} == {201, 401}


# -- keys that are followed by others -----------------------------------------------------------------------------


def follow(old: PrivateKey, new: PrivateKey, seconds: float | None = None, number: int = 0) -> str:
    until = None if seconds is None else now() + timedelta(seconds=seconds)
    consent = consent_to(old.public, new)
    return issue_succession(old, new=new.public.did, consent=consent, now=now(), number=number, until=until)


@pytest.fixture
def followed(north: Alone) -> tuple[str, PrivateKey, PrivateKey, str]:
    """Someone whose key is followed by another: the name, both keys and the statement."""
    name = person(north, "heir", ("publish", SALE))
    old, new = north.key(name), PrivateKey.generate()
    return name, old, new, follow(old, new)


def test_sessions_of_the_old_key_are_over_at_every_gateway_once_the_new_one_was_shown(
    north: Alone, followed: tuple[str, PrivateKey, PrivateKey, str]
) -> None:
    name, old, new, word = followed
    token = north.token(name)
    with north.http(token) as first, north.http(token, 1) as second, north.http() as stranger:
        assert first.get("/v1/types").status_code == second.get("/v1/types").status_code == 200
        came = enter(north, new, word, gateway=1)
        assert (came.status_code, came.json()["principal"]) == (201, name)
        for http in (first, second):
            refused(http.get("/v1/types"), "not-authenticated")
            refused(publish(http, event("by-the-old-key")), "not-authenticated")
        refused(enter(north, old), "not-authenticated")
        refused(enter(north, old, word, gateway=1), "not-authenticated", "connect-denied", "chain-invalid")
        assert not stored(north, "by-the-old-key")
        with north.http(came.json()["token"]) as http:
            assert publish(http, event()).json()["status"] == "accepted"
        assert stranger.get("/v1").status_code == 200


def test_a_thief_of_the_old_key_names_no_second_successor(
    north: Alone, followed: tuple[str, PrivateKey, PrivateKey, str]
) -> None:
    name, old, new, word = followed
    thief = PrivateKey.generate()
    assert enter(north, new, word).status_code == 201
    for gateway in (0, 1):
        for number in (0, 1, 7):
            told = enter(north, thief, follow(old, thief, number=number), gateway=gateway)
            refused(told, "bad-definition", "stale-list")
    assert enter(north, new, gateway=1).json()["principal"] == name


def test_a_succession_goes_neither_backwards_nor_round(
    north: Alone, followed: tuple[str, PrivateKey, PrivateKey, str]
) -> None:
    name, old, new, word = followed
    assert enter(north, new, word).status_code == 201
    # The thief of the old key has no signature of the new one; who has both goes round in a circle.
    forged = follow(PrivateKey.generate(), old)
    refused(enter(north, old, forged), "not-authenticated", "chain-invalid", "bad-statement", "connect-denied")
    came = enter(north, old, follow(new, old))
    refused(came, "bad-definition")
    assert enter(north, new).json()["principal"] == name


def test_a_succession_without_consent_takes_nobody_over(
    north: Alone, followed: tuple[str, PrivateKey, PrivateKey, str]
) -> None:
    """Mallory makes its own key's successor someone else, to be taken for it, and uses a consent given to another."""
    name, _old, _new, word = followed
    mallory = PrivateKey.generate()
    victim = north.key("hana")
    borrowed = consent_to(PrivateKey.generate().public, victim)
    with pytest.raises(Exception, match="agree"):
        issue_succession(mallory, new=victim.public.did, consent=borrowed, now=now())
    header, body, signature = follow(mallory, PrivateKey.generate()).split(".")
    _, others, _ = word.split(".")
    for text in (f"{header}.{others}.{signature}", f"{header}.{body}.{word.split('.')[2]}"):
        refused(enter(north, mallory, text), "bad-statement")
    with north.http(north.token(name)) as http:  # nothing was taken over
        assert http.get("/v1/sessions/current").json()["principal"] == name


def test_an_ended_key_is_given_no_more_time_and_showing_it_again_changes_nothing(
    north: Alone, followed: tuple[str, PrivateKey, PrivateKey, str]
) -> None:
    name, old, new, _ = followed
    ends = follow(old, new, seconds=60)
    token = enter(north, new, ends).json()["token"]
    later = issue_succession(
        old, new=new.public.did, consent=consent_to(old.public, new), now=now(), number=5, until=None
    )
    with north.http(token) as http, north.http(token, 1) as other:
        before = version(http)
        told = other.post("/v1/statements", json={"statements": [later]})
        refused(told, "bad-definition")
        for _ in range(3):
            assert http.post("/v1/statements", json={"statements": [ends]}).status_code == 200
        assert version(http) == before
        sooner = amend_succession(old, ends, until=now() - timedelta(seconds=1), now=now())
        assert other.post("/v1/statements", json={"statements": [sooner]}).status_code == 200
        refused(http.post("/v1/statements", json={"statements": [ends]}), "bad-definition", "stale-list")
        assert http.get("/v1/sessions/current").json()["principal"] == name


def test_certificates_that_an_ended_key_signs_give_nothing(north: Alone) -> None:
    owner = person(north, "owner", ("install", "*"))
    old, new, friend = north.key(owner), PrivateKey.generate(), person(north, "friend")
    kind = f"{owner}.Type".replace("-", "")
    with north.http(north.token(owner)) as http:
        assert http.put(f"/v1/types/{kind}", json={"attributes": {"x": "int"}}).status_code == 201
    assert enter(north, new, follow(old, new, seconds=-1)).status_code == 201
    stolen = certificate(old, north.key(friend), types(kind, "publish"))
    with north.http(north.token(friend)) as http, north.http(north.token(friend), 1) as other:
        for one in (http, other):
            refused(one.post("/v1/statements", json={"statements": [stolen]}), "chain-invalid", "bad-statement")
            refused(publish(one, event(type=kind, data={"x": 1})), "publish-denied")
        good = certificate(new, north.key(friend), types(kind, "publish"))
        assert http.post("/v1/statements", json={"statements": [good]}).status_code == 200
        assert publish(other, event(type=kind, data={"x": 1})).json()["status"] == "accepted"


# -- in the middle of a request -----------------------------------------------------------------------------------

LOSSES = {
    "the right to connect": lambda name: [RemoveRule(f"{name}-connects")],
    "the right to publish": lambda name: [RemoveRule(f"{name}-0")],
    "its key": lambda name: [SetKey(name, None)],
    "itself": lambda name: [RemovePrincipal(name)],
}


@pytest.mark.parametrize("what", LOSSES)
def test_who_loses_something_while_its_body_is_on_its_way_has_lost_it(north: Alone, what: str) -> None:
    name = person(north, "slow", ("publish", SALE))
    token, id = north.token(name), fresh("late")
    body = json.dumps(event(id)).encode()
    changes: list[Change] = LOSSES[what](name)
    lines = (f"content-type: {wire.EVENT_JSON}", f"content-length: {len(body)}", "connection: close")
    with north.connected() as connection:
        connection.sendall(head("/v1/events", token, *lines) + body[:20])
        north.commit(*changes)
        with north.http(token, 1) as http:  # so that nobody can say it was before
            wait(lambda: publish(http, event()).status_code in (401, 403), "the loss")
        connection.sendall(body[20:])
        answer = answer_of(connection)
    assert answer.split(b" ")[1] in (b"401", b"403"), answer[:300]
    assert not stored(north, id)


def test_a_session_that_is_ended_elsewhere_while_its_body_is_on_its_way_is_over(north: Alone) -> None:
    name = person(north, "slow", ("publish", SALE))
    token, id = north.token(name), fresh("late")
    body = json.dumps(event(id)).encode()
    lines = (f"content-type: {wire.EVENT_JSON}", f"content-length: {len(body)}", "connection: close")
    with north.connected() as connection, north.http(token, 1) as other:
        connection.sendall(head("/v1/events", token, *lines) + body[:20])
        assert other.delete("/v1/sessions/current").status_code == 204
        connection.sendall(body[20:])
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 401 "), answer[:300]
    assert not stored(north, id)


def test_a_name_given_to_someone_else_brings_nothing_of_its_first_holder(north: Alone) -> None:
    """Removed and declared again with another key: sessions, subscriptions and positions are not inherited."""
    name = person(north, "again", ("publish subscribe", SALE))
    first = north.token(name)
    with north.http(first) as http:
        assert http.put("/v1/subscriptions/mine", json={"type": SALE, "from": "start"}).status_code == 201
    north.commit(RemovePrincipal(name))
    new = PrivateKey.generate()
    north.commit(
        DeclarePrincipal(name),
        SetKey(name, new.public.did),
        rule(f"{name}-connects", name, "connect"),
        rule(f"{name}-0", name, "subscribe", SALE),
    )
    with north.http(first, 1) as old, north.http(enter(north, new).json()["token"]) as http:
        refused(old.get("/v1/subscriptions"), "not-authenticated")
        assert http.get("/v1/subscriptions").json()["subscriptions"] == []
        refused(http.get("/v1/subscriptions/mine/events"), "not-found")


# -- downgrades ---------------------------------------------------------------------------------------------------


def plain(made: Alone) -> bytes:
    with socket.create_connection(("127.0.0.1", made.gateway.port), timeout=20) as connection:
        connection.sendall(b"GET /v1 HTTP/1.1\r\nhost: x\r\n\r\n")
        try:
            return connection.recv(65_536)
        except ConnectionResetError:
            return b""


def test_nothing_is_said_in_the_clear_or_in_an_old_protocol(north: Alone) -> None:
    assert plain(north) == b""
    old = client_context(north.files.tls_certificate.read_bytes())
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        pytest.raises((ssl.SSLError, OSError)),
        socket.create_connection(("127.0.0.1", north.gateway.port), timeout=20) as connection,
        old.wrap_socket(connection, server_hostname="127.0.0.1"),
    ):
        pass
    weak = client_context(north.files.tls_certificate.read_bytes())
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        weak.set_ciphers("NULL:eNULL:aNULL:EXPORT:RC4:@SECLEVEL=0")
    except ssl.SSLError:
        return  # this machine does not even know them
    with (
        pytest.raises((ssl.SSLError, OSError)),
        socket.create_connection(("127.0.0.1", north.gateway.port), timeout=20) as connection,
        weak.wrap_socket(connection, server_hostname="127.0.0.1"),
    ):
        pass


def test_a_handshake_cannot_be_weakened(north: Alone) -> None:
    """Short and repeated nonces, the broker's own nonce sent back, and a principal that signs its own challenge."""
    key = north.key("dora")
    with north.http() as http:
        for nonce in ("", "x", "x" * 21, "x" * 129, "\u00e9" * 22, "a b" * 10):
            refused(http.post("/v1/challenges", json={"nonce": nonce}), "bad-request")
        proof = north.answered(http, key)
        body = json.loads(wire.encode(proof))
        mirrored = {**body, "client_nonce": body["nonce"]}
        own = {**body, "nonce": body["client_nonce"]}
        broker = PrivateKey.load(north.files.broker_key).public.did
        for one in (mirrored, own, {**body, "principal": broker}, {**body, "signature": "A" * 86}):
            refused(http.post("/v1/sessions", json=one), "not-authenticated")
        for more in ({"admin": True}, {"principal": [body["principal"]]}, {"token": "x"}):
            refused(http.post("/v1/sessions", json={**body, **more}), "bad-request")
        answer: httpx.Response = http.post("/v1/sessions", json=json.loads(wire.encode(north.answered(http, key))))
        assert answer.status_code == 201
        assert "no-store" in answer.headers["cache-control"]
