"""A scenario as a value: the first batch, the steps, and what must come of them.

Guarantees: frozen; names are checked (`file`), expressions of steps are not: what a step says is refused when it is
played, as the gateway would, because a scenario may expect just that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias, assert_never

from headgate.decide.truth import PredicateFunction
from headgate.lang import parse_condition
from headgate.model.changes import AddRule, Batch, Change, RemoveRule, Subscribe, Unsubscribe
from headgate.model.conditions import TRUE, Condition
from headgate.model.errors import HeadgateError
from headgate.model.events import Draft
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.state import State
from headgate.scenario.yamlfile import Place

ADMINISTRATOR: Final = "@administrator"
"""The domain's own principal in a scenario; no principal of a file can have this name."""


@dataclass(frozen=True, slots=True)
class RuleText:
    """A rule as written."""

    place: Place
    id: str
    who: str
    actions: frozenset[Action]
    type: str
    where: str | None = None
    attributes: tuple[str, ...] | None = None
    forced: Mapping[str, object] = field(default_factory=dict)
    effect: Effect = Effect.GRANT
    disclose: bool = False
    first: bool = False

    def change(self) -> AddRule:
        """The change that adds it, or why it cannot be."""
        try:
            where = condition(self.where)
        except HeadgateError as error:
            raise error.at(f"rule `{self.id}`") from None
        rule = Rule(
            self.id, self.who, self.actions, self.type, where, self.attributes, self.forced, self.effect, self.disclose
        )
        return AddRule(rule, self.first)


@dataclass(frozen=True, slots=True)
class SubscriptionText:
    """A subscription as written."""

    place: Place
    id: str
    principal: str
    type: str
    where: str | None = None
    history: bool = False
    since_version: int = 0
    since_time: datetime | None = None
    requires: str | None = None
    origin: str | None = None

    def change(self) -> Subscribe:
        """The change that opens it, or why it cannot be."""
        try:
            return Subscribe(
                Subscription(
                    self.id,
                    self.principal,
                    self.type,
                    condition(self.where),
                    self.history,
                    since_version=self.since_version,
                    since_time=self.since_time,
                    requires=None if self.requires is None else condition(self.requires),
                    origin=self.origin,
                )
            )
        except HeadgateError as error:
            raise error.at(f"subscription `{self.id}`") from None


@dataclass(frozen=True, slots=True)
class SubscribeStep:
    """Subscriptions that begin together."""

    place: Place
    subscriptions: tuple[SubscriptionText, ...]


@dataclass(frozen=True, slots=True)
class UnsubscribeStep:
    """A subscription ends."""

    place: Place
    id: str


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """A change of policy: rules removed, then `changes`, then rules added."""

    place: Place
    by: str
    remove: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    add: tuple[RuleText, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherStep:
    """Changes of another sort, in a few words: types, advertisements, and what issuers revoke."""

    place: Place
    by: str
    changes: tuple[Change, ...]
    words: str


@dataclass(frozen=True, slots=True)
class ConnectStep:
    """A principal connects, and shows statements."""

    place: Place
    principal: str
    shown: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class AdvanceStep:
    """The clock moves on, past the times at which something ends."""

    place: Place
    passed: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishStep:
    """An event is sent, at a time on the gateway's clock."""

    place: Place
    draft: Draft
    stream: str
    at: datetime
    requires: str | None = None

    def sent(self) -> Draft:
        """The event as it is sent, or why it cannot be."""
        return self.draft if self.requires is None else replace(self.draft, requires=condition(self.requires))


@dataclass(frozen=True, slots=True)
class CrashStep:
    """The streaming query fails and starts again."""

    place: Place


@dataclass(frozen=True, slots=True)
class DeniedStep:
    """A step that must be refused with this reason."""

    place: Place
    step: CommitStep | PublishStep
    reason: str


CommitStep: TypeAlias = SubscribeStep | UnsubscribeStep | ChangeStep | OtherStep | ConnectStep
Step: TypeAlias = CommitStep | PublishStep | AdvanceStep | CrashStep | DeniedStep


@dataclass(frozen=True, slots=True)
class Expected:
    """An event that a subscription must receive; with a view, exactly so."""

    event: str
    view: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Expect:
    """What must come of a story."""

    deliveries: Mapping[str, tuple[Expected, ...]] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file."""

    file: Path
    title: str
    policy: Batch
    steps: tuple[Step, ...] = ()
    expect: Expect = field(default_factory=Expect)
    predicates: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, PredicateFunction] = field(default_factory=dict)


def condition(text: str | None) -> Condition:
    """A `where`; absent, it is true."""
    return TRUE if text is None else parse_condition(text)


def batch_of(step: CommitStep, state: State) -> Batch:
    """The one batch that a step makes at a state, or why there can be none."""
    match step:
        case SubscribeStep(_, subscriptions):
            principals = {s.principal for s in subscriptions}
            author = principals.pop() if len(principals) == 1 else state.administrator
            return Batch(author, tuple(s.change() for s in subscriptions))
        case UnsubscribeStep(_, id):
            old = state.subscriptions.get(id)
            return Batch(state.administrator if old is None else old.principal, (Unsubscribe(id),))
        case ChangeStep(_, by, remove, changes, add):
            in_force = {rule.id for rule in state.rules}
            removed = tuple(RemoveRule(id) for id in dict.fromkeys(remove) if id in in_force)
            return Batch(by, (*removed, *changes, *(rule.change() for rule in add)))
        case OtherStep(_, by, changes):
            return Batch(by, changes)
        case ConnectStep(_, _, _, changes):
            return Batch(state.administrator, changes)  # the domain takes up what it has verified
        case _:
            assert_never(step)


def who_connects(step: CommitStep | PublishStep, state: State) -> tuple[str, ...]:
    """The principals that a step is taken by, and that must be connected for it."""
    match step:
        case SubscribeStep(_, subscriptions):
            return tuple(dict.fromkeys(s.principal for s in subscriptions))
        case UnsubscribeStep(_, id):
            return (state.subscriptions[id].principal,) if id in state.subscriptions else ()
        case ChangeStep(_, by) | OtherStep(_, by):
            return (by,)
        case PublishStep(_, draft):
            return (draft.publisher,)
        case ConnectStep():
            return ()  # whether it may shows once its statements are taken up
        case _:
            assert_never(step)


def named(step: CommitStep | PublishStep) -> str:
    """A step in a few words, for messages."""
    match step:
        case SubscribeStep(_, subscriptions):
            return f"subscribe {', '.join(f'`{s.id}`' for s in subscriptions)}"
        case UnsubscribeStep(_, id):
            return f"unsubscribe `{id}`"
        case ChangeStep(_, by):
            return "change" if by == ADMINISTRATOR else f"change by `{by}`"
        case OtherStep(_, _, _, words):
            return words
        case PublishStep(_, draft):
            return f"publish `{draft.id}`"
        case ConnectStep(_, principal):
            return f"connect `{principal}`"
        case _:
            assert_never(step)
