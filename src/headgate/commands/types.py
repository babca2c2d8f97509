"""Event types, and who says that it will publish them: declare, retire and advertise.

Guarantees: everything is done in the name of a principal and decided by the ledger; asking for what is so already makes
no version.
Leaves out: definitions that come signed (`signed_types`).
"""

from __future__ import annotations

from headgate.commands.commit import LedgerAccess
from headgate.model.changes import Advertise, DeclareType, RetireType, Unadvertise
from headgate.model.errors import NotFound
from headgate.model.types import EventType
from headgate.model.values import brief


def declare(ledger: LedgerAccess, principal: str, new: EventType) -> bool:
    """Declare a type, or a new version of one; is its name new?"""
    types = ledger.state.types
    is_new = new.name not in types
    if is_new or _said_by(types[new.name]) != _said_by(new):
        ledger.change(principal, [DeclareType(new)])
    return is_new


def _said_by(one: EventType) -> tuple[object, ...]:
    return one.owner, dict(one.attributes), one.parent, one.key


def retire(ledger: LedgerAccess, principal: str, name: str) -> None:
    """Remove a type."""
    ledger.change(principal, [RetireType(ledger.state.types[name].name)])


def advertised(ledger: LedgerAccess, principal: str) -> list[str]:
    """The types that a principal advertises."""
    return sorted(name for who, name in ledger.state.advertisements if who == principal)


def advertise(ledger: LedgerAccess, principal: str, name: str) -> bool:
    """Say that one will publish a type; is that new?"""
    wanted = principal, ledger.state.types[name].name
    is_new = wanted not in ledger.state.advertisements
    if is_new:
        ledger.change(principal, [Advertise(*wanted)])
    return is_new


def unadvertise(ledger: LedgerAccess, principal: str, name: str) -> None:
    """Say that one will publish a type no more."""
    if (principal, name) not in ledger.state.advertisements:
        raise NotFound(f"you do not advertise `{brief(name)}`")
    ledger.change(principal, [Unadvertise(principal, name)])
