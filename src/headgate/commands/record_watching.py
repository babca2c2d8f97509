"""What other domains ask about our roles: is a certificate good, and what are the states of records (OASIS 4.9).

Guarantees: whoever asks could see every event that it would be told by (`record_notices`): else it is told nothing,
whatever becomes of the certificate or the record. A record is told of to whoever was shown a certificate of it before,
and knows what it is the record of; to others it is false, as if there were none. What is told is what was announced
under a number. No one asks for more than the settings allow.
Leaves out: telling of changes (`gateway.federation.announcing`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from headgate.commands.commit import submit
from headgate.commands.record_notices import check_may_follow, declare
from headgate.commands.role_certificates import Asker, records_of
from headgate.commands.roles import RoleService, key_of
from headgate.commands.statements import holder
from headgate.model.changes import Batch, WatchRecords
from headgate.model.conditions import Argument
from headgate.model.errors import RoleDenied
from headgate.model.role_statements import fits
from headgate.model.roles import Membership, Reference
from headgate.model.state import State
from headgate.node.domain import Domain, Follower
from headgate.node.peers import Watchers
from headgate.roles.certificates.remote_records import Snapshot


@dataclass(frozen=True, slots=True)
class ClaimedRecord:
    """A record, and what it is said to be the record of: a reference alone proves nothing after a restore."""

    record: Reference
    role: str
    instance: str
    args: tuple[Argument, ...]
    subject: str


class RecordWatching:
    """The records of one domain, as others follow them. May be used from any thread."""

    def __init__(
        self,
        domain: Domain,
        follower: Follower,
        roles: RoleService,
        watchers: Watchers,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._domain = domain
        self._follower = follower
        self._roles = roles
        self._watchers = watchers
        self._clock = clock

    def validate(self, asker: Asker, certificate: str, subject: str) -> tuple[list[Membership], Snapshot]:
        """The memberships of a certificate of ours that is good; their records are followed from now on."""
        self._roles.pace_following(asker)
        state, certificates = self._follower.state, self._roles.certificates
        if claimed := certificates.service_of(certificate):  # what claims none is refused by its form
            self._check_may_follow(asker, claimed)
        shown = Asker(holder(state, subject) or "", subject)
        held = certificates.memberships(certificate, shown, None, state, self._clock())
        if len({one.place for one in held}) != 1:
            details = {"reason": "wrong-place"}
            raise RoleDenied("the certificate is of several places", failure="misuse", details=details)
        return held, self._follow(asker, held[0].service, {one.record: True for one in held})

    def read(self, asker: Asker, service: str) -> Snapshot:
        """The states of all records of a service that one follows."""
        self._roles.pace_following(asker)
        self._check_may_follow(asker, service)
        declare(self._domain, self._follower)  # so that it can subscribe
        return self._watchers.read((asker.principal, service), self._clock())

    def rejoin(self, asker: Asker, service: str, claims: Sequence[ClaimedRecord]) -> Snapshot:
        """Go on to follow records that one knows from before."""
        self._roles.pace_following(asker)
        self._check_may_follow(asker, service)
        state = self._follower.state
        shown = self._watchers.has_followed((asker.principal, service), {one.record for one in claims})
        shown |= {one.record for one in state.roles.watches if one.watcher == asker.principal}
        by_record: dict[Reference, list[Membership]] = {}
        for membership in state.roles.memberships.values():
            if membership.service == service and membership.record in shown:
                by_record.setdefault(membership.record, []).append(membership)
        known = records_of(state)
        states: dict[Reference, bool | None] = {}
        for claim in claims:
            fitting = any(_is_that(one, claim, state) for one in by_record.get(claim.record, ()))
            is_consistent = states.get(claim.record, True) is not False
            states[claim.record] = known(claim.record) if fitting and is_consistent else False
        return self._follow(asker, service, states)

    def unwatch(self, asker: Asker, service: str, records: Sequence[Reference]) -> None:
        """Follow some records no longer."""
        self._roles.pace_following(asker)
        self._watchers.unwatch((asker.principal, service), records)
        followed = self._followed_by(asker)
        gone = tuple(ref for ref in dict.fromkeys(records) if ref in followed)
        if gone:
            change = WatchRecords(asker.principal, gone, watching=False)
            self._submit(change, f"{asker.principal} follows records of {service} no longer")

    def _follow(self, asker: Asker, service: str, states: Mapping[Reference, bool | None]) -> Snapshot:
        """Note durably that one follows records, in the ledger first; what is announced of them."""
        self._check_may_follow(asker, service)
        known = self._followed_by(asker)
        fresh = tuple(ref for ref, truth in states.items() if truth is not False and ref not in known)
        declare(self._domain, self._follower)
        if fresh:
            self._submit(WatchRecords(asker.principal, fresh), f"{asker.principal} follows records of {service}")
        now_known = records_of(self._follower.state)
        current = {ref: False if truth is False else now_known(ref) for ref, truth in states.items()}
        snapshot = self._watchers.watch((asker.principal, service), current, self._clock())
        # What was announced of a record is of no use to whoever takes it for another.
        announced = {ref: False if states[ref] is False else truth for ref, truth in snapshot.states.items()}
        return replace(snapshot, states=announced)

    def _followed_by(self, asker: Asker) -> set[Reference]:
        return {one.record for one in self._follower.state.roles.watches if one.watcher == asker.principal}

    def _submit(self, change: WatchRecords, note: str) -> None:
        submit(self._domain, self._follower, Batch(self._follower.state.administrator, (change,), note))

    def _check_may_follow(self, asker: Asker, service: str) -> None:
        state = self._follower.state
        pair, predicates = (asker.principal, service), self._domain.predicates(state)
        check_may_follow(state, pair, predicates, self._clock(), asker.origin)


def _is_that(membership: Membership, claim: ClaimedRecord, state: State) -> bool:
    """Is it the membership that a record was said to be of? After a restore a reference may mean another."""
    return (
        (membership.role, membership.instance) == (claim.role, claim.instance)
        and fits(membership.args, claim.args)
        and key_of(state, membership.holder) == claim.subject
    )
