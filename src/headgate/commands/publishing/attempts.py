"""A submission on its way into the log: decided and encoded, at one version after another until it is stored.

Guarantees: an event that was found to be sent before stays found, also where the right to publish it has ended since,
or a policy rule now keeps it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from headgate.commands.publishing.submissions import StoredAt, Submission, SubmissionOutcome
from headgate.model.errors import HeadgateError, PolicyRuleDenied, PublishDenied
from headgate.model.state import State
from headgate.model.values import micros
from headgate.pipeline.admission.admission import Admission, Admitted, BeforeOf, Encoded, encode_many
from headgate.pipeline.log.appends import Append, Counted, Repeat, Texts, hash_keys, repeats_within
from headgate.pipeline.log.codec import Ints, from_blob
from headgate.pipeline.log.event_log import EventLog


class Attempt:
    """One submission, what was decided about it so far, and what was learned of its events from the log."""

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.refusals: dict[int, HeadgateError] = {}
        self._parts: list[Admitted] = []
        self._places: list[Ints] = []
        self._ready: tuple[State, Append] | None = None
        self._sent_before: dict[int, StoredAt] = {}
        self._sent_twice: dict[int, int] = {}
        self._looked_for: set[int] = set()
        self._accept: frozenset[Repeat] = frozenset()
        self._encoded: Encoded | None = None
        self._appended: Ints = np.zeros(0, np.int64)

    # -- before its turn --------------------------------------------------------------------------------------

    def prepare(self, admission: Admission, now: datetime, window: int) -> None:
        """Decide and encode it before it is its turn, in case that no version comes in between."""
        self.decide(admission, now)
        if not self.refusals:  # else the log may have to be asked first
            append = self.encode(admission.state.version, micros(now), window)
            self._ready = None if append is None else (admission.state, append)

    def is_ready(self, state: State, written: int) -> bool:
        """Was it prepared at this state, and not before what is written already? If not, it has to be done again."""
        if self._ready is not None and (self._ready[0] is not state or self._ready[1].time < written):
            self._ready = None
        return self._ready is not None

    def take_ready(self) -> Append | None:
        """What was prepared, once."""
        ready, self._ready = self._ready, None
        return None if ready is None else ready[1]

    # -- deciding ---------------------------------------------------------------------------------------------

    def decide(self, admission: Admission, now: datetime, before: BeforeOf | None = None) -> None:
        """Put every event to the rights of one version; `before` tells how much was published of late.

        `Unasked` where the publisher has a policy rule other than the one that the submission has answers of.
        """
        sent = self.submission
        asked = admission if sent.answers is None else admission.asking(sent.answers.check)
        self._parts, self._places = sent.cut(asked, now, before)
        self.refusals = {
            int(places[row]): error
            for part, places in zip(self._parts, self._places, strict=True)
            for row, error in part.refusals.items()
            if int(places[row]) not in self._sent_before
        }
        self.refusals |= {at: error for at, error in sent.barred.items() if at not in self._sent_before}

    def types(self) -> list[str]:
        """The types of which something was accepted."""
        return [_type_of(part) for part in self._parts if part.table.num_rows]

    def counts(self) -> tuple[Counted, ...]:
        """How many events of each type were accepted, without what was sent before."""
        publisher = self.submission.publisher
        return tuple((publisher, _type_of(part), part.table.num_rows) for part in self._new() if part.table.num_rows)

    def _new(self) -> list[Admitted]:
        """What was accepted, without what was sent before."""
        gone = self._sent_before.keys() | self._sent_twice.keys()
        if not gone:
            return self._parts
        return [_without(part, places, gone) for part, places in zip(self._parts, self._places, strict=True)]

    # -- what is in the log already ---------------------------------------------------------------------------

    def denied(self, time: int, window: int) -> tuple[list[int], Append] | None:
        """The events that the publisher may not publish now, and were not looked for in the log yet, if any.

        Whoever got no answer sends again, and may have lost the right since, or be held to a narrower policy rule.
        """
        places = [at for at, why in self.refusals.items() if isinstance(why, PublishDenied | PolicyRuleDenied)]
        places = [at for at in places if at not in self._looked_for]
        if not places:
            return None
        self._looked_for.update(places)
        sources, ids = zip(*map(self.submission.named, places), strict=True)
        keys = hash_keys(self.submission.publisher, sources, ids)
        return places, Append(0, time, len(places), b"", keys, window)

    def recall(self, places: Sequence[int], candidates: Sequence[Repeat], log: EventLog) -> None:
        """Tell which of the denied events were stored before: those are no refusals."""
        stored = _StoredEvents(log)
        for candidate in candidates:
            index = places[candidate.index]
            seq = stored.find(candidate, self.submission.publisher, *self.submission.named(index))
            if seq is not None:
                self._sent_before[index] = candidate.stream, seq
        self.refusals = {at: why for at, why in self.refusals.items() if at not in self._sent_before}

    def compare(self, candidates: Sequence[Repeat], log: EventLog) -> None:
        """Tell events sent before from others that only look alike, by what the log holds."""
        assert self._encoded is not None
        mine = from_blob(self._encoded.blob)
        stored = _StoredEvents(log)
        for candidate in candidates:
            source, id = (mine.column(name)[candidate.index].as_py() for name in ("source", "id"))
            seq = stored.find(candidate, self.submission.publisher, source, id)
            if seq is not None:
                self._sent_before[int(self._appended[candidate.index])] = candidate.stream, seq
            else:
                self._accept |= {candidate}

    # -- encoding ---------------------------------------------------------------------------------------------

    def encode(self, version: int, time: int, window: int) -> Append | None:
        """What is left to store, if anything."""
        self._sent_twice = {}
        return self._encode(version, time, window)

    def _encode(self, version: int, time: int, window: int) -> Append | None:
        left = self._new()
        encoded = encode_many(left, self._places)
        if encoded.count == 0:
            self._encoded, self._appended = None, np.zeros(0, np.int64)
            return None
        self._encoded = encoded
        self._appended = _places_of(encoded, self._places)
        ids, sources = _identities(encoded, left)
        keys = hash_keys(self.submission.publisher, sources, ids)
        within = repeats_within(keys, ids if isinstance(sources, str) else zip(sources, ids, strict=True))
        if within:
            self._sent_twice = {int(self._appended[at]): int(self._appended[first]) for at, first in within.items()}
            return self._encode(version, time, window)
        return Append(version, time, encoded.count, encoded.blob, keys, window, self._accept)

    def outcome(self, stream: str, first: int = 0) -> SubmissionOutcome:
        """What became of it, once what was left of it is stored from a sequence number on."""
        appended, before, twice = self._appended, self._sent_before, self._sent_twice

        def stored() -> dict[int, StoredAt]:
            at = {int(place): (stream, first + number) for number, place in enumerate(appended)}
            return {**at, **{place: at[same] for place, same in twice.items()}, **before}

        duplicates = (before.keys() | twice.keys()) - self.refusals.keys()
        return SubmissionOutcome(self.submission.size, frozenset(duplicates), self.refusals, stored)


class _StoredEvents:
    """Who the events of some appends are, each append read once."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._known: dict[tuple[str, int], Mapping[tuple[str, str, str], int]] = {}

    def find(self, append: Repeat, publisher: str, source: str, id: str) -> int | None:
        """The number of an event in an append, if that holds it."""
        key = append.stream, append.first
        if key not in self._known:
            table = from_blob(self._log.append_holding(*key).blob)
            columns = (table.column(name).to_pylist() for name in ("publisher", "source", "id"))
            self._known[key] = {who: append.first + at for at, who in enumerate(zip(*columns, strict=True))}
        return self._known[key].get((publisher, source, id))


def _type_of(part: Admitted) -> str:
    return str(part.table.column("type")[0].as_py())


def _identities(encoded: Encoded, parts: Sequence[Admitted]) -> tuple[Texts, str | list[str]]:
    """The ids and sources of what is to be stored, in its order; one source if all have the same."""
    tables = [part.table for part in parts if part.table.num_rows]
    stored = tables[0] if len(tables) == 1 else from_blob(encoded.blob)
    sources = stored.column("source")
    different = sources.unique()
    ids = stored.column("id").to_numpy()
    return ids, different[0].as_py() if len(different) == 1 else sources.to_pylist()


def _without(part: Admitted, places: Ints, gone: set[int]) -> Admitted:
    """A part without the events at some places of the request."""
    rows = part.rows
    keep = np.array([int(places[row]) not in gone for row in rows.tolist()], np.bool_)
    if keep.all():
        return part
    accepted = part.accepted.copy()
    accepted[rows[~keep]] = False
    return replace(part, accepted=accepted, table=part.table.filter(pa.array(keep)))


def _places_of(encoded: Encoded, places: Sequence[Ints]) -> Ints:
    """For each stored event its place in the request."""
    if len(places) == 1:
        return places[0][encoded.row]
    every = np.zeros(encoded.count, np.int64)
    for number, mine in enumerate(places):
        at = encoded.part == number
        every[at] = mine[encoded.row[at]]
    return every
