"""The keys of a story's principals, and what is signed with them.

Guarantees: every principal has an Ed25519 key of its own, and so has every key that the file names without a principal;
no private key leaves this process but by signatures. What the file says of names and keys is said of these keys, in the
first batch, in statements and in revocation lists; statements keep the ids of the file.
Leaves out: showing statements, and what a node makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from headgate.model.authority import Authority, Certificate, Identity, Provider, RevocationList, TypeAuthority, Validity
from headgate.model.changes import (
    AddIssuing,
    Batch,
    Change,
    DeclarePrincipal,
    SetAttribute,
    SetCoordinator,
    SetKey,
    SetProvider,
)
from headgate.model.errors import BadScenario
from headgate.model.values import EPOCH
from headgate.scenario.format.authority import OURSELVES
from headgate.scenario.format.story import ADMINISTRATOR, Scenario
from headgate.trust.certificates import issue_certificate, issue_revocations
from headgate.trust.identities import LONGEST, mapping_digest, sign_identity
from headgate.trust.keys import PrivateKey
from headgate.trust.statements import digest_of, times_of

_KEY: Final = "did:key:"


class StoryKeys:
    """Who holds which key in a story."""

    def __init__(self, scenario: Scenario) -> None:
        self._policy = scenario.policy
        self._statements = scenario.statements
        self._forged = scenario.forged
        names = [change.name for change in scenario.policy.changes if isinstance(change, DeclarePrincipal)]
        self.administrator = OURSELVES if OURSELVES in names else ADMINISTRATOR
        """The domain's own principal: the one that the file declares as such, if it does."""
        self._keys = {name: PrivateKey.generate() for name in dict.fromkeys([self.administrator, *names])}
        self.principals = tuple(self._keys)
        self._keys[ADMINISTRATOR] = self._keys[self.administrator]
        for change in scenario.policy.changes:
            if isinstance(change, SetKey) and change.key is not None:
                self._keys[change.key] = self._keys[change.principal]

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

    def policy(self) -> Batch:
        """The first batch, with the key of every principal."""
        changes = [keyed for change in self._policy.changes for keyed in self._keyed(change)]
        keys = (SetKey(name, self.did(name)) for name in self.principals)
        return Batch(self.administrator, (*changes, *keys), self._policy.note)

    def _keyed(self, change: Change) -> Iterator[Change]:
        match change:
            case SetKey():
                return
            case DeclarePrincipal(name, attributes) if name == self.administrator:
                yield from (SetAttribute(name, attribute, value) for attribute, value in attributes.items())
            case SetCoordinator(key) if key is not None:
                yield SetCoordinator(self.did(key))
            case SetProvider(provider):
                yield SetProvider(replace(provider, key=self.did(provider.key)))
            case AddIssuing(issuing):
                yield AddIssuing(replace(issuing, authority=self._authority(issuing.authority)))
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
            "sub": self.did(statement.subject),
            "jti": statement.id,
            **times_of(start, Validity(start, until)),
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
        return (change.provider for change in self._policy.changes if isinstance(change, SetProvider))

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
