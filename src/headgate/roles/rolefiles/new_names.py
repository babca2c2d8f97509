"""New names of services and roles that could be mistaken are refused, as `decide.names` does with all others.

Guarantees: a service is compared with the services and peers that there are, a role that is granted with the roles of
its service. Whatever anyone holds already keeps its name. Roles of rolefiles are written in ASCII: none is mistaken.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.decide.names import check_new_name
from headgate.model.changes import GrantRole, RoleRequest, SetPeer, SetRolefile
from headgate.model.errors import BadDefinition
from headgate.model.lookalikes import Lookalikes
from headgate.model.rolefiles import Rolefile
from headgate.model.state import State


def check_role_names(before: State, after: State, asked: Sequence[RoleRequest]) -> None:
    """Refuse the first new name of a service or role that could be mistaken; `after` has the rolefiles of the batch."""
    if after.any_names or not asked:
        return
    known = dict.fromkeys([*before.roles.rolefiles, *before.roles.peers])
    for request in asked:
        match request:
            case SetRolefile(service, _) | GrantRole(service=service):
                pass
            case SetPeer(peer):
                service = peer.name
            case _:
                continue
        if service not in known:
            _check_service(before, service, known)
            known[service] = None
        if isinstance(request, GrantRole) and not request.role.isascii():
            roles = _roles(after.roles.rolefiles.get(service, Rolefile()))
            held = {each.role: None for each in before.roles.memberships.values() if each.service == service}
            if request.role not in held:
                check_new_name("role", request.role, Lookalikes({**roles, **held}))


def _check_service(before: State, name: str, known: dict[str, None]) -> None:
    try:
        check_new_name("service", name, Lookalikes(known))
    except BadDefinition:
        if not any(one.service == name for one in before.roles.memberships.values()):
            raise


def _roles(rolefile: Rolefile) -> dict[str, None]:
    """The roles of a service, in the order of its rolefile."""
    named = [*(one.role for one in rolefile.declarations), *(one.head.role for one in rolefile.statements)]
    return dict.fromkeys(named)
