"""`headgate versions`: the history of the policy, with authors, differences and starting points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from headgate.cli.shared.common import open_domain
from headgate.cli.shared.options import DomainOption, Json, option
from headgate.cli.shared.rendering import print_json, say, show_table
from headgate.ledger import Difference, HistoryEntry, Ledger, StartingPoint, VersionInfo
from headgate.model.errors import NotFound

_MOST = 20
"""Differences shown for one version; `--json` has them all."""


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """One version: who made it, when, why, what it changed and where it starts."""

    version: int
    author: str
    time: datetime
    note: str
    changes: tuple[str, ...]
    starts: tuple[StartingPoint, ...]


def versions(
    domain: DomainOption,
    since: Annotated[int, option("--since", "Only versions after this one.", min=0)] = 0,
    diff: Annotated[
        tuple[int, int] | None, option("--diff A B", "What is in force at B and was not at A, and so on.")
    ] = None,
    principal: Annotated[
        str | None, option("--principal NAME", "Only what touched this principal, also through its groups.")
    ] = None,
    starting_points: Annotated[
        bool, option("--starting-points", "Only where each version starts in each stream.")
    ] = False,
    json: Json = False,
) -> None:
    """Show every control version: its author, its time, what it changed, and where it starts in each stream.

    For example:

    `headgate versions --domain DIR`

    `headgate versions --diff 2 5 --domain DIR`

    `headgate versions --principal smith --since 1 --domain DIR`
    """
    if sum((diff is not None, principal is not None, starting_points)) > 1:
        raise typer.BadParameter("--diff, --principal and --starting-points exclude each other")
    with open_domain(domain) as opened:
        ledger = opened.ledger
        if since > ledger.version:
            raise NotFound(f"no version {since} in `{ledger.place}`", remedy=f"there are 0 to {ledger.version}")
        if diff is not None:
            found = ledger.difference(*diff)
            print_json(found) if json else _show_difference(*diff, found)
        elif starting_points:
            points = [p for p in ledger.starting_points() if p.version > since]
            print_json(points) if json else _show_points(points)
        else:
            entries = _history(ledger, since, principal)
            print_json(entries) if json else _show(entries, ledger, principal)


def _history(ledger: Ledger, since: int, principal: str | None) -> list[VersionEntry]:
    starts: dict[int, list[StartingPoint]] = {}
    for point in ledger.starting_points():
        starts.setdefault(point.version, []).append(point)
    made: list[tuple[VersionInfo | HistoryEntry, tuple[str, ...]]]
    if principal is not None:
        made = [(one, one.words) for one in ledger.history(principal) if one.version > since]
    else:
        made = [(one, _changed(ledger, one.version)) for one in ledger.versions(since)]
    return [
        VersionEntry(one.version, one.author, one.time, one.note, words, tuple(starts.get(one.version, ())))
        for one, words in made
    ]


def _changed(ledger: Ledger, version: int) -> tuple[str, ...]:
    return tuple(one.words for one in ledger.difference(version - 1, version))


def _show(entries: Sequence[VersionEntry], ledger: Ledger, principal: str | None) -> None:
    if not entries:
        whom = f" that touched {principal}" if principal is not None else ""
        say(f"no version{whom} here; the ledger is at version {ledger.version}")
        return
    rows = []
    for entry in entries:
        changes = [entry.note, ""] if entry.note else []
        changes += list(entry.changes[:_MOST]) or ["nothing"]
        if len(entry.changes) > _MOST:
            changes.append(f"and {len(entry.changes) - _MOST:,} more")
        starts = "\n".join(f"{p.stream}:{p.seq}" for p in entry.starts)
        time = f"{entry.time:%Y-%m-%d %H:%M:%S}"
        rows.append((str(entry.version), entry.author, time, starts, "\n".join(changes)))
    show_table(("version", "author", "time (UTC)", "starts at", "what changed"), rows)


def _show_difference(a: int, b: int, differences: Sequence[Difference]) -> None:
    say((f"from version {a} to version {b}", "bold"))
    for one in differences:
        say(f"  {one.words}")
    if not differences:
        say("  nothing differs")


def _show_points(points: Iterable[StartingPoint]) -> None:
    rows = ((point.stream, str(point.version), str(point.seq)) for point in points)
    show_table(("stream", "version", "first event"), rows)
