"""The one core of all signed statements: from text to claims that their issuer has signed, and back.

Guarantees: claims come out only if the text is the one way to write them, is of the kind asked for, and was signed by
the key that `iss` names; no look-up is needed for that. There is one kind for each `typ`, so none can pass for another.
Statements of rolling keys are the exception: the header names the key (`kid`), and whoever asks says how `iss` vouches
for it; none of them passes for a statement by `iss` itself, nor the other way round, even where both have one `typ`.
No claim is there twice, none is unknown and none is missing; numbers are whole and fit in 64 bits. Every refusal is a
`BadStatement` with a `reason`, or `Expired`.
Leaves out: what the claims of each kind say (`certificates`, `identities`, `typedefs`, `role_keys`,
`role_statements`), and whether their issuer is to be believed.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Generic, NoReturn, TypeVar, cast

import jwt

from headgate.model.authority import Validity
from headgate.model.errors import BadStatement, Expired
from headgate.model.limits import MAX_CLOCK_SKEW_SECONDS, MAX_READ_BYTES, MAX_STATEMENT_BYTES
from headgate.model.values import INT_MAX, INT_MIN, brief, micros, render_timestamp
from headgate.trust import claims as claim
from headgate.trust.claims import bad, key_of
from headgate.trust.keys import PrivateKey, PublicKey, from_base64url

T = TypeVar("T")

ALGORITHM: Final = "EdDSA"
_JWS: Final = jwt.PyJWS(algorithms=[ALGORITHM])
_SKEW: Final = timedelta(seconds=MAX_CLOCK_SKEW_SECONDS)
_MAX_HEADER: Final = 1_000
_INT_CHARS: Final = 20
"""Characters of a 64-bit integer with its sign; longer ones are never converted."""


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of statement: its `typ`, the claims it must and may have, and how long it may be."""

    typ: str
    required: frozenset[str]
    optional: frozenset[str] = frozenset()
    limit: int = MAX_STATEMENT_BYTES
    rolling: bool = False
    """Signed by a rolling key of the issuer, which the header names."""


KeyFinder = Callable[[str, str], PublicKey]
"""The rolling key of an issuer by its `kid`, or a refusal."""


@dataclass(frozen=True, slots=True)
class Signed:
    """Claims, the key that signed them, and the digest of the text they came in."""

    issuer: str
    claims: Mapping[str, Any]
    digest: str
    kid: str = ""
    """The rolling key, where it is not the issuer's own that signed."""


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """A statement whose signature and form are right; whether it is for us, and now, is decided by `check`."""

    value: T
    digest: str
    issued: datetime
    validity: Validity = Validity()  # noqa: RUF009 - frozen
    audience: tuple[str, ...] | None = None
    issuer: str = ""


# -- signing --------------------------------------------------------------------------------------------------


def sign(key: PrivateKey, form: Form, claims: Mapping[str, Any], issuer: str | None = None) -> str:
    """The text of a statement; `iss` is the signing key, or the issuer whose rolling key it is."""
    assert form.rolling == (issuer is not None), "a rolling key signs for its issuer, and no other key does"
    body = {"iss": issuer or key.public.did, **claims}
    headers = {"typ": form.typ, **({"kid": key.public.did} if form.rolling else {})}
    assert form.required <= body.keys() <= form.required | form.optional, "claims of another kind"
    payload = json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return _JWS.encode(payload, key.native(), algorithm=ALGORITHM, headers=headers)


def digest_of(text: str) -> str:
    """What stands for the text of a statement elsewhere."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# -- verifying ------------------------------------------------------------------------------------------------


def open_statement(text: str, form: Form, find: KeyFinder | None = None) -> Signed:
    """The claims of a statement of this form, signed by its issuer.

    The issuer is in the payload, so that is read before the signature can be checked; nothing but `iss` is used of it.
    """
    # 1. Size.
    # 2. Three parts, each the one way to write its bytes.
    header, payload, signature = (_decoded(part) for part in _parts(text, form.limit))
    # 3. Header: this kind of statement, this algorithm and nothing else.
    named = _object(header, "header")
    _check_header(named, form)
    # 4. Payload: a JSON object in which nothing is said twice.
    claims = _object(payload, "payload")
    # 5. The issuer's signature over the received bytes, or that of its rolling key.
    issuer = key_of(claims.get("iss"), "iss")
    assert form.rolling == (find is not None), "a rolling key has to be found"
    signer = issuer if find is None else find(claims["iss"], named["kid"])
    if not signer.verify(signature, text.rpartition(".")[0].encode("ascii")):
        raise bad("bad-signature", f"`{claims['iss']}` did not sign the statement", "it was changed or forged")
    # 6. Exactly the claims of this form.
    if unknown := sorted(claims.keys() - form.required - form.optional):
        raise bad("unknown-claim", f"a statement `{form.typ}` has no claim `{brief(unknown[0])}`")
    if missing := sorted(form.required - claims.keys()):
        raise bad("missing-claim", f"the statement does not say `{missing[0]}`")
    return Signed(claims["iss"], claims, digest_of(text), named.get("kid", ""))


def said_payload(text: str, limit: int) -> bytes:
    """What a statement says, in bytes that nobody has vouched for."""
    return _decoded(_parts(text, limit)[1])


def said_claims(text: str) -> dict[str, Any]:
    """What a statement says, and nobody has vouched for; nothing, if it is no statement."""
    try:
        return _object(said_payload(text, MAX_STATEMENT_BYTES), "payload")
    except BadStatement:
        return {}


def said_kind(text: str) -> str:
    """What a statement says it is; nothing of it is believed yet."""
    header = text.partition(".")[0]
    try:
        kind = _object(_decoded(header), "header").get("typ") if len(header) <= _MAX_HEADER else None
    except BadStatement:
        kind = None
    if not isinstance(kind, str):
        raise bad("malformed", f"`{brief(text)}` is not a signed statement", "show it whole")
    return kind


def _parts(text: str, limit: int) -> list[str]:
    if len(text) > limit:
        raise bad("too-large", f"the statement is longer than {limit} bytes", "split what it says")
    parts = text.split(".", 3)
    if len(parts) != 3:
        raise bad(
            "malformed", f"`{brief(text)}` is not a signed statement", "it has three parts with a dot between them"
        )
    return parts


def check(read: Read[T], *, audience: str | None, now: datetime | None) -> T:
    """What a statement says, if it is for this audience, and good at this time; without a time, at any."""
    # 7. Audience.
    if read.audience is not None and audience not in read.audience:
        named = ", ".join(f"`{brief(one)}`" for one in read.audience)
        raise bad("wrong-audience", f"the statement is for {named}", "ask its issuer for one that counts here")
    if now is None:
        return read.value
    # 8. Validity.
    check_issued(read, now)
    start = read.validity.start
    if start is not None and start > now:
        raise _early(start)
    until = read.validity.until
    if until is not None and read.validity.is_over(now):
        raise Expired(f"the statement was good until `{render_timestamp(until)}`", remedy="ask for a new one")
    return read.value


def check_issued(read: Read[Any], now: datetime) -> None:
    """Refuse what its issuer dates ahead, by more than clocks may differ: it is not issued yet."""
    if read.issued > now + _SKEW:
        raise _early(max(read.issued, read.validity.start or read.issued))


def _early(begins: datetime) -> BadStatement:
    remedy = "wait, or set the clock right"
    return bad("not-yet-valid", f"the statement is good only from `{render_timestamp(begins)}`", remedy)


def _decoded(part: str) -> bytes:
    data = from_base64url(part)
    if not data:
        raise bad("malformed", f"`{brief(part)}` is not base64url without padding")
    return data


def _check_header(header: Mapping[str, Any], form: Form) -> None:
    algorithm, typ = header.get("alg"), header.get("typ")
    if algorithm != ALGORITHM:
        raise bad("wrong-algorithm", f"the statement is signed with `{brief(algorithm)}`, not `{ALGORITHM}`")
    if typ != form.typ:
        raise bad("wrong-type", f"the statement is `{brief(typ)}`, not `{form.typ}`")
    if extra := sorted(header.keys() - {"alg", "typ"} - ({"kid"} if form.rolling else set())):
        raise bad("bad-header", f"the header says `{brief(extra[0])}`", "it has `alg` and `typ` and nothing else")
    if form.rolling and "kid" not in header:
        raise bad("wrong-type", "the statement is not by a rolling key", "its header says `kid`")
    if form.rolling and type(header["kid"]) is not str:
        raise bad("bad-header", "the header names a key by what is not text")


# -- JSON -----------------------------------------------------------------------------------------------------


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        decoded = _JSON.decode(data.decode("utf-8"))
    except RecursionError:
        raise bad("too-deep", f"the {what} nests too deep") from None
    except ValueError:  # also what is not UTF-8
        raise bad("malformed", f"the {what} is not JSON") from None
    if type(decoded) is not dict:
        raise bad("malformed", f"the {what} is not a JSON object")
    return decoded


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise bad("duplicate-claim", f"`{brief(twice)}` is said twice")
    return fields


def _whole(text: str) -> int:
    if len(text) > _INT_CHARS or not INT_MIN <= (number := int(text)) <= INT_MAX:
        raise bad("bad-claim", f"the number `{brief(text)}` does not fit in 64 bits")
    return number


def _fraction(text: str) -> NoReturn:
    raise bad("bad-claim", f"`{brief(text)}` is not a whole number", "write a double as `{'float': '0x1.8p+0'}`")


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_whole, parse_float=_fraction, parse_constant=_fraction
)


# -- remembering ----------------------------------------------------------------------------------------------


class Verifier:
    """Remembers what was read, by the digest of its text, so that a signature is verified once.

    Only what does not depend on the time or on who asks is remembered, and nothing that was refused. The texts that
    are remembered have at most `room` bytes together; those not used for longest go first. Threads may share it.
    """

    def __init__(self, room: int = MAX_READ_BYTES) -> None:
        self._room = room
        self._size = 0
        self._lock = threading.Lock()
        self._read: OrderedDict[tuple[object, str], tuple[Read[Any], int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._read)

    def read(self, text: str, reader: Callable[[str], Read[T]]) -> Read[T]:
        """What the reader makes of the text, now or earlier."""
        key = (reader, digest_of(text))
        with self._lock:
            if key in self._read:
                self._read.move_to_end(key)
                return cast(Read[T], self._read[key][0])
        statement = reader(text)
        with self._lock:
            if key not in self._read and len(text) <= self._room:
                self._read[key] = (statement, len(text))
                self._size += len(text)
            while self._size > self._room:
                self._size -= self._read.popitem(last=False)[1][1]
        return statement


def read_through(verifier: Verifier | None, text: str, reader: Callable[[str], Read[T]]) -> Read[T]:
    """What the reader makes of the text, remembered if there is someone to remember it."""
    return reader(text) if verifier is None else verifier.read(text, reader)


# -- kinds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatementKind(Form, Generic[T]):
    """A form that its issuer's own key signs, and what its claims come to."""

    made_of: Callable[[Signed], T] = field(kw_only=True)
    called: str = field(default="the statement is", kw_only=True)
    check_newer: Callable[[T, T], None] | None = field(default=None, kw_only=True)
    """Refuses one that is older than another of the same issuer, where there are such."""

    def issue(self, key: PrivateKey, claims: Mapping[str, Any]) -> str:
        """The text of a statement; nothing leaves here that would be refused elsewhere."""
        text = sign(key, self, claims)
        self.read(text)
        return text

    def read(self, text: str) -> Read[T]:
        """What a statement says, whoever it is for and whenever it is good."""
        signed = open_statement(text, self)
        claims, value = signed.claims, self.made_of(signed)
        issued = claim.time(claims["iat"], "iat")
        return Read(value, signed.digest, issued, claim.validity(claims), claim.audience(claims), signed.issuer)

    def verify(
        self,
        text: str,
        *,
        audience: str | None = None,
        now: datetime | None = None,
        shown: datetime | None = None,
        issuer: str | None = None,
        known: T | None = None,
        verifier: Verifier | None = None,
    ) -> T:
        """What a statement says, if it is for this audience, good `now`, of this issuer and no older than a known one.

        Without `now` it may be over, or yet to begin, if only it was issued by the time at which it is `shown`.
        """
        # 1. to 6. are those of `open_statement`; the claims are read in `made_of`; 7. and 8. are those of `check`.
        read = read_through(verifier, text, self.read)
        if shown is not None:
            check_issued(read, shown)
        value = check(read, audience=audience, now=now)
        # 9. Whose it is.
        if issuer is not None and read.issuer != issuer:
            raise bad("wrong-issuer", f"{self.called} of `{read.issuer}`, not of `{issuer}`")
        # 10. News.
        if known is not None:
            assert self.check_newer is not None, "nothing of this kind is older than another"
            self.check_newer(value, known)
        return value


# -- claims that many kinds have ------------------------------------------------------------------------------


def seconds_of(time: datetime) -> int:
    """Whole seconds since 1970, rounded down: what statements say of times."""
    return micros(time) // 1_000_000


def about(subject: str, id: str, now: datetime, validity: Validity, audience: Sequence[str] = ()) -> dict[str, Any]:
    """The claims that every statement about a subject has."""
    times = {"iat": now, "nbf": validity.start, "exp": validity.until}
    said = {name: seconds_of(time) for name, time in times.items() if time is not None}
    return {"sub": subject, "jti": id, **said, **audience_of(audience)}


def audience_of(audience: Sequence[str]) -> dict[str, list[str]]:
    """The claim `aud`; without an audience the statement is for everyone."""
    assert not isinstance(audience, str), "an audience is a list"
    return {"aud": list(audience)} if audience else {}
