"""What the principals of a story ask of role services, over HTTP.

Guarantees: a client asks for itself, with its own session; what a service does for its own reasons is the
administrator's. What the node gave is known under the id of the file from then on. What has ended already is revoked
once more without effect, as the format says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol, assert_never

from headgate.client.aio import Client
from headgate.lang.render import render_role
from headgate.model.changes import (
    ElectRole,
    EndCredential,
    EnterRole,
    GrantRole,
    HearPeer,
    MirrorRole,
    PassRevocation,
    ReinstateRole,
    RemovePeer,
    RevokeRole,
    SetPeer,
    SetRolefile,
    WatchRecords,
)
from headgate.model.errors import NotFound, RoleDenied
from headgate.model.state import State
from headgate.scenario.engines.node_engine.ledger_names import IssuedCredentials
from headgate.scenario.engines.node_engine.served_node import ServedNode
from headgate.scenario.format.story import RoleStep


class ClientOf(Protocol):
    """Who gives the client of a principal."""

    def __call__(self, principal: str, origin: str | None = None) -> Client:
        """A client with a session, or why there can be none."""


@dataclass(frozen=True, slots=True)
class StoryRoles:
    """Asks for roles in the name of principals."""

    node: ServedNode
    client: ClientOf
    administrator: str
    credentials: IssuedCredentials

    def take(self, step: RoleStep, state: State) -> None:
        """Carry out a step about roles."""
        known, run = self.credentials, self.node.run
        match step.request:
            case GrantRole(id, service, role, args, to, instance, appointment, until):
                roles = self.client(self.administrator).roles
                granted = run(
                    roles.grant(service, role, to, args, appointment=appointment, until=until, instance=instance)
                )
                known.add(id, granted.memberships[0].id)
            case EnterRole(id, service, role, args, principal, using, _, instance, origin):
                roles = self.client(principal, origin).roles
                entered = run(roles.enter(service, role, args, using=known.node_ids(using), instance=instance))
                known.add(id, entered.memberships[0].id)
            case ElectRole(id, service, role, args, principal, using) as asked:
                elected = run(
                    self.client(principal).roles.elect(
                        service,
                        role,
                        args,
                        to=[render_role(required) for required in asked.required],
                        anyone=not asked.required,
                        until=asked.until,
                        revoke_on_exit=asked.revoke_on_exit,
                        using=known.node_ids(using),
                        instance=asked.instance,
                    )
                )
                known.add(id, elected.election.id)
            case EndCredential(id, by):
                self._end(known.node_id(id), by, state)
            case PassRevocation(election, by, to):
                self._pass(known.node_id(election), by, to, state)
            case RevokeRole(service, role, pattern, principal, using, _, instance):
                roles = self.client(principal).roles
                run(roles.revoke_role(service, role, pattern, using=known.node_ids(using), instance=instance))
            case ReinstateRole(service, role, pattern, principal, using, _, instance):
                roles = self.client(principal).roles
                run(roles.reinstate(service, role, pattern, using=known.node_ids(using), instance=instance))
            case SetRolefile() | MirrorRole() | HearPeer() | SetPeer() | RemovePeer() | WatchRecords():
                raise AssertionError("that is nothing that is asked of a role service")
            case _:
                assert_never(step.request)

    def _pass(self, id: str, by: str, to: str, state: State) -> None:
        """Let another take an election back; one that has ended is not found, whoever asks."""
        client = self.client(by)
        with _denied_not_hidden() if id in state.roles.elections else nullcontext():
            self.node.run(client.roles.pass_revocation(id, to))

    def _end(self, id: str, by: str | None, state: State) -> None:
        """End a membership or an election, as its holder, its elector or the service itself."""
        client = self.client(self.administrator if by is None else by)
        if id not in state.roles.memberships and id not in state.roles.elections:
            return
        with _denied_not_hidden():
            if by is not None and id in state.roles.memberships:
                self.node.run(client.roles.exit(id))
            else:
                self.node.run(client.roles.revoke(id=id))


@contextmanager
def _denied_not_hidden() -> Iterator[None]:
    """A gateway does not tell strangers that a credential is there; the format tells that it is not theirs."""
    try:
        yield
    except NotFound as error:
        raise RoleDenied(error.message, failure="misuse", remedy=error.remedy) from None
