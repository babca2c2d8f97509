"""`headgate acl`: access control lists as rules, rules as lists, and what a list gives (OASIS 3.3.3, 5.4.4).

Guarantees: changes nothing. Rules that are printed decide what the list does; a list that is printed gives what the
rules do; what cannot be said in the other form is refused.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from headgate.cli.shared.common import data_directory, group, read_bytes
from headgate.cli.shared.options import DomainOption, Json, argument, option
from headgate.cli.shared.rendering import print_json, say
from headgate.decide.views import named_type
from headgate.lang.acl import LETTERS, Acl, acl_of, ordered, parse_acl, parse_unix, render_acl, rules_of, unix_rights
from headgate.ledger import Ledger
from headgate.model.errors import BadDefinition, BadExpression, UnknownType
from headgate.model.limits import MAX_ACL_CHARS
from headgate.model.rights import Action, Effect, Rule
from headgate.model.state import State
from headgate.model.types import check_type_name
from headgate.model.values import brief
from headgate.pipeline.paths import Paths

LettersOption = Annotated[
    str, option("--letters r=ACTION,...", "Which action each right is.", unset="r=subscribe,w=publish")
]
UnixOption = Annotated[
    bool, option("--unix", "The list is one of Unix: the most closely binding entry counts, whatever order.")
]
GroupOption = Annotated[list[str] | None, option("--group NAME", "A name that is a group; may be repeated.")]


def import_(
    file: Annotated[Path, argument("FILE", "The list; `-` is standard input.")],
    type_name: Annotated[str, option("--type TYPE", "The event type that the rules are for.")],
    letters: LettersOption = "",
    anyone: Annotated[str | None, option("--anyone GROUP", "The group that `*` and Unix's `other` stand for.")] = None,
    prefix: Annotated[str, option("--prefix NAME", "How the ids of the rules begin.")] = "acl",
    unix: UnixOption = False,
    group: GroupOption = None,
) -> None:
    """Print rules that decide what an access control list does, as YAML for a policy directory.

    A list is one of `+bob=rw -student=w +student=r`, of `Bob(Read/Write), -student(Write)`, or with `--unix` of
    `rjh21=rwx staff=r-x other=r--`. Lines that begin with `#` are left out.

    For example:

    `headgate acl import notices.acl --type college.Notice`

    `headgate acl import file.acl --type college.Notice --unix --group staff --anyone everyone --letters r=subscribe`

    Exit status: 0, or 2 if the list is refused, or rules cannot say it.
    """
    check_type_name(type_name)
    text = _read(file)
    listed = ordered(parse_unix(text), frozenset(group or ())) if unix else parse_acl(text)
    print(_yaml(rules_of(listed, type_name, _letters(letters), anyone=anyone, prefix=prefix)))


def export(
    type_name: Annotated[str, option("--type TYPE", "The event type.")],
    domain: DomainOption,
    letters: LettersOption = "",
) -> None:
    """Print the rules on an event type as an ordered access control list.

    For example:

    `headgate acl export --type college.Notice --domain DIR`

    Exit status: 0, or 2 if a rule says what no list can: a condition, attributes, a role.
    """
    state = _state(domain)
    if type_name not in state.types:
        raise UnknownType(f"no event type `{brief(type_name)}`", remedy="`headgate versions` shows the types")
    say(render_acl(exported(state, type_name, _letters(letters))))


def exported(state: State, type_name: str, letters: Mapping[str, Action]) -> Acl:
    """The list that decides what the rules of a state do on a type, by whoever wrote them."""
    rules: list[Rule] = []
    for rule in state.rules:
        reached = {
            action: named_type(state, rule, action, type_name) for action in rule.actions & set(letters.values())
        }
        named = {name for name in reached.values() if name is not None}
        if not named:
            continue
        if named != {type_name}:
            message = f"the rule `{rule.id}` is on `{min(named - {type_name})}`, the parent of `{type_name}`"
            raise BadDefinition(message, remedy="it gives some attributes only, which no access control list can say")
        rules.append(rule)
    policy = [one for one in state.roles.policy.entries if one.event.type in state.types.lineage(type_name)]
    if policy and Action.SUBSCRIBE in letters.values():
        raise BadDefinition(f"event policy speaks of `{type_name}`, which no access control list can say")
    return acl_of(rules, letters)


def show(
    text: Annotated[str, argument("LIST", "The list itself.")],
    user: Annotated[str, option("--user NAME", "Whose rights.")],
    domain: Annotated[Path | None, option("--domain DIR", "The domain whose groups count.", unset="none")] = None,
    unix: UnixOption = False,
    group: Annotated[list[str] | None, option("--group NAME", "A group that the user is in; may be repeated.")] = None,
    json: Json = False,
) -> None:
    """Show what an access control list gives a user, and which entries say so.

    For example:

    `headgate acl show '+bob=rw -student=w +student=r' --user bob --group student`

    `headgate acl show 'rjh21=rwx staff=r-x other=r--' --unix --user rjh21 --domain DIR`

    Exit status: 0, or 2 if the list is refused.
    """
    state = State() if domain is None else _state(domain)
    inside = state.groups_of(user) | frozenset(group or ())
    listed = parse_unix(text) if unix else parse_acl(text)
    groups = frozenset(state.groups) | frozenset(group or ())
    rights = unix_rights(listed, user, groups, inside) if unix else listed.rights(inside | {user})
    looked_at = (ordered(listed, groups) if unix else listed).entries
    steps = [one for one in looked_at if one.who in inside | {user, "*"}]
    shown = "".join(sorted(rights))
    if json:
        print_json({"user": user, "rights": shown, "entries": [render_acl(Acl((one,))) for one in steps]})
        return
    say(f"{user} has ", (shown or "no rights", "bold"))
    for at, entry in enumerate(steps):
        before, after = (Acl(tuple(steps[:end])).rights(inside | {user}) for end in (at, at + 1))
        does = f"gives {''.join(sorted(after - before)) or 'nothing more'}"
        if entry.negative:
            does = f"bars {''.join(sorted(entry.rights))}"
        say(f"  {render_acl(Acl((entry,)))}: {does}")


def _letters(text: str) -> Mapping[str, Action]:
    """`r=subscribe,w=publish`."""
    if not text:
        return LETTERS
    known = {action.value: action for action in Action}
    letters: dict[str, Action] = {}
    for pair in text.split(","):
        letter, _, name = pair.strip().partition("=")
        if name not in known or letter in letters:
            raise BadExpression(f"`{brief(pair)}` is not `letter=action`", remedy=f"actions: {', '.join(known)}")
        letters[letter] = known[name]
    return letters


def _read(file: Path) -> str:
    try:
        text = read_bytes(file, 4 * MAX_ACL_CHARS).decode("utf-8")
    except UnicodeDecodeError:
        raise BadExpression(f"`{file}` is not text in UTF-8") from None
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _state(domain: Path) -> State:
    with Ledger.open(Paths(data_directory(domain)).ledger) as ledger:
        return ledger.state()


def _yaml(rules: tuple[Rule, ...]) -> str:
    """Rules as a policy directory has them; names as JSON writes them, which YAML reads."""
    quoted = jsonlib.dumps
    lines = ["headgate: 1", "policy:" if rules else "policy: []"]
    for rule in rules:
        may = ", ".join(sorted(action.value for action in rule.actions))
        effect = ", effect: forbid" if rule.effect is Effect.FORBID else ""
        said = f"id: {quoted(rule.id)}, who: {quoted(rule.who)}, may: [{may}], type: {quoted(rule.type)}{effect}"
        lines.append(f"  - {{{said}}}")
    return "\n".join(lines)


app = group(import_, export, show)
