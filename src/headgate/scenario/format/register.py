"""The statements that a file declares, on the scenario's clock.

Guarantees: what a step shows, revokes or lets end is known when the file is read, because no such step hangs on how the
story goes. Each issuer's revocation lists are numbered as its steps come, and every list has all that it revoked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from headgate.model.authority import Certificate, Identity, RevocationList
from headgate.model.changes import Change, Identify, Present, Revoke
from headgate.model.values import EPOCH, brief, render_timestamp
from headgate.scenario.format.authority import Keys, read_time
from headgate.scenario.format.yamlfile import YamlNode


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
