"""The process that Spark starts to ask a streaming source for offsets and partitions.

Guarantees: it does what `pyspark.sql.streaming.python_streaming_source_runner` does, and is connected to the JVM before
anything takes time, since the JVM gives it ten seconds to connect and then as long as it needs. Where there is a
`source_server`, the rest is done by a process forked from that one, which has what takes time imported already; this
one only waits for it. Otherwise it does the rest itself.
It imports nothing but the standard library until then; beside a server it is run by its path in a bare interpreter.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from typing import Any

SERVER = "HEADGATE_SOURCE_SERVER"
"""Names the socket of the server."""


def connected(environment: dict[str, str]) -> socket.socket:
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


def served(environment: dict[str, str]) -> socket.socket | None:
    """A connection to the server, if there is one."""
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(environment[SERVER])
    except (KeyError, OSError):
        link.close()
        return None
    return link


def serve(jvm: socket.socket) -> None:
    """Answer the JVM until it has no more questions."""
    from pyspark.sql.streaming.python_streaming_source_runner import main

    size = int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))
    stream: Any = jvm.makefile("rwb", size)
    main(stream, stream)
    stream.close()


def hand_over(server: socket.socket, jvm: socket.socket, environment: dict[str, str]) -> int:
    """Give the connection to the server, and wait until what it forked for it is over; its status."""
    told = json.dumps(environment).encode()
    socket.send_fds(server, [struct.pack("!i", len(told))], [jvm.fileno()])
    server.sendall(told)
    jvm.close()
    status = server.recv(1)
    return status[0] if status else 1


if __name__ == "__main__":
    asked = dict(os.environ)
    server = served(asked)
    if server is not None:
        sys.exit(hand_over(server, connected(asked), asked))
    if sys.flags.isolated:  # there was one a moment ago; without it the packages are needed
        os.environ.pop(SERVER, None)
        os.execv(sys.executable, [sys.executable, "-m", "headgate.pipeline.spark.source_worker"])  # noqa: S606
    serve(connected(asked))
