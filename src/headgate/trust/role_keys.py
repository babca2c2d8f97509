"""Rolling keys of a domain's role services: the table that makes them, and the document that vouches for them.

Guarantees: `ROLE_KEYS.verify` is the only way from text to `RoleKeys`. The domain's own key signs the document, so that
it signs seldom, and a rolling key that is stolen soon signs for nothing. There are two tables in it: what is good for
hours and what is good for months is signed by different keys (OASIS 4.4), and none of one table passes in the other. A
document older than a known one is never taken for news, and none is good for longer than MAX_ROLE_KEYS_SECONDS.
There is always a key that signs and one that follows it, so that whoever has fetched the document knows the next key
before it signs. The private half goes when a key's time to sign is over; the public half stays until all that it signed
is over. All processes of a node share one table, in a file for its owner's eyes only that is put in its place whole, on
disk. Whoever changes it has a lock, which goes with a process that is killed; whoever reads it needs none.
Leaves out: how the document travels, a passphrase (a key is worth a few days, and one that leaked is ended), and what
is signed (`role_statements`).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

from headgate.model import errors, limits
from headgate.model.errors import BadDefinition, BadKey, Damaged, HeadgateError, NotFound, StaleList
from headgate.model.limits import MAX_APPOINTMENT_SECONDS, MAX_ROLE_KEYS, MAX_ROLE_KEYS_BYTES, MAX_ROLE_KEYS_SECONDS
from headgate.model.values import EPOCH, brief, render_timestamp
from headgate.trust import claims as claim
from headgate.trust.claims import Claim, ClaimTable, bad, key_of
from headgate.trust.keys import PrivateKey, PublicKey, Random, alone_in, check_directory, read_secret, replace_file
from headgate.trust.statements import Signed, StatementKind, seconds_of

Use: TypeAlias = Literal["short", "long"]
"""What a rolling key signs: what is good for hours, or for months."""

USES: Final[tuple[Use, ...]] = get_args(Use)
LONGEST: Final[Mapping[Use, timedelta]] = {
    "short": timedelta(seconds=limits.MAX_ROLE_CERTIFICATE_SECONDS),
    "long": timedelta(seconds=MAX_APPOINTMENT_SECONDS),
}
"""How long what a key signs may be good."""
_GOOD_FOR: Final = timedelta(seconds=MAX_ROLE_KEYS_SECONDS)


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
        if self.end - self.start > 2 * LONGEST[self.use]:  # it rolls when the first of what it signed is over
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


# -- the document ---------------------------------------------------------------------------------------------


def issue_role_keys(
    domain: PrivateKey, *, number: int, keys: Iterable[RollingKey], now: datetime, good_for: timedelta = _GOOD_FOR
) -> str:
    """The document of a domain's rolling keys; the same number again is a sign of life."""
    claims = {
        "number": number,
        "iat": seconds_of(now),
        "exp": seconds_of(now + good_for),
        "keys": [_ROLLING.dump(one) for one in sorted(keys, key=lambda one: (one.use, one.start, one.kid))],
    }
    return ROLE_KEYS.issue(domain, claims)


def _role_keys(signed: Signed) -> RoleKeys:
    claims = signed.claims
    issued, until = claim.time(claims["iat"], "iat"), claim.time(claims["exp"], "exp")
    if not issued < until:
        raise bad("bad-claim", "the document ends before it is issued", "let `exp` be later than `iat`")
    if until - issued > _GOOD_FOR:
        raise bad("too-long", f"the keys are good for longer than MAX_ROLE_KEYS_SECONDS ({MAX_ROLE_KEYS_SECONDS})")
    listed = [_ROLLING.load_object(one, "keys") for one in claim.listed(claims["keys"], "keys", 0, MAX_ROLE_KEYS)]
    keys = {one.kid: one for one in listed}
    if len(keys) != len(listed):
        raise bad("bad-claim", "`keys` names one twice")
    if signed.issuer in keys:
        raise bad("bad-claim", "a domain's own key is no rolling key", "make a new one")
    return RoleKeys(signed.issuer, claim.whole(claims["number"], "number"), issued, until, MappingProxyType(keys))


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


ROLE_KEYS: Final = StatementKind(
    "hg-role-keys+jwt",
    frozenset({"iss", "number", "iat", "exp", "keys"}),
    limit=MAX_ROLE_KEYS_BYTES,
    made_of=_role_keys,
    called="the keys are",
    check_newer=check_newer,
)


def _use(given: object, what: str) -> object:
    if given not in USES:
        raise bad("bad-claim", f"`{brief(given)}` is no {what} of a rolling key", ", ".join(USES))
    return given


_ROLLING: Final = ClaimTable(
    RollingKey,
    {
        "kid": Claim("key", key_of, lambda key: key.did),
        "use": Claim("use", _use),
        "from": Claim("start", claim.time, seconds_of),
        "until": Claim("until", claim.time, seconds_of),
        "end": Claim("end", claim.time, seconds_of),
    },
)


# -- where the table is kept -----------------------------------------------------------------------------------

FILE: Final = "role.keys"


class FileStore:
    """A file `role.keys` in a directory that only its owner can change."""

    def __init__(self, directory: Path, pause: Callable[[float], None] = time.sleep) -> None:
        self.directory = directory
        self.path = directory / FILE
        self.name = str(self.path)
        self._pause = pause

    def stamp(self) -> object:
        """Which file it is: each change makes another."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadKey(f"`{self.path}` cannot be read ({error.strerror})") from None
        return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode

    def read(self) -> bytes | None:
        """The content; a file that others can read is refused."""
        if not self.path.exists():
            return None
        check_directory(self.directory)
        return read_secret(self.path, MAX_ROLE_KEYS_BYTES)

    def write(self, data: bytes) -> None:
        """Put the file in its place whole, on disk."""
        replace_file(self.path, data.decode("ascii"), 0o600)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One process at a time, in a directory that is made if there is none."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_directory(self.directory)
        except OSError as error:
            raise BadKey(f"`{self.directory}` cannot be used ({error.strerror})") from None
        with alone_in(self.directory, self._pause):
            yield


_FORMAT: Final = 1
_SECRET_CHARS: Final = 64


@dataclass(frozen=True, slots=True)
class RollingPace:
    """A new key `every` so often, in whole seconds; what it signs is good for `lasting` at most.

    A key rolls before what it signed is over. All that are needed at one time leave room in the document, for clocks
    that jump and keys that are ended.
    """

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
        store: FileStore,
        paces: Mapping[Use, RollingPace] = PACES,
        random: Random = secrets.token_bytes,
    ) -> None:
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
        return ROLE_KEYS.verify(self.document(now), issuer=self._domain.public.did, now=now)

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
            raise errors.TooMany(
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
    secret = None if one.private is None else one.private.native().private_bytes_raw().hex()
    return {**_ROLLING.dump(one.public), "forget": seconds_of(one.forget), "secret": secret}


def _parsed(data: bytes, domain: PublicKey, name: str) -> KeyTable:
    """The table of a file; the words of an error never have a key's private half in them."""
    try:
        document = json.loads(data)
        whose = PublicKey.from_did(document["domain"])
        table = KeyTable(claim.whole(document["number"], "number"), tuple(_own_key(one) for one in document["keys"]))
        well_formed = document["format"] == _FORMAT and len({one.public.kid for one in table.keys}) == len(table.keys)
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
    public, forget = _ROLLING.load(fields), claim.time(fields["forget"], "forget")
    if fields["secret"] is None:
        return OwnKey(public, None, forget)
    if len(fields["secret"]) != _SECRET_CHARS:
        raise ValueError("secret")
    raw = bytes.fromhex(fields["secret"])
    private = PrivateKey.generate(lambda _: raw)
    if private.public != public.key:
        raise ValueError("kid")
    return OwnKey(public, private, forget)
