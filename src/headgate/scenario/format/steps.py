"""The steps of a scenario file, and what it expects of them.

Guarantees: every principal, group, relation, rule, type and subscription that a step names is declared in the file. A
step inside `assert: {denied: ...}` may name types and attributes that do not exist, as that is a reason to deny it. An
expected view has values of the declared kinds, so that a time in another zone or `2` for `2.0` is the same value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headgate.model.changes import (
    AddMember,
    AddRow,
    Advertise,
    Change,
    RemoveMember,
    RemoveRow,
    RetireType,
    SetAttribute,
    SetPolicyRule,
    Unadvertise,
)
from headgate.model.errors import BadScenario, HeadgateError, TypeMismatch
from headgate.model.events import Draft
from headgate.model.state import State
from headgate.model.types import Catalog, EventType, is_pattern
from headgate.model.values import brief, conform
from headgate.roles.requests.audit import TYPES
from headgate.scenario.format import story
from headgate.scenario.format.authority import OURSELVES, read_time
from headgate.scenario.format.declared import RuleIds, read_condition, read_rules, read_type, where
from headgate.scenario.format.register import PeerSteps, StoryRegister
from headgate.scenario.format.role_steps import CLAIM_KEYS, RoleSteps
from headgate.scenario.format.yamlfile import NAME, TEXT, YamlFields, YamlNode

_LATER: Final = ("heartbeat", "detect")


def _codes(root: type[HeadgateError]) -> set[str]:
    return {root.code}.union(*(_codes(one) for one in root.__subclasses__()))


@dataclass(slots=True)
class StepNames:
    """What the steps declare: events with their types, subscriptions, credentials, and every type ever."""

    types: Catalog
    events: dict[str, str] = field(default_factory=dict)
    subscriptions: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    """The signed statements that are shown."""
    credentials: set[str] = field(default_factory=set)
    """The memberships and elections that are asked for, and what is revoked by its id."""
    asked: set[str] = field(default_factory=set)
    """The ids that events about audited roles may have."""
    lines: list[YamlFields] = field(default_factory=list)
    """The narrator's keys of each step, which may name what later steps declare."""


def read_steps(
    top: YamlFields, state: State, ids: RuleIds, register: StoryRegister
) -> tuple[tuple[story.Step, ...], StepNames]:
    """The steps, and the names they declare; rules of the `policy` may be for roles that steps give."""
    reader = _Steps(state, ids, register)
    for rule in top.each("policy"):
        reader.roles.rule(rule)
    steps = tuple(map(reader.step, top.each("steps")))
    for unsubscribed, id in reader.unsubscribed:
        if id not in reader.names.subscriptions:
            unsubscribed.refuse(f"no subscription `{brief(id)}`", "its id is that of a `subscribe` step")
    reader.roles.finish()
    reader.names.credentials |= reader.roles.credentials
    reader.names.asked |= reader.roles.asked
    return steps, reader.names


def read_reason(node: YamlNode) -> str:
    """A reason code."""
    if node.text() not in _codes(HeadgateError):
        node.refuse(f"`{brief(node.data)}` is not a reason code", "they are listed in docs/scenario-format.md")
    return node.text()


class _Steps:
    def __init__(self, state: State, ids: RuleIds, register: StoryRegister) -> None:
        self.state = state
        self.ids = ids
        self.register = register
        self.names = StepNames(state.types)
        self.peers = PeerSteps(state, register)
        self.roles = RoleSteps(state, register, self._principal, self.peers)
        self.unsubscribed: list[tuple[YamlNode, str]] = []
        self.values = {one for group in state.groups for one in state.values_of(group)}
        """What is in groups, or comes into one, and is no principal."""
        self.denying = False
        self.readers: Mapping[str, Callable[[YamlNode], story.Step]] = {
            "subscribe": self.subscribe,
            "unsubscribe": self.unsubscribe,
            "publish": self.publish,
            "change": self.change,
            "type": self.declare,
            "retire": self.retire,
            "advertise": self.advertise,
            "unadvertise": self.unadvertise,
            "connect": self.connect,
            "grant": self.roles.grant,
            "enter": self.roles.enter,
            "elect": self.roles.elect,
            "revoke": self.revoke,
            "reinstate": self.roles.reinstate,
            "pass": self.roles.pass_on,
            "silent": lambda node: self.peers.silent(node, keep=not self.denying),
            "heard": lambda node: self.peers.heard(node, keep=not self.denying),
            "hear": self.hear,
            "advance": self.advance,
            "crash": self.crash,
            "assert": self.claim,
        }

    def step(self, node: YamlNode) -> story.Step:
        """One step: a mapping of one key, besides those of the narrator."""
        fields = node.fields(tuple(self.readers) if self.denying else (*self.readers, *story.LINE_KEYS), later=_LATER)
        line = YamlFields({key: fields.pop(key) for key in story.LINE_KEYS if key in fields})
        if not self.denying:
            self.names.lines.append(line)
        if len(fields) != 1:
            node.refuse(f"a step has one key, and this has {len(fields)}", f"known steps: {', '.join(self.readers)}")
        ((key, inner),) = fields.items()
        return self.readers[key](inner)

    # -- steps ------------------------------------------------------------------------------------------------

    def subscribe(self, node: YamlNode) -> story.SubscribeStep:
        if not node.several():
            node.refuse("no subscription to begin")
        return story.SubscribeStep(node.place, tuple(map(self._subscription, node.several())))

    def _subscription(self, node: YamlNode) -> story.SubscriptionText:
        required = ("as", "type") if self.denying else ("id", "as", "type")
        fields = node.fields(("id", "as", "type", "where", "requires", "from", "origin", "with"), required)
        start: dict[str, Any] = fields.maybe("from", _beginning) or {}
        id = fields.maybe("id", NAME, "(denied)")
        if not self.denying:
            self.names.subscriptions.add(id)
        return story.SubscriptionText(
            place=node.place,
            id=id,
            principal=self._principal(fields["as"]),
            counted=fields.maybe("with", self.roles.counted),
            **fields.given(type=self._type, where=where, requires=where, origin=TEXT),
            **start,
        )

    def unsubscribe(self, node: YamlNode) -> story.UnsubscribeStep:
        fields = _by_id(node).fields(("id",), required=("id",))
        id = fields["id"].name()
        if not self.denying:
            self.unsubscribed.append((fields["id"], id))
        return story.UnsubscribeStep(node.place, id)

    def publish(self, node: YamlNode) -> story.PublishStep:
        required = ("as", "type", "event") if self.denying else ("id", "as", "type", "event")
        fields = node.fields(("id", "as", "type", "event", "requires", "at", "stream", "origin"), required)
        id = fields.maybe("id", NAME, "(denied)")
        type_name = fields["type"].data
        if not isinstance(type_name, str):  # the gateway's to refuse: no type has such a name
            type_name = f"({fields['type'].plain()!r})"
        if not self.denying:
            if id in self.names.events:
                fields["id"].refuse(f"two events have the id `{brief(id)}`")
            self.names.events[id] = type_name
        sender, origin = self._principal(fields["as"]), fields.maybe("origin", TEXT)
        return story.PublishStep(
            place=node.place,
            draft=Draft(id, sender, type_name, fields["event"].plain(), origin=origin),
            stream=fields.maybe("stream", NAME, "main"),
            at=fields.maybe("at", read_time, self.register.clock),
            requires=fields.maybe("requires", where),
        )

    def change(self, node: YamlNode) -> story.ChangeStep:
        fields = node.fields(("by", "add", "remove", "groups", "attributes", "policy_rules", "relations", "roles"))
        by = fields.maybe("by", self._principal, story.ADMINISTRATOR)
        removed = tuple(map(self._rule_id, fields.each("remove")))
        changes: list[Change] = [
            *self._groups(fields),
            *self._attributes(fields),
            *self._policy_rules(fields),
            *self._relations(fields),
        ]
        roles = self.roles.change(fields)
        added = read_rules(fields.each("add"), self.ids)
        for rule, one in zip(added, fields.each("add"), strict=True):
            self._check_rule(rule, one)
        return story.ChangeStep(
            place=node.place,
            by=story.ADMINISTRATOR if by == OURSELVES else by,
            remove=removed,
            changes=tuple(changes),
            add=tuple(added),
            roles=roles,
        )

    def declare(self, node: YamlNode) -> story.OtherStep:
        """Types that are declared, or grow."""
        made = [read_type(name, inner) for name, inner in node.mapping().items()]
        if not made:
            node.refuse("no type to declare", "write `type: {name: {owner: ..., attributes: {...}}}`")
        for change in made:
            self._principal_or_group(node.mapping()[change.type.name].mapping()["owner"])
            if not self.denying:
                self._learn(change.type)
        words = f"type {', '.join(f'`{change.type.name}`' for change in made)}"
        return story.OtherStep(node.place, story.ADMINISTRATOR, tuple(made), words)

    def _learn(self, new: EventType) -> None:
        """Later steps and expectations may name the type; whether it can be declared shows when it is."""
        types = self.names.types
        with suppress(HeadgateError):
            self.names.types = types.grow(new, 0) if new.name in types else types.declare(new)

    def retire(self, node: YamlNode) -> story.OtherStep:
        """A type ends."""
        return story.OtherStep(
            node.place, story.ADMINISTRATOR, (RetireType(self._type(node)),), f"retire `{node.text()}`"
        )

    def advertise(self, node: YamlNode) -> story.OtherStep:
        """A principal says what it will publish."""
        return self._advertisement(node, Advertise, "advertise")

    def unadvertise(self, node: YamlNode) -> story.OtherStep:
        """A principal will publish it no more."""
        return self._advertisement(node, Unadvertise, "unadvertise")

    def _advertisement(self, node: YamlNode, change: type[Advertise | Unadvertise], words: str) -> story.OtherStep:
        fields = node.fields(("as", "type"), required=("as", "type"))
        principal, type_name = self._principal(fields["as"]), self._type(fields["type"])
        return story.OtherStep(node.place, principal, (change(principal, type_name),), f"{words} `{type_name}`")

    def connect(self, node: YamlNode) -> story.ConnectStep:
        """A principal connects, and shows what it has."""
        fields = node.fields(("as", "present"), required=("as",))
        principal = self._principal(fields["as"])
        shown = fields.each("present")
        changes = self.register.shown(principal, shown)
        ids = tuple(dict.fromkeys(one.text() for one in shown))
        self.names.shown.update(() if self.denying else ids)
        forged = tuple(id for id in ids if id in self.register.forged)
        return story.ConnectStep(node.place, principal, ids, changes, forged)

    def revoke(self, node: YamlNode) -> story.OtherStep | story.RoleStep:
        """An issuer takes a statement back, or a credential ends."""
        node = _by_id(node)
        id = node.mapping().get("id")
        if id is None or not self.register.knows(id.text()):
            return self.roles.revoke(node)
        node.fields(("id",))
        change = self.register.revoked(id, keep=not self.denying)
        return story.OtherStep(node.place, story.ADMINISTRATOR, (change,), f"revoke `{id.text()}`")

    def hear(self, node: YamlNode) -> story.OtherStep:
        """An issuer gives a sign of life."""
        change = self.register.heard(node, keep=not self.denying)
        return story.OtherStep(node.place, story.ADMINISTRATOR, (change,), f"hear `{node.text()}`")

    def advance(self, node: YamlNode) -> story.AdvanceStep:
        """The clock moves on; a step inside `denied` cannot move it."""
        since = self.register.clock
        passed = () if self.denying else self.register.advance(node)
        return story.AdvanceStep(node.place, passed, since, self.register.clock)

    def crash(self, node: YamlNode) -> story.CrashStep:
        if node.data != "pipeline":
            node.refuse(f"`{brief(node.plain())}` cannot crash", "write `crash: pipeline`")
        return story.CrashStep(node.place)

    def claim(self, node: YamlNode) -> story.DeniedStep | story.ClaimStep:
        fields = node.fields(("denied", *CLAIM_KEYS))
        if not fields:
            node.refuse("nothing is claimed", "write `holds`, `lacks`, `state` or `denied`")
        denied = self._denied(node, fields["denied"]) if "denied" in fields else None
        if denied is not None and len(fields) == 1:
            return denied
        return story.ClaimStep(node.place, self.roles.claims(fields), self.register.clock, denied)

    def _denied(self, node: YamlNode, inner: YamlNode) -> story.DeniedStep:
        fields = inner.fields(("step", "reason"), required=("step", "reason"))
        if self.denying:
            inner.refuse("an `assert` cannot be denied", "name a step that can be refused")
        self.denying = self.roles.denying = True
        try:
            step = self.step(fields["step"])
        finally:
            self.denying = self.roles.denying = False
        if not isinstance(step, story.CommitStep | story.PublishStep):
            fields["step"].refuse(
                "a crash, an `advance` or another `assert` cannot be denied", "name a step that can be refused"
            )
        return story.DeniedStep(node.place, step, read_reason(fields["reason"]))

    # -- parts ------------------------------------------------------------------------------------------------

    def _groups(self, fields: YamlFields) -> Iterator[Change]:
        for group, inner in self._declared(fields, "groups", "group", self.state.groups):
            edits = inner.fields(("add", "remove"))
            yield from (RemoveMember(group, one.text(), self._is_value(one, "remove")) for one in edits.each("remove"))
            yield from (AddMember(group, one.text(), self._is_value(one, "add")) for one in edits.each("add"))

    def _attributes(self, fields: YamlFields) -> Iterator[Change]:
        for principal, inner in self._declared(fields, "attributes", "principal", self.state.principals):
            yield from (SetAttribute(principal, name, value.scalar()) for name, value in inner.mapping().items())

    def _policy_rules(self, fields: YamlFields) -> Iterator[Change]:
        for principal, inner in self._declared(fields, "policy_rules", "principal", self.state.principals):
            yield SetPolicyRule(principal, None if inner.data is None else read_condition(inner))

    def _relations(self, fields: YamlFields) -> Iterator[Change]:
        for relation, inner in self._declared(fields, "relations", "relation", self.state.relations):
            edits = inner.fields(("add", "remove"))
            for key, change in (("remove", RemoveRow), ("add", AddRow)):
                rows = (tuple(value.scalar() for value in row.sequence()) for row in edits.each(key))
                yield from (change(relation, row) for row in rows)

    def _declared(
        self, fields: YamlFields, key: str, what: str, known: Collection[str]
    ) -> Iterator[tuple[str, YamlNode]]:
        """The entries of a key, by the names of what is declared."""
        for name, inner in fields.entries(key):
            if name not in known:
                inner.refuse(f"no {what} `{brief(name)}`", f"declare it in `{what}s`")
            yield name, inner

    def _check_rule(self, rule: story.RuleText, node: YamlNode) -> None:
        fields = node.mapping()
        if "who" in fields:
            self._principal_or_group(fields["who"])
        self.roles.rule(node)
        if self.denying or is_pattern(rule.type):
            return
        self._type(fields["type"])
        known = self.names.types.attributes(rule.type)
        for attribute in rule.attributes or ():
            if attribute not in known:
                fields["attributes"].refuse(
                    f"`{rule.type}` has no attribute `{brief(attribute)}`",
                    f"it has {', '.join(f'`{a}`' for a in known)}",
                )

    def _principal(self, node: YamlNode) -> str:
        if node.text() not in self.state.principals:
            node.refuse(f"no principal `{brief(node.data)}`", "declare it in `principals`")
        return node.text()

    def _is_value(self, node: YamlNode, key: str) -> bool:
        """Is a member a value: text that no principal or group is called? One that leaves is in the file before."""
        member = node.text()
        if member in self.state.principals or member in self.state.groups:
            return False
        if key == "add":
            self.values.add(member)
        elif member not in self.values and not self.denying:
            node.refuse(f"no principal, group or value `{brief(member)}`", "it is in no group of the file")
        return True

    def _principal_or_group(self, node: YamlNode) -> str:
        if node.text() not in self.state.principals and node.text() not in self.state.groups:
            node.refuse(f"no principal or group `{brief(node.data)}`", "declare it in `principals` or `groups`")
        return node.text()

    def _type(self, node: YamlNode) -> str:
        if not self.denying and node.text() not in self.names.types:
            node.refuse(f"no type `{brief(node.data)}`", "declare it in `types`")
        return node.text()

    def _rule_id(self, node: YamlNode) -> str:
        if node.text() not in self.ids.declared and not self.denying:
            node.refuse(f"no rule `{brief(node.data)}`", "give the rule an `id`")
        return node.text()


def _by_id(node: YamlNode) -> YamlNode:
    """A step that names an id and nothing else may be the id alone."""
    return replace(node, data={"id": node}) if isinstance(node.data, str) else node


def _beginning(node: YamlNode) -> dict[str, Any]:
    """Where a subscription begins: `now`, `start`, a version or a time."""
    if node.data == "now":
        return {}
    if node.data == "start":
        return {"history": True}
    remedy = "write `now`, `start`, `{version: 3}`, `{time: ...}` or a time: seconds, or ISO 8601 with a zone"
    if isinstance(node.data, dict):
        fields = node.fields(("version", "time"))
        if len(fields) != 1:
            node.refuse("a subscription begins at a version or at a time", remedy)
        if "time" in fields:
            return {"history": True, "since_time": read_time(fields["time"])}
        if fields["version"].integer() < 0:
            fields["version"].refuse(f"`{fields['version'].data}` is not a version", "versions count from 0")
        return {"history": True, "since_version": fields["version"].integer()}
    try:
        return {"history": True, "since_time": read_time(node)}
    except BadScenario:
        node.refuse(f"`{brief(node.plain())}` is not where to begin", remedy)


_AUDITED: Final = re.compile(r"(entered|ended|refused):(.+)@[0-9]+")


def read_expect(node: YamlNode | None, names: StepNames) -> story.Expect:
    """The `expect` of a file; without one, nothing is delivered and nothing refused."""
    fields = YamlFields() if node is None else node.fields(("deliveries", "rejected", "versions"), later=("signals",))
    deliveries: dict[str, tuple[story.Expected, ...]] = {}
    for id, events in fields.entries("deliveries"):
        if id not in names.subscriptions:
            events.refuse(f"no subscription `{brief(id)}`", "its id is that of a `subscribe` step")
        deliveries[id] = tuple(_expected(one, names) for one in events.sequence())
    rejected: dict[str, str] = {}
    for id, reason in fields.entries("rejected"):
        if id not in names.events and id not in names.subscriptions | names.shown | names.credentials:
            reason.refuse(f"no event `{brief(id)}`", "its id is that of a `publish` step")
        rejected[id] = read_reason(reason)
    versions: dict[str, int] = {}
    for id, version in fields.entries("versions"):
        _event(id, version, names)
        versions[id] = version.integer()
    return story.Expect(deliveries, rejected, versions)


def _type_of(id: str, names: StepNames) -> str | None:
    """The type of an event of the file: one that a step publishes, or what an audited role makes of a credential."""
    made = _AUDITED.fullmatch(id)
    if id not in names.events and made is not None and made[2] in names.asked:
        return next(name for word, name in TYPES.items() if word == made[1])
    return names.events.get(id)


def _event(id: str, node: YamlNode, names: StepNames) -> str:
    if _type_of(id, names) is None:
        remedy = "its id is that of a `publish` step"
        if _AUDITED.fullmatch(id):
            remedy = (
                "events about audited roles are called by the id of an `enter` or `grant` step: `entered:ID@VERSION`"
            )
        node.refuse(f"no event `{brief(id)}`", remedy)
    return id


def _expected(node: YamlNode, names: StepNames) -> story.Expected:
    """A bare id, or one id with the whole view."""
    if not isinstance(node.data, dict):
        return story.Expected(_event(node.text(), node, names))
    fields = node.mapping()
    if len(fields) != 1:
        node.refuse("an expected delivery is an event id, or one id with its view", "write `{e1: {attribute: value}}`")
    ((id, view),) = fields.items()
    return story.Expected(_event(id, view, names), _view(view, _type_of(id, names) or "", names.types))


def _view(node: YamlNode, type_name: str, types: Catalog) -> Mapping[str, object]:
    view: dict[str, object] = {}
    if type_name not in types:
        return {name: value.plain() for name, value in node.mapping().items()}
    kinds = types.attributes(type_name)
    for name, value in node.mapping().items():
        if name not in kinds:
            known = ", ".join(f"`{a}`" for a in kinds) or "none"
            value.refuse(f"`{type_name}` has no attribute `{brief(name)}`", f"its attributes are {known}")
        try:
            view[name] = conform(kinds[name], value.plain())
        except TypeMismatch as error:
            value.refuse(error.message, error.remedy)
    return view
