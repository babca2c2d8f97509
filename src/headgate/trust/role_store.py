"""Where a rolling table is kept: in a file that the processes of a node share, or in memory.

Guarantees: the file is for its owner's eyes only, in a directory that only its owner can change, and is put in its
place whole, on disk: a process that is killed leaves the table as it was, or as it became. Whoever changes it has a
lock, which goes with a process that is killed; whoever reads it needs none.
Leaves out: what the content means (`role_table`).
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from headgate.model.errors import BadKey, StorageBusy, StorageFull
from headgate.model.limits import MAX_LOCK_TRIES, MAX_ROLE_KEYS_BYTES
from headgate.trust.keys import read_secret, write_secret

FILE: Final = "role.keys"
_OTHERS_WRITE: Final = 0o022
_LOCK_PAUSE: Final = 0.01


class Store(Protocol):
    """Where a table is kept."""

    name: str

    def stamp(self) -> object:
        """Something that differs whenever the content does."""

    def read(self) -> bytes | None:
        """The content, whole; None if there was never any."""

    def write(self, data: bytes) -> None:
        """Put other content in its place, all or nothing; only within `alone`."""

    def alone(self) -> AbstractContextManager[None]:
        """While this lasts, nobody else writes."""


class MemoryStore:
    """A table of one process alone, which is gone with it."""

    name = "memory"

    def __init__(self) -> None:
        self._data: bytes | None = None
        self._lock = threading.Lock()

    def stamp(self) -> object:
        """The content itself."""
        return self._data

    def read(self) -> bytes | None:
        """The content."""
        return self._data

    def write(self, data: bytes) -> None:
        """Other content."""
        self._data = data

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One thread at a time."""
        with self._lock:
            yield


class FileStore:
    """A file `role.keys` in a directory that only its owner can change."""

    def __init__(self, directory: Path, pause: Callable[[float], None] = time.sleep) -> None:
        self.directory = directory
        self.path = directory / FILE
        self.name = str(self.path)
        self._pause = pause

    def stamp(self) -> object:
        """Which file it is: each change makes another."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadKey(f"`{self.path}` cannot be read ({error.strerror})") from None
        return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode

    def read(self) -> bytes | None:
        """The content; a file that others can read is refused."""
        if not self.path.exists():
            return None
        self._check_directory()
        return read_secret(self.path, MAX_ROLE_KEYS_BYTES)

    def write(self, data: bytes) -> None:
        """Put the file in its place whole, on disk; what a killed process left half-written is nobody's."""
        passing = self.path.with_name(f"{FILE}.tmp")
        try:
            passing.unlink(missing_ok=True)
            write_secret(passing, data)
            self._make_later(passing)
            passing.replace(self.path)
            self._sync()
        except OSError as error:
            raise StorageFull(f"`{self.path}` cannot be written ({error.strerror})", remedy="make room") from None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One process at a time; the lock goes with a process that is killed."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_directory()
            handle = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise BadKey(f"`{self.directory}` cannot be used ({error.strerror})") from None
        try:
            self._lock(handle)
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        for _ in range(MAX_LOCK_TRIES):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._pause(_LOCK_PAUSE)
            else:
                return
        raise StorageBusy(f"another process holds `{self.directory}`", remedy="see whether it hangs, and try again")

    def _make_later(self, passing: Path) -> None:
        """Let each file be later than the one before, however coarse the clock of the disk: the stamp goes by it."""
        if self.path.exists():
            before, found = self.path.stat().st_mtime_ns, passing.stat().st_mtime_ns
            if found <= before:
                os.utime(passing, ns=(before + 1, before + 1))

    def _check_directory(self) -> None:
        status = self.directory.stat()
        if not stat.S_ISDIR(status.st_mode):
            raise BadKey(f"`{self.directory}` is not a directory")
        if status.st_mode & _OTHERS_WRITE:
            raise BadKey(f"others can change `{self.directory}`", remedy=f"`chmod 700 {self.directory}`")

    def _sync(self) -> None:
        handle = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
