"""The settings of a node: one file, `headgate.toml`, with every value checked before anything starts.

Guarantees: the file that `init` writes is made from the declarations (`settings`), so the two cannot differ. The
environment (`HEADGATE_GATEWAY_PORT`) goes before the file, and flags before both. What is unknown, of the wrong type,
out of range or unsafe is refused, with its place and the nearest known name; nothing is ignored.
Leaves out: policy, which is the ledger's, and secrets, which are files of their own (`Files`).
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from headgate.model.errors import BadConfig, NotFound
from headgate.model.limits import MAX_CONFIG_BYTES
from headgate.model.values import brief
from headgate.node.settings import (
    AuthoritySettings,
    DomainSettings,
    GatewaySettings,
    IssuerSettings,
    LimitSettings,
    LogSettings,
    PipelineSettings,
    PublishSettings,
    RetentionSettings,
    RoleSettings,
    SubscribeSettings,
)

PREFIX: Final = "HEADGATE_"
FILE: Final = "headgate.toml"
ISSUERS: Final = "issuers"
MAX_ISSUERS: Final = 100
"""Other domains' services that are followed."""


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a node."""

    domain: DomainSettings = field(default_factory=DomainSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    publish: PublishSettings = field(default_factory=PublishSettings)
    subscribe: SubscribeSettings = field(default_factory=SubscribeSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    authority: AuthoritySettings = field(default_factory=AuthoritySettings)
    roles: RoleSettings = field(default_factory=RoleSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)
    log: LogSettings = field(default_factory=LogSettings)
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


_LINE: Final = re.compile(r"\s*(?:\[\s*(?P<section>[\w-]+)\s*\]|(?P<key>[\w-]+(?:\s*\.\s*[\w-]+)?)\s*=)")


def _lines(text: str) -> dict[str, int]:
    """The line of each section and setting, where it can be told: the parser does not say."""
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (match := _LINE.match(line)) is None:
            continue
        if match["section"]:
            section = match["section"]
            lines.setdefault(section, number)
        else:
            key = re.sub(r"\s", "", match["key"])
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
            lines.append(f"{option.name} = {_toml(value)}")
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


@dataclass(frozen=True, slots=True)
class Files:
    """Where a domain keeps what."""

    directory: Path

    @property
    def config(self) -> Path:
        """The settings."""
        return self.directory / FILE

    @property
    def keys(self) -> Path:
        """The private keys."""
        return self.directory / "keys"

    @property
    def broker_key(self) -> Path:
        """The key that the gateways of the domain prove themselves with."""
        return self.keys / "broker.pem"

    @property
    def admin_key(self) -> Path:
        """The key of the domain's administrator."""
        return self.keys / "administrator.pem"

    @property
    def position_key(self) -> Path:
        """The key that positions are sealed with."""
        return self.keys / "positions.key"

    @property
    def metrics_token(self) -> Path:
        """The token with which figures are read; without it, only who audits everything is told them."""
        return self.keys / "metrics.token"

    @property
    def role_keys(self) -> Path:
        """Where the rolling keys of the role services are kept, made when they are first needed."""
        return self.keys / "roles"

    @property
    def statements(self) -> Path:
        """The signed statements that lead from the coordinating domain to the gateways' key."""
        return self.directory / "statements"

    @property
    def tls(self) -> Path:
        """The certificate and its key."""
        return self.directory / "tls"

    @property
    def tls_certificate(self) -> Path:
        """The certificate, which clients pin."""
        return self.tls / "tls.crt"

    @property
    def tls_key(self) -> Path:
        """The certificate's key."""
        return self.tls / "tls.key"

    @property
    def peers(self) -> Path:
        """Certificates of other domains' gateways to pin, `NAME.crt` for the peer of that name."""
        return self.directory / "peers"

    @property
    def data(self) -> Path:
        """Ledger, log and deliveries."""
        return self.directory / "data"

    @property
    def policy(self) -> Path:
        """The policy as files, to be applied to the ledger."""
        return self.directory / "policy"
