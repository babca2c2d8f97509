"""The follower against a real gateway of another domain: what it takes up, what it asks, and what it lets go."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.client import aio
from headgate.client.subscription import Delivery
from headgate.commands.peer_roles import allowing
from headgate.gateway.roles.following import Abroad, Following, Home
from headgate.model.changes import Batch, Change, DeclarePrincipal, EndCredential, RemovePeer, SetKey, SetPeer, Tick
from headgate.model.roles import Peer, Reference
from headgate.model.state import ADMINISTRATOR, State
from headgate.node.domain import Domain, Follower
from headgate.node.peers import PeerQuestion, Peers
from headgate.roles.certificates.remote_records import mirrored, record_of
from headgate.trust.keys import PrivateKey
from strategies.role_serving import Office, office
from strategies.serving import eventually

PATIENCE = 60.0
LOGIN = "Login"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """Another domain, whose events are decided as they come; `bob` there is the domain that follows."""
    with office(tmp_path_factory.mktemp("issuer") / "domain", roles__heartbeat="200ms") as made:
        made.served.commit(*allowing(made.state, "bob", LOGIN))
        over = threading.Event()

        def decide() -> None:
            while not over.wait(0.05):
                made.served.decide()

        thread = threading.Thread(target=decide)
        thread.start()
        try:
            yield made
        finally:
            over.set()
            thread.join()


class Here:
    """The domain that follows: its files, and one follower of one peer."""

    def __init__(self, directory: Path, issuer: Office) -> None:
        self.issuer = issuer
        self.own = issuer.served.keys["bob"]
        self.url = f"http://127.0.0.1:{issuer.served.port}"
        self.peer = Peer(LOGIN, issuer.served.gateway.broker.public.did, LOGIN, 20, self.url)
        self.domain = Domain.create(directory / "data")
        self.home = Home("here", self.domain, Follower(self.domain), Peers(directory / "peers.db"))
        self.asking = Peers(directory / "peers.db")
        self.commit(SetPeer(self.peer))
        for name in ("anna", "carl"):
            self.commit(DeclarePrincipal(name), SetKey(name, issuer.served.keys[name].public.did))

    def commit(self, *changes: Change) -> None:
        self.domain.commit(Batch(ADMINISTRATOR, changes))

    @property
    def state(self) -> State:
        return self.domain.ledger.state()

    @property
    def records(self) -> dict[Reference, bool | None]:
        return mirrored(self.state.roles, LOGIN)

    def connect(self, peer: Peer) -> aio.Client:
        return aio.connect(peer.url, self.own, broker=peer.key)

    def following(self) -> Following:
        return Following(self.peer, self.home, self.connect)

    async def shown(self, certificate: str, who: str = "anna", key: PrivateKey | None = None) -> dict[str, Any]:
        """Show a certificate, as a gateway does for a client."""
        did = (key or self.issuer.served.keys[who]).public.did
        id = f"q{time.monotonic_ns()}"
        self.asking.ask(PeerQuestion(id, LOGIN, who, did, certificate), datetime.now(UTC))
        for _ in range(int(PATIENCE / 0.02)):
            if (text := self.asking.answered(id)) is not None:
                found: dict[str, Any] = json.loads(text)
                return found
            await asyncio.sleep(0.02)
        raise AssertionError("nobody answers")

    def followed(self) -> set[Reference]:
        """What the issuer says that we follow."""
        return {one.record for one in self.issuer.state.roles.watches if one.watcher == "bob"}

    def close(self) -> None:
        self.asking.close()
        self.home.close()


@pytest.fixture
def here(tmp_path: Path, issuer: Office) -> Iterator[Here]:
    made = Here(tmp_path, issuer)
    yield made
    made.close()


async def until(what: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, why
        await asyncio.sleep(0.02)


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(_within(story), 3 * PATIENCE))


async def _within(story: Callable[[], Awaitable[None]]) -> None:
    await story()


class Running:
    """A follower at work."""

    def __init__(self, here: Here) -> None:
        self.following = here.following()

    async def __aenter__(self) -> Following:
        self.task = asyncio.create_task(self.following.run())
        return self.following

    async def __aexit__(self, *failed: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def test_a_role_counts_here_until_it_is_revoked_there(here: Here, issuer: Office) -> None:
    held = issuer.log_on("anna", "one")

    async def story() -> None:
        async with Running(here):
            told = await here.shown(held["certificate"])
            (id,) = told["memberships"]
            membership = here.state.roles.memberships[id]
            assert (membership.service, membership.role, membership.args) == (LOGIN, "LoggedOn", ("anna", "one"))
            assert here.records == {record_of(held["record"]): True}
            again = await here.shown(held["certificate"])
            assert again["memberships"] == [id], "shown twice, it counts once"
            issuer.leave("anna", held["id"])
            await until(lambda: here.records == {}, "the revocation to be heard")
            assert here.domain.ledger.endings(id)[0][1] == "`Login` revoked it"
            denied = await here.shown(held["certificate"])
            assert (denied["problem"]["failure"], denied["problem"]["reason"]) == ("revocation", "revoked")

    run(story)


def test_signs_of_life_are_noted_and_make_no_version(here: Here, issuer: Office) -> None:
    held = issuer.log_on("anna", "two")

    async def story() -> None:
        async with Running(here):
            await here.shown(held["certificate"])
            version = here.state.version
            ((_, first),) = here.asking.heard().items()
            await until(lambda: next(iter(here.asking.heard().values())) > first + timedelta(seconds=1), "heartbeats")
            assert here.state.version == version

    run(story)


def test_what_is_forged_stolen_or_no_certificate_is_told_apart(here: Here, issuer: Office) -> None:
    held = issuer.log_on("anna", "three")
    head, body, signature = held["certificate"].split(".")
    forged = f"{head}.{body}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}"

    async def story() -> None:
        async with Running(here):

            async def failure(certificate: str, who: str = "anna") -> tuple[str, str | None]:
                told = (await here.shown(certificate, who))["problem"]
                return told["failure"], told.get("reason")

            assert await failure(held["certificate"], "carl") == ("fraud", "stolen")
            assert (await failure(forged))[0] == "fraud"
            assert (await failure("nonsense"))[0] == "misuse"
            assert (await failure(f"{head}..{signature}"))[0] in ("fraud", "misuse")
            assert here.records == {}
            assert record_of(held["record"]) not in here.followed(), "the issuer was not even asked"

    run(story)


def test_what_nobody_here_needs_is_followed_no_longer(here: Here, issuer: Office) -> None:
    one, two = issuer.log_on("anna", "four"), issuer.log_on("anna", "five")

    async def story() -> None:
        async with Running(here):
            (id,) = (await here.shown(one["certificate"]))["memberships"]
            await here.shown(two["certificate"])
            assert {record_of(one["record"]), record_of(two["record"])} <= here.followed()
            here.commit(EndCredential(id))
            await until(lambda: record_of(one["record"]) not in here.followed(), "the first to be let go")
            assert record_of(two["record"]) in here.followed()

    run(story)


def test_a_peer_that_is_one_no_longer_is_let_go_altogether(here: Here, issuer: Office) -> None:
    held = issuer.log_on("anna", "six")

    async def story() -> None:
        following = here.following()
        task = asyncio.create_task(following.run())
        await here.shown(held["certificate"])
        here.commit(RemovePeer(LOGIN))
        await asyncio.wait_for(task, PATIENCE)
        await until(lambda: record_of(held["record"]) not in here.followed(), "it to be let go")
        assert here.state.roles.memberships == {}

    run(story)


def test_it_is_let_go_also_if_a_message_comes_before_one_looks(
    here: Here, issuer: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, other = issuer.log_on("anna", "six-a"), issuer.log_on("anna", "six-b")

    async def story() -> None:
        following = here.following()
        task = asyncio.create_task(following.run())
        await here.shown(held["certificate"])
        await here.shown(other["certificate"])
        monkeypatch.setattr(following, "_let_go", _nothing)  # so that only what is heard can tell
        here.commit(RemovePeer(LOGIN))
        issuer.leave("anna", other["id"])
        await asyncio.wait_for(task, PATIENCE)
        await until(lambda: record_of(held["record"]) not in here.followed(), "it to be let go")

    run(story)


async def _nothing(*_: object) -> None:
    pass


def test_what_was_lost_to_silence_heals_and_what_was_revoked_meanwhile_does_not(here: Here, issuer: Office) -> None:
    stays, goes = issuer.log_on("anna", "seven"), issuer.log_on("anna", "eight")

    async def story() -> None:
        async with Running(here):
            await here.shown(stays["certificate"])
            await here.shown(goes["certificate"])
        here.commit(Tick(datetime.now(UTC) + timedelta(seconds=here.peer.bound)))
        assert set(here.records.values()) == {None}
        issuer.leave("anna", goes["id"])
        async with Running(here):
            await until(lambda: here.records == {record_of(stays["record"]): True}, "it to heal")
        async with Running(here):
            here.commit(Tick(datetime.now(UTC) + timedelta(seconds=here.peer.bound)))
            await until(lambda: here.records == {record_of(stays["record"]): True}, "it to heal while one follows")

    run(story)


def test_records_that_the_issuer_has_forgotten_are_followed_again(here: Here, issuer: Office) -> None:
    held = issuer.log_on("anna", "nine")
    record = record_of(held["record"])

    async def story() -> None:
        async with Running(here):
            await here.shown(held["certificate"])
        gone = issuer.post("bob", "/unwatch", service=LOGIN, records=[held["record"]])
        assert gone.status_code == 204
        async with Running(here):
            await until(lambda: record in here.followed(), "it to be followed again")
            assert here.records == {record: True}

    run(story)


# -- messages as they should not be -----------------------------------------------------------------------------


def delivery(**data: Any) -> Delivery:
    return Delivery("1", "headgate.roles.Modified", "s", ADMINISTRATOR, None, data, "", 1, lambda _: None)


def test_messages_that_are_doubled_late_lost_or_nonsense_do_no_harm(here: Here, issuer: Office) -> None:
    held = issuer.log_on("anna", "ten")
    record = record_of(held["record"])

    async def story() -> None:
        async with Running(here):
            await here.shown(held["certificate"])
        following = here.following()
        async with here.connect(here.peer) as client:
            abroad = Abroad(client, LOGIN)
            await following.read(abroad)
            known = following._known
            told = {"watcher": "bob", "service": LOGIN, "epoch": known.epoch, "record": held["record"]}
            for bad in (
                delivery(**told, number=known.number, state="false"),
                delivery(**told, number=known.number + 2, state="false"),
                delivery(**{**told, "epoch": "another"}, number=known.number + 1, state="false"),
                delivery(**told, number=known.number + 1, state="maybe"),
                delivery(**told, number="many", state="false"),
                delivery(),
                delivery(**{**told, "record": "4000000.7"}, number=known.number + 1, state="false"),
            ):
                await following.take([bad], abroad)
                assert here.records == {record: True}, bad.data
                following._known = replace(following._known, number=known.number)
            await following.take([delivery(**told, number=known.number + 1, state="false")], abroad)
            assert here.records == {}, "the issuer's own word in its turn counts"

    run(story)


def test_an_answer_that_messages_have_overtaken_is_looked_at_again(here: Here, issuer: Office) -> None:
    held = issuer.log_on("anna", "eleven")

    async def story() -> None:
        following = here.following()
        async with here.connect(here.peer) as client:
            abroad = Abroad(client, LOGIN)
            await following.read(abroad)
            heard = following._known.heard
            following._known = replace(following._known, number=following._known.number + 5)
            told = await abroad.validate(held["certificate"], issuer.served.keys["anna"].public.did)
            issuer.leave("anna", held["id"])
            eventually(lambda: issuer.served.gateway.watchers.read(("bob", LOGIN), datetime.now(UTC)).number > 0)
            await following._mirror(PeerQuestion("q", LOGIN, "anna", "", ""), *told, abroad)
            assert here.records == {}, "it was revoked before it came to count"
            assert heard is not None

    run(story)


def test_an_old_word_takes_away_and_gives_nothing(here: Here, issuer: Office) -> None:
    stays, goes = issuer.log_on("anna", "twelve"), issuer.log_on("anna", "thirteen")

    async def story() -> None:
        async with Running(here):
            await here.shown(stays["certificate"])
            await here.shown(goes["certificate"])
        here.commit(Tick(datetime.now(UTC) + timedelta(seconds=here.peer.bound)))
        issuer.leave("anna", goes["id"])
        ahead = timedelta(seconds=10 * here.peer.bound)
        here.home.clock = lambda: datetime.now(UTC) + ahead
        following = here.following()
        async with here.connect(here.peer) as client:
            abroad = Abroad(client, LOGIN)
            await until(lambda: "false" in _words(issuer), "it to be announced")
            await following.read(abroad)
        assert here.records == {record_of(stays["record"]): None}

    def _words(issuer: Office) -> list[str]:
        told = issuer.ask("bob", "GET", "/records", params={"service": LOGIN}).json()["states"]
        return ["false"] if told.get(goes["record"], "false") == "false" else []

    run(story)


def test_who_may_not_follow_is_told_and_tries_again(here: Here, issuer: Office) -> None:
    here.own = issuer.served.keys["carl"]

    async def story() -> None:
        async with Running(here):

            def trouble() -> str:
                (one,) = here.asking.statuses(here.state.roles, datetime.now(UTC))
                return one.trouble or ""

            await until(lambda: "may not see" in trouble(), "the refusal")

    run(story)
