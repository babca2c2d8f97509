"""Authorisation certificates, revocation lists and successions of keys (Capabilities II.D, III, V.C).

Guarantees: the `verify` of each kind is the only way from text to such a statement. A certificate is the five-tuple of
SPKI. Delegation is false unless it is said. An authority says neither more nor less than it is read as: an entry that
is not understood refuses the whole.
A list is all that its issuer has taken back, and one older than a known one is never taken for news: a number only
grows, and a list that says something else has another number.
In a succession the old key names the new one and signs, and the new key has agreed: nobody can make a stranger's key
their own successor, and with it claim what the stranger holds. A later statement of the old key can say until when it
counts; it never names another successor, and never puts off an end: one who has stolen a key that ended signs in vain.
Leaves out: whether the issuer had what it gives, and what follows from lists and successions (`authority`). An old key
that was stolen can still sign; let it end.

    {"network": "UK Police Network", "actions": ["connect", "install"]}
    {"type": "did:key:z6Mk.../uk.gov.pito.*", "actions": "*"}
    {"type": "uk.gov.pito.Numberplate", "actions": ["publish"], "where": "@rate < 100",
     "attributes": {"location": {"value": "Victoria"}, "numberplate": {"any": true}}}
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from headgate.model import authority as model
from headgate.model.errors import BadDefinition, StaleList
from headgate.model.expressions import TRUE
from headgate.model.limits import MAX_ATTRIBUTES, MAX_AUTHORITIES, MAX_FRESHNESS_SECONDS, MAX_LIST_BYTES, MAX_REVOKED
from headgate.model.rights import Action
from headgate.model.values import brief
from headgate.trust import claims as claim
from headgate.trust.claims import bad, key_name
from headgate.trust.keys import PrivateKey, PublicKey, Random, base64url, from_base64url
from headgate.trust.statements import Signed, StatementKind, about, open_statement, said_payload, seconds_of

_OF_NETWORK: Final = frozenset({"network", "actions"})
_OF_TYPE: Final = frozenset({"type", "actions"})
_ACTIONS: Final = {action.value: action for action in model.NETWORK_ACTIONS | model.TYPE_ACTIONS}


def issue_certificate(
    issuer: PrivateKey,
    *,
    subject: str,
    authority: Sequence[model.Authority],
    now: datetime,
    delegate: bool = False,
    validity: model.Validity = model.Validity(),  # noqa: B008 - frozen
    freshness: int | None = None,
    audience: Sequence[str] = (),
    id: str | None = None,
    random: Random = secrets.token_bytes,
) -> str:
    """A certificate by this issuer. Times are written in whole seconds, rounded down."""
    claims = {
        **about(subject, new_id(random) if id is None else id, now, validity, audience),
        **({"delegate": True} if delegate else {}),
        **({} if freshness is None else {"freshness": freshness}),
        "authority": [_authority_to_json(one) for one in authority],
    }
    return CERTIFICATE.issue(issuer, claims)


def new_id(random: Random = secrets.token_bytes) -> str:
    """An identifier that nobody guesses: 128 random bits, after a letter so that no command takes it for an option."""
    return "s" + base64url(random(16))


def _certificate(signed: Signed) -> model.Certificate:
    claims = signed.claims
    return model.Certificate(
        id=claim.identifier(claims["jti"], "jti"),
        issuer=signed.issuer,
        subject=key_name(claims["sub"], "sub"),
        authority=tuple(_authority(one) for one in claim.listed(claims["authority"], "authority", 1, MAX_AUTHORITIES)),
        delegate="delegate" in claims and claim.flag(claims["delegate"], "delegate"),
        validity=claim.validity(claims),
        freshness=claim.whole(claims["freshness"], "freshness", 1, MAX_FRESHNESS_SECONDS)
        if "freshness" in claims
        else None,
    )


CERTIFICATE: Final = StatementKind(
    "hg-cert+jwt",
    frozenset({"iss", "sub", "jti", "iat", "authority"}),
    frozenset({"nbf", "exp", "delegate", "freshness", "aud"}),
    made_of=_certificate,
)


# -- authority ------------------------------------------------------------------------------------------------


def _authority(given: object) -> model.Authority:
    fields = claim.mapped(given, "authority", MAX_AUTHORITIES)
    if "network" in fields:
        _check_entries(fields, _OF_NETWORK, frozenset())
        return model.NetworkAuthority(
            _actions(fields["actions"], model.NETWORK_ACTIONS), claim.plain_name(fields["network"], "network")
        )
    _check_entries(fields, _OF_TYPE, frozenset({"attributes", "where"}))
    owner, rest = claim.owned(fields["type"], "type")
    attributes, forced = _attributes(fields["attributes"]) if "attributes" in fields else (None, {})
    where = claim.condition(fields["where"], "where") if "where" in fields else TRUE
    return model.TypeAuthority(
        _actions(fields["actions"], model.TYPE_ACTIONS), claim.pattern(rest), owner, attributes, forced, where
    )


def _check_entries(said: Mapping[str, Any], required: Collection[str], optional: Collection[str]) -> None:
    if unknown := sorted(said.keys() - {*required, *optional}):
        raise bad("unknown-claim", f"an authority does not say `{brief(unknown[0])}`")
    if missing := sorted(set(required) - said.keys()):
        raise bad("missing-claim", f"an authority does not say its `{missing[0]}`")


def _actions(given: object, possible: frozenset[Action]) -> frozenset[Action]:
    if given == model.ANY:
        return possible
    actions = claim.distinct(given, "actions", 1, len(possible), claim.text)
    for one in actions:
        if _ACTIONS.get(one) not in possible:
            raise bad("bad-claim", f"`{brief(one)}` is no action here", ", ".join(sorted(a.value for a in possible)))
    return frozenset(_ACTIONS[one] for one in actions)


def _attributes(given: object) -> tuple[tuple[str, ...], dict[str, object]]:
    """Some attributes: a list of them, or an object that says of each whether its value is forced."""
    if type(given) is list:
        return claim.distinct(given, "attributes", 0, MAX_ATTRIBUTES, claim.attribute_name), {}
    forced: dict[str, object] = {}
    each = claim.mapped(given, "attributes", MAX_ATTRIBUTES)
    for name, what in each.items():
        claim.attribute_name(name)
        if type(what) is dict and what.keys() == {"value"}:
            forced[name] = claim.value_of(what["value"], name)
        elif not (type(what) is dict and what.keys() == {"any"} and what["any"] is True):
            raise bad("bad-claim", f"`{brief(name)}` is neither of `any` value nor of one", "write `{'any': true}`")
    return tuple(each), forced


def _authority_to_json(authority: model.Authority) -> dict[str, object]:
    match authority:
        case model.NetworkAuthority(actions, network):
            return {"network": network, "actions": _actions_to_json(actions, model.NETWORK_ACTIONS)}
        case model.TypeAuthority(actions, pattern, owner, attributes, forced, where):
            fields: dict[str, object] = {
                "type": pattern if owner is None else f"{owner}/{pattern}",
                "actions": _actions_to_json(actions, model.TYPE_ACTIONS),
            }
            if forced and not forced.keys() <= set(attributes or ()):
                raise bad(
                    "bad-claim", "an authority forces an attribute that it does not name", "name it in `attributes`"
                )
            if attributes is not None:
                fields["attributes"] = _attributes_to_json(attributes, forced)
            if where != TRUE:
                fields["where"] = claim.condition_text(where, "where")
            return fields


def _actions_to_json(actions: frozenset[Action], possible: frozenset[Action]) -> object:
    return model.ANY if actions == possible else sorted(action.value for action in actions)


def _attributes_to_json(attributes: tuple[str, ...], forced: Mapping[str, object]) -> object:
    if not forced:
        return list(attributes)
    return {
        name: {"value": claim.value_to_json(forced[name])} if name in forced else {"any": True} for name in attributes
    }


# -- successions ----------------------------------------------------------------------------------------------

_CONSENT: Final = b"headgate succession 1: consent"
_CONSENT_CHARS: Final = 86


def issue_succession(
    old: PrivateKey,
    *,
    new: str,
    consent: str,
    now: datetime,
    number: int = 0,
    until: datetime | None = None,
) -> str:
    """The old key's word that the new one follows it; `consent` is the new key's (`consent_to`)."""
    said = {"sub": new, "number": number, "iat": seconds_of(now), "consent": consent}
    return SUCCESSION.issue(old, said if until is None else {**said, "until": seconds_of(until)})


def amend_succession(old: PrivateKey, text: str, *, until: datetime | None, now: datetime) -> str:
    """The same succession with the next number and an earlier end, or its first."""
    known = SUCCESSION.read(text).value
    consent = open_statement(text, SUCCESSION).claims["consent"]
    made = issue_succession(old, new=known.new, consent=consent, now=now, number=known.number + 1, until=until)
    check_later(SUCCESSION.read(made).value, known)
    return made


def consent_to(old: PublicKey, new: PrivateKey) -> str:
    """The new key's word that it follows the old one."""
    return base64url(new.sign(_consent(old.did, new.public.did)))


def _succession(signed: Signed) -> model.Succession:
    claims = signed.claims
    new = key_name(claims["sub"], "sub")
    consent = claim.text(claims["consent"], "consent")
    if not _agreed(signed.issuer, new, consent):
        raise bad(
            "no-consent", f"`{new}` did not agree to follow `{signed.issuer}`", "let the new key sign its consent"
        )
    until = claim.time(claims["until"], "until") if "until" in claims else None
    try:
        return model.Succession(signed.issuer, new, claim.whole(claims["number"], "number"), until)
    except BadDefinition as error:
        raise bad("bad-claim", error.message, error.remedy) from None


def check_later(newer: model.Succession, known: model.Succession) -> None:
    """Refuse a succession that is older than a known one of the same key, or contradicts it."""
    if newer.old != known.old:
        raise bad("wrong-issuer", f"the succession is of `{newer.old}`, not of `{known.old}`")
    if newer.new != known.new:
        raise bad("second-successor", f"`{newer.old}` has a successor already, `{known.new}`", "rotate that one")
    if newer.ends_before(known):
        return
    if newer.number < known.number:
        raise bad("stale", f"the succession has number `{newer.number}`, and `{known.number}` is known")
    if newer.number == known.number and newer.until != known.until:
        raise bad("stale", f"two successions with number `{newer.number}` say different things")
    if known.until is not None and (newer.until is None or newer.until > known.until):
        raise bad("later-end", f"`{newer.old}` has an end already, which is only ever brought forward")


SUCCESSION: Final = StatementKind(
    "hg-successor+jwt",
    frozenset({"iss", "sub", "number", "iat", "consent"}),
    frozenset({"until"}),
    made_of=_succession,
    called="the succession is",
    check_newer=check_later,
)


def _agreed(old: str, new: str, consent: str) -> bool:
    signature = from_base64url(consent) if len(consent) == _CONSENT_CHARS else None
    return signature is not None and PublicKey.from_did(new).verify(signature, _consent(old, new))


def _consent(old: str, new: str) -> bytes:
    """What the new key signs. Names of keys have no line breaks, so that no two pairs read the same."""
    return b"\n".join((_CONSENT, old.encode(), new.encode()))


# -- revocation lists -----------------------------------------------------------------------------------------

_ISSUER: Final = re.compile(rb'"iss"\s*:\s*"(did:key:z[1-9A-HJ-NP-Za-km-z]{1,100})"')


def issue_revocations(issuer: PrivateKey, *, number: int, revoked: Collection[str], now: datetime) -> str:
    """All that an issuer has revoked; the same number again is a sign of life."""
    return REVOCATIONS.issue(issuer, {"number": number, "iat": seconds_of(now), "revoked": sorted(revoked)})


def said_issuer(text: str) -> str:
    """Whose list a text says it is. Nothing is verified: it tells whether a large list is worth reading at all."""
    match = _ISSUER.search(said_payload(text, REVOCATIONS.limit))
    if match is None:
        raise bad("missing-claim", "the list does not say `iss` as it is written")
    return match[1].decode("ascii")


def _revocations(signed: Signed) -> model.RevocationList:
    claims = signed.claims
    revoked = claim.distinct(claims["revoked"], "revoked", 0, MAX_REVOKED, claim.identifier)
    number, issued = claim.whole(claims["number"], "number"), claim.time(claims["iat"], "iat")
    return model.RevocationList(signed.issuer, number, issued, frozenset(revoked))


def check_newer(newer: model.RevocationList, known: model.RevocationList) -> None:
    """Refuse a list that is older than a known one of the same issuer, or says otherwise under its number."""
    if newer.issuer != known.issuer:
        raise bad("wrong-issuer", f"the list is of `{newer.issuer}`, not of `{known.issuer}`")
    if newer.number < known.number:
        raise StaleList(
            f"the list has number `{newer.number}`, and `{known.number}` is known",
            remedy="ask its issuer for the newest",
        )
    if newer.number == known.number and newer.revoked != known.revoked:
        raise StaleList(
            f"two lists with number `{newer.number}` say different things", remedy="let the issuer make a new one"
        )
    if newer.number == known.number and newer.issued < known.issued:
        raise StaleList("the same list was issued again since", remedy="ask its issuer for the newest")


REVOCATIONS: Final = StatementKind(
    "hg-revocation+jwt",
    frozenset({"iss", "number", "iat", "revoked"}),
    limit=MAX_LIST_BYTES,
    made_of=_revocations,
    called="the list is",
    check_newer=check_newer,
)
