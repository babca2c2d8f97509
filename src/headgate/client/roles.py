"""Roles at a domain: entering, leaving, electing and revoking, with certificates that are kept fresh.

Guarantees: whatever is asked is done once, however often it has to be sent. A certificate that was given is kept in the
wallet and renewed before it ends, for as long as the membership is true; one whose membership was lost leaves the
wallet. Arguments are Python values both ways: a set of letters is a `frozenset`.
Leaves out: what a role gives, and who may have it, which the gateways decide; running without a loop (`sync`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from headgate.client.session import ClientSession, listed
from headgate.client.wallet import Renewal, RoleHeld
from headgate.model.errors import HeadgateError, NotFound, RoleDenied
from headgate.model.expressions import Argument
from headgate.model.roles import dump_argument, load_argument
from headgate.protocol import role_messages as rw
from headgate.trust.handshake import new_nonce

A = TypeVar("A")
Args: TypeAlias = "Sequence[Argument | set[str] | None]"
"""The arguments of a role, in order; None leaves one open where that may be."""

ALL: Final = rw.ALL  # among what is shown: all memberships that one holds


class Roles:
    """What a connected principal does with roles."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._wallet = session.wallet
        self._renewal = Renewal(self._wallet.wait_for_roles, self._renew_due, session.timing)

    @property
    def trouble(self) -> BaseException | None:
        """Why a certificate could not be renewed the last time; None if they could."""
        return self._renewal.trouble

    # -- what one has -----------------------------------------------------------------------------------------

    async def overview(self) -> rw.RolesAnswer:
        """What one holds, what one may take back, and which services have roles."""
        reply = await self._session.ask(rw.RolesAnswer, "GET", "/v1/roles")
        _load(*reply.held, *reply.elections)
        return reply

    async def held(self) -> list[rw.MembershipAnswer]:
        """The memberships that one holds, in the order in which they began."""
        return (await self.overview()).held

    @property
    def certificates(self) -> list[str]:
        """The certificates of what one has entered, the newest of each."""
        return [one.text for one in self._wallet.roles.values()]

    async def rolefile(self, service: str) -> rw.RolefileAnswer:
        """The types of a service's roles, and its statements if one may know them."""
        return await self._session.ask(rw.RolefileAnswer, "GET", "/v1/roles", service, "rolefile")

    async def parse(self, service: str, text: str, type: str | None = None) -> rw.ParsedAnswer:
        """What a text means to a service: `Member('dm', _)`, or with a type a literal of it."""
        parsed = await self._post(rw.ParsedAnswer, service, "parse", text=text, type=type)
        _load(parsed)
        return parsed

    async def graph(self, root: str | None = None) -> rw.GraphAnswer:
        """The credential graph around what one has, and what would fall with the root."""
        params = None if root is None else {"root": root}
        return await self._session.ask(rw.GraphAnswer, "GET", "/v1/roles/graph", params=params)

    # -- entering and leaving ---------------------------------------------------------------------------------

    async def enter(
        self,
        service: str,
        role: str | Sequence[str] | Mapping[str, Args | None],
        args: Args | None = None,
        *,
        using: Sequence[str] | None = None,
        instance: str = "",
    ) -> rw.CertificateAnswer:
        """Enter a role, or several with one certificate: their names, or their names with arguments.

        `using` is what one shows: ids, certificates and `ALL`; without it, all memberships that one holds.
        """
        if isinstance(role, str):
            wanted: dict[str, Any] = {"role": role, "args": _dumped(args)}
        else:
            named = role if isinstance(role, Mapping) else dict.fromkeys(role)
            wanted = {"roles": [{"role": name, "args": _dumped(given)} for name, given in named.items()]}
        body = {**wanted, "with": listed(using), "instance": instance, "request": new_nonce()}
        return self._keep(service, await self._post(rw.CertificateAnswer, service, "enter", **body))

    async def accept(
        self,
        service: str,
        role: str,
        delegation: str | Sequence[str],
        args: Args | None = None,
        *,
        using: Sequence[str] = (ALL,),
        instance: str = "",
    ) -> rw.CertificateAnswer:
        """Enter a role to which one was elected: by delegation certificates, or the ids of elections."""
        shown = [delegation] if isinstance(delegation, str) else list(delegation)
        return await self.enter(service, role, args, using=[*using, *shown], instance=instance)

    async def exit(self, id: str) -> None:
        """Give a membership up."""
        await self._session.request("DELETE", "/v1/roles/memberships", id)
        self._wallet.drop_role(id)

    async def grant(
        self,
        service: str,
        role: str,
        to: str,
        args: Args = (),
        *,
        appointment: bool = False,
        until: datetime | None = None,
        instance: str = "",
    ) -> rw.CertificateAnswer:
        """Give someone a role, or appoint; that is for the administrator."""
        reply = await self._post(
            rw.CertificateAnswer,
            *(service, "grant"),
            role=role,
            to=to,
            args=_dumped(args),
            appointment=appointment,
            until=until,
            instance=instance,
            request=new_nonce(),
        )
        _load(*reply.memberships)
        return reply

    async def renew(
        self, service: str, *, id: str | None = None, certificate: str | None = None
    ) -> rw.CertificateAnswer:
        """A fresh certificate for what one still holds; by itself this is done for what was entered here."""
        return self._keep(service, await self._post(rw.CertificateAnswer, service, "renew", **_which(id, certificate)))

    async def present(self, certificate: str) -> rw.PresentedAnswer:
        """Let roles of another domain, whose certificate one has, count at this one."""
        reply = await self._post(rw.PresentedAnswer, "present", certificate=certificate)
        _load(*reply.memberships)
        return reply

    # -- electing and revoking --------------------------------------------------------------------------------

    async def elect(
        self,
        service: str,
        role: str,
        args: Args | None = None,
        *,
        to: Sequence[str] = (),
        anyone: bool = False,
        until: datetime | None = None,
        revoke_on_exit: bool = False,
        using: Sequence[str] | None = None,
        instance: str = "",
    ) -> rw.ElectedAnswer:
        """Elect whoever holds the roles `to`, such as `Login.LoggedOn('jim', _)`, or with `anyone` whoever comes."""
        reply = await self._post(
            rw.ElectedAnswer,
            *(service, "elect"),
            role=role,
            args=_dumped(args),
            to=list(to),
            anyone=anyone,
            until=until,
            **{"revoke_on_exit": revoke_on_exit, "with": listed(using), "instance": instance, "request": new_nonce()},
        )
        _load(reply.election)
        return reply

    async def revoke(self, *, id: str | None = None, certificate: str | None = None) -> int:
        """Take an election back, by its id or by a revocation certificate; the administrator ends any credential."""
        return (await self._post(rw.ChangedAnswer, "revocations", **_which(id, certificate))).version

    async def pass_revocation(self, election: str, to: str) -> rw.PassedAnswer:
        """Let another holder of the elector's role take an election back; the certificate is for that one."""
        return await self._post(rw.PassedAnswer, "elections", election, "pass", to=to)

    async def revoke_role(
        self, service: str, role: str, args: Args = (), *, using: Sequence[str] | None = None, instance: str = ""
    ) -> int:
        """Revoke a role by the role after `|>`; it cannot be entered again until it is reinstated.

        An argument that is None, or left out at the end, may be anything: all that fits is revoked. Where a statement
        asks for several to revoke together, nothing ends until the others have.
        """
        body = {"role": role, "args": _dumped(args), "with": listed(using), "instance": instance}
        return (await self._post(rw.ChangedAnswer, service, "revoke", **body)).version

    async def reinstate(
        self, service: str, role: str, args: Args = (), *, using: Sequence[str] | None = None, instance: str = ""
    ) -> int:
        """Let a role be entered again that was revoked with the same arguments."""
        body = {"role": role, "args": _dumped(args), "with": listed(using), "instance": instance}
        return (await self._post(rw.ChangedAnswer, service, "reinstate", **body)).version

    # -- keeping certificates fresh ---------------------------------------------------------------------------

    def _keep(self, service: str, reply: rw.CertificateAnswer) -> rw.CertificateAnswer:
        _load(*reply.memberships)
        if reply.certificate is not None and reply.issued is not None and reply.expires is not None:
            ids = tuple(one.id for one in reply.memberships)
            life = (reply.expires - reply.issued).total_seconds()
            self._wallet.keep_role(RoleHeld(service, ids, reply.certificate, reply.expires), life)
            self._renewal.wake()
        return reply

    async def stop(self) -> None:
        """Renew nothing more."""
        await self._renewal.stop()

    async def _renew_due(self, again: bool) -> None:  # noqa: ARG002 - after a failure as before
        for held in self._wallet.due_roles():
            try:
                await self.renew(held.service, certificate=held.text)
            except (RoleDenied, NotFound) as denied:
                if _may_heal(denied):
                    raise
                self._wallet.forget_role(held)
                await self._renew_each(held)

    async def _renew_each(self, lost: RoleHeld) -> None:
        """A certificate may be over whose memberships are not; those that are lost are regained only by entering."""
        for id in lost.ids:
            with suppress(RoleDenied, NotFound):
                await self.renew(lost.service, id=id)

    async def _post(self, kind: type[A], *path: str, **body: Any) -> A:
        return await self._session.ask(kind, "POST", "/v1/roles", *path, body=body)


def _may_heal(denied: HeadgateError) -> bool:
    """Is it only not known whether the membership is true?"""
    return isinstance(denied, RoleDenied) and denied.details.get("reason") == "unknown"


def _which(id: str | None, certificate: str | None) -> dict[str, str | None]:
    return {"certificate": certificate} if id is None else {"id": id}


def _dumped(args: Args | None) -> list[Any] | None:
    if args is None:
        return None
    return [dump_argument(frozenset(one) if isinstance(one, set) else one) for one in args]


def _load(*answers: _WithArguments) -> None:
    """Give answers their arguments as Python values."""
    for answer in answers:
        answer.args = [load_argument(one) for one in answer.args]


class _WithArguments(Protocol):
    args: list[Any]
