"""Ctrl-C without tearing up the conversation with Spark.

Guarantees: the work runs in a thread of its own, so an interrupt never strikes between a question to the JVM and its
answer, which would leave the next call reading the wrong one. On Ctrl-C the work is asked to stop and given a moment;
then `KeyboardInterrupt` is raised. What does not stop ends with the process, and the JVM with it. From Ctrl-C on,
standard error is closed to the protests of threads and processes that lose each other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that the work has to stop by itself."""

TICK = 0.1
"""Seconds between two looks at whether to stop."""


class Stopped(Exception):
    """The work was asked to stop, and did."""


def interruptible(work: Callable[[threading.Event], T], patience: float = PATIENCE) -> T:
    """Do the work, which raises `Stopped` soon after the event that it is given is set."""
    stop = threading.Event()
    result = _begin(lambda: work(stop))
    try:
        while True:
            with suppress(NotYet):
                return result.result(TICK)
    except KeyboardInterrupt:
        _hush()
        stop.set()
        with suppress(NotYet, Stopped):
            result.result(patience)
        raise


def unless(stop: threading.Event, call: Callable[[], T]) -> T:
    """The result of a long call, or `Stopped` once the event is set; the call is then left to itself."""
    result = _begin(call)
    while not stop.is_set():
        with suppress(NotYet):
            return result.result(TICK)
    raise Stopped


def _hush() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _begin(call: Callable[[], T]) -> Future[T]:
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the result raises it again
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result
