"""What publishers may do: publish in each format, event by event, and learn what became of it.

Guarantees: every event gets an answer of its own, in the order it was sent in. Events are CloudEvents or Arrow; neither
the sender's time nor its extensions count, but for `requires`, the rule that receivers must meet. Where an event comes
from is stamped on it as the gateway sees it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from headgate.decide.dynamic import holds_now
from headgate.decide.rates import asks_rate
from headgate.decide.requirements import check_requirement
from headgate.gateway import wire
from headgate.gateway.auth import Caller
from headgate.gateway.problems import problem, result
from headgate.gateway.submissions import Outcome, of_drafts, of_table
from headgate.gateway.writer import Writer
from headgate.lang import parse_condition
from headgate.model.conditions import Condition
from headgate.model.errors import BadRequest, HeadgateError, TooLarge
from headgate.model.events import Draft
from headgate.pipeline import bulk

_JSON_TYPES: Final = ("application/json", "text/json")
MAX_PARSED: Final = 1_024
"""Requirements that are kept as they were read."""

Counted = Callable[[int, int, "Counter[str]"], None]
"""Is told how many were accepted, how many were duplicates, and how many refused by code."""


class Publisher:
    """The publishing side of a gateway."""

    def __init__(self, writer: Writer, max_events: int, counted: Counted) -> None:
        self._writer = writer
        self._max_events = max_events
        self._counted = counted

    async def publish_cloudevents(
        self, caller: Caller, events: Sequence[wire.CloudEvent], origin: str | None
    ) -> list[wire.EventResult]:
        """Publish some CloudEvents."""
        self._bounded(len(events))
        wrong: dict[int, HeadgateError] = {}
        drafts: list[Draft] = []
        for at, one in enumerate(events):
            try:
                drafts.append(_draft(caller, one, origin))
            except HeadgateError as error:
                wrong[at] = error
        outcome = await self._writer.publish(of_drafts(caller.principal, drafts))
        self._count(outcome, wrong.values())
        answers: list[wire.EventResult] = []
        at = 0
        for place, event in enumerate(events):
            if place in wrong:
                answers.append(result(event.id, wrong[place]))
                continue
            if at in outcome.refusals:
                answers.append(result(event.id, outcome.refusals[at]))
            else:
                answers.append(wire.EventResult(event.id, "duplicate" if at in outcome.duplicates else "accepted"))
            at += 1
        return answers

    async def publish_one(self, caller: Caller, event: wire.CloudEvent, origin: str | None) -> wire.EventResult:
        """Publish one CloudEvent; a refusal is raised."""
        outcome = await self._writer.publish(of_drafts(caller.principal, [_draft(caller, event, origin)]))
        self._count(outcome, ())
        if outcome.refusals:
            raise outcome.refusals[0]
        return wire.EventResult(event.id, "duplicate" if outcome.duplicates else "accepted")

    async def publish_arrow(
        self, caller: Caller, body: bytes, type_name: str | None, origin: str | None
    ) -> wire.BulkAnswer:
        """Publish an Arrow stream; only what was not plainly accepted is listed, with its row."""
        table = bulk.read(body)
        self._bounded(table.num_rows)
        outcome = await self._writer.publish(of_table(caller.principal, table, type_name, origin))
        self._count(outcome, ())
        listed = []
        ids = table.column("id")
        for row in sorted(outcome.duplicates | outcome.refusals.keys()):
            id = ids[row].as_py() or ""
            if row in outcome.refusals:
                told = result(id, outcome.refusals[row])
                listed.append(wire.RowResult(row, id, "refused", told.code, told.detail, told.remedy))
            else:
                listed.append(wire.RowResult(row, id, "duplicate"))
        return wire.BulkAnswer(outcome.accepted, len(outcome.duplicates), len(outcome.refusals), listed)

    def holds(self, caller: Caller, type_name: str, origin: str | None) -> bool | None:
        """May the type be published here and now, by time, rate and origin? None if those do not matter."""
        state, now = self._writer.state, self._writer.now()
        if type_name not in state.types:
            return None
        rate = self._writer.rate(caller.principal, type_name, now) + 1 if asks_rate(state) else None
        return holds_now(state, caller.principal, type_name, now=now, origin=origin, rate=rate)

    def _bounded(self, size: int) -> None:
        if size > self._max_events:
            raise TooLarge(
                f"`{size}` events in one request; at most {self._max_events}",
                remedy="send them in several requests, or raise `publish.max_events`",
            )

    def _count(self, outcome: Outcome, wrong: Iterable[HeadgateError]) -> None:
        codes = Counter(problem(error).code for error in outcome.refusals.values())
        codes.update(error.code for error in wrong)
        self._counted(outcome.accepted, len(outcome.duplicates), codes)


def _draft(caller: Caller, event: wire.CloudEvent, origin: str | None) -> Draft:
    """What is to be published; refused if its data is not a JSON object, or its requirement is none."""
    if event.data_base64 is not None:
        raise BadRequest("`data_base64` is not read here", remedy="send the attributes as a JSON object in `data`")
    content = (event.datacontenttype or _JSON_TYPES[0]).partition(";")[0].strip().lower()
    if content not in _JSON_TYPES and not content.endswith("+json"):
        raise BadRequest(f"`{content}` is not read as data", remedy="send `application/json`")
    requires = None if event.requires is None else _requirement(event.requires)
    return Draft(event.id, caller.principal, event.type, event.data or {}, event.source, requires, origin)


@lru_cache(MAX_PARSED)
def _requirement(text: str) -> Condition:
    """A requirement as sent; most events of a publisher have the same."""
    found = parse_condition(text)
    check_requirement(found)
    return found
