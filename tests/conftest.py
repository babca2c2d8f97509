"""One Spark session for all tests of a run, started when the first one asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from headgate.pipeline.session import spark as start

    session = start()
    yield session
    session.stop()
