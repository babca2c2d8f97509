"""Syntax of rolefiles and of event policy: who gains a role, and who sees which event (OASIS 3 and 7).

Guarantees: frozen, closed unions with no behaviour; illegal shapes are refused at construction. Both languages share
terms, role references and constraints with `conditions`. Variables are identifiers; constants are quoted, numbers or
sets of letters.
Leaves out: text (`lang`), types and checks (`roles`), truth (`decide`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from headgate.model.errors import BadDefinition
from headgate.model.expressions import TRUE, Condition, Constant, Operand, RoleRef, Variable

# -- rolefiles ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IntegerType:
    """`Integer`."""


@dataclass(frozen=True, slots=True)
class StringType:
    """`String`."""


@dataclass(frozen=True, slots=True)
class SetType:
    """`{rwx}`: sets of these letters, in this order."""

    letters: str

    def __post_init__(self) -> None:
        if not self.letters or len(set(self.letters)) != len(self.letters):
            raise BadDefinition(f"`{{{self.letters}}}` names a letter twice, or none")


@dataclass(frozen=True, slots=True)
class ObjectType:
    """`userid`, or `Login.userid` where another service defines it: compared for equality and group membership only."""

    name: str
    service: str | None = None


@dataclass(frozen=True, slots=True)
class TimestampType:
    """`Timestamp`: a moment, also as ISO 8601 text with a zone."""


@dataclass(frozen=True, slots=True)
class ClockType:
    """`TimeOfDay` or `Weekday`: the number that `timeofday(...)` or `weekday(...)` gives, also as people write it."""

    part: Literal["timeofday", "weekday"]


ArgumentType: TypeAlias = IntegerType | StringType | SetType | ObjectType | TimestampType | ClockType

TYPE_NAMES: Final[Mapping[str, ArgumentType]] = {
    "Integer": IntegerType(), "String": StringType(), "Timestamp": TimestampType(),
    "TimeOfDay": ClockType("timeofday"), "Weekday": ClockType("weekday"),
}  # fmt: skip
"""The types of the language by name, which is written in any case; all other names are of object types."""


@dataclass(frozen=True, slots=True)
class Import:
    """`import Login.userid`."""

    service: str
    name: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Audit:
    """`audit Override, Emergency`: entering, ending and refusal of these roles become events."""

    roles: tuple[str, ...]
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Declaration:
    """`def Member(u) u : userid`; arguments left out of the list of types are inferred."""

    role: str
    parameters: tuple[str, ...] = ()
    types: tuple[tuple[str, ArgumentType], ...] = ()
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if len(set(self.parameters)) != len(self.parameters):
            raise BadDefinition(f"`{self.role}` is declared with an argument twice")
        for name, _ in self.types:
            if name not in self.parameters:
                raise BadDefinition(f"`{name}` is no argument of `{self.role}`")


@dataclass(frozen=True, slots=True)
class Credential:
    """A role that the candidate holds; with a star, for as long as it does."""

    ref: RoleRef
    starred: bool = False


@dataclass(frozen=True, slots=True)
class Elector:
    """`<|* Chair*`: someone in this role elects the candidate.

    `wish`: membership lasts only while the elector wishes it. `starred`: only while the elector holds the role.
    """

    ref: RoleRef
    wish: bool = False
    starred: bool = False


@dataclass(frozen=True, slots=True)
class Revoker:
    """`|>* Chair`: whoever holds this role may take the membership back, and with a star it then ends at once."""

    ref: RoleRef
    starred: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """`Member(u) <- Login.LoggedOn(u, h)* <|* Chair |>* Chair : (u in staff)*`.

    `asked` are the places of the head that are written `?x`: what nothing gives a value, and whoever enters is to name.
    """

    head: RoleRef
    credentials: tuple[Credential, ...] = ()
    electors: tuple[Elector, ...] = ()
    revokers: tuple[Revoker, ...] = ()
    """Several are a quorum: it is revoked once a different principal has revoked it for each."""
    constraint: Condition = TRUE
    line: int = field(default=0, compare=False)
    asked: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len({one.starred for one in self.revokers}) > 1:
            message = f"one `|>` of `{self.head.role}` has a star, and another has none"
            raise BadDefinition(message, remedy="they revoke together: write the star on all of them, or on none")
        for place in self.asked:
            if place >= len(self.head.args) or not isinstance(self.head.args[place], Variable):
                raise BadDefinition(f"only a variable of `{self.head.role}` is asked for", remedy="leave the `?` out")
        if self.head.service is not None or self.head.instance is not None:
            raise BadDefinition(f"`{self.head.role}` is entered at its own service", remedy="leave the service out")

    @property
    def needed(self) -> tuple[RoleRef, ...]:
        """The roles of the candidate and of its electors."""
        return (*(one.ref for one in self.credentials), *(one.ref for one in self.electors))

    def with_refs(self, change: Callable[[RoleRef], RoleRef], constraint: Condition) -> Statement:
        """The statement with every role changed, in order, and another constraint."""
        return replace(
            self,
            head=change(self.head),
            credentials=tuple(replace(one, ref=change(one.ref)) for one in self.credentials),
            electors=tuple(replace(one, ref=change(one.ref)) for one in self.electors),
            revokers=tuple(replace(one, ref=change(one.ref)) for one in self.revokers),
            constraint=constraint,
        )


@dataclass(frozen=True, slots=True)
class Rolefile:
    """The statements of a service, in order."""

    imports: tuple[Import, ...] = ()
    declarations: tuple[Declaration, ...] = ()
    statements: tuple[Statement, ...] = ()
    audits: tuple[Audit, ...] = ()

    @property
    def roles(self) -> frozenset[str]:
        """The roles that it defines."""
        return frozenset(one.head.role for one in self.statements) | {one.role for one in self.declarations}

    @property
    def audited(self) -> frozenset[str]:
        """The roles whose entering, ending and refusal become events."""
        return frozenset(role for one in self.audits for role in one.roles)


# -- event policy ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventTemplate:
    """`Seen(u, 'T14')` or `badge.Seen(u, r)`: the last part of a type's name, or the whole; arguments by position."""

    type: str
    args: tuple[Variable | Constant, ...] = ()


@dataclass(frozen=True, slots=True)
class EventEntry:
    """`-Seen(u, r) <= Login.LoggedOn(s, h) : u in staff and s in students`. No credentials: everyone."""

    event: EventTemplate
    credentials: tuple[RoleRef, ...] = ()
    constraint: Condition = TRUE
    negative: bool = False
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class EventPolicy:
    """The entries, in order."""

    entries: tuple[EventEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Representative:
    """How event policy sees a type: parameters that are worked out of its attributes.

    A parameter stands in the place of the first attribute that it is made of, and that attribute with it no longer
    does; the other attributes of the type keep their places.
    """

    type: str
    parameters: tuple[tuple[str, Operand], ...] = ()
