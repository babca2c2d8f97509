"""A domain directory, and stand-ins of its gateways on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.client import Client, connect
from strategies.standin import QUICK, StandIn, World, make_directory, stage


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_directory(tmp_path_factory.mktemp("domains") / "shop")


@pytest.fixture
def start(directory: Path) -> Iterator[Callable[..., StandIn]]:
    with stage(directory) as begin:
        yield begin


@pytest.fixture
def gateway(start: Callable[..., StandIn]) -> StandIn:
    return start()


@pytest.fixture
def world(gateway: StandIn) -> World:
    return gateway.world


@pytest.fixture
def client(gateway: StandIn, directory: Path) -> Iterator[Client]:
    with connect.from_directory(directory, "till", requests=QUICK, sockets=QUICK) as made:
        yield made
