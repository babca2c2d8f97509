"""Services of other domains in a scenario file: the roles they give, and their silence (OASIS 4.9, 4.10).

Guarantees: what such a service says is taken up by the same changes as a message of a peer. It is heard all the time,
until a step lets it fall silent; then nothing that it does is known here, and after the silence that is borne neither
is what it did before. When it is heard again, everything is known at once.
Leaves out: messages that are lost or late, which a story has none of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from headgate.model.changes import Change, HearPeer, MirrorRole, SetPeer
from headgate.model.roles import Peer, Reference, reference
from headgate.model.state import State
from headgate.model.values import brief
from headgate.scenario.format.declared import Placed
from headgate.scenario.format.register import StoryRegister
from headgate.scenario.format.story import ADMINISTRATOR, OtherStep
from headgate.scenario.format.yamlfile import YamlNode

_ALL_THE_TIME: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""When a service was last heard that is heard without a pause."""


def read_peers(top: Mapping[str, YamlNode]) -> list[Placed]:
    """The changes that `peers` asks for."""
    changes: list[Placed] = []
    for name, node in top["peers"].mapping().items() if "peers" in top else ():
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
