"""`headgate heartbeat`: promise that no more events from before a time will come.

Guarantees: what is said to be promised is durable, and holds for every gateway of the domain.
"""

from __future__ import annotations

from typing import Annotated

from headgate.cli.shared.connection import PresentingConnection
from headgate.cli.shared.options import argument, moment_of, option
from headgate.cli.shared.rendering import remark, say
from headgate.model.values import render_timestamp

TypesArgument = Annotated[list[str] | None, argument("TYPE", "Event types.", unset="all that you state times of")]
UntilOption = Annotated[str, option("--until TIME", "Before which nothing more will come.")]
ForOption = Annotated[str | None, option("--for PRINCIPAL", "The publisher, if it is another; for administrators.")]
StreamOption = Annotated[str | None, option("--stream NAME", "A whole stream; for administrators.")]


def heartbeat(
    types: TypesArgument = None,
    *,
    until: UntilOption,
    for_: ForOption = None,
    stream: StreamOption = None,
    connection: PresentingConnection,
) -> None:
    """Promise that none of your later events occurred before a time.

    Composite events wait for such promises before they take an event for absent. A promise is never taken back: an
    event from before it is refused as `below-horizon`. The administrator may promise for a publisher that is gone.

    For example:

    `headgate heartbeat --until 2026-05-04T09:30:00Z --as till`

    `headgate heartbeat shop.Sale shop.Return --until 2026-05-04T09:30:00Z --as till`

    `headgate heartbeat --until 2026-05-04T09:30:00Z --for till --as administrator`
    """
    time = moment_of(until, "--until")
    with connection.client() as client:
        told = client.heartbeat(time, types or None, publisher=for_, stream=stream)
    word = ("promised", "bold green") if told.moved else ("promised before", "bold yellow")
    for name, horizon in sorted(told.horizons.items()):
        say(word, f" {name} until {render_timestamp(horizon)}")
    if not told.moved:
        remark("a promise does not go back: events from before that are refused, unless their type says `lateness`")
