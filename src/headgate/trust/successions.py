"""Successions: a principal goes on under a new key.

Guarantees: the old key names the new one and signs, and the new key has agreed: nobody can make a stranger's key their
own successor, and with it claim what the stranger holds. A later statement of the old key can say until when it counts;
it can never name another successor, and never put off an end: one who has stolen a key that ended signs in vain.
Leaves out: which keys are then one principal (`decide`). An old key that was stolen can still sign; let it end.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from typing import Final

from headgate.model.authority import Succession
from headgate.model.errors import BadDefinition
from headgate.trust import claims as claim
from headgate.trust.keys import PrivateKey, PublicKey
from headgate.trust.statements import (
    Form,
    Read,
    Verifier,
    bad,
    check,
    key_name,
    open_statement,
    read_through,
    seconds_of,
    sign,
)

FORM: Final = Form("hg-successor+jwt", frozenset({"iss", "sub", "number", "iat", "consent"}), frozenset({"until"}))
_CONSENT: Final = b"headgate succession 1: consent"
_CONSENT_CHARS: Final = 86


def issue_succession(
    old: PrivateKey,
    *,
    new: str,
    consent: str,
    now: datetime,
    number: int = 0,
    until: datetime | None = None,
) -> str:
    """The old key's word that the new one follows it; `consent` is the new key's (`consent_to`)."""
    said = {"sub": new, "number": number, "iat": seconds_of(now), "consent": consent}
    text = sign(old, FORM, said if until is None else {**said, "until": seconds_of(until)})
    read_succession(text)
    return text


def amend_succession(old: PrivateKey, text: str, *, until: datetime | None, now: datetime) -> str:
    """The same succession with the next number and an earlier end, or its first."""
    known = read_succession(text).value
    consent = open_statement(text, FORM).claims["consent"]
    made = issue_succession(old, new=known.new, consent=consent, now=now, number=known.number + 1, until=until)
    check_later(read_succession(made).value, known)
    return made


def consent_to(old: PublicKey, new: PrivateKey) -> str:
    """The new key's word that it follows the old one."""
    return urlsafe_b64encode(new.sign(_consent(old.did, new.public.did))).rstrip(b"=").decode()


def verify_succession(
    text: str, *, now: datetime | None = None, known: Succession | None = None, verifier: Verifier | None = None
) -> Succession:
    """The succession of a text, no older than the one that is known."""
    succession = check(read_through(verifier, text, read_succession), audience=None, now=now)
    if known is not None:
        check_later(succession, known)
    return succession


def read_succession(text: str) -> Read[Succession]:
    """What a succession says, whenever it was made."""
    signed = open_statement(text, FORM)
    claims = signed.claims
    new = key_name(claims["sub"], "sub")
    consent = claim.text(claims["consent"], "consent")
    if not _agreed(signed.issuer, new, consent):
        raise bad(
            "no-consent", f"`{new}` did not agree to follow `{signed.issuer}`", "let the new key sign its consent"
        )
    until = claim.time(claims["until"], "until") if "until" in claims else None
    try:
        succession = Succession(signed.issuer, new, claim.whole(claims["number"], "number"), until)
    except BadDefinition as error:
        raise bad("bad-claim", error.message, error.remedy) from None
    return Read(succession, signed.digest, claim.time(claims["iat"], "iat"))


def check_later(newer: Succession, known: Succession) -> None:
    """Refuse a succession that is older than a known one of the same key, or contradicts it."""
    if newer.old != known.old:
        raise bad("wrong-issuer", f"the succession is of `{newer.old}`, not of `{known.old}`")
    if newer.new != known.new:
        raise bad("second-successor", f"`{newer.old}` has a successor already, `{known.new}`", "rotate that one")
    if newer.ends_before(known):
        return
    if newer.number < known.number:
        raise bad("stale", f"the succession has number `{newer.number}`, and `{known.number}` is known")
    if newer.number == known.number and newer.until != known.until:
        raise bad("stale", f"two successions with number `{newer.number}` say different things")
    if known.until is not None and (newer.until is None or newer.until > known.until):
        raise bad("later-end", f"`{newer.old}` has an end already, which is only ever brought forward")


def _agreed(old: str, new: str, consent: str) -> bool:
    if len(consent) != _CONSENT_CHARS or not consent.isascii():
        return False
    try:
        signature = urlsafe_b64decode(consent + "==")
    except ValueError:
        return False
    canonical = urlsafe_b64encode(signature).rstrip(b"=").decode() == consent
    return canonical and PublicKey.from_did(new).verify(signature, _consent(old, new))


def _consent(old: str, new: str) -> bytes:
    """What the new key signs. Names of keys have no line breaks, so that no two pairs read the same."""
    return b"\n".join((_CONSENT, old.encode(), new.encode()))
