"""The shape of the packages: what loads what, how many modules a room has, and one class for each name."""

import ast
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import headgate
import headgate.client

SOURCE = Path(headgate.__file__).parent
MAX_MODULES = 20
"""Modules of one package, not counting those of its rooms."""

HEAVY = ("cryptography", "numpy", "pandas", "pyarrow", "pyspark", "sqlalchemy")

# A fresh interpreter, because this one has long since loaded everything.
PROGRAM = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize(
    "layer", ["headgate.model", "headgate.lang", "headgate.authority", "headgate.decide", "headgate.analysis"]
)
def test_a_pure_layer_loads_no_heavy_library(layer: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, layer], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "headgate" in loaded
    assert not loaded & set(HEAVY)


NODE_ONLY = ("headgate.gateway", "headgate.ledger", "headgate.pipeline", "pyspark", "sqlalchemy", "starlette", "z3")


def test_the_client_loads_nothing_of_a_node() -> None:
    program = f"import headgate.client, sys; print(*(name for name in {NODE_ONLY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def test_no_two_public_classes_have_one_name() -> None:
    """But for what the client offers, whose names are its users', and the synchronous client, which has the same."""
    places = defaultdict(set)
    for file in SOURCE.rglob("*.py"):
        module = file.relative_to(SOURCE).with_suffix("").as_posix().replace("client/sync", "client/")
        for node in parsed(file).body:
            offered = module.startswith("client/") and node_name(node) in headgate.client.__all__
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not offered:
                places[node.name].add("client" if module.startswith("client/") else module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def node_name(node: ast.stmt) -> str:
    return node.name if isinstance(node, ast.ClassDef) else ""


def test_no_package_is_a_heap_of_modules() -> None:
    counts = {folder: len(list(folder.glob("*.py"))) for folder in SOURCE.rglob("*") if folder.is_dir()}
    assert {str(folder): count for folder, count in counts.items() if count > MAX_MODULES} == {}


def test_a_module_that_is_run_is_whole_by_then() -> None:
    for file in SOURCE.rglob("*.py"):
        body = parsed(file).body
        runs = [at for at, node in enumerate(body) if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)]
        assert runs in ([], [len(body) - 1]), f"{file} runs before its last definition"
