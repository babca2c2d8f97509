"""Options that go together: a dataclass among the arguments of a command stands for its fields, in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from headgate.cli.shared.common import shows_errors
from headgate.cli.shared.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Two options."""

    width: Annotated[int, option("--width N", "How wide.")] = 1
    height: Annotated[int, option("--height N", "How high.")] = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Size):
    """These, and one more."""

    name: Annotated[str, option("--name TEXT", "Its name.")] = "box"


def plain(first: Annotated[str, option("--first TEXT", "Before.")] = "a") -> None:
    typer.echo(first)


def drawn(first: Annotated[str, option("--first TEXT", "Before.")] = "a", *, size: Size, last: str = "z") -> None:
    typer.echo(f"{first} {size} {last}")


def named(*, named: Named) -> None:
    typer.echo(named)


def run(command: object, *args: str) -> str:
    app = typer.Typer()
    app.command()(shows_errors(command))  # type: ignore[arg-type]
    done = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(app, args)
    assert done.exit_code == 0, done.output
    return done.output.strip()


def test_fields_are_options_with_their_defaults() -> None:
    assert run(drawn) == "a Size(width=1, height=2) z"
    assert run(drawn, "--height", "5", "--last", "y", "--first", "b") == "b Size(width=1, height=5) y"
    assert run(named, "--name", "crate", "--width", "3") == "Named(width=3, height=2, name='crate')"


def test_the_help_has_them_where_the_dataclass_stands() -> None:
    said = run(drawn, "--help")
    places = [said.index(one) for one in ("--first", "--width", "--height", "--last")]
    assert places == sorted(places)


def test_a_command_without_any_is_as_it_was() -> None:
    assert run(plain) == "a"
