"""`headgate policy`: a directory of files is the policy, and the ledger is made to say the same.

Guarantees: `plan` changes nothing. `apply` commits exactly the plan that it shows, as one batch, or nothing. Versions
that others made meanwhile are no hindrance if the same plan follows from the newest; it says which those were. `check`
changes nothing: a rule is named, or an attribute said to be out of sight, only where that is proven; what the proof is
about is said with it. No Python of the directory runs without `--run-python`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from rich.text import Text

from headgate.analysis.advice import (
    Advice,
    Concern,
    advise,
    more_readers,
    not_declassified,
    nothing_of_it,
    unattested,
    valued,
)
from headgate.analysis.effects import Affected, Gain, Turn, effects
from headgate.analysis.plan import Plan
from headgate.analysis.proofs import Fault, PolicyProofs, RuleFinding, Sight, can_see, check_policy, example_state
from headgate.cli.shared import rendering
from headgate.cli.shared.common import data_directory, err, group, open_domain
from headgate.cli.shared.options import Json, PolicyDomain, RunPython, argument, option
from headgate.cli.shared.rendering import MOST, count_of, joined, names, print_json, say, say_section, show_table
from headgate.commands.policy import apply_plan
from headgate.decide.truth import PredicateFunction
from headgate.decide.views import view
from headgate.lang.render import render_condition, render_membership, render_role
from headgate.ledger import Difference, Ledger, Rebased, StartingPoint
from headgate.ledger.load import preview
from headgate.model.changes import AddRule, SetEventPolicy, SetRolefile
from headgate.model.errors import BadDefinition, UnknownName, VersionConflict
from headgate.model.expressions import TRUE
from headgate.model.limits import WIDER_SECONDS
from headgate.model.rights import Action, Effect, Rule, Source
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.values import Value, brief, same
from headgate.node.config import Files
from headgate.node.domain import Domain
from headgate.pipeline.index.predicates import Allowed
from headgate.pipeline.paths import Paths
from headgate.roles.rolefiles.checking import asked_for, relation_columns
from headgate.scenario.format.policy import Desired, plan_policy, read_policy

_ALWAYS: Final = render_condition(TRUE)

_ABOUT: Final = (
    "the rules, the event policy and the chains that stand now, whatever attributes and roles principals come to have; "
    "not certificates that nobody has shown, nor whether a rolefile lets anyone enter a role"
)
"""What is proven, and what is not looked at."""

_FEW: Final = 3
"""Rules or principals that are named one by one."""
_MOST_SECONDS: Final = 3_600.0

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
    paths = Paths(_data(domain, directory))
    with Ledger.open(paths.ledger) as ledger:
        now = ledger.state()
    desired = _desired(directory, now, paths, run_python)
    made = plan_policy(now, desired)
    shown = replace(describe(made), not_run=desired.not_run)
    print_json(shown) if json else _show(shown, made)
    rendering.say_not_run(desired.not_run)
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
    with Domain.open(_data(domain, directory)) as opened:
        now = opened.ledger.state()
        desired = _desired(directory, now, opened.paths, run_python)
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


def _desired(directory: Path, now: State, paths: Paths, run_python: bool) -> Desired:
    """The policy of a directory, for the domain whose ledger says this now."""
    return read_policy(directory, now.administrator, Allowed(run_python, now.predicates, paths.predicates))


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
    affected = () if made.empty else tuple(effects(made.before, made.after, rendering.show_open))
    warnings = warned(advise(made.after), made.before, made.after) + named_by_entrants(made.after)
    changes = () if made.empty else tuple(preview(made.before, made.after, made.recorded))
    return ShownPlan(made.expect, changes, affected, warnings, tuple(_ended(made)))


def _ended(made: Plan) -> Iterator[Ended]:
    """The memberships and elections that would end, and why."""
    roles = made.before.roles
    for ending in made.ended:
        membership, election = roles.memberships.get(ending.id), roles.elections.get(ending.id)
        if membership is not None:
            who, does = membership.holder, "loses"
            role = render_membership(membership.service, membership.instance, membership.role, membership.args)
        elif election is not None:
            who, does, role = election.elector, "no longer elects to", f"{election.service}.{election.role}"
        else:
            continue
        words = f"`{who}` {does} `{role}` ({ending.id}): {ending.reason}"
        yield Ended(ending.id, who, role, ending.reason, words)


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
        say_section("Roles that end", (one.words for one in shown.ended), apart=True)
        say_section("Changes", (one.words for one in shown.changes), apart=True)
    say_section("Warnings", (one.words for one in shown.warnings), "bold yellow", apart=True)


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


@dataclass(frozen=True, slots=True)
class _Policy:
    """A policy, and the predicates that can be asked."""

    state: State
    predicates: Mapping[str, PredicateFunction]
    not_run: tuple[str, ...] = ()


def check(
    directory: Annotated[
        Path | None, argument("[DIR]", "A policy directory, as it would be applied.", unset="the ledger's")
    ] = None,
    domain: PolicyDomain = None,
    version: Annotated[
        int | None, option("--version", "The ledger's policy at this version; default the newest.", min=0)
    ] = None,
    sees: Annotated[str | None, option("--can-see TYPE.ATTRIBUTE", "Can anyone ever see this attribute?")] = None,
    outside: Annotated[
        list[str] | None, option("--outside GROUP", "With --can-see: anyone but its members; may be repeated.")
    ] = None,
    seconds: Annotated[
        float, option("--seconds", "How long one proof may take.", min=0.0, max=_MOST_SECONDS)
    ] = WIDER_SECONDS,
    run_python: RunPython = False,
    json: Json = False,
) -> None:
    """Find rules that never count and rules that nobody would miss; or prove who can never see an attribute.

    A rule never counts if its condition can never be true, or if rules before it decide all that it speaks of. It is
    not needed if everything would stay as it is without it. All rules that are named could be removed together.

    In a domain with identity providers it also warns of every publisher that could publish without an identity
    statement in force, which `attested: true` in a rule asks for. It warns of types that detections publish for more
    readers than those of what they are made of, and of what is not declassified for a type that asks for it. And it
    warns of rules that show no attribute, of members of groups that are no principals, and of arguments of roles that
    whoever enters may name as it likes.

    It is about the rules, the event policy and the chains that stand now, for principals with any attributes, as
    identity statements may bring them, and with any roles. It does not look at certificates that nobody has shown, nor
    at whether a rolefile lets anyone enter a role. Predicates may answer anything; no Python of the directory runs
    unless `--run-python` is given.

    For example:

    `headgate policy check policy`

    `headgate policy check --domain /srv/headgate`

    `headgate policy check policy --can-see shop.Sale.card --outside accountants`

    Exit status: 0 nothing found, or nobody can see it; 1 something found, or somebody can; 2 if the policy is refused.
    Warnings do not count.
    """
    if outside and sees is None:
        raise typer.BadParameter("--outside goes with --can-see")
    if directory is not None and version is not None:
        raise typer.BadParameter("a directory has no --version; leave one of them out")
    with ExitStack() as opened:
        policy = _policy(directory, domain, version, opened, run_python)
        rendering.say_not_run(policy.not_run)
        if sees is not None:
            type_name, attribute = _split(policy.state, sees)
            answer = can_see(
                policy.state, type_name, attribute, outside or (), predicates=policy.predicates, limit=seconds
            )
            _print(answer) if json else _show_sight(answer, policy, attribute, type_name, outside or [])
            raise typer.Exit(0 if answer.verdict == "no" else 1)
        proofs = check_policy(policy.state, limit=seconds)
    state = policy.state
    said = (*unattested(state), *nothing_of_it(state), *valued(state), *more_readers(state), *not_declassified(state))
    warnings = warned(said, policy.state) + named_by_entrants(policy.state)
    _print(proofs, warnings=warnings) if json else _show_proofs(proofs, policy.state, warnings)
    raise typer.Exit(1 if proofs.findings else 0)


def _policy(
    directory: Path | None, domain: Path | None, version: int | None, opened: ExitStack, run_python: bool
) -> _Policy:
    """The policy of the ledger; or of a directory, for the domain that it stands in if there is one."""
    if directory is None:
        there = opened.enter_context(open_domain(domain or Path()))
        books = there.books(there.ledger.state())
        state = books.now if version is None else books.states(version)
        return _Policy(state, books.predicates(state))
    beside = directory.resolve().parent
    if domain is None and not Files(beside).config.is_file():
        read = read_policy(directory, ADMINISTRATOR, Allowed(run_python))
        return _Policy(read.state, read.functions, read.not_run)
    paths = Paths(data_directory(domain or beside))
    with Ledger.open(paths.ledger) as ledger:
        now = ledger.state()
    read = _desired(directory, now, paths, run_python)
    return _Policy(plan_policy(now, read).after, read.functions, read.not_run)


def _split(state: State, text: str) -> tuple[str, str]:
    """A type and one of its attributes, out of their names with a dot between."""
    dots = [at for at, letter in enumerate(text) if letter == "."]
    for at in reversed(dots):
        if text[:at] in state.types and text[at + 1 :] in state.types.attributes(text[:at]):
            return text[:at], text[at + 1 :]
    known = next((text[:at] for at in reversed(dots) if text[:at] in state.types), None)
    if known is not None:
        remedy = f"its attributes are {names(state.types.attributes(known)) or 'none'}"
        raise UnknownName(f"`{known}` has no attribute `{brief(text[len(known) + 1 :])}`", remedy=remedy)
    raise UnknownName(f"no event type and attribute `{brief(text)}`", remedy="write it like `shop.Sale.card`")


def _print(answer: PolicyProofs | Sight, **more: object) -> None:
    """An answer as JSON, with what it is about."""
    print_json({**{one.name: getattr(answer, one.name) for one in fields(answer)}, **more, "about": _ABOUT})


# -- in words -------------------------------------------------------------------------------------------------


def _show_proofs(proofs: PolicyProofs, state: State, warnings: tuple[Warned, ...]) -> None:
    rules = {rule.id: rule for rule in state.rules}
    never = [one for one in proofs.findings if one.fault is not Fault.REDUNDANT]
    needless = [one for one in proofs.findings if one.fault is Fault.REDUNDANT]
    say_section("Rules that never count", _lines(never, rules), "bold yellow")
    say_section("Rules that nobody would miss", _lines(needless, rules), "bold yellow")
    if not proofs.findings:
        say(("nothing found", "bold green"), f" in {count_of(len(rules), 'rule')}")
    say_section("Warnings", (one.words for one in warnings), "bold yellow")
    if proofs.undecided:
        say(("not decided", "yellow"), f": {_some(proofs.undecided)}; `--seconds` gives proofs more time")
    say((f"about {_ABOUT}", "dim"))


def _lines(findings: list[RuleFinding], rules: Mapping[str, Rule]) -> Iterator[str]:
    for finding in findings:
        rule = rules[finding.rule]
        match finding.fault:
            case Fault.NOBODY:
                yield f"`{rule.id}` speaks to nobody: `{rule.who}` has no members"
            case Fault.NO_TYPE:
                yield f"`{rule.id}` speaks of nothing: there is no such type, or none with the attributes it names"
            case Fault.NEVER_TRUE if rule.effect is Effect.FORBID:
                yield f"`{rule.id}` forbids nothing: its condition is always false"
            case Fault.NEVER_TRUE:
                yield f"`{rule.id}` grants nothing: its condition can never be true"
            case Fault.SHADOWED:
                verb = "decide" if len(finding.because) > 1 else "decides"
                yield f"`{rule.id}` comes too late: {_some(finding.because)} {verb} all that it speaks of"
            case Fault.REDUNDANT if rule.effect is Effect.FORBID:
                yield f"`{rule.id}` takes nothing away"
            case Fault.REDUNDANT:
                verb = "grant" if len(finding.because) > 1 else "grants"
                yield f"`{rule.id}` adds nothing: {_some(finding.because)} {verb} the same"


def _some(ids: tuple[str, ...]) -> str:
    return names(ids[:_FEW]) + (f" and {len(ids) - _FEW:,} more" if len(ids) > _FEW else "")


def _show_sight(answer: Sight, policy: _Policy, attribute: str, type_name: str, outside: list[str]) -> None:
    but = f" outside {names(outside)}" if outside else ""
    what = f"`{attribute}` of `{type_name}`"
    if answer.verdict == "no":
        say(("no", "bold green"), f": nobody{but} can ever see {what}")
    elif answer.verdict == "cannot tell":
        say(
            ("cannot tell", "bold yellow"), f" whether anybody{but} can ever see {what}; `--seconds` gives it more time"
        )
    else:
        _show_example(answer, policy, what)
    say((f"about {_ABOUT}", "dim"))


def _show_example(answer: Sight, policy: _Policy, what: str) -> None:
    event, rule, who = answer.event, answer.rule, answer.principal
    assert event is not None
    assert rule is not None
    assert who is not None
    once = _once(policy.state.principals[who], answer)
    by = (
        f"`{rule.id}` of the event policy"
        if rule.source is Source.POLICY
        else f"the rule `{rule.id}`{_only_where(rule)}"
    )
    say(("yes", "bold red"), f": `{who}` sees {what} by {by}{once}, for example of")
    seen = view(example_state(policy.state, answer), who, event, policy.predicates, event.origin)
    visible = frozenset() if seen is None else seen.attributes
    say(f"  a `{event.type}` published by `{event.publisher or 'anyone'}`")
    marks = {True: Text("seen", "red"), False: Text("hidden", "dim")}
    rows = (
        (f"    {name}", rendering.show_constant(value), marks[name in visible]) for name, value in event.values.items()
    )
    show_table(("", "", ""), rows)


def _once(now: Mapping[str, Value], answer: Sight) -> str:
    """What someone must come to have or to lose, and to hold; nothing if it sees it as it is."""
    then = answer.attributes
    held = f", once it holds {' and '.join(f'`{render_role(one)}`' for one in answer.roles)}" if answer.roles else ""
    gained = [
        f"{name} = {rendering.show_constant(v)}"
        for name, v in then.items()
        if name not in now or not same(now[name], v)
    ]
    lost = [f"no {name}" for name in now if name not in then]
    return (f", once it has {', '.join([*gained, *lost])}" if gained or lost else "") + held


def _only_where(rule: Rule) -> str:
    return "" if rule.where == TRUE else f" (where {rendering.show_condition(rule.where)})"


@dataclass(frozen=True, slots=True)
class Warned:
    """Something odd about the policy, and that in words."""

    concern: Concern | Literal["asked-for"]
    names: tuple[str, ...]
    words: str


def warned(found: Iterable[Advice], *states: State) -> tuple[Warned, ...]:
    """Everything that is odd, with its words; `states` know the groups."""
    return tuple(Warned(one.concern, one.names, _words(one, *states)) for one in found)


def whom(who: Sequence[str], *states: State) -> str:
    """Principals in a few words: by name if they are few, by their group if they have one, or by number."""
    if len(who) <= _FEW:
        return names(who)
    members = frozenset(who)
    for state in states:
        inside = [(len(found), group) for group in state.groups if members <= (found := state.members_of(group))]
        if inside:
            size, group = min(inside)
            return f"the {size:,} members of `{group}`" if size == len(who) else f"{len(who):,} members of `{group}`"
    return f"{names(who[:2])} and {len(who) - 2:,} more"


def _words(advice: Advice, *states: State) -> str:
    rules, people, many = _some(advice.names), whom(advice.names, *states), len(advice.names) > 1
    match advice.concern:
        case Concern.IDLE_FORBID:
            return f"the forbid {rules} takes nothing away: those it speaks to have no right that it would limit"
        case Concern.IDLE_GRANT:
            return f"the grant {rules} gives nothing: rules before it decide all it speaks of, or it is never true"
        case Concern.EMPTY_GROUP:
            valued = any(state.groups.get(advice.group or "") for state in states)
            members = "principals as members" if valued else "members"
            return f"`{advice.group}` has no {members}, so {rules} {'speak' if many else 'speaks'} to nobody"
        case Concern.VALUES:
            are = "are no principals: they count as values" if many else "is no principal: it counts as a value"
            return f"{rules} in `{advice.group}` {are}, and no rule speaks to {'them' if many else 'it'}"
        case Concern.NO_KEY:
            return f"{people} {'have' if many else 'has'} no key, and cannot connect"
        case Concern.NOT_LET_IN:
            return f"{people} {'have' if many else 'has'} a key, but no rule lets {'them' if many else 'it'} connect"
        case Concern.NO_ROLE:
            return f"{rules} {'ask' if many else 'asks'} for `{_role(advice)}`, and no service here has such a role"
        case Concern.UNATTESTED:
            who = people if advice.role is None else f"by {rules}, whoever holds `{_role(advice)}`"
            return f"{who} could publish without an identity statement; `attested: true` in a rule asks for one"
        case Concern.AVOIDABLE:
            return f"{rules} forbids by `{_role(advice)}`, and whoever holds that need not count it for a subscription"
        case Concern.NOTHING_OF_IT:
            return f"{rules} gives no attribute: whoever it is for sees that the event happened, and nothing of it"
        case Concern.MORE_READERS:
            return (
                f"{people} may read `{advice.type}`, which detections publish, but not all that it is made of; "
                "`derived: contributors` in the type asks for that, `derived: declassified` for the word of its owners"
            )
        case Concern.NOT_DECLASSIFIED:
            return (
                f"{people} {'are' if many else 'is'} not declassified for `{advice.type}`, which a detection publishes "
                "of that; its events are refused"
            )


def named_by_entrants(state: State) -> tuple[Warned, ...]:
    """Arguments of roles that whoever enters them names as it likes."""
    return tuple(
        Warned("asked-for", (service,), f"rolefile of `{service}`, line {one.line}: {one.message}; {one.remedy}")
        for service, rolefile in state.roles.rolefiles.items()
        for one in asked_for(rolefile, relation_columns(state))
    )


def _role(one: Advice) -> str:
    return "" if one.role is None else render_role(one.role)


app = group(plan, apply, check)
