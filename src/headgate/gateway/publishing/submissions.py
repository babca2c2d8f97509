"""What publishers send, on its way into the log: requests, and what became of their events.

Guarantees: a submission can be put to any version of the ledger, again if need be; an event that was found to be sent
before stays found, also where the right to publish it has ended since, or a policy rule now keeps it back. Every event
of it ends as accepted, duplicate or refused, in the order in which it was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from headgate.gateway.publishing.policy_rule_check import NO_ANSWERS, Answers
from headgate.model.errors import HeadgateError, PolicyRuleDenied, PublishDenied
from headgate.model.events import Draft
from headgate.model.state import State
from headgate.model.values import micros
from headgate.pipeline.admission.admission import Admission, Admitted, BeforeOf, Encoded, encode_many
from headgate.pipeline.admission.bulk import by_type, from_arrow, requirements_in
from headgate.pipeline.index.requirements import NONE, Required, required
from headgate.pipeline.log.appends import Append, Repeat
from headgate.pipeline.log.codec import Ints, from_blob
from headgate.pipeline.log.log_file import LogFile
from headgate.pipeline.log.recent import Texts, hash_keys, repeats_within

QUICK_EVENTS: Final = 2_000
"""Events as columns that are decided and encoded in a few milliseconds."""

Parts: TypeAlias = tuple[list[Admitted], list[Ints]]
"""Events cut by type: what became of each part, and the place of each of its events in the request."""


@dataclass(frozen=True, slots=True)
class SubmissionOutcome:
    """What became of the events of a request, by their places in it; those in neither list were accepted."""

    size: int
    duplicates: frozenset[int]
    refusals: dict[int, HeadgateError]

    @property
    def accepted(self) -> int:
        """How many were stored by this request."""
        return self.size - len(self.duplicates) - len(self.refusals)


@dataclass
class Submission:
    """The events of one request by one publisher."""

    publisher: str
    size: int
    cut: Callable[[Admission, datetime, BeforeOf | None], Parts]
    named: Callable[[int], tuple[str, str]]
    """The source and the id of the event at a place."""
    requirements: Callable[[], Iterable[str | None]]
    """What the events ask of receivers, each once, as the log has it; None where one asks for anyone."""
    answers: Answers = NO_ANSWERS
    """What the publisher's policy rule says of those, as far as it was asked."""
    quick: str | None = None
    """The type of events that are all of one, come as columns, and are few."""
    barred: Mapping[int, HeadgateError] = field(default_factory=dict)
    """Events that are refused whatever they say, because their publisher had no right when they came."""
    ready: tuple[State, Append] | None = None
    sent_before: set[int] = field(default_factory=set)
    looked_for: set[int] = field(default_factory=set)
    sent_twice: set[int] = field(default_factory=set)
    accept: frozenset[Repeat] = frozenset()
    refusals: dict[int, HeadgateError] = field(default_factory=dict)
    parts: list[Admitted] = field(default_factory=list)
    places: list[Ints] = field(default_factory=list)
    encoded: Encoded | None = None
    sent: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def is_quick(self, admission: Admission) -> bool:
        """Does deciding it take little time, whatever the events are?"""
        return self.quick is not None and admission.asks_no_predicate(self.publisher, self.quick)

    def prepare(self, admission: Admission, now: datetime, window: int) -> None:
        """Decide and encode it before it is its turn, in case that no version comes in between."""
        self.decide(admission, now)
        if not self.refusals:  # else the log may have to be asked first
            append = self.encode(admission.state.version, micros(now), window)
            self.ready = None if append is None else (admission.state, append)

    def is_ready(self, state: State, written: int) -> bool:
        """Was it prepared at this state, and not before what is written already? If not, it has to be done again."""
        if self.ready is not None and (self.ready[0] is not state or self.ready[1].time < written):
            self.ready = None
        return self.ready is not None

    def taken(self) -> Append | None:
        """What was prepared, once."""
        ready, self.ready = self.ready, None
        return None if ready is None else ready[1]

    def decide(self, admission: Admission, now: datetime, before: BeforeOf | None = None) -> None:
        """Put every event to the rights of one version; `before` tells how much was published of late.

        `Unasked` where the publisher has a policy rule other than the one that `answers` are of.
        """
        self.parts, self.places = self.cut(admission.asking(self.answers.check), now, before)
        self.refusals = {
            int(places[row]): error
            for part, places in zip(self.parts, self.places, strict=True)
            for row, error in part.refusals.items()
            if int(places[row]) not in self.sent_before
        }
        self.refusals |= {at: error for at, error in self.barred.items() if at not in self.sent_before}

    def denied(self, time: int, window: int) -> tuple[list[int], Append] | None:
        """The events that the publisher may not publish now, and were not looked for in the log yet, if any.

        Whoever got no answer sends again, and may have lost the right since, or be held to a narrower policy rule.
        """
        places = [at for at, why in self.refusals.items() if isinstance(why, PublishDenied | PolicyRuleDenied)]
        places = [at for at in places if at not in self.looked_for]
        if not places:
            return None
        self.looked_for.update(places)
        sources, ids = zip(*map(self.named, places), strict=True)
        return places, Append(0, time, len(places), b"", hash_keys(self.publisher, sources, ids), window)

    def recall(self, places: Sequence[int], candidates: Sequence[Repeat], log: LogFile) -> None:
        """Tell which of the denied events were stored before: those are no refusals."""
        held = _Held(log)
        for one in candidates:
            if (self.publisher, *self.named(places[one.index])) in held.by(one):
                self.sent_before.add(places[one.index])
        self.refusals = {at: why for at, why in self.refusals.items() if at not in self.sent_before}

    def types(self) -> list[str]:
        """The types of which something was accepted."""
        return [part.table.column("type")[0].as_py() for part in self.parts if part.table.num_rows]

    def counts(self) -> list[tuple[str, int]]:
        """The types of which something was accepted, and how much that is without what was sent before."""
        gone = self.sent_before | self.sent_twice
        left = [_without(part, mine, gone) for part, mine in zip(self.parts, self.places, strict=True)]
        return [(part.table.column("type")[0].as_py(), part.table.num_rows) for part in left if part.table.num_rows]

    def encode(self, version: int, time: int, window: int) -> Append | None:
        """What is left to store, if anything."""
        self.sent_twice = set()
        return self._encode(version, time, window)

    def _encode(self, version: int, time: int, window: int) -> Append | None:
        left, places, gone = self.parts, self.places, self.sent_before | self.sent_twice
        if gone:
            left = [_without(part, mine, gone) for part, mine in zip(self.parts, self.places, strict=True)]
        encoded = encode_many(left, places)
        if encoded.count == 0:
            self.encoded, self.sent = None, np.zeros(0, np.int64)
            return None
        self.encoded = encoded
        self.sent = _places(encoded, places)
        ids, sources = self._identities(left)
        keys = hash_keys(self.publisher, sources, ids)
        within = repeats_within(keys, ids if isinstance(sources, str) else zip(sources, ids, strict=True))
        if within:
            self.sent_twice = {int(self.sent[at]) for at in within}
            return self._encode(version, time, window)
        return Append(version, time, encoded.count, encoded.blob, keys, window, self.accept)

    def _identities(self, parts: Sequence[Admitted]) -> tuple[Texts, str | list[str]]:
        """The ids and sources of what is to be stored, in its order; one source if all have the same."""
        tables = [part.table for part in parts if part.table.num_rows]
        assert self.encoded is not None
        stored = tables[0] if len(tables) == 1 else from_blob(self.encoded.blob)
        sources = stored.column("source")
        different = sources.unique()
        ids = stored.column("id").to_numpy()
        return ids, different[0].as_py() if len(different) == 1 else sources.to_pylist()

    def compare(self, candidates: Sequence[Repeat], log: LogFile) -> None:
        """Tell events sent before from others that only look alike, by what the log holds."""
        assert self.encoded is not None
        mine = from_blob(self.encoded.blob)
        held = _Held(log)
        for one in candidates:
            identity = (self.publisher, mine.column("source")[one.index].as_py(), mine.column("id")[one.index].as_py())
            if identity in held.by(one):
                self.sent_before.add(int(self.sent[one.index]))
            else:
                self.accept |= {one}

    def outcome(self) -> SubmissionOutcome:
        """What became of it, once it is stored."""
        duplicates = (self.sent_before | self.sent_twice) - self.refusals.keys()
        return SubmissionOutcome(self.size, frozenset(duplicates), self.refusals)


def of_drafts(publisher: str, drafts: Sequence[Draft], barred: Mapping[int, HeadgateError] | None = None) -> Submission:
    """Events that came one by one; those that are barred are refused as said, unless they were stored before."""
    barred = barred or {}
    places = np.array([at for at in range(len(drafts)) if at not in barred], np.int64)
    judged = [drafts[at] for at in places.tolist()] if barred else drafts

    def cut(admission: Admission, now: datetime, before: BeforeOf | None) -> Parts:
        parts, mine = admission.admit_drafts(judged, now, before)
        return parts, [places[rows] for rows in mine]

    return Submission(
        publisher,
        len(drafts),
        cut,
        lambda at: (drafts[at].source, drafts[at].id),
        lambda: _each(required([draft.requires for draft in judged], {})),
        barred=barred,
    )


def of_table(
    publisher: str,
    table: pa.Table,
    default: str | None,
    origin: str | None = None,
    barred: Mapping[str, HeadgateError] | None = None,
) -> Submission:
    """Events that came as an Arrow table, from somewhere; those of barred types are refused as said."""
    every = by_type(table, default)
    pieces = [piece for piece in every if piece.type not in (barred or {})]
    refused = {int(row): error for piece in every for error in _of(barred, piece.type) for row in piece.rows}

    def cut(admission: Admission, now: datetime, before: BeforeOf | None) -> Parts:
        found = []
        for piece in pieces:
            attributes = admission.attributes(piece.type)
            columns = from_arrow(piece.table, piece.type, publisher, attributes, origin)
            counted = None if before is None or not admission.asks_rate else before(publisher, piece.type)
            found.append(admission.admit(columns, now, counted))
        return found, [piece.rows for piece in pieces]

    def named(at: int) -> tuple[str, str]:
        source = table.column("source")[at].as_py() if "source" in table.column_names else None
        return source or "", table.column("id")[at].as_py() or ""

    def requirements() -> Iterator[str | None]:
        for piece in pieces:
            with suppress(HeadgateError):  # the writer meets it again, and answers
                yield from _each(requirements_in(piece.table))

    quick = every[0].type if len(every) == len(pieces) == 1 and table.num_rows <= QUICK_EVENTS else None
    return Submission(publisher, table.num_rows, cut, named, requirements, quick=quick, barred=refused)


def _of(barred: Mapping[str, HeadgateError] | None, type_name: str) -> Iterator[HeadgateError]:
    if barred is not None and type_name in barred:
        yield barred[type_name]


def _each(found: Required | None) -> Iterator[str | None]:
    """Each distinct requirement of some events."""
    if found is None or (found.codes == NONE).any():
        yield None
    yield from () if found is None else found.texts


class _Held:
    """Who the events of some appends are, each append read once."""

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self._known: dict[tuple[str, int], frozenset[tuple[str, str, str]]] = {}

    def by(self, one: Repeat) -> frozenset[tuple[str, str, str]]:
        """The publisher, source and id of every event of an append."""
        key = one.stream, one.first
        if key not in self._known:
            table = from_blob(self._log.append_holding(*key).blob)
            columns = (table.column(name).to_pylist() for name in ("publisher", "source", "id"))
            self._known[key] = frozenset(zip(*columns, strict=True))
        return self._known[key]


def _without(part: Admitted, places: Ints, gone: set[int]) -> Admitted:
    """A part without the events at some places of the request."""
    rows = part.rows
    keep = np.array([int(places[row]) not in gone for row in rows.tolist()], np.bool_)
    if keep.all():
        return part
    accepted = part.accepted.copy()
    accepted[rows[~keep]] = False
    return replace(part, accepted=accepted, table=part.table.filter(pa.array(keep)))


def _places(encoded: Encoded, places: Sequence[Ints]) -> Ints:
    """For each stored event its place in the request."""
    if len(places) == 1:
        return places[0][encoded.row]
    found = np.zeros(encoded.count, np.int64)
    for number, mine in enumerate(places):
        at = encoded.part == number
        found[at] = mine[encoded.row[at]]
    return found
