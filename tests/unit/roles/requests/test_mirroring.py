"""Roles of other domains: what they last said, unknown in silence, and false for good once revoked."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.model.changes import (
    DeclarePrincipal,
    HearPeer,
    MirrorRole,
    RemovePeer,
    SetPeer,
    SetRolefile,
    Tick,
    WatchRecords,
)
from headgate.model.errors import BadDefinition, RoleDenied, UnknownName
from headgate.model.limits import MAX_PEER_BOUND_SECONDS, MAX_WATCHED
from headgate.model.rolefiles import Rolefile
from headgate.model.roles import Peer, reference
from strategies.rolestories import NOW, Story, later

WARD = Peer("Ward", "did:key:za", "Ward", 20)


def mirror(id: str = "n", remote: int = 7, state: bool | None = True, who: str = "ann", **more: Any) -> MirrorRole:
    asked: dict[str, Any] = {"role": "Nurse", "args": (who,), "at": NOW, **more}
    return MirrorRole(id=id, peer="Ward", holder=who, remote=remote, state=state, **asked)


def hear(number: int, states: dict[int, bool | None] | None = None, at: float = 0) -> HearPeer:
    return HearPeer("Ward", number, states or {}, later(at))


def ward() -> Story:
    story = Story(DeclarePrincipal("ann"), DeclarePrincipal("bob"), SetPeer(WARD)).do(hear(1))
    return story.rolefile("Staff(u) <- Ward.Nurse(u)*", "Past(u) <- Ward.Nurse(u)").do(mirror())


def test_what_rests_on_a_mirrored_role_follows_it() -> None:
    story = ward().enter("s", "ann", "Staff").enter("p", "ann", "Past").do(hear(2, {7: None}))
    assert [story.state_of(id) for id in ("n", "s", "p")] == [None, None, True]
    story.do(hear(3, {7: True}))
    assert [story.state_of(id) for id in ("n", "s", "p")] == [True, True, True]
    story.do(hear(4, {7: False}))
    assert [story.state_of(id) for id in ("n", "s", "p")] == [False, False, True]
    assert story.reasons["n"] == "`Ward` revoked it"
    story.do(hear(5, {7: True}))
    assert story.state_of("n") is False


@pytest.mark.parametrize("state", [None, False])
def test_what_is_said_of_it_in_the_batch_that_shows_it_counts(state: bool | None) -> None:
    story = Story(DeclarePrincipal("ann"), SetPeer(WARD)).do(hear(1))
    assert story.do(mirror(), hear(2, {7: state})).state_of("n") is state


def test_silence_makes_it_unknown_and_what_is_read_then_heals() -> None:
    story = ward().enter("s", "ann", "Staff").do(Tick(later(19)))
    assert "s" in story
    story.do(Tick(later(20)))
    assert (story.state_of("n"), story.state_of("s")) == (None, None)
    with pytest.raises(RoleDenied) as refused:
        story.enter("t", "ann", "Staff", using=("n",))
    assert refused.value.failure == "revocation"
    with pytest.raises(RoleDenied):
        story.enter("t", "ann", "Staff")
    assert "s" not in story.do(hear(2, at=21))  # a sign of life says nothing of the record
    assert "s" in story.do(hear(3, {7: True}, at=22))
    assert "s" in story.do(Tick(later(41)))
    assert "s" not in story.do(Tick(later(42)))


def test_a_peer_that_was_never_heard_counts_until_the_clock_moves() -> None:
    story = Story(DeclarePrincipal("ann"), SetPeer(WARD)).do(mirror())
    assert "n" in story
    assert story.do(Tick(NOW)).state_of("n") is None


def test_messages_that_come_late_or_twice_change_nothing() -> None:
    story = ward().do(hear(5, {7: None}))
    assert story.do(hear(4, {7: True}, at=9)).state_of("n") is None
    assert story.state.roles.peers["Ward"].number == 5
    assert story.state.roles.peers["Ward"].heard == NOW
    assert story.do(hear(5, {7: True}, at=-3)).state_of("n") is True
    assert story.state.roles.peers["Ward"].heard == NOW  # time does not go back
    assert story.do(hear(6, {99: False})).state_of("n") is True


def test_what_is_shown_twice_is_one_membership() -> None:
    story = ward().do(mirror("again"))
    assert story.state.roles.memberships.keys() == {"n"}
    story.do(Tick(later(60)))
    assert story.state_of("n") is None
    assert story.do(mirror("again")).state_of("n") is True  # its issuer has just confirmed it
    story.do(mirror("other", role="Sister"))
    assert story.state.roles.memberships.keys() == {"n", "other"}
    assert not story.do(hear(9, {7: False})).state.roles.memberships


def test_what_the_issuer_has_revoked_is_not_taken_up() -> None:
    story = ward()
    with pytest.raises(RoleDenied) as refused:
        story.do(mirror("x", 8, False))
    assert refused.value.failure == "revocation"
    with pytest.raises(UnknownName):
        story.do(mirror("x", 8, who="nobody"))
    assert story.do(mirror("x", 8, None)).state_of("x") is None


def test_a_service_that_counts_no_more_takes_its_roles_along() -> None:
    story = ward().enter("s", "ann", "Staff").do(RemovePeer("Ward"))
    assert not story.state.roles.memberships
    assert not story.state.roles.records
    assert story.reasons["n"] == "`Ward` counts no more"
    for change in (RemovePeer("Ward"), hear(9), mirror("x")):
        with pytest.raises(UnknownName):
            story.do(change)


@pytest.mark.parametrize(
    ("peer", "stays"),
    [
        (Peer("Ward", "did:key:za", "Ward", 5, "https://ward"), True),
        (Peer("Ward", "did:key:zb", "Ward", 20), False),
        (Peer("Ward", "did:key:za", "Ward2", 20), False),
    ],
)
def test_another_key_or_service_is_another_peer(peer: Peer, stays: bool) -> None:
    story = ward().do(hear(4)).do(SetPeer(peer))
    assert ("n" in story) is stays
    assert story.state.roles.peers["Ward"].number == (4 if stays else 0)
    assert story.state.roles.peers["Ward"].bound == peer.bound


def test_names_of_services_here_and_there_are_apart() -> None:
    story = ward()
    with pytest.raises(BadDefinition, match="of this domain"):
        story.do(SetPeer(Peer("S", "did:key:zc", "S", 5)))
    with pytest.raises(BadDefinition, match="of another domain"):
        story.do(SetRolefile("Ward", Rolefile()))
    with pytest.raises(RoleDenied, match="of another domain"):
        story.grant("x", "ann", "Nurse", "ann", service="Ward")


@pytest.mark.parametrize("bound", [0, -1, MAX_PEER_BOUND_SECONDS + 1])
def test_how_long_silence_is_borne_is_bounded(bound: int) -> None:
    with pytest.raises(BadDefinition, match="MAX_PEER_BOUND_SECONDS"):
        Story(SetPeer(Peer("Ward", "did:key:za", "Ward", bound)))


def test_a_record_that_is_followed_stays_to_be_read() -> None:
    story = ward().enter("s", "ann", "Staff")
    ref = story.state.roles.memberships["s"].record
    story.do(WatchRecords("other", (ref, reference(99, 1)))).end("s")
    assert {one.record for one in story.state.roles.watches} == {ref}
    assert story.state.roles.records[ref].state is False
    story.do(WatchRecords("third", (ref,), False))  # it followed nothing
    assert ref in story.state.roles.records
    story.do(WatchRecords("other", (ref,), False))
    assert ref not in story.state.roles.records
    assert not story.state.roles.watches


def test_so_many_records_are_followed_and_no_more() -> None:
    refs = tuple(reference(place, 1) for place in range(MAX_WATCHED + 1))
    with pytest.raises(BadDefinition, match="MAX_WATCHED"):
        ward().do(WatchRecords("other", refs))
