"""Wider-Than: does every attribute set that makes one rule true make another true? (Guard II.D and VI; rule D11)

Guarantees: "wider" is said only where it is proven; a counterexample makes the second rule true and the first not, by
the reference semantics. What cannot be told in time is "cannot tell", which counts as no. Rules are over the attributes
of subjects, which have no declared kind: absent is null, and values of different kinds compare as unknown.
`check_policy_rule` holds a publisher to its policy rule; where it is called, events are admitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from headgate.decide.check import check_requirement, match
from headgate.model.errors import BadExpression, PolicyRuleDenied
from headgate.model.expressions import TRUE, Attribute, ClockPart, Condition, Meta, Subject, foreign
from headgate.model.limits import WIDER_SECONDS
from headgate.model.state import State
from headgate.model.values import Kind, Value, brief, plain
from headgate.solver import vector as vectors
from headgate.solver.exact import find
from headgate.solver.terms import ConditionFrame, Every, Term, Want

__all__ = ["Method", "Verdict", "WiderAnswer", "check_requirement", "covers", "match", "wider"]

Verdict: TypeAlias = Literal["wider", "not wider", "cannot tell"]
Method: TypeAlias = Literal["auto", "vector", "exact"]

_MOST_ANSWERS: Final = 4_096
"""Answers that are remembered."""


@dataclass(frozen=True, slots=True)
class WiderAnswer:
    """Whether a rule is wider than another, how that was found, and if not, for whom it is not."""

    verdict: Verdict
    counterexample: Mapping[str, Value] | None = None
    method: Literal["same", "vector", "exact"] = "exact"

    @property
    def holds(self) -> bool:
        """Is it proven?"""
        return self.verdict == "wider"


def wider(rule: Condition, other: Condition, *, method: Method = "auto", limit: float = WIDER_SECONDS) -> WiderAnswer:
    """Is `rule` wider than `other`: true for every subject for whom `other` is true?

    `vector` refuses rules that are not vectors; `auto` takes it where it says yes, and remembers its answers.
    """
    match method:
        case "auto":
            return _auto(_Exactly(rule), _Exactly(other), limit)
        case "vector":
            return _by_vector(rule, other)
        case "exact":
            check_requirement(rule)
            check_requirement(other)
            return _by_search(rule, other, ConditionFrame(), limit)


def covers(
    a: Condition, b: Condition, kinds: Mapping[str, Kind], *, state: State | None = None, limit: float = WIDER_SECONDS
) -> WiderAnswer:
    """Does one filter cover another: is it true for every event, of a type with these attributes, for which `b` is?

    Groups and relations are those of a state; without one, whatever they hold it must be so.
    """
    if a == TRUE or repr(a) == repr(b):
        return WiderAnswer("wider", method="same")
    return _by_search(a, b, ConditionFrame(kinds, state), limit)


class _Exactly:
    """A condition that is the same as another only if all its constants are: 1, 1.0 and true are three."""

    __slots__ = ("condition", "key")

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self.key = repr(condition)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Exactly) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=_MOST_ANSWERS)
def _auto(rule: _Exactly, other: _Exactly, limit: float) -> WiderAnswer:
    check_requirement(rule.condition)
    check_requirement(other.condition)
    if rule.condition == TRUE or rule == other:
        return WiderAnswer("wider", method="same")
    wide, narrow = vectors.vector(rule.condition), vectors.vector(other.condition)
    if wide is not None and narrow is not None and vectors.wider(wide, narrow):
        return WiderAnswer("wider", method="vector")
    return _by_search(rule.condition, other.condition, ConditionFrame(), limit)


def _by_vector(rule: Condition, other: Condition) -> WiderAnswer:
    wide, narrow = vectors.vector(rule), vectors.vector(other)
    for which, found, condition in (("first", wide, rule), ("second", narrow, other)):
        if found is None:
            check_requirement(condition)
            raise BadExpression(
                f"the {which} rule is not a vector: comparisons and ranges joined by `and`, each attribute once",
                remedy="ask for the exact method",
            )
    assert wide is not None
    assert narrow is not None
    if vectors.wider(wide, narrow):
        return WiderAnswer("wider", method="vector")
    return WiderAnswer("not wider", vectors.example(wide, narrow), "vector")


def _by_search(a: Condition, b: Condition, frame: ConditionFrame, limit: float) -> WiderAnswer:
    """Look for values that make `b` true and `a` not."""
    solution = find(Every((Want(b), Want(a, met=False))), frame, limit)
    match solution.exists:
        case None:
            return WiderAnswer("cannot tell")
        case False:
            return WiderAnswer("wider")
        case True:
            values = solution.values or {}
            return WiderAnswer("not wider", {name_of(t): v for t, v in values.items() if v is not None})


def name_of(term: Term) -> str:
    """What a term is called in a counterexample."""
    match term:
        case Meta(name):
            return f"@{name}"
        case ClockPart(part):
            return part
        case Attribute(name) | Subject(name):
            return name
        case _:
            raise foreign(term)


def check_policy_rule(state: State, publisher: str, requires: Condition | None) -> None:
    """Refuse a requirement that lets in receivers whom the publisher's policy rule keeps out (D11; Guard II.D).

    What cannot be told counts as no; an event without a requirement asks for anyone.
    """
    rule = state.policy_rules.get(publisher)
    if rule is None:
        return
    answer = wider(rule, TRUE if requires is None else requires)
    if not answer.holds:
        raise PolicyRuleDenied(
            f"the policy rule of `{publisher}` is not wider than the requirement of the event"
            if requires is not None
            else f"`{publisher}` has a policy rule, and the event has no requirement",
            remedy=_narrower(answer.counterexample),
        )


def _narrower(example: Mapping[str, Value] | None) -> str:
    """What to do about a requirement that is too wide."""
    if example is None:
        return "write a requirement that is plainly narrower than the policy rule"
    shown = ", ".join(f"`${name} = {brief(plain(value))}`" for name, value in example.items() if value is not None)
    return f"narrow the requirement: the policy rule keeps out a receiver with {shown or 'no attributes'}"
