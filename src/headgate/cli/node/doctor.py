"""`headgate doctor`: is this machine, and is this domain, as it should be?

Guarantees: it looks and changes nothing, save one small file that it writes to time the disk and removes. A check that
cannot be made, because another failed, says so; none is left out. Nothing that is shown is secret.
Leaves out: repairing; each line says what to do.
"""

from __future__ import annotations

import http.client
import json as jsons
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import httpx
import typer
from rich.text import Text

from headgate.cli.node.machine_checks import Check, CheckOutcome, attempt, failed, machine, secrets
from headgate.cli.shared.common import out
from headgate.cli.shared.rendering import cells, check_text, print_json, say, table
from headgate.cli.shared.run_python import allowed_at
from headgate.gateway.authority.issuers import ask
from headgate.ledger import Ledger
from headgate.model.errors import HeadgateError
from headgate.model.state import State
from headgate.node.config import Config, Files
from headgate.node.cursors import Cursors
from headgate.node.domain import utc_now
from headgate.node.health import STALL_SECONDS, HealthWatch
from headgate.node.processes import held_by, listen
from headgate.node.statement_register import coordinator_of, is_vouched, own_statements
from headgate.node.topology import NODE, PID
from headgate.pipeline.paths import Paths
from headgate.scenario.format.policy import plan_policy, read_policy
from headgate.trust.keys import PrivateKey
from headgate.trust.tls import client_context

_HTTP_SECONDS: Final = 5.0
_MAX_ANSWER: Final = 65_536
_SHOWN: Final = 5


def doctor(
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The domain.", show_default="the current directory")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """Check the machine and a domain: Java, memory, disk, settings, keys, certificate, files, ports and the node.

    Leaves with status 1 if a check failed; warnings do not count.

    For example:

    `headgate doctor shop`

    `headgate doctor shop --json`
    """
    check_text(str(directory or ""))
    checks = list(examine(directory or Path(), utc_now()))
    if json:
        print_json(checks)
    else:
        _show(checks)
    if any(check.finding is CheckOutcome.FAIL for check in checks):
        raise typer.Exit(1)


def _show(checks: list[Check]) -> None:
    styles = {
        CheckOutcome.OK: "green",
        CheckOutcome.WARN: "bold yellow",
        CheckOutcome.FAIL: "bold red",
        CheckOutcome.SKIP: "dim",
    }
    shown = table("check", "", "found", "what to do")
    for check in checks:
        shown.add_row(*cells(check.name, Text(check.finding.value, styles[check.finding]), check.found, check.remedy))
    out.print(shown)
    out.print()
    counts = {finding: sum(1 for one in checks if one.finding is finding) for finding in CheckOutcome}
    summary = [
        f"{counts[f]} {words}"
        for f, words in ((CheckOutcome.FAIL, "failed"), (CheckOutcome.WARN, "to look at"))
        if counts[f]
    ]
    say(", ".join(summary) if summary else Text("all is well", "bold green"))


def examine(directory: Path, now: datetime) -> Iterator[Check]:
    """Every check, in order."""
    files = Files(directory)
    settings: Config | None = None
    try:
        settings = Config.load(directory, os.environ)
        yield Check("settings", CheckOutcome.OK, str(files.config))
    except HeadgateError as error:
        yield failed("settings", error)
    yield from machine(settings, files)
    yield from secrets(files, settings, now)
    yield from _data(files, now)
    yield from _issuers(files, settings, now)
    yield from _node(files, settings)


# -- the domain's data ----------------------------------------------------------------------------------------


def _data(files: Files, now: datetime) -> Iterator[Check]:
    paths = Paths(files.data)
    state: State | None = None
    newest: datetime | None = None
    try:
        with Ledger.open(paths.ledger) as ledger:
            ledger.check()
            state = ledger.state()
            last = ledger.versions(after=max(0, state.version - 1))
            newest = last[-1].time if last else None
        yield Check("ledger", CheckOutcome.OK, f"version {state.version}, every row as it was written")
    except HeadgateError as error:
        yield failed("ledger", error)
    yield from _files(files, paths, now)
    if newest is not None and newest > now:
        yield Check(
            "clock",
            CheckOutcome.WARN,
            f"the newest version was made at {newest:%Y-%m-%d %H:%M:%S}, after now",
            "set it",
        )
    else:
        yield Check("clock", CheckOutcome.OK, f"{now:%Y-%m-%d %H:%M:%S} UTC")
    if state is None:
        yield Check("policy", CheckOutcome.SKIP, "the ledger cannot be read")
        return
    yield _policy(files, state)
    yield _chain(files, state, now)
    without = sorted(set(state.principals) - set(state.keys) - {state.administrator})
    without = [name for name in without if not name.startswith("did:key:")]
    if without:
        shown = ", ".join(f"`{name}`" for name in without[:_SHOWN]) + (" and more" if len(without) > _SHOWN else "")
        yield Check(
            "keys of principals", CheckOutcome.WARN, f"{len(without)} have none: {shown}", "they cannot connect"
        )
    else:
        yield Check("keys of principals", CheckOutcome.OK, f"{len(state.keys)}")


def _files(files: Files, paths: Paths, now: datetime) -> Iterator[Check]:
    try:
        watch = HealthWatch.open(files.data)
    except HeadgateError as error:
        yield failed("log and deliveries", error)
        return
    try:
        facts = watch.look(now)
        size = f"{facts.log_bytes >> 20} and {facts.deliveries_bytes >> 20} MB"
        yield Check("log and deliveries", CheckOutcome.OK, f"both can be read; {size}")
        behind = sum(facts.lag.values())
        text = f"{behind} events wait, the oldest for {facts.waiting:.0f} s" if behind else "nothing waits"
        late = facts.waiting > STALL_SECONDS
        remedy = "`headgate up` decides them; if it runs, look into `logs/pipeline.log`" if late else ""
        yield Check("pipeline", CheckOutcome.WARN if late else CheckOutcome.OK, text, remedy)
        if facts.decided_version and not paths.checkpoint.is_dir():
            yield Check(
                "checkpoint", CheckOutcome.WARN, "there is none", "the pipeline decides everything again; wait for it"
            )
        else:
            yield Check("checkpoint", CheckOutcome.OK, "there" if paths.checkpoint.is_dir() else "nothing decided yet")
        if facts.chores.lost_events:
            lost = f"{facts.chores.lost_events} events were removed before an absent subscriber saw them"
            yield Check("retention", CheckOutcome.WARN, lost, "raise `retention.hold` or the limits")
        else:
            yield Check("retention", CheckOutcome.OK, f"{facts.chores.holders} subscriptions hold data past its limit")
    except HeadgateError as error:
        yield failed("log and deliveries", error)
    finally:
        watch.close()
    if (files.data / Cursors.FILE).exists():
        yield attempt("cursors", lambda: Cursors(files.data / Cursors.FILE).close(), "can be read")


def _policy(files: Files, state: State) -> Check:
    if not files.policy.is_dir():
        return Check("policy", CheckOutcome.SKIP, f"there is no directory `{files.policy}`")
    try:
        allowed = allowed_at(Paths(files.data), state, run=False)
        made = plan_policy(state, read_policy(files.policy, state.administrator, allowed))
    except HeadgateError as error:
        return failed("policy", error)
    if made.empty:
        return Check("policy", CheckOutcome.OK, "the ledger says what the directory says")
    return Check(
        "policy",
        CheckOutcome.WARN,
        f"the directory differs from version {state.version} of the ledger",
        f"`headgate policy plan {files.policy}` shows how",
    )


def _chain(files: Files, state: State, now: datetime) -> Check:
    """Do the gateway's statements lead from the coordinating domain to it?"""
    try:
        texts = own_statements(files.statements)
        name = Config.load(files.directory, os.environ).domain.name
        broker = PrivateKey.load(files.broker_key).public.did
    except HeadgateError as error:
        return failed("gateway's chain", error)
    root = coordinator_of(state)
    if root is None:
        return Check(
            "gateway's chain", CheckOutcome.SKIP, "the administrator has no key, so nobody coordinates the network"
        )
    if is_vouched(texts, broker=broker, coordinator=root, audience=name, now=now):
        return Check(
            "gateway's chain", CheckOutcome.OK, f"{len(texts)} statements lead from the coordinating domain to it"
        )
    remedy = f"put the certificates that lead from `{root}` to `{broker}` into `{files.statements}`"
    return Check("gateway's chain", CheckOutcome.WARN, "none leads from the coordinating domain to it", remedy)


def _issuers(files: Files, settings: Config | None, now: datetime) -> Iterator[Check]:
    """Can the services that are followed be reached, and are they who they should be?"""
    for issuer in () if settings is None else settings.issuers:
        try:
            revocations = ask(issuer, files.directory, now)
        except (httpx.HTTPError, OSError) as error:
            remedy = f"check `{issuer.url}`, and the certificate if it is pinned"
            yield Check(
                f"issuer {issuer.name}", CheckOutcome.WARN, f"it does not answer ({type(error).__name__})", remedy
            )
        except HeadgateError as error:
            yield failed(f"issuer {issuer.name}", error)
        else:
            yield Check(
                f"issuer {issuer.name}",
                CheckOutcome.OK,
                f"list {revocations.number}, of {len(revocations.revoked)} entries",
            )


# -- the node -------------------------------------------------------------------------------------------------


def _node(files: Files, settings: Config | None) -> Iterator[Check]:
    process = held_by(files.data / PID)
    if process is None:
        yield Check("node", CheckOutcome.SKIP, "not running", f"`headgate up {files.directory}` starts it")
        if settings is not None:
            yield _ports(settings)
        return
    try:
        told = jsons.loads((files.data / NODE).read_bytes()[:_MAX_ANSWER])
        urls = [str(url) for url in told["urls"]]
    except (OSError, ValueError, KeyError, TypeError):
        yield Check("node", CheckOutcome.WARN, f"process {process} is starting", "ask again in a minute")
        return
    yield Check("node", CheckOutcome.OK, f"process {process}")
    for url in urls:
        yield _health(url, files)


def _ports(settings: Config) -> Check:
    gateway = settings.gateway
    ports = range(gateway.port, gateway.port + gateway.count)
    try:
        for port in ports:
            listen(gateway.host, port).close()
    except HeadgateError as error:
        return failed("ports", error)
    return Check("ports", CheckOutcome.OK, f"{', '.join(map(str, ports[:_SHOWN]))} free")


def _health(url: str, files: Files) -> Check:
    """What a gateway says of itself, over the connection that a client would have."""
    try:
        status, answer = _get(url, "/health", files)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Check(url, CheckOutcome.FAIL, f"it does not answer ({type(error).__name__})", "look into `logs/`")
    reasons = "; ".join(str(one) for one in answer.get("reasons") or ())
    finding = {"ok": CheckOutcome.OK, "degraded": CheckOutcome.WARN}.get(str(answer.get("status")), CheckOutcome.FAIL)
    return Check(url, finding, f"{answer.get('status', status)}{f': {reasons}' if reasons else ''}")


def _get(url: str, path: str, files: Files) -> tuple[int, dict[str, Any]]:
    address = urlsplit(url)
    assert address.hostname is not None
    connection = (
        http.client.HTTPSConnection(
            address.hostname,
            address.port,
            timeout=_HTTP_SECONDS,
            context=client_context(files.tls_certificate.read_bytes()),
        )
        if address.scheme == "https"
        else http.client.HTTPConnection(address.hostname, address.port, timeout=_HTTP_SECONDS)
    )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = jsons.loads(answer.read(_MAX_ANSWER))
    finally:
        connection.close()
    return answer.status, body if isinstance(body, dict) else {}
