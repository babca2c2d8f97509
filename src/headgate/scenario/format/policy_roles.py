"""Rolefiles, event policy, representatives and peers, as policy directories write them.

Guarantees: a rolefile stands under its service in `roles`, or in a file `Service.roles`; event policy in `events`, or
in files `*.erdl`, one after the other in the order of the files' names. What is wrong is refused with file and line.
Leaves out: memberships and elections, which are no policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from headgate.lang.rolefile import parse_event_policy, parse_rolefile
from headgate.model.changes import SetEventPolicy, SetPeer, SetRolefile
from headgate.model.errors import BadDefinition, BadScenario, HeadgateError
from headgate.model.limits import MAX_ROLEFILE_CHARS
from headgate.model.rolefiles import EventEntry, EventPolicy
from headgate.model.roles import Peer
from headgate.model.state import State
from headgate.model.types import check_name
from headgate.scenario.format.authority import Keys
from headgate.scenario.format.declared import Placed, applied, placed
from headgate.scenario.format.roles import ROLE_KEYS, parsed, read_roles
from headgate.scenario.format.yamlfile import SourcePlace, YamlNode

KEYS: Final = (*ROLE_KEYS, "peers")
"""The keys about roles."""

ROLEFILE: Final = ".roles"
EVENTS: Final = ".erdl"

_BOUND: Final = 30
"""For how many seconds the silence of a peer is borne, unless its file says otherwise."""

T = TypeVar("T")


def role_changes(top: Mapping[str, YamlNode], files: Sequence[Path], keys: Keys) -> list[Placed]:
    """Peers, representatives and rolefiles; the event policy follows when they are there (`with_events`)."""
    changes = [*_peers(top, keys), *read_roles({key: node for key, node in top.items() if key != "events"})]
    known = {change.service: place for change, place in changes if isinstance(change, SetRolefile)}
    for path in (one for one in files if one.suffix == ROLEFILE):
        place = SourcePlace(str(path), 1)
        if path.stem in known:
            message = f"`{path.stem}` has two rolefiles"
            raise BadScenario(message, place=str(place), remedy=f"the other is in {known[path.stem]}")
        known[path.stem] = place
        with placed(place):
            check_name("service", path.stem)
        changes.append((SetRolefile(path.stem, _read(path, parse_rolefile)), place))
    return changes


def with_events(state: State, tops: Sequence[tuple[Path, Mapping[str, YamlNode]]], files: Sequence[Path]) -> State:
    """The state with the event policy of all files."""
    policies: list[tuple[Path, EventPolicy, SourcePlace]] = []
    for path, top in tops:
        if "events" in top:
            policies.append((path, parsed(top["events"], parse_event_policy), top["events"].place))
    policies += [
        (one, _read(one, parse_event_policy), SourcePlace(str(one), 1)) for one in files if one.suffix == EVENTS
    ]
    entries: list[EventEntry] = []
    for _, policy, place in sorted(policies, key=lambda one: one[0]):
        entries += policy.entries
        # One file after the other, so that what is refused is refused with its own.
        _, state = applied(state, [(SetEventPolicy(EventPolicy(tuple(entries))), place)], "")
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


def _peers(top: Mapping[str, YamlNode], keys: Keys) -> list[Placed]:
    changes: list[Placed] = []
    for name, node in top["peers"].mapping().items() if "peers" in top else ():
        fields = node.fields(("key", "service", "url", "bound"), required=("key",))
        bound = fields["bound"].data if "bound" in fields else _BOUND
        with placed(node.place):
            if not isinstance(bound, int) or isinstance(bound, bool):
                raise BadDefinition("`bound` is a number of seconds", remedy=f"write `bound: {_BOUND}`")
            service = fields["service"].text() if "service" in fields else name
            url = fields["url"].text() if "url" in fields else ""
            peer = Peer(name, keys.read(fields["key"]), service, bound, url)
        changes.append((SetPeer(peer), node.place))
    return changes
