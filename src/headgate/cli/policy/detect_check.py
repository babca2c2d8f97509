"""`headgate detect check`: what is wrong with a composite event, and how it is evaluated, before it counts.

Guarantees: changes nothing. A refusal has its file, line and column. Types, groups and relations are those of a policy
directory, a scenario file or a domain. The drawing shows the machine that would run: what starts what, what each part
waits for, and when. The picture is a whole SVG document; nothing of the expression is taken for markup.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, NamedTuple, assert_never
from xml.sax.saxutils import escape

from headgate.cli.policy.role_check import NamesDomain, PolicyOption, ground_of, state_of
from headgate.cli.shared.common import STANDARD, placed, read_bytes, writing
from headgate.cli.shared.options import Json, argument, option
from headgate.cli.shared.rendering import print_json, remark, say
from headgate.decide.composite_check import Resolved, resolve
from headgate.lang.composite import parse_composite, render_composite
from headgate.lang.render import render_free
from headgate.model import composite as model
from headgate.model.composite import Composite
from headgate.model.errors import BadRequest
from headgate.model.limits import MAX_COMPOSITE_CHARS
from headgate.model.state import State
from headgate.pipeline.index.predicates import Allowed
from headgate.scenario.format.file import load

_ROW: Final = 34
_INDENT: Final = 30
_WIDTH: Final = 7.6
"""Of a character, in the picture."""

Expression = Annotated[Path, argument("FILE", "A file with a composite event; - for standard input.")]
ScenarioOption = Annotated[
    Path | None, option("--scenario FILE", "A scenario file whose types the expression may use.")
]
SvgOption = Annotated[Path | None, option("--svg FILE", "Draw the machine as an SVG picture, in this file.")]


class DrawnPart(NamedTuple):
    """A part of the machine: how far inside it stands, what it says, and what it waits for."""

    depth: int
    text: str
    waits: str


def check(
    file: Expression,
    policy: PolicyOption = None,
    scenario: ScenarioOption = None,
    domain: NamesDomain = None,
    svg: SvgOption = None,
    json: Json = False,
) -> None:
    """Check a composite event, and draw the machine that would evaluate it.

    Names, positions and kinds are checked against the types of a policy directory, a scenario file or a domain. What
    can never signal, or may grow without bound, is warned of.

    For example:

    `headgate detect check enters.detect --domain DIR`

    `headgate detect check enters.detect --scenario scenarios/badge-enters.yaml --svg machine.svg`

    Exit status: 0 accepted, 2 if it is refused.
    """
    text = read_bytes(file, MAX_COMPOSITE_CHARS * 4).decode("utf-8", "replace")
    with placed("standard input" if file == STANDARD else str(file)):
        resolved = resolve(parse_composite(text), _state(policy, scenario, domain))
    parts = list(drawn(resolved.composite))
    if svg is not None:
        with writing(svg, "name another place"):
            svg.write_text(picture(parts, render_composite(resolved.composite)), "utf-8")
    print_json(_as_json(resolved, parts)) if json else _show(resolved, parts, svg)


def _state(policy: Path | None, scenario: Path | None, domain: Path | None) -> State:
    """Where the types are from."""
    if scenario is not None:
        return state_of(load(scenario, Allowed(False)))
    state = ground_of(policy, domain).state
    if state is None:
        raise BadRequest("no types are known", remedy="name --policy DIR, --scenario FILE or --domain DIR")
    return state


def _as_json(resolved: Resolved, parts: list[DrawnPart]) -> dict[str, object]:
    return {
        "expression": render_composite(resolved.composite),
        "variables": {name: kind.value for name, kind in sorted(resolved.kinds.items())},
        "warnings": list(resolved.warnings),
        "machine": [part._asdict() for part in parts],
    }


def _show(resolved: Resolved, parts: list[DrawnPart], svg: Path | None) -> None:
    say(("accepted", "bold green"), f"  {render_composite(resolved.composite)}")
    kinds = ", ".join(f"{name} {kind.value}" for name, kind in sorted(resolved.kinds.items()))
    say(("variables  ", "dim"), kinds or "none")
    width = max(2 * part.depth + len(part.text) for part in parts) + 2
    for part in parts:
        say(f"  {'  ' * part.depth}{part.text}".ljust(width + 2), (part.waits, "dim"))
    for warning in resolved.warnings:
        remark(warning)
    if svg is not None:
        say("drawn in ", (str(svg), "bold"))


# -- the machine ------------------------------------------------------------------------------------------------


def drawn(c: Composite, depth: int = 0) -> Iterator[DrawnPart]:
    """The parts of the machine, each before what it is made of."""
    match c:
        case model.Template():
            yield DrawnPart(depth, render_composite(c), "the first match; until it is certain that none was earlier")
            return
        case model.Whenever(model.Template() as template):
            yield DrawnPart(depth, f"${render_composite(template)}", "every match; waits for nothing")
            return
        case model.Timer(when):
            yield DrawnPart(depth, f"AbsTime({render_free(when)})", "until this time has passed at every source")
            return
        case model.NullEvent():
            yield DrawnPart(depth, "null", "at once")
            return
        case model.Sequence():
            words = "; then", "the second is started at each signal of the first"
        case model.Either():
            words = "| or", "both are started"
        case model.Without(_, _, None):
            words = "- without", "the first is passed on when it is certain that the second did not come first"
        case model.Without(_, _, delay):
            words = "- without", f"the second is taken for absent {delay} s after the first was received"
        case model.Whenever():
            words = "$ whenever", "started again at each of its signals"
        case model.Aggregate(function, _, value, by):
            named = " ".join((function, *(() if value is None else (value,)), *(("by", ", ".join(by)) if by else ())))
            words = named, "told when what it is over has ended" if function not in ("first", "once") else "the first"
        case model.Block():
            words = "{ block }", "its statements run as results come in, become fixed, and end"
        case _:
            assert_never(c)
    yield DrawnPart(depth, *words)
    for part in model.inside(c):
        yield from drawn(part, depth + 1)


def picture(parts: list[DrawnPart], title: str) -> str:
    """The machine as an SVG document: what starts a part stands above it, to its left."""
    width = max(_INDENT * part.depth + _WIDTH * (len(part.text) + len(part.waits) + 6) for part in parts) + 40
    lines: list[str] = []
    above: dict[int, int] = {}
    for row, part in enumerate(parts):
        x, y = 20 + _INDENT * part.depth, 50 + _ROW * row
        if part.depth:
            up = 50 + _ROW * above[part.depth - 1] + 24
            bend = x - _INDENT + 12
            lines.append(f'<path d="M{bend} {up} V{y + 12} H{x}" fill="none" stroke="#888"/>')
        above[part.depth] = row
        box = _WIDTH * len(part.text) + 16
        lines.append(f'<rect x="{x}" y="{y}" width="{box:.0f}" height="24" rx="4" fill="#eef4fb" stroke="#4a6f9c"/>')
        lines.append(f'<text x="{x + 8}" y="{y + 16}">{escape(part.text)}</text>')
        lines.append(f'<text x="{x + box + 10:.0f}" y="{y + 16}" fill="#777">{escape(part.waits)}</text>')
    height = 60 + _ROW * len(parts)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="monospace" '
        f'font-size="12.5"><title>{escape(title)}</title><rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, f'<text x="20" y="30" font-weight="bold">{escape(title)}</text>', *lines, "</svg>", ""])
