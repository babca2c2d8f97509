"""A small world by hand: sightings of cars, with a subtype, a few people and a group.

`Seen(plate, speed, lane)` of `owner` is the parent of `Chase(plate, speed, lane, unit)` of `police`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from headgate.model.changes import (
    AddMember,
    AddRule,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareType,
    Subscribe,
)
from headgate.model.events import Draft, Event
from headgate.model.expressions import TRUE, Attribute, Compare, Condition, Constant
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind, Value
from strategies.memory import MemoryLedger

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SEEN, CHASE = "road.Seen", "police.Chase"
PLATE, SPEED, LANE, UNIT = (Attribute(name) for name in ("plate", "speed", "lane", "unit"))
PEOPLE = ("owner", "police", "anna", "bob", "cam")
WORLD: tuple[Change, ...] = (
    *(DeclarePrincipal(name) for name in PEOPLE),
    DeclareGroup("staff"),
    AddMember("staff", "anna"),
    DeclareType(EventType(SEEN, "owner", {"plate": Kind.STRING, "speed": Kind.INT, "lane": Kind.INT})),
    DeclareType(EventType(CHASE, "police", {"unit": Kind.STRING}, SEEN)),
)


def world(*changes: Change) -> MemoryLedger:
    """The small world with these changes in the next version."""
    ledger = MemoryLedger()
    ledger.commit(Batch(ADMINISTRATOR, WORLD))
    return commit(ledger, *changes) if changes else ledger


def commit(ledger: MemoryLedger, *changes: Change, author: str = ADMINISTRATOR) -> MemoryLedger:
    """One more version."""
    ledger.commit(Batch(author, changes))
    return ledger


def grant(id: str, who: str, type_name: str = SEEN, where: Condition = TRUE, **more: object) -> AddRule:
    """A rule that lets someone subscribe; `may` and `first` change that."""
    return _rule(Effect.GRANT, id, who, type_name, where, **more)


def forbid(id: str, who: str, type_name: str = SEEN, where: Condition = TRUE, **more: object) -> AddRule:
    """A rule that keeps someone from subscribing."""
    return _rule(Effect.FORBID, id, who, type_name, where, **more)


def _rule(
    effect: Effect,
    id: str,
    who: str,
    type_name: str,
    where: Condition,
    attributes: tuple[str, ...] | None = None,
    forced: Mapping[str, object] | None = None,
    may: tuple[Action, ...] = (Action.SUBSCRIBE,),
    first: bool = False,
) -> AddRule:
    return AddRule(Rule(id, who, frozenset(may), type_name, where, attributes, forced or {}, effect), first)


def wish(id: str, who: str, type_name: str = SEEN, where: Condition = TRUE, *, history: bool = False) -> Subscribe:
    """A subscription."""
    return Subscribe(Subscription(id, who, type_name, where, history))


def is_(attribute: Attribute, value: Value) -> Condition:
    """`attribute = value`."""
    return Compare("=", attribute, Constant(value))


def seen(version: int = 0, **values: Value) -> Event:
    """A sighting; what is not given is null."""
    return Event("e", "cam", SEEN, {"plate": None, "speed": None, "lane": None, **values}, NOON, "main", 1, version)


def chase(version: int = 0, **values: Value) -> Event:
    """A chase; what is not given is null."""
    blank = {"plate": None, "speed": None, "lane": None, "unit": None}
    return Event("e", "cam", CHASE, {**blank, **values}, NOON, "main", 1, version)


def draft(type_name: str = SEEN, publisher: str = "cam", **values: object) -> Draft:
    """An event as it is sent."""
    return Draft("e", publisher, type_name, values)
