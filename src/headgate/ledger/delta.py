"""From two neighbouring states to the rows that end and the rows that begin.

Guarantees: pure. Facts are compared as they are stored, so a change of kind alone (`1` to `True`) is a
change. A fact that a batch sets to what it was makes no row. The cost is that of what the batch names, not
of the whole state; for this it relies on `decide.apply` to leave what a batch does not name as the same
objects. Of roles, it is that of the facts that `roles.requests.transition` has put into the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import TypeAlias, TypeVar

from sqlalchemy import Table

from headgate.ledger import codec, role_rows, schema, statements
from headgate.ledger.codec import Columns, dump
from headgate.ledger.role_book import rank
from headgate.model.changes import (
    AddIssuing,
    AddMember,
    AddRow,
    AddRule,
    Advertise,
    Batch,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    ElectRole,
    EndCredential,
    EnterRole,
    GrantRole,
    HearPeer,
    Identify,
    MirrorRole,
    PassRevocation,
    Present,
    RegisterPredicate,
    ReinstateRole,
    RemoveGroup,
    RemoveIssuing,
    RemoveMember,
    RemovePeer,
    RemovePredicate,
    RemovePrincipal,
    RemoveProvider,
    RemoveRelation,
    RemoveRepresentative,
    RemoveRow,
    RemoveRule,
    RetireType,
    Revoke,
    RevokeRole,
    Row,
    SetAttribute,
    SetConnect,
    SetCoordinator,
    SetEventPolicy,
    SetKey,
    SetNames,
    SetNetwork,
    SetOpen,
    SetPeer,
    SetPolicyRule,
    SetPrivate,
    SetProvider,
    SetRepresentative,
    SetRolefile,
    Settle,
    Subscribe,
    Succeed,
    Tick,
    Unadvertise,
    Unsubscribe,
    WatchRecords,
    Withdraw,
)
from headgate.model.rights import Rule, Source
from headgate.model.roles import RoleFacts
from headgate.model.state import State
from headgate.model.values import Value

K = TypeVar("K", str, int)
T = TypeVar("T")
Facts: TypeAlias = dict[tuple[str, ...], Columns]
"""Rows by key."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The lowest and highest rank among the rules in force; of none, 0 and -1."""

    low: int = 0
    high: int = -1


@dataclass(frozen=True, slots=True)
class Delta:
    """What ends and what begins with a version, by table."""

    ends: dict[Table, list[Columns]] = field(default_factory=dict)
    begins: dict[Table, list[Columns]] = field(default_factory=dict)

    def compare(self, table: Table, before: Facts, after: Facts) -> None:
        """Take up the difference between the facts before and after."""
        for key, old in before.items():
            if after.get(key) != old:
                self.end(table, key)
        for key, new in after.items():
            if before.get(key) != new:
                self.begin(table, new)

    def end(self, table: Table, key: tuple[str | int, ...]) -> None:
        """A fact ends."""
        self.ends.setdefault(table, []).append(dict(zip(schema.KEYS[table], key, strict=True)))

    def begin(self, table: Table, columns: Columns) -> None:
        """A fact begins."""
        self.begins.setdefault(table, []).append(columns)


class Touched:
    """The names that a batch mentions, of each sort, in order."""

    def __init__(self, batch: Batch) -> None:
        self.types: dict[str, None] = {}
        self.principals: dict[str, None] = {}
        self.groups: dict[str, None] = {}
        self.relations: dict[str, list[Row]] = {}
        self.subscriptions: dict[str, None] = {}
        self.predicates: dict[str, None] = {}
        self.regroups = False
        self.attests = False
        self.roles: list[RoleFacts] = []
        for change in batch.changes:
            match change:
                case DeclareType(type):
                    self.types[type.name] = None
                case RetireType(name):
                    self.types[name] = None
                case DeclarePrincipal(name) | SetAttribute(name) | RemovePrincipal(name):
                    self.principals[name] = None
                    self.regroups |= isinstance(change, RemovePrincipal)
                case DeclareGroup(name) | AddMember(name) | RemoveMember(name) | RemoveGroup(name):
                    self.groups[name] = None
                    self.regroups |= isinstance(change, RemoveGroup)
                case SetOpen():
                    pass  # what is open is compared as a whole
                case SetKey() | SetConnect() | SetNames() | SetPrivate() | Advertise() | Unadvertise() | Withdraw():
                    pass  # few enough to be compared as a whole
                case DeclareRelation(name) | RemoveRelation(name):
                    self.relations.setdefault(name, [])
                case AddRow(name, row) | RemoveRow(name, row):
                    self.relations.setdefault(name, []).append(row)
                case AddRule() | RemoveRule():
                    pass  # rules have an order, so they are compared as a whole
                case Subscribe(subscription):
                    self.subscriptions[subscription.id] = None
                case Unsubscribe(id):
                    self.subscriptions[id] = None
                case RegisterPredicate(name) | RemovePredicate(name):
                    self.predicates[name] = None
                case Identify(name):
                    self.principals[name] = None
                case Revoke() | Succeed() | Tick() | SetProvider() | RemoveProvider():
                    self.attests = True  # attributes may go with what attested them
                case SetPolicyRule() | SetCoordinator() | SetNetwork() | Present() | AddIssuing() | RemoveIssuing():
                    pass
                case Settle(facts):
                    self.roles.append(facts)
                case SetEventPolicy() | SetRepresentative() | RemoveRepresentative():
                    pass  # compared by what stands in the states
                case (
                    SetRolefile()
                    | GrantRole()
                    | EnterRole()
                    | ElectRole()
                    | EndCredential()
                    | PassRevocation()
                    | RevokeRole()
                    | ReinstateRole()
                    | SetPeer()
                    | RemovePeer()
                    | MirrorRole()
                    | HearPeer()
                    | WatchRecords()
                ):
                    raise TypeError("what became of a request of a role is not worked out in the batch")


def delta(before: State, after: State, batch: Batch, ranks: Ranks) -> Delta:
    """The rows that end and begin when `batch` makes `after` out of `before`."""
    made, touched = Delta(), Touched(batch)
    _types(made, before, after, touched.types)
    attested = {one.principal: None for one in before.identities.values()} if touched.attests else {}
    _principals(made, before, after, touched.principals | attested)
    _groups(made, before, after, [*before.groups, *after.groups] if touched.regroups else touched.groups)
    _relations(made, before, after, touched.relations)
    _rules(made, before, after, ranks)
    _admitted(made, before, after)
    _statements(made, before, after)
    made.compare(schema.policy_rules, policy_rules(before), policy_rules(after))
    _subscriptions(made, before, after, touched.subscriptions)
    made.compare(schema.keys, _keys(before), _keys(after))
    made.compare(schema.settings, settings(before), settings(after))
    if before.advertisements is not after.advertisements:
        made.compare(schema.advertisements, _advertisements(before), _advertisements(after))
    for principal, version in after.withdrawals.items():
        if version == after.version:
            if principal in before.withdrawals:
                made.end(schema.withdrawals, (principal,))
            made.begin(schema.withdrawals, {"principal": principal})
    for principal in sorted(before.withdrawals.keys() - after.withdrawals.keys()):
        made.end(schema.withdrawals, (principal,))
    for name in _changed(before.predicates, after.predicates, touched.predicates):
        made.compare(schema.predicates, _predicate(before, name), _predicate(after, name))
    _event_policy(made, before, after)
    for facts in touched.roles:
        _roles(made, before, after, facts)
    return made


def _changed(before: Mapping[str, T], after: Mapping[str, T], touched: Iterable[str]) -> list[str]:
    """The names that no longer stand for the same object."""
    named = [name for name in dict.fromkeys(touched) if before.get(name) is not after.get(name)]
    growth = sum((name in after) - (name in before) for name in named)
    if len(after) - len(before) == growth:
        return named
    # More came or went than the batch names: look at everything.
    every = dict.fromkeys([*before, *after])
    return [name for name in every if before.get(name) is not after.get(name)]


def _predicate(state: State, name: str) -> Facts:
    found = state.predicates.get(name)
    return {} if found is None else {(name,): codec.predicate_columns(found)}


def _keys(state: State) -> Facts:
    return {(name,): {"principal": name, "key": key} for name, key in state.keys.items()}


def settings(state: State) -> Facts:
    """What holds for the domain as a whole, as rows."""
    set_to = {
        "connect": "open" if state.connect_open else None,
        "coordinator": state.coordinator,
        "network": state.network,
        "names": "any" if state.any_names else None,
    }
    set_to |= dict.fromkeys((f"{schema.PRIVATE}{name}" for name in state.private), "private")
    return {(name,): {"name": name, "value": value} for name, value in set_to.items() if value is not None}


def _advertisements(state: State) -> Facts:
    return {(who, what): {"principal": who, "type": what} for who, what in state.advertisements}


def _types(made: Delta, before: State, after: State, touched: Iterable[str]) -> None:
    every = after.types.every
    changed = _changed(before.types.every, every, touched)
    if not changed:
        return
    place = {name: position for position, name in enumerate(every)}
    for name in changed:
        if name in before.types.every:
            made.end(schema.types, (name,))
        made.begin(schema.types, {**codec.type_columns(every[name]), "position": place[name]})


def _principals(made: Delta, before: State, after: State, touched: Iterable[str]) -> None:
    for name in _changed(before.principals, after.principals, touched):
        old, new = before.principals.get(name), after.principals.get(name)
        made.compare(schema.principals, _principal(name, old), _principal(name, new))
        made.compare(schema.subject_attributes, _attributes(name, old), _attributes(name, new))


def _principal(name: str, attributes: Mapping[str, Value] | None) -> Facts:
    return {} if attributes is None else {(name,): {"name": name}}


def _attributes(principal: str, attributes: Mapping[str, Value] | None) -> Facts:
    return {
        (principal, name): {"principal": principal, "name": name, "value": codec.dump_value(value)}
        for name, value in (attributes or {}).items()
    }


def _named(state: State, names: Mapping[str, object], name: str) -> Facts:
    return {(name,): {"name": name, "open": name in state.open_names}} if name in names else {}


def _groups(made: Delta, before: State, after: State, touched: Iterable[str]) -> None:
    changed = _changed(before.groups, after.groups, touched)
    for name in dict.fromkeys([*changed, *(before.open_names ^ after.open_names)]):
        made.compare(schema.groups, _named(before, before.groups, name), _named(after, after.groups, name))
    for name in changed:
        old, new = before.groups.get(name, frozenset()), after.groups.get(name, frozenset())
        for member in sorted(old - new):
            made.end(schema.members, (name, member))
        for member in sorted(new - old):
            made.begin(schema.members, {"group": name, "member": member})


def _relations(made: Delta, before: State, after: State, touched: Mapping[str, list[Row]]) -> None:
    changed = _changed(before.relations, after.relations, touched)
    for name in dict.fromkeys([*changed, *(before.open_names ^ after.open_names)]):
        made.compare(schema.relations, _named(before, before.relations, name), _named(after, after.relations, name))
    for name in changed:
        old, new = before.relations.get(name, frozenset()), after.relations.get(name, frozenset())
        ended, begun = _rows(old, new, touched.get(name, []))
        for text in sorted(ended - begun):
            made.end(schema.relation_rows, (name, codec.digest_of(text)))
        for text in sorted(begun - ended):
            made.begin(schema.relation_rows, {"relation": name, "digest": codec.digest_of(text), "values": text})


def _rows(old: frozenset[Row], new: frozenset[Row], touched: list[Row]) -> tuple[set[str], set[str]]:
    ended = {codec.dump_row(row) for row in old - new}
    begun = {codec.dump_row(row) for row in new - old}
    # Sets take (1,) and (True,) for one row: a row exchanged for its like shows only when written out.
    both = [row for row in touched if row in old and row in new]
    if both:
        was, now = {row: row for row in old}, {row: row for row in new}
        ended |= {codec.dump_row(was[row]) for row in both}
        begun |= {codec.dump_row(now[row]) for row in both}
    return ended, begun


def _rules(made: Delta, before: State, after: State, ranks: Ranks) -> None:
    was, now = _written(before), _written(after)
    if len(was) == len(now) and all(map(is_, was, now)):
        return
    old = {rule.id: rule for rule in was}
    kept = [rule.id for rule in now if rule is old.get(rule.id)]
    ids = [rule.id for rule in now]
    start = ids.index(kept[0]) if kept else 0
    # Rules come before or after all that stay, and those stay in order (D5). If ever not, all get new ranks.
    stay = set(kept)
    if ids[start : start + len(kept)] != kept or [rule for rule in old if rule in stay] != kept:
        kept, start, stay = [], 0, set()
    for ended in (id for id in old if id not in stay):
        made.end(schema.rules, (ended,))
    for position, rule in enumerate(now):
        if rule.id not in stay:
            above, below = ranks.low - start, ranks.high + 1 - start - len(kept)
            rank = (above if position < start else below) + position
            made.begin(schema.rules, {**codec.rule_columns(rule), "rank": rank})


def _written(state: State) -> list[Rule]:
    return [rule for rule in state.rules if rule.source is Source.RULE]


def _admitted(made: Delta, before: State, after: State) -> None:
    """What chains give has the order of its rows, so whatever comes, comes last."""
    old = [rule.id for rule in before.rules if rule.source is Source.CHAIN]
    new = {rule.id: rule for rule in after.rules if rule.source is Source.CHAIN}
    kept = _in_place(old, list(new))
    for ended in old:
        if ended not in kept:
            made.end(schema.admitted, (ended,))
    for id, rule in new.items():
        if id not in kept:
            made.begin(schema.admitted, {**codec.rule_columns(rule), "rank": 0})


def _in_place(old: Sequence[T], new: Sequence[T]) -> set[T]:
    """What may keep its row where rows have an order: the first of the new, as long as they come as they came before.

    What left and came back in one batch is new, and comes last.
    """
    place = {one: at for at, one in enumerate(old)}
    kept: set[T] = set()
    last = -1
    for one in new:
        if place.get(one, -1) <= last:
            break
        last = place[one]
        kept.add(one)
    return kept


def _statements(made: Delta, before: State, after: State) -> None:
    old, new = statements.held(before), statements.held(after)
    for key, one in old.items():
        if new.get(key) is not one:
            made.end(schema.statements, key)
    for key, one in new.items():
        if old.get(key) is not one:
            made.begin(schema.statements, statements.statement_columns(*key, one))
    was, now = bags(before), bags(after)
    kept = {
        (who, one)
        for who, bag in after.bags.items()
        for one in (bag if bag is before.bags.get(who) else _in_place(before.bags.get(who, ()), bag))
    }
    for shown in was:
        if shown not in kept:
            made.end(schema.bags, shown)
    for shown, columns in now.items():
        if shown not in kept:
            made.begin(schema.bags, columns)


def bags(state: State) -> Facts:
    """Who has presented what, as rows."""
    return {(who, one): {"principal": who, "certificate": one} for who, bag in state.bags.items() for one in bag}


def policy_rules(state: State) -> Facts:
    """The policy rules, as rows."""
    return {
        (who,): {
            "principal": who,
            "where": codec.dump_condition(rule),
            "attested": who in state.attested_rules,
        }
        for who, rule in state.policy_rules.items()
    }


def _subscriptions(made: Delta, before: State, after: State, touched: Iterable[str]) -> None:
    for name in _changed(before.subscriptions, after.subscriptions, touched):
        if name in before.subscriptions:
            made.end(schema.subscriptions, (name,))
        if name in after.subscriptions:
            new = after.subscriptions[name]
            if new.first != after.version:
                raise AssertionError(f"the subscription `{name}` says {new.first} in version {after.version}")
            made.begin(schema.subscriptions, codec.subscription_columns(new))


def _event_policy(made: Delta, before: State, after: State) -> None:
    if before.roles.policy is not after.roles.policy:
        made.compare(schema.event_policy, event_policy(before), event_policy(after))
    was, now = before.roles.representatives, after.roles.representatives
    if was is not now:
        for name in dict.fromkeys([*was, *now]):
            if was.get(name) is not now.get(name):
                made.compare(schema.representatives, representative(before, name), representative(after, name))


def event_policy(state: State) -> Facts:
    """The event policy, as a row; of no entries, none."""
    policy = state.roles.policy
    return {(role_rows.EVENTS,): role_rows.policy_columns(policy)} if policy.entries else {}


def representative(state: State, name: str) -> Facts:
    """How event policy sees a type, as a row."""
    found = state.roles.representatives.get(name)
    return {} if found is None else {(name,): role_rows.representative_columns(found)}


def _roles(made: Delta, before: State, after: State, facts: RoleFacts) -> None:
    """What a batch makes of roles, by the names in its facts alone."""
    version, old, new = after.version, before.roles, after.roles
    named = [one.id for one in facts.ended]
    ids = [*named, *(one.id for one in facts.memberships)]
    for position, held in enumerate(_exchanged(made, schema.memberships, old.memberships, new.memberships, ids)):
        made.begin(schema.memberships, {**role_rows.membership_columns(held), "rank": rank(version, position)})
    ids = [*named, *(one.id for one in facts.elections)]
    for position, elected in enumerate(_exchanged(made, schema.elections, old.elections, new.elections, ids)):
        made.begin(schema.elections, {**role_rows.election_columns(elected), "rank": rank(version, position)})
    refs = [*facts.dropped, *(one.ref for one in facts.records)]
    for record in _exchanged(made, schema.records, old.records, new.records, refs):
        made.begin(schema.records, role_rows.record_columns(record))
    names = [*facts.peers_gone, *(one.name for one in facts.peers)]
    for peer in _exchanged(made, schema.peers, old.peers, new.peers, names):
        made.begin(schema.peers, role_rows.peer_columns(peer))
    for name in dict.fromkeys(name for name, _ in facts.rolefiles):
        was, now = old.rolefiles.get(name), new.rolefiles.get(name)
        if was is not now:
            made.compare(schema.rolefiles, rolefile(before, name), rolefile(after, name))
    for ban in facts.lifted:
        made.end(schema.bans, (role_rows.ban_columns(ban)["digest"],))
    for ban in facts.banned:
        made.begin(schema.bans, role_rows.ban_columns(ban))
    for watch in facts.unwatched:
        made.end(schema.watches, (watch.watcher, watch.record))
    for watch in facts.watched:
        made.begin(schema.watches, role_rows.watch_columns(watch))
    for ending in facts.ended:
        made.begin(schema.endings, {"id": ending.id, "reason": dump(ending.reason)})


def rolefile(state: State, service: str) -> Facts:
    """The rolefile of a service, as a row."""
    found = state.roles.rolefiles.get(service)
    return {} if found is None else {(service,): role_rows.rolefile_columns(service, found)}


def _exchanged(made: Delta, table: Table, old: Mapping[K, T], new: Mapping[K, T], names: Iterable[K]) -> Iterator[T]:
    """End what is no longer what it was; give what it is now, in the order in which it is named."""
    for name in dict.fromkeys(names):
        was, now = old.get(name), new.get(name)
        if was is now:
            continue
        if was is not None:
            made.end(table, (name,))
        if now is not None:
            yield now
