"""Validation: fraud, misuse and revocation are kept apart, and records are asked each time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model.errors import RoleDenied, StaleList
from headgate.model.role_statements import HeldRole, RoleCertificate, ServiceInstance
from headgate.model.roles import Reference, reference
from headgate.roles.certificates.validation import CertificateFailure, Validator, WantedRole
from headgate.trust.keys import PublicKey
from headgate.trust.role_keys import RoleKeys, RollingTable
from headgate.trust.role_statements import APPOINTMENT, DELEGATION, REVOCATION, ROLE
from strategies.role_statements import MemoryStore
from unit.trust.corpus import AT, DAY, HERE, MALLORY, MET, NOW, PITO, SMITH, did
from unit.trust.corpus_roles import CASES, HOUR, KEYS, KINDS, OTHERS, PLACE, RoleCase, at

MEMBER = WantedRole(PLACE, "Member")
TYPES = {"role": ROLE, "appointment": APPOINTMENT, "delegation": DELEGATION, "revocation": REVOCATION}
HELD_MEMBER, HELD_CHAIR, ELECTION = reference(17, 4), reference(18, 4), reference(20, 5)
States = dict[Reference, bool | None]


def all_true(ref: Reference) -> bool:
    return True


def show(
    validator: Validator,
    kind: str,
    text: str,
    *,
    presenter: str = did(SMITH),
    wanted: WantedRole = MEMBER,
    state: Callable[[Reference], bool | None] = all_true,
    now: datetime = NOW,
    election: str = "e1",
) -> Any:
    """Show a text as one of a kind."""
    asked = replace(wanted, typ=TYPES[kind].typ)
    if kind == "revocation":
        asked = replace(asked, role=election, args=None)
    found = validator.validate(text, presenter, asked, state, now)
    return found if kind in ("role", "appointment") else found.certificate


def denied(validator: Validator, kind: str, text: str, **more: Any) -> RoleDenied:
    with pytest.raises(RoleDenied) as refused:
        show(validator, kind, text, **more)
    return refused.value


def outcome(error: RoleDenied) -> tuple[str, str]:
    return error.failure, error.details["reason"]


class Judge(Validator):
    """One that remembers of which failures it told."""

    def __init__(self, **more: Any) -> None:
        self.told: list[CertificateFailure] = []
        super().__init__([KEYS], on_failure=self.told.append, **more)

    @property
    def counts(self) -> dict[str, int]:
        return {name: [one.failure for one in self.told].count(name) for name in ("fraud", "misuse", "revocation")}


def validator(**more: Any) -> Judge:
    return Judge(audience=HERE, **more)


# -- the corpus -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_bad_falls_into_its_class(case: RoleCase) -> None:
    one = Judge(audience=case.audience)
    error = denied(one, case.kind, case.text, now=case.now)
    assert error.failure == case.failure
    assert error.code == "role-denied"
    assert error.details["reason"] == case.reason or (case.reason, error.details["reason"]) == ("expired", "key-ended")
    assert one.counts == {**dict.fromkeys(("fraud", "misuse", "revocation"), 0), case.failure: 1}
    (failure,) = one.told
    assert (failure.at, failure.failure, failure.presenter) == (case.now, case.failure, did(SMITH))
    assert (failure.message, failure.reason) == (error.message, error.details["reason"])
    # The same again is no better.
    assert denied(one, case.kind, case.text, now=case.now).failure == case.failure


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_bad_ones_differ_from_is_good(kind: str) -> None:
    one = validator()
    first = show(one, kind, KINDS[kind].rolled())
    assert show(one, kind, KINDS[kind].rolled()) == first
    assert one.counts == {"fraud": 0, "misuse": 0, "revocation": 0}
    assert one.told == []


# -- who, where, what -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["role", "appointment", "revocation"])
@pytest.mark.parametrize("warm", [False, True])
def test_a_stolen_certificate_is_fraud(kind: str, warm: bool) -> None:
    one, text = validator(), KINDS[kind].rolled()
    if warm:
        show(one, kind, text)
    for thief in OTHERS:
        assert outcome(denied(one, kind, text, presenter=did(thief))) == ("fraud", "stolen")
    assert one.counts["fraud"] == len(OTHERS)
    assert {failure.presenter for failure in one.told} == {did(thief) for thief in OTHERS}
    show(one, kind, text)


def test_a_delegation_is_for_whoever_has_what_it_requires() -> None:
    found = show(validator(), "delegation", KINDS["delegation"].rolled(), presenter=did(MALLORY))
    assert found.required == ("Login.LoggedOn('dm', _)",)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    "place",
    [
        ServiceInstance(did(PITO), "Conf"),
        ServiceInstance(did(PITO), "Golf", "Hilary"),
        ServiceInstance(did(MET), "Conf", "Hilary"),
    ],
)
def test_use_in_another_place_is_misuse(kind: str, warm: bool, place: ServiceInstance) -> None:
    one, text = validator(), KINDS[kind].rolled()
    if warm:
        show(one, kind, text)
    assert outcome(denied(one, kind, text, wanted=WantedRole(place, "Member"))) == ("misuse", "wrong-place")


@pytest.mark.parametrize("kind", ["role", "appointment"])
@pytest.mark.parametrize(
    ("role", "args", "enough"),
    [
        ("Member", None, True),
        ("Member", ("dm", frozenset("rw")), True),
        ("Member", ("dm", None), True),
        ("Member", (None, None), True),
        ("Chair", (), True),
        ("Chair", None, True),
        ("Member", ("mb", None), False),
        ("Member", ("dm", frozenset("r")), False),
        ("Member", ("dm", "rw"), False),
        ("Member", ("dm",), False),
        ("Member", (), False),
        ("member", None, False),
        ("Owner", None, False),
        ("Chair", (None,), False),
    ],
)
def test_only_the_roles_of_the_certificate_are_given(kind: str, role: str, args: Any, enough: bool) -> None:
    one, wanted = validator(), WantedRole(PLACE, role, args)
    if enough:
        found = show(one, kind, KINDS[kind].rolled(), wanted=wanted)
        assert found.held.role == role
        assert found.certificate.subject == did(SMITH)
    else:
        assert outcome(denied(one, kind, KINDS[kind].rolled(), wanted=wanted)) == ("misuse", "insufficient")


def test_one_is_not_true() -> None:
    one = validator()
    text = KINDS["role"].rolled({"roles": [{"role": "Level", "args": [1], "ref": "1.1"}]})
    assert show(one, "role", text, wanted=WantedRole(PLACE, "Level", (1,))).held.args == (1,)
    for args in ((True,), (1.0,), ("1",)):
        assert denied(one, "role", text, wanted=WantedRole(PLACE, "Level", args)).failure == "misuse"


@pytest.mark.parametrize(
    ("role", "args", "enough"),
    [
        ("Member", None, True),
        ("Member", ("dm", 3), True),
        ("Member", (None, None), True),
        ("Member", ("mb", None), False),
        ("Member", ("dm",), False),
        ("Chair", None, False),
    ],
)
def test_a_delegation_is_of_its_role(role: str, args: Any, enough: bool) -> None:
    one, text, wanted = validator(), KINDS["delegation"].rolled(), WantedRole(PLACE, role, args)
    if enough:
        assert show(one, "delegation", text, wanted=wanted).election == "e1"
    else:
        assert outcome(denied(one, "delegation", text, wanted=wanted)) == ("misuse", "insufficient")


def test_a_right_to_revoke_is_of_its_election() -> None:
    error = denied(validator(), "revocation", KINDS["revocation"].rolled(), election="e2")
    assert outcome(error) == ("misuse", "insufficient")


# -- records --------------------------------------------------------------------------------------------------

RECORD = {"role": HELD_MEMBER, "appointment": HELD_MEMBER, "delegation": ELECTION, "revocation": HELD_CHAIR}


@pytest.mark.parametrize("kind", KINDS)
def test_the_record_is_asked_each_time(kind: str) -> None:
    one, text, states = validator(), KINDS[kind].rolled(), States()
    for state, reason in [(True, ""), (False, "revoked"), (True, ""), (None, "unknown"), (True, "")]:
        states[RECORD[kind]] = state
        if state:
            show(one, kind, text, state=states.get)
        else:
            assert outcome(denied(one, kind, text, state=states.get)) == ("revocation", reason)
    states.clear()
    assert outcome(denied(one, kind, text, state=states.get)) == ("revocation", "unknown")


@pytest.mark.parametrize("kind", ["role", "appointment"])
def test_one_role_of_a_certificate_falls_without_the_others(kind: str) -> None:
    one, text, states = validator(), KINDS[kind].rolled(), {HELD_MEMBER: False, HELD_CHAIR: True}
    assert denied(one, kind, text, state=states.get).failure == "revocation"
    assert show(one, kind, text, state=states.get, wanted=WantedRole(PLACE, "Chair")).held.ref == HELD_CHAIR


def test_of_several_roles_that_fit_one_in_force_is_enough() -> None:
    roles = [{"role": "Member", "args": [name], "ref": f"{n}.1"} for n, name in enumerate(("a", "b", "c"))]
    text = KINDS["role"].rolled({"roles": roles})
    states: States = {reference(0, 1): False, reference(1, 1): None, reference(2, 1): True}
    assert show(validator(), "role", text, state=states.get).held.args == ("c",)
    assert denied(validator(), "role", text, state=states.get, wanted=WantedRole(PLACE, "Member", ("a",)))


@pytest.mark.parametrize("answer", [1, "true", [True]])
def test_only_true_is_true(answer: Any) -> None:
    for kind in KINDS:
        error = denied(validator(), kind, KINDS[kind].rolled(), state=lambda _: answer)
        assert outcome(error) == ("revocation", "unknown")


def test_a_target_that_has_fallen_already_may_be_revoked_again() -> None:
    states = {ELECTION: False, HELD_CHAIR: True}
    assert show(validator(), "revocation", KINDS["revocation"].rolled(), state=states.get).target == ELECTION


# -- time and keys --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_remembered_ends_in_its_time(kind: str) -> None:
    one, text = validator(), KINDS[kind].rolled({"exp": AT + 60})
    show(one, kind, text, now=at(60) - timedelta(microseconds=1))
    assert outcome(denied(one, kind, text, now=at(60))) == ("revocation", "expired")
    show(one, kind, text, now=at(-60))
    assert outcome(denied(one, kind, text, now=at(-61))) == ("misuse", "not-yet-valid")


@pytest.mark.parametrize("kind", KINDS)
def test_the_graver_class_is_said_first(kind: str) -> None:
    """Shown by a thief, in another place, past its end, with a record that is false."""
    one, text = validator(), KINDS[kind].rolled({"exp": AT + 60})
    elsewhere = WantedRole(PLACE._replace(instance="Trinity"), "Owner")
    worst = {"wanted": elsewhere, "now": at(61), "state": lambda _: False}
    if kind != "delegation":
        assert denied(one, kind, text, presenter=did(MALLORY), **worst).failure == "fraud"
    assert denied(one, kind, text, **worst).failure == "misuse"
    assert denied(one, kind, text, now=at(61), state=lambda _: False).failure == "revocation"


def test_other_keys_make_another_world() -> None:
    one, text = validator(), KINDS["role"].rolled()
    show(one, "role", text)
    signer = KEYS.keys[did(KINDS["role"].signer)]
    ended = {**KEYS.keys, signer.kid: replace(signer, until=at(10), end=at(10))}
    newer = RoleKeys(KEYS.domain, KEYS.number + 1, at(10), at(DAY), ended)
    one.trust(newer)
    show(one, "role", text, now=at(9))
    assert outcome(denied(one, "role", text, now=at(10))) == ("revocation", "key-ended")
    with pytest.raises(StaleList):
        one.trust(KEYS)
    one.trust(RoleKeys(KEYS.domain, KEYS.number + 2, at(20), at(DAY), {}))
    assert outcome(denied(one, "role", text)) == ("fraud", "unknown-key")
    assert outcome(denied(one, "role", text, now=at(HOUR))) == ("revocation", "unknown-key")
    assert outcome(denied(Validator(audience=HERE), "role", text)) == ("misuse", "wrong-issuer")


def test_certificates_of_several_domains_are_kept_apart() -> None:
    tables = {domain: RollingTable(domain, MemoryStore()) for domain in (PITO, MET)}
    one = Validator(table.keys(NOW) for table in tables.values())
    for domain, table in tables.items():
        place = ServiceInstance(did(domain), "Login")
        held = HeldRole("LoggedOn", ("dm",), reference(1, 1))
        certificate = RoleCertificate("m1", place, did(SMITH), (held,), NOW, at(HOUR))
        text = ROLE.issue(table.signer("short", NOW), certificate)
        assert show(one, "role", text, wanted=WantedRole(place, "LoggedOn")).certificate == certificate
        other = place._replace(issuer=did(MET if domain is PITO else PITO))
        assert outcome(denied(one, "role", text, wanted=WantedRole(other, "LoggedOn"))) == ("misuse", "wrong-place")


def test_rolling_does_not_disturb_those_who_hold_certificates() -> None:
    table = RollingTable(PITO, MemoryStore())
    failures: list[CertificateFailure] = []
    one, texts = Validator([table.keys(NOW)], on_failure=failures.append), []
    for hours in range(30):
        now = at(hours * HOUR)
        one.trust(table.keys(now))
        held = HeldRole("Member", (), reference(1, 1))
        texts.append(
            (
                now,
                ROLE.issue(
                    table.signer("short", now),
                    RoleCertificate("m1", PLACE, did(SMITH), (held,), now, now + timedelta(days=1)),
                ),
            )
        )
        for issued, text in texts:
            if now < issued + timedelta(days=1):
                show(one, "role", text, now=now)
            else:
                assert denied(one, "role", text, now=now).failure == "revocation"
    assert {failure.failure for failure in failures} == {"revocation"}


# -- what is remembered, counted and kept ---------------------------------------------------------------------


def numbered(number: int) -> str:
    return KINDS["role"].rolled({"jti": f"m{number}"})


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=25), st.integers(0, 4))
def test_what_is_remembered_is_bounded_and_makes_no_difference(shown: list[int], room: int) -> None:
    texts = [numbered(number) for number in range(7)]
    one = validator(room=room * len(texts[0]))
    recent: list[int] = []
    for number in shown:
        assert show(one, "role", texts[number]).certificate.id == f"m{number}"
        recent = [*(n for n in recent if n != number), number][-room:] if room else []
        memory = one._memories[ROLE.typ]
        assert list(memory.entries) == [texts[n] for n in recent]
        assert memory.size == sum(map(len, memory.entries)) <= memory.room


def test_a_signature_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[bytes] = []
    real = PublicKey.verify

    def counted(self: PublicKey, signature: bytes, message: bytes) -> bool:
        verified.append(signature)
        return real(self, signature, message)

    monkeypatch.setattr(PublicKey, "verify", counted)
    one = validator()
    for kind in KINDS:
        text = KINDS[kind].rolled()
        for _ in range(3):
            show(one, kind, text)
    assert len(verified) == len(KINDS)
    forged = KINDS["role"].rolled(None, MALLORY)
    for _ in range(3):
        denied(one, "role", forged)
    assert len(verified) == len(KINDS) + 3


def test_what_is_over_is_forgotten() -> None:
    one, text = validator(), KINDS["role"].rolled()
    show(one, "role", text)
    denied(one, "role", text, now=at(HOUR))
    assert len(one._memories[ROLE.typ].entries) == one._memories[ROLE.typ].size == 0


def test_each_failure_is_told_in_a_few_words() -> None:
    one = validator()
    for number in range(5):
        denied(one, "role", KINDS["role"].rolled(), presenter=did(MALLORY), now=at(number))
    denied(one, "role", "let me in\n" * 10_000)
    assert one.counts == {"fraud": 5, "misuse": 1, "revocation": 0}
    assert [failure.at for failure in one.told] == [*map(at, range(5)), NOW]
    assert all(len(failure.message) < 500 and "\n" not in failure.message for failure in one.told)
    assert len({failure.statement for failure in one.told}) == 2


def test_threads_may_share_it() -> None:
    texts = [numbered(number) for number in range(8)]
    one, wrong = validator(room=3 * len(texts[0])), []

    def work(first: int) -> None:
        for at_ in range(200):
            number = (first + at_ * 3) % len(texts)
            if show(one, "role", texts[number]).certificate.id != f"m{number}":
                wrong.append(number)
            if at_ % 20 == 0:
                denied(one, "role", texts[number], presenter=did(MALLORY))
            if at_ % 50 == 0:
                one.trust(KEYS)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert one.counts == {"fraud": 40, "misuse": 0, "revocation": 0}
    assert one._memories[ROLE.typ].size == sum(map(len, one._memories[ROLE.typ].entries)) <= 3 * len(texts[0])
