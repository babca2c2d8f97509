"""The client alone: what works without the extras of the package, and what says which extra it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.cli.main import Commands
from headgate.cli.shared.common import EXTRAS

# A fresh interpreter that has none of the extras, however much is installed.
WITHOUT = f"""
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {tuple(EXTRAS)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
RUN = f"{WITHOUT}\nfrom headgate.cli.main import app\nsys.argv[0] = 'headgate'\napp()\n"
OF_A_NODE = {
    *("acl", "demo", "doctor", "explain", "init", "migrate", "peer", "pipeline", "policy", "restrictions"),
    *("up", "verify", "versions"),
}
"""Commands that open a domain's files."""


def run(*arguments: str | Path, program: str = RUN) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_client_is_imported() -> None:
    done = run(program=f"{WITHOUT}\nimport headgate.client, headgate.client.echo")
    assert (done.returncode, done.stderr) == (0, "")


def test_its_commands_are_there_and_the_others_name_their_extra() -> None:
    program = f"""{WITHOUT}
from headgate.cli.main import Commands
import typer
for name, one in Commands.later.items():
    try:
        one.load()
        print(name)
    except typer.Exit:
        pass
"""
    done = run(program=program)
    assert set(done.stdout.split()) == Commands.later.keys() - OF_A_NODE
    assert done.stderr.count("error [bad-environment]") == len(OF_A_NODE)
    assert done.stderr.count("headgate[node]") == len(OF_A_NODE)


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["up"], "node"),
        (["publish", "t.T", "--from", "{}/events.csv", "--as", "ann", "--url", "https://127.0.0.1:9"], ""),
        (["wider", "$a = 1 or $b > 2", "$a = 1 and $b > 3"], "wider"),
    ],
)
def test_a_command_says_what_it_needs(tmp_path: Path, arguments: list[str], extra: str) -> None:
    done = run(*(one.format(tmp_path) for one in arguments))
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    assert not extra or f"headgate[{extra}]" in done.stderr.replace("\n", "")


def test_scenarios_are_decided_without_a_node() -> None:
    done = run("test", "--engine", "decide", Path(__file__).parents[3] / "scenarios" / "golf-club.yaml")
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
