"""Roles of other domains, and our records that other domains follow (OASIS 4.9, 4.10).

Guarantees: an external record is what its service last said, and unknown once that service has been silent for longer
than is borne. What it revoked stays revoked, whatever is said later; messages that come late or twice change nothing.
Leaves out: carrying the messages (`roles.certificates.remote_records`, `gateway`).
"""

from __future__ import annotations

from dataclasses import replace

from headgate.model.changes import HearPeer, MirrorRole, WatchRecords
from headgate.model.errors import BadDefinition, RoleDenied, UnknownName
from headgate.model.limits import MAX_PEER_BOUND_SECONDS, MAX_WATCHED
from headgate.model.roles import Membership, Op, Peer, RecordWatch, Reference
from headgate.model.types import check_name
from headgate.model.values import brief
from headgate.roles.records.facts import Mirrored, text_of
from headgate.roles.requests.settling import Settling


class Mirroring(Settling):
    """What is asked about services of other domains."""

    def set_peer(self, peer: Peer) -> None:
        """Let roles of another domain's service count here."""
        check_name("service", peer.name)
        ours = peer.name in self.rolefiles or any(place[0] == peer.name for place in self.index.members)
        if ours and peer.name not in self.peers:
            raise BadDefinition(f"`{peer.name}` is a service of this domain", remedy="choose another name")
        if not 1 <= peer.bound <= MAX_PEER_BOUND_SECONDS:
            raise BadDefinition(
                f"the silence of `{peer.name}` is borne for `{peer.bound}` seconds",
                remedy=f"write 1 to MAX_PEER_BOUND_SECONDS ({MAX_PEER_BOUND_SECONDS})",
            )
        old = self.peers.get(peer.name)
        if old is not None and (old.key, old.service) != (peer.key, peer.service):
            self.remove_peer(peer.name)
            old = None
        if old is not None:
            peer = replace(peer, heard=old.heard if peer.heard is None else peer.heard, number=old.number)
        self.peers[peer.name] = peer

    def remove_peer(self, name: str) -> None:
        """End all that rests on another domain's service."""
        if name not in self.peers:
            raise UnknownName(f"no service of another domain `{brief(name)}`")
        del self.peers[name]
        for one in [*self.state.roles.memberships.values(), *self.begun.values()]:
            now = self.membership(one.id)
            if now is not None and now.service == name:
                self.end(now, f"`{name}` counts no more")

    def mirror(self, request: MirrorRole) -> None:
        """Take up a role of another domain's service, as its issuer has just confirmed it."""
        if request.peer not in self.peers:
            raise UnknownName(f"no service of another domain `{brief(request.peer)}`", remedy="name it as a peer first")
        self.holder(request.holder)
        if request.state is False:
            raise RoleDenied(f"the issuer has revoked `{brief(request.role)}`", failure="revocation")
        fact = Mirrored(request.peer, request.remote)
        leaf = self.records.of_fact(text_of(fact))
        if leaf is not None and self._was_shown(request, leaf):
            self.records.set(leaf, request.state)
            return
        self.fresh(request.id)
        link = self.fact(fact)
        self.records.set(link.parent, request.state)
        record = self.records.combine(Op.AND, [link], own=True, latch=True)
        self.begin(
            Membership(
                request.id,
                request.peer,
                request.role,
                request.args,
                request.holder,
                record,
                request.instance,
                state=self.records.state(record),
                foreign=True,
            )
        )

    def _was_shown(self, request: MirrorRole, leaf: Reference) -> bool:
        """Does the same holder have the same role by the same record already?"""
        wanted = request.peer, request.role, request.instance
        return any(
            link.parent == leaf
            for one in self.kept_by(request.holder)
            if (one.service, one.role, one.instance) == wanted
            for link in self.records.record(one.record).parents
        )

    def hear(self, request: HearPeer) -> None:
        """Take up what a peer said; what is older than what is known changes nothing."""
        peer = self.peers.get(request.peer)
        if peer is None:
            raise UnknownName(f"no service of another domain `{brief(request.peer)}`")
        if request.number < peer.number:
            return
        heard = request.at if peer.heard is None else max(peer.heard, request.at)
        self.peers[peer.name] = replace(peer, number=request.number, heard=heard)
        for remote, state in request.states.items():
            ref = self.records.of_fact(text_of(Mirrored(peer.name, remote)))
            if ref is None:
                continue
            if state is False:
                self.records.revoke(ref)  # what another domain revoked stays so, whatever is said later
            else:
                self.records.set(ref, state)

    def watch(self, request: WatchRecords) -> None:
        """Note which of our records another domain follows."""
        mine = {one for one in self.watches if one.watcher == request.watcher}
        asked = {RecordWatch(request.watcher, ref) for ref in request.records}
        if not request.watching:
            for watch in asked & mine:
                self.watches.discard(watch)
                self.records.release(watch.record)
            return
        if len(mine | asked) > MAX_WATCHED:
            raise BadDefinition(f"`{request.watcher}` follows more than MAX_WATCHED ({MAX_WATCHED}) records")
        for watch in asked - mine:
            if watch.record in self.records:
                self.watches.add(watch)
                self.records.hold(watch.record)
