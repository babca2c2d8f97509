"""`--run-python`: whether a command runs the modules that stand beside policy files.

Guarantees: without the option no Python of a directory runs. What a domain has registered already, with the very same
source, runs from the domain's own copy. A command whose answer a module could change says that it did not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from headgate.cli.shared.rendering import names
from headgate.cli.statements.statement_files import remark
from headgate.model.state import State
from headgate.pipeline.index.predicates import Allowed
from headgate.pipeline.paths import Paths

RunPython = Annotated[
    bool,
    typer.Option(
        "--run-python",
        help="Run the Python modules of predicates that stand beside the files; look at them first.",
    ),
]


def allowed_at(paths: Paths, now: State, run: bool) -> Allowed:
    """What may run for a domain: what it has registered, and with the option everything."""
    return Allowed(run, now.predicates, paths.predicates)


def say_not_run(predicates: Sequence[str]) -> None:
    """Which predicates were known by name alone."""
    if predicates:
        remark(f"not run, and so unknown: {names(predicates)} (`--run-python` runs the modules beside the files)")
