"""The classes that Spark loads, kept in a file, so that the next JVM need not read and check them again.

Guarantees: with the file a session starts sooner and with two thirds of the work; without it everything is as it is
with it. The file is for one Java and one PySpark, by its name, and Java passes over one that does not fit.

    python -m headgate.pipeline.spark.classes      make the file, unless it is there
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from headgate.pipeline.spark.session import check_java, spark

FOLDER: Final = Path(sys.prefix) / "share" / "headgate"
QUIETLY: Final = "-Xlog:disable -Xlog:all=error:stderr"


def kept(java: str) -> Path:
    """Where the classes are kept for a Java, given as it describes itself."""
    about = hashlib.sha256(f"{java}\n{version('pyspark')}\n{sys.prefix}".encode()).hexdigest()[:16]
    return FOLDER / f"spark-{about}.jsa"


def options(java: str) -> str:
    """What a JVM is told of the file, if there is one."""
    file = kept(java)
    return f"-XX:SharedArchiveFile={file} {QUIETLY}" if file.exists() else ""


def keep() -> Path:
    """Make the file, by a JVM that runs the pipeline of an empty domain and writes what it loaded when it ends."""
    file = kept(check_java())
    if not file.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            made = Path(folder) / file.name
            options = f"-XX:ArchiveClassesAtExit={made} {QUIETLY}"
            environment = {**os.environ, "SPARK_SUBMIT_OPTS": options}
            run = [sys.executable, "-m", "headgate.pipeline.spark.classes", folder]
            subprocess.run(run, env=environment, check=True)  # noqa: S603
            made.replace(file)
    return file


def run_once(directory: Path) -> None:
    """Run the pipeline of a new domain until there is nothing to do, and wait until the JVM has ended by itself."""
    from pyspark import SparkContext

    from headgate.ledger import Ledger
    from headgate.pipeline.deliveries.store import DeliveryStore
    from headgate.pipeline.log.event_log import EventLog
    from headgate.pipeline.paths import Paths
    from headgate.pipeline.spark.jobs import Pipeline

    paths = Paths(directory)
    ledger, log, store = Ledger.create(paths.ledger), EventLog.create(paths.log), DeliveryStore.create(paths.deliveries)
    session = spark()
    pipeline = Pipeline(session, paths, ledger, log, store)
    pipeline.catch_up()
    pipeline.recompute(pipeline.everything())
    jvm: Any = SparkContext._gateway.proc  # type: ignore[union-attr]
    session.stop()
    jvm.stdin.close()
    jvm.wait()
    for file in (ledger, log, store):
        file.close()


if __name__ == "__main__":
    if sys.argv[1:]:
        run_once(Path(sys.argv[1]))
    else:
        keep()
