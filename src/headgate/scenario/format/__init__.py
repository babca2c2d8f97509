"""A scenario file: its keys, policy and steps, read with the place of every mistake."""
