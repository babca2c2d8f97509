"""A directory of files is one policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.analysis.plan import same_policy
from headgate.decide.apply import apply
from headgate.lang import parse_condition
from headgate.model.changes import Batch, SetKey
from headgate.model.errors import BadDefinition, BadExpression, BadScenario, HeadgateError, NotFound
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.values import Kind
from headgate.scenario.format.policy import MAX_FILES, Desired, plan_policy, read_policy

KEY = "did:key:z6Mk" + "a" * 44
TYPES = """\
headgate: 1
title: the types
types:
  a.U: {owner: o, extends: a.T, attributes: {u: int}}
"""
MORE = """\
types:
  a.T: {owner: o, attributes: {i: int, s: string}, key: [i]}
principals:
  o: {key: KEY}
  p: {attributes: {level: 2}}
groups: {g: [p], h: [g]}
relations: {R: [[o, p]]}
open: [g, R]
policy:
  - {id: last, who: h, may: subscribe, type: a.T, where: "i > 1"}
  - {who: o, may: publish, type: 'a.*'}
""".replace("KEY", KEY)
FIRST = "policy: [{id: first, who: o, may: connect}]\n"


def policy(directory: Path, **files: str) -> Desired:
    for name, text in files.items():
        path = directory / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return read_policy(directory, ADMINISTRATOR)


def refused(directory: Path, error: type[HeadgateError] = BadScenario, **files: str) -> str:
    with pytest.raises(error) as caught:
        policy(directory, **files)
    assert type(caught.value) is error
    return str(caught.value).replace(f"{directory}/", "")


def test_the_files_are_read_in_order_of_their_names(tmp_path: Path) -> None:
    found = policy(tmp_path, b=MORE, a=FIRST, d=TYPES, c__x="policy: [{id: mid, who: p, may: audit, type: a.T}]\n")
    state = found.state
    assert [rule.id for rule in state.rules][:2] == ["first", "last"]
    assert [rule.id for rule in state.rules][3:] == ["mid"]
    assert {rule.author for rule in state.rules} == {ADMINISTRATOR}
    assert list(state.types) == ["a.T", "a.U"]  # parents first, whichever file they are in
    assert dict(state.types.attributes("a.U")) == {"i": Kind.INT, "s": Kind.STRING, "u": Kind.INT}
    assert state.keys == {"o": KEY}
    assert state.groups == {"g": {"p"}, "h": {"g"}}
    assert state.open_names == {"g", "R"}
    assert state.principals["p"] == {"level": 2}
    assert str(found.places["a.U"]).endswith("d.yaml:4: key `types.a.U`")


def test_only_yaml_one_level_down_counts(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("{{{")
    (tmp_path / ".hidden.yaml").write_text("{{{")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.yaml").write_text("{{{")
    (tmp_path / "a" / "d.yml").write_text("principals: {p: {}}")
    assert set(policy(tmp_path).state.principals) == {"p"}


def test_a_directory_is_closed_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert not policy(tmp_path, a="headgate: 1").state.connect_open
    assert not policy(tmp_path, a="connect: closed").state.connect_open
    assert policy(tmp_path, a="connect: open").state.connect_open


def test_a_rule_without_an_id_keeps_the_one_it_gets(tmp_path: Path) -> None:
    rule = "{who: p, may: subscribe, type: '*', where: 'x > 1'}"
    other = "{who: p, may: publish, type: '*'}"

    def ids(*rules: str) -> list[str]:
        state = policy(tmp_path, a=f"principals: {{p: {{}}}}\npolicy: [{', '.join(rules)}]").state
        return [one.id for one in state.rules]

    alone = ids(rule)
    assert ids(other, rule) == [ids(other)[0], *alone]
    twice = ids(rule, rule)
    assert twice[0] == alone[0]
    assert twice[1] != alone[0]


def test_predicates_stand_beside_their_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mine.py").write_text("def odd(event, size):\n    return True\n")
    rule = "policy: [{who: p, may: publish, type: '*', where: predicate odd()}]"
    found = policy(tmp_path, a=f"principals: {{p: {{}}}}\n{rule}", in__b="predicates: {odd: 'mine:odd'}")
    ((registered, beside),) = found.predicates
    assert (registered.name, registered.target, beside) == ("odd", "mine:odd", tmp_path / "in")
    assert found.state.predicates == {"odd": registered}


def test_the_administrator_may_have_a_key_and_nothing_else(tmp_path: Path) -> None:
    state = policy(tmp_path, a=f"principals: {{administrator: {{key: '{KEY}'}}}}").state
    assert state.keys == {ADMINISTRATOR: KEY}
    assert state.principals == {}
    assert "the domain's own principal" in refused(tmp_path, a="principals: {administrator: {}}")
    assert "the domain's own principal" in refused(tmp_path, a="principals: {administrator: {attributes: {a: 1}}}")


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (
            MORE,
            "principals: {p: {}}",
            "b.yaml:1: key `principals.p`: `p` is declared twice in `principals`; it is in a.",
        ),
        (MORE, "groups: {x: [], g: []}", "it is in a.yaml:6: key `groups.g` already"),
        (MORE, "types: {a.T: {owner: o}}", "it is in a.yaml:2: key `types.a.T` already"),
        (MORE, "relations: {R: []}", "`R` is declared twice in `relations`"),
        (MORE, "policy: [{id: last, who: p, may: connect}]", "two rules have the id `last`; the other is in a.yaml:10"),
        ("connect: open", "connect: open", "b.yaml:1: key `connect`: `connect` is given twice; it is in a.yaml:1"),
        (MORE, "principals: {g: {}}", "`g` already names a principal or group"),
        (MORE, "steps: []", "b.yaml:1: key `steps`: unknown key `steps`"),
        (MORE, "expect: {}", "b.yaml:1: key `expect`: unknown key `expect`"),
        (MORE, "\nprincipal: {x: {}}", "b.yaml:2: key `principal`: unknown key `principal`; perhaps `principals`"),
        (MORE, "headgate: 2", "b.yaml:1: key `headgate`: `2` is not a format version"),
        (MORE, "open: [nobody]", "b.yaml:1: key `open[0]`: no group or relation `nobody`"),
        (
            MORE,
            "policy: [{id: x, who: p, may: connect, first: true}]",
            "b.yaml:1: key `policy[0].first`: `first` has no",
        ),
        (MORE, "policy: [{who: z, may: connect}]", "b.yaml:1: key `policy[0]`: no principal or group `z`"),
        (MORE, "policy: [7]", "b.yaml:1: key `policy[0]`: `7` is not a mapping"),
        (MORE, "[1]", "b.yaml:1: a list is not a mapping"),
        (MORE, "types: {a.V: {owner: o, extends: a.W}, a.W: {owner: o, extends: a.V}}", "which is not declared"),
        (MORE, "principals: {q: {key: nonsense}}", "b.yaml:1: key `principals.q.key`: `nonsense` is not a public key"),
        (MORE, f"principals: {{q: {{key: '{KEY}'}}}}", "b.yaml:1: key `principals.q.key`: `o` already has the key"),
        (MORE, "predicates: {f: 'nowhere:f'}", "b.yaml:1: key `predicates.f`"),
        (MORE, "", "b.yaml: the file is empty"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, a: str, b: str, said: str) -> None:
    assert said in refused(tmp_path, a=a, b=b)


def test_other_refusals(tmp_path: Path) -> None:
    rule = "principals: {p: {}}\npolicy: [{id: x, who: p, may: publish, type: '*', where: 'a >'}]"
    assert "a.yaml:2: key `policy[0]`, rule `x`, line 1" in refused(tmp_path, BadExpression, a=rule)
    with pytest.raises(NotFound, match="no policy directory"):
        read_policy(tmp_path / "none", ADMINISTRATOR)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match=r"no `\.yaml` file"):
        read_policy(tmp_path / "empty", ADMINISTRATOR)


def test_there_are_only_so_many_files(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        (tmp_path / f"{number}.yaml").touch()
    assert "MAX_FILES" in refused(tmp_path)


# -- plans ----------------------------------------------------------------------------------------------------


def test_a_plan_makes_the_ledger_say_what_the_directory_says(tmp_path: Path) -> None:
    desired = policy(tmp_path, a=MORE, b=TYPES)
    made = plan_policy(State(), desired)
    assert same_policy(made.after, desired.state)
    assert made.expect == 0
    assert plan_policy(made.after, policy(tmp_path)).empty


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (", s: string", ", t: string", "`a.T` loses its attribute `s`; keep `s: string`; attributes can only be added"),
        ("i: int", "i: float", "the attribute `i` of `a.T` becomes float; keep `i: int`"),
        ("{owner: o, attributes: {i", "{owner: p, attributes: {i", "the owner of `a.T` is `o`, and cannot become `p`"),
        (", key: [i]", "", "the key of `a.T` is `i`, and cannot become `none`"),
    ],
)
def test_a_type_that_would_be_another_is_refused_with_its_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = MORE.replace(', where: "i > 1"', "")
    now = plan_policy(State(), policy(tmp_path, a=text)).after
    changed = text.replace(old, new, 1)
    assert changed != text
    with pytest.raises(BadDefinition) as caught:
        plan_policy(now, policy(tmp_path, a=changed))
    assert said in str(caught.value)
    assert "a.yaml:2: key `types.a.T`" in str(caught.value)


# -- authority --------------------------------------------------------------------------------------------------------

AUTHORITY = """\
coordinator: COORDINATOR
network: police
principals: {p: {policy_rule: "$level > 1"}, o: {}}
groups: {g: [p]}
providers: [{name: us, as: administrator}, {name: them, as: COORDINATOR, mapping: {rank: level}}]
issuing: [{id: day, who: g, type: 'a.*', actions: subscribe, attributes: {i: 1, s: any}, seconds: 3600}]
"""
OTHER_KEY = "did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH"


def test_authority_is_planned_and_then_there_is_nothing_left_to_plan(tmp_path: Path) -> None:
    text = AUTHORITY.replace("COORDINATOR", OTHER_KEY)
    now = apply(State(), Batch(ADMINISTRATOR, (SetKey(ADMINISTRATOR, KEY),)))
    desired = policy(tmp_path, a=text, b="issuing: [{id: net, who: p, network: n, actions: '*', seconds: 60}]")
    after = plan_policy(now, desired).after
    assert (after.coordinator, after.network) == (OTHER_KEY, "police")
    assert after.policy_rules == {"p": parse_condition("$level > 1")}
    assert {key: one.name for key, one in after.providers.items()} == {KEY: "us", OTHER_KEY: "them"}
    assert {id: one.who for id, one in after.issuing.items()} == {"day": "g", "net": "p"}
    assert plan_policy(after, desired).empty
    bare = plan_policy(after, policy(tmp_path, a="principals: {p: {}, o: {}}", b="headgate: 1")).after
    assert bare.network is None
    assert (bare.coordinator, dict(bare.policy_rules), dict(bare.providers), dict(bare.issuing)) == (None, {}, {}, {})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": "coordinator: x"}, "a.yaml:1: key `coordinator`: no principal `x`"),
        ({"a": f"coordinator: '{KEY}'", "b": f"coordinator: '{KEY}'"}, "b.yaml:1: key `coordinator`: `coordinator` is"),
        ({"a": "network: a", "b": "network: b"}, "b.yaml:1: key `network`: `network` is given twice"),
        ({"a": "providers: [{name: n, as: x}]"}, "a.yaml:1: key `providers[0].as`: no principal `x`"),
        (
            {"a": "providers: [{name: n, as: administrator}]", "b": f"providers: [{{name: n, as: '{OTHER_KEY}'}}]"},
            "b.yaml:1: key `providers[0]`: two providers are `n`",
        ),
        ({"a": "issuing: [{id: i, who: x, type: '*', actions: '*', seconds: 1}]"}, "no principal or group `x`"),
        ({"a": "principals: {p: {policy_rule: 7}}"}, "a.yaml:1: key `principals.p.policy_rule`: `7` is not text"),
        ({"a": "principals: {administrator: {policy_rule: 'true'}}"}, "`administrator` is the domain's own principal"),
        ({"a": "certificates: []"}, "unknown key `certificates`"),
        ({"a": "identities: []"}, "unknown key `identities`"),
    ],
)
def test_what_files_cannot_say_of_authority(tmp_path: Path, files: dict[str, str], message: str) -> None:
    assert message in refused(tmp_path, **files)
