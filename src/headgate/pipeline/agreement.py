"""Do publisher and subscriber meet each other's requirements? Rule D11 for many pairs at once.

Guarantees: `Truths.hold` gives what `decide.check.match` gives. A rule is put to the attribute sets that are in use by
the one evaluator of columns (`pipeline.truth`), once for each way in which the attributes that it names have kinds, and
a pair of event and subscription costs a look-up in a matrix.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import expressions as tree
from headgate.model.expressions import Condition, Operand
from headgate.model.values import Kind, Value, kind_of
from headgate.pipeline.index.requirements import NONE, requirement_of
from headgate.pipeline.log.codec import ARROW, PUBLISHER, STORE, EventBatch, Flags, Ints, Numbered, stored
from headgate.pipeline.truth import ColumnRows, prepared, truth

if TYPE_CHECKING:
    from headgate.pipeline.index.index import PolicyIndex

Attributes: TypeAlias = Mapping[str, Value]

MAX_CELLS: Final = 1 << 26
"""Pairs of rule and attribute set that a matrix has room for; past it only the pairs asked about are worked out."""


class Sets(Numbered[Attributes]):
    """Distinct attribute sets, numbered; number 0 has no attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.number_of({})

    def number_of(self, attributes: Attributes) -> int:
        """The number of an attribute set, new if need be."""
        return self.number(tuple((name, type(value), value) for name, value in attributes.items()), attributes)


class Truths:
    """Which rules are true for which attribute sets; each rule is put to all of them when it is first asked about."""

    def __init__(self, sets: Sequence[Attributes]) -> None:
        self._sets = sets
        self._tables: dict[tuple[str, ...], list[tuple[list[int], ColumnRows]]] = {}
        self._rules: Numbered[Condition] = Numbered()
        self._matrix = np.zeros((0, len(sets)), np.bool_)

    @property
    def size(self) -> int:
        """How many rules there are."""
        return len(self._rules)

    def number(self, rule: Condition) -> int:
        """The number of a rule, by its exact form: rules that are equal need not mean the same."""
        return self._rules.number(repr(rule), rule)

    def forget(self, keep: int) -> None:
        """Let go of all rules but the first, if there are more than the matrix has room for."""
        if len(self._rules) * len(self._sets) > MAX_CELLS:
            kept, self._rules = self._rules[:keep], Numbered()
            for rule in kept:
                self.number(rule)
            self._matrix = self._matrix[:keep].copy()

    def hold(self, rules: Ints, sets: Ints) -> Flags:
        """Is each rule true for the attribute set beside it?"""
        true: Flags = np.zeros(len(rules), np.bool_)
        if len(self._rules) * len(self._sets) <= MAX_CELLS:
            new = self._rules[len(self._matrix) :]
            if new:
                self._matrix = np.concatenate([self._matrix, list(map(self._true, new))])
            true = self._matrix[rules, sets]
        else:
            for number in np.unique(rules).tolist():
                at = np.flatnonzero(rules == number)
                true[at] = self._true(self._rules[number])[sets[at]]
        return true

    def _true(self, rule: Condition) -> Flags:
        """For which attribute sets is a rule true?"""
        condition = tree.rewrite_operands(rule, _of_a_row)
        true = np.zeros(len(self._sets), np.bool_)
        for rows, known in self._rows(tuple(sorted(tree.subjects(rule)))):
            asked = np.ones(len(rows), np.bool_)
            true[rows] = truth(prepared(condition, {}, known.kinds), known, asked).true
        return true

    def _rows(self, names: tuple[str, ...]) -> list[tuple[list[int], ColumnRows]]:
        """The attribute sets as rows with these columns; those in which each has the same kind go together."""
        if names not in self._tables:
            alike: dict[tuple[Kind | None, ...], list[int]] = {}
            for number, attributes in enumerate(self._sets):
                alike.setdefault(tuple(kind_of(attributes.get(name)) for name in names), []).append(number)
            self._tables[names] = [
                (rows, self._columns(rows, {n: kind for n, kind in zip(names, found, strict=True) if kind is not None}))
                for found, rows in alike.items()
            ]
        return self._tables[names]

    def _columns(self, rows: list[int], kinds: Mapping[str, Kind]) -> ColumnRows:
        arrays = {
            name: pa.array([stored(self._sets[number][name], kind) for number in rows], ARROW[STORE[kind]])
            for name, kind in kinds.items()
        }
        return ColumnRows(kinds, arrays)


def _of_a_row(operand: Operand) -> Operand:
    """What a rule says of a subject, as of a row with an attribute in each column."""
    return tree.Attribute(operand.name) if isinstance(operand, tree.Subject) else operand


@dataclass(frozen=True, slots=True)
class _Asked:
    """What each event of a batch asks of receivers, by number, and the attribute set of its publisher."""

    epochs: Ints
    requires: Ints | None
    policies: Ints | None
    senders: Ints | None
    readers: tuple[npt.NDArray[np.bool_], Ints] | None
    """Which holders are among the readers of an event, and for each event the number of its readers."""


class Agreed:
    """Do publisher and subscriber meet each other's requirements? Rule D11 over pairs, as `decide.deliver` has it.

    What each event asks for is numbered once a batch, so that a pair costs a look-up or two.
    """

    def __init__(self, index: PolicyIndex) -> None:
        self.index = index
        self._truths = Truths(index.sets)
        self._demands = np.array([self._truths.number(one) for one in index.demands], np.int64)
        self._policies = [
            {publisher: self._truths.number(rule) for publisher, rule in epoch.policy_rules.items()}
            for epoch in index.epochs
        ]
        self._own = self._truths.size
        self._made: tuple[EventBatch, _Asked | None] | None = None

    def met(self, batch: EventBatch, events: Ints, owners: npt.NDArray[np.int32]) -> Flags | None:
        """Which pairs meet all that is required; None if nothing is."""
        asked = self._asked(batch)
        if asked is None:
            return None
        keep = np.ones(len(events), np.bool_)
        for rules in (asked.requires, asked.policies):
            if rules is not None:
                at = np.flatnonzero(keep & (rules[events] != NONE))
                sets = self._receivers(asked.epochs[events[at]], owners[at])
                keep[at] = self._truths.hold(rules[events[at]], sets)
        if asked.readers is not None:
            allowed, codes = asked.readers
            at = np.flatnonzero(keep & (codes[events] != NONE))
            keep[at] = allowed[codes[events[at]], self.index.subscriptions.holder[owners[at]]]
        if asked.senders is not None:
            demands = self.index.subscriptions.requires[owners]
            at = np.flatnonzero(keep & (demands != NONE))
            keep[at] = self._truths.hold(self._demands[demands[at]], asked.senders[events[at]])
        return keep

    def _receivers(self, epochs: Ints, owners: npt.NDArray[np.int32]) -> Ints:
        """The attribute set of each subscription's principal."""
        holders = self.index.subscriptions.holder[owners]
        used = np.unique(epochs)
        subjects = np.zeros(len(owners), np.int64)
        for epoch in used.tolist():
            at: Ints | slice = slice(None) if len(used) == 1 else np.flatnonzero(epochs == epoch)
            subjects[at] = self.index.epochs[epoch].subject[holders[at]]
        return subjects

    # -- what a batch asks ------------------------------------------------------------------------------------

    def _asked(self, batch: EventBatch) -> _Asked | None:
        if self._made is None or self._made[0] is not batch:
            self._made = batch, self._ask(batch)
        return self._made[1]

    def _ask(self, batch: EventBatch) -> _Asked | None:
        required, readers = batch.requirements(), batch.readers()
        any_policy, any_demand = any(self._policies), len(self._demands) > 0
        if required is None and readers is None and not any_policy and not any_demand:
            return None
        self._truths.forget(self._own)
        requires = None
        if required is not None:
            texts, codes = required
            numbers = [self._truths.number(requirement_of(text)) for text in texts]
            requires = np.array([*numbers, NONE], np.int64)[codes]  # an absent one is -1, and so the last
        epochs = self.index.epoch_of(batch.version)
        policies = senders = None
        if any_policy:
            policies = self._by_publisher(batch, epochs, lambda epoch, who: self._policies[epoch].get(who, NONE))
        if any_demand:
            senders = self._by_publisher(batch, epochs, lambda epoch, who: self.index.epochs[epoch].senders.get(who, 0))
        return _Asked(epochs, requires, policies, senders, None if readers is None else self._allowed(*readers))

    def _allowed(self, texts: list[str], codes: Ints) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Who is among some readers, holder by holder (D16)."""
        named = [frozenset(json.loads(text)) for text in texts]
        allowed = [[principal in some for principal in self.index.holders] for some in named]
        return np.array(allowed, np.bool_).reshape(len(named), len(self.index.holders)), codes

    @staticmethod
    def _by_publisher(batch: EventBatch, epochs: Ints, of: Callable[[int, str], int]) -> Ints:
        """A number for each event, from its publisher at its version."""
        encoded = batch.texts(PUBLISHER).dictionary_encode()
        names, indices = encoded.dictionary.to_pylist(), pc.fill_null(encoded.indices, 0).to_numpy()
        numbers = np.zeros(len(batch), np.int64)
        for epoch in np.unique(epochs).tolist():
            table = np.array([of(epoch, name) for name in names], np.int64)
            at = np.flatnonzero(epochs == epoch)
            numbers[at] = table[indices[at]]
        return numbers
