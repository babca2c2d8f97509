"""What publishers may do: publish in each format, event by event, and learn what became of it.

Guarantees: every event gets an answer of its own, in the order it was sent in. Events are CloudEvents or Arrow; the
sender's time counts where the type takes it, of its extensions only `requires`, the rule that receivers must meet.
Where an event comes from is stamped on it as the gateway sees it. What an event requires is read only if its publisher
may publish its type. Heartbeats are answered by what is promised then.
Those with the right `quench` on a type are told when nobody may and wants to receive it, per type and never per filter;
what changes is told once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headgate.analysis.restrictions import holds_now, wanted
from headgate.commands.publishing.promises import heartbeat
from headgate.commands.publishing.submissions import SubmissionOutcome, of_drafts, of_table
from headgate.commands.sessions import Caller
from headgate.decide.publish import may_publish, no_right
from headgate.decide.rates import asks_rate
from headgate.decide.views import holds
from headgate.gateway.http.request_reading import requirement
from headgate.model.errors import BadRequest, HeadgateError, TooLarge
from headgate.model.events import Draft
from headgate.model.rights import Action
from headgate.model.state import State
from headgate.pipeline.admission import columns as bulk
from headgate.protocol import messages as wire
from headgate.protocol.problems import problem, result

if TYPE_CHECKING:
    from headgate.gateway.runtime import Gateway

_JSON_TYPES: Final = ("application/json", "text/json")


@dataclass(frozen=True, slots=True)
class PublishService:
    """The publishing side of a gateway."""

    gateway: Gateway

    async def publish_cloudevents(
        self, caller: Caller, events: Sequence[wire.CloudEvent], origin: str | None
    ) -> list[wire.EventResult]:
        """Publish some CloudEvents."""
        self._bounded(len(events))
        denied = await self._read(caller, events)
        wrong: dict[int, HeadgateError] = {}
        drafts: list[Draft] = []
        barred: dict[int, HeadgateError] = {}
        for at, cloudevent in enumerate(events):
            refusal = denied.get(cloudevent.type) if cloudevent.requires is not None else None
            try:
                drafts.append(_draft(caller, cloudevent, origin, read=refusal is None))
            except HeadgateError as error:
                wrong[at] = error
            else:
                if refusal is not None:
                    barred[len(drafts) - 1] = refusal
        outcome = await self.gateway.writer.publish(of_drafts(caller.principal, drafts, barred))
        self._count(outcome, wrong.values())
        places = [at for at in range(len(events)) if at not in wrong]
        refused = wrong | {places[at]: error for at, error in outcome.refusals.items()}
        repeated = {places[at] for at in outcome.duplicates}
        return [
            result(event.id, refused[at])
            if at in refused
            else wire.EventResult(event.id, "duplicate" if at in repeated else "accepted")
            for at, event in enumerate(events)
        ]

    async def publish_one(self, caller: Caller, event: wire.CloudEvent, origin: str | None) -> wire.EventResult:
        """Publish one CloudEvent; a refusal is raised."""
        denied = await self._read(caller, [event])
        draft = _draft(caller, event, origin, read=not denied)
        outcome = await self.gateway.writer.publish(
            of_drafts(caller.principal, [draft], dict(enumerate(denied.values())))
        )
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
        denied = await self._read_table(caller, table, type_name)
        outcome = await self.gateway.writer.publish(of_table(caller.principal, table, type_name, origin, denied))
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

    async def _read(self, caller: Caller, events: Sequence[wire.CloudEvent]) -> dict[str, HeadgateError]:
        """Read the requirements of events that may be let in; why those of other types are not."""
        asking = [(event.type, event.requires) for event in events if event.requires is not None]
        denied = await self._denied(caller, dict.fromkeys(name for name, _ in asking))
        await self.gateway.reader.requirements(caller.principal, (text for name, text in asking if name not in denied))
        return denied

    async def _read_table(self, caller: Caller, table: pa.Table, type_name: str | None) -> dict[str, HeadgateError]:
        """The same, of events as columns."""
        if "requires" not in table.column_names:
            return {}
        parts = bulk.by_type(table, type_name)
        denied = await self._denied(caller, [part.type for part in parts])
        texts = (text for part in parts if part.type not in denied for text in bulk.requirement_texts(part.table))
        await self.gateway.reader.requirements(caller.principal, texts)
        return denied

    async def _denied(self, caller: Caller, types: Iterable[str]) -> dict[str, HeadgateError]:
        """The types of which the publisher can have no event let in: nothing that it says of those is read."""
        named = list(types)
        if named:
            await self.gateway.catch_up()
        state, denied = self.gateway.follower.state, dict[str, HeadgateError]()
        for name in named:
            try:
                if not may_publish(state, caller.principal, state.types[name].name):
                    denied[name] = no_right(state, caller.principal, name)
            except HeadgateError as unknown:
                denied[name] = unknown
        return denied

    async def heartbeat(self, caller: Caller, asked: wire.HeartbeatRequest) -> wire.HeartbeatAnswer:
        """Promise that no more events from before a time will come."""
        try:
            until = asked.until.astimezone(UTC)
        except OverflowError:  # the first and last hours of the calendar, in some zones
            raise BadRequest(f"`{asked.until}` is not in the years 1 to 9999 of UTC") from None
        work = partial(
            heartbeat, self.gateway.writer.core, caller.principal, until, asked.types, asked.for_, asked.stream
        )
        told = await self.gateway.run_blocking(work)
        return wire.HeartbeatAnswer(told.moved, dict(told.horizons))

    def holds(self, caller: Caller, type_name: str, origin: str | None) -> bool | None:
        """May the type be published here and now, by time, rate and origin? None if those do not matter."""
        state, writer = self.gateway.follower.state, self.gateway.writer.core
        now = writer.clock()  # the time that an event would be given
        if type_name not in state.types:
            return None
        rate = writer.log.rate(caller.principal, type_name, now) + 1 if asks_rate(state) else None
        return holds_now(state, caller.principal, type_name, now=now, origin=origin, rate=rate)

    def _bounded(self, size: int) -> None:
        most = self.gateway.config.publish.max_events
        if size > most:
            raise TooLarge(
                f"`{size}` events in one request; at most {most}",
                remedy="send them in several requests, or raise `publish.max_events`",
            )

    def _count(self, outcome: SubmissionOutcome, wrong: Iterable[HeadgateError]) -> None:
        codes = Counter(problem(error).code for error in outcome.refusals.values())
        codes.update(error.code for error in wrong)
        self.gateway.metrics.count_events(outcome.accepted, len(outcome.duplicates), codes)


def _draft(caller: Caller, event: wire.CloudEvent, origin: str | None, *, read: bool) -> Draft:
    """What is to be published; refused if its data is no JSON object, or its requirement, which was read, is none."""
    if event.data_base64 is not None:
        raise BadRequest("`data_base64` is not read here", remedy="send the attributes as a JSON object in `data`")
    content = (event.datacontenttype or _JSON_TYPES[0]).partition(";")[0].strip().lower()
    if content not in _JSON_TYPES and not content.endswith("+json"):
        raise BadRequest(f"`{content}` is not read as data", remedy="send `application/json`")
    requires = requirement(event.requires) if read and event.requires is not None else None
    return Draft(event.id, caller.principal, event.type, event.data or {}, event.source, requires, origin, event.time)


EVERY: Final = 1.0  # seconds between two looks at a ledger that keeps changing


@dataclass(eq=False)
class Quench:
    """Who wants what, as one gateway knows it."""

    gateway: Gateway
    _known: tuple[State | None, dict[str, bool]] = field(default=(None, {}), init=False)

    async def wanted(self, principal: str, type_name: str) -> bool | None:
        """Is the type wanted by anyone? None if the principal may not know, or there is no such type."""
        state = self.gateway.follower.state
        if type_name not in state.types or not holds(state, principal, Action.QUENCH, type_name):
            return None
        if self._known[0] is not state:
            self._known = state, {}
        known = self._known[1]
        if type_name not in known:
            known[type_name] = bool(await self.gateway.run_blocking(wanted, state, type_name))
        return known[type_name]

    async def watch(self, principal: str, types: Iterable[str]) -> AsyncIterator[tuple[str, bool]]:
        """What is wanted now of each type that the principal advertises and may know of, then every change of it."""
        reported: dict[str, bool] = {}
        names = list(dict.fromkeys(types))
        while True:
            version = self.gateway.follower.state.version
            for name in names:
                if not any(
                    (principal, above) in self.gateway.follower.state.advertisements for above in self._line(name)
                ):
                    reported.pop(name, None)
                    continue
                now = await self.wanted(principal, name)
                if now is None:
                    reported.pop(name, None)
                elif reported.get(name) is not now:
                    reported[name] = now
                    yield name, now
            await self.gateway.follower.wait_for_change(None, version)
            await asyncio.sleep(EVERY if len(self.gateway.follower.state.subscriptions) > 1_000 else 0)

    def _line(self, name: str) -> tuple[str, ...]:
        types = self.gateway.follower.state.types
        return types.lineage(name) if name in types else ()
