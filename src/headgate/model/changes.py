"""A batch of changes to the ledger: atomic, one version (Gryphon 2.2).

Guarantees: a closed union of small operations; each says exactly what it touches. The order within a batch is:
as listed. Whether a batch is allowed and well-formed is decided in `decide.apply`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from headgate.model.authority import Certificate, Identity, Issuing, Provider, RevocationList, Succession
from headgate.model.expressions import Argument, Condition, RoleRef
from headgate.model.rights import Rule, Subscription
from headgate.model.rolefiles import EventPolicy, Representative, Rolefile
from headgate.model.roles import Peer, Reference, RoleFacts
from headgate.model.types import EventType
from headgate.model.values import Value

Row: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class DeclareType:
    """A new event type, or a new version of one, which has gained attributes."""

    type: EventType


@dataclass(frozen=True, slots=True)
class RetireType:
    """An event type ends, and with it the rules, subscriptions and advertisements that name it."""

    name: str


@dataclass(frozen=True, slots=True)
class DeclarePrincipal:
    """A new principal with its subject attributes."""

    name: str
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemovePrincipal:
    """A principal ends, and with it its rules, memberships, subscriptions and advertisements."""

    name: str


@dataclass(frozen=True, slots=True)
class SetKey:
    """The public key (`did:key:...`) by which a principal proves itself, or none."""

    principal: str
    key: str | None


@dataclass(frozen=True, slots=True)
class SetNames:
    """Let new names look like others and mix scripts, or not."""

    any: bool


@dataclass(frozen=True, slots=True)
class SetConnect:
    """May every principal connect that no rule stops (`open`), or only those that a rule lets in?"""

    open: bool


@dataclass(frozen=True, slots=True)
class DeclareGroup:
    """A new group; `open` lets filters name it (D9)."""

    name: str
    open: bool = False


@dataclass(frozen=True, slots=True)
class DeclareRelation:
    """A new finite relation; `open` lets filters name it (D9)."""

    name: str
    open: bool = False


@dataclass(frozen=True, slots=True)
class SetOpen:
    """A group or relation that filters may name from now on (`open`), or no longer."""

    name: str
    open: bool


@dataclass(frozen=True, slots=True)
class SetPrivate:
    """A subject attribute that nobody but the administrator may name from now on (`private`), or no longer (D11)."""

    name: str
    private: bool


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """A group ends, and with it the rules for it."""

    name: str


@dataclass(frozen=True, slots=True)
class RemoveRelation:
    """A relation ends."""

    name: str


@dataclass(frozen=True, slots=True)
class AddMember:
    """A principal or group joins a group; or a value does, such as a room, which no principal or group is called."""

    group: str
    member: str
    value: bool = False


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """A principal, a group or a value leaves a group; no error if it is not there."""

    group: str
    member: str
    value: bool = False


@dataclass(frozen=True, slots=True)
class AddRow:
    """A tuple joins a relation."""

    relation: str
    row: Row


@dataclass(frozen=True, slots=True)
class RemoveRow:
    """A tuple leaves a relation; no error if it is not there."""

    relation: str
    row: Row


@dataclass(frozen=True, slots=True)
class SetAttribute:
    """A subject attribute gets a value, or goes with null."""

    principal: str
    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class AddRule:
    """A new entry, after all others; with `first`, before all that existed before the batch (D5)."""

    rule: Rule
    first: bool = False


@dataclass(frozen=True, slots=True)
class RemoveRule:
    """An entry ends."""

    id: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A subscription begins."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """A subscription ends."""

    id: str


@dataclass(frozen=True, slots=True)
class SetDeclassified:
    """A type is declassified for events of a derived type from now on (`declassified`), or no longer (D17)."""

    type: str
    derived: str
    declassified: bool = True


@dataclass(frozen=True, slots=True)
class Advertise:
    """A principal says that it will publish a type."""

    principal: str
    type: str


@dataclass(frozen=True, slots=True)
class Unadvertise:
    """A principal will publish a type no more; no error if it never said so."""

    principal: str
    type: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """What the principal has not fetched by now is kept from it: every event before this version."""

    principal: str


@dataclass(frozen=True, slots=True)
class RemovePredicate:
    """A generic predicate ends."""

    name: str


@dataclass(frozen=True, slots=True)
class RegisterPredicate:
    """A generic predicate: `target` is `module:function`, `digest` the SHA-256 of the module's source."""

    name: str
    target: str
    digest: str


@dataclass(frozen=True, slots=True)
class SetPolicyRule:
    """What must be wider than the requirements on a principal's events (D11), or nothing."""

    principal: str
    rule: Condition | None


@dataclass(frozen=True, slots=True)
class SetCoordinator:
    """The key of the domain that coordinates the network, or none: then it is this domain."""

    key: str | None


@dataclass(frozen=True, slots=True)
class SetNetwork:
    """The name of the network: authority over another counts for nothing. Without one, any name does."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Present:
    """A principal shows verified certificates; refused if none of them completes a chain at this time.

    What the chains of all it has shown so far give it becomes entries, after all others (D5).
    """

    principal: str
    certificates: tuple[Certificate, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class Revoke:
    """An issuer's verified revocation list: what rests on it alone falls in the same batch (D13)."""

    list: RevocationList
    at: datetime


@dataclass(frozen=True, slots=True)
class Succeed:
    """A verified statement by which a principal goes on under another key, or ends what its old key signed."""

    succession: Succession
    at: datetime


@dataclass(frozen=True, slots=True)
class Identify:
    """A verified identity statement: its attributes become the principal's until it ends."""

    principal: str
    identity: Identity
    at: datetime


@dataclass(frozen=True, slots=True)
class Tick:
    """The clock has come to a time: what ended by then falls, and what rests on an issuer that fell silent."""

    at: datetime


@dataclass(frozen=True, slots=True)
class SetProvider:
    """An identity provider that is trusted, with what it says or as the home of guests."""

    provider: Provider


@dataclass(frozen=True, slots=True)
class RemoveProvider:
    """An identity provider is trusted no more; what it attested falls."""

    key: str


@dataclass(frozen=True, slots=True)
class AddIssuing:
    """The domain issues such certificates to members from now on; one of the same id is replaced."""

    issuing: Issuing


@dataclass(frozen=True, slots=True)
class RemoveIssuing:
    """The domain issues such certificates no more."""

    id: str


# -- roles ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetEventPolicy:
    """The event policy of the domain (OASIS 7), in place of the last."""

    policy: EventPolicy


@dataclass(frozen=True, slots=True)
class SetRepresentative:
    """How event policy sees a type from now on."""

    representative: Representative


@dataclass(frozen=True, slots=True)
class RemoveRepresentative:
    """Event policy sees a type as it is."""

    type: str


@dataclass(frozen=True, slots=True)
class SetRolefile:
    """The rolefile of a service, in place of the last; None ends the service. What no longer follows is revoked."""

    service: str
    rolefile: Rolefile | None


@dataclass(frozen=True, slots=True)
class GrantRole:
    """A service gives a role for its own reasons (OASIS 4.12), or appoints (Capabilities V.A)."""

    id: str
    service: str
    role: str
    args: tuple[Argument, ...]
    to: str
    instance: str = ""
    appointment: bool = False
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class EnterRole:
    """A principal asks for a role, with these memberships and elections; None: all memberships that it holds.

    `args` of None leaves all arguments open, a None among them leaves that one open.
    """

    id: str
    service: str
    role: str
    args: tuple[Argument, ...] | None
    principal: str
    using: tuple[str, ...] | None
    at: datetime
    instance: str = ""
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class ElectRole:
    """A principal elects whoever holds the required roles, with one of its own memberships."""

    id: str
    service: str
    role: str
    args: tuple[Argument, ...] | None
    principal: str
    using: tuple[str, ...] | None
    at: datetime
    required: tuple[RoleRef, ...] = ()
    until: datetime | None = None
    revoke_on_exit: bool = False
    instance: str = ""


@dataclass(frozen=True, slots=True)
class EndCredential:
    """A membership or an election ends: `by` its holder (exit) or elector, or by the service itself (None)."""

    id: str
    by: str | None = None
    exits: bool = False


@dataclass(frozen=True, slots=True)
class PassRevocation:
    """An elector lets another holder of the elector role revoke an election, too (OASIS 4.4)."""

    election: str
    by: str
    to: str


@dataclass(frozen=True, slots=True)
class _ByRevoker:
    """Role instances, and who asks. An argument of None, or one that is left out at the end, stands for any."""

    service: str
    role: str
    args: tuple[Argument | None, ...]
    principal: str
    using: tuple[str, ...] | None
    at: datetime
    instance: str = ""


class RevokeRole(_ByRevoker):
    """Role instances are revoked by someone in the revoker's role (OASIS 3.3.2), and cannot be entered again."""

    __slots__ = ()


class ReinstateRole(_ByRevoker):
    """What was revoked by role, with these very arguments, may be entered again."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SetPeer:
    """A service of another domain whose roles count here."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class RemovePeer:
    """A service of another domain counts no more; what rests on its roles falls."""

    name: str


@dataclass(frozen=True, slots=True)
class MirrorRole:
    """A role of a peer, as its issuer has just confirmed it: a membership here, with an external record (OASIS 4.9)."""

    id: str
    peer: str
    role: str
    args: tuple[Argument, ...]
    holder: str
    remote: Reference
    state: bool | None
    at: datetime
    instance: str = ""


@dataclass(frozen=True, slots=True)
class HearPeer:
    """What a peer said of its records, in order; without any, a sign of life. `number` is the last message."""

    peer: str
    number: int
    states: Mapping[Reference, bool | None]
    at: datetime


@dataclass(frozen=True, slots=True)
class WatchRecords:
    """Another domain's service follows these records from now on (`watching`), or no longer."""

    watcher: str
    records: tuple[Reference, ...]
    watching: bool = True


@dataclass(frozen=True, slots=True)
class Settle:
    """What a batch makes of roles, worked out. No one asks for it: `roles.requests.transition` adds it."""

    facts: RoleFacts


RoleRequest: TypeAlias = (
    SetRolefile | GrantRole | EnterRole | ElectRole | EndCredential | PassRevocation | RevokeRole | ReinstateRole |
    SetPeer | RemovePeer | MirrorRole | HearPeer | WatchRecords
)  # fmt: skip
"""What is asked of a role service. `roles.requests.transition` works out what becomes of it."""

RoleChange: TypeAlias = SetEventPolicy | SetRepresentative | RemoveRepresentative | Settle

AuthorityChange: TypeAlias = (
    SetPolicyRule | SetCoordinator | SetNetwork | Present | Revoke | Succeed | Identify | Tick | SetProvider |
    RemoveProvider | AddIssuing | RemoveIssuing
)  # fmt: skip
"""What statements and those who are trusted to make them bring about; the domain takes it up."""

PolicyChange: TypeAlias = (
    DeclareType | RetireType | SetDeclassified | DeclarePrincipal | RemovePrincipal | SetKey | SetConnect | SetNames |
    DeclareGroup | RemoveGroup | DeclareRelation | RemoveRelation | SetOpen | SetPrivate | AddMember | RemoveMember |
    AddRow | RemoveRow | SetAttribute | AddRule | RemoveRule | Subscribe | Unsubscribe | Advertise | Unadvertise |
    Withdraw | RegisterPredicate | RemovePredicate
)  # fmt: skip
"""What the domain's authors, subscribers and publishers say."""

Change: TypeAlias = PolicyChange | AuthorityChange | RoleChange | RoleRequest


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes by one author that take effect together."""

    author: str
    changes: tuple[Change, ...] = ()
    note: str = ""
