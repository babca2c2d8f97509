"""A ledger that an earlier Headgate wrote opens, means what it meant, and is what this one would write.

`files/format-5.sql` was written by Headgate before the collections of the ledger were described in one place, out of
the batches below, and `files/format-5.txt` is what it said of them in words. Neither is ever made anew.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.lang import parse_condition
from headgate.lang.rolefile import parse_event_policy, parse_representative, parse_role, parse_rolefile
from headgate.ledger import Ledger
from headgate.ledger.load import preview
from headgate.model import changes as c
from headgate.model.authority import (
    AttributeMap,
    Certificate,
    Identity,
    Issuing,
    NetworkAuthority,
    Provider,
    RevocationList,
    Succession,
    TypeAuthority,
    Validity,
)
from headgate.model.changes import Batch, Change
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.roles import Peer, reference
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.roles.requests.transition import transition

FILES = Path(__file__).parent / "files"
START = datetime(2026, 1, 1, 9, tzinfo=UTC)
KEYS = tuple(f"did:key:z6Mk{'a' * 43}{n}" for n in "123456789")
SEES, SENDS = frozenset({Action.SUBSCRIBE}), frozenset({Action.PUBLISH})
MEETING = """
Chair <- Login.LoggedOn('ann', h)*
Member(u) <- Login.LoggedOn(u, h)* <|* Chair
Member(u) <- Login.LoggedOn(u, h)* : (u in staff)*
Speaker(u) <- Member(u)*
Guest(u) <- Login.LoggedOn(u, h)* |>* Chair
Nurse(u) <- Ward.Nurse(u)*
"""
STORY = EventType("news.Story", "ann", {"title": Kind.STRING, "price": Kind.FLOAT, "hits": Kind.INT}, key=("title",))


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def enter(id: str, role: str, who: str, using: tuple[str, ...] | None = None) -> c.EnterRole:
    return c.EnterRole(id, "Conf", role, None, who, using, START)


def certificate(id: str, subject: str, *, until: float | None = None, freshness: int | None = None) -> Certificate:
    over = TypeAuthority(
        actions=SEES,
        type="news.Story",
        owner=None,
        attributes=("title", "hits"),
        forced={"hits": 3},
        where=parse_condition("hits > 1"),
    )
    network = NetworkAuthority(frozenset({Action.CONNECT}), "uk")
    valid = Validity(None, None if until is None else at(until))
    return Certificate(id, KEYS[0], subject, (over, network), True, valid, freshness)


def identity(id: str, *, rank: int, until: float) -> Identity:
    rule = parse_condition("$rank >= 2")
    return Identity(id, KEYS[3], KEYS[1], {"rank": rank, "été": 1.5}, Validity(at(0), at(until)), rule)


def batches() -> Iterator[tuple[Change, ...]]:
    """Some of everything that a ledger of format 5 holds; each is a version."""
    yield (
        *(c.DeclarePrincipal(name) for name in ("ann", "cat")),
        c.DeclarePrincipal("bob", {"clearance": 1, "ratio": 0.1, "born": START, "badge": b"\xff"}),
        c.DeclareType(STORY),
        c.DeclareType(EventType("news.Flash", "ann", {"late": Kind.TIMESTAMP}, "news.Story")),
        c.DeclareType(EventType("badge.Seen", ADMINISTRATOR, {"badge": Kind.STRING, "room": Kind.STRING})),
        c.DeclareGroup("staff"),
        c.DeclareGroup("editors", open=True),
        c.DeclareRelation("Knows"),
        c.DeclareRelation("Above", open=True),
        c.RegisterPredicate("near", "places:near", "00" * 32),
    )
    yield (
        c.SetKey("ann", KEYS[0]),
        c.SetKey("bob", KEYS[1]),
        c.SetConnect(True),
        c.SetNames(True),
        c.SetPrivate("clearance", True),
        c.SetNetwork("uk"),
        c.AddMember("staff", "bob"),
        c.AddMember("staff", "room 7", value=True),
        c.AddMember("editors", "staff"),
        c.AddRow("Knows", (1, "x")),
        c.AddRow("Above", (True, 1.5, "é\n", START)),
    )
    yield (
        c.AddRule(Rule("r1", "staff", SEES, "news.Story", parse_condition("price > 1.5 and title != 'é'"))),
        c.AddRule(Rule("r2", "bob", SENDS, "news.*", attributes=("hits", "title"), forced={"hits": 7})),
        c.AddRule(Rule("r3", "ann", SENDS, "*", attested=True)),
        c.AddRule(Rule("r4", "cat", SEES, "news.Story", effect=Effect.FORBID, disclose=True), first=True),
        c.AddRule(Rule("r5", "", SEES, "badge.Seen", role=parse_role("Conf.Member('bob')"))),
        c.SetPolicyRule("cat", parse_condition("$clearance > 0")),
    )
    yield (
        c.Subscribe(Subscription("s1", "bob", "news.Story", parse_condition("hits in {1, 2}"), history=True)),
        c.Subscribe(
            Subscription(
                id="s2",
                principal="cat",
                type="news.Story",
                history=True,
                since_version=2,
                since_time=at(-60),
                requires=parse_condition("$rank = 1"),
                origin="10.0.0.1",
            )
        ),
        c.Advertise("bob", "news.Story"),
        c.Withdraw("bob"),
    )
    yield (
        c.SetProvider(Provider(KEYS[3], "home")),
        c.SetProvider(Provider(KEYS[4], "abroad", (AttributeMap("rank", "level", ((1, "low"), (2.5, True))),))),
        c.SetCoordinator(KEYS[0]),
        c.AddIssuing(Issuing("members", "staff", certificate("x", KEYS[5]).authority, 600, True)),
        c.Present("bob", (certificate("c1", KEYS[1]), certificate("c2", KEYS[1], until=50)), at(1)),
        c.Identify("bob", identity("i1", rank=2, until=100), at(1)),
    )
    yield (
        c.SetRolefile("Conf", parse_rolefile(MEETING)),
        *(c.GrantRole(f"l-{name}", "Login", "LoggedOn", (name, 1.0), name) for name in ("ann", "bob", "cat")),
        c.GrantRole("q", "Login", "Doctor", (frozenset("rw"), True), "cat", "night", appointment=True, until=at(900)),
        enter("chair", "Chair", "ann"),
        c.SetPeer(Peer("Ward", KEYS[6], "Ward", 20, "https://ward.example")),
        c.HearPeer("Ward", 1, {}, START),
    )
    yield (
        c.MirrorRole("n", "Ward", "Nurse", ("cat",), "cat", 5, True, START),
        c.ElectRole("e", "Conf", "Member", None, "ann", None, START, (parse_role("Login.LoggedOn(_, 1.0)"),), at(800)),
        c.GrantRole("c2", "Conf", "Chair", (), "cat"),
        enter("m", "Member", "bob"),
        enter("g", "Guest", "bob"),
        enter("w", "Nurse", "cat"),
    )
    yield (
        enter("s", "Speaker", "bob"),
        c.PassRevocation("e", "ann", "cat"),
        c.WatchRecords(KEYS[8], (reference(0, 6), reference(4, 6))),
        c.SetRepresentative(parse_representative("badge.Seen", {"user": "Above(badge)", "room": "room"})),
        c.SetEventPolicy(parse_event_policy("badge.Seen(u, r) <= Conf.Member(u)\n-badge.Seen(u, r) <= \n")),
        c.Subscribe(Subscription("s3", "bob", "badge.Seen", counted=("m",))),
    )
    yield (c.Tick(at(60)),)
    yield (
        c.HearPeer("Ward", 2, {5: True}, at(61)),
        c.RevokeRole("Conf", "Guest", ("bob",), "ann", None, at(61)),
        c.Revoke(RevocationList(KEYS[0], 1, at(61), frozenset({"c9"})), at(61)),
        c.Succeed(Succession(KEYS[0], KEYS[7], 1, at(5_000)), at(61)),
    )
    yield (
        c.RemoveMember("staff", "bob"),
        c.RemoveRow("Knows", (1, "x")),
        c.AddRow("Knows", (True, "x")),
        c.SetAttribute("bob", "ratio", None),
        c.SetOpen("staff", True),
        c.DeclareType(EventType("news.Story", "ann", {**STORY.attributes, "gained": Kind.INT}, key=("title",))),
        c.AddRule(Rule("r1", "staff", SEES, "news.Story")),
        c.Withdraw("bob"),
    )
    yield (
        c.WatchRecords(KEYS[8], (reference(4, 6),), watching=False),
        c.Unsubscribe("s1"),
        c.Unadvertise("bob", "news.Story"),
        c.RemoveRule("r4"),
        c.RetireType("news.Flash"),
        c.RemovePredicate("near"),
        c.SetPrivate("clearance", False),
        c.Tick(at(200)),
        c.EndCredential("l-bob"),
    )
    yield (
        c.RemovePrincipal("cat"),
        c.SetPolicyRule("bob", None),
        c.RemoveProvider(KEYS[4]),
        c.RemoveIssuing("members"),
        c.SetCoordinator(None),
        c.RemovePeer("Ward"),
        c.SetConnect(False),
        c.SetEventPolicy(parse_event_policy("")),
    )


def written() -> Iterator[tuple[Batch, datetime]]:
    """The batches, and when each was committed."""
    for number, changes in enumerate(batches(), 1):
        yield Batch(ADMINISTRATOR, changes, f"batch {number}, é"), at(number)


def made(path: Path) -> None:
    """Write the ledger with this Headgate."""
    times = [START]
    with Ledger.create(path, clock=lambda: times[-1]) as ledger:
        for batch, now in written():
            times.append(now)
            ledger.commit(batch)
        ledger.record_starting_point("main", 1, 5)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the ledger as it was written."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript((FILES / "format-5.sql").read_text("utf-8"))
    return path


def test_every_version_of_an_old_ledger_means_what_it_meant(old: Path) -> None:
    state = State()
    with Ledger.open(old) as ledger:
        ledger.check()
        assert ledger.state(0) == state
        for batch, now in written():
            outcome = transition(state, batch, now=now)
            state = outcome.after
            assert ledger.state(state.version) == state
        assert ledger.state() == state


def test_what_an_old_ledger_says_is_what_it_said(old: Path) -> None:
    with Ledger.open(old) as ledger:
        lines = [
            f"{version} {one.kind} | {one.name} | {one.before} | {one.after} | {one.words}"
            for version in range(1, ledger.version + 1)
            for one in ledger.difference(version - 1, version)
        ]
        lines += [
            f"{name} {entry.version} {entry.note} | {words}"
            for name in ("ann", "bob", "cat")
            for entry in ledger.history(name)
            for words in entry.words
        ]
    assert lines == (FILES / "format-5.txt").read_text("utf-8").splitlines()


def test_a_preview_says_what_the_old_ledger_says_afterwards(old: Path) -> None:
    state = State()
    with Ledger.open(old) as ledger:
        for batch, now in written():
            outcome = transition(state, batch, now=now)
            assert preview(state, outcome.after, outcome.batch) == ledger.difference(state.version, state.version + 1)
            state = outcome.after


def rows(path: Path) -> dict[str, list[str]]:
    """Every row of every table, without the numbers that the database gave them."""
    with closing(sqlite3.connect(path)) as raw:
        raw.row_factory = sqlite3.Row
        names = [row[0] for row in raw.execute("select name from sqlite_master where type = 'table'")]
        return {
            name: sorted(
                repr(sorted((column, value) for column, value in dict(row).items() if column != "row"))
                for row in raw.execute(f"select * from {name}")
                if "headgate" not in tuple(row)
            )
            for name in sorted(names)
            if not name.startswith("sqlite_")
        }


def test_this_headgate_writes_the_same_rows(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    made(new)
    Ledger.open(old).close()  # which brings it to this format
    assert rows(new) == rows(old)


def test_an_old_ledger_goes_on(old: Path) -> None:
    with Ledger.open(old) as ledger, Ledger.open(old) as follower:
        before = follower.state()
        version = ledger.commit(
            Batch(ADMINISTRATOR, (c.AddMember("staff", "ann"), enter("again", "Member", "ann"), c.RemoveRule("r3")))
        )
        assert follower.state() == ledger.state(version) == ledger.state()
        assert ledger.state(before.version) == before
        ledger.check()
