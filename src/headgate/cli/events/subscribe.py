"""`headgate subscribe` and `headgate echo`: deliveries as they come, for people or as NDJSON; or another domain's
events for our own clients, under our own policy (OASIS 7.5.3).

Guarantees: a delivery is acknowledged after it was printed, so a named subscription loses nothing and resumes where it
was. Ctrl-C, SIGTERM and a closed pipe end it cleanly; a subscription without a name ends with it. An echo is as
`client.echo`: each event once, across kills, within home's window; one echo of a journal at a time. Ctrl-C and SIGTERM
end it after what is under way. Its standard output has one line at the end; what goes wrong on the way is told on
standard error.
"""

from __future__ import annotations

import json as json_
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from headgate.cli.shared import options as opt
from headgate.cli.shared.common import err, judged, on_signals, out, placed, printable, utc_now
from headgate.cli.shared.connection import NodeConnection, PresentingConnection
from headgate.cli.shared.options import argument, option, seconds_of
from headgate.cli.shared.rendering import remark, say
from headgate.client import Delivery, Gap, Subscription
from headgate.client import echo as echoing
from headgate.client.aio import Start
from headgate.lang.rolefile import parse_role
from headgate.model.errors import HeadgateError
from headgate.model.expressions import RoleRef
from headgate.model.values import parse_timestamp, render_timestamp
from headgate.node.processes import Lock

TypeArgument = Annotated[str, argument("TYPE", "The event type; its subtypes come too.")]
WhereOption = Annotated[str | None, option("--where FILTER", "Only events for which this holds.")]
NameOption = Annotated[
    str | None, option("--name ID", "Keep the subscription under this name and resume it next time.")
]
FromOption = Annotated[
    str,
    option("--from PLACE", "now, start, version:N, time:2026-01-01T09:00:00Z or reserved:ID."),
]
RequiresOption = Annotated[str | None, option("--requires RULE", 'What publishers must be, such as `$nation = "NO"`.')]
CountOption = Annotated[int | None, option("--count", "End after so many deliveries.", min=1)]

_HIDDEN: Final = "-"


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
    with (
        ending_quietly(),
        connection.client() as client,
        client.subscribe(
            name, type, where, begin, temporary=name is None, requires=requires, ack="manual"
        ) as subscription,
    ):
        print_all(subscription, count, event if json else line)


@contextmanager
def ending_quietly() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed pipe are ways to end, and no failures."""
    ending = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
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
            case "reserved" if value:
                return text
    except HeadgateError as error:
        raise typer.BadParameter(f"{option}: {error.message}") from None
    raise typer.BadParameter(f"{option} is now, start, version:N, time:2026-01-01T09:00:00Z or reserved:ID")


def print_all(subscription: Subscription, count: int | None, shown: Callable[[Any], Text | dict[str, Any]]) -> None:
    """Print what comes, each acknowledged once it was printed: on a line for people, or as JSON."""
    left = count
    while left is None or left > 0:
        try:
            delivery = subscription.next()
        except Gap as gap:
            err.print(Text(f"gap: {gap.message}", "yellow"), soft_wrap=True)
            continue
        if delivery is None:
            return
        told = shown(delivery)
        if isinstance(told, dict):
            print(json_.dumps(told, ensure_ascii=False), flush=True)
        else:
            out.print(told, soft_wrap=True, highlight=False)
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
    if delivery.accepted is not None and delivery.accepted != delivery.time:
        made["hgtime"] = render_timestamp(delivery.accepted)
    return made


def line(delivery: Delivery) -> Text:
    """A delivery on one line, as people read it."""
    clock = "" if delivery.time is None else delivery.time.strftime("%Y-%m-%d %H:%M:%S")
    text = Text.assemble((clock, "dim"), " ", (printable(delivery.type), "bold"), values(delivery.data))
    text.append(f"  by {printable(delivery.publisher)}", style="dim")
    return text


def values(data: Mapping[str, Any]) -> Text:
    """Named values on one line."""
    text = Text()
    for name, value in data.items():
        text.append("  ")
        text.append(f"{printable(name)} ", style="cyan")
        shown = _HIDDEN if value is None else value if isinstance(value, str) else json_.dumps(value)
        text.append(printable(shown).replace("\n", "\\n"), style="dim" if value is None else "")
    return text


_WINDOW: Final = f"{int(echoing.WINDOW.total_seconds())}s"

ThereType = Annotated[str, argument("TYPE", "The event type there; its subtypes come too.")]
AsTypeOption = Annotated[str | None, option("--as-type TYPE", "The type here.", unset="the same name")]
EchoName = Annotated[str, option("--name ID", "The subscription there.")]
ThereOption = Annotated[list[str] | None, option("--from URL", "A gateway of the other domain; may be repeated.")]
HomeOption = Annotated[list[str] | None, option("--to URL", "A gateway of our own domain; may be repeated.")]
ThereKeyOption = Annotated[Path | None, option("--from-key FILE", "The key to use there.", unset="the same")]
ThereWhoOption = Annotated[str | None, option("--from-as NAME", "The principal there, with `--from-domain`.")]
MapOption = Annotated[
    list[str] | None,
    option(
        "--map THEIRS=OURS",
        "An attribute under another name; also `@publisher`, `@time`, `@id` and `@type`. May be repeated.",
    ),
]
DropOption = Annotated[list[str] | None, option("--drop NAME", "An attribute to leave out; may be repeated.")]


def echo(
    type: ThereType,
    as_type: AsTypeOption = None,
    there: ThereOption = None,
    home: HomeOption = None,
    name: EchoName = "echo",
    where: WhereOption = None,
    begin: Annotated[str, option("--since PLACE", "now, start, version:N or time:2026-01-01T09:00:00Z.")] = "now",
    map_: MapOption = None,
    drop: DropOption = None,
    enter: Annotated[
        list[str] | None, option("--enter ROLE", "Hold this role there, such as `Badges.Proxy('CL')`; repeatable.")
    ] = None,
    show: Annotated[
        list[str] | None, option("--show ROLE", "Show there a role that one holds at home; repeatable.")
    ] = None,
    present: Annotated[list[Path] | None, option("--present FILE", "Certificates to show there; repeatable.")] = None,
    journal: Annotated[Path | None, option("--journal FILE", "What is under way.", unset="NAME.echo, here")] = None,
    window: Annotated[str, option("--window TIME", "Home's `publish.window`.")] = _WINDOW,
    doubt: Annotated[
        echoing.Doubt, option("--doubt", "What to do with an event that was under way for longer than the window.")
    ] = "stop",
    skip_refused: Annotated[
        bool, option("--skip-refused", "Go on if home refuses an event, and leave it out.")
    ] = False,
    count: Annotated[int | None, option("--count", "End after so many events.", min=1)] = None,
    who: opt.Who = None,
    key: opt.Key = None,
    domain: opt.Directory = None,
    broker: opt.Broker = None,
    certificate: opt.TlsCertificate = None,
    there_who: ThereWhoOption = None,
    there_key: ThereKeyOption = None,
    there_domain: Annotated[
        Path | None, option("--from-domain DIR", "The other domain's directory, if it is here.")
    ] = None,
    there_broker: Annotated[str | None, option("--from-broker DID", "The broker to trust there.")] = None,
    there_certificate: Annotated[
        Path | None, option("--from-certificate FILE", "The TLS certificate to trust there.")
    ] = None,
) -> None:
    """Echo another domain's events at home, so that our own clients see them by our own policy.

    It subscribes there under a name and publishes each event here once, also if it is killed and started again. What
    it may not see there is null here. Attributes go by name, unless `--map` or `--drop` says otherwise.

    For example:

    `headgate echo badge.Seen --from https://eng.example:8443 --as-type cl.eng.Seen --as proxy --domain cl
    --from-certificate eng.crt --show "CLsys.BadgeProxy('Engineering')"`

    `headgate echo badge.Seen --from-domain eng --from-as proxy --as proxy --domain cl --map @publisher=reader`

    Exit status: 0 stopped or done, 1 if a role is denied, 2 if it cannot go on; it may be started again.
    """
    if there is None and there_domain is None:
        raise typer.BadParameter("say where the events come from: --from URL, or --from-domain DIR")
    roles, shown = _roles(enter or (), "--enter"), _roles(show or (), "--show")
    manner = echoing.Manner(timedelta(seconds=seconds_of(window, "--window")), doubt, skip_refused)
    path = Path(f"{name}.echo") if journal is None else journal
    if there_who is None and there_key is None:
        there_who, there_key = who, key
    at_home = NodeConnection(who=who, node=home, key=key, broker=broker, certificate=certificate, domain=domain)
    over_there = PresentingConnection(
        who=there_who,
        node=there,
        key=there_key,
        broker=there_broker,
        certificate=there_certificate,
        domain=there_domain,
        present=present,
    )
    stop = threading.Event()
    with (
        judged(),
        on_signals(stop.set, signal.SIGINT, signal.SIGTERM),
        Lock(path.with_name(f"{path.name}.lock"), "the echo"),
        at_home.client() as ours,
        over_there.client() as theirs,
    ):
        for role in shown:
            echoing.show_role(ours, theirs, role)
        for role in roles:
            echoing.hold(theirs, role)
        own = as_type or type
        translate = echoing.translation(
            echoing.kinds(theirs, type), own, echoing.kinds(ours, own), _renamed(map_ or ()), drop or ()
        )
        of = echoing.identity(theirs, name)
        kept = echoing.Journal(path, of)
        with theirs.subscribe(name, type, where, place_of(begin, "--since"), ack="manual") as subscription:
            made = echoing.Echo(
                subscription, ours, translate, kept, source=of, clock=utc_now, manner=manner, report=_tell
            )
            _end(made.run(stop, count))


def _roles(texts: Sequence[str], option: str) -> list[RoleRef]:
    with placed(option):
        return [parse_role(text) for text in texts]


def _renamed(given: Sequence[str]) -> dict[str, str]:
    mapping: dict[str, str] = {}
    for text in given:
        theirs, equals, ours = text.partition("=")
        if not equals or not theirs or not ours:
            raise typer.BadParameter(f"--map: `{text}` is not THEIRS=OURS")
        if theirs in mapping:
            raise typer.BadParameter(f"--map names `{theirs}` twice")
        mapping[theirs] = ours
    return mapping


def _tell(tally: echoing.Tally) -> None:
    for one in tally.refusals[:3]:
        remark(f"{one.message} [{one.code}]")


def _end(tally: echoing.Tally) -> None:
    words = [f"{tally.echoed:,} echoed"]
    for number, what in (
        (tally.before, "had been published before"),
        (tally.refused, "refused at home"),
        (tally.skipped, "in doubt and skipped"),
        (tally.gaps, "times some were lost to retention there"),
    ):
        words += [f"{number:,} {what}"] if number else []
    say(", ".join(words))
