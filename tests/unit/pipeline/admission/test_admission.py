"""Admission over columns is admission one by one: D6 and D11 again, for many events at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.publish import admit, type_check
from headgate.decide.rates import asks_rate
from headgate.lang import parse_condition, render_condition
from headgate.model.changes import SetAttribute, SetPolicyRule
from headgate.model.errors import BadDefinition, HeadgateError, TypeMismatch
from headgate.model.events import Draft, Event
from headgate.model.expressions import Compare, Constant, Meta, Predicate, Subject, all_of, any_of
from headgate.model.rights import Action, Rule, Source
from headgate.model.state import State
from headgate.model.types import BY_GATEWAY, Times
from headgate.model.values import Kind, Value, micros
from headgate.pipeline.admission import admission as module
from headgate.pipeline.admission.admission import Admission, Admitted, encode_many
from headgate.pipeline.admission.columns import from_arrow, from_drafts, grouped
from headgate.pipeline.log.codec import LogBatch, decode, from_blob, layouts, restored
from headgate.solver import check_policy_rule
from strategies.memory import MemoryLedger, exact
from strategies.running import examples
from strategies.small import CHASE, LANE, NOON, PLATE, SEEN, SPEED, UNIT, draft, forbid, grant, is_, world
from strategies.stored import encode
from strategies.worlds import Commit, Publish, Story, worlds

PUBLISH = (Action.PUBLISH,)
Answer = tuple[Any, ...]
ODD: tuple[object, ...] = (
    None, "x", "", True, 0, 1, -1, 2**63, -(2**63) - 1, 2**53 + 1, 2**70, 10**400, 1.0, 0.5, -0.0, math.nan, math.inf,
    -math.inf, 1e308, "\ud800", "00ff", "0", b"\x00", bytearray(b"a"), object, [1], {"a": 1},
    NOON, NOON.replace(tzinfo=None), NOON.replace(tzinfo=timezone(timedelta(hours=9))),
    "2026-01-01T09:00:00Z", "2026-01-01T09:00:00.123Z", "2026-01-01T09:00:00.123456+05:45", "2026-01-01T09:00:00",
    "2026-01-01", "2026-02-30T00:00:00Z", "2026-01-01T09:00:00.123456789Z", "2026-01-01 09:00:00+01", "20260101T09Z",
    "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59.999999-00:01", "0000-01-01T00:00:00Z", "2026-01-01T24:00:00Z",
    "2026-06-30T23:59:60Z", "2026-01-01T09:00:00+23:59", "2026-01-01T09:00:00+24:00", "2026-01-01T09:00:00-00:00",
    "2026-01-01T09:00:00+01:75", "1969-12-31T23:59:59.999999Z", "2026-01-01T09:00:00Z\n", "٢026-01-01T09:00:00Z",
)  # fmt: skip
"""Raw values that some kind does not accept, or accepts in another way than another kind."""


# -- one by one, and all at once ----------------------------------------------------------------------------------


def refused(error: HeadgateError) -> Answer:
    return "refused", error.code, error.message, error.remedy


def stored(event: Event) -> Answer:
    stamped = repr(event.requires), event.rate, event.origin, event.stated
    return "stored", event.id, event.source, event.publisher, event.type, *stamped, exact(event.values)


def one_by_one(
    state: State, drafts: Sequence[Draft], now: datetime, predicates: Mapping[str, Any], before: int
) -> list[Any]:
    """Each draft alone; those accepted count for those after them, and `before` were accepted earlier."""
    found: list[Event | HeadgateError] = []
    counts = asks_rate(state)
    rates: Counter[tuple[str, str]] = Counter()
    for each in drafts:
        who = each.publisher, each.type
        rate = before + rates[who] + 1 if counts else None
        try:
            found.append(admit(state, each, now=now, predicates=predicates, rate=rate, policy_rule=check_policy_rule))
            rates[who] += 1
        except HeadgateError as error:
            found.append(error)
    return found


def answers(state: State, parts: list[Admitted], rows: list[Any], now: datetime, size: int) -> list[Answer]:
    """What became of every draft, out of the parts and the bytes that would be stored."""
    found: list[Answer | None] = [None] * size
    for part, mine in zip(parts, rows, strict=True):
        assert set(part.refusals) == set(range(len(mine))) - set(part.rows.tolist())
        for row, error in part.refusals.items():
            found[mine[row]] = refused(error)
    encoded = encode_many(parts, rows)
    if encoded.count:
        batch = LogBatch("main", 1, encoded.count, state.version, micros(now), encoded.blob)
        placed = [int(rows[p][r]) for p, r in zip(encoded.part.tolist(), encoded.row.tolist(), strict=True)]
        assert placed == sorted(placed)
        for at, event in zip(placed, decode(batch, layouts(state.types)), strict=True):
            found[at] = stored(event)
    assert None not in found
    return [one for one in found if one is not None]


def agree(
    state: State, drafts: Sequence[Draft], now: datetime, predicates: Mapping[str, Any], before: int = 0
) -> list[Answer]:
    """The same answers, and the same bytes, with drafts as with Arrow."""
    reference = one_by_one(state, drafts, now, predicates, before)
    expected = [stored(one) if isinstance(one, Event) else refused(one) for one in reference]
    admission = Admission(state, predicates)
    parts, rows = admission.admit_drafts(drafts, now, lambda publisher, type_name: before)
    assert answers(state, parts, rows, now, len(drafts)) == expected
    accepted = [one for one in reference if isinstance(one, Event)]
    if accepted:
        held = from_blob(encode_many(parts, rows).blob)
        same = from_blob(encode(accepted, layouts(state.types)))
        assert sorted(held.column_names) == sorted(same.column_names)
        assert held.select(same.column_names).equals(same)
    denied = ("publish-denied", "policy-rule", "ahead-of-clock")
    sound = [at for at, one in enumerate(reference) if isinstance(one, Event) or one.code in denied]
    chosen = [drafts[at] for at in sound]
    by_columns = []
    for (publisher, type_name), mine in grouped(chosen).items():
        attributes, times = admission.attributes(type_name), admission.times(type_name)
        table = natural([chosen[at] for at in mine], attributes, times)
        columns = from_arrow(table, type_name, publisher, attributes, times=times)
        assert not columns.refusals
        origins = pa.array([chosen[at].origin for at in mine], pa.string())
        stamps = from_drafts([chosen[at] for at in mine], attributes, times)  # with what no table can say
        columns = replace(columns, origin=origins, readers=stamps.readers, made_of=stamps.made_of)
        by_columns.append(admission.admit(columns, now, before))
    again = answers(state, by_columns, list(grouped(chosen).values()), now, len(chosen))
    assert again == [expected[at] for at in sound]
    return expected


NATURAL = {
    Kind.BOOL: pa.bool_(),
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
    Kind.BYTES: pa.binary(),
}


def natural(drafts: Sequence[Draft], attributes: Mapping[str, Kind], times: Times = BY_GATEWAY) -> pa.Table:
    """Drafts as a client would send them in Arrow."""
    columns = from_drafts(drafts, attributes, times)
    arrays = {"id": columns.ids, "source": columns.sources}
    for name, array in columns.arrays.items():
        kind = attributes[name]
        target = NATURAL[kind]
        arrays[f"data.{name}"] = array.view(target) if kind is Kind.TIMESTAMP else array.cast(target)
    if columns.stated is not None:
        arrays["time"] = columns.stated.view(pa.timestamp("us", "UTC"))
    if any(d.requires is not None for d in drafts):
        arrays["requires"] = pa.array([None if d.requires is None else render_condition(d.requires) for d in drafts])
    return pa.table(arrays)


# -- random worlds ------------------------------------------------------------------------------------------------


def publishing(rule: Rule) -> Rule | None:
    """A rule about anything as a rule about publishing, if it can be one."""
    try:
        return replace(rule, actions=frozenset({Action.PUBLISH}))
    except BadDefinition:
        return None


@st.composite
def spoiled(draw: st.DrawFn, drafts: Sequence[Draft], state: State) -> list[Draft]:
    """Drafts of which some are not as their type wants them, often many of one type together."""
    found = [replace(d, source=draw(st.sampled_from(("", "/a", "é")))) for d in drafts]
    found *= draw(st.sampled_from((1, 1, 2, 3)))
    for at, each in enumerate(found):
        if draw(st.integers(0, 3)):
            continue
        match draw(st.integers(0, 9)):
            case 0:
                found[at] = replace(each, type=draw(st.sampled_from(("no.Such", *state.types))))
            case 1:
                found[at] = replace(each, values={**each.values, draw(st.sampled_from(("zz", "id", "i1"))): 1})
            case 2:
                found[at] = replace(each, values=draw(st.sampled_from(([], "x", None))))
            case 3 | 4:
                found[at] = replace(each, time=draw(st.sampled_from(ODD)))
            case _:
                names = list(state.types.attributes(each.type)) if each.type in state.types else []
                if names:
                    values = {**each.values, draw(st.sampled_from(names)): draw(st.sampled_from(ODD))}
                    found[at] = replace(each, values=values)
    return found


@examples(40, soak=150)
@given(st.booleans().flatmap(lambda roles: worlds(roles=roles)), st.data())
def test_columns_agree_with_decide(story: Story, data: st.DataObject) -> None:
    ledger = MemoryLedger(story.administrator)
    for step in (*story.setup, *story.steps):
        match step:
            case Commit(batch):
                ledger.commit_allowed(batch)
            case Publish():
                state = ledger.now
                if data.draw(st.integers(0, 3)):
                    turned = tuple(r for r in map(publishing, state.rules) if r is not None)
                    state = replace(state, rules=turned)
                drafts, before = data.draw(spoiled(step.drafts, state)), data.draw(st.integers(0, 3))
                agree(state, drafts, step.time, ledger.predicates, before)


@examples(250)
@given(st.lists(st.sampled_from(ODD), min_size=1, max_size=3), st.sampled_from(tuple(Kind)))
def test_values_are_checked_as_one_by_one(raw: list[object], kind: Kind) -> None:
    attributes = {"x": kind}
    drafts = [Draft(f"e{n}", "cam", "t.T", {"x": one}) for n, one in enumerate(raw)]
    found = from_drafts(drafts, attributes)
    for row, each in enumerate(drafts):
        held = restored(found.arrays["x"][row].as_py(), kind)
        error = found.refusals.get(row)
        assert checked(each, attributes) == (refused(error) if error else exact({"x": held}))
        assert error is None or held is None


def checked(sent: Draft, attributes: Mapping[str, Kind]) -> Answer:
    try:
        return exact(type_check(sent, attributes))
    except TypeMismatch as error:
        return refused(error)


# -- by hand ------------------------------------------------------------------------------------------------------


def outcome(changes: tuple[Any, ...], *drafts: Draft, predicates: Mapping[str, Any] | None = None) -> list[Answer]:
    state = world(*changes).now
    agree(state, drafts, NOON, predicates or {})
    parts, rows = Admission(state, predicates or {}).admit_drafts(drafts, NOON)
    return answers(state, parts, rows, NOON, len(drafts))


def views(found: list[Answer]) -> list[dict[str, str] | str]:
    return [{n: r for n, _, r in one[-1]} if one[0] == "stored" else one[1] for one in found]


def test_rows_are_split_among_grants() -> None:
    fast = grant("fast", "cam", where=Compare(">", SPEED, Constant(70)), may=PUBLISH)
    plain = grant("plain", "cam", attributes=("plate", "lane"), forced={"lane": 9}, may=PUBLISH)
    found = outcome((fast, plain), draft(plate="A", speed=80, lane=1), draft(plate="B", speed=10, lane=2), draft())
    assert views(found) == [
        {"plate": "'A'", "speed": "80", "lane": "1"},
        {"plate": "'B'", "speed": "None", "lane": "9"},
        {"plate": "None", "speed": "None", "lane": "9"},
    ]


def test_an_unknown_forbid_refuses_and_an_unknown_grant_does_not_let_in() -> None:
    stop = forbid("f", "cam", where=Compare(">", SPEED, Constant(70)), may=PUBLISH)
    some = grant("g", "cam", where=is_(LANE, 1), may=PUBLISH)
    found = outcome((stop, some), draft(lane=1), draft(speed=80, lane=1), draft(speed=1), draft(speed=1, lane=1))
    assert [one[0] for one in found] == ["refused", "refused", "refused", "stored"]
    assert "forbidden" in found[0][2]
    assert "no right" in found[2][2]


def test_a_condition_sees_what_its_grant_makes_of_the_event() -> None:
    forced = grant("r", "cam", where=is_(LANE, 9), attributes=("lane",), forced={"lane": 9}, may=PUBLISH)
    assert views(outcome((forced,), draft(lane=1, speed=5))) == [{"plate": "None", "speed": "None", "lane": "9"}]
    hidden = grant("r", "cam", where=is_(SPEED, 5), attributes=("lane",), may=PUBLISH)
    assert views(outcome((hidden,), draft(lane=1, speed=5))) == ["publish-denied"]


def test_a_forced_value_that_does_not_fit_passes_the_grant_over() -> None:
    odd = grant("odd", "cam", CHASE, attributes=("unit",), forced={"unit": "7"}, may=PUBLISH)
    rest = grant("rest", "cam", CHASE, attributes=("speed",), may=PUBLISH)
    state = world(odd, rest).now
    state = replace(state, rules=(replace(state.rules[0], forced={"unit": 7}), *state.rules[1:]))
    drafts = [draft(CHASE, unit="u", speed=1)]
    agree(state, drafts, NOON, {})
    parts, rows = Admission(state, {}).admit_drafts(drafts, NOON)
    assert views(answers(state, parts, rows, NOON, 1)) == [
        {"plate": "None", "speed": "1", "lane": "None", "unit": "None"}
    ]


def test_the_subject_and_the_clock_are_looked_at() -> None:
    rule = grant(
        "r",
        "cam",
        where=all_of(is_(PLATE, "A"), Compare("<", SPEED, Subject("limit")), is_publisher("cam")),
        may=PUBLISH,
    )
    limit = SetAttribute("cam", "limit", 50.5)
    found = outcome((rule, limit), draft(plate="A", speed=50), draft(plate="A", speed=51), draft(plate="B", speed=1))
    assert [one[0] for one in found] == ["stored", "refused", "refused"]


def is_publisher(name: str) -> Compare:
    return Compare("=", Meta("publisher"), Constant(name))


def asking(seen: list[Value], answer: object = True) -> dict[str, Any]:
    """A predicate that keeps the plates it was asked about."""

    def ask(event: Any, size: int, *args: object) -> object:
        seen.append(event["plate"])
        if isinstance(answer, Exception):
            raise answer
        return answer

    return {"ask": ask}


def with_rules(*changes: Any) -> State:
    """Rules that name a predicate without one being registered."""
    return replace(world().now, rules=tuple(change.rule for change in changes))


def test_predicates_are_asked_only_about_rows_that_are_open() -> None:
    seen: list[Value] = []
    both = all_of(Predicate("ask"), Compare(">", SPEED, Constant(5)))
    state = with_rules(
        forbid("f", "cam", where=is_(PLATE, "X"), may=PUBLISH), grant("r", "cam", where=both, may=PUBLISH)
    )
    drafts = [draft(plate=p, speed=s) for p, s in (("A", 9), ("B", 1), ("X", 9), ("C", "no"), ("D", 8))]
    parts, _ = Admission(state, asking(seen)).admit_drafts(drafts, NOON)
    assert seen == ["A", "D"]
    assert parts[0].rows.tolist() == [0, 4]
    seen.clear()
    either = any_of(Predicate("ask"), Compare(">", SPEED, Constant(5)))
    state = with_rules(grant("r", "cam", where=either, may=PUBLISH))
    Admission(state, asking(seen)).admit_drafts(drafts, NOON)
    assert seen == ["B"]


def test_a_predicate_that_fails_is_unknown() -> None:
    drafts = [draft(plate="A"), draft(plate="B", lane=1)]
    for rules in (
        (grant("r", "cam", where=Predicate("ask"), may=PUBLISH),),
        (forbid("r", "cam", where=Predicate("ask"), may=PUBLISH), grant("s", "cam", may=PUBLISH)),
    ):
        for answer in (RuntimeError("no"), 1, None, True, False):
            agree(with_rules(*rules), drafts, NOON, asking([], answer))
        agree(with_rules(*rules), drafts, NOON, {})


def test_mixed_batches_keep_their_order() -> None:
    rules = grant("r", "cam", may=PUBLISH), grant("s", "cam", CHASE, may=PUBLISH), grant("t", "bob", may=PUBLISH)
    drafts = [
        replace(draft(CHASE if n % 3 else SEEN, "bob" if n % 5 == 3 else "cam", speed=n), id=f"e{n}") for n in range(20)
    ]
    found = outcome(rules, *drafts, draft("no.Such"), draft(speed=1.5))
    assert [one[1] for one in found[:20] if one[0] == "stored"] == [
        f"e{n}" for n in range(20) if n % 5 != 3 or n % 3 == 0
    ]
    assert [one[1] for one in found[20:]] == ["unknown-type", "type-mismatch"]


def test_what_a_grant_nulls_is_not_in_the_bytes() -> None:
    rules = (
        grant("r", "cam", where=is_(LANE, 1), attributes=("lane",), may=PUBLISH),
        grant("s", "cam", may=PUBLISH),
    )
    drafts = [draft(plate="secret", speed=77777777, lane=1), draft(plate="open", speed=5, lane=2)]
    parts, _ = Admission(world(*rules).now, {}).admit_drafts(drafts, NOON)
    held = b"".join(bytes(b) for c in parts[0].table.columns for chunk in c.chunks for b in chunk.buffers() if b)
    assert b"open" in held
    assert b"secret" not in held
    assert (77777777).to_bytes(8, "little") not in held


def test_nothing_accepted_is_nothing_to_store() -> None:
    parts, rows = Admission(world().now, {}).admit_drafts([draft(), draft("no.Such")], NOON)
    assert encode_many(parts, rows).count == 0
    assert encode_many([]).count == 0


def test_parts_of_several_requests_go_one_after_another() -> None:
    admission = Admission(world(grant("r", "cam", may=PUBLISH), grant("s", "cam", CHASE, may=PUBLISH)).now, {})
    first = admission.admit(from_drafts([draft(speed=1), draft(speed="x")], admission.attributes(SEEN)), NOON)
    second = admission.admit(from_drafts([draft(CHASE, unit="u")], admission.attributes(CHASE)), NOON)
    encoded = encode_many([second, first])
    assert (encoded.count, encoded.part.tolist(), encoded.row.tolist()) == (2, [0, 1], [0, 0])
    assert from_blob(encoded.blob).column("type").to_pylist() == [CHASE, SEEN]


def test_entries_after_one_that_lets_all_in_are_not_kept(monkeypatch: Any) -> None:
    state = world(
        grant("r", "cam", may=PUBLISH), grant("s", "cam", where=is_(UNIT, "x"), may=PUBLISH, type_name=CHASE)
    ).now
    admission = Admission(state, {})
    assert len(admission.entries("cam", SEEN)) == 1
    monkeypatch.setattr(module, "MAX_PREPARED", 1)
    assert len(admission.entries("cam", CHASE)) == 1
    assert admission.entries("bob", CHASE) == ()


def test_ids_that_cannot_be_stored_are_refused() -> None:
    admission = Admission(world(grant("r", "cam", may=PUBLISH)).now, {})
    drafts = [draft(speed=1), replace(draft(speed=1), id="\ud800"), replace(draft(speed=1), source="\ud800")]
    parts, _ = admission.admit_drafts(drafts, NOON)
    assert parts[0].rows.tolist() == [0]
    assert {error.code for error in parts[0].refusals.values()} == {"type-mismatch"}


# -- what is counted, where it came from, and what it requires ----------------------------------------------------


RATE = Meta("rate")


def rated(limit: Any, *more: Any) -> Any:
    """A grant of so many events of late."""
    return grant("r", "cam", where=all_of(Compare("<=", RATE, limit), *more), may=PUBLISH)


def verdicts(found: list[Answer]) -> str:
    return "".join("y" if one[0] == "stored" else "n" for one in found)


def rates_of(found: list[Answer]) -> list[int]:
    return [one[6] for one in found if one[0] == "stored"]


def test_each_accepted_event_counts_for_those_after_it() -> None:
    state = world(rated(Constant(3))).now
    drafts = [draft(), draft(no=1), draft(), draft("no.Such"), draft(), draft()]
    found = agree(state, drafts, NOON, {})
    assert verdicts(found) == "ynynyn"
    assert rates_of(found) == [1, 2, 3]
    assert verdicts(agree(state, drafts, NOON, {}, before=2)) == "ynnnnn"


def test_a_refused_event_leaves_the_rate_as_it_was() -> None:
    slow = Compare("<", SPEED, Constant(50))
    state = world(rated(Constant(2), slow)).now
    found = agree(state, [draft(speed=n) for n in (60, 10, 70, 20, 30)], NOON, {})
    assert verdicts(found) == "nynyn"
    assert rates_of(found) == [1, 2]


def test_rates_are_tried_between_whole_numbers_and_in_sets() -> None:
    between = grant("a", "cam", where=Compare("<", RATE, Constant(2.5)), may=PUBLISH)
    again = grant("b", "cam", where=parse_condition("@rate in {4, 5} or @rate > 7"), may=PUBLISH)
    state = world(between, again).now
    assert verdicts(agree(state, [draft()] * 4, NOON, {})) == "yynn"
    assert verdicts(agree(state, [draft()] * 4, NOON, {}, before=3)) == "yynn"
    assert verdicts(agree(state, [draft()] * 4, NOON, {}, before=7)) == "yyyy"


def test_a_rate_may_be_compared_with_what_differs_from_event_to_event() -> None:
    state = world(rated(SPEED), forbid("f", "cam", where=is_(LANE, 7), first=True, may=PUBLISH)).now
    found = agree(state, [draft(speed=s, lane=1) for s in (1, 1, 2, 9, 3)], NOON, {})
    assert verdicts(found) == "ynyyn"
    assert verdicts(agree(state, [draft(speed=5, lane=n) for n in (7, 1, 7, 1)], NOON, {})) == "nyny"


def test_without_a_rule_that_asks_nothing_is_counted() -> None:
    state = world(grant("r", "cam", may=PUBLISH)).now
    assert not Admission(state, {}).asks_rate
    assert rates_of(agree(state, [draft(), draft()], NOON, {}, before=4)) == [None, None]


def test_what_is_not_counted_is_unknown() -> None:
    state = world(rated(Constant(3))).now
    parts, _ = Admission(state, {}).admit_drafts([draft()], NOON)
    assert parts[0].refusals[0].code == "publish-denied"


def test_an_event_is_stamped_with_where_it_came_from() -> None:
    here = grant("r", "cam", where=parse_condition("@origin starts with '10.'"), may=PUBLISH)
    drafts = [replace(draft(), origin=one) for one in ("10.0.0.1", None, "192.168.0.1", "10.9.9.9")]
    state = world(here).now
    found = agree(state, drafts, NOON, {})
    assert [one[7] for one in found if one[0] == "stored"] == ["10.0.0.1", "10.9.9.9"]
    assert verdicts(found) == "ynny"
    same = [replace(draft(), origin="10.0.0.1")] * 2
    assert verdicts(agree(state, same, NOON, {})) == "yy"


def test_a_policy_rule_is_put_to_each_requirement_once(monkeypatch: pytest.MonkeyPatch) -> None:
    secret, other = parse_condition("$c = 'secret'"), parse_condition("$c = 'open'")
    state = world(grant("r", "cam", may=PUBLISH), SetPolicyRule("cam", parse_condition("$c in {'secret', 'top'}"))).now
    drafts = [replace(draft(speed=n), requires=r) for n, r in enumerate([secret, other, None, secret, other])]
    found = agree(state, drafts, NOON, {})
    assert verdicts(found) == "ynnyn"
    assert {one[1] for one in found if one[0] == "refused"} == {"policy-rule"}
    assert "open" in found[1][3]
    asked: list[object] = []
    real = module.check_policy_rule
    monkeypatch.setattr(module, "check_policy_rule", lambda *args: (asked.append(args[-1]), real(*args)))
    Admission(state, {}).admit_drafts(drafts, NOON)
    assert len(asked) == 3


def test_what_the_policy_rule_refuses_does_not_count() -> None:
    state = world(rated(Constant(1)), SetPolicyRule("cam", parse_condition("$c = 1"))).now
    drafts = [draft(), replace(draft(), requires=parse_condition("$c = 1")), draft()]
    found = agree(state, drafts, NOON, {})
    assert [one[1] if one[0] == "refused" else "stored" for one in found] == ["policy-rule", "stored", "publish-denied"]


def test_a_requirement_that_is_none_is_refused_after_the_type_and_before_the_right() -> None:
    about = parse_condition("speed = 1")
    state = world().now
    drafts = [replace(draft(**values), requires=about) for values in ({"speed": "x"}, {"speed": 1})]
    reference = one_by_one(state, drafts, NOON, {}, 0)
    parts, _ = Admission(state, {}).admit_drafts(drafts, NOON)
    assert [refused(parts[0].refusals[n]) for n in (0, 1)] == [refused(one) for one in reference]
    assert [one.code for one in reference] == ["type-mismatch", "bad-expression"]


def test_a_chain_may_force_what_it_does_not_let_through() -> None:
    state = world(grant("r", "cam", attributes=("plate",), may=PUBLISH)).now
    of_chain = replace(state.rules[0], source=Source.CHAIN, author="owner")
    drafts = [draft(plate="A", speed=1, lane=2)]
    outside = replace(state, rules=(replace(of_chain, forced={"lane": 9}),))
    assert views(agree(outside, drafts, NOON, {})) == [{"plate": "'A'", "speed": "None", "lane": "None"}]
    everything = replace(state, rules=(replace(of_chain, attributes=None, forced={"lane": 9}),))
    assert views(agree(everything, drafts, NOON, {})) == [{"plate": "'A'", "speed": "1", "lane": "9"}]
    unfit = replace(state, rules=(replace(of_chain, attributes=None, forced={"lane": "x"}),))
    assert views(agree(unfit, drafts, NOON, {})) == ["publish-denied"]
