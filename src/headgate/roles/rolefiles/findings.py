"""What the static checkers say of a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MAX_FINDINGS: Final = 200
"""Findings that a check reports; a policy with more has one cause to look for first."""

MAX_PAIRS: Final = 50_000
"""Pairs of statements, or of statements and what they need, that one check looks at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An error, for which a policy is refused, or a warning about what is probably not meant."""

    severity: Literal["error", "warning"]
    code: str
    line: int
    message: str
    remedy: str | None = None


def error(code: str, line: int, message: str, remedy: str | None = None) -> Finding:
    """A finding for which the policy is refused."""
    return Finding("error", code, line, _printable(message), remedy and _printable(remedy))


def warning(code: str, line: int, message: str, remedy: str | None = None) -> Finding:
    """A finding about what is probably not meant."""
    return Finding("warning", code, line, _printable(message), remedy and _printable(remedy))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def ordered(findings: list[Finding]) -> list[Finding]:
    """Errors first, then by line, each once and at most `MAX_FINDINGS`."""
    chosen = sorted(dict.fromkeys(findings), key=lambda one: (one.severity != "error", one.line, one.code))
    return chosen[:MAX_FINDINGS]
