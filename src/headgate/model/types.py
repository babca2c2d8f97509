"""Event types with single inheritance, and the catalog that holds them.

Guarantees: a `Catalog` is consistent: parents exist and were declared earlier (so there are no cycles), an attribute
is never declared twice along a line of descent, and no type has more than `MAX_ATTRIBUTES`.
The attributes of a type come in one order, its parent's first; so a subtype's list begins with its parent's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.model.errors import BadDefinition, UnknownType
from headgate.model.limits import MAX_ATTRIBUTES, MAX_NAME_CHARS
from headgate.model.values import Kind, brief

_NAME: Final = re.compile(r"[^\W\d][\w\-]*(\.[^\W\d][\w\-]*)*\Z")
_PATTERN: Final = re.compile(r"(\*|[^\W\d][\w\-]*(\.[^\W\d][\w\-]*)*(\.\*)?)\Z")
_RESERVED: Final = frozenset({"and", "or", "not", "in", "is", "true", "false", "null"})


def check_name(what: str, name: str) -> str:
    """A name of any kind: letters, digits, `_`, `-`, `.` and no more than `MAX_NAME_CHARS`."""
    if not isinstance(name, str) or not name or not all(part.isprintable() for part in name):
        raise BadDefinition(f"`{brief(name)}` is not a {what} name")
    if len(name) > MAX_NAME_CHARS:
        raise BadDefinition(f"the {what} name `{brief(name)}` is longer than MAX_NAME_CHARS ({MAX_NAME_CHARS})")
    return name


def check_type_name(name: str) -> str:
    """A dotted type name such as `uk.gov.pito.Numberplate`."""
    check_name("type", name)
    if not _NAME.match(name):
        raise BadDefinition(
            f"`{brief(name)}` is not a type name", remedy="write dotted words such as `sports.SoccerMatch`"
        )
    return name


def check_pattern(pattern: str) -> str:
    """A type name, `dotted.name.*` or `*`."""
    check_name("type", pattern)
    if not _PATTERN.match(pattern):
        raise BadDefinition(
            f"`{brief(pattern)}` is neither a type name nor a pattern", remedy="patterns end in `.*`, or are `*`"
        )
    return pattern


def is_pattern(text: str) -> bool:
    """Is this a pattern rather than the name of one type?"""
    return text.endswith("*")


def matches(pattern: str, name: str) -> bool:
    """Does a name or pattern take in this type name? `a.*` is any depth below the dot."""
    if pattern == "*":
        return True
    if pattern.endswith(".*"):
        return name.startswith(pattern[:-1])
    return pattern == name


@dataclass(frozen=True, slots=True)
class EventType:
    """A schema with one owner and at most one parent. `attributes` are its own, without inherited ones."""

    name: str
    owner: str
    attributes: Mapping[str, Kind]
    parent: str | None = None
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_type_name(self.name)
        for attribute in self.attributes:
            if attribute in _RESERVED or attribute.startswith(("@", "$")):
                raise BadDefinition(f"`{brief(attribute)}` cannot name an attribute of `{self.name}`")
            check_name("attribute", attribute)


@dataclass(frozen=True, slots=True)
class Catalog(Mapping[str, EventType]):
    """The event types in force at a version."""

    types: Mapping[str, EventType] = field(default_factory=dict)
    _attributes: Mapping[str, Mapping[str, Kind]] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, name: str) -> EventType:
        try:
            return self.types[name]
        except KeyError:
            raise UnknownType(f"no event type `{brief(name)}`", remedy="declare it first") from None

    def __contains__(self, name: object) -> bool:
        return name in self.types

    def __iter__(self) -> Iterator[str]:
        return iter(self.types)

    def __len__(self) -> int:
        return len(self.types)

    def declare(self, new: EventType) -> Catalog:
        """A catalog with one more type; refused if it would not be consistent."""
        if new.name in self.types:
            raise BadDefinition(f"the type `{new.name}` is already declared")
        inherited: Mapping[str, Kind] = {}
        if new.parent is not None:
            if new.parent == new.name:
                raise BadDefinition(f"the type `{new.name}` extends itself")
            if new.parent not in self.types:
                raise UnknownType(
                    f"`{new.name}` extends `{brief(new.parent)}`, which is not declared",
                    remedy="declare the parent first",
                )
            inherited = self.attributes(new.parent)
        for attribute in new.attributes:
            if attribute in inherited:
                raise BadDefinition(f"`{new.name}` declares `{attribute}`, which it inherits from `{new.parent}`")
        every = {**inherited, **new.attributes}
        if len(every) > MAX_ATTRIBUTES:
            raise BadDefinition(f"`{new.name}` has {len(every)} attributes, past MAX_ATTRIBUTES ({MAX_ATTRIBUTES})")
        for attribute in new.key:
            if attribute not in every:
                raise BadDefinition(f"the key of `{new.name}` names `{brief(attribute)}`, which it lacks")
        return Catalog({**self.types, new.name: new}, {**self._attributes, new.name: every})

    def attributes(self, name: str) -> Mapping[str, Kind]:
        """All attributes of a type in order, inherited ones first."""
        self[name]
        return self._attributes[name]

    def lineage(self, name: str) -> tuple[str, ...]:
        """The type and its ancestors, itself first."""
        line = []
        at: str | None = name
        while at is not None:
            line.append(at)
            at = self[at].parent
        return tuple(line)

    def is_a(self, name: str, ancestor: str) -> bool:
        """Is the type the ancestor or one of its subtypes?"""
        return ancestor in self.lineage(name)

    def subtypes(self, name: str) -> tuple[str, ...]:
        """The type and all its subtypes, in order of declaration."""
        return tuple(t for t in self.types if self.is_a(t, name))
