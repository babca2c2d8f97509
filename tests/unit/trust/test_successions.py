"""Successions and revocation lists: numbered statements, of which the later counts."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model.authority import RevocationList, Succession
from headgate.model.errors import BadStatement, StaleList
from headgate.model.limits import MAX_LIST_BYTES, MAX_REVOKED
from headgate.trust.certificates import (
    REVOCATIONS,
    SUCCESSION,
    amend_succession,
    consent_to,
    issue_revocations,
    issue_succession,
)
from unit.trust.corpus import MALLORY, MET, NOW, PITO, SMITH, did

IDS = st.sampled_from(["c1", "c2", "a.b", "x" * 64])


@given(st.integers(0, 2**63 - 1), st.frozensets(IDS))
def test_a_list_is_verified_as_it_was_issued(number: int, revoked: frozenset[str]) -> None:
    text = issue_revocations(PITO, number=number, revoked=revoked, now=NOW)
    assert REVOCATIONS.verify(text, now=NOW) == RevocationList(did(PITO), number, NOW, revoked)


def test_the_largest_list_fits() -> None:
    ids = [f"s{n:022d}" for n in range(MAX_REVOKED)]
    text = issue_revocations(PITO, number=1, revoked=ids, now=NOW)
    assert len(text) < MAX_LIST_BYTES
    assert len(REVOCATIONS.verify(text).revoked) == MAX_REVOKED


def test_a_later_list_or_a_sign_of_life_is_news() -> None:
    first = REVOCATIONS.verify(issue_revocations(PITO, number=1, revoked=["c1"], now=NOW))
    later = NOW + timedelta(minutes=1)
    alive = issue_revocations(PITO, number=1, revoked=["c1"], now=later)
    assert REVOCATIONS.verify(alive, known=first).issued == later
    longer = issue_revocations(PITO, number=2, revoked=["c1", "c2"], now=later)
    second = REVOCATIONS.verify(longer, known=first)
    with pytest.raises(StaleList):
        REVOCATIONS.verify(alive, known=second)


# -- successions ----------------------------------------------------------------------------------------------


def succession(number: int = 0, until: datetime | None = None) -> str:
    consent = consent_to(PITO.public, MET)
    return issue_succession(PITO, new=did(MET), consent=consent, now=NOW, number=number, until=until)


def test_the_old_key_names_the_new_one() -> None:
    assert SUCCESSION.verify(succession(), now=NOW) == Succession(did(PITO), did(MET), 0, None)


def test_the_old_key_can_say_otherwise_later() -> None:
    first = succession()
    known = SUCCESSION.verify(first)
    until = NOW + timedelta(days=30)
    second = amend_succession(PITO, first, until=until, now=NOW)
    found = SUCCESSION.verify(second, known=known)
    assert found == Succession(did(PITO), did(MET), 1, until)
    again = amend_succession(PITO, second, until=NOW, now=NOW)
    assert SUCCESSION.verify(again, known=found) == Succession(did(PITO), did(MET), 2, NOW)
    with pytest.raises(BadStatement, match="number `0`"):
        SUCCESSION.verify(first, known=found)


@pytest.mark.parametrize("later", [None, NOW + timedelta(days=2)], ids=["endless", "later"])
def test_an_end_is_only_ever_brought_forward(later: datetime | None) -> None:
    ends = succession(until=NOW + timedelta(days=1))
    known = SUCCESSION.verify(ends)
    put_off = succession(number=1, until=later)  # whoever has stolen the old key can still sign this
    with pytest.raises(BadStatement) as refused:
        SUCCESSION.verify(put_off, now=NOW, known=known)
    assert refused.value.reason == "later-end"
    with pytest.raises(BadStatement) as refused:
        amend_succession(PITO, ends, until=later, now=NOW)
    assert refused.value.reason == "later-end"
    assert SUCCESSION.verify(succession(number=1, until=NOW), known=known).until == NOW


def test_nobody_follows_without_agreeing() -> None:
    # Otherwise whoever names a stranger as their successor would hold what the stranger holds.
    for consent in (consent_to(MALLORY.public, MALLORY), consent_to(SMITH.public, MET), ""):
        with pytest.raises(BadStatement) as refused:
            issue_succession(MALLORY, new=did(MET), consent=consent, now=NOW)
        assert refused.value.reason == "no-consent"


def test_only_the_old_key_amends() -> None:
    with pytest.raises(BadStatement):
        amend_succession(MALLORY, succession(), until=NOW, now=NOW)
