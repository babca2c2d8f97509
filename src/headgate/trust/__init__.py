"""Keys and keyrings, signed statements, TLS, the handshake, session tokens and opaque positions.

Guarantees: the only importer of the cryptography and JWT libraries. Clock, randomness and keys are arguments; what
comes from outside becomes trusted through one numbered function, and then has another type.
Leaves out: who a key belongs to and what it may do (`ledger`, `decide`), and the wire (`gateway`).
"""
