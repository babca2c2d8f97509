"""Taking up signed statements: what a principal shows and what issuers say become changes of the ledger.

Guarantees: all that is shown together is one batch, or nothing: one bad statement refuses the whole, with its reason. A
key that nobody here knows becomes a principal, named by it, only if a chain gives it `connect`, or if a provider of
this domain vouches for it and the domain is open. Showing the same again makes no version. A revocation list is taken
up only if something here rests on its issuer, and makes a version only if it is news, or if a certificate would soon be
unknown for want of a sign of life; one that is older than a known one is refused for ever. An issuer that nobody here
chose makes at most LISTS_PER_ISSUER versions in LIST_SECONDS, and all such issuers together at most LISTS_OF_ALL with
lists that take nothing away: those that do wait for no one else.
Leaves out: signatures (`trust`), what follows from statements (`authority.statement_state`), and the list of this
domain itself, which is made in `issuing`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar, TypeVarTuple

from headgate.authority.statement_state import StatementState, began
from headgate.commands.commit import Committed, commit
from headgate.decide.apply import apply
from headgate.decide.views import entries, may_connect
from headgate.model.authority import Certificate, Identity, RevocationList
from headgate.model.changes import Batch, Change, DeclarePrincipal, Identify, Present, Revoke, SetKey, Succeed
from headgate.model.errors import ConnectDenied, HeadgateError, NotFound, StaleList, TooBusy, TooMany
from headgate.model.expressions import TRUE
from headgate.model.rights import Action, Effect, Source
from headgate.model.state import State
from headgate.model.values import brief
from headgate.node.domain import Domain, Follower
from headgate.node.statement_register import StatementRegister
from headgate.trust.presented import PresentedStatements, open_presented
from headgate.trust.statements import Verifier

T = TypeVar("T")
Args = TypeVarTuple("Args")
STATEMENT_PARTS: Final = ("certificates", "bags", "lists", "identities", "successions", "providers", "keys")
"""What a state holds of signed statements."""
CAME: Final = "did:key:"
"""How the names of those begin who came by themselves: they are their keys."""
_VERIFIER: Final = Verifier()
"""Of a process that opens bags for gateways."""
SMALL_CHARS: Final = 8_192
"""Characters of a bag that is opened at once."""


class JobPool(Protocol):
    """Where long work is done, in the turn of whoever it is for."""

    def submit(self, principal: str, work: Callable[[*Args], T], *args: *Args) -> Future[T]:
        """What the work gives, once it is done."""


@dataclass(frozen=True, slots=True)
class IntakePlan:
    """What becomes of a bag: whose it is, the changes, and the state after them."""

    principal: str
    changes: tuple[Change, ...]
    after: State


@dataclass(eq=False, repr=False)
class Authority:
    """Takes up statements in the name of one domain. May be used from any thread."""

    domain: Domain
    follower: Follower
    register: StatementRegister
    _: KW_ONLY
    own: str
    audience: str
    guests: int
    clock: Callable[[], datetime]
    issuers: Collection[str] = ()
    refused: Callable[[str], None] = lambda _: None
    paced: Callable[[str], None] = lambda _: None
    spent: Callable[[str, float], None] = lambda _, __: None
    workers: JobPool | None = None

    def __post_init__(self) -> None:
        self.verifier = Verifier()
        self._followed = frozenset({self.own, *self.issuers})
        self._pace = IntakePace()

    # -- bags -------------------------------------------------------------------------------------------------

    def opening(self, texts: Sequence[str], whose: str) -> Future[PresentedStatements]:
        """A bag whose signatures are all good; a large one is opened in the turn of whoever shows it."""
        if self.workers is not None and sum(map(len, texts)) > SMALL_CHARS:
            return self.workers.submit(whose, open_statements, list(texts), self.audience, self.clock())
        future: Future[PresentedStatements] = Future()
        try:
            future.set_result(open_presented(texts, audience=self.audience, now=self.clock(), verifier=self.verifier))
        except HeadgateError as error:
            future.set_exception(error)
        return future

    def opened(self, texts: Sequence[str], whose: str = "") -> PresentedStatements:
        """The same, once it is there."""
        with self._counting():
            return self.opening(texts, whose).result()

    def judge(self, did: str, bag: PresentedStatements) -> None:
        """Refuse a bag that would not let this key connect; nothing is changed."""
        with self._counting(), self._spending(did):
            self._welcome(self._plan(self.follower.state, did, bag, self.clock()))

    def take_up(self, did: str, bag: PresentedStatements) -> State:
        """Make what a key shows part of the ledger, in one batch; the state from then on."""
        with self._counting(), self._spending(did):
            paced = False

            def make(state: State, now: datetime) -> Sequence[Change]:
                nonlocal paced
                plan = self._plan(state, did, bag, now)
                self._welcome(plan)
                if not plan.changes or _is_alike(state, plan.after):
                    return ()
                if not paced:
                    self.paced(plan.principal)
                    paced = True
                return plan.changes

            return self.commit(make, "statements were shown").state

    def _plan(self, state: State, did: str, bag: PresentedStatements, now: datetime) -> IntakePlan:
        changes: list[Change] = list(self._successions(state, bag, now))
        changes += self._lists(_applied(state, changes), bag, now)
        between = _applied(state, changes)
        principal = holder(between, did)
        if principal is None:
            if did in between.principals:
                raise ConnectDenied(f"`{did}` goes on under another key", remedy="connect with that one")
            self.check_room(state)
            principal = did
            changes += [DeclarePrincipal(did), SetKey(did, did)]
        if bag.certificates:
            changes.append(Present(principal, bag.certificates, now))
        changes += [Identify(principal, one, now) for one in _last_words(between, principal, bag.identities)]
        return IntakePlan(principal, tuple(changes), _applied(state, changes))

    def _welcome(self, plan: IntakePlan) -> None:
        """Refuse if the principal may not connect then, or is new and comes without anybody's word."""
        after, who = plan.after, plan.principal
        if any(isinstance(change, DeclarePrincipal) for change in plan.changes):
            chain = any(
                rule.who == who and rule.source is Source.CHAIN and Action.CONNECT in rule.actions
                for rule in after.rules
            )
            known = any(one.principal == who for one in after.identities.values())
            if not chain and not known:
                raise ConnectDenied(
                    f"nobody here knows `{brief(who)}`",
                    remedy="show a chain that gives `connect`, or a statement of a provider",
                )
        if not lets_in(after, who):
            raise ConnectDenied(f"`{who}` may not connect", remedy="show a chain that gives it `connect`")

    def check_room(self, state: State, more: int = 1) -> None:
        """Refuse if there are too many who came by themselves, with so many more."""
        guests = sum(1 for name in state.principals if name.startswith(CAME))
        if guests + more > self.guests:
            raise TooMany(f"{guests} principals came by themselves already", remedy="`authority.guests` is full")

    def _successions(self, state: State, bag: PresentedStatements, now: datetime) -> Iterator[Change]:
        """Those that are news, of keys that mean something here."""
        concerned = _keys(state, bag)
        for _ in range(len(bag.successions)):  # one may follow from another
            concerned |= {one.new for one in bag.successions if one.old in concerned}
        for succession in sorted(bag.successions, key=lambda each: each.number):
            known = state.successions.get(succession.old)
            if succession != known and (succession.old in concerned or succession.new in concerned):
                yield Succeed(succession, now)

    def _lists(self, state: State, bag: PresentedStatements, now: datetime) -> Iterator[Change]:
        """The lists that the bag needs or brings, where they are news or the bag needs them as a sign of life."""
        shown = bag.certificates
        lists = {one.issuer: one for one in bag.lists if rests_on(state, one.issuer, self._followed, shown)}
        for issuer in {one.issuer for one in shown if one.freshness is not None}:
            last, known = self.last_list(issuer, now), lists.get(issuer) or state.lists.get(issuer)
            if last is not None and (known is None or _rank(known) < _rank(last)):
                lists[issuer] = last
        yield from (Revoke(one, now) for one in lists.values() if is_news(state, one, now, shown))

    # -- lists ------------------------------------------------------------------------------------------------

    def last_list(self, issuer: str, now: datetime) -> RevocationList | None:
        """The last that was heard of an issuer, which may be this domain itself."""
        if issuer == self.own:
            return self.own_list(now)
        heard = self.register.heard(issuer)
        return None if heard is None else heard.list

    def own_list(self, now: datetime) -> RevocationList:
        """What this domain has revoked."""
        number, revoked = self.register.revocations()
        return RevocationList(self.own, number, now.replace(microsecond=0), revoked)

    def check_heard(self, issuer: str, *, followed: bool = False) -> None:
        """Refuse to listen to an issuer that nothing here rests on."""
        if not followed and not rests_on(self.follower.state, issuer, self._followed):
            raise NotFound(f"nothing here rests on `{brief(issuer)}`")

    def hear(self, found: RevocationList, *, followed: bool) -> bool:
        """Take up a list: of an issuer that is followed, or that something here rests on. True if it made a version."""
        with self._counting():

            def make(state: State, now: datetime) -> Sequence[Change]:
                self.check_heard(found.issuer, followed=followed)
                return [Revoke(found, now)] if is_news(state, found, now) else ()

            return self.commit(make, "a revocation list was heard", followed=followed).version is not None

    # -- committing -------------------------------------------------------------------------------------------

    def commit(
        self, make: Callable[[State, datetime], Sequence[Change]], note: str, *, followed: bool = False
    ) -> Committed:
        """Commit what follows from the newest state, in the domain's own name; none makes no version.

        Lists of issuers that nobody chose come at a pace.
        """
        paced: list[tuple[str, datetime, bool]] = []

        def checked(state: State) -> Sequence[Change]:
            changes = make(state, self.clock())
            paced[:] = [
                (one.list.issuer, one.at, takes_away(state, one.list))
                for one in changes
                if isinstance(one, Revoke) and not followed and not is_chosen(state, one.list.issuer, self._followed)
            ]
            for issuer, at, bites in paced:
                self._pace.check(issuer, at, bites=bites)
            return changes

        made = commit(self.domain, self.follower, checked, note)
        for issuer, at, bites in paced:
            self._pace.count(issuer, at, bites=bites)
        return made

    @contextmanager
    def _spending(self, did: str) -> Iterator[None]:
        """Let whoever shows a bag answer for the time that it takes to find out what follows from it."""
        begun = time.thread_time()
        try:
            yield
        finally:
            self.spent(holder(self.follower.state, did) or did, time.thread_time() - begun)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Count what is refused by its reason."""
        try:
            yield
        except HeadgateError as error:
            self.refused(str(getattr(error, "reason", error.code)))
            raise


def lets_in(state: State, principal: str) -> bool:
    """May the principal connect, and not only because the domain is open if it came by itself?

    A key that nobody here declared is a principal because it owns a type, or was let in once; that is nobody's word for
    it now. An entry that gives `connect` is, and so is an identity statement in force.
    """
    if not may_connect(state, principal):
        return False
    if not principal.startswith(CAME) or principal not in state.keys:
        return True
    if any(rule.effect is Effect.GRANT and rule.where == TRUE for rule in entries(state, principal, Action.CONNECT)):
        return True
    return any(one.principal == principal for one in state.identities.values())


def open_statements(texts: Sequence[str], audience: str, now: datetime) -> PresentedStatements:
    """A bag whose signatures are all good; what was verified before is remembered in the process that does this."""
    return open_presented(texts, audience=audience, now=now, verifier=_VERIFIER)


def holder(state: State, did: str) -> str | None:
    """The principal that has a key; one that is named by its key needs no other entry, but may have another key."""
    found = next((name for name, key in state.keys.items() if key == did), None)
    return found or (did if did in state.principals and did not in state.keys else None)


def _applied(state: State, changes: Sequence[Change]) -> State:
    return apply(state, Batch(state.administrator, tuple(changes))) if changes else state


def _last_words(state: State, principal: str, shown: Sequence[Identity]) -> list[Identity]:
    """What is news of the statements shown: of each provider its last, unless it has said something later already.

    Whoever fetched one on each of two machines shows the older on one of them, and that is no fault.
    """
    identities = [one.identity for one in state.identities.values() if one.principal == principal]
    last: dict[str, Identity] = {}
    for one in sorted((*identities, *shown), key=began):
        last[one.issuer] = one
    known = {one.key for one in identities}  # of this principal: what is said of another is refused, known or not
    return [one for one in last.values() if one.key not in known]


def _keys(state: State, bag: PresentedStatements) -> set[str]:
    """The keys that something rests on: of principals, providers and issuers, here or in the bag."""
    keys = {*state.keys.values(), *state.providers, *state.successions}
    keys |= {one.new for one in state.successions.values()}
    keys |= {key for one in (*bag.certificates, *state.certificates.values()) for key in (one.issuer, one.subject)}
    if state.coordinator is not None:
        keys.add(state.coordinator)
    return keys


def _rank(one: RevocationList) -> tuple[int, datetime]:
    return one.number, one.issued


def _is_alike(a: State, b: State) -> bool:
    """Do two states hold the same, as far as signed statements go?"""
    names = (*STATEMENT_PARTS, "rules", "principals", "policy_rules", "attested_rules")
    return all(getattr(a, name) == getattr(b, name) for name in names)


# -- which lists, and how often -------------------------------------------------------------------------------

LIST_SECONDS: Final = 60.0
LISTS_PER_ISSUER: Final = 10
"""Versions in LIST_SECONDS that the lists of one issuer make which the domain did not choose."""

LISTS_OF_ALL: Final = 100
"""Versions in LIST_SECONDS that lists of such issuers make without taking anything away."""


def is_chosen(state: State, issuer: str, followed: Collection[str]) -> bool:
    """Is it one that the domain itself has chosen: its coordinator, a provider, or one that is followed?"""
    root = state.coordinator or state.keys.get(state.administrator)
    return _is_one_of(state, issuer, {*followed, *state.providers, *(() if root is None else (root,))})


def rests_on(state: State, issuer: str, followed: Collection[str], shown: Iterable[Certificate] = ()) -> bool:
    """Does anything that stands, or is shown, rest on this issuer? Types rest on their owners."""
    if is_chosen(state, issuer, followed):
        return True
    keys = {one.issuer for one in state.certificates.values()} | {one.issuer for one in shown}
    keys |= {one.identity.issuer for one in state.identities.values()}
    keys |= {state.key_of(one.owner) for one in state.types.values()}
    return _is_one_of(state, issuer, keys)


def _is_one_of(state: State, issuer: str, keys: Collection[str]) -> bool:
    """Is it one of these keys, or another key of the same principal?"""
    if issuer in keys or not state.successions:
        return issuer in keys
    stands = StatementState(state)
    return stands.newest(issuer) in {stands.newest(key) for key in keys}


def is_news(state: State, revocations: RevocationList, now: datetime, shown: Iterable[Certificate] = ()) -> bool:
    """Does a list say more than the one that is known, or is it a sign of life that something needs?"""
    known = state.lists.get(revocations.issuer)
    if known is None:
        return True
    if revocations.number < known.number or (
        revocations.number == known.number and revocations.revoked != known.revoked
    ):
        raise StaleList(
            f"list {revocations.number} of `{revocations.issuer}` is not newer than "
            f"list {known.number}, which is known",
            remedy="send the newest list",
        )
    return revocations.number > known.number or (
        revocations.issued > known.issued and _runs_out(state, known, now, shown)
    )


def takes_away(state: State, revocations: RevocationList) -> bool:
    """Is anything that stands on the list?"""
    same = StatementState(state).same
    every: list[Certificate | Identity] = [*state.certificates.values()]
    every += [one.identity for one in state.identities.values()]
    return any(one.id in revocations.revoked and same(one.issuer, revocations.issuer) for one in every)


def _runs_out(state: State, known: RevocationList, now: datetime, shown: Iterable[Certificate]) -> bool:
    """Is a certificate more than half way to being unknown, for want of a sign of life of its issuer?"""
    same = StatementState(state).same
    return any(
        one.freshness is not None
        and same(one.issuer, known.issuer)
        and known.issued + timedelta(seconds=one.freshness / 2) <= now
        for one in (*state.certificates.values(), *shown)
    )


class IntakePace:
    """How many versions lists have made of late. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_issuer: dict[str, deque[datetime]] = {}
        self._idle: deque[datetime] = deque()
        """Those that took nothing away."""

    def check(self, issuer: str, now: datetime, *, bites: bool) -> None:
        """Refuse another version for now."""
        with self._lock:
            self._forget(now)
            made = len(self._by_issuer.get(issuer, ()))
            if made >= LISTS_PER_ISSUER:
                raise TooBusy(
                    f"`{brief(issuer)}` had {made} lists taken up in the last {LIST_SECONDS:g} seconds",
                    remedy="send its newest list a minute from now",
                )
            if not bites and len(self._idle) >= LISTS_OF_ALL:
                raise TooBusy("too many lists that take nothing away", remedy="send it again a minute from now")

    def count(self, issuer: str, now: datetime, *, bites: bool) -> None:
        """A list has made a version."""
        with self._lock:
            self._by_issuer.setdefault(issuer, deque()).append(now)
            if not bites:
                self._idle.append(now)

    def _forget(self, now: datetime) -> None:
        """What is long ago no longer counts; nor does what a clock that was set back says is to come."""
        end = timedelta(seconds=LIST_SECONDS)
        for times in (self._idle, *self._by_issuer.values()):
            while times and not timedelta(0) <= now - times[0] < end:
                times.popleft()
        self._by_issuer = {issuer: times for issuer, times in self._by_issuer.items() if times}
