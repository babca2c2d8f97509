"""`headgate pipeline` with an executor in a pod: the chart's settings of Spark, and the entry point of the image."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cluster import until
from harness.kubernetes import PODS, fake_kubernetes
from headgate.cli.node.init import make_domain
from headgate.commands.publishing.local import LocalPublisher
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.domain import Domain, utc_now
from headgate.node.processes import kill_session

pytestmark = pytest.mark.spark

HELPERS = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "headgate" / "templates" / "_helpers.tpl"
POLICY = (
    DeclarePrincipal("shop"),
    DeclarePrincipal("till"),
    DeclareType(EventType("shop.Sale", "shop", {"item": Kind.STRING})),
    AddRule(Rule("sells", "till", frozenset({Action.PUBLISH}), "shop.Sale")),
)


def test_a_driver_asks_for_pods_alone_and_they_decide(tmp_path: Path) -> None:
    files = make_domain(tmp_path / "shop", None, (), utc_now()).files
    (tmp_path / "executor.yaml").write_text("apiVersion: v1\nkind: Pod\nspec: {containers: [{name: executor}]}\n")
    said = re.findall(r"^(spark\.[\w.]+)=([^{\n]+)$", HELPERS.read_text(), re.MULTILINE)
    assert ("spark.kubernetes.executor.disableConfigMap", "true") in said
    settings = dict(said) | {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.port": "0",
        "spark.blockManager.port": "0",
        "spark.executor.memory": "512m",
        "spark.executor.instances": "1",
        "spark.kubernetes.namespace": "prod",
        "spark.kubernetes.container.image": "headgate",
        "spark.kubernetes.driver.pod.name": "driver-0",
        "spark.kubernetes.executor.podTemplateFile": str(tmp_path / "executor.yaml"),
    }
    lines = "\n".join(f"{name}={value}" for name, value in settings.items())
    with fake_kubernetes(tmp_path) as cluster, Domain.open(files.data) as domain:
        domain.commit(Batch(ADMINISTRATOR, POLICY, "a shop"))
        LocalPublisher(domain).publish(Draft("e1", "till", "shop.Sale", {"item": "lamp"}))
        given = f"pipeline.master=k8s://{cluster.url}", "pipeline.memory=600m", f"pipeline.spark={lines}"
        command = [sys.executable, "-m", "headgate.cli.main", "pipeline", str(files.directory)]
        with (tmp_path / "driver.log").open("wb") as log:
            driver = subprocess.Popen(
                [*command, *(word for one in given for word in ("--set", one))],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

        def logs() -> str:
            every = "".join(path.read_text(errors="replace") for path in tmp_path.glob("*.log"))
            return f"{cluster.asked}\n{every}"

        def is_decided() -> bool:
            assert driver.poll() is None, logs()
            ends = {stream: tail.last for stream, tail in domain.log.tails().items() if tail.last}
            return bool(ends) and domain.store.reached().streams == ends

        try:
            until(is_decided, logs)
            driver.terminate()
            assert driver.wait(60) == 0, logs()
        finally:
            kill_session(driver.pid)
            driver.wait(30)
        # Whether the driver came to delete its pods or not: without it they end by themselves.
        until(lambda: all(executor.poll() is not None for executor in cluster.running), logs)
        assert ("POST", PODS) in cluster.asked
        assert [what for what in cluster.asked if not what[1].startswith(PODS)] == [], "the Role allows pods alone"
        assert {method for method, _ in cluster.asked} <= {"GET", "POST", "DELETE"}
