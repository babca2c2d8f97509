"""What composite events mean: worked examples (OASIS 6.5, 6.6 and 6.11); wrong readings of it, each of them noticed."""

# ruff: noqa: E501 - a wrong reading is one line

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.strategies.composites import arriving, event, resolved, seconds

from headgate.decide import blocks, composite
from headgate.decide.blocks import Moment, SourceFacts, detect
from headgate.decide.composite import Complete, Occurrence, Signal, environment
from headgate.model.errors import BadExpression
from headgate.model.values import EPOCH, Value

ONE = {"main": SourceFacts()}
Shown = set[tuple[float, tuple[tuple[str, Value], ...]]]
SEEN = [event("Seen", time, "b", room) for time, room in enumerate("aabba", start=1)]
TOGETHER = [
    event("Seen", 1, "ann", "1"), event("Seen", 2, "bob", "1"), event("Seen", 3, "bob", "1"),
    event("Seen", 4, "ann", "2"), event("Seen", 5, "bob", "2"),
]  # fmt: skip


def shown(signals: Any) -> Shown:
    """Times in seconds, and values."""
    return {((signal[0] - EPOCH).total_seconds(), signal[1]) for signal in signals}


def a(time: float, x: Value = 1) -> Occurrence:
    return event("A", time, x)


def b(time: float, x: Value = 1) -> Occurrence:
    return event("B", time, x)


X1, X2 = (("x", 1),), (("x", 2),)
EXAMPLES: dict[str, tuple[str, list[Occurrence], Shown]] = {
    "the first after the start": ("A(x)", [a(3, 2), a(2)], {(2, X1)}),
    "an event at the start does not match": ("A(x); B(x)", [a(1), b(1)], set()),
    "each event of the earliest time": ("A(x)", [a(2), a(2, 2), a(3, 3)], {(2, X1), (2, X2)}),
    "then": ("A(x); B(x)", [b(1), a(2), b(3, 2), b(4)], {(4, X1)}),
    "or, each once": ("A(x) | A(x)", [a(1)], {(1, X1)}),
    "without": ("A(x) - B(x)", [a(1), b(2)], {(1, X1)}),
    "a tie kills": ("A(x) - B(y)", [a(1), b(1)], set()),
    "the right of - starts with what was bound before": ("A(x) - B(x)", [b(1, 2), a(2)], set()),
    "what is bound before is bound on the right of -": ("A(x); (A(x) - B(x))", [a(1), b(2, 2), a(3)], {(3, X1)}),
    "what kills binds nothing": ("$A(x) - B(y); A(x)", [a(1), a(2), b(3)], {(2, X1)}),
    "a kill at the start is none": ("A(x); (A(x) - null)", [a(1), a(2)], {(2, X1)}),
    "whenever": ("$A(x)", [a(1), a(2, 2), a(2)], {(1, X1), (2, X2), (2, X1)}),
    "whenever keeps the old environment": ("$(A(x); B(x))", [a(1), b(2), a(3, 2), b(4, 2)], {(2, X1), (4, X2)}),
    "starts again after each": ("$(A(x); B(x))", [a(1), a(2, 2), b(3), b(4, 2)], {(3, X1)}),
    "whenever until": ("$A(x) - B(x)", [a(1), a(2), b(3), a(4)], {(1, X1), (2, X1)}),
    "null": ("null", [], {(0, ())}),
    "the least solution": ("$null", [], {(0, ())}),
    "tests are part of matching": ("A(x) {x > 1}", [a(1), a(2, 2)], {(2, X2)}),
    "null matches no variable": ("A(x)", [a(1, None), a(2)], {(2, X1)}),
    "null matches *": ("A(*)", [a(1, None)], {(1, ())}),
    "a literal": ("A(2)", [a(1), a(2, 2)], {(2, ())}),
    "null matches no literal": ("A(2)", [a(1, None), a(2, 2)], {(2, ())}),
    "unknown does not pass": ("A(x) {x + 9223372036854775807 > 0}", [a(1)], set()),
    "a variable agrees with itself": ("C(x, x)", [event("C", 1, 1, 2), event("C", 2, 2, 2)], {(2, X2)}),
    "an assignment": ("A(x) {n <- x + 1}; C(x, n)", [a(1), event("C", 2, 1, 2)], {(2, (("n", 2), ("x", 1)))}),
    "a timer": ("A(x) {t <- @ + 2}; AbsTime(t); B(*)", [a(1), b(2), b(5)], {(5, (("t", seconds(3)), ("x", 1)))}),
    "a timer in the past never fires": ("A(x); AbsTime(1)", [a(1)], set()),
    "a timer bounds": ("A(x) - AbsTime(3)", [a(4)], set()),
    "rows count at the start": ("A(*); Row(x, y)", [event("Row", 1, 1, 7), a(2)], {(2, (("x", 1), ("y", 7)))}),
    "a row replaces": (
        "A(*); $Row(x, *)", [event("Row", 1, 1, 7, seq=1), event("Row", 1, 1, 8, seq=2), a(2), event("Row", 3, 2, 9)],
        {(2, X1), (3, X2)},
    ),
    "an older version of a row is gone": (
        "A(*); $Row(*, y)", [event("Row", 1, 1, 7, seq=1), event("Row", 2, 1, 8, seq=2), a(3)], {(3, (("y", 8),))},
    ),
    "enters": (
        "$Seen(b, r1); Seen(b, r) - Seen(b, r1)", SEEN,
        {(3, (("b", "b"), ("r", "b"), ("r1", "a"))), (5, (("b", "b"), ("r", "a"), ("r1", "b")))},
    ),
    "together": (
        "$Seen('ann', r); $Seen('bob', r) - Seen('ann', r1)", TOGETHER,
        {(2, (("r", "1"),)), (3, (("r", "1"),)), (5, (("r", "2"),))},
    ),
    "deposits": (
        """$Open(x); { int t = 0; expr: $Deposit(x, a) - Close(x) event: t = t + new.a; kill hd.tl
           end: if (hd) { hd.t = t; hd.@ = @; accept hd; } }""",
        [event("Open", 1, 1), event("Deposit", 2, 1, 5), event("Deposit", 3, 2, 9), event("Deposit", 4, 1, 7),
         event("Close", 5, 1), event("Open", 6, 2), event("Close", 7, 2)],
        {(5, (("a", 5), ("t", 12), ("x", 1)))},
    ),
    "the longest jump": (
        """{ pt q = null; expr: $Deposit(*, d) - Close(*)
           event: if (q == null) {q = new;} elseif (new.d > q.d) {kill q; q = new;} else {kill new;}
           end: if (hd) {accept hd;} }""",
        [event("Deposit", 1, 1, 5), event("Deposit", 2, 1, 9), event("Deposit", 3, 1, 7), event("Close", 4, 1)],
        {(2, (("d", 9),))},
    ),
    "the first over the line": (
        "{ expr: $A(x) event: if (var > hd) {accept hd; kill;} var: if (var > hd) {accept hd; kill;} }",
        [a(5, 2), a(3), a(7)], {(3, X1)},
    ),
    "two queues": (
        """{ int n = 0; expr: $A(x) - Alarm() event: n = n + 1; expr: Alarm() end: if (hd0) {hd0.n = n; accept hd0;} }""",
        [a(1), a(2, 2), event("Alarm", 3)], {(1, (("n", 2), ("x", 1)))},
    ),
    "an end by the left side is not one by what came later": (
        "{ expr: A(x) - B(*) end: hd.e = @; accept hd; }", [a(2), b(5)], {(2, (("e", seconds(2)), ("x", 1)))},
    ),
    "a bool in a condition": ("{ bool f = false; expr: $A(x) event: if (f) { accept new; } }", [a(1)], set()),
    "times of records in seconds": ("{ expr: $A(x) event: new.@ = 7; accept new; }", [a(1)], {(7, X1)}),
    "an overflow is no value": (
        "{ int n = 9223372036854775807; expr: $A(x) event: n = n + 1; new.n = n; accept new; }", [a(1)], set(),
    ),
    "a time in a set": ("A(x) {@ in {3, 5}}", [a(2), a(5, 2)], {(5, X2)}),
    "an empty count is no signal": ("count ($A(x) - Alarm())", [event("Alarm", 3)], set()),
    "a count by a variable": (
        "count ($A(x) - Alarm()) by x", [a(1), a(2, 2), a(2), event("Alarm", 3)],
        {(3, (("count", 2), ("x", 1))), (3, (("count", 1), ("x", 2)))},
    ),
}  # fmt: skip


def found(text: str, events: list[Occurrence], meant: Any = composite, run: Any = blocks) -> Shown:
    """What comes of an example: without blocks by the meaning alone, and by arrival in any case."""
    c = resolved(text)
    by_arrival = shown(run.detect(c, EPOCH, (), arriving(events), ONE)[-1])
    try:
        plain = shown(meant.signals(c, EPOCH, (), meant.Complete(events)))
    except NotImplementedError:
        return by_arrival
    return plain if plain == by_arrival else plain | by_arrival | {(-1, ())}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    text, events, expected = EXAMPLES[name]
    assert found(text, events) == expected


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_arrive_in_any_order(name: str) -> None:
    text, events, expected = EXAMPLES[name]
    assert found(text, events[::-1]) == expected


MUTANTS: dict[str, tuple[str, str]] = {
    "a tie does not kill": ("self.first <= later(signal.time, self._shift)", "self.first < later(signal.time, self._shift)"),
    "matches at the start count": ("if one.time > start:", "if one.time >= start:"),
    "the last match, not the first": ("first = min((signal.time", "first = max((signal.time"),
    "only one match of a time": ('in every if signal.time == first)', 'in every if signal is next(s for s in every if s.time == first))'),
    "whenever signals once": ("return frozenset(matches(template, start, env, known))", "return signals(template, start, env, known)"),
    "whenever keeps what it bound": ('least |= signals(of, at, env, known)', 'least |= signals(of, at, env if at == start else next(s.environment for s in least if s.time == at), known)'),
    "whenever does not start again": ("starts += sorted(", "_ = sorted("),
    "bindings leak into the right of -": ('times = [kill.time for kill in signals(c.right, start, env, foreseen)', 'times = [kill.time for e in {s.environment for s in signals(c.left, start, env, known)} or {env} for kill in signals(c.right, start, e, foreseen)'),
    "a kill at the start counts": ("if kill.time > start]", "if kill.time >= start]"),
    "null matches a variable": ("value is not None and compare", "value is None or compare"),
    "null matches a literal": ('fits = compare("=", tree.plain(literal), value) is True', 'fits = compare("=", tree.plain(literal), value) is not False'),
    "a variable need not agree with itself": ('compare("=", bound.setdefault(name, value), value) is True', "bound.setdefault(name, value) is not None"),
    "tests after the first match": ("every = list(matches(c, start, env, known))", "every = [s for s in matches(c, start, env, known)]; _first = min((o.time for o in known.of(c.type) if o.time > start), default=None); every = [s for s in every if s.time == _first]"),
    "unknown passes a test": ("evaluate(one.condition, leaves) is not True", "evaluate(one.condition, leaves) is False"),
    "a timer in the past fires": ("at is not None and at > start", "at is not None and at >= start"),
    "rows there do not count": ("for row in rows.values():", "for row in ():"),
    "every version of a row counts": ("rows[one.key] = one", "rows[one.key, one.seq] = one"),
    "or is exclusive": ("signals(left, start, env, known) | signals(right, start, env, known)", "signals(left, start, env, known) ^ signals(right, start, env, known)"),
    "then starts at the beginning": ("signals(right, later(one.time, shift), one.environment", "signals(right, start, one.environment"),
    "then forgets what was bound": ("signals(right, later(one.time, shift), one.environment, known)", "signals(right, later(one.time, shift), env, known)"),
    "an absence is certain at once": ("return not self.kill(signal) and later(signal.time, self._shift) < self.settled", "return not self.kill(signal)"),
    "the first is certain at once": ("certain = first < known.horizon((c.type,))", "certain = bool(every)"),
}  # fmt: skip
WAITING = ("$A(x) - B(x)", "A(x)")


def mutant(old: str, new: str) -> tuple[Any, Any]:
    """The reference, read otherwise."""
    source = Path(composite.__file__).read_text("utf-8")
    assert source.count(old) == 1, old
    changed = types.ModuleType("mutant")
    changed.__dict__["__name__"] = composite.__name__
    exec(compile(source.replace(old, new), "mutant", "exec"), changed.__dict__)
    text = Path(blocks.__file__).read_text("utf-8")
    played = types.ModuleType("played")
    played.__dict__["__name__"] = blocks.__name__
    text = text.replace("from headgate.decide import composite as meaning\n", "")
    line = next(line for line in text.splitlines() if line.startswith("from headgate.decide.composite import"))
    names = line.partition(" import ")[2]
    text = text.replace(line, "\n".join(f"{name} = meaning.{name}" for name in names.split(", ")))
    played.__dict__["meaning"] = changed
    exec(compile(text, "played", "exec"), played.__dict__)
    return changed, played


def first_moment(run: Any) -> int | None:
    """At which moment a signal is given for which no promise is there yet."""
    for text in WAITING:
        told = run.detect(resolved(text), EPOCH, (), [Moment((one,), {}) for one in (a(2), b(1), a(1))], ONE)
        for at, signals in enumerate(told):
            if signals:
                return at
    return None


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_reading_is_noticed(name: str) -> None:
    meant, run = mutant(*MUTANTS[name])
    noticed = first_moment(run) is not None
    for text, events, expected in EXAMPLES.values():
        if noticed:
            break
        try:
            noticed = found(text, events, meant, run) != expected
        except Exception:  # noqa: BLE001 - a reading that fails is noticed
            noticed = True
    assert noticed


def test_nothing_is_signalled_before_it_is_certain() -> None:
    assert first_moment(blocks) is None


def test_what_starts_later_takes_nothing_back() -> None:
    c = resolved("null - (B(2); A(*))")
    streams = {"a": SourceFacts(frozenset({"lab.A"})), "b": SourceFacts(frozenset({"lab.B"}))}
    moments = [
        Moment((), {"b": seconds(1)}),
        Moment((b(2, 2),), {"b": seconds(3)}),
        Moment((), {"a": seconds(9), "b": seconds(9)}),
    ]
    assert [len(certain) for certain in detect(c, EPOCH, (), moments, streams)] == [1, 1, 1]


def test_a_delay_assumes_absence_and_stays_with_it() -> None:
    c = resolved("A(x) - {Delay = 5} B(x)")
    moments = [
        Moment((a(4),), {"main": seconds(4)}, seconds(10)), Moment((), {"main": seconds(5)}, seconds(14)),
        Moment((), {"main": seconds(5)}, seconds(20)), Moment((b(5),), {"main": seconds(9)}, seconds(21)),
    ]  # fmt: skip
    late = {"main": SourceFacts(frozenset({"lab.A"})), "other": SourceFacts(frozenset({"lab.B"}))}
    assert [len(certain) for certain in detect(c, EPOCH, (), moments, late)] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("probability", "survives"), [(0.5, True), (0.9, False)],
)  # fmt: skip
def test_a_probability_shifts_the_times_that_are_compared(probability: float, survives: bool) -> None:
    c = resolved(f"A(x) - {{Probability = {probability}}} B(x)")
    streams = {"main": SourceFacts(None, error=2.0)}
    assert bool(detect(c, EPOCH, (), arriving([a(4), b(5)]), streams)[-1]) is survives


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("Nothing(x)", "line 1, column 1", "no event type `Nothing`"),
        ("A(x, y)", "line 1, column 1", "takes 1 parameters, not 2"),
        ("A('a')", "line 1, column 1", "`x` of `lab.A`"),
        ("A(x) - Seen(x, *)", "line 1, column 8", "of kind int and of kind string"),
        ("A(*) {x > 1}", "line 1, column 7", "`x` is not surely bound"),
        ("(A(x) | B(y)); C(*, *) {x = 1}", "line 1, column 25", "`x` is not surely bound"),
        ("A(x) - B(y); C(*, *) {y = 1}", "line 1, column 23", "`y` is not surely bound"),
        ("A(x) {x <- 3}", "line 1, column 7", "surely bound already"),
        ("AbsTime(t)", "line 1, column 1", "not surely bound"),
        ("A(at)", "line 1, column 1", "may not be called `at`"),
        ("A(x) {x = 'a'}", "line 1, column 7", "compared with"),
        ("A(x) {x in staff}", "line 1, column 7", "text"),
        ("Seen(b, *) {b in staff}", "line 1, column 13", "no open group"),
        ("Seen(b, *) {Boss(b, 'x')}", "line 1, column 13", "no open relation"),
        ("{ expr: A(x) event: n = 1; }", "line 1, column 1", "`n` is not declared"),
        ("{ expr: A(x) event: accept q; }", "line 1, column 1", "`q` means nothing"),
        ("{ expr: A(x) event: new.y = new; }", "line 1, column 1", "a field is a value"),
        ("{ expr: A(x) event: new.tl = 5; }", "line 1, column 1", "a field is a value"),
        ("{ int n = 0; expr: A(x) event: n = new; }", "line 1, column 1", "`n` cannot become `new`"),
        ("{ string s = 'a'; expr: A(x) event: s = 5; }", "line 1, column 1", "`s` cannot become `5`"),
        ("{ expr: A(x) event: loop (hd = hd) { accept hd; } }", "line 1, column 1", "`hd` cannot point"),
        ("{ int n = 0; expr: A(x) event: loop (n = hd) { kill; } }", "line 1, column 1", "`n` cannot point"),
        ("{ expr: A(x) event: if (new < 5) { kill; } }", "line 1, column 1", "different kinds"),
        ("{ expr: A(x) event: if (new.x contains 'a') { kill; } }", "line 1, column 1", "different kinds"),
        ("sum r (Seen(b, r))", "line 1, column 1", "`r` is no number"),
        ("count (A(x)) by y", "line 1, column 1", "`y` is not surely bound"),
    ],
)
def test_what_is_refused_is_refused_with_its_place(text: str, place: str, words: str) -> None:
    with pytest.raises(BadExpression, match=words) as refusal:
        resolved(text)
    assert refusal.value.place == place


def test_times_are_written_in_seconds() -> None:
    assert found("A(x) {@ > 3}", [a(2), a(4, 2)]) == {(4, X2)}
    assert found("A(x) {@ in 3..5}", [a(2), a(4, 2)]) == {(4, X2)}


def test_initial_values_are_part_of_the_environment() -> None:
    signals: Callable[..., Any] = composite.signals
    given = environment({"x": 2})
    assert signals(resolved("A(x)", x=2), EPOCH, given, Complete([a(1), a(2, 2)])) == {Signal(seconds(2), X2)}
