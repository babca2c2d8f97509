"""`headgate restrictions`: what a subscription or a publisher loses to its rights (Hermes 8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.text import Text

from headgate.analysis.restrictions import (
    PublishEntry,
    PublishRestriction,
    Reason,
    Restriction,
    RestrictionEntry,
    TypeReach,
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
    show_value,
    table,
)
from headgate.commands import explaining
from headgate.lang.render import render_entry
from headgate.model.conditions import TRUE, Condition, InGroup, Predicate, Related, atoms
from headgate.model.rights import Effect

_REASONS = {
    Reason.NO_GRANT: "no grant reaches it",
    Reason.CREDENTIALS: "event policy asks for credentials that do not count",
    Reason.FORBIDDEN: "a forbid always comes first",
    Reason.NEVER_TRUE: "no grant's condition can ever be true",
    Reason.FILTER: "the filter contradicts itself",
    Reason.HIDDEN: "the filter needs an attribute that is never visible",
    Reason.CONTRADICTS: "the filter contradicts every grant",
    Reason.NO_IDENTITY: "no identity statement is in force",
}


def restrictions(
    subscription: Annotated[str | None, typer.Argument(help="The id of a subscription.")] = None,
    *,
    domain: DomainOption,
    publish: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="PRINCIPAL TYPE", help="What becomes of a principal's events of a type instead."),
    ] = None,
    version: Annotated[
        int | None, typer.Option(min=0, help="Under the rights of this version; default the newest.")
    ] = None,
    asker: AskerOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """Show what a subscription comes to under its principal's rights, beside what was asked.

    For each type that it takes in: the attributes that are visible at most, the condition, and whether anything can
    be delivered at all. "No" is said only where it is proven.

    For example:

    `headgate restrictions track --domain DIR`

    `headgate restrictions track --as smith --version 3 --domain DIR`

    `headgate restrictions --publish cctv uk.gov.pito.Numberplate --domain DIR`
    """
    if (subscription is None) == (publish is None):
        raise typer.BadParameter("give either a subscription, or --publish with a principal and a type")
    check_text(subscription, asker, *(publish or ()))
    with open_domain(domain) as opened:
        if publish is not None:
            lost = explaining.publish_restriction(opened, asker, *publish, version)
            print_json(lost) if json else _show_publish(lost)
            return
        assert subscription is not None
        answer = explaining.restriction(opened, asker, subscription, version)
    print_json(answer) if json else _show(answer)


# -- subscriptions ----------------------------------------------------------------------------------------------


def _show(answer: Restriction) -> None:
    past = ", with history" if answer.history else ""
    say(
        "subscription ",
        (answer.subscription, "bold"),
        f" of {answer.principal} at control version {answer.version}{past}",
    )
    say(f"asked for: {answer.type} where {show_condition(answer.where)}")
    if answer.counted:
        say("counts for event policy: ", "; ".join(map(show_held, answer.counted)))
    say("can be satisfied: ", _verdict(answer))
    if answer.never:
        say(f"asked for in the filter, but never visible: {names(answer.never)}")
    out.print()
    shown = table("type", "sees at most", "when")
    for reach in answer.types:
        shown.add_row(*cells(reach.name, _attributes(reach), _when(reach)))
    out.print(shown)
    for reach in answer.types:
        if reach.entries:
            out.print()
            say((f"entries on {reach.name}, in order", "bold underline"))
            listed = table("entry", "effect", "attributes", "condition")
            for entry in reach.entries:
                listed.add_row(*cells(entry.rule, entry.effect.value, _covers(entry, reach), _asks(entry)))
            out.print(listed)


def _asks(entry: RestrictionEntry) -> str:
    """What an entry asks of the event, and through which membership it counts."""
    if entry.policy is not None:
        return render_entry(entry.policy)
    held = "" if entry.membership is None else f"\n{show_held(entry.membership)}"
    return f"{show_condition(entry.condition)}{held}"


def _verdict(answer: Restriction) -> Text:
    if answer.satisfiable is None:
        return Text("not by the types that may be told here", "yellow")
    if not answer.satisfiable:
        reasons = dict.fromkeys(_REASONS[one.reason] for one in answer.types if one.reason is not None)
        return Text(f"no: {'; '.join(reasons)}", "bold red")
    unless = ", ".join(_unless(answer))
    return Text(f"yes, unless {unless} decide otherwise" if unless else "yes", "green")


def _unless(answer: Restriction) -> Iterator[str]:
    """What a proof does not look into."""
    able = [one for one in answer.types if one.told and one.reason is None]
    entries = [entry for one in able for entry in one.entries]
    conditions: list[Condition] = [answer.where, *(e.condition for e in entries if e.condition is not None)]
    assumptions: dict[str, None] = {}
    for atom in (atom for condition in conditions for atom in atoms(condition)):
        match atom:
            case Predicate(name, _):
                assumptions[f"the predicate `{name}`"] = None
            case InGroup(_, name):
                assumptions[f"the members of `{name}`"] = None
            case Related(name, _):
                assumptions[f"the relation `{name}`"] = None
            case _:
                pass
    yield from assumptions
    if any(entry.condition is None and entry.policy is not None for entry in entries):
        yield "what the event policy looks up"
    if any(entry.condition is None and entry.policy is None for entry in entries):
        yield "conditions that are not disclosed"


def _attributes(one: TypeReach) -> Text:
    if not one.told:
        return Text("(not told)", "dim")
    return Text(", ".join(one.attributes) or ("nothing" if one.reason else "no attribute"))


def _when(reach: TypeReach) -> str:
    if not reach.told:
        return "you do not govern or audit this type"
    if reach.reason is not None:
        return f"never: {_REASONS[reach.reason]}"
    if reach.condition is None and all(e.condition is not None or e.policy is not None for e in reach.entries):
        return "as the entries below say"
    if reach.condition is None:
        return "under conditions that are not disclosed"
    return "always" if reach.condition == TRUE else show_condition(reach.condition)


def _covers(entry: RestrictionEntry, one: TypeReach) -> str:
    every = len(entry.attributes) == len(one.attributes) + len(one.hidden)
    return "all" if every else ", ".join(entry.attributes) or "none"


# -- publishing -------------------------------------------------------------------------------------------------


def _show_publish(answer: PublishRestriction) -> None:
    say(f"what becomes of {answer.type} published by {answer.principal} at control version {answer.version}")
    if answer.reason is None:
        verdict = Text("yes, as the first of these grants that is true allows", "green")
    else:
        verdict = Text(f"no: {_REASONS[answer.reason]}", "bold red")
    say("can be published: ", verdict)
    if not answer.entries:
        return
    out.print()
    shown = table("entry", "effect", "keeps", "forces", "nulls", "condition")
    for entry in answer.entries:
        kept = (
            [", ".join(entry.keeps), _forced(entry), ", ".join(entry.nulls)]
            if entry.effect is Effect.GRANT
            else [""] * 3
        )
        when = "passed over: no identity statement in force" if entry.passed_over else show_condition(entry.condition)
        shown.add_row(*cells(entry.rule, entry.effect.value, *kept, when))
    out.print(shown)


def _forced(one: PublishEntry) -> str:
    return ", ".join(f"{name} = {show_value(value)}" if one.told else name for name, value in one.forces.items())
