"""Files and processes: what is acknowledged is kept, what is refused is not, and damage is told from policy."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.alone import READY_SECONDS, Alone, Process, wait
from harness.attack import (
    HASTY,
    SALE,
    Neighbour,
    applied,
    enter,
    event,
    fresh,
    person,
    policy_files,
    publish,
    publish_all,
    read,
    refused,
    version,
)
from harness.node import free_ports
from headgate.model.changes import RemoveRule
from headgate.model.errors import HeadgateError
from headgate.model.state import ADMINISTRATOR
from headgate.node.domain import Domain
from headgate.pipeline.paths import Paths
from headgate.trust.certificates import CERTIFICATE
from headgate.trust.keys import PrivateKey
from strategies.presenting import certificate, revocations, types

FULL = ("storage-full", "storage-busy", "not-in-force")


@contextmanager
def full(*gateways: Process) -> Iterator[None]:
    """While the block runs, these processes can write nothing more."""
    limits = {one.pid: resource.prlimit(one.pid, resource.RLIMIT_FSIZE) for one in gateways}
    for pid, (_, hard) in limits.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        for pid, was in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, was)


def kept(made: Alone, publisher: str) -> list[str]:
    return [one.id for one in made.domain.events() if one.publisher == publisher]


# -- a full disk --------------------------------------------------------------------------------------------------


def test_where_one_gateway_has_no_room_the_other_goes_on_and_nothing_is_stored_twice(spare: Alone) -> None:
    name = person(spare, "writer", ("publish subscribe", SALE))
    ids = [fresh("room") for _ in range(10)]
    with spare.http(spare.token(name)) as http, spare.http(spare.token(name), 1) as other:
        with full(spare.gateways[0]):
            for id in ids:
                refused(publish(http, event(id)), *FULL)
            assert publish_all(other, [event(id) for id in ids[:5]]) == ["accepted"] * 5
            assert other.put("/v1/subscriptions/mine", json={"type": SALE}).status_code in (201, 503, 507)
        wait(lambda: publish(http, event(ids[9])).status_code == 200, "room")
        told = publish_all(http, [event(id) for id in ids])
        assert told == ["duplicate"] * 5 + ["accepted"] * 4 + ["duplicate"]
    assert sorted(kept(spare, name)) == sorted(ids)


def test_what_is_taken_back_while_there_is_no_room_is_taken_back_or_refused(spare: Alone) -> None:
    """A revocation list and a rule that goes, brought to a gateway with a full disk: answered means in force."""
    dora, name = spare.key("dora"), person(spare, "holder")
    text = certificate(dora, spare.key(name), types("dora.Own", "publish"))
    number = int(fresh("n").split("-")[1])
    gone = revocations(dora, number, CERTIFICATE.read(text).value.id)
    with spare.http(spare.token(name)) as http, spare.http(spare.token(name), 1) as other:
        assert http.post("/v1/statements", json={"statements": [text]}).status_code == 200
        with full(*spare.gateways):
            told = http.post("/v1/revocations", json={"list": gone})
            refused(told, *FULL)
            refused(http.post("/v1/statements", json={"statements": [text, gone]}), *FULL, "revoked")
        wait(lambda: other.post("/v1/revocations", json={"list": gone}).status_code == 200, "room")
        for one in (http, other):
            refused(publish(one, event(type="dora.Own", data={"x": 1})), "publish-denied")
            refused(one.post("/v1/statements", json={"statements": [text]}), "revoked")


def test_a_right_that_is_lost_beside_a_full_disk_is_lost_there_too(spare: Alone) -> None:
    name, other = person(spare, "loser", ("publish", SALE)), person(spare, "loser", ("publish", SALE))
    with spare.http(spare.token(name)) as http, spare.http(spare.token(other)) as second:
        assert publish(http, event()).json()["status"] == "accepted"
        with full(spare.gateways[0]):
            spare.commit(RemoveRule(f"{name}-0"))
            spare.commit(RemoveRule(f"{other}-connects"))
            told = [publish(http, event(f"{name}-late")), publish(second, event(f"{other}-late"))]
            for one in told:
                refused(one, "publish-denied", "connect-denied", "not-authenticated", *FULL)
        wait(lambda: publish(http, event(f"{name}-late")).json().get("code") == "publish-denied", "the loss")
        refused(publish(second, event(f"{other}-late")), "connect-denied", "not-authenticated")
    assert len(kept(spare, name)) == 1
    assert kept(spare, other) == []


# -- locked and damaged files -------------------------------------------------------------------------------------


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A file that somebody else is writing to, and does not finish."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_a_ledger_that_someone_holds_is_waited_for_only_so_long_and_reading_goes_on(spare: Alone) -> None:
    """Many changes at both gateways at once: all are refused soon, and events and readers are not concerned."""
    names = [person(spare, "held", ("publish subscribe", SALE)) for _ in range(2)]
    clients = [spare.http(spare.token(name, n), n) for n, name in enumerate(names)]
    for one in clients:
        assert one.put("/v1/subscriptions/mine", json={"type": SALE}).status_code == 201
        assert publish(one, event()).json()["status"] == "accepted"
    before = version(clients[0])
    with held(Paths(spare.files.data).ledger), ThreadPoolExecutor(8) as pool:
        changes = [
            pool.submit(clients[n % 2].put, f"/v1/subscriptions/never{n}", json={"type": SALE}) for n in range(8)
        ]
        sent = [publish(one, event()).json() for one in clients]
        assert [one["status"] for one in sent] == ["accepted"] * 2
        for one in changes:
            refused(one.result(), "storage-busy", "too-busy")
    assert version(clients[1]) == before
    for one in clients:
        assert [each["id"] for each in one.get("/v1/subscriptions").json()["subscriptions"]] == ["mine"]
        assert len(read(one, "mine", 2)) >= 2
        one.close()


def test_a_gateway_that_is_killed_in_a_batch_leaves_it_whole_or_not_at_all(
    spares: tuple[Alone, Neighbour], spare: Alone
) -> None:
    """Killed while both changes of policy and events are on their way; what was acknowledged is there afterwards."""
    name, groups = person(spare, "writer", ("publish", SALE)), [fresh("whole") for _ in range(40)]
    victim = spare.gateways[1]
    admin, token = spare.token(ADMINISTRATOR, 1), spare.token(name, 1)
    done: list[str] = []
    accepted: list[str] = []

    def change() -> None:
        with spare.http(admin, 1) as http:
            for group in groups:
                changes = [
                    {"op": "declare-group", "name": group},
                    {"op": "add-member", "group": group, "member": name},
                ]
                if http.post("/v1/batches", json={"changes": changes}).status_code == 200:
                    done.append(group)

    def write() -> None:
        with spare.http(token, 1) as http:
            while True:
                events = [event() for _ in range(20)]
                if publish_all(http, events) == ["accepted"] * 20:
                    accepted.extend(str(one["id"]) for one in events)

    def until_it_dies(work: Any) -> None:
        with suppress(httpx.TransportError):
            work()

    threads = [threading.Thread(target=until_it_dies, args=(work,)) for work in (change, write)]
    for one in threads:
        one.start()
    wait(lambda: len(done) > 3 and len(accepted) > 20, "something under way")
    victim.process.kill()
    for one in threads:
        one.join()
    victim.process.wait()
    spare.gateways.remove(victim)
    spares[1].served()  # at the other gateway, which needs nothing of it
    with Domain.open(spare.files.data) as domain:
        state, events = domain.ledger.state(), [one.id for one in domain.events() if one.publisher == name]
    assert set(done) <= {group for group in groups if group in state.groups}
    assert all(name in state.groups[group] for group in groups if group in state.groups)
    assert set(accepted) <= set(events)
    assert len(events) == len(set(events))
    assert len(events) % 20 == 0
    again = spare.launch(victim.name, victim.port, program=HASTY)
    spare.await_ready(again)


# -- files of the policy ------------------------------------------------------------------------------------------

ALIASES = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
BOMB = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *ALIASES])
FOREIGN: dict[str, bytes] = {
    "a bomb of aliases": BOMB.encode(),
    "nested too deep": b"policy: " + b"[" * 50_000,
    "a Python object": b"policy: !!python/object/apply:os.system ['touch /tmp/headgate-was-here']",
    "binary": bytes(range(256)) * 100,
    "not UTF-8": b"types: {\xff\xfe: 1}",
    "the same key twice": b"groups: {insiders: [hugo]}\ngroups: {insiders: [eve]}\n",
    "another document": b"groups: {}\n---\npolicy: []\n",
    "huge": b"# " + b"x" * 30_000_000,
    "a merge of another": b"base: &base {who: hugo}\npolicy: [{<<: *base, may: publish, type: '*'}]\n",
}


@pytest.mark.parametrize("how", FOREIGN)
def test_a_foreign_file_among_policy_changes_nothing_and_runs_nothing(spare: Alone, tmp_path: Path, how: str) -> None:
    place = policy_files(spare, tmp_path / "policy")
    (place / "z.yaml").write_bytes(FOREIGN[how])
    marker = Path("/tmp/headgate-was-here")
    with spare.http(spare.token("dora")) as http:
        before = version(http)
        for command in ("plan", "apply"):
            told = applied(spare, place, command=command)
            assert told.exit_code != 0, told.output
            assert not isinstance(told.exception, Exception) or isinstance(told.exception, SystemExit), told.exception
            assert "Traceback" not in told.output
        assert version(http) == before
    assert not marker.exists()


def test_a_link_leads_no_file_of_elsewhere_into_the_policy(spare: Alone, tmp_path: Path) -> None:
    """A predicate's module, through a link out of the directory, is not run; a key is not shown in an error."""
    place = policy_files(spare, tmp_path / "policy")
    outside = tmp_path / "outside.py"
    outside.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n\ndef evil(event):\n    return True\n")
    (place / "evil.py").symlink_to(outside)
    (place / "secret.yaml").symlink_to(spare.files.admin_key)
    (place / "z.yaml").write_text("predicates: {evil: 'evil:evil'}\n")
    for command, more in (("plan", ()), ("check", ()), ("apply", ()), ("apply", ("--run-python",))):
        told = applied(spare, place, *more, command=command)
        assert told.exit_code != 0, told.output
        assert "PRIVATE" not in told.output
        body = spare.files.admin_key.read_text().splitlines()[1]
        assert body not in told.output
    (place / "secret.yaml").unlink()
    for more in ((), ("--run-python",)):
        told = applied(spare, place, *more)
        assert told.exit_code != 0 or "not run" in told.output, told.output
    assert not (tmp_path / "ran").exists()


def test_a_key_that_others_can_read_is_not_used(spare: Alone, tmp_path: Path) -> None:
    key = tmp_path / "open.pem"
    PrivateKey.generate().save(key)
    key.chmod(0o644)
    with pytest.raises(HeadgateError) as refusal:
        PrivateKey.load(key)
    assert "permission" in str(refusal.value) or "chmod" in str(refusal.value)
    with spare.http() as http:
        assert http.get("/v1").status_code == 200
    was = spare.files.broker_key.stat().st_mode
    spare.files.broker_key.chmod(0o644)
    try:
        with pytest.raises(AssertionError, match="did not start"):
            spare.start("g9")
    finally:
        spare.files.broker_key.chmod(was)
        for one in [one for one in spare.gateways if one.name == "g9"]:
            spare.gateways.remove(one)
            one.process.kill()
            one.process.wait()
    assert enter(spare, spare.key("dora")).status_code == 201


def test_a_second_gateway_of_the_same_name_takes_no_stream_over(spare: Alone) -> None:
    """Started by mistake, or by an intruder on the machine: the first goes on, and no event is lost or doubled."""
    name = person(spare, "writer", ("publish", SALE))
    first, second = ([fresh("event") for _ in range(5)] for _ in range(2))
    arguments = ["--name", spare.gateway.name, "--port", str(free_ports(1)), "--parent", str(os.getpid())]
    with spare.http(spare.token(name)) as http:
        assert publish_all(http, [event(id) for id in first]) == ["accepted"] * 5
        intruder = subprocess.run(
            [sys.executable, "-m", "headgate.gateway.serve", str(spare.directory), *arguments],
            capture_output=True,
            timeout=READY_SECONDS,
            check=False,
        )
        assert intruder.returncode != 0
        assert b'"ready"' not in intruder.stdout
        assert publish_all(http, [event(id) for id in second]) == ["accepted"] * 5
    assert kept(spare, name) == [*first, *second]
