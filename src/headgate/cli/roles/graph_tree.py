"""The credential graph as it is drawn: each credential with the record it rests on, as a tree of words.

Guarantees: says what a graph says and no more; a state is always a word, whatever its colour. A part that two
credentials share is drawn once and named again. At most MAX_LINES lines.
Leaves out: what is in the graph (`commands.role_graph`), and pictures (`graph_svg`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from rich.text import Text

from headgate.cli.shared.rendering import printable, show_truth
from headgate.commands import role_graph
from headgate.protocol import role_messages as rw

MAX_LINES: Final = 2_000
"""Lines of one tree."""

STYLES: Final = {True: "green", False: "red", None: "yellow"}
TRUTHS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "unknown": None}
_WIDTH: Final = len("unknown") + 2


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
class Fall:
    """What would end, and why."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A graph to be drawn."""

    version: int
    boxes: Mapping[str, Box]
    falls: tuple[Fall, ...] = ()
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


def of_graph(graph: role_graph.Graph, version: int, root: str | None = None) -> Picture:
    """The picture of a graph that was made here."""
    nodes = [(one.id, one.kind, one.state, one.says, one.holder) for one in graph.nodes]
    edges = [(one.start, one.to, one.negated) for one in graph.edges]
    falls = tuple(Fall(one.id, one.reason) for one in graph.falls)
    return Picture(version, _boxes(nodes, edges), falls, root, graph.whole)


def of_answer(answer: rw.GraphAnswer) -> Picture:
    """The picture of a graph that a gateway told."""
    nodes = [(one.id, one.kind, TRUTHS[one.state], one.says, one.holder) for one in answer.nodes]
    edges = [(one.from_, one.to, one.negated) for one in answer.edges]
    falls = tuple(Fall(one.id, one.reason) for one in answer.falls)
    return Picture(answer.version, _boxes(nodes, edges), falls, answer.root, answer.whole)


def _boxes(
    nodes: Iterable[tuple[str, str, bool | None, str, str | None]], edges: Iterable[tuple[str, str, bool]]
) -> dict[str, Box]:
    """Records, each with the credentials that rest on it; a credential whose record is not told stands alone."""
    credentials: dict[str, tuple[ListedCredential, bool | None]] = {}
    boxes: dict[str, Box] = {}
    for id, kind, state, says, holder in nodes:
        if kind == "record":
            boxes[id] = Box(id, state, says)
        else:
            credentials[id] = ListedCredential(id, kind, says, holder), state
    placed: set[str] = set()
    for start, to, negated in edges:
        if to in credentials:
            boxes[start] = replace(boxes[start], credentials=(*boxes[start].credentials, credentials[to][0]))
            placed.add(to)
        else:
            boxes[to] = replace(boxes[to], parents=(*boxes[to].parents, (start, negated)))
    alone = {id: Box(id, state, "", (one,)) for id, (one, state) in credentials.items() if id not in placed}
    order = {id: at for at, id in enumerate(credentials)}
    merged = {**boxes, **alone}
    first = sorted(
        (box for box in merged.values() if box.credentials),
        key=lambda box: order[min(one.id for one in box.credentials)],
    )
    return {box.key: box for box in (*first, *merged.values())}


def around(whole: Picture, rooted: Picture) -> Picture:
    """One credential with what it rests on and what would fall with it, named as in the whole graph."""
    boxes = {**rooted.boxes, **whole.boxes}
    wanted = [one for one in ([rooted.root] if rooted.root else []) + [fall.id for fall in rooted.falls] if one]
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
    text = Text(show_truth(box.state).ljust(_WIDTH), STYLES[box.state])
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
