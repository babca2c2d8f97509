"""Generic predicates: found once, kept beside the ledger, loaded by the hash of their source.

Guarantees: a predicate that runs is the one that was registered: its module is kept as a copy named by the SHA-256 of
its source, and a copy that does not match is refused. A module of a directory runs only where that is allowed
(`Allowed`), and only if it really stands there: no link leads out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from headgate.decide.truth import NotRun, PredicateFunction
from headgate.model.changes import RegisterPredicate
from headgate.model.errors import BadDefinition, Damaged


def find(name: str, target: str, beside: Path, within: Path | None = None) -> tuple[RegisterPredicate, bytes]:
    """What to record of `module:function` beside a file, and the source of the module; nothing of it runs.

    A module that a link brings in from outside of `within`, or of the directory of the file, is refused.
    """
    module, _, function = target.partition(":")
    source = beside / (module.replace(".", "/") + ".py")
    if not function or not source.is_file():
        raise BadDefinition(
            f"the predicate `{name}` is at `{target}`, and there is no `{source}`",
            remedy="write `module:function`, with the module beside the file",
        )
    if not source.resolve().is_relative_to((within or beside).resolve()):
        raise BadDefinition(
            f"the predicate `{name}` is at `{target}`, and `{source}` leads out of `{within or beside}`",
            remedy="put the module itself there, not a link to it",
        )
    text = source.read_bytes()
    return RegisterPredicate(name, target, hashlib.sha256(text).hexdigest()), text


def register(name: str, target: str, beside: Path, keep: Path, within: Path | None = None) -> RegisterPredicate:
    """Find `module:function` beside a file, keep a copy of the module, run it, and say what to record."""
    function, text = find(name, target, beside, within)
    keep.mkdir(parents=True, exist_ok=True)
    (keep / f"{function.digest}.py").write_bytes(text)
    load(str(keep / f"{function.digest}.py"), function.digest, target)
    return function


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which modules of a directory may run: all of them, or those that a domain has registered just as they are."""

    everything: bool = False
    registered: Mapping[str, RegisterPredicate] = field(default_factory=dict)
    keep: Path | None = None
    """Where the domain keeps its copies."""

    def function(self, predicate: RegisterPredicate, text: bytes) -> PredicateFunction:
        """The function, if it may run; else one that is known by name alone, and answers nothing."""
        if self.keep is not None and self.registered.get(predicate.name) == predicate:
            return load(str(self.keep / f"{predicate.digest}.py"), predicate.digest, predicate.target)
        if not self.everything:
            return NotRun()
        with tempfile.TemporaryDirectory() as keep:
            copy = Path(keep) / f"{predicate.digest}.py"
            copy.write_bytes(text)
            return load(str(copy), predicate.digest, predicate.target)


EVERYTHING = Allowed(everything=True)


@lru_cache(maxsize=256)
def load(path: str, digest: str, target: str) -> PredicateFunction:
    """The function, from a copy that must match its hash."""
    source = Path(path)
    if not source.is_file() or hashlib.sha256(source.read_bytes()).hexdigest() != digest:
        raise Damaged(f"`{path}` is not the predicate module that was registered", remedy="restore it from a copy")
    spec = importlib.util.spec_from_file_location(f"headgate_predicate_{digest[:16]}", source)
    if spec is None or spec.loader is None:
        raise Damaged(f"`{path}` cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, target.partition(":")[2], None)
    if not callable(function):
        raise BadDefinition(f"`{target}` is not a function")
    return function  # type: ignore[no-any-return]


def load_all(registered: Iterable[RegisterPredicate], keep: Path) -> Mapping[str, PredicateFunction]:
    """The predicates of a state, by name."""
    return {p.name: load(str(keep / f"{p.digest}.py"), p.digest, p.target) for p in registered}


class Sources(dict[str, str]):
    """Predicate modules by digest. It goes to every worker, so it stands where little else is loaded with it."""

    def __init__(self, keep: Path) -> None:
        super().__init__({p.stem: str(p) for p in keep.glob("*.py")} if keep.is_dir() else {})
        self.keep = keep

    def __missing__(self, digest: str) -> str:
        return str(self.keep / f"{digest}.py")

    def __reduce__(self) -> Any:
        return Sources, (self.keep,)
