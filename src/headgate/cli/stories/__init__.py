"""The demonstrations: each story is data, one module a story, told by the same stage on the real pipeline."""

from __future__ import annotations

from typing import Final

from headgate.cli.stories.market import MARKET
from headgate.cli.stories.numberplate import NUMBERPLATE
from headgate.cli.stories.script import Story
from headgate.cli.stories.sports import SPORTS

STORIES: Final[dict[str, Story]] = {story.name: story for story in (NUMBERPLATE, SPORTS, MARKET)}
