"""Syntax of the one expression language: filters, conditions and access rules (design section 4).

Guarantees: frozen, closed unions with no behaviour; illegal shapes are refused at construction.
Leaves out: text (`lang`), truth and type checking (`decide`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from headgate.model.values import Kind, Value, kind_of

CompareOp: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
TextOp: TypeAlias = Literal["starts with", "contains", "has token"]
Clock: TypeAlias = Literal["timeofday", "weekday"]

NEGATED: Final[dict[CompareOp, CompareOp]] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED: Final[dict[CompareOp, CompareOp]] = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of the event: `price`."""

    name: str


@dataclass(frozen=True, slots=True)
class Meta:
    """What the gateway stamped: `@time`, `@publisher` and `@rate` on the event, `@origin` on whatever its holder sent.

    `@origin` is where the holder of the right was when it published, or when it subscribed.
    """

    name: Literal["time", "publisher", "rate", "origin"]


@dataclass(frozen=True, slots=True)
class Subject:
    """An attribute of the principal: `$clearance`. It has no declared kind."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal. Null has no literal; it arises only where a subject attribute is absent.

    `1`, `1.0` and `true` are three constants, as are `0.0` and `-0.0`: Python takes them for equal, and a relation or
    predicate does not.
    """

    value: Value

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
    of: Attribute | Meta
    zone: str = "UTC"


Operand: TypeAlias = Attribute | Meta | Subject | Constant | ClockPart


@dataclass(frozen=True, slots=True)
class Compare:
    """`left op right`."""

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
    """`Relation(x, y)`: the tuple is in the finite relation."""

    relation: str
    args: tuple[Operand, ...]

    def __post_init__(self) -> None:
        if not self.args:
            raise ValueError("a relation has at least one argument")


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


Atom: TypeAlias = Compare | InRange | InSet | TextMatch | IsNull | InGroup | Related | Predicate
Condition: TypeAlias = Atom | Not | AllOf | AnyOf

TRUE: Final = AllOf()
FALSE: Final = AnyOf()


def all_of(*args: Condition) -> Condition:
    """Conjunction of any number of conditions, flattened."""
    flat: list[Condition] = []
    for arg in args:
        flat.extend(arg.args if isinstance(arg, AllOf) else (arg,))
    return flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def any_of(*args: Condition) -> Condition:
    """Disjunction of any number of conditions, flattened."""
    flat: list[Condition] = []
    for arg in args:
        flat.extend(arg.args if isinstance(arg, AnyOf) else (arg,))
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


def atoms(condition: Condition) -> Iterator[Atom]:
    """Every atom, left to right."""
    match condition:
        case Not(arg):
            yield from atoms(arg)
        case AllOf(args) | AnyOf(args):
            for arg in args:
                yield from atoms(arg)
        case atom:
            yield atom


def operands(atom: Atom) -> tuple[Operand, ...]:
    """The operands of an atom, in order."""
    match atom:
        case Compare(_, left, right) | TextMatch(_, left, right):
            return (left, right)
        case InRange(operand, low, high):
            return (operand, low, high)
        case InSet(operand, _) | IsNull(operand) | InGroup(operand, _):
            return (operand,)
        case Related(_, args) | Predicate(_, args):
            return args


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
        case ClockPart():
            return Kind.INT
        case Constant(value):
            return kind_of(value)
        case Subject():
            return None
