"""`headgate echo`: another domain's events for our own clients, under our own policy (OASIS 7.5.3).

Guarantees: as `client.echo`: each event once, across kills, within home's window; one echo of a journal at a time.
Ctrl-C and SIGTERM end it after what is under way. Standard output has one line at the end; what goes wrong on the way
is told on standard error.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from headgate.cli.events.subscribe import WhereOption, place_of
from headgate.cli.shared.common import judged, utc_now
from headgate.cli.shared.connection import (
    BrokerOption,
    CertificateOption,
    DirectoryOption,
    KeyOption,
    NodeConnection,
    PresentingConnection,
    WhoOption,
)
from headgate.cli.shared.options import argument, option, seconds_of
from headgate.cli.shared.rendering import remark, say
from headgate.client.echo import (
    WINDOW,
    Doubt,
    Echo,
    Journal,
    Manner,
    Tally,
    hold,
    identity,
    kinds,
    show_role,
    translation,
)
from headgate.lang.rolefile import parse_role
from headgate.model.conditions import RoleRef
from headgate.model.errors import HeadgateError
from headgate.node.processes import Lock

_WINDOW: Final = f"{int(WINDOW.total_seconds())}s"

TypeArgument = Annotated[str, argument("TYPE", "The event type there; its subtypes come too.")]
AsTypeOption = Annotated[str | None, option("--as-type TYPE", "The type here.", unset="the same name")]
NameOption = Annotated[str, option("--name ID", "The subscription there.")]
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
    type: TypeArgument,
    as_type: AsTypeOption = None,
    there: ThereOption = None,
    home: HomeOption = None,
    name: NameOption = "echo",
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
        Doubt, option("--doubt", "What to do with an event that was under way for longer than the window.")
    ] = "stop",
    skip_refused: Annotated[
        bool, option("--skip-refused", "Go on if home refuses an event, and leave it out.")
    ] = False,
    count: Annotated[int | None, option("--count", "End after so many events.", min=1)] = None,
    who: WhoOption = None,
    key: KeyOption = None,
    domain: DirectoryOption = None,
    broker: BrokerOption = None,
    certificate: CertificateOption = None,
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
    manner = Manner(timedelta(seconds=seconds_of(window, "--window")), doubt, skip_refused)
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
    with (
        judged(),
        _stopping() as stop,
        Lock(path.with_name(f"{path.name}.lock"), "the echo"),
        at_home.client() as ours,
        over_there.client() as theirs,
    ):
        for role in shown:
            show_role(ours, theirs, role)
        for role in roles:
            hold(theirs, role)
        own = as_type or type
        translate = translation(kinds(theirs, type), own, kinds(ours, own), _renamed(map_ or ()), drop or ())
        of = identity(theirs, name)
        kept = Journal(path, of)
        with theirs.subscribe(name, type, where, place_of(begin, "--since"), ack="manual") as subscription:
            made = Echo(subscription, ours, translate, kept, source=of, clock=utc_now, manner=manner, report=_tell)
            _end(made.run(stop, count))


def _roles(texts: Sequence[str], option: str) -> list[RoleRef]:
    roles = []
    for text in texts:
        try:
            roles.append(parse_role(text))
        except HeadgateError as error:
            raise error.at(option) from None
    return roles


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


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()

    def asked(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(tally: Tally) -> None:
    for one in tally.refusals[:3]:
        remark(f"{one.message} [{one.code}]")


def _end(tally: Tally) -> None:
    words = [f"{tally.echoed:,} echoed"]
    for number, what in (
        (tally.before, "had been published before"),
        (tally.refused, "refused at home"),
        (tally.skipped, "in doubt and skipped"),
        (tally.gaps, "times some were lost to retention there"),
    ):
        words += [f"{number:,} {what}"] if number else []
    say(", ".join(words))
