"""A small domain on disk, and the asking commands over it. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.policy import explain, verify
from headgate.cli.shared.common import shows_errors
from headgate.commands.publishing.local import LocalPublisher
from headgate.lang import parse_condition
from headgate.model.changes import (
    AddMember,
    AddRule,
    Batch,
    DeclareGroup,
    DeclarePrincipal,
    DeclareType,
    RemoveRule,
    Subscribe,
)
from headgate.model.events import Draft
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.domain import Domain

PLATE = "uk.gov.pito.Numberplate"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WHO = ("pito", "cctv", "billing", "statistician", "smith", "outsider", "auditor")


def build(directory: Path) -> Domain:
    """Cameras publish; three readers have three views; the detective's order is withdrawn at version 3."""
    domain = Domain.create(directory, clock=lambda: NOON)
    sees = frozenset({Action.SUBSCRIBE})
    domain.commit(
        Batch(
            "administrator",
            (
                *(DeclarePrincipal(name) for name in WHO),
                DeclareGroup("detectives"),
                AddMember("detectives", "smith"),
                DeclareType(
                    EventType(
                        PLATE,
                        "pito",
                        {"location": Kind.STRING, "numberplate": Kind.STRING, "timestamp": Kind.TIMESTAMP},
                    )
                ),
                AddRule(
                    Rule(
                        "cameras",
                        "cctv",
                        frozenset({Action.PUBLISH}),
                        PLATE,
                        attributes=("location", "numberplate", "timestamp"),
                        forced={"location": "Victoria"},
                    )
                ),
                AddRule(Rule("bills", "billing", sees, PLATE, attributes=("numberplate", "timestamp"))),
                AddRule(
                    Rule(
                        "no-places",
                        "billing",
                        sees,
                        PLATE,
                        attributes=("location",),
                        effect=Effect.FORBID,
                        disclose=True,
                    )
                ),
                AddRule(Rule("counts", "statistician", sees, PLATE, attributes=("location", "timestamp"))),
                AddRule(
                    Rule(
                        "order", "detectives", sees, PLATE, parse_condition("numberplate = 'AE05 XYZ'"), disclose=False
                    )
                ),
                AddRule(Rule("inspects", "auditor", frozenset({Action.AUDIT}), PLATE)),
            ),
            note="the first policy",
        )
    )
    domain.commit(
        Batch(
            "administrator",
            (
                Subscribe(Subscription("bill", "billing", PLATE)),
                Subscribe(Subscription("peek", "billing", PLATE, parse_condition("location = 'Victoria'"))),
                Subscribe(Subscription("track", "smith", PLATE, parse_condition("location is not null"))),
            ),
        )
    )
    publisher = LocalPublisher(domain, advertise=False)
    publisher.publish(Draft("e1", "cctv", PLATE, {"location": "Soho", "numberplate": "AE05 XYZ"}), now=NOON)
    publisher.publish(Draft("e2", "cctv", PLATE, {"location": "Soho", "numberplate": "B1 GUY"}), now=NOON)
    domain.commit(Batch("pito", (RemoveRule("order"),), note="the court order is withdrawn"))
    publisher.publish(Draft("e3", "cctv", PLATE, {"numberplate": "AE05 XYZ"}), now=NOON)
    return domain


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The domain's data directory, only looked at."""
    made = tmp_path_factory.mktemp("domain")
    build(made).close()
    return made


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Domain]:
    """A domain of one's own, to change."""
    with build(tmp_path / "domain") as domain:
        yield domain


@pytest.fixture
def headgate(directory: Path) -> Callable[..., Result]:
    """Run a command; `--domain` is added unless it is given."""
    app = typer.Typer(rich_markup_mode="markdown")
    commands = {
        "explain": explain.explain,
        "restrictions": explain.restrictions,
        "versions": explain.versions,
        "verify": verify.verify,
    }
    for name, command in commands.items():
        app.command(name)(shows_errors(command))

    def run(*args: str, domain: Path | None = None) -> Result:
        return CliRunner().invoke(app, [*args, "--domain", str(domain or directory)])

    return run
