"""Times as the command line writes them: moments with a zone, and durations.

Guarantees: a moment without a zone is refused, and so is a duration of less than a second or past the year 9999.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import typer

from headgate.cli.shared.rendering import printable
from headgate.model.errors import HeadgateError
from headgate.model.values import parse_timestamp
from headgate.node.config import duration


def moment_of(given: str, option: str) -> datetime:
    """A time with a zone."""
    try:
        return parse_timestamp(given)
    except HeadgateError as error:
        raise error.at(option) from None


def seconds_of(given: str, option: str) -> int:
    """A duration in whole seconds."""
    try:
        seconds = int(duration(given))
    except ValueError as error:
        raise typer.BadParameter(f"{option}: `{printable(given)}` is not {error}") from None
    if seconds < 1:
        raise typer.BadParameter(f"{option}: `{given}` is less than a second")
    return seconds


def ahead(start: datetime, given: str, option: str) -> datetime:
    """The moment that is a duration ahead of another."""
    try:
        return start + timedelta(seconds=seconds_of(given, option))
    except OverflowError:
        raise typer.BadParameter(f"{option}: `{given}` is past the year 9999") from None
