"""Reduction and discovery of certificate chains: by example, by property, and against the definition."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.authority.chains import (
    ChainGround,
    Reduced,
    as_reduced,
    combine,
    discover,
    exact,
    meet,
    reduce,
    rooted,
    to_rules,
    why_not,
)
from headgate.decide.publish import admit
from headgate.decide.truth import World, truth
from headgate.decide.views import View, may_connect, view
from headgate.model.authority import (
    NETWORK_ACTIONS,
    TYPE_ACTIONS,
    Authority,
    Certificate,
    NetworkAuthority,
    TypeAuthority,
    Validity,
)
from headgate.model.errors import ChainInvalid, Expired, HeadgateError, PublishDenied, Revoked
from headgate.model.events import Draft, Event
from headgate.model.expressions import Attribute, Compare, Condition, Constant, InSet, all_of
from headgate.model.limits import MAX_BAG, MAX_CHAIN_LENGTH, MAX_CLAUSE_ATOMS, MAX_EXPRESSION_CHARS
from headgate.model.rights import Action, Rule, Source
from headgate.model.state import State
from headgate.model.types import Catalog, EventType
from headgate.model.values import EPOCH, Kind, Value
from strategies.chains import (
    COORDINATOR,
    DEEP,
    FLAT,
    HOLDER,
    MOMENTS,
    NOW,
    VALUES,
    alone,
    authorities,
    bags,
    by_definition,
    chains_by_definition,
    facts,
    lines,
    one_principal,
    type_authorities,
    validities,
    wheres,
)

PUBLISH, SUBSCRIBE, CONNECT = (frozenset({a}) for a in (Action.PUBLISH, Action.SUBSCRIBE, Action.CONNECT))
ONE, TWO = (Compare("=", Attribute("n"), Constant(n)) for n in (1, 2))


def types(type_name: str = "*", **more: Any) -> TypeAuthority:
    return TypeAuthority(more.pop("actions", SUBSCRIBE), type_name, **more)


def cert(id: str, issuer: str, subject: str, *authority: Authority, delegate: bool = True, **more: Any) -> Certificate:
    return Certificate(id, issuer, subject, authority or (types(),), delegate, **more)


def found(bag: Sequence[Certificate], holder: str = "smith", **more: Any) -> tuple[Reduced, ...]:
    return discover(bag, holder, ChainGround(**_ground(more)))


def refusal(bag: Sequence[Certificate], holder: str = "smith", **more: Any) -> HeadgateError:
    return why_not(bag, holder, ChainGround(**_ground(more)))


def _ground(more: dict[str, Any]) -> dict[str, Any]:
    revoked = more.pop("revoked", ())
    return {"coordinator": "pito", "now": NOW, "revoked": lambda c: c.id in revoked, "known": lambda _: True} | more


def ids(chains: Sequence[Reduced]) -> list[tuple[str, ...]]:
    return [tuple(link.id for link in chain.chain) for chain in chains]


def shape(reduced: Reduced | None) -> object:
    """A five-tuple with the kinds of all values kept apart."""
    if reduced is None:
        return None
    order = [getattr(one, "attributes", None) for one in reduced.authority]
    return [exact(one) for one in reduced.authority], order, replace(reduced, authority=())


# -- what two authorities share ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [
        ("*", "*", "*"),
        ("*", "a.*", "a.*"),
        ("a.*", "a.b.*", "a.b.*"),
        ("a.*", "a.T", "a.T"),
        ("a.*", "a.*", "a.*"),
        ("a.T", "a.T", "a.T"),
        ("*", "a", "a"),
        ("a.*", "a", None),
        ("a.*", "ab.T", None),
        ("a.*", "ab.*", None),
        ("uk.gov.pito.*", "uk.gov.pitox.T", None),
        ("a.T", "a.T.x", None),
        ("a.T", "a.T.*", None),
    ],
)
def test_patterns_share_the_narrower(a: str, b: str, shared: str | None) -> None:
    for x, y in ((a, b), (b, a)):
        both = meet(types(x), types(y))
        assert (both.type if isinstance(both, TypeAuthority) else None) == shared


def test_actions_intersect() -> None:
    assert meet(types(actions=TYPE_ACTIONS), types(actions=SUBSCRIBE)) == types(actions=SUBSCRIBE)
    assert meet(types(actions=PUBLISH), types(actions=SUBSCRIBE)) is None


def test_networks_share_a_name() -> None:
    police, other = NetworkAuthority(CONNECT, "police"), NetworkAuthority(CONNECT, "other")
    every = NetworkAuthority(NETWORK_ACTIONS)
    assert meet(every, police) == meet(police, every) == meet(police, police) == police
    assert meet(police, other) is None
    assert meet(every, types(actions=TYPE_ACTIONS)) is None


def test_an_owner_is_kept_and_two_share_nothing() -> None:
    any_, pito, met = types(), types(owner="pito"), types(owner="met")
    assert meet(any_, pito) == meet(pito, any_) == meet(pito, pito) == pito
    assert meet(pito, met) is None
    assert meet(met, types(owner="met'"), one_principal) == met


def test_attributes_intersect_in_the_order_of_the_later_link() -> None:
    def shared(a: tuple[str, ...] | None, b: tuple[str, ...] | None) -> tuple[str, ...] | None:
        both = meet(types(attributes=a), types(attributes=b))
        assert isinstance(both, TypeAuthority)
        return both.attributes

    assert shared(None, None) is None
    assert shared(None, ("n",)) == shared(("n",), None) == ("n",)
    assert shared(("n", "s", "f"), ("f", "n")) == ("f", "n")
    assert shared(None, ()) == shared((), None) == ()
    assert meet(types(attributes=("n",)), types(attributes=("s",))) is None
    assert meet(types(attributes=("n",)), types(attributes=())) is None


def test_forced_values_add_up_unless_they_conflict() -> None:
    n, s = types(attributes=("n", "s"), forced={"n": 1}), types(attributes=("s",), forced={"s": "a"})
    assert meet(n, s) == types(attributes=("s",), forced={"n": 1, "s": "a"})
    assert meet(n, n) == n
    for other in (2, 1.0, True, "1", None):
        assert meet(n, types(forced={"n": other})) is None


def test_conditions_hold_together_each_part_once() -> None:
    both = meet(types(where=all_of(ONE, TWO)), types(where=TWO))
    assert both == types(where=all_of(ONE, TWO))
    assert meet(types(where=ONE), types()) == types(where=ONE)
    integers, booleans = InSet(Attribute("n"), (1,)), InSet(Attribute("n"), (True,))
    kept = meet(types(where=integers), types(where=booleans))
    assert kept == types(where=all_of(integers, booleans))


def test_each_shared_authority_comes_once() -> None:
    a = cert("a", "o", "k", types("a.*"), types("a.b.*"))
    b = cert("b", "k", "h", types("a.b.*"), types("*"), types("c.*"))
    reduced = reduce([a, b])
    assert reduced is not None
    assert [one.type for one in reduced.authority if isinstance(one, TypeAuthority)] == ["a.b.*", "a.*"]


def test_values_that_python_takes_for_equal_stay_apart() -> None:
    a = cert("a", "o", "k", *(types(forced={"n": value}) for value in (1, True, 1.0, "1")))
    assert len(as_reduced(a).authority) == 4


# -- two links --------------------------------------------------------------------------------------------------------


def test_a_second_link_begins_where_the_first_ends_and_may_be_built_on_it() -> None:
    first, second = cert("a", "o", "k"), cert("b", "k", "h", delegate=False)
    reduced = reduce([first, second])
    assert reduced is not None
    assert (reduced.issuer, reduced.subject, reduced.delegate) == ("o", "h", False)
    assert reduced.chain == (first, second)
    assert reduce([second, first]) is None
    assert reduce([replace(first, delegate=False), second]) is None
    assert reduce([first, replace(second, issuer="k'")]) is None
    assert reduce([first, replace(second, issuer="k'")], one_principal) is not None
    assert reduce([]) is None


def test_validity_is_what_both_have() -> None:
    a = cert("a", "o", "k", validity=Validity(MOMENTS[1], MOMENTS[4]))
    b = cert("b", "k", "h", validity=Validity(MOMENTS[2]))
    reduced = reduce([a, b])
    assert reduced is not None
    assert reduced.validity == Validity(MOMENTS[2], MOMENTS[4])
    assert reduce([a, replace(b, validity=Validity(MOMENTS[4]))]) is None


def test_each_issuers_shortest_freshness_is_kept() -> None:
    line = [cert("a", "o", "k", freshness=60), cert("b", "k", "l"), cert("c", "l", "o", freshness=9)]
    reduced = reduce([*line, cert("d", "o", "h", freshness=30)])
    assert reduced is not None
    assert reduced.freshness == (("o", 30), ("l", 9))


def test_a_chain_has_a_longest_length() -> None:
    line = [cert(f"c{n}", f"k{n}", f"k{n + 1}") for n in range(MAX_CHAIN_LENGTH + 1)]
    assert reduce(line[:-1]) is not None
    with pytest.raises(ChainInvalid, match="MAX_CHAIN_LENGTH"):
        reduce(line)


def test_rights_do_not_multiply_without_end() -> None:
    def conditions(n: int) -> tuple[Authority, ...]:
        return tuple(types(where=Compare("=", Attribute(f"x{n}"), Constant(v))) for v in range(70))

    with pytest.raises(ChainInvalid, match="MAX_CHAIN_RIGHTS"):
        reduce([cert(f"c{n}", f"k{n}", f"k{n + 1}", *conditions(n)) for n in range(2)])


def many(tag: str, n: int) -> Condition:
    """A condition of so many parts."""
    return all_of(*(Compare("=", Attribute(f"{tag}{at}"), Constant(at)) for at in range(n)))


def test_what_grows_past_a_clause_is_cut() -> None:
    half = MAX_CLAUSE_ATOMS // 2
    a, b, one_more = many("a", half), many("b", half), many("c", 1)
    assert meet(types(where=a), types(where=b)) == types(where=all_of(a, b))
    assert meet(types(where=all_of(a, b)), types(where=one_more)) is None
    assert meet(types(where=a), types(where=all_of(a, one_more))) == types(where=all_of(a, one_more))
    # Whichever way they are put together; what else the links give stays.
    line = [
        cert(f"c{at}", f"k{at}", f"k{at + 1}", types(where=w), types("b.*")) for at, w in enumerate((a, b, one_more))
    ]
    first, second, third = map(as_reduced, line)
    left, right = combine(first, second), combine(second, third)
    assert left is not None
    assert right is not None
    assert shape(combine(left, third)) == shape(combine(first, right)) == shape(reduce(line))
    whole = reduce(line)
    assert whole is not None
    assert {one.type for one in whole.authority if isinstance(one, TypeAuthority)} == {"b.*"}


def test_a_link_that_is_too_large_gives_nothing() -> None:
    large = cert("a", "o", "smith", types(where=many("a", MAX_CLAUSE_ATOMS + 1)))
    assert as_reduced(large).authority == ()
    assert reduce([large]) is None
    assert found([large]) == ()
    assert "MAX_CLAUSE_ATOMS" in refusal([large]).message
    assert len(found([cert("a", "o", "smith", types(where=many("a", MAX_CLAUSE_ATOMS)))])) == 1


def test_what_adds_up_to_no_expression_is_cut() -> None:
    first, second = (InSet(Attribute(name), ("x" * (MAX_EXPRESSION_CHARS // 2),)) for name in "ab")
    assert meet(types(where=first), types(where=first)) == types(where=first)
    assert meet(types(where=first), types(where=second)) is None


@given(lines(), st.integers(0, 3))
def test_reduction_is_what_the_definition_says_however_it_is_taken_together(line: list[Certificate], at: int) -> None:
    reduction_is_associative(line)
    reduction_is_what_the_definition_says(line)
    a_link_more_never_adds_a_fact(line, at)


def reduction_is_associative(line: list[Certificate]) -> None:
    links = [as_reduced(one) for one in line]

    def left(parts: list[Reduced]) -> Reduced | None:
        whole: Reduced | None = parts[0]
        for part in parts[1:]:
            whole = None if whole is None else combine(whole, part)
        return whole

    def right(parts: list[Reduced]) -> Reduced | None:
        whole: Reduced | None = parts[-1]
        for part in reversed(parts[:-1]):
            whole = None if whole is None else combine(part, whole)
        return whole

    whole = shape(reduce(line))
    assert shape(left(links)) == shape(right(links)) == whole
    for at in range(1, len(links)):
        front, back = left(links[:at]), right(links[at:])
        assert shape(None if front is None or back is None else combine(front, back)) == whole


@given(type_authorities(), type_authorities(), type_authorities())
def test_meeting_is_associative(a: TypeAuthority, b: TypeAuthority, c: TypeAuthority) -> None:
    def both(x: Authority | None, y: Authority | None) -> Authority | None:
        return None if x is None or y is None else meet(x, y)

    left, right = both(both(a, b), c), both(a, both(b, c))
    assert (left is None) == (right is None)
    assert left == right
    assert left is None or right is None or exact(left) == exact(right)


def reduction_is_what_the_definition_says(line: list[Certificate]) -> None:
    reduced = reduce(line)
    expected = by_definition(line)
    assert (None if reduced is None else facts(reduced.authority)) == expected
    if reduced is not None:
        assert (reduced.issuer, reduced.subject) == (line[0].issuer, line[-1].subject)
        assert reduced.delegate == line[-1].delegate
        for at in MOMENTS:
            assert reduced.validity.holds(at) == all(one.validity.holds(at) for one in line)
        said = [(one.issuer, one.freshness) for one in line if one.freshness is not None]
        assert sorted(reduced.freshness) == sorted(said)  # every issuer of a line occurs once


def a_link_more_never_adds_a_fact(line: list[Certificate], at: int) -> None:
    """Actions, names, attributes, forced values and truths of the chain are within those of every link."""
    reduced = reduce(line)
    if reduced is None:
        return
    link = facts(line[at % len(line)].authority)
    for fact in facts(reduced.authority):
        assert any(_within(fact, other) for other in link), (fact, link)


def _within(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    if a[:2] != b[:2] or b[2] not in (None, a[2]):
        return False
    if len(a) == 3:
        return True
    return a[3] <= b[3] and b[4] <= a[4] and all(y is True for x, y in zip(a[5], b[5], strict=True) if x is True)


# -- as rights: never wider than any link ----------------------------------------------------------------------------


def state(rules: Sequence[Rule], catalog: Catalog = FLAT) -> State:
    return State(types=catalog, rules=tuple(rules), principals={"h": {}})


def entries(chain: Sequence[Certificate]) -> tuple[Rule, ...]:
    """The entries that a chain gives `h` where `o1` and `o2` own types."""
    reduced = reduce(chain)
    if reduced is None:
        return ()
    return to_rules("h", replace(reduced, authority=rooted(reduced, COORDINATOR)), lambda key: key)


@st.composite
def events(draw: st.DrawFn, catalog: Catalog) -> Event:
    name = draw(st.sampled_from(list(catalog)))
    values: dict[str, Value] = {a: draw(st.sampled_from((None, *VALUES[a]))) for a in catalog.attributes(name)}
    return Event("e", "h", name, values, EPOCH)


def rights(where: st.SearchStrategy[Condition] | None = None) -> st.SearchStrategy[tuple[Authority, ...]]:
    """Authority that often hits: forced values fit their attributes."""
    actions = st.sampled_from((*(TYPE_ACTIONS,) * 4, SUBSCRIBE, PUBLISH))
    one = type_authorities(values=VALUES, where=where, owners=(*(None,) * 6, "o1", "o2"), actions=actions)
    return st.lists(one, min_size=1, max_size=2).map(tuple)


def views(line: Sequence[Certificate], event: Event, catalog: Catalog) -> tuple[View | None, list[View | None]]:
    each = [view(state(entries([alone(one, "o1", "h")]), catalog), "h", event, {}) for one in line]
    return view(state(entries(line), catalog), "h", event, {}), each


@given(lines(rights(), sound=True), events(FLAT))
def test_a_chain_shows_what_every_link_alone_would_show(line: list[Certificate], event: Event) -> None:
    shown, each = views(line, event, FLAT)
    seen = [one.attributes for one in each if one is not None]
    expected = frozenset.intersection(*seen) if len(seen) == len(line) else frozenset()
    assert (frozenset() if shown is None else shown.attributes) == expected  # of nothing there need be no view


@given(lines(rights(wheres(nulls=False)), sound=True), events(DEEP))
def test_with_subtypes_a_chain_shows_no_more_than_any_link(line: list[Certificate], event: Event) -> None:
    shown, each = views(line, event, DEEP)
    if shown is not None:
        assert all(one is not None and shown.attributes <= one.attributes for one in each)


@given(st.data())
def test_a_chain_publishes_what_every_link_accepts(data: st.DataObject) -> None:
    one = type_authorities(values=VALUES, owners=(None, "o1"), actions=st.just(TYPE_ACTIONS))
    line = data.draw(lines(one.map(lambda authority: (authority,)), sound=True))
    sent = data.draw(events(FLAT))
    accepted = published(entries(line), sent)
    assert accepted == expected_of([c.authority[0] for c in line if isinstance(c.authority[0], TypeAuthority)], sent)
    if accepted is None:
        return
    for link in line:
        (given,) = link.authority
        assert isinstance(given, TypeAuthority)
        lost = {name for name in given.forced if any(c is not None and name not in c for c in listed(line))}
        kept = published(entries([alone(link, "o1", "h")]), replace(sent, values=accepted))
        if not lost:  # the link lets the event through as it is
            assert kept == accepted


def listed(line: Sequence[Certificate]) -> list[tuple[str, ...] | None]:
    return [one.attributes for link in line for one in link.authority if isinstance(one, TypeAuthority)]


def published(rules: Sequence[Rule], sent: Event) -> dict[str, Value] | None:
    try:
        draft = Draft("e", "h", sent.type, sent.values)
        return dict(admit(state(rules), draft, now=EPOCH, predicates={}).values)
    except PublishDenied:
        return None


def expected_of(links: Sequence[TypeAuthority], sent: Event) -> dict[str, Value] | None:
    """The event with what any link leaves out null and what any link forces forced, if every link takes it so."""
    values: dict[str, Any] = {}
    for name, value in sent.values.items():
        forced = {one.forced[name] for one in links if name in one.forced}
        if len(forced) > 1:
            return None
        left_out = any(one.attributes is not None and name not in one.attributes for one in links)
        values[name] = None if left_out else next(iter(forced), value)
    clash = any(len({one.forced[n] for one in links if n in one.forced}) > 1 for n in VALUES)
    patterns = [one.type for one in links]
    named = all(p in ("*", sent.type) or (p[-1] == "*" and sent.type.startswith(p[:-1])) for p in patterns)
    apart = len(lists := [set(one.attributes) for one in links if one.attributes is not None]) > 1
    if clash or not named or FLAT[sent.type].owner != "o1" or (apart and not set.intersection(*lists)):
        return None
    changed = replace(sent, values=values)
    return values if all(truth(one.where, changed, World(State())) is True for one in links) else None


def test_a_forced_value_that_falls_out_still_narrows_what_is_received() -> None:
    first = types("a.T", actions=PUBLISH | SUBSCRIBE, attributes=("n", "s"), forced={"n": 1})
    second = types("a.T", actions=PUBLISH | SUBSCRIBE, attributes=("s",))
    rules = entries([cert("a", "o1", "k", first), cert("b", "k", "h", second)])
    event = Event("e", "p", "a.T", {"n": 1, "s": "a", "f": None}, EPOCH)
    shown = view(state(rules), "h", event, {})
    assert shown is not None
    assert shown.attributes == {"s"}
    assert view(state(rules), "h", replace(event, values={**event.values, "n": 2}), {}) is None
    assert published(rules, event) == {"n": None, "s": "a", "f": None}


# -- the root ---------------------------------------------------------------------------------------------------------


def test_only_what_the_first_issuer_owns_counts() -> None:
    police, every = NetworkAuthority(CONNECT, "police"), NetworkAuthority(CONNECT)
    given = as_reduced(cert("a", "pito", "met", police, types("a.*"), types(owner="pito"), types(owner="met")))
    own = types("a.*", owner="pito"), types(owner="pito")
    assert rooted(given, "pito") == (police, *own)
    assert rooted(given, "met") == own
    assert rooted(replace(given, issuer="pito'"), "pito", one_principal) == (
        police,
        types("a.*", owner="pito'"),
        types(owner="pito'"),
    )
    assert rooted(given, "pito", network="police") == (police, *own)
    assert rooted(given, "pito", network="other") == own
    assert rooted(replace(given, authority=(every,)), "pito", network="other") == (every,)


def test_an_entry_is_of_the_principal_whose_key_the_chain_begins_at() -> None:
    given = as_reduced(cert("a", "k-pito", "h", types("a.*", attributes=("n",), forced={"n": 1}, where=TWO)))
    counts = replace(given, authority=rooted(given, "k-pito"))
    (rule,) = to_rules("h", counts, {"k-pito": "pito"}.__getitem__)
    assert rule == Rule(rule.id, "h", SUBSCRIBE, "a.*", TWO, ("n",), {"n": 1}, author="pito", source=Source.CHAIN)
    assert rule.id == "chain:fe979e98d160f6fae2434c3d"  # the same in every process


def test_the_same_right_has_the_same_id_whichever_chain_gives_it() -> None:
    direct = entries([cert("x", "o1", "h", types("a.T", attributes=("n", "s")))])
    through = entries(
        [cert("y", "o1", "k", types("a.*")), cert("z", "k", "h", types("a.T", attributes=("s", "n")), delegate=False)]
    )
    assert [rule.id for rule in direct] == [rule.id for rule in through]
    others = (
        types("a.T"),
        types("a.T", attributes=("n",)),
        types("a.T", attributes=("n", "s"), actions=PUBLISH),
        types("a.T", attributes=("n", "s"), where=ONE),
        types("a.T", attributes=("n", "s"), forced={"n": 1}),
        types("a.T", attributes=("n", "s"), forced={"n": True}),
        types("a.b.T", attributes=("n", "s")),
    )
    made = [rule.id for one in others for rule in entries([cert("x", "o1", "h", one)])]
    made += [rule.id for rule in entries([cert("x", "o2", "h", types("a.T", attributes=("n", "s")))])]
    assert len({*made, *(rule.id for rule in direct)}) == len(others) + 2


def test_authority_over_the_network_becomes_a_right_to_connect() -> None:
    given = as_reduced(cert("a", "pito", "h", NetworkAuthority(NETWORK_ACTIONS, "police")))
    rules = to_rules("h", replace(given, authority=rooted(given, "pito")), lambda key: key)
    assert [(rule.actions, rule.type, rule.author) for rule in rules] == [(NETWORK_ACTIONS, "*", "pito")]
    assert may_connect(state(rules), "h")
    assert not may_connect(state(()), "h")


def test_a_wildcard_reaches_only_what_the_first_issuer_owns() -> None:
    rules = entries([cert("a", "o2", "h", types("*"), types("a.T"))])
    mine = Event("e", "p", "c.T", {"n": 1, "s": None, "f": None}, EPOCH)
    assert view(state(rules), "h", mine, {}) is not None
    assert view(state(rules), "h", replace(mine, type="a.T"), {}) is None


# -- discovery --------------------------------------------------------------------------------------------------------


@given(
    bags(), st.frozensets(st.sampled_from(("c0", "c1", "c2", "c3"))), st.booleans(), st.randoms(use_true_random=False)
)
def test_discovery_finds_exactly_what_the_definition_says_and_refuses_nothing_of_it(
    bag: list[Certificate], out: frozenset[str], silent: bool, order: random.Random
) -> None:
    what_is_found_and_what_is_refused_exclude_each_other(bag)
    dead = out if order.random() < 0.3 else frozenset()
    expected = chains_by_definition(bag, HOLDER, coordinator=COORDINATOR, now=NOW, dead=dead)

    def run(bag: Sequence[Certificate]) -> tuple[Reduced, ...]:
        return discover(
            bag,
            HOLDER,
            ChainGround(
                coordinator=COORDINATOR,
                now=NOW,
                revoked=lambda c: not silent and c.id in dead,
                known=lambda c: None if silent and c.id in dead else True,
                same=one_principal,
            ),
        )

    chains = run(bag)
    assert {tuple(c.id for c in chain.chain): facts(chain.authority) for chain in chains} == expected
    assert len(chains) == len(expected)
    for chain in chains:
        whole = reduce(chain.chain, one_principal)
        assert whole is not None
        assert chain.authority == rooted(whole, COORDINATOR, one_principal)
    shuffled = order.sample(bag, len(bag))
    assert sorted(ids(run(shuffled + shuffled))) == sorted(expected)


def what_is_found_and_what_is_refused_exclude_each_other(bag: list[Certificate]) -> None:
    """With what ended or is to come as good as in force, whatever is not expired is found."""
    ground = ChainGround(
        coordinator=COORDINATOR, now=NOW, same=one_principal, revoked=lambda _: False, known=lambda _: True
    )
    if discover(bag, HOLDER, ground):
        return
    error = why_not(bag, HOLDER, ground)
    lasting = [replace(c, validity=Validity(c.validity.start)) if c.validity.is_over(NOW) else c for c in bag]
    assert isinstance(error, Expired) == bool(discover(lasting, HOLDER, ground))
    assert isinstance(error, Expired | ChainInvalid)
    assert error.message
    assert "\n" not in error.message
    assert error.remedy


def test_chains_come_as_the_certificates_were_presented() -> None:
    a, b = cert("a", "pito", "met"), cert("b", "pito", "ccs")
    c, d = cert("c", "met", "smith"), cert("d", "ccs", "smith")
    assert ids(found([a, b, c, d])) == [("c",), ("a", "c"), ("d",), ("b", "d")]
    assert ids(found([d, b, a, c], owners=lambda key: key == "pito")) == [("b", "d"), ("a", "c")]


def test_a_key_that_owns_nothing_gives_no_types() -> None:
    given = cert("a", "met", "smith", NetworkAuthority(CONNECT), types())
    (chain,) = found([given], coordinator="met", owners=lambda key: key == "pito")
    assert chain.authority == (NetworkAuthority(CONNECT),)
    assert found([given], owners=lambda key: key == "pito") == ()


def test_what_is_presented_twice_counts_once() -> None:
    link = cert("a", "pito", "smith")
    assert ids(found([link, replace(link), link])) == [("a",)]
    assert len(found([link, replace(link, authority=(types("a.*"),))])) == 2


def test_cycles_are_not_followed() -> None:
    ring = [cert("a", "pito", "met"), cert("b", "met", "ccs"), cert("c", "ccs", "met"), cert("d", "met", "smith")]
    home = [cert("e", "smith", "met"), cert("f", "met", "met"), cert("g", "smith", "smith"), cert("h", "smith", "pito")]
    named = [replace(one, authority=(types(owner="pito"),)) for one in ring]
    assert ids(found([*named, *home])) == [("a", "d")]
    assert found([cert("a", "smith", "met"), cert("b", "met", "smith", types(owner="smith"))]) == ()


def test_another_key_of_the_same_principal_is_no_other_principal() -> None:
    old = cert("a", "pito", "met", types(owner="pito"))
    new = cert("b", "met'", "smith", types(owner="pito"))
    assert found([old, new]) == ()
    assert ids(found([old, new], same=one_principal)) == [("a", "b")]
    back = cert("c", "met", "met'", types(owner="pito"))
    assert ids(found([old, back, new], same=one_principal)) == [("a", "b")]


@pytest.mark.parametrize("answer", [False, None])
def test_what_is_not_known_to_stand_does_not_count(answer: bool | None) -> None:
    line = [cert("a", "pito", "met", types(owner="pito")), cert("b", "met", "smith")]
    assert len(found(line, owners=lambda key: key == "pito")) == 1
    assert found(line, owners=lambda key: key == "pito", known=lambda c: answer if c.id == "a" else True) == ()


# -- hostile bags -----------------------------------------------------------------------------------------------------


def line_to_smith(length: int) -> list[Certificate]:
    keys = ["pito", *(f"k{n}" for n in range(1, length)), "smith"]
    return [cert(f"c{n}", a, b, types(owner="pito")) for n, (a, b) in enumerate(pairwise(keys))]


def test_a_chain_longer_than_the_limit_is_not_found() -> None:
    assert len(found(line_to_smith(MAX_CHAIN_LENGTH))) == 1
    assert found(line_to_smith(MAX_CHAIN_LENGTH + 1)) == ()
    error = refusal(line_to_smith(MAX_CHAIN_LENGTH + 1))
    assert isinstance(error, ChainInvalid)
    assert f"MAX_CHAIN_LENGTH ({MAX_CHAIN_LENGTH})" in error.message


def mesh(root: str, width: int = 4, layers: int = 15) -> list[Certificate]:
    """Every key of a layer certifies every key of the next: the number of paths is exponential in the layers."""
    rows = [[f"k{n}.{m}" for m in range(width)] for n in range(layers)] + [["smith"]]
    pairs = [(a, b) for upper, lower in pairwise(rows) for a in upper for b in lower]
    pairs += [(root, first) for first in rows[0]]
    return [cert(f"c{n}", a, b, types(owner="pito")) for n, (a, b) in enumerate(pairs)]


@pytest.mark.parametrize(("root", "limit"), [("pito", "MAX_CHAINS"), ("nobody", "MAX_CHAIN_STEPS")])
def test_a_mesh_is_refused_whole(root: str, limit: str) -> None:
    bag = mesh(root)
    assert len(bag) <= MAX_BAG
    with pytest.raises(ChainInvalid, match=rf"{limit} \("):
        found(bag)
    error = refusal(bag)
    assert isinstance(error, ChainInvalid)
    assert limit in error.message


@pytest.mark.parametrize(
    "given",
    [
        lambda n: types(owner="pito", where=many(f"x{n % 2}.", 20)),
        lambda n: types(owner="pito", where=InSet(Attribute(f"x{n}"), tuple(range(200)))),
        lambda n: types(owner="pito", attributes=tuple(f"a{at}" for at in range(100))),
        lambda n: types(owner="pito", forced={f"a{at}": at for at in range(100)}),
    ],
    ids=["parts", "a-long-part", "attributes", "forced"],
)
def test_what_is_put_together_counts_by_its_size(given: Callable[[int], TypeAuthority]) -> None:
    bag = mesh("nobody", 2, 10)  # without anything to put together, few enough paths to follow
    assert found(bag) == ()
    large = [replace(one, authority=(given(at),)) for at, one in enumerate(bag)]
    with pytest.raises(ChainInvalid, match="MAX_CHAIN_STEPS"):
        found(large)
    assert "MAX_CHAIN_STEPS" in refusal(large).message


def test_a_part_is_written_out_once() -> None:
    written: list[int] = []

    class Loud(int):
        def __repr__(self) -> str:
            written.append(int(self))
            return f"{int(self)}"

    parts = [InSet(Attribute("n"), (Loud(n),)) for n in range(3)]
    bag = [replace(one, authority=(types(owner="pito", where=all_of(*parts)),)) for one in mesh("nobody", 2, 4)]
    assert found(bag) == ()
    assert sorted(written) == [0, 0, 1, 1, 2, 2]  # for its text, and for its size


def test_a_mesh_that_gives_nothing_is_left_early() -> None:
    bag = [replace(one, authority=(types(f"{one.issuer.split('.')[0]}.*"),)) for one in mesh("pito")]
    assert len(found(bag)) == 4
    assert found(bag, owners=lambda key: key == "pito") == ()


def test_many_wide_certificates_are_refused() -> None:
    wide = tuple(types(f"t{n}.*") for n in range(100))
    bag = [cert(f"c{n}", f"k{n}", f"k{n + 1}", *wide) for n in range(20)]
    assert ids(found(bag[:2], holder="k2", owners=lambda key: key == "k0")) == [("c0", "c1")]
    with pytest.raises(ChainInvalid, match="MAX_CHAIN_STEPS"):
        found(bag, holder="k20", owners=lambda key: key == "k0")


def test_rights_of_all_chains_together_have_a_limit() -> None:
    wide = tuple(types(f"t{n}.*") for n in range(200))
    with pytest.raises(ChainInvalid, match="MAX_CHAIN_RIGHTS"):
        found([cert(f"c{n}", f"k{n}", "smith", *wide) for n in range(21)])


def test_a_bag_has_a_size() -> None:
    bag = [cert(f"c{n}", "pito", "other") for n in range(MAX_BAG)]
    assert found(bag) == ()
    with pytest.raises(ChainInvalid, match="MAX_BAG"):
        found([*bag, cert("x", "pito", "smith")])
    assert "MAX_BAG" in refusal([*bag, cert("x", "pito", "smith")]).message


# -- why not ----------------------------------------------------------------------------------------------------------

ROOT = cert("c1", "pito", "met", types("a.*", owner="pito"))
LEAF = cert("c2", "met", "smith", types("a.T", owner="pito"), delegate=False)


def test_a_chain_of_two_is_found() -> None:
    assert ids(found([LEAF, ROOT])) == [("c1", "c2")]


@pytest.mark.parametrize(
    ("bag", "said"),
    [
        ([], "nothing presented was issued to `smith`"),
        ([ROOT], "nothing presented was issued to `smith`"),
        ([LEAF], "`c2` was issued by `met`, which does not own what it gives, and nothing presented gives `met`"),
        ([replace(ROOT, delegate=False), LEAF], "`c1` does not let `met` delegate, which issued `c2`"),
        ([replace(ROOT, issuer="eve"), LEAF], "`c1` was issued by `eve`, which does not own what it gives"),
        ([replace(ROOT, authority=(types("b.*"),)), LEAF], "`c1` gives nothing of what is left of `c2`"),
        ([replace(ROOT, authority=(types(owner="eve"),)), LEAF], "`c1` gives nothing of what is left of `c2`"),
        ([replace(ROOT, issuer="smith"), LEAF], "`c1` leads back to `smith`"),
        (
            [replace(ROOT, validity=Validity(MOMENTS[5])), LEAF],
            "`c1` is not valid before `1970-01-01T00:00:05Z`",
        ),
        ([cert("n", "met", "smith", NetworkAuthority(CONNECT))], "which is not the coordinating domain"),
    ],
)
def test_a_refusal_names_what_is_missing(bag: list[Certificate], said: str) -> None:
    assert found(bag) == ()
    error = refusal(bag)
    assert isinstance(error, ChainInvalid)
    assert said in error.message
    assert error.remedy


def test_a_refusal_names_a_network_that_is_another() -> None:
    bag = [cert("n", "pito", "smith", NetworkAuthority(CONNECT, "other"))]
    assert len(found(bag)) == 1
    assert found(bag, network="police") == ()
    error = refusal(bag, network="police")
    assert "`n` is for the network `other`" in error.message
    assert error.remedy == "ask for one for `police`"


def test_what_stopped_the_longest_chain_is_told() -> None:
    stray = cert("x", "eve", "smith", types(owner="pito"))
    for bag in ([stray, ROOT, LEAF], [LEAF, ROOT, stray]):
        assert "`c1` does not let `met` delegate" in refusal([replace(one, delegate=False) for one in bag]).message


def test_expired_and_revoked_are_said_where_that_alone_is_wrong() -> None:
    over = replace(ROOT, validity=Validity(None, MOMENTS[2]))
    later = replace(LEAF, validity=Validity(MOMENTS[3]))
    error = refusal([over, later])
    assert isinstance(error, Expired)
    assert error.message == "the certificate `c1` ended at `1970-01-01T00:00:02Z`"
    error = refusal([ROOT, LEAF], revoked=("c2",))
    assert isinstance(error, Revoked)
    assert error.message == "the certificate `c2` was revoked"
    both = refusal([over, LEAF], revoked=("c2",))
    assert isinstance(both, ChainInvalid)
    assert isinstance(refusal([over, replace(LEAF, issuer="ccs")]), ChainInvalid)


def test_expiry_is_told_although_another_chain_stands() -> None:
    over = replace(ROOT, id="old", subject="ccs", validity=Validity(None, MOMENTS[2]))
    error = refusal([ROOT, LEAF, over, replace(LEAF, id="c3", issuer="ccs")])
    assert isinstance(error, Expired)
    assert "`old`" in error.message
    assert isinstance(refusal([ROOT, LEAF]), ChainInvalid)


def test_silence_is_told() -> None:
    error = refusal([ROOT, LEAF], known=lambda c: None if c.id == "c1" else True)
    assert isinstance(error, ChainInvalid)
    assert "`c1` is unknown while nothing is heard from `pito`" in error.message


# -- the police network (Capabilities, figures 4 to 6) ----------------------------------------------------------------

PLATE, OTHER = "uk.gov.pito.Numberplate", "uk.gov.pito.Vehicle"
POLICE = (
    Catalog()
    .declare(EventType(PLATE, "pito", {"location": Kind.STRING, "numberplate": Kind.STRING}))
    .declare(EventType(OTHER, "pito", {"owner": Kind.STRING}))
    .declare(EventType("uk.met.Shift", "met", {"officer": Kind.STRING}))
)
BLANKET = cert(
    "blanket", "met", "broker", NetworkAuthority(NETWORK_ACTIONS), types(actions=TYPE_ACTIONS), delegate=False
)
FIRST = cert("t1", "pito", "met", types(PLATE, actions=PUBLISH | SUBSCRIBE))
SECOND = cert("t2", "pito", "met", types(OTHER))
JOINS = cert("net", "pito", "met", NetworkAuthority(NETWORK_ACTIONS, "uk-police"))


def holder_state(bag: Sequence[Certificate], holder: str) -> State:
    chains = found(bag, holder)
    rules = {rule.id: rule for chain in chains for rule in to_rules(holder, chain, lambda key: key)}
    return State(types=POLICE, rules=tuple(rules.values()), principals={holder: {}})


def sees(bag: Sequence[Certificate], holder: str, type_name: str, **values: Value) -> set[str] | None:
    values = dict.fromkeys(POLICE.attributes(type_name)) | values
    shown = view(holder_state(bag, holder), holder, Event("e", "p", type_name, values, EPOCH), {})
    return None if shown is None else set(shown.attributes)


def test_smith_is_linked_to_the_owner_through_his_domain() -> None:
    wanted = Compare("=", Attribute("numberplate"), Constant("AE05 XYZ"))
    leaf = cert("smith", "met", "smith", types(PLATE, attributes=("numberplate",), where=wanted), delegate=False)
    assert sees([FIRST, leaf], "smith", PLATE, numberplate="AE05 XYZ") == {"numberplate"}
    assert sees([FIRST, leaf], "smith", PLATE, numberplate="OTHER") is None
    assert sees([leaf], "smith", PLATE, numberplate="AE05 XYZ") is None
    assert sees([FIRST], "smith", PLATE, numberplate="AE05 XYZ") is None
    assert sees([FIRST, leaf], "jones", PLATE, numberplate="AE05 XYZ") is None


def test_a_blanket_certificate_brings_later_rights_with_nothing_new_issued() -> None:
    before, after = [BLANKET, FIRST], [BLANKET, FIRST, SECOND]
    assert sees(before, "broker", PLATE) == {"location", "numberplate"}
    assert sees(before, "broker", OTHER) is None
    assert sees(after, "broker", OTHER) == {"owner"}
    assert sees(after, "broker", "uk.met.Shift") == {"officer"}
    assert sees([FIRST, SECOND], "broker", OTHER) is None


def test_the_network_is_the_coordinating_domains_to_give() -> None:
    assert may_connect(holder_state([BLANKET, JOINS], "broker"), "broker")
    assert not may_connect(holder_state([BLANKET], "broker"), "broker")
    assert not may_connect(holder_state([BLANKET, replace(JOINS, issuer="eve")], "broker"), "broker")


def test_blanket_means_what_was_given_and_no_more() -> None:
    rules = [rule for rule in holder_state([BLANKET, FIRST], "broker").rules if rule.author == "pito"]
    assert [(rule.type, rule.actions) for rule in rules] == [(PLATE, PUBLISH | SUBSCRIBE)]


@given(validities(), validities(), authorities())
def test_a_chain_holds_only_while_both_links_do(a: Validity, b: Validity, authority: tuple[Authority, ...]) -> None:
    first, second = cert("a", "o1", "k", *authority, validity=a), cert("b", "k", "smith", *authority, validity=b)
    for at in MOMENTS:
        chains = discover(
            [first, second],
            "smith",
            ChainGround(
                coordinator="o1",
                now=at + timedelta(microseconds=1),
                revoked=lambda _: False,
                known=lambda _: True,
                owners=lambda key: key == "o1",
            ),
        )
        whole = [chain for chain in chains if len(chain.chain) == 2]
        assert not whole or (a.holds(at) and b.holds(at))
        assert all(chain.validity.holds(at) for chain in whole)
