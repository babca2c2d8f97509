"""One Spark session for all tests of a run, started when the first one asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
"""JVMs of tests live for seconds or minutes: compiling for hours to come and collecting in parallel only cost time."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from headgate.pipeline.spark.session import spark as start

    session = start()
    yield session
    session.stop()
