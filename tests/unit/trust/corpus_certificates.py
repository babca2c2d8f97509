"""Bad certificates: what they say is not what a certificate can say."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from headgate.trust.certificates import CERTIFICATE
from unit.trust.corpus import (
    AT,
    CERT,
    DAY,
    HERE,
    MET,
    NAMES,
    NEUTRAL,
    NOW,
    PITO,
    WEAK,
    Case,
    Check,
    did,
    raw_did,
)


def of_certificates() -> Iterator[Case]:
    def later(text: str, seconds: int) -> Check:
        return lambda text: CERTIFICATE.verify(text, audience=HERE, now=NOW + timedelta(seconds=seconds))

    text = CERT.signed()
    yield Case("certificate: expired", "expired", text, later(text, DAY))
    yield Case("certificate: long expired", "expired", text, later(text, 9999 * DAY))
    yield Case("certificate: not yet valid", "not-yet-valid", CERT.signed(nbf=AT + 1), CERT.check)
    yield Case("certificate: before its time", "not-yet-valid", text, later(text, -2 * DAY))
    for name, audience in {"of another": "tfl2", "of none": None, "in capitals": HERE.upper()}.items():
        check = partial(CERTIFICATE.verify, audience=audience, now=NOW)
        yield Case(f"certificate: audience {name}", "wrong-audience", text, check)
    for name, value in {
        "empty": [],
        "null": None,
        "a number": 1,
        "with nothing": [""],
        "twice": [HERE, HERE],
        "of seventeen": [HERE, *map(str, range(16))],
        "nested": [[HERE]],
        "a lone surrogate": ["\ud800"],
    }.items():
        yield CERT.case(f"certificate: audience {name}", "bad-claim", aud=value)
    yield CERT.case("certificate: for another", "wrong-audience", aud="tfl")
    for value in (1, 0, "true", None, [], [True]):
        yield CERT.case(f"certificate: delegate {value!r}", "bad-claim", delegate=value)
    for value in (0, -1, 1.5, True, "60", 10**12, None):
        yield CERT.case(f"certificate: freshness {value!r}", "bad-claim", freshness=value)
    for value in ("", "a/b", "../c", "a b", "x" * 65, "\u0441\u0031", "c\n", 1, None, "a#b"):
        yield CERT.case(f"certificate: id {value!r}", "bad-claim", jti=value)
    for name, value in {"equal": AT + DAY, "later": AT + DAY + 1}.items():
        yield CERT.case(f"certificate: begins {name}", "bad-claim", nbf=value)
    for at, weak in enumerate(WEAK):
        yield CERT.case(f"certificate: subject with weak key {at}", "unsafe-key", sub=raw_did(weak))
    for name, value in NAMES.items():
        yield CERT.case(f"certificate: subject {name}", "bad-claim", sub=value)
    yield CERT.case(
        "certificate: subject that cannot sign",
        "unsafe-key",
        sub="did:key:z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc",
    )
    for name, (reason, value) in AUTHORITIES.items():
        yield CERT.case(f"certificate: authority {name}", reason, authority=value)
    for pattern in PATTERNS:
        given = [{"type": pattern, "actions": "*"}]
        yield CERT.case(f"certificate: pattern {pattern!r}", "bad-name", authority=given)
    for name, where in CONDITIONS.items():
        given = [{"type": "*", "actions": "*", "where": where}]
        yield CERT.case(f"certificate: condition {name}", "bad-condition", authority=given)
    for name, (reason, attributes) in ATTRIBUTES.items():
        given = [{"type": "*", "actions": "*", "attributes": attributes}]
        yield CERT.case(f"certificate: attributes {name}", reason, authority=given)
    for name, value in VALUES.items():
        given = [{"type": "*", "actions": "*", "attributes": {"a": {"value": value}}}]
        yield CERT.case(f"certificate: forced value {name}", "bad-claim", authority=given)


STAR = {"type": "*", "actions": "*"}
AUTHORITIES: dict[str, tuple[str, Any]] = {
    "none": ("bad-claim", []),
    "of seventeen": ("bad-claim", [STAR] * 17),
    "null": ("bad-claim", None),
    "not in a list": ("bad-claim", STAR),
    "that is text": ("bad-claim", ["*"]),
    "over nothing": ("missing-claim", [{}]),
    "without actions": ("missing-claim", [{"type": "*"}]),
    "of a network without actions": ("missing-claim", [{"network": "*"}]),
    "over both": ("unknown-claim", [{**STAR, "network": "*"}]),
    "with more": ("unknown-claim", [{**STAR, "admin": True}]),
    "of a network with a condition": ("unknown-claim", [{"network": "*", "actions": "*", "where": "true"}]),
    "with no actions": ("bad-claim", [{"type": "*", "actions": []}]),
    "with an action twice": ("bad-claim", [{"type": "*", "actions": ["publish", "publish"]}]),
    "to govern": ("bad-claim", [{"type": "*", "actions": ["govern"]}]),
    "to audit": ("bad-claim", [{"type": "*", "actions": ["audit"]}]),
    "to connect to a type": ("bad-claim", [{"type": "*", "actions": ["connect"]}]),
    "to publish a network": ("bad-claim", [{"network": "*", "actions": ["publish"]}]),
    "to Publish": ("bad-claim", [{"type": "*", "actions": ["Publish"]}]),
    "to publish in another script": ("bad-claim", [{"type": "*", "actions": ["\u0440ublish"]}]),
    "to text": ("bad-claim", [{"type": "*", "actions": "publish"}]),
    "to a star in a list": ("bad-claim", [{"type": "*", "actions": ["*"]}]),
    "over a number": ("bad-claim", [{"type": 1, "actions": "*"}]),
    "over a network that is a number": ("bad-claim", [{"network": 1, "actions": "*"}]),
    "over a network that is empty": ("bad-name", [{"network": "", "actions": "*"}]),
    "over a network in wide letters": ("bad-name", [{"network": "\uff30olice", "actions": "*"}]),
    "over a network with a hidden mark": ("bad-name", [{"network": "Police\u200b", "actions": "*"}]),
    "of an owner by alias": ("bad-claim", [{"type": "pito/uk.gov.pito.*", "actions": "*"}]),
    "of an owner with a weak key": ("unsafe-key", [{"type": raw_did(NEUTRAL) + "/*", "actions": "*"}]),
    "of two owners": ("bad-name", [{"type": f"{did(PITO)}/{did(MET)}/*", "actions": "*"}]),
    "of no owner": ("bad-claim", [{"type": "/uk.gov.pito.*", "actions": "*"}]),
    "of an owner alone": ("bad-name", [{"type": did(PITO) + "/", "actions": "*"}]),
    "with a condition that is no text": ("bad-claim", [{**STAR, "where": "a = '\ud800'"}]),
    "with a condition that is a number": ("bad-claim", [{**STAR, "where": 1}]),
    "said twice in one": ("bad-claim", [[STAR, STAR]]),
}
PATTERNS = (
    "uk.gov.pito*",
    "uk.*.pito",
    "*.pito",
    "**",
    ".*",
    "uk.gov.pito.",
    ".uk",
    "uk..gov",
    "uk.gov.pit\u043e.*",
    "\uff35k.gov.pito.*",
    "uk\u2024gov.pito.*",
    "uk.gov.pito.\uff0a",
    "uk.gov\u200b.pito.*",
    "uk.gov.pito.\u0130",
    "uk.gov.pito.* ",
    "uk gov",
    "uk.gov.pito\x00",
    "",
    "x" * 201,
    "uk.1gov",
    "-uk",
)
CONDITIONS: dict[str, str] = {
    "that names a group": "@publisher in group staff",
    "that names a group within": "a = 1 or not (b = 2 and c in group staff)",
    "that names a relation": "Supervisor(a, b)",
    "that names a predicate": "predicate cheap(a)",
    "that is no condition": "a ==",
    "that is empty": "",
    "that is too long": "a = '" + "x" * 10_000 + "'",
    "that nests": "(" * 100 + "a = 1" + ")" * 100,
    "with code": "__import__('os')",
    "with a number past 64 bits": "a = 9999999999999999999",
    "with an unknown mark": "@admin = true",
}
ATTRIBUTES: dict[str, tuple[str, Any]] = {
    "twice": ("bad-claim", ["a", "a"]),
    "null": ("bad-claim", None),
    "text": ("bad-claim", "a"),
    "numbers": ("bad-claim", [1]),
    "past the limit": ("bad-claim", [f"a{n}" for n in range(201)]),
    "with an empty name": ("bad-name", [""]),
    "of a subject": ("bad-name", ["$a"]),
    "of the gateway": ("bad-name", ["@time"]),
    "in wide letters": ("bad-name", ["\uff41"]),
    "with a hidden mark": ("bad-name", ["a\u200d"]),
    "in parts": ("bad-name", ["e\u0301"]),
    "with a line break": ("bad-name", ["a\nb"]),
    "neither": ("bad-claim", {"a": {}}),
    "both": ("bad-claim", {"a": {"any": True, "value": 1}}),
    "any false": ("bad-claim", {"a": {"any": False}}),
    "any one": ("bad-claim", {"a": {"any": 1}}),
    "any text": ("bad-claim", {"a": "any"}),
    "with another word": ("bad-claim", {"a": {"some": True}}),
}
VALUES: dict[str, Any] = {
    "null": None,
    "a fraction": 1.5,
    "past 64 bits": 2**63,
    "below 64 bits": -(2**63) - 1,
    "infinite": {"float": "inf"},
    "no number": {"float": "nan"},
    "a double in another way": {"float": "0x3p-1"},
    "a double in decimals": {"float": "1.5"},
    "a double as a number": {"float": 1},
    "a double past its range": {"float": "0x1p+1024"},
    "bytes in capitals": {"bytes": "FF"},
    "bytes with a space": {"bytes": "00 ff"},
    "half a byte": {"bytes": "f"},
    "a time past its range": {"timestamp": 2**62},
    "a time that is true": {"timestamp": True},
    "two kinds": {"bytes": "ff", "float": "0x1.8p+0"},
    "another kind": {"decimal": "1.5"},
    "a list": [1],
    "an object": {},
    "a lone surrogate": "\ud800",
}
