"""Ed25519 keys: how principals are named, sign and are verified.

Guarantees: a public key has exactly one name, `did:key:z6Mk...`; a key that would let anyone sign for it is refused.
A private key is written once, for its owner's eyes only, and refused if others can read it; it never shows in a
message. A file may be under a passphrase, and is then useless to whoever copies it. What is read is bounded.
Leaves out: other kinds of key, and names of one's own for keys (`keyring`).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from headgate.model.errors import BadKey, NotFound, StorageBusy, StorageFull
from headgate.model.limits import MAX_DID_CHARS, MAX_KEY_FILE_BYTES, MAX_LOCK_TRIES, MAX_PASSPHRASE_BYTES
from headgate.model.values import brief

Random = Callable[[int], bytes]
"""Gives that many random bytes."""

_DID: Final = "did:key:z"
_MULTICODEC: Final = b"\xed\x01"
_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGITS: Final = {character: digit for digit, character in enumerate(_ALPHABET)}
_KEY_BYTES: Final = 32
_LOCK_PAUSE: Final = 0.01
_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022

_FIELD: Final = 2**255 - 19
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER: Final = frozenset({0, 1, _FIELD - 1, _ORDER_8, _FIELD - _ORDER_8})
"""The y coordinates of the eight points of small order: a key that is one of them accepts forged signatures."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A principal's public key."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != _KEY_BYTES:
            raise BadKey(f"a public key has {_KEY_BYTES} bytes, not `{len(self.raw)}`")
        y = int.from_bytes(self.raw, "little") & (2**255 - 1)
        if y >= _FIELD or y in _SMALL_ORDER:
            raise BadKey(f"`{self.raw.hex()}` is no safe Ed25519 key", remedy="make a new key")

    @property
    def did(self) -> str:
        """The key's name."""
        return _DID + _base58(_MULTICODEC + self.raw)

    @classmethod
    def from_did(cls, text: str) -> PublicKey:
        """The key of a name; anything but the one way to write it is refused."""
        remedy = "a principal is named by an Ed25519 key, `did:key:z6Mk...`"
        if len(text) > MAX_DID_CHARS:
            raise BadKey(f"`{brief(text)}` is longer than MAX_DID_CHARS ({MAX_DID_CHARS})", remedy=remedy)
        raw = _from_base58(text[len(_DID) :]) if text.startswith(_DID) else None
        if raw is None or not raw.startswith(_MULTICODEC) or len(raw) != len(_MULTICODEC) + _KEY_BYTES:
            raise BadKey(f"`{brief(text)}` is not the name of a key", remedy=remedy)
        return cls(raw[len(_MULTICODEC) :])

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Did the owner of this key sign the message?"""
        try:
            self.native().verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def native(self) -> Ed25519PublicKey:
        """The key as the library has it."""
        return Ed25519PublicKey.from_public_bytes(self.raw)

    def pem(self) -> str:
        """The key as other programs read it."""
        return self.native().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")


class PrivateKey:
    """A principal's private key, and with it the power to act as that principal."""

    __slots__ = ("_native", "public")

    def __init__(self, native: Ed25519PrivateKey) -> None:
        self._native = native
        self.public = PublicKey(native.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    def __repr__(self) -> str:
        return f"PrivateKey({self.public.did})"

    def sign(self, message: bytes) -> bytes:
        """The signature of a message."""
        return self._native.sign(message)

    def native(self) -> Ed25519PrivateKey:
        """The key as the library has it."""
        return self._native

    @classmethod
    def generate(cls, random: Random = secrets.token_bytes) -> PrivateKey:
        """A new key."""
        return cls(Ed25519PrivateKey.from_private_bytes(random(_KEY_BYTES)))

    @classmethod
    def load(cls, path: Path, passphrase: bytes | None = None) -> PrivateKey:
        """The private key of a file; the passphrase counts only if the file is under one."""
        data = read_secret(path, MAX_KEY_FILE_BYTES)
        remedy = "it should be an Ed25519 key as PKCS #8 in PEM, as `headgate init` makes them"
        locked = is_locked(data)
        if locked and passphrase is None:
            raise BadKey(f"the key in `{path}` is under a passphrase", remedy="give the file with the passphrase")
        try:
            native = load_pem_private_key(data, password=passphrase if locked else None)
        except (TypeError, ValueError, UnsupportedAlgorithm):
            if locked:
                raise BadKey(f"the passphrase does not open `{path}`", remedy="try another") from None
            raise BadKey(f"there is no private key in `{path}`", remedy=remedy) from None
        if not isinstance(native, Ed25519PrivateKey):
            raise BadKey(f"the key in `{path}` is not an Ed25519 key", remedy=remedy)
        return cls(native)

    def save(self, path: Path, passphrase: bytes | None = None) -> None:
        """Write the key to a new file that only its owner can read, and only with the passphrase if there is one."""
        how: KeySerializationEncryption = NoEncryption()
        if passphrase is not None:
            if not 1 <= len(passphrase) <= MAX_PASSPHRASE_BYTES:
                raise BadKey("the passphrase is empty or too long", remedy=f"1 to {MAX_PASSPHRASE_BYTES} bytes")
            how = BestAvailableEncryption(passphrase)
        write_secret(path, self._native.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))


def is_locked(data: bytes) -> bool:
    """Is this the content of a key file that is under a passphrase?"""
    return b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in data


# -- files ----------------------------------------------------------------------------------------------------


def write_secret(path: Path, data: bytes) -> None:
    """Write a new file that only its owner can read; a file that is there already is left alone."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise BadKey(f"`{path}` is there already", remedy="move it away first; no key is ever overwritten") from None
    except OSError as error:
        raise BadKey(f"`{path}` cannot be written ({error.strerror})") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StorageFull(f"no room to write `{path}` ({error.strerror})", remedy="make room") from None


def read_secret(path: Path, limit: int) -> bytes:
    """The bytes of a file of at most `limit` bytes that only its owner can read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not hold us up
    except FileNotFoundError:
        raise NotFound(f"there is no key `{path}`", remedy="`headgate init` makes the keys of a domain") from None
    except OSError as error:
        raise BadKey(f"`{path}` cannot be read ({error.strerror})") from None
    try:
        # The open file is judged, not its name, which could be given to another file in between.
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise BadKey(f"`{path}` is not a file")
        if status.st_mode & _OTHERS:
            mode = f"{stat.S_IMODE(status.st_mode):03o}"
            raise BadKey(f"others can read or change the key `{path}` (mode {mode})", remedy=f"`chmod 600 {path}`")
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(handle)
    if len(data) > limit:
        raise BadKey(f"`{path}` is too long for a key (more than {limit} bytes)")
    return data


def check_directory(directory: Path) -> None:
    """Refuse a directory of secrets that others can change."""
    status = directory.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise BadKey(f"`{directory}` is not a directory")
    if status.st_mode & _OTHERS_WRITE:
        raise BadKey(f"others can change `{directory}`", remedy=f"`chmod 700 {directory}`")


def replace_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Put a file in its place whole, on disk; what a killed process left half-written is nobody's.

    Each is later than the one before, however coarse the clock of the disk: whoever goes by its time sees the change.
    """
    passing = path.with_name(f".{path.name}.tmp")
    try:
        passing.unlink(missing_ok=True)
        handle = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists() and (before := path.stat().st_mtime_ns) >= passing.stat().st_mtime_ns:
            os.utime(passing, ns=(before + 1, before + 1))
        passing.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        passing.unlink(missing_ok=True)
        raise StorageFull(f"`{path}` cannot be written ({error.strerror})", remedy="make room") from None


@contextmanager
def alone_in(directory: Path, pause: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """One process at a time; the lock goes with a process that is killed."""
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _ in range(MAX_LOCK_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            pause(_LOCK_PAUSE)
        else:
            raise StorageBusy(f"another process holds `{directory}`", remedy="see whether it hangs, and try again")
        yield
    finally:
        os.close(handle)


def sync_directory(directory: Path) -> None:
    """Let what was put in a directory outlast the machine."""
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- base64url and base58btc ---------------------------------------------------------------------------------


def base64url(data: bytes) -> str:
    """Bytes as base64url without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes | None:
    """The bytes that `base64url` writes so; None if there are none."""
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError:  # also what is not ASCII
        return None
    return data if base64url(data) == text else None


def _base58(data: bytes) -> str:
    """Bytes that do not begin with zero in base58, as Bitcoin's alphabet has it."""
    number, text = int.from_bytes(data), ""
    while number:
        number, digit = divmod(number, 58)
        text = _ALPHABET[digit] + text
    return text


def _from_base58(text: str) -> bytes | None:
    """The bytes that `_base58` writes so; None if there are none."""
    number = 0
    for character in text:
        digit = _DIGITS.get(character)
        if digit is None:
            return None
        number = number * 58 + digit
    if text[:1] in {"", _ALPHABET[0]}:  # a leading zero, the only second way to write a number
        return None
    return number.to_bytes((number.bit_length() + 7) // 8)
