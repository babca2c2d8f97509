"""Who may ask about decisions, and what are they told? Rule D14.

Guarantees: whether someone may ask is decided by the state now, whatever version they ask about, so that `govern` or
`audit` once lost opens no past. A refusal does not tell what is not there from what is hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headgate.decide.deliver import States
from headgate.decide.truth import PredicateFunction
from headgate.decide.views import governs, holds
from headgate.model.errors import UnknownName
from headgate.model.rights import Action, Rule
from headgate.model.state import State
from headgate.model.values import brief

PredicatesOf: TypeAlias = Callable[[State], Mapping[str, PredicateFunction]]
"""The generic predicates registered at a state."""


@dataclass(frozen=True, slots=True)
class Books:
    """What answers are drawn from: the state now, the state at any version, and the predicates of a state."""

    now: State
    states: States
    predicates: PredicatesOf


def check_known(now: State, name: str) -> None:
    """Refuse a name that is no principal."""
    if name != now.administrator and name not in now.principals:
        raise UnknownName(f"no principal `{brief(name)}`", remedy="`headgate versions` shows who was declared")


def is_told_all(now: State, asker: str, type_name: str) -> bool:
    """Does the asker own, govern or audit the type, and so learn everything about its decisions?"""
    return governs(now, asker, type_name) or holds(now, asker, Action.AUDIT, type_name)


def is_told_everything(now: State, asker: str) -> bool:
    """Is there no type whose decisions are kept from the asker?"""
    return asker == now.administrator or (
        len(now.types) > 0 and all(is_told_all(now, asker, name) for name in now.types)
    )


def tells_condition(rule: Rule, full: bool) -> bool:
    """May the condition of an entry be told to those it speaks of?"""
    return full or rule.disclose
