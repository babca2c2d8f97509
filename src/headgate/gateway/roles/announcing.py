"""Telling other domains of our credential records, as events of our own (OASIS 4.9.2, 4.10).

Guarantees: one process of the node announces, whichever holds the lock; if it ends another takes over, in a new epoch.
Whatever the ledger changes in a record that is followed is published soon after, numbered without a gap for each who
follows each service. A heartbeat says that all that had changed until its time was published before it; where anything
cannot be read or published there is none, so that those who follow notice.
What becomes of audited roles is published likewise (decision 0034), in the order of versions, from an outbox that
follows from the ledger: how far it has come is written down only after that is in the log, and events that are
published again have the same ids, which the log takes once. So nobody enters a role without its event. A refusal makes
no version: it is in the log before it is answered.
Leaves out: who may follow (`commands.peer_roles`), what is remembered (`watchers`), requests (`routes`),
and which events there are of roles (`roles.requests.audit`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from operator import is_
from typing import TYPE_CHECKING, Final

from headgate.commands.peer_roles import declare, of_heartbeats, of_messages
from headgate.commands.publishing.submissions import Submission, SubmissionOutcome, of_drafts
from headgate.commands.role_certificates import Asker, records_of
from headgate.commands.roles import Wish
from headgate.model.changes import Batch, EnterRole, WatchRecords
from headgate.model.events import Draft
from headgate.model.limits import MAX_MESSAGES, MAX_WATCHER_SILENCE_SECONDS
from headgate.model.roles import RecordWatch, Reference, Service
from headgate.model.state import State
from headgate.node.auditor import Auditor
from headgate.node.logs import Log, fault
from headgate.node.peers import Pair, Row
from headgate.node.processes import Lock
from headgate.roles.requests import audit

if TYPE_CHECKING:
    from headgate.gateway.runtime import Gateway

LOCK: Final = "announcing.lock"
LEAD_SECONDS: Final = 1.0  # how often a gateway looks whether it is to announce
RETRY_SECONDS: Final = 0.25  # how long to wait with what could not be announced
TIDY_SECONDS: Final = 60.0  # how often what nobody follows any longer is put away

_SILENCE: Final = timedelta(seconds=MAX_WATCHER_SILENCE_SECONDS)
log = Log("announcing")

Publish = Callable[[Submission], Awaitable[SubmissionOutcome]]


async def publish_all(publish: Publish, drafts: Sequence[Draft]) -> None:
    """Publish events of one publisher, or raise why one of them was refused."""
    if drafts:
        outcome = await publish(of_drafts(drafts[0].publisher, drafts))
        for refusal in outcome.refusals.values():
            raise refusal


class Announcer:
    """Announces the records of one domain, while this process is the one to do so."""

    def __init__(self, gateway: Gateway, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._domain, self._follower, self._watchers = gateway.domain, gateway.follower, gateway.watchers
        self._publish, self._run_blocking = gateway.writer.publish, gateway.run_blocking
        self._heartbeat, self._clock, self._random = gateway.config.roles.heartbeat, gateway.clock, random
        self._lock = Lock(gateway.files.data / LOCK, "the announcer")
        self._auditor = Auditor(gateway.domain.paths.shared(Auditor.FILE), gateway.domain.ledger)
        self.leads = False
        self._epoch = ""
        self._rows: tuple[object, Sequence[Row]] = (None, ())
        self._compared: tuple[object, ...] = (None, None, None)
        self._unpublished: list[Draft] = []
        self._beat: datetime | None = None
        self._tidied: datetime | None = None

    async def run(self) -> None:
        """Announce, or wait for whoever does to end."""
        async with self._lock.when_free(LEAD_SECONDS):
            self.leads = True
            await self._announce()

    async def _announce(self) -> None:
        began = False
        while True:
            version, pause = self._follower.state.version, RETRY_SECONDS
            try:
                if not began:
                    await self._run_blocking(self.begin)
                    began = True
                pause = 0.0 if await self.round() else self._until_beat()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again, and meanwhile one is silent
                log.warning("not-announced", **fault(error))
                await asyncio.sleep(RETRY_SECONDS)
            await self._follower.wait_for_change(max(pause, 0.001), after=version)

    def _until_beat(self) -> float:
        """Until the next heartbeat; those who begin to follow at another gateway are found then, too."""
        if self._beat is None:
            return 0.0
        passed = (self._clock() - self._beat).total_seconds()
        return min(self._heartbeat, max(0.0, self._heartbeat - passed))

    async def audit_refusal(self, asker: Asker, place: Service, wishes: Sequence[Wish], failure: str) -> None:
        """Have a refusal of audited roles in the log before it is answered; if that cannot be, it is answered so."""
        state, now, nonce = self._follower.state, self._clock(), f".{secrets.token_hex(8)}"
        drafts: list[Draft] = []
        for role, args in wishes:
            asked = EnterRole(role, place[0], role, args, asker.principal, None, now, place[1])
            if (draft := audit.refusal(state, asked, failure, nonce)) is not None:
                drafts.append(draft)
        await publish_all(self._publish, drafts)

    # -- a new epoch ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin an epoch: whoever follows reads everything again."""
        self._epoch = self._random(8).hex()
        self._unpublished, self._beat = [], None
        self._watchers.begin(self._epoch, self._followed, self._clock())
        log.info("epoch", kind=self._epoch)

    def _followed(self) -> Iterable[Row]:
        """What the ledger says is followed, as it is now; the service is that of the membership."""
        self._follower.refresh()
        state = self._follower.state
        services = {one.record: one.service for one in state.roles.memberships.values()}
        known = records_of(state)
        for watch in state.roles.watches:
            service = services.get(watch.record)
            if service is not None:
                yield Row((watch.watcher, service), watch.record, known(watch.record))

    # -- announcing -------------------------------------------------------------------------------------------

    async def round(self) -> bool:
        """Publish what has changed, and a heartbeat if it is time; true if there is more to do at once."""
        at = self._clock()
        await self._audit()
        drafts, more = await self._run_blocking(self._news, at)
        self._unpublished += drafts
        await self._send()
        if more:
            return True
        if self._beat is None or not timedelta(0) <= at - self._beat < timedelta(seconds=self._heartbeat):
            beats = await self._run_blocking(self._beats, at)
            self._unpublished += beats
            await self._send()
            self._beat = at
        if self._tidied is None or not timedelta(0) <= at - self._tidied < timedelta(seconds=TIDY_SECONDS):
            self._tidied = at
            await self._run_blocking(self.tidy, at)
        return False

    async def _audit(self) -> None:
        """Publish what has become of audited roles; how far that is, is written down when it is in the log."""
        while True:
            await self._run_blocking(self._follower.refresh)
            state = self._follower.state
            drafts, upto = await self._run_blocking(self._auditor.pending, state.administrator, state.version)
            for at in range(0, len(drafts), MAX_MESSAGES):
                await publish_all(self._publish, drafts[at : at + MAX_MESSAGES])
            await self._run_blocking(self._auditor.done, upto)
            if upto >= state.version:
                return

    def close(self) -> None:
        """Let go of the files."""
        self._auditor.close()

    def _news(self, at: datetime) -> tuple[list[Draft], bool]:
        """The messages of what has changed since it was last announced, and whether there is more than that."""
        rows = self._all()  # before the ledger: who follows a record made it part of the ledger first
        self._follower.refresh()
        state = self._follower.state
        looked = rows, state.roles.records, state.roles.watches
        if all(map(is_, looked, self._compared)):
            return [], False
        if any(RecordWatch(row.pair[0], row.record) not in state.roles.watches for row in rows):
            self._watchers.keep(self._watched)  # whoever followed was removed, and what it followed with it
            return [], True
        known = records_of(state)
        news = [Row(row.pair, row.record, known(row.record)) for row in rows if known(row.record) is not row.state]
        some = news[:MAX_MESSAGES]
        if some:
            declare(self._domain, self._follower)
            made = self._watchers.announce(some, at)
            return of_messages(state.administrator, made), True
        self._compared = looked
        return [], False

    def _watched(self) -> Collection[RecordWatch]:
        self._follower.refresh()
        return self._follower.state.roles.watches

    def _all(self) -> Sequence[Row]:
        stamp = self._watchers.stamp()
        if self._rows[0] != stamp:
            self._rows = stamp, self._watchers.rows()
        return self._rows[1]

    def _beats(self, at: datetime) -> list[Draft]:
        self._watchers.announce([], at)
        there = self._follower.state.principals
        numbers: dict[Pair, int] = {}
        for pair, (number, _) in self._watchers.pairs().items():
            if pair[0] in there:
                numbers[pair] = number
            else:
                self._watchers.remove_watcher(pair)
                log.info("watcher-gone", holder=pair[0], kind=pair[1])
        if numbers:
            declare(self._domain, self._follower)
        return of_heartbeats(self._follower.state.administrator, self._epoch, numbers, at)

    async def _send(self) -> None:
        """Publish, in order; what cannot be is kept for the next time, under the same numbers."""
        while self._unpublished:
            some = self._unpublished[:MAX_MESSAGES]
            await publish_all(self._publish, some)
            del self._unpublished[: len(some)]

    # -- putting away -----------------------------------------------------------------------------------------

    def tidy(self, now: datetime) -> None:
        """Let go of records that are no more, and of those who have not read for MAX_WATCHER_SILENCE_SECONDS."""
        rows = list(self._all())
        gone = [pair for pair, (_, seen) in self._watchers.pairs().items() if seen + _SILENCE <= now]
        over = [row for row in rows if row.state is False or row.pair in gone]
        left = {(row.pair[0], row.record) for row in rows} - {(row.pair[0], row.record) for row in over}
        self._follower.refresh()
        ended = _unfollowed(self._follower.state, left)
        if ended:
            changes = tuple(WatchRecords(who, tuple(refs), watching=False) for who, refs in ended.items())
            note = "what is over, or was not read for long, is followed no longer"
            self._domain.commit(Batch(self._follower.state.administrator, changes, note))
        if over:
            self._watchers.forget(over)
        known = records_of(self._follower.state)
        self._watchers.forget_confirmed(row for row in self._watchers.confirmed() if known(row.record) is False)
        for pair in gone:
            self._watchers.forget_watcher(pair)
            log.info("watcher-gone", holder=pair[0], kind=pair[1])


def _unfollowed(state: State, left: set[tuple[str, Reference]]) -> dict[str, list[Reference]]:
    """What the ledger says is followed, and is not; records that are known to be so are left for the next time."""
    records: dict[str, list[Reference]] = {}
    for watch in sorted(state.roles.watches, key=lambda one: (one.watcher, one.record)):
        if (watch.watcher, watch.record) not in left:
            records.setdefault(watch.watcher, []).append(watch.record)
    return records
