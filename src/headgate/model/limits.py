"""Every limit, by name. Past one of them a request is refused with a message that names it."""

MAX_ATTRIBUTES = 200
"""Attributes of one event type, inherited ones included."""

MAX_EXPRESSION_CHARS = 10_000
"""Characters of one filter or condition."""

MAX_EXPRESSION_DEPTH = 64
"""Nesting of `not`, parentheses, `and` and `or` in one expression."""

MAX_EXPRESSION_TEXT = 250_000
"""Characters of all conditions, rolefiles and other expressions in one request to a gateway."""

MAX_REQUIREMENTS = 1_000
"""Different requirements in one request that publishes events."""

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
"""How far ahead the clock of another gateway, or of whoever issues a statement, may be."""

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

MAX_ROLEFILE_CHARS = 200_000
"""Characters of one rolefile or event policy."""

MAX_STATEMENTS = 2_000
"""Statements of one rolefile, and entries of an event policy."""

MAX_ROLE_ARGUMENTS = 16
"""Arguments of a role."""

MAX_CREDENTIALS = 16
"""Credentials, and electors, of one statement."""

MAX_SET_LETTERS = 64
"""Letters of a set type."""

MAX_ENTRY_STEPS = 100_000
"""Credentials tried and facts looked at for one request of a role; past it, nothing is given."""

MAX_ENTRY_MEMBERSHIPS = 1_000
"""Intermediate memberships that one request of a role may lead through."""

MAX_FACT_TURNS = 10
"""How often one fact about a circle of roles may turn before it is said not to come to rest."""

MAX_SHOWN = 256
"""Credentials shown with one request of a role, and roles that an election requires."""

MAX_RECORDS = 10_000_000
"""Credential records in force."""

MAX_RECORD_PARENTS = 512
"""Parents of one credential record."""

MAX_PEER_BOUND_SECONDS = 86_400
"""Seconds for which the silence of a service of another domain may be borne."""

MAX_WATCHED = 100_000
"""Records that one service of another domain follows."""

MAX_HELD = 10_000
"""Roles that one principal holds."""

MAX_CERTIFICATE_ROLES = 64
"""Roles that one certificate embodies."""

MAX_ROLE_CERTIFICATE_SECONDS = 86_400
"""Seconds for which a role membership certificate is good."""

MAX_APPOINTMENT_SECONDS = 31_622_400
"""Seconds for which an appointment, a delegation or a revocation certificate is good."""

MAX_ROLE_KEYS = 512
"""Rolling keys of a domain that are kept at one time."""

MAX_ROLE_KEYS_BYTES = 262_144
"""Bytes of a file of rolling keys, and of the signed document that names them."""

MAX_ROLE_KEYS_SECONDS = 86_400
"""Seconds for which a document of rolling keys is good."""

MAX_LOCK_TRIES = 500
"""How often a lock on a file of rolling keys is tried, a hundredth of a second apart."""

MAX_INLINED = 10_000
"""Atoms and values of a condition of the event policy, with what it defines put in place."""

MAX_CHOICES = 100_000
"""Choices of credentials that are gone through for one client and one entry of the event policy."""

MAX_PEERS = 100
"""Services of other domains that are followed at one time."""

MAX_EPOCHS = 16
"""Epochs of a service of another domain that are remembered as over, so that late messages of them are known."""

MAX_READ_RECORDS = 1_000
"""Records that are asked about, or followed no longer, in one request."""

MAX_MESSAGES = 1_000
"""Messages about records that are published, or taken up, at a time."""

MAX_PRESENTED = 256
"""Certificates of other domains that wait to be confirmed by their issuers."""

MAX_WATCHER_SILENCE_SECONDS = 86_400
"""Seconds after which another domain that no longer reads the states of our records follows none of them."""

MAX_ACL_CHARS = 20_000
"""Characters of an access control list."""

MAX_ACL_ENTRIES = 1_000
"""Entries of an access control list."""

MAX_POLICY_CLAUSES = 1_000
"""Clauses of an event policy in disjunctive normal form, as it is explained."""

MAX_ELECTIONS = 1_000
"""Elections in force that one principal has made."""

MAX_ENTERED = 8
"""Roles that are asked for in one request."""
