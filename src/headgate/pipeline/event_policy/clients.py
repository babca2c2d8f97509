"""The clients of an event policy: what their credentials count for, once for each distinct set of them (OASIS 7.4).

Guarantees: clients whose credentials say the same share a class. A class has, for each entry, whether some choice of
credentials counts, and for entries with mixed terms the choices themselves, as numbers. Classes are kept for as long as
the policy, and what its client terms look at, stay the same; a membership that begins or ends costs look-ups for the
holders, and working out only for sets of credentials that were never seen.
A client with more than `MAX_CHOICES` choices for an entry is treated as if nothing were known of its credentials: the
entry gives it nothing if it is positive, and keeps it out if it is negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.decide.event_policy import means
from headgate.decide.rolebook import alike
from headgate.model.expressions import Argument, Condition, Constant, Not, Related, RoleRef, Variable
from headgate.model.limits import MAX_CHOICES
from headgate.model.roles import Membership
from headgate.model.state import State
from headgate.pipeline.event_policy import compiled as terms
from headgate.pipeline.event_policy.compiled import (
    Choices,
    Compiled,
    CredentialPart,
    Evaluator,
    Holder,
    Policy,
    PolicyFacts,
)
from headgate.pipeline.log.codec import Numbered, mask_of


@dataclass(slots=True)
class _Chosen:
    """The choices of every class for one part, as they come; and which conditions of its group they must meet."""

    part: CredentialPart
    asks: tuple[tuple[int, bool], ...]
    rights: list[dict[Any, int]]
    counts: list[int] = field(default_factory=list)
    rows: list[tuple[int, ...]] = field(default_factory=list)

    def meets(self, truths: Sequence[int], least: int) -> bool:
        """Does a choice count for which the conditions of the group have these truths?"""
        for at, inverse in self.asks:
            least = min(least, terms.TRUE - truths[at] if inverse else truths[at])
        return least == terms.TRUE or (self.part.negative and least != terms.FALSE)

    def row(self, bound: Mapping[str, Argument], evaluator: Evaluator) -> tuple[int, ...]:
        """What mixed terms look at in a choice, as numbers."""
        made = []
        for known, rights in zip(self.rights, self.part.columns, strict=True):
            values = terms.exact_key(tuple(evaluator.value(one, bound) for one in rights))
            made.append(known.setdefault(values, len(known)))
        return (*made, *(terms.code(evaluator.truth(one, bound)) for one in self.part.truths))

    def frozen(self) -> Choices:
        """As arrays."""
        wide = len(self.part.columns) + len(self.part.truths)
        rows = np.array(self.rows, np.int64).reshape(len(self.rows), wide)
        split = len(self.part.columns)
        return Choices(
            np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64),
            [np.ascontiguousarray(rows[:, at]) for at in range(split)],
            [rows[:, at].astype(np.int8) for at in range(split, wide)],
            [[tuple(value for _, value in key) for key in known] for known in self.rights],
        )


@dataclass(slots=True)
class _Group:
    """Parts that ask for the same credentials: these are chosen, and each condition is put to them, once for all."""

    refs: tuple[RoleRef, ...]
    used: frozenset[str]
    conditions: list[Condition]
    chosen: list[_Chosen]


def _groups(parts: Sequence[CredentialPart]) -> tuple[list[_Group], list[_Chosen]]:
    """The parts by the credentials that they ask for, and all of them in order."""
    together: dict[str, list[CredentialPart]] = {}
    for part in parts:
        together.setdefault(repr(part.refs), []).append(part)
    made: dict[int, _Chosen] = {}
    groups = []
    for mine in together.values():
        conditions: Numbered[Condition] = Numbered()
        for part in mine:
            asks = []
            for condition in part.conditions:
                plain = condition.arg if isinstance(condition, Not) else condition
                asks.append((conditions.number(repr(plain), plain), plain is not condition))
            made[id(part)] = _Chosen(part, tuple(asks), [{} for _ in part.columns])
        used = frozenset().union(*(part.used for part in mine))
        groups.append(_Group(mine[0].refs, used, conditions, [made[id(part)] for part in mine]))
    return groups, [made[id(part)] for part in parts]


class Clients:
    """The classes of clients of one compiled policy: what each distinct set of credentials counts for."""

    def __init__(self, compiled: Compiled, facts: PolicyFacts) -> None:
        self.compiled = compiled
        self.facts = facts
        self.asked = 0
        """How many holders were last put into classes."""
        self._evaluator = Evaluator(facts)
        self._groups, self._chosen = _groups(compiled.parts)
        self._roles = frozenset(ref.role for one in compiled.parts for ref in one.refs)
        self._samples: Numbered[Membership] = Numbered()
        self._classes: dict[tuple[int, ...], int] = {}
        self._fits: dict[tuple[int, int, int], dict[str, Argument] | None] = {}
        self._masks: list[list[int]] = []
        self._frozen: Policy | None = None

    def __len__(self) -> int:
        return len(self._classes)

    def numbers(self, state: State, holders: Sequence[Holder]) -> list[int]:
        """The class of each holder at a state."""
        self.asked = max(self.asked, len(holders))
        classes = []
        for principal, _, counted in holders:
            chosen = None if counted is None else frozenset(counted)
            mine = {
                self._content(one)
                for one in state.roles.held_by(principal)
                if one.role in self._roles and (chosen is None or one.id in chosen)
            }
            classes.append(self._class(tuple(sorted(mine))))
        return classes

    def frozen(self) -> Policy:
        """The policy with the classes known by now."""
        if self._frozen is None or len(self._frozen.classes) < len(self._masks):
            made, words = self.compiled, _words(len(self.compiled.entries))
            self._frozen = Policy(
                made.entries,
                made.columns,
                made.takes,
                made.attributes,
                np.array(self._masks, np.uint64).reshape(len(self._masks), words),
                [one.frozen() for one in self._chosen],
            )
        return self._frozen

    def _content(self, membership: Membership) -> int:
        """The number of what a membership says, whoever holds it."""
        key = membership.service, membership.instance, membership.role, terms.exact_key(membership.args)
        return self._samples.number(key, membership)

    def _class(self, contents: tuple[int, ...]) -> int:
        class_number = self._classes.get(contents)
        if class_number is None:
            class_number = self._classes[contents] = len(self._masks)
            for number in range(len(self._groups)):
                self._choose(number, contents)
            hit = [at for at, entry in enumerate(self.compiled.entries) if self._chosen[entry.part].counts[-1]]
            self._masks.append(mask_of(hit, _words(len(self.compiled.entries))))
        return class_number

    def _choose(self, number: int, contents: tuple[int, ...]) -> None:
        """Work out the choices of one class for the parts of one group."""
        group = self._groups[number]
        choices, least = self._choices(number, contents), terms.TRUE
        if choices is None:  # more than may be gone through: as if nothing were known of the credentials
            choices, least = [{}], terms.UNKNOWN
        rows: list[dict[tuple[int, ...], None]] = [{} for _ in group.chosen]
        for bound in choices:
            truths = [terms.code(self._evaluator.truth(one, bound)) for one in group.conditions]
            for chosen, part_rows in zip(group.chosen, rows, strict=True):
                if chosen.meets(truths, least):
                    part_rows[chosen.row(bound, self._evaluator)] = None
        for chosen, part_rows in zip(group.chosen, rows, strict=True):
            chosen.counts.append(len(part_rows))
            chosen.rows += part_rows

    def _choices(self, number: int, contents: tuple[int, ...]) -> Iterable[Mapping[str, Argument]] | None:
        """What the used variables mean for each distinct choice of credentials; None if there are too many."""
        choices: dict[Any, dict[str, Argument]] = {(): {}}
        for at in range(len(self._groups[number].refs)):
            fitting = {}
            for content in contents:
                made = self._fit(number, at, content)
                if made is not None:
                    fitting[terms.exact_key(tuple(made.values()))] = made
            if len(choices) * len(fitting) > MAX_CHOICES:
                return None
            joined = (_joined(a, b) for a in choices.values() for b in fitting.values())
            choices = {terms.exact_key(tuple(one.values())): one for one in joined if one is not None}
        return choices.values()

    def _fit(self, number: int, at: int, content: int) -> dict[str, Argument] | None:
        key = number, at, content
        if key not in self._fits:
            group = self._groups[number]
            self._fits[key] = _fitted(group.refs[at], self._samples[content], group.used)
        return self._fits[key]


def _fitted(ref: RoleRef, membership: Membership, used: frozenset[str]) -> dict[str, Argument] | None:
    """What the used variables of a credential mean if a membership is meant by it."""
    if not means(ref, membership):
        return None
    made: dict[str, Argument] = {}
    for term, argument in zip(ref.args, membership.args, strict=False):
        match term:
            case Constant(wanted):
                if not alike(wanted, argument):
                    return None
            case Variable("_"):
                continue
            case Variable(name):
                if name in made and not alike(made[name], argument):
                    return None
                if name in used:
                    made.setdefault(name, argument)
            case _:
                return None
    return made


def _joined(a: dict[str, Argument], b: dict[str, Argument]) -> dict[str, Argument] | None:
    """Two credentials together, if they say the same of what both say."""
    return None if any(name in a and not alike(a[name], value) for name, value in b.items()) else {**b, **a}


def _words(entries: int) -> int:
    return max(1, -(-entries // 64))


class EventPolicies:
    """The policies that the epochs of an index need, each kept for as long as one does."""

    def __init__(self, words: int) -> None:
        self.words = words
        self._next = 0
        self._kept: dict[int, Clients] = {}
        self._compiled: dict[str, Compiled] = {}
        self._facts: list[PolicyFacts] = []

    def of(self, state: State) -> tuple[int, PolicyFacts] | None:
        """The number of the policy at a state, and what its event and mixed terms look at; None without a policy."""
        if not state.roles.policy.entries:
            return None
        key = repr((state.roles.policy, state.roles.representatives, _shape(state)))
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = Compiled(state, self.words)
        said = [one for part in compiled.parts for one in (*part.conditions, *part.truths)]
        said += [Related("", one) for part in compiled.parts for one in part.columns]
        facts = terms.facts_for(state, said or [terms.NEVER_KNOWN])
        for number, one in self._kept.items():
            if one.compiled is compiled and one.facts == facts and len(one) < 4 * one.asked + SPARE:
                return number, self._shared(state)
        self._kept[self._next] = Clients(compiled, facts)
        self._next += 1
        return self._next - 1, self._shared(state)

    def _shared(self, state: State) -> PolicyFacts:
        """What the whole policy looks at, the same object for as long as it stays the same."""
        made = [one for each in state.roles.representatives.values() for _, one in each.parameters]
        facts = terms.facts_for(
            state, [*(one.constraint for one in state.roles.policy.entries), Related("", tuple(made))]
        )
        for one in self._facts:
            if one == facts:
                return one
        self._facts.append(facts)
        return facts

    def numbers(self, number: int, state: State, holders: Sequence[Holder]) -> npt.NDArray[np.int32]:
        """The class of each holder in a policy."""
        return np.array(self._kept[number].numbers(state, holders), np.int32)

    def keep(self, numbers: Iterable[int], facts: Iterable[PolicyFacts | None]) -> Mapping[int, Policy]:
        """These policies as rows; what is not among them is let go."""
        self._kept = {number: self._kept[number] for number in sorted(set(numbers))}
        alive = {id(one) for one in facts}
        self._facts = [one for one in self._facts if id(one) in alive]
        used = {id(one.compiled) for one in self._kept.values()}
        self._compiled = {key: one for key, one in self._compiled.items() if id(one) in used}
        return {number: one.frozen() for number, one in self._kept.items()}


SPARE = 1_000
"""Classes past four times those in use, from which on a policy begins anew with those in use."""


def _shape(state: State) -> tuple[Any, ...]:
    """All that a compiled policy takes from the event types."""
    types = state.types
    return tuple((name, name in types, one.parent, tuple(one.attributes)) for name, one in types.every.items())
