"""Which parts of a condition made it true, false or unknown, and on which values?

Guarantees: the parts of a true or false condition are enough: while they stay as they are, so does the whole. Those of
an unknown one are all that is unknown in it. They are atoms, negated atoms, or `true` and `false` themselves.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headgate.decide.truth import World, truth, value
from headgate.model import conditions as tree
from headgate.model.conditions import Condition, Constant, Operand, atoms, looked_at, operands
from headgate.model.events import Event
from headgate.model.state import State
from headgate.model.values import Value


@dataclass(frozen=True, slots=True)
class TruthPart:
    """A piece of a condition, its truth, and the value that each operand had."""

    condition: Condition
    truth: bool | None
    values: tuple[tuple[Operand, Value], ...] = ()


def deciding(condition: Condition, event: Event, world: World) -> tuple[TruthPart, ...]:
    """The parts of a condition that decided its truth on an event, left to right.

    Of a conjunction or disjunction these are the parts with the truth of the whole: the false ones made it false, the
    unknown ones left it unknown, and where none differs all of them were needed.
    """
    outcome = truth(condition, event, world)
    match condition:
        case tree.AllOf(args) | tree.AnyOf(args) if args:
            same = (arg for arg in args if truth(arg, event, world) is outcome)
            return tuple(part for arg in same for part in deciding(arg, event, world))
        case tree.Not(tree.Not() | tree.AllOf() | tree.AnyOf() as inner):
            return deciding(inner, event, world)
        case piece:
            seen = {o: value(o, event, world) for a in atoms(piece) for o in _looked_at(operands(a))}
            return (TruthPart(piece, outcome, tuple(seen.items())),)


def attributes_of(condition: Condition) -> frozenset[str]:
    """The attributes of the event that a condition looks at by name."""
    return frozenset(o.name for o in looked_at(condition) if isinstance(o, tree.Attribute))


def can_be_told(part: TruthPart, known: Collection[str], state: State) -> bool:
    """May someone who knows only these attributes be told this part?

    Not if it looks at another attribute, a closed group or relation, or a predicate, which sees the whole event.
    """
    for atom in atoms(part.condition):
        match atom:
            case tree.Predicate():
                return False
            case tree.InGroup(_, name) | tree.Related(name, _) if name not in state.open_names:
                return False
            case _:
                pass
    return attributes_of(part.condition) <= frozenset(known)


def _looked_at(found: tuple[Operand, ...]) -> tuple[Operand, ...]:
    return tuple(o for o in found if not isinstance(o, Constant))
