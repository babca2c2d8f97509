"""`headgate explain`: why a principal sees what it sees of an event."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from headgate.analysis.explain import (
    AttributeExplanation,
    Demand,
    Explanation,
    Judged,
    Needed,
    Question,
    Standing,
    SubscriptionExplanation,
    Tried,
    Unmet,
    ViewAt,
    Why,
)
from headgate.cli.shared.asker import AskerOption
from headgate.cli.shared.common import DomainOption, open_domain, out
from headgate.cli.shared.rendering import (
    cells,
    check_text,
    names,
    print_json,
    say,
    show_condition,
    show_held,
    show_part,
    show_truth,
    show_value,
    table,
)
from headgate.commands import explaining
from headgate.lang.render import render_argument, render_constraint, render_entry, render_role
from headgate.model.conditions import TRUE
from headgate.model.rights import Effect
from headgate.model.values import render_timestamp


def explain(
    principal: Annotated[str, typer.Argument(help="Whose view to explain.")],
    event: Annotated[str, typer.Argument(help="The id of an event, or its place as `stream:seq`.")],
    domain: DomainOption,
    stream: Annotated[str | None, typer.Option(help="Look for the id in this stream only.")] = None,
    version: Annotated[
        int | None, typer.Option(min=0, help="Decide by this control version instead of the event's own.")
    ] = None,
    subscription: Annotated[
        str | None, typer.Option(metavar="ID", help="Also say what became of this subscription.")
    ] = None,
    asker: AskerOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """Explain what a principal sees of an event: by which rights, why the rest is hidden, and what was missing.

    Owners, governors and auditors of the event's type are told everything. A principal asking about itself
    (`--as` its own name) learns types and attributes, and conditions only of rules marked `disclose`.

    For example:

    `headgate explain billing e1 --domain DIR`

    `headgate explain smith main:7 --subscription track --domain DIR`

    `headgate explain billing e1 --as billing --domain DIR`
    """
    check_text(principal, event, stream, subscription, asker)
    with open_domain(domain) as opened:
        question = Question(asker or opened.ledger.administrator, principal, event, version, subscription)
        answer, others = explaining.explain(opened, question, stream)
    if json:
        print_json(answer)
    else:
        _show(answer)
        if others and answer.full:
            say(f"\nnote: {others + 1} events are called `{event}`; ask for the others as stream:seq")


# -- words ------------------------------------------------------------------------------------------------------


def _show(answer: Explanation) -> None:
    place = f" at {answer.place[0]}:{answer.place[1]}" if answer.place else ""
    say("event ", (answer.event, "bold"), f" ({answer.type}){place}, ", _published(answer))
    if answer.version == answer.event_version:
        say(f"seen by {answer.principal} at control version {answer.version}")
    else:
        would = f"as {answer.principal} would see it at control version {answer.version}"
        say(f"{would} (it was published at {answer.event_version})")
    if answer.counted is not None:
        say(f"counting for event policy: {names(answer.counted) or 'no credential'}")
    if not answer.visible:
        say(("no view: ", "bold red"), _no_view(answer))
    out.print()
    shown = table("attribute", "sees", "why")
    for one in answer.attributes:
        sees = Text(show_value(one.value), "green") if one.visible else Text("hidden", "red")
        shown.add_row(*cells(one.name, sees, _why(one, answer)))
    out.print(shown)
    for view in answer.views:
        _show_tried(view, answer)
    for unmet in answer.unmet:
        out.print()
        _show_unmet(unmet, answer.principal)
    if answer.subscription is not None:
        out.print()
        _show_subscription(answer.subscription, answer)
    if answer.needed:
        out.print()
        say(("what would have been needed", "bold underline"))
        for need in answer.needed:
            say(f"  {_need(need, answer)}")


def _published(answer: Explanation) -> str:
    return f"published by {answer.publisher} at {render_timestamp(answer.time)}"


def _no_view(answer: Explanation) -> str:
    view = next(v for v in answer.views if not v.exists)
    when = f" at version {view.version}" if len(answer.views) > 1 else ""
    if view.stopped_by is not None:
        return f"`{view.stopped_by}` forbids the whole event{when}, and no grant comes before it"
    if not any(t.effect is Effect.GRANT for t in view.tried):
        return f"no entry of {answer.principal} grants it any event of this type{when}"
    return f"no grant of {answer.principal} holds for this event{when}"


def _why(attribute: AttributeExplanation, answer: Explanation) -> str:
    when = f" at version {attribute.version}" if len(answer.views) > 1 else ""
    match attribute.why:
        case Why.GRANTED:
            null = "; it is null in the event" if attribute.visible and attribute.value is None else ""
            return f"granted by `{attribute.rule}`{when}{null}"
        case Why.FORBIDDEN:
            return f"forbidden by `{attribute.rule}`{when}"
        case Why.UNCOVERED if attribute.failed:
            covers = (
                "covers it, but its condition is"
                if len(attribute.failed) == 1
                else "cover it, but their conditions are"
            )
            return f"{names(attribute.failed)} {covers} not true{when}"
        case Why.UNCOVERED:
            return f"no {'entry' if answer.full else 'right of yours'} shows it{when}"


def _show_tried(view: ViewAt, answer: Explanation) -> None:
    out.print()
    title = "entries tried, in order" if answer.full else "entries that may be told, in order"
    title += f", at version {view.version}" if len(answer.views) > 1 else ""
    say((title, "bold underline"), "" if view.tried else ": none")
    if not view.tried:
        return
    shown = table("entry", "effect", "condition", "outcome")
    for one in view.tried:
        shown.add_row(*cells(one.rule, _to(one), _asks(one), _outcome(one)))
    out.print(shown)


def _to(one: Tried) -> str:
    """What an entry does, and to whom."""
    if one.role is not None:
        return f"{one.effect.value} to {render_role(one.role)}"
    return one.effect.value if one.who in (None, "") else f"{one.effect.value} to {one.who}"


def _asks(one: Tried) -> str:
    """What an entry asks of the event, and of whoever it speaks to."""
    return show_condition(one.condition) if one.judged is None else render_entry(one.judged.entry)


def _outcome(attempt: Tried) -> str:
    if attempt.matched is None:
        return "not told"
    if attempt.matched:
        does = "shows" if attempt.effect is Effect.GRANT else "hides"
        outcome = (
            f"{does} {names(attempt.decided)}" if attempt.decided else "matches, but decides nothing that is still open"
        )
    else:
        outcome = "does not match"
    if not attempt.told:
        return outcome
    lines = [] if attempt.membership is None else [show_held(attempt.membership)]
    lines += [] if attempt.judged is None else _credentials(attempt.judged)
    lines += [show_part(part) for part in attempt.parts if part.values]
    unknown = " (an unknown forbid forbids)" if attempt.matched and attempt.truth is None else ""
    return "\n".join([f"{show_truth(attempt.truth)}: {outcome}{unknown}", *lines])


def _credentials(judged: Judged) -> list[str]:
    """What an entry of the event policy saw of the event, and what was shown for it."""
    seen = ", ".join(f"{name} is {render_argument(v)}" for name, v in judged.parameters)
    lines = [f"of the event: {seen}"] if seen else []
    if judged.missing:
        return [*lines, *(f"nothing that counts is `{render_role(ref)}`" for ref in judged.missing)]
    lines += map(show_held, judged.credentials)
    if judged.entry.constraint != TRUE:
        lines.append(f"`{render_constraint(judged.entry.constraint)}` is {show_truth(judged.constraint)}")
    return lines


def _show_unmet(unmet: Unmet, who: str) -> None:
    whose = {
        Demand.EVENT: "the requirement of the event",
        Demand.POLICY_RULE: "the policy rule of its publisher",
        Demand.SUBSCRIPTION: "the requirement of the subscription",
    }[unmet.demand]
    say(("stopped: ", "bold red"), f"{who} does not meet {whose}: {show_condition(unmet.condition)}")
    for part in unmet.parts:
        say(f"  {show_part(part)}")


def _show_subscription(asked: SubscriptionExplanation, answer: Explanation) -> None:
    verdict = Text("delivered", "bold green") if asked.delivered else Text("not delivered", "bold red")
    say("subscription ", (asked.id, "bold"), ": ", verdict, f", {_standing(asked, answer)}")
    if asked.where is not None:
        say(f"  its filter over the view: {show_condition(asked.where)}")
    for unmet in asked.unmet:
        _show_unmet(unmet, answer.publisher)
    if not asked.delivered:
        for part in asked.parts:
            say(f"  {show_part(part, asked.hidden)}")


def _standing(asked: SubscriptionExplanation, answer: Explanation) -> str:
    match asked.standing:
        case Standing.NOT_YET:
            return f"because it began at version {asked.first}, after the event, and asks for no history so far back"
        case Standing.ENDED:
            return f"because it was not in force at version {answer.version}"
        case Standing.OTHER_TYPE:
            return f"because it wants `{asked.type}`, and the event is no such type"
        case _ if asked.delivered:
            return "the filter is true over the view"
        case _ if not answer.visible:
            return "because there is no view"
        case _ if answer.unmet or asked.unmet:
            return "because a requirement is not met"
        case _:
            return f"because the filter is {show_truth(asked.truth) if asked.parts else 'not true'} over the view"


def _need(need: Needed, answer: Explanation) -> str:
    covering = f" covering {names(need.attributes)}" if need.attributes else ""
    text = f"a subscribe grant to {answer.principal} on `{need.type}`{covering}"
    if need.before is not None:
        text += f", placed before the forbid `{need.before}`"
    if len(answer.views) > 1 or answer.version != answer.event_version:
        text += f", at version {need.version}"
    if need.failed:
        text += f"; or the condition of {' or '.join(f'`{r}`' for r in need.failed)} true"
    return text
