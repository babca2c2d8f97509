"""What a policy declares, in the keys that scenario files and policy directories share.

Guarantees: each thing that is declared is a change with its place in the file, in an order that a ledger accepts. What
a ledger would refuse is refused with the place of the change that it refuses, and what is wrong inside a text with the
line of the file on which it stands. A rule without an id gets one that no other rule of the file has.
Leaves out: whom and what a rule of a step names (`steps`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from headgate.decide.truth import PredicateFunction
from headgate.lang import parse_condition
from headgate.lang.rolefile import parse_event_policy, parse_representative, parse_rolefile
from headgate.model import changes as ledger
from headgate.model.errors import BadDefinition, BadExpression, BadScenario, HeadgateError
from headgate.model.expressions import Condition
from headgate.model.rights import Action, Effect
from headgate.model.state import State
from headgate.model.types import EventType, Times, check_name
from headgate.model.values import Kind, Value, brief
from headgate.pipeline.index.predicates import Allowed, find
from headgate.roles.requests.transition import next_state
from headgate.roles.rolefiles.checking import check_rolefile, relation_columns
from headgate.scenario.format.story import RuleText
from headgate.scenario.format.yamlfile import FLAG, TEXT, SourcePlace, YamlFields, YamlNode

FORMAT: Final = 1
POLICY_KEYS: Final = (
    "headgate", "title", "connect", "coordinator", "network", "names", "types", "principals", "groups", "relations",
    "open", "predicates", "providers", "issuing", "attested", "private", "policy",
)  # fmt: skip
"""The keys of a policy: those of a scenario file without its story."""

Placed: TypeAlias = tuple[ledger.Change, SourcePlace]
"""A change and where it is written."""

_TARGET: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")
T = TypeVar("T")

STATED: Final = Times(stated=True)
"""In scenario files types take times from publishers unless they say otherwise."""
_TIMES: Final = ("times", "lateness", "ahead", "clock_error")
_DERIVED: Final = ("derived", "declassified_for")
_KINDS: Final = {kind.value: kind for kind in Kind}


@contextmanager
def placed(place: SourcePlace, *kept: type[HeadgateError]) -> Iterator[None]:
    """What is refused inside is wrong in the file, at this place, or where in it has been said already.

    Expressions are refused with a code of their own, and so is what is `kept`.
    """
    try:
        yield
    except BadScenario:
        raise
    except HeadgateError as error:
        if isinstance(error, (BadExpression, *kept)):
            known = error.place is not None and error.place.startswith(f"{place.file}:")
            raise (error if known else error.at(str(place))) from None
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
    top: YamlFields,
    registered: Sequence[ledger.RegisterPredicate],
    ids: RuleIds,
    administrator: str,
    times: Times | None = None,
) -> list[Placed]:
    """Everything that a policy declares, and last its rules; `times` is as `read_type` has it."""
    changes: list[Placed] = [
        *_principals(top, administrator),
        *_groups(top, administrator),
        *_relations(top),
        *((read_type(name, node, times), node.place) for name, node in top.entries("types")),
    ]
    changes += [(ledger.SetPrivate(name.text(), True), name.place) for name in top.each("private")]
    if "predicates" in top:
        changes += [(change, top["predicates"].place) for change in registered]
    for rule in read_rules(top.each("policy"), ids, attested=top.maybe("attested", FLAG, False)):
        kept = (BadDefinition,) if rule.attested else ()  # on what `attested` may stand, the format says the code
        with placed(rule.place, *kept):
            changes.append((rule.change(), rule.place))
    return changes


def applied(
    before: State, changes: Sequence[Placed], note: str, functions: Mapping[str, PredicateFunction] | None = None
) -> tuple[ledger.Batch, State]:
    """The changes as one batch, and the state it makes; or why there is none, and where."""
    batch = ledger.Batch(before.administrator, tuple(change for change, _ in changes), note)
    try:
        return batch, next_state(before, batch, functions)
    except HeadgateError:
        with placed(changes[_culprit(before, batch, functions)][1]):
            raise
    raise AssertionError("unreachable")


def _culprit(before: State, batch: ledger.Batch, functions: Mapping[str, PredicateFunction] | None) -> int:
    """The first change that is refused: the end of the shortest prefix that cannot be applied."""
    low, high = 0, len(batch.changes)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            next_state(before, ledger.Batch(batch.author, batch.changes[:middle]), functions)
            low = middle
        except HeadgateError:
            high = middle
    return low


def _principals(top: YamlFields, administrator: str) -> Iterator[Placed]:
    for name, node in top.entries("principals"):
        fields = YamlFields() if node.data is None else node.fields(("attributes", "key", "policy_rule"))
        attributes: dict[str, Value] = {key: value.scalar() for key, value in fields.entries("attributes")}
        if name != administrator:
            yield ledger.DeclarePrincipal(name, attributes), node.place
        elif fields.keys() != {"key"}:
            node.refuse(f"`{name}` is the domain's own principal", "choose another name, or give it a `key` alone")
        if "key" in fields:
            yield ledger.SetKey(name, fields["key"].text()), fields["key"].place
        if "policy_rule" in fields:
            yield ledger.SetPolicyRule(name, read_condition(fields["policy_rule"])), fields["policy_rule"].place


def _groups(top: YamlFields, administrator: str) -> Iterator[Placed]:
    is_open = _open(top)
    for name, node in top.entries("groups"):
        yield ledger.DeclareGroup(name, is_open(name)), node.place
    named = {name for key in ("principals", "groups") for name, _ in top.entries(key)} | {administrator}
    for name, node in top.entries("groups"):
        for member in node.sequence():
            yield ledger.AddMember(name, member.text(), member.text() not in named), member.place


def _relations(top: YamlFields) -> Iterator[Placed]:
    is_open = _open(top)
    for name, node in top.entries("relations"):
        yield ledger.DeclareRelation(name, is_open(name)), node.place
        for row in node.sequence():
            yield ledger.AddRow(name, tuple(value.scalar() for value in row.sequence())), row.place


def _open(top: YamlFields) -> Callable[[str], bool]:
    known = {name for key in ("groups", "relations") for name, _ in top.entries(key)}
    names = set()
    for node in top.each("open"):
        if node.text() not in known:
            node.refuse(f"no group or relation `{brief(node.data)}`", "declare it in `groups` or `relations`")
        names.add(node.text())
    return names.__contains__


def read_type(name: str, node: YamlNode, times: Times | None = None) -> ledger.DeclareType:
    """A type as it is written under its name; `times` is what holds where it says nothing of them."""
    fields = node.fields(("owner", "extends", "attributes", "key", *_DERIVED, *_TIMES), required=("owner",))
    attributes = {}
    for attribute, kind in fields.entries("attributes"):
        if not isinstance(kind.data, str) or kind.data not in _KINDS:
            kind.refuse(f"`{brief(kind.plain())}` is not a kind of value", f"known kinds: {', '.join(_KINDS)}")
        attributes[attribute] = _KINDS[kind.data]
    parent, key = fields.maybe("extends", TEXT), tuple(map(TEXT, fields.each("key")))
    said = {what: fields[what].scalar() for what in _TIMES if what in fields}
    with placed(node.place):
        times = Times.said(**said) or (times if parent is None else None)
        owner, derived = fields["owner"].text(), fields.maybe("derived", TEXT)
        released = frozenset(map(TEXT, fields.each("declassified_for")))
        return ledger.DeclareType(
            EventType(name, owner, attributes, parent, key, times=times, derived=derived, declassified_for=released)
        )


def read_predicates(
    top: YamlFields, beside: Path, within: Path, allowed: Allowed
) -> tuple[tuple[ledger.RegisterPredicate, ...], Mapping[str, PredicateFunction]]:
    """The generic predicates of a file, from the modules beside it; those that may not run are known by name alone."""
    registered = []
    functions: dict[str, PredicateFunction] = {}
    for name, target in top.entries("predicates"):
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


ANY: Final = "any"
RULE_KEYS: Final = (
    "id", "who", "role", "may", "type", "where", "attributes", "effect", "disclose", "first", "attested",
)  # fmt: skip
_ACTIONS: Final = {action.value: action for action in Action}
_EFFECTS: Final = {effect.value: effect for effect in Effect}


class RuleIds:
    """The ids that the rules of a file are given, and others for those that have none."""

    def __init__(self, root: YamlNode) -> None:
        self.declared: set[str] = set()
        self._collect(root)
        self._made = 0

    def _collect(self, node: YamlNode) -> None:
        """Every `id` beside a `may`: only rules have both. Events are data, and nothing in them is a rule."""
        match node.data:
            case tuple():
                for inner in node.data:
                    self._collect(inner)
            case dict():
                given = node.data.get("id")
                if given is not None and "may" in node.data and isinstance(given.data, str):
                    self.declared.add(given.data)
                for key, inner in node.data.items():
                    if key != "event":
                        self._collect(inner)

    def make(self, rule: YamlNode) -> str:  # noqa: ARG002
        """An id for a rule that is not taken."""
        self._made += 1
        while f"rule-{self._made}" in self.declared:
            self._made += 1
        return f"rule-{self._made}"


class LastingIds(RuleIds):
    """Ids made of what the rules say, which stay while others come and go around them."""

    def make(self, rule: YamlNode) -> str:
        """An id for a rule that is not taken: the same rule gets the same."""
        text = json.dumps(rule.plain(), sort_keys=True, default=str)
        made = f"rule-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"
        candidate, number = made, 1
        while candidate in self.declared:
            number += 1
            candidate = f"{made}-{number}"
        self.declared.add(candidate)
        return candidate


def read_rules(nodes: Sequence[YamlNode], ids: RuleIds, *, attested: bool = False) -> list[RuleText]:
    """A list of rules, each with an id of its own; with `attested`, grants of `publish` are, unless one says no."""
    rules: dict[str, RuleText] = {}
    for entry in nodes:
        rule = _rule(entry, ids, attested)
        if rule.id in rules:
            entry.refuse(f"two rules of this list have the id `{brief(rule.id)}`")
        rules[rule.id] = rule
    return list(rules.values())


def _rule(node: YamlNode, ids: RuleIds, attested: bool) -> RuleText:
    fields = node.fields(RULE_KEYS, required=("may",))
    if ("who" in fields) == ("role" in fields):
        node.refuse("a rule is for `who`, or for a `role`", "name one of the two")
    may = fields["may"]
    actions = frozenset(_one_of(_ACTIONS, "action", one) for one in may.several())
    if not actions:
        may.refuse("the rule allows nothing", f"known actions: {', '.join(_ACTIONS)}")
    if "type" not in fields and actions != {Action.CONNECT}:
        node.refuse("the key `type` is missing", "name a type, or a pattern such as `sports.*`")
    effect = fields.maybe("effect", partial(_one_of, _EFFECTS, "effect"), Effect.GRANT)
    attributes, forced = read_attributes(fields["attributes"]) if "attributes" in fields else (None, {})
    id = fields["id"].name() if "id" in fields else ids.make(node)
    named = {} if attributes is None or forced else {"attributes": list(attributes)}
    return RuleText(
        place=node.place,
        id=id,
        body={**node.plain(), "id": id, **fields.given(where=where), **named},
        actions=actions,
        attributes=attributes,
        forced=forced,
        effect=effect,
        attested=fields.maybe("attested", FLAG, attested and effect is Effect.GRANT and Action.PUBLISH in actions),
        **fields.given(who=TEXT, type=TEXT, where=where, disclose=FLAG, first=FLAG, role=TEXT),
    )


def _one_of(known: Mapping[str, T], what: str, node: YamlNode) -> T:
    if not isinstance(node.data, str) or node.data not in known:
        node.refuse(f"`{brief(node.plain())}` is not an {what}", f"known {what}s: {', '.join(known)}")
    return known[node.data]


def read_attributes(node: YamlNode) -> tuple[tuple[str, ...], dict[str, object]]:
    """A list of names, or a mapping of names to `any` or to the value to force."""
    if isinstance(node.data, tuple):
        return tuple(dict.fromkeys(one.text() for one in node.data)), {}
    if not isinstance(node.data, dict):
        node.refuse("`attributes` is neither a list nor a mapping", "leave it out for all attributes")
    forced: dict[str, object] = {}
    for name, value in node.mapping().items():
        if value.data is None:
            value.refuse("null cannot be forced", f"write `any` or a value, or leave `{brief(name)}` out")
        if value.scalar() != ANY:
            forced[name] = value.data
    return tuple(node.mapping()), forced


def where(node: YamlNode) -> str:
    """The text of a condition; YAML's own `true` and `false` will do."""
    return str(node.data).lower() if isinstance(node.data, bool) else node.text()


def read_condition(node: YamlNode) -> Condition:
    """A condition, with its place if it is none."""
    with placed(node.place):
        return parse_condition(where(node))


ROLE_KEYS: Final = ("roles", "events", "representatives")
"""The top-level keys about roles."""


def read_roles(top: YamlFields) -> list[Placed]:
    """The changes that `representatives`, `events` and `roles` ask for."""
    changes: list[Placed] = []
    for type_name, node in top.entries("representatives"):
        with placed(node.place):
            said = {name: one.text() for name, one in node.mapping().items()}
            changes.append((ledger.SetRepresentative(parse_representative(type_name, said)), node.place))
    if "events" in top:
        node = top["events"]
        changes.append((ledger.SetEventPolicy(parsed(node, parse_event_policy)), node.place))
    for service, node in top.entries("roles"):
        with placed(node.place):
            check_name("service", service)
        changes.append((ledger.SetRolefile(service, parsed(node, parse_rolefile)), node.place))
    return changes


def parsed(node: YamlNode, parse: Callable[[str], T]) -> T:
    """What a text of a file says; what is wrong with it is said with its line in the file."""
    try:
        return parse(node.text())
    except HeadgateError as error:
        if error.place is None or not error.place.startswith(f"{node.place.file}:"):
            error.place = node.place.inside(error.place)
        raise


def warnings(top: YamlFields, state: State, functions: Collection[str]) -> tuple[str, ...]:
    """What the checker says of the rolefiles that is no error, each with its place."""
    notes: list[str] = []
    rolefiles = state.roles.rolefiles
    relations = relation_columns(state)
    for service, node in top.entries("roles"):
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
