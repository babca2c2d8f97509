"""Bad statements and chains: none is accepted, and each is refused for its own reason."""

from __future__ import annotations

import pytest

from headgate.model.errors import HeadgateError
from unit.trust.corpus import GOOD, Case, reason_of
from unit.trust.corpus_any import of_any_kind
from unit.trust.corpus_certificates import of_certificates
from unit.trust.corpus_chains import GOOD_CHAIN, check_chain, of_chains
from unit.trust.corpus_kinds import of_identities, of_lists, of_successions
from unit.trust.corpus_types import of_types

CASES = [
    *(case for kind, good in GOOD.items() for case in of_any_kind(kind, good)),
    *of_certificates(),
    *of_identities(),
    *of_lists(),
    *of_successions(),
    *of_types(),
    *of_chains(),
]
LEAST = 150


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_bad_is_refused_for_its_reason(case: Case) -> None:
    with pytest.raises(HeadgateError) as refused:
        case.check(case.text)
    assert reason_of(refused.value) == case.reason
    message = str(refused.value)
    assert "\n" not in message
    assert len(message) < 1000


@pytest.mark.parametrize("kind", GOOD)
def test_what_the_bad_ones_differ_from_is_good(kind: str) -> None:
    good = GOOD[kind]
    assert good.check(good.signed()) is not None


def test_the_chain_that_bad_ones_differ_from_is_good() -> None:
    assert len(check_chain(GOOD_CHAIN)) == 1


def test_there_are_enough_and_no_two_are_one() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({(case.text, case.check) for case in CASES}) >= LEAST
    assert len({case.text for case in CASES}) >= LEAST
    assert len({case.reason for case in CASES}) >= 25
