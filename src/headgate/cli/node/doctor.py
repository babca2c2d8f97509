"""`headgate doctor`: is this machine, and is this domain, as it should be?

Guarantees: it looks and changes nothing, save one small file that it writes to time the disk and removes. A check that
cannot be made, because another failed, says so; none is left out. Nothing that is shown is secret.
Leaves out: repairing; each line says what to do.
"""

from __future__ import annotations

import json as jsons
import os
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer
from rich.text import Text

from headgate.cli.shared.common import check_text, out
from headgate.cli.shared.options import Json, argument
from headgate.cli.shared.rendering import print_json, say, show_table
from headgate.gateway.authority.issuers import ask
from headgate.ledger import Ledger
from headgate.model.errors import HeadgateError
from headgate.model.state import State
from headgate.node.config import NODE, Config, Files
from headgate.node.cursors import Cursors
from headgate.node.domain import utc_now
from headgate.node.health import LOW_BYTES, NO_BYTES, STALL_SECONDS, HealthWatch
from headgate.node.processes import held_by, listen
from headgate.node.statement_register import coordinator_of, is_vouched, own_statements
from headgate.node.topology import PID
from headgate.pipeline.index.predicates import Allowed
from headgate.pipeline.paths import Paths
from headgate.pipeline.spark.session import JAVA_NEEDED, check_java
from headgate.scenario.format.policy import plan_policy, read_policy
from headgate.trust.keys import PrivateKey
from headgate.trust.positions import Positions
from headgate.trust.tls import client_context, expires, server_context
from headgate.trust.tokens import load_token

SLOW_SYNC: Final = 0.020
"""Seconds of one durable write above which a disk is called slow."""

SYNCS: Final = 16
SPARE_FILES: Final = 256
SOON: Final = timedelta(days=30)
"""A certificate that expires within this is worth a warning."""

_GIGABYTE: Final = 1 << 30
_HTTP_SECONDS: Final = 5.0
_MAX_ANSWER: Final = 65_536
_SHOWN: Final = 5


class CheckOutcome(Enum):
    """The outcome of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


_STYLES: Final = {
    CheckOutcome.OK: "green",
    CheckOutcome.WARN: "bold yellow",
    CheckOutcome.FAIL: "bold red",
    CheckOutcome.SKIP: "dim",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, what was found, and what to do about it."""

    name: str
    finding: CheckOutcome
    found: str
    remedy: str = ""


def _ok(name: str, text: str) -> Check:
    return Check(name, CheckOutcome.OK, text)


def _warn(name: str, text: str, remedy: str) -> Check:
    return Check(name, CheckOutcome.WARN, text, remedy)


def _warn_if(bad: bool, name: str, text: str, remedy: str) -> Check:
    return _warn(name, text, remedy) if bad else _ok(name, text)


def _fail(name: str, text: str, remedy: str) -> Check:
    return Check(name, CheckOutcome.FAIL, text, remedy)


def _skip(name: str, text: str, remedy: str = "") -> Check:
    return Check(name, CheckOutcome.SKIP, text, remedy)


def _failed(name: str, error: HeadgateError) -> Check:
    """A check that was refused, with the reason."""
    return _fail(name, f"{error.place}: {error.message}" if error.place else error.message, error.remedy or "")


def _attempt(name: str, look: Callable[[], object], text: str = "") -> Check:
    """A check that passes unless it is refused; it found what `look` returns, unless that is said."""
    try:
        seen = look()
        return _ok(name, text or str(seen))
    except HeadgateError as error:
        return _failed(name, error)


def doctor(
    directory: Annotated[Path | None, argument("DIR", "The domain.", unset="the current directory")] = None,
    json: Json = False,
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
    rows = ((one.name, Text(one.finding.value, _STYLES[one.finding]), one.found, one.remedy) for one in checks)
    show_table(("check", "", "found", "what to do"), rows)
    out.print()
    summary = []
    for finding, words in ((CheckOutcome.FAIL, "failed"), (CheckOutcome.WARN, "to look at")):
        count = sum(one.finding is finding for one in checks)
        summary += [f"{count} {words}"] if count else []
    say(", ".join(summary) if summary else Text("all is well", "bold green"))


def examine(directory: Path, now: datetime) -> Iterator[Check]:
    """Every check, in order."""
    files = Files(directory)
    settings: Config | None = None
    try:
        settings = Config.load(directory, os.environ)
        yield _ok("settings", str(files.config))
    except HeadgateError as error:
        yield _failed("settings", error)
    yield _ok("python", ".".join(map(str, sys.version_info[:3])))
    yield _attempt("java", check_java, f"{JAVA_NEEDED} or newer")
    yield _memory(settings)
    yield _open_files(settings)
    yield from _disk(files)
    yield from _secrets(files, settings, now)
    yield from _data(files, now)
    yield from _issuers(files, settings, now)
    yield from _node(files, settings)


# -- the machine ----------------------------------------------------------------------------------------------


def _memory(settings: Config | None) -> Check:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        there = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return _skip("memory", "this system does not tell")
    text = f"{there / _GIGABYTE:.1f} GB available"
    if settings is None:
        return _ok("memory", text)
    memory = settings.pipeline.memory
    wanted = int(memory[:-1]) * (1 << 20 if memory.endswith("m") else _GIGABYTE)
    remedy = f"the pipeline may take {memory} and more: lower `pipeline.memory`"
    return _warn_if(there < wanted + _GIGABYTE, "memory", text, remedy)


def _open_files(settings: Config | None) -> Check:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if settings is not None and hard < settings.limits.connections + SPARE_FILES:
        remedy = f"raise it (`ulimit -Hn`), or lower `limits.connections` ({settings.limits.connections})"
        return _warn("open files", f"at most {hard}", remedy)
    return _ok("open files", f"at most {hard}")


def _disk(files: Files) -> Iterator[Check]:
    directory = files.data if files.data.is_dir() else files.directory
    if not directory.is_dir():
        yield _skip("disk", f"there is no directory `{directory}`")
        return
    free = shutil.disk_usage(directory).free
    text = f"{free / _GIGABYTE:.1f} GB free"
    if free < NO_BYTES:
        yield _fail("disk", text, "make room: no event can be accepted")
    else:
        yield _warn_if(free < LOW_BYTES, "disk", text, "make room, or lower `retention.log_size`")
    try:
        seconds = _sync_seconds(directory)
    except OSError as error:
        yield _fail("durable write", f"`{directory}`: {error.strerror}", "let this user write there")
        return
    slow, text = seconds > SLOW_SYNC, f"{seconds * 1000:.1f} ms"
    yield _warn_if(slow, "durable write", text, "publishing waits for the disk: use a faster one")


def _sync_seconds(directory: Path) -> float:
    """The median time of a small durable write."""
    path = directory / f".doctor-{os.getpid()}"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        times = []
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.write(handle, b"\0" * 4096)
            os.fsync(handle)
            times.append(time.perf_counter() - began)
        return statistics.median(times)
    finally:
        os.close(handle)
        path.unlink()


# -- keys and certificate -------------------------------------------------------------------------------------


def _secrets(files: Files, settings: Config | None, now: datetime) -> Iterator[Check]:
    """The node's own keys, and its certificate."""
    yield _attempt("broker's key", lambda: PrivateKey.load(files.broker_key).public.did)
    yield _attempt("position key", lambda: Positions.load(files.position_key), "readable by its owner alone")
    if not files.admin_key.exists():
        yield _skip("administrator's key", "not on this machine, where it need not be")
    else:
        yield _attempt("administrator's key", lambda: PrivateKey.load(files.admin_key).public.did)
    if files.metrics_token.exists():
        yield _attempt("metrics token", lambda: load_token(files.metrics_token), str(files.metrics_token))
    else:
        yield _skip(
            "metrics token",
            "there is none; `/metrics` is for principals that audit every type",
            f"`(umask 077; openssl rand -hex 32 > {files.metrics_token})` makes one",
        )
    if settings is not None and not settings.gateway.tls:
        yield _skip("certificate", "`gateway.tls` is off")
        return
    try:
        server_context(files.tls_certificate, files.tls_key)
        until = expires(files.tls_certificate)
    except HeadgateError as error:
        yield _failed("certificate", error)
        return
    if until <= now:
        yield _fail("certificate", f"expired on {until:%Y-%m-%d}", "put a new one in its place")
    else:
        remedy = "put a new one in its place soon; clients pin it"
        yield _warn_if(until - now < SOON, "certificate", f"good until {until:%Y-%m-%d}", remedy)


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
        yield _ok("ledger", f"version {state.version}, every row as it was written")
    except HeadgateError as error:
        yield _failed("ledger", error)
    yield from _files(files, paths, now)
    if newest is not None and newest > now:
        yield _warn("clock", f"the newest version was made at {newest:%Y-%m-%d %H:%M:%S}, after now", "set it")
    else:
        yield _ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")
    if state is None:
        yield _skip("policy", "the ledger cannot be read")
        return
    yield _policy(files, state)
    yield _chain(files, state, now)
    without = sorted(set(state.principals) - set(state.keys) - {state.administrator})
    without = [name for name in without if not name.startswith("did:key:")]
    if without:
        shown = ", ".join(f"`{name}`" for name in without[:_SHOWN]) + (" and more" if len(without) > _SHOWN else "")
        yield _warn("keys of principals", f"{len(without)} have none: {shown}", "they cannot connect")
    else:
        yield _ok("keys of principals", f"{len(state.keys)}")


def _files(files: Files, paths: Paths, now: datetime) -> Iterator[Check]:
    try:
        watch = HealthWatch.open(files.data)
    except HeadgateError as error:
        yield _failed("log and deliveries", error)
        return
    try:
        facts = watch.look(now)
        size = f"{facts.log_bytes >> 20} and {facts.deliveries_bytes >> 20} MB"
        yield _ok("log and deliveries", f"both can be read; {size}")
        behind = sum(facts.lag.values())
        text = f"{behind} events wait, the oldest for {facts.waiting:.0f} s" if behind else "nothing waits"
        late = facts.waiting > STALL_SECONDS
        remedy = "`headgate up` decides them; if it runs, look into `logs/pipeline.log`"
        yield _warn_if(late, "pipeline", text, remedy)
        if facts.decided_version and not paths.checkpoint.is_dir():
            yield _warn("checkpoint", "there is none", "the pipeline decides everything again; wait for it")
        else:
            yield _ok("checkpoint", "there" if paths.checkpoint.is_dir() else "nothing decided yet")
        if facts.chores.lost_events:
            lost = f"{facts.chores.lost_events} events were removed before an absent subscriber saw them"
            yield _warn("retention", lost, "raise `retention.hold` or the limits")
        else:
            yield _ok("retention", f"{facts.chores.holders} subscriptions hold data past its limit")
    except HeadgateError as error:
        yield _failed("log and deliveries", error)
    finally:
        watch.close()
    if (files.data / Cursors.FILE).exists():
        yield _attempt("cursors", lambda: Cursors(files.data / Cursors.FILE).close(), "can be read")


def _policy(files: Files, state: State) -> Check:
    if not files.policy.is_dir():
        return _skip("policy", f"there is no directory `{files.policy}`")
    try:
        allowed = Allowed(False, state.predicates, Paths(files.data).predicates)
        made = plan_policy(state, read_policy(files.policy, state.administrator, allowed))
    except HeadgateError as error:
        return _failed("policy", error)
    if made.empty:
        return _ok("policy", "the ledger says what the directory says")
    return _warn(
        "policy",
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
        return _failed("gateway's chain", error)
    root = coordinator_of(state)
    if root is None:
        return _skip("gateway's chain", "the administrator has no key, so nobody coordinates the network")
    if is_vouched(texts, broker=broker, coordinator=root, audience=name, now=now):
        return _ok("gateway's chain", f"{len(texts)} statements lead from the coordinating domain to it")
    remedy = f"put the certificates that lead from `{root}` to `{broker}` into `{files.statements}`"
    return _warn("gateway's chain", "none leads from the coordinating domain to it", remedy)


def _issuers(files: Files, settings: Config | None, now: datetime) -> Iterator[Check]:
    """Can the services that are followed be reached, and are they who they should be?"""
    for issuer in () if settings is None else settings.issuers:
        try:
            revocations = ask(issuer, files.directory, now)
        except (httpx.HTTPError, OSError) as error:
            remedy = f"check `{issuer.url}`, and the certificate if it is pinned"
            yield _warn(f"issuer {issuer.name}", f"it does not answer ({type(error).__name__})", remedy)
        except HeadgateError as error:
            yield _failed(f"issuer {issuer.name}", error)
        else:
            yield _ok(f"issuer {issuer.name}", f"list {revocations.number}, of {len(revocations.revoked)} entries")


# -- the node -------------------------------------------------------------------------------------------------


def _node(files: Files, settings: Config | None) -> Iterator[Check]:
    process = held_by(files.data / PID)
    if process is None:
        yield _skip("node", "not running", f"`headgate up {files.directory}` starts it")
        if settings is not None:
            yield _ports(settings)
        return
    try:
        told = jsons.loads((files.data / NODE).read_bytes()[:_MAX_ANSWER])
        urls = [str(url) for url in told["urls"]]
    except (OSError, ValueError, KeyError, TypeError):
        yield _warn("node", f"process {process} is starting", "ask again in a minute")
        return
    yield _ok("node", f"process {process}")
    for url in urls:
        yield _health(url, files)


def _ports(settings: Config) -> Check:
    gateway = settings.gateway
    ports = range(gateway.port, gateway.port + gateway.count)
    try:
        for port in ports:
            listen(gateway.host, port).close()
    except HeadgateError as error:
        return _failed("ports", error)
    return _ok("ports", f"{', '.join(map(str, ports[:_SHOWN]))} free")


def _health(url: str, files: Files) -> Check:
    """What a gateway says of itself, over the connection that a client would have."""
    try:
        context = client_context(files.tls_certificate.read_bytes()) if url.startswith("https:") else False
        reply = httpx.get(f"{url}/health", verify=context, timeout=_HTTP_SECONDS, trust_env=False)
        told = reply.json()
    except (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return _fail(url, f"it does not answer ({type(error).__name__})", "look into `logs/`")
    answer = told if isinstance(told, dict) else {}
    reasons = "; ".join(str(one) for one in answer.get("reasons") or ())
    finding = {"ok": CheckOutcome.OK, "degraded": CheckOutcome.WARN}.get(str(answer.get("status")), CheckOutcome.FAIL)
    return Check(url, finding, f"{answer.get('status', reply.status_code)}{f': {reasons}' if reasons else ''}")
