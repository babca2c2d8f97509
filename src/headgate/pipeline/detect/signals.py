"""Signals as the store keeps them: Arrow blobs of one stream, as deliveries have them for the streams of the log.

Guarantees: what is decoded is what was encoded, kinds included. Each signal has the next number of the one stream, in
the order in which it is given: by the moment at which it became certain, then by `order`. Its id is the same whenever
the same detection signals the same, and depends on nothing else.
Leaves out: what readers are given (`commands.delivery`), and when signals are written (the detection query).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from headgate.decide.composite import Environment
from headgate.model.errors import DetectionFailed, LimitReached
from headgate.model.events import Contributors, dump_contributors, load_contributors
from headgate.model.roles import dump_argument, load_argument
from headgate.model.values import Value, micros, moment
from headgate.pipeline import SIGNALS
from headgate.pipeline.deliveries import DeliveryBlob, Remark, pack
from headgate.pipeline.log.codec import from_blob, to_blob

REACHED: Final = -1
"""Stands for the detection in the one row of a micro-batch that says how far it has come."""

HELD: Final = "held"
"""The code of a row of a micro-batch that says of a detection the earliest time that a bucket holds back of it."""

STOPS: Final = frozenset({LimitReached.code, DetectionFailed.code})
"""Remarks after which a detection signals no more; its last signal has one in place of a variable."""

STATEMENT_FAILED: Final = "statement-failed"
"""The remark that a list of statements in a block ended early."""

SCHEMA: Final = pa.schema(
    [
        ("seq", pa.int64()),
        ("subscriptions", pa.list_(pa.int32())),
        ("id", pa.string()),
        ("time", pa.int64()),
        ("data", pa.string()),
        ("contributors", pa.string()),
    ]
)


_JSON: Final = json.JSONEncoder(separators=(",", ":"))


class WrittenSignal(NamedTuple):
    """A signal as text, as the store has it."""

    subscription: int
    time: int
    data: str
    contributors: str


@dataclass(frozen=True, slots=True)
class SignalRow:
    """A signal of a detection, which is known by its number in order of opening."""

    subscription: int
    time: datetime
    environment: Environment
    contributors: Contributors = ()

    @property
    def data(self) -> str:
        """The bindings as JSON, with their kinds."""
        return _JSON.encode({name: dump_argument(value) for name, value in self.environment})

    @property
    def places(self) -> str:
        """The contributing events as JSON."""
        return dump_contributors(self.contributors)

    @property
    def written(self) -> WrittenSignal:
        """As text."""
        return WrittenSignal(self.subscription, micros(self.time), self.data, self.places)

    @property
    def order(self) -> tuple[int, str, int]:
        """Its place among those that became certain at one moment: by time, then by bindings."""
        return micros(self.time), self.data, self.subscription


@dataclass(frozen=True, slots=True)
class StoredSignal:
    """A signal with its number in the stream, and its id."""

    seq: int
    id: str
    row: SignalRow


def signal_blob(first_seq: int, version: int, rows: Sequence[SignalRow]) -> DeliveryBlob:
    """Signals that were worked out through a version of the ledger, the first with this number; there is at least one.

    The rows stand in the order in which readers get them.
    """
    return written_blob(first_seq, version, [row.written for row in rows])


def written_blob(first_seq: int, version: int, rows: Sequence[WrittenSignal]) -> DeliveryBlob:
    """Likewise, of signals that are text already."""
    subscriptions = np.array([row.subscription for row in rows], np.int32)
    table = pa.table(
        {
            "seq": np.arange(first_seq, first_seq + len(rows), dtype=np.int64),
            "subscriptions": pa.ListArray.from_arrays(np.arange(len(rows) + 1, dtype=np.int32), subscriptions),
            "id": [_id(row.time, row.data) for row in rows],
            "time": [row.time for row in rows],
            "data": [row.data for row in rows],
            "contributors": [row.contributors for row in rows],
        },
        schema=SCHEMA,
    )
    members = pack(np.unique(subscriptions))
    last = first_seq + len(rows) - 1
    return DeliveryBlob(SIGNALS, first_seq, last, version, 0, len(rows), to_blob(table), members)


def stored_signals(blob: bytes) -> Iterator[StoredSignal]:
    """The signals of a blob, one for each detection that has it, in order."""
    for row in from_blob(blob).to_pylist():
        environment = bindings(row["data"])
        contributors = load_contributors(row["contributors"])
        for number in row["subscriptions"]:
            signal = SignalRow(number, moment(row["time"]), environment, contributors)
            yield StoredSignal(row["seq"], row["id"], signal)


def bindings(data: str) -> Environment:
    """The inverse of `SignalRow.data`."""
    return tuple((name, cast(Value, load_argument(value))) for name, value in json.loads(data).items())


def told_remark(remark: Remark) -> str:
    """A remark on a detection in words."""
    ended = "it has stopped: " if remark.code in STOPS else ""
    return f"{ended}{remark.text} (`{remark.code}`, at append {remark.number} of the log)"


def _id(time: int, data: str) -> str:
    return hashlib.sha256(f"{time} {data}".encode()).hexdigest()[:32]
