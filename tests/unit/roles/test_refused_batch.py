"""A refused batch leaves the book as it was, whatever batches come between."""

from __future__ import annotations

import pytest

from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import (
    AddMember,
    Batch,
    DeclareGroup,
    DeclarePrincipal,
    EnterRole,
    GrantRole,
    RemoveMember,
    SetRolefile,
)
from headgate.model.errors import RoleDenied
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.values import EPOCH
from headgate.roles.records.book import Book
from headgate.roles.requests.transition import Outcome, transition

ROLEFILE = parse_rolefile("Member(u) <- Login.LoggedOn(u) : (u in g)*")


def made(state: State, *changes: object, book: Book | None = None) -> Outcome:
    return transition(state, Batch(ADMINISTRATOR, changes), book=book)  # type: ignore[arg-type]


def begun() -> Outcome:
    people = [DeclarePrincipal("ann", {}), DeclarePrincipal("bob", {}), DeclareGroup("g"), AddMember("g", "ann")]
    first = made(
        State(), *people, SetRolefile("S", ROLEFILE), GrantRole("ann-on", "Login", "LoggedOn", ("ann",), "ann")
    )
    assert first.book is not None
    return first


ENTER = EnterRole("ann-in", "S", "Member", None, "ann", None, EPOCH)
REFUSED = EnterRole("bob-in", "S", "Member", None, "bob", None, EPOCH)


@pytest.mark.parametrize("between", [(), (DeclareGroup("h"),), (AddMember("g", "bob"), RemoveMember("g", "bob"))])
def test_what_was_refused_does_not_count_later(between: tuple[object, ...]) -> None:
    first = begun()
    with pytest.raises(RoleDenied):
        made(first.after, ENTER, REFUSED, book=first.book)
    state, book = first.after, first.book
    assert book is not None
    assert book.version == state.version
    if between:
        found = made(state, *between, book=book)
        state, book = found.after, found.book
    after = made(state, ENTER, book=book).after
    assert [one.id for one in after.roles.held_by("ann")] == ["ann-on", "ann-in"]
    # Had the book kept what the refused batch made, the membership would rest on a record that was never written.
    parents = {link.parent for one in after.roles.records.values() for link in one.parents}
    assert parents
    assert parents <= after.roles.records.keys()
    gone = made(after, RemoveMember("g", "ann")).after
    assert [one.id for one in gone.roles.held_by("ann")] == ["ann-on"]


def test_a_book_of_another_state_is_not_taken_for_this_one() -> None:
    first = begun()
    second = made(first.after, ENTER)
    third = made(second.after, DeclarePrincipal("cat", {}), book=Book(first.after))
    assert third.book is None
