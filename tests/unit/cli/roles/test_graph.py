"""The credential graph as text and as a picture: what is said, that nothing overlaps, and that text stays text."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.roles.graph import (
    MAX_BOXES,
    MAX_LINES,
    Box,
    ListedCredential,
    Picture,
    around,
    of_answer,
    svg,
    tree,
)
from headgate.commands.role_graph import graph
from headgate.model.errors import TooLarge
from headgate.protocol.role_messages import EdgeAnswer, FallAnswer, GraphAnswer, NodeAnswer
from strategies.rehearsing import Rehearsal
from strategies.running import examples

SVG = "{http://www.w3.org/2000/svg}"


def lines(picture: Picture, root: str | None = None) -> list[str]:
    return [line.plain for line in tree(picture, root)]


def drawn() -> Picture:
    """Two memberships that share a record; one rests on something false being false."""
    nodes = (
        NodeAnswer("m1", "membership", "true", "Conf.Member('dm')", "1.1", "dm"),
        NodeAnswer("m2", "membership", "unknown", "Conf.Speaker('dm')", "2.1", "dm"),
        NodeAnswer("e1", "election", "true", "Conf.Member(_)", "3.1", "jmb"),
        NodeAnswer("record 1.1", "record", "true", "and"),
        NodeAnswer("record 2.1", "record", "unknown", "nor"),
        NodeAnswer("record 3.1", "record", "true", "until it is revoked"),
        NodeAnswer("record 4.1", "record", "unknown", "'dm' in staff"),
        NodeAnswer("record 5.1", "record", "true", "or"),
    )
    edges = (
        *(EdgeAnswer("record 1.1", "m1"), EdgeAnswer("record 2.1", "m2"), EdgeAnswer("record 3.1", "e1")),
        *(EdgeAnswer("record 3.1", "record 1.1"), EdgeAnswer("record 5.1", "record 1.1")),
        *(EdgeAnswer("record 4.1", "record 5.1"), EdgeAnswer("record 3.1", "record 5.1")),
        *(EdgeAnswer("record 1.1", "record 2.1", negated=True), EdgeAnswer("record 4.1", "record 2.1")),
    )
    return of_answer(GraphAnswer(7, list(nodes), list(edges), None, [], whole=True))


def test_the_tree_says_states_operators_and_negations() -> None:
    assert lines(drawn()) == [
        "true     m1  Conf.Member('dm'), held by dm  [and]",
        "true       e1  an election to Conf.Member(_), elected by jmb  [until it is revoked]",
        "true       or",
        "unknown      'dm' in staff",
        "true         e1  an election to Conf.Member(_), elected by jmb  [until it is revoked]",
        "unknown  m2  Conf.Speaker('dm'), held by dm  [nor]",
        "true       not m1  Conf.Member('dm'), held by dm  [and]  (as above)",
        "unknown    'dm' in staff",
    ]
    assert lines(drawn(), "e1") == ["true     e1  an election to Conf.Member(_), elected by jmb  [until it is revoked]"]
    assert lines(drawn(), "nothing") == []


def test_states_are_coloured_and_said() -> None:
    (first, *_), unknown = list(tree(drawn())), next(one for one in tree(drawn()) if one.plain.startswith("unknown"))
    assert str(first.style) == "green"
    assert str(unknown.style) == "yellow"


def test_around_one_credential_there_is_what_it_rests_on_and_what_falls() -> None:
    whole = drawn()
    rooted = Picture(7, {}, (FallAnswer("m1", "it rests on that"),), "e1")
    found = around(whole, rooted)
    assert {one.id for box in found.tops for one in box.credentials} == {"m1", "e1"}
    assert "record 4.1" in found.boxes
    assert "record 2.1" not in found.boxes


def test_a_long_tree_is_cut() -> None:
    boxes = {
        f"r{n}": Box(f"r{n}", True, "x", (ListedCredential(f"m{n}", "membership", "R"),)) for n in range(MAX_LINES + 5)
    }
    found = lines(Picture(1, boxes))
    assert len(found) == MAX_LINES + 1
    assert found[-1].startswith("... past")


def test_the_story_of_the_meeting_from_its_ledger(tmp_path: Path) -> None:
    rehearsal = Rehearsal("meeting", tmp_path)
    state = rehearsal.states[rehearsal.events[0].version]
    found = of_answer(graph(state, state.administrator, None, {}))
    said = lines(found, "bob-in")
    assert said[0] == "true     bob-in  Meeting.Member, held by bob  [and]"
    assert any("Meeting.Candidate('bob') is not revoked by Chair" in line for line in said)
    assert any("bob-on  Login.LoggedOn('bob', 'ely')" in line for line in said)
    rooted = of_answer(graph(state, state.administrator, "bob-on", {}))
    assert [one.id for one in rooted.falls] == ["bob-in"]
    picture = svg(around(found, rooted), "Bob")
    assert picture.count("would fall") == 3  # both, and the legend
    assert "tracker" not in picture


# -- pictures -------------------------------------------------------------------------------------------------


def boxes_of(text: str) -> list[tuple[float, float, float, float]]:
    root = ET.fromstring(text)
    rects = root.findall(f"{SVG}g/{SVG}rect")
    return [tuple(float(one.attrib[name]) for name in ("x", "y", "width", "height")) for one in rects]  # type: ignore[misc]


def overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    count = draw(st.integers(1, 12))
    says = st.text(max_size=60)
    boxes = {}
    for n in range(count):
        parents = draw(st.lists(st.tuples(st.integers(0, max(n - 1, 0)), st.booleans()), max_size=3))
        ties = tuple((f"r{one}", negated) for one, negated in parents if one < n)
        credentials = tuple(
            ListedCredential(draw(says), "membership", draw(says)) for _ in range(draw(st.integers(0, 2)))
        )
        boxes[f"r{n}"] = Box(f"r{n}", draw(st.sampled_from([True, False, None])), draw(says), credentials, ties)
    return Picture(1, boxes)


@given(pictures(), st.text(max_size=20))
@examples(30, soak=60)
def test_a_picture_is_a_document_in_which_nothing_overlaps(picture: Picture, title: str) -> None:
    text = svg(picture, title)
    found = boxes_of(text)
    assert len(found) == len(picture.boxes)
    assert not any(overlap(a, b) for a, b in combinations(found, 2))
    root = ET.fromstring(text)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(x + w <= width and y + h <= height for x, y, w, h in found)
    assert len(root.findall(f"{SVG}path")) == sum(len(box.parents) for box in picture.boxes.values())
    assert len(root.findall(f"{SVG}circle")) == sum(no for box in picture.boxes.values() for _, no in box.parents)
    assert svg(picture, title) == text


def test_what_something_rests_on_stands_to_its_left() -> None:
    text = svg(drawn(), "x")
    places = {
        m[2]: float(m[1]) for m in re.finditer(r'<g><title>.*?</title>\n<rect x="(\d+)".*?/>\n<text.*?>(.*?)<', text)
    }
    assert places["e1"] < places["or"] < places["m1"] < places["m2"]


def test_names_are_never_markup() -> None:
    box = Box("r", True, "<b>&", (ListedCredential("<script>alert(1)</script>", "membership", "\x1b[31m]]>"),))
    text = svg(Picture(1, {"r": box}), "</title><script>")
    assert "<script" not in text
    assert "\x1b" not in text
    ET.fromstring(text)


def test_ties_that_lead_back_do_not_hang_it() -> None:
    boxes = {"a": Box("a", True, "and", (), (("b", False),)), "b": Box("b", True, "and", (), (("a", False),))}
    assert len(boxes_of(svg(Picture(1, boxes), "x"))) == 2


def test_too_much_for_a_picture_is_refused() -> None:
    boxes = {f"r{n}": Box(f"r{n}", True, "x") for n in range(MAX_BOXES + 1)}
    with pytest.raises(TooLarge):
        svg(Picture(1, boxes), "x")
