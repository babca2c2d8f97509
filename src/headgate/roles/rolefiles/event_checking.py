"""The static checker of event policy (OASIS 7.3 and 7.5.2).

Guarantees: as that of rolefiles: an error is something for which the policy must be refused, a warning says what
happens instead of what was probably meant.
Leaves out: how entries are compiled and put to events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from headgate.decide.constraint_names import variables
from headgate.decide.event_policy import inlined
from headgate.model.conditions import TRUE, Constant, RoleRef, Variable
from headgate.model.rolefiles import EventEntry, EventPolicy, Rolefile
from headgate.roles.rolefiles.contradictions import contradiction
from headgate.roles.rolefiles.findings import MAX_PAIRS, Finding, error, ordered, warning
from headgate.roles.rolefiles.inference import said
from headgate.roles.rolefiles.kinds import KnownKind, entry_clashes, role_kinds
from headgate.roles.rolefiles.names import Names, check_names
from headgate.roles.rolefiles.renaming import canonical_entry, may_give


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
        findings += check_names(entry.constraint, entry.line, names)
        findings += _check_values(entry)
        findings += _check_kinds(entry, types, services or {}, kinds or {})
        for ref in entry.credentials:
            findings += _check_role(ref, entry.line, services)
        why = contradiction(entry.constraint)
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
    bound = _bound(entry)
    for name in sorted(variables(inlined(entry.constraint, bound)) - bound):
        remedy = f"name it in the event or in a credential, or say what it is by `{name} = ...`"
        yield error("unbound", entry.line, f"nothing gives `{name}` a value", remedy)


def _bound(entry: EventEntry) -> frozenset[str]:
    """The variables that the event and the credentials give values."""
    terms = [*entry.event.args, *(term for ref in entry.credentials for term in (*ref.args, ref.instance))]
    return frozenset(term.name for term in terms if isinstance(term, Variable)) - {"_"}


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
    plain = replace(entry, credentials=full, constraint=inlined(entry.constraint, _bound(entry)))
    for clash in entry_clashes(plain, given, role_kinds(services)):
        yield error("kinds", entry.line, clash.message, clash.remedy)


def _with_service(ref: RoleRef, services: Mapping[str, Rolefile | None]) -> RoleRef:
    """A role with its service, where only one has such a role."""
    if ref.service is not None:
        return ref
    having = [name for name, one in services.items() if one is not None and _defines(one, ref.role)]
    return replace(ref, service=having[0]) if len(having) == 1 else ref


def _check_role(ref: RoleRef, line: int, services: Mapping[str, Rolefile | None] | None) -> Iterator[Finding]:
    if services is None:
        return
    named = [ref.service] if ref.service is not None else sorted(services)
    having = {name: one for name in named if (one := services.get(name)) is not None and _defines(one, ref.role)}
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
    if heads and not any(may_give(head, ref) for head in heads):
        message = f"no statement of `{service}` gives `{said(ref)}`, so this entry never applies"
        yield warning("never-applies", line, message, "correct the arguments")


def _defines(rolefile: Rolefile, role: str) -> bool:
    return any(one.head.role == role for one in rolefile.statements) or any(
        one.role == role for one in rolefile.declarations
    )


def _hidden(policy: EventPolicy, types: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """Entries that are never reached, because an earlier one takes everything or says the same."""
    first: dict[EventEntry, EventEntry] = {}
    unconditional: dict[tuple[str, ...], list[EventEntry]] = {}
    pairs = 0
    for entry in policy.entries:
        same = first.setdefault(canonical_entry(entry), entry)
        event = tuple(_types_of(entry, types))
        if same is not entry:
            yield warning("hidden", entry.line, f"line {same.line} says the same, and comes first", "leave one out")
            continue
        for earlier in unconditional.get(event, ()):
            pairs += 1
            if pairs > MAX_PAIRS:
                return
            if _takes_in(earlier, entry):
                does = "forbids" if earlier.negative else "gives"
                message = f"line {earlier.line} {does} everyone whatever this entry speaks of, and comes first"
                yield warning("hidden", entry.line, message, "put this entry before it, or leave it out")
                break
        if not entry.credentials and entry.constraint == TRUE:
            unconditional.setdefault(event, []).append(entry)


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
