"""Detections as machines run them, by the numbers that the ledger's subscriptions have.

Guarantees: a plan never changes; what a detection looks at was resolved when it was accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headgate.decide.composite import Environment, environment
from headgate.decide.derived import may_hold
from headgate.model.rights import Subscription
from headgate.model.types import Catalog
from headgate.pipeline.detect.program import Program
from headgate.pipeline.detect.routing import Routing, routing


@dataclass(frozen=True)
class DetectionPlan:
    """A detection as machines run it."""

    number: int
    first: int
    """The version that made it."""
    program: Program
    start: datetime
    env: Environment
    types: frozenset[str]
    routing: Routing
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    history: bool = False
    tells_held: bool = False
    """Does what it promises depend on what it holds?"""


def planned(number: int, subscription: Subscription, catalog: Catalog) -> DetectionPlan:
    """The plan of a detection; the catalog may be of any version that has its types."""
    detection = subscription.detection
    assert detection is not None, subscription
    types = frozenset(subscription.types)
    keyed = {type: key_type(catalog, type) for type in types}
    tables = {type: catalog.every[above].key for type, above in keyed.items() if above is not None}
    program = Program(detection.composite, detection.bound)
    return DetectionPlan(
        number=number,
        first=subscription.first,
        program=program,
        start=detection.start,
        env=environment(dict(detection.bound)),
        types=types,
        routing=routing(program, tables),
        tables=tables,
        history=subscription.history,
        tells_held=detection.publishes is not None and may_hold(detection.composite),
    )


def key_type(catalog: Catalog, name: str) -> str | None:
    """The type whose key a type has: itself, or one above it; None if it is no active table."""
    return next((above for above in catalog.lineage(name) if catalog.every[above].key), None)
