"""`headgate verify`: recompute every delivery and compare."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from headgate.cli.shared.common import err, on_spark, open_domain, out
from headgate.cli.shared.options import DomainOption, Json, option
from headgate.cli.shared.rendering import MOST, count_of, print_json, say, show_constant, show_table
from headgate.model.values import Value
from headgate.pipeline.spark.verify import Copy, DeliveryDifference, DifferenceKind, Report, replay
from headgate.pipeline.spark.verify import verify as verified


def verify(
    domain: DomainOption,
    replay_into: Annotated[
        Path | None, option("--replay FILE", "Also write the recomputed deliveries to a new store.")
    ] = None,
    json: Json = False,
) -> None:
    """Recompute all deliveries from the log and the ledger on Spark, and report every difference.

    Leaves with status 1 if anything differs, and with 3 if Spark failed twice and nothing is known. Events that the
    pipeline has not decided yet are counted, and are no difference.

    For example:

    `headgate verify --domain DIR`

    `headgate verify --replay again.db --domain DIR`
    """
    with open_domain(domain) as opened:

        def recompute(session: Any) -> Report:
            with err.status("looking") as status:
                return verified(opened.pipeline(session), status.update)

        def write(session: Any) -> int:
            assert replay_into is not None
            with err.status(f"replaying into {replay_into}"):
                return replay(opened.pipeline(session), replay_into)

        report = on_spark(recompute)
        if replay_into is not None:
            written = on_spark(write)
    if replay_into is not None:
        err.print(Text(f"{written:,} deliveries written to `{replay_into}`"), soft_wrap=True, highlight=False)
    print_json(report) if json else show_report(report)
    if not report.sound:
        raise typer.Exit(1)


def show_report(report: Report) -> None:
    """A report in words, ending with one sentence."""
    if report.differences:
        some = report.differences[:MOST]
        rows = ((one.kind.value, f"{one.stream}:{one.seq}", one.subscription, _what(one)) for one in some)
        show_table(("difference", "event", "subscription", "what"), rows)
        if len(report.differences) > MOST:
            say(f"and {len(report.differences) - MOST:,} more; --json has them all")
        out.print()
    for stream, count in report.undecided.items():
        say(f"not decided yet: {count_of(count, 'event')} of stream {stream}")
    say(sentence(report))


def sentence(report: Report) -> Text:
    """The outcome in one sentence."""
    done = f"{count_of(report.deliveries, 'delivery')} of {count_of(report.events, 'event')} recomputed: "
    if report.sound:
        return Text.assemble(done, ("all as delivered", "bold green"))
    kinds = [f"{report.count(kind):,} {kind.value}" for kind in DifferenceKind if report.count(kind)]
    return Text.assemble(done, (", ".join(kinds), "bold red"))


def _what(difference: DeliveryDifference) -> str:
    match difference.kind:
        case DifferenceKind.MISSING if difference.should is not None:
            return f"{difference.should.event} was not delivered: {_view(difference.should.view)}"
        case DifferenceKind.EXTRA if difference.is_ is not None:
            return f"{difference.is_.event} should not be there: {_view(difference.is_.view)}"
        case DifferenceKind.VERSION if difference.should is not None and difference.is_ is not None:
            is_, should = difference.is_, difference.should
            return f"{is_.event} has version {is_.version}, and should have {should.version}"
        case DifferenceKind.ALTERED if difference.should is not None and difference.is_ is not None:
            return f"{difference.is_.event}: {_altered(difference.should, difference.is_)}"
        case _:
            return difference.words


def _altered(should: Copy, actual: Copy) -> str:
    differences = [
        f"{what} is {mine}, and should be {theirs}"
        for what, mine, theirs in (
            ("its id", actual.event, should.event),
            ("its type", actual.type, should.type),
            ("its publisher", actual.publisher, should.publisher),
            ("its source", actual.source, should.source),
        )
        if mine != theirs
    ]
    for name in {**should.view, **actual.view}:
        mine, theirs = actual.view.get(name), should.view.get(name)
        if mine != theirs:
            differences.append(f"{name} is {show_constant(mine)}, and should be {show_constant(theirs)}")
    return "; ".join(differences)


def _view(view: Mapping[str, Value]) -> str:
    return (
        ", ".join(f"{name} {show_constant(value)}" for name, value in view.items() if value is not None) or "all null"
    )
