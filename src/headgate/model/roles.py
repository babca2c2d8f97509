"""Memberships, elections and credential records: who holds which name, and on what that rests (OASIS 4).

Guarantees: frozen values. A record is known by a reference that is never used again: its place in a table, and the
version of the ledger that put it there. What a false record held up has ended for good; an unknown one may heal. An
argument that was dumped as JSON, for the ledger or the wire, is loaded as what it was, kinds included: `1`, `1.0`,
`true` and `'1'` stay apart, floats keep every bit, timestamps every microsecond. A set is `{"set": "rw"}`, its letters
in the order of its type, else by code point. Whatever else is loaded is refused with `type-mismatch` (OASIS 4.3).
Leaves out: how a role is gained (`roles.requests.entry`), how a change spreads (`roles.records.records`), whether an
argument is of its role's type (`roles.rolefiles.types`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from headgate.model.errors import TypeMismatch
from headgate.model.expressions import Argument, RoleRef
from headgate.model.limits import MAX_SET_LETTERS
from headgate.model.rolefiles import EventPolicy, Representative, Rolefile
from headgate.model.values import Kind, brief, conform, micros, moment

Reference: TypeAlias = int
"""A credential record: place in the table (upper 32 bits) and magic (lower 32 bits)."""

Service: TypeAlias = tuple[str, str]
"""A service and the instance of its rolefile; most have only the instance `''`."""


def reference(place: int, magic: int) -> Reference:
    """The reference of the record at a place, put there at a version."""
    return place << 32 | magic


def place_of(ref: Reference) -> int:
    """Where the record stands in the table."""
    return ref >> 32


def magic_of(ref: Reference) -> int:
    """The version that put the record there."""
    return ref & 0xFFFF_FFFF


def reference_text(ref: Reference) -> str:
    """`17.4`."""
    return f"{place_of(ref)}.{magic_of(ref)}"


class Op(Enum):
    """How a record follows from its parents; a leaf follows from nothing but what is known."""

    LEAF = "leaf"
    AND = "and"
    OR = "or"


@dataclass(frozen=True, slots=True)
class Link:
    """A parent of a record; a negated one counts as true where it is false."""

    parent: Reference
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A belief: true, false or unknown (None).

    `fact` says what a leaf is about (see `roles.records.facts`); of a leaf that is simply true until it is revoked it
    is empty. The state of a record with parents follows from theirs, and is kept only to be read.
    """

    ref: Reference
    op: Op = Op.LEAF
    parents: tuple[Link, ...] = ()
    state: bool | None = True
    fact: str = ""
    permanent: bool = False
    """The state will never change."""
    direct: bool = False
    """A certificate embeds it."""
    auto_revoke: bool = False
    """To be revoked if the parent's holder exits."""
    latched: bool = False
    """Once false, false for good: a membership that was lost is entered again, under another record."""


class _AtService:
    """Something of an instance of a service."""

    __slots__ = ()
    service: str
    instance: str

    @property
    def place(self) -> Service:
        """The service and the instance."""
        return self.service, self.instance


@dataclass(frozen=True, slots=True)
class Membership(_AtService):
    """A principal holds a role. Only while its record is true does it grant anything."""

    id: str
    service: str
    role: str
    args: tuple[Argument, ...]
    holder: str
    record: Reference
    instance: str = ""
    state: bool | None = True
    """True, or None for unknown; a membership that became false is no more."""
    statement: str = ""
    """The statement it was entered by, as text; empty if the service gave it for its own reasons."""
    supports: tuple[str, ...] = ()
    """The memberships and elections it was entered with."""
    appointment: bool = False
    """A qualification that outlives sessions (Capabilities V.A), given by `grant` alone."""
    until: datetime | None = None
    foreign: bool = False
    """A service of another domain gave it: whoever means it names that service."""


@dataclass(frozen=True, slots=True)
class Election(_AtService):
    """A principal in the elector role elects whoever holds the required roles (OASIS 4.4)."""

    id: str
    service: str
    role: str
    args: tuple[Argument | None, ...]
    """What the candidate becomes; None leaves an argument open."""
    elector: str
    membership: str
    """The elector's membership, which may have ended since."""
    office: RoleRef
    """What the elector was when it elected: a role with its service, instance and arguments."""
    office_record: Reference
    record: Reference
    instance: str = ""
    required: tuple[RoleRef, ...] = ()
    until: datetime | None = None
    revoke_on_exit: bool = False
    revokers: tuple[str, ...] = ()
    """Other holders of the elector role to whom the right to revoke was passed on."""


Credential: TypeAlias = Membership | Election
"""What someone may show, and what may be revoked."""


@dataclass(frozen=True, slots=True)
class Ban(_AtService):
    """A role instance that was revoked by role, so that it cannot be entered again until reinstated (OASIS 4.11).

    Where a statement asks for a quorum, that is so once its other revocations are there (`roles.requests.revocation`).
    """

    service: str
    instance: str
    role: str
    args: tuple[Argument | None, ...]
    """None stands for any: all instances that fit are revoked."""
    revoker: str
    """The revoker's role, as the statement names it: `Chair`, `Hr.Manager`."""
    by: str = ""
    """Who revoked it; not known of ledgers that come from before quorums."""
    office: RoleRef | None = None
    """What the revoker was: a role with its service, instance and arguments."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A service of another domain whose roles count here (OASIS 4.9): `name` here is `service` there.

    `bound`: for how many seconds its silence is borne; then its records are unknown. `heard` is when it was last heard,
    as of when that last mattered; `number` the last message that was taken up.
    """

    name: str
    key: str
    service: str
    bound: int
    url: str = ""
    heard: datetime | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class RecordWatch:
    """Another domain's service follows one of our records."""

    watcher: str
    record: Reference


@dataclass(frozen=True, slots=True)
class RoleBook:
    """All that is known of roles at a version."""

    rolefiles: Mapping[str, Rolefile] = field(default_factory=dict)
    """By service; all instances of a service share one."""
    memberships: Mapping[str, Membership] = field(default_factory=dict)
    elections: Mapping[str, Election] = field(default_factory=dict)
    records: Mapping[Reference, Record] = field(default_factory=dict)
    bans: frozenset[Ban] = frozenset()
    peers: Mapping[str, Peer] = field(default_factory=dict)
    watches: frozenset[RecordWatch] = frozenset()
    policy: EventPolicy = field(default_factory=EventPolicy)
    representatives: Mapping[str, Representative] = field(default_factory=dict)
    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    """The memberships of each holder, in the order in which they began: follows from `memberships`."""

    def credentials(self) -> list[Credential]:
        """All memberships and elections."""
        return [*self.memberships.values(), *self.elections.values()]

    def credential(self, id: str) -> Credential | None:
        """A membership or an election."""
        return self.memberships.get(id) or self.elections.get(id)

    def held_by(self, principal: str) -> Iterator[Membership]:
        """The memberships of a principal that are true now, in the order in which they began."""
        for id in self.held.get(principal, ()):
            if self.memberships[id].state is True:
                yield self.memberships[id]


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a membership or an election is no more."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """What a batch makes of the role book: worked out once, recorded, never worked out again."""

    memberships: tuple[Membership, ...] = ()
    """Those that began, or whose state or record changed."""
    elections: tuple[Election, ...] = ()
    records: tuple[Record, ...] = ()
    """Those that began or changed."""
    ended: tuple[Ending, ...] = ()
    """Memberships and elections that ended."""
    dropped: tuple[Reference, ...] = ()
    banned: tuple[Ban, ...] = ()
    lifted: tuple[Ban, ...] = ()
    peers: tuple[Peer, ...] = ()
    rolefiles: tuple[tuple[str, Rolefile | None], ...] = ()
    watched: tuple[RecordWatch, ...] = ()
    unwatched: tuple[RecordWatch, ...] = ()
    peers_gone: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Does it change nothing?"""
        return self == RoleFacts()


def dump_argument(value: Argument, alphabet: str = "") -> object:
    """An argument as JSON: bool, int, text and null as they are, the others tagged."""
    match value:
        case frozenset():
            return {"set": "".join(sort_letters(letters_of(value), alphabet))}
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": value.hex()}
        case datetime() if value.tzinfo is not None:
            return {"timestamp": micros(value)}
        case bytes():
            return {"bytes": value.hex()}
        case _:
            raise TypeMismatch(f"`{brief(value)}` is no argument of a role")


def load_argument(data: object) -> Argument:
    """The inverse of `dump_argument`, from data that nobody vouches for."""
    match data:
        case None | bool():
            return data
        case int():
            return conform(Kind.INT, data)
        case str():
            return conform(Kind.STRING, data)
        case dict() if len(data) == 1:
            return _tagged(data)
        case _:
            raise TypeMismatch(f"`{brief(data)}` is no argument of a role")


def letters_of(raw: Iterable[object]) -> frozenset[str]:
    """A set of single letters, each once."""
    letters = list(raw)
    if len(letters) > MAX_SET_LETTERS:
        raise TypeMismatch(f"{len(letters)} letters are past MAX_SET_LETTERS ({MAX_SET_LETTERS})")
    distinct: set[str] = set()
    for letter in letters:
        # Anything else could not be written in a rolefile.
        if not isinstance(letter, str) or len(letter) != 1 or not letter.isalnum() or letter.isdecimal():
            raise TypeMismatch(f"`{brief(letter)}` is not a letter", remedy="a set is of single letters, as in `{rw}`")
        if letter in distinct:
            raise TypeMismatch(f"the letter `{letter}` is there twice")
        distinct.add(letter)
    return frozenset(distinct)


def sort_letters(letters: Iterable[str], alphabet: str = "") -> list[str]:
    """Letters in the order of an alphabet, any others after it by code point."""
    return sorted(letters, key=lambda letter: (alphabet.find(letter) % (len(alphabet) + 1), letter))


def _tagged(data: dict[object, object]) -> Argument:
    match data:
        case {"set": str(letters)}:
            return letters_of(letters)
        case {"float": str(text)}:
            try:
                return conform(Kind.FLOAT, float.fromhex(text))
            except (ValueError, OverflowError):
                raise TypeMismatch(f"`{brief(text)}` is not a hexadecimal float") from None
        case {"timestamp": int(microseconds)} if not isinstance(microseconds, bool):
            try:
                return moment(microseconds)
            except OverflowError:
                raise TypeMismatch(f"`{brief(microseconds)}` microseconds is outside the years 1 to 9999") from None
        case {"bytes": str(text)}:
            return conform(Kind.BYTES, text)
        case _:
            raise TypeMismatch(f"`{brief(data)}` is no argument of a role")
