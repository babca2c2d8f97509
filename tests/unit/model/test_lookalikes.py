"""Names that can be mistaken: skeletons and scripts, as UTS 39 has them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model.lookalikes import Lookalikes, mixed_scripts, normal_form, skeleton

PAYPAL = "\u0440\u0430\u0443\u0440\u0430l"  # all but the last letter Cyrillic


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("p\u0456to", "pito"),
        (PAYPAL, "paypal"),
        ("\uff33ale", "Sale"),
        ("sc\u043ere.Match", "score.Match"),
        ("\u0455\u0441\u043e\u0440\u0435", "scope"),  # a whole word in Cyrillic
        ("citta\u0300", "citt\u00e0"),
        ("\u0406d", "ld"),  # as `I` and `l` look alike, what looks like one looks like the other
    ],
)
def test_names_that_look_alike(name: str, other: str) -> None:
    assert Lookalikes(["met", other]).find(name) == other
    assert Lookalikes(["met", name]).find(other) == name


@pytest.mark.parametrize(
    ("name", "other"), [("l1", "I1"), ("O0", "00"), ("rnet", "met"), ("a", "a"), ("città", "citta")]
)
def test_names_that_do_not(name: str, other: str) -> None:
    assert Lookalikes([other]).find(name) is None
    assert Lookalikes([name]).find(other) is None


@settings(max_examples=100)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.lists(st.text(max_size=4), max_size=5))
def test_it_is_as_comparing_each_skeleton(name: str, others: list[str]) -> None:
    plain = [
        one
        for one in others
        if one != name and skeleton(one) == skeleton(name) and not (one.isascii() and name.isascii())
    ]
    found = Lookalikes(others).find(name)
    assert (found in plain) if plain else found is None
    assert Lookalikes([name]).find(name) is None


@pytest.mark.parametrize(
    ("name", "scripts"),
    [
        ("p\u0456to", ("Cyrillic", "Latin")),
        ("\u03b1bc", ("Greek", "Latin")),
        ("a.\u0411x.c", ("Cyrillic", "Latin")),
        ("\u30a2\uac00", ("Hangul", "Katakana")),
        ("uk.gov.\u041f\u043e\u0434\u0456\u044f", ()),
        ("città.größe-1_2", ()),
        ("\u6ce8\u6587List", ()),
        ("\u8aad\u8005\u30ce\u30fc\u30c8", ()),
        ("\u0432\u0441\u0456 2", ()),
        ("plain.ASCII", ()),
    ],
)
def test_scripts_that_are_mixed(name: str, scripts: tuple[str, ...]) -> None:
    assert mixed_scripts(name) == scripts


def test_the_normal_form() -> None:
    assert normal_form("\uff33ale") == "Sale"
    assert normal_form("citta\u0300") == "citt\u00e0"
