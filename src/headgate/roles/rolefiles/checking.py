"""The static checker of rolefiles: what is wrong, and what is probably not meant (OASIS 3).

Guarantees: an error is something for which the rolefile must be refused: it would do other than it says. A warning says
what happens instead, and how to write what was probably meant. Pure, and bounded in time.
Leaves out: event policy (`event_checking`, given again here), and what only the facts of a moment tell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache

from headgate.decide.constraint_names import variables
from headgate.model.conditions import RoleRef, Variable
from headgate.model.rolefiles import Rolefile, Statement
from headgate.roles.requests.revocation import of_revokers, on_entry, only_compares, revoker_variables
from headgate.roles.rolefiles.event_checking import check_event_policy
from headgate.roles.rolefiles.findings import Finding, error, ordered, warning
from headgate.roles.rolefiles.inference import Inference, said
from headgate.roles.rolefiles.names import Names, called, check_bound, check_names, counted, leaves, values_after
from headgate.roles.rolefiles.precedence import ambiguities
from headgate.roles.rolefiles.reach import is_own, needed, never_apply
from headgate.roles.rolefiles.renaming import canonical
from headgate.roles.rolefiles.types import REMEDIES, Signature, signatures

__all__ = ["Finding", "check_event_policy", "check_rolefile"]


def check_rolefile(
    rolefile: Rolefile,
    *,
    service: str,
    known: Callable[[str], Rolefile | None] = lambda _: None,
    groups: Collection[str] | None = None,
    relations: Mapping[str, int | None] | None = None,
    functions: Collection[str] = (),
    entry_only: Collection[str] = (),
) -> list[Finding]:
    """What is wrong with a rolefile, errors first.

    `known` gives the rolefiles of other services; `relations` how many columns each has, if any row tells; `entry_only`
    the functions that are not monitored. What is None is not checked.
    """
    roles = {one.head.role for one in rolefile.statements} | {one.role for one in rolefile.declarations}
    names = Names(groups, relations, functions, roles)
    findings: list[Finding] = []
    found = Inference(rolefile, _imported(known), service)
    findings += (error(clash.code, clash.line, clash.message, REMEDIES[clash.code]) for clash in found.clashes)
    for statement in rolefile.statements:
        findings += check_names(statement.constraint, statement.line, names)
        findings += check_bound(on_entry(statement), _bound(statement), statement.line, names.gives_rows)
        findings += _of_revokers(statement)
        findings += _asked_for(statement, names)
        findings += _stars_of_functions(statement, entry_only)
        findings += _idle_stars(statement)
    findings += _audited(rolefile, roles)
    findings += _undefined(rolefile, service, known, roles)
    findings += never_apply(rolefile, service, known)
    findings += _shadowed(rolefile)
    findings += _not_followed(rolefile, service)
    findings += ambiguities(rolefile, service)
    return ordered(findings)


def asked_for(
    rolefile: Rolefile, relations: Mapping[str, int | None], functions: Collection[str] = ()
) -> list[Finding]:
    """Arguments of a rolefile's roles that nothing gives a value, and that are not written as asked for."""
    roles = {one.head.role for one in rolefile.statements} | {one.role for one in rolefile.declarations}
    names = Names(None, relations, functions, roles)
    return [found for statement in rolefile.statements for found in _asked_for(statement, names)]


def _asked_for(statement: Statement, names: Names) -> Iterator[Finding]:
    """Head arguments that whoever enters names as it likes: neither a credential nor the constraint gives a value.

    With an elector it is the election that may name them.
    """
    if statement.electors:
        return
    bound = frozenset(
        term.name for ref in needed(statement) for term in (*ref.args, ref.instance) if isinstance(term, Variable)
    )
    given = values_after(on_entry(statement), bound - {"_"}, names.gives_rows)
    reported: set[str] = set()
    for place, term in enumerate(statement.head.args):
        if isinstance(term, Variable) and term.name not in given | reported and place not in statement.asked:
            reported.add(term.name)
            message = (
                f"nothing gives `{term.name}` of `{said(statement.head)}` a value: whoever enters names any it likes"
            )
            remedy = (
                f"name `{term.name}` in a credential, in a relation such as `Assigned(..., {term.name})` or by "
                f"`{term.name} = ...`; or write `?{term.name}` in the head if it is to be asked for"
            )
            yield warning("asked-for", statement.line, message, remedy)


def _audited(rolefile: Rolefile, roles: Collection[str]) -> Iterator[Finding]:
    """An audit of a role that is not there would audit nothing."""
    for audit in rolefile.audits:
        for role in audit.roles:
            if role not in roles:
                message = f"`audit {role}`: the rolefile has no such role"
                yield error("unknown-role", audit.line, message, "correct the name, or define the role")


def _imported(known: Callable[[str], Rolefile | None]) -> Callable[[str, str], Signature | None]:
    """The types of other services' roles, as far as their own rolefiles tell."""

    @cache
    def types(service: str) -> Mapping[str, Signature]:
        other = known(service)
        return signatures(other, Inference(other, lambda _service, _role: None, service)) if other is not None else {}

    return lambda service, role: types(service).get(role)


def _bound(statement: Statement) -> frozenset[str]:
    """The variables that have a value before the constraint: from the request, the credentials and the electors."""
    refs = [statement.head, *needed(statement)]
    terms = [term for ref in refs for term in (*ref.args, ref.instance)]
    return frozenset(term.name for term in terms if isinstance(term, Variable)) - {"_"}


def _of_revokers(statement: Statement) -> Iterator[Finding]:
    """What is asked of those who revoke together is looked at whenever one of them does, and knows nothing else."""
    said_of = of_revokers(statement)
    if not only_compares(said_of):
        message = f"`{said(said_of)}` is asked of those who revoke together, and does more than compare"
        yield error("revokers", statement.line, message, "compare their arguments, without a star: `x != y`")
    known = revoker_variables(statement) | {term.name for term in statement.head.args if isinstance(term, Variable)}
    for name in sorted(variables(said_of) - known):
        message = f"nothing gives `{name}` a value in `{said(said_of)}` when `{statement.head.role}` is revoked"
        yield error("unbound", statement.line, message, "name it in the head, or in what stands after `|>`")


def _stars_of_functions(statement: Statement, entry_only: Collection[str]) -> Iterator[Finding]:
    for leaf, starred in leaves(statement.constraint):
        for name in called(leaf) if starred else ():
            if name in entry_only:
                message = f"`{name}` is looked at on entry only, so `{said(leaf)}` cannot have a star"
                yield error("star-on-entry", statement.line, message, "leave the star out, or register it as monitored")


def _idle_stars(statement: Statement) -> Iterator[Finding]:
    """Revocations that remove nobody for want of a star."""
    role = statement.head.role
    for revoker in statement.revokers[:1] if not all(one.starred for one in statement.revokers) else ():
        message = f"`|> {said(revoker.ref)}` has no star: revoking `{role}` bars who is not in it, and removes nobody"
        yield warning("idle-revoker", statement.line, message, f"write `|>* {said(revoker.ref)}` to remove at once")
    for elector in statement.electors:
        if not elector.wish and not elector.starred:
            message = (
                f"`<| {said(elector.ref)}` has no star: whoever has entered `{role}` stays, whatever the elector does"
            )
            remedy = f"write `<|* {said(elector.ref)}` to let the elector take it back"
            yield warning("idle-election", statement.line, message, remedy)


def _not_followed(rolefile: Rolefile, service: str) -> Iterator[Finding]:
    """Roles that can be revoked by role, and are used where their loss is not followed (OASIS 3.4.2)."""
    ejected = {one.head.role for one in rolefile.statements if any(each.starred for each in one.revokers)}
    for statement in rolefile.statements:
        for one in statement.credentials:
            if not one.starred and is_own(one.ref, service) and one.ref.role in ejected:
                text = said(one.ref)
                message = f"`{text}` is not starred: revoking it removes nobody from `{statement.head.role}`"
                yield warning("not-followed", statement.line, message, f"write `{text}*`")


def _undefined(
    rolefile: Rolefile, service: str, known: Callable[[str], Rolefile | None], roles: Collection[str]
) -> Iterator[Finding]:
    reported: set[tuple[str | None, str]] = set()
    for statement in rolefile.statements:
        for ref in _references(statement):
            own = is_own(ref, service)
            key = (None if own else ref.service, ref.role)
            if key in reported or (ref.role in roles if own else is_defined(ref, known)):
                continue
            reported.add(key)
            name = ref.role if own else f"{ref.service}.{ref.role}"
            message = f"`{name}` has no statement and no `def`: only `{ref.service or service}` itself can give it"
            yield warning("undefined-role", statement.line, message, f"correct the name, or write `def {ref.role}`")


def is_defined(ref: RoleRef, known: Callable[[str], Rolefile | None]) -> bool:
    """Does the rolefile of another service define a role, as far as it is known?"""
    other = known(ref.service) if ref.service is not None else None
    if other is None:
        return True
    return any(one.head.role == ref.role for one in other.statements) or any(
        one.role == ref.role for one in other.declarations
    )


def _references(statement: Statement) -> Iterator[RoleRef]:
    yield from needed(statement)
    yield from (one.ref for one in statement.revokers)
    yield from counted(statement.constraint)


def _shadowed(rolefile: Rolefile) -> Iterator[Finding]:
    first: dict[Statement, Statement] = {}
    for statement in rolefile.statements:
        earlier = first.setdefault(canonical(statement), statement)
        if earlier is not statement:
            message = f"line {earlier.line} says the same, and comes first"
            yield warning("shadowed", statement.line, message, "leave one of them out")
