"""Refusals as problem documents (RFC 9457).

Guarantees: every refusal has a status, a stable code and a detail; an error that is not a refusal tells nothing but
that it happened. Which status goes with a code is decided here alone.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headgate.model.errors import BadStatement, HeadgateError, RoleDenied
from headgate.protocol import messages as wire

STATUSES: Final = {
    400: ("Bad request", "bad-request", "bad-position"),
    401: ("Not authenticated", "not-authenticated"),
    403: (
        "Not allowed",
        "connect-denied",
        "publish-denied",
        "govern-denied",
        "subscribe-denied",
        "policy-rule",
        "chain-invalid",
        "expired",
        "revoked",
        "role-denied",
    ),
    404: ("Not found", "not-found", "unknown-type", "unknown-name"),
    405: ("Method not allowed", "method-not-allowed"),
    406: ("Not acceptable", "not-acceptable"),
    409: ("Conflict", "version-conflict", "already-exists", "stale-list"),
    413: ("Too large", "too-large", "lookup-too-large"),
    415: ("Unsupported media type", "unsupported-media-type"),
    422: (
        "Not valid",
        "bad-definition",
        "bad-statement",
        "bad-expression",
        "type-mismatch",
        "below-horizon",
        "ahead-of-clock",
        "feeds-itself",
        "limit-reached",
    ),
    429: ("Too many", "too-many"),
    431: ("Head too large", "head-too-large"),
    500: ("Internal error", "internal-error"),
    503: ("Not now", "fenced", "stale-version", "storage-busy", "stream-held", "too-busy"),
    507: ("No room", "storage-full", "not-in-force"),
}
"""The title of each status, and the codes that have it; what has a code that is not here is a fault of the node."""

TITLES: Final = {status: title for status, (title, *_) in STATUSES.items()}
STATUS: Final = {code: status for status, (_, *codes) in STATUSES.items() for code in codes}

PRIVATE: Final = {
    "fenced": "another gateway writes this stream now",
    "storage-busy": "the files of the node are held by something else",
    "storage-full": "the node has no room to keep this",
    "stream-held": "another gateway writes this stream",
}
"""What is told of errors whose own words name the node's files and processes."""


def problem(error: HeadgateError) -> wire.Problem:
    """A refusal as a problem document."""
    status = STATUS.get(error.code, 500)
    if status == 500:
        return internal()
    if error.code in PRIVATE:
        return told(status, error.code, PRIVATE[error.code], "send it again later")
    made = told(status, error.code, error.message, error.remedy, error.place)
    if isinstance(error, BadStatement):
        made.reason = error.reason
    if isinstance(error, RoleDenied):
        made.reason, made.failure = error.details.get("reason"), error.failure
        if "part" in error.details:  # which statement came nearest is known
            made.nearest = msgspec.convert(dict(error.details), wire.NearestAnswer, strict=False)
    return made


def told(status: int, code: str, detail: str, remedy: str | None = None, where: str | None = None) -> wire.Problem:
    """A problem document."""
    return wire.Problem(f"urn:headgate:problem:{code}", TITLES[status], status, detail, code, remedy, where)


def internal() -> wire.Problem:
    """Something went wrong that is no one's business outside."""
    remedy = "try again; its log says what happened"
    return told(500, "internal-error", "the gateway could not carry out the request", remedy)


def result(id: str, error: HeadgateError) -> wire.EventResult:
    """A refusal as the answer to one event of a batch."""
    refused = problem(error)
    return wire.EventResult(id, "refused", refused.code, refused.detail, refused.remedy)
