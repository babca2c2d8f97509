"""`headgate init`: a whole domain, or nothing."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
import yaml
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.node.init import init, make_domain
from headgate.cli.shared.common import shows_errors
from headgate.model.errors import BadDefinition
from headgate.node.config import Config, Files
from headgate.node.domain import Domain
from headgate.scenario.format.file import load
from headgate.scenario.run import run_all
from headgate.trust.handshake import Challenger, new_nonce, prove
from headgate.trust.keys import PrivateKey
from headgate.trust.positions import Positions
from headgate.trust.tls import certificate_of, expires, fingerprint, server_context

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def run(*args: str) -> Result:
    app = typer.Typer(rich_markup_mode="markdown")
    app.command("init")(shows_errors(init))
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, list(args))


def modes(directory: Path) -> dict[str, int]:
    return {
        str(path.relative_to(directory)): stat.S_IMODE(path.stat().st_mode)
        for path in (directory, *directory.rglob("*"))
        if "data/" not in str(path)
    }


def test_a_domain_is_made_whole(tmp_path: Path) -> None:
    directory = tmp_path / "shop"
    result = run(str(directory), "--host", "gate.example.org")
    assert result.exit_code == 0, result.output
    files = Files(directory)
    assert Config.load(directory).domain.name == "shop"
    broker, administrator = PrivateKey.load(files.broker_key), PrivateKey.load(files.admin_key)
    Positions.load(files.position_key)
    server_context(files.tls_certificate, files.tls_key)
    for shown in (broker.public.did, administrator.public.did, fingerprint(certificate_of(files.tls_certificate))):
        assert shown in result.output
    with Domain.open(files.data) as domain:
        assert domain.ledger.version == 1
    assert list(tmp_path.iterdir()) == [directory]


def test_only_the_owner_can_look_inside(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = make_domain(tmp_path / "shop", None, (), NOW)
    finally:
        os.umask(before)
    found = modes(made.files.directory)
    assert found["."] == found["keys"] == found["tls"] == found["data"] == 0o700
    secrets = [path for path in found if path.startswith("keys/") or path.endswith(".key")]
    assert len(secrets) == 7
    assert {found[path] for path in secrets} == {0o600}


def test_the_keys_of_the_example_policy_are_those_of_its_principals(tmp_path: Path) -> None:
    files = make_domain(tmp_path / "shop", None, (), NOW).files
    (file,) = files.policy.iterdir()
    policy = yaml.safe_load(file.read_text())
    assert policy.keys() == {"headgate", "title", "types", "principals", "groups", "connect", "policy"}
    for name in ("administrator", "till", "ann"):
        key = PrivateKey.load(files.keys / f"{name}.pem")
        assert policy["principals"][name] == {"key": key.public.did}
    assert all(rule["who"] in {"till", "analysts"} for rule in policy["policy"])


STORY = """
steps:
  - subscribe: {id: sales, as: ann, type: shop.Sale}
  - publish: {id: small, as: till, type: shop.Sale, event: {item: pen, amount: 2.5, card: '4242'}}
  - publish: {id: large, as: till, type: shop.Sale, event: {item: car, amount: 9000, card: '4242'}}
  - publish: {id: forged, as: ann, type: shop.Sale, event: {item: pen, amount: 2.5}}
expect:
  deliveries: {sales: [{small: {item: pen, amount: 2.5, card: null}}]}
  rejected: {forged: publish-denied}
"""


def test_the_example_policy_does_what_its_comments_say(tmp_path: Path) -> None:
    files = make_domain(tmp_path / "shop", None, (), NOW).files
    file = tmp_path / "story.yaml"
    file.write_text((files.policy / "shop.yaml").read_text() + STORY)
    (results,) = run_all([load(file)], ["decide"], session=None, seed=0)
    assert [difference for result in results for difference in result.differences] == []


def test_a_principal_of_the_example_can_prove_itself_to_the_broker(tmp_path: Path) -> None:
    made = make_domain(tmp_path / "shop", None, (), NOW)
    binding = fingerprint(certificate_of(made.files.tls_certificate))
    gateway = Challenger(PrivateKey.load(made.files.broker_key), binding, os.urandom(32), lambda: NOW)
    ann, nonce = PrivateKey.load(made.files.keys / "ann.pem"), new_nonce()
    challenge = gateway.challenge(nonce)
    signature = prove(ann, challenge, nonce, binding, made.broker)
    assert gateway.answer(challenge.nonce, nonce, ann.public.did, signature) == ann.public


def test_two_domains_share_nothing(tmp_path: Path) -> None:
    one, two = (make_domain(tmp_path / name, None, (), NOW) for name in ("one", "two"))
    assert one.broker != two.broker
    assert one.certificate != two.certificate
    assert one.files.position_key.read_bytes() != two.files.position_key.read_bytes()
    assert expires(one.files.tls_certificate) == one.expires > NOW


@pytest.mark.skipif(shutil.which("git") is None, reason="asks git what it would ignore")
def test_secrets_stay_out_of_version_control(tmp_path: Path) -> None:
    directory = make_domain(tmp_path / "shop", None, (), NOW).files.directory
    subprocess.run(["git", "init", "-q", str(directory)], check=True)
    done = subprocess.run(
        ["git", "-C", str(directory), "ls-files", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    public = {".gitignore", "headgate.toml", "policy/shop.yaml", "statements/broker.jwt", "tls/tls.crt"}
    assert set(done.stdout.split()) == public


def test_an_empty_directory_and_a_link_to_one_will_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert run(str(tmp_path / "empty"), "--name", "shop").exit_code == 0
    assert Config.load(tmp_path / "empty").domain.name == "shop"
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert run(str(tmp_path / "link")).exit_code == 0
    assert (tmp_path / "target" / "headgate.toml").exists()


def test_an_empty_directory_stays_the_one_that_somebody_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    before = Path.cwd().stat().st_ino
    assert run(".").exit_code == 0
    assert Path.cwd() == tmp_path / "shop"
    assert Path.cwd().stat().st_ino == before
    assert not [one for one in Path.cwd().iterdir() if one.name.startswith(".shop-")]
    assert (Path.cwd() / "headgate.toml").is_file()


def test_an_empty_directory_that_fills_up_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop").mkdir()
    create = Domain.create

    def slow(directory: Path, **_: object) -> Domain:
        (tmp_path / "shop" / "file").write_text("theirs")
        return create(directory)

    monkeypatch.setattr(Domain, "create", slow)
    with pytest.raises(BadDefinition, match="cannot be replaced"):
        make_domain(tmp_path / "shop", None, (), NOW)
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")] == ["shop", "shop/file"]


def test_a_relative_directory_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("shop")
    assert result.exit_code == 0
    assert "headgate up shop" in result.output
    assert (tmp_path / "shop" / "headgate.toml").exists()


def test_the_next_commands_are_shown(tmp_path: Path) -> None:
    directory = tmp_path / "my shop"
    output = run(str(directory), "--name", "shop").output
    assert f"headgate policy apply '{directory}/policy'" in output
    assert f"headgate up '{directory}'" in output
    assert f"headgate versions --domain '{directory}/data'" in output


def content(directory: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(directory.rglob("*"))}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["taken"], "not an empty directory"),
        (["taken/file"], "not an empty directory"),
        (["nowhere/shop"], "no directory"),
        (["taken/file/shop"], "no directory"),
        (["circle"], "cannot be made"),
        (["x" * 300], "cannot be made"),
        (["my shop"], "`--name` with up to 64"),
        (["shop", "--name", ""], "domain.name"),
        (["shop", "--name", "a\nb"], "domain.name"),
        (["shop", "--host", "a b"], "neither a host name nor an address"),
        (["shop", "--host", "*"], "neither a host name nor an address"),
    ],
)
def test_a_refusal_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    before = content(tmp_path)
    result = run(*args)
    assert result.exit_code == 2
    assert says in result.output
    assert content(tmp_path) == before


def test_a_second_init_changes_nothing(tmp_path: Path) -> None:
    assert run(str(tmp_path / "shop")).exit_code == 0
    before = content(tmp_path)
    assert run(str(tmp_path / "shop")).exit_code == 2
    assert content(tmp_path) == before


def test_a_directory_that_fills_up_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone else makes the same directory while ours is being built."""
    create = Domain.create

    def slow(directory: Path, **_: object) -> Domain:
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "file").write_text("theirs")
        return create(directory)

    monkeypatch.setattr(Domain, "create", slow)
    with pytest.raises(BadDefinition, match="cannot be replaced"):
        make_domain(tmp_path / "shop", None, (), NOW)
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")] == ["shop", "shop/file"]


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(directory: Path, **_: object) -> Domain:
        raise KeyboardInterrupt

    monkeypatch.setattr(Domain, "create", stop)
    with pytest.raises(KeyboardInterrupt):
        make_domain(tmp_path / "shop", None, (), NOW)
    assert list(tmp_path.iterdir()) == []


def test_help_has_examples() -> None:
    output = run("--help").output
    assert "headgate init shop" in output
    assert "--host" in output


def test_keys_of_another_place_are_taken_as_they_are(tmp_path: Path) -> None:
    first = Files(tmp_path / "first")
    make_domain(first.directory, None, (), NOW)
    (tmp_path / "keys").mkdir()
    for key in (first.broker_key, first.admin_key, first.position_key):
        shutil.copy(key, tmp_path / "keys")
    second = Files(tmp_path / "second")
    result = run(str(second.directory), "--keys", str(tmp_path / "keys"))
    assert result.exit_code == 0, result.output
    for one, other in (
        (first.broker_key, second.broker_key),
        (first.admin_key, second.admin_key),
        (first.position_key, second.position_key),
    ):
        assert one.read_bytes() == other.read_bytes()
        assert modes(second.keys)[other.name] == 0o600
    administrator = PrivateKey.load(first.admin_key).public.did
    with Domain.open(second.data) as domain:
        assert domain.ledger.state().keys["administrator"] == administrator


@pytest.mark.parametrize(
    ("name", "words"),
    [("till.pem", "no key of a domain"), ("broker.pem", "private key"), ("positions.key", "position")],
)
def test_keys_that_are_none_leave_nothing_behind(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / name).write_text("no key")
    (tmp_path / "keys" / name).chmod(0o600)
    result = run(str(tmp_path / "shop"), "--keys", str(tmp_path / "keys"))
    assert result.exit_code == 2
    assert words in result.output
    assert not (tmp_path / "shop").exists()
