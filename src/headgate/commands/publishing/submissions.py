"""What publishers send: the events of one request, and what became of them.

Guarantees: a submission does not change; it can be put to any version of the ledger, again if need be. Every event of
it ends as accepted, duplicate or refused, in the order in which it was sent. What a policy rule says of requirements is
asked before events are decided, and is for one rule: where that has changed meanwhile, or a requirement was not asked
about, deciding ends with `Unasked`, and never with a guess (D11).
Leaves out: how it gets into the log (`attempts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from headgate.model.errors import HeadgateError, PolicyRuleDenied
from headgate.model.events import Draft
from headgate.model.expressions import Condition
from headgate.model.state import State
from headgate.pipeline.admission.admission import Admission, Admitted, BeforeOf
from headgate.pipeline.admission.columns import by_type, from_arrow, requirements_in
from headgate.pipeline.index.requirements import NONE, Required, required, text_of
from headgate.pipeline.log.codec import Ints

QUICK_EVENTS: Final = 2_000
"""Events as columns that are decided and encoded in a few milliseconds."""

Parts: TypeAlias = tuple[list[Admitted], list[Ints]]
"""Events cut by type: what became of each part, and the place of each of its events in the request."""

StoredAt: TypeAlias = tuple[str, int]
"""A stream, and the number of an event in it."""


class Unasked(Exception):
    """The policy rule of a publisher is not the one that was asked about."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a policy rule says of some requirements: the refusal, or None where it is wider."""

    rule: str = ""
    found: Mapping[str | None, HeadgateError | None] = field(default_factory=dict)
    """By the text that the log has for a requirement."""

    def is_for(self, state: State, publisher: str) -> bool:
        """Is this still the rule?"""
        return repr(state.policy_rules.get(publisher)) == self.rule

    def check(self, state: State, publisher: str, requires: Condition | None) -> None:
        """Refuse a requirement, as `solver.policy_rule.check_policy_rule` does."""
        text = None if requires is None else text_of(requires)
        if not self.is_for(state, publisher) or text not in self.found:
            raise Unasked
        refusal = self.found[text]
        if refusal is not None:
            raise PolicyRuleDenied(refusal.message, remedy=refusal.remedy)


NO_ANSWERS: Final = Answers()


@dataclass(frozen=True, slots=True)
class SubmissionOutcome:
    """What became of the events of a request, by their places in it; those in neither list were accepted."""

    size: int
    duplicates: frozenset[int]
    refusals: Mapping[int, HeadgateError]
    stored: Callable[[], dict[int, StoredAt]] = dict
    """Where the log has each event that was not refused; worked out only when it is asked for."""

    @property
    def accepted(self) -> int:
        """How many were stored by this request."""
        return self.size - len(self.duplicates) - len(self.refusals)


@dataclass(frozen=True, slots=True)
class Submission:
    """The events of one request by one publisher."""

    publisher: str
    size: int
    cut: Callable[[Admission, datetime, BeforeOf | None], Parts]
    """Put every event to the rights of one version, type by type."""
    named: Callable[[int], tuple[str, str]]
    """The source and the id of the event at a place."""
    requirements: Callable[[], Iterable[str | None]]
    """What the events ask of receivers, each once, as the log has it; None where one asks for anyone."""
    answers: Answers | None = NO_ANSWERS
    """What the publisher's policy rule says of those, as far as it was asked; None where it is asked as events are
    decided, however long that takes.
    """
    quick: str | None = None
    """The type of events that are all of one, come as columns, and are few."""
    barred: Mapping[int, HeadgateError] = field(default_factory=dict)
    """Events that are refused whatever they say, because their publisher had no right when they came."""

    def is_quick(self, admission: Admission) -> bool:
        """Does deciding it take little time, whatever the events are?"""
        return self.quick is not None and admission.asks_no_predicate(self.publisher, self.quick)


def of_drafts(
    publisher: str,
    drafts: Sequence[Draft],
    barred: Mapping[int, HeadgateError] | None = None,
    answers: Answers | None = NO_ANSWERS,
) -> Submission:
    """Events that came one by one; those that are barred are refused as said, unless they were stored before."""
    barred = barred or {}
    places = np.array([at for at in range(len(drafts)) if at not in barred], np.int64)
    judged = [drafts[at] for at in places.tolist()] if barred else drafts

    def cut(admission: Admission, now: datetime, before: BeforeOf | None) -> Parts:
        parts, mine = admission.admit_drafts(judged, now, before)
        return parts, [places[rows] for rows in mine]

    return Submission(
        publisher=publisher,
        size=len(drafts),
        cut=cut,
        named=lambda at: (drafts[at].source, drafts[at].id),
        requirements=lambda: _each(required([draft.requires for draft in judged], {})),
        answers=answers,
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
    barred = barred or {}
    every = by_type(table, default)
    pieces = [piece for piece in every if piece.type not in barred]
    refused = {int(row): barred[piece.type] for piece in every if piece.type in barred for row in piece.rows}

    def cut(admission: Admission, now: datetime, before: BeforeOf | None) -> Parts:
        parts = []
        for piece in pieces:
            attributes = admission.attributes(piece.type)
            columns = from_arrow(piece.table, piece.type, publisher, attributes, origin, admission.times(piece.type))
            counted = None if before is None or not admission.asks_rate else before(publisher, piece.type)
            parts.append(admission.admit(columns, now, counted))
        return parts, [piece.rows for piece in pieces]

    def named(at: int) -> tuple[str, str]:
        source = table.column("source")[at].as_py() if "source" in table.column_names else None
        return source or "", table.column("id")[at].as_py() or ""

    def requirements() -> Iterator[str | None]:
        for piece in pieces:
            with suppress(HeadgateError):  # the writer meets it again, and answers
                yield from _each(requirements_in(piece.table))

    return Submission(
        publisher=publisher,
        size=table.num_rows,
        cut=cut,
        named=named,
        requirements=requirements,
        quick=every[0].type if len(every) == len(pieces) == 1 and table.num_rows <= QUICK_EVENTS else None,
        barred=refused,
    )


def _each(asked: Required | None) -> Iterator[str | None]:
    """Each distinct requirement of some events."""
    if asked is None or (asked.codes == NONE).any():
        yield None
    yield from () if asked is None else asked.texts
