"""`headgate detect explain`: where a detection stands, what its evaluations wait for, and why it signalled.

Guarantees: changes nothing. Reads the domain's own files, so no node need run; whoever asks is told what it may know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

from headgate.cli.shared.common import open_domain, out
from headgate.cli.shared.options import Asker, DomainOption, Json, argument
from headgate.cli.shared.rendering import count_of, print_json, remark, say, show_table
from headgate.model.values import render_timestamp

PrincipalArgument = Annotated[str, argument("PRINCIPAL", "Whose detection it is.")]
DetectionArgument = Annotated[str, argument("ID", "What its principal calls it, or its name in the ledger.")]
SignalArgument = Annotated[str | None, argument("SIGNAL", "The id of one of its signals: why it signalled that.")]

_ALL: Final = "all types that it looks at"


def explain(
    principal: PrincipalArgument,
    id: DetectionArgument,
    domain: DomainOption,
    signal: SignalArgument = None,
    asker: Asker = None,
    json: Json = False,
) -> None:
    """Say where a detection stands and what it waits for; or, of a signal, which events it rests on.

    Its evaluations, each with what it waits for: an event that matches, or that a time is certain, and then which
    source (stream, publisher and type) has not promised enough. Its own principal may ask, and whoever governs or
    audits all types that it looks at.

    For example:

    `headgate detect explain ann follow-b7 --domain DIR`

    `headgate detect explain ann follow-b7 5f0c3a... --as auditor --domain DIR`
    """
    from headgate.cli.policy.explain import show_explanation
    from headgate.commands import detections
    from headgate.gateway.http.rendering import as_json

    with open_domain(domain) as opened:
        who = asker or opened.ledger.administrator
        found = detections.find_detections(opened, who, principal, id)
        if signal is None:
            state: Any = as_json(detections.detection_state(opened, who, found[0][1]))
            print_json(state) if json else show_state(state)
            return
        number, detection, seq = detections.find_signal(opened, found, signal)
        told = detections.explain_signal(opened, who, detection, number, seq)
    if json:
        print_json(told)
        return
    bound = ", ".join(f"{name} {value}" for name, value in told.bindings.items())
    say("signal ", (told.id, "bold"), f" of `{told.expression}` at {render_timestamp(told.time)}")
    say(("bindings  ", "dim"), bound or "none")
    say(f"it rests on {count_of(len(told.contributors) + told.untold, 'event')}")
    if told.untold:
        remark(f"of {count_of(told.untold, 'event')} nothing can be told: the log no longer holds them")
    for contributor in told.contributors:
        out.print()
        show_explanation(contributor)


def show_state(state: Mapping[str, Any]) -> None:
    """Where a detection stands, as people read it; the state is as JSON has it."""
    say((state["detection"], "bold"), f"  {state['expression']}")
    said = f"{state['principal']}, at {state['clock']}; {count_of(state['signals'], 'signal')}"
    say(("seen by   ", "dim"), said)
    if state["stopped"]:
        remark(f"it detects no more: {state['stopped']}")
    if not state["is_whole"]:
        remark("the log no longer holds all that it looked at: what waits since then is not shown")
    if state["is_behind"]:
        remark("not everything in the log has been put to detections yet: signals may be on their way")
    out.print()
    rows = [(one["part"], _bound(one["bindings"]), one["start"], _waits(one)) for one in state["waits"]]
    if rows:
        show_table(("evaluation of", "with", "since", "waits for"), rows)
    else:
        say("nothing is under way any more")
    if state["untold"]:
        say(f"and {count_of(state['untold'], 'more evaluation')}")
    if state["horizons"]:
        out.print()
        show_table(("stream", "publisher", "type", "has promised", "holds back"), _sources(state["horizons"]))


def _bound(bindings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in bindings.items()) or "-"


def _waits(one: Mapping[str, Any]) -> str:
    match one["for"]:
        case "event":
            return "an event that matches"
        case "horizon":
            types = _ALL if one["types"] is None else " and ".join(f"`{type}`" for type in one["types"])
            return f"a promise past {one['until']}" + (f" for {types}" if types else "")
        case "clock":
            return f"the clock to come to {one['until']}"
        case _:
            return "the end of what it is over"


def _sources(horizons: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for one in horizons:
        promised = one["horizon"] if one["horizon"] > "1970-01-01T00:00:00Z" else "nothing"
        yield one["stream"], one["publisher"] or "the gateway", one["type"], promised, str(one["holds"] or "-")
