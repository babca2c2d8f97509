"""What is made of the text that Spark has of a failure; the process itself is tested with Spark."""

from __future__ import annotations

import threading
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
    """A query that has failed."""

    isActive = False  # noqa: N815

    def __init__(self, error: Exception) -> None:
        self.error = error

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
    keeper = Keeper("deliveries", lambda: jvm.pipeline(jvm).start(), jvm, stop)
    monkeypatch.setattr(keeper, "_pause", 0)
    assert keeper.run() == status
