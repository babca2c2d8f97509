"""Quenching: nobody is said to want a type only if nobody would receive it (Hermes 8)."""

from __future__ import annotations

from headgate.analysis.restrictions import wanted
from headgate.model.changes import RemoveRule, Unsubscribe
from headgate.model.expressions import Attribute, Compare, Constant, all_of
from strategies.small import CHASE, SEEN, commit, forbid, grant, wish, world

NEVER = all_of(Compare("<", Attribute("speed"), Constant(1)), Compare(">", Attribute("speed"), Constant(2)))


def test_it_takes_a_wish_and_a_right() -> None:
    ledger = world()
    assert not wanted(ledger.now, SEEN)
    commit(ledger, wish("s", "anna"))
    assert not wanted(ledger.now, SEEN)
    commit(ledger, grant("g", "anna"))
    assert wanted(ledger.now, SEEN)
    commit(ledger, Unsubscribe("s"))
    assert not wanted(ledger.now, SEEN)


def test_a_wish_for_the_parent_wants_the_subtype_and_advertising_the_parent_means_subtypes_too() -> None:
    ledger = commit(world(), grant("g", "anna", CHASE), wish("s", "anna", SEEN))
    assert wanted(ledger.now, CHASE)
    assert wanted(ledger.now, SEEN)
    ledger = commit(world(), grant("g", "anna", CHASE), wish("s", "anna", CHASE))
    assert wanted(ledger.now, SEEN)


def test_a_forbid_that_comes_first_or_a_condition_that_never_holds_is_as_good_as_no_right() -> None:
    assert not wanted(commit(world(), forbid("f", "anna"), grant("g", "anna"), wish("s", "anna")).now, SEEN)
    never = grant("g", "anna", where=NEVER)
    assert not wanted(commit(world(), never, wish("s", "anna")).now, SEEN)


def test_filters_play_no_part() -> None:
    asked = Compare("=", Attribute("plate"), Constant("x"))
    ledger = commit(world(), grant("g", "anna"), wish("s", "anna", where=asked))
    assert wanted(ledger.now, SEEN)
    commit(ledger, RemoveRule("g"))
    assert not wanted(ledger.now, SEEN)
