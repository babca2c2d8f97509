"""One Spark session for all tests of a run, started when the first one asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.pipeline.spark.session import BRIEF

os.environ.setdefault("SPARK_SUBMIT_OPTS", BRIEF)
"""Those of nodes, too."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from headgate.pipeline.spark.session import spark as start

    session = start()
    yield session
    session.stop()
