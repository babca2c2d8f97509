"""Traces and figures for OpenTelemetry, beside those for Prometheus.

Guarantees: nothing of an event's content is in a span or figure, only streams, numbers, versions, micro-batches and
counts. Without `telemetry.otlp` nothing is sent and spans cost next to nothing; a collector that is away or hangs costs
spans, and holds up nobody, a process that ends neither. Figures are those of Prometheus, under the same names.
Leaves out: logs, which are files. What the libraries read from the environment (`OTEL_EXPORTER_OTLP_HEADERS`,
`OTEL_TRACES_SAMPLER`, `OTEL_BSP_...`) counts as well.

    with sending(TelemetrySettings(otlp="http://localhost:4318"), "shop", "gateway-1", metrics.registry):
        with span("append", stream="main", version=7): ...
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headgate import __version__
from headgate.model.errors import BadEnvironment
from headgate.node.config import TelemetrySettings
from headgate.pipeline.tracing import NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

_EXPORT_SECONDS = 5
"""How long one export may take; what cannot be sent is dropped."""
_LAST_SECONDS = 1.5
"""How long the last one may hold up a process that ends."""
_CAUSE = TraceContextTextMapPropagator()
"""`traceparent` and `tracestate`, and no `baggage`: nothing here uses it, and the library logs what it cannot read."""


@contextmanager
def caused_by(headers: Mapping[str, str]) -> Iterator[None]:
    """What is done here belongs to the work of a client that asks with these headers (`traceparent`)."""
    token = context.attach(_CAUSE.extract(headers))
    try:
        yield
    finally:
        context.detach(token)


@contextmanager
def sending(
    settings: TelemetrySettings,
    domain: str,
    process: str,
    registry: CollectorRegistry | None = None,
    refresh: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Send what this process does to the collector of the settings, if there is one.

    Figures are those of `registry`, brought up to date by `refresh`.
    """
    if not settings.otlp:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise BadEnvironment(
            "`telemetry.otlp` is set, and the exporter is missing",
            remedy="install it: `pip install 'headgate[telemetry]'`",
        ) from None
    names = {"service.name": NAME, "service.version": __version__, "service.instance.id": process}
    resource = Resource.create({**names, f"{NAME}.domain": domain})
    base = settings.otlp.rstrip("/")
    spans = TracerProvider(resource=resource, shutdown_on_exit=False)
    spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{base}/v1/traces", timeout=_EXPORT_SECONDS)))
    trace.set_tracer_provider(spans)
    ends = [spans.shutdown]
    if registry is not None:
        exporter = OTLPMetricExporter(f"{base}/v1/metrics", timeout=_EXPORT_SECONDS)
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=1000 * settings.every)
        figures = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        ends.append(figures.shutdown)
        _bridge(figures, registry, refresh)

    try:
        yield
    finally:
        # The libraries wait for a collector that hangs far longer than a process has to end.
        ending = [threading.Thread(target=end, daemon=True) for end in ends]
        for one in ending:
            one.start()
        until = time.monotonic() + _LAST_SECONDS
        for one in ending:
            one.join(max(0.0, until - time.monotonic()))


def _bridge(figures: Any, registry: CollectorRegistry, refresh: Callable[[], object]) -> None:
    """Every figure of a registry as one of OpenTelemetry's; of distributions, how many and how much."""
    from opentelemetry.metrics import CallbackOptions, Observation

    meter = figures.get_meter(NAME, __version__)

    def observe(name: str, _: CallbackOptions) -> Iterator[Observation]:
        for family in registry.collect():
            for sample in family.samples:
                if sample.name == name:
                    yield Observation(sample.value, dict(sample.labels))

    def brought_up(name: str, options: CallbackOptions) -> Iterator[Observation]:
        refresh()
        yield from observe(name, options)

    look: Callable[[str, CallbackOptions], Iterator[Observation]] = brought_up  # once for each export, at the first one
    for family in registry.collect():
        kinds = {f"{family.name}_count", f"{family.name}_sum"} if family.type == "histogram" else {family.name}
        names = {f"{family.name}_total"} if family.type == "counter" else kinds
        for name in sorted(names):
            make = meter.create_observable_gauge if family.type == "gauge" else meter.create_observable_counter
            make(name, [partial(look, name)], description=family.documentation)
            look = observe
