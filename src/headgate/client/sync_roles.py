"""Roles at a domain, for programs without an event loop: `roles.Roles`, run on the client's own thread.

Guarantees: the same behaviour, method by method.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from headgate.client import roles as inner
from headgate.client.roles import ALL, Args
from headgate.protocol import peer_messages as pw
from headgate.protocol import role_messages as rw

T = TypeVar("T")


class Run(Protocol):
    """Does work on a loop elsewhere, and waits for it."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of the work."""


class Roles:
    """What a connected principal does with roles."""

    def __init__(self, run: Run, roles: inner.Roles) -> None:
        self._run = run
        self._inner = roles

    @property
    def trouble(self) -> BaseException | None:
        """Why a certificate could not be renewed the last time; None if they could."""
        return self._inner.trouble

    @property
    def certificates(self) -> list[str]:
        """The certificates of what one has entered, the newest of each."""
        return self._inner.certificates

    def overview(self) -> rw.RolesAnswer:
        """What one holds, what one may take back, and which services have roles."""
        return self._run(self._inner.overview())

    def held(self) -> list[rw.MembershipAnswer]:
        """The memberships that one holds, in the order in which they began."""
        return self._run(self._inner.held())

    def rolefile(self, service: str) -> rw.RolefileAnswer:
        """The types of a service's roles, and its statements if one may know them."""
        return self._run(self._inner.rolefile(service))

    def parse(self, service: str, text: str, type: str | None = None) -> rw.ParsedAnswer:
        """What a text means to a service: `Member('dm', _)`, or with a type a literal of it."""
        return self._run(self._inner.parse(service, text, type))

    def graph(self, root: str | None = None) -> rw.GraphAnswer:
        """The credential graph around what one has, and what would fall with the root."""
        return self._run(self._inner.graph(root))

    def enter(
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
        return self._run(self._inner.enter(service, role, args, using=using, instance=instance))

    def accept(
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
        return self._run(self._inner.accept(service, role, delegation, args, using=using, instance=instance))

    def exit(self, id: str) -> None:
        """Give a membership up."""
        self._run(self._inner.exit(id))

    def grant(
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
        made = self._inner.grant(service, role, to, args, appointment=appointment, until=until, instance=instance)
        return self._run(made)

    def renew(self, service: str, *, id: str | None = None, certificate: str | None = None) -> rw.CertificateAnswer:
        """A fresh certificate for what one still holds; by itself this is done for what was entered here."""
        return self._run(self._inner.renew(service, id=id, certificate=certificate))

    def present(self, certificate: str) -> pw.PresentedAnswer:
        """Let roles of another domain, whose certificate one has, count at this one."""
        return self._run(self._inner.present(certificate))

    def elect(
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
        return self._run(
            self._inner.elect(
                service,
                role,
                args,
                to=to,
                anyone=anyone,
                until=until,
                revoke_on_exit=revoke_on_exit,
                using=using,
                instance=instance,
            )
        )

    def revoke(self, *, id: str | None = None, certificate: str | None = None) -> int:
        """Take an election back, by its id or by a revocation certificate; the administrator ends any credential."""
        return self._run(self._inner.revoke(id=id, certificate=certificate))

    def pass_revocation(self, election: str, to: str) -> rw.PassedAnswer:
        """Let another holder of the elector's role take an election back; the certificate is for that one."""
        return self._run(self._inner.pass_revocation(election, to))

    def revoke_role(
        self, service: str, role: str, args: Args = (), *, using: Sequence[str] | None = None, instance: str = ""
    ) -> int:
        """Revoke a role by the role after `|>`; it cannot be entered again until it is reinstated.

        An argument that is None, or left out at the end, may be anything: all that fits is revoked. Where a statement
        asks for several to revoke together, nothing ends until the others have.
        """
        return self._run(self._inner.revoke_role(service, role, args, using=using, instance=instance))

    def reinstate(
        self, service: str, role: str, args: Args = (), *, using: Sequence[str] | None = None, instance: str = ""
    ) -> int:
        """Let a role be entered again that was revoked with the same arguments."""
        return self._run(self._inner.reinstate(service, role, args, using=using, instance=instance))
