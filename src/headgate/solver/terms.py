"""What is sought, and what a search looks at: the terms of conditions, each with a table of the values that matter.

Guarantees: if an assignment of possible values gives some atoms their truths, then so does one out of the tables, with
the exceptions below. Terms that are compared with each other share a table, in which values stand in order family by
family, so that they compare as their places do. Place 0 is null. `met` says whether values reach a goal by the
reference semantics, `truth`, and by nothing else.
Leaves out: texts that are compared with each other and also looked into (`loose`), which no finite table holds; and how
parts of the clock hang together with the time, except at times that the conditions name.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, TypeAlias

from headgate.decide.truth import PredicateFunction, World, clock_part, truth
from headgate.model import expressions as tree
from headgate.model.changes import Row
from headgate.model.events import Event
from headgate.model.expressions import (
    Atom,
    CompareOp,
    Condition,
    Constant,
    Operand,
    atoms,
    declared_kind,
    operands,
    plain,
)
from headgate.model.state import State
from headgate.model.values import Kind, Value
from headgate.solver.order import FAMILIES, Family, candidates, family, fits
from headgate.solver.texts import BLANKS, Asks, TextQuestion, representatives

MOST_NAMED: Final = 1_000
"""Members of a group, rows of a relation or publishers that are looked at one by one; of more, nothing is known."""

MOST_VALUES: Final = 20_000
"""Values of one table; a question that needs more is not looked at."""

_MOST_PIECES: Final = 40
"""Characters of a constant whose pieces are told apart, where the other text is what is unknown."""

_BLANK: Final = re.compile(f"[{BLANKS}]+")
_CLOCKS: Final = {"timeofday": (0, 86_399), "weekday": (1, 7)}
_ALWAYS: Final = frozenset({"time", "publisher"})
"""What the gateway stamps on every event."""

Term: TypeAlias = Operand
"""An operand that is no constant."""


@dataclass(frozen=True, slots=True)
class ConditionFrame:
    """What conditions are over: the kinds of event attributes, and a state for groups, relations and publishers."""

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    state: State | None = None
    predicates: Mapping[str, PredicateFunction] = field(default_factory=dict)

    def kind(self, term: Operand) -> Kind | None:
        """The declared kind of a term, if it has one."""
        return declared_kind(term, self.kinds)

    def members(self, group: str) -> frozenset[str] | None:
        """The members of a group, if it is known and not too large."""
        found = None if self.state is None else self.state.members_of(group)
        return found if found is not None and len(found) <= MOST_NAMED else None

    def rows(self, relation: str, width: int) -> list[Row] | None:
        """The rows of a relation, if it is known and not too large."""
        if self.state is None:
            return None
        found = [row for row in self.state.relations.get(relation, ()) if len(row) == width]
        return found if len(found) <= MOST_NAMED else None

    def publishers(self) -> tuple[str, ...] | None:
        """Everyone who can have published, if known and not too many."""
        if self.state is None or not 0 < len(self.state.principals) < MOST_NAMED:
            return None
        return (*self.state.principals, self.state.administrator)


@dataclass(frozen=True, slots=True)
class TermTable:
    """The values that matter to some terms, by place; `constants` are those that the conditions name."""

    values: tuple[Value, ...]
    spans: Mapping[Family, range]
    constants: frozenset[tuple[Family, Value]]
    loose: bool = False

    def places(self, wanted: Iterable[bool]) -> list[range]:
        """The places that are wanted (one flag for each) as ranges; those of loose texts never are."""
        ranges: list[range] = []
        for index, is_wanted in enumerate(wanted):
            if not is_wanted or (self.loose and index in self.spans[Family.STRING]):
                continue
            if ranges and ranges[-1].stop == index:
                ranges[-1] = range(ranges[-1].start, index + 1)
            else:
                ranges.append(range(index, index + 1))
        return ranges

    def compared(self, op: CompareOp, value: Value) -> tuple[list[range], list[range]]:
        """The places where a comparison with a constant is true, and where it is false."""
        of = family(value)
        span = range(0) if of is None else self.spans.get(of, range(0))
        if not span or (self.loose and of is Family.STRING):
            return [], []
        at = bisect_left(self.values, value, span.start, span.stop)  # type: ignore[type-var]
        up_to = at + 1 if at < span.stop and self.values[at] == value else at
        below, here, above = range(span.start, at), range(at, up_to), range(up_to, span.stop)
        truths: dict[CompareOp, tuple[list[range], list[range]]] = {
            "=": ([here], [below, above]),
            "<": ([below], [here, above]),
            "<=": ([below, here], [above]),
        }
        yes, no = truths[op if op in truths else tree.NEGATED[op]]
        return (yes, no) if op in truths else (no, yes)

    def among(self, values: Iterable[Value]) -> tuple[list[range], list[range]]:
        """The places where `in {...}` is true, and where it is false: nowhere, if the values are not of one family."""
        chosen = {(family(value), value) for value in values}
        flags = [(family(one), one) in chosen for one in self.values]
        families = {of for of, _ in chosen}
        span = next((span for of, span in self.spans.items() if {of} == families), range(0))
        return self.places(flags), self.places(at in span and not flag for at, flag in enumerate(flags))

    def is_constant(self, place: int) -> bool:
        """Is this a value that the conditions name?"""
        of = family(self.values[place])
        return of is not None and (of, self.values[place]) in self.constants


def terms_of(atom: Atom) -> tuple[Term, ...]:
    """The terms of an atom, each once."""
    return tuple(dict.fromkeys(o for o in operands(atom) if not isinstance(o, Constant)))


def single(atom: Atom) -> tuple[Atom, ...]:
    """An atom as atoms of at most two terms: a range between terms is two comparisons."""
    return tree.comparisons(atom) if isinstance(atom, tree.InRange) and len(terms_of(atom)) > 1 else (atom,)


def can_be_null(term: Term) -> bool:
    """May the term be null? Only what is stamped on every event may not."""
    bare = term.of if isinstance(term, tree.ClockPart) else term
    return not (isinstance(bare, tree.Meta) and bare.name in _ALWAYS)


def tables(atoms: Sequence[Atom], frame: ConditionFrame) -> dict[Term, TermTable] | None:
    """A table for each term of some atoms, one for all that are compared with each other; None if one is too large."""
    parts = [part for atom in atoms for part in single(atom)]
    clocks = {t: None for part in parts for t in terms_of(part) if isinstance(t, tree.ClockPart)}
    terms = [*dict.fromkeys(t for part in parts for t in terms_of(part)), *(clock.of for clock in clocks)]
    groups = _together(list(dict.fromkeys(terms)), parts)
    asked = {term: _Asked() for term in terms}
    for part in parts:
        _ask(part, asked, frame)
    for clock in clocks:
        asked[clock].values += _CLOCKS[clock.part]
    ordered = sorted(groups, key=lambda group: any(isinstance(term, tree.ClockPart) for term in group))
    term_tables: dict[Term, TermTable] = {}
    for group in ordered:  # times first: at those that are named, clocks show something
        for term in group:
            if isinstance(term, tree.ClockPart):
                named = (v for of, v in term_tables[term.of].constants if of is Family.TIME)
                asked[term].values += [clock_part(term.part, v, term.zone) for v in named]  # type: ignore[arg-type]
        if (1 + sum(len(asked[term].values) for term in group)) * len(group) > MOST_VALUES:
            return None
        term_tables |= dict.fromkeys(group, _table(group, [asked[term] for term in group], frame))
    return term_tables


@dataclass(slots=True)
class _Asked:
    """What is asked of one term: the values it is compared with, and questions about it as a text."""

    values: list[Value] = field(default_factory=list)
    questions: list[TextQuestion] = field(default_factory=list)
    loose: bool = False

    @property
    def looks_inside(self) -> bool:
        return any(one.asks not in ("equals", "order") for one in self.questions)


def _together(terms: list[Term], parts: Iterable[Atom]) -> list[list[Term]]:
    """Terms that are compared with each other, directly or by way of others."""
    group = {term: [term] for term in terms}
    for part in parts:
        if not isinstance(part, (tree.Compare, tree.TextMatch)):
            continue
        for mine, other in pairwise(terms_of(part)):
            if group[mine] is not group[other]:
                group[mine] += group[other]
                group |= dict.fromkeys(group[other], group[mine])
    return list({id(one): one for one in group.values()}.values())


def _ask(part: Atom, asked: Mapping[Term, _Asked], frame: ConditionFrame) -> None:
    """Note what an atom asks of its terms."""
    match part:
        case tree.Compare(op, left, right):
            for term, other in ((left, right), (right, left)):
                if not isinstance(term, Constant) and isinstance(other, Constant):
                    _name(asked[term], plain(other.value), "equals" if op in ("=", "!=") else "order")
        case tree.InRange(operand, low, high) if not isinstance(operand, Constant):
            for end in (low, high):
                if isinstance(end, Constant):
                    _name(asked[operand], plain(end.value), "order")
        case tree.InRange(_, low, high):
            ends = [plain(end.value) for end in operands(part) if isinstance(end, Constant)]
            for term in terms_of(part):
                for value in ends:
                    _name(asked[term], value, "order")
        case tree.InSet(operand, values) if not isinstance(operand, Constant):
            for value in values:
                _name(asked[operand], value, "equals")
        case tree.InGroup(operand, group) if not isinstance(operand, Constant):
            for member in sorted(frame.members(group) or ()):
                _name(asked[operand], member, "equals")
        case tree.Related(relation, args):
            for row in frame.rows(relation, len(args)) or ():
                for arg, value in zip(args, row, strict=True):
                    if not isinstance(arg, Constant):
                        _name(asked[arg], value, "equals")
        case tree.TextMatch(op, left, right):
            _ask_text(op, left, right, asked)
        case _:
            pass
    for term in terms_of(part):
        if term == tree.Meta("publisher"):
            for name in frame.publishers() or ():
                _name(asked[term], name, "equals")


def _ask_text(op: Asks, left: Operand, right: Operand, asked: Mapping[Term, _Asked]) -> None:
    if isinstance(left, Constant):
        if isinstance(left.value, str) and not isinstance(right, Constant):
            for piece in _pieces(op, left.value):
                _name(asked[right], piece, "equals")
            asked[right].loose |= len(left.value) > _MOST_PIECES and op == "contains"
    elif isinstance(right, Constant):
        asked[left].questions += [TextQuestion(op, right.value)] if isinstance(right.value, str) else []
    elif left == right:
        blanks = (TextQuestion("contains", blank) for blank in BLANKS)
        asked[left].questions += [TextQuestion("equals", ""), *blanks] if op == "has token" else []
    else:
        asked[left].loose = asked[right].loose = True


def _pieces(op: Asks, text: str) -> Iterator[str]:
    """The texts that a constant starts with, contains or has as a token."""
    if op == "starts with":
        yield from (text[:end] for end in range(len(text) + 1))
    elif op == "contains" and len(text) <= _MOST_PIECES:
        yield from (text[start:end] for start in range(len(text) + 1) for end in range(start, len(text) + 1))
    elif op == "has token":
        yield from (word for word in _BLANK.split(text) if word)


def _name(asked: _Asked, value: Value, asks: Asks) -> None:
    asked.values.append(value)
    if isinstance(value, str):
        asked.questions.append(TextQuestion(asks, value))


def _table(group: list[Term], asked: list[_Asked], frame: ConditionFrame) -> TermTable:
    """The values that matter to terms which are compared with each other."""
    kinds = [frame.kind(term) for term in group]
    wanted = [of for of in Family if any(may_be(term, kind, of) for term, kind in zip(group, kinds, strict=True))]
    named = [value for one in asked for value in one.values]
    values: list[Value] = [None]
    spans: dict[Family, range] = {}
    loose = False
    for of in wanted:
        choices = candidates(of, named, len(group))
        if of is Family.STRING and any(one.looks_inside or one.loose for one in asked):
            alone = len(group) == 1 and not asked[0].loose
            texts = representatives(asked[0].questions) if alone else None
            loose = texts is None
            choices = [""] if texts is None else list(texts)
        spans[of] = range(len(values), len(values) + len(choices))
        values += choices
    constants = frozenset((of, value) for value in named for of in Family if family(value) is of)
    return TermTable(tuple(values), spans, constants, loose)


def may_be(term: Term, kind: Kind | None, of: Family) -> bool:
    """May the term have a value of this family? An event attribute that its type lacks is always null."""
    return FAMILIES[kind] is of if kind is not None else isinstance(term, tree.Subject)


def domain(term: Term, table: TermTable, frame: ConditionFrame) -> list[range]:
    """The places of the values that a term can have, without those of loose texts."""
    kind, publishers = frame.kind(term), frame.publishers() if term == tree.Meta("publisher") else None
    shown = _CLOCKS[term.part] if isinstance(term, tree.ClockPart) else None

    def possible(value: Value) -> bool:
        if value is None:
            return can_be_null(term)
        if kind is None:
            return isinstance(term, tree.Subject)
        if publishers is not None and value not in publishers:
            return False
        if shown is not None and not (isinstance(value, (int, float)) and shown[0] <= value <= shown[1]):
            return False
        return fits(value, kind)

    return table.places(map(possible, table.values))


_SOME_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Want:
    """The condition is to be true, or false; or, with `met=False`, anything else."""

    condition: Condition
    truth: bool = True
    met: bool = True


@dataclass(frozen=True, slots=True)
class Every:
    """All of these."""

    goals: tuple[Goal, ...] = ()


@dataclass(frozen=True, slots=True)
class Some:
    """At least one of these."""

    goals: tuple[Goal, ...] = ()


Goal: TypeAlias = Want | Every | Some


def atoms_of(goal: Goal) -> Iterator[Atom]:
    """Every atom of a goal's conditions."""
    match goal:
        case Want(condition):
            yield from atoms(condition)
        case Every(goals) | Some(goals):
            for one in goals:
                yield from atoms_of(one)


def event_of(values: Mapping[Term, Value], type_name: str = "") -> Event:
    """The event that has these values."""
    at, by, rate, origin = (values.get(tree.Meta(name)) for name in ("time", "publisher", "rate", "origin"))
    return Event(
        id="",
        publisher=by if isinstance(by, str) else "",
        type=type_name,
        values={term.name: value for term, value in values.items() if isinstance(term, tree.Attribute)},
        time=at if isinstance(at, datetime) else _SOME_TIME,
        rate=rate if isinstance(rate, int) else None,
        origin=origin if isinstance(origin, str) else None,
    )


def met(goal: Goal, values: Mapping[Term, Value], frame: ConditionFrame) -> bool:
    """Do these values reach the goal?"""
    event = event_of(values)
    subject = {term.name: value for term, value in values.items() if isinstance(term, tree.Subject)}
    return _met(goal, event, World(frame.state or State(), subject, frame.predicates, origin=event.origin))


def _met(goal: Goal, event: Event, world: World) -> bool:
    match goal:
        case Want(condition, wanted, is_met):
            return (truth(condition, event, world) is wanted) is is_met
        case Every(goals):
            return all(_met(one, event, world) for one in goals)
        case Some(goals):
            return any(_met(one, event, world) for one in goals)
