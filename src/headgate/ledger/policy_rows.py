"""What authors write, subscribe to and publish, and what holds for the domain, as the ledger keeps it and tells it.

Guarantees: each collection is declared once (`collection`). Conditions and values are told as the expression language
has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Final

from headgate.lang.render import render_condition, render_free, render_role
from headgate.ledger import codec
from headgate.ledger.codec import Columns, RowForm, Stored
from headgate.ledger.collection import (
    Collection,
    Rows,
    Words,
    elements,
    facts,
    line,
    mapped,
    nested,
    value_text,
    where_text,
)
from headgate.ledger.tree_codec import COMPOSITE
from headgate.model.changes import RegisterPredicate, Row
from headgate.model.expressions import Condition, Related, Term
from headgate.model.rights import Detection, Effect, Rule, Source, Subscription
from headgate.model.state import State
from headgate.model.types import CONTRIBUTORS, DECLASSIFIED, Catalog, EventType, Times
from headgate.model.values import Kind, brief

# -- types ------------------------------------------------------------------------------------------------------

TYPE: Final = codec.packed(
    EventType,
    "name",
    "definition",
    "owner parent key attributes bits since retired times derived declassified_for",
    attributes=RowForm(
        lambda kinds: [[name, kind.value] for name, kind in kinds.items()],
        lambda data: {name: Kind(kind) for name, kind in data},
    ),
    # Written only where something is said of times, as types were before that could be.
    times=RowForm(
        lambda times: {} if times is None else times.as_said(),
        lambda data: Times.said(*map(data.get, ("times", "lateness", "ahead", "clock_error"))),
        inline=True,
    ),
    derived=RowForm(
        lambda derived: {} if derived is None else {"derived": derived}, lambda data: data.get("derived"), inline=True
    ),
    declassified_for=RowForm(
        lambda names: {"declassified_for": sorted(names)} if names else {},
        lambda data: frozenset(data.get("declassified_for", ())),
        inline=True,
    ),
)


def _read_types(state: State, rows: Rows) -> State:
    catalog = Catalog()
    for row in sorted(rows, key=lambda row: int(row["position"])):
        with codec.decoding("type", row["name"]):
            catalog = catalog.declare(TYPE.load(row))
    return replace(state, types=catalog)


_DERIVED: Final = {
    CONTRIBUTORS: "derived, for readers of its contributors",
    DECLASSIFIED: "derived, of types that are declassified for it",
}


def _type_text(new: EventType) -> str:
    parts = [f"owner `{new.owner}`"]
    if new.parent is not None:
        parts.append(f"extends `{new.parent}`")
    if new.attributes:
        named = (f"`{name}` {kind.value}" for name, kind in new.attributes.items())
        parts.append(f"attributes {', '.join(named)}")
    if new.key:
        parts.append("key " + ", ".join(f"`{name}`" for name in new.key))
    if new.times is not None:
        parts += [f"{name.replace('_', ' ')} {value}" for name, value in new.times.as_said().items()]
    if new.derived is not None:
        parts.append(_DERIVED[new.derived])
    if new.declassified_for:
        parts.append("declassified for " + ", ".join(f"`{name}`" for name in sorted(new.declassified_for)))
    if new.retired:
        parts.append("removed")
    return "; ".join(parts)


TYPES: Final = Collection(
    table=facts("types", ("name",), {"position": codec.SMALL, **TYPE.columns}),
    form=TYPE,
    part=lambda state: state.types.every,
    row=lambda state, name, new: {**TYPE.dump(new), "position": list(state.types.every).index(name)},
    read=_read_types,
    words=Words(
        kind="type",
        text=_type_text,
        added="type `{name}` declared: {said}",
        removed="type `{name}` removed",
        changed=lambda _, row, __, ___: f"type `{row['name']}` removed" if TYPE.load(row).retired else None,
    ),
    comes_by="statements",
)

_VALUE: Final = codec.text(codec.VALUE)
_ROW: Final = codec.text(codec.each(codec.VALUE))

# -- principals, groups and relations ---------------------------------------------------------------------------

PRINCIPALS: Final = mapped(
    facts("principals", ("name",), {}),
    RowForm(lambda _: {}, lambda _: {}),
    follow=None,
    family="principals",
    words=Words(kind="principal", added="principal `{name}` declared", removed="principal `{name}` removed"),
    comes_by="statements",
)
ATTRIBUTES: Final = nested(
    facts("subject_attributes", ("principal", "name"), {"value": codec.PLAIN}),
    RowForm(
        lambda pair: {"name": pair[0], "value": _VALUE.dump(pair[1])},
        lambda row: (row["name"], _VALUE.load(row["value"])),
    ),
    "principals",
    dict,
    declared=True,
    what="subject attribute",
    family="principals",
    words=Words(
        kind="attribute",
        name="{principal}.${name}",
        text=lambda pair: value_text(pair[1]),
        added="`${name}` of `{principal}` is {said}",
        removed="`${name}` of `{principal}` is gone; it was {said}",
        changed=lambda _, row, old, new: f"`${row['name']}` of `{row['principal']}` went from {old} to {new}",
    ),
    comes_by="statements",
)


def _opened(kind: str, field: str) -> Collection:
    """The names of groups, or of relations, and which of them filters may use."""
    part = attrgetter(field)

    def read(state: State, rows: Rows) -> State:
        opened = state.open_names.difference(part(state)).union(row["name"] for row in rows if row["open"])
        return replace(state, open_names=opened, **{field: {row["name"]: frozenset() for row in rows}})  # type: ignore[arg-type]

    return Collection(
        table=facts(field, ("name",), {"open": codec.FLAG}),
        what=kind,
        form=codec.value_in("open", codec.FLAG),
        part=part,
        row=lambda state, name, _: {"name": name, "open": name in state.open_names},
        read=read,
        beside=attrgetter("open_names"),
        family="names",
        words=Words(
            kind=kind,
            text=lambda is_open: "open" if is_open else "not open",
            added=lambda row, _: f"{kind} `{row['name']}` declared{', open' if row['open'] else ''}",
            removed=f"{kind} `{{name}}` removed",
            changed=lambda _, row, __, new: f"{kind} `{row['name']}` is now {new}",
        ),
    )


GROUPS: Final = _opened("group", "groups")
MEMBERS: Final = nested(
    facts("members", ("group", "member"), {}, by="member"),
    codec.value_in("member"),
    "groups",
    frozenset,
    declared=True,
    family="names",
    words=Words(kind="member", added="`{member}` joined group `{group}`", removed="`{member}` left group `{group}`"),
)
RELATIONS: Final = _opened("relation", "relations")


def _tuple_columns(row: Row) -> Columns:
    # The key is a digest because a row may be longer than a database lets an index entry be.
    values = _ROW.dump(row)
    return {"digest": codec.digest_of(values), "values": values}


RELATION_ROWS: Final = nested(
    facts("relation_rows", ("relation", "digest"), {"values": codec.PLAIN}),
    RowForm(_tuple_columns, lambda row: _ROW.load(row["values"])),
    "relations",
    frozenset,
    declared=True,
    what="row of relation",
    named="relation",
    family="names",
    words=Words(
        kind="row",
        name="{relation}{said}",
        text=lambda row: f"({', '.join(map(value_text, row))})",
        added="{said} joined relation `{relation}`",
        removed="{said} left relation `{relation}`",
    ),
)

# -- rules ------------------------------------------------------------------------------------------------------


def written(state: State, source: Source) -> tuple[Rule, ...]:
    """The entries of a state that come from a source, in order."""
    return tuple(rule for rule in state.rules if rule.source is source)


def _forced(value: object) -> str:
    try:
        return value_text(value)
    except ValueError:
        return brief(value)


def _rule_text(rule: Rule) -> str:
    verb = "may" if rule.effect is Effect.GRANT else "may not"
    who = f"`{rule.who}`" if rule.role is None else f"whoever holds `{line(render_role(rule.role))}`"
    text = f"{who} {verb} {', '.join(sorted(a.value for a in rule.actions))} `{rule.type}`"
    if rule.attributes is not None:
        forced = {name: f" = {_forced(value)}" for name, value in rule.forced.items()}
        named = [f"`{name}`{forced.get(name, '')}" for name in rule.attributes]
        text += f" ({', '.join(named) or 'no attributes'})"
    text += where_text(rule.where)
    text += ", publishing only with an identity statement in force" if rule.attested else ""
    return f"{text}, disclosed" if rule.disclose else text


def _moved(before: Stored, after: Stored, _: str) -> str | None:
    if before["rank"] == after["rank"]:
        return None
    return f"rule `{after['id']}` moved {'up' if after['rank'] < before['rank'] else 'down'}"


def _entries(table: str, source: Source, **more: Any) -> Collection:
    """Ordered entries (D5) of a source: what a rule may be depends on that."""
    form = codec.row(
        partial(Rule, source=source),  # `who` is empty where `role` is in its place: whoever holds the role
        "id who actions type where attributes forced effect disclose author role attested",
        role=codec.maybe(codec.ROLE),
        attested=RowForm(bool, bool, codec.FLAG.column, null=True),  # null is no
    )
    return Collection(
        table=facts(table, ("id",), {"rank": codec.NUMBER, **form.columns}, by="who"),
        what="rule",
        form=form,
        part=lambda state: {"": written(state, source)},
        row=lambda _, __, rule: {**form.dump(rule), "rank": 0},
        many=True,
        family="rules",
        **more,
    )


def _read_rules(state: State, rows: Rows) -> State:
    return replace(state, rules=tuple(map(RULES.fact_of, sorted(rows, key=lambda row: int(row["rank"])))))


def _read_admitted(state: State, rows: Rows) -> State:
    return replace(state, rules=(*state.rules, *map(ADMITTED.fact_of, rows)))


# The ranks of rules are worked out in `delta`.
RULES: Final = _entries(
    "rules",
    Source.RULE,
    read=_read_rules,
    words=Words(
        kind="rule",
        text=_rule_text,
        added="rule `{id}` added: {said}",
        removed="rule `{id}` removed: {said}",
        again=_moved,
    ),
)
# What chains of certificates give: after all rules, in the order of their rows.
ADMITTED: Final = _entries(
    "admitted",
    Source.CHAIN,
    read=_read_admitted,
    ordered=True,
    words=Words(
        kind="right",
        text=_rule_text,
        added="by certificates of `{author}`, {said}",
        removed="no longer by certificates of `{author}`: {said}",
    ),
    authored=False,
    comes_by="statements",
)


def _policy_rule_columns(state: State, who: str, rule: Condition) -> Columns:
    return {"principal": who, "where": codec.CONDITION.dump(rule), "attested": who in state.attested_rules}


POLICY_RULES: Final = mapped(
    facts("policy_rules", ("principal",), {"where": codec.PLAIN, "attested": codec.FLAG}),
    codec.value_in("where", codec.CONDITION),
    row=_policy_rule_columns,
    beside=attrgetter("attested_rules"),
    words=Words(
        kind="policy rule",
        text=lambda rule: line(f"`{render_condition(rule)}`"),
        added="the requirements of `{principal}` must be narrower than {said}",
        removed="`{principal}` has no policy rule any more; it was {said}",
    ),
    comes_by="statements",
)

# -- subscriptions and what goes with them ----------------------------------------------------------------------

_ADDS: Final = codec.record(Related, "name args", args=codec.each(codec.FORMS[Term]))
_DETECTION: Final = codec.record(
    Detection, "text composite bound start publishes adds", composite=COMPOSITE, adds=codec.maybe(_ADDS)
)
_DERIVES_NOTHING: Final = {"publishes": None, "adds": None}  # those that were written before they could
DETECTION: Final = codec.text(RowForm(_DETECTION.dump, lambda data: _DETECTION.load({**_DERIVES_NOTHING, **data})))
SUBSCRIPTION: Final = codec.row(
    Subscription,
    "id principal type where history first since_version since_time requires origin counted detection",
    # The version that its row begins at.
    first=RowForm(lambda first: {"from_version": first}, lambda row: row["from_version"], inline=True),
    detection=codec.maybe(DETECTION),
)


def _subscription_text(one: Subscription) -> str:
    history = ""
    if one.history:
        back = f" since version {one.since_version}" if one.since_version else ""
        back += "" if one.since_time is None else f" since {one.since_time.isoformat()}"
        history = f", with history{back}"
    counted = "" if one.counted is None else ", counting " + (", ".join(one.counted) or "no role")
    if one.detection is not None:
        given = ", ".join(f"{name} = {value_text(value)}" for name, value in one.detection.bound.items())
        bound = f" with {given}" if given else ""
        derives = "" if one.detection.publishes is None else f", published as `{one.detection.publishes}`"
        derives += "" if one.detection.adds is None else f", added as `{render_free(one.detection.adds)}`"
        return f"`{one.principal}` detects `{line(one.detection.text)}`{bound}{history}{counted}{derives}"
    return f"`{one.principal}` to `{one.type}`{where_text(one.where)}{history}{counted}"


def _begun_again(before: Stored, after: Stored, _: str) -> str | None:
    if before["from_version"] == after["from_version"]:
        return None
    return f"subscription `{after['id']}` of `{after['principal']}` ended and began again"


SUBSCRIPTIONS: Final = mapped(
    facts("subscriptions", ("id",), SUBSCRIPTION.columns, by="principal"),
    SUBSCRIPTION,
    words=Words(
        kind="subscription",
        text=_subscription_text,
        added="subscription `{id}` began: {said}",
        removed="subscription `{id}` ended: {said}",
        again=_begun_again,
    ),
    decides=False,
    authored=False,
    comes_by="subscriptions",
)
PREDICATE: Final = codec.row(RegisterPredicate, "name target digest")
PREDICATES: Final = mapped(
    facts("predicates", ("name",), PREDICATE.columns),
    PREDICATE,
    words=Words(
        kind="predicate",
        text="`{target}` with digest {digest}",
        added="predicate `{name}` registered: {said}",
        removed="predicate `{name}` removed",
    ),
)
PRINCIPAL_KEYS: Final = mapped(
    facts("keys", ("principal",), {"key": codec.PLAIN}),
    codec.value_in("key"),
    words=Words(
        kind="key",
        text="{key}",
        added="`{principal}` proves itself with {said}",
        removed="`{principal}` has no key any more; it was {said}",
        changed=lambda _, row, old, new: f"`{row['principal']}` has a new key, {new}; it was {old}",
    ),
    decides=False,
    comes_by="statements",
)
ADVERTISEMENTS: Final = elements(
    facts("advertisements", ("principal", "type"), {}),
    RowForm(lambda pair: {"principal": pair[0], "type": pair[1]}, lambda row: (row["principal"], row["type"])),
    "advertisements",
    words=Words(
        kind="advertisement",
        added="`{principal}` advertises `{type}`",
        removed="`{principal}` no longer advertises `{type}`",
    ),
    decides=False,
    authored=False,
    comes_by="advertisements",
)
WITHDRAWALS: Final = mapped(
    facts("withdrawals", ("principal",), {}),
    codec.value_in("from_version"),
    words=Words(
        kind="withdrawal",
        text="{from_version}",
        added="what `{principal}` had not fetched by version {said} was withdrawn",
        removed="the withdrawal from `{principal}` is over",
        changed=lambda _, row, __, new: f"what `{row['principal']}` had not fetched by version {new} was withdrawn",
    ),
    decides=False,
    authored=False,
    comes_by="withdrawals",
)

# -- settings ---------------------------------------------------------------------------------------------------

_PRIVATE: Final = "$"
"""How the name of a setting begins that says of an attribute of subjects that it is private."""
_SETTING_WORDS: Final = {
    "coordinator": ("the network is coordinated by {said}", "this domain coordinates the network itself"),
    "network": ("the network is called `{said}`", "the network has no name any more; it was `{said}`"),
    "names": (
        "new names may look like others, and mix scripts",
        "new names may no longer look like others, nor mix scripts",
    ),
    "connect": ("every principal may connect that no rule stops", "only principals that a rule lets in may connect"),
    _PRIVATE: (
        "the attribute `{name}` of principals is private",
        "the attribute `{name}` of principals is no longer private",
    ),
}


_SETTINGS: Final = {"connect": "connect_open", "coordinator": "coordinator", "network": "network", "names": "any_names"}
"""The fields of a state that are settings."""
_WHEN_TRUE: Final = {"connect": "open", "names": "any"}
"""What those are set to that are true or false."""


def _settings(state: State) -> Mapping[str, str]:
    set_to = {name: getattr(state, field) for name, field in _SETTINGS.items()}
    set_to |= {name: word if set_to[name] else None for name, word in _WHEN_TRUE.items()}
    set_to |= dict.fromkeys((f"{_PRIVATE}{name}" for name in sorted(state.private)), "private")
    return {name: value for name, value in set_to.items() if value is not None}


def _read_settings(state: State, rows: Rows) -> State:
    settings = {row["name"]: row["value"] for row in rows}
    set_to: dict[str, Any] = {field: settings.get(name) for name, field in _SETTINGS.items()}
    set_to |= {_SETTINGS[name]: settings.get(name) == word for name, word in _WHEN_TRUE.items()}
    private = frozenset(name.removeprefix(_PRIVATE) for name in settings if name.startswith(_PRIVATE))
    return replace(state, private=private, **set_to)


def _setting_words(at: int, row: Stored, said: str) -> str:
    name = _PRIVATE if row["name"].startswith(_PRIVATE) else row["name"]
    return _SETTING_WORDS.get(name, _SETTING_WORDS["connect"])[at].format(name=row["name"], said=said)


SETTINGS: Final = Collection(
    table=facts("settings", ("name",), {"value": codec.PLAIN}),
    form=codec.value_in("value"),
    part=_settings,
    read=_read_settings,
    words=Words(kind="setting", text="{value}", added=partial(_setting_words, 0), removed=partial(_setting_words, 1)),
    decides=False,
)

POLICY: Final = (
    TYPES, PRINCIPALS, ATTRIBUTES, GROUPS, MEMBERS, RELATIONS, RELATION_ROWS, RULES, ADMITTED, POLICY_RULES,
    SUBSCRIPTIONS, PREDICATES, PRINCIPAL_KEYS, SETTINGS, ADVERTISEMENTS, WITHDRAWALS,
)  # fmt: skip
"""Families stand together, in the order in which they are read."""
