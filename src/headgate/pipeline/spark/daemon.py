"""The process that Spark forks its Python workers from, with what they need loaded already.

Guarantees: nothing but the time a worker takes to start is different from `pyspark.daemon`. A worker that failed is
replaced within milliseconds, and a new session decides its first events seconds sooner.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

WORKERS: Final = "pyspark.worker"
"""The workers that run tasks; the others, which plan, need none of this."""

NEEDED: Final = ("pandas", WORKERS, "headgate.pipeline.spark.decider", "headgate.pipeline.spark.source")
"""What every task imports; pandas because PySpark does for every Arrow function."""

if __name__ == "__main__":
    if WORKERS in sys.argv[1:]:
        for name in NEEDED:
            import_module(name)
    from pyspark.daemon import manager

    manager()
