"""The organisations of a story: each a directory with its own keys, and the statements that it made or was given.

Guarantees: what a scenario file declares is really signed, by the key of whoever the file names as its issuer; what it
declares to be forged is signed by a key that nobody knows. Private keys never leave the directory of their
organisation; all that passes from one to another is files.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, assert_never

from headgate.model.authority import Certificate, Identity, NetworkAuthority, Provider, RevocationList, Validity
from headgate.model.changes import SetProvider
from headgate.model.rights import Action
from headgate.model.types import EventType
from headgate.scenario.format.story import BrokerCheck, Check, Narration, Scenario, ServerCheck, TypeCheck
from headgate.trust.certificates import issue_certificate, issue_revocations, verify_certificate
from headgate.trust.identities import cross_domain, guest, issue_identity, verify_server
from headgate.trust.keyring import Keyring
from headgate.trust.keys import PrivateKey
from headgate.trust.presented import check_broker
from headgate.trust.typedefs import issue_type, verify_type

_VOUCHED: Final = timedelta(hours=1)
"""How long a provider vouches for another."""


class Organisations:
    """Whoever signs something in a story; a signer that is of no organisation keeps its key to itself."""

    def __init__(self, directory: Path, narration: Narration, scenario: Scenario) -> None:
        self._directory = directory
        self._domain = narration.domain
        self._keys: dict[str, PrivateKey] = {}
        self._organisation: dict[str, str] = {}
        for organisation, members in narration.organisations.items():
            keyring = Keyring(directory / organisation / "keys")
            (directory / organisation / "statements").mkdir(parents=True)
            for name in members:
                keyring.new(name)
                self._keys[name] = keyring.load(name)
                self._organisation[self._keys[name].public.did] = organisation
        for statement in scenario.statements.values():
            self._keys.setdefault(statement.issuer, PrivateKey.generate())
        self.dids = {name: key.public.did for name, key in self._keys.items()}
        self.names = {did: name for name, did in self.dids.items()}
        self.texts: dict[str, str] = {}

    def sign(self, scenario: Scenario, now: datetime) -> None:
        """Sign every statement of the file, in order, and hand it to whoever it is about."""
        providers = [change.provider for change in scenario.policy.changes if isinstance(change, SetProvider)]
        for id, statement in scenario.statements.items():
            if id in scenario.forged:
                signer = PrivateKey.generate()
                text = _signed(statement, signer, now)
                self.texts[id] = _altered(text, signer.public.did, statement.issuer)
                continue
            if isinstance(statement, Identity) and statement.origin is not None:
                text = self._guest(statement, statement.origin, providers, now)
            else:
                text = _signed(statement, self._key(statement.issuer), now)
            self.texts[id] = text
            self._keep(id, text, statement.issuer, statement.subject)

    def define(self, type: EventType, scenario: Scenario, now: datetime) -> str:
        """The definition of a type as its owner signs it, with what lets the owner install it."""
        owner = self.dids[type.owner]
        credentials = [self.texts[id] for id, one in scenario.statements.items() if _installs(one, owner)]
        text = issue_type(
            self._keys[type.owner], name=type.name, attributes=type.attributes, now=now, credentials=credentials
        )
        self.texts[type.name] = text
        self._keep(type.name.rpartition(".")[2].lower(), text, owner, shown=True)
        return text

    def revoke(self, revocations: RevocationList) -> str:
        """A revocation list as its issuer signs it."""
        key, issued = self._key(revocations.issuer), revocations.issued
        text = issue_revocations(key, number=revocations.number, revoked=revocations.revoked, now=issued)
        self._keep(f"revoked-by-{self.names[revocations.issuer]}", text, revocations.issuer, shown=True)
        return text

    def chain(self, ids: Sequence[str], now: datetime) -> tuple[Certificate, ...]:
        """These certificates, verified."""
        return tuple(verify_certificate(self.texts[id], audience=None, now=now) for id in ids)

    def check(self, check: Check, coordinator: str, now: datetime) -> None:
        """Verify something as one of the story does, or say why it does not hold."""
        match check:
            case TypeCheck(type):
                verify_type(self.texts[type], coordinator=coordinator, now=now)
            case BrokerCheck(ids):
                broker = self.chain(ids, now)[-1].subject
                check_broker([self.texts[id] for id in ids], broker=broker, coordinator=coordinator, now=now)
            case ServerCheck(id, anchor, provider):
                text = cross_domain(
                    self._keys[anchor], other=self.dids[provider], validity=Validity(now, now + _VOUCHED), now=now
                )
                self._keep(f"{provider}-is-a-provider", text, self.dids[anchor])
                self._keep(id, self.texts[id], self.dids[anchor])
                verify_server(self.texts[id], text, anchor=self.dids[anchor], audience=None, now=now)
            case _:
                assert_never(check)

    def _guest(self, statement: Identity, home: str, providers: Sequence[Provider], now: datetime) -> str:
        """The statement from home goes to the host's provider, and a guest statement comes back."""
        self._keep(home, self.texts[home], statement.issuer)
        provider = next(one for one in providers if one.key == statement.guest_of)
        return guest(self.texts[home], home=provider, host=self._key(statement.issuer), now=now)

    def _key(self, did: str) -> PrivateKey:
        return self._keys[self.names[did]]

    def _keep(self, file: str, text: str, *holders: str, shown: bool = False) -> None:
        """Put a statement among those that its holders have; what is `shown` to the domain is there, too."""
        keepers = {self._organisation[did] for did in holders if did in self._organisation}
        for organisation in keepers | ({self._domain} if shown else set()):
            path = self._directory / organisation / "statements" / f"{file}.jwt"
            path.write_text(f"{text}\n", encoding="ascii")


def _signed(statement: Certificate | Identity, signer: PrivateKey, now: datetime) -> str:
    match statement:
        case Certificate():
            return issue_certificate(
                signer,
                subject=statement.subject,
                authority=statement.authority,
                now=now,
                delegate=statement.delegate,
                validity=statement.validity,
                freshness=statement.freshness,
                id=statement.id,
            )
        case Identity():
            return issue_identity(
                signer,
                subject=statement.subject,
                attributes=statement.attributes,
                validity=statement.validity,
                now=now,
                policy_rule=statement.policy_rule,
                id=statement.id,
            )
        case _:
            assert_never(statement)


def _installs(statement: Certificate | Identity, owner: str) -> bool:
    """Does it let the owner of a type install it?"""
    return (
        isinstance(statement, Certificate)
        and statement.subject == owner
        and any(isinstance(one, NetworkAuthority) and Action.INSTALL in one.actions for one in statement.authority)
    )


def _altered(text: str, old: str, new: str) -> str:
    """A statement that says something else, under the signature of what it said."""
    head, payload, signature = text.split(".")
    said = urlsafe_b64decode(payload + "=" * (-len(payload) % 4)).decode()
    return f"{head}.{urlsafe_b64encode(said.replace(old, new).encode()).rstrip(b'=').decode()}.{signature}"
