"""The table of a demonstration: what was sent beside what each reader received, where versions start, what was refused.

Guarantees: an event is shown as waiting until the pipeline has decided it; only what was delivered is shown as
received. What was sent is shown with what it requires of its receivers. The columns keep their widths from the first
event to the last; at 80 characters every event is one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headgate.decide.publish import type_check
from headgate.lang.render import render_condition
from headgate.ledger import StartingPoint
from headgate.model.errors import HeadgateError
from headgate.model.events import Draft, Event
from headgate.model.values import Value, plain
from headgate.pipeline.deliveries import Delivered
from headgate.scenario.format.story import Narration, PublishStep, Scenario

HIDDEN = "▒▒"
NOTHING = "-"
WAITING = "…"
KEY = f"{HIDDEN} hidden from this reader   {NOTHING} not sent to this reader"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that was tried, and the refusal."""

    say: str
    error: HeadgateError


@dataclass
class Board:
    """The state of the table."""

    narration: Narration
    scenario: Scenario
    rows: list[Event | Refusal | tuple[StartingPoint, str]] = field(default_factory=list)
    received: dict[tuple[str, int, str], Mapping[str, Value]] = field(default_factory=dict)
    reached: Mapping[str, int] = field(default_factory=dict)
    _spinner: Spinner = field(default_factory=lambda: Spinner("dots", style="cyan"))

    def decide(self, reached: Mapping[str, int], deliveries: Iterable[tuple[str, Delivered]]) -> None:
        """The pipeline has decided this far, and delivered this."""
        self.received = {(d.stream, d.seq, subscription): d.view for subscription, d in deliveries}
        self.reached = reached

    def decided(self, event: Event) -> bool:
        """Has the pipeline decided the event?"""
        return self.reached.get(event.stream, 0) >= event.seq

    # -- showing ----------------------------------------------------------------------------------------------

    def render(self, width: int, say: str = "") -> RenderableType:
        """The table so far; with something to say, as a line under it that moves."""
        widths = self._widths(width)
        parts: list[RenderableType] = []
        table = self._table(widths, header=True)
        for row in self.rows:
            if isinstance(row, Event):
                cells = (self._cell(row, reader.subscription) for reader in self.narration.readers)
                table.add_row(Text(str(row.seq), "dim"), Text(self._sent[row.id]), *cells)
                continue
            if isinstance(row, Refusal):
                parts += [table, Text(f"xx {row.say}: refused [{row.error.code}]", "bold red")]
            else:
                point, note = row
                line = f"== stream {point.stream}, seq {point.seq}: version {point.version} starts, {note} "
                line = line.ljust(sum(widths), "=") if len(line) < sum(widths) else line.rstrip()
                parts += [table, Text(line, "bold yellow")]
            table = self._table(widths)
        parts += [table, Text(f"{KEY}   {WAITING} being decided" if say else KEY, "dim")]
        if say:
            self._spinner.update(text=Text(say))
            parts.append(self._spinner)
        return Group(*parts)

    def _table(self, widths: tuple[int, ...], *, header: bool = False) -> Table:
        table = Table(box=None, padding=0, pad_edge=False, show_header=header, header_style="bold", width=sum(widths))
        titles = ("", self.narration.source, *(reader.title for reader in self.narration.readers))
        for title, width in zip(titles, widths, strict=True):
            table.add_column(title, width=width, overflow="fold")
        return table

    def _widths(self, width: int) -> tuple[int, ...]:
        """The widest thing each column may come to hold, and a gap as wide as there is room for."""
        whole = max(map(len, self._sent.values()))
        masked = max(
            sum(max(len(show(value)), len(HIDDEN)) + 1 for value in self._values(draft).values() if value is not None)
            for draft in self._drafts
        )
        content = [len(str(len(self._drafts))), max(whole, len(self.narration.source))]
        content += [max(len(reader.title), reader.width or masked - 1) for reader in self.narration.readers]
        gap = min(3, max(1, (width - sum(content)) // (len(content) - 1)))
        room = width - content[0] - gap * (len(content) - 1)
        if (wanted := sum(content[1:])) > room:  # a narrow screen: cells fold
            content[1:] = [max(8, one * room // wanted) for one in content[1:]]
        return (*(one + gap for one in content[:-1]), content[-1])

    @cached_property
    def _drafts(self) -> list[Draft]:
        """The events that are sent, first to last."""
        return [step.sent() for step in self.scenario.steps if isinstance(step, PublishStep)]

    @cached_property
    def _sent(self) -> dict[str, str]:
        """Each event as its publisher sent it, and what it requires."""
        return {draft.id: self._words(draft) for draft in self._drafts}

    def _words(self, draft: Draft) -> str:
        words = " ".join(show(value) for value in self._values(draft).values() if value is not None)
        return words if draft.requires is None else f"{words}  {render_condition(draft.requires)}"

    def _values(self, draft: Draft) -> Mapping[str, Value]:
        return type_check(draft, self.scenario.types.attributes(draft.type))

    def _cell(self, event: Event, subscription: str) -> Text:
        view = self.received.get((event.stream, event.seq, subscription))
        if view is None:
            return Text(NOTHING if self.decided(event) else WAITING, "dim")
        seen = [
            (HIDDEN, "dim") if view[name] is None else (show(view[name]), "green")
            for name, value in event.values.items()
            if value is not None
        ]
        return Text(" ").join(Text(word, style) for word, style in seen)


def show(value: Value) -> str:
    """A value as the table shows it: of a time, the hour and minute."""
    return f"{value:%H:%M}" if isinstance(value, datetime) else str(plain(value))
