"""Facts of the model as columns, and back.

Guarantees: what is decoded is what was encoded, kinds included: `1`, `1.0`, `True` and `'1'` stay apart,
floats keep every bit, timestamps every microsecond. A condition or role that would not read back the same is
refused when it is written. What cannot be decoded is `damaged`. A `RowForm` says both ways at once.
Leaves out: statements (`statements`) and the role book (`role_rows`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from headgate.lang import parse_condition, render_condition
from headgate.lang.render import render_role
from headgate.lang.rolefile import parse_role
from headgate.model.changes import RegisterPredicate, Row
from headgate.model.conditions import Condition, RoleRef
from headgate.model.errors import BadDefinition, BadExpression, Damaged, HeadgateError
from headgate.model.rights import Action, Effect, Rule, Source, Subscription
from headgate.model.types import EventType
from headgate.model.values import Kind, Value, brief, micros, moment

T = TypeVar("T")
Columns: TypeAlias = dict[str, Any]
Stored: TypeAlias = Mapping[Any, Any]
"""A row as the database gives it."""

PARSED: Final = 65_536
"""Distinct conditions, and distinct roles of rules, whose parsed form is kept."""


def dump(data: object) -> str:
    """JSON in ASCII, which every database stores whatever characters the text in it has."""
    return json.dumps(data, ensure_ascii=True, separators=(",", ":"))


@contextmanager
def decoding(what: str, name: object) -> Iterator[None]:
    """Whatever goes wrong while decoding a row means that the row is not what was written."""
    try:
        yield
    except Damaged:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, HeadgateError) as error:
        raise Damaged(f"the stored {what} `{brief(name)}` cannot be read: {error}") from error


# Values


def to_json(value: object) -> object:
    """A value with its kind: bool, int, text and null as JSON has them, the others tagged."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": value.hex()}
        case datetime() if value.tzinfo is not None:
            return {"timestamp": micros(value)}
        case bytes():
            return {"bytes": value.hex()}
        case _:
            raise BadDefinition(f"`{brief(value)}` is not a value that can be stored")


def from_json(data: object) -> Value:
    """The inverse of `to_json`."""
    match data:
        case None | bool() | int() | str():
            return data
        case {"float": str(text)}:
            return float.fromhex(text)
        case {"timestamp": int(microseconds)}:
            return moment(microseconds)
        case {"bytes": str(text)}:
            return bytes.fromhex(text)
        case _:
            raise ValueError(f"`{brief(data)}` is not a stored value")


def dump_value(value: Value) -> str:
    """One value as text."""
    return dump(to_json(value))


def load_value(text: str) -> Value:
    """The inverse of `dump_value`."""
    return from_json(json.loads(text))


def dump_row(row: Row) -> str:
    """A row of a relation as text."""
    return dump([to_json(value) for value in row])


def load_row(text: str) -> Row:
    """The inverse of `dump_row`."""
    return tuple(from_json(value) for value in json.loads(text))


def digest_of(text: str) -> str:
    """What stands for a long text in a key."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()


# Conditions


@lru_cache(maxsize=PARSED)
def load_condition(text: str) -> Condition:
    """The condition that `dump_condition` wrote."""
    return parse_condition(json.loads(text))


def dump_condition(condition: Condition) -> str:
    """A condition as text that reads back as the same condition."""
    # No cache here: Python takes `x = 1` and `x = true` for the same key.
    written = render_condition(condition)
    text = dump(written)
    if repr(load_condition(text)) != repr(condition):
        raise BadExpression(f"the condition `{brief(written)}` does not read back as it was given")
    return text


# Roles of rules


@lru_cache(maxsize=PARSED)
def load_role(text: str) -> RoleRef:
    """The role that `dump_role` wrote."""
    return parse_role(json.loads(text))


def dump_role(role: RoleRef) -> str:
    """The role of a rule as text that reads back as the same role."""
    written = render_role(role)
    text = dump(written)
    if load_role(text) != role:
        raise BadExpression(f"the role `{brief(written)}` does not read back as it was given")
    return text


# Forms


@dataclass(frozen=True, slots=True)
class RowForm(Generic[T]):
    """How something is written, and read back."""

    dump: Callable[[T], Any]
    load: Callable[[Any], T]
    inline: bool = False
    """Do its fields stand among those of what it is a part of?"""


PLAIN: Final[RowForm[Any]] = RowForm(lambda one: one, lambda data: data)
"""As it is."""


def maybe(form: RowForm[T]) -> RowForm[T | None]:
    """It, or null."""
    return RowForm(
        lambda one: None if one is None else form.dump(one), lambda data: None if data is None else form.load(data)
    )


def each(form: RowForm[T]) -> RowForm[tuple[T, ...]]:
    """Several, in order."""
    return RowForm(lambda many: [form.dump(one) for one in many], lambda data: tuple(map(form.load, data)))


def text(form: RowForm[T]) -> RowForm[T]:
    """As JSON, in a column of its own."""
    return RowForm(lambda one: dump(form.dump(one)), lambda data: form.load(json.loads(data)))


def record(make: Callable[..., T], *, inline: bool = False, **fields: RowForm[Any]) -> RowForm[T]:
    """A class by its fields, under their names."""

    def written(one: T) -> Columns:
        content: Columns = {}
        for name, form in fields.items():
            value = getattr(one, name)
            if form.inline:
                content.update(form.dump(value))
            else:
                content[name] = value if form is PLAIN else form.dump(value)
        return content

    def read(data: Stored) -> T:
        values = {name: data[name] for name in plain}
        for name, form in others:
            values[name] = form.load(data if form.inline else data[name])
        return make(**values)

    plain = [name for name, form in fields.items() if form is PLAIN]
    others = [(name, form) for name, form in fields.items() if form is not PLAIN]
    return RowForm(written, read, inline)


TIME: Final = RowForm(micros, moment)
CONDITION: Final = RowForm(dump_condition, load_condition)
NAMES: Final[RowForm[frozenset[str]]] = RowForm(sorted, frozenset)
ACTIONS: Final[RowForm[frozenset[Action]]] = RowForm(
    lambda actions: sorted(action.value for action in actions), lambda data: frozenset(map(Action, data))
)
VALUES: Final[RowForm[Mapping[str, Value]]] = RowForm(
    lambda values: [[name, to_json(value)] for name, value in values.items()],
    lambda data: {name: from_json(value) for name, value in data},
)
"""Named values, in order."""


@dataclass(frozen=True, slots=True)
class Encoding(Generic[T]):
    """A fact as columns, and back: what it is, the column that names it, and its form."""

    what: str
    key: str
    form: RowForm[T]

    def columns(self, one: T) -> Columns:
        """What is stored."""
        columns: Columns = self.form.dump(one)
        return columns

    def of(self, row: Stored) -> T:
        """The inverse of `columns`."""
        with decoding(self.what, row[self.key]):
            return self.form.load(row)


# Facts

_DEFINITION: Final[RowForm[Any]] = record(
    dict,
    owner=PLAIN,
    parent=PLAIN,
    key=each(PLAIN),
    attributes=RowForm(
        lambda kinds: [[name, kind.value] for name, kind in kinds.items()],
        lambda data: {name: Kind(kind) for name, kind in data},
    ),
    bits=RowForm(dict, PLAIN.load),
    since=RowForm(dict, PLAIN.load),
    retired=PLAIN,
)


def type_columns(new: EventType) -> Columns:
    """An event type without its position."""
    return {"name": new.name, "definition": dump(_DEFINITION.dump(new))}


def type_of(row: Stored) -> EventType:
    """The inverse of `type_columns`."""
    with decoding("type", row["name"]):
        return EventType(name=row["name"], **_DEFINITION.load(json.loads(row["definition"])))


def _rule_form(source: Source) -> RowForm[Rule]:
    """A rule of a source, which its table says: what a rule may be depends on that."""
    return record(
        partial(Rule, source=source),
        id=PLAIN,
        who=PLAIN,
        actions=text(ACTIONS),
        type=PLAIN,
        where=CONDITION,
        attributes=maybe(text(each(PLAIN))),
        forced=text(VALUES),
        effect=RowForm(lambda effect: effect.value, Effect),
        disclose=PLAIN,
        author=PLAIN,
        role=maybe(RowForm(dump_role, load_role)),
        attested=RowForm(bool, bool),
    )


_RULES: Final = {source: Encoding("rule", "id", _rule_form(source)) for source in Source}


def rule_columns(rule: Rule) -> Columns:
    """A rule without its rank."""
    return _RULES[rule.source].columns(rule)


def rule_of(row: Stored, source: Source = Source.RULE) -> Rule:
    """The inverse of `rule_columns`."""
    return _RULES[source].of(row)


SUBSCRIPTION: Final = Encoding(
    "subscription",
    "id",
    record(
        Subscription,
        id=PLAIN,
        principal=PLAIN,
        type=PLAIN,
        where=CONDITION,
        history=PLAIN,
        first=RowForm(lambda first: {"from_version": first}, lambda row: row["from_version"], inline=True),
        since_version=PLAIN,
        since_time=maybe(TIME),
        requires=maybe(CONDITION),
        origin=PLAIN,
        counted=maybe(text(each(PLAIN))),
    ),
)


"""A subscription; its `first` is the version that its row begins at."""

PREDICATE: Final = Encoding("predicate", "name", record(RegisterPredicate, name=PLAIN, target=PLAIN, digest=PLAIN))
