"""Following services of other domains, as one of their clients: records are kept true to what they say (OASIS 4.10).

Guarantees: one thing after another. Before any message counts all states are read; after anything that was lost they
are read again. What is said is in the ledger before the sign of life is noted that came with it, so that every gateway
may go by that. What is no longer needed here is followed no longer. Certificates are confirmed by the issuer in the
same order: none comes to count by an answer that a message has overtaken. Whatever fails is tried again, after a pause
that grows to LONGEST_PAUSE; meanwhile the silence is noticed by every gateway.
`python -m headgate.gateway.roles.following DIR` is the follower of a node, one for each domain. It follows every peer
of the ledger for as long as it is one, each by itself: one that cannot be reached keeps nobody waiting. It says `ready`
on standard output once it looks at the ledger. If it ends nothing is believed for longer than it would be: the gateways
notice silence themselves. It is a process of its own since gateways are no clients of other domains, and since one that
waits for others must not slow down those who serve.
Leaves out: what messages mean (`roles.certificates.remote_records`), and watching over the process (`node.processes`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import sys
import threading
from base64 import b32encode
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from headgate.client.aio import Client, connect
from headgate.client.errors import Gap, Unreachable, unexpected
from headgate.client.gateways import Patience
from headgate.client.subscription import Delivery, Subscription
from headgate.commands.commit import Committed, commit
from headgate.commands.peer_roles import NOTICE, ClaimedRecord, hear_peer, mirror_roles, wanted
from headgate.commands.role_certificates import said_role
from headgate.model.changes import Change, MirrorRole
from headgate.model.errors import BadConfig, BadDefinition, HeadgateError, RoleDenied, StaleList, UnknownType
from headgate.model.limits import MAX_MESSAGES, MAX_PEERS, MAX_READ_RECORDS
from headgate.model.roles import Peer, Reference, reference_text
from headgate.model.state import State
from headgate.node.config import Config, Files
from headgate.node.domain import Domain, Follower, utc_now
from headgate.node.logs import Log, fault, start_logging
from headgate.node.peers import PeerQuestion, Peers
from headgate.node.processes import Lock, announce, leave_within, run_part
from headgate.protocol import role_messages as rw
from headgate.protocol.problems import problem
from headgate.roles.certificates import remote_records as remote
from headgate.roles.certificates.validation import Validator
from headgate.trust.keys import PrivateKey
from headgate.trust.role_keys import ROLE_KEYS, RoleKeys

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds before a connection is made again: twice as long every time, until something is heard."""

LOOK_SECONDS: Final = 0.05  # how often it is looked whether somebody shows a certificate, or the ledger needs less

READ_AGAIN_SECONDS: Final = 600.0
"""How often everything is read again anyway: it shows the service that one is still there, and mends what is wrong."""

_TRIES: Final = 5  # how often reading is begun anew while the service begins new epochs
_ID_BYTES: Final = 10
_ID_NAME: Final = 40
log = Log("following")

LOCK: Final = "follower.lock"
PEERS_SECONDS: Final = 0.1  # how often it is looked whether there are other peers
STOP_SECONDS: Final = 5.0  # how long stopping may take before the process is ended by force

HASTE: Final = Patience(seconds=5.0, first=0.05, most=1.0)
"""How long one connection is mended before another is made, by which everything is read again."""


class Gone(Exception):
    """The peer is one no longer, or is another."""


class Following:
    """Follows one peer of the ledger, until it is one no longer."""

    def __init__(
        self,
        peer: Peer,
        home: Home,
        connect: Callable[[Peer], Client],
        *,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.peer = peer
        self._home = home
        self._connect = connect
        self._random = random
        self._one = asyncio.Lock()
        """One thing after another."""
        self._known = remote.FollowState()
        self._told: dict[Reference, bool | None] = {}
        self._settled: object = None
        self._keys: RoleKeys | None = None
        self._validator = Validator(audience=home.name)
        self._warned = False

    async def run(self) -> None:
        """Follow, whatever happens, until the peer is one no longer."""
        pause = FIRST_PAUSE
        while True:
            heard = self._known.heard
            try:
                async with self._connect(self.peer) as client:
                    await self.follow(client)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                if isinstance(why := _first(error), Gone):
                    return
                await self._failed(why)
            if self._known.heard != heard:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    async def _failed(self, error: BaseException) -> None:
        log.warning("not-followed", **fault(error, issuer=self.peer.name))
        words = error.message if isinstance(error, HeadgateError) else type(error).__name__
        with suppress(HeadgateError):
            await asyncio.to_thread(self._home.peers.fail, self.peer.name, words)

    async def follow(self, client: Client) -> None:
        """Follow over one connection, until it fails; whoever is no peer any longer is told so."""
        abroad = Abroad(client, self.peer.service)
        subscription = await self._subscribed(client, abroad)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._hear(subscription, abroad))
                tasks.create_task(self._look(abroad))
        except* Gone:  # noticed by either of them
            await abroad.unwatch(list(self._told))
            raise

    async def _subscribed(self, client: Client, abroad: Abroad) -> Subscription:
        """A subscription to what concerns us; temporary, since what it missed is read anyway."""
        where = wanted(client.principal, self.peer.service)
        id = f"roles of {self.peer.service}"
        try:
            return await client.subscribe(id, NOTICE, where, temporary=True, window=MAX_MESSAGES)
        except UnknownType:  # nobody has followed anything there yet
            await abroad.read()
            return await client.subscribe(id, NOTICE, where, temporary=True, window=MAX_MESSAGES)

    # -- messages ---------------------------------------------------------------------------------------------

    async def _hear(self, subscription: Subscription, abroad: Abroad) -> None:
        async with self._one:
            await self.read(abroad)
        while True:
            try:
                deliveries = await subscription.take(MAX_MESSAGES, timeout=self.peer.bound)
            except Gap:
                async with self._one:
                    await self.read(abroad)
                continue
            if not deliveries:
                raise Unreachable(f"nothing was heard of `{self.peer.name}` for {self.peer.bound} seconds", [])
            async with self._one:
                await self.take(deliveries, abroad)

    async def take(self, deliveries: Sequence[Delivery], abroad: Abroad) -> None:
        """Take up what was delivered; one at a time."""
        try:
            messages = [remote.message_of(one.data) for one in deliveries]
        except BadDefinition as error:
            log.warning("bad-notice", issuer=self.peer.name, detail=error.message)
            await self.read(abroad)
            return
        step = remote.hear(self._known, messages, self._home.clock())
        self._known = step.known
        for record, state in step.states.items():
            if record in self._told:
                self._told[record] = state
                self._settled = None
        if step.read:
            await self.read(abroad)
        else:
            await self._settle()

    async def read(self, abroad: Abroad) -> None:
        """Read all states, and go on to follow what is needed here and nothing else; one at a time."""
        for _ in range(_TRIES):
            read = await abroad.read()
            needed = await asyncio.to_thread(self._needed)
            states = {ref: state for ref, state in read.states.items() if ref in needed}
            missing = [ref for ref in needed if ref not in read.states]
            if await self._rejoin(abroad, [needed[ref] for ref in missing], read, states):
                break
        else:
            raise Unreachable(f"`{self.peer.name}` begins anew all the time", [])
        if extra := [ref for ref in read.states if ref not in needed]:
            await abroad.unwatch(extra)
        self._known = remote.take(self._known, read, self._home.clock())
        self._told, self._settled = states, None
        if abroad.heartbeat * 2 > self.peer.bound and not self._warned:
            self._warned = True
            log.warning("bound-too-short", issuer=self.peer.name, seconds=abroad.heartbeat)
        await self._settle()

    async def _rejoin(
        self,
        abroad: Abroad,
        missing: Sequence[ClaimedRecord],
        read: remote.Snapshot,
        states: dict[Reference, bool | None],
    ) -> bool:
        """Follow records again that the service no longer counts as followed; false if it began anew meanwhile."""
        by_record = {one.record: one for one in missing}
        for some in chunks(list(by_record)):
            more = await abroad.rejoin(by_record[ref] for ref in some)
            if more.epoch != read.epoch:
                return False
            states.update({ref: more.states.get(ref) for ref in some})
        return True

    def _needed(self) -> dict[Reference, ClaimedRecord]:
        """The records that something here rests on, with what they were confirmed to be of."""
        state = self._home.state()
        remembered: dict[Reference, ClaimedRecord] = {}
        for membership in state.roles.memberships.values():
            if membership.service != self.peer.name:
                continue
            for ref in remote.mirrored(state.roles, self.peer.name, membership):
                held = membership.role, membership.instance, membership.args, state.key_of(membership.holder)
                remembered[ref] = ClaimedRecord(ref, *held)
        return remembered

    # -- the ledger -------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Bring the ledger to what was told, and then note the sign of life."""
        state = await asyncio.to_thread(self._settled_in_ledger)
        if state is not None:
            self._settled = state.roles
        heard, counts = self._known.heard, self._known.counts
        if heard is not None:
            await asyncio.to_thread(self._home.peers.hear, self.peer, heard, counts)

    def _settled_in_ledger(self) -> State | None:
        """Commit what differs; the state from then on, or None if nothing has changed on either side."""
        if self._home.state().roles is self._settled:
            return None
        home, note = self._home, f"{self.peer.name} was heard"
        return hear_peer(home.commit, self._checked, self._known, self._told, clock=home.clock, note=note)

    def _checked(self, state: State) -> Peer:
        peer = state.roles.peers.get(self.peer.name)
        if peer is None or (remote.identity(peer), peer.url) != (remote.identity(self.peer), self.peer.url):
            raise Gone
        return peer

    # -- what is needed here ----------------------------------------------------------------------------------

    async def _look(self, abroad: Abroad) -> None:
        """Confirm what clients show, follow no longer what nobody needs, and read everything again now and then."""
        loop = asyncio.get_running_loop()
        read, asked, seen = loop.time(), None, None
        while True:
            if (stamp := await asyncio.to_thread(self._home.peers.stamp)) != asked:
                asked = stamp
                for question in await asyncio.to_thread(self._home.peers.asked, self.peer.name, self._home.clock()):
                    async with self._one:
                        told = await self._answered(question, abroad)
                    await asyncio.to_thread(self._home.peers.answer, question.id, told)
            state = await asyncio.to_thread(self._home.state)
            if state.roles is not seen:
                seen = state.roles
                async with self._one:
                    await self._let_go(state, abroad)
            if loop.time() - read > READ_AGAIN_SECONDS:
                read = loop.time()
                async with self._one:
                    await self.read(abroad)
            await asyncio.sleep(LOOK_SECONDS)

    async def _let_go(self, state: State, abroad: Abroad) -> None:
        """Tell the service of records that nothing here rests on any longer."""
        self.peer = self._checked(state)
        if not self._told:
            return
        needed = remote.mirrored(state.roles, self.peer.name)
        if gone := [ref for ref in self._told if ref not in needed]:
            await abroad.unwatch([ref for ref in gone if self._told[ref] is not False])
            for ref in gone:
                del self._told[ref]

    # -- certificates -----------------------------------------------------------------------------------------

    async def _answered(self, question: PeerQuestion, abroad: Abroad) -> str:
        """What becomes of a certificate, for the gateway that asks."""
        try:
            await self._judge(question, abroad)
            roles, read = await abroad.validate(question.certificate, question.did)
            version, ids = await self._mirror(question, roles, read, abroad)
        except HeadgateError as error:
            return json.dumps({"problem": msgspec.to_builtins(problem(error))})
        return json.dumps({"version": version, "memberships": ids})

    async def _judge(self, question: PeerQuestion, abroad: Abroad) -> None:
        """Refuse what is forged, stolen or over, by the keys of the service; fetched again if they may be old."""
        now, shown = self._home.clock(), said_role(question.certificate)
        if self._keys is not None:
            try:
                self._validator.validate(question.certificate, question.did, shown, _anything, now)
            except RoleDenied as denied:
                if denied.details.get("reason") not in ("unknown-key", "key-ended"):
                    raise
            else:
                return
        with suppress(StaleList):
            self._keys = await abroad.keys(self.peer.key, now, self._keys)
            self._validator.trust(self._keys)
        self._validator.validate(question.certificate, question.did, shown, _anything, now)

    async def _mirror(
        self, question: PeerQuestion, roles: Sequence[ClaimedRecord], read: remote.Snapshot, abroad: Abroad
    ) -> tuple[int, list[str]]:
        """Let confirmed roles count here, in one batch."""
        now, known = self._home.clock(), self._known
        if read.epoch == known.epoch and read.number <= known.number:
            at = min(read.at, now)
            self._known = known = replace(known, heard=at if known.heard is None else max(known.heard, at))
        mirrors = [
            MirrorRole(
                id=self._id(one.role), peer=self.peer.name, role=one.role, args=one.args, holder=question.principal,
                remote=one.record, state=read.states.get(one.record), at=now, instance=one.instance,
            )
            for one in roles
        ]  # fmt: skip
        state = await asyncio.to_thread(
            mirror_roles,
            self._home.commit,
            self._checked,
            mirrors,
            known.heard,
            clock=self._home.clock,
            note=f"{question.principal} shows roles of {self.peer.name}",
        )
        for one in roles:
            self._told[one.record] = read.states.get(one.record)
        self._settled = None
        if read.epoch != known.epoch or read.number < known.number:
            await self.read(abroad)  # messages have overtaken the answer
        records = {one.record for one in roles}
        held = (state.roles.memberships[id] for id in state.roles.held.get(question.principal, ()))
        ids = [one.id for one in held if records & remote.mirrored(state.roles, self.peer.name, one).keys()]
        return state.version, ids

    def _id(self, role: str) -> str:
        """A name that nobody guesses, with the role's for people to read."""
        readable = re.sub(r"\W", "", role, flags=re.ASCII)[:_ID_NAME] or "role"
        return f"{readable}-{b32encode(self._random(_ID_BYTES)).decode().lower()}"


def _anything(_: Reference) -> bool | None:
    """The issuer is asked what stands; here only the certificate itself is judged."""
    return True


def _first(error: BaseException) -> BaseException:
    """What failed first, where several things were under way."""
    cause = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return cause


@dataclass(slots=True)
class Home:
    """The domain that follows. May be used from any thread."""

    name: str
    domain: Domain
    ledger: Follower
    peers: Peers
    clock: Callable[[], datetime] = utc_now
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def state(self) -> State:
        """The newest state."""
        self.ledger.refresh()
        return self.ledger.state

    def commit(self, make: Callable[[State], Sequence[Change]], note: str) -> Committed:
        """Commit what follows from the newest state, in the domain's own name; nothing makes no version."""
        with self._lock:
            return commit(self.domain, self.ledger, make, note)

    def close(self) -> None:
        """Let go of the files."""
        self.peers.close()
        self.ledger.close()
        self.domain.close()


_RECORDS: Final = "/v1/roles/records"


class Abroad:
    """One service of another domain."""

    def __init__(self, client: Client, service: str) -> None:
        self._session = client._session
        self.service = service
        self.heartbeat = 0.0

    async def read(self) -> remote.Snapshot:
        """The states of all records that one follows there."""
        told = await self._session.ask(rw.RecordsAnswer, "GET", _RECORDS, params={"service": self.service})
        self.heartbeat = told.heartbeat
        return self._snapshot(told)

    async def rejoin(self, records: Iterable[ClaimedRecord]) -> remote.Snapshot:
        """Go on to follow so many records at most as one request may name."""
        told = [
            rw.RecordBody(reference_text(one.record), one.role, rw.arguments_told(one.args), one.subject, one.instance)
            for one in records
        ]
        body = {"service": self.service, "records": told}
        return self._snapshot(await self._session.ask(rw.RecordsAnswer, "POST", _RECORDS, body=body))

    async def unwatch(self, records: Sequence[Reference]) -> None:
        """Follow records no longer."""
        for some in chunks(records):
            body = {"service": self.service, "records": [reference_text(one) for one in some]}
            await self._session.request("POST", "/v1/roles/unwatch", body=body)

    async def validate(self, certificate: str, subject: str) -> tuple[list[ClaimedRecord], remote.Snapshot]:
        """Ask whether a certificate is good; its records are followed from then on."""
        body = {"certificate": certificate, "subject": subject}
        reply = await self._session.ask(rw.ValidatedAnswer, "POST", "/v1/roles/validate", body=body)
        if reply.service != self.service:
            raise unexpected(self.service, f"an answer for `{reply.service}`")
        roles = [
            ClaimedRecord(remote.record_of(one.record), one.role, reply.instance, rw.arguments_of(one.args), subject)
            for one in reply.roles
        ]
        return roles, self._snapshot(reply)

    async def keys(self, domain: str, now: datetime, known: RoleKeys | None) -> RoleKeys:
        """The keys that sign its certificates, as its domain vouches for them."""
        told = await self._session.ask(rw.RoleKeysAnswer, "GET", "/v1/roles/keys")
        return ROLE_KEYS.verify(told.keys, issuer=domain, now=now, known=known)

    def _snapshot(self, told: rw.RecordsAnswer) -> remote.Snapshot:
        if told.service != self.service or told.at.tzinfo is None or not told.epoch or told.number < 0:
            raise unexpected(self.service, "states without epoch, number or time")
        states = {remote.record_of(record): remote.state_of(state) for record, state in told.states.items()}
        return remote.Snapshot(told.epoch, told.number, told.at.astimezone(UTC), states)


def chunks(records: Sequence[Reference]) -> Iterable[Sequence[Reference]]:
    """As many at a time as one request may name."""
    return [records[at : at + MAX_READ_RECORDS] for at in range(0, len(records), MAX_READ_RECORDS)]


# -- the process ----------------------------------------------------------------------------------------------

process_log = Log("follower")


class Followers:
    """Follows every peer of the ledger."""

    def __init__(self, home: Home, key: PrivateKey, files: Files) -> None:
        self._home = home
        self._key = key
        self._files = files
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop."""
        try:
            while not stop.is_set():
                try:
                    self._look((await asyncio.to_thread(self._home.state)).roles.peers.values())
                except HeadgateError as error:
                    process_log.warning("ledger-not-read", **fault(error))
                try:
                    await asyncio.wait_for(stop.wait(), PEERS_SECONDS)
                except TimeoutError:
                    continue
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _look(self, peers: Iterable[Peer]) -> None:
        """Follow those that are peers now; one whose task has ended is no peer any longer, or is another."""
        self._tasks = {name: task for name, task in self._tasks.items() if not task.done()}
        for peer in peers:
            if peer.name not in self._tasks and peer.url and len(self._tasks) < MAX_PEERS:
                following = Following(peer, self._home, self.connect)
                self._tasks[peer.name] = asyncio.create_task(following.run(), name=f"follow {peer.name}")
                process_log.info("follows", issuer=peer.name)

    def connect(self, peer: Peer) -> Client:
        """A client of a peer's domain, by its key, as this domain's own principal there."""
        pinned = self._files.peers / f"{quote(peer.name, safe=' ')}.crt"
        return connect(
            peer.url.split(),
            self._key,
            broker=peer.key,
            certificate=pinned if pinned.is_file() else None,
            requests=HASTE,
            sockets=HASTE,
        )


def open_home(directory: Path, settings: Config) -> Home:
    """The domain of a directory, as its follower sees it."""
    data = Files(directory).data
    if not data.is_dir():
        raise BadConfig(f"`{directory}` has no `{data.name}`", remedy="`headgate init DIR` makes a domain")
    domain = Domain.open(data)
    return Home(settings.domain.name, domain, Follower(domain), Peers(domain.paths.shared(Peers.FILE)))


async def _work(home: Home, key: PrivateKey, files: Files) -> None:
    stop = asyncio.Event()

    def asked() -> None:
        leave_within(STOP_SECONDS)
        stop.set()

    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, asked)
    announce("ready", pid=os.getpid())
    await Followers(home, key, files).run(stop)


def work(directory: Path, override: dict[str, str]) -> int:
    """Follow the peers of a domain until told to stop."""
    settings = Config.load(directory, os.environ, override)
    start_logging(settings.log.level, settings.log.format)
    files = Files(directory)
    key = PrivateKey.load(files.broker_key)
    home = open_home(directory, settings)
    try:
        with Lock(files.data / LOCK, "the follower"):
            process_log.info("starting", pid=os.getpid())
            asyncio.run(_work(home, key, files))
    finally:
        home.close()
    process_log.info("stopped")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The process."""
    follow = "headgate.gateway.roles.following", "Follow other domains' services."
    return run_part(process_log, *follow, lambda given: work(given.directory, given.settings), arguments)


if __name__ == "__main__":
    sys.exit(main())
