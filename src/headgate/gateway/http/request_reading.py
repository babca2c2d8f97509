"""What clients write, read without holding anyone up: conditions, requirements, roles and batches of changes.

Guarantees: what a principal may not do is refused before a character of it is read, and what is longer than
MAX_EXPRESSION_TEXT, or has more than MAX_REQUIREMENTS, is refused as a whole. Up to INLINE_CHARS are read at once,
which takes a few milliseconds at worst; all else is read by another process (`worker_pool`), in the turn of its
principal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Final

from headgate.gateway.http.change_requests import changes_of, check_may_change, expression_chars
from headgate.gateway.http.worker_pool import Workers
from headgate.lang import Requirement, Sort, Wanted, read_all
from headgate.model.changes import Change
from headgate.model.composite import Composite
from headgate.model.errors import BadExpression, HeadgateError, TooLarge
from headgate.model.expressions import TRUE, Condition, Related, RoleRef
from headgate.model.limits import MAX_EXPRESSION_TEXT, MAX_REQUIREMENTS
from headgate.model.rolefiles import Rolefile
from headgate.model.state import State
from headgate.pipeline.index.requirements import check, is_known, remember, requirement_of
from headgate.protocol import messages as wire

INLINE_CHARS: Final = 256
"""Characters of one request that are read at once."""


class RequestReader:
    """Reads for one gateway. Used from its event loop."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def condition(self, principal: str, text: str | None) -> Condition:
        """A condition as sent; absent, it is true."""
        found: Condition = TRUE if text is None else _said((await self._read(principal, "condition", [text]))[text])
        return found

    async def composite(self, principal: str, text: str) -> Composite:
        """A composite event."""
        found: Composite = _said((await self._read(principal, "composite", [text]))[text])
        return found

    async def row(self, principal: str, text: str) -> Related:
        """A row of a relation, of variables and literals."""
        found: Related = _said((await self._read(principal, "row", [text]))[text], "adds")
        return found

    async def roles(self, principal: str, texts: Sequence[str], what: str) -> list[RoleRef]:
        """Roles as they are written in a rolefile."""
        found = await self._read(principal, "role", texts)
        return [_said(found[text], f"{what} {at + 1}") for at, text in enumerate(texts)]

    async def rolefile(self, principal: str, text: str) -> Rolefile:
        """A rolefile."""
        found: Rolefile = _said((await self._read(principal, "rolefile", [text]))[text])
        return found

    async def requirements(self, principal: str, texts: Iterable[str]) -> None:
        """Know what requirements say, so that nobody has to find it out where others wait (`requirement_of`)."""
        different = dict.fromkeys(texts)
        if len(different) > MAX_REQUIREMENTS:
            raise BadExpression(
                f"{len(different)} different requirements are past MAX_REQUIREMENTS ({MAX_REQUIREMENTS})",
                remedy="send fewer events at a time",
            )
        check_length(sum(map(len, different)))
        new = [text for text in different if not is_known(text)]
        for text, result in (await self._read(principal, "requirement", new)).items():
            if isinstance(result, Requirement):
                remember(text, result.condition, result.written)
            elif isinstance(result, BadExpression):
                remember(text, result)

    async def changes(self, state: State, author: str, ops: Sequence[wire.ChangeOp]) -> tuple[Change, ...]:
        """The changes of a batch, if its author may make any such."""
        check_may_change(state, author, ops)
        chars = expression_chars(ops)
        check_length(chars)
        if chars <= INLINE_CHARS:
            return changes_of(ops, author)
        return await self._workers.run(author, changes_of, ops, author)

    async def _read(self, principal: str, sort: Sort, texts: Iterable[str]) -> Mapping[str, object]:
        """What each text says, or its refusal."""
        wanted: list[Wanted] = [(sort, text) for text in dict.fromkeys(texts)]
        chars = sum(len(text) for _, text in wanted)
        check_length(chars)
        found = read_all(wanted) if chars <= INLINE_CHARS else await self._workers.run(principal, read_all, wanted)
        return {text: one for (_, text), one in zip(wanted, found, strict=True)}


def check_length(chars: int) -> None:
    """Refuse a request with more to read than anyone may send."""
    if chars > MAX_EXPRESSION_TEXT:
        raise TooLarge(
            f"{chars} characters of expressions are past MAX_EXPRESSION_TEXT ({MAX_EXPRESSION_TEXT})",
            remedy="send them in several requests",
        )


def requirement(text: str) -> Condition:
    """A requirement that was read before, or its refusal."""
    found = requirement_of(text)
    check(found)
    return found


def _said(found: object, place: str | None = None) -> Any:
    if isinstance(found, HeadgateError):
        error = copy(found)
        raise error if place is None else error.at(place)
    return found
