"""Sends the same events to a log again and again, from the first that nobody acknowledged, until it is killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from headgate.pipeline.log.appends import Append, Repeats, hash_keys
from headgate.pipeline.log.event_log import EventLog, holder_of_this_process, is_dead

APPEND, GROUP = 5, 4
HOUR = 3_600_000_000


def main(path: str, begin: int, end: int) -> None:
    log = EventLog.open(Path(path))
    now = time.time_ns() // 1000
    token = log.take("main", 1, holder=holder_of_this_process("w"), now=now, ttl=HOUR, dead=is_dead)
    for first in range(begin, end, APPEND * GROUP):
        group = [[f"e{n}" for n in range(at, at + APPEND)] for at in range(first, first + APPEND * GROUP, APPEND)]
        appends = [
            Append(1, now, APPEND, " ".join(ids).encode(), hash_keys("p", "s", ids), window=HOUR) for ids in group
        ]
        for ids, answer in zip(group, log.append_many("main", token, appends), strict=True):
            if isinstance(answer, Repeats):
                (one,) = {(c.stream, c.first) for c in answer.candidates}
                assert log.append_holding(*one).blob == " ".join(ids).encode()
            else:
                assert isinstance(answer, int), answer
        print(first + APPEND * GROUP, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
