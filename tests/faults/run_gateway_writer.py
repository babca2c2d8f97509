"""Publishes numbered events through a gateway's writer, many requests at a time, until it is killed or done."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from headgate.commands.publishing.stream_writer import StreamWriter
from headgate.commands.publishing.submissions import of_drafts
from headgate.gateway.http.worker_pool import Workers
from headgate.gateway.publishing.writer import Writer
from headgate.model.events import Draft
from headgate.node.domain import Domain, Follower
from headgate.pipeline.log.event_log import EventLog

AT_ONCE, SIZE = 8, 5


async def work(writer: Writer, begin: int, end: int) -> None:
    """Several publishers, each with the next few events that nobody has; a line for each answer."""
    numbers = iter(range(begin, end, SIZE))

    async def publish() -> None:
        for first in numbers:
            ids = range(first, min(first + SIZE, end))
            drafts = [Draft(f"e{n}", "camera", "road.Sighting", {"n": n}, "lens") for n in ids]
            outcome = await writer.publish(of_drafts("camera", drafts))
            refused = sorted(first + at for at in outcome.refusals)
            print("answer", first, outcome.accepted, len(outcome.duplicates), *refused, flush=True)

    await asyncio.gather(*(publish() for _ in range(AT_ONCE)))


def main(directory: str, stream: str, begin: int, end: int) -> None:
    domain = Domain.open(Path(directory))
    follower = Follower(domain)
    log = EventLog.open(domain.paths.log)
    writer = Writer(StreamWriter(domain, follower, log, stream, window=3600.0, lease=3600.0), Workers())
    writer.start()
    print("ready", flush=True)
    asyncio.run(work(writer, begin, end))
    writer.stop()
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
