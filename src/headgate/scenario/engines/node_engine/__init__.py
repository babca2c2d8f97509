"""A scenario on a running node: gateways on loopback, clients with keys, and the real pipeline.

Guarantees: `run_node` starts a node for one scenario and stops it, whatever comes of it.
"""

from __future__ import annotations

from typing import Any

from headgate.scenario.engines.node_engine.world import NodeWorld
from headgate.scenario.engines.play import ScenarioOutcome, play
from headgate.scenario.engines.spark_engine import CrashingPipeline, choice_of, story_directory
from headgate.scenario.format.story import Scenario


def run_node(scenario: Scenario, session: Any, seed: int) -> ScenarioOutcome:
    """A scenario on a node; the seed and the file's name choose where crashes strike."""
    with story_directory() as directory:
        choice = choice_of(scenario, seed)
        world = NodeWorld(scenario, directory, lambda domain: CrashingPipeline(domain, session, choice))
        try:
            return play(scenario, world)
        finally:
            world.close()
