"""One Spark session for all tests of a run, started when first asked for; and no test fails for being slow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from headgate.pipeline.spark.session import BRIEF

for options in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):  # those of nodes, too
    os.environ.setdefault(options, BRIEF)

settings.register_profile("any machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from headgate.pipeline.spark.session import spark as start

    session = start()
    yield session
    session.stop()
