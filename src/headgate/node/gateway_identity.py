"""The gateway's own statements: the chain from the coordinating domain to its key, which it shows to every client.

They are files `*.jwt` in `statements/` of the domain, one statement a line: certificates, perhaps an identity statement
and a provider's word on another. Where the domain's own key is on this machine, the one certificate that it takes to
begin with is made by `vouch`: all that the domain has, to be delegated on to its members (Capabilities figure 6).

Guarantees: what is read is bounded. What is not good, or not good any more, is not shown, and said in the log. No file
that is there is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from headgate.model.authority import NETWORK_ACTIONS, TYPE_ACTIONS, NetworkAuthority, TypeAuthority
from headgate.model.errors import BadConfig, BrokerNotTrusted, HeadgateError
from headgate.model.state import State
from headgate.node.config import Files
from headgate.node.logs import Log
from headgate.node.statement_register import StatementRegister
from headgate.trust.certificates import issue_certificate
from headgate.trust.keys import PrivateKey
from headgate.trust.presented import check_broker, open_presented

OWN: Final = "broker.jwt"
MAX_OWN: Final = 32
"""Statements that a gateway shows."""

MAX_OWN_BYTES: Final = 65_536
"""Bytes of all of them: they are sent with every challenge."""

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
