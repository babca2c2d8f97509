"""The process in which Spark asks a streaming source for offsets and partitions.

Guarantees: it does what `pyspark.sql.streaming.python_streaming_source_runner` does, and is connected to the JVM before
it imports anything that takes time, since the JVM gives it ten seconds to connect and then as long as it needs.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Any


def connected(environment: dict[str, str]) -> Any:
    """A connection to the JVM that started this process: the secret both know, its `ok`, and our process id."""
    host = "::1" if environment.get("SPARK_PREFER_IPV6", "").lower() == "true" else "127.0.0.1"
    link = socket.create_connection((host, int(environment["PYTHON_WORKER_FACTORY_PORT"])))
    stream: Any = link.makefile("rwb", int(environment.get("SPARK_BUFFER_SIZE", "65536")))
    secret = environment["PYTHON_WORKER_FACTORY_SECRET"].encode()
    stream.write(struct.pack("!i", len(secret)) + secret)
    stream.flush()
    (size,) = struct.unpack("!i", stream.read(4))
    if stream.read(size) != b"ok":
        raise ConnectionError("the JVM does not know the secret of this process")
    stream.write(struct.pack("!i", os.getpid()))
    stream.flush()
    return stream


if __name__ == "__main__":
    with connected(dict(os.environ)) as jvm:
        from pyspark.sql.streaming.python_streaming_source_runner import main

        main(jvm, jvm)
