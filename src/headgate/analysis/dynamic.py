"""Could anything of a type be published here and now, whatever it says? (Capabilities V.D)

Guarantees: `holds_now` looks at time, rate and origin, and at who the publisher is; where a condition asks about the
event itself, the best is assumed. So no is certain, and yes means that it is up to the event.
"""

from __future__ import annotations

from datetime import datetime

from headgate.decide.publish import publish_entries
from headgate.decide.truth import World, truth
from headgate.model.conditions import (
    FALSE,
    TRUE,
    AllOf,
    AnyOf,
    Atom,
    Attribute,
    Condition,
    Meta,
    Not,
    Predicate,
    Starred,
    looked_at,
)
from headgate.model.events import Event
from headgate.model.rights import Effect
from headgate.model.state import State


def holds_now(
    state: State, publisher: str, type_name: str, *, now: datetime, origin: str | None, rate: int | None
) -> bool | None:
    """May the publisher publish of the type, by time, rate and origin? None if no entry of it asks for those."""
    rules = publish_entries(state, publisher, type_name)
    if not any(is_dynamic(rule.where) for rule in rules):
        return None
    event = Event("", publisher, type_name, {}, now, rate=rate, origin=origin)
    world = World(state, state.principals.get(publisher, {}), {}, origin=origin)
    for rule in rules:
        asked = world.given(rule.given)
        if rule.effect is Effect.FORBID:
            if truth(_assumed(rule.where, best=False), event, asked) is not False:
                return False
        elif truth(_assumed(rule.where, best=True), event, asked) is True:
            return True
    return False


def is_dynamic(condition: Condition) -> bool:
    """Does a condition look at time, rate or origin?"""
    return any(isinstance(operand, Meta) and operand.name != "publisher" for operand in looked_at(condition))


def _assumed(condition: Condition, *, best: bool) -> Condition:
    """The condition, with whatever it asks about the event answered so that it comes out true, or false."""
    match condition:
        case Starred(arg):
            return _assumed(arg, best=best)
        case Not(arg):
            return Not(_assumed(arg, best=not best))
        case AllOf(args):
            return AllOf(tuple(_assumed(arg, best=best) for arg in args))
        case AnyOf(args):
            return AnyOf(tuple(_assumed(arg, best=best) for arg in args))
        case atom:
            if not _asks_event(atom):
                return atom
            return TRUE if best else FALSE


def _asks_event(atom: Atom) -> bool:
    return isinstance(atom, Predicate) or any(isinstance(operand, Attribute) for operand in looked_at(atom))
