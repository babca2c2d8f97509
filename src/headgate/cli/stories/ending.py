"""How a story ends: one question answered, and the whole run decided again.

Guarantees: the answer is that of `analysis.explain` for the administrator, in plain words; the last sentence says that
all is well only if `verify` found no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate.analysis.explain import AttributeExplanation, Demand, Explanation, Question, Unmet, Why, explain
from headgate.cli.stories.board import show
from headgate.cli.stories.stage import Stage
from headgate.decide.ask import Books
from headgate.lang.render import render_condition
from headgate.model.rights import Effect, Source
from headgate.pipeline.spark.verify import Report


def answer(stage: Stage) -> RenderableType:
    """Why a reader does not see an attribute: each attribute with its reason, and what it would have taken."""
    domain = stage.world.domain
    ledger, asked = domain.ledger, stage.narration.question
    explanation = explain(
        Question(ledger.administrator, asked.principal, asked.event),
        stage.event(asked.event),
        Books(ledger.state(), ledger.state, domain.predicates),
    )
    lines = [Text(line) for line in (*_failed(explanation), *_needed(explanation, asked.attribute), *_asides(stage))]
    return Group(Text(asked.text, "bold"), _attributes(explanation, stage), *lines)


def _attributes(explanation: Explanation, stage: Stage) -> RenderableType:
    who, asked = stage.called(explanation.principal), stage.narration.question.attribute
    if not explanation.visible:
        return Text(f"No right of `{who}` holds for this event, so it is not sent at all.")
    if explanation.unmet:
        unmet = ", and ".join(f"{_demand(one)}, which is {_outcome(one.truth)} of `{who}`" for one in explanation.unmet)
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


def _outcome(truth: bool | None) -> str:
    return "unknown" if truth is None else str(truth).lower()


def _failed(explanation: Explanation) -> Iterator[str]:
    """The grants that were tried and did not hold, with what decided."""
    for attempt in explanation.views[0].tried:
        if attempt.matched or attempt.effect is Effect.FORBID:
            continue
        for part in attempt.parts:
            asks = f"asks for {render_condition(part.condition)}, which is {_outcome(part.truth)} here"
            yield f"The rule `{attempt.rule}` {asks}."


def _needed(explanation: Explanation, attribute: str) -> Iterator[str]:
    for need in explanation.needed:
        if attribute in need.attributes:
            first = f", placed before the rule `{need.before}`" if need.before else ""
            what = f"covers {attribute}" if explanation.visible else "holds for it"
            yield f"It would take a right to subscribe to {need.type} that {what}{first}."


def _asides(stage: Stage) -> Iterator[str]:
    for subscription, text in stage.narration.asides.items():
        yield text.format(count=sum(name == subscription for _, _, name in stage.board.received))


def verdict(moral: str, report: Report) -> Text:
    """The last sentence."""
    counts = f"{report.events} events and {report.deliveries} deliveries"
    if report.sound and not report.undecided:
        return Text(f"{moral}: {counts} decided again from the log, with no difference.", "bold green")
    wrong = f"{len(report.differences)} deliveries differ and {sum(report.undecided.values())} events are undecided"
    return Text(f"{counts} decided again from the log: {wrong}.", "bold red")
