"""Chains of certificates: what it costs to verify one, beside the bare signatures in it.

The chain is that of the police network: the owner gives a domain all of its types, the domain gives a broker one type
with some attributes, and the broker a camera the right to publish with a forced value, while it does so seldom enough.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from datetime import UTC, datetime, timedelta

from benchmarks.measure import report, report_ratio, side_by_side
from headgate.authority.chains import reduce
from headgate.lang import parse_condition
from headgate.model.authority import TypeAuthority, Validity
from headgate.model.rights import Action
from headgate.trust.certificates import CERTIFICATE, issue_certificate
from headgate.trust.keys import PrivateKey
from headgate.trust.statements import Verifier

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MOST = 3.0
ROUNDS = 300


def run() -> None:
    keys = [PrivateKey.generate(lambda n, at=at: bytes([at]) * n) for at in range(1, 5)]
    texts = chain(keys)
    bare = [(urlsafe_b64decode(t.rsplit(".")[-1] + "=="), t.rpartition(".")[0].encode()) for t in texts]
    native = [key.public.native() for key in keys]
    verifier = Verifier()

    def raw() -> None:
        for _ in range(ROUNDS):
            for key, (signature, message) in zip(native, bare, strict=False):
                key.verify(signature, message)

    def verified(remembering: Verifier | None) -> None:
        for _ in range(ROUNDS):
            found = [CERTIFICATE.verify(one, audience="met", now=NOW, verifier=remembering) for one in texts]
            assert reduce(found) is not None

    times = side_by_side(
        {"raw": raw, "cold": lambda: verified(None), "remembered": lambda: verified(verifier)}, times=7
    )
    report_ratio("chain of three, cold, over three signatures", times["cold"], times["raw"], MOST, "lower")
    report_ratio("chain of three, remembered, over three signatures", times["remembered"], times["raw"], None, "lower")
    report("chain of three, cold, microseconds", min(times["cold"]) / ROUNDS * 1e6, None, "lower")
    report("chain of three, remembered, microseconds", min(times["remembered"]) / ROUNDS * 1e6, None, "lower")


def chain(keys: list[PrivateKey]) -> list[str]:
    plate = "uk.gov.pito.Numberplate"
    some = ("location", "numberplate", "timestamp")
    both = frozenset({Action.PUBLISH, Action.SUBSCRIBE})
    given = (
        TypeAuthority(both, "uk.gov.pito.*", keys[0].public.did),
        TypeAuthority(both, plate, attributes=some),
        TypeAuthority(
            frozenset({Action.PUBLISH}),
            plate,
            None,
            some,
            {"location": "Victoria"},
            parse_condition("timestamp is not null"),
        ),
    )
    return [
        issue_certificate(
            issuer,
            subject=subject.public.did,
            authority=[authority],
            now=NOW,
            delegate=True,
            validity=Validity(NOW, NOW + timedelta(days=30)),
            audience=["met"],
        )
        for issuer, subject, authority in zip(keys, keys[1:], given, strict=False)
    ]
