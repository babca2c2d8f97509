"""The matcher gives exactly the deliveries of `decide`, however the log is cut into micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from unittest.mock import patch

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given

from headgate.decide.views import entries, forced_value, named_type
from headgate.model.changes import Revoke, Tick
from headgate.model.events import Event
from headgate.model.expressions import subjects
from headgate.model.rights import Action, Effect
from headgate.model.values import conform, same
from headgate.pipeline import match
from headgate.pipeline.deliveries import DeliveryBlob
from headgate.pipeline.index.build import IndexBuilder
from headgate.pipeline.log.codec import LogBatch, decode, from_blob, layouts, to_blob
from headgate.pipeline.match import DecisionWindow, Matcher
from headgate.pipeline.spark.decider import decide_appends
from strategies.memory import Delivered, Played, exact, play, reference_deliveries
from strategies.running import examples
from strategies.shipped import Travelling
from strategies.stored import read
from strategies.worlds import EPOCH, Commit, Step, Story, worlds

Key = tuple[str, int, int]
"""Stream, first sequence number of the append, and part."""


@dataclass
class Cut:
    """One way to run a log: which appends (by number) go together, and the version reached by then.

    The index is kept up to date or built each time, and is at the version reached or `ahead` of it.
    """

    groups: list[list[int]]
    through: list[int]
    step_by_step: bool = False
    ahead: bool = False
    pairs: int = 1 << 20


@st.composite
def cuts(draw: st.DrawFn, played: Played) -> Cut:
    """Streams in order, interleaved anyhow; versions that never go back and are never too old for an event."""
    batches = played.log.batches
    waiting: dict[str, list[int]] = {}
    for number, batch in enumerate(batches):
        waiting.setdefault(batch.stream, []).append(number)
    groups: list[list[int]] = []
    through: list[int] = []
    reached = 0
    while any(waiting.values()):
        group: list[int] = []
        for stream in [s for s in waiting if waiting[s]]:
            count = draw(st.integers(0, len(waiting[stream])))
            group += waiting[stream][:count]
            waiting[stream] = waiting[stream][count:]
        if not group:
            group.append(next(w for w in waiting.values() if w).pop(0))
        oldest = max(reached, *(batches[n].version for n in group))
        reached = draw(st.integers(oldest, played.ledger.version))
        groups.append(group)
        through.append(reached)
    return Cut(groups, through, draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from((1, 3, 1 << 20))))


def whole(played: Played) -> Cut:
    """Everything at once, at the newest version."""
    every = list(range(len(played.log.batches)))
    return Cut([every] if every else [], [played.ledger.version] if every else [])


def run(played: Played, cut: Cut) -> dict[Key, DeliveryBlob]:
    """Decide a log by a cut. When the version reached goes on, history asked for since is filled in first."""
    ledger = played.ledger
    builder, copy = IndexBuilder(ledger), Travelling()
    written: dict[Key, DeliveryBlob] = {}
    done: list[LogBatch] = []
    reached = 0

    def decided(batches: Sequence[LogBatch], window: DecisionWindow) -> Iterator[DeliveryBlob]:
        mine = builder if cut.step_by_step else IndexBuilder(ledger)
        newest = ledger.version if cut.ahead else window.through
        index = mine.index(min(b.version for b in batches), newest)
        if cut.step_by_step:
            index = copy.sent(index)  # as a worker has it, which was sent what changed
        return decide_appends(Matcher(index, ledger.functions), list(batches), window)

    def write(batches: Sequence[LogBatch], window: DecisionWindow) -> None:
        for blob in decided(batches, window):
            key = (blob.stream, blob.first, blob.part)
            assert key not in written
            written[key] = blob

    with patch.object(match, "PAIRS_AT_ONCE", cut.pairs):
        for numbers, through in zip([*cut.groups, []], [*cut.through, ledger.version], strict=True):
            group = [played.log.batches[n] for n in numbers]
            if through > reached and done:
                write(done, DecisionWindow(reached, through, backfill=True))
            if group:
                write(group, DecisionWindow(reached, through))
            done += group
            reached = through
    return written


def delivered(played: Played, written: dict[Key, DeliveryBlob]) -> list[Delivered]:
    """What the blobs say, in the form of the reference."""
    ledger = played.ledger
    subscriptions = ledger.every_subscription()
    places = layouts(ledger.now.types)
    found = []
    for blob in written.values():
        got = list(read(blob, places))
        assert len(got) == blob.count
        assert [d.seq for d in got] == sorted(d.seq for d in got)
        assert all(blob.first <= d.seq <= blob.last for d in got)
        for one in got:
            subscription = subscriptions[one.subscription]
            assert blob.part == (subscription.first if blob.version < subscription.first else 0)
            place = (subscription.id, subscription.first, one.stream, one.seq)
            found.append((*place, exact(one.view)))
    return sorted(found)


@examples(150)
@given(worlds(), st.data())
def test_the_matcher_agrees_with_decide(story: Story, data: st.DataObject) -> None:
    played = play(story)
    expected = reference_deliveries(played.ledger, played.log.events)
    written = run(played, data.draw(cuts(played)))
    assert delivered(played, written) == expected
    again = run(played, whole(played))
    assert delivered(played, again) == expected
    assert written == again
    for blob in written.values():
        assert nothing_is_hidden_in(blob)


@examples(100)
@given(worlds(roles=True, predicates=False, steps=7), st.data())
def test_the_matcher_agrees_with_decide_on_roles_and_event_policy(story: Story, data: st.DataObject) -> None:
    played = play(story)
    expected = reference_deliveries(played.ledger, played.log.events)
    written = run(played, data.draw(cuts(played)))
    assert delivered(played, written) == expected
    again = run(played, whole(played))
    assert written == again


def nothing_is_hidden_in(blob: DeliveryBlob) -> bool:
    """Are the bytes those of what can be read, and no more? A null must not cover a value."""
    if blob.blob is None:
        return blob.count == 0
    table = from_blob(blob.blob)
    return to_blob(pa.Table.from_pylist(table.to_pylist(), schema=table.schema)) == blob.blob


@examples(100)
@given(worlds())
def test_an_accepted_event_is_what_one_grant_allows(story: Story) -> None:
    played = play(story)
    states = played.ledger.states
    for draft, event in played.accepted:
        state = states[event.version]
        attributes = state.types.attributes(draft.type)
        assert list(event.values) == list(attributes)
        assert all(same(conform(attributes[n], v), v) for n, v in event.values.items())
        grants = [
            rule
            for rule in entries(state, draft.publisher, Action.PUBLISH)
            if rule.effect is Effect.GRANT
            and named_type(state, rule, Action.PUBLISH, draft.type) is not None
            and (not rule.attested or draft.publisher in {one.principal for one in state.identities.values()})
        ]
        assert any(_is_what_is_left(event.values, draft.values, rule, attributes) for rule in grants)
        assert draft.requires is None or not state.private & subjects(draft.requires)


def _is_what_is_left(values, sent, rule, attributes) -> bool:
    for name, kind in attributes.items():
        if rule.attributes is not None and name not in rule.attributes:
            expected = None
        elif name in rule.forced:
            expected = forced_value(rule.forced[name], kind)
        else:
            expected = conform(kind, sent.get(name))
        if repr(values[name]) != repr(expected):
            return False
    return True


@examples(50)
@given(worlds())
def test_the_log_gives_back_the_events_that_went_in(story: Story) -> None:
    played = play(story)
    places = layouts(played.ledger.now.types)
    found = [event for batch in played.log.batches for event in decode(batch, places)]
    assert list(map(_all_of_it, found)) == list(map(_all_of_it, played.log.events))


def _all_of_it(e: Event) -> tuple[object, ...]:
    return (e.id, e.stream, e.seq, e.version, e.time, exact(e.values), repr(e.requires), e.rate, e.origin)


@examples(30)
@given(st.data())
def test_stories_with_prefixes_share_one_ledger(data: st.DataObject) -> None:
    """Two stories told one after the other in one ledger, each delivers as it would alone; they share a clock."""
    one, two = (_without_time(data.draw(worlds(prefix, steps=4))) for prefix in ("c1.", "c2."))
    alone = [play(story) for story in (one, two)]
    both = play(Story("", one.administrator, (*one.setup, *two.setup), (*one.steps, *two.steps)))
    expected = sorted(place for played in alone for place in _unversioned(played))
    assert sorted(_unversioned(both)) == expected
    assert delivered(both, run(both, whole(both))) == reference_deliveries(both.ledger, both.log.events)


def _without_time(story: Story) -> Story:
    """The story with its clock at the beginning, for by its moves what other stories show would end too."""

    def still(step: Step) -> Step:
        if not isinstance(step, Commit):
            return step
        kept = tuple(
            replace(change, at=EPOCH, list=replace(change.list, issued=EPOCH)) if isinstance(change, Revoke) else change
            for change in step.batch.changes
            if not isinstance(change, Tick)
        )
        return Commit(replace(step.batch, changes=kept))

    return replace(story, setup=tuple(map(still, story.setup)), steps=tuple(map(still, story.steps)))


def _unversioned(played: Played) -> list[tuple[object, ...]]:
    return [
        (id, stream, seq, view) for id, _, stream, seq, view in reference_deliveries(played.ledger, played.log.events)
    ]
