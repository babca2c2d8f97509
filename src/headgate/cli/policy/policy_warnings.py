"""What `headgate policy` warns of, in words.

Guarantees: every concern has its words, which name the rules or principals it is about, and what to do where that is
not plain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from headgate.analysis.advice import Advice, Concern
from headgate.cli.shared.rendering import names
from headgate.lang.render import render_role
from headgate.model.state import State
from headgate.roles.rolefiles.checking import asked_for, relation_columns

_FEW: Final = 3
"""Principals that are named one by one."""


@dataclass(frozen=True, slots=True)
class Warned:
    """Something odd about the policy, and that in words."""

    concern: Concern | Literal["asked-for"]
    names: tuple[str, ...]
    words: str


def warned(found: Iterable[Advice], *states: State) -> tuple[Warned, ...]:
    """Everything that is odd, with its words; `states` know the groups."""
    return tuple(Warned(one.concern, one.names, _words(one, *states)) for one in found)


def whom(who: Sequence[str], *states: State) -> str:
    """Principals in a few words: by name if they are few, by their group if they have one, or by number."""
    if len(who) <= _FEW:
        return names(who)
    members = frozenset(who)
    for state in states:
        inside = [(len(found), group) for group in state.groups if members <= (found := state.members_of(group))]
        if inside:
            size, group = min(inside)
            return f"the {size:,} members of `{group}`" if size == len(who) else f"{len(who):,} members of `{group}`"
    return f"{names(who[:2])} and {len(who) - 2:,} more"


def _words(advice: Advice, *states: State) -> str:
    rules = names(advice.names[:_FEW]) + (f" and {len(advice.names) - _FEW:,} more" if len(advice.names) > _FEW else "")
    people, many = whom(advice.names, *states), len(advice.names) > 1
    match advice.concern:
        case Concern.IDLE_FORBID:
            return f"the forbid {rules} takes nothing away: those it speaks to have no right that it would limit"
        case Concern.IDLE_GRANT:
            return f"the grant {rules} gives nothing: rules before it decide all it speaks of, or it is never true"
        case Concern.EMPTY_GROUP:
            valued = any(state.groups.get(advice.group or "") for state in states)
            members = "principals as members" if valued else "members"
            return f"`{advice.group}` has no {members}, so {rules} {'speak' if many else 'speaks'} to nobody"
        case Concern.VALUES:
            are = "are no principals: they count as values" if many else "is no principal: it counts as a value"
            return f"{rules} in `{advice.group}` {are}, and no rule speaks to {'them' if many else 'it'}"
        case Concern.NO_KEY:
            return f"{people} {'have' if many else 'has'} no key, and cannot connect"
        case Concern.NOT_LET_IN:
            return f"{people} {'have' if many else 'has'} a key, but no rule lets {'them' if many else 'it'} connect"
        case Concern.NO_ROLE:
            return f"{rules} {'ask' if many else 'asks'} for `{_role(advice)}`, and no service here has such a role"
        case Concern.UNATTESTED:
            who = people if advice.role is None else f"by {rules}, whoever holds `{_role(advice)}`"
            return f"{who} could publish without an identity statement; `attested: true` in a rule asks for one"
        case Concern.AVOIDABLE:
            return f"{rules} forbids by `{_role(advice)}`, and whoever holds that need not count it for a subscription"
        case Concern.NOTHING_OF_IT:
            return f"{rules} gives no attribute: whoever it is for sees that the event happened, and nothing of it"


def named_by_entrants(state: State) -> tuple[Warned, ...]:
    """Arguments of roles that whoever enters them names as it likes."""
    warnings: list[Warned] = []
    for service, rolefile in state.roles.rolefiles.items():
        for one in asked_for(rolefile, relation_columns(state)):
            words = f"rolefile of `{service}`, line {one.line}: {one.message}; {one.remedy}"
            warnings.append(Warned("asked-for", (service,), words))
    return tuple(warnings)


def _role(one: Advice) -> str:
    return "" if one.role is None else render_role(one.role)
