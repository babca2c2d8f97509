"""The events by which a domain tells others of its credential records (OASIS 4.9.2), and who may see them (OASIS 8.1).

Guarantees: they are event types like any other, owned by the administrator: what a rule does not give is not seen. Who
could not see what would be told of its own records may not follow any.
Leaves out: publishing them (`announcing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from headgate.commands.commit import ChangeableLedger, KnownState, commit
from headgate.decide.apply import apply
from headgate.decide.truth import PredicateFunction
from headgate.decide.views import view
from headgate.lang import parse_condition
from headgate.model.changes import AddRule, Advertise, Batch, Change, DeclareType
from headgate.model.errors import BadDefinition, SubscribeDenied
from headgate.model.events import Draft, Event
from headgate.model.rights import ANNOUNCES, Action, Rule
from headgate.model.roles import reference_text
from headgate.model.state import State
from headgate.model.types import EventType
from headgate.model.values import Kind, Value, brief, micros
from headgate.node.peers import Pair
from headgate.roles.certificates.remote_records import Modified, word_of

NOTICE: Final = "headgate.roles.Notice"
MODIFIED: Final = "headgate.roles.Modified"
HEARTBEAT: Final = "headgate.roles.Heartbeat"
ALL: Final = "headgate.roles.*"
SOURCE: Final = "headgate.roles"
_COMMON: Final = {"watcher": Kind.STRING, "service": Kind.STRING, "epoch": Kind.STRING, "number": Kind.INT}


def types(owner: str) -> tuple[EventType, ...]:
    """The types: one for all, so that whoever follows has everything in one order."""
    return (
        EventType(NOTICE, owner, _COMMON),
        EventType(MODIFIED, owner, {"record": Kind.STRING, "state": Kind.STRING}, NOTICE),
        EventType(HEARTBEAT, owner, {"at": Kind.TIMESTAMP}, NOTICE),
    )


def declaring(state: State) -> tuple[Change, ...]:
    """What is not there yet: the types, and the administrator's right to publish them."""
    who = state.administrator
    made: list[Change] = []
    for event_type in types(who):
        if event_type.name not in state.types:
            made.append(DeclareType(event_type))
        elif state.types[event_type.name].owner != who or not set(event_type.attributes) <= set(
            state.types.attributes(event_type.name)
        ):
            raise BadDefinition(
                f"`{event_type.name}` is another type here", remedy="retire it: the name is Headgate's own"
            )
    if not any(rule.id == ANNOUNCES for rule in state.rules):
        made.append(AddRule(Rule(ANNOUNCES, who, frozenset({Action.PUBLISH}), ALL)))
    if (who, NOTICE) not in state.advertisements:
        made.append(Advertise(who, NOTICE))
    return tuple(made)


def declare(domain: ChangeableLedger, follower: KnownState) -> None:
    """Make the types, should they not be there; another gateway may do so at the same moment."""
    commit(domain, follower, declaring, "roles are followed")


def allowing(state: State, watcher: str, service: str) -> tuple[Change, ...]:
    """The changes that let a principal, another domain, follow the records of a service that concern it."""
    where = parse_condition(wanted(watcher, service))
    rule = Rule(f"{watcher} follows {service}", watcher, frozenset({Action.SUBSCRIBE}), ALL, where)
    known = any(one.id == rule.id for one in state.rules)
    return (*declaring(state), *(() if known else (AddRule(rule),)))


def wanted(watcher: str, service: str) -> str:
    """The filter of a subscription to what concerns one."""
    return f"watcher = {_quoted(watcher)} and service = {_quoted(service)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def check_may_follow(
    state: State, pair: Pair, predicates: Mapping[str, PredicateFunction], now: datetime, origin: str | None = None
) -> None:
    """Refuse whoever could not see every attribute of what it would be told, were the types there."""
    watcher, service = pair
    missing = declaring(state)
    after = apply(state, Batch(state.administrator, missing)) if missing else state
    common: dict[str, Value] = {"watcher": watcher, "service": service, "epoch": "e", "number": 1}
    for name, own in ((MODIFIED, {"record": "1.1", "state": "true"}), (HEARTBEAT, {"at": now})):
        values: dict[str, Value] = {**dict.fromkeys(after.types.attributes(name)), **common, **own}
        event = Event("", state.administrator, name, values, now, version=after.version)
        seen = view(after, watcher, event, predicates, origin)
        if seen is None or not {*common, *own} <= seen.attributes:
            raise SubscribeDenied(
                f"`{brief(watcher)}` may not see what is told of `{brief(service)}`",
                remedy=f"ask for a rule that lets it subscribe to `{ALL}` where it is the watcher",
            )


def of_messages(author: str, made: Iterable[tuple[Pair, Modified]]) -> list[Draft]:
    """Changes of records as events; the same message has the same id, however often it is published."""
    drafts = []
    for (watcher, service), message in made:
        values = {
            "watcher": watcher,
            "service": service,
            "epoch": message.epoch,
            "number": message.number,
            "record": reference_text(message.record),
            "state": word_of(message.state),
        }
        drafts.append(
            Draft(f"{message.epoch}.{message.number} {watcher}", author, MODIFIED, values, f"{SOURCE} {service}")
        )
    return drafts


def of_heartbeats(author: str, epoch: str, numbers: Mapping[Pair, int], at: datetime) -> list[Draft]:
    """Signs of life, one for each who follows."""
    return [
        Draft(
            f"{epoch}.{number} {watcher} {micros(at)}",
            author,
            HEARTBEAT,
            {"watcher": watcher, "service": service, "epoch": epoch, "number": number, "at": at},
            f"{SOURCE} {service}",
        )
        for (watcher, service), number in numbers.items()
    ]
