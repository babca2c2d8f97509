"""What grows, ends and opens, and what ends with it: types, principals, groups, relations, predicates, keys, doors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.decide.apply import apply
from headgate.decide.views import may_connect
from headgate.lang import parse_condition
from headgate.model.changes import (
    AddMember,
    AddRow,
    Advertise,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    RemoveGroup,
    RemovePredicate,
    RemovePrincipal,
    RemoveRelation,
    RetireType,
    SetConnect,
    SetKey,
    SetOpen,
    Subscribe,
    Unadvertise,
    Withdraw,
)
from headgate.model.errors import (
    BadDefinition,
    BadExpression,
    GovernDenied,
    HeadgateError,
    PublishDenied,
    UnknownName,
    UnknownType,
)
from headgate.model.expressions import InGroup, Related
from headgate.model.rights import Action, Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from strategies.memory import MemoryLedger
from strategies.predicates import registration
from strategies.small import CHASE, NOON, PLATE, SEEN, commit, forbid, grant, is_, wish, world

GROWN = EventType(SEEN, "owner", {"plate": Kind.STRING, "speed": Kind.INT, "lane": Kind.INT, "colour": Kind.STRING})
ONE, TWO = (f"did:key:z6Mk{'a' * 43}{n}" for n in "12")


def then(*changes: Change) -> MemoryLedger:
    """The small world, furnished, and these changes."""
    return commit(
        world(
            grant("r", "anna", CHASE),
            grant("p", "bob", "police.*"),
            grant("s", "staff"),
            wish("w", "anna", CHASE),
            wish("v", "bob"),
            grant("cc", "cam", CHASE, may=(Action.PUBLISH,)),
            grant("cs", "cam", SEEN, may=(Action.PUBLISH,)),
            Advertise("cam", CHASE),
            Advertise("cam", SEEN),
            DeclareRelation("Knows", open=True),
            DeclareGroup("desk", open=True),
            registration("small"),
        ),
        *changes,
    )


def refused(
    error: type[HeadgateError], last: Change, *before: Change, author: str = ADMINISTRATOR, match: str | None = None
) -> None:
    state = then(*before).now
    with pytest.raises(error, match=match):
        apply(state, Batch(author, (last,)))


# -- types --------------------------------------------------------------------------------------------------------


def test_a_type_grows_for_its_subtypes_and_from_the_version_on() -> None:
    state = then(DeclareType(GROWN)).now
    assert list(state.types.attributes(CHASE)) == ["plate", "speed", "lane", "colour", "unit"]
    assert state.types.since(CHASE) == {"colour": state.version}


def test_an_owner_who_may_install_lets_a_type_grow_and_nobody_else_does() -> None:
    install = grant("i", "owner", "road.*", may=(Action.INSTALL,))
    refused(GovernDenied, DeclareType(GROWN), author="owner")
    refused(GovernDenied, DeclareType(GROWN), install, author="anna")
    state = apply(then(install).now, Batch("owner", (DeclareType(GROWN),)))
    assert "colour" in state.types.attributes(SEEN)


def test_a_rule_by_pattern_must_fit_what_a_type_gains() -> None:
    rule = grant("c", "anna", "road.*", parse_condition("colour > 3"))
    refused(BadExpression, DeclareType(GROWN), rule, match="rule `c` on `road.Seen`")


def test_a_type_ends_with_the_rules_subscriptions_and_advertisements_that_name_it() -> None:
    state = then(RetireType(CHASE)).now
    assert CHASE not in state.types
    assert [rule.id for rule in state.rules] == ["p", "s", "cs"]
    assert set(state.subscriptions) == {"v"}
    assert state.advertisements == {("cam", SEEN)}


def test_who_governs_a_type_retires_it() -> None:
    refused(GovernDenied, RetireType(CHASE), author="anna")
    refused(UnknownType, RetireType("no.Such"))
    refused(UnknownType, RetireType(CHASE), RetireType(CHASE))
    refused(BadDefinition, RetireType(SEEN), match="remove the subtypes first")
    assert CHASE not in apply(then().now, Batch("police", (RetireType(CHASE),))).types


def test_nothing_new_names_a_retired_type() -> None:
    for change in (grant("x", "anna", CHASE), wish("x", "anna", CHASE), Advertise("cam", CHASE)):
        refused(UnknownType, change, RetireType(CHASE))


# -- principals, groups, relations, predicates --------------------------------------------------------------------


def test_a_principal_ends_with_all_that_is_its_own() -> None:
    state = then(SetKey("anna", ONE), Withdraw("anna"), RemovePrincipal("anna")).now
    assert "anna" not in state.principals
    assert "anna" not in state.groups["staff"]
    assert [rule.id for rule in state.rules] == ["p", "s", "cc", "cs"]
    assert set(state.subscriptions) == {"v"}
    assert (state.keys, state.withdrawals) == ({}, {})
    assert then(RemovePrincipal("cam")).now.advertisements == frozenset()
    assert then(SetKey("anna", ONE), RemovePrincipal("anna"), SetKey("bob", ONE)).now.keys == {"bob": ONE}


def test_rules_that_a_principal_made_end_with_it() -> None:
    ledger = then(grant("g", "bob", SEEN, may=(Action.GOVERN,)))
    commit(ledger, grant("made", "cam"), author="bob")
    assert [rule.id for rule in commit(ledger, RemovePrincipal("bob")).now.rules] == ["r", "s", "cc", "cs"]


def test_an_owner_does_not_go_before_its_types() -> None:
    refused(BadDefinition, RemovePrincipal("police"), match="owns the type `police.Chase`")
    assert "police" not in then(RetireType(CHASE), RemovePrincipal("police")).now.principals
    refused(UnknownName, RemovePrincipal("nobody"))
    refused(UnknownName, RemovePrincipal(ADMINISTRATOR))


def test_a_group_ends_with_its_rules_and_its_memberships() -> None:
    state = then(AddMember("desk", "staff"), RemoveGroup("staff")).now
    assert "staff" not in state.groups
    assert state.groups["desk"] == frozenset()
    assert [rule.id for rule in state.rules] == ["r", "p", "cc", "cs"]
    assert "desk" not in then(RemoveGroup("desk")).now.open_names


KNOWS = Related("Knows", (PLATE,))
IN_DESK = InGroup(PLATE, "desk")
SMALL = parse_condition("predicate small(1)")


@pytest.mark.parametrize(
    ("change", "condition"),
    [(RemoveGroup("desk"), IN_DESK), (RemoveRelation("Knows"), KNOWS), (RemovePredicate("small"), SMALL)],
)
def test_what_a_condition_or_a_filter_names_does_not_end(change: Change, condition: object) -> None:
    refused(BadDefinition, change, grant("c", "anna", SEEN, condition), match="the rule `c` names")  # type: ignore[arg-type]
    refused(BadDefinition, change, wish("c", "anna", SEEN, condition), match="the filter of a subscription")  # type: ignore[arg-type]
    then(change)


def test_what_is_not_there_does_not_end() -> None:
    for change in (RemoveGroup("none"), RemoveRelation("none"), RemovePredicate("none"), SetOpen("none", True)):
        refused(UnknownName, change)


def test_names_are_free_again() -> None:
    state = then(RemoveGroup("desk"), DeclareRelation("desk"), AddRow("desk", (1,)), RemovePrincipal("anna"),
                 DeclareGroup("anna")).now  # fmt: skip
    assert "anna" in state.groups
    assert state.relations["desk"] == {(1,)}


# -- what is open -------------------------------------------------------------------------------------------------


def test_groups_and_relations_open_and_close() -> None:
    state = then(SetOpen("staff", True), SetOpen("desk", False), SetOpen("Knows", False)).now
    assert state.open_names == {"staff"}
    assert then(SetOpen("desk", True), SetOpen("staff", False)).now.open_names == {"desk", "Knows"}


def test_nothing_closes_while_a_filter_names_it() -> None:
    for name, condition in (("desk", IN_DESK), ("Knows", KNOWS)):
        refused(BadDefinition, SetOpen(name, False), wish("c", "anna", SEEN, condition), match="end it first")
        assert name not in then(grant("c", "anna", SEEN, condition), SetOpen(name, False)).now.open_names
        refused(BadExpression, wish("c", "anna", SEEN, condition), SetOpen(name, False), match="is open to filters")


# -- keys and the door --------------------------------------------------------------------------------------------


def test_a_key_is_one_principals() -> None:
    state = then(SetKey("anna", ONE), SetKey("bob", TWO), SetKey(ADMINISTRATOR, None)).now
    assert state.keys == {"anna": ONE, "bob": TWO}
    refused(BadDefinition, SetKey("bob", ONE), SetKey("anna", ONE), match="`anna` already has the key of `bob`")
    assert then(SetKey("anna", ONE), SetKey("anna", ONE)).now.keys == {"anna": ONE}
    assert then(SetKey("anna", ONE), SetKey("anna", TWO), SetKey("bob", ONE)).now.keys == {"anna": TWO, "bob": ONE}
    assert then(SetKey("anna", ONE), SetKey("anna", None), SetKey("bob", ONE)).now.keys == {"bob": ONE}


@pytest.mark.parametrize(
    "key", ["", "did:key:z6Mk", ONE[:-1], ONE + "1", ONE.replace("a", "0"), "did:web:x", ONE + "\n"]
)
def test_what_is_no_key_is_refused(key: str) -> None:
    refused(BadDefinition, SetKey("anna", key), match="is not a public key")


def test_a_key_belongs_to_a_principal() -> None:
    refused(UnknownName, SetKey("staff", ONE))
    refused(UnknownName, Withdraw("nobody"))


def test_who_may_connect() -> None:
    def lets(*changes: Change) -> Callable[[str], bool]:
        state: State = then(*changes).now
        return lambda who: may_connect(state, who)

    connect = {"may": (Action.CONNECT,)}
    assert not lets()("anna")
    assert lets(SetConnect(True))("anna")
    assert not lets(SetConnect(True), SetConnect(False))("anna")
    assert lets(grant("c", "staff", "*", **connect))("anna")
    assert not lets(grant("c", "staff", "*", **connect))("bob")
    assert not lets(SetConnect(True), forbid("c", "anna", "*", **connect))("anna")
    assert not lets(forbid("b", "anna", "*", **connect), grant("c", "staff", "*", **connect))("anna")
    assert not lets(grant("c", "anna", "*", parse_condition("$level > 3"), **connect))("anna")
    assert lets()(ADMINISTRATOR)
    assert not lets(SetConnect(True))("nobody")


def test_only_the_administrator_keeps_the_door_and_the_names() -> None:
    for change in (
        SetConnect(True), SetKey("anna", ONE), RemovePrincipal("bob"), RemoveGroup("desk"), RemoveRelation("Knows"),
        SetOpen("staff", True), RemovePredicate("small"), Withdraw("anna"),
    ):  # fmt: skip
        refused(GovernDenied, change, author="anna")


# -- advertisements, withdrawals and beginnings -------------------------------------------------------------------


def test_a_principal_advertises_for_itself() -> None:
    refused(GovernDenied, Advertise("cam", SEEN), author="anna")
    refused(UnknownName, Advertise("nobody", SEEN))
    refused(UnknownType, Advertise("cam", "no.Such"))
    publish = {"may": (Action.PUBLISH,)}
    refused(PublishDenied, Advertise("bob", SEEN), author="bob", match="no right to advertise")
    refused(PublishDenied, Advertise("bob", SEEN))  # nor does the administrator in its name
    refused(PublishDenied, Advertise("bob", CHASE), grant("up", "bob", SEEN, **publish), author="bob")  # D4
    refused(PublishDenied, Advertise("cam", SEEN), forbid("no", "cam", first=True, **publish), author="cam")
    some = then(forbid("no", "cam", where=is_(PLATE, "x"), first=True, **publish), Unadvertise("cam", SEEN))
    assert ("cam", SEEN) in commit(some, Advertise("cam", SEEN), author="cam").now.advertisements
    ledger = then()
    commit(ledger, Unadvertise("cam", SEEN), Unadvertise("cam", SEEN), author="cam")
    assert ledger.now.advertisements == {("cam", CHASE)}


def test_a_withdrawal_is_from_its_version_on() -> None:
    ledger = then(Withdraw("anna"))
    assert ledger.now.withdrawals == {"anna": ledger.version}
    assert commit(ledger, Withdraw("anna")).now.withdrawals == {"anna": ledger.version}


def test_a_subscription_begins_no_later_than_now() -> None:
    ledger = then()
    at = ledger.version

    def since(version: int) -> Subscribe:
        return Subscribe(Subscription("x", "anna", SEEN, history=True, since_version=version, since_time=NOON))

    refused(BadDefinition, since(at + 1), match=f"the newest is {at}")
    assert commit(ledger, since(at)).now.subscriptions["x"].since_version == at
    with pytest.raises(BadDefinition, match="asks for no history"):
        Subscription("x", "anna", SEEN, is_(PLATE, "a"), since_version=1)


def test_a_refused_batch_ends_nothing() -> None:
    ledger = then(SetKey("anna", ONE))
    before = ledger.now
    shown = repr(before)
    with pytest.raises(UnknownName):
        ledger.commit(
            Batch(
                ADMINISTRATOR,
                (
                    SetKey("anna", None),
                    SetConnect(True),
                    RetireType(CHASE),
                    RemovePrincipal("anna"),
                    SetOpen("staff", True),
                    RemoveGroup("staff"),
                    Unadvertise("cam", SEEN),
                    DeclarePrincipal("zoe"),
                    DeclareType(GROWN),
                    RemoveGroup("none"),
                ),
            )
        )
    assert ledger.now is before
    assert repr(before) == shown
