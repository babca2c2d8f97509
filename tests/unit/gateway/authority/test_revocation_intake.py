"""Whose revocation lists count, when they are news, and how many are taken up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headgate.commands.statements import (
    LIST_SECONDS,
    LISTS_OF_ALL,
    LISTS_PER_ISSUER,
    IntakePace,
    is_chosen,
    is_news,
    rests_on,
    takes_away,
)
from headgate.model.authority import (
    Attested,
    Certificate,
    Identity,
    NetworkAuthority,
    Provider,
    RevocationList,
    Succession,
    Validity,
)
from headgate.model.errors import StaleList, TooBusy
from headgate.model.rights import Action
from headgate.model.state import State
from headgate.model.types import Catalog, EventType

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONNECT = (NetworkAuthority(frozenset({Action.CONNECT})),)


def certificate(issuer: str, id: str = "c", freshness: int | None = None) -> Certificate:
    return Certificate(id, issuer, "holder", CONNECT, freshness=freshness)


def listed(issuer: str, number: int, *ids: str, seconds: float = 0) -> RevocationList:
    return RevocationList(issuer, number, NOW + timedelta(seconds=seconds), frozenset(ids))


STATE = State(
    coordinator="root",
    principals={"member": {}, "owner": {}},
    types=Catalog().declare(EventType("a.Type", "owner", {})),
    keys={"member": "key-of-member"},
    providers={"idp": Provider("idp", "idp")},
    certificates={"issuer#c": certificate("issuer")},
    identities={"guests#i": Attested("member", Identity("i", "guests", "key-of-member", {}, Validity(NOW)))},
    lists={"gone": listed("gone", 7)},
    successions={"issuer": Succession("issuer", "issuer-2")},
)


def test_an_issuer_counts_while_something_rests_on_it() -> None:
    for issuer in ("root", "idp", "issuer", "issuer-2", "guests", "owner", "followed"):
        assert rests_on(STATE, issuer, {"followed"}), issuer
    for issuer in ("gone", "key-of-member", "holder", "anyone"):
        assert not rests_on(STATE, issuer, {"followed"}), issuer
    assert rests_on(STATE, "anyone", (), [certificate("anyone")])
    assert [is_chosen(STATE, one, {"followed"}) for one in ("root", "idp", "followed", "issuer", "guests")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_list_is_news_by_its_number_or_where_a_sign_of_life_is_needed() -> None:
    assert is_news(STATE, listed("issuer", 0), NOW)
    for stale in (listed("gone", 6), listed("gone", 7, "other")):
        with pytest.raises(StaleList):
            is_news(STATE, stale, NOW)
    assert is_news(STATE, listed("gone", 8), NOW)
    again, later = listed("gone", 7, seconds=20), NOW + timedelta(seconds=20)
    assert not is_news(STATE, again, later)
    assert not is_news(STATE, again, later, [certificate("gone", freshness=60)])
    assert is_news(STATE, again, later, [certificate("gone", freshness=40)])


def test_a_list_takes_away_what_stands_and_is_on_it() -> None:
    assert takes_away(STATE, listed("issuer", 1, "c"))
    assert takes_away(STATE, listed("issuer-2", 1, "c"))
    assert takes_away(STATE, listed("guests", 1, "i"))
    assert not takes_away(STATE, listed("issuer", 1, "other"))
    assert not takes_away(STATE, listed("another", 1, "c"))


def test_an_issuer_has_so_many_versions_in_a_while_and_another_has_its_own() -> None:
    pace = IntakePace()
    for _ in range(LISTS_PER_ISSUER):
        pace.check("a", NOW, bites=True)
        pace.count("a", NOW, bites=True)
    with pytest.raises(TooBusy):
        pace.check("a", NOW, bites=True)
    pace.check("b", NOW, bites=True)
    pace.check("a", NOW + timedelta(seconds=LIST_SECONDS), bites=True)


def test_lists_that_take_nothing_away_are_bounded_together_and_hold_up_no_revocation() -> None:
    pace = IntakePace()
    for n in range(LISTS_OF_ALL):
        pace.check(f"issuer {n}", NOW, bites=False)
        pace.count(f"issuer {n}", NOW, bites=False)
    with pytest.raises(TooBusy):
        pace.check("another", NOW, bites=False)
    pace.check("another", NOW, bites=True)
    pace.check("another", NOW - timedelta(days=1), bites=False)  # the clock was set back
