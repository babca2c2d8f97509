"""Rolefiles, event policy, representatives, peers and rules for roles in a policy directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.lang.render import render_event_policy, render_rolefile
from headgate.lang.rolefile import parse_role
from headgate.model.changes import Batch, EnterRole, GrantRole, SetEventPolicy
from headgate.model.errors import BadDefinition, BadExpression, BadScenario, HeadgateError
from headgate.model.limits import MAX_ROLEFILE_CHARS
from headgate.model.roles import Peer
from headgate.model.state import ADMINISTRATOR, State
from headgate.roles.requests.transition import next_state
from headgate.scenario.format.policy import Desired, plan_policy, read_policy
from strategies.small import NOON

KEY = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
BASE = """\
headgate: 1
types: {badge.Seen: {owner: o, attributes: {badge: string, room: string}}}
principals: {o: {}, rmn: {}, akl: {}}
groups: {staff: [rmn]}
relations: {Badge: [[b1, rmn]]}
policy:
  - {id: track, role: 'Met.Tracker(d, np)', may: subscribe, type: badge.Seen, where: "room = $np"}
"""
ROLES = """\
roles:
  Club: |
    Member(u) <- Login.On(u)* : (u in staff)*
"""
EVENTS = """\
representatives: {badge.Seen: {user: Badge(badge)}}
events: |
  -Seen(u, 'T14') <=
"""
MET = "Tracker(u, p) <- Club.Member(u) : p = 'T15'\n"


def directory(at: Path, **files: str) -> Path:
    for name, text in {"base": BASE, **files}.items():
        ending = "" if "__" in name else ".yaml"
        (at / f"{name.replace('__', '.')}{ending}").write_text(text)
    return at


def read(at: Path, **files: str) -> Desired:
    return read_policy(directory(at, **files), ADMINISTRATOR)


def refused(at: Path, error: type[HeadgateError] = BadScenario, **files: str) -> str:
    with pytest.raises(error) as caught:
        read(at, **files)
    return str(caught.value).replace(f"{at}/", "")


def test_everything_about_roles_is_read(tmp_path: Path) -> None:
    peers = (
        f"peers: {{CL: {{key: '{KEY}', service: Login, url: 'https://cl.example', bound: 60}}, Far: {{key: '{KEY}'}}}}"
    )
    state = read(
        tmp_path, roles=ROLES, events=EVENTS, Met__roles=MET, z__erdl="Seen(u, r) <= Club.Member(u)\n", p=peers
    ).state
    assert state.rules[0].role == parse_role("Met.Tracker(d, np)")
    assert state.rules[0].who == ""
    assert {name: render_rolefile(one).strip() for name, one in state.roles.rolefiles.items()} == {
        "Club": "Member(u) <- Login.On(u)* : (u in staff)*",
        "Met": MET.strip(),
    }
    assert render_event_policy(state.roles.policy).split("\n")[:2] == [
        "-badge.Seen(u, 'T14') <=",
        "badge.Seen(u, r) <= Club.Member(u)",
    ]
    assert list(state.roles.representatives) == ["badge.Seen"]
    assert state.roles.peers == {
        "CL": Peer("CL", KEY, "Login", 60, "https://cl.example"),
        "Far": Peer("Far", KEY, "Far", 30),
    }


def test_event_policy_is_that_of_all_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    found = read(tmp_path, b="events: \"Seen('b') <=\"", a__erdl="Seen('a') <=", c__erdl="Seen('c') <=")
    said = render_event_policy(found.state.roles.policy)
    assert [said.index(f"'{name}'") for name in "abc"] == sorted(said.index(f"'{name}'") for name in "abc")


def test_a_credential_means_the_one_service_that_has_the_role(tmp_path: Path) -> None:
    desired = read(tmp_path, roles=ROLES, e__erdl="Seen(b) <= Member(u)\n")
    assert desired.state.roles.policy.entries[0].credentials[0].service == "Club"
    now = plan_policy(State(), desired).after
    assert plan_policy(now, desired).empty


@pytest.mark.parametrize(
    ("error", "files", "said"),
    [
        (BadExpression, {"Met__roles": "Tracker(u) <-\n\nMember(u) <- (\n"}, "Met.roles, line 3"),
        (BadExpression, {"e__erdl": "Seen(u) <=\nSeen(\n"}, "e.erdl, line 2"),
        (BadScenario, {"roles": ROLES, "Club__roles": MET}, "`Club` has two rolefiles"),
        (BadScenario, {"roles": ROLES, "more": ROLES}, "`Club` is declared twice in `roles`"),
        (BadScenario, {"e__erdl": "Saw(u) <=\n"}, "no event type `Saw`"),
        (BadScenario, {"e__erdl": "Seen(u, r, x) <=\n"}, "e.erdl"),
        (BadScenario, {"p": "peers: {CL: {service: Login}}"}, "`key` is missing"),
        (BadScenario, {"p": "peers: {CL: {key: nobody}}"}, "no principal `nobody`"),
        (BadScenario, {"p": f"peers: {{CL: {{key: '{KEY}', bound: soon}}}}"}, "number of seconds"),
        (BadScenario, {"p": f"peers: {{CL: {{key: '{KEY}', bound: 0}}}}"}, "p.yaml:1"),
        (BadScenario, {"r": "policy: [{may: subscribe, type: badge.Seen}]"}, "is for `who`, or for a `role`"),
        (BadScenario, {"r": "policy: [{who: o, role: A.B, may: subscribe, type: badge.Seen}]"}, "is for `who`, or for"),
        (
            BadExpression,
            {"r": "policy: [{role: 'A.B(', may: subscribe, type: badge.Seen}]"},
            "r.yaml:1: key `policy[0]`",
        ),
        (
            BadScenario,
            {"r": "policy: [{role: 'A.B(@time)', may: subscribe, type: badge.Seen}]"},
            "`@time` has no meaning",
        ),
        (BadScenario, {"Met__roles": "x" * (4 * MAX_ROLEFILE_CHARS + 1)}, "MAX_ROLEFILE_CHARS"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(
    tmp_path: Path, error: type[HeadgateError], files: dict[str, str], said: str
) -> None:
    assert said in refused(tmp_path, error, **files)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (directory(tmp_path) / "Met.roles").write_bytes(b"\xff\xfe")
    with pytest.raises(BadScenario, match="not text in UTF-8"):
        read_policy(tmp_path, ADMINISTRATOR)


def commit(state: State, *changes: object) -> State:
    return next_state(state, Batch(ADMINISTRATOR, changes))  # type: ignore[arg-type]


def test_a_plan_says_which_memberships_a_changed_rolefile_ends(tmp_path: Path) -> None:
    now = plan_policy(State(), read(tmp_path, roles=ROLES, Met__roles=MET)).after
    now = commit(now, GrantRole("a1", "Login", "On", ("rmn",), "rmn"))
    now = commit(now, EnterRole("m1", "Club", "Member", None, "rmn", None, NOON))
    now = commit(now, EnterRole("m2", "Met", "Tracker", None, "rmn", None, NOON))
    assert plan_policy(now, read(tmp_path, roles=ROLES)).empty
    found = plan_policy(now, read(tmp_path, roles=ROLES.replace("(u in staff)*", "u = 'akl'")))
    assert {one.id for one in found.ended} == {"m1"}
    everything = plan_policy(now, read(tmp_path, roles="roles: {}"))
    assert {"m1"} <= {one.id for one in everything.ended}
    assert everything.after.roles.rolefiles.keys() == {"Met"}


def test_what_the_directory_does_not_say_ends(tmp_path: Path) -> None:
    first = plan_policy(State(), read(tmp_path, roles=ROLES, events=EVENTS)).after
    for name in ("roles", "events"):
        (tmp_path / f"{name}.yaml").unlink()
    found = plan_policy(first, read(tmp_path))
    assert SetEventPolicy in {type(one) for one in found.batch.changes}
    roles = found.after.roles
    assert (roles.rolefiles, roles.policy.entries, roles.representatives) == ({}, (), {})


def test_what_event_policy_names_may_go_with_it(tmp_path: Path) -> None:
    first = plan_policy(State(), read(tmp_path, events=EVENTS)).after
    (tmp_path / "events.yaml").unlink()
    (tmp_path / "base.yaml").write_text("headgate: 1\n")
    empty = plan_policy(first, read_policy(tmp_path, ADMINISTRATOR)).after
    assert (empty.groups, empty.relations, list(empty.types)) == ({}, {}, [])


def test_what_a_rolefile_named_may_go_after_it(tmp_path: Path) -> None:
    first = plan_policy(State(), read(tmp_path, roles=ROLES)).after
    (tmp_path / "roles.yaml").unlink()
    without = plan_policy(first, read(tmp_path)).after
    (tmp_path / "base.yaml").write_text("headgate: 1\n")
    assert plan_policy(without, read_policy(tmp_path, ADMINISTRATOR)).after.groups == {}


def test_wrong_rolefiles_are_refused_as_a_ledger_would(tmp_path: Path) -> None:
    with pytest.raises((BadScenario, BadDefinition)):
        read(tmp_path, roles="roles: {Club: 'Member(u) <- : u in nobody'}")
