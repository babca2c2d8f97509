"""What a gateway does for its clients, but for pushing deliveries (`push`) and publishing (`publisher`).

Guarantees: everything is done in the name of the session's principal, and decided by the ledger. What a principal may
not know of is `not-found`, like what is not there.
"""

from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from headgate.commands import event_types, explaining
from headgate.commands import subscriptions as subscribing
from headgate.commands.role_certificates import Asker
from headgate.commands.sessions import Caller
from headgate.commands.statements import Presented
from headgate.commands.subscriptions import check_origin, known_subscription, ledger_id, local_id
from headgate.decide.ask import is_told_everything
from headgate.gateway.http.change_requests import type_of
from headgate.gateway.http.operations import answer, nothing, read_body, shaped
from headgate.gateway.http.origin import origin_of
from headgate.gateway.http.rendering import as_json
from headgate.gateway.http.sessions import authenticated, token_of
from headgate.gateway.runtime import Gateway
from headgate.lang import render_condition
from headgate.model.conditions import TRUE
from headgate.model.errors import (
    BadRequest,
    GovernDenied,
    HeadgateError,
    UnsupportedMediaType,
)
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.types import check_type_name
from headgate.model.values import brief, render_timestamp
from headgate.node.gateway_identity import coordinator_of
from headgate.protocol import messages as wire
from headgate.trust.scraping import is_token


def gateway_of(request: Request) -> Gateway:
    """The gateway that serves a request."""
    found: Gateway = request.app.state.gateway
    return found


def asker_of(request: Request, caller: Caller) -> Asker:
    """Who asks about roles, and where from."""
    return Asker(caller.principal, caller.did, origin_of(request, gateway_of(request).config.gateway.proxies))


# -- connecting -------------------------------------------------------------------------------------------------


async def about(request: Request, body: None) -> Response:  # noqa: ARG001
    """What this is."""
    gateway = gateway_of(request)
    domain, broker = gateway.config.domain.name, gateway.broker.public.did
    root = coordinator_of(gateway.follower.state)
    return answer(wire.AboutAnswer(domain, broker, "headgate.v1", gateway.name, root))


async def challenge(request: Request, body: wire.ChallengeRequest) -> Response:
    """A challenge, and the broker's proof."""
    gateway = gateway_of(request)
    made = gateway.sessions.challenger.challenge(body.nonce)
    return answer(wire.ChallengeAnswer(made.nonce, made.broker, made.proof, made.expires, list(gateway.shown)), 201)


async def connect(request: Request, body: wire.SessionRequest) -> Response:
    """A session for whoever proves its key."""
    gateway = gateway_of(request)
    given = (body.nonce, body.client_nonce, body.principal, body.signature)
    try:
        if body.present:
            shown = Presented(gateway.authority, body.present)
            async with gateway.presenting:
                token, caller = await gateway.run_blocking(gateway.sessions.open, *given, shown)
        else:
            token, caller = gateway.sessions.open(*given)
    except HeadgateError as error:
        gateway.metrics.session_refused(error.code)
        raise
    gateway.metrics.session_opened()
    return answer(wire.SessionAnswer(token, caller.principal, caller.expires), 201)


async def who(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """Who one is."""
    return answer(wire.WhoAnswer(caller.principal, caller.did, caller.expires))


async def disconnect(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """End the session, at every gateway."""
    gateway = gateway_of(request)
    await gateway.run_blocking(gateway.sessions.end, caller)
    return nothing()


# -- types ------------------------------------------------------------------------------------------------------


async def types(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """Every event type."""
    state = gateway_of(request).follower.state
    return answer(wire.TypesAnswer([_type(state, name) for name in state.types]))


async def type_(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """One event type, with its definition as it was signed."""
    gateway = gateway_of(request)
    return answer(await _signed(gateway, _existing_type(gateway.follower.state, request)))


async def declare(request: Request, caller: Caller, body: wire.TypeRequest) -> Response:
    """Declare a type, or a new version of one."""
    gateway, name = gateway_of(request), check_type_name(request.path_params["name"])
    known = gateway.follower.state.types
    owner = known[name].owner if name in known else caller.principal
    if body.statement is None:
        new = type_of(name, body, owner)
        is_new = await gateway.run_blocking(event_types.declare, gateway.ledger, caller.principal, new)
        return answer(_type(gateway.follower.state, name), 201 if is_new else 200)
    if body != wire.TypeRequest(statement=body.statement):
        raise BadRequest("a signed definition says all of itself", remedy="send the `statement` alone")
    gateway.paces.version(caller.principal)
    await gateway.run_blocking(gateway.signed_types.declare, name, body.statement, caller.principal)
    return answer(await _signed(gateway, name), 200 if name in known else 201)


async def _signed(gateway: Gateway, name: str) -> wire.TypeAnswer:
    state = gateway.follower.state
    told = _type(state, name)
    told.statement = await gateway.run_blocking(gateway.signed_types.statement, state, name)
    return told


async def retire(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """Remove a type."""
    gateway, name = gateway_of(request), str(request.path_params["name"])
    await gateway.run_blocking(event_types.retire, gateway.ledger, caller.principal, name)
    return nothing()


def _existing_type(state: State, request: Request) -> str:
    name = str(request.path_params["name"])
    state.types[name]
    return name


def _type(state: State, name: str) -> wire.TypeAnswer:
    found = state.types[name]
    kinds = {attribute: kind.value for attribute, kind in state.types.attributes(name).items()}
    return wire.TypeAnswer(name, found.owner, kinds, list(found.attributes), found.parent, list(found.key))


# -- publishing -------------------------------------------------------------------------------------------------


async def publish(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """Publish events in any of the formats."""
    gateway = gateway_of(request)
    content = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content not in (wire.EVENT_JSON, wire.BATCH_JSON, wire.ARROW):
        raise UnsupportedMediaType(
            f"`{content[:100]}` is not read here",
            remedy=f"send `{wire.EVENT_JSON}`, `{wire.BATCH_JSON}` or `{wire.ARROW}`",
        )
    raw = await read_body(request, gateway.config.publish.max_body)
    begun = perf_counter()
    origin = origin_of(request, gateway.config.gateway.proxies)
    made: wire.EventResult | wire.PublishAnswer | wire.BulkAnswer
    if content == wire.EVENT_JSON:
        made = await gateway.publisher.publish_one(caller, shaped(raw, wire.CloudEvent), origin)
    elif content == wire.BATCH_JSON:
        events = shaped(raw, list[wire.CloudEvent])
        made = wire.PublishAnswer(await gateway.publisher.publish_cloudevents(caller, events, origin))
    else:
        made = await gateway.publisher.publish_arrow(caller, raw, request.query_params.get("type"), origin)
    gateway.metrics.published(perf_counter() - begun)
    if nothing_kept(made):
        gateway.paces.count_refused(caller.principal, len(raw))
    return answer(made)


def nothing_kept(made: wire.EventResult | wire.PublishAnswer | wire.BulkAnswer) -> bool:
    """Was every event refused?"""
    match made:
        case wire.EventResult():
            return made.status == "refused"
        case wire.PublishAnswer(results):
            return bool(results) and all(one.status == "refused" for one in results)
        case wire.BulkAnswer():
            return made.refused > 0 and made.accepted + made.duplicates == 0


async def advertisements(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """What the principal advertises."""
    gateway = gateway_of(request)
    mine = event_types.advertised(gateway.ledger, caller.principal)
    return answer(wire.AdvertisementsAnswer([await _advertised(gateway, request, caller, name) for name in mine]))


async def advertise(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """Say that one will publish a type."""
    gateway, name = gateway_of(request), str(request.path_params["name"])
    is_new = await gateway.run_blocking(event_types.advertise, gateway.ledger, caller.principal, name)
    return answer(await _advertised(gateway, request, caller, name), 201 if is_new else 200)


async def unadvertise(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """Say that one will publish a type no more."""
    gateway, name = gateway_of(request), str(request.path_params["name"])
    await gateway.run_blocking(event_types.unadvertise, gateway.ledger, caller.principal, name)
    return nothing()


async def _advertised(gateway: Gateway, request: Request, caller: Caller, name: str) -> wire.AdvertisementAnswer:
    origin = origin_of(request, gateway.config.gateway.proxies)
    holds = await gateway.run_blocking(gateway.publisher.holds, caller, name, origin)
    return wire.AdvertisementAnswer(name, await gateway.quench.wanted(caller.principal, name), holds)


async def publish_restriction(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """What publishing a type comes to for the caller."""
    gateway, who, name = gateway_of(request), caller.principal, str(request.path_params["name"])
    return answer(as_json(await gateway.run_blocking(explaining.publish_restriction, gateway.domain, who, who, name)))


# -- subscriptions ----------------------------------------------------------------------------------------------


async def subscriptions(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """One's own subscriptions."""
    gateway = gateway_of(request)
    mine = [s for s in gateway.follower.state.subscriptions.values() if s.principal == caller.principal]
    brief_lived = {(one.subscription, one.first) for one in await gateway.run_blocking(gateway.cursors.temporary)}
    return answer(
        wire.SubscriptionsAnswer(
            [_subscription(gateway, s, (s.id, s.first) in brief_lived) for s in mine if _local(s) is not None]
        )
    )


async def subscription(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """One of one's own subscriptions."""
    gateway = gateway_of(request)
    return answer(await _told(gateway, await own_subscription(gateway, caller, request.path_params["id"])))


async def subscribe(request: Request, caller: Caller, body: wire.SubscriptionRequest) -> Response:
    """Make a subscription with a name of its own, or none if it is there already."""
    gateway = gateway_of(request)
    origin = origin_of(request, gateway.config.gateway.proxies)
    found, new = await make_subscription(gateway, caller, request.path_params["id"], body, origin)
    return answer(await _told(gateway, found), 201 if new else 200)


async def subscribe_unnamed(request: Request, caller: Caller, body: wire.SubscriptionRequest) -> Response:
    """Make a subscription with a name of the gateway's choice."""
    gateway = gateway_of(request)
    origin = origin_of(request, gateway.config.gateway.proxies)
    found, _ = await make_subscription(gateway, caller, gateway.new_name(), body, origin)
    location = f"/v1/subscriptions/{_local(found)}"
    return answer(await _told(gateway, found), 201, headers={"location": location})


async def unsubscribe(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """End a subscription."""
    gateway, id = gateway_of(request), request.path_params["id"]
    await gateway.run_blocking(subscribing.unsubscribe, gateway.ledger, caller.principal, id)
    return nothing()


async def restriction(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """What a subscription loses to the caller's rights."""
    gateway = gateway_of(request)
    found = await own_subscription(gateway, caller, request.path_params["id"])
    told: Any = as_json(await gateway.run_blocking(explaining.restriction, gateway.domain, caller.principal, found.id))
    return answer({**told, "subscription": _local(found)})


async def type_restriction(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """What a subscription to a type, with no filter, would come to for the caller."""
    gateway, name = gateway_of(request), str(request.path_params["name"])
    told: Any = as_json(await gateway.run_blocking(explaining.type_restriction, gateway.domain, caller.principal, name))
    return answer({name: fact for name, fact in told.items() if name != "subscription"})


async def make_subscription(
    gateway: Gateway, caller: Caller, id: str, body: wire.SubscriptionRequest, origin: str | None
) -> tuple[Subscription, bool]:
    """The subscription by this name as it is asked for, and whether it is new."""
    wanted = await _wanted(gateway, ledger_id(caller.principal, id), caller, body, origin)
    most = gateway.config.limits.subscriptions_per_principal

    def make() -> tuple[Subscription, bool]:
        made, is_new = subscribing.subscribe(gateway.ledger, wanted, most=most)
        if body.temporary:  # again if it is not new: the first answer may have told that this could not be written
            gateway.cursors.mark_temporary(made.id, made.first, gateway.name, gateway.clock())
        return made, is_new

    return await gateway.run_blocking(make)


def check_place(gateway: Gateway, found: Subscription, connection: HTTPConnection) -> None:
    """Refuse to read a subscription from another address than it was made from, where its rights depend on that."""
    check_origin(gateway.follower.state, found, origin_of(connection, gateway.config.gateway.proxies))


async def _wanted(
    gateway: Gateway, name: str, caller: Caller, body: wire.SubscriptionRequest, origin: str | None
) -> Subscription:
    history, version, time = body.from_ == "start", 0, None
    if isinstance(body.from_, wire.Since):
        if (body.from_.version is None) == (body.from_.time is None):
            raise BadRequest("`from` names a version or a time", remedy='write {"version": 3} or {"time": "..."}')
        history, version = True, body.from_.version or 0
        time = None if body.from_.time is None else utc_of(body.from_.time)
    return Subscription(
        name,
        caller.principal,
        body.type,
        await gateway.reader.condition(caller.principal, body.where),
        history,
        since_version=version,
        since_time=time,
        requires=None if body.requires is None else await gateway.reader.condition(caller.principal, body.requires),
        origin=origin,
        counted=None if body.with_ is None else tuple(dict.fromkeys(body.with_)),
    )


def utc_of(time: datetime) -> datetime:
    """A time as sent, in UTC."""
    try:
        return time.astimezone(UTC)
    except OverflowError:  # the first and last hours of the calendar, in some zones
        raise BadRequest(f"`{time}` is not in the years 1 to 9999 of UTC") from None


async def own_subscription(gateway: Gateway, caller: Caller, id: str) -> Subscription:
    """The caller's subscription by this name, or `not-found`."""
    known = known_subscription(gateway.ledger, caller.principal, id)
    if known is not None:
        return known
    return await gateway.run_blocking(subscribing.own_subscription, gateway.ledger, caller.principal, id)


def _local(found: Subscription) -> str | None:
    return local_id(found.principal, found.id)


async def _told(gateway: Gateway, found: Subscription) -> wire.SubscriptionAnswer:
    temporary = await gateway.run_blocking(gateway.cursors.temporary_one, found.id, found.first)
    return _subscription(gateway, found, temporary is not None)


def _subscription(gateway: Gateway, subscription: Subscription, temporary: bool) -> wire.SubscriptionAnswer:
    begins: Any = "start" if subscription.history else "now"
    if subscription.since_version:
        begins = {"version": subscription.since_version}
    elif subscription.since_time is not None:
        begins = {"time": render_timestamp(subscription.since_time)}
    trimmed = subscription.history and any(gateway.trimmed().values())
    return wire.SubscriptionAnswer(
        _local(subscription) or subscription.id,
        subscription.type,
        subscription.first,
        None if subscription.where == TRUE else render_condition(subscription.where),
        begins,
        temporary,
        warning="the log no longer holds its oldest events" if trimmed else None,
        requires=None if subscription.requires is None else render_condition(subscription.requires),
        origin=subscription.origin,
        with_=None if subscription.counted is None else list(subscription.counted),
    )


# -- policy -----------------------------------------------------------------------------------------------------


async def change(request: Request, caller: Caller, body: wire.BatchRequest) -> Response:
    """Commit a batch of changes."""
    gateway = gateway_of(request)
    changes = await gateway.reader.changes(gateway.follower.state, caller.principal, body.changes)
    version = await gateway.run_blocking(
        lambda: gateway.ledger.change(caller.principal, changes, body.note, expect=body.expect)
    )
    return answer(wire.BatchAnswer(version, 0 if body.expect is None else version - 1 - body.expect))


async def versions(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """Versions, oldest first."""
    gateway, after = gateway_of(request), _number(request, "after")
    told = await gateway.run_blocking(
        explaining.versions, gateway.domain, gateway.follower.state, caller.principal, after
    )
    return answer(
        wire.VersionsAnswer(
            [
                wire.VersionAnswer(one.version, one.time)
                if starts is None
                else wire.VersionAnswer(one.version, one.time, one.author, one.note, starts)
                for one, starts in told
            ]
        )
    )


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise BadRequest(f"`{name}` is a number, not `{brief(text)}`")
    return int(text)


# -- operating --------------------------------------------------------------------------------------------------


async def health(request: Request, body: None) -> Response:  # noqa: ARG001
    """How the node is."""
    gateway = gateway_of(request)
    found = await gateway.run_blocking(gateway.health)
    return answer(found, 503 if found.status == "failing" else 200)


async def metrics(request: Request, body: None) -> Response:  # noqa: ARG001
    """Figures for Prometheus, for whoever has the node's own token for them, or governs or audits everything."""
    gateway = gateway_of(request)
    if not await gateway.run_blocking(is_token, gateway.files.metrics_token, token_of(request)):
        await gateway.catch_up()
        caller = await authenticated(request)
        if not is_told_everything(gateway.follower.state, caller.principal):
            raise GovernDenied(
                f"`{caller.principal}` may not know the figures of the node",
                remedy="use the token in `keys/metrics.token`, or ask for the right to audit every type",
            )
    content = await gateway.run_blocking(gateway.render_metrics)
    return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")
