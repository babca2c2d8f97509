"""Certificates about roles: what it costs to validate one that was seen before, beside a look-up in a dictionary.

The certificates are of a thousand clients, each with one role of two arguments. What is asked for and who asks come as
texts of their own, as they do from a connection, so that they are compared and not merely the same. The records are a
dictionary, which is asked each time. Validator and dictionary are asked for the same texts in the same order.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.measure import report, report_ratio, side_by_side
from headgate.model.role_statements import HeldRole, RoleCertificate, ServiceInstance
from headgate.model.roles import reference
from headgate.roles.certificates.validation import Validator, WantedRole
from headgate.trust.keys import PrivateKey
from headgate.trust.role_keys import FileStore, RollingTable
from headgate.trust.role_statements import ROLE

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MOST = 20.0
CLIENTS = 1_000
ROUNDS = 100


def run() -> None:
    domain = PrivateKey.generate(lambda n: b"d" * n)
    table = RollingTable(domain, FileStore(Path(mkdtemp())))
    texts = certificates(table, domain.public.did)
    place = ServiceInstance(anew(domain.public.did), anew("Conf"), anew("Hilary"))
    asked = [(text, anew(who), WantedRole(place, anew("Member"))) for text, who in texts]
    exact = [
        (text, who, WantedRole(place, wanted.role, (name_of(n), None))) for n, (text, who, wanted) in enumerate(asked)
    ]
    known = dict(texts)
    records = {reference(n, 1): True for n in range(CLIENTS)}
    keys = table.keys(NOW)
    warm = Validator([keys])

    def look_up() -> None:
        for _ in range(ROUNDS):
            for text, _who, _wanted in asked:
                known[text]

    def validated(requests: list[tuple[str, str, WantedRole]]) -> None:
        validate, state = warm.validate, records.get
        for _ in range(ROUNDS):
            for text, who, wanted in requests:
                validate(text, who, wanted, state, NOW)

    def cold() -> None:
        validate, state = Validator([keys]).validate, records.get
        for text, who, wanted in asked:
            validate(text, who, wanted, state, NOW)

    works = {"look-up": look_up, "warm": lambda: validated(asked), "exact": lambda: validated(exact), "cold": cold}
    times = side_by_side(works, times=7)
    report_ratio("validation, warm, over a dictionary look-up", times["warm"], times["look-up"], MOST, "lower")
    report_ratio(
        "validation, warm, arguments asked for, over a look-up", times["exact"], times["look-up"], None, "lower"
    )
    report("validation, warm, microseconds", min(times["warm"]) / ROUNDS / CLIENTS * 1e6, None, "lower")
    report("validation, cold, microseconds", min(times["cold"]) / CLIENTS * 1e6, None, "lower")


def certificates(table: RollingTable, domain: str) -> list[tuple[str, str]]:
    """Each certificate, and whose it is."""
    place, until, signer = (
        ServiceInstance(domain, "Conf", "Hilary"),
        NOW + timedelta(hours=1),
        table.signer("short", NOW),
    )
    found = []
    for n in range(CLIENTS):
        who = PrivateKey.generate(lambda _, n=n: (n + 1).to_bytes(32)).public.did
        held = HeldRole("Member", (name_of(n), frozenset("rw")), reference(n, 1))
        found.append((ROLE.issue(signer, RoleCertificate(f"m{n}", place, who, (held,), NOW, until)), who))
    return found


def name_of(n: int) -> str:
    return f"client {n}"


def anew(text: str) -> str:
    """The same text, in another place of memory."""
    return text[:1] + text[1:]
