"""Access control lists: from a user to a set of rights, and to and from rules (OASIS 3.3.3, 5.4.4).

Guarantees: of an ordered list, each entry that means the user is looked at in turn; a negative one takes rights from
what later entries can give, a positive one gives what is left of its rights. So for each right the first entry that
names it decides, as with rules (D5), and the rules made of a list decide what the list does. A Unix list gives the
rights of the most closely binding entry: the user's own, else all of its groups', else `other`'s; it can be written as
an ordered list that gives the same. What the other form cannot say is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from headgate.model.errors import BadDefinition, BadExpression
from headgate.model.expressions import TRUE, Argument
from headgate.model.limits import MAX_ACL_CHARS, MAX_ACL_ENTRIES
from headgate.model.rights import Action, Effect, Rule, Source
from headgate.model.state import State
from headgate.model.values import brief

ANYONE: Final = "*"
"""Whoever it is, in an ordered list."""

OTHER: Final = "other"
"""Whoever has no entry, in a Unix list."""

_WORDS: Final = {"read": "r", "write": "w", "execute": "x", "append": "a", "delete": "d", "lookup": "l", "create": "c"}
"""Rights that are written as words: `Bob(Read/Write)`."""

_NAME: Final = r"[^\s,=()+-][^\s,=()]*"
_ENTRY: Final = re.compile(rf"([+-]?)({_NAME})(?:=([A-Za-z-]*)|\(([A-Za-z/ ]*)\))(?=[\s,]|\Z)")
_BETWEEN: Final = re.compile(r"\s*,?\s*")


@dataclass(frozen=True, slots=True)
class AclEntry:
    """`+bob=rw`, `-students=w`: a principal or a group, or `*` for anyone, and rights as letters."""

    who: str
    rights: frozenset[str]
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Acl:
    """The entries, in order."""

    entries: tuple[AclEntry, ...] = ()

    def rights(self, whom: Container[str]) -> frozenset[str]:
        """The rights of someone who goes by these names: its own, and those of its groups."""
        granted: frozenset[str] = frozenset()
        barred: frozenset[str] = frozenset()  # all but the rights that are still possible
        for entry in self.entries:
            if entry.who != ANYONE and entry.who not in whom:
                continue
            if entry.negative:
                barred |= entry.rights
            else:
                granted |= entry.rights - barred
        return granted

    @property
    def letters(self) -> frozenset[str]:
        """Every right that it names."""
        return frozenset().union(*(one.rights for one in self.entries))


# -- text -----------------------------------------------------------------------------------------------------


def parse_acl(text: str) -> Acl:
    """The list that a text says: `+bob=rw -student=w student=r`, or `Bob(Read/Write), -student(Write)`."""
    if len(text) > MAX_ACL_CHARS:
        raise BadExpression(f"the list is longer than MAX_ACL_CHARS ({MAX_ACL_CHARS})")
    entries: list[AclEntry] = []
    at = len(text) - len(text.lstrip())
    end = len(text.rstrip())
    while at < end:
        entry = _ENTRY.match(text, at, end)
        if entry is None:
            word = text[at:end].split(maxsplit=1)[0]
            raise BadExpression(
                f"`{brief(word)}` is no entry of an access control list",
                place=f"column {at + 1}",
                remedy="write `rjh21=rw`, `-students=w` or `Bob(Read/Write)`",
            )
        if len(entries) >= MAX_ACL_ENTRIES:
            raise BadExpression(f"the list has more than MAX_ACL_ENTRIES ({MAX_ACL_ENTRIES}) entries")
        sign, who, letters, words = entry.groups()
        rights = frozenset(letters) - {"-"} if words is None else frozenset(_letters(words, at))
        entries.append(AclEntry(who, rights, sign == "-"))
        between = _BETWEEN.match(text, entry.end(), end)
        at = entry.end() if between is None else between.end()
    return Acl(tuple(entries))


def _letters(words: str, at: int) -> Iterator[str]:
    for word in words.split("/") if words.strip() else ():
        plain = word.strip()
        letter = plain if len(plain) == 1 else _WORDS.get(plain.lower())
        if letter is None:
            known = ", ".join(f"`{one.capitalize()}`" for one in _WORDS)
            remedy = f"known rights: {known}; or write a letter"
            raise BadExpression(f"`{brief(plain)}` is no right", place=f"column {at + 1}", remedy=remedy)
        yield letter


def parse_unix(text: str) -> Acl:
    """The entries of a Unix list such as `rjh21=rwx staff=r-x other=r--`, whose order has no meaning."""
    acl = parse_acl(text)
    for one in acl.entries:
        if one.negative:
            raise BadExpression(f"`-{brief(one.who)}` has no meaning in a Unix list", remedy="leave the rights out")
    return acl


def render_acl(acl: Acl) -> str:
    """`+bob=rw -student=w`; a list of nothing is empty."""
    return " ".join(f"{'-' if one.negative else '+'}{one.who}={''.join(sorted(one.rights))}" for one in acl.entries)


# -- deciding -------------------------------------------------------------------------------------------------


def unix_rights(listed: Acl, user: str, groups: Container[str], inside: Container[str]) -> frozenset[str]:
    """The rights of a user by a Unix list: `groups` are all that there are, `inside` those that it is in."""
    own = [one.rights for one in listed.entries if one.who == user and not _is_other(one) and one.who not in groups]
    shared = [one.rights for one in listed.entries if one.who in inside and not _is_other(one)]
    other = [one.rights for one in listed.entries if _is_other(one)]
    return frozenset().union(*(own or shared or other))


def _is_other(one: AclEntry) -> bool:
    return one.who in (OTHER, ANYONE)


def ordered(listed: Acl, groups: Container[str]) -> Acl:
    """A Unix list as an ordered one that gives the same: whoever an entry means is barred from all that follows."""
    every = listed.letters
    named = [one for one in listed.entries if not _is_other(one)]
    made: list[AclEntry] = []
    for some in ([one for one in named if one.who not in groups], [one for one in named if one.who in groups]):
        made += (AclEntry(one.who, one.rights) for one in some)
        made += (AclEntry(who, every, negative=True) for who in dict.fromkeys(one.who for one in some))
    made += (AclEntry(ANYONE, one.rights) for one in listed.entries if _is_other(one))
    return Acl(tuple(one for one in made if one.rights))


def unixacl(state: State, text: Argument, user: Argument) -> frozenset[str]:
    """The rights of a user by a list such as `rjh21=rwx staff=r-x other=r--`."""
    who = _text(user)
    return unix_rights(parse_unix(_text(text)), who, state.groups, state.groups_of(who))


def acl(state: State, text: Argument, user: Argument) -> frozenset[str]:
    """The rights of a user by an ordered list such as `-students=w +rjh21=rw +students=r`; `*` or `other` is anyone."""
    who = _text(user)
    named = {OTHER} if OTHER not in state.groups and OTHER not in state.principals else set()
    return parse_acl(_text(text)).rights(state.groups_of(who) | {who} | named)


def _text(argument: Argument) -> str:
    if not isinstance(argument, str):
        raise BadExpression(f"`{brief(argument)}` is not text")
    return argument


FUNCTIONS: Final[Mapping[str, Callable[..., Argument]]] = {"unixacl": unixacl, "acl": acl}
"""The functions that every service has; each gives a set of rights."""


# -- rules ----------------------------------------------------------------------------------------------------

LETTERS: Final[Mapping[str, Action]] = {"r": Action.SUBSCRIBE, "w": Action.PUBLISH}
"""What rights of a list mean for events, unless it is said otherwise."""


def rules_of(
    listed: Acl,
    type_name: str,
    letters: Mapping[str, Action] = LETTERS,
    *,
    anyone: str | None = None,
    prefix: str = "acl",
) -> tuple[Rule, ...]:
    """Rules that decide what an ordered list does; `anyone` is the group that `*` stands for.

    Entries without rights say nothing, and are left out.
    """
    _check_letters(letters)
    made: list[Rule] = []
    for at, entry in enumerate((one for one in listed.entries if one.rights), start=1):
        unknown = sorted(entry.rights - letters.keys())
        if unknown:
            raise BadDefinition(
                f"the right `{unknown[0]}` of `{brief(entry.who)}` is no action on events",
                remedy=f"say which action it is; known are {', '.join(f'`{a}`' for a in letters)}",
            )
        if entry.who == ANYONE and anyone is None:
            raise BadDefinition(
                "rules speak to principals and groups, and `*` is neither", remedy="name a group for it"
            )
        made.append(
            Rule(
                f"{prefix}-{at}",
                entry.who if entry.who != ANYONE or anyone is None else anyone,
                frozenset(letters[letter] for letter in entry.rights),
                type_name,
                effect=Effect.FORBID if entry.negative else Effect.GRANT,
            )
        )
    return tuple(made)


def acl_of(rules: Iterable[Rule], letters: Mapping[str, Action] = LETTERS) -> Acl:
    """The ordered list that decides what rules on one type do.

    Rules about other actions than those of the letters play no part in it.
    """
    _check_letters(letters)
    made: list[AclEntry] = []
    for rule in rules:
        rights = frozenset(letter for letter, action in letters.items() if action in rule.actions)
        if rights:
            _check_plain(rule)
            made.append(AclEntry(rule.who, rights, rule.effect is Effect.FORBID))
    return Acl(tuple(made))


def _check_letters(letters: Mapping[str, Action]) -> None:
    if len(set(letters.values())) != len(letters):
        raise BadDefinition("two rights are the same action", remedy="give each right an action of its own")
    for letter in letters:
        if len(letter) != 1 or not re.match(r"[A-Za-z]\Z", letter):
            raise BadDefinition(f"`{brief(letter)}` is no letter")


def _check_plain(rule: Rule) -> None:
    """Refuse a rule that no entry of a list can say."""
    cannot = {
        "is for a role": rule.role is not None,
        "has a condition": rule.where != TRUE,
        "asks for an identity statement": rule.attested,
        "is for some attributes": rule.attributes is not None or bool(rule.forced),
        "comes from a certificate": rule.source is Source.CHAIN,
        "is for a name that a list cannot write": not re.fullmatch(_NAME, rule.who) and rule.role is None,
    }
    for what, is_so in cannot.items():
        if is_so:
            message = f"the rule `{rule.id}` {what}, which no access control list can say"
            raise BadDefinition(message, remedy="keep it as a rule")
    if rule.who == ANYONE:
        raise BadDefinition(f"`{ANYONE}` is anyone in a list, and not who the rule `{rule.id}` is for")
