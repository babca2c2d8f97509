"""Chains of certificates: which there are, what they reduce to, and what rights they give (Capabilities II.D, III).

Guarantees: `combine` is associative and never widens: a chain gives what every link of it gives, cut to the smallest
type pattern, actions, attributes and validity, under all conditions and forced values together. What two links do not
share is cut, not refused; two that share no attribute share nothing. A wildcard means what the issuer owns or was
given, so `rooted` keeps only what the first issuer owns. `same(a, b)` tells keys of one principal; it is an
equivalence. Authority whose condition has more atoms than MAX_CLAUSE_ATOMS is cut, in a link and along a chain, and so
is what adds up to no expression that can be written: what is given stays small enough to be matched and kept.
`discover` finds every chain that begins at someone who owns what it gives, ends at the holder, passes no key twice, has
every link in force, and has at most `MAX_CHAIN_LENGTH` of them (figure 6). It works backwards from the holder, reduces
as it goes and turns back where nothing is left, so that certificates that do not concern the holder cost nothing. The
work is bounded, by the size of what is put together too: past a limit all is refused, and nothing is half admitted. A
chain that passes a key twice gives nothing that it does not give without the detour.
Leaves out: signatures (`trust`), what becomes of the rights (`statement_state`), and subtypes: links are compared by
the names they write, so a link on a type and one on its subtype share nothing, and every condition of a chain sees the
attributes of the type that the narrowest link names (D3).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from operator import eq
from typing import Final, Literal, TypeAlias

from headgate.lang.render import fit_together, size
from headgate.model.authority import ANY, Authority, Certificate, NetworkAuthority, TypeAuthority, Validity
from headgate.model.errors import ChainInvalid, Expired, HeadgateError, Revoked
from headgate.model.expressions import TRUE, AllOf, Condition, all_of, atoms
from headgate.model.limits import (
    MAX_BAG,
    MAX_CHAIN_LENGTH,
    MAX_CHAIN_RIGHTS,
    MAX_CHAIN_STEPS,
    MAX_CHAINS,
    MAX_CLAUSE_ATOMS,
)
from headgate.model.rights import Action, Rule, Source
from headgate.model.types import matches
from headgate.model.values import Value, brief, kind_of, render_timestamp
from headgate.model.values import same as same_value

Same: TypeAlias = Callable[[str, str], bool]
_ID_CHARS: Final = 24
_CHARS_A_STEP: Final = 64
"""Characters of a part of a condition that count as one step more."""


@dataclass(frozen=True, slots=True)
class ConjunctionPart:
    """A part of a conjunction: a text that only the same part has, its atoms, and the steps that it counts for.

    `size` is how long and how deep it is as it would be written.
    """

    condition: Condition
    text: str
    atoms: int
    steps: int
    size: tuple[int, int]


def _freely(steps: int) -> None:
    """Nobody counts."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is found out once while chains are reduced, and who is told of each step: it may refuse to go on."""

    spend: Callable[[int], None] = _freely
    known: dict[int, ConjunctionPart] = field(default_factory=dict)

    def part(self, condition: Condition) -> ConjunctionPart:
        """A part with its text, which is written once: conditions grow along a chain, and their parts do not."""
        part = self.known.get(id(condition))
        if part is None:  # kept together with the condition, so that nothing else gets its number
            text = repr(condition)
            count, steps = sum(1 for _ in atoms(condition)), 1 + len(text) // _CHARS_A_STEP
            part = self.known[id(condition)] = ConjunctionPart(condition, text, count, steps, size(condition))
        return part

    def steps(self, authority: Authority) -> int:
        """How many steps it is to look at all of an authority."""
        if isinstance(authority, NetworkAuthority):
            return 0
        named = len(authority.attributes or ()) + len(authority.forced)
        return named + sum(self.part(part).steps for part in _parts(authority.where))


@dataclass(frozen=True, slots=True)
class Reduced:
    """A chain as one five-tuple. `freshness` names the issuers whose silence is borne only so many seconds."""

    issuer: str
    subject: str
    delegate: bool
    authority: tuple[Authority, ...]
    validity: Validity
    freshness: tuple[tuple[str, int], ...]
    chain: tuple[Certificate, ...]


def as_reduced(certificate: Certificate, work: Work | None = None) -> Reduced:
    """A chain of one link."""
    return Reduced(
        certificate.issuer,
        certificate.subject,
        certificate.delegate,
        _distinct(filter(_is_small, certificate.authority), work or Work()),
        certificate.validity,
        () if certificate.freshness is None else ((certificate.issuer, certificate.freshness),),
        (certificate,),
    )


def combine(a: Reduced, b: Reduced, same: Same = eq, work: Work | None = None) -> Reduced | None:
    """Two chains as one, if the second begins where the first ends and may be built on it."""
    work = work or Work()
    if not a.delegate or not same(a.subject, b.issuer):
        return None
    validity = _overlap(a.validity, b.validity)
    if validity is None:
        return None
    both = (meet(x, y, same, work) for x in a.authority for y in b.authority)
    authority = _distinct((found for found in both if found is not None), work)
    if not authority:
        return None
    freshness = _shortest((*a.freshness, *b.freshness))
    return Reduced(a.issuer, b.subject, b.delegate, authority, validity, freshness, a.chain + b.chain)


def reduce(chain: Sequence[Certificate], same: Same = eq) -> Reduced | None:
    """The certificates as one five-tuple, from the root to the holder; None if they are no chain."""
    if len(chain) > MAX_CHAIN_LENGTH:
        raise ChainInvalid(
            f"a chain of {len(chain)} certificates is longer than MAX_CHAIN_LENGTH ({MAX_CHAIN_LENGTH})",
            remedy="let fewer principals lie between the owner and the holder",
        )
    reduced: Reduced | None = None
    work = Work()
    for at, certificate in enumerate(chain):
        link = as_reduced(certificate, work)
        reduced = link if at == 0 else combine(reduced, link, same, work) if reduced is not None else None
    return reduced if reduced is not None and reduced.authority else None


def meet(a: Authority, b: Authority, same: Same = eq, work: Work | None = None) -> Authority | None:
    """What two authorities share; None if that is nothing."""
    actions = a.actions & b.actions
    if not actions:
        return None
    match a, b:
        case NetworkAuthority(), NetworkAuthority():
            network = b.network if a.network == ANY else a.network
            return NetworkAuthority(actions, network) if b.network in (ANY, network) else None
        case TypeAuthority(), TypeAuthority():
            return _meet_types(a, b, actions, same, work or Work())
        case _:
            return None


def rooted(
    reduced: Reduced, coordinator: str, same: Same = eq, *, network: str = ANY, work: Work | None = None
) -> tuple[Authority, ...]:
    """What of a chain counts: its first issuer's own types, and the network if that is the coordinating domain.

    `network` is the name of the network here; without one, every name is taken for it.
    """
    return _distinct(_rooted(reduced, coordinator, same, network), work or Work())


def to_rules(principal: str, reduced: Reduced, author: Callable[[str], str]) -> tuple[Rule, ...]:
    """The entries that a rooted chain gives a principal; the same right has the same id, whichever chain gives it.

    The author is whoever has the key that the chain begins at: entries of a chain take in the types that their author
    owns, whatever owner the authority names.
    """
    by = author(reduced.issuer)
    rules = (_rule(principal, one, by) for one in reduced.authority)
    return tuple({rule.id: rule for rule in rules}.values())


def exact(authority: Authority, work: Work | None = None) -> tuple[object, ...]:
    """What only authorities that give the same share. Python takes `1`, `1.0` and `true` for equal."""
    if isinstance(authority, NetworkAuthority):
        return authority.actions, authority.network
    work = work or Work()
    attributes = None if authority.attributes is None else frozenset(authority.attributes)
    forced = frozenset((name, repr(value)) for name, value in authority.forced.items())
    return (
        authority.owner,
        authority.actions,
        authority.type,
        attributes,
        forced,
        *(work.part(part).text for part in _parts(authority.where)),
    )


def exact_certificate(one: Certificate, work: Work | None = None) -> tuple[object, ...]:
    """What only copies of a certificate share."""
    given = tuple(exact(authority, work) for authority in one.authority)
    return one.key, one.subject, one.delegate, one.validity, one.freshness, given


# -- what two links share ---------------------------------------------------------------------------------------------


def _meet_types(
    a: TypeAuthority, b: TypeAuthority, actions: frozenset[Action], same: Same, work: Work
) -> TypeAuthority | None:
    pattern = _narrower(a.type, b.type)
    if pattern is None:
        return None
    if a.owner is not None and b.owner is not None and not same(a.owner, b.owner):
        return None
    work.spend(work.steps(a) + work.steps(b))
    forced = _union(a.forced, b.forced)
    where = _conjunction(a.where, b.where, work)
    attributes = _common(a.attributes, b.attributes)
    if forced is None or where is None or (attributes == () and None not in (a.attributes, b.attributes)):
        return None
    owner = b.owner if a.owner is None else a.owner
    return TypeAuthority(actions, pattern, owner, attributes, forced, where)


def _narrower(a: str, b: str) -> str | None:
    """The pattern that takes in what both do. One of two patterns takes in the other, or they share nothing."""
    if matches(a, b):
        return b
    return a if matches(b, a) else None


def _common(a: tuple[str, ...] | None, b: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The attributes of both, in the order of the later link."""
    if a is None or b is None:
        return b if a is None else a
    within = frozenset(a)
    return tuple(name for name in b if name in within)


def _union(a: Mapping[str, object], b: Mapping[str, object]) -> dict[str, object] | None:
    """Every forced value; None if the two do not agree on one."""
    if any(name in a and not _agree(a[name], value) for name, value in b.items()):
        return None
    return {**a, **{name: value for name, value in b.items() if name not in a}}


def _agree(a: object, b: object) -> bool:
    """Are two forced values one? `1` and `1.0` are not: the one fits an attribute that the other does not."""
    return isinstance(a, Value) and isinstance(b, Value) and kind_of(a) is kind_of(b) and same_value(a, b)


def _is_small(one: Authority) -> bool:
    """Has its condition no more atoms than a clause may have? Of more than that no more are counted."""
    if isinstance(one, NetworkAuthority):
        return True
    return sum(1 for _ in itertools.islice(atoms(one.where), MAX_CLAUSE_ATOMS + 1)) <= MAX_CLAUSE_ATOMS


def _conjunction(a: Condition, b: Condition, work: Work) -> Condition | None:
    """Both conditions, each part of them once; None if that is too much."""
    if TRUE in (a, b):
        return b if a == TRUE else a
    every = (work.part(part) for one in (a, b) for part in _parts(one))
    parts = {part.text: part for part in every}
    if sum(part.atoms for part in parts.values()) > MAX_CLAUSE_ATOMS:
        return None
    if not fit_together(part.size for part in parts.values()):
        return None
    return all_of(*(part.condition for part in parts.values()))


def _parts(condition: Condition) -> Iterator[Condition]:
    if isinstance(condition, AllOf):
        for arg in condition.args:
            yield from _parts(arg)
    else:
        yield condition


def _overlap(a: Validity, b: Validity) -> Validity | None:
    """The moments of both; None if there are none."""
    starts = [one.start for one in (a, b) if one.start is not None]
    ends = [one.until for one in (a, b) if one.until is not None]
    start, until = max(starts, default=None), min(ends, default=None)
    return None if start is not None and until is not None and until <= start else Validity(start, until)


def _shortest(freshness: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Each issuer once, with the least that it said."""
    least: dict[str, int] = {}
    for issuer, seconds in freshness:
        least[issuer] = min(seconds, least.get(issuer, seconds))
    return tuple(least.items())


def _distinct(authorities: Iterable[Authority], work: Work) -> tuple[Authority, ...]:
    """Each authority once, in order; refused past the limit."""
    every = iter(authorities)
    first = tuple(itertools.islice(every, 2))
    if len(first) < 2:
        return first
    kept: dict[tuple[object, ...], Authority] = {}
    for one in itertools.chain(first, every):
        kept.setdefault(exact(one, work), one)
        if len(kept) > MAX_CHAIN_RIGHTS:
            raise ChainInvalid(
                f"a chain gives more rights than MAX_CHAIN_RIGHTS ({MAX_CHAIN_RIGHTS})",
                remedy="let its certificates name fewer types",
            )
    return tuple(kept.values())


# -- what counts of it ------------------------------------------------------------------------------------------------


def _rooted(reduced: Reduced, coordinator: str, same: Same, network: str) -> Iterator[Authority]:
    for authority in reduced.authority:
        match authority:
            case NetworkAuthority():
                if same(reduced.issuer, coordinator) and (network == ANY or authority.network in (ANY, network)):
                    yield authority
            case TypeAuthority():
                if authority.owner is None or same(authority.owner, reduced.issuer):
                    yield replace(authority, owner=reduced.issuer)


def _rule(principal: str, one: Authority, author: str) -> Rule:
    """The entry that an authority gives, with an id that follows from what it says."""
    rule = Rule("chain", principal, one.actions, author=author, source=Source.CHAIN)
    if isinstance(one, TypeAuthority):
        rule = replace(rule, type=one.type, where=one.where, attributes=one.attributes, forced=one.forced)
    actions = sorted(action.value for action in rule.actions)
    attributes = None if rule.attributes is None else sorted(set(rule.attributes))
    forced = sorted((name, repr(value)) for name, value in rule.forced.items())
    text = repr((principal, author, (actions, rule.type, attributes, forced, rule.where)))
    return replace(rule, id="chain:" + sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:_ID_CHARS])


Known: TypeAlias = Callable[[Certificate], bool | None]
"""Does the issuer's word on a certificate still count? Anything but true is unknown, which never grants."""

FEWER: Final = "present fewer certificates"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainGround:
    """What chains are judged by."""

    coordinator: str
    now: datetime
    revoked: Callable[[Certificate], bool]
    known: Known
    same: Same = eq
    owners: Callable[[str], bool] = lambda _: True
    """The keys that own event types, where the caller knows."""
    network: str = ANY
    """The name of the network here."""

    def counts(self, chain: Reduced, work: Work) -> tuple[Authority, ...]:
        """What of the authority of a chain counts."""
        counts = rooted(chain, self.coordinator, self.same, network=self.network, work=work)
        if counts and not self.owners(chain.issuer):
            return tuple(one for one in counts if isinstance(one, NetworkAuthority))
        return counts

    def fault(self, certificate: Certificate) -> str:
        """Why a certificate is not in force; nothing if it is."""
        if certificate.validity.is_over(self.now):
            return "is past its end"
        if not certificate.validity.holds(self.now):
            assert certificate.validity.start is not None
            return f"is not valid before `{render_timestamp(certificate.validity.start)}`"
        if self.revoked(certificate):
            return "was revoked"
        if self.known(certificate) is not True:
            return f"is unknown while nothing is heard from `{brief(certificate.issuer)}`"
        return ""


def discover(bag: Iterable[Certificate], holder: str, ground: ChainGround) -> tuple[Reduced, ...]:
    """Every chain of the bag that gives the holder something, with just the authority that counts.

    They come as the certificates were presented: by the link of the holder, then the one before it, and so on.
    """
    return _Search(_bounded(bag), holder, ground, {}).run()


def why_not(bag: Iterable[Certificate], holder: str, ground: ChainGround) -> HeadgateError:
    """Why the bag gives the holder nothing, or nothing new: what ended, what was revoked, or what is missing."""
    parts: dict[int, ConjunctionPart] = {}
    try:
        shown = _bounded(bag)
        over = {one.key: one.validity.until for one in shown if one.validity.is_over(ground.now)}
        endless = _Search([_endless(one, ground.now) for one in shown], holder, ground, parts)
        ended = _first(endless.run(), lambda one: one.key in over)
        if ended is not None and (until := over[ended.key]) is not None:
            return Expired(
                f"the certificate `{brief(ended.id)}` ended at `{render_timestamp(until)}`", remedy=_anew(ended)
            )
        lost = _first(_Search(shown, holder, replace(ground, revoked=lambda _: False), parts).run(), ground.revoked)
        if lost is not None:
            return Revoked(f"the certificate `{brief(lost.id)}` was revoked", remedy=_anew(lost))
        search = _Search(shown, holder, ground, parts)
        search.run()
    except ChainInvalid as past_a_limit:
        return past_a_limit
    return _missing(search.stopped, brief(holder), ground)


# -- the search -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Link:
    """A certificate of the bag, and why it is not in force, if it is not."""

    certificate: Certificate
    reduced: Reduced
    fault: str


_Why: TypeAlias = Literal["not in force", "cycle", "no delegation", "nothing left", "too long", "no link"]
"""Why a chain goes no further back."""


@dataclass(frozen=True, slots=True)
class _Stop:
    """Where a chain stopped: the part of it that there was, and the link that did not go before it."""

    why: _Why
    rest: Reduced | None
    link: _Link | None


class _Search:
    """Depth first from the holder to the owners; keeps what stopped the longest chain that came to nothing."""

    def __init__(
        self, bag: Iterable[Certificate], holder: str, ground: ChainGround, parts: dict[int, ConjunctionPart]
    ) -> None:
        self.holder = holder
        self.ground = ground
        self.work = Work(self._count, parts)
        self.links = [self._link(one) for one in _each_once(bag, self.work)]
        self.to: dict[str, list[_Link]] = {}
        self.found: list[Reduced] = []
        self.rights = 0
        self.steps = 0
        self.length = -1
        self.stopped: _Stop | None = None

    def run(self) -> tuple[Reduced, ...]:
        """Every chain that gives the holder something."""
        self._lengthen(None, (self.holder,))
        return tuple(self.found)

    def _link(self, certificate: Certificate) -> _Link:
        reduced = as_reduced(certificate, self.work)
        fault = self.ground.fault(certificate)
        if not fault and not reduced.authority:
            fault = f"has conditions of more atoms than MAX_CLAUSE_ATOMS ({MAX_CLAUSE_ATOMS})"
        return _Link(certificate, reduced, fault)

    def _lengthen(self, rest: Reduced | None, keys: tuple[str, ...]) -> None:
        """Put each certificate that was issued to the first of these keys before the rest of a chain."""
        links = self._issued_to(keys[0])
        if not links and (rest is None or not self.ground.counts(rest, self.work)):
            self._stop(len(keys) - 1, "no link", rest)
        if links and len(keys) > MAX_CHAIN_LENGTH:
            self._stop(len(keys), "too long", rest)
            return
        for link in links:
            self._count(len(link.reduced.authority) * (1 if rest is None else len(rest.authority)))
            chain = self._join(link, rest, keys)
            if isinstance(chain, str):
                self._stop(len(keys), chain, rest, link)
            else:
                self._keep(chain)
                self._lengthen(chain, (link.certificate.issuer, *keys))

    def _join(self, link: _Link, rest: Reduced | None, keys: tuple[str, ...]) -> Reduced | _Why:
        """The chain with one more link before it, or why there is no such chain."""
        if link.fault:
            return "not in force"
        if any(self.ground.same(link.certificate.issuer, key) for key in keys):
            return "cycle"
        if rest is None:
            return link.reduced
        if not link.certificate.delegate:
            return "no delegation"
        return combine(link.reduced, rest, self.ground.same, self.work) or "nothing left"

    def _keep(self, chain: Reduced) -> None:
        counts = self.ground.counts(chain, self.work)
        if not counts:
            return
        self._count(sum(map(self.work.steps, counts)))  # what is found is written down
        self.found.append(replace(chain, authority=counts))
        self.rights += len(counts)
        if len(self.found) > MAX_CHAINS:
            raise self._too_much(f"more chains than MAX_CHAINS ({MAX_CHAINS})")
        if self.rights > MAX_CHAIN_RIGHTS:
            raise self._too_much(f"chains with more rights than MAX_CHAIN_RIGHTS ({MAX_CHAIN_RIGHTS})")

    def _issued_to(self, key: str) -> list[_Link]:
        if key not in self.to:
            self._count(len(self.links))
            self.to[key] = [link for link in self.links if self.ground.same(link.certificate.subject, key)]
        return self.to[key]

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_CHAIN_STEPS:
            raise self._too_much(
                f"certificates that take more steps to follow than MAX_CHAIN_STEPS ({MAX_CHAIN_STEPS})"
            )

    def _too_much(self, what: str) -> ChainInvalid:
        return ChainInvalid(f"`{brief(self.holder)}` presents {what}", remedy=FEWER)

    def _stop(self, length: int, why: _Why, rest: Reduced | None, link: _Link | None = None) -> None:
        if length > self.length:
            self.length, self.stopped = length, _Stop(why, rest, link)


# -- what is wrong -----------------------------------------------------------------------------------------------------


def _missing(stop: _Stop | None, holder: str, ground: ChainGround) -> ChainInvalid:
    """The refusal that says what stopped the longest chain."""
    message, remedy = (
        f"nothing presented adds a chain that ends at `{holder}`",
        "present what leads from an owner to it",
    )
    match stop:
        case _Stop("no link", None):
            message, remedy = f"nothing presented was issued to `{holder}`", f"present a certificate for `{holder}`"
        case _Stop("no link", Reduced(issuer, authority=(NetworkAuthority(network=name), *_), chain=(first, *_))) if (
            ground.same(issuer, ground.coordinator)
        ):
            message = f"the certificate `{brief(first.id)}` is for the network `{brief(name)}`, and this is another"
            remedy = f"ask for one for `{brief(ground.network)}`"
        case _Stop("no link", Reduced(issuer, chain=(first, *_)) as rest):
            network = isinstance(rest.authority[0], NetworkAuthority)
            lacks = "is not the coordinating domain" if network else "does not own what it gives"
            message = (
                f"the certificate `{brief(first.id)}` was issued by `{brief(issuer)}`, which {lacks}, and nothing "
                f"presented gives `{brief(issuer)}` a right that it may delegate"
            )
            remedy = f"present the certificate that gives `{brief(issuer)}` the right"
        case _Stop("too long"):
            message = f"a chain to `{holder}` is longer than MAX_CHAIN_LENGTH ({MAX_CHAIN_LENGTH})"
            remedy = "let fewer principals lie between the owner and the holder"
        case _Stop(why, rest, _Link(one, fault=fault)):
            issuer, after = brief(one.issuer), "" if rest is None else brief(rest.chain[0].id)
            remedy = f"ask `{issuer}` for another"
            match why:
                case "no delegation":
                    fault = f"does not let `{brief(one.subject)}` delegate, which issued `{after}`"
                    remedy = f"ask `{issuer}` for one with `delegate: true`"
                case "nothing left":
                    fault, remedy = f"gives nothing of what is left of `{after}`", f"ask `{issuer}` for more"
                case "cycle":
                    fault, remedy = f"leads back to `{issuer}`", "leave it out"
            message = f"the certificate `{brief(one.id)}` {fault}"
    return ChainInvalid(message, remedy=remedy)


def _bounded(bag: Iterable[Certificate]) -> tuple[Certificate, ...]:
    shown = tuple(itertools.islice(bag, MAX_BAG + 1))
    if len(shown) > MAX_BAG:
        raise ChainInvalid(f"more certificates are presented than MAX_BAG ({MAX_BAG})", remedy=FEWER)
    return shown


def _endless(one: Certificate, now: datetime) -> Certificate:
    """The certificate as it would be, had it not ended."""
    return replace(one, validity=Validity(one.validity.start)) if one.validity.is_over(now) else one


def _first(chains: tuple[Reduced, ...], test: Callable[[Certificate], bool]) -> Certificate | None:
    return next((link for chain in chains for link in chain.chain if test(link)), None)


def _anew(one: Certificate) -> str:
    return f"ask `{brief(one.issuer)}` for a new one"


def _each_once(bag: Iterable[Certificate], work: Work) -> list[Certificate]:
    """Each certificate once: presented twice counts once. Only those of one issuer and id are compared."""
    shown = list(bag)
    times = Counter(one.key for one in shown)
    certificates: dict[object, Certificate] = {}
    for one in shown:
        certificates.setdefault(one.key if times[one.key] == 1 else exact_certificate(one, work), one)
    return list(certificates.values())
