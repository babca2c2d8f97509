"""What is checked before it is accepted: expressions, requirements and new names (rules D2, D9, D11 and D14).

Guarantees: an expression that passes never meets a mixture of kinds at run time, names only what exists, and a filter
names only groups and relations that are open. Every refusal is `bad-expression`; but what a condition may not name
because of who wrote it is `govern-denied`, unless it is a private attribute. Nobody but the administrator is told what
there is that is not open, nor whether there is such a thing.

A requirement that `check_requirement` lets in depends on nothing but the attributes it is put to, so its truth can be
kept for each distinct set of them (`match`); what is absent, or is compared with a value of another kind, is unknown.

What has a name keeps it; a new one is refused if it resembles one of its kind that there is, or if a part of it mixes
scripts or is not in its normal form (Unicode UTS 39), unless the domain sets `names: any`. Names in ASCII never
resemble each other. Leaves out attributes, rules, subscriptions and certificates: no right is given by their name.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from headgate.decide.truth import World, truth
from headgate.model import expressions as tree
from headgate.model.errors import BadDefinition, BadExpression, GovernDenied
from headgate.model.events import Event
from headgate.model.expressions import Atom, Condition, Constant, Operand, RoleRef, Variable, atoms, operands
from headgate.model.lookalikes import Lookalikes, mixed_scripts, normal_form
from headgate.model.state import State
from headgate.model.values import Kind, Value, brief, comparable


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression may name.

    `attributes` are those of the event type; with `lenient` an attribute that is not among them is null rather than
    an error (rules by pattern, D3). A `filter` may not use subject attributes, nor closed groups and relations.
    """

    state: State
    attributes: Mapping[str, Kind]
    where: str
    lenient: bool = False
    filter: bool = False


def check_role(role: RoleRef) -> RoleRef:
    """Refuse a role that no rule can be for: what holds of a request has no meaning, because nothing is requested."""
    if role.service is None:
        raise BadDefinition(f"the role `{role.role}` of a rule is of no service", remedy="write `Service.Role`")
    for term in (*role.args, role.instance):
        if isinstance(term, tree.Meta):
            raise BadDefinition(
                f"`@{term.name}` has no meaning in the role of a rule",
                remedy="write a name for it, and use it in `where`",
            )
    return role


def check_author(condition: Condition, role: RoleRef | None, state: State, author: str) -> None:
    """Refuse a condition that names what its author may not look at: closed names, and private attributes (D14)."""
    if author == state.administrator:
        return
    for what, name in named(condition, role):
        if what == "attribute" and name in state.private:
            raise is_private(name)
        if what != "attribute" and name not in state.open_names:
            raise GovernDenied(
                f"`{author}` may name no {what} `{brief(name)}` in a condition: there is none, or it is not open",
                remedy="ask the administrator to open it",
            )


def named(condition: Condition, role: RoleRef | None = None) -> Iterator[tuple[str, str]]:
    """The groups, relations and attributes of subjects that a condition names, each with what it is.

    In a rule for a role, `$name` is an argument where the role has one of that name, and no attribute.
    """
    terms = () if role is None else (*role.args, role.instance)
    bound = {term.name for term in terms if isinstance(term, Variable)}
    for atom in atoms(condition):
        match atom:
            case tree.InGroup(_, name):
                yield "group", name
            case tree.Related(name, _):
                yield "relation", name
        found = (one.name for one in operands(atom) if isinstance(one, tree.Subject))
        yield from (("attribute", name) for name in found if name not in bound)


def is_private(name: str) -> BadExpression:
    """The refusal of an expression that names a private attribute."""
    return BadExpression(
        f"the attribute `${brief(name)}` is private", remedy="only the administrator writes conditions on it"
    )


def check(condition: Condition, scope: Scope) -> None:
    """Refuse an expression that does not type-check in a scope, or is of the language of rolefiles."""
    if tree.has_star(condition):
        raise _of_roles("`*`")
    for atom in atoms(condition):
        _check_atom(atom, scope)


def _check_atom(atom: Atom, scope: Scope) -> None:
    kinds = {operand: _kind(operand, scope) for operand in operands(atom)}
    for one in tree.comparisons(atom):
        right = kinds[one.right] if one.right in kinds else _kind(one.right, scope)
        _comparable(kinds[one.left], right, _show_comparison(atom, one))
    if tree.admits(atom) == "text":
        for operand, kind in kinds.items():
            _is_text(operand, kind, atom.op if isinstance(atom, tree.TextMatch) else "in group")
    match atom:
        case tree.InGroup(_, group):
            _declared("group", group, scope.state.groups, scope)
        case tree.Related(relation, ()):
            raise BadExpression(f"`{brief(relation)}` has no arguments", remedy="name at least one")
        case tree.Related(relation, args):
            _declared("relation", relation, scope.state.relations, scope)
            arity = next((len(row) for row in scope.state.relations[relation]), len(args))
            if arity != len(args):
                raise BadExpression(f"`{relation}` takes {arity} arguments, not {len(args)}")
        case tree.Predicate(name) if name not in scope.state.predicates:
            raise BadExpression(
                f"no predicate `{brief(name)}` is registered", remedy=_known("predicates", scope.state.predicates)
            )


def _show_comparison(atom: Atom, one: tree.Compare) -> str:
    left, right = _show(one.left), _show(one.right)
    if isinstance(atom, tree.InRange):
        return f"{left} in {_show(atom.low)}..{_show(atom.high)}"
    return f"{left} in {{{right}}}" if isinstance(atom, tree.InSet) else f"{left} {one.op} {right}"


def _kind(operand: Operand, scope: Scope) -> Kind | None:
    """The declared kind of an operand; None where it has none."""
    match operand:
        case tree.Attribute(name) if name not in scope.attributes and not scope.lenient:
            raise BadExpression(
                f"{scope.where} has no attribute `{brief(name)}`", remedy=_known("attributes", scope.attributes)
            )
        case tree.Meta(("rate" | "origin") as name) if scope.filter:
            raise BadExpression(f"a filter cannot use `@{name}`", remedy="it is for the conditions of rights")
        case tree.Meta(("instance" | "client") as name):
            raise _of_roles(f"`@{name}`")
        case tree.Subject(name) if scope.filter:
            raise BadExpression(
                f"a filter cannot use the subject attribute `${brief(name)}`", remedy="write the value itself"
            )
        case tree.ClockPart(part, of, _) if _kind(of, scope) not in (Kind.TIMESTAMP, None):
            raise BadExpression(f"`{part}` needs a timestamp, and {_show(of)} is none")
        case Variable() | tree.Apply() | tree.Count() | tree.Combine():
            raise _of_roles(_NAMES[type(operand)])
    return tree.declared_kind(operand, scope.attributes)


_NAMES: Final = {Variable: "a variable", tree.Apply: "a function", tree.Count: "`count`", tree.Combine: "a sum"}


def _of_roles(what: str) -> BadExpression:
    """The refusal of what is no part of a condition."""
    return BadExpression(
        f"{what} stands in rolefiles and event policy alone", remedy="a condition has attributes and values"
    )


def _comparable(a: Kind | None, b: Kind | None, shown: str) -> None:
    if a is not None and b is not None and not comparable(a, b):
        hint = " or `timestamp '...'`" if Kind.TIMESTAMP in (a, b) and Kind.STRING in (a, b) else ""
        raise BadExpression(
            f"`{shown}` compares {a.value} with {b.value}", remedy=f"compare it with a value of its own kind{hint}"
        )


def _is_text(operand: Operand, kind: Kind | None, op: str) -> None:
    if kind not in (Kind.STRING, None):
        raise BadExpression(f"`{op}` needs text, and {_show(operand)} is {kind.value if kind else 'null'}")


def _declared(what: str, name: str, known: Mapping[str, object], scope: Scope) -> None:
    if scope.filter:  # whoever filters learns nothing of what is closed, not even that it is there (D9)
        opened = {one: known[one] for one in known if one in scope.state.open_names}
        if name not in opened:
            raise BadExpression(f"no {what} `{brief(name)}` is open to filters", remedy=_known(f"open {what}s", opened))
    elif name not in known:
        raise BadExpression(f"no {what} `{brief(name)}`", remedy=_known(f"{what}s", known))


def _known(what: str, names: Mapping[str, object]) -> str:
    shown = ", ".join(f"`{n}`" for n in list(names)[:8]) or "none"
    return f"known {what}: {shown}{', ...' if len(names) > 8 else ''}"


def _show(operand: Operand) -> str:
    match operand:
        case tree.ClockPart(part, of, _):
            return f"{part}({_show(of)})"
        case Constant(value):
            return repr(value) if isinstance(value, (str, bytes)) else str(value)
        case tree.Meta(name):
            return f"@{name}"
        case tree.Subject(name):
            return f"${name}"
        case tree.Attribute(name):
            return name
        case _:
            raise tree.foreign(operand)


_NAME_REMEDY = "choose a name that cannot be mistaken; a domain with `names: any` takes every name"


def check_new_names(before: State, after: State, declared: Sequence[tuple[str, str]]) -> None:
    """Refuse the first of the names that were declared, each with its kind, that is new and could be mistaken."""
    if after.any_names:
        return
    kinds = dict.fromkeys(what for what, _ in declared)
    had, known = ({what: _names_of(state, what) for what in kinds} for state in (before, after))
    alike = {what: Lookalikes(names) for what, names in known.items()}
    for what, name in declared:
        if name not in had[what]:
            check_new_name(what, name, alike[what])


def check_new_name(what: str, name: str, known: Lookalikes) -> None:
    """Refuse a name that could be mistaken for another."""
    alike = known.find(name)
    if alike is not None:
        shown = f"`{brief(name)}`{_strange(name)} looks like `{brief(alike)}`{_strange(alike)}"
        raise BadDefinition(f"the {what} {shown}, which there is", remedy=_NAME_REMEDY)
    if scripts := mixed_scripts(name):
        raise BadDefinition(f"the {what} `{brief(name)}` mixes scripts: {' and '.join(scripts)}", remedy=_NAME_REMEDY)
    if (normal := normal_form(name)) != name:
        raise BadDefinition(f"the {what} `{brief(name)}` is not in its normal form", remedy=f"write `{brief(normal)}`")


def _names_of(state: State, what: str) -> Collection[str]:
    """The names among which a name is one's own."""
    if what in ("principal", "group"):
        return {**dict.fromkeys(state.principals), **dict.fromkeys(state.groups), state.administrator: None}
    return {"type": state.types.every, "relation": state.relations}.get(what, state.predicates)


def _strange(name: str) -> str:
    """The first character of a name that is not ASCII, in words: two names that look alike tell a reader nothing."""
    found = next((one for one in name if not one.isascii()), None)
    return "" if found is None else f" (with U+{ord(found):04X}, {unicodedata.name(found, 'unnamed').lower()})"


_NOTHING: Final = Event("", "", "", {}, datetime(1970, 1, 1, tzinfo=UTC))
_NOWHERE: Final = State()


def check_requirement(condition: Condition, private: frozenset[str] = frozenset()) -> None:
    """Refuse a requirement or policy rule that looks at anything but `$attributes`, or at `private` ones."""
    remedy = "write it over attributes of the other side, such as `$clearance = 'secret'`"
    for atom in atoms(condition):
        if isinstance(atom, (tree.InGroup, tree.Related, tree.Predicate)):
            raise BadExpression("a requirement names no group, relation or predicate", remedy=remedy)
        if not all(isinstance(one, (tree.Subject, Constant)) for one in operands(atom)):
            raise BadExpression("a requirement looks at nothing of the event", remedy=remedy)
    for name in sorted(tree.subjects(condition) & private):
        raise is_private(name)


def match(rule: Condition | None, attributes: Mapping[str, Value]) -> bool | None:
    """The truth of a requirement for a subject with these attributes; an absent one is true."""
    return True if rule is None else truth(rule, _NOTHING, World(_NOWHERE, attributes))
