"""Looking up and registering at once (OASIS: DBRegister).

Guarantees: the entries of a look-up are the newest delivery for each key up to the starting points of its version, and
its subscription then gives every change after them: nothing between is lost and nothing comes twice. Deliveries whose
key the principal may not see are all kept. A look-up that is too large is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from headgate.commands.delivery.delivery_follower import DeliveryFollower, OutgoingDelivery
from headgate.commands.delivery.delivery_reader import MAX_SLICE_BYTES, Archive, Ask, Run
from headgate.model.errors import BadDefinition, LookupTooLarge, TooBusy
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.node.domain import Follower

MAX_LOOKUP_ENTRIES: Final = 10_000  # entries of one look-up
MAX_LOOKUP_SECONDS: Final = 60.0  # how long a look-up waits for the pipeline to bring its history
MAX_READ: Final = 5_000  # deliveries read at a time

Entries = dict[object, tuple[tuple[str, str, int], OutgoingDelivery]]
"""The newest delivery of each key, with what makes it the newest."""


class _Entry(msgspec.Struct):
    """What a look-up needs to know of a delivery."""

    time: str
    data: dict[str, Any]


_ENTRIES: Final = msgspec.json.Decoder(_Entry)


def key_of(state: State, type_name: str) -> tuple[str, ...]:
    """The key of a type, or of the nearest of its ancestors that has one."""
    state.types[type_name]
    for name in state.types.lineage(type_name):
        if state.types.every[name].key:
            return state.types.every[name].key
    raise BadDefinition(f"the type `{type_name}` has no key", remedy="subscribe to it instead")


@dataclass(frozen=True, slots=True)
class Lookup:
    """Looks up by what the pipeline has delivered."""

    known: Follower
    tail: DeliveryFollower
    archive: Archive
    run: Run

    async def entries(
        self, subscription: Subscription, key: tuple[str, ...], *, is_new: bool
    ) -> tuple[list[OutgoingDelivery], dict[str, int]]:
        """The newest delivery of each key, oldest first, and the starting points that the subscription goes on from."""
        starts = await self._history(subscription)
        reached = self.tail.reached.streams
        through = {s: min(last, starts[s] - 1) if is_new and s in starts else last for s, last in reached.items()}
        newest = await self._newest(subscription, key, through)
        return [one for _, one in sorted(newest.values(), key=lambda entry: entry[0])], starts

    async def is_complete(self) -> bool:
        """Has retention taken nothing yet, neither of the log nor of what was delivered?"""
        gone: Mapping[str, int] = await self.run(self.archive.trimmed)
        return not any((*self.known.trimmed().values(), *gone.values()))

    async def _history(self, subscription: Subscription) -> dict[str, int]:
        """Wait until the pipeline has decided everything before a subscription; returns its starting points."""
        starts: dict[str, int] = await self.run(self.known.starts, subscription.first)
        waiting = _Waiting()
        self.tail.watch(waiting, True)
        try:
            async with asyncio.timeout(MAX_LOOKUP_SECONDS):
                while True:
                    reached = self.tail.reached
                    if reached.version >= subscription.first and all(
                        reached.streams.get(stream, 0) >= start - 1 for stream, start in starts.items()
                    ):
                        return starts
                    await waiting.news.wait()
                    waiting.news.clear()
        except TimeoutError:
            raise TooBusy("the history is not decided yet", remedy="ask again later") from None
        finally:
            self.tail.watch(waiting, False)

    async def _newest(self, subscription: Subscription, key: tuple[str, ...], through: Mapping[str, int]) -> Entries:
        """The newest delivery of each key, read in bounded slices."""
        entries: Entries = {}
        number = self.known.number(subscription.id)
        not_before = self.known.state.withdrawals.get(subscription.principal, 0)
        trimmed: Mapping[str, int] = await self.run(self.archive.trimmed)
        for stream, last in sorted(through.items()):
            ask = Ask(number, stream, trimmed.get(stream, 0), last, not_before)
            while ask.after < last:
                part = await self.run(self.archive.read, ask, MAX_READ, MAX_SLICE_BYTES)
                _take_in(entries, part.found, key, last)
                if part.resume is not None:
                    ask = replace(ask, resume=part.resume)
                else:
                    ask = replace(ask, after=part.at, resume=None)
        return entries


class _Waiting:
    """Waits for the tail to move."""

    def __init__(self) -> None:
        self.news = asyncio.Event()

    def wake(self, kept: object) -> None:  # noqa: ARG002
        """It has."""
        self.news.set()

    def fall_back(self, at: object) -> None:
        """It has nothing to lose."""


def _take_in(entries: Entries, deliveries: Iterable[OutgoingDelivery], key: tuple[str, ...], last: int) -> None:
    for delivery in deliveries:
        if delivery.seq > last:
            continue
        entry = _ENTRIES.decode(delivery.event)
        values = tuple(entry.data.get(name) for name in key)
        hidden = any(value is None for value in values)
        at: object = (delivery.stream, delivery.seq) if hidden else tuple((type(value), value) for value in values)
        rank = entry.time, delivery.stream, delivery.seq
        if at not in entries or entries[at][0] < rank:
            entries[at] = rank, delivery
        if len(entries) > MAX_LOOKUP_ENTRIES:
            raise LookupTooLarge(
                f"there are more than MAX_LOOKUP_ENTRIES ({MAX_LOOKUP_ENTRIES}) entries",
                remedy="narrow `where`, or subscribe from the start",
            )
