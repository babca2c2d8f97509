"""What is made of the text that Spark has of a failure; the process itself is tested with Spark."""

from __future__ import annotations

import pytest

from headgate.gateway.pipeline_process import Failure, failure
from headgate.model.errors import Damaged, HeadgateError, PublishDenied, StorageFull, TooNew

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
    assert failure(traced(error), "StreamingQueryException") == Failure(error.code, str(error), final=True)


def test_other_refusals_are_tried_again_and_only_their_code_is_told() -> None:
    for error in (StorageFull("no room"), PublishDenied(f"`{SECRET}`")):
        assert failure(traced(error), "StreamingQueryException") == Failure(error.code)


def test_of_anything_else_only_the_kind_is_told() -> None:
    found = failure(f"java.lang.RuntimeException: {SECRET}", "StreamingQueryException")
    assert found == Failure("StreamingQueryException")


def test_content_that_looks_like_an_error_does_not_end_the_process_in_its_own_words() -> None:
    found = failure(f"ValueError: the value was 'damaged: {SECRET} [damaged]'", "StreamingQueryException")
    assert found == Failure("StreamingQueryException")
