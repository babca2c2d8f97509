"""Do the names in a constraint exist, and has every variable a value? For rolefiles and event policy alike.

Guarantees: what is called unbound is a variable that has no value whenever its atom is looked at, so that the atom is
never known to be true (OASIS 3.2.4). A negation, a comparison or a function gives no variable a value; `x = e`, a
relation and a role do.
Leaves out: types (`inference`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from headgate.decide.constraint_names import variables, variables_of
from headgate.lang.acl import FUNCTIONS
from headgate.model.conditions import (
    AllOf,
    AnyOf,
    Apply,
    Atom,
    Compare,
    Condition,
    Count,
    InGroup,
    Not,
    Related,
    RoleRef,
    Starred,
    Variable,
    atoms,
    looked_at,
)
from headgate.roles.rolefiles.findings import MAX_PAIRS, Finding, error
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
        case Starred(arg):
            yield from leaves(arg, True)
        case Not(arg):
            yield from leaves(arg, starred)
        case AllOf(args) | AnyOf(args):
            for arg in args:
                yield from leaves(arg, starred)
        case leaf:
            yield leaf, starred


def counted(c: Condition) -> Iterator[RoleRef]:
    """The roles whose members a constraint counts."""
    return (operand.of for operand in looked_at(c) if isinstance(operand, Count))


def called(leaf: Atom) -> Iterator[str]:
    """The functions, relations and roles that an atom names."""
    if isinstance(leaf, Related):
        yield leaf.name
    yield from (operand.function for operand in looked_at(leaf) if isinstance(operand, Apply))


# -- do they exist? -------------------------------------------------------------------------------------------


def check_names(c: Condition, line: int, names: Names) -> Iterator[Finding]:
    """What a constraint names that is not there, or is not used as it is."""
    for leaf in atoms(c):
        if isinstance(leaf, InGroup) and names.groups is not None and leaf.group not in names.groups:
            yield error("unknown-group", line, f"there is no group `{leaf.group}`", "declare it first")
        if isinstance(leaf, Related):
            yield from _check_called(leaf.name, len(leaf.args), line, names, as_value=False)
        for operand in looked_at(leaf):
            if isinstance(operand, Apply):
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
            case Starred(arg):
                yield from self.unbound(arg, bound)
            case Not(arg):
                # Negation gives nothing a value, so what is inside must have all of its own.
                yield from ((c, name) for name in sorted(variables(arg) - bound))
            case AllOf(args):
                after = self.after(c, bound)
                for arg in args:
                    yield from self.unbound(arg, after)
            case AnyOf(args):
                for arg in args:
                    yield from self.unbound(arg, self.after(arg, bound))
            case leaf:
                yield from ((c, name) for name in sorted(variables(leaf) - self.after(leaf, bound)))
                if not isinstance(leaf, Related) and Variable("_") in looked_at(leaf):
                    yield c, "_"

    def after(self, c: Condition, bound: frozenset[str]) -> frozenset[str]:
        """The variables that have a value once a constraint is true."""
        self._left -= 1
        if self._left < 0:
            return bound | variables(c)
        match c:
            case Starred(arg):
                return self.after(arg, bound)
            case AllOf(args):
                return self._after_all(args, bound)
            case AnyOf(args) if args:
                return frozenset.intersection(*(self.after(arg, bound) for arg in args))
            case Compare("=", left, right):
                for side, other in ((left, right), (right, left)):
                    if isinstance(side, Variable) and side.name != "_" and variables_of(other) <= bound:
                        return bound | {side.name}
                return bound
            case Related(name, args) if self._gives(name):
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
