"""Certificates, identities and requirements in scenario files: how they are read, and how they are played."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from headgate.decide.apply import apply
from headgate.lang import parse_condition
from headgate.model.authority import (
    NETWORK_ACTIONS,
    TYPE_ACTIONS,
    AttributeMap,
    NetworkAuthority,
    Provider,
    RevocationList,
    TypeAuthority,
    Validity,
)
from headgate.model.changes import (
    AddIssuing,
    Identify,
    Present,
    Revoke,
    SetCoordinator,
    SetNetwork,
    SetPolicyRule,
    SetProvider,
)
from headgate.model.errors import BadExpression, BadScenario, HeadgateError
from headgate.model.rights import Action
from headgate.model.state import State
from headgate.model.values import EPOCH
from headgate.scenario.engines.play import ScenarioOutcome, run_decide
from headgate.scenario.format.file import load
from headgate.scenario.format.story import (
    ADMINISTRATOR,
    AdvanceStep,
    CommitStep,
    ConnectStep,
    PublishStep,
    Scenario,
    SubscribeStep,
)
from headgate.scenario.run import judge

KEY = "did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH"
BASE = """\
headgate: 1
types:
  a.T: {owner: o, attributes: {i: int, s: string}}
principals: {o: {}, d: {}, p: {attributes: {level: 2}, policy_rule: "$level > 1"}, idp: {}, away: {}}
coordinator: o
providers: [{name: home, as: idp}, {name: far, as: away, mapping: {rank: level}}]
issuing: [{id: i1, who: p, type: a.*, actions: subscribe, seconds: 60}]
policy:
  - {id: pub, who: o, may: publish, type: a.T}
certificates:
  - {id: c1, issuer: o, subject: d, delegate: true, type: a.T, actions: subscribe, valid: {until: 100}}
  - {id: c2, issuer: d, subject: p, type: a.T, actions: subscribe}
identities:
  - {id: i1, issuer: idp, subject: p, attributes: {city: Leeds}, valid: {from: 10, until: 50}}
steps:
  - connect: {as: p, present: [c1, c2]}
  - subscribe: {id: s1, as: p, type: a.T}
  - publish: {id: e1, as: o, type: a.T, event: {i: 1}}
expect: {deliveries: {s1: [e1]}}
"""


def scenario(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    return load(path)


def played(tmp_path: Path, steps: str, expect: str = "{}", base: str = BASE) -> tuple[ScenarioOutcome, list[str]]:
    story = f"{base[: base.index('steps:')]}steps:\n{steps}expect: {expect}\n"
    found = scenario(tmp_path, story)
    outcome = run_decide(found)
    return outcome, [one.replace(f"{tmp_path}/", "") for one in judge(found, outcome)]


def with_steps(tmp_path: Path, steps: str) -> Scenario:
    return scenario(tmp_path, f"{BASE[: BASE.index('steps:')]}steps:\n{steps}")


# -- reading --------------------------------------------------------------------------------------------------


def test_the_first_version_has_what_is_said_of_authority(tmp_path: Path) -> None:
    found = scenario(tmp_path, BASE)
    state = apply(State(administrator=ADMINISTRATOR), found.policy)
    assert state.coordinator == "o"
    assert state.policy_rules == {"p": parse_condition("$level > 1")}
    assert state.providers == {
        "idp": Provider("idp", "home"),
        "away": Provider("away", "far", (AttributeMap("rank", "level"),)),
    }
    assert state.issuing["i1"].authority == (TypeAuthority(frozenset({Action.SUBSCRIBE}), "a.*"),)
    kinds = {type(change) for change in found.policy.changes}
    assert {SetPolicyRule, SetCoordinator, SetProvider, AddIssuing} <= kinds
    assert judge(found, run_decide(found)) == []


def test_a_connect_step_shows_certificates_and_then_identities(tmp_path: Path) -> None:
    (step,) = with_steps(tmp_path, "  - connect: {as: p, present: [i1, c2, c1, c2]}\n").steps
    assert isinstance(step, ConnectStep)
    shows, says = step.changes
    assert isinstance(shows, Present)
    assert isinstance(says, Identify)
    assert step.shown == ("i1", "c2", "c1")
    assert [one.id for one in shows.certificates] == ["c2", "c1", "c2"]
    first = shows.certificates[1]
    assert (first.issuer, first.subject, first.delegate) == ("o", "d", True)
    assert first.validity == Validity(None, EPOCH + timedelta(seconds=100))
    assert (says.principal, says.identity.attributes, says.at) == ("p", {"city": "Leeds"}, EPOCH)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("type: a.*, actions: '*'", (TypeAuthority(TYPE_ACTIONS, "a.*"),)),
        ("type: a.*, actions: publish|extend", (TypeAuthority(frozenset({Action.PUBLISH, Action.EXTEND}), "a.*"),)),
        ("network: n, actions: connect | install", (NetworkAuthority(NETWORK_ACTIONS, "n"),)),
        ("type: '*', actions: [publish, extend]", (TypeAuthority(frozenset({Action.PUBLISH, Action.EXTEND})),)),
        ("network: '*', actions: '*'", (NetworkAuthority(NETWORK_ACTIONS),)),
        ("network: police, actions: connect", (NetworkAuthority(frozenset({Action.CONNECT}), "police"),)),
        (
            "type: a.T, owner: o, actions: publish, where: 'i > 1', attributes: {i: 2, s: any}",
            (TypeAuthority(frozenset({Action.PUBLISH}), "a.T", "o", ("i", "s"), {"i": 2}, parse_condition("i > 1")),),
        ),
        (
            "authority: [{network: n, actions: install}, {type: a.T, actions: subscribe, attributes: []}]",
            (
                NetworkAuthority(frozenset({Action.INSTALL}), "n"),
                TypeAuthority(frozenset({Action.SUBSCRIBE}), "a.T", attributes=()),
            ),
        ),
    ],
)
def test_what_certificates_give(tmp_path: Path, text: str, wanted: tuple[object, ...]) -> None:
    found = scenario(tmp_path, BASE.replace("type: a.T, actions: subscribe, valid: {until: 100}", text))
    step = found.steps[0]
    assert isinstance(step, ConnectStep)
    assert isinstance(step.changes[0], Present)
    assert step.changes[0].certificates[0].authority == wanted


def test_names_stand_for_keys(tmp_path: Path) -> None:
    text = BASE.replace("{o: {}", f"{{o: {{key: '{KEY}'}}").replace("coordinator: o", f"coordinator: '{KEY}'")
    found = scenario(tmp_path, text)
    step = found.steps[0]
    assert isinstance(step, ConnectStep)
    assert isinstance(step.changes[0], Present)
    assert step.changes[0].certificates[0].issuer == KEY
    assert SetCoordinator(KEY) in found.policy.changes
    assert judge(found, run_decide(found)) == []
    other = BASE.replace("issuer: d, subject: p", f"issuer: d, subject: '{KEY}'")
    assert "chain-invalid" in str(judge(scenario(tmp_path, other), run_decide(scenario(tmp_path, other))))


@pytest.mark.parametrize(("name", "key"), [("administrator", None), ("o", "o")])
def test_the_coordinator_is_this_domain_unless_another_is_named(tmp_path: Path, name: str, key: str | None) -> None:
    found = scenario(tmp_path, BASE.replace("coordinator: o", f"coordinator: {name}"))
    assert SetCoordinator(key) in found.policy.changes


def test_a_network_may_have_a_name(tmp_path: Path) -> None:
    named = BASE.replace("coordinator: o", "coordinator: o\nnetwork: Police of the UK")
    found = scenario(tmp_path, named)
    assert SetNetwork("Police of the UK") in found.policy.changes
    assert apply(State(administrator=ADMINISTRATOR), found.policy).network == "Police of the UK"
    here, other = (
        f"  - {{id: n, issuer: o, subject: p, network: {name}, actions: connect}}\n"
        for name in ("Police of the UK", "another")
    )
    steps = "  - connect: {as: p, present: [n]}\n"
    for line, refused in ((here, {}), (other, {"0": "chain-invalid"})):
        outcome, _ = played(tmp_path, steps, base=named.replace("identities:", f"{line}identities:"))
        assert list(outcome.rejected.values()) == list(refused.values())


def test_a_guest_has_what_the_mapping_gives(tmp_path: Path) -> None:
    home = "  - {id: h, issuer: away, subject: p, attributes: {rank: 3, city: Rome}, valid: {until: 40}}\n"
    guest = "  - {id: g, issuer: idp, subject: p, guest: h, valid: {until: 40}}\n"
    text = BASE.replace("steps:", f"{home}{guest}steps:").replace("[c1, c2]", "[c1, c2, g]")
    step = scenario(tmp_path, text).steps[0]
    assert isinstance(step, ConnectStep)
    assert isinstance(step.changes[1], Identify)
    said = step.changes[1].identity
    assert (said.attributes, said.guest_of, said.origin) == ({"level": 3}, "away", "h")
    valued = text.replace("{rank: level}", "{rank: {to: level, values: [[3, high], [3.0, other]]}}")
    step = scenario(tmp_path, valued).steps[0]
    assert isinstance(step, ConnectStep)
    assert isinstance(step.changes[1], Identify)
    assert step.changes[1].identity.attributes == {"level": "high"}
    for old, new, message in (
        ("guest: h, valid: {until: 40}", "guest: h", "for longer than `h`"),
        ("guest: h, valid: {until: 40}", "guest: h, valid: {until: 41}", "for longer than `h`"),
        ("guest: h", "guest: x", "no identity statement `x`"),
        ("guest: h", "guest: i1", "`idp` is no provider of guests"),
        ("subject: p, guest: h", "subject: d, guest: h", "about another subject"),
        ("guest: h", "guest: h, attributes: {a: 1}", "the attributes that the mapping gives"),
        ("city: Rome}", "city: Rome}, policy_rule: '$a = 1'", "`h` has a policy rule, and this has none"),
    ):
        assert message in refused(tmp_path, text.replace(old, new, 1))


def refused(tmp_path: Path, text: str, error: type[HeadgateError] = BadScenario) -> str:
    with pytest.raises(error) as caught:
        scenario(tmp_path, text)
    assert type(caught.value) is error
    return str(caught.value).removeprefix(str(tmp_path) + "/")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("issuer: o, subject: d", "issuer: x, subject: d", "f.yaml:11: key `certificates[0].issuer`: no principal `x`"),
        ("issuer: o, subject: d", "issuer: o, subject: x", "f.yaml:11: key `certificates[0].subject`: no principal"),
        ("issuer: o, subject: d", "issuer: o, subject: did:key:z6Mkx", "no principal `did:key:z6Mkx`"),
        ("issuer: o, subject: d", "issuer: o", "f.yaml:11: key `certificates[0]`: the key `subject` is missing"),
        ("delegate: true", "delegate: yes", "`yes` is neither `true` nor `false`"),
        ("delegate: true", "delegated: true", "unknown key `delegated`; perhaps `delegate`"),
        ("id: c2", "id: c1", "f.yaml:12: key `certificates[1]`: two certificates have the id `c1`"),
        ("{id: i1, issuer: idp", "{id: c1, issuer: idp", "key `identities[0]`: two statements have the id `c1`"),
        ("type: a.T, actions: subscribe, valid", "actions: subscribe, valid", "over a `type` or over a `network`"),
        ("type: a.T, actions", "type: a.T, network: n, actions", "over a `type` or over a `network`"),
        ("type: a.T, actions: subscribe, valid", "type: a.T, valid", "the key `actions` is missing"),
        ("type: a.T, actions: subscribe, valid", "type: a.T, actions: connect, valid", "`connect` is not an action"),
        ("type: a.T, actions: subscribe, valid", "network: n, actions: publish, valid", "connect, install, or `*`"),
        ("actions: subscribe, valid", "actions: publish|govern, valid", "[0].actions`: `govern` is not an action here"),
        ("actions: subscribe, valid", "actions: publish|, valid", "certificates[0].actions`: `` is not an action here"),
        ("actions: subscribe, valid", "actions: publish|*, valid", "`*` is not an action here"),
        ("type: a.T, actions: subscribe, valid", "type: a.T, actions: [], valid", "authority over a type is of"),
        ("type: a.T, actions: subscribe, valid", "type: a..T, actions: '*', valid", "key `certificates[0]`"),
        ("type: a.T, actions: subscribe, valid", "network: n, actions: '*', where: 'true', valid", "has no `where`"),
        ("actions: subscribe, valid", "actions: subscribe, authority: [], valid", "cannot both be given"),
        ("type: a.T, actions: subscribe, valid", "authority: [], valid", "1 to MAX_AUTHORITIES (16)"),
        ("actions: subscribe, valid", "actions: subscribe, freshness: 0, valid", "`0` seconds of silence"),
        ("valid: {until: 100}", "valid: {until: soon}", "f.yaml:11: key `certificates[0].valid.until`"),
        ("valid: {until: 100}", "valid: {to: 100}", "unknown key `to`"),
        ("valid: {until: 100}", "valid: {from: 100, until: 100}", "a statement ends after it begins"),
        ("{city: Leeds}", "{city: null}", "null is no value of an attribute"),
        ("{city: Leeds}", "{city: [1]}", "a list is not a single value"),
        ("coordinator: o", "network: '*'", "f.yaml:5: key `network`: a network is not called `*`"),
        ("coordinator: o", "coordinator: x", "f.yaml:5: key `coordinator`: no principal `x`"),
        ("as: idp}", "as: x}", "f.yaml:6: key `providers[0].as`: no principal `x`"),
        ("name: far", "name: home", "two providers are `home`"),
        ("as: away", "as: idp", "two providers are `idp`"),
        ("{rank: level}", "{rank: {to: level, values: [[1]]}}", "one of theirs and one of ours"),
        ("{rank: level}", "[rank]", "a list is not a mapping"),
        ("who: p, type: a.*", "who: x, type: a.*", "f.yaml:7: key `issuing[0]`: no principal or group `x`"),
        ("seconds: 60", "seconds: 0", "issues for `0` seconds"),
        ("present: [c1, c2]", "present: [c9]", "f.yaml:16: key `steps[0].connect.present[0]`: no statement `c9`"),
        ("present: [c1, c2]", "shows: [c1]", "unknown key `shows`"),
        ("connect: {as: p", "connect: {as: x", "no principal `x`"),
        (
            "  - connect",
            "  - revoke: {id: c9}\n  - connect",
            "key `steps[0].revoke.id`: no statement, membership or election `c9`",
        ),
        ("  - connect", "  - revoke: {}\n  - connect", "nothing is revoked"),
        ("  - connect", "  - hear: x\n  - connect", "key `steps[0].hear`: no principal `x`"),
        ("  - connect", "  - advance: soon\n  - connect", "f.yaml:16: key `steps[0].advance`"),
        ("  - connect", "  - advance: 9\n  - advance: 8\n  - connect", "f.yaml:17: key `steps[1].advance`: the clock"),
        (
            "  - connect",
            "  - advance: '1960-01-01T00:00:00Z'\n  - connect",
            "at 0 (1970-01-01T00:00:00Z) already, and never goes back; write",
        ),
        ("expect: {", "expect: {rejected: {i1: expired}, ", "no event `i1`"),
    ],
)
def test_errors_name_the_file_the_line_and_the_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in BASE
    assert message in refused(tmp_path, BASE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"$level > 1"', '"$level >"'),
        ('"$level > 1"', '"i > 1"'),
        ("actions: subscribe, valid", "actions: subscribe, where: 'i >', valid"),
        ("{city: Leeds}", "{city: Leeds}, policy_rule: '$a >'"),
    ],
)
def test_bad_expressions_are_named_with_their_place(tmp_path: Path, old: str, new: str) -> None:
    said = refused(tmp_path, BASE.replace(old, new, 1), BadExpression)
    assert said.startswith("f.yaml:")
    assert said.count("f.yaml") == 1, "the place is given once, the most exact"


ON_TYPE = "type: a.T, actions: subscribe"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("type: a.Nope, actions: subscribe", "f.yaml:12: key `certificates[1].type`: no type `a.Nope`; declare it"),
        (f"{ON_TYPE}, attributes: [i, x]", "f.yaml:12: key `certificates[1].attributes`: `a.T` has no attribute `x`"),
        (f"{ON_TYPE}, attributes: {{i: one}}", "key `certificates[1].attributes.i`: `one` is not of kind int"),
        (f"authority: [{{{ON_TYPE}, attributes: {{i: one}}}}]", "key `certificates[1].authority[0].attributes.i`"),
    ],
)
def test_a_certificate_on_one_type_must_fit_it(tmp_path: Path, given: str, message: str) -> None:
    assert BASE.count(f"{ON_TYPE}}}") == 1
    assert message in refused(tmp_path, BASE.replace(f"{ON_TYPE}}}", f"{given}}}"))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("i = 'x'", "`i = 'x'` compares int with string"),
        ("x = 1", "`a.T` has no attribute `x`"),
        ("s in group nobody", "no group `nobody`"),
    ],
)
def test_and_so_must_its_condition(tmp_path: Path, where: str, message: str) -> None:
    text = BASE.replace(f"{ON_TYPE}}}", f'{ON_TYPE}, where: "{where}"}}')
    said = refused(tmp_path, text, BadExpression)
    assert said.startswith(f"f.yaml:12: key `certificates[1].where`: {message}")
    assert said.count("f.yaml") == 1
    assert scenario(tmp_path, text.replace("subject: p, type: a.T", "subject: p, type: a.*")).steps, "patterns are free"


def test_a_type_of_a_later_step_is_declared(tmp_path: Path) -> None:
    late = BASE.replace(f"{ON_TYPE}}}", "type: a.Late, actions: subscribe, attributes: [n], where: 'n > 1'}")
    assert "no type `a.Late`" in refused(tmp_path, late)
    step = "steps:\n  - type: {a.Late: {owner: o, attributes: {n: int}}}\n"
    assert scenario(tmp_path, late.replace("steps:\n", step)).steps
    grown = BASE.replace(f"{ON_TYPE}}}", f"{ON_TYPE}, attributes: [late]}}")
    step = "steps:\n  - type: {a.T: {owner: o, attributes: {i: int, s: string, late: int}}}\n"
    assert scenario(tmp_path, grown.replace("steps:\n", step)).steps


# -- whose network it is --------------------------------------------------------------------------------------


def coordinators(tmp_path: Path, certificates: str, principals: str = "") -> list[str | None]:
    text = BASE.replace("coordinator: o\n", "").replace("{o: {}", f"{{{principals}o: {{}}")
    found = scenario(tmp_path, text.replace("certificates:\n", f"certificates:\n{certificates}"))
    return [change.key for change in found.policy.changes if isinstance(change, SetCoordinator)]


def over(id: str, issuer: str, subject: str) -> str:
    return f"  - {{id: {id}, issuer: {issuer}, subject: {subject}, delegate: true, network: n, actions: connect}}\n"


def test_the_one_who_gives_the_network_and_was_not_given_it_coordinates(tmp_path: Path) -> None:
    assert coordinators(tmp_path, "") == []
    assert coordinators(tmp_path, over("n1", "d", "p") + over("n2", "o", "d")) == ["o"]
    two = over("n1", "o", "p") + over("n2", "d", "p")
    assert coordinators(tmp_path, two) == [], "two are as good as none"
    assert coordinators(tmp_path, over("n1", "o", "d") + over("n2", "d", "o")) == [], "and so is a circle"
    ours = over("n1", "administrator", "d") + over("n2", "o", "d")
    assert coordinators(tmp_path, ours) == [], "this domain gives it itself"


def test_a_declared_administrator_is_the_administrator_and_coordinates(tmp_path: Path) -> None:
    mine = over("n1", "o", "d")
    assert coordinators(tmp_path, mine, "administrator: {}, ") == ["administrator"]
    assert coordinators(tmp_path, mine, f"administrator: {{key: '{KEY}'}}, ") == [KEY]
    base = BASE.replace("headgate: 1", "headgate: 1\nconnect: closed").replace("coordinator: o\n", "")
    base = base.replace("{o: {}", "{administrator: {attributes: {level: 9}}, o: {}")
    base = base.replace("certificates:\n", f"certificates:\n{over('n1', 'administrator', 'p')}")
    steps = """\
  - connect: {as: p, present: [n1]}
  - connect: {as: administrator}
  - change: {by: administrator, add: [{who: administrator, may: subscribe, type: '*', where: "$level = 9"},
                                      {who: o, may: connect}]}
  - subscribe: {id: s1, as: administrator, type: a.T}
  - publish: {id: e1, as: o, type: a.T, event: {i: 1}}
"""
    assert played(tmp_path, steps, "{deliveries: {s1: [e1]}, versions: {e1: 5}}", base)[1] == []


# -- time -----------------------------------------------------------------------------------------------------


def test_events_have_the_time_of_the_story_unless_they_say_otherwise(tmp_path: Path) -> None:
    steps = with_steps(
        tmp_path,
        "  - publish: {id: a, as: o, type: a.T, event: {}}\n  - advance: 30\n"
        "  - publish: {id: b, as: o, type: a.T, event: {}}\n"
        "  - publish: {id: c, as: o, type: a.T, at: 7, event: {}, origin: 10.0.0.1, requires: '$x = 1'}\n"
        "  - subscribe: {id: s, as: p, type: a.T, origin: 10.0.0.2, requires: true}\n",
    ).steps
    times = [(step.at - EPOCH).total_seconds() for step in steps if isinstance(step, PublishStep)]
    assert times == [0, 30, 7]
    last = steps[3]
    assert isinstance(last, PublishStep)
    assert (last.sent().origin, last.sent().requires) == ("10.0.0.1", parse_condition("$x = 1"))
    wish = steps[4]
    assert isinstance(wish, SubscribeStep)
    made = wish.subscriptions[0].change().subscription
    assert (made.origin, made.requires) == ("10.0.0.2", parse_condition("true"))


def test_the_clock_passes_each_end_once(tmp_path: Path) -> None:
    steps = with_steps(tmp_path, "  - advance: 9\n  - advance: 50\n  - advance: 99.5\n  - advance: 1000\n").steps
    passed = [[(at - EPOCH).total_seconds() for at in s.passed] for s in steps if isinstance(s, AdvanceStep)]
    assert passed == [[], [50], [], [100]]


def test_the_clock_may_be_told_to_stand_still(tmp_path: Path) -> None:
    steps = "  - advance: 0\n  - advance: 60\n  - advance: 60\n  - publish: {id: e1, as: o, type: a.T, event: {}}\n"
    passed = [step.passed for step in with_steps(tmp_path, steps).steps if isinstance(step, AdvanceStep)]
    assert [len(one) for one in passed] == [0, 1, 0]
    assert played(tmp_path, steps, "{versions: {e1: 2}}")[1] == []


def test_lists_are_numbered_and_whole(tmp_path: Path) -> None:
    text = (
        "  - revoke: {id: c1}\n  - hear: o\n  - revoke: {id: c2}\n  - advance: 5\n  - hear: o\n  - revoke: {id: c1}\n"
    )
    denied = "  - assert: {denied: {step: {revoke: {id: c1}}, reason: stale-list}}\n"
    lists = []
    for step in with_steps(tmp_path, denied + text).steps:
        if isinstance(step, CommitStep):
            (change,) = step.changes
            assert isinstance(change, Revoke)
            lists.append(change.list)
    later = EPOCH + timedelta(seconds=5)
    assert lists == [
        RevocationList("o", 1, EPOCH, frozenset({"c1"})),
        RevocationList("o", 1, EPOCH, frozenset({"c1"})),
        RevocationList("d", 1, EPOCH, frozenset({"c2"})),
        RevocationList("o", 1, later, frozenset({"c1"})),
        RevocationList("o", 2, later, frozenset({"c1"})),
    ]


# -- playing --------------------------------------------------------------------------------------------------


def test_a_refused_connect_is_a_difference_and_takes_up_nothing(tmp_path: Path) -> None:
    steps = "  - connect: {as: p, present: [c2]}\n  - publish: {id: e1, as: o, type: a.T, event: {}}\n"
    outcome, found = played(tmp_path, steps, "{versions: {e1: 1}}")
    assert len(found) == 1
    assert found[0].startswith("f.yaml:16: key `steps[0].connect`: connect `p` was refused: ")
    assert "[chain-invalid]" in found[0]
    assert outcome.rejected == {"c2": "chain-invalid"}
    assert played(tmp_path, steps, "{rejected: {c2: chain-invalid}}")[1] == []
    assert played(tmp_path, steps, "{rejected: {c2: revoked}}")[1] == [
        found[0],
        "statement `c2` was refused with `chain-invalid`, expected `revoked`",
    ]
    good = "  - connect: {as: p, present: [c1, c2]}\n"
    assert played(tmp_path, good, "{rejected: {c2: revoked}}")[1] == [
        "statement `c2` was accepted, expected refusal with `revoked`"
    ]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("connect: {as: p, present: [c2]}", "chain-invalid"),
        ("connect: {as: p, present: [i1]}", "chain-invalid"),
        ("connect: {as: p}", "connect-denied"),
        ("connect: {as: p, present: [c1, c2]}", "connect-denied"),
        ("connect: {as: d}", "connect-denied"),
        ("subscribe: {as: o, type: a.T, requires: 'i > 1'}", "bad-expression"),
        ("publish: {as: o, type: a.T, event: {}, requires: '$i >'}", "bad-expression"),
    ],
)
def test_what_can_be_denied(tmp_path: Path, step: str, reason: str) -> None:
    base = BASE.replace("headgate: 1", "headgate: 1\nconnect: closed").replace(
        "policy:\n", "policy:\n  - {who: o, may: connect}\n"
    )
    steps = f"  - assert: {{denied: {{step: {{{step}}}, reason: {reason}}}}}\n"
    more = "  - publish: {id: e1, as: o, type: a.T, event: {}}\n"
    assert played(tmp_path, steps + more, "{versions: {e1: 1}}", base)[1] == []


def test_whoever_a_chain_lets_in_may_connect(tmp_path: Path) -> None:
    base = BASE.replace("headgate: 1", "headgate: 1\nconnect: closed").replace(
        "certificates:\n",
        "certificates:\n  - {id: n, issuer: o, subject: p, network: '*', actions: connect, valid: {until: 20}}\n",
    )
    steps = """\
  - connect: {as: p, present: [n]}
  - connect: {as: p, present: [c1, c2]}
  - subscribe: {id: s1, as: p, type: a.T}
  - connect: {as: p}
  - advance: 20
  - assert: {denied: {step: {connect: {as: p}}, reason: connect-denied}}
  - assert: {denied: {step: {unsubscribe: {id: s1}}, reason: connect-denied}}
"""
    assert played(tmp_path, steps, base=base)[1] == []


def test_every_end_is_a_version(tmp_path: Path) -> None:
    steps = "".join(
        f"  - {one}\n"
        for one in (
            "connect: {as: p, present: [c1, c2]}",  # 2
            "subscribe: {id: s1, as: p, type: a.T}",  # 3
            "advance: 49",
            "publish: {id: e1, as: o, type: a.T, event: {}}",
            "advance: 60",  # 4: an identity that nobody has shown
            "publish: {id: e2, as: o, type: a.T, event: {}}",
            "hear: d",  # 5
            "revoke: {id: i1}",  # 6
            "advance: 500",  # 7
            "publish: {id: e3, as: o, type: a.T, event: {}}",
        )
    )
    assert played(tmp_path, steps, "{deliveries: {s1: [e1, e2]}, versions: {e1: 3, e2: 4, e3: 7}}")[1] == []


def test_a_silent_issuer_makes_a_version_too(tmp_path: Path) -> None:
    base = BASE.replace("delegate: true,", "delegate: true, freshness: 5,")
    steps = "".join(
        f"  - {one}\n"
        for one in (
            "hear: o",  # 2
            "connect: {as: p, present: [c1, c2]}",  # 3
            "subscribe: {id: s1, as: p, type: a.T}",  # 4
            "advance: 5",  # 5
            "publish: {id: e1, as: o, type: a.T, event: {}}",
            "hear: o",  # 6
            "publish: {id: e2, as: o, type: a.T, event: {}}",
        )
    )
    assert played(tmp_path, steps, "{deliveries: {s1: [e2]}, versions: {e1: 5, e2: 6}}", base)[1] == []
