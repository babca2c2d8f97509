"""Which subscriptions a blob of deliveries holds, packed so that one can be looked for without reading the blob.

Guarantees: `contains(pack(numbers), n)` is true exactly for the numbers packed. Of a bitmap and a sorted list the
smaller is kept. Bytes that are not what `pack` made are a `ValueError`, never a silent no.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left

import numpy as np
import numpy.typing as npt

_LIST, _BITS = 1, 2
_HEAD = 5
"""A tag and a checksum of the rest."""


def pack(numbers: npt.NDArray[np.int32]) -> bytes:
    """Subscription numbers, sorted and each once (`np.unique`), as bytes."""
    if len(numbers) == 0:
        return _sealed(_LIST, b"")
    base = int(numbers[0]) & ~7
    if (int(numbers[-1]) - base) // 8 + 1 + 4 >= 4 * len(numbers):
        return _sealed(_LIST, numbers.astype("<i4").tobytes())
    flags = np.zeros(int(numbers[-1]) - base + 1, np.uint8)
    flags[numbers - base] = 1
    return _sealed(_BITS, base.to_bytes(4, "little") + np.packbits(flags, bitorder="little").tobytes())


def contains(packed: bytes, number: int) -> bool:
    """Is this subscription among them?"""
    body = _body(packed)
    if packed[0] == _LIST:
        numbers = body.cast("i")
        at = bisect_left(numbers, number)
        return at < len(numbers) and numbers[at] == number
    place = number - int.from_bytes(body[:4], "little")
    return 0 <= place < 8 * (len(body) - 4) and bool(body[4 + (place >> 3)] >> (place & 7) & 1)


def unpack(packed: bytes) -> npt.NDArray[np.int32]:
    """The inverse of `pack`."""
    body = _body(packed)
    if packed[0] == _LIST:
        return np.frombuffer(body, "<i4").astype(np.int32)
    flags = np.unpackbits(np.frombuffer(body[4:], np.uint8), bitorder="little")
    return (np.flatnonzero(flags) + int.from_bytes(body[:4], "little")).astype(np.int32)


def _sealed(tag: int, body: bytes) -> bytes:
    return bytes([tag]) + zlib.crc32(body).to_bytes(4, "little") + body


def _body(packed: bytes) -> memoryview:
    body = memoryview(packed)[_HEAD:]
    whole = len(packed) >= _HEAD and packed[0] in (_LIST, _BITS)
    if not whole or zlib.crc32(body) != int.from_bytes(packed[1:_HEAD], "little"):
        raise ValueError("not a packed list of subscriptions")
    return body
