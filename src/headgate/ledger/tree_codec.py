"""Syntax trees as JSON, and back: the composite events of detections.

Guarantees: what is decoded is equal to what was encoded, and renders as the same text; kinds of constants included. A
node is written as `{"Class": [fields in order]}`, without its place in the text it was read from, a tuple as a list, a
value as the ledger has values. The classes are those that an annotation takes in, and no others are ever made. Fields
that a class gained since at its end have their defaults. What is written in a newer format is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, get_args

from headgate.ledger.codec import RowForm, from_json, to_json
from headgate.model import composite as model
from headgate.model import expressions as tree
from headgate.model.errors import BadDefinition
from headgate.model.values import brief

FORMAT: Final = 1

_UNIONS: Final = (model.Composite, model.SideExpression, model.Statement, tree.Operand, tree.Condition)
_CLASSES: Final[Mapping[str, type]] = {
    one.__name__: one for union in _UNIONS for one in (*get_args(union), model.BlockQueue)
}


_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    name: tuple(one.name for one in fields(made) if one.compare) for name, made in _CLASSES.items()
}
"""The fields of each that are written."""


def dump_tree(node: object) -> object:
    """A node, or what one is made of, as JSON."""
    if isinstance(node, tuple):
        return [dump_tree(part) for part in node]
    if not is_dataclass(node):
        return to_json(node)
    name = type(node).__name__
    if _CLASSES.get(name) is not type(node):
        raise BadDefinition(f"`{brief(name)}` has no place in a composite event")
    return {name: [dump_tree(getattr(node, field)) for field in _NAMES[name]]}


def load_tree(data: object) -> Any:
    """The inverse of `dump_tree`."""
    if isinstance(data, list):
        return tuple(load_tree(part) for part in data)
    if isinstance(data, dict) and len(data) == 1:
        ((name, values),) = data.items()
        if name in _CLASSES:
            made = _CLASSES[name]
            names = _NAMES[name]
            if not isinstance(values, list) or len(values) > len(names):
                raise ValueError(f"`{name}` has other fields")
            return made(**dict(zip(names, map(load_tree, values), strict=False)))
    return from_json(data)


def _load(data: Any) -> model.Composite:
    if data["format"] > FORMAT:
        raise ValueError(f"it is written in format {data['format']}, and this Headgate reads {FORMAT}")
    made = load_tree(data["tree"])
    if not isinstance(made, get_args(model.Composite)):
        raise TypeError("it is no composite event")
    return made  # type: ignore[no-any-return]


COMPOSITE: Final[RowForm[model.Composite]] = RowForm(lambda made: {"format": FORMAT, "tree": dump_tree(made)}, _load)
"""A composite event in JSON."""
