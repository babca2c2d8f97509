"""Whatever happens to roles, what is in force is what plain readings of the rules say, with and without a kept book."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import (
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    ElectRole,
    EndCredential,
    EnterRole,
    GrantRole,
    HearPeer,
    MirrorRole,
    SetPeer,
    SetRolefile,
    Settle,
    WatchRecords,
)
from headgate.model.errors import GovernDenied, HeadgateError
from headgate.model.roles import Membership, Peer, RoleFacts, reference
from headgate.model.state import ADMINISTRATOR, State
from headgate.roles.records.book import Book
from headgate.roles.records.facts import Mirrored, text_of
from headgate.roles.requests.transition import Outcome, transition
from strategies.roles import SETTING, START, Step, Walk, walks
from strategies.rolestories import Model, Story, listening
from strategies.running import examples


def one_by_one(walk: Walk, length: int) -> list[Change]:
    """What the model is told first, one change at a time."""
    return [*SETTING.changes, SetRolefile("Conf", walk.rolefile())][:length]


class Run:
    """A history, version by version, with a kept book and a model beside it."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.state = State()
        self.book: Book | None = None
        self.model = Model()

    def step(self, *changes: Change) -> Outcome | None:
        """One version; None if it is refused."""
        batch = Batch(ADMINISTRATOR, changes)
        with listening() as heard:
            try:
                made = transition(self.state, batch, book=self.book, now=START)
            except HeadgateError:
                return None
        self.state, self.book = made.after, made.book
        self.model.now = START
        self.model.step(changes, self.state, heard)
        return made

    def next_changes(self) -> list[Change]:
        """What the world says, and mostly a request."""
        told = [self.walk.surrounding(self.state) for _ in range(self.walk.rng.choice([0, 0, 1, 2, 4]))]
        return [*told, self.walk.request(self.state)] if not told or self.walk.odds(2) else told


@given(walks())
@examples(24, soak=60)
def test_what_is_in_force_is_what_looking_at_everything_again_says(walk: Walk) -> None:
    run = Run(walk)
    for change in one_by_one(walk, 99):
        run.step(change)
    for _ in range(25):
        change = run.next_changes()
        run.step(*change)
        found = {id: one.state for id, one in run.state.roles.memberships.items()}
        assert found == {id: kept.node.state for id, kept in run.model.members.items()}, change
        assert run.state.roles.elections.keys() == run.model.elections.keys(), change


@given(walks())
@example(Walk(Random(1573482)))  # another domain revokes what is mirrored here, and something still rests on it
@examples(14, soak=35)
def test_a_kept_book_is_as_one_made_from_the_state_also_after_refusals(walk: Walk) -> None:
    state, book = State(), None
    for step in walk.steps(8, 16):
        a_refusal_changes_nothing(state, book, step)
        alone = transition(state, step.accepted, now=step.now)
        kept = transition(state, step.accepted, book=book, now=step.now)
        assert alone.after == kept.after
        assert alone.batch == kept.batch
        assert alone.after.roles.held == kept.after.roles.held
        state, book = kept.after, kept.book
        if book is not None:
            assert as_told(book) == as_told(Book(state))


def as_told(book: Book) -> tuple[object, ...]:
    """A book by what it holds: the records, who uses them, who holds what, which facts are looked at."""
    users = {ref: list(ids) for ref, ids in book.index.users.items()}
    members = {office: list(ids) for office, ids in book.index.members.items()}
    return {one.ref: one for one in book.records.records()}, users, members, book.interest.texts()


def a_refusal_changes_nothing(state: State, book: Book | None, step: Step) -> None:
    made_anew = None if book is None else as_told(Book(state))
    for change in step.batch.changes:
        whole = Batch(ADMINISTRATOR, (change, EndCredential("nobody")))
        with pytest.raises(HeadgateError):
            transition(state, whole, book=book, now=step.now)
        if book is not None:
            assert book.version == state.version
            assert as_told(book) == made_anew
    assert book is None or as_told(Book(state)) == made_anew


@given(walks())
@examples(14, soak=35)
def test_whatever_ends_has_a_reason_and_leaves_nothing_behind(walk: Walk) -> None:
    state = State()
    for step in walk.steps(6, 14):
        made = step.outcome
        settled = [change.facts for change in made.batch.changes if isinstance(change, Settle)]
        told = {one.id: one.reason for facts in settled for one in facts.ended}
        old = {**state.roles.memberships, **state.roles.elections}
        new = {**made.after.roles.memberships, **made.after.roles.elections}
        assert {id for id in old if id not in new} <= told.keys()
        assert all(told.values())
        state = made.after
    watched = {one.record for one in state.roles.watches}
    for watch in list(state.roles.watches):
        state = transition(state, Batch(ADMINISTRATOR, (WatchRecords(watch.watcher, (watch.record,), False),))).after
    for id in [*state.roles.memberships, *state.roles.elections]:
        if id in state.roles.memberships or id in state.roles.elections:
            state = transition(state, Batch(ADMINISTRATOR, (EndCredential(id),))).after
    assert not state.roles.memberships
    assert not state.roles.elections
    assert not state.roles.held
    assert not state.roles.records, watched


@given(walks())
@examples(24, soak=60)
def test_a_reference_of_what_has_ended_is_false_for_ever(walk: Walk) -> None:
    over: set[int] = set()
    for step in walk.steps(10, 20):
        roles, before = step.outcome.after.roles, step.state.roles
        now = {one.record for one in roles.memberships.values()}
        over |= {one.record for one in before.memberships.values()} - now
        assert not over & now
        for ref in over & roles.records.keys():
            assert roles.records[ref].state is False
        assert len({ref >> 32 for ref in roles.records}) == len(roles.records)


@given(st.integers(0, 2**16))
@examples(30)
def test_the_whole_batch_at_once_or_its_requests_one_by_one(seed: int) -> None:
    """Requests of one batch happen one after the other, at one time."""
    walk = Walk(Random(seed))
    *_, last = walk.steps(4, 8)
    moment = START + timedelta(seconds=walk.rng.randrange(60))
    drawn = [walk.request(last.outcome.after) for _ in range(3)]
    requests = [replace(one, at=moment) if hasattr(one, "at") else one for one in drawn]
    state = last.outcome.after
    accepted: list[Change] = []
    ended: set[str] = set()
    for change in requests:
        try:
            after = transition(state, Batch(ADMINISTRATOR, (change,)), now=moment).after
        except HeadgateError:
            continue
        ended |= {*state.roles.memberships, *state.roles.elections} - {*after.roles.memberships, *after.roles.elections}
        accepted.append(change)
        state = after
    started = {one.id for one in accepted if isinstance(one, EnterRole | GrantRole | MirrorRole | ElectRole)}
    if started & ended:
        return  # an id that has ended in a batch is not used again in it
    at_once = transition(last.outcome.after, Batch(ADMINISTRATOR, tuple(accepted)), now=moment).after
    shape = {(one.id, one.role, one.args, one.state) for one in at_once.roles.memberships.values()}
    assert shape == {(one.id, one.role, one.args, one.state) for one in state.roles.memberships.values()}


# -- by hand ------------------------------------------------------------------------------------------------------


def test_only_who_governs_the_domain_asks() -> None:
    state = transition(State(), Batch(ADMINISTRATOR, (DeclarePrincipal("ann"),))).after
    with pytest.raises(GovernDenied):
        transition(state, Batch("ann", (GrantRole("a", "L", "On", (), "ann"),)))


def test_what_was_settled_is_not_settled_again() -> None:
    forged = Settle(RoleFacts(memberships=(Membership("x", "L", "On", (), "ann", reference(0, 1)),)))
    with pytest.raises(TypeError):
        transition(State(), Batch(ADMINISTRATOR, (forged, SetRolefile("S", parse_rolefile("A <- B")))))


def test_a_batch_that_was_recorded_leaves_no_book_to_go_on_with() -> None:
    story = Story(DeclarePrincipal("ann")).grant("a", "ann", "On")
    made = transition(story.state, Batch(ADMINISTRATOR, (Settle(RoleFacts()),)), book=story.book)
    assert made.book is None


@pytest.mark.parametrize("first", ["the revoked record", "the new record"])
def test_a_fact_is_looked_at_while_one_of_its_records_is_not_false_for_good(first: str) -> None:
    """A record that was revoked stays while another domain follows it, and its fact may get a new one meanwhile."""
    story = Story(DeclarePrincipal("ann"), SetPeer(Peer("Ward", "did:key:za", "Ward", 20)))
    shown = MirrorRole("m", "Ward", "Nurse", (), "ann", 7, True, START)
    fact = text_of(Mirrored("Ward", 7))
    story.do(shown)
    revoked = next(one.ref for one in story.state.roles.records.values() if one.fact)

    def looked_at(*changes: Change) -> frozenset[str]:
        story.do(*changes)
        assert story.book is not None
        assert as_told(story.book) == as_told(Book(story.state))
        return story.book.interest.texts()

    assert looked_at(WatchRecords("other", (revoked,))) == {fact}
    assert looked_at(HearPeer("Ward", 1, {7: False}, START)) == frozenset()
    assert looked_at(shown) == {fact}
    assert [one.permanent for one in story.state.roles.records.values() if one.fact] == [True, False]
    if first == "the revoked record":
        assert looked_at(WatchRecords("other", (revoked,), False)) == {fact}
        assert looked_at(EndCredential("m")) == frozenset()
    else:
        assert looked_at(EndCredential("m")) == frozenset()
        assert looked_at(WatchRecords("other", (revoked,), False)) == frozenset()
    assert not story.state.roles.records


def test_a_batch_that_has_nothing_to_do_with_roles_keeps_the_book() -> None:
    story = Story(DeclarePrincipal("ann")).grant("a", "ann", "On")
    book = story.book
    story.do(DeclarePrincipal("bob"))
    assert story.book is book
    story.do(DeclareGroup("g")).grant("b", "bob", "On").end("a")
    assert list(story.state.roles.memberships) == ["b"]
