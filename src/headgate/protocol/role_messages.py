"""What clients and gateways say to each other about roles, as types.

Guarantees: as in `messages`, a request that decodes has the right shape. Arguments are plain JSON, and what JSON has no
word for is tagged: a set is `{"set": "rw"}` (`model.arguments`).
Leaves out: what a request means, which is judged where it is carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, field

from headgate.model import limits
from headgate.model.errors import BadRequest, HeadgateError
from headgate.model.expressions import Argument
from headgate.model.roles import dump_argument, load_argument
from headgate.model.values import Kind, conform
from headgate.protocol.messages import Answer, Did, Name, Nonce, Request, Text

ALL = "*"  # among what is shown: all memberships that one holds

Instance: TypeAlias = Annotated[str, Meta(max_length=limits.MAX_NAME_CHARS)]
ArgumentBody: TypeAlias = bool | int | float | str | dict[str, Any] | None
Arguments: TypeAlias = Annotated[list[ArgumentBody], Meta(max_length=limits.MAX_ROLE_ARGUMENTS)]
Certificate: TypeAlias = Annotated[str, Meta(min_length=1, max_length=limits.MAX_STATEMENT_BYTES)]
Credentials: TypeAlias = Annotated[list[Certificate], Meta(max_length=limits.MAX_SHOWN)]
"""Ids of memberships and elections, certificates, and `*`."""
Time: TypeAlias = Annotated[datetime, Meta(tz=True)]


# -- requests ---------------------------------------------------------------------------------------------------


class WantedBody(Request):
    """A role; arguments that are null, or all of them, are left open."""

    role: Name
    args: Arguments | None = None


class EnterRequest(Request, rename={"with_": "with"}):
    """Asks for a role, or for several at once; sent again with the same `request`, it counts once."""

    role: Name | None = None
    roles: Annotated[list[WantedBody], Meta(min_length=1, max_length=limits.MAX_ENTERED)] | None = None
    args: Arguments | None = None
    with_: Credentials | None = None
    instance: Instance = ""
    request: Nonce | None = None


class ElectRequest(Request, rename={"with_": "with"}):
    """Elects whoever holds the roles `to`; without any, `anyone` has to be said."""

    role: Name
    args: Arguments | None = None
    with_: Credentials | None = None
    to: Annotated[list[Text], Meta(max_length=limits.MAX_SHOWN)] = field(default_factory=list)
    anyone: bool = False
    until: Time | None = None
    revoke_on_exit: bool = False
    instance: Instance = ""
    request: Nonce | None = None


class GrantRequest(Request):
    """Gives a role for the service's own reasons, or appoints."""

    role: Name
    to: Name
    args: Arguments = field(default_factory=list)
    appointment: bool = False
    until: Time | None = None
    instance: Instance = ""
    request: Nonce | None = None


class RevokeRoleRequest(Request, rename={"with_": "with"}):
    """Revokes or reinstates role instances, by what one shows; an argument that is null or left out may be any."""

    role: Name
    args: Arguments = field(default_factory=list)
    with_: Credentials | None = None
    instance: Instance = ""


class RevocationRequest(Request):
    """Takes an election back: by a revocation certificate, or by its id."""

    certificate: Certificate | None = None
    id: Name | None = None


class PassRequest(Request):
    """Lets another holder of the elector's role take an election back, too."""

    to: Name


class RenewRequest(RevocationRequest):
    """Asks for a fresh certificate, by the one that is held or by the id of a membership."""


class ParseRequest(Request):
    """A role with its arguments as text, or with a `type` a literal of it."""

    text: Text
    type: Text | None = None


# -- answers ----------------------------------------------------------------------------------------------------


class MembershipAnswer(Answer):
    """A role that is held. `record` is its credential record."""

    id: str
    service: str
    role: str
    args: list[Any]
    record: str
    instance: str = ""
    state: Literal["true", "unknown"] = "true"
    appointment: bool = False
    until: datetime | None = None
    statement: str | None = None
    supports: list[str] = field(default_factory=list)
    holder: str | None = None


class ElectionAnswer(Answer):
    """An election that one may take back."""

    id: str
    service: str
    role: str
    args: list[Any]
    record: str
    instance: str = ""
    required: list[str] = field(default_factory=list)
    until: datetime | None = None
    revoke_on_exit: bool = False
    elector: str | None = None


class CertificateAnswer(Answer):
    """Roles that one holds, and the certificate that embodies them, good until it `expires`.

    There is none for a holder without a key, and none where it would be longer than statements may be.
    """

    memberships: list[MembershipAnswer]
    version: int
    certificate: str | None = None
    issued: datetime | None = None
    expires: datetime | None = None


class ElectedAnswer(Answer):
    """An election, the certificate to hand on, and the one to take it back with."""

    election: ElectionAnswer
    version: int
    delegation: str | None = None
    expires: datetime | None = None
    revocation: str | None = None


class PassedAnswer(Answer):
    """The certificate by which another takes an election back; it is made out to that one's key."""

    election: str
    version: int
    revocation: str | None = None
    expires: datetime | None = None


class ChangedAnswer(Answer):
    """The version from which on something counts."""

    version: int


class ArgumentAnswer(Answer):
    """An argument of a role."""

    name: str
    type: str


class ServiceAnswer(Answer, omit_defaults=False):
    """A service, and the arguments of each of its roles."""

    service: str
    roles: dict[str, list[ArgumentAnswer]]


class RoleRevokedAnswer(Answer, omit_defaults=False):
    """What one has revoked by role; where that takes a quorum, it is `pending` until the others have."""

    service: str
    role: str
    args: list[Any]
    instance: str
    revoker: str
    pending: bool


class RolesAnswer(Answer, omit_defaults=False):
    """What one holds, what one may take back or reinstate, and where there are roles."""

    held: list[MembershipAnswer]
    elections: list[ElectionAnswer]
    services: list[ServiceAnswer]
    revoked: list[RoleRevokedAnswer] = field(default_factory=list)


class RolefileAnswer(Answer):
    """The types of a service's roles; its statements are told to those who govern or audit everything."""

    service: str
    roles: dict[str, list[ArgumentAnswer]]
    statements: str | None = None


class ParsedAnswer(Answer, omit_defaults=False):
    """What a text means: a role with its arguments (null where one is open), or a value."""

    role: str | None
    args: list[Any]


class RoleKeysAnswer(Answer):
    """The signed table of the keys that certificates about roles are signed with."""

    issuer: str
    keys: str


class NodeAnswer(Answer):
    """A credential, or a record that some rest on."""

    id: str
    kind: Literal["membership", "election", "record"]
    state: Literal["true", "false", "unknown"]
    says: str
    record: str | None = None
    holder: str | None = None


class EdgeAnswer(Answer, rename={"from_": "from"}):
    """What follows from what."""

    from_: str
    to: str
    negated: bool = False


class FallAnswer(Answer):
    """What would end, and why."""

    id: str
    reason: str


class GraphAnswer(Answer, omit_defaults=False):
    """Credentials and what they rest on; `falls` would end with the `root`; `whole` unless that is too much to tell."""

    version: int
    nodes: list[NodeAnswer]
    edges: list[EdgeAnswer]
    root: str | None
    falls: list[FallAnswer]
    whole: bool


# -- arguments --------------------------------------------------------------------------------------------------


def arguments_of(given: Sequence[ArgumentBody]) -> tuple[Argument, ...]:
    """Arguments as sent."""
    arguments: list[Argument] = []
    for at, one in enumerate(given):
        try:
            arguments.append(conform(Kind.FLOAT, one) if isinstance(one, float) else load_argument(one))
        except HeadgateError as error:
            raise error.at(f"argument {at + 1}") from None
        except (ValueError, OverflowError, RecursionError):
            raise BadRequest("an argument cannot be read", place=f"argument {at + 1}") from None
    return tuple(arguments)


def open_arguments_of(given: Sequence[ArgumentBody] | None) -> tuple[Argument, ...] | None:
    """Arguments as sent, any or all of them open."""
    return None if given is None else arguments_of(given)


def arguments_told(args: Iterable[Argument | None]) -> list[Any]:
    """Arguments as they are told."""
    return [None if one is None else dump_argument(one) for one in args]


RecordText: TypeAlias = Annotated[str, Meta(min_length=3, max_length=21)]
StateWord: TypeAlias = Literal["true", "false", "unknown"]


class ValidateRequest(Request):
    """A certificate that someone has shown elsewhere, having proven the key that it is about."""

    certificate: Certificate
    subject: Did


class RecordBody(Request):
    """A record, and what it was said to be the record of: a reference alone proves nothing after a restore."""

    record: RecordText
    role: Name
    args: Arguments
    subject: Did
    instance: Instance = ""


class RecordsRequest(Request):
    """Records of a service that one goes on to follow."""

    service: Name
    records: Annotated[list[RecordBody], Meta(min_length=1, max_length=limits.MAX_READ_RECORDS)]


class UnwatchRequest(Request):
    """Records of a service that one follows no longer."""

    service: Name
    records: Annotated[list[RecordText], Meta(min_length=1, max_length=limits.MAX_READ_RECORDS)]


class PresentRequest(Request):
    """A role membership certificate of a service of another domain."""

    certificate: Certificate


class RecordsAnswer(Answer, omit_defaults=False):
    """States as the messages up to `number` left them; all that had changed until `at` is among them."""

    service: str
    epoch: str
    number: int
    at: datetime
    heartbeat: float
    states: dict[str, StateWord]


class ConfirmedRole(Answer, omit_defaults=False):
    """A role that is in force."""

    role: str
    args: list[Any]
    record: str


class ValidatedAnswer(RecordsAnswer, omit_defaults=False):
    """The roles of a certificate that are in force. Their records are followed from now on."""

    instance: str
    roles: list[ConfirmedRole]


class PresentedAnswer(Answer, omit_defaults=False):
    """Roles of another domain that count here, and the version from which on they do."""

    version: int
    memberships: list[MembershipAnswer]


class PeerAnswer(Answer):
    """How one stands with a service of another domain. `seconds` since it was heard; past `bound` nothing counts."""

    name: str
    service: str
    key: str
    bound: int
    records: int
    unknown: int
    duplicated: int
    lost: int
    late: int
    seconds: float | None = None
    trouble: str | None = None


class PeersAnswer(Answer, omit_defaults=False):
    """The services of other domains whose roles count here."""

    peers: list[PeerAnswer] = field(default_factory=list)
