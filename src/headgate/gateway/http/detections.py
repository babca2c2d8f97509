"""Detections over HTTP: make one, look at it, end it, and ask where it stands and why it signalled.

Guarantees: a detection is a subscription, under the same names and limits; its signals are read, acknowledged and
pushed where a subscription's events are. Whatever is wrong with an expression is refused with its line and column.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, Final

from starlette.responses import Response

from headgate.commands import detections as explaining
from headgate.commands import subscriptions as subscribing
from headgate.commands.deriving import begin_publishing
from headgate.commands.subscriptions import ledger_id, local_id
from headgate.decide.apply import apply
from headgate.decide.composite_check import resolve
from headgate.decide.derived import may_promise
from headgate.gateway.http.handlers import begin_of, lost_history, own_subscription, told_begin
from headgate.gateway.http.operations import Call, Operation, answer
from headgate.gateway.http.rendering import as_json
from headgate.lang import render_condition
from headgate.lang.render import render_free
from headgate.model.changes import Batch, Subscribe
from headgate.model.errors import GovernDenied, HeadgateError, NotFound, TooBusy
from headgate.model.limits import MAX_REPLAYED
from headgate.model.rights import Detection, Subscription
from headgate.model.types import SIGNAL
from headgate.model.values import EPOCH, brief, plain
from headgate.node.cursors import Ack
from headgate.pipeline import SIGNALS
from headgate.pipeline.deliveries import Remark
from headgate.pipeline.detect.signals import told_remark
from headgate.protocol import messages as wire

_WORKING_OUT: Final = Lock()
"""A gateway goes through the log for one detection at a time, and has its time for others meanwhile."""


@Operation("GET", "/v1/detections")
async def detections(call: Call) -> wire.DetectionsAnswer:
    """One's detections."""
    every = call.gateway.follower.state.subscriptions.values()
    mine = [one for one in every if one.principal == call.principal and one.detection is not None]
    brief_lived = {(one.subscription, one.first) for one in await call.run(call.gateway.cursors.temporary)}
    remarks = await call.run(call.gateway.domain.signals.remarks)
    return wire.DetectionsAnswer([_detection(call, one, (one.id, one.first) in brief_lived, remarks) for one in mine])


@Operation("POST", "/v1/detections", answers={201: wire.DetectionAnswer}, errors=(404, 422, 507))
async def detect_unnamed(call: Call, body: wire.DetectionRequest) -> Response:
    """Detect a composite event, with an id of the gateway's choice."""
    made, _ = await _make(call, secrets.token_hex(8), body)
    return answer(await _told(call, made), 201, location=f"/v1/detections/{_local(made)}")


@Operation("GET", "/v1/detections/{id}", errors=(404, 422))
async def detection(call: Call) -> wire.DetectionAnswer:
    """One detection."""
    return await _told(call, await _own(call))


@Operation("PUT", "/v1/detections/{id}", errors=(404, 409, 422, 507))
async def detect(call: Call, body: wire.DetectionRequest) -> tuple[wire.DetectionAnswer, bool]:
    """Detect a composite event."""
    made, is_new = await _make(call, call.named("id"), body)
    return await _told(call, made), is_new


@Operation("DELETE", "/v1/detections/{id}", errors=(404, 422, 507))
async def end_detection(call: Call) -> None:
    """End a detection."""
    mine = await _own(call)
    await call.run(subscribing.unsubscribe, call.gateway.ledger, call.principal, mine.id)


@Operation("GET", "/v1/detections/{id}/state", errors=(404, 422))
async def where_detection_stands(call: Call) -> dict[str, Any]:
    """Where a detection stands: what its evaluations wait for, and which sources hold them back."""
    mine = await _own(call)
    told: Any = as_json(await call.run(_worked_out, call, mine))
    return {**told, "detection": _local(mine)}


@Operation("GET", "/v1/detections/{id}/signals/{position}", errors=(404, 422))
async def why_signalled(call: Call) -> dict[str, Any]:
    """Why a detection signalled: the events that a signal rests on, as far as one may know."""
    gateway, mine, position = call.gateway, await _own(call), call.named("position")
    number = gateway.readers.number(mine)
    seq = gateway.readers.places(mine, number, [position])[SIGNALS]
    told: Any = as_json(await call.run(explaining.explain_signal, gateway.domain, call.principal, mine, number, seq))
    for contributor in told["contributors"]:
        contributor["subscription"]["id"] = _local(mine)
    return {**told, "detection": _local(mine)}


async def _make(call: Call, id: str, body: wire.DetectionRequest) -> tuple[Subscription, bool]:
    """The detection by this name as it is asked for, and whether it is new."""
    gateway, reader = call.gateway, call.gateway.reader
    whose = call.principal if body.for_ is None else body.for_
    if call.principal not in (whose, gateway.follower.state.administrator):
        raise GovernDenied(f"`{call.principal}` detects for itself alone", remedy="leave `for` out")
    composite = await reader.composite(call.principal, body.expression)
    adds = None if body.adds is None else await reader.row(call.principal, body.adds)
    history, version, time = await begin_of(call, body.from_)
    start = gateway.stamp() if not history else EPOCH if time is None else time
    wanted = Subscription(
        ledger_id(whose, id),
        whose,
        SIGNAL,
        history=history,
        since_version=version,
        requires=None if body.requires is None else await reader.condition(call.principal, body.requires),
        origin=call.origin,
        counted=None if body.with_ is None else tuple(dict.fromkeys(body.with_)),
        detection=Detection(body.expression, composite, body.bind, start, body.publishes, adds),
    )
    limits = gateway.config.limits

    def make() -> tuple[Subscription, bool]:
        before = dict(gateway.readers.signals.reached.streams)  # its own all come after these
        made, is_new = subscribing.detect(
            gateway.ledger,
            _beginning(call, wanted),
            author=call.principal,
            most=limits.subscriptions_per_principal,
            most_detections=limits.detections_per_principal,
        )
        if is_new:
            gateway.cursors.ack_many([Ack(made.id, made.first, before)], gateway.clock())
        if body.temporary:  # again if it is not new: the first answer may have told that this could not be written
            gateway.cursors.mark_temporary(made.id, made.first, gateway.name, gateway.clock())
        return made, is_new

    return await call.run(make)


def _beginning(call: Call, wanted: Subscription) -> Subscription:
    """A detection that publishes begins once its principal has joined the stream of such events."""
    gateway, detection = call.gateway, wanted.detection
    assert detection is not None
    if detection.publishes is None or gateway.follower.subscription(wanted.id) is not None:
        return wanted
    # Whoever would be refused does not join: from there on, what it might publish is waited for.
    apply(gateway.follower.state, Batch(call.principal, (Subscribe(wanted),)))
    joined = begin_publishing(
        gateway.domain,
        gateway.deriving.writer.log,
        gateway.follower.state,
        wanted.principal,
        detection.publishes,
        gateway.stamp(),
        by_clock=gateway.deriving.writer.promises_clock,
    )
    return wanted if wanted.history else replace(wanted, detection=replace(detection, start=joined))


def _worked_out(call: Call, mine: Subscription) -> explaining.DetectionState:
    if not _WORKING_OUT.acquire(blocking=False):
        raise TooBusy("where another detection stands is being worked out", remedy="ask again")
    try:
        return explaining.detection_state(call.gateway.domain, call.principal, mine, MAX_REPLAYED)
    finally:
        _WORKING_OUT.release()


async def _own(call: Call) -> Subscription:
    """The caller's detection by the name in the path, or `not-found`."""
    id = call.named("id")
    found = await own_subscription(call.gateway, call.caller, id)
    if found.detection is None:
        raise NotFound(f"no detection `{brief(id)}`")
    return found


def _local(one: Subscription) -> str:
    return local_id(one.principal, one.id) or one.id


async def _told(call: Call, one: Subscription) -> wire.DetectionAnswer:
    temporary = await call.run(call.gateway.cursors.temporary_one, one.id, one.first)
    return _detection(call, one, temporary is not None, await call.run(call.gateway.domain.signals.remarks))


def _detection(call: Call, one: Subscription, temporary: bool, remarks: Sequence[Remark]) -> wire.DetectionAnswer:
    assert one.detection is not None
    lost = lost_history(call.gateway, one)
    said = [told_remark(remark) for remark in remarks if remark.subscription == _number(call, one)]
    return wire.DetectionAnswer(
        _local(one),
        one.detection.text,
        one.first,
        one.detection.start,
        {name: plain(value) for name, value in one.detection.bound.items()},
        told_begin(one),
        temporary,
        [*said, *_warnings(call, one.detection), *(() if lost is None else (lost,))],
        None if one.requires is None else render_condition(one.requires),
        one.origin,
        None if one.counted is None else list(one.counted),
        one.detection.publishes,
        None if one.detection.adds is None else render_free(one.detection.adds),
    )


def _number(call: Call, one: Subscription) -> int | None:
    try:
        return call.gateway.readers.number(one)
    except NotFound:  # it has just ended
        return None


def _warnings(call: Call, one: Detection) -> tuple[str, ...]:
    silent = one.publishes is not None and not may_promise(one.composite)
    promises = ("what it publishes is promised nothing of: its type should say `lateness`",) if silent else ()
    try:
        return promises + resolve(one.composite, call.gateway.follower.state, one.bound, one.start).warnings
    except HeadgateError:  # what it looks at has changed since
        return ()
