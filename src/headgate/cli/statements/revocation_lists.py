"""Revocation lists of the command line: the next one from the last, or by the domain's service.

Guarantees: only what looks like the id of a statement is revoked, or what a statement itself says is its id, if the
signer has issued it. The last list of each key is remembered beside the key, durably and before it is handed out, so
that a file that is older, or was lost, never becomes the next list: numbers only grow. Two commands at once make two
lists.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from headgate.cli.shared.connection import NodeConnection
from headgate.cli.shared.rendering import say
from headgate.cli.statements.statement_files import FileSigner, KeyNames, WrittenStatement, read_all
from headgate.model.authority import RevocationList
from headgate.model.errors import BadStatement, HeadgateError, StaleList, StorageFull, TooLarge
from headgate.model.limits import MAX_LIST_BYTES
from headgate.model.values import brief
from headgate.trust import identities
from headgate.trust.certificates import CERTIFICATE, check_newer, issue_revocations, verify_revocations
from headgate.trust.identities import IDENTITY
from headgate.trust.presented import said_kind

_DID: Final = "did:key:"
_ID: Final = re.compile(r"s[A-Za-z0-9_-]{22}\Z")
"""An id as statements are given them (`trust.certificates.new_id`); one that was chosen otherwise is in their files."""


def ids_of(given: Sequence[str], names: KeyNames, issuers: frozenset[str] | None = None) -> list[str]:
    """The ids that are given, and those of the statements in the files that are; issued by these keys, if it is known.

    What is there as a file is one, and so is what could not be an id.
    """
    ids: dict[str, None] = {}
    for argument in given:
        if Path(argument).is_file() or "/" in argument or Path(argument).suffix == ".jwt":
            ids |= dict.fromkeys(_issued(each, names, issuers) for each in read_all([Path(argument)]))
        elif _ID.match(argument):
            ids[argument] = None
        else:
            raise BadStatement(
                f"`{brief(argument)}` is neither a file nor the id of a statement",
                reason="bad-claim",
                remedy="give the file of the certificate, or its id as `headgate cert show` has it",
            )
    return list(ids)


def _issued(written: WrittenStatement, names: KeyNames, issuers: frozenset[str] | None) -> str:
    """The id of a certificate or identity statement, which one of these keys must have issued."""
    try:
        is_identity = said_kind(written.text) == identities.IDENTITY.typ
        statement = IDENTITY.read(written.text).value if is_identity else CERTIFICATE.read(written.text).value
        if issuers is not None and statement.issuer not in issuers:
            raise BadStatement(
                f"`{statement.id}` was issued by {names(statement.issuer)}",
                reason="wrong-issuer",
                remedy="only whoever issued it can take it back",
            )
    except HeadgateError as error:
        error.place = written.place
        raise
    return statement.id


def revoke_in_file(by: FileSigner, ids: Sequence[str], path: Path, now: datetime) -> None:
    """Replace the list in a file by the next one, which has these ids too."""
    issuer = by.key.public.did
    memory = by.directory / f"{issuer.removeprefix(_DID)}.list"
    with _alone(memory):
        known, given = _list_in(memory, issuer), _list_in(path, issuer)
        if known is not None and given is not None:
            _check_not_older(given, known, path)
        last = given or known
        revoked = frozenset[str]() if last is None else last.revoked
        if last is not None and set(ids) <= revoked:
            say("Nothing new: all of them are on list ", (str(last.number), "bold"))
            _write(path, issue_revocations(by.key, number=last.number, revoked=revoked, now=max(now, last.issued)))
            return
        number = 1 if last is None else last.number + 1
        at = now if last is None else max(now, last.issued)
        text = issue_revocations(by.key, number=number, revoked=revoked | set(ids), now=at)
        _write(memory, text)
        _write(path, text)
    count = len(revoked | set(ids))
    say("List ", (str(number), "bold"), f" in {path}: {count} revoked")


def _check_not_older(given: RevocationList, known: RevocationList, path: Path) -> None:
    try:
        check_newer(given, known)
    except StaleList as error:
        raise StaleList(
            error.message, place=str(path), remedy=f"your last list is number {known.number}: bring that file"
        ) from None


@contextmanager
def _alone(memory: Path) -> Iterator[None]:
    """One command at a time for each key."""
    lock = memory.with_suffix(".lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageFull(f"`{lock}` cannot be written ({error.strerror})", remedy="make the directory yours") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _list_in(path: Path, issuer: str) -> RevocationList | None:
    """The list of a file, which must be this issuer's; none if there is no file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LIST_BYTES + 2)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageFull(f"`{path}` cannot be read ({error.strerror})", remedy="name another file") from None
    if len(data) > MAX_LIST_BYTES + 1:
        raise TooLarge(f"`{path}` is longer than MAX_LIST_BYTES ({MAX_LIST_BYTES})")
    try:
        return verify_revocations(data.decode("utf-8", "replace").strip(), issuer=issuer)
    except HeadgateError as error:
        error.place = str(path)
        raise


def _write(path: Path, text: str) -> None:
    """Put a list in its place whole, on disk."""
    passing = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with passing.open("w", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        passing.replace(path)
    except OSError as error:
        passing.unlink(missing_ok=True)
        raise StorageFull(f"`{path}` cannot be written ({error.strerror})", remedy="make room") from None


def revoke_at_service(ids: Sequence[str], connection: NodeConnection) -> None:
    """Let the domain's service put certificates on its list, which is in force when this returns."""
    with connection.client() as client:
        for id in ids:
            number = client.revoke(id)
            say((id, "bold"), f" is revoked: list {number}")
