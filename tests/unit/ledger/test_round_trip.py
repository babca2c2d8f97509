"""Whatever is committed, the state at every version is the one that `apply` made, kinds and order included."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.apply import apply
from headgate.decide.views import entries
from headgate.ledger import Ledger
from headgate.ledger.load import preview
from headgate.model.changes import (
    AddMember,
    AddRow,
    AddRule,
    Advertise,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    RegisterPredicate,
    RemoveGroup,
    RemoveMember,
    RemovePredicate,
    RemovePrincipal,
    RemoveRelation,
    RemoveRow,
    RemoveRule,
    RetireType,
    SetAttribute,
    SetConnect,
    SetDeclassified,
    SetKey,
    SetOpen,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Withdraw,
)
from headgate.model.errors import HeadgateError
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from strategies.conditions import conditions, values
from strategies.running import examples

KINDS = {kind.value: kind for kind in Kind}
PRINCIPALS = ["ann", "bob", "été"]
DIDS = [f"did:key:z6Mk{'a' * 43}{n}" for n in "123"]
GROUPS = ["g1", "g2", "g3"]
SETTING = Batch(
    ADMINISTRATOR,
    (
        DeclareType(EventType("t.Top", ADMINISTRATOR, KINDS)),
        DeclarePrincipal("ann"),
        DeclarePrincipal("bob", {"rank": 1}),
        DeclareGroup("g1", open=True),
        DeclareGroup("g2"),
        DeclareRelation("R", open=True),
        RegisterPredicate("p", "m:f", "00"),
        AddRule(Rule("says", "ann", frozenset({Action.PUBLISH}), "*")),
    ),
)

VALUE = st.one_of(*(values(kind) for kind in Kind))
FILTER = conditions(KINDS, depth=1, groups=["g1"], relations={"R": 1})
ACTION = st.sampled_from([Action.SUBSCRIBE, Action.PUBLISH, Action.GOVERN, Action.AUDIT])
WHO = st.sampled_from(PRINCIPALS + GROUPS)


def rules() -> st.SearchStrategy[Rule]:
    where = conditions(KINDS, depth=1, groups=["g1", "g2"], relations={"R": 1}, subjects=["rank"])
    some = st.none() | st.lists(st.sampled_from(list(KINDS)), unique=True, max_size=3).map(tuple)
    plain = st.builds(
        Rule,
        id=st.sampled_from(["r1", "r2", "r3", "r4"]),
        who=WHO,
        actions=st.frozensets(ACTION, min_size=1),
        type=st.sampled_from(["t.Top", "t.*", "*", "t.Under"]),
        where=where,
        attributes=some,
        effect=st.just(Effect.GRANT),
        disclose=st.booleans(),
    )
    forcing = st.builds(
        lambda name, value, pattern: Rule(
            name, "bob", frozenset({Action.PUBLISH}), pattern, attributes=("int",), forced={"int": value}
        ),
        st.sampled_from(["r1", "r5"]),
        values(Kind.INT),
        st.sampled_from(["t.Top", "*"]),
    )
    forbidding = st.builds(
        lambda name, who, where: Rule(name, who, frozenset({Action.SUBSCRIBE}), where=where, effect=Effect.FORBID),
        st.sampled_from(["r2", "r6"]),
        WHO,
        where,
    )
    return st.one_of(plain, forcing, forbidding)


def changes() -> st.SearchStrategy[Change]:
    row = VALUE.map(lambda value: (value,))
    subscription = st.builds(
        Subscription,
        id=st.sampled_from(["s1", "s2", "s3"]),
        principal=st.sampled_from(PRINCIPALS),
        type=st.sampled_from(["t.Top", "t.Under"]),
        where=FILTER,
        history=st.booleans(),
    )
    reaching = st.builds(
        Subscription,
        id=st.sampled_from(["s1", "s2", "s3"]),
        principal=st.sampled_from(PRINCIPALS),
        type=st.just("t.Top"),
        history=st.just(True),
        since_version=st.integers(0, 3),
        since_time=st.none() | values(Kind.TIMESTAMP),
    )
    said = st.tuples(st.sampled_from(PRINCIPALS), st.sampled_from(["t.Top", "t.Under"]))
    member = st.tuples(st.sampled_from(GROUPS), WHO)
    return st.one_of(
        st.sampled_from(
            [
                DeclareType(EventType("t.Under", ADMINISTRATOR, {"more": Kind.INT}, "t.Top", ("more", "int"))),
                DeclareType(EventType("a.Other", "bob", {})),
                DeclareGroup("g3"),
                DeclareRelation("S"),
                DeclareRelation("T", open=True),
                DeclareType(EventType("t.Top", ADMINISTRATOR, {**KINDS, "gained": Kind.INT})),
                DeclareType(
                    EventType(
                        "t.Under", ADMINISTRATOR, {"more": Kind.INT, "late": Kind.BYTES}, "t.Top", ("more", "int")
                    )
                ),
                RetireType("t.Under"),
                RetireType("a.Other"),
                RemovePrincipal("été"),
                DeclarePrincipal("été"),
                RemoveGroup("g3"),
                RemoveRelation("S"),
                RemovePredicate("p"),
                SetConnect(True),
                SetConnect(False),
            ]
        ),
        st.builds(SetKey, st.sampled_from([*PRINCIPALS, ADMINISTRATOR]), st.none() | st.sampled_from(DIDS)),
        st.builds(SetDeclassified, *[st.sampled_from(["t.Top", "t.Under", "a.Other"])] * 2, st.booleans()),
        st.builds(SetOpen, st.sampled_from(["g1", "g2", "R"]), st.booleans()),
        said.map(lambda pair: Advertise(*pair)),
        said.map(lambda pair: Unadvertise(*pair)),
        st.builds(Withdraw, st.sampled_from(PRINCIPALS)),
        reaching.map(Subscribe),
        st.builds(DeclarePrincipal, st.just("été"), st.dictionaries(st.sampled_from(["rank", "x y"]), VALUE)),
        st.builds(SetAttribute, st.sampled_from(PRINCIPALS), st.sampled_from(["rank", "age"]), st.none() | VALUE),
        member.map(lambda pair: AddMember(*pair)),
        member.map(lambda pair: RemoveMember(*pair)),
        st.builds(AddRow, st.just("R"), row),
        st.builds(RemoveRow, st.just("R"), row),
        st.builds(AddRule, rules(), st.booleans()),
        st.builds(AddRule, rules(), st.booleans()),
        st.builds(RemoveRule, st.sampled_from(["r1", "r2", "r3", "r4"])),
        subscription.map(Subscribe),
        subscription.map(Subscribe),
        st.builds(Unsubscribe, st.sampled_from(["s1", "s2", "s3"])),
        st.builds(RegisterPredicate, st.sampled_from(["p", "q"]), st.just("m:f"), st.sampled_from(["01", "02"])),
    )


BATCH = st.builds(
    Batch,
    author=st.sampled_from([ADMINISTRATOR] * 5 + ["bob"]),
    changes=st.lists(changes(), max_size=3).map(tuple),
    note=st.text(max_size=5),
)


def exact(state: State) -> list[str]:
    """A state spelled out, so that `1`, `1.0` and `True` differ and order counts where it has a meaning."""
    lines = [f"version {state.version}", f"administrator {state.administrator}"]
    lines += [repr((t.name, t.owner, list(t.attributes.items()), t.parent, t.key)) for t in state.types.values()]
    lines += [repr(state.types.attributes(name)) for name in state.types]
    lines += [spelled(rule) for rule in state.rules]
    lines += sorted(repr((name, sorted(map(repr, of.items())))) for name, of in state.principals.items())
    lines += sorted(repr((name, sorted(of))) for name, of in state.groups.items())
    lines += sorted(repr((name, sorted(map(repr, of)))) for name, of in state.relations.items())
    lines += [
        repr((t.name, t.owner, list(t.attributes.items()), t.parent, t.key, t.bits, t.since, t.retired))
        for t in state.types.every.values()
    ]
    lines += sorted(state.open_names)
    lines += [*sorted(map(repr, state.keys.items())), f"connect {state.connect_open}"]
    lines += sorted(map(repr, state.advertisements)) + sorted(map(repr, state.withdrawals.items()))
    lines += sorted(map(repr, state.predicates.values()))
    return lines + sorted(map(repr, state.subscriptions.values()))


def spelled(rule: Rule) -> str:
    actions = sorted(action.value for action in rule.actions)
    forced = list(rule.forced.items())
    rest = (rule.id, rule.who, rule.type, rule.where, rule.attributes, rule.effect, rule.disclose, rule.author)
    return repr((actions, forced, rest))


def policy(state: State) -> list[str]:
    return exact(State(0, state.administrator, state.types, state.rules, state.principals, state.groups,
                       state.relations, state.open_names, state.predicates))  # fmt: skip


def attempts(ledger: Ledger, batches: Sequence[Batch]) -> Iterator[State]:
    """Commit what `apply` accepts, see that the ledger refuses the rest, and give the state after each commit."""
    state = State()
    for batch in batches:
        accepted, after, refusal = batch, state, ""
        try:
            after = apply(state, batch)
        except HeadgateError as error:
            refusal = str(error)
        if refusal:
            with pytest.raises(HeadgateError) as refused:
                ledger.commit(batch)
            assert str(refused.value) == refusal
            assert ledger.version == state.version
            accepted, after = salvaged(state, batch)
        said = preview(state, after, accepted)
        assert ledger.commit(accepted) == after.version
        assert said == ledger.difference(state.version, after.version)
        state = after
        yield after


def salvaged(state: State, batch: Batch) -> tuple[Batch, State]:
    """What is left of a batch when each change that is refused is dropped."""
    kept = Batch(ADMINISTRATOR, (), batch.note)
    after = apply(state, kept)
    for change in batch.changes:
        longer = Batch(ADMINISTRATOR, (*kept.changes, change), batch.note)
        with suppress(HeadgateError):
            kept, after = longer, apply(state, longer)
    return kept, after


@examples(6, soak=15)
@given(st.lists(BATCH, min_size=3, max_size=12), st.data())
def test_the_ledger_is_the_chain_of_apply(batches: list[Batch], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, Ledger.create(Path(folder) / "l.db") as ledger:
        chain = [State()]
        with Ledger.open(Path(folder) / "l.db") as follower:
            for state in attempts(ledger, [SETTING, *batches]):
                chain.append(state)
                if data.draw(st.booleans(), "follow"):
                    assert exact(follower.state()) == exact(state)
            assert exact(follower.state()) == exact(chain[-1])
        with Ledger.open(Path(folder) / "l.db") as again:
            again.check()
            for version, state in enumerate(chain):
                assert exact(again.state(version)) == exact(state)
                assert again.state(version) == state
                assert policy(again.state(version, subscriptions=False)) == policy(state)
            for version in data.draw(st.permutations(range(len(chain))), "looked up"):
                assert policy(again.state(version, subscriptions=False)) == policy(chain[version])
            _changes_add_up(again, chain)
            _differences_and_histories_miss_nothing(again, chain)


def _changes_add_up(ledger: Ledger, chain: list[State]) -> None:
    latest = len(chain) - 1
    for after, through in {(0, latest), (0, latest // 2), (latest // 2, latest), *pairwise(range(latest + 1))}:
        found = ledger.subscriptions(after, through)
        now = {(s.id, s.first): s for s in chain[after].subscriptions.values()}
        now.update({(s.id, s.first): s for s in found.opened})
        for name, first, closed_at in found.closed:
            assert after < closed_at <= through
            del now[name, first]
        assert now == {(s.id, s.first): s for s in chain[through].subscriptions.values()}
    changed = [v for v in range(1, latest + 1) if policy(chain[v]) != policy(chain[v - 1])]
    assert set(changed) <= set(ledger.policy_versions(0, latest))
    for through in (latest // 2, latest):
        ever = ledger.all_subscriptions(through)
        for version in range(through + 1):
            live = {s.id: s for s, ends in ever if s.first <= version and (ends is None or version < ends)}
            assert live == chain[version].subscriptions


def _differences_and_histories_miss_nothing(ledger: Ledger, chain: list[State]) -> None:
    latest = len(chain) - 1
    for a, b in ((0, latest), (1, latest), (latest, 1)):
        found = ledger.difference(a, b)
        assert found or exact(chain[a])[1:] == exact(chain[b])[1:]
        assert ledger.difference(a, a) == []
        back = [(d.kind, d.name, d.after, d.before) for d in ledger.difference(b, a)]
        assert back == [(d.kind, d.name, d.before, d.after) for d in found]
    for principal in chain[latest].principals:
        seen = {entry.version for entry in ledger.history(principal)}
        for version in range(1, latest + 1):
            if _touching(chain[version], principal) != _touching(chain[version - 1], principal):
                assert version in seen


def _touching(state: State, principal: str) -> list[str]:
    """All that bears on a principal at a version, spelled out; rules as a set, since others move their order."""
    mine = [spelled(rule) for action in Action for rule in entries(state, principal, action)]
    subscriptions = [repr(s) for s in state.subscriptions.values() if s.principal == principal]
    attributes = [repr(item) for item in state.principals.get(principal, {}).items()]
    known = [principal] if principal in state.principals else []
    return [*known, *sorted(attributes), *sorted(state.groups_of(principal)), *sorted(mine), *sorted(subscriptions)]
