"""Which gateway publishes what detections signal, and when.

Guarantees: one process of the node derives, whichever holds the lock; if it ends another takes over and goes on where
that was (`commands.deriving`). What cannot be read or written is tried again. Every refusal is in the log of the node,
without what the event says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headgate.commands.deriving import Deriver
from headgate.commands.publishing.stream_writer import StreamWriter
from headgate.decide.derived import DERIVED
from headgate.model.errors import HeadgateError
from headgate.model.rights import Subscription
from headgate.node.derived_progress import DerivedProgress
from headgate.node.logs import Log, fault
from headgate.node.processes import Lock
from headgate.pipeline.log.event_log import EventLog

if TYPE_CHECKING:
    from headgate.gateway.runtime import Gateway

LOCK: Final = "deriving.lock"
LEAD_SECONDS: Final = 1.0  # how often a gateway looks whether it is to derive
LOOK_SECONDS: Final = 0.1  # how often it looks for signals
RETRY_SECONDS: Final = 0.5  # how long to wait with what could not be done

log = Log("deriving")


class Deriving:
    """Derives for one domain, while this process is the one to do so."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._lock = Lock(gateway.files.data / LOCK, "deriving")
        settings = gateway.config.publish
        self.writer = StreamWriter(
            gateway.domain,
            gateway.follower,
            EventLog.open(gateway.domain.paths.log),
            DERIVED,
            window=settings.window,
            lease=gateway.config.gateway.lease,
            advertise=settings.advertise,
            clock=gateway.stamp,
            standing=gateway.standing,
            promise=gateway.config.times.promise,
        )
        self._deriver: Deriver | None = None
        self.rounds = 0
        """How often it has dealt with all that was signalled."""
        self.refused: Callable[[Subscription, str, HeadgateError], None] = _refused
        """Is told of each refusal, with the id that the event or row would have."""

    async def run(self) -> None:
        """Derive, or wait for whoever does to end."""
        run = self._gateway.run_blocking
        async with self._lock.when_free(LEAD_SECONDS):
            while True:
                pause = LOOK_SECONDS
                try:
                    if self._deriver is None:
                        self._deriver = await run(self._opened)
                    if await run(self._deriver.round):
                        pause = 0.0
                    else:
                        self.rounds += 1
                except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                    log.warning("not-derived", **fault(error))
                    pause = RETRY_SECONDS
                await asyncio.sleep(pause)

    def _opened(self) -> Deriver:
        gateway = self._gateway
        progress = DerivedProgress(gateway.domain.paths.shared(DerivedProgress.FILE))
        made = Deriver(
            gateway.domain,
            gateway.follower,
            self.writer,
            progress,
            promise_every=gateway.config.times.promise_every,
        )
        made.refused = self.refused
        return made

    def close(self) -> None:
        """Give the stream up, and let go of the files."""
        if self._deriver is not None:
            self._deriver.close()
        self.writer.release()
        self.writer.log.close()


def _refused(one: Subscription, _id: str, why: HeadgateError) -> None:
    log.warning("derived-refused", holder=one.id, code=why.code)
