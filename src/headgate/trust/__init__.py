"""Keys and keyrings, signed statements, TLS, the handshake, session tokens and opaque positions.

Guarantees: the only importer of the cryptography and JWT libraries. Clock, randomness and keys are arguments; what
comes from outside becomes trusted through one numbered function, and then has another type.
Leaves out: who a key belongs to and what it may do (`ledger`, `decide`), and the wire (`gateway`).
"""

from headgate.trust.handshake import Challenge, Challenger, prove
from headgate.trust.keys import PrivateKey, PublicKey
from headgate.trust.positions import Positions
from headgate.trust.tokens import Session

__all__ = ["Challenge", "Challenger", "Positions", "PrivateKey", "PublicKey", "Session", "prove"]
