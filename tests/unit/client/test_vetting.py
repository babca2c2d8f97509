"""Which gateways a client talks to, by what they show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headgate.client.gateways import ANYONE, ExpectedGateway
from headgate.model.authority import NetworkAuthority, Validity
from headgate.model.errors import BadDefinition, BadExpression, BadKey, BrokerNotTrusted
from headgate.model.rights import Action
from headgate.model.values import Value
from headgate.trust.certificates import CERTIFICATE, issue_certificate, issue_revocations
from headgate.trust.identities import cross_domain, issue_identity
from headgate.trust.keys import PrivateKey
from headgate.trust.presented import MAX_SHOWN

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ROOT, DOMAIN, BROKER, HOME, FOREIGN = (PrivateKey.generate() for _ in range(5))
HOUR = Validity(NOW, NOW + timedelta(hours=1))


def expected(
    coordinator: PrivateKey | None = None,
    provider: PrivateKey | None = None,
    rule: str | None = None,
    at: datetime = NOW,
) -> ExpectedGateway:
    dids = [None if one is None else one.public.did for one in (coordinator, provider)]
    return replace(ExpectedGateway.of(dids[0], dids[1], rule), clock=lambda: at)


def link(issuer: PrivateKey, subject: PrivateKey, *, delegate: bool = True, audience: tuple[str, ...] = ()) -> str:
    return issue_certificate(
        issuer,
        subject=subject.public.did,
        authority=[NetworkAuthority(frozenset({Action.CONNECT}))],
        now=NOW,
        delegate=delegate,
        validity=HOUR,
        audience=audience,
    )


def attested(provider: PrivateKey, subject: PrivateKey = BROKER, **attributes: Value) -> str:
    return issue_identity(provider, subject=subject.public.did, attributes=attributes, validity=HOUR, now=NOW)


def refused(one: ExpectedGateway, *statements: str) -> str:
    with pytest.raises(BrokerNotTrusted) as error:
        one.check(BROKER.public.did, list(statements))
    return error.value.message


def test_who_expects_nothing_looks_at_nothing() -> None:
    ANYONE.check(BROKER.public.did, ["whatever"])


def test_a_chain_from_the_coordinator_is_needed() -> None:
    wanted = expected(ROOT)
    chain = [link(ROOT, DOMAIN), link(DOMAIN, BROKER)]
    wanted.check(BROKER.public.did, chain)
    wanted.check(ROOT.public.did, [])
    refused(wanted)
    refused(wanted, chain[1])
    refused(wanted, link(ROOT, DOMAIN, delegate=False), chain[1])  # which the domain may not pass on
    refused(wanted, link(DOMAIN, BROKER), link(HOME, DOMAIN))
    assert "delegated on" in refused(wanted, chain[0], link(DOMAIN, BROKER, delegate=False))  # a member's
    refused(wanted, *chain, "nonsense")


def test_the_time_is_the_clients_own() -> None:
    refused(expected(ROOT, at=NOW + timedelta(hours=2)), link(ROOT, BROKER))
    refused(expected(ROOT, at=NOW - timedelta(hours=2)), link(ROOT, BROKER))


def test_a_list_that_revokes_the_chain_counts() -> None:
    shown = link(ROOT, BROKER)
    gone = issue_revocations(ROOT, number=1, revoked=[CERTIFICATE.read(shown).value.id], now=NOW)
    refused(expected(ROOT), shown, gone)


def test_what_is_for_others_says_nothing_to_us() -> None:
    wanted = expected(ROOT)
    wanted.check(BROKER.public.did, [link(ROOT, BROKER), link(HOME, BROKER, audience=("elsewhere",))])
    refused(wanted, link(ROOT, BROKER, audience=("elsewhere",)))


def test_a_provider_must_attest_what_is_expected() -> None:
    wanted = expected(provider=HOME, rule="$nation = 'NO'")
    wanted.check(BROKER.public.did, [attested(HOME, nation="NO")])
    assert "does not meet" in refused(wanted, attested(HOME, nation="IT"))
    assert "does not meet" in refused(wanted, attested(HOME))  # unknown is not true
    assert "no identity statement" in refused(wanted, link(ROOT, BROKER))
    refused(wanted, attested(FOREIGN, nation="NO"))
    assert "a statement about" in refused(wanted, attested(HOME, DOMAIN, nation="NO"))
    refused(expected(provider=HOME, rule="$nation = 'NO'", at=NOW + timedelta(hours=1)), attested(HOME, nation="NO"))


def test_a_foreign_provider_is_believed_if_ones_own_vouches_for_it() -> None:
    wanted = expected(provider=HOME, rule="$nation = 'IT'")
    statement = attested(FOREIGN, nation="IT")
    word = cross_domain(HOME, other=FOREIGN.public.did, validity=HOUR, now=NOW)
    wanted.check(BROKER.public.did, [word, statement])
    refused(wanted, cross_domain(DOMAIN, other=FOREIGN.public.did, validity=HOUR, now=NOW), statement)
    refused(wanted, cross_domain(HOME, other=DOMAIN.public.did, validity=HOUR, now=NOW), statement)


def test_a_flood_of_statements_is_not_looked_at() -> None:
    assert "MAX_SHOWN" in refused(expected(ROOT), *["x"] * (MAX_SHOWN + 1))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ExpectedGateway.of("did:key:zzz", None, None), BadKey),
        (lambda: ExpectedGateway.of(None, "nobody", None), BadKey),
        (lambda: ExpectedGateway.of(None, None, "$nation = 'NO'"), BadDefinition),
        (lambda: ExpectedGateway.of(None, HOME.public.did, "price > 3"), BadExpression),
        (lambda: ExpectedGateway.of(None, HOME.public.did, "$a ="), BadExpression),
    ],
)
def test_expectations_that_are_none(make: Callable[[], ExpectedGateway], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()
