"""The pipeline as the stage a scenario is played on.

Guarantees: a domain in a temporary directory: the ledger, the log, the streaming query and its checkpoint. A crash
strikes the query at a point chosen by chance, in whatever it has left to do when that is asked for, or else in what it
does next; each strikes once.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Protocol

from headgate.commands import event_types
from headgate.commands.commit import LedgerAccess, commit
from headgate.commands.delivery.local import read_deliveries
from headgate.commands.expiry import StandingClock
from headgate.commands.peer_roles import hear_peer, mirror_roles
from headgate.commands.policy import change_policy
from headgate.commands.publishing.local import LocalPublisher
from headgate.commands.role_certificates import Asker, RoleCertificates
from headgate.commands.roles import RoleService
from headgate.commands.statements import Authority
from headgate.commands.subscriptions import subscribe, subscribe_together, unsubscribe
from headgate.decide.composite import Signal
from headgate.model import changes
from headgate.model.authority import Certificate, Identity, RevocationList
from headgate.model.changes import Batch
from headgate.model.errors import BadDefinition, HeadgateError, NotFound, RoleDenied, UnknownName
from headgate.model.events import Draft, Event
from headgate.model.rights import Subscription
from headgate.model.roles import RoleBook
from headgate.model.state import State
from headgate.model.types import EventType
from headgate.model.values import EPOCH
from headgate.node.domain import Domain, Follower
from headgate.node.statement_register import StatementRegister
from headgate.pipeline.paths import DETECTION_POINTS, POINTS
from headgate.pipeline.spark.detecting import DetectionQuery
from headgate.pipeline.spark.jobs import Pipeline
from headgate.roles.certificates.remote_records import FollowState
from headgate.scenario.engines.detections import in_order
from headgate.scenario.engines.domain_detections import DomainDetections, is_detected
from headgate.scenario.engines.play import (
    DerivedOutcome,
    Got,
    LocalStage,
    ScenarioOutcome,
    StoryPipeline,
    StoryStage,
    detecting_streams,
    not_found_as,
    play,
)
from headgate.scenario.format import story
from headgate.trust.keys import PrivateKey
from headgate.trust.presented import PresentedStatements
from headgate.trust.role_keys import FileStore, RollingTable

_NOBODY: Final = ""
"""The key of a service that issues for the domain: in a story every issuer has its own."""
_STRANGERS: Final = 100
"""Principals that may come by themselves."""
_UNPACED: Final = sys.maxsize
"""How much may be asked for: the clock of a story may stand, so that all of it is one minute."""


class StoryDomain(Domain):
    """A domain whose versions have the narrator's notes, where there are any."""

    note = ""

    def commit(
        self,
        batch: Batch,
        *,
        expect: int | None = None,
        rebase: Callable[[State], Batch] | None = None,
        check: Callable[[State], None] | None = None,
    ) -> int:
        """Apply a batch; returns its version."""
        return super().commit(replace(batch, note=self.note or batch.note), expect=expect, rebase=rebase, check=check)


class DomainStage(LocalStage):
    """A domain in a directory, of which everything is asked by the functions that its gateways ask (`commands`).

    Ids of subscriptions and credentials are those of the file, and every step makes one version.
    """

    def __init__(self, scenario: story.Scenario, directory: Path, now: datetime = EPOCH) -> None:
        super().__init__(scenario, now)
        self._detecting = detecting_streams(scenario)
        self.domain = StoryDomain.create(directory, self.clock, administrator=story.ADMINISTRATOR)
        self.events: list[Event] = []
        # `versions:` are those of the file's own steps
        self.publisher = LocalPublisher(self.domain, advertise=False, clock=self.clock)
        self.follower = Follower(self.domain)
        self.register = StatementRegister(self.domain.paths.shared(StatementRegister.FILE))
        self.ledger = LedgerAccess(self.domain, self.follower)
        self.standing = StandingClock(self.domain, self.follower, self.clock)
        self.authority = Authority(
            self.domain,
            self.follower,
            self.register,
            own=_NOBODY,
            audience=directory.name,
            guests=_STRANGERS,
            clock=self.clock,
        )
        self.detections: DomainDetections | None = None
        """There, once there has been a detection."""
        self._unheard: dict[str, RevocationList] = {}
        """Revocation lists that the domain had no use for when they came, by issuer."""
        self._new_id = ""

    def close(self) -> None:
        """Let go of the files."""
        if self.detections is not None:
            self.detections.close()
        self.register.close()
        self.follower.close()
        self.domain.close()

    def clock(self) -> datetime:
        """What the clock says."""
        return self.now

    @cached_property
    def _key(self) -> PrivateKey:
        """The key of whoever signs certificates about roles, and asks for them: here nobody has to prove it."""
        return PrivateKey.generate()

    @cached_property
    def roles(self) -> RoleService:
        """The role services."""
        directory = self.domain.paths.directory / "role-keys"
        directory.mkdir(mode=0o700)
        store, own = FileStore(directory), self._key.public.did
        certificates = RoleCertificates(
            RollingTable(self._key, store), store, own=own, audience=directory.name, lasting=timedelta(days=1)
        )
        return RoleService(
            self.domain,
            self.follower,
            certificates,
            requests=_UNPACED,
            secret=b"",
            clock=self.clock,
            new_id=lambda _role: self._new_id,
        )

    def state(self) -> State:
        """The newest state."""
        return self.domain.ledger.state()

    def why(self, id: str) -> str:
        """Why a membership ended."""
        return next((reason for _, reason in reversed(self.domain.ledger.endings(id))), "")

    def begin(self, policy: Batch) -> None:
        """Put the first batch in force; the streams that count for detections are there from the start."""
        super().begin(policy)
        for stream in self._detecting:
            self.publisher.hold(stream)

    def tell(self, at: datetime) -> None:
        """The clock comes to a time, which detections learn."""
        super().tell(at)
        for stream in self._detecting[:1]:
            self.publisher.pass_time(at, stream=stream)

    def send(self, draft: Draft, stream: str, at: datetime) -> Event:
        """Admit an event at the newest version, and place it."""
        self.events.append(self.publisher.publish(draft, stream=stream, now=at))
        return self.events[-1]

    def heartbeat(self, step: story.HeartbeatStep) -> None:
        """Have a stream promise, as whoever publishes there asks it; without anybody, as the operator does."""
        super().heartbeat(step)
        for who in step.callers or (story.ADMINISTRATOR,):
            self.publisher.heartbeat(who, step.horizon, stream=step.stream)

    def commit(self, batch: Batch) -> None:
        """The next version, as someone asks for it."""
        change_policy(self.ledger, batch.author, batch.changes, batch.note)

    def expire(self, at: datetime) -> None:  # noqa: ARG002 - the clock says it
        """The domain lets fall what has ended; a moment of the story is a version, even if nothing has."""
        with self._one_version():
            self.standing.settle()

    @contextmanager
    def _one_version(self) -> Iterator[None]:
        """Whatever is done makes a version, even if it changes nothing."""
        before = self.state()
        yield
        if self.state().version == before.version:
            self.commit(Batch(before.administrator))

    # -- steps --------------------------------------------------------------------------------------------------

    def carry_out(self, step: story.CommitStep) -> None:
        """Ask it of the domain, as a gateway does for its clients."""
        batch = step.batch(self.state())
        with self._one_version():
            match step, batch.changes:
                case story.ConnectStep(), _:
                    self.connect(step)
                case story.ChangeStep(), _:
                    self.commit(batch)
                case story.SubscribeStep(), [changes.Subscribe(wanted)] if wanted.id not in self.state().subscriptions:
                    subscribe(self.ledger, wanted, most=_UNPACED)
                case story.SubscribeStep(), _:
                    together = [one.change().subscription for one in step.subscriptions]
                    subscribe_together(self.ledger, batch.author, together, most=_UNPACED)
                case story.DetectStep(), [changes.Subscribe(wanted)]:
                    self._detect(wanted, batch.author)
                case story.UnsubscribeStep(), _:
                    with not_found_as(UnknownName):
                        unsubscribe(self.ledger, batch.author, step.id)
                case _, [changes.MirrorRole() | changes.HearPeer() as told]:
                    hear_of_peer(self.domain, self.follower, told, self.clock)
                case story.RoleStep(), [request]:
                    self._ask(request, self.state().roles)
                case _, [changes.Advertise(principal, name)]:
                    event_types.advertise(self.ledger, principal, name)
                case _, [changes.Unadvertise(principal, name)]:
                    with suppress(NotFound):  # what is not advertised is taken back without effect
                        event_types.unadvertise(self.ledger, principal, name)
                case _, [changes.DeclareType(new)]:
                    self.declare(new)
                case _, [changes.RetireType(name)]:
                    event_types.retire(self.ledger, batch.author, name)
                case _, [changes.Revoke(revocations)]:
                    self.hear(revocations)
                case _:
                    self.commit(batch)

    def _detect(self, wanted: Subscription, author: str) -> None:
        """A detection begins."""
        if wanted.id in self.state().subscriptions:
            raise BadDefinition(f"the subscription `{wanted.id}` is there already", remedy="end it first")
        if self.detections is None:
            self.detections = DomainDetections(self.domain, self.ledger, self.clock)
        self.detections.begin(wanted, author, _UNPACED)

    def declare(self, new: EventType) -> None:
        """The administrator declares a type."""
        event_types.declare(self.ledger, story.ADMINISTRATOR, new)

    def connect(self, step: story.ConnectStep) -> None:
        """A principal shows statements, with the revocation lists that go with them; nothing here is signed."""
        statements = [self._scenario.statements[id] for id in step.shown]
        issuers = dict.fromkeys(one.issuer for one in statements)
        bag = PresentedStatements(
            certificates=tuple(one for one in statements if isinstance(one, Certificate)),
            identities=tuple(one for one in statements if isinstance(one, Identity)),
            lists=tuple(self._unheard[issuer] for issuer in issuers if issuer in self._unheard),
        )
        self.authority.take_up(self.state().key_of(step.principal), bag)

    def hear(self, revocations: RevocationList) -> None:
        """An issuer's revocation list comes; one that nothing rests on is kept for when something is shown."""
        self._unheard.pop(revocations.issuer, None)
        try:
            self.authority.hear(revocations, followed=False)
        except NotFound:
            self._unheard[revocations.issuer] = revocations

    def _ask(self, request: changes.Change, book: RoleBook) -> None:
        """Ask something of a role service; what it does by itself is the administrator's."""
        roles, ask = self.roles, self._asker
        match request:
            case changes.GrantRole(id, service, role, args, to, instance, appointment, until):
                self._name(id, book)
                place = service, instance
                roles.grant(ask(None), place, (role, args), to, appointment=appointment, until=until)
            case changes.EnterRole(id, service, role, args, principal, using, _, instance, origin):
                self._name(id, book)
                roles.enter(ask(principal, origin), (service, instance), [(role, args)], using, None)
            case changes.ElectRole(id, service, role, args, principal, using) as asked:
                self._name(id, book)
                roles.elect(
                    ask(principal),
                    (service, asked.instance),
                    (role, args),
                    using,
                    asked.required,
                    until=asked.until,
                    revoke_on_exit=asked.revoke_on_exit,
                )
            case changes.RevokeRole() | changes.ReinstateRole() as asked:
                place = asked.service, asked.instance
                roles.by_role(type(asked), ask(asked.principal), place, (asked.role, asked.args), asked.using)
            case changes.PassRevocation(id, by, to):
                # One that has ended is not found, whoever asks.
                with not_found_as(RoleDenied, failure="misuse") if id in book.elections else nullcontext():
                    roles.pass_on(ask(by), id, to)
            case changes.EndCredential(id, by):
                with not_found_as(RoleDenied, failure="misuse"):
                    if by is not None and id in book.memberships:
                        roles.leave(ask(by), id)
                    else:
                        roles.revoke(ask(by), id=id)

    def _asker(self, principal: str | None, origin: str | None = None) -> Asker:
        return Asker(principal or story.ADMINISTRATOR, self._key.public.did, origin)

    def _name(self, id: str, book: RoleBook) -> None:
        """What is asked for next has this id, which must be free."""
        if book.credential(id) is not None:
            raise BadDefinition(f"`{id}` already names a membership or election", remedy="choose another id")
        self._new_id = id


def hear_of_peer(
    domain: Domain, follower: Follower, told: changes.MirrorRole | changes.HearPeer, clock: Callable[[], datetime]
) -> None:
    """Take up what a service of another domain says, as the process does that follows it."""
    ledger, peer = partial(commit, domain, follower), told.peer
    match told:
        case changes.MirrorRole(holder=holder):
            note = f"{holder} shows roles of {peer}"
            mirror_roles(ledger, lambda state: state.roles.peers[peer], [told], None, clock=clock, note=note)
        case changes.HearPeer(_, number, states, heard):
            known, note = FollowState(number=number, heard=heard), f"{peer} was heard"
            # That process would keep beside the ledger when the peer was heard.
            hear_peer(ledger, lambda state: state.roles.peers[peer], known, states, clock=clock, note=note, sign=True)


class SparkStage(DomainStage):
    """Such a domain, and the pipeline that decides on its deliveries."""

    def __init__(self, scenario: story.Scenario, directory: Path, pipeline: Callable[[Domain], StoryPipeline]) -> None:
        super().__init__(scenario, directory)
        self.pipeline = pipeline(self.domain)
        for name, target in scenario.predicates.items():
            self.domain.register_predicate(name, target, scenario.file.parent)

    def crash(self) -> None:
        """Let the query fail, and start again."""
        self.pipeline.crash()

    def deliveries(self) -> dict[str, list[Got]]:
        """Every delivery, subscription by subscription in the order they began."""
        every = [s for s, _ in self.domain.ledger.all_subscriptions(self.domain.ledger.version)]
        if not every or any(one.detection is None for one in every):  # else the log is read by detections
            self.pipeline.finish()
        names = {} if self.detections is None else self.detections.names
        positions = {event.id: n for n, event in enumerate(self.events)}
        received: list[list[Got]] = [[] for _ in every]
        for _, d in read_deliveries(self.domain):
            received[d.subscription].append(Got(names.get(d.event, d.event), d.stream, d.seq, d.view))
        deliveries: dict[str, list[Got]] = {s.id: [] for s in every if s.detection is None}
        for subscription, got in zip(every, received, strict=True):
            if subscription.detection is None:
                deliveries[subscription.id] += sorted(got, key=lambda one: positions[one.event])
        return deliveries

    def signals(self) -> dict[str, list[Signal]]:
        """Every signal."""
        if self.detections is None:
            return {}
        if not is_detected(self.domain):
            self.pipeline.detect()
        return {id: in_order(signals) for id, signals in self.detections.signals().items()}

    def derive(self, enough: int | None = None) -> list[DerivedOutcome]:
        """Detect, publish and add, until that is enough or nothing more comes of it."""
        derived: list[DerivedOutcome] = []
        before = self.domain.ledger.version
        while len(derived) != enough and self.detections is not None and not self.detections.is_settled():
            self.pipeline.detect()
            derived += self.detections.derive()
        self.events += [one.event for one in derived if one.event is not None]
        for version in range(before, self.domain.ledger.version):
            self._audit_turns(self.domain.ledger.state(version), self.domain.ledger.state(version + 1))
        return derived


class ClosableStage(StoryStage, Protocol):
    """A stage with files and processes of its own."""

    def close(self) -> None:
        """Let go of them."""


def run_on_spark(
    stage: Callable[[story.Scenario, Path, Callable[[Domain], StoryPipeline]], ClosableStage],
    scenario: story.Scenario,
    session: Any,
    seed: int,
) -> ScenarioOutcome:
    """A scenario in a directory that is gone with it; the seed and the file's name choose where crashes strike."""
    choice = random.Random(f"{seed}:{scenario.file.name}")  # noqa: S311
    with tempfile.TemporaryDirectory(prefix="headgate-", ignore_cleanup_errors=True) as directory:
        world = stage(scenario, Path(directory), lambda domain: CrashingPipeline(domain, session, choice))
        with closing(world):
            return play(scenario, world)


def run_spark(scenario: story.Scenario, session: Any, seed: int) -> ScenarioOutcome:
    """A scenario on a domain and the pipeline, without a gateway."""
    return run_on_spark(SparkStage, scenario, session, seed)


_STRUCK: Final = "struck at `"
"""How the fault that was asked for shows in what Spark reports."""


class CrashingPipeline:
    """The streaming queries of a domain on a Spark session: that of deliveries, and that of detections."""

    def __init__(self, domain: Domain, session: Any, choice: random.Random) -> None:
        self._fault = domain.paths.fault
        self._ledger = domain.ledger
        self._pipeline = domain.pipeline(session)
        self._detecting = domain.detecting(session)
        self._choice = choice
        self.struck = 0
        """How many faults have struck."""

    def crash(self) -> None:
        """Run the query until the fault strikes it. Where there was nothing to do, the fault waits for its next run."""
        point = self._choice.choice(POINTS + DETECTION_POINTS if self._detects else POINTS)
        self._fault.write_text(point)
        self._run(self._detecting if point in DETECTION_POINTS else self._pipeline)

    def finish(self) -> None:
        """Decide everything there is; a fault that never found anything to strike is forgotten."""
        while not self._run(self._pipeline):
            pass  # each fault strikes once
        if not self._detects:
            self._fault.unlink(missing_ok=True)

    def detect(self) -> None:
        """Detect everything there is; likewise."""
        while not self._run(self._detecting):
            pass
        self._fault.unlink(missing_ok=True)

    @property
    def _detects(self) -> bool:
        """Has there been a detection?"""
        return any(one.detection is not None for one, _ in self._ledger.all_subscriptions(self._ledger.version))

    def _run(self, query: Pipeline | DetectionQuery) -> bool:
        """Run a query from its checkpoint to the end of the log; false if the fault struck on the way."""
        try:
            query.catch_up()
        except HeadgateError:
            raise
        except Exception as error:
            if _STRUCK not in str(error) or self._fault.exists():
                raise
            self.struck += 1
            return False
        return True
