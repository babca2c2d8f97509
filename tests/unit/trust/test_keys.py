"""Keys: names, signatures, and files that only their owner can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_public_key,
)
from hypothesis import given
from hypothesis import strategies as st

from headgate.model.errors import BadKey, NotFound
from headgate.model.limits import MAX_KEY_FILE_BYTES
from headgate.trust.keys import PrivateKey, PublicKey

SEEDS = st.binary(min_size=32, max_size=32)
FIELD = 2**255 - 19
ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826


def key_of(seed: bytes) -> PrivateKey:
    return PrivateKey.generate(lambda _: seed)


@given(SEEDS)
def test_a_name_leads_back_to_its_key(seed: bytes) -> None:
    key = key_of(seed).public
    assert key.did.startswith("did:key:z6Mk")
    assert PublicKey.from_did(key.did) == key


def test_names_are_those_of_the_specification() -> None:
    # From the test vectors of the did:key method.
    did = "did:key:z6MktwupdmLXVVqTzCw4i46r4uGyosGXRnR3XjN4Zq7oMMsw"
    seed = bytes(32)
    assert PublicKey.from_did(did).did == did
    assert key_of(seed).public.did == "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp"


@given(SEEDS, st.binary(max_size=200), st.binary(max_size=200))
def test_only_the_signed_message_verifies_under_the_signing_key(seed: bytes, message: bytes, other: bytes) -> None:
    key = key_of(seed)
    signature = key.sign(message)
    assert key.public.verify(signature, message)
    assert key.public.verify(signature, other) == (other == message)
    assert not key_of(bytes(31) + b"x").public.verify(signature, message) or seed == bytes(31) + b"x"
    assert not key.public.verify(signature[:-1], message)
    assert not key.public.verify(b"", message)


GOOD = key_of(bytes(32)).public.did


@pytest.mark.parametrize(
    "text",
    [
        "",
        "did:key:",
        "did:key:z",
        "did:web:example.org",
        GOOD[:-1],
        GOOD + "1",
        GOOD.replace("did:key:z", "did:key:z1"),
        GOOD.replace("did:key:z", "did:key:u"),
        GOOD[:-1] + "0",  # not in the alphabet
        GOOD[:-1] + "é",
        " " + GOOD,
        GOOD + "#" + GOOD[8:],
        "did:key:z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc",  # X25519: cannot sign
        "did:key:z" + "z" * 1000,
    ],
)
def test_anything_else_is_no_name(text: str) -> None:
    with pytest.raises(BadKey) as refused:
        PublicKey.from_did(text)
    assert refused.value.code == "bad-key"


def test_a_key_that_anyone_can_sign_for_is_refused() -> None:
    identity = (1).to_bytes(32, "little")
    # The forgery is real: the library accepts it for every message.
    Ed25519PublicKey.from_public_bytes(identity).verify(identity + bytes(32), b"anything at all")
    for y in (0, 1, FIELD - 1, ORDER_8, FIELD - ORDER_8):
        for sign in (0, 1 << 255):
            with pytest.raises(BadKey):
                PublicKey((y | sign).to_bytes(32, "little"))


def test_a_second_way_to_write_a_key_is_refused() -> None:
    with pytest.raises(BadKey):
        PublicKey((FIELD + 3).to_bytes(32, "little"))
    with pytest.raises(BadKey):
        PublicKey(bytes(31))


def test_a_saved_key_comes_back_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    key = PrivateKey.generate()
    path = tmp_path / "a.pem"
    before = os.umask(0)
    try:
        key.save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PrivateKey.load(path).public == key.public
    assert path.read_text().startswith("-----BEGIN PRIVATE KEY-----")


def test_two_new_keys_differ() -> None:
    assert PrivateKey.generate().public != PrivateKey.generate().public


def test_a_private_key_does_not_show() -> None:
    key = key_of(bytes(range(32)))
    assert repr(key) == f"PrivateKey({key.public.did})"


def test_no_key_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.pem"
    first = PrivateKey.generate()
    first.save(path)
    with pytest.raises(BadKey, match="already"):
        PrivateKey.generate().save(path)
    assert PrivateKey.load(path).public == first.public
    link = tmp_path / "link.pem"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadKey, match="already"):
        first.save(link)
    assert not (tmp_path / "elsewhere").exists()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadKey, match="nowhere"):
        PrivateKey.generate().save(tmp_path / "nowhere" / "a.pem")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o610])
def test_a_key_that_others_can_touch_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.pem"
    PrivateKey.generate().save(path)
    path.chmod(mode)
    with pytest.raises(BadKey) as refused:
        PrivateKey.load(path)
    assert refused.value.remedy == f"`chmod 600 {path}`"
    path.chmod(0o400)
    PrivateKey.load(path)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"missing\.pem"):
        PrivateKey.load(tmp_path / "missing.pem")


def pem(key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    how = NoEncryption() if password is None else BestAvailableEncryption(password)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no private key"),
        (b"not a key", "no private key"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no private key"),
        (pem(ec.generate_private_key(ec.SECP256R1())), "not an Ed25519 key"),
        (pem(Ed25519PrivateKey.generate(), b"word"), "under a passphrase"),
        (b"-" * (MAX_KEY_FILE_BYTES + 1), "too long"),
    ],
)
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "a.pem"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(BadKey, match=says):
        PrivateKey.load(path)


def test_what_is_not_a_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(BadKey):
            PrivateKey.load(path)


# -- passphrases ----------------------------------------------------------------------------------------------


def test_a_key_under_a_passphrase_comes_back_only_with_it(tmp_path: Path) -> None:
    key, path = PrivateKey.generate(), tmp_path / "a.pem"
    key.save(path, b"correct horse")
    assert path.read_text().startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PrivateKey.load(path, b"correct horse").public == key.public
    with pytest.raises(BadKey, match="does not open"):
        PrivateKey.load(path, b"wrong horse")
    with pytest.raises(BadKey, match="under a passphrase"):
        PrivateKey.load(path)


def test_a_passphrase_is_not_needed_and_not_asked_of_a_key_without_one(tmp_path: Path) -> None:
    key, path = PrivateKey.generate(), tmp_path / "a.pem"
    key.save(path)
    assert PrivateKey.load(path, b"whatever").public == key.public


@pytest.mark.parametrize("passphrase", [b"", b"x" * 1024])
def test_an_empty_or_endless_passphrase_is_refused(tmp_path: Path, passphrase: bytes) -> None:
    with pytest.raises(BadKey, match="empty or too long"):
        PrivateKey.generate().save(tmp_path / "a.pem", passphrase)
    assert not (tmp_path / "a.pem").exists()


def test_a_public_key_is_read_by_other_programs() -> None:
    key = key_of(bytes(32)).public
    read = load_pem_public_key(key.pem().encode())
    assert isinstance(read, Ed25519PublicKey)
    assert read.public_bytes_raw() == key.raw


@given(st.integers(0, 50), st.sampled_from("123zZ0OIl é\n"))
def test_a_name_changed_in_one_place_is_another_or_none(at: int, character: str) -> None:
    changed = GOOD[:at] + character + GOOD[at + 1 :]
    try:
        found = PublicKey.from_did(changed)
    except BadKey:
        return
    assert found.did == changed
