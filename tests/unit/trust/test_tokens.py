"""Session tokens: only this broker's, for this domain, in time."""

from __future__ import annotations

import base64
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model.errors import NotAuthenticated
from headgate.model.limits import MAX_TOKEN_CHARS, SESSION_SECONDS
from headgate.trust.keys import PrivateKey
from headgate.trust.tokens import Session, issue, verify

BROKER = PrivateKey.generate(lambda n: b"b" * n)
OTHER = PrivateKey.generate(lambda n: b"o" * n)
ANN = PrivateKey.generate(lambda n: b"a" * n).public
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HEADER = {"alg": "EdDSA", "typ": "hg-session+jwt"}
CLAIMS = {
    "iss": BROKER.public.did,
    "sub": ANN.did,
    "jti": "1",
    "iat": int(NOW.timestamp()),
    "exp": int(NOW.timestamp()) + 900,
    "aud": "shop",
}


def check(raw: str, now: datetime = NOW, audience: str = "shop") -> Session:
    return verify(raw, broker=BROKER.public, audience=audience, now=now)


def refused(raw: str, now: datetime = NOW, audience: str = "shop") -> None:
    with pytest.raises(NotAuthenticated) as caught:
        check(raw, now, audience)
    assert str(caught.value) == "the session token is not good; prove who you are again [not-authenticated]"
    assert caught.value.__cause__ is None


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(claims: Any = CLAIMS, header: Any = HEADER, key: PrivateKey = BROKER) -> str:
    """Any header and claims, with a signature that is right."""
    head = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(claims).encode())}"
    return f"{head}.{encoded(key.sign(head.encode()))}"


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in CLAIMS.items() if key != name}


def test_a_token_is_good_until_it_expires() -> None:
    raw = issue(BROKER, principal=ANN, audience="shop", now=NOW, random=lambda n: b"j" * n)
    end = NOW + timedelta(seconds=SESSION_SECONDS)
    assert check(raw) == Session(ANN.did, (b"j" * 16).hex(), end)
    assert check(raw, end - timedelta(microseconds=1)).expires == end
    refused(raw, end)


def test_a_token_is_a_jwt_that_says_what_it_is() -> None:
    raw = issue(BROKER, principal=ANN, audience="shop", now=NOW, seconds=60)
    assert jwt.get_unverified_header(raw) == HEADER
    claims = jwt.decode(raw, options={"verify_signature": False})
    assert claims.keys() == CLAIMS.keys()
    assert claims["exp"] - claims["iat"] == 60


def test_ids_differ() -> None:
    issued = [check(issue(BROKER, principal=ANN, audience="shop", now=NOW)).id for _ in range(50)]
    assert len(set(issued)) == 50


def test_what_the_tests_sign_by_hand_is_good() -> None:
    assert check(signed()).principal_did == ANN.did


def test_another_broker_domain_or_time_is_refused() -> None:
    refused(signed(key=OTHER))
    refused(signed({**CLAIMS, "iss": OTHER.public.did}))
    refused(signed(), audience="other")
    refused(signed({**CLAIMS, "aud": ["shop"]}))
    refused(signed(), NOW - timedelta(seconds=61))
    assert check(signed(), NOW - timedelta(seconds=59))


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "EdDSA", "typ": "JWT"},
        {"alg": "EdDSA", "typ": "hg-cert+jwt"},
        {"alg": "EdDSA"},
        {"alg": "none", "typ": "hg-session+jwt"},
        {"alg": "HS256", "typ": "hg-session+jwt"},
        {**HEADER, "kid": "x"},
        {**HEADER, "jwk": {"kty": "OKP"}},
        {**HEADER, "crit": ["exp"]},
        {**HEADER, "b64": False},
        [],
        "EdDSA",
    ],
)
def test_another_header_is_refused_even_if_it_is_signed(header: Any) -> None:
    refused(signed(header=header))


def test_a_token_without_signature_or_under_the_public_key_as_a_password_is_refused() -> None:
    head = f"{encoded(json.dumps({**HEADER, 'alg': 'none'}).encode())}.{encoded(json.dumps(CLAIMS).encode())}"
    refused(f"{head}.")
    head = f"{encoded(json.dumps({**HEADER, 'alg': 'HS256'}).encode())}.{encoded(json.dumps(CLAIMS).encode())}"
    refused(f"{head}.{encoded(hmac.digest(BROKER.public.raw, head.encode(), 'sha256'))}")


@pytest.mark.parametrize(
    "claims",
    [
        *(without(name) for name in CLAIMS),
        {**CLAIMS, "admin": True},
        {**CLAIMS, "sub": "ann"},
        {**CLAIMS, "sub": None},
        {**CLAIMS, "jti": 1},
        {**CLAIMS, "exp": "tomorrow"},
        {**CLAIMS, "exp": True},
        {**CLAIMS, "exp": float(CLAIMS["exp"])},
        {**CLAIMS, "exp": 10**30},
        {**CLAIMS, "iat": -(10**30)},
        {**CLAIMS, "exp": CLAIMS["iat"] - 1},
        [],
        None,
        "claims",
    ],
)
def test_other_claims_are_refused_even_if_they_are_signed(claims: Any) -> None:
    refused(signed(claims))


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_one_turned_bit_anywhere_is_refused(at: int, bit: int) -> None:
    head, body, signature = signed().split(".")
    parts = [bytearray(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in (head, body, signature)]
    part = parts[at % 3]
    part[at % len(part)] ^= 1 << bit
    refused(".".join(encoded(bytes(part)) for part in parts))


@given(st.text(max_size=200))
def test_nonsense_is_refused(text: str) -> None:
    refused(text)


def test_a_long_token_is_refused_before_it_is_read() -> None:
    long = signed({**CLAIMS, "jti": "x" * MAX_TOKEN_CHARS})
    assert len(long) > MAX_TOKEN_CHARS
    refused(long)
    refused("[" * MAX_TOKEN_CHARS)
    refused(encoded(b"[" * 1500) + ".e30.AA")
