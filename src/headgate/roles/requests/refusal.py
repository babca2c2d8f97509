"""Why a role is not given: which statement came nearest, and which part of it was false or unknown.

Guarantees: the words of a refusal are made here, for the ledger and for the search before it. The statement that came
nearest is the first of those with the fewest parts left; its part is one without which it would have led to the role,
or the first that fails. Told to the client is what it may know (D14): the line and the kind of the part, the names of
roles, and a condition only if all groups and relations that it names are open; whoever is told everything, all of it.
The search for it is bounded; past that, only that the role is not given is said.
Leaves out: the search for a membership (`entry`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from headgate.decide.ask import is_told_everything
from headgate.decide.constraints import Bindings, Budget, Scene, solutions, truth
from headgate.lang.render import render_constraint, render_membership, render_role
from headgate.model.changes import EnterRole
from headgate.model.conditions import TRUE, AllOf, Condition, RoleRef, named, variables
from headgate.model.errors import BadDefinition, RoleDenied
from headgate.model.rolefiles import Rolefile, Statement
from headgate.model.values import brief
from headgate.roles.records.book import role_names
from headgate.roles.requests.entry import Derivation, EntryRequest, derive
from headgate.roles.requests.revocation import on_entry

MAX_STEPS: Final = 20_000
"""Things that are looked at to find what came nearest."""
MAX_CHOICES: Final = 50
"""Choices of credentials of one statement that are looked at."""

Part: TypeAlias = Literal["arguments", "credential", "elector", "condition"]
HIDDEN: Final = "a condition that you may not see"


@dataclass(frozen=True, slots=True)
class Nearest:
    """The statement that came nearest, and the part of it that was false, or unknown (None)."""

    line: int
    part: Part
    number: int
    """Which credential, elector or condition of the statement, from 1."""
    truth: bool | None
    what: RoleRef | Condition | None = None
    left: int = 0
    """Parts of the statement that are not true, as far as that is known."""

    def words(self, scene: Scene, *, full: bool) -> str:
        """What failed, as whoever is told everything may read it, or as the client may."""
        where = f"the statement on line {self.line}" if self.line else "the statement"
        shown = _shown(self.what, scene, full=full)
        match self.part:
            case "arguments":
                return f"no statement gives it with these arguments; {where} is the first of those that give it at all"
            case "credential":
                return f"{where} came nearest, and its credential {self.number} (`{shown}`) is not among what was shown"
            case "elector":
                return f"{where} came nearest, and nobody has elected for its elector {self.number} (`{shown}`)"
            case "condition":
                said = shown if shown == HIDDEN else f"`{shown}`"
                is_now = "unknown" if self.truth is None else "false"
                return f"{where} came nearest, and its condition {self.number} is {is_now}: {said}"

    def details(self, scene: Scene, *, full: bool) -> dict[str, str]:
        """The same as facts for programs."""
        facts = {
            "line": str(self.line),
            "part": self.part,
            "number": str(self.number),
            "truth": "unknown" if self.truth is None else "false",
        }
        return facts if self.what is None else {**facts, "what": _shown(self.what, scene, full=full)}


def _shown(what: RoleRef | Condition | None, scene: Scene, *, full: bool) -> str:
    if what is None:
        return ""
    try:
        if isinstance(what, RoleRef):
            return render_role(what if full else replace(what, args=(), instance=None))
        names = named(what)
        is_open = bool(names) and all(one in scene.state.open_names for one in names)
        return render_constraint(what) if full or is_open else HIDDEN
    except BadDefinition:
        return HIDDEN


def not_entered(enter_role: EnterRole, request: EntryRequest, rolefile: Rolefile, scene: Scene) -> RoleDenied:
    """Why a role is not given: revoked, not a role of this service, or not enough shown."""
    if enter_role.role not in role_names(rolefile):
        return RoleDenied(f"`{enter_role.service}` has no role `{brief(enter_role.role)}`", failure="misuse")
    name = render_membership(enter_role.service, enter_role.instance, enter_role.role, ())
    if request.bans and derive(rolefile, replace(request, bans=frozenset()), scene) is not None:
        return RoleDenied(
            f"`{name}` was revoked", failure="revocation", remedy="ask whoever revoked it to reinstate you"
        )
    message = f"what `{enter_role.principal}` showed does not lead to `{name}`"
    remedy = f"`headgate role show {enter_role.service}` says what does"
    closest = nearest(rolefile, request, scene)
    if closest is None:
        return RoleDenied(message, failure="credentials", remedy=remedy)
    full = is_told_everything(scene.state, enter_role.principal)
    denied = RoleDenied(
        f"{message}: {closest.words(scene, full=full)}",
        failure="credentials",
        details=closest.details(scene, full=full),
        remedy=remedy,
    )
    denied.for_authors = f"{message}: {closest.words(scene, full=True)}"
    return denied


def nearest(rolefile: Rolefile, request: EntryRequest, scene: Scene) -> Nearest | None:
    """The statement that came nearest to giving what was asked for; None if that takes too long to find."""
    room = MAX_STEPS if scene.budget.left is None else max(0, min(MAX_STEPS, scene.budget.left))
    bounded = replace(scene, budget=Budget(room))
    try:
        tried = Derivation(rolefile, request, bounded)
        tried.run()
        misses = [one for s in rolefile.statements if s.head.role == request.role for one in [_missed(tried, s)]]
    except RoleDenied:
        return None
    finally:
        if scene.budget.left is not None:  # whoever asks is charged for finding out
            scene.budget.left -= room - max(0, bounded.budget.left or 0)
    return min(misses, key=lambda one: one.left, default=None)


def _missed(tried: Derivation, statement: Statement) -> Nearest:
    """What a statement lacks, for the choice of credentials that leads furthest."""
    line = statement.line
    conditions = _conjuncts(on_entry(statement))
    parts = len(statement.credentials) + len(statement.electors) + len(conditions)
    asked = tried.asked(statement)
    if asked is None:
        return Nearest(line, "arguments", 1, False, left=parts + 1)
    depth, choices = tried.furthest(statement, asked, MAX_CHOICES)
    if depth < len(statement.credentials):
        ref = statement.credentials[depth].ref
        return Nearest(line, "credential", depth + 1, False, ref, parts - depth)
    best: Nearest | None = None
    for bound in choices:
        for found in _beyond(tried, statement, bound, conditions):
            if best is None or found.left < best.left:
                best = found
    return best or Nearest(line, "condition", max(1, len(conditions)), False, None, 1)


def _beyond(
    tried: Derivation, statement: Statement, bound: Bindings, conditions: tuple[Condition, ...]
) -> Iterator[Nearest]:
    """What is missing once the credentials are there."""
    elected, choices = tried.elected(statement, bound, MAX_CHOICES)
    if elected < len(statement.electors):
        left = len(statement.electors) - elected + len(conditions)
        yield Nearest(statement.line, "elector", elected + 1, False, statement.electors[elected].ref, left)
        return
    for then in choices:
        found = _failing(conditions, then, tried.scene)
        if found is not None:
            yield replace(found, line=statement.line)


def _failing(conditions: tuple[Condition, ...], bound: Bindings, scene: Scene) -> Nearest | None:
    """The condition without which all others hold; else the first that is false, or is not true."""
    for at, condition in enumerate(conditions):
        others = conditions[:at] + conditions[at + 1 :]
        found = next(solutions(_all_of(others), bound, scene), None)
        if found is not None:
            return Nearest(0, "condition", at + 1, _truth(condition, found, scene), condition, 1)
    truths = [_truth(one, bound, scene) for one in conditions]
    for wanted in (False, None):
        if wanted in truths:
            at = truths.index(wanted)
            return Nearest(0, "condition", at + 1, wanted, conditions[at], sum(one is not True for one in truths))
    return None


def _truth(condition: Condition, bound: Bindings, scene: Scene) -> bool | None:
    """False or unknown; what would give a variable a value and does not is false."""
    return truth(condition, bound, scene) if variables(condition) <= bound.keys() else False


def _conjuncts(constraint: Condition) -> tuple[Condition, ...]:
    if constraint == TRUE:
        return ()
    return constraint.args if isinstance(constraint, AllOf) else (constraint,)


def _all_of(conditions: tuple[Condition, ...]) -> Condition:
    return conditions[0] if len(conditions) == 1 else AllOf(conditions)
