"""Certificates about the roles of this domain: signed with its rolling keys, and judged when they are shown.

Guarantees: what is issued is good no longer than what it speaks of, and is bound to a key. What is shown is judged by
the keys and records of this moment, whichever gateway of the domain issued it (`roles.certificates.validation`); a
reference that the ledger has given out and knows no more is false. What a certificate says of itself only decides what
is asked of it.
Leaves out: what a request makes of it (`service`), and certificates of other domains.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar

from headgate.lang.render import render_role
from headgate.model.errors import BadStatement, HeadgateError, RoleDenied, StaleList
from headgate.model.expressions import Constant, RoleRef
from headgate.model.limits import MAX_APPOINTMENT_SECONDS, MAX_CERTIFICATE_ROLES
from headgate.model.role_statements import (
    AppointmentCertificate,
    DelegationCertificate,
    HeldRole,
    RevocationCertificate,
    RoleCertificate,
    RoleName,
    RoleStatement,
    ServiceInstance,
)
from headgate.model.roles import Election, Membership, Reference, magic_of
from headgate.model.state import State
from headgate.node.logs import Log
from headgate.roles.certificates.validation import CertificateFailure, States, Validator, WantedRole
from headgate.trust import role_statements as statements
from headgate.trust.certificates import new_id
from headgate.trust.role_keys import FileStore, RollingTable
from headgate.trust.role_statements import RoleKind
from headgate.trust.statements import said_claims, said_kind

T = TypeVar("T", bound=RoleStatement)
log = Log("roles")
_LONGEST: Final = timedelta(seconds=MAX_APPOINTMENT_SECONDS)
_KEYS_AGE: Final = timedelta(hours=1)
"""How old the word for the keys may be by which certificates are judged."""


@dataclass(frozen=True, slots=True)
class Asker:
    """A principal with the key of its session, and where it asks from."""

    principal: str
    did: str
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class SignedCertificate:
    """A certificate, when it was issued and when it is over."""

    text: str
    issued: datetime
    until: datetime


@dataclass(eq=False, repr=False)
class RoleCertificates:
    """Issues and judges certificates about the roles of one domain. May be used from any thread."""

    table: RollingTable
    store: FileStore
    _: KW_ONLY
    own: str
    audience: str
    lasting: timedelta
    on_failure: Callable[[CertificateFailure], None] | None = None

    def __post_init__(self) -> None:
        self._validator = Validator(audience=self.audience, on_failure=self.on_failure or _tell)
        self._lock = threading.Lock()
        self._known: tuple[object, datetime] | None = None
        """Which table the validator goes by, and since when."""

    def document(self, now: datetime) -> str:
        """What vouches for the keys, for whoever judges our certificates."""
        with self._lock:
            return self.table.document(now)

    # -- issuing ----------------------------------------------------------------------------------------------

    def of_memberships(self, held: Sequence[Membership], did: str, now: datetime) -> SignedCertificate:
        """One certificate for memberships of one holder at one place, all of them appointments or none."""
        first = held[0]
        instance = ServiceInstance(self.own, *first.place)
        roles = tuple(dict.fromkeys(HeldRole(one.role, one.args, one.record) for one in held))[:MAX_CERTIFICATE_ROLES]
        ends = [one.until for one in held if one.until is not None]
        lasting = _LONGEST if first.appointment else self.lasting
        said = (new_id(), instance, did, roles, *_times(now, lasting, ends, first.id))
        if first.appointment:
            return self._issue(statements.APPOINTMENT, AppointmentCertificate(*said), now)
        return self._issue(statements.ROLE, RoleCertificate(*said), now)

    def of_election(self, election: Election, elector: str, now: datetime) -> SignedCertificate:
        """The delegation certificate of an election, for whoever it is about."""
        ends = None if election.until is None else election.until.replace(microsecond=0)
        issued, until = _times(now, _LONGEST, [] if ends is None else [ends], election.id)
        certificate = DelegationCertificate(
            *(new_id(), ServiceInstance(self.own, *election.place), election.id, election.role, election.args),
            *(elector, election.record, issued, until, ends),
            required=tuple(render_role(one) for one in election.required),
            revoke_on_exit=election.revoke_on_exit,
        )
        return self._issue(statements.DELEGATION, certificate, now)

    def of_revocation(
        self, election: Election, membership: Reference, did: str, state: State, now: datetime
    ) -> SignedCertificate:
        """The certificate by which someone in the elector's role takes an election back."""
        ends = [] if election.until is None else [election.until]
        certificate = RevocationCertificate(
            *(new_id(), ServiceInstance(self.own, *election.place), did, election.id),
            *(self._office(election.office, state), membership, election.record),
            *_times(now, _LONGEST, ends, election.id),
        )
        return self._issue(statements.REVOCATION, certificate, now)

    def _office(self, office: RoleRef, state: State) -> RoleName:
        """The elector's role by its full name."""
        instance = office.instance.value if isinstance(office.instance, Constant) else ""
        args = tuple(one.value for one in office.args if isinstance(one, Constant))
        service = office.service or ""
        peer = state.roles.peers.get(service)
        issuer, named = (self.own, service) if peer is None else (peer.key, peer.service)
        return RoleName(ServiceInstance(issuer, named, str(instance)), office.role, args)

    def _issue(self, kind: RoleKind[T], certificate: T, now: datetime) -> SignedCertificate:
        with self._lock:
            signer = self.table.signer(kind.use, now)
        return SignedCertificate(kind.issue(signer, certificate), certificate.issued, certificate.until)

    # -- judging ----------------------------------------------------------------------------------------------

    def shown(
        self, text: str, asker: Asker, instance: ServiceInstance, roles: Collection[str], state: State, now: datetime
    ) -> tuple[str, ...]:
        """The memberships or the election that a certificate stands for, shown to enter some roles at a place."""
        kind = _kind(text)
        if kind == statements.DELEGATION.typ:
            said = said_claims(text).get("role")
            role = said if isinstance(said, str) and said in roles else min(roles, default="")
            wanted = WantedRole(instance, role, typ=statements.DELEGATION.typ)
            found = self._judge(now).validate(text, asker.did, wanted, records_of(state), now).certificate
            assert isinstance(found, DelegationCertificate)
            return (found.election,)
        if kind == statements.REVOCATION.typ:
            raise RoleDenied(
                "a revocation certificate is no credential", failure="misuse", details={"reason": "wrong-type"}
            )
        return tuple(one.id for one in self.memberships(text, asker, state, now))

    def memberships(self, text: str, asker: Asker, state: State, now: datetime) -> list[Membership]:
        """The memberships in force that a certificate embodies, of any place of this domain."""
        where, listed, records = said_place(text), _said_roles(text), records_of(state)
        standing = [one for one in listed if records(one.ref) is True] or listed[:1] or [HeldRole("", (), 0)]
        judge, typ = self._judge(now), _role_typ(text)
        held = [
            judge.validate(text, asker.did, WantedRole(where, one.role, one.args, typ), records, now).held
            for one in standing
        ]
        refs = [one.ref for one in held]
        memberships = [mine for ref in refs for mine in state.roles.held_by(asker.principal) if mine.record == ref]
        if not memberships:
            raise RoleDenied(
                "the certificate embodies nothing that you hold here", failure="revocation", remedy="enter it again"
            )
        return memberships

    def election_of(self, text: str, asker: Asker, state: State, now: datetime) -> str:
        """The election that a revocation certificate lets its subject take back."""
        named, claimed = said_claims(text).get("election"), said_place(text)
        wanted = WantedRole(
            claimed if claimed.issuer == self.own else ServiceInstance(self.own, claimed.service, claimed.instance),
            named if isinstance(named, str) else "",
            typ=statements.REVOCATION.typ,
        )
        return self._judge(now).validate(text, asker.did, wanted, records_of(state), now).held.role

    def _judge(self, now: datetime) -> Validator:
        """The validator, by keys that are known now: another gateway may have rolled them."""
        with self._lock:
            stamp = self.store.stamp()
            if self._known is None or self._known[0] != stamp or now - self._known[1] >= _KEYS_AGE:
                with suppress(StaleList):  # the clock was put back: the keys are those that are known
                    self._validator.trust(self.table.keys(now))
                self._known = stamp, now
            return self._validator


def _tell(failure: CertificateFailure) -> None:
    """Log a certificate that does not count, by its digest."""
    log.info(
        "certificate-refused",
        kind=failure.failure,
        reason=failure.reason,
        holder=failure.presenter,
        statement=failure.statement,
    )


def records_of(state: State) -> States:
    """What the ledger says of a record now."""

    def known(ref: Reference) -> bool | None:
        found = state.roles.records.get(ref)
        if found is not None:
            return found.state
        return False if magic_of(ref) <= state.version else None  # references are never used again

    return known


def _times(now: datetime, lasting: timedelta, ends: Sequence[datetime], id: str) -> tuple[datetime, datetime]:
    """From when until when a certificate is good, in whole seconds."""
    issued = now.replace(microsecond=0)
    until = min([issued + lasting, *(end.replace(microsecond=0) for end in ends)])
    if until <= issued:
        raise RoleDenied(f"`{id}` is about to end", failure="revocation", remedy="ask for a longer time")
    return issued, until


# -- what a certificate says of itself: nobody has vouched for it yet -----------------------------------------


def _kind(text: str) -> str:
    try:
        return said_kind(text)
    except BadStatement:
        return ""  # the validator says what is wrong with it


def said_role(text: str) -> WantedRole:
    """The first role that a certificate says it is for. Nobody has vouched for it yet."""
    try:
        role = str(said_claims(text)["roles"][0]["role"])
        return WantedRole(said_place(text), role, typ=_role_typ(text))
    except (LookupError, TypeError):
        return WantedRole(ServiceInstance("", ""), "")


def _role_typ(text: str) -> str:
    return statements.APPOINTMENT.typ if _kind(text) == statements.APPOINTMENT.typ else statements.ROLE.typ


def said_place(text: str) -> ServiceInstance:
    """The place that a certificate says it is of, as far as it says one. Nobody has vouched for it yet."""
    said = said_claims(text)
    named = (said.get(name) for name in ("iss", "service", "instance"))
    return ServiceInstance(*(one if isinstance(one, str) else "" for one in named))


def _said_roles(text: str) -> list[HeldRole]:
    listed = said_claims(text).get("roles")
    try:
        return [
            HeldRole(str(one["role"]), statements.arguments(one["args"]), statements.ref(one["ref"], "ref"))
            for one in (listed if isinstance(listed, list) else [])[:MAX_CERTIFICATE_ROLES]
        ]
    except (HeadgateError, KeyError, TypeError):
        return []


def is_certificate(given: str) -> bool:
    """Is it the text of a certificate, and not an id? Ids have no two dots and a header between them."""
    return given.startswith("eyJ") and given.count(".") == 2
