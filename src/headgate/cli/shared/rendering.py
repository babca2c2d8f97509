"""Facts as people and programs read them: conditions as text, truths as words, dataclasses as JSON.

Guarantees: what publishers and clients sent reaches a terminal only as printable characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.analysis.explain import RoleHolding, TruthPart
from headgate.cli.shared.common import err, out, printable
from headgate.gateway.http.rendering import as_json
from headgate.lang.render import render_argument, render_condition, render_membership, render_operand
from headgate.model.errors import BadDefinition
from headgate.model.expressions import Condition, Constant
from headgate.model.values import Value, render_timestamp

MOST: Final = 50
"""Lines shown of one kind."""

_EVENT_POLICY: Final = re.compile("predicate `\0event policy [0-9a-f]+`\\(\\)")
"""How a part that conditions cannot say is rendered; no predicate can have such a name."""


def print_json(fact: object) -> None:
    """A fact as indented JSON on standard output."""
    print(json.dumps(as_json(fact), indent=2, ensure_ascii=False))


def show_value(value: Value) -> str:
    """A value as the expression language writes it, but text without its quotes where that is plain."""
    if isinstance(value, datetime):
        return render_timestamp(value)
    if isinstance(value, str) and value.strip() == value != "" and value.isprintable():
        return value
    return show_constant(value)


def show_truth(truth: bool | None) -> str:
    """`true`, `false` or `unknown`."""
    return "unknown" if truth is None else str(truth).lower()


def show_part(part: TruthPart, hidden: Iterable[str] = ()) -> str:
    """A part of a condition with its truth and the values it saw."""
    masked = set(hidden)
    seen = [
        f"{name} is {'hidden' if name in masked else show_constant(value)}"
        for name, value in ((render_operand(operand), value) for operand, value in part.values)
    ]
    because = f" ({', '.join(seen)})" if seen else ""
    return f"`{render_condition(part.condition)}` is {show_truth(part.truth)}{because}"


def show_constant(value: Value) -> str:
    """A value as an expression would write it, on one line."""
    return printable(render_operand(Constant(value)).replace("\n", "\\n"))


def show_condition(condition: Condition | None) -> str:
    """A condition, or that it is not told."""
    return "(not disclosed)" if condition is None else render_condition(condition)


def show_held(membership: RoleHolding) -> str:
    """A membership, and how it was gained."""
    name = render_membership(membership.service, membership.instance, membership.role, membership.args)
    text = f"holds `{name}` ({membership.id})"
    if not membership.statement:
        return f"{text}, given by the service itself"
    with_ = f" with {', '.join(membership.supports)}" if membership.supports else ""
    return f"{text}, entered by `{membership.statement}`{with_}"


def show_open(condition: Condition) -> str:
    """A condition of which event policy may be a part that no condition can say."""
    return _EVENT_POLICY.sub("(event policy holds)", render_condition(condition))


def names(found: Iterable[str]) -> str:
    """Names in backticks."""
    return ", ".join(f"`{name}`" for name in found)


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, console: Console = out, whole: int | None = None
) -> None:
    """Rows under their columns, which need no names; long cells wrap, but not those of the column `whole`.

    Cells are shown as they are: nothing is taken for markup.
    """
    made = Table(header_style="bold", box=None, pad_edge=False, show_header=any(columns))
    for at, column in enumerate(columns):
        made.add_column(column, overflow="fold", no_wrap=at == whole)
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row))
    console.print(made)


def show_facts(facts: Iterable[tuple[str, str | None]]) -> None:
    """Facts by name, one a line; those that are empty are left out."""
    show_table(("", ""), ((name, fact) for name, fact in facts if fact))


def say_section(
    title: str, lines: Iterable[str], style: str = "bold", *, apart: bool = False, more: str = "; `--json` has them all"
) -> None:
    """Lines farther in under a title, if there are any, and how many there are past the most that are shown."""
    every = list(lines)
    if every and apart:
        say()
    if every:
        say((title, style))
    for line in every[:MOST]:
        say(f"  {line}")
    if len(every) > MOST:
        say(f"  and {len(every) - MOST:,} more{more}")


def say(*pieces: str | tuple[str, str] | Text) -> None:
    """One line on standard output; a piece may have a style."""
    out.print(Text.assemble(*map(_piece, pieces)), highlight=False, soft_wrap=True)


def _piece(piece: str | tuple[str, str] | Text) -> str | tuple[str, str] | Text:
    match piece:
        case (str(text), str(style)):
            return printable(text), style
        case str(text):
            return printable(text)
        case _:
            return piece


def remark(line: str) -> None:
    """A word on standard error, for whoever watches."""
    err.print(Text(printable(line)), soft_wrap=True, highlight=False)


def say_not_run(predicates: Sequence[str]) -> None:
    """Which predicates were known by name alone."""
    if predicates:
        remark(f"not run, and so unknown: {names(predicates)} (`--run-python` runs the modules beside the files)")


def joined(parts: Iterable[str]) -> str:
    """`a`, `a and b`, or `a, b and c`."""
    *most, last = list(parts) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def count_of(number: int, what: str) -> str:
    """`1 event`, `2,000 events`, `3 entries`, `2 gateways`."""
    plural = f"{what[:-1]}ies" if what.endswith("y") and what[-2:-1] not in "aeiou" else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def role_words(service: str, instance: str, role: str, args: Sequence[Any]) -> str:
    """`Conf.Member('dm', _)`; a service without a rolefile may have any name."""
    try:
        if None not in args:
            return render_membership(service, instance, role, args)
        return f"{render_membership(service, instance, role, ())}({', '.join(map(_open, args))})"
    except BadDefinition:
        return f"{service}.{role}({', '.join(map(_open, args))})" if args else f"{service}.{role}"


def _open(one: Any) -> str:
    return "_" if one is None else render_argument(one)
