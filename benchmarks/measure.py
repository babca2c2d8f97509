"""Timing, memory and the table of results."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results.json"
console = Console()


@dataclass
class Result:
    value: float
    mark: float | None
    better: Literal["higher", "lower"]
    spread: float

    @property
    def met(self) -> bool | None:
        if self.mark is None:
            return None
        return self.value >= self.mark if self.better == "higher" else self.value <= self.mark


results: dict[str, Result] = {}


def report(
    name: str, value: float, mark: float | None, better: Literal["higher", "lower"], spread: float = 0.0
) -> None:
    """Keep a figure; `spread` is half the range of the repeated measurements, in the same unit."""
    results[name] = Result(round(value, 3), mark, better, round(spread, 3))
    console.print(f"  {name}: {value:.3f}" + (f" (mark {mark})" if mark is not None else ""), highlight=False)


def report_ratio(
    name: str, over: list[float], under: list[float], mark: float | None, better: Literal["higher", "lower"]
) -> None:
    """The ratio of two medians, with the spread of the pairwise ratios."""
    pairs = [a / b for a, b in zip(over, under, strict=True)]
    report(name, statistics.median(over) / statistics.median(under), mark, better, (max(pairs) - min(pairs)) / 2)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def side_by_side(works: dict[str, Callable[[], object]], times: int = 3) -> dict[str, list[float]]:
    """Time several works in turn, so that the machine's moods fall on all of them alike, each warmed up twice."""
    for work in works.values():
        work()
        work()
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(times):
        for name, work in works.items():
            found[name].append(seconds(work))
    return found


def resident(pid: int) -> float:
    """Resident memory of one process in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def family(pid: int) -> dict[int, str]:
    """A process and its descendants, with their command lines."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    found = {pid}
    while grown := {child for child, parent in parents.items() if parent in found} - found:
        found |= grown
    lines = {}
    for one in found:
        try:
            lines[one] = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return lines


def finish() -> None:
    """Print the table and write `results.json`, keeping figures of benchmarks that did not run this time."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept.update({name: asdict(result) for name, result in results.items()})
    RESULTS.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")
    table = Table(title="Headgate benchmarks")
    for column in ("figure", "value", "mark", "spread", ""):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, result in results.items():
        sign = "≥" if result.better == "higher" else "≤"
        mark = "" if result.mark is None else f"{sign} {result.mark:g}"
        met = "" if result.met is None else "[green]met[/]" if result.met else "[red]missed[/]"
        table.add_row(name, f"{result.value:,.3f}", mark, f"± {result.spread:,.3f}", met)
    console.print(table)
