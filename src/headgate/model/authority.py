"""What signed statements say, before anyone asks whether it holds (Capabilities II.D and III; Guard IV).

Guarantees: frozen values, with illegal shapes refused. A certificate is the five-tuple of SPKI: issuer, subject,
delegation, authority, validity. Issuers and subjects are keys, by name: `did:key:...`, or in a story that has no keys
the principal itself.
Leaves out: signatures (`trust`), how chains reduce (`authority.chains`) and what of them is in force (`decide.apply`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from headgate.model.errors import BadDefinition
from headgate.model.expressions import TRUE, Condition
from headgate.model.rights import Action
from headgate.model.types import check_name, check_pattern
from headgate.model.values import Value, brief

NETWORK_ACTIONS: Final = frozenset({Action.CONNECT, Action.INSTALL})
TYPE_ACTIONS: Final = frozenset({Action.EXTEND, Action.PUBLISH, Action.SUBSCRIBE})
ANY: Final = "*"
"""Every network, or every type: of those that the issuer owns or was given."""


@dataclass(frozen=True, slots=True)
class Validity:
    """From `start` until just before `until`; without one of them, without that end."""

    start: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if self.start is not None and self.until is not None and self.until <= self.start:
            raise BadDefinition("a statement ends after it begins", remedy="let `until` be later than `from`")

    def holds(self, now: datetime) -> bool:
        """Is this one of its moments?"""
        return (self.start is None or self.start <= now) and not self.is_over(now)

    def is_over(self, now: datetime) -> bool:
        """Is it past its end?"""
        return self.until is not None and self.until <= now


@dataclass(frozen=True, slots=True)
class NetworkAuthority:
    """To use the network that a coordinating domain forms: `connect`, `install`."""

    actions: frozenset[Action]
    network: str = ANY

    def __post_init__(self) -> None:
        check_name("network", self.network)
        _check_actions(self.actions, NETWORK_ACTIONS, "network")


@dataclass(frozen=True, slots=True)
class TypeAuthority:
    """To use event types of one owner (`owner` is its key), or of whichever owner the chain begins at.

    `attributes` is None for all. `forced` maps names to the value they must have; reduction may leave it with names
    that `attributes` no longer has: such a value still narrows what a subscriber receives, and a publisher, who may
    not set the attribute at all, leaves it null.
    """

    actions: frozenset[Action]
    type: str = ANY
    owner: str | None = None
    attributes: tuple[str, ...] | None = None
    forced: Mapping[str, object] = field(default_factory=dict)
    where: Condition = TRUE

    def __post_init__(self) -> None:
        check_pattern(self.type)
        _check_actions(self.actions, TYPE_ACTIONS, "type")


Authority: TypeAlias = NetworkAuthority | TypeAuthority


@dataclass(frozen=True, slots=True)
class Certificate:
    """An authorisation certificate. `freshness` is the issuer's word on how long (in seconds) its silence is borne."""

    id: str
    issuer: str
    subject: str
    authority: tuple[Authority, ...]
    delegate: bool = False
    validity: Validity = Validity()
    freshness: int | None = None

    def __post_init__(self) -> None:
        check_name("certificate", self.id)
        if not self.authority:
            raise BadDefinition(f"the certificate `{self.id}` gives nothing", remedy="name a `type` or a `network`")

    @property
    def key(self) -> str:
        """What a certificate is known by: no issuer can speak for another's."""
        return f"{self.issuer}#{self.id}"


@dataclass(frozen=True, slots=True)
class RevocationList:
    """What an issuer has revoked, whole: certificates and identity statements by id. Later lists have higher numbers.

    The same number again, issued later, says that nothing changed: a sign of life.
    """

    issuer: str
    number: int
    issued: datetime
    revoked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Succession:
    """A principal goes on under a new key. What the old key signed counts until `until`; without it, for good."""

    old: str
    new: str
    number: int = 0
    until: datetime | None = None

    def __post_init__(self) -> None:
        if self.old == self.new:
            raise BadDefinition(f"`{brief(self.old)}` cannot succeed itself")

    def ends_before(self, other: Succession) -> bool:
        """Does it bring the end of the old key forward? That counts whatever its number.

        Else whoever has stolen the key could use up the numbers, and its owner could not end it.
        """
        return self.until is not None and (other.until is None or self.until < other.until)


@dataclass(frozen=True, slots=True)
class Identity:
    """What an identity provider says of a subject for a short time: attributes and policy rule (Guard IV).

    For a guest, `guest_of` is the key of the provider at home, and `origin` the digest of its statement.
    """

    id: str
    issuer: str
    subject: str
    attributes: Mapping[str, Value]
    validity: Validity
    policy_rule: Condition | None = None
    guest_of: str | None = None
    origin: str | None = None

    def __post_init__(self) -> None:
        check_name("identity statement", self.id)
        for name in self.attributes:
            check_name("subject attribute", name)

    @property
    def key(self) -> str:
        """What a statement is known by."""
        return f"{self.issuer}#{self.id}"


@dataclass(frozen=True, slots=True)
class AttributeMap:
    """How an attribute of a guest is understood here: `name` at home becomes `to`.

    `values` pairs their values with ours, and any other value is left out; without it every value stays as it is.
    """

    name: str
    to: str
    values: tuple[tuple[Value, Value], ...] | None = None

    def __post_init__(self) -> None:
        check_name("subject attribute", self.name)
        check_name("subject attribute", self.to)


@dataclass(frozen=True, slots=True)
class Provider:
    """An identity provider: our own, whose statements count here, or with a `mapping` one whose members may be guests.

    What the mapping does not name is left out (Guard IV.C): nothing is copied blindly. The domain's `own` service is
    one without being asked for, and no policy directory has to name it.
    """

    key: str
    name: str
    mapping: tuple[AttributeMap, ...] | None = None
    own: bool = False

    def __post_init__(self) -> None:
        check_name("identity provider", self.name)


@dataclass(frozen=True, slots=True)
class Attested:
    """An identity statement in force: whom it is about, and which attributes it has given (the domain's own stand)."""

    principal: str
    identity: Identity
    applied: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AttestedRule:
    """A policy rule that a provider attested, and when the statement began that brought it."""

    principal: str
    provider: str
    began: datetime
    rule: Condition

    @property
    def key(self) -> str:
        """What it is known by."""
        return f"{self.provider}#{self.principal}"


@dataclass(frozen=True, slots=True)
class Issuing:
    """The domain's own policy on certificates: members of `who` get this authority, each time for so many seconds."""

    id: str
    who: str
    authority: tuple[Authority, ...]
    seconds: int
    delegate: bool = False

    def __post_init__(self) -> None:
        check_name("issuing rule", self.id)
        if not self.authority:
            raise BadDefinition(f"the issuing rule `{self.id}` gives nothing", remedy="name a `type` or a `network`")
        if self.seconds < 1:
            raise BadDefinition(f"the issuing rule `{self.id}` issues for `{self.seconds}` seconds")


def _check_actions(actions: frozenset[Action], possible: frozenset[Action], what: str) -> None:
    if not actions or not actions <= possible:
        named = ", ".join(f"`{a.value}`" for a in sorted(possible, key=lambda a: a.value))
        raise BadDefinition(f"authority over a {what} is of {named}", remedy="name one or more of them")
