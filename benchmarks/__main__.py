"""`make bench`: run all, or those named: `python -m benchmarks matching latency types`."""

from __future__ import annotations

import sys

from benchmarks import matching, measure, streaming
from headgate.pipeline.session import spark

ALL = {"matching": matching.run, "latency": streaming.latency, "types": streaming.types}


def main() -> None:
    chosen = sys.argv[1:] or list(ALL)
    session = spark(memory="4g")
    for name in chosen:
        ALL[name](session)
    measure.finish()


if __name__ == "__main__":
    main()
