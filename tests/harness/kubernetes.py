"""As much of Kubernetes as Spark asks for in client mode: pods, each a process of the entry point of the image."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from headgate.node.processes import kill_session

ENTRYPOINT = Path(__file__).resolve().parents[2] / "deploy" / "entrypoint"
PODS = "/api/v1/namespaces/prod/pods"
_WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
_FIELDS = {"status.podIP": "127.0.0.1"}


@dataclass
class FakeKubernetes:
    """The pods of a namespace, and what was asked."""

    folder: Path
    pods: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def add(self, pod: dict[str, Any]) -> None:
        """Take a pod in, and run its container."""
        (container,) = pod["spec"]["containers"]
        name = pod["metadata"]["name"]
        environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
        for one in container["env"]:
            place = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            environment[one["name"]] = one.get("value") or _FIELDS.get(place, name)
        environment["SPARK_LOCAL_DIRS"] = str(self.folder)
        with (self.folder / f"{name}.log").open("wb") as log:
            command = ["sh", str(ENTRYPOINT), *container["args"]]
            self.running.append(
                subprocess.Popen(
                    command, env=environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
                )
            )
        pod["metadata"]["uid"] = name
        pod["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
        self.pods[name] = pod


class _Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: FakeKubernetes

    def _answer(self, status: int, document: object) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.cluster.asked.append(("GET", parts.path))
        name = parts.path.removeprefix(PODS).strip("/")
        if "watch" in parse_qs(parts.query):
            self._watch()
        elif name:
            self._answer(200, self.cluster.pods[name])
        else:
            pods = list(self.cluster.pods.values())
            self._answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})

    def _watch(self) -> None:
        """A WebSocket on which nothing ever comes: what pods there are is also asked for again and again."""
        key = hashlib.sha1(f"{self.headers['Sec-WebSocket-Key']}{_WEBSOCKET}".encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(key).decode())
        self.end_headers()
        self.wfile.flush()
        self.cluster.ended.wait()
        self.close_connection = True

    def do_POST(self) -> None:
        self.cluster.asked.append(("POST", self.path))
        pod = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == PODS, self.path
        self.cluster.add(pod)
        self._answer(201, pod)

    def do_DELETE(self) -> None:
        self.cluster.asked.append(("DELETE", urlsplit(self.path).path))
        self.cluster.pods.clear()
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def fake_kubernetes(folder: Path) -> Iterator[FakeKubernetes]:
    """A server on loopback, until the end; then all its pods have ended."""
    cluster = FakeKubernetes(folder)
    cluster.pods["driver-0"] = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "driver-0", "namespace": "prod", "uid": "driver-0"},
        "spec": {"containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Api", (_Api,), {"cluster": cluster})) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        cluster.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield cluster
        finally:
            cluster.ended.set()
            server.shutdown()
            thread.join()
            for process in cluster.running:
                kill_session(process.pid)
                process.wait(30)
