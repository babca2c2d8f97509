"""From the text of a policy to its statements: lines, continuations and comments.

Guarantees: time linear in the text. A statement ends at `;`, or at the end of a line unless the next line is indented
more deeply than the statement's first, begins with an operator, or a bracket is open. A declaration has no arrow, so an
indented line that has one begins a statement even after a declaration (OASIS writes its rolefiles so).
Comments are blanked out, which keeps every place as it is; inside quotes nothing begins or ends.
Leaves out: what a statement says (`rolefile`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_PIECE: Final = re.compile(
    r"""(?P<quoted>'[^']*(?:''[^']*)*'(?!')|"[^"]*(?:""[^"]*)*"(?!")|`[^`]*(?:``[^`]*)*`(?!`))
      | (?P<unclosed>['"`])
      | (?P<comment>(?:\#|--)[^\n]*)
      | (?P<open>[(\[{]) | (?P<close>[)\]}])
      | (?P<end>[;\n])
      | (?:[^'"`\#\-()\[\]{};\n]+|-)""",
    re.VERBOSE,
)
_CONTINUES: Final = re.compile(r"\s*(?::|&|∧|\u2228|<\||◁|⊲|\|>|▷|⊳|\||(?:and|or)\b|<-|←|<=|⇐)")
_DECLARES: Final = re.compile(r"\s*(?:def|import)\s+[A-Za-z_]")
_WORD: Final = re.compile(r"\S")
_MARGIN: Final = re.compile(r"[^\S\n]*")
_ARROW: Final = re.compile(r"(?:[^:=#'\"\n]|'[^'\n]*'|\"[^\"\n]*\")*?(?:<-|←)")


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text, with the place of its first character (lines and columns from 1)."""

    text: str
    start: int = 0
    line: int = 1
    column: int = 1


@dataclass(slots=True)
class _Open:
    """The statement that is being gathered."""

    start: int
    end: int
    indent: int
    declares: bool


def statements(text: str) -> Iterator[Passage]:
    """The statements of a text, in order, without comments around or in them."""
    blanked, ends = _scan(text)
    line, counted = 1, 0
    for start, end in _gather(blanked, ends):
        at = end - len(blanked[start:end].lstrip())
        line += blanked.count("\n", counted, at)
        counted = at
        yield Passage(blanked[at:end].rstrip(), at, line, at - blanked.rfind("\n", 0, at))


def blank_comments(text: str) -> str:
    """The text with spaces in place of its comments."""
    return _scan(text)[0]


def _scan(text: str) -> tuple[str, list[int]]:
    """The text without comments, and where a line or a statement ends outside quotes and brackets."""
    parts: list[str] = []
    ends: list[int] = []
    at = depth = 0
    while at < len(text) and (piece := _PIECE.match(text, at)):
        fragment, kind = piece.group(), piece.lastgroup
        if kind == "unclosed":
            break  # whatever follows is inside quotes, and the parser says so
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        elif kind == "end" and depth == 0:
            ends.append(at)
        parts.append(" " * len(fragment) if kind == "comment" else fragment)
        at = piece.end()
    return "".join(parts) + text[at:], [*ends, len(text)]


def _gather(text: str, ends: list[int]) -> Iterator[tuple[int, int]]:
    """Where each statement starts and ends."""
    now: _Open | None = None
    start = 0
    for end in ends:
        segment = text[start:end]
        if segment.strip():
            indent = _indent(text, start, end)
            if now is not None and _goes_on(now, segment, indent):
                now.end = end
            else:
                if now is not None:
                    yield now.start, now.end
                now = _Open(start, end, indent, bool(_DECLARES.match(segment)))
        if now is not None and text[end : end + 1] == ";":
            yield now.start, now.end
            now = None
        start = end + 1
    if now is not None:
        yield now.start, now.end


def _goes_on(now: _Open, segment: str, indent: int) -> bool:
    if _CONTINUES.match(segment):
        return True
    if now.declares and (_DECLARES.match(segment) or _ARROW.match(segment)):
        return False
    return indent > now.indent


def _indent(text: str, start: int, end: int) -> int:
    """How deeply the line is indented on which the first word between two places stands."""
    word = _WORD.search(text, start, end)
    margin = _MARGIN.match(text, text.rfind("\n", 0, word.start() if word else start) + 1)
    return len(margin.group().expandtabs()) if margin else 0
