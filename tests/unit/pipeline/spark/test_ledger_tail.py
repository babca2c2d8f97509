from pathlib import Path

import pytest

from headgate.ledger import Ledger
from headgate.model.changes import Batch, DeclarePrincipal, DeclareType, Subscribe
from headgate.model.errors import NotFound
from headgate.model.rights import Subscription
from headgate.model.types import EventType
from headgate.pipeline.spark.ledger_tail import LedgerTail


def test_the_tail_says_what_the_ledger_says(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger.create(path)
    tail = LedgerTail(path)
    assert tail.version == 0
    me = ledger.administrator
    ledger.commit(Batch(me, (DeclarePrincipal("p"), DeclareType(EventType("a.T", "p", {})))))
    ledger.commit(Batch(me, (Subscribe(Subscription("now", "p", "a.T")),)))
    ledger.commit(Batch(me, (Subscribe(Subscription("past", "p", "a.T", history=True)),)))
    ledger.commit(Batch(me))
    assert tail.version == 4
    assert [tail.asks_history(after, 4) for after in range(5)] == [True, True, True, False, False]
    assert not tail.asks_history(0, 2)
    tail.close()
    ledger.close()


def test_a_ledger_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no ledger"):
        LedgerTail(tmp_path / "none.db")
