"""`headgate identity`: statements about members, guests and providers. No node."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.lang.render import render_condition
from headgate.trust.identities import CROSSING, IDENTITY
from headgate.trust.keyring import Keyring

Run = Callable[..., Result]

TRUST = """\
providers:
  - name: norway
    as: '{norway}'
    mapping:
      nation: nation
      gradering: {{to: clearance, values: [[HEMMELIG, secret], [BEGRENSET, restricted]]}}
"""


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    keyring = Keyring(tmp_path / "keys")
    for name in ("norway", "italy", "ola", "router"):
        keyring.new(name)
    return keyring.directory


@pytest.fixture
def run(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_KEYS", str(keys))
    Path("trust.yaml").write_text(TRUST.format(norway=did(keys, "norway")))
    return lambda *args, **more: CliRunner().invoke(app, list(args), **more)


def did(keys: Path, name: str) -> str:
    return Keyring(keys).public(name).did


@pytest.fixture
def ola(run: Run) -> str:
    given = "nation=NO,gradering=HEMMELIG,shoe=43"
    result = run("identity", "issue", "--as", "norway", "--to", "ola", "--attributes", given, "-o", "ola.jwt")
    assert result.exit_code == 0, result.output
    return "ola.jwt"


def text(file: str) -> str:
    return Path(file).read_text().strip()


def test_a_member_is_attested_for_a_short_time(run: Run, keys: Path, ola: str) -> None:
    found = IDENTITY.read(text(ola)).value
    assert (found.issuer, found.subject) == (did(keys, "norway"), did(keys, "ola"))
    assert found.attributes == {"nation": "NO", "gradering": "HEMMELIG", "shoe": 43}
    assert found.validity.until is not None
    assert found.validity.start is not None
    assert found.validity.until - found.validity.start == timedelta(hours=1)
    shown = " ".join(run("identity", "show", ola).output.split())
    assert "about ola" in shown
    assert "nation = NO" in shown


def test_a_policy_rule_is_attested_too(run: Run) -> None:
    rule = "$nation = 'NO' or $nation = 'IT'"
    result = run(
        "identity", "issue", "--as", "norway", "--to", "ola", "--attributes", "$nation=NO", "--policy-rule", rule
    )
    assert result.exit_code == 0, result.output
    found = IDENTITY.read(result.stdout.strip()).value
    assert found.policy_rule is not None
    assert "$nation" in render_condition(found.policy_rule)
    assert found.attributes == {"nation": "NO"}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--attributes", "nation"], "NAME=VALUE"),
        (["--attributes", "a=1,a=2"], "twice"),
        (["--attributes", "a=1", "--for", "8d"], "[bad-statement]"),
        (["--attributes", "a=1", "--policy-rule", "price > 3"], "[bad-expression] --policy-rule"),
        (["--attributes", "a=1", "--policy-rule", "$a ="], "[bad-expression] --policy-rule"),
        (["--to", "nobody"], "[not-found] --to"),
    ],
)
def test_what_is_not_attested(run: Run, args: list[str], said: str) -> None:
    result = run("identity", "issue", "--as", "norway", "--to", "ola", *args, "-o", "made.jwt")
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not Path("made.jwt").exists()


def test_a_guest_gets_exactly_what_the_mapping_gives(run: Run, keys: Path, ola: str) -> None:
    result = run("identity", "guest", ola, "--as", "italy", "--providers", "trust.yaml", "-o", "guest.jwt")
    assert result.exit_code == 0, result.output
    found = IDENTITY.read(text("guest.jwt")).value
    assert found.attributes == {"nation": "NO", "clearance": "secret"}
    assert (found.issuer, found.guest_of) == (did(keys, "italy"), did(keys, "norway"))
    shown = " ".join(run("identity", "show", "guest.jwt").output.split())
    assert "guest statement" in shown
    assert "guest of norway" in shown


def test_a_guest_of_nobody_one_trusts_is_refused(run: Run, keys: Path, ola: str) -> None:
    Path("none.yaml").write_text("principals: {}\n")
    assert "[not-found]" in run("identity", "guest", ola, "--as", "italy", "--providers", "none.yaml").output
    Path("other.yaml").write_text(TRUST.format(norway=did(keys, "router")))
    refused = run("identity", "guest", ola, "--as", "italy", "--providers", "other.yaml")
    assert refused.exit_code == 2
    assert "if you trust it" in refused.output
    Path("bad.yaml").write_text(TRUST.format(norway=did(keys, "norway")).replace("values:", "value:"))
    wrong = run("identity", "guest", ola, "--as", "italy", "--providers", "bad.yaml")
    assert wrong.exit_code == 2
    assert "bad.yaml:6" in wrong.output
    run("identity", "guest", ola, "--as", "italy", "--providers", "trust.yaml", "-o", "guest.jwt")
    Path("chain.yaml").write_text(TRUST.format(norway=did(keys, "italy")))
    again = run("identity", "guest", "guest.jwt", "--as", "norway", "--providers", "chain.yaml")
    assert again.exit_code == 2
    assert "ola.jwt" not in again.output
    assert "is a guest" in again.output


def test_a_rule_at_home_is_not_lost_by_travelling(run: Run) -> None:
    run(
        *("identity", "issue", "--as", "norway", "--to", "ola", "--attributes", "nation=NO"),
        *("--policy-rule", "$nation = 'NO'", "-o", "bound.jwt"),
    )
    guest = ("identity", "guest", "bound.jwt", "--as", "italy", "--providers", "trust.yaml")
    assert run(*guest).exit_code == 2
    assert run(*guest, "--policy-rule", "$nation = 'NO'").exit_code == 0


def test_verifying_says_yes_no_or_cannot_tell(run: Run, ola: str) -> None:
    assert run("identity", "verify", ola, "--provider", "norway").exit_code == 0
    assert run("identity", "verify", ola, "--provider", "norway", "--rule", "$nation = 'NO'").exit_code == 0
    no = run("identity", "verify", ola, "--provider", "norway", "--rule", "$nation = 'IT'")
    assert (no.exit_code, "the rule is false" in no.output) == (1, True)
    unknown = run("identity", "verify", ola, "--provider", "norway", "--rule", "$rank = 3")
    assert (unknown.exit_code, "the rule is unknown" in unknown.output) == (1, True)
    foreign = run("identity", "verify", ola, "--provider", "italy")
    assert (foreign.exit_code, "[bad-statement]" in foreign.output) == (1, True)
    late = run("identity", "verify", ola, "--provider", "norway", "--at", "2100-01-01T00:00:00Z")
    assert (late.exit_code, "[expired]" in late.output) == (1, True)
    assert run("identity", "verify", "gone.jwt").exit_code == 2
    assert run("identity", "verify", ola, "--rule", "price = 3").exit_code == 2
    nobody = run("identity", "verify", ola)
    assert (nobody.exit_code, "nobody was named to believe" in nobody.output) == (1, True)
    assert run("identity", "verify", ola, "--rule", "$nation = 'NO'").exit_code == 1


def test_a_persons_statement_is_no_servers(run: Run, ola: str) -> None:
    """Not in any of the reasons why it does not hold."""
    run("identity", "vouch", "--as", "norway", "--to", "italy", "-o", "italy.jwt")
    run("identity", "vouch", "--as", "italy", "--to", "norway", "-o", "norway.jwt")
    foreign = run("identity", "verify", ola, "--provider", "italy")
    assert "its provider is norway, not italy" in foreign.output
    assert "`headgate identity vouch`" in foreign.output
    for more in ((), ("italy.jwt",), ("norway.jwt", "--at", "2100-01-01T00:00:00Z")):
        result = run("identity", "verify", ola, *more, "--provider", "italy")
        assert result.exit_code == 1
        assert "server" not in result.output
    assert run("identity", "verify", ola, "norway.jwt", "--provider", "italy").exit_code == 0


def test_the_answer_as_json(run: Run, ola: str) -> None:
    asked = ("identity", "verify", ola, "--rule", "$nation = 'NO'", "--json")
    told = json.loads(run(*asked, "--provider", "norway").stdout)
    assert (told["holds"], told["rule"], told["why"]) == (True, True, None)
    nobody = run(*asked)
    told = json.loads(nobody.stdout)
    assert (nobody.exit_code, told["holds"], told["rule"]) == (1, False, True)
    assert told["why"] == "nobody was named to believe"
    assert told["identity"]["attributes"]["nation"] == "NO"
    told = json.loads(run("identity", "verify", ola, "--provider", "italy", "--json").stdout)
    assert (told["holds"], told["code"]) == (False, "bad-statement")


def test_a_server_of_another_community_is_believed_through_its_provider(run: Run, keys: Path) -> None:
    run("identity", "issue", "--as", "italy", "--to", "router", "--attributes", "nation=IT", "-o", "router.jwt")
    result = run("identity", "vouch", "--as", "norway", "--to", "italy", "-o", "italy.jwt")
    assert result.exit_code == 0, result.output
    assert CROSSING.read(text("italy.jwt")).value.provider == did(keys, "italy")
    assert run("identity", "verify", "router.jwt", "--provider", "norway").exit_code == 1
    both = ("identity", "verify", "router.jwt", "italy.jwt", "--provider", "norway")
    assert run(*both).exit_code == 0
    assert run(*both, "--rule", "$nation = 'IT'").exit_code == 0
    assert "italy is an identity provider" in " ".join(run("identity", "show", "italy.jwt").output.split())


def test_a_bag_of_many_statements_is_not_one(run: Run, ola: str) -> None:
    Path("two.jwt").write_text(f"{text(ola)}\n{text(ola)}\n")
    assert run("identity", "verify", "two.jwt").exit_code == 1
    assert run("identity", "guest", "two.jwt", "--as", "italy", "--providers", "trust.yaml").exit_code == 2


def test_a_statement_that_was_revoked_does_not_hold(run: Run, ola: str) -> None:
    asked = ("identity", "verify", ola, "--provider", "norway")
    assert "revocation was not checked of what norway issued" in run(*asked).output
    Path("lists").mkdir()
    assert run("cert", "revoke", "s" + "A" * 22, "--as", "norway", "--list", "lists/norway.jwt").exit_code == 0
    held = run(*asked, "lists/norway.jwt")
    assert (held.exit_code, "not revoked by list 1 of norway" in held.output) == (0, True)
    assert run("cert", "revoke", ola, "--as", "norway", "--list", "lists/norway.jwt").exit_code == 0
    gone = run(*asked, "lists/norway.jwt")
    assert (gone.exit_code, "[revoked]" in gone.output) == (1, True)
    told = json.loads(run(*asked, "lists/norway.jwt", "--json").stdout)
    assert (told["holds"], told["code"]) == (False, "revoked")
