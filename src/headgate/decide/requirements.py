"""Requirements and policy rules: conditions over the attributes of subjects alone (Guard II; rule D11).

Guarantees: a requirement that `check_requirement` lets in depends on nothing but the attributes it is put to, so its
truth can be kept for each distinct set of them. Attributes have no declared kind: what is absent, or is compared with
a value of another kind, is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from headgate.decide.bind import subjects
from headgate.decide.check import is_private
from headgate.decide.truth import World, truth
from headgate.model.conditions import (
    Condition,
    Constant,
    InGroup,
    Predicate,
    Related,
    Subject,
    atoms,
    operands,
)
from headgate.model.errors import BadExpression
from headgate.model.events import Event
from headgate.model.state import State
from headgate.model.values import Value

_NOTHING: Final = Event("", "", "", {}, datetime(1970, 1, 1, tzinfo=UTC))
_NOWHERE: Final = State()


def check_requirement(condition: Condition, private: frozenset[str] = frozenset()) -> None:
    """Refuse a requirement or policy rule that looks at anything but `$attributes`, or at `private` ones."""
    remedy = "write it over attributes of the other side, such as `$clearance = 'secret'`"
    for atom in atoms(condition):
        if isinstance(atom, (InGroup, Related, Predicate)):
            raise BadExpression("a requirement names no group, relation or predicate", remedy=remedy)
        if not all(isinstance(one, (Subject, Constant)) for one in operands(atom)):
            raise BadExpression("a requirement looks at nothing of the event", remedy=remedy)
    for name in sorted(subjects(condition) & private):
        raise is_private(name)


def match(rule: Condition | None, attributes: Mapping[str, Value]) -> bool | None:
    """The truth of a requirement for a subject with these attributes; an absent one is true."""
    return True if rule is None else truth(rule, _NOTHING, World(_NOWHERE, attributes))
