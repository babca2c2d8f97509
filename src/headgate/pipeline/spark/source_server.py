"""The process that workers of streaming sources are forked from, with what they need imported already.

Every query that starts asks Spark for such a worker, and a worker that imports PySpark by itself takes two seconds of
processor time for it. Guarantees: a worker forked here has the environment and the connection that `source_worker` was
given, and ends with it. The server ends with the process that started it, and its socket is nobody else's.
Leaves out: starting without a server, which `source_worker` does where it finds none.
"""

from __future__ import annotations

import atexit
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

from headgate.pipeline.spark.source_worker import SERVER, serve

_NEEDED = ("pyspark.sql.streaming.python_streaming_source_runner", "headgate.pipeline.spark.source")
_started: list[subprocess.Popen[bytes]] = []


def start() -> None:
    """Start the server of this process, once, and leave word of it for `source_worker`."""
    if any(one.poll() is None for one in _started):
        return
    folder = tempfile.mkdtemp(prefix="headgate-")
    path = str(Path(folder) / "source")
    command = [sys.executable, "-m", "headgate.pipeline.spark.source_server", path]
    server = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603
    _started.append(server)
    os.environ[SERVER] = path
    atexit.register(_stop, server, folder)


def _stop(server: subprocess.Popen[bytes], folder: str) -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)


def run(path: str) -> None:
    """Fork a worker for each that asks, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for workers
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    for name in _NEEDED:
        __import__(name)
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
    """What a worker does: its status is told to whoever asked, and it ends if that one does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = 1
    try:
        told, descriptors, _, _ = socket.recv_fds(asker, 4, 1, socket.MSG_WAITALL)
        (size,) = struct.unpack("!i", told)
        environment = json.loads(asker.recv(size, socket.MSG_WAITALL))
        os.environ.clear()
        os.environ.update(environment)
        threading.Thread(target=_end_with, args=(asker,), daemon=True).start()
        serve(socket.socket(fileno=descriptors[0]))
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    finally:
        try:
            asker.sendall(bytes([status & 0xFF]))
        finally:
            os._exit(status)


def _end_with(asker: socket.socket) -> None:
    if not asker.recv(1):
        os._exit(1)


if __name__ == "__main__":
    run(sys.argv[1])
