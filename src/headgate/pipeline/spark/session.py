"""The Spark session, what its exceptions say, and the classes that its JVM loads, kept in a file.

Guarantees: one session a process, started when first asked for; small, quiet and local by default. Several queries may
run in it at once. What the JVM and its workers write to standard error still arrives there, save a greeting and some
chatter that nothing can switch off. With the file of classes a session starts sooner and with two thirds of the work;
without it everything is as it is with it. The file is for one Java and one PySpark, by its name, and Java passes over
one that does not fit.

    python -m headgate.pipeline.spark.session      make the file, unless it is there
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from headgate.model.errors import BadConfig, BadEnvironment
from headgate.model.values import brief as short
from headgate.pipeline.spark.cluster import SECRET, driver_python, is_local, listens_here, local_path

JAVA_NEEDED = 17
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Renames instead of spawning some twenty processes a batch; safe where rename is atomic, as on a local disk."""

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
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

_CHATTER = b"Streaming TransformWithStateInPandas Python worker"
"""What PySpark prints, with an empty line after it, at every step of starting a query with state."""


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


def spark(
    master: str = "local[2]",
    memory: str = "3g",
    *,
    brief: bool = False,
    python: str = "",
    checkpoint: str = "",
    settings: Mapping[str, str] | None = None,
) -> Any:
    """The session of this process; a `brief` one is over in minutes, and its JVM does not compile for hours to come.

    `python` is that of the executors of a cluster, and `checkpoint` where its queries will remember how far they are.
    Where `spark-submit` has started the JVM already, its master counts if none is given here, and its memory always.
    """
    java = check_java()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    given = dict(settings or {})
    if not submitted:
        given.update(_python(master, python))
        if listens_here(master):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            given.setdefault("spark.driver.bindAddress", "127.0.0.1")
    else:
        os.environ["PYSPARK_PYTHON"] = python or os.environ.get("PYSPARK_PYTHON", sys.executable)
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
    from pyspark.sql import SparkSession

    from headgate.pipeline.spark import fork_server

    options_of_java = [
        "-Xss4m",
        f"-Dlog4j2.configurationFile={_LOGGING}",
        archive_options(java),
        BRIEF if brief else "",
        given.pop("spark.driver.extraJavaOptions", ""),
    ]
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(options_of_java),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.session.timeZone": "UTC",
        # No other store of state takes Python's `transformWithState`.
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.python.authenticate.socketTimeout": f"{SOCKET_SECONDS}s",
        **given,
    }
    if master:
        conf["spark.master"] = master
    if local_path(checkpoint) is not None:
        conf["spark.sql.streaming.checkpointFileManagerClass"] = CHECKPOINT_FILES
    if SparkContext._gateway is None:  # the first of this process, which starts the JVM
        fork_server.start()
        public = SparkConf().setAll([one for one in conf.items() if not SECRET.search(one[0])])
        every = SparkConf().setAppName("headgate").setAll(list(conf.items()))
        with _standard_error() as stderr:
            launch: Any = launch_gateway  # it carries no types
            gateway = launch(public, {"stderr": stderr, "cwd": _home(master, python)})
            try:
                SparkContext(conf=every, gateway=gateway)
            except Exception as error:  # noqa: BLE001 - whatever Java says
                end_jvm()
                raise BadEnvironment(
                    f"Spark cannot be started on `{short(master)}`: {describe(error).cause}",
                    remedy="check `pipeline.master`, and that it can be reached from here",
                ) from None
    builder = SparkSession.builder.appName("headgate")
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    ready: Any = ensure_callback_server_started  # it carries no types
    ready(SparkContext._gateway)  # now, since two queries that start at once would both find it missing
    register(session)
    return session


def _python(master: str, python: str) -> dict[str, str]:
    """Say which Python the JVM starts, here and on executors; what is to be set of Spark for it.

    It is the script that knows of the fork server; executors that are not of this machine find no server, and take the
    Python that it names, which is where this one is.
    """
    if not is_local(master) and Path(python).is_absolute() and not Path(python).exists():
        raise BadConfig(
            f"`pipeline.python` cannot be `{short(python)}`: this machine has none there, and the driver plans with it",
            remedy="run the pipeline where it is, or name a path inside an archive (`spark.archives`)",
        )
    os.environ["HEADGATE_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = python or str(_PYTHON)
    return {} if is_local(master) or python else {"spark.executorEnv.HEADGATE_PYTHON": sys.executable}


def _home(master: str, python: str) -> str | None:
    """The directory that the JVM works in: where executors have Python inside theirs, one with a Python there."""
    if is_local(master) or not python or Path(python).is_absolute():
        return None
    folder = tempfile.mkdtemp(prefix="headgate-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    driver_python(folder, python, _PYTHON)
    return folder


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
    from headgate.pipeline.spark.detection_workers import DetectionSource
    from headgate.pipeline.spark.source import LogSource

    context = session.sparkContext
    environment = context.environment
    context.environment = context._jvm.java.util.concurrent.ConcurrentHashMap(environment)
    try:
        session.dataSource.register(LogSource)
        session.dataSource.register(DetectionSource)
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
        chatting = False
        for line in lines:
            chatting = _CHATTER in line or (chatting and not line.strip())
            if line.rstrip() != _GREETING and not chatting:
                os.write(2, line)


MOST: Final = 300
"""Characters of a cause."""

_CAUSED: Final = "Caused by: "
_TRACEBACK: Final = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """Why an engine failed."""

    cause: str
    """One line."""
    trace: str
    """Everything: the traceback, and that of the JVM."""


def describe(error: BaseException) -> EngineFailure:
    """What an exception says."""
    trace = "".join(traceback.format_exception(error))
    java = str(getattr(error, "_stackTrace", None) or "")  # PySpark keeps it there, and does not always show it
    if java and java not in trace:
        trace += f"\nJVM:\n{java}"
    return EngineFailure(_cause(java if _CAUSED in java else trace) or _line(error), trace)


def _cause(text: str) -> str:
    """The innermost cause that the JVM reports in a text, or nothing."""
    _, found, last = text.rpartition(_CAUSED)
    if not found:
        return ""
    chunk = last.split("\n\tat ", 1)[0]
    lines = [line for line in chunk.splitlines() if line.strip()]
    if _TRACEBACK in chunk:  # of a Python worker: its last line that is not indented says what it was
        lines = [line for line in lines if not line.startswith((" ", "\t"))][-1:]
    return _short(lines[0]) if lines else ""


def _line(error: BaseException) -> str:
    words = next((line for line in str(error).splitlines() if line.strip()), "")
    return _short(f"{type(error).__name__}: {words}" if words else type(error).__name__)


def _short(line: str) -> str:
    line = line.strip()
    return line if len(line) <= MOST else line[: MOST - 3] + "..."


FOLDER: Final = Path(sys.prefix) / "share" / "headgate"
QUIETLY: Final = "-Xlog:disable -Xlog:all=error:stderr"


def class_archive(java: str) -> Path:
    """Where the classes are kept for a Java, given as it describes itself."""
    about = hashlib.sha256(f"{java}\n{version('pyspark')}\n{sys.prefix}".encode()).hexdigest()[:16]
    return FOLDER / f"spark-{about}.jsa"


def archive_options(java: str) -> str:
    """What a JVM is told of the file, if there is one."""
    file = class_archive(java)
    return f"-XX:SharedArchiveFile={file} {QUIETLY}" if file.exists() else ""


def keep_classes() -> Path:
    """Make the file, by a JVM that runs the pipeline of an empty domain and writes what it loaded when it ends."""
    file = class_archive(check_java())
    if not file.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            made = Path(folder) / file.name
            at_exit = f"{BRIEF} -XX:ArchiveClassesAtExit={made} {QUIETLY}"
            environment = {**os.environ, "SPARK_SUBMIT_OPTS": at_exit}
            run = [sys.executable, "-m", "headgate.pipeline.spark.session", folder]
            subprocess.run(run, env=environment, check=True)  # noqa: S603
            made.replace(file)
    return file


def run_once(directory: Path) -> None:
    """Run the pipeline of a new domain until there is nothing to do, and wait until the JVM has ended by itself."""
    from pyspark import SparkContext

    from headgate.ledger import Ledger
    from headgate.pipeline.deliveries import DeliveryStore
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
        keep_classes()
