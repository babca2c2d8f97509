"""Certificates about roles: rolling keys in memory, and how one is verified by the keys of its domain."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from headgate.model.role_statements import RoleStatement
from headgate.trust.role_keys import FileStore, RoleKeys
from headgate.trust.role_statements import RoleKind
from headgate.trust.statements import check

T = TypeVar("T", bound=RoleStatement)


class MemoryStore(FileStore):
    """Of one process alone, and gone with it."""

    def __init__(self) -> None:
        super().__init__(Path("memory"))
        self._data: bytes | None = None
        self._turn = threading.Lock()

    def stamp(self) -> object:
        return self._data

    def read(self) -> bytes | None:
        return self._data

    def write(self, data: bytes) -> None:
        self._data = data

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._turn:
            yield


def verified(
    kind: RoleKind[T], text: str, *, keys: RoleKeys, audience: str | None = None, now: datetime | None = None
) -> T:
    return check(kind.read(text, {keys.domain: keys}), audience=audience, now=now)
