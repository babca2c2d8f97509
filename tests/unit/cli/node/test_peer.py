"""`headgate peer`: what is shown before it is applied, what is printed for a policy directory, how peers stand."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.commands.peer_roles import check_may_follow
from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import Batch, DeclarePrincipal, EnterRole, MirrorRole, SetRolefile
from headgate.model.errors import SubscribeDenied
from headgate.model.roles import reference
from headgate.model.state import ADMINISTRATOR, State
from headgate.node.config import Files
from headgate.node.domain import Domain
from headgate.node.peers import Peers
from headgate.roles.certificates.remote_records import FollowCounts
from headgate.scenario.format.policy import read_policy
from headgate.trust.keys import PrivateKey

NOW = datetime.now(UTC)
CL, OTHER = (PrivateKey.generate().public.did for _ in range(2))
Run = Callable[..., Result]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    Domain.create(tmp_path / "data").close()
    Files(tmp_path).config.touch()
    return tmp_path


@pytest.fixture
def peer(place: Path) -> Run:
    def run(*args: object) -> Result:
        environment = {"COLUMNS": "200", "NO_COLOR": "1"}
        return CliRunner(env=environment).invoke(app, ["peer", *map(str, args), "--domain", str(place)])

    return run


def state(place: Path) -> State:
    with Domain.open(Files(place).data) as domain:
        return domain.ledger.state()


def commit(place: Path, *changes: object) -> None:
    with Domain.open(Files(place).data) as domain:
        domain.commit(Batch(ADMINISTRATOR, changes))  # type: ignore[arg-type]


def test_a_peer_is_added_listed_and_removed(peer: Run, place: Path) -> None:
    add = ("add", "CL", "--key", CL, "--url", "https://cl.example:8443", "--service", "Login", "--bound", "20")
    asked = peer(*add)
    assert asked.exit_code == 2
    assert "--yes" in asked.stderr
    assert not state(place).roles.peers
    done = peer(*add, "--yes")
    assert done.exit_code == 0, done.output
    assert "roles of `CL` count here" in done.output
    found = state(place).roles.peers["CL"]
    assert (found.key, found.service, found.bound, found.url) == (CL, "Login", 20, "https://cl.example:8443")
    assert "nothing to change" in peer(*add, "--yes").output
    listed = peer("list").output
    assert "never, silent" in listed
    assert "https://cl.example:8443" in listed
    gone = peer("remove", "CL", "--yes")
    assert gone.exit_code == 0, gone.output
    assert peer("list").output.startswith("no peers")
    assert peer("remove", "CL", "--yes").exit_code == 2


def test_what_rests_on_a_peer_is_shown_before_it_goes(peer: Run, place: Path) -> None:
    peer("add", "CL", "--key", CL, "--service", "Login", "--yes")
    commit(
        place,
        DeclarePrincipal("ann"),
        SetRolefile("Conf", parse_rolefile("Member(u) <- CL.LoggedOn(u, h)*")),
        MirrorRole("ann-on", "CL", "LoggedOn", ("ann", "ely"), "ann", reference(3, 4), True, NOW),
        EnterRole("ann-in", "Conf", "Member", None, "ann", None, NOW),
    )
    asked = peer("remove", "CL")
    assert asked.exit_code == 2
    assert "`ann` loses `Conf.Member('ann')` (ann-in)" in asked.output
    assert state(place).roles.memberships.keys() == {"ann-on", "ann-in"}
    with Domain.open(Files(place).data) as domain:
        known = domain.ledger.state().roles.peers["CL"]
    heard = Peers(Files(place).data / Peers.FILE)
    heard.hear(known, NOW - timedelta(hours=1), FollowCounts(2, 1, 0))
    heard.fail("CL", "nobody answers")
    heard.close()
    (told,) = json.loads(peer("list", "--json").stdout)["peers"]
    assert (told["records"], told["trouble"], told["counts"]["duplicated"]) == (1, "nobody answers", 2)
    peer("remove", "CL", "--yes")
    assert not state(place).roles.memberships


def test_a_certificate_is_kept_where_the_node_looks(peer: Run, place: Path, tmp_path: Path) -> None:
    file = tmp_path / "cl.crt"
    file.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    done = peer("add", "CL", "--key", CL, "--certificate", file, "--yes")
    assert done.exit_code == 0, done.output
    assert (Files(place).peers / "CL.crt").read_text() == file.read_text()
    file.write_text("no certificate")
    assert peer("add", "DL", "--key", CL, "--certificate", file, "--yes").exit_code == 2
    assert "DL" not in state(place).roles.peers


def test_another_domain_may_follow(peer: Run, place: Path) -> None:
    refused = peer("allow", "orl", "--service", "Login", "--yes")
    assert refused.exit_code == 2
    assert "--key" in refused.stderr
    with pytest.raises(SubscribeDenied):
        check_may_follow(state(place), ("orl", "Login"), {}, NOW)
    done = peer("allow", "orl", "--service", "Login", "--key", OTHER, "--yes")
    assert done.exit_code == 0, done.output
    now = state(place)
    assert now.key_of("orl") == OTHER
    check_may_follow(now, ("orl", "Login"), {}, NOW)
    with pytest.raises(SubscribeDenied):  # not what concerns others, nor other services
        check_may_follow(now, ("orl", "Payroll"), {}, NOW)
    assert "nothing to change" in peer("allow", "orl", "--service", "Login", "--yes").output
    assert peer("allow", "orl", "--service", "Login", "--key", CL, "--yes").exit_code == 2


def test_what_is_printed_is_the_policy_that_would_be_applied(peer: Run, place: Path, tmp_path: Path) -> None:
    policy = tmp_path / "printed"
    policy.mkdir()
    for number, args in enumerate(
        (
            ("add", "CL", "--key", CL, "--service", "Login", "--url", "https://cl.example", "--bound", "20"),
            ("allow", "orl", "--service", "Login", "--key", OTHER),
        )
    ):
        done = peer(*args, "--print")
        assert done.exit_code == 0, done.output
        assert yaml.safe_load(done.stdout)["headgate"] == 1
        (policy / f"{number}.yaml").write_text(done.stdout)
        assert state(place).version == number
        peer(*args, "--yes")
    printed, kept = read_policy(policy, ADMINISTRATOR).state, state(place)
    assert printed.roles.peers == kept.roles.peers
    assert {rule.id: (rule.who, rule.type, rule.where) for rule in printed.rules} == {
        rule.id: (rule.who, rule.type, rule.where) for rule in kept.rules if rule.who == "orl"
    }
    plan = CliRunner(env={"HEADGATE_DOMAIN": None}).invoke(app, ["policy", "plan", str(policy), "--domain", str(place)])
    assert "nothing to change" in plan.output
    check_may_follow(printed, ("orl", "Login"), {}, NOW)


@pytest.mark.parametrize(
    "args",
    [
        ("add", "CL", "--key", "did:key:nonsense"),
        ("add", "CL", "--key", "ann"),
        ("add", "", "--key", CL),
        ("add", "CL", "--key", CL, "--bound", "0"),
        ("add", "CL", "--key", CL, "--bound", "100000000"),
        ("add", "CL", "--key", CL, "--certificate", "/nothing"),
        ("add", "../CL", "--key", CL, "--certificate", "/etc/hostname"),
        ("allow", "orl", "--service", "", "--key", CL),
        ("remove", "nobody"),
    ],
)
def test_bad_peers_are_refused_and_nothing_changes(peer: Run, place: Path, args: tuple[str, ...]) -> None:
    done = peer(*args, "--yes")
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    assert state(place).version == 0
