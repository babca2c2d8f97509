"""What a domain's files tell: why something was delivered or not, what a subscription comes to, its versions.

Guarantees: whoever asks is told what it may know (D14); of events that it may not know of, nothing but that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow.compute as pc

from headgate.analysis import explain as explanations
from headgate.analysis.explain import Explanation, Question
from headgate.analysis.restrictions import PublishRestriction, Restriction, restrict, restrict_publish
from headgate.commands.subscriptions import ledger_id
from headgate.decide.deliver import is_told_all, is_told_everything
from headgate.ledger.queries import VersionInfo
from headgate.model.errors import HeadgateError, NotFound
from headgate.model.events import Event
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.node.domain import Domain
from headgate.pipeline.log.codec import decode, from_blob, layouts

MAX_VERSIONS: Final = 1_000
"""Versions listed in one answer."""
_PLACE: Final = re.compile(r"(?P<stream>.+):(?P<seq>[0-9]{1,18})\Z", re.DOTALL)


def explain(domain: Domain, question: Question, stream: str | None = None) -> tuple[Explanation, int]:
    """What became of the newest event of a name that the asker may know, and how many more there are."""
    now = domain.ledger.state()
    books = domain.books(now)
    ever = domain.ledger.all_subscriptions(now.version) if question.subscription is not None else []
    subscriptions = [one for one, _ in ever if one.id == question.subscription]
    events = sorted(_named(domain, question, stream), key=lambda e: (e.version, e.time, e.seq), reverse=True)
    refusal: HeadgateError | None = None
    for event in events:
        try:
            return explanations.explain(question, event, books, subscriptions), len(events) - 1
        except HeadgateError as error:
            if not isinstance(error, NotFound) and is_told_all(now, question.asker, event.type):
                raise
            refusal = refusal or error
    if refusal is not None:
        raise refusal
    return explanations.explain(question, None, books, subscriptions), 0


def _named(domain: Domain, question: Question, stream: str | None) -> Iterator[Event]:
    """The events with an id; or the one at a place, for those who may know places (D14)."""
    places = layouts(domain.ledger.state().types)
    seen = False
    for name, tail in domain.log.tails().items():
        if stream is not None and name != stream:
            continue
        for batch in domain.log.batches(name, 0, tail.last):
            if pc.any(pc.equal(from_blob(batch.blob).column("id"), question.event)).as_py():
                seen = True
                yield from (event for event in decode(batch, places) if event.id == question.event)
    at = _PLACE.match(question.event)
    if seen or at is None or stream not in (None, at["stream"]):
        return
    try:
        event = domain.event(at["stream"], int(at["seq"]))
    except NotFound:
        return
    if is_told_all(domain.ledger.state(), question.asker, event.type):
        yield event


def restriction(domain: Domain, asker: str | None, subscription: str, version: int | None = None) -> Restriction:
    """What a subscription comes to under the rights of a version, by default the newest, as the asker may know."""
    now = domain.ledger.state()
    at = now.version if version is None else version
    every = domain.ledger.state(at).subscriptions
    held = every.get(subscription)
    if held is None and asker is not None and "/" not in subscription:
        held = every.get(ledger_id(asker, subscription))  # by the name that who asks has given to it
    return restrict(asker or now.administrator, subscription, held, at, domain.books(now))


def type_restriction(domain: Domain, principal: str, type_name: str) -> Restriction:
    """What a subscription to a type, with no filter, would come to for a principal."""
    now = domain.ledger.state()
    wanted = Subscription("any", principal, now.types[type_name].name)
    return restrict(principal, wanted.id, wanted, now.version, domain.books(now))


def publish_restriction(
    domain: Domain, asker: str | None, principal: str, type_name: str, version: int | None = None
) -> PublishRestriction:
    """What publishing a type comes to for a principal under the rights of a version, by default the newest."""
    now = domain.ledger.state()
    at = now.version if version is None else version
    return restrict_publish(asker or now.administrator, principal, type_name, at, domain.books(now))


def versions(
    domain: Domain, state: State, asker: str, after: int | None
) -> list[tuple[VersionInfo, dict[str, int] | None]]:
    """Versions after one, oldest first, with their starting points; by default the last MAX_VERSIONS.

    Whoever gets no starting points does not govern or audit everything: it may know when a version was made, no more.
    """
    first = max(0, state.version - MAX_VERSIONS) if after is None else after
    infos = domain.ledger.versions(first, min(state.version, first + MAX_VERSIONS))
    if not is_told_everything(state, asker):
        return [(replace(one, author="", note=""), None) for one in infos]
    starts: dict[int, dict[str, int]] = {}
    for point in domain.ledger.starting_points():
        starts.setdefault(point.version, {})[point.stream] = point.seq
    return [(one, starts.get(one.version, {})) for one in infos]
