"""Opaque positions: what a subscriber is given for a place in a stream (D12).

Guarantees: a position tells nothing about how many events lie between two of them, not even which came first, so that
gaps do not count what is hidden. It is good for its own subscription alone; anything else is `bad-position`. Equal
places have equal positions, on every gateway that holds the domain's key and after every restart.
Leaves out: the meaning of the numbers of subscriptions and streams, which is the caller's.

A position is one AES block: subscription (4 bytes), stream (2), sequence number (6) and zeros (4). AES on one block is
a pseudo-random permutation of all blocks. Under a secret key nobody can tell it from a random table, which is all that
is needed: no two places share a block, so there is nothing for a mode of operation to hide. A block that someone makes
up decrypts to noise, which shows 32 zero bits and the right 32 bits of the subscription once in 2^64 tries.
"""

from __future__ import annotations

import secrets
import struct
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from headgate.model.errors import BadKey, BadPosition
from headgate.model.values import brief
from headgate.trust.keys import Random, from_base64url, read_secret, write_secret

KEY_BYTES: Final = 16
MAX_SUBSCRIPTION: Final = 2**32 - 1
MAX_STREAM: Final = 2**16 - 1
MAX_SEQ: Final = 2**48 - 1

_CHARS: Final = 22
_BLOCK: Final = struct.Struct(">IHHII")
# Three bytes make four characters: with two more, each block is a whole number of them, and one call encodes all.
_PADDED_BYTES: Final = 18
_PADDED_CHARS: Final = 24
_FIELDS: Final = np.dtype(
    [("subscription", ">u4"), ("stream", ">u2"), ("high", ">u2"), ("low", ">u4"), ("check", ">u4")]
)

Numbers = NDArray[np.int64]


def make_key(path: Path, random: Random = secrets.token_bytes) -> None:
    """Write a new position key."""
    write_secret(path, random(KEY_BYTES))


class Positions:
    """Seals places into positions and opens them again."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise BadKey(f"a position key has {KEY_BYTES} bytes, not `{len(key)}`")
        # ECB leaks equal blocks, and here no two blocks are equal; see above.
        self._cipher = Cipher(AES(key), ECB())  # noqa: S305 - single independent blocks, used as a permutation

    @classmethod
    def load(cls, path: Path) -> Positions:
        """Positions under the key of a file."""
        key = read_secret(path, KEY_BYTES + 1)
        if len(key) != KEY_BYTES:
            raise BadKey(f"`{path}` is not a position key", remedy=f"it has {KEY_BYTES} bytes; restore it from a copy")
        return cls(key)

    def seal(self, subscriptions: Numbers | np.int64, streams: Numbers | np.int64, seqs: Numbers) -> list[str]:
        """The position of each event, for its subscription."""
        blocks = np.zeros(len(seqs), _FIELDS)
        blocks["subscription"] = _fits("subscription", subscriptions, MAX_SUBSCRIPTION)
        blocks["stream"] = _fits("stream", streams, MAX_STREAM)
        checked = _fits("sequence number", seqs, MAX_SEQ)
        blocks["high"] = checked >> 32
        blocks["low"] = checked & 0xFFFFFFFF
        sealed = self._cipher.encryptor().update(blocks.tobytes())
        padded = np.zeros((len(seqs), _PADDED_BYTES), np.uint8)
        padded[:, : _BLOCK.size] = np.frombuffer(sealed, np.uint8).reshape(-1, _BLOCK.size)
        text = urlsafe_b64encode(padded.tobytes()).decode()
        return [text[at : at + _CHARS] for at in range(0, len(text), _PADDED_CHARS)]

    def open(self, text: str, subscription: int) -> tuple[int, int]:
        """The stream and sequence number of a position that was given out for this subscription."""
        block = from_base64url(text) if len(text) == _CHARS else None
        if block is not None:
            found, stream, high, low, check = _BLOCK.unpack(self._cipher.decryptor().update(block))
            if check == 0 and found == subscription:
                return stream, high << 32 | low
        raise BadPosition(
            f"`{brief(text)}` is no position of this subscription", remedy="use one that came with a delivery"
        )


def _fits(what: str, numbers: Any, most: int) -> Any:
    """Numbers that a block has room for."""
    given = np.asarray(numbers)
    if given.size and (int(given.min()) < 0 or int(given.max()) > most):
        raise BadPosition(f"a {what} is not between 0 and {most}: `{int(given.min())}` to `{int(given.max())}`")
    return given
