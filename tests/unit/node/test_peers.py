"""Signs of life that gateways and the follower share, questions between them, and what the clock makes of silence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.commands import peer_roles
from headgate.commands.expiry import StandingClock
from headgate.model.changes import Batch, Change, DeclarePrincipal, HearPeer, MirrorRole, SetPeer
from headgate.model.errors import TooBusy
from headgate.model.limits import MAX_PRESENTED
from headgate.model.roles import Peer, reference
from headgate.model.state import ADMINISTRATOR
from headgate.node.domain import Domain, Follower
from headgate.node.peers import QUESTION_SECONDS, PeerQuestion, Peers
from headgate.roles.certificates.remote_records import FollowCounts, identity
from headgate.storage.shared import Where
from strategies.role_serving import Office, office

START = datetime(2026, 1, 1, tzinfo=UTC)
PEER = Peer("Login", "did:key:x", "Login", 10)
R = reference(1, 1)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.fixture
def peers(stored_in: Where) -> Iterator[Peers]:
    made = Peers(stored_in)
    yield made
    made.close()


# -- signs of life --------------------------------------------------------------------------------------------


def test_a_sign_of_life_is_of_one_peer_and_its_key(peers: Peers) -> None:
    peers.hear(PEER, at(1), FollowCounts(1, 2, 3))
    assert peers.heard() == {identity(PEER): at(1)}
    assert identity(replace(PEER, key="did:key:y")) not in peers.heard()
    peers.forget("Login")
    assert peers.heard() == {}


class Ledger:
    """A domain with a mirrored role, a clock in the test's hands, and what was heard."""

    def __init__(self, directory: Path) -> None:
        self.domain = Domain.create(directory / "data")
        self.follower = Follower(self.domain)
        self.peers = Peers(directory / "peers.db")
        self.now = START
        self.commit(
            DeclarePrincipal("ann"),
            SetPeer(PEER),
            HearPeer("Login", 0, {}, at(0)),
            MirrorRole("m", "Login", "LoggedOn", ("ann",), "ann", R, True, at(0)),
        )
        self.clock = self.another()

    def another(self) -> StandingClock:
        return StandingClock(self.domain, self.follower, lambda: self.now, self.peers.heard)

    def commit(self, *changes: Change) -> None:
        self.domain.commit(Batch(ADMINISTRATOR, changes))
        self.follower.refresh()

    def holds(self, seconds: float) -> bool | None:
        """What a gateway goes by at a time, once the clock has done its part."""
        self.now = at(seconds)
        for _ in range(3):
            if self.clock.due(self.follower.state, self.now):
                self.clock.settle()
        assert not self.clock.due(self.follower.state, self.now)
        return self.follower.state.roles.memberships["m"].state

    @property
    def version(self) -> int:
        return self.domain.ledger.version

    def close(self) -> None:
        self.peers.close()
        self.follower.close()
        self.domain.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path)
    yield made
    made.close()


def test_silence_ends_it_at_the_very_moment(ledger: Ledger) -> None:
    assert ledger.holds(9.999) is True
    assert ledger.holds(10) is None


def test_a_sign_of_life_costs_no_version_until_it_matters(ledger: Ledger) -> None:
    assert ledger.holds(0) is True
    version = ledger.version
    for second in range(1, 10):
        ledger.peers.hear(PEER, at(second), FollowCounts())
        assert ledger.holds(second) is True
    assert ledger.version == version
    assert ledger.holds(10) is True
    assert ledger.version == version + 1
    assert ledger.holds(18.999) is True
    assert ledger.holds(19) is None


def test_a_sign_of_life_of_the_future_is_one_of_now(ledger: Ledger) -> None:
    ledger.peers.hear(PEER, at(500), FollowCounts())
    assert ledger.holds(10) is True
    assert ledger.follower.state.roles.peers["Login"].heard == at(10)


def test_an_old_sign_of_life_and_that_of_another_key_do_not_count(ledger: Ledger) -> None:
    ledger.peers.hear(replace(PEER, key="did:key:y"), at(9), FollowCounts())
    assert ledger.holds(10) is None


def test_a_sign_of_life_that_is_too_old_itself_does_not_help(ledger: Ledger) -> None:
    ledger.peers.hear(PEER, at(5), FollowCounts())
    assert ledger.holds(15) is None


def test_what_is_believed_by_an_old_word_falls_at_once_also_where_the_clock_has_looked_since(ledger: Ledger) -> None:
    assert ledger.holds(30) is None
    ledger.commit(HearPeer("Login", 1, {R: True}, at(12)))
    assert ledger.holds(30) is None
    ledger.commit(HearPeer("Login", 2, {R: True}, at(29)))
    assert ledger.holds(30) is True
    ledger.clock = ledger.another()
    assert ledger.holds(38.9) is True
    assert ledger.holds(39) is None


def test_how_one_stands_is_told(ledger: Ledger) -> None:
    (told,) = ledger.peers.statuses(ledger.follower.state.roles, at(3))
    assert (told.name, told.bound, told.seconds, told.records, told.unknown) == ("Login", 10, 3.0, 1, 0)
    ledger.peers.hear(PEER, at(4), FollowCounts(1, 2, 3))
    ledger.holds(20)
    ledger.peers.fail("Login", "nobody answers")
    (told,) = ledger.peers.statuses(ledger.follower.state.roles, at(20))
    assert (told.seconds, told.unknown, told.counts, told.trouble) == (16.0, 1, FollowCounts(1, 2, 3), "nobody answers")
    ledger.peers.hear(PEER, at(20), FollowCounts())
    (told,) = ledger.peers.statuses(ledger.follower.state.roles, at(20))
    assert told.trouble is None


# -- questions ------------------------------------------------------------------------------------------------


def question(id: str, peer: str = "Login") -> PeerQuestion:
    return PeerQuestion(id, peer, "ann", "did:key:a", "text")


def test_a_question_is_answered_once_and_forgotten(peers: Peers) -> None:
    peers.ask(question("q"), at(0))
    assert peers.asked("Login", at(1)) == [question("q")]
    assert peers.asked("Other", at(1)) == []
    assert peers.answered("q") is None
    peers.answer("q", "yes")
    peers.answer("q", "no")
    assert peers.asked("Login", at(1)) == []
    assert peers.answered("q") == "yes"
    assert peers.answered("q") is None


def test_a_question_grows_old_and_only_so_many_wait(peers: Peers) -> None:
    for number in range(MAX_PRESENTED):
        peers.ask(question(f"q{number}"), at(0))
    with pytest.raises(TooBusy, match="MAX_PRESENTED"):
        peers.ask(question("more"), at(1))
    assert len(peers.asked("Login", at(1))) == MAX_PRESENTED
    assert peers.asked("Login", at(QUESTION_SECONDS)) == []
    peers.ask(question("more"), at(QUESTION_SECONDS))
    assert peers.asked("Login", at(QUESTION_SECONDS)) == [question("more")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with office(tmp_path_factory.mktemp("peers") / "domain") as made:
        own = made.served.gateway.broker.public.did
        made.served.commit(SetPeer(Peer("Elsewhere", own, "Login", 10)))
        yield made


def test_without_a_follower_nobody_is_asked_and_that_is_said(place: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_roles, "QUESTION_SECONDS", 0.2)
    held = place.log_on("anna")
    answer = place.post("anna", "/present", certificate=held["certificate"])
    assert (answer.status_code, answer.json()["code"]) == (503, "too-busy")
    assert place.served.gateway.peers.asked("Elsewhere", datetime.now(UTC)) == []
    text = place.served.metrics()
    assert 'headgate_peer_silence_seconds{peer="Elsewhere"} -1.0' in text
    assert 'headgate_peer_bound_seconds{peer="Elsewhere"} 10.0' in text
