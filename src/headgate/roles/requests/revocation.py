"""Revocation by role: what a revocation is about, and when it is a quorum's (OASIS 3.3.2, 3.4.5, 4.11).

Guarantees: pure, and the same on entry, for those who have entered, and when a gateway tries a request. A statement
with one `|>` is revoked by anyone of that role. One with several is revoked once a different principal has revoked for
each, in offices whose arguments make true whatever the constraint asks of them; until then nothing ends and nobody is
barred. An argument of a revocation that is None stands for any.
Leaves out: what a client shows (`roles.requests.transition`), and how an end spreads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from headgate.decide.constraints import Bindings, Budget, Scene, truth
from headgate.decide.rolebook import alike, unify
from headgate.lang.render import render_role, render_statement
from headgate.lang.rolefile import parse_rolefile
from headgate.model import expressions as tree
from headgate.model.limits import MAX_ENTRY_STEPS
from headgate.model.rolefiles import Rolefile, Statement
from headgate.model.roles import Ban, Membership, RoleBook, Service
from headgate.model.state import State


def covers(pattern: Sequence[tree.Argument | None], args: Sequence[tree.Argument | None]) -> bool:
    """Does a revocation of these arguments take in those? What is open takes in everything."""
    return len(pattern) == len(args) and all(
        want is None or (arg is not None and alike(want, arg)) for want, arg in zip(pattern, args, strict=True)
    )


def office_name(ref: tree.RoleRef) -> str:
    """A revoker's role by name, without its arguments."""
    return render_role(replace(ref, args=()))


def office_of(one: Membership) -> tree.RoleRef:
    """What the holder of a membership is, as a reference."""
    return tree.RoleRef(
        one.role, tuple(tree.Constant(arg) for arg in one.args), one.service, tree.Constant(one.instance)
    )


# -- statements -----------------------------------------------------------------------------------------------


def on_entry(statement: Statement) -> tree.Condition:
    """The part of a constraint that is looked at when a role is entered."""
    return statement.constraint if len(statement.revokers) < 2 else _parts(statement)[0]


def of_revokers(statement: Statement) -> tree.Condition:
    """The part of a constraint that is about those who revoke together: it names what only they bind."""
    return tree.AllOf() if len(statement.revokers) < 2 else _parts(statement)[1]


@lru_cache(maxsize=4_096)
def _parts(statement: Statement) -> tuple[tree.Condition, tree.Condition]:
    own = revoker_variables(statement)
    said = statement.constraint
    every = said.args if isinstance(said, tree.AllOf) else (said,)
    about = [one for one in every if (tree.variables(one) | tree.counted_variables(one)) & own]
    return _joined([one for one in every if one not in about]), _joined(about)


def _joined(parts: list[tree.Condition]) -> tree.Condition:
    return parts[0] if len(parts) == 1 else tree.AllOf(tuple(parts))


def revoker_variables(statement: Statement) -> frozenset[str]:
    """The variables that stand for arguments of those who revoke, and for nothing else."""
    known = tree.terms_of(statement.head, *statement.needed)
    revokers = tree.terms_of(*(one.ref for one in statement.revokers))
    return tree.variables_among(revokers) - tree.variables_among(known)


def only_compares(constraint: tree.Condition) -> bool:
    """Does a constraint compare values that it names, and look at nothing else?"""
    return not tree.has_star(constraint) and all(
        isinstance(atom, tree.Compare | tree.TextMatch | tree.InRange | tree.InSet)
        and all(isinstance(operand, tree.Variable | tree.Constant) for operand in tree.operands(atom))
        for atom in tree.atoms(constraint)
    )


# -- who revokes what ---------------------------------------------------------------------------------------------


def settled_by(term: tree.Term, bound: Bindings) -> tree.Argument | None:
    """What a term of a head is, as far as that is settled."""
    if isinstance(term, tree.Constant):
        return term.value
    return bound.get(term.name) if isinstance(term, tree.Variable) else None


# -- quorums --------------------------------------------------------------------------------------------------


def rule_of(statement: Statement) -> str:
    """By whom a statement lets its role be revoked, as text: one role, or the clauses of a quorum."""
    if len(statement.revokers) == 1:
        return office_name(statement.revokers[0].ref)
    return render_statement(Statement(statement.head, (), (), statement.revokers, of_revokers(statement)))


def in_words(rule: str) -> str:
    """The same, for people: `Judge` and `Judge`."""
    statement = _quorum(rule)
    names = [rule] if statement is None else [office_name(one.ref) for one in statement.revokers]
    return " and ".join(f"`{name}`" for name in names)


@lru_cache(maxsize=4_096)
def _quorum(rule: str) -> Statement | None:
    return parse_rolefile(rule).statements[0] if "|>" in rule else None


def is_revoked_by(rule: str, service: Service, args: Sequence[tree.Argument | None], bans: Iterable[Ban]) -> bool:
    """Has a role instance been revoked by a rule? `bans` are those of the role."""
    about = [one for one in bans if covers(one.args, args)]
    statement = _quorum(rule) if about else None
    if statement is None:
        return any(one.revoker == rule for one in about)
    return is_complete(statement, service, args, about)


def is_complete(
    statement: Statement, place: Service, args: Sequence[tree.Argument | None], bans: Iterable[Ban]
) -> bool:
    """Has a different principal revoked a role instance for each `|>` of a statement?"""
    bound = bound_by(statement, args)
    about = sorted((one for one in bans if covers(one.args, args)), key=repr)
    return bound is not None and any(_choices(statement, place, bound, about, (), Budget(MAX_ENTRY_STEPS)))


def _choices(
    statement: Statement, service: Service, bound: Bindings, bans: list[Ban], chosen: tuple[str, ...], budget: Budget
) -> Iterator[bool]:
    if len(chosen) == len(statement.revokers):
        if truth(of_revokers(statement), bound, Scene(State())) is True:
            yield True
        return
    ref = statement.revokers[len(chosen)].ref
    name = office_name(ref)
    for ban in bans:
        budget.spend()
        if ban.revoker != name or ban.by in chosen:
            continue
        meant = Scene(State(), *service, client=ban.by).own(ref)
        made = bound if ban.office is None else in_office(meant, ban.office, bound)
        if made is not None:
            yield from _choices(statement, service, made, bans, (*chosen, ban.by), budget)


def in_office(ref: tree.RoleRef, office: tree.RoleRef, bound: Bindings) -> Bindings | None:
    """What variables mean if the holder of an office is meant by a reference to a role."""
    if (ref.role, ref.service) != (office.role, office.service) or len(ref.args) > len(office.args):
        return None
    main = tree.Constant("")
    terms = [(ref.instance or main, office.instance or main), *zip(ref.args, office.args, strict=False)]
    return unify([(term, known.value) for term, known in terms if isinstance(known, tree.Constant)], bound)


def bound_by_head(head: Sequence[tree.Term], args: Sequence[tree.Argument | None] | None) -> Bindings | None:
    """What the arguments of a role instance say of the variables of a statement's head; None if it is not about it."""
    if args is not None and len(args) != len(head):
        return None
    return unify([(term, arg) for term, arg in zip(head, args or (), strict=False) if arg is not None], {})


def bound_by(statement: Statement, args: Sequence[tree.Argument | None]) -> Bindings | None:
    """The same, whatever stands for something of the request."""
    return bound_by_head(
        [tree.Variable("_") if isinstance(term, tree.Meta) else term for term in statement.head.args],
        args,
    )


def revoked_by(rolefile: Rolefile, role: str) -> list[Statement]:
    """The statements by which a role may be revoked."""
    return [one for one in rolefile.statements if one.revokers and one.head.role == role]


class RevokedInstances:
    """Which instances of the roles of a rolefile are revoked, so that nobody enters them by a statement with `|>`."""

    def __init__(self, rolefile: Rolefile, service: Service, bans: Iterable[Ban]) -> None:
        self._rolefile = rolefile
        self._place = service
        self._bans: dict[str, list[Ban]] = {}
        for one in bans:
            if one.place == service:
                self._bans.setdefault(one.role, []).append(one)

    def __contains__(self, instance: tuple[str, tuple[tree.Argument | None, ...]]) -> bool:
        role, args = instance
        about = [one for one in self._bans.get(role, ()) if covers(one.args, args)]
        if not about:
            return False
        statements = revoked_by(self._rolefile, role)
        if any(counts_alone(one, statements) for one in about):
            return True
        return any(len(one.revokers) > 1 and is_complete(one, self._place, args, about) for one in statements)


def pending_in(book: RoleBook) -> Callable[[Ban], bool]:
    """Which revocations of a book wait for others, without which they have no effect?"""
    revoked = {
        place: RevokedInstances(book.rolefiles.get(place[0], Rolefile()), place, book.bans)
        for place in {ban.place for ban in book.bans}
    }
    return lambda ban: (ban.role, ban.args) not in revoked[ban.place]


def counts_alone(ban: Ban, statements: Iterable[Statement]) -> bool:
    """Is one revocation enough: does a statement say so, or does none speak of its revoker any more?"""
    named = False
    for one in statements:
        names = [office_name(each.ref) for each in one.revokers]
        if names == [ban.revoker]:
            return True
        named = named or ban.revoker in names
    return not named
