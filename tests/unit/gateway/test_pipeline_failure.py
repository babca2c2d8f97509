"""What is made of the text that Spark has of a failure; the process itself is tested with Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from headgate.model.errors import Damaged, HeadgateError, PublishDenied, StorageBusy, StorageFull, TooNew
from headgate.node.pipeline_process import MOST_IN_A_ROW, Keeper, QueryFailure, failure
from headgate.node.processes import EXIT_FAILED

SECRET = "AE05 XYZ of the secret"


def traced(error: HeadgateError) -> str:
    """An error of a worker as Spark shows it."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    return (
        f"[STREAM_FAILED] Query terminated: Job aborted\nTraceback (most recent call last):\n{kind}: {error}\n\tat org."
    )


@pytest.mark.parametrize(
    "error", [Damaged("`log.db` lacks events 3 to 4", remedy="restore it"), TooNew("`log.db` is new")]
)
def test_damaged_data_is_final_and_told(error: HeadgateError) -> None:
    assert failure(traced(error), "StreamingQueryException") == QueryFailure(error.code, str(error), final=True)


def test_other_refusals_are_tried_again_and_only_their_code_is_told() -> None:
    for error in (StorageFull("no room"), PublishDenied(f"`{SECRET}`")):
        assert failure(traced(error), "StreamingQueryException") == QueryFailure(error.code)


def test_of_anything_else_only_the_kind_is_told() -> None:
    found = failure(f"java.lang.RuntimeException: {SECRET}", "StreamingQueryException")
    assert found == QueryFailure("StreamingQueryException")


def test_content_that_looks_like_an_error_does_not_end_the_process_in_its_own_words() -> None:
    found = failure(f"ValueError: the value was 'damaged: {SECRET} [damaged]'", "StreamingQueryException")
    assert found == QueryFailure("StreamingQueryException")


class Query:
    """A query that is active for as many looks as it is said, then has failed, or is told to stop."""

    def __init__(self, error: Exception, active: Sequence[bool] = (), stop: threading.Event | None = None) -> None:
        self.error = error
        self.active = list(active)
        self.stop = stop

    @property
    def isActive(self) -> bool:  # noqa: N802
        if not self.active and self.stop is not None:
            self.stop.set()
        return bool(self.active) and self.active.pop(0)

    @property
    def lastProgress(self) -> object:  # noqa: N802
        return {"batchId": 7} if len(self.active) < 2 else None

    def exception(self) -> Exception:
        return self.error


class Jvm:
    """A session whose JVM lives, and the domain and pipeline on it: every query fails with what it is given."""

    def __init__(self, errors: list[Exception], stop: threading.Event) -> None:
        self.sparkContext = SimpleNamespace(_gateway=SimpleNamespace(proc=None))
        self.errors = errors
        self.stop = stop

    def pipeline(self, session: object) -> Jvm:
        return self

    def start(self) -> Query:
        if len(self.errors) == 1:
            self.stop.set()
        return Query(self.errors.pop(0))


@pytest.mark.parametrize(
    ("errors", "status"),
    [
        ([RuntimeError("spark")] * (MOST_IN_A_ROW + 5), EXIT_FAILED),
        ([RuntimeError(traced(StorageBusy("wait")))] * (MOST_IN_A_ROW + 5), 0),
        ([RuntimeError("spark"), RuntimeError(traced(StorageBusy("wait")))] * (MOST_IN_A_ROW + 5), 0),
    ],
)
def test_a_jvm_on_which_every_query_fails_is_left(
    monkeypatch: pytest.MonkeyPatch, errors: list[Exception], status: int
) -> None:
    monkeypatch.setattr("headgate.node.pipeline_process.FIRST_PAUSE", 0)
    monkeypatch.setattr("headgate.node.pipeline_process._finish", lambda query: 0)
    stop = threading.Event()
    jvm = Jvm(list(errors), stop)
    keeper = Keeper("deliveries", lambda: jvm.pipeline(jvm).start(), jvm, stop, vital=True)
    monkeypatch.setattr(keeper, "_pause", 0)
    assert keeper.run() == status


def test_detections_that_fail_are_tried_again_and_end_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever they fail of, also before they have begun: the process goes on, and the supervisor is told."""
    monkeypatch.setattr("headgate.node.pipeline_process.FIRST_PAUSE", 0)
    monkeypatch.setattr("headgate.node.pipeline_process._finish", lambda query: 0)
    stop = threading.Event()
    final = RuntimeError(traced(Damaged("`signals.db` lacks signals", remedy="restore it")))
    errors = [final, *[RuntimeError("spark")] * (MOST_IN_A_ROW + 5)]
    jvm = Jvm(list(errors), stop)
    begun: list[Exception] = []

    def start() -> Query:
        query = jvm.start()
        begun.append(query.error)
        if len(begun) == 2:
            raise RuntimeError(SECRET)
        return query

    keeper = Keeper("detections", start, jvm, stop)
    monkeypatch.setattr(keeper, "_pause", 0)
    assert keeper.run() == 0
    assert begun == errors
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told[0] == {"event": "degraded", "what": "detections", "code": "damaged"}
    assert told[1] == {"event": "degraded", "what": "detections", "code": "RuntimeError"}
    assert SECRET not in json.dumps(told)


def test_a_query_that_gets_on_again_is_said_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headgate.node.pipeline_process.FIRST_PAUSE", 0)
    monkeypatch.setattr("headgate.node.pipeline_process.LOOK_SECONDS", 0.001)
    monkeypatch.setattr("headgate.node.pipeline_process._finish", lambda query: 0)
    stop = threading.Event()
    queries = [Query(RuntimeError("spark"), [False]), Query(RuntimeError(), [True] * 4, stop)]
    jvm = Jvm([], stop)
    keeper = Keeper("deliveries", lambda: queries.pop(0), jvm, stop, announces=True, vital=True)
    monkeypatch.setattr(keeper, "_pause", 0)
    assert keeper.run() == 0
    told = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert told == ["ready", "degraded", "recovered"], "once its first batch is through, and once only"
