"""The state at a version, out of the rows in force there.

Guarantees: equal to what `roles.requests.transition` made when the version was committed, rules and types in the same
order. A row that does not fit the others (a member of no group, a type without its parent) is `damaged`, not
left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, or_, select, union

from headgate.ledger import codec, schema, statements
from headgate.ledger.codec import decoding
from headgate.ledger.role_book import advance_book, load_book
from headgate.model.authority import AttestedRule
from headgate.model.changes import Row
from headgate.model.rights import Source, Subscription
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.model.values import Value

_POLICY: Final = tuple(table for table in schema.KEYS if table not in schema.NOT_POLICY)


def load(connection: Connection, version: int, administrator: str, *, subscriptions: bool = True) -> State:
    """The whole state at a version; without subscriptions, all the rest of it."""
    state = replace(_policy(connection, version, administrator), roles=load_book(connection, version))
    if not subscriptions:
        return state
    found = _rows(connection, schema.subscriptions, schema.in_force(schema.subscriptions, version))
    return replace(state, subscriptions={row["id"]: codec.subscription_of(row) for row in found})


def advance(connection: Connection, state: State, version: int) -> State:
    """A state brought forward to a later version; what did not change since is not read again."""
    plain = [table for table in _POLICY if table not in schema.ROLES]
    if touched(connection, plain, state.version, version):
        policy = _policy(connection, version, state.administrator)
    else:
        policy = replace(_beside(connection, state, version), version=version)
    table = schema.subscriptions
    ended = table.c.to_version.between(state.version + 1, version)
    begun = table.c.from_version.between(state.version + 1, version)
    now: dict[str, Subscription] = dict(state.subscriptions)
    for gone in connection.scalars(select(table.c.id).where(ended)):
        now.pop(gone, None)
    for row in _rows(connection, table, begun & schema.in_force(table, version)):
        now[row["id"]] = codec.subscription_of(row)
    roles = state.roles
    if touched(connection, schema.ROLES, state.version, version):
        roles = advance_book(connection, roles, state.version, version)
    return replace(policy, subscriptions=now, roles=roles)


def policy_versions(connection: Connection, after: int, through: int) -> list[int]:
    """The versions in `(after, through]` at which anything but subscriptions changed."""
    return touched(connection, _POLICY, after, through)


def touched(connection: Connection, tables: Iterable[Table], after: int, through: int) -> list[int]:
    """The versions in `(after, through]` at which any of these tables changed."""
    found = [
        select(column.label("version")).where(column.between(after + 1, through)).distinct()
        for table in tables
        for column in (table.c.from_version, table.c.to_version)
    ]
    return sorted(connection.scalars(union(*found)))


def _beside(connection: Connection, state: State, version: int) -> State:
    """What is not policy at a version, read again where it changed since the state."""
    for table in schema.NOT_POLICY:
        if table is schema.subscriptions or table in schema.ROLES:
            continue
        ends = table.c.to_version
        changed = or_(
            table.c.from_version.between(state.version + 1, version), ends.between(state.version + 1, version)
        )
        if state.version == 0 or connection.execute(select(table.c.row).where(changed).limit(1)).first() is not None:
            rows = _rows(connection, table, schema.in_force(table, version))
            if table is schema.keys:
                state = replace(state, keys={row["principal"]: row["key"] for row in rows})
            elif table is schema.settings:
                found = {row["name"]: row["value"] for row in rows}
                state = replace(
                    state,
                    connect_open=found.get("connect") == "open",
                    any_names=found.get("names") == "any",
                    coordinator=found.get("coordinator"),
                    network=found.get("network"),
                    private=frozenset(
                        name.removeprefix(schema.PRIVATE) for name in found if name.startswith(schema.PRIVATE)
                    ),
                )
            elif table is schema.statements:
                state = _stands(state, rows)
            elif table is schema.bags:
                bags: dict[str, tuple[str, ...]] = {}
                for row in rows:
                    bags[row["principal"]] = (*bags.get(row["principal"], ()), row["certificate"])
                state = replace(state, bags=bags)
            elif table is schema.advertisements:
                state = replace(state, advertisements=frozenset((row["principal"], row["type"]) for row in rows))
            else:
                state = replace(state, withdrawals={row["principal"]: row["from_version"] for row in rows})
    return state


def _stands(state: State, rows: Iterable[RowMapping]) -> State:
    by_kind: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], {})[row["id"]] = statements.statement_of(row)
    attested: dict[str, list[AttestedRule]] = {}
    for one in sorted(by_kind.get(statements.POLICY_RULE, {}).values(), key=lambda one: str(one.provider)):
        attested.setdefault(one.principal, []).append(one)
    return replace(
        state,
        certificates=by_kind.get(statements.CERTIFICATE, {}),
        lists=by_kind.get(statements.LIST, {}),
        successions=by_kind.get(statements.SUCCESSION, {}),
        providers=by_kind.get(statements.PROVIDER, {}),
        identities=by_kind.get(statements.IDENTITY, {}),
        attested_rules={who: tuple(every) for who, every in attested.items()},
        issuing=by_kind.get(statements.ISSUING, {}),
    )


def _rows(connection: Connection, table: Table, which: ColumnElement[bool]) -> Iterable[RowMapping]:
    return connection.execute(select(table).where(which).order_by(table.c.row)).mappings()


def _policy(connection: Connection, version: int, administrator: str) -> State:
    def rows(table: Table) -> Iterator[RowMapping]:
        yield from _rows(connection, table, schema.in_force(table, version))

    catalog = Catalog()
    for row in sorted(rows(schema.types), key=lambda row: int(row["position"])):
        with decoding("type", row["name"]):
            catalog = catalog.declare(codec.type_of(row))

    principals: dict[str, dict[str, Value]] = {row["name"]: {} for row in rows(schema.principals)}
    for row in rows(schema.subject_attributes):
        with decoding("subject attribute", row["name"]):
            principals[row["principal"]][row["name"]] = codec.load_value(row["value"])

    open_names: set[str] = set()
    groups: dict[str, set[str]] = {}
    for row in rows(schema.groups):
        groups[row["name"]] = set()
        open_names |= {row["name"]} if row["open"] else set()
    for row in rows(schema.members):
        with decoding("member", row["member"]):
            groups[row["group"]].add(row["member"])

    relations: dict[str, set[Row]] = {}
    for row in rows(schema.relations):
        relations[row["name"]] = set()
        open_names |= {row["name"]} if row["open"] else set()
    for row in rows(schema.relation_rows):
        with decoding("row of relation", row["relation"]):
            relations[row["relation"]].add(codec.load_row(row["values"]))

    ranked = sorted(rows(schema.rules), key=lambda row: int(row["rank"]))
    chains = tuple(codec.rule_of(row, Source.CHAIN) for row in rows(schema.admitted))
    found = State(
        version=version,
        administrator=administrator,
        types=catalog,
        rules=(*(codec.rule_of(row) for row in ranked), *chains),
        principals=principals,
        groups={name: frozenset(members) for name, members in groups.items()},
        relations={name: frozenset(tuples) for name, tuples in relations.items()},
        open_names=frozenset(open_names),
        predicates={row["name"]: codec.predicate_of(row) for row in rows(schema.predicates)},
        policy_rules={row["principal"]: codec.load_condition(row["where"]) for row in rows(schema.policy_rules)},
    )
    return replace(_beside(connection, replace(found, version=0), version), version=version)
