"""Messages about records that are late, lost, doubled or out of order lead to the truth, or to nothing at all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model.changes import Batch, DeclarePrincipal, EndCredential, HearPeer, MirrorRole, SetPeer, Tick
from headgate.model.errors import BadDefinition
from headgate.model.limits import MAX_EPOCHS
from headgate.model.roles import Peer, reference, reference_text
from headgate.model.state import ADMINISTRATOR, State
from headgate.roles.certificates.remote_records import (
    FollowState,
    Heartbeat,
    Message,
    Modified,
    Snapshot,
    hear,
    identity,
    is_fresh,
    lapses,
    message_of,
    mirrored,
    news,
    record_of,
    state_of,
    take,
    time_of,
    word_of,
)
from headgate.roles.requests.transition import next_state

START = datetime(2026, 1, 1, tzinfo=UTC)
R, S = reference(17, 4), reference(18, 4)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def following(number: int = 3, epoch: str = "a") -> FollowState:
    return take(FollowState(), Snapshot(epoch, number, at(0), {}), at(0))


# -- one message ----------------------------------------------------------------------------------------------


def test_nothing_counts_before_all_is_read() -> None:
    step = hear(FollowState(), [Modified("a", 1, R, False)], at(1))
    assert (step.read, dict(step.states), step.known.heard) == (True, {}, None)


def test_messages_count_in_order_and_once() -> None:
    step = hear(following(), [Modified("a", 4, R, None), Modified("a", 4, R, None), Modified("a", 5, R, True)], at(1))
    assert (step.read, dict(step.states), step.known.number, step.known.counts.duplicated) == (False, {R: True}, 5, 1)


def test_a_gap_leads_to_reading_and_what_follows_it_is_left_to_that() -> None:
    step = hear(following(), [Modified("a", 4, S, False), Modified("a", 6, R, False), Modified("a", 7, R, True)], at(1))
    assert (step.read, dict(step.states), step.known.number, step.known.counts.lost) == (True, {S: False}, 4, 1)


def test_a_heartbeat_that_knows_more_leads_to_reading_and_is_no_sign_of_life() -> None:
    step = hear(following(), [Heartbeat("a", 5, at(9))], at(9))
    assert (step.read, step.known.heard, step.known.counts.lost) == (True, at(0), 2)


def test_a_sign_of_life_is_as_old_as_it_says_and_never_of_the_future() -> None:
    assert hear(following(), [Heartbeat("a", 3, at(5))], at(60)).known.heard == at(5)
    assert hear(following(), [Heartbeat("a", 3, at(500))], at(60)).known.heard == at(60)
    assert hear(following(), [Heartbeat("a", 3, at(5)), Heartbeat("a", 2, at(4))], at(60)).known.heard == at(5)


def test_false_is_final_within_what_came_together() -> None:
    assert dict(hear(following(), [Modified("a", 4, R, False), Modified("a", 5, R, True)], at(1)).states) == {R: False}


def test_another_epoch_leads_to_reading_and_the_last_one_is_over() -> None:
    step = hear(following(), [Heartbeat("b", 0, at(5))], at(5))
    assert (step.read, step.known.heard) == (True, at(0))
    known = take(step.known, Snapshot("b", 0, at(5), {}), at(6))
    assert (known.epoch, known.number, known.heard, known.over) == ("b", 0, at(5), ("a",))
    late = hear(known, [Modified("a", 4, R, True), Heartbeat("a", 9, at(6))], at(6))
    assert (late.read, dict(late.states), late.known.counts.late, late.known.heard) == (False, {}, 2, at(5))


def test_a_late_message_of_an_epoch_that_was_never_known_is_read_for_once() -> None:
    step = hear(following(), [Heartbeat("older", 8, at(1))], at(2))
    assert step.read
    known = take(step.known, Snapshot("a", 3, at(2), {}), at(2))
    assert not hear(known, [Heartbeat("older", 9, at(3))], at(3)).read


def test_an_epoch_that_comes_back_is_not_over() -> None:
    known = take(following(epoch="b"), Snapshot("a", 1, at(1), {}), at(1))
    assert take(known, Snapshot("b", 7, at(2), {}), at(2)).over == ("a",)


def test_only_so_many_epochs_are_remembered() -> None:
    known = FollowState()
    for number in range(3 * MAX_EPOCHS):
        known = take(known, Snapshot(f"e{number}", 0, at(number), {}), at(number))
    assert len(known.over) == MAX_EPOCHS


def test_numbers_that_went_back_are_begun_from() -> None:
    known = take(following(9), Snapshot("a", 2, at(1), {}), at(1))
    assert dict(hear(known, [Modified("a", 3, R, False)], at(2)).states) == {R: False}


# -- any channel ----------------------------------------------------------------------------------------------


@dataclass
class Issuer:
    """A service that announces in epochs, and everything that was ever true of its records."""

    epoch: int = 0
    number: int = 0
    now: float = 0.0
    states: dict[int, bool | None] = field(default_factory=lambda: {R: True, S: True})
    history: list[tuple[float, dict[int, bool | None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.history.append((0.0, dict(self.states)))

    def change(self, record: int, state: bool | None) -> Message | None:
        if self.states[record] is False or self.states[record] is state:
            return None
        self.states[record] = state
        self.number += 1
        self.history.append((self.now, dict(self.states)))
        return Modified(str(self.epoch), self.number, record, state)

    def beat(self) -> Message:
        return Heartbeat(str(self.epoch), self.number, at(self.now))

    def restart(self) -> Message:
        self.epoch, self.number = self.epoch + 1, 0
        return self.beat()

    def read(self) -> Snapshot:
        return Snapshot(str(self.epoch), self.number, at(self.now), dict(self.states))

    def was(self, record: int, state: bool | None, since: datetime) -> bool:
        """Did the record have this state at some time from then on?"""
        for (begin, states), (end, _) in zip(self.history, [*self.history[1:], (10**6, {})], strict=True):
            if at(end) > since and states[record] is state:
                return True
            del begin
        return False


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.sampled_from([R, S]), st.sampled_from([True, False, None])),
        st.tuples(st.just("beat")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("lose"), st.integers(0, 9)),
        st.tuples(st.just("double"), st.integers(0, 9)),
        st.tuples(st.just("swap"), st.integers(0, 9)),
        st.tuples(st.just("deliver"), st.integers(1, 4)),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(EVENTS)
def test_what_is_believed_was_true_since_the_service_was_last_heard(events: list[tuple[object, ...]]) -> None:
    issuer = Issuer()
    known, told, way = take(FollowState(), issuer.read(), at(0)), dict(issuer.states), list[Message]()

    def deliver(count: int) -> None:
        nonlocal known
        some, way[:] = way[:count], way[count:]
        step = hear(known, some, at(issuer.now))
        known = step.known
        for record, state in step.states.items():
            told[record] = False if told[record] is False else state
        if step.read:
            read = issuer.read()
            known = take(known, read, at(issuer.now))
            told.update(read.states)

    for kind, *rest in events:
        issuer.now += 1
        match kind:
            case "change":
                message = issuer.change(*rest)  # type: ignore[arg-type]
                way += [] if message is None else [message]
            case "beat":
                way.append(issuer.beat())
            case "restart":
                way.append(issuer.restart())
            case "deliver":
                deliver(rest[0])  # type: ignore[arg-type]
            case _ if not way:
                continue
            case "lose":
                del way[rest[0] % len(way)]  # type: ignore[operator]
            case "double":
                way.append(way[rest[0] % len(way)])  # type: ignore[operator]
            case "swap":
                way.append(way.pop(rest[0] % len(way)))  # type: ignore[operator]
        assert known.heard is not None
        for record, state in told.items():
            assert issuer.was(record, state, known.heard), (reference_text(record), state, known.heard)
            if issuer.states[record] is not False:
                assert state is not False, "what was never revoked is never lost"
    way.append(issuer.beat())
    deliver(len(way))
    deliver(len(way))
    assert told == issuer.states
    assert known.heard == at(issuer.now)


# -- what is told ---------------------------------------------------------------------------------------------


def test_notices_are_read() -> None:
    common = {"watcher": "cl", "service": "Login", "epoch": "a", "number": 4}
    told = {**common, "record": "17.4", "state": "unknown"}
    assert message_of(told) == Modified("a", 4, R, None)
    assert message_of({**common, "at": "2026-01-01T00:00:05Z"}) == Heartbeat("a", 4, at(5))


BAD: list[dict[str, object]] = [
    {"epoch": None},
    {"epoch": ""},
    {"number": "4"},
    {"number": True},
    {"number": -1},
    {"record": "17"},
    {"record": 17.4},
    {"record": "17.4.1"},
    {"record": "-1.4"},
    {"record": "99999999999.4"},
    {"record": "\u0661.4"},
    {"state": "maybe"},
    {"state": None},
    {"state": True},
    {"record": None, "at": "yesterday"},
    {"record": None, "at": "2026-01-01T00:00:00"},
    {"record": None, "at": 17},
]


@pytest.mark.parametrize("wrong", BAD, ids=str)
def test_a_notice_that_is_none_is_refused(wrong: dict[str, object]) -> None:
    good: dict[str, object] = {"epoch": "a", "number": 4, "record": "17.4", "state": "true"}
    message_of(good)
    with pytest.raises(BadDefinition):
        message_of({**good, **wrong})


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
@settings(max_examples=50)
def test_records_and_states_are_told_as_they_are_read(place: int, magic: int) -> None:
    assert record_of(reference_text(reference(place, magic))) == reference(place, magic)
    for state in (True, False, None):
        assert state_of(word_of(state)) is state


def test_times_are_in_utc() -> None:
    assert time_of("2026-01-01T01:00:00+01:00") == START


# -- what the ledger knows ------------------------------------------------------------------------------------

PEER = Peer("Login", "did:key:x", "Login", 10)


def world() -> State:
    first = State(administrator=ADMINISTRATOR)
    return next_state(
        first,
        Batch(
            ADMINISTRATOR,
            (
                DeclarePrincipal("ann"),
                SetPeer(PEER),
                HearPeer("Login", 1, {}, at(0)),
                MirrorRole("m1", "Login", "LoggedOn", ("ann",), "ann", R, True, at(0)),
                MirrorRole("m2", "Login", "Admin", (), "ann", S, None, at(0)),
            ),
        ),
    )


def then(state: State, *changes: object) -> State:
    return next_state(state, Batch(ADMINISTRATOR, changes))  # type: ignore[arg-type]


def test_what_is_mirrored_and_what_is_news() -> None:
    state = world()
    assert mirrored(state.roles, "Login") == {R: True, S: None}
    assert mirrored(state.roles, "Other") == {}
    assert mirrored(state.roles, "Login", state.roles.memberships["m2"]) == {S: None}
    assert news(state.roles, "Login", {R: True, S: True, reference(1, 1): False}) == {S: True}
    assert mirrored(then(state, EndCredential("m1")).roles, "Login") == {S: None}


def test_silence_is_borne_so_long_and_only_where_something_rests_on_it() -> None:
    state = world()
    assert [(peer.name, when) for peer, when in lapses(state)] == [("Login", at(10))]
    lost = then(state, Tick(at(10)))
    assert mirrored(lost.roles, "Login") == {R: None, S: None}
    assert list(lapses(lost)) == []
    healed = then(lost, HearPeer("Login", 1, {R: True}, at(11)))
    assert mirrored(healed.roles, "Login")[R] is True
    gone = then(healed, HearPeer("Login", 2, {R: False}, at(12)), HearPeer("Login", 3, {R: True}, at(13)))
    assert mirrored(gone.roles, "Login") == {S: None}


def test_a_sign_of_life_grows_old() -> None:
    assert is_fresh(PEER, at(0), at(9.9))
    assert not is_fresh(PEER, at(0), at(10))
    assert not is_fresh(PEER, None, at(0))


def test_a_peer_of_another_key_is_another() -> None:
    assert identity(replace(PEER, bound=99, heard=at(1))) == identity(PEER)
    assert identity(replace(PEER, key="did:key:y")) != identity(PEER)
