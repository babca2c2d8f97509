"""Following the records of another domain's service: what to make of its messages (OASIS 4.10).

Guarantees: a message is taken up only after all before it, once; whatever is missing, out of order or of another epoch
leads to all states being read again, never to a guess. A sign of life counts from when the service said it and never
from later than now, and only once everything that was said before it is known: so what is believed at a time was true
no longer ago than the bound, and one tick of the other clock. Messages of an epoch that is over change nothing.
Leaves out: carrying the messages (`gateway.roles.following`) and what becomes of records
(`roles.requests.transition`). No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

from headgate.model.errors import BadDefinition
from headgate.model.limits import MAX_EPOCHS
from headgate.model.roles import Membership, Peer, Reference, RoleBook, reference
from headgate.model.state import State
from headgate.model.values import brief
from headgate.roles.records.facts import Mirrored, fact_of

Identity: TypeAlias = tuple[str, str, str]
Word: TypeAlias = Literal["true", "false", "unknown"]
TRUTHS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "unknown": None}
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_HALF: Final = 32


@dataclass(frozen=True, slots=True)
class Modified:
    """A record has another state; messages of one epoch are numbered from one."""

    epoch: str
    number: int
    record: Reference
    state: bool | None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """All that had changed until `at` is in the messages up to `number`."""

    epoch: str
    number: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The states of all records that are followed, as the messages up to `number` left them, and until when."""

    epoch: str
    number: int
    at: datetime
    states: Mapping[Reference, bool | None]


Message: TypeAlias = Modified | Heartbeat


@dataclass(frozen=True, slots=True)
class FollowCounts:
    """What went wrong on the way: messages that came twice, were lost, or were of an epoch that is over."""

    duplicated: int = 0
    lost: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class FollowState:
    """How far one has followed. Without an epoch nothing has been read yet."""

    epoch: str | None = None
    number: int = 0
    heard: datetime | None = None
    over: tuple[str, ...] = ()
    """Epochs that are over, the last at the end."""
    doubted: str | None = None
    """The epoch of a message that led to reading everything again."""
    counts: FollowCounts = field(default_factory=FollowCounts)


@dataclass(frozen=True, slots=True)
class FollowStep:
    """What follows from messages: states to take up, and whether everything has to be read before any more counts."""

    known: FollowState
    states: Mapping[Reference, bool | None] = field(default_factory=dict)
    read: bool = False


def hear(known: FollowState, messages: Iterable[Message], now: datetime) -> FollowStep:
    """Take messages in the order in which they came; those after one that leads to reading are covered by it."""
    states: dict[Reference, bool | None] = {}
    for message in messages:
        match message:
            case _ if known.epoch is None:
                return FollowStep(known, states, read=True)
            case _ if message.epoch in known.over:
                known = _counted(known, late=1)
            case _ if message.epoch != known.epoch:
                return FollowStep(replace(known, doubted=message.epoch), states, read=True)
            case Modified(_, number) if number <= known.number:
                known = _counted(known, duplicated=1)
            case Modified(_, number, record, state) if number == known.number + 1:
                known = replace(known, number=number)
                if states.get(record, True) is not False:  # false is final, whatever is said later
                    states[record] = state
            case Modified(_, number):
                return FollowStep(_counted(known, lost=number - known.number - 1), states, read=True)
            case Heartbeat(_, number) if number > known.number:
                return FollowStep(_counted(known, lost=number - known.number), states, read=True)
            case Heartbeat(_, _, at):  # an earlier number is of an earlier time, and all until then is known as well
                known = replace(known, heard=_later(known.heard, min(at, now)))
    return FollowStep(known, states)


def take(known: FollowState, read: Snapshot, now: datetime) -> FollowState:
    """Begin anew from what was read; numbers that went back, or another epoch, are as good as any."""
    over = known.over
    for epoch in (known.epoch, known.doubted):
        if epoch is not None and epoch != read.epoch and epoch not in over:
            over = (*over, epoch)[-MAX_EPOCHS:]
    over = tuple(epoch for epoch in over if epoch != read.epoch)
    return replace(
        known,
        epoch=read.epoch,
        number=read.number,
        heard=_later(known.heard, min(read.at, now)),
        over=over,
        doubted=None,
    )


def _later(a: datetime | None, b: datetime) -> datetime:
    return b if a is None else max(a, b)


def _counted(known: FollowState, *, duplicated: int = 0, lost: int = 0, late: int = 0) -> FollowState:
    was = known.counts
    return replace(known, counts=FollowCounts(was.duplicated + duplicated, was.lost + lost, was.late + late))


# -- reading what came ----------------------------------------------------------------------------------------


def state_of(word: object) -> bool | None:
    """A state as it is told: `true`, `false` or `unknown`."""
    if not isinstance(word, str) or word not in TRUTHS:
        raise BadDefinition(f"`{brief(word)}` is no state of a record", remedy="`true`, `false` or `unknown`")
    return TRUTHS[word]


def word_of(state: bool | None) -> Word:
    """How a state is told."""
    return "unknown" if state is None else "true" if state else "false"


def record_of(text: object) -> Reference:
    """A record as it is told: `17.4`."""
    slot, dot, magic = text.partition(".") if isinstance(text, str) else ("", "", "")
    if not (dot and _is_number(slot) and _is_number(magic)):
        raise BadDefinition(f"`{brief(text)}` is no credential record", remedy="write it like `17.4`")
    return reference(int(slot), int(magic))


def _is_number(text: str) -> bool:
    """A number of 31 bits, written as numbers are: references are whole numbers of 63 bits."""
    return text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) < 1 << _HALF - 1


def message_of(data: Mapping[str, object]) -> Message:
    """A notice as it was delivered."""
    epoch, number = data.get("epoch"), data.get("number")
    if not isinstance(epoch, str) or not epoch:
        raise BadDefinition("a notice says no epoch")
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise BadDefinition(f"`{brief(number)}` is no number of a notice")
    if data.get("record") is not None:
        return Modified(epoch, number, record_of(data["record"]), state_of(data.get("state")))
    return Heartbeat(epoch, number, time_of(data.get("at")))


def time_of(text: object) -> datetime:
    """A time as it is told."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise BadDefinition(f"`{brief(text)}` is no time", remedy="write it like `2026-01-01T09:00:00Z`")
    return time.astimezone(UTC)


# -- what the ledger knows of it ------------------------------------------------------------------------------


def mirrored(book: RoleBook, peer: str, of: Membership | None = None) -> dict[Reference, bool | None]:
    """The records of a peer that something here, or one membership, rests on, by their references there."""
    states: dict[Reference, bool | None] = {}
    for membership in book.memberships.values() if of is None else (of,):
        if membership.service != peer:
            continue
        for link in book.records[membership.record].parents:
            leaf = book.records.get(link.parent)
            fact = fact_of(leaf.fact) if leaf is not None and leaf.fact else None
            if leaf is not None and isinstance(fact, Mirrored):
                states[fact.remote] = leaf.state
    return states


def news(book: RoleBook, peer: str, told: Mapping[Reference, bool | None]) -> dict[Reference, bool | None]:
    """What was told that differs from what is known here; records that nothing here rests on are no news."""
    here = mirrored(book, peer)
    return {ref: state for ref, state in told.items() if ref in here and here[ref] is not state}


def identity(peer: Peer) -> Identity:
    """What makes a peer the same: one of the same name may be another service."""
    return peer.name, peer.key, peer.service


def is_fresh(peer: Peer, heard: datetime | None, now: datetime) -> bool:
    """Is a sign of life of this time still borne?"""
    return heard is not None and now < heard + timedelta(seconds=peer.bound)


def lapses(state: State) -> Iterator[tuple[Peer, datetime]]:
    """The peers that something true rests on, and until when their silence is borne."""
    if not state.roles.peers:
        return
    needed = {one.service for one in state.roles.memberships.values() if one.state is True}
    for peer in state.roles.peers.values():
        if peer.name in needed:
            yield peer, _NEVER if peer.heard is None else peer.heard + timedelta(seconds=peer.bound)
