"""A directory of keys: names that stay inside it, and rotations that lose nothing."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model.authority import Succession
from headgate.model.errors import AlreadyExists, BadKey, BadStatement, NotFound
from headgate.trust.certificates import SUCCESSION
from headgate.trust.keyring import Keyring, check_alias
from headgate.trust.keys import PrivateKey

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BAD = [
    "",
    ".",
    "..",
    "../a",
    "a/b",
    "/a",
    ".a",
    "-a",
    "~1",
    "a~0",
    "a~1~1",
    "a b",
    "a\n",
    "a\x00",
    "é",
    "x" * 65,
    "a\\b",
]


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "home" / "keys")


def test_a_new_key_is_kept_for_its_owner_alone(keyring: Keyring) -> None:
    before = os.umask(0)
    try:
        made = keyring.new("ann")
    finally:
        os.umask(before)
    assert stat.S_IMODE(keyring.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((keyring.directory / "ann.key").stat().st_mode) == 0o600
    assert (keyring.directory / "ann.did").read_text() == made.did + "\n"
    assert keyring.public("ann") == keyring.load("ann").public == made
    assert keyring.names() == ["ann"]


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_could_lead_elsewhere_is_refused(keyring: Keyring, name: str) -> None:
    keyring.new("ann")
    for ask in (keyring.new, keyring.public, keyring.load, keyring.show, keyring.locked):
        with pytest.raises(BadKey, match="cannot name a key"):
            ask(name)  # type: ignore[operator]
    with pytest.raises(BadKey):
        keyring.rotate(name, NOW)


@given(st.text(max_size=70))
def test_a_name_that_is_taken_is_one_file_of_the_directory(name: str) -> None:
    try:
        check_alias(name)
    except BadKey:
        return
    assert Path("/keys", f"{name}.key").resolve().parent == Path("/keys")
    assert Path(f"{name}.key").name == f"{name}.key"


def test_no_key_is_overwritten(keyring: Keyring) -> None:
    made = keyring.new("ann")
    with pytest.raises(AlreadyExists):
        keyring.new("ann")
    assert keyring.load("ann").public == made


def test_a_key_under_a_passphrase_is_listed_without_it(keyring: Keyring) -> None:
    made = keyring.new("ann", b"word")
    shown = keyring.show("ann")
    assert (shown.key, shown.locked, shown.succession) == (made, True, None)
    assert keyring.load("ann", b"word").public == made
    with pytest.raises(BadKey, match="passphrase"):
        keyring.load("ann")


def test_what_is_missing_is_named(keyring: Keyring) -> None:
    assert keyring.names() == []
    with pytest.raises(NotFound, match="keys new"):
        keyring.public("ann")
    keyring.new("ann")
    for ask in (keyring.public, keyring.load, keyring.locked, keyring.show):
        with pytest.raises(NotFound, match="`bob`"):
            ask("bob")


def test_a_directory_that_others_can_change_is_refused(keyring: Keyring) -> None:
    keyring.new("ann")
    keyring.directory.chmod(0o770)
    with pytest.raises(BadKey) as refused:
        keyring.load("ann")
    assert refused.value.remedy == f"`chmod 700 {keyring.directory}`"
    keyring.directory.chmod(0o755)
    assert keyring.load("ann")


def test_a_public_name_that_is_not_the_keys_is_refused(keyring: Keyring) -> None:
    keyring.new("ann")
    other = keyring.new("bob")
    (keyring.directory / "ann.did").write_text(other.did)
    with pytest.raises(BadKey, match="does not name"):
        keyring.load("ann")
    with pytest.raises(BadKey, match="does not name"):
        keyring.rotate("ann", NOW)
    (keyring.directory / "ann.did").write_text("did:key:nonsense")
    with pytest.raises(BadKey):
        keyring.public("ann")


def test_after_a_rotation_the_name_is_the_new_key_and_the_old_is_kept(keyring: Keyring) -> None:
    old = keyring.new("ann")
    new, statement = keyring.rotate("ann", NOW)
    assert SUCCESSION.verify(statement, now=NOW) == Succession(old.did, new.did)
    assert keyring.load("ann").public == new != old
    assert keyring.load("ann~1").public == old
    third, again = keyring.rotate("ann", NOW)
    assert SUCCESSION.verify(again) == Succession(new.did, third.did)
    assert keyring.names() == ["ann", "ann~1", "ann~2"]
    assert keyring.load("ann~2").public == new
    kept = keyring.show("ann~1").succession
    assert kept is not None
    assert kept.read_text().strip() == statement
    assert not [file for file in keyring.directory.iterdir() if "next" in file.name or file.suffix == ".tmp"]


def test_a_key_under_a_passphrase_is_followed_by_one_under_the_same(keyring: Keyring) -> None:
    old = keyring.new("ann", b"word")
    with pytest.raises(BadKey, match="passphrase"):
        keyring.rotate("ann", NOW)
    with pytest.raises(BadKey, match="does not open"):
        keyring.rotate("ann", NOW, b"other")
    assert keyring.names() == ["ann"]
    new, _ = keyring.rotate("ann", NOW, b"word")
    assert keyring.load("ann", b"word").public == new
    assert keyring.load("ann~1", b"word").public == old
    assert keyring.locked("ann")


class Dies(Exception):
    """The machine stops here."""


@pytest.mark.parametrize("step", range(20))
def test_a_rotation_cut_short_anywhere_is_completed_by_the_next(
    keyring: Keyring, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = keyring.new("ann")
    left = [step]

    def counted(what):  # type: ignore[no-untyped-def]
        def run(*args, **named):  # type: ignore[no-untyped-def]
            if left[0] == 0:
                raise Dies
            left[0] -= 1
            return what(*args, **named)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", counted(os.link))
        patch.setattr(Path, "replace", counted(Path.replace))
        patch.setattr(PrivateKey, "save", counted(PrivateKey.save))
        patch.setattr(os, "fsync", counted(os.fsync))
        try:
            new, statement = keyring.rotate("ann", NOW)
        except Dies:
            new, statement = None, ""
    if new is None and PrivateKey.load(keyring.directory / "ann.key").public != old:  # nothing was left to do
        new, statement = keyring.public("ann"), (keyring.directory / "ann~1.jwt").read_text().strip()
    if new is None:
        new, statement = keyring.rotate("ann", NOW)
    assert SUCCESSION.verify(statement) == Succession(old.did, new.did)
    assert keyring.load("ann").public == new
    assert keyring.load("ann~1").public == old
    assert keyring.names() == ["ann", "ann~1"]


def test_a_key_in_the_middle_of_a_rotation_says_so(keyring: Keyring) -> None:
    keyring.new("ann")
    following = PrivateKey.generate()
    following.save(keyring.directory / "ann~next.key")
    (keyring.directory / "ann.did").write_text(following.public.did)
    with pytest.raises(BadKey) as refused:
        keyring.load("ann")
    assert refused.value.remedy == "`headgate keys rotate ann`"
    new, _ = keyring.rotate("ann", NOW)
    assert new == following.public


def test_an_earlier_key_says_until_when_it_counts(keyring: Keyring) -> None:
    old = keyring.new("ann")
    with pytest.raises(NotFound) as refused:
        keyring.end("ann", NOW, NOW)
    assert refused.value.remedy == "`headgate keys rotate ann` makes one"
    new, first = keyring.rotate("ann", NOW)
    soon, later = NOW + timedelta(hours=1), NOW + timedelta(days=1)
    kept, statement = keyring.end("ann", NOW, later)
    assert kept == "ann~1"
    found = SUCCESSION.verify(statement, known=SUCCESSION.verify(first))
    assert found == Succession(old.did, new.did, 1, later)
    assert keyring.end("ann~1", NOW, later) == (kept, statement), "nothing new is said"
    _, again = keyring.end("ann~1", NOW, soon)
    assert SUCCESSION.verify(again, known=found) == Succession(old.did, new.did, 2, soon)
    assert (keyring.directory / "ann~1.jwt").read_text().strip() == again


def test_the_last_of_several_earlier_keys_is_meant(keyring: Keyring) -> None:
    for _ in range(12):
        keyring.new("ann") if not keyring.names() else keyring.rotate("ann", NOW)
    assert keyring.earlier("ann") == "ann~11"
    assert keyring.earlier("ann~3") == "ann~3"
    second = keyring.public("ann~2").did
    assert SUCCESSION.verify(keyring.end("ann~2", NOW, NOW)[1]).old == second


def test_no_key_ends_in_the_middle_of_a_rotation(keyring: Keyring) -> None:
    keyring.new("ann")
    keyring.rotate("ann", NOW)
    PrivateKey.generate().save(keyring.directory / "ann~next.key")
    for name in ("ann", "ann~1"):
        with pytest.raises(BadKey, match="was cut short"):
            keyring.end(name, NOW, NOW)


def test_a_statement_about_other_keys_is_not_amended(keyring: Keyring) -> None:
    for name in ("ann", "bob"):
        keyring.new(name)
        keyring.rotate(name, NOW)
    (keyring.directory / "bob~1.jwt").replace(keyring.directory / "ann~1.jwt")
    with pytest.raises(BadKey, match="is about other keys"):
        keyring.end("ann", NOW, NOW)


def test_ends_at_once_have_numbers_of_their_own(keyring: Keyring) -> None:
    keyring.new("ann")
    keyring.rotate("ann", NOW)

    def end(hours: int) -> int | None:
        try:
            return SUCCESSION.verify(keyring.end("ann", NOW, NOW + timedelta(hours=hours))[1]).number
        except BadStatement:  # another was quicker, and brought the end forward further
            return None

    with ThreadPoolExecutor(6) as several:
        said = [one for one in several.map(end, range(12, 0, -1)) if one is not None]
    assert sorted(said) == list(range(1, len(said) + 1))
