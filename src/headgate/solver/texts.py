"""Texts that stand for all texts: one for each way in which they can differ to a set of questions.

Guarantees: for any text whatever there is a representative that answers every question the same. A question is about
one text and a constant: how it compares, whether it starts with it, contains it, or has it as a token. None is given
where the search would take more than `MOST_STEPS`. `Letters` numbers characters for z3, which knows none past its own
last one and takes halves of pairs for characters: order is kept, and what is read back is valid text.
Leaves out: questions about two texts at once.

Each question is a small automaton that reads the text; all of them read it together, and every state that they can
reach together is visited once, along a shortest text. Characters that no constant has are alike but for their order,
so a few of them stand for the rest.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, TypeAlias

MOST_STEPS: Final = 300_000
"""Steps of automata in the search for representatives."""

_COPIED: Final = 50
"""Characters that are copied in the time of one step."""

BLANKS: Final = "\t\n\x0b\x0c\r "
_READABLE: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
_LAST: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)

Asks: TypeAlias = Literal["equals", "order", "starts with", "contains", "has token"]
_State: TypeAlias = int
_UNDER, _OVER, _BEYOND = -1, -2, -3  # less, greater, and greater because it goes on after the constant
_OTHER, _FOUND = -1, -2  # a word that is another; what was asked for has come


@dataclass(frozen=True, slots=True)
class TextQuestion:
    """What is asked of a text: an operation with a constant. Equality and order are one question, `order`."""

    asks: Asks
    constant: str


def representatives(questions: Iterable[TextQuestion]) -> list[str] | None:
    """Texts that stand for all texts, sorted; None if there are too many to look at."""
    every = list(dict.fromkeys(questions))
    letters = characters(every)
    steps = [_automaton(one) for one in every]
    ends = [_answer(one) for one in every]
    start = tuple(0 for _ in every)
    seen = {start: ""}
    by_answer: dict[tuple[object, ...], str] = {}
    queue = deque([start])
    left = MOST_STEPS
    while queue:
        state = queue.popleft()
        text = seen[state]
        left -= len(letters) * (len(every) + len(text) // _COPIED)
        if left < 0:
            return None
        by_answer.setdefault(tuple(end(at) for end, at in zip(ends, state, strict=True)), text)
        for letter in letters:
            reached = tuple(step(at, letter) for step, at in zip(steps, state, strict=True))
            if reached not in seen:
                seen[reached] = text + letter
                queue.append(reached)
    return sorted(by_answer.values())


def characters(questions: Sequence[TextQuestion], count: int = 1) -> list[str]:
    """The characters of the constants, blanks if words matter, and `count` others: in each gap, if order matters."""
    known = {letter for one in questions for letter in one.constant}
    if any(one.asks == "has token" for one in questions):
        known.update(BLANKS)
    ordered = any(one.asks == "order" for one in questions)
    points = [-1, *sorted(map(ord, known)), _LAST + 1]
    others: list[str] = []
    for low, high in pairwise(points):
        others += fillers(low, high, count)
    if not ordered:
        others = [one for one in _READABLE if one not in known][:count] or others[:count]
    return sorted(known.union(others))


def fillers(low: int, high: int, count: int) -> list[str]:
    """Up to `count` characters strictly between two code points, readable ones if there are enough."""
    readable = sorted(one for one in _READABLE if low < ord(one) < high)[:count]
    if len(readable) == count:
        return readable
    chars: list[str] = []
    at = low + 1
    while at < high and len(chars) < count:
        if at in _SURROGATES:
            at = _SURROGATES.stop
            continue
        chars.append(chr(at))
        at += 1
    return chars


def _automaton(question: TextQuestion) -> Callable[[_State, str], _State]:
    constant = question.constant
    match question.asks:
        case "contains":
            return _containing(constant)
        case "has token":
            return lambda at, letter: _word(constant, at, letter)
        case _:
            return lambda at, letter: _beside(constant, at, letter)


def _answer(question: TextQuestion) -> Callable[[_State], object]:
    size = len(question.constant)
    match question.asks:
        case "contains":
            return lambda at: at == size
        case "has token":
            return lambda at: size > 0 and at in (size, _FOUND)
        case "starts with":
            return lambda at: at in (size, _BEYOND)
        case "equals":
            return lambda at: at == size
        case "order":
            return lambda at: 0 if at == size else 1 if at in (_OVER, _BEYOND) else -1


def _beside(constant: str, at: _State, letter: str) -> _State:
    """How far the text is the constant, or how it has come to differ from it."""
    if at < 0:
        return at
    if at == len(constant):
        return _BEYOND
    if letter == constant[at]:
        return at + 1
    return _UNDER if letter < constant[at] else _OVER


def _word(token: str, at: _State, letter: str) -> _State:
    """How far the word at hand is the token."""
    if at == _FOUND:
        return at
    if letter in BLANKS:
        return _FOUND if at == len(token) else 0
    return at + 1 if 0 <= at < len(token) and token[at] == letter else _OTHER


def _containing(part: str) -> Callable[[_State, str], _State]:
    """How much of the part the text ends with; all of it is for good (Knuth, Morris and Pratt)."""
    back = [0] * (len(part) + 1)
    for at in range(1, len(part)):
        known = back[at]
        while known and part[known] != part[at]:
            known = back[known]
        back[at + 1] = known + 1 if part[known] == part[at] else 0

    def step(at: _State, letter: str) -> _State:
        if at == len(part):
            return at
        while at and part[at] != letter:
            at = back[at]
        return at + 1 if part[at] == letter else 0

    return step


_ESCAPED: Final = re.compile(r"\\u\{([0-9a-fA-F]+)\}")


class Letters:
    """Characters by number: those of some constants, and between them `count` for all others."""

    def __init__(self, constants: Iterable[str], count: int, *, words: bool) -> None:
        questions = [TextQuestion("order", one) for one in sorted(set(constants))] or [TextQuestion("order", "")]
        questions += [TextQuestion("has token", "")] if words else []
        self._known = characters(questions, count)
        self._number = {letter: chr(number) for number, letter in enumerate(self._known)}
        self.blanks = BLANKS if words else ""

    @property
    def last(self) -> str:
        """The last number there is."""
        return chr(len(self._known) - 1)

    def put(self, text: str) -> str:
        """A text of known characters, in numbers."""
        return "".join(self._number[letter] for letter in text)

    def read(self, escaped: str) -> str | None:
        """The text that z3 writes in numbers; None if it has one too high."""
        numbers = map(ord, _ESCAPED.sub(lambda found: chr(int(found[1], 16)), escaped))
        found = [self._known[number] if number < len(self._known) else None for number in numbers]
        return None if None in found else "".join(one for one in found if one is not None)
