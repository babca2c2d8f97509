"""Layout, lowering, shapes, faults, predicates and the Java check, each on its own."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from headgate.decide.normal import clauses
from headgate.lang import parse_condition
from headgate.model.errors import BadDefinition, BadEnvironment, Damaged
from headgate.model.expressions import InSet
from headgate.model.types import Catalog, EventType
from headgate.model.values import Kind
from headgate.pipeline.index import predicates
from headgate.pipeline.index.index import MAX_EXPANSION, HashAccess, _dyadic, _node, expand, lower, mix
from headgate.pipeline.log.codec import Slot, mask_of, places, words_for
from headgate.pipeline.paths import Struck, strike
from headgate.pipeline.spark.session import check_java

KINDS = {"a": Kind.INT, "b": Kind.STRING, "c": Kind.FLOAT, "d": Kind.BOOL, "e": Kind.TIMESTAMP, "f": Kind.BYTES}
CATALOG = Catalog().declare(EventType("T", "o", KINDS))
LAYOUT = places(CATALOG, "T")


def test_a_subtype_keeps_its_parents_places() -> None:
    longer = places(CATALOG.declare(EventType("T.U", "o", {"g": Kind.INT, "h": Kind.STRING}, "T")), "T.U")
    assert {name: longer[name] for name in KINDS} == LAYOUT
    assert longer["g"].slot == Slot("i", 6)
    assert words_for(0) == words_for(64) == 1
    assert words_for(65) == 2
    assert mask_of([0, 63, 64], 2) == [1 | 1 << 63, 1]


@pytest.mark.parametrize(
    ("text", "equal", "ranges"),
    [
        ("a = 3.0", ((Slot("i", 0), 3),), ()),
        ("a > 3.5 and a < 6", (), ((Slot("i", 0), 4, 5),)),
        ("c = 1", ((Slot("f", 2), 1.0),), ()),
        ("c < 9007199254740993", (), ((Slot("f", 2), -math.inf, 9007199254740992.0),)),
        ("c > 9007199254740993", (), ((Slot("f", 2), 9007199254740994.0, math.inf),)),
        ("d = true", ((Slot("i", 3), 1),), ()),
        (
            "e >= timestamp '1970-01-01T00:00:01Z' and e < timestamp '1970-01-01T00:00:02Z'",
            (),
            ((Slot("i", 4), 10**6, 2 * 10**6 - 1),),
        ),
        ("@publisher = 'x'", ((Slot("s", -1), "x"),), ()),
    ],
)
def test_bounds_are_exact_in_the_slots(text: str, equal: object, ranges: object) -> None:
    (clause,) = clauses(parse_condition(text), KINDS)
    (row,) = lower(clause, LAYOUT, 1)
    assert (row.equal, row.ranges, row.rest) == (equal, ranges, ())


@pytest.mark.parametrize("text", ["a = 3.5", "c = 9007199254740993", "a > 9223372036854775807", "a > 3 and a < 4"])
def test_what_no_slot_can_hold_has_no_rows(text: str) -> None:
    assert [row for clause in clauses(parse_condition(text), KINDS) for row in lower(clause, LAYOUT, 1)] == []


def test_small_sets_become_rows_and_large_ones_stay_in_the_rest() -> None:
    (clause,) = clauses(parse_condition("a in {1, 2, 3} and b in {'x', 'y'}"), KINDS)
    assert len(lower(clause, LAYOUT, 1)) == 6
    many = ", ".join(str(n) for n in range(MAX_EXPANSION + 1))
    (clause,) = clauses(parse_condition(f"a in {{{many}}}"), KINDS)
    (row,) = lower(clause, LAYOUT, 1)
    assert row.equal == ()
    assert isinstance(row.rest[0].condition, InSet)


def test_hashed_rows_are_found_again() -> None:
    values = np.arange(1000, dtype=np.int64)
    hashes = mix(np.zeros(1000, np.uint64), values)
    access = HashAccess.build(hashes, values.astype(np.int32))
    run, position = expand(*access.find(hashes))
    found = set(zip(run.tolist(), access.rows[position].tolist(), strict=True))
    assert {(n, n) for n in range(1000)} <= found


def test_dyadic_intervals_cover_exactly_their_ranges() -> None:
    rng = np.random.default_rng(3)
    low = rng.integers(-50, 50, 200)
    high = low + rng.integers(0, 40, 200)
    ranks, nodes, rows = _dyadic(Slot("i", 0), low, high)
    index: dict[int, set[int]] = {}
    for node, row in zip(nodes.tolist(), rows.tolist(), strict=True):
        assert row not in index.setdefault(node, set())
        index[node].add(row)
    values = np.arange(-60, 100)
    for at, rank in enumerate(ranks.rank(values)):
        path = [int(_node(level, rank >> level)) for level in range(ranks.levels + 1)]
        found = sorted(row for node in path for row in index.get(node, ()))
        assert found == np.flatnonzero((low <= values[at]) & (values[at] <= high)).tolist()


def test_a_fault_strikes_once_and_only_where_it_says(tmp_path: Path) -> None:
    file = tmp_path / "fault"
    strike(str(file), "write")
    file.write_text("write")
    strike(str(file), "read")
    with pytest.raises(Struck):
        strike(str(file), "write")
    strike(str(file), "write")


def test_a_predicate_is_the_one_that_was_registered(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def small(event, size, limit):\n    return size <= limit\n")
    keep = tmp_path / "keep"
    registered = predicates.register("small", "mine:small", tmp_path, keep)
    assert predicates.load_all([registered], keep)["small"](None, 3, 4) is True
    (tmp_path / "mine.py").write_text("def small(event, size, limit):\n    return True\n")
    assert predicates.load_all([registered], keep)["small"](None, 5, 4) is False
    predicates.load.cache_clear()
    (keep / f"{registered.digest}.py").write_text("def small(*all):\n    return True\n")
    with pytest.raises(Damaged, match="not the predicate module that was registered"):
        predicates.load_all([registered], keep)


@pytest.mark.parametrize("target", ["missing:f", "mine", "mine:absent"])
def test_a_predicate_that_is_not_there_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    with pytest.raises(BadDefinition):
        predicates.register("p", target, tmp_path, tmp_path / "keep")


def test_missing_and_old_java_get_one_clear_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadEnvironment, match="needs Java"):
        check_java()
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(BadEnvironment, match="needs Java 17"):
        check_java()
