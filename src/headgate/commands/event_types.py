"""Event types: declare, retire and advertise; also those that come with their owner's signature.

Guarantees: everything is done in the name of a principal and decided by the ledger; asking for what is so already makes
no version. A signed definition is taken up only if it verifies by itself, from the domain that coordinates the network,
and nothing that it rests on was revoked or is unknown here. It belongs to whoever has its owner's key; a key that
nobody has becomes a principal, named by it, in the same batch. A name that a type of another owner has is taken.
Parents that are not here come with it. A type that was retired comes back only by its owner in person, by the
administrator, or by a definition that was signed since; the same goes for what it is declassified for. The text is
kept, and given back while the type is as it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from headgate.authority.statement_state import StatementState
from headgate.commands.commit import LedgerAccess
from headgate.commands.statements import Authority
from headgate.model.authority import ANY, Certificate
from headgate.model.changes import (
    Advertise,
    Change,
    DeclarePrincipal,
    DeclareType,
    RetireType,
    SetDeclassified,
    SetKey,
    Unadvertise,
)
from headgate.model.errors import (
    AlreadyExists,
    BadDefinition,
    BadStatement,
    ChainInvalid,
    HeadgateError,
    NotFound,
    Revoked,
    UnknownType,
)
from headgate.model.state import State
from headgate.model.types import EventType
from headgate.model.values import brief
from headgate.node.statement_register import StatementRegister, coordinator_of
from headgate.trust.statements import Read, read_through
from headgate.trust.typedefs import TYPE_DEFINITION, Definition, SignedType, verify_type


@dataclass(eq=False, repr=False)
class SignedTypes:
    """The signed types of one domain. May be used from any thread."""

    authority: Authority
    register: StatementRegister

    def declare(self, name: str, text: str, by: str | None = None) -> State:
        """Take up a definition under its name, as a principal shows it; the state from then on."""

        def make(state: State, now: datetime) -> Sequence[Change]:
            found = self._verified(state, name, text, now)
            signed = dict(_signed(read_through(self.authority.verifier, text, TYPE_DEFINITION.read)))
            return tuple(self._changes(state, found, signed, by))

        made = self.authority.commit(make, f"the type `{brief(name)}`, as its owner signed it")
        self.register.keep_type(name, text)
        return made.state

    def statement(self, state: State, name: str) -> str | None:
        """The definition of a type as it was signed, if that is still how it is."""
        text = self.register.type(name)
        if text is None:
            return None
        try:
            signed = read_through(self.authority.verifier, text, TYPE_DEFINITION.read).value
        except HeadgateError:
            return None
        parent = None if signed.parent is None else signed.parent.value.name
        written = _event_type(signed, StatementState(state).principal_of(signed.owner), parent)
        return text if _said_by(state.types[name]) == _said_by(written) else None

    def _verified(self, state: State, name: str, text: str, now: datetime) -> SignedType:
        root = coordinator_of(state)
        if root is None:
            raise NotFound("nobody coordinates the network of this domain", remedy="give the administrator a key")
        stands = StatementState(state)
        definition = verify_type(
            text,
            coordinator=root,
            now=now,
            audience=self.authority.audience,
            network=state.network or ANY,
            same=stands.same,
            counts=lambda key: stands.counts(key, now),
            verifier=self.authority.verifier,
        )
        if definition.name != name:
            raise BadStatement(f"the definition is of `{brief(definition.name)}`", reason="wrong-name")
        for one in definition.certificates:
            _check_stands(stands, one, now)
        return definition

    def _changes(
        self, state: State, leaf: SignedType, signed: Mapping[str, datetime], by: str | None
    ) -> Iterator[Change]:
        declared: set[str] = set()
        for definition in _from_the_root(leaf):
            owner = StatementState(state).principal_of(definition.owner)
            if owner not in state.principals and owner != state.administrator and owner not in declared:
                declared.add(owner)
                self.authority.check_room(state, len(declared))
                yield DeclarePrincipal(owner)
                yield SetKey(owner, owner)
            new = _event_type(definition, owner, None if definition.parent is None else definition.parent.name)
            _check_whose(definition, state)
            old = state.types.every.get(definition.name)
            if old is None or _is_news(old, new, ancestor=definition is not leaf):
                again = old is not None and (old.retired or old.declassified_for != new.declassified_for)
                if old is not None and again and by not in (old.owner, state.administrator):
                    self._check_since(definition, signed[definition.digest], "retired" if old.retired else "classified")
                yield DeclareType(new)

    def _check_since(self, definition: SignedType, signed: datetime, became: str) -> None:
        """Refuse a definition from before its type was retired, or (de)classified: whoever has kept it may show it."""
        since = self.authority.domain.ledger.type_since(definition.name)
        if since is None or signed <= since:
            raise BadStatement(
                f"the type `{brief(definition.name)}` was {became} after this definition was signed",
                reason=became,
                remedy="let its owner declare it again, or sign it anew",
            )


def _signed(read: Read[Definition]) -> Iterator[tuple[str, datetime]]:
    """When a definition and those that it carries were signed, each by its digest."""
    line: Read[Definition] | None = read
    while line is not None:
        yield line.digest, line.issued
        line = line.value.parent


def _check_stands(stands: StatementState, certificate: Certificate, now: datetime) -> None:
    """Refuse a certificate that was revoked, or whose issuer has been silent for longer than it said."""
    if stands.is_revoked(certificate):
        raise Revoked(
            f"the certificate `{brief(certificate.id)}` was revoked",
            remedy=f"ask `{brief(certificate.issuer)}` for another",
        )
    if stands.is_known(certificate, now) is not True:
        raise ChainInvalid(
            f"the certificate `{brief(certificate.id)}` is unknown while nothing is heard from "
            f"`{brief(certificate.issuer)}`",
            remedy="bring its revocation list",
        )


def _from_the_root(found: SignedType) -> list[SignedType]:
    line = [found]
    while line[-1].parent is not None:
        line.append(line[-1].parent)
    return line[::-1]


def _event_type(one: SignedType | Definition, owner: str, parent: str | None) -> EventType:
    released = frozenset(name for _, name in one.declassified_for)
    return EventType(
        *(one.name, owner, dict(one.attributes), parent, one.key),
        times=one.times,
        derived=one.derived,
        declassified_for=released,
    )


def _check_whose(one: SignedType, state: State) -> None:
    """Refuse a definition that is declassified for a type that is not here, or is another owner's here."""
    for key, name in sorted(one.declassified_for):
        if name not in state.types or state.types[name].owner != StatementState(state).principal_of(key):
            raise UnknownType(
                f"`{one.name}` is declassified for `{brief(name)}` of `{key}`, which is not here",
                remedy="declare that type first",
            )


def _is_news(old: EventType, new: EventType, *, ancestor: bool) -> bool:
    """Does a definition say more than the type that is there? Refused if that is another type."""
    if old.owner != new.owner:
        raise AlreadyExists(f"the name `{new.name}` is taken by a type of another owner", remedy="choose another name")
    if ancestor and not old.retired:
        # A parent may have grown since its heir was signed; it may not be another type.
        if old.parent != new.parent or not new.attributes.items() <= old.attributes.items():
            raise BadDefinition(f"the type extends another `{new.name}` than the one that is here")
        return False
    return old.retired or _said_by(old) != _said_by(new)


def declare(ledger: LedgerAccess, principal: str, new: EventType) -> bool:
    """Declare a type, or a new version of one; is its name new?"""
    types = ledger.state.types
    is_new = new.name not in types
    if is_new or _said_by(types[new.name]) != _said_by(new):
        ledger.change(principal, [DeclareType(new)])
    return is_new


def _said_by(one: EventType) -> tuple[object, ...]:
    return one.owner, dict(one.attributes), one.parent, one.key, one.times, one.derived, one.declassified_for


def retire(ledger: LedgerAccess, principal: str, name: str) -> None:
    """Remove a type."""
    ledger.change(principal, [RetireType(ledger.state.types[name].name)])


def declassify(ledger: LedgerAccess, principal: str, name: str, derived: str) -> bool:
    """Let a derived type be made of a type, whoever may read the derived one; is that new?"""
    is_new = derived not in ledger.state.types[name].declassified_for
    if is_new:
        ledger.change(principal, [SetDeclassified(name, derived)])
    return is_new


def reclassify(ledger: LedgerAccess, principal: str, name: str, derived: str) -> None:
    """Let a derived type be made of a type no more."""
    if derived not in ledger.state.types[name].declassified_for:
        raise NotFound(f"`{name}` is not declassified for `{brief(derived)}`")
    ledger.change(principal, [SetDeclassified(name, derived, declassified=False)])


def advertised(ledger: LedgerAccess, principal: str) -> list[str]:
    """The types that a principal advertises."""
    return sorted(name for who, name in ledger.state.advertisements if who == principal)


def advertise(ledger: LedgerAccess, principal: str, name: str) -> bool:
    """Say that one will publish a type; is that new?"""
    wanted = principal, ledger.state.types[name].name
    is_new = wanted not in ledger.state.advertisements
    if is_new:
        ledger.change(principal, [Advertise(*wanted)])
    return is_new


def unadvertise(ledger: LedgerAccess, principal: str, name: str) -> None:
    """Say that one will publish a type no more."""
    if (principal, name) not in ledger.state.advertisements:
        raise NotFound(f"you do not advertise `{brief(name)}`")
    ledger.change(principal, [Unadvertise(principal, name)])
