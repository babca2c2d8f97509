"""What is shown before the play: chains as `headgate cert` draws them, facts in rows, and whose key is whose."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from headgate.cli.shared.common import out
from headgate.cli.shared.rendering import cells, table
from headgate.cli.statements.certificate_rendering import draw_chain, say_legend
from headgate.cli.statements.statement_files import KeyNames
from headgate.cli.stories.script import ChainExhibit, Exhibit, Story, TableExhibit


class _Called(KeyNames):
    """Keys by the names they have in the story, whichever office keeps them."""

    def __init__(self, story: Story, directory: Path) -> None:
        super().__init__(directory / story.place / "keys")
        self._known.update(story.names)


def show_exhibits(story: Story, directory: Path) -> None:
    """Every exhibit of a story under its title, and a legend of the keys."""
    names = _Called(story, directory)
    for number, one in enumerate(story.exhibits):
        if number:
            out.print()
        out.print(Text(one.title, "bold"))
        _show(one, names)
    say_legend(names)
    if story.exhibits:
        out.print()


def _show(one: Exhibit, names: KeyNames) -> None:
    match one:
        case ChainExhibit(_, chain):
            draw_chain(chain, names)
        case TableExhibit(_, columns, rows):
            shown = table(*columns)
            for row in rows:
                shown.add_row(*cells(*row))
            out.print(shown)
