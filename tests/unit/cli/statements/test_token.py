"""`headgate token` and `headgate asyncapi`, and how all such commands connect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.trust.keys import PrivateKey
from headgate.trust.tls import client_context
from strategies.standin import SALE, StandIn, make_directory, stage


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_directory(tmp_path_factory.mktemp("domains") / "shop")


@pytest.fixture
def gateway(shop: Path) -> Iterator[StandIn]:
    with stage(shop) as start:
        yield start()


def run(*args: str):
    return CliRunner().invoke(app, list(args))


def test_a_token_works_after_the_command_has_ended(gateway: StandIn, shop: Path) -> None:
    result = run("token", "--as", "till", "--domain", str(shop))
    assert result.exit_code == 0, result.output
    context = client_context((shop / "tls" / "tls.crt").read_bytes())
    headers = {"authorization": f"Bearer {result.stdout.strip()}"}
    told = httpx.get(f"{gateway.url}/v1/sessions/current", headers=headers, verify=context, trust_env=False)
    assert told.json()["did"] == PrivateKey.load(shop / "keys" / "till.pem").public.did


def test_without_a_directory(gateway: StandIn, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    key = ["--key", str(shop / "keys" / "ann.pem")]
    certificate = ["--certificate", str(shop / "tls" / "tls.crt")]
    assert run("token", "--node", gateway.url, *key, *certificate).exit_code == 0
    monkeypatch.setenv("HEADGATE_NODE", gateway.url)
    assert run("token", *key, *certificate).exit_code == 0
    stranger = PrivateKey.generate().public.did
    assert "broker-not-trusted" in run("token", *key, *certificate, "--broker", stranger).output


def test_the_current_directory_is_the_domain(
    gateway: StandIn, shop: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(shop)
    assert run("token", "--as", "ann").exit_code == 0
    assert run("token", "--as", "ann", "--domain", str(shop / "data")).exit_code == 0
    monkeypatch.chdir(tmp_path)
    assert "not a domain" in run("token", "--as", "ann").output


@pytest.mark.parametrize("args", [[], ["--as", "ann", "--key", "x.pem"]])
def test_one_says_who_one_is(shop: Path, args: list[str]) -> None:
    result = run("token", *args, "--domain", str(shop))
    assert result.exit_code == 2
    assert "--as NAME" in result.output


def test_a_key_that_is_not_there(shop: Path) -> None:
    assert "`ann`" in run("token", "--as", "nobody", "--domain", str(shop)).output


def test_asyncapi_as_yaml_and_json(gateway: StandIn, shop: Path) -> None:
    told = yaml.safe_load(run("asyncapi", "--as", "ann", "--domain", str(shop)).stdout)
    assert told["asyncapi"] == "3.0.0"
    assert told["operations"][f"{SALE}.receive"]["x-headgate-visible"] == ["item", "amount"]
    assert told == json.loads(run("asyncapi", "--as", "ann", "--json", "--domain", str(shop)).stdout)


@pytest.mark.parametrize("command", ["publish", "subscribe", "token", "asyncapi"])
def test_help_has_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"headgate {command}" in result.output
