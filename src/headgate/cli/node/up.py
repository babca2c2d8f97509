"""`headgate up`: a whole node on this machine, until Ctrl-C.

Guarantees: what cannot work is said before anything is started. What is shown reads well in a file too. Ctrl-C and
SIGTERM stop everything in order, the second time at once, and nothing of the node is left running.
"""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from headgate.cli.shared.common import err, printable
from headgate.cli.shared.options import argument, option
from headgate.cli.shared.rendering import say
from headgate.node.processes import Notice, Supervisor, What, settings_from
from headgate.node.topology import Node, check_ports, prepare
from headgate.trust.tls import expires

_HERE = Path()


def up(
    directory: Annotated[Path | None, argument("DIR", "The domain.", unset="the current directory")] = None,
    port: Annotated[int | None, option("--port", "The port of the first gateway.", unset="the settings'")] = None,
    gateways: Annotated[int | None, option("--gateways", "How many gateways.", unset="the settings'")] = None,
    settings: Annotated[
        list[str] | None, option("--set SECTION.KEY=VALUE", "Any other setting; may be repeated.")
    ] = None,
) -> None:
    """Start a node: the pipeline on Spark and one or more gateways, each a process of its own.

    It runs until Ctrl-C, and starts again what dies. Their logs are in `DIR/logs`. Leaves with status 1 if a process
    could not be kept running, and 3 if data is damaged.

    For example:

    `headgate up shop`

    `headgate up shop --port 9443 --gateways 2 --set pipeline.memory=4g`
    """
    override = settings_from(settings or [])
    if port is not None:
        override["gateway.port"] = str(port)
    if gateways is not None:
        override["gateway.count"] = str(gateways)
    node = prepare(directory or _HERE, os.environ, override)
    with node.lock():
        check_ports(node)
        status = _run(node)
    if status:
        raise typer.Exit(status)


def _run(node: Node) -> int:
    """Run the node, and say what happens to it."""
    say("Starting the node of ", (node.settings.domain.name, "bold"), f": {_parts(node)}")
    watching = Supervisor(node.parts(), node.logs, _tell, all_ready=lambda: _ready(node))

    def asked(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        watching.stop()

    before = {one: signal.signal(one, asked) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        return watching.run()
    finally:
        node.erase()
        for one, handler in before.items():
            signal.signal(one, handler)
        say("Stopped.")


def _parts(node: Node) -> str:
    count = node.settings.gateway.count
    return f"the pipeline and {count} gateway{'' if count == 1 else 's'}; logs are in {node.logs}"


def _ready(node: Node) -> None:
    """Where to connect, and what to try."""
    node.write()
    say()
    for url in node.urls:
        say("  connect to   ", (url, "bold"))
    say(f"  broker       {node.broker}")
    if node.settings.gateway.tls:
        certificate = node.files.tls_certificate
        say(f"  certificate  {certificate}, good until {expires(certificate):%Y-%m-%d}")
    say()
    say("Try, in another terminal:")
    directory = _quoted(node.files.directory)
    trust = f" --cacert {_quoted(node.files.tls_certificate)}" if node.settings.gateway.tls else ""
    for command in (
        f"headgate policy apply {_quoted(node.files.policy)} --domain {directory} --yes",
        f"headgate subscribe shop.Sale --as ann --domain {directory}",
        f"headgate publish shop.Sale item=tea amount=3.5 --as till --domain {directory}",
        f"curl{trust} {node.urls[0]}/health",
        f"headgate doctor {directory}",
    ):
        say((f"  {command}", "bold"))
    say()
    say("Ctrl-C stops the node.")


def _tell(notice: Notice) -> None:
    """One line for a change; more only when the node is given up."""
    words = f": {notice.words}" if notice.words else ""
    match notice.what:
        case What.GIVEN_UP:
            err.print(f"{notice.part} cannot be kept running{words}", style="bold red", highlight=False, markup=False)
            for line in notice.lines:
                err.print(f"  {printable(line)}", highlight=False, markup=False, soft_wrap=True)
        case What.DIED | What.KILLED:
            say((f"{notice.part} {notice.what.value}", "bold yellow"), words)
        case _:
            say((notice.part, "bold"), f" {notice.what.value}", (words, "dim"))


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
