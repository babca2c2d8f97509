"""Constraints of rolefiles and event policy: three-valued truth, and exactly the bindings that make one true."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headgate.decide.constraints import Budget, Scene, solutions, truth, value
from headgate.lang.rolefile import parse_constraint, parse_expression
from headgate.model.errors import RoleDenied
from headgate.model.expressions import counted_variables, named, variables
from headgate.model.roles import Membership
from headgate.model.state import State
from headgate.roles.rolefiles.names import check_bound
from strategies import rolestories
from strategies.rolestories import World
from strategies.running import examples

AT = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
R, RW = frozenset("r"), frozenset("rw")
STATE = State(
    groups={"staff": frozenset({"ann", "inner"}), "inner": frozenset({"bob"}), "empty": frozenset()},
    relations={
        "P": frozenset({("ann", 1), ("bob", 2), ("bob", True)}),
        "One": frozenset({("ann", "x")}),
        "Several": frozenset({("ann", "x"), ("ann", "y")}),
        "Void": frozenset(),
    },
)
HELD = [Membership(f"m{n}", "S", "In", args, "p", 0) for n, args in enumerate([("ann", 1), ("bob", 1), ("bob", 2)])]


def fails(*_: object) -> bool:
    raise ValueError("no")


def scene(budget: int | None = None) -> Scene:
    def members(place: tuple[str, str], role: str, _having: object = None, /) -> Iterator[Membership]:
        return iter([one for one in HELD if (one.place, one.role) == (place, role)])

    functions = {"yes": lambda *_: True, "fails": fails, "odd": lambda *_: object(), "three": lambda *_: 3}
    return Scene(STATE, "S", "", "ann", AT, None, functions, members, frozenset({"In"}), Budget(budget))


BOUND = {"u": "ann", "v": "bob", "n": 3, "t": True, "f": 2.0, "r": R, "rw": RW, "nil": None, "nobody": "zed"}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("u = 'ann'", True), ("u = v", False), ("u != v", True), ("u < v", True), ("n >= 3", True), ("n > 3", False),
        ("n = 3.0", True), ("f = 2", True), ("t = 1", None), ("n = '3'", None), ("nil = nil", None),
        ("nil != 1", None), ("missing = 1", None), ("u = u", True),
        ("r subset rw", True), ("r subset r", False), ("r subseteq r", True), ("rw superset r", True),
        ("r superseteq rw", False), ("r = {r}", True), ("r != rw", True), ("r < rw", None), ("r subset n", None),
        ("u subset r", None), ("r union {w} = rw", True), ("rw intersect {w} = {w}", True), ("rw minus r = {w}", True),
        ("n + 1 = 4", True), ("n - 4 = -1", True), ("u + 1 = 2", None), ("t + 1 = 2", None),
        ("9223372036854775807 + 1 > 0", None), ("r + r = r", None),
        ("u in staff", True), ("v in staff", True), ("nobody in staff", False), ("n in staff", None),
        ("nil in staff", None), ("u in nowhere", None), ("u in empty", False),
        ("n in 3..4", True), ("n in 4..5", False), ("n in 1..nil", None), ("n in 4..nil", False),
        ("u in 'a'..'b'", True), ("nil in 1..2", None),
        ("u in {'ann', 'x'}", True), ("n in {1, 2}", False), ("nil in {1}", None), ("n in {'x', 3}", True),
        ("n in {'x', 4}", None),
        ("u starts with 'an'", True), ("u contains 'x'", False), ("u has token 'ann'", True), ("n contains '3'", None),
        ("P(u, 1)", True), ("P(u, 2)", False), ("P(v, true)", True), ("P(u, true)", False), ("P(u, nil)", None),
        ("P(u, _)", True), ("P(nobody, _)", False), ("P(u)", False), ("P()", True), ("Void()", False),
        ("P(u, missing)", None), ("not P(nobody, _)", True),
        ("One(u) = 'x'", True), ("One(v) = 'x'", None), ("Several(u) = 'x'", None), ("One(nil) = 'x'", None),
        ("In(u)", True), ("In(u, 1)", True), ("In(nobody)", False), ("In(_, 2)", True), ("In(u, 1, 1)", False),
        ("count(In(_)) = 3", True), ("count(In('bob', _)) = 2", True), ("count(In(v)) = 2", True),
        ("count(In(x, y)) = 3", True), ("count(Out) = 0", True), ("count(T.In) = 0", True),
        ("yes()", True), ("fails()", None), ("odd() = 1", None), ("three() = 3", True), ("three()", None),
        ("nothing()", None), ("yes(nil)", None),
        ("@client = 'ann'", True), ("@instance = ''", True), ("@origin = 'x'", None),
        ("@time > timestamp '2026-01-01T00:00:00Z'", True), ("timeofday(@time, 'UTC') < '10:00'", True),
        ("weekday(@time, 'UTC') = 1", True), ("timeofday(u, 'UTC') = 1", None),
        ("u = 'ann' and nil = 1", None), ("u = 'x' and nil = 1", False), ("u = 'ann' or nil = 1", True),
        ("u = 'x' or nil = 1", None), ("not nil = 1", None), ("not (u = 'x')", True), ("(u = 'ann')*", True),
    ],
)  # fmt: skip
def test_truth(text: str, answer: bool | None) -> None:
    assert truth(parse_constraint(text), BOUND, scene()) is answer


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 3", [{"x": 3}]),
        ("3 = x", [{"x": 3}]),
        ("x = nil", []),
        ("x = n + 1", [{"x": 4}]),
        ("x = y and y = 3", [{"x": 3, "y": 3}]),
        ("x = y", []),
        ("x > 3", []),
        ("x = 4 and x > 3", [{"x": 4}]),
        ("x > 3 and x = 4", [{"x": 4}]),
        ("x > 4 and x = 4", []),
        ("P(v, x)", [{"x": 2}, {"x": True}]),
        ("P(x, y)", [{"x": "ann", "y": 1}, {"x": "bob", "y": 2}, {"x": "bob", "y": True}]),
        ("P(x, x)", []),
        ("P(x, 1)", [{"x": "ann"}]),
        ("P(x, y) and y in 2..3", [{"x": "bob", "y": 2}]),
        ("P(x, n + 1)", []),
        ("P(x, y + 1)", []),
        ("P(nil, x)", []),
        ("not P(x, 1)", []),
        ("P(x, 1) and not P(x, 2)", [{"x": "ann"}]),
        ("In(x, 1)", [{"x": "ann"}, {"x": "bob"}]),
        ("In(x) and x != u", [{"x": "bob"}]),
        ("x = 1 or x = 2", [{"x": 1}, {"x": 2}]),
        ("(x = 1 or x = 2) and x > 1", [{"x": 2}]),
        ("((x = y and y = 3) or (y = 4 and x = y)) and z = x", [{"x": 3, "y": 3, "z": 3}, {"x": 4, "y": 4, "z": 4}]),
        ("(x = 1 or y = 2) and One(u, y) and P(v, x)", []),
        ("(x = 2 or y = 'x') and One(u, y) and P(v, x)", [{"x": 2, "y": "x"}, {"x": True, "y": "x"}]),
        ("x = One(u)", [{"x": "x"}]),
        ("x = Several(u)", []),
        ("Several(u, x)", [{"x": "x"}, {"x": "y"}]),
        ("x = count(In(y, _)) and y = v", [{"x": 2, "y": "bob"}]),
        ("count(In(y, _)) > 1 and In(y, 2)", [{"y": "bob"}]),
        ("x = count(In(y, _))", [{"x": 3}]),
        ("_ = 3", []),
        ("x = @client", [{"x": "ann"}]),
        ("x = @origin", []),
        ("x = r union {w}", [{"x": RW}]),
        ("(x = 1)* and (x < 2)*", [{"x": 1}]),
        ("u in staff", [{}]),
        ("u in empty", []),
    ],
)
def test_solutions(text: str, found: list[dict[str, Any]]) -> None:
    made = [dict(one) for one in solutions(parse_constraint(text), BOUND, scene())]
    new = [{name: one[name] for name in one if name not in BOUND} for one in made]
    distinct = [one for n, one in enumerate(new) if _exact(one) not in [_exact(other) for other in new[:n]]]
    assert sorted(map(_exact, distinct), key=repr) == sorted(map(_exact, found), key=repr)
    for one in made:
        assert truth(parse_constraint(text), one, scene()) is True


def _exact(one: dict[str, Any]) -> list[tuple[str, str, Any]]:
    return sorted((name, type(value).__name__, value) for name, value in one.items())


ATOMS = (
    *("x = 1", "x = y", "y = x + 1", "x < y", "P(u, x)", "P(z, y)", "z in staff", "not x = y", "In(z, x)", "z = u"),
    *("x in 1..2", "x in {1, 2}", "not P(z, _)", "One(z) = 'x'", "count(In(z, _)) > 1", "y = count(In(z))", "z != v"),
)
DOMAIN = ("ann", "bob", 0, 1, 2, 3, True)


@given(st.lists(st.sampled_from(ATOMS), min_size=1, max_size=4), st.booleans())
@examples(150)
def test_the_order_of_a_conjunction_does_not_matter_and_all_solutions_are_found(atoms: list[str], either: bool) -> None:
    counts = any("count" in one for one in atoms)  # what only one alternative gives a value may be counted over or not
    head = f"({atoms[0]} or {atoms[-1]})" if either and not counts else atoms[0]
    texts = (" and ".join([head, *atoms[1:]]), " and ".join([*reversed(atoms[1:]), head]))
    note(texts[0])
    one, other = ({tuple(_exact(dict(made))) for made in solved(text)} for text in texts)
    assert one == other
    constraint = parse_constraint(texts[0])
    names = sorted(variables(constraint) - BOUND.keys())
    held = [(m.place, m.role, m.args) for m in HELD]
    world = World(STATE.groups, STATE.relations, {}, held, frozenset({"In"}), ("S", ""), {})
    envs = [dict(zip(names, values, strict=True)) for values in product(DOMAIN, repeat=len(names))]
    true = [env for env in envs if rolestories.truth(constraint, {**BOUND, **env}, world) is True]
    for made in solved(texts[0]):
        new = {name: value for name, value in made.items() if name not in BOUND}
        if len(new) == len(names):
            assert _exact(new) in [_exact(env) for env in true]
    bound = all(len(made) == len(BOUND) + len(names) for made in solved(texts[0]))
    if bound and not list(check_bound(constraint, frozenset(BOUND), 0, {"P", "In"}.__contains__)):
        assert len({repr(_exact(env)) for env in true}) == len(one)


def solved(text: str) -> list[Any]:
    return list(solutions(parse_constraint(text), BOUND, scene()))


def test_work_is_counted_where_it_is_bounded() -> None:
    many = State(relations={"P": frozenset((f"p{n}", n) for n in range(2_000))})
    bounded = Scene(many, budget=Budget(1_000))
    with pytest.raises(RoleDenied, match="MAX_ENTRY_STEPS"):
        list(solutions(parse_constraint("P(x, y) and P(y, z)"), {}, bounded))
    assert truth(parse_constraint("P(_, 'nobody')"), {}, Scene(many)) is False
    # One that has all its values is looked up, however many rows there are.
    assert truth(parse_constraint("P(u, 'x')"), {"u": "p7"}, Scene(many, budget=Budget(10))) is False


def test_a_deep_conjunction_of_alternatives_is_solved() -> None:
    deep = "x0 = 1"
    for n in range(20):
        deep = f"({deep} and x{n} = x{n + 1} or x{n} = 1 and x{n + 1} = 2)"
    found = list(solutions(parse_constraint(f"w = x20 and ({deep}) and w = 1"), {}, scene(50_000)))
    assert [one["w"] for one in found] == [1]


def test_names_and_variables() -> None:
    text = (
        "(u in staff)* and not f(x, g(y)) = z or count(Member(d, _)) < n and x in y..w and P(_, k) and x starts with a"
    )
    constraint = parse_constraint(text)
    assert named(constraint) == {"staff", "f", "g", "Member", "P"}
    assert variables(constraint) == {"u", "x", "y", "z", "n", "w", "k", "a"}
    assert counted_variables(constraint) == {"d"}


def test_a_value_that_cannot_be_worked_out_is_null() -> None:
    for text in ("missing", "missing + 1", "f(missing)", "count(In(missing)) + missing"):
        assert value(parse_expression(text), {}, scene()) is None
