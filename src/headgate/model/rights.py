"""Rules and subscriptions: who may do what, and who wants what.

Guarantees: a `Rule` is one entry of D5: it grants or forbids actions on a type or pattern, under a condition, for all
attributes, some, or some with forced values. A `Subscription` brings events, or the signals of a `Detection`, and never
both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final

from headgate.model.composite import Composite, templates, tests
from headgate.model.errors import BadDefinition
from headgate.model.expressions import TRUE, Condition, Related, RoleRef
from headgate.model.types import SIGNAL, check_name, check_pattern, check_type_name
from headgate.model.values import EPOCH, Value

ANNOUNCES: Final = "headgate.roles announces"
"""The id of the rule by which a domain publishes events about its own roles; Headgate makes it when it is needed."""


class Action(Enum):
    """What a right allows."""

    CONNECT = "connect"
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    INSTALL = "install"
    EXTEND = "extend"
    GOVERN = "govern"
    AUDIT = "audit"
    QUENCH = "quench"


class Source(Enum):
    """Where an entry comes from; entries of one source stand before those of the next (D5)."""

    RULE = "rule"
    POLICY = "policy"
    CHAIN = "chain"


class Effect(Enum):
    """Does an entry grant or forbid?"""

    GRANT = "grant"
    FORBID = "forbid"


@dataclass(frozen=True, slots=True)
class Rule:
    """One ordered entry for a principal or group, or with `role` (then `who` is empty) for whoever holds a role.

    `attributes` is None for all; `forced` maps some of them to the value they must have: forced on publish, asked
    for on subscribe. Forced values stay as written until a type gives them a kind.
    """

    id: str
    who: str
    actions: frozenset[Action]
    type: str = "*"
    where: Condition = TRUE
    attributes: tuple[str, ...] | None = None
    forced: Mapping[str, object] = field(default_factory=dict)
    effect: Effect = Effect.GRANT
    disclose: bool = False
    author: str = ""
    source: Source = Source.RULE
    """An entry of a chain names types by pattern, even one alone: it takes in those that its author owns."""
    role: RoleRef | None = None
    """Whom it speaks to by role; `$a` in `where` is the argument `a`. Without arguments, whatever they are."""
    given: Mapping[str, Value] = field(default_factory=dict)
    """The arguments of the role, in an entry as it counts for one membership; never stored."""
    attested: bool = False
    """Does it let in only publishers of whom an identity statement is in force (D6)? Others it passes over."""

    def __post_init__(self) -> None:
        check_name("rule", self.id)
        check_pattern(self.type)
        if (self.role is None) == (self.who == ""):
            raise BadDefinition(f"the rule `{self.id}` is for a principal or group, or for a role", remedy="name one")
        if not self.actions:
            raise BadDefinition(f"the rule `{self.id}` allows nothing", remedy="name an action in `may`")
        loose = self.source is Source.CHAIN  # a value may be forced that another link does not let out
        if self.forced and not loose and not set(self.forced) <= set(self.attributes or ()):
            raise BadDefinition(f"the rule `{self.id}` forces an attribute that it does not name")
        if self.effect is Effect.FORBID and self.attributes is not None and Action.PUBLISH in self.actions:
            raise BadDefinition(
                f"the rule `{self.id}` forbids publishing with `attributes`",
                remedy="leave `attributes` out, or name the values to forbid in `where`",
            )

        if self.attested and (self.effect is Effect.FORBID or Action.PUBLISH not in self.actions):
            raise BadDefinition(
                f"the rule `{self.id}` says `attested`, which is for grants of `publish`",
                remedy="leave `attested` out; a forbid speaks to everyone, with an identity statement and without",
            )

    @property
    def whole_event(self) -> bool:
        """Does this entry cover the event itself (D5)? Every grant does, and a forbid without attributes."""
        return self.effect is Effect.GRANT or self.attributes is None


@dataclass(frozen=True, slots=True)
class Detection:
    """A composite event that is looked for: as it was written, and resolved once and for all when it was accepted.

    It begins at `start` with what is `bound`: the gateway's clock when it was accepted or, with history, the time asked
    for. What it signals may be published as events, or added to a relation, besides being read (`decide.derived`).
    """

    text: str
    composite: Composite
    bound: Mapping[str, Value] = field(default_factory=dict)
    start: datetime = EPOCH
    publishes: str | None = None
    """The type as whose events its signals are published, its principal being the publisher."""
    adds: Related | None = None
    """The relation that gets a row with each signal: `failed(user)`, of variables and constants."""

    @property
    def derives(self) -> bool:
        """Does anything come of its signals besides being read?"""
        return self.publishes is not None or self.adds is not None


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a principal wants: events of a type (and its subtypes) whose view makes the filter true; or a detection.

    `first` is the version that made it; `history` asks for earlier events too (D10), not before `since_version` and
    `since_time`.
    """

    id: str
    principal: str
    type: str
    where: Condition = TRUE
    history: bool = False
    first: int = 0
    since_version: int = 0
    since_time: datetime | None = None
    requires: Condition | None = None
    """The publisher requirement, over the subject attributes of publishers (D11)."""
    origin: str | None = None
    """The network address it was made from, as its gateway saw it: `@origin` in the conditions of its rights."""
    counted: tuple[str, ...] | None = None
    """The memberships that count for event policy (OASIS 7.3); None counts all that its principal holds."""
    detection: Detection | None = None
    """What it detects: then its type is `SIGNAL`, and the events of its templates' types are only looked at."""

    def __post_init__(self) -> None:
        check_name("subscription", self.id)
        check_type_name(self.type)
        if (self.type == SIGNAL) is not (self.detection is not None) or (self.detection and self.where != TRUE):
            raise BadDefinition(
                f"the subscription `{self.id}` mixes events and signals",
                remedy=f"a detection is of type `{SIGNAL}`, without a filter, and nothing else is",
            )
        if not self.history and (self.since_version or self.since_time is not None):
            raise BadDefinition(f"the subscription `{self.id}` names a beginning, but asks for no history")

    def reaches_back_to(self, version: int, time: datetime) -> bool:
        """Does it ask for an event of this version and time, though it began later?"""
        return self.history and version >= self.since_version and (self.since_time is None or time >= self.since_time)

    @property
    def types(self) -> tuple[str, ...]:
        """The types whose events, and those of their subtypes, it looks at."""
        if self.detection is None:
            return (self.type,)
        return tuple(dict.fromkeys(template.type for template in templates(self.detection.composite)))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What it asks of events: its filter, or the tests of what it detects."""
        return (self.where,) if self.detection is None else tuple(tests(self.detection.composite))
