"""Everything that one gateway process holds, from opening to stopping.

Guarantees: what is opened is closed, in the opposite order. The ledger is looked at every `POLL_SECONDS`, so that what
another process commits is known here soon; a request looks for itself, so that it is answered by every change that
was acknowledged before it was sent.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from headgate.commands import commit, event_types, expiry, issuing, peer_roles, role_certificates, roles, sessions
from headgate.commands.publishing.stream_writer import StreamWriter
from headgate.commands.statements import SMALL_CHARS, Authority
from headgate.gateway.authority.issuers import Bulletin, Issuers
from headgate.gateway.delivery.readers import Readers
from headgate.gateway.http.request_reading import RequestReader
from headgate.gateway.http.worker_pool import Workers
from headgate.gateway.publishing.deriving import Deriving
from headgate.gateway.publishing.publisher import PublishService, Quench
from headgate.gateway.publishing.writer import Writer
from headgate.gateway.roles.announcing import Announcer
from headgate.model.errors import HeadgateError, NotInForce, StorageBusy, StorageFull, VersionConflict
from headgate.node import statement_register as statements
from headgate.node.config import Config, Files
from headgate.node.cursors import Cursors
from headgate.node.domain import Domain, Follower, utc_now
from headgate.node.health import HealthWatch, Metrics, NodeFacts, Status, health, horizon_lags
from headgate.node.logs import Log, fault
from headgate.node.peers import Peers, Watchers
from headgate.pipeline.log.event_log import EventLog
from headgate.protocol import messages as wire
from headgate.trust import handshake, role_keys, tls
from headgate.trust.keys import PrivateKey
from headgate.trust.positions import Positions
from headgate.trust.presented import PresentedStatements

POLL_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 0.5  # how long to wait with a ledger that could not be read
HEALTH_SECONDS: Final = 3.0  # how long whoever asks how the node is waits for what it is asked of
THREADS: Final = 8  # threads for work on files, beside the writer's
MAX_PRESENTING: Final = 4
"""Bags of statements that are judged at a time: strangers may show some, and the threads are everyone's."""
SHOWN_SECONDS: Final = 10.0  # how often the gateway's own statements are read again
MAX_BROUGHT: Final = 2  # revocation lists that are verified at a time: they may be large, and anyone may bring one

T = TypeVar("T")
log = Log("gateway")


def _heard(done: asyncio.Future[None]) -> None:
    """Whoever asked may be gone; what failed is tried again soon, and then told."""
    if not done.cancelled():
        done.exception()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFiles:
    """The files of a domain that one gateway has open."""

    broker: PrivateKey
    positions: Positions
    domain: Domain
    follower: Follower
    cursors: Cursors
    register: statements.StatementRegister
    peers: Peers
    watchers: Watchers
    health: HealthWatch

    @classmethod
    def open(cls, files: Files, clock: Callable[[], datetime]) -> OpenFiles:
        """Open them all."""
        domain = Domain.open(files.data, clock)
        return cls(
            broker=PrivateKey.load(files.broker_key),
            positions=Positions.load(files.position_key),
            domain=domain,
            follower=Follower(domain),
            cursors=Cursors(domain.paths.shared(Cursors.FILE)),
            register=statements.StatementRegister(domain.paths.shared(statements.StatementRegister.FILE)),
            peers=Peers(domain.paths.shared(Peers.FILE)),
            watchers=Watchers(domain.paths.shared(Watchers.FILE)),
            health=HealthWatch.open(files.data),
        )

    def close(self) -> None:
        """Let go of them, the last first."""
        for one in (self.health, self.watchers, self.peers, self.register, self.cursors, self.follower, self.domain):
            one.close()


class OwnStatements:
    """What a gateway shows of itself to whoever connects."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.shown: tuple[str, ...] = ()

    def read(self) -> None:
        """Read the gateway's own statements, those that are good now."""
        gateway, now, name = self._gateway, self._gateway.clock(), self._gateway.config.domain.name
        good = statements.shown(statements.own_statements(gateway.files.statements), audience=name, now=now)
        was, self.shown = self.shown, (*good, *statements.signs_of_life(good, gateway.register, name, now))
        root, own = statements.coordinator_of(gateway.follower.state), gateway.broker.public.did
        if self.shown != was and (
            root is None or not statements.is_vouched(self.shown, broker=own, coordinator=root, audience=name, now=now)
        ):
            log.warning("not-vouched", reason="no chain leads from the coordinating domain to this gateway")

    async def keep_reading(self) -> None:
        """Read them again and again."""
        while True:
            await asyncio.sleep(SHOWN_SECONDS)
            try:
                await self._gateway.run_blocking(self.read)
            except Exception as error:  # noqa: BLE001 - what was read before stays
                log.warning("statements-not-read", **fault(error))


class Gateway:
    """One gateway of a domain, of files that `open` opens."""

    def __init__(
        self,
        config: Config,
        files: Files,
        name: str,
        opened: OpenFiles,
        *,
        port: int | None,
        clock: Callable[[], datetime],
        stamp: Callable[[], datetime],
    ) -> None:
        self.config, self.files, self.name, self.opened = config, files, name, opened
        self.clock, self.stamp = clock, stamp
        self.broker, self.positions = opened.broker, opened.positions
        self.domain, self.follower = opened.domain, opened.follower
        self.cursors, self.register = opened.cursors, opened.register
        self.peers, self.watchers = opened.peers, opened.watchers
        self.closing = asyncio.Event()
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="files")
        self.workers, self.metrics = Workers(), Metrics()
        self.paces = commit.RequestPaces(
            self.follower,
            versions=config.limits.versions_per_minute,
            refused=config.limits.refused_per_minute,
            clock=clock,
        )
        self.standing = expiry.StandingClock(self.domain, self.follower, clock, self.peers.heard)
        self._looking: asyncio.Future[wire.HealthAnswer] | None = None
        self._refreshing: asyncio.Future[None] | None = None
        self.ledger = commit.LedgerAccess(self.domain, self.follower, self.paces.version)
        self.reader = RequestReader(self.workers)
        self.sessions = self._sessions(port)
        self._publishing()
        self._statements()
        self._role_services()
        self.readers = Readers(self)
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    def open(
        cls,
        config: Config,
        files: Files,
        name: str,
        port: int | None = None,
        clock: Callable[[], datetime] = utc_now,
        stamp: Callable[[], datetime] | None = None,
    ) -> Gateway:
        """Open a gateway's files; nothing is served or written yet.

        `stamp` gives the times of events where they are not the clock's, as in stories.
        """
        return cls(config, files, name, OpenFiles.open(files, clock), port=port, clock=clock, stamp=stamp or clock)

    def _sessions(self, port: int | None) -> sessions.Sessions:
        at = self.config.gateway
        if at.tls:
            binding = tls.fingerprint(tls.certificate_of(self.files.tls_certificate))
        else:
            binding = handshake.plaintext_binding(at.host, at.port if port is None else port)
        return sessions.Sessions(
            self.follower,
            self.broker,
            handshake.Challenger(self.broker, binding, secrets.token_bytes(32), self.clock),
            self.cursors,
            audience=self.config.domain.name,
            seconds=at.session,
            clock=self.clock,
            later=self.threads.submit,
        )

    def _publishing(self) -> None:
        settings = self.config.publish
        core = StreamWriter(
            self.domain,
            self.follower,
            EventLog.open(self.domain.paths.log),
            self.name,
            window=settings.window,
            lease=self.config.gateway.lease,
            advertise=settings.advertise,
            clock=self.stamp,
            standing=self.standing,
            promise=self.config.times.promise,
            paced=self.paces.version,
        )
        self.writer = Writer(core, self.workers, self.config.times.promise_every)
        self.deriving = Deriving(self)
        self.publisher, self.quench = PublishService(self), Quench(self)

    def _statements(self) -> None:
        settings, name = self.config.authority, self.config.domain.name
        self.authority = Authority(
            self.domain,
            self.follower,
            self.register,
            own=self.broker.public.did,
            audience=name,
            guests=settings.guests,
            clock=self.clock,
            issuers=[one.key for one in self.config.issuers],
            refused=self.metrics.statement_refused,
            paced=self.paces.version,
            spent=self.paces.spent,
            workers=self.workers,
        )
        self.service = issuing.Service(
            self.authority, self.register, self.broker, settings, name=name, clock=self.clock
        )
        self.signed_types = event_types.SignedTypes(self.authority, self.register)
        self.presenting, self.brought = asyncio.Semaphore(MAX_PRESENTING), asyncio.Semaphore(MAX_BROUGHT)
        self.own_statements, self.bulletin, self._issuers = OwnStatements(self), Bulletin(self), Issuers(self)

    def _role_services(self) -> None:
        settings, keys = self.config.roles, role_keys.FileStore(self.files.role_keys)
        certificates = role_certificates.RoleCertificates(
            role_keys.RollingTable(self.broker, keys),
            keys,
            own=self.broker.public.did,
            audience=self.config.domain.name,
            lasting=timedelta(seconds=int(settings.certificate)),
        )
        self.roles = roles.RoleService(
            self.domain,
            self.follower,
            certificates,
            requests=settings.requests,
            secret=roles.id_secret(self.broker),
            clock=self.clock,
        )
        self.record_watching = peer_roles.RecordWatching(self.roles, self.watchers)
        self.peer_roles = peer_roles.PeerRoles(
            roles=self.roles, peers=self.peers, run=self.run_blocking, catch_up=self.catch_up
        )
        self.announcer = Announcer(self)

    async def start(self) -> None:
        """Take the gateway's stream, and begin to follow ledger, deliveries and issuers."""
        await self.run_blocking(self.writer.start)
        await self.run_blocking(self.service.start, self.follower.state)
        await self.run_blocking(self.own_statements.read)
        await self.readers.start()
        for name, work in (
            ("follow the ledger", self._poll()),
            ("read statements", self.own_statements.keep_reading()),
            ("watch the list", self.bulletin.watch()),
            ("follow issuers", self._issuers.run()),
            ("announce records", self.announcer.run()),
            ("derive events", self.deriving.run()),
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
        await self.run_blocking(self.workers.stop)
        await self.run_blocking(self.writer.stop)
        self.threads.shutdown()
        self.announcer.close()
        self.deriving.close()
        self.opened.close()

    # -- the ledger, and other files --------------------------------------------------------------------------

    async def run_blocking(self, work: Callable[..., T], *args: Any, **how: Any) -> T:
        """Do work on files in another thread."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, partial(work, *args, **how))

    async def catch_up(self) -> None:
        """Know every version that anyone was told of before now; what has ended by the clock meanwhile ends first."""
        await self._refresh()
        if self.standing.overdue(self.follower.state):
            try:
                await self.run_blocking(self.standing.settle)
            except (StorageFull, NotInForce, VersionConflict) as error:  # nothing is done by what has ended
                raise StorageBusy("what ended by the clock is not out of force yet", remedy="ask again") from error

    async def _refresh(self) -> None:
        is_local = self.cursors.is_local  # else even asking may take long, and nobody else may wait for it
        for _ in range(2):  # one that is under way may have begun before the newest version was there
            if is_local and not self.follower.behind():
                return
            is_new = self._refreshing is None or self._refreshing.done()
            if self._refreshing is None or is_new:
                self._refreshing = asyncio.ensure_future(self.run_blocking(self._look))
                self._refreshing.add_done_callback(_heard)
            try:
                await asyncio.shield(self._refreshing)  # one thread for all who wait, however long the file is held
            except StorageFull as error:  # a version that is not in force yet: who only reads can do nothing about it
                raise StorageBusy("the newest version is not in force yet", remedy="ask again later") from error
            if is_new and not is_local:
                return

    def _look(self) -> None:
        """Take in what others have written: versions, and sessions that have ended."""
        if not self.cursors.is_local:
            self.cursors.look()
        self.follower.refresh()

    async def _poll(self) -> None:
        while True:
            pause = POLL_SECONDS
            try:
                await self.catch_up()
            except Exception as error:  # noqa: BLE001 - a gateway that no longer follows would decide by old rights
                log.warning("ledger-not-read", **fault(error))
                pause = RETRY_SECONDS
            await asyncio.sleep(pause)

    # -- what handlers ask ------------------------------------------------------------------------------------

    async def open_presented(self, principal: str, texts: Sequence[str]) -> PresentedStatements:
        """The statements that a principal shows, if all are good."""
        if sum(map(len, texts)) <= SMALL_CHARS:
            return await self.run_blocking(self.authority.opened, texts, principal)
        try:
            return await asyncio.wrap_future(self.authority.opening(texts, principal))
        except HeadgateError as error:
            self.metrics.statement_refused(str(getattr(error, "reason", error.code)))
            raise

    async def health(self) -> wire.HealthAnswer:
        """How the node is. One looks for all who ask, and what does not answer is not waited for."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self.run_blocking(self._health))
        try:
            return await asyncio.wait_for(asyncio.shield(self._looking), HEALTH_SECONDS)
        except TimeoutError:
            return wire.HealthAnswer("failing", ["the files or the database do not answer"])

    def _health(self) -> wire.HealthAnswer:
        try:
            report = health(self._facts())
        except HeadgateError as error:
            where = "files" if self.cursors.is_local else "files or the database"
            return wire.HealthAnswer("failing", [f"the {where} cannot be read: {error.code}"])
        return wire.HealthAnswer(report.status.value, list(report.reasons))

    def _facts(self) -> NodeFacts:
        now = self.clock()
        return replace(
            self.opened.health.look(now, holds_stream=self.writer.core.holds_stream),
            silent=self._issuers.silences(now),
            certificates=len(self.follower.state.certificates),
        )

    def observe(self) -> None:
        """Bring the figures up to date."""
        try:
            self.metrics.observe(self._facts())
            promised = self.opened.health.promised()
            self.metrics.observe_horizons(horizon_lags(promised, self.follower.state.types, self.clock()))
            self.metrics.observe_peers(self.peers.statuses(self.follower.state.roles, self.clock()))
        except HeadgateError:
            self.metrics.observe_status(Status.FAILING)
        self.metrics.sessions.set(self.sessions.known())

    def render_metrics(self) -> bytes:
        """Figures for Prometheus."""
        self.observe()
        return self.metrics.render()
