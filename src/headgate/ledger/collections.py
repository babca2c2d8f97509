"""The collections of a state: where each stands, as which rows the ledger keeps it, and how it is read back.

Guarantees: whatever a state holds, but for its version, is in a collection. What ends and begins with a version
(`delta`), states out of rows (`load`), previews and what a batch is rebased over follow from this list alone: a new
collection is a table in `schema`, an entry here, and its words.
Leaves out: how values become columns (`codec`, `statements`, `role_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, TypeAlias

from sqlalchemy import Table

from headgate.decide.rolebook import holders, merged
from headgate.ledger import codec, role_rows, schema, statements
from headgate.ledger.codec import Columns, Stored, decoding
from headgate.model.authority import AttestedRule
from headgate.model.changes import Row
from headgate.model.layered import branch
from headgate.model.rights import Rule, Source
from headgate.model.rolefiles import EventPolicy
from headgate.model.roles import Ending, RoleFacts
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.model.values import Value

Rows: TypeAlias = Sequence[Stored]

_BATCH_BITS: Final = 32
BEGUN: Final = 1 << _BATCH_BITS
"""What the version with which something began is multiplied by in its place in the order."""


def rank(version: int, position: int) -> int:
    """The place in the order of what begins as one of several with a version."""
    return version << _BATCH_BITS | position


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What a table holds of a state; of a table that several share, its rows of one `kind`."""

    table: Table
    part: Callable[[State], Mapping[Any, Any]]
    """Where it stands in a state, by name."""
    row: Callable[[State, Any, Any], Columns]
    """A fact as a row: of a state, under a name."""
    read: Callable[[State, Rows], State]
    """A state with all that these rows say; collections of one family are read one after another."""
    follow: Callable[[State, Rows, Rows], State] | None = None
    """A state brought forward by the rows that ended and that began, if it need not be read anew."""
    many: bool = False
    """Is what stands under a name several facts, each a row?"""
    ordered: bool = False
    """Have the facts under a name the order of their rows?"""
    beside: Callable[[State], Mapping[str, object] | frozenset[str]] = lambda _: frozenset()
    """What else the row of a name depends on."""
    kind: str = ""
    family: str = ""
    decides: bool = True
    """Does a decision about an event look at it, besides the subscription that it is about?"""
    authored: bool = True
    """May it hold policy as its authors wrote it?"""
    comes_by: str = "policy that was changed back"
    """What it is changed by, where policy is the same afterwards."""

    def own(self, rows: Iterable[Stored]) -> list[Stored]:
        """Those rows of the table that are of this collection."""
        return [row for row in rows if not self.kind or row["kind"] == self.kind]


def key_of(table: Table, row: Stored) -> tuple[Any, ...]:
    """The values of the columns that name a fact."""
    return tuple(row[name] for name in schema.KEYS[table])


def _set(state: State, field: str, value: object) -> State:
    if field.startswith("roles."):
        return replace(state, roles=replace(state.roles, **{field.removeprefix("roles."): value}))  # type: ignore[arg-type]
    return replace(state, **{field: value})  # type: ignore[arg-type]


def _map(
    table: Table,
    field: str,
    row: Callable[[State, Any, Any], Columns],
    value: Callable[[Stored], object],
    **more: Any,
) -> Collection:
    """A map in which each name has one row, under the last column of the key."""
    part, name = attrgetter(field), schema.KEYS[table][-1]

    def read(state: State, rows: Rows) -> State:
        return _set(state, field, {row[name]: value(row) for row in rows})

    def follow(state: State, ended: Rows, begun: Rows) -> State:
        # What ended and began again has kept its place; what took over an id has a rank of its own.
        kept = {row[name] for row in begun if "rank" not in row or row["rank"] < rank(state.version + 1, 0)}
        now = branch(part(state))
        for gone in (row[name] for row in ended):
            if gone not in kept:
                now.pop(gone, None)
        now.update({row[name]: value(row) for row in begun})
        return _set(state, field, now)

    return Collection(table=table, part=part, row=row, read=read, follow=follow, **more)


def _elements(
    table: Table, field: str, row: Callable[[Any], Columns], value: Callable[[Stored], object], **more: Any
) -> Collection:
    """A set of which each element is a row."""
    part = attrgetter(field)

    def follow(state: State, ended: Rows, begun: Rows) -> State:
        return _set(state, field, (part(state) - frozenset(map(value, ended))) | frozenset(map(value, begun)))

    return Collection(
        table=table,
        part=lambda state: {"": part(state)},
        row=lambda _state, _name, one: row(one),
        read=lambda state, rows: _set(state, field, frozenset(map(value, rows))),
        follow=follow,
        many=True,
        **more,
    )


# -- what authors write -----------------------------------------------------------------------------------------


def _type_row(state: State, name: str, one: Any) -> Columns:
    return {**codec.type_columns(one), "position": list(state.types.every).index(name)}


def _read_types(state: State, rows: Rows) -> State:
    catalog = Catalog()
    for row in sorted(rows, key=lambda row: int(row["position"])):
        with decoding("type", row["name"]):
            catalog = catalog.declare(codec.type_of(row))
    return replace(state, types=catalog)


def _read_attributes(state: State, rows: Rows) -> State:
    principals: dict[str, dict[str, Value]] = {name: {} for name in state.principals}
    for row in rows:
        with decoding("subject attribute", row["name"]):
            principals[row["principal"]][row["name"]] = codec.load_value(row["value"])
    return replace(state, principals=principals)


def _open_row(state: State, name: str, _: object) -> Columns:
    return {"name": name, "open": name in state.open_names}


def _read_groups(state: State, rows: Rows) -> State:
    opened = frozenset(row["name"] for row in rows if row["open"])
    return replace(state, groups={row["name"]: frozenset() for row in rows}, open_names=opened)


def _read_members(state: State, rows: Rows) -> State:
    groups: dict[str, set[str]] = {name: set() for name in state.groups}
    for row in rows:
        with decoding("member", row["member"]):
            groups[row["group"]].add(row["member"])
    return replace(state, groups={name: frozenset(members) for name, members in groups.items()})


def _read_relations(state: State, rows: Rows) -> State:
    opened = state.open_names | {row["name"] for row in rows if row["open"]}
    return replace(state, relations={row["name"]: frozenset() for row in rows}, open_names=opened)


def _relation_row(_: State, relation: str, row: Row) -> Columns:
    text = codec.dump_row(row)
    return {"relation": relation, "digest": codec.digest_of(text), "values": text}


def _read_relation_rows(state: State, rows: Rows) -> State:
    relations: dict[str, set[Row]] = {name: set() for name in state.relations}
    for row in rows:
        with decoding("row of relation", row["relation"]):
            relations[row["relation"]].add(codec.load_row(row["values"]))
    return replace(state, relations={name: frozenset(tuples) for name, tuples in relations.items()})


def written(state: State, source: Source) -> tuple[Rule, ...]:
    """The entries of a state that come from a source, in order."""
    return tuple(rule for rule in state.rules if rule.source is source)


def _rule_row(_: State, __: str, rule: Rule) -> Columns:
    return {**codec.rule_columns(rule), "rank": 0}


def _read_rules(state: State, rows: Rows) -> State:
    return replace(state, rules=tuple(codec.rule_of(row) for row in sorted(rows, key=lambda row: int(row["rank"]))))


def _read_admitted(state: State, rows: Rows) -> State:
    return replace(state, rules=(*state.rules, *(codec.rule_of(row, Source.CHAIN) for row in rows)))


def _policy_rule_row(state: State, who: str, rule: Any) -> Columns:
    return {"principal": who, "where": codec.dump_condition(rule), "attested": who in state.attested_rules}


# -- what holds for the domain, and what statements bring -------------------------------------------------------


def _settings(state: State) -> Mapping[str, str]:
    set_to = {
        "connect": "open" if state.connect_open else None,
        "coordinator": state.coordinator,
        "network": state.network,
        "names": "any" if state.any_names else None,
    }
    set_to |= dict.fromkeys((f"{schema.PRIVATE}{name}" for name in sorted(state.private)), "private")
    return {name: value for name, value in set_to.items() if value is not None}


def _read_settings(state: State, rows: Rows) -> State:
    settings = {row["name"]: row["value"] for row in rows}
    return replace(
        state,
        connect_open=settings.get("connect") == "open",
        any_names=settings.get("names") == "any",
        coordinator=settings.get("coordinator"),
        network=settings.get("network"),
        private=frozenset(name.removeprefix(schema.PRIVATE) for name in settings if name.startswith(schema.PRIVATE)),
    )


def _statements(kind: str, field: str) -> Collection:
    return _map(
        schema.statements,
        field,
        lambda _, key, one: statements.statement_columns(kind, key, one),
        statements.statement_of,
        kind=kind,
        decides=False,
        comes_by="statements",
    )


def _read_attested(state: State, rows: Rows) -> State:
    rules: dict[str, tuple[AttestedRule, ...]] = {}
    for one in sorted(map(statements.statement_of, rows), key=lambda one: str(getattr(one, "provider", ""))):
        if isinstance(one, AttestedRule):
            rules[one.principal] = (*rules.get(one.principal, ()), one)
    return replace(state, attested_rules=rules)


def _read_bags(state: State, rows: Rows) -> State:
    bags: dict[str, list[str]] = {}
    for row in rows:
        bags.setdefault(row["principal"], []).append(row["certificate"])
    return replace(state, bags={who: tuple(keys) for who, keys in bags.items()})


# -- roles ------------------------------------------------------------------------------------------------------


def _read_memberships(state: State, rows: Rows) -> State:
    memberships = {row["id"]: role_rows.MEMBERSHIP.of(row) for row in rows}
    return replace(state, roles=replace(state.roles, memberships=memberships, held=holders(memberships)))


def _follow_memberships(state: State, ended: Rows, begun: Rows) -> State:
    kept = {row["id"] for row in begun if row["rank"] < rank(state.version + 1, 0)}
    facts = RoleFacts(
        memberships=tuple(map(role_rows.MEMBERSHIP.of, begun)),
        ended=tuple(Ending(row["id"], "") for row in ended if row["id"] not in kept),
    )
    return replace(state, roles=merged(state.roles, facts))


def _event_policy(state: State) -> Mapping[str, EventPolicy]:
    return {role_rows.EVENTS: state.roles.policy} if state.roles.policy.entries else {}


def _read_event_policy(state: State, rows: Rows) -> State:
    policies = list(map(role_rows.policy_of, rows))
    return _set(state, "roles.policy", policies[-1] if policies else EventPolicy())


_ROLES: Final[dict[str, Any]] = {"decides": False, "authored": False, "comes_by": "roles"}

COLLECTIONS: Final = (
    Collection(
        table=schema.types,
        part=lambda state: state.types.every,
        row=_type_row,
        read=_read_types,
        comes_by="statements",
    ),
    Collection(
        table=schema.principals,
        part=attrgetter("principals"),
        row=lambda _, name, __: {"name": name},
        read=lambda state, rows: replace(state, principals={row["name"]: {} for row in rows}),
        family="principals",
        comes_by="statements",
    ),
    Collection(
        table=schema.subject_attributes,
        part=attrgetter("principals"),
        row=lambda _, who, one: {"principal": who, "name": one[0], "value": codec.dump_value(one[1])},
        read=_read_attributes,
        many=True,
        family="principals",
        comes_by="statements",
    ),
    Collection(
        table=schema.groups,
        part=attrgetter("groups"),
        row=_open_row,
        read=_read_groups,
        beside=attrgetter("open_names"),
        family="names",
    ),
    Collection(
        table=schema.members,
        part=attrgetter("groups"),
        row=lambda _, group, member: {"group": group, "member": member},
        read=_read_members,
        many=True,
        family="names",
    ),
    Collection(
        table=schema.relations,
        part=attrgetter("relations"),
        row=_open_row,
        read=_read_relations,
        beside=attrgetter("open_names"),
        family="names",
    ),
    Collection(
        table=schema.relation_rows,
        part=attrgetter("relations"),
        row=_relation_row,
        read=_read_relation_rows,
        many=True,
        family="names",
    ),
    # The ranks of rules are worked out in `delta`.
    Collection(
        table=schema.rules,
        part=lambda state: {"": written(state, Source.RULE)},
        row=_rule_row,
        read=_read_rules,
        many=True,
        family="rules",
    ),
    Collection(
        table=schema.admitted,
        part=lambda state: {"": written(state, Source.CHAIN)},
        row=_rule_row,
        read=_read_admitted,
        many=True,
        ordered=True,
        family="rules",
        authored=False,
        comes_by="statements",
    ),
    _map(
        schema.policy_rules,
        "policy_rules",
        _policy_rule_row,
        lambda row: codec.load_condition(row["where"]),
        beside=attrgetter("attested_rules"),
        comes_by="statements",
    ),
    _map(
        schema.subscriptions,
        "subscriptions",
        lambda _, __, one: codec.SUBSCRIPTION.columns(one),
        codec.SUBSCRIPTION.of,
        decides=False,
        authored=False,
        comes_by="subscriptions",
    ),
    _map(schema.predicates, "predicates", lambda _, __, one: codec.PREDICATE.columns(one), codec.PREDICATE.of),
    _map(
        schema.keys,
        "keys",
        lambda _, who, key: {"principal": who, "key": key},
        lambda row: row["key"],
        decides=False,
        comes_by="statements",
    ),
    Collection(
        table=schema.settings,
        part=_settings,
        row=lambda _, name, value: {"name": name, "value": value},
        read=_read_settings,
        decides=False,
    ),
    _elements(
        schema.advertisements,
        "advertisements",
        lambda one: {"principal": one[0], "type": one[1]},
        lambda row: (row["principal"], row["type"]),
        decides=False,
        authored=False,
        comes_by="advertisements",
    ),
    _map(
        schema.withdrawals,
        "withdrawals",
        lambda _, who, version: {"principal": who, "from_version": version},
        lambda row: row["from_version"],
        decides=False,
        authored=False,
        comes_by="withdrawals",
    ),
    _statements(statements.CERTIFICATE, "certificates"),
    _statements(statements.LIST, "lists"),
    _statements(statements.SUCCESSION, "successions"),
    _statements(statements.PROVIDER, "providers"),
    _statements(statements.IDENTITY, "identities"),
    Collection(
        table=schema.statements,
        kind=statements.POLICY_RULE,
        part=attrgetter("attested_rules"),
        row=lambda _, __, one: statements.statement_columns(statements.POLICY_RULE, one.key, one),
        read=_read_attested,
        many=True,
        decides=False,
        comes_by="statements",
    ),
    _statements(statements.ISSUING, "issuing"),
    Collection(
        table=schema.bags,
        part=attrgetter("bags"),
        row=lambda _, who, key: {"principal": who, "certificate": key},
        read=_read_bags,
        many=True,
        ordered=True,
        decides=False,
        authored=False,
        comes_by="statements",
    ),
    Collection(
        table=schema.memberships,
        part=attrgetter("roles.memberships"),
        row=lambda _, __, one: role_rows.MEMBERSHIP.columns(one),
        read=_read_memberships,
        follow=_follow_memberships,
        authored=False,
        comes_by="roles",
    ),
    _map(
        schema.elections,
        "roles.elections",
        lambda _, __, one: role_rows.ELECTION.columns(one),
        role_rows.ELECTION.of,
        **_ROLES,
    ),
    _map(
        schema.records, "roles.records", lambda _, __, one: role_rows.RECORD.columns(one), role_rows.RECORD.of, **_ROLES
    ),
    _elements(schema.bans, "roles.bans", role_rows.ban_columns, role_rows.ban_of, **_ROLES),
    _map(
        schema.peers,
        "roles.peers",
        lambda _, __, one: role_rows.PEER.columns(one),
        role_rows.PEER.of,
        decides=False,
        comes_by="services of other domains",
    ),
    _elements(
        schema.watches,
        "roles.watches",
        role_rows.WATCH.columns,
        role_rows.WATCH.of,
        **_ROLES,
    ),
    _map(
        schema.rolefiles,
        "roles.rolefiles",
        lambda _, service, one: role_rows.rolefile_columns(service, one),
        role_rows.rolefile_of,
        decides=False,
    ),
    Collection(
        table=schema.event_policy,
        part=_event_policy,
        row=lambda _, __, policy: role_rows.policy_columns(policy),
        read=_read_event_policy,
    ),
    _map(
        schema.representatives,
        "roles.representatives",
        lambda _, __, one: role_rows.representative_columns(one),
        role_rows.representative_of,
    ),
)
"""Every collection. Families stand together, in the order in which they are read."""

RANKED: Final = (schema.memberships, schema.elections)
"""The tables whose facts keep their place in the order when they change."""


def tables(which: Callable[[Collection], bool] = lambda _: True) -> list[Table]:
    """The tables of those collections of which something is true, in order."""
    return list(dict.fromkeys(one.table for one in COLLECTIONS if which(one)))
