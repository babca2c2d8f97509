"""Executors as pods: the chart's settings of Spark and the image's entry point, with a driver that is real."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from harness.kubernetes import PODS, fake_kubernetes

pytestmark = pytest.mark.spark

HELPERS = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "headgate" / "templates" / "_helpers.tpl"
PROGRAM = textwrap.dedent("""
    import json, os, sys
    import pyarrow as pa
    from pyspark.sql import SparkSession
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder
    for name, value in json.loads(sys.argv[1]).items():
        session = session.config(name, value)
    session = session.getOrCreate()
    def pods(batches):
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"pod": [os.environ["SPARK_EXECUTOR_POD_NAME"]]})
    found = session.range(2, numPartitions=2).mapInArrow(pods, "pod string").collect()
    print(json.dumps([row["pod"] for row in found]))
    session.stop()
""")


def test_a_driver_asks_for_pods_alone_and_they_do_its_work(tmp_path: Path) -> None:
    said = re.findall(r"^(spark\.[\w.]+)=([^{\n]+)$", HELPERS.read_text(), re.MULTILINE)
    assert ("spark.kubernetes.executor.disableConfigMap", "true") in said
    with fake_kubernetes(tmp_path) as cluster:
        settings = dict(said) | {
            "spark.master": f"k8s://{cluster.url}",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.port": "0",
            "spark.blockManager.port": "0",
            "spark.driver.memory": "600m",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "1",
            "spark.kubernetes.namespace": "prod",
            "spark.kubernetes.container.image": "headgate",
            "spark.kubernetes.driver.pod.name": "driver-0",
            "spark.kubernetes.executor.podTemplateFile": _template(tmp_path),
            "spark.ui.enabled": "false",
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(settings)],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        logs = "".join(path.read_text(errors="replace") for path in tmp_path.glob("*.log"))
        assert done.returncode == 0, done.stderr + logs
        (executor,) = {*json.loads(done.stdout.splitlines()[-1])}
        assert executor.endswith("-exec-1")
        assert [what for what in cluster.asked if not what[1].startswith(PODS)] == [], "the Role allows pods alone"
        assert {method for method, _ in cluster.asked} == {"GET", "POST", "DELETE"}


def _template(folder: Path) -> str:
    template = folder / "executor.yaml"
    template.write_text("apiVersion: v1\nkind: Pod\nspec: {containers: [{name: executor}]}\n")
    return str(template)
