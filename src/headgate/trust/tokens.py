"""Session tokens: what a principal shows with each request after its handshake; and the token for figures.

Guarantees: a token is good only if this broker signed it as a session token, for this domain, and it has not expired.
`verify` is the only way from text to a `Session`, and every failure is the same refusal. Figures (`/metrics`) are read
with a secret text in a file, by programs that cannot open a session: without a file that only its owner can read, and a
text of at least MIN_CHARS in it, no token is right. Comparing takes as long whatever is offered, and the file is read
each time, so that a new token counts at once.
Leaves out: ending a session early, which is the ledger's part (a principal that may not connect is refused whatever
it shows), and remembering what was verified, which is the caller's.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from headgate.model.errors import BadKey, HeadgateError, NotAuthenticated
from headgate.model.limits import MAX_CLOCK_SKEW_SECONDS, MAX_TOKEN_CHARS, SESSION_SECONDS
from headgate.trust import claims as claim
from headgate.trust.keys import PrivateKey, PublicKey, Random, read_secret, write_secret
from headgate.trust.statements import Form, open_statement, seconds_of, sign

SESSION: Final = Form("hg-session+jwt", frozenset({"iss", "sub", "jti", "iat", "exp", "aud"}), limit=MAX_TOKEN_CHARS)
_SKEW: Final = timedelta(seconds=MAX_CLOCK_SKEW_SECONDS)


@dataclass(frozen=True, slots=True)
class Session:
    """A verified session."""

    principal_did: str
    id: str
    expires: datetime


def issue(
    broker: PrivateKey,
    *,
    principal: PublicKey,
    audience: str,
    now: datetime,
    seconds: float = SESSION_SECONDS,
    random: Random = secrets.token_bytes,
) -> str:
    """A token for a principal that has proved who it is."""
    issued = seconds_of(now)
    times = {"iat": issued, "exp": issued + max(1, int(seconds))}
    return sign(broker, SESSION, {"sub": principal.did, "jti": random(16).hex(), **times, "aud": audience})


def verify(raw: str, *, broker: PublicKey, audience: str, now: datetime) -> Session:
    """The session of a token, or the one refusal."""
    try:
        # 1. to 6. are those of `open_statement`, 3. before anything is made of its content.
        signed = open_statement(raw, SESSION)
        claims = signed.claims
        principal, id = claim.key_name(claims["sub"], "sub"), claim.text(claims["jti"], "jti")
        issued, expires = (claim.time(claims[name], name) for name in ("iat", "exp"))
    except HeadgateError:
        raise _refused() from None
    # 7. By this broker, for this domain.
    if signed.issuer != broker.did or claims["aud"] != audience:
        raise _refused()
    # 8. Validity.
    if not issued - _SKEW <= now < expires:
        raise _refused()
    return Session(principal, id, expires)


def _refused() -> NotAuthenticated:
    return NotAuthenticated("the session token is not good", remedy="prove who you are again")


# -- figures --------------------------------------------------------------------------------------------------

MIN_CHARS: Final = 32
MAX_CHARS: Final = 512


def make_token(path: Path) -> None:
    """Write a new token."""
    write_secret(path, secrets.token_urlsafe(32).encode() + b"\n")


def load_token(path: Path) -> bytes:
    """The token of a file."""
    token = read_secret(path, MAX_CHARS).strip()
    if len(token) < MIN_CHARS:
        raise BadKey(f"`{path}` is no token", remedy=f"write at least {MIN_CHARS} random characters to it")
    return token


def is_token(path: Path, offered: str) -> bool:
    """Is this the token of a file?"""
    try:
        return hmac.compare_digest(load_token(path), offered.encode())
    except HeadgateError:
        return False
