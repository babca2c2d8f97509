"""A scenario as a value: the first batch, the steps, and what must come of them.

Guarantees: frozen; names are checked (`file`), expressions of steps are not: what a step says is refused when it is
played, as the gateway would, because a scenario may expect just that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from headgate.decide.check import check_role
from headgate.decide.composite_check import conform_bound
from headgate.decide.truth import PredicateFunction
from headgate.lang import parse_condition
from headgate.lang.composite import parse_composite, parse_row
from headgate.lang.rolefile import parse_role, parse_rolefile
from headgate.model import changes as ledger
from headgate.model.authority import Certificate, Identity
from headgate.model.errors import BadStatement, HeadgateError
from headgate.model.events import Draft
from headgate.model.expressions import TRUE, Condition, RoleRef
from headgate.model.rights import Action, Detection, Effect, Rule, Subscription
from headgate.model.state import State
from headgate.model.types import SIGNAL, Catalog
from headgate.model.values import EPOCH, Value
from headgate.scenario.format.narration import Narration, StoryLine
from headgate.scenario.format.yamlfile import SourcePlace

ADMINISTRATOR: Final = "@administrator"
"""The domain's own principal in a scenario; no principal of a file can have this name."""


RESERVED_SECONDS: Final = 3_600
"""How long a reservation lasts."""


@dataclass(frozen=True, slots=True)
class RuleText:
    """A rule as written."""

    place: SourcePlace
    id: str
    actions: frozenset[Action]
    who: str = ""
    type: str = "*"
    where: str | None = None
    attributes: tuple[str, ...] | None = None
    forced: Mapping[str, object] = field(default_factory=dict)
    effect: Effect = Effect.GRANT
    disclose: bool = False
    first: bool = False
    role: str | None = None
    """Whom it speaks to by role; then `who` is empty."""
    attested: bool = False
    body: Mapping[str, object] = field(default_factory=dict)
    """As the file has it, which is as a gateway is sent it."""

    def change(self) -> ledger.AddRule:
        """The change that adds it, or why it cannot be."""
        try:
            where = condition(self.where)
            role = None if self.role is None else check_role(parse_role(self.role))
        except HeadgateError as error:
            raise error.at(f"rule `{self.id}`") from None
        rule = Rule(
            self.id, self.who, self.actions, self.type, where, self.attributes, self.forced, self.effect, self.disclose,
            role=role, attested=self.attested,
        )  # fmt: skip
        return ledger.AddRule(rule, self.first)


@dataclass(frozen=True, slots=True)
class SubscriptionText:
    """A subscription as written."""

    place: SourcePlace
    id: str
    principal: str
    type: str
    where: str | None = None
    history: bool = False
    since_version: int = 0
    since_time: datetime | None = None
    requires: str | None = None
    origin: str | None = None
    counted: tuple[str, ...] | None = None
    reserved: str | None = None
    """The reservation that it begins at, which was made at `since_time`."""

    def change(self) -> ledger.Subscribe:
        """The change that opens it, or why it cannot be."""
        try:
            return ledger.Subscribe(
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
                    counted=self.counted,
                )
            )
        except HeadgateError as error:
            raise error.at(f"subscription `{self.id}`") from None


@dataclass(frozen=True, slots=True)
class RolefileText:
    """Another rolefile of a service, as written; without a text the service ends."""

    place: SourcePlace
    service: str
    text: str | None

    def change(self) -> ledger.SetRolefile:
        """The change that sets it, or why it cannot be."""
        try:
            return ledger.SetRolefile(self.service, None if self.text is None else parse_rolefile(self.text))
        except HeadgateError as error:
            raise error.at(f"rolefile of `{self.service}`") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenStep:
    """A step that someone takes, and that may be refused."""

    place: SourcePlace
    words: str
    """What it is, for messages."""
    callers: tuple[str, ...] = ()
    """The principals that take it, who must be connected."""
    ids: tuple[str, ...] = ()
    """What a refusal is listed under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitStep(TakenStep):
    """A step that makes one version of these changes: types, advertisements, what issuers and peers say, and more."""

    author: str = ADMINISTRATOR
    changes: tuple[ledger.Change, ...] = ()

    def batch(self, state: State) -> ledger.Batch:  # noqa: ARG002
        """The batch that it makes at a state, or why there can be none."""
        return ledger.Batch(self.author, self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeStep(CommitStep):
    """Subscriptions that begin together."""

    subscriptions: tuple[SubscriptionText, ...]

    def batch(self, state: State) -> ledger.Batch:  # noqa: ARG002
        """All of them, by whoever subscribes."""
        return ledger.Batch(self.author, tuple(one.change() for one in self.subscriptions))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsubscribeStep(CommitStep):
    """A subscription or a detection ends."""

    id: str

    def batch(self, state: State) -> ledger.Batch:
        """By whoever has the subscription."""
        old = state.subscriptions.get(self.id)
        return ledger.Batch(self.author if old is None else old.principal, (ledger.Unsubscribe(self.id),))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStep(CommitStep):
    """A change of policy: rules removed, then `changes`, then other rolefiles, then rules added."""

    remove: tuple[str, ...] = ()
    add: tuple[RuleText, ...] = ()
    roles: tuple[RolefileText, ...] = ()

    def removed(self, state: State) -> list[str]:
        """The rules to remove that are in force."""
        in_force = {rule.id for rule in state.rules}
        return [id for id in dict.fromkeys(self.remove) if id in in_force]

    def batch(self, state: State) -> ledger.Batch:
        """All of it, in that order."""
        rolefiles, rules = [one.change() for one in self.roles], [rule.change() for rule in self.add]
        return ledger.Batch(
            self.author, (*map(ledger.RemoveRule, self.removed(state)), *self.changes, *rolefiles, *rules)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectStep(CommitStep):
    """A principal connects, and shows statements; those that are `forged` their issuer has never signed."""

    principal: str
    shown: tuple[str, ...] = ()
    forged: tuple[str, ...] = ()

    def batch(self, state: State) -> ledger.Batch:  # noqa: ARG002
        """The domain takes up what it has verified."""
        for id in self.forged:
            raise BadStatement(f"`{id}` is not signed by whom it names as its issuer", reason="bad-signature")
        return ledger.Batch(self.author, self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleStep(CommitStep):
    """Something is asked of a role service, by a client or for the service's own reasons."""

    request: ledger.RoleRequest

    def batch(self, state: State) -> ledger.Batch:
        """The request, which its service has looked at; what has fallen already is revoked all the same."""
        if isinstance(self.request, ledger.EndCredential) and state.roles.credential(self.request.id) is None:
            return ledger.Batch(self.author)
        return ledger.Batch(self.author, (self.request,))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishStep(TakenStep):
    """An event is sent, at a time on the gateway's clock."""

    draft: Draft
    stream: str
    at: datetime
    requires: str | None = None
    time: datetime | None = None
    """When it occurred, as its publisher states it."""

    @property
    def occurred(self) -> datetime:
        """When it occurred: as stated, or else as the gateway's clock said."""
        return self.at if self.time is None else self.time

    def sent(self) -> Draft:
        """The event as it is sent, or why it cannot be."""
        draft = self.draft if self.time is None else replace(self.draft, time=self.time)
        return draft if self.requires is None else replace(draft, requires=condition(self.requires))


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectStep(CommitStep):
    """A detection of composite events begins; names are resolved when it is accepted."""

    id: str
    principal: str
    expression: str
    bound: Mapping[str, Value] = field(default_factory=dict)
    publishes: str | None = None
    adds: str | None = None
    start: datetime = EPOCH
    history: bool = True
    since_version: int = 0
    reserved: str | None = None
    """The reservation that it begins at, which was made at `start`."""

    def batch(self, state: State) -> ledger.Batch:
        """By whoever detects, or for it; or why it cannot be."""
        try:
            composite = parse_composite(self.expression)
            adds = None if self.adds is None else parse_row(self.adds)
            bound = conform_bound(composite, state, self.bound)
        except HeadgateError as error:
            raise error.at(f"detection `{self.id}`") from None
        detection = Detection(self.expression, composite, bound, self.start, self.publishes, adds)
        wanted = Subscription(
            self.id,
            self.principal,
            SIGNAL,
            history=self.history,
            since_version=self.since_version,
            detection=detection,
        )
        return ledger.Batch(self.author, (ledger.Subscribe(wanted),))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveStep(TakenStep):
    """What is published from now on is kept, for a subscription or detection that is made later."""

    id: str
    principal: str
    type: str | None = None
    where: str | None = None
    expression: str | None = None

    def wanted(self) -> ledger.Subscribe:
        """What would be made, or why it cannot be."""
        if self.expression is None:
            return SubscriptionText(self.place, self.id, self.principal, self.type or "", self.where).change()
        detection = Detection(self.expression, parse_composite(self.expression), {}, EPOCH)
        return ledger.Subscribe(Subscription(self.id, self.principal, SIGNAL, detection=detection))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatStep(TakenStep):
    """A stream promises that none of its later events occurred before a time."""

    stream: str
    horizon: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class AdvanceStep:
    """The clock moves on, past the times at which something that is declared ends."""

    place: SourcePlace
    passed: tuple[datetime, ...] = ()
    since: datetime = EPOCH
    to: datetime = EPOCH


@dataclass(frozen=True, slots=True)
class CrashStep:
    """The streaming query fails and starts again."""

    place: SourcePlace


@dataclass(frozen=True, slots=True)
class DeniedStep:
    """A step that must be refused with this reason."""

    place: SourcePlace
    step: TakenStep
    reason: str


@dataclass(frozen=True, slots=True)
class HoldingClaim:
    """A principal holds a role, or does not."""

    place: SourcePlace
    principal: str
    role: RoleRef
    holds: bool = True


@dataclass(frozen=True, slots=True)
class StateClaim:
    """A membership, an election or a signed statement is true, false or unknown."""

    place: SourcePlace
    id: str
    state: bool | None
    statement: str | None = None
    """The key of a signed statement; None for a membership or an election."""


Claim: TypeAlias = HoldingClaim | StateClaim


@dataclass(frozen=True, slots=True)
class ClaimStep:
    """What must hold now, by the scenario's clock, and perhaps a step that must be refused."""

    place: SourcePlace
    claims: tuple[Claim, ...]
    at: datetime
    denied: DeniedStep | None = None


Step: TypeAlias = TakenStep | AdvanceStep | CrashStep | DeniedStep | ClaimStep


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
    signals: Mapping[str, tuple[Mapping[str, object], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file."""

    file: Path
    title: str
    policy: ledger.Batch
    steps: tuple[Step, ...] = ()
    expect: Expect = field(default_factory=Expect)
    predicates: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, PredicateFunction] = field(default_factory=dict)
    """The generic predicates, which rolefiles may call as functions of their service."""
    notes: tuple[str, ...] = ()
    """What is worth saying of the file."""
    statements: Mapping[str, Certificate | Identity] = field(default_factory=dict)
    """The certificates and identities that the file declares."""
    forged: frozenset[str] = frozenset()
    """Those that whoever they name as their issuer has never signed."""
    types: Catalog = field(default_factory=Catalog)
    """Every type that the file declares, at first or by a step."""
    lines: tuple[StoryLine, ...] = ()
    """What a narrator says of each step."""
    narration: Narration | None = None


def condition(text: str | None) -> Condition:
    """A `where`; absent, it is true."""
    return TRUE if text is None else parse_condition(text)
