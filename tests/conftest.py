"""One Spark session for all tests of a run, started when the first one asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from headgate.pipeline.spark.session import BRIEF

os.environ.setdefault("SPARK_SUBMIT_OPTS", BRIEF)
"""Those of nodes, too."""

settings.register_profile("headgate", settings.default, deadline=None)  # a busy machine disproves nothing
settings.load_profile("headgate")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from headgate.pipeline.spark.session import spark as start

    session = start()
    yield session
    session.stop()
