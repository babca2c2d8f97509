"""Who sees an event by the event policy of the domain? The direct reading of its entries (OASIS 7.3).

Guarantees: each entry is put to (event, client) on its own: its truth is that of its constraint, with the event's
parameters and the arguments of credentials that the client counts, for the best choice of credentials. Order and
precedence are those of all entries (D5). A parameter that is null makes what looks at it unknown.
Leaves out: compiling (`pipeline.event_policy.compiled`), which must agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import is_
from typing import Final

from headgate.decide.constraints import Scene, truth, value
from headgate.decide.normal import in_relations
from headgate.decide.reading import AS_STORED, MAX_KEPT, Readings, columns_read, reading_of
from headgate.decide.rolebook import alike, is_of
from headgate.decide.truth import compared, every, some
from headgate.lang.literals import Reading
from headgate.model import expressions as tree
from headgate.model.errors import BadDefinition, HeadgateError, UnknownName, UnknownType
from headgate.model.events import Event
from headgate.model.expressions import AllOf, Argument, Condition, Constant, Operand, RoleRef, Variable, variables
from headgate.model.limits import MAX_INLINED, MAX_STATEMENTS
from headgate.model.rights import Action, Effect, Rule, Source
from headgate.model.rolefiles import ArgumentType, ClockType, EventEntry, EventPolicy, Representative, TimestampType
from headgate.model.roles import Membership
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.model.values import Kind, brief

_readings: dict[int, tuple[tuple[object, ...], Readings]] = {}
POLICY_RULE_IDS: Final = "events."
"""How the ids of entries of the event policy begin; no rule may be called so."""


def answers(
    state: State, principal: str, event: Event, counted: tuple[str, ...] | None
) -> Iterator[tuple[Rule, bool | None]]:
    """Every entry that takes in the event's type, as a rule of its place, and whether it is true, in order."""
    policy = state.roles.policy
    if not policy.entries:
        return
    line = state.types.lineage(event.type)
    shown = credentials(state, principal, counted)
    for number, entry in enumerate(policy.entries):
        if entry.event.type in line:
            yield rule_of(state, entry, number, principal), entry_truth(state, entry, event, shown)


def rule_of(state: State, entry: EventEntry, number: int, principal: str) -> Rule:
    """An entry as a rule of its place."""
    return Rule(
        f"{POLICY_RULE_IDS}{number + 1}",
        principal,
        frozenset({Action.SUBSCRIBE}),
        entry.event.type,
        effect=Effect.FORBID if entry.negative else Effect.GRANT,
        author=state.administrator,
        source=Source.POLICY,
    )


def policy_scene(state: State, event: Event) -> Scene:
    """What entries of the event policy may look at."""
    return Scene(state, now=event.time, client=event.publisher, readings=policy_readings(state))


def policy_readings(state: State) -> Readings:
    """How the event policy reads the columns of relations that it compares with times."""
    book = state.roles
    if not book.policy.entries and not book.representatives:
        return AS_STORED
    parts = (book.policy, book.representatives, book.rolefiles, state.types)
    cached = _readings.get(id(book.policy))
    if cached is None or not all(map(is_, cached[0], parts)):
        if len(_readings) >= MAX_KEPT:
            _readings.clear()
        cached = _readings[id(book.policy)] = parts, columns_read(_said_with_times(state))
    return cached[1]


def _said_with_times(state: State) -> Iterator[tuple[Condition, Mapping[str, Reading]]]:
    """Each entry's constraint and each representative's parameters, with what variables are times by their types."""
    for name, representative in state.roles.representatives.items():
        kinds = state.types.ever_attributes(name)
        moments: dict[str, Reading] = {a: "timestamp" for a, kind in kinds.items() if kind is Kind.TIMESTAMP}
        yield tree.Related("", tuple(expression for _, expression in representative.parameters)), moments
    for entry in state.roles.policy.entries:
        known: dict[str, Reading] = {}
        kinds = state.types.ever_attributes(entry.event.type)
        given = parameters(state, entry.event.type)
        moments = {a: "timestamp" for a, kind in kinds.items() if kind is Kind.TIMESTAMP}
        for term, (_, expression) in zip(entry.event.args, given, strict=False):
            is_read = reading_of(expression, moments)
            if isinstance(term, Variable) and is_read is not None:
                known.setdefault(term.name, is_read)
        for ref in entry.credentials:
            for arg, type in zip(ref.args, _declared(state, ref), strict=False):
                if isinstance(arg, Variable) and isinstance(type, TimestampType | ClockType):
                    known.setdefault(arg.name, type.part if isinstance(type, ClockType) else "timestamp")
        yield entry.constraint, known


def _declared(state: State, ref: RoleRef) -> Iterator[ArgumentType | None]:
    """The types of a role's arguments, as far as its `def` says them."""
    rolefile = state.roles.rolefiles.get(ref.service or "")
    for one in () if rolefile is None else rolefile.declarations:
        if one.role == ref.role:
            yield from (dict(one.types).get(name) for name in one.parameters)
            return


def credentials(state: State, principal: str, counted: tuple[str, ...] | None) -> tuple[Membership, ...]:
    """The memberships of a principal that count: those it chose, or all that it holds."""
    held = tuple(state.roles.held_by(principal))
    return held if counted is None else tuple(one for one in held if one.id in counted)


def entry_truth(state: State, entry: EventEntry, event: Event, shown: tuple[Membership, ...]) -> bool | None:
    """Is an entry true of an event, for some choice of the credentials shown?"""
    scene = policy_scene(state, event)
    known: dict[str, Argument] = {}
    agreed: bool | None = True
    for term, expression in zip(entry.event.args, parameters(state, entry.event.type), strict=False):
        seen = value(expression[1], event.values, scene)
        if isinstance(term, Constant):
            agreed = every((agreed, compared("=", seen, term.value)))
        elif term.name in known:
            agreed = every((agreed, compared("=", seen, known[term.name])))
        elif term.name != "_":
            known[term.name] = seen
    outcome: bool | None = False
    for joined, bound in _choices(entry.credentials, shown, known):
        outcome = some((outcome, every((agreed, joined, truth(entry.constraint, bound, scene)))))
        if outcome is True:
            break
    return outcome


def _choices(
    refs: tuple[RoleRef, ...], shown: tuple[Membership, ...], known: Mapping[str, Argument]
) -> Iterator[tuple[bool | None, Mapping[str, Argument]]]:
    """Every choice of memberships for the references: whether they agree with the event, and what variables mean.

    What two memberships say of one variable must be the same; with the event it is compared, and may be unknown.
    """
    if not refs:
        yield True, known
        return
    for joined, bound in _choices(refs[:-1], shown, known):
        for membership in shown:
            ref = refs[-1]
            if not means(ref, membership):
                continue
            made, agreed, fits = dict(bound), joined, True
            for term, argument in zip(ref.args, membership.args, strict=False):
                if isinstance(term, Constant):
                    fits = fits and alike(term.value, argument)
                elif not isinstance(term, Variable) or term.name == "_":
                    fits = fits and isinstance(term, Variable)
                elif term.name in known:
                    agreed = every((agreed, compared("=", known[term.name], argument)))
                elif term.name in made:
                    fits = fits and alike(made[term.name], argument)
                else:
                    made[term.name] = argument
            if fits:
                yield agreed, made


def means(ref: RoleRef, membership: Membership) -> bool:
    """Is a membership of the role that a reference names, with as many arguments as it says, or more?"""
    if ref.role != membership.role or not is_of(ref, membership):
        return False
    instance = ref.instance.value if isinstance(ref.instance, Constant) else ""
    if not isinstance(ref.instance, Variable) and instance != membership.instance:
        return False
    return len(ref.args) <= len(membership.args)


def parameters(state: State, type_name: str) -> tuple[tuple[str, Operand], ...]:
    """How event policy sees a type: its parameters in order, each with what it is worked out of."""
    attributes = tuple(state.types.ever_attributes(type_name))
    return parameters_of(state.roles.representatives.get(type_name), attributes)


def parameters_of(
    representative: Representative | None, attributes: tuple[str, ...]
) -> tuple[tuple[str, Operand], ...]:
    """The parameters of a type with these attributes."""
    if representative is None:
        return tuple((name, Variable(name)) for name in attributes)
    made = representative.parameters
    used = {name: tree.variables_of(expression) for name, expression in made}
    taken = frozenset().union(*used.values())
    places = {name: min((attributes.index(a) for a in used[name]), default=len(attributes)) for name, _ in made}
    kept = [(place, (name, Variable(name))) for place, name in enumerate(attributes) if name not in taken]
    kept = [one for one in kept if one[1][0] not in used]
    placed = [(places[name], (name, expression)) for name, expression in made]
    return tuple(one for _, one in sorted([*placed, *kept], key=lambda one: one[0]))


# -- acceptance -----------------------------------------------------------------------------------------------


def settle_policy(state: State, policy: EventPolicy) -> EventPolicy:
    """A policy as it is kept: types and services by their full names, definitions put in place; or a refusal."""
    if len(policy.entries) > MAX_STATEMENTS:
        raise BadDefinition(f"an event policy has more than MAX_STATEMENTS ({MAX_STATEMENTS}) entries")
    settled = []
    for entry in policy.entries:
        try:
            settled.append(_settle(state, entry))
        except HeadgateError as error:
            if entry.line:
                error.at(f"event policy, line {entry.line}")
            raise
    return EventPolicy(tuple(settled))


def _settle(state: State, entry: EventEntry) -> EventEntry:
    name = type_named(state.types, entry.event.type)
    given = parameters(state, name)
    if len(entry.event.args) > len(given):
        raise BadDefinition(
            f"`{entry.event.type}` has {len(given)} parameters, not {len(entry.event.args)}",
            remedy=f"they are {', '.join(f'`{one}`' for one, _ in given)}",
        )
    credentials = tuple(_settle_role(state, ref) for ref in entry.credentials)
    bound = {arg.name for arg in entry.event.args if isinstance(arg, Variable)}
    bound |= {arg.name for ref in credentials for arg in ref.args if isinstance(arg, Variable)}
    _check_instances(entry)
    constraint = inlined(in_relations(state, entry.constraint), frozenset(bound - {"_"}))
    check_names(state, constraint)
    free = variables(constraint) - bound
    if free:
        raise BadDefinition(
            f"nothing gives `{min(free)}` a value", remedy="name it in the event or in a credential, or define it"
        )
    return replace(entry, event=replace(entry.event, type=name), credentials=credentials, constraint=constraint)


def _check_instances(entry: EventEntry) -> None:
    """Refuse a variable for an instance that is named again: instances are not tied to anything here."""
    terms: list[object] = [arg for ref in entry.credentials for arg in (*ref.args, ref.instance)]
    named = [one.name for one in (*entry.event.args, *terms) if isinstance(one, Variable)]
    named += variables(entry.constraint)
    for ref in entry.credentials:
        if isinstance(ref.instance, Variable) and ref.instance.name != "_" and named.count(ref.instance.name) > 1:
            raise BadDefinition(
                f"`{ref.instance.name}` stands for an instance of `{ref.service or ref.role}` and for something else",
                remedy="name the instance, or write `_` for any",
            )


def type_named(types: Catalog, name: str) -> str:
    """The type of a name, or the only one whose name ends in it."""
    if name in types:
        return name
    candidates = [one for one in types if one.endswith(f".{name}")]
    if len(candidates) != 1:
        several = f"`{brief(name)}` may be {', '.join(f'`{one}`' for one in sorted(candidates))}"
        raise UnknownType(several if candidates else f"no event type `{brief(name)}`", remedy="write its full name")
    return candidates[0]


def _settle_role(state: State, ref: RoleRef) -> RoleRef:
    """A role with its service, where only one has such a role."""
    if any(isinstance(arg, tree.Meta) for arg in (*ref.args, ref.instance)):
        raise BadDefinition(f"`@names` have no meaning in a credential of event policy (`{ref.role}`)")
    if ref.service is not None:
        return ref
    having = [
        service
        for service, one in state.roles.rolefiles.items()
        if ref.role in {s.head.role for s in one.statements} | {d.role for d in one.declarations}
    ]
    if len(having) > 1:
        raise BadDefinition(
            f"`{ref.role}` is a role of {', '.join(f'`{one}`' for one in sorted(having))}", remedy="name the service"
        )
    return replace(ref, service=having[0]) if having else ref


def inlined(constraint: Condition, bound: frozenset[str]) -> Condition:
    """A constraint in which what `x = e` defines is put in the place of `x`.

    If `e` is null there is no such `x`. Where nothing else says so, `e = e` does.
    """
    args = list(constraint.args if isinstance(constraint, AllOf) else (constraint,))
    at = 0
    while at < len(args):
        definition = _definition(args[at], bound)
        if definition is None:
            at += 1
            continue
        name, made = definition
        rest = [one for n, one in enumerate(args) if n != at]
        known = any(_looks_at(one, name) for one in rest)
        args = [put(one, name, made) for one in rest]
        if not known:
            args.append(tree.Compare("=", made, made))
        if sum(map(_size, args)) > MAX_INLINED:
            raise BadDefinition(
                f"with `{name}` put in its places the condition has more than MAX_INLINED ({MAX_INLINED}) parts",
                remedy="define less by other definitions",
            )
        at = 0
    return args[0] if len(args) == 1 else AllOf(tuple(args))


def _definition(constraint: Condition, bound: frozenset[str]) -> tuple[str, Operand] | None:
    """The variable that a comparison gives a value, and what that is."""
    if isinstance(constraint, tree.Compare) and constraint.op == "=":
        for one, made in ((constraint.left, constraint.right), (constraint.right, constraint.left)):
            if isinstance(one, Variable) and one.name not in bound | {"_"} and one.name not in tree.variables_of(made):
                return one.name, made
    return None


def _looks_at(constraint: Condition, name: str) -> bool:
    """Is an atom, or what it denies, not true where a variable is null?"""
    while isinstance(constraint, tree.Not | tree.Starred):
        constraint = constraint.arg
    return not isinstance(constraint, AllOf | tree.AnyOf) and name in variables(constraint)


def _size(constraint: Condition) -> int:
    """The atoms and values of a constraint, up to some more than may be."""
    count = 0
    waiting: list[Condition | Operand] = [constraint]
    while waiting and count <= MAX_INLINED:
        count += 1
        node = waiting.pop()
        waiting += (*tree.parts(node), *tree.operands(node))
    return count


def put(constraint: Condition, name: str, made: Operand) -> Condition:
    """A constraint with an expression in the place of a variable."""

    def into(operand: Operand) -> Operand:
        return made if operand == Variable(name) else operand

    return tree.rewrite_operands(constraint, lambda operand: tree.rewrite_operand(operand, into))


def check_names(state: State, constraint: Condition) -> None:
    """Refuse a constraint that names a group, relation or function that is not there, or what has no meaning here."""
    if tree.has_star(constraint):
        raise BadDefinition("a star has no meaning in event policy, which always follows the credentials")
    for atom in tree.atoms(constraint):
        match atom:
            case tree.InGroup(_, group) if group not in state.groups:
                raise UnknownName(f"no group `{brief(group)}`", remedy="declare it first")
            case tree.Related(name):
                _check_function(state, name)
        for operand in tree.operands(atom):
            _check_expression(state, operand)


def _check_expression(state: State, expression: Operand) -> None:
    for operand in tree.within(expression):
        match operand:
            case tree.Apply(function):
                _check_function(state, function)
            case tree.Count():
                raise BadDefinition("roles are not counted in event policy", remedy="count them in a rolefile")
            case tree.Meta(name) if name != "time":
                raise BadDefinition(f"`@{name}` has no meaning in event policy", remedy="only `@time` of the event has")


def _check_function(state: State, name: str) -> None:
    if name not in state.relations and name not in ("unixacl", "acl"):
        raise UnknownName(f"no relation or function `{brief(name)}`", remedy="declare the relation first")


def settle_representative(state: State, representative: Representative) -> Representative:
    """How a type is seen, as it is kept: under the full name of the type; or a refusal."""
    name = type_named(state.types, representative.type)
    attributes = state.types.attributes(name)
    for parameter, expression in representative.parameters:
        _check_expression(state, expression)
        missing = tree.variables_of(expression) - attributes.keys()
        if missing:
            raise BadDefinition(
                f"`{parameter}` is made of `{brief(min(missing))}`, which `{name}` lacks",
                remedy=f"its attributes are {', '.join(f'`{a}`' for a in attributes)}",
            )
    return replace(representative, type=name)
