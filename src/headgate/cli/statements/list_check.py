"""Revocation as the verifying commands check it: by the lists among the files, and by those that lie beside them.

Guarantees: whatever an answer rests on is looked up in every list of its issuer that is there, and of each issuer it is
said which list that was, or that there was none. A list beside the files that is no genuine list counts for nothing.
Leaves out: asking an issuer for its newest list, which a gateway does (`gateway.authority.issuers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final

from headgate.authority.reduction import Same
from headgate.cli.shared.rendering import say
from headgate.cli.statements.statement_files import STANDARD, KeyNames
from headgate.model.authority import RevocationList
from headgate.model.errors import HeadgateError
from headgate.model.limits import MAX_LIST_BYTES
from headgate.model.values import render_timestamp
from headgate.trust.certificates import REVOCATIONS, verify_revocations
from headgate.trust.presented import said_kind

MAX_BESIDE: Final = 1_000
"""Files of a directory that are looked at for lists."""


@dataclass(frozen=True, slots=True)
class ListCheck:
    """By which list of an issuer it was asked what it has revoked; without a number, by none."""

    issuer: str
    number: int | None = None
    issued: datetime | None = None


def lists_beside(files: Sequence[Path], now: datetime) -> tuple[RevocationList, ...]:
    """The lists in the directories of these files, of whichever issuer."""
    directories = dict.fromkeys(one.parent for one in files if one != STANDARD)
    lists: list[RevocationList] = []
    for directory in directories:
        try:
            paths = sorted(islice(directory.glob("*.jwt"), MAX_BESIDE))
        except OSError:
            continue
        lists.extend(one for path in paths if (one := _list_in(path, now)) is not None)
    return tuple(lists)


def _list_in(path: Path, now: datetime) -> RevocationList | None:
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            text = file.read(MAX_LIST_BYTES + 2).decode("utf-8", "replace").strip()
        return verify_revocations(text, now=now) if said_kind(text) == REVOCATIONS.typ else None
    except (OSError, HeadgateError):
        return None


def check_lists(issuers: Iterable[str], lists: Sequence[RevocationList], same: Same) -> tuple[ListCheck, ...]:
    """Of each issuer the newest list that there is."""
    checks: list[ListCheck] = []
    for issuer in dict.fromkeys(issuers):
        known = [one for one in lists if same(one.issuer, issuer)]
        newest = max(known, key=lambda one: (one.number, one.issued), default=None)
        checks.append(ListCheck(issuer) if newest is None else ListCheck(issuer, newest.number, newest.issued))
    return tuple(checks)


def say_checked(checked: Sequence[ListCheck], names: KeyNames) -> None:
    """By which lists revocation was checked, and of whom it was not."""
    for check in checked:
        if check.number is None or check.issued is None:
            say(
                ("revocation was not checked", "bold yellow"),
                f" of what {names(check.issuer)} issued: give its revocation list, or put it beside the files",
            )
        else:
            say(f"not revoked by list {check.number} of {names(check.issuer)}, of {render_timestamp(check.issued)}")
