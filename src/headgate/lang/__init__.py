"""Text to syntax and back: grammar files, parsers and renderers (design section 4).

Guarantees: `parse(render(t)) == t` for every tree a parser makes; whatever does not parse is refused with
`bad-expression`, its line and column, and what was expected. `read_all` reads texts of several sorts, which can be done
in another process: each leads to what it says or to its refusal, and both can be pickled.
Leaves out: meaning and type checking (`decide`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from headgate.lang.composite import parse_composite, parse_row
from headgate.lang.parse import parse_condition
from headgate.lang.render import render_condition
from headgate.lang.rolefile import parse_role, parse_rolefile
from headgate.model.errors import BadExpression, HeadgateError
from headgate.model.expressions import Condition
from headgate.model.values import brief

__all__ = ["Requirement", "Sort", "Wanted", "parse_condition", "read_all", "render_condition"]

Sort: TypeAlias = Literal["composite", "condition", "requirement", "role", "rolefile", "row"]
Wanted: TypeAlias = tuple[Sort, str]
"""A text, and what it is to be read as."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement of an event, and the text that the log has for it."""

    condition: Condition
    written: str


def requirement(text: str) -> Requirement:
    """A requirement that can be written as text, and reads back as the same."""
    condition = parse_condition(text)
    written = render_condition(condition)
    if repr(parse_condition(written)) != repr(condition):
        raise does_not_read_back(written)
    return Requirement(condition, written)


def does_not_read_back(text: str) -> BadExpression:
    """The refusal of a requirement that the log could not hold."""
    return BadExpression(f"the requirement `{brief(text)}` does not read back as it was given")


_READERS: Final[Mapping[Sort, Callable[[str], object]]] = {
    "composite": parse_composite,
    "condition": parse_condition,
    "requirement": requirement,
    "role": parse_role,
    "rolefile": parse_rolefile,
    "row": parse_row,
}


def read(sort: Sort, text: str) -> object:
    """What a text says."""
    return _READERS[sort](text)


def read_all(wanted: Sequence[Wanted]) -> list[object]:
    """What each of some texts says, or its refusal."""
    results: list[object] = []
    for sort, text in wanted:
        try:
            results.append(read(sort, text))
        except HeadgateError as refusal:
            results.append(refusal)
    return results
