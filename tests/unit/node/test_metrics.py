"""Figures, and what the facts mean."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headgate.commands.publishing.local import LocalPublisher
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType
from headgate.model.errors import NotFound
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind, micros
from headgate.node.domain import Domain
from headgate.node.health import (
    HUNG_SECONDS,
    LOW_BYTES,
    MAX_LABELS,
    NO_BYTES,
    STALL_SECONDS,
    Chores,
    HealthWatch,
    Metrics,
    NodeFacts,
    Status,
    health,
    read_chores,
    write_chores,
)
from headgate.node.process_status import ProcessStatus
from headgate.pipeline.deliveries import BatchStats, DeliveryBlob

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AWAY = ProcessStatus(restarts=4, reason="damaged", detail="`/secret/log.db` is damaged", pause=2.0)
READY = {"gateway-1": ProcessStatus(True), "gateway-2": ProcessStatus(True)}


def figures(metrics: Metrics) -> dict[str, float]:
    """Every sample by its name and labels, as Prometheus reads them."""
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_counting() -> None:
    metrics = Metrics()
    metrics.count_events(10, 2, {"publish-denied": 3, "type-mismatch": 1})
    metrics.published.observe(0.004)
    metrics.delivered.add(7)
    metrics.acked.add(5)
    metrics.session_opened()
    metrics.session_refused("not-authenticated")
    metrics.denied("not-found")
    metrics.request("GET", "/v1/types/{name}", 200, 0.1)
    metrics.request("GET", "/v1/types/{name}", 200, 0.1)
    metrics.turned_away.reach(3, "full")
    metrics.turned_away.reach(4, "full")
    metrics.sockets.inc()
    found = figures(metrics)
    assert found["headgate_events_total[accepted]"] == 10
    assert found["headgate_events_total[duplicate]"] == 2
    assert found["headgate_events_total[refused]"] == 4
    assert found["headgate_events_refused_total[publish-denied]"] == 3
    assert found["headgate_publish_seconds_bucket[0.005]"] == 1
    assert found["headgate_publish_seconds_bucket[0.0025]"] == 0
    assert found["headgate_deliveries_pushed_total"] == 7
    assert found["headgate_acknowledgements_total"] == 5
    assert found["headgate_sessions_opened_total"] == 1
    assert found["headgate_sessions_refused_total[not-authenticated]"] == 1
    assert found["headgate_denials_total[not-found]"] == 1
    assert found["headgate_requests_total[GET][/v1/types/{name}][200]"] == 2
    assert found["headgate_connections_turned_away_total[full]"] == 4
    assert found["headgate_sockets"] == 1


def test_what_the_files_say() -> None:
    metrics = Metrics()
    metrics.observe(
        NodeFacts(
            ledger_version=7,
            decided_version=5,
            lag={"gateway-1": 30},
            waiting=2.5,
            batch_milliseconds=40,
            log_bytes=100,
            chores=Chores(holders=2, lost_events=9),
        )
    )
    found = figures(metrics)
    assert found["headgate_ledger_version"] == 7
    assert found["headgate_decided_version"] == 5
    assert found["headgate_lag_events[gateway-1]"] == 30
    assert found["headgate_lag_seconds"] == 2.5
    assert found["headgate_batch_milliseconds"] == 40
    assert found["headgate_file_bytes[log]"] == 100
    assert found["headgate_retention_holders"] == 2
    assert found["headgate_retention_lost_events_total"] == 9
    assert found["headgate_health[ok]"] == 1
    metrics.observe(NodeFacts(writable=False, chores=Chores(lost_events=2)))
    assert figures(metrics)["headgate_retention_lost_events_total"] == 11, "what began anew is more, and not less"
    assert figures(metrics)["headgate_health[ok]"] == 0
    assert figures(metrics)["headgate_health[failing]"] == 1


def test_processes_are_told_apart() -> None:
    metrics = Metrics()
    failing = ProcessStatus(True, restarts=1, failing={"detections": "damaged"})
    metrics.observe(NodeFacts(processes={"pipeline": AWAY, "gateway-1": failing}))
    found = figures(metrics)
    assert found["headgate_process_ready[pipeline]"] == found["headgate_process_failing[pipeline]"] == 0
    assert found["headgate_process_ready[gateway-1]"] == found["headgate_process_failing[gateway-1]"] == 1
    assert found["headgate_process_restarts_total[pipeline]"] == 4
    assert found["headgate_health[degraded]"] == 1
    metrics.observe(NodeFacts(processes={"pipeline": replace(AWAY, restarts=6)}))
    assert figures(metrics)["headgate_process_restarts_total[pipeline]"] == 6


def test_labels_are_bounded() -> None:
    metrics = Metrics()
    for number in range(2 * MAX_LABELS):
        metrics.count_events(0, 0, {f"code-{number}": 1})
    found = {name: value for name, value in figures(metrics).items() if name.startswith("headgate_events_refused")}
    assert len(found) == MAX_LABELS + 1
    assert found["headgate_events_refused_total[other]"] == MAX_LABELS


def test_one_process_may_have_several() -> None:
    first, second = Metrics(), Metrics()
    first.count_events(3, 0, {})
    assert figures(second)["headgate_events_total[accepted]"] == 0


# -- health ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "status", "word"),
    [
        (NodeFacts(), Status.OK, ""),
        (NodeFacts(writable=False), Status.FAILING, "written"),
        (NodeFacts(holds_stream=False), Status.FAILING, "stream"),
        (NodeFacts(free_bytes=NO_BYTES - 1), Status.FAILING, "full"),
        (NodeFacts(free_bytes=LOW_BYTES - 1), Status.DEGRADED, "nearly full"),
        (NodeFacts(lag={"a": 5}, waiting=STALL_SECONDS + 1), Status.DEGRADED, "5 events wait"),
        (NodeFacts(undetected={"a": 7}, undetected_for=STALL_SECONDS + 1), Status.DEGRADED, "detections come late: 7"),
        (
            NodeFacts(lag={"a": 5}, waiting=STALL_SECONDS + 1, since_batch=STALL_SECONDS + 1),
            Status.DEGRADED,
            "not move",
        ),
        (NodeFacts(lag={"a": 5}, waiting=STALL_SECONDS + 1, since_batch=1), Status.OK, ""),
        (NodeFacts(lag={"a": 5}, waiting=STALL_SECONDS - 1), Status.OK, ""),
        (NodeFacts(since_batch=10_000), Status.OK, ""),
        (NodeFacts(processes={"pipeline": AWAY}), Status.DEGRADED, "pipeline is away and will be started again: dam"),
        (NodeFacts(processes={"pipeline": replace(AWAY, ready=True)}), Status.OK, ""),
        (NodeFacts(processes={"pipeline": ProcessStatus()}), Status.OK, ""),  # it starts for the first time
        (
            NodeFacts(processes={"pipeline": ProcessStatus(True, failing={"detections": "too-old"})}),
            Status.DEGRADED,
            "detections fail and are tried again: too-old",
        ),
        (NodeFacts(processes=READY, lapsed={"gateway-2": HUNG_SECONDS + 1}), Status.DEGRADED, "gateway-2 hangs"),
        (NodeFacts(processes=READY, lapsed={"gateway-2": HUNG_SECONDS - 1}), Status.OK, ""),
        (NodeFacts(processes=READY, lapsed={"another": HUNG_SECONDS + 1}), Status.OK, ""),
    ],
)
def test_what_facts_mean(facts: NodeFacts, status: Status, word: str) -> None:
    found = health(facts)
    assert found.status is status
    assert word in "; ".join(found.reasons)
    assert "secret" not in "; ".join(found.reasons)
    assert (found.reasons == ()) == (status is Status.OK)


@given(
    st.builds(
        NodeFacts,
        waiting=st.floats(0, 100),
        since_batch=st.none() | st.floats(0, 100),
        free_bytes=st.integers(0, 2 * LOW_BYTES),
        writable=st.booleans(),
        holds_stream=st.booleans(),
    )
)
def test_a_node_that_cannot_accept_is_never_called_well(facts: NodeFacts) -> None:
    found = health(facts)
    if not facts.writable or not facts.holds_stream or facts.free_bytes < NO_BYTES:
        assert found.status is Status.FAILING
    assert (found.status is Status.OK) == (found.reasons == ())


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    domain = Domain.create(tmp_path / "data", clock=lambda: NOON)
    domain.commit(
        Batch(
            ADMINISTRATOR,
            (
                DeclarePrincipal("till"),
                DeclareType(EventType("Sale", ADMINISTRATOR, {"amount": Kind.INT})),
                AddRule(Rule("r", "till", frozenset({Action.PUBLISH}), "Sale")),
            ),
        )
    )
    return domain


def sell(domain: Domain, count: int, at: datetime) -> None:
    LocalPublisher(domain, advertise=False).publish_all(
        [Draft(f"{at}{n}", "till", "Sale", {"amount": n}) for n in range(count)], now=at
    )


def test_the_files_are_looked_at_as_they_change(domain: Domain) -> None:
    watch = HealthWatch.open(domain.paths.directory)
    assert watch.look(NOON).lag == {}
    sell(domain, 3, NOON)
    sell(domain, 2, NOON + timedelta(seconds=5))
    facts = watch.look(NOON + timedelta(seconds=60))
    assert facts.lag == {"main": 5}
    assert facts.waiting == 60
    assert facts.since_batch is None
    assert health(facts).status is Status.DEGRADED

    stats = BatchStats(0, micros(NOON + timedelta(seconds=50)), 3, 0, 120, 1)
    blob = DeliveryBlob("main", 1, 3, 1, 0, 0, None)
    domain.store.write(0, 1, [blob], stats=stats)
    facts = watch.look(NOON + timedelta(seconds=60))
    assert facts.lag == {"main": 2}
    assert facts.waiting == 55
    assert facts.since_batch == 10
    assert facts.batch_milliseconds == 120
    assert (facts.ledger_version, facts.decided_version) == (1, 1)
    assert facts.log_bytes > 0
    assert facts.deliveries_bytes > 0
    assert 0 < facts.free_bytes < 1 << 60
    assert health(facts).status is Status.OK
    watch.close()


def test_a_lease_that_was_neither_renewed_nor_given_up_is_seen(domain: Domain) -> None:
    watch = HealthWatch.open(domain.paths.directory)
    token = domain.log.take("gateway-2", 1, holder="one", now=micros(NOON), ttl=5_000_000)
    assert watch.look(NOON + timedelta(seconds=5)).lapsed == {}
    assert watch.look(NOON + timedelta(seconds=65)).lapsed == {"gateway-2": 60}
    domain.log.renew("gateway-2", token, micros(NOON + timedelta(seconds=65)), 5_000_000)
    assert watch.look(NOON + timedelta(seconds=65)).lapsed == {}
    domain.log.release("gateway-2", token)
    assert watch.look(NOON + timedelta(hours=1)).lapsed == {}
    watch.close()


def test_what_is_no_domain_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="not a domain"):
        HealthWatch.open(tmp_path)


def test_word_of_housekeeping(tmp_path: Path) -> None:
    assert read_chores(tmp_path) == Chores()
    left = Chores(at=5, rounds=2, trimmed_bytes=7, lost_events=1, holders=3)
    write_chores(tmp_path, left)
    assert read_chores(tmp_path) == left
    (tmp_path / "housekeeping.json").write_text("{")
    assert read_chores(tmp_path) == Chores()


def test_the_dashboard_shows_figures_that_there_are() -> None:
    dashboard = Path(__file__).parents[3] / "deploy" / "grafana" / "headgate.json"
    named = set(re.findall(r"headgate_\w+", " ".join(_expressions(json.loads(dashboard.read_text())))))
    there = {sample for family in Metrics().registry.collect() for sample in _samples(family)}
    assert named
    assert named <= there


def _expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def _samples(family: Any) -> set[str]:
    endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
    return {family.name + ending for ending in endings}
