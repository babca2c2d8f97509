"""What a batch may do, and that a refused one does nothing: D13 and D14."""

from __future__ import annotations

import itertools

import pytest

from headgate.decide.apply import apply
from headgate.model.changes import (
    AddMember,
    AddRow,
    AddRule,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    RemoveMember,
    RemovePrincipal,
    RemoveRow,
    RemoveRule,
    SetAttribute,
    Unsubscribe,
)
from headgate.model.errors import (
    BadDefinition,
    BadExpression,
    GovernDenied,
    HeadgateError,
    SubscribeDenied,
    TypeMismatch,
    UnknownName,
    UnknownType,
)
from headgate.model.expressions import (
    AllOf,
    AnyOf,
    Attribute,
    Compare,
    Condition,
    Constant,
    InGroup,
    InSet,
    IsNull,
    Meta,
    Predicate,
    Related,
    Subject,
    TextMatch,
)
from headgate.model.limits import MAX_ATTRIBUTES, MAX_GROUP_DEPTH, MAX_NAME_CHARS
from headgate.model.rights import Action, Effect, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from strategies.predicates import registration
from strategies.small import CHASE, LANE, PLATE, SEEN, SPEED, commit, forbid, grant, is_, wish, world

EXTRA = (DeclareRelation("Knows", open=True), DeclareGroup("desk"), registration("small"))


def refused(
    error: type[HeadgateError], *changes: Change, author: str = ADMINISTRATOR, match: str | None = None
) -> None:
    """The last of these changes is refused, after the others were accepted."""
    ledger = world(*EXTRA)
    before = ledger.now
    if len(changes) > 1:
        commit(ledger, *changes[:-1])
        before = ledger.now
    with pytest.raises(error, match=match):
        apply(before, Batch(author, changes[-1:]))


# -- a batch ------------------------------------------------------------------------------------------------------


def test_a_batch_is_one_version() -> None:
    ledger = world()
    assert ledger.version == 1
    commit(ledger, DeclareGroup("a"), DeclareGroup("b"))
    assert ledger.version == 2
    assert commit(ledger).version == 3


def test_changes_take_effect_as_listed() -> None:
    ledger = commit(
        world(), DeclareGroup("g"), AddMember("g", "anna"), RemoveMember("g", "anna"), AddMember("g", "bob")
    )
    assert ledger.now.groups["g"] == {"bob"}


def test_a_refused_batch_leaves_nothing() -> None:
    ledger = world(grant("r", "anna"), wish("s", "anna"), DeclareRelation("R"), AddRow("R", (1,)))
    before = ledger.now
    shown = repr(before)
    for last in (AddMember("nobody", "anna"), RemoveRule("none"), wish("s", "anna")):
        changes = (
            DeclarePrincipal("dora", {"u": 1}),
            SetAttribute("anna", "u", 2),
            DeclareGroup("g"),
            AddMember("staff", "bob"),
            AddRow("R", (2,)),
            RemoveRow("R", (1,)),
            RemoveRule("r"),
            forbid("f", "anna", first=True),
            Unsubscribe("s"),
            wish("s", "bob"),
            DeclareType(EventType("x.T", "anna", {})),
            registration("small"),
            last,
        )
        with pytest.raises(HeadgateError):
            ledger.commit(Batch(ADMINISTRATOR, changes))
        assert ledger.now is before
        assert repr(before) == shown


def test_an_unknown_author_is_refused() -> None:
    refused(UnknownName, DeclareGroup("g"), author="nobody", match="no principal `nobody`")


# -- D14: who may -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        DeclarePrincipal("dora"),
        DeclareGroup("g"),
        DeclareRelation("R"),
        AddMember("staff", "bob"),
        RemoveMember("staff", "anna"),
        AddRow("Knows", ("a",)),
        RemoveRow("Knows", ("a",)),
        SetAttribute("owner", "u", 1),
        registration("small"),
        grant("r", "anna", CHASE),
        grant("r", "anna", "police.*"),
        grant("r", "anna", may=(Action.CONNECT,)),
        grant("r", "anna", may=(Action.INSTALL,)),
        DeclareType(EventType("x.T", "owner", {})),
    ],
)
def test_a_type_owner_governs_its_types_and_nothing_else(change: Change) -> None:
    refused(GovernDenied, change, author="owner")


def test_an_owner_makes_and_ends_rules_of_its_type() -> None:
    ledger = commit(world(), grant("r", "anna"), author="owner")
    assert [(rule.id, rule.author) for rule in ledger.now.rules] == [("r", "owner")]
    assert commit(ledger, RemoveRule("r"), author="owner").now.rules == ()


def test_who_holds_govern_makes_and_ends_rules_too() -> None:
    ledger = world(grant("g", "bob", may=(Action.GOVERN,)), grant("r", "anna"))
    commit(ledger, RemoveRule("r"), grant("q", "anna"), author="bob")
    assert [rule.id for rule in ledger.now.rules] == ["g", "q"]
    refused(GovernDenied, grant("g", "bob", may=(Action.GOVERN,)), grant("q", "anna", CHASE), author="bob")


def test_the_author_is_recorded_whatever_the_rule_says() -> None:
    claimed = AddRule(Rule("r", "anna", frozenset({Action.SUBSCRIBE}), SEEN, author=ADMINISTRATOR))
    assert commit(world(), claimed, author="owner").now.rules[0].author == "owner"


def test_a_rule_of_another_cannot_be_ended_or_replaced() -> None:
    theirs = forbid("r", "anna", CHASE)
    refused(GovernDenied, theirs, RemoveRule("r"), author="owner")
    refused(GovernDenied, theirs, grant("r", "anna", SEEN), author="owner")


def test_a_pattern_of_another_cannot_be_ended_or_replaced() -> None:
    refused(GovernDenied, forbid("r", "anna", "*"), RemoveRule("r"), author="owner")
    refused(GovernDenied, forbid("r", "anna", "*"), grant("r", "anna", SEEN), author="owner")


def test_a_pattern_needs_one_type_that_its_author_governs() -> None:
    commit(world(), grant("r", "anna", "*"), author="owner")
    refused(GovernDenied, grant("r", "anna", "*"), author="anna")


def test_installing_and_extending_are_rights() -> None:
    install = grant("i", "bob", "shop.*", may=(Action.INSTALL,))
    own = DeclareType(EventType("shop.Sale", "bob", {}))
    refused(GovernDenied, own, author="bob")
    commit(world(install), own, author="bob")
    refused(GovernDenied, install, DeclareType(EventType("other.Sale", "bob", {})), author="bob")
    refused(GovernDenied, install, DeclareType(EventType("shop.Sale", "anna", {})), author="bob")
    child = DeclareType(EventType("shop.Sighting", "bob", {}, SEEN))
    refused(GovernDenied, install, child, author="bob", match="may not extend")
    commit(world(install, grant("e", "bob", may=(Action.EXTEND,))), child, author="bob")


def test_a_subscription_is_made_and_ended_by_its_principal() -> None:
    ledger = commit(world(), wish("s", "anna"), author="anna")
    assert ledger.now.subscriptions["s"].first == 2
    refused(SubscribeDenied, wish("s", "anna"), author="bob")
    refused(UnknownName, wish("s", "anna"), Unsubscribe("s"), author="bob")
    assert commit(ledger, Unsubscribe("s"), author="anna").now.subscriptions == {}


def test_a_subscription_is_never_refused_for_lack_of_rights() -> None:
    assert "s" in commit(world(forbid("f", "bob")), wish("s", "bob"), author="bob").now.subscriptions


# -- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "change"),
    [
        (UnknownName, AddMember("nobody", "anna")),
        (UnknownName, AddMember("staff", "nobody")),
        (BadDefinition, AddMember("staff", "bob", True)),
        (BadDefinition, AddMember("desk", "staff", True)),
        (BadDefinition, AddMember("staff", "", True)),
        (UnknownName, RemoveMember("nobody", "anna")),
        (UnknownName, RemoveMember("staff", "nobody")),
        (UnknownName, AddRow("None", (1,))),
        (UnknownName, RemoveRow("None", (1,))),
        (UnknownName, SetAttribute("nobody", "u", 1)),
        (UnknownName, SetAttribute("staff", "u", 1)),
        (UnknownName, RemoveRule("none")),
        (UnknownName, Unsubscribe("none")),
        (UnknownName, grant("r", "nobody")),
        (UnknownType, grant("r", "anna", "no.Such")),
        (UnknownName, wish("s", "nobody")),
        (UnknownName, wish("s", "staff")),
        (UnknownType, wish("s", "anna", "no.Such")),
        (UnknownName, DeclareType(EventType("x.T", "nobody", {}))),
        (UnknownType, DeclareType(EventType("x.T", "anna", {}, "no.Such"))),
    ],
)
def test_what_nobody_declared_is_refused(error: type[HeadgateError], change: Change) -> None:
    refused(error, change)


@pytest.mark.parametrize(
    "change",
    [
        DeclarePrincipal("anna"),
        DeclarePrincipal("staff"),
        DeclarePrincipal(ADMINISTRATOR),
        DeclareGroup("staff"),
        DeclareGroup("anna"),
        DeclareGroup("Knows"),
        DeclareRelation("Knows"),
        DeclareRelation("staff"),
        DeclareType(EventType(SEEN, "owner", {})),
        DeclareType(EventType("x.T", "anna", {"plate": Kind.INT}, SEEN)),
    ],
)
def test_what_is_declared_twice_is_refused(change: Change) -> None:
    refused(BadDefinition, change)


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME_CHARS + 1), "a\nb"])
def test_a_bad_name_is_refused(name: str) -> None:
    for change in (DeclarePrincipal(name), DeclareGroup(name), DeclareRelation(name), SetAttribute("anna", name, 1)):
        refused(BadDefinition, change)
    DeclareGroup("x" * MAX_NAME_CHARS)


def test_a_subscription_id_is_taken_until_it_is_closed() -> None:
    refused(BadDefinition, wish("s", "anna"), wish("s", "anna"))
    ledger = commit(world(wish("s", "anna")), Unsubscribe("s"), wish("s", "bob"))
    assert ledger.now.subscriptions["s"].principal == "bob"
    assert ledger.now.subscriptions["s"].first == 3


def test_a_rule_added_again_goes_to_the_end() -> None:
    ledger = world(grant("a", "anna"), grant("b", "anna"))
    commit(ledger, grant("a", "bob"))
    assert [(rule.id, rule.who) for rule in ledger.now.rules] == [("b", "anna"), ("a", "bob")]


def test_first_rules_keep_their_order_and_go_before_all_that_existed() -> None:
    ledger = world(grant("a", "anna"))
    commit(ledger, grant("b", "anna"), grant("c", "anna", first=True), grant("d", "anna", first=True))
    assert [rule.id for rule in ledger.now.rules] == ["c", "d", "a", "b"]
    commit(ledger, grant("d", "anna"), grant("e", "anna", first=True))
    assert [rule.id for rule in ledger.now.rules] == ["e", "c", "a", "b", "d"]


# -- groups and relations -----------------------------------------------------------------------------------------


def test_groups_may_nest_but_not_in_a_cycle() -> None:
    refused(BadDefinition, AddMember("desk", "desk"), match="cycle")
    refused(BadDefinition, AddMember("staff", "desk"), AddMember("desk", "staff"), match="cycle")
    chain = DeclareGroup("hall"), AddMember("staff", "desk"), AddMember("desk", "hall")
    refused(BadDefinition, *chain, AddMember("hall", "staff"), match="cycle")


def test_a_value_in_a_group_is_no_principal_and_nobody_comes_in_by_its_name() -> None:
    ledger = world(DeclareGroup("desk"), AddMember("desk", "t14", True), AddMember("staff", "desk"))
    assert ledger.now.members_of("staff") == {"anna", "t14"}
    assert ledger.now.values_of("desk") == {"t14"}
    assert ledger.now.values_of("staff") == frozenset()
    for name in (DeclarePrincipal("t14"), DeclareGroup("t14")):
        with pytest.raises(BadDefinition, match="`t14` is a value in the group `desk`"):
            commit(ledger, name)
    commit(ledger, RemoveMember("desk", "t14"), DeclarePrincipal("t14"), AddMember("desk", "t14"))
    assert ledger.now.values_of("desk") == frozenset()
    commit(ledger, RemovePrincipal("t14"), RemoveMember("desk", "t14", True))
    assert ledger.now.members_of("staff") == {"anna"}


def test_a_cycle_is_gone_when_a_member_leaves() -> None:
    ledger = world(DeclareGroup("desk"), AddMember("staff", "desk"))
    commit(ledger, RemoveMember("staff", "desk"), AddMember("desk", "staff"))
    assert ledger.now.groups_of("anna") == {"staff", "desk"}


def test_groups_nest_only_so_deep() -> None:
    names = [f"n{n}" for n in range(MAX_GROUP_DEPTH + 1)]
    chain = [AddMember(a, b) for a, b in itertools.pairwise(names)]
    fits = (*(DeclareGroup(n) for n in names), *chain[:-1])
    assert world(*fits).now.groups_of(names[-2]) == set(names[:-2])
    refused(BadDefinition, *fits, chain[-1], match="MAX_GROUP_DEPTH")
    # It is as deep when the chain is closed in the middle.
    middle = len(chain) // 2
    rest = (*(DeclareGroup(n) for n in names), *chain[:middle], *chain[middle + 1 :])
    refused(BadDefinition, *rest, chain[middle], match="MAX_GROUP_DEPTH")


def test_tuples_have_one_length_and_no_null() -> None:
    for row in ((None,), ("a", None)):
        refused(BadDefinition, AddRow("Knows", row))
    refused(BadDefinition, AddRow("Knows", ()), AddRow("Knows", ("a",)))
    refused(BadDefinition, AddRow("Knows", ("a", "b")), AddRow("Knows", ("a",)))
    refused(TypeMismatch, AddRow("Knows", (2**63,)))


def test_true_is_not_one_in_a_relation() -> None:
    refused(BadDefinition, AddRow("Knows", (1,)), AddRow("Knows", (True,)))
    ledger = world(*EXTRA, AddRow("Knows", (1,)))
    assert commit(ledger, RemoveRow("Knows", (True,))).now.relations["Knows"] == {(1,)}
    assert commit(ledger, RemoveRow("Knows", (1.0,))).now.relations["Knows"] == frozenset()


def test_subject_attributes_come_and_go() -> None:
    ledger = commit(world(), SetAttribute("anna", "u", 1), SetAttribute("anna", "v", "x"))
    assert ledger.now.principals["anna"] == {"u": 1, "v": "x"}
    assert commit(ledger, SetAttribute("anna", "u", None)).now.principals["anna"] == {"v": "x"}
    assert ledger.state(2).principals["anna"] == {"u": 1, "v": "x"}
    refused(TypeMismatch, SetAttribute("anna", "u", float("nan")))


# -- types and limits -----------------------------------------------------------------------------------------------


def test_a_type_has_only_so_many_attributes() -> None:
    many = {f"a{n}": Kind.INT for n in range(MAX_ATTRIBUTES)}
    ledger = world(DeclareType(EventType("x.T", "anna", many)))
    with pytest.raises(BadDefinition, match="MAX_ATTRIBUTES"):
        commit(ledger, DeclareType(EventType("x.U", "anna", {"one": Kind.INT}, "x.T")))


def test_a_new_type_must_fit_the_patterns_that_take_it_in() -> None:
    pattern = grant("r", "anna", "x.*", is_(Attribute("n"), 1))
    assert commit(world(pattern), DeclareType(EventType("x.T", "anna", {"n": Kind.FLOAT}))).version == 3
    refused(BadExpression, pattern, DeclareType(EventType("x.T", "anna", {"n": Kind.STRING})), match="rule `r`")
    forced = grant("r", "anna", "x.*", attributes=("n",), forced={"n": 1})
    refused(BadDefinition, forced, DeclareType(EventType("x.T", "anna", {"n": Kind.STRING})), match="rule `r`")


# -- rules ----------------------------------------------------------------------------------------------------------


def test_a_rule_names_attributes_of_its_type() -> None:
    refused(BadDefinition, grant("r", "anna", SEEN, attributes=("unit",)), match="lacks")
    refused(BadExpression, grant("r", "anna", SEEN, is_(Attribute("unit"), "T")), match="no attribute `unit`")
    world(grant("r", "anna", "*", is_(Attribute("unit"), "T"), attributes=("unit", "none")))


def test_forced_values_must_fit() -> None:
    refused(BadDefinition, grant("r", "anna", attributes=("lane",), forced={"lane": "left"}))
    with pytest.raises(BadDefinition, match="does not name"):
        grant("r", "anna", attributes=("lane",), forced={"plate": "X"})


def test_some_rules_cannot_be_written() -> None:
    with pytest.raises(BadDefinition, match="allows nothing"):
        grant("r", "anna", may=())
    with pytest.raises(BadDefinition, match="forbids publishing with"):
        forbid("r", "anna", attributes=("lane",), may=(Action.PUBLISH,))
    assert Rule("r", "anna", frozenset({Action.PUBLISH}), effect=Effect.FORBID).whole_event


MIXED: list[Condition] = [
    is_(LANE, "one"),
    is_(PLATE, 1),
    Compare("<", PLATE, LANE),
    Compare("=", Meta("time"), Constant("2026-01-01")),
    InSet(LANE, (1, "a")),
    TextMatch("contains", LANE, Constant("a")),
    InGroup(LANE, "staff"),
    InGroup(PLATE, "nobody"),
    Related("None", (PLATE,)),
    Predicate("none"),
    is_(Attribute("zz"), 1),
]


@pytest.mark.parametrize("condition", MIXED)
def test_what_does_not_type_check_is_refused_in_rules_and_filters(condition: Condition) -> None:
    refused(BadExpression, grant("r", "anna", SEEN, condition))
    refused(BadExpression, wish("s", "anna", SEEN, condition))


def test_a_filter_names_only_what_is_open() -> None:
    refused(BadExpression, wish("s", "anna", SEEN, InGroup(PLATE, "staff")), match="is open to filters")
    refused(
        BadExpression,
        DeclareRelation("Shut"),
        wish("s", "anna", SEEN, Related("Shut", (PLATE,))),
        match="is open to filters",
    )
    refused(BadExpression, wish("s", "anna", SEEN, is_subject()), match="subject attribute")
    world(*EXTRA, wish("s", "anna", SEEN, Related("Knows", (PLATE,))))
    world(*EXTRA, grant("r", "anna", SEEN, InGroup(PLATE, "staff")), grant("q", "anna", SEEN, is_subject()))


def is_subject() -> Condition:
    return Compare("=", SPEED, Subject("limit"))


def test_a_relation_has_as_many_arguments_as_its_tuples() -> None:
    wrong = wish("s", "anna", SEEN, Related("Knows", (PLATE, LANE)))
    refused(BadExpression, AddRow("Knows", ("a",)), wrong, match="takes 1")


def test_an_expression_that_grows_too_large_is_refused() -> None:
    kinds = {f"a{n}": Kind.INT for n in range(9)}
    wide = AllOf(tuple(AnyOf((is_(Attribute(n), 1), IsNull(Attribute(n)))) for n in kinds))
    typed = DeclareType(EventType("x.T", "anna", kinds))
    refused(BadExpression, typed, wish("s", "anna", "x.T", wide), match="MAX_CLAUSES")
    refused(BadExpression, typed, grant("r", "anna", "x.T", wide), match="MAX_CLAUSES")
    # A forbid is kept as the clauses where it is false, and those are few.
    world(typed, forbid("f", "anna", "x.T", wide))
