"""What a node calls what a story calls otherwise: keys, versions, credentials and events about roles.

Guarantees: every principal has an Ed25519 key of its own, and so has every key that the file names without a principal;
no private key leaves this process but by signatures. What the file says of names and keys is said of these keys, in the
first batch, in statements and in revocation lists; statements keep the ids of the file. Each version of the story is
the last that its step made at the node, and every step makes one; those that a node makes by itself in between count as
the step's before. An id of the file stands for what it named last; what the node named has one id for ever.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from headgate.model import changes as ledger
from headgate.model.authority import Authority, Certificate, Identity, Provider, RevocationList, TypeAuthority, Validity
from headgate.model.errors import BadScenario
from headgate.model.events import Event
from headgate.model.types import matches
from headgate.model.values import EPOCH, Value
from headgate.scenario.format.authority import OURSELVES
from headgate.scenario.format.story import ADMINISTRATOR, Scenario
from headgate.trust.certificates import issue_certificate, issue_revocations
from headgate.trust.identities import LONGEST, mapping_digest, sign_identity
from headgate.trust.keys import PrivateKey
from headgate.trust.statements import about, digest_of

_KEY: Final = "did:key:"


class StoryKeys:
    """Who holds which key in a story."""

    def __init__(self, scenario: Scenario, keys: Mapping[str, PrivateKey] | None = None) -> None:
        """`keys`: those that the ledger is told of, by whom it knows; without them it knows everyone's."""
        self._policy = scenario.policy
        self._statements = scenario.statements
        self._forged = scenario.forged
        names = [change.name for change in scenario.policy.changes if isinstance(change, ledger.DeclarePrincipal)]
        self.administrator = OURSELVES if OURSELVES in names else ADMINISTRATOR
        """The domain's own principal: the one that the file declares as such, if it does."""
        given = dict.fromkeys([self.administrator, *names])
        self._keys = dict(keys) if keys is not None else {name: PrivateKey.generate() for name in given}
        self.principals = tuple(self._keys)
        self._keys[ADMINISTRATOR] = self.key(self.administrator)
        for change in scenario.policy.changes:
            if isinstance(change, ledger.SetKey) and change.key is not None:
                self._keys[change.key] = self.key(change.principal)

    def principal(self, name: str) -> str:
        """What a principal of the file is called at the node."""
        return self.administrator if name == ADMINISTRATOR else name

    def key(self, name: str) -> PrivateKey:
        """The private key of whoever the file means by a name or a key."""
        if name not in self._keys:
            self._keys[name] = PrivateKey.generate()
        return self._keys[name]

    def did(self, name: str) -> str:
        """The public key of whoever the file means."""
        return self.key(name).public.did

    # -- the first batch ----------------------------------------------------------------------------------------

    def policy(self) -> ledger.Batch:
        """The first batch, with the key of every principal."""
        changes = [keyed for change in self._policy.changes for keyed in self._keyed(change)]
        keys = (ledger.SetKey(name, self.did(name)) for name in self.principals)
        return ledger.Batch(self.administrator, (*changes, *keys), self._policy.note)

    def _keyed(self, change: ledger.Change) -> Iterator[ledger.Change]:
        match change:
            case ledger.SetKey():
                return
            case ledger.DeclarePrincipal(name, attributes) if name == self.administrator:
                yield from (ledger.SetAttribute(name, attribute, value) for attribute, value in attributes.items())
            case ledger.SetCoordinator(key) if key is not None:
                yield ledger.SetCoordinator(self.did(key))
            case ledger.SetProvider(provider):
                yield ledger.SetProvider(replace(provider, key=self.did(provider.key)))
            case ledger.AddIssuing(issuing):
                yield ledger.AddIssuing(replace(issuing, authority=self._authority(issuing.authority)))
            case _:
                yield change

    def _authority(self, given: tuple[Authority, ...]) -> tuple[Authority, ...]:
        return tuple(
            replace(one, owner=self.did(one.owner)) if isinstance(one, TypeAuthority) and one.owner else one
            for one in given
        )

    # -- statements ---------------------------------------------------------------------------------------------

    def statement(self, id: str) -> Certificate | Identity:
        """A statement of the file."""
        return self._statements[id]

    def statement_key(self, id: str) -> str:
        """What a statement of the file is known by at the node."""
        return f"{self.did(self._statements[id].issuer)}#{id}"

    def signed(self, statement: Certificate | Identity, now: datetime) -> str:
        """The text of a statement, signed by its issuer; one about identity without an end is good for a day."""
        _check_whole(statement)
        if isinstance(statement, Certificate):
            given = self.keyed(statement)
            return issue_certificate(
                self.key(statement.issuer),
                subject=given.subject,
                authority=given.authority,
                now=EPOCH,
                delegate=given.delegate,
                validity=given.validity,
                freshness=given.freshness,
                id=given.id,
            )
        start = statement.validity.start or EPOCH
        until = statement.validity.until
        if until is None:
            start = statement.validity.start or now
            until = start + LONGEST
        claims = {
            **about(self.did(statement.subject), statement.id, start, Validity(start, until)),
            **self._home(statement, now),
        }
        return sign_identity(self.key(statement.issuer), claims, statement.attributes, statement.policy_rule)

    def _home(self, guest: Identity, now: datetime) -> Mapping[str, str]:
        """What a statement about a guest says of home."""
        if guest.guest_of is None or guest.origin is None:
            return {}
        home = self._statements[guest.origin]
        (provider,) = (each for each in self._providers() if each.key == home.issuer)
        return {
            "guest_of": self.did(home.issuer),
            "origin": digest_of(self.signed(home, now)),
            "mapping": mapping_digest(provider.mapping or ()),
        }

    def _providers(self) -> Iterator[Provider]:
        return (change.provider for change in self._policy.changes if isinstance(change, ledger.SetProvider))

    def shown(self, id: str, now: datetime) -> str:
        """The text of a statement as it is shown; one that is forged has the signature of another text."""
        text = self.signed(self._statements[id], now)
        if id not in self._forged:
            return text
        other = self.signed_list(RevocationList(self._statements[id].issuer, 1, now, frozenset()))
        return f"{text.rpartition('.')[0]}.{other.rpartition('.')[2]}"

    def keyed(self, certificate: Certificate) -> Certificate:
        """A certificate with the keys of those whom the file names."""
        return replace(
            certificate,
            issuer=self.did(certificate.issuer),
            subject=self.did(certificate.subject),
            authority=self._authority(certificate.authority),
        )

    def signed_list(self, found: RevocationList) -> str:
        """A revocation list, signed by its issuer."""
        return issue_revocations(self.key(found.issuer), number=found.number, revoked=found.revoked, now=found.issued)


def _check_whole(statement: Certificate | Identity) -> None:
    """Refuse what no signed statement can say: their times are whole seconds."""
    for end in (statement.validity.start, statement.validity.until):
        if end is not None and end.microsecond:
            raise BadScenario(
                f"`{statement.id}` begins or ends within a second, and signed statements say whole ones",
                remedy="use whole seconds, or leave the engine `node` out",
            )


_AUDITS: Final = "headgate.roles.*"


@dataclass(slots=True)
class StoryVersions:
    """The last version of the node for each version of the story."""

    _last: list[int] = field(default_factory=lambda: [0])

    def add(self, version: int) -> None:
        """A step of the story is done, at this version of the node."""
        self._last.append(version)

    def of_story(self, version: int) -> int:
        """The version of the story that one of the node belongs to."""
        return bisect_right(self._last, version) - 1

    def made_in(self, version: int) -> int:
        """The version of the story in which one of the node was made, by its step or by what the node did then."""
        return bisect_left(self._last, version)

    def of_node(self, version: int) -> int:
        """The version of the node at which one of the story begins; one that is to come is as far ahead there."""
        newest = len(self._last) - 1
        return self._last[version] if version <= newest else self._last[newest] + version - newest

    @property
    def newest(self) -> int:
        """The newest version of the story."""
        return len(self._last) - 1


@dataclass(slots=True)
class IssuedCredentials:
    """Memberships and elections: what the file calls them, and what the node does."""

    _issued: dict[str, str] = field(default_factory=dict)
    _named: dict[str, str] = field(default_factory=dict)

    def add(self, id: str, issued: str) -> None:
        """The node has given what the file calls `id`."""
        self._issued[id] = issued
        self._named[issued] = id

    def node_id(self, id: str) -> str:
        """What the node calls it; what was never given has no other name."""
        return self._issued.get(id, id)

    def node_ids(self, ids: Iterable[str] | None) -> list[str] | None:
        """The same of several, if there are any to name."""
        return None if ids is None else [self.node_id(id) for id in ids]

    def in_words(self, text: str) -> str:
        """A text of the node with the ids of the file in it; what the node makes up is in no text by chance."""
        for issued, id in self._named.items():
            text = text.replace(issued, id)
        return text

    def story_id(self, issued: str) -> str:
        """What the file calls it."""
        return self._named.get(issued, issued)


@dataclass(slots=True)
class AuditNames:
    """Events about audited roles, under the names that the format gives them."""

    versions: StoryVersions
    credentials: IssuedCredentials
    _refused: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Of refusals, the id that the file asked for and the version of the story, by the event's id."""

    def refused(self, event: Event, id: str) -> None:
        """An event tells that what the file calls `id` was refused."""
        self._refused[event.id] = id, self.versions.newest

    def of(self, event: Event) -> str:
        """What the format calls an event."""
        if not matches(_AUDITS, event.type):
            return event.id
        id, version = self._about(event)
        return f"{event.id.partition(':')[0]}:{id}@{version}"

    def view(self, event: Event, view: Mapping[str, Value]) -> dict[str, Value]:
        """A view of an event, in the words of the file; what the node's version says of itself is left out."""
        if not matches(_AUDITS, event.type):
            return dict(view)
        id, version = self._about(event)
        overrides: dict[str, Value] = {"id": id, "version": version, "note": ""}
        if isinstance(reason := view.get("reason"), str):
            overrides["reason"] = self.credentials.in_words(reason)
        return {name: overrides.get(name, value) if value is not None else None for name, value in view.items()}

    def _about(self, event: Event) -> tuple[str, int]:
        if event.id in self._refused:
            return self._refused[event.id]
        issued, version = event.values["id"], event.values["version"]
        assert isinstance(issued, str)
        assert isinstance(version, int)
        return self.credentials.story_id(issued), self.versions.made_in(version)
