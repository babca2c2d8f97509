"""One gateway process: `python -m headgate.gateway.serve DIR --name gateway-1 --port 8443`.

Guarantees: it says `ready` on standard output once it can be reached. On SIGTERM it accepts no more, lets requests
under way finish, closes what waits, and gives its stream up, all within STOP_SECONDS; then it leaves with status 0. If
its parent ends, it ends too.
Leaves out: what it serves (`app`), who may come in and for how long (`gateway.http.connection_limits`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

import uvicorn
import uvloop

from headgate.gateway.http.connection_limits import Door, Hardened, LimitedConnection, Visit
from headgate.gateway.http.send_queue import ServerSocket
from headgate.model.errors import HeadgateError
from headgate.node.config import Config, Files
from headgate.node.health import Metrics
from headgate.node.logs import AccessLog, Application, Log, loop_faults, start_logging
from headgate.node.processes import EXIT_FAILED, announce, leave_within, listen, raise_file_limit, run_part
from headgate.node.telemetry import sending
from headgate.trust.tls import server_context

STOP_SECONDS: Final = 5.0  # how long stopping may take before the process is ended by force
FINISH_SECONDS: Final = 3  # how long requests under way may take to finish when the gateway stops
KEEP_ALIVE_SECONDS: Final = 75  # how long a connection may be idle between two requests
MAX_SOCKET_QUEUE: Final = 16  # frames of a WebSocket that are read before they are looked at

PING_SECONDS: Final = 20.0
"""How often a WebSocket is asked whether its client is still there, and how long that may take."""

SPARE_FILES: Final = 256  # files that a gateway opens beside its connections
_TICKS: Final = 10  # ticks of the server in a second

log = Log("serve")


class Server(uvicorn.Server):
    """A server that accepts through a `Door`, and stops as a part of a node should."""

    def __init__(self, config: uvicorn.Config, settings: Config, metrics: Metrics, closing: Callable[[], None]) -> None:
        super().__init__(config)
        self._settings = settings
        self._metrics = metrics
        self._closing = closing
        self.door: Door | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept."""
        asyncio.get_running_loop().set_exception_handler(lambda _, context: loop_faults(context))
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise SystemExit(EXIT_FAILED)
        (listener,) = sockets or []
        limits = self._settings.limits
        self.door = Door(
            listener,
            self._connection,
            lambda: len(self.server_state.connections),
            self.config.ssl,
            limits.connections,
            limits.unauthenticated_per_address,
            limits.write_timeout,
        )
        self.door.open()
        self.servers = [cast("asyncio.base_events.Server", self.door)]
        self.started = True

    def _connection(self, visit: Visit) -> LimitedConnection:
        patience = self._settings.limits.write_timeout
        return LimitedConnection(self.config, self.server_state, self.lifespan.state, visit=visit, patience=patience)

    async def on_tick(self, counter: int) -> bool:
        """Say `ready` at the first tick, when everything is in place."""
        leaving = await super().on_tick(counter)
        if counter == 0 and not leaving:
            announce("ready", pid=os.getpid())
        if self.door is not None and counter % _TICKS == 0:
            for reason, total in self.door.turned.items():
                self._metrics.turned_away.reach(total, reason)
        return leaving

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell those who wait that it is over, then stop."""
        self._closing()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT; the second time at once."""

        def asked(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
            self.force_exit = self.should_exit
            if not self.should_exit:
                leave_within(STOP_SECONDS)
            self.should_exit = True

        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, asked)
        yield


def server(
    app: Application,
    settings: Config,
    tls: ssl.SSLContext | None,
    metrics: Metrics,
    closing: Callable[[], None] = lambda: None,
) -> Server:
    """A server for an application, with the limits of the settings, and headers that close what is not needed."""
    config = uvicorn.Config(
        cast("Any", Hardened(app, tls=tls is not None)),
        loop="uvloop",
        http=LimitedConnection,
        ws=ServerSocket,
        ws_max_size=settings.publish.max_body,
        ws_max_queue=MAX_SOCKET_QUEUE,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        ws_per_message_deflate=False,  # a few bytes must not become many megabytes
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # nobody may say for others where they come from
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=FINISH_SECONDS,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )
    return Server(config, settings, metrics, closing)


def serve(directory: Path, name: str, port: int, override: dict[str, str]) -> None:
    """Run one gateway until it is told to stop."""
    from headgate.gateway.http.app import create_app
    from headgate.gateway.runtime import Gateway

    settings = Config.load(directory, os.environ, override)
    start_logging(settings.log.level, settings.log.format, wait=False)
    files = Files(directory)
    _check_files(settings)
    tls = server_context(files.tls_certificate, files.tls_key) if settings.gateway.tls else None
    listener = listen(settings.gateway.host, port)
    gateway = Gateway.open(settings, files, name, port)
    app = AccessLog(cast("Application", create_app(gateway)), gateway.metrics.request)
    log.info("starting", gateway=name, host=settings.gateway.host, port=port, pid=os.getpid())
    running = server(app, settings, tls, gateway.metrics, gateway.closing.set)
    registry = gateway.metrics.registry
    with (
        sending(settings.telemetry, settings.domain.name, name, registry, gateway.observe),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        try:
            runner.run(running.serve(sockets=[listener]))
        except SystemExit:
            if isinstance(app.failed, HeadgateError):
                raise app.failed from None
            raise
    log.info("stopped", gateway=name)


def _check_files(settings: Config) -> None:
    most = raise_file_limit()
    if most < settings.limits.connections + SPARE_FILES:
        log.warning("few-files", count=most, reason="fewer open files are allowed than `limits.connections` needs")


OPTIONS: Final = {
    "--name": {"required": True, "help": "the gateway's name, and its stream's"},
    "--port": {"required": True, "type": int},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The process."""

    def work(given: argparse.Namespace) -> int:
        serve(given.directory, given.name, given.port, given.settings)
        return 0

    return run_part(log, "headgate.gateway.serve", "Run one gateway of a domain.", work, arguments, OPTIONS)


if __name__ == "__main__":
    sys.exit(main())
