"""Which signed statements stand, and which rights and attributes rest on them (D13; Capabilities III, V.C; Guard IV).

Guarantees: after every change the admitted entries are exactly what `admitted` derives from what stands, from scratch;
entries that stay keep their place, and new ones come last. A statement that was revoked or has ended is dropped and
does not come back by itself. A certificate whose issuer has been silent for longer than it said is unknown: it grants
nothing until the issuer is heard again. What a key signed counts until that key ends (`counts`), and an end is only
ever brought forward. What a principal has shown gives it nothing while it is past a limit, and stops nobody else. What
limits a principal, its policy rule, does not lapse with the statement that brought it, and no other provider lifts it.
Leaves out: signatures, which are verified before a change is made of a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final

from headgate.authority.chains import ChainGround, Reduced, discover, exact_certificate, to_rules, why_not
from headgate.lang.render import fit_together, size
from headgate.model import authority, errors
from headgate.model.authority import ANY, Attested, AttestedRule, Certificate, Identity, NetworkAuthority, Succession
from headgate.model.errors import AlreadyExists, BadDefinition, BadExpression, ChainInvalid, StaleList, TooMany
from headgate.model.expressions import Condition, all_of
from headgate.model.layered import branch, drop
from headgate.model.limits import MAX_BAG, MAX_SUCCESSIONS
from headgate.model.rights import Rule, Source
from headgate.model.state import State
from headgate.model.types import check_name
from headgate.model.values import brief, render_timestamp

LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)
"""When a statement began that does not say when."""

_NEVER: Final = datetime(9999, 12, 31, tzinfo=UTC)
_KEPT: Final = (
    *("coordinator", "network", "certificates", "bags", "lists", "successions", "providers", "identities"),
    *("policy_rules", "attested_rules", "issuing", "keys"),
)
"""What of a state is kept here, and goes back into it."""


class StatementState:
    """What stands, while a batch is applied. Keys, principals and attributes are the caller's, who shares them."""

    def __init__(self, state: State) -> None:
        self.administrator = state.administrator
        self.coordinator = state.coordinator
        self.network = state.network
        self.certificates = branch(state.certificates)
        self.bags = branch(state.bags)
        self.lists = branch(state.lists)
        self.successions = branch(state.successions)
        self.providers = branch(state.providers)
        self.identities = branch(state.identities)
        self.policy_rules = branch(state.policy_rules)
        self.attested_rules = branch(state.attested_rules)
        self.issuing = branch(state.issuing)
        self.keys = branch(state.keys)
        self._rules_before = state.rules
        self._newest: dict[str, str] = {}

    @cached_property
    def holders(self) -> dict[str, str]:
        """The principal of each key; made when it is looked at."""
        return {key: name for name, key in self.keys.items()}

    @cached_property
    def admitted(self) -> dict[str, Rule]:
        """The entries that stand on chains, by id; made when they are looked at."""
        return {rule.id: rule for rule in self._rules_before if rule.source is Source.CHAIN}

    @property
    def has_admitted(self) -> bool:
        """Has anyone looked at the entries? If not, they are as they were."""
        return "admitted" in self.__dict__

    def kept(self) -> dict[str, Any]:
        """What of a state is as it is here, by its name; the entries that follow are not among it."""
        return {name: getattr(self, name) for name in _KEPT}

    # -- keys -------------------------------------------------------------------------------------------------

    def newest(self, key: str) -> str:
        """The key that a principal goes by now."""
        if key not in self.successions:
            return key
        latest = self._newest.get(key)
        if latest is None:
            latest = key
            for _ in range(MAX_SUCCESSIONS):
                if latest not in self.successions:
                    break
                latest = self.successions[latest].new
            self._newest[key] = latest
        return latest

    def same(self, a: str, b: str) -> bool:
        """Do two keys belong to one principal?"""
        return a == b or (bool(self.successions) and self.newest(a) == self.newest(b))

    def counts(self, key: str, at: datetime) -> bool:
        """Does what a key signed still count? Its principal may have said until when."""
        return self._end_of(key) > at

    def _end_of(self, key: str) -> datetime:
        succession = self.successions.get(key)
        return _NEVER if succession is None or succession.until is None else succession.until

    def key_of(self, principal: str) -> str:
        """The key of a principal; one that has none goes by its name."""
        return self.keys.get(principal, principal)

    def principal_of(self, key: str) -> str:
        """The principal of a key; a key that no principal has stands for itself.

        A principal that goes by its key's name and has been given another is not the one whose key it was.
        """
        return self.holders.get(key) or self.holders.get(self.newest(key)) or ("" if key in self.keys else key)

    def set_key(self, principal: str, key: str | None) -> None:
        """A principal has this key from now on, or none."""
        self.holders.pop(self.keys.get(principal, ""), None)
        if key is None:
            self.keys.pop(principal, None)
        else:
            self.keys[principal] = key
            self.holders[key] = principal

    def succeed(self, succession: Succession, at: datetime) -> None:
        """A principal goes on under a new key."""
        old, new = succession.old, succession.new
        known = self.successions.get(old)
        if known is not None and succession.number <= known.number and not succession.ends_before(known):
            raise StaleList(f"`{old}` has said something newer about its successor", remedy="send its last word")
        if known is not None and known.new != new:
            raise BadDefinition(f"`{old}` is succeeded by `{known.new}` already", remedy="let that key be succeeded")
        if known is not None and known.until is not None and (succession.until or _NEVER) > known.until:
            raise BadDefinition(
                f"`{old}` ends at `{render_timestamp(known.until)}`, and an end is only ever brought forward",
                remedy="let the new key sign",
            )
        if known is None:
            if self.newest(new) == old:
                raise BadDefinition(f"`{new}` was succeeded by `{old}`: keys do not go round in a circle")
            if new in self.holders:
                raise BadDefinition(f"`{self.holders[new]}` already has the key `{new}`", remedy="make a new key")
            forth = {one.old: one.new for one in self.successions.values()}
            back = {newer: older for older, newer in forth.items()}
            if _steps(old, back) + 1 + _steps(new, forth) > MAX_SUCCESSIONS:
                raise TooMany(f"more keys follow one another than MAX_SUCCESSIONS ({MAX_SUCCESSIONS})")
            if (name := self.holders.get(old)) is not None:
                self.set_key(name, new)
        number = max(succession.number, 0 if known is None else known.number)
        self.successions[old] = replace(succession, number=number)
        self._newest.clear()
        self.settle(self.bags, at)

    # -- certificates -----------------------------------------------------------------------------------------

    def present(
        self,
        principal: str,
        certificates: tuple[Certificate, ...],
        at: datetime,
        owns: Callable[[str, str], bool],
        may_be_named: Callable[[Condition], bool] = lambda _: True,
    ) -> None:
        """Take up what a principal shows; refused if none of it completes a chain.

        `owns` tells whether a principal may be the owner of types by a name or pattern: a chain that begins at anyone
        else gives nothing, and completes nothing. A certificate of somebody else is left out if its conditions name
        what not just anyone may name.
        """
        left_out = [one for one in certificates if self._names_closed(one, may_be_named)]
        certificates = tuple(one for one in certificates if one not in left_out)
        for certificate in certificates:
            known = self.certificates.get(certificate.key, certificate)
            if known is not certificate and exact_certificate(known) != exact_certificate(certificate):
                raise AlreadyExists(
                    f"another certificate `{brief(certificate.id)}` of `{certificate.issuer}` is known",
                    remedy="issue it anew",
                )
        shown = {one.key: one for one in certificates}
        bag = {**{key: self.certificates[key] for key in self.bags.get(principal, ())}, **shown}
        if len(bag) > MAX_BAG:
            raise TooMany(f"`{principal}` has shown more certificates than MAX_BAG ({MAX_BAG})", remedy="show fewer")
        found = [chain for chain in self._chains(principal, bag.values(), at) if self._gives(chain, owns)]
        completes = any(link.key in shown for chain in found for link in chain.chain)
        if left_out and not completes:
            raise ChainInvalid(
                f"the certificate `{brief(left_out[0].id)}` has a condition on what is not open here",
                remedy="ask its issuer for one that names only open groups and relations, and no private attribute",
            )
        if shown and not completes:
            ground = replace(self._ground(at), owners=lambda key: owns(self.principal_of(key), ANY))
            raise why_not(tuple(bag.values()), self.key_of(principal), ground)
        stands = [one for one in bag.values() if one.validity.holds(at) and not self.is_revoked(one)]
        self.certificates.update({one.key: one for one in stands})
        self.bags[principal] = tuple(one.key for one in stands)
        self.settle([principal], at)

    def close(self, may_be_named: Callable[[Condition], bool]) -> None:
        """Something may no longer be named by just anyone: whoever has shown a certificate that does shows all anew."""
        keys = {one.key for one in self.certificates.values() if self._names_closed(one, may_be_named)}
        self._show_anew(set(self._showing(keys)))

    def _names_closed(self, one: Certificate, may_be_named: Callable[[Condition], bool]) -> bool:
        if self.same(one.issuer, self.key_of(self.administrator)):
            return False
        return not all(may_be_named(each.where) for each in one.authority if isinstance(each, authority.TypeAuthority))

    def revoke(self, new: authority.RevocationList, at: datetime) -> None:
        """Take up a revocation list."""
        known = self.lists.get(new.issuer)
        if known is not None:
            again = known.number == new.number and known.revoked == new.revoked
            if new.number < known.number or (new.number == known.number and not again):
                raise StaleList(
                    f"list {new.number} of `{new.issuer}` is not newer than list {known.number}, which is known",
                    remedy="send the newest list",
                )
            if new.issued < known.issued:
                new = authority.RevocationList(new.issuer, new.number, known.issued, new.revoked)
        self.lists[new.issuer] = new
        self._drop(at)
        theirs = {one.key for one in self.certificates.values() if self.same(one.issuer, new.issuer)}
        self.settle(self._showing(theirs), at)

    def tick(self, at: datetime) -> None:
        """What ended by now falls; so does what rests on an issuer that fell silent."""
        self._drop(at)
        silent = {one.key for one in self.certificates.values() if one.freshness is not None}
        silent |= {one.key for one in self.certificates.values() if one.issuer in self.successions}
        self.settle(self._showing(silent), at)

    def remove(self, principal: str) -> None:
        """A principal ends, and with it what it has shown and what was attested of it."""
        self.rekey(principal, None)
        self.set_policy_rule(principal, None)
        drop(self.identities, lambda one: one.principal == principal)
        self.set_key(principal, None)

    def rekey(self, principal: str, new: str | None) -> None:
        """A principal gets another key by decree: what was shown for it, or rests on either key, is shown anew."""
        old = self.key_of(principal)
        authors = {rule.author for rule in self.admitted.values()}
        authors = {one for one in authors if one == principal or self.same(one, old) or self.same(one, new or old)}
        resting = {rule.who for rule in self.admitted.values() if rule.author in authors} | {principal}
        if principal == self.administrator and self.coordinator is None:
            resting |= self._networked()
        self._show_anew(resting)

    def coordinate(self, key: str | None) -> None:
        """Another domain coordinates the network: whoever has shown authority over one shows it anew."""
        if key != self.coordinator:
            self.coordinator = key
            self._show_anew(self._networked())

    def name_network(self, name: str | None) -> None:
        """The network has a name, or another: whoever has shown authority over one shows it anew."""
        if name == ANY:
            raise BadDefinition(f"a network is not called `{ANY}`, which is every network", remedy="give it a name")
        if name != self.network:
            self.network = name if name is None else check_name("network", name)
            self._show_anew(self._networked())

    def _networked(self) -> set[str]:
        """Who has shown authority over a network."""
        keys = {
            key
            for key, one in self.certificates.items()
            if any(isinstance(each, NetworkAuthority) for each in one.authority)
        }
        return set(self._showing(keys))

    def _show_anew(self, principals: set[str]) -> None:
        """Take from principals all that they have shown, and what it gave them."""
        for who in [who for who in self.bags if who in principals]:
            del self.bags[who]
        drop(self.admitted, lambda rule: rule.who in principals)
        self._forget()

    def settle(self, principals: Iterable[str], at: datetime) -> None:
        """Give each of these principals the entries that its chains give it now, and no others."""
        for principal in list(principals):
            wanted = self._rules(principal, at)
            for id in [id for id, rule in self.admitted.items() if rule.who == principal and id not in wanted]:
                del self.admitted[id]
            for id, rule in wanted.items():
                self.admitted.setdefault(id, rule)

    def derived(self, at: datetime) -> dict[str, Rule]:
        """Every entry that stands on chains, from scratch."""
        return {id: rule for principal in self.bags for id, rule in self._rules(principal, at).items()}

    def moments(self) -> Iterator[datetime]:
        """When something of what stands may fall by the clock alone."""
        for certificate in self.certificates.values():
            if certificate.validity.until is not None:
                yield certificate.validity.until
            if (
                certificate.freshness is not None
                and (silent := self._silent_from(certificate.issuer, certificate.freshness)) is not None
            ):
                yield silent
        yield from (one.until for one in self.successions.values() if one.until is not None)
        for attested in self.identities.values():
            if attested.identity.validity.until is not None:
                yield attested.identity.validity.until

    def _rules(self, principal: str, at: datetime) -> dict[str, Rule]:
        """The entries of a principal, by id; none where what it has shown is past a limit by now."""
        bag = [self.certificates[key] for key in self.bags.get(principal, ())]
        try:
            chains = self._chains(principal, bag, at)
        except ChainInvalid:  # its own loss: what others have, and what is revoked, does not wait for it
            return {}
        return {rule.id: rule for chain in chains for rule in to_rules(principal, chain, self.principal_of)}

    def _chains(self, principal: str, bag: Iterable[Certificate], at: datetime) -> tuple[Reduced, ...]:
        return discover(tuple(bag), self.key_of(principal), self._ground(at))

    def _ground(self, at: datetime) -> ChainGround:
        return ChainGround(
            coordinator=self.coordinator or self.key_of(self.administrator),
            now=at,
            revoked=self.is_revoked,
            known=lambda one: self.is_known(one, at),
            same=self.same,
            network=self.network or ANY,
        )

    def _gives(self, chain: Reduced, owns: Callable[[str, str], bool]) -> bool:
        root = self.principal_of(chain.issuer)
        return any(isinstance(one, NetworkAuthority) or owns(root, one.type) for one in chain.authority)

    def is_revoked(self, one: Certificate | Identity) -> bool:
        """Has its issuer taken a statement back, under any of its keys?"""
        return any(one.id in found.revoked for found in self._lists_of(one.issuer))

    def is_known(self, certificate: Certificate, at: datetime) -> bool | None:
        """Has its issuer been heard lately, and does the key that signed it still count? Unknown if not."""
        if not self.counts(certificate.issuer, at):
            return False
        if certificate.freshness is None:
            return True
        silent = self._silent_from(certificate.issuer, certificate.freshness)
        return None if silent is None or silent <= at else True

    def _silent_from(self, issuer: str, freshness: int) -> datetime | None:
        """From when on an issuer has been silent for too long. A list is a sign of life until its own key ends."""
        borne = timedelta(seconds=freshness)
        return max((min(one.issued + borne, self._end_of(one.issuer)) for one in self._lists_of(issuer)), default=None)

    def _lists_of(self, issuer: str) -> Iterator[authority.RevocationList]:
        if not self.successions:
            if issuer in self.lists:
                yield self.lists[issuer]
            return
        yield from (one for one in self.lists.values() if self.same(one.issuer, issuer))

    def _showing(self, keys: set[str]) -> list[str]:
        """The principals that have shown one of these certificates."""
        return [who for who, bag in self.bags.items() if keys.intersection(bag)]

    def _drop(self, at: datetime) -> None:
        """Let go of what ended or was revoked, and of the entries and attributes that rest on it."""
        gone = {key for key, one in self.certificates.items() if one.validity.is_over(at) or self.is_revoked(one)}
        if gone:
            held = self._showing(gone)
            for who in held:
                self.bags[who] = tuple(key for key in self.bags[who] if key not in gone)
            self._forget()
            self.settle(held, at)
            drop(self.bags, lambda bag: not bag)

    def _forget(self) -> None:
        shown = {key for bag in self.bags.values() for key in bag}
        drop(self.certificates, lambda one: one.key not in shown)

    # -- identities and policy rules --------------------------------------------------------------------------

    def set_policy_rule(self, principal: str, rule: Condition | None) -> None:
        """The domain's own word on what must be wider than a principal's requirements."""
        self.attested_rules.pop(principal, None)
        self.policy_rules.pop(principal, None)
        if rule is not None:
            self.policy_rules[principal] = rule

    def trust(self, provider: authority.Provider) -> None:
        """An identity provider is trusted, or trusted in another way."""
        self.providers[provider.key] = provider

    def is_ours(self, issuer: str) -> bool:
        """Do statements of this provider count here as they are?"""
        found = next((one for one in self.providers.values() if self.same(one.key, issuer)), None)
        return found is not None and found.mapping is None

    def identify(self, principal: str, identity: Identity, own: Iterable[str], at: datetime) -> Attested:
        """Take up an identity statement; the attributes that are the domain's `own` word stand as they are."""
        if not self.is_ours(identity.issuer):
            raise ChainInvalid(
                f"`{brief(identity.issuer)}` is not an identity provider of this domain",
                remedy="ask a provider of this domain for a guest statement",
            )
        if not self.counts(identity.issuer, at):
            raise ChainInvalid(
                f"the statement `{brief(identity.id)}` is signed with a key of its provider that has ended",
                remedy="ask for one that the new key signs",
            )
        if not self.same(identity.subject, self.key_of(principal)):
            raise ChainInvalid(f"the statement `{brief(identity.id)}` is not about `{principal}`")
        if identity.validity.is_over(at):
            raise errors.Expired(
                f"the identity statement `{brief(identity.id)}` is past its end", remedy="ask for a new one"
            )
        if not identity.validity.holds(at):
            raise ChainInvalid(f"the identity statement `{brief(identity.id)}` is not good yet")
        if self.is_revoked(identity):
            raise errors.Revoked(f"the identity statement `{brief(identity.id)}` was revoked")
        known = self.identities.get(identity.key)
        if known is not None and known.principal != principal:  # taking its place would leave what that one brought
            raise AlreadyExists(
                f"another identity statement `{brief(identity.id)}` of `{brief(identity.issuer)}` is known",
                remedy="issue it anew",
            )
        if any(
            one.identity != identity and began(one.identity) > began(identity)
            for one in self._said(principal, identity)
        ):
            raise StaleList(
                f"`{brief(identity.issuer)}` has said something newer about `{principal}`", remedy="show its last word"
            )
        made = Attested(principal, identity, frozenset(identity.attributes) - frozenset(own))
        self.identities[identity.key] = made
        if identity.policy_rule is not None:
            self._limit(AttestedRule(principal, identity.issuer, began(identity), identity.policy_rule))
        return made

    def _said(self, principal: str, identity: Identity) -> Iterator[Attested]:
        """What stands that the provider of a statement has said of a principal."""
        for one in self.identities.values():
            if one.principal == principal and self.same(one.identity.issuer, identity.issuer):
                yield one

    def _limit(self, new: AttestedRule) -> None:
        """A provider's rule takes the place of its last one; those of all providers hold together.

        The domain's own rule stands before them, and one that began earlier brings nothing back.
        """
        who = new.principal
        if who in self.policy_rules and who not in self.attested_rules:
            return
        known = self.attested_rules.get(who, ())
        last = [one for one in known if self.same(one.provider, new.provider)]
        if new in last or any(one.began > new.began for one in last):
            return
        every = sorted((new, *(one for one in known if one not in last)), key=lambda one: one.provider)
        rules = {repr(one.rule): one.rule for one in every}.values()
        if len(rules) > 1 and not fit_together(map(size, rules)):
            raise BadExpression(
                f"the policy rules that providers attest of `{who}` are too long to hold together",
                remedy="ask a provider for a shorter one",
            )
        self.attested_rules[who] = tuple(every)
        self.policy_rules[who] = all_of(*rules)

    def disown(self, principal: str, attribute: str) -> None:
        """The domain itself has spoken of an attribute: no statement takes that back when it ends."""
        for key, one in list(self.identities.items()):
            if one.principal == principal and attribute in one.applied:
                self.identities[key] = replace(one, applied=one.applied - {attribute})

    def end_issuing(self, who: str) -> None:
        """A principal or group ends, and with it what is issued to it."""
        drop(self.issuing, lambda one: one.who == who)

    def ended(self, at: datetime | None) -> list[Attested]:
        """The identity statements that no longer stand; they are let go of."""
        gone = [
            one
            for one in self.identities.values()
            if (at is not None and (one.identity.validity.is_over(at) or not self.counts(one.identity.issuer, at)))
            or self.is_revoked(one.identity)
            or not self.is_ours(one.identity.issuer)
        ]
        for one in gone:
            del self.identities[one.identity.key]
        return gone


def _steps(key: str, following: Mapping[str, str]) -> int:
    """How many keys follow one another from a key, up to one more than may be."""
    steps = 0
    while key in following and steps <= MAX_SUCCESSIONS:
        key, steps = following[key], steps + 1
    return steps


def began(one: Identity) -> datetime:
    """When an identity statement began to be good."""
    return one.validity.start or LONG_AGO


def admitted(state: State, at: datetime) -> dict[str, Rule]:
    """Every entry that the presented certificates give at a time, from scratch: what the ledger must hold."""
    return StatementState(state).derived(at)


def next_moment(state: State, after: datetime) -> datetime | None:
    """When the clock will next take something away, if ever."""
    return min((at for at in StatementState(state).moments() if at > after), default=None)
