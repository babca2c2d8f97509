"""The engines `node` and `spark`, with the pipeline in process instead of Spark.

One has real gateways and clients on loopback, the other asks the same of a domain by itself.
"""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.model.errors import BadScenario
from headgate.model.events import Event
from headgate.model.values import EPOCH
from headgate.node.domain import Domain
from headgate.pipeline.index.build import IndexBuilder
from headgate.pipeline.index.predicates import Sources
from headgate.scenario.engines.node_engine.story_keys import AuditNames, IssuedCredentials, StoryVersions
from headgate.scenario.engines.node_engine.world import NodeWorld
from headgate.scenario.engines.play import ScenarioOutcome, play, run_decide
from headgate.scenario.engines.spark_engine import SparkStage
from headgate.scenario.format.file import load
from headgate.scenario.format.story import Scenario
from headgate.scenario.run import ENGINES, disagreements, judge, run_all
from strategies.deciding import Decider, Detector

SCENARIOS = Path(__file__).parents[3] / "scenarios"
HEAD = """\
headgate: 1
types: {a.T: {owner: o, attributes: {i: int}}}
"""


class InProcess:
    """The pipeline without Spark; it has nothing that could crash."""

    def __init__(self, domain: Domain) -> None:
        self._decider = Decider(domain)
        self._detector = Detector(domain)
        self._decider.builder = IndexBuilder(domain.ledger, Sources(domain.paths.predicates))

    def crash(self) -> None:
        """Nothing happens."""

    def finish(self) -> None:
        """Decide everything there is."""
        self._decider.step()
        self._decider.close()

    def detect(self) -> None:
        """Detect everything there is."""
        self._detector.step()


def played(stage: type[NodeWorld | SparkStage], scenario: Scenario, directory: Path) -> ScenarioOutcome:
    directory.mkdir()
    with closing(stage(scenario, directory, InProcess)) as world:
        return play(scenario, world)


def on_node(scenario: Scenario, directory: Path) -> ScenarioOutcome:
    return played(NodeWorld, scenario, directory)


def differences(text: str, tmp_path: Path, head: str = HEAD) -> list[str]:
    """What is not as a story expects, and what the reference disagrees on with a node, and with a domain alone."""
    (tmp_path / "story.yaml").write_text(head + text)
    scenario = load(tmp_path / "story.yaml")
    reference = run_decide(scenario)
    found = judge(scenario, reference)
    for engine, stage in (("node", NodeWorld), ("spark", SparkStage)):
        outcome = played(stage, scenario, tmp_path / engine)
        found += [*judge(scenario, outcome), *disagreements(reference, outcome, engine)]
    return found


ROLES = """\
principals: {o: {}, p: {}, q: {}}
roles:
  Desk: |
    audit On
    On(p) <-
    Chair(p) <- On(p)*
    Guest(p) <- On(p)* <| Chair(c)
policy:
  - {role: Desk.Chair(who), may: subscribe, type: a.T}
  - {who: o, may: [publish, subscribe], type: a.T}
  - {who: o, may: subscribe, type: headgate.roles.*}
"""


def test_what_is_asked_of_role_services_comes_to_the_same_with_a_node_and_without(tmp_path: Path) -> None:
    story = f"""\
{ROLES}
steps:
  - subscribe: [{{id: all, as: o, type: headgate.roles.Audited}}, {{id: s, as: p, type: a.T}}]
  - grant: {{id: on-p, service: Desk, role: On, args: [p], to: p}}
  - grant: {{id: on-q, service: Desk, role: On, args: [q], to: q, until: 50}}
  - enter: {{id: chair, service: Desk, role: Chair, as: p, with: [on-p]}}
  - publish: {{id: e1, as: o, type: a.T, event: {{i: 1}}}}
  - assert: {{denied: {{reason: role-denied, step: {{enter: {{service: Desk, role: Chair, as: q, with: [on-p]}}}}}}}}
  - assert: {{denied: {{step: {{revoke: {{id: on-p, by: q}}}}, reason: role-denied}}}}
  - advance: 60
  - assert: {{lacks: [q, Desk.On(q)], holds: [p, Desk.Chair(p)]}}
  - unsubscribe: s
  - subscribe: {{id: s, as: p, type: a.T}}
  - revoke: on-p
  - publish: {{id: e2, as: o, type: a.T, event: {{i: 2}}}}
  - revoke: on-p                    # it has fallen already
  - publish: {{id: e3, as: o, type: a.T, event: {{i: 3}}}}
expect:
  deliveries: {{s: [e1], all: ["entered:on-p@3", "entered:on-q@4", "ended:on-q@6", "ended:on-p@9"]}}
  versions: {{e1: 5, e2: 9, e3: 10}}
"""
    assert differences(story, tmp_path) == []


@pytest.mark.parametrize(
    "name", ["derived-for-readers", "derived-of-declassified", "reserved-for-later", "detection-from-a-version"]
)
def test_what_detections_publish_and_where_they_begin_is_the_same_with_a_node_and_without(
    name: str, tmp_path: Path
) -> None:
    text = (SCENARIOS / f"{name}.yaml").read_text("utf-8")
    assert differences(text, tmp_path, head="") == []


def test_an_id_that_its_principal_uses_again_is_read_to_its_end_both_times(tmp_path: Path) -> None:
    story = """\
principals: {o: {}}
policy: [{who: o, may: [publish, subscribe], type: a.T}]
steps:
  - subscribe: {id: s, as: o, type: a.T}
  - publish: {id: e1, as: o, type: a.T, event: {i: 1}}
  - unsubscribe: s
  - publish: {id: e2, as: o, type: a.T, event: {i: 2}}
  - subscribe: {id: s, as: o, type: a.T}
  - publish: {id: e3, as: o, type: a.T, event: {i: 3}}
expect: {deliveries: {s: [e1, e3]}, versions: {e1: 2, e2: 3, e3: 4}}
"""
    assert differences(story, tmp_path) == []


def test_versions_are_the_storys_though_steps_change_nothing_and_publishing_advertises(tmp_path: Path) -> None:
    story = """\
principals: {o: {}, p: {}}
policy: [{who: o, may: [publish, subscribe], type: a.T}, {who: p, may: publish, type: a.T}]
steps:
  - publish: {id: e1, as: o, type: a.T, event: {i: 1}}
  - change: {}
  - publish: {id: e2, as: p, type: a.T, event: {i: 2}}
  - connect: {as: p}
  - advertise: {as: o, type: a.T}
  - unadvertise: {as: p, type: a.T}
  - publish: {id: e3, as: o, type: a.T, event: {i: 3}}
  - subscribe: {id: old, as: o, type: a.T, from: {version: 2}}
  - subscribe: {id: older, as: o, type: a.T, from: {version: 5}}
  - assert: {denied: {step: {subscribe: {as: o, type: a.T, from: {version: 9}}}, reason: bad-definition}}
  - publish: {id: e4, as: p, type: a.T, event: {i: 4}}
expect:
  deliveries: {old: [e2, e3, e4], older: [e3, e4]}
  versions: {e1: 1, e2: 2, e3: 5, e4: 7}
"""
    assert differences(story, tmp_path) == []


def test_keys_of_the_file_are_those_of_the_runner_and_a_key_alone_can_issue(tmp_path: Path) -> None:
    story = """\
principals:
  o: {key: did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK}
  s: {}
connect: closed
coordinator: did:key:z6MknGc3ocHs3zdPiJbnaaqDi58NGb4pk1Sp9WxWufuXSdxf
policy: [{who: o, may: connect}, {who: o, may: publish, type: a.T}]
certificates:
  - {id: in, subject: s, network: '*', actions: connect,
     issuer: did:key:z6MknGc3ocHs3zdPiJbnaaqDi58NGb4pk1Sp9WxWufuXSdxf}
  - {id: all, issuer: o, subject: s, type: a.T, actions: subscribe}
  - {id: gone, issuer: o, subject: s, type: a.T, actions: publish}
steps:
  - assert: {denied: {step: {subscribe: {as: s, type: a.T}}, reason: connect-denied}}
  - connect: {as: s, present: [in, all]}
  - subscribe: {id: r, as: s, type: a.T}
  - publish: {id: e1, as: o, type: a.T, event: {i: 1}}
  - assert: {state: [[in, true], [all, true], [gone, false]]}
  - revoke: gone                       # before anyone has shown it
  - assert: {denied: {step: {connect: {as: s, present: [gone]}}, reason: revoked}}
  - revoke: all
  - publish: {id: e2, as: o, type: a.T, event: {i: 2}}
expect: {deliveries: {r: [e1]}, versions: {e1: 3, e2: 5}}
"""
    assert differences(story, tmp_path) == []


def test_one_principal_subscribes_from_two_places(tmp_path: Path) -> None:
    story = """\
principals: {o: {}, r: {}}
policy:
  - {who: o, may: publish, type: a.T, where: "@origin starts with '10.' or @origin is null"}
  - {who: r, may: subscribe, type: a.T, where: "@origin starts with '10.1.'"}
steps:
  - subscribe: [{id: here, as: r, type: a.T, origin: 10.1.0.7}, {id: there, as: r, type: a.T, origin: 192.0.2.7}]
  - publish: {id: e1, as: o, type: a.T, event: {i: 1}, origin: 10.9.9.9}
  - publish: {id: e2, as: o, type: a.T, event: {i: 2}, origin: 192.0.2.1}
  - publish: {id: e3, as: o, type: a.T, event: {i: 3}}
expect: {deliveries: {here: [e1, e3], there: []}, rejected: {e2: publish-denied}}
"""
    assert differences(story, tmp_path) == []


def test_a_forged_statement_is_one_whose_signature_is_of_another_text(tmp_path: Path) -> None:
    story = """\
principals: {o: {}, idp: {}, r: {}}
providers: [{name: Home, as: idp}]
certificates: [{id: c, issuer: o, subject: r, type: a.T, actions: subscribe, forged: true}]
identities: [{id: i, issuer: idp, subject: r, attributes: {rank: major}, forged: true}]
steps:
  - assert: {denied: {step: {connect: {as: r, present: [c]}}, reason: bad-statement}}
  - assert: {denied: {step: {connect: {as: r, present: [i]}}, reason: bad-statement}}
"""
    assert differences(story, tmp_path) == []


def test_an_identity_without_an_end_is_shown_as_one_of_a_day(tmp_path: Path) -> None:
    story = """\
principals: {o: {}, idp: {}, r: {}}
policy: [{who: o, may: publish, type: a.T}, {who: r, may: subscribe, type: a.T, where: "$rank = 'major'"}]
providers: [{name: Home, as: idp}]
identities: [{id: r-id, issuer: idp, subject: r, attributes: {rank: major}}]
steps:
  - subscribe: {id: s, as: r, type: a.T}
  - advance: 100
  - connect: {as: r, present: [r-id]}
  - assert: {state: [r-id, true]}
  - publish: {id: e1, as: o, type: a.T, event: {i: 1}}
  - revoke: r-id
  - publish: {id: e2, as: o, type: a.T, event: {i: 2}}
expect: {deliveries: {s: [e1]}}
"""
    assert differences(story, tmp_path) == []


def test_what_is_not_as_expected_is_told_and_nothing_is_left_running(tmp_path: Path) -> None:
    (tmp_path / "story.yaml").write_text(
        HEAD
        + """\
principals: {o: {}}
policy: [{who: o, may: [publish, subscribe], type: a.T}]
steps:
  - subscribe: {id: s, as: o, type: a.T}
  - publish: {id: e, as: o, type: a.T, stream: other, event: {i: 1}}
expect: {deliveries: {s: [{e: {i: 2}}]}, versions: {e: 7}}
"""
    )
    before = set(threading.enumerate())
    scenario = load(tmp_path / "story.yaml")
    told = judge(scenario, on_node(scenario, tmp_path / "domain"))
    assert told == ["event `e` got version 2, expected 7", "subscription `s`, event `e`: `i` is `1`, expected `2`"]
    assert set(threading.enumerate()) <= before


def test_what_no_signed_statement_can_say_is_told_and_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "story.yaml").write_text(
        HEAD
        + """\
principals: {o: {}, r: {}}
certificates: [{id: c, issuer: o, subject: r, type: a.T, actions: subscribe, valid: {until: 1.5}}]
steps: [connect: {as: r, present: [c]}]
"""
    )
    scenario = load(tmp_path / "story.yaml")
    outcome = on_node(scenario, tmp_path / "domain")
    assert [code for _, code in outcome.refused] == [BadScenario.code]
    (told,) = judge(scenario, outcome)
    assert "signed statements say whole ones" in told


# -- names ------------------------------------------------------------------------------------------------------


def test_each_version_of_the_node_is_one_of_the_story() -> None:
    versions = StoryVersions()
    for last in (1, 4, 5, 9):
        versions.add(last)
    assert [versions.of_story(version) for version in range(11)] == [0, 1, 1, 1, 2, 3, 3, 3, 3, 4, 4]
    assert [versions.of_node(version) for version in range(7)] == [0, 1, 4, 5, 9, 10, 11]


def test_events_about_roles_are_told_in_the_words_of_the_file() -> None:
    versions, credentials = StoryVersions(), IssuedCredentials()
    for last in (1, 4, 5):
        versions.add(last)
    credentials.add("on", "On-abc")
    credentials.add("glass", "Override-def")
    audit = AuditNames(versions, credentials)
    view: dict[str, Any] = {"id": "Override-def", "version": 5, "reason": "it rested on `On-abc`", "note": "x ends it"}
    ended = Event("ended:Override-def@5", "a", "headgate.roles.Ended", view, EPOCH)
    assert audit.of(ended) == "ended:glass@3"
    assert audit.view(ended, {**view, "id": None}) == {
        "id": None, "version": 3, "reason": "it rested on `on`", "note": "",
    }  # fmt: skip
    refused = Event("refused:Override@5.123", "a", "headgate.roles.Refused", {"id": "Override", "version": 5}, EPOCH)
    audit.refused(refused, "sneak")
    assert audit.of(refused) == "refused:sneak@3"
    other = Event("entered:x@1", "o", "a.T", {"id": "On-abc"}, EPOCH)
    assert (audit.of(other), audit.view(other, {"id": "On-abc"})) == ("entered:x@1", {"id": "On-abc"})


# -- the option -------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A story; both engines on Spark decide as the reference does."""
    for engine in ("spark_engine.run_spark", "node_engine.run_node"):
        monkeypatch.setattr(f"headgate.scenario.engines.{engine}", lambda scenario, *_: run_decide(scenario))
    monkeypatch.setattr("headgate.cli.policy.test.start_spark", lambda **_: "a session")
    made = tmp_path / "story.yaml"
    made.write_text(HEAD + "principals: {o: {}}\n")
    return made


@pytest.mark.parametrize(
    ("engine", "names"),
    [
        ("decide", ["decide"]),
        ("spark", ["spark"]),
        ("node", ["node"]),
        ("both", ["decide", "spark"]),
        ("all", ["decide", "spark", "node"]),
        (None, ["decide", "spark"]),
    ],
)
def test_the_report_names_the_engines_that_were_asked_for(file: Path, engine: str | None, names: list[str]) -> None:
    option = [] if engine is None else ["--engine", engine]
    done = CliRunner().invoke(app, ["test", "--json", *option, str(file)])
    assert (done.exit_code, [json.loads(line)["engine"] for line in done.output.splitlines()]) == (0, names)


def test_what_the_node_and_the_reference_disagree_on_counts_against_the_node(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headgate.scenario.engines.node_engine.run_node", lambda *_: ScenarioOutcome(rejected={"e": "publish-denied"})
    )
    (results,) = run_all([load(file)], ENGINES, session="a session")
    assert [bool(result.differences) for result in results] == [False, False, True]
    assert results[2].differences == [
        'the engines disagree on refusals: decide {}, node {"e": "publish-denied"}',
    ]
