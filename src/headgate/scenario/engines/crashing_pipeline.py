"""The pipeline of a domain in a story, which fails where it is told to and starts again from its checkpoint.

Guarantees: a crash strikes the query at a point chosen by chance, in whatever it has left to do when that is asked for,
or else in what it does next; each strikes once.
"""

from __future__ import annotations

import random
from typing import Any, Final

from headgate.model.errors import HeadgateError
from headgate.node.domain import Domain
from headgate.pipeline.paths import POINTS

_STRUCK: Final = "struck at `"
"""How the fault that was asked for shows in what Spark reports."""


class CrashingPipeline:
    """The streaming query of a domain on a Spark session."""

    def __init__(self, domain: Domain, session: Any, choice: random.Random) -> None:
        self._fault = domain.paths.fault
        self._pipeline = domain.pipeline(session)
        self._choice = choice
        self.struck = 0
        """How many faults have struck."""

    def crash(self) -> None:
        """Run the query until the fault strikes it. Where there was nothing to do, the fault waits for its next run."""
        self._fault.write_text(self._choice.choice(POINTS))
        self._run()

    def finish(self) -> None:
        """Decide everything there is; a fault that never found anything to strike is forgotten."""
        while not self._run():
            pass  # each fault strikes once
        self._fault.unlink(missing_ok=True)

    def _run(self) -> bool:
        """Run the query from its checkpoint to the end of the log; false if the fault struck on the way."""
        try:
            self._pipeline.catch_up()
        except HeadgateError:
            raise
        except Exception as error:
            if _STRUCK not in str(error) or self._fault.exists():
                raise
            self.struck += 1
            return False
        return True
