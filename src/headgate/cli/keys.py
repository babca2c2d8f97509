"""`headgate keys`: make, list, show, export and rotate keys under names of one's own.

Guarantees: a private key is never printed, and a passphrase is never an argument, which other users of the machine
could read. What goes to standard output is public.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.common import out, shows_errors, utc_now
from headgate.cli.shown import cells, check_text, print_json, say, table
from headgate.model.errors import BadKey
from headgate.model.limits import MAX_PASSPHRASE_BYTES
from headgate.trust.keyring import Kept, Keyring, check_alias
from headgate.trust.keys import read_secret

app = typer.Typer(
    help="Make and keep the keys that principals are named by.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name of your own for the key; others never see it.")]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="DIR",
        help="The directory of your keys.",
        envvar="HEADGATE_KEYS",
        show_default="~/.headgate/keys",
    ),
]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="A file with the passphrase that only you can read; the last line break is not part."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")]


@dataclass(frozen=True, slots=True)
class Shown:
    """A key as JSON has it."""

    name: str
    did: str
    passphrase: bool
    file: str
    succession: str | None


def new(
    name: Name,
    keys: KeysOption = None,
    passphrase_file: PassphraseFile = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Ask for a passphrase, and put the key under it.")] = False,
) -> None:
    """Make a key, and print its public name.

    For example:

    `headgate keys new ann`

    `headgate keys new pito --prompt --keys /srv/pito/keys`
    """
    check_text(name)
    check_alias(name, new=True)
    if prompt and passphrase_file is not None:
        raise typer.BadParameter("--prompt and --passphrase-file exclude each other")
    passphrase = asked_passphrase(twice=True) if prompt else None
    if passphrase_file is not None:
        passphrase = passphrase_in(passphrase_file)
    print(keyring_at(keys).new(name, passphrase).did)


def list_(keys: KeysOption = None, json: Json = False) -> None:
    """List your keys; those that were rotated have `~1` and so on behind their name.

    For example:

    `headgate keys list`
    """
    keyring = keyring_at(keys)
    found = [keyring.show(name) for name in keyring.names()]
    if json:
        print_json([_shown(one) for one in found])
        return
    if not found:
        say(f"No keys in {keyring.directory}; make one with `headgate keys new NAME`.")
        return
    shown = table("name", "key", "notes")
    shown.columns[1].no_wrap = True  # it is copied
    for one in found:
        notes = {"passphrase": one.locked, "rotated": one.succession is not None}
        shown.add_row(*cells(one.name, one.key.did, ", ".join(word for word, so in notes.items() if so)))
    out.print(shown)


def show(name: Name, keys: KeysOption = None, json: Json = False) -> None:
    """Show a key: its public name, its file, whether it is under a passphrase, and what follows it.

    For example:

    `headgate keys show ann`
    """
    check_text(name)
    found = keyring_at(keys).show(name)
    if json:
        print_json(_shown(found))
        return
    say("name        ", (found.name, "bold"))
    say(f"key         {found.key.did}")
    say(f"file        {found.file}")
    say(f"passphrase  {'yes' if found.locked else 'no'}")
    if found.succession is not None:
        say(f"successor   named in {found.succession}")


def export(
    name: Name,
    keys: KeysOption = None,
    public_pem: Annotated[bool, typer.Option("--public-pem", help="Print the public key in PEM instead.")] = False,
) -> None:
    """Print the public name of a key, and nothing else.

    For example:

    `headgate keys export ann`

    `headgate keys export ann --public-pem`
    """
    check_text(name)
    key = keyring_at(keys).public(name)
    print(key.pem().strip() if public_pem else key.did)


def rotate(name: Name, keys: KeysOption = None, passphrase_file: PassphraseFile = None) -> None:
    """Make a new key take the name, and print the old one's statement that it follows.

    Show the statement to those who know the old key. What the old key signed goes on counting, until it says otherwise.
    The old key is kept, as `NAME~1`; a key under a passphrase is followed by one under the same.

    For example:

    `headgate keys rotate ann`
    """
    check_text(name)
    check_alias(name, new=True)
    keyring = keyring_at(keys)
    passphrase = None
    if keyring.locked(name):
        passphrase = asked_passphrase(twice=False) if passphrase_file is None else passphrase_in(passphrase_file)
    _, statement = keyring.rotate(name, utc_now(), passphrase)
    print(statement)


for word, command in (("new", new), ("list", list_), ("show", show), ("export", export), ("rotate", rotate)):
    app.command(word)(shows_errors(command))


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


def _shown(kept: Kept) -> Shown:
    succession = None if kept.succession is None else str(kept.succession)
    return Shown(kept.name, kept.key.did, kept.locked, str(kept.file), succession)
