"""What the commands share: the consoles, the clock, how errors are shown, the domain of `--domain`, and Spark.

Guarantees: importing it loads neither ledger nor pipeline, which many commands never need. What was typed and is no
text is refused before a command runs.

Ctrl-C does not tear up the conversation with Spark: work that is `interruptible` runs in a thread of its own, so an
interrupt never strikes between a question to the JVM and its answer, which would leave the next call reading the wrong
one. On Ctrl-C the work is asked to stop and given a moment; then `KeyboardInterrupt` is raised. What does not stop ends
with the process, and the JVM with it. From Ctrl-C on, standard error is closed to the protests of threads and processes
that lose each other.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeVar, get_type_hints

import typer
from rich.console import Console
from rich.text import Text

from headgate.model.errors import BadEnvironment, EngineFailed, HeadgateError, NotFound, RoleDenied, StorageFull

if TYPE_CHECKING:
    from headgate.node.domain import Domain

out = Console()
err = Console(stderr=True)

ENGINE_FAILED = 3
"""The status of a command whose engine failed: nothing is known of what was asked."""

PATIENCE = 5.0
"""Seconds that the work has to stop by itself."""

TICK = 0.1
"""Seconds between two looks at whether to stop."""

P = ParamSpec("P")
R = TypeVar("R")

STANDARD: Final = Path("-")
HERE: Final = Path()
"""The domain where none is named."""


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
    """A command that shows Headgate's errors instead of a traceback, and is given only what is text."""
    gathered = gathers_options(command)

    @functools.wraps(gathered)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        check_text(args, *kwargs.values())
        try:
            with needs_extras():
                return gathered(*args, **kwargs)
        except EngineFailed as error:
            error.remedy = f"everything it said is in {keep_trace(error.trace)}"
            fail(error, ENGINE_FAILED)
        except HeadgateError as error:
            fail(error)

    return run


def gathers_options(command: Callable[P, R]) -> Callable[P, R]:
    """A command in which an argument that is a dataclass stands for its fields: each of them is an option."""
    own = inspect.signature(command, eval_str=True)
    gathered: dict[str, Any] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in own.parameters.items():
        option = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        kind: Any = parameter.annotation
        if not is_dataclass(kind):
            options.append(option)
            continue
        gathered[name] = kind
        hints = get_type_hints(kind, include_extras=True)
        options += [option.replace(name=f.name, default=f.default, annotation=hints[f.name]) for f in fields(kind)]

    @functools.wraps(command)
    def run(*args: P.args, **given: P.kwargs) -> R:
        made: dict[str, Any] = dict(given)
        for name, kind in gathered.items():
            made[name] = kind(**{one.name: made.pop(one.name) for one in fields(kind) if one.name in made})
        return command(*args, **made)

    run.__signature__ = own.replace(parameters=options)  # type: ignore[attr-defined]
    return run if gathered else command


def group(*commands: Callable[..., object], **named: Callable[..., object]) -> typer.Typer:
    """A command that has commands of its own, under their own names (less a last `_`) or others."""
    made = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    for name, command in ({one.__name__.removesuffix("_"): one for one in commands} | named).items():
        made.command(name)(shows_errors(command))
    return made


def printable(text: str) -> str:
    """Text in which nothing but line breaks can move a terminal's cursor or change its colours."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def check_text(*given: object) -> None:
    """Refuse what was typed if it is not text: no name can match it."""
    for one in given:
        if isinstance(one, list | tuple):
            check_text(*one)
        elif isinstance(one, str | Path):
            try:
                str(one).encode()
            except UnicodeEncodeError:
                raise typer.BadParameter(f"`{printable(str(one))}` is not valid UTF-8") from None


@contextmanager
def placed(place: str, *, exactly: bool = False) -> Iterator[None]:
    """What is refused inside is refused at this place; `exactly` there, whatever place it has itself."""
    try:
        yield
    except HeadgateError as error:
        if exactly:
            error.place = None
        raise error.at(place) from None


@contextmanager
def judged() -> Iterator[None]:
    """A role that is denied is an answer: it is shown with its class, and the status is 1."""
    try:
        yield
    except RoleDenied as error:
        reason = error.details.get("reason")
        error.message = f"{error.message} ({error.failure}{f', {reason}' if reason else ''})"
        fail(error, status=1)


def read_bytes(path: Path, most: int, *, shown: str | None = None, remedy: str | None = None) -> bytes:
    """The beginning of a file, or of standard input for `-`: one byte more than the most that it may have."""
    try:
        if path == STANDARD:
            return sys.stdin.buffer.read(most + 1)
        with path.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise NotFound(f"`{shown or path}` cannot be read ({error.strerror})", remedy=remedy) from None


@contextmanager
def writing(path: Path, remedy: str | None = None) -> Iterator[None]:
    """A file that cannot be written is an error that says why."""
    try:
        yield
    except OSError as error:
        raise StorageFull(f"`{path}` cannot be written ({error.strerror})", remedy=remedy) from None


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
    if files.config.is_file() or (not Paths(domain).has_ledger and Paths(files.data).has_ledger):
        return files.data
    if domain == HERE and not Paths(domain).has_ledger:
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


# -- Ctrl-C ---------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """The work was asked to stop, and did."""


def interruptible(work: Callable[[threading.Event], R], patience: float = PATIENCE) -> R:
    """Do the work, which raises `Stopped` soon after the event that it is given is set."""
    stop = threading.Event()
    result = _begin(lambda: work(stop))
    try:
        while True:
            with suppress(NotYet):
                return result.result(TICK)
    except KeyboardInterrupt:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
        stop.set()
        with suppress(NotYet, Stopped):
            result.result(patience)
        raise


def unless(stop: threading.Event, call: Callable[[], R]) -> R:
    """The result of a long call, or `Stopped` once the event is set; the call is then left to itself."""
    result = _begin(call)
    while not stop.is_set():
        with suppress(NotYet):
            return result.result(TICK)
    raise Stopped


@contextmanager
def on_signals(act: Callable[[], object], *numbers: signal.Signals) -> Iterator[None]:
    """While this lasts, these signals do this and nothing else."""
    before = {number: signal.signal(number, lambda _number, _frame: act()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _begin(call: Callable[[], R]) -> Future[R]:
    result: Future[R] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the result raises it again
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result
