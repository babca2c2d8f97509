"""What the commands share: the consoles, the `--domain` option, the clock and how errors are shown.

Guarantees: importing it loads neither ledger nor pipeline, which many commands never need.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from headgate.model.errors import BadEnvironment, EngineFailed, HeadgateError, NotFound

if TYPE_CHECKING:
    from headgate.node.domain import Domain

out = Console()
err = Console(stderr=True)

ENGINE_FAILED = 3
"""The status of a command whose engine failed: nothing is known of what was asked."""

P = ParamSpec("P")
R = TypeVar("R")

_HERE = Path()
DomainOption = Annotated[
    Path,
    typer.Option(
        "--domain",
        metavar="DIR",
        help="The domain, or its data directory.",
        envvar="HEADGATE_DOMAIN",
        default_factory=lambda: _HERE,
        show_default="the current directory",
    ),
]


def utc_now() -> datetime:
    """The time, at the edge: what decides is given it."""
    return datetime.now(UTC)


EXTRAS: Final[Mapping[str, str]] = {
    "pyarrow": "arrow",
    "z3": "wider",
    **dict.fromkeys(("httptools", "numpy", "pandas", "prometheus_client", "pyspark"), "node"),
    **dict.fromkeys(("sqlalchemy", "starlette", "uvicorn", "uvloop"), "node"),
}
"""Which extra of the package brings a library that the client does without; `node` brings them all."""


@contextmanager
def needs_extras() -> Iterator[None]:
    """What is missing because it is part of an extra is an error that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRAS:
            raise
        extra = EXTRAS[library]
        raise BadEnvironment(
            f"this needs `{library}`, which is not installed with the client alone",
            remedy=f"pip install 'headgate[{extra}]'" + ("" if extra == "node" else " (or `headgate[node]`)"),
        ) from error


def fail(error: HeadgateError, status: int = 2) -> NoReturn:
    """Show an error with its code, place and remedy, and leave with that status."""
    text = Text.assemble(("error", "bold red"), f" [{error.code}] ")
    if error.place:
        text.append(f"{error.place}: ", style="bold")
    text.append(error.message)
    err.print(text, soft_wrap=True, highlight=False)
    if error.remedy:
        err.print(Text.assemble(("  try", "bold"), f" {error.remedy}"), soft_wrap=True, highlight=False)
    raise typer.Exit(status)


def shows_errors(command: Callable[P, R]) -> Callable[P, R]:
    """A command that shows Headgate's errors instead of a traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with needs_extras():
                return command(*args, **kwargs)
        except EngineFailed as error:
            error.remedy = f"everything it said is in {keep_trace(error.trace)}"
            fail(error, ENGINE_FAILED)
        except HeadgateError as error:
            fail(error)

    return run


def keep_trace(trace: str) -> str:
    """Keep what an engine said as it failed; the file, which only its owner can read."""
    with tempfile.NamedTemporaryFile("w", prefix="headgate-trace-", suffix=".txt", delete=False) as file:
        file.write(trace)
    return file.name


def data_directory(domain: Path) -> Path:
    """Where the domain of `--domain` keeps its ledger: in `data`, if it has settings; or right there."""
    from headgate.node.config import Files
    from headgate.pipeline.paths import Paths

    files = Files(domain)
    if files.config.is_file() or (not Paths(domain).ledger.exists() and Paths(files.data).ledger.exists()):
        return files.data
    if domain == _HERE and not Paths(domain).ledger.exists():
        raise NotFound("the current directory is not a domain", remedy="give `--domain DIR`; `headgate init` makes one")
    return domain


def open_domain(domain: Path) -> Domain:
    """The domain of `--domain`."""
    from headgate.node.domain import Domain

    return Domain.open(data_directory(domain))


def start_spark(**settings: Any) -> Any:
    """A Spark session, with a word while it starts."""
    from headgate.pipeline.spark.session import spark

    with err.status("starting Spark"):
        return spark(**settings)


def renew_spark(**settings: Any) -> Any:
    """A Spark session on a new JVM, with a word while it starts."""
    from headgate.pipeline.spark.session import renewed

    with err.status("starting Spark again"):
        return renewed(**settings)


@contextmanager
def engine_failures() -> Iterator[None]:
    """Work on Spark: what it fails of is `EngineFailed`, whatever Spark calls it."""
    from headgate.cli.shared.interrupt import Stopped
    from headgate.pipeline.spark.session import describe

    try:
        yield
    except (HeadgateError, Stopped):
        raise
    except Exception as error:
        found = describe(error)
        raise EngineFailed(found.cause, trace=found.trace) from error


def on_spark(work: Callable[[Any], R]) -> R:
    """What some work on a session gives. If Spark fails, it is tried once more, on a new JVM."""
    with engine_failures():
        session = start_spark()
    try:
        with engine_failures():
            return work(session)
    except EngineFailed as error:
        err.print(Text(f"Spark failed and is tried once more, on a new JVM: {error.message}"), soft_wrap=True)
    with engine_failures():
        return work(renew_spark())
