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

RATE_SECONDS = 60
"""The seconds over which `@rate` counts events."""

MAX_CHAIN_LENGTH = 32
"""Certificates in one chain."""

MAX_BAG = 256
"""Certificates that a principal has presented and that are in force."""

MAX_CHAINS = 1_024
"""Chains that are followed for one principal; past it, nothing is admitted."""

MAX_CHAIN_RIGHTS = 4_096
"""Rights that one chain gives, and that all chains of one principal give together."""

MAX_CHAIN_STEPS = 20_000
"""Pairs of rights compared with all that they name, and links tried, in the search for one principal's chains."""

MAX_STATEMENT_BYTES = 16_384
"""Bytes of one signed statement."""

MAX_TYPE_STATEMENT_BYTES = 262_144
"""Bytes of a signed type definition, with the chains it carries."""

MAX_REVOKED = 100_000
"""Entries of one revocation list."""

MAX_LIST_BYTES = 8_000_000
"""Bytes of one signed revocation list."""

MAX_SUCCESSIONS = 64
"""Keys that follow one another."""

MAX_IDENTITY_HOURS = 24
"""Hours for which an identity statement may be good."""

MAX_READ_BYTES = 16_000_000
"""Bytes of the signed statements that one verifier remembers."""

MAX_AUDIENCES = 16
"""Audiences that one statement is for."""

MAX_AUTHORITIES = 16
"""Authorities that one certificate gives."""

MAX_FRESHNESS_SECONDS = 31_622_400
"""Seconds for which an issuer may let its silence be borne."""

MAX_TYPE_DEPTH = 8
"""Definitions of parents, each inside the next, that a signed type carries."""

MAX_MAPPED = 1_000
"""Pairs of values in a mapping between two communities."""

MAX_PASSPHRASE_BYTES = 1_023
"""Bytes of a passphrase; the cryptography library takes no more."""

MAX_KEYS = 10_000
"""Files of a directory of keys."""

MAX_ROTATIONS = 999
"""Earlier keys that are kept under one name."""

WIDER_SECONDS = 1.0
"""How long it may take to find out whether a rule is wider than another; after that it counts as not."""
