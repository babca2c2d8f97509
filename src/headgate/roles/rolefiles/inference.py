"""Which type has each argument of a role? Unification over all statements of a rolefile (OASIS 3.2.1).

Guarantees: a variable has one type within a statement, an argument of a role one everywhere. What nothing tells stays
open. Every clash is kept with its line and both places; none stops the rest.
Leaves out: raw values and the outside view (`types`), and what is true (`decide`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias, assert_never, cast, get_args

from headgate.decide.reading import Readings
from headgate.lang.acl import FUNCTIONS
from headgate.lang.literals import Reading, read_text
from headgate.lang.render import render_constraint, render_expression, render_role, render_type
from headgate.model import expressions as tree
from headgate.model import rolefiles as syntax
from headgate.model.errors import BadDefinition, BadExpression
from headgate.model.expressions import Argument, Atom, Condition, Constant, Operand, RoleRef, Variable, foreign
from headgate.model.rolefiles import ArgumentType, ClockType, Declaration, Rolefile, Statement, TimestampType
from headgate.model.values import Kind, brief, kind_of

Imported: TypeAlias = Callable[[str, str], "Signature | None"]
"""The argument types of a role of another service, as far as they are known."""

Signature: TypeAlias = tuple[ArgumentType | None, ...]
Signatures: TypeAlias = Mapping[str, Signature]
"""The argument types of each role; None is open."""

CredentialReadings: TypeAlias = Mapping[tuple[str, str], Mapping[int, Reading]]
"""How arguments of other services' roles are read as times, by service and role, and by place."""


@dataclass(frozen=True, slots=True)
class Textual:
    """Text: a String, or an object type, of which text is the literal.

    Of what is only written as these literals it is not said yet: they may be what a time is written as.
    """

    literals: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class LetterSet:
    """A set of which these letters are known."""

    known: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Other:
    """A kind of value that no role declares: `number`, `bool`, `bytes`."""

    kind: str


Known: TypeAlias = ArgumentType | Textual | LetterSet | Other
"""What is known of a type."""


@dataclass(frozen=True, slots=True)
class TypeClash:
    """Two uses that do not go together, or a role with another number of arguments."""

    code: str
    line: int
    message: str


def meet(a: Known, b: Known) -> Known | None:
    """What is known if both are; None if they clash."""
    match a, b:
        case Textual(some), Textual(more):
            return Textual() if some is None or more is None else Textual(some | more)
        case (Textual(), (syntax.StringType() | syntax.ObjectType()) as wider):
            return wider
        case ((syntax.StringType() | syntax.ObjectType()) as wider, Textual()):
            return wider
        case (Textual(literals), (TimestampType() | ClockType()) as time) | (
            (TimestampType() | ClockType()) as time,
            Textual(literals),
        ):
            return time if literals is not None and all(_says(one, time) for one in literals) else None
        case LetterSet(some), LetterSet(more):
            return LetterSet(some | more)
        case (LetterSet(some), syntax.SetType(letters) as declared) | (
            syntax.SetType(letters) as declared,
            LetterSet(some),
        ):
            return declared if some <= set(letters) else None
        case syntax.SetType(some), syntax.SetType(more):
            return a if set(some) == set(more) else None
        case syntax.ObjectType(some, None), syntax.ObjectType(more) if some == more:
            return b  # whose type it is may be left to be inferred
        case syntax.ObjectType(some), syntax.ObjectType(more, None) if some == more:
            return a
        case (Other("number"), syntax.IntegerType()) | (syntax.IntegerType(), Other("number")):
            return syntax.IntegerType()
        case (ClockType() as clock, syntax.IntegerType() | Other("number")) | (
            syntax.IntegerType() | Other("number"),
            ClockType() as clock,
        ):
            return clock
    return a if a == b else None


def _says(text: str, time: TimestampType | ClockType) -> bool:
    try:
        read_text(_reading(time) or "timestamp", text)
    except BadExpression:
        return False
    return True


def words(known: Known) -> str:
    """A type in words."""
    match known:
        case Textual():
            return "text"
        case LetterSet(letters):
            return f"a set with `{''.join(sorted(letters))}`" if letters else "a set"
        case Other(kind):
            return f"a {kind}" if kind != "bytes" else "bytes"
        case TimestampType():
            return "a timestamp"
        case ClockType(part):
            return "a time of day" if part == "timeofday" else "a day of the week"
        case _:
            return f"of type `{render_type(known)}`"


def nothing_imported(_service: str, _role: str) -> None:
    """Nothing is known of the roles of other services."""


REMEDIES: Final[Mapping[str, str]] = {
    "types": "use another variable, or declare the argument with `def`",
    "sums": "add whole numbers; to a timestamp, seconds",
    "times": "write a moment like `'2026-01-01T09:00:00Z'`, a time of day like `'08:00'` and a day like `'Mon'`",
    "arity": "give a role the arguments that it is defined with; a reference may leave out the last ones",
}
"""What to do about a clash."""


class Inference:
    """Cells for every variable and argument, joined as the statements join them."""

    def __init__(self, rolefile: Rolefile, imported: Imported = nothing_imported, service: str | None = None) -> None:
        self.clashes: list[TypeClash] = []
        self._scopes: list[dict[str, int]] = []
        self.roles: dict[tuple[str | None, str], tuple[list[int], int]] = {}
        """The cells of a role's arguments, and the line that said how many there are."""
        self._settled: set[tuple[str | None, str]] = set()
        """The roles whose number of arguments a definition has given; a reference may name fewer."""
        self._above: list[int] = []
        self._known: list[tuple[Known, str] | None] = []
        self._rolefile = rolefile
        self._imported = imported
        self._service = service
        self._ordered: list[tuple[int, int, str]] = []
        self._sums: list[tuple[tree.Combine, int, int, int, int]] = []
        """Sums and differences that are not settled yet: the cells of both sides and of the whole, and the line."""
        self._columns: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
        """The cells that stand for columns of what may be a relation, each with its line and atom."""
        self._scope: dict[str, int] = {}
        self._line = 0
        self.own_roles = rolefile.roles
        for declaration in rolefile.declarations:
            self._declare(declaration)
        for statement in rolefile.statements:
            self._statement(statement)
        while self._settle_sums() or self._settle_columns():
            pass
        while self._sums and self._settle_sums(last=True):
            pass
        self._check_orders()

    def known(self, cell: int) -> Known | None:
        """What is known of a cell."""
        found = self._known[self._root(cell)]
        return found[0] if found is not None else None

    def known_of_role(self, service: str | None, role: str) -> list[Known | None]:
        """What is known of the arguments of a role; none where it is nowhere named with any."""
        cells, _ = self.roles.get((service, role), ((), 0))
        return [self.known(cell) for cell in cells]

    def refuse_clashes(self) -> None:
        """Refuse a rolefile whose types clash."""
        for clash in self.clashes:
            raise BadDefinition(clash.message, place=f"line {clash.line}", remedy=REMEDIES[clash.code])

    @cached_property
    def signatures(self) -> Signatures:
        """The types of the arguments of each role; of a set, only where every statement writes it out."""
        written: dict[tuple[str, int], bool] = {}
        for statement in self._rolefile.statements:
            for key in ((statement.head.role, place) for place in range(len(statement.head.args))):
                term = statement.head.args[key[1]]
                is_set = isinstance(term, Constant) and isinstance(term.value, frozenset)
                written[key] = written.get(key, True) and is_set
        return {
            role: tuple(
                _shown(known, written.get((role, place), False))
                for place, known in enumerate(self.known_of_role(None, role))
            )
            for service, role in self.roles
            if service is None
        }

    def described(self, role: str) -> Iterator[str]:
        """The types of a role's arguments in words; `any` where nothing tells."""
        for type, known in zip(self.signatures[role], self.known_of_role(None, role), strict=True):
            open_type = words(known) if isinstance(known, LetterSet | Textual) else "any"
            yield open_type if type is None else render_type(type)

    @property
    def scopes(self) -> list[dict[str, Known | None]]:
        """What is known of the variables of each statement, in order."""
        return [{name: self.known(cell) for name, cell in one.items()} for one in self._scopes]

    @cached_property
    def readings(self) -> Readings:
        """How the columns of relations are read that are compared with times."""
        return self._columns_read()

    def _columns_read(self) -> dict[tuple[str, int], Reading]:
        readings: dict[tuple[str, int], Reading] = {}
        for column, cells in self._columns.items():
            for cell, _, _ in cells:
                reading = _reading(self.known(cell))
                if reading is not None:
                    readings.setdefault(column, reading)
        return readings

    @cached_property
    def credential_readings(self) -> CredentialReadings:
        """How the arguments of other services' roles are read that are compared with times."""
        readings: dict[tuple[str, str], dict[int, Reading]] = {}
        for service, role in self.roles:
            for position, known in enumerate(self.known_of_role(service, role)):
                reading = _reading(known)
                if service is not None and reading is not None:
                    readings.setdefault((service, role), {})[position] = reading
        return readings

    # -- cells --

    def _cell(self, known: Known | None = None, where: str = "") -> int:
        self._above.append(len(self._above))
        self._known.append((known, where) if known is not None else None)
        return len(self._above) - 1

    def _root(self, cell: int) -> int:
        while self._above[cell] != cell:
            self._above[cell] = cell = self._above[self._above[cell]]
        return cell

    def _join(self, a: int, b: int, what: str) -> None:
        a, b = self._root(a), self._root(b)
        if a == b:
            return
        first, second = self._known[a], self._known[b]
        self._above[b] = a
        if first is None or second is None:
            self._known[a] = first or second
            return
        met = meet(first[0], second[0])
        if met is None:
            earlier, later = f"{words(first[0])} by {first[1]}", f"{words(second[0])} by {second[1]}"
            timed = {type(first[0]), type(second[0])}
            is_time = timed & {Textual, syntax.IntegerType} and timed & {TimestampType, ClockType}
            self._clash("times" if is_time else "types", f"`{what}` is {earlier}, but {later}")
        else:
            self._known[a] = (met, first[1] if met == first[0] else second[1])

    def _is(self, cell: int, known: Known, what: str) -> None:
        self._join(cell, self._cell(known, self._place(what)), what)

    def _place(self, what: str) -> str:
        return f"line {self._line} (`{what}`)"

    def _clash(self, code: str, message: str) -> None:
        self.clashes.append(TypeClash(code, self._line, message))

    # -- roles --

    def _declare(self, declaration: Declaration) -> None:
        self._line = declaration.line
        cells = self._arguments(None, declaration.role, len(declaration.parameters), defines=True)
        types = dict(declaration.types)
        for cell, name in zip(cells, declaration.parameters, strict=False):
            if name in types:
                self._is(cell, self._resolved(types[name]), f"def {declaration.role}({name})")

    def _resolved(self, type: ArgumentType) -> ArgumentType:
        """An object type with the service that it is imported from."""
        if not isinstance(type, syntax.ObjectType) or type.service is not None:
            return type
        services = {one.service for one in self._rolefile.imports if one.name == type.name}
        if len(services) > 1:
            self._clash(
                "types", f"`{type.name}` is imported from {' and '.join(f'`{one}`' for one in sorted(services))}"
            )
        return syntax.ObjectType(type.name, min(services)) if services else type

    def _arguments(self, service: str | None, role: str, count: int, *, defines: bool = False) -> list[int]:
        """The cells of a role's arguments; a clash if a definition has not as many, or a reference has more."""
        key = (None if service == self._service else service, role)
        if key not in self.roles:
            types = self._imported(service, role) if service is not None and key[0] is not None else None
            if types is None:
                self.roles[key] = ([self._cell() for _ in range(count)], self._line)
            else:
                self.roles[key] = ([self._given_by(str(service), type, role) for type in types], 0)
                self._settled.add(key)
        cells, line = self.roles[key]
        settled = key in self._settled
        if not settled and count > len(cells):
            cells.extend(self._cell() for _ in range(count - len(cells)))
        if defines and not settled:
            self._settled.add(key)
            self.roles[key] = (cells, self._line)
        if count != len(cells) and (defines or (settled and count > len(cells))):
            name = f"{service}.{role}" if key[0] is not None else role
            by = f"line {line}" if line else "its own service"
            self._clash("arity", f"`{brief(name)}` has {count} arguments here, but {len(cells)} by {by}")
        return cells

    def _given_by(self, service: str, type: ArgumentType | None, role: str) -> int:
        if isinstance(type, syntax.ObjectType) and type.service is None:
            type = syntax.ObjectType(type.name, service)
        return self._cell(type, f"`{service}.{role}`")

    def _role(self, ref: RoleRef, *, head: bool = False) -> None:
        """Join a reference's terms with the role's arguments; a reference without any leaves them open."""
        if ref.instance is not None:
            self._is(self._typed(ref.instance), Textual(), said(ref))
        if not ref.args and not head:
            return
        cells = self._arguments(ref.service, ref.role, len(ref.args), defines=head)
        for cell, term in zip(cells, ref.args, strict=False):
            self._join(cell, self._typed(term), f"{said(term)}` of `{said(ref)}")

    # -- statements --

    def _statement(self, statement: Statement) -> None:
        self._scope, self._line = {}, statement.line
        self._scopes.append(self._scope)
        self._role(statement.head, head=True)
        for ref in (*statement.needed, *(revoker.ref for revoker in statement.revokers)):
            self._role(ref)
        for atom in tree.atoms(statement.constraint):
            self._atom(atom)

    def _atom(self, atom: Atom) -> None:
        sides, wanted = tree.operands(atom), tree.admits(atom)
        match atom:
            case tree.InSet(_, values):
                sides = (*sides, *map(Constant, values))
            case tree.InGroup(of, _):
                self._is(self._typed(of), Textual(), said(atom))
            case tree.Related(name, args) if name in self.own_roles and args:
                cells = self._arguments(None, name, len(args))
                for cell, term in zip(cells, args, strict=False):
                    self._join(cell, self._typed(term), f"{said(term)}` of `{said(atom)}")
            case tree.Related(name, args):
                self._calls(name, args, said(atom))
        if isinstance(atom, tree.TextMatch) or wanted in ("alike", "order", "sets"):
            known = LetterSet() if wanted == "sets" else syntax.StringType() if wanted == "text" else None
            cell = self._alike(atom, sides, known)
            if wanted == "order":
                self._ordered.append((cell, self._line, said(atom)))

    def _alike(self, c: Condition | Operand, sides: Iterable[Operand], known: Known | None) -> int:
        """Join what a comparison or an operation joins."""
        cells = [self._typed(side) for side in sides]
        for cell in cells:
            if known is not None:
                self._is(cell, known, said(c))
            self._join(cells[0], cell, said(c))
        return cells[0]

    def _typed(self, e: Operand) -> int:
        """The cell of an expression."""
        match e:
            case Variable("_"):
                return self._cell()
            case Variable(name):
                if name not in self._scope:
                    self._scope[name] = self._cell()
                return self._scope[name]
            case Constant(value):
                return self._cell(known_of(value), self._place(said(e)))
            case tree.Meta(name):
                return self._cell(TimestampType() if name == "time" else Textual(), self._place(said(e)))
            case tree.Apply(function, args):
                self._calls(function, args, said(e))
                made = self._cell(LetterSet() if function in FUNCTIONS else None, self._place(said(e)))
                self._columns.setdefault((function, len(args)), []).append((made, self._line, said(e)))
                return made
            case tree.Count(of):
                self._role(of)
                return self._cell(syntax.IntegerType(), self._place(said(e)))
            case tree.Combine(op, left, right) if op in ("+", "-"):
                for side in (left, right):
                    if isinstance(side, Constant) and isinstance(side.value, float):
                        self._clash("sums", f"`{said(e)}` adds `{said(side)}`, which is no whole number")
                made = self._cell()
                self._sums.append((e, self._typed(left), self._typed(right), made, self._line))
                return made
            case tree.Combine(_, left, right):
                return self._alike(e, (left, right), LetterSet())
            case tree.ClockPart(part, of, _):
                self._is(self._typed(of), TimestampType(), said(e))
                return self._cell(ClockType(part), self._place(said(e)))
            case tree.Attribute() | tree.Subject():
                raise foreign(e)
            case _:
                assert_never(e)

    def _calls(self, name: str, args: Iterable[Operand], what: str) -> None:
        """What is given to a function, or compared with the columns of a relation."""
        for place, arg in enumerate(args):
            self._columns.setdefault((name, place), []).append((self._typed(arg), self._line, what))

    def _settle_columns(self) -> bool:
        """A column that is compared with a time somewhere is one everywhere; true if something came to be known."""
        settled = False
        for column, reading in self._columns_read().items():
            type = time_type(reading)
            for cell, line, what in self._columns[column]:
                known = self.known(cell)
                self._line = line
                if known is None or isinstance(known, Textual):
                    self._is(cell, type, what)  # of text a clash, kept once: the cell has its type from then on
                    self._known[self._root(cell)] = (type, self._place(what))
                    settled = True
        return settled

    def _settle_sums(self, *, last: bool = False) -> bool:
        """Work out sums and differences of which enough is known; `last` takes what is left for integers."""
        left = []
        before, settled = len(self._sums), False
        for pending in self._sums:
            e, first, second, made, self._line = pending
            kinds = [self.known(cell) for cell in (first, second, made)]
            is_time = [kind == TimestampType() for kind in kinds]
            given = [kind is not None for kind in kinds]
            what = said(e)
            if (open_side := _time_of_other(e.op, kinds)) is not None:
                side, time = open_side
                self._is((first, second)[side], time, what)
                left.append(pending)
                settled = True
            elif e.op == "-" and is_time[0] and is_time[1]:
                self._is(made, syntax.IntegerType(), what)
            elif (is_time[0] and (given[1] or e.op == "+")) or (is_time[2] and e.op == "-"):
                self._moves(first, second, made, what)
            elif e.op == "+" and is_time[1]:
                self._moves(second, first, made, what)
            elif (given[0] and given[1] and not any(is_time)) or (last and not any(is_time)):
                parts = [kind for kind in kinds[:2] if isinstance(kind, ClockType)]
                for cell in (first, second):
                    self._is(cell, syntax.IntegerType(), what)
                self._is(made, parts[0] if len(parts) == 1 else syntax.IntegerType(), what)
            elif last:
                self._moves(first, second, made, what)
            else:
                left.append(pending)
        self._sums = left
        return settled or len(left) < before

    def _moves(self, moment: int, seconds: int, made: int, what: str) -> None:
        """A timestamp and a number of seconds make a timestamp."""
        self._is(moment, TimestampType(), what)
        self._is(seconds, syntax.IntegerType(), what)
        self._is(made, TimestampType(), what)

    def _check_orders(self) -> None:
        for cell, line, what in self._ordered:
            known = self.known(cell)
            if isinstance(known, syntax.SetType | LetterSet | syntax.ObjectType) or known == Other("bool"):
                self._line = line
                self._clash("types", f"`{what}` compares by order what is {words(known)}")


def _shown(known: Known | None, closed: bool) -> ArgumentType | None:
    """A type as others see it; `closed` if all the letters of a set are known."""
    match known:
        case LetterSet(letters):
            return syntax.SetType("".join(sorted(letters))) if closed and letters else None
        case Textual() | Other():
            return None
        case _:
            return known


def _time_of_other(op: str, kinds: list[Known | None]) -> tuple[int, TimestampType | ClockType] | None:
    """Which side of a sum or difference is not known yet, and a time by the other side and by what is made of both."""
    match op, kinds:
        case "+", [None, syntax.IntegerType(), ClockType() as made]:
            return 0, made
        case "+", [syntax.IntegerType(), None, ClockType() as made]:
            return 1, made
        case "-", [None, syntax.IntegerType(), ClockType() as made]:
            return 0, made
        case "-", [None, ClockType() as taken, _]:
            return 0, taken
        case "-", [(TimestampType() | ClockType()) as from_it, None, syntax.IntegerType() | Other("number")]:
            return 1, from_it
        case _:
            return None


def _reading(known: Known | None) -> Reading | None:
    """How text is read that is of a type, if that is a time."""
    return "timestamp" if isinstance(known, TimestampType) else known.part if isinstance(known, ClockType) else None


def time_type(reading: Reading) -> TimestampType | ClockType:
    """The type of what is read so."""
    return TimestampType() if reading == "timestamp" else ClockType(reading)


_KNOWN_KINDS: Final[Mapping[Kind, Known]] = {
    Kind.BOOL: Other("bool"), Kind.INT: syntax.IntegerType(), Kind.FLOAT: Other("number"),
    Kind.TIMESTAMP: TimestampType(), Kind.BYTES: Other("bytes"),
}  # fmt: skip


def known_of(value: Argument) -> Known | None:
    """What a constant says of its type."""
    if isinstance(value, frozenset):
        return LetterSet(value)
    kind = kind_of(value)
    return Textual(frozenset((value,))) if isinstance(value, str) else None if kind is None else _KNOWN_KINDS[kind]


def said(node: RoleRef | tree.Node) -> str:
    """A part of a statement as text, short enough for a message."""
    try:
        if isinstance(node, RoleRef):
            return brief(render_role(node))
        operand = isinstance(node, get_args(Operand))
        return brief(render_expression(cast(Operand, node)) if operand else render_constraint(cast(Condition, node)))
    except BadDefinition:
        return "..."
