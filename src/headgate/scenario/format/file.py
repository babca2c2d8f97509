"""From a scenario file to a `Scenario`.

Guarantees: a file is read whole or refused with its name, line and key. Names are known (all but the `type` and `event`
of a published event, which are the gateway's to refuse), values have the type the format gives them, and the first
batch is one that a ledger accepts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from headgate.analysis.advice import doubtful_values
from headgate.model.changes import RegisterPredicate, SetConnect, SetCoordinator, SetProvider
from headgate.model.errors import BadScenario, TypeMismatch
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.model.values import brief, conform
from headgate.pipeline.index.predicates import EVERYTHING, Allowed
from headgate.roles.requests.audit import TYPES
from headgate.scenario.format import authority
from headgate.scenario.format import declared as reading
from headgate.scenario.format.narration import StoryNames
from headgate.scenario.format.register import StoryRegister, read_peers
from headgate.scenario.format.steps import read_reason, read_steps
from headgate.scenario.format.story import ADMINISTRATOR, Expect, Expected, Scenario
from headgate.scenario.format.yamlfile import TEXT, YamlFields, YamlNode, load_yaml

_KEYS: Final = (
    *reading.POLICY_KEYS,
    *reading.ROLE_KEYS,
    "peers",
    "certificates",
    "identities",
    "steps",
    "expect",
    "story",
)


def load(path: Path, allowed: Allowed = EVERYTHING) -> Scenario:
    """The scenario of a file; the modules of its predicates run, unless something else is said."""
    root = load_yaml(path)
    if not isinstance(root.data, dict) or "headgate" not in root.data:
        raise BadScenario("it is not a scenario", place=str(root.place), remedy="a scenario begins with `headgate: 1`")
    reading.check_format(root.data["headgate"])
    top = root.fields(_KEYS)
    title = top.maybe("title", TEXT, path.stem)
    ids = reading.RuleIds(root)
    registered, functions = reading.read_predicates(top, path.parent, path.parent, allowed)
    keys = authority.Keys(top, ADMINISTRATOR)
    certificates = authority.read_certificates(top, keys)
    first = _first(top, registered, ids, keys, authority.coordinator(certificates.values(), keys))
    policy, state = reading.applied(State(administrator=ADMINISTRATOR), first, "policy", functions)
    providers = [change.provider for change in policy.changes if isinstance(change, SetProvider)]
    identities = authority.read_identities(top, keys, providers, certificates)
    register = StoryRegister(state, keys, ids, certificates, identities, authority.read_forged(top))
    steps = read_steps(top, register)
    authority.check_fit(top, certificates.values(), register.types, state)
    expect = read_expect(top.get("expect"), register)
    targets = {change.name: change.target for change in registered}
    notes = (*_values(top, state), *reading.warnings(top, state, functions))
    named = StoryNames(
        principals=state.principals,
        subscriptions=register.subscriptions,
        events=register.events,
        statements={**certificates, **identities},
        types=register.types.every,
        detections=register.detections,
        relations=state.relations,
    )
    return Scenario(
        file=path,
        title=title,
        policy=policy,
        steps=steps,
        expect=expect,
        predicates=targets,
        functions=functions,
        notes=notes,
        statements=named.statements,
        forged=register.forged,
        types=register.types,
        lines=tuple(map(named.line, register.lines)),
        narration=named.narration(top["story"]) if "story" in top else None,
    )


def _values(top: YamlFields, state: State) -> Iterator[str]:
    """The members of groups that count as values though a principal was perhaps meant."""
    for group, member in doubtful_values(state):
        place = top["groups"].mapping()[group].place
        yield f"{place}: `{member}` in `{group}` is no principal; it counts as a value"


def _first(
    top: YamlFields, registered: tuple[RegisterPredicate, ...], ids: reading.RuleIds, keys: authority.Keys, root: str
) -> list[reading.Placed]:
    """The changes that make version 1."""
    changes: list[reading.Placed] = []
    node = top.get("connect")
    if reading.connect_open(node, default=True):
        changes.append((SetConnect(True), next(iter(top.values())).place if node is None else node.place))
    changes += [*reading.declared(top, registered, ids, ADMINISTRATOR, reading.STATED), *authority.given(top, keys)]
    if "coordinator" not in top and root != keys.own:
        changes.append((SetCoordinator(root), top["certificates" if "certificates" in top else "principals"].place))
    return [*changes, *read_peers(top), *reading.read_roles(top)]


# -- what must come of it -------------------------------------------------------------------------------------

DERIVED_ID: Final = re.compile(r"(.+):[0-9]+")
"""What the events that a detection publishes are called: `ID:1` and so on."""
_AUDITED: Final = re.compile(r"(entered|ended|refused):(.+)@[0-9]+")


def read_expect(node: YamlNode | None, names: StoryRegister) -> Expect:
    """The `expect` of a file; without one, nothing is delivered and nothing refused.

    An expected view has values of the declared kinds, so that a time in another zone or `2` for `2.0` is the same.
    """
    fields = YamlFields() if node is None else node.fields(("deliveries", "rejected", "versions", "signals"))
    deliveries: dict[str, tuple[Expected, ...]] = {}
    for id, events in fields.entries("deliveries"):
        if id not in names.subscriptions:
            events.refuse(f"no subscription `{brief(id)}`", "its id is that of a `subscribe` step")
        deliveries[id] = tuple(_expected(one, names) for one in events.sequence())
    rejected: dict[str, str] = {}
    for id, reason in fields.entries("rejected"):
        known = names.subscriptions | names.detections | names.shown | names.credentials
        if id not in known:
            _type_of(id, reason, names)
        rejected[id] = read_reason(reason)
    versions: dict[str, int] = {}
    for id, version in fields.entries("versions"):
        _type_of(id, version, names)
        versions[id] = version.integer()
    signals: dict[str, tuple[Mapping[str, object], ...]] = {}
    for id, expected in fields.entries("signals"):
        if id not in names.detections:
            expected.refuse(f"no detection `{brief(id)}`", "its id is that of a `detect` step")
        signals[id] = tuple(_signal(one, names) for one in expected.sequence())
    return Expect(deliveries, rejected, versions, signals)


def _signal(node: YamlNode, names: StoryRegister) -> Mapping[str, object]:
    """A signal: when, as a time or by the event that was it, and what its variables are."""
    fields = node.mapping()
    if "at" not in fields:
        node.refuse("a signal says when it is", "write `{at: 7, x: 1}`, or the id of an event for the time")
    at = fields["at"]
    if isinstance(at.data, str) and at.data in names.events:
        return {"at": at.data, **{name: one.scalar() for name, one in fields.items() if name != "at"}}
    return {"at": authority.read_time(at), **{name: one.scalar() for name, one in fields.items() if name != "at"}}


def _type_of(id: str, node: YamlNode, names: StoryRegister) -> str:
    """The type of an event of the file: one that a step publishes, or what an audited role makes of a credential."""
    if id in names.events:
        return names.events[id]
    derived = DERIVED_ID.fullmatch(id)
    if derived is not None and derived[1] in names.published:
        return names.published[derived[1]]
    audited = _AUDITED.fullmatch(id)
    if audited is None:
        node.refuse(f"no event `{brief(id)}`", "its id is that of a `publish` step")
    if audited[2] not in names.asked:
        node.refuse(
            f"no event `{brief(id)}`",
            "events about audited roles are called by the id of an `enter` or `grant` step: `entered:ID@VERSION`",
        )
    return next(name for word, name in TYPES.items() if word == audited[1])


def _expected(node: YamlNode, names: StoryRegister) -> Expected:
    """A bare id, or one id with the whole view."""
    if not isinstance(node.data, dict):
        _type_of(node.text(), node, names)
        return Expected(node.text())
    fields = node.mapping()
    if len(fields) != 1:
        node.refuse("an expected delivery is an event id, or one id with its view", "write `{e1: {attribute: value}}`")
    ((id, view),) = fields.items()
    return Expected(id, _view(view, _type_of(id, view, names), names.types))


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
