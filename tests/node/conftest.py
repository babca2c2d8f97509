"""One real node for all tests of this directory: two gateways and a pipeline, as processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.node import Node, running
from node.world import policy

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Last what recomputes everything that was delivered, and then what fills the log."""
    places = [at for at, item in enumerate(items) if item.path.parent == HERE]
    mine = sorted(
        (items[at] for at in places), key=lambda one: (one.path.name == "test_enemy.py", "verify" in one.name)
    )
    for at, item in zip(places, mine, strict=True):
        items[at] = item


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with running(tmp_path_factory.mktemp("node") / "domain", policy) as up:
        yield up
