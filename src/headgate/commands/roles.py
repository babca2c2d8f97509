"""What clients of this domain ask of its role services, carried out: each change is one batch of the ledger.

Guarantees: everything is asked in the name of a principal that has proven its key, judged once more by the ledger at
the very version that it makes, and answered when every stream has that version (D7). What is asked under a name of the
client's own (`request`) is done once, however often it is sent. What is refused for want of credentials, or would take
too long to find out, is refused before the ledger is held for it. No one asks for more than the settings allow.
Leaves out: the wire (`routes`), certificates (`certificates`), and services of other domains.
"""

from __future__ import annotations

import hmac
import re
import secrets
import unicodedata
from base64 import b32encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from headgate.commands.commit import Paces, cost_of, submit
from headgate.commands.role_certificates import Asker, RoleCertificates, SignedCertificate, is_certificate
from headgate.decide.constraints import Budget, Scene
from headgate.model import changes, errors
from headgate.model.expressions import Argument, RoleRef
from headgate.model.limits import MAX_APPOINTMENT_SECONDS, MAX_ENTRY_STEPS
from headgate.model.role_statements import ServiceInstance
from headgate.model.roles import Election, Membership, Reference, Service
from headgate.model.state import State
from headgate.model.types import check_name
from headgate.model.values import brief
from headgate.node.domain import Domain, Follower
from headgate.node.logs import Log
from headgate.protocol.role_messages import ALL
from headgate.roles.requests.entry import Holders, Known, SearchRequest, shares_office
from headgate.trust.keys import PrivateKey, PublicKey

_ID_BYTES: Final = 10
_ID_NAME: Final = 40
"""Characters of a role's name that are seen in an id."""
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECOND: Final = timedelta(seconds=1)
_LONGEST: Final = timedelta(seconds=MAX_APPOINTMENT_SECONDS)
_IDS: Final = b"headgate ids of role requests"
_DOES: Final = {changes.RevokeRole: "revokes", changes.ReinstateRole: "reinstates"}
FOLLOWING: Final = 5
"""How many times as often another domain may ask about our records as a client for roles: it asks for many clients."""
log = Log("roles")

Wish: TypeAlias = tuple[str, tuple[Argument, ...] | None]
"""A role, and its arguments where they are not open."""


@dataclass(frozen=True, slots=True)
class HeldMemberships:
    """Memberships, the version they are told at, and a certificate if there can be one."""

    memberships: tuple[Membership, ...]
    version: int
    certificate: SignedCertificate | None = None


@dataclass(frozen=True, slots=True)
class ElectedRole:
    """An election, with the certificate to hand on and the one to take it back with."""

    election: Election
    version: int
    delegation: SignedCertificate | None = None
    revocation: SignedCertificate | None = None


@dataclass(eq=False, repr=False)
class RoleService:
    """The role services of one domain. May be used from any thread."""

    domain: Domain
    follower: Follower
    certificates: RoleCertificates
    _: KW_ONLY
    requests: int
    secret: bytes
    clock: Callable[[], datetime]
    new_id: Callable[[str], str] = lambda role: _readable_id(role, secrets.token_bytes(_ID_BYTES))
    """What a membership of a role or an election to it is called that comes with no name of the client's."""

    def __post_init__(self) -> None:
        self._paces = Paces(self.requests)
        self._following = Paces(self.requests * FOLLOWING)
        self._holders = Holders()

    @property
    def state(self) -> State:
        """The newest state known."""
        return self.follower.state

    # -- entering ---------------------------------------------------------------------------------------------

    def enter(
        self, asker: Asker, service: Service, wishes: Sequence[Wish], shown: Sequence[str] | None, request: str | None
    ) -> HeldMemberships:
        """Enter roles of a service, all of them or none; one certificate embodies them."""
        state, now = self._begin(asker, len(wishes))
        ids = [self._id(asker, role, request, at) for at, (role, _) in enumerate(wishes)]
        if not all(id in state.roles.memberships for id in ids):
            self._check_news(ids, request)
            using = self._using(asker, service, {role for role, _ in wishes}, shown, state, now)
            asked = [
                changes.EnterRole(id, service[0], role, args, asker.principal, using, now, service[1], asker.origin)
                for id, (role, args) in zip(ids, wishes, strict=True)
            ]
            found = self._search(asker, asked, state)
            named = ", ".join(role for role, _ in wishes)
            state = self._commit(found, f"{asker.principal} enters {brief(named)} at {_named(service)}", ids)
        held = [_membership(state, id, asker.principal) for id in ids]
        if [(one.place, one.role) for one in held] != [(service, role) for role, _ in wishes]:
            raise _other_request()
        return self._held(held, asker.did, state)

    def leave(self, asker: Asker, id: str) -> int:
        """Give a membership up; what rests on it falls in the same batch."""
        state, _ = self._begin(asker)
        membership = state.roles.memberships.get(id)
        if membership is None or membership.holder != asker.principal:
            raise errors.NotFound(f"you hold no membership `{brief(id)}`")
        asked = changes.EndCredential(id, asker.principal, exits=True)
        return self._commit(
            [asked], f"{asker.principal} leaves {membership.role} at {_named(membership.place)}"
        ).version

    def grant(
        self,
        asker: Asker,
        service: Service,
        wish: tuple[str, tuple[Argument | None, ...]],
        to: str,
        *,
        appointment: bool = False,
        until: datetime | None = None,
        request: str | None = None,
    ) -> HeldMemberships:
        """Give someone a role for the service's own reasons, or appoint; that is for the administrator."""
        state, now = self._begin(asker)
        if asker.principal != state.administrator:
            raise errors.GovernDenied(f"`{asker.principal}` does not govern the roles of the domain")
        self._check_until(until, now)
        role, args = wish
        _check_plain("role", role)
        id = self._id(asker, role, request, 0)
        if id not in state.roles.memberships:
            self._check_news([id], request)
            asked = changes.GrantRole(id, service[0], role, args, to, service[1], appointment, until)
            state = self._commit([asked], f"{asker.principal} grants {role} at {_named(service)} to {to}", [id])
        membership = _membership(state, id, to)
        if (membership.place, membership.role, membership.holder) != (service, role, to):
            raise _other_request()
        key = key_of(state, to)
        return HeldMemberships((membership,), state.version) if key is None else self._held([membership], key, state)

    def renew(
        self, asker: Asker, service: str, *, certificate: str | None = None, id: str | None = None
    ) -> HeldMemberships:
        """A fresh certificate for what the asker still holds at a service."""
        state, now = self._begin(asker)
        if id is not None:
            held = [_membership(state, id, asker.principal)]
        else:
            assert certificate is not None
            held = self.certificates.memberships(certificate, asker, state, now)
        if any(one.service in state.roles.peers for one in held):
            raise wrong_place(f"`{brief(service)}` is a service of another domain", "ask it for a fresh certificate")
        if any(one.service != service for one in held):
            raise wrong_place(f"that is no membership of `{brief(service)}`", f"ask `{held[0].service}`")
        return self._held(held, asker.did, state)

    def _held(self, held: Sequence[Membership], did: str, state: State) -> HeldMemberships:
        made = _signed(lambda: self.certificates.of_memberships(held, did, self.clock()))
        return HeldMemberships(tuple(held), state.version, made)

    # -- electing ---------------------------------------------------------------------------------------------

    def elect(
        self,
        asker: Asker,
        service: Service,
        wish: Wish,
        shown: Sequence[str] | None,
        required: Sequence[RoleRef],
        *,
        until: datetime | None = None,
        revoke_on_exit: bool = False,
        request: str | None = None,
    ) -> ElectedRole:
        """Elect whoever holds the required roles."""
        state, now = self._begin(asker)
        role, args = wish
        self._check_until(until, now)
        id = self._id(asker, role, request, 0)
        if id not in state.roles.elections:
            self._check_news([id], request)
            using = self._using(asker, service, (), shown, state, now)
            asked = changes.ElectRole(
                *(id, service[0], role, args, asker.principal, using, now),
                *(tuple(required), until, revoke_on_exit, service[1]),
            )
            self._search(asker, [asked], state)
            state = self._commit([asked], f"{asker.principal} elects to {role} at {_named(service)}", [id])
        election = state.roles.elections.get(id)
        if election is None:
            raise errors.RoleDenied(f"`{id}` was revoked at once", failure="revocation")
        if (election.place, election.role, election.elector) != (service, role, asker.principal):
            raise _other_request()
        now, issue = self.clock(), self.certificates
        return ElectedRole(
            election,
            state.version,
            _signed(lambda: issue.of_election(election, asker.did, now)),
            _signed(lambda: issue.of_revocation(election, election.office_record, asker.did, state, now)),
        )

    def revoke(self, asker: Asker, *, certificate: str | None = None, id: str | None = None) -> int:
        """Take an election back, by certificate or as its elector; the administrator ends any credential."""
        state, now = self._begin(asker)
        governs = asker.principal == state.administrator
        if certificate is not None:
            id = self.certificates.election_of(certificate, asker, state, now)
            election = state.roles.elections.get(id)
        else:
            assert id is not None
            election = self._own_election(state, asker, id)
            if governs and election is None and id in state.roles.memberships:
                note = f"{asker.principal} revokes {brief(id)}"
                return self._commit([changes.EndCredential(id)], note).version
        if election is None:
            raise errors.NotFound(
                f"no election `{brief(id)}` is in force", remedy="it may have been taken back already"
            )
        by = None if governs and certificate is None else asker.principal
        note = f"{asker.principal} takes back the election to {election.role} at {_named(election.place)}"
        return self._commit([changes.EndCredential(id, by)], note).version

    def pass_on(self, asker: Asker, id: str, to: str) -> tuple[int, SignedCertificate | None]:
        """Let another holder of the elector's role take an election back, too: since when, and by which certificate."""
        state, _ = self._begin(asker)
        election = self._own_election(state, asker, id)
        if election is None:
            raise errors.NotFound(f"no election `{brief(id)}` is in force")
        note = f"{asker.principal} lets {brief(to)} take back the election to {election.role}"
        state = self._commit([changes.PassRevocation(id, asker.principal, to)], note)
        key, office, now = key_of(state, to), _office(state, to, election), self.clock()
        if key is None or office is None:
            return state.version, None
        return state.version, _signed(lambda: self.certificates.of_revocation(election, office, key, state, now))

    def _own_election(self, state: State, asker: Asker, id: str) -> Election | None:
        """An election that the asker may know of: its own, one whose revocation was passed to it, or any."""
        election = state.roles.elections.get(id)
        known = election is not None and (
            asker.principal in (election.elector, state.administrator) or asker.principal in election.revokers
        )
        return election if known else None

    # -- revocation by role -----------------------------------------------------------------------------------

    def by_role(
        self,
        kind: type[changes.RevokeRole | changes.ReinstateRole],
        asker: Asker,
        service: Service,
        wish: tuple[str, tuple[Argument | None, ...]],
        shown: Sequence[str] | None,
    ) -> int:
        """Revoke what fits by the role after `|>`, so that it cannot be entered again; or let it be entered again."""
        state, now = self._begin(asker)
        using = self._using(asker, service, (), shown, state, now)
        asked = kind(service[0], *wish, asker.principal, using, now, service[1])
        self._search(asker, [asked], state)
        return self._commit([asked], f"{asker.principal} {_DOES[kind]} {wish[0]} at {_named(service)}").version

    # -- inside -----------------------------------------------------------------------------------------------

    def _begin(self, asker: Asker, cost: int = 1) -> tuple[State, datetime]:
        self.pace(asker, cost)
        return self.state, self.clock()

    def pace(self, asker: Asker, cost: int = 1) -> None:
        """Count a request, or refuse it for now; the administrator could change everything anyway."""
        if asker.principal != self.state.administrator:
            self._paces.count(asker.principal, self.clock(), cost)

    def pace_following(self, asker: Asker) -> None:
        """Count a question about records, or refuse it for now."""
        self._following.count(asker.principal, self.clock())

    def _search(self, asker: Asker, asked: Sequence[SearchRequest], state: State) -> list[SearchRequest]:
        """The requests with what a search has found; refuse without holding the ledger what it would refuse.

        What it took to find out is counted.
        """
        budget = Budget(MAX_ENTRY_STEPS)
        try:
            return Known(state, self._holders, self.domain.functions(state), budget).run(asked)
        finally:
            if asker.principal != state.administrator:
                steps = MAX_ENTRY_STEPS - (budget.left or 0)
                self._paces.charge(asker.principal, self.clock(), cost_of(steps))

    def _check_news(self, ids: Iterable[str], request: str | None) -> None:
        """Refuse to do once more what was done and has ended since."""
        for id in () if request is None else ids:
            for version, _ in self.domain.ledger.endings(id):  # why it ended may be policy
                raise errors.RoleDenied(
                    f"`{id}` ended with version {version}",
                    failure="revocation",
                    remedy="ask again with another `request`",
                )

    def _commit(self, asked: Sequence[changes.RoleRequest], note: str, made: Iterable[str] = ()) -> State:
        """Commit requests in the domain's own name; the state from then on.

        Whoever sent the same request to another gateway may have been quicker: then it is done.
        """
        try:
            submit(self.domain, self.follower, changes.Batch(self.state.administrator, tuple(asked), note))
        except errors.BadDefinition:
            self.follower.refresh()
            book = self.state.roles
            if not (ids := list(made)) or not all(map(book.credential, ids)):
                raise
        kind = changes.EnterRole if isinstance(asked[0], changes.EnterRole) else type(asked[0])
        log.info("role-changed", kind=kind.__name__, count=len(asked), version=self.state.version)
        return self.state

    def _using(
        self,
        asker: Asker,
        service: Service,
        roles: Iterable[str],
        shown: Sequence[str] | None,
        state: State,
        now: datetime,
    ) -> tuple[str, ...] | None:
        """The memberships and elections that are shown, by id; None for all that one holds."""
        if shown is None or list(shown) == [ALL]:
            return None
        ids: dict[str, None] = {}
        wanted = frozenset(roles)
        for at, credential in enumerate(shown):
            try:
                if credential == ALL:
                    ids |= dict.fromkeys(each.id for each in state.roles.held_by(asker.principal))
                elif is_certificate(credential):
                    there = ServiceInstance(self.certificates.own, *service)
                    ids |= dict.fromkeys(self.certificates.shown(credential, asker, there, wanted, state, now))
                else:
                    ids[credential] = None
            except errors.RoleDenied as denied:
                denied.at(f"credential {at + 1}")
                raise
        return tuple(ids)

    def _id(self, asker: Asker, role: str, request: str | None, at: int) -> str:
        """A name that nobody guesses, with the role's for people to read; the same for the same request."""
        if request is None:
            return self.new_id(role)
        said = f"{asker.principal}\0{request}\0{at}".encode()
        return _readable_id(role, hmac.digest(self.secret, said, "sha256")[:_ID_BYTES])

    def _check_until(self, until: datetime | None, now: datetime) -> None:
        if until is None:
            return
        if until < now + _SECOND:
            raise errors.BadDefinition("it would be over at once", remedy="choose a later `until`")
        if until > now + _LONGEST:
            raise errors.BadDefinition(
                f"it would last longer than MAX_APPOINTMENT_SECONDS ({MAX_APPOINTMENT_SECONDS})",
                remedy="choose an earlier `until`, or none",
            )


def _readable_id(role: str, raw: bytes) -> str:
    readable = re.sub(r"\W", "", role, flags=re.ASCII)[:_ID_NAME] or "role"
    return f"{readable}-{b32encode(raw).decode().lower()}"


def id_secret(key: PrivateKey) -> bytes:
    """The secret of a domain under which its role requests have their ids, the same at each of its gateways."""
    return hmac.digest(key.native().private_bytes_raw(), _IDS, "sha256")


def key_of(state: State, principal: str) -> str | None:
    """The key of a principal, if it has one."""
    try:
        return PublicKey.from_did(state.key_of(principal)).did
    except errors.HeadgateError:
        return None


def check_place(place: Service) -> Service:
    """Refuse what is no service, or no instance of one, before anything is made of it."""
    service, instance = place
    _check_plain("service", service)
    if instance and not unicodedata.is_normalized("NFKC", check_name("instance", instance)):
        raise errors.BadDefinition(
            f"the instance `{brief(instance)}` is not in its normal form", remedy="write it in NFKC"
        )
    return place


def _check_plain(what: str, name: str) -> None:
    if not _PLAIN.fullmatch(check_name(what, name)):
        raise errors.BadDefinition(f"`{brief(name)}` is no name of a {what}", remedy="write letters, digits and `_`")


def _signed(issue: Callable[[], SignedCertificate]) -> SignedCertificate | None:
    """A certificate, unless it would be too long: what it is about counts without it."""
    try:
        return issue()
    except errors.BadStatement as error:
        log.warning("no-certificate", reason=error.reason)
        return None


def _membership(state: State, id: str, holder: str) -> Membership:
    """A membership in force of this holder."""
    membership = state.roles.memberships.get(id)
    if membership is None or membership.holder != holder:
        raise errors.RoleDenied(f"`{brief(id)}` is not in force", failure="revocation", remedy="enter the role again")
    if membership.state is not True:
        raise errors.RoleDenied(
            f"`{id}` may have been revoked",
            failure="revocation",
            details={"reason": "unknown"},
            remedy="try again later",
        )
    return membership


def _office(state: State, principal: str, election: Election) -> Reference | None:
    """The record of a principal's own membership of the role in which an election was made."""
    rolefile, scene = state.roles.rolefiles.get(election.service), Scene(state, *election.place)
    for one in state.roles.held_by(principal):
        if shares_office(one, election, rolefile, scene):
            return one.record
    return None


def _named(place: Service) -> str:
    service, instance = place
    return brief(f"{service}[{instance}]" if instance else service)


def wrong_place(message: str, remedy: str | None = None) -> errors.RoleDenied:
    """The refusal of what counts somewhere else."""
    return errors.RoleDenied(message, failure="misuse", details={"reason": "wrong-place"}, remedy=remedy)


def _other_request() -> errors.AlreadyExists:
    return errors.AlreadyExists("another request had that `request`", remedy="choose a new one for each")
