"""Failing on purpose, for the `crash` step of scenarios and for fault tests.

Guarantees: a fault strikes once, at the point named in the file, which it removes first; with no file there is none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

POINTS: Final = ("read", "decide", "write", "commit")


class Struck(RuntimeError):
    """The fault that was asked for."""


def strike(fault_file: str, point: str) -> None:
    """Fail here if that is what the file says."""
    path = Path(fault_file)
    if not fault_file:
        return
    try:
        if path.read_text() != point:
            return
        path.unlink()
    except FileNotFoundError:
        return
    raise Struck(f"struck at `{point}`, as asked")
