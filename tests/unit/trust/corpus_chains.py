"""Chains that give nothing, of certificates most of which are good."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from headgate.authority.chains import ChainGround, discover, why_not
from headgate.model.authority import Certificate
from headgate.model.limits import (
    MAX_CHAIN_LENGTH,
)
from headgate.trust.certificates import CERTIFICATE
from headgate.trust.keys import PrivateKey
from unit.trust.corpus import (
    AT,
    DAY,
    HERE,
    MALLORY,
    MET,
    NOW,
    PERSON,
    PITO,
    SMITH,
    TFL,
    Case,
    cert,
    decoded,
    did,
    dumped,
    encoded,
    key,
    signed,
)


def of_chains() -> Iterator[Case]:
    plate = "uk.gov.pito.Numberplate"
    give = partial(_give, plate)
    first = give(PITO, MET)
    later = NOW + timedelta(days=2)

    def case(name: str, reason: str, *texts: str, **how: Any) -> Case:
        return Case(f"chain: {name}", reason, " ".join(texts), partial(check_chain, **how))

    yield case("delegation through false", "chain-invalid", give(PITO, MET, delegate=False), give(MET, SMITH))
    yield case("no delegation said", "chain-invalid", _silent(PITO, MET), give(MET, SMITH))
    yield case("not from the owner", "chain-invalid", give(MET, SMITH, type=f"{did(PITO)}/{plate}"))
    yield case("swapped subject", "chain-invalid", give(PITO, TFL), give(MET, SMITH))
    yield case("for another holder", "chain-invalid", first, give(MET, TFL))
    yield case("a circle", "chain-invalid", give(MET, TFL, type=f"{did(PITO)}/*"), give(TFL, MET), give(TFL, SMITH))
    yield case(
        "a circle of one",
        "chain-invalid",
        give(MET, MET, type=f"{did(PITO)}/*"),
        give(MET, SMITH, type=f"{did(PITO)}/*"),
    )
    yield case("expired link", "expired", give(PITO, MET, exp=AT + DAY), give(MET, SMITH), now=later)
    yield case("expired last link", "expired", first, give(MET, SMITH, exp=AT + DAY), now=later)
    yield case("link of tomorrow", "chain-invalid", give(PITO, MET, nbf=AT + DAY), give(MET, SMITH))
    yield case("times apart", "chain-invalid", give(PITO, MET, exp=AT + 10), give(MET, SMITH, nbf=AT + 10))
    yield case("revoked link", "revoked", first, give(MET, SMITH), revoked={f"{did(PITO)}#c1"})
    yield case("revoked last link", "revoked", first, give(MET, SMITH, jti="c2"), revoked={f"{did(MET)}#c2"})
    yield case("silent issuer", "chain-invalid", give(PITO, MET, freshness=60), give(MET, SMITH), silent=True)
    for a, b in ESCAPES:
        yield case(f"{b} out of {a}", "chain-invalid", give(PITO, MET, type=a), give(MET, SMITH, type=b))
    yield case(
        "another action", "chain-invalid", give(PITO, MET, actions=["publish"]), give(MET, SMITH, actions=["subscribe"])
    )
    yield case("another owner's types", "chain-invalid", first, give(MET, SMITH, type=f"{did(TFL)}/{plate}"))
    forced = {"location": {"value": "Victoria"}}, {"location": {"value": "Soho"}}
    yield case(
        "forced both ways",
        "chain-invalid",
        give(PITO, MET, attributes=forced[0]),
        give(MET, SMITH, attributes=forced[1]),
    )
    kinds = {"speed": {"value": 1}}, {"speed": {"value": True}}
    yield case(
        "forced to two kinds",
        "chain-invalid",
        give(PITO, MET, attributes=kinds[0]),
        give(MET, SMITH, attributes=kinds[1]),
    )
    people = [PITO, *(key(chr(33 + n)) for n in range(MAX_CHAIN_LENGTH)), SMITH]
    many = [give(a, b, jti=f"c{n}") for n, (a, b) in enumerate(itertools.pairwise(people))]
    assert len(many) == MAX_CHAIN_LENGTH + 1
    yield case("over-long", "chain-invalid", *many)
    yield case("network from a stranger", "chain-invalid", cert(TFL, SMITH, [{"network": "*", "actions": ["connect"]}]))
    yield case("a forged link", "bad-signature", first, signed("hg-cert+jwt", _claims(MET, SMITH, plate), MALLORY))
    yield case("an altered link", "bad-signature", _altered(first, sub=did(SMITH)))
    yield case("a link of another kind", "wrong-type", first, PERSON.signed())
    yield case("a link for another audience", "wrong-audience", first, give(MET, SMITH, aud="tfl"))


ESCAPES = [
    ("uk.gov.pito.*", "uk.gov.pitox.T"),
    ("uk.gov.pito.*", "uk.gov.pito"),
    ("uk.gov.pito.*", "uk.gov.met.*"),
    ("uk.gov.pito.T", "uk.gov.pito.T.*"),
    ("uk.gov.pito.T", "uk.gov.pito.t"),
    ("uk.gov.pito.T", "uk.gov.pito.TT"),
    ("uk.gov.pito-x.*", "uk.gov.pito.T"),
]


def _claims(issuer: PrivateKey, subject: PrivateKey, type: str, **more: Any) -> dict[str, Any]:
    entries = {name: more.pop(name) for name in ("attributes", "where") if name in more}
    authority = [{"type": type, "actions": more.pop("actions", "*"), **entries}]
    said = {"iss": did(issuer), "sub": did(subject), "jti": "c1", "iat": AT, "authority": authority, "delegate": True}
    return {**said, **more}


def _give(plate: str, issuer: PrivateKey, subject: PrivateKey, *, type: str | None = None, **more: Any) -> str:
    return signed("hg-cert+jwt", _claims(issuer, subject, type or plate, **more), issuer)


def _silent(issuer: PrivateKey, subject: PrivateKey) -> str:
    claims = _claims(issuer, subject, "*")
    del claims["delegate"]
    return signed("hg-cert+jwt", claims, issuer)


def _altered(text: str, **changed: Any) -> str:
    head, body, tail = text.split(".")
    return f"{head}.{encoded(dumped({**json.loads(decoded(body)), **changed}))}.{tail}"


def check_chain(
    text: str, *, now: datetime = NOW, revoked: set[str] | None = None, silent: bool = False
) -> tuple[object, ...]:
    """What the certificates give Smith, or why they give nothing."""
    bag = [CERTIFICATE.verify(one, audience=HERE) for one in text.split()]

    def gone(one: Certificate) -> bool:
        return one.key in (revoked or ())

    def known(one: Certificate) -> bool | None:
        return None if silent and one.freshness is not None else True

    def owns(one: str) -> bool:
        return one == did(PITO)

    ground = ChainGround(coordinator=did(PITO), now=now, revoked=gone, known=known, owners=owns)
    if found := discover(bag, did(SMITH), ground):
        return found
    raise why_not(bag, did(SMITH), ground)


GOOD_CHAIN = f"{_give('uk.gov.pito.T', PITO, MET)} {_give('uk.gov.pito.T', MET, SMITH)}"
