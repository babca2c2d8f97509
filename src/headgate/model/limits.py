"""Every limit, by name. Past one of them a request is refused with a message that names it."""

MAX_ATTRIBUTES = 200
"""Attributes of one event type, inherited ones included."""

MAX_EXPRESSION_CHARS = 10_000
"""Characters of one filter or condition."""

MAX_EXPRESSION_DEPTH = 64
"""Nesting of `not`, parentheses, `and` and `or` in one expression."""

MAX_CLAUSES = 256
"""Clauses of a filter or condition in disjunctive normal form."""

MAX_CLAUSE_ATOMS = 256
"""Atoms in one clause."""

MAX_NAME_CHARS = 200
"""Characters of any name: type, attribute, principal, group, relation, rule, subscription."""

MAX_TEXT_BYTES = 1_000_000
"""UTF-8 bytes of one string or bytes value of an event."""

MAX_GROUP_DEPTH = 32
"""Groups nested in groups."""

MAX_DID_CHARS = 64
"""Characters of a key's name, `did:key:...`."""

MAX_KEY_FILE_BYTES = 16_384
"""Bytes of a file with a private key."""

MAX_CERTIFICATE_FILE_BYTES = 262_144
"""Bytes of a file with certificates."""

MAX_CERTIFICATE_DAYS = 825
"""Days for which a domain's own certificate is good."""

MAX_HOSTS = 100
"""Names and addresses that a certificate is asked to cover."""

CHALLENGE_SECONDS = 30
"""How long a challenge may be answered."""

MAX_NONCE_CHARS = 128
"""Characters of a nonce, of a signature or of a proof in a handshake."""

MAX_USED_NONCES = 100_000
"""Answered challenges remembered by one gateway until they expire."""

SESSION_SECONDS = 900
"""How long a session token is good, unless configured otherwise."""

MAX_TOKEN_CHARS = 2_048
"""Characters of a session token."""

MAX_CLOCK_SKEW_SECONDS = 60
"""How far ahead the clock of another gateway of the domain may be."""

MAX_CONFIG_BYTES = 1_000_000
"""Bytes of `headgate.toml`."""

MAX_BULK_BYTES = 64_000_000
"""Bytes of one bulk request, as sent and as columns."""

MAX_BULK_EVENTS = 100_000
"""Events of one bulk request."""
