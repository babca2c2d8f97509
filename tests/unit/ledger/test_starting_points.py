"""Starting points are recorded once and never go back (D7)."""

from collections.abc import Callable

import pytest

from headgate.ledger import Ledger, StartingPoint
from headgate.model.errors import BadDefinition, NotFound, StaleVersion, VersionConflict
from headgate.storage.shared import Where


@pytest.fixture
def four(ledger: Ledger, commit: Callable[..., int]) -> Ledger:
    for _ in range(4):
        commit()
    return ledger


def test_points_are_recorded_once_and_kept(four: Ledger, stored_in: Where) -> None:
    four.record_starting_point("b", 1, 0)
    for _ in range(2):
        four.record_starting_point("a", 1, 5)
    four.record_starting_point("a", 2, 5)
    four.record_starting_point("a", 4, 8)
    a1, a2, a4 = StartingPoint("a", 1, 5), StartingPoint("a", 2, 5), StartingPoint("a", 4, 8)
    b1 = StartingPoint("b", 1, 0)
    with Ledger.open(stored_in) as again:
        assert again.starting_points() == [a1, a2, a4, b1]
        assert again.starting_points(1) == [a1, b1]
        assert again.starting_points(stream="a") == [a1, a2, a4]
        assert again.starting_points(4, "a") == [a4]
        assert again.starting_points(3) == []
        again.check()


def test_a_recorded_point_does_not_move(four: Ledger) -> None:
    four.record_starting_point("a", 2, 5)
    for seq in (4, 6):
        with pytest.raises(VersionConflict, match="recorded to start at 5"):
            four.record_starting_point("a", 2, seq)


def test_points_do_not_go_back(four: Ledger) -> None:
    four.record_starting_point("a", 2, 5)
    with pytest.raises(StaleVersion, match="cannot start at 4"):
        four.record_starting_point("a", 3, 4)
    with pytest.raises(StaleVersion, match="version 2 started there already"):
        four.record_starting_point("a", 1, 3)
    four.record_starting_point("b", 1, 3)
    assert len(four.starting_points()) == 2


def test_nonsense_is_refused(four: Ledger) -> None:
    with pytest.raises(NotFound):
        four.record_starting_point("a", 5, 0)
    with pytest.raises(BadDefinition):
        four.record_starting_point("a", 1, -1)
    with pytest.raises(BadDefinition):
        four.record_starting_point("", 1, 0)
    assert four.starting_points() == []
