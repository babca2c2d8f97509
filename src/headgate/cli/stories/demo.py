"""`headgate demo`: a story on the real pipeline, from the policy to the proof.

Guarantees: what is shown was published, decided and delivered for real. On a terminal the table fills while the query
runs; elsewhere it is printed once, without control codes. Ctrl-C stops everything it started.
"""

from __future__ import annotations

import shlex
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli.shared.common import engine_failures, out
from headgate.cli.shared.interrupt import interruptible, unless
from headgate.cli.stories import STORIES
from headgate.cli.stories.board import Refusal
from headgate.cli.stories.ending import answer, verdict
from headgate.cli.stories.exhibits import show_exhibits
from headgate.cli.stories.stage import Stage
from headgate.model.errors import BadDefinition, UnknownName
from headgate.model.values import brief
from headgate.pipeline.spark.session import spark
from headgate.pipeline.spark.verify import Report, verify

PACE = 0.7
"""Seconds between two events on a terminal, so that the eye can follow."""

INTERRUPTED = 130

StoryArgument = Annotated[str, typer.Argument(metavar="STORY", help=f"One of {', '.join(STORIES)}.")]
KeepOption = Annotated[
    Path | None, typer.Option("--keep", metavar="DIR", help="Leave the domain in this new directory, to look into.")
]


def demo(story: StoryArgument = "numberplate", keep: KeepOption = None) -> None:
    """Watch a policy at work: publish, decide on Spark, change the policy, explain, verify.

    Takes less than a minute and leaves nothing behind, unless asked to keep it. Leaves with status 1 if a delivery is
    not as it should be, and with 3 if Spark failed.

    Examples: `headgate demo`, `headgate demo police`, `headgate demo numberplate --keep plates`
    """
    if story not in STORIES:
        raise UnknownName(f"no story `{brief(story)}`", remedy=f"there are {', '.join(f'`{s}`' for s in STORIES)}")
    try:
        with _directory(keep) as directory:
            report = interruptible(lambda stop: tell(story, directory, keep, stop))
    except KeyboardInterrupt:
        out.print("\nStopped.")
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(0 if report.sound else 1)


def tell(story: str, directory: Path, keep: Path | None, stop: threading.Event) -> Report:
    """The whole story, in a directory, and where to look afterwards."""
    with Stage(story, directory, stop) as stage:
        _opening(stage)
        show_exhibits(stage)
        with _waiting("Starting Apache Spark, which takes every decision (about ten seconds)."), engine_failures():
            session = unless(stop, spark)
        try:
            with engine_failures():
                _performance(stage, session)
            out.print()
            out.print(answer(stage))
            out.print()
            with (
                _waiting("Now Spark decides everything again, from the log and the ledger alone, and compares."),
                engine_failures(),
            ):
                report = unless(stop, lambda: verify(stage.pipeline(session)))
            out.print(verdict(stage.narration.moral, report))
            _goodbye(stage, keep)
            return report
        finally:
            with suppress(Exception):  # a JVM that is gone cannot be stopped
                session.stop()


def _opening(stage: Stage) -> None:
    out.print()
    out.print(Text(stage.scenario.title, "bold"))
    out.print()
    out.print(Text(stage.narration.opening))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for reader in stage.narration.readers:
        table.add_row(Text(reader.title, "bold"), Text(reader.sees))
    out.print()
    out.print(table)
    out.print()


def _performance(stage: Stage, session: Any) -> None:
    """Play the scenes: live on a terminal, otherwise the finished table once."""
    if _moving():
        with Live(console=out, auto_refresh=False, transient=True, redirect_stderr=False) as live:
            stage.play(session, lambda board, say: live.update(board.render(out.width, say), refresh=True), PACE)
    else:
        stage.play(session)
    if not _moving():
        out.print()
    out.print(stage.board.render(out.width))
    out.print()
    for line in stage.lines():
        if line.say:
            out.print(Text(line.say))
    if stage.exhibits:
        out.print()
        show_exhibits(stage)
    refused = [row for row in stage.board.rows if isinstance(row, Refusal)]
    if refused:
        out.print()
    for row in refused:
        remedy = f"; {row.error.remedy}" if row.error.remedy else ""
        out.print(Text.assemble((f"{row.say}: ", "bold"), stage.called(f"{row.error.message}{remedy}")))


def _moving() -> bool:
    return out.is_terminal and not out.is_dumb_terminal


@contextmanager
def _waiting(say: str) -> Iterator[None]:
    """A sentence while something takes its time."""
    if not _moving():
        out.print(Text(say))
        yield
        return
    with out.status(Text(say)):
        yield


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    """A new directory: the one to keep, or one that goes away."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="headgate-demo-", ignore_cleanup_errors=True) as directory:
            yield Path(directory)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise BadDefinition(f"`{keep}` is there already, and is not an empty directory", remedy="name a new one")
    yield keep


def _goodbye(stage: Stage, keep: Path | None) -> None:
    out.print()
    if keep is None:
        out.print(Text(f"Look inside: headgate demo {stage.name} --keep DIR", "dim"))
        return
    option = f"--domain {shlex.quote(str(keep / stage.narration.domain))}"
    asked = stage.narration.question
    out.print(Text(f"Everything is in {keep}. Try:"))
    for command, what in (
        (f"headgate versions {option}", "every change, by whom, and where it starts"),
        (f"headgate explain {asked.principal} {asked.event} {option}", "why a reader sees what it sees"),
        (f"headgate restrictions {stage.narration.readers[0].subscription} {option}", "what a subscription is cut to"),
        (f"headgate verify {option}", "decide everything again and compare"),
        *((command.format(dir=shlex.quote(str(keep))), what) for command, what in stage.narration.tries),
    ):
        out.print(Text(f"  {command}", "bold"), Text(f"    {what}", "dim"), sep="\n", soft_wrap=True)
