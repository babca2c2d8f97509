"""What a command prints does not depend on the seed of Python's hashes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from strategies.running import many

ROOT = Path(__file__).parents[3]
SCENARIOS = sorted(
    str(path.relative_to(ROOT))
    for start in ("moved", "shifts", "rows", "wrongly", "badges", "separation", "students", "police", "who-may", "golf")
    for path in (ROOT / "scenarios").glob(f"{start}*.yaml")
)
RUN = """
import sys
from typer.testing import CliRunner
from headgate.cli.main import app
files = sys.argv[1:]
for command in (["test", *files, "--engine", "decide", "--json"], *(["role", "check", one] for one in files)):
    print(CliRunner().invoke(app, command).output)
"""


@pytest.mark.soak
def test_the_same_to_the_letter() -> None:
    told = set()
    for seed in range(many(2, soak=4)):
        made = subprocess.run(
            [sys.executable, "-c", RUN, *SCENARIOS],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        told.add(re.sub(r'"[a-z_]*seconds": *[0-9.e-]+|[0-9.]+ s\b', "", made.stdout))
    assert len(told) == 1
    assert len(told.pop()) > 1_000
