"""Programs of others that are measured beside Headgate and come as Java archives.

They are fetched once, by Ivy as it comes with Spark, from wherever that looks by itself, and kept beside the installed
packages. Every archive must be the very one that was measured before.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyspark

KEPT = Path(sys.prefix) / "peers"
_IVY_FILE = """<ivy-module version="2.0"><info organisation="headgate" module="peers"/><dependencies>{}</dependencies>
</ivy-module>"""
_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" conf="default"/>'


def archives(wanted: Mapping[str, str], digests: Mapping[str, str]) -> list[Path]:
    """The archives of some modules (`organisation:name` to version) and of all that they need, with known digests."""
    known = [KEPT / name for name in digests]
    if not all(map(Path.exists, known)):
        _fetch(wanted)
    for archive in known:
        if hashlib.sha256(archive.read_bytes()).hexdigest() != digests[archive.name]:
            raise RuntimeError(f"`{archive}` is not the archive that is wanted; remove it")
    return known


def _fetch(wanted: Mapping[str, str]) -> None:
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "ivy.xml"
        every = (_DEPENDENCY.format(*module.split(":"), version) for module, version in wanted.items())
        file.write_text(_IVY_FILE.format("".join(every)))
        command = ["java", "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", str(file), "-cache", f"{name}/cache"]
        pattern = f"{name}/found/[artifact]-[revision].[ext]"
        fetched = subprocess.run(
            [*command, "-confs", "default", "-types", "jar", "-retrieve", pattern],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        if fetched.returncode != 0:
            raise RuntimeError(f"Ivy did not find {', '.join(wanted)}: {fetched.stdout[-2000:]}")
        KEPT.mkdir(exist_ok=True)
        for archive in (Path(name) / "found").glob("*.jar"):
            shutil.move(archive, KEPT / archive.name)
