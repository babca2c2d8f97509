"""Commands are imported when they are asked for, and are then what they always were."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from headgate.cli.main import COMMANDS, GROUPS, app
from headgate.cli.shared.common import shows_errors

HEAVY = frozenset({"sqlalchemy", "pyarrow", "pyspark", "httpx", "z3", "pandas", "uvicorn"})
ALL = COMMANDS | GROUPS
LISTING = [("--help",), ("polcy",)]
LIGHT = [
    ("wider", "$age > 17", "$age = 18..65", "--method", "vector"),
    ("keys", "list"),
    ("keys", "--help"),
    *((group, command, "--help") for group, command in (("cert", "show"), ("cert", "verify"), ("type", "verify"))),
    *((command, "--help") for command in ("wider", "token", "test", "identity")),
]
STORED = ("versions", "--help")
PROGRAM = """
import json, os, sys, tempfile
from headgate.cli.main import app
answers = []
for args in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile("w+") as said:
        if (child := os.fork()) == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            try:
                app(args, prog_name="headgate")
            except SystemExit as end:
                print("\\n" + json.dumps([end.code, sorted(sys.modules)]), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        said.seek(0)
        answers.append(said.read())
print(json.dumps(answers))
"""
"""Each command in a process of its own, which has imported nothing but what the list of commands is made of."""

Loaded = dict[tuple[str, ...], tuple[int, frozenset[str], str]]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """The status of each command, the modules that it loaded, and what it said."""
    every = [*LISTING, *LIGHT, STORED]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(every)],
        env={**os.environ, "HEADGATE_KEYS": str(tmp_path_factory.mktemp("keys"))},
        capture_output=True,
        text=True,
        check=True,
    )
    found: Loaded = {}
    for args, answer in zip(every, json.loads(done.stdout), strict=True):
        *said, last = answer.splitlines()
        status, modules = json.loads(last)
        found[args] = status, frozenset(modules), "\n".join(said)
    return found


def own_modules() -> set[str]:
    return {f"headgate.cli.{one.place.partition(':')[0]}" for one in ALL.values()}


def own_help(found: Any) -> str:
    """What a command says of itself."""
    text = inspect.getdoc(found)
    assert text
    return str(text)


@pytest.fixture(scope="module")
def eager() -> Iterator[typer.Typer]:
    """The same command, made of commands that are all there from the beginning, and made once for all tests."""
    made = typer.Typer(name="headgate", help=own_help(app_callback()), no_args_is_help=True, add_completion=False)
    made.rich_markup_mode = "markdown"
    for name, one in COMMANDS.items():
        made.command(name)(shows_errors(one.load()))
    for name, one in GROUPS.items():
        made.add_typer(one.load(), name=name, help=one.line)
    whole = get_command(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", lambda which: whole if which is made else get_command(which))
        yield made


def app_callback() -> Any:
    assert app.registered_callback is not None
    return app.registered_callback.callback


def run(which: typer.Typer, *args: str) -> tuple[int, str]:
    done = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(which, list(args), prog_name="headgate")
    return done.exit_code, done.output


# -- the list ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_is_its_own_first_line(name: str) -> None:
    first, *more = own_help(ALL[name].load()).split("\n")
    assert ALL[name].line == first
    assert more[:1] in ([], [""]), "the first paragraph is one line, or the list would have said more"


def test_commands_and_groups_are_told_apart() -> None:
    assert not COMMANDS.keys() & GROUPS.keys()
    assert {name for name, one in ALL.items() if isinstance(one.load(), typer.Typer)} == set(GROUPS)


@pytest.mark.parametrize("args", [(), ("--help",), ("nope",), ("polcy",), ("--nope",)], ids=" ".join)
def test_the_list_and_what_does_not_exist_are_as_if_all_were_there(eager: typer.Typer, args: tuple[str, ...]) -> None:
    assert run(app, *args) == run(eager, *args)


@pytest.mark.parametrize("name", ALL)
def test_a_command_is_as_if_it_had_been_there(eager: typer.Typer, name: str) -> None:
    for args in ((name, "--help"), (name, "--nope")):
        status, said = run(app, *args)
        assert (status, said) == run(eager, *args)
        assert f"headgate {name}" in said


@pytest.mark.parametrize("name", GROUPS)
def test_a_command_of_a_group_is_as_if_it_had_been_there(eager: typer.Typer, name: str) -> None:
    inner = [one.name for one in ALL[name].load().registered_commands]
    assert inner
    for one in (*inner, "nope"):
        assert run(app, name, one, "--help") == run(eager, name, one, "--help")


# -- what is loaded ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", LISTING, ids=" ".join)
def test_listing_the_commands_loads_none(loaded: Loaded, args: tuple[str, ...]) -> None:
    status, modules, said = loaded[args]
    assert (status, "policy" in said) == (0 if args == ("--help",) else 2, True)
    assert modules & HEAVY == set()
    assert modules & own_modules() == set()


@pytest.mark.parametrize("args", LIGHT, ids=" ".join)
def test_a_light_command_loads_nothing_heavy(loaded: Loaded, args: tuple[str, ...]) -> None:
    status, modules, said = loaded[args]
    assert status == 0, said
    assert modules & HEAVY == set()
    assert modules & own_modules() >= {f"headgate.cli.{ALL[args[0]].place.partition(':')[0]}"}


def test_a_command_that_needs_the_ledger_loads_it(loaded: Loaded) -> None:
    status, modules, _ = loaded[STORED]
    assert status == 0
    assert modules & HEAVY == {"sqlalchemy"}, "or the tests above would see nothing"
    assert "sqlalchemy.dialects.postgresql" not in modules, "but for that of another database"
    assert modules & own_modules() == {"headgate.cli.policy.explain"}
