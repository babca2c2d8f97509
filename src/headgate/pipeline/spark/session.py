"""The Spark session.

Guarantees: one session a process, started when first asked for; small, quiet and local by default. Several queries may
run in it at once. What the JVM and its workers write to standard error still arrives there, save one greeting that
nothing can switch off.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headgate.model.errors import BadEnvironment

JAVA_NEEDED = 17
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Renames instead of spawning some twenty processes a batch; safe where rename is atomic, as on a local disk."""

SOCKET_SECONDS = 300
"""How long the JVM and Python wait for each other to connect: Spark's 15 s are too few on a machine with much to do."""

END_SECONDS = 20.0
"""How long a JVM may take to end before it is ended by force."""

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that compiles quickly rather than well and collects with one thread: a third less work in its first minutes."""

_PYTHON = Path(__file__).parent / "python-for-spark"
_LOGGING = Path(__file__).parent / "log4j2.properties"

_GREETING = b"WARNING: Using incubator modules: jdk.incubator.vector"
"""Spark always asks Java for this module, and Java always says so, before any setting of either is read."""


def check_java() -> str:
    """What Java says of itself; one clear message if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = f"install Java {JAVA_NEEDED}, for example with `apt-get install openjdk-{JAVA_NEEDED}-jre-headless`"
    if java is None or not Path(java).exists():
        raise BadEnvironment("Spark needs Java, and there is none", remedy=remedy)
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    version = re.search(r'version "(?:1\.)?(\d+)', printed)
    if version is None or int(version.group(1)) < JAVA_NEEDED:
        raise BadEnvironment(
            f"Spark needs Java {JAVA_NEEDED}, and `{java}` is {printed.splitlines()[:1]}", remedy=remedy
        )
    return printed


def spark(master: str = "local[2]", memory: str = "3g", *, brief: bool = False, **settings: str):  # type: ignore[no-untyped-def]
    """The session of this process; a `brief` one is over in minutes, and its JVM does not compile for hours to come."""
    java = check_java()
    os.environ["HEADGATE_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = str(_PYTHON)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
    from pyspark.sql import SparkSession

    from headgate.pipeline.spark import fork_server
    from headgate.pipeline.spark.classes import options

    options_of_java = ["-Xss4m", f"-Dlog4j2.configurationFile={_LOGGING}", options(java), BRIEF if brief else ""]
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(options_of_java),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.authenticate.socketTimeout": f"{SOCKET_SECONDS}s",
        **settings,
    }
    if SparkContext._gateway is None:  # the first of this process, which starts the JVM
        fork_server.start()
        first = SparkConf().setMaster(master).setAppName("headgate").setAll(list(conf.items()))
        with _standard_error() as stderr:
            launch: Any = launch_gateway  # it carries no types
            SparkContext(conf=first, gateway=launch(first, {"stderr": stderr}))
    builder = SparkSession.builder.master(master).appName("headgate")
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    ready: Any = ensure_callback_server_started  # it carries no types
    ready(SparkContext._gateway)  # now, since two queries that start at once would both find it missing
    register(session)
    return session


def renewed(**settings: Any) -> Any:
    """A session on a new JVM; the one there was is ended, whatever state it is in."""
    end_jvm()
    return spark(**settings)


def end_jvm() -> None:
    """End the JVM of this process, if there is one. Nothing is asked of it, for it may not answer."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    if gateway.proc is not None:
        gateway.proc.terminate()
        try:
            gateway.proc.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
    context: Any = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None  # it would be asked to stop
        context.stop()
    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def register(session: Any) -> None:
    """Make the event log known to a session, as a source that several queries may read at once.

    Spark keeps one function for a registered source, and every streaming query that starts puts entries into that
    function's environment, in a thread of its own, while tasks of other queries are being written with it. PySpark
    makes it a `HashMap`: two queries that start at once leave it with a size that is not the number of its entries,
    and from then on no task of this JVM can be read. A `ConcurrentHashMap` is made for this.
    """
    from headgate.pipeline.spark.source import LogSource

    context = session.sparkContext
    environment = context.environment
    context.environment = context._jvm.java.util.concurrent.ConcurrentHashMap(environment)
    try:
        session.dataSource.register(LogSource)
    finally:
        context.environment = environment


@contextmanager
def _standard_error() -> Iterator[int]:
    """A file to give the JVM as its standard error: what it writes there appears on ours, without the greeting."""
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading,), name="jvm-stderr", daemon=True).start()
    try:
        yield writing
    finally:
        os.close(writing)


def _pass_on(reading: int) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if line.rstrip() != _GREETING:
                os.write(2, line)
