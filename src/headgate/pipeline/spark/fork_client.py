"""The process that Spark starts where it wants a Python: it has another do the work, and waits for its end.

That is a process forked from the `fork_server`, which has what takes time imported already; it gets the arguments, the
environment and the open files of this one. Where there is no server, this process becomes what Spark asked for.
Guarantees: a process of a streaming query's driver is connected to the JVM before anything takes time, since the JVM
gives it ten seconds to connect and then as long as it needs.
It imports nothing but the standard library until then, and is run by its path in a bare interpreter.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

SERVER = "HEADGATE_FORK_SERVER"
"""Names the socket of the server."""
ANSWERING = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
"""The modules that answer the JVM's questions about a streaming source, and about the state of a streaming query."""


def connected(environment: Mapping[str, str]) -> socket.socket:
    """A connection to the JVM that started this process: the secret both know, its `ok`, and our process id."""
    host = "::1" if environment.get("SPARK_PREFER_IPV6", "").lower() == "true" else "127.0.0.1"
    link = socket.create_connection((host, int(environment["PYTHON_WORKER_FACTORY_PORT"])))
    secret = environment["PYTHON_WORKER_FACTORY_SECRET"].encode()
    link.sendall(struct.pack("!i", len(secret)) + secret)
    (size,) = struct.unpack("!i", link.recv(4, socket.MSG_WAITALL))
    if link.recv(size, socket.MSG_WAITALL) != b"ok":
        link.close()
        raise ConnectionError("the JVM does not know the secret of this process")
    link.sendall(struct.pack("!i", os.getpid()))
    return link


def served(environment: Mapping[str, str]) -> socket.socket | None:
    """A connection to the server, if there is one."""
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(environment[SERVER])
    except (KeyError, OSError):
        link.close()
        return None
    return link


def asked_of(arguments: Sequence[str]) -> str | None:
    """The module whose questions the JVM asks, if that is what the process is started for."""
    return next((module for module in ANSWERING if module in arguments), None)


def serve(module: str, jvm: socket.socket) -> None:
    """Answer the JVM until it has no more questions."""
    size = int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))
    stream: Any = jvm.makefile("rwb", size)
    importlib.import_module(module).main(stream, stream)
    stream.close()


def hand_over(server: socket.socket, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Have the server fork a process for this one, and wait until that is over; its status."""
    asked = json.dumps({"arguments": arguments, "environment": environment}).encode()
    jvm = [] if asked_of(arguments) is None else [connected(environment)]
    socket.send_fds(server, [struct.pack("!i", len(asked))], [0, 1, 2, *(one.fileno() for one in jvm)])
    server.sendall(asked)
    for one in jvm:
        one.close()
    status = server.recv(1)
    return status[0] if status else 1


def run(arguments: list[str], environment: dict[str, str]) -> int:
    """Do what Spark asked for; its status."""
    server = served(environment)
    if server is not None:
        return hand_over(server, arguments, environment)
    module = asked_of(arguments)
    if module is None:
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606
    if sys.flags.isolated:  # without a server the packages are needed
        os.execv(sys.executable, [sys.executable, "-m", "headgate.pipeline.spark.fork_client", *arguments])  # noqa: S606
    serve(module, connected(environment))
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], dict(os.environ)))
