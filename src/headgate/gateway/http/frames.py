"""What is said on a WebSocket, as types.

Guarantees: a frame that decodes has the right shape and nothing that the protocol does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from headgate.commands.delivery.delivery_batch import OutgoingDelivery
from headgate.model.errors import HeadgateError
from headgate.protocol import messages as wire
from headgate.protocol.problems import problem

MAX_CREDIT: Final = 1_000_000
"""Deliveries that may be sent ahead to one reader."""

MAX_WATCHED: Final = 1_000
"""Types that one WebSocket watches."""

Credit: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_CREDIT)]
Ref: TypeAlias = Annotated[str, Meta(max_length=200)] | Annotated[int, Meta(ge=-(2**53), le=2**53)]


class Open(wire.Request, tag_field="op", tag="open"):
    """Push a subscription."""

    subscription: wire.Name
    credit: Credit | None = None


class More(wire.Request, tag_field="op", tag="credit"):
    """Push so many more."""

    subscription: wire.Name
    credit: Credit


class Acknowledge(wire.Request, tag_field="op", tag="ack"):
    """Everything up to these positions has been dealt with."""

    subscription: wire.Name
    positions: Annotated[list[wire.Position], Meta(min_length=1, max_length=wire.MAX_POSITIONS)]


class Close(wire.Request, tag_field="op", tag="close"):
    """Stop pushing a subscription."""

    subscription: wire.Name


class Publish(wire.Request, tag_field="op", tag="publish"):
    """Publish some events."""

    events: msgspec.Raw
    ref: Ref | None = None


class WatchTypes(wire.Request, tag_field="op", tag="watch"):
    """Tell which of these types are wanted."""

    types: Annotated[list[wire.Name], Meta(max_length=MAX_WATCHED)]


Frame: TypeAlias = Open | More | Acknowledge | Close | Publish | WatchTypes
_DECODER: Final = msgspec.json.Decoder(Frame)


def decode(data: str | bytes) -> Frame:
    """A frame from a client; `msgspec.DecodeError` says what is wrong with it."""
    found: Frame = _DECODER.decode(data)
    return found


def said(op: str, **members: Any) -> bytes:
    """A frame of the gateway. Members that are None are left out."""
    return msgspec.json.encode({"op": op, **{name: value for name, value in members.items() if value is not None}})


def refused(error: HeadgateError, **about: Any) -> bytes:
    """A refusal as a frame."""
    told = msgspec.to_builtins(problem(error))
    return said("problem", **told, **about)


def events(subscription: bytes, deliveries: Sequence[OutgoingDelivery]) -> str:
    """Deliveries as a frame. The subscription's name comes as JSON."""
    body = b",".join([one.event for one in deliveries])
    return b"".join((b'{"op":"events","subscription":', subscription, b',"events":[', body, b"]}")).decode()
