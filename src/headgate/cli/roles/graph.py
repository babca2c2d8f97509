"""`headgate role graph`: the live credential graph, and what would fall with one credential."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.roles.graph_svg import svg
from headgate.cli.roles.graph_tree import Fall, Picture, around, of_answer, of_graph, tree
from headgate.cli.shared.common import out
from headgate.cli.shared.connection import NodeConnection, connects
from headgate.cli.shared.rendering import cells, check_text, print_json, say, table
from headgate.commands.role_graph import MAX_NODES, graph
from headgate.model.errors import StorageFull

SvgOption = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Draw it as an SVG picture, in this file.")
]
FallsOption = Annotated[
    str | None, typer.Option("--falls", metavar="ID", help="Say what would fall if this one were revoked.")
]
IdArgument = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="A membership or an election.", show_default="all that you may know of"),
]


@connects
def role_graph(
    id: IdArgument = None,
    svg_: SvgOption = None,
    falls: FallsOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
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
    check_text(id, falls)
    if id is not None and falls not in (None, id):
        raise typer.BadParameter("an ID and --falls name two credentials; leave one of them out")
    picture = pictured(connection, id if falls is None else falls)
    if svg_ is not None:
        _write(svg_, svg(picture if falls is not None else found_alone(picture), "Credentials and what they rest on"))
        say("drawn in ", (str(svg_), "bold"))
    if json:
        print_json({"version": picture.version, "boxes": list(picture.boxes.values()), "falls": picture.falls})
    elif falls is not None:
        _show_falls(picture, falls)
    elif svg_ is None:
        _show(picture, id)


def pictured(connection: NodeConnection, root: str | None) -> Picture:
    """The graph, or the part of it around one credential."""
    if connection.asks:
        with connection.client() as client:
            whole = of_answer(client.roles.graph())
            return whole if root is None else around(whole, of_answer(client.roles.graph(root)))
    with connection.opened() as domain:
        state = domain.ledger.state()
        functions = domain.functions(state)
        whole = of_graph(graph(state, state.administrator, None, functions), state.version)
        if root is None:
            return whole
        return around(whole, of_graph(graph(state, state.administrator, root, functions), state.version, root))


def found_alone(found: Picture) -> Picture:
    """The same without what would fall, which was not asked."""
    if found.root is None:
        return found
    return around(found, Picture(found.version, found.boxes, (), found.root, found.whole))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise StorageFull(f"`{path}` cannot be written ({error.strerror})", remedy="name another place") from None


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
    count = len(picture.falls)
    say((f"{count:,} credential{'' if count == 1 else 's'} would fall", "bold red"), f" with {id}")
    show_falls(picture, picture.falls)


def show_falls(picture: Picture, falls: Sequence[Fall]) -> None:
    """What would fall, or fell, in rows."""
    words = {one.id: one.words for box in picture.tops for one in box.credentials}
    shown = table("id", "what", "why")
    for one in falls:
        shown.add_row(*cells(one.id, words.get(one.id, ""), one.reason))
    out.print(shown)
