"""Entering, ending and refusal of a role as events, for the roles that a rolefile audits (decision 0034).

Guarantees: the types are event types like any other, owned by the administrator, and are there from the version on that
brings the first `audit`; what no rule gives is not seen. An event is worked out of what the ledger records, and has the
same id however often it is made, so that it can be published until it is known to be in the log, and is there once.
Leaves out: publishing (`gateway.roles.audit_events`, and `scenario.engines.play`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from headgate.lang.render import render_argument
from headgate.model.changes import AddRule, Batch, Change, DeclareType, EnterRole, SetRolefile
from headgate.model.errors import BadDefinition
from headgate.model.events import Draft
from headgate.model.expressions import Argument
from headgate.model.rights import ANNOUNCES, Action, Rule
from headgate.model.rolefiles import Rolefile
from headgate.model.roles import Membership
from headgate.model.state import State
from headgate.model.types import EventType
from headgate.model.values import Kind, Value, brief

Word: TypeAlias = Literal["entered", "ended", "refused"]

AUDITED: Final = "headgate.roles.Audited"
TYPES: Final[dict[Word, str]] = {
    "entered": "headgate.roles.Entered",
    "ended": "headgate.roles.Ended",
    "refused": "headgate.roles.Refused",
}
SOURCE: Final = "headgate.roles audit"
ALL: Final = "headgate.roles.*"
"""The types of all that is told of roles."""
_ATTRIBUTES: Final = {
    **dict.fromkeys(("service", "instance", "role", "args", "principal", "id", "reason", "note"), Kind.STRING),
    "version": Kind.INT,
}


@dataclass(frozen=True, slots=True)
class RoleTurn:
    """What became of a membership: the ledger recorded that it began, or ended for a reason; or it was refused."""

    word: Word
    membership: Membership
    version: int
    reason: str = ""
    note: str = ""
    """What the version says of itself: who asked for what."""

    def draft(self, author: str, nonce: str = "") -> Draft:
        """The event that tells of it; `nonce` tells requests of the same id apart."""
        one = self.membership
        values: dict[str, Value] = {
            "service": one.service,
            "instance": one.instance,
            "role": one.role,
            "args": ", ".join("_" if arg is None else _text(arg) for arg in one.args),
            "principal": one.holder,
            "id": one.id,
            "reason": self.reason,
            "note": self.note,
            "version": self.version,
        }
        return Draft(f"{self.word}:{one.id}@{self.version}{nonce}", author, TYPES[self.word], values, SOURCE)


def is_audited(rolefile: Rolefile | None, role: str) -> bool:
    """Does a rolefile audit a role?"""
    return rolefile is not None and role in rolefile.audited


def refusal(state: State, asked: EnterRole, reason: str, nonce: str = "") -> Draft | None:
    """The event of a role that was not given, if it is audited; `nonce` tells requests of the same id apart."""
    if not is_audited(state.roles.rolefiles.get(asked.service), asked.role):
        return None
    wanted = Membership(asked.id, asked.service, asked.role, asked.args or (), asked.principal, 0, asked.instance)
    return RoleTurn("refused", wanted, state.version, reason).draft(state.administrator, nonce)


def _text(value: Argument) -> str:
    try:
        return render_argument(value)
    except BadDefinition:
        return brief(value)


def turned(before: State, after: State, reasons: Iterable[tuple[str, str]] = ()) -> list[RoleTurn]:
    """What one version made of memberships of audited roles; `reasons` say why some ended."""
    old, new = before.roles.memberships, after.roles.memberships
    if old is new:
        return []
    why = dict(reasons)
    ended = [one for id, one in old.items() if id not in new or new[id].record != one.record]
    began = [one for id, one in new.items() if id not in old or old[id].record != one.record]
    made = [RoleTurn("ended", one, after.version, why.get(one.id, "")) for one in ended]
    made += [RoleTurn("entered", one, after.version) for one in began]
    files = {"ended": before.roles.rolefiles, "entered": after.roles.rolefiles}
    return [one for one in made if is_audited(files[one.word].get(one.membership.service), one.membership.role)]


# -- the types ------------------------------------------------------------------------------------------------


def with_types(state: State, batch: Batch) -> Batch:
    """A batch that brings the first `audit` brings the types as well, and the administrator's right to publish them."""
    if not any(isinstance(one, SetRolefile) and one.rolefile and one.rolefile.audits for one in batch.changes):
        return batch
    who = state.administrator
    wanted = [EventType(AUDITED, who, _ATTRIBUTES), *(EventType(name, who, {}, AUDITED) for name in TYPES.values())]
    made = missing_types(state, wanted, batch.changes)
    return replace(batch, changes=(*made, *batch.changes)) if made else batch


def missing_types(state: State, wanted: Iterable[EventType], beside: Sequence[Change] = ()) -> list[Change]:
    """What neither state nor batch has yet of Headgate's own types, and of the administrator's right to publish them.

    Refused if a type by such a name is another's.
    """
    declared = {one.type.name for one in beside if isinstance(one, DeclareType)}
    ruled = {rule.id for rule in state.rules} | {one.rule.id for one in beside if isinstance(one, AddRule)}
    made: list[Change] = []
    for event_type in wanted:
        if event_type.name not in state.types:
            made += [] if event_type.name in declared else [DeclareType(event_type)]
        elif state.types[event_type.name].owner != state.administrator:
            raise another_type(event_type.name)
    if ANNOUNCES not in ruled:
        made.append(AddRule(Rule(ANNOUNCES, state.administrator, frozenset({Action.PUBLISH}), ALL)))
    return made


def another_type(name: str) -> BadDefinition:
    """The refusal of a type by a name of Headgate's own."""
    return BadDefinition(f"`{name}` is another type here", remedy="retire it: the name is Headgate's own")
