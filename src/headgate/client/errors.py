"""What can go wrong for a client, all under `HeadgateError`.

Guarantees: what a gateway refuses comes back as the class with its code, so that `except PublishDenied` works on either
side of the wire; a code that this version does not know comes back as `Refused`, with the code. Trouble on the way to
every gateway is `Unreachable`, with what was tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, get_args

from headgate.model.errors import BadStatement, HeadgateError, RoleDenied, RoleFailure
from headgate.model.values import brief

_MOST_CHARS: Final = 2_000  # characters of a gateway's message that are kept
_MOST_TRIED: Final = 5  # attempts that a message tells of: the last ones
_UNVERIFIED: Final = "CERTIFICATE_VERIFY_FAILED"


class Refused(HeadgateError):
    """A refusal with a code that this client has no class for."""

    code = "refused"

    def __init__(self, message: str, *, code: str, place: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message, place=place, remedy=remedy)
        self.code = code


class Unreachable(HeadgateError):
    """No gateway answered in time. `tried` has the attempts, the last one last."""

    code = "unreachable"

    def __init__(self, what: str, tried: Sequence[str], *, remedy: str | None = None) -> None:
        self.tried = tuple(tried)
        attempts = "; ".join(dict.fromkeys(self.tried[-_MOST_TRIED:])) or "nothing was tried"
        if remedy is None and _UNVERIFIED in attempts:
            remedy = "give the node's own certificate: `--certificate FILE`, or `--domain DIR` on its machine"
        super().__init__(f"{what}: {attempts}", remedy=remedy or "check that the node is up and the address is right")


class Gap(HeadgateError):
    """Some deliveries were lost before they were read. Reading on is possible."""

    code = "gap"


class SubscriptionEnded(HeadgateError):
    """A subscription ended, or may no longer be read. `reason` is the gateway's code."""

    code = "subscription-ended"

    def __init__(self, message: str, *, reason: str, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.reason = reason


class Unacknowledged(HeadgateError):
    """Too many deliveries were taken without acknowledging any."""

    code = "unacknowledged"


class EventsRefused(HeadgateError):
    """Some events of a batch were refused. `refusals` has the first of them."""

    code = "events-refused"

    def __init__(self, count: int, refusals: Sequence[HeadgateError]) -> None:
        self.count = count
        self.refusals = tuple(refusals)
        first = f"; the first: {refusals[0].message} [{refusals[0].code}]" if refusals else ""
        super().__init__(f"`{count}` events were refused{first}", remedy="look at `refusals`; the others were stored")


class ClientClosed(HeadgateError):
    """The client was closed."""

    code = "client-closed"


def refusal(problem: Mapping[str, Any], *, status: int | None = None) -> HeadgateError:
    """The error that a problem document tells of."""
    code = _text(problem.get("code")) or "refused"
    message = _text(problem.get("detail")) or f"the gateway refused with status `{status or problem.get('status')}`"
    where, remedy = _text(problem.get("place")), _text(problem.get("remedy"))
    if code == BadStatement.code:
        return BadStatement(message, reason=_text(problem.get("reason")) or "refused", place=where, remedy=remedy)
    if code == RoleDenied.code:
        reason = _text(problem.get("reason"))
        details = {} if reason is None else {"reason": reason}
        nearest = problem.get("nearest")
        if isinstance(nearest, Mapping):
            details |= {str(name): brief(one) for name, one in nearest.items() if one is not None}
        return RoleDenied(message, failure=_failure(problem), details=details, place=where, remedy=remedy)
    known = _by_code().get(code)
    if known is None:
        return Refused(message, code=code, place=where, remedy=remedy)
    return known(message, place=where, remedy=remedy)


def _failure(problem: Mapping[str, Any]) -> RoleFailure:
    """The class of a role that was denied; one that this version does not know is misuse."""
    return next((one for one in get_args(RoleFailure) if one == problem.get("failure")), "misuse")


def _text(value: object) -> str | None:
    return value[:_MOST_CHARS] if isinstance(value, str) and value else None


@cache
def _by_code() -> dict[str, type[HeadgateError]]:
    """Every class whose errors are made of message, place and remedy alone, by its code."""
    return {one.code: one for one in _below(HeadgateError) if one.__init__ is HeadgateError.__init__}


def _below(root: type[HeadgateError]) -> Iterator[type[HeadgateError]]:
    for one in root.__subclasses__():
        yield one
        yield from _below(one)


def unexpected(where: str, what: object) -> Refused:
    """An answer that is not what the protocol has."""
    return Refused(
        f"`{where}` did not answer as a gateway does: {brief(what)}",
        code="not-a-gateway",
        remedy="check the address",
    )
