"""Secure event types: definitions that their owner signs, and that verify by themselves (Capabilities II.B, III.C).

Guarantees: `verify_type` is the only way from text to a `SignedType`, and looks nothing up: the definition carries the
certificates that allow it, and the definition of its parent, which carries its own. The full name begins with the
owner's key, and only that key can sign it, so no name can be squatted. A type without a parent, or with one of the same
owner, needs `install` from the coordinating domain; one that extends another owner's type needs `extend` from there.
Nothing of it is signed by a key of which the caller says that it counts no more.
Leaves out: whether a certificate was revoked since; `certificates` of the result are all that it hangs on.

The certificates come in order: the first from whoever allows it, the last to the owner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from operator import eq
from typing import Any, Final

from headgate.authority.chains import Same, reduce, rooted
from headgate.model.authority import ANY, Authority, Certificate, NetworkAuthority, TypeAuthority
from headgate.model.errors import BadDefinition
from headgate.model.expressions import TRUE
from headgate.model.limits import (
    MAX_ATTRIBUTES,
    MAX_CHAIN_LENGTH,
    MAX_DECLASSIFIED,
    MAX_TYPE_DEPTH,
    MAX_TYPE_STATEMENT_BYTES,
)
from headgate.model.rights import Action
from headgate.model.types import CONTRIBUTORS, DECLASSIFIED, EventType, Times, matches
from headgate.model.values import Kind, brief
from headgate.trust import claims as claim
from headgate.trust.certificates import CERTIFICATE
from headgate.trust.claims import bad
from headgate.trust.keys import PrivateKey
from headgate.trust.statements import Read, Signed, StatementKind, Verifier, check, read_through, seconds_of

_KINDS: Final = {kind.value: kind for kind in Kind}
_TIMES: Final = ("times", "lateness", "ahead", "clock_error")
_DERIVED: Final = ("derived", "declassified_for")


@dataclass(frozen=True, slots=True)
class Definition:
    """What a definition says: signed, but not yet known to be allowed."""

    signer: str
    owner: str
    name: str
    attributes: Mapping[str, Kind]
    key: tuple[str, ...]
    parent: Read[Definition] | None
    credentials: tuple[Read[Certificate], ...]
    times: Times | None = None
    derived: str | None = None
    declassified_for: frozenset[tuple[str, str]] = frozenset()
    """The derived types for which it is declassified, each by its owner's key and its name."""

    @property
    def inherited(self) -> dict[str, Kind]:
        """The attributes of its ancestors."""
        return {} if self.parent is None else {**self.parent.value.inherited, **self.parent.value.attributes}


@dataclass(frozen=True, slots=True)
class SignedType:
    """An event type that its owner signed and was allowed to make. `attributes` are its own; `digest` is the text's."""

    owner: str
    name: str
    attributes: Mapping[str, Kind]
    parent: SignedType | None
    key: tuple[str, ...]
    digest: str
    chain: tuple[Certificate, ...]
    times: Times | None = None
    derived: str | None = None
    declassified_for: frozenset[tuple[str, str]] = frozenset()

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """All that the type hangs on, its ancestors' included."""
        return self.chain + (() if self.parent is None else self.parent.certificates)


# -- signing --------------------------------------------------------------------------------------------------


def issue_type(
    owner: PrivateKey,
    *,
    name: str,
    attributes: Mapping[str, Kind],
    now: datetime,
    credentials: Sequence[str] = (),
    parent: str | None = None,
    key: Sequence[str] = (),
    named_after: str | None = None,
    times: Times | None = None,
    derived: str | None = None,
    declassified_for: Collection[tuple[str, str]] = (),
) -> str:
    """A signed definition; `parent` is the text of the parent's, `named_after` the key in the name if it rotated.

    It is `declassified_for` derived types, each by its owner's key and its name.
    """
    claims: dict[str, object] = {
        "name": f"{named_after or owner.public.did}/{name}",
        "attributes": {attribute: kind.value for attribute, kind in attributes.items()},
        "iat": seconds_of(now),
        "credentials": list(credentials),
    }
    if key:
        claims["key"] = list(key)
    if times is not None:
        claims |= {what: claim.value_to_json(said) for what, said in times.as_said().items()}
    if derived is not None:
        claims["derived"] = derived
    if declassified_for:
        claims["declassified_for"] = sorted(f"{whose}/{made}" for whose, made in declassified_for)
    if parent is not None:
        above = TYPE_DEFINITION.read(parent).value
        claims |= {"parent": f"{above.owner}/{above.name}", "parent_definition": parent}
    return TYPE_DEFINITION.issue(owner, claims)


# -- verifying ------------------------------------------------------------------------------------------------


def verify_type(
    text: str,
    *,
    coordinator: str,
    now: datetime,
    audience: str | None = None,
    network: str = ANY,
    same: Same = eq,
    counts: Callable[[str], bool] = lambda _: True,
    verifier: Verifier | None = None,
) -> SignedType:
    """The event type of a text, if its owner signed it and was allowed to; `coordinator` owns the network.

    `counts` tells whether what a key signed still counts.
    """
    # 1. to 6. are those of `open_statement`, for the definition, its certificates and its ancestors.
    read = read_through(verifier, text, TYPE_DEFINITION.read)
    return _judged(read, _Ground(coordinator, now, audience, network, same, counts))


@dataclass(frozen=True, slots=True)
class _Ground:
    """On what a definition is judged."""

    coordinator: str
    now: datetime
    audience: str | None
    network: str
    same: Same
    counts: Callable[[str], bool]


def _judged(read: Read[Definition], ground: _Ground) -> SignedType:
    # 7. It is not from the future.
    definition = check(read, audience=ground.audience, now=ground.now)
    # 8. The key in the name signed it.
    if not ground.same(definition.signer, definition.owner):
        raise bad(
            "squatting", f"`{brief(definition.name)}` is in the name of `{definition.owner}`, who did not sign it"
        )
    _check_counts(definition.signer, definition.name, ground)
    # 9. Its parent is allowed too.
    parent = None if definition.parent is None else _judged(definition.parent, ground)
    # 10. The certificates are good now, and one chain, from whoever allows it to the owner.
    chain = tuple(check(one, audience=ground.audience, now=ground.now) for one in definition.credentials)
    for one in chain:
        _check_counts(one.issuer, definition.name, ground)
    foreign = parent is not None and not ground.same(parent.owner, definition.owner)
    root = parent.owner if parent is not None and foreign else ground.coordinator
    if foreign or chain or not ground.same(definition.owner, root):
        _check_allowed(definition, parent if foreign else None, chain, root, ground)
    return SignedType(
        definition.owner,
        definition.name,
        definition.attributes,
        parent,
        definition.key,
        read.digest,
        chain,
        definition.times,
        definition.derived,
        definition.declassified_for,
    )


def _check_counts(key: str, name: str, ground: _Ground) -> None:
    if not ground.counts(key):
        raise bad("ended-key", f"`{brief(name)}` rests on what `{key}` signed, which counts no more", "sign it anew")


def _check_allowed(
    definition: Definition, parent: SignedType | None, chain: tuple[Certificate, ...], root: str, ground: _Ground
) -> None:
    what = "install" if parent is None else "extend"
    if not chain:
        raise bad("no-credentials", f"`{brief(definition.name)}` carries no right to {what}", f"ask `{root}` for one")
    if not ground.same(chain[0].issuer, root):
        raise bad("wrong-root", f"the right to {what} comes from `{chain[0].issuer}`, not from `{root}`")
    if not ground.same(chain[-1].subject, definition.owner):
        raise bad(
            "wrong-subject", f"the right to {what} was given to `{chain[-1].subject}`, not to `{definition.owner}`"
        )
    reduced = reduce(chain, ground.same)
    if reduced is None:
        raise bad("broken-chain", f"the certificates of `{brief(definition.name)}` are no chain that gives anything")
    counts = rooted(reduced, ground.coordinator, ground.same, network=ground.network)
    if not any(_allows(one, parent, ground.same) for one in counts):
        raise bad("not-allowed", f"the certificates of `{brief(definition.name)}` give no right to {what}")


def _allows(authority: Authority, parent: SignedType | None, same: Same) -> bool:
    """Is this the right to install a type, or to extend this parent? A condition has no event to be true of."""
    match authority:
        case NetworkAuthority(actions):
            return parent is None and Action.INSTALL in actions
        case TypeAuthority(actions, pattern, owner, _, _, where):
            owns = parent is not None and (owner is None or same(owner, parent.owner))
            return (
                parent is not None
                and owns
                and Action.EXTEND in actions
                and matches(pattern, parent.name)
                and where == TRUE
            )


# -- reading --------------------------------------------------------------------------------------------------


def _definition(signed: Signed, depth: int = MAX_TYPE_DEPTH) -> Definition:
    claims = signed.claims
    owner, name = claim.owned(claims["name"], "name")
    if owner is None:
        raise bad("bad-name", f"`{brief(name)}` does not say whose it is", "write `did:key:.../dotted.name`")
    credentials = claim.listed(claims["credentials"], "credentials", 0, MAX_CHAIN_LENGTH)
    definition = Definition(
        signer=signed.issuer,
        owner=owner,
        name=claim.type_name(name),
        attributes=_attributes(claims["attributes"]),
        key=_key(claims),
        parent=_parent(claims, depth),
        credentials=tuple(CERTIFICATE.read(claim.text(one, "credentials")) for one in credentials),
        times=_times(claims),
        derived=_derived(claims),
        declassified_for=_declassified_for(claims),
    )
    _check_shape(definition)
    return definition


TYPE_DEFINITION: Final = StatementKind(
    "hg-type+jwt",
    frozenset({"iss", "name", "attributes", "iat", "credentials"}),
    frozenset({"key", "parent", "parent_definition", *_DERIVED, *_TIMES}),
    MAX_TYPE_STATEMENT_BYTES,
    made_of=_definition,
)
"""What a definition says, and those it carries; whether it was allowed is another question."""


def _attributes(given: object) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for name, kind in claim.mapped(given, "attributes", MAX_ATTRIBUTES).items():
        if type(kind) is not str or kind not in _KINDS:
            raise bad("bad-claim", f"`{brief(kind)}` is no kind of value", ", ".join(_KINDS))
        kinds[claim.attribute_name(name)] = _KINDS[kind]
    return kinds


def _key(claims: Mapping[str, Any]) -> tuple[str, ...]:
    if "key" not in claims:
        return ()
    return claim.distinct(claims["key"], "key", 1, MAX_ATTRIBUTES, claim.attribute_name)


def _times(claims: Mapping[str, Any]) -> Times | None:
    try:
        return Times.said(*(claim.value_of(claims[what], what) if what in claims else None for what in _TIMES))
    except BadDefinition as error:
        raise bad("bad-claim", error.message, error.remedy) from None


def _derived(claims: Mapping[str, Any]) -> str | None:
    said = claim.text(claims["derived"], "derived") if "derived" in claims else None
    if said not in (None, CONTRIBUTORS, DECLASSIFIED):
        raise bad("bad-claim", f"`derived` cannot be `{brief(said)}`", f"write `{CONTRIBUTORS}` or `{DECLASSIFIED}`")
    return said


def _declassified_for(claims: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    if "declassified_for" not in claims:
        return frozenset()
    return frozenset(claim.distinct(claims["declassified_for"], "declassified_for", 1, MAX_DECLASSIFIED, _whose_type))


def _whose_type(given: object, what: str) -> tuple[str, str]:
    owner, name = claim.owned(given, what)
    if owner is None:
        raise bad("bad-name", f"`{brief(name)}` does not say whose it is", "write `did:key:.../dotted.name`")
    return owner, claim.type_name(name)


def _parent(claims: Mapping[str, Any], depth: int) -> Read[Definition] | None:
    if "parent" not in claims and "parent_definition" not in claims:
        return None
    if "parent" not in claims or "parent_definition" not in claims:
        raise bad("missing-claim", "a type names its parent and carries the definition of it")
    if depth <= 0:
        raise bad("too-deep", f"the type has more ancestors than MAX_TYPE_DEPTH ({MAX_TYPE_DEPTH})")
    carried = replace(TYPE_DEFINITION, made_of=partial(_definition, depth=depth - 1))
    parent = carried.read(claim.text(claims["parent_definition"], "parent_definition"))
    if claims["parent"] != f"{parent.value.owner}/{parent.value.name}":
        raise bad("wrong-parent", f"the type carries the definition of another than `{brief(claims['parent'])}`")
    return parent


def _check_shape(definition: Definition) -> None:
    """Is it a type that a catalog could hold?"""
    try:
        EventType(definition.name, definition.owner, definition.attributes)
    except BadDefinition as error:
        raise bad("bad-name", error.message, error.remedy) from None
    inherited = definition.inherited
    if twice := sorted(definition.attributes.keys() & inherited.keys()):
        raise bad("bad-claim", f"`{brief(definition.name)}` declares `{brief(twice[0])}`, which it inherits")
    if len(inherited) + len(definition.attributes) > MAX_ATTRIBUTES:
        raise bad("bad-claim", f"`{brief(definition.name)}` has more attributes than MAX_ATTRIBUTES ({MAX_ATTRIBUTES})")
    for name in definition.key:
        if name not in definition.attributes and name not in inherited:
            raise bad("bad-claim", f"the key of `{brief(definition.name)}` names `{brief(name)}`, which it lacks")
