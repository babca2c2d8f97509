"""From a scenario file to a `Scenario`.

Guarantees: a file is read whole or refused with its name, line and key. Names are known (all but the `type` and `event`
of a published event, which are the gateway's to refuse), values have the type the format gives them, and the first
batch is one that a ledger accepts. What the format has and this version cannot run is `not-supported-yet`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headgate.decide.apply import apply
from headgate.decide.truth import PredicateFunction
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
)
from headgate.model.errors import BadExpression, BadScenario, HeadgateError, NotSupportedYet
from headgate.model.state import State
from headgate.model.types import EventType
from headgate.model.values import Kind, Value, brief
from headgate.pipeline import predicates
from headgate.scenario.expect import read_expect
from headgate.scenario.rules import RuleIds, read_rules
from headgate.scenario.steps import read_steps
from headgate.scenario.story import ADMINISTRATOR, Scenario
from headgate.scenario.yamlfile import Node, Place, load_yaml

FORMAT: Final = 1
_KEYS: Final = (
    "headgate", "title", "connect", "types", "principals", "groups", "relations", "open", "predicates", "policy",
    "steps", "expect",
)  # fmt: skip
_LATER: Final = ("certificates", "roles", "events", "representatives")
_TARGET: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")
_KINDS: Final = {kind.value: kind for kind in Kind}


def load(path: Path) -> Scenario:
    """The scenario of a file."""
    root = load_yaml(path)
    if not isinstance(root.data, dict) or "headgate" not in root.data:
        raise BadScenario("it is not a scenario", place=str(root.place), remedy="a scenario begins with `headgate: 1`")
    version = root.data["headgate"]
    if type(version.data) is not int or version.data != FORMAT:
        version.refuse(
            f"`{brief(version.plain())}` is not a format version", f"this Headgate reads `headgate: {FORMAT}`"
        )
    top = root.fields(_KEYS, later=_LATER)
    title = top["title"].text() if "title" in top else path.stem
    _connect(top.get("connect"))
    ids = RuleIds(root)
    registered, functions = _predicates(top.get("predicates"), path.parent)
    policy, state = _policy(top, registered, ids)
    steps, names = read_steps(top.get("steps"), state, ids)
    expect = read_expect(top.get("expect"), names, state)
    targets = {change.name: change.target for change in registered}
    return Scenario(path, title, policy, steps, expect, targets, functions)


@contextmanager
def _placed(place: Place) -> Iterator[None]:
    """What is refused inside is wrong in the file, at this place."""
    try:
        yield
    except (BadExpression, NotSupportedYet) as error:
        raise error.at(str(place)) from None
    except BadScenario:
        raise
    except HeadgateError as error:
        raise BadScenario(error.message, place=str(place), remedy=error.remedy) from None


def _connect(node: Node | None) -> None:
    if node is not None and node.data == "closed":
        node.not_yet("connect: closed")
    if node is not None and node.data != "open":
        node.refuse(f"`{brief(node.plain())}` is neither `open` nor `closed`")


# -- the first batch ------------------------------------------------------------------------------------------


def _policy(top: Mapping[str, Node], registered: tuple[RegisterPredicate, ...], ids: RuleIds) -> tuple[Batch, State]:
    """The batch that makes version 1, and the state it makes."""
    changes: list[tuple[Change, Place]] = []
    for read in (_principals, _groups, _relations, _types):
        changes += read(top)
    if "predicates" in top:
        changes += [(change, top["predicates"].place) for change in registered]
    for rule in read_rules(top["policy"], ids) if "policy" in top else ():
        with _placed(rule.place):
            changes.append((rule.change(), rule.place))
    before = State(administrator=ADMINISTRATOR)
    batch = Batch(ADMINISTRATOR, tuple(change for change, _ in changes), "policy")
    try:
        return batch, apply(before, batch)
    except HeadgateError:
        with _placed(changes[_culprit(before, batch)][1]):
            raise
    raise AssertionError("unreachable")


def _culprit(before: State, batch: Batch) -> int:
    """The first change that is refused: the end of the shortest prefix that cannot be applied."""
    low, high = 0, len(batch.changes)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            apply(before, Batch(batch.author, batch.changes[:middle]))
            low = middle
        except HeadgateError:
            high = middle
    return low


def _principals(top: Mapping[str, Node]) -> Iterator[tuple[Change, Place]]:
    for name, node in _section(top, "principals"):
        if name == ADMINISTRATOR:
            node.refuse(f"`{name}` is the domain's own principal", "choose another name")
        fields = {} if node.data is None else node.fields(("attributes",), later=("policy_rule",))
        attributes: dict[str, Value] = {}
        if "attributes" in fields:
            attributes = {key: value.scalar() for key, value in fields["attributes"].mapping().items()}
        yield DeclarePrincipal(name, attributes), node.place


def _groups(top: Mapping[str, Node]) -> Iterator[tuple[Change, Place]]:
    is_open = _open(top)
    for name, node in _section(top, "groups"):
        yield DeclareGroup(name, is_open(name)), node.place
    for name, node in _section(top, "groups"):
        for member in node.sequence():
            yield AddMember(name, member.text()), member.place


def _relations(top: Mapping[str, Node]) -> Iterator[tuple[Change, Place]]:
    is_open = _open(top)
    for name, node in _section(top, "relations"):
        yield DeclareRelation(name, is_open(name)), node.place
        for row in node.sequence():
            yield AddRow(name, tuple(value.scalar() for value in row.sequence())), row.place


def _open(top: Mapping[str, Node]) -> Callable[[str], bool]:
    declared = {name for key in ("groups", "relations") for name, _ in _section(top, key)}
    names = set()
    for node in top["open"].sequence() if "open" in top else ():
        if node.text() not in declared:
            node.refuse(f"no group or relation `{brief(node.data)}`", "declare it in `groups` or `relations`")
        names.add(node.text())
    return names.__contains__


def _types(top: Mapping[str, Node]) -> Iterator[tuple[Change, Place]]:
    for name, node in _section(top, "types"):
        fields = node.fields(("owner", "extends", "attributes", "key"), required=("owner",))
        attributes = {}
        for attribute, kind in fields["attributes"].mapping().items() if "attributes" in fields else ():
            if not isinstance(kind.data, str) or kind.data not in _KINDS:
                kind.refuse(f"`{brief(kind.plain())}` is not a kind of value", f"known kinds: {', '.join(_KINDS)}")
            attributes[attribute] = _KINDS[kind.data]
        parent = fields["extends"].text() if "extends" in fields else None
        key = tuple(one.text() for one in fields["key"].sequence()) if "key" in fields else ()
        with _placed(node.place):
            yield DeclareType(EventType(name, fields["owner"].text(), attributes, parent, key)), node.place


def _section(top: Mapping[str, Node], key: str) -> list[tuple[str, Node]]:
    return list(top[key].mapping().items()) if key in top else []


def _predicates(
    node: Node | None, beside: Path
) -> tuple[tuple[RegisterPredicate, ...], Mapping[str, PredicateFunction]]:
    """The generic predicates of a file, loaded from the modules beside it."""
    registered = []
    functions: dict[str, PredicateFunction] = {}
    for name, target in node.mapping().items() if node is not None else ():
        if not _TARGET.match(target.text()):
            target.refuse(f"`{brief(target.data)}` is not `module:function`")
        with tempfile.TemporaryDirectory() as keep, _placed(target.place):
            try:
                found = predicates.register(name, target.text(), beside, Path(keep))
                functions.update(predicates.load_all([found], Path(keep)))
            except HeadgateError:
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the module is the user's, and may fail in any way
                target.refuse(f"`{target.text()}` cannot be loaded: {type(error).__name__}: {brief(error)}")
        registered.append(found)
    return tuple(registered), functions
