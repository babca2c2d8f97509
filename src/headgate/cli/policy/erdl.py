"""`headgate erdl`: event policy, checked, and in the stages in which it is worked through (OASIS 7.4, figure 7.1).

Guarantees: changes nothing. What is explained is the policy as a ledger would keep it. Where only a file of entries is
given, types, groups and relations are taken to be as it uses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from headgate.analysis.stages import (
    Stages,
    render_acceptance,
    render_clause,
    render_client,
    render_literal,
    render_stages,
    stages,
)
from headgate.cli.policy.role_check import (
    EVENTS,
    CheckGround,
    DomainOption,
    Json,
    PolicyOption,
    StrictOption,
    check_files,
    ground_of,
    state_of,
    tell,
)
from headgate.cli.shared.common import shows_errors
from headgate.cli.shared.rendering import check_text, print_json, say
from headgate.cli.shared.run_python import RunPython
from headgate.decide.event_policy import type_named
from headgate.lang.render import render_entry
from headgate.lang.rolefile import parse_event_policy
from headgate.model.changes import Batch, Change, DeclareGroup, DeclareRelation, DeclareType, SetEventPolicy
from headgate.model.conditions import InGroup, Variable
from headgate.model.errors import HeadgateError, NotFound
from headgate.model.limits import MAX_ROLEFILE_CHARS
from headgate.model.rolefiles import EventPolicy
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.pipeline.index.predicates import Allowed
from headgate.roles.requests.transition import next_state
from headgate.roles.rolefiles.names import called, leaves
from headgate.scenario.format.file import load

app = typer.Typer(
    help="Check event policy, and see how it is worked through.", no_args_is_help=True, rich_markup_mode="markdown"
)

_FUNCTIONS: Final = frozenset({"unixacl", "acl"})


def explain(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="Event policy (`*.erdl`), or a scenario.", show_default="the policy's or domain's"
        ),
    ] = None,
    policy: PolicyOption = None,
    domain: DomainOption = None,
    type_name: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Only of this type.", show_default="all it speaks of")
    ] = None,
    json: Json = False,
) -> None:
    """Show the stages of event policy: the entries, the acceptance function, and its client and event expressions.

    Client expressions are worked out once at registration, event expressions once an event, and only the mixed terms
    for each pair.

    For example:

    `headgate erdl explain badges.erdl`

    `headgate erdl explain --policy policy --type badge.Seen`

    `headgate erdl explain --domain /srv/headgate`
    """
    check_text(type_name, str(file or ""))
    state = _state(file, policy, domain)
    explanations = [stages(state, name) for name in _types(state, type_name)]
    if json:
        print_json([_facts(one) for one in explanations])
        return
    if not explanations:
        say("there is no event policy")
    for number, explanation in enumerate(explanations):
        if number:
            say()
        say((explanation.type, "bold"))
        say(render_stages(explanation))


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files `*.erdl`, scenarios, or a directory.")],
    policy: PolicyOption = None,
    domain: DomainOption = None,
    strict: StrictOption = False,
    run_python: RunPython = False,
    json: Json = False,
) -> None:
    """Check event policy: names, entries that never apply, and negative ones that a client can avoid.

    For example:

    `headgate erdl check badges.erdl`

    `headgate erdl check badges.erdl --policy policy --strict`

    Exit status: 0 without errors, 1 with errors, or with `--strict` and warnings; 2 if there is nothing to check.
    """
    tell(check_files(files, ground_of(policy, domain, run_python), "events"), strict=strict, json=json)


# -- what is explained ----------------------------------------------------------------------------------------


def _state(file: Path | None, policy: Path | None, domain: Path | None) -> State:
    ground = ground_of(policy, domain)
    if file is None:
        if ground.state is None:
            raise typer.BadParameter("name a FILE, or --policy DIR, or --domain DIR")
        return ground.state
    if file.suffix in (".yaml", ".yml") and ground.state is None:
        return state_of(load(file, Allowed()))
    if file.suffix != EVENTS:
        raise NotFound(f"`{file}` is no event policy", remedy="it ends in .erdl, or it is a scenario")
    said = _read(file)
    return _taken(said, ground, str(file))


def _read(file: Path) -> EventPolicy:
    try:
        with file.open("rb") as opened:
            raw = opened.read(4 * MAX_ROLEFILE_CHARS + 1)
    except OSError as error:
        raise NotFound(f"`{file}` cannot be read ({error.strerror})") from None
    try:
        return parse_event_policy(raw.decode("utf-8", "replace"))
    except HeadgateError as error:
        raise error.at(str(file)) from None


def _taken(policy: EventPolicy, ground: CheckGround, place: str) -> State:
    """A state with this event policy, over a policy or over what it uses itself."""
    state = State(administrator=ADMINISTRATOR) if ground.state is None else ground.state
    needed = tuple(_needed(policy)) if ground.state is None else ()
    try:
        return next_state(state, Batch(state.administrator, (*needed, SetEventPolicy(policy))), ground.functions)
    except HeadgateError as error:
        raise error.at(place) from None


def _needed(policy: EventPolicy) -> Iterator[Change]:
    """The types, groups and relations that a policy uses."""
    attributes: dict[str, list[str]] = {}
    groups: dict[str, None] = {}
    relations: dict[str, None] = {}
    for entry in policy.entries:
        known = attributes.setdefault(entry.event.type, [])
        for term in entry.event.args[len(known) :]:
            name = term.name if isinstance(term, Variable) and term.name not in (*known, "_") else ""
            known.append(name or f"parameter_{len(known) + 1}")
        for leaf, _ in leaves(entry.constraint):
            groups |= {leaf.group: None} if isinstance(leaf, InGroup) else {}
            relations |= dict.fromkeys(called(leaf))
    for type_name, names in attributes.items():
        yield DeclareType(EventType(type_name, ADMINISTRATOR, dict.fromkeys(names, Kind.STRING)))
    yield from map(DeclareGroup, groups)
    yield from (DeclareRelation(name) for name in relations if name not in _FUNCTIONS)


def _types(state: State, wanted: str | None) -> list[str]:
    """The type that is asked about, or all that entries name."""
    if wanted is not None:
        return [type_named(state.types, wanted)]
    return list(dict.fromkeys(entry.event.type for entry in state.roles.policy.entries))


def _facts(explanation: Stages) -> dict[str, object]:
    return {
        "type": explanation.type,
        "entries": [render_entry(each) for each in explanation.entries],
        "acceptance": [render_acceptance(each) for each in explanation.acceptance],
        "clients": [render_client(each) for each in explanation.clients],
        "events": [render_literal(each) for each in explanation.events],
        "clauses": None if explanation.clauses is None else [render_clause(each) for each in explanation.clauses],
    }


app.command("explain")(shows_errors(explain))
app.command("check")(shows_errors(check))
