"""A Spark that is not all in this process: where its driver listens, its Python, and whose a checkpoint is.

Guarantees: a checkpoint is one domain's: it bears its name, and another's is refused, since its offsets are places in
another log. Executors with another Headgate than the driver's decide nothing.
Leaves out: what settings may say (`node.spark_settings`).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headgate.model.errors import BadConfig, BadEnvironment
from headgate.model.values import brief

SECRET: Final = re.compile(r"(?i)secret|password|token|credential|access[.]?key|authenticate")
"""Names of settings that no command line shows."""

MARKER: Final = "headgate-domain"
"""A file in a checkpoint that says whose it is."""


def local_path(checkpoint: str) -> Path | None:
    """The directory of a checkpoint on a local disk."""
    parts = urlsplit(checkpoint)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def is_local(master: str) -> bool:
    """Do driver and executors share one process?"""
    return master.startswith("local")


def listens_here(master: str) -> bool:
    """Is all of it on this machine, so that a driver need not listen to others?"""
    kind, _, hosts = master.partition("://")
    here = (one.startswith(("127.", "localhost:", "[::1]:")) for one in hosts.split(","))
    return is_local(master) or (kind == "spark" and all(here))


def _unwritable(checkpoint: str, why: str) -> BadConfig:
    return BadConfig(
        f"`pipeline.checkpoint` cannot be `{brief(checkpoint)}`: it cannot be written ({why})",
        remedy="name a directory or URI that the pipeline may write, or none for the domain's own",
    )


def check_checkpoint(checkpoint: str) -> None:
    """Refuse a local checkpoint that cannot be written; of others only Spark can say (`claim`)."""
    directory = local_path(checkpoint) if checkpoint else None
    if directory is not None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory):
                pass
        except OSError as error:
            raise _unwritable(checkpoint, error.strerror or type(error).__name__) from None


def claim(session: Any, checkpoint: str, domain: str) -> None:
    """Make a checkpoint this domain's, or refuse it: it is another's, or cannot be written."""
    if not checkpoint:
        return
    jvm = session.sparkContext._jvm
    try:
        marker = jvm.org.apache.hadoop.fs.Path(checkpoint.rstrip("/") + "/" + MARKER)
        files = marker.getFileSystem(session._jsc.hadoopConfiguration())
        if not files.exists(marker):
            out = files.create(marker, False)
            out.write(bytearray(domain.encode()))
            out.close()
        stream = files.open(marker)
        owner = bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode("utf-8", "replace")
        stream.close()
    except Exception as error:  # Java's, of any file system  # noqa: BLE001
        raise _unwritable(checkpoint, _reason(error)) from None
    if owner != domain:
        raise BadConfig(
            f"`pipeline.checkpoint` cannot be `{brief(checkpoint)}`: it is that of the domain `{brief(owner)}`",
            remedy="give each domain a place of its own",
        )


def _reason(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    lines = str(error if java is None else java.toString()).splitlines()
    return brief(lines[0] if lines else type(error).__name__)


def driver_python(folder: str, python: str, script: Path) -> None:
    """Where executors find their Python by a path in their own directory, let the driver's JVM find ours by the same.

    Spark plans what reads the log in the driver, with the executors' path of Python.
    """
    inside = os.path.normpath(Path(folder) / python)
    if not inside.startswith(folder + os.sep):
        raise BadConfig(f"`pipeline.python` cannot be `{brief(python)}`", remedy="write a path that stays inside")
    Path(inside).parent.mkdir(parents=True, exist_ok=True)
    Path(inside).write_text(f'#!/bin/sh\nexec "{script}" "$@"\n')
    Path(inside).chmod(0o700)


def check_versions(found: Iterable[tuple[str, str]], ours: Mapping[str, str]) -> None:
    """Refuse executors that would decide with another Headgate than the driver's."""
    for name, theirs in found:
        if theirs != ours[name]:
            raise BadEnvironment(
                f"executors have {name} `{theirs}`, and the driver has `{ours[name]}`",
                remedy="give both the same environment: `pipeline.python`, `spark.archives` or the image",
            )
