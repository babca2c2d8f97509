"""What a story shows besides its table: chains as `headgate cert` draws them, guests, checks, and the role graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import assert_never

from rich.text import Text

from headgate.cli.roles.graph_tree import of_graph, tree
from headgate.cli.shared.common import out
from headgate.cli.shared.rendering import cells, show_value, table
from headgate.cli.statements.certificate_rendering import draw_chain, say_legend
from headgate.cli.statements.statement_files import KeyNames
from headgate.cli.stories.stage import Stage
from headgate.commands.role_graph import graph
from headgate.model.authority import Identity
from headgate.model.changes import SetProvider
from headgate.scenario.format.story import ChainExhibit, ChecksExhibit, Exhibit, GuestsExhibit, RolesExhibit


class _StoryKeys(KeyNames):
    """Keys by the names they have in the story, whichever organisation keeps them."""

    def __init__(self, place: Path, names: Mapping[str, str]) -> None:
        super().__init__(place / "keys")
        self._known.update(names)


def show_exhibits(stage: Stage) -> None:
    """Everything that there is to show by now, each under its title, and a legend of the keys."""
    exhibits, stage.exhibits = stage.exhibits, []
    names = _StoryKeys(stage.place, stage.signers.names if stage.signers is not None else {})
    for number, (exhibit, version) in enumerate(exhibits):
        if number:
            out.print()
        out.print(Text(exhibit.title, "bold"))
        _show(exhibit, version, stage, names)
    say_legend(names)
    if exhibits:
        out.print()


def _show(exhibit: Exhibit, version: int, stage: Stage, names: KeyNames) -> None:
    match exhibit:
        case ChainExhibit(_, ids):
            assert stage.signers is not None, "a chain is of signed certificates"
            draw_chain(stage.signers.chain(ids, stage.world.now), names)
        case GuestsExhibit(_, ids):
            _rows(("guest", "at home", "here", ""), [row for id in ids for row in _translated(stage, id)])
        case ChecksExhibit(_, columns, rows):
            assert stage.signers is not None, "what is checked is signed"
            for _, check in rows:
                stage.signers.check(check, str(stage.world.state().coordinator), stage.world.now)
            _rows(columns, [words for words, _ in rows])
        case RolesExhibit():
            domain = stage.world.domain
            state = domain.ledger.state(version)
            whole = of_graph(graph(state, state.administrator, None, domain.functions(state)), version)
            for line in tree(whole):
                out.print(line, highlight=False, soft_wrap=True)
        case _:
            assert_never(exhibit)


def _rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    shown = table(*columns)
    for row in rows:
        shown.add_row(*cells(*row))
    out.print(shown)


def _translated(stage: Stage, id: str) -> Iterator[tuple[str, str, str, str]]:
    """Each attribute of a guest at home, and what has become of it."""
    guest = stage.scenario.statements[id]
    assert isinstance(guest, Identity), "a guest is known by an identity"
    home = stage.scenario.statements[str(guest.origin)]
    assert isinstance(home, Identity), "and is known by one at home"
    providers = [change.provider for change in stage.scenario.policy.changes if isinstance(change, SetProvider)]
    mapping = next(provider.mapping for provider in providers if provider.key == guest.guest_of)
    renamed = {one.name: one.to for one in mapping or ()}
    for name, value in home.attributes.items():
        words = f"{name} = {show_value(value)}"
        to = renamed.get(name)
        if to is None:
            result = "-", "dropped: not in the mapping"
        elif to not in guest.attributes:
            result = "-", "dropped: value not mapped"
        else:
            kept = "kept as it is" if (to, guest.attributes[to]) == (name, value) else "renamed"
            result = f"{to} = {show_value(guest.attributes[to])}", kept
        yield stage.called(guest.subject), words, *result
