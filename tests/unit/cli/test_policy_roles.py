"""Roles and event policy in `headgate policy`, `explain` and `restrictions`: what is said in words. No Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.commands.publishing.local import LocalPublisher
from headgate.model.changes import Batch, EnterRole, GrantRole, Subscribe
from headgate.model.events import Draft
from headgate.model.rights import Subscription
from headgate.node.config import Files
from headgate.node.domain import Domain

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BASE = """\
types: {badge.Seen: {owner: o, attributes: {badge: string, room: string}}}
principals: {o: {}, site: {}, rmn: {}, akl: {}}
groups: {staff: [rmn, akl]}
relations: {Badge: [[b1, rmn]]}
connect: open
roles:
  Club: |
    Member(u) <- Login.On(u)* : u in staff
events: |
  -Seen(u, 'T15') <= Login.On(s) : s != u
  Seen(u, r) <= Login.On(s) : Supervisor(s) = u
representatives: {badge.Seen: {user: Badge(badge)}}
policy:
  - {id: sites, who: site, may: publish, type: badge.Seen}
  - {id: members, role: Club.Member(u), may: subscribe, type: badge.Seen, where: "badge = $u", attributes: [room]}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy beside a domain that has it, and in which rmn has logged on and entered the club."""
    Domain.create(tmp_path / "data", clock=lambda: NOON).close()
    Files(tmp_path).config.touch()
    Files(tmp_path).policy.mkdir()
    (Files(tmp_path).policy / "site.yaml").write_text(
        BASE.replace("Badge: [[b1, rmn]]", "Badge: [[b1, rmn]], Supervisor: [[rmn, rmn]]")
    )
    done = run("policy", "apply", str(Files(tmp_path).policy), "--yes")
    assert done.exit_code == 0, done.output
    return Files(tmp_path).policy


@pytest.fixture
def domain(policy: Path) -> Path:
    """The domain, with an event and two subscriptions."""
    with Domain.open(policy.parent / "data", clock=lambda: NOON) as opened:
        admin = opened.ledger.administrator
        opened.commit(Batch(admin, (GrantRole("a1", "Login", "On", ("rmn",), "rmn"),)))
        opened.commit(Batch(admin, (EnterRole("m7", "Club", "Member", None, "rmn", None, NOON),)))
        opened.commit(Batch(admin, (Subscribe(Subscription("s", "rmn", "badge.Seen")),)))
        opened.commit(Batch(admin, (Subscribe(Subscription("none", "rmn", "badge.Seen", counted=())),)))
        LocalPublisher(opened, advertise=False).publish(
            Draft("e1", "site", "badge.Seen", {"badge": "b1", "room": "T14"})
        )
    return policy.parent


def run(*args: str) -> Result:
    return CliRunner(env={"COLUMNS": "300", "NO_COLOR": "1", "HEADGATE_DOMAIN": None}).invoke(app, list(args))


def words(result: Result) -> str:
    return " ".join(result.output.split())


def change(policy: Path, old: str, new: str) -> None:
    text = (policy / "site.yaml").read_text()
    assert old in text
    (policy / "site.yaml").write_text(text.replace(old, new))


def test_a_policy_that_is_applied_leaves_nothing_to_do(policy: Path) -> None:
    assert "nothing to change" in words(run("policy", "plan", str(policy), "--check"))


def test_a_plan_says_which_memberships_end_and_why(policy: Path, domain: Path) -> None:
    change(policy, "u in staff", "u = 'akl'")
    shown = run("policy", "plan", str(policy))
    assert shown.exit_code == 0, shown.output
    said = words(shown)
    assert "Roles that end `rmn` loses `Club.Member('rmn')` (m7): " in said
    assert "`rmn` - no longer sees `room` of `badge.Seen`" not in said  # event policy lets it see that all the same
    assert "`rmn` ~ sees" in said
    assert "(event policy holds)" in said
    assert "\\x00" not in said
    facts = json.loads(run("policy", "plan", str(policy), "--json").output)
    assert [(one["id"], one["who"], one["role"]) for one in facts["ended"]] == [("m7", "rmn", "Club.Member('rmn')")]


def test_what_an_audit_brings_is_no_difference_and_nothing_to_look_at(policy: Path) -> None:
    site = policy / "site.yaml"
    site.write_text(site.read_text().replace("    Member(u)", "    audit Member\n    Member(u)"))
    done = run("policy", "apply", str(policy), "--yes")
    assert done.exit_code == 0, done.output
    assert "headgate.roles announces` gives nothing" not in done.output
    again = run("policy", "plan", str(policy), "--check")
    assert again.exit_code == 0, again.output
    checked = json.loads(run("policy", "check", str(policy), "--json").stdout)
    assert "headgate.roles announces" not in json.dumps(checked)
    site.write_text(site.read_text().replace("    audit Member\n", ""))
    assert run("policy", "plan", str(policy)).exit_code == 0


def test_a_plan_says_that_roles_may_bring_more(policy: Path) -> None:
    change(policy, "attributes: [room]", "attributes: [room, badge]")
    said = words(run("policy", "plan", str(policy)))
    assert "nobody: every principal may do and see what it could before" in said
    assert "count for whoever comes to hold the roles they ask for" in said


def test_a_plan_warns_of_roles_that_nobody_has_and_of_forbids_that_can_be_left_out(policy: Path) -> None:
    change(policy, "role: Club.Member(u)", "role: Club.Membre(u)")
    said = words(run("policy", "plan", str(policy)))
    assert "`members` asks for `Club.Membre(u)`, and no service here has such a role" in said
    assert "`events.1` forbids by `Login.On(s)`, and whoever holds that need not count it for a subscription" in said


def test_check_says_who_could_see_by_a_role(policy: Path) -> None:
    change(policy, "events: |", "title: |")
    shown = run("policy", "check", str(policy), "--can-see", "badge.Seen.room")
    assert shown.exit_code == 1
    said = words(shown)
    assert "by the rule `members` (where badge = $u), once it holds `Club.Member(" in said
    assert run("policy", "check", str(policy), "--can-see", "badge.Seen.badge").exit_code == 0


def test_an_explanation_names_memberships_and_credentials(domain: Path) -> None:
    shown = run("explain", "rmn", "e1", "--domain", str(domain))
    assert shown.exit_code == 0, shown.output
    said = words(shown)
    assert "grant to Club.Member(u)" in said
    assert "holds `Club.Member('rmn')` (m7), entered by `Member(u) <- Login.On(u)* : u in staff` with a1" in said
    assert "badge.Seen(u, r) <= Login.On(s) : Supervisor(s) = u" in said
    assert "of the event: user is 'rmn', room is 'T14'" in said
    assert "holds `Login.On('rmn')` (a1), given by the service itself" in said
    assert "`Supervisor(s) = u` is true" in said
    none = words(run("explain", "rmn", "e1", "--subscription", "none", "--domain", str(domain)))
    assert "counting for event policy: no credential" in none
    assert "nothing that counts is `Login.On(s)`" in none
    own = words(run("explain", "rmn", "e1", "--as", "rmn", "--subscription", "s", "--domain", str(domain)))
    assert "Supervisor" not in own
    facts = json.loads(run("explain", "rmn", "e1", "--domain", str(domain), "--json").output)
    tried = facts["views"][0]["tried"]
    assert [one["source"] for one in tried] == ["rule", "policy", "policy"]
    assert tried[0]["membership"]["id"] == "m7"
    assert tried[2]["judged"]["entry"] == "badge.Seen(u, r) <= Login.On(s) : Supervisor(s) = u"


def test_restrictions_say_what_rests_on_credentials(domain: Path) -> None:
    said = words(run("restrictions", "s", "--domain", str(domain)))
    assert "counts for event policy: holds `Login.On('rmn')` (a1)" in said
    assert "can be satisfied: yes, unless what the event policy looks up decide otherwise" in said
    assert "as the entries below say" in said
    assert "badge = 'rmn' holds `Club.Member('rmn')` (m7)" in said
    none = words(run("restrictions", "none", "--domain", str(domain)))
    assert "sees at most" in none
    assert "room badge = 'rmn'" in none
    own = words(run("restrictions", "s", "--as", "rmn", "--domain", str(domain)))
    assert "Supervisor" not in own
    assert "under conditions that are not disclosed" in own


def test_what_shows_nothing_and_what_an_entrant_names_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(
        "headgate: 1\ntypes: {ward.Record: {owner: ward, attributes: {patient: string}}}\n"
        "principals: {ward: {}, amy: {}}\ngroups: {doctors: [amy]}\n"
        "roles: {Ward: 'Treats(d, p) <- Login.On(d)* : (d in doctors)*'}\n"
        "policy: [{id: bare, who: amy, may: subscribe, type: ward.Record, attributes: []}]\n"
    )
    found = CliRunner().invoke(app, ["policy", "check", str(tmp_path), "--json"])
    warned = {one["concern"]: one["words"] for one in json.loads(found.output)["warnings"]}
    assert warned["nothing-of-it"].endswith("sees that the event happened, and nothing of it")
    assert "nothing gives `p` of `Treats(d, p)` a value" in warned["asked-for"]
