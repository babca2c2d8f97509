"""Decides what is published at a domain, as its pipeline does, until it is killed: `run_role_service.py DATA`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from headgate.node.domain import Domain
from strategies.deciding import Decider

PAUSE = 0.03


def main(directory: str, parent: int) -> None:
    domain = Domain.open(Path(directory))
    decider = Decider(domain)
    decided: object = None
    print("ready", flush=True)
    while os.getppid() == parent:
        now = domain.ledger.version, {stream: tail.last for stream, tail in domain.log.tails().items()}
        if now != decided:
            decider.step()
            decided = now
        time.sleep(PAUSE)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
