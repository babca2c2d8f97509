"""Bad identity statements, revocation lists and successions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial

from headgate.model.limits import (
    MAX_REVOKED,
)
from headgate.trust.certificates import REVOCATIONS, SUCCESSION, consent_to
from headgate.trust.identities import IDENTITY, verify_server
from unit.trust.corpus import (
    AT,
    CROSS,
    DAY,
    HERE,
    LIST,
    MALLORY,
    MET,
    NEUTRAL,
    NEXT,
    NOW,
    OUT,
    PERSON,
    PITO,
    SERVER,
    SMITH,
    TFL,
    Case,
    did,
    encoded,
    next_letter,
    raw_did,
)


def of_identities() -> Iterator[Case]:
    text = PERSON.signed()
    soon = partial(IDENTITY.verify, audience=HERE, now=NOW + timedelta(hours=1))
    yield Case("identity: expired", "expired", text, soon)
    yield Case("identity: not yet valid", "not-yet-valid", PERSON.signed(nbf=AT + 1), PERSON.check)
    yield Case("identity: another audience", "wrong-audience", text, partial(IDENTITY.verify, audience="tfl", now=NOW))
    yield PERSON.case("identity: without an end", "missing-claim", exp=OUT)
    yield PERSON.case("identity: without a beginning", "missing-claim", nbf=OUT)
    yield PERSON.case("identity: for a day and a second", "too-long", exp=AT + DAY + 1)
    yield PERSON.case("identity: for ever", "too-long", exp=253_402_300_799)
    yield PERSON.case("identity: ends before it begins", "bad-claim", exp=AT - 1)
    yield PERSON.case("identity: null attribute", "bad-claim", attributes={"a": None})
    yield PERSON.case("identity: attributes in a list", "bad-claim", attributes=["a"])
    yield PERSON.case("identity: too many attributes", "bad-claim", attributes={f"a{n}": 1 for n in range(201)})
    yield PERSON.case("identity: attribute in wide letters", "bad-name", attributes={"\uff41": 1})
    yield PERSON.case("identity: attribute without a name", "bad-name", attributes={"": 1})
    for name, rule in {
        "over the event": "price > 3",
        "over its time": "@time > timestamp '2026-01-01T00:00:00Z'",
        "over a clock": "timeofday(@time, 'UTC') > 10",
        "over a group": "$a in group staff",
        "that is none": "$a >",
    }.items():
        yield PERSON.case(f"identity: rule {name}", "bad-condition", policy_rule=rule)
    yield PERSON.case("identity: rule that is null", "bad-claim", policy_rule=None)
    guest = {"guest_of": did(TFL), "origin": "0" * 64, "mapping": "1" * 64}
    for name in guest:
        yield PERSON.case(f"identity: guest without {name}", "missing-claim", **{**guest, name: OUT})
    yield PERSON.case("identity: guest at home", "bad-claim", **{**guest, "guest_of": did(PITO)})
    yield PERSON.case("identity: guest of a weak key", "unsafe-key", **{**guest, "guest_of": raw_did(NEUTRAL)})
    yield PERSON.case("identity: origin in capitals", "bad-claim", **{**guest, "origin": "A" * 64})
    yield PERSON.case("identity: origin too short", "bad-claim", **{**guest, "origin": "0" * 63})
    yield PERSON.case("identity: mapping that is no digest", "bad-claim", **{**guest, "mapping": {}})
    yield Case("identity: a statement about a provider", "unknown-claim", CROSS.signed(), PERSON.check)
    # A member of the anchor's community poses as the provider of its own server.
    member = replace(PERSON, claims={**PERSON.claims, "sub": did(TFL)})
    yield Case("crossing: a member poses as a provider", "unknown-claim", member.signed(), CROSS.check)
    yield CROSS.case("crossing: provider 1", "bad-claim", provider=1)
    yield CROSS.case("crossing: provider false", "bad-claim", provider=False)
    yield CROSS.case("crossing: about another", "wrong-subject", sub=did(MET))
    yield CROSS.case("crossing: for ever", "too-long", exp=AT + DAY * 2)
    by_mallory = replace(CROSS, claims={**CROSS.claims, "iss": did(MALLORY)}, signer=MALLORY)
    yield Case("crossing: by a stranger", "wrong-issuer", by_mallory.signed(), CROSS.check)
    alone = partial(verify_server, crossing=None, anchor=did(PITO), audience=HERE, now=NOW)
    yield Case("crossing: none", "wrong-issuer", SERVER, alone)


def of_lists() -> Iterator[Case]:
    known = REVOCATIONS.verify(LIST.signed(), issuer=did(PITO), now=NOW)
    news = partial(REVOCATIONS.verify, issuer=did(PITO), now=NOW, known=known)
    yield Case("list: rolled back", "stale-list", LIST.signed(number=6, revoked=[]), news)
    yield Case("list: rolled back to the first", "stale-list", LIST.signed(number=0), news)
    yield Case("list: same number, less revoked", "stale-list", LIST.signed(revoked=["c1"]), news)
    yield Case("list: same number, more revoked", "stale-list", LIST.signed(revoked=["c1", "c2", "c3"]), news)
    yield Case("list: an earlier copy", "stale-list", LIST.signed(iat=AT - 1), news)
    other = replace(LIST, claims={**LIST.claims, "iss": did(MALLORY)}, signer=MALLORY)
    yield Case("list: of another issuer", "wrong-issuer", other.signed(number=8), LIST.check)
    yield Case(
        "list: of another than the known", "wrong-issuer", other.signed(), partial(REVOCATIONS.verify, known=known)
    )
    for value in (-1, 2**63, True, "7", None, 7.0):
        yield LIST.case(f"list: number {value!r}", "bad-claim", number=value)
    for name, value in {"twice": ["c1", "c1"], "null": None, "text": "c1", "a number": [1], "a path": ["a/b"]}.items():
        yield LIST.case(f"list: entries {name}", "bad-claim", revoked=value)
    yield LIST.case("list: too many", "bad-claim", revoked=[f"c{n}" for n in range(MAX_REVOKED + 1)])


def of_successions() -> Iterator[Case]:
    good = NEXT.claims["consent"]
    for name, value in {
        "by the old key": consent_to(PITO.public, PITO),
        "by a stranger": encoded(MALLORY.sign(b"yes")),
        "to another": consent_to(MET.public, TFL),
        "empty": "",
        "in another way": good[:-1] + next_letter(good[-1]),
        "padded": good + "==",
        "in another script": "\u0430" + good[1:],
    }.items():
        yield NEXT.case(f"succession: consent {name}", "no-consent", consent=value)
    yield NEXT.case("succession: a stranger's key without its consent", "no-consent", sub=did(SMITH))
    yield NEXT.case("succession: consent a number", "bad-claim", consent=1)
    yield NEXT.case("succession: to itself", "bad-claim", sub=did(PITO), consent=consent_to(PITO.public, PITO))
    yield NEXT.case("succession: to a weak key", "unsafe-key", sub=raw_did(NEUTRAL))
    for value in (-1, 2**63, True, "1", None):
        yield NEXT.case(f"succession: number {value!r}", "bad-claim", number=value)
    for value in (-1, True, "soon", None, 10**15):
        yield NEXT.case(f"succession: until {value!r}", "bad-claim", until=value)
    known = SUCCESSION.verify(NEXT.signed(), now=NOW)
    news = partial(SUCCESSION.verify, now=NOW, known=known)
    yield Case("succession: older", "stale", NEXT.signed(number=0), news)
    yield Case("succession: another under its number", "stale", NEXT.signed(until=OUT), news)
    yield Case("succession: a later end", "later-end", NEXT.signed(number=2, until=NEXT.claims["until"] + 1), news)
    yield Case("succession: without its end", "later-end", NEXT.signed(number=2, until=OUT), news)
    second = NEXT.signed(number=2, sub=did(MET), consent=consent_to(PITO.public, MET))
    yield Case("succession: a second successor", "second-successor", second, news)
    other = replace(NEXT, claims={**NEXT.claims, "iss": did(MET), "consent": consent_to(MET.public, TFL)}, signer=MET)
    yield Case("succession: of another", "wrong-issuer", other.signed(), news)
