"""Plays a story on the real pipeline: a domain in a directory, its streaming query, and a reader of its deliveries.

Guarantees: nothing is acted. Steps are taken by the code that takes those of every scenario; statements are signed and
verified; events go through the gateway into the log, Spark decides them, and what the table shows is read back from
the delivery store. Where something is detected, Spark's detection query detects it, and what detections publish is
published as on a node. What a story says is refused has been tried and refused; a story that goes otherwise is stopped.
The gateway, the pipeline and the table each open the domain for themselves, as separate processes would.

Statements go through the same door as at a gateway: signatures first, then chains and providers, then one batch of the
ledger, or a refusal and nothing. What a scenario file declares is really signed, by the key of whoever it names as
its issuer; what it declares to be forged is signed by a key that nobody knows. Private keys never leave the directory
of their organisation; all that passes from one to another is files.

In the table an event is shown as waiting until the pipeline has decided it, and only what was delivered as received.
The columns keep their widths from the first event to the last; at 80 characters every event is one line.
Leaves out: proving that whoever shows a statement holds its key, which is the handshake's part.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headgate.cli.shared.common import Stopped
from headgate.cli.stories import file_of
from headgate.cli.stories.place_map import PlaceMap
from headgate.commands.delivery.local import read_deliveries
from headgate.commands.event_types import SignedTypes
from headgate.decide.composite import Signal
from headgate.decide.publish import type_check
from headgate.lang.render import render_condition
from headgate.ledger import StartingPoint
from headgate.model.authority import Certificate, Identity, NetworkAuthority, RevocationList, Validity
from headgate.model.changes import Batch
from headgate.model.errors import EngineFailed, HeadgateError
from headgate.model.events import Draft, Event
from headgate.model.rights import Action
from headgate.model.types import EventType
from headgate.model.values import EPOCH, Value, plain
from headgate.node.domain import Domain
from headgate.pipeline.deliveries import Delivered
from headgate.pipeline.spark.jobs import Pipeline
from headgate.pipeline.spark.session import describe
from headgate.scenario.engines.node_engine.story_keys import StoryKeys
from headgate.scenario.engines.play import DerivedOutcome, Got, ScenarioOutcome, take_step
from headgate.scenario.engines.spark_engine import DomainStage
from headgate.scenario.format import story
from headgate.scenario.format.file import load
from headgate.scenario.format.narration import Exhibit, Narration, ShownCheck, StoryLine
from headgate.scenario.format.story import PublishStep, Scenario
from headgate.trust.certificates import CERTIFICATE, REVOCATIONS
from headgate.trust.identities import cross_domain, verify_server
from headgate.trust.keyring import Keyring
from headgate.trust.keys import PrivateKey
from headgate.trust.presented import check_broker
from headgate.trust.typedefs import issue_type, verify_type

COLD: Final = "The first event is stored, with its place and version. Spark is warming up to decide it."

HIDDEN = "▒▒"
NOTHING = "-"
WAITING = "…"
KEY = f"{HIDDEN} hidden from this reader   {NOTHING} not sent to this reader"

TICK: Final = 0.1
"""Seconds between two looks at what has been delivered."""

_VOUCHED: Final = timedelta(hours=1)
"""How long a provider vouches for another."""

Show: TypeAlias = Callable[["Board", str], None]
"""Shows the table, with a sentence about what is going on."""


def _show_nothing(board: Board, say: str) -> None:
    """For when nobody watches."""


class NotAsTold(HeadgateError):
    """Something happened that the story says is refused, or is refused otherwise."""

    code = "not-as-told"


class StoryWorld(DomainStage):
    """A domain that is kept: the world of a story, in which statements are signed if its scenario has signers."""

    def __init__(self, directory: Path, scenario: Scenario, signers: Organisations | None) -> None:
        first = scenario.steps[0]
        super().__init__(scenario, directory, first.to if isinstance(first, story.AdvanceStep) else EPOCH)
        self._signers = signers

    def begin(self, policy: Batch) -> None:
        """Put the first batch in force, with the keys of the organisations."""
        super().begin(policy if self._signers is None else self._signers.keys.policy())

    def wrong(self, claim: story.Claim, at: datetime) -> str | None:
        """What is wrong about a claim; signed statements are known by their issuer's key."""
        if self._signers is not None and isinstance(claim, story.StateClaim) and claim.statement is not None:
            claim = replace(claim, statement=self._signers.keys.statement_key(claim.id))
        return super().wrong(claim, at)

    def declare(self, new: EventType) -> None:
        """A type is declared, by the definition that its owner has signed."""
        if self._signers is None:
            super().declare(new)
        else:
            text = self._signers.define(new, self._scenario, self.now)
            SignedTypes(self.authority, self.register).declare(new.name, text)

    def hear(self, revocations: RevocationList) -> None:
        """An issuer's revocation list comes, as it has signed it."""
        if self._signers is not None:
            revocations = REVOCATIONS.verify(self._signers.revoke(revocations), now=self.now)
        super().hear(revocations)

    def connect(self, step: story.ConnectStep) -> None:
        """The holder of a key shows signed statements, and is let in with them."""
        if self._signers is None:
            super().connect(step)
        else:
            shown = self.authority.opened([self._signers.texts[id] for id in step.shown])
            self.authority.take_up(self._signers.keys.did(step.principal), shown)

    def deliveries(self) -> dict[str, list[Got]]:
        """They are read from the store as they come."""
        raise NotImplementedError

    def signals(self) -> dict[str, list[Signal]]:
        """Likewise."""
        raise NotImplementedError

    def derive(self, enough: int | None = None) -> list[DerivedOutcome]:  # noqa: ARG002 - the query runs beside it
        """Publish and add what was signalled by now."""
        return [] if self.detections is None else self.detections.derive()


def looking(look: Callable[[], None], is_over: Callable[[], bool]) -> Iterator[None]:
    """Look again and again until something is over, and then once more: at what came between looking and asking."""
    look()
    while not is_over():
        yield
        look()
    look()


class Stage:
    """One performance of a story. What comes before its first `say` has happened when the stage is there."""

    def __init__(self, name: str, directory: Path, stop: threading.Event) -> None:
        self.name = name
        self._stop = stop
        self._files = ExitStack()
        scenario = load(file_of(name))
        assert scenario.narration is not None, "every story has a narrator"
        self.narration = scenario.narration
        self.signers = Organisations(directory, self.narration, scenario) if self.narration.organisations else None
        self.scenario = scenario
        self.place = directory / self.narration.domain
        self.world = self._files.enter_context(closing(StoryWorld(self.place, scenario, self.signers)))
        if self.signers is not None:
            self.signers.sign(scenario, self.world.now)
        self.board = Board(self.narration, scenario)
        self.exhibits: list[tuple[Exhibit, int]] = []
        """What is to be shown, each with the version it is of."""
        self._outcome = ScenarioOutcome(notes=list(scenario.notes))
        self.world.begin(scenario.policy)
        self._detects = any(isinstance(step, story.DetectStep) for step in scenario.steps)
        self._begins = next((n for n, line in enumerate(scenario.lines) if line.say), 0)
        for number in range(self._begins):
            self.take(number)
        self._seen = self._files.enter_context(Domain.open(self.place))
        self._node = self._files.enter_context(Domain.open(self.place))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    @property
    def scenes(self) -> range:
        """The numbers of the steps that are to be watched."""
        return range(self._begins, len(self.scenario.steps))

    def play(self, session: Any, show: Show = _show_nothing, pace: float = 0.0) -> None:
        """Take the steps while the streaming query runs; `pace` is the seconds between events."""
        say, last, cold = "", None, True  # the first decision of a cold Spark takes some seconds
        queries = [self.pipeline(session).start()]
        if self._detects:
            queries.append(self._node.detecting(session).start())

        def watch(until: Event | float, say: str) -> None:
            """Show what arrives, until an event and all before it are decided, or a time has come."""

            def look() -> None:
                self._look()
                show(self.board, say)

            def is_over() -> bool:
                return self._is_decided() if isinstance(until, Event) else time.monotonic() >= until

            for _ in looking(look, is_over):
                if (ended := next((one for one in queries if not one.isActive), None)) is not None:
                    failure = describe(ended.exception() or RuntimeError("it gives no reason"))
                    raise EngineFailed(f"the streaming query stopped: {failure.cause}", trace=failure.trace)
                if self._stop.wait(TICK):
                    raise Stopped

        try:
            for number in self.scenes:
                if self.scenario.lines[number].say:
                    if last is not None:
                        watch(last, say)
                    say = self.scenario.lines[number].say
                event = self.take(number)
                if event is None:
                    continue
                last = event
                if cold:
                    watch(event, COLD)
                    cold = False
                watch(time.monotonic() + pace, say)  # as long as the eye needs
            if last is not None:
                watch(last, say)
        finally:
            for query in queries:
                query.stop()

    def _is_decided(self) -> bool:
        """Is every event decided, and all published that comes of signals? Streams are decided side by side."""
        detections = self.world.detections
        settled = detections is None or detections.is_settled()
        return settled and all(map(self.board.decided, self.world.events))

    def _look(self) -> None:
        self.derive()
        signals = {} if self.world.detections is None else self.world.detections.signals()
        self.look(self._seen.store.reached().streams, read_deliveries(self._seen), signals)

    def derive(self) -> None:
        """Publish what was signalled, and put it on the board."""
        new = [one.event for one in self.world.derive() if one.event is not None]
        self.world.events += new
        self._put(new)

    def look(
        self,
        reached: Mapping[str, int],
        deliveries: Sequence[tuple[str, Delivered]],
        signals: Mapping[str, Sequence[Signal]],
    ) -> None:
        """The pipeline has decided this far, and delivered and signalled this: show it."""
        self.board.decide(reached, deliveries)
        if self.board.map is not None:
            self.board.map.tell(signals)

    def take(self, number: int) -> Event | None:
        """Take one step, and put it on the board: the event, if it publishes one."""
        step, line = self.scenario.steps[number], self.scenario.lines[number]
        before, published = self.world.domain.ledger.version, len(self.world.events)
        self.world.domain.note = line.note
        refusal = take_step(step, self.world, self.scenario, self._outcome)
        if self._outcome.complaints:
            raise NotAsTold(self._outcome.complaints[0])
        version = self.world.domain.ledger.version
        self.exhibits += [(exhibit, version) for exhibit in line.show]
        if number not in self.scenes:
            return None
        if line.note and refusal is not None:
            self.board.rows.append(Refusal(line.note, refusal))
        elif line.note and version > before:
            points = self.world.domain.ledger.starting_points(version=version)
            self.board.rows += [(point, line.note) for point in points]
        accepted = self.world.events[published:]
        self._put(accepted)
        return accepted[-1] if accepted else None

    def _put(self, events: Sequence[Event]) -> None:
        """Put accepted events on the board."""
        self.board.rows += events
        if self.board.map is not None:
            for event in events:
                self.board.map.see(event, event.occurred, self.world.state())

    def called(self, text: str) -> str:
        """A text with the names that keys have in the story."""
        for key, name in (self.signers.names if self.signers is not None else {}).items():
            text = text.replace(key, name)
        return text

    def pipeline(self, session: Any) -> Pipeline:
        """The pipeline of the domain, for looking into it afterwards."""
        return self._node.pipeline(session)

    def event(self, id: str) -> Event:
        """An event of the story."""
        return next(event for event in self.world.events if event.id == id)

    def lines(self) -> Iterator[StoryLine]:
        """What the narrator says of the steps that are watched."""
        return (self.scenario.lines[number] for number in self.scenes)


class Organisations:
    """Whoever signs something in a story; a signer that is of no organisation keeps its key to itself."""

    def __init__(self, directory: Path, narration: Narration, scenario: Scenario) -> None:
        self._directory = directory
        self._domain = narration.domain
        self._organisation: dict[str, str] = {}
        own: dict[str, PrivateKey] = {}
        for organisation, members in narration.organisations.items():
            keyring = Keyring(directory / organisation / "keys")
            (directory / organisation / "statements").mkdir(parents=True)
            for name in members:
                keyring.new(name)
                own[name] = keyring.load(name)
                self._organisation[name] = organisation
        for statement in scenario.statements.values():
            own.setdefault(statement.issuer, PrivateKey.generate())
        self.keys = StoryKeys(scenario, own)
        self.names = {key.public.did: name for name, key in own.items()}
        self.texts: dict[str, str] = {}

    def sign(self, scenario: Scenario, now: datetime) -> None:
        """Sign every statement of the file, in order, and hand it to whoever it is about.

        A guest's statement is made of the one from home, which goes to the host's provider first.
        """
        for id, statement in scenario.statements.items():
            self.texts[id] = self.keys.shown(id, now)
            if id not in scenario.forged:
                if isinstance(statement, Identity) and statement.origin is not None:
                    self._keep(statement.origin, self.texts[statement.origin], statement.issuer)
                self._keep(id, self.texts[id], statement.issuer, statement.subject)

    def define(self, type: EventType, scenario: Scenario, now: datetime) -> str:
        """The definition of a type as its owner signs it, with what lets the owner install it."""
        owner = self.keys.key(type.owner)
        credentials = [self.texts[id] for id, one in scenario.statements.items() if _installs(one, type.owner)]
        text = issue_type(owner, name=type.name, attributes=type.attributes, now=now, credentials=credentials)
        self.texts[type.name] = text
        self._keep(type.name.rpartition(".")[2].lower(), text, type.owner, shown=True)
        return text

    def revoke(self, revocations: RevocationList) -> str:
        """A revocation list as its issuer signs it."""
        text = self.keys.signed_list(revocations)
        self._keep(f"revoked-by-{revocations.issuer}", text, revocations.issuer, shown=True)
        return text

    def chain(self, ids: Sequence[str], now: datetime) -> tuple[Certificate, ...]:
        """These certificates, verified."""
        return tuple(CERTIFICATE.verify(self.texts[id], audience=None, now=now) for id in ids)

    def check(self, check: ShownCheck, coordinator: str, now: datetime) -> None:
        """Verify something as one of the story does, or say why it does not hold."""
        if check.type:
            verify_type(self.texts[check.type], coordinator=coordinator, now=now)
        elif check.broker:
            broker = self.chain(check.broker, now)[-1].subject
            check_broker([self.texts[id] for id in check.broker], broker=broker, coordinator=coordinator, now=now)
        else:
            key, anchor, server = self.keys.key(check.anchor), check.anchor, self.texts[check.server]
            other = self.keys.did(check.provider)
            text = cross_domain(key, other=other, validity=Validity(now, now + _VOUCHED), now=now)
            self._keep(f"{check.provider}-is-a-provider", text, anchor)
            self._keep(check.server, server, anchor)
            verify_server(server, text, anchor=key.public.did, audience=None, now=now)

    def _keep(self, file: str, text: str, *holders: str, shown: bool = False) -> None:
        """Put a statement among those that its holders have; what is `shown` to the domain is there, too."""
        keepers = {self._organisation[name] for name in holders if name in self._organisation}
        for organisation in keepers | ({self._domain} if shown else set()):
            path = self._directory / organisation / "statements" / f"{file}.jwt"
            path.write_text(f"{text}\n", encoding="ascii")


def _installs(statement: Certificate | Identity, owner: str) -> bool:
    """Does it let the owner of a type install it?"""
    return (
        isinstance(statement, Certificate)
        and statement.subject == owner
        and any(isinstance(one, NetworkAuthority) and Action.INSTALL in one.actions for one in statement.authority)
    )


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that was tried, and the refusal."""

    say: str
    error: HeadgateError


@dataclass
class Board:
    """The state of the table."""

    narration: Narration
    scenario: Scenario
    rows: list[Event | Refusal | tuple[StartingPoint, str]] = field(default_factory=list)
    received: dict[tuple[str, int, str], Mapping[str, Value]] = field(default_factory=dict)
    reached: Mapping[str, int] = field(default_factory=dict)
    map: PlaceMap | None = None
    _spinner: Spinner = field(default_factory=lambda: Spinner("dots", style="cyan"))

    def __post_init__(self) -> None:
        if self.narration.map is not None:
            self.map = PlaceMap(self.narration, self.narration.map)

    def decide(self, reached: Mapping[str, int], deliveries: Iterable[tuple[str, Delivered]]) -> None:
        """The pipeline has decided this far, and delivered this."""
        self.received = {(d.stream, d.seq, subscription): d.view for subscription, d in deliveries}
        self.reached = reached

    def decided(self, event: Event) -> bool:
        """Has the pipeline decided the event?"""
        return self.reached.get(event.stream, 0) >= event.seq

    # -- showing ----------------------------------------------------------------------------------------------

    def render_live(self, width: int, say: str) -> RenderableType:
        """What moves on a terminal: the map, if there is one, or else the table."""
        if self.map is None:
            return self.render(width, say)
        self._spinner.update(text=Text(say))
        return Group(self.map.render(width, self.received, all_told=False), Text(), self._spinner)

    def render(self, width: int, say: str = "") -> RenderableType:
        """The table so far; with something to say, as a line under it that moves."""
        widths = self._widths(width)
        parts: list[RenderableType] = []
        table = self._table(widths, header=True)
        for row in self.rows:
            if isinstance(row, Event):
                cells = (self._cell(row, reader.subscription) for reader in self.narration.readers)
                sent = self._sent.get(row.id) or self._line(row.values)  # what a detection publishes nobody sends
                table.add_row(Text(str(row.seq), "dim"), Text(sent), *cells)
                continue
            if isinstance(row, Refusal):
                parts += [table, Text(f"xx {row.say}: refused [{row.error.code}]", "bold red")]
            else:
                point, note = row
                line = f"== stream {point.stream}, seq {point.seq}: version {point.version} starts, {note} "
                line = line.ljust(sum(widths), "=") if len(line) < sum(widths) else line.rstrip()
                parts += [table, Text(line, "bold yellow")]
            table = self._table(widths)
        parts += [table, Text(f"{KEY}   {WAITING} being decided" if say else KEY, "dim")]
        if say:
            self._spinner.update(text=Text(say))
            parts.append(self._spinner)
        return Group(*parts)

    def _table(self, widths: tuple[int, ...], *, header: bool = False) -> Table:
        table = Table(box=None, padding=0, pad_edge=False, show_header=header, header_style="bold", width=sum(widths))
        titles = ("", self.narration.source, *(reader.title for reader in self.narration.readers))
        for title, width in zip(titles, widths, strict=True):
            table.add_column(title, width=width, overflow="fold")
        return table

    def _widths(self, width: int) -> tuple[int, ...]:
        """The widest thing each column may come to hold, and a gap as wide as there is room for."""
        whole = max(map(len, self._sent.values()))
        masked = max(
            sum(max(len(show(value)), len(HIDDEN)) + 1 for value in self._values(draft).values() if value is not None)
            for draft in self._drafts
        )
        content = [len(str(len(self._drafts))), max(whole, len(self.narration.source))]
        content += [max(len(reader.title), reader.width or masked - 1) for reader in self.narration.readers]
        gap = min(3, max(1, (width - sum(content)) // (len(content) - 1)))
        room = width - content[0] - gap * (len(content) - 1)
        if (wanted := sum(content[1:])) > room:  # a narrow screen: cells fold
            content[1:] = [max(8, one * room // wanted) for one in content[1:]]
        return (*(one + gap for one in content[:-1]), content[-1])

    @cached_property
    def _drafts(self) -> list[Draft]:
        """The events that are sent, first to last."""
        return [step.sent() for step in self.scenario.steps if isinstance(step, PublishStep)]

    @cached_property
    def _sent(self) -> dict[str, str]:
        """Each event as its publisher sent it, and what it requires."""
        return {draft.id: self._words(draft) for draft in self._drafts}

    def _words(self, draft: Draft) -> str:
        words = self._line(self._values(draft))
        return words if draft.requires is None else f"{words}  {render_condition(draft.requires)}"

    def _line(self, values: Mapping[str, Value]) -> str:
        return " ".join(show(value) for value in values.values() if value is not None)

    def _values(self, draft: Draft) -> Mapping[str, Value]:
        return type_check(draft, self.scenario.types.attributes(draft.type))

    def _cell(self, event: Event, subscription: str) -> Text:
        view = self.received.get((event.stream, event.seq, subscription))
        if view is None:
            return Text(NOTHING if self.decided(event) else WAITING, "dim")
        seen = [
            (HIDDEN, "dim") if view[name] is None else (show(view[name]), "green")
            for name, value in event.values.items()
            if value is not None
        ]
        return Text(" ").join(Text(word, style) for word, style in seen)


def show(value: Value) -> str:
    """A value as the table shows it: of a time, the hour and minute."""
    return f"{value:%H:%M}" if isinstance(value, datetime) else str(plain(value))
