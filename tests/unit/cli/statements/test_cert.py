"""`headgate cert` and `headgate type`: what is issued, shown, verified, reduced and revoked. No node."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.lang import parse_condition
from headgate.model.authority import NETWORK_ACTIONS, TYPE_ACTIONS, NetworkAuthority, TypeAuthority
from headgate.model.rights import Action
from headgate.trust.certificates import CERTIFICATE, REVOCATIONS
from headgate.trust.identities import IDENTITY
from headgate.trust.keyring import Keyring
from headgate.trust.statements import digest_of
from headgate.trust.typedefs import TYPE_DEFINITION

Run = Callable[..., Result]
PLATE = "uk.gov.pito.Numberplate"
PEOPLE = ("police", "pito", "met", "smith")
S1, S2, S3, S4 = (f"s{number}{'A' * 21}" for number in (1, 2, 3, 4))
"""Ids as certificates are given them."""


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    keyring = Keyring(tmp_path / "keys")
    for name in PEOPLE:
        keyring.new(name)
    return keyring.directory


@pytest.fixture
def run(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_KEYS", str(keys))
    return lambda *args, **more: CliRunner().invoke(app, list(args), **more)


def did(keys: Path, name: str) -> str:
    return Keyring(keys).public(name).did


def issue(run: Run, by: str, to: str, file: str, *more: str) -> str:
    result = run("cert", "issue", "--as", by, "--to", to, "-o", file, *more)
    assert result.exit_code == 0, result.output
    return Path(file).read_text().strip()


@pytest.fixture
def chain(run: Run) -> list[str]:
    """From the owner to its domain to a member, who is given more than the domain has."""
    told = ("--type", "uk.gov.pito.*", "--may", "publish,subscribe", "--attributes", "location='Victoria',numberplate")
    issue(run, "pito", "met", "met.jwt", *told, "--delegate", "--for", "30d")
    told = ("--type", f"pito/{PLATE}", "--may", "subscribe,extend", "--attributes", "location,numberplate,seen")
    issue(run, "met", "smith", "smith.jwt", *told, "--where", "numberplate = 'AE05 XYZ'", "--for", "8h")
    return ["met.jwt", "smith.jwt"]


# -- issue ----------------------------------------------------------------------------------------------------


def test_a_certificate_says_what_the_options_say(run: Run, keys: Path, chain: list[str]) -> None:
    made = CERTIFICATE.read(Path("smith.jwt").read_text().strip()).value
    assert (made.issuer, made.subject) == (did(keys, "met"), did(keys, "smith"))
    (authority,) = made.authority
    assert authority.actions == {Action.SUBSCRIBE, Action.EXTEND}
    assert (authority.type, authority.owner) == (PLATE, did(keys, "pito"))
    assert authority.attributes == ("location", "numberplate", "seen")
    assert not made.delegate
    assert made.validity.until - made.validity.start == timedelta(hours=8)
    first = CERTIFICATE.read(Path("met.jwt").read_text().strip()).value
    assert first.delegate
    assert first.authority[0].forced == {"location": "Victoria"}


def test_without_a_file_the_text_alone_is_printed(run: Run, keys: Path) -> None:
    given = ("--network", "police", "--may", "connect", "--freshness", "5m", "--audience", "met")
    result = run("cert", "issue", "--as", str(keys / "police.key"), "--to", did(keys, "met"), *given)
    assert result.exit_code == 0, result.output
    read = CERTIFICATE.read(result.stdout.strip())
    assert read.value.freshness == 300
    assert read.audience == ("met",)
    assert read.value.authority[0].network == "police"


def test_values_keep_their_kinds(run: Run) -> None:
    given = "a=1,b=1.5,c=true,d='x, y',e=word,f=timestamp '2026-01-01T00:00:00Z',g"
    text = issue(run, "pito", "met", "k.jwt", "--type", "a.B", "--may", "publish", "--attributes", given)
    authority = CERTIFICATE.read(text).value.authority[0]
    assert authority.attributes == ("a", "b", "c", "d", "e", "f", "g")
    shown = {name: type(value).__name__ for name, value in authority.forced.items()}
    assert shown == {"a": "int", "b": "float", "c": "bool", "d": "str", "e": "str", "f": "datetime"}
    assert authority.forced["d"] == "x, y"


@pytest.mark.parametrize("may", [("--may", "*"), ("--actions", "*"), ("--actions", "publish|subscribe, extend")])
def test_all_actions_and_the_other_name_of_the_option(run: Run, may: tuple[str, str]) -> None:
    text = issue(run, "pito", "met", "all.jwt", "--type", "a.*", *may)
    assert CERTIFICATE.read(text).value.authority == (TypeAuthority(TYPE_ACTIONS, "a.*"),)


def test_several_rights_in_one_certificate(run: Run, keys: Path) -> None:
    given = ("--give", "connect, install network UK Police Network", "--give", "* uk.gov.pito.*", "--give", "* network")
    narrow = "subscribe met/uk.Keeper (name, plate='a) b', n) where plate = 'it''s (' and n > 1"
    text = issue(run, "pito", "met", "many.jwt", *given, "--give", narrow)
    assert CERTIFICATE.read(text).value.authority == (
        NetworkAuthority(NETWORK_ACTIONS, "UK Police Network"),
        TypeAuthority(TYPE_ACTIONS, "uk.gov.pito.*"),
        NetworkAuthority(NETWORK_ACTIONS),
        TypeAuthority(
            frozenset({Action.SUBSCRIBE}),
            "uk.Keeper",
            did(keys, "met"),
            ("name", "plate", "n"),
            {"plate": "a) b"},
            parse_condition("plate = 'it''s (' and n > 1"),
        ),
    )
    both = issue(run, "pito", "met", "both.jwt", "--type", "a.B", "--may", "extend", "--give", "connect network n")
    assert [type(one) for one in CERTIFICATE.read(both).value.authority] == [TypeAuthority, NetworkAuthority]


def test_a_certificate_may_begin_later(run: Run) -> None:
    text = issue(
        *(run, "pito", "met", "later.jwt", "--type", "a.B", "--may", "publish"),
        *("--from", "2999-01-01T00:00:00Z", "--for", "1d"),
    )
    found = CERTIFICATE.read(text).value.validity
    assert (found.start, found.until) == (datetime(2999, 1, 1, tzinfo=UTC), datetime(2999, 1, 2, tzinfo=UTC))


def test_one_that_never_ends_is_remarked_on(run: Run) -> None:
    given = ("cert", "issue", "--as", "pito", "--to", "met", "--type", "a.B", "--may", "publish")
    for more in ((), ("-o", "made.jwt")):
        assert "it never ends, unless you revoke it" in run(*given, *more).stderr
        assert "never ends" not in run(*given, "--for", "1h").stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "either --type PATTERN or --network NAME"),
        (["--may", "publish"], "either --type PATTERN or --network NAME"),
        (["--type", "a.B"], "say with --may"),
        (["--may", "publish", "--type", "a.B", "--network", "x"], "either --type"),
        (["--may", "publish", "--type", "a.B", "--network", "x"], "several rights are given with --give"),
        (["--may", "*,publish", "--type", "a.B"], "`*` is none of"),
        (["--give", "publish"], "`publish` is neither `ACTIONS TYPE"),
        (["--give", "a.B"], "is neither"),
        (["--give", "publish a.B extra"], "is neither"),
        (["--give", "publish a.B where"], "is neither"),
        (["--give", "publish a.B (x"], "is neither"),
        (["--give", "connect a.B"], "--give: `connect` is none of extend, publish, subscribe"),
        (["--give", "publish network police"], "--give: `publish` is none of connect, install"),
        (["--give", "publish a..B"], "--give: `a..B` is neither a type name nor a pattern"),
        (["--give", "publish a.B (x, x)"], "--give names `x` twice"),
        (["--give", "publish a.B where x = = 3"], "[bad-expression] --give"),
        (["--give", "publish a.B", "--where", "true"], "either --type PATTERN or --network NAME"),
        (["--give", "publish a.B"] * 17, "MAX_AUTHORITIES (16)"),
        (["--may", "publish", "--type", "a.B", "--from", "soon"], "soon"),
        (
            [
                *("--may", "publish", "--type", "a.B"),
                *("--from", "2999-01-02T00:00:00Z", "--until", "2999-01-01T00:00:00Z"),
            ],
            "is not after `2999-01-02T00:00:00Z`",
        ),
        (["--may", "connect", "--type", "a.B"], "`connect` is none of"),
        (["--may", "publish", "--network", "x"], "`publish` is none of"),
        (["--may", ",", "--type", "a.B"], "names one or more"),
        (["--may", "publish", "--type", "a b"], "`a b` is neither a type name nor a pattern"),
        (["--may", "publish", "--type", "nobody/a.B"], "there is no key `nobody`"),
        (["--may", "publish", "--type", "a.B", "--for", "soon"], "`soon` is not a duration"),
        (["--may", "publish", "--type", "a.B", "--for", "1h", "--until", "2030-01-01T00:00:00Z"], "exclude"),
        (["--may", "publish", "--type", "a.B", "--until", "2020-01-01T00:00:00Z"], "not in the future"),
        (["--may", "publish", "--type", "a.B", "--until", "tomorrow"], "tomorrow"),
        (["--may", "publish", "--type", "a.B", "--where", "price = = 3"], "[bad-expression]"),
        (["--may", "publish", "--type", "a.B", "--where", "@publisher in group staff"], "[bad-statement]"),
        (["--may", "publish", "--type", "a.B", "--attributes", "a,a"], "`a` twice"),
        (["--may", "connect", "--network", "x", "--where", "true"], "go with --type"),
        (["--may", "publish", "--type", "a.B", "--freshness", "100ms"], "less than a second"),
    ],
)
def test_what_cannot_be_issued_is_refused(run: Run, args: list[str], said: str) -> None:
    result = run("cert", "issue", "--as", "pito", "--to", "met", *args, "-o", "made.jwt")
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())
    assert not Path("made.jwt").exists()


def test_a_stranger_by_name_is_nobody_and_no_file_is_overwritten(run: Run, chain: list[str]) -> None:
    more = ("--type", "a.B", "--may", "publish")
    assert "[not-found] --to" in run("cert", "issue", "--as", "pito", "--to", "nobody", *more).output
    assert "[bad-key] --to" in run("cert", "issue", "--as", "pito", "--to", "did:key:zzz", *more).output
    assert "[not-found]" in run("cert", "issue", "--as", "nobody", "--to", "met", *more).output
    before = Path("met.jwt").read_text()
    result = run("cert", "issue", "--as", "pito", "--to", "met", *more, "-o", "met.jwt")
    assert result.exit_code == 2
    assert "already-exists" in result.output
    assert Path("met.jwt").read_text() == before


def test_a_key_under_a_passphrase_signs_only_with_it(run: Run, keys: Path) -> None:
    Path("secret").write_text("open sesame\n")
    Path("secret").chmod(0o600)
    Keyring(keys).new("safe", b"open sesame")
    given = ("cert", "issue", "--as", "safe", "--to", "met", "--type", "a.B", "--may", "publish")
    for locked in (given, (*given[:3], str(keys / "safe.key"), *given[4:])):
        assert "[bad-key]" in run(*locked).output
        assert run(*locked, "--passphrase-file", "secret").exit_code == 0
    unlocked = run(*given[:3], "pito", *given[4:], "--passphrase-file", "secret")
    assert (unlocked.exit_code, "[bad-key]" in unlocked.output) == (2, True)


# -- show -----------------------------------------------------------------------------------------------------


def test_a_certificate_is_shown_in_words_with_names_and_whole_keys(run: Run, keys: Path, chain: list[str]) -> None:
    shown = " ".join(run("cert", "show", *chain).output.split())
    assert "from pito" in shown
    assert "may publish and subscribe to uk.gov.pito.* (location = 'Victoria', numberplate)" in shown
    assert "where numberplate = 'AE05 XYZ'" in shown
    assert "pass it on yes" in shown
    assert "signature good" in shown
    assert f"met {did(keys, 'met')}" in shown


def test_the_same_as_json(run: Run, keys: Path, chain: list[str]) -> None:
    first, second = json.loads(run("cert", "show", *chain, "--json").stdout)
    assert first["kind"] == "certificate"
    assert first["says"]["issuer"] == did(keys, "pito")
    assert second["says"]["authority"][0]["where"] == "numberplate = 'AE05 XYZ'"


def test_what_has_ended_is_said_to_have(run: Run) -> None:
    issue(run, "pito", "met", "old.jwt", "--type", "a.B", "--may", "publish", "--for", "1s")
    time.sleep(1.1)
    assert "has ended" in " ".join(run("cert", "show", "old.jwt").output.split())


def test_what_was_changed_is_refused_with_file_and_line(run: Run, chain: list[str]) -> None:
    head, body, signature = Path("met.jwt").read_text().strip().split(".")
    Path("bag.jwt").write_text(Path("smith.jwt").read_text() + f"{head}.{body}.{signature[::-1]}\n")
    result = run("cert", "show", "bag.jwt")
    assert result.exit_code == 2
    assert "[bad-statement] bag.jwt:2" in result.output
    assert run("cert", "verify", "bag.jwt").exit_code == 1
    assert "bag.jwt:2" in run("cert", "verify", "bag.jwt").output


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "no statement"), (b"\xff\xfe", "not a signed statement"), (b"hello", "not a signed statement")],
)
def test_files_that_are_no_statements(run: Run, content: bytes, said: str) -> None:
    Path("x.jwt").write_bytes(content)
    for command in ("show", "reduce"):
        result = run("cert", command, "x.jwt")
        assert result.exit_code == 2
        assert said in result.output
    assert "[not-found]" in run("cert", "show", "nothing.jwt").output


def test_statements_come_from_standard_input_too(run: Run, chain: list[str]) -> None:
    given = "".join(Path(one).read_text() for one in chain)
    assert run("cert", "verify", "-", "--owner", "pito", input=given).exit_code == 0


# -- verify ---------------------------------------------------------------------------------------------------


def test_the_chain_is_found_and_drawn_with_what_is_cut(run: Run, chain: list[str]) -> None:
    result = run("cert", "verify", *reversed(chain), "--owner", "pito")
    assert result.exit_code == 0, result.output
    lines = [line.strip() for line in result.output.splitlines()]
    assert lines.index("pito") < lines.index("-> met") < lines.index("-> smith")
    assert "cut extend: met may not" in lines
    assert "cut the attribute seen: met does not have it" in lines
    assert "cut every location but 'Victoria'" in lines
    holds = f"smith may subscribe to {PLATE} of pito (location = 'Victoria', numberplate)"
    assert f"{holds} where numberplate = 'AE05 XYZ'" in lines


def test_a_signed_type_is_verified_by_another_command(run: Run, plate: str) -> None:
    for command in ("verify", "reduce"):
        result = run("cert", command, plate)
        assert result.exit_code == (1 if command == "verify" else 2)
        assert "`headgate type verify FILE --coordinator WHO`" in result.output


def test_a_type_that_is_not_reached_is_an_answer_of_no(run: Run, chain: list[str]) -> None:
    assert run("cert", "verify", *chain, "--type", PLATE, "--owner", "pito").exit_code == 0
    assert run("cert", "verify", *chain, "--type", f"pito/{PLATE}").exit_code == 0
    for other in ("pito/uk.gov.pitox.Numberplate", f"met/{PLATE}"):
        result = run("cert", "verify", *chain, "--type", other)
        assert result.exit_code == 1
        assert "chain-invalid" in result.output


def test_why_not(run: Run, keys: Path, chain: list[str]) -> None:
    missing = run("cert", "verify", "smith.jwt")
    assert missing.exit_code == 1
    assert "[chain-invalid]" in missing.output
    assert "issued by `met`" in missing.output
    late = run("cert", "verify", *chain, "--at", "2100-01-01T00:00:00Z")
    assert (late.exit_code, "[expired]" in late.output) == (1, True)
    told = json.loads(run("cert", "verify", "smith.jwt", "--json").stdout)
    assert (told["holds"], told["code"]) == (False, "chain-invalid")
    assert run("cert", "verify", *chain, "--holder", "police").exit_code == 1
    assert run("cert", "verify", "gone.jwt").exit_code == 2


def test_who_holds_it_must_be_plain(run: Run, chain: list[str]) -> None:
    issue(run, "met", "police", "other.jwt", "--type", f"pito/{PLATE}", "--may", "subscribe")
    asked = run("cert", "verify", *chain, "other.jwt")
    assert asked.exit_code == 1
    assert "--holder" in asked.output
    assert run("cert", "verify", *chain, "other.jwt", "--holder", "police", "--owner", "pito").exit_code == 0


def test_a_network_needs_its_coordinator(run: Run) -> None:
    issue(run, "police", "met", "net.jwt", "--network", "police", "--may", "connect")
    unnamed = run("cert", "verify", "net.jwt")
    assert unnamed.exit_code == 1
    assert "--coordinator" in unnamed.output
    assert run("cert", "verify", "net.jwt", "--coordinator", "pito").exit_code == 1
    named = run("cert", "verify", "net.jwt", "--coordinator", "police")
    assert named.exit_code == 0
    assert "met may connect on the network police" in named.output


def test_a_list_in_the_bag_counts_and_silence_is_unknown(run: Run, chain: list[str]) -> None:
    issue(run, "pito", "met", "fresh.jwt", "--type", "uk.gov.pito.*", "--may", "subscribe", "--freshness", "1h")
    silent = run("cert", "verify", "fresh.jwt", "--owner", "pito")
    assert silent.exit_code == 1
    assert "nothing is heard" in silent.output
    assert run("cert", "revoke", S1, "--as", "pito", "--list", "list.jwt").exit_code == 0
    assert run("cert", "verify", "fresh.jwt", "list.jwt", "--owner", "pito").exit_code == 0
    lost = CERTIFICATE.read(Path("met.jwt").read_text().strip()).value.id
    assert run("cert", "revoke", lost, "--as", "pito", "--list", "list.jwt").exit_code == 0
    gone = run("cert", "verify", *chain, "list.jwt")
    assert (gone.exit_code, "[revoked]" in gone.output) == (1, True)


def test_a_chain_goes_on_through_a_key_that_was_rotated(run: Run, chain: list[str]) -> None:
    Path("next.jwt").write_text(run("keys", "rotate", "met").stdout)
    issue(run, "met", "police", "new.jwt", "--type", f"pito/{PLATE}", "--may", "subscribe")
    assert run("cert", "verify", "met.jwt", "new.jwt", "--holder", "police", "--owner", "pito").exit_code == 1
    result = run("cert", "verify", "met.jwt", "new.jwt", "next.jwt", "--holder", "police", "--owner", "pito")
    assert result.exit_code == 0, result.output
    assert "-> police" in result.output
    shown = " ".join(run("cert", "show", "next.jwt").output.split())
    assert "met is my key from now on" in shown


# -- reduce ---------------------------------------------------------------------------------------------------


def test_a_chain_is_reduced_step_by_step(run: Run, keys: Path, chain: list[str]) -> None:
    told = json.loads(run("cert", "reduce", *reversed(chain), "--json").stdout)
    assert [len(step["cut"]) for step in told["steps"]] == [0, 3]
    assert told["reduced"]["issuer"] == did(keys, "pito")
    assert told["reduced"]["subject"] == did(keys, "smith")
    assert told["reduced"]["authority"][0]["actions"] == ["subscribe"]
    assert "pito gives smith, all in all:" in run("cert", "reduce", *chain).output


def test_validity_conditions_and_patterns_are_cut_too(run: Run) -> None:
    more = ("--where", "seen is not null", "--delegate", "--for", "1h")
    issue(run, "pito", "met", "a.jwt", "--type", "uk.gov.pito.*", "--may", "subscribe", *more)
    issue(run, "met", "smith", "b.jwt", "--type", "*", "--may", "subscribe", "--for", "30d")
    shown = run("cert", "reduce", "a.jwt", "b.jwt").output
    assert "cut * beyond uk.gov.pito.*" in shown
    assert "cut whatever is not so: seen is not null" in shown
    assert "what met has ends" in shown


def test_what_does_not_reduce_says_why(run: Run, chain: list[str]) -> None:
    issue(run, "smith", "police", "on.jwt", "--type", f"pito/{PLATE}", "--may", "subscribe")
    stopped = run("cert", "reduce", *chain, "on.jwt")
    assert stopped.exit_code == 2
    assert "does not let smith pass it on" in stopped.output
    assert "[chain-invalid]" in run("cert", "reduce", "met.jwt", "on.jwt").output
    issue(run, "met", "smith", "else.jwt", "--type", "fr.X", "--may", "subscribe")
    assert "nothing of" in run("cert", "reduce", "met.jwt", "else.jwt").output


# -- revoke ---------------------------------------------------------------------------------------------------


def listed(path: str = "list.jwt") -> tuple[int, frozenset[str]]:
    found = REVOCATIONS.read(Path(path).read_text().strip()).value
    return found.number, found.revoked


def test_lists_are_numbered_and_only_grow(run: Run) -> None:
    assert run("cert", "revoke", S1, "--as", "met", "--list", "list.jwt").exit_code == 0
    first = Path("list.jwt").read_text()
    assert listed() == (1, {S1})
    assert run("cert", "revoke", S2, S3, "--as", "met", "--list", "list.jwt").exit_code == 0
    assert listed() == (2, {S1, S2, S3})
    assert "Nothing new" in run("cert", "revoke", S2, "--as", "met", "--list", "list.jwt").output
    assert listed() == (2, {S1, S2, S3})

    Path("list.jwt").write_text(first)  # an older copy is brought back
    rolled = run("cert", "revoke", S4, "--as", "met", "--list", "list.jwt")
    assert rolled.exit_code == 2
    assert "[stale-list]" in rolled.output
    assert Path("list.jwt").read_text() == first

    Path("list.jwt").unlink()  # a file that was lost does not begin again at 1
    assert run("cert", "revoke", S4, "--as", "met", "--list", "list.jwt").exit_code == 0
    assert listed() == (3, {S1, S2, S3, S4})


def test_a_list_of_another_is_not_continued(run: Run) -> None:
    assert run("cert", "revoke", S1, "--as", "pito", "--list", "list.jwt").exit_code == 0
    result = run("cert", "revoke", S2, "--as", "met", "--list", "list.jwt")
    assert result.exit_code == 2
    assert "[bad-statement]" in result.output
    assert listed() == (1, {S1})


@pytest.mark.parametrize("given", ["a b", "s7Q2b...", "warrant", "smith", "", "s" + "A" * 23, "did:key:z6Mk"])
def test_what_is_no_id_is_not_revoked(run: Run, given: str) -> None:
    for where in (("--as", "met", "--list", "l.jwt"), ("--as", "met", "--domain", "none")):
        result = run("cert", "revoke", *where, "--", given)
        assert result.exit_code == 2
        assert f"`{given}` is neither a file nor the id of a statement" in result.output
    assert not Path("l.jwt").exists()
    assert run("cert", "revoke", S1, "--list", "l.jwt").exit_code == 2, "nobody signs"


def test_certificates_are_revoked_by_their_files(run: Run, keys: Path, chain: list[str]) -> None:
    made = CERTIFICATE.read(Path("smith.jwt").read_text().strip()).value
    assert run("cert", "revoke", "smith.jwt", S1, "--as", "met", "--list", "list.jwt").exit_code == 0
    assert listed() == (1, {made.id, S1})
    gone = run("cert", "verify", *chain, "list.jwt")
    assert (gone.exit_code, "[revoked]" in gone.output) == (1, True)
    assert run("identity", "issue", "--as", "met", "--to", "smith", "-o", "who.jwt").exit_code == 0
    assert run("cert", "revoke", "who.jwt", "--as", "met", "--list", "list.jwt").exit_code == 0
    assert listed() == (2, {made.id, S1, IDENTITY.read(Path("who.jwt").read_text().strip()).value.id})


def test_only_the_issuer_takes_a_certificate_back(run: Run, chain: list[str]) -> None:
    Path("both.jwt").write_text(Path("smith.jwt").read_text() + Path("met.jwt").read_text())
    for file, place in (("met.jwt", "met.jwt:1"), ("both.jwt", "both.jwt:2")):
        result = run("cert", "revoke", file, "--as", "met", "--list", "list.jwt")
        assert result.exit_code == 2
        said = " ".join(result.output.split())
        assert place in said
        assert "was issued by pito" in said
    for file in ("list.jwt", "gone.jwt", "keys/met.did"):
        assert run("cert", "revoke", file, "--as", "met", "--list", "list.jwt").exit_code == 2
    assert not Path("list.jwt").exists()


def test_what_the_earlier_key_of_the_same_name_issued_is_ones_own(run: Run, chain: list[str]) -> None:
    assert run("keys", "rotate", "met").exit_code == 0
    assert run("cert", "revoke", "smith.jwt", "--as", "met", "--list", "list.jwt").exit_code == 0
    assert run("cert", "revoke", "smith.jwt", "--as", "met~1", "--list", "old.jwt").exit_code == 0


def test_the_list_is_shown(run: Run) -> None:
    run("cert", "revoke", S1, "--as", "met", "--list", "list.jwt")
    shown = " ".join(run("cert", "show", "list.jwt").output.split())
    assert "number 1" in shown
    assert f"revoked {S1}" in shown


# -- types ----------------------------------------------------------------------------------------------------


@pytest.fixture
def plate(run: Run) -> str:
    issue(run, "police", "pito", "install.jwt", "--network", "police", "--may", "install")
    result = run(
        *("type", "sign", PLATE, "location:string", "numberplate:string", "seen:timestamp"),
        *("--as", "pito", "--with", "install.jwt", "-o", "plate.jwt"),
    )
    assert result.exit_code == 0, result.output
    return "plate.jwt"


def test_a_signed_type_verifies_by_itself(run: Run, keys: Path, plate: str) -> None:
    found = TYPE_DEFINITION.read(Path(plate).read_text().strip()).value
    assert (found.owner, found.name, len(found.credentials)) == (did(keys, "pito"), PLATE, 1)
    result = run("type", "verify", plate, "--coordinator", "police")
    assert result.exit_code == 0, result.output
    assert "seen: timestamp" in result.output
    other = run("type", "verify", plate, "--coordinator", "met")
    assert (other.exit_code, "[bad-statement]" in other.output) == (1, True)
    assert "owner" in run("cert", "show", plate).output


def test_a_subtype_of_another_owner_carries_extend(run: Run, plate: str) -> None:
    issue(run, "pito", "met", "extend.jwt", "--type", PLATE, "--may", "extend")
    sign = ("type", "sign", "met.Chase", "officer:string", "--as", "met", "--extends", plate)
    assert run(*sign, "--with", "extend.jwt", "-o", "chase.jwt").exit_code == 0
    assert "extends" in run("type", "verify", "chase.jwt", "--coordinator", "police").output
    assert run(*sign, "-o", "bare.jwt").exit_code == 0
    assert run("type", "verify", "bare.jwt", "--coordinator", "police").exit_code == 1


def test_what_a_type_is_derived_of_and_declassified_for_is_signed_and_shown(run: Run, plate: str) -> None:
    sign = ("type", "sign", "pito.T", "--as", "pito", "--with", "install.jwt", "-o", "t.jwt")
    done = run(*sign, "--derived", "declassified", "--declassified-for", "met/met.Convoy")
    assert done.exit_code == 0, done.output
    for shown in (run("type", "verify", "t.jwt", "--coordinator", "police"), run("cert", "show", "t.jwt")):
        assert shown.exit_code == 0, shown.output
        assert "declassified for" in shown.output
        assert "met.Convoy of met" in shown.output
    for bad in (("--derived", "anyhow"), ("--declassified-for", "met.Convoy")):
        assert run("type", "sign", "a.B", "--as", "pito", *bad).exit_code == 2


def test_signing_a_type_says_who_can_use_it(run: Run, plate: str) -> None:
    install = ("type", "sign", "a.B", "--as", "pito", "--with", "install.jwt", "-o", "with.jwt")
    assert "pito signs a.B, with 1 certificate\n" in run(*install).stderr
    for more in ((), ("-o", "bare.jwt")):
        bare = run("type", "sign", "a.B", "--as", "pito", *more)
        assert bare.exit_code == 0
        assert "only where pito coordinates the network can it be used" in bare.stderr
    assert run("type", "verify", "bare.jwt", "--coordinator", "pito").exit_code == 0
    assert run("type", "verify", "bare.jwt", "--coordinator", "police").exit_code == 1
    foreign = run("type", "sign", "met.Chase", "--as", "met", "--extends", plate, "-o", "foreign.jwt")
    assert "nobody can use it: give with `--with` the certificates by which pito lets met extend" in foreign.stderr
    for name in ("pito", "met", "police"):
        assert run("type", "verify", "foreign.jwt", "--coordinator", name).exit_code == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["a.B", "x"], "NAME:KIND"),
        (["a.B", "x:text"], "NAME:KIND"),
        (["a.B", "x:int", "x:int"], "twice"),
        (["a b", "x:int"], "[bad-statement]"),
        (["a.B", "x:int", "--key-attributes", "y"], "[bad-statement]"),
        (["a.B", "x:int", "--with", "none.jwt"], "[not-found]"),
    ],
)
def test_types_that_are_not_signed(run: Run, args: list[str], said: str) -> None:
    result = run("type", "sign", *args, "--as", "pito")
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize("command", ["cert", "identity", "type"])
def test_every_command_has_examples(run: Run, command: str) -> None:
    words = {
        "cert": ("issue", "show", "verify", "reduce", "revoke"),
        "identity": ("issue", "guest", "vouch", "show", "verify"),
        "type": ("sign", "verify", "declare"),
    }
    for word in words[command]:
        result = run(command, word, "--help")
        assert result.exit_code == 0
        assert f"headgate {command} {word}" in result.output
        assert result.output.isascii() or "\N{KEY}" not in result.output  # what `:key:` would become


# -- whom to believe, and what was taken back -----------------------------------------------------------------


@pytest.fixture
def stranger(run: Run) -> str:
    """Anyone can write a certificate for anyone's type."""
    issue(run, "smith", "met", "stranger.jwt", "--type", PLATE, "--may", "subscribe", "--for", "1d")
    return "stranger.jwt"


@pytest.mark.parametrize("more", [(), ("--type", PLATE)])
def test_without_an_owner_nothing_is_proven(run: Run, stranger: str, more: tuple[str, ...]) -> None:
    nobody = run("cert", "verify", stranger, *more)
    assert nobody.exit_code == 1
    assert "nobody was named to believe" in nobody.output
    assert "--owner" in nobody.output
    assert "met may subscribe" not in nobody.output
    told = json.loads(run("cert", "verify", stranger, *more, "--json").stdout)
    assert (told["holds"], told["chains"], told["code"]) == (False, [], "chain-invalid")
    assert "--owner" in told["remedy"]


def test_a_strangers_certificate_does_not_begin_at_the_owner(run: Run, keys: Path, stranger: str, plate: str) -> None:
    for owner in ("pito", did(keys, "pito"), str(keys / "pito.did"), plate):
        result = run("cert", "verify", stranger, "--owner", owner, "--type", PLATE)
        assert result.exit_code == 1, owner
        assert "does not own what it gives" in " ".join(result.output.split())
    assert run("cert", "verify", stranger, "--owner", "smith", "--type", PLATE).exit_code == 0
    assert run("cert", "verify", stranger, "--owner", "smith", "--type", f"pito/{PLATE}").exit_code == 2
    assert run("cert", "verify", stranger, "--owner", "gone.did").exit_code == 2
    assert run("cert", "verify", stranger, "--owner", stranger).exit_code == 2, "it is no signed type"


def test_the_owner_is_named_by_a_file_too(run: Run, keys: Path, chain: list[str], plate: str) -> None:
    for owner in (str(keys / "pito.did"), plate):
        assert run("cert", "verify", *chain, "--owner", owner).exit_code == 0, owner


def test_a_coordinator_vouches_for_no_type(run: Run, stranger: str) -> None:
    result = run("cert", "verify", stranger, "--coordinator", "police")
    assert result.exit_code == 1
    assert "--owner" in result.output
    give = ("--give", "connect network police", "--give", f"subscribe {PLATE}")
    issue(run, "police", "met", "both.jwt", *give, "--for", "1d")
    named = run("cert", "verify", "both.jwt", "--coordinator", "police")
    assert named.exit_code == 0
    assert "rights on types are left out" in named.output
    assert "met may subscribe" not in named.output
    other = run("cert", "verify", "both.jwt", "--owner", "police")
    assert "rights on networks are left out" in other.output


def test_revocation_that_was_not_checked_is_said(run: Run, keys: Path, chain: list[str]) -> None:
    silent = run("cert", "verify", *chain, "--owner", "pito")
    assert "revocation was not checked of what pito issued" in silent.output
    assert "revocation was not checked of what met issued" in silent.output
    assert run("cert", "revoke", S1, "--as", "pito", "--list", "lists.jwt").exit_code == 0
    half = run("cert", "verify", *chain, "lists.jwt", "--owner", "pito")
    assert "not revoked by list 1 of pito" in half.output
    assert "revocation was not checked of what met issued" in half.output
    told = json.loads(run("cert", "verify", *chain, "--owner", "pito", "--json").stdout)
    assert [(one["issuer"], one["number"]) for one in told["revocation"]] == [
        (did(keys, "pito"), 1),
        (did(keys, "met"), None),
    ]


def test_a_list_beside_the_files_counts(run: Run, chain: list[str]) -> None:
    Path("rubbish.jwt").write_bytes(b"\xff")
    assert run("cert", "revoke", "smith.jwt", "--as", "met", "--list", "met-revoked.jwt").exit_code == 0
    gone = run("cert", "verify", *chain, "--owner", "pito")
    assert (gone.exit_code, "[revoked]" in gone.output) == (1, True)
    forged = Path("met-revoked.jwt").read_text().strip()
    Path("met-revoked.jwt").write_text(forged[:-6] + "AAAAAA")
    passed = run("cert", "verify", *chain, "--owner", "pito")
    assert passed.exit_code == 0
    assert "revocation was not checked of what met issued" in passed.output


def test_reducing_says_that_nothing_was_checked(run: Run, chain: list[str]) -> None:
    assert "whether it counts was not checked" in run("cert", "reduce", *chain).output


def test_a_type_whose_permission_was_revoked(run: Run, plate: str) -> None:
    before = run("type", "verify", plate, "--coordinator", "police")
    assert "revocation was not checked of what police issued" in before.output
    Path("elsewhere").mkdir()
    (used,) = TYPE_DEFINITION.read(Path(plate).read_text().strip()).value.credentials
    assert run("cert", "revoke", S1, "--as", "police", "--list", "elsewhere/list.jwt").exit_code == 0
    asked = ("type", "verify", plate, "--coordinator", "police", "--list", "elsewhere/list.jwt")
    assert "not revoked by list 1 of police" in run(*asked).output
    Path("used.jwt").write_text("")
    for name in Path().glob("*.jwt"):
        text = name.read_text().strip()
        if text and used.digest == digest_of(text):
            assert run("cert", "revoke", str(name), "--as", "police", "--list", "elsewhere/list.jwt").exit_code == 0
    gone = run(*asked)
    assert (gone.exit_code, "[revoked]" in gone.output) == (1, True)
