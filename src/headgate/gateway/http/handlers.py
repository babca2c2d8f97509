"""What a gateway does for its clients, but for reading deliveries, statements and roles.

Guarantees: everything is done in the name of the session's principal, and decided by the ledger. What a principal may
not know of is `not-found`, like what is not there.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, Final, TypeAlias

from starlette.requests import HTTPConnection
from starlette.responses import Response

from headgate.commands import event_types, explaining
from headgate.commands import subscriptions as subscribing
from headgate.commands.delivery.reservations import Reservations
from headgate.commands.policy import change_policy
from headgate.commands.sessions import Caller
from headgate.commands.subscriptions import check_origin, known_subscription, ledger_id, local_id
from headgate.decide.deliver import is_told_everything
from headgate.gateway.http import operations as asked
from headgate.gateway.http.change_requests import type_of
from headgate.gateway.http.operations import Call, Operation, Parameter, answer
from headgate.gateway.http.rendering import as_json
from headgate.gateway.runtime import Gateway
from headgate.lang import render_condition
from headgate.model.errors import BadRequest, GovernDenied, HeadgateError, UnsupportedMediaType
from headgate.model.expressions import TRUE
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.types import BY_GATEWAY, check_type_name
from headgate.model.values import EPOCH, brief, render_timestamp
from headgate.node.statement_register import coordinator_of
from headgate.node.telemetry import caused_by
from headgate.protocol import messages as wire
from headgate.trust.tokens import is_token

Facts: TypeAlias = dict[str, Any]
"""What is told of restrictions, as JSON."""
Published: TypeAlias = wire.EventResult | wire.PublishAnswer | wire.BulkAnswer

# -- connecting -------------------------------------------------------------------------------------------------


@Operation("GET", "/v1", session=False)
async def about(call: Call) -> wire.AboutAnswer:
    """What this is."""
    gateway = call.gateway
    root = coordinator_of(gateway.follower.state)
    return wire.AboutAnswer(gateway.config.domain.name, gateway.broker.public.did, asked.PROTOCOL, gateway.name, root)


@Operation("POST", "/v1/challenges", status=201, errors=(401,), session=False)
async def challenge(call: Call, body: wire.ChallengeRequest) -> wire.ChallengeAnswer:
    """Ask for a challenge."""
    made = call.gateway.sessions.challenger.challenge(body.nonce)
    return wire.ChallengeAnswer(
        made.nonce, made.broker, made.proof, made.expires, list(call.gateway.own_statements.shown)
    )


@Operation("POST", "/v1/sessions", status=201, errors=(401, 403, 409, 422, 507), session=False)
async def connect(call: Call, body: wire.SessionRequest) -> wire.SessionAnswer:
    """Answer a challenge and connect."""
    gateway = call.gateway
    given = (body.nonce, body.client_nonce, body.principal, body.signature)
    try:
        if body.present:
            async with gateway.presenting:
                token, caller = await call.run(gateway.sessions.open, *given, gateway.authority, body.present)
        else:
            token, caller = gateway.sessions.open(*given)
    except HeadgateError as error:
        gateway.metrics.session_refused(error.code)
        raise
    gateway.metrics.session_opened()
    return wire.SessionAnswer(token, caller.principal, caller.expires)


@Operation("GET", "/v1/sessions/current")
async def who(call: Call) -> wire.WhoAnswer:
    """Who one is."""
    return wire.WhoAnswer(call.principal, call.caller.did, call.caller.expires)


@Operation("DELETE", "/v1/sessions/current", errors=(507,))
async def disconnect(call: Call) -> None:
    """Disconnect."""
    await call.run(call.gateway.sessions.end, call.caller)


# -- types ------------------------------------------------------------------------------------------------------


@Operation("GET", "/v1/types")
async def types(call: Call) -> wire.TypesAnswer:
    """Every event type."""
    state = call.gateway.follower.state
    return wire.TypesAnswer([_type(state, name) for name in state.types])


@Operation("GET", "/v1/types/{name}", errors=(404,))
async def type_(call: Call) -> wire.TypeAnswer:
    """One event type."""
    return await _signed(call, call.gateway.follower.state.types[call.named("name")].name)


@Operation("PUT", "/v1/types/{name}", errors=(404, 422, 507))
async def declare(call: Call, body: wire.TypeRequest) -> tuple[wire.TypeAnswer, bool]:
    """Declare a type, or a new version of it."""
    gateway, name = call.gateway, check_type_name(call.named("name"))
    known = gateway.follower.state.types
    if body.statement is None:
        new = type_of(name, body, known[name].owner if name in known else call.principal)
        is_new = await call.run(event_types.declare, gateway.ledger, call.principal, new)
        return _type(gateway.follower.state, name), is_new
    if body != wire.TypeRequest(statement=body.statement):
        raise BadRequest("a signed definition says all of itself", remedy="send the `statement` alone")
    gateway.paces.version(call.principal)
    await call.run(gateway.signed_types.declare, name, body.statement, call.principal)
    return await _signed(call, name), name not in known


@Operation("DELETE", "/v1/types/{name}", errors=(404, 422, 507))
async def retire(call: Call) -> None:
    """Remove a type."""
    await call.run(event_types.retire, call.gateway.ledger, call.principal, call.named("name"))


@Operation("PUT", "/v1/types/{name}/declassified/{derived}", errors=(404, 422, 507))
async def declassify(call: Call) -> tuple[wire.TypeAnswer, bool]:
    """Declassify a type for events of a derived one."""
    name, derived = call.named("name"), call.named("derived")
    is_new = await call.run(event_types.declassify, call.gateway.ledger, call.principal, name, derived)
    return _type(call.gateway.follower.state, name), is_new


@Operation("DELETE", "/v1/types/{name}/declassified/{derived}", errors=(404, 507))
async def reclassify(call: Call) -> None:
    """Declassify a type for events of a derived one no more."""
    name, derived = call.named("name"), call.named("derived")
    await call.run(event_types.reclassify, call.gateway.ledger, call.principal, name, derived)


@Operation("GET", "/v1/types/{name}/restriction", errors=(404,))
async def type_restriction(call: Call) -> Facts:
    """What one may see of a type."""
    asked = call.gateway.domain, call.principal, call.named("name")
    told: Any = as_json(await call.run(explaining.type_restriction, *asked))
    return {name: fact for name, fact in told.items() if name != "subscription"}


async def _signed(call: Call, name: str) -> wire.TypeAnswer:
    """A type, with its definition as it was signed."""
    state = call.gateway.follower.state
    told = _type(state, name)
    told.statement = await call.run(call.gateway.signed_types.statement, state, name)
    return told


def _type(state: State, name: str) -> wire.TypeAnswer:
    declared = state.types[name]
    kinds = {attribute: kind.value for attribute, kind in state.types.attributes(name).items()}
    times: dict[str, Any] = {} if (said := state.types.times(name)) is BY_GATEWAY else said.as_said()
    return wire.TypeAnswer(
        name,
        declared.owner,
        kinds,
        list(declared.attributes),
        declared.parent,
        list(declared.key),
        derived=declared.derived,
        declassified_for=sorted(declared.declassified_for),
        **times,
    )


# -- publishing -------------------------------------------------------------------------------------------------

_BODIES: Final = {
    wire.EVENT_JSON: wire.CloudEvent,
    wire.BATCH_JSON: list[wire.CloudEvent],
    wire.ARROW: {"type": "string", "format": "binary"},
}


@Operation(
    "POST",
    "/v1/events",
    errors=(404, 422, 507),
    parameters=(Parameter("type", "The type of the events of an Arrow stream"),),
    bodies=_BODIES,
)
async def publish(call: Call) -> Published:
    """Publish events."""
    gateway, origin, content = call.gateway, call.origin, asked.content_type(call.request)
    if content not in _BODIES:
        raise UnsupportedMediaType(
            f"`{content[:100]}` is not read here",
            remedy=f"send `{wire.EVENT_JSON}`, `{wire.BATCH_JSON}` or `{wire.ARROW}`",
        )
    raw = await call.read_body(gateway.config.publish.max_body)
    begun = perf_counter()
    made: Published
    with caused_by(call.request.headers):
        if content == wire.EVENT_JSON:
            made = await gateway.publisher.publish_one(call.caller, asked.shaped(raw, wire.CloudEvent), origin)
        elif content == wire.BATCH_JSON:
            events = asked.shaped(raw, list[wire.CloudEvent])
            made = wire.PublishAnswer(await gateway.publisher.publish_cloudevents(call.caller, events, origin))
        else:
            named = call.request.query_params.get("type")
            made = await gateway.publisher.publish_arrow(call.caller, raw, named, origin)
    gateway.metrics.published.observe(perf_counter() - begun)
    if nothing_kept(made):
        gateway.paces.count_refused(call.principal, len(raw))
    return made


@Operation("POST", "/v1/heartbeats", errors=(404, 422, 507))
async def heartbeat(call: Call, body: wire.HeartbeatRequest) -> wire.HeartbeatAnswer:
    """Promise that no more events from before a time will come."""
    return await call.gateway.publisher.heartbeat(call.caller, body)


def nothing_kept(made: Published) -> bool:
    """Was every event refused?"""
    match made:
        case wire.EventResult():
            return made.status == "refused"
        case wire.PublishAnswer(results):
            return bool(results) and all(one.status == "refused" for one in results)
        case wire.BulkAnswer():
            return made.refused > 0 and made.accepted + made.duplicates == 0


@Operation("GET", "/v1/advertisements")
async def advertisements(call: Call) -> wire.AdvertisementsAnswer:
    """What one advertises."""
    mine = event_types.advertised(call.gateway.ledger, call.principal)
    return wire.AdvertisementsAnswer([await _advertised(call, name) for name in mine])


@Operation("PUT", "/v1/advertisements/{name}", errors=(404, 422, 507))
async def advertise(call: Call) -> tuple[wire.AdvertisementAnswer, bool]:
    """Advertise a type."""
    name = call.named("name")
    is_new = await call.run(event_types.advertise, call.gateway.ledger, call.principal, name)
    return await _advertised(call, name), is_new


@Operation("DELETE", "/v1/advertisements/{name}", errors=(404, 507))
async def unadvertise(call: Call) -> None:
    """Advertise a type no more."""
    await call.run(event_types.unadvertise, call.gateway.ledger, call.principal, call.named("name"))


async def _advertised(call: Call, name: str) -> wire.AdvertisementAnswer:
    holds = await call.run(call.gateway.publisher.holds, call.caller, name, call.origin)
    return wire.AdvertisementAnswer(name, await call.gateway.quench.wanted(call.principal, name), holds)


@Operation("GET", "/v1/advertisements/{name}/restriction", errors=(404,))
async def publish_restriction(call: Call) -> Facts:
    """What publishing a type comes to."""
    asked = call.gateway.domain, call.principal, call.principal, call.named("name")
    told: Any = as_json(await call.run(explaining.publish_restriction, *asked))
    return dict(told)


# -- subscriptions ----------------------------------------------------------------------------------------------


@Operation("GET", "/v1/subscriptions")
async def subscriptions(call: Call) -> wire.SubscriptionsAnswer:
    """One's subscriptions."""
    mine = [s for s in call.gateway.follower.state.subscriptions.values() if s.principal == call.principal]
    brief_lived = {(one.subscription, one.first) for one in await call.run(call.gateway.cursors.temporary)}
    return wire.SubscriptionsAnswer(
        [_subscription(call.gateway, s, (s.id, s.first) in brief_lived) for s in mine if _local(s) is not None]
    )


@Operation("POST", "/v1/subscriptions", answers={201: wire.SubscriptionAnswer}, errors=(404, 422, 507))
async def subscribe_unnamed(call: Call, body: wire.SubscriptionRequest) -> Response:
    """Subscribe, with an id of the gateway's choice."""
    made, _ = await make_subscription(call, secrets.token_hex(8), body)
    return answer(await _told(call, made), 201, location=f"/v1/subscriptions/{_local(made)}")


@Operation("GET", "/v1/subscriptions/{id}", errors=(404, 422))
async def subscription(call: Call) -> wire.SubscriptionAnswer:
    """One subscription."""
    return await _told(call, await own_subscription(call.gateway, call.caller, call.named("id")))


@Operation("PUT", "/v1/subscriptions/{id}", errors=(404, 409, 422, 507))
async def subscribe(call: Call, body: wire.SubscriptionRequest) -> tuple[wire.SubscriptionAnswer, bool]:
    """Subscribe."""
    made, is_new = await make_subscription(call, call.named("id"), body)
    return await _told(call, made), is_new


@Operation("DELETE", "/v1/subscriptions/{id}", errors=(404, 422, 507))
async def unsubscribe(call: Call) -> None:
    """Unsubscribe."""
    name = ledger_id(call.principal, call.named("id"))
    await call.run(subscribing.unsubscribe, call.gateway.ledger, call.principal, name)


@Operation("GET", "/v1/subscriptions/{id}/restriction", errors=(404, 422))
async def restriction(call: Call) -> Facts:
    """What a subscription loses to one's rights."""
    mine = await own_subscription(call.gateway, call.caller, call.named("id"))
    told: Any = as_json(await call.run(explaining.restriction, call.gateway.domain, call.principal, mine.id))
    return {**told, "subscription": _local(mine)}


async def make_subscription(call: Call, id: str, body: wire.SubscriptionRequest) -> tuple[Subscription, bool]:
    """The subscription by this name as it is asked for, and whether it is new."""
    gateway = call.gateway
    wanted = await _wanted(call, ledger_id(call.principal, id), body)
    most = gateway.config.limits.subscriptions_per_principal

    def make() -> tuple[Subscription, bool]:
        made, is_new = subscribing.subscribe(gateway.ledger, wanted, most=most)
        if body.temporary:  # again if it is not new: the first answer may have told that this could not be written
            gateway.cursors.mark_temporary(made.id, made.first, gateway.name, gateway.clock())
        return made, is_new

    return await call.run(make)


async def _wanted(call: Call, name: str, body: wire.SubscriptionRequest) -> Subscription:
    history, version, time = await begin_of(call, body.from_)
    reader = call.gateway.reader
    return Subscription(
        name,
        call.principal,
        body.type,
        await reader.condition(call.principal, body.where),
        history,
        since_version=version,
        since_time=time,
        requires=None if body.requires is None else await reader.condition(call.principal, body.requires),
        origin=call.origin,
        counted=None if body.with_ is None else tuple(dict.fromkeys(body.with_)),
    )


async def begin_of(call: Call, begin: str | wire.Since) -> tuple[bool, int, datetime | None]:
    """Where a subscription begins: does it ask for history, and from which version and time?"""
    if not isinstance(begin, wire.Since):
        return begin == "start", 0, None
    if sum(one is not None for one in (begin.version, begin.time, begin.reserved)) != 1:
        raise BadRequest(
            "`from` names a version, a time or a reservation",
            remedy='write {"version": 3}, {"time": "..."} or {"reserved": "id"}',
        )
    if begin.reserved is not None:
        kept = Reservations(call.gateway.ledger, call.gateway.cursors, call.gateway.clock)
        return True, 0, await call.run(kept.taken_up, call.principal, begin.reserved)
    return True, begin.version or 0, utc_of(begin.time)


def check_place(gateway: Gateway, found: Subscription, connection: HTTPConnection) -> None:
    """Refuse to read a subscription from another address than it was made from, where its rights depend on that."""
    check_origin(gateway.follower.state, found, asked.origin_of(connection, gateway.config.gateway.proxies))


def utc_of(time: datetime | None) -> datetime | None:
    """A time as sent, if one was, in UTC."""
    try:
        return None if time is None else time.astimezone(UTC)
    except OverflowError:  # the first and last hours of the calendar, in some zones
        raise BadRequest(f"`{time}` is not in the years 1 to 9999 of UTC") from None


async def own_subscription(gateway: Gateway, caller: Caller, id: str) -> Subscription:
    """The caller's subscription by this name, or `not-found`."""
    known = known_subscription(gateway.ledger, caller.principal, id)
    if known is not None:
        return known
    return await gateway.run_blocking(subscribing.own_subscription, gateway.ledger, caller.principal, id)


def _local(subscription: Subscription) -> str | None:
    return local_id(subscription.principal, subscription.id)


async def _told(call: Call, subscription: Subscription) -> wire.SubscriptionAnswer:
    temporary = await call.run(call.gateway.cursors.temporary_one, subscription.id, subscription.first)
    return _subscription(call.gateway, subscription, temporary is not None)


def _subscription(gateway: Gateway, subscription: Subscription, temporary: bool) -> wire.SubscriptionAnswer:
    return wire.SubscriptionAnswer(
        _local(subscription) or subscription.id,
        subscription.type,
        subscription.first,
        None if subscription.where == TRUE else render_condition(subscription.where),
        told_begin(subscription),
        temporary,
        warning=lost_history(gateway, subscription),
        requires=None if subscription.requires is None else render_condition(subscription.requires),
        origin=subscription.origin,
        with_=None if subscription.counted is None else list(subscription.counted),
        detects=None if subscription.detection is None else subscription.detection.text,
    )


def told_begin(subscription: Subscription) -> Any:
    """Where a subscription begins, as it is told."""
    if not subscription.history:
        return "now"
    if subscription.since_version:
        return {"version": subscription.since_version}
    since = subscription.since_time
    if subscription.detection is not None and subscription.detection.start != EPOCH:
        since = subscription.detection.start
    return "start" if since is None else {"time": render_timestamp(since)}


def lost_history(gateway: Gateway, subscription: Subscription) -> str | None:
    """What is to be said where history is not whole any more."""
    trimmed = subscription.history and any(gateway.follower.trimmed().values())
    return "the log no longer holds its oldest events" if trimmed else None


# -- policy -----------------------------------------------------------------------------------------------------

_AFTER: Final = Parameter("after", "Only later ones", {"type": "integer", "minimum": 0, "maximum": 2**53})


@Operation("POST", "/v1/batches", errors=(404, 409, 422, 507))
async def change(call: Call, body: wire.BatchRequest) -> wire.BatchAnswer:
    """Change policy, as one batch."""
    ledger = call.gateway.ledger
    changes = await call.gateway.reader.changes(ledger.state, call.principal, body.changes)
    version = await call.run(change_policy, ledger, call.principal, changes, body.note, expect=body.expect)
    return wire.BatchAnswer(version, 0 if body.expect is None else version - 1 - body.expect)


@Operation("GET", "/v1/versions", parameters=(_AFTER,))
async def versions(call: Call) -> wire.VersionsAnswer:
    """The versions of the policy."""
    after = call.request.query_params.get("after")
    if after is not None and not (after.isascii() and after.isdecimal() and len(after) < 19):
        raise BadRequest(f"`after` is a number, not `{brief(after)}`")
    asked = call.gateway.domain, call.gateway.follower.state, call.principal, None if after is None else int(after)
    return wire.VersionsAnswer(
        [
            wire.VersionAnswer(one.version, one.time)
            if starts is None
            else wire.VersionAnswer(one.version, one.time, one.author, one.note, starts)
            for one, starts in await call.run(explaining.versions, *asked)
        ]
    )


# -- operating --------------------------------------------------------------------------------------------------


@Operation("GET", "/health", answers=dict.fromkeys((200, 503), wire.HealthAnswer), session=False)
async def health(call: Call) -> Response:
    """How the node is.

    `degraded`: events are accepted, but come late, or a process of the node is away, hangs, or has something in it that
    fails. `failing`: this gateway cannot accept events. The reasons say why.
    """
    told = await call.gateway.health()
    return answer(told, 503 if told.status == "failing" else 200)


@Operation("GET", "/metrics", answers={200: {"type": "string"}}, errors=(401, 403), session=False, media="text/plain")
async def metrics(call: Call) -> Response:
    """Figures for Prometheus.

    They are for whoever has the node's own token for them, or governs or audits everything.
    """
    gateway = call.gateway
    if not await call.run(is_token, gateway.files.metrics_token, asked.token_of(call.request)):
        await gateway.catch_up()
        caller = await asked.authenticated(call.request)
        if not is_told_everything(gateway.follower.state, caller.principal):
            raise GovernDenied(
                f"`{caller.principal}` may not know the figures of the node",
                remedy="use the token in `keys/metrics.token`, or ask for the right to audit every type",
            )
    return Response(await call.run(gateway.render_metrics), media_type="text/plain; version=0.0.4; charset=utf-8")
