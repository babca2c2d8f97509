"""A service of another domain, as the domain that follows it asks it.

Guarantees: everything is asked within a session in which both sides have proven their keys. What is answered has the
right shape, or is refused.
Leaves out: what to make of it (`following`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from headgate.client.aio import Client
from headgate.client.errors import unexpected
from headgate.model.conditions import Argument
from headgate.model.limits import MAX_READ_RECORDS
from headgate.model.roles import Reference, reference_text
from headgate.protocol import peer_messages as pw
from headgate.protocol import role_messages as rw
from headgate.roles.certificates.remote_records import Snapshot, record_of, state_of
from headgate.trust.role_keys import RoleKeys, verify_role_keys

_RECORDS: Final = "/v1/roles/records"


@dataclass(frozen=True, slots=True)
class Remembered:
    """A record, and what it was confirmed to be the record of."""

    record: Reference
    role: str
    args: tuple[Argument, ...]
    instance: str
    subject: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A role that its issuer says is in force."""

    role: str
    args: tuple[Argument, ...]
    record: Reference


@dataclass(frozen=True, slots=True)
class Validated:
    """What an issuer says of a certificate."""

    instance: str
    roles: tuple[Confirmed, ...]
    read: Snapshot


class Abroad:
    """One service of another domain."""

    def __init__(self, client: Client, service: str) -> None:
        self._session = client._session
        self.service = service
        self.heartbeat = 0.0

    async def read(self) -> Snapshot:
        """The states of all records that one follows there."""
        told = await self._session.ask(pw.RecordsAnswer, "GET", _RECORDS, params={"service": self.service})
        self.heartbeat = told.heartbeat
        return self._snapshot(told)

    async def rejoin(self, records: Iterable[Remembered]) -> Snapshot:
        """Go on to follow so many records at most as one request may name."""
        body = {
            "service": self.service,
            "records": [
                {
                    "record": reference_text(one.record),
                    "role": one.role,
                    "args": rw.arguments_told(one.args),
                    "instance": one.instance,
                    "subject": one.subject,
                }
                for one in records
            ],
        }
        return self._snapshot(await self._session.ask(pw.RecordsAnswer, "POST", _RECORDS, body=body))

    async def unwatch(self, records: Sequence[Reference]) -> None:
        """Follow records no longer."""
        for some in chunks(records):
            body = {"service": self.service, "records": [reference_text(one) for one in some]}
            await self._session.request("POST", "/v1/roles/unwatch", body=body)

    async def validate(self, certificate: str, subject: str) -> Validated:
        """Ask whether a certificate is good; its records are followed from then on."""
        body = {"certificate": certificate, "subject": subject}
        reply = await self._session.ask(pw.ValidatedAnswer, "POST", "/v1/roles/validate", body=body)
        if reply.service != self.service:
            raise unexpected(self.service, f"an answer for `{reply.service}`")
        roles = tuple(Confirmed(one.role, rw.arguments_of(one.args), record_of(one.record)) for one in reply.roles)
        return Validated(reply.instance, roles, self._snapshot(reply))

    async def keys(self, domain: str, now: datetime, known: RoleKeys | None) -> RoleKeys:
        """The keys that sign its certificates, as its domain vouches for them."""
        told = await self._session.ask(rw.RoleKeysAnswer, "GET", "/v1/roles/keys")
        return verify_role_keys(told.keys, domain=domain, now=now, known=known)

    def _snapshot(self, told: pw.RecordsAnswer | pw.ValidatedAnswer) -> Snapshot:
        if told.service != self.service or told.at.tzinfo is None or not told.epoch or told.number < 0:
            raise unexpected(self.service, "states without epoch, number or time")
        return Snapshot(told.epoch, told.number, told.at.astimezone(UTC), _states(told.states))


def _states(told: Mapping[str, str]) -> dict[Reference, bool | None]:
    return {record_of(record): state_of(state) for record, state in told.items()}


def chunks(records: Sequence[Reference]) -> Iterable[Sequence[Reference]]:
    """As many at a time as one request may name."""
    return [records[at : at + MAX_READ_RECORDS] for at in range(0, len(records), MAX_READ_RECORDS)]
