"""Roles between domains: what others are told of ours, and what ours make of others' (OASIS 4.9, 8.1).

Guarantees: changes of records are told as event types like any other, owned by the administrator: what no rule gives is
not seen, and who could not see every event that it would be told by is told nothing, whatever becomes of a certificate
or a record. A record is told of to whoever was shown a certificate of it before, and knows what it is the record of; to
others it is false, as if there were none. What is told is what was announced under a number. A role of another domain
counts only if its service is a peer of the ledger and its issuer has just said that it stands, asked by nobody but the
follower of this node (`gateway.roles.following`). No one asks for more than the settings allow.
Leaves out: telling of changes (`gateway.roles.announcing`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias, get_args

from headgate.commands.commit import Committed, KnownState, commit, submit
from headgate.commands.role_certificates import Asker, records_of, said_place, said_role
from headgate.commands.roles import RoleService, key_of, wrong_place
from headgate.commands.statements import holder
from headgate.decide.apply import apply
from headgate.decide.deliver import is_told_everything
from headgate.decide.truth import PredicateFunction
from headgate.decide.views import view
from headgate.lang import parse_condition
from headgate.model.changes import AddRule, Advertise, Batch, Change, HearPeer, MirrorRole, WatchRecords
from headgate.model.errors import GovernDenied, RoleDenied, RoleFailure, SubscribeDenied, TooBusy
from headgate.model.events import Draft, Event
from headgate.model.expressions import Argument
from headgate.model.rights import Action, Rule
from headgate.model.role_statements import ServiceInstance, fits
from headgate.model.roles import Membership, Peer, Reference, RoleBook, reference_text
from headgate.model.state import State
from headgate.model.types import EventType
from headgate.model.values import Kind, Value, brief, micros
from headgate.node.domain import Domain
from headgate.node.peers import QUESTION_SECONDS, Pair, PeerQuestion, Peers, PeerStatus, Watchers
from headgate.roles.certificates.remote_records import (
    FollowState,
    Heartbeat,
    Message,
    Modified,
    Snapshot,
    is_fresh,
    news,
    word_of,
)
from headgate.roles.requests.audit import ALL, another_type, missing_types


@dataclass(frozen=True, slots=True)
class ClaimedRecord:
    """A record, and what it is said to be the record of: a reference alone proves nothing after a restore."""

    record: Reference
    role: str
    instance: str
    args: tuple[Argument, ...]
    subject: str


@dataclass(frozen=True, slots=True)
class RecordWatching:
    """The records of one domain, as others follow them. May be used from any thread."""

    roles: RoleService
    watchers: Watchers

    def validate(self, asker: Asker, certificate: str, subject: str) -> tuple[list[Membership], Snapshot]:
        """The memberships of a certificate of ours that is good; their records are followed from now on."""
        self.roles.pace_following(asker)
        state, certificates = self.roles.state, self.roles.certificates
        if claimed := said_place(certificate).service:  # what claims none is refused by its form
            self._check_may_follow(asker, claimed)
        shown = Asker(holder(state, subject) or "", subject)
        held = certificates.memberships(certificate, shown, state, self.roles.clock())
        if len({one.place for one in held}) != 1:
            raise wrong_place("the certificate is of several places")
        return held, self._follow(asker, held[0].service, {one.record: True for one in held})

    def read(self, asker: Asker, service: str) -> Snapshot:
        """The states of all records of a service that one follows."""
        self.roles.pace_following(asker)
        self._check_may_follow(asker, service)
        declare(self.roles.domain, self.roles.follower)  # so that it can subscribe
        return self.watchers.read((asker.principal, service), self.roles.clock())

    def rejoin(self, asker: Asker, service: str, claims: Sequence[ClaimedRecord]) -> Snapshot:
        """Go on to follow records that one knows from before."""
        self.roles.pace_following(asker)
        self._check_may_follow(asker, service)
        state = self.roles.state
        shown = self.watchers.has_followed((asker.principal, service), {one.record for one in claims})
        shown |= {one.record for one in state.roles.watches if one.watcher == asker.principal}
        by_record: dict[Reference, list[Membership]] = {}
        for membership in state.roles.memberships.values():
            if membership.service == service and membership.record in shown:
                by_record.setdefault(membership.record, []).append(membership)
        known = records_of(state)
        states: dict[Reference, bool | None] = {}
        for claim in claims:
            fitting = any(_is_that(one, claim, state) for one in by_record.get(claim.record, ()))
            is_consistent = states.get(claim.record, True) is not False
            states[claim.record] = known(claim.record) if fitting and is_consistent else False
        return self._follow(asker, service, states)

    def unwatch(self, asker: Asker, service: str, records: Sequence[Reference]) -> None:
        """Follow some records no longer."""
        self.roles.pace_following(asker)
        self.watchers.unwatch((asker.principal, service), records)
        followed = self._followed_by(asker)
        gone = tuple(ref for ref in dict.fromkeys(records) if ref in followed)
        if gone:
            change = WatchRecords(asker.principal, gone, watching=False)
            self._submit(change, f"{asker.principal} follows records of {service} no longer")

    def _follow(self, asker: Asker, service: str, states: Mapping[Reference, bool | None]) -> Snapshot:
        """Note durably that one follows records, in the ledger first; what is announced of them."""
        self._check_may_follow(asker, service)
        known = self._followed_by(asker)
        fresh = tuple(ref for ref, truth in states.items() if truth is not False and ref not in known)
        declare(self.roles.domain, self.roles.follower)
        if fresh:
            self._submit(WatchRecords(asker.principal, fresh), f"{asker.principal} follows records of {service}")
        now_known = records_of(self.roles.state)
        current = {ref: False if truth is False else now_known(ref) for ref, truth in states.items()}
        snapshot = self.watchers.watch((asker.principal, service), current, self.roles.clock())
        # What was announced of a record is of no use to whoever takes it for another.
        announced = {ref: False if states[ref] is False else truth for ref, truth in snapshot.states.items()}
        return replace(snapshot, states=announced)

    def _followed_by(self, asker: Asker) -> set[Reference]:
        return {one.record for one in self.roles.state.roles.watches if one.watcher == asker.principal}

    def _submit(self, change: WatchRecords, note: str) -> None:
        submit(self.roles.domain, self.roles.follower, Batch(self.roles.state.administrator, (change,), note))

    def _check_may_follow(self, asker: Asker, service: str) -> None:
        state = self.roles.state
        pair, predicates = (asker.principal, service), self.roles.domain.predicates(state)
        check_may_follow(state, pair, predicates, self.roles.clock(), asker.origin)


def _is_that(membership: Membership, claim: ClaimedRecord, state: State) -> bool:
    """Is it the membership that a record was said to be of? After a restore a reference may mean another."""
    return (
        (membership.role, membership.instance) == (claim.role, claim.instance)
        and fits(membership.args, claim.args)
        and key_of(state, membership.holder) == claim.subject
    )


NOTICE: Final = "headgate.roles.Notice"
MODIFIED: Final = "headgate.roles.Modified"
HEARTBEAT: Final = "headgate.roles.Heartbeat"
SOURCE: Final = "headgate.roles"
LOOK_SECONDS: Final = 0.02
"""How often it is looked whether the follower has answered."""
_COMMON: Final = {"watcher": Kind.STRING, "service": Kind.STRING, "epoch": Kind.STRING, "number": Kind.INT}


def types(owner: str) -> tuple[EventType, ...]:
    """The types: one for all, so that whoever follows has everything in one order."""
    return (
        EventType(NOTICE, owner, _COMMON),
        EventType(MODIFIED, owner, {"record": Kind.STRING, "state": Kind.STRING}, NOTICE),
        EventType(HEARTBEAT, owner, {"at": Kind.TIMESTAMP}, NOTICE),
    )


def declaring(state: State) -> tuple[Change, ...]:
    """What is not there yet: the types, and the administrator's right to publish them."""
    who = state.administrator
    for one in types(who):
        if one.name in state.types and not set(one.attributes) <= set(state.types.attributes(one.name)):
            raise another_type(one.name)
    made = missing_types(state, types(who))
    return (*made, *(() if (who, NOTICE) in state.advertisements else (Advertise(who, NOTICE),)))


def declare(domain: Domain, follower: KnownState) -> None:
    """Make the types, should they not be there; another gateway may do so at the same moment."""
    commit(domain, follower, declaring, "roles are followed")


def allowing(state: State, watcher: str, service: str) -> tuple[Change, ...]:
    """The changes that let a principal, another domain, follow the records of a service that concern it."""
    where = parse_condition(wanted(watcher, service))
    rule = Rule(f"{watcher} follows {service}", watcher, frozenset({Action.SUBSCRIBE}), ALL, where)
    known = any(one.id == rule.id for one in state.rules)
    return (*declaring(state), *(() if known else (AddRule(rule),)))


def wanted(watcher: str, service: str) -> str:
    """The filter of a subscription to what concerns one."""
    return f"watcher = {_quoted(watcher)} and service = {_quoted(service)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def check_may_follow(
    state: State, pair: Pair, predicates: Mapping[str, PredicateFunction], now: datetime, origin: str | None = None
) -> None:
    """Refuse whoever could not see every attribute of what it would be told, were the types there."""
    watcher, service = pair
    missing = declaring(state)
    after = apply(state, Batch(state.administrator, missing)) if missing else state
    common: dict[str, Value] = {"watcher": watcher, "service": service, "epoch": "e", "number": 1}
    for name, own in ((MODIFIED, {"record": "1.1", "state": "true"}), (HEARTBEAT, {"at": now})):
        values: dict[str, Value] = {**dict.fromkeys(after.types.attributes(name)), **common, **own}
        event = Event("", state.administrator, name, values, now, version=after.version)
        seen = view(after, watcher, event, predicates, origin)
        if seen is None or not {*common, *own} <= seen.attributes:
            raise SubscribeDenied(
                f"`{brief(watcher)}` may not see what is told of `{brief(service)}`",
                remedy=f"ask for a rule that lets it subscribe to `{ALL}` where it is the watcher",
            )


def of_messages(author: str, made: Iterable[tuple[Pair, Modified]]) -> list[Draft]:
    """Changes of records as events; the same message has the same id, however often it is published."""
    return [
        _notice(author, MODIFIED, pair, one, {"record": reference_text(one.record), "state": word_of(one.state)})
        for pair, one in made
    ]


def of_heartbeats(author: str, epoch: str, numbers: Mapping[Pair, int], at: datetime) -> list[Draft]:
    """Signs of life, one for each who follows."""
    return [
        _notice(author, HEARTBEAT, pair, Heartbeat(epoch, number, at), {"at": at}, f" {micros(at)}")
        for pair, number in numbers.items()
    ]


def _notice(author: str, type: str, pair: Pair, message: Message, own: dict[str, Value], more: str = "") -> Draft:
    watcher, service = pair
    common = {"watcher": watcher, "service": service, "epoch": message.epoch, "number": message.number}
    id = f"{message.epoch}.{message.number} {watcher}{more}"
    return Draft(id, author, type, {**common, **own}, f"{SOURCE} {service}")


# -- what other domains say of theirs -------------------------------------------------------------------------

Commit: TypeAlias = Callable[[Callable[[State], Sequence[Change]], str], Committed]
"""Commits what follows from the newest state (`commit`)."""


def hear_peer(
    ledger: Commit,
    peer_in: Callable[[State], Peer],
    known: FollowState,
    states: Mapping[Reference, bool | None],
    *,
    clock: Callable[[], datetime],
    note: str,
    sign: bool = False,
) -> State:
    """Bring the ledger to what a service has said of its records; the state from then on.

    What is too old to be believed only takes away. A sign of life without news makes a version only if it is asked for:
    gateways keep the time of the last one beside the ledger.
    """

    def make(state: State) -> list[Change]:
        peer, now = peer_in(state), clock()
        believed = states
        if not is_fresh(peer, known.heard, now):
            believed = {ref: truth for ref, truth in states.items() if truth is False}
        changed = news(state.roles, peer.name, believed)
        if not changed and not sign:
            return []
        return [HearPeer(peer.name, max(peer.number, known.number), changed, known.heard or now)]

    return ledger(make, note).state


def mirror_roles(
    ledger: Commit,
    peer_in: Callable[[State], Peer],
    roles: Sequence[MirrorRole],
    heard: datetime | None,
    *,
    clock: Callable[[], datetime],
    note: str,
) -> State:
    """Let roles of a service count here that it has just confirmed, as one version; the state from then on."""

    def make(state: State) -> list[Change]:
        peer, now = peer_in(state), clock()
        changes: list[Change] = [replace(one, at=now) for one in roles]
        if heard is not None and (peer.heard is None or peer.heard < heard):
            changes.insert(0, HearPeer(peer.name, peer.number, {}, heard))
        return changes

    return ledger(make, note).state


# -- roles of other domains, shown here -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRoles:
    """The roles of other domains, as clients of this one show them."""

    roles: RoleService
    peers: Peers
    run: Callable[..., Awaitable[Any]]
    """Does work on files in another thread."""
    catch_up: Callable[[], Awaitable[None]]

    async def present(self, asker: Asker, certificate: str, name: str) -> tuple[int, list[Membership]]:
        """Let roles of another domain count here, once their issuer has confirmed them; since which version."""
        self.roles.pace(asker)
        peer = peer_of(self.roles.state.roles, said_role(certificate).place)
        question = PeerQuestion(name, peer.name, asker.principal, asker.did, certificate)
        await self.run(self.peers.ask, question, self.roles.clock())
        reply = await self._answered(question)
        await self.catch_up()
        held = self.roles.state.roles.memberships
        memberships = [held[id] for id in reply["memberships"] if id in held]
        if not memberships:
            raise RoleDenied("the issuer revoked it at once", failure="revocation", details={"reason": "revoked"})
        return int(reply["version"]), memberships

    async def _answered(self, question: PeerQuestion) -> dict[str, Any]:
        try:
            async with asyncio.timeout(QUESTION_SECONDS):
                while (text := await self.run(self.peers.answered, question.id)) is None:
                    await asyncio.sleep(LOOK_SECONDS)
                return _read_answer(text)
        except TimeoutError:
            await self.run(self.peers.withdraw, question.id)
            raise TooBusy(f"`{question.peer}` cannot be asked now", remedy="show it again later") from None

    async def statuses(self, principal: str) -> list[PeerStatus]:
        """How one stands with other domains' services, for those who govern or audit everything."""
        state = self.roles.state
        if not is_told_everything(state, principal):
            raise GovernDenied(f"`{principal}` may not know with which services others stand how")
        statuses: list[PeerStatus] = await self.run(self.peers.statuses, state.roles, self.roles.clock())
        return statuses


def peer_of(book: RoleBook, instance: ServiceInstance) -> Peer:
    """The peer that a certificate says it is from."""
    for peer in book.peers.values():
        if (peer.key, peer.service) == (instance.issuer, instance.service):
            return peer
    raise RoleDenied(
        f"roles of `{brief(instance.service)}` of `{brief(instance.issuer)}` do not count here",
        failure="misuse",
        details={"reason": "no-peer"},
        remedy="show it to its own domain, or ask the administrator to name that service as a peer",
    )


def _read_answer(text: str) -> dict[str, Any]:
    answered: dict[str, Any] = json.loads(text)
    if (problem := answered.get("problem")) is None:
        return answered
    if problem["code"] == RoleDenied.code and problem.get("failure") in get_args(RoleFailure):
        details = {} if problem.get("reason") is None else {"reason": problem["reason"]}
        raise RoleDenied(problem["detail"], failure=problem["failure"], details=details, remedy=problem.get("remedy"))
    raise TooBusy(f"the issuer does not answer: {problem['detail']}", remedy=problem.get("remedy"))
