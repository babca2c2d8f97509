"""Options and arguments as usage writes them, `--out -o FILE`; those that many commands have; and times.

Guarantees: importing it loads neither ledger nor pipeline, which many commands never need. A moment without a zone is
refused, and so is a duration of less than a second or past the year 9999. Without `--run-python` no Python of a
directory runs: what a domain has registered already, with the very same source, runs from the domain's own copy.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.cli.shared.common import HERE, placed, printable
from headgate.model.values import parse_timestamp
from headgate.node.config import duration


def option(usage: str, help: str, *, unset: str | bool = True, **settings: Any) -> Any:
    """An option by its names and what it takes; `unset` is what is so where it is not given."""
    names = [word for word in usage.split() if word.startswith("-")]
    metavar = " ".join(usage.split()[len(names) :])
    return typer.Option(*names, metavar=metavar or None, help=help, show_default=unset, **settings)


def argument(usage: str, help: str, *, unset: str | bool = True) -> Any:
    """An argument by what it takes; without that, by its own name."""
    return typer.Argument(metavar=usage or None, help=help, show_default=unset)


Json = Annotated[bool, option("--json", "Print the facts as JSON.")]
DomainOption = Annotated[
    Path,
    option(
        "--domain DIR",
        "The domain, or its data directory.",
        unset="the current directory",
        envvar="HEADGATE_DOMAIN",
        default_factory=lambda: HERE,
    ),
]
PolicyDomain = Annotated[
    Path | None,
    option(
        "--domain DIR",
        "The domain, or its data directory.",
        unset="the one the policy stands in, or the current directory",
        envvar="HEADGATE_DOMAIN",
    ),
]
Asker = Annotated[str | None, option("--as ASKER", "Who asks, and so what may be told.", unset="the administrator")]
RunPython = Annotated[
    bool,
    option("--run-python", "Run the Python modules of predicates that stand beside the files; look at them first."),
]
For = Annotated[str | None, option("--for TIME", "How long, such as `8h` or `30d`.")]
Until = Annotated[str | None, option("--until TIME", "Until when, such as `2027-01-01T00:00:00Z`.")]

# Of signed statements.
Files = Annotated[list[Path], argument("FILE...", "Files with statements, one a line; - for standard input.")]
Signer = Annotated[str, option("--as NAME", "The key that signs: a name of your keys, or a key file.")]
Subject = Annotated[str, option("--to WHO", "Whom it is for: a DID, or a name of your keys.")]
Out = Annotated[Path | None, option("--out -o FILE", "A new file for it.", unset="standard output")]
From = Annotated[str | None, option("--from TIME", "From when, such as `2027-01-01T00:00:00Z`.", unset="now")]
Audience = Annotated[
    list[str] | None, option("--audience DOMAIN", "Let it count only in this domain; may be repeated.", unset="all")
]
Heard = Annotated[str | None, option("--audience DOMAIN", "The domain in which they are to count.")]
At = Annotated[str | None, option("--at TIME", "Ask about another time than now.")]
Keys = Annotated[
    Path | None, option("--keys DIR", "The directory of your keys.", unset="~/.headgate/keys", envvar="HEADGATE_KEYS")
]
PassphraseFile = Annotated[
    Path | None,
    option(
        "--passphrase-file FILE", "A file with the passphrase that only you can read; the last line break is not part."
    ),
]

# Of a node that is connected to.
Node = Annotated[
    list[str] | None,
    option(
        "--node URL",
        "A gateway, such as `https://gate.example.org:8443`; may be repeated.",
        unset="as the domain's settings say",
        envvar="HEADGATE_NODE",
    ),
]
Who = Annotated[str | None, option("--as NAME", "Act as this principal: `keys/NAME.pem` of the domain.")]
Key = Annotated[Path | None, option("--key FILE", "The principal's private key instead.")]
Broker = Annotated[str | None, option("--broker DID", "The broker to trust.", unset="the domain's")]
TlsCertificate = Annotated[Path | None, option("--certificate FILE", "The certificate to trust.", unset="the domain's")]
Directory = Annotated[
    Path | None,
    option(
        "--domain DIR", "The domain's directory.", unset="the current one, if it is a domain", envvar="HEADGATE_DOMAIN"
    ),
]
Present = Annotated[
    list[Path] | None,
    option("--present FILE", "Certificates and other statements to show, one a line; may be repeated."),
]
Coordinator = Annotated[
    str | None,
    option(
        "--coordinator DID",
        "Trust only a broker that shows a chain from this domain, which coordinates the network.",
        envvar="HEADGATE_COORDINATOR",
    ),
]


def moment_of(given: str, name: str) -> datetime:
    """A time with a zone."""
    with placed(name):
        return parse_timestamp(given)


def seconds_of(given: str, name: str) -> int:
    """A duration in whole seconds."""
    try:
        seconds = int(duration(given))
    except ValueError as error:
        raise typer.BadParameter(f"{name}: `{printable(given)}` is not {error}") from None
    if seconds < 1:
        raise typer.BadParameter(f"{name}: `{given}` is less than a second")
    return seconds


def ahead(start: datetime, given: str, name: str) -> datetime:
    """The moment that is a duration ahead of another."""
    try:
        return start + timedelta(seconds=seconds_of(given, name))
    except OverflowError:
        raise typer.BadParameter(f"{name}: `{given}` is past the year 9999") from None
