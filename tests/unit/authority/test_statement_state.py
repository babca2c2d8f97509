"""What stands of signed statements, and what falls when: D13, Capabilities III and V.C."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

from headgate.authority.statement_state import StatementState, admitted, next_moment
from headgate.decide.apply import apply
from headgate.decide.views import entries, may_connect
from headgate.model.authority import NETWORK_ACTIONS, Certificate, NetworkAuthority, RevocationList, Succession
from headgate.model.changes import (
    Batch,
    DeclarePrincipal,
    DeclareType,
    RemovePrincipal,
    Revoke,
    SetCoordinator,
    SetKey,
    SetNetwork,
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
from headgate.model.types import EventType
from headgate.model.values import Kind
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


def test_whether_a_pattern_is_admitted_does_not_depend_on_what_others_own() -> None:
    """An owner's pattern is, though only others have types below it; it reaches those of the owner alone (D5)."""
    state = world(present(SMITH, cert("x", PITO, SMITH, over("ccs.*"))))
    state = then(state, present(SMITH, cert("y", PITO, SMITH, over("nowhere.*"))))
    assert [rule.type for rule in chains(state)] == ["ccs.*", "nowhere.*"]
    assert rights(state) == []
    state = then(state, DeclareType(EventType("ccs.Copy", PITO, {"n": Kind.INT})))
    assert [rule.type for rule in rights(state)] == ["ccs.*"]


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
        ((cert("x", MET, SMITH, over("nowhere.*")),), ChainInvalid),
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
    mine = present(SMITH, SMITH_HAS, MET_HAS), revoked(MET, 1, "b"), tick(1), SetCoordinator(MET), SetNetwork("mine")
    for change in mine:
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


def test_a_network_has_a_name_where_it_is_given_one() -> None:
    here, there = (NetworkAuthority(frozenset({Action.CONNECT}), name) for name in ("here", "there"))
    unnamed = world(SetCoordinator(PITO))
    assert may_connect(then(unnamed, present(SMITH, cert("t", PITO, SMITH, there))), SMITH)
    state = then(unnamed, SetNetwork("here"))
    error = refusal(state, present(SMITH, cert("t", PITO, SMITH, there)))
    assert isinstance(error, ChainInvalid)
    assert "the network `there`" in error.message
    for authority in (here, CONNECTS):
        assert may_connect(then(state, present(SMITH, cert("h", PITO, SMITH, authority))), SMITH)
    joins = cert("n", PITO, MET, CONNECTS, delegate=True)
    assert isinstance(refusal(state, present(SMITH, joins, cert("m", MET, SMITH, there))), ChainInvalid)
    assert may_connect(then(state, present(SMITH, joins, cert("m", MET, SMITH, here))), SMITH)


def test_another_name_of_the_network_takes_what_was_shown_for_one() -> None:
    there = NetworkAuthority(frozenset({Action.CONNECT}), "there")
    state = world(
        SetCoordinator(PITO),
        present(SMITH, cert("t", PITO, SMITH, there)),
        present(CCTV, MET_HAS, cert("c", PITO, CCTV, over())),
    )
    named = then(state, SetNetwork("here"))
    assert not may_connect(named, SMITH)
    assert holders(named) == {CCTV}
    assert then(named, SetNetwork("here")).bags == named.bags
    assert may_connect(then(named, SetNetwork(None), present(SMITH, cert("t", PITO, SMITH, there))), SMITH)
    for name in ("*", "", "a\nb"):
        assert isinstance(refusal(state, SetNetwork(name)), BadDefinition)


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


# -- limits ---------------------------------------------------------------------------------------------------


HARMLESS = cert("ok", CCS, SMITH, over("ccs.*"))


def ladder(width: int = 4, layers: int = 6) -> list[Certificate]:
    """Each key of a layer certifies each of the next, and those of the last `pito`: more chains than are followed."""
    rows = [*([f"k{layer}.{n}" for n in range(width)] for layer in range(layers)), [PITO]]
    pairs = [(a, b) for upper, lower in pairwise(rows) for a in upper for b in lower]
    return [cert(f"j{n}", a, b, over("*"), delegate=True) for n, (a, b) in enumerate(pairs)]


def laden() -> State:
    """`smith` has shown something harmless and a ladder to `pito`, which is not heard; `cctv` has a right of `pito`."""
    mine = cert("mine", PITO, SMITH, over("*"), freshness=60)
    return world(present(CCTV, cert("held", PITO, CCTV, over())), present(SMITH, HARMLESS, mine, *ladder()))


def test_a_bag_that_comes_to_be_too_much_stops_no_revocation() -> None:
    state = laden()
    assert holders(state) == {CCTV, SMITH}
    after = then(state, revoked(PITO, 1, "held"))
    assert chains(after) == []  # what was revoked falls, and whoever has shown too much has nothing
    assert admitted(after, at(0)) == {}
    later = then(after, tick(60))
    assert holders(later) == {SMITH}  # `pito` is silent, and what is left is not too much
    assert {rule.id for rule in chains(later)} == admitted(later, at(60)).keys()


def test_a_bag_that_comes_to_be_too_much_stops_no_clock_and_no_key() -> None:
    ends = cert("ends", PITO, CCTV, over(), until=5)
    state = then(laden(), present(CCTV, ends), revoked(PITO, 1), revoked(PITO, 2, "held"))
    assert holders(state) == {CCTV}
    assert holders(then(state, tick(5))) == set()
    follows = then(state, Succeed(Succession(MET, DIDS[0]), at(1)))
    assert holders(follows) == {CCTV}


def test_what_is_too_much_is_refused_when_it_is_shown() -> None:
    state = world(revoked(PITO, 1))
    mine = cert("mine", PITO, SMITH, over("*"), freshness=60)
    error = refusal(state, present(SMITH, HARMLESS, mine, *ladder()))
    assert isinstance(error, ChainInvalid)
    assert "MAX_CHAINS" in error.message


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


@pytest.mark.parametrize("until", [None, 10], ids=["endless", "later"])
def test_an_end_is_only_ever_brought_forward(until: int | None) -> None:
    ends = Succession(DIDS[0], DIDS[1], 0, at(9))
    state = world(SetKey(MET, DIDS[0]), Succeed(ends, at(1)))
    for when in (2, 20):
        put_off = Succeed(Succession(DIDS[0], DIDS[1], 1, None if until is None else at(until)), at(when))
        assert isinstance(refusal(state, put_off), BadDefinition)
    sooner = then(state, Succeed(Succession(DIDS[0], DIDS[1], 1, at(9)), at(2)))
    assert then(sooner, Succeed(Succession(DIDS[0], DIDS[1], 2, at(5)), at(3))).successions[DIDS[0]].until == at(5)


def test_a_key_that_ended_signs_nothing_that_counts() -> None:
    stands = StatementState(world(Succeed(Succession(DIDS[0], DIDS[1], 0, at(9)), at(1))))
    assert [stands.counts(DIDS[0], at(when)) for when in (0, 8, 9, 99)] == [True, True, False, False]
    assert stands.counts(DIDS[1], at(99))
    assert stands.counts(PITO, at(99))


def test_a_key_that_ended_is_no_sign_of_life() -> None:
    shown = cert("c", DIDS[1], SMITH, over(), freshness=50)
    keyed = world(SetKey(PITO, DIDS[0]), Succeed(Succession(DIDS[0], DIDS[1], 0, at(9)), at(1)))
    state = then(keyed, revoked(DIDS[0], 1, issued=2), present(SMITH, shown, now=3))
    assert holders(state) == {SMITH}
    assert next_moment(state, at(3)) == at(9)
    silent = then(state, tick(9))
    assert holders(silent) == set()
    assert holders(then(silent, revoked(DIDS[0], 2, issued=20))) == set()
    heard = then(silent, revoked(DIDS[1], 1, issued=20))
    assert holders(heard) == {SMITH}
    assert next_moment(heard, at(20)) == at(70)
    assert holders(then(heard, tick(69))) == {SMITH}


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
        takes = isinstance(change, (Tick, SetKey, SetCoordinator, SetNetwork, RemovePrincipal))
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
