"""What publishers may do: publish in each format, event by event, and learn what became of it.

Guarantees: every event gets an answer of its own, in the order it was sent in. Events are CloudEvents or Arrow; neither
the sender's time nor its extensions count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from headgate.gateway import wire
from headgate.gateway.auth import Caller
from headgate.gateway.problems import problem, result
from headgate.gateway.submissions import Outcome, of_drafts, of_table
from headgate.gateway.writer import Writer
from headgate.model.errors import BadRequest, HeadgateError, TooLarge
from headgate.model.events import Draft
from headgate.pipeline import bulk

_JSON_TYPES: Final = ("application/json", "text/json")
Counted = Callable[[int, int, "Counter[str]"], None]
"""Is told how many were accepted, how many were duplicates, and how many refused by code."""


class Publisher:
    """The publishing side of a gateway."""

    def __init__(self, writer: Writer, max_events: int, counted: Counted) -> None:
        self._writer = writer
        self._max_events = max_events
        self._counted = counted

    async def publish_cloudevents(self, caller: Caller, events: Sequence[wire.CloudEvent]) -> list[wire.EventResult]:
        """Publish some CloudEvents."""
        self._bounded(len(events))
        wrong = {at: error for at, one in enumerate(events) if (error := _unreadable(one)) is not None}
        drafts = [
            Draft(one.id, caller.principal, one.type, one.data or {}, one.source)
            for at, one in enumerate(events)
            if at not in wrong
        ]
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

    async def publish_one(self, caller: Caller, event: wire.CloudEvent) -> wire.EventResult:
        """Publish one CloudEvent; a refusal is raised."""
        wrong = _unreadable(event)
        if wrong is not None:
            raise wrong
        draft = Draft(event.id, caller.principal, event.type, event.data or {}, event.source)
        outcome = await self._writer.publish(of_drafts(caller.principal, [draft]))
        self._count(outcome, ())
        if outcome.refusals:
            raise outcome.refusals[0]
        return wire.EventResult(event.id, "duplicate" if outcome.duplicates else "accepted")

    async def publish_arrow(self, caller: Caller, body: bytes, type_name: str | None) -> wire.BulkAnswer:
        """Publish an Arrow stream; only what was not plainly accepted is listed, with its row."""
        table = bulk.read(body)
        self._bounded(table.num_rows)
        outcome = await self._writer.publish(of_table(caller.principal, table, type_name))
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


def _unreadable(event: wire.CloudEvent) -> HeadgateError | None:
    """Data that is not a JSON object, if it is not."""
    if event.data_base64 is not None:
        return BadRequest("`data_base64` is not read here", remedy="send the attributes as a JSON object in `data`")
    content = (event.datacontenttype or _JSON_TYPES[0]).partition(";")[0].strip().lower()
    if content not in _JSON_TYPES and not content.endswith("+json"):
        return BadRequest(f"`{content}` is not read as data", remedy="send `application/json`")
    return None
