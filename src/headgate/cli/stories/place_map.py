"""The map of a story: where things are as each reader sees it, and what was signalled, as it becomes certain.

Guarantees: a reader's row shows what was delivered to that reader and nothing else; of each thing the newest place, by
the time at which it was seen there, however late that arrived. Things and places have the names that they had when
they were seen. At 80 characters a row of a few things is one line; what is longer folds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate.decide.composite import Signal
from headgate.model.events import Event
from headgate.model.state import State
from headgate.model.values import Value
from headgate.scenario.engines.detections import as_plain
from headgate.scenario.format.narration import Narration, StoryMap

EVERYONE: Final = "sensors"
NOWHERE: Final = "."
_SHOWN: Final = 6
"""How many signals a live map shows; the newest."""


class Sighting(NamedTuple):
    """A thing was at a place, which is in a column of the map."""

    time: datetime
    thing: str
    column: str
    place: str


class ToldSignal(NamedTuple):
    """A signal in the words of the narrator."""

    time: datetime
    words: str


@dataclass(slots=True)
class PlaceMap:
    """What was seen, by the place of each event in its stream; and what was signalled, in the order of certainty."""

    narration: Narration
    of: StoryMap
    sightings: dict[tuple[str, int], Sighting] = field(default_factory=dict)
    told: dict[ToldSignal, None] = field(default_factory=dict)

    def see(self, event: Event, occurred: datetime, state: State) -> None:
        """An event was accepted; its names are those of now."""
        thing, column, place = (event.values.get(name) for name in (self.of.thing, self.of.column, self.of.place))
        if thing is not None and column is not None and place is not None:
            named = self._named(self.of.thing, thing, state), str(column), self._named(self.of.place, place, state)
            self.sightings[event.stream, event.seq] = Sighting(occurred, *named)

    def tell(self, signals: Mapping[str, Iterable[Signal]]) -> None:
        """These have been signalled by now; what is new comes last."""
        new = [
            ToldSignal(signal.time, words.format_map(as_plain(signal)))
            for id, words in self.narration.signals.items()
            for signal in signals.get(id, ())
        ]
        self.told |= dict.fromkeys(sorted(one for one in new if one not in self.told))

    def _named(self, attribute: str, value: Value, state: State) -> str:
        """What a value is called, by a relation of two columns; itself, if by none."""
        rows = state.relations.get(self.of.names.get(attribute, ""), frozenset())
        return next((str(row[1]) for row in sorted(rows, key=str) if row[0] == value), str(value))

    # -- showing ------------------------------------------------------------------------------------------------

    def render(self, width: int, received: Iterable[tuple[str, int, str]], *, all_told: bool = True) -> RenderableType:
        """The map, given what each reader has received, and all signals by time; or those that became certain last."""
        columns = list(dict.fromkeys(one.column for one in sorted(self.sightings.values())))
        by_reader: dict[str, list[tuple[str, int]]] = {}
        for stream, seq, subscription in received:
            by_reader.setdefault(subscription, []).append((stream, seq))
        first = max(len(EVERYONE), *(len(reader.title) for reader in self.narration.readers)) + 2
        each = (width - first) // (2 * max(len(columns), 1))
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        table.add_column("", width=first - 2)
        for name in sorted(columns):
            table.add_column(name, min_width=each, overflow="fold")
        rows = [(EVERYONE, list(self.sightings), "dim")]
        rows += [(reader.title, by_reader.get(reader.subscription, []), "green") for reader in self.narration.readers]
        for title, places, style in rows:
            there = self._newest(places)
            cells = [
                ", ".join(f"{one.thing} {one.place}" for one in there if one.column == name) for name in sorted(columns)
            ]
            table.add_row(Text(title, "bold"), *(Text(cell or NOWHERE, style) for cell in cells))
        told = sorted(self.told) if all_told else list(self.told)[-_SHOWN:]
        lines = [Text.assemble((f"{one.time:%H:%M:%S}  ", "dim"), (one.words, "bold cyan")) for one in told]
        return Group(table, Text(), *(lines or [Text("nothing is certain yet", "dim")]))

    def _newest(self, places: Iterable[tuple[str, int]]) -> list[Sighting]:
        """Of each thing where it was last, by the names of things."""
        newest: dict[str, Sighting] = {}
        for sighting in sorted(self.sightings[place] for place in places if place in self.sightings):
            newest[sighting.thing] = sighting
        return sorted(newest.values(), key=lambda one: one.thing)
