"""Revocation lists: what an issuer has taken back, whole and numbered (Capabilities V.C).

Guarantees: `verify_revocations` is the only way from text to a `RevocationList`, and a list older than a known one is
never taken for news: a number only grows, and a list that says something else has another number.
Leaves out: keeping the newest list of each issuer, and what falls with a revoked statement (`ledger`).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from typing import Final

from headgate.model.authority import RevocationList
from headgate.model.errors import StaleList
from headgate.model.limits import MAX_LIST_BYTES, MAX_REVOKED
from headgate.trust import claims as claim
from headgate.trust.keys import PrivateKey
from headgate.trust.statements import Form, Read, bad, check, open_statement, said_payload, seconds_of, sign

FORM: Final = Form("hg-revocation+jwt", frozenset({"iss", "number", "iat", "revoked"}), limit=MAX_LIST_BYTES)
_ISSUER: Final = re.compile(rb'"iss"\s*:\s*"(did:key:z[1-9A-HJ-NP-Za-km-z]{1,100})"')


def issue_revocations(issuer: PrivateKey, *, number: int, revoked: Collection[str], now: datetime) -> str:
    """All that an issuer has revoked; the same number again is a sign of life."""
    text = sign(issuer, FORM, {"number": number, "iat": seconds_of(now), "revoked": sorted(revoked)})
    read_revocations(text)
    return text


def said_issuer(text: str) -> str:
    """Whose list a text says it is. Nothing is verified: it tells whether a large list is worth reading at all."""
    match = _ISSUER.search(said_payload(text, FORM))
    if match is None:
        raise bad("missing-claim", "the list does not say `iss` as it is written")
    return match[1].decode("ascii")


def verify_revocations(
    text: str, *, issuer: str | None = None, now: datetime | None = None, known: RevocationList | None = None
) -> RevocationList:
    """The list of a text: of this issuer, not from the future, and no older than the one that is known."""
    listed = check(read_revocations(text), audience=None, now=now)
    if issuer is not None and listed.issuer != issuer:
        raise bad("wrong-issuer", f"the list is of `{listed.issuer}`, not of `{issuer}`")
    if known is not None:
        check_newer(listed, known)
    return listed


def read_revocations(text: str) -> Read[RevocationList]:
    """What a list says, whenever it was made."""
    signed = open_statement(text, FORM)
    claims = signed.claims
    ids = [claim.identifier(one, "revoked") for one in claim.listed(claims["revoked"], "revoked", 0, MAX_REVOKED)]
    revoked = frozenset(ids)
    if len(revoked) != len(ids):
        raise bad("bad-claim", "`revoked` names one twice")
    issued = claim.time(claims["iat"], "iat")
    return Read(
        RevocationList(signed.issuer, claim.whole(claims["number"], "number"), issued, revoked), signed.digest, issued
    )


def check_newer(newer: RevocationList, known: RevocationList) -> None:
    """Refuse a list that is older than a known one of the same issuer, or says otherwise under its number."""
    if newer.issuer != known.issuer:
        raise bad("wrong-issuer", f"the list is of `{newer.issuer}`, not of `{known.issuer}`")
    if newer.number < known.number:
        raise StaleList(
            f"the list has number `{newer.number}`, and `{known.number}` is known",
            remedy="ask its issuer for the newest",
        )
    if newer.number == known.number and newer.revoked != known.revoked:
        raise StaleList(
            f"two lists with number `{newer.number}` say different things", remedy="let the issuer make a new one"
        )
    if newer.number == known.number and newer.issued < known.issued:
        raise StaleList("the same list was issued again since", remedy="ask its issuer for the newest")
