"""What the commands about roles share: a refusal is an answer, and roles as words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headgate.cli.shared.common import fail
from headgate.lang.render import render_argument, render_membership
from headgate.lang.rolefile import parse_argument
from headgate.model.conditions import Argument
from headgate.model.errors import BadDefinition, BadExpression, RoleDenied


@contextmanager
def judged() -> Iterator[None]:
    """A role that is denied is an answer: it is shown with its class, and the status is 1."""
    try:
        yield
    except RoleDenied as error:
        reason = error.details.get("reason")
        error.message = f"{error.message} ({error.failure}{f', {reason}' if reason else ''})"
        fail(error, status=1)


# -- roles as words -------------------------------------------------------------------------------------------


def arguments_of(texts: Iterable[str]) -> list[Argument | None]:
    """Arguments of the command line: `_` is open, and what is no constant of rolefiles is text."""
    return [None if text == "_" else _argument(text) for text in texts]


def _argument(text: str) -> Argument:
    try:
        return parse_argument(text)
    except BadExpression:
        return text


def role_words(service: str, instance: str, role: str, args: Sequence[Any]) -> str:
    """`Conf.Member('dm', _)`; a service without a rolefile may have any name."""
    try:
        if None not in args:
            return render_membership(service, instance, role, args)
        return f"{render_membership(service, instance, role, ())}({', '.join(map(_open, args))})"
    except BadDefinition:
        return f"{service}.{role}({', '.join(map(_open, args))})" if args else f"{service}.{role}"


def _open(one: Any) -> str:
    return "_" if one is None else render_argument(one)
