"""Is what an `assert` claims so?

Guarantees: looked at in the state of the ledger alone, so that both engines are asked the same. What is gone is false.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from headgate.authority.statement_state import StatementState
from headgate.decide.rolebook import fit
from headgate.lang.render_roles import render_membership, render_role
from headgate.model.state import State
from headgate.scenario.format.story import Claim, HoldingClaim, StateClaim


def wrong(claim: Claim, state: State, at: datetime) -> str | None:
    """What is wrong about a claim, in words; None if it is so."""
    match claim:
        case HoldingClaim(_, principal, role, holds):
            meant = [one for one in state.roles.held_by(principal) if fit(role, one, {}) is not None]
            if bool(meant) is holds:
                return None
            if meant:
                held = ", ".join(render_membership(*one.place, one.role, one.args) for one in meant)
                return f"`{principal}` holds `{held}`"
            return f"`{principal}` does not hold `{render_role(role)}`"
        case StateClaim(_, id, wanted):
            found = _state(claim, state, at)
            return None if found is wanted else f"`{id}` is {_word(found)}, not {_word(wanted)}"
        case _:
            assert_never(claim)


def _state(claim: StateClaim, state: State, at: datetime) -> bool | None:
    book = state.roles
    if claim.statement is not None:
        certificate = state.certificates.get(claim.statement)
        if certificate is not None:
            return StatementState(state).is_known(certificate, at)
        return claim.statement in state.identities
    if claim.id in book.memberships:
        return book.memberships[claim.id].state
    election = book.elections.get(claim.id)
    return False if election is None else book.records[election.record].state


def _word(state: bool | None) -> str:
    return "unknown" if state is None else str(state).lower()
