"""`headgate explain`, `restrictions` and `versions`: why a principal sees what it sees of an event, what a
subscription or a publisher loses to its rights (Hermes 8), and the history of the policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from headgate.analysis import explain as ex
from headgate.analysis import restrictions as rs
from headgate.cli.shared import rendering
from headgate.cli.shared.common import open_domain, out
from headgate.cli.shared.options import Asker, DomainOption, Json, argument, option
from headgate.cli.shared.rendering import names, print_json, say, show_condition, show_table, show_truth
from headgate.lang.render import render_argument, render_constraint, render_entry, render_role
from headgate.ledger import HistoryEntry, Ledger, StartingPoint, VersionInfo
from headgate.model.errors import NotFound
from headgate.model.expressions import TRUE, Atom, Condition, InGroup, Predicate, Related, atoms
from headgate.model.rights import Effect
from headgate.model.values import render_timestamp


def explain(
    principal: Annotated[str, argument("", "Whose view to explain.")],
    event: Annotated[str, argument("", "The id of an event, or its place as `stream:seq`.")],
    domain: DomainOption,
    stream: Annotated[str | None, option("--stream", "Look for the id in this stream only.")] = None,
    version: Annotated[
        int | None, option("--version", "Decide by this control version instead of the event's own.", min=0)
    ] = None,
    subscription: Annotated[
        str | None, option("--subscription ID", "Also say what became of this subscription.")
    ] = None,
    asker: Asker = None,
    json: Json = False,
) -> None:
    """Explain what a principal sees of an event: by which rights, why the rest is hidden, and what was missing.

    Owners, governors and auditors of the event's type are told everything. A principal asking about itself
    (`--as` its own name) learns types and attributes, and conditions only of rules marked `disclose`.

    For example:

    `headgate explain billing e1 --domain DIR`

    `headgate explain smith main:7 --subscription track --domain DIR`

    `headgate explain billing e1 --as billing --domain DIR`
    """
    from headgate.commands import explaining

    with open_domain(domain) as opened:
        question = ex.Question(asker or opened.ledger.administrator, principal, event, version, subscription)
        answer, others = explaining.explain(opened, question, stream)
    print_json(answer) if json else show_explanation(answer)
    if others and answer.full and not json:
        say(f"\nnote: {others + 1} events are called `{event}`; ask for the others as stream:seq")


# -- words ------------------------------------------------------------------------------------------------------


def show_explanation(answer: ex.Explanation) -> None:
    """What became of an event for a principal, as people read it."""
    place = f" at {answer.place[0]}:{answer.place[1]}" if answer.place else ""
    published = f"published by {answer.publisher} at {render_timestamp(answer.time)}"
    say("event ", (answer.event, "bold"), f" ({answer.type}){place}, {published}")
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
    hidden = Text("hidden", "red")
    rows = (
        (one.name, Text(rendering.show_value(one.value), "green") if one.visible else hidden, _why(one, answer))
        for one in answer.attributes
    )
    show_table(("attribute", "sees", "why"), rows)
    for view in answer.views:
        _show_tried(view, answer)
    for unmet in answer.unmet:
        out.print()
        _show_unmet(unmet, answer.principal)
    for one in answer.declassified:
        above = "" if one.by == one.type else f" by `{one.by}`"
        say(f"made of `{one.type}`, declassified{above} for it by {one.owner}, at version {answer.event_version}")
    if answer.subscription is not None:
        out.print()
        _show_subscription(answer.subscription, answer)
    if answer.needed:
        out.print()
        say(("what would have been needed", "bold underline"))
        for need in answer.needed:
            say(f"  {_need(need, answer)}")


def _no_view(answer: ex.Explanation) -> str:
    view = next(v for v in answer.views if not v.exists)
    when = f" at version {view.version}" if len(answer.views) > 1 else ""
    if view.stopped_by is not None:
        return f"`{view.stopped_by}` forbids the whole event{when}, and no grant comes before it"
    if not any(t.effect is Effect.GRANT for t in view.tried):
        return f"no entry of {answer.principal} grants it any event of this type{when}"
    return f"no grant of {answer.principal} holds for this event{when}"


def _why(attribute: ex.AttributeExplanation, answer: ex.Explanation) -> str:
    when = f" at version {attribute.version}" if len(answer.views) > 1 else ""
    match attribute.why:
        case ex.Why.GRANTED:
            null = "; it is null in the event" if attribute.visible and attribute.value is None else ""
            return f"granted by `{attribute.rule}`{when}{null}"
        case ex.Why.FORBIDDEN:
            return f"forbidden by `{attribute.rule}`{when}"
        case ex.Why.UNCOVERED if attribute.failed:
            many = len(attribute.failed) > 1
            covers = "cover it, but their conditions are" if many else "covers it, but its condition is"
            return f"{names(attribute.failed)} {covers} not true{when}"
        case ex.Why.UNCOVERED:
            return f"no {'entry' if answer.full else 'right of yours'} shows it{when}"


def _show_tried(view: ex.ViewAt, answer: ex.Explanation) -> None:
    out.print()
    title = "entries tried, in order" if answer.full else "entries that may be told, in order"
    title += f", at version {view.version}" if len(answer.views) > 1 else ""
    say((title, "bold underline"), "" if view.tried else ": none")
    if not view.tried:
        return
    rows = []
    for one in view.tried:
        asks = show_condition(one.condition) if one.judged is None else render_entry(one.judged.entry)
        rows.append((one.rule, _to(one), asks, _outcome(one)))
    show_table(("entry", "effect", "condition", "outcome"), rows)


def _to(one: ex.Tried) -> str:
    """What an entry does, and to whom."""
    if one.role is not None:
        return f"{one.effect.value} to {render_role(one.role)}"
    return one.effect.value if one.who in (None, "") else f"{one.effect.value} to {one.who}"


def _outcome(attempt: ex.Tried) -> str:
    if attempt.matched is None:
        return "not told"
    if attempt.matched:
        does = "shows" if attempt.effect is Effect.GRANT else "hides"
        nothing = "matches, but decides nothing that is still open"
        outcome = f"{does} {names(attempt.decided)}" if attempt.decided else nothing
    else:
        outcome = "does not match"
    if not attempt.told:
        return outcome
    lines = [] if attempt.membership is None else [rendering.show_held(attempt.membership)]
    lines += [] if attempt.judged is None else _credentials(attempt.judged)
    lines += [rendering.show_part(part) for part in attempt.parts if part.values]
    unknown = " (an unknown forbid forbids)" if attempt.matched and attempt.truth is None else ""
    return "\n".join([f"{show_truth(attempt.truth)}: {outcome}{unknown}", *lines])


def _credentials(judged: ex.Judged) -> list[str]:
    """What an entry of the event policy saw of the event, and what was shown for it."""
    seen = ", ".join(f"{name} is {render_argument(v)}" for name, v in judged.parameters)
    lines = [f"of the event: {seen}"] if seen else []
    if judged.missing:
        return [*lines, *(f"nothing that counts is `{render_role(ref)}`" for ref in judged.missing)]
    lines += map(rendering.show_held, judged.credentials)
    if judged.entry.constraint != TRUE:
        lines.append(f"`{render_constraint(judged.entry.constraint)}` is {show_truth(judged.constraint)}")
    return lines


def _show_unmet(unmet: ex.Unmet, who: str) -> None:
    if unmet.demand is ex.Demand.READERS:
        say(("stopped: ", "bold red"), f"{who} could not read all that the event rests on")
        return
    whose = {
        ex.Demand.EVENT: "the requirement of the event",
        ex.Demand.POLICY_RULE: "the policy rule of its publisher",
        ex.Demand.SUBSCRIPTION: "the requirement of the subscription",
    }[unmet.demand]
    say(("stopped: ", "bold red"), f"{who} does not meet {whose}: {show_condition(unmet.condition)}")
    for part in unmet.parts:
        say(f"  {rendering.show_part(part)}")


def _show_subscription(asked: ex.SubscriptionExplanation, answer: ex.Explanation) -> None:
    verdict = Text("delivered", "bold green") if asked.delivered else Text("not delivered", "bold red")
    say("subscription ", (asked.id, "bold"), ": ", verdict, f", {_standing(asked, answer)}")
    if asked.where is not None:
        say(f"  its filter over the view: {show_condition(asked.where)}")
    for unmet in asked.unmet:
        _show_unmet(unmet, answer.publisher)
    if not asked.delivered:
        for part in asked.parts:
            say(f"  {rendering.show_part(part, asked.hidden)}")


def _standing(asked: ex.SubscriptionExplanation, answer: ex.Explanation) -> str:
    match asked.standing:
        case ex.Standing.NOT_YET:
            return f"because it began at version {asked.first}, after the event, and asks for no history so far back"
        case ex.Standing.ENDED:
            return f"because it was not in force at version {answer.version}"
        case ex.Standing.OTHER_TYPE:
            return f"because it wants `{asked.type}`, and the event is no such type"
        case _ if asked.delivered:
            return "the filter is true over the view"
        case _ if not answer.visible:
            return "because there is no view"
        case _ if answer.unmet or asked.unmet:
            return "because a requirement is not met"
        case _:
            return f"because the filter is {show_truth(asked.truth) if asked.parts else 'not true'} over the view"


def _need(need: ex.Needed, answer: ex.Explanation) -> str:
    covering = f" covering {names(need.attributes)}" if need.attributes else ""
    text = f"a subscribe grant to {answer.principal} on `{need.type}`{covering}"
    if need.before is not None:
        text += f", placed before the forbid `{need.before}`"
    if len(answer.views) > 1 or answer.version != answer.event_version:
        text += f", at version {need.version}"
    if need.failed:
        text += f"; or the condition of {' or '.join(f'`{r}`' for r in need.failed)} true"
    return text


MOST_CHANGES = 20
"""Differences shown for one version; `--json` has them all."""

_REASONS = {
    rs.Reason.NO_GRANT: "no grant reaches it",
    rs.Reason.CREDENTIALS: "event policy asks for credentials that do not count",
    rs.Reason.FORBIDDEN: "a forbid always comes first",
    rs.Reason.NEVER_TRUE: "no grant's condition can ever be true",
    rs.Reason.FILTER: "the filter contradicts itself",
    rs.Reason.HIDDEN: "the filter needs an attribute that is never visible",
    rs.Reason.CONTRADICTS: "the filter contradicts every grant",
    rs.Reason.NO_IDENTITY: "no identity statement is in force",
}


def restrictions(
    subscription: Annotated[str | None, argument("", "The id of a subscription.")] = None,
    *,
    domain: DomainOption,
    publish: Annotated[
        tuple[str, str] | None,
        option("--publish PRINCIPAL TYPE", "What becomes of a principal's events of a type instead."),
    ] = None,
    version: Annotated[
        int | None, option("--version", "Under the rights of this version; default the newest.", min=0)
    ] = None,
    asker: Asker = None,
    json: Json = False,
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
    from headgate.commands import explaining

    with open_domain(domain) as opened:
        if publish is not None:
            lost = explaining.publish_restriction(opened, asker, *publish, version)
            print_json(lost) if json else _show_publish(lost)
            return
        assert subscription is not None
        answer = explaining.restriction(opened, asker, subscription, version)
    print_json(answer) if json else _show_restriction(answer)


# -- subscriptions ----------------------------------------------------------------------------------------------


def _show_restriction(answer: rs.Restriction) -> None:
    past = ", with history" if answer.history else ""
    whose = f" of {answer.principal} at control version {answer.version}{past}"
    say("subscription ", (answer.subscription, "bold"), whose)
    say(f"asked for: {answer.detects or f'{answer.type} where {show_condition(answer.where)}'}")
    if answer.counted:
        say("counts for event policy: ", "; ".join(map(rendering.show_held, answer.counted)))
    say("can be satisfied: ", _verdict(answer))
    if answer.never:
        say(f"asked for, but never visible: {names(answer.never)}")
    out.print()
    show_table(("type", "sees at most", "when"), ((one.name, _attributes(one), _when(one)) for one in answer.types))
    for reach in answer.types:
        if reach.entries:
            out.print()
            say((f"entries on {reach.name}, in order", "bold underline"))
            rows = ((one.rule, one.effect.value, _covers(one, reach), _asks_of(one)) for one in reach.entries)
            show_table(("entry", "effect", "attributes", "condition"), rows)


def _asks_of(entry: rs.RestrictionEntry) -> str:
    """What an entry asks of the event, and through which membership it counts."""
    if entry.policy is not None:
        return render_entry(entry.policy)
    held = "" if entry.membership is None else f"\n{rendering.show_held(entry.membership)}"
    return f"{show_condition(entry.condition)}{held}"


def _verdict(answer: rs.Restriction) -> Text:
    if answer.satisfiable is None:
        return Text("not by the types that may be told here", "yellow")
    if not answer.satisfiable:
        reasons = dict.fromkeys(_REASONS[one.reason] for one in answer.types if one.reason is not None)
        return Text(f"no: {'; '.join(reasons)}", "bold red")
    unless = ", ".join(_unless(answer))
    return Text(f"yes, unless {unless} decide otherwise" if unless else "yes", "green")


def _unless(answer: rs.Restriction) -> Iterator[str]:
    """What a proof does not look into."""
    able = [one for one in answer.types if one.told and one.reason is None]
    entries = [entry for one in able for entry in one.entries]
    conditions: list[Condition] = [answer.where, *(e.condition for e in entries if e.condition is not None)]
    yield from dict.fromkeys(filter(None, (_assumed(atom) for condition in conditions for atom in atoms(condition))))
    if any(entry.condition is None and entry.policy is not None for entry in entries):
        yield "what the event policy looks up"
    if any(entry.condition is None and entry.policy is None for entry in entries):
        yield "conditions that are not disclosed"


def _assumed(atom: Atom) -> str | None:
    match atom:
        case Predicate(name, _):
            return f"the predicate `{name}`"
        case InGroup(_, name):
            return f"the members of `{name}`"
        case Related(name, _):
            return f"the relation `{name}`"
        case _:
            return None


def _attributes(one: rs.TypeReach) -> Text:
    if not one.told:
        return Text("(not told)", "dim")
    return Text(", ".join(one.attributes) or ("nothing" if one.reason else "no attribute"))


def _when(reach: rs.TypeReach) -> str:
    if not reach.told:
        return "you do not govern or audit this type"
    if reach.reason is not None:
        return f"never: {_REASONS[reach.reason]}"
    if reach.condition is None and all(e.condition is not None or e.policy is not None for e in reach.entries):
        return "as the entries below say"
    if reach.condition is None:
        return "under conditions that are not disclosed"
    return "always" if reach.condition == TRUE else show_condition(reach.condition)


def _covers(entry: rs.RestrictionEntry, one: rs.TypeReach) -> str:
    every = len(entry.attributes) == len(one.attributes) + len(one.hidden)
    return "all" if every else ", ".join(entry.attributes) or "none"


# -- publishing -------------------------------------------------------------------------------------------------


def _show_publish(answer: rs.PublishRestriction) -> None:
    say(f"what becomes of {answer.type} published by {answer.principal} at control version {answer.version}")
    if answer.reason is None:
        verdict = Text("yes, as the first of these grants that is true allows", "green")
    else:
        verdict = Text(f"no: {_REASONS[answer.reason]}", "bold red")
    say("can be published: ", verdict)
    if not answer.entries:
        return
    out.print()
    rows = []
    for entry in answer.entries:
        forced = (
            f"{name} = {rendering.show_value(value)}" if entry.told else name for name, value in entry.forces.items()
        )
        kept = (", ".join(entry.keeps), ", ".join(forced), ", ".join(entry.nulls))
        when = "passed over: no identity statement in force" if entry.passed_over else show_condition(entry.condition)
        rows.append((entry.rule, entry.effect.value, *(kept if entry.effect is Effect.GRANT else ("",) * 3), when))
    show_table(("entry", "effect", "keeps", "forces", "nulls", "condition"), rows)


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """One version: who made it, when, why, what it changed and where it starts."""

    version: int
    author: str
    time: datetime
    note: str
    changes: tuple[str, ...]
    starts: tuple[StartingPoint, ...]


def versions(
    domain: DomainOption,
    since: Annotated[int, option("--since", "Only versions after this one.", min=0)] = 0,
    diff: Annotated[
        tuple[int, int] | None, option("--diff A B", "What is in force at B and was not at A, and so on.")
    ] = None,
    principal: Annotated[
        str | None, option("--principal NAME", "Only what touched this principal, also through its groups.")
    ] = None,
    starting_points: Annotated[
        bool, option("--starting-points", "Only where each version starts in each stream.")
    ] = False,
    json: Json = False,
) -> None:
    """Show every control version: its author, its time, what it changed, and where it starts in each stream.

    For example:

    `headgate versions --domain DIR`

    `headgate versions --diff 2 5 --domain DIR`

    `headgate versions --principal smith --since 1 --domain DIR`
    """
    if sum((diff is not None, principal is not None, starting_points)) > 1:
        raise typer.BadParameter("--diff, --principal and --starting-points exclude each other")
    with open_domain(domain) as opened:
        ledger = opened.ledger
        if since > ledger.version:
            raise NotFound(f"no version {since} in `{ledger.place}`", remedy=f"there are 0 to {ledger.version}")
        if diff is not None:
            found = ledger.difference(*diff)
            if json:
                print_json(found)
                return
            say(("from version {} to version {}".format(*diff), "bold"))
            for line in [one.words for one in found] or ["nothing differs"]:
                say(f"  {line}")
        elif starting_points:
            points = [p for p in ledger.starting_points() if p.version > since]
            rows = ((point.stream, str(point.version), str(point.seq)) for point in points)
            print_json(points) if json else show_table(("stream", "version", "first event"), rows)
        else:
            entries = _history(ledger, since, principal)
            print_json(entries) if json else _show_versions(entries, ledger, principal)


def _history(ledger: Ledger, since: int, principal: str | None) -> list[VersionEntry]:
    starts: dict[int, list[StartingPoint]] = {}
    for point in ledger.starting_points():
        starts.setdefault(point.version, []).append(point)
    made: list[tuple[VersionInfo | HistoryEntry, tuple[str, ...]]] = []
    if principal is not None:
        made = [(one, one.words) for one in ledger.history(principal) if one.version > since]
    else:
        for info in ledger.versions(since):
            changed = ledger.difference(info.version - 1, info.version)
            made.append((info, tuple(one.words for one in changed)))
    return [
        VersionEntry(one.version, one.author, one.time, one.note, words, tuple(starts.get(one.version, ())))
        for one, words in made
    ]


def _show_versions(entries: Sequence[VersionEntry], ledger: Ledger, principal: str | None) -> None:
    if not entries:
        whom = f" that touched {principal}" if principal is not None else ""
        say(f"no version{whom} here; the ledger is at version {ledger.version}")
        return
    rows = []
    for entry in entries:
        changes = [entry.note, ""] if entry.note else []
        changes += list(entry.changes[:MOST_CHANGES]) or ["nothing"]
        if len(entry.changes) > MOST_CHANGES:
            changes.append(f"and {len(entry.changes) - MOST_CHANGES:,} more")
        starts = "\n".join(f"{p.stream}:{p.seq}" for p in entry.starts)
        time = f"{entry.time:%Y-%m-%d %H:%M:%S}"
        rows.append((str(entry.version), entry.author, time, starts, "\n".join(changes)))
    show_table(("version", "author", "time (UTC)", "starts at", "what changed"), rows)
