"""`headgate subscribe`: deliveries as they come, for people or as NDJSON.

Guarantees: a delivery is acknowledged after it was printed, so a named subscription loses nothing and resumes where it
was. Ctrl-C, SIGTERM and a closed pipe end it cleanly; a subscription without a name ends with it.
"""

from __future__ import annotations

import json as json_
import os
import signal
import sys
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from headgate.cli.shared.common import err, out, printable
from headgate.cli.shared.connection import PresentingConnection, connects
from headgate.cli.shared.options import argument, option
from headgate.client import Delivery, Gap, Subscription
from headgate.client.aio import Start
from headgate.model.errors import HeadgateError
from headgate.model.values import parse_timestamp, render_timestamp

TypeArgument = Annotated[str, argument("TYPE", "The event type; its subtypes come too.")]
WhereOption = Annotated[str | None, option("--where FILTER", "Only events for which this holds.")]
NameOption = Annotated[
    str | None, option("--name ID", "Keep the subscription under this name and resume it next time.")
]
FromOption = Annotated[str, option("--from PLACE", "now, start, version:N or time:2026-01-01T09:00:00Z.")]
RequiresOption = Annotated[str | None, option("--requires RULE", 'What publishers must be, such as `$nation = "NO"`.')]
CountOption = Annotated[int | None, option("--count", "End after so many deliveries.", min=1)]

_HIDDEN: Final = "-"


@connects
def subscribe(
    type: TypeArgument,
    where: WhereOption = None,
    name: NameOption = None,
    from_: FromOption = "now",
    count: CountOption = None,
    requires: RequiresOption = None,
    json: Annotated[bool, option("--json", "One CloudEvent a line, as JSON.")] = False,
    *,
    connection: PresentingConnection,
) -> None:
    """Subscribe to an event type and print what comes, until Ctrl-C.

    What you may not see, or the publisher did not say, is shown as `-`.

    For example:

    `headgate subscribe shop.Sale --as ann`

    `headgate subscribe shop.Sale --where "amount > 100" --name large --from start --as ann`

    `headgate subscribe shop.Sale --count 10 --json --as ann | jq .data`
    """
    begin = place_of(from_, "--from")
    ending = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with (
            connection.client() as client,
            client.subscribe(
                name, type, where, begin, temporary=name is None, requires=requires, ack="manual"
            ) as subscription,
        ):
            _print_all(subscription, count, json=json)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # Whoever read this has gone; Python must not fail over it once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        signal.signal(signal.SIGTERM, ending)


def place_of(text: str, option: str) -> Start:
    """Where to begin, as an option says it."""
    what, _, value = text.partition(":")
    try:
        match what:
            case "now" | "start" if not value:
                return what
            case "version" if value.isascii() and value.isdecimal() and len(value) < 19:
                return int(value)
            case "time":
                return parse_timestamp(value)
    except HeadgateError as error:
        raise typer.BadParameter(f"{option}: {error.message}") from None
    raise typer.BadParameter(f"{option} is now, start, version:N or time:2026-01-01T09:00:00Z")


def _print_all(subscription: Subscription, count: int | None, *, json: bool) -> None:
    left = count
    while left is None or left > 0:
        try:
            delivery = subscription.next()
        except Gap as gap:
            err.print(Text(f"gap: {gap.message}", "yellow"), soft_wrap=True)
            continue
        if delivery is None:
            return
        if json:
            print(json_.dumps(event(delivery), ensure_ascii=False), flush=True)
        else:
            out.print(line(delivery), soft_wrap=True, highlight=False)
        delivery.ack()
        left = None if left is None else left - 1


def event(delivery: Delivery) -> dict[str, Any]:
    """A delivery as the CloudEvent that came."""
    made: dict[str, Any] = {
        "specversion": "1.0",
        "id": delivery.id,
        "source": delivery.source,
        "type": delivery.type,
        "datacontenttype": "application/json",
        "data": dict(delivery.data),
        "hgpublisher": delivery.publisher,
        "hgposition": delivery.position,
    }
    if delivery.time is not None:
        made["time"] = render_timestamp(delivery.time)
    return made


def line(delivery: Delivery) -> Text:
    """A delivery on one line, as people read it."""
    text = Text.assemble((_clock(delivery.time), "dim"), " ", (printable(delivery.type), "bold"))
    for name, value in delivery.data.items():
        text.append("  ")
        text.append(f"{printable(name)} ", style="cyan")
        shown = _HIDDEN if value is None else value if isinstance(value, str) else json_.dumps(value)
        text.append(printable(shown).replace("\n", "\\n"), style="dim" if value is None else "")
    text.append(f"  by {printable(delivery.publisher)}", style="dim")
    return text


def _clock(time: datetime | None) -> str:
    return "" if time is None else time.strftime("%Y-%m-%d %H:%M:%S")
