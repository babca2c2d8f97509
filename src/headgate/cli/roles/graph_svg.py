"""The credential graph as an SVG picture: what something rests on stands to its left.

Guarantees: a whole document that needs nothing else, with a legend; every state is written beside its colour, and
nothing of what clients chose is taken for markup. The same graph gives the same picture. At most MAX_BOXES boxes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from headgate.cli.roles.graph_tree import Box, Picture
from headgate.cli.shared.rendering import printable, show_truth
from headgate.model.errors import TooLarge

MAX_BOXES: Final = 500
"""Boxes of one picture; more cannot be read."""

_CHARS: Final = 34
"""Characters of a line in a box."""
_LINES: Final = 4
"""Lines of what a box says; the rest is in its title."""
_LETTER, _LEADING, _PAD = 6.6, 15, 8
_WIDTH: Final = round(_CHARS * _LETTER) + 2 * _PAD
_GAP_X, _GAP_Y, _MARGIN, _LEGEND = 70, 16, 20, 66
_SWEEPS: Final = 4
"""How often the boxes of each column are put near what they are tied to."""

_FILLS: Final = {True: ("#e3f4e5", "#2c6e35"), False: ("#fbe3e1", "#a3261b"), None: ("#fdf2d0", "#8a6100")}
_FALLING: Final = "#a3261b"


@dataclass(frozen=True, slots=True)
class _Placed:
    """A box with its place and its lines."""

    box: Box
    lines: tuple[tuple[str, bool], ...]
    x: float
    y: float
    falls: bool = False

    @property
    def height(self) -> int:
        return 2 * _PAD + _LEADING * len(self.lines)

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def svg(picture: Picture, title: str) -> str:
    """The picture of a graph."""
    if len(picture.boxes) > MAX_BOXES:
        raise TooLarge(
            f"a picture of {len(picture.boxes)} boxes is past MAX_BOXES ({MAX_BOXES})", remedy="name one credential"
        )
    falling = {one.id for one in picture.falls} | ({picture.root} if picture.root and picture.falls else set())
    placed = _placed(picture, falling)
    width = max((one.x + _WIDTH for one in placed.values()), default=_WIDTH) + _MARGIN
    low = max((one.y + one.height for one in placed.values()), default=_MARGIN)
    height = low + _MARGIN + _LEGEND
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f"<title>{_safe(title)}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *(line for one in placed.values() for line in _edges(one, placed)),
        *(line for one in placed.values() for line in _drawn(one)),
        *_legend(low + _MARGIN, falls=bool(falling)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


# -- where boxes stand ----------------------------------------------------------------------------------------


def _placed(picture: Picture, falling: set[str]) -> dict[str, _Placed]:
    columns: dict[int, list[str]] = {}
    ranks = _ranks(picture.boxes)
    for key, rank in ranks.items():
        columns.setdefault(rank, []).append(key)
    _settle(columns, picture.boxes)
    nodes: dict[str, _Placed] = {}
    for rank in sorted(columns):
        y = float(_MARGIN)
        for key in columns[rank]:
            box = picture.boxes[key]
            falls = any(one.id in falling for one in box.credentials)
            one = _Placed(box, tuple(_said(box, falls)), _MARGIN + rank * (_WIDTH + _GAP_X), y, falls)
            nodes[key] = one
            y += one.height + _GAP_Y
    return nodes


def _ranks(boxes: Mapping[str, Box]) -> dict[str, int]:
    """How far each box is from what rests on nothing; a tie that leads back to itself counts for nothing."""
    ranks: dict[str, int] = {}
    open_: set[str] = set()
    for start in boxes:
        ahead = [start]
        while ahead:
            key = ahead[-1]
            parents = [one for one, _ in boxes[key].parents if one in boxes]
            missing = [one for one in parents if one not in ranks and one not in open_]
            if key not in ranks and missing:
                open_.add(key)
                ahead += missing
                continue
            ahead.pop()
            open_.discard(key)
            ranks.setdefault(key, 1 + max((ranks.get(one, 0) for one in parents), default=-1))
    return ranks


def _settle(columns: dict[int, list[str]], boxes: Mapping[str, Box]) -> None:
    """Put each box of a column near the middle of those it is tied to, so that few lines cross."""
    ties: dict[str, list[str]] = {key: [] for key in boxes}
    for key, box in boxes.items():
        for parent, _ in box.parents:
            if parent in boxes:
                ties[key].append(parent)
                ties[parent].append(key)
    for sweep in range(_SWEEPS):
        ranks = sorted(columns, reverse=bool(sweep % 2))
        at = {key: place for column in columns.values() for place, key in enumerate(column)}
        for rank in ranks:
            columns[rank].sort(key=lambda key: _mean([at[one] for one in ties[key]], at[key]))
            at |= {key: place for place, key in enumerate(columns[rank])}


def _mean(places: Sequence[int], own: int) -> float:
    return sum(places) / len(places) if places else float(own)


# -- what is drawn --------------------------------------------------------------------------------------------


def _said(box: Box, falls: bool) -> Iterator[tuple[str, bool]]:
    """The lines of a box, those in bold marked."""
    for one in box.credentials:
        yield _short(one.id), True
        for line in _wrapped(one.words):
            yield line, False
    for line in _wrapped(box.says):
        yield line, not box.credentials and bool(box.parents)
    yield show_truth(box.state) + (", would fall" if falls else ""), False


def _short(text: str) -> str:
    shown = printable(text).replace("\n", " ")
    return shown if len(shown) <= _CHARS else f"{shown[: _CHARS - 1]}…"


def _wrapped(text: str) -> list[str]:
    lines = textwrap.wrap(printable(text).replace("\n", " "), _CHARS)
    return lines if len(lines) <= _LINES else [*lines[: _LINES - 1], f"{lines[_LINES - 1][: _CHARS - 1]}…"]


def _drawn(node: _Placed) -> Iterator[str]:
    fill, ink = _FILLS[node.box.state]
    border = f'stroke="{_FALLING}" stroke-width="3" stroke-dasharray="6 3"' if node.falls else f'stroke="{ink}"'
    whole = "; ".join(
        [f"{c.id}: {c.words}" for c in node.box.credentials] + [node.box.says, show_truth(node.box.state)]
    )
    yield f"<g><title>{_safe(whole)}</title>"
    yield (
        f'<rect x="{node.x:.0f}" y="{node.y:.0f}" width="{_WIDTH}" height="{node.height}" rx="6" '
        f'fill="{fill}" {border}/>'
    )
    for number, (line, bold) in enumerate(node.lines):
        y = node.y + _PAD + _LEADING * (number + 0.8)
        last = number == len(node.lines) - 1
        look = f'fill="{ink}" font-weight="bold"' if last else 'font-weight="bold"' if bold else ""
        yield f'<text x="{node.x + _PAD:.0f}" y="{y:.0f}" {look}>{_safe(line)}</text>'
    yield "</g>"


def _edges(node: _Placed, placed: Mapping[str, _Placed]) -> Iterator[str]:
    for key, negated in node.box.parents:
        if (parent := placed.get(key)) is None:
            continue
        x1, y1, x2, y2 = parent.x + _WIDTH, parent.middle, node.x - (8 if negated else 0), node.middle
        bend = (x1 + x2) / 2
        yield (
            f'<path d="M {x1:.0f} {y1:.0f} C {bend:.0f} {y1:.0f} {bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}" '
            'fill="none" stroke="#667"/>'
        )
        if negated:
            yield f'<circle cx="{node.x - 4:.0f}" cy="{y2:.0f}" r="4" fill="#ffffff" stroke="#667"/>'


def _legend(y: float, *, falls: bool) -> Iterator[str]:
    x = float(_MARGIN)
    for state, word in ((True, "true"), (False, "false"), (None, "unknown: grants nothing, may heal")):
        fill, ink = _FILLS[state]
        yield f'<rect x="{x:.0f}" y="{y:.0f}" width="14" height="14" rx="3" fill="{fill}" stroke="{ink}"/>'
        yield f'<text x="{x + 20:.0f}" y="{y + 11:.0f}">{word}</text>'
        x += 40 + len(word) * _LETTER
    yield (
        f'<text x="{_MARGIN}" y="{y + 32:.0f}">a line leads from what is needed to what rests on it; '
        "a circle at its end: counts where that is false</text>"
    )
    if falls:
        yield f'<text x="{_MARGIN}" y="{y + 50:.0f}" fill="{_FALLING}">broken border: would fall</text>'


def _safe(text: str) -> str:
    """Text that is only text."""
    return escape(printable(text).replace("\n", " "), {'"': "&quot;"})
