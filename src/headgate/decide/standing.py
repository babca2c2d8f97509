"""Which signed statements stand, and which rights and attributes rest on them (D13; Capabilities III, V.C; Guard IV).

Guarantees: after every change the admitted entries are exactly what `admitted` derives from what stands, from scratch;
entries that stay keep their place, and new ones come last. A statement that was revoked or has ended is dropped and
does not come back by itself. A certificate whose issuer has been silent for longer than it said is unknown: it grants
nothing until the issuer is heard again. What limits a principal, its policy rule, does not lapse with the statement
that brought it.
Leaves out: signatures, which are verified before a change is made of a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from headgate.decide.bind import bind
from headgate.decide.chains import Reduced, discover, to_rules, why_not
from headgate.decide.normal import clauses
from headgate.decide.reduction import exact
from headgate.decide.views import condition_for
from headgate.model.authority import (
    ANY,
    Attested,
    Certificate,
    Identity,
    NetworkAuthority,
    Provider,
    RevocationList,
    Succession,
)
from headgate.model.conditions import Condition
from headgate.model.errors import (
    AlreadyExists,
    BadDefinition,
    BadExpression,
    ChainInvalid,
    Expired,
    Revoked,
    StaleList,
    TooMany,
)
from headgate.model.limits import MAX_BAG, MAX_SUCCESSIONS
from headgate.model.rights import Rule, Source
from headgate.model.state import State
from headgate.model.values import brief


class Standing:
    """What stands, while a batch is applied. Keys, principals and attributes are the caller's, who shares them."""

    def __init__(self, state: State) -> None:
        self.administrator = state.administrator
        self.coordinator = state.coordinator
        self.certificates = dict(state.certificates)
        self.bags = dict(state.bags)
        self.lists = dict(state.lists)
        self.successions = dict(state.successions)
        self.providers = dict(state.providers)
        self.identities = dict(state.identities)
        self.policy_rules = dict(state.policy_rules)
        self.attested_rules = set(state.attested_rules)
        self.issuing = dict(state.issuing)
        self.keys = dict(state.keys)
        self.holders = {key: name for name, key in state.keys.items()}
        self.admitted = {rule.id: rule for rule in state.rules if rule.source is Source.CHAIN}

    # -- keys -------------------------------------------------------------------------------------------------

    def newest(self, key: str) -> str:
        """The key that a principal goes by now."""
        for _ in range(MAX_SUCCESSIONS):
            if key not in self.successions:
                break
            key = self.successions[key].new
        return key

    def same(self, a: str, b: str) -> bool:
        """Do two keys belong to one principal?"""
        return a == b or (bool(self.successions) and self.newest(a) == self.newest(b))

    def key_of(self, principal: str) -> str:
        """The key of a principal; one that has none goes by its name."""
        return self.keys.get(principal, principal)

    def principal_of(self, key: str) -> str:
        """The principal of a key; a key that no principal has stands for itself.

        A principal that goes by its key's name and has been given another is not the one whose key it was.
        """
        return self.holders.get(key) or self.holders.get(self.newest(key)) or ("" if key in self.keys else key)

    def succeed(self, succession: Succession, at: datetime) -> None:
        """A principal goes on under a new key."""
        old, new = succession.old, succession.new
        known = self.successions.get(old)
        if known is not None and succession.number <= known.number:
            raise StaleList(f"`{old}` has said something newer about its successor", remedy="send its last word")
        if known is not None and known.new != new:
            raise BadDefinition(f"`{old}` is succeeded by `{known.new}` already", remedy="let that key be succeeded")
        if known is None:
            if self.newest(new) == old:
                raise BadDefinition(f"`{new}` was succeeded by `{old}`: keys do not go round in a circle")
            if new in self.holders:
                raise BadDefinition(f"`{self.holders[new]}` already has the key `{new}`", remedy="make a new key")
            if self._older(old) + 1 + self._newer(new) > MAX_SUCCESSIONS:
                raise TooMany(f"more keys follow one another than MAX_SUCCESSIONS ({MAX_SUCCESSIONS})")
            if (name := self.holders.pop(old, None)) is not None:
                self.keys[name] = new
                self.holders[new] = name
        self.successions[old] = succession
        self.settle(self.bags, at)

    def _older(self, key: str) -> int:
        before = {one.new: one.old for one in self.successions.values()}
        steps = 0
        while key in before and steps <= MAX_SUCCESSIONS:
            key, steps = before[key], steps + 1
        return steps

    def _newer(self, key: str) -> int:
        steps = 0
        while key in self.successions and steps <= MAX_SUCCESSIONS:
            key, steps = self.successions[key].new, steps + 1
        return steps

    # -- certificates -----------------------------------------------------------------------------------------

    def present(
        self, principal: str, certificates: tuple[Certificate, ...], at: datetime, owns: Callable[[str, str], bool]
    ) -> None:
        """Take up what a principal shows; refused if none of it completes a chain.

        `owns` tells whether a principal may be the owner of types by a name or pattern: a chain that begins at anyone
        else gives nothing, and completes nothing.
        """
        for one in certificates:
            if _text(self.certificates.get(one.key, one)) != _text(one):
                raise AlreadyExists(
                    f"another certificate `{brief(one.id)}` of `{one.issuer}` is known", remedy="issue it anew"
                )
        shown = {one.key: one for one in certificates}
        bag = {**{key: self.certificates[key] for key in self.bags.get(principal, ())}, **shown}
        if len(bag) > MAX_BAG:
            raise TooMany(f"`{principal}` has shown more certificates than MAX_BAG ({MAX_BAG})", remedy="show fewer")
        found = [chain for chain in self._chains(principal, bag.values(), at) if self._gives(chain, owns)]
        if shown and not any(link.key in shown for chain in found for link in chain.chain):
            raise why_not(
                tuple(bag.values()),
                self.key_of(principal),
                coordinator=self._coordinator(),
                now=at,
                revoked=self._is_revoked,
                known=lambda one: self._is_known(one, at),
                same=self.same,
                owners=lambda key: owns(self.principal_of(key), ANY),
            )
        stands = [one for one in bag.values() if one.validity.holds(at) and not self._is_revoked(one)]
        self.certificates.update({one.key: one for one in stands})
        self.bags[principal] = tuple(one.key for one in stands)
        self.settle([principal], at)

    def revoke(self, new: RevocationList, at: datetime) -> None:
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
                new = RevocationList(new.issuer, new.number, known.issued, new.revoked)
        self.lists[new.issuer] = new
        self._drop(at)
        self.settle(self._asking(new.issuer), at)

    def tick(self, at: datetime) -> None:
        """What ended by now falls; so does what rests on an issuer that fell silent."""
        self._drop(at)
        silent = {one.key for one in self.certificates.values() if one.freshness is not None}
        silent |= {one.key for one in self.certificates.values() if one.issuer in self.successions}
        self.settle([who for who, bag in self.bags.items() if silent.intersection(bag)], at)

    def remove(self, principal: str) -> None:
        """A principal ends, and with it what it has shown and what was attested of it."""
        self.rekey(principal, None)
        self.set_policy_rule(principal, None)
        self.identities = {key: one for key, one in self.identities.items() if one.principal != principal}
        self.holders.pop(self.keys.pop(principal, ""), None)

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

    def _networked(self) -> set[str]:
        """Who has shown authority over a network."""
        keys = {
            key
            for key, one in self.certificates.items()
            if any(isinstance(each, NetworkAuthority) for each in one.authority)
        }
        return {who for who, bag in self.bags.items() if keys.intersection(bag)}

    def _show_anew(self, principals: set[str]) -> None:
        """Take from principals all that they have shown, and what it gave them."""
        self.bags = {who: bag for who, bag in self.bags.items() if who not in principals}
        self.admitted = {id: rule for id, rule in self.admitted.items() if rule.who not in principals}
        self._forget()

    def settle(self, principals: Iterable[str], at: datetime) -> None:
        """Give each of these principals the entries that its chains give it now, and no others."""
        for principal in list(principals):
            wanted = {rule.id: rule for rule in self._rules(principal, at)}
            for id in [id for id, rule in self.admitted.items() if rule.who == principal and id not in wanted]:
                del self.admitted[id]
            for id, rule in wanted.items():
                self.admitted.setdefault(id, rule)

    def derived(self, at: datetime) -> dict[str, Rule]:
        """Every entry that stands on chains, from scratch."""
        return {rule.id: rule for principal in self.bags for rule in self._rules(principal, at)}

    def moments(self) -> Iterator[datetime]:
        """When something of what stands may fall by the clock alone."""
        for one in self.certificates.values():
            if one.validity.until is not None:
                yield one.validity.until
            if one.freshness is not None and (heard := self._heard(one)) is not None:
                yield heard + timedelta(seconds=one.freshness)
        yield from (one.until for one in self.successions.values() if one.until is not None)
        for attested in self.identities.values():
            if attested.identity.validity.until is not None:
                yield attested.identity.validity.until

    def _rules(self, principal: str, at: datetime) -> Iterator[Rule]:
        bag = [self.certificates[key] for key in self.bags.get(principal, ())]
        for chain in self._chains(principal, bag, at):
            yield from (rule for rule in to_rules(principal, chain, self.principal_of) if _fits(rule))

    def _chains(self, principal: str, bag: Iterable[Certificate], at: datetime) -> tuple[Reduced, ...]:
        return discover(
            tuple(bag),
            self.key_of(principal),
            coordinator=self._coordinator(),
            now=at,
            revoked=self._is_revoked,
            known=lambda one: self._is_known(one, at),
            same=self.same,
        )

    def _gives(self, chain: Reduced, owns: Callable[[str, str], bool]) -> bool:
        root = self.principal_of(chain.issuer)
        return any(isinstance(one, NetworkAuthority) or owns(root, one.type) for one in chain.authority)

    def _coordinator(self) -> str:
        return self.coordinator or self.key_of(self.administrator)

    def _is_revoked(self, one: Certificate | Identity) -> bool:
        return any(one.id in found.revoked for found in self._lists_of(one.issuer))

    def _is_known(self, one: Certificate, at: datetime) -> bool | None:
        """Has its issuer been heard lately, and does the key that signed it still count? Unknown if not."""
        succession = self.successions.get(one.issuer)
        if succession is not None and succession.until is not None and succession.until <= at:
            return False
        if one.freshness is None:
            return True
        heard = self._heard(one)
        return None if heard is None or heard + timedelta(seconds=one.freshness) <= at else True

    def _heard(self, one: Certificate) -> datetime | None:
        return max((found.issued for found in self._lists_of(one.issuer)), default=None)

    def _lists_of(self, issuer: str) -> Iterator[RevocationList]:
        if not self.successions:
            if issuer in self.lists:
                yield self.lists[issuer]
            return
        yield from (one for one in self.lists.values() if self.same(one.issuer, issuer))

    def _asking(self, issuer: str) -> list[str]:
        """The principals whose bag holds a certificate of an issuer."""
        keys = {one.key for one in self.certificates.values() if self.same(one.issuer, issuer)}
        return [who for who, bag in self.bags.items() if keys.intersection(bag)]

    def _drop(self, at: datetime) -> None:
        """Let go of what ended or was revoked, and of the entries and attributes that rest on it."""
        gone = {key for key, one in self.certificates.items() if one.validity.is_over(at) or self._is_revoked(one)}
        if gone:
            held = [who for who, bag in self.bags.items() if gone.intersection(bag)]
            for who in held:
                self.bags[who] = tuple(key for key in self.bags[who] if key not in gone)
            self._forget()
            self.settle(held, at)
            self.bags = {who: bag for who, bag in self.bags.items() if bag}

    def _forget(self) -> None:
        shown = {key for bag in self.bags.values() for key in bag}
        self.certificates = {key: one for key, one in self.certificates.items() if key in shown}

    # -- identities and policy rules --------------------------------------------------------------------------

    def set_policy_rule(self, principal: str, rule: Condition | None) -> None:
        """The domain's own word on what must be wider than a principal's requirements."""
        self.attested_rules.discard(principal)
        self.policy_rules.pop(principal, None)
        if rule is not None:
            self.policy_rules[principal] = rule

    def trust(self, provider: Provider) -> None:
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
        if not self.same(identity.subject, self.key_of(principal)):
            raise ChainInvalid(f"the statement `{brief(identity.id)}` is not about `{principal}`")
        if identity.validity.is_over(at):
            raise Expired(f"the identity statement `{brief(identity.id)}` is past its end", remedy="ask for a new one")
        if not identity.validity.holds(at):
            raise ChainInvalid(f"the identity statement `{brief(identity.id)}` is not good yet")
        if self._is_revoked(identity):
            raise Revoked(f"the identity statement `{brief(identity.id)}` was revoked")
        made = Attested(principal, identity, frozenset(identity.attributes) - frozenset(own))
        self.identities[identity.key] = made
        if identity.policy_rule is not None and (
            principal in self.attested_rules or principal not in self.policy_rules
        ):
            self.policy_rules[principal] = identity.policy_rule
            self.attested_rules.add(principal)
        return made

    def disown(self, principal: str, attribute: str) -> None:
        """The domain itself has spoken of an attribute: no statement takes that back when it ends."""
        for key, one in self.identities.items():
            if one.principal == principal and attribute in one.applied:
                self.identities[key] = replace(one, applied=one.applied - {attribute})

    def end_issuing(self, who: str) -> None:
        """A principal or group ends, and with it what is issued to it."""
        self.issuing = {id: one for id, one in self.issuing.items() if one.who != who}

    def ended(self, at: datetime | None) -> list[Attested]:
        """The identity statements that no longer stand; they are let go of."""
        gone = [
            one
            for one in self.identities.values()
            if (at is not None and one.identity.validity.is_over(at))
            or self._is_revoked(one.identity)
            or not self.is_ours(one.identity.issuer)
        ]
        for one in gone:
            del self.identities[one.identity.key]
        return gone


def _text(one: Certificate) -> str:
    """A text that only copies of a certificate share; Python takes 1 for true."""
    return repr((one, [exact(authority) for authority in one.authority]))


def _fits(rule: Rule) -> bool:
    """Is the condition of a chain, which is that of all its links, still small enough to be matched?"""
    try:
        clauses(bind(condition_for(rule, {}), {}, {}), {})
    except BadExpression:
        return False
    return True


def admitted(state: State, at: datetime) -> dict[str, Rule]:
    """Every entry that the presented certificates give at a time, from scratch: what the ledger must hold."""
    return Standing(state).derived(at)


def next_moment(state: State, after: datetime) -> datetime | None:
    """When the clock will next take something away, if ever."""
    return min((at for at in Standing(state).moments() if at > after), default=None)
