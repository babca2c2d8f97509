"""A bag of statements: whatever its issuer dates ahead of the clock does not count yet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from headgate.model.authority import NetworkAuthority, Validity
from headgate.model.errors import BadStatement, BrokerNotTrusted
from headgate.model.limits import MAX_CLOCK_SKEW_SECONDS
from headgate.model.rights import Action
from headgate.trust.certificates import consent_to, issue_certificate, issue_revocations, issue_succession
from headgate.trust.identities import cross_domain, issue_identity
from headgate.trust.keys import PrivateKey
from headgate.trust.presented import check_broker, open_presented
from headgate.trust.statements import Verifier

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
DAY = Validity(NOW - timedelta(hours=1), NOW + timedelta(hours=12))
ISSUER, OTHER = PrivateKey.generate(), PrivateKey.generate()
CONNECT = NetworkAuthority(frozenset({Action.CONNECT}))


def certificate(at: datetime) -> str:
    return issue_certificate(ISSUER, subject=OTHER.public.did, authority=[CONNECT], now=at, delegate=True, validity=DAY)


KINDS: dict[str, Callable[[datetime], str]] = {
    "certificate": certificate,
    "identity": lambda at: issue_identity(ISSUER, subject=OTHER.public.did, attributes={}, validity=DAY, now=at),
    "crossing": lambda at: cross_domain(ISSUER, other=OTHER.public.did, validity=DAY, now=at),
    "list": lambda at: issue_revocations(ISSUER, number=1, revoked=(), now=at),
    "succession": lambda at: issue_succession(
        ISSUER, new=OTHER.public.did, consent=consent_to(ISSUER.public, OTHER), now=at
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_issued_in_the_future_does_not_count_yet(kind: str) -> None:
    at = NOW + timedelta(hours=1)
    text, verifier = KINDS[kind](at), Verifier()
    with pytest.raises(BadStatement) as refused:
        open_presented([text], audience=None, now=NOW, verifier=verifier)
    assert refused.value.reason == "not-yet-valid"
    assert "2026-01-05T10:00:00" in refused.value.message
    open_presented([text], audience=None, now=at, verifier=verifier)  # when the time has come, it does


@pytest.mark.parametrize("kind", KINDS)
def test_clocks_may_differ_a_little(kind: str) -> None:
    skew = timedelta(seconds=MAX_CLOCK_SKEW_SECONDS)
    open_presented([KINDS[kind](NOW + skew)], audience=None, now=NOW)
    with pytest.raises(BadStatement):
        open_presented([KINDS[kind](NOW + skew + timedelta(seconds=1))], audience=None, now=NOW)


def test_a_broker_is_not_vouched_for_in_the_future() -> None:
    asked = {"broker": OTHER.public.did, "coordinator": ISSUER.public.did}
    check_broker([certificate(NOW)], **asked, now=NOW)
    with pytest.raises(BrokerNotTrusted, match="good only from"):
        check_broker([certificate(NOW + timedelta(hours=1))], **asked, now=NOW)


def test_certificates_that_are_over_or_yet_to_begin_are_left_to_chains() -> None:
    for validity in (Validity(NOW - timedelta(days=2), NOW - timedelta(days=1)), Validity(NOW + timedelta(days=1))):
        text = issue_certificate(ISSUER, subject=OTHER.public.did, authority=[CONNECT], now=NOW, validity=validity)
        assert len(open_presented([text], audience=None, now=NOW).certificates) == 1
