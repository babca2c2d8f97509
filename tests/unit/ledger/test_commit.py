"""A commit is one version or nothing at all."""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import event

from headgate.lang import parse_condition
from headgate.ledger import Ledger
from headgate.model.changes import (
    AddMember,
    AddRow,
    AddRule,
    Batch,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    RemoveMember,
    RemoveRow,
    RemoveRule,
    RetireType,
    SetAttribute,
    SetOpen,
    Subscribe,
    Unsubscribe,
)
from headgate.model.errors import (
    BadDefinition,
    GovernDenied,
    NotFound,
    StorageBusy,
    StorageFull,
    UnknownName,
    VersionConflict,
)
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.state import ADMINISTRATOR
from headgate.storage.shared import Where

Commit = Callable[..., int]


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table."""
    with sqlite3.connect(path) as raw:
        tables = [name for (name,) in raw.execute("select name from sqlite_master where type = 'table'")]
        return {table: list(raw.execute(f'select * from "{table}"')) for table in tables}


def rule(name: str, who: str = "staff") -> Rule:
    return Rule(name, who, frozenset({Action.SUBSCRIBE}), "news.Story")


def order(ledger: Ledger, version: int | None = None) -> list[str]:
    return [rule.id for rule in ledger.state(version).rules]


def test_a_new_ledger_is_empty_at_version_0(ledger: Ledger) -> None:
    assert ledger.version == 0
    assert ledger.versions() == []
    state = ledger.state(0)
    assert (state.version, state.administrator, state.rules) == (0, "administrator", ())


def test_a_batch_that_changes_nothing_makes_a_version(ledger: Ledger, commit: Commit) -> None:
    assert [commit(), commit(note="again")] == [1, 2]
    assert [(v.version, v.author, v.note) for v in ledger.versions()] == [
        (1, "administrator", ""),
        (2, "administrator", "again"),
    ]
    first, second = ledger.versions()
    assert (second.time - first.time).total_seconds() == 1
    assert first.time.microsecond == 1
    assert ledger.policy_versions(0, 2) == []


def test_since_when_a_type_is_what_it_is(ledger: Ledger, commit: Commit, furnished: int) -> None:
    declared = ledger.type_since("news.Story")
    assert declared == ledger.versions()[0].time
    assert ledger.type_since("news.Other") is None
    commit(DeclarePrincipal("dan"))
    assert ledger.type_since("news.Story") == declared
    retired = commit(RetireType("news.Story"))
    assert furnished < retired
    assert ledger.type_since("news.Story") == ledger.versions()[-1].time
    commit(DeclarePrincipal("eve"))
    assert ledger.type_since("news.Story") == ledger.versions(retired - 1, retired)[0].time


@pytest.mark.parametrize("note", ["\x00 nul", "\ud800 lone surrogate", "line\nbreak", "🦀"])
def test_any_note_is_kept(ledger: Ledger, commit: Commit, note: str) -> None:
    commit(note=note)
    assert ledger.versions()[0].note == note


@pytest.mark.usefixtures("furnished")
def test_a_bad_batch_leaves_nothing(ledger: Ledger, path: Path, commit: Commit) -> None:
    before, head = content(path), ledger.state()
    good = (DeclarePrincipal("dan"), AddMember("staff", "bob"), AddRule(rule("r")))
    with pytest.raises(UnknownName):
        commit(*good, AddMember("staff", "nobody"))
    with pytest.raises(GovernDenied):
        ledger.commit(Batch("bob", good))
    # Refused only when it is written.
    listed = Rule("r", "bob", frozenset({Action.PUBLISH}), "x.*", attributes=("a",), forced={"a": [1]})
    with pytest.raises(BadDefinition):
        commit(*good[:2], AddRule(listed))
    assert content(path) == before
    assert ledger.state() is head
    assert commit(*good) == 2


@pytest.mark.usefixtures("furnished")
def test_a_crash_between_the_rows_leaves_nothing(
    ledger: Ledger, path: Path, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(path)

    def broken() -> None:
        raise RuntimeError("the clock stopped")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "_clock", broken)
        with pytest.raises(RuntimeError, match="clock"):
            commit(DeclarePrincipal("dan"))
    assert content(path) == before
    assert commit(DeclarePrincipal("dan")) == 2


@pytest.mark.usefixtures("furnished")
def test_expect_names_both_versions(ledger: Ledger, commit: Commit) -> None:
    assert ledger.commit(Batch("administrator"), expect=1) == 2
    with pytest.raises(VersionConflict, match=r"at version 2, not 1"):
        ledger.commit(Batch("administrator"), expect=1)
    assert ledger.version == 2


@pytest.mark.usefixtures("furnished")
def test_rules_keep_their_order_through_removal_and_return(ledger: Ledger, commit: Commit) -> None:
    commit(AddRule(rule("a")), AddRule(rule("b")), AddRule(rule("c")))
    commit(AddRule(rule("y"), first=True), AddRule(rule("z"), first=True), AddRule(rule("d")))
    commit(RemoveRule("y"), RemoveRule("d"))
    commit(RemoveRule("a"), AddRule(rule("a")))
    commit(AddRule(rule("x"), first=True), RemoveRule("b"), AddRule(rule("d")))
    commit(*(RemoveRule(name) for name in "xzcad"))
    commit(AddRule(rule("c")))
    orders = ["abc", "yzabcd", "zabc", "zbca", "xzcad", "", "c"]
    assert ["".join(order(ledger, version)) for version in range(2, 9)] == orders
    with Ledger.open(ledger.place) as again:
        assert ["".join(order(again, version)) for version in range(2, 9)] == orders


@pytest.mark.usefixtures("furnished")
def test_an_id_may_be_used_again_and_first_tells_apart(ledger: Ledger, commit: Commit) -> None:
    wide = Subscription("s", "bob", "news.Story")
    narrow = Subscription("s", "bob", "news.Story", parse_condition("hits > 3"), history=True)
    commit(Subscribe(wide))
    commit(Unsubscribe("s"))
    commit(Subscribe(narrow))
    commit(Unsubscribe("s"), Subscribe(wide))
    assert [s.first for v in range(1, 6) for s in ledger.state(v).subscriptions.values()] == [2, 4, 5]
    found = ledger.subscriptions(1, 5)
    assert [(s.id, s.first, s.history) for s in found.opened] == [("s", 2, False), ("s", 4, True), ("s", 5, False)]
    assert found.closed == [("s", 2, 3), ("s", 4, 5)]
    assert ledger.subscriptions(3, 3).opened == []
    assert [(s.first, ends) for s, ends in ledger.all_subscriptions(4)] == [(2, 3), (4, None)]
    assert [(s.first, ends) for s, ends in ledger.all_subscriptions(5)] == [(2, 3), (4, 5), (5, None)]


@pytest.mark.usefixtures("furnished")
def test_policy_versions_leave_out_subscriptions(ledger: Ledger, commit: Commit) -> None:
    commit(Subscribe(Subscription("s", "bob", "news.Story")))
    commit(SetAttribute("bob", "clearance", 2))
    commit(SetAttribute("bob", "clearance", 2))
    commit(Unsubscribe("s"))
    commit(SetAttribute("bob", "clearance", None))
    commit(AddMember("staff", "bob"), Subscribe(Subscription("s", "bob", "news.Story")))
    commit(RemoveMember("staff", "bob"))
    assert ledger.policy_versions(0, 8) == [1, 3, 6, 7, 8]
    assert ledger.policy_versions(3, 7) == [6, 7]


@pytest.mark.usefixtures("furnished")
def test_a_change_of_kind_alone_is_a_change(ledger: Ledger, commit: Commit) -> None:
    for value in (True, 1.0, 1):
        commit(SetAttribute("bob", "clearance", value))
    kinds = [type(ledger.state(v).principals["bob"]["clearance"]) for v in range(1, 5)]
    assert kinds == [int, bool, float, int]
    commit(AddRow("Knows", (1, "a")))
    commit(RemoveRow("Knows", (1, "a")), AddRow("Knows", (True, "a")))
    with Ledger.open(ledger.place) as again:
        assert [repr(sorted(again.state(v).relations["Knows"])) for v in (5, 6)] == ["[(1, 'a')]", "[(True, 'a')]"]


def test_versions_that_do_not_exist_are_not_found(ledger: Ledger, commit: Commit) -> None:
    commit()
    for version in (-1, 2):
        with pytest.raises(NotFound, match=f"no version {version}"):
            ledger.state(version)
    for ask in (ledger.subscriptions, ledger.policy_versions, ledger.difference):
        with pytest.raises(NotFound):
            ask(0, 2)


@pytest.mark.usefixtures("furnished")
def test_another_ledger_on_the_file_moves_this_one_on(ledger: Ledger, stored_in: Where, commit: Commit) -> None:
    forbid = Rule("no", "bob", frozenset({Action.SUBSCRIBE}), effect=Effect.FORBID)
    with Ledger.open(stored_in) as other:
        other.commit(Batch("administrator", (AddRule(rule("r")), Subscribe(Subscription("s", "bob", "news.Story")))))
        commit(AddRule(forbid, first=True), Unsubscribe("s"))
        other.commit(Batch("bob", (Subscribe(Subscription("s", "bob", "news.Story")),)))
        assert commit(AddRule(rule("q"))) == 5
        assert order(other) == order(ledger) == ["no", "r", "q"]
        assert other.state() == ledger.state()
        assert ledger.state().subscriptions["s"].first == 4


@pytest.mark.usefixtures("furnished")
def test_a_full_disk_keeps_nothing(ledger: Ledger, path: Path, commit: Commit) -> None:
    engine = ledger._storage.engine
    pages = 0

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages}")

    event.listen(engine, "connect", limit)
    with sqlite3.connect(path) as raw:
        pages = raw.execute("PRAGMA page_count").fetchone()[0] + 2
    engine.dispose()
    before = content(path)
    many = tuple(Subscribe(Subscription(f"s{i}", "bob", "news.Story")) for i in range(2000))
    with pytest.raises(StorageFull, match="nothing was kept") as refused:
        commit(*many)
    assert str(path) in str(refused.value)
    assert content(path) == before
    assert ledger.version == 1
    event.remove(engine, "connect", limit)
    engine.dispose()
    assert commit(*many) == 2
    ledger.check()


def test_a_held_lock_is_busy(path: Path) -> None:
    with Ledger.create(path, patience=0.2) as ledger:
        raw = sqlite3.connect(path, isolation_level=None)
        raw.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(StorageBusy, match="nothing was kept"):
            ledger.commit(Batch("administrator"))
        assert 0.1 < time.monotonic() - began < 5
        assert ledger.version == 0
        raw.execute("ROLLBACK")
        raw.close()
        assert ledger.commit(Batch("administrator")) == 1


@pytest.mark.usefixtures("furnished")
def test_a_commit_beside_many_subscriptions_is_quick(ledger: Ledger, commit: Commit) -> None:
    commit(*(Subscribe(Subscription(f"s{i}", "bob", "news.Story")) for i in range(20_000)))
    took = []
    for i in range(5):
        began = time.monotonic()
        commit(Subscribe(Subscription(f"n{i}", "bob", "news.Story")))
        took.append(time.monotonic() - began)
    assert min(took) < 0.05


def test_names_are_opened_and_closed_over_a_state_that_was_read(ledger: Ledger) -> None:
    ledger.commit(Batch(ADMINISTRATOR, (DeclareGroup("readers", open=True), DeclareRelation("Likes", open=True))))
    with Ledger.open(ledger.place) as again:
        assert isinstance(again.state().open_names, frozenset)
        again.commit(Batch(ADMINISTRATOR, (SetOpen("readers", False),)))
    with Ledger.open(ledger.place) as again:
        assert again.state().open_names == {"Likes"}
        assert ledger.state() == again.state()
