"""One real node for all tests of this directory: two gateways and a pipeline, as processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.node import Node, running
from node.world import policy

HERE = Path(__file__).parent


LAST = ("test_enemy.py", "test_detections.py")
"""What fills the log, and what starts a second query, which looks at all that comes after it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The costly files last, and at the very end what recomputes everything that was delivered."""
    places = [at for at, item in enumerate(items) if item.path.parent == HERE]

    def turn(item: pytest.Item) -> tuple[bool, int]:
        return "verify" in item.name, LAST.index(item.path.name) if item.path.name in LAST else -1

    mine = sorted((items[at] for at in places), key=turn)
    for at, item in zip(places, mine, strict=True):
        items[at] = item


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with running(tmp_path_factory.mktemp("node") / "domain", policy, node__restart_pause="1s") as up:
        yield up
