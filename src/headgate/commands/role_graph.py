"""The credential graph as someone may see it: credentials, what they rest on, and what would fall with one of them.

Guarantees: whoever does not govern or audit everything sees its own credentials, their records, and which of them rest
on which. That they rest on conditions too, or on anything of others, is one node each, of which neither state nor count
is told; what would fall of others' is not told. What would fall is what the ledger would make of the revocation now
(`roles.requests.transition`), and nothing is changed. An answer has at most MAX_NODES nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from headgate.decide.constraints import RoleFunction
from headgate.decide.deliver import is_told_everything
from headgate.lang.render import render_constraint, render_membership, render_role
from headgate.model.changes import Batch, EndCredential, Settle
from headgate.model.errors import BadDefinition, NotFound
from headgate.model.expressions import Constant, RoleRef, Variable
from headgate.model.roles import Credential, Ending, Membership, Record, Reference, reference_text
from headgate.model.state import State
from headgate.model.values import brief
from headgate.protocol.role_messages import EdgeAnswer, FallAnswer, GraphAnswer, NodeAnswer
from headgate.roles.certificates.remote_records import word_of
from headgate.roles.records.facts import Mirrored, NotRevoked, When, fact_of
from headgate.roles.requests.revocation import in_words
from headgate.roles.requests.transition import transition

MAX_NODES: Final = 5_000
"""Credentials and records told in one answer."""

_RESTS: Final = "it rests on that"
CONDITIONS: Final = "conditions"
ELSE: Final = "something else"
_UNTOLD: Final = {
    CONDITIONS: "conditions; whether they hold is not told",
    ELSE: "something else; its state is not told",
}
Kind: TypeAlias = Literal["membership", "election", "record"]


def graph(state: State, asker: str, root: str | None, functions: Mapping[str, RoleFunction]) -> GraphAnswer:
    """The graph around the asker's credentials, or around one that it may know of."""
    full = is_told_everything(state, asker)
    own = {one.id: one for one in state.roles.credentials() if full or _is_known(one, asker)}
    falls: tuple[Ending, ...] = ()
    chosen: Iterable[Credential] = own.values()
    if root is not None:
        if root not in own:
            raise NotFound(f"you have no credential `{brief(root)}`")
        falls = tuple(one for one in falling(state, root, functions) if one.id in own)
        if not full:  # why something falls may be policy, or another's
            falls = tuple(Ending(one.id, _RESTS) for one in falls)
        chosen = [own[root], *(own[one.id] for one in falls)]
    drawing = _Drawing(state, None if full else {one.record for one in own.values()})
    whole = drawing.draw(chosen)
    edges = [EdgeAnswer(*one) for one in drawing.edges if one[0] in drawing.nodes and one[1] in drawing.nodes]
    falling_too = [FallAnswer(one.id, one.reason) for one in falls]
    return GraphAnswer(state.version, list(drawing.nodes.values()), edges, root, falling_too, whole)


def falling(state: State, root: str, functions: Mapping[str, RoleFunction]) -> Iterator[Ending]:
    """What would end, besides itself, if a credential were revoked now."""
    outcome = transition(state, Batch(state.administrator, (EndCredential(root),)), functions=functions)
    for change in outcome.batch.changes:
        if isinstance(change, Settle):
            yield from (one for one in change.facts.ended if one.id != root)


def _is_known(one: Credential, asker: str) -> bool:
    if isinstance(one, Membership):
        return one.holder == asker
    return asker == one.elector or asker in one.revokers


def said(credential: Credential) -> str:
    """A credential's role as in a rolefile, `_` for what is open."""
    args = tuple(Variable("_") if arg is None else Constant(arg) for arg in credential.args)
    instance = Constant(credential.instance) if credential.instance else None
    try:
        return render_role(RoleRef(credential.role, args, credential.service, instance))
    except BadDefinition:  # a service that has no rolefile may have any name
        return f"{credential.service}.{credential.role}"


class _Drawing:
    """Nodes and edges, from credentials to all that they rest on; or to what is one's own of that, if that is given."""

    def __init__(self, state: State, own: set[Reference] | None) -> None:
        self._book = state.roles
        self._own = own
        self._others = set() if own is None else {one.record for one in state.roles.credentials()} - own
        self.nodes: dict[str, NodeAnswer] = {}
        self.edges: dict[tuple[str, str, bool], None] = {}
        """From what to what follows from it, and whether that is by its not being true."""

    def draw(self, chosen: Iterable[Credential]) -> bool:
        """Draw some credentials; is that the whole of it?"""
        ahead: list[Reference] = []
        for credential in chosen:
            if len(self.nodes) >= MAX_NODES:
                return False
            self._add(credential)
            ahead.append(credential.record)
        seen: set[Reference] = set()
        while ahead:
            ref = ahead.pop()
            record = self._book.records.get(ref)
            if ref in seen or record is None:
                continue
            if len(self.nodes) >= MAX_NODES:
                return False
            seen.add(ref)
            self._put(_name(ref), "record", record.state, self._says(record), ref)
            ahead += self._below(record)
        return True

    def _put(
        self, id: str, kind: Kind, state: bool | None, says: str, ref: Reference | None = None, whose: str | None = None
    ) -> None:
        record = None if ref is None else reference_text(ref)
        self.nodes[id] = NodeAnswer(id, kind, word_of(state), says, record, whose)

    def _add(self, one: Credential) -> None:
        held, record = isinstance(one, Membership), self._book.records.get(one.record)
        state = one.state if isinstance(one, Membership) else None if record is None else record.state
        whose = one.holder if isinstance(one, Membership) else one.elector
        # Whoever sees only its own is the holder, or is not told who is.
        shown = whose if self._own is None else None
        self._put(one.id, "membership" if held else "election", state, said(one), one.record, shown)
        self.edges[_name(one.record), one.id, False] = None

    def _below(self, record: Record) -> Iterable[Reference]:
        """The records that one rests on, drawn as edges to it; of one's own, seen through all that is no credential."""
        if self._own is None:
            for link in record.parents:
                self.edges[_name(link.parent), _name(record.ref), link.negated] = None
            return [link.parent for link in record.parents]
        credentials: dict[Reference, None] = {}
        seen: set[Reference] = set()
        ahead = [link.parent for link in record.parents]
        while ahead:
            ref = ahead.pop()
            if ref in seen:
                continue
            seen.add(ref)
            known = self._book.records.get(ref)
            if ref in self._own:
                credentials[ref] = None
                self.edges[_name(ref), _name(record.ref), False] = None
            elif ref not in self._others and known is not None and known.parents:
                ahead += [link.parent for link in known.parents]
            else:
                name = ELSE if ref in self._others else CONDITIONS
                self._put(name, "record", None, _UNTOLD[name])
                self.edges[name, _name(record.ref), False] = None
        return credentials

    def _says(self, record: Record) -> str:
        if self._own is not None:
            return "all that it rests on" if record.parents else "until it is revoked"
        if not record.fact:
            return record.op.value if record.parents else "until it is revoked"
        match fact_of(record.fact):
            case When(_, _, leaf):
                return render_constraint(leaf)
            case NotRevoked(service, instance, role, args, revoker):
                revokers = in_words(revoker).replace("`", "")
                return f"{render_membership(service, instance, role, args)} is not revoked by {revokers}"
            case Mirrored(peer):
                return f"what {peer} says"


def _name(ref: Reference) -> str:
    return f"record {reference_text(ref)}"
