from datetime import timedelta
from pathlib import Path

import pytest

from headgate.decide.apply import apply
from headgate.model.changes import SetConnect, SetKey
from headgate.model.errors import BadDefinition, BadExpression, BadScenario, HeadgateError
from headgate.model.rights import Action, Effect
from headgate.model.state import State
from headgate.model.values import EPOCH
from headgate.scenario.format.file import load
from headgate.scenario.format.story import ADMINISTRATOR, ChangeStep, PublishStep, Scenario, SubscribeStep

BASE = """\
headgate: 1
title: a test
types:
  a.T: {owner: o, attributes: {i: int, s: string, at: timestamp}}
principals: {o: {}, p: {attributes: {level: 2, gone: null}}}
groups: {g: [p], h: [g]}
relations: {R: [[o, p]]}
open: [g]
policy:
  - {id: r1, who: o, may: publish, type: a.T}
  - {who: h, may: [subscribe, audit], type: 'a.*', where: "i > 1", attributes: {s: x, i: any}, disclose: true}
steps:
  - subscribe: {id: s1, as: p, type: a.T}
  - publish: {id: e1, as: o, type: a.T, event: {i: 2}}
expect:
  deliveries: {s1: [{e1: {i: 2, s: null, at: null}}]}
"""


def scenario(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    return load(path)


def refused(tmp_path: Path, text: str, error: type[HeadgateError] = BadScenario) -> str:
    with pytest.raises(error) as caught:
        scenario(tmp_path, text)
    assert type(caught.value) is error
    return str(caught.value).removeprefix(str(tmp_path) + "/")


def test_members_that_are_no_principals_are_values_and_noted_where_principals_may_be_meant(tmp_path: Path) -> None:
    found = scenario(tmp_path, BASE.replace("groups: {g: [p]", "groups: {wards: [n, s], g: [p, q]"))
    assert [note.removeprefix(str(tmp_path)) for note in found.notes] == [
        "/f.yaml:6: key `groups.g`: `q` in `g` is no principal; it counts as a value"
    ]
    found = scenario(
        tmp_path, BASE.replace("groups: {g: [p]", "groups: {g: [q]")
    )  # a rule speaks to `h`, which it is in
    assert len(found.notes) == 1


def test_the_policy_is_one_batch_of_the_administrator(tmp_path: Path) -> None:
    found = scenario(tmp_path, BASE)
    assert found.title == "a test"
    assert found.policy.author == ADMINISTRATOR
    kinds = [type(change).__name__ for change in found.policy.changes]
    assert kinds == [
        "SetConnect",
        *["DeclarePrincipal"] * 2,
        *["DeclareGroup"] * 2,
        *["AddMember"] * 2,
        "DeclareRelation",
        "AddRow",
        "DeclareType",
        *["AddRule"] * 2,
    ]
    rule = found.policy.changes[-1].rule
    assert rule.id == "rule-1"
    assert rule.actions == {Action.SUBSCRIBE, Action.AUDIT}
    assert rule.attributes == ("s", "i")
    assert rule.forced == {"s": "x"}
    assert rule.disclose
    assert rule.effect is Effect.GRANT


def test_a_title_is_not_needed(tmp_path: Path) -> None:
    assert scenario(tmp_path, "headgate: 1\n").title == "f"


def test_made_up_rule_ids_avoid_given_ones(tmp_path: Path) -> None:
    text = BASE.replace("id: r1", "id: rule-1")
    ids = [change.rule.id for change in scenario(tmp_path, text).policy.changes if hasattr(change, "rule")]
    assert ids == ["rule-1", "rule-2"]


def test_expected_views_have_the_declared_kinds(tmp_path: Path) -> None:
    text = BASE.replace("at: null}", "at: '2026-01-01T10:00:00+01:00'}")
    view = scenario(tmp_path, text).expect.deliveries["s1"][0].view
    assert view is not None
    assert view["at"].isoformat() == "2026-01-01T09:00:00+00:00"


def test_the_type_and_event_of_a_published_event_are_the_gateways_to_refuse(tmp_path: Path) -> None:
    text = BASE.replace("type: a.T, event: {i: 2}}", "type: [x], event: 7}").replace(
        "deliveries: {s1: [{e1: {i: 2, s: null, at: null}}]}", "rejected: {e1: unknown-type}"
    )
    step = scenario(tmp_path, text).steps[1]
    assert isinstance(step, PublishStep)
    assert step.draft.values == 7


def test_a_change_keeps_its_order(tmp_path: Path) -> None:
    text = BASE.replace(
        "  - publish",
        "  - change: {add: [{id: r9, who: p, may: subscribe, type: a.T, first: true}], remove: [r1, r9],\n"
        "             relations: {R: {add: [[a]], remove: [[o, p]]}}, groups: {g: {remove: [p], add: [o]}}}\n"
        "  - publish",
    )
    step = scenario(tmp_path, text).steps[1]
    assert isinstance(step, ChangeStep)
    assert step.remove == ("r1", "r9")
    assert [type(c).__name__ for c in step.changes] == ["RemoveMember", "AddMember", "RemoveRow", "AddRow"]
    assert step.add[0].first


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("headgate: 1", "headgate: 2", "f.yaml:1: key `headgate`: `2` is not a format version"),
        ("headgate: 1", "headgate: true", "is not a format version"),
        ("headgate: 1", "headgate: '1'", "is not a format version"),
        ("headgate: 1\n", "", "f.yaml:1: it is not a scenario"),
        ("title: a test", "title: 7", "f.yaml:2: key `title`: `7` is not text; put it in quotes"),
        (
            "title: a test",
            "titel: x",
            "f.yaml:2: key `titel`: unknown key `titel`; perhaps `title`; known keys: `headgate`, `title`",
        ),
        ("title: a test", "connect: maybe", "f.yaml:2: key `connect`: `maybe` is neither `open` nor `closed`"),
        ("{owner: o, attributes", "{attributes", "f.yaml:4: key `types.a.T`: the key `owner` is missing"),
        ("owner: o", "owner: x", "f.yaml:4: key `types.a.T`: no principal or group `x`"),
        ("i: int", "i: integer", "f.yaml:4: key `types.a.T.attributes.i`: `integer` is not a kind of value"),
        ("{owner: o", "{owner: o, extends: a.U", "f.yaml:4: key `types.a.T`"),
        ("  a.T:", "  a.T.:", "f.yaml:4: key `types.a.T.`: `a.T.` is not a type name"),
        ("{o: {}", "{o: {}, '@administrator': {}", "`@administrator` is the domain's own principal"),
        ("{o: {}", "{o: {colour: red}", "f.yaml:5: key `principals.o.colour`: unknown key `colour`"),
        ("level: 2", "level: [2]", "f.yaml:5: key `principals.p.attributes.level`: a list is not a single value"),
        ("level: 2", "level: 9223372036854775808", "f.yaml:5: key `principals.p`: the integer"),
        ("groups: {g: [p]", "groups: {g: [7]", "f.yaml:6: key `groups.g[0]`: `7` is not text; put it in quotes"),
        (
            "  - subscribe",
            "  - change: {groups: {g: {remove: [q]}}}\n  - subscribe",
            "no principal, group or value `q`",
        ),
        ("groups: {g: [p]", "groups: {g: [h]", "f.yaml:6: key `groups.h[0]`: `g` in `h` would make the groups a cycle"),
        ("groups: {g: [p]", "groups: {p: [], g: [p]", "f.yaml:6: key `groups.p`: `p` already names"),
        ("groups: {g: [p]", "groups: {g: ", "f.yaml:6: key `groups.g`: nothing (`null`) is not a list"),
        ("relations: {R: [[o, p]]}", "relations: {R: [o]}", "f.yaml:7: key `relations.R[0]`: `o` is not a list"),
        ("[[o, p]]", "[[o, p], [o]]", "f.yaml:7: key `relations.R[1]`: a tuple of 1 values does not fit `R`"),
        ("open: [g]", "open: [x]", "f.yaml:8: key `open[0]`: no group or relation `x`"),
        ("who: o, may: publish", "who: x, may: publish", "f.yaml:10: key `policy[0]`: no principal or group `x`"),
        ("may: publish", "may: read", "f.yaml:10: key `policy[0].may`: `read` is not an action"),
        ("may: publish, type: a.T", "may: publish", "f.yaml:10: key `policy[0]`: the key `type` is missing"),
        ("may: publish, type: a.T", "may: publish, type: a.U", "f.yaml:10: key `policy[0]`: no event type `a.U`"),
        ("may: publish, type: a.T", "may: publish, type: a.T, effect: deny", "`deny` is not an effect"),
        ("may: publish, type: a.T", "may: publish, type: a.T, attributes: [x]", "f.yaml:10: key `policy[0]`"),
        ("may: publish, type: a.T", "may: publish, type: a.T, attributes: {i: null}", "null cannot be forced"),
        ("may: publish, type: a.T", "may: publish, type: a.T, attributes: {i: x}", "f.yaml:10: key `policy[0]`"),
        ("may: publish, type: a.T", "may: publish, type: a.T, effect: forbid, attributes: [i]", "forbids publishing"),
        ("{who: h, may", "{id: r1, who: h, may", "f.yaml:11: key `policy[1]`: two rules of this list have the id `r1`"),
        ("disclose: true", "disclose: 1", "f.yaml:11: key `policy[1].disclose`: `1` is neither `true` nor `false`"),
        ("as: p, type: a.T", "as: q, type: a.T", "f.yaml:13: key `steps[0].subscribe.as`: no principal `q`"),
        ("as: p, type: a.T", "as: g, type: a.T", "f.yaml:13: key `steps[0].subscribe.as`: no principal `g`"),
        ("as: p, type: a.T", "as: p, type: a.U", "f.yaml:13: key `steps[0].subscribe.type`: no type `a.U`"),
        ("as: p, type: a.T", "as: p, type: a.T, from: end", "`end` is not where to begin"),
        ("as: p, type: a.T", "as: p, type: a.T, from: true", "`True` is not where to begin"),
        ("as: p, type: a.T", "as: p, type: a.T, from: '2026-01-01T00:00:00'", "is not where to begin"),
        (
            "as: p, type: a.T",
            "as: p, type: a.T, from: {}",
            "a subscription begins at a version, at a time or at a reservation",
        ),
        ("as: p, type: a.T", "as: p, type: a.T, from: {reserved: r}", "`p` has no reservation `r`"),
        ("as: p, type: a.T", "as: p, type: a.T, from: {version: -1}", "`-1` is not a version"),
        ("as: p, type: a.T", "as: p, type: a.T, from: {version: 1.5}", "`1.5` is not a whole number"),
        ("as: p, type: a.T", "as: p, type: a.T, from: {time: soon}", "key `steps[0].subscribe.from.time`"),
        (
            "as: p, type: a.T",
            "as: p, type: a.T, from: {version: 1, time: 2}",
            "at a version, at a time or at a reservation",
        ),
        ("{o: {}", "{o: {key: did:key:z6Mkshort}", "f.yaml:5: key `principals.o.key`: `did:key:z6Mkshort` is not a"),
        ("{o: {}", "{o: {key: 7}", "f.yaml:5: key `principals.o.key`: `7` is not text"),
        ("  - subscribe", "  - type: {}\n  - subscribe", "f.yaml:13: key `steps[0].type`: no type to declare"),
        ("  - subscribe", "  - type: {a.U: {owner: x}}\n  - subscribe", "no principal or group `x`"),
        ("  - subscribe", "  - type: {a.U: {}}\n  - subscribe", "key `steps[0].type.a.U`: the key `owner` is missing"),
        ("  - subscribe", "  - retire: a.U\n  - subscribe", "f.yaml:13: key `steps[0].retire`: no type `a.U`"),
        ("  - subscribe", "  - advertise: {as: o, type: a.U}\n  - subscribe", "no type `a.U`"),
        (
            "  - subscribe",
            "  - assert: {denied: {step: {crash: pipeline}, reason: error}}\n  - subscribe",
            "a crash, an `advance` or",
        ),
        ("subscribe: {id: s1, as", "subscribe: {as", "f.yaml:13: key `steps[0].subscribe`: the key `id` is missing"),
        (
            "  - subscribe",
            "  - crash: gateway\n  - subscribe",
            "f.yaml:13: key `steps[0].crash`: `gateway` cannot crash",
        ),
        ("  - subscribe", "  - unsubscribe: {id: zz}\n  - subscribe", "f.yaml:13: key `steps[0].unsubscribe.id`"),
        ("  - subscribe", "  - wait: 5\n  - subscribe", "f.yaml:13: key `steps[0].wait`: unknown key `wait`"),
        ("  - subscribe", "  - {}\n  - subscribe", "a step has one key, and this has 0"),
        ("  - subscribe", "  - change: {remove: [r7]}\n  - subscribe", "key `steps[0].change.remove[0]`: no rule `r7`"),
        ("  - subscribe", "  - change: {groups: {x: {}}}\n  - subscribe", "no group `x`"),
        ("  - subscribe", "  - change: {relations: {x: {}}}\n  - subscribe", "no relation `x`"),
        ("  - subscribe", "  - change: {attributes: {x: {}}}\n  - subscribe", "no principal `x`"),
        ("  - subscribe", "  - change: {by: administrator}\n  - subscribe", "no principal `administrator`"),
        (
            "  - subscribe",
            "  - change: {add: [{who: p, may: subscribe, type: a.T, attributes: [zz]}]}\n  - subscribe",
            "`a.T` has no attribute `zz`",
        ),
        ("as: o, type: a.T, event", "as: o, type: a.T, at: soon, event", "f.yaml:14: key `steps[1].publish.at`"),
        ("as: o, type: a.T, event", "as: o, type: a.T, at: '2026-01-01T00:00:00', event", "has no zone"),
        (", event: {i: 2}}", "}", "f.yaml:14: key `steps[1].publish`: the key `event` is missing"),
        ("expect:", "  - publish: {id: e1, as: o, type: a.T, event: {}}\nexpect:", "two events have the id `e1`"),
        ("{s1: [{e1", "{s2: [{e1", "f.yaml:16: key `expect.deliveries.s2`: no subscription `s2`"),
        ("{s1: [{e1", "{s1: [{e2", "no event `e2`"),
        ("s: null, at: null}", "s: null, x: null}", "`a.T` has no attribute `x`"),
        (
            "{i: 2, s: null",
            "{i: two, s: null",
            "f.yaml:16: key `expect.deliveries.s1[0].e1.i`: `two` is not of kind int",
        ),
        ("  deliveries", "  rejected: {e1: nope}\n  deliveries", "`nope` is not a reason code"),
        ("  deliveries", "  versions: {e1: two}\n  deliveries", "`two` is not a whole number"),
        ("  deliveries", "  delivered: {}\n  deliveries", "unknown key `delivered`"),
        ("open: [g]", "predicates: {p: nowhere:f}", "f.yaml:8: key `predicates.p`"),
        ("open: [g]", "predicates: {p: ../x}", "`../x` is not `module:function`"),
    ],
)
def test_errors_name_the_file_the_line_and_the_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in BASE
    assert message in refused(tmp_path, BASE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("detect: {}", "is missing"),
        ("detect: {id: d, as: o, expression: 3}", "key `steps[0].detect.expression`"),
        ("detect: {id: d, as: nobody, expression: null}", "`nobody`"),
        ("detect: {id: d, as: o, expression: 'T()', bind: {x: [1]}}", "key `steps[0].detect.bind.x`"),
        ("heartbeat: {stream: main}", "`horizon`"),
        ("heartbeat: {horizon: never}", "key `steps[0].heartbeat.horizon`"),
        ("publish: {id: e, as: o, type: a.T, event: {}, time: soon}", "key `steps[0].publish.time`"),
    ],
)
def test_steps_of_composite_events_are_refused_with_their_place(tmp_path: Path, step: str, message: str) -> None:
    said = refused(tmp_path, BASE.replace("  - subscribe", f"  - {step}\n  - subscribe", 1))
    assert said.startswith("f.yaml:")
    assert message in said


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        ("{nobody: []}", "no detection `nobody`"),
        ("{d: [{x: 1}]}", "a signal says when it is"),
        ("{d: [{at: never}]}", "key `expect.signals.d[0].at`"),
        ("{d: [3]}", "key `expect.signals.d[0]`"),
    ],
)
def test_signals_that_are_none_are_refused_with_their_place(tmp_path: Path, signals: str, message: str) -> None:
    step = "  - detect: {id: d, as: o, expression: '$T(i, *, *)'}\n  - subscribe"
    text = BASE.replace("  - subscribe", step, 1).replace("  deliveries", f"  signals: {signals}\n  deliveries", 1)
    assert message in refused(tmp_path, text)


def test_a_bad_expression_in_the_policy_has_both_places(tmp_path: Path) -> None:
    said = refused(tmp_path, BASE.replace("i > 1", "i >"), BadExpression)
    assert said.startswith("f.yaml:11: key `policy[1]`, rule `rule-1`, line 1, column")


@pytest.mark.parametrize("rule", ["may: publish, type: a.T, effect: forbid", "may: subscribe, type: a.T"])
def test_attested_where_it_has_no_meaning_is_a_bad_definition_with_its_place(tmp_path: Path, rule: str) -> None:
    said = refused(tmp_path, BASE.replace("may: publish, type: a.T", f"{rule}, attested: true", 1), BadDefinition)
    assert "f.yaml:10: key `policy[0]`" in said
    assert "`attested`, which is for grants of `publish`" in said


def test_a_scenario_is_open_unless_it_says_that_it_is_closed(tmp_path: Path) -> None:
    for text, is_open in (("title: x", True), ("connect: open", True), ("connect: closed", False)):
        found = scenario(tmp_path, BASE.replace("title: a test", text))
        assert (SetConnect(True) in found.policy.changes) is is_open
        assert apply(State(administrator=ADMINISTRATOR), found.policy).connect_open is is_open


def test_a_principal_has_a_key(tmp_path: Path) -> None:
    key = "did:key:z6Mk" + "a" * 44
    found = scenario(tmp_path, BASE.replace("{o: {}", f"{{o: {{key: '{key}'}}"))
    assert SetKey("o", key) in found.policy.changes


@pytest.mark.parametrize(
    ("text", "history", "version", "seconds"),
    [
        ("now", False, 0, None),
        ("start", True, 0, None),
        ("{version: 3}", True, 3, None),
        ("3", True, 0, 3),
        ("{time: 2.5}", True, 0, 2.5),
        ("'1970-01-01T01:00:04+01:00'", True, 0, 4),
    ],
)
def test_where_a_subscription_begins(
    tmp_path: Path, text: str, history: bool, version: int, seconds: float | None
) -> None:
    step = scenario(tmp_path, BASE.replace("as: p, type: a.T", f"as: p, type: a.T, from: {text}")).steps[0]
    assert isinstance(step, SubscribeStep)
    found = step.subscriptions[0].change().subscription
    assert (found.history, found.since_version) == (history, version)
    assert found.since_time == (None if seconds is None else EPOCH + timedelta(seconds=seconds))


def test_later_steps_and_expectations_know_the_types_of_earlier_steps(tmp_path: Path) -> None:
    text = BASE.replace(
        "  - publish",
        "  - type: {a.T: {owner: o, attributes: {i: int, s: string, at: timestamp, j: int}}}"
        "\n  - change: {add: [{who: p, may: subscribe, type: a.T, attributes: [j]}]}\n  - publish",
    )
    found = scenario(tmp_path, text.replace("at: null}", "at: null, j: 2}"))
    assert found.expect.deliveries["s1"][0].view == {"i": 2, "s": None, "at": None, "j": 2}
    assert "`a.T` has no attribute `k`" in refused(tmp_path, text.replace("[j]", "[k]"))


def test_a_predicate_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    said = refused(tmp_path, BASE.replace("open: [g]", "predicates: {p: broken:f}"))
    assert "f.yaml:8: key `predicates.p`: `broken:f` cannot be loaded: ModuleNotFoundError" in said


def test_predicates_come_from_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def odd(event, size, n):\n    return n % 2 == 1\n")
    found = scenario(tmp_path, BASE.replace("open: [g]", "predicates: {odd: mine:odd}"))
    assert found.predicates == {"odd": "mine:odd"}
    assert found.functions["odd"](None, 0, 3) is True
