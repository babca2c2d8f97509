"""Syntax of the one expression language: filters, conditions, access rules, and the constraints of rolefiles and of
event policy (design section 4, OASIS 3.2.4 and 7.3).

Guarantees: frozen, closed unions with no behaviour; illegal shapes are refused at construction. Every language is a
part of this tree: a condition has attributes of an event and of a subject, and no variables, functions or arithmetic;
a constraint has variables and no attributes. Which part, its grammar says.
Leaves out: text (`lang`), truth and type checking (`decide`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, assert_never, overload

from headgate.model.values import Kind, Value, kind_of

CompareOp: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "subset", "subseteq", "superset", "superseteq"]
TextOp: TypeAlias = Literal["starts with", "contains", "has token"]
CombineOp: TypeAlias = Literal["+", "-", "union", "intersect", "minus"]
Clock: TypeAlias = Literal["timeofday", "weekday"]

Argument: TypeAlias = Value | frozenset[str]
"""The value of a role's argument: a value as everywhere, or a set of letters such as `{rw}`."""

NEGATED: Final[dict[CompareOp, CompareOp]] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED: Final[dict[CompareOp, CompareOp]] = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of the event: `price`."""

    name: str


@dataclass(frozen=True, slots=True)
class Meta:
    """What a gateway knows: `@time`, `@publisher` and `@rate` of an event; `@time` and `@client` of a request.

    `@origin` is where the holder of the right was when it published or subscribed, or whoever enters a role is.
    `@instance` is the instance of the service at which a role is entered. `@` alone is the time of what a template of a
    composite event matched.
    """

    name: Literal["time", "publisher", "rate", "origin", "instance", "client", ""]


@dataclass(frozen=True, slots=True)
class Subject:
    """An attribute of the principal: `$clearance`. It has no declared kind."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal: `'staff'`, `3`, `true`, `timestamp '...'`, and `{rw}` as an argument. Null has no literal.

    `1`, `1.0` and `true` are three constants, as are `0.0` and `-0.0`: Python takes them for equal, and a relation or
    predicate does not.
    """

    value: Argument

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        a, b = self.value, other.value
        return type(a) is type(b) and a == b and (not isinstance(a, float) or repr(a) == repr(b))

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True, slots=True)
class ClockPart:
    """`timeofday(t, zone)`: whole seconds since local midnight; `weekday(t, zone)`: 1 (Monday) to 7."""

    part: Clock
    of: Operand
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Variable:
    """An identifier: `u`. `_` is a new variable wherever it stands."""

    name: str


Term: TypeAlias = Variable | Constant | Meta


@dataclass(frozen=True, slots=True)
class RoleRef:
    """A role with its arguments: `Member(u)`, `Login.LoggedOn(u, h)`, `Doc['thesis'].Author`.

    Without a service it is of the rolefile's own; without an instance, of the rolefile's own instance where the service
    is its own, and of the instance `''` of any other.
    """

    role: str
    args: tuple[Term, ...] = ()
    service: str | None = None
    instance: Term | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    """`f(x, y)` as a value: a function of the service, or a relation whose last column is the value."""

    function: str
    args: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Count:
    """`count(Member(d, _))`: how many memberships are in force that fit."""

    of: RoleRef


@dataclass(frozen=True, slots=True)
class Combine:
    """`a + b`, `a - b` of integers, or of a timestamp and seconds; `a - b` of timestamps is the seconds between them.

    `a union b`, `a intersect b`, `a minus b` are of sets.
    """

    op: CombineOp
    left: Operand
    right: Operand


Operand: TypeAlias = Attribute | Meta | Subject | Constant | ClockPart | Variable | Apply | Count | Combine


@dataclass(frozen=True, slots=True)
class Compare:
    """`left op right`. In a constraint `x = e` also binds `x` where it has no value yet."""

    op: CompareOp
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class InRange:
    """`operand in low..high`, both ends included."""

    operand: Operand
    low: Operand
    high: Operand


@dataclass(frozen=True, slots=True)
class InSet:
    """`operand in {'a', 'b'}`."""

    operand: Operand
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.values or any(v is None for v in self.values):
            raise ValueError("a set has at least one value and no null")


@dataclass(frozen=True, slots=True)
class TextMatch:
    """`left starts with right`, `left contains right`, `left has token right`."""

    op: TextOp
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand is null`: true or false, never unknown."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class InGroup:
    """`operand in group staff`: the operand names a member, directly or through nested groups."""

    operand: Operand
    group: str


@dataclass(frozen=True, slots=True)
class Related:
    """`Supervisor(u, s)`: the tuple is in the finite relation.

    In a constraint also `finalised()`, a function that answers true or a role of the service: its service says which,
    a role of the rolefile, else a relation, else a function. As a relation or a role it also binds variables that have
    no value yet; a relation with no arguments holds if it has any row.
    """

    name: str
    args: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Predicate:
    """`predicate name(args)`: a registered Python predicate (Hermes 4.2: generic restriction)."""

    name: str
    args: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Not:
    """`not arg`."""

    arg: Condition


@dataclass(frozen=True, slots=True)
class AllOf:
    """`a and b and ...`; of nothing, `true`."""

    args: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        if len(self.args) == 1:
            raise ValueError("a conjunction of one is its argument")


@dataclass(frozen=True, slots=True)
class AnyOf:
    """`a or b or ...`; of nothing, `false`."""

    args: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        if len(self.args) == 1:
            raise ValueError("a disjunction of one is its argument")


@dataclass(frozen=True, slots=True)
class Starred:
    """`(...)*`: must stay true for as long as the membership lasts."""

    arg: Condition


Atom: TypeAlias = Compare | InRange | InSet | TextMatch | IsNull | InGroup | Related | Predicate
Connective: TypeAlias = Not | AllOf | AnyOf | Starred
Condition: TypeAlias = Atom | Connective
Node: TypeAlias = Condition | Operand

Admits: TypeAlias = Literal["alike", "order", "sets", "text", "moment", "sum"]
"""Operands that compare, or that also have an order; sets of letters; text; a moment; what can be added (D2)."""

TRUE: Final = AllOf()
FALSE: Final = AnyOf()


def all_of(*args: Condition) -> Condition:
    """Conjunction of any number of conditions, flattened."""
    return _flat(AllOf, args)


def any_of(*args: Condition) -> Condition:
    """Disjunction of any number of conditions, flattened."""
    return _flat(AnyOf, args)


def _flat(connective: type[AllOf | AnyOf], args: Iterable[Condition]) -> Condition:
    flat = [part for arg in args for part in (arg.args if isinstance(arg, connective) else (arg,))]
    return flat[0] if len(flat) == 1 else connective(tuple(flat))


# -- walks ----------------------------------------------------------------------------------------------------


def parts(of: Node) -> tuple[Condition, ...]:
    """The conditions that a connective is made of; nothing else has any."""
    match of:
        case Not(arg) | Starred(arg):
            return (arg,)
        case AllOf(args) | AnyOf(args):
            return args
        case _:
            return ()


def atoms(condition: Condition) -> Iterator[Atom]:
    """Every atom, left to right."""
    match condition:
        case Not() | Starred() | AllOf() | AnyOf():
            for part in parts(condition):
                yield from atoms(part)
        case atom:
            yield atom


def conjuncts(condition: Condition) -> Iterator[Condition]:
    """What must all be true for a condition to be, without conjunctions and stars around it."""
    match condition:
        case AllOf(args):
            for arg in args:
                yield from conjuncts(arg)
        case Starred(arg):
            yield from conjuncts(arg)
        case other:
            yield other


def has_star(condition: Condition) -> bool:
    """Does a star stand on some part?"""
    return isinstance(condition, Starred) or any(map(has_star, parts(condition)))


_OPERANDS: Final[Mapping[type, tuple[str, ...]]] = {
    Compare: ("left", "right"), TextMatch: ("left", "right"), Combine: ("left", "right"),
    InRange: ("operand", "low", "high"), InSet: ("operand",), IsNull: ("operand",), InGroup: ("operand",),
    ClockPart: ("of",),
}  # fmt: skip
"""Where the operands of atoms and operands stand that have so many; calls have a list, `args`."""


def operands(of: Node) -> tuple[Operand, ...]:
    """The operands of an atom, or of an operand that is made of others, in order; a connective has none."""
    if isinstance(of, Related | Predicate | Apply):
        return of.args
    return tuple(getattr(of, name) for name in _OPERANDS.get(type(of), ()))


def within(operand: Operand) -> Iterator[Operand]:
    """An operand and all that it is made of, itself first."""
    yield operand
    for part in operands(operand):
        yield from within(part)


def looked_at(condition: Condition) -> Iterator[Operand]:
    """Every operand of every atom with all that it is made of, left to right."""
    for atom in atoms(condition):
        for operand in operands(atom):
            yield from within(operand)


def comparisons(atom: Atom) -> tuple[Compare, ...]:
    """What an atom compares: a range is two comparisons, a set as many as it has values."""
    match atom:
        case Compare():
            return (atom,)
        case InRange(operand, low, high):
            return Compare(">=", operand, low), Compare("<=", operand, high)
        case InSet(operand, values):
            return tuple(Compare("=", operand, Constant(value)) for value in values)
        case _:
            return ()


def admits(node: Node) -> Admits | None:
    """What an atom, or an operand that is made of others, asks of its operands; None if they may be anything."""
    match node:
        case Compare(op):
            return "alike" if op in ("=", "!=") else "order" if op in MIRRORED else "sets"
        case InRange():
            return "order"
        case InSet():
            return "alike"
        case TextMatch() | InGroup():
            return "text"
        case ClockPart():
            return "moment"
        case Combine(op):
            return "sum" if op in ("+", "-") else "sets"
        case _:
            return None


def rewrite(condition: Condition, change: Callable[[Atom], Condition]) -> Condition:
    """The condition with other atoms."""
    match condition:
        case Not(arg) | Starred(arg):
            return replace(condition, arg=rewrite(arg, change))
        case AllOf(args) | AnyOf(args):
            return replace(condition, args=tuple(rewrite(arg, change) for arg in args))
        case atom:
            return change(atom)


@overload
def with_operands(of: Atom, change: Callable[[Operand], Operand]) -> Atom: ...
@overload
def with_operands(of: Operand, change: Callable[[Operand], Operand]) -> Operand: ...
def with_operands(of: Atom | Operand, change: Callable[[Operand], Operand]) -> Atom | Operand:
    """An atom, or an operand that is made of others, with each of its operands changed, in order."""
    if isinstance(of, Related | Predicate | Apply):
        return replace(of, args=tuple(map(change, of.args)))
    changed: dict[str, Any] = {name: change(getattr(of, name)) for name in _OPERANDS.get(type(of), ())}
    return replace(of, **changed) if changed else of


def rewrite_operand(operand: Operand, change: Callable[[Operand], Operand]) -> Operand:
    """The operand with all that it is made of changed, what is inside first."""
    return change(with_operands(operand, lambda part: rewrite_operand(part, change)))


def rewrite_operands(condition: Condition, change: Callable[[Operand], Operand]) -> Condition:
    """The condition with every operand of an atom changed, as a whole; `rewrite_operand` changes what is inside."""
    return rewrite(condition, lambda atom: with_operands(atom, change))


def plain(value: Argument) -> Value:
    """The value of a constant where no set of letters can stand."""
    if isinstance(value, frozenset):
        raise TypeError("a set of letters stands in constraints alone")
    return value


def foreign(node: Condition | Operand) -> TypeError:
    """The error of a node that the grammar of a language has not, such as a variable in a condition."""
    return TypeError(f"`{type(node).__name__}` is no part of this language")


def declared_kind(operand: Operand, kinds: Mapping[str, Kind]) -> Kind | None:
    """The kind of an operand over a type with these attributes; None where it has none."""
    match operand:
        case Attribute(name):
            return kinds.get(name)
        case Meta("time"):
            return Kind.TIMESTAMP
        case Meta("rate"):
            return Kind.INT
        case Meta():
            return Kind.STRING
        case ClockPart() | Count():
            return Kind.INT
        case Constant(value):
            return None if isinstance(value, frozenset) else kind_of(value)
        case Subject() | Variable() | Apply() | Combine():
            return None
        case _:
            assert_never(operand)


# -- what a tree names ----------------------------------------------------------------------------------------


def named(constraint: Condition) -> frozenset[str]:
    """The groups, relations, functions and roles that a constraint names."""
    names: set[str] = set()
    for atom in atoms(constraint):
        match atom:
            case InGroup(_, name) | Related(name):
                names.add(name)
    for operand in looked_at(constraint):
        match operand:
            case Apply(name) | Count(RoleRef(name)):
                names.add(name)
    return frozenset(names)


def variables(constraint: Condition) -> frozenset[str]:
    """The variables of a constraint; `_` is none."""
    return variables_among(looked_at(constraint))


def variables_of(expression: Operand) -> frozenset[str]:
    """The variables of an expression; `_` is none. Those that a count leaves open are not its own."""
    return variables_among(within(expression))


def counted_variables(constraint: Condition) -> frozenset[str]:
    """The variables of the roles that a constraint counts; `_` is none."""
    return variables_among(term for ref in counted(constraint) for term in ref.args)


def counted(constraint: Condition) -> Iterator[RoleRef]:
    """The roles whose members a constraint counts."""
    return (operand.of for operand in looked_at(constraint) if isinstance(operand, Count))


def variables_among(terms: Iterable[Operand | None]) -> frozenset[str]:
    """Those of some terms that are variables; `_` is none."""
    return frozenset(term.name for term in terms if isinstance(term, Variable)) - {"_"}


def terms_of(*refs: RoleRef) -> tuple[Term, ...]:
    """The arguments and instances of some roles."""
    return tuple(term for ref in refs for term in (*ref.args, ref.instance) if term is not None)


def subjects(condition: Condition) -> frozenset[str]:
    """The subject attributes a condition names."""
    return frozenset(o.name for o in looked_at(condition) if isinstance(o, Subject))


def names_meta(condition: Condition, name: str) -> bool:
    """Does a condition look at `@name`?"""
    return any(isinstance(o, Meta) and o.name == name for o in looked_at(condition))
