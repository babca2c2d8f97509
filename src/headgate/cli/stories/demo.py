"""`headgate demo`: a story on the real pipeline, from the policy to the proof, with one question answered.

Guarantees: what is shown was published, decided and delivered for real. On a terminal the table fills while the query
runs; elsewhere it is printed once, without control codes. The answer is that of `analysis.explain` for the
administrator, in plain words; the last sentence says that all is well only if `verify` found no difference. Ctrl-C
stops everything it started.
"""

from __future__ import annotations

import shlex
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.analysis.explain import AttributeExplanation, Demand, Explanation, Question, Unmet, Why, explain
from headgate.cli.roles.graph import of_answer, tree
from headgate.cli.shared.common import engine_failures, interruptible, out, unless
from headgate.cli.shared.options import argument, option
from headgate.cli.shared.rendering import show_table, show_truth, show_value
from headgate.cli.statements.statement_files import KeyNames
from headgate.cli.statements.statement_rendering import draw_chain, say_legend
from headgate.cli.stories import STORIES
from headgate.cli.stories.stage import Refusal, Stage, show
from headgate.commands.role_graph import graph
from headgate.decide.deliver import Books
from headgate.lang.render import render_condition
from headgate.model.authority import Identity
from headgate.model.changes import SetProvider
from headgate.model.errors import BadDefinition, UnknownName
from headgate.model.rights import Effect, Source
from headgate.model.values import brief
from headgate.pipeline.spark.session import spark
from headgate.pipeline.spark.verify import Report, verify
from headgate.scenario.format.narration import Exhibit

PACE = 0.7
"""Seconds between two events on a terminal, so that the eye can follow."""

INTERRUPTED = 130

StoryArgument = Annotated[str, argument("STORY", f"One of {', '.join(STORIES)}.")]
KeepOption = Annotated[Path | None, option("--keep DIR", "Leave the domain in this new directory, to look into.")]


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
            stage.play(session, lambda board, say: live.update(board.render_live(out.width, say), refresh=True), PACE)
    else:
        stage.play(session)
    if not _moving():
        out.print()
    out.print(stage.board.render(out.width))
    out.print()
    if stage.board.map is not None:
        out.print(Text("Where everyone was last, as each of them sees it, and what was signalled", "bold"))
        out.print(stage.board.map.render(out.width, stage.board.received))
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


def answer(stage: Stage) -> RenderableType:
    """Why a reader does not see an attribute: each attribute with its reason, and what it would have taken."""
    domain = stage.world.domain
    ledger, asked = domain.ledger, stage.narration.question
    explanation = explain(
        Question(ledger.administrator, asked.principal, asked.event),
        stage.event(asked.event),
        Books(ledger.state(), ledger.state, domain.predicates),
    )
    received = Counter(name for _, _, name in stage.board.received)
    asides = (text.format(count=received[name]) for name, text in stage.narration.asides.items())
    lines = [Text(line) for line in (*_failed(explanation), *_needed(explanation, asked.attribute), *asides)]
    return Group(Text(asked.text, "bold"), _attributes(explanation, stage), *lines)


def _attributes(explanation: Explanation, stage: Stage) -> RenderableType:
    who, asked = stage.called(explanation.principal), stage.narration.question.attribute
    if not explanation.visible:
        return Text(f"No right of `{who}` holds for this event, so it is not sent at all.")
    if explanation.unmet:
        unmet = ", and ".join(
            f"{_demand(one)}, which is {show_truth(one.truth)} of `{who}`" for one in explanation.unmet
        )
        return Text(f"`{who}` has the right to see it, but {unmet}. So it is not sent at all.")
    chains = {
        rule.id: stage.called(rule.author)
        for rule in stage.world.domain.ledger.state(explanation.version).rules
        if rule.source is Source.CHAIN
    }
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for one in explanation.attributes:
        value = Text(show(one.value), "green") if one.visible else Text("hidden", "yellow")
        table.add_row(Text(one.name, "bold" if one.name == asked else ""), value, Text(_why(one, who, chains)))
    return table


def _why(attribute: AttributeExplanation, who: str, chains: Mapping[str, str]) -> str:
    match attribute.why:
        case Why.GRANTED if attribute.rule is not None and attribute.rule in chains:
            return f"shown by a chain that begins at `{chains[attribute.rule]}`"
        case Why.GRANTED:
            return f"shown by the rule `{attribute.rule}`"
        case Why.FORBIDDEN:
            return f"the rule `{attribute.rule}` forbids it"
        case Why.UNCOVERED if attribute.failed:
            return "the rules that would show it do not hold for this event"
        case Why.UNCOVERED:
            return f"no {'certificate' if chains else 'rule'} shows it to `{who}`"


def _demand(unmet: Unmet) -> str:
    rule = render_condition(unmet.condition)
    match unmet.demand:
        case Demand.EVENT:
            return f"the event asks for receivers with {rule}"
        case Demand.POLICY_RULE:
            return f"the policy rule of its publisher is {rule}"
        case Demand.SUBSCRIPTION:
            return f"the subscription asks for publishers with {rule}"
        case Demand.READERS:
            return "the event is for those who could read what it rests on"


def _failed(explanation: Explanation) -> Iterator[str]:
    """The grants that were tried and did not hold, with what decided."""
    for attempt in explanation.views[0].tried:
        if attempt.matched or attempt.effect is Effect.FORBID:
            continue
        for part in attempt.parts:
            asks = f"asks for {render_condition(part.condition)}, which is {show_truth(part.truth)} here"
            yield f"The rule `{attempt.rule}` {asks}."


def _needed(explanation: Explanation, attribute: str) -> Iterator[str]:
    for need in explanation.needed:
        if attribute in need.attributes:
            first = f", placed before the rule `{need.before}`" if need.before else ""
            what = f"covers {attribute}" if explanation.visible else "holds for it"
            yield f"It would take a right to subscribe to {need.type} that {what}{first}."


def verdict(moral: str, report: Report) -> Text:
    """The last sentence."""
    counts = f"{report.events} events and {report.deliveries} deliveries"
    if report.sound and not report.undecided:
        return Text(f"{moral}: {counts} decided again from the log, with no difference.", "bold green")
    wrong = f"{len(report.differences)} deliveries differ and {sum(report.undecided.values())} events are undecided"
    return Text(f"{counts} decided again from the log: {wrong}.", "bold red")


class _StoryKeys(KeyNames):
    """Keys by the names they have in the story, whichever organisation keeps them."""

    def __init__(self, place: Path, names: Mapping[str, str]) -> None:
        super().__init__(place / "keys")
        self._known.update(names)


def show_exhibits(stage: Stage) -> None:
    """Everything that there is to show by now, each under its title, and a legend of the keys."""
    exhibits, stage.exhibits = stage.exhibits, []
    names = _StoryKeys(stage.place, stage.signers.names if stage.signers is not None else {})
    for number, (exhibit, version) in enumerate(exhibits):
        if number:
            out.print()
        out.print(Text(exhibit.title, "bold"))
        _show(exhibit, version, stage, names)
    say_legend(names)
    if exhibits:
        out.print()


def _show(exhibit: Exhibit, version: int, stage: Stage, names: KeyNames) -> None:
    match exhibit.kind:
        case "chain":
            assert stage.signers is not None, "a chain is of signed certificates"
            draw_chain(stage.signers.chain(exhibit.statements, stage.world.now), names)
        case "guests":
            rows = [row for id in exhibit.statements for row in _translated(stage, id)]
            show_table(("guest", "at home", "here", ""), rows)
        case "checks":
            assert stage.signers is not None, "what is checked is signed"
            for check in exhibit.checks:
                stage.signers.check(check, str(stage.world.state().coordinator), stage.world.now)
            show_table(exhibit.columns, [check.words for check in exhibit.checks])
        case _:
            domain = stage.world.domain
            state = domain.ledger.state(version)
            whole = of_answer(graph(state, state.administrator, None, domain.functions(state)))
            for line in tree(whole):
                out.print(line, highlight=False, soft_wrap=True)


def _translated(stage: Stage, id: str) -> Iterator[tuple[str, str, str, str]]:
    """Each attribute of a guest at home, and what has become of it."""
    guest = stage.scenario.statements[id]
    assert isinstance(guest, Identity), "a guest is known by an identity"
    home = stage.scenario.statements[str(guest.origin)]
    assert isinstance(home, Identity), "and is known by one at home"
    providers = [change.provider for change in stage.scenario.policy.changes if isinstance(change, SetProvider)]
    mapping = next(provider.mapping for provider in providers if provider.key == guest.guest_of)
    renamed = {one.name: one.to for one in mapping or ()}
    for name, value in home.attributes.items():
        words = f"{name} = {show_value(value)}"
        to = renamed.get(name)
        if to is None:
            result = "-", "dropped: not in the mapping"
        elif to not in guest.attributes:
            result = "-", "dropped: value not mapped"
        else:
            kept = "kept as it is" if (to, guest.attributes[to]) == (name, value) else "renamed"
            result = f"{to} = {show_value(guest.attributes[to])}", kept
        yield stage.called(guest.subject), words, *result
