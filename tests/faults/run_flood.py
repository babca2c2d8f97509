"""Opens many connections to a gateway and finishes none of them: `run_flood.py PORT ADDRESS HEADS COUNT`.

First some that say a part of a request, then others, of which every second says a part of a TLS hello and the rest
nothing. It says `held N` when all are open, and `closed N left M` when the gateway has closed them or time is up.
"""

from __future__ import annotations

import resource
import select
import socket
import ssl
import sys
import time

SECONDS = 120.0
"""How long the gateway may take to close them."""
HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(20)
"""The beginning of a TLS handshake."""
HEAD = b"GET /v1/types HTTP/1.1\r\nhost: x\r\nx-slow: "


def main(port: int, address: str, heads: int, count: int) -> None:
    """Open them, hold them, and see them closed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    held: dict[int, socket.socket] = {}
    for number in range(heads + count):
        one = opened(port, address, blind if number < heads else None, number)
        if one is not None:
            held[one.fileno()] = one
    print("held", len(held), flush=True)
    poll = select.poll()
    for handle in held:
        poll.register(handle, select.POLLIN | select.POLLHUP | select.POLLERR)
    end = time.monotonic() + SECONDS
    closed = 0
    while held and time.monotonic() < end:
        for handle, _ in poll.poll(1_000):
            if is_over(held[handle]):
                poll.unregister(handle)
                held.pop(handle).close()
                closed += 1
    print("closed", closed, "left", len(held), flush=True)


def opened(port: int, address: str, tls: ssl.SSLContext | None, number: int) -> socket.socket | None:
    """One connection that will not be finished; None if the gateway closed it at once."""
    one = socket.socket()
    one.settimeout(60)
    try:
        one.bind((address, 0))
        one.connect(("127.0.0.1", port))
        if tls is not None:
            one = tls.wrap_socket(one)
            one.sendall(HEAD)
        elif number % 2:
            one.sendall(HELLO)
    except OSError:
        one.close()
        return None
    one.setblocking(False)
    return one


def is_over(one: socket.socket) -> bool:
    """Has the other side closed it?"""
    try:
        return one.recv(4_096) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
