"""What a node can do, part by part: publishing once, keeping back, looking up, keeping for later, and being asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.node import Node, run
from headgate.client import aio
from headgate.decide.derived import DERIVED
from headgate.model.errors import NotFound, PublishDenied, TypeMismatch
from node.world import (
    CARD,
    DRIVER,
    INFORMANT,
    REGIONS,
    SECRETS,
    TOKEN,
    WAIT,
    ask,
    clients,
    curl,
    fetch,
    got,
    settled,
    token,
)

pytestmark = pytest.mark.spark

# -- publishing -------------------------------------------------------------------------------------------------


def test_an_event_sent_to_both_gateways_is_stored_once(node: Node) -> None:
    async def send() -> list[str]:
        who = [(name, gateway) for name in ("desk", "wire") for gateway in range(2)]
        ids = [str(uuid.uuid4()) for _ in range(20)]
        data = {"title": "once", "words": 3, "region": "north"}
        async with clients(node, *who) as (desk, desk2, wire_, wire2):
            for id in ids:
                for one, other in ((desk, desk2), (wire_, wire2)):  # another publisher's ids are its own
                    sent = [c.publish("press.Story", data, id=id, source="/both") for c in (one, other, other)]
                    results = await asyncio.gather(*sent)
                    assert sorted(r.status for r in results) == ["accepted", "duplicate", "duplicate"]
            (again,) = await desk2.publish_many(
                [{"type": "press.Story", "data": data, "id": ids[0], "source": "/both"}]
            )
            assert again.status == "duplicate"
            elsewhere = await desk2.publish("press.Story", data, id=ids[0], source="/another")
            assert elsewhere.status == "accepted"
        return ids

    ids = asyncio.run(send())
    record = settled(node)
    stored = [e.id for e in record.events if e.source == "/both"]
    assert sorted(stored) == sorted(2 * ids)


def test_arrow(node: Node) -> None:
    rows = 500
    run_id = uuid.uuid4()
    table = pa.table(
        {
            "id": [f"{run_id}:{n}" for n in range(rows)],
            "title": ["arrow"] * rows,
            "words": pa.array([None if n % 7 == 0 else n * 10 for n in range(rows)], pa.int64()),
            "region": [REGIONS[n % 3] for n in range(rows)],
            "informant": [INFORMANT] * rows,
        }
    )
    with node.client("wire", [1]) as wire_, node.client("dev", [0]) as dev, node.client("bea", [1]) as bea:
        for reader in (dev, bea):
            reader.subscribe("arrow", "press.Story", "title = 'arrow'", ack="manual").close()
        told = wire_.publish_arrow("press.Story", table, source="/arrow")
        refused = {n for n in range(rows) if REGIONS[n % 3] == "embargo" or n % 7 == 0 or n * 10 >= 2000}
        assert set(told.refused) == refused
        assert {one.code for one in told.refused.values()} == {"publish-denied"}
        assert (told.accepted, told.duplicates) == (rows - len(refused), 0)
        with node.client("wire", [0]) as elsewhere:
            again = elsewhere.publish_arrow("press.Story", table, source="/arrow")
        assert (again.accepted, again.duplicates, set(again.refused)) == (0, told.accepted, refused)
    record = settled(node)
    for who, gateway in (("dev", 1), ("bea", 0)):
        bearer = token(node, who)
        count = len(record.expected(who, "arrow"))
        assert 0 < count <= told.accepted
        record.check(who, "arrow", [got(one) for one in fetch(node, gateway, bearer, "arrow", count)])
        assert ask(node, gateway, bearer, "DELETE", "/v1/subscriptions/arrow").status_code == 204


# -- keeping back, looking up, keeping for later ------------------------------------------------------------------


async def arrive(client: aio.Client, line: str, count: int) -> None:
    """Publish some arrivals of a line."""
    events = [("transit.Arrival", {"line": line, "stop": "x", "due": n, "driver": DRIVER}) for n in range(count)]
    assert all(one.stored for one in await client.publish_many(events))


def test_what_is_withdrawn_never_comes(node: Node) -> None:
    slow = token(node, "slow")
    body = {"type": "transit.Arrival", "where": "line = 'withdrawn'"}
    assert ask(node, 0, slow, "PUT", "/v1/subscriptions/late", json=body).status_code == 201
    where = "/v1/subscriptions/late/events"

    async def play() -> int:
        async with clients(node, ("administrator", 1), ("depot", 0), ("depot", 1)) as (admin, first, second):
            await arrive(first, "withdrawn", 5)
            await arrive(second, "withdrawn", 5)
            await asyncio.to_thread(settled, node)
            fetched = await asyncio.to_thread(ask, node, 0, slow, "GET", where, params={"wait": 20, "limit": 2})
            assert len(fetched.json()["events"]) == 2
            version = await admin.change([{"op": "withdraw", "principal": "slow"}])
            await arrive(first, "withdrawn", 3)
            await arrive(second, "withdrawn", 4)
            return version

    version = asyncio.run(play())
    record = settled(node)
    assert len(record.expected("slow", "late")) == 17
    for gateway in range(2):
        found = fetch(node, gateway, slow, "late", 7)
        assert record.check("slow", "late", [got(one) for one in found], since=version) == 7
    assert ask(node, 1, slow, "DELETE", "/v1/subscriptions/late").status_code == 204


def test_a_look_up_leaves_no_gap(node: Node) -> None:
    """The entries, and after them every change: for each stop the numbers go on by one, whenever the look-up came."""
    last = 60
    stops = [f"lookup-{uuid.uuid4()}-{n}" for n in range(4)]
    where = " or ".join(f"stop = '{stop}'" for stop in stops)

    async def update(client: aio.Client, mine: Sequence[str]) -> None:
        for due in range(1, last + 1):
            for stop in mine:
                await client.publish("transit.Arrival", {"stop": stop, "line": "1", "due": due, "driver": DRIVER})

    async def look(client: aio.Client, id: str) -> list[dict[str, Any]]:
        entries, changes = await client.lookup(id, "transit.Arrival", where, ack="manual")
        seen = [dict(one.data) for one in entries]
        assert len({one["stop"] for one in seen}) == len(seen), "one entry for each key"
        async with asyncio.timeout(WAIT), changes:
            while sum(one["due"] == last for one in seen) < len(stops):
                seen += [dict(one.data) for one in await changes.take(100)]
        await client.unsubscribe(id)
        return seen

    async def play() -> list[list[dict[str, Any]]]:
        who = [("depot", 0), ("depot", 1), ("bea", 0), ("cai", 1), ("web", 0)]
        async with clients(node, *who) as (first, second, *lookers), asyncio.TaskGroup() as together:
            together.create_task(update(first, stops[:2]))
            together.create_task(update(second, stops[2:]))
            looks = []
            for client in lookers:
                looks.append(together.create_task(look(client, "board")))
                await asyncio.sleep(0.4)
        return [one.result() for one in looks]

    for seen in asyncio.run(play()):
        for stop in stops:
            numbers = [one["due"] for one in seen if one["stop"] == stop]
            assert numbers == list(range(numbers[0], last + 1))
        assert {one["driver"] for one in seen} == {None}


def test_a_reservation_keeps_what_comes_before_the_subscription(node: Node) -> None:
    async def play() -> None:
        async with clients(node, ("bea", 0), ("bea", 1), ("depot", 0), ("depot", 1)) as (bea, there, first, second):
            await first.publish("transit.Closure", {"stop": "before"})
            kept = await bea.reserve("kept", "transit.Closure", 60)
            await second.publish("transit.Closure", {"stop": "kept", "why": "snow"})
            await first.publish("transit.Closure", {"stop": "kept", "why": "ice"})
            assert (await there.reserve("kept", "transit.Closure", 60)).since == kept.since, "made again, it stays"
            async with await there.subscribe("closures", "transit.Closure", from_=kept.since, ack="manual") as found:
                async with asyncio.timeout(WAIT):
                    came = [await anext(found), await anext(found)]
                record = await asyncio.to_thread(settled, node)
                assert record.check("bea", "closures", [got(one) for one in came]) == 2
                assert sorted(one.data["why"] for one in came) == ["ice", "snow"]
            await bea.release("kept")
            with pytest.raises(NotFound):
                await bea.release("kept")
            await bea.unsubscribe("closures")

    asyncio.run(play())


# -- what can be asked --------------------------------------------------------------------------------------------


def test_a_publisher_hears_whether_anybody_listens(node: Node) -> None:
    closures = "transit.Closure"

    async def play() -> None:
        async with clients(node, ("depot", 0), ("bea", 1), ("cai", 0), ("administrator", 1)) as (
            depot,
            bea,
            cai,
            admin,
        ):
            assert (await depot.advertise(closures)).wanted is False
            watch = depot.watch([closures, "transit.Arrival"])

            async def told() -> tuple[str, bool]:
                async with asyncio.timeout(WAIT):
                    return await anext(watch)

            assert await told() == (closures, False)  # of arrivals it may not know
            async with await bea.subscribe("hear", closures):
                assert await told() == (closures, True)
                async with await cai.subscribe("hear", closures):
                    pass
                await cai.unsubscribe("hear")
                assert (await depot.advertise(closures)).wanted is True
                # Who listens and may not hear any more is nobody.
                await admin.change([{"op": "remove-member", "group": "riders", "member": "bea"}])
                assert await told() == (closures, False)
                await admin.change([{"op": "add-member", "group": "riders", "member": "bea"}])
                assert await told() == (closures, True)
            await bea.unsubscribe("hear")
            assert await told() == (closures, False)
            await watch.close()

    asyncio.run(play())


def test_what_rights_leave_of_a_wish(node: Node) -> None:
    with node.client("cai", [0]) as cai, node.client("wire", [1]) as wire_, node.client("ann", [1]) as ann:
        cai.subscribe("wish", "press.Story", "informant = 'x' and words > 100").close()
        wish = cai.restriction("wish")
        assert (wish["subscription"], wish["satisfiable"], wish["never"]) == ("wish", False, ["informant"])
        (reach,) = [one for one in cai.restriction_subscribe("press.Story")["types"] if one["name"] == "press.Story"]
        assert reach["hidden"] == ["informant"]
        conditions = {one["rule"]: one["condition"] for one in reach["entries"]}
        assert conditions["readers-read"] == "words <= $clearance", "it is disclosed"
        assert conditions["readers-embargo"] is None
        (nothing,) = ann.restriction_subscribe("press.Bulletin")["types"]
        assert nothing["reason"] == "no-grant"
        sends = wire_.restriction_publish("press.Story")
        assert sends["reason"] is None
        assert [one["rule"] for one in sends["entries"]] == ["wire-embargo", "wire-publishes"]
        assert sends["entries"][1]["nulls"] == ["filed"]
        assert wire_.restriction_publish("press.Bulletin")["reason"] == "no-grant"
        cai.unsubscribe("wish")
        with pytest.raises(NotFound):
            cai.restriction("wish")


def test_versions_show_the_starting_points_of_both_streams(node: Node) -> None:
    record = settled(node)
    newest = run("versions", "--domain", node.directory, "--starting-points", "--json").stdout
    points = json.loads(newest)
    assert {one["stream"] for one in points} - {DERIVED} == {"gateway-1", "gateway-2"}
    for stream in ("gateway-1", "gateway-2"):
        starts = {one["version"]: one["seq"] for one in points if one["stream"] == stream}
        ordered = [starts[version] for version in sorted(starts)]
        assert ordered == sorted(ordered)
        for event in record.events:
            if event.stream == stream:  # its version has begun, and the next one has not
                assert starts.get(event.version, 1) <= event.seq < starts.get(event.version + 1, 2**62)
    with node.client("administrator") as admin, node.client("bea") as bea:
        told = admin.versions()[-1]
        assert told.starts == {p["stream"]: p["seq"] for p in points if p["version"] == told.version}
        assert bea.versions()[-1].starts is None, "that is not for everyone"


def test_health_and_metrics(node: Node) -> None:
    with node.client("desk", [0]) as desk:
        desk.publish("press.Story", {"title": "counted"})
    bearer = f"Authorization: Bearer {node.files.metrics_token.read_text().strip()}"
    for url in node.urls:
        health = json.loads(curl(node, f"{url}/health").stdout)
        assert health == {"status": "ok", "reasons": []}
        families = {
            one.name: one for one in text_string_to_metric_families(curl(node, "-H", bearer, f"{url}/metrics").stdout)
        }
        assert len(families) > 10
        assert all(name.startswith(("headgate_", "process_", "python_")) for name in families)
        names = {value for one in families.values() for sample in one.samples for value in sample.labels.values()}
        assert not names & {"desk", "bea", "cai", "press.Story", "stories"}, (
            "metrics tell nothing of principals or types"
        )


def test_logs_hold_no_secrets(node: Node) -> None:
    """Values are in no log, accepted, refused or malformed; nor is any token, also not one that was refused."""
    bearer = token(node, "desk")
    secret = {"title": "secret", "informant": INFORMANT}
    with node.client("desk") as desk, node.client("depot") as depot, node.client("till") as till:
        desk.publish("press.Story", secret)
        depot.publish("transit.Arrival", {"driver": DRIVER})
        till.publish("shop.Sale", {"card": CARD, "amount": 1})
        with pytest.raises(TypeMismatch):
            desk.publish("press.Story", {**secret, "words": CARD})
        with pytest.raises(PublishDenied):
            till.publish("press.Story", secret)
        bad = pa.table({"words": [DRIVER], "informant": [INFORMANT]})
        with contextlib.suppress(TypeMismatch):
            desk.publish_arrow("press.Story", bad)
    for more in ({"content": f'{{"data": {{"informant": "{INFORMANT}"'}, {"params": {"type": CARD}}):
        answer = ask(node, 0, bearer, "POST", "/v1/events", **more)
        assert 400 <= answer.status_code < 500
    assert ask(node, 1, f"{bearer}x", "GET", f"/v1/types/{DRIVER}").status_code == 401
    logs = [*(node.directory / "logs").iterdir(), node.directory / "up.log"]
    assert len(logs) >= 4
    for path in logs:
        said = path.read_bytes()
        assert said, path
        for value in (*SECRETS, bearer):
            assert value.encode() not in said, (path, value)
        assert TOKEN.search(said) is None, path
