"""`headgate keys`: what it prints is public, and a passphrase is never an argument."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.trust.certificates import SUCCESSION
from headgate.trust.keyring import Keyring
from headgate.trust.keys import PublicKey


def run(directory: Path, *args: str) -> Result:
    env = {"COLUMNS": "200", "NO_COLOR": "1", "HEADGATE_KEYS": str(directory)}
    return CliRunner(env=env).invoke(app, ["keys", *args])


def printed(directory: Path, *args: str) -> str:
    done = run(directory, *args)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def test_a_new_key_prints_its_public_name_and_no_more(keys: Path) -> None:
    did = printed(keys, "new", "ann")
    assert PublicKey.from_did(did) == Keyring(keys).load("ann").public
    assert printed(keys, "export", "ann") == did
    assert "PRIVATE" in (keys / "ann.key").read_text()


def test_the_public_key_in_pem(keys: Path) -> None:
    printed(keys, "new", "ann")
    pem = printed(keys, "export", "ann", "--public-pem")
    assert pem + "\n" == Keyring(keys).public("ann").pem()
    assert "PRIVATE" not in pem


def test_keys_are_listed_and_shown(keys: Path) -> None:
    assert "headgate keys new" in printed(keys, "list")
    ann, bob = printed(keys, "new", "ann"), printed(keys, "new", "bob")
    table = printed(keys, "list")
    assert ann in table
    assert bob in table
    shown = printed(keys, "show", "ann")
    assert ann in shown
    assert str(keys / "ann.key") in shown
    facts = json.loads(printed(keys, "list", "--json"))
    assert [one["did"] for one in facts] == [ann, bob]
    assert json.loads(printed(keys, "show", "bob", "--json")) == facts[1]


def test_a_passphrase_comes_from_a_file_that_only_its_owner_reads(keys: Path, tmp_path: Path) -> None:
    file = tmp_path / "word"
    file.write_text("correct horse\n")
    file.chmod(0o644)
    refused = run(keys, "new", "ann", "--passphrase-file", str(file))
    assert refused.exit_code == 2
    assert "chmod 600" in refused.output
    assert not (keys / "ann.key").exists()
    file.chmod(0o600)
    did = printed(keys, "new", "ann", "--passphrase-file", str(file))
    assert Keyring(keys).load("ann", b"correct horse").public.did == did
    assert json.loads(printed(keys, "show", "ann", "--json"))["passphrase"] is True
    assert "passphrase" in printed(keys, "list")


def test_an_empty_passphrase_is_refused(keys: Path, tmp_path: Path) -> None:
    file = tmp_path / "word"
    file.write_text("\n")
    file.chmod(0o600)
    assert "empty" in run(keys, "new", "ann", "--passphrase-file", str(file)).output
    assert not keys.exists()


def test_without_a_terminal_nobody_is_asked(keys: Path) -> None:
    refused = run(keys, "new", "ann", "--prompt")
    assert refused.exit_code == 2
    assert "--passphrase-file" in refused.output
    assert run(keys, "new", "ann", "--prompt", "--passphrase-file", "x").exit_code == 2


def test_there_is_no_option_that_takes_a_passphrase(keys: Path) -> None:
    for command in ("new", "rotate"):
        assert run(keys, command, "ann", "--passphrase", "word").exit_code == 2


def test_a_rotation_prints_the_statement(keys: Path, tmp_path: Path) -> None:
    file = tmp_path / "word"
    file.write_text("correct horse")
    file.chmod(0o600)
    old = printed(keys, "new", "ann", "--passphrase-file", str(file))
    assert run(keys, "rotate", "ann").exit_code == 2
    statement = printed(keys, "rotate", "ann", "--passphrase-file", str(file))
    found = SUCCESSION.verify(statement)
    assert (found.old, found.new) == (old, printed(keys, "export", "ann"))
    assert printed(keys, "export", "ann~1") == old
    assert "ann~1.jwt" in printed(keys, "show", "ann~1")


def test_a_rotation_says_what_the_name_means_now(keys: Path) -> None:
    printed(keys, "new", "ann")
    done = run(keys, "rotate", "ann")
    assert done.stderr.startswith(f"ann now means the new key, {printed(keys, 'export', 'ann')}; the old one is ann~1")
    assert "headgate keys end ann" in done.stderr
    assert len(done.stdout.splitlines()) == 1, "the statement alone"


@pytest.mark.parametrize(
    ("options", "after"),
    [((), timedelta()), (("--in", "1h"), timedelta(hours=1)), (("--at", "2999-01-01T00:00:00Z"), None)],
)
def test_the_old_key_says_when_it_counts_no_more(keys: Path, options: tuple[str, ...], after: timedelta | None) -> None:
    old = printed(keys, "new", "ann")
    first = SUCCESSION.verify(printed(keys, "rotate", "ann"))
    begun = datetime.now(UTC).replace(microsecond=0)
    done = run(keys, "end", "ann", *options)
    assert done.exit_code == 0, done.output
    found = SUCCESSION.verify(done.stdout.strip(), known=first)
    assert (found.old, found.new, found.number) == (old, printed(keys, "export", "ann"), 1)
    assert found.until is not None
    wanted = datetime(2999, 1, 1, tzinfo=UTC) if after is None else found.until
    assert found.until == wanted
    if after is not None:
        assert begun + after <= found.until <= datetime.now(UTC) + after
    assert done.stderr.startswith("ann~1 counts until ")


def test_what_rests_on_a_key_that_has_ended_counts_no_more(keys: Path, tmp_path: Path) -> None:
    for name in ("pito", "met", "smith"):
        printed(keys, "new", name)
    env = {"COLUMNS": "200", "NO_COLOR": "1", "HEADGATE_KEYS": str(keys)}

    def cert(*args: str) -> Result:
        return CliRunner(env=env).invoke(app, ["cert", *args])

    files = [tmp_path / "met.jwt", tmp_path / "smith.jwt", tmp_path / "word.jwt"]
    given = ("--type", "a.*", "--may", "subscribe", "--for", "1d", "-o")
    assert cert("issue", "--as", "pito", "--to", "met", "--delegate", *given, str(files[0])).exit_code == 0
    assert cert("issue", "--as", "met", "--to", "smith", *given, str(files[1])).exit_code == 0
    files[2].write_text(printed(keys, "rotate", "met"))
    verify = ("verify", *map(str, files), "--holder", "smith", "--owner", "pito")
    assert cert(*verify).exit_code == 0
    files[2].write_text(printed(keys, "end", "met"))
    assert cert(*verify).exit_code == 1


def test_ends_that_cannot_be_are_refused(keys: Path, tmp_path: Path) -> None:
    word = tmp_path / "word"
    word.write_text("correct horse")
    word.chmod(0o600)
    printed(keys, "new", "ann", "--passphrase-file", str(word))
    assert "no key follows `ann`" in run(keys, "end", "ann").output
    printed(keys, "rotate", "ann", "--passphrase-file", str(word))
    assert "exclude each other" in run(keys, "end", "ann", "--in", "1h", "--at", "2999-01-01T00:00:00Z").output
    assert run(keys, "end", "ann", "--at", "tomorrow").exit_code == 2
    assert "--passphrase-file" in run(keys, "end", "ann").output
    assert run(keys, "end", "ann", "--passphrase-file", str(word)).exit_code == 0


@pytest.mark.parametrize("name", ["../ann", "a/b", "", ".ann", "ann~1"])
def test_a_name_that_is_none_is_refused(keys: Path, name: str) -> None:
    refused = run(keys, "new", "--", name)
    assert refused.exit_code == 2
    assert "bad-key" in refused.output
    assert not keys.exists()


def test_what_is_not_there_is_named(keys: Path) -> None:
    for command in ("show", "export", "rotate", "end"):
        refused = run(keys, command, "ann")
        assert refused.exit_code == 2
        assert "not-found" in refused.output


def test_the_directory_may_be_given(keys: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    did = printed(keys, "new", "ann", "--keys", str(other))
    assert printed(other, "export", "ann") == did
    assert not keys.exists()


def test_keys_are_kept_in_the_home_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEADGATE_KEYS", raising=False)
    done = CliRunner(env={"HOME": str(tmp_path)}).invoke(app, ["keys", "new", "ann"])
    assert done.exit_code == 0
    assert (tmp_path / ".headgate" / "keys" / "ann.key").is_file()
