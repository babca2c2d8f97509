"""The stories that a node lives through while its processes are killed and stopped: traffic, readers, faults.

Guarantees: what a story does follows from its seed, save for time. Every answer that a publisher, a reader or the
administrator got is kept. Readers are processes of their own, and write down each delivery and each acknowledgement
before they go on, so that nothing of it is lost when they crash. Every wait is bounded.
Leaves out: what must hold in the end (`test_node_kill`).
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from harness.node import Node
from headgate.client import Client, Patience, Unreachable, aio
from headgate.client.subscription import Subscription
from headgate.model.errors import HeadgateError, NotFound, PublishDenied, StorageBusy, TooBusy, UnknownName
from headgate.node.processes import of_session
from headgate.trust.keys import PrivateKey

TYPE: Final = "road.Sighting"
SECONDS: Final = 300.0
"""How long anything may take on a busy machine."""
PATIENT: Final = Patience(seconds=120.0)
"""A gateway that is stopped for LONG_STOP while it writes keeps all others from writing, and from starting, as long."""
MOST_EVENTS: Final = 400
"""Events of one publisher of a story."""
MOST_LIVES: Final = 200
"""Processes that read one subscription, one after another."""
MOST_TRIES: Final = 100
"""How often something is sent while no gateway answers."""
LONG_STOP: Final = 30.0
IDLE: Final = 0.5
"""Seconds without a delivery after which a reader acknowledges what it has."""
GATEWAYS: Final = ("gateway-1", "gateway-2")
READERS: Final = ("ada", "ben", "cy")
OF_THIS_MODULE: Final = ("headgate.node.domain", "headgate.node.processes")
"""What it imports, for the process that readers are forked from: that does not find the modules of tests."""
NO_ANSWER: Final = (Unreachable, TooBusy, StorageBusy)
"""What a client raises when its time is up."""
MARK: Final = "NODE_OF_A_STORY"
"""A variable in the environment of every process of the node, by which they are found."""


def policy(key: Callable[[str], str]) -> str:
    """A road: cameras publish, and three readers see different parts of it."""
    names = ("administrator", "camera", "plaza", *READERS)
    principals = "\n".join(f"  {name}: {{key: {key(name)}}}" for name in names)
    return f"""headgate: 1
title: a road
connect: closed
principals:
  road: {{}}
{principals}
types:
  {TYPE}: {{owner: road, attributes: {{story: int, n: int, plate: string, speed: int}}}}
groups:
  people: [camera, plaza, {", ".join(READERS)}]
policy:
  - {{id: connects, who: people, may: connect}}
  - {{id: camera-publishes, who: camera, may: publish, type: {TYPE}, where: "n >= 0"}}
  - {{id: plaza-publishes, who: plaza, may: publish, type: {TYPE}, where: "n >= 0"}}
  - {{id: ada-reads, who: ada, may: subscribe, type: {TYPE}}}
  - {{id: ben-reads, who: ben, may: subscribe, type: {TYPE}, attributes: [story, n, speed], where: "plate != 'B'"}}
"""


def changing(seed: int) -> list[dict[str, Any]]:
    """Rules that come and go in a story: they hide an attribute, stop a publisher and let a reader in."""
    mine = f"story = {seed}"
    rule = {"type": TYPE, "first": True}
    return [
        {**rule, "id": f"hide-{seed}", "who": "ada", "may": "subscribe", "effect": "forbid", "attributes": ["plate"],
         "where": f"{mine} and speed > 30"},
        {**rule, "id": f"stop-{seed}", "who": "camera", "may": "publish", "effect": "forbid",
         "where": f"{mine} and plate = 'C'"},
        {**rule, "id": f"let-{seed}", "who": "cy", "may": "subscribe", "where": mine},
    ]  # fmt: skip


def filters(seed: int) -> dict[str, str]:
    """What each reader asks for."""
    mine = f"story = {seed}"
    return {"ada": mine, "ben": f"{mine} and speed > 10", "cy": f"{mine} and plate != 'A'"}


# -- faults -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """Kill some parts of the node at once, or stop them for so many seconds."""

    what: str
    parts: tuple[str, ...]
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.what} {' and '.join(self.parts)}" + (f" for {self.seconds:.1f} s" if self.seconds else "")


def faults(seed: int) -> list[Fault]:
    """The faults of a seed: twelve kinds in turn, and sometimes one more."""
    dice = random.Random(f"{seed} faults")
    one, other = dice.sample(GATEWAYS, 2)
    first, second = GATEWAYS[:: 1 if seed // 12 % 2 else -1]  # so that the one that hangs is left alone
    short = dice.uniform(0.5, 6.0)
    kinds: list[list[Fault]] = [
        [Fault("kill", (first,))],
        [Fault("stop", (second,), LONG_STOP)],
        [Fault("kill", ("pipeline",))],
        [Fault("kill", ("jvm",))],
        [Fault("kill", ("worker",))],
        [Fault("kill", (one, "pipeline"))],
        [Fault("stop", (one,), short), Fault("kill", (other,))],
        [Fault("stop", ("pipeline",), LONG_STOP)],
        [Fault("kill", GATEWAYS)],
        [Fault("kill", ("pipeline",)), Fault("kill", ("pipeline",))],
        [Fault("stop", ("pipeline",), short), Fault("kill", (one,)), Fault("kill", ("worker",))],
        [Fault("kill", (*GATEWAYS, "pipeline"))],
    ]
    drawn = kinds[seed % len(kinds)]
    if dice.random() < 0.4:
        drawn.append(Fault("kill", (first,)))
    return drawn


class Breaker:
    """Breaks parts of a node, as often as the stories say."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.done: list[str] = []

    def strike(self, fault: Fault, who: str) -> None:
        """Do it; returns when it is over."""
        found = {part: self._find(part) for part in fault.parts}
        self.done.append(f"{time.strftime('%H:%M:%S')} {who}: {fault} {found}")
        if fault.what == "kill":
            dice = random.Random(f"{who} {fault}")
            _send([dice.choice(pids) for pids in found.values()], signal.SIGKILL)
            return
        every = [pid for pids in found.values() for one in pids for pid in (of_session(one) or [one])]
        with stopped(every):
            time.sleep(fault.seconds)

    def _find(self, part: str) -> list[int]:
        """The processes of a part, as soon as there are any."""
        found: list[int] = []

        def there() -> bool:
            found[:] = self._pids(part)
            return bool(found)

        self._node.wait(there, f"a process of {part}", SECONDS)
        return found

    def _pids(self, part: str) -> list[int]:
        main = self._node.pids().get(part if part in GATEWAYS else "pipeline")
        if main is None or part in GATEWAYS or part == "pipeline":
            return [] if main is None else [main]
        if part == "worker" and not self._is_ready("pipeline"):  # without its workers Spark does not even start
            return []
        word = "java" if part == "jvm" else "python"
        return [pid for pid in of_session(main) if pid != main and word in _program(pid)]

    def _is_ready(self, part: str) -> bool:
        said = (self._node.directory / "up.log").read_text().splitlines()
        return [line for line in said if line.startswith(part)][-1].startswith(f"{part} ready")


def _program(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode().rpartition("/")[2]
    return ""


def _send(pids: list[int], how: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, how)


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Processes that do nothing while the block runs."""
    handles = []
    for pid in pids:
        with suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
    try:
        for handle in handles:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGSTOP)
        yield
    finally:
        for handle in handles:
            with suppress(ProcessLookupError):  # it was killed meanwhile
                signal.pidfd_send_signal(handle, signal.SIGCONT)
            os.close(handle)


def marked(mark: str) -> list[int]:
    """The living processes with this mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


# -- readers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Life:
    """One process that reads a subscription, and how it ends."""

    urls: list[str]
    key: Path
    broker: str
    certificate: Path
    subscription: str
    notes: Path
    finish: Path
    seed: str
    crash_after: int | None
    window: int


def live(life: Life) -> None:
    """Be that process."""
    asyncio.run(_live(life))


async def _live(life: Life) -> None:
    file = os.open(life.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(**facts: Any) -> None:
        os.write(file, json.dumps(facts).encode() + b"\n")

    note(begin=life.seed)
    try:
        async with aio.connect(life.urls, life.key, broker=life.broker, certificate=life.certificate) as client:
            subscription = await client.resume(life.subscription, ack="manual", window=life.window)
            await _read(life, subscription, note)
        note(end=life.seed)
    except HeadgateError as error:
        note(failed=f"{type(error).__name__}: {error}")
        raise


async def _read(life: Life, subscription: Subscription, note: Callable[..., None]) -> None:
    dice = random.Random(life.seed)
    taken: list[Any] = []
    acked = 0
    while not life.finish.exists():
        one = await subscription.next(timeout=IDLE)
        if one is not None:
            note(got=one.number, key=[one.publisher, one.source, one.id], view=dict(one.data))
            taken = [*taken[-5:], one]
            if one.number == life.crash_after:
                if dice.random() < 0.5:  # with an acknowledgement on its way
                    note(acking=one.number)
                    one.ack()
                    await asyncio.sleep(dice.uniform(0, 0.05))
                note(crash=one.number)
                os._exit(1)
            if dice.random() > 0.15:
                continue
        upto = dice.choice(taken).number if one is not None else taken[-1].number if taken else 0
        if upto > acked:
            note(acking=upto)
            next(each for each in taken if each.number == upto).ack()
            async with asyncio.timeout(SECONDS):
                await subscription.settled()
            note(acked=upto)
            acked = upto


# -- a story ----------------------------------------------------------------------------------------------------


@dataclass
class Story:
    """What is published, read and changed under one seed."""

    node: Node
    seed: int
    breaker: Breaker
    since: int
    """A version before which nothing of it happened."""
    hangs: bool
    """May a gateway be stopped meanwhile? What it was sent before is then carried out when nobody expects it."""
    answers: dict[tuple[str, str], str] = field(default_factory=dict)
    """`stored` or `refused`, of each event by publisher and id."""
    sent: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    versions: dict[int, str] = field(default_factory=dict)
    """The versions that the administrator was told of, with their notes."""
    enough: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.directory = self.node.directory / "stories"
        self.directory.mkdir(exist_ok=True)
        self.finish = self.directory / f"{self.seed}.finish"

    def dice(self, who: str) -> random.Random:
        """The dice of one who takes part."""
        return random.Random(f"{self.seed} {who}")

    def client(self, principal: str, who: str) -> Client:
        """A client that begins at one of the gateways."""
        order = list(range(self.node.gateways))
        self.dice(who).shuffle(order)
        return self.node.client(principal, order, requests=PATIENT)

    def subscription(self, reader: str) -> str:
        """What a reader calls its subscription."""
        return f"story-{self.seed}-{reader}"

    def notes(self, reader: str) -> Path:
        """Where a reader's processes write down what they get."""
        return self.directory / f"{self.seed}-{reader}.notes"

    def subscribe(self, reader: str) -> None:
        """Make a reader's subscription; `ben` asks for everything since the story began."""
        with self.client(reader, reader) as client:
            from_ = self.since if reader == "ben" else "now"
            client.subscribe(self.subscription(reader), TYPE, filters(self.seed)[reader], from_).close()

    def unsubscribe(self) -> None:
        """End the subscriptions."""
        for reader in READERS:
            with self.client(reader, reader) as client, suppress(NotFound):  # done, if the answer was lost
                client.unsubscribe(self.subscription(reader))

    # -- those who take part ----------------------------------------------------------------------------------

    def publish_singly(self) -> None:
        """The camera: one event after another."""
        dice = self.dice("camera")
        with self.client("camera", "camera") as client:
            for n in self._numbers():
                id, data = self._event("camera", n, dice)
                try:
                    _again(partial(client.publish, TYPE, data, id=id))
                except PublishDenied:
                    self.answers["camera", id] = "refused"
                else:
                    self.answers["camera", id] = "stored"
                time.sleep(dice.uniform(0, 0.2))

    def publish_in_batches(self) -> None:
        """The plaza: several at a time."""
        dice = self.dice("plaza")
        numbers = self._numbers()
        with self.client("plaza", "plaza") as client:
            while drawn := [n for n, _ in zip(numbers, range(dice.randint(1, 15)), strict=False)]:
                events = [self._event("plaza", n, dice) for n in drawn]
                items = [{"type": TYPE, "id": id, "data": data} for id, data in events]
                results = _again(partial(client.publish_many, items))
                for (id, _), result in zip(events, results, strict=True):
                    assert result.id == id
                    assert result.refusal is None or isinstance(result.refusal, PublishDenied), result.refusal
                    self.answers["plaza", id] = "stored" if result.stored else "refused"
                time.sleep(dice.uniform(0, 0.8))

    def _numbers(self) -> Iterator[int]:
        for n in range(MOST_EVENTS):
            if self.enough.is_set():
                return
            yield n

    def _event(self, publisher: str, n: int, dice: random.Random) -> tuple[str, Mapping[str, Any]]:
        shown = -1 - n if dice.random() < 0.05 else n  # these are refused
        data = {"story": self.seed, "n": shown, "plate": dice.choice("ABC"), "speed": dice.randint(0, 60)}
        id = f"{self.seed}-{n}"
        self.sent[publisher, id] = data
        return id, data

    def administer(self) -> None:
        """The administrator: rules come and go, each change through some gateway."""
        dice = self.dice("administrator")
        rules = changing(self.seed)
        if self.hangs:  # an event that was refused could be stored later, if the right came back in between
            rules = [one for one in rules if one["may"] != "publish"]
        held: dict[str, bool | None] = {one["id"]: False for one in rules}
        with self.client("administrator", "administrator") as client:
            while not self.enough.wait(dice.uniform(0.1, 1.2)):
                self._change(client, dice.choice(rules), held)
            for rule in rules:
                if held[rule["id"]] is not False:
                    held[rule["id"]] = True
                    self._change(client, rule, held)
            self._change(client, rules[0], held)  # so that the last change of the story was acknowledged
            self._change(client, rules[0], held)

    def _change(self, client: Client, rule: Mapping[str, Any], held: dict[str, bool | None]) -> None:
        """Add a rule, or remove it if it is there; without an answer nobody knows, and it is done again."""
        id = rule["id"]
        removes = held[id] is True
        change = {"op": "remove-rule", "id": id} if removes else {"op": "add-rule", "rule": rule}
        note = f"{'remove' if removes else 'add'} {id}"
        for tries in range(MOST_TRIES):
            try:
                self.versions[client.change([change], note=note)] = note
            except NO_ANSWER:
                continue
            except UnknownName:  # an earlier try was carried out
                assert removes, note
                assert tries or self.hangs, note
            held[id] = not removes
            return
        raise AssertionError(f"{note}: no gateway did it")

    def read(self, reader: str) -> None:
        """A reader: one process after another, some of which crash, until the story is finished."""
        dice = self.dice(f"reader {reader}")
        crashes = dice.randint(1, 3)
        forked = multiprocessing.get_context("forkserver")
        forked.set_forkserver_preload(["headgate.client", *OF_THIS_MODULE])
        for number in range(MOST_LIVES):
            urls = dice.sample(self.node.urls, len(self.node.urls))
            life = Life(
                urls,
                self.node.files.keys / f"{reader}.pem",
                PrivateKey.load(self.node.files.broker_key).public.did,
                self.node.files.tls_certificate,
                self.subscription(reader),
                self.notes(reader),
                self.finish,
                f"{self.seed} {reader} {number}",
                dice.randint(1, 40) if number < crashes else None,
                dice.choice((1, 7, 100)),
            )
            process = forked.Process(target=live, args=(life,), daemon=True)
            process.start()
            while process.is_alive() and not self.finish.exists():
                process.join(1)
            process.join(SECONDS)
            if process.is_alive():
                process.kill()
            # The status of a process is not to be relied on where several threads wait for theirs.
            last = self.notes(reader).read_text().splitlines()[-1]
            if "end" in json.loads(last):
                return
            assert "crash" in json.loads(last), f"seed {self.seed}: {reader} ended with {last}"
        raise AssertionError(f"seed {self.seed}: {reader} crashed {MOST_LIVES} times")

    def suffer(self) -> None:
        """The faults of this story, at random moments."""
        dice = random.Random(f"{self.seed} moments")
        for fault in faults(self.seed):
            time.sleep(dice.uniform(0.2, 3.0))
            self.breaker.strike(fault, f"seed {self.seed}")
        time.sleep(dice.uniform(0.5, 2.0))


def _again(send: Callable[[], Any]) -> Any:
    """Send again with the same ids while no gateway answers, as publishers do."""
    for _ in range(MOST_TRIES):
        with suppress(*NO_ANSWER):
            return send()
    raise AssertionError("no gateway answered")
