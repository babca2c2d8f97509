"""The demonstrations: each story is a scenario file with a narrator, played by the same stage on the real pipeline.

Guarantees: every file here is also a test, which `headgate test` runs like any other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

STORIES: Final = ("numberplate", "sports", "market", "bell-lapadula", "meeting", "police", "coalition", "badge")


def file_of(story: str) -> Path:
    """The scenario file of a story."""
    return Path(__file__).with_name(f"{story}.yaml")
