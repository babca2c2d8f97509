"""Facts as people and programs read them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from click.testing import Result

from headgate.analysis.explain import TruthPart
from headgate.cli.shared.rendering import count_of, show_value
from headgate.commands.publishing.local import LocalPublisher
from headgate.gateway.http.rendering import as_json
from headgate.lang import parse_condition
from headgate.model.events import Draft
from headgate.model.expressions import Attribute
from headgate.model.rights import Effect
from headgate.model.values import Value
from headgate.node.domain import Domain


def test_json_of_facts() -> None:
    part = TruthPart(parse_condition("a > 1"), None, ((Attribute("a"), None),))
    assert as_json({"x": (part, Effect.GRANT, frozenset({"b", "a"}), b"\x00", datetime(2026, 1, 1, tzinfo=UTC))}) == {
        "x": [
            {"condition": "a > 1", "truth": None, "saw": {"a": None}},
            "grant",
            ["a", "b"],
            "00",
            "2026-01-01T00:00:00Z",
        ]
    }
    with pytest.raises(TypeError, match="object"):
        as_json(object())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        ("AE05 XYZ", "AE05 XYZ"),
        ("", "''"),
        (" x", "' x'"),
        ("a\nb", "'a\\nb'"),
        (True, "true"),
        (1.5, "1.5"),
        (b"\xff", "bytes 'ff'"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
    ],
)
def test_values(value: Value, shown: str) -> None:
    assert show_value(value) == shown


def test_nothing_that_was_sent_reaches_the_terminal_unescaped(headgate: Callable[..., Result], fresh: Domain) -> None:
    evil = "\x1b[31mred\r\u202e"
    LocalPublisher(fresh, advertise=False).publish(
        Draft(evil, "cctv", "uk.gov.pito.Numberplate", {"numberplate": evil})
    )
    result = headgate("explain", "billing", "main:4", domain=fresh.paths.directory)
    assert result.exit_code == 0
    assert result.output.count("\\x1b[31mred\\r\\u202e") == 2
    assert not set(evil) - set("[31mred") & set(result.output)


@pytest.mark.parametrize("args", [["explain", "smith", "\udcff"], ["versions", "--principal", "\udcff"]])
def test_names_that_are_no_text_are_refused(headgate: Callable[..., Result], args: list[str]) -> None:
    result = headgate(*args)
    assert result.exit_code == 2
    assert "is not valid UTF-8" in " ".join(result.output.split())


def test_counted_words_have_their_plural() -> None:
    told = [count_of(2, what) for what in ("event", "entry", "gateway")]
    assert told == ["2 events", "2 entries", "2 gateways"]
    assert count_of(1, "entry") == "1 entry"
