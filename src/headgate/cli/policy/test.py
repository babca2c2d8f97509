"""`headgate test`: run scenario files on the reference decision, on Spark and on a running node.

Guarantees: no JVM is started for `--engine decide`; files that are not scenarios are named and the others still run. An
engine that failed is told apart from a policy that did: by its word and the status, with all that it said in a file.
"""
# ruff: noqa: PT028 - the command is called `test`, and is none

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from headgate.cli.shared.common import ENGINE_FAILED, err, fail, keep_trace, out, renew_spark, start_spark
from headgate.cli.shared.options import argument, option
from headgate.cli.shared.rendering import say
from headgate.model.errors import BadScenario, HeadgateError

if TYPE_CHECKING:
    from headgate.scenario.format.story import Scenario
    from headgate.scenario.run import EngineResult


class Engine(StrEnum):
    """What to run a scenario on."""

    DECIDE = "decide"
    SPARK = "spark"
    NODE = "node"
    BOTH = "both"
    ALL = "all"


def test(
    paths: Annotated[list[Path], argument("FILE_OR_DIR...", "Scenario files, or folders of them.")],
    engine: Annotated[
        Engine,
        option(
            "--engine",
            "`decide`: the reference decision, no Java. `spark`: the real pipeline. `node`: gateways and clients, "
            "over HTTP and WebSocket. `both`: the first two. `all`: the three.",
        ),
    ] = Engine.BOTH,
    as_lines: Annotated[bool, option("--json", "One JSON object a line for each scenario and engine.")] = False,
    seed: Annotated[int | None, option("--seed", "Chooses where `crash` steps strike; shown when one fails.")] = None,
) -> None:
    """Test policies: run scenario files and compare what comes of them with what they expect.

    Each scenario is played on the reference decision and on Spark (ledger, log and streaming query in a temporary
    directory), and both are compared with `expect` and with each other. With `--engine all` it is also played on a
    running node, as users would: gateways on loopback, clients that hold keys and prove them, statements that are
    signed. A file that names `predicates` has their Python modules beside it, and they are run: look at a file from
    elsewhere, and at what lies beside it, before you test it.

    For example:

    - `headgate test scenarios` runs every scenario of a folder.
    - `headgate test --engine decide policy.yaml` answers at once, without Java.
    - `headgate test --engine all scenarios` plays everything three times, the last time over the network.
    - `headgate test --json scenarios | jq .passed` is for programs.

    A scenario that Spark did not finish is tried once more on a new JVM. If it fails again, it is an `ERROR` and no
    `FAIL`: nothing is known of the policy. The cause is told, and the file that holds the whole of it.

    Exit status: 0 all passed, 1 something differs, 2 a file is not a scenario (the others still run), 3 nothing differs
    and an engine failed.
    """
    from headgate.scenario.format.story import CrashStep
    from headgate.scenario.run import BOTH, ENGINES, ON_SPARK, run_all

    started = time.perf_counter()
    chosen = secrets.randbelow(2**31) if seed is None else seed
    scenarios, refused = _load(paths)
    for error in refused:
        with suppress(typer.Exit):
            fail(error)
    engines = {Engine.BOTH: BOTH, Engine.ALL: ENGINES}.get(engine, (engine.value,))
    session = start_spark(brief=True) if ON_SPARK.intersection(engines) and scenarios else None
    failed: list[Scenario] = []
    errors = 0
    with _progress(len(scenarios), as_lines) as advance:
        for results in run_all(
            scenarios, engines, session=session, seed=chosen, renew=partial(renew_spark, brief=True)
        ):
            _say(results, as_lines)
            advance()
            if any(result.differences for result in results):
                failed.append(results[0].scenario)
            elif not all(result.finished for result in results):
                errors += 1
    if not as_lines:
        passed = len(scenarios) - len(failed) - errors
        _sum_up(passed, len(failed), errors, len(refused), time.perf_counter() - started)
    if any(isinstance(step, CrashStep) for scenario in failed for step in scenario.steps):
        err.print(f"to see the same crashes again: --seed {chosen}", highlight=False)
    raise typer.Exit(2 if refused else 1 if failed else ENGINE_FAILED if errors else 0)


def _load(paths: Sequence[Path]) -> tuple[list[Scenario], list[HeadgateError]]:
    """The scenarios of some files and folders, and what is wrong with those that are none."""
    from headgate.scenario.format.file import load

    scenarios: list[Scenario] = []
    refused: list[HeadgateError] = []
    for path in paths:
        files = [path]
        if path.is_dir():
            files = sorted(f for f in path.rglob("*") if f.suffix in (".yaml", ".yml") and f.is_file())
            if not files:
                refused.append(BadScenario("there is no `.yaml` file in it", place=str(path)))
        for file in files:
            try:
                scenarios.append(load(file))
            except HeadgateError as error:
                refused.append(error)
    return scenarios, refused


@contextmanager
def _progress(total: int, as_lines: bool) -> Iterator[Callable[[], None]]:
    """A bar where a person sees it and it cannot mix with the output; yields what to call after each scenario."""
    console: Console = err if as_lines else out
    hidden = not console.is_terminal or (as_lines and out.is_terminal)
    columns = (BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=hidden, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


def _say(results: Sequence[EngineResult], as_lines: bool) -> None:
    """The results of one scenario."""
    if as_lines:
        from headgate.scenario.run import as_json

        for result in results:
            print(as_json(result, _kept(result)), flush=True)
        return
    passed = all(result.passed for result in results)
    scenario = results[0].scenario
    word = ("pass", "green") if passed else ("ERROR", "bold magenta")
    if any(result.differences for result in results):
        word = ("FAIL", "bold red")
    took = " + ".join(f"{result.engine} {result.seconds:.2f} s" for result in results)
    say(word, f"  {scenario.title}", (f"  {took}", "dim"))
    if not passed:
        say((f"      {scenario.file}", "dim"))
    for note in dict.fromkeys(note for result in results for note in result.outcome.notes):
        say("      ", ("note", "dim"), f": {note}")
    for result in results:
        if result.failures:
            say("      ", (result.engine, "magenta"), f" {_failure(result)}")
    differences: dict[str, list[str]] = {}
    for result in results:
        for difference in result.differences:
            differences.setdefault(difference, []).append(result.engine)
    for difference, engines in differences.items():
        say("      ", (" and ".join(engines), "yellow"), f": {difference}")


def _failure(result: EngineResult) -> str:
    """What is said of an engine that failed, once or for good."""
    words = "failed" if len(result.failures) == 1 else "failed twice, the second time on a new JVM"
    if result.finished:
        words = "failed at first, and was tried again on a new JVM"
    return f"{words}: {result.failures[-1].cause} (everything it said: {_kept(result)})"


def _kept(result: EngineResult) -> str | None:
    """The file with everything an engine said as it failed, if it did."""
    if not result.failures:
        return None
    head = f"{result.scenario.file} on {result.engine}"
    return keep_trace("\n\n".join([head, *(failure.trace for failure in result.failures)]))


def _sum_up(passed: int, failed: int, errors: int, refused: int, seconds: float) -> None:
    words = [(f"{passed} passed", "green")]
    for number, what, style in (
        (failed, "failed", "bold red"),
        (errors, "error" if errors == 1 else "errors", "bold magenta"),
        (refused, "not a scenario", "bold red"),
    ):
        words += [(f", {number} {what}", style)] if number else []
    say(*words, (f" in {seconds:.1f} s", "dim"))
