"""The statements that a file declares, on the scenario's clock, and what services of other domains do.

Guarantees: what a step shows, revokes or lets end is known when the file is read, because no such step hangs on how the
story goes. Each issuer's revocation lists are numbered as its steps come, and every list has all that it revoked. What
a service of another domain says is taken up by the same changes as a message of a peer (OASIS 4.9, 4.10): it is heard
all the time, until a step lets it fall silent; when it is heard again, everything is known at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from headgate.model.authority import Certificate, Identity, RevocationList
from headgate.model.changes import Change, HearPeer, Identify, MirrorRole, Present, Revoke, SetPeer
from headgate.model.roles import Peer, Reference, reference
from headgate.model.state import State
from headgate.model.values import EPOCH, brief, render_timestamp
from headgate.scenario.format.authority import Keys, read_time
from headgate.scenario.format.declared import Placed
from headgate.scenario.format.story import ADMINISTRATOR, OtherStep
from headgate.scenario.format.yamlfile import YamlFields, YamlNode


@dataclass(slots=True)
class StoryRegister:
    """What is declared, and how far the story has come by its own clock."""

    keys: Keys
    certificates: Mapping[str, Certificate] = field(default_factory=dict)
    identities: Mapping[str, Identity] = field(default_factory=dict)
    forged: frozenset[str] = frozenset()
    clock: datetime = EPOCH
    lists: dict[str, RevocationList] = field(default_factory=dict)
    untils: set[datetime] = field(default_factory=set)
    """When memberships and elections end that steps have said an end of."""
    silent: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)
    """Since when services of other domains are silent, and until when that is borne."""

    def knows(self, id: str) -> bool:
        """Is it the id of a statement?"""
        return id in self.certificates or id in self.identities

    def find(self, node: YamlNode) -> Certificate | Identity:
        """The statement that is named."""
        statement = self.certificates.get(node.text()) or self.identities.get(node.text())
        if statement is None:
            node.refuse(f"no statement `{brief(node.data)}`", "declare it in `certificates` or `identities`")
        return statement

    def shown(self, principal: str, nodes: Sequence[YamlNode]) -> tuple[Change, ...]:
        """The changes by which a principal shows statements now: its certificates, and then who it is."""
        statements = [self.find(node) for node in nodes]
        certificates = tuple(one for one in statements if isinstance(one, Certificate))
        changes: list[Change] = [Present(principal, certificates, self.clock)] if certificates else []
        changes += [Identify(principal, one, self.clock) for one in statements if isinstance(one, Identity)]
        return tuple(changes)

    def revoked(self, node: YamlNode, *, keep: bool = True) -> Revoke:
        """The issuer's next list, with this statement on it; without `keep` it is as if it had never been."""
        one = self.find(node)
        return self._listed(one.issuer, frozenset({one.id}), keep)

    def heard(self, node: YamlNode, *, keep: bool = True) -> Revoke:
        """The issuer's list as it was: a sign of life."""
        issuer = self.keys.read(node)
        known = self.lists.get(issuer)
        if known is None:
            return self._listed(issuer, frozenset(), keep)
        again = RevocationList(issuer, known.number, self.clock, known.revoked)
        if keep:
            self.lists[issuer] = again
        return Revoke(again, self.clock)

    def _listed(self, issuer: str, more: frozenset[str], keep: bool) -> Revoke:
        known = self.lists.get(issuer)
        number, before = (known.number, known.revoked) if known is not None else (0, frozenset[str]())
        made = RevocationList(issuer, number + 1, self.clock, before | more)
        if keep:
            self.lists[issuer] = made
        return Revoke(made, self.clock)

    def advance(self, node: YamlNode) -> tuple[datetime, ...]:
        """Move the clock, or leave it where it is; the distinct times on the way at which something declared ends."""
        to = read_time(node)
        if to < self.clock:
            at = f"{(self.clock - EPOCH).total_seconds():g} ({render_timestamp(self.clock)})"
            node.refuse(
                f"the clock stands at {at} already, and never goes back",
                "write the time it moves to: seconds since the beginning of the story, or ISO 8601",
            )
        passed = sorted({at for at in self._ends() if self.clock < at <= to})
        self.clock = to
        return tuple(passed)

    def _ends(self) -> Iterator[datetime]:
        spans = [one.validity for one in self.certificates.values()]
        spans += [one.validity for one in self.identities.values()]
        yield from (span.until for span in spans if span.until is not None)
        yield from self.untils
        yield from (borne for _, borne in self.silent.values())
        for each in self.certificates.values():
            if each.freshness is not None and each.issuer in self.lists:
                yield self.lists[each.issuer].issued + timedelta(seconds=each.freshness)


_ALL_THE_TIME: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""When a service was last heard that is heard without a pause."""


def read_peers(top: YamlFields) -> list[Placed]:
    """The changes that `peers` asks for."""
    changes: list[Placed] = []
    for name, node in top.entries("peers"):
        bound = node.fields(("silence",), required=("silence",))["silence"].integer()
        changes.append((SetPeer(Peer(name, name, name, bound, heard=_ALL_THE_TIME)), node.place))
    return changes


@dataclass(slots=True)
class PeerSteps:
    """What services of other domains do in a story."""

    state: State
    register: StoryRegister
    given: dict[str, MirrorRole] = field(default_factory=dict)
    """The roles that they have given, by id."""
    _states: dict[str, dict[Reference, bool]] = field(default_factory=dict)
    """What each of them knows of its records."""
    _messages: int = 0

    def __contains__(self, service: str) -> bool:
        return service in self.state.roles.peers

    def grant(self, request: MirrorRole, *, keep: bool) -> MirrorRole:
        """A role that such a service gives; while it is silent nothing is known of it."""
        self._messages += 1
        state = None if request.peer in self.register.silent else True
        made = replace(request, remote=reference(self._messages, 1), state=state)
        if keep:
            self.given[made.id] = made
            self._states.setdefault(made.peer, {})[made.remote] = True
        return made

    def revoke(self, node: YamlNode, id: str, *, keep: bool) -> OtherStep:
        """Such a service revokes what it gave; that is known when it is heard."""
        mirror = self.given[id]
        if keep:
            self._states[mirror.peer][mirror.remote] = False
        told = {} if mirror.peer in self.register.silent else {mirror.remote: False}
        return self._step(node, (self._message(mirror.peer, told),) if told else (), f"revoke `{id}`")

    def silent(self, node: YamlNode, *, keep: bool) -> OtherStep:
        """Such a service is not heard any more."""
        peer = self._peer(node)
        since, _ = self.register.silent.get(peer.name, (self.register.clock, None))
        if keep:
            self.register.silent[peer.name] = since, since + timedelta(seconds=peer.bound)
        return self._step(node, (SetPeer(replace(peer, heard=since)),), f"silent `{peer.name}`")

    def heard(self, node: YamlNode, *, keep: bool) -> OtherStep:
        """Such a service is heard again, and says all that it has to say."""
        peer = self._peer(node)
        if keep:
            self.register.silent.pop(peer.name, None)
        message = self._message(peer.name, self._states.get(peer.name, {}))
        return self._step(node, (SetPeer(peer), message), f"heard `{peer.name}`")

    def _message(self, peer: str, states: Mapping[Reference, bool]) -> HearPeer:
        self._messages += 1
        return HearPeer(peer, self._messages, dict(states), self.register.clock)

    def _step(self, node: YamlNode, changes: tuple[Change, ...], words: str) -> OtherStep:
        return OtherStep(node.place, ADMINISTRATOR, changes, words)

    def _peer(self, node: YamlNode) -> Peer:
        peer = self.state.roles.peers.get(node.text())
        if peer is None:
            node.refuse(f"no service of another domain `{brief(node.data)}`", "declare it in `peers`")
        return peer
