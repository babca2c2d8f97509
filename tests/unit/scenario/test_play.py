from pathlib import Path

import pytest

from headgate.scenario.engines.play import run_decide
from headgate.scenario.format.file import load
from headgate.scenario.run import judge, run

BASE = """\
headgate: 1
types:
  a.T: {owner: o, attributes: {i: int, f: float}}
principals: {o: {}, p: {}}
policy:
  - {id: pub, who: o, may: publish, type: a.T}
  - {id: sub, who: p, may: subscribe, type: a.T}
steps:
  - subscribe: {id: s1, as: p, type: a.T}
  - publish: {id: e1, as: o, type: a.T, event: {i: 1, f: 1}}
  - publish: {id: e2, as: o, type: a.T, event: {i: 2}, stream: other}
  - publish: {id: e3, as: p, type: a.T, event: {i: 3}}
"""
EXPECT = """\
expect:
  deliveries: {s1: [{e1: {i: 1, f: 1}}, e2]}
  rejected: {e3: publish-denied}
  versions: {e1: 2}
"""


def differences(tmp_path: Path, steps: str = "", expect: str = EXPECT) -> list[str]:
    path = tmp_path / "f.yaml"
    path.write_text(BASE + steps + expect)
    scenario = load(path)
    return [d.replace(f"{tmp_path}/", "") for d in judge(scenario, run_decide(scenario))]


def test_nothing_differs_when_all_is_as_expected(tmp_path: Path) -> None:
    assert differences(tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{i: 1, f: 1}", "{i: 2, f: 1}", "subscription `s1`, stream `main`, event `e1`: `i` is `1`, expected `2`"),
        ("{i: 1, f: 1}", "{i: null, f: 1}", "subscription `s1`, stream `main`, event `e1`: `i` is `1`, expected null"),
        ("{i: 1, f: 1}", "{i: 1}", "subscription `s1`, stream `main`, event `e1`: `f` is `1.0`, expected null"),
        (
            ", e2]",
            "]",
            "subscription `s1`, stream `other`: event `e2` was delivered and not expected: {i: `2`, f: null}",
        ),
        (", e2]", ", e2, e2]", "subscription `s1`, stream `other`: event `e2` was not delivered"),
        (", e2]", ", e2, e3]", "subscription `s1`, stream `main`: event `e3` was not delivered"),
        (
            "e3: publish-denied",
            "e3: type-mismatch",
            "event `e3` was refused with `publish-denied`, expected `type-mismatch`",
        ),
        (
            "e3: publish-denied",
            "",
            "event `e3` was refused with `publish-denied`, which `expect.rejected` does not list",
        ),
        ("{e3: ", "{e1: publish-denied, e3: ", "event `e1` was accepted, expected refusal with `publish-denied`"),
        (
            "{e3: ",
            "{s1: subscribe-denied, e3: ",
            "subscription `s1` was accepted, expected refusal with `subscribe-denied`",
        ),
        ("{e1: 2}", "{e1: 3}", "event `e1` got version 2, expected 3"),
        ("{e1: 2}", "{e3: 2}", "event `e3` has no version, as it was not accepted; expected version 2"),
    ],
)
def test_every_difference_is_said_in_words(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in EXPECT
    assert differences(tmp_path, expect=EXPECT.replace(old, new, 1)) == [said]


def test_without_expectations_nothing_may_be_delivered_or_refused(tmp_path: Path) -> None:
    assert len(differences(tmp_path, expect="")) == 3


def test_order_counts_within_a_stream_and_not_between(tmp_path: Path) -> None:
    more = "  - publish: {id: e4, as: o, type: a.T, event: {i: 4}}\n"
    assert differences(tmp_path, more, EXPECT.replace("[{e1: {i: 1, f: 1}}, e2]", "[e2, e1, e4]")) == []
    assert differences(tmp_path, more, EXPECT.replace("[{e1: {i: 1, f: 1}}, e2]", "[e4, e2, e1]")) == [
        "subscription `s1`, stream `main`: received in the order e1, e4; expected e4, e1"
    ]


def test_a_refused_step_is_a_difference_and_the_story_goes_on(tmp_path: Path) -> None:
    steps = (
        "  - subscribe: {id: s2, as: p, type: a.T, where: 'i ='}\n"
        "  - change: {by: p, remove: [pub]}\n"
        "  - publish: {id: e4, as: o, type: a.T, event: {i: 4}}\n"
    )
    found = differences(tmp_path, steps, EXPECT.replace(", e2]", ", e2, e4]").replace("{e1: 2}", "{e4: 2}"))
    assert len(found) == 1  # the change by `p`, who may not make it, is noted instead
    assert found[0].startswith("f.yaml:13: key `steps[4].subscribe`: subscribe `s2` was refused: ")
    assert "[bad-expression]" in found[0]


def test_a_refused_subscription_may_be_expected(tmp_path: Path) -> None:
    steps = "  - subscribe: {id: s2, as: p, type: a.T, where: 'i ='}\n"
    assert differences(tmp_path, steps, EXPECT.replace("{e3: ", "{s2: bad-expression, e3: ")) == []


@pytest.mark.parametrize(
    ("step", "reason", "said"),
    [
        ("publish: {as: p, type: a.T, event: {}}", "publish-denied", None),
        ("publish: {as: o, type: a.X, event: {}}", "unknown-type", None),
        ("subscribe: {as: p, type: a.X}", "unknown-type", None),
        ("subscribe: {as: p, type: a.T, where: 'j = 1'}", "bad-expression", None),
        ("subscribe: {id: s1, as: p, type: a.T}", "bad-definition", None),
        ("unsubscribe: {id: zz}", "unknown-name", None),
        ("change: {by: p, add: [{who: p, may: publish, type: a.T}]}", "govern-denied", None),
        ("change: {add: [{who: p, may: subscribe, type: a.T, attributes: [zz]}]}", "bad-definition", None),
        ("publish: {as: p, type: a.T, event: {}}", "type-mismatch", "was denied with `publish-denied`, not"),
        (
            "publish: {id: x, as: o, type: a.T, event: {}}",
            "publish-denied",
            "publish `x` was accepted, not denied with",
        ),
    ],
)
def test_a_step_can_be_said_to_be_denied(tmp_path: Path, step: str, reason: str, said: str | None) -> None:
    steps = (
        f"  - assert: {{denied: {{step: {{{step}}}, reason: {reason}}}}}\n"
        "  - publish: {id: e4, as: o, type: a.T, event: {}, stream: other}\n"
    )
    found = differences(tmp_path, steps, EXPECT.replace(", e2]", ", e2, e4]").replace("{e1: 2}", "{e4: 2}"))
    assert found == [] if said is None else said in found[0]


def test_an_engine_that_fails_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(scenario: object) -> None:
        raise ZeroDivisionError("no\nmore")

    monkeypatch.setattr("headgate.scenario.run.run_decide", fail)
    path = tmp_path / "f.yaml"
    path.write_text(BASE)
    (result,) = run(load(path), ["decide"])
    assert (result.passed, result.differences) == (False, [])
    assert result.error is not None
    assert result.error.cause == "ZeroDivisionError: no"
    assert "more" in result.error.trace


CLOSED = BASE.replace("headgate: 1", "headgate: 1\nconnect: closed", 1)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("publish: {as: o, type: a.T, event: {}}", "connect-denied"),
        ("subscribe: {as: p, type: a.T}", "connect-denied"),
        ("advertise: {as: o, type: a.T}", "connect-denied"),
        ("change: {by: o, remove: [sub]}", "connect-denied"),
        ("unsubscribe: {id: zz}", "unknown-name"),
        ("type: {a.T: {owner: o, attributes: {i: int}}}", "bad-definition"),
        ("type: {a.U: {owner: o, extends: a.V}}", "unknown-type"),
        ("retire: a.V", "unknown-type"),
    ],
)
def test_whoever_may_not_connect_is_refused_every_step(tmp_path: Path, step: str, reason: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(
        f"{CLOSED[: CLOSED.index('steps:')]}steps:\n  - assert: {{denied: {{step: {{{step}}}, reason: {reason}}}}}\n"
    )
    scenario = load(path)
    assert judge(scenario, run_decide(scenario)) == []


def test_a_change_by_someone_who_may_not_connect_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(
        f"{CLOSED[: CLOSED.index('steps:')]}steps:\n  - change: {{by: o, remove: [sub]}}\n  - retire: a.T\n"
    )
    outcome = run_decide(load(path))
    assert outcome.complaints == []
    assert "`o` may not connect" in outcome.notes[0]


def test_a_type_step_that_is_refused_is_a_difference(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(
        f"{BASE[: BASE.index('steps:')]}steps:\n  - type: {{a.T: {{owner: p}}}}\n  - retire: a.T\n  - retire: a.T\n"
    )
    found = run_decide(load(path)).complaints
    assert len(found) == 2
    assert "type `a.T` was refused" in found[0]
    assert "retire `a.T` was refused" in found[1]
