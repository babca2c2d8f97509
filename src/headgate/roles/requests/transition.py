"""The next state, with what a batch makes of roles: `decide.apply`, and what follows for memberships (D13).

Guarantees: pure but for the book, which a refusal leaves as it was. Requests of roles are worked out into `Settle`, so
that the batch that is recorded says what became of them. A change of groups, relations, principals or the clock ends
in the same batch whatever rested on it; all that a batch changes is looked at together, so that nothing ends that held
before and holds after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias, get_args

from headgate.decide.apply import apply
from headgate.decide.constraints import RoleFunction
from headgate.decide.rolebook import merged
from headgate.model.changes import (
    AddMember,
    AddRow,
    Batch,
    DeclareGroup,
    DeclareRelation,
    RegisterPredicate,
    RemoveGroup,
    RemoveMember,
    RemovePredicate,
    RemovePrincipal,
    RemoveRelation,
    RemoveRow,
    RoleRequest,
    SetRolefile,
    Settle,
    Tick,
)
from headgate.model.errors import GovernDenied
from headgate.model.state import State
from headgate.roles.records.book import Book
from headgate.roles.requests.audit import with_types
from headgate.roles.requests.role_requests import RoleRequests
from headgate.roles.rolefiles.checking import settle_rolefile
from headgate.roles.rolefiles.kinds import check_kinds, touches_kinds
from headgate.roles.rolefiles.names import check_role_names

Functions: TypeAlias = Mapping[str, RoleFunction] | Callable[[State], Mapping[str, RoleFunction]]
"""The functions of services; or how to find those of the state after a batch, which may bring new ones."""

_REQUESTS = get_args(RoleRequest)
_STIRRING = (
    *(DeclareGroup, RemoveGroup, AddMember, RemoveMember),
    *(DeclareRelation, RemoveRelation, AddRow, RemoveRow),
    *(RegisterPredicate, RemovePredicate, RemovePrincipal, Tick),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The batch as it is recorded, the state after it, and the book of that state, if there is one."""

    batch: Batch
    after: State
    book: Book | None


def transition(
    state: State,
    batch: Batch,
    *,
    book: Book | None = None,
    functions: Functions | None = None,
    now: datetime | None = None,
) -> Outcome:
    """What a batch makes of a state; `book` is that of the state, if the caller has it.

    `now` is when this happens; without it, what must be looked at again and rests on the clock is unknown.
    """
    asked = [change for change in batch.changes if isinstance(change, _REQUESTS)]
    stirring = [change for change in batch.changes if isinstance(change, _STIRRING)]
    if asked and batch.author != state.administrator:
        raise GovernDenied(f"`{batch.author}` does not govern the roles of the domain")
    if any(isinstance(change, Settle) for change in batch.changes):
        if asked or stirring:
            raise TypeError("what becomes of roles is settled here, and was settled already")
        return Outcome(batch, apply(state, batch), None)
    batch = with_types(state, batch)
    plain = tuple(change for change in batch.changes if not isinstance(change, _REQUESTS))
    after = apply(_with_rolefiles(state, asked), replace(batch, changes=plain))
    if touches_kinds(batch):
        check_kinds(state, _settled(after, asked), batch)
    check_role_names(state, after, asked)
    known = state.roles
    if after.roles.rolefiles is not known.rolefiles:
        after = replace(after, roles=replace(after.roles, rolefiles=known.rolefiles))
    if not asked and not (stirring and (known.memberships or known.elections or known.records or known.peers)):
        if book is None or book.version != state.version:
            return Outcome(batch, after, None)
        book.version = after.version
        return Outcome(batch, after, book)
    known_functions = functions(after) if callable(functions) else functions or {}
    book = book if book is not None and book.version == state.version else Book(state)
    book.mark()
    try:
        settling = RoleRequests(book, state, after, known_functions)
        settling.at(now)
        settling.moved = len(asked) < len(batch.changes)
        settling.removed = frozenset(one.name for one in stirring if isinstance(one, RemovePrincipal))
        if stirring:
            settling.look_around()
        for change in batch.changes:
            if isinstance(change, Tick):
                settling.tick(change.at)
            elif isinstance(change, _REQUESTS):
                settling.do(change)
        settling.conclude()
        facts = settling.facts()
    except BaseException:
        book.rollback(state)
        raise
    book.keep(after.version)
    recorded = replace(batch, changes=(*plain, Settle(facts)))
    return Outcome(recorded, replace(after, roles=merged(after.roles, facts)), book)


def _with_rolefiles(state: State, asked: list[RoleRequest]) -> State:
    """A state with the rolefiles that are asked for: what else is in the batch is judged beside those."""
    new = {one.service: one.rolefile for one in asked if isinstance(one, SetRolefile)}
    if not new:
        return state
    rolefiles = {**state.roles.rolefiles, **new}
    kept = {service: one for service, one in rolefiles.items() if one is not None}
    return replace(state, roles=replace(state.roles, rolefiles=kept))


def _settled(after: State, asked: list[RoleRequest]) -> State:
    """A state with the rolefiles that are asked for, as they will be kept."""
    new = {one.service for one in asked if isinstance(one, SetRolefile)} & after.roles.rolefiles.keys()
    if not new:
        return after
    known = after.roles.rolefiles
    kept = {one: settle_rolefile(known[one], after, known, {}) for one in new}  # literals do not matter for kinds
    return replace(after, roles=replace(after.roles, rolefiles={**known, **kept}))


def next_state(state: State, batch: Batch, functions: Functions | None = None) -> State:
    """The state after a batch, for whoever keeps no book."""
    return transition(state, batch, functions=functions).after
