"""Other domains that follow our records: who may, what they are told, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.commands.peer_roles import (
    ALL,
    HEARTBEAT,
    MODIFIED,
    NOTICE,
    allowing,
    check_may_follow,
    declaring,
    wanted,
)
from headgate.commands.publishing.stream_writer import StreamWriter
from headgate.commands.publishing.submissions import Submission, SubmissionOutcome
from headgate.gateway.http.worker_pool import Workers
from headgate.gateway.publishing.writer import Writer
from headgate.gateway.roles.announcing import Announcer
from headgate.lang import parse_condition
from headgate.model.changes import (
    AddRule,
    Batch,
    Change,
    DeclarePrincipal,
    DeclareType,
    EndCredential,
    GrantRole,
    RemovePrincipal,
    RemoveRule,
    RetireType,
    SetConnect,
    WatchRecords,
)
from headgate.model.errors import BadDefinition, StorageBusy, SubscribeDenied, TooBusy
from headgate.model.limits import MAX_WATCHER_SILENCE_SECONDS
from headgate.model.rights import Action, Rule
from headgate.model.roles import Reference, reference
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.domain import Domain, Follower
from headgate.node.peers import Row, Watchers
from headgate.pipeline.log.event_log import EventLog
from headgate.storage.shared import Where
from strategies.role_serving import Office, denial, office
from strategies.serving import eventually

START = datetime(2026, 1, 1, tzinfo=UTC)
PAIR = ("cl", "Login")
R, S = reference(1, 1), reference(2, 1)
RECORD = {"record": "1.1", "role": "LoggedOn", "args": ["anna", "ely"]}


# -- who may follow -------------------------------------------------------------------------------------------


def then(state: State, *changes: Change) -> State:
    from headgate.roles.requests.transition import next_state

    return next_state(state, Batch(ADMINISTRATOR, changes))


def world(*changes: Change) -> State:
    return then(State(administrator=ADMINISTRATOR), DeclarePrincipal("cl"), DeclarePrincipal("eve"), *changes)


def rule(where: str = "true", may: str = "subscribe", type: str = ALL, **more: Any) -> AddRule:
    condition = parse_condition(where)
    return AddRule(Rule(f"{type} {where}", "cl", frozenset({Action(may)}), type, condition, **more))


def may(state: State, who: str = "cl", service: str = "Login") -> bool:
    try:
        check_may_follow(state, (who, service), {}, START)
    except SubscribeDenied:
        return False
    return True


def test_who_may_see_what_it_would_be_told_may_follow_and_nobody_else() -> None:
    assert not may(world())
    state = world()
    allowed = then(state, *allowing(state, "cl", "Login"))
    assert may(allowed)
    assert not may(allowed, "eve")
    assert not may(allowed, service="Conf")
    assert allowing(allowed, "cl", "Login") == ()
    assert not may(then(allowed, RemoveRule("cl follows Login")))


def test_a_rule_that_was_there_before_the_types_is_enough_and_one_that_hides_something_is_not() -> None:
    assert may(world(rule()))
    assert not may(world(rule(attributes=("watcher", "service", "number"))))
    assert not may(world(rule("watcher = 'other'")))
    assert not may(world(rule(may="publish")))


def test_a_name_with_quotes_is_a_name() -> None:
    state = world(DeclarePrincipal("o'cl"))
    assert may(then(state, *allowing(state, "o'cl", "Log'in")), "o'cl", "Log'in")
    parse_condition(wanted("o'cl", "Log'in"))


def test_a_type_of_that_name_that_is_another_is_refused() -> None:
    state = world(DeclareType(EventType(NOTICE, "eve", {"n": Kind.INT})))
    with pytest.raises(BadDefinition, match="another type"):
        declaring(state)


# -- what is remembered ---------------------------------------------------------------------------------------


@pytest.fixture
def watchers(stored_in: Where) -> Iterator[Watchers]:
    made = Watchers(stored_in)
    yield made
    made.close()


def test_before_an_epoch_nothing_is_told(watchers: Watchers) -> None:
    with pytest.raises(TooBusy):
        watchers.read(PAIR, START)
    with pytest.raises(TooBusy):
        watchers.watch(PAIR, {R: True}, START)
    assert watchers.rows() == []


def test_numbers_and_states_are_one_write_and_shared(watchers: Watchers, stored_in: Where) -> None:
    watchers.begin("a", list, START)
    watchers.watch(PAIR, {R: True, S: None}, START)
    made = watchers.announce([Row(PAIR, R, False), Row(PAIR, S, True)], START + timedelta(seconds=1))
    assert [(pair, one.number, one.state) for pair, one in made] == [(PAIR, 1, False), (PAIR, 2, True)]
    other = Watchers(stored_in)
    read = other.read(PAIR, START)
    assert (read.epoch, read.number, read.at) == ("a", 2, START + timedelta(seconds=1))
    assert dict(read.states) == {R: False, S: True}
    other.close()


def test_what_is_told_is_what_was_announced_and_not_what_is_newer(watchers: Watchers) -> None:
    watchers.begin("a", list, START)
    watchers.watch(PAIR, {R: True}, START)
    assert dict(watchers.watch(PAIR, {R: None, S: False}, START).states) == {R: True, S: False}


def test_a_new_epoch_begins_with_what_the_ledger_says(watchers: Watchers) -> None:
    watchers.begin("a", list, START)
    watchers.watch(PAIR, {R: True}, START)
    watchers.announce([Row(PAIR, R, None)], START)
    watchers.begin("b", lambda: [Row(PAIR, S, True)], START)
    read = watchers.read(PAIR, START)
    assert (read.epoch, read.number, dict(read.states)) == ("b", 0, {S: True})


def test_numbers_are_of_each_who_follows_each_service(watchers: Watchers) -> None:
    pairs = [PAIR, ("cl", "Conf"), ("eve", "Login")]
    watchers.begin("a", lambda: [Row(pair, R, True) for pair in pairs], START)
    made = watchers.announce([Row(pair, R, None) for pair in pairs], START)
    assert [one.number for _, one in made] == [1, 1, 1]
    watchers.forget_watcher(PAIR)
    assert set(watchers.pairs()) == {("cl", "Conf"), ("eve", "Login")}


# -- announcing -----------------------------------------------------------------------------------------------


class Node:
    """A domain whose records are followed, with the time and the log in the test's hands."""

    def __init__(self, directory: Path) -> None:
        self.domain = Domain.create(directory / "data")
        self.follower = Follower(self.domain)
        self.watchers = Watchers(directory / "watchers.db")
        self.directory = directory
        self.now = START
        self.broken = False
        self.commit(DeclarePrincipal("cl"), DeclarePrincipal("ann"), SetConnect(True))
        log = EventLog.open(self.domain.paths.log)
        core = StreamWriter(self.domain, self.follower, log, "main", window=600, lease=600, clock=lambda: self.now)
        self.writer = Writer(core, Workers())
        self.writer.start()
        self.announcer = self.another()

    def another(self) -> Announcer:
        gateway: Any = SimpleNamespace(
            domain=self.domain,
            follower=self.follower,
            watchers=self.watchers,
            writer=SimpleNamespace(publish=self.publish),
            run_blocking=self.run,
            files=SimpleNamespace(data=self.directory),
            config=SimpleNamespace(roles=SimpleNamespace(heartbeat=5.0)),
            clock=lambda: self.now,
        )
        made = Announcer(gateway)
        made.begin()
        return made

    async def run(self, work: Any, *args: Any) -> Any:
        return work(*args)

    async def publish(self, submission: Submission) -> SubmissionOutcome:
        if self.broken:
            raise StorageBusy("the log is held")
        return await self.writer.publish(submission)

    def commit(self, *changes: Change) -> None:
        self.domain.commit(Batch(ADMINISTRATOR, changes))

    def grant(self, id: str) -> Reference:
        self.commit(GrantRole(id, "Login", "LoggedOn", (id,), "ann"))
        return self.domain.ledger.state().roles.memberships[id].record

    def follow(self, *records: Reference) -> None:
        self.commit(WatchRecords("cl", records))
        self.follower.refresh()
        self.watchers.watch(PAIR, dict.fromkeys(records, True), self.now)

    def round(self, seconds: float = 0.0) -> None:
        self.now += timedelta(seconds=seconds)
        while asyncio.run(self.announcer.round()):
            pass

    def said(self, type: str) -> list[dict[str, Any]]:
        return [dict(one.values) for one in self.domain.events() if one.type == type]

    def close(self) -> None:
        self.writer.stop()
        self.watchers.close()
        self.follower.close()
        self.domain.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


def test_nobody_follows_and_nothing_is_said_or_declared(node: Node) -> None:
    node.round(60)
    assert node.domain.events() == []
    assert NOTICE not in node.domain.ledger.state().types


def test_a_change_is_said_with_the_next_number_and_a_heartbeat_says_the_last(node: Node) -> None:
    one, two = node.grant("one"), node.grant("two")
    node.follow(one, two)
    node.round()
    node.commit(EndCredential("one"))
    node.round(1)
    node.commit(EndCredential("two"))
    node.round(5)
    said = node.said(MODIFIED)
    assert [(told["number"], told["state"], told["watcher"], told["service"]) for told in said] == [
        (1, "false", "cl", "Login"),
        (2, "false", "cl", "Login"),
    ]
    beats = node.said(HEARTBEAT)
    assert [(told["number"], told["at"]) for told in beats] == [(0, START), (2, node.now)]
    kinds = [one.type for one in node.domain.events()]
    assert kinds == [HEARTBEAT, MODIFIED, MODIFIED, HEARTBEAT]


def test_what_could_not_be_published_goes_out_later_with_its_number_and_there_is_no_heartbeat_before(
    node: Node,
) -> None:
    record = node.grant("one")
    node.follow(record)
    node.round()
    node.commit(EndCredential("one"))
    node.broken = True
    for _ in range(3):
        with pytest.raises(StorageBusy):
            node.round(5)
    assert node.watchers.read(PAIR, node.now).number == 1, "whoever reads has it already"
    node.broken = False
    node.round(1)
    kinds = [(one.type, one.values["number"]) for one in node.domain.events()]
    assert kinds == [(HEARTBEAT, 0), (MODIFIED, 1), (HEARTBEAT, 1)]


def test_who_takes_over_begins_an_epoch_with_what_is_true_then(node: Node) -> None:
    one, two = node.grant("one"), node.grant("two")
    node.follow(one, two)
    node.round()
    before = node.watchers.read(PAIR, node.now)
    node.commit(EndCredential("one"))  # and nobody announces it
    node.announcer = node.another()
    node.round()
    after = node.watchers.read(PAIR, node.now)
    assert after.epoch != before.epoch
    assert dict(after.states) == {two: True}
    assert node.said(HEARTBEAT)[-1]["epoch"] == after.epoch
    assert node.said(MODIFIED) == []


def test_types_that_were_retired_are_made_again(node: Node) -> None:
    node.follow(node.grant("one"))
    node.round()
    node.commit(*(RetireType(name) for name in (MODIFIED, HEARTBEAT, NOTICE)))
    node.round(5)
    assert NOTICE in node.domain.ledger.state().types
    assert node.said(HEARTBEAT)[-1]["at"] == node.now


def test_what_is_no_more_and_who_does_not_read_is_let_go(node: Node) -> None:
    one, two = node.grant("one"), node.grant("two")
    node.follow(one, two)
    node.commit(EndCredential("one"))
    node.round(61)
    assert [told["state"] for told in node.said(MODIFIED)] == ["false"], "it is said before it is let go"
    assert {watch.record for watch in node.domain.ledger.state().roles.watches} == {two}
    node.round(MAX_WATCHER_SILENCE_SECONDS)
    assert node.domain.ledger.state().roles.watches == frozenset()
    assert node.watchers.pairs() == {}
    count = len(node.domain.events())
    node.round(60)
    assert len(node.domain.events()) == count, "nobody is there to hear a heartbeat"


def test_what_a_removed_principal_followed_is_forgotten_and_not_its_successors(node: Node) -> None:
    one = node.grant("one")
    node.follow(one)
    node.round()
    node.commit(RemovePrincipal("cl"))
    node.round(5)
    assert (node.watchers.rows(), node.watchers.pairs(), node.watchers.confirmed()) == ([], {}, [])
    assert node.domain.ledger.state().roles.watches == frozenset()

    node.commit(DeclarePrincipal("cl"))
    node.follow(one)
    node.round()
    node.commit(RemovePrincipal("cl"))
    node.commit(DeclarePrincipal("cl"))  # before anyone has looked
    node.round(1)
    assert (node.watchers.rows(), node.watchers.confirmed()) == ([], [])
    node.commit(EndCredential("one"))
    node.round(1)
    assert node.said(MODIFIED) == []


def test_what_one_followed_is_remembered_until_it_is_no_more(node: Node) -> None:
    one, two = node.grant("one"), node.grant("two")
    node.follow(one, two)
    node.round(MAX_WATCHER_SILENCE_SECONDS)
    assert node.watchers.rows() == []
    assert node.watchers.has_followed(PAIR, [one, two, R]) == {one, two}
    node.commit(EndCredential("one"))
    node.round(61)
    assert node.watchers.has_followed(PAIR, [one, two]) == {two}


def test_only_so_much_of_what_one_followed_is_remembered(watchers: Watchers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.node.peers.MAX_WATCHED", 2)
    watchers.begin("a", list, START)
    records = [reference(place, 1) for place in range(3)]
    for second, one in enumerate(records):
        watchers.watch(PAIR, {one: True}, START + timedelta(seconds=second))
        watchers.unwatch(PAIR, [one])
    assert watchers.has_followed(PAIR, records) == set(records[1:])
    assert watchers.has_followed(("eve", "Login"), records) == set()


# -- over HTTP ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with office(tmp_path_factory.mktemp("announcing") / "domain", roles__heartbeat="100ms") as made:
        state = made.state
        made.served.commit(*allowing(state, "bob", "Login"), *allowing(state, "bob", "Conf")[-1:])
        eventually(lambda: made.served.gateway.announcer.leads)
        eventually(lambda: _epoch(made) is not None)
        yield made


def _epoch(place: Office) -> str | None:
    answer = place.ask("bob", "GET", "/records", params={"service": "Login"})
    return answer.json()["epoch"] if answer.status_code == 200 else None


def did(place: Office, who: str) -> str:
    return place.served.keys[who].public.did


def read(place: Office, service: str = "Login") -> dict[str, Any]:
    answer = place.ask("bob", "GET", "/records", params={"service": service})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def validated(place: Office, held: dict[str, Any], whose: str, who: str = "bob") -> dict[str, Any]:
    return place.made(who, "/validate", certificate=held["certificate"], subject=did(place, whose))


def test_a_good_certificate_is_confirmed_and_followed(place: Office) -> None:
    held = place.log_on("anna", "one")
    told = validated(place, held, "anna")
    assert (told["service"], told["instance"]) == ("Login", "")
    assert told["roles"] == [{"role": "LoggedOn", "args": ["anna", "one"], "record": held["record"]}]
    assert told["states"] == {held["record"]: "true"}
    assert read(place)["states"][held["record"]] == "true"
    assert any(one.watcher == "bob" for one in place.state.roles.watches)
    version = place.state.version
    validated(place, held, "anna")
    assert place.state.version == version, "asking again makes no version"


def test_who_may_not_follow_is_told_nothing(place: Office) -> None:
    held = place.log_on("anna", "two")
    body = {"certificate": held["certificate"], "subject": did(place, "anna")}
    for answer in (
        place.post("carl", "/validate", **body),
        place.ask("carl", "GET", "/records", params={"service": "Login"}),
        place.post("carl", "/records", service="Login", records=[{**RECORD, "subject": did(place, "anna")}]),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "subscribe-denied")


def test_failures_are_told_apart(place: Office) -> None:
    held = place.log_on("anna", "three")
    text = held["certificate"]
    assert place.denied("bob", "/validate", certificate=text, subject=did(place, "bob")) == ("fraud", "stolen")
    head, body, signature = text.split(".")
    forged = ".".join((head, body, ("A" if signature[0] != "A" else "B") + signature[1:]))
    assert place.denied("bob", "/validate", certificate=forged, subject=did(place, "anna"))[0] == "fraud"
    assert place.denied("bob", "/validate", certificate="nonsense", subject=did(place, "anna"))[0] == "misuse"
    assert place.leave("anna", held["id"]).status_code == 204
    assert place.denied("bob", "/validate", certificate=text, subject=did(place, "anna")) == ("revocation", "revoked")


def test_a_revocation_is_said_to_whom_it_concerns_and_to_nobody_else(place: Office) -> None:
    held = place.log_on("anna", "four")
    place.served.subscribe("bob", "notices", NOTICE, where=wanted("bob", "Login"))
    place.served.subscribe("carl", "others", NOTICE)
    validated(place, held, "anna")
    before = read(place)["number"]
    assert place.leave("anna", held["id"]).status_code == 204
    eventually(lambda: read(place)["number"] == before + 1)
    assert read(place)["states"][held["record"]] == "false"

    def heard(who: str, id: str) -> list[dict[str, Any]]:
        place.served.decide()
        events = place.served.ask(who, "GET", f"/v1/subscriptions/{id}/events", params={"limit": 10_000}).json()
        return [one["data"] for one in events["events"]]

    eventually(lambda: any(one.get("record") == held["record"] for one in heard("bob", "notices")))
    eventually(lambda: any(one.get("at") and one["number"] == before + 1 for one in heard("bob", "notices")))
    (said,) = (one for one in heard("bob", "notices") if one.get("record") == held["record"])
    assert (said["number"], said["state"], said["epoch"]) == (before + 1, "false", read(place)["epoch"])
    assert heard("carl", "others") == []


def test_a_record_is_told_of_to_who_knows_what_it_is_of(place: Office) -> None:
    held = place.log_on("anna", "five")
    asked = {"record": held["record"], "role": "LoggedOn", "args": ["anna", "five"], "subject": did(place, "anna")}

    def told(**other: Any) -> str:
        answer = place.made("bob", "/records", service="Login", records=[{**asked, **other}])
        return str(answer["states"][other.get("record", held["record"])])

    assert told() == "false", "nobody has shown it a certificate"
    assert held["record"] not in read(place)["states"]
    validated(place, held, "anna")
    assert told() == "true"
    place.served.gateway.watchers.forget_watcher(("bob", "Login"))
    assert told() == "true", "what it has followed it may follow again"
    for wrong in (
        {"role": "Admin"},
        {"args": ["anna", "ely"]},
        {"args": ["anna"]},
        {"instance": "x"},
        {"args": ["carl", "five"], "subject": did(place, "carl")},
        {"subject": did(place, "bob")},
        {"record": "1.1"},
    ):
        assert told(**wrong) == "false", wrong
        assert read(place)["states"][held["record"]] == "true", "and it goes on to follow the one that it knows"
    twice = [asked, {**asked, "subject": did(place, "bob")}]
    for records in (twice, twice[::-1]):
        answer = place.made("bob", "/records", service="Login", records=records)
        assert answer["states"] == {held["record"]: "false"}
    place.ask("bob", "POST", "/unwatch", {"service": "Login", "records": [held["record"]]})
    assert held["record"] not in read(place)["states"]
    assert told() == "true", "it may change its mind"
    assert read(place)["states"][held["record"]] == "true"


def test_nobody_finds_out_by_guessing_who_holds_what(place: Office) -> None:
    held = place.log_on("erik", "secret")
    guess = {"role": "LoggedOn", "subject": did(place, "erik")}
    version = place.state.version
    every = [f"{at}.{magic}" for at in range(20) for magic in range(max(0, version - 40), version + 1)]
    assert held["record"] in every
    for args in ([None, None], ["erik", None]):
        answer = place.post("bob", "/records", service="Login", records=[{**guess, "record": "1.1", "args": args}])
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-request")
    records = [{**guess, "record": one, "args": ["erik", "secret"]} for one in every]
    told = place.made("bob", "/records", service="Login", records=records)
    assert set(told["states"].values()) == {"false"}
    assert not any(one.watcher == "bob" and one.record in _mine(place, "erik") for one in place.state.roles.watches)


def _mine(place: Office, who: str) -> set[Reference]:
    return {one.record for one in place.state.roles.held_by(who)}


def test_who_may_not_follow_is_not_told_whether_a_certificate_stands(place: Office) -> None:
    held = place.log_on("anna", "eight")
    body = {"certificate": held["certificate"], "subject": did(place, "anna")}
    head, payload, _ = held["certificate"].split(".")
    forged = {**body, "certificate": f"{head}.{payload}.{'A' * 86}"}
    before = place.post("carl", "/validate", **body).json()
    assert before["code"] == "subscribe-denied"
    assert place.leave("anna", held["id"]).status_code == 204
    for one in (body, forged, {**body, "subject": did(place, "carl")}):
        assert place.post("carl", "/validate", **one).json() == before
    assert place.denied("bob", "/validate", **body) == ("revocation", "revoked")


def test_requests_that_are_none_are_refused(place: Office) -> None:
    for path, body in (
        ("/unwatch", {"service": "Login", "records": ["nonsense"]}),
        ("/unwatch", {"service": "Login", "records": []}),
        ("/unwatch", {"service": "Login", "records": ["1.1"] * 1_001}),
        ("/records", {"service": "Login", "records": [{"record": "1.1"}]}),
        ("/validate", {"certificate": "x"}),
    ):
        answer = place.post("bob", path, **body)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-request"), (path, answer.text)
    answer = place.ask("bob", "GET", "/records")
    assert answer.status_code == 400


def test_another_service_is_another_list(place: Office) -> None:
    held = place.log_on("anna", "six")
    validated(place, held, "anna")
    assert held["record"] not in read(place, "Conf")["states"]


# -- roles of other domains, shown here -----------------------------------------------------------------------


def test_a_certificate_of_nobody_we_know_does_not_count(place: Office) -> None:
    held = place.log_on("anna", "seven")
    assert place.denied("anna", "/present", certificate=held["certificate"]) == ("misuse", "no-peer")
    assert denial(place.post("anna", "/present", certificate="nonsense")) == ("misuse", "no-peer")


def test_peers_are_told_to_who_is_told_everything(place: Office) -> None:
    assert place.ask("carl", "GET", "/peers").status_code == 403
    assert place.ask(ADMINISTRATOR, "GET", "/peers").json() == {"peers": []}
