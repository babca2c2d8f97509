"""`headgate reserve`: keep events for a subscription or detection that may be made later (OASIS 6.8.1)."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate.cli.shared.connection import PresentingConnection
from headgate.cli.shared.options import Json, argument, option, seconds_of
from headgate.cli.shared.rendering import print_json, remark, say
from headgate.model.values import render_timestamp

IdArgument = Annotated[str, argument("ID", "What to call it.")]
TypeArgument = Annotated[str | None, argument("TYPE", "The event type that may be wanted; its subtypes too.")]
WhereOption = Annotated[str | None, option("--where FILTER", "Only events for which this holds.")]
DetectOption = Annotated[
    str | None, option("--detect EXPRESSION", "What a composite event looks at, in place of a type.")
]
ForOption = Annotated[str, option("--for TIME", "How long, such as `10m`.")]
EndOption = Annotated[bool, option("--end", "Keep nothing any more.")]


def reserve(
    id: IdArgument,
    type: TypeArgument = None,
    where: WhereOption = None,
    detect: DetectOption = None,
    for_: ForOption = "10m",
    end: EndOption = False,
    json: Json = False,
    *,
    connection: PresentingConnection,
) -> None:
    """Have events kept for a subscription or detection made later.

    They are kept from now on. What begins `--from reserved:ID` gets all that came since. The same again, for less,
    narrows it: what no longer fits need not be kept.

    For example:

    `headgate reserve sightings badge.Seen --for 10m --as ann`

    `headgate reserve sightings badge.Seen --where "badge = 'b7'" --for 10m --as ann`

    `headgate detect '$Seen(b, r)' --bind b=b7 --from reserved:sightings --as ann`

    `headgate reserve sightings --end --as ann`
    """
    if not end and (type is None) == (detect is None):
        raise typer.BadParameter("name a TYPE, or what to --detect")
    with connection.client() as client:
        if end:
            client.release(id)
            return
        made = client.reserve(id, type, seconds_of(for_, "--for"), where, expression=detect)
    if json:
        print_json(made)
        return
    say(
        (made.id, "bold"),
        f" keeps what came since {render_timestamp(made.since)}, until {render_timestamp(made.expires)}",
    )
    if not made.whole:
        remark("some of it has gone already")
