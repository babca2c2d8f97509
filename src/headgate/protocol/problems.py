"""Refusals as problem documents (RFC 9457).

Guarantees: every refusal has a status, a stable code and a detail; an error that is not a refusal tells nothing but
that it happened. Which status goes with a code is decided here alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.model.errors import BadStatement, HeadgateError, RoleDenied
from headgate.protocol import messages as wire

STATUS: Final = {
    "bad-request": 400,
    "bad-position": 400,
    "not-authenticated": 401,
    "connect-denied": 403,
    "publish-denied": 403,
    "govern-denied": 403,
    "subscribe-denied": 403,
    "policy-rule": 403,
    "chain-invalid": 403,
    "expired": 403,
    "revoked": 403,
    "role-denied": 403,
    "not-found": 404,
    "unknown-type": 404,
    "unknown-name": 404,
    "method-not-allowed": 405,
    "not-acceptable": 406,
    "version-conflict": 409,
    "already-exists": 409,
    "stale-list": 409,
    "too-large": 413,
    "lookup-too-large": 413,
    "unsupported-media-type": 415,
    "bad-definition": 422,
    "bad-statement": 422,
    "bad-expression": 422,
    "type-mismatch": 422,
    "too-many": 429,
    "head-too-large": 431,
    "internal-error": 500,
    "fenced": 503,
    "stale-version": 503,
    "storage-busy": 503,
    "stream-held": 503,
    "too-busy": 503,
    "storage-full": 507,
    "not-in-force": 507,
}
"""The status of each code; a code that is not here is a fault of the node, not of the request."""

PRIVATE: Final = {
    "fenced": "another gateway writes this stream now",
    "storage-busy": "the files of the node are held by something else",
    "storage-full": "the node has no room to keep this",
    "stream-held": "another gateway writes this stream",
}
"""What is told of errors whose own words name the node's files and processes."""

TITLES: Final = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    422: "Not valid",
    429: "Too many",
    431: "Head too large",
    500: "Internal error",
    503: "Not now",
    507: "No room",
}


def problem(error: HeadgateError) -> wire.Problem:
    """A refusal as a problem document."""
    status = STATUS.get(error.code, 500)
    if status == 500:
        return internal()
    if error.code in PRIVATE:
        return told(status, error.code, PRIVATE[error.code], "send it again later")
    reason = error.reason if isinstance(error, BadStatement) else None
    if isinstance(error, RoleDenied):
        reason = error.details.get("reason")
    made = told(status, error.code, error.message, error.remedy, error.place, reason)
    if isinstance(error, RoleDenied):
        made.failure, made.nearest = error.failure, _nearest(error.details)
    return made


def _nearest(details: Mapping[str, str]) -> wire.NearestAnswer | None:
    """Which statement came nearest, where that is known."""
    if "part" not in details:
        return None
    part: Any = details["part"]
    truth: Any = details["truth"]
    return wire.NearestAnswer(int(details["line"]), part, int(details["number"]), truth, details.get("what"))


def told(
    status: int,
    code: str,
    detail: str,
    remedy: str | None = None,
    where: str | None = None,
    reason: str | None = None,
) -> wire.Problem:
    """A problem document."""
    return wire.Problem(f"urn:headgate:problem:{code}", TITLES[status], status, detail, code, remedy, where, reason)


def internal() -> wire.Problem:
    """Something went wrong that is no one's business outside."""
    return told(
        500, "internal-error", "the gateway could not carry out the request", "try again; its log says what happened"
    )


def result(id: str, error: HeadgateError) -> wire.EventResult:
    """A refusal as the answer to one event of a batch."""
    refused = problem(error)
    return wire.EventResult(id, "refused", refused.code, refused.detail, refused.remedy)
