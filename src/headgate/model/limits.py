"""Every limit, by name. Past one of them a request is refused with a message that names it."""

MAX_ATTRIBUTES = 200  # attributes of one event type, inherited ones included
MAX_EXPRESSION_CHARS = 10_000  # characters of one filter or condition
MAX_EXPRESSION_DEPTH = 64  # nesting of `not`, parentheses, `and` and `or` in one expression
MAX_COMPOSITE_CHARS = 20_000  # characters of one composite event
MAX_BEADS = 2_000_000  # evaluations that one detection has open at a time, groups and records of blocks among them
MAX_BLOCK_STEPS = 100_000  # statements that one list of a block comes to at once, loops included
MAX_KEPT = 5_000_000  # events that a detection keeps until their time is certain
MAX_SIGNALS = 1_000_000  # signals that one detection gives in an hour of the log's clock
MAX_PRINCIPAL_SIGNALS = 5_000_000  # and that all detections of one principal give
MAX_CONTRIBUTORS = 1_000  # events that are recorded as having led to one signal
MAX_RESERVED_EVENTS = 1_000_000  # events of the log that a reservation keeps from being trimmed
MAX_REPLAYED = 50_000  # events and promises that a gateway goes through to say where a detection stands
MAX_READERS = 10_000  # principals that could read what a derived event rests on, where it is for those alone
MAX_DECLASSIFIED = 1_000  # types for which one type is declassified
MAX_DELAY_SECONDS = 1_000_000_000  # that a composite event may wait before it takes something for absent
MAX_COMPOSITE_PARTS = 1_000  # templates and operators of one composite event
# Characters of all conditions, rolefiles and other expressions in one request to a gateway:
MAX_EXPRESSION_TEXT = 250_000
MAX_REQUIREMENTS = 1_000  # different requirements in one request that publishes events
MAX_CLAUSES = 256  # clauses of a filter or condition in disjunctive normal form
MAX_CLAUSE_ATOMS = 256  # atoms in one clause
MAX_NAME_CHARS = 200  # characters of any name: type, attribute, principal, group, relation, rule, subscription
MAX_TEXT_BYTES = 1_000_000  # UTF-8 bytes of one string or bytes value of an event
MAX_GROUP_DEPTH = 32  # groups nested in groups
MAX_DID_CHARS = 64  # characters of a key's name, `did:key:...`
MAX_KEY_FILE_BYTES = 16_384  # bytes of a file with a private key
MAX_CERTIFICATE_FILE_BYTES = 262_144  # bytes of a file with certificates
MAX_CERTIFICATE_DAYS = 825  # days for which a domain's own certificate is good
MAX_HOSTS = 100  # names and addresses that a certificate is asked to cover
CHALLENGE_SECONDS = 30  # how long a challenge may be answered
MAX_NONCE_CHARS = 128  # characters of a nonce, of a signature or of a proof in a handshake
MAX_USED_NONCES = 100_000  # answered challenges remembered by one gateway until they expire
SESSION_SECONDS = 900  # how long a session token is good, unless configured otherwise
MAX_TOKEN_CHARS = 2_048  # characters of a session token
MAX_CLOCK_SKEW_SECONDS = 60  # how far ahead the clock of another gateway, or of whoever issues a statement, may be
MAX_CONFIG_BYTES = 1_000_000  # bytes of `headgate.toml`
MAX_BULK_BYTES = 64_000_000  # bytes of one bulk request, as sent and as columns
MAX_BULK_EVENTS = 100_000  # events of one bulk request
RATE_SECONDS = 60  # the seconds over which `@rate` counts events
MAX_CHAIN_LENGTH = 32  # certificates in one chain
MAX_BAG = 256  # certificates that a principal has presented and that are in force
MAX_CHAINS = 1_024  # chains that are followed for one principal; past it, nothing is admitted
MAX_CHAIN_RIGHTS = 4_096  # rights that one chain gives, and that all chains of one principal give together
# Pairs of rights compared with all that they name, and links tried, in the search for one principal's chains:
MAX_CHAIN_STEPS = 20_000
MAX_STATEMENT_BYTES = 16_384  # bytes of one signed statement
MAX_TYPE_STATEMENT_BYTES = 262_144  # bytes of a signed type definition, with the chains it carries
MAX_REVOKED = 100_000  # entries of one revocation list
MAX_LIST_BYTES = 8_000_000  # bytes of one signed revocation list
MAX_SUCCESSIONS = 64  # keys that follow one another
MAX_IDENTITY_HOURS = 24  # hours for which an identity statement may be good
MAX_READ_BYTES = 16_000_000  # bytes of the signed statements that one verifier remembers
MAX_AUDIENCES = 16  # audiences that one statement is for
MAX_AUTHORITIES = 16  # authorities that one certificate gives
MAX_FRESHNESS_SECONDS = 31_622_400  # seconds for which an issuer may let its silence be borne
MAX_TYPE_DEPTH = 8  # definitions of parents, each inside the next, that a signed type carries
MAX_MAPPED = 1_000  # pairs of values in a mapping between two communities
MAX_PASSPHRASE_BYTES = 1_023  # bytes of a passphrase; the cryptography library takes no more
MAX_KEYS = 10_000  # files of a directory of keys
MAX_ROTATIONS = 999  # earlier keys that are kept under one name
# How long it may take to find out whether a rule is wider than another; after that it counts as not:
WIDER_SECONDS = 1.0
MAX_ROLEFILE_CHARS = 200_000  # characters of one rolefile or event policy
MAX_STATEMENTS = 2_000  # statements of one rolefile, and entries of an event policy
MAX_ROLE_ARGUMENTS = 16  # arguments of a role
MAX_CREDENTIALS = 16  # credentials, and electors, of one statement
MAX_SET_LETTERS = 64  # letters of a set type
MAX_ENTRY_STEPS = 100_000  # credentials tried and facts looked at for one request of a role; past it, nothing is given
MAX_ENTRY_MEMBERSHIPS = 1_000  # intermediate memberships that one request of a role may lead through
MAX_FACT_TURNS = 10  # how often one fact about a circle of roles may turn before it is said not to come to rest
MAX_SHOWN = 256  # credentials shown with one request of a role, and roles that an election requires
MAX_RECORDS = 10_000_000  # credential records in force
MAX_RECORD_PARENTS = 512  # parents of one credential record
MAX_PEER_BOUND_SECONDS = 86_400  # seconds for which the silence of a service of another domain may be borne
MAX_WATCHED = 100_000  # records that one service of another domain follows
MAX_HELD = 10_000  # roles that one principal holds
MAX_CERTIFICATE_ROLES = 64  # roles that one certificate embodies
MAX_ROLE_CERTIFICATE_SECONDS = 86_400  # seconds for which a role membership certificate is good
# Seconds for which an appointment, a delegation or a revocation certificate is good:
MAX_APPOINTMENT_SECONDS = 31_622_400
MAX_ROLE_KEYS = 512  # rolling keys of a domain that are kept at one time
MAX_ROLE_KEYS_BYTES = 262_144  # bytes of a file of rolling keys, and of the signed document that names them
MAX_ROLE_KEYS_SECONDS = 86_400  # seconds for which a document of rolling keys is good
MAX_LOCK_TRIES = 500  # how often a lock on a file of rolling keys is tried, a hundredth of a second apart
MAX_INLINED = 10_000  # atoms and values of a condition of the event policy, with what it defines put in place
MAX_CHOICES = 100_000  # choices of credentials that are gone through for one client and one entry of the event policy
MAX_PEERS = 100  # services of other domains that are followed at one time
# Epochs of a service of another domain that are remembered as over, so that late messages of them are known:
MAX_EPOCHS = 16
MAX_READ_RECORDS = 1_000  # records that are asked about, or followed no longer, in one request
MAX_MESSAGES = 1_000  # messages about records that are published, or taken up, at a time
MAX_PRESENTED = 256  # certificates of other domains that wait to be confirmed by their issuers
# Seconds after which another domain that no longer reads the states of our records follows none of them:
MAX_WATCHER_SILENCE_SECONDS = 86_400
MAX_ACL_CHARS = 20_000  # characters of an access control list
MAX_ACL_ENTRIES = 1_000  # entries of an access control list
MAX_POLICY_CLAUSES = 1_000  # clauses of an event policy in disjunctive normal form, as it is explained
MAX_ELECTIONS = 1_000  # elections in force that one principal has made
MAX_ENTERED = 8  # roles that are asked for in one request
MAX_TIME_SECONDS = (
    31_622_400  # seconds that a type may say of the times of its events: how late, how far ahead, how wrong
)
