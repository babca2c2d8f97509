"""What domains say to each other about roles, and clients about roles of other domains, as types.

Guarantees: as in `messages`, a request that decodes has the right shape. Records are told as `17.4`, states as `true`,
`false` and `unknown`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, field

from headgate.model.limits import MAX_READ_RECORDS
from headgate.protocol.messages import Answer, Did, Name, Request
from headgate.protocol.role_messages import Arguments, Certificate, Instance, MembershipAnswer

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
    records: Annotated[list[RecordBody], Meta(min_length=1, max_length=MAX_READ_RECORDS)]


class UnwatchRequest(Request):
    """Records of a service that one follows no longer."""

    service: Name
    records: Annotated[list[RecordText], Meta(min_length=1, max_length=MAX_READ_RECORDS)]


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


class ValidatedAnswer(Answer, omit_defaults=False):
    """The roles of a certificate that are in force. Their records are followed from now on."""

    service: str
    instance: str
    roles: list[ConfirmedRole]
    epoch: str
    number: int
    at: datetime
    heartbeat: float
    states: dict[str, StateWord]


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
