"""How a story ends: one question answered, and the whole run decided again.

Guarantees: the answer is that of `decide.explain` for the administrator, in plain words; the last sentence says that
all is well only if `verify` found no difference.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate.cli.stories.script import Story, show
from headgate.cli.stories.stage import Stage
from headgate.decide.ask import Books
from headgate.decide.explain import explain
from headgate.decide.explanation import Explanation, Question, Shown, Why
from headgate.lang.render import render_condition
from headgate.model.rights import Effect
from headgate.pipeline.verify import Report


def answer(stage: Stage) -> RenderableType:
    """Why a reader does not see an attribute: each attribute with its reason, and what it would have taken."""
    ledger = stage.gateway.ledger
    asked = stage.story.question
    found = explain(
        Question(ledger.administrator, asked.principal, asked.event),
        stage.event(asked.event),
        Books(ledger.state(), ledger.state, stage.gateway.predicates),
    )
    lines = [Text(line) for line in (*_failed(found), *_needed(found, asked.attribute), *_asides(stage))]
    return Group(Text(asked.text, "bold"), _attributes(found, asked.attribute), *lines)


def _attributes(found: Explanation, asked: str) -> RenderableType:
    if not found.visible:
        return Text(f"No right of `{found.principal}` holds for this event, so it is not sent at all.")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for one in found.attributes:
        value = Text(show(one.value), "green") if one.visible else Text("hidden", "yellow")
        table.add_row(Text(one.name, "bold" if one.name == asked else ""), value, Text(_why(one, found)))
    return table


def _why(one: Shown, found: Explanation) -> str:
    match one.why:
        case Why.GRANTED:
            return f"shown by the rule `{one.rule}`"
        case Why.FORBIDDEN:
            return f"the rule `{one.rule}` forbids it"
        case Why.UNCOVERED if one.failed:
            return "the rules that would show it do not hold for this event"
        case Why.UNCOVERED:
            return f"no rule shows it to `{found.principal}`"


def _failed(found: Explanation) -> Iterator[str]:
    """The grants that were tried and did not hold, with what decided."""
    for one in found.views[0].tried:
        if one.matched or one.effect is Effect.FORBID:
            continue
        for part in one.parts:
            outcome = "unknown" if part.truth is None else "false"
            yield f"The rule `{one.rule}` asks for {render_condition(part.condition)}, which is {outcome} here."


def _needed(found: Explanation, attribute: str) -> Iterator[str]:
    for need in found.needed:
        if attribute in need.attributes:
            first = f", placed before the rule `{need.before}`" if need.before else ""
            what = f"covers {attribute}" if found.visible else "holds for it"
            yield f"It would take a right to subscribe to {need.type} that {what}{first}."


def _asides(stage: Stage) -> Iterator[str]:
    for aside in stage.story.asides:
        yield aside.text.format(count=sum(name == aside.subscription for _, _, name in stage.board.received))


def verdict(story: Story, report: Report) -> Text:
    """The last sentence."""
    counts = f"{report.events} events and {report.deliveries} deliveries"
    if report.sound and not report.undecided:
        return Text(f"{story.moral}: {counts} decided again from the log, with no difference.", "bold green")
    wrong = f"{len(report.differences)} deliveries differ and {sum(report.undecided.values())} events are undecided"
    return Text(f"{counts} decided again from the log: {wrong}.", "bold red")
