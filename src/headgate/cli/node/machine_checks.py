"""The checks of `headgate doctor` that look at the machine, the keys and the certificate.

Guarantees: nothing is changed, save one small file that is written to time the disk, and removed. Nothing that is told
is secret.
"""

from __future__ import annotations

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
from typing import Final

from headgate.model.errors import HeadgateError
from headgate.node.config import Config, Files
from headgate.node.health import LOW_BYTES, NO_BYTES
from headgate.pipeline.spark.session import JAVA_NEEDED, check_java
from headgate.trust.keys import PrivateKey
from headgate.trust.positions import Positions
from headgate.trust.tls import expires, server_context
from headgate.trust.tokens import load_token

SLOW_SYNC: Final = 0.020
"""Seconds of one durable write above which a disk is called slow."""

SYNCS: Final = 16
SPARE_FILES: Final = 256
SOON: Final = timedelta(days=30)
"""A certificate that expires within this is worth a warning."""

_GIGABYTE: Final = 1 << 30


class CheckOutcome(Enum):
    """The outcome of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, what was found, and what to do about it."""

    name: str
    finding: CheckOutcome
    found: str
    remedy: str = ""


def attempt(name: str, look: Callable[[], object], text: str = "") -> Check:
    """A check that passes unless it is refused; it found what `look` returns, unless that is said."""
    try:
        seen = look()
        return Check(name, CheckOutcome.OK, text or str(seen))
    except HeadgateError as error:
        return failed(name, error)


def failed(name: str, error: HeadgateError) -> Check:
    """A check that was refused, with the reason."""
    place = f"{error.place}: " if error.place else ""
    return Check(name, CheckOutcome.FAIL, f"{place}{error.message}", error.remedy or "")


# -- the machine ----------------------------------------------------------------------------------------------


def machine(settings: Config | None, files: Files) -> Iterator[Check]:
    """Python, Java, memory, open files and disk."""
    yield Check("python", CheckOutcome.OK, ".".join(map(str, sys.version_info[:3])))
    yield attempt("java", check_java, f"{JAVA_NEEDED} or newer")
    yield _memory(settings)
    yield _open_files(settings)
    yield from _disk(files)


def _memory(settings: Config | None) -> Check:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        there = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return Check("memory", CheckOutcome.SKIP, "this system does not tell")
    text = f"{there / _GIGABYTE:.1f} GB available"
    if settings is None:
        return Check("memory", CheckOutcome.OK, text)
    memory = settings.pipeline.memory
    wanted = int(memory[:-1]) * (1 << 20 if memory.endswith("m") else _GIGABYTE)
    if there < wanted + _GIGABYTE:
        return Check(
            "memory", CheckOutcome.WARN, text, f"the pipeline may take {memory} and more: lower `pipeline.memory`"
        )
    return Check("memory", CheckOutcome.OK, text)


def _open_files(settings: Config | None) -> Check:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if settings is not None and hard < settings.limits.connections + SPARE_FILES:
        remedy = f"raise it (`ulimit -Hn`), or lower `limits.connections` ({settings.limits.connections})"
        return Check("open files", CheckOutcome.WARN, f"at most {hard}", remedy)
    return Check("open files", CheckOutcome.OK, f"at most {hard}")


def _disk(files: Files) -> Iterator[Check]:
    directory = files.data if files.data.is_dir() else files.directory
    if not directory.is_dir():
        yield Check("disk", CheckOutcome.SKIP, f"there is no directory `{directory}`")
        return
    free = shutil.disk_usage(directory).free
    text = f"{free / _GIGABYTE:.1f} GB free"
    if free < NO_BYTES:
        yield Check("disk", CheckOutcome.FAIL, text, "make room: no event can be accepted")
    elif free < LOW_BYTES:
        yield Check("disk", CheckOutcome.WARN, text, "make room, or lower `retention.log_size`")
    else:
        yield Check("disk", CheckOutcome.OK, text)
    try:
        seconds = _sync_seconds(directory)
    except OSError as error:
        yield Check("durable write", CheckOutcome.FAIL, f"`{directory}`: {error.strerror}", "let this user write there")
        return
    text = f"{seconds * 1000:.1f} ms"
    if seconds > SLOW_SYNC:
        yield Check("durable write", CheckOutcome.WARN, text, "publishing waits for the disk: use a faster one")
    else:
        yield Check("durable write", CheckOutcome.OK, text)


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


def secrets(files: Files, settings: Config | None, now: datetime) -> Iterator[Check]:
    """The node's own keys, and its certificate."""
    yield attempt("broker's key", lambda: PrivateKey.load(files.broker_key).public.did)
    yield attempt("position key", lambda: Positions.load(files.position_key), "readable by its owner alone")
    if not files.admin_key.exists():
        yield Check("administrator's key", CheckOutcome.SKIP, "not on this machine, where it need not be")
    else:
        yield attempt("administrator's key", lambda: PrivateKey.load(files.admin_key).public.did)
    if files.metrics_token.exists():
        yield attempt("metrics token", lambda: load_token(files.metrics_token), str(files.metrics_token))
    else:
        yield Check(
            "metrics token",
            CheckOutcome.SKIP,
            "there is none; `/metrics` is for principals that audit every type",
            f"`(umask 077; openssl rand -hex 32 > {files.metrics_token})` makes one",
        )
    if settings is not None and not settings.gateway.tls:
        yield Check("certificate", CheckOutcome.SKIP, "`gateway.tls` is off")
        return
    try:
        server_context(files.tls_certificate, files.tls_key)
        until = expires(files.tls_certificate)
    except HeadgateError as error:
        yield failed("certificate", error)
        return
    text = f"good until {until:%Y-%m-%d}"
    if until <= now:
        yield Check("certificate", CheckOutcome.FAIL, f"expired on {until:%Y-%m-%d}", "put a new one in its place")
    elif until - now < SOON:
        yield Check("certificate", CheckOutcome.WARN, text, "put a new one in its place soon; clients pin it")
    else:
        yield Check("certificate", CheckOutcome.OK, text)
