"""Do publisher and subscriber meet each other's requirements? Rule D11 over pairs of event and subscription.

Guarantees: `met` says for every pair what `decide.deliver.admits` and `accepts` say: the event's requirement and the
publisher's policy rule of the subscriber's attributes, the subscription's requirement of the publisher's, all as they
were at the event's version. What each event asks for is numbered once a batch, so that a pair costs a look-up or two;
where nobody requires anything it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from headgate.pipeline.index.index import PolicyIndex
from headgate.pipeline.index.layout import PUBLISHER
from headgate.pipeline.index.requirements import NONE, Truths, requirement_of
from headgate.pipeline.log.codec import EventBatch, Flags, Ints


@dataclass(frozen=True, slots=True)
class _Asked:
    """What each event of a batch asks of receivers, by number, and the attribute set of its publisher."""

    epochs: Ints
    requires: Ints | None
    policies: Ints | None
    senders: Ints | None


class Agreed:
    """The requirements of one index, and those of the batches that are decided with it."""

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
        required = batch.requirements()
        any_policy, any_demand = any(self._policies), len(self._demands) > 0
        if required is None and not any_policy and not any_demand:
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
        return _Asked(epochs, requires, policies, senders)

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
