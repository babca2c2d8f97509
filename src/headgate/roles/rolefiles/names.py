"""Do the names in a constraint exist, and has every variable a value? May a name be new? And what a checker says.

Guarantees: what is called unbound is a variable that has no value whenever its atom is looked at, so that the atom is
never known to be true (OASIS 3.2.4). A negation, a comparison or a function gives no variable a value; `x = e`, a
relation and a role do. A new service is compared with the services and peers that there are, a role that is granted
with the roles of its service; whatever anyone holds already keeps its name.
Leaves out: types (`inference`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from headgate.decide.check import check_new_name
from headgate.lang.acl import FUNCTIONS
from headgate.model import expressions as tree
from headgate.model.changes import GrantRole, RoleRequest, SetPeer, SetRolefile
from headgate.model.errors import BadDefinition
from headgate.model.expressions import Atom, Condition, Variable, atoms, looked_at, variables, variables_of
from headgate.model.lookalikes import Lookalikes
from headgate.model.rolefiles import Rolefile
from headgate.model.state import State
from headgate.roles.rolefiles.inference import said


@dataclass(frozen=True, slots=True)
class Names:
    """What may be named; None where it is not known."""

    groups: Collection[str] | None
    relations: Mapping[str, int | None] | None
    """How many columns each has, where that is known."""
    functions: Collection[str]
    roles: Collection[str] = ()
    """The roles of the service itself."""

    def gives_rows(self, name: str) -> bool:
        """Does `name(x)` give `x` a value?"""
        if name in self.roles or (self.relations is not None and name in self.relations):
            return True
        return self.relations is None and name not in self.functions and name not in FUNCTIONS


def leaves(c: Condition, starred: bool = False) -> Iterator[tuple[Atom, bool]]:
    """Every atom, and whether a star takes it in."""
    match c:
        case tree.Starred(arg):
            yield from leaves(arg, True)
        case tree.Not(arg):
            yield from leaves(arg, starred)
        case tree.AllOf(args) | tree.AnyOf(args):
            for arg in args:
                yield from leaves(arg, starred)
        case leaf:
            yield leaf, starred


def called(leaf: Atom) -> Iterator[str]:
    """The functions, relations and roles that an atom names."""
    if isinstance(leaf, tree.Related):
        yield leaf.name
    yield from (operand.function for operand in looked_at(leaf) if isinstance(operand, tree.Apply))


# -- do they exist? -------------------------------------------------------------------------------------------


def check_names(c: Condition, line: int, names: Names) -> Iterator[Finding]:
    """What a constraint names that is not there, or is not used as it is."""
    for leaf in atoms(c):
        if isinstance(leaf, tree.InGroup) and names.groups is not None and leaf.group not in names.groups:
            yield error("unknown-group", line, f"there is no group `{leaf.group}`", "declare it first")
        if isinstance(leaf, tree.Related):
            yield from _check_called(leaf.name, len(leaf.args), line, names, as_value=False)
        for operand in looked_at(leaf):
            if isinstance(operand, tree.Apply):
                yield from _check_called(operand.function, len(operand.args), line, names, as_value=True)


def _check_called(name: str, count: int, line: int, names: Names, *, as_value: bool) -> Iterator[Finding]:
    if name in names.roles:
        if as_value:
            yield error("unknown-name", line, f"`{name}` is a role, which has no value", f"write `{name}(...)` alone")
        return
    if names.relations is not None and name in names.relations:
        columns = names.relations[name]
        wanted = columns - as_value if columns is not None else count
        if count != wanted and (as_value or count):
            used = f"takes {wanted} to give a value" if as_value else f"has {wanted}"
            yield error("arity", line, f"`{name}` is given {count} arguments, but {used}", "give it as many")
        return
    if names.relations is not None and name not in names.functions and name not in FUNCTIONS:
        remedy = "declare the relation, or register the function, first"
        yield error("unknown-name", line, f"`{name}` is no role, relation or function here", remedy)


# -- have they values? ----------------------------------------------------------------------------------------


def check_bound(c: Condition, bound: frozenset[str], line: int, gives: Callable[[str], bool]) -> Iterator[Finding]:
    """The variables of a constraint that nothing gives a value."""
    reported: set[str] = set()
    for part, name in _Values(gives).unbound(c, bound):
        if name not in reported:
            reported.add(name)
            message = f"nothing gives `{name}` a value in `{said(part)}`"
            remedy = f"name it in the head or in a credential, or say what it is by `{name} = ...`"
            if name == "_":
                remedy = "use a variable that has a value"
            yield error("unbound", line, message, remedy)


def values_after(c: Condition, bound: frozenset[str], gives: Callable[[str], bool]) -> frozenset[str]:
    """The variables that have a value once a constraint is true, of those that have one before and those it gives."""
    return _Values(gives).after(c, bound)


class _Values:
    """Which variables have values where; after `MAX_PAIRS` steps, all of them."""

    def __init__(self, gives: Callable[[str], bool]) -> None:
        self._gives = gives
        self._left = MAX_PAIRS

    def unbound(self, c: Condition, bound: frozenset[str]) -> Iterator[tuple[Condition, str]]:
        """The variables without a value, each with the part that looks at it."""
        match c:
            case tree.Starred(arg):
                yield from self.unbound(arg, bound)
            case tree.Not(arg):
                # Negation gives nothing a value, so what is inside must have all of its own.
                yield from ((c, name) for name in sorted(variables(arg) - bound))
            case tree.AllOf(args):
                after = self.after(c, bound)
                for arg in args:
                    yield from self.unbound(arg, after)
            case tree.AnyOf(args):
                for arg in args:
                    yield from self.unbound(arg, self.after(arg, bound))
            case leaf:
                yield from ((c, name) for name in sorted(variables(leaf) - self.after(leaf, bound)))
                if not isinstance(leaf, tree.Related) and Variable("_") in looked_at(leaf):
                    yield c, "_"

    def after(self, c: Condition, bound: frozenset[str]) -> frozenset[str]:
        """The variables that have a value once a constraint is true."""
        self._left -= 1
        if self._left < 0:
            return bound | variables(c)
        match c:
            case tree.Starred(arg):
                return self.after(arg, bound)
            case tree.AllOf(args):
                return self._after_all(args, bound)
            case tree.AnyOf(args) if args:
                return frozenset.intersection(*(self.after(arg, bound) for arg in args))
            case tree.Compare("=", left, right):
                for side, other in ((left, right), (right, left)):
                    if isinstance(side, Variable) and side.name != "_" and variables_of(other) <= bound:
                        return bound | {side.name}
                return bound
            case tree.Related(name, args) if self._gives(name):
                plain = {arg.name for arg in args if isinstance(arg, Variable)} - {"_"}
                rest = [arg for arg in args if not isinstance(arg, Variable)]
                return bound | plain if all(variables_of(arg) <= bound for arg in rest) else bound
            case _:
                return bound

    def _after_all(self, args: tuple[Condition, ...], bound: frozenset[str]) -> frozenset[str]:
        """Each round gives some variable a value, or is the last."""
        before: frozenset[str] | None = None
        while bound != before:
            before = bound
            for arg in args:
                bound = self.after(arg, bound)
        return bound


MAX_FINDINGS: Final = 200
"""Findings that a check reports; a policy with more has one cause to look for first."""

MAX_PAIRS: Final = 50_000
"""Pairs of statements, or of statements and what they need, that one check looks at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An error, for which a policy is refused, or a warning about what is probably not meant."""

    severity: Literal["error", "warning"]
    code: str
    line: int
    message: str
    remedy: str | None = None


def error(code: str, line: int, message: str, remedy: str | None = None) -> Finding:
    """A finding for which the policy is refused."""
    return Finding("error", code, line, _printable(message), remedy and _printable(remedy))


def warning(code: str, line: int, message: str, remedy: str | None = None) -> Finding:
    """A finding about what is probably not meant."""
    return Finding("warning", code, line, _printable(message), remedy and _printable(remedy))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def ordered(findings: list[Finding]) -> list[Finding]:
    """Errors first, then by line, each once and at most `MAX_FINDINGS`."""
    chosen = sorted(dict.fromkeys(findings), key=lambda one: (one.severity != "error", one.line, one.code))
    return chosen[:MAX_FINDINGS]


def check_role_names(before: State, after: State, asked: Sequence[RoleRequest]) -> None:
    """Refuse the first new name of a service or role that could be mistaken; `after` has the rolefiles of the batch."""
    if after.any_names or not asked:
        return
    known = dict.fromkeys([*before.roles.rolefiles, *before.roles.peers])
    for request in asked:
        match request:
            case SetRolefile(service, _) | GrantRole(service=service):
                pass
            case SetPeer(peer):
                service = peer.name
            case _:
                continue
        if service not in known:
            _check_service(before, service, known)
            known[service] = None
        if isinstance(request, GrantRole) and not request.role.isascii():
            roles = _roles(after.roles.rolefiles.get(service, Rolefile()))
            held = {each.role: None for each in before.roles.memberships.values() if each.service == service}
            if request.role not in held:
                check_new_name("role", request.role, Lookalikes({**roles, **held}))


def _check_service(before: State, name: str, known: dict[str, None]) -> None:
    try:
        check_new_name("service", name, Lookalikes(known))
    except BadDefinition:
        if not any(one.service == name for one in before.roles.memberships.values()):
            raise


def _roles(rolefile: Rolefile) -> dict[str, None]:
    """The roles of a service, in the order of its rolefile."""
    named = [*(one.role for one in rolefile.declarations), *(one.head.role for one in rolefile.statements)]
    return dict.fromkeys(named)
