"""Detections on a running node: signals over the client and the command line, also when the pipeline is killed."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pytest

from harness.node import Node, lines, run
from headgate.client import Client
from headgate.model.errors import HeadgateError
from node.world import CARD, WAIT

pytestmark = pytest.mark.spark

PATIENCE = 4 * WAIT
"""Seconds: the query of detections starts with the first of them, and takes its time on a busy machine."""


def sell(till: Client, tag: str, amounts: Iterable[float]) -> None:
    """One sale after another, each at a time of its own."""
    for amount in amounts:
        till.publish("shop.Sale", {"item": tag, "amount": amount, "card": CARD})


def test_signals_come_as_they_are_certain_and_none_is_lost_or_repeated(node: Node) -> None:
    tag = f"d-{uuid.uuid4()}"
    with node.client("till") as till, node.client("ann") as ann:
        rises = ann.detect(f"$Sale('{tag}', a, *); Sale('{tag}', b, *) {{b > a}}", id=f"rises-{tag}")
        sell(till, tag, [1.0, 2.0, 5_000.0, 3.0])  # ann may not see sales of 1,000 and more
        first = [rises.next(PATIENCE) for _ in range(2)]
        assert [signal and dict(signal.bindings) for signal in first] == [{"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 3.0}]
        node.kill("pipeline")
        sell(till, tag, [4.0])
        third = rises.next(PATIENCE)
        assert third is not None
        assert dict(third.bindings) == {"a": 3.0, "b": 4.0}
        assert not [one for one in ann.detections() if one.id != f"rises-{tag}"]
        explained = ann.why_signalled(f"rises-{tag}", third.position)
        assert len(explained["contributors"]) == 2
        rises.ack()
        rises.close()
        again = ann.resume(f"rises-{tag}")
        sell(till, tag, [5.0])
        fourth = again.next(PATIENCE)
        assert fourth is not None
        assert dict(fourth.bindings) == {"a": 4.0, "b": 5.0}
        again.close()
        ann.unsubscribe(f"rises-{tag}")

    # The same over history, on the command line: as if it had been there from the start.
    expression = f"$Sale('{tag}', a, *); Sale('{tag}', b, *) {{b > a}}"
    who = ("--as", "ann", "--domain", node.directory, "--json")
    told = lines(run("detect", expression, *who, "--from", "start", "--count", "4", timeout=PATIENCE).stdout)
    assert [one["data"] for one in told] == [{"a": n, "b": n + 1} for n in (1.0, 2.0, 3.0, 4.0)]


def test_signals_are_events_of_a_type_of_their_own_and_rows_of_a_relation(node: Node) -> None:
    tag = f"p-{uuid.uuid4()}"
    expression = f"$Sale('{tag}', amount, *) {{amount > 10, item <- '{tag}'}}"
    with node.client("till") as till, node.client("ann") as ann, node.client("watch") as watch:
        large = ann.subscribe("large-sales", "shop.LargeSale", where=f"item = '{tag}'")
        watch.make_detection(expression, id=f"large-{tag}", publishes="shop.LargeSale")
        with pytest.raises(HeadgateError) as loop:
            watch.make_detection("$LargeSale(item, amount)", id=f"loop-{tag}", publishes="shop.LargeSale")
        assert loop.value.code == "feeds-itself"
        sell(till, tag, [1.0, 20.0])
        first = large.next(PATIENCE)
        assert first is not None
        assert dict(first.data) == {"item": tag, "amount": 20.0}
        for part in ("pipeline", "gateway-1"):
            node.kill(part)
            sell(till, tag, [30.0 if part == "pipeline" else 40.0])
        more = [large.next(PATIENCE) for _ in range(2)]
        assert [one and one.data["amount"] for one in more] == [30.0, 40.0]
        # What is detected over derived events becomes certain by what their detection promises.
        with ann.detect(f"LargeSale('{tag}', a)", from_="start", temporary=True) as after:
            told = after.next(PATIENCE)
            assert told is not None
            assert dict(told.bindings) == {"a": 20.0}
        who = ("--as", "administrator", "--domain", node.directory)
        run("detect", expression, "--id", f"row-{tag}", "--add", "Sold(item, amount)", "--for", "watch", *who)
        sell(till, tag, [50.0, 2.0])
        with node.domain() as domain:
            node.wait(lambda: (tag, 50.0) in domain.ledger.state().relations["Sold"], "the row", PATIENCE)
        large.close()
        for id in ("large", "row"):  # while there is a detection, every stream promises its clock all the time
            watch.unsubscribe(f"{id}-{tag}")
        ann.unsubscribe("large-sales")
