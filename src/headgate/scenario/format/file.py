"""From a scenario file to a `Scenario`.

Guarantees: a file is read whole or refused with its name, line and key. Names are known (all but the `type` and `event`
of a published event, which are the gateway's to refuse), values have the type the format gives them, and the first
batch is one that a ledger accepts. What the format has and this version cannot run is `not-supported-yet`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from headgate.analysis.advice import doubtful_values
from headgate.model.authority import Certificate
from headgate.model.changes import Batch, RegisterPredicate, SetConnect, SetCoordinator, SetProvider
from headgate.model.errors import BadScenario
from headgate.model.state import State
from headgate.pipeline.index.predicates import EVERYTHING, Allowed
from headgate.scenario.format.authority import (
    Keys,
    check_fit,
    coordinator,
    given,
    read_certificates,
    read_forged,
    read_identities,
)
from headgate.scenario.format.declared import (
    POLICY_KEYS,
    ROLE_KEYS,
    Placed,
    RuleIds,
    applied,
    check_format,
    connect_open,
    declared,
    read_predicates,
    read_roles,
    warnings,
)
from headgate.scenario.format.register import StoryRegister, read_peers
from headgate.scenario.format.steps import read_expect, read_steps
from headgate.scenario.format.story import ADMINISTRATOR, Scenario, StoryNames, read_line, read_narration
from headgate.scenario.format.yamlfile import TEXT, Scalar, YamlFields, YamlNode, load_yaml

_KEYS: Final = (*POLICY_KEYS, *ROLE_KEYS, "peers", "certificates", "identities", "steps", "expect", "story")


def load(path: Path, allowed: Allowed = EVERYTHING, keys_of: Mapping[str, str] | None = None) -> Scenario:
    """The scenario of a file; the modules of its predicates run, unless something else is said.

    `keys_of` gives principals keys as if the file had said so.
    """
    root = load_yaml(path)
    if not isinstance(root.data, dict) or "headgate" not in root.data:
        raise BadScenario("it is not a scenario", place=str(root.place), remedy="a scenario begins with `headgate: 1`")
    check_format(root.data["headgate"])
    top = root.fields(_KEYS)
    if keys_of:
        top["principals"] = _with_keys(top["principals"], keys_of)
    title = top.maybe("title", TEXT, path.stem)
    ids = RuleIds(root)
    registered, functions = read_predicates(top, path.parent, path.parent, allowed)
    keys = Keys(top, ADMINISTRATOR)
    certificates = read_certificates(top, keys)
    first = _first(top, registered, ids, keys, coordinator(certificates.values(), keys))
    policy, state = applied(State(administrator=ADMINISTRATOR), first, "policy", functions)
    register = _register(top, keys, policy, certificates)
    steps, names = read_steps(top, state, ids, register)
    check_fit(top, certificates.values(), names.types, state)
    expect = read_expect(top.get("expect"), names)
    targets = {change.name: change.target for change in registered}
    notes = (*_values(top, state), *warnings(top, state, functions))
    named = StoryNames(
        principals=state.principals,
        subscriptions=names.subscriptions,
        events=names.events,
        statements={**register.certificates, **register.identities},
        types=names.types.every,
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
        types=names.types,
        lines=tuple(read_line(line, named) for line in names.lines),
        narration=read_narration(top["story"], named) if "story" in top else None,
    )


def _with_keys(principals: YamlNode, keys_of: Mapping[str, str]) -> YamlNode:
    """The principals with these keys."""
    entries: dict[Scalar, YamlNode] = {}
    for name, node in principals.mapping().items():
        fields: dict[Scalar, YamlNode] = {}
        fields.update({} if node.data is None else node.mapping())
        if name in keys_of:
            fields["key"] = replace(node, data=keys_of[name])
        entries[name] = replace(node, data=fields)
    return replace(principals, data=entries)


def _values(top: YamlFields, state: State) -> Iterator[str]:
    """The members of groups that count as values though a principal was perhaps meant."""
    for group, member in doubtful_values(state):
        place = top["groups"].mapping()[group].place
        yield f"{place}: `{member}` in `{group}` is no principal; it counts as a value"


def _register(top: YamlFields, keys: Keys, policy: Batch, certificates: Mapping[str, Certificate]) -> StoryRegister:
    """The statements of the file."""
    providers = [change.provider for change in policy.changes if isinstance(change, SetProvider)]
    identities = read_identities(top, keys, providers, certificates)
    return StoryRegister(keys, certificates, identities, read_forged(top))


def _first(
    top: YamlFields, registered: tuple[RegisterPredicate, ...], ids: RuleIds, keys: Keys, root: str
) -> list[Placed]:
    """The changes that make version 1."""
    changes: list[Placed] = []
    node = top.get("connect")
    if connect_open(node, default=True):
        changes.append((SetConnect(True), next(iter(top.values())).place if node is None else node.place))
    changes += [*declared(top, registered, ids, ADMINISTRATOR), *given(top, keys)]
    if "coordinator" not in top and root != keys.own:
        changes.append((SetCoordinator(root), top["certificates" if "certificates" in top else "principals"].place))
    return [*changes, *read_peers(top), *read_roles(top)]
