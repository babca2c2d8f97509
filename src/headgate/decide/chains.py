"""Which chains does a bag of certificates hold for its holder? (Capabilities III.B and figure 6)

Guarantees: `discover` finds every chain that begins at someone who owns what it gives, ends at the holder, passes no
key twice, has every link in force, and has at most `MAX_CHAIN_LENGTH` of them. It works backwards from the holder,
reduces as it goes and turns back where nothing is left, so that certificates that do not concern the holder cost
nothing. The work is bounded: past a limit all is refused, and nothing is half admitted. A chain that passes a key twice
gives nothing that it does not give without the detour.
Leaves out: signatures (`trust`), and what becomes of the rights (`decide.standing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from operator import eq
from typing import Final, TypeAlias

from headgate.decide.reduction import Reduced, Same, as_reduced, combine, exact, meet, reduce, rooted, to_rules
from headgate.model.authority import ANY, Certificate, NetworkAuthority, Validity
from headgate.model.errors import ChainInvalid, Expired, HeadgateError, Revoked
from headgate.model.limits import MAX_BAG, MAX_CHAIN_LENGTH, MAX_CHAIN_RIGHTS, MAX_CHAIN_STEPS, MAX_CHAINS
from headgate.model.values import brief, render_timestamp

__all__ = [
    "Reduced",
    "Same",
    "as_reduced",
    "combine",
    "discover",
    "meet",
    "reduce",
    "rooted",
    "to_rules",
    "why_not",
]

Known: TypeAlias = Callable[[Certificate], bool | None]
"""Does the issuer's word on a certificate still count? Anything but true is unknown, which never grants."""

FEWER: Final = "present fewer certificates"


def _anyone(key: str) -> bool:  # noqa: ARG001 - whoever asks about owners puts something better here
    return True


def discover(
    bag: Iterable[Certificate],
    holder: str,
    *,
    coordinator: str,
    now: datetime,
    revoked: Callable[[Certificate], bool],
    known: Known,
    same: Same = eq,
    owners: Callable[[str], bool] = _anyone,
    network: str = ANY,
) -> tuple[Reduced, ...]:
    """Every chain of the bag that gives the holder something, with just the authority that counts.

    They come as the certificates were presented: by the link of the holder, then the one before it, and so on.
    `owners` tells the keys that own event types, where the caller knows; `network` is the name of the network here.
    """
    ground = _Ground(coordinator, now, revoked, known, same, owners, network)
    return _Search(_bounded(bag), holder, ground).run()


def why_not(
    bag: Iterable[Certificate],
    holder: str,
    *,
    coordinator: str,
    now: datetime,
    revoked: Callable[[Certificate], bool],
    known: Known,
    same: Same = eq,
    owners: Callable[[str], bool] = _anyone,
    network: str = ANY,
) -> HeadgateError:
    """Why the bag gives the holder nothing, or nothing new: what ended, what was revoked, or what is missing."""
    ground = _Ground(coordinator, now, revoked, known, same, owners, network)
    try:
        shown = _bounded(bag)
        over = {one.key: one.validity.until for one in shown if one.validity.is_over(now)}
        ended = _first(_Search([_endless(one, now) for one in shown], holder, ground).run(), lambda c: c.key in over)
        if ended is not None and (until := over[ended.key]) is not None:
            return Expired(
                f"the certificate `{brief(ended.id)}` ended at `{render_timestamp(until)}`", remedy=_anew(ended)
            )
        lost = _first(_Search(shown, holder, replace(ground, revoked=lambda _: False)).run(), revoked)
        if lost is not None:
            return Revoked(f"the certificate `{brief(lost.id)}` was revoked", remedy=_anew(lost))
        search = _Search(shown, holder, ground)
        search.run()
    except ChainInvalid as past_a_limit:
        return past_a_limit
    return ChainInvalid(search.obstacle, remedy=search.remedy)


# -- the search -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ground:
    """What a chain is judged by."""

    coordinator: str
    now: datetime
    revoked: Callable[[Certificate], bool]
    known: Known
    same: Same
    owners: Callable[[str], bool]
    network: str

    def given(self, chain: Reduced) -> Reduced:
        """The chain with what of its authority counts."""
        counts = rooted(chain, self.coordinator, self.same, network=self.network)
        if not self.owners(chain.issuer):
            counts = tuple(one for one in counts if isinstance(one, NetworkAuthority))
        return replace(chain, authority=counts)

    def fault(self, one: Certificate) -> str:
        """Why a certificate is not in force; nothing if it is."""
        if one.validity.is_over(self.now):
            return "is past its end"
        if not one.validity.holds(self.now):
            assert one.validity.start is not None
            return f"is not valid before `{render_timestamp(one.validity.start)}`"
        if self.revoked(one):
            return "was revoked"
        if self.known(one) is not True:
            return f"is unknown while nothing is heard from `{brief(one.issuer)}`"
        return ""


@dataclass(frozen=True, slots=True)
class _Link:
    """A certificate of the bag, and why it is not in force, if it is not."""

    certificate: Certificate
    reduced: Reduced
    fault: str


class _Search:
    """Depth first from the holder to the owners; keeps what stopped the longest chain that came to nothing."""

    def __init__(self, bag: Iterable[Certificate], holder: str, ground: _Ground) -> None:
        self.holder = holder
        self.ground = ground
        distinct = {_text(one): one for one in bag}  # presented twice counts once
        self.links = [_Link(one, as_reduced(one), ground.fault(one)) for one in distinct.values()]
        self.to: dict[str, list[_Link]] = {}
        self.found: list[Reduced] = []
        self.rights = 0
        self.steps = 0
        self.length = -1
        self.obstacle = f"nothing presented adds a chain that ends at `{brief(holder)}`"
        self.remedy = "present certificates that lead from an owner to it"

    def run(self) -> tuple[Reduced, ...]:
        """Every chain that gives the holder something."""
        self._lengthen(None, (self.holder,))
        return tuple(self.found)

    def _lengthen(self, rest: Reduced | None, keys: tuple[str, ...]) -> None:
        """Put each certificate that was issued to the first of these keys before the rest of a chain."""
        links = self._issued_to(keys[0])
        if not links:
            self._dead_end(rest)
        elif len(keys) > MAX_CHAIN_LENGTH:
            self._stop(
                len(keys),
                f"a chain to `{brief(self.holder)}` is longer than MAX_CHAIN_LENGTH ({MAX_CHAIN_LENGTH})",
                "let fewer principals lie between the owner and the holder",
            )
            return
        for link in links:
            self._count(len(link.reduced.authority) * (1 if rest is None else len(rest.authority)))
            chain = self._join(link, rest, keys)
            if chain is not None:
                self._keep(self.ground.given(chain))
                self._lengthen(chain, (link.certificate.issuer, *keys))

    def _join(self, link: _Link, rest: Reduced | None, keys: tuple[str, ...]) -> Reduced | None:
        """The chain with one more link before it; None, and the reason kept, if there is no such chain."""
        one, length = link.certificate, len(keys)
        name, issuer = brief(one.id), brief(one.issuer)
        if link.fault:
            self._stop(length, f"the certificate `{name}` {link.fault}", f"ask `{issuer}` for one that is in force")
            return None
        if any(self.ground.same(one.issuer, key) for key in keys):
            self._stop(length, f"the certificate `{name}` leads back to `{issuer}`", "leave it out")
            return None
        if rest is None:
            return link.reduced
        after = brief(rest.chain[0].id)
        if not one.delegate:
            self._stop(
                length,
                f"the certificate `{name}` does not let `{brief(one.subject)}` delegate, which issued `{after}`",
                f"ask `{issuer}` for one with `delegate: true`",
            )
            return None
        chain = combine(link.reduced, rest, self.ground.same)
        if chain is None:
            self._stop(
                length,
                f"the certificate `{name}` gives nothing of what is left of `{after}`",
                f"ask `{issuer}` for more, or `{brief(rest.issuer)}` for something that it was given",
            )
        return chain

    def _keep(self, given: Reduced) -> None:
        if not given.authority:
            return
        self.found.append(given)
        self.rights += len(given.authority)
        if len(self.found) > MAX_CHAINS:
            raise self._too_much(f"more chains than MAX_CHAINS ({MAX_CHAINS})")
        if self.rights > MAX_CHAIN_RIGHTS:
            raise self._too_much(f"chains with more rights than MAX_CHAIN_RIGHTS ({MAX_CHAIN_RIGHTS})")

    def _dead_end(self, rest: Reduced | None) -> None:
        """Nothing was issued to whoever the chain begins at so far. Unless that is the owner, it comes to nothing."""
        holder = brief(self.holder)
        if rest is None:
            self._stop(0, f"nothing presented was issued to `{holder}`", f"present a certificate for `{holder}`")
        elif not self.ground.given(rest).authority:
            issuer = brief(rest.issuer)
            network = isinstance(rest.authority[0], NetworkAuthority)
            lacks = "is not the coordinating domain" if network else "does not own what it gives"
            self._stop(
                len(rest.chain),
                f"the certificate `{brief(rest.chain[0].id)}` was issued by `{issuer}`, which {lacks}, and nothing "
                f"presented gives `{issuer}` a right that it may delegate",
                f"present the certificate that gives `{issuer}` the right",
            )

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

    def _stop(self, length: int, message: str, remedy: str) -> None:
        if length > self.length:
            self.length, self.obstacle, self.remedy = length, message, remedy


# -- what would do ----------------------------------------------------------------------------------------------------


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


def _text(one: Certificate) -> str:
    """A text that only copies of a certificate share."""
    given = [exact(authority) for authority in one.authority]
    return repr((one.key, one.subject, one.delegate, one.validity, one.freshness, given))
