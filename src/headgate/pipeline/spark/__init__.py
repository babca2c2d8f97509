"""Spark: the session, the log as a source, the streaming job, recomputing. The only import of pyspark."""
