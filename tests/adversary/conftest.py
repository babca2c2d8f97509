"""Two domains that share a network and trust each other little, each with two gateways; and a neighbour in each.

Every test is an attack on one of them. Whatever it does, afterwards the neighbours are served at all four gateways, and
have lost nothing and got nothing twice, and no gateway has logged a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from harness.alone import Alone, alone, rule
from harness.attack import HASTY, IMPATIENT, SALE, Neighbour
from harness.node import free_ports
from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import AddMember, Change, DeclareGroup, DeclareRelation, DeclareType, SetRolefile
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind

ATTRIBUTES = {"item": Kind.STRING, "amount": Kind.FLOAT, "count": Kind.INT}
CONF = """
def Member(u) u : String
Chair(u) <- Login.LoggedOn(u, h)* : (u in chairs)*
Member(u) <- Login.LoggedOn(u, h)* <|* Chair(c)
Guest(u) <- Login.LoggedOn(u, h)* |>* Chair
"""
PROXY = "127.0.0.9"
"""The address of the south's proxy; the north has none."""


def policy(made: Alone) -> list[Change]:
    """Hana publishes and hugo reads, who have nothing to do with all this; dora owns a type."""
    people = ("hana", "hugo", "dora")
    return [
        *made.people(*people),
        DeclareGroup("insiders"),
        DeclareGroup("public", True),
        DeclareGroup("chairs"),
        AddMember("insiders", "hugo"),
        DeclareRelation("Ties"),
        DeclareType(EventType(SALE, ADMINISTRATOR, ATTRIBUTES, None, ("item",))),
        DeclareType(EventType("dora.Own", "dora", {"x": Kind.INT, "who": Kind.STRING})),
        *(rule(f"{who}-connects", who, "connect") for who in people),
        rule("hana-sends", "hana", "publish", SALE),
        rule("hugo-reads", "hugo", "subscribe", SALE),
        SetRolefile("Conf", parse_rolefile(CONF)),
    ]


@dataclass
class World:
    """Both domains and their neighbours."""

    north: Alone
    south: Alone
    neighbours: tuple[Neighbour, Neighbour]

    @property
    def faults(self) -> list[object]:
        return [fault for made in (self.north, self.south) for one in made.gateways for fault in one.faults()]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        place = tmp_path_factory.mktemp("adversary")
        north, south = (stack.enter_context(alone(place / name, policy, name)) for name in ("north", "south"))
        port = free_ports(4)
        launched = [
            (north, north.launch("g1", port)),
            (north, north.launch("g2", port + 1)),
            (south, south.launch("g1", port + 2, gateway__proxies=PROXY)),
            (south, south.launch("g2", port + 3, program=IMPATIENT, gateway__proxies=PROXY)),
        ]
        for made, one in launched:
            made.await_ready(one)
        for made in (north, south):
            stack.enter_context(made.deciding())
        neighbours = Neighbour(north, "hana", "hugo"), Neighbour(south, "hana", "hugo")
        for one in neighbours:
            stack.callback(one.close)
            one.begin()
        yield World(north, south, neighbours)


@pytest.fixture(scope="session")
def spares(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Alone, Neighbour]]:
    """A third domain, for attacks on its files and its processes."""
    with alone(tmp_path_factory.mktemp("spare") / "domain", policy, "spare") as made:
        port = free_ports(2)
        for one in [made.launch(f"g{n + 1}", port + n, program=HASTY) for n in range(2)]:
            made.await_ready(one)
        neighbour = Neighbour(made, "hana", "hugo")
        with made.deciding():
            neighbour.begin()
            yield made, neighbour
            neighbour.close()


@pytest.fixture
def spare(spares: tuple[Alone, Neighbour]) -> Iterator[Alone]:
    """The third domain, whose neighbour must not notice anything either, once it is over."""
    made, neighbour = spares
    before = sum(len(one.faults()) for one in made.gateways)
    yield made
    neighbour.served()
    assert sum(len(one.faults()) for one in made.gateways) == before


@pytest.fixture
def north(world: World) -> Alone:
    return world.north


@pytest.fixture
def south(world: World) -> Alone:
    return world.south


@pytest.fixture(autouse=True)
def the_neighbours_notice_nothing(world: World, request: pytest.FixtureRequest) -> Iterator[None]:
    """What every attack must leave as it was, in the domains that it names."""
    before = len(world.faults)
    yield
    for one in world.neighbours:
        if one.made.name in request.fixturenames:
            one.served()
    assert world.faults[before:] == []
