"""A clock for tests."""

from __future__ import annotations

from datetime import UTC, datetime

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Hands:
    """A clock that is set by hand."""

    now = NOON

    def __call__(self) -> datetime:
        return self.now
