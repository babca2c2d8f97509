"""Tests of a whole node."""
