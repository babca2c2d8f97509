"""Do the kinds go together, where event policy and rules speak of roles (rule D2)?

Guarantees: what passes compares no kinds at run time that never compare, as far as kinds are declared or inferred; what
has no kind (look-ups, roles that nothing defines, arguments that stay open) clashes with nothing. A batch is refused
only for a clash that it brings about itself.
Leaves out: the types within a rolefile (`inference`), and conditions that name no argument (`decide.check`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias, assert_never

from headgate.decide.event_policy import parameters
from headgate.decide.views import governs
from headgate.lang.acl import FUNCTIONS
from headgate.lang.render import render_condition, render_operand
from headgate.model import changes
from headgate.model import expressions as tree
from headgate.model.changes import AddRule, Batch, DeclareType, SetEventPolicy, SetRolefile
from headgate.model.errors import BadDefinition
from headgate.model.expressions import Argument, Constant, Operand, RoleRef, Variable, atoms, declared_kind, operands
from headgate.model.rights import Rule
from headgate.model.rolefiles import ArgumentType, ClockType, EventEntry, IntegerType, Rolefile, SetType, TimestampType
from headgate.model.state import State
from headgate.model.types import is_pattern, matches
from headgate.model.values import Kind, brief, comparable, kind_of
from headgate.roles.rolefiles.inference import Inference, Signatures, said
from headgate.roles.rolefiles.types import own_types

Sort: TypeAlias = Kind | Literal["set"]
"""What a value is: of a kind, or a set of letters."""


@dataclass(frozen=True, slots=True)
class KnownKind:
    """What a value is known to be, and by what."""

    sort: Sort
    by: str

    def __str__(self) -> str:
        return f"{_name(self.sort)} ({self.by})"


@dataclass(frozen=True, slots=True)
class KindClash:
    """Two kinds that never compare, or one where another is needed."""

    message: str
    remedy: str


RoleKinds: TypeAlias = Callable[[RoleRef], tuple[KnownKind | None, ...]]
"""What the arguments of a role are; nothing for a role that is not known."""

_TOUCHING: Final = (
    *(AddRule, DeclareType, SetEventPolicy, SetRolefile),
    *(changes.RemoveRepresentative, changes.SetRepresentative),
)


def touches_kinds(batch: Batch) -> bool:
    """May a batch bring kinds together that never compare?"""
    return any(
        isinstance(one, _TOUCHING) and not (isinstance(one, AddRule) and one.rule.role is None) for one in batch.changes
    )


def check_kinds(before: State, after: State, batch: Batch) -> None:
    """Refuse a batch that brings about a clash in the event policy or in a rule for a role."""
    roles, old_roles = role_kinds(after.roles.rolefiles), role_kinds(before.roles.rolefiles)
    by_administrator = batch.author == after.administrator
    if any(isinstance(one, _TOUCHING) and not isinstance(one, AddRule) for one in batch.changes):
        anew = any(isinstance(one, SetEventPolicy) for one in batch.changes)
        _check_policy(before, after, roles, old_roles, told=by_administrator, anew=anew)
    added = {one.rule.id for one in batch.changes if isinstance(one, AddRule)}
    declared = {one.type.name for one in batch.changes if isinstance(one, DeclareType)}
    stirred = bool(declared) or any(isinstance(one, SetRolefile) for one in batch.changes)
    for rule in after.rules:
        if rule.role is None or not (rule.role.args or rule.role.instance) or not (stirred or rule.id in added):
            continue
        types = _covered(after, rule)
        if rule.id not in added and roles(rule.role) == old_roles(rule.role):
            types = [name for name in types if not declared.isdisjoint(after.types.lineage(name))]
        for name in types:
            stored = rule.id not in added and name in before.types
            known = frozenset(rule_clashes(before, rule, name, old_roles) if stored else ())
            for clash in rule_clashes(after, rule, name, roles):
                if clash not in known:
                    raise _refused_rule(rule, name, clash, by_administrator or rule.author == batch.author)


def _refused_rule(rule: Rule, name: str, clash: KindClash, may_see: bool) -> BadDefinition:
    """What a rule says is its author's and the administrator's alone."""
    if may_see:
        return BadDefinition(f"rule `{rule.id}` on `{name}`: {clash.message}", remedy=clash.remedy)
    return BadDefinition(
        f"a rule that covers `{name}` does not fit its attributes", remedy="ask the administrator which one"
    )


def _check_policy(
    before: State, after: State, roles: RoleKinds, old_roles: RoleKinds, *, told: bool, anew: bool
) -> None:
    """Refuse a clash that was not there before; `anew` if the batch brings every entry itself."""
    seen = {(of, clash) for of, _, clash in _policy_clashes(before, old_roles) if isinstance(of, str) or not anew}
    for of, place, clash in _policy_clashes(after, roles):
        if (of, clash) in seen:
            continue
        if told:
            raise BadDefinition(f"{place}: {clash.message}", remedy=clash.remedy)
        raise BadDefinition("the event policy does not fit the type", remedy="ask the administrator which entry")


def _policy_clashes(state: State, roles: RoleKinds) -> Iterator[tuple[EventEntry | str, str, KindClash]]:
    """The clashes of a domain's event policy and of how it sees types, each with its place."""
    for name, one in state.roles.representatives.items():
        attributes = attribute_kinds(state, name)
        for parameter, expression in one.parameters:
            for clash in _clashes(expression, attributes):
                yield name, f"`{parameter}` of the representative of `{name}`", clash
    entries = state.roles.policy.entries
    kinds = {name: parameter_kinds(state, name) for name in {entry.event.type for entry in entries}}
    for number, entry in enumerate(entries):
        line = f"line {entry.line}" if entry.line else f"entry {number + 1}"
        for clash in entry_clashes(entry, kinds[entry.event.type], roles):
            yield entry, f"event policy, {line}", clash


# -- where kinds come from ------------------------------------------------------------------------------------


def attribute_kinds(state: State, type_name: str) -> dict[str, KnownKind]:
    """What the attributes of a type are."""
    kinds = state.types.ever_attributes(type_name)
    return {name: KnownKind(kind, f"`{name}` of `{type_name}`") for name, kind in kinds.items()}


def parameter_kinds(state: State, type_name: str) -> tuple[KnownKind | None, ...]:
    """What the parameters of a type are, as event policy sees it; None for one that is looked up."""
    attributes = attribute_kinds(state, type_name)
    return tuple(_known(expression, attributes) for _, expression in parameters(state, type_name))


def role_kinds(rolefiles: Mapping[str, Rolefile | None]) -> RoleKinds:
    """What the arguments of roles are, by the rolefiles of their services."""
    imported = own_types(rolefiles.get)

    @cache
    def whole(service: str) -> Signatures:
        one = rolefiles.get(service)
        return {} if one is None else Inference(one, imported, service).signatures

    def kinds(ref: RoleRef) -> tuple[KnownKind | None, ...]:
        found = () if ref.service is None else whole(ref.service).get(ref.role, ())
        shown = f"`{ref.service}.{ref.role}`"
        return tuple(_of_type(type, f"argument {n + 1} of {shown}") for n, type in enumerate(found))

    return kinds


_SORTS: Final[Mapping[type, Sort]] = {
    IntegerType: Kind.INT, ClockType: Kind.INT, TimestampType: Kind.TIMESTAMP, SetType: "set",
}  # fmt: skip
"""What values of a type are; of the others, text."""


def _of_type(type_: ArgumentType | None, by: str) -> KnownKind | None:
    return None if type_ is None else KnownKind(_SORTS.get(type(type_), Kind.STRING), by)


def _of_constant(value: Argument) -> KnownKind | None:
    shown = f"`{said(Constant(value))}`"
    if isinstance(value, frozenset):
        return KnownKind("set", shown)
    kind = kind_of(value)
    return None if kind is None else KnownKind(kind, shown)


def _known(expression: Operand, bound: Mapping[str, KnownKind]) -> KnownKind | None:
    """What an expression is; None where nothing tells."""
    if isinstance(expression, Variable):
        return bound.get(expression.name)
    if isinstance(expression, Constant):
        return _of_constant(expression.value)
    shown = f"`{said(expression)}`"
    match expression:
        case tree.Meta(name):
            return KnownKind(Kind.TIMESTAMP if name == "time" else Kind.STRING, shown)
        case tree.Apply(function):
            return KnownKind("set", shown) if function in FUNCTIONS else None
        case tree.Combine(op, left, right) if op in ("+", "-"):
            sides = [_known(side, bound) for side in (left, right)]
            first, second = (side is not None and side.sort is Kind.TIMESTAMP for side in sides)
            if None in sides and not second and (op == "-" or not first):
                return None  # seconds or a moment, by what is not known
            return KnownKind(Kind.TIMESTAMP if first != second and not (op == "-" and second) else Kind.INT, shown)
        case tree.Combine():
            return KnownKind("set", shown)
        case tree.Count() | tree.ClockPart():
            return KnownKind(Kind.INT, shown)
        case tree.Attribute() | tree.Subject():
            raise tree.foreign(expression)
        case _:
            assert_never(expression)


# -- event policy ---------------------------------------------------------------------------------------------


def entry_clashes(entry: EventEntry, given: tuple[KnownKind | None, ...], roles: RoleKinds) -> Iterator[KindClash]:
    """What does not go together in an entry; `given` is what the parameters of its event type are."""
    bound: dict[str, KnownKind] = {}
    yield from _joined(entry.event.args, given, bound)
    for ref in entry.credentials:
        yield from _joined(ref.args, roles(ref), bound)
    for atom in atoms(entry.constraint):
        yield from _clashes(atom, bound)


def _joined(
    terms: tuple[Variable | Constant | tree.Meta, ...], kinds: tuple[KnownKind | None, ...], bound: dict[str, KnownKind]
) -> Iterator[KindClash]:
    """Join terms with what stands in their places; a variable is what its first place says."""
    for term, kind in zip(terms, kinds, strict=False):
        if kind is None or term == Variable("_"):
            continue
        other = _known(term, bound)
        if other is not None and not _compare(kind, other):
            yield _mixed(f"`{said(term)}` joins", other, kind)
        elif isinstance(term, Variable):
            bound.setdefault(term.name, kind)


def _clashes(node: tree.Node, bound: Mapping[str, KnownKind]) -> Iterator[KindClash]:
    """What does not go together in an atom or an expression, what is inside first."""
    for part in operands(node):
        yield from _clashes(part, bound)
    yield from _own_clashes(node, lambda part: _known(part, bound), f"`{said(node)}`")


def _own_clashes(node: tree.Node, known_of: Callable[[Operand], KnownKind | None], shown: str) -> Iterator[KindClash]:
    """What a node asks of its operands, and they are not."""
    known = [known_of(part) for part in operands(node)]
    if isinstance(node, tree.InSet):
        known += map(_of_constant, node.values)
    match tree.admits(node):
        case "alike" | "order" as wanted:
            first, *others = known
            for other in others:
                if first is not None and other is not None and not _compare(first, other):
                    yield _mixed(f"{shown} compares", first, other)
            for one in known if wanted == "order" else ():
                if one is not None and one.sort == "set":
                    yield KindClash(f"{shown} compares sets by order ({one.by})", "write `subseteq` or `superseteq`")
        case "sets":
            yield from _needs(shown, "set", known)
        case "text":
            yield from _needs(shown, Kind.STRING, known)
        case "moment":
            yield from _needs(shown, Kind.TIMESTAMP, known)
        case "sum":
            yield from _sum_clashes(node, known)


def _sum_clashes(e: tree.Node, sides: list[KnownKind | None]) -> Iterator[KindClash]:
    """A sum is of integers, or of a moment and seconds; a difference also of two moments."""
    assert isinstance(e, tree.Combine)
    moments = [one is not None and one.sort is Kind.TIMESTAMP for one in sides]
    if all(moments) and e.op == "+":
        yield KindClash(f"`{said(e)}` adds two timestamps", "add seconds to one of them")
    elif moments[1] and not moments[0] and e.op == "-" and sides[0] is not None:
        yield KindClash(f"`{said(e)}` takes a timestamp from {sides[0]}", "take it from a timestamp, or take seconds")
    else:
        yield from _needs(f"`{said(e)}`", Kind.INT, [one for one, m in zip(sides, moments, strict=True) if not m])


# -- rules for roles ------------------------------------------------------------------------------------------


def rule_clashes(state: State, rule: Rule, type_name: str, roles: RoleKinds) -> Iterator[KindClash]:
    """What does not go together in a rule for a role, on a type."""
    assert rule.role is not None
    bound: dict[str, KnownKind] = {}
    yield from _joined(rule.role.args, roles(rule.role), bound)
    if isinstance(rule.role.instance, Variable):
        bound.setdefault(rule.role.instance.name, KnownKind(Kind.STRING, f"the instance of `{rule.role.service}`"))
    seen = {name: KnownKind(Kind.STRING, one.by) if one.sort == "set" else one for name, one in bound.items()}
    attributes = state.types.ever_attributes(type_name)

    def known(operand: Operand) -> KnownKind | None:
        if isinstance(operand, tree.Subject):
            return seen.get(operand.name)
        kind = declared_kind(operand, attributes)
        of = f" of `{type_name}`" if isinstance(operand, tree.Attribute) else ""
        return None if kind is None else KnownKind(kind, f"`{brief(render_operand(operand))}`{of}")

    for atom in atoms(rule.where):
        if any(isinstance(one, tree.Subject) for one in operands(atom)):
            yield from _own_clashes(atom, known, f"`{brief(render_condition(atom))}`")


def _covered(state: State, rule: Rule) -> list[str]:
    """The types that a rule speaks of."""
    if not is_pattern(rule.type):
        return [rule.type] if rule.type in state.types else []
    return [name for name in state.types if matches(rule.type, name) and governs(state, rule.author, name)]


# -- what compares --------------------------------------------------------------------------------------------


def _name(sort: Sort) -> str:
    return "set" if sort == "set" else sort.value


def _compare(a: KnownKind, b: KnownKind) -> bool:
    if a.sort == "set" or b.sort == "set":
        return a.sort == b.sort
    return comparable(a.sort, b.sort)


def _mixed(what: str, a: KnownKind, b: KnownKind) -> KindClash:
    remedy = "compare it with a value of its own kind, or change the type of the argument"
    if {a.sort, b.sort} == {Kind.STRING, Kind.TIMESTAMP}:
        remedy = "write a moment as `timestamp '2026-01-01T09:00:00Z'`"
    return KindClash(f"{what} {a} with {b}", remedy)


def _needs(shown: str, wanted: Sort, known: list[KnownKind | None]) -> Iterator[KindClash]:
    for kind in known:
        if kind is not None and kind.sort != wanted:
            needed = {"set": "sets", Kind.STRING: "text", Kind.INT: "integers"}.get(wanted, "a timestamp")
            yield KindClash(
                f"{shown} needs {needed}, and {kind.by} is {_name(kind.sort)}", "correct it, or leave it out"
            )
