"""Arguments of roles as JSON, as the ledger stores them and the wire carries them (OASIS 4.3).

Guarantees: what is loaded is what was dumped, kinds included: `1`, `1.0`, `true` and `'1'` stay apart, floats keep
every bit, timestamps every microsecond. A set is `{"set": "rw"}`, its letters in the order of its type, else by code
point. Whatever else is loaded is refused with `type-mismatch`.
Leaves out: whether an argument is of its role's type (`roles.rolefiles.types`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from headgate.model.conditions import Argument
from headgate.model.errors import TypeMismatch
from headgate.model.limits import MAX_SET_LETTERS
from headgate.model.values import Kind, brief, conform, micros, moment


def dump_argument(value: Argument, alphabet: str = "") -> object:
    """An argument as JSON: bool, int, text and null as they are, the others tagged."""
    match value:
        case frozenset():
            return {"set": "".join(sort_letters(letters_of(value), alphabet))}
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": value.hex()}
        case datetime() if value.tzinfo is not None:
            return {"timestamp": micros(value)}
        case bytes():
            return {"bytes": value.hex()}
        case _:
            raise TypeMismatch(f"`{brief(value)}` is no argument of a role")


def load_argument(data: object) -> Argument:
    """The inverse of `dump_argument`, from data that nobody vouches for."""
    match data:
        case None | bool():
            return data
        case int():
            return conform(Kind.INT, data)
        case str():
            return conform(Kind.STRING, data)
        case dict() if len(data) == 1:
            return _tagged(data)
        case _:
            raise TypeMismatch(f"`{brief(data)}` is no argument of a role")


def letters_of(raw: Iterable[object]) -> frozenset[str]:
    """A set of single letters, each once."""
    letters = list(raw)
    if len(letters) > MAX_SET_LETTERS:
        raise TypeMismatch(f"{len(letters)} letters are past MAX_SET_LETTERS ({MAX_SET_LETTERS})")
    distinct: set[str] = set()
    for letter in letters:
        # Anything else could not be written in a rolefile.
        if not isinstance(letter, str) or len(letter) != 1 or not letter.isalnum() or letter.isdecimal():
            raise TypeMismatch(f"`{brief(letter)}` is not a letter", remedy="a set is of single letters, as in `{rw}`")
        if letter in distinct:
            raise TypeMismatch(f"the letter `{letter}` is there twice")
        distinct.add(letter)
    return frozenset(distinct)


def sort_letters(letters: Iterable[str], alphabet: str = "") -> list[str]:
    """Letters in the order of an alphabet, any others after it by code point."""
    return sorted(letters, key=lambda letter: (alphabet.find(letter) % (len(alphabet) + 1), letter))


def _tagged(data: dict[object, object]) -> Argument:
    match data:
        case {"set": str(letters)}:
            return letters_of(letters)
        case {"float": str(text)}:
            try:
                return conform(Kind.FLOAT, float.fromhex(text))
            except (ValueError, OverflowError):
                raise TypeMismatch(f"`{brief(text)}` is not a hexadecimal float") from None
        case {"timestamp": int(microseconds)} if not isinstance(microseconds, bool):
            try:
                return moment(microseconds)
            except OverflowError:
                raise TypeMismatch(f"`{brief(microseconds)}` microseconds is outside the years 1 to 9999") from None
        case {"bytes": str(text)}:
            return conform(Kind.BYTES, text)
        case _:
            raise TypeMismatch(f"`{brief(data)}` is no argument of a role")
