"""Runs the streaming query of a domain until it is killed, or until it has caught up. Started by the crash tests."""

from __future__ import annotations

import sys
from pathlib import Path

from headgate.node.domain import Domain
from headgate.pipeline.spark.session import spark


def main(directory: str, how: str) -> None:
    domain = Domain.open(Path(directory))
    pipeline = domain.pipeline(spark(memory="2g"))
    if how == "finish":
        pipeline.catch_up()
        print("done", flush=True)
        return
    query = pipeline.start(limit=40)
    print("ready", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
