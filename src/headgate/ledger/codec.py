"""Facts of the model as columns, and back.

Guarantees: what is decoded is what was encoded, kinds included: `1`, `1.0`, `True` and `'1'` stay apart,
floats keep every bit, timestamps every microsecond. A condition or role that would not read back the same is
refused when it is written. What cannot be decoded is `damaged`. A `RowForm` says both ways at once, and its columns;
that of a class follows from the annotations of its fields.
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
from enum import Enum
from functools import lru_cache, reduce
from types import NoneType
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from sqlalchemy import BigInteger, Boolean, Integer, String, Text

from headgate.lang import parse_condition, render_condition
from headgate.lang.render import render_role
from headgate.lang.rolefile import parse_role
from headgate.model.errors import BadDefinition, BadExpression, Damaged, HeadgateError
from headgate.model.expressions import Argument, Condition, Constant, Meta, RoleRef, Term, Variable
from headgate.model.rights import Action
from headgate.model.roles import dump_argument, load_argument
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
    column: Any = None
    """The kind of its column; None for JSON that is no text yet."""
    null: bool = False
    inline: bool = False
    """Do its fields stand among those of what it is a part of?"""
    columns: Mapping[str, RowForm[Any]] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Is it written as it is?"""
        return self.load is _same


PLAIN: Final[RowForm[Any]] = RowForm(_same, _same, String)
"""Text, as it is."""
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
    return RowForm(lambda value: dump(form.dump(value)), lambda data: form.load(json.loads(data)), Text)


def form_of(hint: Any, *, column: bool = False) -> RowForm[Any]:
    """How what an annotation says is written in JSON, or in a column of its own."""
    parts = get_args(hint)
    if hint in FORMS:
        made = FORMS[hint]
    elif NoneType in parts:
        return maybe(form_of(reduce(operator.or_, (part for part in parts if part is not NoneType)), column=column))
    elif get_origin(hint) is tuple:
        made = each(form_of(parts[0]))
    elif issubclass(hint, Enum):
        made = RowForm(lambda one: one.value, hint, String)
    else:
        raise TypeError(f"there is no form for {hint}")
    return text(made) if column and made.column is None else made


def _fields(make: Any, names: str, given: Mapping[str, RowForm[Any]], *, column: bool) -> dict[str, RowForm[Any]]:
    hints = get_type_hints(getattr(make, "func", make))
    return {name: given[name] if name in given else form_of(hints[name], column=column) for name in names.split()}


def _record(make: Callable[..., T], fields: Mapping[str, RowForm[Any]]) -> RowForm[T]:
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
    return RowForm(written, read, columns={name: form for name, form in fields.items() if not form.inline})


def record(make: Callable[..., T], names: str, /, **given: RowForm[Any]) -> RowForm[T]:
    """A class as JSON by these fields, each as its annotation says unless its form is given."""
    return _record(make, _fields(make, names, given, column=False))


def row(make: Callable[..., T], names: str, /, **given: RowForm[Any]) -> RowForm[T]:
    """A class as columns by these fields, each as its annotation says unless its form is given."""
    return _record(make, _fields(make, names, given, column=True))


def packed(make: Callable[..., T], own: str, column: str, names: str, /, **given: RowForm[Any]) -> RowForm[T]:
    """A class of which some fields are columns of their `own`, and the others together JSON in one column."""
    outer = _record(dict[str, Any], _fields(make, own, given, column=True))
    inner = _record(dict[str, Any], _fields(make, names, given, column=False))
    return RowForm(
        lambda value: {**outer.dump(value), column: dump(inner.dump(value))},  # type: ignore[arg-type]
        lambda stored: make(**outer.load(stored), **inner.load(json.loads(stored[column]))),
        columns={**outer.columns, column: PLAIN},
    )


def value_in(column: str, form: RowForm[T] = PLAIN) -> RowForm[T]:
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

    return RowForm(written, load, Text)


VALUE: Final[RowForm[Value]] = RowForm(to_json, from_json)
"""A value of any kind."""
TIME: Final = RowForm(micros, moment, BigInteger)
CONDITION: Final = read_back(
    "condition", render_condition, parse_condition, same=lambda one, other: repr(one) == repr(other)
)
ROLE: Final = read_back("role", render_role, parse_role)
"""The role of a rule."""
VALUES: Final[RowForm[Mapping[str, Value]]] = RowForm(
    lambda values: [[name, to_json(value)] for name, value in values.items()],
    lambda data: {name: from_json(value) for name, value in data},
)
"""Named values, in order."""


def _term_json(term: Term) -> list[object]:
    match term:
        case Constant(value):
            return ["given", dump_argument(value)]
        case Variable(name):
            return ["variable", name]
        case Meta(name):
            return ["asked", name]


def _json_term(raw: object) -> Term:
    match raw:
        case ["given", value]:
            return Constant(load_argument(value))
        case ["variable", str(name)]:
            return Variable(name)
        case ["asked", "instance" | "time" | "origin" | "client" as name]:
            return Meta(name)
        case _:
            raise ValueError(f"`{brief(raw)}` is no term")


FORMS: Final[dict[Any, RowForm[Any]]] = {
    str: PLAIN,
    int: NUMBER,
    bool: FLAG,
    datetime: TIME,
    Value: VALUE,
    Argument: RowForm(dump_argument, load_argument),
    Condition: CONDITION,
    Term: RowForm(_term_json, _json_term),
    Mapping[str, Value]: VALUES,
    Mapping[str, object]: VALUES,
    Mapping[str, int]: RowForm(dict, dict),
    frozenset[str]: RowForm(sorted, frozenset),
    frozenset[Action]: RowForm(
        lambda actions: sorted(action.value for action in actions), lambda data: frozenset(map(Action, data))
    ),
}
"""How what an annotation says is written, but for what it is made of: options, lists and enumerations."""
FORMS[RoleRef] = record(RoleRef, "role args service instance")
