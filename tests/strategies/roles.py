"""Random histories of roles: rolefiles, grants, entries, elections, revocations, other domains, and what stirs them.

Guarantees: batches over one small world, in which most requests mean something: few principals, ids and places, so that
ids are used again and much rests on the same. What a state refuses is dropped by `salvaged`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Final, TypeVar

from hypothesis import strategies as st

from headgate.lang import parse_condition
from headgate.lang.rolefile import parse_event_policy, parse_representative, parse_role, parse_rolefile
from headgate.model.changes import (
    AddMember,
    AddRow,
    AddRule,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    ElectRole,
    EndCredential,
    EnterRole,
    GrantRole,
    HearPeer,
    MirrorRole,
    PassRevocation,
    ReinstateRole,
    RemoveMember,
    RemovePeer,
    RemovePrincipal,
    RemoveRelation,
    RemoveRepresentative,
    RemoveRow,
    RemoveRule,
    RetireType,
    RevokeRole,
    SetEventPolicy,
    SetPeer,
    SetRepresentative,
    SetRolefile,
    Settle,
    Subscribe,
    Tick,
    Unsubscribe,
    WatchRecords,
)
from headgate.model.errors import HeadgateError
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.rolefiles import Rolefile
from headgate.model.roles import Peer, reference
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.roles.requests.transition import Outcome, transition

T = TypeVar("T")
START: Final = datetime(2026, 1, 1, 9, tzinfo=UTC)
PRINCIPALS: Final = ("ann", "bob", "cat")
IDS: Final = ("m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8")
ELECTIONS: Final = ("e1", "e2", "m6")
"""One of them names memberships at other times."""

_LINES: Final = (
    "Chair <- Login.LoggedOn('ann', h)*",
    "Member(u) <- Login.LoggedOn(u, h)* <|* Chair : (u in staff)*",
    "Member(u) <- Login.LoggedOn(u, h)* : (u in staff)*",
    "Member(u) <- Login.LoggedOn(u, h) <| Chair*",
    "Member(u) <- Candidate(u)*",
    "Candidate(u) <- Login.LoggedOn(u, h)* |>* Chair",
    "Candidate(u) <- Login.LoggedOn(u, h) |> Chair : not u in staff",
    "Candidate(u) <- Login.LoggedOn(u, h)* |>* Login.LoggedOn(x) |>* Login.LoggedOn(y) : x < y and not u in nested",
    "Candidate(u) <- Login.LoggedOn(u, h) |>* Chair |>* Login.LoggedOn(u)",
    "Member(u) <- Login.LoggedOn(u, h) <|* Login.LoggedOn <|* Chair",
    "Speaker(u) <- Member(u)* : (Above(u, s))*",
    "Speaker(u) <- Login.LoggedOn(u, h) : (not u in staff)* or (Above(u, 'cat'))*",
    "Sole(u) <- Login.LoggedOn(u, h)* : (count(Member(_)) < 2)*",
    "Duty(u) <- Login.LoggedOn(u, h) : (u in staff or u in night)*",
    "Acting(u) <- Login.LoggedOn(u, h) : (u in staff or not Duty(_))*",
    "Second(u) <- Duty(u)* : (count(Acting(_)) > 0 or Above(u, 'cat') or @time < timestamp '2026-01-01T09:00:10Z')*",
    "Pair(u) <- Login.LoggedOn(u, h)* : (u in night or count(Pair(_)) < 2)*",
    "Early(u) <- Login.LoggedOn(u, h)* : (@time < timestamp '2026-01-01T09:00:20Z')*",
    "Nurse(u) <- Ward.Nurse(u)*",
    "Nurse(u) <- Ward.Nurse(u)* & Login.LoggedOn(u, h) <|* Member(v)*",
)
_POLICIES: Final = (
    "",
    "Seen(u, r) <= Conf.Member(u)\n",
    "-Seen(u, 'T14') <= Login.LoggedOn(s, h)\nSeen(u, r) <= Login.LoggedOn(s, h) : Above(u, s)\n",
)


@cache
def rolefile_of(lines: tuple[str, ...]) -> Rolefile:
    """A rolefile of these statements."""
    return parse_rolefile("".join(f"{line}\n" for line in lines))


SETTING: Final = Batch(
    ADMINISTRATOR,
    (
        DeclareType(EventType("badge.Seen", ADMINISTRATOR, {"badge": Kind.STRING, "room": Kind.STRING})),
        *(DeclarePrincipal(name) for name in PRINCIPALS),
        DeclareGroup("staff"),
        DeclareGroup("nested"),
        DeclareGroup("night"),
        DeclareRelation("Above"),
        AddMember("staff", "ann"),
        AddMember("staff", "nested"),
        SetRolefile("Login", parse_rolefile("def LoggedOn(u, h) u : String h : String\n")),
        GrantRole("m1", "Login", "LoggedOn", ("ann", "ely"), "ann"),
        GrantRole("m2", "Login", "LoggedOn", ("bob", "ely"), "bob"),
        SetPeer(Peer("Ward", "did:key:za", "Ward", 20)),
        GrantRole("m3", "Conf", "Chair", (), "ann"),
    ),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A state, the time, a batch, what is left of it there, and what comes of that."""

    state: State
    now: datetime
    batch: Batch
    accepted: Batch
    outcome: Outcome


class Walk:
    """One way through the world: what a source of randomness makes of each state."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def steps(self, least: int = 6, most: int = 14) -> Iterator[Step]:
        """Step by step, from a world in which much may happen."""
        elected = ElectRole("e1", "Conf", "Member", ("bob",), "ann", None, START, revoke_on_exit=self.odds(2))
        opening = Batch(ADMINISTRATOR, (SetRolefile("Conf", self.rolefile()), elected))
        state = State()
        for number in range(self.rng.randint(least, most) + 2):
            batch = SETTING if number == 0 else opening if number == 1 else self.batch(state)
            now = START + timedelta(seconds=3 * number)
            step = Step(state, now, batch, *salvaged(state, batch, now))
            yield step
            state = step.outcome.after

    def batch(self, state: State) -> Batch:
        """A few changes, most of them about roles."""
        size = self.rng.choice([1, 1, 2, 3, 4])
        changes = (self.surrounding(state) if self.odds(4) else self.request(state) for _ in range(size))
        return Batch(ADMINISTRATOR, tuple(changes))

    def odds(self, against: int) -> bool:
        """True once in so many times."""
        return self.rng.randrange(against) == 0

    def one(self, some: Iterable[T], otherwise: T) -> T:
        """One of some, if there are any."""
        every = list(some)
        return self.rng.choice(every) if every else otherwise

    def who(self) -> str:
        """A principal, which may be gone."""
        return self.rng.choice(PRINCIPALS)

    def at(self) -> datetime:
        """A time within the story."""
        return START + timedelta(seconds=self.rng.randrange(40))

    def rolefile(self) -> Rolefile:
        """Some of the statements, mostly many, in some order."""
        return rolefile_of(tuple(self.rng.sample(_LINES, self.rng.randint(5, len(_LINES)))))

    # -- roles ------------------------------------------------------------------------------------------------

    def request(self, state: State) -> Change:
        """What may be asked of role services in a state, mostly with success."""
        made = self.rng.choices(
            [self._enter, self._elect, self._grant, self._end, self._by_role, self._peer, self._set, self._watch],
            [9, 4, 3, 3, 3, 5, 2, 2],
        )[0]
        return made(state)

    def _free(self, state: State) -> str:
        taken = state.roles.memberships.keys() | state.roles.elections.keys()
        return self.one((name for name in IDS if name not in taken), "m1")

    def _set(self, state: State) -> Change:
        return SetRolefile("Conf", None if self.odds(8) else self.rolefile())

    def _grant(self, state: State) -> Change:
        name = self._free(state)
        if self.odds(4):
            return GrantRole(name, "Conf", "Chair", (), self.who(), self._instance())
        args = (self.who(), self.rng.choice(["ely", "cam"]))
        until = self.at() if self.odds(3) else None
        return GrantRole(name, "Login", "LoggedOn", args, args[0], appointment=self.odds(3), until=until)

    def _enter(self, state: State) -> Change:
        who = self.one(sorted(state.roles.held), "ann")
        rolefile = state.roles.rolefiles.get("Conf", Rolefile())
        role = self.one((one.head.role for one in rolefile.statements), "Chair")
        everything = (*state.roles.held.get(who, ()), *state.roles.elections)
        some = tuple(self.rng.sample(everything, self.rng.randint(0, len(everything))))
        using = self.rng.choice([None, everything, everything, some])
        args = (who,) if role != "Chair" and self.odds(3) else None
        return EnterRole(self._free(state), "Conf", role, args, who, using, self.at(), self._instance())

    def _elect(self, state: State) -> Change:
        return ElectRole(
            id=self.rng.choice(ELECTIONS),
            service="Conf",
            role=self.rng.choice(["Member", "Member", "Nurse"]),
            args=(self.who(),) if self.odds(2) else None,
            principal=self.one(sorted(state.roles.held), "ann"),
            using=None,
            at=START,
            required=(parse_role("Login.LoggedOn(u, 'ely')"),) if self.odds(3) else (),
            until=START + timedelta(seconds=self.rng.randrange(1, 40)) if self.odds(3) else None,
            revoke_on_exit=self.odds(2),
        )

    def _end(self, state: State) -> Change:
        if self.odds(4):
            return PassRevocation(self.one(state.roles.elections, "e1"), self.who(), self.who())
        name = self.one((*state.roles.memberships, *state.roles.elections), "m1")
        held = state.roles.memberships.get(name)
        by = self.rng.choice([None, self.who(), held.holder if held is not None else None])
        return EndCredential(name, by, self.odds(2))

    def _by_role(self, state: State) -> Change:
        whom = self.one((one.holder for one in state.roles.memberships.values()), "ann")
        asked = self.rng.choice([RevokeRole, RevokeRole, ReinstateRole])
        which = self.rng.choice([(whom,), (whom,), (None,), ()])
        return asked("Conf", "Candidate", which, self.rng.choice(["ann", self.who()]), None, self.at())

    def _peer(self, state: State) -> Change:
        rng, remote = self.rng, self.rng.randint(1, 3)
        match rng.randrange(7):
            case 0:
                return SetPeer(Peer("Ward", f"did:key:z{rng.choice('aaab')}", "Ward", rng.choice([5, 20])))
            case 1 | 2 | 3:
                who, told = self.who(), rng.choice([True, True, None])
                return MirrorRole(self._free(state), "Ward", "Nurse", (who,), who, remote, told, self.at())
            case 4 | 5:
                told = rng.choice([True, True, None, False])
                return HearPeer("Ward", rng.randint(0, 5), {remote: told}, self.at())
            case _:
                return RemovePeer("Ward") if self.odds(2) else Tick(START + timedelta(seconds=30))

    def _watch(self, state: State) -> Change:
        followed = sorted(one.record for one in state.roles.watches)
        refs = [*state.roles.records, *followed, reference(3, 1)]
        some = tuple(self.rng.sample(refs, min(2, len(refs))))
        return WatchRecords(self.rng.choice(["other", "third"]), some, not self.odds(3))

    def _instance(self) -> str:
        return "annex" if self.odds(6) else ""

    # -- all else ---------------------------------------------------------------------------------------------

    def surrounding(self, state: State) -> Change:
        """What a role may rest on, and what may rest on roles."""
        made = self.rng.choices(
            [self._member, self._row, self._time, self._principal, self._policy, self._rule], [5, 3, 3, 1, 2, 2]
        )
        return made[0](state)

    def _member(self, state: State) -> Change:
        change = self.rng.choice([AddMember, RemoveMember])
        group = self.rng.choice(["staff", "nested", "night"])
        return change("staff", "nested") if self.odds(4) else change(group, self.who())

    def _row(self, state: State) -> Change:
        if self.odds(6):
            return self.rng.choice([RemoveRelation("Above"), DeclareRelation("Above")])
        return self.rng.choice([AddRow, AddRow, RemoveRow])("Above", (self.who(), self.who()))

    def _time(self, state: State) -> Change:
        return Tick(self.at())

    def _principal(self, state: State) -> Change:
        return self.rng.choice([RemovePrincipal, DeclarePrincipal])(self.rng.choice(["bob", "cat"]))

    def _policy(self, state: State) -> Change:
        seen = parse_representative("badge.Seen", {"user": "Above(badge)"})
        others = [SetRepresentative(seen), RemoveRepresentative("badge.Seen"), RetireType("badge.Seen")]
        policy = SetEventPolicy(parse_event_policy(self.rng.choice(_POLICIES)))
        return self.rng.choices([policy, *others], [6, 2, 1, 1])[0]

    def _rule(self, state: State) -> Change:
        name, wants = self.rng.choice(["r1", "r2"]), self.rng.choice(["s1", "s2"])
        role = parse_role(self.rng.choice(["Conf.Member(u)", "Conf.Member", "Login.LoggedOn(u, 'ely')"]))
        where = parse_condition(self.rng.choice(["true", "room = 'T14'"]))
        effect = self.rng.choice(list(Effect))
        rule = Rule(name, "", frozenset({Action.SUBSCRIBE}), "badge.Seen", where, role=role, effect=effect)
        counted = self.rng.choice([None, (), ("m1", "m4")])
        subscription = Subscription(wants, self.who(), "badge.Seen", counted=counted)
        return self.rng.choice([AddRule(rule), RemoveRule(name), Subscribe(subscription), Unsubscribe(wants)])


def walks() -> st.SearchStrategy[Walk]:
    """Ways through the world, each told by its seed."""
    return st.integers(0, 2**32 - 1).map(lambda seed: Walk(Random(seed)))


def salvaged(state: State, batch: Batch, now: datetime) -> tuple[Batch, Outcome]:
    """What is left of a batch when each change that is refused is dropped, and what comes of it."""
    with suppress(HeadgateError):
        return batch, transition(state, batch, now=now)
    kept = Batch(batch.author, (), batch.note)
    outcome = transition(state, kept, now=now)
    for change in batch.changes:
        longer = Batch(batch.author, (*kept.changes, change), batch.note)
        with suppress(HeadgateError):
            kept, outcome = longer, transition(state, longer, now=now)
    return kept, outcome


_CHURNED: Final = (
    "A(u) <- L.On(u) : (u in a or u in b or u in c)*",
    "B(u) <- L.On(u) : (u in a or not A('ann'))* or (count(A(_)) > 1)*",
    "C(u) <- A(u)* : (B(u) or u in c)*",
    "D(u) <- L.On(u) : (u in b or count(D(_)) < 2)*",
)


def churn(rng: Random) -> str:
    """Who ends why while people are moved between groups, several at a time; as text."""
    names, groups = ("ann", "bob", "cat", "dan"), ("a", "b", "c")
    opening = [*map(DeclarePrincipal, names), *map(DeclareGroup, groups), SetRolefile("S", rolefile_of(_CHURNED))]
    logged_on = [GrantRole(f"on-{who}", "L", "On", (who,), who) for who in names]
    state = transition(State(), Batch(ADMINISTRATOR, (*opening, *logged_on)), now=START).after
    told: list[object] = []
    for number in range(25):
        changes: list[Change] = [
            (RemoveMember if who in state.groups[group] else AddMember)(group, who)
            for who in names
            for group in groups
            if rng.random() < 0.3
        ]
        who, role = rng.choice(names), rng.choice("ABCD")
        entering = [EnterRole(f"m{number}", "S", role, (who,), who, None, START)]
        for batch in (changes, entering):
            with suppress(HeadgateError):
                made = transition(state, Batch(ADMINISTRATOR, tuple(batch)), now=START)
                told += [one.facts for one in made.batch.changes if isinstance(one, Settle)]
                state = made.after
    return repr(told)
