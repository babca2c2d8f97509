"""What a batch would change, in the words that the ledger has for it afterwards.

Guarantees: pure; the differences are those that `Ledger.difference` gives once the batch is committed. The batch is the
one that `roles.requests.transition` gives, in which requests of roles are worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sqlalchemy import Table

from headgate.ledger import codec, role_rows, schema, statements
from headgate.ledger.codec import Columns
from headgate.ledger.delta import Ranks, bags, delta, event_policy, policy_rules, representative, rolefile, settings
from headgate.ledger.role_book import RANKED
from headgate.ledger.words import Difference, compare
from headgate.model.changes import Batch
from headgate.model.rights import Source
from headgate.model.state import State


def preview(before: State, after: State, batch: Batch) -> list[Difference]:
    """What is in force after the batch and not before, and the other way round, by kind and in order of name."""
    written = sum(rule.source is Source.RULE for rule in before.rules)
    made = delta(before, after, batch, Ranks(0, written - 1))
    reasons = {one["id"]: one["reason"] for one in made.begins.get(schema.endings, ())}
    found: list[Difference] = []
    for table, key in schema.KEYS.items():
        if table in schema.UNTOLD:
            continue
        old = _STORED[table](before) if made.ends.get(table) else {}
        pairs: dict[tuple[str, ...], list[Columns | None]] = {}
        for ended in made.ends.get(table, ()):
            name = tuple(ended[column] for column in key)
            pairs[name] = [{**old[name], "reason": reasons.get(name[0])}, None]
        for begun in made.begins.get(table, ()):
            row = {**begun, "from_version": after.version}
            if table in RANKED:
                row["rank"] = 0  # within a batch, what began again has kept its place
            pairs.setdefault(tuple(row[column] for column in key), [None, None])[1] = row
        compared = (compare(table, was, now) for was, now in pairs.values())
        found += sorted((one for one in compared if one is not None), key=lambda one: one.name)
    return found


def _types(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {(name,): codec.type_columns(one) for name, one in state.types.every.items()}


def _principals(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {(name,): {"name": name} for name in state.principals}


def _attributes(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {
        (who, name): {"principal": who, "name": name, "value": codec.dump_value(value)}
        for who, attributes in state.principals.items()
        for name, value in attributes.items()
    }


def _groups(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {(name,): {"name": name, "open": name in state.open_names} for name in state.groups}


def _members(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {
        (group, member): {"group": group, "member": member}
        for group, members in state.groups.items()
        for member in members
    }


def _relations(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {(name,): {"name": name, "open": name in state.open_names} for name in state.relations}


def _rows(state: State) -> Mapping[tuple[str, ...], Columns]:
    found: dict[tuple[str, ...], Columns] = {}
    for relation, rows in state.relations.items():
        for row in rows:
            text = codec.dump_row(row)
            digest = codec.digest_of(text)
            found[relation, digest] = {"relation": relation, "digest": digest, "values": text}
    return found


def _rules(state: State) -> Mapping[tuple[str, ...], Columns]:
    written = (rule for rule in state.rules if rule.source is Source.RULE)
    return {(rule.id,): {**codec.rule_columns(rule), "rank": rank} for rank, rule in enumerate(written)}


def _admitted(state: State) -> Mapping[tuple[str, ...], Columns]:
    given = (rule for rule in state.rules if rule.source is Source.CHAIN)
    return {(rule.id,): {**codec.rule_columns(rule), "rank": 0} for rule in given}


def _statements(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {key: statements.statement_columns(*key, one) for key, one in statements.held(state).items()}


def _subscriptions(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {
        (one.id,): {**codec.subscription_columns(one), "from_version": one.first}
        for one in state.subscriptions.values()
    }


def _predicates(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {(name,): codec.predicate_columns(one) for name, one in state.predicates.items()}


def _keys(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {(name,): {"principal": name, "key": key} for name, key in state.keys.items()}


def _settings(state: State) -> Mapping[tuple[str, ...], Columns]:
    return settings(state)


def _advertisements(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {(who, what): {"principal": who, "type": what} for who, what in state.advertisements}


def _withdrawals(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {(who,): {"principal": who, "from_version": version} for who, version in state.withdrawals.items()}


def _memberships(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {(id,): {**role_rows.membership_columns(one), "rank": 0} for id, one in state.roles.memberships.items()}


def _elections(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {(id,): {**role_rows.election_columns(one), "rank": 0} for id, one in state.roles.elections.items()}


def _bans(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {(row["digest"],): row for row in map(role_rows.ban_columns, state.roles.bans)}


def _peers(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {(name,): role_rows.peer_columns(one) for name, one in state.roles.peers.items()}


def _rolefiles(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {key: row for service in state.roles.rolefiles for key, row in rolefile(state, service).items()}


def _representatives(state: State) -> Mapping[tuple[str, ...], Columns]:
    return {key: row for name in state.roles.representatives for key, row in representative(state, name).items()}


_STORED: Final[Mapping[Table, Callable[[State], Mapping[tuple[str, ...], Columns]]]] = {
    schema.types: _types,
    schema.principals: _principals,
    schema.subject_attributes: _attributes,
    schema.groups: _groups,
    schema.members: _members,
    schema.relations: _relations,
    schema.relation_rows: _rows,
    schema.rules: _rules,
    schema.subscriptions: _subscriptions,
    schema.predicates: _predicates,
    schema.keys: _keys,
    schema.settings: _settings,
    schema.advertisements: _advertisements,
    schema.withdrawals: _withdrawals,
    schema.admitted: _admitted,
    schema.policy_rules: policy_rules,
    schema.statements: _statements,
    schema.bags: bags,
    schema.memberships: _memberships,
    schema.elections: _elections,
    schema.bans: _bans,
    schema.peers: _peers,
    schema.rolefiles: _rolefiles,
    schema.event_policy: event_policy,
    schema.representatives: _representatives,
}
"""The rows in force at a state, by table and key; of all tables that differences tell of."""
