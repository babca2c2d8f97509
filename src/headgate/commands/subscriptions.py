"""Subscriptions of a principal, detections among them: make one, find it again, and end it.

Guarantees: subscriptions have names of their principal's own, while the ledger has one name space for all: no two
principals share a name there, whatever they choose, and neither can tell that the other has one. What a principal may
not know of is `not-found`, like what is not there.
Leaves out: reading deliveries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from headgate.commands.commit import LedgerAccess
from headgate.decide.composite_check import conform_bound
from headgate.decide.views import entries
from headgate.model.changes import Subscribe, Unsubscribe
from headgate.model.composite import NullEvent
from headgate.model.errors import AlreadyExists, BadDefinition, NotFound, SubscribeDenied, TooMany
from headgate.model.expressions import names_meta
from headgate.model.rights import Action, Subscription
from headgate.model.state import State
from headgate.model.types import check_name
from headgate.model.values import EPOCH, brief

MAX_LOCAL_CHARS: Final = 100
"""Characters of the name that a principal gives to a subscription or reservation."""


def subscribe(
    ledger: LedgerAccess,
    wanted: Subscription,
    *,
    most: int,
    most_detections: int | None = None,
    author: str | None = None,
) -> tuple[Subscription, bool]:
    """The subscription by this name, made unless it is there, and whether it is new; refused if another one is there.

    One that was made elsewhere is made anew from here, where rights depend on that. Nobody has more than `most`. Its
    `author` is its principal, or the administrator.
    """
    author = wanted.principal if author is None else author
    ledger.follower.refresh()  # another gateway may have made it and lost the answer
    old = ledger.follower.subscription(wanted.id)
    if old is None:
        subscribe_together(ledger, author, [wanted], most=most, most_detections=most_detections)
        return _own(ledger, wanted.principal, wanted.id), True
    if _as_asked(wanted) != _as_asked(old):
        id = local_id(wanted.principal, wanted.id) or wanted.id
        differs = ", ".join(_differences(wanted, old))
        raise AlreadyExists(
            f"your subscription `{id}` is another one: it has another {differs}",
            remedy="ask for it as it was made, end it first, or choose another id",
        )
    if is_elsewhere(ledger.state, old, wanted.origin):
        ledger.change(author, [Unsubscribe(old.id), Subscribe(wanted)], "from another address")
        old = _own(ledger, wanted.principal, wanted.id)
    return old, False


def subscribe_together(
    ledger: LedgerAccess,
    author: str,
    wanted: Sequence[Subscription],
    *,
    most: int,
    most_detections: int | None = None,
) -> None:
    """Make new subscriptions as one version, all or none; nobody has more than `most`."""

    def check(state: State) -> None:
        _check_room("subscriptions", most, state.subscriptions.values(), wanted)
        if most_detections is not None:
            held, new = (
                [one for one in some if one.detection is not None] for some in (state.subscriptions.values(), wanted)
            )
            _check_room("detections", most_detections, held, new)

    check(ledger.state)  # who has too many makes nobody wait for the ledger
    ledger.change(author, map(Subscribe, wanted), check=check)


def detect(
    ledger: LedgerAccess, wanted: Subscription, *, most: int, most_detections: int, author: str | None = None
) -> tuple[Subscription, bool]:
    """The detection by this name, made unless it is there, and whether it is new; as `subscribe`.

    What is bound may come as JSON has it: text for times and bytes. It is resolved once: the same text again is the
    same detection, whatever its names would mean by now.
    """
    detection = wanted.detection
    assert detection is not None, "what is no detection is subscribed to"
    bound = conform_bound(detection.composite, ledger.state, detection.bound)
    made = replace(wanted, detection=replace(detection, bound=bound))
    return subscribe(ledger, made, most=most, most_detections=most_detections, author=author)


def _check_room(what: str, most: int, held: Iterable[Subscription], new: Iterable[Subscription]) -> None:
    """Refuse more than anyone may have."""
    mine = Counter(one.principal for one in held)
    for principal, more in Counter(one.principal for one in new).items():
        if mine[principal] + more > most:
            full = f"end some; `limits.{what}_per_principal` is full"
            raise TooMany(f"you have {mine[principal]} {what}", remedy=full)


def _as_asked(subscription: Subscription) -> tuple[object, ...]:
    """What was asked for, without what came of that."""
    asked = replace(subscription, first=0, origin=None)
    if asked.detection is None:
        return (asked,)
    bound = sorted((name, repr(value)) for name, value in asked.detection.bound.items())
    start = asked.detection.start if asked.history else EPOCH
    nothing = replace(asked.detection, composite=NullEvent(), bound={}, start=EPOCH)
    return replace(asked, detection=nothing), bound, start


def _differences(wanted: Subscription, old: Subscription) -> list[str]:
    """In what a subscription is not what was asked for, in the words of whoever asks."""

    def said(one: Subscription) -> dict[str, object]:
        detection = one.detection
        start = detection.start if detection is not None and one.history else EPOCH
        return {
            "type": one.type,
            "filter": one.where,
            "beginning (`from`)": (one.history, one.since_version, one.since_time, start),
            "requirement": one.requires,
            "choice of memberships": one.counted,
            "expression": None if detection is None else detection.text,
            "choice of what is bound": None if detection is None else sorted(map(repr, detection.bound.items())),
            "use of its signals": None if detection is None else (detection.publishes, detection.adds),
        }

    if (wanted.detection is None) is not (old.detection is None):
        return ["type"]
    there = said(old)
    return [name for name, value in said(wanted).items() if value != there[name]] or ["owner"]


def unsubscribe(ledger: LedgerAccess, principal: str, *names: str) -> None:
    """End subscriptions as one version, by the ledger's names for them."""
    ledger.change(principal, [Unsubscribe(_own(ledger, principal, name).id) for name in names])


def known_subscription(ledger: LedgerAccess, principal: str, id: str) -> Subscription | None:
    """A principal's subscription by its name for it, as far as it is known here without looking at any file."""
    found = ledger.follower.subscription(ledger_id(principal, id))
    return found if found is not None and found.principal == principal else None


def own_subscription(ledger: LedgerAccess, principal: str, id: str) -> Subscription:
    """A principal's subscription by its name for it, or `not-found`."""
    return _own(ledger, principal, ledger_id(principal, id))


def _own(ledger: LedgerAccess, principal: str, name: str) -> Subscription:
    subscription = ledger.follower.subscription(name)
    if subscription is None:  # it may have been made a moment ago, at another gateway that the caller has just lost
        ledger.follower.refresh()
        subscription = ledger.follower.subscription(name)
    if subscription is None or subscription.principal != principal:
        raise NotFound(f"no subscription `{brief(local_id(principal, name) or name)}`")
    return subscription


# -- where it was made ----------------------------------------------------------------------------------------


def is_elsewhere(state: State, subscription: Subscription, origin: str | None) -> bool:
    """Was a subscription made from another address, and do its rights depend on that?"""
    if subscription.origin == origin:
        return False
    return any(names_meta(rule.where, "origin") for rule in entries(state, subscription.principal, Action.SUBSCRIBE))


def check_origin(state: State, subscription: Subscription, origin: str | None) -> None:
    """Refuse to read a subscription from another address than it was made from, where its rights depend on that."""
    if is_elsewhere(state, subscription, origin):
        raise SubscribeDenied(
            "the subscription was made from another address, and its rights depend on that",
            remedy="subscribe again from here: it begins anew",
        )


# -- names ----------------------------------------------------------------------------------------------------


def ledger_id(principal: str, id: str) -> str:
    """The ledger's name for what a principal calls `id`."""
    check_name("subscription", id)
    if len(id) > MAX_LOCAL_CHARS or "/" in id:
        raise BadDefinition(
            f"`{brief(id)}` cannot name a subscription", remedy=f"use at most {MAX_LOCAL_CHARS} characters and no slash"
        )
    return f"{_prefix(principal)}{id}"


def local_id(principal: str, ledger_id: str) -> str | None:
    """What the principal calls a subscription of the ledger; None if it is not one of its own names."""
    prefix = _prefix(principal)
    return ledger_id[len(prefix) :] if ledger_id.startswith(prefix) else None


def _prefix(principal: str) -> str:
    # The first slash ends the principal's name, so that name must have none.
    return quote(principal, safe=":@.+ ") + "/"
