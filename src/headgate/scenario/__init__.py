"""Scenarios: a policy, a story and what must come of it, in one file, run on several engines.

Guarantees: `load` reads a file or says what is wrong with it, by line and key; an engine plays it; `judge` compares.
The format is described in `docs/scenario-format.md`.
"""
