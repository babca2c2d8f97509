"""The settings of a node, declared once each, and where a domain keeps what and is reached.

Guarantees: the file that `init` writes, `headgate.toml`, is made from the declarations, so the two cannot differ. The
environment (`HEADGATE_GATEWAY_PORT`) goes before the file, and flags before both. What is unknown, of the wrong type,
out of range or unsafe, also beside other values, is refused, with its place and the nearest known name; nothing is
ignored. Durations are seconds and sizes bytes, whatever unit they were written in.
A domain is reached at the addresses of the running node where it says so, else at those of its settings; of the
broker's key only the public part is told.
Leaves out: policy, which is the ledger's, and secrets, which are files of their own (`Files`).
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias
from urllib.parse import urlsplit

from headgate.model.errors import BadConfig, BadKey, NotFound
from headgate.model.limits import MAX_CONFIG_BYTES, MAX_FRESHNESS_SECONDS
from headgate.model.values import brief
from headgate.node.spark_settings import MASTERS, flattened, is_checkpoint, is_master, spark_settings
from headgate.storage.postgres import checked_address
from headgate.trust.keys import PrivateKey, PublicKey

PREFIX: Final = "HEADGATE_"
FILE: Final = "headgate.toml"
ISSUERS: Final = "issuers"
MAX_ISSUERS: Final = 100  # other domains' services that are followed


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES: Final = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)\Z")
_SIZE: Final = re.compile(r"([0-9]{1,9})(B|KB|MB|GB|TB)\Z")
_MOST_PORT: Final = 65535
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - looked for, not bound to

# -- kinds of values ------------------------------------------------------------------------------------------

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Reader = Callable[[object], Any]  # from what a file says to the value; a `ValueError` says what was wanted


def duration(text: object) -> float:
    """Seconds, from `500ms`, `90s`, `10m`, `1h` or `7d`."""
    return _scaled(text, _DURATION, _UNITS, 'a duration such as "90s", "10m", "1h" or "7d"')


def size(text: object) -> int:
    """Bytes, from `512KB`, `16MB` or `10GB`; a KB has 1024."""
    return int(_scaled(text, _SIZE, _SIZES, 'a size such as "512KB", "16MB" or "10GB"'))


def _scaled(text: object, shape: re.Pattern[str], units: Mapping[str, float], wanted: str) -> float:
    match = shape.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(wanted)
    return int(match[1]) * units[match[2]]


def _setting(default: str | int | bool | dict[str, str], read: Reader, doc: str) -> Any:
    """A field of a section, with its default as a file has it."""
    return field(default=read(default), metadata={"default": default, "read": read, "doc": doc})


def _between(convert: Callable[[object], float], default: str, least: str, most: str, doc: str) -> Any:
    def read(raw: object) -> float:
        if not convert(least) <= (value := convert(raw)) <= convert(most):
            raise ValueError(f"something from {least} to {most}")
        return value

    return _setting(default, read, doc)


_duration = partial(_between, duration)
_size = partial(_between, size)


def _checked(default: str | int | bool, is_good: Callable[[Any], bool], wanted: str, doc: str) -> Any:
    """A setting that is taken as it is, if it is good."""

    def read(raw: object) -> object:
        if not is_good(raw):
            raise ValueError(wanted)
        return raw

    return _setting(default, read, doc)


def _whole(default: int, least: int, most: int, doc: str) -> Any:
    wanted = f"a whole number from {least} to {most}"
    return _checked(default, lambda raw: type(raw) is int and least <= raw <= most, wanted, doc)


def _flag(default: bool, doc: str) -> Any:
    return _checked(default, lambda raw: raw is True or raw is False, "true or false", doc)


def _choice(default: str, options: tuple[str, ...], doc: str) -> Any:
    return _checked(default, lambda raw: isinstance(raw, str) and raw in options, f"one of {', '.join(options)}", doc)


def _text(default: str, shape: str, wanted: str, doc: str) -> Any:
    return _checked(default, lambda raw: isinstance(raw, str) and bool(re.fullmatch(shape, raw)), wanted, doc)


def _address(default: str, doc: str) -> Any:
    """A database, or nothing."""

    def read(raw: object) -> str:
        if raw == "":
            return ""
        try:
            return checked_address(str(raw))
        except BadConfig as error:
            raise ValueError(error.remedy) from None

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
        try:
            return tuple(ipaddress.ip_network(one.strip()) for one in raw.split(",") if one.strip())  # type: ignore[attr-defined]
        except (ValueError, AttributeError):
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

    @property
    def ports(self) -> range:
        """The port of each gateway."""
        return range(self.port, self.port + self.count)

    @property
    def urls(self) -> list[str]:
        """Where each gateway is reached from this machine."""
        host = "localhost" if self.host in _EVERYWHERE else self.host
        shown = f"[{host}]" if ":" in host else host
        return [f"{'https' if self.tls else 'http'}://{shown}:{port}" for port in self.ports]


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """What publishers may send."""

    window: float = _duration("10m", "1s", "7d", "How long an event sent again under the same id is known as the same.")
    max_body: int = _size("16MB", "1KB", "1GB", "The largest request.")
    max_events: int = _whole(10_000, 1, 1_000_000, "The most events of one request.")
    advertise: bool = _flag(True, "Whether an advertisement that a publisher left out is made for it, as a version.")


@dataclass(frozen=True, slots=True)
class TimesSettings:
    """What is promised of when events occurred, which composite events wait for."""

    promise: str = _choice(
        "clock",
        ("clock", "heartbeats"),
        "What streams promise by: clock, with each publisher that states times for itself; or nothing but heartbeats.",
    )
    promise_every: float = _duration(
        "1s", "100ms", "1h", "How often a gateway that stores nothing promises its clock, where anybody waits for that."
    )


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
    detections_per_principal: int = _whole(100, 1, 1_000_000, "Those of them that are detections.")
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
class StorageSettings:
    """Where the domain keeps what its processes share."""

    database: str = _address(
        "",
        "A PostgreSQL database for ledger and shared state, such as postgresql://headgate@db.example/shop; empty for "
        "files in data. A password is taken from PGPASSWORD or PGPASSFILE. `headgate migrate` changes it.",
    )


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Spark, which takes every decision."""

    run: bool = _flag(
        True, "Whether `headgate up` runs it beside the gateways. Where it does not, `headgate pipeline DIR` does."
    )
    master: str = _checked(
        "",
        is_master,
        MASTERS,
        f"Which Spark: nothing for this machine and so many `cores`, else {MASTERS}.",
    )
    memory: str = _text("2g", r"[1-9][0-9]{0,6}[mg]", 'text such as "512m" or "2g"', "Memory for Spark's driver.")
    cores: int = _whole(2, 1, 1024, "Cores for Spark, where `master` says nothing.")
    python: str = _text(
        "",
        r"[^\s\x00-\x1f]{0,4096}",
        "a path",
        "The Python of executors on a cluster: nothing for the path of the one that runs Headgate, else another path, "
        "or one inside an archive, such as `./environment/bin/python`.",
    )
    checkpoint: str = _checked(
        "",
        is_checkpoint,
        "an absolute directory, or a URI such as `hdfs://host/path` or `s3a://bucket/path`",
        "Where Spark remembers how far it has come: nothing for the domain's data, else a directory or a Hadoop URI.",
    )
    lease: float = _duration("10s", "1s", "5m", "How long a pipeline that fell silent keeps another from taking over.")
    spark: tuple[tuple[str, str], ...] = _setting(
        {}, spark_settings, "Any other setting of Spark, by its whole name, such as `spark.executor.memory`."
    )

    @property
    def spark_master(self) -> str:
        """The master, named in every case."""
        return self.master or f"local[{self.cores}]"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The processes of the node, which are started again when they end."""

    restart_pause: float = _duration(
        "1m", "1s", "1h", "The longest wait before a process that fails again and again is started again."
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What the node says about itself."""

    level: str = _choice("info", ("debug", "info", "warning", "error"), "How much: debug, info, warning or error.")
    format: str = _choice("json", ("json", "text"), "json for programs, text for people.")


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Where traces and figures are sent, beside /metrics."""

    otlp: str = _text(
        "",
        r"(https?://[^\s/?#@]+(/[^\s?#]*)?)?",
        'an address such as "http://localhost:4318", or nothing',
        "An OpenTelemetry collector that takes OTLP over HTTP, such as http://localhost:4318; empty for none. "
        "Needs headgate[telemetry].",
    )
    every: float = _duration("15s", "1s", "1h", "How often figures are sent.")


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


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a node."""

    domain: DomainSettings = field(default_factory=DomainSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    publish: PublishSettings = field(default_factory=PublishSettings)
    times: TimesSettings = field(default_factory=TimesSettings)
    subscribe: SubscribeSettings = field(default_factory=SubscribeSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    authority: AuthoritySettings = field(default_factory=AuthoritySettings)
    roles: RoleSettings = field(default_factory=RoleSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)
    node: NodeSettings = field(default_factory=NodeSettings)
    log: LogSettings = field(default_factory=LogSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    issuers: tuple[IssuerSettings, ...] = ()

    @classmethod
    def load(
        cls, directory: Path, environ: Mapping[str, str] | None = None, override: Mapping[str, str] | None = None
    ) -> Config:
        """The settings of a domain: defaults, then its file, then the environment, then flags."""
        settings: dict[str, tuple[object, str]] = {}
        settings.update(_from_file(Files(directory).config))
        settings.update(_from_environment(environ or {}))
        settings.update(_from_flags(override or {}))
        sections = {name: _section(name, settings) for name in _SECTIONS}
        return cls(**sections, issuers=_issuers(Files(directory).config))


_SECTIONS: Final[Mapping[str, Any]] = {
    one.name: one.default_factory for one in dataclasses.fields(Config) if one.name != ISSUERS
}
_KNOWN: Final = {
    f"{section}.{one.name}": one for section, kind in _SECTIONS.items() for one in dataclasses.fields(kind)
}
"""Every setting by its full name."""


def _section(name: str, settings: Mapping[str, tuple[object, str]]) -> Any:
    values = {}
    for option in dataclasses.fields(_SECTIONS[name]):
        key = f"{name}.{option.name}"
        if key in settings:
            values[option.name] = _value(key, *settings[key])
    try:
        return _SECTIONS[name](**values)
    except BadConfig as error:
        raise error.at(
            next((place for key, (_, place) in settings.items() if f"`{key}`" in error.message), FILE)
        ) from None


def _value(key: str, raw: object, place: str | None = None) -> Any:
    try:
        return _KNOWN[key].metadata["read"](raw)
    except BadConfig as error:
        raise (error if place is None else error.at(place)) from None
    except ValueError as error:
        raise BadConfig(f"`{key}` cannot be `{brief(raw)}`", place=place, remedy=str(error)) from None


# -- where they are said --------------------------------------------------------------------------------------


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadConfig(f"it is not TOML: {error}", place=str(path)) from None


def _issuers(path: Path) -> tuple[IssuerSettings, ...]:
    """The tables `[[issuers]]`: one for each service that is followed."""
    given = _parsed(path, _read(path)).get(ISSUERS, [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise BadConfig(f"`{ISSUERS}` are tables", place=str(path), remedy=f"write `[[{ISSUERS}]]` before each")
    if len(given) > MAX_ISSUERS:
        raise BadConfig(f"more than MAX_ISSUERS ({MAX_ISSUERS}) issuers", place=str(path))
    issuers = [_issuer(one, number, f"{path}, issuer {number}") for number, one in enumerate(given, 1)]
    for what in ("key", "name"):
        if len({getattr(one, what) for one in issuers}) != len(issuers):
            raise BadConfig(f"two issuers have the same `{what}`", place=str(path), remedy="name each once")
    return tuple(issuers)


def _issuer(given: Mapping[str, object], number: int, place: str) -> IssuerSettings:
    known = {one.name: one for one in dataclasses.fields(IssuerSettings)}
    for name, raw in given.items():
        if name not in known:
            _unknown("setting", name, known, place)
        if not isinstance(raw, str):
            raise BadConfig(f"`{ISSUERS}.{name}` cannot be `{brief(raw)}`", place=place, remedy="write text")
    for name in ("key", "url"):
        if name not in given:
            raise BadConfig(f"an issuer has no `{name}`", place=place, remedy=f"write `{name} = ...`")
    try:
        return IssuerSettings(**{"name": f"issuer-{number}", **given})  # type: ignore[arg-type]
    except BadConfig as error:
        raise error.at(place) from None


def _from_file(path: Path) -> Iterator[tuple[str, tuple[object, str]]]:
    text = _read(path)
    content = _parsed(path, text)
    lines = _lines(text)
    for section, settings in content.items():
        place = _place(path, lines.get(section))
        if section == ISSUERS:
            continue
        if section not in _SECTIONS:
            _unknown("section", section, _SECTIONS, place)
        if not isinstance(settings, dict):
            raise BadConfig(f"`{section}` is a section", place=place, remedy=f"write `[{section}]`, then its settings")
        for name, raw in settings.items():
            key = f"{section}.{name}"
            place = _place(path, lines.get(key))
            if key not in _KNOWN:
                _unknown("setting", key, _KNOWN, place)
            if isinstance(raw, dict):
                for inner, value in flattened(raw):  # each by itself, to name its line
                    _value(key, {inner: value}, _place(path, lines.get(f"{key}.{inner}", lines.get(key))))
            yield key, (raw, place)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"`{path.parent}` is not a domain: it has no `{path.name}`", remedy="`headgate init DIR` makes one"
        ) from None
    except OSError as error:
        raise BadConfig(f"it cannot be read ({error.strerror})", place=str(path)) from None
    if len(data) > MAX_CONFIG_BYTES:
        raise BadConfig(f"it is longer than MAX_CONFIG_BYTES ({MAX_CONFIG_BYTES})", place=str(path))
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadConfig("it is not UTF-8", place=str(path)) from None


_LINE: Final = re.compile(
    r"\s*(?:\[\s*(?P<section>[\w-]+(?:\s*\.\s*[\w-]+)?)\s*\]"
    r"|(?P<key>[\w-]+(?:\s*\.\s*[\w-]+)*|\"[^\"]*\"|'[^']*')\s*=)"
)


def _lines(text: str) -> dict[str, int]:
    """The line of each section and setting, where it can be told: the parser does not say."""
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (match := _LINE.match(line)) is None:
            continue
        if match["section"]:
            section = re.sub(r"\s", "", match["section"])
            lines.setdefault(section, number)
        else:
            quoted = match["key"][0] in "\"'"
            key = match["key"][1:-1] if quoted else re.sub(r"\s", "", match["key"])
            lines.setdefault(f"{section}.{key}" if section else key, number)
    return lines


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[object, str]]]:
    """The settings of variables. Those of other sections belong to others, such as `HEADGATE_DOMAIN`."""
    names = {_variable(key): key for key in _KNOWN}
    for name, raw in environ.items():
        if name in names:
            yield names[name], (_typed(names[name], raw), name)
        elif name.startswith(tuple(f"{PREFIX}{section.upper()}_" for section in _SECTIONS)):
            _unknown("variable", name, names, "the environment")


def _variable(key: str) -> str:
    return PREFIX + key.upper().replace(".", "_")


def _from_flags(override: Mapping[str, str]) -> Iterator[tuple[str, tuple[object, str]]]:
    for key, raw in override.items():
        if key not in _KNOWN:
            _unknown("setting", key, _KNOWN, "the command line")
        yield key, (_typed(key, raw), "the command line")


def _typed(key: str, text: str) -> object:
    """What a file would say where a variable or flag has only text."""
    match _KNOWN[key].metadata["default"]:
        case bool():
            return {"true": True, "false": False}.get(text, text)
        case int() if re.match(r"[0-9]{1,18}\Z", text):
            return int(text)
        case _:
            return text


def _place(path: Path, line: int | None) -> str:
    return str(path) if line is None else f"{path}, line {line}"


def _unknown(what: str, name: str, known: Mapping[str, object], place: str) -> NoReturn:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0)
    raise BadConfig(f"there is no {what} `{brief(name)}`", place=place, remedy=f"`{near[0]}`, which is the nearest")


def set_in_file(files: Files, key: str, value: str | int | bool) -> None:
    """Put a setting into a domain's file, in its line if it has one, and leave the rest as it is."""
    _value(key, value)
    text = _read(files.config)
    lines, places = text.splitlines(), _lines(text)
    section, _, name = key.partition(".")
    said = f"{name} = {_toml(value)}"
    if key in places:
        lines[places[key] - 1] = said
    elif section in places:
        lines.insert(places[section], said)
    else:
        lines += ["", f"[{section}]", said]
    fresh = files.config.with_suffix(".new")
    fresh.write_text("\n".join(lines) + "\n")
    fresh.replace(files.config)


# -- the file that is written ---------------------------------------------------------------------------------


def example(given: Mapping[str, str | int | bool] | None = None) -> str:
    """The whole file with every default, or what is given instead, and what each setting is for."""
    for key, raw in (given or {}).items():
        _value(key, raw)
    lines = [
        "# The settings of this node. One that is left out has its default.",
        f"# A variable such as {_variable('gateway.port')} goes before this file.",
    ]
    for section, kind in _SECTIONS.items():
        lines += ["", f"# {kind.__doc__}", f"[{section}]"]
        for option in dataclasses.fields(kind):
            value = (given or {}).get(f"{section}.{option.name}", option.metadata["default"])
            lines += textwrap.wrap(option.metadata["doc"], 100, initial_indent="# ", subsequent_indent="# ")
            is_table = isinstance(value, dict)  # the last of its section
            lines.append(f"[{section}.{option.name}]" if is_table else f"{option.name} = {_toml(value)}")
    lines += [
        "",
        f"# {IssuerSettings.__doc__}",
        f"# [[{ISSUERS}]]",
        '# name = "met"',
        '# key = "did:key:z6Mk..."',
        '# url = "https://gate.example.org:8443"',
        '# ca = "met.crt"',
    ]
    return "\n".join(lines) + "\n"


def _toml(value: str | int | bool) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case _:
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Files:
    """Where a domain keeps what."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / FILE
        self.keys = directory / "keys"  # private ones
        self.broker_key = self.keys / "broker.pem"  # with which the gateways prove themselves
        self.admin_key = self.keys / "administrator.pem"
        self.position_key = self.keys / "positions.key"  # that positions are sealed with
        self.metrics_token = self.keys / "metrics.token"  # without it, figures are told only to who audits everything
        self.role_keys = self.keys / "roles"  # the rolling keys of role services, made when they are first needed
        self.statements = directory / "statements"  # that lead from the coordinating domain to the gateways' key
        self.tls = directory / "tls"
        self.tls_certificate = self.tls / "tls.crt"  # which clients pin
        self.tls_key = self.tls / "tls.key"
        self.peers = directory / "peers"  # certificates of other domains' gateways to pin, `NAME.crt`
        self.data = directory / "data"  # ledger, log and deliveries
        self.policy = directory / "policy"  # as files, to be applied to the ledger


NODE: Final = "node.json"
_MAX_NODE_BYTES: Final = 100_000


@dataclass(frozen=True, slots=True)
class DomainLocation:
    """How to reach a domain."""

    files: Files
    urls: list[str]
    broker: str
    certificate: Path | None

    def key(self, principal: str) -> Path:
        """The file with a principal's private key."""
        path = self.files.keys / f"{principal}.pem"
        if path.parent != self.files.keys or not path.name.removesuffix(".pem"):
            raise NotFound(f"`{brief(principal)}` is not the name of a key", remedy="name a file of `keys/`")
        if not path.exists():
            known = sorted(one.stem for one in self.files.keys.glob("*.pem") if one != self.files.broker_key)
            names = ", ".join(f"`{name}`" for name in known) or "none"
            raise NotFound(
                f"there is no key for `{brief(principal)}` in `{self.files.keys}`",
                remedy=f"there are {names}; `--key FILE` names another file",
            )
        return path


def place_of(directory: Path, environ: Mapping[str, str]) -> DomainLocation:
    """How to reach the domain in a directory."""
    files = Files(directory)
    config = Config.load(directory, environ)
    gateway = config.gateway
    urls = _running(files) or gateway.urls
    broker = PrivateKey.load(files.broker_key).public.did
    return DomainLocation(files, urls, broker, files.tls_certificate if gateway.tls else None)


def _running(files: Files) -> list[str]:
    """The addresses that the running node has written down, if it has."""
    try:
        with (files.data / NODE).open("rb") as file:
            document = json.loads(file.read(_MAX_NODE_BYTES))
    except (OSError, ValueError):
        return []
    urls = document.get("urls") if isinstance(document, dict) else None
    return [url for url in urls if isinstance(url, str)] if isinstance(urls, list) else []
