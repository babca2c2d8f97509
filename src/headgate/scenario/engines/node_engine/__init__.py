"""A scenario on a running node: gateways on loopback, clients with keys, and the real pipeline.

Guarantees: `run_node` starts a node for one scenario and stops it, whatever comes of it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from headgate.scenario.engines.node_engine.world import NodeWorld
from headgate.scenario.engines.play import ScenarioOutcome
from headgate.scenario.engines.spark_engine import run_on_spark
from headgate.scenario.format.story import Scenario


def run_node(scenario: Scenario, session: Any, seed: int, database: str | None = None) -> ScenarioOutcome:
    """A scenario on a node, which keeps ledger and shared state in files, or in a database."""
    return run_on_spark(partial(NodeWorld, database=database), scenario, session, seed)
