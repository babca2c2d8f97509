"""The order in which roles are settled: each after those that its statements look at (OASIS 3.2.2, 4.7).

Guarantees: a role has a higher number than every role that it looks at, except those that look at it in turn, directly
or through others: such a circle has one number. The numbers follow from the rolefiles, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from headgate.model.conditions import Related, counted
from headgate.model.rolefiles import Rolefile, Statement
from headgate.roles.rolefiles.names import leaves

Role: TypeAlias = tuple[str, str]
"""A service and a role of it, in whatever instance."""


def strata(rolefiles: Mapping[str, Rolefile]) -> dict[Role, int]:
    """The number of each role that has a statement."""
    looks: dict[Role, dict[Role, None]] = {}
    for service in sorted(rolefiles):
        for statement in rolefiles[service].statements:
            looks.setdefault((service, statement.head.role), {}).update(dict.fromkeys(_looked_at(statement, service)))
    graph = {role: sorted(other for other in looks[role] if other in looks) for role in sorted(looks)}
    return {role: number for number, circle in enumerate(_circles(graph)) for role in circle}


def _looked_at(statement: Statement, service: str) -> Iterator[Role]:
    for ref in (*statement.needed, *counted(statement.constraint)):
        yield ref.service or service, ref.role
    for leaf, _ in leaves(statement.constraint):
        if isinstance(leaf, Related):
            yield service, leaf.name


def _circles(graph: Mapping[Role, list[Role]]) -> Iterator[list[Role]]:
    """The strongly connected parts of a graph, each after those that it leads to (Tarjan), without recursion."""
    circles: dict[Role, int] = {}
    low: dict[Role, int] = {}
    open_: list[Role] = []
    closed: set[Role] = set()
    for start in graph:
        walk = [] if start in circles else [(start, iter(graph[start]))]
        while walk:
            at, ahead = walk[-1]
            if at not in circles:
                circles[at] = low[at] = len(circles)
                open_.append(at)
            for other in ahead:
                if other not in circles:
                    walk.append((other, iter(graph[other])))
                    break
                if other not in closed:
                    low[at] = min(low[at], circles[other])
            else:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[at])
                if low[at] == circles[at]:
                    circle = open_[open_.index(at) :]
                    del open_[-len(circle) :]
                    closed.update(circle)
                    yield circle
