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
from typing import Any, Final, TypeAlias

from headgate.model.errors import BadStatement, RoleDenied, RoleFailure
from headgate.model.expressions import Argument
from headgate.model.limits import MAX_CLOCK_SKEW_SECONDS, MAX_READ_BYTES, MAX_STATEMENT_BYTES
from headgate.model.role_statements import (
    DelegationCertificate,
    HeldRole,
    RevocationCertificate,
    RoleStatement,
    ServiceInstance,
    fits,
)
from headgate.model.roles import Reference, reference_text
from headgate.model.values import brief, render_timestamp
from headgate.trust import role_statements as statement
from headgate.trust.role_keys import RoleKeys, check_newer
from headgate.trust.role_statements import RoleKind, Trusted, says_it_is_over
from headgate.trust.statements import Read, check, digest_of

States: TypeAlias = Callable[[Reference], bool | None]
"""What a record is now: true, false or unknown; None for one that is not there, too."""

_FRAUD: Final = frozenset({
    *("bad-header", "bad-signature", "duplicate-claim", "early-key"),
    *("unknown-key", "unsafe-key", "wrong-algorithm", "wrong-key"),
})  # fmt: skip
"""What no honest issuer writes and no honest client changes."""
_KINDS: Final = (statement.ROLE, statement.APPOINTMENT, statement.DELEGATION, statement.REVOCATION)
_DOTS: Final = 2
"""In all that has the shape of a signed statement; what has not is no certificate at all, and claims nothing."""


@dataclass(frozen=True, slots=True)
class WantedRole:
    """The role that is asked for; None leaves one argument open, or all."""

    place: ServiceInstance
    role: str
    """Of a revocation certificate, the election that is to be taken back."""
    args: tuple[Argument | None, ...] | None = None
    typ: str = statement.ROLE.typ
    """By which kind of certificate."""


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
        self._trusted: Trusted = {keys.domain: keys for keys in trusted}
        self._memories = self._no_memories()

    def trust(self, keys: RoleKeys) -> None:
        """Take up a domain's newest keys; all that was read under earlier ones is read again."""
        with self._lock:
            known = self._trusted.get(keys.domain)
            if known is not None:
                check_newer(keys, known)
            self._trusted = {**self._trusted, keys.domain: keys}
            self._memories = self._no_memories()

    def _no_memories(self) -> dict[str, Memory]:
        return {kind.typ: Memory(kind, self._trusted, self._room) for kind in _KINDS}

    def validate(self, text: str, presenter: str, wanted: WantedRole, state: States, now: datetime) -> ValidRole:
        """What is asked for, if this certificate gives it to the presenter.

        That is a role that it holds or is appointed to; one that was delegated to whoever then has what it requires; or
        the right to take an election back, by someone who is still in the elector's role (figure 4.3), though the
        election may have ended already.
        """
        # This is asked with every request, so that what was read before is compared right here, with no call but those
        # for the record and the arguments.
        try:
            # 1. Form, signature, key and audience.
            memory = self._memories[wanted.typ]
            try:
                memory.entries.move_to_end(text)
                entry = memory.entries[text]
            except KeyError:
                entry = self._read(memory, text, now)
            # 2. Shown by the one it is about; a delegation is about no one.
            if entry.subject != presenter and entry.subject:
                raise _stolen(entry.subject)
            # 3. Of this service and instance.
            if entry.place != wanted.place:
                raise _misplaced(entry.place)
            # 4. What is asked for; there may be several that fit.
            fitting: Sequence[ValidRole] = entry.valid.get(wanted.role, ())
            if wanted.args is not None:
                fitting = [one for one in fitting if fits(one.held.args, wanted.args)]
            if not fitting:
                raise _insufficient(entry.value, wanted.role)
            # 5. In its time.
            if not entry.start <= now < entry.until:
                raise _untimely(memory, text, entry, now)
            # 6. Resting on a record that is true now.
            for one in fitting:
                if state(one.held.ref) is True:
                    return one
            raise _revoked(fitting[0].held.ref, state)
        except RoleDenied as denied:
            self._note(denied, text, presenter, wanted, now)
            raise

    def _read(self, memory: Memory, text: str, now: datetime) -> VerifiedStatement:
        """What does not depend on who asks, or when; nothing that was refused is remembered."""
        try:
            read = memory.kind.read(text, memory.trusted)
            value = check(read, audience=self._audience, now=None)
        except BadStatement as error:
            raise _unreadable(error, text, now) from None
        except RecursionError:
            raise _denied("misuse", "too-deep", "the certificate nests too deep") from None
        entry = _entry_of(value, read)
        memory.put(text, entry)
        return entry

    def _note(self, denied: RoleDenied, text: str, presenter: str, wanted: WantedRole, now: datetime) -> None:
        """Tell of a failure."""
        if self._on_failure is None:
            return
        digest = digest_of(text[: MAX_STATEMENT_BYTES + 1])
        reason = denied.details.get("reason", "")
        self._on_failure(
            CertificateFailure(
                *(now, denied.failure, reason, presenter, digest, wanted.place, wanted.role, denied.message)
            )
        )


# -- refusals -------------------------------------------------------------------------------------------------


def _denied(failure: RoleFailure, reason: str, message: str, remedy: str | None = None) -> RoleDenied:
    return RoleDenied(message, failure=failure, details={"reason": reason}, remedy=remedy)


def _unreadable(error: BadStatement, text: str, now: datetime) -> RoleDenied:
    """The refusal of a text from which nothing can be taken.

    A key that nobody knows any longer is not fraud in a certificate that is over by its own word: a table forgets keys.
    """
    reason = error.reason
    tampered = reason == "malformed" and text.count(".") == _DOTS
    failure: RoleFailure = "fraud" if reason in _FRAUD or tampered else "misuse"
    if reason == "key-ended" or (reason == "unknown-key" and says_it_is_over(text, now)):
        failure = "revocation"
    return _denied(failure, reason, error.message, error.remedy)


def _stolen(subject: str) -> RoleDenied:
    return _denied("fraud", "stolen", f"the certificate is of `{subject}`", "show one of your own")


def _misplaced(place: ServiceInstance) -> RoleDenied:
    at = f"{brief(place.service)}[{brief(place.instance)}]" if place.instance else brief(place.service)
    return _denied(
        "misuse", "wrong-place", f"the certificate is for `{at}` of `{place.issuer}`", "show it to that service"
    )


def _insufficient(value: RoleStatement, wanted: str) -> RoleDenied:
    match value:
        case RevocationCertificate(election=election):
            message = f"the certificate is about the election `{brief(election)}`"
        case DelegationCertificate():
            message = f"the certificate does not delegate `{brief(wanted)}` as asked for"
        case _:
            message = f"the certificate does not embody `{brief(wanted)}` as asked for"
    return _denied("misuse", "insufficient", message, "show another one")


def _untimely(memory: Memory, text: str, entry: VerifiedStatement, now: datetime) -> RoleDenied:
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
    """What a presenter has shown, good at the moment of asking; `held` has the record that it rests on."""

    certificate: RoleStatement
    held: HeldRole


@dataclass(frozen=True, slots=True)
class VerifiedStatement:
    """A statement whose cryptographic part is right, with all that is compared when it is shown."""

    value: RoleStatement
    place: ServiceInstance
    subject: str
    start: datetime
    until: datetime
    valid: Mapping[str, tuple[ValidRole, ...]]
    """What it gives, by the name of a role or of an election."""


class Memory:
    """Statements of one kind that were read, by their text; those not shown for longest go first."""

    __slots__ = ("entries", "kind", "lock", "room", "size", "trusted")

    def __init__(self, kind: RoleKind[Any], trusted: Trusted, room: int) -> None:
        self.kind = kind
        self.trusted = trusted
        self.room = room
        self.size = 0
        self.lock = threading.Lock()
        self.entries: OrderedDict[str, VerifiedStatement] = OrderedDict()

    def put(self, text: str, entry: VerifiedStatement) -> None:
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


def _entry_of(value: RoleStatement, read: Read[Any]) -> VerifiedStatement:
    """A statement with all that is compared when it is shown; a delegation has no one subject."""
    until = read.validity.until
    assert until is not None, "every certificate has an end"
    given: tuple[HeldRole, ...]
    match value:
        case DelegationCertificate(role=role, args=args, ref=ref):
            subject, given = "", (HeldRole(role, args, ref),)
        case RevocationCertificate(subject=subject, election=election, membership=membership):
            given = (HeldRole(election, (), membership),)
        case _:
            subject, given = value.subject, value.roles
    valid: dict[str, tuple[ValidRole, ...]] = {}
    for held in given:
        valid[held.role] = (*valid.get(held.role, ()), ValidRole(value, held))
    return VerifiedStatement(value, value.place, subject, read.issued - SKEW, until, valid)
