"""The lease of a domain's pipeline: one process decides, and others wait to take over.

Guarantees: the lease is that of the deliveries, and its token fences the signals too: whatever a driver writes that has
lost it, however late, is refused in the transaction that would have written it. A holder on this machine whose process
is gone is taken over from at once, any other when its lease has lapsed. A lease that could not be renewed in time is
still good while nobody else took it.
Leaves out: Spark's checkpoint, which is not fenced: of two drivers that write the same batch there one fails, and since
offsets are written before a batch is decided, and once, the other goes on from what is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Final

from headgate.model.errors import Fenced, StorageBusy, StorageFull, StreamHeld
from headgate.model.values import micros
from headgate.node.logs import Log, fault
from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.log.event_log import holder_of_this_process, is_dead

LOOK_SECONDS: Final = 0.5
"""How often one that waits looks whether the lease is free."""

RENEWALS: Final = 3
"""How often a lease is renewed before it would lapse."""


class PipelineLease:
    """The lease of one process on the two stores that a pipeline writes."""

    def __init__(
        self,
        deliveries: DeliveryStore,
        signals: DeliveryStore,
        seconds: float,
        clock: Callable[[], datetime],
        log: Log,
    ) -> None:
        self._deliveries = deliveries
        self._signals = signals
        self._seconds = seconds
        self._clock = clock
        self._log = log
        self._holder = holder_of_this_process("pipeline")
        self._thread: threading.Thread | None = None
        self.token = 0
        self.lost = False
        """Has another process taken it?"""

    def take(self) -> None:
        """Take the lease now; `StreamHeld` if another process has it."""
        now, ttl = micros(self._clock()), round(self._seconds * 1e6)
        # Past the token of the signals too: deliveries may have been deleted, to be made again from the log.
        floor = self._signals.lease().token
        self.token = self._deliveries.take(self._holder, now, ttl, floor=floor, dead=is_dead)
        self._signals.fence(self.token, self._holder, now + ttl)

    def wait(self, stop: threading.Event, waiting: Callable[[str], None]) -> bool:
        """Take the lease as soon as it is free; `waiting` is told once for whom. False if told to stop before."""
        told = False
        while not stop.is_set():
            held = self._deliveries.lease()
            if micros(self._clock()) >= held.expires or is_dead(held.holder):
                try:
                    self.take()
                except (StreamHeld, Fenced, StorageBusy):  # another that waited was first, or the old one is writing
                    pass
                else:
                    return True
            if not told:
                waiting(held.holder)
                told = True
            stop.wait(LOOK_SECONDS)
        return False

    def keep(self, stop: threading.Event) -> None:
        """Renew it in a thread, until told to stop; if it is lost, everything is told to."""
        self._thread = threading.Thread(target=self._renew, args=(stop,), name="lease", daemon=True)
        self._thread.start()

    def _renew(self, stop: threading.Event) -> None:
        ttl = round(self._seconds * 1e6)
        while not stop.wait(self._seconds / RENEWALS):
            try:
                now = micros(self._clock())
                self._deliveries.renew(self.token, now, ttl)
                self._signals.renew(self.token, now, ttl)
            except Fenced:
                self.lost = True
                self._log.error("lease-lost")
                stop.set()
            except (StorageBusy, StorageFull) as error:
                self._log.warning("lease-not-renewed", **fault(error))

    def release(self) -> None:
        """Let others have it at once."""
        if self._thread is not None:
            self._thread.join()
        self._deliveries.release(self.token)
        self._signals.release(self.token)
