"""Facts as JSON: decisions, restrictions and explanations as programs read them.

Guarantees: conditions and operands as the expression language has them, values as the scenario format writes them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import get_args

import msgspec

from headgate.analysis.explain import TruthPart
from headgate.lang.render import render_condition, render_entry, render_operand, render_role
from headgate.model.expressions import AllOf, AnyOf, Atom, Not, Operand, RoleRef
from headgate.model.rolefiles import EventEntry
from headgate.model.values import plain

_CONDITIONS = (*get_args(Atom), Not, AllOf, AnyOf)
_OPERANDS = get_args(Operand)


def as_json(fact: object) -> object:
    """Any fact as JSON can carry it, with conditions and operands as the expression language has them."""
    if isinstance(fact, _CONDITIONS):
        return render_condition(fact)
    if isinstance(fact, _OPERANDS):
        return render_operand(fact)
    if isinstance(fact, EventEntry):
        return render_entry(fact)
    if isinstance(fact, RoleRef):
        return render_role(fact)
    if isinstance(fact, Enum):
        return fact.value
    if isinstance(fact, TruthPart):
        saw = {render_operand(operand): plain(value) for operand, value in fact.values}
        return {"condition": render_condition(fact.condition), "truth": fact.truth, "saw": saw}
    if dataclasses.is_dataclass(fact) and not isinstance(fact, type):
        return {f.name.strip("_"): as_json(getattr(fact, f.name)) for f in dataclasses.fields(fact)}
    if isinstance(fact, msgspec.Struct):
        return {name: as_json(value) for name, value in msgspec.structs.asdict(fact).items()}
    if isinstance(fact, Mapping):
        return {str(name): as_json(value) for name, value in fact.items()}
    if isinstance(fact, (list, tuple)):
        return [as_json(one) for one in fact]
    if isinstance(fact, (set, frozenset)):
        return sorted((as_json(one) for one in fact), key=str)
    if fact is None or isinstance(fact, (bool, int, float, str, datetime, bytes)):
        return plain(fact)
    raise TypeError(f"`{type(fact).__name__}` is no fact")
