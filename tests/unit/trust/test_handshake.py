"""The handshake: both sides prove themselves, and nothing else passes."""

from __future__ import annotations

import dataclasses
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model.errors import BrokerNotTrusted, NotAuthenticated, TooBusy
from headgate.trust.handshake import (
    _BROKER,
    _CLIENT,
    _NONCE,
    Challenge,
    Challenger,
    _transcript,
    new_nonce,
    plaintext_binding,
    prove,
)
from headgate.trust.keys import PrivateKey, PublicKey, base64url

BROKER = PrivateKey.generate(lambda n: b"b" * n)
OTHER = PrivateKey.generate(lambda n: b"o" * n)
ANN = PrivateKey.generate(lambda n: b"a" * n)
MALLORY = PrivateKey.generate(lambda n: b"m" * n)
BINDING = "ab" * 32
SECRET = b"s" * 32
NONCE = new_nonce(lambda n: b"n" * n)
START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker(clock: Clock) -> Challenger:
    return Challenger(BROKER, BINDING, SECRET, clock)


def answered(challenge: Challenge, key: PrivateKey = ANN, nonce: str = NONCE) -> tuple[str, str, str, str]:
    """An honest answer."""
    return challenge.nonce, nonce, key.public.did, prove(key, challenge, nonce, BINDING, BROKER.public.did)


REFUSAL = "the handshake failed; begin again with a new challenge [not-authenticated]"


def refused(act: Callable[[], object]) -> None:
    """It is refused, in the very same words whatever the cause."""
    with pytest.raises(NotAuthenticated) as caught:
        act()
    assert str(caught.value) == REFUSAL
    assert caught.value.__cause__ is None


def test_an_honest_client_is_admitted_by_its_key(broker: Challenger, clock: Clock) -> None:
    challenge = broker.challenge(NONCE)
    assert challenge.broker == BROKER.public.did
    assert challenge.expires == START + timedelta(seconds=30)
    clock.advance(29.9)
    assert broker.answer(*answered(challenge)) == ANN.public


def test_many_clients_at_once_do_not_disturb_each_other(broker: Challenger) -> None:
    keys = [ANN, MALLORY, OTHER]
    challenges = [broker.challenge(new_nonce(lambda n, i=i: bytes([i]) * n)) for i in range(3)]
    for i, (key, challenge) in reversed(list(enumerate(zip(keys, challenges, strict=True)))):
        nonce = new_nonce(lambda n, i=i: bytes([i]) * n)
        assert broker.answer(*answered(challenge, key, nonce)) == key.public


def test_a_flood_of_challenges_costs_no_memory(broker: Challenger) -> None:
    for _ in range(1000):
        broker.challenge(NONCE)
    assert not broker._used
    assert not broker._until


# -- refused by the broker ------------------------------------------------------------------------------------


def test_a_replayed_answer_is_refused(broker: Challenger, clock: Clock) -> None:
    answer = answered(broker.challenge(NONCE))
    broker.answer(*answer)
    refused(lambda: broker.answer(*answer))
    clock.advance(29)
    refused(lambda: broker.answer(*answer))
    clock.advance(2)
    broker.answer(*answered(broker.challenge(NONCE)))  # forgets what has expired
    assert len(broker._used) == 1
    refused(lambda: broker.answer(*answer))


def test_another_answer_to_an_answered_challenge_is_refused(broker: Challenger) -> None:
    challenge = broker.challenge(NONCE)
    broker.answer(*answered(challenge))
    refused(lambda: broker.answer(*answered(challenge, MALLORY)))


def test_setting_the_clock_back_brings_nothing_back(broker: Challenger, clock: Clock) -> None:
    answer = answered(broker.challenge(NONCE))
    waiting = answered(broker.challenge(NONCE))
    broker.answer(*answer)
    clock.advance(31)
    broker.answer(*answered(broker.challenge(NONCE)))  # the first is forgotten
    clock.advance(-20)
    refused(lambda: broker.answer(*answer))
    refused(lambda: broker.answer(*waiting))
    assert broker.answer(*answered(broker.challenge(NONCE))) == ANN.public


@pytest.mark.parametrize("late", [30, 30.000001, 31, 100_000])
def test_a_late_answer_is_refused(broker: Challenger, clock: Clock, late: float) -> None:
    answer = answered(broker.challenge(NONCE))
    clock.advance(late)
    refused(lambda: broker.answer(*answer))


def test_an_answer_for_another_connection_is_refused(clock: Clock) -> None:
    """Someone in the middle has the client sign over their own certificate and relays the answer."""
    theirs = Challenger(BROKER, "cd" * 32, SECRET, clock)
    ours = Challenger(BROKER, BINDING, SECRET, clock)
    challenge = theirs.challenge(NONCE)
    signature = prove(ANN, challenge, NONCE, "cd" * 32)
    refused(lambda: ours.answer(challenge.nonce, NONCE, ANN.public.did, signature))
    # Nor does a signature for another connection do with our own nonce.
    ours_challenge = ours.challenge(NONCE)
    unbound = dataclasses.replace(challenge, nonce=ours_challenge.nonce)
    with pytest.raises(BrokerNotTrusted):
        prove(ANN, unbound, NONCE, "cd" * 32)


def test_an_answer_for_another_broker_is_refused(clock: Clock) -> None:
    theirs = Challenger(OTHER, BINDING, SECRET, clock)
    ours = Challenger(BROKER, BINDING, SECRET, clock)
    challenge = theirs.challenge(NONCE)
    signature = prove(ANN, challenge, NONCE, BINDING)
    refused(lambda: ours.answer(challenge.nonce, NONCE, ANN.public.did, signature))


def test_a_challenge_of_before_a_restart_is_refused(broker: Challenger, clock: Clock) -> None:
    answer = answered(broker.challenge(NONCE))
    refused(lambda: Challenger(BROKER, BINDING, b"t" * 32, clock).answer(*answer))


def test_a_nonce_that_someone_else_made_is_refused(clock: Clock) -> None:
    """A client that knows all but the secret cannot make its own, longer-lived nonce."""
    forger = Challenger(BROKER, BINDING, b"x" * 32, clock, 10**6)
    ours = Challenger(BROKER, BINDING, SECRET, clock)
    refused(lambda: ours.answer(*answered(forger.challenge(NONCE))))


def test_a_signature_by_another_key_is_refused(broker: Challenger) -> None:
    challenge = broker.challenge(NONCE)
    nonce, client_nonce, _, signature = answered(challenge, MALLORY)
    refused(lambda: broker.answer(nonce, client_nonce, ANN.public.did, signature))


def test_the_brokers_own_proof_is_no_answer(broker: Challenger) -> None:
    """The labels differ, so a broker cannot be made to sign in as itself with what it hands out."""
    challenge = broker.challenge(NONCE)
    refused(lambda: broker.answer(challenge.nonce, NONCE, BROKER.public.did, challenge.proof))


def test_an_answer_is_no_proof_of_a_broker(broker: Challenger) -> None:
    """Nor can what a client signed be shown to another client as a broker's proof."""
    challenge = broker.challenge(NONCE)
    signature = prove(ANN, challenge, NONCE, BINDING)
    with pytest.raises(BrokerNotTrusted):
        prove(MALLORY, dataclasses.replace(challenge, broker=ANN.public.did, proof=signature), NONCE, BINDING)


def signed(label: bytes, nonce: str, client_nonce: str = NONCE) -> str:
    """What ann can sign, whatever it is."""
    parts = client_nonce, nonce, BINDING, BROKER.public.did, ANN.public.did
    return base64url(ANN.sign(_transcript(label, *parts)))


def test_an_answer_under_another_label_is_refused(broker: Challenger) -> None:
    challenge = broker.challenge(NONCE)
    for label in (_BROKER, _NONCE, b""):
        refused(
            lambda label=label: broker.answer(challenge.nonce, NONCE, ANN.public.did, signed(label, challenge.nonce))
        )
    assert broker.answer(challenge.nonce, NONCE, ANN.public.did, signed(_CLIENT, challenge.nonce)) == ANN.public


def test_a_proof_under_another_label_is_refused(broker: Challenger) -> None:
    challenge = broker.challenge(NONCE)
    for label in (_CLIENT, _NONCE, b""):
        proof = BROKER.sign(_transcript(label, NONCE, challenge.nonce, BINDING, BROKER.public.did))
        with pytest.raises(BrokerNotTrusted):
            prove(ANN, dataclasses.replace(challenge, proof=base64url(proof)), NONCE, BINDING)


def test_a_nonce_is_good_only_for_its_client_nonce_and_connection(broker: Challenger, clock: Clock) -> None:
    """Even where the signature fits."""
    other = new_nonce(lambda n: b"x" * n)
    nonce = broker.challenge(NONCE).nonce
    refused(lambda: broker.answer(nonce, other, ANN.public.did, signed(_CLIENT, nonce, other)))
    theirs = Challenger(BROKER, "cd" * 32, SECRET, clock).challenge(NONCE).nonce
    refused(lambda: broker.answer(theirs, NONCE, ANN.public.did, signed(_CLIENT, theirs)))


def flipped(text: str, bit: int) -> str:
    """Base64url text with one bit of its content turned."""
    data = bytearray(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    return urlsafe_b64encode(bytes(data)).rstrip(b"=").decode()


@given(bit=st.integers(0, 8 * 64), part=st.sampled_from([0, 1, 3]))
def test_one_turned_bit_anywhere_is_refused(bit: int, part: int) -> None:
    broker = Challenger(BROKER, BINDING, SECRET, Clock())
    answer = list(answered(broker.challenge(NONCE)))
    answer[part] = flipped(answer[part], bit)
    refused(lambda: broker.answer(*answer))


@given(part=st.integers(0, 3), text=st.text(max_size=300))
def test_nonsense_is_refused_in_the_same_words(part: int, text: str) -> None:
    broker = Challenger(BROKER, BINDING, SECRET, Clock())
    answer = list(answered(broker.challenge(NONCE)))
    answer[part] = text
    refused(lambda: broker.answer(*answer))


@pytest.mark.parametrize("part", [0, 1, 2, 3])
@pytest.mark.parametrize("change", [lambda t: t + "A", lambda t: t + "=", lambda t: t[:-1], lambda t: t * 100])
def test_a_second_way_to_write_the_same_is_refused(broker: Challenger, part: int, change: Callable[[str], str]) -> None:
    answer = list(answered(broker.challenge(NONCE)))
    answer[part] = change(answer[part])
    refused(lambda: broker.answer(*answer))


def test_spare_bits_of_the_nonce_do_not_make_it_a_new_one(broker: Challenger) -> None:
    """A nonce leaves two bits of its last character unused; a client that holds its key may sign any text."""
    challenge = broker.challenge(NONCE)
    broker.answer(*answered(challenge))
    other = challenge.nonce[:-1] + chr(ord(challenge.nonce[-1]) + 1)
    assert flipped(other, 0) == flipped(challenge.nonce, 0)
    refused(lambda: broker.answer(other, NONCE, ANN.public.did, signed(_CLIENT, other)))


@pytest.mark.parametrize("nonce", ["", "short", "x" * 21, "x" * 129, "x" * 30 + "!", "é" * 30, "x" * 30 + "\n"])
def test_a_client_nonce_that_could_be_guessed_or_is_malformed_is_refused(broker: Challenger, nonce: str) -> None:
    refused(lambda: broker.challenge(nonce))


def test_a_key_that_is_not_known_is_refused_and_takes_no_room(clock: Clock) -> None:
    broker = Challenger(BROKER, BINDING, SECRET, clock, room=1)
    known: Callable[[PublicKey], bool] = lambda key: key == ANN.public  # noqa: E731
    for _ in range(3):
        answer = answered(broker.challenge(NONCE), MALLORY)
        refused(lambda answer=answer: broker.answer(*answer, known))
    assert broker.answer(*answered(broker.challenge(NONCE)), known) == ANN.public


def test_a_full_memory_says_that_it_is_busy_until_there_is_room(clock: Clock) -> None:
    broker = Challenger(BROKER, BINDING, SECRET, clock, room=2)
    first = answered(broker.challenge(NONCE))
    broker.answer(*first)
    broker.answer(*answered(broker.challenge(NONCE)))
    with pytest.raises(TooBusy) as busy:
        broker.answer(*answered(broker.challenge(NONCE)))
    assert busy.value.code == "too-busy"
    refused(lambda: broker.answer(*first))  # a replay is a replay also then
    clock.advance(31)
    assert broker.answer(*answered(broker.challenge(NONCE))) == ANN.public


# -- refused by the client ------------------------------------------------------------------------------------


def test_another_broker_than_the_expected_is_not_answered(clock: Clock) -> None:
    challenge = Challenger(OTHER, BINDING, SECRET, clock).challenge(NONCE)
    with pytest.raises(BrokerNotTrusted) as caught:
        prove(ANN, challenge, NONCE, BINDING, BROKER.public.did)
    assert caught.value.code == "broker-not-trusted"
    prove(ANN, challenge, NONCE, BINDING, OTHER.public.did)


def test_a_broker_that_only_claims_to_be_the_expected_is_not_answered(clock: Clock) -> None:
    challenge = Challenger(OTHER, BINDING, SECRET, clock).challenge(NONCE)
    with pytest.raises(BrokerNotTrusted):
        prove(ANN, dataclasses.replace(challenge, broker=BROKER.public.did), NONCE, BINDING, BROKER.public.did)


@pytest.mark.parametrize("seen", ["cd" * 32, "", plaintext_binding("127.0.0.1", 8443)])
def test_a_broker_that_serves_another_connection_is_not_answered(broker: Challenger, seen: str) -> None:
    challenge = broker.challenge(NONCE)
    with pytest.raises(BrokerNotTrusted):
        prove(ANN, challenge, NONCE, seen, BROKER.public.did)


def test_a_proof_for_another_client_nonce_is_not_answered(broker: Challenger) -> None:
    with pytest.raises(BrokerNotTrusted):
        prove(ANN, broker.challenge(NONCE), new_nonce(), BINDING, BROKER.public.did)


@given(bit=st.integers(0, 8 * 64), part=st.sampled_from(["nonce", "proof"]))
def test_a_challenge_with_a_turned_bit_is_not_answered(bit: int, part: str) -> None:
    challenge = Challenger(BROKER, BINDING, SECRET, Clock()).challenge(NONCE)
    changed = dataclasses.replace(challenge, **{part: flipped(getattr(challenge, part), bit)})
    with pytest.raises(BrokerNotTrusted):
        prove(ANN, changed, NONCE, BINDING, BROKER.public.did)


@given(part=st.sampled_from(["nonce", "proof", "broker"]), text=st.text(max_size=300))
def test_a_challenge_of_nonsense_is_not_answered(part: str, text: str) -> None:
    challenge = Challenger(BROKER, BINDING, SECRET, Clock()).challenge(NONCE)
    with pytest.raises(BrokerNotTrusted):
        prove(ANN, dataclasses.replace(challenge, **{part: text}), NONCE, BINDING)


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_no_two_transcripts_read_the_same(one: list[str], two: list[str]) -> None:
    assert (_transcript(b"x", *one) == _transcript(b"x", *two)) == (one == two)


def test_nonces_differ() -> None:
    assert len({new_nonce() for _ in range(100)}) == 100
