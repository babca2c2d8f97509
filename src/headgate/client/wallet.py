"""What a client shows of itself: statements that it was given, and short ones that are fetched anew before they end.

Guarantees: every statement is of a good form and signature before it is shown. What has ended is left out, as long as
anything else is left. Fetched statements are renewed well before their end, at a moment with a random part, and after a
failure again and again with growing pauses; what was fetched before is shown until then. Certificates about roles are
kept beside them, and shown only where a role is asked for.
Leaves out: where they are fetched (`sources`), and what a gateway makes of them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from headgate.client.gateways import GatewayLink, Timing, Trouble
from headgate.model.errors import BadStatement, HeadgateError, NotFound, TooLarge
from headgate.model.limits import MAX_HELD, MAX_LIST_BYTES
from headgate.trust.certificates import CERTIFICATE
from headgate.trust.identities import CROSSING, IDENTITY
from headgate.trust.presented import MAX_SHOWN
from headgate.trust.statements import Read, said_kind

Fetch = Callable[[GatewayLink], Awaitable[Sequence[str]]]  # gets statements anew; the gateway is the one in use
RENEW_AT: Final = 0.6  # the part of a statement's life after which it is fetched again
JITTER: Final = 0.2  # how much of that may be cut by chance, so that many clients do not come together
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 60.0  # seconds between two tries to fetch
SHORTEST: Final = 0.2  # seconds between two fetches of a source, whatever it gives
_LONGEST_WAIT: Final = timedelta(hours=1).total_seconds()
_MAX_DOUBLINGS: Final = 20


@dataclass(frozen=True, slots=True)
class HeldStatement:
    """A statement, and when it begins and ends, where it does."""

    text: str
    issued: datetime | None = None
    until: datetime | None = None

    @property
    def life(self) -> float:
        """Seconds from its issue to its end; both are written in whole ones."""
        if self.issued is None or self.until is None:
            return math.inf
        return max((self.until - self.issued).total_seconds() - 1.0, SHORTEST)


def held(text: str) -> HeldStatement:
    """A statement that may be shown; refused if it is none."""
    kind = said_kind(text)
    if kind == CERTIFICATE.typ:
        return _held(text, CERTIFICATE.read(text))
    if kind == IDENTITY.typ:
        try:
            return _held(text, IDENTITY.read(text))
        except BadStatement as error:
            with suppress(BadStatement):
                return _held(text, CROSSING.read(text))
            raise error from None
    return HeldStatement(text)  # lists and successions have no end of their own


def _held(text: str, read: Read[Any]) -> HeldStatement:
    return HeldStatement(text, read.issued, read.validity.until)


def texts_in(path: Path) -> list[str]:
    """The statements of a file, one a line."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LIST_BYTES + 1)
    except OSError as error:
        raise NotFound(f"the statements in `{path}` cannot be read ({error.strerror})") from None
    if len(data) > MAX_LIST_BYTES:
        raise TooLarge(f"`{path}` is longer than MAX_LIST_BYTES ({MAX_LIST_BYTES})", remedy="show fewer statements")
    texts = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    for text in texts:
        try:
            held(text)
        except HeadgateError as error:
            raise error.at(str(path)) from None
    return texts


@dataclass(frozen=True, slots=True)
class RoleHeld:
    """A certificate about memberships at a service, by their ids."""

    service: str
    ids: tuple[str, ...]
    text: str
    until: datetime


@dataclass(slots=True)
class StatementSource:
    """Where statements are fetched, what was fetched last, and when that is to be done again."""

    fetch: Fetch
    early: bool
    held: list[HeldStatement] = field(default_factory=list)
    due: float = -math.inf


class Wallet:
    """All that a client shows."""

    def __init__(self, given: Sequence[str], timing: Timing) -> None:
        self._timing = timing
        self._given: dict[str, HeldStatement] = {}
        self.sources: list[StatementSource] = []
        self.roles: dict[tuple[str, ...], RoleHeld] = {}
        """Certificates about roles, by the memberships that they embody."""
        self._roles_due: dict[tuple[str, ...], float] = {}
        self._embodied: dict[str, RoleHeld] = {}  # the certificate that embodies a membership
        self.add(given)

    def __bool__(self) -> bool:
        return bool(self._given or self.sources)

    def add(self, texts: Sequence[str]) -> None:
        """Show these too from now on."""
        statements = {text: held(text) for text in texts}
        if len(self._given.keys() | statements.keys()) > MAX_SHOWN:
            raise TooLarge(f"more statements than MAX_SHOWN ({MAX_SHOWN}) are to be shown", remedy="show fewer")
        self._given |= statements

    def add_source(self, fetch: Fetch, *, early: bool) -> None:
        """Fetch statements, and fetch them again; `early` where no session is needed for it."""
        self.sources.append(StatementSource(fetch, early))

    def shown(self, now: datetime) -> list[str]:
        """What is to be shown at a time."""
        every = [*self._given.values(), *(one for source in self.sources for one in source.held)]
        standing = [one.text for one in every if one.until is None or one.until > now]
        return list(dict.fromkeys(standing or [one.text for one in every]))

    def wait(self) -> float:
        """Seconds until something is to be fetched again."""
        return min((one.due for one in self.sources), default=math.inf) - self._timing.clock()

    def spoil(self) -> None:
        """Fetch everything anew the next time: what there is was not enough."""
        for one in self.sources:
            one.due = -math.inf

    async def fetch(self, gateway: GatewayLink, *, early: bool) -> bool:
        """Fetch what is due; with `early` only what needs no session. True if anything came."""
        now = self._timing.clock()
        due = [one for one in self.sources if one.due <= now and (one.early or not early)]
        for source in due:
            try:
                statements = [held(text) for text in await source.fetch(gateway)]
            except (HeadgateError, Trouble):
                # What was fetched before may still do; without anything there is nothing to go on with.
                if not (early and source.held):
                    raise
                continue
            source.held = statements
            source.due = now + self._fresh_for(min((each.life for each in statements), default=math.inf))
        return bool(due)

    async def refresh(self, gateway: GatewayLink, show: Callable[[], Awaitable[object]], again: bool = False) -> None:
        """Fetch what is due, and show it, or show `again` what was fetched before."""
        if await self.fetch(gateway, early=False) or again:
            await show()

    def _fresh_for(self, life: float) -> float:
        """Seconds after which something that lives so long is fetched again."""
        return max(life * RENEW_AT * (1 - JITTER * self._timing.dice()), SHORTEST)

    # -- certificates about roles -----------------------------------------------------------------------------

    def keep_role(self, new: RoleHeld, life: float) -> None:
        """Keep a certificate that lives so many seconds from now, in place of older ones of the same memberships."""
        for id in new.ids:
            if id in self._embodied:
                self.forget_role(self._embodied[id])
        if len(self.roles) >= MAX_HELD:
            self.forget_role(next(iter(self.roles.values())))
        self.roles[new.ids] = new
        self._embodied.update(dict.fromkeys(new.ids, new))
        self._roles_due[new.ids] = self._timing.clock() + self._fresh_for(life)

    def forget_role(self, role: RoleHeld) -> None:
        """Keep a certificate no longer."""
        if self.roles.pop(role.ids, None) is not None:
            del self._roles_due[role.ids]
            for id in role.ids:
                self._embodied.pop(id, None)

    def drop_role(self, id: str) -> None:
        """Keep nothing that is about this membership alone; what is about others as well is renewed without it."""
        held = self._embodied.get(id)
        if held is None:
            return
        if len(held.ids) == 1:
            self.forget_role(held)
        else:
            self._roles_due[held.ids] = -math.inf

    def wait_for_roles(self) -> float:
        """Seconds until a certificate about roles is to be renewed."""
        return min(self._roles_due.values(), default=math.inf) - self._timing.clock()

    def due_roles(self) -> list[RoleHeld]:
        """The certificates about roles that are to be renewed now."""
        now = self._timing.clock()
        return [self.roles[ids] for ids, due in self._roles_due.items() if due <= now]


class Renewal:
    """The task that renews what is due, and after a failure again and again with growing pauses."""

    def __init__(
        self, wait: Callable[[], float], renew: Callable[[bool], Awaitable[object]], timing: Timing, least: float = 0.0
    ) -> None:
        self._wait = wait  # seconds until something is due
        self._renew = renew  # is told whether it has failed before
        self._timing = timing
        self._least = least  # seconds between two renewals
        self._changed = asyncio.Event()
        self._trouble: HeadgateError | Trouble | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> BaseException | None:
        """Why it failed the last time; None if it did not."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            return self._task.exception()  # what nobody foresaw, which ended it
        return self._trouble

    def wake(self) -> None:
        """There is something to renew, or something else than before: begin, or look again when that is due."""
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Renew nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _work(self) -> None:
        failures = 0
        while True:
            self._changed.clear()
            await self._pause(failures)
            try:
                await self._renew(failures > 0)
            except (HeadgateError, Trouble) as error:
                self._trouble = error
                failures += 1
            else:
                self._trouble = None
                failures = 0

    async def _pause(self, failures: int) -> None:
        """Sleep until something is due; without failures, no longer than until there is something else to renew."""
        if failures:
            longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, _MAX_DOUBLINGS))
            await self._timing.sleep(longest * (0.5 + self._timing.dice() / 2))
            return
        due = min(max(self._wait(), self._least), _LONGEST_WAIT)
        tasks = [asyncio.ensure_future(self._timing.sleep(due)), asyncio.ensure_future(self._changed.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
