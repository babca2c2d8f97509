"""Validation of certificates about roles: does this one count, for whoever shows it, here and now (OASIS 4.2)?

Guarantees: what fails is refused with `RoleDenied` and falls into one of three classes, which are told
apart. *Fraud*: forged, modified, or shown by someone else. *Misuse*: for another service, instance, audience or time to
come, of another kind, no statement at all, or not the role that is asked for. *Revocation*: over, by a key that is, or
resting on a record that is not true; it alone befalls those who behave well. Where several hold, the first of these is
said. The cryptographic part is remembered for as long as it holds, under the keys by which it was read: other keys make
another world, in which nothing is remembered yet. Texts are kept and compared whole, at most `room` characters of each
kind. Whether a record is true is asked each time.
Leaves out: who the presenter is (the handshake has shown that), what a role gives, where keys and records come from.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeAlias, TypeVar

from headgate.model.errors import BadStatement, RoleDenied, RoleFailure
from headgate.model.expressions import Argument
from headgate.model.limits import MAX_CLOCK_SKEW_SECONDS, MAX_READ_BYTES, MAX_STATEMENT_BYTES
from headgate.model.role_statements import (
    AppointmentCertificate,
    DelegationCertificate,
    HeldRole,
    RevocationCertificate,
    RoleCertificate,
    RoleStatement,
    ServiceInstance,
    fits,
)
from headgate.model.roles import Reference, reference_text
from headgate.model.values import brief, render_timestamp
from headgate.trust import role_statements as statement
from headgate.trust.role_keys import RoleKeys, check_newer
from headgate.trust.role_statements import RoleKind, Trusted, says_it_is_over
from headgate.trust.statements import Form, Read, check, digest_of

T = TypeVar("T", bound=RoleStatement)
States: TypeAlias = Callable[[Reference], bool | None]
"""What a record is now: true, false or unknown; None for one that is not there, too."""

_FRAUD: Final = frozenset({
    *("bad-header", "bad-signature", "duplicate-claim", "early-key"),
    *("unknown-key", "unsafe-key", "wrong-algorithm", "wrong-key"),
})  # fmt: skip
"""What no honest issuer writes and no honest client changes."""
_DOTS: Final = 2
"""In all that has the shape of a signed statement; what has not is no certificate at all, and claims nothing."""


@dataclass(frozen=True, slots=True)
class WantedRole:
    """The role that is asked for; None leaves one argument open, or all."""

    place: ServiceInstance
    role: str
    args: tuple[Argument | None, ...] | None = None
    appointment: bool = False
    """By an appointment certificate, and not by one of role membership."""


@dataclass(frozen=True, slots=True)
class CertificateFailure:
    """A certificate that was refused, as administrators see it."""

    at: datetime
    failure: RoleFailure
    reason: str
    presenter: str
    statement: str
    """The digest of the text, or of the beginning of one that is too long."""
    place: ServiceInstance
    role: str
    message: str


class Validator:
    """Validates certificates of the domains it trusts. Threads may share it.

    `audience` is what certificates for some call us. `on_failure` hears of each failure, and is not to raise. `room` is
    for the bytes of the texts of each kind that are remembered.
    """

    def __init__(
        self,
        trusted: Iterable[RoleKeys] = (),
        *,
        audience: str | None = None,
        on_failure: Callable[[CertificateFailure], None] | None = None,
        room: int = MAX_READ_BYTES,
    ) -> None:
        self._audience = audience
        self._on_failure = on_failure
        self._room = room
        self._lock = threading.Lock()
        self._world = TrustedKeys({keys.domain: keys for keys in trusted}, room)

    def trust(self, keys: RoleKeys) -> None:
        """Take up a domain's newest keys; all that was read under earlier ones is read again."""
        with self._lock:
            known = self._world.trusted.get(keys.domain)
            if known is not None:
                check_newer(keys, known)
            self._world = TrustedKeys({**self._world.trusted, keys.domain: keys}, self._room)

    def validate_role(self, text: str, presenter: str, wanted: WantedRole, state: States, now: datetime) -> ValidRole:
        """The role that is asked for, if the presenter holds it, or is appointed to it, by this certificate."""
        # This is asked with every request, so that what was read before is compared right here, with no call but those
        # for the record and the arguments.
        try:
            # 1. Form, signature, key and audience.
            world = self._world
            memory: Memory[Any] = world.appointments if wanted.appointment else world.roles
            try:
                memory.entries.move_to_end(text)
                entry = memory.entries[text]
            except KeyError:
                entry = self._read(memory, text, now)
            # 2. Shown by the one it is about.
            if entry.subject != presenter:
                raise _stolen(entry.subject)
            # 3. Of this service and instance.
            if entry.place != wanted.place:
                raise _misplaced(entry.place)
            # 4. The role that is asked for; there may be several that fit.
            fitting: Sequence[ValidRole] = entry.valid.get(wanted.role, ())
            if wanted.args is not None:
                fitting = [one for one in fitting if fits(one.held.args, wanted.args)]
            if not fitting:
                raise _insufficient(f"the certificate does not embody `{brief(wanted.role)}` as asked for")
            # 5. In its time.
            if not entry.start <= now < entry.until:
                raise _untimely(memory, text, entry, now)
            # 6. Resting on a record that is true now.
            for one in fitting:
                if state(one.held.ref) is True:
                    return one
            raise _revoked(fitting[0].held.ref, state)
        except RoleDenied as denied:
            self._note(denied, text, presenter, wanted.place, wanted.role, now)
            raise

    def validate_delegation(
        self, text: str, presenter: str, wanted: WantedRole, state: States, now: datetime
    ) -> DelegationCertificate:
        """The delegation of this role, which anyone may show who then has what it requires."""

        def election(delegation: DelegationCertificate) -> Reference:
            if delegation.role != wanted.role or not _agree(delegation.args, wanted.args):
                raise _insufficient(f"the certificate does not delegate `{brief(wanted.role)}` as asked for")
            return delegation.ref

        memory, asked = self._world.delegations, (wanted.place, wanted.role)
        return self._validated(memory, text, presenter, asked, election, state, now)

    def validate_revocation(
        self, text: str, presenter: str, service: ServiceInstance, election: str, state: States, now: datetime
    ) -> RevocationCertificate:
        """The right to take this election back, if the presenter has it; the election may have ended already."""

        def office(revocation: RevocationCertificate) -> Reference:
            if revocation.election != election:
                raise _insufficient(f"the certificate is about the election `{brief(revocation.election)}`")
            return revocation.membership  # of someone who is still in the elector's role (figure 4.3)

        memory, asked = self._world.revocations, (service, election)
        return self._validated(memory, text, presenter, asked, office, state, now)

    def _validated(
        self,
        memory: Memory[T],
        text: str,
        presenter: str,
        asked: tuple[ServiceInstance, str],
        rests_on: Callable[[T], Reference],
        state: States,
        now: datetime,
    ) -> T:
        """What a certificate says, if it counts for what is asked by the record that it then rests on."""
        try:
            # 1. Form, signature, key and audience.
            entry = memory.get(text) or self._read(memory, text, now)
            # 2. Shown by the one it is about; a delegation is about no one.
            if entry.subject not in ("", presenter):
                raise _stolen(entry.subject)
            # 3. Of this service and instance.
            if entry.place != asked[0]:
                raise _misplaced(entry.place)
            # 4. What is asked for.
            ref = rests_on(entry.value)
            # 5. In its time.
            if not entry.start <= now < entry.until:
                raise _untimely(memory, text, entry, now)
            # 6. Resting on a record that is true now.
            if state(ref) is not True:
                raise _revoked(ref, state)
        except RoleDenied as denied:
            self._note(denied, text, presenter, *asked, now)
            raise
        return entry.value

    def _read(self, memory: Memory[T], text: str, now: datetime) -> VerifiedStatement[T]:
        """What does not depend on who asks, or when; nothing that was refused is remembered."""
        try:
            read = memory.kind.read(text, memory.trusted)
            value = check(read, audience=self._audience, now=None)
        except BadStatement as error:
            raise _unreadable(error, memory.kind, text, now) from None
        except RecursionError:
            raise _denied("misuse", "too-deep", "the certificate nests too deep") from None
        entry = entry_of(value, read)
        memory.put(text, entry)
        return entry

    def _note(
        self, denied: RoleDenied, text: str, presenter: str, service: ServiceInstance, role: str, now: datetime
    ) -> None:
        """Tell of a failure."""
        if self._on_failure is None:
            return
        digest = digest_of(text[: MAX_STATEMENT_BYTES + 1])
        reason = denied.details.get("reason", "")
        self._on_failure(
            CertificateFailure(now, denied.failure, reason, presenter, digest, service, role, denied.message)
        )


def _agree(given: tuple[Argument | None, ...], wanted: tuple[Argument | None, ...] | None) -> bool:
    """Can an election with some arguments open lead to a role with some open?"""
    if wanted is None:
        return True
    return len(given) == len(wanted) and all(
        g is None or w is None or fits((g,), (w,)) for g, w in zip(given, wanted, strict=True)
    )


# -- refusals -------------------------------------------------------------------------------------------------


def _denied(failure: RoleFailure, reason: str, message: str, remedy: str | None = None) -> RoleDenied:
    return RoleDenied(message, failure=failure, details={"reason": reason}, remedy=remedy)


def _unreadable(error: BadStatement, form: Form, text: str, now: datetime) -> RoleDenied:
    """The refusal of a text from which nothing can be taken.

    A key that nobody knows any longer is not fraud in a certificate that is over by its own word: a table forgets keys.
    """
    reason = error.reason
    tampered = reason == "malformed" and text.count(".") == _DOTS
    failure: RoleFailure = "fraud" if reason in _FRAUD or tampered else "misuse"
    if reason == "key-ended" or (reason == "unknown-key" and says_it_is_over(text, form, now)):
        failure = "revocation"
    return _denied(failure, reason, error.message, error.remedy)


def _stolen(subject: str) -> RoleDenied:
    return _denied("fraud", "stolen", f"the certificate is of `{subject}`", "show one of your own")


def _misplaced(place: ServiceInstance) -> RoleDenied:
    at = f"{brief(place.service)}[{brief(place.instance)}]" if place.instance else brief(place.service)
    return _denied(
        "misuse", "wrong-place", f"the certificate is for `{at}` of `{place.issuer}`", "show it to that service"
    )


def _insufficient(message: str) -> RoleDenied:
    return _denied("misuse", "insufficient", message, "show another one")


def _untimely(memory: Memory[T], text: str, entry: VerifiedStatement[T], now: datetime) -> RoleDenied:
    if now < entry.start:
        begins = render_timestamp(entry.start + SKEW)
        message = f"the certificate is good only from `{begins}`"
        return _denied("misuse", "not-yet-valid", message, "wait, or set the clock right")
    memory.drop(text)
    if now < entry.value.until:
        message = f"the key of the certificate counts no more since `{render_timestamp(entry.until)}`"
        return _denied("revocation", "key-ended", message, "ask for a new one, or fetch the domain's keys again")
    message = f"the certificate was good until `{render_timestamp(entry.value.until)}`"
    return _denied("revocation", "expired", message, "ask for a new one")


def _revoked(ref: Reference, state: States) -> RoleDenied:
    known = state(ref) is False
    verdict = "is not true any longer" if known else "is not known to be true"
    return _denied(
        "revocation",
        "revoked" if known else "unknown",
        f"the record `{reference_text(ref)}` {verdict}",
        "enter the role again" if known else "try again later, or enter the role again",
    )


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

    def get(self, text: str) -> VerifiedStatement[T] | None:
        """One that was read, which is the last shown from now on."""
        try:
            self.entries.move_to_end(text)
            return self.entries[text]
        except KeyError:
            return None

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
    subject = "" if isinstance(value, DelegationCertificate) else value.subject
    valid: dict[str, tuple[ValidRole, ...]] = {}
    if isinstance(value, RoleCertificate | AppointmentCertificate):
        for held in value.roles:
            valid[held.role] = (*valid.get(held.role, ()), ValidRole(value, held))
    return VerifiedStatement(value, value.place, subject, read.issued - SKEW, until, valid)
