"""Two queries in one session: what Spark shares between them holds when both change it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from headgate.pipeline import SOURCE
from headgate.pipeline.spark.session import SOCKET_SECONDS, register

pytestmark = pytest.mark.spark

MANY = 100_000
ROUNDS = 10
"""With a map that is not made for it, two rounds of three leave it damaged."""


@pytest.fixture
def registered(spark: Any) -> Iterator[Any]:
    """Registers the source anew, as no query has seen it, and gives it as the JVM has it: it goes with every task."""

    def source() -> Any:
        register(spark)
        return spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource(SOURCE)

    yield source
    register(spark)


def test_queries_that_start_at_once_leave_a_source_whose_size_is_true(
    spark: Any, registered: Any, tmp_path: Path
) -> None:
    """Damaged, it cannot be read by any later task."""
    file = tmp_path / "variables"
    file.write_text("".join(f"NAME_{n}={n}\n" for n in range(MANY)))
    variables = spark.sparkContext._jvm.java.util.Properties()
    stream = spark.sparkContext._jvm.java.io.FileInputStream(str(file))
    variables.load(stream)
    stream.close()

    for _ in range(ROUNDS):
        environment = registered().dataSourceCls().envVars()
        before = environment.size()
        gate = Barrier(2)

        def plan(environment: Any = environment, gate: Barrier = gate) -> None:
            gate.wait()
            environment.putAll(variables)  # as `PythonStreamingSourceRunner.init` puts its entries

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(plan) for _ in range(2)]:
                done.result()
        assert environment.size() == before + MANY


def test_a_task_that_is_written_while_another_query_starts_can_be_read(spark: Any, registered: Any) -> None:
    environment = registered().dataSourceCls().envVars()
    for n in range(200):
        environment.put(f"BEFORE_{n}", "x" * 50)
    io = spark.sparkContext._jvm.java.io
    out = io.PipedOutputStream()
    task = io.PipedInputStream(out)

    def write() -> None:
        stream = io.ObjectOutputStream(out)
        stream.writeObject(environment)
        stream.close()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        while task.available() < 1024 and not done.done():
            time.sleep(0.01)  # the pipe is full: it is in the middle of writing
        for n in range(400):
            environment.put(f"DURING_{n}", "x")
        read = io.ObjectInputStream(task).readObject()
        done.result()
    assert all(f"BEFORE_{n}" in read for n in range(200))


def test_the_jvm_and_python_wait_long_for_each_other(spark: Any) -> None:
    context = spark.sparkContext
    assert context._jvm.PythonUtils.getPythonAuthSocketTimeout(context._jsc) == SOCKET_SECONDS


KILLED = """\
import sys
from pathlib import Path
from pyspark import SparkContext
from headgate.pipeline.spark.session import renewed, spark
from headgate.scenario.format.file import load
from headgate.scenario.run import BOTH, run_all

session = spark()
SparkContext._gateway.proc.kill()
SparkContext._gateway.proc.wait()
for results in run_all([load(Path(sys.argv[1]))], BOTH, session=session, renew=renewed):
    print([(one.engine, one.passed, len(one.failures)) for one in results])
"""


def test_what_a_dead_jvm_did_not_finish_passes_on_a_new_one() -> None:
    file = Path(__file__).parents[2] / "scenarios" / "golf-club.yaml"
    done = subprocess.run([sys.executable, "-c", KILLED, str(file)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["[('decide', True, 0), ('spark', True, 1)]"], done.stderr
