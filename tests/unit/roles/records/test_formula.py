"""The membership rule of a constraint: starred atoms as they become, all else as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.constraints import Scene
from headgate.decide.constraints import truth as reference_truth
from headgate.lang.rolefile import parse_constraint
from headgate.model.expressions import AllOf, AnyOf, Condition, Not, Related, Starred
from headgate.model.roles import Link
from headgate.model.state import State
from headgate.roles.records.facts import When, membership_rule
from headgate.roles.records.records import Records
from strategies.rolestories import conjunction, inverse
from strategies.running import examples

NAMES = ("p", "q", "r")
Truth = bool | None


class Facts:
    """Facts by name, each with a record; at entry and later they may be anything."""

    def __init__(self, entry: dict[str, Truth]) -> None:
        self.entry = entry
        self.records = Records()
        self.made: dict[str, int] = {}

    def scene(self) -> Scene:
        return Scene(State(version=1), functions={name: lambda name=name: self.entry[name] for name in NAMES})

    def record(self, fact: When) -> Link:
        assert isinstance(fact.leaf, Related)
        name = fact.leaf.name
        if name not in self.made:
            self.made[name] = self.records.leaf(self.entry[name], fact=name)
        return Link(self.made[name])

    def rule(self, constraint: Condition) -> Link | bool:
        return membership_rule(constraint, {}, self.scene(), self.records, self.record)

    def worth(self, rule: Link | bool) -> Truth:
        if isinstance(rule, bool):
            return rule
        found = self.records.state(rule.parent)
        return inverse(found) if rule.negated else found


def expected(c: Condition, entry: dict[str, Truth], now: dict[str, Truth], star: bool, positive: bool) -> Truth:
    """The constraint with the value of every part that has no star as it was, unknown counting against it."""
    match c:
        case Starred(arg):
            return expected(arg, entry, now, True, positive)
        case Not(arg):
            return inverse(expected(arg, entry, now, star, not positive))
        case AllOf(args):
            return conjunction([expected(arg, entry, now, star, positive) for arg in args])
        case AnyOf(args):
            return inverse(conjunction([inverse(expected(arg, entry, now, star, positive)) for arg in args]))
        case Related(name):
            was = entry[name]
            return now[name] if star else (not positive) if was is None else was
    raise NotImplementedError(c)


@st.composite
def formulas(draw: st.DrawFn, depth: int = 3) -> Condition:
    kind = draw(st.integers(0, 5)) if depth else 0
    if kind < 2:
        return Related(draw(st.sampled_from(NAMES)))
    if kind == 2:
        return Not(draw(formulas(depth - 1)))
    if kind == 3:
        return Starred(draw(formulas(depth - 1)))
    some = draw(st.lists(formulas(depth - 1), min_size=2, max_size=3))
    return (AllOf if kind == 4 else AnyOf)(tuple(some))


truths = st.fixed_dictionaries({name: st.sampled_from([True, False, None]) for name in NAMES})


@given(formulas(), truths, st.lists(truths, max_size=3))
@examples(120, soak=300)
def test_a_rule_is_the_constraint_with_the_rest_as_it_was(
    constraint: Condition, entry: dict[str, Truth], then: list[dict[str, Truth]]
) -> None:
    facts = Facts(entry)
    rule = facts.rule(constraint)
    assert facts.worth(rule) is expected(constraint, entry, entry, False, True)
    for now in then:
        for name, ref in facts.made.items():
            facts.records.set(ref, now[name])
        assert facts.worth(rule) is expected(constraint, entry, now, False, True)


@given(formulas(), truths)
@examples(150)
def test_a_rule_is_true_at_entry_only_where_the_constraint_is(constraint: Condition, entry: dict[str, Truth]) -> None:
    facts = Facts(entry)
    if facts.worth(facts.rule(constraint)) is True:
        assert reference_truth(constraint, {}, facts.scene()) is True


@pytest.mark.parametrize(
    ("text", "entry", "rule"),
    [
        ("p() and q()", {"p": True, "q": True}, True),
        ("p() or q()*", {"p": True, "q": True}, True),
        ("p() and q()*", {"p": False, "q": True}, False),
        ("not p()", {"p": None}, False),
        ("p() or not q()", {"p": None, "q": None}, False),
        ("not (not p() and not q()*)", {"p": True, "q": False}, True),
    ],
)
def test_where_no_star_matters_there_is_no_record(text: str, entry: dict[str, Any], rule: bool) -> None:
    facts = Facts({**dict.fromkeys(NAMES), **entry})
    assert facts.rule(parse_constraint(text)) is rule


def test_one_atom_is_its_own_record() -> None:
    facts = Facts(dict.fromkeys(NAMES, True))
    assert facts.rule(parse_constraint("p()*")) == Link(facts.made["p"])
    assert facts.rule(parse_constraint("not p()* and q()*")) != facts.rule(parse_constraint("p()* and q()*"))
    assert len(facts.made) == 2
