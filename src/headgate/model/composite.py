"""Syntax of composite events and of aggregation over them (OASIS 6.5 and 6.10), over the one expression tree.

Guarantees: frozen, closed unions with no behaviour but walks over them. Tests, assigned values and the statements of a
block are expressions of the one tree (`expressions`): `@` is `Meta("")`, a variable is `Variable`, and the field of a
record, `p.x`, is `Apply(".x", (p,))`. A node knows its place in the text it was read from; places do not count when
nodes are compared.
Leaves out: text (`lang.composite`), meaning (`decide.composite`, `decide.blocks`), checks (`decide.composite_check`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from headgate.model.errors import BadExpression
from headgate.model.expressions import Condition, Constant, Meta, Operand, Variable
from headgate.model.limits import MAX_COMPOSITE_PARTS, MAX_EXPRESSION_DEPTH

AT: Final = Meta("")
"""`@`: the time of the matched event; in the `end` of a block, the time of what ended it."""

AggregateFunction: TypeAlias = Literal["count", "sum", "min", "max", "average", "first", "last", "once"]
OF_VALUES: Final = frozenset({"sum", "min", "max", "average"})
"""The ready-made functions that are of a variable's values."""

Parameter: TypeAlias = Constant | Variable | None
"""What stands in a template for an attribute; None is `*`."""


@dataclass(frozen=True, slots=True)
class SideTest:
    """A test in braces: `{z > 500}`. It is part of matching."""

    condition: Condition
    place: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SideAssignment:
    """An assignment in braces: `{t <- @ + 60}`."""

    name: str
    value: Operand
    place: str | None = field(default=None, compare=False)


SideExpression: TypeAlias = SideTest | SideAssignment


@dataclass(frozen=True, slots=True)
class Template:
    """`Seen(b, 'T14') {b != 'rjh21'}`: the first event that matches, parameters standing for attributes in order."""

    type: str
    parameters: tuple[Parameter, ...] = ()
    side: tuple[SideExpression, ...] = ()
    place: str | None = field(default=None, compare=False)
    attributes: tuple[str, ...] = ()
    """The attributes that the parameters stand for, once names and positions have been resolved."""


@dataclass(frozen=True, slots=True)
class Timer:
    """`AbsTime(t)`: a moment; numbers are seconds since 1970-01-01T00:00:00Z."""

    when: Operand
    side: tuple[SideExpression, ...] = ()
    place: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NullEvent:
    """`null`: occurs at its own start."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """`left ; right`, the order being certain to a probability if one is stated (OASIS 6.8.4)."""

    left: Composite
    right: Composite
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Without:
    """`left - right`: left without right having occurred first.

    Right is taken for absent at most `delay` seconds after left was received, if that is stated (OASIS 6.8.3).
    """

    left: Composite
    right: Composite
    delay: float | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Either:
    """`left | right`."""

    left: Composite
    right: Composite


@dataclass(frozen=True, slots=True)
class Whenever:
    """`$of`: a new evaluation is started each time the previous one completes."""

    of: Composite


# -- aggregation ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign:
    """`n = n + 1`, `hd.t = t`, `hd.@ = @`; the target is a variable or a field."""

    target: Operand
    value: Operand


@dataclass(frozen=True, slots=True)
class Choose:
    """`if (c) ... elseif (d) ... else ...`; `else` is a branch without a condition."""

    branches: tuple[tuple[Condition | None, tuple[Statement, ...]], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`loop (p = hd) ...`: once for each record there was from `first` on when it began."""

    name: str
    first: Operand
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Accept:
    """`accept p`: signal a record and remove it."""

    record: Operand


@dataclass(frozen=True, slots=True)
class Kill:
    """`kill p`: remove a record; `kill` ends the block."""

    record: Operand | None = None


Statement: TypeAlias = Assign | Choose | Loop | Accept | Kill


@dataclass(frozen=True, slots=True)
class BlockQueue:
    """One `expr` of a block, and what is done at insertions, when the fixed part has grown, and at the end."""

    of: Composite
    event: tuple[Statement, ...] = ()
    var: tuple[Statement, ...] = ()
    end: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """`{ int n = 0; expr: C event: ... var: ... end: ... }`; with `by`, one for each choice of values of variables."""

    local: tuple[tuple[str, Constant], ...]
    queues: tuple[BlockQueue, ...]
    by: tuple[str, ...] = ()
    place: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A ready-made block: `count ($Deposit(x, a) - Close(x))`, `sum a (...) by x`, `max d (...)`."""

    function: AggregateFunction
    of: Composite
    value: str | None = None
    by: tuple[str, ...] = ()
    place: str | None = field(default=None, compare=False)


Composite: TypeAlias = Template | Timer | NullEvent | Sequence | Without | Either | Whenever | Block | Aggregate


def inside(c: Composite) -> tuple[Composite, ...]:
    """The composite events that one is made of, left to right."""
    match c:
        case Sequence(left, right) | Without(left, right) | Either(left, right):
            return (left, right)
        case Whenever(of) | Aggregate(_, of):
            return (of,)
        case Block(_, queues):
            return tuple(queue.of for queue in queues)
        case _:
            return ()


def templates(c: Composite) -> Iterator[Template]:
    """The templates of a composite event, left to right."""
    if isinstance(c, Template):
        yield c
    for part in inside(c):
        yield from templates(part)


def tests(c: Composite) -> Iterator[Condition]:
    """The tests in braces of a composite event, left to right."""
    if isinstance(c, Template | Timer):
        yield from (one.condition for one in c.side if isinstance(one, SideTest))
    for part in inside(c):
        yield from tests(part)


_SPLIT: Final = "put parentheses around the halves of a long chain of `|` or `;`, or make several detections"


def check_size(c: Composite) -> None:
    """Refuse what nests too deeply or has too many parts; without recursion."""
    left, parts = [(c, 1)], 0
    while left:
        part, depth = left.pop()
        parts += 1
        if depth > MAX_EXPRESSION_DEPTH:
            raise BadExpression(
                f"the expression nests deeper than MAX_EXPRESSION_DEPTH ({MAX_EXPRESSION_DEPTH})", remedy=_SPLIT
            )
        if parts > MAX_COMPOSITE_PARTS:
            raise BadExpression(
                f"the expression has more than MAX_COMPOSITE_PARTS ({MAX_COMPOSITE_PARTS}) parts", remedy=_SPLIT
            )
        left += [(inner, depth + 1) for inner in inside(part)]
        for queue in part.queues if isinstance(part, Block) else ():
            _check_nesting((*queue.event, *queue.var, *queue.end))


def _check_nesting(statements: tuple[Statement, ...]) -> None:
    """Refuse statements that nest too deeply; without recursion."""
    left = [(one, 1) for one in statements]
    while left:
        statement, depth = left.pop()
        if depth > MAX_EXPRESSION_DEPTH:
            raise BadExpression(f"the statements nest deeper than MAX_EXPRESSION_DEPTH ({MAX_EXPRESSION_DEPTH})")
        bodies = [statement.body] if isinstance(statement, Loop) else []
        if isinstance(statement, Choose):
            bodies = [body for _, body in statement.branches]
        left += [(one, depth + 1) for body in bodies for one in body]
