"""The one commit loop, and the use cases of a principal on a local domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.commands import event_types, explaining, subscriptions
from headgate.commands.commit import TRIES, LedgerAccess, RequestPaces, commit, submit
from headgate.model.changes import AddRule, Batch, Change, DeclareGroup, DeclarePrincipal
from headgate.model.errors import AlreadyExists, GovernDenied, NotFound, TooBusy, TooMany, UnknownType, VersionConflict
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.domain import Domain, Follower, utc_now

SALE = EventType("shop.Sale", "ann", {"price": Kind.INT})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[LedgerAccess]:
    with Domain.create(tmp_path / "domain") as domain:
        rule = Rule(
            "all", "ann", frozenset({Action.INSTALL, Action.GOVERN, Action.PUBLISH, Action.SUBSCRIBE}), "shop.*"
        )
        domain.commit(Batch(ADMINISTRATOR, (DeclarePrincipal("ann"), DeclarePrincipal("bob"), AddRule(rule))))
        follower = Follower(domain)
        yield LedgerAccess(domain, follower)
        follower.close()


class Busy:
    """A ledger to which somebody else commits just before."""

    def __init__(self, domain: Domain, times: int) -> None:
        self.domain = domain
        self.times = times

    def commit(self, batch: Batch, *, expect: int | None = None) -> int:
        if self.times:
            self.times -= 1
            self.domain.commit(Batch(ADMINISTRATOR, (DeclareGroup(f"other-{self.times}"),)))
        return self.domain.commit(batch, expect=expect)


def counting(seen: list[int]) -> Callable[[State], list[Change]]:
    def make(state: State) -> list[Change]:
        seen.append(state.version)
        return [DeclareGroup(f"of-{len(state.groups)}")]

    return make


# -- committing -------------------------------------------------------------------------------------------------


def test_changes_are_made_anew_from_the_version_before_their_own(ledger: LedgerAccess) -> None:
    seen: list[int] = []
    made = commit(Busy(ledger.domain, 3), ledger.follower, counting(seen), "groups")
    assert seen == [1, 2, 3, 4]
    assert (made.version, made.state.version) == (5, 5)
    assert "of-3" in made.state.groups
    assert ledger.domain.ledger.versions(4)[0].note == "groups"


def test_nothing_to_change_makes_no_version(ledger: LedgerAccess) -> None:
    made = commit(ledger.domain, ledger.follower, lambda _: (), "nothing")
    assert (made.version, made.state.version, ledger.domain.ledger.version) == (None, 1, 1)


def test_a_ledger_that_keeps_changing_is_given_up(ledger: LedgerAccess) -> None:
    seen: list[int] = []
    with pytest.raises(VersionConflict, match="keeps changing"):
        commit(Busy(ledger.domain, TRIES), ledger.follower, counting(seen), "never")
    assert len(seen) == TRIES


def test_a_given_batch_is_checked_by_the_newest_state_and_then_known(ledger: LedgerAccess) -> None:
    ledger.domain.commit(Batch(ADMINISTRATOR, (DeclareGroup("g"),)))  # which is not known here yet
    seen: list[int] = []
    version = submit(
        ledger.domain,
        ledger.follower,
        Batch(ADMINISTRATOR, (DeclareGroup("h"),)),
        check=lambda state: seen.append(state.version),
    )
    assert (seen, version, ledger.state.version) == ([2], 3, 3)
    with pytest.raises(VersionConflict):
        submit(ledger.domain, ledger.follower, Batch(ADMINISTRATOR, (DeclareGroup("i"),)), expect=1)


def test_whoever_changes_something_is_paced_first(ledger: LedgerAccess) -> None:
    def refuse(principal: str) -> None:
        raise TooMany(principal)

    paced = LedgerAccess(ledger.domain, ledger.follower, refuse)
    with pytest.raises(TooMany, match="ann"):
        paced.change("ann", [DeclareGroup("g")])
    assert ledger.domain.ledger.version == 1


# -- types and subscriptions --------------------------------------------------------------------------------------


def test_what_is_so_already_makes_no_version(ledger: LedgerAccess) -> None:
    assert event_types.declare(ledger, "ann", SALE)
    assert not event_types.declare(ledger, "ann", SALE)
    assert event_types.advertise(ledger, "ann", SALE.name)
    assert not event_types.advertise(ledger, "ann", SALE.name)
    assert event_types.advertised(ledger, "ann") == [SALE.name]
    assert ledger.state.version == 3
    event_types.unadvertise(ledger, "ann", SALE.name)
    with pytest.raises(NotFound):
        event_types.unadvertise(ledger, "ann", SALE.name)
    with pytest.raises(UnknownType):
        event_types.advertise(ledger, "ann", "shop.Other")
    with pytest.raises(GovernDenied):
        event_types.retire(ledger, "bob", SALE.name)
    event_types.retire(ledger, "ann", SALE.name)
    assert SALE.name not in ledger.state.types


def test_a_subscription_is_its_principals_own(ledger: LedgerAccess) -> None:
    event_types.declare(ledger, "ann", SALE)
    name = subscriptions.ledger_id("ann", "all")
    wanted = Subscription(name, "ann", SALE.name)
    made, is_new = subscriptions.subscribe(ledger, wanted, most=1)
    assert (is_new, made.id, subscriptions.local_id("ann", made.id)) == (True, name, "all")
    assert subscriptions.subscribe(ledger, wanted, most=1) == (made, False)
    with pytest.raises(AlreadyExists, match="`all`"):
        subscriptions.subscribe(ledger, Subscription(name, "ann", SALE.name, history=True), most=1)
    with pytest.raises(TooMany):
        subscriptions.subscribe(ledger, Subscription(subscriptions.ledger_id("ann", "more"), "ann", SALE.name), most=1)
    assert subscriptions.own_subscription(ledger, "ann", "all") == made
    for id in ("all", "none"):
        with pytest.raises(NotFound, match=f"`{id}`"):
            subscriptions.own_subscription(ledger, "bob", id)
    assert explaining.restriction(ledger.domain, "ann", name).satisfiable
    assert explaining.type_restriction(ledger.domain, "bob", SALE.name).satisfiable is False
    assert explaining.publish_restriction(ledger.domain, "ann", "ann", SALE.name).reason is None
    subscriptions.unsubscribe(ledger, "ann", name)
    assert subscriptions.known_subscription(ledger, "ann", "all") is None


# -- how often ------------------------------------------------------------------------------------------------


def test_who_asks_too_often_is_told_of_what_there_was_too_much(ledger: LedgerAccess) -> None:
    now = utc_now()
    paces = RequestPaces(ledger.follower, versions=1, refused=1, clock=lambda: now)
    paces.version("ann")
    with pytest.raises(TooBusy, match="has made as many versions as it may"):
        paces.version("ann")
    paces.version(ADMINISTRATOR)
    paces.version(ADMINISTRATOR)
    paces.count_refused("ann", 10)
    with pytest.raises(TooBusy, match="has sent as much that was refused as it may"):
        paces._refused.check("ann", now)
