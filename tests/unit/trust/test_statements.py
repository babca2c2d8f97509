"""The core: what is changed anywhere is refused, and what was verified is remembered within bounds."""

from __future__ import annotations

import threading
from datetime import timedelta

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model.errors import BadStatement, Expired, HeadgateError
from headgate.trust.certificates import CERTIFICATE
from headgate.trust.identities import IDENTITY
from headgate.trust.keys import PublicKey
from headgate.trust.statements import Read, Verifier, open_statement
from unit.trust.corpus import AT, CERT, DAY, GOOD, HERE, MET, NOW, PITO, cert, did

KINDS = st.sampled_from(sorted(GOOD))


@given(KINDS, st.integers(0, 100_000), st.characters())
def test_a_character_changed_anywhere_is_refused(kind: str, at: int, character: str) -> None:
    good = GOOD[kind]
    text = good.signed()
    at %= len(text)
    if text[at] == character:
        return
    with pytest.raises(HeadgateError):
        good.check(text[:at] + character + text[at + 1 :])


@given(KINDS, st.integers(0, 100_000), st.integers(1, 255))
def test_a_byte_changed_anywhere_is_refused(kind: str, at: int, flip: int) -> None:
    good = GOOD[kind]
    data = bytearray(good.signed().encode())
    data[at % len(data)] ^= flip
    with pytest.raises(HeadgateError):
        good.check(data.decode("latin-1"))


@given(KINDS, st.integers(0, 100_000), st.integers(0, 5))
def test_what_is_cut_or_doubled_is_refused(kind: str, at: int, more: int) -> None:
    good = GOOD[kind]
    text = good.signed()
    at %= len(text)
    with pytest.raises(HeadgateError):
        good.check(text[:at] + text[at : at + more] * 2 + text[at + more :] if more else text[:at])


@given(KINDS, st.text(max_size=300))
def test_nonsense_is_refused_as_malformed(kind: str, text: str) -> None:
    with pytest.raises(BadStatement) as refused:
        GOOD[kind].check(text)
    assert refused.value.reason == "malformed"


def test_a_statement_is_a_jwt_that_another_library_verifies() -> None:
    text = CERT.signed()
    claims = jwt.decode(
        text,
        PITO.public.native(),
        algorithms=["EdDSA"],
        audience=HERE,
        options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
    )
    assert claims == CERT.claims
    assert open_statement(text, CERTIFICATE).claims == claims


def test_each_kind_has_its_own_type() -> None:
    assert {good.typ for good in GOOD.values()} == {
        "hg-cert+jwt",
        "hg-identity+jwt",
        "hg-type+jwt",
        "hg-revocation+jwt",
        "hg-successor+jwt",
    }


def test_no_statement_passes_for_another_kind() -> None:
    for kind, good in GOOD.items():
        for other, wanted in GOOD.items():
            if kind != other:
                with pytest.raises(BadStatement):
                    wanted.check(good.signed())


# -- remembering ----------------------------------------------------------------------------------------------


class Counting:
    """A reader that counts how often it had to read."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, text: str) -> Read[str]:
        self.times += 1
        return Read(text, "", NOW)


def test_a_text_is_read_once() -> None:
    verifier, reader = Verifier(), Counting()
    assert verifier.read("a", reader) is verifier.read("a", reader)
    verifier.read("b", reader)
    assert reader.times == 2


def test_what_is_remembered_for_one_kind_is_not_for_another() -> None:
    verifier = Verifier()
    text = CERT.signed()
    verifier.read(text, CERTIFICATE.read)
    with pytest.raises(BadStatement):
        verifier.read(text, IDENTITY.read)


def test_what_is_refused_is_not_remembered() -> None:
    verifier = Verifier()
    for _ in range(2):
        with pytest.raises(BadStatement):
            verifier.read("nonsense", CERTIFICATE.read)
    assert len(verifier) == 0


def test_times_and_audience_count_for_what_is_remembered_too() -> None:
    verifier, text = Verifier(), CERT.signed()
    CERTIFICATE.verify(text, audience=HERE, now=NOW, verifier=verifier)
    with pytest.raises(Expired):
        CERTIFICATE.verify(text, audience=HERE, now=NOW + timedelta(days=1), verifier=verifier)
    with pytest.raises(BadStatement, match="is for"):
        CERTIFICATE.verify(text, audience="elsewhere", now=NOW, verifier=verifier)
    assert len(verifier) == 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30)), max_size=60))
def test_the_memory_is_bounded_and_keeps_what_was_used_last(asked: list[tuple[int, int]]) -> None:
    room = 50
    verifier, reader = Verifier(room), Counting()
    for letter, length in asked:
        text = str(letter) * length
        assert verifier.read(text, reader).value == text
        assert len(verifier) <= room
    if asked:
        before = reader.times
        verifier.read(str(asked[-1][0]) * asked[-1][1], reader)
        assert reader.times == before


def test_what_is_larger_than_the_memory_is_read_each_time() -> None:
    verifier, reader = Verifier(3), Counting()
    verifier.read("four", reader)
    verifier.read("four", reader)
    assert (reader.times, len(verifier)) == (2, 0)


def test_threads_share_it() -> None:
    verifier = Verifier(20_000)
    texts = [cert(PITO, MET, jti=f"c{n}") for n in range(40)]
    wrong: list[object] = []

    def work() -> None:
        for text in texts * 3:
            try:
                CERTIFICATE.verify(text, audience=None, verifier=verifier)
            except BaseException as error:  # noqa: BLE001 - told by the test
                wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []
    assert 0 < len(verifier) <= 40


def test_a_clock_that_is_a_little_ahead_is_borne() -> None:
    text = cert(PITO, MET, iat=AT + 60)
    assert CERTIFICATE.verify(text, audience=None, now=NOW).subject == did(MET)
    assert PublicKey.from_did(did(MET)) == MET.public
    with pytest.raises(BadStatement):
        CERTIFICATE.verify(cert(PITO, MET, iat=AT + DAY), audience=None, now=NOW)
