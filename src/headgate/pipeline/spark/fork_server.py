"""The process that every Python of Spark is forked from, with what they need imported already.

Spark starts a Python to plan, one to fork its workers from, and one or two for every query that starts; each would take
seconds of processor time to import PySpark. Guarantees: a process forked here has the arguments, the environment and
the open files that the `fork_client` was given, and ends with it. The server ends with the process that started it, and
its socket is nobody else's.
Leaves out: starting without a server, which `fork_client` does where it finds none.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NoReturn

from headgate.pipeline.spark.fork_client import ANSWERING, SERVER, serve

_NEEDED = (
    "pandas",  # PySpark imports it for every Arrow function
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    *ANSWERING,
    "headgate.pipeline.spark.decider",
    "headgate.pipeline.spark.detection_workers",
    "headgate.pipeline.spark.source",
)
_FILES = 4
"""The most open files that a client hands over: three that every process has, and a connection to the JVM."""
_started: list[subprocess.Popen[bytes]] = []


def start() -> None:
    """Start the server of this process, once, and leave word of it for `fork_client`."""
    if any(one.poll() is None for one in _started):
        return
    folder = tempfile.mkdtemp(prefix="headgate-")
    path = str(Path(folder) / "server")
    command = [sys.executable, "-m", "headgate.pipeline.spark.fork_server", path]
    environment = {"PYTHONHASHSEED": "0", **os.environ}  # as Spark starts its workers
    server = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)  # noqa: S603
    _started.append(server)
    os.environ[SERVER] = path
    atexit.register(_stop, server, folder)


def _stop(server: subprocess.Popen[bytes], folder: str) -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)


def run(path: str) -> None:
    """Fork a process for each that asks, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what is forked
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    for name in _NEEDED:
        __import__(name)
    gc.freeze()  # what is here now is shared by all that are forked
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            break
        asker, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _work(asker)
        asker.close()


def _work(asker: socket.socket) -> NoReturn:
    """Do what was asked; the status is told to whoever asked, and this process ends if that one does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.register_at_fork(after_in_child=asker.close)
    status = 1
    try:
        head, descriptors, _, _ = socket.recv_fds(asker, 4, _FILES, socket.MSG_WAITALL)
        (size,) = struct.unpack("!i", head)
        asked = json.loads(asker.recv(size, socket.MSG_WAITALL))
        os.environ.clear()
        os.environ.update(asked["environment"])
        _, module, *given = asked["arguments"]
        sys.argv[1:] = given
        for standard, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        threading.Thread(target=_end_with, args=(asker,), daemon=True).start()
        _run(module, descriptors[3:])
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    finally:
        try:
            asker.sendall(bytes([status & 0xFF]))
        finally:
            os._exit(status)


def _run(module: str, connections: list[int]) -> None:
    if module in ANSWERING:
        serve(module, socket.socket(fileno=connections[0]))
    else:
        from pyspark.daemon import manager

        manager()


def _end_with(asker: socket.socket) -> None:
    """When the asker is gone, end as Spark asks its processes to; workers forked from this one end with it."""
    if not asker.recv(1):
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    run(sys.argv[1])
