"""What is told of a failure of Spark, and the process of a source that connects before it imports."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import headgate.pipeline.spark
from headgate.pipeline.spark.fork_client import ANSWERING, connected
from headgate.pipeline.spark.session import MOST, describe

JAVA = """\
org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query [id = 7f37] terminated: Job aborted
=== Streaming Query ===
Identifier: [id = 7f37]
\tat org.apache.spark.sql.execution.streaming.StreamExecution.run(StreamExecution.scala:1)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:1)
\t... 9 more
Caused by: java.io.OptionalDataException
\tat java.base/java.util.HashMap.readObject(HashMap.java:1550)
"""
WORKER = """\
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
headgate.model.errors.Damaged: `log.db` lacks events 3 to 4 [damaged]

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""


class OfSpark(Exception):
    """As PySpark makes them: short words, and what the JVM said beside."""

    def __init__(self, words: str, java: str) -> None:
        super().__init__(words)
        self._stackTrace = java


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OfSpark("[STREAM_FAILED]\n=== Streaming Query ===", JAVA), "java.io.OptionalDataException"),
        (OfSpark("x", JAVA + WORKER), "headgate.model.errors.Damaged: `log.db` lacks events 3 to 4 [damaged]"),
        (RuntimeError(JAVA), "java.io.OptionalDataException"),
        (ConnectionRefusedError(111, "Connection refused"), "ConnectionRefusedError: [Errno 111] Connection refused"),
        (ValueError("\n\n first\nsecond"), "ValueError:  first"),
        (ValueError(), "ValueError"),
    ],
)
def test_the_cause_is_the_innermost_in_one_line(error: Exception, cause: str) -> None:
    found = describe(error)
    assert found.cause == cause
    assert str(error) in found.trace
    assert getattr(error, "_stackTrace", "") in found.trace


def test_a_cause_is_not_long() -> None:
    assert len(describe(ValueError("x" * 5000)).cause) == MOST


def _answer(server: socket.socket, reply: bytes, heard: list[bytes]) -> None:
    """The JVM's part of the handshake."""
    link, _ = server.accept()
    with link, link.makefile("rwb") as stream:
        (size,) = struct.unpack("!i", stream.read(4))
        heard.append(stream.read(size))
        stream.write(struct.pack("!i", len(reply)) + reply)
        stream.flush()
        heard.append(stream.read(4))


@pytest.mark.parametrize("reply", [b"ok", b"no"])
def test_a_source_says_the_secret_and_its_process(reply: bytes) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer, args=(server, reply, heard))
        thread.start()
        given = {"PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]), "PYTHON_WORKER_FACTORY_SECRET": "s3"}
        if reply == b"ok":
            connected(given).close()
        else:
            with pytest.raises(ConnectionError):
                connected(given)
        thread.join()
    assert heard == [b"s3", struct.pack("!i", os.getpid()) if reply == b"ok" else b""]


def test_a_source_connects_before_it_imports() -> None:
    """What is imported until then is small: Spark gives it ten seconds, on a machine however busy."""
    code = "import sys, headgate.pipeline.spark.fork_client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pyspark", "pyarrow", "numpy", "pandas"} & set(done.stdout.split())


def test_the_python_for_spark_is_ours_and_runs_what_it_is_given() -> None:
    python = Path(headgate.pipeline.spark.__file__).parent / "python-for-spark"
    environment = {**os.environ, "HEADGATE_PYTHON": sys.executable}
    done = subprocess.run([python, "-m", "platform"], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout
    environment["HEADGATE_PYTHON"] = "/bin/echo"
    for module in (*ANSWERING, "pyspark.daemon"):
        done = subprocess.run([python, "-m", module], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout == f"-IS {python.parent}/fork_client.py -m {module}\n"
