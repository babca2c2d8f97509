"""Credential records: the table equals a naive reading of the graph after anything that may happen (OASIS 4.6-4.8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model.errors import AlreadyExists, BadDefinition, Damaged, NotFound, TooMany
from headgate.model.limits import MAX_RECORD_PARENTS
from headgate.model.roles import Link, Op, Record, Reference, magic_of, place_of, reference
from headgate.roles.records import records as places
from headgate.roles.records.records import DEAD, UNITS, Records
from strategies.running import examples

OPS = [Op.AND, Op.OR]
STATES = [True, False, None]
FACTS = ["a in x", "b in x"]


# -- the naive reading --------------------------------------------------------------------------------------------


@dataclass
class Node:
    """All that was ever said of a record."""

    op: Op
    links: tuple[Link, ...] = ()
    leaf: bool | None = True
    latch: bool = False
    auto: bool = False
    dead: bool = False


@dataclass
class Naive:
    """Every record there ever was, worked out from scratch each time; nothing is collected."""

    nodes: dict[Reference, Node] = field(default_factory=dict)
    deferred: bool = False

    def settle(self) -> dict[Reference, bool | None]:
        """The state of everything; what latches, latches."""
        known: dict[Reference, bool | None] = {}
        for ref in self.nodes:
            self._state(ref, known)
        return known

    def _state(self, ref: Reference, known: dict[Reference, bool | None]) -> bool | None:
        if ref not in self.nodes:
            return False
        if ref not in known:
            node = self.nodes[ref]
            links = () if node.dead else node.links
            given = [_negated(self._state(link.parent, known), link.negated) for link in links]
            found = node.leaf if node.op is Op.LEAF else kleene(node.op, given)
            falls = (node.auto and False in given) or (node.latch and found is False)
            node.dead = node.dead or (falls and not self.deferred)
            known[ref] = False if node.dead or falls else found
        return known[ref]

    def final(self, ref: Reference) -> bool:
        """Can it never be true again, whatever leaves are set to?"""
        if ref not in self.nodes or self.nodes[ref].dead:
            return True
        node = self.nodes[ref]
        false = [not link.negated and self.final(link.parent) for link in node.links]
        if node.auto and any(false):
            return True
        by_op = {Op.LEAF: False, Op.AND: any(false), Op.OR: all(false)}
        return by_op[node.op]

    def wanted(self, held: Counter[Reference]) -> set[Reference]:
        """What is used from outside, and all that can still change it."""
        walk = [ref for ref, times in held.items() if times and not self.final(ref)]
        found = set(walk)
        for ref in walk:
            for link in self.nodes[ref].links:
                if link.parent not in found and not self.final(link.parent):
                    found.add(link.parent)
                    walk.append(link.parent)
        return found


def _negated(state: bool | None, negated: bool) -> bool | None:
    return state if state is None or not negated else not state


def kleene(op: Op, given: list[bool | None]) -> bool | None:
    deciding = op is Op.OR
    return deciding if deciding in given else None if None in given else not deciding


# -- any sequence of changes --------------------------------------------------------------------------------------


class World:
    """The table, the naive reading of it, and the rows that a ledger would hold."""

    def __init__(self) -> None:
        self.table = Records()
        self.naive = Naive()
        self.held: Counter[Reference] = Counter()
        self.version = 1
        self.every: list[Reference] = []
        self.rows: dict[Reference, Record] = {}
        self.fell: set[Reference] = set()
        self.back: tuple[object, ...] | None = None

    def pick(self, at: int) -> Reference:
        """Any reference there ever was."""
        return self.every[at % len(self.every)] if self.every else reference(9, 9)

    def made(self, ref: Reference, node: Node) -> None:
        assert ref not in self.naive.nodes, "a reference was used again"
        assert magic_of(ref) == self.version
        self.naive.nodes[ref] = node
        self.every.append(ref)

    def leaf(self, state: bool | None, fact: str, latch: bool) -> None:
        if fact and self.table.of_fact(fact) is not None:
            with pytest.raises(AlreadyExists):
                self.table.leaf(state, fact)
            return
        self.made(
            self.table.leaf(state, fact, latch=latch), Node(Op.LEAF, (), state, latch, dead=latch and state is False)
        )

    def combine(self, op: Op, chosen: list[tuple[int, bool]], latch: bool, auto: bool, own: bool) -> None:
        links = tuple(dict.fromkeys(Link(self.pick(at), negated) for at, negated in chosen))
        ref = self.table.combine(op, links, latch=latch, auto_revoke=auto, own=own)
        if len(links) == 1 and not (links[0].negated or own or latch or auto) and op in {Op.AND, Op.OR}:
            assert ref == links[0].parent
        else:
            self.made(ref, Node(op, links, latch=latch, auto=auto))

    def relink(self, at: int, op: Op, chosen: list[tuple[int, bool]]) -> None:
        ref = self.pick(at)
        links = tuple(dict.fromkeys(Link(self.pick(to), negated) for to, negated in chosen))
        if ref not in self.table or self.table.record(ref).permanent or self.table.record(ref).fact:
            with pytest.raises((NotFound, BadDefinition)):
                self.table.relink(ref, op, links)
        elif any(self.rests_on(link.parent, ref) for link in links):
            with pytest.raises(BadDefinition, match="cannot follow from it"):
                self.table.relink(ref, op, links)
        else:
            self.table.relink(ref, op, links)
            node = self.naive.nodes[ref]
            node.op, node.links = op, links

    def rests_on(self, ref: Reference, on: Reference) -> bool:
        if ref == on:
            return True
        if ref not in self.naive.nodes or self.naive.final(ref):
            return False
        return any(self.rests_on(link.parent, on) for link in self.naive.nodes[ref].links)

    def set(self, at: int, state: bool | None) -> None:
        ref = self.pick(at)
        node = self.naive.nodes.get(ref)
        if node is not None and node.op is not Op.LEAF and not self.naive.final(ref):
            with pytest.raises(BadDefinition):
                self.table.set(ref, state)
            return
        self.table.set(ref, state)
        if node is not None and not node.dead:
            node.leaf = state
            node.dead = node.latch and state is False

    def set_all(self, chosen: list[tuple[int, bool | None]]) -> None:
        states = {self.pick(at): state for at, state in chosen}
        follows = [ref for ref in states if (node := self.naive.nodes.get(ref)) and node.op is not Op.LEAF]
        if any(not self.naive.final(ref) for ref in follows):
            before = list(self.table.records())
            with pytest.raises(BadDefinition):
                self.table.set_all(states)
            assert list(self.table.records()) == before
            return
        self.table.set_all(states)
        for ref, state in states.items():
            node = self.naive.nodes.get(ref)
            if node is not None and not node.dead:
                node.leaf = state
                node.dead = node.latch and state is False  # nothing comes before a leaf that could make it true again

    def defer(self) -> None:
        self.table.defer()
        self.naive.deferred = True

    def latch(self) -> None:
        self.table.latch()
        self.naive.deferred = False

    def revoke(self, at: int) -> None:
        ref = self.pick(at)
        self.table.revoke(ref)
        if ref in self.naive.nodes:
            self.naive.nodes[ref].dead = True

    def hold(self, at: int) -> None:
        ref = self.pick(at)
        if ref in self.table:
            self.table.hold(ref)
            self.held[ref] += 1
        else:
            with pytest.raises(NotFound):
                self.table.hold(ref)

    def release(self, at: int) -> None:
        ref = self.pick(at)
        if self.held[ref]:
            self.table.release(ref)
            self.held[ref] -= 1
        else:
            with pytest.raises((NotFound, BadDefinition)):
                self.table.release(ref)

    def sweep(self) -> None:
        before = {one.ref: one for one in self.table.records()}
        dropped = self.table.sweep()
        assert len(set(dropped)) == len(dropped)
        after = {one.ref: one for one in self.table.records()}
        assert set(dropped) == before.keys() - after.keys()
        assert not self.naive.wanted(self.held) & set(dropped)
        self.fell |= {ref for ref in dropped if before[ref].permanent}
        for ref in dropped:
            assert not self.held[ref]
            self.naive.nodes[ref].dead = True  # from now on whoever names it names nothing
        used = {link.parent for one in after.values() for link in one.parents}
        for one in after.values():
            assert one.direct or (one.ref in used and not one.permanent), "garbage was left"

    def take(self) -> None:
        found = self.table.take()
        now = {one.ref: one for one in self.table.records()}
        turned = {
            (ref, old.state, now[ref].state)
            for ref, old in self.rows.items()
            if ref in now and now[ref].state is not old.state
        }
        turned |= {
            (ref, old.state, False) for ref, old in self.rows.items() if ref in self.fell and old.state is not False
        }
        assert len(found.changed) == len(turned)
        assert set(found.changed) == turned
        assert {one.ref: one for one in found.made} == {ref: one for ref, one in now.items() if ref not in self.rows}
        assert sorted(found.dropped) == sorted(self.rows.keys() - now.keys())
        assert len(set(found.altered)) == len(found.altered)
        assert set(found.altered) <= self.rows.keys() & now.keys()
        for one in (*found.made, *map(self.table.record, found.altered)):
            self.rows[one.ref] = one
        for ref in found.dropped:
            del self.rows[ref]
        assert self.rows == now, "the rows are not what the table holds"
        self.fell = set()

    def rebuild(self, shuffled: list[int], uses: bool) -> None:
        """A restart: from the rows alone, in any order; latching is never put off beyond a version."""
        self.latch()
        self.check()
        self.take()
        rows = sorted(self.rows.values(), key=lambda one: shuffled[place_of(one.ref) % len(shuffled)])
        if not uses:  # then what is used several times counts as used once
            self.held = Counter({ref: 1 for ref, times in self.held.items() if times})
        self.table = Records(rows, self.version, self.held.elements() if uses else None)
        assert {one.ref: one for one in self.table.records()} == self.rows
        self.version += 1
        self.back = None

    def advance(self) -> None:
        self.version += 1
        self.table.at(self.version)

    def mark(self) -> None:
        self.table.mark()
        self.back = deepcopy((self.naive, self.held, self.version, self.every, self.rows, self.fell))
        self.back = (*self.back, list(self.table.records()))

    def rollback(self) -> None:
        if self.back is None:
            return
        self.table.rollback()
        self.naive, self.held, self.version, self.every, self.rows, self.fell, rows = self.back  # type: ignore[assignment]
        assert list(self.table.records()) == rows
        self.back = None

    def check(self) -> None:
        table = self.table
        states = self.naive.settle()
        for ref, state in states.items():
            assert table.state(ref) is state or (ref not in table and self.naive.nodes[ref].dead)
        assert len(table) == len(list(table.records()))
        for fact in FACTS:
            found = table.of_fact(fact)
            assert found is None or table.record(found).fact == fact
        for one in table.records():
            place = place_of(one.ref)
            assert one.permanent == self.naive.final(one.ref)
            assert table.record(one.ref) == one
            assert one.direct == (self.held[one.ref] > 0)
            if one.fact:
                assert (table.of_fact(one.fact) == one.ref) is not one.permanent
            if one.parents:
                given = [_negated(table.state(link.parent), link.negated) for link in one.parents]
                assert table._counts[place] == sum(UNITS[0][(False, True, None).index(state)] for state in given)
            for link in one.parents:
                if link.parent in table and table._state[place_of(link.parent)] != DEAD:
                    assert table._rank[place] > table._rank[place_of(link.parent)]
                    assert (place << 1 | link.negated) in (table._kids[place_of(link.parent)] or ())
        for ref in [ref for ref in self.naive.nodes if self.naive.final(ref)]:
            self.naive.nodes[ref].dead = True  # and rests on nothing any more


ats = st.integers(0, 30)
flags = st.booleans()
rarely = st.sampled_from([False, False, False, True])
chosen = st.lists(st.tuples(ats, rarely), max_size=4)
both_ways = st.builds(lambda at, more: [(at, False), (at, True), *more], ats, chosen)
Step = Callable[[World], None]
steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda *a: lambda w: w.leaf(*a), st.sampled_from(STATES), st.sampled_from(["", "", *FACTS]), rarely),
    st.builds(lambda *a: lambda w: w.combine(*a), st.sampled_from(OPS), chosen, flags, rarely, flags),
    st.builds(lambda *a: lambda w: w.combine(*a), st.sampled_from(OPS), both_ways, rarely, rarely, flags),
    st.builds(lambda *a: lambda w: w.set(*a), ats, st.sampled_from(STATES)),
    st.builds(lambda *a: lambda w: w.set(*a), ats, st.sampled_from(STATES)),
    st.builds(
        lambda some: lambda w: w.set_all(some),
        st.lists(st.tuples(ats, st.sampled_from(STATES)), min_size=2, max_size=4),
    ),
    st.builds(lambda at: lambda w: w.revoke(at), ats),
    st.builds(lambda at: lambda w: w.hold(at), ats),
    st.builds(lambda at: lambda w: w.hold(at), ats),
    st.builds(lambda at: lambda w: w.release(at), ats),
    st.builds(lambda *a: lambda w: w.relink(*a), ats, st.sampled_from(OPS), chosen),
    st.builds(lambda *a: lambda w: w.rebuild(*a), st.lists(ats, min_size=1, max_size=5), flags),
    st.sampled_from([World.sweep, World.take, World.advance, World.mark, World.rollback, World.defer, World.latch]),
)


grown = st.tuples(
    st.lists(st.tuples(st.sampled_from(STATES), st.sampled_from(["", *FACTS]), rarely), min_size=2, max_size=5),
    st.lists(
        st.tuples(st.sampled_from(OPS), chosen | both_ways, rarely, rarely, st.just(True), flags),
        min_size=2,
        max_size=10,
    ),
)
"""Leaves and what follows from them, some of it in use."""


@examples(160, soak=400)
@given(grown, flags, st.lists(steps, min_size=3, max_size=30))
def test_the_table_equals_a_naive_reading_after_any_sequence(
    graph: tuple[list[tuple[bool | None, str, bool]], list[tuple[Op, list[tuple[int, bool]], bool, bool, bool, bool]]],
    marked: bool,
    sequence: list[Step],
) -> None:
    world = World()
    for leaf in graph[0]:
        world.leaf(*leaf)
    for *how, used in graph[1]:
        world.combine(*how)
        if used:
            world.hold(len(world.every) - 1)
        world.check()
    world.sweep()
    world.take()
    if marked:
        world.mark()
    for step in sequence:
        step(world)
        world.check()
    world.rollback()
    world.sweep()
    world.take()
    world.check()


@examples(60)
@given(st.lists(st.tuples(ats, flags), min_size=1, max_size=30), st.data())
def test_references_are_never_used_again(rounds: list[tuple[int, bool]], data: st.DataObject) -> None:
    """Over makings, drops, reports and restarts."""
    table, version = Records(), 1
    seen: set[Reference] = set()
    rows: dict[Reference, Record] = {}
    for count, restart in rounds:
        refs = [table.leaf() for _ in range(count % 6)]
        assert not seen & set(refs)
        seen |= set(refs)
        for ref in refs:
            if data.draw(flags):
                table.hold(ref)
        for one in list(table.records()):
            if one.direct and data.draw(rarely):
                table.release(one.ref)
        table.sweep()
        changes = table.take()
        rows |= {one.ref: one for one in (*changes.made, *map(table.record, changes.altered))}
        rows = {ref: one for ref, one in rows.items() if ref not in changes.dropped}
        if restart:
            table = Records(rows.values(), version)
            version += 1
        elif data.draw(flags):
            version += 1
            table.at(version)


# -- what a record is worth ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_every_operator_over_every_state_of_three_parents(op: Op) -> None:
    for states in product(STATES, repeat=3):
        for negations in product([False, True], repeat=3):
            table = Records()
            refs = [table.leaf(None) for _ in states]
            found = table.combine(op, [Link(ref, negated) for ref, negated in zip(refs, negations, strict=True)])
            for ref, state in zip(refs, states, strict=True):
                table.set(ref, state)
            given = [_negated(state, negated) for state, negated in zip(states, negations, strict=True)]
            assert table.state(found) is kleene(op, given), (states, negations)


def test_entering_a_delegated_role_and_what_takes_it_down() -> None:
    """Figure 4.6: a login, a delegation that may be revoked, and a group."""
    for ends in ("login", "delegation", "group"):
        table = Records()
        parents = {"login": table.leaf(), "delegation": table.leaf(), "group": table.leaf(True, "dm in opera")}
        member = table.combine(Op.AND, [Link(ref) for ref in parents.values()], latch=True)
        below = table.combine(Op.AND, [Link(member), Link(table.leaf())], latch=True)
        assert table.state(below) is True
        table.set(parents["group"], None)
        assert (table.state(member), table.state(below)) == (None, None)
        table.set(parents["group"], True)
        assert (table.state(member), table.state(below)) == (True, True)
        table.set(parents[ends], False)
        assert (table.state(member), table.state(below)) == (False, False)
        table.set(parents[ends], True)
        assert table.state(parents[ends]) is True
        assert (table.state(member), table.state(below)) == (False, False), "it must be entered again"


def test_what_is_false_on_the_way_is_not_false_for_good() -> None:
    table = Records()
    a, b = table.leaf(True), table.leaf(False)
    either = table.combine(Op.OR, [Link(a), Link(b)], latch=True)
    below = table.combine(Op.AND, [Link(either)], own=True, latch=True)
    table.set_all({a: False, b: True})
    assert table.state(below) is True
    table.defer()
    table.set(b, False)
    assert (table.state(either), table.state(below), table.is_final(below)) == (False, False, False)
    table.set(a, True)
    table.latch()
    assert table.state(below) is True
    table.defer()
    table.set(a, False)
    table.latch()
    assert table.is_final(either)
    assert table.is_final(below)
    table.set(b, True)
    assert table.state(below) is False


def test_nothing_flickers_so_that_nothing_latches_by_mistake() -> None:
    table = Records()
    fact = table.leaf(True, "a in x")
    here = table.combine(Op.AND, [Link(fact)], own=True)
    there = table.combine(Op.AND, [Link(fact, negated=True)])
    late = table.combine(Op.AND, [Link(table.combine(Op.AND, [Link(there)], own=True))], own=True)
    either = table.combine(Op.OR, [Link(here), Link(late)], latch=True)
    table.take()
    table.set(fact, False)
    assert table.state(either) is True
    assert [ref for ref, _, _ in table.take().changed][:2] == [fact, here]
    assert not table.record(either).permanent


def test_an_auto_revoked_record_falls_with_any_parent_and_stays_down() -> None:
    table = Records()
    one, other = table.leaf(), table.leaf()
    auto = table.combine(Op.OR, [Link(one), Link(other)], auto_revoke=True)
    assert table.state(auto) is True
    table.set(one, None)
    assert table.state(auto) is True
    table.set(one, False)
    assert table.record(auto).permanent
    table.set(one, True)
    assert table.state(auto) is False


def test_what_cannot_be_true_again_is_final_and_what_can_is_not() -> None:
    table = Records()
    one, other = table.leaf(), table.leaf()
    both, any_of = (table.combine(op, [Link(one), Link(other)]) for op in (Op.AND, Op.OR))
    neither = table.combine(Op.AND, [Link(one, negated=True), Link(other, negated=True)])
    table.revoke(one)
    final = {ref: table.record(ref).permanent for ref in (both, any_of, neither)}
    assert final == {both: True, any_of: False, neither: False}
    table.revoke(other)
    final = {ref: table.record(ref).permanent for ref in (both, any_of, neither)}
    assert final == {both: True, any_of: True, neither: False}
    assert table.state(neither) is True


def test_what_is_not_in_the_table_is_false_and_stays_so() -> None:
    table = Records()
    for ref in (0, -1, reference(0, 1), reference(7, 3), 1 << 80):
        assert table.state(ref) is False
        assert ref not in table
        table.set(ref, True)
        table.revoke(ref)
        assert table.state(ref) is False
        for call in (table.record, table.hold, table.release):
            with pytest.raises(NotFound):
                call(ref)
    assert table.state(table.combine(Op.AND, [Link(reference(7, 3)), Link(table.leaf())])) is False
    assert table.state(table.combine(Op.AND, [Link(reference(7, 3), negated=True), Link(table.leaf())])) is True


def test_only_a_leaf_is_set_and_nothing_follows_from_a_leaf_operator() -> None:
    table = Records()
    both = table.combine(Op.AND, [Link(table.leaf()), Link(table.leaf())])
    with pytest.raises(BadDefinition, match="follows from others"):
        table.set(both, False)
    with pytest.raises(BadDefinition, match="follows from nothing"):
        table.combine(Op.LEAF, [Link(both)])


# -- facts, use and collection ------------------------------------------------------------------------------------


def test_a_fact_is_found_while_it_is_interesting() -> None:
    table = Records()
    fact = table.leaf(True, "dm in opera")
    assert table.of_fact("dm in opera") == fact
    with pytest.raises(AlreadyExists):
        table.leaf(False, "dm in opera")
    member = table.combine(Op.AND, [Link(fact), Link(table.leaf())])
    table.hold(member)
    assert table.sweep() == []
    table.release(member)
    assert set(table.sweep()) >= {member, fact}
    assert table.of_fact("dm in opera") is None
    assert len(table) == 0


def test_a_revoked_fact_makes_room_for_another_while_it_is_still_in_use() -> None:
    table = Records()
    fact = table.leaf(True, "dm in opera")
    table.hold(fact)
    table.revoke(fact)
    assert table.of_fact("dm in opera") is None
    again = table.leaf(True, "dm in opera")
    assert (table.state(fact), table.state(again)) == (False, True)
    table.hold(again)
    assert table.sweep() == []
    table.take()
    table = Records(list(table.records()), 1)
    assert table.of_fact("dm in opera") == again


def test_one_of_many_children_goes_and_the_others_stay() -> None:
    table = Records()
    root = table.leaf()
    members = [table.combine(Op.AND, [Link(root)], own=True) for _ in range(1_000)]
    for member in members:
        table.hold(member)
    table.sweep()
    assert table._work == []
    table.release(members[500])
    assert table._work == [place_of(members[500])], "a sweep looks at what changed, not at the table"
    assert table.sweep() == [members[500]]
    table.revoke(root)
    assert not any(table.state(member) for member in members)


def test_a_shared_record_is_in_use_until_its_last_use_ends() -> None:
    table = Records()
    ref = table.leaf()
    table.hold(ref)
    table.hold(ref)
    table.take()
    table = Records(list(table.records()), 1, [ref, ref])
    table.release(ref)
    assert table.sweep() == []
    table.release(ref)
    assert table.sweep() == [ref]
    with pytest.raises(NotFound):
        table.release(ref)


def test_places_are_used_again_lowest_first_and_once_a_version() -> None:
    table = Records()
    first = [table.leaf() for _ in range(3)]
    table.sweep()
    table.take()
    again = table.leaf()
    assert again not in first
    assert place_of(again) == 3
    table.at(2)
    assert [place_of(table.leaf()) for _ in range(4)] == [0, 1, 2, 4]
    assert all(magic_of(one.ref) == 2 for one in table.records() if one.ref != again)
    with pytest.raises(BadDefinition, match="comes before"):
        table.at(1)
    for version in (0, 1 << 32):
        with pytest.raises((TooMany, BadDefinition)):
            table.at(version)


# -- linking ------------------------------------------------------------------------------------------------------


def test_a_single_parent_stands_for_itself_unless_a_record_of_its_own_is_wanted() -> None:
    table = Records()
    ref = table.leaf()
    assert table.combine(Op.AND, [Link(ref), Link(ref)]) == ref
    assert table.combine(Op.OR, [Link(ref)]) == ref
    others = [
        table.combine(Op.AND, [Link(ref, negated=True)]),
        table.combine(Op.AND, [Link(ref)], own=True),
        table.combine(Op.AND, [Link(ref)], latch=True),
        table.combine(Op.AND, [Link(ref)], auto_revoke=True),
    ]
    assert len({ref, *others}) == 5


@pytest.mark.parametrize("op", OPS)
def test_more_parents_than_a_record_may_have(op: Op) -> None:
    table = Records()
    refs = [table.leaf(op is Op.AND) for _ in range(2 * MAX_RECORD_PARENTS + 300)]
    found = table.combine(op, [Link(ref) for ref in refs])
    before = table.state(found)
    assert all(len(one.parents) <= MAX_RECORD_PARENTS for one in table.records())
    table.set(refs[-1], op is not Op.AND)
    assert table.state(found) is (not before)
    table.set(refs[-1], None)
    assert table.state(found) is None
    if op is not Op.AND:
        with pytest.raises(TooMany, match="MAX_RECORD_PARENTS"):
            table.combine(op, [Link(ref) for ref in refs], auto_revoke=True)


def test_relinking_keeps_the_reference_and_what_rests_on_it() -> None:
    table = Records()
    old, new = table.leaf(), table.leaf(None)
    member = table.combine(Op.AND, [Link(old)], latch=True)
    below = table.combine(Op.AND, [Link(member)], latch=True)
    table.hold(below)
    table.take()
    table.relink(member, Op.AND, [Link(new)])
    assert (table.state(member), table.state(below)) == (None, None)
    assert table.sweep() == [old]
    table.set(new, True)
    assert table.state(below) is True
    table.relink(member, Op.OR, [])
    assert (table.state(member), table.state(below)) == (False, False)
    with pytest.raises(BadDefinition, match="false for good"):
        table.relink(member, Op.AND, [Link(new)])


def test_a_record_cannot_follow_from_itself() -> None:
    table = Records()
    first = table.combine(Op.AND, [Link(table.leaf())], own=True)
    last = first
    for _ in range(5):
        last = table.combine(Op.OR, [Link(last)], own=True)
    for parent in (first, last):
        with pytest.raises(BadDefinition, match="cannot follow from it"):
            table.relink(first, Op.AND, [Link(parent, negated=True)])
    assert table.state(last) is True


def test_there_are_only_so_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MAX_RECORDS", 3)
    table = Records()
    for _ in range(3):
        table.leaf()
    with pytest.raises(TooMany, match="MAX_RECORDS"):
        table.leaf()
    assert len(table) == 3


# -- many, and again from what was written ------------------------------------------------------------------------


def test_a_chain_of_a_hundred_thousand() -> None:
    table = Records()
    root = last = table.leaf()
    for _ in range(100_000):
        last = table.combine(Op.AND, [Link(last)], own=True)
    table.hold(last)
    table.sweep()
    table.take()
    table = Records(reversed(list(table.records())), 1)
    for state in (None, True):
        table.set(root, state)
        assert table.state(last) is state
    table.take()
    table.mark()
    table.revoke(root)
    assert table.state(last) is False
    assert len(table.take().changed) == 100_001
    assert len(table.sweep()) == 100_000
    table.rollback()
    assert table.state(last) is True
    table.release(last)
    assert len(table.sweep()) == 100_001


def test_the_order_of_a_cascade() -> None:
    table = Records()
    root = last = table.leaf()
    chain = [last := table.combine(Op.AND, [Link(last)], own=True) for _ in range(5)]
    table.take()
    table.set(root, False)
    table.set(root, True)
    assert table.take().changed == []
    table.revoke(root)
    found = table.take()
    assert found.changed == [(ref, True, False) for ref in (root, *chain)]
    assert found.altered == [root, *chain]


def test_no_way_back_without_a_mark() -> None:
    table = Records()
    with pytest.raises(ValueError, match="no mark"):
        table.rollback()
    table.mark()
    table.leaf()
    table.keep()
    with pytest.raises(ValueError, match="no mark"):
        table.rollback()
    assert len(table) == 1


def test_what_was_told_and_then_undone_is_told_again() -> None:
    table = Records()
    fact = table.leaf()
    table.hold(fact)
    table.take()
    for _ in range(2):
        table.mark()
        table.set(fact, False)
        assert table.take().changed == [(fact, True, False)]
        table.rollback()
    table.set(fact, None)
    assert table.take().changed == [(fact, True, None)]


def test_going_back_uses_up_no_places() -> None:
    table = Records()
    found = set()
    for _ in range(5):
        table.mark()
        found.add((table.leaf(), table.leaf()))
        table.rollback()
    assert found == {(reference(0, 1), reference(1, 1))}
    assert len(table) == 0


def test_a_place_whose_drop_is_told_again_is_not_used_before() -> None:
    table = Records()
    gone = table.leaf()
    table.hold(gone)
    table.take()
    table.at(2)
    table.revoke(gone)
    table.release(gone)
    assert table.sweep() == [gone]
    table.mark()
    assert table.take().dropped == [gone]
    table.rollback()
    assert place_of(table.leaf()) != place_of(gone)
    found = table.take()
    assert (found.changed, found.dropped) == ([(gone, True, False)], [gone])
    assert place_of(table.leaf()) == place_of(gone)


A, B = reference(0, 1), reference(1, 1)


@pytest.mark.parametrize(
    "rows",
    [
        [Record(A, state=False), Record(B, Op.AND, (Link(A),), state=True)],
        [Record(A), Record(B, Op.AND, (Link(A),), state=False)],
        [Record(A, state=None), Record(B, Op.AND, (Link(A, negated=True),), state=True)],
        [Record(A, state=False), Record(B, Op.AND, (Link(A),), state=False, latched=True)],
        [Record(B, Op.AND, (Link(A),), state=True)],
        [Record(A, state=False, latched=True)],
        [Record(A), Record(A)],
        [Record(A), Record(reference(0, 2))],
        [Record(reference(0, 9))],
        [Record(reference(0, 0))],
        [Record(-1)],
        [Record(A, permanent=True)],
        [Record(A, fact="f"), Record(B, fact="f")],
        [Record(A), Record(B, Op.LEAF, (Link(A),))],
        [Record(A), Record(B, Op.AND, (Link(A),), fact="f")],
        [Record(A, Op.AND, (Link(B),)), Record(B, Op.AND, (Link(A),))],
        [Record(A, Op.OR, (Link(A, negated=True),))],
        [Record(B, Op.AND, tuple(Link(reference(at, 7), True) for at in range(MAX_RECORD_PARENTS + 1)))],
    ],
)
def test_rows_that_nobody_wrote_are_refused(rows: list[Record]) -> None:
    with pytest.raises(Damaged):
        Records(rows, 3)


def test_rows_that_were_written_are_read_and_the_use_is_set_right() -> None:
    rows = [Record(A, direct=True), Record(B, Op.AND, (Link(A),), latched=True, direct=True)]
    table = Records(rows, 1)
    assert list(table.records()) == rows
    assert table.take().altered == []
    table = Records(rows, 1, held=[B])
    assert table.take().altered == [A]
    assert list(table.records()) == [replace(rows[0], direct=False), rows[1]]
    with pytest.raises(NotFound):
        Records(rows, 1, held=[reference(5, 1)])
