"""Echoing another domain's events at home, under a type of one's own (OASIS 7.5.3: remote policy by proxy).

Guarantees: each event that the other domain delivers is published at home once, in the order of each stream, however
often the echo is killed and started again. Its position there is its id here, so that home knows it again while
its window (`publish.window`) lasts; which ones were on their way since when is in a journal before they are sent.
One that was under way for longer is in doubt, and stops the echo unless one says what to do. What the other domain
hides stays null. At most BATCH events are on their way.
Leaves out: who sees what. There, the echo's own rights and roles decide; at home, the policy on the type here.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from headgate.client.errors import Gap
from headgate.client.publishing import Result
from headgate.client.subscription import Delivery
from headgate.client.sync import Client, Subscription
from headgate.model.errors import BadDefinition, Damaged, HeadgateError, NotFound, StorageFull, TypeMismatch
from headgate.model.expressions import Constant, RoleRef, Variable
from headgate.model.values import Kind, brief, micros, moment, render_timestamp

BATCH: Final = 500  # events that are on their way at a time
MAX_PENDING: Final = 50_000
"""Events of a journal: those on their way when an echo was killed, a batch each time; the oldest are left out."""

MAX_JOURNAL_BYTES: Final = 8_000_000
TICK: Final = 0.5  # seconds between two looks at whether to stop
MARGIN: Final = timedelta(seconds=60)
"""How long before home's window ends an event counts as in doubt: sending may take that long."""

WINDOW: Final = timedelta(minutes=10)  # home's window, where nothing else is said
_FORMAT: Final = 1
_NEXT: Final = 0.0  # only what is here already

Doubt: TypeAlias = Literal["stop", "send", "skip"]
"""What to do with an event of which it is not known whether it was published: send it again, or not."""

ABOUT: Final = {"@publisher": Kind.STRING, "@time": Kind.TIMESTAMP, "@id": Kind.STRING, "@type": Kind.STRING}
"""What else of a delivery can be an attribute here."""


class InDoubt(HeadgateError):
    """It cannot be known whether an event was published: it was on its way for too long."""

    code = "in-doubt"


class EchoRefused(HeadgateError):
    """Home refuses an event that is to be echoed."""

    code = "echo-refused"


# -- what becomes what ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Translation:
    """The type at home, and from which attribute or `@` fact each of its attributes is taken."""

    type: str
    taken: Mapping[str, str]

    def __call__(self, delivery: Delivery) -> dict[str, Any]:
        """A delivery as its event at home has it; what is hidden or was not said is null."""
        known = {**delivery.data, **{name: getattr(delivery, name[1:]) for name in ABOUT}}
        values = {ours: known.get(theirs) for ours, theirs in self.taken.items()}
        return {name: value for name, value in values.items() if value is not None}


def translation(
    theirs: Mapping[str, Kind],
    type: str,
    ours: Mapping[str, Kind],
    renamed: Mapping[str, str] | None = None,
    dropped: Iterable[str] = (),
) -> Translation:
    """How one type becomes another: by name, but for those that are renamed (theirs to ours) or dropped."""
    known = {**theirs, **ABOUT}
    named, gone = dict(renamed or {}), set(dropped)
    for name in (*named, *gone):
        if name not in known:
            there = ", ".join(f"`{one}`" for one in known)
            raise BadDefinition(f"the type there has no attribute `{brief(name)}`", remedy=f"there are {there}")
    taken: dict[str, str] = {}
    for name in (*theirs, *(one for one in named if one in ABOUT)):
        if name in gone:
            continue
        own = named.get(name, name)
        if own not in ours:
            remedy = f"rename it (`{name}=...`) or drop it, or add it to the type"
            raise BadDefinition(f"`{brief(type)}` here has no attribute `{brief(own)}`", remedy=remedy)
        if own in taken:
            raise BadDefinition(f"`{taken[own]}` and `{brief(name)}` would both be `{brief(own)}`", remedy="drop one")
        if known[name] is not ours[own] and (known[name], ours[own]) != (Kind.INT, Kind.FLOAT):
            message = f"`{brief(name)}` is {known[name].value} there, and `{brief(own)}` is {ours[own].value} here"
            raise TypeMismatch(message, remedy="drop it, or give the type here an attribute of that kind")
        taken[own] = name
    return Translation(type, taken)


# -- the journal ----------------------------------------------------------------------------------------------


class Journal:
    """The events that are on their way, each with when it was first sent: in a file that survives everything."""

    def __init__(self, path: Path, of: str) -> None:
        self.path = path
        self._of = of
        self.pending: dict[str, datetime] = self._read()

    def begin(self, ids: Sequence[str], now: datetime) -> None:
        """These are sent next; durable when it returns."""
        for id in ids:
            self.pending.setdefault(id, now)
        for id in list(self.pending)[: len(self.pending) - MAX_PENDING]:
            del self.pending[id]
        self.save()

    def done(self, ids: Iterable[str]) -> None:
        """These will not come again; that is written down with the next."""
        for id in ids:
            self.pending.pop(id, None)

    def save(self) -> None:
        """Write it down: the old file or the new one, whole."""
        document = {"echo": _FORMAT, "of": self._of, "pending": {id: micros(at) for id, at in self.pending.items()}}
        beside = self.path.with_name(f"{self.path.name}.new")
        try:
            with beside.open("w", encoding="utf-8") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise StorageFull(f"the journal `{self.path}` cannot be written ({error.strerror})") from None

    def _read(self) -> dict[str, datetime]:
        try:
            with self.path.open("rb") as file:
                raw = file.read(MAX_JOURNAL_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise NotFound(f"the journal `{self.path}` cannot be read ({error.strerror})") from None
        try:
            document = json.loads(raw)
            if document["echo"] != _FORMAT or not isinstance(document["of"], str):
                raise ValueError("another format")  # noqa: TRY301 - as with all else that is no journal
            pending = {str(id): moment(int(at)) for id, at in document["pending"].items()}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
            remedy = "move it away, if no event may have been on its way when it was written"
            raise Damaged(f"`{self.path}` is not the journal of an echo", remedy=remedy) from None
        if document["of"] != self._of:
            raise BadDefinition(f"`{self.path}` is the journal of another echo, `{brief(document['of'])}`")
        return pending


# -- echoing --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """What became of the events so far."""

    echoed: int = 0
    before: int = 0  # had been published already, before the echo was killed
    refused: int = 0
    skipped: int = 0
    gaps: int = 0
    refusals: list[HeadgateError] = field(default_factory=list)  # the last batch's, at most


@dataclass(frozen=True, slots=True)
class Manner:
    """How an echo goes about it: home's window, and what is done with what is in doubt or refused."""

    window: timedelta = WINDOW
    doubt: Doubt = "stop"
    skip_refused: bool = False

    @property
    def safe(self) -> timedelta:
        """For how long an event may be sent again without becoming two."""
        return self.window - min(MARGIN, self.window / 2)


class Echo:
    """Reads a subscription at another domain and publishes what comes at home."""

    def __init__(
        self,
        subscription: Subscription,
        home: Client,
        translate: Translation,
        journal: Journal,
        *,
        source: str,
        clock: Callable[[], datetime],
        manner: Manner | None = None,
        report: Callable[[Tally], None] = lambda _: None,
    ) -> None:
        self.tally = Tally()
        self._subscription = subscription
        self._home = home
        self._translate = translate
        self._journal = journal
        self._source = source
        self._clock = clock
        self._manner = manner or Manner()
        self._told = report

    def run(self, stop: threading.Event, count: int | None = None) -> Tally:
        """Echo until it is stopped, or so many events were dealt with; what is under way is finished first."""
        left = count
        while not stop.is_set() and left != 0:
            batch = self._batch(BATCH if left is None else min(BATCH, left))
            if batch:
                self._send(batch)
                left = None if left is None else left - len(batch)
        self._journal.save()
        return self.tally

    def _batch(self, most: int) -> list[Delivery]:
        """What has come; waits a little for the first."""
        batch: list[Delivery] = []
        try:
            while len(batch) < most:
                delivery = self._subscription.next(TICK if not batch else _NEXT)
                if delivery is None:
                    break
                batch.append(delivery)
        except Gap as gap:
            self.tally.gaps += 1
            self.tally.refusals = [gap]
            self._told(self.tally)
        return batch

    def _send(self, batch: Sequence[Delivery]) -> None:
        """Publish a batch, then let the other domain forget it."""
        now = self._clock()
        sent = [one for one in batch if self._may_send(one, now)]
        self._journal.begin([one.position for one in sent], now)
        results = self._home.publish_many(
            {"type": self._translate.type, "data": self._translate(one), "id": one.position, "source": self._source}
            for one in sent
        )
        self._count(results)
        self._subscription.ack()
        self._journal.done(one.position for one in batch)
        self._told(self.tally)

    def _may_send(self, delivery: Delivery, now: datetime) -> bool:
        """Is an event new, or known again at home if it is not? If neither, as was said."""
        first = self._journal.pending.get(delivery.position)
        if first is None or now - first < self._manner.safe or self._manner.doubt == "send":
            return True
        if self._manner.doubt == "skip":
            self.tally.skipped += 1
            return False
        raise InDoubt(
            f"`{brief(delivery.id)}` was on its way since {render_timestamp(first)}, longer than home knows it again",
            remedy="look whether it is there, and choose to send or to skip what is in doubt",
        )

    def _count(self, results: Sequence[Result]) -> None:
        refused = [one.refusal for one in results if one.refusal is not None]
        self.tally.echoed += sum(one.status == "accepted" for one in results)
        self.tally.before += sum(one.status == "duplicate" for one in results)
        self.tally.refused += len(refused)
        self.tally.refusals = refused
        if refused and not self._manner.skip_refused:
            first = refused[0]
            raise EchoRefused(
                f"home refuses {len(refused)} of {len(results)} events; the first: {first.message} [{first.code}]",
                remedy=first.remedy or "give the echo the right to publish, or skip what is refused",
            )


# -- roles there ----------------------------------------------------------------------------------------------


def hold(client: Client, wanted: RoleRef) -> str:
    """The id of a membership of a role, with its service and constants for arguments; entered if it is not held."""
    if wanted.service is None:
        raise BadDefinition(f"`{brief(wanted.role)}` has no service", remedy="write `Service.Role('argument', _)`")
    instance = wanted.instance.value if isinstance(wanted.instance, Constant) else ""
    args = [one.value if isinstance(one, Constant) else None for one in wanted.args]
    if any(not isinstance(one, Constant | Variable) for one in wanted.args):
        raise BadDefinition(f"`@names` have no meaning in `{brief(wanted.role)}` here")
    role = (wanted.service, instance, wanted.role, "true")
    for held in client.roles.held():
        fits = all(other is None or other == mine for mine, other in zip(held.args, args, strict=False))
        if fits and (held.service, held.instance, held.role, held.state) == role:
            return held.id
    told = client.roles.enter(wanted.service, wanted.role, args or None, instance=str(instance))
    return told.memberships[0].id


def show_role(home: Client, there: Client, wanted: RoleRef) -> None:
    """Let a role that one holds at home count in the other domain, by its certificate."""
    id = hold(home, wanted)
    assert wanted.service is not None, "one without a service is not held"
    renewed = home.roles.renew(wanted.service, id=id)
    if renewed.certificate is None:
        raise BadDefinition(f"there is no certificate for `{brief(wanted.role)}`", remedy="give the principal a key")
    there.roles.present(renewed.certificate)


def kinds(client: Client, type: str) -> dict[str, Kind]:
    """The attributes of a type."""
    return {name: Kind(kind) for name, kind in client.type(type).attributes.items()}


def identity(there: Client, subscription: str) -> str:
    """What an echo is of: the other domain and the subscription there."""
    return f"{there.broker}#{subscription}"
