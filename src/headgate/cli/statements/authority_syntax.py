"""Rights as the command line writes them: actions, attributes, and a whole right in one piece.

Guarantees: `ACTIONS TYPE (NAMES) where CONDITION` and `ACTIONS network NAME` are read whole or refused; nothing in
them is passed over.
"""

from __future__ import annotations

import re
from typing import Final

import typer

from headgate.cli.shared.rendering import printable
from headgate.cli.statements.statement_files import KeyNames, condition_of, pieces, value_of
from headgate.model.authority import ANY, NETWORK_ACTIONS, TYPE_ACTIONS, Authority, NetworkAuthority, TypeAuthority
from headgate.model.conditions import TRUE
from headgate.model.errors import HeadgateError
from headgate.model.rights import Action
from headgate.model.values import brief

_OPTION: Final = "--give"
_EVERY: Final = "*"
_RIGHT: Final = re.compile(
    r"""\s*(?P<actions>[a-z*]+(?:\s*[,|]\s*[a-z*]+)*)
    \s+(?:network(?:\s+(?P<network>[^\s(].*?))? | (?P<type>[^\s(]+)
        (?:\s*\((?P<attributes>(?:[^()']|'(?:[^']|'')*')*)\))?
        (?:\s+where\s+(?P<where>.+?))?
    )\s*\Z""",
    re.VERBOSE | re.DOTALL,
)


def given_right(text: str, names: KeyNames) -> Authority:
    """A right that is given in one piece."""
    parts = _RIGHT.match(text)
    if parts is None:
        raise typer.BadParameter(
            f"{_OPTION}: `{printable(brief(text))}` is neither `ACTIONS TYPE (NAMES) where CONDITION` "
            "nor `ACTIONS network NAME`"
        )
    try:
        if parts["type"] is None:
            return NetworkAuthority(actions_of(parts["actions"], NETWORK_ACTIONS, _OPTION), parts["network"] or ANY)
        owner, pattern = names.owned(parts["type"])
        listed, where = parts["attributes"], parts["where"]
        named, forced = (None, {}) if listed is None else attributes_of(listed, _OPTION)
        condition = TRUE if where is None else condition_of(where, _OPTION)
        actions = actions_of(parts["actions"], TYPE_ACTIONS, _OPTION)
        return TypeAuthority(actions, pattern, owner, named, forced, condition)
    except HeadgateError as error:
        raise error if error.place is not None else error.at(_OPTION) from None


def actions_of(given: str, possible: frozenset[Action], option: str) -> frozenset[Action]:
    """Actions with commas between them, or `*` for all there are."""
    by_name = {one.value: one for one in possible}
    words = pieces(given.replace("|", ","))
    if words == [_EVERY]:
        return possible
    if unknown := [one for one in words if one not in by_name]:
        raise typer.BadParameter(f"{option}: `{unknown[0]}` is none of {', '.join(sorted(by_name))}, or `*` for all")
    if not words:
        raise typer.BadParameter(f"{option} names one or more of {', '.join(sorted(by_name))}, or `*` for all")
    return frozenset(by_name[one] for one in words)


def attributes_of(given: str, option: str) -> tuple[tuple[str, ...], dict[str, object]]:
    """Names of attributes, some with the value that is forced."""
    named: list[str] = []
    forced: dict[str, object] = {}
    for one in pieces(given):
        name, equals, value = one.partition("=")
        if name.strip() in named:
            raise typer.BadParameter(f"{option} names `{name.strip()}` twice")
        named.append(name.strip())
        if equals:
            forced[named[-1]] = value_of(value.strip())
    return tuple(named), forced
