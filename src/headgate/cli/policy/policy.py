"""`headgate policy`: a directory of files is the policy, and the ledger is made to say the same.

Guarantees: `plan` changes nothing. `apply` commits exactly the plan that it shows, as one batch, or nothing. Versions
that others made meanwhile are no hindrance if the same plan follows from the newest; it says which those were. No
Python of the directory runs without `--run-python`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from headgate.analysis.advice import advise
from headgate.analysis.effects import Affected, Gain, Turn, effects
from headgate.analysis.plan import Plan
from headgate.cli.policy import policy_check
from headgate.cli.policy.policy_check import Warned, named_by_entrants, warned, whom
from headgate.cli.shared.common import check_text, data_directory, err, group
from headgate.cli.shared.options import Json, PolicyDomain, RunPython, argument, option
from headgate.cli.shared.rendering import (
    MOST,
    count_of,
    joined,
    names,
    print_json,
    say,
    say_lines,
    say_not_run,
    show_open,
    show_table,
)
from headgate.commands.commit import apply_plan
from headgate.lang.render import render_condition, render_membership
from headgate.ledger import Difference, Ledger, Rebased, StartingPoint
from headgate.ledger.delta import preview
from headgate.model.changes import AddRule, SetEventPolicy, SetRolefile
from headgate.model.conditions import TRUE
from headgate.model.errors import BadDefinition, VersionConflict
from headgate.model.rights import Action
from headgate.node.config import Files
from headgate.node.domain import Domain
from headgate.pipeline.index.predicates import Allowed
from headgate.pipeline.paths import Paths
from headgate.scenario.format.policy import Desired, plan_policy, read_policy

_ALWAYS: Final = render_condition(TRUE)

Directory = Annotated[Path, argument("DIR", "The policy: a directory of YAML files.")]


@dataclass(frozen=True, slots=True)
class Ended:
    """A membership or an election that ends, and why."""

    id: str
    who: str
    role: str
    reason: str
    words: str


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan with all that is said about it."""

    version: int
    changes: tuple[Difference, ...]
    effects: tuple[Affected, ...]
    warnings: tuple[Warned, ...]
    ended: tuple[Ended, ...] = ()
    not_run: tuple[str, ...] = ()
    """Predicates that were known by name alone."""


def plan(
    directory: Directory,
    domain: PolicyDomain = None,
    run_python: RunPython = False,
    check: Annotated[bool, option("--check", "Leave with status 1 if anything would change.")] = False,
    json: Json = False,
) -> None:
    """Show what a policy directory would change: who gains and who loses what, and then the changes themselves.

    The files (`*.yaml`, in order of their names, also one directory down) have the keys of scenario files without
    `certificates`, `identities`, `steps` and `expect`; of `peers` they say more. Rolefiles may stand in files
    `Service.roles`, event policy in files `*.erdl`. The directory is the whole policy: what it does not say
    would end, except for what signed statements brought, and roles that follow from the rolefiles as they become.

    No Python of the directory runs unless `--run-python` is given; a predicate that is new is then known by name alone.

    For example:

    `headgate policy plan policy`

    `headgate policy plan policy --domain /srv/headgate --check`

    Exit status: 0 with or without a difference, 1 with `--check` if there is one, 2 if the policy is refused.
    """
    check_text(str(directory))
    paths = Paths(_data(domain, directory))
    with Ledger.open(paths.ledger) as ledger:
        now = ledger.state()
    desired = read_policy(directory, now.administrator, Allowed(run_python, now.predicates, paths.predicates))
    made = plan_policy(now, desired)
    shown = replace(describe(made), not_run=desired.not_run)
    print_json(shown) if json else _show(shown, made)
    say_not_run(desired.not_run)
    raise typer.Exit(int(check and not made.empty))


def apply(
    directory: Directory,
    domain: PolicyDomain = None,
    run_python: RunPython = False,
    note: Annotated[str, option("--note TEXT", "Why, for the history.")] = "",
    yes: Annotated[bool, option("--yes -y", "Do not ask.")] = False,
) -> None:
    """Make the ledger say what a policy directory says, as one new version; shows the plan and asks first.

    Rules, groups and all the rest become exactly those of the files. Subscriptions stay, except where their type or
    principal ends, or their filter names something that no filter may name any more. What signed statements brought
    stays: rights, attributes, and principals that came by themselves. A running node follows at once.

    What others do meanwhile, such as subscribing, advertising or entering roles, is no hindrance: the plan is then
    applied on top of it, which is said. If the policy itself was changed meanwhile, it is not applied.

    A predicate that the domain has not registered yet is Python that every gateway and the pipeline will run from then
    on. It is registered only with `--run-python`, and only from a module that stands in the directory itself.

    For example:

    `headgate policy apply policy`

    `headgate policy apply policy --domain /srv/headgate --note 'the new season' --yes`

    Exit status: 0 applied or nothing to do, 1 not confirmed, 2 refused; then nothing has changed.
    """
    check_text(str(directory))
    with Domain.open(_data(domain, directory)) as opened:
        now = opened.ledger.state()
        desired = read_policy(
            directory, now.administrator, Allowed(run_python, now.predicates, opened.paths.predicates)
        )
        if desired.not_run:
            raise BadDefinition(
                f"the policy registers {names(desired.not_run)}: Python that gateways and the pipeline will run",
                place=str(directory),
                remedy="look at the module, and add `--run-python`",
            )
        made = plan_policy(now, desired)
        _show(describe(made), made)
        if made.empty:
            return
        confirm(made.expect + 1, yes=yes)
        version = _commit(opened, made, desired, note)
        starts = opened.ledger.starting_points(version=version)
        over = opened.ledger.passed_over(made.expect, version)
    _applied(version, starts, over)


def _data(domain: Path | None, directory: Path) -> Path:
    """The data directory: of `--domain`, or of the domain that the policy stands in, or of the current directory."""
    beside = directory.resolve().parent
    return data_directory(beside if domain is None and Files(beside).config.is_file() else domain or Path())


def confirm(version: int, *, yes: bool) -> None:
    """Leave, with nothing changed, unless whoever is asked says yes or has said so."""
    if yes:
        return
    if not _is_terminal():
        raise typer.BadParameter("nobody can be asked here: standard input is not a terminal; add --yes to apply it")
    err.print()
    if not typer.confirm(f"Apply this as version {version}?", err=True):
        say("nothing was changed")
        raise typer.Exit(1)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _commit(domain: Domain, made: Plan, desired: Desired, note: str) -> int:
    for predicate, beside in desired.predicates:
        if domain.register_predicate(predicate.name, predicate.target, beside, desired.directory) != predicate:
            raise VersionConflict(
                f"the module of the predicate `{predicate.name}` was changed meanwhile", remedy="plan again"
            )

    return apply_plan(domain, made, lambda state: plan_policy(state, desired), note)


# -- in words -------------------------------------------------------------------------------------------------


def describe(made: Plan) -> ShownPlan:
    """Everything there is to say about a plan."""
    affected = () if made.empty else tuple(effects(made.before, made.after, show_open))
    warnings = warned(advise(made.after), made.before, made.after) + named_by_entrants(made.after)
    changes = () if made.empty else tuple(preview(made.before, made.after, made.recorded))
    return ShownPlan(made.expect, changes, affected, warnings, tuple(_ended(made)))


def _ended(made: Plan) -> Iterator[Ended]:
    """The memberships and elections that would end, and why."""
    roles = made.before.roles
    for ending in made.ended:
        membership, election = roles.memberships.get(ending.id), roles.elections.get(ending.id)
        if membership is not None:
            role = render_membership(membership.service, membership.instance, membership.role, membership.args)
            words = f"`{membership.holder}` loses `{role}` ({membership.id}): {ending.reason}"
            yield Ended(ending.id, membership.holder, role, ending.reason, words)
        elif election is not None:
            role = f"{election.service}.{election.role}"
            words = f"`{election.elector}` no longer elects to `{role}` ({election.id}): {ending.reason}"
            yield Ended(ending.id, election.elector, role, ending.reason, words)


def gain_words(gain: Gain) -> str:
    """One gain or loss in words."""
    no_longer = "no longer " if gain.turn is Turn.LOSES else ""
    what = f"`{gain.type}`"
    match gain.action:
        case Action.CONNECT:
            return "may no longer connect" if no_longer else "may connect"
        case Action.SUBSCRIBE:
            part = f"{names(gain.attributes)} of {what}" if gain.attributes else f"that there is a {what}"
            if gain.turn is Turn.OTHERWISE:
                return f"sees {part}{_where(gain.after) or ' always'}; before:{_where(gain.before) or ' always'}"
            return f"{no_longer}sees {part}{_where(gain.before if no_longer else gain.after)}"
        case Action.PUBLISH if gain.turn is Turn.OTHERWISE:
            return f"may publish of {what}: {gain.after}; before: {gain.before}"
        case Action.PUBLISH:
            terms = f": {gain.after}" if gain.after not in (None, "everything") else ""
            return f"may {no_longer}publish {what}{terms}"
        case _:
            return f"may {no_longer}{gain.action.value} {what}"


def _where(condition: str | None) -> str:
    return "" if condition in (None, _ALWAYS) else f" where {condition}"


# -- on the screen --------------------------------------------------------------------------------------------

_MARKS: Final = {Turn.GAINS: ("+", "green"), Turn.LOSES: ("-", "red"), Turn.OTHERWISE: ("~", "yellow")}


def _show(shown: ShownPlan, made: Plan) -> None:
    if made.empty:
        say(f"nothing to change: version {shown.version} is this policy")
    else:
        say(("Who gains and who loses", "bold"), f" (from version {shown.version} to {shown.version + 1})")
        _show_effects(shown.effects, made)
        if shown.ended:
            say()
            say(("Roles that end", "bold"))
            say_lines(one.words for one in shown.ended)
        say()
        say(("Changes", "bold"))
        say_lines(one.words for one in shown.changes)
    if shown.warnings:
        say()
        say(("Warnings", "bold yellow"))
        say_lines(one.words for one in shown.warnings)


def _show_effects(affected: Sequence[Affected], made: Plan) -> None:
    if not affected:
        say("  nobody: every principal may do and see what it could before")
        if _speaks_of_roles(made):
            say("  rules for roles and event policy count for whoever comes to hold the roles they ask for")
        return
    rows = [
        (f"  {'' if number else whom(effect.who, made.after, made.before)}", Text(*_MARKS[gain.turn]), gain_words(gain))
        for effect in affected
        for number, gain in enumerate(effect.gains)
    ]
    show_table(("", "", ""), rows[:MOST])
    if len(rows) > MOST:
        say(f"  and {len(rows) - MOST:,} more; `--json` has them all")


def _speaks_of_roles(made: Plan) -> bool:
    """May someone who comes to hold a role gain or lose by the plan?"""
    added = (one.rule.role is not None for one in made.batch.changes if isinstance(one, AddRule))
    return any(added) or any(isinstance(one, SetEventPolicy | SetRolefile) for one in made.batch.changes)


def _applied(version: int, starts: Sequence[StartingPoint], over: Rebased | None) -> None:
    say()
    say(("applied", "bold green"), f" as version {version}")
    if over is not None:
        kinds = joined(over.kinds) or "nothing changed"
        say(f"  rebased over {count_of(over.versions, 'version')} by others: {kinds}")
    for point in starts:
        say(f"  from event {point.seq} of stream `{point.stream}` on")
    if not starts:
        say("  from the first event on: there is no stream yet")


app = group("Keep the policy in files: show what they would change, and make it so.", plan, apply, policy_check.check)
