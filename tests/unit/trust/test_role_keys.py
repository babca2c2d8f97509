"""Rolling keys: there is always one that signs, none is lost, and what vouches for them is never old news."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model.errors import (
    BadDefinition,
    BadKey,
    BadStatement,
    Damaged,
    Expired,
    HeadgateError,
    NotFound,
    StaleList,
    StorageBusy,
    TooMany,
)
from headgate.model.limits import MAX_LOCK_TRIES, MAX_ROLE_KEYS
from headgate.trust.keys import PrivateKey
from headgate.trust.role_keys import (
    FILE,
    LONGEST,
    PACES,
    ROLE_KEYS,
    USES,
    FileStore,
    RoleKeys,
    RollingKey,
    RollingPace,
    RollingTable,
    Use,
    issue_role_keys,
)
from strategies.role_statements import MemoryStore
from unit.trust.corpus import AT, DAY, MALLORY, MET, NOW, OUT, PITO, SMITH, TFL, WEAK, Good, did, raw_did, reason_of

HOUR = timedelta(hours=1)
QUICK: dict[Use, RollingPace] = {
    "short": RollingPace(timedelta(seconds=10), timedelta(seconds=30)),
    "long": RollingPace(timedelta(seconds=20), timedelta(seconds=60)),
}


def table(directory: Path | None = None, paces: dict[Use, RollingPace] | None = None) -> RollingTable:
    return RollingTable(PITO, MemoryStore() if directory is None else FileStore(directory), paces or PACES)


def key(who: Any, use: Use = "short", start: datetime = NOW) -> RollingKey:
    return RollingKey(who.public, use, start, start + HOUR, start + 2 * HOUR)


# -- the document ---------------------------------------------------------------------------------------------


def test_the_document_vouches_for_the_keys_as_they_are() -> None:
    keys = [key(MET), key(SMITH, "long")]
    text = issue_role_keys(PITO, number=3, keys=keys, now=NOW)
    found = ROLE_KEYS.verify(text, issuer=did(PITO), now=NOW)
    assert found == RoleKeys(did(PITO), 3, NOW, NOW + timedelta(days=1), {one.kid: one for one in keys})
    assert found.find(did(MET), "short") == keys[0]


ENTRY = {"kid": did(MET), "use": "short", "from": AT, "until": AT + 60, "end": AT + 120}
DOCUMENT = Good(
    "hg-role-keys+jwt",
    {"iss": did(PITO), "number": 1, "iat": AT, "exp": AT + 3600, "keys": [ENTRY]},
    lambda text: ROLE_KEYS.verify(text, issuer=did(PITO), now=NOW),
)
BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "no keys": ("missing-claim", {"keys": OUT}),
    "no end": ("missing-claim", {"exp": OUT}),
    "a claim too many": ("unknown-claim", {"admin": True}),
    "good for too long": ("too-long", {"exp": AT + DAY + 1}),
    "over before it is issued": ("bad-claim", {"exp": AT}),
    "from the future": ("not-yet-valid", {"iat": AT + 61}),
    "over": ("expired", {"iat": AT - 60, "exp": AT}),
    "a key twice": ("bad-claim", {"keys": [ENTRY, ENTRY]}),
    "the domain's own key": ("bad-claim", {"keys": [{**ENTRY, "kid": did(PITO)}]}),
    "a weak key": ("unsafe-key", {"keys": [{**ENTRY, "kid": raw_did(WEAK[0])}]}),
    "a key by another name": ("bad-claim", {"keys": [{**ENTRY, "kid": "k1"}]}),
    "a use that is none": ("bad-claim", {"keys": [{**ENTRY, "use": "all"}]}),
    "a use in a list": ("bad-claim", {"keys": [{**ENTRY, "use": ["short"]}]}),
    "times out of order": ("bad-claim", {"keys": [{**ENTRY, "until": AT - 1}]}),
    "an end before the signing ends": ("bad-claim", {"keys": [{**ENTRY, "end": AT + 59}]}),
    "a key for ever": ("bad-claim", {"keys": [{**ENTRY, "end": AT + 3 * DAY}]}),
    "a time that is text": ("bad-claim", {"keys": [{**ENTRY, "from": str(AT)}]}),
    "an entry too many": ("bad-claim", {"keys": [{**ENTRY, "x": 1}]}),
    "another entry": ("bad-claim", {"keys": [{**{n: v for n, v in ENTRY.items() if n != "end"}, "x": 1}]}),
    "too many keys": ("bad-claim", {"keys": [ENTRY] * (MAX_ROLE_KEYS + 1)}),
    "keys in an object": ("bad-claim", {"keys": {did(MET): ENTRY}}),
    "a negative number": ("bad-claim", {"number": -1}),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_document_is_refused_for_its_reason(name: str) -> None:
    reason, changed = BAD[name]
    with pytest.raises(HeadgateError) as refused:
        DOCUMENT.check(DOCUMENT.signed(**changed))
    assert reason_of(refused.value) == reason


def test_the_document_that_bad_ones_differ_from_is_good() -> None:
    assert DOCUMENT.check(DOCUMENT.signed()) is not None


def test_a_document_of_another_domain_is_refused() -> None:
    text = issue_role_keys(MALLORY, number=1, keys=[key(MET)], now=NOW)
    with pytest.raises(BadStatement) as refused:
        ROLE_KEYS.verify(text, issuer=did(PITO), now=NOW)
    assert refused.value.reason == "wrong-issuer"


def test_an_older_document_is_no_news() -> None:
    first, later = (
        ROLE_KEYS.verify(issue_role_keys(PITO, number=2, keys=[key(MET)], now=at)) for at in (NOW, NOW + HOUR)
    )
    again = issue_role_keys(PITO, number=2, keys=[key(MET)], now=NOW + HOUR)
    assert ROLE_KEYS.verify(again, known=first) == later
    for number, keys, now in ((1, [key(MET)], NOW + HOUR), (2, [key(MET)], NOW), (2, [key(SMITH)], NOW + 2 * HOUR)):
        with pytest.raises(StaleList):
            ROLE_KEYS.verify(issue_role_keys(PITO, number=number, keys=keys, now=now), known=later)
    other = issue_role_keys(MALLORY, number=9, keys=[], now=NOW)
    with pytest.raises(BadStatement):
        ROLE_KEYS.verify(other, known=first)


def test_a_key_of_one_table_does_not_pass_in_the_other() -> None:
    keys = ROLE_KEYS.verify(issue_role_keys(PITO, number=1, keys=[key(MET)], now=NOW))
    for kid, use, reason in ((did(MET), "long", "wrong-key"), (did(TFL), "short", "unknown-key")):
        with pytest.raises(BadStatement) as refused:
            keys.find(kid, use)  # type: ignore[arg-type]
        assert refused.value.reason == reason


def test_a_key_does_not_count_for_longer_than_what_it_signs() -> None:
    with pytest.raises(BadDefinition):
        replace(key(MET), end=NOW + timedelta(days=2, seconds=1))


# -- rolling --------------------------------------------------------------------------------------------------


def test_the_next_key_is_known_before_it_signs() -> None:
    rolling = table()
    known = rolling.keys(NOW)
    first = rolling.signer("short", NOW)
    following = rolling.signer("short", NOW + HOUR)
    assert first.rolling.kid != following.rolling.kid
    assert known.find(following.rolling.kid, "short") == following.rolling
    assert first.key.public.did == first.rolling.kid
    assert rolling.signer("long", NOW).rolling.kid not in {first.rolling.kid, following.rolling.kid}


def test_a_key_stays_until_all_that_it_signed_is_over() -> None:
    rolling = table()
    first = rolling.signer("short", NOW).rolling
    assert first.end == NOW + timedelta(hours=25)
    assert first.kid in rolling.keys(first.end - timedelta(microseconds=1)).keys
    assert first.kid not in rolling.keys(first.end).keys


def test_the_private_half_goes_when_a_key_signs_no_more(tmp_path: Path) -> None:
    rolling = table(tmp_path)
    first = rolling.signer("short", NOW)
    secret = first.key.native().private_bytes_raw().hex()
    assert secret in (tmp_path / FILE).read_text()
    rolling.signer("short", NOW + HOUR)
    assert secret not in (tmp_path / FILE).read_text()
    # The clock goes back: the key has its time again, and no private half, so another one signs.
    again = rolling.signer("short", NOW + HOUR / 2)
    assert again.rolling.kid != first.rolling.kid
    assert again.rolling.signs(NOW + HOUR / 2)


MOVES = st.lists(st.integers(-40, 200), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(MOVES)
def test_whatever_the_clock_does_there_is_a_key_that_signs(moves: list[int]) -> None:
    rolling, now, number = table(paces=QUICK), NOW, 0
    for seconds in moves:
        now += timedelta(seconds=seconds, microseconds=7)
        for use in USES:
            one = rolling.signer(use, now)
            assert one.rolling.signs(now)
            assert one.rolling.use == use
            assert one.key.public == one.rolling.key
        keys = rolling.keys(now)
        assert keys.number >= number
        number = keys.number


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=12))
def test_nothing_that_still_counts_is_forgotten(moves: list[int]) -> None:
    rolling, now, signed = table(paces=QUICK), NOW, {}
    for seconds in moves:
        now += timedelta(seconds=seconds)
        for use in USES:
            one = rolling.signer(use, now).rolling
            signed[one.kid] = one
        keys = rolling.keys(now).keys
        assert {kid: one for kid, one in signed.items() if not one.is_over(now)}.items() <= keys.items()
        assert len(keys) <= 2 * (3 + 3)


def test_an_ended_key_counts_no_more_and_is_known_to_have_ended() -> None:
    rolling = table()
    stolen = rolling.signer("short", NOW).rolling
    before = rolling.keys(NOW)
    rolling.end(stolen.kid, NOW + HOUR / 2)
    after = rolling.keys(NOW + HOUR / 2)
    assert after.number > before.number
    assert after.find(stolen.kid, "short").is_over(NOW + HOUR / 2)
    assert not after.find(stolen.kid, "short").signs(NOW + HOUR / 2)
    assert rolling.signer("short", NOW + HOUR / 2).rolling.kid != stolen.kid
    assert stolen.kid in rolling.keys(stolen.end - timedelta(seconds=1)).keys
    assert stolen.kid not in rolling.keys(stolen.end).keys


def test_the_key_that_follows_can_be_ended_too() -> None:
    rolling = table()
    following = next(one for one in rolling.keys(NOW).keys.values() if one.use == "short" and one.start > NOW)
    rolling.end(following.kid, NOW)
    found = rolling.keys(NOW)
    assert found.find(following.kid, "short").until == following.start
    assert rolling.signer("short", NOW + HOUR).rolling.kid != following.kid
    with pytest.raises(NotFound):
        rolling.end(did(MALLORY), NOW)


def test_a_table_that_was_lost_is_no_old_news(tmp_path: Path) -> None:
    first = table(tmp_path).keys(NOW)
    (tmp_path / FILE).unlink()
    text = table(tmp_path).document(NOW + timedelta(seconds=5))
    assert ROLE_KEYS.verify(text, known=first).keys.keys().isdisjoint(first.keys)


def test_there_are_not_too_many_keys(tmp_path: Path) -> None:
    rolling, file = table(tmp_path), tmp_path / FILE
    rolling.signer("short", NOW)
    said = json.loads(file.read_bytes())
    more = [PrivateKey.generate(lambda _, at=at: at.to_bytes(32)) for at in range(MAX_ROLE_KEYS - len(said["keys"]))]
    said["keys"] += [{**said["keys"][0], "kid": did(one), "secret": None} for one in more]
    file.write_bytes(json.dumps(said).encode())
    kid = rolling.signer("short", NOW).rolling.kid
    rolling.end(kid, NOW)  # as many as there may be, and none that signs
    with pytest.raises(TooMany, match="MAX_ROLE_KEYS"):
        rolling.signer("short", NOW)
    later = NOW + timedelta(days=2)  # they are over by then
    assert rolling.signer("short", later).rolling.signs(later)


@pytest.mark.parametrize("use", PACES)
def test_a_key_rolls_before_what_it_signed_is_over_and_the_document_has_room(use: Use) -> None:
    pace = PACES[use]
    assert timedelta(seconds=1) <= pace.every <= pace.lasting <= LONGEST[use]
    assert not pace.every % timedelta(seconds=1)
    assert pace.lasting / pace.every <= MAX_ROLE_KEYS / 4


# -- files ----------------------------------------------------------------------------------------------------


def test_the_file_is_for_its_owners_eyes_only(tmp_path: Path) -> None:
    kept = tmp_path / "keys"
    first = table(kept).signer("short", NOW)
    assert (kept / FILE).stat().st_mode & 0o777 == 0o600
    assert kept.stat().st_mode & 0o777 == 0o700
    assert table(kept).signer("short", NOW).rolling == first.rolling
    (kept / FILE).chmod(0o640)
    with pytest.raises(BadKey, match="others can read"):
        table(kept).signer("short", NOW)
    (kept / FILE).chmod(0o600)
    kept.chmod(0o770)
    with pytest.raises(BadKey, match="others can change"):
        table(kept).signer("short", NOW)


def test_another_domains_keys_are_not_used(tmp_path: Path) -> None:
    table(tmp_path).signer("short", NOW)
    with pytest.raises(BadKey, match=did(PITO)):
        RollingTable(MALLORY, FileStore(tmp_path)).signer("short", NOW)


def spoiled(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def spoil(data: bytes) -> bytes:
        said = json.loads(data)
        change(said)
        return json.dumps(said).encode()

    return spoil


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "no JSON": lambda data: b"\xff" + data,
    "a list": lambda data: b"[" + data + b"]",
    "nested deep": lambda data: b"[" * 100_000,
    "another format": spoiled(lambda said: said.update(format=2)),
    "no number": spoiled(lambda said: said.pop("number")),
    "a number that is text": spoiled(lambda said: said.update(number="1")),
    "keys that are none": spoiled(lambda said: said.update(keys=[1])),
    "a key twice": spoiled(lambda said: said["keys"].append(said["keys"][0])),
    "another key's private half": spoiled(
        lambda said: said["keys"][0].update(secret=MALLORY.native().private_bytes_raw().hex())
    ),
    "half a private half": spoiled(lambda said: said["keys"][0].update(secret="00" * 16)),
    "a private half that is none": spoiled(lambda said: said["keys"][0].update(secret=7)),
    "times out of order": spoiled(lambda said: said["keys"][0].update(until=0)),
    "a use that is none": spoiled(lambda said: said["keys"][0].update(use="all")),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_damaged_file_is_refused_and_left_alone(name: str, tmp_path: Path) -> None:
    table(tmp_path).signer("short", NOW)
    file = tmp_path / FILE
    secrets = [one["secret"] for one in json.loads(file.read_bytes())["keys"]]
    data = SPOILED[name](file.read_bytes())
    file.write_bytes(data)
    with pytest.raises(Damaged) as refused:
        table(tmp_path).signer("short", NOW)
    assert file.read_bytes() == data
    assert str(file) in str(refused.value)
    assert not any(secret in str(refused.value) for secret in secrets)


def test_a_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b" " * 300_000)
    (tmp_path / FILE).chmod(0o600)
    with pytest.raises(BadKey, match="too long"):
        table(tmp_path).signer("short", NOW)


def test_what_another_process_changed_is_seen_at_once(tmp_path: Path) -> None:
    one, other = table(tmp_path), table(tmp_path)
    first = one.signer("short", NOW).rolling
    assert other.signer("short", NOW).rolling == first
    for _ in range(5):  # several changes within one tick of the disk's clock
        kid = other.signer("short", NOW).rolling.kid
        one.end(kid, NOW)
        assert other.signer("short", NOW).rolling.kid != kid
        assert other.keys(NOW).find(kid, "short").is_over(NOW)
        assert other.keys(NOW) == one.keys(NOW)


def test_a_changed_file_is_later_than_the_one_before_whatever_the_clock_of_the_disk_says(tmp_path: Path) -> None:
    rolling, file = table(tmp_path), tmp_path / FILE
    kid = rolling.signer("short", NOW).rolling.kid
    ahead = file.stat().st_mtime_ns + 10**15
    os.utime(file, ns=(ahead, ahead))
    rolling.end(kid, NOW)
    assert file.stat().st_mtime_ns > ahead


def test_half_a_file_of_a_killed_process_is_nobodys(tmp_path: Path) -> None:
    first = table(tmp_path).signer("short", NOW).rolling
    (tmp_path / f".{FILE}.tmp").write_bytes(b"{")
    assert table(tmp_path).signer("short", NOW).rolling == first
    assert table(tmp_path).signer("short", NOW + HOUR).rolling.kid != first.kid
    assert not (tmp_path / f".{FILE}.tmp").exists()


def test_a_lock_that_is_never_given_up_is_a_clear_error(tmp_path: Path) -> None:
    waited: list[float] = []
    with FileStore(tmp_path).alone(), pytest.raises(StorageBusy, match="another process"):
        RollingTable(PITO, FileStore(tmp_path, waited.append)).signer("short", NOW)
    assert len(waited) == MAX_LOCK_TRIES
    assert table(tmp_path).signer("short", NOW).rolling.signs(NOW)


ROLLER = """
import sys
from datetime import timedelta
from pathlib import Path
from unit.trust.corpus import NOW, PITO
from unit.trust.test_role_keys import QUICK
from headgate.trust.role_keys import FileStore
from headgate.trust.role_keys import RollingTable
rolling = RollingTable(PITO, FileStore(Path(sys.argv[1])), QUICK)
for at in range(int(sys.argv[2]), int(sys.argv[3])):
    print(rolling.signer("short", NOW + timedelta(seconds=at)).rolling.kid, flush=True)
"""


def roller(directory: Path, first: int, last: int) -> subprocess.Popen[str]:
    code = f"import sys; sys.path[:0] = {sys.path!r}\n{ROLLER}"
    arguments = [sys.executable, "-c", code, str(directory), str(first), str(last)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_a_killed_process_leaves_a_whole_table(tmp_path: Path) -> None:
    first = 0
    for lines in (1, 40, 90):
        with roller(tmp_path, first, 1_000_000) as process:
            assert process.stdout is not None
            said = [process.stdout.readline().strip() for _ in range(lines)]
            process.send_signal(signal.SIGKILL)
            said += [line.strip() for line in process.stdout if line.endswith("\n")]
        first += len(said)
        # Every key that was used is in the file or has been over for long; the lock is free.
        rolling = table(tmp_path, QUICK)
        now = NOW + timedelta(seconds=first - 1)
        assert said[-1] in rolling.keys(now).keys
        assert rolling.signer("short", now).rolling.signs(now)


def test_two_processes_share_one_table(tmp_path: Path) -> None:
    with roller(tmp_path, 0, 30) as one, roller(tmp_path, 0, 30) as other:
        said = [process.communicate(timeout=60)[0].split() for process in (one, other)]
    assert (one.returncode, other.returncode) == (0, 0)
    assert said[0][-1] == said[1][-1]
    known = table(tmp_path, QUICK).keys(NOW + timedelta(seconds=29)).keys
    assert {*said[0], *said[1]} <= known.keys()


def test_a_document_that_is_over_is_refused() -> None:
    rolling = table()
    text = rolling.document(NOW)
    with pytest.raises(Expired):
        ROLE_KEYS.verify(text, now=NOW + timedelta(days=1))
