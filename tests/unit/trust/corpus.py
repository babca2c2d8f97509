"""What the bad statements are made with, and the good ones that they differ from.

`GOOD` has one good statement of each kind, with what verifies it: every bad one differs from it in one way.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headgate.model.errors import BadStatement, HeadgateError
from headgate.model.limits import (
    MAX_LIST_BYTES,
    MAX_STATEMENT_BYTES,
    MAX_TYPE_STATEMENT_BYTES,
)
from headgate.trust.certificates import CERTIFICATE, REVOCATIONS, SUCCESSION, consent_to
from headgate.trust.identities import IDENTITY, verify_server
from headgate.trust.keys import PrivateKey
from headgate.trust.typedefs import verify_type

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = int(NOW.timestamp())
DAY = 86_400
HERE = "met"

Claims = Mapping[str, Any]
Check = Callable[[str], object]


def key(letter: str) -> PrivateKey:
    return PrivateKey.generate(lambda n: letter.encode() * n)


PITO, MET, SMITH, MALLORY, TFL = key("p"), key("m"), key("s"), key("x"), key("t")


def did(who: PrivateKey) -> str:
    return who.public.did


def raw_did(raw: bytes) -> str:
    """The name that a key would have, were it safe."""
    alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    number, text = int.from_bytes(b"\xed\x01" + raw), ""
    while number:
        number, digit = divmod(number, 58)
        text = alphabet[digit] + text
    return "did:key:z" + text


NEUTRAL = (1).to_bytes(32, "little")
ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
WEAK = [NEUTRAL, bytes(32), (2**255 - 20).to_bytes(32, "little"), ORDER_8.to_bytes(32, "little"), b"\xff" * 32]


@dataclass(frozen=True)
class Case:
    """Something bad: what `check` is to refuse `text` for."""

    name: str
    reason: str
    text: str
    check: Check


def reason_of(error: HeadgateError) -> str:
    return error.reason if isinstance(error, BadStatement) else error.code


# -- writing statements by hand -------------------------------------------------------------------------------


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def dumped(data: object) -> bytes:
    return json.dumps(data).encode()


def sealed(header: bytes, payload: bytes, signer: Callable[[bytes], bytes]) -> str:
    head = f"{encoded(header)}.{encoded(payload)}"
    return f"{head}.{encoded(signer(head.encode()))}"


def signed(typ: str, claims: Claims, who: PrivateKey) -> str:
    """Any claims, with a signature that is right."""
    return sealed(dumped({"alg": "EdDSA", "typ": typ}), dumped(claims), who.sign)


def cert(issuer: PrivateKey, subject: PrivateKey, authority: object = None, **more: Any) -> str:
    given = [{"type": "*", "actions": "*"}] if authority is None else authority
    claims = {"iss": did(issuer), "sub": did(subject), "jti": "c1", "iat": AT, "authority": given, "delegate": True}
    return signed("hg-cert+jwt", {**claims, **more}, issuer)


INSTALL = [{"network": "*", "actions": ["install"]}]
EXTEND = [{"type": "uk.gov.pito.*", "actions": ["extend"]}]


def typedef(owner: PrivateKey, name: str, credentials: Sequence[str] = (), /, **more: Any) -> str:
    claims = {"iss": did(owner), "name": f"{did(owner)}/{name}", "attributes": {"location": "string"}, "iat": AT}
    return signed("hg-type+jwt", {**claims, "credentials": list(credentials), **more}, owner)


PLATE = typedef(PITO, "uk.gov.pito.Numberplate")
CHILD = {"parent": f"{did(PITO)}/uk.gov.pito.Numberplate", "parent_definition": PLATE, "attributes": {"speed": "int"}}


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def next_letter(letter: str) -> str:
    """A letter that differs in bits that carry nothing."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return alphabet[alphabet.index(letter) ^ 1]


NAMES: dict[str, Any] = {
    "by alias": "pito",
    "empty": "",
    "a number": 1,
    "a list": [did(PITO)],
    "of another method": "did:web:example.org",
    "with a fragment": did(PITO) + "#" + did(PITO)[8:],
    "with a space": did(PITO) + " ",
}


# -- one good statement of each kind --------------------------------------------------------------------------


@dataclass(frozen=True)
class Good:
    typ: str
    claims: Claims
    check: Check
    limit: int = MAX_STATEMENT_BYTES
    signer: PrivateKey = PITO

    def signed(self, **changed: Any) -> str:
        """The same with some claims changed; None takes one out."""
        claims = {name: value for name, value in {**self.claims, **changed}.items() if value is not OUT}
        return signed(self.typ, claims, self.signer)

    def case(self, name: str, reason: str, /, **changed: Any) -> Case:
        return Case(name, reason, self.signed(**changed), self.check)


OUT = object()
CERT = Good(
    "hg-cert+jwt",
    {
        "iss": did(PITO),
        "sub": did(MET),
        "jti": "c1",
        "iat": AT,
        "nbf": AT - DAY,
        "exp": AT + DAY,
        "delegate": True,
        "freshness": 60,
        "aud": [HERE, "tfl"],
        "authority": [
            {"network": "UK Police Network", "actions": ["connect", "install"]},
            {
                "type": f"{did(PITO)}/uk.gov.pito.*",
                "actions": ["publish"],
                "attributes": {"location": {"value": "Victoria"}, "numberplate": {"any": True}},
                "where": "$clearance = 'secret' and @time > timestamp '2026-01-01T00:00:00Z'",
            },
        ],
    },
    lambda text: CERTIFICATE.verify(text, audience=HERE, now=NOW),
)
PERSON = Good(
    "hg-identity+jwt",
    {
        "iss": did(PITO),
        "sub": did(SMITH),
        "jti": "i1",
        "iat": AT,
        "nbf": AT,
        "exp": AT + 3600,
        "attributes": {"clearance": "secret", "grade": 3, "height": {"float": (1.5).hex()}},
        "policy_rule": "$nation = 'UK'",
        "aud": HERE,
    },
    lambda text: IDENTITY.verify(text, audience=HERE, now=NOW),
)
LIST = Good(
    "hg-revocation+jwt",
    {"iss": did(PITO), "number": 7, "iat": AT, "revoked": ["c1", "c2"]},
    lambda text: REVOCATIONS.verify(text, issuer=did(PITO), now=NOW),
    MAX_LIST_BYTES,
)
NEXT = Good(
    "hg-successor+jwt",
    {
        "iss": did(PITO),
        "sub": did(TFL),
        "number": 1,
        "iat": AT,
        "until": AT + DAY,
        "consent": consent_to(PITO.public, TFL),
    },
    lambda text: SUCCESSION.verify(text, now=NOW),
)
KIND = Good(
    "hg-type+jwt",
    {
        "iss": did(MET),
        "name": f"{did(MET)}/uk.gov.met.Speeding",
        "attributes": {"speed": "int"},
        "key": ["location"],
        "parent": CHILD["parent"],
        "parent_definition": PLATE,
        "iat": AT,
        "credentials": [cert(PITO, MET, EXTEND)],
    },
    lambda text: verify_type(text, coordinator=did(PITO), now=NOW),
    MAX_TYPE_STATEMENT_BYTES,
    MET,
)
SERVER = signed(
    "hg-identity+jwt",
    {"iss": did(TFL), "sub": did(SMITH), "jti": "i2", "iat": AT, "nbf": AT, "exp": AT + 60, "attributes": {}},
    TFL,
)
CROSS = Good(
    "hg-identity+jwt",
    {"iss": did(PITO), "sub": did(TFL), "jti": "x1", "iat": AT, "nbf": AT, "exp": AT + 60, "provider": True},
    lambda text: verify_server(SERVER, text, anchor=did(PITO), audience=HERE, now=NOW),
)
GOOD = {"certificate": CERT, "identity": PERSON, "list": LIST, "succession": NEXT, "type": KIND, "crossing": CROSS}
