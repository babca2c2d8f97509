"""A directory of YAML files as one policy: what the ledger must say.

Guarantees: files are read in order of their names, at most one level down, and every error names the file, the line and
the key. A name declared twice is refused with both places. Rules keep the order of the files and of the lines in them.
Whoever no rule lets in may not connect, unless a file says `connect: open`. The policy is one that a ledger accepts.
A rolefile stands under its service in `roles`, or in a file `Service.roles`; event policy in `events`, or in files
`*.erdl`, one after the other. Reading a directory runs no Python that stands in it, unless it is allowed.
Leaves out: stories and expectations, which belong to scenario files; memberships and elections, which are no policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

from headgate.analysis.plan import Plan, plan
from headgate.decide.truth import NotRun, PredicateFunction
from headgate.lang.rolefile import parse_event_policy, parse_rolefile
from headgate.model import changes as ledger
from headgate.model.errors import BadDefinition, BadScenario, HeadgateError, NotFound
from headgate.model.limits import MAX_ROLEFILE_CHARS
from headgate.model.rolefiles import EventEntry, EventPolicy
from headgate.model.roles import Peer
from headgate.model.state import State
from headgate.model.types import EventType, check_name
from headgate.model.values import brief
from headgate.pipeline.index.predicates import Allowed
from headgate.roles.requests.transition import transition
from headgate.scenario.format import declared as reading
from headgate.scenario.format.authority import Keys, any_names, given
from headgate.scenario.format.yamlfile import TEXT, Scalar, SourcePlace, YamlFields, YamlNode, load_yaml

MAX_FILES: Final = 1_000
"""Files of one policy directory."""

_ENDINGS: Final = (".yaml", ".yml")
_NAMED: Final = (
    "types", "principals", "groups", "relations", "predicates", "roles", "representatives", "peers",
)  # fmt: skip
_LISTED: Final = ("open", "private", "providers", "issuing", "policy")
_ONCE: Final = ("connect", "coordinator", "names", "network", "attested")


@dataclass(frozen=True, slots=True)
class Desired:
    """The policy of a directory, as the state that it makes out of nothing."""

    directory: Path
    state: State
    predicates: tuple[tuple[ledger.RegisterPredicate, Path], ...] = ()
    """Each with the directory that its module stands in."""
    places: Mapping[str, SourcePlace] = field(default_factory=dict)
    """Where each type is written."""
    functions: Mapping[str, PredicateFunction] = field(default_factory=dict)
    """The predicates, which rolefiles may call."""

    @property
    def not_run(self) -> tuple[str, ...]:
        """The predicates that are known by name alone."""
        return tuple(name for name, one in self.functions.items() if isinstance(one, NotRun))


def read_policy(directory: Path, administrator: str, allowed: Allowed = Allowed()) -> Desired:  # noqa: B008 - frozen
    """The policy of a directory, for the domain of this administrator; no Python of it runs that is not allowed."""
    files = _files(directory)
    roots = [(path, load_yaml(path)) for path in files if path.suffix in _ENDINGS]
    tops = [(path, root.fields((*reading.POLICY_KEYS, *KEYS))) for path, root in roots]
    merged = _merged([{key: node for key, node in top.items() if key != "events"} for _, top in tops])
    for rule in merged.each("policy"):
        if "first" in rule.mapping():
            rule.mapping()["first"].refuse("`first` has no meaning here", "the order of rules is that of the files")
    registered: list[tuple[ledger.RegisterPredicate, Path]] = []
    functions: dict[str, PredicateFunction] = {}
    for path, top in tops:
        if "headgate" in top:
            reading.check_format(top["headgate"])
        found, loaded = reading.read_predicates(top, path.parent, directory, allowed)
        registered += [(one, path.parent) for one in found]
        functions |= loaded
    ids = reading.LastingIds(merged.get("policy", roots[0][1]))
    keys = Keys(merged, administrator)
    changes = _parents_first(reading.declared(merged, [one for one, _ in registered], ids, administrator))
    changes += given(merged, keys)
    if reading.connect_open(merged.get("connect"), default=False):
        changes.append((ledger.SetConnect(True), merged["connect"].place))
    changes += role_changes(merged, files, keys)
    # Which names are new is known only where there is a ledger: a plan looks at them.
    _, state = reading.applied(State(administrator=administrator, any_names=True), changes, "", functions)
    state = replace(state, any_names=any_names(merged.get("names")))
    state = with_events(state, tops, files)
    places = {name: node.place for name, node in merged.entries("types")}
    return Desired(directory, state, tuple(registered), places, functions)


def plan_policy(now: State, desired: Desired) -> Plan:
    """The batch that makes the ledger say what the directory says; what cannot be is refused with its place."""

    def step(state: State, batch: ledger.Batch) -> tuple[ledger.Batch, State]:
        made = transition(state, batch, functions=desired.functions)
        return made.batch, made.after

    for name, one in desired.state.types.items():
        if name in now.types.every and name in desired.places:  # others are our own, as `audit` makes them
            _check_growth(now.types.every[name], one, desired.places[name])
    try:
        return plan(now, desired.state, step)
    except HeadgateError as error:
        raise error.at(str(desired.directory)) from None


def _check_growth(old: EventType, new: EventType, place: SourcePlace) -> None:
    """Refuse a type that is not what it was, and more."""
    for what, was, is_ in (
        ("owner", old.owner, new.owner),
        ("parent", old.parent, new.parent),
        ("key", ", ".join(old.key), ", ".join(new.key)),
    ):
        if was != is_:
            raise BadDefinition(
                f"the {what} of `{new.name}` is `{was or 'none'}`, and cannot become `{is_ or 'none'}`",
                place=str(place),
                remedy="keep it, or declare another type",
            )
    if old.times is not None and old.times.stated and new.times is None and new.parent is None:
        raise BadDefinition(
            f"`{new.name}` no longer takes times from publishers",
            place=str(place),
            remedy="keep `times: publisher`, or declare another type",
        )
    for attribute, kind in old.attributes.items():
        if attribute not in new.attributes:
            message = f"`{new.name}` loses its attribute `{attribute}`"
        elif new.attributes[attribute] is not kind:
            message = f"the attribute `{attribute}` of `{new.name}` becomes {new.attributes[attribute].value}"
        else:
            continue
        keep = f"keep `{attribute}: {kind.value}`; attributes can only be added"
        raise BadDefinition(message, place=str(place), remedy=keep)


# -- files ----------------------------------------------------------------------------------------------------


def _files(directory: Path) -> list[Path]:
    """The files of a directory and of the directories in it, by name."""
    if not directory.is_dir():
        raise NotFound(f"no policy directory `{directory}`", remedy="name a directory with YAML files in it")
    inner = [one for one in directory.iterdir() if not one.name.startswith(".")]
    found = [*inner, *(f for d in inner if d.is_dir() for f in d.iterdir() if not f.name.startswith("."))]
    known = (*_ENDINGS, ROLEFILE, EVENTS)
    files = sorted((f for f in found if f.suffix in known and f.is_file()), key=lambda f: f.relative_to(directory))
    within = directory.resolve()
    for file in files:
        if not file.resolve().is_relative_to(within):  # an error would quote what stands there
            raise BadDefinition(
                f"`{file.name}` leads out of the directory",
                place=str(file),
                remedy="let files of the policy stand in its directory, and link to no others",
            )
    if not any(f.suffix in _ENDINGS for f in files):
        raise NotFound(f"no `.yaml` file in `{directory}`", remedy="a policy of nothing is one file with `headgate: 1`")
    if len(files) > MAX_FILES:
        raise BadScenario(f"more than MAX_FILES ({MAX_FILES}) files", place=str(directory))
    return files


def _merged(tops: list[dict[str, YamlNode]]) -> YamlFields:
    """The files as one."""
    merged = YamlFields()
    for top in tops:
        for key, node in top.items():
            if key in _NAMED:
                merged[key] = _joined(key, merged[key], node) if key in merged else node
            elif key in _LISTED:
                merged[key] = replace(node, data=(*merged.each(key), *node.sequence()))
            elif key in _ONCE and key in merged:
                node.refuse(f"`{key}` is given twice", f"it is in {merged[key].place} already")
            else:
                merged[key] = node
    _check_rule_ids(merged.each("policy"))
    return merged


def _joined(key: str, first: YamlNode, other: YamlNode) -> YamlNode:
    """Two mappings as one; a name in both is refused with both places."""
    names = first.mapping()
    for name, node in other.mapping().items():
        if name in names:
            node.refuse(f"`{brief(name)}` is declared twice in `{key}`", f"it is in {names[name].place} already")
    return replace(first, data=dict[Scalar, YamlNode]([*names.items(), *other.mapping().items()]))


def _check_rule_ids(rules: Sequence[YamlNode]) -> None:
    seen: dict[object, SourcePlace] = {}
    for rule in rules:
        id = rule.mapping().get("id")
        if id is not None:
            if id.scalar() in seen:
                id.refuse(f"two rules have the id `{brief(id.scalar())}`", f"the other is in {seen[id.scalar()]}")
            seen[id.scalar()] = rule.place


def _parents_first(changes: list[reading.Placed]) -> list[reading.Placed]:
    """The changes with each type after its parent, whichever file that is in; those of a cycle stay as they are."""
    types = {c.type.name: (c, place) for c, place in changes if isinstance(c, ledger.DeclareType)}
    ordered: dict[str, reading.Placed] = {}
    for name in types:
        line = [name]
        while (parent := types[line[-1]][0].type.parent) in types and parent not in line:
            line.append(str(parent))
        for one in reversed(line):
            ordered.setdefault(one, types[one])
    queue: Iterator[reading.Placed] = iter(ordered.values())
    return [next(queue) if isinstance(change, ledger.DeclareType) else (change, place) for change, place in changes]


KEYS: Final = (*reading.ROLE_KEYS, "peers")
"""The keys about roles."""

ROLEFILE: Final = ".roles"
EVENTS: Final = ".erdl"

_BOUND: Final = 30
"""For how many seconds the silence of a peer is borne, unless its file says otherwise."""

T = TypeVar("T")


def role_changes(top: YamlFields, files: Sequence[Path], keys: Keys) -> list[reading.Placed]:
    """Peers, representatives and rolefiles; the event policy follows when they are there (`with_events`)."""
    changes = [*_peers(top, keys), *reading.read_roles(top)]
    known = {change.service: place for change, place in changes if isinstance(change, ledger.SetRolefile)}
    for path in (one for one in files if one.suffix == ROLEFILE):
        place = SourcePlace(str(path), 1)
        if path.stem in known:
            message = f"`{path.stem}` has two rolefiles"
            raise BadScenario(message, place=str(place), remedy=f"the other is in {known[path.stem]}")
        known[path.stem] = place
        with reading.placed(place):
            check_name("service", path.stem)
        changes.append((ledger.SetRolefile(path.stem, _read(path, parse_rolefile)), place))
    return changes


def with_events(state: State, tops: Sequence[tuple[Path, Mapping[str, YamlNode]]], files: Sequence[Path]) -> State:
    """The state with the event policy of all files."""
    policies: list[tuple[Path, EventPolicy, SourcePlace]] = []
    for path, top in tops:
        if "events" in top:
            policies.append((path, reading.parsed(top["events"], parse_event_policy), top["events"].place))
    policies += [
        (one, _read(one, parse_event_policy), SourcePlace(str(one), 1)) for one in files if one.suffix == EVENTS
    ]
    entries: list[EventEntry] = []
    for _, policy, place in sorted(policies, key=lambda one: one[0]):
        entries += policy.entries
        # One file after the other, so that what is refused is refused with its own.
        _, state = reading.applied(state, [(ledger.SetEventPolicy(EventPolicy(tuple(entries))), place)], "")
    return state


def _read(path: Path, parse: Callable[[str], T]) -> T:
    """What the text of a file says."""
    with path.open("rb") as file:
        raw = file.read(4 * MAX_ROLEFILE_CHARS + 1)
    if len(raw) > 4 * MAX_ROLEFILE_CHARS:
        message = f"the file is longer than MAX_ROLEFILE_CHARS ({MAX_ROLEFILE_CHARS}) characters"
        raise BadScenario(message, place=str(path))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BadScenario("the file is not text in UTF-8", place=str(path)) from None
    try:
        return parse(text)
    except HeadgateError as error:
        raise error.at(str(path)) from None


def _peers(top: YamlFields, keys: Keys) -> list[reading.Placed]:
    changes: list[reading.Placed] = []
    for name, node in top.entries("peers"):
        fields = node.fields(("key", "service", "url", "bound"), required=("key",))
        bound = fields["bound"].data if "bound" in fields else _BOUND
        with reading.placed(node.place):
            if not isinstance(bound, int) or isinstance(bound, bool):
                raise BadDefinition("`bound` is a number of seconds", remedy=f"write `bound: {_BOUND}`")
            known = {"service": name} | fields.given(key=keys.read, service=TEXT, url=TEXT)
            peer = Peer(name=name, bound=bound, **known)
        changes.append((ledger.SetPeer(peer), node.place))
    return changes
