"""Random certificates over a few keys and types, and the definition of a chain, read aloud.

Guarantees: names, values and times come from small pools, so that links often fit and often just fail to.
`facts` says what an authority gives one action, one type name and one sample event at a time; `by_definition` says what
a sequence of certificates gives, straight from the definition and with nothing of `authority.chains`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise, permutations, product
from typing import Final, TypeAlias

from hypothesis import strategies as st

from headgate.decide.truth import World, truth
from headgate.model.authority import (
    NETWORK_ACTIONS,
    TYPE_ACTIONS,
    Authority,
    Certificate,
    NetworkAuthority,
    TypeAuthority,
    Validity,
)
from headgate.model.events import Event
from headgate.model.expressions import TRUE, Condition, IsNull, atoms
from headgate.model.rights import Action
from headgate.model.state import State
from headgate.model.types import Catalog, EventType
from headgate.model.values import EPOCH, Kind, Value
from strategies.conditions import conditions
from strategies.drawing import pick, whole

OWNERS: Final = ("o1", "o2")
KEYS: Final = (*OWNERS, "met", "met'", "ccs", "smith")
"""`met'` is another key of `met`, as `one_principal` has it."""
HOLDER: Final = "smith"
COORDINATOR: Final = "o1"
NOW: Final = EPOCH + timedelta(seconds=3)
MOMENTS: Final = tuple(EPOCH + timedelta(seconds=n) for n in range(7))
_BEFORE: Final = EPOCH - timedelta(seconds=1)
NETWORKS: Final = ("police", "other")
NAMES: Final = ("a", "a.T", "a.b.T", "a.b.S", "ab.T", "c.T")
"""Every pattern below takes in at least one of these, and so does whatever two of them share."""
PATTERNS: Final = (*NAMES, "*", "a.*", "a.b.*", "ab.*")
KINDS: Final = {"n": Kind.INT, "s": Kind.STRING, "f": Kind.FLOAT}
ATTRIBUTES: Final = {**KINDS, "w": Kind.INT}
"""The attributes of all types, and `w`, which only `a.b.S` has."""
VALUES: Final[dict[str, tuple[Value, ...]]] = {"n": (1, 2), "s": ("a", "b"), "f": (1.0, 2.5), "w": (1, 2)}
MIXED: Final[dict[str, tuple[object, ...]]] = {name: (*fit, 1, 1.0, True, "1") for name, fit in VALUES.items()}

FLAT: Final = (
    Catalog()
    .declare(EventType("a", "o1", KINDS))
    .declare(EventType("a.T", "o1", KINDS))
    .declare(EventType("a.b.T", "o1", KINDS))
    .declare(EventType("a.b.S", "o1", ATTRIBUTES))
    .declare(EventType("ab.T", "o1", KINDS))
    .declare(EventType("c.T", "o2", KINDS))
)
DEEP: Final = (
    Catalog()
    .declare(EventType("a.T", "o1", {"n": Kind.INT, "s": Kind.STRING}))
    .declare(EventType("a.b.T", "o1", {"f": Kind.FLOAT}, "a.T"))
    .declare(EventType("a.b.S", "o2", {"w": Kind.INT}, "a.b.T"))
    .declare(EventType("ab.T", "o1", {"w": Kind.INT}, "a.T"))
)
SAMPLES: Final = tuple(
    Event("e", "p", "a.b.S", {"n": n, "s": s, "f": f, "w": w}, EPOCH)
    for n, s, f, w in (
        (1, "a", 1.0, 1),
        (2, "b", 2.5, None),
        (None, "a b", 0.5, 2),
        (1, None, None, 1),
        (3, "a", 2.0, 0),
    )
)


def one_principal(a: str, b: str) -> bool:
    """Do these keys belong to one principal?"""
    return a.rstrip("'") == b.rstrip("'")


# -- certificates -----------------------------------------------------------------------------------------------------


@cache
def wheres(*, nulls: bool = True) -> st.SearchStrategy[Condition]:
    """A condition, often none; without `nulls`, none that asks whether something is null."""
    made = conditions(ATTRIBUTES, depth=1, meta=False)
    if not nulls:
        made = made.filter(lambda c: not any(isinstance(atom, IsNull) for atom in atoms(c)))
    return st.one_of(st.just(TRUE), st.just(TRUE), st.just(TRUE), made)


@st.composite
def type_authorities(
    draw: st.DrawFn,
    *,
    values: dict[str, tuple[object, ...]] = MIXED,
    where: st.SearchStrategy[Condition] | None = None,
    owners: Sequence[str | None] = (*(None,) * 6, *OWNERS),
    actions: st.SearchStrategy[frozenset[Action]] | None = None,
) -> TypeAuthority:
    """Authority over types. Forced names are among the attributes, as texts have it."""
    names = draw(st.none() | st.none() | st.lists(st.sampled_from(tuple(ATTRIBUTES)), unique=True).map(tuple))
    forced = {name: pick(draw, values[name]) for name in names or () if draw(whole(0, 2)) == 0}
    return TypeAuthority(
        draw(_some(TYPE_ACTIONS) if actions is None else actions),
        pick(draw, (*("*", "a.*") * 5, *PATTERNS)),
        pick(draw, owners),
        names,
        forced,
        draw(wheres() if where is None else where),
    )


def network_authorities() -> st.SearchStrategy[NetworkAuthority]:
    """Authority over a network, or over any."""
    return st.builds(NetworkAuthority, _some(NETWORK_ACTIONS), st.sampled_from(("*", *NETWORKS)))


def authorities() -> st.SearchStrategy[tuple[Authority, ...]]:
    """What one certificate gives."""
    kinds = (type_authorities(), type_authorities(), type_authorities(), network_authorities())
    one: st.SearchStrategy[Authority] = st.one_of(*kinds)
    return st.lists(one, min_size=1, max_size=2).map(tuple)


@st.composite
def validities(draw: st.DrawFn) -> Validity:
    """Mostly in force at `NOW`."""
    start = draw(st.none() | st.sampled_from(MOMENTS[:5]))
    after = [at for at in MOMENTS if start is None or at > start]
    return Validity(start, draw(st.none() | st.sampled_from(after)))


@st.composite
def bags(draw: st.DrawFn) -> list[Certificate]:
    """A way from an owner to the holder that may lack something, and a few certificates besides, in any order."""
    way = [pick(draw, OWNERS), *draw(st.permutations(KEYS[2:-1]))[: draw(whole(0, 3))], HOLDER]
    others = st.tuples(st.sampled_from(KEYS), st.sampled_from((*KEYS[1:], HOLDER)))
    pairs = [*pairwise(way), *draw(st.lists(others, max_size=2))]
    return [
        Certificate(
            f"c{n}",
            issuer,
            subject,
            draw(authorities()),
            delegate=draw(whole(0, 5)) > 0,
            validity=draw(st.sampled_from((True, True, True, False)).flatmap(_in_force)),
            freshness=pick(draw, (None, None, 60, 600)),
        )
        for n, (issuer, subject) in enumerate(draw(st.permutations(pairs[: draw(whole(1, 6))])))
    ]


@st.composite
def lines(
    draw: st.DrawFn, given: st.SearchStrategy[tuple[Authority, ...]] | None = None, *, sound: bool = False
) -> list[Certificate]:
    """Two to four certificates, each issued by the subject of the one before; if `sound`, always a chain by form."""
    size = draw(whole(2, 4))
    return [
        Certificate(
            f"c{n}",
            "o1" if n == 0 else f"k{n}",
            f"k{n + 1}" if sound or draw(whole(0, 9)) else "nobody",
            draw(authorities() if given is None else given),
            delegate=sound or draw(whole(0, 9)) > 0,
            validity=draw(st.just(sound or draw(st.booleans())).flatmap(_in_force)),
            freshness=pick(draw, (None, 60, 600)),
        )
        for n in range(size)
    ]


def _in_force(always: bool) -> st.SearchStrategy[Validity]:
    return st.just(Validity()) if always else validities()


def _some(actions: frozenset[Action]) -> st.SearchStrategy[frozenset[Action]]:
    """All of the actions or some, in an order that does not change from run to run."""
    ordered = sorted(actions, key=lambda action: action.value)
    return st.just(actions) | st.frozensets(st.sampled_from(ordered), min_size=1)


# -- the definition ---------------------------------------------------------------------------------------------------

Fact: TypeAlias = tuple[object, ...]


def facts(authority: Iterable[Authority]) -> frozenset[Fact]:
    """What authorities give, one action and one name at a time."""
    return frozenset(fact for one in authority for fact in _shared((one,)))


def by_definition(
    sequence: Sequence[Certificate], same: Callable[[str, str], bool] = one_principal
) -> frozenset[Fact] | None:
    """What a sequence of certificates gives before anyone asks who owns it; None if it is no chain."""
    if not sequence or not all(one.delegate for one in sequence[:-1]):
        return None
    if not all(same(a.subject, b.issuer) for a, b in pairwise(sequence)):
        return None
    if not any(all(one.validity.holds(at) for one in sequence) for at in (_BEFORE, *MOMENTS)):
        return None
    shared = frozenset(f for choice in product(*(one.authority for one in sequence)) for f in _shared(choice, same))
    return shared or None


def chains_by_definition(
    bag: Sequence[Certificate],
    holder: str,
    *,
    coordinator: str,
    now: datetime,
    dead: frozenset[str] = frozenset(),
    same: Callable[[str, str], bool] = one_principal,
) -> dict[tuple[str, ...], frozenset[Fact]]:
    """Every chain of the bag by the ids of its links, with what counts of it: all sequences are tried."""
    found = {}
    for size in range(1, len(bag) + 1):
        for sequence in permutations(bag, size):
            keys = [sequence[0].issuer, *(one.subject for one in sequence)]
            if any(same(a, b) for at, a in enumerate(keys) for b in keys[:at]) or not same(keys[-1], holder):
                continue
            if not all(one.validity.holds(now) and one.id not in dead for one in sequence):
                continue
            root = keys[0]
            counts = {
                (*fact[:2], fact[2] if fact[0] in NETWORK_ACTIONS else root, *fact[3:])
                for fact in by_definition(sequence, same) or ()
                if same(root, coordinator if fact[0] in NETWORK_ACTIONS else str(fact[2] or root))
            }
            if counts:
                found[tuple(one.id for one in sequence)] = frozenset(counts)
    return found


def _shared(choice: Sequence[Authority], same: Callable[[str, str], bool] = one_principal) -> Iterable[Fact]:
    """What all of these give at once: an action, a name, the owner named, attributes, forced values, truths."""
    for action in Action:
        if not all(action in one.actions for one in choice):
            continue
        networks = [one for one in choice if isinstance(one, NetworkAuthority)]
        types = [one for one in choice if isinstance(one, TypeAuthority)]
        for name in NETWORKS if networks else NAMES:
            if all(one.network in ("*", name) for one in networks) and all(_takes_in(one.type, name) for one in types):
                yield from [(action, name, None)] if networks else _terms(action, name, types, same)


def _terms(
    action: Action, name: str, types: Sequence[TypeAuthority], same: Callable[[str, str], bool]
) -> Iterable[Fact]:
    owners = [one.owner for one in types if one.owner is not None]
    forced = {(n, type(v).__name__, v) for one in types for n, v in one.forced.items()}
    if len({n for n, _, _ in forced}) < len({(n, kind, repr(v)) for n, kind, v in forced}):
        return
    if any(not same(owner, owners[0]) for owner in owners):
        return
    attributes = frozenset(a for a in ATTRIBUTES if all(one.attributes is None or a in one.attributes for one in types))
    if not attributes and sum(one.attributes is not None for one in types) > 1:
        return
    values = frozenset((n, kind, repr(v)) for n, kind, v in forced)
    yield action, name, next(iter(owners), None), attributes, values, tuple(_truths(types))


def _truths(types: Sequence[TypeAuthority]) -> Iterable[bool | None]:
    for event in SAMPLES:
        each = [truth(one.where, event, World(State())) for one in types]
        yield False if False in each else None if None in each else True


def _takes_in(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".+"), name) is not None


def alone(link: Certificate, root: str, holder: str) -> Certificate:
    """What a link gives, given by the root to the holder directly."""
    return replace(link, issuer=root, subject=holder, delegate=False)
