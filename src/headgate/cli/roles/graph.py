"""`headgate role graph`: the live credential graph, as a tree of words or a picture, and what would fall with what.

Guarantees: says what a graph says and no more; a state is always a word, whatever its colour. In the tree, a part that
two credentials share is drawn once and named again. The picture is a whole SVG document that needs nothing else, with a
legend; what something rests on stands to its left; nothing of what clients chose is taken for markup, and the same
graph gives the same picture. At most MAX_LINES lines, and MAX_BOXES boxes.
Leaves out: what is in the graph (`commands.role_graph`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean as mean
from typing import Annotated, Final
from xml.sax.saxutils import escape

import typer
from rich.text import Text

from headgate.cli.shared.common import out, printable, writing
from headgate.cli.shared.connection import NodeConnection
from headgate.cli.shared.options import Json, argument, option
from headgate.cli.shared.rendering import count_of, print_json, say, show_table, show_truth
from headgate.commands.role_graph import MAX_NODES, graph
from headgate.model.errors import TooLarge
from headgate.protocol import role_messages as rw

SvgOption = Annotated[Path | None, option("--svg FILE", "Draw it as an SVG picture, in this file.")]
FallsOption = Annotated[str | None, option("--falls ID", "Say what would fall if this one were revoked.")]
IdArgument = Annotated[str | None, argument("[ID]", "A membership or an election.", unset="all that you may know of")]


def graph_(
    id: IdArgument = None,
    svg_: SvgOption = None,
    falls: FallsOption = None,
    json: Json = False,
    *,
    connection: NodeConnection,
) -> None:
    """Draw the credential graph: every membership and election, what it rests on, and whether that is true.

    Below each credential stands what it rests on, farther in: records that are `and`, `or`, `nand` or `nor` of others,
    and what must stay true. With `--as` a node is asked, and tells what you may know; without it the domain's own
    directory is read, and everything is shown.

    For example:

    `headgate role graph --domain DIR`

    `headgate role graph mk3fd-ann --svg ann.svg --domain DIR`

    `headgate role graph --falls mk3fd-ann --as ann`
    """
    if id is not None and falls not in (None, id):
        raise typer.BadParameter("an ID and --falls name two credentials; leave one of them out")
    picture = pictured(connection, id if falls is None else falls)
    if svg_ is not None:
        if falls is None and picture.root is not None:
            picture = around(picture, replace(picture, falls=()))  # what would fall was not asked
        drawn = svg(picture, "Credentials and what they rest on")
        with writing(svg_, "name another place"):
            svg_.write_text(drawn, "utf-8")
        say("drawn in ", (str(svg_), "bold"))
    if json:
        print_json({"version": picture.version, "boxes": list(picture.boxes.values()), "falls": picture.falls})
    elif falls is not None:
        _show_falls(picture, falls)
    elif svg_ is None:
        _show(picture, id)


def pictured(connection: NodeConnection, root: str | None) -> Picture:
    """The graph, or the part of it around one credential."""
    wanted = (None,) if root is None else (None, root)
    if connection.asks:
        with connection.client() as client:
            whole, *rooted = (of_answer(client.roles.graph(one)) for one in wanted)
    else:
        with connection.opened() as domain:
            state = domain.ledger.state()
            told = (graph(state, state.administrator, one, domain.functions(state)) for one in wanted)
            whole, *rooted = map(of_answer, told)
    return around(whole, rooted[0]) if rooted else whole


# -- on the screen --------------------------------------------------------------------------------------------


def _show(picture: Picture, id: str | None) -> None:
    if not picture.boxes:
        say(f"no credentials at version {picture.version}")
        return
    say((f"version {picture.version}", "dim"))
    for line in tree(picture, id):
        out.print(line, highlight=False, soft_wrap=True)
    if not picture.whole:
        say((f"not all: a graph is told up to {MAX_NODES:,} nodes; name one credential", "yellow"))


def _show_falls(picture: Picture, id: str) -> None:
    if not picture.falls:
        say(("nothing else", "bold green"), f" would fall with {id}")
        return
    say((f"{count_of(len(picture.falls), 'credential')} would fall", "bold red"), f" with {id}")
    words = {one.id: one.words for box in picture.tops for one in box.credentials}
    show_table(("id", "what", "why"), ((one.id, words.get(one.id, ""), one.reason) for one in picture.falls))


MAX_LINES: Final = 2_000
"""Lines of one tree."""

STYLES: Final = {True: "green", False: "red", None: "yellow"}
TRUTHS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "unknown": None}
_STATE_WIDTH: Final = len("unknown") + 2


@dataclass(frozen=True, slots=True)
class ListedCredential:
    """A membership or an election."""

    id: str
    kind: str
    says: str
    holder: str | None = None

    @property
    def words(self) -> str:
        """The role, and whose it is."""
        does = "elected by" if self.kind == "election" else "held by"
        elects = "an election to " if self.kind == "election" else ""
        return f"{elects}{self.says}" + (f", {does} {self.holder}" if self.holder is not None else "")


@dataclass(frozen=True, slots=True)
class Box:
    """A record, what it says, the credentials that rest on it, and what it follows from; a True is a `not`."""

    key: str
    state: bool | None
    says: str
    credentials: tuple[ListedCredential, ...] = ()
    parents: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A graph to be drawn."""

    version: int
    boxes: Mapping[str, Box]
    falls: tuple[rw.FallAnswer, ...] = ()
    """What would end with the root, and why."""
    root: str | None = None
    whole: bool = True

    @property
    def tops(self) -> Iterator[Box]:
        """The boxes that have credentials."""
        return (box for box in self.boxes.values() if box.credentials)

    def box_of(self, id: str) -> Box | None:
        """Where a credential stands."""
        return next((box for box in self.tops if any(one.id == id for one in box.credentials)), None)


# -- from a graph ---------------------------------------------------------------------------------------------


def of_answer(answer: rw.GraphAnswer) -> Picture:
    """The picture of a graph."""
    return Picture(answer.version, _boxes(answer), tuple(answer.falls), answer.root, answer.whole)


def _boxes(answer: rw.GraphAnswer) -> dict[str, Box]:
    """Records, each with the credentials that rest on it; a credential whose record is not told stands alone."""
    credentials: dict[str, Box] = {}
    boxes: dict[str, Box] = {}
    for node in answer.nodes:
        state = TRUTHS[node.state]
        if node.kind == "record":
            boxes[node.id] = Box(node.id, state, node.says)
        else:
            listed = ListedCredential(node.id, node.kind, node.says, node.holder)
            credentials[node.id] = Box(node.id, state, "", (listed,))
    placed: set[str] = set()
    for edge in answer.edges:
        if edge.to in credentials:
            box = boxes[edge.from_]
            boxes[box.key] = replace(box, credentials=box.credentials + credentials[edge.to].credentials)
            placed.add(edge.to)
        else:
            boxes[edge.to] = replace(boxes[edge.to], parents=(*boxes[edge.to].parents, (edge.from_, edge.negated)))
    merged = [*boxes.values(), *(box for id, box in credentials.items() if id not in placed)]
    order = {id: at for at, id in enumerate(credentials)}
    tops = [box for box in merged if box.credentials]
    tops.sort(key=lambda box: order[min(one.id for one in box.credentials)])
    return {box.key: box for box in (*tops, *merged)}


def around(whole: Picture, rooted: Picture) -> Picture:
    """One credential with what it rests on and what would fall with it, named as in the whole graph."""
    boxes = {**rooted.boxes, **whole.boxes}
    wanted = [one for one in (rooted.root, *(fall.id for fall in rooted.falls)) if one]
    merged = replace(rooted, boxes=boxes)
    ahead = [box.key for id in wanted if (box := merged.box_of(id)) is not None]
    kept: dict[str, Box] = {}
    while ahead:
        key = ahead.pop(0)
        if key not in kept and key in boxes:
            kept[key] = boxes[key]
            ahead += [parent for parent, _ in boxes[key].parents]
    return replace(merged, boxes=kept)


# -- as text --------------------------------------------------------------------------------------------------


def tree(picture: Picture, root: str | None = None) -> Iterator[Text]:
    """Every credential, or one, with what it rests on below it, farther in."""
    start = list(picture.tops) if root is None else [b for b in (picture.box_of(root),) if b is not None]
    drawn: set[str] = set()
    ahead: list[tuple[Box, int, bool]] = [(box, 0, False) for box in reversed(start)]
    for _ in range(MAX_LINES):
        if not ahead:
            return
        box, depth, negated = ahead.pop()
        if depth == 0 and box.key in drawn and root is None:
            continue
        again = box.key in drawn and bool(box.parents)
        yield _line(box, depth, negated, again)
        drawn.add(box.key)
        if not again:
            below = [(picture.boxes[key], depth + 1, no) for key, no in box.parents if key in picture.boxes]
            ahead += reversed(below)
    if ahead:
        yield Text(f"... past {MAX_LINES} lines; name one credential to see it alone", "dim")


def _line(box: Box, depth: int, negated: bool, again: bool) -> Text:
    text = Text(show_truth(box.state).ljust(_STATE_WIDTH), STYLES[box.state])
    text.append("  " * depth, style="default")
    if negated:
        text.append("not ", style="bold default")
    if box.credentials:
        for number, credential in enumerate(box.credentials):
            text.append("" if not number else "; ", style="default")
            text.append(printable(credential.id), style="bold default")
            text.append(f"  {printable(credential.words)}", style="default")
        if box.says:
            text.append(f"  [{printable(box.says)}]", style="dim default")
    else:
        text.append(printable(box.says), style="default" if not box.parents else "bold default")
    if again:
        text.append("  (as above)", style="dim default")
    return text


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
            columns[rank].sort(key=lambda key: mean(at[one] for one in ties[key] or (key,)))
            at |= {key: place for place, key in enumerate(columns[rank])}


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
