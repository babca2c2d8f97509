"""One real node for all tests of this directory: two gateways and a pipeline, as processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.node import Node, running
from node.world import policy


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with running(tmp_path_factory.mktemp("node") / "domain", policy) as up:
        yield up
