"""Event types with single inheritance, and the catalog that holds them.

Guarantees: a `Catalog` is consistent: parents exist and were declared earlier (so there are no cycles), an attribute
is never declared twice along a line of descent, and no type has more than `MAX_ATTRIBUTES`.
A type may gain attributes, which its subtypes then inherit; it never loses or retypes one. Every attribute has a number
(`bits`) that never changes, unlike any other of its type, so that what was stored under it stays readable. Whose word
is taken on when events occurred may change so that nothing that was promised of them is taken back, and no other way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.model.errors import BadDefinition, UnknownType
from headgate.model.limits import MAX_ATTRIBUTES, MAX_DECLASSIFIED, MAX_NAME_CHARS, MAX_TIME_SECONDS
from headgate.model.values import Kind, brief

OWN_TYPES: Final = "headgate.roles."
"""How the names of types begin whose events, and those of their subtypes, the domain alone publishes."""

SIGNAL: Final = "headgate.signal"
"""The type of what a detection gives its readers. No events are of it, and no type is declared by this name."""

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


PUBLISHER: Final = "publisher"
GATEWAY: Final = "gateway"


@dataclass(frozen=True, slots=True)
class Times:
    """Whose word is taken on when events of a type occurred, the publisher's or the gateway's; in seconds.

    `lateness` is by how much events may be late: the gateway then promises its clock less that for them by itself.
    `ahead` is how far past its clock a stated time may lie, `clock_error` by how much clocks of sources may be wrong.
    """

    stated: bool = False
    lateness: float | None = None
    ahead: float | None = None
    clock_error: float = 0.0

    @classmethod
    def said(
        cls,
        times: object = None,
        lateness: object = None,
        ahead: object = None,
        clock_error: object = None,
    ) -> Times | None:
        """What a declaration says of times, if it says anything; refused if it makes no sense."""
        if times is None and lateness is None and ahead is None and clock_error is None:
            return None
        if times not in (None, PUBLISHER, GATEWAY):
            raise BadDefinition(f"`times` cannot be `{brief(times)}`", remedy=f"write `{PUBLISHER}` or `{GATEWAY}`")
        if times != PUBLISHER and (lateness is not None or ahead is not None):
            what = "ahead" if lateness is None else "lateness"
            raise BadDefinition(f"`{what}` is of times that publishers state", remedy=f"write `times: {PUBLISHER}`")
        return cls(
            times == PUBLISHER,
            None if lateness is None else _seconds("lateness", lateness),
            None if ahead is None else _seconds("ahead", ahead),
            0.0 if clock_error is None else _seconds("clock_error", clock_error),
        )

    def as_said(self) -> dict[str, str | float]:
        """The inverse of `said`, as names and plain values."""
        seconds = {"lateness": self.lateness, "ahead": self.ahead, "clock_error": self.clock_error or None}
        return {
            "times": PUBLISHER if self.stated else GATEWAY,
            **{name: _whole(value) for name, value in seconds.items() if value is not None},
        }


CONTRIBUTORS: Final = "contributors"
"""What a type says whose events detections make, for those who could read what they are made of."""
DECLASSIFIED: Final = "declassified"
"""What a type says whose events detections make, only of types that their owners declassified for it."""

BY_GATEWAY: Final = Times()
"""What holds of a type that says nothing of times, and has no parent that does."""


def _seconds(what: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise BadDefinition(f"`{what}` cannot be `{brief(given)}`", remedy="write a number of seconds")
    if not (math.isfinite(given) and 0 <= given <= MAX_TIME_SECONDS):
        raise BadDefinition(
            f"`{what}` cannot be `{brief(given)}`", remedy=f"write 0 to MAX_TIME_SECONDS ({MAX_TIME_SECONDS})"
        )
    return float(given)


def _whole(seconds: float) -> float:
    """A number as people write it."""
    return int(seconds) if seconds == int(seconds) else seconds


@dataclass(frozen=True, slots=True)
class EventType:
    """A schema with one owner and at most one parent. `attributes` are its own, without inherited ones.

    `bits` gives each own attribute a number that no other attribute of the type, its ancestors and its subtypes has;
    `since` the version at which an attribute was gained later. The catalog fills in both. A `retired` type takes no
    part in anything new, but its name stays taken and its events stay readable.
    """

    name: str
    owner: str
    attributes: Mapping[str, Kind]
    parent: str | None = None
    key: tuple[str, ...] = ()
    bits: Mapping[str, int] = field(default_factory=dict)
    since: Mapping[str, int] = field(default_factory=dict)
    retired: bool = False
    times: Times | None = None
    """Whose word is taken on when its events occurred; None is as its parent has it."""
    derived: str | None = None
    """`CONTRIBUTORS` if only those receive its events, and those of its subtypes, who could read what they rest on;
    `DECLASSIFIED` if detections make them only of types that are declassified for it."""
    declassified_for: frozenset[str] = frozenset()
    """The types for which it, with its subtypes, is declassified: who may read their events, may learn of its own."""

    def __post_init__(self) -> None:
        check_type_name(self.name)
        if self.derived not in (None, CONTRIBUTORS, DECLASSIFIED):
            raise BadDefinition(
                f"`derived` of `{self.name}` cannot be `{brief(self.derived)}`",
                remedy=f"write `{CONTRIBUTORS}` or `{DECLASSIFIED}`",
            )
        if len(self.declassified_for) > MAX_DECLASSIFIED:
            raise BadDefinition(
                f"`{self.name}` is declassified for more types than MAX_DECLASSIFIED ({MAX_DECLASSIFIED})"
            )
        for derived in self.declassified_for:
            check_type_name(derived)
        for attribute in self.attributes:
            if attribute in _RESERVED or attribute.startswith(("@", "$")):
                raise BadDefinition(f"`{brief(attribute)}` cannot name an attribute of `{self.name}`")
            check_name("attribute", attribute)


@dataclass(frozen=True, slots=True)
class Catalog(Mapping[str, EventType]):
    """The event types in force at a version; `every` has the retired ones too, in order of declaration."""

    every: Mapping[str, EventType] = field(default_factory=dict)
    _live: Mapping[str, EventType] = field(default_factory=dict, repr=False, compare=False)
    _attributes: Mapping[str, Mapping[str, Kind]] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, name: str) -> EventType:
        try:
            return self._live[name]
        except KeyError:
            raise UnknownType(f"no event type `{brief(name)}`", remedy="declare it first") from None

    def __contains__(self, name: object) -> bool:
        return name in self._live

    def __iter__(self) -> Iterator[str]:
        return iter(self._live)

    def __len__(self) -> int:
        return len(self._live)

    # -- changing ---------------------------------------------------------------------------------------------

    def declare(self, new: EventType) -> Catalog:
        """A catalog with one more type; refused if it would not be consistent. Bits given are kept."""
        if new.name in self.every:
            raise BadDefinition(f"the type `{new.name}` is already declared")
        self._check_parent(new)
        inherited = self._attributes.get(new.parent or "", {})
        self._check(new, inherited)
        if not new.bits:
            new = replace(new, bits=_numbered(new.attributes, self._next_bit([] if not new.parent else [new.parent])))
        return self._with(new)

    def grow(self, new: EventType, version: int) -> Catalog:
        """A catalog in which a known type has gained attributes, or a retired one is back; it never loses any."""
        old = self.every[new.name]
        if (new.owner, new.parent, new.key) != (old.owner, old.parent, old.key):
            raise BadDefinition(
                f"a new version of `{new.name}` cannot change its owner, parent or key", remedy="declare another type"
            )
        self._check_parent(new)
        if old.derived is not None and new.derived != old.derived:
            raise BadDefinition(
                f"a new version of `{new.name}` could be for more readers than what it is made of was meant for",
                remedy=f"keep `derived: {old.derived}`, or declare another type",
            )
        for attribute, kind in old.attributes.items():
            if new.attributes.get(attribute) is not kind:
                raise BadDefinition(
                    f"a new version of `{new.name}` loses or retypes `{attribute}`",
                    remedy=f"keep `{attribute}: {kind.value}`; attributes can only be added",
                )
        self._check_times(new)
        gained = {a: k for a, k in new.attributes.items() if a not in old.attributes}
        below = [name for name in self.every if name != new.name and new.name in self.lineage(name)]
        for attribute in gained:
            for name in below:
                if attribute in self.every[name].attributes:
                    raise BadDefinition(f"`{new.name}` cannot gain `{attribute}`, which its subtype `{name}` declares")
        self._check(new, self._attributes.get(new.parent or "", {}))
        bits = {**old.bits, **_numbered(gained, self._next_bit([new.name, *below]))}
        since = {**old.since, **dict.fromkeys(gained, version)}
        ordered = {**old.attributes, **gained}
        grown = self._with(replace(new, attributes=ordered, bits=bits, since=since, retired=False))
        for name in below:
            if len(grown._attributes[name]) > MAX_ATTRIBUTES:
                raise BadDefinition(f"`{name}` would have more attributes than MAX_ATTRIBUTES ({MAX_ATTRIBUTES})")
        return grown

    def retire(self, name: str) -> Catalog:
        """A catalog without a type; refused while another extends it."""
        old = self[name]
        heirs = [n for n in self if self[n].parent == name]
        if heirs:
            raise BadDefinition(f"`{heirs[0]}` extends `{name}`", remedy="remove the subtypes first")
        return self._with(replace(old, retired=True))

    def _check_parent(self, new: EventType) -> None:
        if new.parent is None:
            return
        if new.parent == new.name:
            raise BadDefinition(f"the type `{new.name}` extends itself")
        if new.parent not in (self.every if new.retired else self._live):
            raise UnknownType(
                f"`{new.name}` extends `{brief(new.parent)}`, which is not declared", remedy="declare the parent first"
            )

    def _check_times(self, new: EventType) -> None:
        """Refuse times that would take back what was promised of a type or its subtypes."""
        after = {**self.every, new.name: new}
        for name in self.every:
            line = self.lineage(name)
            if new.name not in line:
                continue
            old = self.times(name)
            now = next((one for above in line if (one := after[above].times) is not None), BY_GATEWAY)
            if old.stated and not now.stated:
                raise BadDefinition(
                    f"a new version of `{name}` no longer takes times from publishers",
                    remedy=f"keep `times: {PUBLISHER}`",
                )
            if old.lateness is not None and (now.lateness is None or now.lateness > old.lateness):
                raise BadDefinition(
                    f"a new version of `{name}` lets events be later than its `lateness`",
                    remedy=f"keep `lateness: {_whole(old.lateness)}`, or lower it; or declare another type",
                )

    def _check(self, new: EventType, inherited: Mapping[str, Kind]) -> None:
        for attribute in new.attributes:
            if attribute in inherited:
                raise BadDefinition(f"`{new.name}` declares `{attribute}`, which it inherits from `{new.parent}`")
        every = {**inherited, **new.attributes}
        if len(every) > MAX_ATTRIBUTES:
            raise BadDefinition(f"`{new.name}` has {len(every)} attributes, past MAX_ATTRIBUTES ({MAX_ATTRIBUTES})")
        for attribute in new.key:
            if attribute not in every:
                raise BadDefinition(f"the key of `{new.name}` names `{brief(attribute)}`, which it lacks")

    def _next_bit(self, names: list[str]) -> int:
        return max((bit for name in names for bit in self.bits(name).values()), default=-1) + 1

    def _with(self, new: EventType) -> Catalog:
        every = {**self.every, new.name: new}
        live = (
            {**self._live, new.name: new} if not new.retired else {n: t for n, t in self._live.items() if n != new.name}
        )
        if new.name in self.every and not new.retired and new.name not in self._live:
            live = {n: t for n, t in every.items() if not t.retired}  # back in its old place
        attributes = {**self._attributes}
        if new.name not in self.every:
            attributes[new.name] = {**attributes.get(new.parent or "", {}), **new.attributes}
        else:
            for name, one in every.items():  # parents come first
                attributes[name] = {**(attributes[one.parent] if one.parent else {}), **one.attributes}
        return Catalog(every, live, attributes)

    # -- looking ----------------------------------------------------------------------------------------------

    def attributes(self, name: str) -> Mapping[str, Kind]:
        """All attributes of a type in order, inherited ones first."""
        self[name]
        return self._attributes[name]

    def ever_attributes(self, name: str) -> Mapping[str, Kind]:
        """All attributes of a type, retired or not."""
        return self._attributes[name]

    def bits(self, name: str) -> dict[str, int]:
        """The number of each attribute of a type, retired or not, inherited ones included."""
        return {a: b for one in reversed(self.lineage(name)) for a, b in self.every[one].bits.items()}

    def since(self, name: str) -> dict[str, int]:
        """The attributes of a type, inherited ones included, that were gained later, and at which version."""
        return {a: v for one in self.lineage(name) for a, v in self.every[one].since.items()}

    def times(self, name: str) -> Times:
        """Whose word is taken on when events of a type occurred: its own declaration, or the nearest above it."""
        every = self.every
        return next((one for above in self.lineage(name) if (one := every[above].times) is not None), BY_GATEWAY)

    def is_for_readers(self, name: str) -> bool:
        """Do only those receive events of a type who could read what they rest on?"""
        return self._is_derived(name, CONTRIBUTORS)

    def is_of_declassified(self, name: str) -> bool:
        """Are events of a type made only of types that are declassified for it?"""
        return self._is_derived(name, DECLASSIFIED)

    def _is_derived(self, name: str, how: str) -> bool:
        return any(self.every[above].derived == how for above in self.lineage(name))

    def declassified(self, name: str, derived: str) -> EventType | None:
        """The type, it or the nearest above it, that is declassified for events of a derived type; None if none is."""
        line = (self.every[above] for above in self.lineage(name))
        return next((one for one in line if derived in one.declassified_for), None)

    def declassify(self, name: str, derived: str, is_declassified: bool) -> Catalog:
        """A catalog in which a type is declassified for another one, or no longer."""
        old, also = self[name], frozenset({self[derived].name} if is_declassified else {derived})
        now = old.declassified_for | also if is_declassified else old.declassified_for - also
        return self._with(replace(old, declassified_for=now))

    def lineage(self, name: str) -> tuple[str, ...]:
        """The type and its ancestors, itself first."""
        line = []
        at: str | None = name
        while at is not None:
            line.append(at)
            at = (self.every[at] if at in self.every else self[at]).parent
        return tuple(line)

    def is_a(self, name: str, ancestor: str) -> bool:
        """Is the type the ancestor or one of its subtypes?"""
        return ancestor in self.lineage(name)

    def subtypes(self, name: str) -> tuple[str, ...]:
        """The type and all its subtypes, in order of declaration."""
        return tuple(t for t in self if self.is_a(t, name))


def _numbered(attributes: Mapping[str, Kind], first: int) -> dict[str, int]:
    return {name: first + at for at, name in enumerate(attributes)}
