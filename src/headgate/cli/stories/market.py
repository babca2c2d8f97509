"""An exchange and a subscriber whose rights pass through three phases (Gryphon, figure 1)."""

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
from headgate.model.changes import AddMember, RemoveMember
from headgate.model.events import Draft

_TYPE: Final = "market.Item"


def _item(id: str, kind: str, issue: str, price: float | None = None) -> Draft:
    return Draft(id, "exchange", _TYPE, {"kind": kind, "issue": issue, "price": price})


MARKET: Final = Story(
    name="market",
    title="Market data: a free trial, premium for a while, and back",
    opening="An exchange publishes quotes, news and reports. A promotional member may see quotes, "
    "a premium member all three. Both readers ask only for items about IBM:",
    source="what the exchange sent",
    policy=(
        *principals("exchange", "john", "anna"),
        *group("promotional", "john"),
        *group("premium", "anna"),
        event_type(_TYPE, "exchange", kind="string", issue="string", price="float"),
        publisher("exchange", "exchange", _TYPE),
        grant("quotes", "promotional", _TYPE, "kind = 'quote'"),
        grant("all-items", "premium", _TYPE, "kind in {'quote', 'news', 'report'}"),
    ),
    subscriptions=(
        subscribe("john", "john", _TYPE, "issue = 'IBM'"),
        subscribe("anna", "anna", _TYPE, "issue = 'IBM'"),
    ),
    readers=(
        StoryReader("john", "John", "quotes, as a promotional member; more whenever he is a premium one"),
        StoryReader("anna", "Anna", "quotes, news and reports, as a premium member"),
    ),
    scenes=(
        StoryScene(
            "Items are published. John receives the quotes.",
            (_item("m100", "quote", "IBM", 80.25), _item("m101", "news", "IBM"), _item("m102", "quote", "SUN", 4.5)),
        ),
        StoryScene(
            "John is now a premium member: news and reports reach him too.",
            (_item("m103", "news", "IBM"), _item("m104", "report", "IBM"), _item("m105", "report", "SUN")),
            (AddMember("premium", "john"),),
            "John becomes a premium member",
        ),
        StoryScene(
            "His membership has ended: quotes again, and nothing else.",
            (
                _item("m106", "news", "IBM"),
                _item("m107", "quote", "IBM", 81.5),
                _item("m108", "report", "IBM"),
                _item("m109", "quote", "IBM", 81.75),
            ),
            (RemoveMember("premium", "john"),),
            "John's premium membership ends",
        ),
    ),
    question=StoryQuestion("Why did John not receive the report m108?", "john", "m108", "kind"),
    moral="Each reader got exactly what the policy allowed at that point of the stream",
)
