"""The tour of the code leads somewhere: every stop is there, and is reached from a stop before it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STOP = re.compile(r"^\d+\. \[`([\w.]+)`\]\(\.\./([\w/.]+)\)", re.MULTILINE)


def walks() -> dict[str, list[tuple[str, Path]]]:
    parts = (ROOT / "docs/tour.md").read_text("utf-8").split("\n## ")[1:]
    return {part.splitlines()[0]: [(name, ROOT / path) for name, path in STOP.findall(part)] for part in parts}


def defined(tree: ast.AST, name: str) -> list[ast.AST]:
    scopes = [tree]
    for part in name.split("."):
        scopes = [
            child
            for scope in scopes
            for child in ast.iter_child_nodes(scope)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and child.name == part
        ]
    return scopes


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def named_in(path: Path) -> set[str]:
    """Every name that a file uses, as a name or after a dot."""
    nodes = list(ast.walk(parsed(path)))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    return used | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("walk", walks())
def test_every_stop_is_there(walk: str) -> None:
    stops = walks()[walk]
    assert len(stops) > 10
    for name, path in stops:
        assert defined(parsed(path), name), f"{walk}: `{name}` is not in {path}"


FROM_ELSEWHERE = {"Operation.serve", "Pipeline.start", "DeliveryFollower.poll", "PushSocket._push"}
"""Called by the web framework, by the pipeline's process, in a thread of its own, and by the socket's own loop."""


@pytest.mark.parametrize("walk", walks())
def test_every_stop_is_reached_from_one_before_it(walk: str) -> None:
    stops = walks()[walk]
    for number, (name, path) in enumerate(stops[1:], 1):
        if name in FROM_ELSEWHERE or (walk == "An event" and name == "publish"):
            continue
        before = [other for _, other in stops[:number]]
        used = set[str]().union(*map(named_in, before))
        assert name.rpartition(".")[2] in used, f"{walk}: nothing before stop {number + 1} names `{name}` of {path}"
