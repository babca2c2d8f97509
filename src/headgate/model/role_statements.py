"""What certificates about roles say, once they are verified (OASIS 4.3-4.4, figures 4.2 and 4.3).

Guarantees: frozen values, with illegal shapes refused. A certificate is a name and not a promise: what it says counts
only while the credential record that it refers to is true. Times are in whole seconds, as statements say them.
Leaves out: signatures (`trust.role_statements`), and whether a certificate counts for someone now
(`roles.certificates.validation`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, TypeAlias

from headgate.model.errors import BadDefinition, RoleDenied
from headgate.model.expressions import Argument
from headgate.model.roles import Reference
from headgate.model.values import brief


class ServiceInstance(NamedTuple):
    """An instance of a service's rolefile, and the key of the domain that the service is of."""

    issuer: str
    service: str
    instance: str = ""


@dataclass(frozen=True, slots=True)
class HeldRole:
    """One role of a certificate, with the record that it rests on; only what is delegated has open arguments."""

    role: str
    args: tuple[Argument, ...]
    ref: Reference


@dataclass(frozen=True, slots=True)
class _Embodying:
    """A subject has roles."""

    id: str
    place: ServiceInstance
    subject: str
    roles: tuple[HeldRole, ...]
    issued: datetime
    until: datetime

    def __post_init__(self) -> None:
        _check_times(self.issued, self.until)


class RoleCertificate(_Embodying):
    """A client holds these roles, for as long as their records are true and not after `until`."""

    __slots__ = ()


class AppointmentCertificate(_Embodying):
    """A client is qualified by these roles beyond any session (Capabilities V.A)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class DelegationCertificate:
    """Whoever holds the required roles is elected, if it also meets the rolefile."""

    id: str
    place: ServiceInstance
    election: str
    role: str
    args: tuple[Argument | None, ...]
    """None leaves an argument open."""
    elector: str
    ref: Reference
    """The record of the election."""
    issued: datetime
    until: datetime
    """When the certificate is over, at the latest with the election."""
    ends: datetime | None = None
    """When the election ends by itself; memberships by it end then, too."""
    required: tuple[str, ...] = ()
    """As text: `Login.LoggedOn('jim', _)`."""
    revoke_on_exit: bool = False

    def __post_init__(self) -> None:
        _check_times(self.issued, self.until)
        if self.ends is not None and self.until > self.ends:
            raise BadDefinition("a delegation certificate is over with its election", remedy="let `until` be earlier")


@dataclass(frozen=True, slots=True)
class RoleName:
    """A role with its arguments, by its full name."""

    place: ServiceInstance
    role: str
    args: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True)
class RevocationCertificate:
    """The subject may take an election back while it is in the elector's role."""

    id: str
    place: ServiceInstance
    subject: str
    election: str
    elector: RoleName
    """The role in which one elects, and without which nobody takes the election back."""
    membership: Reference
    """The record of the subject's own membership of that role."""
    target: Reference
    """The record to be made false."""
    issued: datetime
    until: datetime

    def __post_init__(self) -> None:
        _check_times(self.issued, self.until)


RoleStatement: TypeAlias = RoleCertificate | AppointmentCertificate | DelegationCertificate | RevocationCertificate


def pass_on(
    held: RevocationCertificate,
    to: RoleCertificate,
    *,
    id: str,
    issued: datetime,
    until: datetime,
    membership: Reference | None = None,
) -> RevocationCertificate:
    """The right to revoke, for another holder of the elector's role and nobody else (OASIS 4.4).

    `to` shows that it is one. Where that role is of another domain, `membership` is the record that mirrors it here.
    """
    wanted = held.elector
    held_role = next(fitting(to, wanted.role, wanted.args), None) if to.place == wanted.place else None
    if held_role is None:
        raise RoleDenied(
            f"`{brief(to.subject)}` does not show that it holds `{brief(wanted.role)}`",
            failure="misuse",
            remedy="the right to revoke is passed on only to another holder of the elector's role",
        )
    if to.subject == held.subject:
        raise RoleDenied(f"`{brief(to.subject)}` may revoke already", failure="misuse")
    if until > held.until:
        raise RoleDenied(
            "the right to revoke is passed on for longer than it lasts",
            failure="misuse",
            remedy="let it end with the certificate that is passed on",
        )
    if wanted.place.issuer == held.place.issuer:
        membership = held_role.ref
    elif membership is None:
        raise RoleDenied(f"`{brief(wanted.role)}` is of another domain, and nothing mirrors it", failure="misuse")
    return replace(held, id=id, subject=to.subject, membership=membership, issued=issued, until=until)


def fitting(
    held: RoleCertificate | AppointmentCertificate, role: str, args: tuple[Argument | None, ...] | None
) -> Iterator[HeldRole]:
    """The roles of a certificate that are this one; None leaves one argument open, or all."""
    return (one for one in held.roles if one.role == role and (args is None or fits(one.args, args)))


def fits(arguments: tuple[Argument | None, ...], wanted: tuple[Argument | None, ...]) -> bool:
    """Are the arguments those that are wanted, where neither is left open?

    `1`, `1.0` and `true` are three, `0.0` and `-0.0` two.
    """
    if len(arguments) != len(wanted):
        return False
    for at, other in enumerate(wanted):
        if other is not None:
            one = arguments[at]
            if one == other and type(one) is type(other) and (type(one) is not float or repr(one) == repr(other)):
                continue
            if one is not None:
                return False
    return True


def _check_times(issued: datetime, until: datetime) -> None:
    if until <= issued:
        raise BadDefinition("a certificate ends after it is issued", remedy="let `until` be later")
    if issued.microsecond or until.microsecond:
        raise BadDefinition("a certificate has times in whole seconds", remedy="round them down")
