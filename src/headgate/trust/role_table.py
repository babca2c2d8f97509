"""The rolling table of a domain's role services: it makes keys, signs with each in its time, and forgets them.

Guarantees: there is always a key that signs and one that follows it, so that whoever has fetched the document knows the
next key before it signs. The private half goes when a key's time to sign is over; the public half stays until all that
it signed is over. All processes of a node share one table, because there is one document that must name every key.
Leaves out: where the table is kept (`role_store`), a passphrase (a key is worth a few days, and one that leaked is
ended), and what is signed (`role_statements`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from headgate.model.errors import BadConfig, BadKey, Damaged, HeadgateError, NotFound, TooMany
from headgate.model.limits import MAX_ROLE_KEYS
from headgate.model.values import EPOCH, brief
from headgate.trust import claims as claim
from headgate.trust.keys import PrivateKey, PublicKey, Random
from headgate.trust.role_keys import LONGEST, USES, RoleKeys, RollingKey, Use, issue_role_keys, verify_role_keys
from headgate.trust.role_store import Store
from headgate.trust.statements import seconds_of

_FORMAT: Final = 1
_SECOND: Final = timedelta(seconds=1)
_SECRET_CHARS: Final = 64
_MOST_PACED: Final = MAX_ROLE_KEYS // 4
"""Keys of one use at a steady pace; the rest is room for clocks that jump and keys that are ended."""


@dataclass(frozen=True, slots=True)
class RollingPace:
    """A new key `every` so often; what it signs is good for `lasting` at most."""

    every: timedelta
    lasting: timedelta


PACES: Final[Mapping[Use, RollingPace]] = MappingProxyType(
    {
        "short": RollingPace(timedelta(hours=1), LONGEST["short"]),
        "long": RollingPace(timedelta(days=7), LONGEST["long"]),
    }
)


@dataclass(frozen=True, slots=True)
class Signer:
    """A rolling key with its private half, and the domain that it signs for."""

    issuer: str
    key: PrivateKey
    rolling: RollingKey


@dataclass(frozen=True, slots=True)
class OwnKey:
    """A key of the table: the private half while it may sign, and when the public half goes, too."""

    public: RollingKey
    private: PrivateKey | None
    forget: datetime


@dataclass(frozen=True, slots=True)
class KeyTable:
    """All keys of a domain; each change has a larger number."""

    number: int = 0
    keys: tuple[OwnKey, ...] = ()


# -- rolling --------------------------------------------------------------------------------------------------


class RollingTable:
    """The rolling keys of a domain, in a store that several processes may share."""

    def __init__(
        self,
        domain: PrivateKey,
        store: Store,
        paces: Mapping[Use, RollingPace] = PACES,
        random: Random = secrets.token_bytes,
    ) -> None:
        for use in USES:
            _check_pace(use, paces[use])
        self._domain = domain
        self._store = store
        self._paces = paces
        self._random = random
        self._read: tuple[object, KeyTable] | None = None

    def signer(self, use: Use, now: datetime) -> Signer:
        """The key that signs now; a new one is made if it is time."""
        issuer = self._domain.public.did
        signing = [
            Signer(issuer, one.private, one.public)
            for one in self._rolled(now).keys
            if one.public.use == use and one.public.signs(now) and one.private is not None
        ]
        return max(signing, key=lambda one: (one.rolling.start, one.rolling.kid))

    def document(self, now: datetime) -> str:
        """What vouches for the keys, to be handed to whoever asks."""
        table = self._rolled(now)
        return issue_role_keys(self._domain, number=table.number, keys=(one.public for one in table.keys), now=now)

    def keys(self, now: datetime) -> RoleKeys:
        """The keys as others know them."""
        return verify_role_keys(self.document(now), domain=self._domain.public.did, now=now)

    def end(self, kid: str, now: datetime) -> None:
        """Let a key that may be known to others count no more, and all that it signed with it."""
        with self._store.alone():
            table = self._load()
            if kid not in {one.public.kid for one in table.keys}:
                raise NotFound(f"there is no rolling key `{brief(kid)}`", remedy="it may have ended long ago")
            keys = tuple(_ended(one, now) if one.public.kid == kid else one for one in table.keys)
            self._save(KeyTable(_next(table, now), keys))

    def _rolled(self, now: datetime) -> KeyTable:
        """The table as it should be now."""
        table = self._load()
        if not self._is_due(table, now):
            return table
        with self._store.alone():
            table = self._load()
            if not self._is_due(table, now):  # another process was first
                return table
            kept = _kept(table, now)
            new = tuple(self._new(use, start) for use in USES for start in self._starts(kept, use, now))
            return self._save(KeyTable(_next(table, now), kept + new))

    def _is_due(self, table: KeyTable, now: datetime) -> bool:
        kept = _kept(table, now)
        return kept != table.keys or any(self._starts(kept, use, now) for use in USES)

    def _starts(self, kept: Sequence[OwnKey], use: Use, now: datetime) -> list[datetime]:
        """When the keys begin that are missing: one that signs now, one that follows, or none."""
        every = self._paces[use].every
        mine = [one.public for one in kept if one.public.use == use and one.private is not None]
        starts = [] if any(one.signs(now) for one in mine) else [_whole(now)]
        ends = [one.until for one in mine] + [start + every for start in starts]
        last = max(ends)
        return [*starts, last] if last <= now + every else starts

    def _new(self, use: Use, start: datetime) -> OwnKey:
        key = PrivateKey.generate(self._random)
        until = start + self._paces[use].every
        end = until + self._paces[use].lasting
        return OwnKey(RollingKey(key.public, use, start, until, end), key, end)

    def _load(self) -> KeyTable:
        stamp = self._store.stamp()
        read = self._read
        if read is not None and read[0] == stamp:
            return read[1]
        data = self._store.read()
        table = KeyTable() if data is None else _parsed(data, self._domain.public, self._store.name)
        self._read = (stamp, table)  # a newer file under an older stamp is only read again
        return table

    def _save(self, table: KeyTable) -> KeyTable:
        if len(table.keys) > MAX_ROLE_KEYS:
            raise TooMany(
                f"there are more rolling keys than MAX_ROLE_KEYS ({MAX_ROLE_KEYS})",
                remedy="set the clock right, or wait until some are over",
            )
        self._store.write(_written(table, self._domain.public))
        self._read = None
        return table


def _kept(table: KeyTable, now: datetime) -> tuple[OwnKey, ...]:
    """What of a table is still of use."""
    return tuple(_older(one, now) for one in table.keys if now < one.forget)


def _older(one: OwnKey, now: datetime) -> OwnKey:
    """A key without its private half once it signs no more."""
    return one if one.private is None or now < one.public.until else replace(one, private=None)


def _ended(one: OwnKey, now: datetime) -> OwnKey:
    """A key that counts no more; it is remembered for as long as it would have counted, so that it is known to be."""
    at = max(one.public.start, _whole(now))
    ended = replace(one.public, until=min(one.public.until, at), end=min(one.public.end, at))
    return OwnKey(ended, None, one.forget)


def _next(table: KeyTable, now: datetime) -> int:
    """A larger number; it is at least the time, so that a table that was lost is not taken for an old one."""
    return max(table.number + 1, seconds_of(now))


def _whole(now: datetime) -> datetime:
    """The time in whole seconds, rounded down, as statements say it."""
    return EPOCH + timedelta(seconds=seconds_of(now))


def _check_pace(use: Use, pace: RollingPace) -> None:
    if pace.every % _SECOND or pace.lasting % _SECOND:
        raise BadConfig(f"the rolling keys `{use}` have a pace that is not in whole seconds")
    if not _SECOND <= pace.every <= pace.lasting <= LONGEST[use]:
        raise BadConfig(
            f"the rolling keys `{use}` cannot roll every `{pace.every}` for what is good for `{pace.lasting}`",
            remedy=f"a key rolls before what it signed is over, and that is good for `{LONGEST[use]}` at most",
        )
    if pace.lasting / pace.every > _MOST_PACED:
        raise BadConfig(
            f"rolling keys `{use}` every `{pace.every}` for what is good for `{pace.lasting}` are too many",
            remedy=f"let at most {_MOST_PACED} be needed at one time",
        )


# -- writing and reading --------------------------------------------------------------------------------------


def _written(table: KeyTable, domain: PublicKey) -> bytes:
    document = {
        "format": _FORMAT,
        "domain": domain.did,
        "number": table.number,
        "keys": [_key_to_json(one) for one in table.keys],
    }
    return json.dumps(document, indent=1).encode("ascii")


def _key_to_json(one: OwnKey) -> dict[str, Any]:
    public = one.public
    times = {"from": public.start, "until": public.until, "end": public.end, "forget": one.forget}
    secret = None if one.private is None else one.private.native().private_bytes_raw().hex()
    return {"kid": public.kid, "use": public.use, **{n: seconds_of(t) for n, t in times.items()}, "secret": secret}


def _parsed(data: bytes, domain: PublicKey, name: str) -> KeyTable:
    """The table of a file; the words of an error never have a key's private half in them."""
    try:
        document = json.loads(data)
        whose = PublicKey.from_did(document["domain"])
        table = KeyTable(claim.whole(document["number"], "number"), tuple(_own_key(one) for one in document["keys"]))
        well_formed = document["format"] == _FORMAT and _differ(table.keys)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, HeadgateError):
        well_formed = False
    if not well_formed:
        raise Damaged(
            f"the rolling keys in `{name}` are damaged",
            remedy="move the file away: new keys are made, and certificates have to be issued again",
        )
    if whose != domain:
        raise BadKey(
            f"`{name}` has the rolling keys of `{whose.did}`", remedy="give each domain a directory of its own"
        )
    return table


def _own_key(fields: Any) -> OwnKey:
    start, until, end, forget = (claim.time(fields[name], name) for name in ("from", "until", "end", "forget"))
    if fields["use"] not in USES:
        raise ValueError("use")
    public = RollingKey(PublicKey.from_did(fields["kid"]), fields["use"], start, until, end)
    if fields["secret"] is None:
        return OwnKey(public, None, forget)
    if len(fields["secret"]) != _SECRET_CHARS:
        raise ValueError("secret")
    raw = bytes.fromhex(fields["secret"])
    private = PrivateKey.generate(lambda _: raw)
    if private.public != public.key:
        raise ValueError("kid")
    return OwnKey(public, private, forget)


def _differ(keys: Iterable[OwnKey]) -> bool:
    names = [one.public.kid for one in keys]
    return len(set(names)) == len(names)
