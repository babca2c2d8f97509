"""A node as the stage of a scenario: every step is a request of a client that holds its key.

Guarantees: what a principal of the story does goes over HTTP, in a session that its key has proven, to a real gateway;
what a role service does for its own reasons is the administrator's. A subscription is read over a WebSocket from the
moment it is made, and all that the pipeline has decided for it is awaited, taken once and acknowledged. What is the
operator's own (the first policy, and what services of other domains say) is put into the domain's directory, as
commands on it do; what comes of signals is published and added by the gateways. Expressions go as the file writes
them. Versions and ids are those of the story (`story_keys`).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, assert_never

from headgate.client.aio import RESERVED, Client
from headgate.client.errors import SubscriptionEnded
from headgate.client.subscription import Delivery, Subscription
from headgate.commands.delivery.local import read_deliveries, read_signals
from headgate.commands.deriving import is_of_signal
from headgate.commands.subscriptions import ledger_id
from headgate.decide.composite import Signal
from headgate.decide.views import may_connect
from headgate.lang import render_condition
from headgate.lang.render import render_role
from headgate.model import changes, errors
from headgate.model.authority import Certificate, Identity, RevocationList
from headgate.model.events import Event
from headgate.model.rights import Action, Rule
from headgate.model.state import State
from headgate.model.values import EPOCH, Kind, Value, conform, micros, plain
from headgate.node.auditor import Auditor
from headgate.node.domain import Domain, Follower
from headgate.scenario.engines.detections import in_order
from headgate.scenario.engines.domain_detections import DerivedNames, is_detected
from headgate.scenario.engines.node_engine.served_node import LOOK_SECONDS, MAIN, PATIENCE, ServedNode
from headgate.scenario.engines.node_engine.story_keys import AuditNames, IssuedCredentials, StoryKeys, StoryVersions
from headgate.scenario.engines.play import (
    DerivedOutcome,
    Got,
    StoryPipeline,
    detecting_streams,
    not_found_as,
    turned_roles,
    wrong,
)
from headgate.scenario.engines.spark_engine import hear_of_peer
from headgate.scenario.format import story


class NodeWorld:
    """A node in a directory, and the clients of a story."""

    def __init__(
        self,
        scenario: story.Scenario,
        directory: Path,
        pipeline: Callable[[Domain], StoryPipeline],
        *,
        database: str | None = None,
    ) -> None:
        self._keys = StoryKeys(scenario)
        self._detecting = detecting_streams(scenario)
        # Every stream counts for detections, so that there is none but those of the file.
        main = MAIN if MAIN in self._detecting else next(iter(self._detecting), MAIN)
        self._node = ServedNode(directory, self._keys.administrator, main, database)
        self._domain = self._node.domain
        self._pipeline = pipeline(self._domain)
        for name, target in scenario.predicates.items():
            self._domain.register_predicate(name, target, scenario.file.parent)
        self._auditor = Auditor(self._domain.paths.shared(Auditor.FILE), self._domain.ledger)
        self._derived = DerivedNames(self._domain)
        self._derived.refused = self._node.refused
        self._versions = StoryVersions()
        self._credentials = IssuedCredentials()
        self._audit = AuditNames(self._versions, self._credentials)
        self._readers: list[Reader] = []
        self._detectors: list[Reader] = []
        """The detections that are read."""
        self._subscribers: dict[str, str] = {}
        """Who has, or had, the subscription of an id."""
        self._order: list[tuple[str, int]] = []
        """Every event, by stream and number, in the order in which they came to the log."""
        self._unheard: dict[str, str] = {}
        """Revocation lists that the node had no use for when they came, by issuer."""

    def close(self) -> None:
        """Stop the node."""
        self._auditor.close()
        self._node.close()

    def state(self) -> State:
        """The newest state."""
        return self._domain.ledger.state()

    def wrong(self, claim: story.Claim, at: datetime) -> str | None:
        """What is wrong about a claim, as the ledger of the node has it."""
        match claim:
            case story.HoldingClaim():
                return wrong(claim, self.state(), at)
            case story.StateClaim(id=id, statement=None):
                return wrong(replace(claim, id=self._credentials.node_id(id)), self.state(), at)
            case story.StateClaim(id=id):
                return wrong(replace(claim, statement=self._keys.statement_key(id)), self.state(), at)
            case _:
                assert_never(claim)

    def _client(self, principal: str, origin: str | None = None, stream: str | None = None) -> Client:
        return self._node.client(self._keys.key(principal), origin, stream)

    @property
    def _administrator(self) -> Client:
        return self._client(self._keys.administrator)

    # -- versions and the clock ---------------------------------------------------------------------------------

    def begin(self, policy: changes.Batch) -> None:  # noqa: ARG002 - it is the scenario's, with keys
        """Put the first policy in force, as the operator does, and start the node."""
        self._domain.commit(self._keys.policy())
        self._versions.add(self._domain.ledger.version)
        self._node.url()
        for stream in self._detecting:  # they count for detections from the start
            self._node.url(stream)

    def tell(self, at: datetime) -> None:
        """The clock comes to a time at which nothing happens, but that detections learn it."""
        self._node.clock.now = at
        for stream in self._detecting[:1]:
            self._node.run(self._administrator.whoami())  # the gateways have read the ledger
            self._domain.log.pass_time(stream, micros(at))

    def tick(self, at: datetime, *, ends: bool) -> None:
        """The clock comes to a time; the node lets fall what has ended before it answers anyone."""
        before = self.state()
        self._node.clock.now = at
        self._node.run(self._administrator.whoami())
        if ends or turned_roles(before, self.state()):
            self._made_version(before.version)

    def _made_version(self, before: int) -> None:
        """A step of the story is done: it is a version of the node, too, even if it changed nothing."""
        if self._domain.ledger.version == before:
            self._node.run(self._administrator.change([], note="a step that changes nothing"))
        self._versions.add(self._domain.ledger.version)
        self._await_audit()
        self._note_events()

    def _await_audit(self) -> None:
        """Wait until the gateway has published what became of audited roles."""
        if not any(rolefile.audits for rolefile in self.state().roles.rolefiles.values()):
            return
        deadline = time.monotonic() + PATIENCE
        while self._auditor.pending(self._keys.administrator, self._domain.ledger.version)[0]:
            if time.monotonic() > deadline:
                raise TimeoutError("the gateway does not publish what became of audited roles")
            time.sleep(LOOK_SECONDS)

    def _note_events(self) -> list[tuple[str, int]]:
        """The events that have come to the log since this was last asked."""
        known = Counter(stream for stream, _ in self._order)
        tails = self._domain.log.tails()
        new = [(stream, seq) for stream in sorted(tails) for seq in range(known[stream] + 1, tails[stream].last + 1)]
        self._order += new
        return new

    # -- steps --------------------------------------------------------------------------------------------------

    def publish(self, step: story.PublishStep) -> int:
        """Publish an event at the gateway of its stream; the version it was admitted at."""
        draft = step.draft
        client = self._client(draft.publisher, draft.origin, step.stream)
        self._node.clock.at = step.at
        try:
            sent = client.publish(draft.type, draft.values, id=draft.id, requires=step.requires, time=step.time)
            self._node.run(sent)
        finally:
            self._node.clock.at = None
        (place,) = self._note_events()
        return self._versions.of_story(self._domain.event(*place).version)

    def derive(self, enough: int | None = None) -> list[DerivedOutcome]:
        """Detect, and let the gateways publish and add what comes of it, until that is enough or nothing more does."""
        before = self._domain.ledger.version
        derived: list[DerivedOutcome] = []
        while len(derived) != enough and not is_detected(self._domain):
            self._pipeline.detect()
            self._node.run(self._node.derived())
            derived += self._derived.new()
        for version in self._domain.ledger.versions(before):
            if is_of_signal(version.note):  # a node advertises by itself what is published for the first time
                self._versions.add(version.version)
        self._await_audit()
        self._note_events()
        return [
            one if one.event is None else replace(one, event=replace(one.event, version=self._story_version(one.event)))
            for one in derived
        ]

    def _story_version(self, event: Event) -> int:
        return self._versions.of_story(event.version)

    def heartbeat(self, step: story.HeartbeatStep) -> None:
        """Have a stream promise, at its gateway; without anybody, as the operator does."""
        for who in step.callers or (self._keys.administrator,):
            self._node.run(self._client(who, stream=step.stream).heartbeat(step.horizon))

    def reserve(self, step: story.ReserveStep) -> None:
        """Have what may be wanted later kept."""
        asked = step.id, step.type, story.RESERVED_SECONDS, step.where
        self._node.run(self._client(step.principal).reserve(*asked, expression=step.expression))

    def take(self, step: story.CommitStep) -> None:
        """Take a step by requests of the principals who take it."""
        before = self._domain.ledger.version
        try:
            self._take(step)
        except errors.RoleDenied:
            for position in self._note_events():
                assert isinstance(step, story.RoleStep)
                assert isinstance(step.request, changes.EnterRole)
                self._audit.refused(self._domain.event(*position), step.request.id)
            raise
        self._made_version(before)

    def _take(self, step: story.CommitStep) -> None:
        match step:
            case story.SubscribeStep():
                self._subscribe(step.subscriptions)
            case story.UnsubscribeStep():
                client = self._client(self._subscribers.get(step.id, self._keys.administrator))
                with not_found_as(errors.UnknownName):
                    self._node.run(client.unsubscribe(step.id))
            case story.DetectStep():
                self._detectors.append(self._detect(step))
            case story.ChangeStep():
                client = self._client(step.author)
                self._node.run(client.change(_operations(step, self.state())))
            case story.ConnectStep():
                self._connect(step.principal, step.shown)
            case story.RoleStep(request=changes.MirrorRole()):
                self._heard_of_peers(step)
            case story.RoleStep():
                self._ask(step, self.state())
            case _:
                self._other(step)

    def _other(self, step: story.CommitStep) -> None:
        match step.changes:
            case [changes.Advertise(principal, name)]:
                self._node.run(self._client(principal).advertise(name))
            case [changes.Unadvertise(principal, name)]:
                with suppress(errors.NotFound):  # what is not advertised is taken back without effect
                    self._node.run(self._client(principal).unadvertise(name))
            case [changes.Revoke(found)]:
                self._hear(found)
            case [changes.SetPeer() | changes.HearPeer(), *_] | []:
                self._heard_of_peers(step)
            case others:
                self._node.run(self._client(step.author).change([_operation(change) for change in others]))

    def _heard_of_peers(self, step: story.CommitStep) -> None:
        """Put what a service of another domain says into the ledger, as the process does that follows it."""
        match step.batch(self.state()).changes:
            case [changes.HearPeer() | changes.MirrorRole() as told]:
                with closing(Follower(self._domain)) as follower:
                    hear_of_peer(self._domain, follower, told, lambda: self._node.clock.now)
                if isinstance(told, changes.MirrorRole):
                    self._credentials.add(told.id, told.id)
            case others:
                self._domain.commit(changes.Batch(self._keys.administrator, others))

    # -- roles --------------------------------------------------------------------------------------------------

    def _ask(self, step: story.RoleStep, state: State) -> None:
        """Ask something of a role service, as a client; what the service does by itself is the administrator's."""
        known, run = self._credentials, self._node.run
        match step.request:
            case changes.GrantRole(id, service, role, args, to, instance, appointment, until):
                roles = self._administrator.roles
                granted = run(
                    roles.grant(service, role, to, args, appointment=appointment, until=until, instance=instance)
                )
                known.add(id, granted.memberships[0].id)
            case changes.EnterRole(id, service, role, args, principal, using, _, instance, origin):
                roles = self._client(principal, origin).roles
                entered = run(roles.enter(service, role, args, using=known.node_ids(using), instance=instance))
                known.add(id, entered.memberships[0].id)
            case changes.ElectRole(id, service, role, args, principal, using) as asked:
                elected = run(
                    self._client(principal).roles.elect(
                        service,
                        role,
                        args,
                        to=[render_role(required) for required in asked.required],
                        anyone=not asked.required,
                        until=asked.until,
                        revoke_on_exit=asked.revoke_on_exit,
                        using=known.node_ids(using),
                        instance=asked.instance,
                    )
                )
                known.add(id, elected.election.id)
            case changes.EndCredential(id, by):
                self._end(known.node_id(id), by, state)
            case changes.PassRevocation(election, by, to):
                # One that has ended is not found, whoever asks.
                client, election = self._client(by), known.node_id(election)
                with (
                    not_found_as(errors.RoleDenied, failure="misuse")
                    if election in state.roles.elections
                    else nullcontext()
                ):
                    run(client.roles.pass_revocation(election, to))
            case changes.RevokeRole() | changes.ReinstateRole() as asked:
                roles = self._client(asked.principal).roles
                take = roles.revoke_role if isinstance(asked, changes.RevokeRole) else roles.reinstate
                shown = known.node_ids(asked.using)
                run(take(asked.service, asked.role, asked.args, using=shown, instance=asked.instance))
            case _:
                raise AssertionError("that is nothing that is asked of a role service")

    def _end(self, id: str, by: str | None, state: State) -> None:
        """End a membership or an election, as its holder, its elector or the service itself."""
        client = self._administrator if by is None else self._client(by)
        if id not in state.roles.memberships and id not in state.roles.elections:
            return
        with not_found_as(errors.RoleDenied, failure="misuse"):
            if by is not None and id in state.roles.memberships:
                self._node.run(client.roles.exit(id))
            else:
                self._node.run(client.roles.revoke(id=id))

    # -- subscriptions ------------------------------------------------------------------------------------------

    def _subscribe(self, wanted: tuple[story.SubscriptionText, ...]) -> None:
        """Make subscriptions, all or none."""
        made: list[Reader] = []
        try:
            made.extend(map(self._subscribed, wanted))
        except errors.HeadgateError:
            for reader in made:
                reader.undone = True
                self._node.run(reader.client.unsubscribe(reader.id))
            raise
        finally:
            self._readers += made

    def _subscribed(self, text: story.SubscriptionText) -> Reader:
        client = self._reading(text.id, text.principal, text.origin)
        start: Any = "start" if text.history else "now"
        if text.since_version:
            start = self._versions.of_node(text.since_version)
        elif text.reserved is not None:
            start = f"{RESERVED}{text.reserved}"
        elif text.since_time is not None:
            start = text.since_time
        made = self._node.run(
            client.subscribe(
                text.id,
                text.type,
                text.where,
                start,
                requires=text.requires,
                counting=self._credentials.node_ids(text.counted),
            )
        )
        return self._reader(text.id, text.principal, client, made)

    def _detect(self, step: story.DetectStep) -> Reader:
        """Make a detection; one that adds rows is made by the administrator, for whoever sees."""
        client = self._reading(step.id, step.principal)
        start: Any = "start" if step.history else "now"
        if step.since_version:
            start = self._versions.of_node(step.since_version)
        elif step.reserved is not None:
            start = f"{RESERVED}{step.reserved}"
        elif step.history and step.start != EPOCH:
            start = step.start
        author = client if step.adds is None else self._administrator
        asked = author.make_detection(
            step.expression, id=step.id, bind=step.bound, from_=start, publishes=step.publishes, adds=step.adds,
            for_=None if step.adds is None else self._keys.principal(step.principal),
        )  # fmt: skip
        self._node.run(asked)
        return self._reader(step.id, step.principal, client, self._node.run(client.resume(step.id)))

    def _reading(self, id: str, principal: str, origin: str | None = None) -> Client:
        """A client that reads one subscription of an id to its end.

        An id that is in use is refused: the format has one name space, where a node has one for each principal.
        """
        holder = self._subscribers.get(id)
        if holder is not None and ledger_id(self._keys.principal(holder), id) in self.state().subscriptions:
            self._client(principal, origin)
            raise errors.BadDefinition(f"the subscription `{id}` is there already", remedy="end it first")
        before = sum(1 for reader in (*self._readers, *self._detectors) if reader.id == id)
        return self._node.client(self._keys.key(principal), origin, number=before)

    def _reader(self, id: str, principal: str, client: Client, made: Subscription) -> Reader:
        self._subscribers[id] = principal
        name = ledger_id(self._keys.principal(principal), id)
        every = self._domain.ledger.all_subscriptions(self._domain.ledger.version)
        number = max(number for number, (one, _) in enumerate(every) if one.id == name)
        return Reader(id, number, client, made)

    def crash(self) -> None:
        """Let the pipeline fail, and start again."""
        self._pipeline.crash()

    def deliveries(self) -> dict[str, list[Got]]:
        """Every delivery that clients received, subscription by subscription in the order they began."""
        if self._readers or not self._detectors:  # else the log is read by detections
            self._pipeline.finish()
        self._let_everyone_in()
        counts = Counter(delivered.subscription for _, delivered in read_deliveries(self._domain))
        events = {event.id: event for event in self._domain.events()}
        order = {place: number for number, place in enumerate(self._order)}
        deliveries: dict[str, list[Got]] = {}
        for reader in self._readers:
            got = []
            for delivery in self._node.run(reader.read(counts[reader.number])):
                event = events[delivery.id]
                kinds = self._domain.ledger.state(event.version, subscriptions=False).types.attributes(event.type)
                view = self._audit.view(event, view_of(delivery, kinds))
                name = self._derived.names.get(event.id) or self._audit.of(event)
                got.append(Got(name, event.stream, event.seq, view))
            if not reader.undone:
                deliveries.setdefault(reader.id, []).extend(sorted(got, key=lambda one: order[one.stream, one.seq]))
        return deliveries

    def signals(self) -> dict[str, list[Signal]]:
        """Every signal that clients received, once all is detected; whoever has a detection may connect by now."""
        if not self._detectors:
            return {}
        if not is_detected(self._domain):
            self._pipeline.detect()
        stored = {(one.id, one.first, signal.id): signal.row for one, signal in read_signals(self._domain)}
        every = [one for one, _ in self._domain.ledger.all_subscriptions(self._domain.ledger.version)]
        counts = Counter((id, first) for id, first, _ in stored)
        signals: dict[str, list[Signal]] = {}
        for reader in self._detectors:
            one = every[reader.number]
            got = self._node.run(reader.read(counts[one.id, one.first]))
            rows = [stored[one.id, one.first, signal.id] for signal in got]
            for row, signal in zip(rows, got, strict=True):
                if {name: plain(value) for name, value in row.environment} != signal.data:
                    raise AssertionError(f"the signal `{signal.id}` came with other bindings than were stored")
            told = [Signal(row.time, row.environment) for row in rows]
            signals[reader.id] = in_order([*signals.get(reader.id, ()), *told])
        return signals

    def _let_everyone_in(self) -> None:
        """The story is over: let those read what waits for them who may no longer connect."""
        state = self.state()
        readers = {subscription.principal for subscription in state.subscriptions.values()}
        shut_out = sorted(name for name in readers if not may_connect(state, name))
        if shut_out:
            let_in = [Rule(f"after the story: {name}", name, frozenset({Action.CONNECT}), "*") for name in shut_out]
            self._domain.commit(
                changes.Batch(self._keys.administrator, tuple(changes.AddRule(rule, first=True) for rule in let_in))
            )

    # -- statements ---------------------------------------------------------------------------------------------

    def _connect(self, principal: str, shown: tuple[str, ...]) -> None:
        """Connect, and show statements with the revocation lists that go with them.

        Whoever may connect without them has a session, and shows them in it; others show them as they open one.
        """
        key, statements = self._keys.key(principal), [self._keys.statement(id) for id in shown]
        try:
            texts = [self._keys.shown(id, self._node.clock.now) for id in shown]
        except errors.BadStatement:
            self._present_unsigned(principal, statements)
            return
        issuers = dict.fromkeys(one.issuer for one in statements)
        texts += [self._unheard[issuer] for issuer in issuers if issuer in self._unheard]
        try:
            with self._node.showing(key, ()) as client:
                if texts:
                    self._node.run(client.present(texts))
        except errors.ConnectDenied:
            if not texts:
                raise
            with self._node.showing(key, texts):
                pass

    def _present_unsigned(self, principal: str, statements: Sequence[Certificate | Identity]) -> None:
        """Put certificates into the ledger that a file may show and nobody can sign: their conditions name groups."""
        given = tuple(self._keys.keyed(one) for one in statements if isinstance(one, Certificate))
        present = changes.Present(self._keys.principal(principal), given, self._node.clock.now)
        self._domain.commit(changes.Batch(self._keys.administrator, (present,)))
        with self._node.showing(self._keys.key(principal), ()):
            pass

    def _hear(self, revocations: RevocationList) -> None:
        """Bring an issuer's revocation list; one that nothing rests on is kept for when something is shown."""
        text = self._keys.signed_list(revocations)
        self._unheard.pop(revocations.issuer, None)
        try:
            self._node.run(self._administrator.bring_list(text))
        except errors.NotFound:
            self._unheard[revocations.issuer] = text


MOST: Final = 1_000
"""Deliveries that are taken at once."""


@dataclass(slots=True)
class Reader:
    """A subscription that a client reads."""

    id: str
    number: int
    """Which of all subscriptions of the ledger it is."""
    client: Client
    subscription: Subscription
    undone: bool = False
    """Was it made with others of which one was refused?"""

    async def read(self, count: int) -> list[Delivery]:
        """So many deliveries, which are all there are; those that wait for someone who may connect again as well."""
        deliveries: list[Delivery] = []
        async with asyncio.timeout(PATIENCE):
            while len(deliveries) < count:
                try:
                    deliveries += await self.subscription.take(MOST)
                except errors.ConnectDenied:  # it was put out meanwhile; what it has not acknowledged comes again
                    self.subscription = await self.client.resume(self.id)
                    deliveries = []
            with suppress(SubscriptionEnded):  # then nothing is left to acknowledge
                await self.subscription.ack()
            await self.subscription.close()
        return deliveries


def view_of(delivery: Delivery, kinds: Mapping[str, Kind]) -> dict[str, Value]:
    """A delivery's attributes, as the kinds that their type gives them."""
    return {name: None if value is None else conform(kinds[name], value) for name, value in delivery.data.items()}


def _operations(step: story.ChangeStep, state: State) -> list[dict[str, Any]]:
    """A change of policy: rules that are in force removed, then facts, then rolefiles, then rules added."""
    return [
        *({"op": "remove-rule", "id": id} for id in step.removed(state)),
        *map(_operation, step.changes),
        *({"op": "set-rolefile", "service": one.service, "text": one.text} for one in step.roles),
        *({"op": "add-rule", "rule": rule.body} for rule in step.add),
    ]


def _operation(change: changes.Change) -> dict[str, Any]:
    """A change of members, rows, attributes, policy rules or types, as a client sends it."""
    op = re.sub(r"\B(?=[A-Z])", "-", type(change).__name__).lower()
    match change:
        case changes.SetPolicyRule(principal, rule):
            return {"op": op, "principal": principal, "rule": None if rule is None else render_condition(rule)}
        case changes.DeclareType(declared):
            kinds = {name: kind.value for name, kind in declared.attributes.items()}
            body: dict[str, Any] = {
                "attributes": kinds,
                "extends": declared.parent,
                "key": declared.key,
                "owner": declared.owner,
            }
            body |= {"derived": declared.derived, "declassified_for": sorted(declared.declassified_for)}
            times = {} if declared.times is None else declared.times.as_said()
            return {"op": op, "name": declared.name, "type": {**body, **times}}
        case _:
            return {"op": op, **asdict(change)}
