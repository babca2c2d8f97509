"""`headgate publish`: one event from the command line, or a file of them.

Guarantees: what is said to be stored is durable. A file can be published again after any failure: its events have the
same ids, and those that were stored already are counted and not stored twice (within the domain's window).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headgate.cli.shared.common import err
from headgate.cli.shared.connection import PresentingConnection
from headgate.cli.shared.options import argument, moment_of, option
from headgate.cli.shared.rendering import say, show_table
from headgate.client import Client
from headgate.model.errors import BadDefinition, HeadgateError, TypeMismatch
from headgate.model.types import PUBLISHER
from headgate.model.values import Kind, brief, conform, plain

if TYPE_CHECKING:
    from headgate.cli.events.event_files import EventPiece

SHOWN: Final = 20
"""Refused events that are shown; all are counted."""
TIME_COLUMN: Final = "time"
"""The column with times, where none is named and no attribute is called that."""

TypeArgument = Annotated[str, argument("TYPE", "The event type.")]
ValuesArgument = Annotated[list[str] | None, argument("NAME=VALUE", "The attributes of one event.", unset=False)]
From = Annotated[
    str | None, option("--from FILE", "A file .ndjson, .csv or .parquet, or - for NDJSON on standard input.")
]
SourceOption = Annotated[str | None, option("--source URI", "The events' source.", unset="the key's name")]
RequiresOption = Annotated[
    str | None, option("--requires RULE", 'What receivers must be, such as `$clearance = "secret"`.')
]
IdOption = Annotated[str | None, option("--id", "The event's id.", unset="a new one")]
IdColumnOption = Annotated[
    str | None, option("--id-column NAME", "The column with ids.", unset="made from file and row")
]


TimeOption = Annotated[str | None, option("--time TIME", "When the event occurred.", unset="the gateway's clock")]
TimeColumnOption = Annotated[
    str | None, option("--time-column NAME", "The column with times at which events occurred.", unset="`time`")
]


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of a file that are no attributes, as far as they were named; `states` if its type takes times."""

    id: str | None
    time: str | None
    states: bool

    def time_among(self, kinds: Mapping[str, Kind]) -> str | None:
        """The column with times, if there may be one."""
        if self.time is not None or not self.states:
            return self.time
        return None if TIME_COLUMN in kinds else TIME_COLUMN


@dataclass(slots=True)
class FileTally:
    """What became of a file."""

    accepted: int = 0
    duplicates: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    first: list[tuple[int, HeadgateError]] = field(default_factory=list)

    def refuse(self, row: int, error: HeadgateError) -> None:
        """Count a refusal, and keep the first."""
        self.codes[error.code] += 1
        if len(self.first) < SHOWN:
            self.first.append((row, error))


def publish(
    type: TypeArgument,
    values: ValuesArgument = None,
    from_: From = None,
    id: IdOption = None,
    id_column: IdColumnOption = None,
    source: SourceOption = None,
    requires: RequiresOption = None,
    time: TimeOption = None,
    time_column: TimeColumnOption = None,
    *,
    connection: PresentingConnection,
) -> None:
    """Publish an event, or a file of events.

    Values are converted to the declared kinds; an attribute that is left out is null. A file may be published again
    after a failure: what was stored already is not stored twice. Leaves with 1 if any event was refused. When events
    occurred is said with them where their type takes that from publishers; else the gateway's clock counts.

    For example:

    `headgate publish shop.Sale item=tea amount=4.5 --as till`

    `headgate publish shop.Sale --from sales.csv --id-column receipt --as till`

    `headgate publish shop.Sale item=tea amount=4.5 --requires '$branch = "north"' --as till`

    `headgate publish shop.Sale item=tea amount=4.5 --time 2026-05-04T09:30:00Z --as till`

    `producer | headgate publish shop.Sale --from - --as till --domain shop`
    """
    if from_ is not None and (values or id is not None or time is not None):
        raise typer.BadParameter("give either attributes of one event, or --from FILE")
    if from_ is None and (id_column is not None or time_column is not None):
        raise typer.BadParameter(f"--{'id' if id_column is not None else 'time'}-column goes with --from")
    stated = None if time is None else moment_of(time, "--time")
    with connection.client() as client:
        declared = client.type(type)
        kinds = {name: Kind(kind) for name, kind in declared.attributes.items()}
        if declared.times != PUBLISHER and (stated is not None or time_column is not None):
            raise BadDefinition(f"the gateway's clock says when a `{type}` occurred", remedy="leave the time out")
        if from_ is None:
            _one(client, type, given(values or [], kinds), id, source, requires, stated)
        else:
            columns = FileColumns(id_column, time_column, states=declared.times == PUBLISHER)
            _file(client, type, from_, kinds, columns, source, requires)


def given(values: Sequence[str], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The attributes of the command line, by the declared kinds."""
    attributes: dict[str, Any] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"`{text}` is not NAME=VALUE")
        if name in attributes:
            raise typer.BadParameter(f"`{name}` is given twice")
        if name not in kinds:
            known = ", ".join(f"`{one}`" for one in kinds)
            raise TypeMismatch(f"there is no attribute `{brief(name)}`", remedy=f"there are {known}")
        try:
            attributes[name] = plain(conform(kinds[name], _value(kinds[name], value)))
        except HeadgateError as error:
            raise error.at(f"attribute `{name}`") from None
    return attributes


def _value(kind: Kind, text: str) -> object:
    """What the text would be in JSON."""
    try:
        match kind:
            case Kind.BOOL:
                return {"true": True, "false": False}.get(text, text)
            case Kind.INT:
                return int(text)
            case Kind.FLOAT:
                return float(text)
            case _:
                return text
    except ValueError:
        return text  # refused with its own words


def _one(
    client: Client,
    type: str,
    data: Mapping[str, Any],
    id: str | None,
    source: str | None,
    requires: str | None,
    time: datetime | None,
) -> None:
    try:
        result = client.publish(type, data, id=id, source=source, requires=requires, time=time)
    except HeadgateError as error:
        if error.code not in ("publish-denied", "type-mismatch", "policy-rule", "below-horizon", "ahead-of-clock"):
            raise
        _show_refusals(FileTally(codes=Counter([error.code]), first=[(0, error)]), one=True)
        raise typer.Exit(1) from None
    say((result.status, "bold green"), f" {result.id}")


# -- files ----------------------------------------------------------------------------------------------------


def _file(
    client: Client,
    type: str,
    path: str,
    kinds: Mapping[str, Kind],
    columns: FileColumns,
    source: str | None,
    requires: str | None,
) -> None:
    tally = FileTally()
    from headgate.cli.events.event_files import pieces, source_of

    time_column = columns.time_among(kinds)
    total, found = pieces(path, source_of(path, kinds, columns.id, time_column), sys.stdin.buffer)
    try:
        for piece in _with_progress(found, total, tally):
            _send(client, type, piece, source, requires, tally)
    finally:
        _show(tally)
    if tally.codes:
        raise typer.Exit(1)


def _with_progress(event_pieces: Iterator[EventPiece], total: int | None, tally: FileTally) -> Iterator[EventPiece]:
    """The pieces, with a bar on a terminal that moves when each has been dealt with."""
    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.fields[count]:,} events"))
    with Progress(*columns, TimeElapsedColumn(), console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("", total=total, count=0)
        for piece in event_pieces:
            yield piece
            count = tally.accepted + tally.duplicates + tally.codes.total()
            progress.update(task, completed=piece.done, count=count)


def _send(
    client: Client, type: str, piece: EventPiece, source: str | None, requires: str | None, tally: FileTally
) -> None:
    if piece.table is not None:
        reply = client.publish_arrow(type, piece.table, source=source, requires=requires)
        tally.accepted += reply.accepted
        tally.duplicates += reply.duplicates
        for row, error in reply.refused.items():
            tally.refuse(piece.first + row, error)
        return
    good: list[dict[str, Any]] = []
    rows: list[int] = []
    for line in piece.objects:
        if isinstance(line.content, HeadgateError):
            tally.refuse(line.row, line.content)
        else:
            event = {"type": type, "data": line.content, "id": line.id, "source": source, "requires": requires}
            good.append({**event, "time": line.time})
            rows.append(line.row)
    for row, result in zip(rows, client.publish_many(good), strict=True):
        if result.refusal is not None:
            tally.refuse(row, result.refusal)
        tally.accepted += result.status == "accepted"
        tally.duplicates += result.status == "duplicate"


# -- showing --------------------------------------------------------------------------------------------------


def _show(tally: FileTally) -> None:
    say((f"{tally.accepted:,}", "bold green"), " accepted")
    if tally.duplicates:
        say((f"{tally.duplicates:,}", "bold"), " had been stored before")
    if tally.codes:
        _show_refusals(tally)


def _show_refusals(tally: FileTally, *, one: bool = False) -> None:
    if not one:
        codes = ", ".join(f"{count:,} {code}" for code, count in tally.codes.most_common())
        say((f"{tally.codes.total():,}", "bold red"), f" refused: {codes}")
    rows = []
    for row, error in tally.first:
        why = f"{error.message}; {error.remedy}" if error.remedy else error.message
        rows.append((*(() if one else (str(row + 1),)), error.code, why))
    show_table((*(() if one else ("row",)), "code", "why"), rows, console=err)
