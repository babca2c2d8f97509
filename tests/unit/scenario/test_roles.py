"""Roles and event policy in scenario files: what is refused with which line, what steps mean, what differs in words."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from headgate.model.changes import (
    ElectRole,
    EndCredential,
    EnterRole,
    GrantRole,
    ReinstateRole,
    RevokeRole,
    SetEventPolicy,
    SetRepresentative,
    SetRolefile,
)
from headgate.model.errors import HeadgateError
from headgate.model.expressions import Constant, RoleRef, Variable
from headgate.model.values import EPOCH
from headgate.scenario.engines.play import run_decide
from headgate.scenario.format.file import load
from headgate.scenario.format.story import RoleStep, Scenario
from headgate.scenario.run import judge

BASE = """\
headgate: 1
types:
  a.T: {owner: o, attributes: {i: int, who: string}}
principals: {o: {}, p: {}, q: {}, c: {}}
groups: {staff: [p, q]}
relations: {Status: [[p, fit]]}
certificates: [{id: cert, issuer: o, subject: c, type: a.T, actions: subscribe, freshness: 10}]
roles:
  Conf: |
    def Rights(r, u)  r : {rwx}
    Chair     <- Login.LoggedOn('p', h)
    Member(u) <- Login.LoggedOn(u, h)* <|* Chair |>* Chair : (u in staff)*
    Rights({rw}, u) <- Login.LoggedOn(u, h)
    Open(r)   <- Login.LoggedOn(u, h) : r = unixacl('other=rw', u)
representatives:
  a.T: {user: Name(who)}
events: |
  T(n, u) <= Login.LoggedOn(u, h)
policy:
  - {who: o, may: publish, type: a.T}
  - {role: Conf.Member(u), may: subscribe, type: a.T}
steps:
  - grant: {id: p-on, service: Login, role: LoggedOn, args: [p, ely], to: p}
  - grant: {id: q-on, service: Login, role: LoggedOn, args: [q, ely], to: q}
  - enter: {id: chair, service: Conf, role: Chair, as: p}
"""
BASE = BASE.replace("{Status: ", "{Name: [[x, p]], Status: ")


def scenario(tmp_path: Path, steps: str = "", expect: str = "", base: str = BASE) -> Scenario:
    (tmp_path / "f.yaml").write_text(base + steps + expect)
    return load(tmp_path / "f.yaml")


def refused(tmp_path: Path, text: str) -> str:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(HeadgateError) as caught:
        load(tmp_path / "f.yaml")
    return str(caught.value).replace(f"{tmp_path}/", "")


def differences(tmp_path: Path, steps: str = "", expect: str = "") -> list[str]:
    found = scenario(tmp_path, steps, expect)
    return [d.replace(f"{tmp_path}/", "") for d in judge(found, run_decide(found))]


def request(tmp_path: Path, step: str) -> object:
    found = scenario(tmp_path, f"  - {step}\n").steps[-1]
    assert isinstance(found, RoleStep)
    return found.request


# -- what the top of a file says ----------------------------------------------------------------------------------


def test_roles_events_and_representatives_are_of_version_one(tmp_path: Path) -> None:
    changes = [type(one) for one in scenario(tmp_path).policy.changes]
    assert changes[-3:] == [SetRepresentative, SetEventPolicy, SetRolefile]
    assert differences(tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # Lines of a literal block are lines of the file.
        ("    Chair     <- Login", "    Chair     <- <- Login", "f.yaml:11: key `roles.Conf`: "),
        ("(u in staff)*", "(u in stuff)*", "f.yaml:12: key `roles.Conf`: "),
        ("T(n, u) <=", "T(n, u) <= <=", "f.yaml:18: key `events`: "),
        ("T(n, u) <= Login", "T(n, u, x, y) <= Login", "f.yaml:18: key `events`: "),
        ("T(n, u) <= Login", "Z(n, u) <= Login", "f.yaml:18: key `events`: no event type `Z`"),
        ("Name(who)", "Name(whom)", "f.yaml:16: key `representatives.a.T`: `user` is made of `whom`"),
        ("Name(who)", "Name(", "f.yaml:16: key `representatives.a.T`"),
        ("Name(who)", "3", "is not text"),
        ("  Conf: |", '  "a\\u0007b": |', "f.yaml:9: key `roles.a"),
        # A text whose lines are folded has lines of its own.
        ("  Conf: |", "  Other: >\n    A <- <- B\n  Conf: |", "f.yaml:9: key `roles.Other`, line 1"),
        ("  Conf: |", '  Other: "A <- B\\nC <- <- D"\n  Conf: |', "f.yaml:10: key `roles.Other`"),
        ("events: |", "events: []\nx: |", "unknown key `x`"),
        ("roles:", "roles: []\nx:", "unknown key `x`"),
    ],
)
def test_what_is_wrong_in_a_text_has_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in BASE
    assert message in refused(tmp_path, BASE.replace(old, new, 1))


def test_warnings_of_the_checker_are_notes(tmp_path: Path) -> None:
    base = BASE.replace("<|* Chair |>* Chair", "<| Chair")
    found = scenario(tmp_path, base=base)
    assert [note.replace(f"{tmp_path}/", "").partition(": `")[0] for note in found.notes] == [
        "f.yaml:12: key `roles.Conf`"
    ]
    outcome = run_decide(found)
    assert outcome.notes == list(found.notes)
    assert judge(found, outcome) == []


# -- what steps ask for -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        ("", None),
        ("args: [null, q], ", (None, "q")),
        ("args: {u: q}, ", (None, "q")),
        ("args: ['rw', q], ", ("rw", "q")),
        ("args: ['{rw}', q], ", ("{rw}", "q")),
        ("args: [{rw}, q], ", (frozenset("rw"), "q")),
        ("args: [[r, w], q], ", (frozenset("rw"), "q")),
        ("args: {r: {rw}, u: q}, ", (frozenset("rw"), "q")),
    ],
)
def test_arguments_of_a_role(tmp_path: Path, args: str, asked: tuple[object, ...] | None) -> None:
    step = f"enter: {{id: m, service: Conf, role: Rights, {args}as: q}}"
    assert request(tmp_path, step) == EnterRole("m", "Conf", "Rights", asked, "q", None, EPOCH)
    assert differences(tmp_path, f"  - {step}\n  - assert: {{holds: [q, \"Conf.Rights({{rw}}, 'q')\"]}}\n") == []


def test_a_set_in_braces_is_a_set_where_no_type_says_otherwise(tmp_path: Path) -> None:
    asked = request(tmp_path, "enter: {id: m, service: Conf, role: Open, args: ['{rw}'], as: q}")
    assert isinstance(asked, EnterRole)
    assert asked.args == (frozenset("rw"),)


def test_every_request(tmp_path: Path) -> None:
    ref = RoleRef("LoggedOn", (Constant("q"), Variable("h")), "Login")
    for step, wanted in (
        (
            "grant: {id: g, service: S, role: R, args: [1], to: p, instance: i, appointment: true, until: 9}",
            GrantRole("g", "S", "R", (1,), "p", "i", True, EPOCH + timedelta(seconds=9)),
        ),
        (
            "enter: {id: m, service: Conf, role: Chair, as: p, with: [p-on], instance: i, origin: 10.0.0.1}",
            EnterRole("m", "Conf", "Chair", None, "p", ("p-on",), EPOCH, "i", "10.0.0.1"),
        ),
        (
            "elect: {id: e, service: Conf, role: Member, as: p, to: \"Login.LoggedOn('q', h)\", revoke_on_exit: true}",
            ElectRole("e", "Conf", "Member", None, "p", None, EPOCH, (ref,), None, True),
        ),
        ("revoke: {id: chair}", EndCredential("chair")),
        ("revoke: {id: chair, by: p}", EndCredential("chair", "p")),
        (
            "revoke: {service: Conf, role: Member, args: [q], by: p, with: [chair]}",
            RevokeRole("Conf", "Member", ("q",), "p", ("chair",), EPOCH),
        ),
        (
            "reinstate: {service: Conf, role: Member, args: [q], as: p}",
            ReinstateRole("Conf", "Member", ("q",), "p", None, EPOCH),
        ),
    ):
        assert request(tmp_path, step) == wanted


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("grant: {id: cert, service: S, role: R, to: p}", "`cert` is the id of a signed statement already"),
        ("grant: {id: g, service: S, role: R, to: zz}", "no principal `zz`"),
        ("grant: {id: g, service: S, role: R, args: [null], to: p}", "an argument is left open"),
        ("grant: {id: g, service: S, role: R, args: {u: 1}, to: p}", "no `def` says what the arguments of `R` are"),
        ("grant: {id: g, service: S, role: R, args: [{a: 1}], to: p}", "a mapping is no argument of a role"),
        ("enter: {id: m, service: Login, role: LoggedOn, as: p}", "no service `Login` has a rolefile"),
        ("enter: {id: m, service: Conf, role: Chairs, as: p}", "`Conf` has no role `Chairs`"),
        ("enter: {id: m, service: Conf, role: Chair, as: p, with: [zz]}", "no statement, membership or election `zz`"),
        ("enter: {id: m, service: Conf, role: Rights, args: {x: 1}, as: p}", "unknown key `x`"),
        ("elect: {id: e, service: Conf, role: Member, as: p, to: ['LoggedOn(']}", "steps[3].elect.to[0]"),
        ("elect: {id: e, service: Conf, role: Member, as: p, until: soon}", "`soon`"),
        ("revoke: {id: zz}", "no statement, membership or election `zz`"),
        ("revoke: {id: chair, role: Chair}", "`id` and `role` cannot both be given"),
        ("revoke: {id: cert, by: p}", "unknown key `by`"),
        ("revoke: {service: Conf, role: Member}", "the key `by` is missing"),
        ("pass: {id: zz, as: p, to: q}", "no statement, membership or election `zz`"),
        ("pass: {id: chair, as: p}", "the key `to` is missing"),
        ("silent: Ward", "no service of another domain `Ward`"),
        ("heard: Conf", "no service of another domain `Conf`"),
        ("change: {roles: {Conf: 'A <- <-'}}", "unexpected `<-`"),
        ("change: {roles: {Conf: 7}}", "`7` is not text"),
        ("subscribe: {id: s, as: p, type: a.T, with: [zz]}", "no statement, membership or election `zz`"),
        ("assert: {}", "nothing is claimed"),
        ("assert: {holds: [p]}", "it is no pair"),
        ("assert: {holds: []}", "it is no pair"),
        ("assert: {holds: [zz, Conf.Chair]}", "no principal `zz`"),
        ("assert: {lacks: [p, Chair]}", "`Chair` has no service"),
        ("assert: {lacks: [p, Conf.Chairs]}", "nothing gives the role `Chairs` of `Conf`"),
        ("assert: {lacks: [p, Log.LoggedOn]}", "nothing gives the role `LoggedOn` of `Log`"),
        ("assert: {lacks: [p, \"Conf.Member('a', 'b')\"]}", "`Member` has 1 arguments, not 2"),
        ("assert: {lacks: [p, 'Login.LoggedOn(u, v, w)']}", "`LoggedOn` has 2 arguments, not 3"),
        ("assert: {lacks: [p, Conf.Member(@client)]}", "`@names` have no meaning here"),
        ("assert: {state: [zz, true]}", "no statement, membership or election `zz`"),
        ("assert: {state: [chair, maybe]}", "`maybe` is no state"),
        ("assert: {state: [chair, 1]}", "`1` is no state"),
        ("change: {add: [{role: Conf.Chairs, may: subscribe, type: a.T}]}", "nothing gives the role `Chairs`"),
        (
            "assert: {denied: {step: {assert: {denied: {step: {crash: pipeline}, reason: role-denied}}}, reason: x}}",
            "an `assert` cannot be denied",
        ),
    ],
)
def test_a_step_that_is_wrong_is_refused(tmp_path: Path, step: str, message: str) -> None:
    said = refused(tmp_path, f"{BASE}  - {step}\n")
    assert message in said
    assert said.startswith("f.yaml:26")


def test_a_rule_for_a_role_that_a_rolefile_lacks_is_refused(tmp_path: Path) -> None:
    assert "nothing gives the role `Members`" in refused(
        tmp_path, BASE.replace("Conf.Member(u), may", "Conf.Members, may")
    )
    assert "has 1 arguments, not 2" in refused(
        tmp_path, BASE.replace("Conf.Member(u), may", '"Conf.Member(u, v)", may')
    )


# -- what comes of them -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ("holds: [p, Conf.Chair]", None),
        ("holds: [[p, Conf.Chair], [q, \"Login.LoggedOn('q', h)\"]], lacks: [q, Conf.Chair]", None),
        ("lacks: [p, \"Login.LoggedOn('q', h)\"]", None),
        ("holds: [p, \"Login.LoggedOn('p')\"], lacks: [p, \"Login.LoggedOn('q')\"]", None),
        ("lacks: [p, \"Conf['other'].Chair\"]", None),
        ("state: [chair, true]", None),
        ("state: [cert, false]", None),
        ("holds: [q, Conf.Chair]", "key `steps[3].assert.holds[1]`: `q` does not hold `Conf.Chair`"),
        ("lacks: [p, Conf.Chair]", "key `steps[3].assert.lacks[1]`: `p` holds `Conf.Chair`"),
        ("state: [chair, unknown]", "key `steps[3].assert.state`: `chair` is true, not unknown"),
        ("state: [[chair, true], [cert, true]]", "key `steps[3].assert.state[1]`: `cert` is false, not true"),
    ],
)
def test_claims(tmp_path: Path, claim: str, said: str | None) -> None:
    found = differences(tmp_path, f"  - assert: {{{claim}}}\n")
    assert found == ([] if said is None else [f"f.yaml:26: {said}"])


def test_a_claim_and_a_denial_in_one(tmp_path: Path) -> None:
    step = (
        "  - assert: {holds: [q, Conf.Chair], denied: {step: {enter: {service: Conf, role: %s, as: q}}, reason: %s}}\n"
    )
    assert len(differences(tmp_path, step % ("Chair", "role-denied"))) == 1
    assert differences(tmp_path, step % ("Rights", "role-denied"))[1].endswith(
        "enter `(denied)` was accepted, not denied with `role-denied`"
    )


def test_a_certificate_is_true_unknown_or_false(tmp_path: Path) -> None:
    steps = (
        "  - hear: o\n  - connect: {as: c, present: [cert]}\n  - assert: {state: [cert, true]}\n"
        "  - advance: 10\n  - assert: {state: [cert, unknown]}\n"
        "  - hear: o\n  - assert: {state: [cert, true]}\n  - revoke: {id: cert}\n  - assert: {state: [cert, false]}\n"
    )
    assert differences(tmp_path, steps) == []


def test_a_refused_request_is_a_difference_unless_it_is_listed(tmp_path: Path) -> None:
    step = "  - enter: {id: no, service: Conf, role: Chair, as: q}\n"
    (said,) = differences(tmp_path, step)
    assert said.startswith("f.yaml:26: key `steps[3].enter`: enter `no` was refused: ")
    assert said.endswith("[role-denied]")
    assert differences(tmp_path, step, "expect: {rejected: {no: role-denied}}\n") == []
    assert differences(tmp_path, "", "expect: {rejected: {chair: role-denied}}\n") == [
        "credential `chair` was accepted, expected refusal with `role-denied`"
    ]
    # What has no id to list it under can only be denied.
    (said,) = differences(tmp_path, "  - revoke: {service: Conf, role: Member, args: [q], by: q}\n")
    assert "revoke `Conf.Member('q')` was refused" in said


def test_a_value_of_another_type_is_refused_when_it_is_asked_for(tmp_path: Path) -> None:
    step = "  - enter: {id: no, service: Conf, role: Rights, args: [{z}, q], as: q}\n"
    assert differences(tmp_path, step, "expect: {rejected: {no: type-mismatch}}\n") == []


def test_versions(tmp_path: Path) -> None:
    """Each step that is not refused makes one; what is refused, and what is claimed, none."""
    steps = (
        "  - enter: {id: no, service: Conf, role: Chair, as: q}\n"
        "  - assert: {holds: [p, Conf.Chair]}\n"
        "  - elect: {id: e, service: Conf, role: Member, as: p, until: 50}\n"
        "  - enter: {id: m, service: Conf, role: Member, as: q, with: [q-on, e]}\n"
        "  - revoke: {service: Conf, role: Member, args: [q], by: p}\n"
        "  - reinstate: {service: Conf, role: Member, args: [q], as: p}\n"
        "  - revoke: {id: q-on}\n"
        "  - publish: {id: e1, as: o, type: a.T, event: {}}\n"
        "  - advance: 49\n  - publish: {id: e2, as: o, type: a.T, event: {}}\n"
        "  - advance: 60\n  - publish: {id: e3, as: o, type: a.T, event: {}}\n"
    )
    expect = "expect: {rejected: {no: role-denied}, versions: {e1: 9, e2: 9, e3: 10}}\n"
    assert differences(tmp_path, steps, expect) == []


def test_whoever_asks_must_be_let_in(tmp_path: Path) -> None:
    base = BASE.replace("headgate: 1\n", "headgate: 1\nconnect: closed\n").replace(
        "  - enter: {id: chair",
        "  - assert: {denied: {step: {revoke: {id: p-on, by: p}}, reason: connect-denied}}\n  - enter: {id: chair",
    )
    found = scenario(tmp_path, "", "expect: {rejected: {chair: connect-denied}}\n", base)
    assert judge(found, run_decide(found)) == []


def test_the_clock_may_not_be_moved_past_too_many_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.scenario.engines.play.MAX_MOMENTS", 5)
    base = BASE.replace(
        "    Chair     <- Login.LoggedOn('p', h)", "    Chair     <- Login.LoggedOn('p', h) : (weekday(@time) > 0)*"
    )
    found = scenario(tmp_path, "  - advance: 200000\n  - assert: {holds: [p, Conf.Chair]}\n", "", base)
    assert judge(found, run_decide(found)) == []
    found = scenario(tmp_path, "  - advance: 2000000\n", "", base)
    with pytest.raises(HeadgateError, match="more than MAX_MOMENTS"):
        run_decide(found)


PEERS = BASE.replace("policy:\n", "peers: {Ward: {silence: 30}}\npolicy:\n", 1)


@pytest.mark.parametrize(
    ("base", "step", "message"),
    [
        (PEERS.replace("silence: 30", "bound: 30"), "", "unknown key `bound`"),
        (PEERS.replace("silence: 30", "silence: soon"), "", "`soon` is not a whole number"),
        (PEERS.replace("silence: 30", "silence: 0"), "", "the silence of `Ward` is borne for `0` seconds"),
        (PEERS.replace("peers: {Ward", "peers: {Conf"), "", "`Conf` is a service of another domain"),
        (PEERS, "grant: {service: Ward, role: Nurse, args: [p], to: p, until: 5}", "`until` is for services of this"),
        (PEERS, "enter: {service: Ward, role: Nurse, as: p}", "no service `Ward` has a rolefile"),
    ],
)
def test_a_service_of_another_domain_that_is_wrong_is_refused(
    tmp_path: Path, base: str, step: str, message: str
) -> None:
    assert message in refused(tmp_path, f"{base}  - {step}\n" if step else base)


def test_what_a_silent_service_says_is_known_when_it_is_heard(tmp_path: Path) -> None:
    steps = """\
  - grant: {id: n, service: Ward, role: Nurse, args: [p], to: p}
  - silent: Ward
  - silent: Ward
  - revoke: {id: n}
  - assert: {state: [n, true]}
  - advance: 30
  - assert: {state: [n, unknown]}
  - heard: Ward
  - assert: {state: [n, false]}
  - revoke: {id: n}
  - publish: {id: e, as: o, type: a.T, event: {}}
expect: {versions: {e: 11}}
"""
    found = scenario(tmp_path, steps, base=PEERS)
    assert judge(found, run_decide(found)) == []
