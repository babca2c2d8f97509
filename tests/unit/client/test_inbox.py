"""What a reader has received, taken and acknowledged, without any socket."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.client.channel import DeliveredEvent
from headgate.client.errors import Gap, Refused, Unacknowledged
from headgate.client.subscription import Inbox
from headgate.model.errors import BadDefinition


def events(*seqs: int) -> list[DeliveredEvent]:
    return [DeliveredEvent(str(n), "s", "T", hgposition=f"p{n}", data={"n": n}) for n in seqs]


def said(inbox: Inbox, op: str) -> list[dict[str, Any]]:
    return [frame for frame in inbox.frames() if frame["op"] == op]


def opened(window: int = 10, most: int = 1000) -> Inbox:
    inbox = Inbox("i", window, most)
    inbox.begin()
    assert inbox.frames() == [{"op": "open", "subscription": "i", "credit": window}]
    return inbox


def test_nothing_is_taken_twice() -> None:
    inbox = opened()
    inbox.receive(events(0, 1, 2, 3))
    assert [d.data["n"] for d in inbox.take(2)] == [0, 1]
    inbox.begin()
    inbox.frames()
    inbox.receive(events(0, 1, 2, 3, 4))
    assert [d.data["n"] for d in inbox.take(10)] == [2, 3, 4]


def test_what_was_not_confirmed_is_said_again() -> None:
    inbox = opened()
    inbox.receive(events(0, 1))
    inbox.take(1)[0].ack()
    assert said(inbox, "ack")[0]["positions"] == ["p0"]
    inbox.take(1)[0].ack()
    assert said(inbox, "ack") == []  # one at a time
    inbox.begin()
    assert [f["op"] for f in inbox.frames()] == ["open", "ack"]
    assert not inbox.settled
    inbox.confirm()
    assert inbox.settled
    assert inbox.frames() == []


def test_what_comes_again_before_its_late_acknowledgement_arrives_is_not_taken_twice() -> None:
    inbox = opened()
    inbox.receive(events(0))
    inbox.take(1)[0].ack()
    inbox.begin()
    assert [f["op"] for f in inbox.frames()] == ["open", "ack"]
    inbox.confirm()
    inbox.receive(events(0, 1))
    assert [d.data["n"] for d in inbox.take(10)] == [1]


def test_acknowledging_one_acknowledges_those_before_it() -> None:
    inbox = opened()
    inbox.receive(events(0, 1, 2))
    inbox.take(3)[1].ack()
    assert said(inbox, "ack")[0]["positions"] == ["p0", "p1"]


def test_credit_is_given_back_as_deliveries_are_taken() -> None:
    inbox = opened(window=4)
    inbox.receive(events(0, 1, 2, 3))
    inbox.take(1)
    assert said(inbox, "credit") == []
    inbox.take(1)
    assert said(inbox, "credit") == [{"op": "credit", "subscription": "i", "credit": 2}]
    with pytest.raises(Refused, match="allowed"):
        inbox.receive(events(4, 5, 6))


def test_a_gap_is_raised_once_and_in_its_place() -> None:
    inbox = opened()
    inbox.receive(events(0))
    inbox.gap("lost some")
    inbox.receive(events(5))
    assert [d.id for d in inbox.take(10)] == ["0"]
    with pytest.raises(Gap, match="lost some"):
        inbox.take(10)
    assert [d.id for d in inbox.take(10)] == ["5"]


def test_never_acknowledging_ends_in_an_error() -> None:
    inbox = opened(window=10, most=3)
    inbox.receive(events(0, 1, 2, 3))
    taken = inbox.take(10)
    assert len(taken) == 3
    with pytest.raises(Unacknowledged):
        inbox.take(1)
    taken[-1].ack()
    assert len(inbox.take(1)) == 1


def test_a_gateway_that_does_not_confirm_gets_no_more_credit() -> None:
    inbox = opened(window=2, most=3)
    at = 0
    for _ in range(20):
        if inbox._credit:
            inbox.receive(events(at))
            at += 1
        for one in inbox.take(1):
            one.ack()
        inbox.frames()
    assert at <= 6


def test_windows() -> None:
    for bad in (0, -1, 10_001):
        with pytest.raises(BadDefinition):
            Inbox("i", bad)


@given(
    st.lists(st.sampled_from(["push", "take", "ack", "confirm", "break", "speak"]), min_size=30, max_size=200),
    st.integers(1, 5),
)
def test_every_event_once_and_in_order_whatever_happens(steps: list[str], window: int) -> None:
    """A gateway that keeps a cursor, sends again from it after a break, and confirms late."""
    inbox = Inbox("i", window)
    cursor, at, credit, unconfirmed, open_ = 0, 0, 0, None, False
    taken: list[int] = []
    last = None
    for step in [*steps, *["speak", "confirm", "push", "take", "ack"] * 10]:
        match step:
            case "speak":
                for frame in inbox.frames():
                    if frame["op"] == "open":
                        open_, credit, at = True, frame["credit"], cursor
                    elif frame["op"] == "credit":
                        credit += frame["credit"]
                    else:
                        unconfirmed = max(int(p[1:]) for p in frame["positions"]) + 1
            case "push" if open_ and credit:
                inbox.receive(events(at))
                at, credit = at + 1, credit - 1
            case "confirm" if unconfirmed is not None:
                cursor, unconfirmed = max(cursor, unconfirmed), None
                inbox.confirm()
            case "break":
                inbox.begin()
                open_, credit, unconfirmed = False, 0, None
            case "take":
                for one in inbox.take(1):
                    last = one
                    taken.append(one.data["n"])
            case "ack" if last is not None:
                last.ack()
    assert taken == list(range(len(taken)))
    assert taken
