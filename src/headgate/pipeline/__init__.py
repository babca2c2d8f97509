"""The data pipeline: event log, policy as rows, matching on Spark, deliveries, verification.

Guarantees: every event is decided by Spark exactly as `decide` says, once, whatever crashes lie between.
The only package that imports pyspark, and only in `source`, `session` and the processes that Spark starts.
"""

SOURCE = "headgate-log"
"""The event log as Spark knows it: the name to give to `format`."""

SIGNALS = "signals"
"""The one stream of the store of signals, which no stream of the log is called."""

PROMISES = "promises"
"""What stands for a stream where it is said how far the promises of the log have been put to detections."""
DETECTION_SOURCE = "headgate-detections"
"""The event log as the detection query reads it."""
