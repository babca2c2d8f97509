"""Which of two statements wins, where both give a role to whoever shows the same credentials? (OASIS 3.2.2, figure 3.2)

Guarantees: a warning names a statement that an open request never gets, since another needs no more, and is reached
first: statements are applied in order, again and again until nothing new comes, and the first membership that fits
is given. Bounded: at most `MAX_WAYS` ways to a role, each through `MAX_STEPS` intermediate roles, and `MAX_PAIRS` steps
in all; past them nothing more is said.
Leaves out: statements whose constraint alone tells them apart, which is how precedence is meant to be used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from headgate.lang.render_roles import render_role
from headgate.model.conditions import AllOf, Condition, RoleRef, Starred, Term, Variable
from headgate.model.rolefiles import Rolefile, Statement
from headgate.roles.rolefiles.findings import MAX_PAIRS, Finding, warning
from headgate.roles.rolefiles.renaming import by, in_constraint, in_role, in_statement, in_term, numbered, unified

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
        partial = [_Way(statement, own.head, elected, frozenset(_parts(own.constraint)), (1, number))]
        for credential in own.credentials:
            partial = [one for way in partial for one in self._with(way, credential.ref, within)][:MAX_WAYS]
        return partial

    def _with(self, way: _Way, ref: RoleRef, within: tuple[str, ...]) -> Iterator[_Way]:
        """A way with one more credential: shown, or itself entered on the way."""
        if ref.service not in (None, self._service) or ref.role not in self._statements:
            yield _Way(way.statement, way.head, (*way.shown, ("held", ref)), way.constraints, way.turn, way.through)
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


def _parts(constraint: Condition) -> Iterator[Condition]:
    """What must all be true; stars say nothing of entry."""
    match constraint:
        case Starred(arg):
            yield from _parts(arg)
        case AllOf(args):
            for arg in args:
                yield from _parts(arg)
        case other:
            yield other


def _wins(winner: _Way, loser: _Way) -> bool:
    """Does the winner need no more than the loser, and come to something else?"""
    substitution = _covered(winner.shown, loser.shown, {})
    if substitution is None:
        return False
    to = by(substitution)
    if not {in_constraint(one, to) for one in winner.constraints} <= loser.constraints:
        return False
    return any(
        _differ(in_term(one, to), other, winner, loser, one)
        for one, other in zip(winner.head.args, loser.head.args, strict=False)
    )


def _differ(put: Term, other: Term, winner: _Way, loser: _Way, own: Term) -> bool:
    """Are two arguments of what is shown not the same? One that comes from the request may be."""
    if _from_request(own, winner) or _from_request(other, loser):
        return False
    return put != other


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
