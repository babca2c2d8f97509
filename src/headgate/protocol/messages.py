"""What clients and gateways say to each other, as types.

Guarantees: a request that decodes has the right shape, and nothing that the protocol does not know (except for the
extension attributes of CloudEvents, which are ignored). What it means is checked where it is carried out.
"""

from __future__ import annotations

import dataclasses
import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, Union, cast

import msgspec
from msgspec import Meta, Struct

from headgate.model import changes as ledger
from headgate.model import limits
from headgate.trust.presented import MAX_SHOWN

JSON = "application/json"
EVENT_JSON = "application/cloudevents+json"
BATCH_JSON = "application/cloudevents-batch+json"
ARROW = "application/vnd.apache.arrow.stream"
PROBLEM = "application/problem+json"
EVENT_STREAM = "text/event-stream"

MAX_ID_CHARS = 1_000  # characters of an event's `id` and of its `source`
MAX_POSITIONS = 10_000  # positions in one acknowledgement
MAX_COUNTED = 256  # memberships that a subscription names
MAX_CHANGES = 10_000  # changes in one batch

# Lookaheads are not for JSON Schema's `pattern`, so a name is bounded here and judged in full by `check_name`.
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME_CHARS)]
Text: TypeAlias = Annotated[str, Meta(max_length=limits.MAX_EXPRESSION_CHARS)]
EventId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]
Nonce: TypeAlias = Annotated[str, Meta(min_length=22, max_length=128, pattern="^[A-Za-z0-9_-]+$")]
Position: TypeAlias = Annotated[str, Meta(min_length=22, max_length=22)]
KindName: TypeAlias = Literal["bool", "int", "float", "string", "timestamp", "bytes"]
ActionName: TypeAlias = Literal["connect", "publish", "subscribe", "install", "extend", "govern", "audit", "quench"]
Scalar: TypeAlias = bool | int | float | str | None
Did: TypeAlias = Annotated[str, Meta(max_length=200)]
Shown: TypeAlias = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=MAX_SHOWN)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=limits.MAX_TIME_SECONDS)]
StatedTime: TypeAlias = Annotated[Any, Meta(extra_json_schema={"type": ["string", "null"], "format": "date-time"})]
Audience: TypeAlias = Annotated[list[Name], Meta(max_length=limits.MAX_AUDIENCES)]


class Request(Struct, forbid_unknown_fields=True):
    """What a client sends."""


class Answer(Struct, omit_defaults=True):
    """What a gateway answers."""


# -- connecting -------------------------------------------------------------------------------------------------


class ChallengeRequest(Request):
    """Asks for a challenge."""

    nonce: Nonce


class ChallengeAnswer(Answer):
    """A challenge, the broker's proof of its key, and what it shows: the chain from the coordinating domain to it."""

    nonce: str
    broker: str
    proof: str
    expires: datetime
    statements: list[str] = []


class SessionRequest(Request):
    """Answers a challenge."""

    principal: Did
    client_nonce: Nonce
    nonce: Annotated[str, Meta(max_length=1_000)]
    signature: Annotated[str, Meta(max_length=200)]
    present: Shown = []


class SessionAnswer(Answer):
    """A session."""

    token: str
    principal: str
    expires: datetime


class WhoAnswer(Answer):
    """Who one is."""

    principal: str
    did: str
    expires: datetime


# -- statements -------------------------------------------------------------------------------------------------


class StatementsRequest(Request):
    """Signed statements, shown together."""

    statements: Shown


class StatementsAnswer(Answer, omit_defaults=False):
    """What stands now of the principal's certificates and identity statements, by id, and since which version."""

    version: int
    certificates: list[str]
    identities: list[str]


class CertificateRequest(Request):
    """Asks for certificates: by one issuing rule or all that are for the principal, for so long at most."""

    rule: Name | None = None
    seconds: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    audience: Audience = []


class IssuedAnswer(Answer):
    """A statement that was issued. Its text is told once."""

    id: str
    kind: str
    expires: datetime
    rule: str | None = None
    statement: str | None = None
    principal: str | None = None
    revoked: bool = False


class CertificatesAnswer(Answer, omit_defaults=False):
    """What was issued; `statements` lead from the domain's own rights to the service, and are shown with it."""

    certificates: list[IssuedAnswer]
    statements: list[str]


class IssuedListAnswer(Answer, omit_defaults=False):
    """Statements that have not ended, by id."""

    issued: list[IssuedAnswer]


class RevokedAnswer(Answer, omit_defaults=False):
    """A statement is on the list of this number, and the version that made it count here."""

    id: str
    number: int
    version: int


class ListRequest(Request):
    """A signed revocation list of any issuer."""

    list: Annotated[str, Meta(min_length=1)]


class ListAnswer(Answer):
    """A signed, numbered revocation list."""

    issuer: str
    number: int
    list: str


class HeardAnswer(Answer, omit_defaults=False):
    """A list is known; `news` if it made a version."""

    issuer: str
    number: int
    news: bool


class StatusAnswer(Answer, omit_defaults=False):
    """What has become of a statement of this domain's service at a time."""

    id: str
    status: Literal["good", "revoked", "unknown"]
    number: int
    time: datetime


class IdentityRequest(Request):
    """Asks for an identity statement."""

    audience: Audience = []


class GuestRequest(Request):
    """A statement from home, by whoever answers a challenge with the key that it is about."""

    statement: Annotated[str, Meta(min_length=1)]
    principal: Did
    client_nonce: Nonce
    nonce: Annotated[str, Meta(max_length=1_000)]
    signature: Annotated[str, Meta(max_length=200)]


# -- types ------------------------------------------------------------------------------------------------------


class TypeRequest(Request):
    """An event type, or a new version of one. `attributes` are its own, without inherited ones.

    `times` says whose word is taken on when events occurred; without it that is as with what it extends. A `statement`,
    the definition that its owner signed, says all of that itself.
    """

    attributes: Annotated[dict[Name, KindName], Meta(max_length=200)] = {}
    extends: Name | None = None
    key: Annotated[list[Name], Meta(max_length=200)] = []
    owner: Name | None = None
    statement: Annotated[str, Meta(min_length=1)] | None = None
    times: Literal["publisher", "gateway"] | None = None
    lateness: Seconds | None = None
    ahead: Seconds | None = None
    clock_error: Seconds | None = None
    derived: Literal["contributors", "declassified"] | None = None
    declassified_for: Annotated[list[Name], Meta(max_length=limits.MAX_DECLASSIFIED)] = []


class TypeAnswer(Answer):
    """An event type. `attributes` has inherited ones too, in order; `statement` is the definition as it was signed.

    `times` and what goes with it are there where the type, or what it extends, says something of them.
    """

    name: str
    owner: str
    attributes: dict[str, str]
    own: list[str]
    extends: str | None = None
    key: list[str] = []
    statement: str | None = None
    times: str | None = None
    lateness: float | None = None
    ahead: float | None = None
    clock_error: float | None = None
    derived: str | None = None
    declassified_for: list[str] = []


class TypesAnswer(Answer):
    """Every event type."""

    types: list[TypeAnswer]


# -- events -----------------------------------------------------------------------------------------------------


class CloudEvent(Struct):
    """A CloudEvent 1.0 in JSON. `requires` is an extension: the rule that receivers must meet. No other is kept.

    `time` is when it occurred; it counts for types that take times from publishers, and is not looked at for others.
    """

    specversion: Literal["1.0"]
    id: EventId
    source: EventId
    type: Name
    data: dict[str, Any] | None = None
    datacontenttype: str | None = None
    data_base64: str | None = None
    requires: Text | None = None
    time: StatedTime = None


class EventResult(Answer):
    """What became of one event."""

    id: str
    status: Literal["accepted", "duplicate", "refused"]
    code: str | None = None
    detail: str | None = None
    remedy: str | None = None


class PublishAnswer(Answer):
    """What became of each event of a batch, in order."""

    results: list[EventResult]


class RowResult(Answer):
    """What became of one event of a bulk request, by its row."""

    row: int
    id: str
    status: Literal["duplicate", "refused"]
    code: str | None = None
    detail: str | None = None
    remedy: str | None = None


class BulkAnswer(Answer, omit_defaults=False):
    """What became of a bulk request: `results` has every event that was not simply accepted."""

    accepted: int
    duplicates: int
    refused: int
    results: list[RowResult]


class HeartbeatRequest(Request, rename={"for_": "for"}):
    """No later event of the sender's occurred before a time: of these types, or without them of all that it states.

    The administrator may promise `for` another publisher, or for a whole `stream`.
    """

    until: Annotated[datetime, Meta(tz=True)]
    types: Annotated[list[Name], Meta(min_length=1, max_length=MAX_COUNTED)] | None = None
    for_: Name | None = None
    stream: Name | None = None


class HeartbeatAnswer(Answer, omit_defaults=False):
    """What is promised now, by type, where `*` is all of a stream; `moved` is false if that is no more than before."""

    moved: bool
    horizons: dict[str, datetime]


class AdvertisementAnswer(Answer):
    """A type that the principal has said it will publish. `wanted` is told to those with the right `quench`.

    `holds` is there if time, rate or origin decide on it: may it be published from here now, by those?
    """

    type: str
    wanted: bool | None = None
    holds: bool | None = None


class AdvertisementsAnswer(Answer):
    """Every type that the principal advertises."""

    advertisements: list[AdvertisementAnswer]


# -- subscriptions ----------------------------------------------------------------------------------------------


class Since(Request):
    """Where to begin: a version, a time, or where a reservation of one's own begins."""

    version: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    time: Annotated[datetime, Meta(tz=True)] | None = None
    reserved: Name | None = None


class SubscriptionRequest(Request, rename={"from_": "from", "with_": "with"}):
    """A wish for events. `with` names the memberships that count for event policy; without it, all that one holds."""

    type: Name
    where: Text | None = None
    from_: Literal["now", "start"] | Since = "now"
    temporary: bool = False
    requires: Text | None = None
    with_: Annotated[list[Name], Meta(max_length=MAX_COUNTED)] | None = None


class SubscriptionAnswer(Answer, rename={"from_": "from", "with_": "with"}):
    """A subscription as it is kept; of a detection, with the composite event that it `detects`."""

    id: str
    type: str
    version: int
    where: str | None = None
    from_: Any = "now"
    temporary: bool = False
    warning: str | None = None
    requires: str | None = None
    origin: str | None = None
    with_: list[str] | None = None
    detects: str | None = None


class SubscriptionsAnswer(Answer):
    """One's own subscriptions."""

    subscriptions: list[SubscriptionAnswer]


class DetectionRequest(Request, rename={"from_": "from", "with_": "with", "for_": "for"}):
    """A wish for the signals of a composite event, with values for some of its variables.

    Times and bytes in `bind` are text, as in events. What it signals may be published as events of a type of its own,
    or added to a relation, as `failed(user)`. The rest is as in subscriptions; the administrator may make one `for` a
    principal.
    """

    expression: Annotated[str, Meta(max_length=limits.MAX_COMPOSITE_CHARS)]
    bind: Annotated[dict[Name, Scalar], Meta(max_length=limits.MAX_COMPOSITE_PARTS)] = {}
    from_: Literal["now", "start"] | Since = "now"
    temporary: bool = False
    requires: Text | None = None
    with_: Annotated[list[Name], Meta(max_length=MAX_COUNTED)] | None = None
    publishes: Name | None = None
    adds: Text | None = None
    for_: Name | None = None


class DetectionAnswer(Answer, rename={"from_": "from", "with_": "with"}):
    """A detection as it is kept. It begins at `start`; `warnings` say what can never signal or may grow without bound.

    Its signals are read where a subscription's events are, by the same id.
    """

    id: str
    expression: str
    version: int
    start: datetime
    bind: dict[str, Any] = {}
    from_: Any = "now"
    temporary: bool = False
    warnings: list[str] = []
    requires: str | None = None
    origin: str | None = None
    with_: list[str] | None = None
    publishes: str | None = None
    adds: str | None = None


class DetectionsAnswer(Answer):
    """One's own detections."""

    detections: list[DetectionAnswer]


class AckRequest(Request):
    """Everything up to these positions has been dealt with."""

    positions: Annotated[list[Position], Meta(min_length=1, max_length=MAX_POSITIONS)]


class AckAnswer(Answer, omit_defaults=False):
    """How many positions were acknowledged, durably."""

    acknowledged: int


class EventsAnswer(Answer):
    """Deliveries as CloudEvents; `gap` if retention took some before, `closed` if the subscription has ended."""

    events: list[msgspec.Raw]
    gap: str | None = None
    closed: str | None = None


class LookupRequest(Request):
    """The current entries of a keyed type, and then every change."""

    type: Name
    where: Text | None = None


class LookupAnswer(Answer, omit_defaults=False):
    """The current entries as CloudEvents; `complete` is false where retention has taken older ones."""

    id: str
    entries: list[msgspec.Raw]
    complete: bool


class ReservationRequest(Request):
    """Keep what is published from now on, for so many seconds: of a `type`, or what an `expression` looks at."""

    seconds: Annotated[float, Meta(gt=0, le=10_000_000)]
    type: Name | None = None
    where: Text | None = None
    expression: Annotated[str, Meta(max_length=limits.MAX_COMPOSITE_CHARS)] | None = None


class ReservationAnswer(Answer):
    """A reservation, and since when it keeps everything; `whole` is false once some of that has gone."""

    id: str
    expires: datetime
    since: datetime
    whole: bool = True
    type: str | None = None
    where: str | None = None
    expression: str | None = None


class ReservationsAnswer(Answer):
    """One's own reservations."""

    reservations: list[ReservationAnswer]


# -- policy -----------------------------------------------------------------------------------------------------


class RuleBody(Request):
    """A rule, as scenario files write it: for `who`, or for whoever holds a `role`."""

    id: Name
    may: ActionName | Annotated[list[ActionName], Meta(min_length=1, max_length=10)]
    type: Name = "*"
    where: Text | None = None
    attributes: list[Name] | dict[Name, Scalar] | None = None
    effect: Literal["grant", "forbid"] = "grant"
    disclose: bool = False
    first: bool = False
    who: Name | None = None
    role: Text | None = None
    attested: bool = False


def _tag(name: str) -> str:
    return re.sub(r"\B(?=[A-Z])", "-", name.removesuffix("Op")).lower()


class BatchOp(Request, tag_field="op", tag=_tag):
    """A change, by its name: `AddRuleOp` is sent as `add-rule`."""


_SENT: Final = {"str": Name, "str | None": Name | None, "bool": bool, "Value": Scalar, "Row": list[Scalar]}
"""What is sent for a member of a change, by its type there."""


def _same(change: type[Any], does: str, **members: Any) -> type[BatchOp]:
    """The operation with the name and the members of a change; `members` are those that are sent as something else."""
    sent: list[Any] = []
    for one in dataclasses.fields(change):
        default = () if one.default is dataclasses.MISSING else (one.default,)
        sent.append((one.name, members.get(one.name) or _SENT[str(one.type)], *default))
    about = {"__doc__": does, "__module__": __name__}
    return cast("type[BatchOp]", msgspec.defstruct(f"{change.__name__}Op", sent, bases=(BatchOp,), namespace=about))


class AddRuleOp(BatchOp):
    """Adds a rule, or replaces the one with its id."""

    rule: RuleBody


RemoveRuleOp = _same(ledger.RemoveRule, "Ends a rule.")
AddMemberOp = _same(
    ledger.AddMember, "A principal or group joins a group; with `value`, text that is the name of neither."
)
RemoveMemberOp = _same(ledger.RemoveMember, "A principal, a group or a value leaves a group.")
AddRowOp = _same(ledger.AddRow, "A tuple joins a relation.")
RemoveRowOp = _same(ledger.RemoveRow, "A tuple leaves a relation.")
SetAttributeOp = _same(ledger.SetAttribute, "A subject attribute gets a value, or goes with null.")


class DeclareTypeOp(BatchOp):
    """A new event type, or a new version of one."""

    name: Name
    type: TypeRequest


RetireTypeOp = _same(ledger.RetireType, "An event type ends.")
SetDeclassifiedOp = _same(ledger.SetDeclassified, "A type is declassified for events of a derived one, or no longer.")


class DeclarePrincipalOp(BatchOp):
    """A new principal."""

    name: Name
    key: str | None = None
    attributes: dict[Name, Scalar] = {}


RemovePrincipalOp = _same(ledger.RemovePrincipal, "A principal ends.")
SetKeyOp = _same(ledger.SetKey, "The public key of a principal, or none.", key=str | None)
DeclareGroupOp = _same(ledger.DeclareGroup, "A new group.")
WithdrawOp = _same(ledger.Withdraw, "Keeps from a principal what it has not fetched by now.")


class AuthorityBody(Request):
    """What a certificate gives: actions on a network, or on types of an owner, as scenario files write it."""

    actions: Literal["*"] | Annotated[list[ActionName], Meta(min_length=1, max_length=10)]
    network: Name | None = None
    type: Name | None = None
    owner: Did | None = None
    where: Text | None = None
    attributes: list[Name] | dict[Name, Scalar] | None = None


class MapBody(Request):
    """What an attribute of guests becomes here; `values` pairs theirs with ours, and others are left out."""

    to: Name
    values: list[tuple[Scalar, Scalar]] | None = None


class SetPolicyRuleOp(BatchOp):
    """What must be wider than the requirements on a principal's events, or nothing."""

    principal: Name
    rule: Text | None


class SetCoordinatorOp(BatchOp):
    """The key of the domain that coordinates the network, or none: then it is this one."""

    key: Did | None


SetNetworkOp = _same(ledger.SetNetwork, "The name of the network, or none: then authority over any network counts.")


class SetProviderOp(BatchOp):
    """An identity provider: of this domain, or with a `mapping` the home of guests."""

    key: Did
    name: Name
    mapping: dict[Name, MapBody] | None = None


RemoveProviderOp = _same(ledger.RemoveProvider, "An identity provider is trusted no more.", key=Did)


class AddIssuingOp(BatchOp):
    """Members of `who` are issued such certificates, each time for so many seconds."""

    id: Name
    who: Name
    authority: Annotated[list[AuthorityBody], Meta(min_length=1, max_length=limits.MAX_AUTHORITIES)]
    seconds: Annotated[int, Meta(ge=1, le=2**31)]
    delegate: bool = False


RemoveIssuingOp = _same(ledger.RemoveIssuing, "Such certificates are issued no more.")


class SetRolefileOp(BatchOp):
    """Sets the rolefile of a service, as text; null ends the service. What no longer follows is revoked."""

    service: Name
    text: Annotated[str, Meta(max_length=limits.MAX_ROLEFILE_CHARS)] | None


class SetEventPolicyOp(BatchOp):
    """Sets the event policy of the domain, as text."""

    text: Annotated[str, Meta(max_length=limits.MAX_ROLEFILE_CHARS)]


class SetRepresentativeOp(BatchOp):
    """Sets how event policy sees a type: its parameters, each as an expression over attributes."""

    type: Name
    parameters: Annotated[dict[Name, Text], Meta(max_length=limits.MAX_ROLE_ARGUMENTS)]


RemoveRepresentativeOp = _same(ledger.RemoveRepresentative, "Lets event policy see a type as it is.")


class SetPeerOp(BatchOp):
    """Lets roles of a service of another domain count: `name` here is `service` there.

    `bound` is for how many seconds its silence is borne.
    """

    name: Name
    key: Did
    service: Name
    bound: Annotated[int, Meta(ge=1, le=limits.MAX_PEER_BOUND_SECONDS)]
    url: Annotated[str, Meta(max_length=MAX_ID_CHARS)] = ""


RemovePeerOp = _same(ledger.RemovePeer, "Ends a peer; what rests on its roles falls.")


if TYPE_CHECKING:
    ChangeOp = BatchOp
else:
    ChangeOp = Union[tuple(BatchOp.__subclasses__())]  # noqa: UP007


class BatchRequest(Request):
    """Changes that take effect together."""

    changes: Annotated[list[ChangeOp], Meta(max_length=MAX_CHANGES)]
    expect: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    note: Annotated[str, Meta(max_length=1_000)] = ""


class BatchAnswer(Answer):
    """The version that a batch made, and how many versions of others after the one it expected it was put on."""

    version: int
    rebased: int = 0


class VersionAnswer(Answer):
    """One version. Author, note and starting points are told to those who govern or audit everything."""

    version: int
    time: datetime
    author: str | None = None
    note: str | None = None
    starts: dict[str, int] | None = None


class VersionsAnswer(Answer):
    """Versions, oldest first."""

    versions: list[VersionAnswer]


# -- other ------------------------------------------------------------------------------------------------------


class NearestAnswer(Answer):
    """The statement of a rolefile that came nearest to giving a role, and which part of it was false or unknown."""

    line: int
    part: Literal["arguments", "credential", "elector", "condition"]
    number: int
    truth: Literal["false", "unknown"]
    what: str | None = None


class Problem(Answer):
    """A problem document (RFC 9457). `nearest` goes with a role that is not given."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    remedy: str | None = None
    place: str | None = None
    reason: str | None = None
    failure: Literal["fraud", "misuse", "revocation", "credentials"] | None = None
    nearest: NearestAnswer | None = None


class HealthAnswer(Answer, omit_defaults=False):
    """How the node is."""

    status: Literal["ok", "degraded", "failing"]
    reasons: list[str]


class AboutAnswer(Answer):
    """What this is, for whoever connects."""

    domain: str
    broker: str
    protocol: str
    gateway: str
    coordinator: str | None = None


def decode(body: bytes, kind: type[Any]) -> Any:
    """A request of this type; `msgspec.ValidationError` or `msgspec.DecodeError` says what is wrong with it."""
    return msgspec.json.decode(body, type=kind)


def encode(answer: object) -> bytes:
    """An answer as JSON."""
    return msgspec.json.encode(answer)
