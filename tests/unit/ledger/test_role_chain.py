"""Whatever happens to roles, the ledger is the chain of transitions, and a book made anew is the one that was kept."""

import tempfile
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given

from headgate.ledger import Ledger
from headgate.ledger.load import preview
from headgate.model.errors import HeadgateError
from headgate.model.state import State
from headgate.roles.records.book import Book
from headgate.roles.requests.transition import transition
from strategies.roles import START, Walk, walks
from strategies.running import examples


def graph(book: Book) -> dict[str, object]:
    """All that a book is, spelled out."""
    interest = book.interest
    return {
        "version": book.version,
        "records": {one.ref: repr(one) for one in book.records.records()},
        "users": {ref: list(ids) for ref, ids in book.index.users.items() if ids},
        "members": {office: list(ids) for office, ids in book.index.members.items() if ids},
        "facts": interest._keys,
        "keys": {key: set(texts) for key, texts in interest._by_key.items() if texts},
    }


def same(a: State, b: State) -> None:
    """Equal, and in the same order where it has a meaning."""
    assert a.roles == b.roles
    assert repr(sorted(a.roles.memberships.items())) == repr(sorted(b.roles.memberships.items()))
    assert a.roles.held == b.roles.held
    assert list(a.roles.memberships) == list(b.roles.memberships)
    assert list(a.roles.elections) == list(b.roles.elections)
    assert a == b


@examples(24, soak=100)
@given(walks())
def test_a_kept_book_is_the_one_made_anew(walk: Walk) -> None:
    book: Book | None = None
    for step in walk.steps():
        kept = transition(step.state, step.accepted, book=book, now=step.now)
        same(kept.after, step.outcome.after)
        book = kept.book
        if book is not None:
            assert graph(book) == graph(Book(kept.after))


@examples(4, soak=8)
@given(walks())
def test_the_ledger_is_the_chain_of_transitions(walk: Walk) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "l.db"
        times = [START]

        def clock() -> datetime:
            return times[-1]

        ledger, follower = Ledger.create(path, clock=clock), Ledger.open(path, clock=clock)
        chain = [State()]
        try:
            for step in walk.steps():
                times.append(step.now)
                if step.accepted != step.batch and walk.odds(2):
                    with pytest.raises(HeadgateError):
                        ledger.commit(step.batch)
                after = step.outcome.after
                said = preview(step.state, after, step.outcome.batch)
                assert ledger.commit(step.accepted) == after.version
                assert said == ledger.difference(after.version - 1, after.version)
                chain.append(after)
                same(ledger.state(), after)
                if walk.odds(2):
                    same(follower.state(), after)
                if walk.odds(3):
                    ledger, follower = follower, ledger
                if walk.odds(3):
                    ledger.close()
                    ledger = Ledger.open(path, clock=clock)
            _every_version_is_as_it_was(ledger, chain)
        finally:
            ledger.close()
            follower.close()


def _every_version_is_as_it_was(ledger: Ledger, chain: list[State]) -> None:
    ledger.check()
    for version in range(0, len(chain), 3):
        same(ledger.state(version), chain[version])
    for record in chain[-1].roles.records.values():
        assert ledger.record_state(record.ref) is record.state
    for old in chain:
        for ref in old.roles.records.keys() - chain[-1].roles.records.keys():
            assert ledger.record_state(ref) is False
