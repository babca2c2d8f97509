"""Certificates about roles: what is issued is what is verified, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model.errors import BadDefinition, BadStatement, HeadgateError, RoleDenied, TypeMismatch
from headgate.model.limits import MAX_CERTIFICATE_ROLES
from headgate.model.role_statements import (
    AppointmentCertificate,
    DelegationCertificate,
    HeldRole,
    RevocationCertificate,
    RoleCertificate,
    RoleName,
    ServiceInstance,
    pass_on,
)
from headgate.model.roles import reference
from headgate.model.values import EPOCH
from headgate.trust.certificates import REVOCATIONS
from headgate.trust.role_keys import RollingTable, Signer
from headgate.trust.role_statements import (
    APPOINTMENT,
    DELEGATION,
    REVOCATION,
    ROLE,
)
from strategies.role_statements import MemoryStore, verified
from unit.trust.corpus import HERE, MALLORY, MET, NOW, PITO, SMITH, did, reason_of
from unit.trust.corpus_roles import CASES, KEYS, KINDS, LONG, PLACE, SHORT, RoleCase

LEAST = 500


# -- what is bad ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_bad_is_refused_for_its_reason(case: RoleCase) -> None:
    with pytest.raises(HeadgateError) as refused:
        KINDS[case.kind].verify(case.text, keys=KEYS, audience=case.audience, now=case.now)
    assert reason_of(refused.value) == case.reason
    message = str(refused.value)
    assert "\n" not in message
    assert len(message) < 1000


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_bad_ones_differ_from_is_good(kind: str) -> None:
    one = KINDS[kind]
    for now in (NOW, None):
        assert one.verify(one.rolled(), keys=KEYS, audience=HERE, now=now) is not None


def test_there_are_enough_and_no_two_are_one() -> None:
    assert len({str(case) for case in CASES}) == len(CASES)
    assert len({(case.kind, case.text, case.now, case.audience) for case in CASES}) >= LEAST
    assert {case.failure for case in CASES} == {"fraud", "misuse", "revocation"}
    assert len({case.reason for case in CASES}) >= 20


def test_a_revocation_certificate_is_no_revocation_list() -> None:
    with pytest.raises(BadStatement) as refused:
        REVOCATIONS.verify(KINDS["revocation"].rolled())
    assert refused.value.reason == "wrong-type"


# -- what is good ---------------------------------------------------------------------------------------------

TABLE = RollingTable(PITO, MemoryStore())
NAMES = st.text(st.sampled_from("abcé_. "), min_size=1, max_size=8)
INSTANCES = st.just("") | NAMES
LETTERS = st.frozensets(st.sampled_from("rwxé"))
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.binary(max_size=8),
    st.integers(0, 10**15).map(lambda n: EPOCH + timedelta(microseconds=n)),
    LETTERS,
)
ARGS = st.lists(VALUES, max_size=4).map(tuple)
OPEN_ARGS = st.lists(st.none() | VALUES, max_size=4).map(tuple)
PRINCIPALS = st.sampled_from([did(SMITH), did(MET), did(PITO)])
REFS = st.builds(reference, st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1))
IDS = st.sampled_from(["m1", "a.b-c_d", "x" * 64])
PLACES = st.builds(ServiceInstance, st.just(did(PITO)), NAMES, INSTANCES)
ROLES = st.lists(
    st.builds(HeldRole, NAMES, ARGS, REFS), min_size=1, max_size=4, unique_by=lambda one: (one.role, exact(one.args))
).map(tuple)
HOURS = st.integers(1, 86_400).map(lambda n: NOW + timedelta(seconds=n))
MONTHS = st.integers(1, 366 * 86_400).map(lambda n: NOW + timedelta(seconds=n))
ISSUED = st.just(NOW)
EXAMPLES = settings(max_examples=60, deadline=None)


def exact(args: tuple[Any, ...]) -> tuple[object, ...]:
    """Arguments with their kinds, which Python takes for equal."""
    return tuple((type(one), tuple(sorted(one)) if isinstance(one, frozenset) else repr(one)) for one in args)


@EXAMPLES
@given(st.builds(RoleCertificate, IDS, PLACES, PRINCIPALS, ROLES, ISSUED, HOURS))
def test_role_certificates_are_verified_as_they_were(wanted: RoleCertificate) -> None:
    text = ROLE.issue(TABLE.signer("short", NOW), wanted)
    found = verified(ROLE, text, keys=TABLE.keys(NOW), now=NOW)
    assert found == wanted
    assert [exact(one.args) for one in found.roles] == [exact(one.args) for one in wanted.roles]


@EXAMPLES
@given(st.builds(AppointmentCertificate, IDS, PLACES, PRINCIPALS, ROLES, ISSUED, MONTHS))
def test_appointments_are_verified_as_they_were(wanted: AppointmentCertificate) -> None:
    text = APPOINTMENT.issue(TABLE.signer("long", NOW), wanted)
    found = verified(APPOINTMENT, text, keys=TABLE.keys(NOW), now=NOW)
    assert found == wanted
    assert [exact(one.args) for one in found.roles] == [exact(one.args) for one in wanted.roles]


@st.composite
def delegations(draw: st.DrawFn) -> DelegationCertificate:
    until = draw(MONTHS)
    return DelegationCertificate(
        id=draw(IDS),
        place=draw(PLACES),
        election=draw(NAMES),
        role=draw(NAMES),
        args=draw(OPEN_ARGS),
        elector=draw(PRINCIPALS),
        ref=draw(REFS),
        issued=NOW,
        until=until,
        ends=draw(st.none() | st.integers(0, 10**9).map(lambda n: until + timedelta(seconds=n))),
        required=tuple(draw(st.lists(NAMES, max_size=3))),
        revoke_on_exit=draw(st.booleans()),
    )


@EXAMPLES
@given(delegations())
def test_delegations_are_verified_as_they_were(wanted: DelegationCertificate) -> None:
    text = DELEGATION.issue(TABLE.signer("long", NOW), wanted)
    found = verified(DELEGATION, text, keys=TABLE.keys(NOW), now=NOW)
    assert found == wanted
    assert exact(found.args) == exact(wanted.args)


ELECTORS = st.builds(RoleName, st.builds(ServiceInstance, PRINCIPALS, NAMES, INSTANCES), NAMES, ARGS)


@EXAMPLES
@given(st.builds(RevocationCertificate, IDS, PLACES, PRINCIPALS, NAMES, ELECTORS, REFS, REFS, ISSUED, MONTHS))
def test_revocations_are_verified_as_they_were(wanted: RevocationCertificate) -> None:
    text = REVOCATION.issue(TABLE.signer("long", NOW), wanted)
    found = verified(REVOCATION, text, keys=TABLE.keys(NOW), now=NOW)
    assert found == wanted
    assert exact(found.elector.args) == exact(wanted.elector.args)


# -- what is never issued -------------------------------------------------------------------------------------

HELD = HeldRole("Member", ("dm",), reference(17, 4))
GOOD = RoleCertificate("m1", PLACE, did(SMITH), (HELD,), NOW, NOW + timedelta(hours=1))
NEVER: dict[str, Callable[[], RoleCertificate]] = {
    "for another domain": lambda: replace(GOOD, place=ServiceInstance(did(MET), "Conf")),
    "for too long": lambda: replace(GOOD, until=NOW + timedelta(days=1, seconds=1)),
    "before the key signs": lambda: replace(GOOD, issued=NOW - timedelta(seconds=1)),
    "after the key signs": lambda: replace(GOOD, issued=NOW + timedelta(hours=1), until=NOW + timedelta(hours=2)),
    "to an alias": lambda: replace(GOOD, subject="smith"),
    "of no role": lambda: replace(GOOD, roles=()),
    "of a role twice": lambda: replace(GOOD, roles=(HELD, HELD)),
    "of too many roles": lambda: replace(
        GOOD, roles=tuple(replace(HELD, args=(n,)) for n in range(MAX_CERTIFICATE_ROLES + 1))
    ),
    "with an argument that is null": lambda: replace(GOOD, roles=(replace(HELD, args=(None,)),)),
    "with an argument that is no number": lambda: replace(GOOD, roles=(replace(HELD, args=(float("nan"),)),)),
    "with an argument past 64 bits": lambda: replace(GOOD, roles=(replace(HELD, args=(2**63,)),)),
    "with too long an argument": lambda: replace(GOOD, roles=(replace(HELD, args=("x" * 20_000,)),)),
    "with a record that cannot be": lambda: replace(GOOD, roles=(replace(HELD, ref=2**70),)),
    "with a name in wide letters": lambda: replace(GOOD, roles=(replace(HELD, role="\uff23hair"),)),
}


@pytest.mark.parametrize("name", NEVER)
def test_what_would_be_refused_is_never_issued(name: str) -> None:
    signer = RollingTable(PITO, MemoryStore()).signer("short", NOW)
    assert ROLE.issue(signer, GOOD)
    with pytest.raises((BadStatement, TypeMismatch)):
        ROLE.issue(signer, NEVER[name]())


def test_a_key_does_not_sign_what_outlives_it() -> None:
    short = replace(KEYS.keys[did(SHORT)], end=NOW + timedelta(hours=1))
    signer = Signer(did(PITO), SHORT, short)
    assert ROLE.issue(signer, GOOD)
    with pytest.raises(BadStatement) as refused:
        ROLE.issue(signer, replace(GOOD, until=NOW + timedelta(hours=2)))
    assert refused.value.reason == "too-long"


def test_a_key_of_the_other_table_does_not_sign() -> None:
    with pytest.raises(BadStatement) as refused:
        ROLE.issue(Signer(did(PITO), LONG, KEYS.keys[did(LONG)]), GOOD)
    assert refused.value.reason == "wrong-key"


@pytest.mark.parametrize(
    ("issued", "until"),
    [(NOW, NOW), (NOW, NOW - timedelta(seconds=1)), (NOW, NOW + timedelta(microseconds=1))],
)
def test_times_that_cannot_be_are_refused(issued: datetime, until: datetime) -> None:
    with pytest.raises(BadDefinition):
        replace(GOOD, issued=issued, until=until)


# -- passing the right to revoke on ---------------------------------------------------------------------------

CHAIR = RoleName(PLACE, "Chair", (1,))
RIGHT = RevocationCertificate(
    "r1", PLACE, did(SMITH), "e1", CHAIR, reference(18, 4), reference(20, 5), NOW, NOW + timedelta(days=30)
)
OTHER = RoleCertificate(
    "m2", PLACE, did(MET), (HELD, HeldRole("Chair", (1,), reference(19, 7))), NOW, NOW + timedelta(hours=1)
)
LATER = NOW + timedelta(minutes=5)


def passed(to: RoleCertificate, held: RevocationCertificate = RIGHT, **more: Any) -> RevocationCertificate:
    return pass_on(held, to, id="r2", issued=LATER, **{"until": LATER + timedelta(days=1), **more})


def test_another_holder_of_the_electors_role_may_revoke_too() -> None:
    found = passed(OTHER)
    assert (found.subject, found.membership) == (did(MET), reference(19, 7))
    assert (found.election, found.target, found.elector) == (RIGHT.election, RIGHT.target, RIGHT.elector)
    signer = TABLE.signer("long", LATER)
    assert verified(REVOCATION, REVOCATION.issue(signer, found), keys=TABLE.keys(LATER), now=LATER) == found


@pytest.mark.parametrize(
    "to",
    [
        replace(OTHER, roles=(HELD,)),
        replace(OTHER, roles=(HeldRole("Chair", (2,), 1),)),
        replace(OTHER, roles=(HeldRole("Chair", (True,), 1),)),
        replace(OTHER, roles=(HeldRole("Chair", (), 1),)),
        replace(OTHER, place=PLACE._replace(instance="Trinity")),
        replace(OTHER, place=PLACE._replace(service="Golf")),
        replace(OTHER, place=PLACE._replace(issuer=did(MALLORY))),
        replace(OTHER, subject=did(SMITH)),
    ],
)
def test_nobody_else_may(to: RoleCertificate) -> None:
    with pytest.raises(RoleDenied) as refused:
        passed(to)
    assert refused.value.failure == "misuse"


def test_the_right_to_revoke_does_not_grow() -> None:
    assert passed(OTHER, until=RIGHT.until).until == RIGHT.until
    with pytest.raises(RoleDenied):
        passed(OTHER, until=RIGHT.until + timedelta(seconds=1))


def test_an_elector_of_another_domain_is_mirrored_here() -> None:
    there = ServiceInstance(did(MALLORY), "Hr")
    held = replace(RIGHT, elector=RoleName(there, "Chair", (1,)))
    assert passed(replace(OTHER, place=there), held, membership=reference(3, 3)).membership == reference(3, 3)
    with pytest.raises(RoleDenied):
        passed(replace(OTHER, place=there), held)
    # A record of our own is the one that the certificate names, whatever is asked for.
    assert passed(OTHER, membership=reference(3, 3)).membership == reference(19, 7)
