"""The stages of an event policy as text, laid out as in figure 7.1 of OASIS.

Guarantees: everything that `analysis.stages` gives is shown: entries (b), acceptance function (c), and client and event
expressions with the clauses made of them (d), or that there are too many of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headgate.analysis.stages import Acceptance, Said, Shows, StageClause, StageLiteral, Stages
from headgate.lang.render_roles import render_constraint, render_entry, render_role
from headgate.model.conditions import AnyOf
from headgate.model.limits import MAX_POLICY_CLAUSES


def render_stages(found: Stages) -> str:
    """All stages, one under another."""
    return "\n".join(_lines(found))


def render_head(found: Stages) -> str:
    """`psi(Seen(u, r), LoggedOn(p, h))`."""
    event = f"{found.type.rpartition('.')[2]}({', '.join(name or '_' for name in found.parameters)})"
    return f"psi({', '.join([event, *map(render_role, found.shown)])})"


def render_acceptance(one: Acceptance) -> str:
    """`u in staff and p in student and not (u = 'rmn' and p in student)`."""
    return " and ".join([_joined(one.terms), *(f"not ({_joined(terms)})" for _, terms in one.unless)])


def render_client(literals: Iterable[StageLiteral]) -> str:
    """`not p in student and p in staff`; of nothing, `true`."""
    return " and ".join(map(render_literal, literals)) or "true"


def render_clause(one: StageClause) -> str:
    """`C4 and not E0 and E1`."""
    events = (f"E{number}" if wanted else f"not E{number}" for number, wanted in one.events)
    return " and ".join([f"C{one.client}", *events, *map(render_literal, one.mixed)])


def render_literal(one: StageLiteral) -> str:
    """`not p in student`."""
    return _text(one.atom) if one.wanted else f"not {_text(one.atom)}"


def _lines(stages: Stages) -> Iterator[str]:
    yield "Entries:"
    yield from (f"  {number}. {render_entry(entry)}" for number, entry in enumerate(stages.entries, 1))
    yield "Acceptance function:"
    yield f"  {render_head(stages)} ="
    yield from _ored([render_acceptance(one) for one in stages.acceptance])
    if stages.clauses is None:
        yield f"In normal form it has more than MAX_POLICY_CLAUSES ({MAX_POLICY_CLAUSES}) clauses, or too long ones."
        return
    yield "Client expressions:"
    yield from (f"  C{number} <= ({render_client(one)})" for number, one in enumerate(stages.clients))
    yield "Event expressions:"
    yield from (f"  E{number} <= ({render_literal(one)})" for number, one in enumerate(stages.events))
    yield "Clauses:"
    yield f"  {render_head(stages)} ="
    others = [None if one.implies is None else stages.clauses[one.implies] for one in stages.clauses]
    notes = ["" if other is None else f"   # implies {render_clause(other)}" for other in others]
    yield from _ored([render_clause(one) for one in stages.clauses], notes)


def _ored(parts: list[str], notes: list[str] | None = None) -> Iterator[str]:
    for number, part in enumerate(parts or ["false"]):
        yield f"    {'or ' if number else ''}({part}){notes[number] if notes else ''}"


def _joined(terms: Iterable[Said]) -> str:
    return " and ".join(f"({_text(one)})" if isinstance(one, AnyOf) else _text(one) for one in terms) or "true"


def _text(said: Said) -> str:
    return f"shows {render_role(said.ref)}" if isinstance(said, Shows) else render_constraint(said)
