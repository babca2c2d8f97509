"""Generic predicates that random worlds register: pure functions, one that fails and one that shrugs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from headgate.model.changes import RegisterPredicate


def small(event: Any, size: int, *args: object) -> bool:
    """Is the event shorter than the sum of the integers it is given, or than 40?"""
    return size < sum(a for a in args if type(a) is int) + 40


def kinds(event: Any, size: int, *args: object) -> bool:
    """Are an odd number of the arguments integers proper? Tells 1 from 1.0, true and null."""
    return sum(type(a) is int for a in args) % 2 == 1


def sees(event: Any, size: int, *args: object) -> bool:
    """Is an even number of the attributes there to be seen? Depends on what is hidden."""
    there = [name for name, value in event.attributes.items() if value is not None]
    return len(there) % 2 == 0 and event.type != "" and event.publisher != ""


def fails(event: Any, size: int, *args: object) -> bool:
    """Raises on most events, which is unknown."""
    if size % 3 == 0:
        return True
    raise RuntimeError("no answer")


def shrugs(event: Any, size: int, *args: object) -> object:
    """Answers with something that is not yes or no."""
    return None if size % 2 == 0 else (1 if size % 3 == 0 else True)


FUNCTIONS: Final[Mapping[str, Callable[..., object]]] = {
    "small": small,
    "kinds": kinds,
    "sees": sees,
    "fails": fails,
    "shrugs": shrugs,
}
ARITIES: Final[Mapping[str, int]] = {"small": 1, "kinds": 2, "sees": 0, "fails": 1, "shrugs": 0}
DIGEST: Final = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def registration(name: str, prefix: str = "") -> RegisterPredicate:
    """The change that registers one of these."""
    return RegisterPredicate(f"{prefix}{name}", f"strategies.predicates:{name}", DIGEST)


def function_of(registered: RegisterPredicate) -> Callable[..., object]:
    """The function behind a registration."""
    return FUNCTIONS[registered.target.partition(":")[2]]
