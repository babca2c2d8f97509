"""The characters of a question as z3 has them: the first, the second, and so on.

Guarantees: order is kept, every character of a constant has a number, and what is read back is valid text (z3 knows
no characters past its own last one, and takes halves of pairs for characters).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from headgate.solver.texts import BLANKS, TextQuestion, characters

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
