"""What the domain's access control service has to remember, and the statements that its gateways show of themselves.

Guarantees: the number of the revocation list only grows, and what was revoked once stays revoked until the statement
would have ended by itself, also after `kill -9`: an entry and the number it makes are one durable write. Nothing here
is secret, and nothing here grants anything: that is the ledger's part.
The gateways' own statements are files `*.jwt` in `statements/` of the domain, one statement a line: certificates from
the coordinating domain to their key, perhaps an identity statement and a provider's word on another. Where the domain's
own key is on this machine, the one certificate that it takes to begin with is made by `vouch`: all that the domain has,
to be delegated on to its members (Capabilities figure 6). What is read is bounded. What is not good, or not good any
more, is not shown, and said in the log. No file that is there is changed.
Leaves out: signing (`issuing`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from headgate.model.authority import NETWORK_ACTIONS, TYPE_ACTIONS, NetworkAuthority, RevocationList, TypeAuthority
from headgate.model.errors import BadConfig, BrokerNotTrusted, HeadgateError, TooMany
from headgate.model.limits import MAX_REVOKED
from headgate.model.state import State
from headgate.model.values import micros, moment
from headgate.node.config import Files
from headgate.node.logs import Log
from headgate.storage.shared import SharedState
from headgate.trust.certificates import issue_certificate
from headgate.trust.keys import PrivateKey
from headgate.trust.presented import check_broker, open_presented

MAX_KEPT_LIST: Final = 16_384
"""Characters of another issuer's list that is kept as it was signed, to be shown to clients."""

_LATE: Final = 120_000_000  # microseconds for which what has ended is still remembered: other clocks may be behind


@dataclass(frozen=True, slots=True)
class IssuedStatement:
    """A statement of the service that has not ended."""

    id: str
    kind: str
    principal: str
    subject: str
    rule: str
    at: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Heard:
    """The last list of an issuer, when it was received, and its text if that is short."""

    list: RevocationList
    at: datetime
    statement: str | None = None


class StatementRegister(SharedState):
    """The memory of one domain's service."""

    FILE = "authority.db"
    FORMAT = 1
    SCHEMA = """
        CREATE TABLE issued (id TEXT PRIMARY KEY, kind TEXT NOT NULL, principal TEXT NOT NULL, subject TEXT NOT NULL,
            rule TEXT NOT NULL, at INTEGER NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;
        CREATE INDEX issued_principal ON issued (principal, id);
        CREATE TABLE revoked (id TEXT PRIMARY KEY, until INTEGER) WITHOUT ROWID;
        CREATE TABLE list (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL);
        CREATE TABLE heard (issuer TEXT PRIMARY KEY, number INTEGER NOT NULL, issued INTEGER NOT NULL,
            at INTEGER NOT NULL,
            revoked TEXT NOT NULL, statement TEXT) WITHOUT ROWID;
        CREATE TABLE types (name TEXT PRIMARY KEY, statement TEXT NOT NULL) WITHOUT ROWID;
        INSERT INTO list VALUES (1, 0)
    """

    # -- what was issued --------------------------------------------------------------------------------------

    def issue(self, new: Collection[IssuedStatement], most: int, now: datetime) -> None:
        """Record statements before they are handed out; refused past so many for one principal."""
        with self._writing() as db:
            db.execute("DELETE FROM issued WHERE until <= ?", (micros(now) - _LATE,))
            for statement in new:
                (held,) = db.execute(
                    "SELECT count(*) FROM issued WHERE principal = ?", (statement.principal,)
                ).fetchone()
                if held >= most:
                    raise TooMany(
                        f"`{statement.principal}` has {held} statements that have not ended",
                        remedy="use those, give some up, or raise `authority.issued_per_principal`",
                    )
                times = {"at": micros(statement.at), "until": micros(statement.until)}
                values = tuple((asdict(statement) | times).values())
                db.execute("INSERT INTO issued VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def issued(self, principal: str | None, after: str, most: int) -> list[IssuedStatement]:
        """Statements by id, after one: of a principal, or of all."""
        mine = "" if principal is None else "principal = ? AND "
        given = () if principal is None else (principal,)
        rows = self._rows(f"SELECT * FROM issued WHERE {mine}id > ? ORDER BY id LIMIT ?", *given, after, most)  # noqa: S608
        return [_issued(row) for row in rows]

    def one(self, id: str) -> IssuedStatement | None:
        """A statement that was issued here and is remembered."""
        rows = self._rows("SELECT * FROM issued WHERE id = ?", id)
        return _issued(rows[0]) if rows else None

    # -- what was revoked -------------------------------------------------------------------------------------

    def number(self) -> int:
        """The number of the list."""
        return int(self._rows("SELECT number FROM list")[0][0])

    def revocations(self) -> tuple[int, frozenset[str]]:
        """The list: its number and all that is on it."""
        rows = self._rows("SELECT number, id FROM list LEFT JOIN revoked ON 1 = 1")
        return int(rows[0][0]), frozenset(id for _, id in rows if id is not None)

    def is_revoked(self, id: str) -> bool:
        """Is it on the list?"""
        return bool(self._rows("SELECT 1 FROM revoked WHERE id = ?", id))

    def revoke(self, id: str, now: datetime) -> bool:
        """Put a statement on the list, which gets the next number; false if it is there already."""
        with self._writing() as db:
            if db.execute("SELECT 1 FROM revoked WHERE id = ?", (id,)).fetchone():
                return False
            db.execute("DELETE FROM revoked WHERE until <= ?", (micros(now) - _LATE,))
            if db.execute("SELECT count(*) FROM revoked").fetchone()[0] >= MAX_REVOKED:
                raise TooMany(f"the list has MAX_REVOKED ({MAX_REVOKED}) entries", remedy="issue for shorter times")
            found = db.execute("SELECT until FROM issued WHERE id = ?", (id,)).fetchone()
            db.execute("INSERT INTO revoked VALUES (?, ?)", (id, None if found is None else found[0]))
            db.execute("UPDATE list SET number = number + 1")
        return True

    def catch_up(self, known: RevocationList) -> None:
        """Never fall behind what the ledger knows of our own list, as a file restored from a copy would."""
        with self._writing() as db:
            (number,) = db.execute("SELECT number FROM list").fetchone()
            if number < known.number:
                db.executemany(
                    "INSERT INTO revoked VALUES (?, NULL) ON CONFLICT DO NOTHING", [(id,) for id in known.revoked]
                )
                db.execute("UPDATE list SET number = ?", (known.number + 1,))

    # -- what others said -------------------------------------------------------------------------------------

    def hear(self, listed: RevocationList, statement: str, now: datetime) -> None:
        """Remember the last list of an issuer; its entries are written only when they are others."""
        text = statement if len(statement) <= MAX_KEPT_LIST else None
        with self._writing() as db:
            issued = micros(listed.issued)
            done = db.execute(
                "UPDATE heard SET issued = CASE WHEN issued > ? THEN issued ELSE ? END, at = ?, statement = ? "
                "WHERE issuer = ? AND number = ?",
                (issued, issued, micros(now), text, listed.issuer, listed.number),
            )
            if done.rowcount == 0:
                entries = json.dumps(sorted(listed.revoked))
                values = (listed.issuer, listed.number, issued, micros(now), entries, text)
                db.execute("DELETE FROM heard WHERE issuer = ?", (listed.issuer,))
                db.execute("INSERT INTO heard VALUES (?, ?, ?, ?, ?, ?)", values)

    def heard(self, issuer: str) -> Heard | None:
        """The last list of an issuer."""
        rows = self._rows("SELECT * FROM heard WHERE issuer = ?", issuer)
        if not rows:
            return None
        _, number, issued, at, revoked, statement = rows[0]
        found = RevocationList(issuer, number, moment(issued), frozenset(json.loads(revoked)))
        return Heard(found, moment(at), statement)

    def heard_at(self) -> dict[str, datetime]:
        """When each issuer was last heard."""
        return {issuer: moment(at) for issuer, at in self._rows("SELECT issuer, at FROM heard")}

    # -- signed types -----------------------------------------------------------------------------------------

    def keep_type(self, name: str, statement: str) -> None:
        """Keep the signed definition of a type, in place of an earlier one."""
        with self._writing() as db:
            db.execute(
                "INSERT INTO types VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET statement = excluded.statement",
                (name, statement),
            )

    def type(self, name: str) -> str | None:
        """The signed definition of a type."""
        rows = self._rows("SELECT statement FROM types WHERE name = ?", name)
        return str(rows[0][0]) if rows else None


def _issued(row: tuple[Any, ...]) -> IssuedStatement:
    id, kind, principal, subject, rule, at, until = row
    return IssuedStatement(id, kind, principal, subject, rule, moment(at), moment(until))


OWN: Final = "broker.jwt"
MAX_OWN: Final = 32  # statements that a gateway shows
MAX_OWN_BYTES: Final = 65_536  # bytes of all of them: they are sent with every challenge

log = Log("vouch")


def own_statements(directory: Path) -> tuple[str, ...]:
    """The statements of a directory, file by file; none if there is no directory."""
    texts = tuple(dict.fromkeys(_lines(directory)))
    if len(texts) > MAX_OWN:
        raise BadConfig(f"`{directory}` holds more statements than MAX_OWN ({MAX_OWN})", remedy="keep what is needed")
    return texts


def _lines(directory: Path) -> Iterator[str]:
    room = MAX_OWN_BYTES
    for path in sorted(directory.glob("*.jwt")) if directory.is_dir() else ():
        try:
            with path.open("rb") as file:
                data = file.read(room + 1)
            text = data.decode("ascii")
        except OSError as error:
            raise BadConfig(f"`{path}` cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise BadConfig(f"`{path}` is not a signed statement", remedy="one statement a line") from None
        room -= len(data)
        if room < 0:
            raise BadConfig(f"`{directory}` holds more than MAX_OWN_BYTES ({MAX_OWN_BYTES})", remedy="keep fewer")
        yield from (line.strip() for line in text.splitlines() if line.strip())


def shown(texts: Sequence[str], *, audience: str, now: datetime) -> tuple[str, ...]:
    """The statements that are good now."""
    valid = []
    for text in texts:
        try:
            open_presented([text], audience=audience, now=now)
        except HeadgateError as error:
            log.warning("statement-not-shown", code=error.code, reason=str(getattr(error, "reason", "")))
        else:
            valid.append(text)
    return tuple(valid)


def signs_of_life(texts: Sequence[str], register: StatementRegister, audience: str, now: datetime) -> tuple[str, ...]:
    """The last lists of those whose certificates need one, as far as they are short: clients may know none."""
    bag = open_presented(texts, audience=audience, now=now)
    needed = dict.fromkeys(one.issuer for one in bag.certificates if one.freshness is not None)
    known = {one.issuer for one in bag.lists}
    heard = [register.heard(issuer) for issuer in needed if issuer not in known]
    return tuple(one.statement for one in heard if one is not None and one.statement is not None)


def is_vouched(texts: Sequence[str], *, broker: str, coordinator: str, audience: str, now: datetime) -> bool:
    """Do the statements lead from the coordinating domain to the gateway's key, now?"""
    try:
        check_broker(texts, broker=broker, coordinator=coordinator, now=now, audience=audience)
    except BrokerNotTrusted:
        return False
    return True


def coordinator_of(state: State) -> str | None:
    """The key that coordinates the network; None where the domain's own principal has none."""
    return state.coordinator or state.keys.get(state.administrator)


def vouch(files: Files, now: datetime) -> bool:
    """Let the domain's key vouch for the gateways', if it is here and has not done so; true if it did."""
    path = files.statements / OWN
    if path.exists() or not files.admin_key.exists():
        return False
    domain, broker = PrivateKey.load(files.admin_key), PrivateKey.load(files.broker_key)
    if domain.public.did == broker.public.did:
        return False
    text = issue_certificate(
        domain,
        subject=broker.public.did,
        authority=(NetworkAuthority(NETWORK_ACTIONS), TypeAuthority(TYPE_ACTIONS)),
        delegate=True,
        now=now,
    )
    files.statements.mkdir(exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(f"{text}\n")
    fresh.replace(path)
    return True
