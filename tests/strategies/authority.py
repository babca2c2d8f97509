"""Statements by hand, and random stories of presenting, revoking, going on under other keys and the clock.

Guarantees: keys, types and times come from small pools, so that chains often meet and often break. `told` tries the
changes of a story one by one, leaves out what is refused, and lets the clock take what it takes on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hypothesis import strategies as st

from headgate.authority.statement_state import next_moment
from headgate.decide.apply import apply
from headgate.lang import parse_condition
from headgate.model.authority import (
    ANY,
    NETWORK_ACTIONS,
    TYPE_ACTIONS,
    Authority,
    Certificate,
    Identity,
    NetworkAuthority,
    Provider,
    RevocationList,
    Succession,
    TypeAuthority,
    Validity,
)
from headgate.model.changes import (
    Batch,
    Change,
    DeclarePrincipal,
    DeclareType,
    Identify,
    Present,
    RemovePrincipal,
    RemoveProvider,
    Revoke,
    SetAttribute,
    SetCoordinator,
    SetKey,
    SetNetwork,
    SetProvider,
    Succeed,
    Tick,
)
from headgate.model.errors import HeadgateError
from headgate.model.expressions import TRUE
from headgate.model.rights import Action, Rule, Source
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType, matches
from headgate.model.values import EPOCH, Kind, Value
from strategies.drawing import whole

PITO, MET, CCS, SMITH, CCTV = "pito", "met", "ccs", "smith", "cctv"
PEOPLE: Final = (PITO, MET, CCS, SMITH, CCTV)
PLATE: Final = "uk.gov.pito.Numberplate"
SEES: Final = frozenset({Action.SUBSCRIBE})
SENDS: Final = frozenset({Action.PUBLISH})
WORLD: Final[tuple[Change, ...]] = (
    *(DeclarePrincipal(name) for name in PEOPLE),
    DeclareType(EventType(PLATE, PITO, {"location": Kind.STRING, "numberplate": Kind.STRING, "lane": Kind.INT})),
    DeclareType(EventType("ccs.Charge", CCS, {"numberplate": Kind.STRING, "pence": Kind.INT})),
)
DIDS: Final = tuple(f"did:key:z6Mk{'a' * 43}{n}" for n in "12345")


def at(seconds: float) -> datetime:
    """A time on the clock of a story."""
    return EPOCH + timedelta(seconds=seconds)


def world(*changes: Change, before: Sequence[Change] = WORLD) -> State:
    """The police network with these changes, each a version of its own."""
    return then(apply(State(), Batch(ADMINISTRATOR, tuple(before))), *changes)


def then(state: State, *changes: Change) -> State:
    """The state after these changes, each a version of its own."""
    for change in changes:
        state = apply(state, Batch(ADMINISTRATOR, (change,)))
    return state


def over(
    type: str = PLATE,
    actions: frozenset[Action] = TYPE_ACTIONS,
    attributes: tuple[str, ...] | None = None,
    forced: dict[str, object] | None = None,
    where: str | None = None,
    owner: str | None = None,
) -> TypeAuthority:
    """Authority over types."""
    condition = TRUE if where is None else parse_condition(where)
    return TypeAuthority(actions, type, owner, attributes, forced or {}, condition)


def cert(
    id: str,
    issuer: str,
    subject: str,
    *authority: Authority,
    delegate: bool = False,
    start: float | None = None,
    until: float | None = None,
    freshness: int | None = None,
) -> Certificate:
    """A certificate; without authority, over everything that the issuer has of types."""
    valid = Validity(None if start is None else at(start), None if until is None else at(until))
    return Certificate(id, issuer, subject, authority or (over("*"),), delegate, valid, freshness)


def revoked(issuer: str, number: int, *ids: str, issued: float = 0, now: float | None = None) -> Revoke:
    """An issuer's list, heard at a time."""
    return Revoke(RevocationList(issuer, number, at(issued), frozenset(ids)), at(issued if now is None else now))


def present(principal: str, *certificates: Certificate, now: float = 0) -> Present:
    """A principal shows certificates."""
    return Present(principal, certificates, at(now))


def chains(state: State) -> list[Rule]:
    """The entries that certificates give, in order."""
    return [rule for rule in state.rules if rule.source is Source.CHAIN]


def rights(state: State) -> list[Rule]:
    """Those of them that reach something: the network, or a type that whoever they begin at owns."""
    owned = [(one.owner, name) for name, one in state.types.items()]
    return [
        rule
        for rule in chains(state)
        if rule.actions & NETWORK_ACTIONS
        or any(rule.author == owner and matches(rule.type, name) for owner, name in owned)
    ]


def holders(state: State) -> set[str]:
    """Who has a right by certificates."""
    return {rule.who for rule in rights(state)}


# -- random stories -------------------------------------------------------------------------------------------

KEYS: Final = (*PEOPLE, *DIDS[:3], ADMINISTRATOR)


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens after a while; `now` is put in when the story is told."""

    wait: int
    kind: str
    args: tuple[object, ...] = ()


@st.composite
def certificates(draw: st.DrawFn, id: str) -> Certificate:
    """A certificate between any two keys."""
    some = st.sampled_from
    authority: list[Authority] = []
    for _ in range(draw(whole(1, 2))):
        if draw(whole(0, 3)) == 0:
            actions = draw(some((NETWORK_ACTIONS, frozenset({Action.CONNECT}))))
            authority.append(NetworkAuthority(actions, draw(some((ANY, ANY, "police")))))
        else:
            names = draw(some((None, None, ("location", "lane"), ("lane",))))
            authority.append(
                over(
                    draw(some(("*", "*", "uk.gov.*", PLATE, "ccs.*"))),
                    draw(some((TYPE_ACTIONS, SEES, SENDS))),
                    names,
                    {"lane": draw(whole(1, 2))} if names and draw(st.booleans()) else {},
                    draw(some((None, None, "lane > 0"))),
                )
            )
    start = draw(some((None, None, None, 0, 4)))
    return cert(
        id,
        draw(some((PITO, PITO, ADMINISTRATOR, *KEYS))),
        draw(some((MET, SMITH, SMITH, *KEYS))),
        *authority,
        delegate=draw(whole(0, 3)) > 0,
        start=start,
        until=draw(some((None, None, 6, 12, 20))),
        freshness=draw(some((None, None, None, 5, 9))),
    )


@st.composite
def stories(draw: st.DrawFn, *, steps: int = 12, identities: bool = False) -> tuple[list[Certificate], list[Step]]:
    """A pool of certificates, and what happens with them."""
    some = st.sampled_from
    pool = [draw(certificates(f"c{n}")) for n in range(draw(whole(1, 7)))]
    kinds = ["present"] * 4 + ["revoke"] * 2 + ["hear", "tick", "succeed", "key", "coordinate", "remove", "declare"]
    kinds += ["network"]
    kinds += ["identify"] * 4 + ["own", "provider", "distrust"] if identities else []
    made = []
    for _ in range(draw(whole(1, steps))):
        kind = draw(some(kinds))
        args: tuple[object, ...] = ()
        match kind:
            case "present":
                shown = draw(st.lists(some(pool), unique_by=lambda one: one.id, min_size=1, max_size=4))
                args = draw(some((SMITH, SMITH, MET, CCTV, PITO))), tuple(shown)
            case "revoke":
                one = draw(some(pool))
                args = one.issuer, one.id, draw(whole(0, 1))
            case "hear":
                args = (draw(some(pool)).issuer,)
            case "succeed":
                args = draw(some(KEYS)), draw(some((*DIDS, MET))), draw(whole(0, 3)), draw(some((None, None, 3)))
            case "key":
                args = draw(some((*PEOPLE, ADMINISTRATOR))), draw(some((None, *DIDS)))
            case "coordinate":
                args = (draw(some((None, PITO, MET, DIDS[0]))),)
            case "network":
                args = (draw(some((None, "police", "other"))),)
            case "remove" | "declare":
                args = (draw(some((MET, SMITH, CCTV))),)
            case "identify":
                values = draw(st.dictionaries(some(("a", "b", "c")), some((1, 1.0, True, "x")), max_size=3))
                ends = draw(some((None, 2, 5))), draw(some((None, None, 0, 2)))
                issuer = draw(some((PITO, CCS)))
                rule = draw(some((None, None, "$a = 1", "$b = 'x'")))
                args = draw(some((SMITH, MET))), f"i{draw(whole(0, 3))}", issuer, values, ends, rule
            case "own":
                args = draw(some((SMITH, MET))), draw(some(("a", "b"))), draw(some((None, 2, "own")))
            case "provider" | "distrust":
                args = (draw(some((PITO, CCS))),)
        made.append(Step(draw(whole(0, 3)), kind, args))
    return pool, made


def told(story: tuple[list[Certificate], list[Step]], *, together: int = 1) -> Iterator[tuple[State, datetime, Batch]]:
    """Every state of a story, with the time by which it stands and the batch that made it.

    So many steps are made `together`, in one batch, as of the first; the clock takes away on the way what ends.
    """
    state, now = world(), EPOCH
    lists: dict[str, RevocationList] = {}
    for first in range(0, len(story[1]), together):
        steps = story[1][first : first + together]
        later = now + timedelta(seconds=steps[0].wait)
        while (moment := next_moment(state, now)) is not None and moment <= later:
            batch = Batch(ADMINISTRATOR, (Tick(moment),))
            state, now = apply(state, batch), moment
            yield state, now, batch
        now = later
        batch, after = Batch(ADMINISTRATOR), state
        for step in steps:
            longer = Batch(ADMINISTRATOR, (*batch.changes, _change(step, now, lists)))
            with suppress(HeadgateError):
                after, batch = apply(state, longer), longer
        if batch.changes:
            state = after
            yield state, now, batch


def _change(step: Step, now: datetime, lists: dict[str, RevocationList]) -> Change:
    match step.kind, step.args:
        case "present", (str(who), tuple(shown)):
            return Present(who, shown, now)
        case "revoke", (str(issuer), str(id), int(back)):
            known = lists.get(issuer, RevocationList(issuer, 0, now))
            made = RevocationList(issuer, known.number + 1 - back, now, known.revoked | {id})
            if not back:
                lists[issuer] = made
            return Revoke(made, now)
        case "hear", (str(issuer),):
            known = lists.setdefault(issuer, RevocationList(issuer, 0, now))
            return Revoke(RevocationList(issuer, known.number, now, known.revoked), now)
        case "tick", _:
            return Tick(now)
        case "succeed", (str(old), str(new), int(number), ends):
            until = now + timedelta(seconds=ends) if isinstance(ends, int) else None
            return Succeed(Succession(old, f"{new}" if new != old else f"{new}'", number, until), now)
        case "key", (str(who), key):
            return SetKey(who, key if isinstance(key, str) else None)
        case "coordinate", (key,):
            return SetCoordinator(key if isinstance(key, str) else None)
        case "network", (name,):
            return SetNetwork(name if isinstance(name, str) else None)
        case "remove", (str(who),):
            return RemovePrincipal(who)
        case "declare", (str(who),):
            return DeclarePrincipal(who)
        case "identify", (str(who), str(id), str(issuer), dict(values), (ends, ago), rule):
            until = now + timedelta(seconds=ends) if isinstance(ends, int) else None
            start = now - timedelta(seconds=ago) if isinstance(ago, int) else None
            policy = parse_condition(rule) if isinstance(rule, str) else None
            return Identify(who, Identity(id, issuer, who, values, Validity(start, until), policy), now)
        case "own", (str(who), str(name), value):
            owned: Value = value  # type: ignore[assignment]
            return SetAttribute(who, name, owned)
        case "provider", (str(key),):
            return SetProvider(Provider(key, key))
        case _, (str(key),):
            return RemoveProvider(key)
        case other:
            raise AssertionError(other)
