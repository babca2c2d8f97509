"""Three domains that share certificates, and what each of them must come to, straight from the definition.

Guarantees: nothing of `headgate.authority` is used to say what must be:
chains are all sequences of certificates that the definition allows, patterns are the sets of names they take in, and
conditions are Python. A `Story` plays one random interleaving on three ledgers, in memory or on disk, and compares
every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise, permutations
from random import Random
from typing import Final, Protocol

from headgate.authority.statement_state import next_moment
from headgate.decide.deliver import decide
from headgate.decide.publish import admit
from headgate.lang import parse_condition
from headgate.model.authority import Authority, Certificate, NetworkAuthority, RevocationList, TypeAuthority, Validity
from headgate.model.changes import Batch, Change, DeclarePrincipal, DeclareType, Present, Revoke, Subscribe, Tick
from headgate.model.errors import ChainInvalid, Expired, PublishDenied, Revoked, StaleList
from headgate.model.events import Draft, Event
from headgate.model.expressions import TRUE, AllOf, Condition
from headgate.model.rights import Action, Rule, Source, Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import EPOCH, Kind, Value
from headgate.solver import check_policy_rule

DOMAINS: Final = ("pito", "met", "ccs")
CLIENTS: Final = ("smith", "cctv", "billing")
OWNERS: Final = {"uk.pito.Plate": "pito", "ccs.Charge": "ccs"}
KINDS: Final = {"place": Kind.STRING, "plate": Kind.STRING, "lane": Kind.INT}
NAMES: Final = (*OWNERS, "uk.x", "uk.pito.x", "ccs.x", "z")
"""Enough names to tell the patterns apart."""
PATTERNS: Final = {
    "*": frozenset(NAMES),
    "uk.*": frozenset({"uk.pito.Plate", "uk.x", "uk.pito.x"}),
    "uk.pito.*": frozenset({"uk.pito.Plate", "uk.pito.x"}),
    "uk.pito.Plate": frozenset({"uk.pito.Plate"}),
    "ccs.*": frozenset({"ccs.Charge", "ccs.x"}),
    "ccs.Charge": frozenset({"ccs.Charge"}),
}
EVERY: Final = frozenset({*KINDS, "any other"})
TESTS: Final[Mapping[str, Callable[[Mapping[str, Value]], bool]]] = {
    "lane > 1": lambda v: isinstance(v["lane"], int) and v["lane"] > 1,
    "plate = 'A'": lambda v: v["plate"] == "A",
    "place is not null": lambda v: v["place"] is not None,
}
CONDITIONS: Final = {text: parse_condition(text) for text in TESTS}
WORDS: Final = {repr(condition): text for text, condition in CONDITIONS.items()}
WORLD: Final = Batch(
    ADMINISTRATOR,
    (
        *(DeclarePrincipal(name) for name in (*DOMAINS, *CLIENTS)),
        *(DeclareType(EventType(name, owner, KINDS)) for name, owner in OWNERS.items()),
        *(Subscribe(Subscription(f"{who}/{name}", who, name)) for who in CLIENTS for name in OWNERS),
    ),
)

Fact = tuple[str, Action, frozenset[str], frozenset[str], frozenset[tuple[str, object]], frozenset[str], str]
"""Who may do what: to these names, with these attributes, forced values and conditions, by whose authority."""


@dataclass(frozen=True, slots=True)
class Given:
    """One authority of a certificate, in plain sets; `names` is None for the network."""

    actions: frozenset[Action]
    names: frozenset[str] | None
    attributes: frozenset[str] = EVERY
    forced: frozenset[tuple[str, object]] = frozenset()
    tests: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Paper:
    """A certificate, as it is, and in plain sets."""

    real: Certificate
    given: Given
    issuer: str
    subject: str
    delegate: bool
    start: int | None
    until: int | None
    freshness: int | None


class Book(Protocol):
    """A domain's ledger."""

    def state(self, version: int | None = None) -> State: ...

    def commit(self, batch: Batch) -> int: ...


def moment(seconds: int) -> datetime:
    """A time of the story."""
    return EPOCH + timedelta(seconds=seconds)


# -- what must be ---------------------------------------------------------------------------------------------


def combined(chain: Sequence[Paper]) -> Given | None:
    """What every link of a chain gives: the actions, names and attributes of all, under all values and conditions."""
    actions = frozenset.intersection(*(one.given.actions for one in chain))
    if not actions:
        return None
    if any(one.given.names is None for one in chain):
        return Given(actions, None) if all(one.given.names is None for one in chain) else None
    names = frozenset.intersection(*(one.given.names or frozenset() for one in chain))
    forced = frozenset[tuple[str, object]]().union(*(one.given.forced for one in chain))
    attributes = frozenset.intersection(*(one.given.attributes for one in chain))
    if not names or not attributes or len({name for name, _ in forced}) < len(forced):
        return None
    return Given(
        actions,
        names,
        attributes,
        forced,
        frozenset[str]().union(*(one.given.tests for one in chain)),
    )


def every_chain(bag: Sequence[Paper], holder: str, coordinator: str) -> Iterator[tuple[tuple[Paper, ...], Given]]:
    """Every sequence of certificates that is a chain to the holder, with what it gives."""
    for length in range(1, len(bag) + 1):
        for chain in permutations(bag, length):
            if chain[-1].subject != holder or any(not a.delegate or a.subject != b.issuer for a, b in pairwise(chain)):
                continue
            keys = [chain[0].issuer, *(one.subject for one in chain)]
            if len(set(keys)) < len(keys):
                continue
            given = combined(chain)
            if given is not None and (given.names is not None or chain[0].issuer == coordinator):
                yield chain, given


def facts(who: str, chains: Sequence[tuple[tuple[Paper, ...], Given]]) -> Iterator[Fact]:
    """What chains give, one action at a time."""
    for chain, given in chains:
        for action in given.actions:
            names = frozenset({"network"}) if given.names is None else given.names
            yield who, action, names, given.attributes, given.forced, given.tests, chain[0].issuer


def as_facts(rules: Sequence[Rule]) -> set[Fact]:
    """The entries of a ledger, in the same terms."""
    found: set[Fact] = set()
    for rule in rules:
        parts = rule.where.args if isinstance(rule.where, AllOf) else () if rule.where == TRUE else (rule.where,)
        tests = frozenset(WORDS[repr(part)] for part in parts)
        attributes = EVERY if rule.attributes is None else frozenset(rule.attributes)
        for action in rule.actions:
            network = action in (Action.CONNECT, Action.INSTALL)
            names = frozenset({"network"}) if network else PATTERNS[rule.type]
            forced = frozenset(rule.forced.items())
            found.add((rule.who, action, names, attributes, forced, tests, rule.author))
    return found


# -- a domain, as it must be ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Domain:
    """A ledger, and beside it what must be in it."""

    name: str
    book: Book
    coordinator: str
    clock: int = 0
    shown: dict[str, list[Paper]] = field(default_factory=dict)
    lists: dict[str, RevocationList] = field(default_factory=dict)
    inbox: list[RevocationList] = field(default_factory=list)
    known: dict[tuple[object, ...], list[tuple[tuple[Paper, ...], Given]]] = field(default_factory=dict)

    def commit(self, *changes: Change) -> None:
        self.book.commit(Batch(ADMINISTRATOR, changes))

    def pass_time(self, to: int) -> None:
        """Let the clock take what it takes, as whoever keeps the ledger does."""
        while (due := next_moment(self.book.state(), moment(self.clock))) is not None and due <= moment(to):
            self.commit(Tick(due))
            self.clock = int((due - EPOCH).total_seconds())
        self.clock = to
        for who, bag in self.shown.items():
            self.shown[who] = [one for one in bag if one.until is None or one.until > to]

    def is_revoked(self, one: Paper) -> bool:
        return one.issuer in self.lists and one.real.id in self.lists[one.issuer].revoked

    def stands(self, one: Paper) -> bool:
        """Is it in force, and its issuer not silent for too long?"""
        return self.is_valid(one) and not self.is_revoked(one) and self.is_heard(one)

    def is_valid(self, one: Paper) -> bool:
        begun = one.start is None or one.start <= self.clock
        return begun and (one.until is None or one.until > self.clock)

    def is_heard(self, one: Paper) -> bool:
        if one.freshness is None:
            return True
        heard = self.lists.get(one.issuer)
        return heard is not None and heard.issued + timedelta(seconds=one.freshness) > moment(self.clock)

    def chains(self, who: str, bag: Sequence[Paper]) -> list[tuple[tuple[Paper, ...], Given]]:
        live = [one for one in bag if self.stands(one)]
        key = (who, *(one.real.id for one in live))
        if key not in self.known:
            self.known[key] = list(every_chain(live, who, self.coordinator))
        return self.known[key]

    def rights(self) -> set[Fact]:
        """Every right that there must be."""
        return {fact for who, bag in self.shown.items() for fact in facts(who, self.chains(who, bag))}

    def check(self) -> None:
        """Is the ledger what it must be?"""
        state = self.book.state()
        found = as_facts([rule for rule in state.rules if rule.source is Source.CHAIN])
        wanted = self.rights()
        assert found == wanted, (self.name, self.clock, found - wanted, wanted - found)
        bags = {who: {one.real.key for one in bag} for who, bag in self.shown.items() if bag}
        assert {who: set(bag) for who, bag in state.bags.items()} == bags, (self.name, state.bags, bags)

    # -- steps ------------------------------------------------------------------------------------------------

    def present(self, who: str, papers: Sequence[Paper]) -> None:
        """Someone shows certificates; refused unless one of them is in a chain that gives something."""
        before = self.shown.get(who, [])
        bag = [*before, *(one for one in papers if one not in before)]
        reached = any(
            self._gives(chain[0].issuer, given) and any(one in papers for one in chain)
            for chain, given in self.chains(who, bag)
        )
        try:
            self.commit(Present(who, tuple(one.real for one in papers), moment(self.clock)))
        except (ChainInvalid, Expired, Revoked):
            assert not reached, (self.name, self.clock, who, papers)
            return
        assert reached, (self.name, self.clock, who, papers)
        self.shown[who] = [one for one in bag if self.is_valid(one) and not self.is_revoked(one)]

    def _gives(self, root: str, given: Given) -> bool:
        """One type is given by its owner, a pattern of several by whoever owns any type."""
        if given.names is None:
            return True
        one = len(given.names) == 1
        owners = {OWNERS[name] for name in given.names} if one else set(OWNERS.values())
        return root in owners

    def hear(self, new: RevocationList) -> None:
        """A list arrives, perhaps after newer ones."""
        known = self.lists.get(new.issuer)
        stale = known is not None and new.number < known.number
        try:
            self.commit(Revoke(new, moment(self.clock)))
        except StaleList:
            assert stale, (self.name, known, new)
            return
        assert not stale, (self.name, known, new)
        issued = new.issued if known is None else max(known.issued, new.issued)
        self.lists[new.issuer] = RevocationList(new.issuer, new.number, issued, new.revoked)
        for who, bag in self.shown.items():
            self.shown[who] = [one for one in bag if not self.is_revoked(one)]

    def publish(self, who: str, type_name: str, values: Mapping[str, Value]) -> None:
        """An event is taken or refused, and shown, just as the rights say."""
        state = self.book.state()
        mine = [
            fact
            for fact in self.rights()
            if fact[1] is Action.PUBLISH and fact[0] == who and type_name in fact[2] and fact[6] == OWNERS[type_name]
        ]
        possible = [sent for fact in mine if (sent := _sent(fact, values)) is not None]
        draft = Draft("e", who, type_name, values)
        try:
            event = admit(state, draft, now=moment(self.clock), predicates={}, policy_rule=check_policy_rule)
        except PublishDenied:
            assert not possible, (self.name, who, type_name, values, mine)
            return
        assert event.values in possible, (self.name, who, event.values, possible)
        self.deliver(event, state)

    def deliver(self, event: Event, state: State) -> None:
        """Everyone sees what its rights give it, and no more."""
        for who in CLIENTS:
            seen: set[str] | None = None
            for fact in self.rights():
                if fact[0] == who and fact[1] is Action.SUBSCRIBE and _sees(fact, event):
                    seen = (seen or set()) | (fact[3] & KINDS.keys())
            subscription = state.subscriptions[f"{who}/{event.type}"]
            got = decide(event, subscription, lambda _: state, {})
            wanted = None if seen is None else {n: v if n in seen else None for n, v in event.values.items()}
            assert (None if got is None else dict(got.view)) == wanted, (self.name, who, event, wanted, got)


def _sent(fact: Fact, values: Mapping[str, Value]) -> dict[str, Value] | None:
    """The event as a right to publish lets it through, if it does."""
    attributes, forced = fact[3], dict(fact[4])
    kept = {name: values.get(name) if name in attributes else None for name in KINDS}
    kept.update({name: value for name, value in forced.items() if name in attributes})  # type: ignore[misc]
    return kept if all(TESTS[text](kept) for text in fact[5]) else None


def _sees(fact: Fact, event: Event) -> bool:
    if event.type not in fact[2] or fact[6] != OWNERS[event.type]:
        return False
    fits = all(event.values[name] == value for name, value in fact[4])
    return fits and all(TESTS[text](event.values) for text in fact[5])


# -- a story --------------------------------------------------------------------------------------------------


class Story:
    """One random interleaving on three domains."""

    def __init__(self, random: Random, books: Mapping[str, Book], coordinators: Mapping[str, str]) -> None:
        self.random = random
        self.domains = [Domain(name, books[name], coordinators[name]) for name in DOMAINS]
        self.papers: list[Paper] = []
        self.lists: dict[str, RevocationList] = {}
        self.clock = 0

    def play(self, steps: int) -> None:
        """So many steps, each followed by a comparison; at the end every domain hears and sees everything."""
        kinds = (self.issue, self.delegate, self.delegate, *(self.present,) * 4, *(self.publish,) * 4, self.revoke,
                 self.hear, self.hear, self.beat, self.expire)  # fmt: skip
        for owner in (*OWNERS.values(), *OWNERS.values()):
            self._issue(owner)
        for _ in range(2):
            self.delegate()
            self.beat()
        for domain in self.domains:
            self.take(domain)
        for _ in range(steps):
            self.random.choice(kinds)()
        for domain in self.domains:
            domain.pass_time(self.clock)
            while domain.inbox:
                domain.hear(domain.inbox.pop(self.random.randrange(len(domain.inbox))))
            domain.check()

    def issue(self) -> None:
        """Anyone issues something, mostly the owners."""
        self._issue(self.random.choice((*OWNERS.values(), *OWNERS.values(), "met", *CLIENTS)))

    def delegate(self) -> None:
        """Someone passes on what it may have been given."""
        some = [one for one in self.papers if one.delegate] or self.papers
        self._issue(self.random.choice(some).subject)

    def _issue(self, issuer: str) -> None:
        r = self.random
        id = f"c{len(self.papers)}"
        subject = r.choice([who for who in ("met", "met", *DOMAINS, *CLIENTS) if who != issuer])
        if r.random() < 0.1:
            actions = frozenset(r.sample((Action.CONNECT, Action.INSTALL), r.randint(1, 2)))
            authority: Authority = NetworkAuthority(actions)
            given = Given(actions, None)
        else:
            actions = frozenset(r.sample((Action.PUBLISH, Action.SUBSCRIBE, Action.EXTEND), r.choice((1, 2, 3, 3))))
            pattern = r.choice((*("*",) * 6, *PATTERNS))
            names = tuple(r.sample(tuple(KINDS), r.randint(1, 3))) if r.random() < 0.4 else None
            forced = {"lane": r.randint(1, 2)} if names and "lane" in names and r.random() < 0.5 else {}
            texts = r.sample(tuple(TESTS), r.choice((0, 0, 0, 0, 1, 2)))
            authority = TypeAuthority(actions, pattern, None, names, forced, _all([CONDITIONS[one] for one in texts]))
            given = Given(
                actions,
                PATTERNS[pattern],
                EVERY if names is None else frozenset(names),
                frozenset(forced.items()),
                frozenset(texts),
            )
        start = self.clock + r.randint(0, 3) if r.random() < 0.1 else None
        until = self.clock + r.randint(4, 12) if r.random() < 0.3 else None
        freshness = r.randint(2, 8) if r.random() < 0.2 else None
        validity = Validity(None if start is None else moment(start), None if until is None else moment(until))
        delegate = r.random() < 0.8
        real = Certificate(id, issuer, subject, (authority,), delegate, validity, freshness)
        self.papers.append(Paper(real, given, issuer, subject, delegate, start, until, freshness))

    def _domain(self) -> Domain:
        domain = self.random.choice(self.domains)
        domain.pass_time(self.clock)
        return domain

    def present(self) -> None:
        """Someone shows some certificates somewhere: what leads to it, or whatever it has come by."""
        domain = self._domain()
        who = self.random.choice((*CLIENTS, *CLIENTS, *DOMAINS))
        mine = [one for one in self.papers if one.subject == who]
        lead = {one.issuer for one in mine}
        before = [one for one in self.papers if one.subject in lead]
        some = self.papers if not mine or self.random.random() < 0.2 else [*mine, *before]
        domain.present(who, self.random.sample(some, self.random.randint(1, min(5, len(some)))))
        domain.check()

    def revoke(self) -> None:
        """An issuer takes something back; its list is on its way to everyone."""
        one = self.random.choice(self.papers)
        known = self.lists.get(one.issuer, RevocationList(one.issuer, 0, moment(self.clock)))
        self._send(RevocationList(one.issuer, known.number + 1, moment(self.clock), known.revoked | {one.real.id}))

    def beat(self) -> None:
        """An issuer gives a sign of life."""
        issuer = self.random.choice(self.papers).issuer
        known = self.lists.get(issuer, RevocationList(issuer, 0, moment(self.clock)))
        self._send(RevocationList(issuer, known.number, moment(self.clock), known.revoked))

    def _send(self, new: RevocationList) -> None:
        self.lists[new.issuer] = new
        for domain in self.domains:
            domain.inbox.append(new)

    def hear(self) -> None:
        """A domain takes some message from its inbox, in any order."""
        domain = self.random.choice(self.domains)
        if domain.inbox:
            self.take(domain)

    def take(self, domain: Domain) -> None:
        domain.pass_time(self.clock)
        domain.hear(domain.inbox.pop(self.random.randrange(len(domain.inbox))))
        domain.check()

    def expire(self) -> None:
        """Time passes; a domain notices when it next does something."""
        self.clock += self.random.randint(1, 5)

    def publish(self) -> None:
        """Someone sends an event."""
        domain = self._domain()
        r = self.random
        values: dict[str, Value] = {
            "place": r.choice(("Victoria", None)),
            "plate": r.choice(("A", "B", None)),
            "lane": r.choice((1, 2, 3, None)),
        }
        sends = [fact for fact in domain.rights() if fact[1] is Action.PUBLISH]
        able = sorted({(fact[0], name) for fact in sends for name in fact[2] if OWNERS.get(name) == fact[6]})
        anyone = [(who, name) for who in (*CLIENTS, *DOMAINS) for name in OWNERS]
        domain.publish(*r.choice(able if able and r.random() < 0.8 else anyone), values)
        domain.check()


def _all(conditions: Sequence[Condition]) -> Condition:
    return TRUE if not conditions else conditions[0] if len(conditions) == 1 else AllOf(tuple(conditions))
