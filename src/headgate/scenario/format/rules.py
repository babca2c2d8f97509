"""Rules as scenario files write them, in `policy` and in `change`.

Guarantees: the shape of a rule is checked here; whom and what it names is left to whoever knows the names. A rule
without an id gets one that no other rule of the file has.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from headgate.model.rights import Action, Effect
from headgate.model.values import brief
from headgate.scenario.format.story import RuleText
from headgate.scenario.format.yamlfile import YamlNode

ANY: Final = "any"
_KEYS: Final = ("id", "who", "role", "may", "type", "where", "attributes", "effect", "disclose", "first", "attested")
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


def read_rules(node: YamlNode, ids: RuleIds, *, attested: bool = False) -> list[RuleText]:
    """A list of rules, each with an id of its own; with `attested`, grants of `publish` are, unless one says no."""
    rules: dict[str, RuleText] = {}
    for entry in node.sequence():
        rule = _rule(entry, ids, attested)
        if rule.id in rules:
            entry.refuse(f"two rules of this list have the id `{brief(rule.id)}`")
        rules[rule.id] = rule
    return list(rules.values())


def _rule(node: YamlNode, ids: RuleIds, attested: bool) -> RuleText:
    fields = node.fields(_KEYS, required=("may",))
    if ("who" in fields) == ("role" in fields):
        node.refuse("a rule is for `who`, or for a `role`", "name one of the two")
    may = fields["may"]
    actions = frozenset(_action(one) for one in (may.data if isinstance(may.data, tuple) else (may,)))
    if not actions:
        may.refuse("the rule allows nothing", f"known actions: {', '.join(_ACTIONS)}")
    if "type" not in fields and actions != {Action.CONNECT}:
        node.refuse("the key `type` is missing", "name a type, or a pattern such as `sports.*`")
    effect = fields.get("effect")
    if effect is not None and (not isinstance(effect.data, str) or effect.data not in _EFFECTS):
        effect.refuse(f"`{brief(effect.plain())}` is not an effect", f"known effects: {', '.join(_EFFECTS)}")
    publishes = Action.PUBLISH in actions and (effect is None or _EFFECTS[str(effect.data)] is Effect.GRANT)
    attributes, forced = read_attributes(fields["attributes"]) if "attributes" in fields else (None, {})
    return RuleText(
        node.place,
        fields["id"].name() if "id" in fields else ids.make(node),
        fields["who"].text() if "who" in fields else "",
        actions,
        fields["type"].text() if "type" in fields else "*",
        where(fields["where"]) if "where" in fields else None,
        attributes,
        forced,
        Effect.GRANT if effect is None else _EFFECTS[str(effect.data)],
        fields["disclose"].flag() if "disclose" in fields else False,
        fields["first"].flag() if "first" in fields else False,
        fields["role"].text() if "role" in fields else None,
        fields["attested"].flag() if "attested" in fields else attested and publishes,
    )


def _action(node: YamlNode) -> Action:
    if not isinstance(node.data, str) or node.data not in _ACTIONS:
        node.refuse(f"`{brief(node.plain())}` is not an action", f"known actions: {', '.join(_ACTIONS)}")
    return _ACTIONS[node.data]


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
