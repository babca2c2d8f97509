"""Stock Spark's empty micro-batch: default settings, one row from the built-in source, a sink that does nothing.

Prints the durations in milliseconds, after warm-up.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

SECONDS = 25


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    with tempfile.TemporaryDirectory() as directory:
        query = rows.writeStream.format("noop").option("checkpointLocation", directory).start()
        time.sleep(SECONDS)
        found = [progress["batchDuration"] for progress in query.recentProgress]
        query.stop()
    print(*found[len(found) // 3 :])
    session.stop()


if __name__ == "__main__":
    main()
