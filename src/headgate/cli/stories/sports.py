"""A sports news agency and its packages: asking for more than you bought, and a package that grows (Hermes)."""

from __future__ import annotations

from typing import Final

from headgate.cli.stories.script import (
    Story,
    StoryQuestion,
    StoryReader,
    StoryScene,
    event_type,
    grant,
    group,
    principals,
    publisher,
    subscribe,
)
from headgate.model.events import Draft

_NEWS: Final = "sports.News"


def _tennis(id: str, headline: str, sets: int) -> Draft:
    return Draft(id, "agency", "sports.Tennis", {"headline": headline, "sets": sets})


def _soccer(id: str, headline: str, home: int, away: int) -> Draft:
    return Draft(id, "agency", "sports.Soccer", {"headline": headline, "home": home, "away": away})


SPORTS: Final = Story(
    name="sports",
    title="Sports news: three packages, one subscription",
    opening="An agency publishes tennis and soccer results, which are both kinds of sports news. "
    "Three customers ask for all sports news, in the same words. None is refused; "
    "each receives the part that its package covers:",
    source="what the agency sent",
    policy=(
        *principals("agency", "pocket", "website", "channel"),
        *group("tennis-package", "pocket"),
        *group("headline-package", "website"),
        *group("full-package", "channel"),
        event_type(_NEWS, "agency", headline="string"),
        event_type("sports.Tennis", "agency", _NEWS, sets="int"),
        event_type("sports.Soccer", "agency", _NEWS, home="int", away="int"),
        publisher("reporting", "agency", "sports.*"),
        grant("tennis", "tennis-package", "sports.Tennis"),
        grant("headlines", "headline-package", _NEWS),
        grant("everything", "full-package", "sports.*"),
    ),
    subscriptions=(
        subscribe("pocket", "pocket", _NEWS),
        subscribe("website", "website", _NEWS),
        subscribe("channel", "channel", _NEWS),
    ),
    readers=(
        StoryReader("pocket", "Pocket app", "tennis only"),
        StoryReader("website", "Web site", "what all sports news has, which is the headline; no figures"),
        StoryReader("channel", "TV channel", "everything"),
    ),
    scenes=(
        StoryScene(
            "Results come in. A right on sports news gives the attributes that all sports news has, and no more.",
            (
                _tennis("t1", "Final", 5),
                _soccer("s1", "Derby", 2, 1),
                _tennis("t2", "Quarter", 3),
                _soccer("s2", "Cup", 0, 3),
            ),
        ),
        StoryScene(
            "The tennis package now has soccer headlines. The app's subscription is as it was, and now brings them.",
            (
                _soccer("s3", "Replay", 1, 1),
                _tennis("t3", "Double", 4),
                _soccer("s4", "League", 4, 0),
            ),
            (grant("soccer-headlines", "tennis-package", "sports.Soccer", attributes=("headline",)),),
            "tennis package gains soccer headlines",
        ),
    ),
    question=StoryQuestion("Why does the pocket app not see the home score of the replay?", "pocket", "s3", "home"),
    moral="Each customer got exactly what its package covered at that point of the stream",
)
