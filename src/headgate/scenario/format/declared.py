"""What a policy declares, in the keys that scenario files and policy directories share.

Guarantees: each thing that is declared is a change with its place in the file, in an order that a ledger accepts. What
a ledger would refuse is refused with the place of the change that it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from headgate.decide.truth import PredicateFunction
from headgate.lang import parse_condition
from headgate.model.changes import (
    AddMember,
    AddRow,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    RegisterPredicate,
    SetKey,
    SetPolicyRule,
    SetPrivate,
)
from headgate.model.errors import BadExpression, BadScenario, HeadgateError, NotSupportedYet
from headgate.model.state import State
from headgate.model.types import EventType
from headgate.model.values import Kind, Value, brief
from headgate.pipeline.index.predicates import Allowed, find
from headgate.roles.requests.transition import next_state
from headgate.scenario.format.rules import RuleIds, read_rules, where
from headgate.scenario.format.yamlfile import SourcePlace, YamlNode

FORMAT: Final = 1
POLICY_KEYS: Final = (
    "headgate", "title", "connect", "coordinator", "network", "names", "types", "principals", "groups", "relations",
    "open", "predicates", "providers", "issuing", "attested", "private", "policy",
)  # fmt: skip
"""The keys of a policy: those of a scenario file without its story."""

Placed: TypeAlias = tuple[Change, SourcePlace]
"""A change and where it is written."""

_TARGET: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")
_KINDS: Final = {kind.value: kind for kind in Kind}


@contextmanager
def placed(place: SourcePlace) -> Iterator[None]:
    """What is refused inside is wrong in the file, at this place, or where in it has been said already."""
    try:
        yield
    except (BadExpression, NotSupportedYet) as error:
        known = error.place is not None and error.place.startswith(f"{place.file}:")
        raise (error if known else error.at(str(place))) from None
    except BadScenario:
        raise
    except HeadgateError as error:
        raise BadScenario(error.message, place=place.inside(error.place), remedy=error.remedy) from None


def check_format(node: YamlNode) -> None:
    """Refuse a file of another version of the format."""
    if type(node.data) is not int or node.data != FORMAT:
        node.refuse(f"`{brief(node.plain())}` is not a format version", f"this Headgate reads `headgate: {FORMAT}`")


def connect_open(node: YamlNode | None, *, default: bool) -> bool:
    """May everyone connect whom no rule stops?"""
    if node is not None and node.data not in ("open", "closed"):
        node.refuse(f"`{brief(node.plain())}` is neither `open` nor `closed`")
    return default if node is None else node.data == "open"


def declared(
    top: Mapping[str, YamlNode], registered: Sequence[RegisterPredicate], ids: RuleIds, administrator: str
) -> list[Placed]:
    """Everything that a policy declares, and last its rules."""
    changes: list[Placed] = [
        *_principals(top, administrator),
        *_groups(top, administrator),
        *_relations(top),
        *_types(top),
    ]
    private = top["private"].sequence() if "private" in top else ()
    changes += [(SetPrivate(name.text(), True), name.place) for name in private]
    if "predicates" in top:
        changes += [(change, top["predicates"].place) for change in registered]
    attested = top["attested"].flag() if "attested" in top else False
    for rule in read_rules(top["policy"], ids, attested=attested) if "policy" in top else ():
        with placed(rule.place):
            changes.append((rule.change(), rule.place))
    return changes


def applied(
    before: State, changes: Sequence[Placed], note: str, functions: Mapping[str, PredicateFunction] | None = None
) -> tuple[Batch, State]:
    """The changes as one batch, and the state it makes; or why there is none, and where."""
    batch = Batch(before.administrator, tuple(change for change, _ in changes), note)
    try:
        return batch, next_state(before, batch, functions)
    except HeadgateError:
        with placed(changes[_culprit(before, batch, functions)][1]):
            raise
    raise AssertionError("unreachable")


def _culprit(before: State, batch: Batch, functions: Mapping[str, PredicateFunction] | None) -> int:
    """The first change that is refused: the end of the shortest prefix that cannot be applied."""
    low, high = 0, len(batch.changes)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            next_state(before, Batch(batch.author, batch.changes[:middle]), functions)
            low = middle
        except HeadgateError:
            high = middle
    return low


def _principals(top: Mapping[str, YamlNode], administrator: str) -> Iterator[Placed]:
    for name, node in _section(top, "principals"):
        fields = {} if node.data is None else node.fields(("attributes", "key", "policy_rule"))
        attributes: dict[str, Value] = {}
        if "attributes" in fields:
            attributes = {key: value.scalar() for key, value in fields["attributes"].mapping().items()}
        if name != administrator:
            yield DeclarePrincipal(name, attributes), node.place
        elif fields.keys() != {"key"}:
            node.refuse(f"`{name}` is the domain's own principal", "choose another name, or give it a `key` alone")
        if "key" in fields:
            yield SetKey(name, fields["key"].text()), fields["key"].place
        if "policy_rule" in fields:
            with placed(fields["policy_rule"].place):
                rule = parse_condition(where(fields["policy_rule"]))
            yield SetPolicyRule(name, rule), fields["policy_rule"].place


def _groups(top: Mapping[str, YamlNode], administrator: str) -> Iterator[Placed]:
    is_open = _open(top)
    for name, node in _section(top, "groups"):
        yield DeclareGroup(name, is_open(name)), node.place
    named = {name for key in ("principals", "groups") for name, _ in _section(top, key)} | {administrator}
    for name, node in _section(top, "groups"):
        for member in node.sequence():
            yield AddMember(name, member.text(), member.text() not in named), member.place


def _relations(top: Mapping[str, YamlNode]) -> Iterator[Placed]:
    is_open = _open(top)
    for name, node in _section(top, "relations"):
        yield DeclareRelation(name, is_open(name)), node.place
        for row in node.sequence():
            yield AddRow(name, tuple(value.scalar() for value in row.sequence())), row.place


def _open(top: Mapping[str, YamlNode]) -> Callable[[str], bool]:
    known = {name for key in ("groups", "relations") for name, _ in _section(top, key)}
    names = set()
    for node in top["open"].sequence() if "open" in top else ():
        if node.text() not in known:
            node.refuse(f"no group or relation `{brief(node.data)}`", "declare it in `groups` or `relations`")
        names.add(node.text())
    return names.__contains__


def _types(top: Mapping[str, YamlNode]) -> Iterator[Placed]:
    for name, node in _section(top, "types"):
        yield read_type(name, node), node.place


def read_type(name: str, node: YamlNode) -> DeclareType:
    """A type as it is written under its name."""
    fields = node.fields(("owner", "extends", "attributes", "key"), required=("owner",))
    attributes = {}
    for attribute, kind in fields["attributes"].mapping().items() if "attributes" in fields else ():
        if not isinstance(kind.data, str) or kind.data not in _KINDS:
            kind.refuse(f"`{brief(kind.plain())}` is not a kind of value", f"known kinds: {', '.join(_KINDS)}")
        attributes[attribute] = _KINDS[kind.data]
    parent = fields["extends"].text() if "extends" in fields else None
    key = tuple(one.text() for one in fields["key"].sequence()) if "key" in fields else ()
    with placed(node.place):
        return DeclareType(EventType(name, fields["owner"].text(), attributes, parent, key))


def _section(top: Mapping[str, YamlNode], key: str) -> list[tuple[str, YamlNode]]:
    return list(top[key].mapping().items()) if key in top else []


def read_predicates(
    node: YamlNode | None, beside: Path, within: Path, allowed: Allowed
) -> tuple[tuple[RegisterPredicate, ...], Mapping[str, PredicateFunction]]:
    """The generic predicates of a file, from the modules beside it; those that may not run are known by name alone."""
    registered = []
    functions: dict[str, PredicateFunction] = {}
    for name, target in node.mapping().items() if node is not None else ():
        if not _TARGET.match(target.text()):
            target.refuse(f"`{brief(target.data)}` is not `module:function`")
        with placed(target.place):
            try:
                predicate, text = find(name, target.text(), beside, within)
                functions[name] = allowed.function(predicate, text)
            except HeadgateError:
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the module is the user's, and may fail in any way
                target.refuse(f"`{target.text()}` cannot be loaded: {type(error).__name__}: {brief(error)}")
        registered.append(predicate)
    return tuple(registered), functions
