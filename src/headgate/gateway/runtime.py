"""Everything that one gateway process holds, from opening to stopping.

Guarantees: what is opened is closed, in the opposite order. The ledger is looked at every `POLL_SECONDS`, so that what
another process commits is known here soon; a request looks for itself, so that it is answered by every change that
was acknowledged before it was sent.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from headgate.decide.statement_state import StatementState
from headgate.gateway.authority.authority import SMALL_CHARS, Authority
from headgate.gateway.authority.expiry import StandingClock
from headgate.gateway.authority.issuers import Issuers, silences
from headgate.gateway.authority.issuing import Service
from headgate.gateway.authority.revocation_stream import Bulletin
from headgate.gateway.authority.signed_types import SignedTypes
from headgate.gateway.delivery.quench import Quench
from headgate.gateway.delivery.readers import Readers
from headgate.gateway.federation.announcing import Announcer
from headgate.gateway.http.rate_limits import SECONDS_PACED, Paces
from headgate.gateway.http.request_reading import RequestReader
from headgate.gateway.http.sessions import Sessions
from headgate.gateway.http.worker_pool import Workers
from headgate.gateway.publishing.publisher import PublishService
from headgate.gateway.publishing.submissions import of_drafts
from headgate.gateway.publishing.writer import Writer
from headgate.gateway.roles.audit_events import refusals
from headgate.gateway.roles.certificates import Asker, RoleCertificates
from headgate.gateway.roles.service import RoleService, id_secret
from headgate.model.changes import EnterRole
from headgate.model.conditions import Argument
from headgate.model.errors import (
    HeadgateError,
    NotInForce,
    RoleDenied,
    StorageBusy,
    StorageFull,
    TooBusy,
    VersionConflict,
)
from headgate.model.roles import Service as Place
from headgate.node.config import Config, Files
from headgate.node.cursors import FILE, Cursors
from headgate.node.domain import Domain
from headgate.node.gateway_identity import coordinator_of, is_vouched, own_statements, shown, signs_of_life
from headgate.node.health import HealthWatch, NodeFacts, health
from headgate.node.ledger_follower import Follower
from headgate.node.logs import Log, fault
from headgate.node.metrics import Metrics
from headgate.node.peers import FILE as PEERS
from headgate.node.peers import Peers
from headgate.node.statement_register import FILE as REGISTER
from headgate.node.statement_register import StatementRegister
from headgate.node.watchers import FILE as WATCHERS
from headgate.node.watchers import Watchers
from headgate.protocol import messages as wire
from headgate.trust.bags import Bag
from headgate.trust.handshake import Challenger, plaintext_binding
from headgate.trust.keys import PrivateKey
from headgate.trust.positions import Positions
from headgate.trust.role_store import FileStore
from headgate.trust.role_table import RollingTable
from headgate.trust.tls import certificate_of, fingerprint

POLL_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 0.5
"""How long to wait with a ledger that could not be read."""
THREADS: Final = 8
"""Threads for work on files, beside the writer's."""
MAX_PAUSE: Final = 20.0
"""How long a large request waits before it is refused, in seconds."""
MAX_PRESENTING: Final = 4
"""Bags of statements that are judged at a time: strangers may show some, and the threads are everyone's."""
SHOWN_SECONDS: Final = 10.0
"""How often the gateway's own statements are read again."""
MAX_BROUGHT: Final = 2
"""Revocation lists that are verified at a time: they may be large, and anyone may bring one."""

T = TypeVar("T")
log = Log("gateway")


def _heard(done: asyncio.Future[bool]) -> None:
    """Whoever asked may be gone; what failed is tried again soon, and then told."""
    if not done.cancelled():
        done.exception()


def utc_now() -> datetime:
    """The gateway's clock."""
    return datetime.now(UTC)


class Gateway:
    """One gateway of a domain."""

    def __init__(
        self, config: Config, files: Files, name: str, port: int, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self.config = config
        self.files = files
        self.name = name
        self.clock = clock
        self.closing = asyncio.Event()
        self.metrics = Metrics()
        self.broker = PrivateKey.load(files.broker_key)
        self.positions = Positions.load(files.position_key)
        self.domain = Domain.open(files.data, clock)
        self.follower = Follower(self.domain)
        self.cursors = Cursors(files.data / FILE)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="files")
        self._watch = HealthWatch.open(files.data)
        self.readers = Readers(self)
        self.register = StatementRegister(files.data / REGISTER)
        self._versions = Paces(
            config.limits.versions_per_minute, what="made as many versions", setting="limits.versions_per_minute"
        )
        self._workers = Workers()
        self.reader = RequestReader(self._workers)
        self._refused = Paces(
            config.limits.refused_per_minute,
            what="sent as much that was refused",
            setting="limits.refused_per_minute",
        )
        self.authority = Authority(
            self.domain,
            self.follower,
            self.register,
            own=self.broker.public.did,
            audience=config.domain.name,
            guests=config.authority.guests,
            clock=clock,
            issuers=[one.key for one in config.issuers],
            refused=self.metrics.statement_refused,
            paced=self.pace_version,
            spent=self.spent,
            workers=self._workers,
        )
        self.service = Service(
            self.authority, self.register, self.broker, config.authority, name=config.domain.name, clock=clock
        )
        role_keys = FileStore(files.role_keys)
        self.roles = RoleService(
            self.domain,
            self.follower,
            RoleCertificates(
                RollingTable(self.broker, role_keys),
                role_keys,
                own=self.broker.public.did,
                audience=config.domain.name,
                lasting=timedelta(seconds=int(config.roles.certificate)),
            ),
            requests=config.roles.requests,
            secret=id_secret(self.broker),
            clock=clock,
        )
        self.signed_types = SignedTypes(self.authority, self.register)
        self.peers = Peers(files.data / PEERS)
        self.watchers = Watchers(files.data / WATCHERS)
        self.standing = StandingClock(self.domain, self.follower, clock, self.peers.heard)
        self.shown: tuple[str, ...] = ()
        self.brought = asyncio.Semaphore(MAX_BROUGHT)
        self.presenting = asyncio.Semaphore(MAX_PRESENTING)
        self.bulletin = Bulletin(
            self.service,
            self.run_blocking,
            self.closing,
            most=config.authority.watchers,
            heartbeat=config.authority.heartbeat,
        )
        self._issuers = Issuers(
            config.issuers,
            files.directory,
            files.data,
            self.authority,
            self.follower,
            self.register,
            self.run_blocking,
            heartbeat=config.authority.heartbeat,
            clock=clock,
            heard=self.metrics.list_heard,
        )
        self.sessions = Sessions(
            self.follower,
            self.broker,
            Challenger(self.broker, self._binding(port), secrets.token_bytes(32), clock),
            self.cursors,
            audience=config.domain.name,
            seconds=config.gateway.session,
            clock=clock,
            later=self._threads.submit,
        )
        self._writer = Writer(
            self.domain,
            self.follower,
            name,
            window=config.publish.window,
            lease=config.gateway.lease,
            clock=clock,
            standing=self.standing,
            paced=self.pace_version,
            workers=self._workers,
        )
        self.publisher = PublishService(
            self._writer, self.reader, config.publish.max_events, self._published, self.catch_up
        )
        self.announcer = Announcer(
            self.domain,
            self.follower,
            self.watchers,
            self._writer.publish,
            self.run_blocking,
            data=files.data,
            heartbeat=config.roles.heartbeat,
            clock=clock,
        )
        self.quench = Quench(self.follower, self.run_blocking)
        self._tasks: list[asyncio.Task[None]] = []
        self._refreshing: asyncio.Future[bool] | None = None

    @classmethod
    def open(cls, config: Config, files: Files, name: str, port: int | None = None) -> Gateway:
        """Open a gateway's files; nothing is served or written yet."""
        return cls(config, files, name, config.gateway.port if port is None else port)

    def _binding(self, port: int) -> str:
        if self.config.gateway.tls:
            return fingerprint(certificate_of(self.files.tls_certificate))
        return plaintext_binding(self.config.gateway.host, port)

    async def start(self) -> None:
        """Take the gateway's stream, and begin to follow ledger, deliveries and issuers."""
        await self.run_blocking(self._writer.start)
        await self.run_blocking(self.service.start, self.follower.state)
        await self.run_blocking(self._read_statements)
        await self.readers.start()
        for name, work in (
            ("follow the ledger", self._poll()),
            ("read statements", self._keep_reading()),
            ("watch the list", self.bulletin.watch()),
            ("follow issuers", self._issuers.run()),
            ("announce records", self.announcer.run()),
        ):
            self._tasks.append(asyncio.create_task(work, name=name))

    async def stop(self) -> None:
        """Finish what is under way and let go of everything."""
        self.closing.set()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        await self.readers.stop()
        await self.run_blocking(self._workers.stop)
        await self.run_blocking(self._writer.stop)
        self._threads.shutdown(wait=True)
        self._watch.close()
        self.register.close()
        self.peers.close()
        self.watchers.close()
        self.announcer.close()
        self.follower.close()
        self.cursors.close()
        self.domain.close()

    async def audit_refusal(
        self, asker: Asker, place: Place, wishes: Sequence[tuple[str, tuple[Argument, ...] | None]], denied: RoleDenied
    ) -> None:
        """Have a refusal of audited roles in the log before it is answered; if that cannot be, it is answered so."""
        state, now = self.follower.state, self.clock()
        asked = [EnterRole(role, place[0], role, args, asker.principal, None, now, place[1]) for role, args in wishes]
        drafts = refusals(state, asked, denied.failure)
        if drafts:
            outcome = await self._writer.publish(of_drafts(state.administrator, drafts))
            for refusal in outcome.refusals.values():
                raise refusal

    async def run_blocking(self, work: Callable[..., T], *args: Any) -> T:
        """Do work on files in another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    async def catch_up(self) -> None:
        """Know every version that anyone was told of before now, whichever gateway it was committed at.

        What has ended by the clock meanwhile ends first.
        """
        await self._catch_up()
        if self.standing.due(self.follower.state, self.clock()):
            try:
                await self.run_blocking(self.standing.settle)
            except (StorageFull, NotInForce, VersionConflict) as error:  # nothing is done by what has ended
                raise StorageBusy("what ended by the clock is not out of force yet", remedy="ask again") from error

    async def _catch_up(self) -> None:
        for _ in range(2):  # one that is under way may have begun before the newest version was there
            if not self.follower.behind():
                return
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.ensure_future(self.run_blocking(self.follower.refresh))
                self._refreshing.add_done_callback(_heard)
            try:
                await asyncio.shield(self._refreshing)  # one thread for all who wait, however long the file is held
            except StorageFull as error:  # a version that is not in force yet: who only reads can do nothing about it
                raise StorageBusy("the newest version is not in force yet", remedy="ask again later") from error

    async def _poll(self) -> None:
        while True:
            pause = POLL_SECONDS
            try:
                await self.catch_up()
            except Exception as error:  # noqa: BLE001 - a gateway that no longer follows would decide by old rights
                log.warning("ledger-not-read", **fault(error))
                pause = RETRY_SECONDS
            await asyncio.sleep(pause)

    def _read_statements(self) -> None:
        """Read the gateway's own statements, those that are good now."""
        now, name = self.clock(), self.config.domain.name
        found = shown(own_statements(self.files.statements), audience=name, now=now)
        was, self.shown = self.shown, (*found, *signs_of_life(found, self.register, name, now))
        root = coordinator_of(self.follower.state)
        if self.shown != was and (
            root is None
            or not is_vouched(self.shown, broker=self.broker.public.did, coordinator=root, audience=name, now=now)
        ):
            log.warning("not-vouched", reason="no chain leads from the coordinating domain to this gateway")

    async def _keep_reading(self) -> None:
        while True:
            await asyncio.sleep(SHOWN_SECONDS)
            try:
                await self.run_blocking(self._read_statements)
            except Exception as error:  # noqa: BLE001 - what was read before stays
                log.warning("statements-not-read", **fault(error))

    # -- what handlers ask ------------------------------------------------------------------------------------

    def pace_version(self, principal: str) -> None:
        """Count a version that a principal is about to make, or refuse it for now (`limits.versions_per_minute`).

        The administrator could change everything anyway, and its policy must get through.
        """
        if principal != self.follower.state.administrator:
            self._versions.count(principal, self.clock())

    def check_pace(self, principal: str) -> None:
        """Refuse whoever has made as many versions as it may, or let us search for as long."""
        if principal != self.follower.state.administrator:
            self._versions.check(principal, self.clock())

    def spent(self, principal: str, seconds: float) -> None:
        """Count time that was spent on finding out what follows from what a principal shows."""
        if principal != self.follower.state.administrator:
            self._versions.add(principal, self.clock(), int(seconds / SECONDS_PACED))

    async def open_bag(self, principal: str, texts: Sequence[str]) -> Bag:
        """The statements that a principal shows, if all are good."""
        if sum(map(len, texts)) <= SMALL_CHARS:
            return await self.run_blocking(self.authority.opened, texts, principal)
        try:
            return await asyncio.wrap_future(self.authority.opening(texts, principal))
        except HeadgateError as error:
            self.metrics.statement_refused(str(getattr(error, "reason", error.code)))
            raise

    async def wait_for_room(self, principal: str) -> None:
        """Let who has sent too much that was refused wait before a large request of it is read, or refuse that.

        Waiting costs a connection and nothing else, where a refusal would be followed by another try.
        """
        try:
            self._refused.check(principal, self.clock())
        except TooBusy as busy:
            await asyncio.sleep(min(busy.retry or 0.0, MAX_PAUSE))
            self._refused.check(principal, self.clock())

    def count_refused(self, principal: str, size: int) -> None:
        """A request of so many bytes was read for nothing."""
        self._refused.add(principal, self.clock(), size)

    def new_name(self) -> str:
        """A name that nobody else has."""
        return secrets.token_hex(8)

    def trimmed(self) -> dict[str, int]:
        """How far retention has taken the log."""
        return self.follower.trimmed()

    def health(self) -> wire.HealthAnswer:
        """How the node is."""
        try:
            found = health(self._facts())
        except HeadgateError as error:
            return wire.HealthAnswer("failing", [f"the files cannot be read: {error.code}"])
        return wire.HealthAnswer(found.status.value, list(found.reasons))

    def _facts(self) -> NodeFacts:
        now = self.clock()
        return replace(
            self._watch.look(now, holds_stream=self._writer.holds_stream),
            silent={
                one.name: one.seconds
                for one in silences(self.config.issuers, self.register, now, StatementState(self.follower.state).same)
            },
            certificates=len(self.follower.state.certificates),
        )

    def render_metrics(self) -> bytes:
        """Figures for Prometheus."""
        with suppress(HeadgateError):
            self.metrics.observe(self._facts())
            self.metrics.observe_peers(self.peers.statuses(self.follower.state.roles, self.clock()))
        self.metrics.sessions.set(self.sessions.known())
        return self.metrics.render()

    def _published(self, accepted: int, duplicates: int, refused: Counter[str]) -> None:
        if accepted:
            self.metrics.accepted(accepted)
        if duplicates:
            self.metrics.duplicate(duplicates)
        for code, count in refused.items():
            self.metrics.refused(code, count)
