"""Session tokens: what a principal shows with each request after its handshake.

Guarantees: a token is good only if this broker signed it as a session token, for this domain, and it has not expired.
`verify` is the only way from text to a `Session`, and every failure is the same refusal.
Leaves out: ending a session early, which is the ledger's part (a principal that may not connect is refused whatever
it shows), and remembering what was verified, which is the caller's.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import jwt

from headgate.model.errors import BadKey, NotAuthenticated
from headgate.model.limits import MAX_CLOCK_SKEW_SECONDS, MAX_TOKEN_CHARS, SESSION_SECONDS
from headgate.trust.keys import PrivateKey, PublicKey, Random

TYPE: Final = "hg-session+jwt"
_ALGORITHM: Final = "EdDSA"
_HEADER: Final = {"alg": _ALGORITHM, "typ": TYPE}
_CLAIMS: Final = frozenset({"iss", "sub", "jti", "iat", "exp", "aud"})
_SKEW: Final = timedelta(seconds=MAX_CLOCK_SKEW_SECONDS)
_JWS: Final = jwt.PyJWS(algorithms=[_ALGORITHM])


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
    issued = int(now.timestamp())
    claims = {
        "iss": broker.public.did,
        "sub": principal.did,
        "jti": random(16).hex(),
        "iat": issued,
        "exp": issued + max(1, int(seconds)),
        "aud": audience,
    }
    return _JWS.encode(json.dumps(claims).encode(), broker.native(), algorithm=_ALGORITHM, headers={"typ": TYPE})


def verify(raw: str, *, broker: PublicKey, audience: str, now: datetime) -> Session:
    """The session of a token, or the one refusal."""
    # 1. Size.
    if len(raw) > MAX_TOKEN_CHARS or not raw.isascii():
        raise _refused()
    try:
        # 2. Header: a session token and nothing else, before anything is made of its content.
        if jwt.get_unverified_header(raw) != _HEADER:
            raise _refused()
        # 3. The broker's signature over the received bytes.
        found = _JWS.decode_complete(raw, broker.native(), algorithms=[_ALGORITHM])
        claims = json.loads(found["payload"])
        # 4. Structure.
        session, issued = _session(claims)
    except (jwt.PyJWTError, BadKey, ValueError, OverflowError, RecursionError):
        raise _refused() from None
    # 5. By this broker, for this domain.
    if claims["iss"] != broker.did or claims["aud"] != audience:
        raise _refused()
    # 6. Validity.
    if not issued - _SKEW <= now < session.expires:
        raise _refused()
    return session


def _session(claims: Any) -> tuple[Session, datetime]:
    """The claims as a session with the time it was issued; an error if they are not exactly those of one."""
    if not isinstance(claims, Mapping) or claims.keys() != _CLAIMS:
        raise ValueError("other claims")
    if not all(type(claims[name]) is str for name in ("iss", "sub", "jti", "aud")):
        raise ValueError("not text")
    if not all(type(claims[name]) is int for name in ("iat", "exp")):
        raise ValueError("not a time")
    principal = PublicKey.from_did(claims["sub"])
    issued, expires = (datetime.fromtimestamp(claims[name], UTC) for name in ("iat", "exp"))
    return Session(principal.did, claims["jti"], expires), issued


def _refused() -> NotAuthenticated:
    return NotAuthenticated("the session token is not good", remedy="prove who you are again")
