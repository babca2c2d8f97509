"""Which statements can ever apply, and which of two wins? (OASIS 3.2.2, figure 3.2)

Guarantees: a statement that is said never to apply does not, unless its service itself gives a role that it needs; what
is called a contradiction is true for no values whatever, found by its literals alone. A statement that is called
ambiguous is never what an open request gets, since another needs no more and is reached first: statements are applied
in order, again and again until nothing new comes, and the first membership that fits is given. `canonical` gives two
statements the same form exactly if they differ in the names of variables only. All of it is bounded; past a bound
nothing is said.
Leaves out: roles without any statement, how roles of other services are entered, what only groups, relations and
functions tell, and statements that only their constraints tell apart, which is how precedence is meant to be used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final, TypeAlias

from headgate.decide.truth import compared
from headgate.lang.render import render_role
from headgate.model import expressions as tree
from headgate.model.expressions import Argument, Atom, Condition, Constant, Operand, RoleRef, Term, Variable
from headgate.model.rolefiles import Rolefile, Statement
from headgate.roles.rolefiles.inference import said
from headgate.roles.rolefiles.names import MAX_PAIRS, Finding, warning


def never_apply(rolefile: Rolefile, service: str, known: Callable[[str], Rolefile | None]) -> Iterator[Finding]:
    """The statements that can never apply, with why."""
    needs = _Needs(rolefile, service, known)
    for number, statement in enumerate(rolefile.statements):
        why = contradiction(statement.constraint)
        if why is not None:
            needs.barred.add(number)
            yield warning("never-applies", statement.line, f"the constraint is never true: {why}", "correct it")
    if not needs.spread():
        return
    for number, statement in enumerate(rolefile.statements):
        if number not in needs.barred and needs.lacking[number]:
            yield _lacking(statement, [needs.refs[number][n] for n in sorted(needs.lacking[number])], needs)


def _lacking(statement: Statement, refs: list[RoleRef], needs: _Needs) -> Finding:
    never = next((ref for ref in refs if not needs.is_given(ref)), None)
    if never is not None:
        message = f"no statement gives `{said(never)}`, so this one never applies"
        return warning("never-applies", statement.line, message, "correct the arguments, or add a statement")
    message = f"every statement that gives `{said(refs[0])}` needs this one or never applies, so this one never does"
    remedy = "add a statement that does not need it, or let the service give it to the first"
    return warning("never-applies", statement.line, message, remedy)


def is_own(ref: RoleRef, service: str) -> bool:
    """Is this a role of the service itself?"""
    return ref.service in (None, service)


class _Needs:
    """The roles that each statement needs, and those that no statement has given yet."""

    def __init__(self, rolefile: Rolefile, service: str, known: Callable[[str], Rolefile | None]) -> None:
        self._statements = rolefile.statements
        self._service = service
        self._known = known
        self._pairs = 0
        self._heads: dict[tuple[str | None, str], list[RoleRef]] = {}
        for statement in rolefile.statements:
            self._heads.setdefault((None, statement.head.role), []).append(statement.head)
        self.barred: set[int] = set()
        self.refs = [statement.needed for statement in rolefile.statements]
        self.lacking = [{n for n, ref in enumerate(refs) if not self._at_hand(ref)} for refs in self.refs]

    def is_given(self, ref: RoleRef) -> bool:
        """Does any statement at all give this?"""
        return any(may_give(head, ref) for head in self._of(ref))

    def spread(self) -> bool:
        """Let each statement that applies give its role to those that need it; False if that takes too long."""
        waiting: dict[str, list[tuple[int, int]]] = {}
        for number, lacking in enumerate(self.lacking):
            for n in lacking:
                ref = self.refs[number][n]
                if is_own(ref, self._service):
                    waiting.setdefault(ref.role, []).append((number, n))
        ready = [place for place, lacking in enumerate(self.lacking) if not lacking and place not in self.barred]
        while ready:
            head = self._statements[ready.pop()].head
            for number, n in waiting.get(head.role, ()):
                self._pairs += 1
                if self._pairs > MAX_PAIRS:
                    return False
                if n in self.lacking[number] and may_give(head, self.refs[number][n]):
                    self.lacking[number].discard(n)
                    if not self.lacking[number] and number not in self.barred:
                        ready.append(number)
        return True

    def _at_hand(self, ref: RoleRef) -> bool:
        """Is this given without any statement here?"""
        heads = self._of(ref)
        if not heads:
            return True  # only its service gives it, for its own reasons
        return not is_own(ref, self._service) and any(may_give(head, ref) for head in heads)

    def _of(self, ref: RoleRef) -> list[RoleRef]:
        """The heads of the statements that give a role."""
        key = (None if is_own(ref, self._service) else ref.service, ref.role)
        if key not in self._heads:
            other = self._known(key[0]) if key[0] is not None else None
            statements = other.statements if other is not None else ()
            self._heads[key] = [one.head for one in statements if one.head.role == ref.role]
        return self._heads[key]


MAX_CLAUSES: Final = 64
"""Alternatives of a constraint that are looked at."""

MAX_LITERALS: Final = 200
"""Atoms of one alternative that are compared with one another."""

Literal: TypeAlias = tuple[Atom, bool]
"""An atom, and whether it must be true."""

_TURNED: Final[Mapping[tree.CompareOp, tree.CompareOp]] = {
    **tree.MIRRORED,
    "subset": "superset", "superset": "subset", "subseteq": "superseteq", "superseteq": "subseteq",
}  # fmt: skip


def contradiction(constraint: Condition) -> str | None:
    """Why a constraint is never true, if that can be seen."""
    clauses = _clauses(constraint, True)
    if clauses is None:
        return None
    reasons = [_reason(clause) for clause in clauses]
    if any(reason is None for reason in reasons):
        return None
    return reasons[0] if reasons else "it is `false`"


def _clauses(c: Condition, positive: bool) -> list[tuple[Literal, ...]] | None:
    """The alternatives of a constraint; None if they are too many."""
    match c:
        case tree.Starred(arg):
            return _clauses(arg, positive)
        case tree.Not(arg):
            return _clauses(arg, not positive)
        case tree.AllOf(args) | tree.AnyOf(args):
            parts = [part for arg in args if (part := _clauses(arg, positive)) is not None]
            every = isinstance(c, tree.AllOf) is positive
            count = math.prod(map(len, parts)) if every else sum(map(len, parts))
            if len(parts) < len(args) or count > MAX_CLAUSES:
                return None
            if not every:
                return [clause for part in parts for clause in part]
            return [tuple(literal for clause in chosen for literal in clause) for chosen in product(*parts)]
        case leaf:
            return [((leaf, positive),)]


@dataclass(slots=True)
class _Asked:
    """What a clause asks of one expression."""

    tests: list[tuple[str, Argument, str]] = field(default_factory=list)
    choices: list[tuple[tuple[Argument, ...], str]] = field(default_factory=list)


def _reason(clause: tuple[Literal, ...]) -> str | None:
    if len(clause) > MAX_LITERALS:
        return None
    seen: dict[Atom, bool] = {}
    asked: dict[Operand, _Asked] = {}
    for leaf, positive in clause:
        text = said(leaf) if positive else f"not {said(leaf)}"
        if seen.setdefault(leaf, positive) is not positive:
            return f"`{said(leaf)}` must be true and false"
        if _never(leaf, positive):
            return f"`{text}` is never true"
        for of, op, value in _tests(leaf, positive):
            asked.setdefault(of, _Asked()).tests.append((op, value, text))
        if isinstance(leaf, tree.InSet) and positive:
            asked.setdefault(leaf.operand, _Asked()).choices.append((leaf.values, text))
    return next(filter(None, map(_unmet, asked.values())), None)


def _never(leaf: Atom, positive: bool) -> bool:
    """Is an atom never true on its own?"""
    match leaf:
        case tree.Compare(op, Constant(a), Constant(b)):
            return compared(op, a, b) is not positive
        case tree.Compare(op, left, right) if left == right:
            return (op in ("!=", "<", ">", "subset", "superset")) is positive
        case tree.Compare("subset", _, Constant(value)) | tree.Compare("superset", Constant(value), _):
            return positive and value == frozenset()
        case tree.InRange(_, Constant(low), Constant(high)):
            return positive and compared("<=", low, high) is not True
        case tree.InSet(Constant(value), values):
            return positive is not any(compared("=", value, one) is True for one in values)
        case _:
            return False


def _tests(leaf: Atom, positive: bool) -> Iterator[tuple[Operand, str, Argument]]:
    """What an atom asks of an expression beside a literal."""
    match leaf:
        case tree.Compare(op, Constant(value), of) if not isinstance(of, Constant):
            yield from _tests(tree.Compare(_TURNED[op], of, Constant(value)), positive)
        case tree.Compare(op, of, Constant(value)):
            if positive:
                yield of, op, value
            elif op in tree.NEGATED:
                yield of, tree.NEGATED[op], value
        case tree.InRange() if positive:
            for one in tree.comparisons(leaf):
                if isinstance(one.right, Constant):
                    yield one.left, one.op, one.right.value


def _unmet(asked: _Asked) -> str | None:
    """Which two of the tests no value meets."""
    for values, text in asked.choices:
        for op, against, other in asked.tests:
            if not any(compared(op, one, against) is True for one in values):
                return f"`{text}` and `{other}` exclude each other"
        if not any(all(compared(op, one, against) is True for op, against, _ in asked.tests) for one in values):
            return f"nothing in `{text}` meets the rest"
        for others, other in asked.choices:
            if not any(compared("=", one, two) is True for one in values for two in others):
                return f"`{text}` and `{other}` exclude each other"
    for place, (op, value, text) in enumerate(asked.tests):
        for other_op, other_value, other in asked.tests[:place]:
            if _exclude(op, value, other_op, other_value):
                return f"`{other}` and `{text}` exclude each other"
    return None


def _exclude(op: str, a: Argument, other: str, b: Argument) -> bool:
    """Is there no `x` with `x op a` and `x other b`?"""
    if op == "=":
        return compared(other, a, b) is not True
    if other == "=":
        return compared(op, b, a) is not True
    if op in ("<", "<=") and other in (">", ">="):
        return compared("<=" if op == "<=" and other == ">=" else "<", b, a) is not True
    if op in (">", ">=") and other in ("<", "<="):
        return _exclude(other, b, op, a)
    return False


MAX_WAYS: Final = 100
"""Ways to one role that are compared."""

MAX_STEPS: Final = 6
"""Intermediate roles in one way."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How a statement gives its role: what it comes to, what must be shown, and when it is reached."""

    statement: Statement
    head: RoleRef
    shown: tuple[tuple[str, RoleRef], ...]
    """What is needed: `held` roles and `elector` roles."""
    constraints: frozenset[Condition]
    turn: tuple[int, int]
    """The pass over the statements, and the statement's place in it."""
    through: tuple[int, ...] = ()
    """The lines of the statements that give the intermediate roles."""


def ambiguities(rolefile: Rolefile, service: str) -> Iterator[Finding]:
    """The pairs of statements of which one always wins, with why."""
    paths = _Paths(rolefile, service)
    for role in dict.fromkeys(statement.head.role for statement in rolefile.statements):
        reported: set[tuple[int, int]] = set()
        ways = sorted(paths.ways(role), key=lambda way: way.turn)
        for later, way in enumerate(ways):
            for winner in ways[:later]:
                if not paths.go_on():
                    return
                pair = (winner.turn[1], way.turn[1])
                if pair[0] != pair[1] and pair not in reported and _wins(winner, way):
                    reported.add(pair)
                    yield _told(winner, way)


def _told(winner: _Way, loser: _Way) -> Finding:
    first, second = render_role(winner.head), render_role(loser.head)
    by_way = f" through line {winner.through[0]}" if winner.through else ""
    why = "it stands first" if winner.turn[0] == loser.turn[0] else "it is reached first"
    message = (
        f"whoever could have `{second}` by this line gets `{first}` by line {winner.statement.line}{by_way}, "
        f"because {why} and needs no more"
    )
    remedy = f"ask for `{second}` by its arguments, or put the one that is to win first"
    return warning("ambiguous", loser.statement.line, message, remedy)


class _Paths:
    """The ways to each role, worked out once."""

    def __init__(self, rolefile: Rolefile, service: str) -> None:
        self._service = service
        self._made = 0
        self._left = MAX_PAIRS
        self._statements: dict[str, list[tuple[int, Statement]]] = {}
        for place, statement in enumerate(rolefile.statements):
            self._statements.setdefault(statement.head.role, []).append((place, statement))

    def go_on(self) -> bool:
        """Count one step; False once there were too many."""
        self._left -= 1
        return self._left > 0

    def ways(self, role: str, within: tuple[str, ...] = ()) -> list[_Way]:
        """The ways to a role that do not lead through itself."""
        if role in within or len(within) > MAX_STEPS:
            return []
        ways: list[_Way] = []
        for number, statement in self._statements.get(role, ()):
            if not self.go_on():
                return []
            for way in self._by(number, statement, (*within, role)):
                ways.append(way)
                if len(ways) >= MAX_WAYS:
                    return ways
        return ways

    def _by(self, number: int, statement: Statement, within: tuple[str, ...]) -> list[_Way]:
        self._made += 1
        own = in_statement(statement, numbered(f"{self._made}."))
        elected = tuple(("elector", one.ref) for one in own.electors)
        partial = [_Way(statement, own.head, elected, frozenset(tree.conjuncts(own.constraint)), (1, number))]
        for credential in own.credentials:
            partial = [one for way in partial for one in self._with(way, credential.ref, within)][:MAX_WAYS]
        return partial

    def _with(self, way: _Way, ref: RoleRef, within: tuple[str, ...]) -> Iterator[_Way]:
        """A way with one more credential: shown, or itself entered on the way."""
        if ref.service not in (None, self._service) or ref.role not in self._statements:
            yield replace(way, shown=(*way.shown, ("held", ref)))
            return
        for inner in self.ways(ref.role, within):
            if not self.go_on():
                return
            found = unified(ref.args, inner.head.args, {})
            if found is not None:
                yield _joined(way, inner, found)


def _joined(way: _Way, inner: _Way, substitution: Mapping[str, Term]) -> _Way:
    to = by(substitution)
    again = inner.turn[0] + (inner.turn[1] >= way.turn[1])
    return _Way(
        way.statement,
        in_role(way.head, to),
        tuple((kind, in_role(ref, to)) for kind, ref in (*way.shown, *inner.shown)),
        frozenset(in_constraint(one, to) for one in way.constraints | inner.constraints),
        (max(way.turn[0], again), way.turn[1]),
        (*way.through, inner.statement.line, *inner.through),
    )


def _wins(winner: _Way, loser: _Way) -> bool:
    """Does the winner need no more than the loser, and come to something else?"""
    substitution = _covered(winner.shown, loser.shown, {})
    if substitution is None:
        return False
    to = by(substitution)
    if not {in_constraint(one, to) for one in winner.constraints} <= loser.constraints:
        return False
    return any(  # what comes from the request may be the same
        in_term(one, to) != other and not _from_request(one, winner) and not _from_request(other, loser)
        for one, other in zip(winner.head.args, loser.head.args, strict=False)
    )


def _from_request(term: Term, way: _Way) -> bool:
    return isinstance(term, Variable) and not any(term in (*ref.args, ref.instance) for _, ref in way.shown)


def _covered(
    needs: tuple[tuple[str, RoleRef], ...], shown: tuple[tuple[str, RoleRef], ...], substitution: dict[str, Term]
) -> dict[str, Term] | None:
    """What the winner's variables mean, so that the loser's credentials are all it needs."""
    for kind, ref in needs:
        fitting = (_matched(ref, other, substitution) for other_kind, other in shown if other_kind == kind)
        made = next((one for one in fitting if one is not None), None)
        if made is None:
            return None
        substitution = made
    return substitution


def _matched(ref: RoleRef, other: RoleRef, substitution: dict[str, Term]) -> dict[str, Term] | None:
    """What variables mean for a reference to be no narrower than another."""
    if (ref.service, ref.role, ref.instance) != (other.service, other.role, other.instance):
        return None
    if len(ref.args) > len(other.args):
        return None
    made = dict(substitution)
    for term, to in zip(ref.args, other.args, strict=False):
        if isinstance(term, Variable) and term.name != "_":
            if made.setdefault(term.name, to) != to:
                return None
        elif term not in (to, Variable("_")):
            return None
    return made


Renamed: TypeAlias = Callable[[Variable], Term]


def in_term(term: Term, to: Renamed) -> Term:
    """A term with other variables."""
    return to(term) if isinstance(term, Variable) else term


def in_role(ref: RoleRef, to: Renamed) -> RoleRef:
    """A reference with other variables."""
    instance = in_term(ref.instance, to) if ref.instance is not None else None
    return replace(ref, args=tuple(in_term(arg, to) for arg in ref.args), instance=instance)


def in_constraint(c: Condition, to: Renamed) -> Condition:
    """A constraint with other variables."""

    def renamed(operand: Operand) -> Operand:
        match operand:
            case Variable():
                return to(operand)
            case tree.Count(of):
                return tree.Count(in_role(of, to))
            case _:
                return operand

    return tree.rewrite_operands(c, lambda operand: tree.rewrite_operand(operand, renamed))


def in_statement(statement: Statement, to: Renamed) -> Statement:
    """A statement with other variables."""
    renamed = statement.with_refs(lambda ref: in_role(ref, to), statement.constraint)
    return replace(renamed, constraint=in_constraint(statement.constraint, to))


def canonical(statement: Statement) -> Statement:
    """The statement with its variables called by the order in which they first stand."""
    return in_statement(replace(statement, asked=()), numbered())


def numbered(prefix: str = "") -> Renamed:
    """Calls variables by the order in which it meets them."""
    met: dict[str, Variable] = {}

    def to(variable: Variable) -> Term:
        if variable.name == "_":
            return variable
        return met.setdefault(variable.name, Variable(f"{prefix}{len(met)}"))

    return to


def by(found: Mapping[str, Term]) -> Renamed:
    """Puts what was found in the place of variables, following chains."""

    def to(variable: Variable) -> Term:
        term: Term = variable
        for _ in range(len(found) + 1):
            if not isinstance(term, Variable) or term.name not in found:
                break
            term = found[term.name]
        return term

    return to


def unified(a: tuple[Term, ...], b: tuple[Term, ...], substitution: Mapping[str, Term]) -> dict[str, Term] | None:
    """What variables must mean for two lists of terms to be the same; None if they cannot be."""
    made = dict(substitution)
    if len(a) != len(b):
        return made if not a else None  # a reference without arguments leaves them open
    for left, right in zip(a, b, strict=True):
        term, other = in_term(left, by(made)), in_term(right, by(made))
        if term == other or Variable("_") in (term, other):
            continue
        if isinstance(term, Variable):
            made[term.name] = other
        elif isinstance(other, Variable):
            made[other.name] = term
        elif isinstance(term, Constant) and isinstance(other, Constant):
            return None  # what is asked of the request, on the other hand, may be anything
    return made


def may_give(head: RoleRef, ref: RoleRef) -> bool:
    """Could a membership by this head be what a reference asks for?"""
    if len(head.args) < len(ref.args):
        return False
    given = head.args[: len(ref.args)]  # what a reference leaves out may be anything
    for given_term, wanted in zip(given, ref.args, strict=True):
        if given_term != wanted and isinstance(given_term, Constant) and isinstance(wanted, Constant):
            return False
    to = numbered("head ")
    return unified(tuple(in_term(arg, to) for arg in given), ref.args, {}) is not None
