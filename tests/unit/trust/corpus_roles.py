"""Bad certificates about roles: why each is refused, and whether that is fraud, misuse or revocation.

`KINDS` has one good statement of each kind. Every bad one differs from it in one way.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from headgate.model.errors import RoleFailure
from headgate.model.limits import MAX_CERTIFICATE_ROLES, MAX_ROLE_ARGUMENTS, MAX_SHOWN, MAX_STATEMENT_BYTES
from headgate.model.role_statements import ServiceInstance
from headgate.trust.keys import PrivateKey
from headgate.trust.role_keys import ROLE_KEYS, RoleKeys, RollingKey, issue_role_keys
from headgate.trust.role_statements import APPOINTMENT, DELEGATION, REVOCATION, ROLE
from strategies.role_statements import verified
from unit.trust.corpus import (
    AT,
    CERT,
    DAY,
    HERE,
    LIST,
    MALLORY,
    MET,
    NEUTRAL,
    NOW,
    OUT,
    PITO,
    SMITH,
    TFL,
    WEAK,
    Claims,
    decoded,
    did,
    dumped,
    encoded,
    key,
    next_letter,
    raw_did,
    sealed,
)
from unit.trust.corpus_any import PAYLOADS, TIMES

SHORT, LONG, CUT, GONE = key("1"), key("2"), key("3"), key("4")
HOUR = 3600


def at(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def rolling(who: PrivateKey, use: Any, start: int, until: int, end: int) -> RollingKey:
    return RollingKey(who.public, use, at(start), at(until), at(end))


def keys_of(domain: PrivateKey, *keys: RollingKey) -> RoleKeys:
    return ROLE_KEYS.verify(issue_role_keys(domain, number=1, keys=keys, now=at(-60)))


KEYS = keys_of(
    PITO,
    rolling(SHORT, "short", -HOUR, HOUR, HOUR + DAY),
    rolling(LONG, "long", -DAY, DAY, 300 * DAY),
    rolling(CUT, "short", -HOUR, -600, -600),  # ended before its time
)
PLACE = ServiceInstance(did(PITO), "Conf", "Hilary")


@dataclass(frozen=True)
class Kind:
    """A kind of statement, with one that is good."""

    name: str
    typ: str
    claims: Claims
    signer: PrivateKey
    verify: Callable[..., object]

    def rolled(self, changed: Claims | None = None, who: PrivateKey | None = None, /, **header: Any) -> str:
        """The same with some claims or headers changed, and signed by its key or another."""
        claims = {name: value for name, value in {**self.claims, **(changed or {})}.items() if value is not OUT}
        return sealed(self.header(**header), dumped(claims), (who or self.signer).sign)

    def header(self, **changed: Any) -> bytes:
        said = {"alg": "EdDSA", "typ": self.typ, "kid": did(self.signer), **changed}
        return dumped({name: value for name, value in said.items() if value is not OUT})


ALL = {"iss": did(PITO), "jti": "m1", "iat": AT, "service": "Conf", "instance": "Hilary", "aud": [HERE, "tfl"]}
HELD = [
    {"role": "Member", "args": ["dm", {"set": "rw"}], "ref": "17.4"},
    {"role": "Chair", "args": [], "ref": "18.4"},
]
ELECTOR = {"iss": did(PITO), "service": "Conf", "instance": "Hilary", "role": "Chair", "args": []}
KINDS = {
    one.name: one
    for one in (
        Kind(
            "role",
            "hg-role+jwt",
            {**ALL, "exp": AT + HOUR, "sub": did(SMITH), "roles": HELD},
            SHORT,
            partial(verified, ROLE),
        ),
        Kind(
            "appointment",
            "hg-appointment+jwt",
            {**ALL, "exp": AT + 90 * DAY, "sub": did(SMITH), "roles": HELD},
            LONG,
            partial(verified, APPOINTMENT),
        ),
        Kind(
            "delegation",
            "hg-delegation+jwt",
            {
                **ALL,
                "exp": AT + DAY,
                "election": "e1",
                "role": "Member",
                "args": ["dm", None],
                "elector": did(SMITH),
                "required": ["Login.LoggedOn('dm', _)"],
                "revoke_on_exit": True,
                "ref": "20.5",
                "until": AT + 2 * DAY,
            },
            LONG,
            partial(verified, DELEGATION),
        ),
        Kind(
            "revocation",
            "hg-role-revocation+jwt",
            {
                **ALL,
                "exp": AT + DAY,
                "sub": did(SMITH),
                "election": "e1",
                "elector": ELECTOR,
                "membership": "18.4",
                "target": "20.5",
            },
            LONG,
            partial(verified, REVOCATION),
        ),
    )
}


@dataclass(frozen=True)
class RoleCase:
    """A bad statement shown as one of a kind."""

    kind: str
    name: str
    failure: RoleFailure
    reason: str
    text: str
    now: datetime = field(default=NOW)
    audience: str = HERE

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


def cases() -> Iterator[RoleCase]:
    for kind in KINDS.values():
        yield from forged(kind)
        yield from tampered(kind)
        yield from keyed(kind)
        yield from claimed(kind)
        yield from timed(kind)
        yield from of_other_kinds(kind)
    yield from of_roles()
    yield from of_delegations()
    yield from of_revocations()


def forged(kind: Kind) -> Iterator[RoleCase]:
    """Made by someone who has none of the keys."""

    def case(name: str, reason: str, text: str, failure: RoleFailure = "fraud") -> RoleCase:
        return RoleCase(kind.name, name, failure, reason, text)

    payload = dumped(kind.claims)
    head = f"{encoded(kind.header(alg='none'))}.{encoded(payload)}"
    yield case("no algorithm, no signature", "malformed", head + ".")
    yield case("no algorithm, a signature", "wrong-algorithm", kind.rolled(alg="none"))
    yield case("algorithm in capitals", "wrong-algorithm", kind.rolled(alg="EDDSA"))
    yield case("algorithm not said", "wrong-algorithm", kind.rolled(alg=OUT))
    for name, secret in {"rolling": kind.signer.public.raw, "domain's": PITO.public.raw}.items():

        def signer(message: bytes, secret: bytes = secret) -> bytes:
            return hmac.digest(secret, message, "sha256")

        hs256 = sealed(kind.header(alg="HS256"), payload, signer)
        yield case(f"{name} public key as a password", "wrong-algorithm", hs256)
        yield case(
            f"{name} public key as a password, called EdDSA", "bad-signature", sealed(kind.header(), payload, signer)
        )
    yield case("signed by another", "bad-signature", kind.rolled(None, MALLORY))
    yield case("signed by the domain's own key", "bad-signature", kind.rolled(None, PITO))
    yield case("signed by the domain's own key, named", "unknown-key", kind.rolled(None, PITO, kid=did(PITO)))
    yield case("signed by another, named", "unknown-key", kind.rolled(None, MALLORY, kid=did(MALLORY)))
    yield case("signed by its subject, named", "unknown-key", kind.rolled(None, SMITH, kid=did(SMITH)))
    yield case("a domain of one's own", "wrong-issuer", kind.rolled({"iss": did(MALLORY)}, MALLORY), "misuse")
    yield case("another issuer", "wrong-issuer", kind.rolled({"iss": did(MET)}), "misuse")
    for n, weak in enumerate(WEAK):
        # For the point of order one this is a signature of anything.
        said = dumped({**kind.claims, "iss": raw_did(weak)})
        yield case(f"weak issuer {n}", "unsafe-key", sealed(kind.header(), said, lambda _: NEUTRAL + bytes(32)))
        named = sealed(kind.header(kid=raw_did(weak)), payload, lambda _: NEUTRAL + bytes(32))
        yield case(f"weak kid {n}", "unknown-key", named)
    for name, value in {
        "jwk": {"kty": "OKP", "crv": "Ed25519", "x": encoded(MALLORY.public.raw)},
        "jku": "https://example.org/keys",
        "crit": ["exp"],
        "b64": False,
    }.items():
        yield case(f"header {name}", "bad-header", kind.rolled(**{name: value}))
    for name, value in {"a list": [did(SHORT)], "a number": 1, "null": None}.items():
        yield case(f"kid is {name}", "bad-header", kind.rolled(kid=value))
    for name, value in {"empty": "", "a path": "../role.keys", "a space behind": did(kind.signer) + " "}.items():
        yield case(f"kid is {name}", "unknown-key", kind.rolled(kid=value))


def tampered(kind: Kind) -> Iterator[RoleCase]:
    """A good one that was changed."""

    def case(name: str, reason: str, text: str, failure: RoleFailure = "fraud") -> RoleCase:
        return RoleCase(kind.name, name, failure, reason, text)

    text, payload = kind.rolled(), dumped(kind.claims)
    head, body, tail = text.split(".")
    for name, value in kind.claims.items():
        if name == "iss":
            continue
        other = {**kind.claims, name: did(MALLORY) if isinstance(value, str) else 1}
        yield case(f"{name} replaced", "bad-signature", f"{head}.{encoded(dumped(other))}.{tail}")
        again = payload[:-1] + b", " + dumped({name: value})[1:]
        yield case(f"{name} twice", "duplicate-claim", sealed(kind.header(), again, kind.signer.sign))
    changed = payload.replace(b'"dm"', b'"mb"')
    if changed != payload:
        yield case("arguments replaced", "bad-signature", f"{head}.{encoded(changed)}.{tail}")
    double = kind.header()[:-1] + b', "alg": "EdDSA"}'
    yield case("algorithm twice", "duplicate-claim", sealed(double, payload, kind.signer.sign))
    escaped = payload[:-1] + b', "\\u0069ss": "x"}'
    yield case("iss twice, once escaped", "duplicate-claim", sealed(kind.header(), escaped, kind.signer.sign))
    yield case("header replaced", "bad-signature", f"{encoded(kind.header() + b' ')}.{body}.{tail}")
    yield case("signature cut", "bad-signature", f"{head}.{body}.{encoded(decoded(tail)[:-1])}")
    yield case("signature of zeros", "bad-signature", f"{head}.{body}.{encoded(bytes(64))}")
    yield case("signature in another way", "malformed", f"{head}.{body}.{tail[:-1]}{next_letter(tail[-1])}")
    yield case("padding", "malformed", text + "==")
    yield case("a line break", "malformed", text + "\n")
    yield case("a letter that looks like another", "malformed", text.replace("e", "\u0435", 1))
    yield case("without a signature", "malformed", f"{head}.{body}", "misuse")
    yield case("cut within the payload", "malformed", text[: len(head) + 20], "misuse")
    yield case("a fourth part", "malformed", text + ".e30", "misuse")
    yield case("nothing", "malformed", "", "misuse")
    yield case("no statement", "malformed", "let me in", "misuse")
    for name, change in PAYLOADS.items():
        yield case(f"payload {name}", "malformed", sealed(kind.header(), change(payload), kind.signer.sign))
    yield case("too long", "too-large", "e" * (MAX_STATEMENT_BYTES + 1), "misuse")
    yield case("too long, with three parts", "too-large", text + "e" * MAX_STATEMENT_BYTES, "misuse")
    deep = b'{"iss": ' + b"[" * 6000 + b"]" * 6000 + b"}"
    yield case("deep nesting", "too-deep", sealed(kind.header(), deep, kind.signer.sign), "misuse")
    nesting = b'{"alg": ' + b"[" * 3000 + b"]" * 3000 + b"}"
    yield case("deep nesting of the header", "too-deep", sealed(nesting, b"{}", kind.signer.sign), "misuse")


def keyed(kind: Kind) -> Iterator[RoleCase]:
    """By a rolling key that is not the right one, or not at the right time."""

    def case(name: str, failure: RoleFailure, reason: str, text: str, now: datetime = NOW) -> RoleCase:
        return RoleCase(kind.name, name, failure, reason, text, now)

    other = LONG if kind.signer is SHORT else SHORT
    yield case("a key of the other table", "fraud", "wrong-key", kind.rolled(None, other, kid=did(other)))
    yield case("a key that nobody vouches for", "fraud", "unknown-key", kind.rolled(None, GONE, kid=did(GONE)))
    over = {"iat": AT - 2 * DAY, "exp": AT - DAY, **({"until": OUT} if "until" in kind.claims else {})}
    yield case("over, by a key that is forgotten", "revocation", "unknown-key", kind.rolled(over, GONE, kid=did(GONE)))
    start = KEYS.keys[did(kind.signer)].start
    before = int(start.timestamp()) - 1
    yield case("issued before the key signed", "fraud", "early-key", kind.rolled({"iat": before, "exp": AT + 60}))
    if kind.signer is SHORT:
        after = {"iat": AT - 600, "exp": AT + 60}
        yield case("issued after the key ended", "revocation", "key-ended", kind.rolled(after, CUT, kid=did(CUT)))
        earlier = {"iat": AT - 1200, "exp": AT + 60}
        yield case("by a key that has ended since", "revocation", "expired", kind.rolled(earlier, CUT, kid=did(CUT)))
    else:
        yield case("nobody vouches for the key any longer", "revocation", "expired", kind.rolled(), KEYS.until)


def claimed(kind: Kind) -> Iterator[RoleCase]:
    """By the right key, which then says what it should not."""

    def case(name: str, reason: str, /, failure: RoleFailure = "misuse", **changed: Any) -> RoleCase:
        return RoleCase(kind.name, name, failure, reason, kind.rolled(changed))

    for name in kind.claims:
        if name not in {"aud", "until"}:
            yield case(f"no {name}", "missing-claim", **{name: OUT})
    yield case("a claim too many", "unknown-claim", admin=True)
    for name, value in TIMES.items():
        yield case(f"issued at {name}", "bad-claim", iat=value)
        yield case(f"good until {name}", "bad-claim", exp=value)
    yield case("over when it is issued", "bad-claim", exp=AT)
    longest = DAY if kind.signer is SHORT else 366 * DAY
    ends = {"until": OUT} if "until" in kind.claims else {}
    yield case("good for too long", "too-long", exp=AT + longest + 1, **ends)
    for name, value in {"empty": "", "with a space": "a b", "too long": "x" * 65, "a number": 1}.items():
        yield case(f"id {name}", "bad-claim", jti=value)
    for name in ("service", "instance"):
        yield case(f"{name} in wide letters", "bad-name", **{name: "\uff23onf"})
        yield case(f"{name} with a line break", "bad-name", **{name: "Conf\n"})
        yield case(f"{name} too long", "bad-name", **{name: "x" * 201})
        yield case(f"{name} null", "bad-claim", **{name: None})
        yield case(f"{name} false", "bad-claim", **{name: False})
    yield case("service empty", "bad-name", service="")
    for name in ("sub", "elector"):
        if isinstance(kind.claims.get(name), str):
            yield case(f"{name} by alias", "bad-claim", **{name: "smith"})
            yield case(f"{name} in a list", "bad-claim", **{name: [did(SMITH)]})
            yield case(f"{name} with a weak key", "unsafe-key", "fraud", **{name: raw_did(WEAK[0])})
    for name in ("ref", "membership", "target"):
        if name in kind.claims:
            for shape, value in REFERENCES.items():
                yield case(f"{name} {shape}", "bad-claim", **{name: value})
    yield case("audience named twice", "bad-claim", aud=[HERE, HERE])
    yield replace(case("another audience", "wrong-audience"), audience="nato")


def timed(kind: Kind) -> Iterator[RoleCase]:
    """Shown at another time."""

    def case(name: str, failure: RoleFailure, reason: str, text: str, now: datetime = NOW) -> RoleCase:
        return RoleCase(kind.name, name, failure, reason, text, now)

    soon = kind.rolled({"exp": AT + 60})
    yield case("over", "revocation", "expired", soon, at(60))
    yield case("long over", "revocation", "expired", soon, at(90 * DAY))
    yield case("issued in the future", "misuse", "not-yet-valid", kind.rolled({"iat": AT + 61}))


def of_other_kinds(kind: Kind) -> Iterator[RoleCase]:
    """A good one of another kind, and one that only says that it is of this kind."""
    for other in KINDS.values():
        if other is not kind:
            yield RoleCase(kind.name, f"a good {other.name}", "misuse", "wrong-type", other.rolled())
            posing = other.rolled(None, kind.signer, typ=kind.typ, kid=did(kind.signer))
            if other.claims.keys() != kind.claims.keys():
                reason = "unknown-claim" if other.claims.keys() - kind.claims.keys() else "missing-claim"
                yield RoleCase(kind.name, f"a {other.name} that poses as one", "misuse", reason, posing)
            if other.signer is not kind.signer:
                own = other.rolled(typ=kind.typ)
                yield RoleCase(kind.name, f"a {other.name} under its own key", "fraud", "wrong-key", own)
    yield RoleCase(kind.name, "a certificate of a chain", "misuse", "wrong-type", CERT.signed())
    yield RoleCase(kind.name, "a revocation list", "misuse", "wrong-type", LIST.signed())
    keys = issue_role_keys(PITO, number=1, keys=KEYS.keys.values(), now=NOW)
    yield RoleCase(kind.name, "a document of keys", "misuse", "wrong-type", keys)
    yield RoleCase(kind.name, "no rolling key named", "misuse", "wrong-type", kind.rolled(kid=OUT))
    for typ in ("JWT", "hg-session+jwt", kind.typ.upper(), None, OUT):
        yield RoleCase(
            kind.name, f"typ {'not said' if typ is OUT else typ}", "misuse", "wrong-type", kind.rolled(typ=typ)
        )


REFERENCES: dict[str, Any] = {
    "a number": 17,
    "null": None,
    "empty": "",
    "without magic": "17",
    "with a zero before": "017.4",
    "with a sign": "+17.4",
    "negative": "-1.4",
    "with a line break": "17.4\n",
    "with a part too many": "17.4.1",
    "past the table": f"{2**31}.4",
    "past the versions": f"17.{2**32}",
    "in Arabic digits": "\u0661.4",
}
ARGUMENTS: dict[str, Any] = {
    "null": None,
    "a list": ["dm"],
    "a fraction": 1.5,
    "an object": {"a": 1},
    "an empty object": {},
    "two tags": {"set": "rw", "float": "0x0p+0"},
    "a set in another order": {"set": "wr"},
    "a set with a letter twice": {"set": "rr"},
    "a set that is a list": {"set": ["r"]},
    "a float in another way": {"float": "1.0"},
    "a float that is no number": {"float": "nan"},
    "a timestamp that is text": {"timestamp": "1"},
    "a timestamp past all years": {"timestamp": 2**62},
    "bytes in capitals": {"bytes": "FF"},
    "half a character": "\ud800",
}


def nested(depth: int) -> Any:
    found: Any = "dm"
    for _ in range(depth):
        found = [found]
    return found


def of_roles() -> Iterator[RoleCase]:
    for name in ("role", "appointment"):
        kind, one = KINDS[name], HELD[0]

        def case(title: str, reason: str, roles: Any, kind: Kind = kind) -> RoleCase:
            return RoleCase(kind.name, title, "misuse", reason, kind.rolled({"roles": roles}))

        yield case("an empty list of roles", "bad-claim", [])
        yield case("roles in an object", "bad-claim", {"Member": []})
        yield case("roles as text", "bad-claim", "Member")
        yield case("a role as text", "bad-claim", ["Member"])
        yield case("a role twice", "bad-claim", [one, {**one, "ref": "19.1"}])
        many = [{**one, "args": [n]} for n in range(MAX_CERTIFICATE_ROLES + 1)]
        yield case("too many roles", "bad-claim", many)
        yield case("a role with an entry too many", "bad-claim", [{**one, "all": True}])
        yield case("a role without its record", "bad-claim", [{"role": "Member", "args": []}])
        yield case("a role without a name", "bad-name", [{**one, "role": ""}])
        yield case("a role in wide letters", "bad-name", [{**one, "role": "\uff23hair"}])
        yield case("too many arguments", "bad-claim", [{**one, "args": [1] * (MAX_ROLE_ARGUMENTS + 1)}])
        yield case("arguments as text", "bad-claim", [{**one, "args": "dm"}])
        yield case("arguments in an object", "bad-claim", [{**one, "args": {"u": "dm"}}])
        for shape, value in ARGUMENTS.items():
            yield case(f"an argument that is {shape}", "bad-claim", [{**one, "args": [value]}])
        yield case("an argument that nests", "bad-claim", [{**one, "args": nested(300)}])
        for shape, value in REFERENCES.items():
            yield case(f"a record {shape}", "bad-claim", [{**one, "ref": value}])


def of_delegations() -> Iterator[RoleCase]:
    kind = KINDS["delegation"]

    def case(title: str, reason: str, **changed: Any) -> RoleCase:
        return RoleCase(kind.name, title, "misuse", reason, kind.rolled(changed))

    yield case("good for longer than its election", "bad-claim", until=AT + DAY - 1)
    yield case("an election that ends at no time", "bad-claim", until=None)
    yield case("an election without a name", "bad-name", election="")
    yield case("revoked on exit, perhaps", "bad-claim", revoke_on_exit=1)
    yield case("required roles as text", "bad-claim", required="Login.LoggedOn('dm', _)")
    yield case("a required role that is empty", "bad-claim", required=[""])
    yield case("a required role with a line break", "bad-claim", required=["a\nb"])
    yield case("a required role that is a number", "bad-claim", required=[1])
    yield case("too many required roles", "bad-claim", required=["a"] * (MAX_SHOWN + 1))
    for shape, value in ARGUMENTS.items():
        if value is not None:
            yield case(f"an argument that is {shape}", "bad-claim", args=[value])


def of_revocations() -> Iterator[RoleCase]:
    kind = KINDS["revocation"]

    def case(title: str, reason: str, failure: RoleFailure = "misuse", /, **changed: Any) -> RoleCase:
        return RoleCase(kind.name, title, failure, reason, kind.rolled(changed))

    yield case("an election that is a number", "bad-claim", election=1)
    yield case("an elector as text", "bad-claim", elector="Chair")
    yield case("an elector with an entry too many", "bad-claim", elector={**ELECTOR, "ref": "1.1"})
    yield case("an elector of no domain", "bad-claim", elector={n: v for n, v in ELECTOR.items() if n != "iss"})
    yield case("an elector of a weak domain", "unsafe-key", "fraud", elector={**ELECTOR, "iss": raw_did(WEAK[0])})
    yield case("an elector with an open argument", "bad-claim", elector={**ELECTOR, "args": [None]})
    yield case("an elector in a place without a name", "bad-name", elector={**ELECTOR, "service": ""})


CASES = list(cases())
OTHERS = (MALLORY, TFL, MET)
"""Who might show what was given to Smith."""
