"""What changed, in words."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection

from headgate.lang import parse_condition
from headgate.ledger import Ledger
from headgate.ledger.load import load
from headgate.model.changes import (
    AddMember,
    AddRow,
    AddRule,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    RegisterPredicate,
    RemoveMember,
    RemoveRow,
    RemoveRule,
    SetAttribute,
    Subscribe,
    Unsubscribe,
)
from headgate.model.errors import NotFound
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.state import State
from headgate.model.types import EventType
from headgate.model.values import Kind

Commit = Callable[..., int]
pytestmark = pytest.mark.usefixtures("furnished")


def rule(name: str, who: str = "staff", where: str = "true", **rest: object) -> Rule:
    return Rule(name, who, frozenset({Action.SUBSCRIBE}), "news.Story", parse_condition(where), **rest)  # type: ignore[arg-type]


def words(ledger: Ledger, a: int, b: int) -> list[str]:
    return [one.words for one in ledger.difference(a, b)]


def test_what_is_added(ledger: Ledger, commit: Commit) -> None:
    commit(
        DeclareType(EventType("news.Flash", "bob", {"at": Kind.TIMESTAMP}, "news.Story", ("title",))),
        SetAttribute("bob", "born", datetime(2000, 1, 1, tzinfo=UTC)),
        AddMember("staff", "bob"),
        AddRow("Knows", ("it's", 1, 2.0)),
        AddRule(rule("r", where="hits > 3", attributes=("title", "price"), forced={"price": 2.5}, disclose=True)),
        AddRule(rule("n", effect=Effect.FORBID)),
        Subscribe(Subscription("s", "bob", "news.Story", parse_condition("title = 'a'"), history=True)),
        RegisterPredicate("small", "checks:small", "abc"),
    )
    assert words(ledger, 1, 2) == [
        "type `news.Flash` declared: owner `bob`; extends `news.Story`; attributes `at` timestamp; key `title`",
        "`$born` of `bob` is timestamp '2000-01-01T00:00:00Z'",
        "`bob` joined group `staff`",
        "('it''s', 1, 2.0) joined relation `Knows`",
        "rule `n` added: `staff` may not subscribe `news.Story`",
        "rule `r` added: `staff` may subscribe `news.Story` (`title`, `price` = 2.5) where hits > 3, disclosed",
        "subscription `s` began: `bob` to `news.Story` where title = 'a', with history",
        "predicate `small` registered: `checks:small` with digest abc",
    ]
    assert [one.after for one in ledger.difference(2, 1)] == [None] * 8
    assert words(ledger, 2, 1)[3:6] == [
        "('it''s', 1, 2.0) left relation `Knows`",
        "rule `n` removed: `staff` may not subscribe `news.Story`",
        "rule `r` removed: `staff` may subscribe `news.Story` (`title`, `price` = 2.5) where hits > 3, disclosed",
    ]


def test_what_is_changed(ledger: Ledger, commit: Commit) -> None:
    commit(AddRule(rule("a")), AddRule(rule("b")), Subscribe(Subscription("s", "bob", "news.Story")))
    commit(
        SetAttribute("bob", "clearance", 1.0),
        AddRule(rule("a")),
        AddRule(rule("b", "bob")),
        Unsubscribe("s"),
        Subscribe(Subscription("s", "bob", "news.Story")),
        DeclareRelation("Likes", open=True),
    )
    assert words(ledger, 2, 3) == [
        "`$clearance` of `bob` went from 1 to 1.0",
        "relation `Likes` declared, open",
        "rule `a` moved down",
        "rule `b` changed: `staff` may subscribe `news.Story`; now: `bob` may subscribe `news.Story`",
        "subscription `s` of `bob` ended and began again",
    ]


def test_what_came_and_went_in_between_does_not_show(ledger: Ledger, commit: Commit) -> None:
    commit(AddMember("staff", "bob"), SetAttribute("bob", "clearance", 2), AddRow("Knows", ("a",)), AddRule(rule("r")))
    commit(RemoveMember("staff", "bob"), SetAttribute("bob", "clearance", 1), RemoveRow("Knows", ("a",)))
    commit(RemoveRule("r"))
    assert ledger.difference(1, 4) == []
    assert len(ledger.difference(1, 2)) == 4


def test_a_line_break_in_a_value_stays_on_one_line(ledger: Ledger, commit: Commit) -> None:
    commit(SetAttribute("bob", "motto", "a\nb"), AddRule(rule("r", where="title = 'a\nb'")))
    assert all("\n" not in line for line in words(ledger, 1, 2))


def test_history_follows_nested_groups_as_they_were(ledger: Ledger, commit: Commit) -> None:
    commit(AddRule(rule("early", "editors")))  # 2: bob is not an editor yet
    commit(AddMember("editors", "staff"))  # 3: nor staff
    commit(AddMember("staff", "bob"))  # 4
    commit(AddRule(rule("late", "editors")))  # 5
    commit(AddMember("staff", "cat"))  # 6: another's affair
    commit(DeclareGroup("all"), AddMember("all", "editors"))  # 7
    commit(SetAttribute("bob", "clearance", 2), Subscribe(Subscription("s", "bob", "news.Story")), note="why")  # 8
    commit(AddRule(rule("mine", "bob")))  # 9
    commit(RemoveMember("editors", "staff"), RemoveRule("early"))  # 10: the rule held bob until now
    commit(RemoveRule("late"))  # 11: no longer bob's
    commit(RemoveMember("all", "editors"), Unsubscribe("s"))  # 12
    found = ledger.history("bob")
    assert [(entry.version, *entry.words) for entry in found] == [
        (1, "principal `bob` declared", "`$clearance` of `bob` is 1"),
        (4, "`bob` joined group `staff`"),
        (5, "rule `late` added: `editors` may subscribe `news.Story`"),
        (7, "`editors` joined group `all`"),
        (8, "`$clearance` of `bob` went from 1 to 2", "subscription `s` began: `bob` to `news.Story`"),
        (9, "rule `mine` added: `bob` may subscribe `news.Story`"),
        (10, "`staff` left group `editors`", "rule `early` removed: `editors` may subscribe `news.Story`"),
        (12, "subscription `s` ended: `bob` to `news.Story`"),
    ]
    assert (found[4].author, found[4].note) == ("administrator", "why")
    assert found[4].time == datetime(2026, 1, 1, 9, 0, 7, 1, tzinfo=UTC)
    assert [entry.version for entry in ledger.history("cat")] == [1, 6, 7, 10]


def test_groups_may_turn_round_over_time(ledger: Ledger, commit: Commit) -> None:
    commit(AddMember("staff", "bob"), AddMember("editors", "staff"))
    commit(RemoveMember("editors", "staff"), AddMember("staff", "editors"))
    commit(RemoveMember("staff", "bob"), AddMember("editors", "bob"))
    commit(AddRule(rule("r", "staff")))
    assert [entry.version for entry in ledger.history("bob")] == [1, 2, 3, 4, 5]


def test_history_finds_the_long_way_round(ledger: Ledger, commit: Commit) -> None:
    commit(*map(DeclareGroup, "abcd"), AddMember("d", "c"), AddMember("c", "bob"))
    commit(AddMember("a", "bob"), AddMember("b", "a"), AddMember("c", "b"))
    commit(RemoveMember("c", "bob"))
    commit(AddRule(rule("r", "d")))
    assert ledger.history("bob")[-1].words == ("rule `r` added: `d` may subscribe `news.Story`",)


def test_a_principal_nobody_knew_is_not_found(ledger: Ledger) -> None:
    with pytest.raises(NotFound, match="nobody"):
        ledger.history("nobody")
    assert ledger.history("administrator") == []


def test_old_versions_are_each_found_from_the_one_before(
    ledger: Ledger, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = [commit(DeclarePrincipal(f"p{n}")) for n in range(12)][-1]
    whole: list[int] = []

    def counted(connection: Connection, version: int, administrator: str, *, subscriptions: bool) -> State:
        whole.append(version)
        return load(connection, version, administrator, subscriptions=subscriptions)

    monkeypatch.setattr("headgate.ledger.ledger.load", counted)
    for version in [*range(last - 4, last + 1), *range(1, last + 1)]:
        assert len(ledger.state(version, subscriptions=False).principals) == version + 1
    assert whole == [last - 4, 1]
