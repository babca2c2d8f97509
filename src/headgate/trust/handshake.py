"""The mutual handshake: a broker and a principal prove to each other that they hold their keys.

Guarantees: a principal is admitted only by its own fresh signature, made for this broker and over this connection.
What was signed for another broker, connection, challenge or purpose is worth nothing, and no answer counts twice. A
flood of challenges that nobody answers costs no memory. Whatever is wrong, the refusal is the same.
Leaves out: who the principal is and what it may do, and what is handed out afterwards (`tokens`).

    1. The client sends a random nonce.
    2. The broker answers with a nonce of its own, which it need not remember, and signs both.
    3. The client verifies that signature, against the broker it expects and the connection it sees, and signs both too.
    4. The broker verifies that signature and admits the key that made it.

Both sign what they are connected by, the *binding*: the fingerprint of the server's certificate, or the address of a
plaintext connection on this machine. Someone in the middle has another certificate, so what they relay does not verify.
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
import re
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from headgate.model.errors import BadKey, BrokerNotTrusted, NotAuthenticated, TooBusy
from headgate.model.limits import CHALLENGE_SECONDS, MAX_NONCE_CHARS, MAX_USED_NONCES
from headgate.model.values import brief, micros
from headgate.trust.keys import PrivateKey, PublicKey, Random, base64url, from_base64url

_BROKER: Final = b"headgate handshake 1: broker"
_CLIENT: Final = b"headgate handshake 1: client"
_NONCE: Final = b"headgate handshake 1: nonce"

_RANDOM_BYTES: Final = 16
_TIME_BYTES: Final = 8
_BODY_BYTES: Final = _RANDOM_BYTES + _TIME_BYTES
_TAG_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_MIN_SECRET_BYTES: Final = 16
_CLIENT_NONCE: Final = re.compile(rf"[A-Za-z0-9_-]{{22,{MAX_NONCE_CHARS}}}\Z")
"""At least 128 bits."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a broker answers to a client's nonce."""

    nonce: str
    broker: str
    proof: str
    expires: datetime


class Challenger:
    """The broker's side.

    `secret` is drawn anew whenever a gateway starts, and each gateway has its own: answered challenges are remembered
    in memory alone, so no other gateway, and not this one after a restart, may accept a challenge of before.
    """

    def __init__(
        self,
        broker: PrivateKey,
        binding: str,
        secret: bytes,
        clock: Callable[[], datetime],
        lifetime: float = CHALLENGE_SECONDS,
        *,
        random: Random = secrets.token_bytes,
        room: int = MAX_USED_NONCES,
    ) -> None:
        assert len(secret) >= _MIN_SECRET_BYTES, "a secret of that length can be guessed"
        self._broker = broker
        self._binding = binding
        self._secret = secret
        self._clock = clock
        self._lifetime = timedelta(seconds=lifetime)
        self._random = random
        self._room = room
        self._lock = threading.Lock()
        self._used: set[bytes] = set()
        self._until: list[tuple[int, bytes]] = []  # the used ones by the time they expire
        self._last: datetime | None = None
        self._turn = 0

    def challenge(self, client_nonce: str) -> Challenge:
        """Steps 1 and 2: a nonce that only this broker makes, and its signature over both."""
        if not _CLIENT_NONCE.match(client_nonce):
            raise _refused()
        now, turn = self._now()
        expires = now + self._lifetime
        body = self._random(_RANDOM_BYTES) + micros(expires).to_bytes(_TIME_BYTES)
        nonce = base64url(body + self._tag(body, client_nonce, turn))
        did = self._broker.public.did
        proof = self._broker.sign(_transcript(_BROKER, client_nonce, nonce, self._binding, did))
        return Challenge(nonce, did, base64url(proof), expires)

    def answer(
        self,
        nonce: str,
        client_nonce: str,
        principal_did: str,
        signature: str,
        known: Callable[[PublicKey], bool] = lambda _: True,
    ) -> PublicKey:
        """Step 4: the key that answered. A key that is not `known` is refused like all else, and takes no room.

        The signature is verified even where something else is wrong, so that the time taken does not tell what is.
        """
        # 1. The sizes and shapes of what came.
        shaped = bool(_CLIENT_NONCE.match(client_nonce))
        token = _bytes(nonce, _BODY_BYTES + _TAG_BYTES)
        proof = _bytes(signature, _SIGNATURE_BYTES)
        key = _key(principal_did)
        body, tag = (token or bytes(_BODY_BYTES + _TAG_BYTES))[:_BODY_BYTES], (token or b"")[_BODY_BYTES:]
        # 2. The nonce is one of ours, made for this client's nonce, and not late.
        now, turn = self._now()
        expires = int.from_bytes(body[_RANDOM_BYTES:])
        ours = hmac.compare_digest(tag, self._tag(body, client_nonce if shaped else "", turn))
        fresh = ours and micros(now) < expires
        # 3. The principal signed it, for us and over this connection.
        message = _transcript(
            _CLIENT,
            client_nonce if shaped else "",
            nonce if token else "",
            self._binding,
            self._broker.public.did,
            principal_did if key else "",
        )
        signed = (key or self._broker.public).verify(proof or bytes(_SIGNATURE_BYTES), message)
        if key is None or not (shaped and token and proof and fresh and signed and known(key)):
            raise _refused()
        # 4. It was not answered before.
        self._use(body, expires, now, turn)
        return key

    def _tag(self, body: bytes, client_nonce: str, turn: int) -> bytes:
        """What makes a nonce ours. The client's nonce is part of it, so that it need not be remembered."""
        asked = hashlib.sha256(client_nonce.encode()).hexdigest()
        message = _transcript(_NONCE, body.hex(), asked, self._binding, str(turn))
        return hmac.digest(self._secret, message, "sha256")

    def _now(self) -> tuple[datetime, int]:
        """The time, and how often the clock was set back: challenges of before that are void.

        Otherwise a nonce that was forgotten because it had expired could come to life again.
        """
        with self._lock:
            now = self._clock()
            if self._last is not None and now < self._last:
                self._turn += 1
                self._used.clear()
                self._until.clear()
            self._last = now
            return now, self._turn

    def _use(self, body: bytes, expires: int, now: datetime, turn: int) -> None:
        """Remember an answered nonce until it expires."""
        with self._lock:
            while self._until and self._until[0][0] <= micros(now):
                self._used.discard(heapq.heappop(self._until)[1])
            if body in self._used or turn != self._turn:
                raise _refused()
            if len(self._used) >= self._room:
                raise TooBusy("too many handshakes at once", remedy="try again in a moment")
            self._used.add(body)
            heapq.heappush(self._until, (expires, body))


def prove(
    key: PrivateKey, challenge: Challenge, client_nonce: str, binding_seen: str, broker_expected: str | None = None
) -> str:
    """Step 3: verify the broker, then answer its challenge.

    Without an expected broker, any is accepted that holds its key and serves the connection that is seen.
    """
    # 1. It is the expected broker, by name.
    if broker_expected is not None and challenge.broker != broker_expected:
        raise BrokerNotTrusted(
            f"the broker is `{brief(challenge.broker)}`, not `{brief(broker_expected)}`",
            remedy="connect to the right one, or ask its operator whether its key has changed",
        )
    # 2. It holds its key, and serves the very connection we see.
    broker = _key(challenge.broker)
    proof = _bytes(challenge.proof, _SIGNATURE_BYTES)
    if broker is None or proof is None or _bytes(challenge.nonce, _BODY_BYTES + _TAG_BYTES) is None:
        raise _untrusted(challenge)
    did = broker.did
    if not broker.verify(proof, _transcript(_BROKER, client_nonce, challenge.nonce, binding_seen, did)):
        raise _untrusted(challenge)
    # 3. Our own signature, under a label of its own.
    message = _transcript(_CLIENT, client_nonce, challenge.nonce, binding_seen, did, key.public.did)
    return base64url(key.sign(message))


def new_nonce(random: Random = secrets.token_bytes) -> str:
    """A client's nonce."""
    return base64url(random(32))


def plaintext_binding(host: str, port: int) -> str:
    """The binding of a connection without TLS, which only this machine's own may be."""
    return f"plaintext:{host}:{port}"


def _refused() -> NotAuthenticated:
    """The one refusal for every cause: what is wrong would help only those who guess."""
    return NotAuthenticated("the handshake failed", remedy="begin again with a new challenge")


def _untrusted(challenge: Challenge) -> BrokerNotTrusted:
    return BrokerNotTrusted(
        f"the broker did not prove that it is `{brief(challenge.broker)}` on this connection",
        remedy="someone may be in between: check the address and the pinned certificate",
    )


def _transcript(label: bytes, *parts: str) -> bytes:
    """What is signed: each part with its length before it, so that no two lists read the same."""
    pieces = [label, *(part.encode("utf-8", "surrogatepass") for part in parts)]
    return b"".join(len(piece).to_bytes(4) + piece for piece in pieces)


def _key(did: str) -> PublicKey | None:
    try:
        return PublicKey.from_did(did)
    except BadKey:
        return None


def _bytes(text: str, length: int) -> bytes | None:
    """The bytes of base64url text, if there are so many."""
    data = from_base64url(text) if len(text) <= MAX_NONCE_CHARS else None
    return data if data is not None and len(data) == length else None
