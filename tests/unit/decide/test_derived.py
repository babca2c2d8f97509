"""What a detection may publish or add is settled when it is made (D15)."""

import itertools

import pytest

from headgate.analysis.advice import Advice, Concern, more_readers, not_declassified
from headgate.decide.apply import apply
from headgate.decide.derived import derived_event, derived_id, derived_row
from headgate.decide.publish import admit
from headgate.lang.composite import parse_composite, parse_row
from headgate.model import changes as c
from headgate.model.changes import Batch, Change
from headgate.model.errors import (
    BadDefinition,
    BadExpression,
    FeedsItself,
    GovernDenied,
    HeadgateError,
    PublishDenied,
    UnknownName,
    UnknownType,
)
from headgate.model.rights import Action, Detection, Rule, Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import CONTRIBUTORS, DECLASSIFIED, SIGNAL, EventType, Times
from headgate.model.values import EPOCH, Kind

STATED = Times(stated=True)
TYPES = (
    EventType("t.A", "owner", {"x": Kind.STRING}, times=STATED),
    EventType("t.B", "owner", {"x": Kind.STRING}, times=STATED),
    EventType("t.C", "owner", {"x": Kind.STRING}, times=STATED),
    EventType("t.Below", "owner", {"n": Kind.INT}, parent="t.A"),
    EventType("t.Clock", "owner", {"x": Kind.STRING}),
    EventType("t.Sum", "owner", {"x": Kind.STRING, "total": Kind.FLOAT}, times=STATED),
    EventType("t.Count", "owner", {"count": Kind.STRING}, times=STATED),
    EventType("t.Other", "owner", {"x": Kind.STRING}, times=STATED),
)
CHANGES: tuple[Change, ...] = (
    *(c.DeclarePrincipal(name) for name in ("owner", "svc", "bob")),
    *map(c.DeclareType, TYPES),
    c.DeclareRelation("failed", open=True),
    c.DeclareRelation("pairs"),
    c.AddRow("pairs", ("a", 1)),
    *(
        c.AddRule(Rule(f"p-{who}-{one.name}", who, frozenset({Action.PUBLISH}), one.name))
        for who in ("svc", "bob")
        for one in TYPES[:-1]
    ),
)


def began(*more: Change) -> State:
    return apply(State(), Batch(ADMINISTRATOR, (*CHANGES, *more)))


def made(text: str, publishes: str | None = None, adds: str | None = None, id: str = "d", who: str = "svc") -> Change:
    row = None if adds is None else parse_row(adds)
    detection = Detection(text, parse_composite(text), {}, EPOCH, publishes, row)
    return c.Subscribe(Subscription(id, who, SIGNAL, detection=detection))


def test_what_is_surely_bound_is_published() -> None:
    state = apply(began(), Batch("svc", (made("$A(x)", "t.B"),)))
    one = state.subscriptions["d"]
    draft = derived_event(one, "s1", EPOCH, {"x": "v", "y": 1}, (("main", 1, 1),), state.types)
    assert (draft.publisher, draft.type, draft.values) == ("svc", "t.B", {"x": "v"})
    assert draft.contributors == (("main", 1, 1),)
    assert draft.id == derived_id(one, "s1") != derived_id(one, "s2")
    apply(began(), Batch("svc", (made("$A(x) {total <- 1}", "t.Sum"),)))  # an int is taken for a float


@pytest.mark.parametrize(
    ("text", "publishes", "kind", "words"),
    [
        ("$A(y)", "t.B", BadDefinition, "no variable `x` is surely bound"),
        ("$A(x) | B(y)", "t.C", BadDefinition, "no variable `x` is surely bound"),
        ("count ($A(x) - B(x))", "t.Count", BadDefinition, "of kind int"),
        ("$A(x)", "t.Clock", BadDefinition, "times: publisher"),
        ("$A(x)", "t.Missing", UnknownType, "no event type"),
        ("$A(x)", "t.Other", PublishDenied, "no right to publish"),
    ],
)
def test_what_cannot_be_published_is_refused(text: str, publishes: str, kind: type[HeadgateError], words: str) -> None:
    with pytest.raises(kind, match=words):
        apply(began(), Batch("svc", (made(text, publishes),)))


def test_the_place_of_what_is_missing_is_told() -> None:
    with pytest.raises(BadDefinition) as refused:
        apply(began(), Batch("svc", (made("$A(y)", "t.B"),)))
    assert refused.value.place == "attribute `x` of `t.B`"


# -- loops ------------------------------------------------------------------------------------------------------

LOOPS = (
    [("$A(x)", "t.A")],
    [("$A(x)", "t.B"), ("$B(x)", "t.A")],
    [("$A(x)", "t.B"), ("$B(x)", "t.C"), ("$C(x)", "t.A")],
    [("$A(x)", "t.B"), ("$B(x) {n <- 1}", "t.Below")],  # of a subtype of what the first looks at
    [("$A(x) - C(x)", "t.B"), ("$B(x)", "t.C")],
)


@pytest.mark.parametrize("loop", LOOPS, ids=len)
def test_a_loop_is_refused_in_whatever_order_it_is_made(loop: list[tuple[str, str]]) -> None:
    for order in itertools.permutations(range(len(loop))):
        state = began()
        for place, at in enumerate(order):
            change = made(*loop[at], id=f"d{at}", who=("svc", "bob")[at % 2])
            batch = Batch(ADMINISTRATOR, (change,))
            if place == len(loop) - 1:
                with pytest.raises(FeedsItself) as refused:
                    apply(state, batch)
                assert all(f"`d{one}` publishes `{loop[one][1]}`" in refused.value.message for one in order)
            else:
                state = apply(state, batch)


def test_others_are_not_told_whose_detections_a_loop_goes_through() -> None:
    state = apply(began(), Batch("bob", (made("$B(x)", "t.A", id="secret", who="bob"),)))
    with pytest.raises(FeedsItself) as refused:
        apply(state, Batch("svc", (made("$A(x)", "t.B"),)))
    assert "secret" not in refused.value.message
    assert "a detection of another principal publishes `t.A`" in refused.value.message


def test_what_leads_nowhere_back_is_no_loop() -> None:
    state = began()
    for at, (text, type) in enumerate([("$A(x)", "t.B"), ("$B(x)", "t.C"), ("$A(x) | B(x)", "t.C")]):
        state = apply(state, Batch("svc", (made(text, type, id=f"d{at}"),)))
    ended = apply(state, Batch("svc", (c.Unsubscribe("d1"), c.Unsubscribe("d2"), made("$C(x)", "t.A", id="back"))))
    assert "back" in ended.subscriptions


# -- relations --------------------------------------------------------------------------------------------------


def test_the_administrator_lets_a_detection_add_rows() -> None:
    state = apply(began(), Batch(ADMINISTRATOR, (made("$A(x)", adds="failed(x, 'login')"),)))
    detection = state.subscriptions["d"].detection
    assert detection is not None
    assert detection.adds is not None
    assert derived_row(detection.adds, {"x": "v"}) == c.AddRow("failed", ("v", "login"))
    with pytest.raises(BadDefinition, match="adds rows"):
        apply(state, Batch(ADMINISTRATOR, (c.RemoveRelation("failed"),)))


@pytest.mark.parametrize(
    ("author", "adds", "kind", "words"),
    [
        ("svc", "failed(x)", GovernDenied, "does not govern"),
        (ADMINISTRATOR, "missing(x)", UnknownName, "no relation"),
        (ADMINISTRATOR, "failed(y)", BadDefinition, "surely bound"),
        (ADMINISTRATOR, "pairs(x)", BadDefinition, "takes 2 values"),
    ],
)
def test_what_cannot_be_added_is_refused(author: str, adds: str, kind: type[HeadgateError], words: str) -> None:
    with pytest.raises(kind, match=words):
        apply(began(), Batch(author, (made("$A(x)", adds=adds),)))


def test_it_publishes_or_adds() -> None:
    with pytest.raises(BadDefinition, match="not both"):
        apply(began(), Batch(ADMINISTRATOR, (made("$A(x)", "t.B", "failed(x)"),)))


@pytest.mark.parametrize("text", ["$failed(x)", "failed(x); failed(x)", "failed(*)", "failed(x) {x = 1}", "null", "("])
def test_a_row_is_a_relation_with_values(text: str) -> None:
    with pytest.raises(BadExpression):
        parse_row(text)


def test_what_publishes_a_retired_type_ends() -> None:
    state = apply(began(), Batch("svc", (made("$A(x)", "t.B"),)))
    assert not apply(state, Batch(ADMINISTRATOR, (c.RetireType("t.B"),))).subscriptions


def test_who_may_read_more_than_what_it_is_made_of_is_told() -> None:
    reads = frozenset({Action.SUBSCRIBE})
    rules = [("bob", "t.A"), ("bob", "t.B"), ("owner", "t.B")]
    state = began(*(c.AddRule(Rule(f"r{n}", who, reads, type)) for n, (who, type) in enumerate(rules)))
    assert list(more_readers(state)) == []
    made_it = apply(state, Batch("svc", (made("$A(x)", "t.B"),)))
    assert list(more_readers(made_it)) == [Advice(Concern.MORE_READERS, ("owner",), type="t.B")]
    bounded = c.DeclareType(EventType("t.B", "owner", {"x": Kind.STRING}, times=STATED, derived=CONTRIBUTORS))
    assert list(more_readers(apply(made_it, Batch(ADMINISTRATOR, (bounded,))))) == []


DISCLOSES = EventType("t.D", "svc", {"x": Kind.STRING}, times=STATED, derived=DECLASSIFIED)


def test_whoever_governs_a_type_declassifies_it_for_one_that_is_there() -> None:
    state = began(c.DeclareType(DISCLOSES))
    for author in ("owner", ADMINISTRATOR):
        after = apply(state, Batch(author, (c.SetDeclassified("t.A", "t.D"),)))
        assert after.types["t.A"].declassified_for == {"t.D"}
        again = apply(after, Batch(author, (c.SetDeclassified("t.A", "t.D", False),)))
        assert again.types == state.types
    for author in ("svc", "bob"):  # that of the derived type discloses nothing of others
        with pytest.raises(GovernDenied):
            apply(state, Batch(author, (c.SetDeclassified("t.A", "t.D"),)))
    for change in (c.SetDeclassified("t.A", "t.Missing"), c.SetDeclassified("t.Missing", "t.D")):
        with pytest.raises(UnknownType):
            apply(state, Batch(ADMINISTRATOR, (change,)))


def test_a_declared_type_is_declassified_for_what_its_batch_declares() -> None:
    late = EventType("t.New", "owner", {"x": Kind.STRING}, declassified_for=frozenset({"t.D"}))
    both = c.DeclareType(late), c.DeclareType(DISCLOSES)
    for order in (both, both[::-1]):
        assert began(*order).types["t.New"].declassified_for == {"t.D"}
    with pytest.raises(UnknownType):  # whoever declares it first would have it
        began(both[0])


def test_what_a_detection_looks_at_must_be_declassified_itself_or_by_what_is_above() -> None:
    state = apply(
        began(c.DeclareType(DISCLOSES), c.AddRule(Rule("d", "svc", frozenset({Action.PUBLISH}), "t.D"))),
        Batch("svc", (made("$Below(x, n) - C(x)", "t.D"),)),
    )
    draft = derived_event(state.subscriptions["d"], "s", EPOCH, {"x": "v"}, (), state.types)
    for change, left in (
        (None, ("t.Below", "t.C")),
        (c.SetDeclassified("t.A", "t.D"), ("t.C",)),
        (c.SetDeclassified("t.C", "t.B"), ("t.C",)),
        (c.SetDeclassified("t.C", "t.D"), ()),
        (c.SetDeclassified("t.A", "t.D", False), ("t.Below",)),
    ):
        state = state if change is None else apply(state, Batch("owner", (change,)))
        expected = [Advice(Concern.NOT_DECLASSIFIED, left, type="t.D")] if left else []
        assert list(not_declassified(state)) == expected
        if left:
            with pytest.raises(PublishDenied, match=f"made of `{left[0]}`"):
                admit(state, draft, now=EPOCH, predicates={})
        else:
            assert admit(state, draft, now=EPOCH, predicates={}).made_of == ("t.Below", "t.C")


def test_what_owners_declassified_is_not_warned_of() -> None:
    reads = c.AddRule(Rule("r", "bob", frozenset({Action.SUBSCRIBE}), "t.B"))
    state = apply(began(reads), Batch("svc", (made("$A(x)", "t.B"),)))
    assert list(more_readers(state)) == [Advice(Concern.MORE_READERS, ("bob",), type="t.B")]
    assert list(more_readers(apply(state, Batch("owner", (c.SetDeclassified("t.A", "t.B"),))))) == []
