"""Roles in the ledger: kept for ever, said in words, as they were after a restart, whoever else writes."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import headgate
from headgate.lang import parse_condition
from headgate.lang.rolefile import parse_event_policy, parse_representative, parse_role, parse_rolefile
from headgate.ledger import Ledger, role_rows, schema
from headgate.model.changes import (
    AddMember,
    AddRow,
    AddRule,
    Batch,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    ElectRole,
    EndCredential,
    EnterRole,
    GrantRole,
    HearPeer,
    MirrorRole,
    PassRevocation,
    RemoveMember,
    RemovePrincipal,
    RevokeRole,
    SetEventPolicy,
    SetPeer,
    SetRepresentative,
    SetRolefile,
    Settle,
    Subscribe,
    Tick,
    WatchRecords,
)
from headgate.model.errors import BadDefinition, BadExpression, Damaged, RoleDenied, StorageFull
from headgate.model.expressions import Constant, Meta, RoleRef, Variable
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.roles import Ban, Election, Link, Membership, Op, Peer, Record, RoleFacts, reference
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.roles.records.book import Book
from headgate.storage.shared import Where
from strategies.roles import START

Commit = Callable[..., int]

MEETING = """
Chair <- Login.LoggedOn('ann', h)*
Member(u) <- Login.LoggedOn(u, h)* <|* Chair
Member(u) <- Login.LoggedOn(u, h)* : (u in staff)*
Speaker(u) <- Member(u)*
Guest(u) <- Login.LoggedOn(u, h)* |>* Chair
Nurse(u) <- Ward.Nurse(u)*
"""


@pytest.fixture
def meeting(commit: Commit) -> int:
    """Version 2: a meeting, its chair, and who is logged on."""
    commit(
        DeclareType(EventType("badge.Seen", ADMINISTRATOR, {"badge": Kind.STRING, "room": Kind.STRING})),
        *(DeclarePrincipal(name) for name in ("ann", "bob", "cat")),
        DeclareGroup("staff"),
        DeclareRelation("Above"),
    )
    return commit(
        SetRolefile("Conf", parse_rolefile(MEETING)),
        *(GrantRole(f"l-{name}", "Login", "LoggedOn", (name, "ely"), name) for name in ("ann", "bob", "cat")),
        EnterRole("chair", "Conf", "Chair", None, "ann", None, START),
    )


def enter(id: str, role: str, who: str, using: tuple[str, ...] | None = None) -> EnterRole:
    return EnterRole(id, "Conf", role, None, who, using, START)


def said(ledger: Ledger, version: int) -> list[str]:
    return [one.words for one in ledger.difference(version - 1, version)]


# -- rows -------------------------------------------------------------------------------------------------------


def test_every_fact_reads_back_as_it_was_written() -> None:
    args = (1, 1.0, True, "é\x00", None, frozenset("rw"), b"\xff", START + timedelta(microseconds=1))
    held = Membership(
        "m", "S", "R\x00", args, "ann", reference(3, 4), "in\x00", None, "R <- S*", ("a", "b"), True, START
    )
    assert repr(role_rows.MEMBERSHIP.load(role_rows.MEMBERSHIP.dump(held))) == repr(held)
    office = RoleRef("Chair", (Constant(True), Constant(frozenset("w"))), "S", Constant(""))
    needs = (RoleRef("L", (Variable("_"), Meta("client")), "T"), RoleRef("M", (), "S", Variable("x")))
    elected = Election("e", "S", "R", (None, 1), "ann", "m", office, 5, 6, "i", needs, START, True, ("bob",))
    assert repr(role_rows.ELECTION.load(role_rows.ELECTION.dump(elected))) == repr(elected)
    record = Record(reference(9, 2), Op.OR, (Link(reference(0, 1), True), Link(reference(1, 1))), None, "", direct=True)
    for one in (
        record,
        Record(7, state=False, permanent=True),
        Record(8, fact='["peer"]', latched=True, auto_revoke=True),
    ):
        assert role_rows.RECORD.load(role_rows.RECORD.dump(one)) == one
    ban = Ban("S", "i", "R", (True, "é"), "Hr.Chair")
    assert repr(role_rows.BAN.load(role_rows.BAN.dump(ban))) == repr(ban)
    assert role_rows.BAN.dump(ban) != role_rows.BAN.dump(replace(ban, args=(1, "é")))
    assert role_rows.BAN.dump(ban)["content"] == '["S","i","R",[true,"\\u00e9"],"Hr.Chair"]'  # as it always was
    given = replace(ban, args=(None, 2), by="jo", office=RoleRef("Chair", (Constant(1),), "Hr", Constant("")))
    assert role_rows.BAN.load(role_rows.BAN.dump(given)) == given
    peer = Peer("Ward", "did:key:z", "W", 5, "https://w", START, 7)
    assert role_rows.PEER.load(role_rows.PEER.dump(peer)) == peer


def test_what_would_not_read_back_is_refused(ledger: Ledger, commit: Commit, meeting: int) -> None:
    odd = Rule("r", "", frozenset({Action.SUBSCRIBE}), role=RoleRef("Member", (), "not a name"))
    with pytest.raises((BadDefinition, BadExpression)):
        commit(AddRule(odd))
    assert ledger.version == meeting


def test_what_policy_says_of_roles_is_kept(ledger: Ledger, stored_in: Where, commit: Commit, meeting: int) -> None:
    rule = Rule(
        *("r1", "", frozenset({Action.SUBSCRIBE}), "badge.Seen"),
        where=parse_condition("badge = $u"),
        role=parse_role("Conf.Member(u)"),
    )
    made = commit(
        AddRule(rule),
        Subscribe(Subscription("s1", "bob", "badge.Seen", counted=("l-bob",))),
        SetRepresentative(parse_representative("badge.Seen", {"user": "Above(badge)"})),
        SetEventPolicy(parse_event_policy("Seen(u, r) <= Conf.Member(u)\n-Seen(u, r) <= \n")),
    )
    with Ledger.open(stored_in) as again:
        state = again.state()
        assert state == ledger.state()
        assert state.rules[0].role == rule.role
        assert state.subscriptions["s1"].counted == ("l-bob",)
        assert len(state.roles.policy.entries) == 2
        assert again.policy_versions(meeting, made) == [made]
        assert "whoever holds `Conf.Member(u)` may subscribe `badge.Seen`" in " ".join(said(again, made))
        assert "event policy set, 2 entries" in said(again, made)
        assert again.state(meeting).roles.policy.entries == ()


def test_what_no_decision_looks_at_is_not_policy(ledger: Ledger, commit: Commit, meeting: int) -> None:
    quiet = commit(SetPeer(Peer("Ward", "did:key:z", "Ward", 20)), SetRolefile("Other", parse_rolefile("def A\n")))
    assert ledger.policy_versions(meeting, quiet) == []
    joined = commit(AddMember("staff", "ann"))
    held = commit(enter("m", "Member", "ann"))
    assert ledger.policy_versions(quiet, held) == [joined, held]


# -- what falls, and why ----------------------------------------------------------------------------------------


def test_what_falls_with_a_credential_falls_in_one_version_with_the_reason(
    ledger: Ledger, commit: Commit, meeting: int
) -> None:
    commit(AddMember("staff", "bob"), enter("m7", "Member", "bob"))
    commit(enter("m8", "Speaker", "bob"))
    version = commit(EndCredential("l-bob"))
    assert ledger.state().roles.held.get("bob") is None
    assert [ledger.endings(id) for id in ("l-bob", "m7", "m8")] == [
        [(version, "it was revoked")],
        [(version, "it rested on `l-bob`: it was revoked")],
        [(version, "it rested on `m7`")],
    ]
    assert said(ledger, version) == [
        "`bob` no longer holds `Login.LoggedOn('bob', 'ely')` (l-bob), ended: it was revoked",
        "`bob` no longer holds `Conf.Member('bob')` (m7), ended: it rested on `l-bob`: it was revoked",
        "`bob` no longer holds `Conf.Speaker('bob')` (m8), ended: it rested on `m7`",
    ]
    assert ledger.endings("chair") == []
    # Seen from afar the reason is the same; looked at backwards, there is none.
    assert said(ledger, version)[0] in [one.words for one in ledger.difference(meeting, version)]
    backwards = [one.words for one in ledger.difference(version, meeting) if one.kind == "membership"]
    assert backwards == ["`bob` holds `Login.LoggedOn('bob', 'ely')` (l-bob)"]


def test_many_are_ended_by_a_few_statements(
    ledger: Ledger, commit: Commit, meeting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.ledger.ledger.CLOSED_AT_ONCE", 3)
    names = [f"m{n}" for n in range(10)]
    commit(AddMember("staff", "bob"), *(enter(name, "Member", "bob") for name in names))
    version = commit(EndCredential("l-bob"))
    assert all(ledger.endings(name) == [(version, "it rested on `l-bob`: it was revoked")] for name in names)
    assert ledger.state(version) == ledger.state()
    assert set(ledger.state(version).roles.held) == {"ann", "cat"}
    assert len(ledger.state(version - 1).roles.held["bob"]) == 11


def test_a_history_tells_of_roles_elections_and_rules_for_roles(ledger: Ledger, commit: Commit, meeting: int) -> None:
    outside = commit(AddRule(Rule("r0", "", frozenset({Action.SUBSCRIBE}), role=parse_role("Conf.Member('bob')"))))
    elected = commit(ElectRole("e1", "Conf", "Member", ("bob",), "ann", None, START))
    held = commit(enter("m7", "Member", "bob", ("l-bob", "e1")))
    ruled = commit(AddRule(Rule("r1", "", frozenset({Action.SUBSCRIBE}), role=parse_role("Conf.Member('bob')"))))
    lost = commit(EndCredential("e1", "ann"))
    bob = {entry.version: " ".join(entry.words) for entry in ledger.history("bob")}
    assert outside not in bob
    assert bob[held] == "`bob` holds `Conf.Member('bob')` (m7)"
    assert "rule `r1` added: whoever holds `Conf.Member('bob')`" in bob[ruled]
    assert bob[lost] == "`bob` no longer holds `Conf.Member('bob')` (m7), ended: it rested on `e1`"
    ann = {entry.version: " ".join(entry.words) for entry in ledger.history("ann")}
    assert ann[elected] == "`ann` elects to `Conf.Member('bob')` (e1)"
    assert ann[lost] == "`ann` no longer elects to `Conf.Member('bob')` (e1), ended: the elector revoked it"
    assert ruled not in ann


def test_doubt_and_its_end_are_told(ledger: Ledger, commit: Commit, meeting: int) -> None:
    commit(SetPeer(Peer("Ward", "did:key:z", "Ward", 20)), HearPeer("Ward", 1, {}, START))
    commit(MirrorRole("n", "Ward", "Nurse", ("cat",), "cat", 5, True, START))
    commit(enter("m", "Nurse", "cat"))
    before = list(ledger.state().roles.held["cat"])
    lost = commit(Tick(START + timedelta(seconds=60)))
    assert said(ledger, lost) == [
        "it is not known now whether `cat` holds `Conf.Nurse('cat')` (m)",
        "it is not known now whether `cat` holds `Ward.Nurse('cat')` (n)",
    ]
    healed = commit(HearPeer("Ward", 2, {5: True}, START + timedelta(seconds=61)))
    assert said(ledger, healed) == [
        "`cat` holds `Conf.Nurse('cat')` (m) again",
        "`cat` holds `Ward.Nurse('cat')` (n) again",
    ]
    heard = commit(HearPeer("Ward", 3, {}, START + timedelta(seconds=62)))
    assert said(ledger, heard) == []  # a sign of life is no change
    assert list(ledger.state().roles.held["cat"]) == before
    assert list(ledger.state(lost).roles.held["cat"]) == before


def test_bans_revokers_and_watches_are_kept(ledger: Ledger, stored_in: Where, commit: Commit, meeting: int) -> None:
    commit(enter("g", "Guest", "bob"), ElectRole("e", "Conf", "Member", None, "ann", None, START))
    commit(GrantRole("c2", "Conf", "Chair", (), "cat"), PassRevocation("e", "ann", "cat"))
    record = ledger.state().roles.memberships["g"].record
    commit(WatchRecords("did:key:other", (record,)))
    assert ledger.record_state(record) is True
    banned = commit(RevokeRole("Conf", "Guest", ("bob",), "ann", None, START))
    assert "revoked: `Conf.Guest('bob')`, by `ann` as `Chair`" in said(ledger, banned)
    with Ledger.open(stored_in) as again:
        assert again.state() == ledger.state()
        assert again.state().roles.elections["e"].revokers == ("cat",)
        assert again.record_state(record) is False
        assert again.record_state(reference(999, 1)) is False
        with pytest.raises(RoleDenied, match="was revoked"):
            again.commit(Batch(ADMINISTRATOR, (enter("g2", "Guest", "bob"),)))


def test_an_id_that_is_used_again_comes_last(ledger: Ledger, stored_in: Where, commit: Commit, meeting: int) -> None:
    with Ledger.open(stored_in) as follower:
        for name in ("a", "b"):
            commit(GrantRole(name, "Login", "LoggedOn", ("ann", name), "ann"))
        assert follower.state().roles.held["ann"] == ("l-ann", "chair", "a", "b")
        commit(EndCredential("a"))
        commit(GrantRole("a", "Login", "LoggedOn", ("ann", "new"), "ann"))
        assert follower.state().roles.held["ann"] == ("l-ann", "chair", "b", "a")
    assert ledger.state(ledger.version).roles.held["ann"] == ("l-ann", "chair", "b", "a")
    assert len(ledger.endings("a")) == 1
    commit(EndCredential("a"))
    commit(*(GrantRole(name, "Login", "LoggedOn", ("ann", name), "ann") for name in ("c", "a")))
    assert ledger.state(ledger.version).roles.held["ann"] == ("l-ann", "chair", "b", "c", "a")
    assert ledger.state() == ledger.state(ledger.version)


def test_a_principal_that_is_in_a_group_can_be_removed(ledger: Ledger, commit: Commit, meeting: int) -> None:
    commit(AddMember("staff", "bob"), enter("m", "Member", "bob"))
    version = commit(RemovePrincipal("bob"))
    assert ledger.endings("m") == [(version, "its holder is no more")]
    assert ledger.state(version).groups["staff"] == frozenset()


# -- committing -------------------------------------------------------------------------------------------------


def test_what_becomes_of_roles_is_not_taken_from_outside(ledger: Ledger, commit: Commit, meeting: int) -> None:
    with pytest.raises(BadDefinition, match="worked out here"):
        commit(Settle(RoleFacts(memberships=(Membership("x", "Conf", "Chair", (), "bob", reference(0, 2)),))))
    assert ledger.version == meeting


def test_functions_are_asked_of_the_ledger(ledger: Ledger, commit: Commit, meeting: int) -> None:
    ledger.functions = lambda state: {"is_open": lambda: "cat" in state.principals}
    commit(SetRolefile("Hall", parse_rolefile("Visitor(u) <- Login.LoggedOn(u, h)* : is_open()\n")))
    commit(EnterRole("v", "Hall", "Visitor", None, "bob", None, START))
    assert ledger.state().roles.memberships["v"].args == ("bob",)


def test_a_refused_batch_and_a_failed_write_leave_roles_as_they_were(
    ledger: Ledger, path: Path, commit: Commit, meeting: int
) -> None:
    commit(AddMember("staff", "bob"), enter("m", "Member", "bob"))
    before, version = ledger.state(), ledger.version
    with pytest.raises(RoleDenied):
        commit(EndCredential("l-bob"), enter("x", "Speaker", "cat"))
    assert ledger.state() == before
    with ledger._storage.writing() as connection:
        pages = connection.exec_driver_sql("pragma page_count").scalar()
        connection.exec_driver_sql(f"pragma max_page_count = {pages}")
    many = [GrantRole(f"x{n}", "Login", "LoggedOn", ("cat", "x" * 900), "cat") for n in range(200)]
    with pytest.raises(StorageFull):
        commit(EndCredential("l-bob"), *many)
    assert (ledger.version, ledger.state()) == (version, before)
    with Ledger.open(path) as again:
        assert again.commit(Batch(ADMINISTRATOR, (RemoveMember("staff", "bob"),))) == version + 1
        assert again.endings("m") == [(version + 1, "`'bob' in staff` no longer holds")]
    # The first has a book of the version before, and finds that another moved on.
    assert "m" not in ledger.state().roles.memberships
    assert ledger.commit(Batch(ADMINISTRATOR, (AddRow("Above", ("a", "b")),))) == version + 2


def test_the_graph_is_as_it_was_after_a_restart(ledger: Ledger, stored_in: Where, commit: Commit, meeting: int) -> None:
    commit(AddMember("staff", "bob"), enter("m", "Member", "bob"))
    commit(enter("s", "Speaker", "bob"))
    kept = ledger._book
    assert kept is not None
    with Ledger.open(stored_in) as again:
        anew = Book(again.state())
        assert list(anew.records.records()) == list(kept.records.records())
        assert anew.index.users == kept.index.users
        again.commit(Batch(ADMINISTRATOR, (RemoveMember("staff", "bob"),)))
        assert "s" not in again.state().roles.memberships
        again.check()


@pytest.mark.parametrize(
    "harm",
    [
        "delete from records where ref = (select record from memberships where id = 'm')",
        "update records set state = null where ref = (select record from memberships where id = 'm')",
        "update records set parents = '[1]' where parents != '[]'",
        "update records set op = 'xor'",
        "update memberships set args = '[{}]' where id = 'm'",
        "update memberships set supports = '{' where id = 'm'",
        "update rolefiles set text = '\"Chair <-- \"'",
        "update memberships set to_version = 99 where id = 'm'",
        "insert into bans (digest, content, from_version) values ('x', '[]', 1)",
        "insert into elections (id, rank, elector, content, from_version) values ('x', 1, 'ann', '{}', 1)",
    ],
)
def test_harm_to_roles_is_found(ledger: Ledger, path: Path, commit: Commit, meeting: int, harm: str) -> None:
    commit(AddMember("staff", "bob"), enter("m", "Member", "bob"))
    ledger.close()
    with sqlite3.connect(path) as raw:
        assert raw.execute(harm).rowcount > 0
    raw.close()
    with Ledger.open(path) as again, pytest.raises(Damaged) as refused:
        again.check()
    assert str(path) in str(refused.value)


# -- the format before ------------------------------------------------------------------------------------------


def as_before(path: Path, format: int = 3) -> None:
    """Make a ledger one of an earlier format; of 3, as if it had never known of roles."""
    with sqlite3.connect(path) as raw:
        for since in range(format + 1, schema.FORMAT + 1):
            for table, column in schema.NEW_COLUMNS[since]:
                raw.execute(f"alter table {table.name} drop column {column}")
        for since in range(format + 1, schema.FORMAT + 1):
            for table in schema.NEW_TABLES[since]:
                raw.execute(f"drop table {table.name}")
        raw.execute("update meta set value = ? where name = 'format'", (str(format),))
    raw.close()


@pytest.fixture
def old(ledger: Ledger, path: Path, furnished: int, commit: Commit) -> Path:
    """A closed ledger of format 3."""
    commit(
        AddRule(Rule("r1", "staff", frozenset({Action.SUBSCRIBE}), "news.Story")),
        Subscribe(Subscription("s1", "bob", "news.Story")),
    )
    ledger.close()
    as_before(path)
    return path


def test_a_ledger_of_the_format_before_is_brought_to_this_one(old: Path) -> None:
    with Ledger.open(old) as ledger:
        ledger.check()
        assert ledger.version == 2
        state = ledger.state()
        assert (state.rules[0].role, state.subscriptions["s1"].counted) == (None, None)
        ledger.commit(Batch(ADMINISTRATOR, (GrantRole("l", "Login", "LoggedOn", ("bob",), "bob"),)))
    with Ledger.open(old) as again:
        assert again.state().roles.held == {"bob": ("l",)}
        assert again.state(2) == state


def test_a_ledger_of_format_4_keeps_its_roles(ledger: Ledger, path: Path, furnished: int, commit: Commit) -> None:
    commit(GrantRole("l", "Login", "LoggedOn", ("bob",), "bob"))
    state = ledger.state()
    ledger.close()
    as_before(path, 4)
    with Ledger.open(path) as again:
        again.check()
        assert again.state() == state


def test_a_damaged_ledger_of_the_format_before_stays_as_it_is(old: Path) -> None:
    with sqlite3.connect(old) as raw:
        raw.execute("drop table members")
    raw.close()
    with pytest.raises(Damaged, match="lacks the table `members`"):
        Ledger.open(old)
    with sqlite3.connect(old) as raw:
        assert raw.execute("select value from meta where name = 'format'").fetchone() == ("3",)
        tables = {row[0] for row in raw.execute("select name from sqlite_master where type = 'table'")}
    raw.close()
    assert not tables & {one.table.name for one in role_rows.ROLES}


# -- processes --------------------------------------------------------------------------------------------------


@contextmanager
def process(program: str, *args: object) -> Iterator[subprocess.Popen[str]]:
    """A process that has this module, started fresh."""
    head = "import sys\nsys.path[:0] = sys.argv[1:4]\nfrom test_roles import *\n"
    here = Path(__file__).parent
    paths = map(str, (Path(headgate.__file__).parents[1], here, here.parents[1]))
    command = [sys.executable, "-c", head + textwrap.dedent(program), *paths, *map(str, args)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


UPGRADER = """
    from headgate.ledger import checks

    whole, where = checks.upgrade, sys.argv[4]

    def upgrade(connection, place):
        whole(connection, place)
        print("before the end", flush=True)
        sys.stdin.readline()

    checks.upgrade = upgrade
    Ledger.open(where)
"""


def test_an_upgrade_that_is_killed_has_not_begun(old: Path) -> None:
    with process(UPGRADER, old) as upgrading:
        assert upgrading.stdout is not None
        assert upgrading.stdout.readline() == "before the end\n"
        os.kill(upgrading.pid, signal.SIGKILL)
        upgrading.wait(30)
    with sqlite3.connect(old) as raw:
        assert raw.execute("select value from meta where name = 'format'").fetchone() == ("3",)
    raw.close()
    with Ledger.open(old) as ledger:
        ledger.check()


WRITER = """
    path, name, count = sys.argv[4], sys.argv[5], int(sys.argv[6])
    with Ledger.open(path) as ledger:
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(count):
            mine = f"{name}{n}"
            speaks = enter(f"{mine}s", "Speaker", name, (mine,))
            ledger.commit(Batch(ADMINISTRATOR, (enter(mine, "Member", name), speaks)))
            print(mine, flush=True)
            if n % 2:
                ledger.commit(Batch(ADMINISTRATOR, (EndCredential(mine),)))
                print(f"-{mine}", flush=True)
"""


def start(*writers: subprocess.Popen[str]) -> None:
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()


def test_two_processes_give_and_take_roles_at_once(
    ledger: Ledger, stored_in: Where, commit: Commit, meeting: int
) -> None:
    commit(AddMember("staff", "bob"), AddMember("staff", "cat"))
    count = 4
    with process(WRITER, stored_in, "bob", count) as one, process(WRITER, stored_in, "cat", count) as two:
        start(one, two)
        for writer in (one, two):
            writer.communicate(timeout=120)
            assert writer.returncode == 0
    assert ledger.version == meeting + 1 + 2 * (count + count // 2)
    for name in ("bob", "cat"):
        left = [id for n in range(0, count, 2) for id in (f"{name}{n}", f"{name}{n}s")]
        assert ledger.state().roles.held[name] == (f"l-{name}", *left)
        assert [version for n in range(1, count, 2) for version, _ in ledger.endings(f"{name}{n}s")]
    records = [one.record for one in ledger.state().roles.memberships.values()]
    assert len(records) == len(set(records))
    ledger.check()
    version = commit(EndCredential("l-bob"), EndCredential("l-cat"))
    assert set(ledger.state(version).roles.held) == {"ann"}


def test_what_a_killed_process_revoked_stays_revoked(
    ledger: Ledger, stored_in: Where, commit: Commit, meeting: int
) -> None:
    commit(AddMember("staff", "bob"))
    with process(WRITER, stored_in, "bob", 10_000) as writer:
        start(writer)
        assert writer.stdout is not None
        lines = [writer.stdout.readline().strip() for _ in range(7)]
        os.kill(writer.pid, signal.SIGKILL)
        lines += writer.stdout.read().split("\n")[:-1]
    gone = [line[1:] for line in lines if line.startswith("-")]
    assert gone
    with Ledger.open(stored_in) as again:
        again.check()
        state = again.state()
        ever = {
            one.id: one.record for v in range(again.version + 1) for one in again.state(v).roles.memberships.values()
        }
        for name in gone:
            assert name not in state.roles.memberships
            assert again.record_state(ever[name]) is False
            assert again.record_state(ever[f"{name}s"]) is False
        for name in {line for line in lines if not line.startswith("-")} - set(gone):
            # Acknowledged, and taken back at most by the one batch that was under way.
            assert name in state.roles.memberships or again.endings(name) == [(again.version, "it was revoked")]
        assert list(Book(state).records.records()) == sorted(state.roles.records.values(), key=lambda one: one.ref)
