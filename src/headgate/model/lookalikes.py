"""Names that can be mistaken for others (Unicode UTS 39).

Guarantees: two names resemble each other if their skeletons are the same, unless both are in ASCII. A part of a name,
between dots, mixes scripts if it has letters of several that are not written together (UTS 39, 5.2, "highly
restrictive"); ASCII is one script.
Leaves out: which names are new, and whether anyone minds (`decide.names`); extensions of scripts.

    Lookalikes(["pito", "met"]).find("p\u0456to") == "pito"  # the second letter is Cyrillic
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Iterable
from functools import cache
from importlib import resources
from typing import Final

_TOGETHER: Final = (
    frozenset({"Latin", "Han", "Hiragana", "Katakana"}),
    frozenset({"Latin", "Han", "Bopomofo"}),
    frozenset({"Latin", "Han", "Hangul"}),
)
"""Scripts of languages that are written in more than one."""


def skeleton(name: str) -> str:
    """What stands for all names that look like this one (UTS 39, 4); it is no name itself."""
    apart = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", name))
    return unicodedata.normalize("NFD", apart.translate(_prototypes()))


class Lookalikes:
    """Names to compare others with, by their skeletons; those in ASCII are looked at only where one could be meant."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._beyond_ascii: dict[str, list[str]] = {}
        for one in names:
            if not one.isascii():
                self._beyond_ascii.setdefault(skeleton(one), []).append(one)

    def find(self, name: str) -> str | None:
        """A name, other than this one, that this one can be mistaken for."""
        if name.isascii() and not self._beyond_ascii:
            return None
        own = skeleton(name)
        found = next((one for one in self._beyond_ascii.get(own, ()) if one != name), None)
        if found is not None or name.isascii() or not own.isascii():  # what is in ASCII has a skeleton in ASCII
            return found
        return next((one for one in self._names if one.isascii() and skeleton(one) == own), None)


def mixed_scripts(name: str) -> tuple[str, ...]:
    """The scripts that a part of a name mixes, in order of their names; none if every part keeps to one."""
    if name.isascii():
        return ()
    for part in name.split("."):
        found = {script for script in map(_script, part) if script is not None}
        if len(found) > 1 and not any(found <= together for together in _TOGETHER):
            return tuple(sorted(found))
    return ()


def normal_form(name: str) -> str:
    """The name as it should be written."""
    return name if name.isascii() else unicodedata.normalize("NFKC", name)


def _script(letter: str) -> str | None:
    """The script of a character; none for digits, signs and marks that go with any."""
    starts, ends, scripts = _ranges()
    at = bisect_right(starts, ord(letter)) - 1
    return scripts[at] if at >= 0 and ord(letter) <= ends[at] else None


# -- tables, made by tools/unicode-tables ---------------------------------------------------------------------


@cache
def _prototypes() -> dict[int, str]:
    prototypes: dict[int, str] = {}
    for prototype, codes in _lines("confusables.txt"):
        text = "".join(chr(int(one, 16)) for one in prototype.split())
        prototypes |= {int(one, 16): text for one in codes.split()}
    return prototypes


@cache
def _ranges() -> tuple[list[int], list[int], list[str]]:
    ranges: list[tuple[int, int, str]] = []
    for script, spans in _lines("scripts.txt"):
        ends = (span.split("-") for span in spans.split())
        ranges += [(int(first, 16), int(last, 16), script) for first, last in ends]
    ranges.sort()
    return [one[0] for one in ranges], [one[1] for one in ranges], [one[2] for one in ranges]


def _lines(file: str) -> Iterable[tuple[str, str]]:
    for line in resources.files("headgate.model").joinpath(file).read_text("ascii").splitlines():
        if not line.startswith("#"):
            left, _, right = line.partition(": ")
            yield left, right
