"""Is there an attribute set or an event under which conditions have certain truths? Answered by z3, and checked.

Guarantees: values that are found reach the goal by the reference semantics, or are not given. "There are none" is said
only where z3 has proven it of all values that matter (`terms`). Unknown, because time ran out or a text or clock lies
beyond what is modelled, is an answer of its own. The same question has the same answer, whatever was asked before.
Leaves out: what predicates answer, and groups and relations without a state, which are free to be anything.

Every term is the place of a value in its table, so that an atom about one term is a set of places, and a comparison of
two terms is one of their places. Only texts that are compared with each other and looked into are texts to z3 too.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from headgate.decide.truth import World, clock_part, truth
from headgate.model import expressions as tree
from headgate.model.events import Event
from headgate.model.expressions import (
    Atom,
    Condition,
    Constant,
    Operand,
    all_of,
    any_of,
    operands,
    plain,
    with_operands,
)
from headgate.model.state import State
from headgate.model.values import Value, same
from headgate.solver.order import Family, as_kind, moment_showing
from headgate.solver.terms import (
    ConditionFrame,
    Every,
    Goal,
    Some,
    Term,
    TermTable,
    Want,
    atoms_of,
    can_be_null,
    domain,
    may_be,
    met,
    single,
    tables,
    terms_of,
)
from headgate.solver.texts import Letters

MOST_ATOMS: Final = 5_000
"""Atoms of one question; with more, it is not looked at."""

_MOST_TRIES: Final = 8
"""Answers of z3 that are put to `truth` before one gives up: one may rest on what is not modelled."""

_MOST_TRIMMED: Final = 20_000
"""Values times atoms up to which values that do not matter are taken out of an answer."""

_SEED: Final = 7
_NOWHERE: Final = World(State())
_Formula: TypeAlias = Any
"""A z3 formula, or a plain bool: z3's own types do not say which sort they are of."""
_Truths: TypeAlias = tuple[_Formula, _Formula]
"""When a condition is true, and when it is false; otherwise it is unknown."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Values that reach a goal; without them, whether it is proven that there are none."""

    values: Mapping[Term, Value] | None = None
    proven: bool = False

    @property
    def exists(self) -> bool | None:
        """Are there such values? None if that could not be told."""
        return True if self.values is not None else False if self.proven else None


def find(goal: Goal, frame: ConditionFrame, seconds: float) -> Solution:
    """Values that reach a goal, or the proof that there are none, within a time."""
    every = list(atoms_of(goal))
    term_tables = tables(every, frame) if len(every) <= MOST_ATOMS else None
    if term_tables is None:
        return Solution()
    encoded = _Encoded(every, term_tables, frame)
    encoded.add(encoded.goal(goal))
    end = time.monotonic() + seconds  # from here: loading z3 and setting the question are not the search
    for tried in range(_MOST_TRIES):
        left = end - time.monotonic()
        answer = encoded.ask(left) if left > 0 else None
        if answer is not True:
            return Solution(proven=answer is False and tried == 0)  # that there is no other answer proves nothing
        values = encoded.values()
        if values is not None and met(goal, values, frame):
            few = len(values) * len(every) <= _MOST_TRIMMED
            return Solution(_fewest(goal, values, frame) if few else values)
        encoded.refuse()
    return Solution()


def _fewest(goal: Goal, values: Mapping[Term, Value], frame: ConditionFrame) -> dict[Term, Value]:
    """The same values without those that do not matter."""
    kept = dict(values)
    for term in values:
        less = {**kept, term: None}
        if can_be_null(term) and met(goal, less, frame):
            kept = less
    return kept


class _Encoded:
    """A question as z3 has it."""

    def __init__(self, every: Sequence[Atom], term_tables: Mapping[Term, TermTable], frame: ConditionFrame) -> None:
        import z3

        # A context of its own: none may serve two threads, and in one that was used before z3 may choose otherwise.
        self.z3, self.ctx, self.frame = z3, z3.Context(), frame
        self.tables = term_tables
        self.letters = _letters(every, self.tables)
        self.solver = z3.Solver(ctx=self.ctx)
        self.solver.set("random_seed", _SEED)
        self.solver.set("ctrl_c", False)  # an interrupt is the program's, not z3's
        self.place = {term: z3.Int(f"place{n}", self.ctx) for n, term in enumerate(self.tables)}
        loose = [term for term, table in self.tables.items() if table.loose]
        self.text = {term: z3.String(f"text{n}", self.ctx) for n, term in enumerate(loose)}
        self.opaque: list[_Truths] = []
        self.known: dict[str, _Truths] = {}  # by what an atom looks like: 1, 1.0 and true are three constants
        for term in self.tables:
            self.add(self._in_domain(term))
            if isinstance(term, tree.ClockPart):
                self.add(self._clock(term))

    # -- formulas -----------------------------------------------------------------------------------------------

    def add(self, formula: _Formula) -> None:
        """Ask for this too."""
        self.solver.add(self.z3.BoolVal(formula, self.ctx) if isinstance(formula, bool) else formula)

    def all(self, parts: Iterable[_Formula]) -> _Formula:
        """All of these."""
        kept = [part for part in parts if part is not True]
        if any(part is False for part in kept):
            return False
        return True if not kept else kept[0] if len(kept) == 1 else self.z3.And(*kept)

    def any(self, parts: Iterable[_Formula]) -> _Formula:
        """At least one of these."""
        return self.no(self.all(map(self.no, parts)))

    def no(self, part: _Formula) -> _Formula:
        """Not this."""
        if isinstance(part, bool):
            return not part
        return part.arg(0) if self.z3.is_not(part) else self.z3.Not(part)

    def goal(self, goal: Goal) -> _Formula:
        """When a goal is reached."""
        match goal:
            case Want(condition, wanted, is_met):
                reached = self.truths(condition)[0 if wanted else 1]
                return reached if is_met else self.no(reached)
            case Every(goals):
                return self.all(self.goal(one) for one in goals)
            case Some(goals):
                return self.any(self.goal(one) for one in goals)

    def truths(self, condition: Condition) -> _Truths:
        """When a condition is true and when it is false, by Kleene's tables (D1)."""
        match condition:
            case tree.Starred(arg):
                return self.truths(arg)
            case tree.Not(arg):
                yes, no = self.truths(arg)
                return no, yes
            case tree.AllOf(args):
                parts = [self.truths(arg) for arg in args]
                return self.all(yes for yes, _ in parts), self.any(no for _, no in parts)
            case tree.AnyOf(args):
                parts = [self.truths(arg) for arg in args]
                return self.any(yes for yes, _ in parts), self.all(no for _, no in parts)
            case atom:
                key = repr(atom)
                if key not in self.known:
                    self.known[key] = self._atom(atom)
                return self.known[key]

    # -- atoms --------------------------------------------------------------------------------------------------

    def _atom(self, atom: Atom) -> _Truths:
        terms = terms_of(atom)
        match atom:
            case tree.Predicate():
                return self._free(atom, True)
            case tree.Related(relation, args):
                return self._related(atom, args, self.frame.rows(relation, len(args)))
            case tree.InGroup(_, group) if self.frame.members(group) is None:
                return self._free(atom, self.all(map(self._is_text, terms)))
            case _ if not terms:
                answer = truth(atom, _NOTHING, self._world)
                return answer is True, answer is False
            case _ if len(terms) == 1:
                return self._of_one(atom, terms[0])
            case tree.Compare(op, left, right):
                return self._of_two(op, left, right)
            case tree.TextMatch(op, left, right):
                return self._texts(op, left, right)
            case _:
                return self.truths(all_of(*single(atom)))

    @property
    def _world(self) -> World:
        return _NOWHERE if self.frame.state is None else World(self.frame.state)

    def _of_one(self, atom: Atom, term: Term) -> _Truths:
        """An atom about one term: true at some places of its table, and false at others."""
        table = self.tables[term]
        yes, no = (self._at(term, places) for places in self._places(atom, term, table))
        if table.loose:
            more = self._loose(atom, term)
            yes, no = self.any((yes, more[0])), self.any((no, more[1]))
        return yes, no

    def _places(self, atom: Atom, term: Term, table: TermTable) -> tuple[list[range], list[range]]:
        match atom:
            case tree.Compare(op, left, Constant(value)) if left == term:
                return table.compared(op, plain(value))
            case tree.Compare(op, Constant(value), _):
                return table.compared(tree.MIRRORED[op], plain(value))
            case tree.InSet(_, values):
                return table.among(values)
            case tree.InGroup(_, group) if members := self.frame.members(group):
                return table.among(members)
            case _:
                answers = [truth(_put(atom, term, value), _NOTHING, self._world) for value in table.values]
                return table.places(one is True for one in answers), table.places(one is False for one in answers)

    def _of_two(self, op: str, left: Operand, right: Operand) -> _Truths:
        """A comparison of two terms, which have one table: of their places, within each family."""
        table = self.tables[left]
        compares = self.any(
            self.all((self._at(left, [span]), self._at(right, [span])))
            for of, span in table.spans.items()
            if not (table.loose and of is Family.STRING)
        )
        holds = _COMPARED[op](self.place[left], self.place[right])
        yes, no = self.all((compares, holds)), self.all((compares, self.no(holds)))
        if table.loose:
            more = self._texts(op, left, right)
            yes, no = self.any((yes, more[0])), self.any((no, more[1]))
        return yes, no

    def _related(self, atom: Atom, args: tuple[Operand, ...], rows: Sequence[Sequence[Value]] | None) -> _Truths:
        there = self.all(self._is_there(arg) for arg in args)
        if rows is None:
            return self._free(atom, there)
        found = self.any(self.all(self._same(arg, value) for arg, value in zip(args, row, strict=True)) for row in rows)
        return self.all((there, found)), self.all((there, self.no(found)))

    def _same(self, arg: Operand, value: Value) -> _Formula:
        if isinstance(arg, Constant):
            return same(plain(arg.value), value)
        return False if value is None else self.truths(tree.Compare("=", arg, Constant(value)))[0]

    def _free(self, atom: Atom, known: _Formula) -> _Truths:
        """An atom of which nothing is known but when it is unknown; a predicate may be that at any time."""
        yes, no = (self.z3.Bool(f"free{2 * len(self.opaque) + n}", self.ctx) for n in range(2))
        self.opaque.append((yes, no))
        self.add(self.z3.Not(self.z3.And(yes, no)))
        if not isinstance(atom, tree.Predicate):
            self.add(self.z3.Or(yes, no))
        return self.all((known, yes)), self.all((known, no))

    def _is_there(self, arg: Operand) -> _Formula:
        return arg.value is not None if isinstance(arg, Constant) else self.place[arg] != 0

    def _is_text(self, term: Term) -> _Formula:
        span = self.tables[term].spans.get(Family.STRING)
        return False if span is None else self._at(term, [span])

    def _at(self, term: Term, places: Iterable[range]) -> _Formula:
        """The term is at one of these places."""
        here = self.place[term]
        return self.any(
            here == span.start if len(span) == 1 else self.z3.And(here >= span.start, here < span.stop)
            for span in places
            if span
        )

    def _in_domain(self, term: Term) -> _Formula:
        table = self.tables[term]
        possible = self._at(term, domain(term, table, self.frame))
        if not table.loose or not may_be(term, self.frame.kind(term), Family.STRING):
            return possible
        z3 = self.z3
        letters = z3.Star(z3.Range(z3.StringVal(chr(0), self.ctx), z3.StringVal(self.letters.last, self.ctx)))
        named = self.frame.publishers() if term == tree.Meta("publisher") else None
        one_of = (
            True if named is None else self.any(self.truths(tree.Compare("=", term, Constant(n)))[0] for n in named)
        )
        return self.any((possible, self.all((self._is_text(term), z3.InRe(self.text[term], letters), one_of))))

    def _clock(self, clock: tree.ClockPart) -> _Formula:
        """A part of the clock is null with its time, and at times that are named it shows what it does."""
        table, of = self.tables[clock.of], clock.of
        formulas = [self.no(self._is_there(of)) == self.no(self._is_there(clock))]
        for index, value in enumerate(table.values):
            if table.is_constant(index) and index in table.spans.get(Family.TIME, ()):
                shown = clock_part(clock.part, value, clock.zone)  # type: ignore[arg-type]
                shows = self._same(clock, shown)
                formulas.append(self.any((self.place[of] != index, shows)))
        return self.all(formulas)

    # -- texts that z3 reasons about ------------------------------------------------------------------------------

    def _loose(self, atom: Atom, term: Term) -> _Truths:
        """An atom about one loose text: when it is one, and the atom is true, or false, of it."""
        is_text = self._is_text(term)
        match atom:
            case tree.Compare(op, left, right) | tree.TextMatch(op, left, right):
                return self._texts(op, left, right)
            case tree.InRange():
                return self.truths(tree.AllOf(tree.comparisons(atom)))
            case tree.InSet():
                return self.truths(any_of(*tree.comparisons(atom)))
            case tree.InGroup(_, group) if members := self.frame.members(group):
                return self.truths(any_of(*(tree.Compare("=", term, Constant(one)) for one in sorted(members))))
            case _:  # null it is not, and nobody is in an empty group
                return False, is_text

    def _texts(self, op: str, left: Operand, right: Operand) -> _Truths:
        known: list[_Formula] = []
        sides: list[_Formula] = []
        for side in (left, right):
            if isinstance(side, Constant):
                if not isinstance(side.value, str):
                    return False, False
                sides.append(self.z3.StringVal(self.letters.put(side.value), self.ctx))
            elif self.tables[side].loose:
                known.append(self._is_text(side))
                sides.append(self.text[side])
            else:
                return False, False
        holds = self._text_holds(op, sides[0], sides[1])
        return self.all((*known, holds)), self.all((*known, self.no(holds)))

    def _text_holds(self, op: str, a: _Formula, b: _Formula) -> _Formula:
        match op:
            case "starts with":
                return self.z3.PrefixOf(b, a)
            case "contains":
                return self.z3.Contains(a, b)
            case "has token":
                return self._token(a, b)
            case _:
                return _COMPARED[op](a, b)

    def _token(self, text: _Formula, word: _Formula) -> _Formula:
        """The word stands in the text between blanks or its ends, and has none itself."""
        z3 = self.z3
        blanks = [z3.StringVal(self.letters.put(one), self.ctx) for one in self.letters.blanks]
        one_word = z3.And(word != z3.StringVal("", self.ctx), *(z3.Not(z3.Contains(word, one)) for one in blanks))
        places = [text == word]
        for one in blanks:
            places += [z3.PrefixOf(z3.Concat(word, one), text), z3.SuffixOf(z3.Concat(one, word), text)]
            places += [z3.Contains(text, z3.Concat(one, word, two)) for two in blanks]
        return z3.And(one_word, z3.Or(*places))

    # -- answers --------------------------------------------------------------------------------------------------

    def ask(self, seconds: float) -> bool | None:
        """Is there an answer? None if z3 cannot tell in this time."""
        self.solver.set("timeout", max(1, int(seconds * 1000)))
        found = self.solver.check()
        return True if found == self.z3.sat else False if found == self.z3.unsat else None

    def values(self) -> dict[Term, Value] | None:
        """The values of z3's answer; None if they are beyond what is modelled."""
        model = self.solver.model()
        places = {term: model.eval(place, model_completion=True).as_long() for term, place in self.place.items()}
        values: dict[Term, Value] = {}
        for term, index in places.items():
            table = self.tables[term]
            value = table.values[index]
            if table.loose and index in table.spans[Family.STRING]:
                value = self.letters.read(model.eval(self.text[term], model_completion=True).as_string())
                if value is None:
                    return None
            values[term] = as_kind(value, self.frame.kind(term))
        return values if self._settle(values, places) else None

    def _settle(self, values: dict[Term, Value], places: Mapping[Term, int]) -> bool:
        """Move times to where clocks show what they should; a part of the clock is no value of its own."""
        clocks = {term: values.pop(term) for term in list(values) if isinstance(term, tree.ClockPart)}
        for of in dict.fromkeys(clock.of for clock in clocks):
            if values[of] is None:
                continue
            wanted = {c: shown for c, shown in clocks.items() if c.of == of and isinstance(shown, int)}
            table, index = self.tables[of], places[of]
            if table.is_constant(index):
                continue
            span = table.spans[Family.TIME]
            ends = [table.values[at] if at in span else None for at in (index - 1, index + 1)]
            settled = moment_showing(wanted, *cast(Any, ends))
            if settled is None:
                return False
            values[of] = settled
        return True

    def refuse(self) -> None:
        """Ask for another answer than the last."""
        model = self.solver.model()
        parts = [*self.place.values(), *self.text.values()]
        parts += [part for pair in self.opaque for part in pair]
        self.solver.add(self.z3.Or(*(part != model.eval(part, model_completion=True) for part in parts)))


def _letters(every: Sequence[Atom], term_tables: Mapping[Term, TermTable]) -> Letters:
    """The characters of the constants that loose texts meet."""
    constants = [v for table in term_tables.values() if table.loose for _, v in table.constants if isinstance(v, str)]
    constants += [
        o.value for one in every for o in operands(one) if isinstance(o, Constant) and isinstance(o.value, str)
    ]
    words = any(isinstance(one, tree.TextMatch) and one.op == "has token" for one in every)
    return Letters(constants, len(term_tables), words=words)


_NOTHING: Final = cast(Event, None)
"""No event: every operand is a constant by then."""


def _put(atom: Atom, term: Term, value: Value) -> Atom:
    return with_operands(atom, lambda operand: Constant(value) if operand == term else operand)


_COMPARED: Final[Mapping[str, Callable[[_Formula, _Formula], _Formula]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": lambda a, b: b < a,
    ">=": lambda a, b: b <= a,
}  # fmt: skip
