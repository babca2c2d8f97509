"""`headgate role check` and `headgate erdl`: what is wrong with rolefiles and event policy, before they count.

Event policy is also shown in the stages in which it is worked through, as a ledger would keep it (OASIS 7.4, figure
7.1). Where only a file of entries is given, types, groups and relations are taken to be as it uses them.

Guarantees: changes nothing. Every finding has its file and line. Errors are what a ledger would refuse; what cannot be
read at all is an error too, and what was found before it is still told. A file on its own is checked as far as it goes:
groups, relations and types are known only from a policy, a scenario or a domain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, NoReturn, TypeAlias

import typer
from rich.text import Text

from headgate.analysis import stages as st
from headgate.cli.shared.common import data_directory, group, placed, read_bytes
from headgate.cli.shared.options import Json, RunPython, argument, option
from headgate.cli.shared.rendering import count_of, print_json, say, say_not_run, show_table
from headgate.decide.constraints import RoleFunction, is_monitored
from headgate.decide.event_policy import parameters, type_named
from headgate.decide.truth import NotRun
from headgate.lang.render import render_entry
from headgate.lang.rolefile import parse_event_policy, parse_rolefile
from headgate.model.changes import Batch, Change, DeclareGroup, DeclareRelation, DeclareType, SetEventPolicy
from headgate.model.errors import BadScenario, HeadgateError, NotFound
from headgate.model.expressions import InGroup, Variable
from headgate.model.limits import MAX_ROLEFILE_CHARS
from headgate.model.rolefiles import EventPolicy, Rolefile
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.pipeline.index.predicates import Allowed
from headgate.roles.requests.transition import next_state
from headgate.roles.rolefiles.checking import check_event_policy, check_rolefile, relation_columns, settle_rolefile
from headgate.roles.rolefiles.kinds import parameter_kinds
from headgate.roles.rolefiles.names import Finding, called, leaves
from headgate.scenario.format.file import load
from headgate.scenario.format.policy import MAX_FILES, read_policy
from headgate.scenario.format.story import Scenario
from headgate.scenario.format.yamlfile import SourcePlace, YamlNode, load_yaml

ROLES: Final = ".roles"
EVENTS: Final = ".erdl"
_YAML: Final = (".yaml", ".yml")
_LINE: Final = re.compile(r"\bline ([1-9][0-9]{0,8})\b")
_COLUMN: Final = re.compile(r"\bcolumn [1-9][0-9]{0,8}\b")
_STYLES: Final = {"error": "bold red", "warning": "yellow"}

TextKind: TypeAlias = Literal["roles", "events"]

Files = Annotated[
    list[Path], argument("FILE...", "Files `*.roles` and `*.erdl`, scenario files, or a policy directory.")
]
PolicyOption = Annotated[Path | None, option("--policy DIR", "A policy directory whose names the files may use.")]
NamesDomain = Annotated[Path | None, option("--domain DIR", "A domain whose names the files may use.")]


@dataclass(frozen=True, slots=True)
class LocatedFinding:
    """A finding and where it is."""

    file: str
    line: int
    severity: Literal["error", "warning"]
    code: str
    message: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class WrittenPolicy:
    """The text of a rolefile or an event policy, and where it stands."""

    kind: TextKind
    service: str
    text: str
    place: SourcePlace

    def at(self, line: int) -> tuple[str, int]:
        """The file and the line in it of a line of the text."""
        said = self.place.inside(f"line {line}").removeprefix(f"{self.place.file}:")
        found = re.match(r"[0-9]+", said)
        return self.place.file, self.place.line if found is None else int(found[0])


@dataclass(frozen=True, slots=True)
class CheckGround:
    """What names may mean; without a state, only what the files themselves say is known."""

    state: State | None = None
    functions: Mapping[str, RoleFunction] = field(default_factory=dict)
    run_python: bool = False
    """May modules beside the files run?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checking:
    """How files are checked; each field is an option of both commands that do."""

    policy: PolicyOption = None
    domain: NamesDomain = None
    strict: Annotated[bool, option("--strict", "Leave with 1 if there are warnings, too.")] = False
    run_python: RunPython = False
    json: Json = False

    def tell(self, files: Sequence[Path], events_only: bool = False) -> NoReturn:
        """Show what is found, and leave with the status that it comes to."""
        findings = check_files(files, ground_of(self.policy, self.domain, self.run_python), events_only)
        print_json(findings) if self.json else _show(findings)
        raise typer.Exit(int(any(one.severity == "error" or self.strict for one in findings)))


def check(files: Files, *, checking: Checking) -> None:
    """Check rolefiles and event policy: names, types, statements that never apply, and which of two wins.

    A file `Conf.roles` is the rolefile of the service `Conf`. With `--policy` or `--domain`, its groups, relations,
    types and other rolefiles are known. No Python that stands beside the files runs unless `--run-python` is given:
    functions of a service are then known by name alone.

    For example:

    `headgate role check Conf.roles`

    `headgate role check policy --strict`

    `headgate role check Conf.roles Login.roles badges.erdl --domain /srv/headgate`

    Exit status: 0 without errors, 1 with errors, or with `--strict` and warnings; 2 if there is nothing to check.
    """
    checking.tell(files)


# -- what is checked ------------------------------------------------------------------------------------------


def check_files(paths: Sequence[Path], ground: CheckGround, events_only: bool = False) -> list[LocatedFinding]:
    """What is wrong with these files: those of roles and event policy together, directories and scenarios each."""
    findings: list[LocatedFinding] = []
    loose = [path for path in paths if not path.is_dir() and path.suffix in (ROLES, EVENTS)]
    written, unread = _texts(loose)
    findings += [*unread, *_checked(written, ground, events_only)]
    for path in paths:
        if path in loose:
            continue
        if not path.is_dir() and path.suffix not in _YAML:
            raise NotFound(f"`{path}` is neither a rolefile nor event policy", remedy="they end in .roles and .erdl")
        texts, unread = _texts(_inside(path) if path.is_dir() else [path])
        own, refused = _own_ground(path, ground.run_python)
        told = [*unread, *_checked(texts, own, events_only)]
        known = any(one.severity == "error" for one in told)
        findings += told if refused is None or known else [*told, refused]
    return sorted(findings, key=lambda one: (one.file, one.severity != "error", one.line))


def ground_of(policy: Path | None, domain: Path | None, run_python: bool = False) -> CheckGround:
    """What the names of `--policy` or `--domain` mean."""
    if policy is not None and domain is not None:
        raise typer.BadParameter("--policy and --domain exclude each other")
    if policy is not None:
        read = read_policy(policy, ADMINISTRATOR, Allowed(run_python))
        return _known(read.state, read.functions, run_python)
    if domain is None:
        return CheckGround(run_python=run_python)
    from headgate.node.domain import Domain

    with Domain.open(data_directory(domain)) as opened:
        state = opened.ledger.state()
        return CheckGround(state, opened.functions(state), run_python)


def _known(state: State, functions: Mapping[str, RoleFunction], run_python: bool) -> CheckGround:
    """What names mean; it is said of which functions nothing but the name is known."""
    say_not_run([name for name, one in functions.items() if isinstance(one, NotRun)])
    return CheckGround(state, functions, run_python)


def _own_ground(path: Path, run_python: bool) -> tuple[CheckGround, LocatedFinding | None]:
    """What a policy directory or a scenario says that names mean, or why it is refused."""
    try:
        if path.is_dir():
            read = read_policy(path, ADMINISTRATOR, Allowed(run_python))
            return _known(read.state, read.functions, run_python), None
        story = load(path, Allowed(run_python))
        return _known(state_of(story), story.functions, run_python), None
    except HeadgateError as error:
        return CheckGround(), _refused(str(path), error)


def state_of(story: Scenario) -> State:
    """The state at the beginning of a scenario."""
    return next_state(State(administrator=story.policy.author), story.policy, story.functions)


def _refused(file: str, error: HeadgateError) -> LocatedFinding:
    """A refusal as a finding; its own place is told where it has one."""
    place, line = re.match(r"(.+?):([0-9]+)\b", error.place or ""), _LINE.search(error.place or "")
    at = (place[1], int(place[2])) if place else (file, int(line[1]) if line else 1)
    return LocatedFinding(*at, "error", error.code, error.message, error.remedy)


def _inside(directory: Path) -> list[Path]:
    """The files of a policy directory, as `policy` reads them."""
    inner = sorted(one for one in directory.iterdir() if not one.name.startswith("."))
    below = [one for folder in inner if folder.is_dir() for one in sorted(folder.iterdir())]
    files = [one for one in (*inner, *below) if one.is_file() and one.suffix in (*_YAML, ROLES, EVENTS)]
    if len(files) > MAX_FILES:
        raise BadScenario(f"more than MAX_FILES ({MAX_FILES}) files", place=str(directory))
    return files


def _texts(paths: Sequence[Path]) -> tuple[list[WrittenPolicy], list[LocatedFinding]]:
    """The texts of these files, and which of them cannot be read."""
    texts: list[WrittenPolicy] = []
    unread: list[LocatedFinding] = []
    for path in paths:
        try:
            texts += _in_yaml(path) if path.suffix in _YAML else [_alone(path)]
        except HeadgateError as error:
            unread.append(_refused(str(path), error))
    return texts, unread


def _alone(path: Path) -> WrittenPolicy:
    most = 4 * MAX_ROLEFILE_CHARS
    raw = read_bytes(path, most)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BadScenario("the file is not text in UTF-8", place=f"{path}:1") from None
    if len(raw) > most:
        raise BadScenario(f"the file is longer than {most} bytes", place=f"{path}:1")
    kind: TextKind = "roles" if path.suffix == ROLES else "events"
    return WrittenPolicy(kind, path.stem, text, SourcePlace(str(path), 1, text=1))


def _in_yaml(path: Path) -> Iterator[WrittenPolicy]:
    top = load_yaml(path).data
    if not isinstance(top, dict):
        return
    roles, events = top.get("roles"), top.get("events")
    if isinstance(roles, YamlNode):
        for service, node in roles.mapping().items():
            yield WrittenPolicy("roles", service, node.text(), node.place)
    if isinstance(events, YamlNode):
        yield WrittenPolicy("events", "", events.text(), events.place)


# -- checking -------------------------------------------------------------------------------------------------


def _checked(written: Sequence[WrittenPolicy], ground: CheckGround, events_only: bool) -> Iterator[LocatedFinding]:
    """The findings of texts that know each other."""
    rolefiles: dict[str, Rolefile] = {} if ground.state is None else dict(ground.state.roles.rolefiles)
    parsed: list[tuple[WrittenPolicy, Rolefile | EventPolicy]] = []
    for source in written:
        try:
            policy = parse_rolefile(source.text) if source.kind == "roles" else parse_event_policy(source.text)
        except HeadgateError as error:
            yield _unread(source, error)
            continue
        parsed.append((source, policy))
        if isinstance(policy, Rolefile):
            rolefiles[source.service] = policy
    for source, policy in parsed:
        if isinstance(policy, EventPolicy):
            yield from _placed(source, _check_events(policy, rolefiles, ground))
        elif not events_only:
            yield from _placed(source, _check_roles(policy, source.service, rolefiles, ground))


def _unread(source: WrittenPolicy, error: HeadgateError) -> LocatedFinding:
    """Why a text cannot be read, and where in its file."""
    line, column = _LINE.search(error.place or ""), _COLUMN.search(error.place or "")
    file, at = source.at(int(line[1]) if line else 1)
    where = f"{column[0]}: " if column else ""
    return LocatedFinding(file, at, "error", error.code, f"{where}{error.message}", error.remedy)


def _placed(one: WrittenPolicy, findings: Sequence[Finding]) -> Iterator[LocatedFinding]:
    for said in findings:
        file, line = one.at(max(said.line, 1))
        yield LocatedFinding(file, line, said.severity, said.code, said.message, said.remedy)


def _check_roles(
    rolefile: Rolefile, service: str, rolefiles: Mapping[str, Rolefile], ground: CheckGround
) -> list[Finding]:
    state = ground.state
    if state is None:
        return check_rolefile(rolefile, service=service, known=rolefiles.get)
    functions = ground.functions
    return check_rolefile(
        settle_rolefile(rolefile, state, rolefiles, functions),
        service=service,
        known=rolefiles.get,
        groups=frozenset(state.groups),
        relations=relation_columns(state),
        functions=functions.keys(),
        entry_only=[name for name, one in functions.items() if not is_monitored(one)],
    )


def _check_events(policy: EventPolicy, rolefiles: Mapping[str, Rolefile], ground: CheckGround) -> list[Finding]:
    services: dict[str, Rolefile | None] = {
        ref.service: None for entry in policy.entries for ref in entry.credentials if ref.service is not None
    }
    services |= rolefiles
    state = ground.state
    if state is None:
        longest: dict[str, int] = {}
        for entry in policy.entries:
            longest[entry.event.type] = max(longest.get(entry.event.type, 0), len(entry.event.args))
        types = {name: tuple(f"parameter {n + 1}" for n in range(count)) for name, count in longest.items()}
        return check_event_policy(policy, types=types, services=services if rolefiles else None)
    return check_event_policy(
        policy,
        types={name: tuple(one for one, _ in parameters(state, name)) for name in state.types},
        services=services,
        groups=frozenset(state.groups),
        relations=relation_columns(state),
        kinds={name: parameter_kinds(state, name) for name in state.types},
    )


# -- on the screen --------------------------------------------------------------------------------------------


def _show(findings: Sequence[LocatedFinding]) -> None:
    if not findings:
        say(("nothing found", "bold green"))
        return
    for file in dict.fromkeys(one.file for one in findings):
        say((file, "bold"))
        rows = (
            (
                str(one.line),
                Text(one.severity, _STYLES[one.severity]),
                f"{one.message} [{one.code}]" + (f"\n{one.remedy}" if one.remedy else ""),
            )
            for one in findings
            if one.file == file
        )
        show_table(("line", "", "what"), rows)
    errors = sum(one.severity == "error" for one in findings)
    say(f"{count_of(errors, 'error')}, {count_of(len(findings) - errors, 'warning')}")


_FUNCTIONS: Final = frozenset({"unixacl", "acl"})


def explain_events(
    file: Annotated[
        Path | None, argument("[FILE]", "Event policy (`*.erdl`), or a scenario.", unset="the policy's or domain's")
    ] = None,
    policy: PolicyOption = None,
    domain: NamesDomain = None,
    type_name: Annotated[str | None, option("--type TYPE", "Only of this type.", unset="all it speaks of")] = None,
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
    state = _state(file, policy, domain)
    explanations = [st.stages(state, name) for name in _types(state, type_name)]
    if json:
        print_json([_facts(one) for one in explanations])
        return
    if not explanations:
        say("there is no event policy")
    for number, explanation in enumerate(explanations):
        if number:
            say()
        say((explanation.type, "bold"))
        say(st.render_stages(explanation))


def check_events(
    files: Annotated[list[Path], argument("FILE...", "Files `*.erdl`, scenarios, or a directory.")],
    *,
    checking: Checking,
) -> None:
    """Check event policy: names, entries that never apply, and negative ones that a client can avoid.

    For example:

    `headgate erdl check badges.erdl`

    `headgate erdl check badges.erdl --policy policy --strict`

    Exit status: 0 without errors, 1 with errors, or with `--strict` and warnings; 2 if there is nothing to check.
    """
    checking.tell(files, events_only=True)


# -- what is explained ----------------------------------------------------------------------------------------


def _state(file: Path | None, policy: Path | None, domain: Path | None) -> State:
    ground = ground_of(policy, domain)
    if file is None:
        if ground.state is None:
            raise typer.BadParameter("name a FILE, or --policy DIR, or --domain DIR")
        return ground.state
    if file.suffix in _YAML and ground.state is None:
        return state_of(load(file, Allowed()))
    if file.suffix != EVENTS:
        raise NotFound(f"`{file}` is no event policy", remedy="it ends in .erdl, or it is a scenario")
    state = State(administrator=ADMINISTRATOR) if ground.state is None else ground.state
    with placed(str(file)):
        events = parse_event_policy(_alone(file).text)
        needed = tuple(_needed(events)) if ground.state is None else ()
        return next_state(state, Batch(state.administrator, (*needed, SetEventPolicy(events))), ground.functions)


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


def _facts(explanation: st.Stages) -> dict[str, object]:
    return {
        "type": explanation.type,
        "entries": [render_entry(each) for each in explanation.entries],
        "acceptance": [st.render_acceptance(each) for each in explanation.acceptance],
        "clients": [st.render_client(each) for each in explanation.clients],
        "events": [st.render_literal(each) for each in explanation.events],
        "clauses": None if explanation.clauses is None else [st.render_clause(each) for each in explanation.clauses],
    }


erdl = group(explain=explain_events, check=check_events)
