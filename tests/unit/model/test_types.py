"""Event types: one parent, no clashes, bounded."""

from __future__ import annotations

import pytest

from headgate.model.errors import BadDefinition, UnknownType
from headgate.model.limits import MAX_ATTRIBUTES, MAX_NAME_CHARS
from headgate.model.types import Catalog, EventType, check_pattern, matches
from headgate.model.values import Kind


def some(name: str, parent: str | None = None, **attributes: Kind) -> EventType:
    return EventType(name, "owner", attributes, parent)


def test_a_subtype_begins_with_what_it_inherits() -> None:
    catalog = Catalog().declare(some("a.A", x=Kind.INT)).declare(some("a.B", "a.A", y=Kind.STRING))
    assert list(catalog.attributes("a.B")) == ["x", "y"]
    assert catalog.lineage("a.B") == ("a.B", "a.A")
    assert catalog.subtypes("a.A") == ("a.A", "a.B")
    assert catalog.is_a("a.B", "a.A")
    assert not catalog.is_a("a.A", "a.B")


def test_cycles_clashes_and_strangers_are_refused() -> None:
    catalog = Catalog().declare(some("a.A", x=Kind.INT))
    with pytest.raises(BadDefinition, match="extends itself"):
        catalog.declare(some("a.B", "a.B"))
    with pytest.raises(UnknownType, match="not declared"):
        catalog.declare(some("a.B", "a.C"))
    with pytest.raises(BadDefinition, match="inherits"):
        catalog.declare(some("a.B", "a.A", x=Kind.INT))
    with pytest.raises(BadDefinition, match="already declared"):
        catalog.declare(some("a.A"))
    with pytest.raises(UnknownType):
        catalog["a.Z"]


def test_the_number_of_attributes_is_bounded_with_the_inherited_ones() -> None:
    half = {f"x{n}": Kind.INT for n in range(MAX_ATTRIBUTES - 1)}
    catalog = Catalog().declare(EventType("a.A", "owner", half))
    catalog.declare(some("a.B", "a.A", y=Kind.INT))
    with pytest.raises(BadDefinition, match="MAX_ATTRIBUTES"):
        catalog.declare(some("a.B", "a.A", y=Kind.INT, z=Kind.INT))


@pytest.mark.parametrize("name", ["", "a..b", ".a", "a.", "1a", "a b", "a.*", "x" * (MAX_NAME_CHARS + 1), "a\n"])
def test_names_that_are_no_type_names(name: str) -> None:
    with pytest.raises(BadDefinition):
        some(name)


@pytest.mark.parametrize("attribute", ["and", "not", "null", "@time", "$x", "", "a\nb"])
def test_names_that_are_no_attributes(attribute: str) -> None:
    with pytest.raises(BadDefinition):
        EventType("a.A", "owner", {attribute: Kind.INT})


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("*", "a", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", True),
        ("a.*", "a", False),
        ("a.*", "ab.c", False),
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
    ],
)
def test_patterns(pattern: str, name: str, found: bool) -> None:
    assert matches(check_pattern(pattern), name) is found


@pytest.mark.parametrize("pattern", ["a*", "*.a", "a.*.b", "**", "", "a.**"])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BadDefinition):
        check_pattern(pattern)
