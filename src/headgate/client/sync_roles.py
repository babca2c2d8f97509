"""Roles at a domain, for programs without an event loop: `roles.Roles`, run on the client's own thread.

Guarantees: the same behaviour, method by method.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from headgate.client import roles as inner

P = ParamSpec("P")
T = TypeVar("T")


class Run(Protocol):
    """Does work on a loop elsewhere, and waits for it."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of the work."""


def waited(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A method of what is `_inner`, run by `_run` and waited for: the same arguments, words and answer."""

    @functools.wraps(method)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = self._run(method(self._inner, *args, **kwargs))
        return found

    return run


class Roles:
    """What a connected principal does with roles."""

    def __init__(self, run: Run, roles: inner.Roles) -> None:
        self._run = run
        self._inner = roles

    @property
    def trouble(self) -> BaseException | None:
        """Why a certificate could not be renewed the last time; None if they could."""
        return self._inner.trouble

    @property
    def certificates(self) -> list[str]:
        """The certificates of what one has entered, the newest of each."""
        return self._inner.certificates

    overview = waited(inner.Roles.overview)
    held = waited(inner.Roles.held)
    rolefile = waited(inner.Roles.rolefile)
    parse = waited(inner.Roles.parse)
    graph = waited(inner.Roles.graph)
    enter = waited(inner.Roles.enter)
    accept = waited(inner.Roles.accept)
    exit = waited(inner.Roles.exit)
    grant = waited(inner.Roles.grant)
    renew = waited(inner.Roles.renew)
    present = waited(inner.Roles.present)
    elect = waited(inner.Roles.elect)
    revoke = waited(inner.Roles.revoke)
    pass_revocation = waited(inner.Roles.pass_revocation)
    revoke_role = waited(inner.Roles.revoke_role)
    reinstate = waited(inner.Roles.reinstate)
