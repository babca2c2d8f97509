"""The domain's access control service: it issues certificates and identity statements, and takes them back.

Guarantees: a member gets only what a rule of the domain's policy gives it or its groups, for as long as that says, and
an identity statement only with what the domain itself says of it: attributes that another statement brought are not
attested again. Everything is recorded before it is handed out, and logged, without what it says. What is revoked is on
the next list, which is durable before it is in force here.
Leaves out: the wire (`routes`), and whether others follow (`issuers`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from headgate.authority.statement_state import StatementState
from headgate.commands.statements import Authority, holder
from headgate.model.authority import Issuing, Provider, Validity
from headgate.model.changes import Change, Revoke, SetProvider
from headgate.model.errors import BadRequest, ChainInvalid, NotFound, Revoked
from headgate.model.state import State
from headgate.model.values import Value, brief
from headgate.node.config import AuthoritySettings
from headgate.node.logs import Log
from headgate.node.statement_register import IssuedStatement, StatementRegister
from headgate.trust.certificates import issue_certificate, issue_revocations, new_id
from headgate.trust.identities import IDENTITY, guest, issue_identity
from headgate.trust.keys import PrivateKey

LIST_SECONDS: Final = 5.0
"""How old the signature under the list may be that is handed out, and no older than half a heartbeat."""

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")
log = Log("authority")


@dataclass(frozen=True, slots=True)
class RecordedStatement:
    """A statement of the service, and what it is recorded as."""

    text: str
    record: IssuedStatement


@dataclass(eq=False, repr=False)
class Service:
    """Issues and revokes in the name of one domain. May be used from any thread."""

    authority: Authority
    register: StatementRegister
    key: PrivateKey
    settings: AuthoritySettings
    _: KW_ONLY
    name: str
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._lasts = min(LIST_SECONDS, self.settings.heartbeat / 2)
        self._signed: tuple[int, datetime, str] | None = None

    def start(self, state: State) -> None:
        """Bring ledger and register together: neither may have missed what the other knows."""
        known = state.lists.get(self.key.public.did)
        if known is not None:
            self.register.catch_up(known)
        self._put_in_force()

    # -- certificates -----------------------------------------------------------------------------------------

    def certificates(
        self, state: State, principal: str, did: str, rule: str | None, seconds: int | None, audience: Sequence[str]
    ) -> list[RecordedStatement]:
        """A certificate by each rule that is for the principal, or by the one that it names."""
        rules = [one for one in self._rules(state, principal) if rule is None or one.id == rule]
        if not rules:
            raise NotFound("no issuing rule is for you" if rule is None else f"no issuing rule `{brief(rule)}`")
        now = self.clock()
        made = [self._certificate(one, principal, did, now, seconds, audience) for one in rules]
        self._record([one.record for one in made], now)
        return made

    def _rules(self, state: State, principal: str) -> Iterator[Issuing]:
        whom = state.groups_of(principal) | {principal}
        return (one for one in state.issuing.values() if one.who in whom)

    def _certificate(
        self, rule: Issuing, principal: str, did: str, now: datetime, seconds: int | None, audience: Sequence[str]
    ) -> RecordedStatement:
        begins = now.replace(microsecond=0)
        until = begins + timedelta(seconds=rule.seconds if seconds is None else min(seconds, rule.seconds))
        id = new_id()
        text = issue_certificate(
            self.key,
            subject=did,
            authority=rule.authority,
            delegate=rule.delegate,
            validity=Validity(begins, until),
            freshness=self.settings.freshness,
            audience=audience,
            now=now,
            id=id,
        )
        return RecordedStatement(text, IssuedStatement(id, "certificate", principal, did, rule.id, now, until))

    # -- identities -------------------------------------------------------------------------------------------

    def identity(self, state: State, principal: str, did: str, audience: Sequence[str]) -> RecordedStatement:
        """What the domain says of a member, for a short time."""
        now = self._provide()
        begins = now.replace(microsecond=0)
        until = begins + timedelta(seconds=self.settings.identity)
        id = new_id()
        text = issue_identity(
            self.key,
            subject=did,
            attributes=own_attributes(state, principal),
            validity=Validity(begins, until),
            policy_rule=state.policy_rules.get(principal),
            audience=audience,
            now=now,
            id=id,
        )
        made = RecordedStatement(text, IssuedStatement(id, "identity", principal, did, "", now, until))
        self._record([made.record], now)
        return made

    def home(self, state: State, did: str, statement: str) -> Provider:
        """The provider that vouches for a key at home, if its members are guests here."""
        now, stands = self.clock(), StatementState(state)
        identity = IDENTITY.verify(
            statement, audience=self.authority.audience, now=now, verifier=self.authority.verifier
        )
        if identity.subject != did:
            raise ChainInvalid(f"the statement `{brief(identity.id)}` is about another than `{did}`")
        provider = state.providers.get(identity.issuer)
        if provider is None or provider.mapping is None:
            raise ChainInvalid(
                f"`{brief(identity.issuer)}` is no provider of guests here",
                remedy="ask the administrator of the domain",
            )
        if not stands.counts(identity.issuer, now):
            raise ChainInvalid(
                f"the statement `{brief(identity.id)}` is signed with a key of its provider that has ended",
                remedy="ask for one that the new key signs",
            )
        if stands.is_revoked(identity):
            raise Revoked(f"the identity statement `{brief(identity.id)}` was revoked")
        return provider

    def guest(self, state: State, did: str, statement: str) -> RecordedStatement:
        """A statement about a member of another community, by the mapping that was agreed on (Guard IV.C)."""
        home, now = self.home(state, did, statement), self._provide()
        text = guest(
            statement,
            home=home,
            host=self.key,
            now=now,
            policy_rule=state.policy_rules.get(holder(state, did) or did),
            heard_by=self.authority.audience,
            verifier=self.authority.verifier,
        )
        issued = IDENTITY.verify(text, audience=None)
        assert issued.validity.until is not None
        made = RecordedStatement(
            text, IssuedStatement(issued.id, "guest", did, did, home.name, now, issued.validity.until)
        )
        self._record([made.record], now)
        return made

    def _provide(self) -> datetime:
        """Be a provider of this domain, whose statements count here; the time."""
        own = self.key.public.did

        def make(state: State, now: datetime) -> Sequence[Change]:  # noqa: ARG001
            provider = state.providers.get(own)
            return (
                ()
                if provider is not None and provider.mapping is None
                else (SetProvider(Provider(own, self.name, own=True)),)
            )

        self.authority.commit(make, "the domain's own identity provider")
        return self.clock()

    def _record(self, made: Sequence[IssuedStatement], now: datetime) -> None:
        self.register.issue(made, self.settings.issued_per_principal, now)
        for one in made:
            log.info("issued", kind=one.kind, statement=one.id, seconds=(one.until - now).total_seconds())

    # -- taking back ------------------------------------------------------------------------------------------

    def revoke(self, state: State, principal: str, id: str) -> int:
        """Take a statement back: the administrator any, a subject its own; returns the number of the list."""
        governs = principal == state.administrator
        record = self.register.one(id)
        if not governs and (record is None or record.principal != principal):
            raise NotFound(f"no statement `{brief(id)}`")
        if not _ID.match(id):
            raise BadRequest(f"`{brief(id)}` is no identifier of a statement")
        if self.register.revoke(id, self.clock()):
            log.info("revoked", statement=id, kind="" if record is None else record.kind)
        self._put_in_force()
        return self.register.number()

    def _put_in_force(self) -> None:
        """Let the ledger know the list, in one batch with all that falls."""
        own = self.key.public.did

        def make(state: State, now: datetime) -> Sequence[Change]:
            known, mine = state.lists.get(own), self.authority.own_list(now)
            news = mine.number > 0 if known is None else mine.number > known.number
            return (Revoke(mine, now),) if news else ()

        self.authority.commit(make, "the domain's own revocation list")

    def number(self) -> int:
        """The number of the list."""
        return self.register.number()

    def signed_list(self) -> tuple[int, str]:
        """The list with its number, signed not long ago."""
        now = self.clock()
        with self._lock:
            number = self.register.number()
            last = self._signed
            if last is None or last[0] != number or not 0 <= (now - last[1]).total_seconds() < self._lasts:
                number, revoked = self.register.revocations()
                text = issue_revocations(self.key, number=number, revoked=revoked, now=now)
                last = self._signed = number, now, text
            return last[0], last[2]

    def status(self, id: str) -> Literal["good", "revoked", "unknown"]:
        """What has become of a statement: `good`, `revoked`, or `unknown` if it is not of here or has ended."""
        if self.register.is_revoked(id):
            return "revoked"
        found = self.register.one(id)
        return "good" if found is not None and found.until > self.clock() else "unknown"


def own_attributes(state: State, principal: str) -> dict[str, Value]:
    """What the domain itself says of a principal."""
    given = {name for one in state.identities.values() if one.principal == principal for name in one.applied}
    said = state.principals.get(principal, {})
    return {name: value for name, value in said.items() if name not in given}
