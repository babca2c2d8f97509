"""The one batch that makes the policy of a state another one.

Guarantees: after the batch the state has exactly the wanted types, principals, keys, attributes, groups, members,
relations, rows, open names, predicates, rules in their order, policy rules, identity providers, issuing rules, the
coordinator and who may connect, rolefiles, the event policy, representatives and peers; a second batch would be empty.
It is applied here once, so a plan that is made can be committed at its version. What a type cannot become, because it
would lose or retype an attribute, is refused.
Leaves out: subscriptions, advertisements and withdrawals, which are not the author's. A subscription ends only where
its filter names what no filter may name any more. The administrator's own key stays unless another is wanted. What
signed statements brought is left alone: rights, attributes, policy rules, a key that follows another, and principals
that came by themselves, under the names of their keys, with the types they own and the rules they wrote. So are
memberships and elections, except for what no longer follows, which whoever knows roles works out: `step` says how a
state follows from a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Final, TypeAlias

from headgate.authority.chains import exact as exact_authority
from headgate.authority.statement_state import StatementState
from headgate.decide.apply import apply
from headgate.decide.check import check_author
from headgate.model import changes
from headgate.model.authority import Issuing
from headgate.model.changes import Batch, Change, Row, Settle
from headgate.model.errors import HeadgateError
from headgate.model.expressions import Condition, InGroup, Predicate, Related, atoms, named, subjects
from headgate.model.rights import Rule, Source
from headgate.model.rolefiles import EventPolicy, Representative, Rolefile
from headgate.model.roles import Ending, Peer
from headgate.model.state import State
from headgate.model.types import EventType
from headgate.model.values import Value

Exact: TypeAlias = tuple[str, str]
"""A value in a form that tells 1 from 1.0 and true."""

Step: TypeAlias = Callable[[State, Batch], tuple[Batch, State]]
"""A batch as it is recorded, with what it makes of roles, and the state after it."""

CAME: Final = "did:"
"""How the name of a principal begins that came by itself: it goes by its key."""
OURS: Final = "headgate."
"""How the names of Headgate's own types and rules begin."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch, the state it was made for, and the state it makes."""

    batch: Batch
    before: State
    after: State
    recorded: Batch
    """The batch with what becomes of memberships and elections."""

    @property
    def expect(self) -> int:
        """The version at which it may be committed."""
        return self.before.version

    @property
    def empty(self) -> bool:
        """Is there nothing to change?"""
        return not self.batch.changes

    @property
    def ended(self) -> tuple[Ending, ...]:
        """The memberships and elections that end, and why."""
        return tuple(
            one for change in self.recorded.changes if isinstance(change, Settle) for one in change.facts.ended
        )


def without_roles(now: State, batch: Batch) -> tuple[Batch, State]:
    """The state after a batch that asks nothing of roles."""
    return batch, apply(now, batch)


def plan(now: State, wanted: State, step: Step = without_roles) -> Plan:
    """The batch by the administrator that gives `now` the policy of `wanted`, both of one administrator."""
    batch = Batch(now.administrator, tuple(_Work(now, _resolved(now, wanted)).changes()))
    recorded, after = step(now, batch)
    if not same_policy(after, wanted):
        raise AssertionError("the plan does not lead to what is wanted")
    return Plan(batch, now, after, recorded)


def same_policy(now: State, wanted: State) -> bool:
    """Is everything the same but versions, what is not policy, and what signed statements brought?"""
    return _policy(now, _came(now, wanted), wanted) == _policy(_resolved(now, wanted), frozenset(), wanted)


def same_rules(before: State, now: State) -> bool:
    """Is the policy in two states of one ledger the same, as its authors wrote it?

    What is not policy does not count, nor what signed statements brought, nor what is Headgate's own; nor what those
    say who came by themselves.
    """
    came = frozenset(name for name in (*before.principals, *now.principals) if name.startswith(CAME))
    nothing = State()
    return _policy(_resolved(now, before), came, nothing) == _policy(now, came, nothing)


def _policy(state: State, came: frozenset[str], wanted: State) -> tuple[object, ...]:
    return (
        {n: _shape(one) for n, one in state.types.items() if one.owner not in came and not _is_ours(n, wanted.types)},
        [exact_rule(rule) for rule in _own_rules(state, came, wanted)],
        {name: _attributes(state, name) for name in state.principals if name not in came},
        dict(state.groups),
        {name: set(_rows(rows)) for name, rows in state.relations.items()},
        state.open_names,
        state.private,
        dict(state.predicates),
        {name: key for name, key in state.keys.items() if name != state.administrator and name not in came},
        state.connect_open,
        state.any_names,
        {name: repr(rule) for name, rule in _own_policy_rules(state).items() if name not in came},
        state.coordinator,
        state.network,
        {key: repr(one) for key, one in state.providers.items() if not one.own},
        {id: _exact_issuing(one) for id, one in state.issuing.items()},
        {service: exact_syntax(one) for service, one in state.roles.rolefiles.items()},
        exact_syntax(state.roles.policy),
        {name: exact_syntax(one) for name, one in state.roles.representatives.items()},
        {name: _exact_peer(one) for name, one in state.roles.peers.items()},
    )


def _came(now: State, wanted: State) -> frozenset[str]:
    """The principals that came by themselves, and that nobody speaks of."""
    return frozenset(name for name in now.principals if name.startswith(CAME) and name not in wanted.principals)


def _resolved(now: State, wanted: State) -> State:
    """What is wanted, by the keys that are in use now: a principal may have gone on under another.

    The domain's own key is in the ledger, so that files name the domain instead.
    """
    newest = StatementState(now).newest
    own = now.key_of(now.administrator)
    providers = [replace(one, key=own) if one.key == wanted.administrator else one for one in wanted.providers.values()]
    return replace(
        wanted,
        keys={name: newest(key) for name, key in wanted.keys.items()},
        providers={one.key: one for one in providers},
    )


def _own_rules(state: State, came: frozenset[str], wanted: State) -> list[Rule]:
    """The rules that people wrote; what certificates give is theirs, and so is what a principal says that came."""
    said = {rule.id for rule in wanted.rules}
    written = (rule for rule in state.rules if rule.source is Source.RULE and rule.author not in came)
    return [rule for rule in written if not _is_ours(rule.id, said)]


def _is_ours(name: str, said: Container[str]) -> bool:
    """Is a type or rule Headgate's own, which makes it when it is needed, and does nobody speak of it?"""
    return name.startswith(OURS) and name not in said


def _own_policy_rules(state: State) -> dict[str, Condition]:
    """The policy rules that the domain itself set."""
    return {name: rule for name, rule in state.policy_rules.items() if name not in state.attested_rules}


def _exact_issuing(one: Issuing) -> tuple[object, ...]:
    return one.id, one.who, tuple(map(exact_authority, one.authority)), one.seconds, one.delegate


def _exact_peer(one: Peer) -> tuple[object, ...]:
    """A peer as it was declared: what was heard of it since is not the author's."""
    return one.name, one.key, one.service, one.bound, one.url


def exact_rule(rule: Rule) -> tuple[object, ...]:
    """A rule in a form that tells constants apart which Python takes for equal."""
    forced = tuple(sorted((name, exact(value)) for name, value in rule.forced.items()))
    return (
        *(rule.id, rule.who, rule.actions, rule.type, repr(rule.where), rule.attributes, forced),
        *(rule.effect, rule.disclose, rule.author, exact_syntax(rule.role), rule.attested),
    )


def exact(value: object) -> Exact:
    """A value in a form that tells 1 from 1.0 and true."""
    return type(value).__name__, repr(value)


def exact_syntax(node: object) -> object:
    """A piece of a rolefile or of event policy in a form that tells constants apart, and not where it is written."""
    if is_dataclass(node) and not isinstance(node, type):
        return type(node).__name__, *(exact_syntax(getattr(node, one.name)) for one in fields(node) if one.compare)
    if isinstance(node, tuple):
        return tuple(map(exact_syntax, node))
    return ("set", *sorted(node)) if isinstance(node, frozenset) else exact(node)


def _shape(one: EventType) -> tuple[object, ...]:
    return one.owner, one.parent, one.key, one.times, one.derived, one.declassified_for, dict(one.attributes)


def _attributes(state: State, name: str) -> dict[str, Exact]:
    """The attributes that the domain itself gave a principal."""
    attested = {given for one in state.identities.values() if one.principal == name for given in one.applied}
    return {given: exact(value) for given, value in state.principals[name].items() if given not in attested}


def _rows(rows: frozenset[Row]) -> dict[tuple[Exact, ...], Row]:
    return {tuple(map(exact, row)): row for row in rows}


class _Work:
    """What goes and what comes, between two states."""

    def __init__(self, now: State, wanted: State) -> None:
        self.now = now
        self.wanted = wanted
        self.came = _came(now, wanted)
        # A name that goes as one sort of thing may come back as another, so both sorts are looked at.
        self.principals_gone = [n for n in now.principals if n not in wanted.principals and n not in self.came]
        self.groups_gone = [name for name in now.groups if name not in wanted.groups]
        self.relations_gone = [name for name in now.relations if name not in wanted.relations]
        self.predicates_gone = [n for n, one in now.predicates.items() if wanted.predicates.get(n) != one]
        self.gone = frozenset([*self.principals_gone, *self.groups_gone])
        self.turned = frozenset(one for group in now.groups for one in now.values_of(group) if self._is_named(one))
        """The values in groups that are to be principals or groups from now on."""
        self.issuing_kept = {id for id, one in now.issuing.items() if self._may_issue(one)}
        self.seen_anew = self._seen_anew()
        self.policy_anew = self._policy_anew()

    def changes(self) -> Iterator[Change]:
        """Everything, in an order that always works.

        What names other things goes before them: subscriptions, rules, members; then groups, relations, predicates;
        then types, subtypes before their parents, and last the principals that own them. What is named comes before
        what names it: principals, groups, members, relations, predicates, types with parents first, and rules last.
        What is said of authority and of events goes and comes with the rules.
        """
        first, kept, last = self._rules()
        yield from self._unsubscribed()
        yield from self._events_gone()
        stays = {rule.id for rule in kept}
        yield from (
            changes.RemoveRule(rule.id) for rule in _own_rules(self.now, self.came, self.wanted) if rule.id not in stays
        )
        yield from (changes.RemoveRule(rule.id) for rule in self.now.rules if self._is_closed_to(rule))
        yield from (changes.RemoveIssuing(id) for id in self.now.issuing if id not in self.issuing_kept)
        gone = (one for key, one in self.now.providers.items() if key not in self.wanted.providers and not one.own)
        yield from (changes.RemoveProvider(one.key) for one in gone)
        yield from self._members_gone()
        yield from map(changes.RemoveGroup, self.groups_gone)
        yield from map(changes.RemoveRelation, self.relations_gone)
        yield from map(changes.RemovePredicate, self.predicates_gone)
        yield from self._types_gone()
        yield from map(changes.RemovePrincipal, self.principals_gone)
        yield from self._principals()
        yield from self._keys()
        private = self.now.private, self.wanted.private
        yield from (changes.SetPrivate(name, name in private[1]) for name in sorted(private[0] ^ private[1]))
        yield from self._groups()
        yield from self._relations()
        yield from (one for one in self.wanted.predicates.values() if self.now.predicates.get(one.name) != one)
        yield from self._types()
        if self.now.connect_open != self.wanted.connect_open:
            yield changes.SetConnect(self.wanted.connect_open)
        if self.now.any_names != self.wanted.any_names:
            yield changes.SetNames(self.wanted.any_names)
        yield from self._authority()
        yield from self._roles()
        yield from (changes.AddRule(rule, first=True) for rule in first)
        yield from (changes.AddRule(rule) for rule in last)

    # -- rules ------------------------------------------------------------------------------------------------

    def _rules(self) -> tuple[tuple[Rule, ...], tuple[Rule, ...], tuple[Rule, ...]]:
        """The wanted rules in three parts: put first, left as they are, and added last.

        Rules can be put before all that are there, or after, so those left are the longest run that stays in order.
        """
        written = _own_rules(self.now, self.came, self.wanted)
        positions = {exact_rule(rule): at for at, rule in enumerate(written) if self._may_stay(rule)}
        wanted = self.wanted.rules
        best = start = 0
        length = 0
        before = -1
        for at, rule in enumerate(wanted):
            here = positions.get(exact_rule(rule), -1)
            if here < 0 or here < before:
                start = at if here >= 0 else at + 1
            before = here
            if here >= 0 and at + 1 - start > length:
                best, length = start, at + 1 - start
        return wanted[:best], wanted[best : best + length], wanted[best + length :]

    def _may_stay(self, rule: Rule) -> bool:
        """Does a rule outlive what goes? One that speaks of a name that comes back as another sort does not."""
        return rule.who not in self.gone and not _names((rule.where,), Predicate) & set(self.predicates_gone)

    def _is_closed_to(self, rule: Rule) -> bool:
        """Does the rule of a principal that came by itself name what only the administrator may name by then?"""
        if rule.source is not Source.RULE or rule.author not in self.came:
            return False
        try:
            check_author(rule.where, rule.role, self.wanted, rule.author)
        except HeadgateError:
            return True
        return False

    # -- authority --------------------------------------------------------------------------------------------

    def _may_issue(self, one: Issuing) -> bool:
        """Does an issuing rule stay as it is?"""
        wanted = self.wanted.issuing.get(one.id)
        return wanted is not None and _exact_issuing(one) == _exact_issuing(wanted) and one.who not in self.gone

    def _authority(self) -> Iterator[Change]:
        now, wanted = self.now, self.wanted
        had, has = _own_policy_rules(now), wanted.policy_rules
        for name in wanted.principals:
            if repr(had.get(name)) != repr(has.get(name)):
                yield changes.SetPolicyRule(name, has.get(name))
        if now.coordinator != wanted.coordinator:
            yield changes.SetCoordinator(wanted.coordinator)
        if now.network != wanted.network:
            yield changes.SetNetwork(wanted.network)
        for key, provider in wanted.providers.items():
            if repr(now.providers.get(key)) != repr(provider):
                yield changes.SetProvider(provider)
        yield from (changes.AddIssuing(one) for id, one in wanted.issuing.items() if id not in self.issuing_kept)

    # -- roles and event policy --------------------------------------------------------------------------------

    def _seen_anew(self) -> frozenset[str]:
        """The types that event policy comes to see otherwise, or whose representative names what goes."""
        had, has = self.now.roles.representatives, self.wanted.roles.representatives
        gone = self.groups_gone + self.relations_gone
        changed = {name for name in (*had, *has) if exact_syntax(had.get(name)) != exact_syntax(has.get(name))}
        return frozenset(changed | {name for name, one in had.items() if not _named(one).isdisjoint(gone)})

    def _policy_anew(self) -> bool:
        """Does the event policy go and come, because it changes, or what it speaks of does?"""
        had, has = self.now.roles.policy, self.wanted.roles.policy
        said = frozenset().union(*(named(one.constraint) for one in had.entries))
        gone = self.groups_gone + self.relations_gone
        return exact_syntax(had) != exact_syntax(has) or bool(self.seen_anew) or not said.isdisjoint(gone)

    def _events_gone(self) -> Iterator[Change]:
        """The event policy goes before what it names, and before what it sees changes."""
        if self.policy_anew and self.now.roles.policy.entries:
            yield changes.SetEventPolicy(EventPolicy())
        yield from (
            changes.RemoveRepresentative(name) for name in self.now.roles.representatives if name in self.seen_anew
        )

    def _roles(self) -> Iterator[Change]:
        now, wanted = self.now.roles, self.wanted.roles
        for name, one in wanted.representatives.items():
            if name in self.seen_anew:
                yield changes.SetRepresentative(one)
        if self.policy_anew and wanted.policy.entries:
            yield changes.SetEventPolicy(wanted.policy)
        yield from (changes.RemovePeer(name) for name in now.peers if name not in wanted.peers)
        yield from (changes.SetRolefile(service, None) for service in now.rolefiles if service not in wanted.rolefiles)
        for name, peer in wanted.peers.items():
            if name not in now.peers or _exact_peer(now.peers[name]) != _exact_peer(peer):
                yield changes.SetPeer(peer)
        for service in _those_asked_first(wanted.rolefiles):
            if exact_syntax(now.rolefiles.get(service)) != exact_syntax(wanted.rolefiles[service]):
                yield changes.SetRolefile(service, wanted.rolefiles[service])

    # -- what goes --------------------------------------------------------------------------------------------

    def _types_gone(self) -> Iterator[Change]:
        for name in reversed(list(self.now.types)):
            ours = self.now.types[name].owner in self.came or _is_ours(name, self.wanted.types)
            if name not in self.wanted.types and not ours:
                yield changes.RetireType(name)

    def _unsubscribed(self) -> Iterator[Change]:
        closed = self.now.open_names - self.wanted.open_names
        groups, relations = closed | set(self.groups_gone), closed | set(self.relations_gone)
        for subscription in self.now.subscriptions.values():
            if (
                (subscription.requires is not None and subjects(subscription.requires) & self.wanted.private)
                or _names(subscription.conditions, InGroup) & groups
                or _names(subscription.conditions, Related) & relations
                or _names(subscription.conditions, Predicate) & set(self.predicates_gone)
            ):
                yield changes.Unsubscribe(subscription.id)

    def _members_gone(self) -> Iterator[Change]:
        for group, members in self.now.groups.items():
            if group in self.wanted.groups:
                left = (members - self.wanted.groups[group] - self.gone) | (members & self.turned)
                yield from (changes.RemoveMember(group, one) for one in sorted(left))

    def _is_named(self, name: str) -> bool:
        """Is a name that of a principal or group, when all is done?"""
        named = name in self.wanted.principals or name in self.wanted.groups or name in self.came
        return named or name == self.now.administrator

    # -- what comes -------------------------------------------------------------------------------------------

    def _principals(self) -> Iterator[Change]:
        for name, attributes in self.wanted.principals.items():
            if name not in self.now.principals:
                yield changes.DeclarePrincipal(name, attributes)
                continue
            had, has = _attributes(self.now, name), _attributes(self.wanted, name)
            for attribute in dict.fromkeys([*had, *has]):
                if had.get(attribute) != has.get(attribute):
                    value: Value = attributes.get(attribute)
                    yield changes.SetAttribute(name, attribute, value)

    def _keys(self) -> Iterator[Change]:
        wanted = dict(self.wanted.keys)
        if (own := self.now.keys.get(self.now.administrator)) is not None:
            wanted.setdefault(self.now.administrator, own)
        had = {name: key for name, key in self.now.keys.items() if name not in self.principals_gone}
        # All old keys go before any new one comes: two principals may exchange theirs.
        yield from (changes.SetKey(name, None) for name, key in had.items() if wanted.get(name) != key)
        yield from (changes.SetKey(name, key) for name, key in wanted.items() if had.get(name) != key)

    def _groups(self) -> Iterator[Change]:
        now, wanted = self.now, self.wanted
        for name in wanted.groups:
            if name not in now.groups:
                yield changes.DeclareGroup(name, name in wanted.open_names)
            elif (name in now.open_names) != (name in wanted.open_names):
                yield changes.SetOpen(name, name in wanted.open_names)
        for name, members in wanted.groups.items():
            had = now.groups.get(name, frozenset()) - self.gone - self.turned
            yield from (changes.AddMember(name, one, not self._is_named(one)) for one in sorted(members - had))

    def _relations(self) -> Iterator[Change]:
        now, wanted = self.now, self.wanted
        for name, rows in wanted.relations.items():
            if name not in now.relations:
                yield changes.DeclareRelation(name, name in wanted.open_names)
            elif (name in now.open_names) != (name in wanted.open_names):
                yield changes.SetOpen(name, name in wanted.open_names)
            had, has = _rows(now.relations.get(name, frozenset())), _rows(rows)
            yield from (changes.RemoveRow(name, row) for key, row in sorted(had.items()) if key not in has)
            yield from (changes.AddRow(name, row) for key, row in sorted(has.items()) if key not in had)

    def _types(self) -> Iterator[Change]:
        for name, one in self.wanted.types.items():  # parents come first
            if name not in self.now.types or _shape(self.now.types[name]) != _shape(one):
                yield changes.DeclareType(replace(one, bits={}, since={}))


def _those_asked_first(rolefiles: Mapping[str, Rolefile]) -> list[str]:
    """The services, each after those whose roles its rolefile asks for; in a circle, in any order."""
    ordered: dict[str, None] = {}
    for first in rolefiles:
        entered, line = {first}, [(first, iter(_asked_by(rolefiles[first])))]
        while line:
            service, asked = line[-1]
            other = next((one for one in asked if one in rolefiles and one not in entered | ordered.keys()), None)
            if other is None:
                ordered.setdefault(service)
                line.pop()
            else:
                entered.add(other)
                line.append((other, iter(_asked_by(rolefiles[other]))))
    return list(ordered)


def _asked_by(rolefile: Rolefile) -> list[str]:
    """The other services that a rolefile names."""
    services = dict.fromkeys(one.service for one in rolefile.imports)
    for statement in rolefile.statements:
        refs = [one.ref for one in statement.credentials]
        refs += [*(one.ref for one in statement.electors), *(one.ref for one in statement.revokers)]
        services.update(dict.fromkeys(ref.service for ref in refs if ref.service is not None))
    return list(services)


def _named(one: Representative) -> frozenset[str]:
    """The relations and functions that a representative is made of."""
    return named(Related("", tuple(expression for _, expression in one.parameters)))


def _names(conditions: Iterable[Condition], kind: type[InGroup | Related | Predicate]) -> set[str]:
    """The groups, relations or predicates that conditions name."""
    names: set[str] = set()
    for atom in (atom for condition in conditions for atom in atoms(condition)):
        match atom:
            case InGroup(_, name) | Related(name, _) | Predicate(name, _) if isinstance(atom, kind):
                names.add(name)
    return names
