"""Single claims of a statement: times, names, values and conditions, each of exactly one form.

Guarantees: what is read has the type that the claim is to have: `true` is no number and a number no text. Type names
and patterns are ASCII, so that none looks like another; other names are in their normal form (NFKC) and printable.
Values keep their kind: `1`, `1.0`, `true` and `'1'` stay apart. A condition of a statement names nothing that belongs
to one domain alone: no group, relation or predicate.
Leaves out: which claims a statement has (`statements`, and the module of each kind).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from headgate.lang import parse_condition, render_condition
from headgate.model import expressions as tree
from headgate.model.authority import Validity
from headgate.model.errors import BadDefinition, BadExpression, BadKey, BadStatement, HeadgateError
from headgate.model.expressions import Argument, Condition
from headgate.model.limits import MAX_AUDIENCES
from headgate.model.roles import dump_argument, load_argument
from headgate.model.types import check_name, check_pattern, check_type_name
from headgate.model.values import INT_MAX, Value, brief
from headgate.trust.keys import PublicKey

T = TypeVar("T")

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")
_DID_SHAPE: Final = re.compile(r"did:key:z[1-9A-HJ-NP-Za-km-z]{40,}\Z")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
_ASCII_NAME: Final = re.compile(r"[A-Za-z0-9_.*-]+\Z")
_LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999."""


def bad(reason: str, message: str, remedy: str | None = None) -> BadStatement:
    """The refusal of a statement, with a word that programs can go by."""
    return BadStatement(message, reason=reason, remedy=remedy)


# -- plain claims ---------------------------------------------------------------------------------------------


def text(given: object, what: str) -> str:
    """Text that every machine can write."""
    if type(given) is not str:
        raise bad("bad-claim", f"`{what}` is not text")
    try:
        given.encode("utf-8")
    except UnicodeEncodeError:
        raise bad("bad-claim", f"`{what}` has a character that is none (a lone surrogate)") from None
    return given


def whole(given: object, what: str, low: int = 0, high: int = INT_MAX) -> int:
    """A whole number between two others."""
    if type(given) is not int:
        raise bad("bad-claim", f"`{what}` is not a whole number")
    if not low <= given <= high:
        raise bad("bad-claim", f"`{what}` is not between {low} and {high}: `{brief(given)}`")
    return given


def flag(given: object, what: str) -> bool:
    """True or false, and nothing that might pass for it."""
    if type(given) is not bool:
        raise bad("bad-claim", f"`{what}` is neither true nor false: `{brief(given)}`")
    return given


def listed(given: object, what: str, least: int, most: int) -> list[Any]:
    """A list of so many things."""
    if type(given) is not list:
        raise bad("bad-claim", f"`{what}` is not a list")
    if not least <= len(given) <= most:
        raise bad("bad-claim", f"`{what}` has `{len(given)}` entries, and may have {least} to {most}")
    return given


def distinct(given: object, what: str, least: int, most: int, read: Callable[[Any, str], T]) -> tuple[T, ...]:
    """A list of so many things, each read on its own, and none of them twice."""
    every = tuple(read(one, what) for one in listed(given, what, least, most))
    if len(set(every)) != len(every):
        raise bad("bad-claim", f"`{what}` names one twice")
    return every


def mapped(given: object, what: str, most: int) -> dict[str, Any]:
    """An object with at most so many entries."""
    if type(given) is not dict:
        raise bad("bad-claim", f"`{what}` is not an object")
    if len(given) > most:
        raise bad("bad-claim", f"`{what}` has `{len(given)}` entries, and may have {most}")
    return given


def exactly(given: object, what: str, names: Set[str]) -> dict[str, Any]:
    """An object with these entries and no others."""
    fields = mapped(given, what, len(names))
    if odd := fields.keys() ^ names:
        raise bad("bad-claim", f"`{what}` does not say `{brief(min(odd))}`, or should not")
    return fields


def time(given: object, what: str) -> datetime:
    """A time in whole seconds since 1970."""
    return datetime.fromtimestamp(whole(given, what, 0, _LAST_SECOND), UTC)


def validity(claims: Mapping[str, Any]) -> Validity:
    """The claims `nbf` and `exp`."""
    start = time(claims["nbf"], "nbf") if "nbf" in claims else None
    until = time(claims["exp"], "exp") if "exp" in claims else None
    try:
        return Validity(start, until)
    except BadDefinition as error:
        raise bad("bad-claim", error.message, "let `exp` be later than `nbf`") from None


def audience(claims: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The claim `aud`: one audience or several; None for everyone."""
    if "aud" not in claims:
        return None
    given = claims["aud"]
    named = distinct([given] if type(given) is str else given, "aud", 1, MAX_AUDIENCES, text)
    if "" in named:
        raise bad("bad-claim", "`aud` names no audience")
    return named


def identifier(given: object, what: str) -> str:
    """What a statement is known by: letters, digits, `_`, `-` and `.`, 64 at most."""
    if type(given) is not str or not _ID.match(given):
        raise bad(
            "bad-claim", f"`{what}` is no identifier: `{brief(given)}`", "up to 64 letters, digits, `_`, `-` and `.`"
        )
    return given


def key_of(did: object, what: str) -> PublicKey:
    """The key that a claim names, `did:key:...`; one that anyone could sign for is refused."""
    if did is None:
        raise bad("missing-claim", f"the statement does not say `{what}`")
    if type(did) is not str:
        raise bad("bad-claim", f"`{what}` is not text")
    try:
        return PublicKey.from_did(did)
    except BadKey as error:
        reason = "unsafe-key" if _DID_SHAPE.match(did) else "bad-claim"
        raise bad(reason, f"`{what}` names no key: {error.message}", error.remedy) from None


def key_name(did: object, what: str) -> str:
    """The name of a key, which is the one way to write it."""
    key_of(did, what)
    return str(did)


def digest(given: object, what: str) -> str:
    """A SHA-256 in hexadecimal."""
    if type(given) is not str or not _DIGEST.match(given):
        raise bad("bad-claim", f"`{what}` is no digest: `{brief(given)}`")
    return given


# -- names ----------------------------------------------------------------------------------------------------


def plain_name(given: object, what: str) -> str:
    """A name in its normal form, so that no two are written alike."""
    if type(given) is not str:
        raise bad("bad-claim", f"a name of a {what} is not text")
    _checked(partial(check_name, what), given)
    if not unicodedata.is_normalized("NFKC", given):
        raise bad("bad-name", f"the {what} name `{brief(given)}` is not in its normal form", "write it in NFKC")
    return given


def attribute_name(given: object, _: str = "") -> str:
    """The name of an attribute of an event."""
    name = plain_name(given, "attribute")
    if name.startswith(("@", "$")):
        raise bad("bad-name", f"`{brief(name)}` cannot name an attribute")
    return name


def type_name(given: object) -> str:
    """A dotted type name in ASCII."""
    return _checked(check_type_name, _ascii(given, "name"))


def pattern(given: object) -> str:
    """A dotted type name in ASCII, `dotted.name.*` or `*`."""
    return _checked(check_pattern, _ascii(given, "type"))


def owned(given: object, what: str) -> tuple[str | None, str]:
    """The owner's key, if it is named, and the rest of `did:key:.../rest`."""
    written = text(given, what)
    owner, slash, rest = written.partition("/")
    if not slash:
        return None, written
    return key_name(owner, what), rest


def _checked(check: Callable[[str], str], name: str) -> str:
    try:
        return check(name)
    except BadDefinition as error:
        raise bad("bad-name", error.message, error.remedy) from None


def _ascii(given: object, what: str) -> str:
    if type(given) is not str:
        raise bad("bad-claim", f"`{what}` is not text")
    if not _ASCII_NAME.match(given):
        raise bad("bad-name", f"`{brief(given)}` is no name of a type in a statement", "letters, digits, `_`, `-`, `.`")
    return given


# -- values ---------------------------------------------------------------------------------------------------


def value_to_json(value: object) -> object:
    """A value with its kind: bool, int and text as JSON has them, the others tagged."""
    try:
        written = dump_argument(cast(Argument, value))
        value_of(written, "value")
    except HeadgateError:
        raise bad("bad-claim", f"`{brief(value)}` is not a value that a statement can have") from None
    return written


def value_of(given: object, what: str) -> Value:
    """The inverse of `value_to_json`; null is no value, and no other way to write one is taken."""
    value = _loaded(given)
    if value is None or isinstance(value, frozenset):
        remedy = "such as `1`, `'text'` or `{'float': '0x1.8p+0'}`"
        raise bad("bad-claim", f"`{what}` has no value: `{brief(given)}`", remedy)
    return value


def argument(given: object) -> Argument:
    """An argument of a role, a value or a set, in the one way to write it; null is none."""
    value = _loaded(given)
    if value is None:
        raise bad("bad-claim", "`args` has an argument that is none", "such as `1`, `'text'` or `{'set': 'rw'}`")
    return value


def _loaded(given: object) -> Argument:
    """What is written in the one way to write it; None for all else."""
    try:
        value = load_argument(given)
        return value if repr(dump_argument(value)) == repr(given) else None
    except (HeadgateError, RecursionError):
        return None


# -- tables of claims -----------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """A claim: the field of a value that it is, how it is read, and how it is written."""

    field: str
    read: Callable[[Any, str], Any]
    write: Callable[[Any], object] = lambda value: value


@dataclass(frozen=True, slots=True)
class ClaimTable(Generic[T]):
    """A JSON object claim by claim, and the value that it comes to: from one to the other and back.

    An optional claim is of a field that has a default, and is not written where that is None.
    """

    made: Callable[..., T]
    required: Mapping[str, Claim]
    optional: Mapping[str, Claim] = field(default_factory=dict)

    def load(self, said: Mapping[str, Any], **known: Any) -> T:
        """The value of claims that are all there, with fields that are known otherwise."""
        every = {**self.required, **self.optional}
        fields = {one.field: one.read(said[name], name) for name, one in every.items() if name in said}
        try:
            return self.made(**known, **fields)
        except BadDefinition as error:
            raise bad("bad-claim", error.message, error.remedy) from None

    def load_object(self, given: object, what: str) -> T:
        """The value of an object that has the required claims and no others."""
        return self.load(exactly(given, what, self.required.keys()))

    def dump(self, value: T) -> dict[str, Any]:
        """The claims of a value, as `load` reads them."""
        said = {name: one.write(getattr(value, one.field)) for name, one in self.required.items()}
        for name, one in self.optional.items():
            if (content := getattr(value, one.field)) is not None:
                said[name] = one.write(content)
        return said


# -- conditions -----------------------------------------------------------------------------------------------


def condition(given: object, what: str) -> Condition:
    """A condition that means the same in every domain."""
    try:
        parsed = parse_condition(text(given, what))
    except BadExpression as error:
        raise bad("bad-condition", f"`{what}` is no condition: {error.message}", error.remedy) from None
    for atom in tree.atoms(parsed):
        if isinstance(atom, tree.InGroup | tree.Related | tree.Predicate):
            raise bad(
                "bad-condition",
                f"`{what}` names a group, relation or predicate, which belong to one domain",
                "name attributes of the event, `$attributes` of the principal, `@time` and the like",
            )
    return parsed


def policy_rule(given: object, what: str = "policy_rule") -> Condition:
    """A condition over attributes of subjects alone (Guard II.D)."""
    parsed = condition(given, what)
    for operand in (one for atom in tree.atoms(parsed) for one in tree.operands(atom)):
        if not isinstance(operand, tree.Subject | tree.Constant):
            raise bad("bad-condition", f"`{what}` speaks of more than attributes of subjects", "write them as `$name`")
    return parsed


def condition_text(wanted: Condition, what: str) -> str:
    """A condition as text that reads back as the same condition."""
    written = render_condition(wanted)
    if repr(condition(written, what)) != repr(wanted):
        raise bad("bad-condition", f"the condition `{brief(written)}` does not read back as it was given")
    return written
