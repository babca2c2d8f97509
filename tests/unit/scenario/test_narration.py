"""What a narrator says of a scenario: read with its place, without effect on the play, and known names only."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.model.changes import SetKey
from headgate.model.errors import BadScenario
from headgate.model.values import EPOCH
from headgate.scenario.engines.node_engine.story_keys import StoryKeys
from headgate.scenario.format.file import load
from headgate.scenario.format.story import Scenario
from headgate.scenario.run import run
from headgate.trust.certificates import CERTIFICATE
from headgate.trust.keys import PrivateKey

STORY = """\
headgate: 1
types: {a.T: {owner: o, attributes: {i: int}}}
principals: {o: {attributes: {level: 1}, policy_rule: "$level = 1"}, p: {}}
policy: [{who: o, may: [publish, subscribe], type: a.T}]
certificates: [{id: c, issuer: o, subject: p, type: a.T, actions: subscribe, forged: true}]
steps:
  - subscribe: {id: s, as: o, type: a.T}
  - say: It begins.
    note: the owner sends to anyone
    assert: {denied: {step: {publish: {as: o, type: a.T, event: {i: 1}}}, reason: policy-rule}}
  - note: o is free
    change: {policy_rules: {o: null}}
    show: [{title: Nobody has a role, roles: true}]
  - note: nobody believes it
    assert: {denied: {step: {connect: {as: p, present: [c]}}, reason: bad-statement}}
  - publish: {id: e1, as: o, type: a.T, event: {i: 1}}
story:
  opening: Once
  source: sent
  readers: {s: {title: Owner, sees: all}}
  question: {text: Why?, as: p, event: e1, attribute: i}
  moral: The end
expect: {deliveries: {s: [e1]}, versions: {e1: 3}}
"""


def written(tmp_path: Path, text: str = STORY) -> Scenario:
    (tmp_path / "story.yaml").write_text(text)
    return load(tmp_path / "story.yaml")


def test_a_story_is_a_scenario_and_each_step_has_a_line(tmp_path: Path) -> None:
    scenario = written(tmp_path)
    assert [result.differences for result in run(scenario, ["decide"])] == [[]]
    assert [line.note for line in scenario.lines] == [
        "", "the owner sends to anyone", "o is free", "nobody believes it", "",
    ]  # fmt: skip
    assert [line.say for line in scenario.lines if line.say] == ["It begins."]
    assert scenario.narration is not None
    assert [reader.subscription for reader in scenario.narration.readers] == ["s"]
    assert scenario.forged == {"c"}


def test_keys_that_are_given_are_those_of_the_statements(tmp_path: Path) -> None:
    (tmp_path / "story.yaml").write_text(STORY.replace("actions: subscribe, forged: true", "actions: subscribe"))
    key = PrivateKey.generate()
    keys = StoryKeys(load(tmp_path / "story.yaml"), {"o": key})
    assert [change for change in keys.policy().changes if isinstance(change, SetKey)] == [SetKey("o", key.public.did)]
    signed = CERTIFICATE.verify(keys.shown("c", EPOCH), audience=None, now=EPOCH)
    assert (signed.issuer, signed.subject) == (key.public.did, keys.did("p"))


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("readers: {s:", "readers: {x:", "story.readers.x", "no subscription `x`"),
        ("as: p, event: e1", "as: q, event: e1", "story.question.as", "no principal `q`"),
        ("event: e1, attribute", "event: e2, attribute", "story.question.event", "no event `e2`"),
        ("roles: true", "roles: false", "steps[2].show[0].roles", "shown or not"),
        ("roles: true", "chain: [d]", "steps[2].show[0].chain[0]", "no statement `d`"),
        ("roles: true", "roles: true, chain: [c]", "steps[2].show[0]", "one thing is shown"),
        ("roles: true", "columns: [a], checks: [{words: [a, b], type: a.T}]", "words", "2 words for 1 `columns`"),
        ("roles: true", "columns: [a], checks: [{words: [a]}]", "checks[0]", "does not say what is checked"),
        ("moral: The end", "morals: The end", "story.morals", "unknown key `morals`"),
        ("  moral: The end\n", "", "story", "the key `moral` is missing"),
        ("moral: The end", "moral: The end\n  organisations: {a: [o]}", "story", "the key `domain` is missing"),
        ("policy_rules: {o:", "policy_rules: {q:", "policy_rules.q", "no principal `q`"),
        ("step: {connect: {", "step: {say: x, connect: {", "step.say", "unknown key `say`"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, old: str, new: str, key: str, message: str) -> None:
    assert STORY.count(old) == 1
    with pytest.raises(BadScenario) as refused:
        written(tmp_path, STORY.replace(old, new))
    assert message in refused.value.message
    assert key in str(refused.value.place)
    assert "story.yaml:" in str(refused.value.place)
