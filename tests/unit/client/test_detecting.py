"""Detections through the client and the command line, at a real gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.client import Client, Detection, Signal, SubscriptionEnded, aio, connect
from headgate.model.changes import AddRule
from headgate.model.errors import AlreadyExists, BadExpression, NotFound, TypeMismatch
from headgate.model.rights import Action, Rule
from strategies.serving import Served, eventually, serving

BOTH = "$Sale(i, a); Sale(i, b)"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("node") / "shop") as made:
        yield made


def url(shop: Served) -> str:
    return f"http://127.0.0.1:{shop.port}"


@pytest.fixture
def client(shop: Served) -> Iterator[Client]:
    with connect(url(shop), shop.keys["anna"]) as made:
        yield made


def bound(detection: Detection, count: int) -> list[Any]:
    found = [detection.next(timeout=30) for _ in range(count)]
    assert all(isinstance(one, Signal) for one in found)
    return [dict(one.bindings) for one in found if one is not None]


@pytest.mark.parametrize("half", [{"id": "\ud800"}, {"id": "half", "bind": {"i": "\ud800"}}])
def test_half_a_character_is_refused_with_a_code(client: Client, half: dict[str, Any]) -> None:
    with pytest.raises(TypeMismatch, match="half a character"):
        client.detect(BOTH, **half)


def test_signals_are_read_and_acknowledged(client: Client, shop: Served) -> None:
    with client.detect(BOTH, bind={"i": "tea"}, id="pairs") as detection:
        shop.signal("anna", "pairs", (3, {"i": "tea", "a": 1.5}), (4, {"i": "tea", "a": 2.5}))
        first = detection.next(timeout=30)
        assert isinstance(first, Signal)
        assert (first.bindings, first.time, first.source) == (
            {"i": "tea", "a": 1.5},
            datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC),
            "pairs",
        )
        detection.ack()
    with client.detect(BOTH, bind={"i": "tea"}, id="pairs") as again:
        assert bound(again, 1) == [{"i": "tea", "a": 2.5}]
        again.ack()
        shop.signal("anna", "pairs", (5, {"n": 1}))
    resumed = client.resume("pairs")
    assert isinstance(resumed, Detection)
    assert bound(resumed, 1) == [{"n": 1}]
    assert [one.id for one in client.detections()] == ["pairs"]
    client.unsubscribe("pairs")
    shop.look()
    with pytest.raises(SubscriptionEnded):
        resumed.next(timeout=30)
    assert client.detections() == []


def test_a_temporary_detection_ends_with_its_reader(client: Client, shop: Served) -> None:
    with client.detect("AbsTime(t)", bind={"t": datetime(2026, 1, 1, tzinfo=UTC)}, temporary=True) as detection:
        (told,) = client.detections()
        assert (told.temporary, told.id) == (True, detection.id)
    eventually(lambda: client.detections() == [])


def test_history_is_asked_for_by_a_time_a_version_or_as_a_whole(client: Client) -> None:
    since = datetime(2026, 1, 1, 9, tzinfo=UTC)
    client.detect(BOTH, id="since", from_=since).close()
    client.detect(BOTH, id="version", from_=2).close()
    client.detect(BOTH, id="whole", from_="start").close()
    begun = datetime(1970, 1, 1, tzinfo=UTC)
    starts = {one.id: one.start for one in client.detections()}
    assert starts == {"since": since, "version": begun, "whole": begun}
    told = {one.id: one.from_ for one in client.detections()}
    assert told == {"since": {"time": "2026-01-01T09:00:00Z"}, "version": {"version": 2}, "whole": "start"}
    with pytest.raises(AlreadyExists):
        client.detect(BOTH, id="since")
    for id in starts:
        client.unsubscribe(id)


def test_what_is_wrong_comes_with_line_and_column(client: Client) -> None:
    with pytest.raises(BadExpression, match="no event type") as refused:
        client.detect("$Sale(i, a);\n Gone(i)")
    assert refused.value.place == "line 2, column 2"


def test_a_signal_is_explained(client: Client, shop: Served) -> None:
    with client.detect(BOTH, id="why") as detection:
        shop.publish(41)
        ((stream, tail),) = [(name, tail) for name, tail in shop.domain.log.tails().items() if tail.last]
        shop.signal("anna", "why", (1, {"a": 41.0}), on=((stream, tail.last, shop.domain.ledger.version),))
        signal = detection.next(timeout=30)
        assert signal is not None
        assert len(signal.contributors) == 1
        told = client.why_signalled("why", signal.position)
        assert [one["type"] for one in told["contributors"]] == ["shop.Sale"]
    client.unsubscribe("why")


def test_the_asynchronous_client_iterates_too(shop: Served) -> None:
    async def read() -> list[Any]:
        async with aio.connect(url(shop), shop.keys["anna"]) as client:
            detection = await client.detect(BOTH, id="async")
            shop.signal("anna", "async", (1, {"n": 1}), (2, {"n": 2}))
            found = []
            async for signal in detection:
                found.append(signal.bindings["n"])
                if len(found) == 2:
                    break
            await detection.ack()
            await detection.close()
            await client.unsubscribe("async")
            return found

    assert asyncio.run(read()) == [1, 2]


# -- the command line -------------------------------------------------------------------------------------------


@pytest.fixture
def key(shop: Served, tmp_path: Path) -> Path:
    path = tmp_path / "anna.pem"
    shop.keys["anna"].save(path)
    return path


def detect(shop: Served, key: Path, *args: str) -> Result:
    return CliRunner().invoke(app, ["detect", *args, "--node", url(shop), "--key", str(key)])


def test_signals_are_printed(client: Client, shop: Served, key: Path) -> None:
    client.detect(BOTH, bind={"i": "tea", "a": 2}, id="shown").close()
    shop.signal("anna", "shown", (3, {"i": "tea", "a": 1.5}), (4, {"i": "gin", "a": 2.5}))
    asked = BOTH, "--id", "shown", "--bind", "i=tea", "--bind", "a=2", "--count", "1"
    first = detect(shop, key, *asked)
    assert (first.exit_code, first.output) == (0, "1970-01-01 00:00:03.000  a 1.5  i tea\n")
    second = detect(shop, key, *asked, "--json")
    told = json.loads(second.output)
    assert (told["type"], told["source"], told["data"]) == ("headgate.signal", "shown", {"a": 2.5, "i": "gin"})
    client.unsubscribe("shown")


def test_a_detection_begins_at_a_version(client: Client, shop: Served, key: Path) -> None:
    client.detect(BOTH, id="since", from_=2).close()
    shop.signal("anna", "since", (3, {"n": 1}))
    done = detect(shop, key, BOTH, "--id", "since", "--from", "version:2", "--count", "1")
    assert (done.exit_code, done.output) == (0, "1970-01-01 00:00:03.000  n 1\n")
    client.unsubscribe("since")


def test_a_detection_begins_where_events_were_reserved(client: Client, shop: Served, key: Path) -> None:
    def run(*args: str) -> Result:
        return CliRunner().invoke(app, [*args, "--node", url(shop), "--key", str(key)])

    assert run("reserve", "rum", "shop.Sale", "--for", "10m").exit_code == 0
    shop.publish(7, item="rum")
    made = run("reserve", "rum", "--detect", "$Sale('rum', a)", "--json")
    assert json.loads(made.output)["whole"] is True, made.output
    client.detect("$Sale('rum', a)", id="reserved", from_="reserved:rum").close()
    assert client.detection_state("reserved")["signals"] == 1
    wrong = run("reserve", "rum"), run("reserve", "rum", "shop.Sale", "--detect", "null")
    assert [one.exit_code for one in wrong] == [2, 2]
    assert run("reserve", "rum", "--end").exit_code == 0
    with pytest.raises(NotFound):
        client.detect("$Sale('rum', a)", id="other", from_="reserved:rum")
    client.unsubscribe("reserved")


def test_where_a_detection_stands_is_told(client: Client, shop: Served, key: Path) -> None:
    expression = "$Sale('rum', a) {t <- @ + 3600}; AbsTime(t)"
    client.detect(expression, id="stands").close()
    shop.publish(5, item="rum")
    asked = expression, "--id", "stands", "--explain"
    done = detect(shop, key, *asked)
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "stands $Sale('rum', a)" in said
    assert all(words in said for words in ("evaluation of", "waits for", "has promised"))
    told = json.loads(detect(shop, key, *asked, "--json").output)
    assert told.keys() == client.detection_state("stands").keys()
    assert [(one["for"], one["part"]) for one in told["waits"]] == [
        ("horizon", "AbsTime(t)"),
        ("event", "$shop.Sale('rum', a) {t <- @ + 3600}"),
    ]
    local = ["detect", "explain", "anna", "stands", "--domain", str(shop.domain.paths.directory)]
    assert json.loads(CliRunner().invoke(app, [*local, "--json"]).output)["expression"] == expression
    ((stream, tail),) = [(name, tail) for name, tail in shop.domain.log.tails().items() if tail.last]
    shop.signal("anna", "stands", (1, {"a": 5.0}), on=((stream, tail.last, shop.domain.ledger.version),))
    with client.resume("stands") as detection:
        signal = detection.next(timeout=30)
    assert signal is not None
    why = CliRunner().invoke(app, [*local, signal.id])
    assert why.exit_code == 0, why.output
    assert "it rests on 1 event" in why.output
    assert f"{stream}:{tail.last}" in why.output
    assert CliRunner().invoke(app, [*local, "no-such"]).exit_code != 0
    assert CliRunner().invoke(app, [*local, "--as", "bob"]).exit_code != 0
    client.unsubscribe("stands")


def test_what_is_wrong_with_an_expression_is_told_with_its_place(shop: Served, key: Path) -> None:
    wrong = detect(shop, key, "$Sale(i, a); Gone(i)")
    assert wrong.exit_code == 2
    assert "line 1, column 14" in wrong.output


@pytest.mark.parametrize("args", [("null", "--bind", "x"), ("null", "--from", "version:x"), ("null", "--from", "then")])
def test_options_that_say_nothing_are_refused(shop: Served, key: Path, args: tuple[str, ...]) -> None:
    assert detect(shop, key, *args).exit_code == 2


def test_help_has_examples() -> None:
    for args in (("--help",), ("null", "--help"), ("run", "--help"), ("check", "--help"), ("explain", "--help")):
        done = CliRunner().invoke(app, ["detect", *args])
        assert done.exit_code == 0, done.output
    assert "--bind" in CliRunner().invoke(app, ["detect", "null", "--help"]).output


def test_a_type_is_declassified_for_a_derived_one_and_classified_again(client: Client, shop: Served, key: Path) -> None:
    install = Rule("anna-installs", "anna", frozenset({Action.INSTALL}), "*")
    shop.commit(AddRule(install))
    client.declare_type("anna.Seen", {"x": "string"})
    made = client.declare_type("anna.Count", {"count": "int"}, times="publisher", derived="declassified")
    assert (made.derived, made.declassified_for) == ("declassified", [])
    assert client.declassify("anna.Seen", "anna.Count").declassified_for == ["anna.Count"]
    client.reclassify("anna.Seen", "anna.Count")
    for word, said in (("declassify", ["anna.Count"]), ("reclassify", [])):
        told = CliRunner().invoke(
            app, ["type", word, "anna.Seen", "--for", "anna.Count", "--node", url(shop), "--key", str(key)]
        )
        assert told.exit_code == 0, told.output
        assert client.type("anna.Seen").declassified_for == said
