"""Subscriptions and reservations have names of their principal's own; the ledger has one name space for all.

Guarantees: no two principals share a name in the ledger, whatever they choose, and neither can tell that the other
has one.
"""

from __future__ import annotations

from urllib.parse import quote

from headgate.model.errors import BadDefinition
from headgate.model.types import check_name
from headgate.model.values import brief

MAX_LOCAL_CHARS = 100
"""Characters of the name that a principal gives to a subscription or reservation."""


def ledger_id(principal: str, id: str) -> str:
    """The ledger's name for what a principal calls `id`."""
    check_name("subscription", id)
    if len(id) > MAX_LOCAL_CHARS or "/" in id:
        raise BadDefinition(
            f"`{brief(id)}` cannot name a subscription",
            remedy=f"use at most {MAX_LOCAL_CHARS} characters and no slash",
        )
    return f"{_prefix(principal)}{id}"


def local_id(principal: str, ledger_id: str) -> str | None:
    """What the principal calls a subscription of the ledger; None if it is not one of its own names."""
    prefix = _prefix(principal)
    return ledger_id[len(prefix) :] if ledger_id.startswith(prefix) else None


def _prefix(principal: str) -> str:
    # The first slash ends the principal's name, so that name must have none.
    return quote(principal, safe=":@.+ ") + "/"
