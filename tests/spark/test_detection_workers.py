"""What Spark does with the buckets of detections."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions

from headgate.pipeline.detect.views import BUCKETS
from headgate.pipeline.spark.detection_workers import BUCKET_KEYS

pytestmark = pytest.mark.spark


def test_every_task_gets_as_many_buckets(spark: Any) -> None:
    keys = spark.createDataFrame([(key,) for key in BUCKET_KEYS], "bucket bigint")
    found = keys.select(functions.pmod(functions.hash("bucket"), functions.lit(BUCKETS))).collect()
    assert sorted(row[0] for row in found) == list(range(BUCKETS))
