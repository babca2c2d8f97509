"""What an explanation says: frozen facts, from the question to the right that would have been needed.

Guarantees: no wording and no logic. What may not be told is None or left out, and the field says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from headgate.analysis.explain_roles import Judged, RoleHolding
from headgate.analysis.truth_trace import TruthPart
from headgate.model.conditions import Condition, RoleRef
from headgate.model.rights import Effect, Source
from headgate.model.values import Kind, Value


class Why(Enum):
    """Why is an attribute visible or hidden?"""

    GRANTED = "granted"
    FORBIDDEN = "forbidden"
    UNCOVERED = "uncovered"


class Standing(Enum):
    """How does a subscription stand to an event?"""

    LIVE = "in force"
    HISTORY = "history"
    NOT_YET = "not yet"
    ENDED = "ended"
    OTHER_TYPE = "other type"


class Demand(Enum):
    """Whose requirement is it?"""

    EVENT = "the event's"
    POLICY_RULE = "the publisher's policy rule"
    SUBSCRIPTION = "the subscription's"


@dataclass(frozen=True, slots=True)
class Question:
    """Who asks about whom, and which event, version and subscription, as they were named."""

    asker: str
    principal: str
    event: str
    version: int | None = None
    subscription: str | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """One entry put to the event, in order.

    `condition` is None where it may not be told. Where `told` is false its truth and parts are kept back, and
    `matched` is None unless the view itself shows that it did. An entry for a `role` counts through a `membership`; one
    of the event policy has no condition but what was `judged`.
    """

    rule: str
    effect: Effect
    who: str | None
    type: str
    condition: Condition | None
    told: bool
    truth: bool | None
    matched: bool | None
    covers: tuple[str, ...]
    decided: tuple[str, ...]
    parts: tuple[TruthPart, ...]
    source: Source = Source.RULE
    role: RoleRef | None = None
    membership: RoleHolding | None = None
    judged: Judged | None = None


@dataclass(frozen=True, slots=True)
class AttributeExplanation:
    """One attribute: is it visible, by which entry, at which version; and the grants that would have shown it."""

    name: str
    kind: Kind
    visible: bool
    value: Value
    why: Why
    rule: str | None
    version: int
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewAt:
    """The view under the rights of one version. A `stopped_by` entry forbade the whole event before any grant."""

    version: int
    exists: bool
    stopped_by: str | None
    attributes: tuple[AttributeExplanation, ...]
    tried: tuple[Tried, ...]


@dataclass(frozen=True, slots=True)
class Unmet:
    """A requirement that is not true of the other side, and so stops the event (D11).

    Its truth and parts, which tell what the other side is like, are None and empty where that may not be told.
    """

    demand: Demand
    condition: Condition
    truth: bool | None = None
    parts: tuple[TruthPart, ...] = ()


@dataclass(frozen=True, slots=True)
class SubscriptionExplanation:
    """What became of a subscription: its standing, and its filter over the view. `hidden`: what it cannot see.

    `unmet` is its own requirement, where the publisher does not meet it.
    """

    id: str
    type: str
    where: Condition | None
    first: int
    standing: Standing
    truth: bool | None
    parts: tuple[TruthPart, ...]
    hidden: tuple[str, ...]
    delivered: bool
    unmet: tuple[Unmet, ...] = ()


@dataclass(frozen=True, slots=True)
class Needed:
    """A right that would have been enough: a subscribe grant on the type, before a forbid if one is named.

    A grant in `failed` would have done as well, had its condition been true.
    """

    version: int
    type: str
    attributes: tuple[str, ...]
    before: str | None
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that the asker may know. With two `views` an attribute is visible only if both show it.

    What is visible is what rights show. `unmet` are the requirements of the publisher that stop the event all the same.
    """

    principal: str
    event: str
    type: str
    publisher: str
    time: datetime
    place: tuple[str, int] | None
    version: int
    event_version: int
    full: bool
    visible: bool
    attributes: tuple[AttributeExplanation, ...]
    views: tuple[ViewAt, ...]
    subscription: SubscriptionExplanation | None
    needed: tuple[Needed, ...]
    unmet: tuple[Unmet, ...] = ()
    counted: tuple[str, ...] | None = None
    """The memberships that the subscription counts for event policy; None: all that its principal holds."""
