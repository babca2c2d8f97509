"""What the commands about signed statements share: whose key signs, who is meant, and the files that they read.

Guarantees: a name is a key of one's own keyring, a `did:key:...` or a file with one, never a guess; a file is read no
further than a statement can be long, and never overwritten. Times on the command line have a zone or are a duration
from now.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Final

import typer

from headgate.cli.shared import options as opt
from headgate.cli.shared.common import STANDARD, placed, printable, read_bytes, writing
from headgate.cli.shared.options import ahead, moment_of
from headgate.cli.shared.rendering import remark
from headgate.cli.statements.keys import asked_passphrase, keyring_at, passphrase_in
from headgate.lang import parse_condition
from headgate.model import errors
from headgate.model.authority import Validity
from headgate.model.expressions import Attribute, Compare, Condition, Constant, plain
from headgate.model.limits import MAX_LIST_BYTES
from headgate.model.values import Value
from headgate.trust.keyring import Keyring
from headgate.trust.keys import PrivateKey, PublicKey, is_locked, read_secret
from headgate.trust.presented import MAX_SHOWN
from headgate.trust.typedefs import TYPE_DEFINITION

_DID: Final = "did:key:"
_PUBLIC: Final = ".did"
_STATEMENT: Final = ".jwt"
_SHORT: Final = 6
"""Characters of a key's name that are shown at each end where no name is known."""
_MAX_KEY_BYTES: Final = 10_000
_PIECE: Final = re.compile(r"(?:[^,']|'(?:[^']|'')*')+")
"""What stands between commas that are not in quotes."""


@dataclass(frozen=True, slots=True)
class WrittenStatement:
    """The text of a statement, and where it stands."""

    text: str
    place: str


# -- who ------------------------------------------------------------------------------------------------------


class KeyNames:
    """What keys are called here: names of the keyring, and where there is none a short form of the key's own."""

    def __init__(self, directory: Path | None) -> None:
        self.keyring = keyring_at(directory)
        self._known: dict[str, str] = {}
        try:
            for name in self.keyring.names():
                self._known.setdefault(self.keyring.public(name).did, name)
        except errors.HeadgateError:
            if directory is not None:
                raise  # a directory that was asked for must be good; one's own is needed for nothing yet
        self.used: dict[str, str] = {}

    def __call__(self, did: str) -> str:
        """How a key is shown; the whole of it is kept for the legend."""
        short = did.removeprefix(_DID)
        shown = self._known.get(did) or (
            f"{short[:_SHORT]}..{short[-_SHORT:]}" if did.startswith(_DID) else printable(did)
        )
        self.used.setdefault(did, shown)
        return shown

    def did(self, given: str, option: str) -> str:
        """The key that is meant."""
        with placed(option):
            if given.startswith(_DID):
                return PublicKey.from_did(given).did
            if Path(given).suffix == _PUBLIC:
                return PublicKey.from_did(read_one(Path(given)).text).did
            return self.keyring.public(given).did

    def owner(self, given: str, option: str) -> str:
        """The owner that is meant: a key, or whoever signed the event type in a file."""
        if Path(given).suffix != _STATEMENT:
            return self.did(given, option)
        with placed(option):
            definition = TYPE_DEFINITION.read(read_one(Path(given)).text).value
        if definition.signer != definition.owner:
            raise errors.BadStatement(
                f"`{definition.owner}` did not itself sign the type in `{printable(given)}`",
                reason="squatting",
                place=option,
                remedy="name the key of the owner",
            )
        return definition.owner

    def owned(self, pattern: str) -> tuple[str | None, str]:
        """The owner's key, if it is named, and the rest of `OWNER/pattern`."""
        owner, slash, rest = pattern.rpartition("/")
        return (self.did(owner, "--type"), rest) if slash else (None, pattern)

    def told(self, error: errors.HeadgateError) -> errors.HeadgateError:
        """A refusal in which the keys that have names are called by them."""
        for did, name in self._known.items():
            error.message = error.message.replace(did, name)
            error.remedy = None if error.remedy is None else error.remedy.replace(did, name)
        return error

    def own(self, name: str, did: str) -> frozenset[str]:
        """The keys of whoever signs: the one that does, and those of the same name that it follows."""
        earlier = (known for known, one in self._known.items() if one.partition("~")[0] == name.partition("~")[0])
        return frozenset({did, *earlier})


@dataclass(frozen=True, slots=True)
class FileSigner:
    """A key that signs, and the directory it is kept in."""

    key: PrivateKey
    directory: Path


def signer(given: str, keyring: Keyring, passphrase_file: Path | None) -> FileSigner:
    """The key of `--as`: a file if it looks like one, else a name of the keyring."""
    path = Path(given)
    if "/" in given or path.suffix in (".pem", ".key"):
        locked = is_locked(read_secret(path, _MAX_KEY_BYTES))
        return FileSigner(PrivateKey.load(path, _passphrase(passphrase_file, locked=locked)), path.parent)
    passphrase = _passphrase(passphrase_file, locked=keyring.locked(given))
    return FileSigner(keyring.load(given, passphrase), keyring.directory)


def _passphrase(file: Path | None, *, locked: bool) -> bytes | None:
    if not locked:
        if file is not None:
            raise errors.BadKey("the key is not under a passphrase", remedy="leave `--passphrase-file` out")
        return None
    return asked_passphrase(twice=False) if file is None else passphrase_in(file)


@dataclass(frozen=True, kw_only=True)
class Signing:
    """Whose key signs a statement, and where that goes; each field is an option of every command that signs one."""

    out: opt.Out = None
    keys: opt.Keys = None
    passphrase_file: opt.PassphraseFile = None

    @cached_property
    def names(self) -> KeyNames:
        """What keys are called."""
        return KeyNames(self.keys)

    def key(self, who: str) -> PrivateKey:
        """The key of `--as`."""
        return signer(who, self.names.keyring, self.passphrase_file).key


# -- when and what --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """How long something counts; each field is an option of every command that gives it an end."""

    for_: opt.For = None
    until: opt.Until = None

    def validity(self, now: datetime, from_: str | None = None) -> Validity:
        """From now on, or from a time, as long as the options say."""
        if self.for_ is not None and self.until is not None:
            raise typer.BadParameter("--for and --until exclude each other")
        start = now.replace(microsecond=0) if from_ is None else moment_of(from_, "--from")
        if self.for_ is not None:
            return Validity(start, ahead(start, self.for_, "--for"))
        end = None if self.until is None else moment_of(self.until, "--until")
        if end is not None and end <= now:
            raise typer.BadParameter(f"--until: `{self.until}` is not in the future")
        if end is not None and end <= start:
            raise typer.BadParameter(f"--until: `{self.until}` is not after `{from_}`")
        return Validity(start, end)


def pieces(given: str) -> list[str]:
    """What stands between the commas."""
    return [one.strip() for one in _PIECE.findall(given) if one.strip()]


def value_of(text: str) -> Value:
    """A value as expressions write it; what is no literal is text, so that plain words need no quotes."""
    try:
        condition = parse_condition(f"x = {text}")
    except errors.BadExpression:
        return text
    match condition:
        case Compare("=", Attribute("x"), Constant(value)):
            return plain(value)
        case _:
            return text


def condition_of(text: str, option: str) -> Condition:
    """A condition of the command line."""
    with placed(option):
        return parse_condition(text)


# -- files ----------------------------------------------------------------------------------------------------


def read_all(paths: Sequence[Path]) -> list[WrittenStatement]:
    """Every statement of these files."""
    statements = [one for path in paths for one in _read(path)]
    if len(statements) > MAX_SHOWN:
        raise errors.TooLarge(
            f"`{len(statements)}` statements are more than MAX_SHOWN ({MAX_SHOWN})", remedy="give fewer"
        )
    return statements


def read_one(path: Path) -> WrittenStatement:
    """The one statement of a file."""
    statements = _read(path)
    if len(statements) > 1:
        raise errors.BadStatement(
            f"there are `{len(statements)}` statements", reason="malformed", place=str(path), remedy="one"
        )
    return statements[0]


def _read(path: Path) -> list[WrittenStatement]:
    name = "standard input" if path == STANDARD else str(path)
    data = read_bytes(path, MAX_LIST_BYTES, shown=printable(name), remedy="name a file")
    if len(data) > MAX_LIST_BYTES:
        raise errors.TooLarge(
            f"`{printable(name)}` is longer than MAX_LIST_BYTES ({MAX_LIST_BYTES})", remedy="split it"
        )
    lines = enumerate(data.decode("utf-8", "replace").splitlines(), 1)
    statements = [WrittenStatement(line.strip(), f"{name}:{number}") for number, line in lines if line.strip()]
    if not statements:
        raise errors.BadStatement(
            "there is no statement", reason="malformed", place=name, remedy="one stands on a line"
        )
    return statements


def hand_out(text: str, path: Path | None, *said: str) -> None:
    """Print a statement, or put it in a new file; what it says goes to standard error, for whoever watches."""
    if path is None or path == STANDARD:
        print(text)
        return
    with writing(path, "name another place"):
        try:
            with path.open("x", encoding="ascii") as file:
                file.write(f"{text}\n")
        except FileExistsError:
            raise errors.AlreadyExists(
                f"`{path}` is there already", remedy="name a new file, or move it away"
            ) from None
    for line in (*said, f"in {path}"):
        remark(line)
