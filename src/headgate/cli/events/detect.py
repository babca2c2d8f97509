"""`headgate detect`: the signals of a composite event as they become certain, or what it waits for; `check`, `explain`.

Guarantees: as `headgate subscribe`: a signal is acknowledged after it was printed, so a named detection loses nothing
and resumes where it was, and one without a name ends with the command. What is no command of its own is an expression:
none is a bare word but `null`.
"""

from __future__ import annotations

import json as json_
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from headgate.cli.events.subscribe import (
    CountOption,
    FromOption,
    RequiresOption,
    ending_quietly,
    place_of,
    print_all,
    values,
)
from headgate.cli.policy.detect_check import check
from headgate.cli.policy.detect_explain import explain as explain_
from headgate.cli.policy.detect_explain import show_state
from headgate.cli.shared.common import group
from headgate.cli.shared.connection import PresentingConnection
from headgate.cli.shared.options import argument, option
from headgate.cli.shared.rendering import print_json
from headgate.client import Signal
from headgate.model.values import render_timestamp

ExpressionArgument = Annotated[
    str, argument("EXPRESSION", "A composite event, such as `$Alarm(r); Seen(b, r) - AllClear(r)`.")
]
BindOption = Annotated[
    list[str] | None,
    option("--bind NAME=VALUE", "The value of a variable from the start: a number, true, false or text; repeatable."),
]
ExplainOption = Annotated[
    bool, option("--explain", "Say where it stands and what it waits for, in place of printing signals.")
]
IdOption = Annotated[str | None, option("--id ID", "Keep the detection under this name and resume it next time.")]
PublishOption = Annotated[
    str | None, option("--publish TYPE", "Publish each signal as an event of this type; variables are its attributes.")
]
AddOption = Annotated[
    str | None,
    option("--add ROW", "Add a row to a relation with each signal, such as `failed(user)`; the administrator does."),
]
ForOption = Annotated[
    str | None, option("--for NAME", "Make it for this principal, with its views, and read nothing; with --id.")
]


def run(
    expression: ExpressionArgument,
    bind: BindOption = None,
    id: IdOption = None,
    from_: FromOption = "now",
    count: CountOption = None,
    requires: RequiresOption = None,
    publish: PublishOption = None,
    add: AddOption = None,
    for_: ForOption = None,
    explain: ExplainOption = False,
    json: Annotated[bool, option("--json", "One CloudEvent a line, as JSON; with --explain, the facts.")] = False,
    *,
    connection: PresentingConnection,
) -> None:
    """Detect a composite event and print each signal as it becomes certain, until Ctrl-C.

    `run` may be left out. Signals come by the moment at which they became certain, then by their time.

    For example:

    `headgate detect '$Alarm(r); Seen(b, r) - AllClear(r)' --as ann`

    `headgate detect '$Seen(b, r1); Seen(b, r)' --bind b=b7 --id follow-b7 --from start --as ann`

    `headgate detect '$Alarm(r); Seen(b, r) - AllClear(r)' --from start --explain --as ann`

    `headgate detect 'count ($Sale(i, a) - Closed())' --count 1 --json --as ann | jq .data`

    `headgate detect '$Sale(i, a) {a > 500}' --id large --publish shop.LargeSale --as watch`

    `headgate detect '$Refused(u); Refused(u)' --id twice --add 'locked(u)' --for guard --as administrator`
    """
    begin = place_of(from_, "--from")
    bound = dict(_binding(text) for text in bind or ())
    if add is not None or for_ is not None:
        if id is None:
            raise typer.BadParameter("--add and --for want --id: the detection stays when the command has ended")
        with connection.client() as client:
            client.make_detection(expression, id=id, bind=bound, from_=begin, publishes=publish, adds=add, for_=for_)
        typer.echo(f"detection `{id}` is there")
        return
    with (
        ending_quietly(),
        connection.client() as client,
        client.detect(
            expression,
            bind=bound,
            id=id,
            from_=begin,
            temporary=id is None,
            requires=requires,
            publishes=publish,
            ack="manual",
        ) as detection,
    ):
        if explain:
            state = client.detection_state(detection.id)
            print_json(state) if json else show_state(state)
            return
        print_all(detection, count, _event if json else _line)


def _binding(text: str) -> tuple[str, object]:
    """A variable and its value: JSON, or else text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--bind: `{text}` is not NAME=VALUE")
    try:
        read = json_.loads(value)
    except ValueError:
        return name, value
    return name, read if isinstance(read, bool | int | float | str) else value


def _event(signal: Signal) -> dict[str, Any]:
    """A signal as the CloudEvent that came."""
    return {
        "specversion": "1.0",
        "id": signal.id,
        "source": signal.source,
        "type": signal.type,
        "time": None if signal.time is None else render_timestamp(signal.time),
        "datacontenttype": "application/json",
        "data": dict(signal.bindings),
        "hgposition": signal.position,
        "hgcontributors": " ".join(signal.contributors),
    }


def _line(signal: Signal) -> Text:
    """A signal on one line, as people read it."""
    clock = "" if signal.time is None else f"{signal.time:%Y-%m-%d %H:%M:%S.%f}"[:-3]
    return Text.assemble((clock, "dim"), values(signal.bindings))


class _OrExpression(TyperGroup):
    """Takes an expression where the name of a command could stand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with the command that is meant."""
        named = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if named or not args else ["run", *args])


app = group(run, check, explain=explain_)
app.info.cls = _OrExpression
