"""`make bench`: run all, or those named: `python -m benchmarks gateway gryphon received`."""

from __future__ import annotations

import sys

from benchmarks import (
    cascade,
    chains,
    commits,
    composite,
    event_policy,
    fairness,
    gateway,
    gryphon,
    latency_node,
    matching,
    measure,
    nats,
    requirements,
    streaming,
    validation,
    wider,
)
from headgate.pipeline.spark.session import spark

SPARK = {
    "matching": matching.run,
    "latency": streaming.latency,
    "types": streaming.types,
    "requirements": requirements.run,
    "event-policy": event_policy.run,
}
"""Benchmarks of Spark jobs in this process."""
NODE = {
    "fairness": fairness.run,
    "gateway": gateway.run,
    "single": nats.single,
    "received": latency_node.run,
    "gryphon": gryphon.run,
}
"""Benchmarks of a node, whose pipeline is a process of its own."""
PLAIN = {
    "cascade": cascade.run,
    "chains": chains.run,
    "commits": commits.run,
    "composite": composite.run,
    "validation": validation.run,
    "wider": wider.run,
}
"""Benchmarks that need neither."""


def main() -> None:
    chosen = sys.argv[1:] or [*PLAIN, *SPARK, *NODE]
    if unknown := [name for name in chosen if name not in {*PLAIN, *SPARK, *NODE}]:
        sys.exit(f"no benchmark `{unknown[0]}`; there are {', '.join([*PLAIN, *SPARK, *NODE])}")
    for name in chosen:
        if name in PLAIN:
            PLAIN[name]()
    if jobs := [name for name in chosen if name in SPARK]:
        session = spark(memory="4g")
        for name in jobs:
            SPARK[name](session)
        session.stop()  # a node needs the memory
    for name in chosen:
        if name in NODE:
            NODE[name]()
    measure.finish()


if __name__ == "__main__":
    main()
