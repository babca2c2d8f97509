"""A bag of signed statements, as someone shows it: sorted by kind, and every signature verified (Capabilities III.B).

Guarantees: `open_bag` is the only way from texts to a `Bag`. One bad statement refuses the whole, with its place in the
bag and its reason. Nothing is issued in the future, by more than clocks may differ. Certificates may be over or yet to
begin, which chains decide on; identity statements are good now.
Leaves out: whether anything follows from it (`authority.statement_state`), and signed types, which are not shown but
declared.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from headgate.model.authority import Certificate, Identity, RevocationList, Succession
from headgate.model.errors import BadStatement, HeadgateError, TooLarge
from headgate.model.values import brief
from headgate.trust import certificates, identities, revocations, successions
from headgate.trust.certificates import verify_certificate
from headgate.trust.guests import Crossing, read_crossing
from headgate.trust.identities import verify_identity
from headgate.trust.revocations import verify_revocations
from headgate.trust.statements import Verifier, check, read_through
from headgate.trust.successions import verify_succession

MAX_SHOWN: Final = 128
"""Statements of one bag."""

MAX_SHOWN_CHARS: Final = 900_000
"""Characters of all statements of one bag."""

_MAX_HEADER: Final = 1_000
Statement: TypeAlias = Certificate | Identity | Succession | RevocationList | Crossing


@dataclass(frozen=True, slots=True)
class Bag:
    """Verified statements."""

    certificates: tuple[Certificate, ...] = ()
    identities: tuple[Identity, ...] = ()
    successions: tuple[Succession, ...] = ()
    lists: tuple[RevocationList, ...] = ()
    crossings: tuple[Crossing, ...] = ()


def open_bag(texts: Sequence[str], *, audience: str | None, now: datetime, verifier: Verifier | None = None) -> Bag:
    """The statements of a bag, in order, each kind on its own; the same one twice counts once."""
    # 1. Sizes.
    if len(texts) > MAX_SHOWN:
        raise TooLarge(f"`{len(texts)}` statements are more than MAX_SHOWN ({MAX_SHOWN})", remedy="show fewer")
    if sum(map(len, texts)) > MAX_SHOWN_CHARS:
        raise TooLarge(f"the statements are longer than MAX_SHOWN_CHARS ({MAX_SHOWN_CHARS})", remedy="show fewer")
    # 2. Each by the function of its kind.
    every: list[Statement] = []
    for text in dict.fromkeys(texts):
        try:
            every.append(_opened(text, audience, now, verifier))
        except HeadgateError as error:
            raise error.at(f"statement {texts.index(text) + 1}") from None
    return Bag(
        tuple(one for one in every if isinstance(one, Certificate)),
        tuple(one for one in every if isinstance(one, Identity)),
        tuple(one for one in every if isinstance(one, Succession)),
        tuple(one for one in every if isinstance(one, RevocationList)),
        tuple(one for one in every if isinstance(one, Crossing)),
    )


def _opened(text: str, audience: str | None, now: datetime, verifier: Verifier | None) -> Statement:
    kind = said_kind(text)
    if kind == certificates.FORM.typ:
        return verify_certificate(text, audience=audience, shown=now, verifier=verifier)
    if kind == successions.FORM.typ:
        return verify_succession(text, now=now, verifier=verifier)
    if kind == revocations.FORM.typ:
        return verify_revocations(text, now=now)
    if kind == identities.TYPE:
        try:
            crossing = read_through(verifier, text, read_crossing)
        except BadStatement:
            return verify_identity(text, audience=audience, now=now, verifier=verifier)
        return check(crossing, audience=audience, now=now)
    raise BadStatement(
        f"a statement `{brief(kind)}` is not shown",
        reason="wrong-type",
        remedy="show certificates, identity statements, successions and revocation lists",
    )


def said_kind(text: str) -> str:
    """What a statement says it is; nothing of it is believed yet."""
    header = text.partition(".")[0]
    try:
        if not 0 < len(header) <= _MAX_HEADER:
            raise ValueError("no header")  # noqa: TRY301 - as with all else that is no statement
        said = json.loads(urlsafe_b64decode(header + "=" * (-len(header) % 4)))
        kind = said.get("typ") if isinstance(said, dict) else None
    except (ValueError, RecursionError):
        kind = None
    if not isinstance(kind, str):
        raise BadStatement(f"`{brief(text)}` is not a signed statement", reason="malformed", remedy="show it whole")
    return kind
