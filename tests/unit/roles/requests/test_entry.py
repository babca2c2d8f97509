"""Role entry is a small logic program, read in order; and hostile rolefiles end in a refusal that names a limit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headgate.decide.constraints import Budget, Scene
from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import DeclarePrincipal
from headgate.model.errors import RoleDenied
from headgate.model.expressions import (
    AllOf,
    AnyOf,
    Apply,
    Combine,
    Compare,
    Condition,
    Constant,
    Count,
    InGroup,
    InRange,
    InSet,
    Meta,
    Not,
    Operand,
    Related,
    RoleRef,
    Starred,
    Term,
    TextMatch,
    Variable,
)
from headgate.model.limits import MAX_ENTRY_MEMBERSHIPS, MAX_ENTRY_STEPS
from headgate.model.rolefiles import Credential, Elector, Revoker, Rolefile, Statement
from headgate.model.roles import Ban, Election, Membership
from headgate.model.state import State
from headgate.roles.requests.entry import Candidate, Derived, EntryRequest, derive
from strategies.rolestories import NOW, Story, World, equal, truth
from strategies.running import examples

R, RW = frozenset("r"), frozenset("rw")
DOMAIN: tuple[Any, ...] = ("a", "b", 0, 1, 2, R, RW)
GROUPS = {"g": frozenset({"a", "h"}), "h": frozenset({"b"})}
RELATIONS = {"P": frozenset({("a", "b"), ("b", "b"), ("a", 1)}), "F": frozenset({("a", 1), ("b", 0), ("c", 2)})}
FUNCTIONS = {"size": lambda one: len(one) if isinstance(one, str) else None, "early": lambda *_: True}
HELD = [Membership(f"h{n}", "S", "M", args, "p", 0) for n, args in enumerate([("a", 1), ("b", 1), ("b", 2)])]
ACTIVE: tuple[Any, ...] = (*DOMAIN, *range(3, 7), *range(-4, 0), "c", "", frozenset(), frozenset("w"))
"""The values that anything may have here."""
OWN = {"A": 1, "B": 1, "C": 2, "D": 0}
"""The roles of the rolefile, with how many arguments they have."""


def world() -> World:
    held = [(one.place, one.role, one.args) for one in HELD]
    asked = {"instance": "", "time": NOW, "client": "a", "origin": None}
    return World(GROUPS, RELATIONS, FUNCTIONS, held, frozenset({"M", *OWN}), ("S", ""), asked)


def scene() -> Scene:
    def members(place: tuple[str, str], role: str, _having: object = None, /) -> Iterator[Membership]:
        return iter([one for one in HELD if (one.place, one.role) == (place, role)])

    state = State(groups=GROUPS, relations=RELATIONS)
    return Scene(state, "S", "", "a", NOW, None, FUNCTIONS, members, frozenset({"M", *OWN}), Budget(MAX_ENTRY_STEPS))


# -- a logic-programming reading ----------------------------------------------------------------------------------
#
# Every statement in turn, every choice of credentials in the order of the list, every election, every assignment of
# every variable from the values that there are: what is true is added at the end. Nothing is searched cleverly.

Key = tuple[Any, ...]


def key(one: Candidate) -> Key:
    return (one.service, one.instance, one.role, one.args)


def means(ref: RoleRef, of: Key, env: dict[str, Any]) -> bool:
    """Is a role meant by a reference under an assignment?"""
    service, instance, role, args = of
    terms = [Constant("") if ref.instance is None else ref.instance, *ref.args]
    if (ref.service or "S", ref.role) != (service, role) or len(ref.args) > len(args):
        return False
    return all(t == Variable("_") or equal(worth(t, env), v) for t, v in zip(terms, (instance, *args), strict=False))


def worth(term: Term, env: dict[str, Any]) -> Any:
    match term:
        case Variable(name):
            return env[name]
        case Meta(name):
            return world().asked[name]
        case Constant(known):
            return known


def assignments(statement: Statement, known: dict[str, Any], asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every assignment of the variables, but that what is known of one is not tried otherwise."""
    names = sorted(names_in(statement))
    if names_of(statement.head) - bound_in(statement) - asked.keys():
        return  # nothing says what such a variable is: only a request can
    for values in product(*([known[name]] if name in known else ACTIVE for name in names)):
        yield dict(zip(names, values, strict=True))


def said_of(refs: list[RoleRef], of: list[Key]) -> dict[str, Any]:
    """What credentials say of the variables that name their arguments."""
    pairs = [pair for ref, one in zip(refs, of, strict=True) for pair in zip(ref.args, one[3], strict=False)]
    return {term.name: value for term, value in pairs if isinstance(term, Variable)}


def results(
    statement: Statement, listed: list[Candidate], request: EntryRequest, asked: dict[str, Any]
) -> Iterator[Any]:
    """What a statement gives of the list: with which credentials and elections, all arguments that come of it."""
    for credentials in product(listed, repeat=len(statement.credentials)):
        if any(said.ref.role != one.role for said, one in zip(statement.credentials, credentials, strict=True)):
            continue
        for elections in permutations(request.elections, len(statement.electors)):
            if len({one.elector for one in elections}) < len(elections):
                continue  # one principal is one voice
            found: list[tuple[Any, ...]] = []
            refs = [one.ref for one in (*statement.credentials, *statement.electors)]
            known = said_of(refs, [*map(key, credentials), *map(office_of, elections)])
            for env in assignments(statement, {**known, **asked}, asked):
                args = tuple(worth(term, env) for term in statement.head.args)
                said = zip(statement.credentials, credentials, strict=True)
                if args in found or not all(means(c.ref, key(one), env) for c, one in said):
                    continue
                offices = zip(statement.electors, elections, strict=True)
                if not all(elected(e, one, statement, args, request, env) for e, one in offices):
                    continue
                banned = any(b.role == statement.head.role and tuple(b.args) == args for b in request.bans)
                if truth(statement.constraint, env, world()) is True and not (statement.revokers and banned):
                    found.append(args)
            if found:
                yield credentials, elections, found


def office_of(one: Election) -> Key:
    return (one.office.service, "", one.office.role, tuple(t.value for t in one.office.args))  # type: ignore[union-attr]


def elected(e: Elector, one: Election, st: Statement, args: tuple[Any, ...], request: EntryRequest, env: Any) -> bool:
    open_or_same = len(one.args) in (0, len(args)) and all(
        want is None or equal(want, got) for want, got in zip(one.args, args, strict=False)
    )
    shown = all(any(fits_alone(ref, key(m)) for m in request.shown) for ref in one.required)
    stays = not e.starred or request.in_office is None or one.id in request.in_office
    return one.role == st.head.role and means(e.ref, office_of(one), env) and open_or_same and shown and stays


def fits_alone(ref: RoleRef, of: Key) -> bool:
    names = sorted({t.name for t in ref.args if isinstance(t, Variable)} - {"_"})
    return any(means(ref, of, dict(zip(names, some, strict=True))) for some in product(DOMAIN, repeat=len(names)))


def read(rolefile: Rolefile, request: EntryRequest) -> tuple[Any | None, set[tuple[Any, ...]], bool]:
    """What is given first, all arguments that could be given, and whether some choice had several results."""
    listed: list[Candidate] = list(request.shown)
    first, every, several = None, set(), False
    known: set[Any] = set()
    grown = True
    while grown:
        grown = False
        for statement in rolefile.statements:
            if statement.head.role == request.role and (
                request.args is None or len(request.args) == len(statement.head.args)
            ):
                asked: dict[str, Any] = {}
                fits = True
                for term, want in zip(statement.head.args, request.args or (), strict=False):
                    if want is not None and isinstance(term, Variable):
                        fits = fits and equal(asked.setdefault(term.name, want), want)
                    elif want is not None:
                        fits = fits and equal(worth(term, {}), want)
                for credentials, elections, found in results(statement, listed, request, asked) if fits else ():
                    every.update(found)
                    first = first or (statement, [key(one) for one in credentials], elections, found)
            for credentials, elections, found in list(results(statement, listed, request, {})):
                several |= len(found) > 1
                for args in found:
                    of = (statement.head.role, *((type(arg), arg) for arg in args))
                    if of not in known:
                        known.add(of)
                        made = Derived("S", "", statement.head.role, args, statement, {}, credentials, elections)
                        listed.append(made)
                        grown = True
        assume(len(known) < 40 and all(arg in ACTIVE for _, *args in known for _, arg in args))
    return first, every, several


# -- random small rolefiles ---------------------------------------------------------------------------------------


def names_of(e: object) -> set[str]:
    """The variables of any piece of syntax; those of a count are its own where nothing else names them."""
    if isinstance(e, Variable):
        return {e.name} - {"_"}
    if isinstance(e, Count | str) or not (isinstance(e, tuple) or hasattr(e, "__dataclass_fields__")):
        return set()
    parts = e if isinstance(e, tuple) else [getattr(e, name) for name in e.__dataclass_fields__]
    return set().union(*map(names_of, parts))


def names_in(statement: Statement) -> set[str]:
    refs = [one.ref for one in (*statement.credentials, *statement.electors)]
    return names_of((statement.head, *refs, statement.constraint))


def bound_in(statement: Statement) -> set[str]:
    """The variables that credentials, electors and constraints give values."""
    known = names_of(tuple(one.ref for one in (*statement.credentials, *statement.electors)))
    parts = statement.constraint.args if isinstance(statement.constraint, AllOf) else (statement.constraint,)
    for _ in parts:
        for part in parts:
            plain = part.arg if isinstance(part, Starred) else part
            if isinstance(plain, Compare) and plain.op == "=" and names_of(plain.right) <= known:
                known |= names_of(plain.left)
            if isinstance(plain, Related) and plain.name in ("P", "M"):
                known |= names_of(plain)
    return known


values = st.sampled_from(DOMAIN)


@st.composite
def terms(draw: st.DrawFn, names: str = "xyz") -> Term:
    kind = draw(st.integers(0, 15))
    if kind < 13:
        return Variable(draw(st.sampled_from(names)))
    return Variable("_") if kind == 13 else Constant(draw(values)) if kind == 14 else Meta("client")


@st.composite
def role_refs(draw: st.DrawFn) -> RoleRef:
    if draw(st.booleans()):
        role, size = draw(st.sampled_from(sorted(OWN.items())))
        return RoleRef(role, tuple(draw(terms()) for _ in range(draw(st.integers(0, size)))))
    role, size = draw(st.sampled_from([("On", 1), ("On", 1), ("Two", 2)]))
    return RoleRef(role, tuple(draw(terms()) for _ in range(draw(st.integers(0, size)))), "L")


@st.composite
def expressions(draw: st.DrawFn, known: tuple[str, ...]) -> Operand:
    one: st.SearchStrategy[Operand] = values.map(Constant)
    if known:
        one = st.sampled_from(known).map(Variable) | one
    match draw(st.integers(0, 8)):
        case 0:
            return Combine(draw(st.sampled_from(["+", "-"])), draw(one), Constant(1))
        case 1:
            return Combine(draw(st.sampled_from(["union", "intersect", "minus"])), draw(one), Constant(RW))
        case 2:
            return Apply(draw(st.sampled_from(["F", "P", "size"])), (draw(one),))
        case 3:
            return Count(RoleRef("M", (draw(one), Variable("_"))))  # type: ignore[arg-type]
        case 4:
            return Meta(draw(st.sampled_from(["client", "instance", "origin"])))
        case _:
            return draw(one)


@st.composite
def atoms(draw: st.DrawFn, known: tuple[str, ...]) -> Condition:
    one, other = draw(expressions(known)), draw(expressions(known))
    ops = ["=", "!=", "<", "<=", ">", ">=", "subset", "subseteq", "superset", "superseteq"]
    match draw(st.integers(0, 8)):
        case 0:
            return InGroup(one, draw(st.sampled_from(["g", "h"])))
        case 1:
            return InRange(one, Constant(0), other)
        case 2:
            return InSet(one, ("a", 1))
        case 3:
            return TextMatch(draw(st.sampled_from(["starts with", "contains", "has token"])), one, Constant("a"))
        case 4:
            return Related("P", (one, draw(st.sampled_from([other, Variable("_")]))))
        case 5:
            return Related("M", (one,))
        case 6:
            return Related("early", (one,))
        case _:
            return Compare(draw(st.sampled_from(ops)), one, other)


@st.composite
def judged(draw: st.DrawFn, known: tuple[str, ...], depth: int = 2) -> Condition:
    kind = draw(st.integers(0, 5)) if depth else 0
    if kind < 3:
        return draw(atoms(known))
    if kind == 3:
        return Not(draw(judged(known, depth - 1)))
    if kind == 4:
        return Starred(draw(judged(known, depth - 1)))
    return draw(st.sampled_from([AllOf, AnyOf]))(tuple(draw(judged(known, depth - 1)) for _ in range(2)))


@st.composite
def statements(draw: st.DrawFn) -> Statement:
    credentials = tuple(Credential(draw(role_refs())) for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2]))))
    electors = ()
    if draw(st.integers(0, 3)) == 0:
        office = st.sampled_from([RoleRef("Boss", (), "L"), RoleRef("Boss", (Variable("y"),), "L")])
        electors = tuple(
            Elector(draw(office), draw(st.booleans()), draw(st.booleans())) for _ in range(draw(st.integers(1, 2)))
        )
    known = sorted(names_of(tuple(one.ref for one in (*credentials, *electors))))
    parts: list[Condition] = []
    for name in draw(st.lists(st.sampled_from("vw"), max_size=2, unique=True)):
        if draw(st.booleans()):
            parts.append(Compare("=", Variable(name), draw(expressions(tuple(known)))))
        else:
            parts.append(Related("P", (draw(terms("".join(known) or "v")), Variable(name))))
        known = sorted(names_of(parts[-1]) | {*known})
    parts += [draw(judged(tuple(known))) for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2])))]
    draw(st.randoms(use_true_random=False)).shuffle(parts)
    role, size = draw(st.sampled_from(sorted(OWN.items())))
    free = draw(st.integers(0, 7)) == 0
    head = tuple(
        Variable(draw(st.sampled_from(known))) if known and not free and draw(st.integers(0, 4)) else draw(_open(free))
        for _ in range(size)
    )
    revokers = (Revoker(RoleRef("Boss", (), "L")),) if draw(st.integers(0, 3)) == 0 else ()
    constraint = parts[0] if len(parts) == 1 else AllOf(tuple(parts))
    return Statement(RoleRef(role, head), credentials, electors, revokers, constraint)


def _open(free: bool) -> st.SearchStrategy[Term]:
    return st.just(Variable("q")) if free else values.map(Constant)


BASE = parse_rolefile(
    "A(x) <- L.On(x)\nC(x, y) <- L.On(x) & L.On(y)\nD <- A(_)\nB(y) <- L.On(x) <| L.Boss(y)"
).statements


@st.composite
def rolefiles(draw: st.DrawFn) -> Rolefile:
    some = draw(st.lists(st.sampled_from(BASE), max_size=2, unique=True))
    made = [*some, *draw(st.lists(statements(), min_size=1, max_size=3))]
    draw(st.randoms(use_true_random=False)).shuffle(made)
    return Rolefile(statements=tuple(made))


@st.composite
def requests(draw: st.DrawFn, rolefile: Rolefile) -> EntryRequest:
    heads = [(one.head.role, OWN[one.head.role]) for one in rolefile.statements]
    electing = [(one.head.role, OWN[one.head.role]) for one in rolefile.statements if one.electors] or heads
    shown = [Membership(f"m{n}", "L", "On", (draw(values),), "p", 0) for n in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        shown.append(Membership("two", "L", "Two", (draw(values), draw(values)), "p", 0))
    if draw(st.integers(0, 2)) == 0:
        shown.append(Membership("own", "S", "A", (draw(values),), "p", 0))
    draw(st.randoms(use_true_random=False)).shuffle(shown)
    elections = []
    for n in range(draw(st.integers(0, 2))):
        role, size = draw(st.sampled_from(electing))
        args = draw(st.sampled_from([(), (), (None,) * size, tuple(draw(st.none() | values) for _ in range(size))]))
        office = RoleRef("Boss", (Constant(draw(values)),), "L", Constant(""))
        required = (RoleRef("On", (draw(terms()),), "L"),) if draw(st.integers(0, 2)) == 0 else ()
        required = tuple(one for one in required if not isinstance(one.args[0], Meta))
        elections.append(
            Election(f"e{n}", "S", role, args, draw(st.sampled_from("pqr")), "m", office, 0, 0, "", required)
        )
    role, size = draw(st.sampled_from(heads))
    wanted = draw(st.none() | st.none() | st.tuples(*[st.none() | values] * size))
    bans = frozenset(Ban("S", "", "A", (draw(values),), "L.Boss") for _ in range(draw(st.integers(0, 2))))
    left = draw(st.sampled_from([None, None, frozenset({"e0"}), frozenset()]))
    return EntryRequest(role, wanted, tuple(shown), tuple(elections), bans, left)


@given(st.data())
@examples(60, soak=150)
def test_role_entry_is_a_logic_program_read_in_order(data: st.DataObject) -> None:
    rolefile = data.draw(rolefiles())
    request = data.draw(requests(rolefile))
    first, every, several = read(rolefile, request)
    found = derive(rolefile, request, scene())
    assert (found is None) == (first is None)
    if found is None or first is None:
        return
    assert found.role == request.role
    assert found.args in every
    if not several:
        statement, credentials, elections, args = first
        assert found.statement is statement
        assert [key(one) for one in found.credentials] == credentials
        assert found.elections == elections
        assert found.args in args


# -- by hand ------------------------------------------------------------------------------------------------------


def people(*names: str) -> Story:
    return Story(*(DeclarePrincipal(name) for name in names or ("ann", "bob")))


def test_of_figure_3_2_the_intermediate_role_wins() -> None:
    story = people().rolefile("Bas(1) <- L.Foo", "Bas(2) <- L.Foo", "Bar(1) <- Bas(2)", "Bar(2) <- L.Foo")
    story.grant("f", "ann", "Foo").enter("b", "ann", "Bar")
    assert story.args("b") == (1,)
    assert story.state.roles.memberships["b"].supports == ("f",)
    assert story.enter("c", "ann", "Bar", 2).args("c") == (2,)


def test_a_role_that_is_defined_below_its_use_is_found_in_another_pass() -> None:
    story = people().rolefile("A(u) <- B(u)", "B(u) <- C(u)", "C(u) <- L.On(u)", "A('late') <- L.On(u)")
    story.grant("o", "ann", "On", "ann").enter("a", "ann", "A")
    assert story.args("a") == ("late",)
    assert story.enter("b", "ann", "A", "ann").args("b") == ("ann",)


def test_a_credential_may_name_fewer_arguments_but_never_more() -> None:
    story = people().rolefile("A(u) <- L.On(u)", "B <- L.On", "C(u) <- L.On(u, h, x)")
    story.grant("o", "ann", "On", "ann", "ely")
    assert story.enter("a", "ann", "A").args("a") == ("ann",)
    assert "b" in story.enter("b", "ann", "B")
    with pytest.raises(RoleDenied, match="does not lead"):
        story.enter("c", "ann", "C")


def test_what_a_statement_leaves_open_the_request_says() -> None:
    story = people().rolefile("Visitor(u) <-", "In(u) <- Visitor(u)")
    assert story.enter("v", "ann", "Visitor", "who").args("v") == ("who",)
    with pytest.raises(RoleDenied):
        story.enter("w", "ann", "Visitor")
    with pytest.raises(RoleDenied):  # a visitor of no name is not entered on the way
        story.enter("i", "bob", "In", "who")
    assert "i" in story.enter("i", "ann", "In", "who", using=("v",))


def test_one_election_serves_one_elector() -> None:
    story = people("ann", "bob", "cat").rolefile("R(u) <- L.On(u) <| L.Boss <| L.Boss")
    story.grant("o", "ann", "On", "ann").grant("b", "bob", "Boss").grant("c", "cat", "Boss")
    story.elect("e", "bob", "R")
    with pytest.raises(RoleDenied):
        story.enter("r", "ann", "R", using=("o", "e"))
    story.elect("f", "cat", "R").enter("r", "ann", "R", using=("o", "e", "f"))
    assert story.state.roles.memberships["r"].supports == ("o", "e", "f")


# -- hostile ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "limit"),
    [
        (["N(x) <- L.On(u) : x = 0", "N(x) <- N(y) : x = y + 1"], f"MAX_ENTRY_MEMBERSHIPS ({MAX_ENTRY_MEMBERSHIPS})"),
        (["N(x) <- L.On(x) & " + " & ".join(f"L.On(u{n})" for n in range(15)) + " : x = 'nobody'"], "MAX_ENTRY_STEPS"),
        (["C(x, y) <- L.On(x) & L.On(y)", "N(x) <- C(x, y) & C(y, z) & C(z, w) : x = 'nobody'"], "MAX_ENTRY_STEPS"),
        (["N(x) <- " + " & ".join("N(x)" for _ in range(16)), "N(x) <- L.On(x) : x = 'nobody'"], "does not lead"),
    ],
)
def test_a_hostile_rolefile_ends_in_a_refusal_that_names_a_limit(lines: list[str], limit: str) -> None:
    story = people().rolefile(*lines)
    for number in range(20):
        story.grant(f"o{number}", "ann", "On", f"v{number}")
    with pytest.raises(RoleDenied) as refused:
        story.enter("n", "ann", "N", *([-1] if "x = 0" in lines[0] else []))
    assert limit in str(refused.value)
    assert "o1" in story


def test_more_credentials_than_may_be_shown() -> None:
    story = people().rolefile("A <- L.On")
    with pytest.raises(RoleDenied, match="MAX_SHOWN"):
        story.enter("a", "ann", "A", using=tuple(f"o{number}" for number in range(257)))


@pytest.mark.parametrize(("length", "step"), [(900, "N(y)*"), (60, "N(y)* & N(y)*")])
def test_a_long_way_through_intermediate_roles_is_one_membership(length: int, step: str) -> None:
    """Neither deep recursion, nor a path for each way through what is used twice."""
    lines = ["N(x) <- L.On(u)* : x = 0", f"N(x) <- {step} : x = y + 1 and x <= {length}"]
    story = people().rolefile(*lines).grant("o", "ann", "On", "ann").grant("p", "bob", "On", "bob")
    story.enter("n", "ann", "N", length)
    assert story.state.roles.memberships["n"].supports == ("o",)
    assert len(story.state.roles.records) == length + 3
    story.end("o")
    assert "n" not in story
    assert len(story.state.roles.records) == 1


def test_two_thousand_statements_in_the_worst_order() -> None:
    lines = [f"R{n}(u) <- R{n + 1}(u)" for n in range(1_999)] + ["R1999(u) <- L.On(u)"]
    story = people().rolefile(*lines).grant("o", "ann", "On", "ann")
    assert "r" in story.enter("r", "ann", "R1200")
    with pytest.raises(RoleDenied, match="MAX_ENTRY_MEMBERSHIPS"):
        story.enter("s", "ann", "R0")


def test_roles_that_lead_to_each_other_lead_nowhere() -> None:
    story = people().rolefile("A(u) <- B(u)", "B(u) <- A(u)", "def A(u) u : String").grant("o", "ann", "On", "ann")
    with pytest.raises(RoleDenied, match="does not lead"):
        story.enter("a", "ann", "A", "ann")


def test_a_deep_constraint_is_read() -> None:
    deep = "u = 'yes'"
    for number in range(28):
        deep = f"not ({deep} and u != 'w{number}')"
    story = people().rolefile(f"A(u) <- L.On(u) : {deep}")
    story.grant("o", "ann", "On", "yes").grant("p", "bob", "On", "no")
    assert "a" in story.enter("a", "ann", "A")
    with pytest.raises(RoleDenied):
        story.enter("b", "bob", "A")
