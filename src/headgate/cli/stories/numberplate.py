"""Cameras, a detective, a billing office and a statistician (Capabilities I and III.C)."""

from __future__ import annotations

from typing import Final

from headgate.cli.stories.script import (
    Aside,
    Story,
    StoryQuestion,
    StoryReader,
    StoryScene,
    event_type,
    grant,
    principals,
    publisher,
    subscribe,
)
from headgate.model.changes import AddRule, RemoveRule
from headgate.model.events import Draft

_TYPE: Final = "uk.gov.pito.Numberplate"


def _seen(id: str, place: str, plate: str, time: str) -> Draft:
    values = {"numberplate": plate, "timestamp": f"2026-01-05T{time}:00Z", "location": place}
    return Draft(id, f"camera-{place.lower()}", _TYPE, values)


def _camera(place: str) -> AddRule:
    """A camera may report cars in its own place only: whatever it sends, that is the place in the report."""
    name = f"camera-{place.lower()}"
    return publisher(name, name, _TYPE, {"location": place}, "numberplate", "timestamp")


NUMBERPLATE: Final = Story(
    name="numberplate",
    title="Number plates: one stream, three readers",
    opening="Cameras in London report every car that passes: its number plate, the place and the time. "
    "Three offices read the same reports. Nobody copies or filters the stream for them; "
    "its owner has written down what each may see, and Headgate sees to it:",
    source="what the cameras sent",
    policy=(
        *principals("pito", "smith", "billing", "statistician", "camera-soho", "camera-strand", "camera-bank"),
        event_type(_TYPE, "pito", numberplate="string", timestamp="timestamp", location="string"),
        *map(_camera, ("Soho", "Strand", "Bank")),
        grant("court-order", "smith", _TYPE, "numberplate = 'AE05 XYZ'"),
        grant("charging", "billing", _TYPE, attributes=("numberplate", "timestamp")),
        grant("counting", "statistician", _TYPE, attributes=("timestamp", "location")),
    ),
    subscriptions=(
        subscribe("smith", "smith", _TYPE),
        subscribe("billing", "billing", _TYPE),
        subscribe("statistician", "statistician", _TYPE),
        subscribe("peek", "billing", _TYPE, "location = 'Strand'"),
    ),
    readers=(
        StoryReader("smith", "Detective Smith", "everything, but only about AE05 XYZ: a court order"),
        StoryReader("billing", "Billing office", "plate and time, to charge for the day; never the place", 17),
        StoryReader("statistician", "Statistician", "place and time, to count traffic; never the plate", 15),
    ),
    scenes=(
        StoryScene(
            "Cars drive by. Each report goes to whoever may see it, cut to what that reader may see.",
            (
                _seen("e1", "Soho", "AE05 XYZ", "09:00"),
                _seen("e2", "Bank", "LB07 GUY", "09:02"),
                _seen("e3", "Strand", "AE05 XYZ", "09:05"),
                _seen("e4", "Soho", "KX51 ABC", "09:07"),
                _seen("e5", "Bank", "AE05 XYZ", "09:11"),
                _seen("e6", "Strand", "LB07 GUY", "09:12"),
            ),
        ),
        StoryScene(
            "The court has withdrawn its order. That counts from the marked line on, for every event and every office: "
            "the same car drives on, and the detective no longer sees it.",
            (
                _seen("e7", "Soho", "AE05 XYZ", "09:15"),
                _seen("e8", "Strand", "KX51 ABC", "09:16"),
                _seen("e9", "Strand", "AE05 XYZ", "09:20"),
                _seen("e10", "Bank", "LB07 GUY", "09:21"),
            ),
            (RemoveRule("court-order"),),
            "the court order is withdrawn",
        ),
    ),
    question=StoryQuestion(
        "Why does the billing office not see where car AE05 XYZ was at 09:05?", "billing", "e3", "location"
    ),
    moral="Each reader got exactly what the policy allowed at that point of the stream",
    asides=(
        Aside(
            "peek",
            "It also tried to find out with a filter, location = 'Strand', and received {count} reports: "
            "a filter sees only what its subscriber sees.",
        ),
    ),
)
