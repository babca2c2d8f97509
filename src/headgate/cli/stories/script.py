"""What a demonstration is made of: a policy, signed statements, readers, scenes and one question.

Guarantees: a story is plain data. Its policy is what an administrator would commit, so `headgate versions` and
`headgate explain` show the same words afterwards. Signed statements are in it as text, which nobody has verified yet.
Leaves out: running it (`stage`) and showing it (`board`, `exhibits`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from headgate.lang import parse_condition
from headgate.model.authority import Certificate
from headgate.model.changes import AddMember, AddRule, Change, DeclareGroup, DeclarePrincipal, DeclareType, Subscribe
from headgate.model.conditions import TRUE
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.types import Catalog, EventType
from headgate.model.values import Kind, Value, plain


@dataclass(frozen=True, slots=True)
class StoryReader:
    """A column of the table: a subscription, and what the policy lets its principal see, in plain words.

    `width` is that of the column where it can be narrower than a whole event.
    """

    subscription: str
    title: str
    sees: str
    width: int = 0


@dataclass(frozen=True, slots=True)
class Showing:
    """The holder of a key shows signed statements to the domain."""

    key: str
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Declaring:
    """Somebody brings the signed definition of a type."""

    name: str
    definition: str


@dataclass(frozen=True, slots=True)
class Revoking:
    """Somebody brings the signed revocation list of an issuer."""

    list: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Time passes; what has ended by then falls."""

    time: timedelta


Deed: TypeAlias = Showing | Declaring | Revoking | Waiting
"""What changes the ledger without anybody's decree: statements that verify, and the clock."""


@dataclass(frozen=True, slots=True)
class StoryAttempt:
    """Something that is tried and refused, with the code of the refusal."""

    say: str
    what: Draft | Showing
    code: str


@dataclass(frozen=True, slots=True)
class StoryScene:
    """Perhaps a change of policy or a deed, then what is refused, then some events."""

    say: str
    events: tuple[Draft, ...] = ()
    change: tuple[Change, ...] = ()
    note: str = ""
    deed: Deed | None = None
    tried: tuple[StoryAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class StoryQuestion:
    """Why does a principal not see an attribute of an event?"""

    text: str
    principal: str
    event: str
    attribute: str


@dataclass(frozen=True, slots=True)
class Aside:
    """A subscription without a column, and a sentence about the `{count}` of events that it received."""

    subscription: str
    text: str


@dataclass(frozen=True, slots=True)
class ChainExhibit:
    """A chain of certificates, to be drawn before the play."""

    title: str
    chain: tuple[Certificate, ...]


@dataclass(frozen=True, slots=True)
class TableExhibit:
    """Facts in rows, to be shown before the play."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Exhibit: TypeAlias = ChainExhibit | TableExhibit


@dataclass(frozen=True, slots=True)
class Story:
    """A demonstration from the first sentence to the last.

    `deeds` come before the subscriptions. `signed` are the types that come by deed, `names` what keys are called, and
    `place` the directory of the domain within that of the story. `tries` are commands for afterwards, with `{dir}`.
    """

    name: str
    title: str
    opening: str
    source: str
    policy: tuple[Change, ...]
    subscriptions: tuple[Change, ...]
    readers: tuple[StoryReader, ...]
    scenes: tuple[StoryScene, ...]
    question: StoryQuestion
    moral: str
    asides: tuple[Aside, ...] = ()
    deeds: tuple[Deed, ...] = ()
    signed: tuple[EventType, ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    place: str = ""
    tries: tuple[tuple[str, str], ...] = ()

    @property
    def types(self) -> Catalog:
        """The event types of the story."""
        found = Catalog()
        for one in (*self.signed, *(change.type for change in self.policy if isinstance(change, DeclareType))):
            found = found.declare(one)
        return found

    def called(self, text: str) -> str:
        """A text with the names that keys have in the story."""
        for key, name in self.names.items():
            text = text.replace(key, name)
        return text


def grant(id: str, who: str, type: str, where: str = "", attributes: tuple[str, ...] | None = None) -> AddRule:
    """A right to subscribe."""
    condition = parse_condition(where) if where else TRUE
    return AddRule(Rule(id, who, frozenset({Action.SUBSCRIBE}), type, condition, attributes))


def publisher(id: str, who: str, type: str, forced: Mapping[str, str] | None = None, *rest: str) -> AddRule:
    """A right to publish; with forced values, only those attributes and the rest named."""
    attributes = (*forced, *rest) if forced else None
    return AddRule(Rule(id, who, frozenset({Action.PUBLISH}), type, TRUE, attributes, forced or {}))


def subscribe(id: str, principal: str, type: str, where: str = "", requires: str = "") -> Subscribe:
    """A subscription, perhaps with what it requires of publishers."""
    condition = parse_condition(where) if where else TRUE
    return Subscribe(
        Subscription(id, principal, type, condition, requires=parse_condition(requires) if requires else None)
    )


def principals(*names: str) -> tuple[Change, ...]:
    """Principals without attributes."""
    return tuple(DeclarePrincipal(name) for name in names)


def message(id: str, author: str, type: str, text: str, requires: str = "") -> Draft:
    """Words under their author's name, perhaps with what they require of receivers."""
    return Draft(
        id, author, type, {"author": author, "text": text}, requires=parse_condition(requires) if requires else None
    )


def group(name: str, *members: str) -> tuple[Change, ...]:
    """A group with its members."""
    return (DeclareGroup(name), *(AddMember(name, member) for member in members))


def event_type(name: str, owner: str, parent: str | None = None, /, **attributes: str) -> DeclareType:
    """An event type."""
    return DeclareType(EventType(name, owner, {a: Kind(kind) for a, kind in attributes.items()}, parent))


def show(value: Value) -> str:
    """A value as the table shows it: of a time, the hour and minute."""
    return f"{value:%H:%M}" if isinstance(value, datetime) else str(plain(value))
