"""May this batch be applied, and what is the state then? Rules D13 and D14.

Guarantees: pure and atomic: the next state, one version later, or an error and nothing. Everything a later decision
could trip over (names, kinds, cycles, limits, normal forms) is refused here, when it is submitted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, MutableMapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any, Final, assert_never

from headgate.authority.statement_state import LONG_AGO, StatementState
from headgate.decide.check import Scope, check, check_author, check_new_names, check_requirement, check_role
from headgate.decide.check import named as named_in
from headgate.decide.composite_check import resolve
from headgate.decide.derived import check_derived
from headgate.decide.event_policy import POLICY_RULE_IDS, settle_policy, settle_representative
from headgate.decide.normal import bind, clauses
from headgate.decide.publish import may_publish, no_right
from headgate.decide.rolebook import merged
from headgate.decide.views import condition_for, entries, governs, holds
from headgate.model import changes, errors
from headgate.model.authority import Identity
from headgate.model.changes import AuthorityChange, Batch, Change, PolicyChange, RoleChange, RoleRequest, Row
from headgate.model.composite import check_size
from headgate.model.errors import BadDefinition, BadExpression, GovernDenied, HeadgateError, RoleDenied, UnknownName
from headgate.model.expressions import TRUE, Condition, InGroup, Predicate, Related, atoms, named, subjects
from headgate.model.layered import branch, drop
from headgate.model.limits import MAX_COMPOSITE_CHARS, MAX_COMPOSITE_PARTS, MAX_GROUP_DEPTH
from headgate.model.rights import Action, Detection, Effect, Rule, Source, Subscription
from headgate.model.rolefiles import EventPolicy
from headgate.model.state import State, subgroups
from headgate.model.types import SIGNAL, Catalog, EventType, check_name, is_pattern, matches
from headgate.model.values import Kind, Value, brief, conform, kind_of, same

_KEY: Final = re.compile(r"did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}\Z")
DOMAIN_ACTIONS = frozenset({Action.CONNECT, Action.INSTALL})
"""Rights on the domain itself, which only the administrator gives."""


def apply(state: State, batch: Batch) -> State:
    """The state after a batch, or an error and nothing applied."""
    return _Work(state, batch.author).run(batch.changes)


_CHANGED: Final = (
    *("types", "principals", "groups", "relations", "open_names", "private", "predicates", "subscriptions"),
    *("connect_open", "any_names", "advertisements", "withdrawals", "roles"),
)
"""What of the state changes while a batch is applied, besides rules and what stands of statements."""
_DECLARE: Final = "declare it first"


class _Work:
    """The state while one batch is applied: what it changes, over what it shares with the state before."""

    def __init__(self, state: State, author: str) -> None:
        self.before = state
        self.author = author
        self.is_administrator = author == state.administrator
        self.types: Catalog = state.types
        self.principals = branch(state.principals)
        self.groups = branch(state.groups)
        self.relations = branch(state.relations)
        self.open_names = state.open_names
        self.private = state.private
        self.predicates = branch(state.predicates)
        self.subscriptions = branch(state.subscriptions)
        self.first: list[str] = []
        self.standing = StatementState(state)
        self.keys = self.standing.keys
        self.connect_open = state.connect_open
        self.any_names = state.any_names
        self.new_names: list[tuple[str, str]] = []
        self.advertisements = state.advertisements
        self.withdrawals = branch(state.withdrawals)
        self.roles = state.roles

    @cached_property
    def rules(self) -> dict[str, Rule]:
        """The rules that people wrote, by id; made when a change looks at them."""
        return {rule.id: rule for rule in self.before.rules if rule.source is Source.RULE}

    def run(self, batch: tuple[Change, ...]) -> State:
        if not self.is_administrator:
            self._principal(self.author)
        for change in batch:
            if isinstance(change, RoleRequest):
                raise TypeError("what becomes of a request of a role is worked out by `roles.requests.transition`")
            if isinstance(change, RoleChange):
                self._role(change)
            elif isinstance(change, AuthorityChange):
                self._authority(change)
            else:
                self._apply(change)
        after = self._freeze(version=self.before.version + 1)
        check_new_names(self.before, after, self.new_names)
        if self.types is not self.before.types:
            self._check_declassified()
        return after

    def _freeze(self, **more: Any) -> State:
        """The state so far, for looking things up in; `more` of it is given."""
        changed = {name: getattr(self, name) for name in _CHANGED}
        return replace(self.before, rules=self._ordered(), **self.standing.kept(), **changed, **more)

    def _ordered(self) -> tuple[Rule, ...]:
        """The rules in the order of D5; the very tuple from before where nothing has looked at them."""
        if "rules" not in self.__dict__ and not self.standing.has_admitted:
            return self.before.rules
        first = dict.fromkeys(self.first)
        last = (rule for id, rule in self.rules.items() if id not in first)
        return (*(self.rules[id] for id in first), *last, *self.standing.admitted.values())

    def _apply(self, change: PolicyChange) -> None:
        match change:
            case changes.DeclareType(new):
                self._declare_type(new)
            case changes.RetireType(name):
                self._retire_type(name)
            case changes.SetDeclassified(name, derived, is_declassified):
                self._govern(name)
                self.types = self.types.declassify(name, derived, is_declassified)
            case changes.RemovePrincipal(name):
                self._administer("principal", name)
                self._remove_principal(name)
            case changes.SetKey(principal, key):
                self._administer("principal", principal)
                self._set_key(principal, key)
            case changes.SetConnect(is_open):
                self._administer("domain", "connect")
                self.connect_open = is_open
            case changes.SetNames(any_names):
                self._administer("domain", "names")
                self.any_names = any_names
            case changes.RemoveGroup(name):
                self._administer("group", name)
                self._remove_group(name)
            case changes.RemoveRelation(name):
                self._administer("relation", name)
                self._relation(name)
                self._remove("relation", name, self.relations)
            case changes.SetOpen(name, is_open):
                self._administer("group or relation", name)
                self._set_open(name, is_open)
            case changes.SetPrivate(name, is_private):
                self._administer("subject attribute", name)
                self._set_private(check_name("subject attribute", name), is_private)
            case changes.Advertise(principal, type_name):
                self._own("advertise", principal)
                self.types[type_name]
                state = self._freeze()
                if not may_publish(state, principal, type_name):  # else anyone could make versions for everyone
                    raise no_right(state, principal, type_name, "advertise")
                self.advertisements |= {(principal, type_name)}
            case changes.Unadvertise(principal, type_name):
                self._own("unadvertise", principal)
                self.advertisements -= {(principal, type_name)}
            case changes.Withdraw(principal):
                self._administer("principal", principal)
                _check_known("principal", principal, self.principals)
                self.withdrawals[principal] = self.before.version + 1
            case changes.RemovePredicate(name):
                self._administer("predicate", name)
                _check_known("predicate", name, self.predicates)
                self._unused("predicate", name)
                del self.predicates[name]
            case changes.DeclarePrincipal(name, attributes):
                self._administer("principal", name)
                self._declare_principal(name, attributes)
            case changes.DeclareGroup(name, is_open):
                self._administer("group", name)
                self._fresh(check_name("group", name))
                if name in self.relations:  # they share the names that are open
                    raise BadDefinition(f"`{name}` already names a relation")
                self._declare("group", name, self.groups, is_open)
            case changes.DeclareRelation(name, is_open):
                self._administer("relation", name)
                if check_name("relation", name) in self.relations:
                    raise BadDefinition(f"the relation `{name}` is already declared")
                if name in self.groups:
                    raise BadDefinition(f"`{name}` already names a group")
                self._no_function(name)
                self._declare("relation", name, self.relations, is_open)
            case changes.AddMember(group, member, value):
                self._administer("group", group)
                self._add_member(group, member, value)
            case changes.RemoveMember(group, member, value):
                self._administer("group", group)
                members = self._group(group)
                if member not in members and not value:
                    self._known(member)
                self.groups[group] = members - {member}
            case changes.AddRow(relation, row):
                self._administer("relation", relation)
                self._add_row(relation, row)
            case changes.RemoveRow(relation, row):
                self._administer("relation", relation)
                rows = self._relation(relation)
                if row in rows:
                    self.relations[relation] = frozenset(one for one in rows if not _same_row(one, row))
            case changes.SetAttribute(principal, name, value):
                self._administer("principal", principal)
                self._set_attribute(principal, name, value)
                self.standing.disown(principal, name)
            case changes.AddRule(rule, first):
                self._add_rule(replace(rule, author=self.author, source=Source.RULE), first)
            case changes.RemoveRule(id):
                self._remove_rule(id)
            case changes.Subscribe(subscription):
                self._subscribe(subscription)
            case changes.Unsubscribe(id):
                self._unsubscribe(id)
            case changes.RegisterPredicate(name, _, _):
                self._administer("predicate", name)
                if self.predicates.get(check_name("predicate", name), change) != change:
                    raise BadDefinition(
                        f"another predicate `{name}` is registered", remedy="give the new one a name of its own"
                    )
                if name not in self.predicates:
                    self.new_names.append(("predicate", name))
                self.predicates[name] = change
            case _:
                assert_never(change)

    # -- roles ------------------------------------------------------------------------------------------------

    def _role(self, change: RoleChange) -> None:
        self._administer("domain", "roles")
        match change:
            case changes.SetEventPolicy(policy):
                self.roles = replace(self.roles, policy=settle_policy(self._freeze(), policy))
            case changes.SetRepresentative(one):
                new = settle_representative(self._freeze(), one)
                self.roles = replace(self.roles, representatives={**self.roles.representatives, new.type: new})
                self._resettle()
            case changes.RemoveRepresentative(name):
                _check_known("representative of", name, self.roles.representatives)
                kept = {type: one for type, one in self.roles.representatives.items() if type != name}
                self.roles = replace(self.roles, representatives=kept)
                self._resettle()
            case changes.Settle(facts):
                self.roles = merged(self.roles, facts)
            case _:
                assert_never(change)

    def _no_function(self, name: str) -> None:
        """Refuse a relation that would take the place of a function in a rolefile that was accepted with that."""
        for service, rolefile in self.roles.rolefiles.items() if name in self.predicates else ():
            if any(name in named(one.constraint) for one in rolefile.statements):
                raise BadDefinition(f"the rolefile of `{service}` calls a function `{name}`", remedy="change it first")

    def _resettle(self) -> None:
        """Refuse to see a type otherwise if the event policy would no longer fit."""
        settle_policy(self._freeze(), self.roles.policy)

    # -- authority --------------------------------------------------------------------------------------------

    def _authority(self, change: AuthorityChange) -> None:
        self._administer("domain", "authority")  # what was verified is the domain's to take up
        stands = self.standing
        match change:
            case changes.SetPolicyRule(principal, rule):
                self._principal(principal)
                if rule is not None:
                    check_requirement(rule)
                stands.set_policy_rule(principal, rule)
            case changes.SetCoordinator(key):
                stands.coordinate(key)
            case changes.SetNetwork(name):
                stands.name_network(name)
            case changes.Present(principal, certificates, at):
                stands.present(self._principal(principal), certificates, at, self._may_own, self._may_be_named)
            case changes.Revoke(new, at):
                stands.revoke(new, at)
                self._end_attested(at)
            case changes.Succeed(succession, at):
                stands.succeed(succession, at)
                self._end_attested(at)
            case changes.Identify(principal, identity, at):
                self._identify(self._principal(principal), identity, at)
            case changes.Tick(at):
                stands.tick(at)
                self._end_attested(at)
            case changes.SetProvider(provider):
                stands.trust(provider)
                self._end_attested(None)
            case changes.RemoveProvider(key):
                _check_known("identity provider", key, stands.providers)
                del stands.providers[key]
                self._end_attested(None)
            case changes.AddIssuing(issuing):
                self._known(issuing.who)
                stands.issuing[issuing.id] = issuing
            case changes.RemoveIssuing(id):
                _check_known("issuing rule", id, stands.issuing)
                del stands.issuing[id]
            case _:
                assert_never(change)

    def _identify(self, principal: str, identity: Identity, at: datetime) -> None:
        """A statement takes the place of the same provider's last one; its attributes become the principal's."""
        if identity.policy_rule is not None:
            check_requirement(identity.policy_rule)
        attested = [one for one in self.standing.identities.values() if one.principal == principal]
        given = {name for one in attested for name in one.applied}
        own = self.principals[principal].keys() - given
        made = self.standing.identify(principal, identity, own, at)
        for one in attested:
            if self.standing.same(one.identity.issuer, identity.issuer) and one.identity.key != identity.key:
                del self.standing.identities[one.identity.key]
        for name in sorted(given | made.applied):
            self._set_attribute(principal, name, self._attested(principal, name))

    def _end_attested(self, at: datetime | None) -> None:
        """The attributes of statements that no longer stand go; what another statement says of them comes."""
        for one in self.standing.ended(at):
            for name in sorted(one.applied):
                self._set_attribute(one.principal, name, self._attested(one.principal, name))

    def _attested(self, principal: str, name: str) -> Value:
        """What the statements in force say of an attribute; the one that began last counts."""
        identities = [
            one.identity
            for one in self.standing.identities.values()
            if one.principal == principal and name in one.applied
        ]
        last = max(identities, key=lambda one: (one.validity.start or LONG_AGO, one.key), default=None)
        return None if last is None else last.attributes[name]

    def _may_own(self, principal: str, pattern: str) -> bool:
        """Might it own a type of these names? By a pattern an owner of any type might, whatever others own."""
        if not is_pattern(pattern):
            return pattern not in self.types or self.types[pattern].owner == principal
        return any(one.owner == principal for one in self.types.values())

    # -- names ------------------------------------------------------------------------------------------------

    def _administer(self, what: str, name: str) -> None:
        if not self.is_administrator:
            raise GovernDenied(f"`{self.author}` does not govern the {what} `{brief(name)}`")

    def _own(self, what: str, principal: str) -> None:
        """Only a principal itself and the administrator act in its name."""
        if not self.is_administrator and principal != self.author:  # the same whether there is one
            raise GovernDenied(f"`{self.author}` cannot {what} as `{brief(principal)}`")
        self._somebody(principal)

    def _unused(self, what: str, name: str) -> None:
        """Refuse to end something that a condition or filter still names."""
        for rule in self.rules.values():
            if _is_named(rule.where, what, name):
                raise BadDefinition(f"the rule `{rule.id}` names the {what} `{name}`", remedy="remove the rule first")
        self._unfiltered(what, name)
        if what == "relation" and any(_adds_to(one) == name for one in self.subscriptions.values()):
            raise BadDefinition(f"a detection adds rows to the relation `{name}`", remedy="end it first")
        for service, rolefile in self.roles.rolefiles.items():
            if any(name in named(one.constraint) for one in rolefile.statements):
                raise BadDefinition(f"the rolefile of `{service}` names the {what} `{name}`", remedy="change it first")
        made_of = (one for each in self.roles.representatives.values() for _, one in each.parameters)
        said = (*(one.constraint for one in self.roles.policy.entries), Related("", tuple(made_of)))
        if any(name in named(one) for one in said):
            raise BadDefinition(f"the event policy names the {what} `{name}`", remedy="change it first")

    def _unfiltered(self, what: str, name: str) -> None:
        """Refuse to take from filters something that one of them still names."""
        for one in self.subscriptions.values():
            if any(_is_named(condition, what, name) for condition in one.conditions):
                raise BadDefinition(f"the filter of a subscription names the {what} `{name}`", remedy="end it first")

    def _set_open(self, name: str, is_open: bool) -> None:
        _check_known("group or relation", name, self.groups, self.relations, remedy=_DECLARE)
        if is_open:
            self.open_names |= {name}
            return
        self._unfiltered("group" if name in self.groups else "relation", name)
        self.open_names -= {name}
        self._unnamed(name, "group", "relation")

    def _set_private(self, name: str, is_private: bool) -> None:
        self.private = self.private | {name} if is_private else self.private - {name}
        if is_private:
            for subscription in self.subscriptions.values():
                if subscription.requires is not None and name in subjects(subscription.requires):
                    raise BadDefinition(
                        f"the subscription `{subscription.id}` requires something of the attribute `{name}`",
                        remedy="end it first",
                    )
            self._unnamed(name, "attribute")

    def _unnamed(self, name: str, *kinds: str) -> None:
        """Refuse to close something that the rule of somebody else names; what certificates name is shown anew."""
        for rule in self.rules.values():
            if rule.author == self.before.administrator:
                continue
            if any(what in kinds and one == name for what, one in named_in(rule.where, rule.role)):
                raise BadDefinition(
                    f"the rule `{rule.id}` of `{rule.author}` names `{name}`", remedy="remove the rule first"
                )
        self.standing.close(self._may_be_named)

    def _may_be_named(self, condition: Condition) -> bool:
        """May anyone name what a condition names?"""
        return all(
            name not in self.private if what == "attribute" else name in self.open_names
            for what, name in named_in(condition)
        )

    def _fresh(self, name: str) -> None:
        if name in self.principals or name in self.groups or name == self.before.administrator:
            raise BadDefinition(f"`{name}` already names a principal or group")
        # Whoever is given that name would be a member from the start, and have what the group has.
        inside = next((group for group, members in self.groups.items() if name in members), None)
        if inside is not None:
            raise BadDefinition(f"`{name}` is a value in the group `{inside}`", remedy="take it out of the group first")

    def _principal(self, name: str) -> str:
        return _check_known("principal", name, self.principals, remedy=_DECLARE)

    def _somebody(self, name: str) -> str:
        return _check_known("principal", name, self.principals, (self.before.administrator,), remedy=_DECLARE)

    def _known(self, name: str) -> str:
        known = self.principals, self.groups, (self.before.administrator,)
        return _check_known("principal or group", name, *known, remedy=_DECLARE)

    def _group(self, name: str) -> frozenset[str]:
        return self.groups[_check_known("group", name, self.groups, remedy=_DECLARE)]

    def _relation(self, name: str) -> frozenset[Row]:
        return self.relations[_check_known("relation", name, self.relations, remedy=_DECLARE)]

    # -- types, principals, groups, relations -----------------------------------------------------------------

    def _declare_type(self, new: EventType) -> None:
        state = self._freeze()
        if not self.is_administrator:
            if new.owner != self.author or not may_install(state, self.author, new.name):
                raise GovernDenied(f"`{self.author}` may not install the type `{new.name}` of `{new.owner}`")
            if new.name not in self.types.every and new.parent in self.types:
                parent = str(new.parent)
                if not governs(state, self.author, parent) and not holds(state, self.author, Action.EXTEND, parent):
                    raise GovernDenied(f"`{self.author}` may not extend `{parent}`")
        self._known(new.owner)
        known = new.name in self.types.every
        if not known:
            if new.name == SIGNAL:
                raise BadDefinition(f"`{SIGNAL}` is the type of signals", remedy="choose another name")
            self.new_names.append(("type", new.name))
        self.types = self.types.grow(new, self.before.version + 1) if known else self.types.declare(new)
        state = self._freeze()
        for name in self.types.subtypes(new.name):
            for rule in self.rules.values():
                if is_pattern(rule.type) and matches(rule.type, name) and governs(state, rule.author, name):
                    self._check_covering(state, rule, name)

    def _check_covering(self, state: State, rule: Rule, name: str) -> None:
        """Refuse a type that a rule by pattern does not fit; whose rule it is, and what it says, is its author's."""
        try:
            _check_rule_on(state, rule, self.types.attributes(name), f"`{name}`", lenient=True)
        except HeadgateError:
            if self.is_administrator or rule.author == self.author:
                raise
            raise BadDefinition(
                f"a rule that covers `{name}` does not fit its attributes", remedy="ask the administrator which one"
            ) from None

    def _check_declassified(self) -> None:
        """Refuse types that are declassified for one that is not there: whoever declares it first would have it."""
        for name, one in self.types.every.items():
            old = self.before.types.every.get(name)
            if one is not old:
                for derived in sorted(one.declassified_for - (frozenset() if old is None else old.declassified_for)):
                    self.types[derived]

    def _govern(self, name: str) -> None:
        self.types[name]
        if not governs(self._freeze(), self.author, name):
            raise GovernDenied(f"`{self.author}` does not govern `{name}`")

    def _retire_type(self, name: str) -> None:
        self._govern(name)
        self.types = self.types.retire(name)
        self._end_rules(lambda rule: rule.type == name)
        kept = tuple(one for one in self.roles.policy.entries if one.event.type != name)
        seen = {type: one for type, one in self.roles.representatives.items() if type != name}
        if len(kept) != len(self.roles.policy.entries) or len(seen) != len(self.roles.representatives):
            self.roles = replace(self.roles, policy=EventPolicy(kept), representatives=seen)
        drop(self.subscriptions, lambda one: name in one.types or _publishes(one) == name)
        self.advertisements -= {one for one in self.advertisements if one[1] == name}

    def _end_rules(self, which: Callable[[Rule], bool]) -> None:
        drop(self.rules, which)
        self.first = [i for i in self.first if i in self.rules]

    def _remove_principal(self, name: str) -> None:
        _check_known("principal", name, self.principals)
        for owned in self.types.values():
            if owned.owner == name:
                raise BadDefinition(f"`{name}` owns the type `{owned.name}`", remedy="remove the type first")
        del self.principals[name]
        self.standing.remove(name)
        self.standing.end_issuing(name)
        self._end_rules(lambda rule: name in (rule.who, rule.author))
        self._leave_groups(name)
        drop(self.subscriptions, lambda one: one.principal == name)
        self.advertisements -= {one for one in self.advertisements if one[0] == name}
        self.withdrawals.pop(name, None)

    def _leave_groups(self, name: str) -> None:
        for group in [group for group, members in self.groups.items() if name in members]:
            self.groups[group] -= {name}

    def _remove(self, what: str, name: str, among: MutableMapping[str, Any]) -> None:
        self._unused(what, name)
        del among[name]
        self.open_names -= {name}
        self.standing.close(self._may_be_named)

    def _remove_group(self, name: str) -> None:
        self._group(name)
        self._remove("group", name, self.groups)
        self.standing.end_issuing(name)
        self._end_rules(lambda rule: rule.who == name)
        self._leave_groups(name)

    def _set_key(self, principal: str, key: str | None) -> None:
        self._somebody(principal)
        if self.keys.get(principal) != key:
            self.standing.rekey(principal, key)
        if key is not None and not _KEY.match(key):
            raise BadDefinition(f"`{brief(key)}` is not a public key", remedy="write `did:key:z6Mk...`")
        holder = principal if key is None else self.standing.holders.get(key, principal)
        if holder != principal:
            raise BadDefinition(f"`{holder}` already has the key of `{principal}`", remedy="give each its own")
        self.standing.set_key(principal, key)

    def _declare(self, what: str, name: str, among: MutableMapping[str, frozenset[Any]], is_open: bool) -> None:
        among[name] = frozenset()
        self.new_names.append((what, name))
        self.open_names |= {name} if is_open else set()

    def _declare_principal(self, name: str, attributes: Mapping[str, Value]) -> None:
        self._fresh(check_name("principal", name))
        self.principals[name] = {}
        self.new_names.append(("principal", name))
        for attribute, value in attributes.items():
            self._set_attribute(name, attribute, value)

    def _set_attribute(self, principal: str, name: str, value: Value) -> None:
        self._principal(principal)
        check_name("subject attribute", name)
        kept = {k: v for k, v in self.principals[principal].items() if k != name}
        self.principals[principal] = kept if value is None else {**kept, name: _clean(value)}

    def _add_member(self, group: str, member: str, value: bool) -> None:
        members = self._group(group)
        if not value:
            self._known(member)
        elif member in self.principals or member in self.groups or member == self.before.administrator:
            raise BadDefinition(f"`{member}` is a principal or group, and no value", remedy="add it as what it is")
        else:
            check_name("member", member)
        if member in self.groups:
            if group in subgroups(self.groups, member):
                raise BadDefinition(f"`{member}` in `{group}` would make the groups a cycle")
            self.groups[group] = members | {member}
            if self._depth(group) > MAX_GROUP_DEPTH:
                raise BadDefinition(f"`{group}` nests deeper than MAX_GROUP_DEPTH ({MAX_GROUP_DEPTH})")
        self.groups[group] = members | {member}

    def _depth(self, group: str) -> int:
        """The longest chain of groups through a group."""
        up, down, depth = {group}, {group}, 1
        while up := {g for g, members in self.groups.items() if members & up}:
            depth += 1
        while down := {m for g in down for m in self.groups[g] if m in self.groups}:
            depth += 1
        return depth

    def _add_row(self, relation: str, row: Row) -> None:
        rows = self._relation(relation)
        if any(v is None for v in row):  # of no values there is one tuple: the relation holds, or it does not
            raise BadDefinition(f"a tuple of `{relation}` has no null")
        if any(len(other) != len(row) for other in islice(rows, 1)):  # all of one length
            raise BadDefinition(f"a tuple of {len(row)} values does not fit `{relation}`")
        new = tuple(_clean(v) for v in row)
        if new in rows and not any(_same_row(new, other) for other in rows):  # Python takes true for 1
            raise BadDefinition(f"a tuple of `{relation}` differs from another only in that `true` is not 1")
        self.relations[relation] = rows | {new}

    # -- rules ------------------------------------------------------------------------------------------------

    def _add_rule(self, rule: Rule, first: bool) -> None:
        state = self._freeze()
        if self.is_administrator and not is_pattern(rule.type):
            self.types[rule.type]
        check_may_rule(state, self.author, rule.type, rule.actions)  # before anything is said about names
        check_author(rule.where, rule.role, state, self.author)
        if rule.id.startswith(POLICY_RULE_IDS):
            raise BadDefinition(
                f"`{brief(rule.id)}` is taken by the event policy", remedy=f"do not begin with `{POLICY_RULE_IDS}`"
            )
        if rule.role is None:
            self._known(rule.who)
        else:
            check_role(rule.role)
        if is_pattern(rule.type):
            for name in self.types:
                if matches(rule.type, name) and governs(state, self.author, name):
                    _check_rule_on(state, rule, self.types.attributes(name), f"`{name}`", lenient=True)
            _check_rule_on(state, replace(rule, forced={}), {}, f"`{rule.type}`", lenient=True)
        else:
            attributes = self.types.attributes(rule.type)
            for attribute in rule.attributes or ():
                if attribute not in attributes:
                    raise BadDefinition(
                        f"the rule `{rule.id}` names `{brief(attribute)}`, which `{rule.type}` lacks",
                        remedy=f"its attributes are {', '.join(f'`{a}`' for a in attributes)}",
                    )
            _check_rule_on(state, rule, attributes, f"`{rule.type}`", lenient=False)
        if rule.id in self.rules:  # to replace an entry is to end it
            self._remove_rule(rule.id)
        self.rules[rule.id] = rule
        if first:
            self.first.append(rule.id)

    def _remove_rule(self, id: str) -> None:
        rule = self.rules.get(id)
        if rule is None and self.is_administrator:
            raise UnknownName(f"no rule `{brief(id)}` is in force", remedy="`headgate versions` shows what is")
        if rule is None:
            mine = False
        elif is_pattern(rule.type):
            mine = self.is_administrator or rule.author == self.author
        else:
            mine = governs(self._freeze(), self.author, rule.type)
        if not mine:  # the same whether there is one
            raise GovernDenied(f"`{self.author}` does not govern a rule `{brief(id)}`")
        del self.rules[id]
        self.first = [i for i in self.first if i != id]

    # -- subscriptions ----------------------------------------------------------------------------------------

    def _subscribe(self, new: Subscription) -> None:
        if not self.is_administrator and new.principal != self.author:  # the same whether there is one
            raise errors.SubscribeDenied(f"`{self.author}` cannot subscribe as `{brief(new.principal)}`")
        self._principal(new.principal)
        if new.id in self.subscriptions:
            raise BadDefinition(f"the subscription `{new.id}` already exists", remedy="choose another id")
        if new.requires is not None:
            check_requirement(new.requires, self.private)
        for id in new.counted or ():
            self._check_counted(id, new.principal)
        if new.detection is not None:
            new = replace(new, detection=self._resolved(new, new.detection))
        else:
            kinds = self.types.attributes(new.type)
            if new.where != TRUE:
                check(new.where, Scope(self._freeze(), kinds, f"`{new.type}`", filter=True))
                clauses(new.where, kinds)
        if new.since_version > self.before.version:
            raise BadDefinition(
                f"the subscription `{new.id}` begins at version {new.since_version}, which is not there yet",
                remedy=f"the newest is {self.before.version}",
            )
        self.subscriptions[new.id] = replace(new, first=self.before.version + 1)

    def _resolved(self, one: Subscription, detection: Detection) -> Detection:
        """What is detected, with what its names mean from now on; refused with the place if they mean nothing."""
        check_size(detection.composite)
        if len(detection.text) > MAX_COMPOSITE_CHARS or len(detection.bound) > MAX_COMPOSITE_PARTS:
            raise BadExpression(
                f"the expression is longer than MAX_COMPOSITE_CHARS ({MAX_COMPOSITE_CHARS}), "
                f"or more than MAX_COMPOSITE_PARTS ({MAX_COMPOSITE_PARTS}) names are bound"
            )
        bound = {check_name("variable", name): _conformed(value) for name, value in detection.bound.items()}
        state = self._freeze()
        found = resolve(detection.composite, state, bound)
        check_derived(one, detection, found, state, self.author)
        return replace(detection, composite=found.composite, bound=bound)

    def _check_counted(self, id: str, principal: str) -> None:
        """Refuse a credential that does not count for a subscription (OASIS 4.2)."""
        membership = self.roles.memberships.get(id)
        if membership is None or membership.state is not True:
            raise RoleDenied(f"`{brief(id)}` is not in force", failure="revocation", remedy="leave it out")
        if membership.holder != principal:
            raise RoleDenied(f"`{id}` is not held by `{principal}`", failure="fraud", remedy="show your own")

    def _unsubscribe(self, id: str) -> None:
        old = self.subscriptions.get(id)
        if old is None or not (self.is_administrator or old.principal == self.author):
            raise UnknownName(f"no subscription `{brief(id)}`")
        del self.subscriptions[id]


def _check_known(what: str, name: str, *known: Container[str], remedy: str | None = None) -> str:
    """Refuse a name that nobody declared."""
    if not any(name in some for some in known):
        raise UnknownName(f"no {what} `{brief(name)}`", remedy=remedy)
    return name


def _publishes(one: Subscription) -> str | None:
    return None if one.detection is None else one.detection.publishes


def _adds_to(one: Subscription) -> str | None:
    return None if one.detection is None or one.detection.adds is None else one.detection.adds.name


def _conformed(value: Value) -> Value:
    """A value as values must be."""
    kind = kind_of(value)
    return None if kind is None else conform(kind, value)


def _is_named(condition: Condition, what: str, name: str) -> bool:
    """Does a condition name this group, relation or predicate?"""
    for atom in atoms(condition):
        match what, atom:
            case ("group", InGroup(_, one)) | ("relation", Related(one)) | ("predicate", Predicate(one)) if one == name:
                return True
    return False


def check_may_rule(state: State, author: str, type_name: str, actions: frozenset[Action]) -> None:
    """Refuse a rule on a type, or a pattern of types, that its author does not govern (D14)."""
    if author == state.administrator:
        return
    if not is_pattern(type_name):
        allowed = governs(state, author, type_name)
    else:
        allowed = any(matches(type_name, t) and governs(state, author, t) for t in state.types)
    if not allowed or actions & DOMAIN_ACTIONS:
        raise GovernDenied(f"`{author}` does not govern `{brief(type_name)}`")


def _check_rule_on(state: State, rule: Rule, kinds: Mapping[str, Kind], where: str, *, lenient: bool) -> None:
    """Refuse a rule whose condition or forced values do not fit a type, or whose normal form is too large."""
    try:
        for name, raw in rule.forced.items():
            if name in kinds:
                conform(kinds[name], raw)
        check(rule.where, Scope(state, kinds, where, lenient=lenient))
        clauses(bind(condition_for(rule, kinds), {}, kinds), kinds, want=rule.effect is Effect.GRANT)
    except HeadgateError as error:
        kind = BadExpression if error.code == BadExpression.code else BadDefinition
        raise kind(f"rule `{rule.id}` on {where}: {error.message}", place=error.place, remedy=error.remedy) from None


def may_install(state: State, principal: str, name: str) -> bool:
    """May a principal declare a type of this name as its own?"""
    found = (r for r in entries(state, principal, Action.INSTALL) if matches(r.type, name))
    return next((r.effect is Effect.GRANT and r.where == TRUE for r in found), False)


def _same_row(a: Row, b: Row) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def _clean(value: Value) -> Value:
    kind = kind_of(value)
    return value if kind is None else conform(kind, value)
