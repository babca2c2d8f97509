"""New names that could be mistaken are refused (Unicode UTS 39).

Guarantees: what has a name already keeps it; a new name is refused if it resembles one of its kind that there is, with
that name, or if a part of it mixes scripts or is not in its normal form. Names in ASCII never resemble each other. A
domain that sets `names: any` refuses none.
Leaves out: attributes, rules, subscriptions and certificates, which nobody is given a right by name of.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence

from headgate.model.errors import BadDefinition
from headgate.model.lookalikes import Lookalikes, mixed_scripts, normal_form
from headgate.model.state import State
from headgate.model.values import brief

_REMEDY = "choose a name that cannot be mistaken; a domain with `names: any` takes every name"


def check_new_names(before: State, after: State, declared: Sequence[tuple[str, str]]) -> None:
    """Refuse the first of the names that were declared, each with its kind, that is new and could be mistaken."""
    if after.any_names:
        return
    kinds = dict.fromkeys(what for what, _ in declared)
    had, known = ({what: _names(state, what) for what in kinds} for state in (before, after))
    alike = {what: Lookalikes(names) for what, names in known.items()}
    for what, name in declared:
        if name not in had[what]:
            check_new_name(what, name, alike[what])


def check_new_name(what: str, name: str, known: Lookalikes) -> None:
    """Refuse a name that could be mistaken for another."""
    alike = known.find(name)
    if alike is not None:
        shown = f"`{brief(name)}`{_strange(name)} looks like `{brief(alike)}`{_strange(alike)}"
        raise BadDefinition(f"the {what} {shown}, which there is", remedy=_REMEDY)
    if scripts := mixed_scripts(name):
        raise BadDefinition(f"the {what} `{brief(name)}` mixes scripts: {' and '.join(scripts)}", remedy=_REMEDY)
    if (normal := normal_form(name)) != name:
        raise BadDefinition(f"the {what} `{brief(name)}` is not in its normal form", remedy=f"write `{brief(normal)}`")


def _names(state: State, what: str) -> Collection[str]:
    """The names among which a name is one's own."""
    match what:
        case "type":
            return state.types.every
        case "principal" | "group":
            return {**dict.fromkeys(state.principals), **dict.fromkeys(state.groups), state.administrator: None}
        case "relation":
            return state.relations
        case _:
            return state.predicates


def _strange(name: str) -> str:
    """The first character of a name that is not ASCII, in words: two names that look alike tell a reader nothing."""
    found = next((one for one in name if not one.isascii()), None)
    return "" if found is None else f" (with U+{ord(found):04X}, {unicodedata.name(found, 'unnamed').lower()})"
