"""A group of commands that are imported when they are asked for.

Guarantees: listing the commands, or naming one that does not exist, imports none of them; a command that is run, or
whose help is wanted, behaves as if it had been imported from the beginning.
Leaves out: whether the lines of the list are those of the commands, which a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import MarkupMode, TyperCommand, TyperGroup
from typer.main import get_group

from headgate.cli.shared.common import fail, needs_extras, shows_errors
from headgate.model.errors import BadEnvironment


@dataclass(frozen=True, slots=True)
class Later:
    """Where a command is, and what the list of commands says of it."""

    place: str
    """`module:name`."""
    line: str

    def load(self) -> Any:
        """The function of the command, or the `Typer` of a group."""
        module, _, name = self.place.partition(":")
        try:
            with needs_extras():
                return getattr(import_module(module), name)
        except BadEnvironment as error:
            fail(error)


class LazyGroup(TyperGroup):
    """The commands of `later`; a subclass says which."""

    later: ClassVar[Mapping[str, Later]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, one in self.later.items():
            self.add_command(TyperCommand(name, help=one.line, rich_markup_mode=self.rich_markup_mode))

    def resolve_command(
        self, ctx: Any, args: list[str]
    ) -> tuple[str | None, TyperCommand | TyperGroup | None, list[str]]:
        """The command that the arguments begin with, imported now, and the arguments that are its own."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else built(name, self.later[name], self.rich_markup_mode), rest


def built(name: str, command: Later, markup: MarkupMode) -> TyperCommand | TyperGroup:
    """The command itself, which shows Headgate's errors; a group brings that with it."""
    holder = typer.Typer(rich_markup_mode=markup)
    loaded = command.load()
    if isinstance(loaded, typer.Typer):
        holder.add_typer(loaded, name=name)
    else:
        holder.command(name)(shows_errors(loaded))
    made = get_group(holder).commands[name]
    assert isinstance(made, TyperCommand | TyperGroup), "typer makes no others"
    return made
