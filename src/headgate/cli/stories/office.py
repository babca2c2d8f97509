"""An organisation of a story: a directory with its own keys, and the statements that it made or was given.

Guarantees: what one office holds another gets only as a file that is handed over; private keys never move.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from headgate.model.authority import Authority, Certificate, Validity
from headgate.trust.certificates import issue_certificate, verify_certificate
from headgate.trust.keyring import Keyring
from headgate.trust.keys import PrivateKey
from headgate.trust.revocations import issue_revocations


class Office:
    """One organisation."""

    def __init__(self, directory: Path, now: datetime, *names: str) -> None:
        self.directory = directory
        self._now = now
        self._keys = Keyring(directory / "keys")
        self._statements = directory / "statements"
        self._statements.mkdir(parents=True, exist_ok=True)
        self.names = {self._keys.new(name).did: name for name in names}

    def did(self, name: str) -> str:
        """The public name of one of its keys."""
        return self._keys.public(name).did

    def key(self, name: str) -> PrivateKey:
        """One of its keys, to sign with."""
        return self._keys.load(name)

    def keep(self, file: str, text: str) -> str:
        """Put a statement among those it has."""
        self._path(file).write_text(f"{text}\n", encoding="ascii")
        return text

    def read(self, file: str) -> str:
        """The text of a statement that it has."""
        return self._path(file).read_text(encoding="ascii").strip()

    def hand(self, file: str, to: Office) -> None:
        """Hand a copy of a statement over."""
        to.keep(file, self.read(file))

    def certify(self, id: str, by: str, to: str, *authority: Authority, delegate: bool = False) -> str:
        """Issue a certificate to a key, and keep it under its id."""
        text = issue_certificate(
            self.key(by),
            subject=to,
            authority=authority,
            now=self._now,
            delegate=delegate,
            validity=Validity(self._now.replace(microsecond=0)),
            id=id,
        )
        return self.keep(id, text)

    def revoke(self, file: str, by: str, *ids: str) -> str:
        """Sign a list that takes certificates back."""
        return self.keep(file, issue_revocations(self.key(by), number=1, revoked=ids, now=self._now))

    def chain(self, files: Sequence[str]) -> tuple[Certificate, ...]:
        """The certificates of these files, verified."""
        return tuple(verify_certificate(self.read(file), audience=None, now=self._now) for file in files)

    def _path(self, file: str) -> Path:
        return self._statements / f"{file}.jwt"


def altered(text: str, old: str, new: str) -> str:
    """A statement that says something else, under the signature of what it said."""
    head, payload, signature = text.split(".")
    said = urlsafe_b64decode(payload + "=" * (-len(payload) % 4)).decode()
    return f"{head}.{urlsafe_b64encode(said.replace(old, new).encode()).rstrip(b'=').decode()}.{signature}"
