"""What a collection of the state is to the ledger: its table, key, encoding and words, declared at once.

Guarantees: what ends and begins with a version (`delta`), states out of rows (`load`), previews, differences in words
and what a batch is rebased over follow from descriptions alone. Every table of facts has
`[from_version, to_version)`, where a null `to_version` is still in force, and at most one row in force for each key.
Names stand as they are (`check_name` made them printable); all other text is JSON in ASCII, so that any string a value
or condition holds can be stored in any database. Words are one line each, with names in backticks.
Leaves out: which collections there are (`schema`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, TypeAlias

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text, UniqueConstraint
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex

from headgate.lang.render import render_condition, render_operand
from headgate.ledger.codec import PLAIN, Columns, RowForm, Stored, decoding
from headgate.model.expressions import TRUE, Condition, Constant
from headgate.model.layered import branch
from headgate.model.state import State

Rows: TypeAlias = Sequence[Stored]

METADATA: Final = MetaData()
KEYS: Final[dict[Table, tuple[str, ...]]] = {}
"""The tables of facts, each with the columns that name a fact."""

_BATCH_BITS: Final = 32
BEGUN: Final = 1 << _BATCH_BITS
"""What the version with which something began is multiplied by in its place in the order."""


def rank(version: int, position: int) -> int:
    """The place in the order of what begins as one of several with a version."""
    return version << _BATCH_BITS | position


def key_of(table: Table, row: Stored) -> tuple[Any, ...]:
    """The values of the columns that name a fact."""
    return tuple(row[name] for name in KEYS[table])


def facts(table: str, key: Sequence[str], columns: Mapping[str, RowForm[Any]], by: str = "") -> Table:
    """A table of facts; with an index `by` a column."""
    forms = {**{name: columns.get(name, PLAIN) for name in key}, **columns}
    made = Table(
        table,
        METADATA,
        # The order of rows is the order in which they were written.
        Column("row", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        *(Column(name, form.column, nullable=form.null) for name, form in forms.items()),
        Column("from_version", BigInteger, nullable=False),
        Column("to_version", BigInteger),
        UniqueConstraint(*key, "from_version"),
        Index(f"{table}_by_from", "from_version"),
        Index(f"{table}_by_to", "to_version"),
        *([Index(f"{table}_by_{by}", by)] if by else []),
    )
    now = made.c.to_version.is_(None)
    named = [made.c[name] for name in key]
    Index(f"{table}_in_force", *named, unique=True, sqlite_where=now)
    KEYS[made] = tuple(key)
    return made


@compiles(CreateIndex, "postgresql")
def _index_of_postgresql(create: CreateIndex, compiler: Any, **options: Any) -> str:
    """An index over the same rows as on SQLite; said here, because saying it beside that loads the dialect."""
    index = create.element
    index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
    return str(compiler.visit_create_index(create, **options))


@compiles(String, "postgresql")
@compiles(Text, "postgresql")
def _text_of_postgresql(_type: String, _compiler: Any, **_options: Any) -> str:
    """Text is compared by code point, whatever the language of the database."""
    return 'TEXT COLLATE "C"'


# -- words ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that was added (no `before`), removed (no `after`) or changed, and that in words."""

    kind: str
    name: str
    before: str | None
    after: str | None
    words: str


OfFact: TypeAlias = str | Callable[[Any], str]
"""Words with the columns of a row in their places, or how to find them from the fact."""
OfRow: TypeAlias = str | Callable[[Stored, str], str]
"""Words with the columns of a row and what the fact says (`{said}`) in their places, or how to find them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How one speaks of the facts of a table."""

    kind: str
    name: OfFact = ""
    """By default the key, in words."""
    text: OfFact = ""
    """What a fact says, without its name; by default the last column of the key."""
    added: OfRow
    removed: OfRow
    changed: Callable[[Stored, Stored, str, str], str | None] = lambda *_: None
    """What to say of a fact that says something else than before, if there are words of its own for that."""
    again: Callable[[Stored, Stored, str], str | None] = lambda *_: None
    """What to say of a fact that says the same as before; mostly nothing."""


def line(text: str) -> str:
    """Text in one line."""
    return text.replace("\n", "\\n")


def value_text(value: object) -> str:
    """A value as the expression language has it."""
    return line(render_operand(Constant(value)))  # type: ignore[arg-type]


def where_text(condition: Condition) -> str:
    """A condition after what it is about; nothing, if it is always true."""
    return "" if condition == TRUE else line(f" where {render_condition(condition)}")


# -- collections ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What a table holds of a state; of a table that several share, its rows of one `kind`."""

    table: Table
    what: str = ""
    named: str = ""
    """What a fact is called where its row cannot be read, and the column that names it, if not by its words and key."""
    form: RowForm[Any]
    part: Callable[[State], Mapping[Any, Any]]
    """Where it stands in a state, by name."""
    read: Callable[[State, Rows], State]
    """A state with all that these rows say; collections of one family are read one after another."""
    row: Callable[[State, Any, Any], Columns] | None = None
    """A fact as a row, of a state and under a name, where there is more to it than its name and form."""
    follow: Callable[[State, Rows, Rows], State] | None = None
    """A state brought forward by the rows that ended and that began, if it need not be read anew."""
    many: bool = False
    """Is what stands under a name several facts, each a row?"""
    ordered: bool = False
    """Have the facts under a name the order of their rows?"""
    ranked: bool = False
    """Do facts keep their place in the order when they change?"""
    beside: Callable[[State], Mapping[str, object] | frozenset[str]] = lambda _: frozenset()
    """What else the row of a name depends on."""
    kind: str = ""
    family: str = ""
    words: Words | None = None
    """None for what people are told of by other facts."""
    decides: bool = True
    """Does a decision about an event look at it, besides the subscription that it is about?"""
    authored: bool = True
    """May it hold policy as its authors wrote it?"""
    comes_by: str = "policy that was changed back"
    """What it is changed by, where policy is the same afterwards."""

    def own(self, rows: Iterable[Stored]) -> list[Stored]:
        """Those rows of the table that are of this collection."""
        return [row for row in rows if not self.kind or row["kind"] == self.kind]

    def row_of(self, state: State, name: Any, fact: Any) -> Columns:
        """A fact under a name, as a row."""
        if self.row is not None:
            return self.row(state, name, fact)
        kind = {"kind": self.kind} if self.kind else {}
        return {KEYS[self.table][0 if self.many else -1]: name, **self.form.dump(fact), **kind}

    def fact_of(self, row: Stored) -> Any:
        """The inverse of `row_of`."""
        with self.decoding(row):
            return self.form.load(row)

    def decoding(self, row: Stored) -> AbstractContextManager[None]:
        """While a row is read: what goes wrong is damage, under its name."""
        what = self.what or (self.words.kind if self.words is not None else self.table.name)
        return decoding(what, row[self.named or KEYS[self.table][-1]])


def put(state: State, field: str, value: object) -> State:
    """A state with another value of a field, or of one of its roles."""
    if field.startswith("roles."):
        return replace(state, roles=replace(state.roles, **{field.removeprefix("roles."): value}))  # type: ignore[arg-type]
    return replace(state, **{field: value})  # type: ignore[arg-type]


def mapped(table: Table, form: RowForm[Any], field: str = "", **more: Any) -> Collection:
    """A map in which each name has one row, under the last column of the key. The field is by default the table's."""
    field = field or table.name
    part, name = attrgetter(field), KEYS[table][-1]

    def read(state: State, rows: Rows) -> State:
        return put(state, field, {row[name]: made.fact_of(row) for row in rows})

    def follow(state: State, ended: Rows, begun: Rows) -> State:
        # What ended and began again has kept its place; what took over an id has a rank of its own.
        kept = {row[name] for row in begun if "rank" not in row or row["rank"] < rank(state.version + 1, 0)}
        now = branch(part(state))
        for gone in (row[name] for row in ended):
            if gone not in kept:
                now.pop(gone, None)
        now.update({row[name]: made.fact_of(row) for row in begun})
        return put(state, field, now)

    options: dict[str, Any] = {"part": part, "read": read, "follow": follow} | more
    made = Collection(table=table, form=form, **options)
    return made


def elements(table: Table, form: RowForm[Any], field: str, **more: Any) -> Collection:
    """A set of which each element is a row."""
    part = attrgetter(field)

    def read(state: State, rows: Rows) -> State:
        return put(state, field, frozenset(map(made.fact_of, rows)))

    def follow(state: State, ended: Rows, begun: Rows) -> State:
        gone, come = (frozenset(map(made.fact_of, rows)) for rows in (ended, begun))
        return put(state, field, (part(state) - gone) | come)

    made = Collection(
        table=table, form=form, part=lambda state: {"": part(state)}, read=read, follow=follow, many=True, **more
    )
    return made


def nested(
    table: Table, form: RowForm[Any], field: str, make: Callable[[list[Any]], object], *, declared: bool, **more: Any
) -> Collection:
    """A map in which each name, the first column of the key, has several rows; `declared`: by a collection before."""
    part, name = attrgetter(field), KEYS[table][0]

    def read(state: State, rows: Rows) -> State:
        several: dict[str, list[Any]] = {known: [] for known in part(state)} if declared else defaultdict(list)
        for row in rows:
            with made.decoding(row):
                several[row[name]].append(form.load(row))
        return put(state, field, {known: make(values) for known, values in several.items()})

    made = Collection(table=table, form=form, part=part, read=read, many=True, **more)
    return made
