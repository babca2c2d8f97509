"""`headgate keys`: make, list, show, export, rotate and end keys under names of one's own.

Guarantees: a private key is never printed, and a passphrase is never an argument, which other users of the machine
could read. What goes to standard output is public.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.shared import options as opt
from headgate.cli.shared.common import group, utc_now
from headgate.cli.shared.options import ahead, argument, moment_of, option
from headgate.cli.shared.rendering import print_json, remark, say, show_table
from headgate.model.errors import BadKey
from headgate.model.limits import MAX_PASSPHRASE_BYTES
from headgate.model.values import render_timestamp
from headgate.trust.keyring import KeptKey, Keyring, check_alias
from headgate.trust.keys import read_secret

Name = Annotated[str, argument("NAME", "A name of your own for the key; others never see it.")]


def new(
    name: Name,
    keys: opt.Keys = None,
    passphrase_file: opt.PassphraseFile = None,
    prompt: Annotated[bool, option("--prompt", "Ask for a passphrase, and put the key under it.")] = False,
) -> None:
    """Make a key, and print its public name.

    For example:

    `headgate keys new ann`

    `headgate keys new pito --prompt --keys /srv/pito/keys`
    """
    check_alias(name, new=True)
    if prompt and passphrase_file is not None:
        raise typer.BadParameter("--prompt and --passphrase-file exclude each other")
    passphrase = asked_passphrase(twice=True) if prompt else None
    if passphrase_file is not None:
        passphrase = passphrase_in(passphrase_file)
    print(keyring_at(keys).new(name, passphrase).did)


def list_(keys: opt.Keys = None, json: opt.Json = False) -> None:
    """List your keys; those that were rotated have `~1` and so on behind their name.

    For example:

    `headgate keys list`
    """
    keyring = keyring_at(keys)
    entries = [keyring.show(name) for name in keyring.names()]
    if json:
        print_json([_shown(one) for one in entries])
        return
    if not entries:
        say(f"No keys in {keyring.directory}; make one with `headgate keys new NAME`.")
        return
    rows = []
    for one in entries:
        notes = {"passphrase": one.locked, "rotated": one.succession is not None}
        rows.append((one.name, one.key.did, ", ".join(word for word, so in notes.items() if so)))
    show_table(("name", "key", "notes"), rows, whole=1)  # a key is copied


def show(name: Name, keys: opt.Keys = None, json: opt.Json = False) -> None:
    """Show a key: its public name, its file, whether it is under a passphrase, and what follows it.

    For example:

    `headgate keys show ann`
    """
    entry = keyring_at(keys).show(name)
    if json:
        print_json(_shown(entry))
        return
    say("name        ", (entry.name, "bold"))
    say(f"key         {entry.key.did}")
    say(f"file        {entry.file}")
    say(f"passphrase  {'yes' if entry.locked else 'no'}")
    if entry.succession is not None:
        say(f"successor   named in {entry.succession}")


def export(
    name: Name,
    keys: opt.Keys = None,
    public_pem: Annotated[bool, option("--public-pem", "Print the public key in PEM instead.")] = False,
) -> None:
    """Print the public name of a key, and nothing else.

    For example:

    `headgate keys export ann`

    `headgate keys export ann --public-pem`
    """
    key = keyring_at(keys).public(name)
    print(key.pem().strip() if public_pem else key.did)


def rotate(name: Name, keys: opt.Keys = None, passphrase_file: opt.PassphraseFile = None) -> None:
    """Make a new key take the name, and print the old one's statement that it follows.

    Show the statement to those who know the old key. What the old key signed goes on counting, until it says otherwise
    (`headgate keys end`). The old key is kept, as `NAME~1`; a key under a passphrase is followed by one under the same.

    For example:

    `headgate keys rotate ann`
    """
    check_alias(name, new=True)
    keyring = keyring_at(keys)
    new, statement = keyring.rotate(name, utc_now(), _passphrase(keyring, name, passphrase_file))
    kept = keyring.earlier(name)
    remark(
        f"{name} now means the new key, {new.did}; the old one is {kept}, and counts until `headgate keys end {name}`"
    )
    print(statement)


def end(
    name: Name,
    at: Annotated[str | None, option("--at TIME", "From when on, such as `2027-01-01T00:00:00Z`.")] = None,
    in_: Annotated[str | None, option("--in TIME", "How long from now, such as `1h`.")] = None,
    keys: opt.Keys = None,
    passphrase_file: opt.PassphraseFile = None,
) -> None:
    """Let the key that was rotated away count no more: at once, from a time on, or after a while.

    The old key, which is kept as `NAME~1`, signs its statement anew, with the next number. Show it to those who know
    the old key: from then on nothing counts that it has signed, unless the new key issues it again. An end can be
    brought forward, and never put off.

    For example:

    `headgate keys end ann --in 30d`

    `headgate keys end ann~1 --at 2027-01-01T00:00:00Z`
    """
    if at is not None and in_ is not None:
        raise typer.BadParameter("--at and --in exclude each other")
    now = utc_now()
    start = now.replace(microsecond=0)
    until = ahead(start, in_, "--in") if in_ is not None else start if at is None else moment_of(at, "--at")
    keyring = keyring_at(keys)
    kept = keyring.earlier(name)
    _, statement = keyring.end(kept, now, until, _passphrase(keyring, kept, passphrase_file))
    remark(f"{kept} counts until {render_timestamp(until)}; show this to those who know it")
    print(statement)


def _passphrase(keyring: Keyring, name: str, file: Path | None) -> bytes | None:
    """The passphrase of a key that is under one."""
    if not keyring.locked(name):
        return None
    return asked_passphrase(twice=False) if file is None else passphrase_in(file)


def keyring_at(directory: Path | None) -> Keyring:
    """The keys of `--keys`."""
    return Keyring(Path.home() / ".headgate" / "keys" if directory is None else directory)


def passphrase_in(file: Path) -> bytes:
    """The passphrase of `--passphrase-file`."""
    found = read_secret(file, MAX_PASSPHRASE_BYTES + 2)
    return _checked(found.removesuffix(b"\n").removesuffix(b"\r"))


def asked_passphrase(*, twice: bool) -> bytes:
    """A passphrase that is typed and not shown."""
    if not sys.stdin.isatty():
        raise BadKey("there is no terminal to ask for the passphrase on", remedy="give `--passphrase-file FILE`")
    answer: str = typer.prompt("passphrase", hide_input=True, confirmation_prompt=twice, err=True)
    return _checked(answer.encode("utf-8", "surrogateescape"))


def _checked(passphrase: bytes) -> bytes:
    if not 1 <= len(passphrase) <= MAX_PASSPHRASE_BYTES:
        raise BadKey("the passphrase is empty or too long", remedy=f"1 to {MAX_PASSPHRASE_BYTES} bytes")
    return passphrase


def _shown(kept: KeptKey) -> dict[str, object]:
    """A key as JSON has it."""
    succession = None if kept.succession is None else str(kept.succession)
    shown = {"name": kept.name, "did": kept.key.did, "passphrase": kept.locked, "file": str(kept.file)}
    return shown | {"succession": succession}


app = group(new, list_, show, export, rotate, end)
