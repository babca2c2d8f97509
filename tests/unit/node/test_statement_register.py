"""What the service remembers: numbers that only grow, also through `kill -9`, and nothing past its bounds."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from headgate.model.authority import RevocationList
from headgate.model.errors import TooMany
from headgate.node import statement_register as module
from headgate.node.statement_register import MAX_KEPT_LIST, IssuedStatement, StatementRegister
from headgate.storage.shared import Where

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def register(stored_in: Where) -> Iterator[StatementRegister]:
    made = StatementRegister(stored_in)
    yield made
    made.close()


def issued(id: str, principal: str = "anna", hours: float = 1) -> IssuedStatement:
    return IssuedStatement(id, "certificate", principal, "did:key:x", "rule", NOW, NOW + hours * HOUR)


def test_what_was_issued_is_listed_until_it_ends(register: StatementRegister) -> None:
    register.issue([issued("a"), issued("b", "bob"), issued("c", hours=5)], 10, NOW)
    assert [one.id for one in register.issued("anna", "", 10)] == ["a", "c"]
    assert [one.id for one in register.issued(None, "a", 1)] == ["b"]
    assert register.one("a") == issued("a")
    register.issue([issued("d", hours=9)], 10, NOW + 2 * HOUR)
    assert [one.id for one in register.issued(None, "", 10)] == ["c", "d"]


def test_a_principal_has_no_more_than_so_many_and_then_nothing_is_recorded(register: StatementRegister) -> None:
    register.issue([issued("a"), issued("b")], 3, NOW)
    with pytest.raises(TooMany, match="anna"):
        register.issue([issued("c"), issued("d")], 3, NOW)
    assert [one.id for one in register.issued("anna", "", 10)] == ["a", "b"]
    register.issue([issued("e", "bob")], 3, NOW)


def test_a_list_grows_by_one_for_each_and_keeps_what_would_not_have_ended(register: StatementRegister) -> None:
    assert register.revocations() == (0, frozenset())
    register.issue([issued("a"), issued("b", hours=50)], 10, NOW)
    assert register.revoke("a", NOW)
    assert not register.revoke("a", NOW)
    assert register.revocations() == (1, {"a"})
    assert register.revoke("b", NOW)
    assert register.revoke("unheard-of", NOW + 3 * HOUR)
    assert register.revocations() == (3, {"b", "unheard-of"}), "`a` ended by itself"
    assert register.is_revoked("b")
    assert not register.is_revoked("a")
    assert register.number() == 3


def test_the_list_is_bounded(register: StatementRegister, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REVOKED", 2)
    register.revoke("a", NOW)
    register.revoke("b", NOW)
    with pytest.raises(TooMany, match="MAX_REVOKED"):
        register.revoke("c", NOW)
    assert register.revocations() == (2, {"a", "b"})


def test_a_register_from_a_copy_goes_on_after_what_the_ledger_knows(register: StatementRegister) -> None:
    register.revoke("a", NOW)
    register.catch_up(RevocationList("us", 1, NOW, frozenset({"a"})))
    assert register.revocations() == (1, {"a"})
    register.catch_up(RevocationList("us", 7, NOW, frozenset({"a", "z"})))
    assert register.revocations() == (8, {"a", "z"})


def test_the_last_list_of_each_issuer_is_known_with_when_it_came(register: StatementRegister) -> None:
    first = RevocationList("met", 1, NOW, frozenset({"a"}))
    register.hear(first, "text", NOW + HOUR)
    again = RevocationList("met", 1, NOW + HOUR, frozenset({"a"}))
    register.hear(again, "later", NOW + 2 * HOUR)
    found = register.heard("met")
    assert found is not None
    assert (found.list, found.at, found.statement) == (again, NOW + 2 * HOUR, "later")
    newer = RevocationList("met", 2, NOW + 2 * HOUR, frozenset({"a", "b"}))
    register.hear(newer, "x" * (MAX_KEPT_LIST + 1), NOW + 3 * HOUR)
    found = register.heard("met")
    assert found is not None
    assert (found.list, found.statement) == (newer, None)
    assert register.heard("other") is None
    assert register.heard_at() == {"met": NOW + 3 * HOUR}


_CHILD = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from headgate.node.statement_register import StatementRegister
where = sys.argv[1]
register = StatementRegister(where if "://" in where else Path(where))
for n in range(10_000):
    register.revoke(f"r{sys.argv[2]}-{n}", datetime.now(UTC))
    print(register.number(), flush=True)
"""


def test_the_number_never_goes_back_through_kill_9(stored_in: Where) -> None:
    told = 0
    for turn in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(stored_in), str(turn)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(20):
            number = int(child.stdout.readline())
            assert number == told + 1
            told = number
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split()
        child.wait()
        child.stdout.close()
        told = max([told, *map(int, rest)])
        register = StatementRegister(stored_in)
        number, revoked = register.revocations()
        assert number >= told
        assert len(revoked) == number
        told = number
        register.close()
