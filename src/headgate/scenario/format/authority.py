"""Certificates, identity statements, identity providers and issuing rules, as files write them.

Guarantees: each is read whole or refused with its file, line and key. A name stands for the key of its principal; where
that has none, for itself. No two statements of a file have one id, so that an id says which is meant. A certificate
that names one type exactly must fit it, as a rule must; patterns take in whatever fits.
Leaves out: signatures, which files do not have: whoever is named as the issuer has issued it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from headgate.decide.check import Scope, check
from headgate.model import authority as model
from headgate.model.changes import AddIssuing, SetCoordinator, SetNames, SetNetwork, SetProvider
from headgate.model.errors import BadKey, TypeMismatch
from headgate.model.limits import MAX_AUTHORITIES, MAX_FRESHNESS_SECONDS, MAX_MAPPED
from headgate.model.rights import Action
from headgate.model.state import State
from headgate.model.types import Catalog, is_pattern
from headgate.model.values import Kind, Value, brief, conform, kind_of
from headgate.scenario.format.declared import Placed, placed, read_attributes, read_condition
from headgate.scenario.format.yamlfile import FLAG, INTEGER, NAME, TEXT, YamlFields, YamlNode
from headgate.trust.identities import translated
from headgate.trust.keys import PublicKey

S = TypeVar("S", model.Certificate, model.Issuing)

OURSELVES: Final = "administrator"
"""The name of the domain's own principal in files; a principal that is declared under it comes first."""

_EVERY: Final = "*"
_BETWEEN: Final = "|"
_AUTHORITY: Final = ("type", "owner", "network", "actions", "where", "attributes")
CERTIFICATE_KEYS: Final = (
    "id",
    "issuer",
    "subject",
    "delegate",
    *_AUTHORITY,
    "authority",
    "valid",
    "freshness",
    "forged",
)
IDENTITY_KEYS: Final = ("id", "issuer", "subject", "attributes", "guest", "policy_rule", "valid", "forged")
PROVIDER_KEYS: Final = ("name", "as", "mapping")
ISSUING_KEYS: Final = ("id", "who", "delegate", *_AUTHORITY, "authority", "seconds")


class Keys:
    """The key of every principal of a file."""

    def __init__(self, top: YamlFields, administrator: str) -> None:
        self.known: dict[str, str] = {}
        for name, node in top.entries("principals"):
            key = node.mapping().get("key") if node.data is not None else None
            self.known[name] = name if key is None else key.text()
        self.declared = OURSELVES in self.known
        """Is the domain's own principal declared, as any other?"""
        self.own = self.known.setdefault(administrator, administrator)
        """The key of the domain itself."""
        self.known.setdefault(OURSELVES, self.own)

    def read(self, node: YamlNode) -> str:
        """The key of whoever is named, or the key itself."""
        if node.text() in self.known:
            return self.known[node.text()]
        try:
            return PublicKey.from_did(node.text()).did
        except BadKey:
            node.refuse(f"no principal `{brief(node.data)}`", "declare it in `principals`, or write `did:key:z6Mk...`")


def coordinator(certificates: Iterable[model.Certificate], keys: Keys) -> str:
    """Whose network it is, where the file does not say: ours, unless it is plain whose it is.

    It is ours if the administrator is declared, or issues a certificate for a network; else that of the one issuer of
    such certificates who is the subject of none.
    """
    over = [one for one in certificates if any(isinstance(each, model.NetworkAuthority) for each in one.authority)]
    issuers, subjects = {one.issuer for one in over}, {one.subject for one in over}
    if keys.declared or keys.own in issuers or len(first := issuers - subjects) != 1:
        return keys.known[OURSELVES]
    return next(iter(first))


def read_time(node: YamlNode) -> datetime:
    """A time on the scenario's clock: seconds, or ISO 8601 with a zone."""
    try:
        moment = conform(Kind.TIMESTAMP, node.scalar())
    except TypeMismatch as error:
        node.refuse(error.message, error.remedy)
    if not isinstance(moment, datetime):
        node.refuse("no time is given")
    return moment


# -- what a policy says of authority --------------------------------------------------------------------------


def any_names(node: YamlNode | None) -> bool:
    """May new names look like others, and mix scripts?"""
    if node is not None and node.data not in ("any", "distinct"):
        node.refuse(f"`{brief(node.plain())}` is neither `any` nor `distinct`")
    return node is not None and node.data == "any"


def given(top: YamlFields, keys: Keys) -> list[Placed]:
    """The changes that `coordinator`, `network`, `names`, `providers` and `issuing` ask for."""
    changes: list[Placed] = []
    if "coordinator" in top:
        key = keys.read(top["coordinator"])
        changes.append((SetCoordinator(None if key == keys.own else key), top["coordinator"].place))
    if "network" in top:
        changes.append((SetNetwork(top["network"].text()), top["network"].place))
    if any_names(top.get("names")):
        changes.append((SetNames(True), top["names"].place))
    providers = zip(read_providers(top, keys), top.each("providers"), strict=True)
    changes += [(SetProvider(one), node.place) for one, node in providers]
    issuing = _by_id(top.each("issuing"), partial(_issuing, keys), "issuing rules")
    changes += [(AddIssuing(one), node.place) for one, node in zip(issuing.values(), top.each("issuing"), strict=True)]
    return changes


def _by_id(nodes: Iterable[YamlNode], read: Callable[[YamlNode], S], what: str) -> dict[str, S]:
    """What a list declares, each under an id of its own."""
    declared: dict[str, S] = {}
    for node in nodes:
        made = read(node)
        if made.id in declared:
            node.refuse(f"two {what} have the id `{brief(made.id)}`")
        declared[made.id] = made
    return declared


def read_providers(top: YamlFields, keys: Keys) -> list[model.Provider]:
    """Identity providers: without a mapping our own, with one those whose members may be guests."""
    providers: list[model.Provider] = []
    for node in top.each("providers"):
        fields = node.fields(PROVIDER_KEYS, required=("name", "as"))
        mapping = fields.maybe("mapping", _mapping)
        with placed(node.place):
            made = model.Provider(keys.read(fields["as"]), fields["name"].name(), mapping)
        for other in providers:
            if made.name == other.name or made.key == other.key:
                node.refuse(f"two providers are `{brief(made.name if made.name == other.name else made.key)}`")
        providers.append(made)
    return providers


def _mapping(node: YamlNode) -> tuple[model.AttributeMap, ...]:
    """Each attribute at home to one here, or to `{to: name, values: [[theirs, ours], ...]}`."""
    maps = []
    for name, inner in node.mapping().items():
        if not isinstance(inner.data, dict):
            to, pairs = inner.text(), None
        else:
            fields = inner.fields(("to", "values"), required=("to",))
            to, pairs = fields["to"].text(), fields.maybe("values", _pairs)
        with placed(inner.place):
            maps.append(model.AttributeMap(name, to, pairs))
    if sum(len(one.values or ()) + 1 for one in maps) > MAX_MAPPED:
        node.refuse(f"the mapping has more pairs than MAX_MAPPED ({MAX_MAPPED})")
    return tuple(maps)


def _pairs(node: YamlNode) -> tuple[tuple[Value, Value], ...]:
    pairs = []
    for pair in node.sequence():
        if len(pair.sequence()) != 2:
            pair.refuse("a pair of values is one of theirs and one of ours", "write `[theirs, ours]`")
        theirs, ours = (_value(one) for one in pair.sequence())
        pairs.append((theirs, ours))
    return tuple(pairs)


def _value(node: YamlNode) -> Value:
    """A value of a subject attribute."""
    value = node.scalar()
    if value is None:
        node.refuse("null is no value of an attribute", "leave it out")
    kind = kind_of(value)
    try:
        return value if kind is None else conform(kind, value)
    except TypeMismatch as error:
        node.refuse(error.message, error.remedy)


def _issuing(keys: Keys, node: YamlNode) -> model.Issuing:
    fields = node.fields(ISSUING_KEYS, required=("id", "who", "seconds"))
    with placed(node.place):
        known = fields.given(id=NAME, who=TEXT, seconds=INTEGER, delegate=FLAG)
        return model.Issuing(authority=_authorities(node, fields, keys), **known)


# -- statements -----------------------------------------------------------------------------------------------


def read_certificates(top: YamlFields, keys: Keys) -> dict[str, model.Certificate]:
    """The certificates of a file, by id."""
    return _by_id(top.each("certificates"), partial(_certificate, keys), "certificates")


def _certificate(keys: Keys, node: YamlNode) -> model.Certificate:
    fields = node.fields(CERTIFICATE_KEYS, required=("id", "issuer", "subject"))
    freshness = fields.maybe("freshness", INTEGER)
    if freshness is not None and not 0 < freshness <= MAX_FRESHNESS_SECONDS:
        remedy = f"write seconds, up to MAX_FRESHNESS_SECONDS ({MAX_FRESHNESS_SECONDS})"
        fields["freshness"].refuse(f"`{freshness}` seconds of silence cannot be borne", remedy)
    with placed(node.place):
        known = fields.given(id=NAME, issuer=keys.read, subject=keys.read, delegate=FLAG, valid=_valid)
        validity = known.pop("valid", model.Validity())
        return model.Certificate(
            authority=_authorities(node, fields, keys), validity=validity, freshness=freshness, **known
        )


def read_forged(top: YamlFields) -> frozenset[str]:
    """The ids of statements that whoever they name as their issuer has never signed."""
    every = [one.mapping() for one in (*top.each("certificates"), *top.each("identities"))]
    return frozenset(one["id"].text() for one in every if "forged" in one and one["forged"].flag())


def read_identities(
    top: YamlFields, keys: Keys, providers: Sequence[model.Provider], taken: Mapping[str, object]
) -> dict[str, model.Identity]:
    """The identity statements of a file, by id; a guest's follow the statements from home."""
    identities: dict[str, model.Identity] = {}
    for entry in top.each("identities"):
        fields = entry.fields(IDENTITY_KEYS, required=("id", "issuer", "subject"))
        id = fields["id"].name()
        if id in identities or id in taken:
            entry.refuse(f"two statements have the id `{brief(id)}`")
        home = None
        if "guest" in fields:
            home = _home(fields["guest"], identities, providers)
            if "attributes" in fields:
                fields["attributes"].refuse("a guest has the attributes that the mapping gives", "leave them out")
        with placed(entry.place):
            identities[id] = model.Identity(
                id=id,
                validity=fields.maybe("valid", _valid, model.Validity()),
                attributes=_attributes(fields) if home is None else _translated(home, providers),
                guest_of=None if home is None else home.issuer,
                origin=None if home is None else home.id,
                **fields.given(issuer=keys.read, subject=keys.read, policy_rule=read_condition),
            )
        if home is not None:
            _check_guest(fields["guest"], identities[id], home)
    return identities


def _home(node: YamlNode, known: Mapping[str, model.Identity], providers: Sequence[model.Provider]) -> model.Identity:
    """The statement from home that a guest's is made of."""
    home = known.get(node.text())
    if home is None:
        node.refuse(f"no identity statement `{brief(node.data)}`", "declare it before the guest's")
    if not any(one.key == home.issuer and one.mapping is not None for one in providers):
        node.refuse(f"`{brief(home.issuer)}` is no provider of guests", "give it a `mapping` in `providers`")
    return home


def _check_guest(node: YamlNode, guest: model.Identity, home: model.Identity) -> None:
    """Refuse what no provider would say of a guest (Guard IV.C)."""
    name = brief(home.id)
    ends, last = guest.validity.until, home.validity.until
    if guest.subject != home.subject:
        node.refuse(f"the statement `{name}` is about another subject")
    if home.guest_of is not None:
        node.refuse(f"the statement `{name}` is about a guest itself", "trust does not pass from hand to hand")
    if last is not None and (ends is None or ends > last):
        node.refuse(f"it would be good for longer than `{name}`", "let `valid.until` be no later")
    if home.policy_rule is not None and guest.policy_rule is None:
        node.refuse(f"`{name}` has a policy rule, and this has none", "give the rule that holds here")


def _translated(home: model.Identity, providers: Sequence[model.Provider]) -> dict[str, Value]:
    mapping = next(one.mapping for one in providers if one.key == home.issuer and one.mapping is not None)
    return translated(home.attributes, mapping)


def _attributes(fields: YamlFields) -> dict[str, Value]:
    return {name: _value(value) for name, value in fields.entries("attributes")}


def _valid(node: YamlNode) -> model.Validity:
    fields = node.fields(("from", "until"))
    start, until = (fields.maybe(key, read_time) for key in ("from", "until"))
    with placed(node.place):
        return model.Validity(start, until)


# -- authority ------------------------------------------------------------------------------------------------


def _authorities(node: YamlNode, fields: YamlFields, keys: Keys) -> tuple[model.Authority, ...]:
    """What a certificate gives: one authority beside its other keys, or a list of them."""
    if "authority" not in fields:
        return (_authority(node, YamlFields({key: fields[key] for key in _AUTHORITY if key in fields}), keys),)
    for key in _AUTHORITY:
        if key in fields:
            fields[key].refuse(f"`{key}` and `authority` cannot both be given", "put it into the list")
    many = fields["authority"].sequence()
    if not 0 < len(many) <= MAX_AUTHORITIES:
        fields["authority"].refuse(f"a certificate gives 1 to MAX_AUTHORITIES ({MAX_AUTHORITIES}) authorities")
    return tuple(_authority(one, one.fields(_AUTHORITY), keys) for one in many)


def _authority(node: YamlNode, fields: YamlFields, keys: Keys) -> model.Authority:
    if ("type" in fields) == ("network" in fields):
        node.refuse(
            "authority is over a `type` or over a `network`", "name one of them; `*` for all that the issuer has"
        )
    if "actions" not in fields:
        node.refuse("the key `actions` is missing", "name actions, or `*` for all of them")
    if "network" in fields:
        for key in ("owner", "where", "attributes"):
            if key in fields:
                fields[key].refuse(f"authority over a network has no `{key}`")
        with placed(node.place):
            return model.NetworkAuthority(_actions(fields["actions"], model.NETWORK_ACTIONS), fields["network"].text())
    attributes, forced = read_attributes(fields["attributes"]) if "attributes" in fields else (None, {})
    known = fields.given(type=TEXT, owner=keys.read, where=read_condition)
    with placed(node.place):
        actions = _actions(fields["actions"], model.TYPE_ACTIONS)
        return model.TypeAuthority(actions=actions, attributes=attributes, forced=forced, **known)


def _actions(node: YamlNode, possible: frozenset[Action]) -> frozenset[Action]:
    """A word, words with `|` between them (as Capabilities writes them), a list of words, or `*`."""
    if node.data == _EVERY:
        return possible
    named = {action.value: action for action in sorted(possible, key=lambda action: action.value)}
    many = node.several()
    if isinstance(node.data, str):
        many = tuple(replace(node, data=word.strip()) for word in node.data.split(_BETWEEN))
    actions = set()
    for entry in many:
        if not isinstance(entry.data, str) or entry.data not in named:
            entry.refuse(
                f"`{brief(entry.plain())}` is not an action here", f"known actions: {', '.join(named)}, or `*`"
            )
        actions.add(named[entry.data])
    return frozenset(actions)


def check_fit(top: YamlFields, certificates: Iterable[model.Certificate], types: Catalog, state: State) -> None:
    """Refuse certificates that do not fit; `types` are all that the file ever declares."""
    for written, certificate in zip(top.each("certificates"), certificates, strict=True):
        fields = YamlFields(written.mapping())
        many = fields.each("authority") or (written,)
        for inner, authority in zip(many, certificate.authority, strict=True):
            if isinstance(authority, model.TypeAuthority) and not is_pattern(authority.type):
                _check(inner, authority, types, state)


def _check(node: YamlNode, authority: model.TypeAuthority, types: Catalog, state: State) -> None:
    fields, name = node.mapping(), authority.type
    if name not in types:
        fields["type"].refuse(
            f"no type `{brief(name)}`", "declare it in `types` or by a `type` step, or name a pattern, such as `a.*`"
        )
    kinds = types.attributes(name)
    for attribute in authority.attributes or ():
        if attribute not in kinds:
            fields["attributes"].refuse(
                f"`{name}` has no attribute `{brief(attribute)}`", f"it has {', '.join(f'`{one}`' for one in kinds)}"
            )
    for attribute, raw in authority.forced.items():
        try:
            conform(kinds[attribute], raw)
        except TypeMismatch as error:
            fields["attributes"].mapping()[attribute].refuse(error.message, error.remedy)
    if "where" in fields:
        with placed(fields["where"].place):
            check(authority.where, Scope(state, kinds, f"`{name}`"))
