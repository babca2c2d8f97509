"""Everything that the OpenAPI document describes, asked with good and bad requests of a real gateway over TLS.

Every answer has a documented status, a documented content type and the documented shape, and none is a fault of the
node. `HEADGATE_EXAMPLES` asks for more requests of each operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import hypothesis.strategies as st
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from harness.alone import Alone, alone, rule
from headgate.model.changes import Change, DeclareGroup, DeclareType
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.protocol import messages as wire
from strategies.running import many

EXAMPLES = many(10, soak=40)
"""Requests of each operation by each principal."""

ENDS_THE_SESSION = "disconnect"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SALE, MINE = "shop.Sale", "mine"
KNOWN: dict[str, list[Any]] = {
    "id": [MINE, "other"],
    "type": [SALE, "shop.Return"],
    "where": ["amount < 10", "item in group open", "item in group shut", "amount in 1..3 and not item is null"],
    "name": [SALE, "shop.Return", "anna.New"],
    "extends": [SALE],
    "who": ["anna", "staff"],
    "attributes": [{"amount": "float"}, {}],
    "expression": ["$Sale(i, a, t, r, n); Return(i, *, *, *, *)", "AbsTime(5)", "Sale(i, a, *, *, *) - Sale(i)"],
    "bind": [{}, {"i": "tea"}, {"i": 1}],
}
"""What gets past the first check of a request, for some of them."""
KEPT = (SALE, MINE)
"""What stays until the end."""


def policy(made: Alone) -> list[Change]:
    sale = {"item": Kind.STRING, "amount": Kind.FLOAT, "at": Kind.TIMESTAMP, "raw": Kind.BYTES, "n": Kind.INT}
    return [
        *made.people("anna", "bob"),
        DeclareGroup("staff"),
        DeclareGroup("open", True),
        DeclareGroup("shut"),
        DeclareType(EventType(SALE, ADMINISTRATOR, sale, None, ("item",))),
        DeclareType(EventType("shop.Return", ADMINISTRATOR, {}, SALE)),
        rule("anna-connects", "anna", "connect"),
        rule("anna-sees", "anna", "subscribe", SALE, "amount < 100", attributes=("item", "amount")),
        rule("anna-sends", "anna", "publish quench", SALE),
        rule("anna-installs", "anna", "install", "anna.*"),
    ]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    directory: Path = tmp_path_factory.mktemp("openapi") / "domain"
    with alone(directory, policy) as made:
        made.start(subscribe__wait="100ms", subscribe__max_reservation="1d", roles__requests="100000")
        with made.deciding():
            yield made


def documented(http: httpx.Client) -> dict[str, Any]:
    """The document, without what it says of tokens: every request has a good one, bad ones have their own tests."""
    found: dict[str, Any] = http.get("/openapi.json").json()
    for path in found["paths"].values():
        for operation in path.values():
            operation.pop("security", None)
    return found


@st.composite
def plausible(draw: st.DrawFn, cases: st.SearchStrategy[Case]) -> Case:
    """Good requests about things that are there."""
    case = draw(cases)
    case.path_parameters = known(draw, case.path_parameters, ends=case.method == "DELETE")
    case.body = known(draw, case.body)
    return case


def known(draw: st.DrawFn, found: Any, *, ends: bool = False) -> Any:
    """Some content with names that are known, wherever it has one."""
    if isinstance(found, list):
        return [known(draw, one) for one in found]
    if not isinstance(found, dict):
        return found
    return {
        name: draw(st.sampled_from([one for one in KNOWN[name] if not (ends and one in KEPT)]))
        if name in KNOWN
        else known(draw, value)
        for name, value in found.items()
    }


EXPECTED = {
    "anna": {200, 201, 204, 400, 401, 403, 404, 409, 422},
    ADMINISTRATOR: {200, 201, 204, 400, 401, 404, 422},
}
"""The statuses that each principal must have got at the end."""


@pytest.mark.soak
def test_every_operation_answers_as_it_is_described(node: Alone) -> None:
    tokens = {principal: node.token(principal) for principal in EXPECTED}
    with node.http(tokens["anna"]) as http:
        schema = schemathesis.openapi.from_dict(documented(http))
        for id in KNOWN["id"]:  # the administrator subscribes to nothing
            assert http.put(f"/v1/subscriptions/{id}", json={"type": SALE, "from": "start"}).status_code == 201
            assert http.put(f"/v1/reservations/{id}", json={"type": SALE, "seconds": 600}).status_code == 201
    seen: dict[str, Counter[int]] = {principal: Counter() for principal in EXPECTED}
    asked = 0
    with requests.Session() as session:
        session.trust_env = False
        for found in schema.get_all_operations():
            operation = found.ok()
            if operation.definition.raw["operationId"] == ENDS_THE_SESSION:
                continue
            good, bad = (operation.as_strategy(generation_mode=mode) for mode in GenerationMode)
            ask(node, session, tokens, st.one_of(plausible(good), good, bad), seen)
            asked += 1
    assert asked > 30
    for principal, expected in EXPECTED.items():
        assert expected <= seen[principal].keys(), seen
    assert not node.gateway.faults()


def ask(
    node: Alone, session: requests.Session, tokens: dict[str, str], cases: st.SearchStrategy[Case],
    seen: dict[str, Counter[int]],
) -> None:  # fmt: skip
    """Send requests of one operation, each as every principal, and check every answer."""

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def send(case: Case) -> None:
        for principal, token in tokens.items():
            answer = case.call(
                base_url=node.gateway.url,
                session=session,
                headers={"authorization": f"Bearer {token}"},
                timeout=120,
                verify=str(node.files.tls_certificate),
            )
            seen[principal][answer.status_code] += 1
            assert answer.status_code != 500
            case.validate_response(answer, checks=CHECKS)

    send()


def test_ending_the_session_answers_as_it_is_described(node: Alone) -> None:
    with node.http(node.token("anna")) as http:
        assert http.delete("/v1/sessions/current").status_code == 204
        again = http.delete("/v1/sessions/current")
    assert again.status_code == 401
    assert again.headers["content-type"] == "application/problem+json"
    assert again.json()["code"] == "not-authenticated"


def test_a_temporary_subscription_is_told_as_one(node: Alone) -> None:
    with node.http(node.token("anna")) as http:
        for id, temporary in (("brief", True), ("lasting", False)):
            body = {"type": SALE, "temporary": temporary}
            for status in (201, 200):
                made = http.put(f"/v1/subscriptions/{id}", json=body)
                assert (made.status_code, made.json().get("temporary", False)) == (status, temporary)
        listed = {
            one["id"]: one.get("temporary", False) for one in http.get("/v1/subscriptions").json()["subscriptions"]
        }
        assert (listed["brief"], listed["lasting"]) == (True, False)
        assert http.get("/v1/subscriptions/brief").json()["temporary"] is True
        for id in ("brief", "lasting"):
            assert http.delete(f"/v1/subscriptions/{id}").status_code == 204


def test_events_are_streamed_to_who_accepts_that_as_it_is_described(node: Alone) -> None:
    accept = {"accept": wire.EVENT_STREAM}
    with node.http(node.token("anna")) as http:
        described = http.get("/openapi.json").json()["paths"]["/v1/subscriptions/{id}/events"]["get"]["responses"][
            "200"
        ]
        assert described["content"].keys() == {wire.JSON, wire.EVENT_STREAM}
        http.put("/v1/subscriptions/streamed", json={"type": SALE}).raise_for_status()
        with http.stream("GET", "/v1/subscriptions/streamed/events", headers=accept) as answer:
            assert answer.headers["content-type"].startswith(wire.EVENT_STREAM)
            assert next(answer.iter_lines()) == ": open"
        for position in ("x", "A" * 22, "A" * 9_000):
            refused = http.get("/v1/subscriptions/streamed/events", headers={**accept, "last-event-id": position})
            assert (refused.status_code, refused.json()["code"]) == (400, "bad-position")
        http.delete("/v1/subscriptions/streamed").raise_for_status()
