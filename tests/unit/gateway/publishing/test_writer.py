"""The writer: admission, idempotency across gateways, group commit, leases, versions that move underneath."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.commands.publishing.stream_writer import StreamWriter
from headgate.commands.publishing.submissions import Answers, Submission, SubmissionOutcome, of_drafts, of_table
from headgate.gateway.http.worker_pool import Workers
from headgate.gateway.publishing.policy_rule_answers import find
from headgate.gateway.publishing.writer import Writer
from headgate.lang import parse_condition
from headgate.model.changes import (
    AddRule,
    Batch,
    DeclarePrincipal,
    DeclareType,
    RemoveRule,
    SetPolicyRule,
    Unadvertise,
)
from headgate.model.errors import PolicyRuleDenied, PublishDenied, StreamHeld, TooBusy, TypeMismatch, UnknownType
from headgate.model.events import Draft, Event
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind, micros
from headgate.node.domain import Domain, Follower
from headgate.pipeline.log.event_log import EventLog

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def domain(tmp_path: Path) -> Iterator[Domain]:
    with Domain.create(tmp_path / "d") as made:
        made.commit(
            Batch(
                ADMINISTRATOR,
                (
                    DeclarePrincipal("till"),
                    DeclarePrincipal("other"),
                    DeclareType(EventType("shop.Order", ADMINISTRATOR, {"item": Kind.STRING, "price": Kind.FLOAT})),
                    DeclareType(EventType("shop.Return", ADMINISTRATOR, {"item": Kind.STRING})),
                    AddRule(
                        Rule(
                            "till",
                            "till",
                            frozenset({Action.PUBLISH}),
                            "shop.Order",
                            parse_condition("price > 0"),
                        )
                    ),
                    AddRule(Rule("returns", "till", frozenset({Action.PUBLISH}), "shop.Return")),
                    AddRule(Rule("other", "other", frozenset({Action.PUBLISH}), "shop.Order")),
                ),
            )
        )
        yield made


@asynccontextmanager
async def writing(directory: Path, stream: str, lease: float = 5.0) -> AsyncIterator[Writer]:
    """A writer with a domain and a follower of its own, as another process has them."""
    with Domain.open(directory) as mine:
        follower = Follower(mine)
        log, workers = EventLog.open(mine.paths.log), Workers()
        core = StreamWriter(mine, follower, log, stream, window=600, lease=lease, clock=lambda: datetime.now(UTC))
        writer = Writer(core, workers)
        writer.start()
        try:
            yield writer
        finally:
            await asyncio.to_thread(writer.stop)
            workers.stop()
            follower.close()


def orders(*ids: str, price: float = 5.0, publisher: str = "till", source: str = "s") -> list[Draft]:
    return [Draft(id, publisher, "shop.Order", {"item": "lamp", "price": price}, source) for id in ids]


async def send(writer: Writer, drafts: Sequence[Draft]) -> SubmissionOutcome:
    return await writer.publish(of_drafts(drafts[0].publisher, drafts))


def stored(domain: Domain) -> list[tuple[str, str, str]]:
    return [(e.stream, e.publisher, e.id) for e in domain.events()]


def test_every_event_of_a_mixed_batch_is_answered_on_its_own(domain: Domain) -> None:
    async def run() -> SubmissionOutcome:
        async with writing(domain.paths.directory, "g1") as writer:
            return await send(
                writer,
                [
                    *orders("a"),
                    Draft("b", "till", "shop.Order", {"item": 3}, "s"),
                    Draft("c", "till", "shop.Nothing", {}, "s"),
                    Draft("d", "till", "shop.Return", {"item": "x"}, "s"),
                    *orders("e", price=-1.0),
                    *orders("a"),
                ],
            )

    outcome = asyncio.run(run())
    assert outcome.duplicates == {5}
    assert {at: type(error) for at, error in outcome.refusals.items()} == {
        1: TypeMismatch,
        2: UnknownType,
        4: PublishDenied,
    }
    assert stored(domain) == [("g1", "till", "a"), ("g1", "till", "d")]
    assert domain.ledger.state().advertisements == {("till", "shop.Order"), ("till", "shop.Return")}


def test_an_event_sent_again_is_stored_once_whichever_gateway_it_is_sent_to(domain: Domain) -> None:
    async def run() -> list[SubmissionOutcome]:
        async with writing(domain.paths.directory, "g1") as one, writing(domain.paths.directory, "g2") as two:
            return [
                await send(one, orders("a", "b")),
                await send(two, orders("b", "c")),
                await send(one, orders("c", "d", "a")),
                await send(two, orders("a", publisher="other")),
                await send(two, orders("a", source="elsewhere")),
            ]

    found = asyncio.run(run())
    assert [one.duplicates for one in found] == [set(), {0}, {0, 2}, set(), set()]
    assert sorted(stored(domain)) == [
        ("g1", "till", "a"),
        ("g1", "till", "b"),
        ("g1", "till", "d"),
        ("g2", "other", "a"),
        ("g2", "till", "a"),
        ("g2", "till", "c"),
    ]


def test_the_window_outlives_the_gateway(domain: Domain) -> None:
    async def run(*ids: str) -> SubmissionOutcome:
        async with writing(domain.paths.directory, "g1") as writer:
            return await send(writer, orders(*ids))

    asyncio.run(run("a", "b"))
    assert asyncio.run(run("b", "c")).duplicates == {0}


def test_a_right_lost_in_another_process_counts_for_the_next_event(domain: Domain) -> None:
    async def run() -> list[SubmissionOutcome]:
        async with writing(domain.paths.directory, "g1") as writer:
            found = [await send(writer, orders("a"))]
            domain.commit(Batch(ADMINISTRATOR, (RemoveRule("till"),)))
            found.append(await send(writer, orders("b")))
            return found

    before, after = asyncio.run(run())
    assert before.accepted == 1
    assert after.accepted == 0
    assert isinstance(after.refusals[0], PublishDenied)


def test_what_was_stored_before_a_right_was_lost_is_a_duplicate_when_it_is_sent_again(domain: Domain) -> None:
    table = pa.table({"id": ["t", "u"], "source": ["s", None], "item": ["x", "y"], "price": [1, 2]})

    async def run() -> list[SubmissionOutcome]:
        async with writing(domain.paths.directory, "g1") as one, writing(domain.paths.directory, "g2") as two:
            await send(one, [*orders("a", "b"), Draft("r", "till", "shop.Return", {"item": "x"}, "s")])
            await send(one, orders("c", publisher="other"))
            await one.publish(of_table("till", table, "shop.Order"))
            domain.commit(Batch(ADMINISTRATOR, (RemoveRule("till"),)))
            more = [Draft("q", "till", "shop.Return", {"item": "x"}, "s")]
            again = pa.concat_tables([table, table.slice(0, 1).set_column(0, "id", [["v"]])])
            return [
                await send(two, [*orders("a", "c", "b", "d"), *more, *orders("a", source="elsewhere")]),
                await two.publish(of_table("till", again, "shop.Order")),
            ]

    drafts, arrow = asyncio.run(run())
    assert drafts.duplicates == {0, 2}
    assert drafts.refusals.keys() == {1, 3, 5}
    assert arrow.duplicates == {0, 1}
    assert arrow.refusals.keys() == {2}
    assert sorted(e.id for e in domain.events()) == ["a", "b", "c", "q", "r", "t", "u"]


def test_many_requests_at_once_are_each_answered(domain: Domain) -> None:
    async def run() -> list[SubmissionOutcome]:
        async with writing(domain.paths.directory, "g1") as writer:
            return await asyncio.gather(*(send(writer, orders(f"e{n}", f"e{n + 1}")) for n in range(0, 200, 2)))

    found = asyncio.run(run())
    assert sum(one.accepted for one in found) == 200
    assert len({e.id for e in domain.events()}) == 200
    assert [e.seq for e in domain.events()] == list(range(1, 201))


def test_arrow_comes_out_as_the_same_events(domain: Domain) -> None:
    table = pa.table({"id": ["a", "b", "c"], "item": ["x", None, "z"], "price": [1, 2, 0]})

    async def run() -> SubmissionOutcome:
        async with writing(domain.paths.directory, "g1") as writer:
            return await writer.publish(of_table("till", table, "shop.Order"))

    outcome = asyncio.run(run())
    assert set(outcome.refusals) == {2}
    events: list[Event] = domain.events()
    assert [(e.id, dict(e.values)) for e in events] == [
        ("a", {"item": "x", "price": 1.0}),
        ("b", {"item": None, "price": 2.0}),
    ]


def arrows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "source": ["s"] * len(ids), "item": ["x"] * len(ids), "price": [1] * len(ids)})


def test_what_was_decided_when_it_came_is_still_stored_once(domain: Domain) -> None:
    async def run() -> list[SubmissionOutcome]:
        async with writing(domain.paths.directory, "g1") as one, writing(domain.paths.directory, "g2") as two:
            await one.publish(of_table("till", arrows("a"), "shop.Order"))
            await two.publish(of_table("till", arrows("b"), "shop.Order"))
            again = [of_table("till", arrows(*ids), "shop.Order") for ids in (("b", "c", "c"), ("c", "a", "d"))]
            return await asyncio.gather(*map(two.publish, again))

    first, second = asyncio.run(run())
    assert (first.duplicates, second.duplicates) == ({0, 2}, {0, 1})
    assert sorted(stored(domain)) == [("g1", "till", "a"), *(("g2", "till", id) for id in "bcd")]


def test_what_comes_while_the_writer_stops_is_answered(domain: Domain) -> None:
    async def run() -> SubmissionOutcome:
        async with writing(domain.paths.directory, "g1") as writer:
            under_way = asyncio.ensure_future(writer.publish(of_table("till", arrows("a"), "shop.Order")))
            await asyncio.sleep(0)
            writer._stopping = True
            return await under_way

    with pytest.raises(TooBusy):
        asyncio.run(run())
    assert stored(domain) == []


def test_two_gateways_cannot_write_one_stream(domain: Domain) -> None:
    async def run() -> None:
        async with writing(domain.paths.directory, "g1"):
            log = Domain.open(domain.paths.directory)
            try:
                with pytest.raises(StreamHeld):
                    log.log.take("g1", 1, holder="elsewhere:1:1:g1", now=micros(datetime.now(UTC)), ttl=5)
            finally:
                log.close()

    asyncio.run(run())


def test_an_advertisement_of_the_parent_is_enough_and_one_taken_back_is_made_again(domain: Domain) -> None:
    async def run() -> None:
        async with writing(domain.paths.directory, "g1") as writer:
            await send(writer, orders("a"))
            version = domain.ledger.version
            await send(writer, orders("b"))
            assert domain.ledger.version == version
            domain.commit(Batch("till", (Unadvertise("till", "shop.Order"),)))
            await send(writer, orders("c"))

    asyncio.run(run())
    assert ("till", "shop.Order") in domain.ledger.state().advertisements
    assert [e.version for e in domain.events()] == [2, 2, 4]


# -- policy rules -----------------------------------------------------------------------------------------------


def limited(domain: Domain, rule: str | None) -> None:
    changed = SetPolicyRule("till", None if rule is None else parse_condition(rule))
    domain.commit(Batch(ADMINISTRATOR, (changed,)))


def answered(state: State, submission: Submission) -> Answers:
    rule = state.policy_rules.get("till")
    return Answers(repr(rule), find(rule, "till", submission.requirements()))


def asking_for(requires: str | None, *ids: str) -> list[Draft]:
    rule = None if requires is None else parse_condition(requires)
    return [Draft(id, "till", "shop.Order", {"item": "lamp", "price": 5.0}, "s", rule) for id in ids]


def test_each_event_is_held_to_its_publishers_policy_rule(domain: Domain) -> None:
    limited(domain, "$nation = 'NO' or $nation = 'IT'")

    async def run() -> list[SubmissionOutcome]:
        async with writing(domain.paths.directory, "g1") as writer:
            drafts = [
                *asking_for("$nation = 'NO'", "a"),
                *asking_for(None, "b"),
                *asking_for("$nation = 'FR'", "c"),
                *asking_for("$nation = 'IT' and $rank > 3", "d"),
            ]
            table = arrows("e", "f", "g").append_column(
                "requires", pa.array(["$nation = 'NO'", None, "$nation = 'FR'"], pa.string())
            )
            return [await send(writer, drafts), await writer.publish(of_table("till", table, "shop.Order"))]

    for outcome, wrong in zip(asyncio.run(run()), ({1, 2}, {1, 2}), strict=True):
        assert outcome.refusals.keys() == wrong
        assert {type(error) for error in outcome.refusals.values()} == {PolicyRuleDenied}
    assert [id for _, _, id in stored(domain)] == ["a", "d", "e"]


def test_a_policy_rule_that_changes_on_the_way_is_asked_anew(domain: Domain) -> None:
    limited(domain, "$nation = 'NO' or $nation = 'IT'")

    async def run() -> list[SubmissionOutcome]:
        async with writing(domain.paths.directory, "g1") as writer:
            before = writer.core.known.state
            sent = (of_drafts("till", asking_for("$nation = 'IT'", id)) for id in "ab")
            one, two = (replace(submission, answers=answered(before, submission)) for submission in sent)
            limited(domain, "$nation = 'NO'")
            found = [await writer.publish(one)]
            limited(domain, "$nation = 'IT'")
            return [*found, await writer.publish(two)]

    narrow, wide = asyncio.run(run())
    assert [type(error) for error in narrow.refusals.values()] == [PolicyRuleDenied]
    assert wide.refusals == {}
    assert [id for _, _, id in stored(domain)] == ["b"]


def test_what_is_barred_is_refused_whatever_it_is_unless_it_was_stored_before(domain: Domain) -> None:
    denied = PublishDenied("no")

    async def run() -> list[SubmissionOutcome]:
        async with writing(domain.paths.directory, "g1") as writer:
            found = [await send(writer, asking_for(None, "a"))]
            drafts = asking_for(None, "x", "a", "b", "y")
            found.append(await writer.publish(of_drafts("till", drafts, {0: denied, 1: denied})))
            found.append(await writer.publish(of_drafts("till", drafts[:1], {0: denied})))
            barred = {"shop.Order": denied}
            return [*found, await writer.publish(of_table("till", arrows("p", "q"), "shop.Order", None, barred))]

    first, some, one, columns = asyncio.run(run())
    assert first.accepted == 1
    assert (some.accepted, some.duplicates, some.refusals) == (2, {1}, {0: denied})
    assert (one.accepted, one.duplicates, one.refusals) == (0, set(), {0: denied})
    assert (columns.accepted, columns.refusals) == (0, {0: denied, 1: denied})
    assert [id for _, _, id in stored(domain)] == ["a", "b", "y"]


def test_an_event_stored_before_is_found_again_also_where_a_policy_rule_keeps_it_back_now(domain: Domain) -> None:
    async def run() -> list[SubmissionOutcome]:
        async with writing(domain.paths.directory, "g1") as writer:
            found = [await send(writer, asking_for(None, "a"))]
            limited(domain, "$nation = 'NO'")
            return [*found, await send(writer, asking_for(None, "a", "b"))]

    first, again = asyncio.run(run())
    assert first.accepted == 1
    assert again.duplicates == {0}
    assert {at: type(error) for at, error in again.refusals.items()} == {1: PolicyRuleDenied}
    assert [id for _, _, id in stored(domain)] == ["a"]


def test_a_limit_on_the_rate_holds_for_all_gateways_together(domain: Domain) -> None:
    """Two writers, asked at the same time, as often as the limit allows each."""
    limited = Rule("till", "till", frozenset({Action.PUBLISH}), "shop.Order", parse_condition("@rate <= 10"))
    domain.commit(Batch(ADMINISTRATOR, (AddRule(limited),)))
    directory = domain.paths.directory

    async def main() -> list[SubmissionOutcome]:
        async with writing(directory, "gateway-1") as one, writing(directory, "gateway-2") as two:
            asked = [send(writer, orders(f"{n}-1", f"{n}-2")) for n, writer in enumerate((one, two) * 8)]
            return await asyncio.gather(*asked)

    answers = asyncio.run(main())
    assert sum(one.accepted for one in answers) == 10
    rates = [event.rate for event in domain.events() if event.type == "shop.Order"]
    assert sorted(rates) == list(range(1, 11)), "each has a rate of its own"
    streams = {event.stream for event in domain.events()}
    assert streams <= {"gateway-1", "gateway-2"}
