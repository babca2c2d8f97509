"""Signed types: they verify by themselves, and hang on what they carry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headgate.model.authority import NetworkAuthority, TypeAuthority, Validity
from headgate.model.errors import BadStatement, Expired
from headgate.model.limits import MAX_TYPE_DEPTH
from headgate.model.rights import Action
from headgate.model.values import Kind
from headgate.trust.certificates import issue_certificate
from headgate.trust.keys import PrivateKey
from headgate.trust.statements import Verifier, digest_of
from headgate.trust.typedefs import SignedType, issue_type, verify_type
from unit.trust.corpus import MALLORY, MET, NOW, PITO, SMITH, TFL, did

WEEK = timedelta(days=7)
PLATE = {"location": Kind.STRING, "numberplate": Kind.STRING}


def give(issuer: PrivateKey, subject: PrivateKey, action: Action, **more: Any) -> str:
    network = action is Action.INSTALL
    authority = NetworkAuthority(frozenset({action})) if network else TypeAuthority(frozenset({action}))
    return issue_certificate(issuer, subject=did(subject), authority=[authority], now=NOW, **more)


def verify(text: str, **more: Any) -> SignedType:
    return verify_type(text, **{"coordinator": did(PITO), "now": NOW, **more})


def test_the_coordinating_domain_needs_nobody() -> None:
    text = issue_type(PITO, name="uk.gov.pito.Numberplate", attributes=PLATE, key=["numberplate"], now=NOW)
    found = verify(text)
    assert found == SignedType(did(PITO), "uk.gov.pito.Numberplate", PLATE, None, ("numberplate",), digest_of(text), ())
    assert list(found.attributes) == list(PLATE)


def test_what_it_says_of_derived_events_is_signed() -> None:
    released = [(did(MET), "uk.met.Convoy"), (did(TFL), "uk.tfl.Jam")]
    text = issue_type(
        PITO, name="uk.gov.pito.T", attributes={}, now=NOW, derived="contributors", declassified_for=released
    )
    found = verify(text)
    assert (found.derived, found.declassified_for) == ("contributors", frozenset(released))


def test_another_owner_installs_by_a_chain_from_there() -> None:
    chain = [give(PITO, MET, Action.INSTALL, delegate=True), give(MET, SMITH, Action.INSTALL)]
    text = issue_type(SMITH, name="uk.smith.T", attributes={}, credentials=chain, now=NOW)
    found = verify(text)
    assert [one.subject for one in found.chain] == [did(MET), did(SMITH)]
    with pytest.raises(BadStatement) as refused:
        verify(text, coordinator=did(TFL))
    assert refused.value.reason == "wrong-root"


@pytest.mark.parametrize("ended", [PITO, MET, SMITH], ids=["coordinator", "link", "owner"])
def test_nothing_of_it_is_signed_by_a_key_that_has_ended(ended: PrivateKey) -> None:
    chain = [give(PITO, MET, Action.INSTALL, delegate=True), give(MET, SMITH, Action.INSTALL)]
    text = issue_type(SMITH, name="uk.smith.T", attributes={}, credentials=chain, now=NOW)
    heir = issue_type(SMITH, name="uk.smith.U", attributes={}, credentials=chain, parent=text, now=NOW)
    for signed in (text, heir):
        assert verify(signed, counts=lambda _: True).owner == did(SMITH)
        with pytest.raises(BadStatement) as refused:
            verify(signed, counts=lambda key: key != did(ended))
        assert refused.value.reason == "ended-key"


def line() -> tuple[str, str, str]:
    """PITO's type, the Met's below it, and one of the Met's own below that."""
    plate = issue_type(PITO, name="uk.gov.pito.Numberplate", attributes=PLATE, now=NOW)
    leave = give(PITO, MET, Action.EXTEND, id="leave")
    speeding = issue_type(
        MET, name="uk.met.Speeding", attributes={"speed": Kind.INT}, credentials=[leave], parent=plate, now=NOW
    )
    install = give(PITO, MET, Action.INSTALL, id="install")
    fined = issue_type(
        MET, name="uk.met.Fined", attributes={"fine": Kind.INT}, credentials=[install], parent=speeding, now=NOW
    )
    return plate, speeding, fined


def test_a_type_below_another_owners_needs_leave_and_carries_its_ancestors() -> None:
    _, speeding, fined = line()
    found = verify(fined)
    assert found.parent is not None
    assert found.parent == verify(speeding)
    assert found.parent.parent is not None
    assert found.parent.parent.owner == did(PITO)
    assert found.parent.parent.name == "uk.gov.pito.Numberplate"
    assert [one.id for one in found.certificates] == ["install", "leave"]


def test_it_falls_with_what_its_ancestors_hang_on() -> None:
    plate, *_ = line()
    leave = give(PITO, MET, Action.EXTEND, validity=Validity(None, NOW + WEEK))
    install = give(PITO, MET, Action.INSTALL)
    above = issue_type(MET, name="uk.met.A", attributes={}, credentials=[leave], parent=plate, now=NOW)
    below = issue_type(MET, name="uk.met.B", attributes={}, credentials=[install], parent=above, now=NOW)
    assert verify(below)
    with pytest.raises(Expired):
        verify(below, now=NOW + WEEK)


def test_the_network_counts_where_it_has_a_name() -> None:
    police = [NetworkAuthority(frozenset({Action.INSTALL}), "UK Police Network")]
    leave = issue_certificate(PITO, subject=did(MET), authority=police, now=NOW)
    text = issue_type(MET, name="uk.met.T", attributes={}, credentials=[leave], now=NOW)
    assert verify(text)
    assert verify(text, network="UK Police Network")
    with pytest.raises(BadStatement) as refused:
        verify(text, network="UK Rail Network")
    assert refused.value.reason == "not-allowed"


def test_only_the_key_in_the_name_signs_unless_it_has_a_successor() -> None:
    text = issue_type(TFL, name="uk.gov.pito.New", attributes={}, named_after=did(PITO), now=NOW)
    with pytest.raises(BadStatement) as refused:
        verify(text)
    assert refused.value.reason == "squatting"
    pair = {did(PITO), did(TFL)}
    verify(text, same=lambda a, b: a == b or {a, b} == pair)


def test_as_many_ancestors_as_the_limit_allows() -> None:
    text = issue_type(PITO, name="a0", attributes={}, now=NOW)
    for level in range(1, MAX_TYPE_DEPTH + 1):
        text = issue_type(PITO, name=f"a{level}", attributes={f"b{level}": Kind.INT}, parent=text, now=NOW)
    assert verify(text).name == f"a{MAX_TYPE_DEPTH}"
    with pytest.raises(BadStatement) as refused:
        issue_type(PITO, name="below", attributes={}, parent=text, now=NOW)
    assert refused.value.reason == "too-deep"


def test_what_is_remembered_is_judged_anew() -> None:
    verifier = Verifier()
    install = give(PITO, MET, Action.INSTALL, validity=Validity(None, NOW + WEEK))
    text = issue_type(MET, name="uk.met.T", attributes={}, credentials=[install], now=NOW)
    assert verify(text, verifier=verifier) == verify(text, verifier=verifier)
    with pytest.raises(Expired):
        verify(text, verifier=verifier, now=NOW + WEEK)
    with pytest.raises(BadStatement):
        verify(text, verifier=verifier, coordinator=did(MALLORY))
