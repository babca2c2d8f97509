"""New names that could be mistaken are refused; what there is keeps its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.decide.apply import apply
from headgate.ledger import Ledger
from headgate.model.changes import (
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    GrantRole,
    RegisterPredicate,
    RemovePrincipal,
    SetAttribute,
    SetNames,
    SetPeer,
    SetRolefile,
)
from headgate.model.errors import BadDefinition
from headgate.model.rolefiles import Rolefile
from headgate.model.roles import Peer
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.roles.requests.transition import next_state
from headgate.scenario.format.policy import plan_policy, read_policy

FAKE = "p\u0456to"


def made(state: State, *changes: Change) -> State:
    return next_state(state, Batch(ADMINISTRATOR, changes))


def type_(name: str) -> DeclareType:
    return DeclareType(EventType(name, ADMINISTRATOR, {"plate": Kind.STRING}))


PEER = Peer("Login", "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK", "Login", 60)
REAL = (
    type_("uk.pito.Plate"),
    DeclarePrincipal("pito"),
    DeclareGroup("staff"),
    DeclareRelation("Owns"),
    RegisterPredicate("dear", "m:f", "0"),
    SetRolefile("Conf", Rolefile()),
    SetPeer(PEER),
)
FAKES = {
    "type": (type_(f"uk.{FAKE}.Plate"), "uk.pito.Plate"),
    "principal": (DeclarePrincipal(FAKE), "pito"),
    "principal like a group": (DeclarePrincipal("st\u0430ff"), "staff"),
    "principal like the administrator": (DeclarePrincipal("administrat\u043er"), "administrator"),
    "group like a principal": (DeclareGroup(FAKE), "pito"),
    "relation": (DeclareRelation("\u041ewns"), "Owns"),
    "predicate": (RegisterPredicate("d\u0435ar", "m:f", "0"), "dear"),
    "service": (SetRolefile("C\u043enf", Rolefile()), "Conf"),
    "service like a peer": (SetRolefile("L\u043egin", Rolefile()), "Login"),
    "service of a grant": (GrantRole("g", "C\u043enf", "Chair", (), "pito"), "Conf"),
}


@pytest.mark.parametrize("kind", FAKES)
def test_a_name_that_looks_like_another_is_refused_with_that_name(kind: str) -> None:
    state = made(State(), *REAL)
    change, real = FAKES[kind]
    with pytest.raises(BadDefinition, match=r"\(with U\+[0-9A-F]{4,}, .+\) looks like `" + real) as refused:
        made(state, change)
    assert refused.value.code == "bad-definition"
    assert "names: any" in str(refused.value.remedy)
    made(state, SetNames(True), change)
    with pytest.raises(BadDefinition, match="looks like"):
        made(State(), *REAL, change)


@pytest.mark.parametrize(
    ("name", "said"),
    [(FAKE, "mixes scripts: Cyrillic and Latin"), ("\uff33ale", "not in its normal form"), ("Sa\u0300", "normal form")],
)
def test_names_that_mix_scripts_or_are_written_otherwise(name: str, said: str) -> None:
    for change in (DeclarePrincipal(name), DeclareGroup(name), DeclareRelation(name)):
        with pytest.raises(BadDefinition, match=said):
            made(State(), change)


def test_names_in_ascii_are_as_they_were() -> None:
    state = made(State(), *(DeclarePrincipal(name) for name in ("l1", "I1", "rn", "m", "O", "0")))
    assert len(state.principals) == 6


def test_what_there_is_keeps_its_name() -> None:
    old = made(State(), SetNames(True), DeclarePrincipal("pito"), DeclarePrincipal(FAKE), type_(f"uk.{FAKE}.Plate"))
    old = made(old, SetNames(False))
    grown = EventType(f"uk.{FAKE}.Plate", ADMINISTRATOR, {"plate": Kind.STRING, "more": Kind.INT})
    new = made(old, SetAttribute(FAKE, "a", 1), DeclareType(grown), DeclarePrincipal("met"))
    assert new.principals[FAKE] == {"a": 1}
    with pytest.raises(BadDefinition, match="looks like"):
        made(old, DeclarePrincipal("pit\u043e"))
    again = apply(old, Batch(ADMINISTRATOR, (RemovePrincipal(FAKE), DeclarePrincipal(FAKE))))
    assert FAKE in again.principals, "it is not new"


def test_the_setting_is_kept_and_told(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "ledger.db", administrator=ADMINISTRATOR) as ledger:
        ledger.commit(Batch(ADMINISTRATOR, (SetNames(True), DeclarePrincipal("pito"))))
        ledger.commit(Batch(ADMINISTRATOR, (DeclarePrincipal(FAKE),)))
        ledger.commit(Batch(ADMINISTRATOR, (SetNames(False),)))
        assert "new names may look like others, and mix scripts" in [one.words for one in ledger.difference(0, 1)]
        (ended,) = ledger.difference(2, 3)
        assert ended.words == "new names may no longer look like others, nor mix scripts"
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert (ledger.state(2).any_names, ledger.state(3).any_names) == (True, False)
        with pytest.raises(BadDefinition):
            ledger.commit(Batch(ADMINISTRATOR, (DeclarePrincipal("pit\u043e"),)))
        assert ledger.version == 3


def test_a_policy_directory_is_judged_by_what_is_new(tmp_path: Path) -> None:
    def planned(now: State, text: str) -> State:
        (tmp_path / "a.yaml").write_text(text, "utf-8")
        return plan_policy(now, read_policy(tmp_path, ADMINISTRATOR)).after

    both = f"principals: {{pito: {{}}, {FAKE}: {{}}}}\n"
    with pytest.raises(BadDefinition, match="looks like"):
        planned(State(), both)
    wide = planned(State(), f"names: any\n{both}")
    assert (wide.any_names, FAKE in wide.principals) == (True, True)
    narrow = planned(wide, both)
    assert (narrow.any_names, FAKE in narrow.principals) == (False, True)
    with pytest.raises(BadDefinition, match="looks like"):
        planned(narrow, f"{both}groups: {{pit\u043e: []}}\n")
