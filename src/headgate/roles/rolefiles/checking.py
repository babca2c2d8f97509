"""The static checker of rolefiles and of event policy: what is wrong, and what is probably not meant (OASIS 3 and 7).

Guarantees: an error is something for which the policy must be refused: it would do other than it says. A warning says
what happens instead, and how to write what was probably meant. Pure, and bounded in time. `settle_rolefile` gives a
rolefile as its service keeps it.
Leaves out: what only the facts of a moment tell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from headgate.decide.constraints import RoleFunction, is_monitored
from headgate.decide.event_policy import inlined
from headgate.decide.normal import in_relations
from headgate.model import expressions as tree
from headgate.model.errors import BadDefinition
from headgate.model.expressions import TRUE, Constant, RoleRef, Variable, terms_of, variables, variables_among
from headgate.model.rolefiles import Credential, EventEntry, EventPolicy, Rolefile, Statement
from headgate.model.state import State
from headgate.roles.requests.revocation import of_revokers, on_entry, only_compares, revoker_variables
from headgate.roles.rolefiles import names as naming
from headgate.roles.rolefiles import reach
from headgate.roles.rolefiles.inference import REMEDIES, Inference, said
from headgate.roles.rolefiles.kinds import KnownKind, entry_clashes, role_kinds
from headgate.roles.rolefiles.names import Finding, Names, error, ordered, warning
from headgate.roles.rolefiles.types import own_types, read_literals


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
    roles = rolefile.roles
    names = Names(groups, relations, functions, roles)
    findings: list[Finding] = []
    found = Inference(rolefile, own_types(known), service)
    findings += (error(clash.code, clash.line, clash.message, REMEDIES[clash.code]) for clash in found.clashes)
    for statement in rolefile.statements:
        findings += naming.check_names(statement.constraint, statement.line, names)
        bound = variables_among(terms_of(statement.head, *statement.needed))  # by the request, credentials and electors
        findings += naming.check_bound(on_entry(statement), bound, statement.line, names.gives_rows)
        findings += _of_revokers(statement)
        findings += _asked_for(statement, names)
        findings += _stars_of_functions(statement, entry_only)
        findings += _idle_stars(statement)
    findings += _audited(rolefile, roles)
    findings += _undefined(rolefile, service, known, roles)
    findings += reach.never_apply(rolefile, service, known)
    findings += _shadowed(rolefile)
    findings += _not_followed(rolefile, service)
    findings += reach.ambiguities(rolefile, service)
    return ordered(findings)


def asked_for(
    rolefile: Rolefile, relations: Mapping[str, int | None], functions: Collection[str] = ()
) -> list[Finding]:
    """Arguments of a rolefile's roles that nothing gives a value, and that are not written as asked for."""
    roles = rolefile.roles
    names = Names(None, relations, functions, roles)
    return [found for statement in rolefile.statements for found in _asked_for(statement, names)]


def _asked_for(statement: Statement, names: Names) -> Iterator[Finding]:
    """Head arguments that whoever enters names as it likes: neither a credential nor the constraint gives a value.

    With an elector it is the election that may name them.
    """
    if statement.electors:
        return
    bound = variables_among(terms_of(*statement.needed))
    given = naming.values_after(on_entry(statement), bound, names.gives_rows)
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


def _of_revokers(statement: Statement) -> Iterator[Finding]:
    """What is asked of those who revoke together is looked at whenever one of them does, and knows nothing else."""
    said_of = of_revokers(statement)
    if not only_compares(said_of):
        message = f"`{said(said_of)}` is asked of those who revoke together, and does more than compare"
        yield error("revokers", statement.line, message, "compare their arguments, without a star: `x != y`")
    known = revoker_variables(statement) | variables_among(statement.head.args)
    for name in sorted(variables(said_of) - known):
        message = f"nothing gives `{name}` a value in `{said(said_of)}` when `{statement.head.role}` is revoked"
        yield error("unbound", statement.line, message, "name it in the head, or in what stands after `|>`")


def _stars_of_functions(statement: Statement, entry_only: Collection[str]) -> Iterator[Finding]:
    for leaf, starred in naming.leaves(statement.constraint):
        for name in naming.called(leaf) if starred else ():
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
            if not one.starred and reach.is_own(one.ref, service) and one.ref.role in ejected:
                text = said(one.ref)
                message = f"`{text}` is not starred: revoking it removes nobody from `{statement.head.role}`"
                yield warning("not-followed", statement.line, message, f"write `{text}*`")


def _undefined(
    rolefile: Rolefile, service: str, known: Callable[[str], Rolefile | None], roles: Collection[str]
) -> Iterator[Finding]:
    reported: set[tuple[str | None, str]] = set()
    for statement in rolefile.statements:
        revokers = (one.ref for one in statement.revokers)
        for ref in (*statement.needed, *revokers, *tree.counted(statement.constraint)):
            own = reach.is_own(ref, service)
            key = (None if own else ref.service, ref.role)
            other = None if own else known(str(ref.service))
            if key in reported or (ref.role in roles if own else other is None or ref.role in other.roles):
                continue
            reported.add(key)
            name = ref.role if own else f"{ref.service}.{ref.role}"
            message = f"`{name}` has no statement and no `def`: only `{ref.service or service}` itself can give it"
            yield warning("undefined-role", statement.line, message, f"correct the name, or write `def {ref.role}`")


def _shadowed(rolefile: Rolefile) -> Iterator[Finding]:
    first: dict[Statement, Statement] = {}
    for statement in rolefile.statements:
        earlier = first.setdefault(reach.canonical(statement), statement)
        if earlier is not statement:
            message = f"line {earlier.line} says the same, and comes first"
            yield warning("shadowed", statement.line, message, "leave one of them out")


def check_event_policy(
    policy: EventPolicy,
    *,
    types: Mapping[str, tuple[str, ...]],
    services: Mapping[str, Rolefile | None] | None = None,
    groups: Collection[str] | None = None,
    relations: Mapping[str, int | None] | None = None,
    functions: Collection[str] = (),
    kinds: Mapping[str, tuple[KnownKind | None, ...]] | None = None,
) -> list[Finding]:
    """What is wrong with an event policy, errors first.

    `types` gives the parameters of each event type; `services` the rolefiles, None for one that is not known; `kinds`
    what the parameters of each type are (`kinds.parameter_kinds`). What is None is not checked.
    """
    names = Names(groups, relations, functions)
    findings: list[Finding] = []
    for entry in policy.entries:
        findings += _check_event(entry, types)
        findings += naming.check_names(entry.constraint, entry.line, names)
        findings += _check_values(entry)
        findings += _check_kinds(entry, types, services or {}, kinds or {})
        for ref in entry.credentials:
            findings += _check_role(ref, entry.line, services)
        why = reach.contradiction(entry.constraint)
        if why is not None:
            findings.append(warning("never-applies", entry.line, f"the constraint is never true: {why}", "correct it"))
    findings += _hidden(policy, types)
    findings += _not_shown(policy, types)
    return ordered(findings)


def _types_of(entry: EventEntry, types: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The types that an entry may mean."""
    name = entry.event.type
    return [name] if name in types else sorted(one for one in types if one.endswith(f".{name}"))


def _check_event(entry: EventEntry, types: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    name, candidates = entry.event.type, _types_of(entry, types)
    if not candidates:
        yield error("unknown-event", entry.line, f"there is no event type `{name}`", "correct the name")
        return
    if len(candidates) > 1:
        message = f"`{name}` may be {' or '.join(f'`{one}`' for one in candidates[:5])}"
        yield error("ambiguous-event", entry.line, message, "write the whole name")
        return
    parameters = types[candidates[0]]
    if len(entry.event.args) > len(parameters):
        message = f"`{name}` has {len(parameters)} parameters, not {len(entry.event.args)}"
        listed = ", ".join(f"`{one}`" for one in parameters)
        yield error("arity", entry.line, message, f"they are {listed}" if listed else None)


def _check_values(entry: EventEntry) -> Iterator[Finding]:
    """Only the event, the credentials and `x = ...` give variables values here."""
    bound = _bound_in_entry(entry)
    for name in sorted(variables(inlined(entry.constraint, bound)) - bound):
        remedy = f"name it in the event or in a credential, or say what it is by `{name} = ...`"
        yield error("unbound", entry.line, f"nothing gives `{name}` a value", remedy)


def _bound_in_entry(entry: EventEntry) -> frozenset[str]:
    """The variables that the event and the credentials give values."""
    return variables_among((*entry.event.args, *terms_of(*entry.credentials)))


def _check_kinds(
    entry: EventEntry,
    types: Mapping[str, tuple[str, ...]],
    services: Mapping[str, Rolefile | None],
    kinds: Mapping[str, tuple[KnownKind | None, ...]],
) -> Iterator[Finding]:
    """What would be compared and never compares."""
    found = _types_of(entry, types)
    given = kinds.get(found[0], ()) if len(found) == 1 else ()
    full = tuple(_with_service(ref, services) for ref in entry.credentials)
    plain = replace(entry, credentials=full, constraint=inlined(entry.constraint, _bound_in_entry(entry)))
    for clash in entry_clashes(plain, given, role_kinds(services)):
        yield error("kinds", entry.line, clash.message, clash.remedy)


def _with_service(ref: RoleRef, services: Mapping[str, Rolefile | None]) -> RoleRef:
    """A role with its service, where only one has such a role."""
    if ref.service is not None:
        return ref
    having = [name for name, one in services.items() if one is not None and ref.role in one.roles]
    return replace(ref, service=having[0]) if len(having) == 1 else ref


def _check_role(ref: RoleRef, line: int, services: Mapping[str, Rolefile | None] | None) -> Iterator[Finding]:
    if services is None:
        return
    named = [ref.service] if ref.service is not None else sorted(services)
    having = {name: one for name in named if (one := services.get(name)) is not None and ref.role in one.roles}
    if len(having) > 1:
        message = f"`{ref.role}` is a role of {' and of '.join(f'`{one}`' for one in list(having)[:5])}"
        yield error("ambiguous-role", line, message, f"name the service, as in `{min(having)}.{ref.role}`")
    elif having:
        yield from _check_arguments(ref, line, *having.popitem())
    elif all(services.get(name, ref) is not None for name in named):
        whose = f"`{ref.service}`" if ref.service is not None else "any service"
        message = f"`{ref.role}` is no role of {whose}: it counts only if the service itself gives it"
        yield warning("undefined-role", line, message, "correct the name, or write a statement or `def` for it")


def _check_arguments(ref: RoleRef, line: int, service: str, rolefile: Rolefile) -> Iterator[Finding]:
    heads = [one.head for one in rolefile.statements if one.head.role == ref.role]
    if heads and not any(reach.may_give(head, ref) for head in heads):
        message = f"no statement of `{service}` gives `{said(ref)}`, so this entry never applies"
        yield warning("never-applies", line, message, "correct the arguments")


def _hidden(policy: EventPolicy, types: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """Entries that are never reached, because an earlier one takes everything or says the same."""
    first: dict[tuple[bool, Statement], EventEntry] = {}
    unconditional: dict[tuple[str, ...], list[EventEntry]] = {}
    pairs = 0
    for entry in policy.entries:
        same = first.setdefault((entry.negative, reach.canonical(_as_statement(entry))), entry)
        event = tuple(_types_of(entry, types))
        if same is not entry:
            yield warning("hidden", entry.line, f"line {same.line} says the same, and comes first", "leave one out")
            continue
        for earlier in unconditional.get(event, ()):
            pairs += 1
            if pairs > naming.MAX_PAIRS:
                return
            if _takes_in(earlier, entry):
                does = "forbids" if earlier.negative else "gives"
                message = f"line {earlier.line} {does} everyone whatever this entry speaks of, and comes first"
                yield warning("hidden", entry.line, message, "put this entry before it, or leave it out")
                break
        if not entry.credentials and entry.constraint == TRUE:
            unconditional.setdefault(event, []).append(entry)


def _as_statement(entry: EventEntry) -> Statement:
    """An entry as a statement: whoever has the credentials has what the head speaks of."""
    head = RoleRef(entry.event.type, entry.event.args)
    return Statement(head, tuple(map(Credential, entry.credentials)), constraint=entry.constraint)


def _takes_in(earlier: EventEntry, later: EventEntry) -> bool:
    """Is every event of the later one of the earlier, too?"""
    wanted = [arg.name for arg in earlier.event.args if isinstance(arg, Variable) and arg.name != "_"]
    if len(set(wanted)) != len(wanted):
        return False
    given = later.event.args
    return all(
        not isinstance(arg, Constant) or (place < len(given) and given[place] == arg)
        for place, arg in enumerate(earlier.event.args)
    )


def _not_shown(policy: EventPolicy, types: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """Negative entries that rest on a credential, which its holder need not show (OASIS 7.5.2)."""
    allowing: dict[tuple[str, ...], list[EventEntry]] = {}
    for entry in reversed(policy.entries):
        event = tuple(_types_of(entry, types))
        if not entry.negative:
            allowing.setdefault(event, []).append(entry)
        elif entry.credentials and allowing.get(event):
            yield _evaded(entry, allowing[event])


def _evaded(entry: EventEntry, later: list[EventEntry]) -> Finding:
    needs = {(ref.service, ref.role) for ref in entry.credentials}
    shown = " & ".join(said(ref) for ref in entry.credentials)
    free = [one for one in later if not needs <= {(ref.service, ref.role) for ref in one.credentials}]
    if free:
        line = min(one.line for one in free)
        how = f"who does not show `{shown}` is not held back by it, and line {line} does not ask for that"
    else:
        how = f"who has `{shown}` twice can show only the one that it does not speak of"
    remedy = (
        "write who may see it instead: leave this entry out, and add `not (...)` with its condition to entries below "
        "that ask for the credential"
    )
    return warning("not-shown", entry.line, f"a negative entry rests on a credential: {how}", remedy)


# -- rolefiles as a service takes them ---------------------------------------------------------------------------


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
    relations = state.relations.keys() - rolefile.roles
    read = read_literals(rolefile, rolefiles, functions)
    statements = (replace(one, constraint=in_relations(state, one.constraint)) for one in read.statements)
    return replace(rolefile, statements=tuple(_settled(one, relations) for one in statements))


def _settled(statement: Statement, relations: Collection[str]) -> Statement:
    facts: list[tree.Condition] = []
    kept: list[Credential] = []
    for credential in statement.credentials:
        if credential.ref.service is None and credential.ref.instance is None and credential.ref.role in relations:
            fact = tree.Related(credential.ref.role, credential.ref.args)
            facts.append(tree.Starred(fact) if credential.starred else fact)
        else:
            kept.append(credential)
    if not facts:
        return statement
    return replace(statement, credentials=tuple(kept), constraint=tree.all_of(*facts, statement.constraint))
