"""`headgate role` against a real gateway: entering, electing, revoking, looking, and how refusals are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import Batch, SetRolefile
from headgate.model.state import ADMINISTRATOR
from strategies.role_serving import NAMES, Office, office

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with office(tmp_path_factory.mktemp("conf") / "domain") as made:
        yield made


@pytest.fixture(scope="module")
def keys(conf: Office, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("keys")
    for name in (*NAMES, ADMINISTRATOR):
        conf.served.keys[name].save(made / f"{name}.pem")
    return made


@pytest.fixture
def role(conf: Office, keys: Path) -> Run:
    def run(who: str, *args: object, answer: str | None = None) -> Result:
        way = ["--node", f"http://127.0.0.1:{conf.served.port}", "--key", str(keys / f"{who}.pem")]
        environment = {"COLUMNS": "200", "NO_COLOR": "1", "HEADGATE_DOMAIN": None, "HEADGATE_NODE": None}
        return CliRunner(env=environment).invoke(app, ["role", *map(str, args), *way], input=answer)

    return run


@pytest.fixture
def offline(conf: Office) -> Run:
    def run(*args: object) -> Result:
        environment = {"COLUMNS": "200", "NO_COLOR": "1", "HEADGATE_NODE": None}
        place = str(conf.served.gateway.files.directory)
        return CliRunner(env=environment).invoke(app, ["role", *map(str, args), "--domain", place])

    return run


@pytest.fixture
def logged_on(conf: Office) -> Iterator[Callable[[str], str]]:
    """Let people be logged on, until the test is over."""
    made: list[str] = []

    def log_on(who: str) -> str:
        made.append(conf.log_on(who)["id"])
        return made[-1]

    yield log_on
    for id in made:
        conf.post(ADMINISTRATOR, "/revocations", id=id)


def good(done: Result) -> str:
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def id_of(done: Result) -> str:
    return good(done).split()[1].rstrip(":")


def test_from_a_grant_to_an_exit(role: Run, conf: Office, tmp_path: Path, logged_on: Callable[[str], str]) -> None:
    given = good(role(ADMINISTRATOR, "grant", "Login", "LoggedOn", "anna", "ely", "--to", "anna", "--for", "1h"))
    assert given.startswith("given ")
    assert "Login.LoggedOn('anna', 'ely'), until " in given
    chair = role("anna", "enter", "Conf", "Chair", "anna", "--save", tmp_path / "chair.jwt")
    assert f"entered {id_of(chair)}: Conf.Chair('anna')" in chair.stdout
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["cert", "show", str(tmp_path / "chair.jwt")])
    assert "role certificate" in shown.stdout
    assert "Conf.Chair('anna')" in shown.stdout
    assert "not verified" in shown.stdout
    assert "bad" not in shown.stdout
    assert role("anna", "enter", "Conf", "Chair", "--save", tmp_path / "chair.jwt").exit_code == 2  # never overwritten
    listed = good(role("anna", "list", "--all"))
    assert "Conf.Chair('anna')" in listed
    assert "Speaker(u: " in listed
    left = role("anna", "exit", id_of(chair))
    assert good(left) == f"left {id_of(chair)}\n"
    assert not any(one.id == id_of(chair) for one in conf.state.roles.memberships.values())
    assert role("anna", "exit", id_of(chair)).exit_code == 2
    login = next(one.id for one in conf.state.roles.held_by("anna") if one.role == "LoggedOn")
    conf.post(ADMINISTRATOR, "/revocations", id=login)


def test_an_election_is_accepted_and_taken_back(
    role: Run, conf: Office, tmp_path: Path, logged_on: Callable[[str], str]
) -> None:
    for who in ("anna", "bob", "carl"):
        logged_on(who)
    good(role("anna", "enter", "Conf", "Chair"))
    good(role("bob", "enter", "Conf", "Chair"))
    invitation, back = tmp_path / "invitation.jwt", tmp_path / "back.jwt"
    to = ("--to", "Login.LoggedOn('carl', _)")
    done = role("anna", "elect", "Conf", "Member", *to, "--for", "1h", "--save", invitation, "--revocation", back)
    assert "elected to Conf.Member(_): election " in good(done)
    kinds = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["cert", "show", str(invitation), str(back)]).stdout
    assert "delegation certificate" in kinds
    assert "whoever holds  Login" in kinds
    assert "may revoke" in kinds
    refused = role("bob", "accept", invitation)
    assert refused.exit_code == 1
    assert "role-denied" in refused.stderr
    member = id_of(role("carl", "accept", invitation))
    assert conf.holds("carl", "Member")
    (election,) = [id for id, one in conf.state.roles.elections.items() if one.role == "Member"]
    passed = good(role("anna", "pass", election, "--to", "bob"))
    (tmp_path / "bobs.jwt").write_text(passed)
    assert "(fraud" in role("carl", "revoke", back).stderr
    assert "revoked" in good(role("bob", "revoke", tmp_path / "bobs.jwt"))
    assert not conf.holds("carl", "Member")
    assert role("carl", "exit", member).exit_code == 2
    # By its delegation certificate the elector names it; it is gone already.
    assert role("anna", "revoke", invitation).exit_code == 2
    again = good(role("anna", "elect", "Conf", "Member", "--anyone", "--revoke-on-exit")).splitlines()
    assert len(again) == 2
    assert id_of(role("carl", "accept", "-", answer=again[0]))
    (election,) = conf.state.roles.elections
    assert "revoked" in good(role("anna", "revoke", election))
    assert not conf.holds("carl", "Member")


def test_a_role_is_revoked_by_role_and_reinstated(role: Run, conf: Office, logged_on: Callable[[str], str]) -> None:
    logged_on("anna")
    logged_on("dora")
    good(role("anna", "enter", "Conf", "Chair"))
    guest = id_of(role("dora", "enter", "Conf", "Guest"))
    denied = role("dora", "revoke", "Conf", "Guest", "anna")
    assert denied.exit_code == 1
    assert "revoked Conf.Guest('dora')" in good(role("anna", "revoke", "Conf", "Guest", "dora"))
    assert role("dora", "enter", "Conf", "Guest").exit_code == 1
    assert "reinstated Conf.Guest('dora')" in good(role("anna", "reinstate", "Conf", "Guest", "dora"))
    back = id_of(role("dora", "enter", "Conf", "Guest", "dora"))
    assert back != guest
    assert "revoked Conf.Guest(_) by version" in good(role("anna", "revoke", "Conf.Guest(_)"))
    assert role("dora", "enter", "Conf", "Guest").exit_code == 1
    assert "revoked     Conf.Guest(_), by you as Chair" in good(role("anna", "show", "Conf"))
    assert role("anna", "revoke", "Conf.Guest(dora)").exit_code == 2  # text stands in quotes
    assert "reinstated Conf.Guest(_)" in good(role("anna", "reinstate", "Conf.Guest(_)"))
    back = id_of(role("dora", "enter", "Conf", "Guest", "dora"))
    assert good(role("dora", "renew", "Conf", back)).count(".") == 2  # a certificate and nothing else


def test_a_revocation_waits_for_the_others_of_a_quorum(
    role: Run, offline: Run, conf: Office, logged_on: Callable[[str], str]
) -> None:
    court = parse_rolefile("Clerk(u) <- Login.LoggedOn(u, h)* |>* Conf.Chair |>* Conf.Chair\n")
    conf.served.domain.commit(Batch(ADMINISTRATOR, (SetRolefile("Court", court),)))
    for who in ("anna", "bob", "dora"):
        logged_on(who)
    good(role("anna", "enter", "Conf", "Chair"))
    good(role("bob", "enter", "Conf", "Chair"))
    clerk = id_of(role("dora", "enter", "Court", "Clerk"))
    assert "once others have as well" in good(role("anna", "revoke", "Court.Clerk('dora')"))
    waits = "Court.Clerk('dora'), by anna as Conf.Chair; not in effect until others have as well"
    assert waits in good(offline("show", "Court"))
    assert "not in effect" in good(offline("show", clerk))
    assert waits in good(offline("list", "--all"))
    assert "; not in effect" in good(role("anna", "show", "Court"))
    assert role("bob", "reinstate", "Court.Clerk('dora')").exit_code == 1
    assert "until it is reinstated" in good(role("bob", "revoke", "Court.Clerk('dora')"))
    assert "not in effect" not in good(offline("show", "Court"))
    assert role("dora", "enter", "Court", "Clerk").exit_code == 1


def test_what_is_shown_is_chosen(role: Run, conf: Office, tmp_path: Path, logged_on: Callable[[str], str]) -> None:
    mine, theirs = logged_on("anna"), conf.log_on("bob")
    assert role("anna", "enter", "Conf", "Guest", "--with", theirs["id"]).exit_code == 1
    stolen = tmp_path / "stolen.jwt"
    stolen.write_text(theirs["certificate"])
    refused = role("anna", "enter", "Conf", "Guest", "--with", stolen)
    assert refused.exit_code == 1
    assert "(fraud, stolen)" in refused.stderr
    good(role("anna", "enter", "Conf", "Guest", "--with", mine))
    conf.post(ADMINISTRATOR, "/revocations", id=theirs["id"])


def test_a_certificate_of_no_peer_does_not_count_here(role: Run, conf: Office, tmp_path: Path) -> None:
    file = tmp_path / "login.jwt"
    told = conf.log_on("anna")
    file.write_text(told["certificate"])
    done = role("anna", "present", file)
    assert done.exit_code == 1
    assert "(misuse, no-peer)" in done.stderr
    conf.post(ADMINISTRATOR, "/revocations", id=told["id"])


def test_looking_at_a_node_and_at_its_directory(
    role: Run, offline: Run, conf: Office, tmp_path: Path, logged_on: Callable[[str], str]
) -> None:
    login = logged_on("erik")
    guest = id_of(role("erik", "enter", "Conf", "Guest"))
    assert "Login.LoggedOn('erik', 'ely')" in good(role("erik", "list"))
    assert json.loads(good(role("erik", "list", "--json")))["held"][1]["id"] == guest
    assert "held by" not in good(role("erik", "graph"))  # holders are told only to those who may know
    assert "held by erik" in good(offline("graph"))
    shown = good(role("erik", "show", guest))
    assert "by a statement that is not told" in shown
    assert "Guest(u) <- Login.LoggedOn(u, h)* |>* Chair" in good(offline("show", guest))
    assert "what it rests on" in shown
    falls = good(role("erik", "graph", "--falls", login))
    assert "1 credential would fall" in falls
    assert guest in falls
    assert "Guest" in good(role("erik", "show", "Conf"))
    assert role("erik", "show", "nothing").exit_code == 2
    assert role("erik", "list", "--holder", "anna").exit_code == 2
    assert guest in good(offline("list", "--holder", "erik"))
    assert guest not in good(offline("list", "--holder", "anna"))
    assert "Guest(u) <- Login.LoggedOn(u, h)* |>* Chair" in good(offline("show", "Conf"))
    good(role("erik", "exit", guest))
    ended = good(offline("show", guest))
    assert "ended" in ended
    assert "by version" in ended
    assert "Login.LoggedOn" in good(offline("show", login))
    assert "no rolefile here" in good(offline("show", "Login"))
    assert offline("show", "nothing").exit_code == 2
    drawn = tmp_path / "all.svg"
    assert good(offline("graph", login, "--svg", drawn)) == f"drawn in {drawn}\n"
    assert login in drawn.read_text()
    assert offline("graph", login, "--falls", "other").exit_code == 2


@pytest.mark.parametrize(
    "args",
    [
        ("elect", "Conf", "Member"),
        ("elect", "Conf", "Member", "--anyone", "--to", "Login.LoggedOn"),
        ("elect", "Conf", "Member", "--anyone", "--for", "1h", "--until", "2030-01-01T00:00:00Z"),
        ("grant", "Login", "LoggedOn", "--to", "anna", "--until", "2001-01-01T00:00:00Z"),
        ("accept", "nothing.jwt"),
        ("revoke", "nothing", "--instance", "x"),
        ("enter", "Conf", "Chair\udcff"),
    ],
)
def test_bad_requests_are_refused_before_or_at_the_node(role: Run, args: tuple[str, ...]) -> None:
    done = role("anna", *args)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "eyJ0eXAiOiJoZy1kZWxlZ2F0aW9uK2p3dCJ9.e30.x"])
def test_a_file_that_is_no_certificate_is_refused(role: Run, tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.jwt"
    file.write_text(text)
    for done in (role("anna", "accept", file), role("anna", "revoke", file)):
        assert done.exit_code == 2, done.output
        assert "bad-statement" in done.stderr


def test_who_says_not_who_it_is_asks_no_node(tmp_path: Path) -> None:
    done = CliRunner(env={"HEADGATE_NODE": None}).invoke(app, ["role", "enter", "Conf", "Chair"])
    assert done.exit_code == 2
    assert "--as NAME or --key FILE" in done.stderr
    done = CliRunner(env={"HEADGATE_NODE": None}).invoke(app, ["role", "list", "--domain", str(tmp_path)])
    assert done.exit_code == 2
