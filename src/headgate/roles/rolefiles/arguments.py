"""Arguments and rolefiles as a service takes them: of the types that the rolefile gives, and without errors."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from headgate.decide.constraint_names import in_relations
from headgate.decide.constraints import RoleFunction, is_monitored
from headgate.model.changes import ReinstateRole, RevokeRole
from headgate.model.conditions import AllOf, Argument, Condition, Constant, Related, RoleRef, Starred
from headgate.model.errors import BadDefinition, RoleDenied
from headgate.model.limits import MAX_ROLE_ARGUMENTS
from headgate.model.rolefiles import ClockType, Credential, Rolefile, Statement, TimestampType
from headgate.model.state import State
from headgate.model.values import brief
from headgate.roles.records.book import role_names
from headgate.roles.rolefiles.checking import check_rolefile
from headgate.roles.rolefiles.literals import read_literals
from headgate.roles.rolefiles.types import conform_argument, infer


def conform_arguments(
    rolefile: Rolefile | None, role: str, args: tuple[Argument, ...], functions: Mapping[str, RoleFunction]
) -> tuple[Argument, ...]:
    """Arguments of the types that the role has; None stays open. A role that is not in the rolefile takes any."""
    if len(args) > MAX_ROLE_ARGUMENTS:
        raise RoleDenied(f"a role has at most MAX_ROLE_ARGUMENTS ({MAX_ROLE_ARGUMENTS}) arguments", failure="misuse")
    types = None if rolefile is None else infer(rolefile, lambda _service, _role: None).get(role)
    if types is None:
        return tuple(None if arg is None else conform_argument(None, arg) for arg in args)
    if len(types) != len(args):
        raise RoleDenied(f"`{brief(role)}` has {len(types)} arguments, not {len(args)}", failure="misuse")
    pairs = zip(types, args, strict=True)
    return tuple(None if arg is None else conform_argument(type, arg, parsers=functions) for type, arg in pairs)


def with_times(ref: RoleRef, rolefile: Rolefile | None) -> RoleRef:
    """A role that someone names, whose arguments in text are times where its rolefile says so."""
    if rolefile is None or not any(isinstance(term, Constant) for term in ref.args):
        return ref
    types = infer(rolefile, lambda _service, _role: None).get(ref.role, ())
    args = list(ref.args)
    for place, (term, type) in enumerate(zip(ref.args, types, strict=False)):
        if isinstance(term, Constant) and isinstance(type, TimestampType | ClockType):
            args[place] = Constant(conform_argument(type, term.value))
    return replace(ref, args=tuple(args))


def pattern_of(
    rolefile: Rolefile, request: RevokeRole | ReinstateRole, functions: Mapping[str, RoleFunction]
) -> tuple[Argument | None, ...]:
    """The arguments of a role that are revoked or reinstated; those that are left out at the end are open."""
    size = max((len(one.head.args) for one in rolefile.statements if one.head.role == request.role), default=0)
    given = (*request.args, *(None,) * (size - len(request.args)))
    return conform_arguments(rolefile, request.role, given, functions)


def relation_columns(state: State) -> dict[str, int | None]:
    """How many columns each relation has, if any row tells."""
    return {name: len(next(iter(rows))) if rows else None for name, rows in state.relations.items()}


def refuse_errors(
    rolefile: Rolefile,
    service: str,
    state: State,
    rolefiles: Mapping[str, Rolefile],
    functions: Mapping[str, RoleFunction],
) -> None:
    """Refuse a rolefile with an error that the checker finds; what it only warns of is let through."""
    relations = relation_columns(state)
    findings = check_rolefile(
        rolefile,
        service=service,
        known=rolefiles.get,
        groups=frozenset(state.groups),
        relations=relations,
        functions=functions.keys(),
        entry_only=[name for name, one in functions.items() if not is_monitored(one)],
    )
    for one in findings:
        if one.severity == "error":
            raise BadDefinition(one.message, place=f"rolefile of `{service}`, line {one.line}", remedy=one.remedy)


def settle_rolefile(
    rolefile: Rolefile, state: State, rolefiles: Mapping[str, Rolefile], functions: Mapping[str, RoleFunction]
) -> Rolefile:
    """A rolefile as it is kept.

    What stands among credentials and is a relation is a condition (Capabilities V.A); literals of object types are as
    their service reads them (OASIS 3.2.1).
    """
    roles = role_names(rolefile)
    relations = state.relations.keys() - roles
    read = read_literals(rolefile, rolefiles, functions)
    statements = (replace(one, constraint=in_relations(state, one.constraint)) for one in read.statements)
    return replace(rolefile, statements=tuple(_settled(one, relations) for one in statements))


def _settled(statement: Statement, relations: AbstractSet[str]) -> Statement:
    facts: list[Condition] = []
    kept: list[Credential] = []
    for credential in statement.credentials:
        if credential.ref.service is None and credential.ref.instance is None and credential.ref.role in relations:
            fact = Related(credential.ref.role, credential.ref.args)
            facts.append(Starred(fact) if credential.starred else fact)
        else:
            kept.append(credential)
    if not facts:
        return statement
    said = statement.constraint
    parts = (*facts, *(said.args if isinstance(said, AllOf) else (said,)))
    constraint = parts[0] if len(parts) == 1 else AllOf(parts)
    return replace(statement, credentials=tuple(kept), constraint=constraint)
