"""Certificates and lists: no chain gives more than its root has, and nothing that was taken back comes again."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import timedelta
from itertools import pairwise

import httpx
import pytest

from harness.alone import Alone, wait
from harness.attack import SALE, enter, event, fresh, person, publish, refused, version
from headgate.model.authority import Issuing, Provider, Validity
from headgate.model.changes import AddIssuing, RemoveProvider, SetProvider
from headgate.model.limits import MAX_CHAIN_LENGTH
from headgate.protocol import messages as wire
from headgate.trust.certificates import CERTIFICATE, issue_certificate
from headgate.trust.identities import issue_identity
from headgate.trust.keys import PrivateKey
from strategies.presenting import certificate, identity, network, now, revocations, types

OWN = "dora.Own"


@pytest.fixture
def root(north: Alone) -> PrivateKey:
    """The north's own key, which coordinates its network and owns its types."""
    return PrivateKey.load(north.files.admin_key)


@pytest.fixture
def dora(north: Alone) -> PrivateKey:
    """Who owns a type and nothing else."""
    return north.key("dora")


@pytest.fixture
def eve(north: Alone) -> str:
    """Someone who may connect and nothing else."""
    return person(north, "eve")


def show(made: Alone, who: str, *texts: str, gateway: int = 0) -> httpx.Response:
    with made.http(made.token(who, gateway), gateway) as http:
        return http.post("/v1/statements", json={"statements": list(texts)})


def denied_everywhere(made: Alone, who: str, type: str = SALE) -> None:
    data = {"item": "lamp"} if type == SALE else {"x": 1}
    for gateway in (0, 1):
        with made.http(made.token(who, gateway), gateway) as http:
            refused(publish(http, event(type=type, data=data)), "publish-denied")


def test_the_owner_of_another_domain_gives_nothing_here(north: Alone, south: Alone, eve: str, root: PrivateKey) -> None:
    """The other domain has a type of the same name, and its owner gives everything on it."""
    foreign = PrivateKey.load(south.files.admin_key)
    key = north.key(eve)
    for authority in (types(SALE, "publish"), types("*", "publish", "subscribe"), network("connect", "install")):
        refused(show(north, eve, certificate(foreign, key, authority)), "chain-invalid")
    named = certificate(foreign, key, types(SALE, "publish", owner=root.public.did))
    refused(show(north, eve, named), "chain-invalid")
    denied_everywhere(north, eve)


def test_the_coordinator_of_another_domain_lets_nobody_in(north: Alone, south: Alone, root: PrivateKey) -> None:
    """Neither by itself, nor by what the coordinator here gave to the other's gateways to connect with."""
    stranger, theirs = PrivateKey.generate(), PrivateKey.load(south.files.admin_key)
    broker = PrivateKey.load(south.files.broker_key)
    leads = (south.files.statements / "broker.jwt").read_text().split()
    refused(enter(north, stranger, *leads, certificate(broker, stranger)), "not-authenticated", "chain-invalid")
    given = certificate(root, theirs, network("connect"))  # to connect, not to pass on
    refused(enter(north, stranger, given, certificate(theirs, stranger)), "chain-invalid")
    refused(enter(north, stranger, certificate(theirs, stranger), gateway=1), "not-authenticated", "chain-invalid")
    assert enter(north, theirs, given).status_code == 201


def test_an_owners_wildcard_reaches_its_own_types_alone(north: Alone, dora: PrivateKey, eve: str) -> None:
    everything = certificate(dora, north.key(eve), types("*", "publish", "subscribe", "extend"))
    assert show(north, eve, everything).status_code == 200
    denied_everywhere(north, eve)
    with north.http(north.token(eve, 1), 1) as http:
        assert publish(http, event(type=OWN, data={"x": 1})).json()["status"] == "accepted"
        change = {"op": "add-rule", "rule": {"id": fresh("r"), "who": eve, "may": "publish", "type": SALE}}
        refused(http.post("/v1/batches", json={"changes": [change]}), "govern-denied")


def test_what_may_not_be_passed_on_is_not(north: Alone, dora: PrivateKey, eve: str) -> None:
    friend = PrivateKey.generate()
    given = certificate(dora, friend, types(OWN, "publish"))
    refused(show(north, eve, given, certificate(friend, north.key(eve), types(OWN, "publish"))), "chain-invalid")
    denied_everywhere(north, eve, OWN)
    passed = certificate(dora, friend, types(OWN, "publish"), delegate=True)
    beyond = certificate(friend, north.key(eve), types(OWN, "publish", "subscribe", "extend"))
    assert show(north, eve, passed, beyond).status_code == 200
    with north.http(north.token(eve)) as http:  # and of what is passed on, no more than there was
        assert publish(http, event(type=OWN, data={"x": 1})).json()["status"] == "accepted"
        assert http.get(f"/v1/types/{OWN}/restriction").json()["satisfiable"] is False


def test_a_link_does_not_widen_the_condition_of_the_one_before(north: Alone, dora: PrivateKey, eve: str) -> None:
    friend = PrivateKey.generate()
    narrow = certificate(dora, friend, types(OWN, "publish", where="x > 10"), delegate=True)
    wide = certificate(friend, north.key(eve), types(OWN, "publish", where="x > 0 or x <= 0"))
    assert show(north, eve, narrow, wide).status_code == 200
    for gateway in (0, 1):
        with north.http(north.token(eve, gateway), gateway) as http:
            refused(publish(http, event(type=OWN, data={"x": 3})), "publish-denied")
            assert publish(http, event(type=OWN, data={"x": 11})).json()["status"] == "accepted"


@pytest.mark.parametrize("ahead", [3_600, 86_400 * 365 * 50])
def test_what_is_issued_in_the_future_does_not_count_yet(
    north: Alone, dora: PrivateKey, eve: str, ahead: float
) -> None:
    early = certificate(dora, north.key(eve), types(OWN, "publish"), ago=-ahead)
    told = show(north, eve, early)
    assert refused(told, "bad-statement")["reason"] == "not-yet-valid"
    denied_everywhere(north, eve, OWN)


def test_what_begins_later_gives_nothing_until_then(north: Alone, dora: PrivateKey, eve: str) -> None:
    later = Validity(now() + timedelta(hours=1), now() + timedelta(hours=2))
    text = issue_certificate(
        dora, subject=north.key(eve).public.did, authority=[types(OWN, "publish")], now=now(), validity=later
    )
    refused(show(north, eve, text), "chain-invalid", "bad-statement", "expired")
    denied_everywhere(north, eve, OWN)


def test_a_stream_ends_with_the_certificate_that_it_rested_on(north: Alone, dora: PrivateKey, eve: str) -> None:
    """What is published after the certificate's end is not delivered, though the reader was connected all the time."""
    publisher = person(north, "teller")
    assert show(north, publisher, certificate(dora, north.key(publisher), types(OWN, "publish"))).status_code == 200
    brief = certificate(dora, north.key(eve), types(OWN, "subscribe"), seconds=4)
    end = now() + timedelta(seconds=4)
    token = north.token(eve)
    with north.http(token) as http, north.http(north.token(publisher), 1) as teller, north.socket(token) as socket:
        assert http.post("/v1/statements", json={"statements": [brief]}).status_code == 200
        assert http.put("/v1/subscriptions/brief", json={"type": OWN}).status_code == 201
        socket.send(json.dumps({"op": "open", "subscription": "brief", "credit": 100}))
        first = publish(teller, event(type=OWN, data={"x": 1})).json()["id"]
        assert json.loads(socket.recv())["op"] == "opened"
        assert [one["id"] for one in json.loads(socket.recv())["events"]] == [first]
        wait(lambda: now() > end, "the end of the certificate")
        assert publish(teller, event(type=OWN, data={"x": 2})).json()["status"] == "accepted"
        again = certificate(dora, north.key(eve), types(OWN, "subscribe"))
        assert http.post("/v1/statements", json={"statements": [again]}).status_code == 200
        third = publish(teller, event(type=OWN, data={"x": 3})).json()["id"]
        assert [one["id"] for one in json.loads(socket.recv())["events"]] == [third]


def test_what_was_revoked_at_one_gateway_is_not_shown_again_at_the_other(
    north: Alone, dora: PrivateKey, eve: str
) -> None:
    text = certificate(dora, north.key(eve), types(OWN, "publish"))
    assert show(north, eve, text).status_code == 200
    number = int(fresh("n").split("-")[1])
    with north.http() as http:
        gone = revocations(dora, number, CERTIFICATE.read(text).value.id)
        assert http.post("/v1/revocations", json={"list": gone}).status_code == 200
    for gateway in (0, 1):
        refused(show(north, eve, text, gateway=gateway), "revoked")
    denied_everywhere(north, eve, OWN)


def test_a_list_is_not_rolled_back_forked_or_written_by_another(north: Alone, dora: PrivateKey, eve: str) -> None:
    text = certificate(dora, north.key(eve), types(OWN, "publish"))
    kept = person(north, "kept")
    other = certificate(dora, north.key(kept), types(OWN, "publish"))
    gone, stays = (CERTIFICATE.read(one).value.id for one in (text, other))
    assert show(north, eve, text).status_code == show(north, kept, other).status_code == 200
    number = 1_000 + int(fresh("n").split("-")[1])
    with north.http() as http, north.http(gateway=1) as there:
        assert http.post("/v1/revocations", json={"list": revocations(dora, number, gone)}).status_code == 200
        for back in (revocations(dora, number - 1), revocations(dora, 0), revocations(dora, number)):
            refused(there.post("/v1/revocations", json={"list": back}), "stale-list")
        # Who issued nothing revokes nothing, and who issued something revokes only that.
        refused(http.post("/v1/revocations", json={"list": revocations(north.key(eve), 9, stays)}), "not-found")
        hana = revocations(PrivateKey.generate(), 9, stays)
        refused(there.post("/v1/revocations", json={"list": hana}), "not-found")
    denied_everywhere(north, eve, OWN)
    with north.http(north.token(kept, 1), 1) as http:
        assert publish(http, event(type=OWN, data={"x": 1})).json()["status"] == "accepted"


def test_nobody_takes_back_what_was_issued_to_another(north: Alone, eve: str) -> None:
    holder = person(north, "holder")
    north.commit(AddIssuing(Issuing(fresh("issue"), holder, (types(SALE, "publish"),), 600)))
    with north.http(north.token(holder)) as http, north.http(north.token(eve), 1) as attacker:
        made = http.post("/v1/certificates", json={}).json()
        (id,) = [one["id"] for one in made["certificates"]]
        texts = [*made["statements"], *(one["statement"] for one in made["certificates"])]
        assert http.post("/v1/statements", json={"statements": texts}).status_code == 200
        for one in (id, id[:-1] + ("A" if id[-1] != "A" else "B"), "s" + "A" * 22):
            refused(attacker.post(f"/v1/certificates/{one}/revoke", json={}), "not-found")
        refused(attacker.post("/v1/certificates", json={"rule": made["certificates"][0]["rule"]}), "not-found")
        assert attacker.get("/v1/certificates").json()["issued"] == []
        assert publish(http, event()).json()["status"] == "accepted"
        assert attacker.get(f"/v1/status/{id}").json()["status"] == "good"


def test_no_one_gets_a_longer_certificate_than_its_rule_gives(north: Alone) -> None:
    holder = person(north, "holder")
    north.commit(AddIssuing(Issuing(fresh("issue"), holder, (types(SALE, "publish"),), 30)))
    with north.http(north.token(holder)) as http:
        made = http.post("/v1/certificates", json={"seconds": 10**6}).json()["certificates"]
        found = [CERTIFICATE.read(one["statement"]).value for one in made]
        assert all(one.validity.until and one.validity.until <= now() + timedelta(seconds=31) for one in found)
        assert not any(one.delegate for one in found)
        for seconds in (-1, 0, 2**63, 1e300):
            refused(http.post("/v1/certificates", json={"seconds": seconds}), "bad-request")


def test_what_is_made_out_to_one_domain_is_nothing_in_the_other(
    north: Alone, south: Alone, dora: PrivateKey, eve: str
) -> None:
    elsewhere = certificate(dora, north.key(eve), types(OWN, "publish"), audience=["south"])
    assert refused(show(north, eve, elsewhere), "bad-statement")["reason"] == "wrong-audience"
    denied_everywhere(north, eve, OWN)


def rewritten(key: PrivateKey, text: str, old: str, new: str) -> str:
    """A certificate that says what no honest tool writes, signed all the same."""
    header, payload, _ = text.split(".")
    said = urlsafe_b64decode(payload + "=" * (-len(payload) % 4)).decode()
    assert old in said
    body = urlsafe_b64encode(said.replace(old, new).encode()).rstrip(b"=").decode()
    signature = urlsafe_b64encode(key.sign(f"{header}.{body}".encode())).rstrip(b"=").decode()
    return f"{header}.{body}.{signature}"


@pytest.mark.parametrize("what", ["who in group insiders", "Ties(who)", "predicate evil(who)"])
def test_a_condition_that_looks_into_what_is_closed_tells_nobody_what_is_there(
    north: Alone, dora: PrivateKey, eve: str, what: str
) -> None:
    """The owner of a type gives someone a certificate, and publishes candidates to see which come."""
    plain = certificate(dora, north.key(eve), types(OWN, "subscribe", where="who = 'candidate'"))
    answers = []
    for asked in (what, what.replace("insiders", "nosuch").replace("Ties", "Nosu").replace("evil", "none")):
        written = json.dumps(asked)[1:-1]
        answers.append(show(north, eve, rewritten(dora, plain, plain_where(plain), written)))
    assert {refused(one, "bad-statement")["reason"] for one in answers} <= {"bad-claim", "bad-condition"}
    assert "insiders" not in answers[1].text
    with north.http(north.token(eve)) as http:
        assert http.get(f"/v1/types/{OWN}/restriction").json()["satisfiable"] is False


def plain_where(text: str) -> str:
    """The condition of a certificate, as its text has it."""
    payload = text.split(".")[1]
    said = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return json.dumps(said["authority"][0]["where"])[1:-1]


def test_long_chains_and_wide_bags_are_given_up_soon(world: object, north: Alone, dora: PrivateKey, eve: str) -> None:
    """A chain past the limit, a ring, and a lattice in which every path is a chain."""
    wide = types(OWN, "publish")
    keys = [dora, *(PrivateKey.generate() for _ in range(MAX_CHAIN_LENGTH))]
    links = [certificate(a, b, wide, delegate=True) for a, b in pairwise(keys)]
    refused(show(north, eve, *links, certificate(keys[-1], north.key(eve), wide)), "chain-invalid")
    ring = [PrivateKey.generate() for _ in range(20)]
    circle = [certificate(a, b, wide, delegate=True) for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)]
    refused(show(north, eve, *circle, certificate(ring[3], north.key(eve), wide)), "chain-invalid")
    layers = [[PrivateKey.generate() for _ in range(3)] for _ in range(10)]
    lattice = [
        certificate(a, b, wide, delegate=True) for upper, lower in pairwise(layers) for a in upper for b in lower
    ]
    ends = [certificate(one, north.key(eve), wide) for one in layers[-1]]
    begins = [certificate(dora, one, wide, delegate=True) for one in layers[0]]
    found = show(north, eve, *begins, *lattice, *ends)  # 59,049 chains
    refused(found, "chain-invalid", "too-large", "too-many")
    denied_everywhere(north, eve, OWN)


def test_a_statement_of_a_stranger_about_someone_is_no_identity(north: Alone, eve: str) -> None:
    """A provider that the domain does not know, the domain's gateways, and one that it knows no more."""
    key, provider = north.key(eve), PrivateKey.generate()
    refused(show(north, eve, identity(PrivateKey.generate(), key, rank=9)), "chain-invalid", "bad-statement")
    about = identity(provider, key, rank=9)
    north.commit(SetProvider(Provider(provider.public.did, fresh("provider"))))
    stolen = identity(provider, north.key("hugo"), rank=9)
    refused(show(north, eve, stolen), "chain-invalid", "bad-statement")
    assert show(north, eve, about).json()["identities"]
    north.commit(RemoveProvider(provider.public.did))
    refused(show(north, eve, about, gateway=1), "chain-invalid", "bad-statement")


def test_a_guest_brings_no_more_than_its_mapping_and_no_statement_of_another(north: Alone, south: Alone) -> None:
    """The other domain vouches for someone here, who is neither mapped nor its holder."""
    guest, thief = PrivateKey.generate(), PrivateKey.generate()
    home = PrivateKey.load(south.files.broker_key)
    north.commit(SetProvider(Provider(home.public.did, fresh("home"), ())))
    try:
        hour = Validity(now(), now() + timedelta(minutes=10))
        text = issue_identity(home, subject=guest.public.did, attributes={"rank": 9}, validity=hour, now=now())
        for key, codes in (
            (thief, ("bad-statement", "chain-invalid", "not-authenticated")),
            (guest, ("connect-denied", "chain-invalid", "not-authenticated")),
        ):
            with north.http() as http:
                proof = json.loads(wire.encode(north.answered(http, key)))
                proof.pop("present", None)
                told = http.post("/v1/identity/guest", json={**proof, "statement": text})
                if key is thief:
                    refused(told, *codes)
                elif told.status_code == 201:  # a statement of this domain with nothing in it, which lets nobody in
                    refused(enter(north, key, told.json()["statement"]), *codes)
    finally:
        north.commit(RemoveProvider(home.public.did))


def test_a_bag_that_is_bad_in_one_place_is_taken_up_nowhere(north: Alone, dora: PrivateKey, eve: str) -> None:
    good = certificate(dora, north.key(eve), types(OWN, "publish"))
    header, body, signature = certificate(dora, north.key(eve), types(OWN, "subscribe")).split(".")
    bad = f"{header}.{body}.{signature[:-4]}AAAA"
    with north.http(north.token(eve)) as http:
        before = version(http)
        for bag in ([good, bad], [bad, good], [good] * 5 + [bad]):
            told = refused(http.post("/v1/statements", json={"statements": bag}), "bad-statement")
            assert told["place"] == f"statement {bag.index(bad) + 1}"
        assert version(http) == before
    denied_everywhere(north, eve, OWN)
