"""Requirements as text (D11), as requests bring them and as the log holds them.

Guarantees: a requirement that was written reads back as the same condition.
Leaves out: whom they are true for (`pipeline.agreement`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide.check import check_requirement, is_private
from headgate.lang import does_not_read_back, parse_condition, render_condition
from headgate.model.errors import BadExpression, HeadgateError
from headgate.model.expressions import Condition, subjects
from headgate.model.limits import MAX_REQUIREMENTS

Ints: TypeAlias = npt.NDArray[np.int64]

K = TypeVar("K")
V = TypeVar("V")

NONE: Final = -1
"""The number of a requirement that is absent."""
MAX_PARSED: Final = 65_536
"""Distinct requirements whose parsed form is kept."""


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
