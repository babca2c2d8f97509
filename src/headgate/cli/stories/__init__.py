"""The demonstrations: each story is data, one module a story, told by the same stage on the real pipeline.

A story in which keys sign something is made anew each time, in the directory that it is played in.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from headgate.cli.stories.bell_lapadula import BELL_LAPADULA
from headgate.cli.stories.coalition import coalition
from headgate.cli.stories.market import MARKET
from headgate.cli.stories.meeting import MEETING
from headgate.cli.stories.numberplate import NUMBERPLATE
from headgate.cli.stories.police import police
from headgate.cli.stories.script import Story
from headgate.cli.stories.sports import SPORTS

_TOLD: Final = {story.name: story for story in (NUMBERPLATE, SPORTS, MARKET, BELL_LAPADULA, MEETING)}
_SIGNED: Final[dict[str, Callable[[Path, datetime], Story]]] = {"police": police, "coalition": coalition}
STORIES: Final = (*_TOLD, *_SIGNED)


def prepare(name: str, directory: Path, now: datetime) -> Story:
    """The story of a name, with its keys and statements in a directory if it has any."""
    return _TOLD[name] if name in _TOLD else _SIGNED[name](directory, now)
