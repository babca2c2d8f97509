"""Event policy: what fifty entries cost beside the same run with one plain rule, and beside asking pair by pair."""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.matching import Job
from benchmarks.measure import console, report, report_ratio, seconds, side_by_side
from benchmarks.workload import ATTRIBUTES, World, type_name
from headgate.decide.event_policy import settle_policy
from headgate.decide.rolebook import holders
from headgate.decide.views import view
from headgate.lang.rolefile import parse_event_policy, parse_representative
from headgate.model.events import Event
from headgate.model.expressions import TRUE, Apply, Argument, Constant, Related, Variable
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.roles import Membership, RoleBook
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import Catalog, EventType
from headgate.model.values import Kind
from headgate.pipeline.event_policy.compiled import Evaluator, facts_for
from headgate.pipeline.log.codec import from_blob, packed, places, to_blob

EVENTS = 200_000
SUBSCRIBERS = 10_000
SEEN_USERS = 2_000
"""Users whose badges are seen; every subscriber is a user of its own."""
DEPARTMENTS, ROOMS = 10, 100
SAMPLE = 10_000
"""Pairs that are asked one by one."""
CHECKED = 50
"""Of them, those for which the answer is compared with that of `decide`."""

FIRST = """
Seen(u, r) <= Login.LoggedOn(u, h)
Seen('u1', r) <= Login.LoggedOn('u2', h)
Seen('u1', r) <= Login.LoggedOn(p, h) : p in staff
-Seen('u1', r) <= Login.LoggedOn(p, h) : p in student
Seen(u, r) <= Login.LoggedOn(s, h) : Supervisor(u, s)
"""
DEPARTMENT = """
-Seen(u, r) <= Login.LoggedOn(p, h) : u in dept{d} and Private(r, 'dept{d}') and not p in dept{d}
Seen(u, r) <= Login.LoggedOn(p, h) : u in dept{d} and p in dept{d}
Seen(u, r) <= Login.LoggedOn(p, h) : u in student and p in dept{d} and Teaches(p, u)
Seen(u, r) <= Login.LoggedOn(p, h) : u in dept{d} and u in staff and p in student and Office(u, r)
"""
LAST = """
Seen(u, r) <= : u in student and Public(r)
Seen(u, r) <= : u in staff and (Public(r) or Office(u, r))
-Seen(u, r) <= Login.LoggedOn(p, h) : u in student and p in student and not Public(r)
Seen(u, r) <= Login.LoggedOn(p, h) : u in staff and p in staff
Seen(u, r) <= Login.LoggedOn(p, h) : p in staff or r != 'room7'
"""
POLICY = FIRST + "".join(DEPARTMENT.format(d=d) for d in range(DEPARTMENTS)) + LAST


@dataclass
class Badges(World):
    """Sightings of badges, for subscribers that are all logged on; with an event policy, or a rule for everyone."""

    policy: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        seen = EventType(type_name(0), "owner", {"badge": Kind.STRING, "room": Kind.STRING, **ATTRIBUTES})
        rng = random.Random(self.seed)
        everyone = [f"u{n}" for n in range(self.subscriptions_wanted)]
        some = everyone[:SEEN_USERS]
        dept = {f"dept{d}": frozenset(everyone[d::DEPARTMENTS]) for d in range(DEPARTMENTS)}
        groups = {**dept, "staff": frozenset(everyone[::3]), "student": frozenset(everyone[1::3])}
        pairs = {name: frozenset(zip(some, rng.choices(everyone, k=len(some)), strict=True)) for name in "ab"}
        rooms = [f"room{n}" for n in range(ROOMS)]
        relations: dict[str, frozenset[Any]] = {
            "Badge": frozenset((f"b{n}", user) for n, user in enumerate(some)),
            "Supervisor": pairs["a"],
            "Teaches": frozenset((b, a) for a, b in pairs["b"]),
            "Office": frozenset((user, rooms[n % ROOMS]) for n, user in enumerate(some)),
            "Private": frozenset((room, f"dept{n % DEPARTMENTS}") for n, room in enumerate(rooms[:40])),
            "Public": frozenset((room,) for room in rooms[50:]),
        }
        principals = {"owner": {}, **{f"p{n}": {} for n in range(self.subscriptions_wanted)}}
        publish = Rule("publish", "owner", frozenset({Action.PUBLISH}), "bench.*", author=ADMINISTRATOR)
        catalog = Catalog().declare(seen)
        self._state = State(self.version, ADMINISTRATOR, catalog, (publish,), principals, groups, relations)
        if self.policy:
            self._state = replace(self._state, roles=self._book())
        else:
            see = Rule("see", "all", frozenset({Action.SUBSCRIBE}), "bench.*", TRUE, author=ADMINISTRATOR)
            self._state = replace(self._state, rules=(publish, see), groups={**groups, "all": frozenset(principals)})

    def _book(self) -> RoleBook:
        memberships = {
            f"m{n}": Membership(f"m{n}", "Login", "LoggedOn", (f"u{n}", f"h{n % 50}"), f"p{n}", n)
            for n in range(self.subscriptions_wanted)
        }
        seen = parse_representative(type_name(0), {"user": "Badge(badge)"})
        book = RoleBook(memberships=memberships, representatives={seen.type: seen}, held=holders(memberships))
        text = POLICY.replace("Seen(", "T000(")
        return replace(book, policy=settle_policy(replace(self._state, roles=book), parse_event_policy(text)))

    def _subscriptions(self) -> Iterator[Subscription]:
        for number, one in enumerate(super()._subscriptions()):
            yield replace(one, principal=f"p{number}")

    def appends(self, events: int, size: int = 1000, *, seed: int = 11) -> Iterator[bytes]:
        """Events as appends of `size`, badges and rooms by chance."""
        rng = np.random.default_rng(seed + 1)
        columns = {name: place.slot.column for name, place in places(self._state.types, type_name(0)).items()}
        badges, rooms = pa.array([f"b{n}" for n in range(SEEN_USERS)]), pa.array([f"room{n}" for n in range(ROOMS)])
        for blob in super().appends(events, size, seed=seed):
            table = from_blob(blob)
            for name, known in (("badge", badges), ("room", rooms)):
                chosen = pa.array(rng.integers(0, len(known), table.num_rows))
                table = table.append_column(columns[name], known.take(chosen))
            yield to_blob(packed(table))


@dataclass
class OneByOne:
    """The entries put to one pair after another, in plain Python: groups are sets, relations are found by key."""

    state: State

    def __post_init__(self) -> None:
        self.entries = self.state.roles.policy.entries
        self.look = Evaluator(facts_for(self.state, [*(one.constraint for one in self.entries), Related("Badge", ())]))

    def told(self, badge: str, room: str, shown: tuple[Argument, ...]) -> bool:
        """Is a client that shows one membership with these arguments told of a sighting?"""
        user = self.look.value(Apply("Badge", (Constant(badge),)), {})
        for entry in self.entries:
            bound: dict[str, Argument] = {}
            said = [*zip(entry.event.args, (user, room), strict=False)]
            said += [pair for ref in entry.credentials for pair in zip(ref.args, shown, strict=False)]
            fits = True
            for term, value in said:
                if isinstance(term, Constant):
                    fits = fits and term.value == value
                elif isinstance(term, Variable):
                    fits = fits and bound.setdefault(term.name, value) == value
            if fits and self.look.truth(entry.constraint, bound) is True:
                return not entry.negative
        return False


def one_by_one(world: Badges) -> float:
    """Seconds for a pair, by asking about a sample of them."""
    rng = random.Random(5)
    asker = OneByOne(world._state)
    pairs = [
        (f"b{rng.randrange(SEEN_USERS)}", f"room{rng.randrange(ROOMS)}", rng.randrange(SUBSCRIBERS))
        for _ in range(SAMPLE)
    ]
    shown = [world._state.roles.memberships[f"m{n}"].args for n in range(SUBSCRIBERS)]
    for badge, room, client in pairs[:CHECKED]:
        values = {"badge": badge, "room": room, **dict.fromkeys(ATTRIBUTES)}
        event = Event("e", "owner", type_name(0), values, datetime(2026, 1, 1, tzinfo=UTC))
        if asker.told(badge, room, shown[client]) != (view(world._state, f"p{client}", event, {}) is not None):
            raise AssertionError(f"pair by pair, p{client} is told otherwise of {badge} in {room}")

    def ask() -> None:
        for badge, room, client in pairs:
            asker.told(badge, room, shown[client])

    ask()
    return statistics.median(seconds(ask) for _ in range(5)) / SAMPLE


def run(session: Any) -> None:
    entries = len(parse_event_policy(POLICY).entries)
    console.print(f"[bold]event policy[/]: {EVENTS:,} events, {SUBSCRIBERS:,} subscribers, {entries} entries")
    with tempfile.TemporaryDirectory() as name:
        jobs = {}
        for which, policy in (("with", True), ("without", False)):
            directory = Path(name) / which
            directory.mkdir()
            jobs[which] = Job(session, Badges(SUBSCRIBERS, policy=policy), directory, EVENTS)
        times = side_by_side({which: job.run for which, job in jobs.items()}, 9)
        report_ratio("time with event policy over without", times["with"], times["without"], 1.5, "lower")
        taken = statistics.median(times["with"])
        report("events/s with event policy", EVENTS / taken, None, "higher")
        matches = jobs["without"].deliveries()
        report("deliveries left by event policy, share", jobs["with"].deliveries() / matches, None, "lower")
        pair = one_by_one(Badges(SUBSCRIBERS))
        report("event policy pair by pair in Python, microseconds a pair", pair * 1e6, None, "lower")
        report("every pair in Python over Spark, from a sample", pair * EVENTS * SUBSCRIBERS / taken, None, "higher")
        report("matching pairs alone in Python over Spark, from a sample", pair * matches / taken, None, "higher")
