"""The client without an event loop offers what the asynchronous one does, with the same arguments and words."""

from __future__ import annotations

import inspect

import pytest

from headgate.client import aio, roles, sync

OWN = {"open": "a client is opened when it is made", "stop": "the client stops what it began"}


@pytest.mark.parametrize(("waiting", "asynchronous"), [(sync.Client, aio.Client), (sync.Roles, roles.Roles)])
def test_every_method_is_there_with_its_arguments_and_words(waiting: type, asynchronous: type) -> None:
    offered = {name for name in vars(asynchronous) if not name.startswith("_")} - OWN.keys()
    assert offered <= set(vars(waiting))
    for name in offered:
        mine, its = getattr(waiting, name), getattr(asynchronous, name)
        assert inspect.getdoc(mine), name
        assert not inspect.iscoroutinefunction(mine), name
        if callable(its):
            assert inspect.signature(mine).parameters.keys() == inspect.signature(its).parameters.keys(), name
