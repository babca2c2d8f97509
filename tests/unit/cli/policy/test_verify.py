"""`headgate verify`: how a report is worded. The command itself is tested on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.cli.policy.verify import sentence, show_report
from headgate.cli.shared.common import out
from headgate.gateway.http.rendering import as_json
from headgate.node.domain import Domain
from headgate.pipeline.spark.verify import Copy, DeliveryDifference, DifferenceKind, Report

COPY = Copy(2, "e1", "t.T", "pub", 0, {"a": 1, "b": None})


def copy(**changed: object) -> Copy:
    return Copy(**{**{name: getattr(COPY, name) for name in Copy.__slots__}, **changed})  # type: ignore[arg-type]


def test_one_sentence() -> None:
    assert str(sentence(Report(1, 1, 1, 3))) == "1 delivery of 1 event recomputed: all as delivered"
    assert str(sentence(Report(20, 1234, 1234, 3))) == "1,234 deliveries of 20 events recomputed: all as delivered"
    found = Report(
        2,
        2,
        2,
        3,
        (
            DeliveryDifference(DifferenceKind.MISSING, "main", 1, "s", COPY),
            DeliveryDifference(DifferenceKind.EXTRA, "main", 2, "s"),
        ),
    )
    assert str(sentence(found)) == "2 deliveries of 2 events recomputed: 1 missing, 1 extra"


def test_every_kind_of_difference_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "_width", 200)
    differences = (
        DeliveryDifference(DifferenceKind.MISSING, "main", 1, "s", COPY),
        DeliveryDifference(DifferenceKind.EXTRA, "main", 2, "s", None, copy(event="e2", view={"a": None})),
        DeliveryDifference(
            DifferenceKind.ALTERED, "main", 3, "s", COPY, copy(view={"a": 2, "b": "x"}, publisher="other")
        ),
        DeliveryDifference(DifferenceKind.VERSION, "main", 4, "s", COPY, copy(version=9)),
        DeliveryDifference(DifferenceKind.LABEL, "main", 5, "", words="2 deliveries, where there is 1"),
    )
    with out.capture() as said:
        show_report(Report(5, 4, 4, 3, differences, {"main": 7}))
    text = " ".join(said.get().split())
    assert "missing main:1 s e1 was not delivered: a 1" in text
    assert "extra main:2 s e2 should not be there: all null" in text
    assert (
        "e1: its publisher is other, and should be pub; a is 2, and should be 1; b is 'x', and should be null" in text
    )
    assert "wrong version main:4 s e1 has version 9, and should have 2" in text
    assert "wrong label main:5 2 deliveries, where there is 1" in text
    assert "not decided yet: 7 events of stream main" in text


def test_json_names_what_should_be_and_what_is() -> None:
    found = as_json(DeliveryDifference(DifferenceKind.ALTERED, "main", 3, "s", COPY, copy(view={"a": 2})))
    assert isinstance(found, dict)
    assert found["should"]["view"] == {"a": 1, "b": None}
    assert found["is"]["view"] == {"a": 2}


def test_a_spark_that_failed_is_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Domain.create(tmp_path / "d").close()
    sessions: list[str] = []

    def verified(pipeline: Any, say: object) -> Report:
        sessions.append(pipeline.session)
        raise RuntimeError("the JVM\nis gone")

    monkeypatch.setattr("headgate.cli.shared.common.start_spark", lambda: "first")
    monkeypatch.setattr("headgate.cli.shared.common.renew_spark", lambda: "second")
    monkeypatch.setattr("headgate.cli.policy.verify.verified", verified)
    done = CliRunner().invoke(app, ["verify", "--domain", str(tmp_path / "d")])
    assert (done.exit_code, sessions) == (3, ["first", "second"])
    said = " ".join(done.output.split())
    assert "Spark failed and is tried once more, on a new JVM: RuntimeError: the JVM" in said
    assert "error [engine-failed] RuntimeError: the JVM" in said
    assert "is gone" in Path(said.split("everything it said is in ")[1]).read_text()
