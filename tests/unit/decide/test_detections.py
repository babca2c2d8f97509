"""Detections as changes: accepted like any subscription, resolved once, refused with the place (D14)."""

import pytest

from headgate.analysis.restrictions import restrict, wanted
from headgate.decide.apply import apply
from headgate.decide.deliver import Books
from headgate.lang.composite import parse_composite
from headgate.model import changes as c
from headgate.model.changes import Batch, Change
from headgate.model.composite import NullEvent, Sequence
from headgate.model.errors import BadDefinition, BadExpression, GovernDenied, HeadgateError, SubscribeDenied
from headgate.model.limits import MAX_COMPOSITE_CHARS, MAX_COMPOSITE_PARTS
from headgate.model.rights import Action, Detection, Rule, Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import SIGNAL, EventType
from headgate.model.values import EPOCH, Kind, Value

SEEN = EventType("lab.Seen", "owner", {"badge": Kind.STRING, "room": Kind.STRING})
LEFT = EventType("lab.Left", "owner", {"badge": Kind.STRING})
CHANGES: tuple[Change, ...] = (
    *(c.DeclarePrincipal(name) for name in ("owner", "ann", "bob")),
    c.DeclareType(SEEN),
    c.DeclareType(LEFT),
    c.DeclareGroup("staff", open=True),
    c.DeclareGroup("secret"),
    c.DeclareRelation("Owns", open=True),
    c.AddRow("Owns", ("ann", "b1")),
)


def began() -> State:
    return apply(State(), Batch(ADMINISTRATOR, CHANGES))


def detect(text: str, id: str = "d", principal: str = "ann", **bound: Value) -> Change:
    detection = Detection(text, parse_composite(text), bound, EPOCH)
    return c.Subscribe(Subscription(id, principal, SIGNAL, detection=detection))


def test_names_are_resolved_when_it_is_accepted() -> None:
    state = apply(began(), Batch("ann", (detect("$Seen(b, 'T14'); Left(b)"),)))
    made = state.subscriptions["d"]
    assert (made.first, made.types) == (2, ("lab.Seen", "lab.Left"))
    later = apply(state, Batch(ADMINISTRATOR, (c.DeclareType(EventType("other.Seen", "owner", {})),)))
    assert later.subscriptions["d"] is made
    with pytest.raises(BadExpression, match="may be"):
        apply(later, Batch("ann", (detect("Seen(b, r)", "e"),)))


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("$Seen(b, r);\n Gone(b)", "line 2, column 2", "no event type"),
        ("Seen(b)", "line 1, column 1", "2 parameters"),
        ("Seen(b, 7)", "line 1, column 1", "string"),
        ("Seen(b, r) {b in group secret}", "line 1", "no open group"),
        ("Seen(b, r) {Unknown(b)}", "line 1", "no open relation"),
        ("Seen(b, r) {x = 'a'}", "line 1", "not surely bound"),
    ],
)
def test_what_does_not_resolve_is_refused_with_its_place(text: str, place: str, words: str) -> None:
    with pytest.raises(BadExpression, match=words) as refused:
        apply(began(), Batch("ann", (detect(text),)))
    assert (refused.value.place or "").startswith(place)


@pytest.mark.parametrize("bound", [{"b": None}, {"b": 7}, {"at": "x"}, {"": "x"}, {"b": "\ud800"}])
def test_what_is_bound_is_a_value_of_the_right_kind(bound: dict[str, Value]) -> None:
    with pytest.raises(HeadgateError):
        apply(began(), Batch("ann", (detect("Seen(b, r)", **bound),)))


def test_what_is_bound_need_not_stand_in_the_expression() -> None:
    state = apply(began(), Batch("ann", (detect("Seen(b, r)", b="b1", site="north"),)))
    (made,) = (one.detection for one in state.subscriptions.values() if one.detection is not None)
    assert made.bound == {"b": "b1", "site": "north"}  # which its signals show


def test_limits_hold_for_trees_that_no_text_was_read_for() -> None:
    tree = NullEvent()
    for _ in range(100):
        tree = Sequence(tree, NullEvent())  # type: ignore[assignment]
    every = [Detection("null", tree), Detection(" " * MAX_COMPOSITE_CHARS + "null", NullEvent())]
    every.append(Detection("null", NullEvent(), {f"x{n}": n for n in range(MAX_COMPOSITE_PARTS + 1)}))
    for detection in every:
        with pytest.raises(BadExpression, match="MAX_"):
            apply(began(), Batch("ann", (c.Subscribe(Subscription("d", "ann", SIGNAL, detection=detection)),)))


def test_nobody_detects_as_somebody_else() -> None:
    with pytest.raises(SubscribeDenied):
        apply(began(), Batch("bob", (detect("Seen(b, r)"),)))


def test_events_and_signals_do_not_mix() -> None:
    detection = Detection("null", NullEvent())
    for type, given in ((SIGNAL, None), ("lab.Seen", detection)):
        with pytest.raises(BadDefinition, match="mixes"):
            Subscription("d", "ann", type, detection=given)


def test_no_type_is_called_as_signals_are() -> None:
    with pytest.raises(BadDefinition, match="signals"):
        apply(began(), Batch(ADMINISTRATOR, (c.DeclareType(EventType(SIGNAL, "owner", {})),)))


@pytest.mark.parametrize(
    "change", [c.SetOpen("staff", False), c.RemoveGroup("staff"), c.SetOpen("Owns", False), c.RemoveRelation("Owns")]
)
def test_what_a_test_looks_at_stays_open(change: Change) -> None:
    state = apply(began(), Batch("ann", (detect("Seen(b, r) {b in group staff or Owns('ann', b)}"),)))
    with pytest.raises(BadDefinition, match="names the"):
        apply(state, Batch(ADMINISTRATOR, (change,)))
    gone = apply(state, Batch("ann", (c.Unsubscribe("d"),)))
    assert apply(gone, Batch(ADMINISTRATOR, (change,))).version == 4


def allowed(type: str) -> Change:
    return c.AddRule(Rule(f"may {type}", "ann", frozenset({Action.SUBSCRIBE}), type))


def test_publishers_are_not_quenched_while_a_detection_looks_at_their_type() -> None:
    state = apply(began(), Batch(ADMINISTRATOR, (allowed("lab.*"),)))
    assert not wanted(state, "lab.Left")
    state = apply(state, Batch("ann", (detect("$Seen(b, r); Left(b)"),)))
    assert wanted(state, "lab.Left")
    assert wanted(state, "lab.Seen")


def test_what_a_detection_comes_to_is_told_type_by_type() -> None:
    state = apply(began(), Batch(ADMINISTRATOR, (allowed("lab.Seen"),)))
    state = apply(state, Batch("ann", (detect("$Seen(b, r); Left(b)"), detect("AbsTime(5)", "timer"))))
    books = Books(state, lambda _: state, lambda _: {})
    told = restrict("ann", "d", state.subscriptions["d"], state.version, books)
    assert [(one.name, one.reason is None) for one in told.types] == [("lab.Seen", True), ("lab.Left", False)]
    for id in ("d", "timer"):
        with pytest.raises(GovernDenied):
            restrict("bob", id, state.subscriptions[id], state.version, books)
