"""Events in files: CSV, Parquet and NDJSON, a piece at a time.

Guarantees: memory stays bounded whatever the size of the file. Every event has an id that is the same when the same
file is read again: from a column of it, or from the file and the row. A column that the type lacks is refused before
anything is sent.
Leaves out: checking values against their kinds, which the gateway does, except where text has to be converted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import uuid4

import pyarrow as pa
from pyarrow import csv, parquet

from headgate.model.errors import BadDefinition, HeadgateError, NotFound, TypeMismatch
from headgate.model.values import Kind, brief, conform

BLOCK_BYTES: Final = 2**20
"""Bytes of CSV that are read at once."""
ROWS: Final = 10_000
"""Rows of Parquet that are read at once."""
LINES: Final = 1_000
"""Lines of NDJSON that are sent at once."""
MAX_LINE_BYTES: Final = 16 * 2**20
"""Bytes of one line of NDJSON."""
STDIN: Final = "-"

_ARROW: Final = {
    Kind.BOOL: pa.bool_(),
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
    Kind.BYTES: pa.string(),  # hexadecimal
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of NDJSON: its number from 0, the id, the attributes or what is wrong with it, and when it occurred."""

    row: int
    id: str
    content: dict[str, Any] | HeadgateError
    time: Any = None


@dataclass(frozen=True, slots=True)
class EventPiece:
    """Some events of a file, from a row on: as a table ready to send, or as objects of which some are refused."""

    first: int
    table: pa.Table | None = None
    objects: Sequence[Line] = ()
    done: int = 0
    """How far the file has been read, in the unit of its total."""


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file of events of one type."""

    name: str
    run: str
    kinds: Mapping[str, Kind]
    id_column: str | None
    time_column: str | None = None

    def ids(self, first: int, count: int) -> pa.Array:
        """The ids of rows that have none of their own."""
        return pa.array([f"{self.run}:{row}" for row in range(first, first + count)], pa.string())

    def check_columns(self, columns: Sequence[str]) -> None:
        """Refuse columns that are neither attributes nor ids nor times."""
        if self.id_column is not None and self.id_column not in columns:
            raise BadDefinition(f"there is no column `{brief(self.id_column)}` to take ids from", place=self.name)
        for name in columns:
            if name not in self.kinds and name not in (self.id_column, self.time_column):
                raise TypeMismatch(
                    f"the column `{brief(name)}` is no attribute of the type",
                    place=self.name,
                    remedy=f"it has {', '.join(f'`{one}`' for one in self.kinds)}",
                )

    def envelope(self, table: pa.Table, first: int) -> pa.Table:
        """A table as it is sent: attributes under names that cannot be mistaken, and ids."""
        if self.id_column is None:
            ids = self.ids(first, table.num_rows)
        else:
            ids = table.column(self.id_column).cast(pa.string())
        names = [name for name in table.column_names if name in self.kinds]
        columns = [self._column(name, table.column(name)) for name in names]
        made = pa.table([ids, *columns], names=["id", *(f"data.{name}" for name in names)])
        if self.time_column is None or self.time_column not in table.column_names:
            return made
        return made.append_column("time", table.column(self.time_column))

    def _column(self, name: str, column: pa.ChunkedArray) -> Any:
        if self.kinds[name] is Kind.BYTES and pa.types.is_string(column.type):
            return pa.array([conform(Kind.BYTES, one) for one in column.to_pylist()], pa.binary())
        return column


def source_of(path: str, kinds: Mapping[str, Kind], id_column: str | None, time_column: str | None = None) -> EventFile:
    """What is known of a file before it is read. Standard input is another file every time."""
    if path == STDIN:
        return EventFile("standard input", uuid4().hex, kinds, id_column, time_column)
    try:
        status = Path(path).stat()
    except OSError as error:
        raise NotFound(f"`{path}` cannot be read ({error.strerror})") from None
    name = Path(path).name
    return EventFile(path, f"{name}:{status.st_size:x}-{status.st_mtime_ns:x}", kinds, id_column, time_column)


def pieces(path: str, source: EventFile, stdin: BinaryIO) -> tuple[int | None, Iterator[EventPiece]]:
    """How much there is, where that is known, and the events."""
    kind = Path(path).suffix.lower()
    if path == STDIN:
        return None, _ndjson(stdin, source)
    match kind:
        case ".csv":
            return Path(path).stat().st_size, _csv(Path(path), source)
        case ".parquet":
            file = _parquet(Path(path), source)
            return file.metadata.num_rows, _row_groups(file, source)
        case ".ndjson" | ".jsonl":
            return Path(path).stat().st_size, _lines(Path(path), source)
        case _:
            raise BadDefinition(
                f"`{brief(path)}` is not a file of events", remedy="they end in .ndjson, .jsonl, .csv or .parquet"
            )


def _csv(path: Path, source: EventFile) -> Iterator[EventPiece]:
    types = {name: _ARROW[kind] for name, kind in source.kinds.items()}
    if source.id_column is not None and source.id_column not in types:
        types[source.id_column] = pa.string()
    if source.time_column is not None and source.time_column not in types:
        types[source.time_column] = _ARROW[Kind.TIMESTAMP]
    convert = csv.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    first = 0
    with path.open("rb") as file:
        try:
            reader = csv.open_csv(file, csv.ReadOptions(block_size=BLOCK_BYTES), convert_options=convert)
            source.check_columns(reader.schema.names)
            for batch in reader:
                table = source.envelope(pa.Table.from_batches([batch]), first)
                yield EventPiece(first, table, done=file.tell())
                first += table.num_rows
        except pa.ArrowInvalid as error:
            raise TypeMismatch(str(error).splitlines()[0], place=str(path)) from None


def _parquet(path: Path, source: EventFile) -> Any:
    try:
        file = parquet.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise BadDefinition(f"it is not Parquet: {str(error).splitlines()[0]}", place=str(path)) from None
    source.check_columns(file.schema_arrow.names)
    return file


def _row_groups(file: Any, source: EventFile) -> Iterator[EventPiece]:
    first = 0
    try:
        for batch in file.iter_batches(ROWS):
            table = source.envelope(pa.Table.from_batches([batch]), first)
            first += table.num_rows
            yield EventPiece(first - table.num_rows, table, done=first)
    except pa.ArrowException as error:
        raise TypeMismatch(str(error).splitlines()[0], place=source.name) from None
    finally:
        file.close()


def _lines(path: Path, source: EventFile) -> Iterator[EventPiece]:
    with path.open("rb") as file:
        yield from _ndjson(file, source)


def _ndjson(file: BinaryIO, source: EventFile) -> Iterator[EventPiece]:
    """Objects line by line; blank lines are passed over but counted, so that ids are those of lines."""
    done = 0
    objects: list[Line] = []
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        done += len(line)
        if len(line) > MAX_LINE_BYTES:
            raise TypeMismatch(
                f"the line is longer than MAX_LINE_BYTES ({MAX_LINE_BYTES})", place=f"{source.name}, line {number + 1}"
            )
        if line.strip():
            objects.append(_object(line, number, source))
        number += 1
        if len(objects) >= LINES:
            yield EventPiece(objects[0].row, objects=objects, done=done)
            objects = []
    if objects:
        yield EventPiece(objects[0].row, objects=objects, done=done)


def _object(line: bytes, number: int, source: EventFile) -> Line:
    place = f"{source.name}, line {number + 1}"
    id = f"{source.run}:{number}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Line(number, id, TypeMismatch(f"it is not JSON ({error})", place=place))
    if not isinstance(record, dict):
        return Line(
            number, id, TypeMismatch(f"`{brief(record)}` is not an object", place=place, remedy="one object a line")
        )
    if source.id_column is not None:
        own = record.get(source.id_column)
        if not isinstance(own, (str, int)) or isinstance(own, bool) or own == "":
            return Line(number, id, TypeMismatch(f"there is no id in `{brief(source.id_column)}`", place=place))
        id = str(own)
        if source.id_column not in source.kinds:
            del record[source.id_column]
    time = None
    if source.time_column is not None:
        time = record.get(source.time_column)
        if source.time_column not in source.kinds:
            record.pop(source.time_column, None)
        if time is not None and not isinstance(time, str):
            return Line(number, id, TypeMismatch(f"`{brief(time)}` is no time", place=place, remedy="write it as text"))
    return Line(number, id, record, time)
