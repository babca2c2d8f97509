"""What one reader of a subscription has received, taken and acknowledged. No I/O.

Guarantees: a delivery is taken once, however often gateways send it: every position that came in is remembered until
its acknowledgement is confirmed, and what was not taken yet when a connection broke is forgotten and comes again. No
more than the window waits to be taken. Acknowledging a delivery acknowledges all that were taken before it; what a
gateway did not confirm is said again on the next connection.
Leaves out: the socket (`channel`), and waiting (`subscription`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from headgate.client.errors import Gap, Unacknowledged, unexpected
from headgate.model.errors import BadDefinition, HeadgateError
from headgate.protocol.messages import MAX_POSITIONS

WINDOW: Final = 1_000
"""Deliveries that may come ahead of the reader."""
MAX_WINDOW: Final = 10_000
MAX_UNACKNOWLEDGED: Final = 100_000
"""Deliveries that may be taken without acknowledging any; each is remembered, so that it is not taken twice."""


class DeliveredEvent(Struct, omit_defaults=True):
    """A delivery on the wire: a CloudEvent, with who published it and its position."""

    id: str
    source: str
    type: str
    hgpublisher: str = ""
    hgposition: str = ""
    specversion: str = "1.0"
    time: datetime | None = None
    datacontenttype: str | None = None
    data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event as its receiver may see it. What it may not see, or was not said, is None in `data`."""

    id: str
    type: str
    source: str
    publisher: str
    time: datetime | None
    data: Mapping[str, Any]
    position: str
    number: int = field(repr=False, compare=False)
    _acknowledge: Callable[[int], None] = field(repr=False, compare=False)

    def ack(self) -> None:
        """This delivery, and all that were taken before it, need not come again. It is said soon, not at once."""
        self._acknowledge(self.number)


def delivery(event: DeliveredEvent, number: int, acknowledge: Callable[[int], None]) -> Delivery:
    """A delivery from the wire."""
    return Delivery(
        event.id,
        event.type,
        event.source,
        event.hgpublisher,
        event.time,
        event.data or {},
        event.hgposition,
        number,
        acknowledge,
    )


class Inbox:
    """The state of one reader."""

    def __init__(self, id: str, window: int = WINDOW, most: int = MAX_UNACKNOWLEDGED) -> None:
        if not 1 <= window <= MAX_WINDOW:
            raise BadDefinition(f"the window cannot be `{window}`", remedy=f"1 to {MAX_WINDOW}")
        self.id = id
        self.acknowledge: Callable[[int], None] = self.acknowledge_through
        self._window = window
        self._most = most
        self._number = 0
        self._waiting: deque[Delivery | HeadgateError] = deque()
        self._known: set[str] = set()  # positions that are not taken again
        self._earlier: set[str] = set()  # those of them that came over an earlier connection
        self._done: set[str] = set()  # those that need not be known on the next connection
        self._taken: deque[tuple[int, str]] = deque()  # taken, and not acknowledged here
        self._to_say: deque[str] = deque()  # acknowledged here, and not said
        self._said: list[str] = []  # said, and not confirmed
        self._opened = False
        self._credit = 0  # how many more the gateway may send
        self._owed = 0  # how many more it may be told that it may send

    # -- from the gateway -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """There is a new connection, on which nothing has been said."""
        for one in self._waiting:
            if isinstance(one, Delivery):
                self._known.discard(one.position)
        self._waiting = deque(one for one in self._waiting if not isinstance(one, Delivery))
        self._known -= self._done
        self._earlier = set(self._known)
        self._done = set()
        self._to_say.extendleft(reversed(self._said))
        self._said = []
        self._opened = False
        self._credit = self._owed = 0

    def receive(self, events: list[DeliveredEvent]) -> None:
        """Deliveries came."""
        if len(events) > self._credit:
            raise unexpected(self.id, f"{len(events)} deliveries where {self._credit} were allowed")
        self._credit -= len(events)
        for event in events:
            if event.hgposition in self._known:
                self._owed += 1
                continue
            self._known.add(event.hgposition)
            self._number += 1
            self._waiting.append(delivery(event, self._number, self._pass_on))

    def _pass_on(self, number: int) -> None:
        self.acknowledge(number)

    def gap(self, detail: str) -> None:
        """Something was lost here."""
        lost = Gap(detail or "some deliveries were lost before they were read", remedy="read on, or start anew")
        self._waiting.append(lost)

    def confirm(self) -> None:
        """What was said to be acknowledged is durably so, and comes on no later connection.

        On this one it may, if it came over an earlier one: the gateway began to send before it heard of it.
        """
        said = set(self._said)
        self._known -= said - self._earlier
        self._done |= said & self._earlier
        self._said = []

    def forget(self) -> None:
        """The subscription was made anew: positions of the old one mean nothing."""
        self._known.clear()
        self._earlier.clear()
        self._done.clear()
        self._taken.clear()
        self._to_say.clear()
        self._said = []
        self._waiting = deque(one for one in self._waiting if not isinstance(one, Delivery))

    # -- to the gateway ---------------------------------------------------------------------------------------

    def frames(self) -> list[dict[str, Any]]:
        """What is to be said now."""
        frames: list[dict[str, Any]] = []
        if not self._opened:
            self._opened = True
            self._credit = self._window
            frames.append({"op": "open", "subscription": self.id, "credit": self._window})
        # A gateway that does not confirm is asked for nothing more, so that what is remembered stays bounded.
        unconfirmed = len(self._to_say) + len(self._said)
        if self._opened and self._owed >= max(1, self._window // 2) and unconfirmed < self._most:
            frames.append({"op": "credit", "subscription": self.id, "credit": self._owed})
            self._credit += self._owed
            self._owed = 0
        # One acknowledgement at a time, so that a confirmation says which.
        if self._to_say and not self._said:
            self._said = [self._to_say.popleft() for _ in range(min(len(self._to_say), MAX_POSITIONS))]
            frames.append({"op": "ack", "subscription": self.id, "positions": self._said})
        return frames

    @property
    def settled(self) -> bool:
        """Is everything confirmed that was acknowledged?"""
        return not self._to_say and not self._said

    # -- to and from the reader -------------------------------------------------------------------------------

    def take(self, limit: int) -> list[Delivery]:
        """Up to so many of the deliveries that wait. What was lost among them is raised in its place, once."""
        taken: list[Delivery] = []
        while self._waiting and len(taken) < limit:
            delivery = self._waiting[0]
            if isinstance(delivery, HeadgateError):
                if taken:
                    break
                self._waiting.popleft()
                raise delivery
            if len(self._taken) >= self._most:
                if taken:
                    break
                raise Unacknowledged(
                    f"`{len(self._taken)}` deliveries were taken and none acknowledged",
                    remedy="call `ack()` on the last one that was dealt with",
                )
            self._waiting.popleft()
            self._taken.append((delivery.number, delivery.position))
            self._owed += 1
            taken.append(delivery)
        return taken

    def acknowledge_through(self, number: int) -> None:
        """Everything that was taken up to this one has been dealt with."""
        while self._taken and self._taken[0][0] <= number:
            self._to_say.append(self._taken.popleft()[1])

    @property
    def last_taken(self) -> int:
        """The number of the last delivery that was taken and not acknowledged; 0 if there is none."""
        return self._taken[-1][0] if self._taken else 0
