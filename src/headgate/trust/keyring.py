"""A directory of keys under names of one's own: `NAME.key`, the private key, and `NAME.did`, its public name.

Guarantees: a name never leads out of the directory, which only its owner can change. No key is overwritten or lost:
after a rotation NAME is the new key, `NAME~1` the first one, `NAME~2` the next, each with the statement that names its
successor in `NAME~1.jwt`. A rotation that is cut short is completed by the next one. A `.did` that is not the key's is
refused when the key is used.
Leaves out: what others call a key: names are local, and never leave the machine.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from headgate.model.errors import AlreadyExists, BadKey, NotFound
from headgate.model.limits import MAX_DID_CHARS, MAX_KEY_FILE_BYTES, MAX_KEYS, MAX_ROTATIONS, MAX_STATEMENT_BYTES
from headgate.model.values import brief
from headgate.trust import keys as files
from headgate.trust.certificates import SUCCESSION, amend_succession, consent_to, issue_succession
from headgate.trust.keys import PrivateKey, PublicKey, Random

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(?:~[1-9][0-9]{0,2})?\Z")
_MAKING: Final = "~making"
_NEXT: Final = "~next"
"""The new key of a rotation that is under way."""


@dataclass(frozen=True, slots=True)
class KeptKey:
    """A key of a keyring, as it is shown."""

    name: str
    key: PublicKey
    locked: bool
    file: Path
    succession: Path | None


def check_alias(name: str, *, new: bool = False) -> str:
    """A name for a key that is safe as the name of a file; earlier keys have `~1` and so on behind it."""
    if not _NAME.match(name) or (new and "~" in name):
        raise BadKey(
            f"`{brief(name)}` cannot name a key", remedy="up to 64 letters, digits, `_`, `-` and `.`, a letter first"
        )
    return name


class Keyring:
    """The keys of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    # -- making -----------------------------------------------------------------------------------------------

    def new(self, name: str, passphrase: bytes | None = None, random: Random = secrets.token_bytes) -> PublicKey:
        """Make a key under a name that is not taken."""
        check_alias(name, new=True)
        self._make_directory()
        if self._did(name).exists() or self._key(name).exists():
            raise AlreadyExists(f"there is a key `{name}` already", remedy="choose another name, or rotate it")
        key = PrivateKey.generate(random)
        key.save(self._key(name), passphrase)
        files.replace_file(self._did(name), f"{key.public.did}\n")
        return key.public

    def rotate(
        self, name: str, now: datetime, passphrase: bytes | None = None, random: Random = secrets.token_bytes
    ) -> tuple[PublicKey, str]:
        """Let a new key take the name: the new key, and the old one's statement that it follows.

        The new key is under the same passphrase as the old one. Each step can be taken again, and the key itself is
        replaced last, so that whatever happens in between, the next rotation goes on from there.
        """
        check_alias(name, new=True)
        self._check_directory()
        old = PrivateKey.load(self._key(name), passphrase)
        following = self._key(name + _NEXT)
        if not following.exists():
            if not self._names(name, old.public):
                raise self._misnamed(name)
            self._make_following(name, passphrase if self._locked(name) else None, random)
        new = PrivateKey.load(following, passphrase)
        kept = self._place(name, old.public)
        if not self._key(kept).exists():
            os.link(self._key(name), self._key(kept))
        files.replace_file(self._did(kept), f"{old.public.did}\n")
        if not self._succession(kept).exists():
            consent = consent_to(old.public, new)
            statement = issue_succession(old, new=new.public.did, consent=consent, now=now)
            files.replace_file(self._succession(kept), f"{statement}\n")
        statement = self._statement(kept, old.public, new.public)
        files.replace_file(self._did(name), f"{new.public.did}\n")
        following.replace(self._key(name))
        files.sync_directory(self.directory)
        return new.public, statement

    def earlier(self, name: str) -> str:
        """The name under which the last key that was rotated away is kept; one of an earlier key means that key."""
        check_alias(name)
        self.public(name)
        current, is_old, _ = name.partition("~")
        if self._key(current + _NEXT).exists():
            raise self._misnamed(current)
        for kept in (f"{name}~{number}" for number in range(MAX_ROTATIONS, 0, -1) if not is_old):
            if self._succession(kept).exists():
                return kept
        if not self._succession(name).exists():
            raise NotFound(f"no key follows `{name}`", remedy=f"`headgate keys rotate {name}` makes one")
        return name

    def end(self, name: str, now: datetime, until: datetime, passphrase: bytes | None = None) -> tuple[str, str]:
        """Let an earlier key say until when it counts: the name it is kept under, and its new statement."""
        kept = self.earlier(name)
        with files.alone_in(self.directory):  # no two statements of a key have one number
            old = self.load(kept, passphrase)
            text = self._read(self._succession(kept), MAX_STATEMENT_BYTES, kept).strip()
            known = SUCCESSION.verify(text)
            if known.old != old.public.did:
                raise BadKey(f"`{self._succession(kept)}` is about other keys", remedy="restore it")
            if known.until != until:
                text = amend_succession(old, text, until=until, now=now)
                files.replace_file(self._succession(kept), f"{text}\n")
        return kept, text

    def _make_following(self, name: str, passphrase: bytes | None, random: Random) -> None:
        """Put the new key of a rotation in its place, whole; half a key of a rotation cut short is nobody's."""
        passing = self._key(name + _MAKING)
        passing.unlink(missing_ok=True)
        PrivateKey.generate(random).save(passing, passphrase)
        passing.replace(self._key(name + _NEXT))

    # -- looking ----------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Every name, in order."""
        if not self.directory.is_dir():
            return []
        self._check_directory()
        names: list[str] = []
        for at, file in enumerate(self.directory.iterdir()):
            if at >= MAX_KEYS:
                raise BadKey(f"`{self.directory}` has more files than MAX_KEYS ({MAX_KEYS})")
            if file.suffix == ".key" and _NAME.match(file.name.removesuffix(".key")):
                names.append(file.name.removesuffix(".key"))
        return sorted(names)

    def show(self, name: str) -> KeptKey:
        """What can be told of a key without its passphrase."""
        check_alias(name)
        succession = self._succession(name)
        return KeptKey(
            name,
            self.public(name),
            self._locked(name),
            self._key(name),
            succession if succession.exists() else None,
        )

    def public(self, name: str) -> PublicKey:
        """The public key of a name."""
        check_alias(name)
        self._check_directory()
        return PublicKey.from_did(self._read(self._did(name), MAX_DID_CHARS, name).strip())

    def load(self, name: str, passphrase: bytes | None = None) -> PrivateKey:
        """The private key of a name, to act as that principal."""
        check_alias(name)
        self._check_directory()
        if not self._key(name).exists():
            raise self._missing(name)
        key = PrivateKey.load(self._key(name), passphrase)
        if not self._names(name, key.public):
            raise self._misnamed(name)
        return key

    def locked(self, name: str) -> bool:
        """Is this key under a passphrase?"""
        check_alias(name)
        self._check_directory()
        if not self._key(name).exists():
            raise self._missing(name)
        return self._locked(name)

    def _locked(self, name: str) -> bool:
        return files.is_locked(files.read_secret(self._key(name), MAX_KEY_FILE_BYTES))

    def _names(self, name: str, key: PublicKey) -> bool:
        return self.public(name) == key

    def _place(self, name: str, old: PublicKey) -> str:
        """Where the old key of a rotation goes, or has gone already."""
        for number in range(1, MAX_ROTATIONS + 1):
            kept = f"{name}~{number}"
            if not self._did(kept).exists():
                if not self._key(kept).exists() or self._key(kept).samefile(self._key(name)):
                    return kept
            elif self._names(kept, old):
                return kept
        raise BadKey(f"`{name}` was rotated more often than MAX_ROTATIONS ({MAX_ROTATIONS})")

    def _statement(self, kept: str, old: PublicKey, new: PublicKey) -> str:
        text = self._read(self._succession(kept), MAX_STATEMENT_BYTES, kept).strip()
        found = SUCCESSION.verify(text)
        if (found.old, found.new) != (old.did, new.did):
            raise BadKey(f"`{self._succession(kept)}` is about other keys", remedy="move it away")
        return text

    # -- files ------------------------------------------------------------------------------------------------

    def _key(self, name: str) -> Path:
        return self.directory / f"{name}.key"

    def _did(self, name: str) -> Path:
        return self.directory / f"{name}.did"

    def _succession(self, name: str) -> Path:
        return self.directory / f"{name}.jwt"

    def _make_directory(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BadKey(f"`{self.directory}` cannot be made ({error.strerror})") from None
        self._check_directory()

    def _check_directory(self) -> None:
        try:
            files.check_directory(self.directory)
        except OSError:
            raise NotFound(f"there are no keys in `{self.directory}`", remedy="`headgate keys new NAME`") from None

    def _read(self, path: Path, limit: int, name: str) -> str:
        try:
            with path.open("rb") as file:
                data = file.read(limit + 2)
        except FileNotFoundError:
            raise self._missing(name) from None
        except OSError as error:
            raise BadKey(f"`{path}` cannot be read ({error.strerror})") from None
        return data.decode("utf-8", "replace")

    def _missing(self, name: str) -> NotFound:
        return NotFound(f"there is no key `{name}` in `{self.directory}`", remedy="`headgate keys list` shows them")

    def _misnamed(self, name: str) -> BadKey:
        if self._key(name + _NEXT).exists():
            return BadKey(f"the rotation of `{name}` was cut short", remedy=f"`headgate keys rotate {name}`")
        return BadKey(f"`{self._did(name)}` does not name the key in `{self._key(name)}`", remedy="restore both")
