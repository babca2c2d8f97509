"""One Spark session for all tests of a run, started when first asked for; and no test fails for being slow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from headgate.pipeline.spark.session import BRIEF

SELDOM = "-Dspark.sql.streaming.pollingDelay=50"
"""A query with nothing to do looks for more every 50 ms: no test needs an answer sooner."""

os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{BRIEF} {SELDOM}")  # of nodes, too
os.environ.setdefault("SPARK_LAUNCHER_OPTS", BRIEF)

settings.register_profile("any machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from headgate.pipeline.spark.session import spark as start

    session = start()
    yield session
    session.stop()
