"""A way to a server on loopback that can be cut just before or just after it hears a word."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Passes connections on to a port; `cut_at` says at which word of a client to cut that connection."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._word: bytes | None = None
        self._passes = False
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_at(self, word: bytes, *, passes: bool) -> None:
        """Cut the next connection that says a word; the server hears it if it `passes`, and nobody hears the answer."""
        self._word, self._passes = word, passes

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                stop = threading.Event()
                for side, other, is_client in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=(side, other, is_client, stop), daemon=True).start()

    def _pump(self, side: socket.socket, other: socket.socket, is_client: bool, stop: threading.Event) -> None:
        with suppress(OSError):
            while data := side.recv(65_536):
                if is_client and self._word is not None and self._word in data:
                    self._word = None
                    stop.set()
                    self.cuts += 1
                    if self._passes:
                        other.sendall(data)
                        other.settimeout(5)
                        with suppress(OSError):
                            other.recv(1)  # the server has done it
                    break
                if not is_client and stop.is_set():
                    break
                other.sendall(data)
        for one in (side, other):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """A proxy for as long as it is needed."""
    made = Proxy(port)
    try:
        yield made
    finally:
        made.close()
