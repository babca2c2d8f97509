"""One error root with stable codes.

Guarantees: every refusal is a `HeadgateError` with a stable `code`, the name of its class in kebab case unless it says
otherwise, a one-line message with the offending input in backticks, and where known a `place` (file, line, key, or line
and column) and a `remedy`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

RoleFailure: TypeAlias = Literal["fraud", "misuse", "revocation", "credentials"]
"""Why a role was denied: the first three are classes of bad certificates (OASIS 4.2), the last a lack of good ones."""


class HeadgateError(Exception):
    """Something Headgate refuses, with a stable code, the place and the remedy."""

    code = "error"

    def __init_subclass__(cls) -> None:
        if HeadgateError in cls.__bases__ and "code" not in vars(cls):
            cls.code = re.sub(r"\B(?=[A-Z])", "-", cls.__name__).lower()

    def __init__(self, message: str, *, place: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.remedy = remedy

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{where}{self.message}{remedy} [{self.code}]"

    def __reduce__(self) -> tuple[object, ...]:
        """As it is, whatever its constructor asks for: a refusal may come from another process."""
        return _restored, (type(self), self.args, self.__dict__)

    def at(self, place: str) -> HeadgateError:
        """Say where it happened, keeping a place that is already more exact."""
        self.place = f"{place}, {self.place}" if self.place else place
        return self


def _restored(kind: type[HeadgateError], args: tuple[object, ...], facts: dict[str, object]) -> HeadgateError:
    made = kind.__new__(kind, *args)
    made.__dict__.update(facts)
    return made


class UnknownType(HeadgateError):
    """An event type that the ledger does not hold."""


class TypeMismatch(HeadgateError):
    """A value that its attribute's declared kind does not accept."""


class PublishDenied(HeadgateError):
    """No entry of the publisher admits the event (D6)."""


class GovernDenied(HeadgateError):
    """The author does not govern what a batch touches, or may not ask (D14)."""


class SubscribeDenied(HeadgateError):
    """A subscription for another principal, or past a limit; never for lack of rights (D10)."""


class BadExpression(HeadgateError):
    """An expression that does not parse, does not type-check or is past a limit."""


class BadDefinition(HeadgateError):
    """A type, rule, group, relation or name that is malformed or clashes."""


class UnknownName(HeadgateError):
    """A principal, group, relation, rule, subscription or predicate nobody declared."""


class VersionConflict(HeadgateError):
    """The ledger moved on since the version the author named; where known, by which version and whose."""

    version: int | None = None
    author: str | None = None


class StaleVersion(HeadgateError):
    """A writer decided at a version that its stream has already left."""


class Fenced(HeadgateError):
    """Another writer has taken the stream over."""


class StreamHeld(HeadgateError):
    """Another writer holds the stream, and its lease has not lapsed. `expires` is in microseconds."""

    def __init__(self, message: str, *, holder: str, expires: int, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.holder = holder
        self.expires = expires


class TooNew(HeadgateError):
    """A file written by a newer Headgate."""


class TooOld(HeadgateError):
    """A file of a format that this Headgate no longer reads."""


class Damaged(HeadgateError):
    """A log, ledger or store file whose content is not what was written."""


class StorageFull(HeadgateError):
    """No room to store; nothing of the request was kept."""


class StorageBusy(HeadgateError):
    """Another process holds the file for too long; nothing of the request was kept."""


class NotInForce(HeadgateError):
    """A change that is kept, and takes effect only when every stream can record its starting point."""


class BadScenario(HeadgateError):
    """A file that is not a scenario."""


class BadEnvironment(HeadgateError):
    """Java or another component of the machine is missing or too old."""


class EngineFailed(HeadgateError):
    """Spark failed, so that nothing is known of what it was asked; `trace` is everything it said."""

    def __init__(self, message: str, *, trace: str, place: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message, place=place, remedy=remedy)
        self.trace = trace


class NotFound(HeadgateError):
    """Nothing by that name that the asker may know of."""


class BadKey(HeadgateError):
    """A key, a key's name or a certificate that is malformed, unsafe or badly kept."""


class NotAuthenticated(HeadgateError):
    """Someone did not prove who they are; the cause is never told."""


class BrokerNotTrusted(HeadgateError):
    """A broker did not prove that it is the one expected."""


class TooBusy(HeadgateError):
    """No room for more of this right now; nothing of the request was kept. `retry` is in how many seconds to try."""

    def __init__(
        self, message: str, *, place: str | None = None, remedy: str | None = None, retry: float | None = None
    ) -> None:
        super().__init__(message, place=place, remedy=remedy)
        self.retry = retry


class BadPosition(HeadgateError):
    """A position that was not given out for this subscription."""


class BadConfig(HeadgateError):
    """A setting that is unknown, of the wrong type, out of range or unsafe."""


class ConnectDenied(HeadgateError):
    """A principal that may not connect to the domain."""


class BadRequest(HeadgateError):
    """A request that is not what the protocol has."""


class TooLarge(HeadgateError):
    """A request past a named limit."""


class TooMany(HeadgateError):
    """More of something than a principal may have."""


class BelowHorizon(HeadgateError):
    """An event is earlier than its source has promised."""


class AheadOfClock(HeadgateError):
    """A stated time, or a promise, is further past the gateway's clock than the event type allows."""


class LimitReached(HeadgateError):
    """A named limit of a detection was reached; what it would have lost it says."""


class DetectionFailed(HeadgateError):
    """A detection met a fault of the program and was ended; others go on."""


class FeedsItself(HeadgateError):
    """A detection whose own events would lead back to it."""


class AlreadyExists(HeadgateError):
    """Something else has that name already."""


class UnsupportedMediaType(HeadgateError):
    """A body of a kind that is not read here."""


class LookupTooLarge(HeadgateError):
    """More entries than a look-up returns."""


class AlreadyRunning(HeadgateError):
    """Another process of the domain does this already."""


class ChainInvalid(HeadgateError):
    """No presented certificate completes a chain from the owner of what is asked for."""


class Expired(HeadgateError):
    """A statement that would be good, were it not past its end."""


class Revoked(HeadgateError):
    """A statement that would be good, had its issuer not revoked it."""


class BadStatement(HeadgateError):
    """Text that is not a signed statement of the kind asked for; `reason` says in a word what is wrong with it."""

    def __init__(self, message: str, *, reason: str, place: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message, place=place, remedy=remedy)
        self.reason = reason


class StaleList(HeadgateError):
    """A revocation list, succession or identity statement older than one already known."""


class PolicyRuleDenied(HeadgateError):
    """The publisher's policy rule is not wider than the event's requirement (D11)."""

    code = "policy-rule"


class RoleDenied(HeadgateError):
    """A role that is not given or not recognised; `failure` says of which class that is, `details` what is known."""

    def __init__(
        self,
        message: str,
        *,
        failure: RoleFailure,
        details: Mapping[str, str] | None = None,
        place: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, place=place, remedy=remedy)
        self.failure: RoleFailure = failure
        self.details = dict(details or {})
        self.for_authors: str | None = None
        """What it says to whoever wrote the policy, where the client is told less."""
