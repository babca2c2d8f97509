import threading
from pathlib import Path

import pytest

from headgate.ledger import Ledger
from headgate.model.changes import Batch, DeclarePrincipal, DeclareType, Subscribe
from headgate.model.errors import NotFound
from headgate.model.rights import Subscription
from headgate.model.types import EventType
from headgate.pipeline.spark.ledger_tail import LedgerTail
from headgate.storage.shared import Where


def test_the_tail_says_what_the_ledger_says(stored_in: Where) -> None:
    ledger = Ledger.create(stored_in)
    tail = LedgerTail(stored_in)
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


def test_whoever_has_committed_sees_it_while_others_ask(stored_in: Where) -> None:
    with Ledger.create(stored_in) as ledger:
        tail, done = LedgerTail(stored_in), threading.Event()

        def ask() -> None:
            while not done.is_set():
                assert tail.version >= 0

        others = [threading.Thread(target=ask) for _ in range(2)]
        for one in others:
            one.start()
        try:
            seen = [(ledger.commit(Batch(ledger.administrator)), tail.version) for _ in range(60)]
        finally:
            done.set()
            for one in others:
                one.join()
        assert seen == [(version, version) for version in range(1, 61)]
        tail.close()
