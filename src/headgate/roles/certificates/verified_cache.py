"""What was read of certificates about roles, so that a signature is verified once (OASIS 4.2).

Guarantees: only what depends neither on the time, nor on who asks, nor on any record is remembered, and only under the
keys by which it was read: other keys make another world, in which nothing is remembered yet. The texts are kept whole
and compared whole; those of each kind have at most `room` characters together. Threads may share it.
Leaves out: what is asked of a certificate each time that it is shown (`validation`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

from headgate.model.limits import MAX_CLOCK_SKEW_SECONDS
from headgate.model.role_statements import (
    AppointmentCertificate,
    DelegationCertificate,
    HeldRole,
    RevocationCertificate,
    RoleCertificate,
    RoleStatement,
    ServiceInstance,
)
from headgate.trust import role_statements as statement
from headgate.trust.role_statements import RoleKind, Trusted
from headgate.trust.statements import Read

T = TypeVar("T", bound=RoleStatement)

SKEW: Final = timedelta(seconds=MAX_CLOCK_SKEW_SECONDS)


@dataclass(frozen=True, slots=True)
class ValidRole:
    """A role that its holder has shown, good at the moment of asking."""

    certificate: RoleCertificate | AppointmentCertificate
    held: HeldRole


@dataclass(frozen=True, slots=True)
class VerifiedStatement(Generic[T]):
    """A statement whose cryptographic part is right, with all that is compared when it is shown."""

    value: T
    place: ServiceInstance
    subject: str
    start: datetime
    until: datetime
    valid: Mapping[str, tuple[ValidRole, ...]]
    """The roles that it embodies, by name."""


class Memory(Generic[T]):
    """Statements of one kind that were read, by their text; those not shown for longest go first."""

    __slots__ = ("entries", "kind", "lock", "room", "size", "trusted")

    def __init__(self, kind: RoleKind[T], trusted: Trusted, room: int) -> None:
        self.kind = kind
        self.trusted = trusted
        self.room = room
        self.size = 0
        self.lock = threading.Lock()
        self.entries: OrderedDict[str, VerifiedStatement[T]] = OrderedDict()

    def put(self, text: str, entry: VerifiedStatement[T]) -> None:
        """Remember one more."""
        with self.lock:
            if text not in self.entries:
                self.entries[text] = entry
                self.size += len(text)
            while self.size > self.room:
                self.size -= len(self.entries.popitem(last=False)[0])

    def drop(self, text: str) -> None:
        """Forget one."""
        with self.lock:
            if self.entries.pop(text, None) is not None:
                self.size -= len(text)


class TrustedKeys:
    """Those who are trusted, and what was read under their keys: other keys make another world."""

    __slots__ = ("appointments", "delegations", "revocations", "roles", "trusted")

    def __init__(self, trusted: Trusted, room: int) -> None:
        self.trusted = trusted
        self.roles = Memory(statement.ROLE, trusted, room)
        self.appointments = Memory(statement.APPOINTMENT, trusted, room)
        self.delegations = Memory(statement.DELEGATION, trusted, room)
        self.revocations = Memory(statement.REVOCATION, trusted, room)


def entry_of(value: T, read: Read[T]) -> VerifiedStatement[T]:
    """A statement with all that is compared when it is shown; a delegation has no one subject."""
    until = read.validity.until
    assert until is not None, "every certificate has an end"
    subject, valid = _subject(value)
    return VerifiedStatement(value, value.place, subject, read.issued - SKEW, until, valid)


def _subject(value: RoleStatement) -> tuple[str, dict[str, tuple[ValidRole, ...]]]:
    match value:
        case RoleCertificate() | AppointmentCertificate():
            names = {held.role for held in value.roles}
            return value.subject, {name: _valid(value, name) for name in names}
        case DelegationCertificate():
            return "", {}
        case RevocationCertificate():
            return value.subject, {}


def _valid(value: RoleCertificate | AppointmentCertificate, name: str) -> tuple[ValidRole, ...]:
    return tuple(ValidRole(value, held) for held in value.roles if held.role == name)
