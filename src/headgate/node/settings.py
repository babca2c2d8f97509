"""The settings of a node, declared: each once, with its default, its range and what it is for.

Guarantees: what is read has the declared type and range, durations are seconds and sizes bytes whatever unit they were
written in, and no section is made whose values are unsafe beside each other.
Leaves out: where the values come from (`config`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from headgate.model.errors import BadConfig, BadKey
from headgate.model.limits import MAX_FRESHNESS_SECONDS
from headgate.model.values import brief
from headgate.trust.keys import PublicKey

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES: Final = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)\Z")
_SIZE: Final = re.compile(r"([0-9]{1,9})(B|KB|MB|GB|TB)\Z")
_MOST_PORT: Final = 65535

# -- kinds of values ------------------------------------------------------------------------------------------

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Reader = Callable[[object], Any]
"""From what a file says to the value; a `ValueError` says what was wanted."""


def duration(text: object) -> float:
    """Seconds, from `500ms`, `90s`, `10m`, `1h` or `7d`."""
    match = _DURATION.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError('a duration such as "90s", "10m", "1h" or "7d"')
    return int(match[1]) * _UNITS[match[2]]


def size(text: object) -> int:
    """Bytes, from `512KB`, `16MB` or `10GB`; a KB has 1024."""
    match = _SIZE.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError('a size such as "512KB", "16MB" or "10GB"')
    return int(match[1]) * _SIZES[match[2]]


def _setting(default: str | int | bool, read: Reader, doc: str) -> Any:
    """A field of a section, with its default as a file has it."""
    return field(default=read(default), metadata={"default": default, "read": read, "doc": doc})


def _duration(default: str, least: str, most: str, doc: str) -> Any:
    def read(raw: object) -> float:
        if not duration(least) <= (found := duration(raw)) <= duration(most):
            raise ValueError(f"something from {least} to {most}")
        return found

    return _setting(default, read, doc)


def _size(default: str, least: str, most: str, doc: str) -> Any:
    def read(raw: object) -> int:
        if not size(least) <= (found := size(raw)) <= size(most):
            raise ValueError(f"something from {least} to {most}")
        return found

    return _setting(default, read, doc)


def _whole(default: int, least: int, most: int, doc: str) -> Any:
    def read(raw: object) -> int:
        if type(raw) is not int or not least <= raw <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return raw

    return _setting(default, read, doc)


def _flag(default: bool, doc: str) -> Any:
    def read(raw: object) -> bool:
        if raw is not True and raw is not False:
            raise ValueError("true or false")
        return raw

    return _setting(default, read, doc)


def _choice(default: str, options: tuple[str, ...], doc: str) -> Any:
    def read(raw: object) -> str:
        if not isinstance(raw, str) or raw not in options:
            raise ValueError(f"one of {', '.join(options)}")
        return raw

    return _setting(default, read, doc)


def _text(default: str, shape: str, wanted: str, doc: str) -> Any:
    def read(raw: object) -> str:
        if not isinstance(raw, str) or not re.fullmatch(shape, raw):
            raise ValueError(wanted)
        return raw

    return _setting(default, read, doc)


def _silence(default: str, doc: str) -> Any:
    """How long one may be silent: a duration, or `none` where it does not matter."""

    def read(raw: object) -> int | None:
        if raw == "none":
            return None
        if not 1 <= (found := duration(raw)) <= MAX_FRESHNESS_SECONDS:
            raise ValueError(f"`none`, or something from 1s to {MAX_FRESHNESS_SECONDS // 86_400}d")
        return int(found)

    return _setting(default, read, doc)


def _networks(default: str, doc: str) -> Any:
    """Addresses and networks, with commas between them."""

    def read(raw: object) -> tuple[Network, ...]:
        if not isinstance(raw, str):
            raise ValueError('addresses and networks such as "10.0.0.7, 10.1.0.0/16"')  # noqa: TRY004 - as with others
        try:
            return tuple(ipaddress.ip_network(one.strip()) for one in raw.split(",") if one.strip())
        except ValueError:
            raise ValueError('addresses and networks such as "10.0.0.7, 10.1.0.0/16"') from None

    return _setting(default, read, doc)


# -- the settings ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DomainSettings:
    """The organisation."""

    name: str = _text(
        "example",
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        "up to 64 letters, digits, dots, dashes and underscores",
        "The domain's name. Session tokens are made out to it.",
    )


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Where clients connect."""

    host: str = _text(
        "127.0.0.1",
        r"[A-Za-z0-9.:-]{1,253}",
        "a host name or an address",
        "The address to listen on. 127.0.0.1 is this machine alone, 0.0.0.0 every network it is in.",
    )
    port: int = _whole(8443, 1, _MOST_PORT, "The port of the first gateway; the second has the next one, and so on.")
    count: int = _whole(1, 1, 64, "How many gateways to run.")
    tls: bool = _flag(True, "Whether connections are encrypted. May be false only where host is this machine alone.")
    session: float = _duration("15m", "1s", "1d", "How long a session token is good. Clients renew it by themselves.")
    lease: float = _duration("5s", "100ms", "5m", "How long a gateway that fell silent still owns its stream.")
    proxies: tuple[Network, ...] = _networks(
        "", "Proxies whose word is taken on where clients come from (X-Forwarded-For); nobody else's is."
    )

    def __post_init__(self) -> None:
        if not self.tls and not is_loopback(self.host):
            raise BadConfig(
                f"`gateway.tls` is off, and `{brief(self.host)}` is not this machine alone",
                remedy="leave `gateway.tls` on, or set `gateway.host` to `127.0.0.1`",
            )
        if self.port + self.count - 1 > _MOST_PORT:
            raise BadConfig(
                f"`gateway.port` is {self.port}, and the last of {self.count} gateways is past port {_MOST_PORT}",
                remedy="lower `gateway.port` or `gateway.count`",
            )


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """What publishers may send."""

    window: float = _duration("10m", "1s", "7d", "How long an event sent again under the same id is known as the same.")
    max_body: int = _size("16MB", "1KB", "1GB", "The largest request.")
    max_events: int = _whole(10_000, 1, 1_000_000, "The most events of one request.")
    advertise: bool = _flag(True, "Whether an advertisement that a publisher left out is made for it, as a version.")


@dataclass(frozen=True, slots=True)
class SubscribeSettings:
    """How subscribers are served."""

    credit: int = _whole(1_000, 1, 1_000_000, "Deliveries sent ahead of their acknowledgement, unless a client asks.")
    wait: float = _duration("30s", "100ms", "5m", "The longest that a request for deliveries waits for the first one.")
    max_reservation: float = _duration("1h", "1s", "1d", "The longest that deliveries stay reserved for one consumer.")


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What one gateway takes on before it says that it is busy."""

    connections: int = _whole(10_000, 1, 1_000_000, "Open connections.")
    connections_per_principal: int = _whole(100, 1, 1_000_000, "Open connections of one principal.")
    subscriptions_per_principal: int = _whole(1_000, 1, 1_000_000, "Subscriptions of one principal.")
    versions_per_minute: int = _whole(
        600,
        1,
        1_000_000,
        "How many versions of the ledger a principal may make in a minute, by subscribing, advertising, showing "
        "statements and changing policy; the administrator is not held to it. Who makes more is told to wait.",
    )
    refused_per_minute: int = _size(
        "16MB",
        "1KB",
        "10GB",
        "How much a principal may send in a minute that is refused; past it, its large requests wait to be read.",
    )
    unauthenticated_per_address: int = _whole(
        1_000, 1, 1_000_000, "Open connections from one address that have not yet said who they are."
    )
    write_timeout: float = _duration(
        "1m", "1s", "1h", "How long a client may take nothing of what is sent to it before its connection is ended."
    )


@dataclass(frozen=True, slots=True)
class AuthoritySettings:
    """The domain's access control service."""

    freshness: int | None = _silence(
        "none", "How long others may rely on its certificates without hearing from it. Then they have to follow it."
    )
    heartbeat: float = _duration("15s", "1s", "1h", "How often it tells those who follow it that nothing changed.")
    identity: float = _duration("1h", "1m", "1d", "How long its identity statements are good.")
    watchers: int = _whole(1_000, 1, 100_000, "How many may follow its revocations at one gateway.")
    issued_per_principal: int = _whole(100, 1, 100_000, "Statements of one principal that have not ended.")
    guests: int = _whole(100_000, 0, 10_000_000, "Principals that came by themselves, with statements.")


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """The domain's role services."""

    certificate: float = _duration(
        "1h", "2s", "1d", "How long a role membership certificate is good. Clients renew it by themselves."
    )
    requests: int = _whole(
        120, 1, 1_000_000, "How many roles a principal may ask for in a minute, at one gateway; searching costs more."
    )
    heartbeat: float = _duration("5s", "100ms", "1h", "How often those who follow its records hear that it is alive.")


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long data is kept; what comes first, age or size, counts."""

    log_age: float = _duration("7d", "1m", "36500d", "Events older than this are removed from the log.")
    log_size: int = _size("10GB", "1MB", "1000TB", "The log is kept below this size.")
    deliveries_age: float = _duration("7d", "1m", "36500d", "Deliveries older than this are removed.")
    deliveries_size: int = _size("10GB", "1MB", "1000TB", "The deliveries are kept below this size.")
    hold: float = _duration(
        "30d", "1m", "366d", "How long a durable subscription whose client is away may keep data from being removed."
    )


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Spark, which takes every decision."""

    memory: str = _text("2g", r"[1-9][0-9]{0,6}[mg]", 'text such as "512m" or "2g"', "Memory for Spark.")
    cores: int = _whole(2, 1, 1024, "Cores for Spark.")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What the node says about itself."""

    level: str = _choice("info", ("debug", "info", "warning", "error"), "How much: debug, info, warning or error.")
    format: str = _choice("json", ("json", "text"), "json for programs, text for people.")


@dataclass(frozen=True, slots=True)
class IssuerSettings:
    """Another domain's service whose revocations are followed; `ca` is a file with the certificate to pin."""

    key: str
    url: str
    name: str
    ca: str | None = None

    def __post_init__(self) -> None:
        try:
            PublicKey.from_did(self.key)
        except BadKey as error:
            raise BadConfig(f"`issuers.key`: {error.message}", remedy=error.remedy) from None
        parts = urlsplit(self.url)
        safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        if not (safe and parts.hostname) or parts.path.strip("/") or parts.query or parts.username:
            raise BadConfig(
                f"`issuers.url` cannot be `{brief(self.url)}`",
                remedy="write where it is, such as `https://gate.met.uk:8443`",
            )
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", self.name):
            raise BadConfig(f"`issuers.name` cannot be `{brief(self.name)}`", remedy="letters, digits, `.`, `-`, `_`")


def is_loopback(host: str) -> bool:
    """Can only this machine connect there?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
