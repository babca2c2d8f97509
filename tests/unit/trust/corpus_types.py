"""Bad definitions of event types: altered, unsigned, wrongly rooted, squatting, or not types at all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from headgate.model.limits import (
    MAX_CHAIN_LENGTH,
    MAX_TYPE_DEPTH,
)
from headgate.trust.typedefs import verify_type
from unit.trust.corpus import (
    AT,
    CHILD,
    DAY,
    EXTEND,
    INSTALL,
    KIND,
    MALLORY,
    MET,
    NOW,
    OUT,
    PERSON,
    PITO,
    PLATE,
    SMITH,
    TFL,
    Case,
    cert,
    did,
    dumped,
    encoded,
    signed,
    typedef,
)


def of_types() -> Iterator[Case]:
    def case(name: str, reason: str, text: str) -> Case:
        return Case(f"type: {name}", reason, text, KIND.check)

    def extending(**more: Any) -> str:
        return KIND.signed(**more)

    yield case("in another's name", "squatting", typedef(MALLORY, "x", name=f"{did(PITO)}/uk.gov.pito.Numberplate"))
    yield case("in the name of no one", "bad-name", typedef(PITO, "x", name="uk.gov.pito.Numberplate"))
    yield case("in the name of an alias", "bad-claim", typedef(PITO, "x", name="pito/uk.gov.pito.Numberplate"))
    yield case("with a look-alike name", "bad-name", typedef(PITO, "uk.gov.pit\u043e.Numberplate"))
    yield case("with a pattern for a name", "bad-name", typedef(PITO, "uk.gov.pito.*"))
    yield case("without credentials", "no-credentials", typedef(MET, "uk.gov.met.T"))
    yield case("rooted at a stranger", "wrong-root", typedef(MET, "uk.gov.met.T", [cert(MALLORY, MET, INSTALL)]))
    yield case("rooted at itself", "wrong-root", typedef(MET, "uk.gov.met.T", [cert(MET, MET, INSTALL)]))
    yield case("with another's credential", "wrong-subject", typedef(MET, "uk.gov.met.T", [cert(PITO, SMITH, INSTALL)]))
    through = [cert(PITO, SMITH, INSTALL, delegate=False), cert(SMITH, MET, INSTALL)]
    yield case("delegated without leave", "broken-chain", typedef(MET, "uk.gov.met.T", through))
    gap = [cert(PITO, SMITH, INSTALL), cert(TFL, MET, INSTALL)]
    yield case("with a gap in the chain", "broken-chain", typedef(MET, "uk.gov.met.T", gap))
    yield case(
        "with a chain backwards",
        "wrong-root",
        typedef(MET, "uk.gov.met.T", [cert(SMITH, MET, INSTALL), cert(PITO, SMITH, INSTALL)]),
    )
    yield case(
        "that may only connect",
        "not-allowed",
        typedef(MET, "uk.gov.met.T", [cert(PITO, MET, [{"network": "*", "actions": ["connect"]}])]),
    )
    yield case("that may only use types", "not-allowed", typedef(MET, "uk.gov.met.T", [cert(PITO, MET)]))
    other = [cert(PITO, MET, [{"network": "Elsewhere", "actions": ["install"]}])]
    elsewhere = partial(verify_type, coordinator=did(PITO), now=NOW, network="UK Police Network")
    yield Case("type: for another network", "not-allowed", typedef(MET, "uk.gov.met.T", other), elsewhere)
    yield case(
        "with an expired credential", "expired", typedef(MET, "uk.gov.met.T", [cert(PITO, MET, INSTALL, exp=AT)])
    )
    yield case(
        "with a credential of tomorrow",
        "not-yet-valid",
        typedef(MET, "uk.gov.met.T", [cert(PITO, MET, INSTALL, nbf=AT + DAY)]),
    )
    yield case(
        "with a credential for others",
        "wrong-audience",
        typedef(MET, "uk.gov.met.T", [cert(PITO, MET, INSTALL, aud="tfl")]),
    )
    forged = signed(
        "hg-cert+jwt", {"iss": did(PITO), "sub": did(MET), "jti": "c1", "iat": AT, "authority": INSTALL}, MALLORY
    )
    yield case("with a forged credential", "bad-signature", typedef(MET, "uk.gov.met.T", [forged]))
    yield case("with a statement of another kind", "wrong-type", typedef(MET, "uk.gov.met.T", [PERSON.signed()]))
    yield case("with a credential that is null", "bad-claim", typedef(MET, "uk.gov.met.T", [None]))  # type: ignore[list-item]
    long = [cert(PITO, MET, INSTALL)] * (MAX_CHAIN_LENGTH + 1)
    yield case("with too many credentials", "bad-claim", typedef(MET, "uk.gov.met.T", long))
    circle = [cert(PITO, MET, INSTALL), cert(MET, PITO, INSTALL)]
    yield case("with a circle that ends elsewhere", "wrong-subject", typedef(MET, "uk.gov.met.T", circle))
    yield case("extending without leave", "no-credentials", extending(credentials=[]))
    yield case("extending by leave to install", "not-allowed", extending(credentials=[cert(PITO, MET, INSTALL)]))
    for pattern in ("uk.gov.pitox.*", "uk.gov.pit", "uk.gov.pito", "uk.gov.pito.Number", "uk.gov.pito.Numberplate.*"):
        beside = [{"type": pattern, "actions": ["extend"]}]
        yield case(f"extending by {pattern}", "not-allowed", extending(credentials=[cert(PITO, MET, beside)]))
    publish = [{"type": "*", "actions": ["publish", "subscribe"]}]
    yield case("extending by leave to publish", "not-allowed", extending(credentials=[cert(PITO, MET, publish)]))
    some = [{"type": "*", "actions": ["extend"], "where": "speed > 30"}]
    yield case("extending under a condition", "not-allowed", extending(credentials=[cert(PITO, MET, some)]))
    mine = [{"type": f"{did(MET)}/*", "actions": ["extend"]}]
    yield case("extending by leave for another's types", "not-allowed", extending(credentials=[cert(PITO, MET, mine)]))
    yield case("extending by a stranger's leave", "wrong-root", extending(credentials=[cert(TFL, MET, EXTEND)]))
    yield case("without the parent's definition", "missing-claim", extending(parent_definition=OUT))
    yield case("without the parent's name", "missing-claim", extending(parent=OUT))
    yield case("with another parent", "wrong-parent", extending(parent=f"{did(PITO)}/uk.gov.pito.Other"))
    yield case(
        "with a parent in another's name", "wrong-parent", extending(parent=f"{did(MET)}/uk.gov.pito.Numberplate")
    )
    head, _, tail = PLATE.split(".")
    claims = {"iss": did(PITO), "name": CHILD["parent"], "attributes": {}, "iat": AT, "credentials": []}
    altered = f"{head}.{encoded(dumped(claims))}.{tail}"
    yield case("with an altered parent", "bad-signature", extending(parent_definition=altered))
    squatted = typedef(MALLORY, "x", name=CHILD["parent"])
    yield case("with a squatted parent", "squatting", extending(parent_definition=squatted))
    bare = typedef(TFL, "uk.gov.tfl.T")
    leave = [cert(TFL, MET, [{"type": "*", "actions": ["extend"]}])]
    yield case(
        "with a parent that may not be",
        "no-credentials",
        extending(parent=f"{did(TFL)}/uk.gov.tfl.T", parent_definition=bare, credentials=leave),
    )
    yield case("that declares what it inherits", "bad-claim", extending(attributes={"location": "string"}))
    yield case("with a key that it lacks", "bad-claim", extending(key=["colour"]))
    yield case("with a key twice", "bad-claim", extending(key=["speed", "speed"]))
    yield case("with an empty key", "bad-claim", extending(key=[]))
    yield case("derived in an unknown way", "bad-claim", extending(derived="anyhow"))
    yield case("declassified for no type", "bad-claim", extending(declassified_for=[]))
    yield case("declassified for whose type is not said", "bad-name", extending(declassified_for=["uk.gov.met.T"]))
    yield case("declassified for a pattern", "bad-name", extending(declassified_for=[f"{did(MET)}/uk.gov.*"]))
    yield case("declassified twice", "bad-claim", extending(declassified_for=[f"{did(MET)}/a.T"] * 2))
    yield case("with an unknown kind", "bad-claim", extending(attributes={"speed": "decimal"}))
    yield case("with a kind that is a list", "bad-claim", extending(attributes={"speed": ["int"]}))
    yield case("with a reserved word", "bad-name", extending(attributes={"null": "int"}))
    yield case("with an attribute of the gateway", "bad-name", extending(attributes={"@time": "timestamp"}))
    yield case("with an attribute in wide letters", "bad-name", extending(attributes={"\uff53peed": "int"}))
    yield case("with too many attributes", "bad-claim", extending(attributes={f"a{n}": "int" for n in range(201)}))
    yield case(
        "with too many, inherited ones included",
        "bad-claim",
        extending(attributes={f"a{n}": "int" for n in range(200)}),
    )
    deep = PLATE
    for level in range(MAX_TYPE_DEPTH + 1):
        name = f"{did(PITO)}/uk.gov.pito.Numberplate" if level == 0 else f"{did(PITO)}/a{level - 1}"
        deep = typedef(PITO, f"a{level}", attributes={f"b{level}": "int"}, parent=name, parent_definition=deep)
    yield case("with too many ancestors", "too-deep", deep)
