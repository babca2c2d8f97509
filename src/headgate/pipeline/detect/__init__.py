"""Composite events as they are detected: an incremental machine of beads over decided views (OASIS 6.7).

`machine` is the machine: what arrives goes in, what has become certain comes out; `beads` are the evaluations it runs.
It agrees with `decide.blocks`.
"""
