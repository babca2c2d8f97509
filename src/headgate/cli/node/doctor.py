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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import httpx
import typer
from rich.text import Text

from headgate.cli.shared.common import out
from headgate.cli.shared.options import Json, argument
from headgate.cli.shared.rendering import count_of, print_json, say, show_table
from headgate.gateway.authority.issuers import ask
from headgate.ledger import Ledger
from headgate.model.errors import HeadgateError
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.node.config import NODE, Config, Files
from headgate.node.cursors import Cursors
from headgate.node.derived_progress import refused_signals
from headgate.node.domain import utc_now
from headgate.node.health import LOW_BYTES, NO_BYTES, STALL_SECONDS, HealthWatch, HorizonLag, horizon_lags, waits_for
from headgate.node.process_status import PID, ProcessStatus, read_processes
from headgate.node.processes import held_by, listen
from headgate.node.statement_register import coordinator_of, is_vouched, own_statements
from headgate.pipeline.deliveries import Remark
from headgate.pipeline.detect.signals import told_remark
from headgate.pipeline.index.predicates import Allowed
from headgate.pipeline.log.promises import ALL_TYPES
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
_SILENT: Final = "look into `logs/`; a process that hangs is started again once it is killed (`kill`)"


Outcome: TypeAlias = Literal["ok", "warn", "fail", "skip"]
_STYLES: Final[Mapping[Outcome, str]] = {"ok": "green", "warn": "bold yellow", "fail": "bold red", "skip": "dim"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, what was found, and what to do about it."""

    name: str
    finding: Outcome
    found: str
    remedy: str = ""


def _warn_if(bad: bool, name: str, text: str, remedy: str) -> Check:
    return Check(name, "warn", text, remedy) if bad else Check(name, "ok", text)


def _failed(name: str, error: HeadgateError) -> Check:
    """A check that was refused, with the reason."""
    where = f"{error.place}: " if error.place else ""
    return Check(name, "fail", f"{where}{error.message}", error.remedy or "")


def _guarded(name: str, checks: Iterable[Check]) -> Iterator[Check]:
    """The checks that are made, and the one that is refused, if one is: nothing comes after it."""
    try:
        yield from checks
    except HeadgateError as error:
        yield _failed(name, error)


def _attempt(name: str, look: Callable[[], object], text: str = "") -> Iterator[Check]:
    """A check that passes unless it is refused; it found what `look` returns, unless that is said."""

    def checks() -> Iterator[Check]:
        seen = look()
        yield Check(name, "ok", text or str(seen))

    return _guarded(name, checks())


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
    checks = list(examine(directory or Path(), utc_now()))
    print_json(checks) if json else _show(checks)
    if any(check.finding == "fail" for check in checks):
        raise typer.Exit(1)


def _show(checks: list[Check]) -> None:
    rows = ((one.name, Text(one.finding, _STYLES[one.finding]), one.found, one.remedy) for one in checks)
    show_table(("check", "", "found", "what to do"), rows)
    out.print()
    counts = Counter(one.finding for one in checks)
    counted = ((counts["fail"], "failed"), (counts["warn"], "to look at"))
    summary = [f"{count} {words}" for count, words in counted if count]
    say(", ".join(summary) if summary else Text("all is well", "bold green"))


def examine(directory: Path, now: datetime) -> Iterator[Check]:
    """Every check, in order."""
    files = Files(directory)
    settings: Config | None = None
    try:
        settings = Config.load(directory, os.environ)
        yield Check("settings", "ok", str(files.config))
    except HeadgateError as error:
        yield _failed("settings", error)
    yield Check("python", "ok", ".".join(map(str, sys.version_info[:3])))
    yield from _attempt("java", check_java, f"{JAVA_NEEDED} or newer")
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
        return Check("memory", "skip", "this system does not tell")
    text = f"{there / _GIGABYTE:.1f} GB available"
    if settings is None:
        return Check("memory", "ok", text)
    memory = settings.pipeline.memory
    wanted = int(memory[:-1]) * (1 << 20 if memory.endswith("m") else _GIGABYTE)
    remedy = f"the pipeline may take {memory} and more: lower `pipeline.memory`"
    return _warn_if(there < wanted + _GIGABYTE, "memory", text, remedy)


def _open_files(settings: Config | None) -> Check:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if settings is not None and hard < settings.limits.connections + SPARE_FILES:
        remedy = f"raise it (`ulimit -Hn`), or lower `limits.connections` ({settings.limits.connections})"
        return Check("open files", "warn", f"at most {hard}", remedy)
    return Check("open files", "ok", f"at most {hard}")


def _disk(files: Files) -> Iterator[Check]:
    directory = files.data if files.data.is_dir() else files.directory
    if not directory.is_dir():
        yield Check("disk", "skip", f"there is no directory `{directory}`")
        return
    free = shutil.disk_usage(directory).free
    text = f"{free / _GIGABYTE:.1f} GB free"
    if free < NO_BYTES:
        yield Check("disk", "fail", text, "make room: no event can be accepted")
    else:
        yield _warn_if(free < LOW_BYTES, "disk", text, "make room, or lower `retention.log_size`")
    try:
        seconds = _sync_seconds(directory)
    except OSError as error:
        yield Check("durable write", "fail", f"`{directory}`: {error.strerror}", "let this user write there")
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
    yield from _attempt("broker's key", lambda: PrivateKey.load(files.broker_key).public.did)
    yield from _attempt("position key", lambda: Positions.load(files.position_key), "readable by its owner alone")
    if not files.admin_key.exists():
        yield Check("administrator's key", "skip", "not on this machine, where it need not be")
    else:
        yield from _attempt("administrator's key", lambda: PrivateKey.load(files.admin_key).public.did)
    if files.metrics_token.exists():
        yield from _attempt("metrics token", lambda: load_token(files.metrics_token), str(files.metrics_token))
    else:
        none = "there is none; `/metrics` is for principals that audit every type"
        remedy = f"`(umask 077; openssl rand -hex 32 > {files.metrics_token})` makes one"
        yield Check("metrics token", "skip", none, remedy)
    if settings is not None and not settings.gateway.tls:
        yield Check("certificate", "skip", "`gateway.tls` is off")
    else:
        yield from _guarded("certificate", _certificate(files, now))


def _certificate(files: Files, now: datetime) -> Iterator[Check]:
    server_context(files.tls_certificate, files.tls_key)
    until = expires(files.tls_certificate)
    if until <= now:
        yield Check("certificate", "fail", f"expired on {until:%Y-%m-%d}", "put a new one in its place")
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
        kept = f" in {paths.database}" if paths.database else ""
        yield Check("ledger", "ok", f"version {state.version}{kept}, every row as it was written")
    except HeadgateError as error:
        yield _failed("ledger", error)
    yield from _guarded("log and deliveries", _files(files, paths, now, state))
    cursors = paths.shared(Cursors.FILE)
    if not isinstance(cursors, Path) or cursors.exists():
        yield from _attempt("cursors", lambda: Cursors(cursors).close(), "can be read")
    if newest is not None and newest > now:
        yield Check("clock", "warn", f"the newest version was made at {newest:%Y-%m-%d %H:%M:%S}, after now", "set it")
    else:
        yield Check("clock", "ok", f"{now:%Y-%m-%d %H:%M:%S} UTC")
    if state is None:
        yield Check("policy", "skip", "the ledger cannot be read")
        return
    yield from _guarded("policy", _policy(files, state))
    yield from _guarded("gateway's chain", _chain(files, state, now))
    without = sorted(set(state.principals) - set(state.keys) - {state.administrator})
    without = [name for name in without if not name.startswith("did:key:")]
    if without:
        shown = ", ".join(f"`{name}`" for name in without[:_SHOWN]) + (" and more" if len(without) > _SHOWN else "")
        yield Check("keys of principals", "warn", f"{len(without)} have none: {shown}", "they cannot connect")
    else:
        yield Check("keys of principals", "ok", f"{len(state.keys)}")


def _files(files: Files, paths: Paths, now: datetime, state: State | None) -> Iterator[Check]:
    with closing(HealthWatch.open(files.data)) as watch:
        facts = watch.look(now)
        size = f"{facts.log_bytes >> 20} and {facts.deliveries_bytes >> 20} MB"
        yield Check("log and deliveries", "ok", f"both can be read; {size}")
        behind = sum(facts.lag.values())
        text = f"{behind} events wait, the oldest for {facts.waiting:.0f} s" if behind else "nothing waits"
        late = facts.waiting > STALL_SECONDS
        remedy = "`headgate up` or `headgate pipeline` decides them; if it runs, look into what it logged"
        yield _warn_if(late, "pipeline", text, remedy)
        if facts.detections:
            waits = sum(facts.undetected.values())
            text = f"{facts.detections}, which gave {facts.signals} signals; {waits} events wait for them"
            remedy = "`headgate up` or `headgate pipeline` works them out; if it runs, look into what it logged"
            yield _warn_if(facts.undetected_for > STALL_SECONDS, "detections", text, remedy)
            yield from _remarks(paths, watch.remarks())
        refused = refused_signals(paths)
        if refused:
            last, count = refused[0], sum(one.count for one in refused)
            text = f"{count} signals made no event or row; the last of `{last.subscription}`: {last.message}"
            yield Check("derived events", "warn", text, "give its publisher the right, or end the detection")
        types = Catalog() if state is None else state.types
        yield _horizons(horizon_lags(watch.promised(), types, now), state, detections=facts.detections)
        if facts.decided_version and not paths.checkpoint.is_dir():
            yield Check("checkpoint", "warn", "there is none", "the pipeline decides everything again; wait for it")
        else:
            yield Check("checkpoint", "ok", "there" if paths.checkpoint.is_dir() else "nothing decided yet")
        if facts.chores.lost_events:
            lost = f"{facts.chores.lost_events} events were removed before an absent subscriber saw them"
            yield Check("retention", "warn", lost, "raise `retention.hold` or the limits")
        else:
            yield Check("retention", "ok", f"{facts.chores.holders} subscriptions hold data past its limit")


def _remarks(paths: Paths, remarks: Sequence[Remark]) -> Iterator[Check]:
    """Detections in force that have stopped, or could not do something."""
    if remarks:
        with Ledger.open(paths.ledger) as ledger:
            changes = ledger.detections(0, ledger.version)
        names = {number: one.id for number, one in changes.opened if number not in dict(changes.closed)}
        for remark in [one for one in remarks if one.subscription in names][:_SHOWN]:
            remedy = "end it, and make it again with what it needs"
            yield Check(f"detection {names[remark.subscription]}", "warn", told_remark(remark), remedy)


def _horizons(lags: Sequence[HorizonLag], state: State | None, *, detections: int) -> Check:
    """Which source holds back which type; what detections publish is held back by what they look at."""
    words = []
    causes = {lag: None if state is None else waits_for(lag, lags, state) for lag in lags}
    for lag in sorted(lags, key=lambda one: -one.seconds)[:_SHOWN]:
        cause = causes[lag]
        held = "" if cause is None else f", which waits for {_source(cause)}"
        words.append(f"{_source(lag)}, {max(lag.seconds, 0):.0f} s behind the clock{held}")
    late = bool(detections) and any(lag.seconds > STALL_SECONDS for lag in lags if causes[lag] is None)
    remedy = (
        "whoever publishes it sends heartbeats; `headgate heartbeat --for NAME` releases what one that is gone holds"
    )
    return _warn_if(late, "horizons", "; ".join(words) or "nothing is promised yet", remedy)


def _source(lag: HorizonLag) -> str:
    """Who promises of what."""
    what = "all types" if lag.type == ALL_TYPES else f"`{lag.type}`"
    return f"{what} by `{lag.publisher}` in {lag.stream}" if lag.publisher else f"{what} by {lag.stream} itself"


def _policy(files: Files, state: State) -> Iterator[Check]:
    if not files.policy.is_dir():
        yield Check("policy", "skip", f"there is no directory `{files.policy}`")
        return
    allowed = Allowed(False, state.predicates, Paths(files.data).predicates)
    if plan_policy(state, read_policy(files.policy, state.administrator, allowed)).empty:
        yield Check("policy", "ok", "the ledger says what the directory says")
    else:
        differs = f"the directory differs from version {state.version} of the ledger"
        yield Check("policy", "warn", differs, f"`headgate policy plan {files.policy}` shows how")


def _chain(files: Files, state: State, now: datetime) -> Iterator[Check]:
    """Do the gateway's statements lead from the coordinating domain to it?"""
    texts = own_statements(files.statements)
    name = Config.load(files.directory, os.environ).domain.name
    broker = PrivateKey.load(files.broker_key).public.did
    root = coordinator_of(state)
    if root is None:
        yield Check("gateway's chain", "skip", "the administrator has no key, so nobody coordinates the network")
    elif is_vouched(texts, broker=broker, coordinator=root, audience=name, now=now):
        yield Check("gateway's chain", "ok", f"{len(texts)} statements lead from the coordinating domain to it")
    else:
        remedy = f"put the certificates that lead from `{root}` to `{broker}` into `{files.statements}`"
        yield Check("gateway's chain", "warn", "none leads from the coordinating domain to it", remedy)


def _issuers(files: Files, settings: Config | None, now: datetime) -> Iterator[Check]:
    """Can the services that are followed be reached, and are they who they should be?"""
    for issuer in () if settings is None else settings.issuers:
        name = f"issuer {issuer.name}"
        try:
            revocations = ask(issuer, files.directory, now)
            yield Check(name, "ok", f"list {revocations.number}, of {len(revocations.revoked)} entries")
        except (httpx.HTTPError, OSError) as error:
            remedy = f"check `{issuer.url}`, and the certificate if it is pinned"
            yield Check(name, "warn", f"it does not answer ({type(error).__name__})", remedy)
        except HeadgateError as error:
            yield _failed(name, error)


# -- the node -------------------------------------------------------------------------------------------------


def _node(files: Files, settings: Config | None) -> Iterator[Check]:
    for name, status in read_processes(files.data).items():
        yield _process(name, status)
    process = held_by(files.data / PID)
    if process is None:
        yield Check("node", "skip", "not running", f"`headgate up {files.directory}` starts it")
        if settings is not None:
            yield from _guarded("ports", _ports(settings))
        return
    try:
        told = jsons.loads((files.data / NODE).read_bytes()[:_MAX_ANSWER])
        urls = [str(url) for url in told["urls"]]
    except (OSError, ValueError, KeyError, TypeError):
        yield Check("node", "warn", f"process {process} is starting", "ask again in a minute")
        return
    yield Check("node", "ok", f"process {process}")
    for url in urls:
        yield _health(url, files)


def _process(name: str, status: ProcessStatus) -> Check:
    """What the supervisor says of a process, with what to do if it does not come back by itself."""
    again = f"started again {count_of(status.restarts, 'time')}, the last because {status.detail}"
    look = f"it is tried again by itself; if that does not help, look into `logs/{name}.log`"
    if status.is_away:
        killed = "; if nobody killed it, it was for lack of memory (`dmesg`)" if "SIGKILL" in status.detail else ""
        waits = (
            f"away, tried again after {status.pause:.0f} s; {again}" if status.restarts else f"away: {status.detail}"
        )
        return Check(f"process {name}", "warn", waits, look + killed)
    if status.failing:
        failing = "; ".join(f"{what} fail: {why}" for what, why in status.failing.items())
        return Check(f"process {name}", "warn", failing, look)
    if not status.ready:
        return Check(f"process {name}", "ok", "starting")
    return Check(f"process {name}", "ok", f"running; {again}" if status.restarts else "running")


def _ports(settings: Config) -> Iterator[Check]:
    gateway = settings.gateway
    ports = range(gateway.port, gateway.port + gateway.count)
    for port in ports:
        listen(gateway.host, port).close()
    yield Check("ports", "ok", f"{', '.join(map(str, ports[:_SHOWN]))} free")


def _health(url: str, files: Files) -> Check:
    """What a gateway says of itself, over the connection that a client would have."""
    try:
        context = client_context(files.tls_certificate.read_bytes()) if url.startswith("https:") else False
        reply = httpx.get(f"{url}/health", verify=context, timeout=_HTTP_SECONDS, trust_env=False)
        told = reply.json()
    except (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return Check(url, "fail", f"it does not answer ({type(error).__name__})", _SILENT)
    answer = told if isinstance(told, dict) else {}
    reasons = "; ".join(str(one) for one in answer.get("reasons") or ())
    outcomes: Mapping[str, Outcome] = {"ok": "ok", "degraded": "warn"}
    finding = outcomes.get(str(answer.get("status")), "fail")
    remedy = _SILENT if "hangs" in reasons or "does not move" in reasons else ""
    return Check(url, finding, f"{answer.get('status', reply.status_code)}{f': {reasons}' if reasons else ''}", remedy)
