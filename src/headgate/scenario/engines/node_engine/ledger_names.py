"""What a node calls what a story calls otherwise: versions, credentials and events about roles.

Guarantees: each version of the story is the last version that its step made at the node, and every step makes one; the
versions that a node makes by itself in between (advertisements, its own keys) count as those of the step before. An id
of the file stands for what it named last; what the node named has one id for ever.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.model.events import Event
from headgate.model.types import matches
from headgate.model.values import Value

_AUDITS: Final = "headgate.roles.*"


@dataclass(slots=True)
class StoryVersions:
    """The last version of the node for each version of the story."""

    _last: list[int] = field(default_factory=lambda: [0])

    def add(self, version: int) -> None:
        """A step of the story is done, at this version of the node."""
        self._last.append(version)

    def of_story(self, version: int) -> int:
        """The version of the story that one of the node belongs to."""
        return bisect_right(self._last, version) - 1

    def of_node(self, version: int) -> int:
        """The version of the node at which one of the story begins; one that is to come is as far ahead there."""
        newest = len(self._last) - 1
        return self._last[version] if version <= newest else self._last[newest] + version - newest

    @property
    def newest(self) -> int:
        """The newest version of the story."""
        return len(self._last) - 1


@dataclass(slots=True)
class IssuedCredentials:
    """Memberships and elections: what the file calls them, and what the node does."""

    _issued: dict[str, str] = field(default_factory=dict)
    _named: dict[str, str] = field(default_factory=dict)

    def add(self, id: str, issued: str) -> None:
        """The node has given what the file calls `id`."""
        self._issued[id] = issued
        self._named[issued] = id

    def node_id(self, id: str) -> str:
        """What the node calls it; what was never given has no other name."""
        return self._issued.get(id, id)

    def node_ids(self, ids: Iterable[str] | None) -> list[str] | None:
        """The same of several, if there are any to name."""
        return None if ids is None else [self.node_id(id) for id in ids]

    def in_words(self, text: str) -> str:
        """A text of the node with the ids of the file in it; what the node makes up is in no text by chance."""
        for issued, id in self._named.items():
            text = text.replace(issued, id)
        return text

    def story_id(self, issued: str) -> str:
        """What the file calls it."""
        return self._named.get(issued, issued)


@dataclass(slots=True)
class AuditNames:
    """Events about audited roles, under the names that the format gives them."""

    versions: StoryVersions
    credentials: IssuedCredentials
    _refused: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Of refusals, the id that the file asked for and the version of the story, by the event's id."""

    def refused(self, event: Event, id: str) -> None:
        """An event tells that what the file calls `id` was refused."""
        self._refused[event.id] = id, self.versions.newest

    def of(self, event: Event) -> str:
        """What the format calls an event."""
        if not matches(_AUDITS, event.type):
            return event.id
        id, version = self._about(event)
        return f"{event.id.partition(':')[0]}:{id}@{version}"

    def view(self, event: Event, view: Mapping[str, Value]) -> dict[str, Value]:
        """A view of an event, in the words of the file; what the node's version says of itself is left out."""
        if not matches(_AUDITS, event.type):
            return dict(view)
        id, version = self._about(event)
        overrides: dict[str, Value] = {"id": id, "version": version, "note": ""}
        if isinstance(reason := view.get("reason"), str):
            overrides["reason"] = self.credentials.in_words(reason)
        return {name: overrides.get(name, value) if value is not None else None for name, value in view.items()}

    def _about(self, event: Event) -> tuple[str, int]:
        if event.id in self._refused:
            return self._refused[event.id]
        issued, version = event.values["id"], event.values["version"]
        assert isinstance(issued, str)
        assert isinstance(version, int)
        return self.credentials.story_id(issued), self.versions.of_story(version)
