"""What is checked before a detection is accepted: names, positions and kinds of its composite event (OASIS 6.5, 6.10).

Guarantees: `resolve` ends in an expression whose types are named in full and whose parameters stand for attributes,
once and for all, or in `bad-expression` with the place. In what it gives, a variable has one kind throughout (int and
float are one), tests and assignments speak only of what is surely bound, and groups and relations are open ones.
Numbers and text beside a time are times. What can never signal, or may grow without bound, is warned of
(`composite_warnings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NoReturn, assert_never

from headgate.decide.composite import moment_of
from headgate.decide.composite_warnings import warnings
from headgate.lang.render import render_free
from headgate.model import composite as model
from headgate.model import expressions as tree
from headgate.model.composite import Composite, Statement
from headgate.model.errors import BadExpression, TypeMismatch
from headgate.model.expressions import Atom, Condition, Constant, Operand, Variable
from headgate.model.state import State
from headgate.model.types import EventType
from headgate.model.values import EPOCH, NUMERIC, Kind, Value, brief, comparable, conform, kind_of

_POINTERS: Final = frozenset({"hd", "var", "new"})


@dataclass(frozen=True, slots=True)
class Resolved:
    """A composite event that may be started, the kinds of its variables, and what should be said of it."""

    composite: Composite
    kinds: Mapping[str, Kind]
    warnings: tuple[str, ...]
    sure: frozenset[str] = frozenset()
    """The variables that are surely bound when it signals."""
    never: bool = False
    """It can never signal, from the start that was given or a later one."""


def resolve(c: Composite, state: State, bound: Mapping[str, Value] | None = None, start: datetime = EPOCH) -> Resolved:
    """The composite event with every name resolved, or a refusal with its place.

    What is said of it holds if it is started at `start` or later.
    """
    check = _Check(state)
    for name, value in (bound or {}).items():
        kind = kind_of(value)
        if kind is None:
            raise BadExpression(f"`{brief(name)}` is bound to null", remedy="leave it out, or give it a value")
        check.unify(name, kind, None)
    made, sure = check.resolve(c, frozenset(bound or ()))
    never, said = warnings(made, state.types, check.kinds, bound, start)
    return Resolved(made, check.kinds, said, frozenset(sure), never)


def conform_bound(c: Composite, state: State, bound: Mapping[str, Value]) -> Mapping[str, Value]:
    """What is bound, with text made the times and bytes that templates and timers take it for."""
    kinds: dict[str, Kind] = {}
    check = _Check(state)
    left = [c]
    for part in left:
        left += model.inside(part)
        if isinstance(part, model.Timer) and isinstance(part.when, Variable):
            kinds[part.when.name] = Kind.TIMESTAMP
    for template in model.templates(c):
        try:
            declared = state.types.attributes(check.type_of(template).name)
        except BadExpression:
            continue  # which is refused with its place once it is resolved
        for kind, parameter in zip(declared.values(), template.parameters, strict=False):
            if isinstance(parameter, Variable):
                kinds.setdefault(parameter.name, kind)
    made: dict[str, Value] = {}
    for name, value in bound.items():
        taken_for = kinds.get(name, Kind.STRING)
        is_said = isinstance(value, str) and taken_for in (Kind.TIMESTAMP, Kind.BYTES)
        try:
            made[name] = conform(taken_for, value) if is_said else value
        except TypeMismatch as error:
            raise BadExpression(f"`{brief(name)}` is bound: {error.message}", remedy=error.remedy) from None
    return made


@dataclass(slots=True)
class _Check:
    """One walk over an expression, in the order of evaluation."""

    state: State
    kinds: dict[str, Kind] = field(default_factory=dict)

    def resolve(self, c: Composite, sure: Set[str]) -> tuple[Composite, Set[str]]:
        """The resolved expression, and what it surely binds when this much was surely bound before."""
        match c:
            case model.Template():
                return self._template(c, sure)
            case model.Timer(when, side, place):
                if isinstance(when, Variable) and when.name not in sure:
                    _refuse(f"`{when.name}` is not surely bound where `AbsTime` needs it", place, "bind it before")
                if isinstance(when, Variable) and self.kinds[when.name] not in (NUMERIC | {Kind.TIMESTAMP}):
                    _refuse(f"`{when.name}` is no time", place)
                if isinstance(when, Constant) and isinstance(when.value, str):
                    try:
                        when = Constant(conform(Kind.TIMESTAMP, when.value))
                    except TypeMismatch as error:
                        _refuse(f"`AbsTime` takes a time: {error.message}", place, error.remedy)
                if isinstance(when, Constant) and moment_of(when.value) is None:
                    _refuse("`AbsTime` takes a time", place, "write seconds, as in `AbsTime(7)`, or quoted ISO 8601")
                items, after = self._side(side, sure)
                return replace(c, when=when, side=items), after
            case model.NullEvent():
                return c, sure
            case model.Sequence(left, right):
                first, after = self.resolve(left, sure)
                second, last = self.resolve(right, after)
                return replace(c, left=first, right=second), last
            case model.Either(left, right):
                first, one = self.resolve(left, sure)
                second, other = self.resolve(right, sure)
                return replace(c, left=first, right=second), one & other
            case model.Without(left, right):
                first, after = self.resolve(left, sure)
                second, _ = self.resolve(right, sure)
                return replace(c, left=first, right=second), after
            case model.Whenever(of):
                inner, after = self.resolve(of, sure)
                if self._alone(inner)[1]:
                    place = next((one.place for one in model.templates(inner)), None)
                    remedy = "leave `Probability` out, or let it wait for an event"
                    _refuse("`$` over what signals by itself, each time a little later, never ends", place, remedy)
                return model.Whenever(inner), after
            case model.Block():
                return self._block(c, sure)
            case model.Aggregate():
                return self._aggregate(c, sure)
            case _:
                assert_never(c)

    def _alone(self, c: Composite) -> tuple[bool, bool]:
        """May it signal with no event after its start, and, by a shift of times for a probability, later than that?"""
        match c:
            case model.NullEvent():
                return True, False
            case model.Template(type):  # rows that are there count at the start
                return any(self.state.types[name].key for name in self.state.types.lineage(type)), False
            case model.Timer():
                return False, False
            case model.Sequence(left, right, probability):
                first, second = self._alone(left), self._alone(right)
                alone = first[0] and second[0]
                return alone, alone and (probability is not None or first[1] or second[1])
            case model.Without(left) | model.Whenever(left):
                return self._alone(left)
            case _:
                parts = [self._alone(part) for part in model.inside(c)]
                return any(alone for alone, _ in parts), any(later for _, later in parts)

    def unify(self, name: str, kind: Kind, place: str | None) -> None:
        """A variable has one kind throughout; int and float are one."""
        if name == "at":
            _refuse("a variable may not be called `at`", place, "signals have their time there")
        there = self.kinds.setdefault(name, kind)
        if not comparable(there, kind):
            _refuse(f"`{brief(name)}` is of kind {there.value} and of kind {kind.value}", place, "use two names")

    # -- templates --------------------------------------------------------------------------------------------

    def _template(self, c: model.Template, sure: Set[str]) -> tuple[Composite, Set[str]]:
        type = self.type_of(c)
        attributes = self.state.types.attributes(type.name)
        if len(attributes) != len(c.parameters):
            names = ", ".join(attributes)
            remedy = f"its attributes are ({names}); write `*` for one that does not matter"
            _refuse(f"`{type.name}` takes {len(attributes)} parameters, not {len(c.parameters)}", c.place, remedy)
        parameters: list[model.Parameter] = []
        own: set[str] = set()
        for (attribute, kind), parameter in zip(attributes.items(), c.parameters, strict=True):
            match parameter:
                case Constant(value):
                    taken_for = Kind.FLOAT if kind is Kind.INT and isinstance(value, float) else kind
                    try:
                        parameters.append(Constant(conform(taken_for, value)))
                    except TypeMismatch as error:
                        _refuse(f"`{attribute}` of `{type.name}`: {error.message}", c.place, error.remedy)
                case Variable(name):
                    self.unify(name, kind, c.place)
                    own.add(name)
                    parameters.append(parameter)
                case _:
                    parameters.append(None)
        side, after = self._side(c.side, sure | own)
        named = replace(c, type=type.name, parameters=tuple(parameters), side=side, attributes=tuple(attributes))
        return named, after

    def type_of(self, c: model.Template) -> EventType:
        """The type that a template names, in full or by its last part."""
        types = self.state.types
        if c.type in types:
            return types[c.type]
        meant = [name for name in types if name.rpartition(".")[2] == c.type]
        if not meant:
            _refuse(f"no event type `{brief(c.type)}`", c.place, "name a type that is declared")
        if meant[1:]:
            _refuse(
                f"`{brief(c.type)}` may be {' or '.join(f'`{name}`' for name in meant)}", c.place, "name it in full"
            )
        return types[meant[0]]

    # -- side expressions ---------------------------------------------------------------------------------------

    def _side(
        self, side: Iterable[model.SideExpression], sure: Set[str]
    ) -> tuple[tuple[model.SideExpression, ...], Set[str]]:
        made: list[model.SideExpression] = []
        for one in side:
            if isinstance(one, model.SideTest):
                made.append(replace(one, condition=self._test(one.condition, sure, one.place)))
                continue
            if one.name in sure:
                _refuse(f"`{brief(one.name)}` is assigned to, and surely bound already", one.place, "use another name")
            kind = self._kind(one.value, sure, one.place)
            self.unify(one.name, kind, one.place)
            sure = sure | {one.name}
            made.append(one)
        return tuple(made), sure

    def _test(self, condition: Condition, sure: Set[str], place: str | None) -> Condition:
        return tree.rewrite(condition, lambda atom: self._atom(atom, sure, place))

    def _atom(self, atom: Atom, sure: Set[str], place: str | None) -> Condition:
        kinds = {operand: self._kind(operand, sure, place) for operand in tree.operands(atom)}
        if Kind.TIMESTAMP in kinds.values():
            atom = self._timed(atom, place)
            kinds = {operand: self._kind(operand, sure, place) for operand in tree.operands(atom)}
        for one in tree.comparisons(atom):
            left, right = (self._kind(operand, sure, place) for operand in (one.left, one.right))
            if not comparable(left, right):
                _refuse(f"a value of kind {left.value} is compared with one of kind {right.value}", place)
            if tree.admits(atom) == "order" and left not in NUMERIC | {Kind.TIMESTAMP, Kind.STRING}:
                _refuse(f"values of kind {left.value} have no order", place)
        if tree.admits(atom) == "sets":
            _refuse("sets of letters are of rolefiles", place)
        if tree.admits(atom) == "text" and any(kind is not Kind.STRING for kind in kinds.values()):
            _refuse("this test is of text", place)
        match atom:
            case tree.InGroup(_, group):
                self._open("group", group, self.state.groups, place)
            case tree.Related(relation, args):
                self._open("relation", relation, self.state.relations, place)
                arity = next((len(row) for row in self.state.relations[relation]), len(args))
                if arity != len(args):
                    _refuse(f"`{relation}` takes {arity} arguments, not {len(args)}", place)
        return atom

    def _open(self, what: str, name: str, there: Iterable[str], place: str | None) -> None:
        if name not in there or name not in self.state.open_names:
            _refuse(f"no open {what} `{brief(name)}`", place, "ask the administrator to open it")

    def _timed(self, atom: Atom, place: str | None) -> Atom:
        """Beside a time, numbers are seconds and text is ISO 8601."""

        def as_time(operand: Operand) -> Operand:
            if not isinstance(operand, Constant) or isinstance(operand.value, datetime):
                return operand
            try:
                return Constant(conform(Kind.TIMESTAMP, operand.value))
            except TypeMismatch as error:
                _refuse(error.message, place, error.remedy)

        if isinstance(atom, tree.InSet):
            times = tuple(tree.plain(as_time(Constant(value)).value) for value in atom.values)  # type: ignore[union-attr]
            return replace(atom, values=times)
        return tree.with_operands(atom, as_time)

    def _kind(self, operand: Operand, sure: Set[str], place: str | None) -> Kind:
        match operand:
            case Constant(value):
                kind = kind_of(tree.plain(value))
                return kind if kind is not None else _refuse("null is no value here", place)
            case Variable(name):
                if name not in sure:
                    remedy = "a template before it, or each side of `|`, must bind it"
                    _refuse(f"`{brief(name)}` is not surely bound here", place, remedy)
                return self.kinds[name]
            case tree.Meta():
                return Kind.TIMESTAMP
            case tree.ClockPart(_, of):
                if self._kind(of, sure, place) is not Kind.TIMESTAMP:
                    _refuse("a part of the clock is of a time", place)
                return Kind.INT
            case tree.Combine(op, left, right):
                return self._sum(op, self._kind(left, sure, place), self._kind(right, sure, place), place)
            case _:
                return _refuse("this is no value of a pattern", place)

    def _sum(self, op: str, left: Kind, right: Kind, place: str | None) -> Kind:
        if left in NUMERIC and right in NUMERIC:
            return Kind.INT if left is right is Kind.INT else Kind.FLOAT
        if op == "-" and left is right is Kind.TIMESTAMP:
            return Kind.INT
        if left is Kind.TIMESTAMP and right in NUMERIC:
            return Kind.TIMESTAMP
        if op == "+" and right is Kind.TIMESTAMP and left in NUMERIC:
            return Kind.TIMESTAMP
        return _refuse(f"`{op}` joins numbers and times, not {left.value} and {right.value}", place)

    # -- blocks -----------------------------------------------------------------------------------------------

    def _aggregate(self, c: model.Aggregate, sure: Set[str]) -> tuple[Composite, Set[str]]:
        inner, after = self.resolve(c.of, sure)
        for name in (*c.by, *(() if c.value is None else (c.value,))):
            if name not in after:
                _refuse(f"`{brief(name)}` is not surely bound by what `{c.function}` is over", c.place)
        if c.function in ("sum", "average") and self.kinds[c.value or ""] not in NUMERIC:
            _refuse(f"`{c.value}` is no number", c.place)
        if c.function in ("count", "sum", "average"):
            if c.function in after:
                _refuse(f"`{c.function}` is bound already, and would be the result", c.place, "use another name")
            self.unify(c.function, Kind.FLOAT if c.function == "average" else Kind.INT, c.place)
            after = after | {c.function}
        return replace(c, of=inner), after

    def _block(self, c: model.Block, sure: Set[str]) -> tuple[Composite, Set[str]]:
        queues = []
        bound: Set[str] | None = None
        for queue in c.queues:
            inner, after = self.resolve(queue.of, sure)
            queues.append(replace(queue, of=inner))
            bound = after if bound is None else bound & after
        local: dict[str, Kind | None] = {name: kind_of(tree.plain(start.value)) for name, start in c.local}
        for name in local:
            if name.rstrip("0123456789") in _POINTERS:
                _refuse(f"`{name}` means a record of a queue, and cannot be declared", c.place)
        written: set[str] = set()
        for queue in queues:
            for statements in (queue.event, queue.var, queue.end):
                _Statements(self, c, local, sure, written).check(statements)
        return replace(c, queues=tuple(queues)), (bound or frozenset()) | written


@dataclass(slots=True)
class _Statements:
    """The statements of a block: every name means something, and fields have one kind."""

    kinds: _Check
    block: model.Block
    local: dict[str, Kind | None]
    sure: Set[str]
    written: set[str]

    def check(self, statements: Iterable[Statement]) -> None:
        for one in statements:
            match one:
                case model.Assign(Variable(name), value):
                    if name not in self.local:
                        _refuse(
                            f"`{brief(name)}` is not declared in this block",
                            self.block.place,
                            f"write `int {name} = 0;`",
                        )
                    self._assigned(name, value)
                case model.Assign(tree.Apply(field, (record,)), value):
                    self._record(record)
                    kind = self._kind(value)
                    if field == ".tl" or value == Constant(None) or self._is_record(value):
                        _refuse(f"a field is a value, and `{render_free(value)}` is none", self.block.place)
                    if field == ".@" and kind is not None and kind not in NUMERIC | {Kind.TIMESTAMP}:
                        _refuse(f"`{render_free(value)}` is no time", self.block.place)
                    if field != ".@":
                        self.written.add(field[1:])
                        if kind is not None:
                            self.kinds.unify(field[1:], kind, self.block.place)
                case model.Choose(branches):
                    for condition, body in branches:
                        if condition is not None:
                            self._condition(condition)
                        self.check(body)
                case model.Loop(name, first, body):
                    self._record(first)
                    if self.local.setdefault(name, None) is not None or name.rstrip("0123456789") in _POINTERS:
                        _refuse(f"`{brief(name)}` cannot point to the records of a loop", self.block.place)
                    self.check(body)
                case model.Accept(record):
                    self._record(record)
                case model.Kill(record):
                    if record not in (None, Constant(None)):
                        self._record(record)

    def _assigned(self, name: str, value: Operand) -> None:
        """A local keeps its kind: a pointer points to records, and nothing else does."""
        kind, there = self._kind(value), self.local[name]
        points = self._is_record(value) or value == Constant(None)
        if points is not (there is None) or (kind is not None and there is not None and not comparable(kind, there)):
            _refuse(f"`{brief(name)}` cannot become `{render_free(value)}`", self.block.place, "declare another one")

    def _record(self, operand: Operand) -> None:
        """Refuse what is no record of a queue."""
        self._kind(operand)
        if not self._is_record(operand):
            _refuse(f"`{render_free(operand)}` is no record of a queue", self.block.place)

    def _is_record(self, operand: Operand) -> bool:
        match operand:
            case Variable(name):
                return self.local.get(name, Kind.BOOL) is None or (
                    name not in self.local and name.rstrip("0123456789") in _POINTERS
                )
            case tree.Apply(".tl"):
                return True
            case _:
                return False

    def _condition(self, condition: Condition) -> None:
        for atom in tree.atoms(condition):
            if not isinstance(atom, tree.Compare | tree.InRange | tree.InSet | tree.TextMatch):
                _refuse("a block compares; it looks at no groups and relations", self.block.place)
            kinds = [self._kind(operand) for operand in tree.operands(atom)]
            records = [self._is_record(operand) or operand == Constant(None) for operand in tree.operands(atom)]
            known = [kind for kind in kinds if kind is not None]
            mixed = any(records) and not all(records) and Constant(None) not in tree.operands(atom)
            if mixed or any(not comparable(known[0], kind) for kind in known[1:]):
                _refuse("values of different kinds are compared", self.block.place)
            if tree.admits(atom) == "text" and any(kind is not Kind.STRING for kind in known):
                _refuse("this test is of text", self.block.place)

    def _kind(self, operand: Operand) -> Kind | None:
        """The kind of a value; None of a record, and where it is not known."""
        match operand:
            case Constant(value):
                return kind_of(tree.plain(value))
            case Variable(name):
                if name in self.local:
                    return self.local[name]
                word = name.rstrip("0123456789")
                if word in _POINTERS:
                    digits = name[len(word) :]
                    if digits and int(digits[:6]) >= len(self.block.queues):
                        _refuse(f"there is no queue {brief(digits)}", self.block.place, "queues are counted from 0")
                    return None
                if name not in self.sure:
                    _refuse(
                        f"`{brief(name)}` means nothing in this block",
                        self.block.place,
                        "declare it, or bind it before",
                    )
                return self.kinds.kinds[name]
            case tree.Meta():
                return Kind.TIMESTAMP
            case tree.Apply(field, (record,)) if field.startswith("."):
                self._kind(record)
                return Kind.TIMESTAMP if field == ".@" else None if field == ".tl" else self.kinds.kinds.get(field[1:])
            case tree.Combine(op, left, right):
                first, second = self._kind(left), self._kind(right)
                if first is None or second is None:
                    return None
                return self.kinds._sum(op, first, second, self.block.place)
            case _:
                return _refuse("this is no value of a block", self.block.place)


def _refuse(message: str, place: str | None, remedy: str | None = None) -> NoReturn:
    raise BadExpression(message, place=place, remedy=remedy)
