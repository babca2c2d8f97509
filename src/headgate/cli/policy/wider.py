"""`headgate wider`: is one rule over subject attributes wider than another? (Guard II.D and VI)

Guarantees: `wider` is printed, and the status is 0, only where it is proven; a counterexample was put to both rules.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from headgate.cli.shared.common import placed
from headgate.cli.shared.options import Json, argument, option
from headgate.cli.shared.rendering import print_json, say, show_constant, show_table, show_truth
from headgate.lang import parse_condition
from headgate.model.expressions import Condition
from headgate.model.limits import WIDER_SECONDS
from headgate.solver import WiderAnswer, match, wider

_MOST_SECONDS = 3_600.0


class Method(StrEnum):
    """How the answer is found."""

    AUTO = "auto"
    VECTOR = "vector"
    EXACT = "exact"


def command(
    rule: Annotated[str, argument("RULE", "The rule that may be wider, such as a policy rule.")],
    other: Annotated[str, argument("RULE", "The rule it is compared with, such as a requirement.")],
    method: Annotated[
        Method,
        option(
            "--method",
            "`vector` compares attribute by attribute, for comparisons joined by `and`; `exact` takes any rule; "
            "`auto` tries both.",
        ),
    ] = Method.AUTO,
    seconds: Annotated[
        float, option("--seconds", "How long an exact answer may take.", min=0.0, max=_MOST_SECONDS)
    ] = WIDER_SECONDS,
    json: Json = False,
) -> None:
    """Is the first rule wider than the second: true for every subject for whom the second is true?

    Rules are over subject attributes, such as `$clearance`. If the answer is no, an attribute set is shown for which
    the second rule is true and the first is not. Quote the rules, so that the shell leaves the `$` alone.

    For example:

    `headgate wider '$clearance = "secret"' '$clearance = "secret" and $nation = "NO"'`

    `headgate wider '$age > 17' '$age = 17..65' --method vector`

    Exit status: 0 wider, 1 not wider or it cannot be told, 2 if a rule is refused.
    """
    with placed("first rule"):
        one = parse_condition(rule)
    with placed("second rule"):
        two = parse_condition(other)
    answer = wider(one, two, method=method.value, limit=seconds)
    print_json(answer) if json else _show(answer, one, two)
    raise typer.Exit(0 if answer.holds else 1)


def _show(answer: WiderAnswer, rule: Condition, other: Condition) -> None:
    match answer.verdict:
        case "wider":
            say(("wider", "bold green"))
        case "cannot tell":
            say(("cannot tell", "bold yellow"), ", which counts as not wider: give it more time with --seconds")
        case "not wider":
            say(("not wider", "bold red"))
            _show_counterexample(answer, rule, other)


def _show_counterexample(answer: WiderAnswer, rule: Condition, other: Condition) -> None:
    counterexample = answer.counterexample
    if counterexample is None:
        say("  no counterexample: the second rule can never be true, which only the exact method takes into account")
        return
    first, second = show_truth(match(rule, counterexample)), show_truth(match(other, counterexample))
    who = "a subject with" if counterexample else "a subject without attributes"
    say(f"  for {who}")
    if counterexample:
        rows = ((f"    ${name}", f"= {show_constant(value)}") for name, value in counterexample.items())
        show_table(("", ""), rows)
    say(f"  the second rule is {second} and the first is {first}")
