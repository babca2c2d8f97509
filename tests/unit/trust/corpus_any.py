"""What is bad of a statement of any kind."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from unit.trust.corpus import (
    AT,
    GOOD,
    MALLORY,
    NAMES,
    NEUTRAL,
    OUT,
    WEAK,
    Case,
    Good,
    decoded,
    did,
    dumped,
    encoded,
    next_letter,
    raw_did,
    sealed,
)


def of_any_kind(kind: str, good: Good) -> Iterator[Case]:
    claims, check, who = good.claims, good.check, good.signer
    header = {"alg": "EdDSA", "typ": good.typ}
    payload = dumped(claims)
    text = good.signed()
    head, body, tail = text.split(".")

    def case(name: str, reason: str, text: str) -> Case:
        return Case(f"{kind}: {name}", reason, text, check)

    def with_header(changed: Any, signer: Callable[[bytes], bytes] = who.sign) -> str:
        return sealed(dumped(changed), payload, signer)

    # Algorithms.
    yield case("no algorithm, no signature", "malformed", with_header({**header, "alg": "none"}, lambda _: b""))
    yield case("no algorithm", "wrong-algorithm", with_header({**header, "alg": "none"}))
    yield case("algorithm in capitals", "wrong-algorithm", with_header({**header, "alg": "EDDSA"}))
    yield case("algorithm not said", "wrong-algorithm", with_header({"typ": good.typ}))
    yield case("algorithm null", "wrong-algorithm", with_header({**header, "alg": None}))
    secret = who.public.raw
    hs256 = partial(_hs256, secret)
    yield case("public key as a password", "wrong-algorithm", with_header({**header, "alg": "HS256"}, hs256))
    yield case("public key as a password, called EdDSA", "bad-signature", with_header(header, hs256))
    yield case("another curve", "wrong-algorithm", with_header({**header, "alg": "ES256"}, _es256))
    yield case("another curve, called EdDSA", "bad-signature", with_header(header, _es256))
    # Types.
    for typ in ("JWT", "hg-session+jwt", good.typ.upper(), None, *sorted({g.typ for g in GOOD.values()} - {good.typ})):
        yield case(f"typ {typ}", "wrong-type", with_header({**header, "typ": typ}))
    yield case("typ not said", "wrong-type", with_header({"alg": "EdDSA"}))
    # Headers.
    for name, value in HEADERS.items():
        yield case(f"header {name}", "bad-header", with_header({**header, name: value}))
    double = dumped(header)[:-1] + b', "alg": "EdDSA"}'
    yield case("algorithm twice", "duplicate-claim", sealed(double, payload, who.sign))
    yield case("header is a list", "malformed", with_header([header]))
    # Signatures.
    yield case("signed by another", "bad-signature", sealed(dumped(header), payload, MALLORY.sign))
    yield case(
        "issuer replaced", "bad-signature", sealed(dumped(header), dumped({**claims, "iss": did(MALLORY)}), who.sign)
    )
    changed = encoded(dumped({**claims, "sub": did(MALLORY), "name": did(MALLORY)}))
    yield case("subject replaced after signing", "bad-signature", f"{head}.{changed}.{tail}")
    yield case("signature cut", "bad-signature", f"{head}.{body}.{encoded(decoded(tail)[:-1])}")
    yield case("signature doubled", "bad-signature", f"{head}.{body}.{encoded(decoded(tail) * 2)}")
    yield case("signature of zeros", "bad-signature", f"{head}.{body}.{encoded(bytes(64))}")
    order = 2**252 + 27742317777372353535851937790883648493
    big = int.from_bytes(decoded(tail)[32:], "little") + order
    yield case(
        "signature with a larger number",
        "bad-signature",
        f"{head}.{body}.{encoded(decoded(tail)[:32] + big.to_bytes(32, 'little'))}",
    )
    # Writing.
    yield case("signature in another way", "malformed", f"{head}.{body}.{tail[:-1]}{next_letter(tail[-1])}")
    yield case("padding", "malformed", f"{head}.{body}.{tail}==")
    yield case("another alphabet", "malformed", f"{head}.{body}.{'+' + tail[1:]}")
    yield case("a line break", "malformed", text + "\n")
    yield case("a space before", "malformed", " " + text)
    yield case("a fourth part", "malformed", text + ".e30")
    yield case("two parts", "malformed", f"{head}.{body}")
    yield case("nothing", "malformed", "")
    yield case("a letter that looks like another", "malformed", text.replace("e", "\u0435", 1))
    for name, data in PAYLOADS.items():
        yield case(f"payload {name}", "malformed", sealed(dumped(header), data(payload), who.sign))
    # Claims.
    for name in claims:
        again = payload[:-1] + b", " + dumped({name: claims[name]})[1:]
        yield case(f"{name} twice", "duplicate-claim", sealed(dumped(header), again, who.sign))
    yield case(
        "iss twice, another's last",
        "duplicate-claim",
        sealed(dumped(header), payload[:-1] + f', "iss": "{did(MALLORY)}"}}'.encode(), who.sign),
    )
    yield case(
        "iss twice, once escaped",
        "duplicate-claim",
        sealed(dumped(header), payload[:-1] + f', "\\u0069ss": "{did(MALLORY)}"}}'.encode(), MALLORY.sign),
    )
    yield replace(good.case("", "unknown-claim", admin=True), name=f"{kind}: unknown claim")
    for name in ("sub", "jti", "iat", "number", "attributes", "authority", "consent", "name"):
        if name not in claims:
            continue
        yield replace(good.case("", "missing-claim", **{name: OUT}), name=f"{kind}: no {name}")
    yield replace(good.case("", "missing-claim", iss=OUT), name=f"{kind}: no iss")
    for name, value in TIMES.items():
        yield replace(good.case("", "bad-claim", iat=value), name=f"{kind}: issued at {name}")
    yield replace(good.case("", "not-yet-valid", iat=AT + 61), name=f"{kind}: issued in the future")
    huge = payload[:-1].replace(b'"iat": ' + str(AT).encode(), b'"iat": 1' + b"0" * 5000) + b"}"
    yield case("a number of 5,001 digits", "bad-claim", sealed(dumped(header), huge, who.sign))
    deep = b'{"iss": ' + b"[" * 6000 + b"]" * 6000 + b"}"
    yield case("deep nesting", "too-deep", sealed(dumped(header), deep, who.sign))
    yield case("too long", "too-large", "e" * (good.limit + 1))
    # Keys.
    for at, weak in enumerate(WEAK):
        # For the point of order one this is a signature of anything.
        forged = sealed(dumped(header), dumped({**claims, "iss": raw_did(weak)}), lambda _: NEUTRAL + bytes(32))
        yield case(f"issuer with weak key {at}", "unsafe-key", forged)
    for name, value in NAMES.items():
        yield replace(good.case("", "bad-claim", iss=value), name=f"{kind}: issuer {name}")


def _hs256(secret: bytes, message: bytes) -> bytes:
    return hmac.digest(secret, message, "sha256")


def _es256(message: bytes) -> bytes:
    r, s = decode_dss_signature(ec.generate_private_key(ec.SECP256R1()).sign(message, ec.ECDSA(SHA256())))
    return r.to_bytes(32) + s.to_bytes(32)


HEADERS = {
    "kid": did(MALLORY),
    "jwk": {"kty": "OKP", "crv": "Ed25519", "x": encoded(MALLORY.public.raw)},
    "jku": "https://example.org/keys",
    "x5c": ["MIIB"],
    "crit": ["exp"],
    "b64": False,
    "cty": "JWT",
    "zip": "DEF",
}
PAYLOADS: dict[str, Callable[[bytes], bytes]] = {
    "with more behind it": lambda payload: payload + b"{}",
    "cut": lambda payload: payload[:-1],
    "that is a list": lambda payload: b"[" + payload + b"]",
    "that is text": lambda payload: dumped(payload.decode()),
    "with a byte order mark": lambda payload: b"\xef\xbb\xbf" + payload,
    "in UTF-16": lambda payload: payload.decode().encode("utf-16"),
    "that is not UTF-8": lambda payload: payload[:-2] + b'\xff"}',
    "with a comma too many": lambda payload: payload[:-1] + b",}",
}
TIMES: dict[str, Any] = {
    "a fraction": AT + 0.5,
    "a whole number written as a fraction": float(AT),
    "true": True,
    "text": str(AT),
    "null": None,
    "before 1970": -1,
    "after 9999": 253_402_300_800,
    "past 64 bits": 2**63,
    "thirty digits": 10**30,
    "no number": float("nan"),
    "infinity": float("inf"),
    "a list": [AT],
}
