"""What an exception of Spark says: the cause in one line, and everything there is to know.

Guarantees: the cause is the innermost one that Spark reports, be it of the JVM or of a Python worker, in one line. What
is told is taken from the exception at once, since it can no longer be asked when its JVM is gone.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Final

MOST: Final = 300
"""Characters of a cause."""

_CAUSED: Final = "Caused by: "
_TRACEBACK: Final = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """Why an engine failed."""

    cause: str
    """One line."""
    trace: str
    """Everything: the traceback, and that of the JVM."""


def describe(error: BaseException) -> EngineFailure:
    """What an exception says."""
    trace = "".join(traceback.format_exception(error))
    java = str(getattr(error, "_stackTrace", None) or "")  # PySpark keeps it there, and does not always show it
    if java and java not in trace:
        trace += f"\nJVM:\n{java}"
    return EngineFailure(_cause(java if _CAUSED in java else trace) or _line(error), trace)


def _cause(text: str) -> str:
    """The innermost cause that the JVM reports in a text, or nothing."""
    _, found, last = text.rpartition(_CAUSED)
    if not found:
        return ""
    chunk = last.split("\n\tat ", 1)[0]
    lines = [line for line in chunk.splitlines() if line.strip()]
    if _TRACEBACK in chunk:  # of a Python worker: its last line that is not indented says what it was
        lines = [line for line in lines if not line.startswith((" ", "\t"))][-1:]
    return _short(lines[0]) if lines else ""


def _line(error: BaseException) -> str:
    words = next((line for line in str(error).splitlines() if line.strip()), "")
    return _short(f"{type(error).__name__}: {words}" if words else type(error).__name__)


def _short(line: str) -> str:
    line = line.strip()
    return line if len(line) <= MOST else line[: MOST - 3] + "..."
