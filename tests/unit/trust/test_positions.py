"""Positions: round trips, and nothing for anyone else."""

from __future__ import annotations

import base64
import stat
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import assume, given
from hypothesis import strategies as st

from headgate.model.errors import BadKey, BadPosition
from headgate.trust.positions import MAX_SEQ, MAX_STREAM, MAX_SUBSCRIPTION, Positions, make_key

HERE = Positions(b"k" * 16)
SUBSCRIPTIONS = st.integers(0, MAX_SUBSCRIPTION)
PLACES = st.tuples(SUBSCRIPTIONS, st.integers(0, MAX_STREAM), st.integers(0, MAX_SEQ))


def columns(places: list[tuple[int, int, int]]) -> list[np.ndarray]:
    return [np.array([place[i] for place in places], np.int64) for i in range(3)]


def one(subscription: int, stream: int, seq: int) -> str:
    (text,) = HERE.seal(np.int64(subscription), np.int64(stream), np.array([seq], np.int64))
    return text


@given(st.lists(PLACES, max_size=20))
def test_each_position_opens_to_its_place(places: list[tuple[int, int, int]]) -> None:
    sealed = HERE.seal(*columns(places))
    assert [HERE.open(text, place[0]) for text, place in zip(sealed, places, strict=True)] == [p[1:] for p in places]
    assert all(len(text) == 22 and text.replace("-", "a").replace("_", "a").isalnum() for text in sealed)
    assert sealed == [one(*place) for place in places]


@given(PLACES, SUBSCRIPTIONS)
def test_another_subscription_cannot_use_it(place: tuple[int, int, int], other: int) -> None:
    assume(other != place[0])
    with pytest.raises(BadPosition) as refused:
        HERE.open(one(*place), other)
    assert refused.value.code == "bad-position"


@given(PLACES)
def test_another_domain_cannot_use_it(place: tuple[int, int, int]) -> None:
    with pytest.raises(BadPosition):
        Positions(b"l" * 16).open(one(*place), place[0])


@given(PLACES, st.integers(0, 127))
def test_one_turned_bit_is_refused(place: tuple[int, int, int], bit: int) -> None:
    block = bytearray(base64.urlsafe_b64decode(one(*place) + "=="))
    block[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadPosition):
        HERE.open(base64.urlsafe_b64encode(bytes(block)).decode()[:22], place[0])


@given(st.text(max_size=40))
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(BadPosition):
        HERE.open(text, 7)


@given(PLACES, st.integers(1, 2**32 - 1))
def test_a_block_without_its_zeros_is_refused(place: tuple[int, int, int], check: int) -> None:
    subscription, stream, seq = place
    block = subscription.to_bytes(4) + stream.to_bytes(2) + seq.to_bytes(6)
    for zeros, good in ((bytes(4), True), (check.to_bytes(4), False)):
        sealed = Cipher(AES(b"k" * 16), ECB()).encryptor().update(block + zeros)
        text = base64.urlsafe_b64encode(sealed).decode()[:22]
        if good:
            assert HERE.open(text, subscription) == (stream, seq)
        else:
            with pytest.raises(BadPosition):
                HERE.open(text, subscription)


def test_a_second_way_to_write_a_position_is_refused() -> None:
    text = one(7, 1, 1)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    spare = alphabet[alphabet.index(text[-1]) + 1]
    for other in (text[:-1] + spare, text + "==", text + "=", " " + text[1:], text + "\n", text.replace(text[0], "é")):
        with pytest.raises(BadPosition):
            HERE.open(other, 7)


def test_positions_show_no_order_and_no_distance() -> None:
    """Neighbours share no more than chance would have them share, at any place of the text."""
    sealed = HERE.seal(np.int64(7), np.int64(1), np.arange(1, 5001, dtype=np.int64))
    assert len(set(sealed)) == 5000
    rises = sum(a < b for a, b in pairwise(sealed))
    assert 2250 < rises < 2750
    for at in range(21):
        same = sum(a[at] == b[at] for a, b in pairwise(sealed))
        assert same < 5000 / 64 * 2


def test_the_same_place_has_the_same_position_on_every_gateway() -> None:
    assert Positions(b"k" * 16).seal(np.int64(7), np.int64(1), np.array([5], np.int64)) == [one(7, 1, 5)]
    # As `openssl enc -aes-128-ecb -nopad` has it.
    assert one(7, 1, 5) == "lpIhT6RkQET7g2AaSHNg5g"


@pytest.mark.parametrize(
    "place",
    [(-1, 0, 0), (MAX_SUBSCRIPTION + 1, 0, 0), (0, -1, 0), (0, MAX_STREAM + 1, 0), (0, 0, -1), (0, 0, MAX_SEQ + 1)],
)
def test_a_number_that_does_not_fit_is_refused(place: tuple[int, int, int]) -> None:
    with pytest.raises(BadPosition, match="between"):
        one(*place)
    with pytest.raises(BadPosition, match="between"):
        HERE.seal(*columns([(1, 1, 1), place]))


def test_no_events_no_positions() -> None:
    assert HERE.seal(np.int64(1), np.int64(1), np.array([], np.int64)) == []


def test_keys_are_files_of_sixteen_secret_bytes(tmp_path: Path) -> None:
    path = tmp_path / "positions.key"
    make_key(path, lambda n: b"k" * n)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Positions.load(path).open(one(7, 1, 5), 7) == (1, 5)
    for content in (b"", b"k" * 15, b"k" * 17, b"k" * 1000):
        path.write_bytes(content)
        with pytest.raises(BadKey):
            Positions.load(path)
    with pytest.raises(BadKey):
        Positions(b"k" * 32)
