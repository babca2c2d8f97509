"""Roles at a domain: entering, leaving, electing and revoking, with certificates that are kept fresh.

Guarantees: whatever is asked is done once, however often it has to be sent. A certificate that was given is kept in the
wallet and renewed before it ends, for as long as the membership is true; one whose membership was lost leaves the
wallet. Arguments are Python values both ways: a set of letters is a `frozenset`.
Leaves out: what a role gives, and who may have it, which the gateways decide; running without a loop (`sync`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

from headgate.client.gateways import Trouble
from headgate.client.session import ClientSession
from headgate.client.wallet import RoleHeld, pause_after
from headgate.model.arguments import dump_argument, load_argument
from headgate.model.conditions import Argument
from headgate.model.errors import HeadgateError, NotFound, RoleDenied
from headgate.protocol import role_messages as rw
from headgate.trust.handshake import new_nonce

A = TypeVar("A")
Args: TypeAlias = "Sequence[Argument | set[str] | None]"
"""The arguments of a role, in order; None leaves one open where that may be."""

ALL: Final = rw.ALL
"""Among what is shown: all memberships that one holds."""
_LONGEST_WAIT: Final = timedelta(hours=1).total_seconds()


class Roles:
    """What a connected principal does with roles."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._wallet = session.wallet
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.trouble: HeadgateError | Trouble | None = None
        """Why a certificate could not be renewed the last time; None if they could."""

    # -- what one has -----------------------------------------------------------------------------------------

    async def overview(self) -> rw.RolesAnswer:
        """What one holds, what one may take back, and which services have roles."""
        reply = await self._session.ask(rw.RolesAnswer, "GET", "/v1/roles")
        for held in reply.held:
            held.args = _loaded(held.args)
        for election in reply.elections:
            election.args = _loaded(election.args)
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
        return await self._session.ask(rw.RolefileAnswer, "GET", f"/v1/roles/{_in_path(service)}/rolefile")

    async def parse(self, service: str, text: str, type: str | None = None) -> rw.ParsedAnswer:
        """What a text means to a service: `Member('dm', _)`, or with a type a literal of it."""
        body = {"text": text} if type is None else {"text": text, "type": type}
        told = await self._post(rw.ParsedAnswer, f"/{_in_path(service)}/parse", body)
        told.args = _loaded(told.args)
        return told

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
        body: dict[str, Any] = {"instance": instance, "request": new_nonce()}
        if isinstance(role, str):
            body |= {"role": role, "args": _dumped(args)}
        else:
            named = role if isinstance(role, Mapping) else dict.fromkeys(role)
            body["roles"] = [{"role": name, "args": _dumped(given)} for name, given in named.items()]
        if using is not None:
            body["with"] = list(using)
        return self._keep(service, await self._post(rw.CertificateAnswer, f"/{_in_path(service)}/enter", body))

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
        await self._session.request("DELETE", f"/v1/roles/memberships/{_in_path(id)}")
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
        body = {
            "role": role,
            "to": to,
            "args": _dumped(args),
            "appointment": appointment,
            "until": until,
            "instance": instance,
            "request": new_nonce(),
        }
        return _told(await self._post(rw.CertificateAnswer, f"/{_in_path(service)}/grant", body))

    async def renew(
        self, service: str, *, id: str | None = None, certificate: str | None = None
    ) -> rw.CertificateAnswer:
        """A fresh certificate for what one still holds; by itself this is done for what was entered here."""
        body = {"certificate": certificate} if id is None else {"id": id}
        return self._keep(service, await self._post(rw.CertificateAnswer, f"/{_in_path(service)}/renew", body))

    async def present(self, certificate: str) -> rw.PresentedAnswer:
        """Let roles of another domain, whose certificate one has, count at this one."""
        reply = await self._post(rw.PresentedAnswer, "/present", {"certificate": certificate})
        for one in reply.memberships:
            one.args = _loaded(one.args)
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
        body: dict[str, Any] = {
            "role": role,
            "args": _dumped(args),
            "to": list(to),
            "anyone": anyone,
            "until": until,
            "revoke_on_exit": revoke_on_exit,
            "instance": instance,
            "request": new_nonce(),
        }
        if using is not None:
            body["with"] = list(using)
        told = await self._post(rw.ElectedAnswer, f"/{_in_path(service)}/elect", body)
        told.election.args = _loaded(told.election.args)
        return told

    async def revoke(self, *, id: str | None = None, certificate: str | None = None) -> int:
        """Take an election back, by its id or by a revocation certificate; the administrator ends any credential."""
        body = {"certificate": certificate} if id is None else {"id": id}
        return (await self._post(rw.ChangedAnswer, "/revocations", body)).version

    async def pass_revocation(self, election: str, to: str) -> rw.PassedAnswer:
        """Let another holder of the elector's role take an election back; the certificate is for that one."""
        return await self._post(rw.PassedAnswer, f"/elections/{_in_path(election)}/pass", {"to": to})

    async def revoke_role(
        self, service: str, role: str, args: Args = (), *, using: Sequence[str] | None = None, instance: str = ""
    ) -> int:
        """Revoke a role by the role after `|>`; it cannot be entered again until it is reinstated.

        An argument that is None, or left out at the end, may be anything: all that fits is revoked. Where a statement
        asks for several to revoke together, nothing ends until the others have.
        """
        return await self._by_role("revoke", service, role, args, using, instance)

    async def reinstate(
        self, service: str, role: str, args: Args = (), *, using: Sequence[str] | None = None, instance: str = ""
    ) -> int:
        """Let a role be entered again that was revoked with the same arguments."""
        return await self._by_role("reinstate", service, role, args, using, instance)

    async def _by_role(
        self, does: str, service: str, role: str, args: Args, using: Sequence[str] | None, instance: str
    ) -> int:
        body: dict[str, Any] = {"role": role, "args": _dumped(args), "instance": instance}
        if using is not None:
            body["with"] = list(using)
        return (await self._post(rw.ChangedAnswer, f"/{_in_path(service)}/{does}", body)).version

    # -- keeping certificates fresh ---------------------------------------------------------------------------

    def _keep(self, service: str, reply: rw.CertificateAnswer) -> rw.CertificateAnswer:
        reply = _told(reply)
        if reply.certificate is not None and reply.issued is not None and reply.expires is not None:
            ids = tuple(one.id for one in reply.memberships)
            life = (reply.expires - reply.issued).total_seconds()
            self._wallet.keep_role(RoleHeld(service, ids, reply.certificate, reply.expires), life)
            self._changed.set()
            if self._task is None:
                self._task = asyncio.create_task(self._work())
        return reply

    async def stop(self) -> None:
        """Renew nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _work(self) -> None:
        failures = 0
        timing = self._session.timing
        while True:
            self._changed.clear()
            wait = self._wallet.wait_for_roles()
            pause = pause_after(failures, timing.dice()) if failures else min(max(wait, 0.0), _LONGEST_WAIT)
            await self._pause(pause, woken=not failures)
            try:
                await self._renew_due()
            except (HeadgateError, Trouble) as error:
                self.trouble = error
                failures += 1
            else:
                self.trouble = None
                failures = 0

    async def _pause(self, seconds: float, *, woken: bool) -> None:
        """Sleep, but no longer than until another certificate is kept."""
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._session.timing.sleep(seconds))]
        if woken:
            tasks.append(asyncio.ensure_future(self._changed.wait()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _renew_due(self) -> None:
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

    async def _post(self, kind: type[A], path: str, body: Mapping[str, Any]) -> A:
        sent = {name: value for name, value in body.items() if value is not None}
        return await self._session.ask(kind, "POST", f"/v1/roles{path}", body=sent)


def _may_heal(denied: HeadgateError) -> bool:
    """Is it only not known whether the membership is true?"""
    return isinstance(denied, RoleDenied) and denied.details.get("reason") == "unknown"


def _in_path(name: str) -> str:
    return quote(name, safe="")


def _dumped(args: Args | None) -> list[Any] | None:
    if args is None:
        return None
    return [None if one is None else dump_argument(frozenset(one) if isinstance(one, set) else one) for one in args]


def _loaded(args: Sequence[Any]) -> list[Any]:
    return [load_argument(one) for one in args]


def _told(told: rw.CertificateAnswer) -> rw.CertificateAnswer:
    for one in told.memberships:
        one.args = _loaded(one.args)
    return told
