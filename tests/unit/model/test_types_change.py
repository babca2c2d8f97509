"""Types that gain attributes, end and come back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model.errors import BadDefinition, HeadgateError, UnknownType
from headgate.model.limits import MAX_ATTRIBUTES
from headgate.model.types import Catalog, EventType
from headgate.model.values import Kind
from strategies.running import examples


def some(name: str, parent: str | None = None, key: tuple[str, ...] = (), **attributes: Kind) -> EventType:
    return EventType(name, "owner", attributes, parent, key)


FAMILY = Catalog().declare(some("a.A", x=Kind.INT)).declare(some("a.B", "a.A", y=Kind.STRING))


def test_a_type_and_its_subtypes_gain_an_attribute_from_a_version_on() -> None:
    grown = FAMILY.grow(some("a.A", x=Kind.INT, z=Kind.FLOAT), 7)
    assert dict(grown.attributes("a.A")) == {"x": Kind.INT, "z": Kind.FLOAT}
    assert list(grown.attributes("a.B")) == ["x", "z", "y"]
    assert grown.since("a.A") == grown.since("a.B") == {"z": 7}
    assert FAMILY.since("a.A") == {}


def test_what_was_numbered_keeps_its_number_and_what_comes_has_one_of_its_own() -> None:
    assert FAMILY.bits("a.B") == {"x": 0, "y": 1}
    grown = FAMILY.grow(some("a.A", x=Kind.INT, z=Kind.FLOAT), 1)
    assert grown.bits("a.B") == {"x": 0, "z": 2, "y": 1}
    again = grown.grow(some("a.B", "a.A", y=Kind.STRING, w=Kind.INT), 2)
    assert again.bits("a.B") == {"x": 0, "z": 2, "y": 1, "w": 3}
    assert again.since("a.B") == {"z": 1, "w": 2}


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (some("a.A"), "loses or retypes `x`"),
        (some("a.A", x=Kind.FLOAT), "loses or retypes `x`"),
        (some("a.A", x=Kind.INT, y=Kind.STRING), "cannot gain `y`, which its subtype `a.B` declares"),
        (some("a.A", key=("x",), x=Kind.INT), "cannot change its owner, parent or key"),
        (some("a.B", y=Kind.STRING), "cannot change its owner, parent or key"),
        (some("a.B", "a.A", y=Kind.STRING, x=Kind.INT), "which it inherits from `a.A`"),
        (EventType("a.A", "another", {"x": Kind.INT}), "cannot change its owner, parent or key"),
    ],
)
def test_a_new_version_that_is_not_the_old_one_and_more_is_refused(new: EventType, said: str) -> None:
    with pytest.raises(BadDefinition, match=said):
        FAMILY.grow(new, 1)


def test_growth_is_bounded_in_the_subtypes_too() -> None:
    many = {f"n{n}": Kind.INT for n in range(MAX_ATTRIBUTES - 2)}
    full = FAMILY.grow(EventType("a.B", "owner", {"y": Kind.STRING, **many}, "a.A"), 1)
    with pytest.raises(BadDefinition, match=r"`a\.B` would have more attributes than MAX_ATTRIBUTES"):
        full.grow(some("a.A", x=Kind.INT, z=Kind.INT), 2)


def test_a_retired_type_is_unknown_but_its_name_and_attributes_stay() -> None:
    gone = FAMILY.retire("a.B")
    assert list(gone) == ["a.A"]
    assert "a.B" not in gone
    assert gone.every["a.B"].retired
    assert gone.subtypes("a.A") == ("a.A",)
    assert dict(gone.ever_attributes("a.B")) == {"x": Kind.INT, "y": Kind.STRING}
    assert gone.is_a("a.B", "a.A")
    for ask in (gone.__getitem__, gone.attributes, gone.retire):
        with pytest.raises(UnknownType, match=r"a\.B"):
            ask("a.B")
    with pytest.raises(BadDefinition, match="already declared"):
        gone.declare(some("a.B", "a.A"))


def test_a_type_that_is_extended_is_not_retired() -> None:
    with pytest.raises(BadDefinition, match=r"`a\.B` extends `a\.A`"):
        FAMILY.retire("a.A")
    empty = FAMILY.retire("a.B").retire("a.A")
    assert len(empty) == 0
    assert list(empty.every) == ["a.A", "a.B"]
    with pytest.raises(UnknownType, match="declare the parent first"):
        empty.grow(some("a.B", "a.A", y=Kind.STRING), 3)


def test_a_retired_type_comes_back_in_its_place_with_what_it_had() -> None:
    gone = FAMILY.declare(some("b.C")).retire("a.B")
    with pytest.raises(BadDefinition, match="loses or retypes `y`"):
        gone.grow(some("a.B", "a.A", w=Kind.INT), 5)
    back = gone.grow(some("a.B", "a.A", y=Kind.STRING, w=Kind.INT), 5)
    assert list(back) == ["a.A", "a.B", "b.C"]
    assert back.bits("a.B") == {"x": 0, "y": 1, "w": 2}
    assert back.since("a.B") == {"w": 5}


def test_what_a_parent_gains_while_a_subtype_is_retired_clashes_with_nothing_of_it() -> None:
    gone = FAMILY.retire("a.B")
    with pytest.raises(BadDefinition, match=r"which its subtype `a\.B` declares"):
        gone.grow(some("a.A", x=Kind.INT, y=Kind.STRING), 2)
    grown = gone.grow(some("a.A", x=Kind.INT, z=Kind.INT), 2)
    assert sorted(grown.bits("a.B").values()) == [0, 1, 2]


NAMES = ("T0", "T1", "T2", "T3")


@examples(200)
@given(st.data())
def test_numbers_never_change_and_never_clash_along_a_line(data: st.DataObject) -> None:
    catalog = Catalog()
    for version in range(data.draw(st.integers(1, 12))):
        name = data.draw(st.sampled_from(NAMES))
        before = {n: catalog.bits(n) for n in catalog.every}
        try:
            if name not in catalog.every:
                parent = data.draw(st.sampled_from([None, *catalog]))
                catalog = catalog.declare(some(name, parent, **{f"a{version}": Kind.INT}))
            elif data.draw(st.integers(0, 3)) == 0:
                catalog = catalog.retire(name)
            else:
                old = catalog.every[name]
                new = {**old.attributes, f"g{version}": Kind.STRING}
                catalog = catalog.grow(EventType(name, "owner", new, old.parent), version)
        except HeadgateError:
            continue
        for known, bits in before.items():
            assert {a: catalog.bits(known)[a] for a in bits} == bits
        for known in catalog.every:
            numbers = list(catalog.bits(known).values())
            assert len(numbers) == len(set(numbers)) == len(catalog.ever_attributes(known))
            assert list(catalog.ever_attributes(known)) == list(catalog.bits(known))
