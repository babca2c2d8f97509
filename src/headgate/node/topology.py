"""A node as a whole: which processes it has, where it is reached, and the word it leaves for others while it is up.

Guarantees: one node runs on a domain at a time. Before anything is started, what it needs is known to be there: Java,
the domain's files and keys, and ports that are free.
Leaves out: running the processes (`supervisor`) and talking to people (`headgate up`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.model.errors import BadConfig, NotFound
from headgate.node.config import NODE, Config, Files
from headgate.node.domain import utc_now
from headgate.node.process_status import PID, PROCESSES, ProcessStatus, write_processes
from headgate.node.processes import Lock, listen
from headgate.node.statement_register import vouch
from headgate.node.supervisor import ManagedProcess
from headgate.pipeline.paths import Paths
from headgate.pipeline.spark.cluster import check_checkpoint
from headgate.pipeline.spark.session import check_java
from headgate.trust.keys import PrivateKey
from headgate.trust.positions import Positions
from headgate.trust.tls import server_context

PIPELINE: Final = "pipeline"
FOLLOWER: Final = "follower"


@dataclass(frozen=True, slots=True)
class Node:
    """A node that could be started: its settings, its files and who its broker is."""

    files: Files
    settings: Config
    override: Mapping[str, str]
    broker: str

    @property
    def urls(self) -> list[str]:
        """Where each gateway is reached from this machine."""
        return self.settings.gateway.urls

    @property
    def logs(self) -> Path:
        """Where the logs of its processes go."""
        return self.files.directory / "logs"

    def lock(self) -> Lock:
        """Held while the node is up."""
        return Lock(self.files.data / PID, "the node")

    def parts(self) -> list[ManagedProcess]:
        """The processes of the node."""
        directory = str(self.files.directory.absolute())
        common = ["--parent", str(os.getpid())]
        for name, value in self.override.items():
            common += ["--set", f"{name}={value}"]
        python = (sys.executable, "-P", "-m")  # -P: what lies in the current directory is no module of ours

        def part(name: str, module: str, *options: str) -> ManagedProcess:
            return ManagedProcess(name, (*python, module, directory, *options, *common))

        gateways = [
            part(name, "headgate.gateway.serve", "--name", name, "--port", str(port))
            for name, port in ((f"gateway-{n}", port) for n, port in enumerate(self.settings.gateway.ports, 1))
        ]
        pipeline = [part(PIPELINE, "headgate.node.pipeline_process")] if self.settings.pipeline.run else []
        return [*pipeline, *gateways, part(FOLLOWER, "headgate.gateway.roles.following")]

    def write(self) -> None:
        """Leave word for clients on this machine."""
        told = {"pid": os.getpid(), "urls": self.urls, "broker": self.broker}
        fresh = self.files.data / f"{NODE}.new"
        fresh.write_text(json.dumps(told, indent=2) + "\n")
        fresh.replace(self.files.data / NODE)

    def report(self, processes: Mapping[str, ProcessStatus]) -> None:
        """Leave word of its processes, for gateways and for `headgate doctor`."""
        write_processes(self.files.data, processes)

    def erase(self) -> None:
        """Take the word back."""
        for name in (NODE, PROCESSES):
            (self.files.data / name).unlink(missing_ok=True)


def prepare(directory: Path, environ: Mapping[str, str], override: Mapping[str, str]) -> Node:
    """The node of a domain, once everything that it needs is known to be there."""
    settings = Config.load(directory, environ, override)
    if settings.pipeline.run:
        check_java()
    files = Files(directory)
    paths = Paths(files.data)
    if (paths.database or "") != settings.storage.database:
        raise BadConfig(
            f"`storage.database` is `{settings.storage.database}`, and the domain's is `{paths.database or ''}`",
            place=str(files.config),
            remedy="write that, or move the domain with `headgate migrate`",
        )
    if not paths.has_ledger:
        raise NotFound(f"`{files.data}` holds no ledger", remedy="restore it from a copy, or `headgate init` another")
    broker = PrivateKey.load(files.broker_key).public.did
    Positions.load(files.position_key)
    vouch(files, utc_now())
    if settings.pipeline.run:
        check_checkpoint(settings.pipeline.checkpoint)
    if settings.gateway.tls:
        server_context(files.tls_certificate, files.tls_key)
    return Node(files, settings, dict(override), broker)


def check_ports(node: Node) -> None:
    """Refuse if a port of the node is taken."""
    for port in node.settings.gateway.ports:
        listen(node.settings.gateway.host, port).close()
