"""Whole random stories: types, principals, policy, certificates, requirements, subscriptions, and what then happens.

Guarantees: values come from small pools, so that rules and filters often hit; types grow, end and come back; owners
give rights by certificates, which are shown, revoked and run out; a provider attests identities, for which some rules
ask publishers; attributes become private. With a `prefix` every type, principal, group, relation, predicate, rule,
certificate, subscription and stream carries it, so that many stories fit in one ledger.
With `roles` there are memberships, rules for roles, and event policy with representatives.
The setup is always accepted. Leaves out: whether a later change is allowed or a draft accepted. Some are not, and
whoever plays the story skips them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from headgate.model.authority import Certificate, Identity, Provider, RevocationList, TypeAuthority, Validity
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
    Identify,
    Present,
    RemoveMember,
    RemovePrincipal,
    RemoveRow,
    RemoveRule,
    RetireType,
    Revoke,
    SetAttribute,
    SetDeclassified,
    SetEventPolicy,
    SetPolicyRule,
    SetPrivate,
    SetProvider,
    Subscribe,
    Tick,
    Unsubscribe,
)
from headgate.model.errors import HeadgateError
from headgate.model.events import Draft
from headgate.model.expressions import (
    TRUE,
    Attribute,
    ClockPart,
    Compare,
    Condition,
    Constant,
    InGroup,
    InSet,
    IsNull,
    Meta,
    Not,
    Predicate,
    Related,
    Subject,
    TextMatch,
    all_of,
    any_of,
)
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.rolefiles import EventPolicy
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import CONTRIBUTORS, DECLASSIFIED, EventType, Times
from headgate.model.values import Kind, Value, plain
from headgate.roles.requests.transition import next_state
from strategies import policies
from strategies.conditions import COMMON, EXTREME, conditions, values
from strategies.drawing import pick, whole
from strategies.predicates import ARITIES, registration

MORE: Final[Mapping[Kind, Sequence[Value]]] = {
    Kind.BOOL: (True, False),
    Kind.INT: (2**53 - 1, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, 1, 2),
    Kind.FLOAT: (-0.0, 0.0, 5e-324, 1.7e308, 2.0**53, 2.0**53 - 1, 9.223372036854775807e18, 1.0),
    # The two spellings of é differ; so do a NUL inside and no NUL, and the astral and the last BMP character.
    Kind.STRING: ("a\x00b", "a", "e\u0301", "\u00e9", "\U0001f600", "\uffff", "", "a b\tc", "\x00"),
    Kind.TIMESTAMP: (
        datetime(1, 1, 1, 0, 30, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 9, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 30, tzinfo=UTC),
    ),
    Kind.BYTES: (b"\x00", b"\x00\x00", b"", b"\xff"),
}
"""More values that filters and events share."""

ATTRIBUTES: Final[Mapping[str, Kind]] = {
    "i1": Kind.INT,
    "s1": Kind.STRING,
    "f1": Kind.FLOAT,
    "t1": Kind.TIMESTAMP,
    "b1": Kind.BOOL,
    "y1": Kind.BYTES,
    "i2": Kind.INT,
    "s2": Kind.STRING,
    "f2": Kind.FLOAT,
}
"""Attributes that have the same kind in every type; `x` is of any kind."""

GROWTH: Final = ("k1", "k2", "k3")
"""Attributes that a type may gain later; those of a subtype have other names than those of its parent."""

SUBJECTS: Final = ("u", "v")
ORIGINS: Final = ("10.0.0.1", "10.0.0.2", "192.168.7.9")
EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When certificates begin; they are shown, revoked and run out in the hours after it."""
KINDS: Final = tuple(Kind)


TIMES: Final = (
    *[None] * 3,
    Times(stated=True),
    Times(stated=True, ahead=0.5),
    Times(stated=True, lateness=3_600, clock_error=0.25),
    Times(),
)
"""What types say of when their events occurred."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A batch of changes."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Publish:
    """Drafts sent to a stream at one time, appended together or one by one."""

    stream: str
    time: datetime
    drafts: tuple[Draft, ...]
    together: bool = True


Step: TypeAlias = Commit | Publish


@dataclass(frozen=True, slots=True)
class Story:
    """A world and what happens in it."""

    prefix: str
    administrator: str
    setup: tuple[Step, ...]
    steps: tuple[Step, ...]


def pooled(kind: Kind) -> st.SearchStrategy[Value]:
    """A value that filters and events are likely to share."""
    few = st.sampled_from((*COMMON[kind][:2], MORE[kind][0]))
    return st.one_of(few, few, few, st.sampled_from(COMMON[kind]), st.sampled_from(MORE[kind]), values(kind))


_POOLED: Final = {kind: pooled(kind) for kind in Kind}


@dataclass(frozen=True)
class Names:
    """What a world has, by name."""

    prefix: str
    types: tuple[EventType, ...]
    attributes: Mapping[str, Mapping[str, Kind]]
    growth: Mapping[str, Mapping[str, Kind]]
    """What each type may gain, without what its ancestors may."""
    principals: tuple[str, ...]
    groups: tuple[str, ...]
    open_groups: tuple[str, ...]
    relations: tuple[str, ...]
    open_relations: tuple[str, ...]
    predicates: tuple[str, ...]
    streams: tuple[str, ...]
    requirements: tuple[Condition, ...] = ()
    """A few rules over the attributes of subjects, which events, subscriptions and policy rules share."""
    certificates: tuple[Certificate, ...] = ()
    roles: bool = False

    def gains(self, type_name: str) -> tuple[tuple[str, Kind], ...]:
        """What a type and its ancestors may gain."""
        parents = {t.name: t.parent for t in self.types}
        found: list[tuple[str, Kind]] = []
        at: str | None = type_name
        while at is not None:
            found += self.growth[at].items()
            at = parents[at]
        return tuple(found)

    def focus(self, type_name: str) -> tuple[tuple[str, Kind], ...]:
        """A few attributes of a type; of a wide one those around the edges of its words."""
        every = list(self.attributes[type_name].items())
        if len(every) <= 12:
            return tuple(every)
        return tuple(e for n, e in enumerate(every) if n < 3 or n % 64 in (62, 63, 0, 1) or n >= len(every) - 3)


@st.composite
def worlds(draw: st.DrawFn, prefix: str = "", *, predicates: bool = True, steps: int = 9, roles: bool = False) -> Story:
    """A story. With `predicates=False` no generic predicate is registered."""
    names = replace(draw(_names(prefix, predicates)), roles=roles)
    names = replace(names, requirements=tuple(draw(_requirement()) for _ in range(draw(whole(1, 3)))))
    names = replace(names, certificates=draw(_certificates(names)))
    declared = allowed(State(), Batch(ADMINISTRATOR, tuple(draw(_declarations(names)))))
    rules = [draw(_rule(names)) for _ in range(draw(whole(0, 4)))]
    generous = draw(_generous(names))
    wanted = [draw(_subscription(names)) for _ in range(draw(whole(1, 5)))]
    limited = [draw(_limit(names)) for _ in range(pick(draw, (0, 0, 0, 1)))]
    shown = [draw(_showing(names)) for _ in range(draw(whole(1, 3)))] if names.certificates else []
    shown += [draw(_identified(names)) for _ in range(draw(whole(0, 2)))]
    opening = (
        *(AddRule(r) for r in (*rules, *generous)),
        *limited,
        *shown,
        *(Subscribe(s) for s in wanted),
    )
    setup = [declared]
    state = next_state(State(), declared)
    if roles:  # a subscription counts memberships that were there before it
        setup.append(allowed(state, Batch(ADMINISTRATOR, draw(_roles(names)))))
        state = next_state(state, setup[-1])
    setup.append(allowed(state, Batch(ADMINISTRATOR, opening)))
    happened: list[Step] = []
    for number in range(draw(whole(min(3, steps), steps))):
        if number == 0 or draw(whole(0, 2)) == 0:
            happened.append(draw(_publish(names, number)))
        elif draw(whole(0, 4)) == 0:
            happened += draw(_turning(names, number))
        else:
            happened.append(Commit(draw(_batch(names))))
    return Story(prefix, ADMINISTRATOR, tuple(map(Commit, setup)), tuple(happened))


def allowed(state: State, batch: Batch) -> Batch:
    """The batch without the changes that are refused, and event policy without the entries that are."""
    if _after(state, batch) is not None:
        return batch
    one_by_one = replace(batch, changes=tuple(_one_by_one(state, batch)))
    if _after(state, one_by_one) is not None:
        return one_by_one
    kept: list[Change] = []
    for change in one_by_one.changes:
        if _after(state, Batch(batch.author, (*kept, change))) is not None:
            kept.append(change)
    return replace(batch, changes=tuple(kept))


def _one_by_one(state: State, batch: Batch) -> Iterator[Change]:
    """The changes that are allowed if each is a batch of its own."""
    for change in batch.changes:
        one = _without_refused(state, batch.author, change) if isinstance(change, SetEventPolicy) else change
        after = _after(state, Batch(batch.author, (one,)))
        if after is not None:
            yield one
            state = after


def _after(state: State, batch: Batch) -> State | None:
    """The state after a batch, if it is allowed."""
    try:
        return next_state(state, batch)
    except HeadgateError:
        return None


def _without_refused(state: State, author: str, change: SetEventPolicy) -> SetEventPolicy:
    """The entries that are accepted, each on its own."""
    every = {
        entry: _after(state, Batch(author, (SetEventPolicy(EventPolicy((entry,))),))) is not None
        for entry in dict.fromkeys(change.policy.entries)
    }
    return SetEventPolicy(EventPolicy(tuple(entry for entry in change.policy.entries if every[entry])))


# -- the cast -----------------------------------------------------------------------------------------------------


@st.composite
def _names(draw: st.DrawFn, prefix: str, predicates: bool) -> Names:
    principals = tuple(f"{prefix}p{n}" for n in range(pick(draw, (1, 2, 2, 3, 4))))
    groups = tuple(f"{prefix}g{n}" for n in range(draw(whole(0, 3))))
    relations = tuple(f"{prefix}R{n}" for n in range(draw(whole(0, 2))))
    types: list[EventType] = []
    attributes: dict[str, dict[str, Kind]] = {}
    depths: dict[str, int] = {}
    for number in range(pick(draw, (1, 1, 2, 2, 3, 4, 6))):
        made = draw(_event_type(prefix, number, types, attributes, depths, principals))
        types.append(made)
        attributes[made.name] = {**attributes.get(made.parent or "", {}), **made.attributes}
        depths[made.name] = depths.get(made.parent or "", 0) + 1
    growth = {t.name: {f"{name}_{number}": pick(draw, KINDS) for name in GROWTH} for number, t in enumerate(types)}
    return Names(
        prefix,
        tuple(types),
        attributes,
        growth,
        principals,
        groups,
        tuple(g for g in groups if draw(st.booleans())),
        relations,
        tuple(r for r in relations if draw(st.booleans())),
        tuple(draw(st.lists(st.sampled_from(list(ARITIES)), unique=True, max_size=3))) if predicates else (),
        tuple(f"{prefix}{name}" for name in ("main", "side", "far")[: draw(whole(1, 3))]),
    )


@st.composite
def _event_type(
    draw: st.DrawFn,
    prefix: str,
    number: int,
    types: Sequence[EventType],
    attributes: Mapping[str, Mapping[str, Kind]],
    depths: Mapping[str, int],
    principals: Sequence[str],
) -> EventType:
    name = f"{prefix}{pick(draw, ('a.', 'a.c.', 'b.'))}T{number}"
    parents = [t.name for t in types if depths[t.name] < 4]
    parent = pick(draw, [*parents, *parents, None]) if parents else None
    inherited = attributes[parent] if parent else {}
    left = [a for a in ATTRIBUTES if a not in inherited]
    own: dict[str, Kind] = {}
    if left:
        start = draw(whole(0, len(left) - 1))
        chosen = (left[start:] + left[:start])[: draw(whole(0, 4))]
        own.update({a: ATTRIBUTES[a] for a in chosen})
    if "x" not in inherited and draw(whole(0, 3)) == 0:
        own["x"] = pick(draw, KINDS)
    if len(inherited) < 30 and draw(whole(0, 11)) == 0:
        own.update({f"w{number}_{n}": KINDS[(n * 7 + n // 5) % 6] for n in range(draw(whole(70, 130)))})
    times, derived = pick(draw, TIMES), pick(draw, (None,) * 7 + (CONTRIBUTORS, DECLASSIFIED))
    released = frozenset(t.name for t in types if t.derived and draw(st.booleans()))
    return EventType(
        *(name, pick(draw, [*principals, ADMINISTRATOR]), own, parent),
        times=times,
        derived=derived,
        declassified_for=released,
    )


@st.composite
def _declarations(draw: st.DrawFn, names: Names) -> list[Change]:
    found: list[Change] = []
    for principal in names.principals:
        kinds = draw(st.lists(st.sampled_from((Kind.STRING, Kind.STRING, Kind.INT, *KINDS)), max_size=2))
        found.append(DeclarePrincipal(principal, {s: draw(_POOLED[k]) for s, k in zip(SUBJECTS, kinds, strict=False)}))
    found += [DeclareType(t) for t in names.types]
    found += [DeclareGroup(g, g in names.open_groups) for g in names.groups]
    found += [DeclareRelation(r, r in names.open_relations) for r in names.relations]
    found += [registration(name, names.prefix) for name in names.predicates]
    found.append(SetProvider(Provider(f"{names.prefix}idp", f"{names.prefix}idp")))
    for _ in range(draw(whole(0, 5)) if names.groups else 0):
        found.append(draw(_membership(names, AddMember)))
    for _ in range(draw(whole(0, 3)) if names.relations else 0):
        found.append(draw(_row(names, AddRow)))
    return found


@st.composite
def _membership(draw: st.DrawFn, names: Names, made: Any) -> Change:
    group = pick(draw, names.groups)
    if draw(whole(0, 2)) == 0:  # a value that events may have
        return made(group, pick(draw, [one for one in COMMON[Kind.STRING] if one]), True)
    return made(group, pick(draw, [*names.principals, *names.groups]))


@st.composite
def _row(draw: st.DrawFn, names: Names, made: Any) -> Change:
    relation = pick(draw, names.relations)
    row: list[Value] = [pick(draw, [*COMMON[Kind.STRING][:3], *names.principals])]
    if _arity(relation) == 2:
        times = st.sampled_from(("09:00", "09:00:01", "Thu", "2026-01-01T09:00:00Z", "2026-01-01T10:00:00+01:00"))
        row.append(draw(times if draw(whole(0, 3)) == 0 else _POOLED[pick(draw, KINDS)]))
    return made(relation, tuple(row))


def _arity(relation: str) -> int:
    return 2 if relation.endswith("0") else 1


# -- authority ----------------------------------------------------------------------------------------------------


@st.composite
def _requirement(draw: st.DrawFn) -> Condition:
    """A rule over the attributes of subjects, which many of them meet."""

    def part() -> Condition:
        it = Subject(pick(draw, SUBJECTS))
        kind = pick(draw, (Kind.STRING, Kind.STRING, Kind.INT, *KINDS))
        match draw(whole(0, 9)):
            case 0:
                return IsNull(it)
            case 1 | 8:
                return Not(IsNull(it))
            case 9:
                return any_of(IsNull(it), Compare("=", it, Constant(draw(_POOLED[kind]))))
            case 2:
                return InSet(it, (draw(_POOLED[kind]), draw(_POOLED[pick(draw, KINDS)])))
            case 3:
                return TextMatch(pick(draw, ("starts with", "contains")), it, Constant("a"))
            case 4:
                return Compare("!=", it, Constant(draw(_POOLED[kind])))
            case 5:
                return Compare("=", it, Subject(pick(draw, SUBJECTS)))
            case _:
                return Compare(pick(draw, ("=", "<=", ">")), it, Constant(draw(_POOLED[kind])))

    match draw(whole(0, 6)):
        case 0 | 1 | 2:
            return any_of(part(), part(), part())
        case 3:
            return Not(part())
        case 4:
            return all_of(part(), part())
        case _:
            return part()


@st.composite
def _required(draw: st.DrawFn, names: Names, often: int) -> Condition | None:
    """A requirement now and then, at times of two together."""
    if draw(whole(0, often)):
        return None
    one = pick(draw, names.requirements)
    return one if draw(whole(0, 2)) else all_of(one, pick(draw, names.requirements))


@st.composite
def _limit(draw: st.DrawFn, names: Names) -> Change:
    rule = pick(draw, (None, *names.requirements, TRUE))
    return SetPolicyRule(pick(draw, names.principals), rule)


@st.composite
def _certificates(draw: st.DrawFn, names: Names) -> tuple[Certificate, ...]:
    """Certificates of owners, and of those to whom they delegated. A story's clock is its own, so are its issuers."""
    owners = sorted({t.owner for t in names.types if t.owner in names.principals})
    if not owners:
        return ()
    found: list[Certificate] = []
    for number in range(draw(whole(2, 6))):
        issuers = [*owners, *(c.subject for c in found if c.delegate)]
        issuer = pick(draw, issuers)
        found.append(
            Certificate(
                f"{names.prefix}c{number}",
                issuer,
                pick(draw, names.principals),
                (draw(_authority(names)),),
                delegate=draw(st.booleans()),
                validity=Validity(EPOCH, EPOCH + timedelta(hours=draw(whole(1, 6)))),
                freshness=pick(draw, (None, None, 7200)),
            )
        )
    return tuple(found)


@st.composite
def _authority(draw: st.DrawFn, names: Names) -> TypeAuthority:
    """Rights on one type or more, with what need not fit them: a chain is not checked against a type."""
    publish, subscribe = Action.PUBLISH, Action.SUBSCRIBE
    actions = pick(draw, ({subscribe}, {subscribe}, {publish}, {publish, subscribe}))
    one, other = pick(draw, names.types).name, pick(draw, names.types).name
    often = st.sampled_from((True, True, True, False))  # a certificate that names what is closed is left out
    wide = f"{names.prefix}*" if names.prefix else "*"
    focus = names.focus(pick(draw, (one, one, other)))
    attributes = None
    if focus and draw(whole(0, 2)):
        attributes = tuple(draw(st.lists(st.sampled_from([name for name, _ in focus]), unique=True, max_size=4)))
    forced: dict[str, object] = {}
    if focus and draw(whole(0, 3)) == 0:
        name, kind = pick(draw, focus)
        forced[name] = draw(_POOLED[pick(draw, (kind, kind, kind, *KINDS))])
    nameable = replace(names, groups=names.open_groups, relations=names.open_relations) if draw(often) else names
    where = draw(_condition(nameable, focus, is_filter=False)) if draw(st.booleans()) else TRUE
    pattern = pick(draw, (one, one, wide, f"{names.prefix}a.*"))
    return TypeAuthority(frozenset(actions), pattern, None, attributes, forced, where)


@st.composite
def _showing(draw: st.DrawFn, names: Names) -> Change:
    """Somebody shows a certificate about itself, with all the others there are."""
    one = pick(draw, names.certificates)
    return Present(one.subject, names.certificates, EPOCH + timedelta(hours=draw(whole(0, 2))))


@st.composite
def _revocation(draw: st.DrawFn, names: Names) -> Change:
    one = pick(draw, names.certificates)
    at = EPOCH + timedelta(hours=draw(whole(0, 6)))
    gone = [c.id for c in names.certificates if c.issuer == one.issuer and draw(st.booleans())]
    return Revoke(RevocationList(one.issuer, draw(whole(1, 4)), at, frozenset(gone)), at)


@st.composite
def _identified(draw: st.DrawFn, names: Names) -> Change:
    """Somebody shows an identity statement, with or without attributes and a policy rule."""
    who, number = pick(draw, names.principals), draw(whole(0, 2))
    attributes = {SUBJECTS[0]: draw(_POOLED[pick(draw, KINDS)])} if draw(whole(0, 2)) == 0 else {}
    rule = pick(draw, (None, None, None, None, *names.requirements))
    begins = EPOCH + timedelta(minutes=number)
    validity = Validity(begins, begins + timedelta(hours=draw(whole(1, 6))))
    said = Identity(f"{who}.{number}", f"{names.prefix}idp", who, attributes, validity, rule)
    return Identify(who, said, EPOCH + timedelta(hours=draw(whole(0, 2)), minutes=number))


@st.composite
def _taken_back(draw: st.DrawFn, names: Names) -> Change:
    """The provider revokes some of what it said."""
    said = [f"{who}.{number}" for who in names.principals for number in range(3)]
    at = EPOCH + timedelta(hours=draw(whole(0, 6)))
    gone = frozenset(one for one in said if draw(st.booleans()))
    return Revoke(RevocationList(f"{names.prefix}idp", draw(whole(1, 4)), at, gone), at)


# -- conditions ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=500)
def _grammar(
    focus: tuple[tuple[str, Kind], ...],
    groups: tuple[str, ...],
    relations: tuple[str, ...],
    subjects: tuple[str, ...],
    predicates: tuple[tuple[str, int], ...],
    depth: int,
) -> st.SearchStrategy[Condition]:
    return conditions(
        dict(focus),
        depth=depth,
        groups=groups,
        relations={r: _arity(r) for r in relations},
        subjects=subjects,
        predicates=dict(predicates),
    )


@st.composite
def _condition(draw: st.DrawFn, names: Names, focus: tuple[tuple[str, Kind], ...], *, is_filter: bool) -> Condition:
    groups = names.open_groups if is_filter else names.groups
    relations = names.open_relations if is_filter else names.relations
    predicates = tuple((names.prefix + p, ARITIES[p]) for p in names.predicates)
    subjects = () if is_filter else SUBJECTS
    depth = pick(draw, (0, 0, 1, 2))

    def plain_part() -> Condition:
        return draw(_grammar(focus, groups, relations, subjects, predicates, depth))

    pointed = _pointed(names, focus, groups, relations, subjects, predicates)
    match draw(whole(0, 7)):
        case 0 | 1 if focus:
            name, kind = pick(draw, focus)
            return Compare("=", Attribute(name), Constant(draw(_POOLED[kind])))
        case 6 | 7:
            return plain_part()
        case 2 | 3:
            return draw(pointed)
        case 4:
            return all_of(draw(pointed), plain_part())
        case _:
            return any_of(draw(pointed), draw(pointed))


@st.composite
def _pointed(
    draw: st.DrawFn,
    names: Names,
    focus: tuple[tuple[str, Kind], ...],
    groups: tuple[str, ...],
    relations: tuple[str, ...],
    subjects: tuple[str, ...],
    predicates: tuple[tuple[str, int], ...],
) -> Condition:
    """A condition aimed at what is hard: large sets, several sets, publishers, ends of ranges, other spellings."""
    makers = ["publisher", "time"]
    if focus:
        makers += ["equal", "equal", "null", "null", "bound", "exclude", "sets", "large", "numbers", "wide"]
    texts = [Attribute(name) for name, kind in focus if kind is Kind.STRING]
    if texts:
        makers += ["text", "token"]
    if groups:
        makers += ["group"]
    if relations:
        makers += ["relation"]
    if subjects:
        makers += ["rate", "rate", "rate", "origin", "origin"]
    if subjects and focus:
        makers += ["subject", "subject"]
    if predicates:
        makers += ["predicate", "look-alikes"]
    name, kind = pick(draw, focus) if focus else ("", Kind.INT)
    it = Attribute(name)
    made: Condition
    match pick(draw, makers):
        case "equal":
            made = Compare("=", it, Constant(draw(_POOLED[kind])))
        case "null":
            made = IsNull(it)
        case "bound":
            ends = st.sampled_from(("<", "<=", ">", ">="))
            made = Compare(draw(ends), it, Constant(draw(_POOLED[kind])))
            if draw(st.booleans()):
                made = all_of(made, Compare(draw(ends), it, Constant(draw(_POOLED[kind]))))
        case "exclude":
            made = all_of(Compare("!=", it, Constant(draw(_POOLED[kind]))), Not(InSet(it, (draw(_POOLED[kind]),))))
        case "sets":
            chosen = draw(st.lists(st.sampled_from(focus), min_size=2, max_size=3))
            made = all_of(
                *(InSet(Attribute(n), tuple(draw(st.lists(_POOLED[k], min_size=2, max_size=5)))) for n, k in chosen)
            )
        case "large":
            pool = (*COMMON[kind], *EXTREME[kind], *MORE[kind], *(range(18) if kind in (Kind.INT, Kind.FLOAT) else ()))
            left_out = draw(whole(0, len(pool) - 1))
            made = InSet(it, (*pool[:left_out], *pool[left_out + 1 :]))
        case "numbers":
            # Past 64 bits, and between the doubles.
            odd = st.sampled_from((2**70, -(2**70), 2**53 + 1, 0.5, 1e300, -1e300, 2**63, 2**64 + 1))
            of = pick(draw, [Attribute(n) for n, k in focus if k in (Kind.INT, Kind.FLOAT)] + [_CLOCK])
            op = pick(draw, ("=", "!=", "<", "<=", ">", ">="))
            made = Compare(op, of, Constant(draw(odd)))
        case "wide":
            made = all_of(*(Not(Compare("=", Attribute(n), Constant(draw(_POOLED[k])))) for n, k in focus[-2:]))
        case "text":
            text = pick(draw, ("", "a", "\x00", "e", "\u0301", "\U0001f600", "b"))
            made = TextMatch(pick(draw, ("starts with", "contains")), pick(draw, texts), Constant(text))
        case "token":
            made = TextMatch("has token", pick(draw, texts), Constant(pick(draw, ("a", "b", "", "c"))))
        case "group":
            of_whom = pick(draw, [Meta("publisher"), *texts, *(Subject(s) for s in subjects)])
            made = InGroup(of_whom, pick(draw, groups))
        case "relation":
            relation = pick(draw, relations)
            second = (
                [Attribute(n) for n, _ in focus]
                + [Subject(s) for s in subjects]
                + [_CLOCK, Constant(1), Constant(True)]
            )
            args = (pick(draw, [Meta("publisher"), *texts]), pick(draw, second))
            made = Related(relation, args[: _arity(relation)])
        case "subject":
            made = Compare(pick(draw, ("=", "!=", "<=", ">")), it, Subject(pick(draw, subjects)))
        case "rate":
            beside = [Attribute(n) for n, k in focus if k in (Kind.INT, Kind.FLOAT)]
            limit = pick(draw, [*(Constant(n) for n in (1, 2, 2, 3, 2.5)), *beside, Subject(subjects[0])])
            op = pick(draw, ("<", "<=", "<=", "=", "!=", ">"))
            few = st.sampled_from(
                (IsNull(Meta("rate")), InSet(Meta("rate"), (1, 3)), Not(IsNull(Meta("rate"))), TRUE, TRUE, TRUE)
            )
            made = all_of(Compare(op, Meta("rate"), limit), draw(few)) if draw(whole(0, 4)) else draw(few)
        case "origin":
            from_where = Constant(pick(draw, ORIGINS))
            made = draw(
                st.sampled_from(
                    (
                        Compare("=", Meta("origin"), from_where),
                        Compare("!=", Meta("origin"), from_where),
                        TextMatch("starts with", Meta("origin"), Constant("10.")),
                        IsNull(Meta("origin")),
                    )
                )
            )
        case "predicate":
            predicate, arity = pick(draw, predicates)
            some = (
                [Constant(v) for v in (1, True, 1.0, "a")]
                + [Attribute(n) for n, _ in focus]
                + [_CLOCK, Meta("publisher"), *((Meta("rate"), Meta("origin")) if subjects else ())]
            )
            made = Predicate(predicate, tuple(pick(draw, some) for _ in range(arity)))
        case "look-alikes":
            # Python takes these for equal; a predicate or relation must not.
            alike = st.sampled_from([Constant(v) for v in (1, True, 1.0, 0.0, -0.0, False)])
            predicate, arity = pick(draw, predicates)
            ones: list[Condition] = [Predicate(predicate, (draw(alike),) * arity) for _ in range(2)]
            if relations and _arity(relations[0]) == 2:
                ones.append(Related(relations[0], (Constant("a"), draw(alike))))
            joined = pick(draw, (all_of, any_of))
            made = joined(*(Not(one) if draw(st.booleans()) else one for one in ones))
        case "time":
            times = [Attribute(n) for n, k in focus if k is Kind.TIMESTAMP] + [Meta("time")]
            zone = pick(draw, ("UTC", "Asia/Kathmandu", "America/New_York"))
            of_time = ClockPart(pick(draw, ("timeofday", "weekday")), pick(draw, times), zone)
            op = pick(draw, ("=", "!=", "<", ">="))
            made = Compare(op, of_time, Constant(pick(draw, (0, 1, 4, 9 * 3600, 0.5))))
        case _:
            made = Compare("=", Meta("publisher"), Constant(pick(draw, names.principals)))
    return Not(made) if draw(whole(0, 4)) == 0 else made


_CLOCK: Final = ClockPart("timeofday", Meta("time"), "Asia/Kathmandu")


# -- roles --------------------------------------------------------------------------------------------------------


@st.composite
def _roles(draw: st.DrawFn, names: Names) -> tuple[Change, ...]:
    """Some who hold roles, and an event policy for them."""
    found: list[Change] = [policies.far()]
    found += [draw(policies.granted(names)) for _ in range(draw(whole(2, 6)))]
    found += [draw(policies.represented(names)) for _ in range(draw(whole(0, 1)))]
    found.append(draw(policies.event_policy(names)))
    found += [draw(_told(names)) for _ in range(draw(whole(0, 3)))]
    return tuple(found)


@st.composite
def _told(draw: st.DrawFn, names: Names) -> Change:
    """A rule that lets whoever holds a role see something, perhaps what is about itself."""
    type_name = pick(draw, names.types).name
    focus = names.focus(type_name)
    where: Condition = TRUE
    if focus and draw(whole(0, 3)):
        op = pick(draw, ("=", "=", "=", "!=", "<="))
        where = Compare(op, Attribute(pick(draw, focus)[0]), Subject(pick(draw, SUBJECTS)))
    effect = Effect.GRANT if draw(whole(0, 5)) else Effect.FORBID
    told = frozenset({Action.SUBSCRIBE})
    rule = Rule(f"{names.prefix}t{draw(whole(0, 3))}", "all", told, type_name, where, effect=effect)
    return AddRule(draw(policies.role_rule(names, rule)), draw(st.booleans()))


# -- rules and subscriptions --------------------------------------------------------------------------------------


@st.composite
def _rule(draw: st.DrawFn, names: Names) -> Rule:
    effect = Effect.GRANT if draw(whole(0, 2)) else Effect.FORBID
    subscribe, publish = frozenset({Action.SUBSCRIBE}), frozenset({Action.PUBLISH})
    govern = frozenset({Action.GOVERN, Action.SUBSCRIBE, Action.AUDIT})
    actions = pick(draw, (subscribe, subscribe, subscribe, publish, subscribe | publish, govern))
    one = pick(draw, names.types).name
    wide = (f"{names.prefix}*" if names.prefix else "*", f"{names.prefix}a.*", f"{names.prefix}a.c.*")
    type_name = pick(draw, (one, one, *wide))
    focus = (*names.focus(one), *names.gains(one)[: pick(draw, (0, 0, 0, 2))])
    attributes = None
    if focus and draw(whole(0, 2)) and (effect is Effect.GRANT or Action.PUBLISH not in actions):
        attributes = tuple(draw(st.lists(st.sampled_from([name for name, _ in focus]), unique=True, max_size=4)))
    forced = {}
    if attributes and draw(whole(0, 3)) == 0:
        name = pick(draw, attributes)
        forced[name] = draw(_raw(dict(focus)[name]))
    where = draw(_condition(names, focus, is_filter=False)) if draw(whole(0, 4)) > 1 else TRUE
    made = Rule(
        f"{names.prefix}r{draw(whole(0, 4))}",
        pick(draw, [*names.principals, *names.groups]),
        actions,
        type_name,
        where,
        attributes,
        forced,
        effect,
        attested=effect is Effect.GRANT and Action.PUBLISH in actions and draw(st.booleans()),
    )
    if not names.roles or draw(st.booleans()):
        return made
    simple = replace(made, where=TRUE) if draw(whole(0, 2)) == 0 else made
    return draw(policies.role_rule(names, simple))


@st.composite
def _generous(draw: st.DrawFn, names: Names) -> list[Rule]:
    """Rules at the end that let most of it happen, so that there is something to deliver."""
    everything = f"{names.prefix}*" if names.prefix else "*"
    found = []
    for number, principal in enumerate(names.principals):
        if draw(whole(0, 5)):
            may_publish, may_subscribe = frozenset({Action.PUBLISH}), frozenset({Action.SUBSCRIBE})
            attested = draw(whole(0, 4)) == 0
            found.append(Rule(f"{names.prefix}y{number}", principal, may_publish, everything, attested=attested))
            if names.roles and draw(whole(0, 2)):
                continue  # let event policy have its say
            taken_as = pick(draw, (everything, everything, names.types[0].name, names.types[-1].name))
            found.append(Rule(f"{names.prefix}z{number}", principal, may_subscribe, taken_as))
    return found


@st.composite
def _subscription(draw: st.DrawFn, names: Names) -> Subscription:
    type_name = pick(draw, names.types).name
    focus = (*names.focus(type_name), *names.gains(type_name)[: pick(draw, (0, 0, 0, 3))])
    often = 1 if names.roles else 5  # event policy is seen best where nothing is filtered
    where = draw(_condition(names, focus, is_filter=True)) if draw(whole(0, often)) else TRUE
    return Subscription(
        f"{names.prefix}s{draw(whole(0, 5))}",
        pick(draw, names.principals),
        type_name,
        where,
        requires=draw(_required(names, 4)),
        origin=pick(draw, (None, *ORIGINS)),
        counted=draw(policies.counted(names)) if names.roles else None,
        **draw(_beginning(names)),
    )


@st.composite
def _beginning(draw: st.DrawFn, names: Names) -> dict[str, Any]:
    """With or without history, perhaps since a version or a time. Stories that share a ledger share its versions."""
    match draw(whole(0, 5)):
        case 0 | 1:
            return {"history": False}
        case 2 if not names.prefix:
            return {"history": True, "since_version": draw(whole(0, 9))}
        case 3:
            return {"history": True, "since_time": pick(draw, COMMON[Kind.TIMESTAMP])}
        case _:
            return {"history": True}


# -- what happens -------------------------------------------------------------------------------------------------


@st.composite
def _batch(draw: st.DrawFn, names: Names) -> Batch:
    if draw(whole(0, 3)) == 0:
        return Batch(ADMINISTRATOR, draw(_looking_back(names)))
    author = pick(draw, [ADMINISTRATOR, ADMINISTRATOR, ADMINISTRATOR, *names.principals])
    return Batch(author, tuple(draw(_change(names)) for _ in range(pick(draw, (1, 2, 2, 3)))))


@st.composite
def _looking_back(draw: st.DrawFn, names: Names) -> tuple[Change, ...]:
    """A change of rights, and someone who asks for history with it."""
    rule = draw(_rule(names))
    who = pick(draw, names.principals)
    since = draw(_beginning(names)) | {"history": True}
    wanted = Subscription(f"{names.prefix}h{draw(whole(0, 9))}", who, names.types[0].name, TRUE, **since)
    narrowed = replace(rule, who=who, role=None, actions=frozenset({Action.SUBSCRIBE}), attested=False)
    if names.roles and draw(st.booleans()):
        return draw(policies.granted(names)), draw(policies.event_policy(names)), Subscribe(wanted)
    return AddRule(narrowed, draw(st.booleans())), Subscribe(wanted)


@st.composite
def _turning(draw: st.DrawFn, names: Names, number: int) -> list[Step]:
    """A type grows, and events follow that have what it gained; perhaps it ends in between, and comes back."""
    one = pick(draw, names.types)
    found: list[Step] = []
    if draw(whole(0, 2)) == 0:
        found += [Commit(Batch(ADMINISTRATOR, (RetireType(one.name),))), draw(_publish(names, number * 10))]
    grown = replace(one, attributes={**one.attributes, **names.growth[one.name]})
    found.append(Commit(Batch(ADMINISTRATOR, (DeclareType(grown),))))
    for again in range(1, draw(whole(2, 3))):
        sent = draw(_publish(names, number * 10 + again))
        more = {name: draw(_sent(kind, names.principals)) for name, kind in names.growth[one.name].items()}
        drafts = (replace(d, type=one.name, values={**_known(d, names, one.name), **more}) for d in sent.drafts)
        found.append(replace(sent, drafts=tuple(drafts)))
    return found


def _known(draft: Draft, names: Names, type_name: str) -> dict[str, object]:
    """The values of a draft that a type has attributes for."""
    assert isinstance(draft.values, Mapping)
    kinds = names.attributes[draft.type], names.attributes[type_name]
    return {n: v for n, v in draft.values.items() if n in kinds[1] and kinds[0].get(n) is kinds[1][n]}


@st.composite
def _change(draw: st.DrawFn, names: Names) -> Change:
    makers = ["rule", "rule", "unrule", "subscribe", "subscribe", "unsubscribe", "attribute", "grow", "retire", "limit"]
    makers += ["declassify"]
    makers += ["identify", "identify", "take back"]
    if not names.prefix:  # stories that share a ledger share the attributes of subjects
        makers += ["private", "public"]
    if names.certificates:
        makers += ["show", "show", "show", "revoke", "tick"]
    if names.roles:
        makers += ["grant", "grant", "grant", "turn", "turn", "policy", "represent", "tell"]
    if draw(whole(0, 9)) == 0:
        makers.append("remove")
    if names.groups:
        makers += ["join", "leave"]
    if names.relations:
        makers += ["row", "unrow"]
    match pick(draw, makers):
        case "rule":
            return AddRule(draw(_rule(names)), draw(st.booleans()))
        case "unrule":
            return RemoveRule(f"{names.prefix}{pick(draw, 'rrz')}{draw(whole(0, 4))}")
        case "subscribe":
            return Subscribe(draw(_subscription(names)))
        case "unsubscribe":
            return Unsubscribe(f"{names.prefix}{pick(draw, 'ssh')}{draw(whole(0, 5))}")
        case "attribute":
            value = draw(st.none() | _POOLED[pick(draw, KINDS)])
            return SetAttribute(pick(draw, names.principals), pick(draw, SUBJECTS), value)
        case "grow":
            old = pick(draw, names.types)
            gained = list(names.growth[old.name].items())[: draw(whole(0, len(GROWTH)))]
            return DeclareType(replace(old, attributes={**old.attributes, **dict(gained)}))
        case "retire":
            return RetireType(pick(draw, names.types).name)
        case "declassify":
            made = pick(draw, [one for one in names.types if one.derived] or names.types).name
            return SetDeclassified(pick(draw, names.types).name, made, draw(st.booleans()))
        case "limit":
            return draw(_limit(names))
        case "grant":
            return draw(policies.granted(names))
        case "tell":
            return draw(_told(names))
        case "turn":
            return draw(policies.turned(names))
        case "policy":
            return draw(policies.event_policy(names))
        case "represent":
            return draw(policies.represented(names))
        case "show":
            return draw(_showing(names))
        case "revoke":
            return draw(_revocation(names))
        case "identify":
            return draw(_identified(names))
        case "take back":
            return draw(_taken_back(names))
        case "private" | "public" as said:
            return SetPrivate(pick(draw, SUBJECTS), said == "private")
        case "tick":
            return Tick(EPOCH + timedelta(hours=draw(whole(0, 6))))
        case "remove":
            return RemovePrincipal(pick(draw, names.principals))
        case "join":
            return draw(_membership(names, AddMember))
        case "leave":
            return draw(_membership(names, RemoveMember))
        case "row":
            return draw(_row(names, AddRow))
        case _:
            return draw(_row(names, RemoveRow))


_STATED = st.one_of(
    st.none(), st.none(), st.integers(0, 10**10), st.sampled_from([EPOCH + timedelta(hours=n) for n in range(6)])
)
"""When an event occurred, as its publisher states it."""


@st.composite
def _publish(draw: st.DrawFn, names: Names, number: int) -> Publish:
    drafts = []
    for at in range(pick(draw, (1, 2, 3, 4, 6))):
        type_name = pick(draw, names.types).name
        focus = names.focus(type_name)
        gained = names.gains(type_name)
        focus = (*focus, *gained[: draw(whole(0, len(gained)))]) if draw(whole(0, 3)) == 0 else focus
        sent: dict[str, object] = {name: draw(_sent(kind, names.principals)) for name, kind in focus}
        id, publisher = f"{names.prefix}e{number}.{at}", pick(draw, names.principals)
        requires, origin = draw(_required(names, 3)), pick(draw, (None, *ORIGINS))
        stated = draw(_STATED)
        readers = None if draw(whole(0, 3)) else tuple(sorted(draw(st.sets(st.sampled_from(names.principals)))))
        looked_at = tuple(sorted(draw(st.sets(st.sampled_from([one.name for one in names.types]), max_size=2))))
        made_of = looked_at if draw(whole(0, 3)) else None
        one = Draft(id, publisher, type_name, sent, requires=requires, origin=origin, time=stated)
        drafts.append(replace(one, readers=readers, made_of=made_of))
    time = draw(st.one_of(*[st.sampled_from(COMMON[Kind.TIMESTAMP])] * 3, _POOLED[Kind.TIMESTAMP]))
    assert isinstance(time, datetime)
    return Publish(pick(draw, names.streams), time, tuple(drafts), draw(st.booleans()))


def _sent(kind: Kind, principals: tuple[str, ...]) -> st.SearchStrategy[object]:
    return _sent_text(principals) if kind is Kind.STRING else _SENT[kind]


@lru_cache(maxsize=100)
def _sent_text(principals: tuple[str, ...]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), *[_POOLED[Kind.STRING]] * 3, st.sampled_from(principals))


_SENT: Final = {kind: st.one_of(st.none(), *[_POOLED[kind]] * 4) for kind in Kind}


@st.composite
def _raw(draw: st.DrawFn, kind: Kind) -> object:
    """A forced value as a policy file may write it."""
    value = draw(_POOLED[kind])
    if kind in (Kind.TIMESTAMP, Kind.BYTES) and draw(st.booleans()):
        return plain(value)
    return value
