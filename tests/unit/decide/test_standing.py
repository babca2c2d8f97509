"""What stands of signed statements, and what falls when: D13, Capabilities III and V.C."""

from __future__ import annotations

import pytest
from hypothesis import given

from headgate.decide.apply import apply
from headgate.decide.standing import admitted, next_moment
from headgate.decide.views import entries, may_connect
from headgate.model.authority import NETWORK_ACTIONS, Certificate, NetworkAuthority, RevocationList, Succession
from headgate.model.changes import (
    Batch,
    DeclarePrincipal,
    RemovePrincipal,
    Revoke,
    SetCoordinator,
    SetKey,
    Succeed,
    Tick,
)
from headgate.model.errors import (
    AlreadyExists,
    BadDefinition,
    ChainInvalid,
    Expired,
    GovernDenied,
    HeadgateError,
    Revoked,
    StaleList,
    TooMany,
    UnknownName,
)
from headgate.model.limits import MAX_BAG
from headgate.model.rights import Action, Source
from headgate.model.state import ADMINISTRATOR, State
from strategies.authority import (
    CCS,
    CCTV,
    DIDS,
    MET,
    PITO,
    PLATE,
    SEES,
    SENDS,
    SMITH,
    Step,
    at,
    cert,
    chains,
    holders,
    over,
    present,
    revoked,
    rights,
    stories,
    then,
    told,
    world,
)
from strategies.running import examples

MET_HAS = cert("a", PITO, MET, over(), delegate=True)
SMITH_HAS = cert("b", MET, SMITH, over(PLATE, SEES, None, None, "numberplate = 'AE05 XYZ'"))
CONNECTS = NetworkAuthority(frozenset({Action.CONNECT}))


def tick(seconds: float) -> Tick:
    return Tick(at(seconds))


def refusal(state: State, change: object) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        then(state, change)  # type: ignore[arg-type]
    return caught.value


# -- presenting -----------------------------------------------------------------------------------------------


def test_a_chain_gives_an_entry_after_all_rules() -> None:
    state = world(present(SMITH, SMITH_HAS, MET_HAS))
    (rule,) = rights(state)
    assert (rule.who, rule.actions, rule.type, rule.author) == (SMITH, SEES, PLATE, PITO)
    assert rule.source is Source.CHAIN
    assert rule in entries(state, SMITH, Action.SUBSCRIBE)
    # The link of `met` alone is a chain too, to whatever types `met` owns: none.
    assert [one.author for one in chains(state)] == [MET, PITO]
    assert entries(state, MET, Action.SUBSCRIBE) == ()  # the link is the holder's to show, not another's to have


def test_what_is_shown_adds_to_what_was_shown() -> None:
    early = cert("c", PITO, SMITH, over(PLATE, SENDS))
    state = world(present(SMITH, early), present(SMITH, MET_HAS, SMITH_HAS))
    assert [rule.actions for rule in rights(state)] == [SENDS, SEES]
    assert state.bags == {SMITH: (early.key, MET_HAS.key, SMITH_HAS.key)}


def test_a_link_shown_later_completes_a_chain() -> None:
    whole = cert("c", PITO, SMITH, over(PLATE, SENDS))
    state = world(present(SMITH, whole, SMITH_HAS))  # no chain for the second, but the first has one
    assert [rule.actions for rule in rights(state)] == [SENDS]
    assert [rule.actions for rule in rights(then(state, present(SMITH, MET_HAS)))] == [SENDS, SEES]


def test_the_same_right_by_two_chains_is_one_entry() -> None:
    state = world(present(SMITH, cert("c", PITO, SMITH, over()), cert("d", PITO, SMITH, over())))
    assert len(rights(state)) == 1


@pytest.mark.parametrize(
    ("shown", "error"),
    [
        ((SMITH_HAS,), ChainInvalid),
        ((MET_HAS,), ChainInvalid),
        ((cert("x", MET, SMITH, over()),), ChainInvalid),
        ((cert("a", PITO, MET, over()), SMITH_HAS), ChainInvalid),
        ((cert("x", PITO, SMITH, over("ccs.*")),), ChainInvalid),
        ((cert("x", CCS, SMITH, over(PLATE)),), ChainInvalid),
        ((cert("x", PITO, SMITH, CONNECTS),), ChainInvalid),
        ((cert("x", PITO, SMITH, over(), until=5),), Expired),
        ((cert("x", PITO, SMITH, over(), start=6),), ChainInvalid),
        ((cert("x", PITO, SMITH, over(), freshness=60),), ChainInvalid),
        ((cert("gone", PITO, SMITH, over()),), Revoked),
        ((cert("gone", PITO, MET, over(), delegate=True), SMITH_HAS), Revoked),
    ],
    ids=["no-root", "anothers", "wrong-root", "no-delegation", "beyond", "beyond-too", "no-coordinator", "expired",
         "not-yet", "never-heard", "revoked", "revoked-link"],
)  # fmt: skip
def test_what_completes_no_chain_is_refused(shown: tuple[Certificate, ...], error: type[HeadgateError]) -> None:
    state = world(revoked(CCS, 1), revoked(PITO, 1, "gone") if error is Revoked else tick(0))
    with pytest.raises(error) as caught:
        then(state, present(SMITH, *shown, now=5))
    assert type(caught.value) is error


def test_only_what_is_in_force_is_kept() -> None:
    good, early, late = (
        cert("g", PITO, SMITH, over()),
        cert("e", PITO, SMITH, over("*"), until=5),
        cert("l", PITO, SMITH, over("uk.*"), start=6),
    )
    state = world(present(SMITH, good, early, late, now=5))
    assert set(state.certificates) == {good.key}


def test_a_certificate_is_known_by_its_issuer_and_id() -> None:
    state = world(present(SMITH, cert("a", PITO, SMITH, over())))
    assert isinstance(refusal(state, present(CCTV, cert("a", PITO, CCTV, over()))), AlreadyExists)
    assert then(state, present(SMITH, cert("a", CCS, SMITH, over("ccs.*")))).version == 3


def test_a_bag_has_an_end() -> None:
    many = [cert(f"c{n}", PITO, SMITH, over()) for n in range(MAX_BAG + 1)]
    state = world(present(SMITH, *many[:-1]))
    assert isinstance(refusal(state, present(SMITH, many[-1])), TooMany)


def test_nobody_else_says_what_was_shown() -> None:
    state = world()
    for change in (present(SMITH, SMITH_HAS, MET_HAS), revoked(MET, 1, "b"), tick(1), SetCoordinator(MET)):
        with pytest.raises(GovernDenied):
            apply(state, Batch(MET, (change,)))
    assert isinstance(refusal(state, present("nobody", SMITH_HAS, MET_HAS)), UnknownName)


def test_the_network_is_the_coordinators_to_give() -> None:
    joins, lets_in = cert("n", ADMINISTRATOR, MET, CONNECTS, delegate=True), cert("m", MET, SMITH, CONNECTS)
    state = world(present(SMITH, joins, lets_in))
    assert may_connect(state, SMITH)
    assert not may_connect(state, MET)
    moved = then(state, SetCoordinator(PITO))
    assert not may_connect(moved, SMITH)
    assert isinstance(refusal(moved, present(SMITH, joins, lets_in)), ChainInvalid)
    both = NetworkAuthority(NETWORK_ACTIONS)
    assert may_connect(then(moved, present(SMITH, cert("p", PITO, SMITH, both))), SMITH)


# -- revoking -------------------------------------------------------------------------------------------------


def test_revoking_a_link_takes_what_has_no_other_chain() -> None:
    other = cert("c", PITO, SMITH, over(PLATE, SENDS))
    state = world(present(SMITH, MET_HAS, SMITH_HAS, other), present(CCTV, cert("d", MET, CCTV, over()), MET_HAS))
    after = then(state, revoked(PITO, 1, "a"))
    assert [(rule.who, rule.actions) for rule in rights(after)] == [(SMITH, SENDS)]
    assert after.version == state.version + 1
    assert MET_HAS.key not in after.certificates
    assert CCTV in after.bags  # its own link still stands, with nothing to hang on


def test_a_right_with_another_chain_stays() -> None:
    also = cert("also", PITO, MET, over("*"), delegate=True)
    state = world(present(SMITH, MET_HAS, SMITH_HAS, also))
    assert len(rights(state)) == 1
    assert rights(then(state, revoked(PITO, 1, "a"))) == rights(state)
    assert rights(then(state, revoked(PITO, 2, "a", "also"))) == []


def test_what_was_revoked_does_not_come_back() -> None:
    state = world(present(SMITH, MET_HAS, SMITH_HAS), revoked(PITO, 1, "a"), revoked(PITO, 2))
    assert rights(state) == []  # the new list has it no more, and still it has to be shown again
    assert holders(then(state, present(SMITH, MET_HAS))) == {SMITH}


def test_only_its_issuer_revokes_a_certificate() -> None:
    state = world(present(SMITH, MET_HAS, SMITH_HAS), revoked(PITO, 1, "b"), revoked(MET, 1, "a"))
    assert holders(state) == {SMITH}


@pytest.mark.parametrize(("number", "ids"), [(1, ("a", "b")), (2, ("a",)), (2, ()), (2, ("a", "b", "c"))], ids=str)
def test_a_list_that_is_not_newer_is_refused(number: int, ids: tuple[str, ...]) -> None:
    state = world(revoked(PITO, 2, "a", "b"))
    assert isinstance(refusal(state, revoked(PITO, number, *ids)), StaleList)
    assert then(state, revoked(PITO, 3)).lists[PITO].revoked == frozenset()
    assert then(state, revoked(MET, 1)).lists[PITO].number == 2


def test_a_list_heard_late_does_not_make_an_issuer_older() -> None:
    state = world(revoked(PITO, 1, issued=9), revoked(PITO, 2, "x", issued=3, now=9))
    assert state.lists[PITO] == RevocationList(PITO, 2, at(9), frozenset({"x"}))


# -- the clock ------------------------------------------------------------------------------------------------


def test_validity_ends_just_before_its_end() -> None:
    state = world(present(SMITH, cert("c", PITO, SMITH, over(), until=10)))
    assert next_moment(state, at(0)) == at(10)
    assert holders(then(state, tick(9.999999))) == {SMITH}
    over_by_now = then(state, tick(10))
    assert (rights(over_by_now), dict(over_by_now.certificates), dict(over_by_now.bags)) == ([], {}, {})
    assert next_moment(over_by_now, at(0)) is None


def test_the_shortest_link_ends_a_chain() -> None:
    short = cert("a", PITO, MET, over(), delegate=True, until=4)
    state = world(present(SMITH, short, cert("b", MET, SMITH, over(), until=8)))
    assert next_moment(state, at(0)) == at(4)
    assert rights(then(state, tick(4))) == []


def test_an_issuer_that_falls_silent_is_unknown_and_heals() -> None:
    kept = cert("c", PITO, SMITH, over(), freshness=5)
    state = world(revoked(PITO, 1, issued=0), present(SMITH, kept))
    assert next_moment(state, at(0)) == at(5)
    assert holders(then(state, tick(4))) == {SMITH}
    silent = then(state, tick(5))
    assert rights(silent) == []
    assert silent.bags == {SMITH: (kept.key,)}
    heard = then(silent, revoked(PITO, 1, issued=7))
    assert holders(heard) == {SMITH}
    assert next_moment(heard, at(7)) == at(12)
    assert rights(then(silent, revoked(PITO, 2, "c", issued=7))) == []


def test_a_sign_of_life_that_is_too_old_heals_nothing() -> None:
    state = world(revoked(PITO, 1), present(SMITH, cert("c", PITO, SMITH, over(), freshness=5)), tick(20))
    assert rights(then(state, revoked(PITO, 1, issued=14, now=20))) == []
    assert holders(then(state, revoked(PITO, 1, issued=16, now=20))) == {SMITH}


def test_what_comes_back_comes_last() -> None:
    silent = cert("c", PITO, SMITH, over(PLATE, SEES), freshness=5)
    state = world(revoked(PITO, 1), present(SMITH, silent), present(SMITH, cert("d", PITO, SMITH, over(PLATE, SENDS))))
    assert [rule.actions for rule in rights(state)] == [SEES, SENDS]
    healed = then(state, tick(5), revoked(PITO, 1, issued=6))
    assert [rule.actions for rule in rights(healed)] == [SENDS, SEES]


# -- keys -----------------------------------------------------------------------------------------------------


def test_chains_through_an_old_key_go_on() -> None:
    state = world(present(SMITH, MET_HAS, SMITH_HAS), Succeed(Succession(MET, DIDS[0]), at(1)))
    assert holders(state) == {SMITH}
    anew = cert("e", DIDS[0], CCTV, over())
    assert holders(then(state, present(CCTV, MET_HAS, anew, now=2))) == {SMITH, CCTV}


def test_until_the_principal_says_otherwise() -> None:
    keyed = world(SetKey(MET, DIDS[0]))
    shown = cert("a", PITO, DIDS[0], over(), delegate=True), cert("b", DIDS[0], SMITH, over())
    state = then(keyed, present(SMITH, *shown), Succeed(Succession(DIDS[0], DIDS[1]), at(1)))
    assert state.keys == {MET: DIDS[1]}
    assert holders(state) == {SMITH}
    ending = then(state, Succeed(Succession(DIDS[0], DIDS[1], 1, at(9)), at(2)))
    assert next_moment(ending, at(2)) == at(9)
    assert holders(then(ending, tick(8))) == {SMITH}
    ended = then(ending, tick(9))
    assert rights(ended) == []
    # What was issued to the old key still is the principal's: only what the old key signed counts no more.
    assert holders(then(ended, present(SMITH, shown[0], cert("n", DIDS[1], SMITH, over()), now=10))) == {SMITH}


def test_a_successor_revokes_what_the_old_key_signed() -> None:
    state = world(present(SMITH, MET_HAS, SMITH_HAS), Succeed(Succession(MET, DIDS[0]), at(1)))
    assert rights(then(state, revoked(DIDS[0], 1, "b"))) == []


@pytest.mark.parametrize(
    ("succession", "error"),
    [
        (Succession(DIDS[0], DIDS[1], 1), StaleList),
        (Succession(DIDS[0], DIDS[1], 0), StaleList),
        (Succession(DIDS[0], DIDS[2], 2), BadDefinition),
        (Succession(DIDS[1], DIDS[0]), BadDefinition),
        (Succession(DIDS[2], DIDS[3]), BadDefinition),
    ],
    ids=["again", "older", "another", "circle", "held"],
)
def test_successions_that_cannot_be(succession: Succession, error: type[HeadgateError]) -> None:
    state = world(SetKey(CCS, DIDS[3]), Succeed(Succession(DIDS[0], DIDS[1], 1), at(0)))
    assert type(refusal(state, Succeed(succession, at(1)))) is error


def test_a_key_given_by_decree_brings_nothing_of_the_old_one() -> None:
    state = world(present(SMITH, MET_HAS, SMITH_HAS), present(CCTV, cert("c", PITO, CCTV, over())))
    assert holders(then(state, SetKey(SMITH, DIDS[0]))) == {CCTV}  # it held a key that is not its key any more
    assert holders(then(state, SetKey(PITO, DIDS[0]))) == set()  # the owner's old key owns nothing
    again = then(state, SetKey(PITO, DIDS[0]))
    assert isinstance(refusal(again, present(CCTV, cert("c", PITO, CCTV, over()))), ChainInvalid)
    assert holders(then(again, present(CCTV, cert("c", DIDS[0], CCTV, over())))) == {CCTV}
    assert then(state, SetKey(CCS, DIDS[1])).bags == state.bags


def test_a_principal_that_goes_takes_what_rests_on_it() -> None:
    state = world(present(SMITH, MET_HAS, SMITH_HAS), present(CCTV, cert("c", PITO, CCTV, over())))
    gone = then(state, RemovePrincipal(SMITH))
    assert holders(gone) == {CCTV}
    assert set(gone.certificates) == {"pito#c"}
    assert holders(then(gone, DeclarePrincipal(SMITH), tick(1))) == {CCTV}


# -- together -------------------------------------------------------------------------------------------------


@examples(150)
@given(stories(steps=14))
def test_what_is_admitted_is_what_can_be_derived(story: tuple[list[Certificate], list[Step]]) -> None:
    before, moment = world(), at(0)
    for state, now, batch in told(story):
        have = {rule.id: rule for rule in chains(state)}
        assert have == admitted(state, now)
        kept = [rule for rule in chains(before) if rule.id in have]
        assert chains(state)[: len(kept)] == kept
        (change,) = batch.changes
        takes = isinstance(change, (Tick, SetKey, SetCoordinator, RemovePrincipal))
        if takes or (isinstance(change, Revoke) and not _heals(before, change)):
            assert have.keys() <= {rule.id for rule in chains(before)}
        assert {key for bag in state.bags.values() for key in bag} == set(state.certificates)
        later = next_moment(state, now)
        assert later is None or later > now
        assert moment <= now
        before, moment = state, now


def _heals(state: State, change: Revoke) -> bool:
    """Is someone heard whose silence made certificates unknown?"""
    return any(one.freshness is not None for one in state.certificates.values())
