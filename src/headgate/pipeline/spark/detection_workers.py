"""What Spark's processes do for detections: read the log in order, decide and route views, and run buckets on state.

Guarantees: a task decides what detections see of its appends, as the pipeline does for subscriptions, and routes it by
bucket; each bucket is a key of Spark's state, which holds every shard by itself, and is run over the records of the log
in their order. What comes out is a function of the records and of the state before. What a worker keeps in memory
besides only saves it reading again what it wrote.
"""

from __future__ import annotations

import gc
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headgate.decide.composite import FOREVER
from headgate.ledger import Ledger
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.values import micros
from headgate.pipeline import DETECTION_SOURCE
from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.detect.bucket import Bucket, CertainSignal, ShardKey
from headgate.pipeline.detect.machine import StateAt
from headgate.pipeline.detect.plans import DetectionPlan, planned
from headgate.pipeline.detect.segments import Segments
from headgate.pipeline.detect.signals import HELD, REACHED, STOPS, SignalRow
from headgate.pipeline.detect.sources import Arrival, SourcePromises, TypeTimes, of_append, of_promise, times_of
from headgate.pipeline.detect.views import BUCKETS, arrived, bucket_of, routed
from headgate.pipeline.index.build import IndexBuilder
from headgate.pipeline.index.predicates import Sources
from headgate.pipeline.log.codec import EventBatch, LogBatch, event_batch, records
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.match import DecisionWindow, Matcher, Matches
from headgate.pipeline.paths import Paths, strike
from headgate.pipeline.spark.decider import make_matcher, portions
from headgate.pipeline.spark.ledger_tail import LedgerTail
from headgate.pipeline.spark.source import EVENTS_A_BATCH, EVENTS_A_PARTITION

SHARDS_IN_MEMORY: Final = 20_000
"""Shards that a worker keeps beside Spark's state, so that it need not read again what it has written."""

COLLECTED_AFTER: Final = 500_000
"""How many more objects there must be for a worker to look for circles among them.

Evaluations that are over leave none, and to look at all that are open again and again would double the work. It holds
of the whole process, whatever else Spark has it do; what a micro-batch leaves in circles is some 200 objects.
"""

AHEAD: Final = 4
"""If one in so many shards of a bucket is wanted, all are read together."""

BUCKET_KEYS: Final = (28, 9, 14, 3, 4, 6, 24, 13, 2, 22, 27, 7, 5, 0, 16, 21)
"""What buckets are called in Spark's state: by the hash of these each of 2, 4, 8 or 16 tasks gets as many."""

_LOGGED: Final = (
    "stream string, first bigint, last bigint, version bigint, time bigint, number bigint, horizon bigint, "
    "blob binary, after bigint, through bigint, backfill boolean"
)
ROUTED: Final = "bucket bigint, told boolean, blob binary"
SIGNALLED: Final = (
    "number bigint, promise bigint, subscription bigint, time bigint, data string, contributors string, hour bigint, "
    "code string, report string"
)


# -- what the log offers ----------------------------------------------------------------------------------------


@dataclass
class _Range(InputPartition):
    """Appends by their numbers, for one task; with `told`, the records of the micro-batch in short."""

    begin: int
    end: int
    after: int
    through: int
    backfill: bool = False
    told: tuple[int, int, int, int] | None = None
    """From and through which append and promise."""

    def __post_init__(self) -> None:
        super().__init__(None)


class DetectionStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log as a stream, in the order in which appends and promises came."""

    def __init__(self, options: dict[str, str]) -> None:
        self.paths = Paths(Path(options["directory"]))
        self.parallel = int(options.get("parallel", "2"))
        self.limit = int(options.get("limit", str(EVENTS_A_BATCH)))
        self._target: dict[str, int] | None = None
        self._opened: tuple[EventLog, LedgerTail] | None = None

    def _files(self) -> tuple[EventLog, LedgerTail]:
        if self._opened is None:
            self._opened = EventLog.open(self.paths.log, read_only=True), LedgerTail(self.paths.ledger)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first record that any detection, ended ones included, is there for; history goes further back."""
        log, ledger = self._files()
        first = ledger.first_detection()
        number = 0 if first is None else log.number_before(first)
        return {"number": number, "promise": log.promises_by(number, log.newest()[1]), "version": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A bound on the memory of one micro-batch."""
        return ReadMaxRows(self.limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where to stop."""
        log, ledger = self._files()
        number, promise = log.newest()
        self._target = {"number": number, "promise": promise, "version": ledger.version}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """As far as the limit allows; never past what the ledger holds the version of."""
        log, ledger = self._files()
        number, promise = log.newest() if self._target is None else (self._target["number"], self._target["promise"])
        version = ledger.version if self._target is None else self._target["version"]
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 2**62
        reached = start["number"]
        for append in log.appends_in_short(start["number"], number):
            rows -= append.last - append.first + 1
            if append.version > version or (rows < 0 and reached > start["number"]):
                promise = log.promises_by(reached, promise)
                break
            reached = append.number
        else:
            reached = max(reached, number)  # what is missing was trimmed
        return {
            "number": reached,
            "promise": max(promise, start["promise"]),
            "version": max(version, start["version"]),
        }

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The records in short, the new appends, and earlier ones again for detections that ask for history."""
        if start == end:
            return []
        log, ledger = self._files()
        after, through = start["version"], end["version"]
        new = [_Range(*one, after, through) for one in self._cut(log, start["number"], end["number"])]
        again: list[_Range] = []
        if through > after and ledger.asks_history(after, through, detections=True):
            again = [_Range(*one, after, through, backfill=True) for one in self._cut(log, 0, start["number"])]
        short = start["number"], end["number"], start["promise"], end["promise"]
        return [_Range(0, 0, after, through, backfill=bool(again), told=short), *new, *again]

    def _cut(self, log: EventLog, begin: int, end: int) -> list[tuple[int, int]]:
        """A range of numbers as at most `parallel` ranges with about as many events each."""
        sizes = [(one.number, one.last - one.first + 1) for one in log.appends_in_short(begin, end)]
        total = sum(size for _, size in sizes)
        if not sizes:
            return []
        share = max(EVENTS_A_PARTITION, -(-total // self.parallel))
        cut, at, held = [], begin, 0
        for number, size in sizes:
            held += size
            if held >= share:
                cut.append((at, number))
                at, held = number, 0
        return [*cut, (at, end)] if at < end and held else cut

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's share."""
        assert isinstance(partition, _Range)
        log = EventLog.open(self.paths.log, read_only=True)
        same = {"after": partition.after, "through": partition.through, "backfill": partition.backfill}
        try:
            strike(str(self.paths.fault), "detect-read")
            if partition.told is not None:
                is_first = partition.after == 0
                short = _in_short(log, *partition.told, is_first=is_first, backfill=partition.backfill)
                blob = pickle.dumps(short, protocol=5)
                yield records(_LOGGED, [LogBatch("", 0, 0, 0, 0, blob)], **same)
                return
            for append in log.appends_by_number(partition.begin, partition.end, 2**62):
                yield records(_LOGGED, [append], **same)
        finally:
            log.close()

    def stop(self) -> None:
        """Let go of the files."""
        if self._opened is not None:
            for one in self._opened:
                one.close()
            self._opened = None


class _Short(NamedTuple):
    """The records of a micro-batch without what they bring."""

    arrivals: list[Arrival]
    earlier: list[Arrival]
    """All those before, for detections that ask for history."""
    before: list[Arrival]
    """With the first micro-batch, the newest of each source before it: what had been promised."""
    reached: dict[str, int]
    """By stream, the last event of the micro-batch, or before the first one."""
    promise: int
    """The last promise of the micro-batch."""


def _in_short(
    log: EventLog, begin: int, end: int, promise: int, through: int, *, is_first: bool, backfill: bool
) -> _Short:
    """The records of a micro-batch and, if they are wanted, those before, all without what they bring."""

    def merged(appends: Iterable[LogBatch], after: int, last: int) -> list[Arrival]:
        promises = log.promises_after(after, last, 2**62)
        return sorted([*map(of_append, appends), *map(of_promise, promises)])

    new = list(log.appends_in_short(begin, end))
    appends, promises = log.newest_by(begin, promise) if is_first else ([], [])
    reached = dict.fromkeys(log.tails(), 0)
    for one in (*appends, *new):
        reached[one.stream] = max(one.last, reached.get(one.stream, 0))
    earlier = merged(log.appends_in_short(0, begin), 0, promise) if backfill else []
    return _Short(
        merged(new, promise, through),
        earlier,
        [*map(of_append, appends), *map(of_promise, promises)],
        reached,
        through,
    )


class DetectionSource(DataSource):
    """Options: `directory` of the domain's data."""

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return DETECTION_SOURCE

    def schema(self) -> str:
        """One row an append, and one for the records of a micro-batch in short."""
        return _LOGGED

    def streamReader(self, schema: Any) -> DetectionStream:  # noqa: N802, ARG002
        """For `readStream`."""
        return DetectionStream(dict(self.options))


# -- what a worker knows ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Told:
    """The records of a micro-batch, and what every bucket must know of it."""

    records: _Short
    through: int
    streams: tuple[str, ...]
    times: dict[str, TypeTimes]
    opened: tuple[int, ...]
    closed: dict[int, int]
    stopped: tuple[int, ...]


class KnownDetections:
    """The ledger as a worker follows it: detections by their numbers, and an index of them."""

    def __init__(self, paths: Paths) -> None:
        self.ledger = Ledger.open(paths.ledger)
        self._signals = DeliveryStore.open(paths.signals, read_only=True)
        self._builder = IndexBuilder(self.ledger, Sources(paths.predicates), detections=True)
        self._plans: dict[int, DetectionPlan] = {}
        self._unplanned: dict[int, Subscription] = {}
        self._version = 0
        """All detections that began by it have a plan or wait for one."""
        self._matcher: Matcher | None = None
        self._states: OrderedDict[int, State] = OrderedDict()

    def plan_of(self, number: int) -> DetectionPlan:
        """The plan of a detection."""
        plan = self._plans.get(number)
        if plan is None:
            if number not in self._unplanned:
                through = self.ledger.version
                self._learn(dict(self.ledger.detections(self._version, through).opened), through)
            catalog = self.state(self._version).types
            plan = self._plans[number] = planned(number, self._unplanned[number], catalog)
            del self._unplanned[number]  # not before: what failed is tried again
        return plan

    def _learn(self, opened: Mapping[int, Subscription], through: int) -> None:
        """Detections that began, all those after the version and by `through` among them."""
        self._unplanned |= {number: one for number, one in opened.items() if number not in self._plans}
        if not self._version:
            gc.freeze()  # what is known of detections lasts, and is not looked through for circles again and again
        self._version = max(self._version, through)

    def matched(self, appends: Sequence[LogBatch], window: DecisionWindow) -> tuple[Matcher, EventBatch, Matches]:
        """What detections see of some appends."""
        index = self._builder.index(min(one.version for one in appends), window.through)
        self._learn(self._builder.take_opened(), self._builder.version)
        if self._matcher is None or self._matcher.index is not index:
            self._matcher = make_matcher(index)
        layouts = dict(zip(index.types.names, index.types.layouts, strict=True))
        events = event_batch(appends, index.types.numbers, layouts, index.types.words)
        return self._matcher, events, self._matcher.match(events, window)

    def stopped(self) -> tuple[int, ...]:
        """The detections that had stopped before this micro-batch, also if it was begun before."""
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        return tuple({one.subscription for one in self._signals.remarks(before=batch) if one.code in STOPS})

    def state_at(self, version: int) -> Any:
        """The state at a version, which is read only if something of it is asked for."""
        return StateAt(version, self.state)

    def state(self, version: int) -> State:
        """The state at a version, without subscriptions."""
        state = self._states.get(version)
        if state is None:
            state = self._states[version] = self.ledger.state(version, subscriptions=False)
            while len(self._states) > 100:
                self._states.popitem(last=False)
        return state


_known: dict[str, KnownDetections] = {}


def know(directory: str) -> KnownDetections:
    """What this worker knows of a domain; of two at most, for to read thousands of detections takes seconds."""
    if directory not in _known:
        while len(_known) > 1:
            del _known[next(iter(_known))]
        gc.set_threshold(COLLECTED_AFTER, 1, 1)
        _known[directory] = KnownDetections(Paths(Path(directory)))
    return _known[directory]


# -- deciding and routing ---------------------------------------------------------------------------------------


def router(directory: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: what the buckets get of some appends."""

    def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = know(directory)
        for appends, window in portions(rows):
            if appends[0].stream == "":
                blob = pickle.dumps(_facts(known, appends[0].blob, window), protocol=5)
                yield _rows((key, True, blob) for key in BUCKET_KEYS)
            else:
                strike(str(Paths(Path(directory)).fault), "detect-decide")
                routes = _route(known, appends, window)
                yield _rows((BUCKET_KEYS[bucket], False, blob) for bucket, blob in routes)

    return run


def _rows(routed: Iterator[tuple[int, bool, bytes]]) -> pa.RecordBatch:
    columns = list(zip(*routed, strict=True)) or [(), (), ()]
    kinds = (("bucket", pa.int64()), ("told", pa.bool_()), ("blob", pa.binary()))
    arrays = [pa.array(column, kind) for column, (_, kind) in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(kinds))


def _facts(known: KnownDetections, blob: bytes, window: DecisionWindow) -> _Told:
    short = pickle.loads(blob)  # noqa: S301 - out of the source
    changes = known.ledger.detections(window.after, window.through)
    catalog = known.state(window.through).types
    return _Told(
        short, window.through, tuple(sorted(short.reached)), times_of(catalog),
        tuple(number for number, _ in changes.opened), dict(changes.closed), known.stopped(),
    )  # fmt: skip


def _route(known: KnownDetections, appends: list[LogBatch], window: DecisionWindow) -> Iterator[tuple[int, bytes]]:
    matcher, events, matches = known.matched(appends, window)
    catalog = known.state(window.through).types
    yield from routed(appends, events, matches, matcher.index.types, catalog, known.plan_of)


# -- state ------------------------------------------------------------------------------------------------------


class _SegmentState:
    """The segments of one bucket in Spark's state."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._ahead: dict[int, bytes] = {}

    def read_ahead(self) -> None:
        """Read all of them together: to ask Spark for one is a round trip."""
        self._ahead = {int(key[0]): bytes(held[0]) for key, held in self._state.iterator()}

    def get(self, segment: int) -> bytes | None:
        ahead = self._ahead.pop(segment, None)
        if ahead is not None:
            return ahead
        held = self._state.getValue((segment,))
        return None if held is None else bytes(held[0])

    def put(self, segment: int, saved: bytes) -> None:
        self._ahead.pop(segment, None)
        self._state.updateValue((segment,), (saved,))

    def remove(self, segment: int) -> None:
        self._ahead.pop(segment, None)
        self._state.removeKey((segment,))


class _KeptBucket(NamedTuple):
    """A bucket as a micro-batch left it."""

    changes: int
    """How often its state had changed."""
    bucket: Bucket
    segments: Segments


_kept: OrderedDict[tuple[str, int], _KeptBucket] = OrderedDict()
"""Buckets of this worker, by the state they are of."""


class BeadProcessor(StatefulProcessor):
    """Runs a bucket over the records of a micro-batch."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def init(self, handle: Any) -> None:
        """The state of a bucket: what it remembers, and its shards apart, many small ones in a segment."""
        self._bucket = handle.getValueState("bucket", "id string, changes bigint, saved binary")
        self._segments = handle.getMapState("segments", "segment bigint", "saved binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        """Everything of one micro-batch for one bucket."""
        known = know(self.directory)
        told: _Told | None = None
        new: dict[int, list[Any]] = {}
        blobs = []
        for row in rows:
            if row["told"]:
                told = pickle.loads(bytes(row["blob"]))  # noqa: S301 - out of `router`
            else:
                blobs.append(bytes(row["blob"]))
        assert told is not None, "a micro-batch without its records"
        mine = BUCKET_KEYS.index(int(key[0]))
        strike(str(Paths(Path(self.directory)).fault), "detect-run")
        for blob in blobs:
            for number, some in arrived(blob, known.state_at):
                new.setdefault(number, []).extend(some)
        state, (changes, bucket, segments) = self._restored(
            mine, known, {key for some in new.values() for key, _ in some}
        )
        for signal in self._run(bucket, mine, known, told, new):
            row = SignalRow(signal.detection, signal.time, signal.environment, signal.contributors).written
            yield Row(
                number=signal.arrival[0], promise=signal.arrival[1], subscription=row.subscription,
                time=row.time, data=row.data, contributors=row.contributors, hour=signal.hour,
                code=signal.code, report=signal.report,
            )  # fmt: skip
        for number, time in bucket.held().items():
            if time < FOREVER or bucket_of(number, 0) == mine:  # one of them says so also if nothing is held
                yield Row(
                    number=0, promise=0, subscription=number, time=micros(time), data="", contributors="[]",
                    hour=0, code=HELD, report="",
                )  # fmt: skip
        segments.write()
        self._bucket.update((state, changes + 1, bucket.saved()))
        _kept[state, mine] = _KeptBucket(changes + 1, bucket, segments)
        if bucket.forget(SHARDS_IN_MEMORY // BUCKETS):
            segments.forget()
        while len(_kept) > 4 * BUCKETS:
            _kept.popitem(last=False)
        if mine == 0:
            reached = pickle.dumps((told.through, told.records.reached, told.records.promise)).hex()
            yield Row(
                number=0,
                promise=0,
                subscription=REACHED,
                time=0,
                data=reached,
                contributors="[]",
                hour=0,
                code="",
                report="",
            )

    def _run(
        self, bucket: Bucket, mine: int, known: KnownDetections, told: _Told, new: dict[int, list[Any]]
    ) -> Iterator[CertainSignal]:
        """Detections that ask for history go through the earlier records first, by themselves."""
        opened = [number for number in told.opened if self._is_here(known.plan_of(number), mine)]
        again = {number for number in told.opened if known.plan_of(number).history}
        records = told.records
        bucket.sources.declare(told.streams, told.times)
        for arrival in records.before:
            bucket.sources.take(arrival)
        if records.earlier:
            last = records.earlier[-1].number
            before = {n: [one for one in some if one[0][0] in again] for n, some in new.items() if n <= last}
            replay = bucket.apart()
            past = [number for number in opened if number in again]
            yield from replay.run(records.earlier, before, past, {}, told.streams, told.times, at_once=True)
            bucket.adopt(replay)
            new = {n: some for n, some in new.items() if n > last}
            opened = [number for number in opened if number not in again]
        yield from bucket.run(
            records.arrivals, new, opened, told.closed, told.streams, told.times, stopped=told.stopped
        )  # fmt: skip
        yield from bucket.keep()

    def _is_here(self, plan: DetectionPlan, mine: int) -> bool:
        """Does a detection begin in this bucket?"""
        return plan.routing.is_cut or bucket_of(plan.number, 0) == mine

    def _restored(self, mine: int, known: KnownDetections, wanted: set[ShardKey]) -> tuple[str, _KeptBucket]:
        """The bucket as the last micro-batch left it, under the name of its state."""
        saved = self._bucket.get()
        store = _SegmentState(self._segments)
        state, changes, held = (uuid4().hex, 0, None) if saved is None else saved
        kept = _kept.pop((state, mine), None)  # once: what is done to it now may not be kept
        if kept is not None and kept.changes == changes:
            kept.segments.move(store)
            return state, kept
        segments = Segments(store)
        bucket = Bucket(SourcePromises(), segments, known.plan_of, known.state_at)
        if held is not None:
            bucket.restore(bytes(held))
            if len(wanted) * AHEAD > bucket.shards:
                store.read_ahead()
        return state, _KeptBucket(changes, bucket, segments)

    def close(self) -> None:
        """Nothing is held open."""
