"""From operations of the protocol to changes of the ledger."""

import dataclasses
from typing import Any, get_args

import msgspec
import pytest

from headgate.gateway.http.change_requests import changes_of
from headgate.model import changes
from headgate.protocol import messages as wire

SPECIAL = {
    *(wire.AddRuleOp, wire.DeclareTypeOp, wire.DeclarePrincipalOp, wire.SetPolicyRuleOp, wire.SetCoordinatorOp),
    *(wire.SetProviderOp, wire.AddIssuingOp, wire.SetRolefileOp, wire.SetEventPolicyOp, wire.SetRepresentativeOp),
    wire.SetPeerOp,
}
"""What is read, or says more than its change."""
VALUES: dict[str, Any] = {"row": ["a", 1], "value": True, "open": True}


@pytest.mark.parametrize("kind", [op for op in get_args(wire.ChangeOp) if op not in SPECIAL])
def test_an_operation_that_is_not_read_has_the_name_and_the_members_of_its_change(kind: Any) -> None:
    change = getattr(changes, kind.__name__.removesuffix("Op"))
    members = [field.name for field in msgspec.structs.fields(kind)]
    assert members == [field.name for field in dataclasses.fields(change)]
    given = {name: VALUES.get(name, f"some {name}") for name in members}
    (made,) = changes_of([kind(**given)], "anna")
    assert made == change(**{name: tuple(one) if isinstance(one, list) else one for name, one in given.items()})
