"""Requirements in columns (D11): as text in the log, and their truth for many pairs of event and subscription at once.

Guarantees: a requirement that was written reads back as the same condition. `Truths.hold` gives what
`decide.requirements.match` gives; a rule is put once to each distinct choice of the attributes that it names, and the
answer is kept in the worker, so that a pair of event and subscription costs a look-up in a matrix.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide.check import check_requirement, is_private, match
from headgate.lang import does_not_read_back, parse_condition, render_condition
from headgate.model.errors import BadExpression, HeadgateError
from headgate.model.expressions import Condition, subjects
from headgate.model.limits import MAX_REQUIREMENTS
from headgate.model.values import Value

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Attributes: TypeAlias = Mapping[str, Value]

K = TypeVar("K")
V = TypeVar("V")

NONE: Final = -1
"""The number of a requirement that is absent."""
MAX_PARSED: Final = 65_536
"""Distinct requirements whose parsed form is kept."""
MAX_KEPT: Final = 1 << 18
"""Answers that are kept in a worker whatever becomes of the index."""
MAX_CELLS: Final = 1 << 26
"""Pairs of rule and attribute set that a matrix has room for; past it only the pairs asked about are worked out."""


# -- text ---------------------------------------------------------------------------------------------------------


class _Memo(Generic[K, V]):
    """The last so many of something. May be used from any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[K, V] = {}
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        return self._held.get(key)

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._held[key] = value
            if len(self._held) > self._most:
                del self._held[next(iter(self._held))]


_PARSED: Final = _Memo[str, "Condition | BadExpression"](MAX_PARSED)
_WRITTEN: Final = _Memo[int, "tuple[Condition, str]"](MAX_PARSED)
"""Requirements as text, by their identity: equal ones need not mean the same. What is here is kept, so it lasts."""
_CHECKED: Final = _Memo[int, "tuple[Condition, frozenset[str]]"](MAX_PARSED)
"""The attributes that a requirement names, by its identity, too, once it was found to look at nothing else."""


def requirement_of(text: str) -> Condition:
    """The requirement that a text in the log says."""
    parsed = _PARSED.get(text)
    if parsed is None:
        try:
            parsed = parse_condition(text)
        except BadExpression as error:
            parsed = error
        _PARSED.put(text, parsed)
    if isinstance(parsed, BadExpression):
        raise copy(parsed)
    return parsed


def remember(text: str, parsed: Condition | BadExpression, written: str | None = None) -> None:
    """Know what a text says, and how that is written, as somebody else worked it out (`lang.requirement`)."""
    _PARSED.put(text, parsed)
    if written is not None and not isinstance(parsed, BadExpression):
        _PARSED.put(written, parsed)
        _WRITTEN.put(id(parsed), (parsed, written))


def is_known(text: str) -> bool:
    """Does it take no time to tell what a text says?"""
    return _PARSED.get(text) is not None


def text_of(requirement: Condition) -> str:
    """A requirement as text that reads back as the same requirement."""
    known = _WRITTEN.get(id(requirement))
    if known is not None and known[0] is requirement:
        return known[1]
    text = render_condition(requirement)
    if repr(requirement_of(text)) != repr(requirement):
        raise does_not_read_back(text)
    _WRITTEN.put(id(requirement), (requirement, text))
    return text


def check(requirement: Condition, private: frozenset[str] = frozenset()) -> None:
    """What `decide.requirements.check_requirement` checks; the requirement is looked through only once."""
    known = _CHECKED.get(id(requirement))
    if known is None or known[0] is not requirement:
        check_requirement(requirement)
        known = requirement, subjects(requirement)
        _CHECKED.put(id(requirement), known)
    for name in sorted(known[1] & private):
        raise is_private(name)


@dataclass(frozen=True, slots=True)
class Required:
    """The requirements of some events: each distinct one once, and for each event the number of its own."""

    texts: tuple[str, ...]
    rules: tuple[Condition, ...]
    codes: Ints

    def column(self, rows: Ints) -> pa.Array:
        """The requirements of some of the events as the log holds them."""
        codes = self.codes[rows]
        return pa.array(self.texts, pa.string()).take(pa.array(codes, mask=codes == NONE))


def required(
    requirements: Sequence[Condition | None], refusals: dict[int, HeadgateError] | None = None
) -> Required | None:
    """Requirements one by one; None if no event has any. One that cannot be written is a refusal, or is raised."""
    codes = np.full(len(requirements), NONE, np.int64)
    known: dict[int, int] = {}
    texts: dict[str, int] = {}
    for at, requirement in enumerate(requirements):
        if requirement is None:
            continue
        if id(requirement) not in known:  # equal conditions need not mean the same: Python takes 1 and true for equal
            try:
                known[id(requirement)] = texts.setdefault(text_of(requirement), len(texts))
            except BadExpression as error:
                if refusals is None:
                    raise
                refusals.setdefault(at, error)
                continue
        codes[at] = known[id(requirement)]
    return _required(texts, codes)


def required_texts(column: pa.Array, refusals: dict[int, HeadgateError]) -> Required | None:
    """A column of texts from outside as requirements; what does not parse refuses its events."""
    encoded = column.dictionary_encode()
    if len(encoded.dictionary) > MAX_REQUIREMENTS:
        raise BadExpression(
            f"{len(encoded.dictionary)} different requirements are past MAX_REQUIREMENTS ({MAX_REQUIREMENTS})",
            remedy="send fewer events at a time",
        )
    texts: dict[str, int] = {}
    numbers: list[int] = []
    wrong: dict[int, HeadgateError] = {}
    for at, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            numbers.append(texts.setdefault(text_of(requirement_of(text)), len(texts)))
        except BadExpression as error:
            numbers.append(NONE)
            wrong[at] = error
    indices = pc.fill_null(encoded.indices, NONE).to_numpy()
    for row in np.flatnonzero(np.isin(indices, list(wrong))).tolist() if wrong else ():
        refusals.setdefault(row, wrong[int(indices[row])])
    return _required(texts, np.array([*numbers, NONE], np.int64)[indices])  # null is -1, and so the last


def _required(texts: Mapping[str, int], codes: Ints) -> Required | None:
    return Required(tuple(texts), tuple(map(requirement_of, texts)), codes) if texts else None


# -- attribute sets -----------------------------------------------------------------------------------------------


@dataclass
class Sets:
    """Distinct attribute sets, numbered; number 0 has no attributes."""

    held: list[Attributes] = field(default_factory=lambda: [{}])
    _numbers: dict[Hashable, int] = field(default_factory=dict)

    def number(self, attributes: Attributes) -> int:
        """The number of an attribute set, new if need be."""
        if not attributes:
            return 0
        values = tuple(attributes.values())
        key = tuple(attributes), values, tuple(map(type, values))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.held)
            self.held.append(dict(attributes))
        return number


# -- truth --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule that is equal only to itself: known by its exact form, with the attributes it names."""

    exact: str
    condition: Condition = field(compare=False)
    names: tuple[str, ...] = field(compare=False)


class Truths:
    """Which rules are true for which attribute sets; worked out when first asked for."""

    def __init__(self, sets: Sequence[Attributes]) -> None:
        self._sets = sets
        self._rules: list[_Rule] = []
        self._numbers: dict[str, int] = {}
        self._matrix = np.zeros((0, len(sets)), np.int8)  # 1 true, -1 not, 0 not asked yet

    @property
    def size(self) -> int:
        """How many rules there are."""
        return len(self._rules)

    def number(self, rule: Condition) -> int:
        """The number of a rule."""
        exact = repr(rule)
        if exact not in self._numbers:
            self._numbers[exact] = len(self._rules)
            self._rules.append(_Rule(exact, rule, tuple(sorted(subjects(rule)))))
        return self._numbers[exact]

    def forget(self, keep: int) -> None:
        """Let go of all rules but the first, if there are more than the matrix has room for."""
        if len(self._rules) * len(self._sets) > MAX_CELLS:
            for rule in self._rules[keep:]:
                del self._numbers[rule.exact]
            del self._rules[keep:]
            self._matrix = self._matrix[:keep].copy()

    def hold(self, rules: Ints, sets: Ints) -> Flags:
        """Is each rule true for the attribute set beside it?"""
        if len(self._rules) * len(self._sets) > MAX_CELLS:
            place, inverse = np.unique(rules * len(self._sets) + sets, return_inverse=True)
            return self._work_out(place)[inverse]
        if len(self._matrix) < len(self._rules):
            more = np.zeros((len(self._rules) - len(self._matrix), len(self._sets)), np.int8)
            self._matrix = np.concatenate([self._matrix, more])
        flat = self._matrix.reshape(-1)
        cells = rules * len(self._sets) + sets
        truths = flat[cells]
        if not truths.all():
            missing = np.unique(cells[truths == 0])
            flat[missing] = np.where(self._work_out(missing), 1, -1)
            truths = flat[cells]
        true: Flags = truths > 0
        return true

    def _work_out(self, places: Ints) -> Flags:
        """The truth at some places of the matrix, in order of rule."""
        truths = np.zeros(len(places), np.bool_)
        for at, place in enumerate(places.tolist()):
            rule, attributes = self._rules[place // len(self._sets)], self._sets[place % len(self._sets)]
            held = tuple(attributes.get(name) for name in rule.names)
            truths[at] = _is_true(rule, held, tuple(map(type, held)))
        return truths


@lru_cache(maxsize=MAX_KEPT)
def _is_true(rule: _Rule, held: tuple[Value, ...], kinds: tuple[type, ...]) -> bool:  # noqa: ARG001 - tells 1 from true
    return match(rule.condition, dict(zip(rule.names, held, strict=True))) is True
