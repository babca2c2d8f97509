"""What a demonstration is made of: a policy, readers, scenes and one question.

Guarantees: a story is plain data. Its policy is what an administrator would commit, so `headgate versions` and
`headgate explain` show the same words afterwards.
Leaves out: running it (`stage`) and showing it (`board`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from headgate.lang import parse_condition
from headgate.model.changes import AddMember, AddRule, Change, DeclareGroup, DeclarePrincipal, DeclareType, Subscribe
from headgate.model.conditions import TRUE
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.types import EventType
from headgate.model.values import Kind, Value, plain


@dataclass(frozen=True, slots=True)
class Reader:
    """A column of the table: a subscription, and what the policy lets its principal see, in plain words.

    `width` is that of the column where it can be narrower than a whole event.
    """

    subscription: str
    title: str
    sees: str
    width: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """Perhaps a change of policy, then some events."""

    say: str
    events: tuple[Draft, ...]
    change: tuple[Change, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Question:
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
class Story:
    """A demonstration from the first sentence to the last."""

    name: str
    title: str
    opening: str
    source: str
    policy: tuple[Change, ...]
    subscriptions: tuple[Change, ...]
    readers: tuple[Reader, ...]
    scenes: tuple[Scene, ...]
    question: Question
    moral: str
    asides: tuple[Aside, ...] = ()


def grant(id: str, who: str, type: str, where: str = "", attributes: tuple[str, ...] | None = None) -> AddRule:
    """A right to subscribe."""
    condition = parse_condition(where) if where else TRUE
    return AddRule(Rule(id, who, frozenset({Action.SUBSCRIBE}), type, condition, attributes))


def publisher(id: str, who: str, type: str, forced: Mapping[str, str] | None = None, *rest: str) -> AddRule:
    """A right to publish; with forced values, only those attributes and the rest named."""
    attributes = (*forced, *rest) if forced else None
    return AddRule(Rule(id, who, frozenset({Action.PUBLISH}), type, TRUE, attributes, forced or {}))


def subscribe(id: str, principal: str, type: str, where: str = "") -> Subscribe:
    """A subscription."""
    return Subscribe(Subscription(id, principal, type, parse_condition(where) if where else TRUE))


def principals(*names: str) -> tuple[Change, ...]:
    """Principals without attributes."""
    return tuple(DeclarePrincipal(name) for name in names)


def group(name: str, *members: str) -> tuple[Change, ...]:
    """A group with its members."""
    return (DeclareGroup(name), *(AddMember(name, member) for member in members))


def event_type(name: str, owner: str, parent: str | None = None, /, **attributes: str) -> DeclareType:
    """An event type."""
    return DeclareType(EventType(name, owner, {a: Kind(kind) for a, kind in attributes.items()}, parent))


def show(value: Value) -> str:
    """A value as the table shows it: of a time, the hour and minute."""
    return f"{value:%H:%M}" if isinstance(value, datetime) else str(plain(value))
