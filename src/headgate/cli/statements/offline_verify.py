"""Statements judged by themselves, without a ledger: what a bag of them gives its holder, or why nothing.

Guarantees: the chains are those that a gateway would find: by `authority.chains`, with the revocation lists and
successions that lie in the bag. A list that is not there revokes nothing, and is no sign of life either. With an owner
or a coordinator named, only chains that begin there are found. Whatever an answer rests on is looked up in every list
of its issuer among the files and beside them, and of each issuer it is said which list that was, or that there was
none. A list beside the files that is no genuine list counts for nothing.
Leaves out: what a gateway knows besides, such as lists that it has heard of and types that it has; asking an issuer for
its newest list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final, NoReturn

import typer

from headgate.authority.chains import ChainGround, Reduced, Same, discover, why_not
from headgate.authority.statement_state import StatementState
from headgate.cli.shared.common import STANDARD, fail, placed
from headgate.cli.shared.rendering import print_json, say
from headgate.cli.statements.statement_files import KeyNames, WrittenStatement
from headgate.model.authority import ANY, Authority, Certificate, NetworkAuthority, RevocationList, TypeAuthority
from headgate.model.errors import BadStatement, ChainInvalid, HeadgateError
from headgate.model.limits import MAX_LIST_BYTES
from headgate.model.state import State
from headgate.model.types import matches
from headgate.model.values import brief, render_timestamp
from headgate.trust.certificates import CERTIFICATE, REVOCATIONS
from headgate.trust.presented import PresentedStatements, open_presented
from headgate.trust.statements import said_kind
from headgate.trust.typedefs import TYPE_DEFINITION

NOBODY_NAMED: Final = "nobody was named to believe"
MAX_BESIDE: Final = 1_000
"""Files of a directory that are looked at for lists."""
NOBODY = ""
"""The coordinator where none is named: authority over a network then counts for nothing."""


@dataclass(frozen=True)
class VerifyGround:
    """Verified statements, at one time, and the keys that are believed to own what chains give.

    Where nobody is named, chains are found for whoever they begin at, and none of them proves anything.
    """

    bag: PresentedStatements
    now: datetime
    coordinator: str = NOBODY
    network: str = ANY
    owner: str | None = None

    @property
    def anchored(self) -> bool:
        """Is anyone named to believe?"""
        return self.owner is not None or self.coordinator != NOBODY

    def _owns(self, key: str) -> bool:
        """Does a key own event types?"""
        return not self.anchored or (self.owner is not None and self.same(key, self.owner))

    def unasked(self, chains: Sequence[Reduced]) -> list[str]:
        """What the certificates of chains speak of and nobody was named for: `types`, `networks`."""
        said = {type(one) for chain in chains for link in chain.chain for one in link.authority}
        missing = [("types", TypeAuthority, self.owner is None), ("networks", NetworkAuthority, not self.coordinator)]
        return [word for word, kind, unnamed in missing if unnamed and kind in said]

    @cached_property
    def _standing(self) -> StatementState:
        """Which keys are one principal's."""
        made = StatementState(State())
        for one in sorted(self.bag.successions, key=lambda each: each.number):
            if made.successions.get(one.old) != one:
                made.succeed(one, self.now)
        return made

    def same(self, a: str, b: str) -> bool:
        """Do two keys belong to one principal?"""
        return self._standing.same(a, b)

    def revoked(self, one: Certificate) -> bool:
        """Has its issuer taken it back?"""
        return any(one.id in each.revoked for each in self._lists(one.issuer))

    def known(self, certificate: Certificate) -> bool | None:
        """Was its issuer heard lately enough, and does its key still count?"""
        counts = self._standing.counts
        if not counts(certificate.issuer, self.now):
            return False
        if certificate.freshness is None:
            return True
        heard = max(
            (each.issued for each in self._lists(certificate.issuer) if counts(each.issuer, self.now)), default=None
        )
        return None if heard is None or heard + timedelta(seconds=certificate.freshness) <= self.now else True

    def _lists(self, issuer: str) -> list[RevocationList]:
        return [one for one in self.bag.lists if self.same(one.issuer, issuer)]

    def chains(self, holder: str, wanted: str | None = None) -> tuple[Reduced, ...]:
        """Every chain that gives the holder something, on the type that is wanted; or the reason why none does."""
        chains = discover(self.bag.certificates, holder, self._ground)
        if not chains:
            raise self._why_not(holder)
        fitting = tuple(
            one for one in chains if wanted is None or any(_reaches(each, wanted) for each in one.authority)
        )
        if not fitting:
            raise ChainInvalid(
                f"no chain gives `{brief(holder)}` anything on `{brief(wanted or '')}`",
                remedy="look at what there is, without `--type`",
            )
        return fitting

    @property
    def _ground(self) -> ChainGround:
        """By what chains are judged."""
        return ChainGround(
            coordinator=self.coordinator,
            now=self.now,
            revoked=self.revoked,
            known=self.known,
            same=self.same,
            owners=self._owns,
            network=self.network,
        )

    def _why_not(self, holder: str) -> HeadgateError:
        refusal = why_not(self.bag.certificates, holder, self._ground)
        kinds = {type(one) for each in self.bag.certificates for one in each.authority}
        if isinstance(refusal, ChainInvalid) and NetworkAuthority in kinds and self.coordinator == NOBODY:
            refusal.remedy = "name the coordinating domain with `--coordinator`"
        elif isinstance(refusal, ChainInvalid) and TypeAuthority in kinds and self.anchored and self.owner is None:
            refusal.remedy = "name the owner of the types with `--owner`"
        return refusal


def _reaches(authority: Authority, name: str) -> bool:
    return isinstance(authority, TypeAuthority) and matches(authority.type, name)


def opened(written: Sequence[WrittenStatement], audience: str | None, now: datetime) -> PresentedStatements:
    """The statements of files, verified; the place of a bad one is its file and line."""
    for statement in written:
        with placed(statement.place, exactly=True):
            _check_no_type(statement)
            open_presented([statement.text], audience=audience, now=now)
    return open_presented([one.text for one in written], audience=audience, now=now)


def _check_no_type(statement: WrittenStatement) -> None:
    """Refuse a signed type, which is verified by another command."""
    if said_kind(statement.text) == TYPE_DEFINITION.typ:
        raise BadStatement(
            "it is a signed event type, and no certificate",
            reason="wrong-type",
            remedy="`headgate type verify FILE --coordinator WHO` verifies it",
        )


def certificates_of(written: Sequence[WrittenStatement]) -> list[Certificate]:
    """The certificates of files, whoever they are for and whenever they are good."""
    certificates: list[Certificate] = []
    for statement in written:
        with placed(statement.place, exactly=True):
            _check_no_type(statement)
            certificates.append(CERTIFICATE.read(statement.text).value)
    return certificates


def refuse(error: HeadgateError, names: KeyNames, verdict: dict[str, object] | None = None) -> NoReturn:
    """A refusal is an answer of `verify`, and no failure of it: it is shown, or completes the verdict as JSON."""
    if verdict is None:
        fail(names.told(error), status=1)
    print_json(verdict | {"code": error.code, "why": error.message, "remedy": error.remedy})
    raise typer.Exit(1)


def holder_of(certificates: Sequence[Certificate]) -> str:
    """Whom a bag is for, where that is plain: the one who was given something and gave nothing on."""
    issuers = {one.issuer for one in certificates}
    holders = list(dict.fromkeys(one.subject for one in certificates if one.subject not in issuers))
    if len(holders) != 1:
        raise ChainInvalid(
            "nothing is issued to anyone" if not holders else f"{len(holders)} hold something and give nothing on",
            remedy="say with `--holder` who shows the certificates",
        )
    return holders[0]


def in_order(certificates: Sequence[Certificate]) -> tuple[Certificate, ...]:
    """One chain, from the first issuer to the holder, in whatever order it was given."""
    by_issuer = {one.issuer: one for one in certificates}
    subjects = {one.subject for one in certificates}
    first = [one for one in certificates if one.issuer not in subjects]
    if len(by_issuer) == len(certificates) and len(first) == 1:
        chain = [first[0]]
        while (after := by_issuer.get(chain[-1].subject)) is not None and len(chain) < len(certificates):
            chain.append(after)
        if len(chain) == len(certificates):
            return tuple(chain)
    raise ChainInvalid(
        "the certificates are not one chain",
        remedy="give those that lead from one issuer to the next; `headgate cert verify` finds chains in a bag",
    )


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
        return REVOCATIONS.verify(text, now=now) if said_kind(text) == REVOCATIONS.typ else None
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
