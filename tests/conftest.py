"""One Spark session for all tests of a run, started when first asked for; and no test fails for being slow."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from harness.postgres import PostgresServer, postgres_server
from headgate.pipeline.spark.session import BRIEF
from headgate.storage.shared import Where

SELDOM = "-Dspark.sql.streaming.pollingDelay=50"
"""A query with nothing to do looks for more every 50 ms: no test needs an answer sooner."""

os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{BRIEF} {SELDOM}")  # of nodes, too
os.environ.setdefault("SPARK_LAUNCHER_OPTS", BRIEF)

settings.register_profile("any machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is imported lasts; to look through it for circles again and again is a tenth of the work of many tests."""
    gc.freeze()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from headgate.pipeline.spark.session import spark as start

    session = start()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Whatever asks `stored_in` to keep something is tried on files and on PostgreSQL."""
    if "stored_in" in metafunc.fixturenames:
        kinds = ["file"] if "path" in metafunc.fixturenames else ["file", "postgres"]
        metafunc.parametrize("stored_in", kinds, indirect=True)


@pytest.fixture
def stored_in(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    """A place of its own for a ledger or for shared state."""
    if request.param == "file":
        return tmp_path / "ledger.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database()
