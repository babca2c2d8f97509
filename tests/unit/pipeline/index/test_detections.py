"""The two indexes: subscriptions to events in one, detections in the other, under the same numbers."""

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.deliver import decide, seen_by
from headgate.lang import parse_condition
from headgate.lang.composite import parse_composite
from headgate.model.changes import (
    AddRule,
    Batch,
    DeclarePrincipal,
    DeclareType,
    RemoveRule,
    SetAttribute,
    Subscribe,
    Unsubscribe,
)
from headgate.model.composite import Composite
from headgate.model.events import Event
from headgate.model.rights import Action, Detection, Rule, Subscription
from headgate.model.types import SIGNAL, EventType
from headgate.model.values import EPOCH, Kind, Value
from headgate.pipeline.index.build import IndexBuilder
from headgate.pipeline.log.codec import event_batch
from headgate.pipeline.match import DecisionWindow, Matcher
from strategies.composites import TYPES, accepted
from strategies.memory import MemoryLedger, MemoryLog
from strategies.running import examples

SUBTYPE = EventType("lab.Deep", "owner", {"z": Kind.FLOAT}, "lab.A")


def detect(id: str, c: Composite | str, **given: object) -> Subscribe:
    composite = parse_composite(c) if isinstance(c, str) else c
    made = Subscription(id, "ann", SIGNAL, detection=Detection("...", composite), **given)  # type: ignore[arg-type]
    return Subscribe(made)


def begun() -> MemoryLedger:
    ledger = MemoryLedger()
    declared = [DeclareType(type) for type in (*TYPES, SUBTYPE)]
    ledger.commit(Batch(ledger.now.administrator, (DeclarePrincipal("owner"), DeclarePrincipal("ann"), *declared)))
    return ledger


def allow(ledger: MemoryLedger, id: str, type: str = "*", *attributes: str, where: str = "true") -> None:
    rule = Rule(id, "ann", frozenset({Action.SUBSCRIBE}), type, parse_condition(where), attributes or None)
    ledger.commit(Batch(ledger.now.administrator, (AddRule(rule),)))


def published(ledger: MemoryLedger, log: MemoryLog, *events: tuple[str, dict[str, Value]]) -> None:
    drafts = [
        Event(
            f"e{n}",
            "owner",
            f"lab.{name}",
            {**dict.fromkeys(ledger.now.types.attributes(f"lab.{name}")), **values},
            EPOCH,
        )
        for n, (name, values) in enumerate(events)
    ]
    log.append("main", ledger.now, 5, drafts)


def matched(ledger: MemoryLedger, log: MemoryLog, *, detections: bool) -> set[tuple[str, int, int]]:
    index = IndexBuilder(ledger, detections=detections).index(0, ledger.version)
    types = index.types
    batch = event_batch(log.batches, types.numbers, dict(zip(types.names, types.layouts, strict=True)), types.words)
    found = Matcher(index, {}).match(batch, DecisionWindow(0, ledger.version))
    every = ledger.every_subscription()
    pairs = [
        (every[number], int(event)) for event, number in zip(found.events, found.subscriptions.tolist(), strict=True)
    ]
    assert len(set(map(repr, pairs))) == len(pairs)
    return {(one.id, one.first, log.events[event].seq) for one, event in pairs}


def expected(
    ledger: MemoryLedger, events: Iterable[Event], subscriptions: Sequence[Subscription]
) -> set[tuple[str, int, int]]:
    return {
        (one.id, one.first, event.seq)
        for one in subscriptions
        for event in events
        if seen_by(event, one, ledger.state, {}) is not None
    }


def test_no_event_is_ever_delivered_to_a_detection() -> None:
    ledger, log = begun(), MemoryLog()
    allow(ledger, "all")
    ledger.commit(
        Batch("ann", (detect("d", "$A(x); B(x)", history=True), Subscribe(Subscription("s", "ann", "lab.A"))))
    )
    published(ledger, log, ("A", {"x": 1}), ("B", {"x": 1}), ("C", {"x": 1}))
    assert matched(ledger, log, detections=False) == {("s", 3, 1)}
    assert matched(ledger, log, detections=True) == {("d", 3, 1), ("d", 3, 2)}
    (detection, _) = ledger.every_subscription()
    assert all(decide(event, detection, ledger.state, {}) is None for event in log.events)


def test_a_detection_without_templates_sees_nothing() -> None:
    ledger, log = begun(), MemoryLog()
    allow(ledger, "all")
    ledger.commit(Batch("ann", (detect("d", "AbsTime(5)"),)))
    published(ledger, log, ("A", {"x": 1}))
    assert matched(ledger, log, detections=True) == set()


def test_literals_are_looked_at_in_the_view() -> None:
    ledger, log = begun(), MemoryLog()
    allow(ledger, "all", "lab.C", "y")
    ledger.commit(Batch("ann", (detect("hidden", "C(1, *)"), detect("shown", "C(*, 2)"), detect("any", "C(*, *)"))))
    published(ledger, log, ("C", {"x": 1, "y": 2}), ("C", {"x": 1, "y": None}), ("C", {"x": 1, "y": 3}))
    assert matched(ledger, log, detections=True) == {("shown", 3, 1), *(("any", 3, seq) for seq in (1, 2, 3))}


def test_a_row_of_an_active_table_that_no_longer_fits_is_seen_too() -> None:
    ledger, log = begun(), MemoryLog()
    allow(ledger, "all")
    ledger.commit(Batch("ann", (detect("d", "Row(1, 2)"),)))
    published(ledger, log, ("Row", {"x": 1, "y": 2}), ("Row", {"x": 1, "y": 3}))
    assert matched(ledger, log, detections=True) == {("d", 3, 1), ("d", 3, 2)}


_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "C", "Row", "Deep"]),
        st.fixed_dictionaries({name: st.sampled_from([1, 2, 3, None]) for name in ("x", "y", "z")}),
    ),
    min_size=1,
    max_size=6,
)


@examples(60)
@given(st.data())
def test_the_index_of_detections_finds_what_the_rules_say(data: st.DataObject) -> None:
    ledger, log = begun(), MemoryLog()
    admin = ledger.now.administrator

    def publish() -> None:
        drawn = data.draw(_EVENTS)
        named = [
            (name, {k: v for k, v in values.items() if k in ledger.now.types.attributes(f"lab.{name}")})
            for name, values in drawn
        ]
        published(ledger, log, *named)

    publish()
    for step in range(data.draw(st.integers(1, 4))):
        match data.draw(st.sampled_from(["detect", "detect", "allow", "allow", "forbid", "end", "trust"])):
            case "detect":
                history = data.draw(st.booleans())
                requires = parse_condition("$trusted = true") if data.draw(st.integers(0, 3)) == 0 else None
                ledger.commit(
                    Batch(
                        "ann",
                        (detect(f"d{step}", data.draw(accepted(blocks=True)), history=history, requires=requires),),
                    )
                )
            case "allow":
                shown = data.draw(st.sampled_from([(), ("x",), ("y",)]))
                type = "lab.C" if shown else data.draw(st.sampled_from(["*", "lab.A", "lab.Row"]))
                allow(ledger, f"r{step}", type, *shown)
            case "forbid":
                allow(ledger, f"r{step}", "lab.A", where="x = 2")
                if data.draw(st.booleans()):
                    ledger.commit(Batch(admin, (RemoveRule(f"r{step}"),)))
            case "trust":
                ledger.commit(Batch(admin, (SetAttribute("owner", "trusted", True),)))
            case "end" if ledger.now.subscriptions:
                ledger.commit(Batch("ann", (Unsubscribe(min(ledger.now.subscriptions)),)))
        publish()
    every = ledger.every_subscription()
    assert matched(ledger, log, detections=True) == expected(ledger, log.events, every)
    assert matched(ledger, log, detections=False) == set()
