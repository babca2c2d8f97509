"""Which chains does a bag of certificates hold for its holder? (Capabilities III.B and figure 6)

Guarantees: `discover` finds every chain that begins at someone who owns what it gives, ends at the holder, passes no
key twice, has every link in force, and has at most `MAX_CHAIN_LENGTH` of them. It works backwards from the holder,
reduces as it goes and turns back where nothing is left, so that certificates that do not concern the holder cost
nothing. The work is bounded, by the size of what is put together too: past a limit all is refused, and nothing is half
admitted. A chain that passes a key twice gives nothing that it does not give without the detour.
Leaves out: signatures (`trust`), and what becomes of the rights (`authority.statement_state`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from itertools import islice
from operator import eq
from typing import Final, TypeAlias

from headgate.authority.reduction import (
    ConjunctionPart,
    Reduced,
    Same,
    Work,
    as_reduced,
    combine,
    exact_certificate,
    rooted,
)
from headgate.model import limits
from headgate.model.authority import ANY, Authority, Certificate, NetworkAuthority, Validity
from headgate.model.errors import ChainInvalid, Expired, HeadgateError, Revoked
from headgate.model.limits import MAX_BAG, MAX_CHAIN_LENGTH, MAX_CHAIN_RIGHTS, MAX_CHAIN_STEPS, MAX_CHAINS
from headgate.model.values import brief, render_timestamp

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


class _Why(Enum):
    """Why a chain goes no further back."""

    NOT_IN_FORCE = "not in force"
    CYCLE = "cycle"
    NO_DELEGATION = "no delegation"
    NOTHING_LEFT = "nothing left"
    TOO_LONG = "too long"
    NO_LINK = "no link"


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
        self.links = [self._link(one) for one in _distinct(bag, self.work)]
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
            fault = f"has conditions of more atoms than MAX_CLAUSE_ATOMS ({limits.MAX_CLAUSE_ATOMS})"
        return _Link(certificate, reduced, fault)

    def _lengthen(self, rest: Reduced | None, keys: tuple[str, ...]) -> None:
        """Put each certificate that was issued to the first of these keys before the rest of a chain."""
        links = self._issued_to(keys[0])
        if not links and (rest is None or not self.ground.counts(rest, self.work)):
            self._stop(len(keys) - 1, _Why.NO_LINK, rest)
        if links and len(keys) > MAX_CHAIN_LENGTH:
            self._stop(len(keys), _Why.TOO_LONG, rest)
            return
        for link in links:
            self._count(len(link.reduced.authority) * (1 if rest is None else len(rest.authority)))
            chain = self._join(link, rest, keys)
            if isinstance(chain, _Why):
                self._stop(len(keys), chain, rest, link)
            else:
                self._keep(chain)
                self._lengthen(chain, (link.certificate.issuer, *keys))

    def _join(self, link: _Link, rest: Reduced | None, keys: tuple[str, ...]) -> Reduced | _Why:
        """The chain with one more link before it, or why there is no such chain."""
        if link.fault:
            return _Why.NOT_IN_FORCE
        if any(self.ground.same(link.certificate.issuer, key) for key in keys):
            return _Why.CYCLE
        if rest is None:
            return link.reduced
        if not link.certificate.delegate:
            return _Why.NO_DELEGATION
        return combine(link.reduced, rest, self.ground.same, self.work) or _Why.NOTHING_LEFT

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
        case _Stop(_Why.NO_LINK, None):
            message, remedy = f"nothing presented was issued to `{holder}`", f"present a certificate for `{holder}`"
        case _Stop(
            _Why.NO_LINK, Reduced(issuer, authority=(NetworkAuthority(network=name), *_), chain=(first, *_))
        ) if ground.same(issuer, ground.coordinator):
            message = f"the certificate `{brief(first.id)}` is for the network `{brief(name)}`, and this is another"
            remedy = f"ask for one for `{brief(ground.network)}`"
        case _Stop(_Why.NO_LINK, Reduced(issuer, chain=(first, *_)) as rest):
            network = isinstance(rest.authority[0], NetworkAuthority)
            lacks = "is not the coordinating domain" if network else "does not own what it gives"
            message = (
                f"the certificate `{brief(first.id)}` was issued by `{brief(issuer)}`, which {lacks}, and nothing "
                f"presented gives `{brief(issuer)}` a right that it may delegate"
            )
            remedy = f"present the certificate that gives `{brief(issuer)}` the right"
        case _Stop(_Why.TOO_LONG):
            message = f"a chain to `{holder}` is longer than MAX_CHAIN_LENGTH ({MAX_CHAIN_LENGTH})"
            remedy = "let fewer principals lie between the owner and the holder"
        case _Stop(why, rest, _Link(one, fault=fault)):
            what, remedy = _refused(why, one, fault, "" if rest is None else brief(rest.chain[0].id))
            message = f"the certificate `{brief(one.id)}` {what}"
    return ChainInvalid(message, remedy=remedy)


def _refused(why: _Why, certificate: Certificate, fault: str, after: str) -> tuple[str, str]:
    """Why a certificate does not go before the one that comes `after` it, and what to do."""
    issuer, subject = brief(certificate.issuer), brief(certificate.subject)
    match why:
        case _Why.NO_DELEGATION:
            what = f"does not let `{subject}` delegate, which issued `{after}`"
            return what, f"ask `{issuer}` for one with `delegate: true`"
        case _Why.NOTHING_LEFT:
            return f"gives nothing of what is left of `{after}`", f"ask `{issuer}` for more"
        case _Why.CYCLE:
            return f"leads back to `{issuer}`", "leave it out"
        case _:
            return fault, f"ask `{issuer}` for another"


def _bounded(bag: Iterable[Certificate]) -> tuple[Certificate, ...]:
    shown = tuple(islice(bag, MAX_BAG + 1))
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


def _distinct(bag: Iterable[Certificate], work: Work) -> list[Certificate]:
    """Each certificate once: presented twice counts once. Only those of one issuer and id are compared."""
    shown = list(bag)
    times = Counter(one.key for one in shown)
    certificates: dict[object, Certificate] = {}
    for one in shown:
        certificates.setdefault(one.key if times[one.key] == 1 else exact_certificate(one, work), one)
    return list(certificates.values())
