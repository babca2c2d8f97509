"""Rolefiles, event policy and representatives, as scenario files write them.

Guarantees: each is a change with its place; what is wrong inside a text is refused with the line of the file on which
it stands, or where lines are folded with the line of the text. What the checker only warns of is a note.
Leaves out: policy directories, which have no roles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

from headgate.lang.rolefile import parse_event_policy, parse_representative, parse_rolefile
from headgate.model.changes import SetEventPolicy, SetRepresentative, SetRolefile
from headgate.model.errors import HeadgateError
from headgate.model.state import State
from headgate.model.types import check_name
from headgate.roles.rolefiles.checking import check_rolefile, relation_columns
from headgate.scenario.format.declared import Placed, placed
from headgate.scenario.format.yamlfile import YamlNode

ROLE_KEYS: Final = ("roles", "events", "representatives")
"""The top-level keys about roles."""

T = TypeVar("T")


def read_roles(top: Mapping[str, YamlNode]) -> list[Placed]:
    """The changes that `representatives`, `events` and `roles` ask for."""
    changes: list[Placed] = []
    for type_name, node in top["representatives"].mapping().items() if "representatives" in top else ():
        with placed(node.place):
            said = {name: one.text() for name, one in node.mapping().items()}
            changes.append((SetRepresentative(parse_representative(type_name, said)), node.place))
    if "events" in top:
        node = top["events"]
        changes.append((SetEventPolicy(parsed(node, parse_event_policy)), node.place))
    for service, node in top["roles"].mapping().items() if "roles" in top else ():
        with placed(node.place):
            check_name("service", service)
        changes.append((SetRolefile(service, parsed(node, parse_rolefile)), node.place))
    return changes


def parsed(node: YamlNode, parse: Callable[[str], T]) -> T:
    """What a text of a file says; what is wrong with it is said with its line in the file."""
    with _in_text(node):
        return parse(node.text())


@contextmanager
def _in_text(node: YamlNode) -> Iterator[None]:
    try:
        yield
    except HeadgateError as error:
        if error.place is None or not error.place.startswith(f"{node.place.file}:"):
            error.place = node.place.inside(error.place)
        raise


def warnings(top: Mapping[str, YamlNode], state: State, functions: Collection[str]) -> tuple[str, ...]:
    """What the checker says of the rolefiles that is no error, each with its place."""
    notes: list[str] = []
    rolefiles = state.roles.rolefiles
    relations = relation_columns(state)
    for service, node in top["roles"].mapping().items() if "roles" in top else ():
        for finding in check_rolefile(
            rolefiles[service],
            service=service,
            known=rolefiles.get,
            groups=frozenset(state.groups),
            relations=relations,
            functions=frozenset(functions),
        ):
            if finding.severity == "warning":
                remedy = f"; {finding.remedy}" if finding.remedy else ""
                notes.append(f"{node.place.inside(f'line {finding.line}')}: {finding.message}{remedy}")
    return tuple(notes)
