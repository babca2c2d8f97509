"""What detections signal is published and added exactly once, wherever it is cut off; and what they promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from headgate.analysis.explain import Declassified, Question
from headgate.commands.deriving import Deriver, begin_publishing
from headgate.commands.explaining import explain
from headgate.commands.publishing.local import LocalPublisher
from headgate.commands.publishing.stream_writer import CLOCK, StreamWriter
from headgate.decide.deliver import decide
from headgate.decide.derived import DERIVED, derived_id, may_hold
from headgate.lang import parse_condition
from headgate.lang.composite import parse_composite, parse_row
from headgate.model import changes as c
from headgate.model.changes import Batch
from headgate.model.errors import BadDefinition, LimitReached, PublishDenied, StorageBusy
from headgate.model.events import Draft, Event
from headgate.model.rights import Action, Detection, Rule, Subscription
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import CONTRIBUTORS, DECLASSIFIED, SIGNAL, EventType, Times
from headgate.model.values import Kind, micros, moment
from headgate.node.derived_progress import DerivedProgress, derived_through, refused_signals
from headgate.node.domain import Domain, Follower
from headgate.node.health import HealthWatch, horizon_lags, waits_for
from headgate.pipeline.detect.signals import SIGNALS, SignalRow, stored_signals
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.log.promises import Promised
from strategies.clocks import NOON, Hands
from strategies.deciding import write_signals

SECOND = timedelta(seconds=1)
STATED = Times(stated=True)


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def domain(tmp_path: Path) -> Iterator[Domain]:
    with Domain.create(tmp_path / "d") as made:
        made.commit(
            Batch(
                ADMINISTRATOR,
                (
                    *(c.DeclarePrincipal(name) for name in ("svc", "bob")),
                    c.DeclareType(EventType("t.A", "bob", {"x": Kind.STRING}, times=STATED)),
                    c.DeclareType(EventType("t.B", "svc", {"x": Kind.STRING}, times=STATED)),
                    c.DeclareRelation("failed", open=True),
                    c.AddRule(Rule("b", "svc", frozenset({Action.PUBLISH}), "t.B")),
                    c.AddRule(Rule("a", "bob", frozenset({Action.PUBLISH}), "t.A")),
                ),
            )
        )
        yield made


Open = Callable[[], Deriver]


@pytest.fixture
def open_deriver(domain: Domain, clock: Hands) -> Iterator[Open]:
    opened: list[tuple[Deriver, Follower, EventLog]] = []

    def make() -> Deriver:
        known, log = Follower(domain), EventLog.open(domain.paths.log)
        writer = StreamWriter(domain, known, log, DERIVED, clock=clock, promise=CLOCK)
        progress = DerivedProgress(domain.paths.directory / DerivedProgress.FILE)
        opened.append((Deriver(domain, known, writer, progress, promise_every=1.0), known, log))
        return opened[-1][0]

    yield make
    for one in opened:
        for part in one:
            part.close()


def detect(domain: Domain, text: str = "$A(x)", id: str = "d", adds: str | None = None) -> int:
    """Make a detection; its number."""
    state = domain.ledger.state()
    publishes = "t.B" if adds is None else None
    start = NOON
    if publishes:
        start = begin_publishing(domain, domain.log, state, "svc", publishes, NOON, by_clock=True)
    row = None if adds is None else parse_row(adds)
    one = Subscription(id, "svc", SIGNAL, detection=Detection(text, parse_composite(text), {}, start, publishes, row))
    domain.commit(Batch(ADMINISTRATOR, (c.Subscribe(one),)))
    return next(n for n, made in domain.ledger.detections(0, domain.ledger.version).opened if made.id == id)


def signal(number: int, at: int) -> SignalRow:
    return SignalRow(number, NOON + at * SECOND, (("x", f"v{at}"),), (("main", at, 1),))


def derived(domain: Domain) -> list[Event]:
    return [event for event in domain.events() if event.stream == DERIVED]


def test_each_signal_is_one_event_at_its_time_with_what_it_rests_on(domain: Domain, open_deriver: Open) -> None:
    number = detect(domain)
    write_signals(domain, [signal(number, at) for at in (1, 2)])
    deriver = open_deriver()
    deriver.round()
    deriver.round()
    write_signals(domain, [signal(number, 3), SignalRow(number, NOON, ((LimitReached.code, "too many"),))])
    deriver.round()
    found = derived(domain)
    assert [(one.values["x"], one.publisher, one.type) for one in found] == [(f"v{n}", "svc", "t.B") for n in (1, 2, 3)]
    assert [one.occurred for one in found] == [NOON + n * SECOND for n in (1, 2, 3)]
    assert [one.contributors for one in found] == [(("main", n, 1),) for n in (1, 2, 3)]
    assert derived_through(domain.paths) == 4


@pytest.mark.parametrize("adds", [None, "failed(x)"])
@pytest.mark.parametrize("lost", range(5))
def test_what_is_cut_off_anywhere_is_done_once(domain: Domain, open_deriver: Open, adds: str | None, lost: int) -> None:
    number = detect(domain, adds=adds)
    before = domain.ledger.version + (0 if adds else 1)  # the advertisement
    left = lost
    for at in range(1, 5):
        write_signals(domain, [signal(number, at)])
        deriver = open_deriver()  # as after a crash, long after anything is known by its id

        def done(*_: object) -> None:
            raise StorageBusy("as if the process had been killed")

        if left == 0:
            deriver._progress.done = done  # type: ignore[method-assign]
            with pytest.raises(StorageBusy):
                deriver.round()
        else:
            deriver.round()
        left -= 1
    last = open_deriver()
    last._writer._window = 0
    last.round()
    if adds is None:
        assert [one.values["x"] for one in derived(domain)] == [f"v{at}" for at in range(1, 5)]
    else:
        assert domain.ledger.state().relations["failed"] == {(f"v{at}",) for at in range(1, 5)}
    assert domain.ledger.version == before + (4 if adds else 0)  # a version for each row, and no more


def test_a_row_that_is_there_makes_no_version(domain: Domain, open_deriver: Open) -> None:
    number = detect(domain, adds="failed(x)")
    deriver, before = open_deriver(), domain.ledger.version
    for at in (1, 1, 2):
        write_signals(domain, [SignalRow(number, NOON + domain.ledger.version * SECOND, (("x", f"v{at}"),))])
        deriver.round()
    assert domain.ledger.version == before + 2
    domain.commit(Batch(ADMINISTRATOR, (c.RemoveRow("failed", ("v1",)),)))
    write_signals(domain, [signal(number, 1)])
    deriver.round()
    assert domain.ledger.state().relations["failed"] == {("v1",), ("v2",)}
    assert not refused_signals(domain.paths)


def test_what_detections_publish_is_held_back_by_what_they_look_at(domain: Domain, clock: Hands) -> None:
    LocalPublisher(domain).hold("main")
    domain.log.promise_stream("main", micros(NOON), micros(NOON))
    detect(domain)
    domain.log.promise("main", "bob", {"t.A": STATED}, micros(NOON), micros(NOON))
    clock.now = NOON + 60 * SECOND
    domain.log.promise_stream("main", micros(clock.now), micros(clock.now))
    state = domain.ledger.state()
    lags = horizon_lags(domain.log.horizons(), state.types, NOON + 60 * SECOND)
    (mine,) = [one for one in lags if (one.stream, one.publisher) == (DERIVED, "svc")]
    cause = waits_for(mine, lags, state)
    assert cause is not None
    assert (cause.stream, cause.type, cause.publisher) == ("main", "t.A", "bob")
    assert all(waits_for(one, lags, state) is None for one in lags if one is not mine)


def test_the_note_of_somebody_else_stands_for_no_row(domain: Domain, open_deriver: Open) -> None:
    number = detect(domain, adds="failed(x)")
    write_signals(domain, [signal(number, 1)])
    (stored,) = [one for blob in domain.signals.blobs(SIGNALS) if blob.blob for one in stored_signals(blob.blob)]
    note = f"signal {derived_id(domain.ledger.state().subscriptions['d'], stored.id)}"
    domain.commit(Batch("bob", (c.Advertise("bob", "t.A"),), note))
    open_deriver().round()
    assert domain.ledger.state().relations["failed"] == {("v1",)}
    assert [one.author for one in domain.ledger.versions(0) if one.note == note] == ["bob", ADMINISTRATOR]


def test_what_is_refused_is_told_and_passed_over(domain: Domain, open_deriver: Open) -> None:
    number = detect(domain)
    write_signals(domain, [signal(number, 1)])
    deriver = open_deriver()
    deriver.round()
    domain.commit(Batch(ADMINISTRATOR, (c.RemoveRule("b"),)))
    write_signals(domain, [signal(number, 2), signal(number, 3)])
    deriver.round()
    (refused,) = refused_signals(domain.paths)
    assert (refused.subscription, refused.code, refused.count) == ("d", PublishDenied.code, 2)
    domain.commit(Batch(ADMINISTRATOR, (c.AddRule(Rule("b", "svc", frozenset({Action.PUBLISH}), "t.B")),)))
    write_signals(domain, [signal(number, 4)])
    deriver.round()
    assert [one.values["x"] for one in derived(domain)] == ["v1", "v4"]


def test_nobody_joins_without_the_right(domain: Domain) -> None:
    with pytest.raises(PublishDenied):
        begin_publishing(domain, domain.log, domain.ledger.state(), "bob", "t.B", NOON, by_clock=True)
    assert DERIVED not in domain.log.tails()


def promised(domain: Domain) -> datetime:
    horizons: Promised = domain.log.horizons()
    return moment(horizons.of(DERIVED, "t.B", STATED))


def test_what_can_be_signalled_no_more_is_promised(domain: Domain, open_deriver: Open, clock: Hands) -> None:
    publisher = LocalPublisher(domain)
    publisher.hold("main")
    domain.log.promise_stream("main", micros(NOON), micros(NOON))
    detect(domain)
    deriver = open_deriver()
    deriver.round()
    assert promised(domain) == NOON  # where it joined
    domain.log.promise("main", "bob", {"t.A": STATED}, micros(NOON + 5 * SECOND), micros(NOON))
    clock.now = NOON + 60 * SECOND
    domain.log.promise_stream("main", micros(NOON + 5 * SECOND), micros(clock.now))
    for _ in range(3):
        deriver.round()
    assert promised(domain) == NOON  # detections have not read that far
    write_signals(domain)
    deriver.round()
    write_signals(domain)
    deriver.round()
    assert promised(domain) == NOON + 5 * SECOND
    domain.commit(Batch("svc", (c.Unsubscribe("d"),)))
    deriver.round()
    assert promised(domain) == NOON + 5 * SECOND  # it may still signal what was before its end
    write_signals(domain)
    deriver.round()
    write_signals(domain)
    deriver.round()
    assert promised(domain) == clock.now  # nobody is left who would publish it


def test_a_promise_of_ones_own_is_no_promise_for_ones_detection(domain: Domain) -> None:
    detect(domain)
    publisher = LocalPublisher(domain)
    publisher.publish(Draft("e", "svc", "t.B", {"x": "by hand"}, time=NOON))
    log = domain.log
    log.promise(DERIVED, "svc", {"t.B": STATED}, micros(NOON + SECOND), micros(NOON), everywhere=False)
    with closing(EventLog.open(domain.paths.log, read_only=True)) as read:
        assert read.horizons().joined.get(("main", "t.B"), {}).get("svc", 0) < micros(NOON + SECOND)


@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("$A(x) - B(x)", False),
        ("max x ($A(x) - B(x))", True),
        ("$B(x); count ($A(x) - B(x))", False),
        ("$A(x) - count ($A(x) - B(x))", True),
        ("first (count ($A(x) - B(x)))", True),
        ("A(x); {Probability = 0.9} B(x)", False),
        ("A(x) - {Delay = 3} B(x)", False),
    ],
)
def test_which_detections_may_hold_what_is_past(text: str, back: bool) -> None:
    assert may_hold(parse_composite(text)) is back


def test_what_a_detection_holds_back_is_not_promised_before_it_lets_go(
    domain: Domain, open_deriver: Open, clock: Hands
) -> None:
    LocalPublisher(domain).hold("main")
    domain.log.promise_stream("main", micros(NOON), micros(NOON))
    number = detect(domain, "last ($A(x))")
    deriver = open_deriver()

    def after(**held: int) -> datetime:
        for _ in range(2):
            write_signals(domain, held={number: micros(NOON + held["at"] * SECOND)} if held else {})
            deriver.round()
        return promised(domain)

    deriver.round()
    domain.log.promise("main", "bob", {"t.A": STATED}, micros(NOON + 50 * SECOND), micros(NOON))
    clock.now = NOON + 60 * SECOND
    domain.log.promise_stream("main", micros(NOON + 50 * SECOND), micros(clock.now))
    assert after() == NOON  # nobody has said what it holds
    assert after(at=5) == NOON + 5 * SECOND
    assert after(at=70) == NOON + 50 * SECOND


def test_a_type_may_be_for_those_who_could_read_what_its_events_rest_on(domain: Domain, open_deriver: Open) -> None:
    reads = frozenset({Action.SUBSCRIBE})
    domain.commit(
        Batch(
            ADMINISTRATOR,
            (
                *(c.DeclarePrincipal(name) for name in ("all", "some", "late", "none")),
                c.DeclareType(EventType("t.B", "svc", {"x": Kind.STRING}, times=STATED, derived=CONTRIBUTORS)),
                c.AddRule(Rule("r1", "svc", reads, "t.A")),
                c.AddRule(Rule("r2", "all", reads, "t.A")),
                c.AddRule(Rule("r3", "some", reads, "t.A", parse_condition("x = 'v1'"))),
                *(c.AddRule(Rule(f"b-{who}", who, reads, "t.B")) for who in ("all", "some", "late", "none")),
            ),
        )
    )
    publisher = LocalPublisher(domain)
    first = publisher.publish(Draft("a1", "bob", "t.A", {"x": "v1"}, time=NOON + SECOND))
    domain.commit(Batch(ADMINISTRATOR, (c.RemoveRule("r3"), c.AddRule(Rule("r4", "late", reads, "t.A")))))
    second = publisher.publish(Draft("a2", "bob", "t.A", {"x": "v1"}, time=NOON + SECOND))
    number = detect(domain)
    places = [(one.stream, one.seq, one.version) for one in (first, second)]
    rows = [[places[0]], [places[1]], places, [("main", 99, 1)]]
    write_signals(
        domain,
        [SignalRow(number, NOON + at * SECOND, (("x", f"v{at}"),), tuple(some)) for at, some in enumerate(rows, 1)],
    )
    open_deriver().round()
    found = derived(domain)
    assert [one.readers for one in found] == [("all", "some", "svc"), ("all", "late", "svc"), ("all", "svc"), ()]
    domain.commit(Batch("some", (c.Subscribe(Subscription("s", "some", "t.B", history=True)),)))
    domain.commit(Batch("late", (c.Subscribe(Subscription("l", "late", "t.B", history=True)),)))
    state = domain.ledger.state()
    books = domain.books(state)
    for id, seqs in (("s", [1]), ("l", [2])):
        got = [e.seq for e in found if decide(e, state.subscriptions[id], books.states, books.predicates(state))]
        assert got == seqs
    with pytest.raises(PublishDenied, match="rests on nothing known"):
        publisher.publish(Draft("hand", "svc", "t.B", {"x": "v"}, time=NOON + SECOND))
    with pytest.raises(BadDefinition, match="more readers"):
        domain.commit(Batch(ADMINISTRATOR, (c.DeclareType(EventType("t.B", "svc", {"x": Kind.STRING}, times=STATED)),)))


def test_owners_declassify_what_derived_events_are_made_of_and_take_it_back(domain: Domain, open_deriver: Open) -> None:
    reads = frozenset({Action.SUBSCRIBE})
    domain.commit(
        Batch(
            ADMINISTRATOR,
            (
                c.DeclarePrincipal("reader"),
                c.DeclareType(EventType("t.B", "svc", {"x": Kind.STRING}, times=STATED, derived=DECLASSIFIED)),
                c.AddRule(Rule("reads", "reader", reads, "t.B")),
            ),
        )
    )
    owner = domain.ledger.state().types["t.A"].owner
    number, deriver = detect(domain), open_deriver()

    def after(at: int, *changes: c.Change) -> list[str]:
        domain.commit(Batch(owner, changes))
        write_signals(domain, [signal(number, at)])
        deriver.round()
        return [str(one.values["x"]) for one in derived(domain)]

    assert after(1) == []
    assert after(2, c.SetDeclassified("t.A", "t.B")) == ["v2"]
    assert after(3, c.SetDeclassified("t.A", "t.B", False)) == ["v2"]
    (refused,) = refused_signals(domain.paths)
    assert (refused.count, refused.code) == (2, PublishDenied.code)
    assert refused.message == "it is made of `t.A`, which is not declassified for `t.B`"
    with closing(HealthWatch.open(domain.paths.directory)) as watch:
        assert watch.look(NOON).underived == 2
    (event,) = derived(domain)
    assert event.made_of == ("t.A",)
    for asker in ("reader", "svc"):
        answer, _ = explain(domain, Question(asker, "reader", event.id))
        assert answer.declassified == (Declassified("t.A", "t.A", owner),)
    with pytest.raises(PublishDenied, match="made of nothing known"):
        LocalPublisher(domain).publish(Draft("hand", "svc", "t.B", {"x": "v"}, time=NOON + SECOND))
    bounded = EventType("t.B", "svc", {"x": Kind.STRING}, times=STATED, derived=CONTRIBUTORS)
    with pytest.raises(BadDefinition, match="more readers"):
        domain.commit(Batch(ADMINISTRATOR, (c.DeclareType(bounded),)))
