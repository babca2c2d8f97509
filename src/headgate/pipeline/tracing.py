"""Spans: pieces of work with what they are about, for whoever listens (`node.telemetry`).

Guarantees: nothing of an event's content is in one, only streams, numbers, versions, micro-batches and counts. While
nobody listens a span costs next to nothing.

    with span("append", stream="main", version=7): ...
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final

from opentelemetry import trace

NAME: Final = "headgate"


def span(name: str, links: Iterable[trace.SpanContext] = (), **facts: str | int) -> AbstractContextManager[trace.Span]:
    """A piece of work, with facts such as its stream and version, and the work elsewhere that it is done for."""
    linked = [trace.Link(one) for one in links if one.is_valid]
    attributes = {f"{NAME}.{fact}": value for fact, value in facts.items()}
    return trace.get_tracer(NAME).start_as_current_span(name, links=linked, attributes=attributes)


def tell(made: trace.Span, **facts: str | int) -> None:
    """What came of a piece of work."""
    made.set_attributes({f"{NAME}.{fact}": value for fact, value in facts.items()})


def here() -> trace.SpanContext:
    """The work that is under way in this thread or task, to be linked to."""
    return trace.get_current_span().get_span_context()
