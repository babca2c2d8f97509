"""A scenario as a value: the first batch, the steps, what must come of them, and what a narrator says.

Guarantees: frozen; names are checked (`file`), expressions of steps are not: what a step says is refused when it is
played, as the gateway would, because a scenario may expect just that. Narration changes nothing that happens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias, assert_never

from headgate.decide.check import check_role
from headgate.decide.truth import PredicateFunction
from headgate.lang import parse_condition
from headgate.lang.rolefile import parse_role, parse_rolefile
from headgate.model.authority import Certificate, Identity
from headgate.model.changes import (
    AddRule,
    Batch,
    Change,
    EndCredential,
    RemoveRule,
    RoleRequest,
    SetRolefile,
    Subscribe,
    Unsubscribe,
)
from headgate.model.errors import BadStatement, HeadgateError
from headgate.model.events import Draft
from headgate.model.expressions import TRUE, Condition, RoleRef
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.model.values import EPOCH, brief
from headgate.scenario.format.yamlfile import INTEGER, TEXT, SourcePlace, YamlFields, YamlNode

ADMINISTRATOR: Final = "@administrator"
"""The domain's own principal in a scenario; no principal of a file can have this name."""


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

    def change(self) -> AddRule:
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
        return AddRule(rule, self.first)


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
                    counted=self.counted,
                )
            )
        except HeadgateError as error:
            raise error.at(f"subscription `{self.id}`") from None


@dataclass(frozen=True, slots=True)
class SubscribeStep:
    """Subscriptions that begin together."""

    place: SourcePlace
    subscriptions: tuple[SubscriptionText, ...]


@dataclass(frozen=True, slots=True)
class UnsubscribeStep:
    """A subscription ends."""

    place: SourcePlace
    id: str


@dataclass(frozen=True, slots=True)
class RolefileText:
    """Another rolefile of a service, as written; without a text the service ends."""

    place: SourcePlace
    service: str
    text: str | None

    def change(self) -> SetRolefile:
        """The change that sets it, or why it cannot be."""
        try:
            return SetRolefile(self.service, None if self.text is None else parse_rolefile(self.text))
        except HeadgateError as error:
            raise error.at(f"rolefile of `{self.service}`") from None


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """A change of policy: rules removed, then `changes`, then other rolefiles, then rules added."""

    place: SourcePlace
    by: str
    remove: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    add: tuple[RuleText, ...] = ()
    roles: tuple[RolefileText, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherStep:
    """Changes of another sort, in a few words: types, advertisements, and what issuers revoke."""

    place: SourcePlace
    by: str
    changes: tuple[Change, ...]
    words: str


@dataclass(frozen=True, slots=True)
class ConnectStep:
    """A principal connects, and shows statements; those that are `forged` their issuer has never signed."""

    place: SourcePlace
    principal: str
    shown: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    forged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleStep:
    """Something is asked of a role service, by a client or for the service's own reasons."""

    place: SourcePlace
    request: RoleRequest
    words: str
    by: str | None = None
    """The client that asks, which must be connected."""
    id: str | None = None
    """What a refusal is listed under."""


@dataclass(frozen=True, slots=True)
class AdvanceStep:
    """The clock moves on, past the times at which something that is declared ends."""

    place: SourcePlace
    passed: tuple[datetime, ...] = ()
    since: datetime = EPOCH
    to: datetime = EPOCH


@dataclass(frozen=True, slots=True)
class PublishStep:
    """An event is sent, at a time on the gateway's clock."""

    place: SourcePlace
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

    place: SourcePlace


@dataclass(frozen=True, slots=True)
class DeniedStep:
    """A step that must be refused with this reason."""

    place: SourcePlace
    step: CommitStep | PublishStep
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


CommitStep: TypeAlias = SubscribeStep | UnsubscribeStep | ChangeStep | OtherStep | ConnectStep | RoleStep
Step: TypeAlias = CommitStep | PublishStep | AdvanceStep | CrashStep | DeniedStep | ClaimStep


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
        case ChangeStep(_, by, remove, changes, add, roles):
            in_force = {rule.id for rule in state.rules}
            removed = tuple(RemoveRule(id) for id in dict.fromkeys(remove) if id in in_force)
            rolefiles = tuple(one.change() for one in roles)
            return Batch(by, (*removed, *changes, *rolefiles, *(rule.change() for rule in add)))
        case OtherStep(_, by, changes):
            return Batch(by, changes)
        case ConnectStep(_, _, _, _, (forged, *_)):
            raise BadStatement(f"`{forged}` is not signed by whom it names as its issuer", reason="bad-signature")
        case ConnectStep(_, _, _, changes):
            return Batch(state.administrator, changes)  # the domain takes up what it has verified
        case RoleStep(_, EndCredential(id)) if not _is_held(state, id):
            return Batch(state.administrator)  # what has fallen already is revoked all the same
        case RoleStep(_, request):
            return Batch(state.administrator, (request,))  # so are those that its services have looked at
        case _:
            assert_never(step)


def _is_held(state: State, id: str) -> bool:
    return id in state.roles.memberships or id in state.roles.elections


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
        case RoleStep(by=by):
            return () if by is None else (by,)
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
        case OtherStep(words=words) | RoleStep(words=words):
            return words
        case PublishStep(_, draft):
            return f"publish `{draft.id}`"
        case ConnectStep(_, principal):
            return f"connect `{principal}`"
        case _:
            assert_never(step)


LINE_KEYS: Final = ("say", "note", "show")
"""The keys of a step that are for the narrator."""

_STORY_KEYS: Final = (
    "opening", "source", "readers", "asides", "question", "moral", "organisations", "domain", "tries",
)  # fmt: skip
_EXHIBITS: Final = ("chain", "guests", "checks", "roles")


@dataclass(frozen=True, slots=True)
class ChainExhibit:
    """A chain of certificates, from the first issuer to the holder."""

    title: str
    certificates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GuestsExhibit:
    """What became of each attribute of these guests on the way from home, by their statements here."""

    title: str
    identities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerCheck:
    """A client verifies the broker that it connects to, by a chain from the coordinator."""

    certificates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """A guest verifies a server: its provider at home, the `anchor`, vouches for the provider of the server."""

    identity: str
    anchor: str
    provider: str


@dataclass(frozen=True, slots=True)
class TypeCheck:
    """A domain verifies the signed definition of a type."""

    type: str


Check: TypeAlias = BrokerCheck | ServerCheck | TypeCheck


@dataclass(frozen=True, slots=True)
class ChecksExhibit:
    """What was verified, a row of words for each check; `columns` are their titles."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], Check], ...]


@dataclass(frozen=True, slots=True)
class RolesExhibit:
    """The credentials at this point, and what each rests on."""

    title: str


Exhibit: TypeAlias = ChainExhibit | GuestsExhibit | ChecksExhibit | RolesExhibit


@dataclass(frozen=True, slots=True)
class StoryLine:
    """The narrator's part of one step.

    `say` begins a scene that lasts until the next. `note` marks the step in the table, where a version starts or
    something is refused, and in the ledger. `show` is for when the step has been taken.
    """

    say: str = ""
    note: str = ""
    show: tuple[Exhibit, ...] = ()


@dataclass(frozen=True, slots=True)
class StoryReader:
    """A column of the table: a subscription, and what its principal may see, in plain words.

    `width` is that of the column where it can be narrower than a whole event.
    """

    subscription: str
    title: str
    sees: str
    width: int = 0


@dataclass(frozen=True, slots=True)
class StoryQuestion:
    """Why does a principal not see an attribute of an event?"""

    text: str
    principal: str
    event: str
    attribute: str


@dataclass(frozen=True, slots=True)
class Narration:
    """How a scenario is told, from the first sentence to the last.

    `asides` are sentences about the `{count}` of events that a subscription without a column received.
    `organisations` have directories with the keys of some principals, and `domain` is the one that the domain is in.
    `tries` are commands for afterwards, with `{dir}` for the directory of the story, and what each is for.
    """

    opening: str
    source: str
    readers: tuple[StoryReader, ...]
    question: StoryQuestion
    moral: str
    asides: Mapping[str, str]
    organisations: Mapping[str, tuple[str, ...]]
    domain: str
    tries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StoryNames:
    """The names of a file that its narration may use."""

    principals: Collection[str]
    subscriptions: Collection[str]
    events: Mapping[str, str]
    statements: Mapping[str, Certificate | Identity]
    types: Collection[str]


def read_narration(node: YamlNode, named: StoryNames) -> Narration:
    """The `story` of a file."""
    fields = node.fields(_STORY_KEYS, ("opening", "source", "readers", "question", "moral"))
    organisations = {
        name: tuple(_known(one, named.principals, "principal") for one in members.sequence())
        for name, members in fields.entries("organisations")
    }
    if organisations and "domain" not in fields:
        node.refuse("the key `domain` is missing", "name the organisation that the domain is in")
    return Narration(
        readers=tuple(_reader(id, one, named) for id, one in fields.entries("readers")),
        question=_question(fields["question"], named),
        asides={_subscription(id, one, named): one.text() for id, one in fields.entries("asides")},
        organisations=organisations,
        domain=_known(fields["domain"], organisations, "organisation") if "domain" in fields else "",
        tries=tuple(map(_try, fields.each("tries"))),
        **fields.given(opening=TEXT, source=TEXT, moral=TEXT),
    )


def read_line(fields: YamlFields, named: StoryNames) -> StoryLine:
    """The narrator's keys of a step."""
    shown = tuple(_exhibit(one, named) for one in fields.each("show"))
    return StoryLine(show=shown, **fields.given(say=TEXT, note=TEXT))


def _reader(id: str, node: YamlNode, named: StoryNames) -> StoryReader:
    fields = node.fields(("title", "sees", "width"), ("title", "sees"))
    return StoryReader(_subscription(id, node, named), **fields.given(title=TEXT, sees=TEXT, width=INTEGER))


def _question(node: YamlNode, named: StoryNames) -> StoryQuestion:
    fields = node.fields(("text", "as", "event", "attribute"), ("text", "as", "event", "attribute"))
    return StoryQuestion(
        fields["text"].text(),
        _known(fields["as"], named.principals, "principal"),
        _known(fields["event"], named.events, "event"),
        fields["attribute"].text(),
    )


def _try(node: YamlNode) -> tuple[str, str]:
    fields = node.fields(("command", "what"), ("command", "what"))
    return fields["command"].text(), fields["what"].text()


def _exhibit(node: YamlNode, named: StoryNames) -> Exhibit:
    fields = node.fields(("title", "columns", *_EXHIBITS), ("title",))
    title, kinds = fields["title"].text(), [key for key in _EXHIBITS if key in fields]
    if len(kinds) != 1:
        node.refuse("one thing is shown under one title", f"write one of {', '.join(f'`{key}`' for key in _EXHIBITS)}")
    shown = fields[kinds[0]]
    match kinds[0]:
        case "chain":
            return ChainExhibit(title, _statements(shown, named))
        case "guests":
            return GuestsExhibit(title, _statements(shown, named))
        case "checks":
            columns = tuple(map(TEXT, fields.each("columns")))
            return ChecksExhibit(title, columns, tuple(_check(one, len(columns), named) for one in shown.sequence()))
        case _:
            if shown.flag() is not True:
                shown.refuse("the roles are shown or not", "write `roles: true`, or leave it out")
            return RolesExhibit(title)


def _check(node: YamlNode, columns: int, named: StoryNames) -> tuple[tuple[str, ...], Check]:
    fields = node.fields(("words", "broker", "server", "anchor", "provider", "type"), ("words",))
    words = tuple(one.text() for one in fields["words"].sequence())
    if len(words) != columns:
        fields["words"].refuse(f"{len(words)} words for {columns} `columns`")
    match sorted(fields.keys() - {"words"}):
        case ["broker"]:
            return words, BrokerCheck(_statements(fields["broker"], named))
        case ["type"]:
            return words, TypeCheck(_known(fields["type"], named.types, "type"))
        case keys if keys != ["anchor", "provider", "server"]:
            remedy = "write `broker`, `type`, or `server` with its `provider` and `anchor`"
            node.refuse("it does not say what is checked", remedy)
    server = _known(fields["server"], named.statements, "statement")
    anchor, provider = (_known(fields[key], named.principals, "principal") for key in ("anchor", "provider"))
    return words, ServerCheck(server, anchor, provider)


def _statements(node: YamlNode, named: StoryNames) -> tuple[str, ...]:
    return tuple(_known(one, named.statements, "statement") for one in node.sequence())


def _subscription(id: str, node: YamlNode, named: StoryNames) -> str:
    if id not in named.subscriptions:
        node.refuse(f"no subscription `{brief(id)}`", "its id is that of a `subscribe` step")
    return id


def _known(node: YamlNode, names: Collection[str], what: str) -> str:
    if node.text() not in names:
        node.refuse(f"no {what} `{brief(node.data)}` in the file")
    return node.text()
