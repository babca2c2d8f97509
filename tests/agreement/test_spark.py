"""Spark and `decide` agree: random worlds on the real ledger, log and streaming query.

Ten worlds share a domain, their steps interleaved, and the query runs twice: in the middle of the story and at its
end. One in three has roles and event policy, of which the domain has one: that of the world that spoke last.
`HEADGATE_EXAMPLES` and `HEADGATE_SEED` choose how many worlds and which.
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.commands.delivery.local import read_deliveries
from headgate.commands.publishing.local import LocalPublisher
from headgate.decide.deliver import decide
from headgate.model.errors import HeadgateError
from headgate.node.domain import Domain
from strategies import predicates
from strategies.memory import exact
from strategies.running import examples
from strategies.worlds import Commit, Publish, Step, Story, worlds

pytestmark = pytest.mark.spark

WORLDS = 200
TOGETHER = 10


def draw_worlds(count: int) -> list[Story]:
    found: list[Story] = []

    @examples(count)
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        roles = data.draw(st.integers(0, 2)) == 0
        found.append(data.draw(worlds(prefix=f"w{len(found)}.", roles=roles)))

    draw()
    return found


def play(domain: Domain, publisher: LocalPublisher, step: Step) -> None:
    match step:
        case Commit(batch):
            with suppress(HeadgateError):  # some changes are refused; what is refused leaves no trace
                domain.commit(batch)
        case Publish(stream, time, drafts, together):
            for portion in [drafts] if together else [(draft,) for draft in drafts]:
                publisher.publish_all(portion, stream=stream, now=time)


def expected(domain: Domain) -> Counter[Any]:
    states = {v: domain.ledger.state(v) for v in range(domain.ledger.version + 1)}
    functions = domain.predicates(domain.ledger.state())
    found: Counter[Any] = Counter()
    every = [subscription for subscription, _ in domain.ledger.all_subscriptions(domain.ledger.version)]
    for event in domain.events():
        for subscription in every:
            if subscription.type.split(".")[0] == event.type.split(".")[0]:
                delivery = decide(event, subscription, states.__getitem__, functions)
                if delivery is not None:
                    found[subscription.id, subscription.first, event.stream, event.seq, exact(delivery.view)] += 1
    return found


def delivered(domain: Domain) -> Counter[Any]:
    opened = [s for s, _ in domain.ledger.all_subscriptions(domain.ledger.version)]
    found: Counter[Any] = Counter()
    for _, one in read_deliveries(domain):
        subscription = opened[one.subscription]
        found[subscription.id, subscription.first, one.stream, one.seq, exact(one.view)] += 1
    return found


def test_spark_delivers_exactly_what_decide_says(spark: Any, tmp_path: Path) -> None:
    stories = draw_worlds(WORLDS)
    some = 0
    for start in range(0, len(stories), TOGETHER):
        together = stories[start : start + TOGETHER]
        directory = tmp_path / str(start)
        with Domain.create(directory) as domain:
            domain.paths.predicates.mkdir()
            shutil.copy(str(predicates.__file__), domain.paths.predicates / f"{predicates.DIGEST}.py")
            pipeline, publisher = domain.pipeline(spark), LocalPublisher(domain)
            for story in together:
                for step in story.setup:
                    play(domain, publisher, step)
            turns = list(zip_longest(*(story.steps for story in together)))
            for number, turn in enumerate(turns):
                if number == len(turns) // 2:
                    pipeline.catch_up()
                for step in turn:
                    if step is not None:
                        play(domain, publisher, step)
            pipeline.catch_up()
            wanted, got = expected(domain), delivered(domain)
            assert got == wanted, f"worlds {start} to {start + TOGETHER - 1}: {together}"
            some += sum(wanted.values())
        shutil.rmtree(directory)
    assert some > len(stories) // 4, "hardly anything was delivered: the worlds say little"
