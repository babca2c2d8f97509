"""A node whose database is away, hangs and comes back: everybody is told, nothing that was acknowledged is lost."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from harness.node import Node, running
from harness.postgres import PostgresServer, postgres_server
from headgate.client.gateways import Patience
from node.test_never_given_up import Work, doctor, is_well
from node.world import WAIT, policy

pytestmark = pytest.mark.spark


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as made:
        yield made


@pytest.fixture
def node(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("away") / "domain"
    patience = Patience(seconds=WAIT)
    with running(directory, policy, database=server.database(), patience=patience, node__restart_pause="1s") as up:
        yield up


def test_a_database_that_goes_away_or_hangs_loses_nothing_and_is_waited_for(node: Node, server: PostgresServer) -> None:
    node.wait(lambda: is_well(node), "the node to be well", WAIT)
    with node.client("till", [0]) as till:
        token = httpx.Headers({"Authorization": f"Bearer {till.token()}"})

    def asked(gateway: int, path: str) -> tuple[int, dict[str, Any]]:
        reply = httpx.get(f"{node.urls[gateway]}{path}", headers=token, verify=False, timeout=WAIT)
        return reply.status_code, reply.json()

    def is_failing(gateway: int) -> bool:
        status, said = asked(gateway, "/health")
        return (status, said["status"]) == (503, "failing")

    with Work(node, f"away-{uuid.uuid4()}") as work:
        work.more()

        server.stop(signal.SIGQUIT)  # as in a crash
        for gateway in range(node.gateways):
            node.wait(lambda gateway=gateway: is_failing(gateway), "a gateway to say so", WAIT)  # type: ignore[misc]
            status, said = asked(gateway, "/v1/subscriptions")
            assert (status, said["code"]) == (503, "storage-busy")
            assert str(server.port) not in str(said), "where it is, is nobody's business"
        assert doctor(node)["ledger"]["finding"] == "fail"
        node.kill("gateway-2")  # and cannot start again
        server.start()
        node.wait(lambda: node.answers(1) and is_well(node), "the node to be well by itself", WAIT)
        work.more()

        with server.hanging():
            for gateway in range(node.gateways):
                node.wait(lambda gateway=gateway: is_failing(gateway), "an answer", WAIT)  # type: ignore[misc]
        node.wait(lambda: is_well(node), "the node to be well by itself", WAIT)
        work.more()
        work.finish()
    assert doctor(node)["ledger"]["finding"] == "ok"
