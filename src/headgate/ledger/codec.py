"""Facts of the model as columns, and back.

Guarantees: what is decoded is what was encoded, kinds included: `1`, `1.0`, `True` and `'1'` stay apart,
floats keep every bit, timestamps every microsecond. A condition or role that would not read back the same is
refused when it is written. What cannot be decoded is `damaged`. A `RowForm` says both ways at once, and its columns.
Leaves out: the facts themselves (`policy_rows`, `statement_rows`, `role_rows`).
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Generic, TypeAlias, TypeVar

from sqlalchemy import BigInteger, Boolean, Integer, String, Text

from headgate.lang import parse_condition, render_condition
from headgate.lang.render import render_role
from headgate.lang.rolefile import parse_role
from headgate.model.errors import BadDefinition, BadExpression, Damaged, HeadgateError
from headgate.model.rights import Action
from headgate.model.values import Value, brief, micros, moment

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


def digest_of(text: str) -> str:
    """What stands for a long text in a key."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()


# Forms


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class RowForm(Generic[T]):
    """How something is written, and read back; in a table, as which kind of column, or as which columns."""

    dump: Callable[[T], Any]
    load: Callable[[Any], T]
    column: Any = Text
    null: bool = False
    inline: bool = False
    """Do its fields stand among those of what it is a part of?"""
    columns: Mapping[str, RowForm[Any]] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Is it written as it is?"""
        return self.load is _same


PLAIN: Final[RowForm[Any]] = RowForm(_same, _same)
"""As it is."""
NAME: Final = replace(PLAIN, column=String)
NUMBER: Final = replace(PLAIN, column=BigInteger)
SMALL: Final = replace(PLAIN, column=Integer)
FLAG: Final = replace(PLAIN, column=Boolean)


def maybe(form: RowForm[T]) -> RowForm[T | None]:
    """It, or null."""
    if form.is_plain:
        return replace(PLAIN, column=form.column, null=True)
    return RowForm(
        lambda value: None if value is None else form.dump(value),
        lambda data: None if data is None else form.load(data),
        form.column,
        null=True,
    )


def each(form: RowForm[T]) -> RowForm[tuple[T, ...]]:
    """Several, in order."""
    return RowForm(lambda many: list(map(form.dump, many)), lambda data: tuple(map(form.load, data)))


def text(form: RowForm[T]) -> RowForm[T]:
    """As JSON, in a column of its own."""
    return RowForm(lambda value: dump(form.dump(value)), lambda data: form.load(json.loads(data)))


def record(make: Callable[..., T], /, **fields: RowForm[Any]) -> RowForm[T]:
    """A class by its fields, under their names."""

    def written(value: T) -> Columns:
        content: Columns = {}
        for name, form in fields.items():
            of_field = getattr(value, name)
            if form.inline:
                content.update(form.dump(of_field))
            else:
                content[name] = of_field if form.is_plain else form.dump(of_field)
        return content

    def read(data: Stored) -> T:
        values = {name: data[name] for name in plain}
        for name, form in others:
            values[name] = form.load(data if form.inline else data[name])
        return make(**values)

    plain = [name for name, form in fields.items() if form.is_plain]
    others = [(name, form) for name, form in fields.items() if not form.is_plain]
    columns = {name: form for name, form in fields.items() if not form.inline}
    return RowForm(written, read, columns=columns)


def packed(
    make: Callable[..., T], column: str, own: Mapping[str, RowForm[Any]], /, **fields: RowForm[Any]
) -> RowForm[T]:
    """A class of which some fields are columns of their `own`, and the others together JSON in one column."""
    outer, inner = record(dict[str, Any], **own), record(dict[str, Any], **fields)
    return RowForm(
        lambda value: {**outer.dump(value), column: dump(inner.dump(value))},  # type: ignore[arg-type]
        lambda row: make(**outer.load(row), **inner.load(json.loads(row[column]))),
        columns={**own, column: PLAIN},
    )


def value_in(column: str, form: RowForm[T] = NAME) -> RowForm[T]:
    """What is all of a fact but its name: one column."""
    return RowForm(lambda value: {column: form.dump(value)}, lambda row: form.load(row[column]), columns={column: form})


def read_back(
    what: str,
    render: Callable[[T], str],
    parse: Callable[[str], T],
    *,
    same: Callable[[T, T], bool] = operator.eq,
    kept: int = PARSED,
) -> RowForm[T]:
    """What has a language of its own, as text that reads back as the same; so many parsed forms are `kept`."""

    @lru_cache(maxsize=kept)
    def load(stored: str) -> T:
        return parse(json.loads(stored))

    def written(value: T) -> str:
        # No cache here: Python takes `x = 1` and `x = true` for the same key.
        rendered = render(value)
        stored = dump(rendered)
        if not same(load(stored), value):
            raise BadExpression(f"the {what} `{brief(rendered)}` does not read back as it was given")
        return stored

    return RowForm(written, load)


VALUE: Final[RowForm[Value]] = RowForm(to_json, from_json)
"""A value of any kind."""
TIME: Final = RowForm(micros, moment, BigInteger)
CONDITION: Final = read_back(
    "condition", render_condition, parse_condition, same=lambda one, other: repr(one) == repr(other)
)
ROLE: Final = read_back("role", render_role, parse_role)
"""The role of a rule."""
NAMES: Final[RowForm[frozenset[str]]] = RowForm(sorted, frozenset)
ACTIONS: Final[RowForm[frozenset[Action]]] = RowForm(
    lambda actions: sorted(action.value for action in actions), lambda data: frozenset(map(Action, data))
)
VALUES: Final[RowForm[Mapping[str, Value]]] = RowForm(
    lambda values: [[name, to_json(value)] for name, value in values.items()],
    lambda data: {name: from_json(value) for name, value in data},
)
"""Named values, in order."""
