"""What a scenario file expects.

Guarantees: subscriptions and events are ones that the steps name, and an expected view has values of the declared
kinds, so that a time in another zone or `2` for `2.0` is the same value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from headgate.model.errors import TypeMismatch
from headgate.model.types import Catalog
from headgate.model.values import brief, conform
from headgate.roles.requests.audit import TYPES
from headgate.scenario.format.steps import StepNames, read_reason
from headgate.scenario.format.story import Expect, Expected
from headgate.scenario.format.yamlfile import YamlNode

_AUDITED: Final = re.compile(r"(entered|ended|refused):(.+)@[0-9]+")


def read_expect(node: YamlNode | None, names: StepNames) -> Expect:
    """The `expect` of a file; without one, nothing is delivered and nothing refused."""
    if node is None:
        return Expect()
    fields = node.fields(("deliveries", "rejected", "versions"), later=("signals",))
    deliveries: dict[str, tuple[Expected, ...]] = {}
    for id, events in fields["deliveries"].mapping().items() if "deliveries" in fields else ():
        if id not in names.subscriptions:
            events.refuse(f"no subscription `{brief(id)}`", "its id is that of a `subscribe` step")
        deliveries[id] = tuple(_expected(one, names) for one in events.sequence())
    rejected: dict[str, str] = {}
    for id, reason in fields["rejected"].mapping().items() if "rejected" in fields else ():
        if id not in names.events and id not in names.subscriptions | names.shown | names.credentials:
            reason.refuse(f"no event `{brief(id)}`", "its id is that of a `publish` step")
        rejected[id] = read_reason(reason)
    versions: dict[str, int] = {}
    for id, version in fields["versions"].mapping().items() if "versions" in fields else ():
        _event(id, version, names)
        versions[id] = version.integer()
    return Expect(deliveries, rejected, versions)


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


def _expected(node: YamlNode, names: StepNames) -> Expected:
    """A bare id, or one id with the whole view."""
    if not isinstance(node.data, dict):
        return Expected(_event(node.text(), node, names))
    fields = node.mapping()
    if len(fields) != 1:
        node.refuse("an expected delivery is an event id, or one id with its view", "write `{e1: {attribute: value}}`")
    ((id, view),) = fields.items()
    return Expected(_event(id, view, names), _view(view, _type_of(id, names) or "", names.types))


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
