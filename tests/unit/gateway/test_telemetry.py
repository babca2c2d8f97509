"""A gateway tells a collector what it does, in spans that belong together, and nothing of what events say."""

from __future__ import annotations

import gzip
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.cli.node.init import make_domain
from headgate.client import connect
from headgate.node.config import set_in_file
from headgate.node.domain import utc_now
from headgate.node.processes import kill_session
from headgate.node.telemetry import caused_by
from headgate.pipeline.tracing import here
from unit.gateway.test_serve import free_port, said

SECRET = "a lamp that nobody may hear of"
WAIT_SECONDS = 60


class Collector(ThreadingHTTPServer):
    """Takes what is exported, and keeps it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.spans: list[Span] = []
        self.figures: dict[str, float] = {}
        super().__init__(("127.0.0.1", 0), Receiver)


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.bodies.append(body)
        if self.path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.server.spans += [span for scope in resource.scope_spans for span in scope.spans]
        elif self.path == "/v1/metrics":
            for found in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (one for scope in found.scope_metrics for one in scope.metrics):
                    points = metric.gauge.data_points or metric.sum.data_points
                    for point in points:
                        labels = ",".join(one.value.string_value for one in point.attributes)
                        self.server.figures[f"{metric.name}{{{labels}}}"] = point.as_double or point.as_int
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is said."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def facts(span: Span) -> dict[str, object]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


@contextmanager
def telling(tmp_path: Path, address: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A gateway that tells a collector at an address what it does, and its domain."""
    files = make_domain(tmp_path / "shop", None, (), utc_now()).files
    policy = ["policy", "apply", str(files.policy), "--domain", str(files.directory), "--yes"]
    assert CliRunner().invoke(app, policy).exit_code == 0
    port = free_port()
    for key, value in (("gateway.port", port), ("telemetry.otlp", address), ("telemetry.every", "1s")):
        set_in_file(files, key, value)
    command = [sys.executable, "-m", "headgate.gateway.serve", str(files.directory), "--name", "gateway-1"]
    gateway = subprocess.Popen(
        [*command, "--port", str(port)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        said(gateway)
        yield gateway, files.directory
    finally:
        kill_session(gateway.pid)


def test_what_a_gateway_does_is_told_and_nothing_of_events(tmp_path: Path, collector: Collector) -> None:
    accepted, wanted = "headgate_events_total{accepted}", {"publish", "admit", "append"}
    with (
        telling(tmp_path, f"http://127.0.0.1:{collector.server_port}") as (_, directory),
        connect.from_directory(directory, "till") as till,
    ):
        till.publish("shop.Sale", {"item": SECRET, "amount": 3, "card": "4111"}, id="one")
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            told = wanted <= {span.name for span in collector.spans}
            if told and collector.figures.get(accepted) == 1:
                break
            time.sleep(0.05)
    assert collector.figures[accepted] == 1
    spans = {span.name: span for span in collector.spans}
    assert wanted <= spans.keys()
    assert facts(spans["publish"]).items() >= {"headgate.stream": "gateway-1", "headgate.events": 1}.items()
    assert facts(spans["append"])["headgate.events"] == 1
    assert facts(spans["append"])["headgate.version"]
    assert [one.span_id for one in spans["append"].links] == [spans["publish"].span_id]
    assert all(secret.encode() not in body for body in collector.bodies for secret in (SECRET, "4111", "lamp"))


def test_a_collector_that_hangs_holds_up_neither_publishers_nor_the_end(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,  # it takes connections, and never says a word
        telling(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}") as (gateway, directory),
    ):
        with connect.from_directory(directory, "till") as till:
            for n in range(20):
                assert till.publish("shop.Sale", {"item": "desk", "amount": n}).status == "accepted"
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(WAIT_SECONDS) == 0  # it would be 1 if it had been ended by force


def test_what_a_client_asks_for_belongs_to_its_own_work() -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with caused_by({"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}):
        assert f"{here().trace_id:032x}" == trace
    assert not here().is_valid


@pytest.mark.parametrize("bad", ["", "zz", "00-0-0-0", f"00-{'0' * 32}-{'0' * 16}-01", "ff" * 10_000, "\u00e9"])
def test_what_is_no_cause_is_passed_over_and_nothing_of_it_is_logged(
    bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caused_by({"traceparent": bad, "tracestate": SECRET, "baggage": f"{SECRET}=%zz," * 1_000}):
        assert not here().is_valid
    assert SECRET not in caplog.text
