"""Facts as people and programs read them: conditions as text, truths as words, dataclasses as JSON.

Guarantees: what publishers and clients sent reaches a terminal only as printable characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import typer
from rich.table import Table
from rich.text import Text

from headgate.analysis.explain import RoleHolding
from headgate.analysis.truth_trace import TruthPart
from headgate.cli.shared.common import out
from headgate.gateway.http.rendering import as_json
from headgate.lang.render import render_condition, render_membership, render_operand
from headgate.model.conditions import Condition, Constant
from headgate.model.values import Value, render_timestamp

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


def table(*columns: str) -> Table:
    """A plain table; long cells wrap and nothing is taken for markup."""
    made = Table(header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def cells(*texts: str | Text) -> list[Text]:
    """Cells that are shown as they are."""
    return [text if isinstance(text, Text) else Text(printable(text)) for text in texts]


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


def printable(text: str) -> str:
    """Text in which nothing but line breaks can move a terminal's cursor or change its colours."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def check_text(*given: str | None) -> None:
    """Refuse what was typed if it is not text: no name can match it."""
    for text in given:
        try:
            (text or "").encode()
        except UnicodeEncodeError:
            raise typer.BadParameter(f"`{printable(text or '')}` is not valid UTF-8") from None
