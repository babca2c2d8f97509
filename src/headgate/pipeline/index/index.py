"""The policy and the subscriptions as numbers: what a worker needs to decide a batch.

Guarantees: a `PolicyIndex` is read-only data, the same for every worker. A holder is a principal at one origin that
counts some of its memberships; those with the same ordered rights share a profile, and those for whom the event policy
says the same share a class. Entries stay ordered (D5); a forbid holds the rows where its condition is false, so that an
unknown one forbids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.decide.truth import PredicateFunction, World
from headgate.model.changes import RegisterPredicate, Row
from headgate.model.conditions import Condition
from headgate.model.state import State
from headgate.pipeline.event_policy.compiled import Policy, PolicyFacts
from headgate.pipeline.index.requirements import Attributes
from headgate.pipeline.index.shapes import Interned, Shape
from headgate.pipeline.log.codec import AttributeSlot, Flags, Ints, Slot, Words
from headgate.pipeline.truth import ConditionFacts

ALWAYS = -1
"""The condition number of an entry whose condition is `true`."""

OPEN = np.iinfo(np.int64).max
"""The closing version of what is still in force."""


@dataclass
class Types:
    """The event types, numbered in order of declaration."""

    names: list[str]
    numbers: dict[str, int]
    layouts: list[Mapping[str, AttributeSlot]]
    lineage: npt.NDArray[np.int32]
    words: int
    slots: list[Slot]
    bits: npt.NDArray[np.int32]
    """For each type and slot the attribute's bit, or -1."""


@dataclass
class Subscriptions:
    """Every subscription, numbered in order of opening."""

    holder: npt.NDArray[np.int32]
    opened: Ints
    closed: Ints
    history: Flags
    since_version: Ints
    since_time: Ints
    """For those that ask for history: the earliest version and time (microseconds) they ask for."""
    several: Flags
    """Does the filter have several rows, so that an event may match it twice?"""
    requires: npt.NDArray[np.int32]
    """The number of what each requires of publishers, or -1."""


@dataclass
class Epoch:
    """The policy from one version until the next that changed it."""

    version: int
    profile: npt.NDArray[np.int32]
    """For each holder its profile."""
    subject: npt.NDArray[np.int32]
    """For each holder the number of its attribute set."""
    policy_rules: Mapping[str, Condition]
    """What each publisher's policy rule asks of receivers."""
    senders: Mapping[str, int]
    """The attribute set of each publisher that has one, where any subscription asks for it."""
    has_senders: bool
    groups: Mapping[str, frozenset[str]]
    relations: Mapping[str, frozenset[Row]]
    predicates: Mapping[str, RegisterPredicate]
    policy: int
    """The number of its event policy."""
    policy_facts: PolicyFacts | None
    """What the event policy looks at; None if there is no event policy."""
    clients: npt.NDArray[np.int32]
    """For each holder its class in the event policy, if there is one."""

    def facts(self, functions: Mapping[str, PredicateFunction]) -> ConditionFacts:
        """What conditions may look at."""
        predicates = {name: functions[p.digest + p.target] for name, p in self.predicates.items()}
        return ConditionFacts(World(State(groups=self.groups, relations=self.relations), predicates=predicates))


@dataclass
class Rights:
    """The ordered entries of every profile on every type, and their conditions as rows."""

    keys: Ints
    """`profile * types + type`, sorted, of those that have entries."""
    starts: Ints
    chains: Ints
    """For each key where entries of chains begin; event policy stands before them."""
    grants: Flags
    whole: Flags
    masks: Words
    conditions: Ints
    condition_starts: Ints
    clause_shape: npt.NDArray[np.int32]
    clause_row: npt.NDArray[np.int32]
    shapes: list[Shape]
    known: Interned
    rests: list[tuple[Any, ...]]


@dataclass
class PolicyIndex:
    """Everything a worker needs to decide."""

    version: int
    types: Types
    subscriptions: Subscriptions
    filters: list[Shape]
    known: Interned
    rests: list[tuple[Any, ...]]
    rights: Rights
    epochs: list[Epoch]
    predicate_sources: Mapping[str, str]
    """Where the workers find the predicates' modules: digest to path."""
    sets: Sequence[Attributes]
    """The distinct attribute sets of principals."""
    demands: Sequence[Condition]
    """What subscriptions require of publishers, each once."""
    policies: Mapping[int, Policy]
    """The event policies of the epochs, by number."""

    def epoch_of(self, versions: Ints) -> Ints:
        """The number of the epoch in force at each version."""
        starts = np.array([epoch.version for epoch in self.epochs], np.int64)
        epochs = np.searchsorted(starts, versions, "right") - 1
        if len(epochs) and epochs.min() < 0:
            raise ValueError("the index does not reach back to a version that an event needs")
        return epochs
