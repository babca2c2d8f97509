"""Rolling keys of a domain's role services: which there are, when each signs, and the document that vouches for them.

Guarantees: `verify_role_keys` is the only way from text to `RoleKeys`. The domain's own key signs the document, so that
it signs seldom, and a rolling key that is stolen soon signs for nothing. There are two tables in it: what is good for
hours and what is good for months is signed by different keys (OASIS 4.4), and none of one table passes in the other. A
document older than a known one is never taken for news, and none is good for longer than MAX_ROLE_KEYS_SECONDS.
Leaves out: making, keeping and using the private halves (`role_table`), and how the document travels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

from headgate.model.authority import Validity
from headgate.model.errors import BadDefinition, StaleList
from headgate.model.limits import (
    MAX_APPOINTMENT_SECONDS,
    MAX_ROLE_CERTIFICATE_SECONDS,
    MAX_ROLE_KEYS,
    MAX_ROLE_KEYS_BYTES,
    MAX_ROLE_KEYS_SECONDS,
)
from headgate.model.values import brief, render_timestamp
from headgate.trust import claims as claim
from headgate.trust.keys import PrivateKey, PublicKey
from headgate.trust.statements import Form, Read, bad, check, key_of, open_statement, seconds_of, sign

Use: TypeAlias = Literal["short", "long"]
"""What a rolling key signs: what is good for hours, or for months."""

USES: Final[tuple[Use, ...]] = get_args(Use)
LONGEST: Final[Mapping[Use, timedelta]] = {
    "short": timedelta(seconds=MAX_ROLE_CERTIFICATE_SECONDS),
    "long": timedelta(seconds=MAX_APPOINTMENT_SECONDS),
}
"""How long what a key signs may be good."""
FORM: Final = Form("hg-role-keys+jwt", frozenset({"iss", "number", "iat", "exp", "keys"}), limit=MAX_ROLE_KEYS_BYTES)
_GOOD_FOR: Final = timedelta(seconds=MAX_ROLE_KEYS_SECONDS)
_ENTRIES: Final = frozenset({"kid", "use", "from", "until", "end"})


@dataclass(frozen=True, slots=True)
class RollingKey:
    """A key that signs from `start` until just before `until`; what it signed counts until just before `end`."""

    key: PublicKey
    use: Use
    start: datetime
    until: datetime
    end: datetime

    def __post_init__(self) -> None:
        if not self.start <= self.until <= self.end:
            raise BadDefinition(f"the times of the rolling key `{self.kid}` are out of order")
        if self.end - self.start > _most(self.use):
            raise BadDefinition(f"the rolling key `{self.kid}` counts for longer than what it signs")

    @property
    def kid(self) -> str:
        """How statements name it: by its own name."""
        return self.key.did

    def signs(self, now: datetime) -> bool:
        """Is this one of the moments at which it signs?"""
        return self.start <= now < self.until

    def is_over(self, now: datetime) -> bool:
        """Is all that it signed past its end?"""
        return self.end <= now


@dataclass(frozen=True, slots=True)
class RoleKeys:
    """The rolling keys that a domain vouches for, by `kid`."""

    domain: str
    number: int
    issued: datetime
    until: datetime
    keys: Mapping[str, RollingKey]

    def find(self, kid: str, use: Use) -> RollingKey:
        """The key of this name, if it is one of this table."""
        key = self.keys.get(kid)
        if key is None:
            raise bad(
                "unknown-key", f"`{brief(kid)}` is no rolling key of `{self.domain}`", "fetch the domain's keys again"
            )
        if key.use != use:
            raise bad("wrong-key", f"`{kid}` signs what is good for {_WORDS[key.use]}, and nothing else")
        return key


_WORDS: Final[Mapping[Use, str]] = {"short": "hours", "long": "months"}


def _most(use: Use) -> timedelta:
    """How long a key may count: it rolls at the latest when the first of what it signed is over."""
    return 2 * LONGEST[use]


# -- the document ---------------------------------------------------------------------------------------------


def issue_role_keys(
    domain: PrivateKey, *, number: int, keys: Iterable[RollingKey], now: datetime, good_for: timedelta = _GOOD_FOR
) -> str:
    """The document of a domain's rolling keys; the same number again is a sign of life."""
    claims = {
        "number": number,
        "iat": seconds_of(now),
        "exp": seconds_of(now + good_for),
        "keys": [_key_to_json(one) for one in sorted(keys, key=lambda one: (one.use, one.start, one.kid))],
    }
    text = sign(domain, FORM, claims)
    read_role_keys(text)  # nothing leaves here that would be refused elsewhere
    return text


def verify_role_keys(
    text: str, *, domain: str | None = None, now: datetime | None = None, known: RoleKeys | None = None
) -> RoleKeys:
    """The keys of a document: of this domain, good at this time, and no older than the document that is known."""
    # 1. to 6. are those of `open_statement`; the claims are read in `read_role_keys`; 7. and 8. those of `check`.
    keys = check(read_role_keys(text), audience=None, now=now)
    # 9. Whose keys they are.
    if domain is not None and keys.domain != domain:
        raise bad("wrong-issuer", f"the keys are of `{keys.domain}`, not of `{domain}`")
    # 10. News.
    if known is not None:
        check_newer(keys, known)
    return keys


def read_role_keys(text: str) -> Read[RoleKeys]:
    """What a document says, whenever it is good."""
    signed = open_statement(text, FORM)
    claims = signed.claims
    issued, until = claim.time(claims["iat"], "iat"), claim.time(claims["exp"], "exp")
    if not issued < until:
        raise bad("bad-claim", "the document ends before it is issued", "let `exp` be later than `iat`")
    if until - issued > _GOOD_FOR:
        raise bad("too-long", f"the keys are good for longer than MAX_ROLE_KEYS_SECONDS ({MAX_ROLE_KEYS_SECONDS})")
    listed = [_key(one) for one in claim.listed(claims["keys"], "keys", 0, MAX_ROLE_KEYS)]
    keys = {one.kid: one for one in listed}
    if len(keys) != len(listed):
        raise bad("bad-claim", "`keys` names one twice")
    if signed.issuer in keys:
        raise bad("bad-claim", "a domain's own key is no rolling key", "make a new one")
    found = RoleKeys(signed.issuer, claim.whole(claims["number"], "number"), issued, until, MappingProxyType(keys))
    return Read(found, signed.digest, issued, Validity(None, until))


def check_newer(newer: RoleKeys, known: RoleKeys) -> None:
    """Refuse a document that is older than a known one of the same domain, or says otherwise under its number."""
    if newer.domain != known.domain:
        raise bad("wrong-issuer", f"the keys are of `{newer.domain}`, not of `{known.domain}`")
    if newer.number < known.number or (newer.number == known.number and newer.issued < known.issued):
        raise StaleList(
            f"the keys have number `{newer.number}` of `{render_timestamp(newer.issued)}`, and newer ones are known",
            remedy="ask the domain for the newest",
        )
    if newer.number == known.number and newer.keys != known.keys:
        raise StaleList(f"two documents with number `{newer.number}` say different things", remedy="roll the keys")


def _key(given: object) -> RollingKey:
    fields = claim.mapped(given, "keys", len(_ENTRIES))
    if fields.keys() != _ENTRIES:
        odd = min(fields.keys() ^ _ENTRIES)
        raise bad("bad-claim", f"a rolling key does not say `{brief(odd)}`, or should not", ", ".join(sorted(_ENTRIES)))
    use = fields["use"]
    if use not in USES:
        raise bad("bad-claim", f"`{brief(use)}` is no use of a rolling key", ", ".join(USES))
    times = (claim.time(fields[name], name) for name in ("from", "until", "end"))
    try:
        return RollingKey(key_of(fields["kid"], "kid"), use, *times)
    except BadDefinition as error:
        raise bad("bad-claim", error.message) from None


def _key_to_json(one: RollingKey) -> dict[str, Any]:
    times = {"from": one.start, "until": one.until, "end": one.end}
    return {"kid": one.kid, "use": one.use, **{name: seconds_of(time) for name, time in times.items()}}
