"""A ledger in a temporary folder, with a clock that ticks a second each time it is read."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.ledger import Ledger
from headgate.model.changes import (
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
)
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.storage.shared import Where

START = datetime(2026, 1, 1, 9, tzinfo=UTC)


def ticking() -> Callable[[], datetime]:
    ticks = iter(range(1_000_000))
    return lambda: START + timedelta(seconds=next(ticks), microseconds=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(stored_in: Where) -> Iterator[Ledger]:
    with Ledger.create(stored_in, clock=ticking()) as made:
        yield made


@pytest.fixture
def commit(ledger: Ledger) -> Callable[..., int]:
    """Commit changes as the administrator."""

    def done(*changes: Change, note: str = "") -> int:
        return ledger.commit(Batch(ledger.administrator, changes, note))

    return done


@pytest.fixture
def furnished(commit: Callable[..., int]) -> int:
    """Version 1: a type, three principals, two groups and a relation."""
    return commit(
        DeclareType(
            EventType("news.Story", "administrator", {"title": Kind.STRING, "price": Kind.FLOAT, "hits": Kind.INT})
        ),
        DeclarePrincipal("bob", {"clearance": 1}),
        DeclarePrincipal("cat"),
        DeclareGroup("staff"),
        DeclareGroup("editors", open=True),
        DeclareRelation("Knows"),
        note="furniture",
    )
