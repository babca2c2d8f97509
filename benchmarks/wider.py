"""Wider-Than over vectors of 1 to 128 elements, and decisions on one rule beside Cedar and Casbin.

The vector form is timed, in processor time, from the two rules to the answer; the first is wider in every element, so
that none is skipped. `wider.svg` is drawn from it, as figure 7 of Guard is. For decisions, one rule of four elements is
put to attribute sets, half of which it lets in. Cedar gets its policy parsed beforehand and all requests in one call,
Casbin its enforcer built beforehand; all three must answer alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import casbin
import cedarpy

from benchmarks.measure import console, report, report_ratio, side_by_side
from headgate.lang import parse_condition
from headgate.model.expressions import Compare, Condition, Constant, InRange, Subject, all_of
from headgate.model.values import Value
from headgate.solver import match, wider
from headgate.solver.vector import Vector, vector
from headgate.solver.vector import wider as vector_wider

MOST = 128
"""Elements of the longest vector."""
CALLS = 10
ROUNDS = 15
SETS = 2_000
"""Attribute sets that the rule is put to."""
FIGURE = Path(__file__).parent / "wider.svg"

RULE = "$clearance = 'secret' and $nation = 'NO' and $age >= 18 and $unit in 2..6"
CEDAR = """permit(principal, action, resource) when {
  context has clearance && context has nation && context has age && context has unit &&
  context.clearance == "secret" && context.nation == "NO" && context.age >= 18 && context.unit >= 2 && context.unit <= 6
};"""
CASBIN = """[request_definition]
r = sub
[policy_definition]
p = any
[policy_effect]
e = some(where (p.eft == allow))
[matchers]
m = r.sub.clearance == 'secret' && r.sub.nation == 'NO' && r.sub.age >= 18 && r.sub.unit >= 2 && r.sub.unit <= 6
"""


def run() -> None:
    console.print("[bold]wider-than[/]: vectors of 1 to 128 elements, and one rule beside Cedar and Casbin")
    _vectors()
    _decisions()


# -- vectors ------------------------------------------------------------------------------------------------------


def _vectors() -> None:
    sizes = list(range(1, MOST + 1))
    pairs = [_rules(size) for size in sizes]
    whole = _microseconds([partial(_from_rules, *pair) for pair in pairs])
    compared = _microseconds([partial(vector_wider, *map(_made, pair)) for pair in pairs])
    for what, found in (("from the rules", whole), ("vectors made before", compared)):
        slope, offset, r2 = fit(sizes, found)
        report(f"wider-than, {what}, µs an element", slope, None, "lower")
        report(f"wider-than, {what}, µs at 128 elements", slope * MOST + offset, None, "lower")
        report(f"wider-than, {what}, r² of a straight line", r2, 0.98, "higher")
    FIGURE.write_text(figure(sizes, whole, compared))


def _rules(size: int) -> tuple[Condition, Condition]:
    """Two rules of as many elements, equalities, bounds and ranges in turn, the first wider than the second."""
    wide, narrow = [], []
    for at in range(size):
        name = Subject(f"a{at}")
        match at % 3:
            case 0:
                wide.append(Compare("=", name, Constant("opx")))
                narrow.append(Compare("=", name, Constant("opx")))
            case 1:
                wide.append(Compare(">", name, Constant(3)))
                narrow.append(Compare(">", name, Constant(5)))
            case _:
                wide.append(InRange(name, Constant(4), Constant(10)))
                narrow.append(InRange(name, Constant(6), Constant(10)))
    return all_of(*wide), all_of(*narrow)


def _from_rules(wide: Condition, narrow: Condition) -> bool:
    return wider(wide, narrow, method="vector").holds


def _made(rule: Condition) -> Vector:
    found = vector(rule)
    assert found is not None
    return found


def _microseconds(works: Sequence[Callable[[], bool]]) -> list[float]:
    """The least processor time of one call of each, over rounds in which all take their turn; the rest is moods."""
    if not all(work() for work in works):
        raise RuntimeError("the rules are not what they should be")
    found = [[_timed(work) for work in works] for _ in range(ROUNDS)]
    return [min(times) / CALLS * 1e6 for times in zip(*found, strict=True)]


def _timed(work: Callable[[], bool]) -> float:
    start = time.process_time()
    for _ in range(CALLS):
        work()
    return time.process_time() - start


def fit(xs: Sequence[int], ys: Sequence[float]) -> tuple[float, float, float]:
    """The straight line through points by least squares: slope, offset, and the share of the variance it explains."""
    slope, offset = statistics.linear_regression(xs, ys)
    return slope, offset, statistics.correlation(xs, ys) ** 2


# -- the figure ---------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, EDGE = 640, 400, 60
FONT = 'font-family="sans-serif" font-size="12"'


def figure(sizes: Sequence[int], whole: Sequence[float], compared: Sequence[float]) -> str:
    """Time against the number of elements, with the line that fits best, as SVG."""
    top = max(whole) * 1.1

    def x(size: float) -> float:
        return EDGE + size / MOST * (WIDTH - 2 * EDGE)

    def y(taken: float) -> float:
        return HEIGHT - EDGE - taken / top * (HEIGHT - 2 * EDGE)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<path d="M{EDGE} {EDGE / 2} V{HEIGHT - EDGE} H{WIDTH - EDGE / 2}" fill="none" stroke="black"/>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 15}" text-anchor="middle">elements of the vector</text>',
        f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">microseconds</text>',
    ]
    below, beside = f'y="{HEIGHT - EDGE + 18}" text-anchor="middle"', f'x="{EDGE - 6}" text-anchor="end"'
    parts += [f'<text x="{x(size):.1f}" {below}>{size}</text>' for size in range(0, MOST + 1, 16)]
    parts += [f'<text y="{y(top * at / 5) + 4:.1f}" {beside}>{top * at / 5:.0f}</text>' for at in range(5)]
    for row, (what, colour, found) in enumerate(
        (("from the rules", "#1f6fb2", whole), ("vectors made before", "#b2521f", compared))
    ):
        slope, offset, r2 = fit(sizes, found)
        parts += [
            f'<circle cx="{x(n):.1f}" cy="{y(t):.1f}" r="2" fill="{colour}"/>'
            for n, t in zip(sizes, found, strict=True)
        ]
        line = f'x1="{x(1):.1f}" y1="{y(slope + offset):.1f}" x2="{x(MOST):.1f}" y2="{y(slope * MOST + offset):.1f}"'
        parts.append(f'<line {line} stroke="{colour}"/>')
        words = f"{what}: {offset:.2f} + {slope:.2f} n, r² = {r2:.4f}"
        parts.append(f'<text x="{EDGE + 12}" y="{EDGE / 2 + 14 + 18 * row}" fill="{colour}">{words}</text>')
    return "\n".join([*parts, "</svg>", ""])


# -- decisions ----------------------------------------------------------------------------------------------------


def _sets() -> list[dict[str, Value]]:
    """Attribute sets, of which the rule lets every other one in."""
    made: list[dict[str, Value]] = []
    for at in range(SETS):
        one: dict[str, Value] = {"clearance": "secret", "nation": "NO", "age": 18 + at % 50, "unit": 2 + at % 5}
        if at % 2:
            one |= [{"clearance": "open"}, {"nation": "IT"}, {"age": 17}, {"unit": 7}][at // 2 % 4]
        made.append(one)
    return made


def _decisions() -> None:
    sets, rule = _sets(), parse_condition(RULE)
    policies = cedarpy.PolicySet.from_str(CEDAR)
    requests = [
        {"principal": 'User::"u"', "action": 'Action::"receive"', "resource": 'Event::"e"', "context": one}
        for one in sets
    ]
    enforcer = casbin.Enforcer(_casbin_model())
    enforcer.add_policy("any")
    subjects = [SimpleNamespace(**one) for one in sets]

    def ours() -> list[bool]:
        return [match(rule, one) is True for one in sets]

    def cedar() -> list[bool]:
        return [one.allowed for one in cedarpy.is_authorized_batch(requests, policies, [])]

    def casbins() -> list[bool]:
        return [enforcer.enforce(one) for one in subjects]

    if not ours() == cedar() == casbins() or sum(ours()) != SETS // 2:
        raise RuntimeError("the three do not answer alike")
    found = side_by_side({"Headgate": ours, "Cedar": cedar, "Casbin": casbins}, times=5)
    for name, times in found.items():
        rates = [SETS / one for one in times]
        spread = (max(rates) - min(rates)) / 2
        report(f"decisions on one rule, {name}, a second", statistics.median(rates), None, "higher", spread)
    for name in ("Cedar", "Casbin"):
        ratio = f"decisions on one rule, Headgate over {name}"
        report_ratio(ratio, [1 / t for t in found["Headgate"]], [1 / t for t in found[name]], None, "higher")


def _casbin_model() -> casbin.Model:
    model = casbin.Model()
    model.load_model_from_text(CASBIN)
    return model


if __name__ == "__main__":
    run()
