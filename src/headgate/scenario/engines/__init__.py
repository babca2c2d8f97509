"""What scenarios are played on: the reference decision, the pipeline, and a node."""
