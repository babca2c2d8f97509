"""May a client enter a role, elect to it or revoke it, with what it shows; and if not, why (OASIS 3.2.2, 4.2)?

Guarantees: the memberships that a request leads through are a list that begins with what the client shows. Statements
are applied in order, each to every choice of what is in the list, in its order; what comes of them is added at the end,
until nothing new comes. The first in the list that fits the request is given. So earlier statements win, intermediate
roles are entered without being asked for, and what a client gets is what the rules prove (`c owns Role`).
There is one function for each kind of request, whoever holds the roles that it looks at: a ledger that works out a
batch, or a gateway that tries a request on the state that it knows (`Known`) before the ledger is held for it. So both
refuse the same, in the same words: fraud, misuse, revocation, or credentials that are not enough. What an entry's
search found goes with the request (`SearchedEntry`), and is not looked for again at the same version.
Leaves out: records, certificates, and what only the graph can tell: whether what is entered would end at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, Literal, TypeAlias

from headgate.decide.constraints import Bindings, Budget, RoleFunction, Scene, solutions, truth
from headgate.decide.deliver import is_told_everything
from headgate.decide.reading import read
from headgate.decide.rolebook import fit, same
from headgate.lang.literals import Reading
from headgate.lang.render import render_constraint, render_membership, render_role
from headgate.model import expressions as tree
from headgate.model.changes import ElectRole, EnterRole, ReinstateRole, RevokeRole
from headgate.model.errors import BadDefinition, RoleDenied
from headgate.model.expressions import Argument, Condition, RoleRef, terms_of, variables, variables_among
from headgate.model.limits import MAX_ELECTIONS, MAX_ENTRY_MEMBERSHIPS, MAX_SHOWN
from headgate.model.rolefiles import Elector, Rolefile, Statement
from headgate.model.roles import Ban, Election, Membership, RoleBook, Service
from headgate.model.state import State
from headgate.model.values import brief
from headgate.roles.records.book import RoleIndex, RoleView
from headgate.roles.requests import revocation
from headgate.roles.requests.revocation import in_office
from headgate.roles.rolefiles.types import conform_arguments, inferred, pattern_of


@dataclass(frozen=True, slots=True)
class Derived:
    """A membership that a statement gives: with which values, credentials and elections."""

    service: str
    instance: str
    role: str
    args: tuple[Argument, ...]
    statement: Statement
    bound: Bindings
    credentials: tuple[Candidate, ...]
    elections: tuple[Election, ...]

    def supports(self) -> Iterator[str]:
        """The memberships and elections that it was derived from, intermediate ones seen through, each once."""
        seen: set[int] = set()
        walk: list[Candidate | Election] = [self]
        while walk:
            support = walk.pop()
            if id(support) in seen:
                continue
            seen.add(id(support))
            if isinstance(support, Derived):
                walk += [*reversed(support.elections), *reversed(support.credentials)]
            else:
                yield support.id

    def followed(self) -> list[Derived]:
        """Itself and the intermediate memberships that must last, each after those that it rests on."""
        order: list[Derived] = []
        seen: set[int] = set()
        walk: list[tuple[Derived, bool]] = [(self, False)]
        while walk:
            derived, done = walk.pop()
            if done:
                order.append(derived)
            elif id(derived) not in seen:
                seen.add(id(derived))
                walk.append((derived, True))
                pairs = zip(derived.statement.credentials, derived.credentials, strict=True)
                walk += [(c, False) for said, c in pairs if said.starred and isinstance(c, Derived)]
        return order


Candidate: TypeAlias = Membership | Derived
"""What may serve as a credential."""


@dataclass(frozen=True, slots=True)
class EntryRequest:
    """What a client asks for, and what it shows; an argument of None is left open."""

    role: str
    args: tuple[Argument, ...] | None
    shown: tuple[Membership, ...]
    elections: tuple[Election, ...] = ()
    bans: frozenset[Ban] = frozenset()
    in_office: frozenset[str] | None = None
    """The elections whose elector holds the office still; None for all of them."""


def derive(rolefile: Rolefile, request: EntryRequest, scene: Scene) -> Derived | None:
    """The first membership that fits the request, if the statements lead to one."""
    return Derivation(rolefile, request, scene).run()


class Derivation:
    """The list of memberships that one request leads through.

    A statement is applied again only to choices with something in them that it has not seen: all others gave what they
    give before. So what is added, and in which order, is as if it were applied to all of them each time.
    """

    def __init__(self, rolefile: Rolefile, request: EntryRequest, scene: Scene) -> None:
        self.request = request
        self.scene = scene
        self.statements = rolefile.statements
        self.listed: dict[tuple[str, str], list[tuple[int, Candidate]]] = {}
        """What is in the list, with its place there, by service and role."""
        self.length = 0
        self.seen = [-1] * len(self.statements)
        """How long the list was when a statement was last applied."""
        self.users: dict[tuple[str, str], list[int]] = {}
        """The statements that take a role as a credential."""
        self.stirred: set[int] = set()
        """The statements that may give more, for what the last one added."""
        self.known: set[tuple[object, ...]] = set()
        self.elections: dict[str, list[Election]] = {}
        """The elections that count here, by the role that they are to."""
        for election in request.elections:
            if election.place == (scene.service, scene.instance):
                self.elections.setdefault(election.role, []).append(election)
        self.revoked = revocation.RevokedInstances(rolefile, (scene.service, scene.instance), request.bans)
        for number, statement in enumerate(self.statements):
            for name in {self._kind(one.ref) for one in statement.credentials}:
                self.users.setdefault(name, []).append(number)
        times = inferred(rolefile).credential_readings
        for one in request.shown:
            self._append(_as_read(one, times.get((one.service, one.role))))

    def run(self) -> Derived | None:
        """The first membership that fits, if any does; then all that follows from what was shown is listed."""
        waiting = list(range(len(self.statements)))
        while waiting:
            heapify(waiting)
            later: set[int] = set()
            last = -1
            while waiting:
                number = heappop(waiting)
                if number == last:
                    continue
                last = number
                found = self._apply(number)
                if found is not None:
                    return found
                for dependent in self.stirred:
                    if dependent > number:
                        heappush(waiting, dependent)
                    else:
                        later.add(dependent)
            waiting = list(later)
        return None

    def _apply(self, number: int) -> Derived | None:
        """Apply a statement to what it has not seen: what was asked for, if it gives that; else it is added."""
        statement = self.statements[number]
        self.stirred = set()
        seen, self.seen[number] = self.seen[number], self.length
        asked = self.asked(statement)
        derived = None if asked is None else next(self._derived(statement, asked, seen), None)
        if derived is None:
            self._extend(statement, seen)
        return derived

    def _extend(self, statement: Statement, seen: int) -> None:
        """Add what a statement gives, whoever asked."""
        for derived in list(self._derived(statement, {}, seen)):
            key = (derived.role, *map(same, derived.args))
            if key in self.known:
                continue
            if len(self.known) >= MAX_ENTRY_MEMBERSHIPS:
                raise RoleDenied(
                    f"the request leads through more than MAX_ENTRY_MEMBERSHIPS ({MAX_ENTRY_MEMBERSHIPS}) roles",
                    failure="credentials",
                    remedy="name the arguments you want, or show fewer credentials",
                )
            self.known.add(key)
            self._append(derived)
            self.stirred.update(self.users.get((derived.service, derived.role), ()))

    def _append(self, one: Candidate) -> None:
        self.listed.setdefault((one.service, one.role), []).append((self.length, one))
        self.length += 1

    def _kind(self, ref: RoleRef) -> tuple[str, str]:
        return (self.scene.service if ref.service is None else ref.service, ref.role)

    def asked(self, statement: Statement) -> Bindings | None:
        """What the request says of the variables of a statement, if it is about that role."""
        if statement.head.role != self.request.role:
            return None
        return revocation.bound_by_head(tuple(map(self.scene.settled, statement.head.args)), self.request.args)

    def _derived(self, statement: Statement, bound: Bindings, seen: int) -> Iterator[Derived]:
        """Everything that a statement gives, of choices with something past a place in the list."""
        if seen >= 0 and not statement.credentials:
            return
        refs = [self.scene.own(one.ref) for one in statement.credentials]
        listed = [tuple(self.listed.get(self._kind(ref), ())) for ref in refs]
        for credentials, after in self._credentials(refs, listed, bound, seen):
            for elections, then in self._elections(statement, (), after):
                for made in solutions(revocation.on_entry(statement), then, self.scene):
                    args = self._head(statement, made)
                    if args is None or not all(not one.args or revocation.covers(one.args, args) for one in elections):
                        continue  # it is not what the client was elected to
                    if statement.revokers and (statement.head.role, args) in self.revoked:
                        continue
                    yield Derived(
                        *(self.scene.service, self.scene.instance, statement.head.role, args),
                        *(statement, made, credentials, elections),
                    )

    def furthest(self, statement: Statement, bound: Bindings, most: int) -> tuple[int, list[Bindings]]:
        """How many credentials of a statement there are together, in its order, and what variables mean then."""
        refs = [self.scene.own(one.ref) for one in statement.credentials]
        listed = [tuple(self.listed.get(self._kind(ref), ())) for ref in refs]
        bindings: list[Bindings] = [bound]
        for depth in range(len(refs)):
            further = islice(self._credentials(refs[: depth + 1], listed, bound, -1), most)
            made = [after for _, after in further]
            if not made:
                return depth, bindings
            bindings = made
        return len(refs), bindings

    def elected(self, statement: Statement, bound: Bindings, most: int) -> tuple[int, list[Bindings]]:
        """How many electors of a statement have elected, in its order, and what variables mean then."""
        for count in range(len(statement.electors), -1, -1):
            fewer = replace(statement, electors=statement.electors[:count])
            made = [after for _, after in islice(self._elections(fewer, (), bound), most)]
            if made:
                return count, made
        return 0, [bound]

    def _credentials(
        self,
        refs: Sequence[RoleRef],
        listed: Sequence[Sequence[tuple[int, Candidate]]],
        bound: Bindings,
        seen: int,
        at: int = 0,
    ) -> Iterator[tuple[tuple[Candidate, ...], Bindings]]:
        """Every choice of credentials in the order of the list, of which one at least is past a place in it."""
        if at == len(refs):
            yield (), bound
            return
        for position, candidate in listed[at]:
            is_last = at == len(refs) - 1
            if is_last and position < seen:
                continue
            self.scene.budget.spend()
            made = _meant(refs[at], candidate, bound)
            if made is None:
                continue
            rest = -1 if position >= seen else seen
            for others, after in self._credentials(refs, listed, made, rest, at + 1):
                yield (candidate, *others), after

    def _elections(
        self, statement: Statement, chosen: tuple[Election, ...], bound: Bindings
    ) -> Iterator[tuple[tuple[Election, ...], Bindings]]:
        """Every choice of an election for each elector: a quorum is of so many principals, not of so many votes."""
        if len(chosen) == len(statement.electors):
            yield chosen, bound
            return
        elector = statement.electors[len(chosen)]
        ref = self.scene.own(elector.ref)
        for election in self.elections.get(statement.head.role, ()):
            self.scene.budget.spend()
            if any(election.elector == other.elector for other in chosen):
                continue
            made = in_office(ref, election.office, bound)
            if made is None or not self._has(election.required, {}) or (elector.starred and self._has_left(election)):
                continue
            yield from self._elections(statement, (*chosen, election), made)

    def _has_left(self, election: Election) -> bool:
        """Has the elector left the office by which it elected? What needs it to stay cannot begin without it."""
        return self.request.in_office is not None and election.id not in self.request.in_office

    def _has(self, required: tuple[RoleRef, ...], bound: Bindings) -> bool:
        """Does the client hold every role that an elector requires, in which a variable means the same throughout?"""
        if not required:
            return True
        for one in self.request.shown:
            self.scene.budget.spend()
            made = fit(required[0], one, bound)
            if made is not None and self._has(required[1:], made):
                return True
        return False

    def _head(self, statement: Statement, bound: Bindings) -> tuple[Argument, ...] | None:
        args = [revocation.settled_by(self.scene.settled(term), bound) for term in statement.head.args]
        return None if None in args else tuple(args)


def _as_read(membership: Membership, times: Mapping[int, Reading] | None) -> Membership:
    """A credential of another service, whose arguments are times where the rolefile compares them with times.

    That service need not know that they are (decision 0033).
    """
    if times is None:
        return membership
    args = list(membership.args)
    for place, arg in enumerate(membership.args):
        if place in times and not isinstance(arg, frozenset):
            args[place] = read(times[place], arg)
    return replace(membership, args=tuple(args))


def _meant(ref: RoleRef, one: Candidate, bound: Bindings) -> Bindings | None:
    if isinstance(one, Membership):
        return fit(ref, one, bound)
    shape = Membership("", one.service, one.role, one.args, "", 0, one.instance)
    return fit(ref, shape, bound)


def elected_roles(rolefile: Rolefile, service: str, role: str) -> Iterator[str]:
    """The roles on the way to a role that ask for an election: itself first, then those that it may rest on."""
    by_head: dict[str, list[Statement]] = {}
    for statement in rolefile.statements:
        by_head.setdefault(statement.head.role, []).append(statement)
    roles = {role: None}
    waiting = [role]
    while waiting:
        for statement in by_head.get(waiting.pop(0), ()):
            for credential in statement.credentials:
                if credential.ref.service in (None, service) and credential.ref.role not in roles:
                    roles[credential.ref.role] = None
                    waiting.append(credential.ref.role)
    return (name for name in roles if any(one.electors for one in by_head.get(name, ())))


def _only_in(elector: Elector, statement: Statement) -> frozenset[str]:
    """The variables of an elector's clause that stand nowhere else in its statement, and so ask for nothing."""
    others = [one.ref for one in statement.electors if one is not elector]
    elsewhere = variables_among(terms_of(statement.head, *(one.ref for one in statement.credentials), *others))
    told = variables(statement.constraint) | tree.counted_variables(statement.constraint)
    return variables_among(terms_of(elector.ref)) - elsewhere - told


def shares_office(membership: Membership, election: Election, rolefile: Rolefile | None, scene: Scene) -> bool:
    """Is a membership one in which the same election could have been made: of the elector's role, and of its arguments?

    Those are what the elector's clause binds: what it leaves out, or calls by a name that the statement uses for
    nothing else, may differ. Where no statement asks for that office any more, all of them are the same.
    """
    asked = False
    for statement in () if rolefile is None else rolefile.statements:
        if statement.head.role != election.role:
            continue
        bound = revocation.bound_by_head(tuple(map(scene.settled, statement.head.args)), election.args or None)
        for elector in () if bound is None else statement.electors:
            ref = scene.own(elector.ref)
            made = in_office(ref, election.office, bound or {})
            if made is not None:
                asked = True
                alone = _only_in(elector, statement)
                if fit(ref, membership, {name: value for name, value in made.items() if name not in alone}) is not None:
                    return True
    return not asked and revocation.office_of(membership) == election.office


MAX_STEPS: Final = 20_000
"""Things that are looked at to find what came nearest."""
MAX_CHOICES: Final = 50
"""Choices of credentials of one statement that are looked at."""

Part: TypeAlias = Literal["arguments", "credential", "elector", "condition"]
HIDDEN: Final = "a condition that you may not see"


@dataclass(frozen=True, slots=True)
class Nearest:
    """The statement that came nearest, and the part of it that was false, or unknown (None)."""

    line: int
    part: Part
    number: int
    """Which credential, elector or condition of the statement, from 1."""
    truth: bool | None
    what: RoleRef | Condition | None = None
    left: int = 0
    """Parts of the statement that are not true, as far as that is known."""

    def words(self, scene: Scene, *, full: bool) -> str:
        """What failed, as whoever is told everything may read it, or as the client may."""
        where = f"the statement on line {self.line}" if self.line else "the statement"
        shown = _words_of(self.what, scene, full=full)
        match self.part:
            case "arguments":
                return f"no statement gives it with these arguments; {where} is the first of those that give it at all"
            case "credential":
                return f"{where} came nearest, and its credential {self.number} (`{shown}`) is not among what was shown"
            case "elector":
                return f"{where} came nearest, and nobody has elected for its elector {self.number} (`{shown}`)"
            case "condition":
                said = shown if shown == HIDDEN else f"`{shown}`"
                is_now = "unknown" if self.truth is None else "false"
                return f"{where} came nearest, and its condition {self.number} is {is_now}: {said}"

    def details(self, scene: Scene, *, full: bool) -> dict[str, str]:
        """The same as facts for programs."""
        facts = {
            "line": str(self.line),
            "part": self.part,
            "number": str(self.number),
            "truth": "unknown" if self.truth is None else "false",
        }
        return facts if self.what is None else {**facts, "what": _words_of(self.what, scene, full=full)}


def _words_of(what: RoleRef | Condition | None, scene: Scene, *, full: bool) -> str:
    if what is None:
        return ""
    try:
        if isinstance(what, RoleRef):
            return render_role(what if full else replace(what, args=(), instance=None))
        names = tree.named(what)
        is_open = bool(names) and all(one in scene.state.open_names for one in names)
        return render_constraint(what) if full or is_open else HIDDEN
    except BadDefinition:
        return HIDDEN


def not_entered(enter_role: EnterRole, request: EntryRequest, rolefile: Rolefile, scene: Scene) -> RoleDenied:
    """Why a role is not given: revoked, not a role of this service, or not enough shown."""
    if enter_role.role not in rolefile.roles:
        return RoleDenied(f"`{enter_role.service}` has no role `{brief(enter_role.role)}`", failure="misuse")
    name = render_membership(enter_role.service, enter_role.instance, enter_role.role, ())
    if request.bans and derive(rolefile, replace(request, bans=frozenset()), scene) is not None:
        return RoleDenied(
            f"`{name}` was revoked", failure="revocation", remedy="ask whoever revoked it to reinstate you"
        )
    message = f"what `{enter_role.principal}` showed does not lead to `{name}`"
    remedy = f"`headgate role show {enter_role.service}` says what does"
    closest = nearest(rolefile, request, scene)
    if closest is None:
        return RoleDenied(message, failure="credentials", remedy=remedy)
    full = is_told_everything(scene.state, enter_role.principal)
    denied = RoleDenied(
        f"{message}: {closest.words(scene, full=full)}",
        failure="credentials",
        details=closest.details(scene, full=full),
        remedy=remedy,
    )
    denied.for_authors = f"{message}: {closest.words(scene, full=True)}"
    return denied


def nearest(rolefile: Rolefile, request: EntryRequest, scene: Scene) -> Nearest | None:
    """The statement that came nearest to giving what was asked for; None if that takes too long to find."""
    room = MAX_STEPS if scene.budget.left is None else max(0, min(MAX_STEPS, scene.budget.left))
    bounded = replace(scene, budget=Budget(room))
    try:
        tried = Derivation(rolefile, request, bounded)
        tried.run()
        misses = [one for s in rolefile.statements if s.head.role == request.role for one in [_missed(tried, s)]]
    except RoleDenied:
        return None
    finally:
        if scene.budget.left is not None:  # whoever asks is charged for finding out
            scene.budget.left -= room - max(0, bounded.budget.left or 0)
    return min(misses, key=lambda one: one.left, default=None)


def _missed(tried: Derivation, statement: Statement) -> Nearest:
    """What a statement lacks, for the choice of credentials that leads furthest."""
    line = statement.line
    constraint = revocation.on_entry(statement)
    conditions = constraint.args if isinstance(constraint, tree.AllOf) else (constraint,)
    parts = len(statement.credentials) + len(statement.electors) + len(conditions)
    asked = tried.asked(statement)
    if asked is None:
        return Nearest(line, "arguments", 1, False, left=parts + 1)
    depth, choices = tried.furthest(statement, asked, MAX_CHOICES)
    if depth < len(statement.credentials):
        ref = statement.credentials[depth].ref
        return Nearest(line, "credential", depth + 1, False, ref, parts - depth)
    best: Nearest | None = None
    for bound in choices:
        for found in _beyond(tried, statement, bound, conditions):
            if best is None or found.left < best.left:
                best = found
    return best or Nearest(line, "condition", max(1, len(conditions)), False, None, 1)


def _beyond(
    tried: Derivation, statement: Statement, bound: Bindings, conditions: tuple[Condition, ...]
) -> Iterator[Nearest]:
    """What is missing once the credentials are there."""
    elected, choices = tried.elected(statement, bound, MAX_CHOICES)
    if elected < len(statement.electors):
        left = len(statement.electors) - elected + len(conditions)
        yield Nearest(statement.line, "elector", elected + 1, False, statement.electors[elected].ref, left)
        return
    for then in choices:
        found = _failing(conditions, then, tried.scene)
        if found is not None:
            yield replace(found, line=statement.line)


def _failing(conditions: tuple[Condition, ...], bound: Bindings, scene: Scene) -> Nearest | None:
    """The condition without which all others hold; else the first that is false, or is not true."""
    for at, condition in enumerate(conditions):
        others = conditions[:at] + conditions[at + 1 :]
        found = next(solutions(tree.all_of(*others), bound, scene), None)
        if found is not None:
            return Nearest(0, "condition", at + 1, _truth(condition, found, scene), condition, 1)
    truths = [_truth(one, bound, scene) for one in conditions]
    for wanted in (False, None):
        if wanted in truths:
            at = truths.index(wanted)
            return Nearest(0, "condition", at + 1, wanted, conditions[at], sum(one is not True for one in truths))
    return None


def _truth(condition: Condition, bound: Bindings, scene: Scene) -> bool | None:
    """False or unknown; what would give a variable a value and does not is false."""
    return truth(condition, bound, scene) if variables(condition) <= bound.keys() else False


SearchRequest: TypeAlias = EnterRole | ElectRole | RevokeRole | ReinstateRole
"""The requests that take a search."""
Functions: TypeAlias = Mapping[str, RoleFunction]


@dataclass(frozen=True, slots=True)
class SearchedEntry(EnterRole):
    """A request to enter a role, with what the search for it has found at a version."""

    version: int = 0
    found: Derived | None = None


# -- searches -------------------------------------------------------------------------------------------------


def find_entry(view: RoleView, request: EnterRole, scene: Scene) -> Derived:
    """How a client comes to a role with what it shows; `scene` is what constraints look at for this request."""
    service, rolefile = (request.service, request.instance), rolefile_of(view, request.service)
    shown, elections = _shown(view, request)
    if request.using is None:  # entering is accepting: whatever stands that may elect the client
        roles = elected_roles(rolefile, request.service, request.role)
        standing = (one for role in roles for one in view.elections_to(service, role))
        elections = tuple(one for one in standing if view.believed(one.record) is True)
    asked = EntryRequest(
        role=request.role,
        args=_wanted(view, rolefile, request),
        shown=shown,
        elections=elections,
        bans=frozenset(view.bans),
        in_office=frozenset(one.id for one in elections if view.believed(one.office_record) is True),
    )
    derived = derive(rolefile, asked, scene)
    if derived is None:
        raise not_entered(request, asked, rolefile, view.scene(service, request.principal, request.origin))
    return derived


def find_office(view: RoleView, request: ElectRole) -> tuple[Membership, tuple[Argument | None, ...]]:
    """By which membership a client elects to a role, and what is settled of its arguments thereby.

    That is the first that any statement asks of an elector; what all such statements say alike is settled.
    """
    service, rolefile = (request.service, request.instance), rolefile_of(view, request.service)
    shown, _ = _shown(view, request)
    wanted = _wanted(view, rolefile, request)
    if request.until is not None and request.until <= request.at:
        raise BadDefinition(f"the election `{request.id}` would be over at once", remedy="choose a later `until`")
    if len(request.required) > MAX_SHOWN:
        raise BadDefinition(f"an election requires more than MAX_SHOWN ({MAX_SHOWN}) roles")
    if len(view.index.electing.get(request.principal, ())) >= MAX_ELECTIONS:
        raise RoleDenied(
            f"`{request.principal}` has MAX_ELECTIONS ({MAX_ELECTIONS}) elections in force",
            failure="misuse",
            remedy="take some back",
        )
    scene = view.scene(service, request.principal)
    office: Membership | None = None
    settled: list[tuple[Argument | None, ...]] = []
    for statement in rolefile.statements:
        if statement.head.role != request.role:
            continue
        head = tuple(map(scene.settled, statement.head.args))
        bound = revocation.bound_by_head(head, wanted)
        for elector in () if bound is None else statement.electors:
            for membership in shown if office is None else (office,):
                scene.budget.spend()
                made = fit(scene.own(elector.ref), membership, bound or {})
                if made is not None:
                    office = membership
                    settled.append(tuple(revocation.settled_by(term, made) for term in head))
                    break
    if office is None:
        raise RoleDenied(
            f"`{request.principal}` has shown nothing by which it elects to "
            f"`{render_membership(request.service, request.instance, request.role, ())}`",
            failure="credentials",
            remedy="show a membership of the elector's role",
        )
    return office, tuple(one[0] if len(set(map(same, one))) == 1 else None for one in zip(*settled, strict=True))


def find_revocable(view: RoleView, request: RevokeRole | ReinstateRole) -> dict[Ban, bool]:
    """What a client may revoke, or reinstate, with what it shows; and whether that is enough for a statement."""
    rolefile = rolefile_of(view, request.service)
    shown, _ = _shown(view, request)
    scene = view.scene((request.service, request.instance), request.principal)
    args = pattern_of(rolefile, request, view.functions)
    bans: dict[Ban, bool] = {}
    for statement in revocation.revoked_by(rolefile, request.role):
        for ban in _revocations(statement, args, shown, scene):
            bans[ban] = bans.get(ban, False) or len(statement.revokers) == 1
    if not bans:
        name = render_membership(request.service, request.instance, request.role, args)
        raise RoleDenied(
            f"`{request.principal}` has shown nothing by which it revokes or reinstates `{name}`",
            failure="credentials",
            remedy="show a membership of the role after `|>`",
        )
    return bans


def find_lifted(view: RoleView, request: ReinstateRole) -> set[Ban]:
    """What a client takes back that was revoked with the same arguments: anyone's, or in a quorum what it gave itself.

    What was left behind can be taken back by whoever may revoke now: by someone who is no longer in the office, or by a
    revoker whom no statement names any more.
    """
    mine = find_revocable(view, request)
    statements = revocation.revoked_by(rolefile_of(view, request.service), request.role)
    named = {revocation.office_name(one.ref) for statement in statements for one in statement.revokers}
    asked = {(one.place, one.role, *map(same, one.args)) for one in mine}
    alone = {(one.revoker, *map(same, one.args)) for one, enough in mine.items() if enough}
    given = {(one.revoker, *map(same, one.args)) for one in mine}
    liftable: set[Ban] = set()
    others: list[Ban] = []
    for ban in view.bans:
        key = tuple(map(same, ban.args))
        if (ban.place, ban.role, *key) not in asked:
            continue
        if ban.revoker not in named or (ban.revoker, *key) in alone:
            liftable.add(ban)
        elif (ban.revoker, *key) in given:
            stays = any(revocation.office_of(one) == ban.office for one in view.kept_by(ban.by))
            if ban.by == request.principal or not stays:
                liftable.add(ban)
            else:
                others.append(ban)
    if others and not liftable:
        first = min(others, key=repr)
        name = render_membership(*first.place, first.role, first.args)
        raise RoleDenied(
            f"`{request.principal}` has not revoked `{name}`",
            failure="misuse",
            remedy="a revocation that is one of several is taken back by whoever gave it",
        )
    return liftable


def _revocations(
    statement: Statement, args: tuple[Argument | None, ...], shown: Iterable[Membership], scene: Scene
) -> Iterator[Ban]:
    """What whoever shows memberships revokes by a statement: of what is asked, the part that its clauses let it."""
    bound = revocation.bound_by(statement, args)
    for revoker in statement.revokers if bound is not None else ():
        ref = scene.own(revoker.ref)
        for membership in shown:
            scene.budget.spend()
            made = fit(ref, membership, bound or {})
            if made is not None:
                pairs = zip(statement.head.args, args, strict=True)
                narrowed = tuple(arg if arg is not None else revocation.settled_by(term, made) for term, arg in pairs)
                yield Ban(
                    *(
                        scene.service,
                        scene.instance,
                        statement.head.role,
                        narrowed,
                        revocation.office_name(revoker.ref),
                    ),
                    *(str(scene.client), revocation.office_of(membership)),
                )


def rolefile_of(view: RoleView, service: str) -> Rolefile:
    """The rolefile of a service of this domain."""
    rolefile = view.rolefiles.get(service)
    if rolefile is None:
        raise RoleDenied(f"no service `{brief(service)}` has a rolefile here", failure="misuse")
    return rolefile


def _wanted(view: RoleView, rolefile: Rolefile, request: EnterRole | ElectRole) -> tuple[Argument, ...] | None:
    return None if request.args is None else conform_arguments(rolefile, request.role, request.args, view.functions)


def _shown(view: RoleView, request: SearchRequest) -> tuple[tuple[Membership, ...], tuple[Election, ...]]:
    """The credentials that a client shows: its own, and in force; or why one does not count (OASIS 4.2)."""
    principal, using = request.principal, request.using
    if using is None:
        return tuple(view.held_by(principal)), ()
    if len(using) > MAX_SHOWN:
        raise RoleDenied(f"more than MAX_SHOWN ({MAX_SHOWN}) credentials are shown", failure="misuse")
    memberships: list[Membership] = []
    elections: list[Election] = []
    for id in using:
        held, election = view.membership(id), view.election(id)
        if held is not None and held.holder != principal:
            raise RoleDenied(f"`{id}` is not held by `{principal}`", failure="fraud", remedy="show your own")
        if held is not None and held.state is not True:
            raise RoleDenied(f"`{id}` may have been revoked", failure="revocation", remedy="try again later")
        if held is not None:
            memberships.append(held)
        elif election is not None and view.believed(election.record) is True:
            elections.append(election)
        else:
            raise RoleDenied(f"`{brief(id)}` is not in force", failure="revocation", remedy="leave it out")
    return tuple(memberships), tuple(elections)


# -- on a known state -----------------------------------------------------------------------------------------


class Holders:
    """The index of a book, made when it is asked for, and kept while the book is the same. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[RoleBook | None, RoleIndex] = (None, RoleIndex(RoleBook()))

    def of(self, book: RoleBook) -> RoleIndex:
        """That of a book."""
        with self._lock:
            if self._known[0] is not book:
                self._known = book, RoleIndex(book)
            return self._known[1]


class Known(RoleView):
    """A known state, on which requests of one principal are tried in order: what is entered counts for those after it.

    Nothing is changed, and the work is counted in a budget that the caller gives.
    """

    def __init__(self, state: State, holders: Holders, functions: Functions, budget: Budget) -> None:
        super().__init__(state, holders.of(state.roles), functions)
        self._budget = budget

    def run(self, requests: Sequence[SearchRequest]) -> list[SearchRequest]:
        """The requests with what was found for them; or the refusal of the first that the ledger would refuse."""
        return [self._run(one) for one in requests]

    def _run(self, request: SearchRequest) -> SearchRequest:
        self.now = request.at
        self.budgets[request.principal] = self._budget
        match request:
            case EnterRole():
                place = request.service, request.instance
                derived = find_entry(self, request, self.scene(place, request.principal, request.origin))
                named = request.id, request.service, request.role, derived.args, request.principal
                self.begun[request.id] = Membership(*named, 0, instance=request.instance)
                self.fresh_of.setdefault(request.principal, {})[request.id] = None
                asked = {one.name: getattr(request, one.name) for one in fields(EnterRole)}
                return SearchedEntry(**asked, version=self.state.version, found=derived)
            case ElectRole():
                find_office(self, request)
            case RevokeRole():
                find_revocable(self, request)
            case ReinstateRole():
                find_lifted(self, request)
        return request

    def members(self, place: Service, role: str, having: tuple[int, Argument] | None = None) -> Iterator[Membership]:
        """The memberships of a role that are true, and those that were entered here, of which the index has none."""
        yield from super().members(place, role, having)
        for one in self.begun.values():
            fits = having is None or [same(having[1])] == [same(arg) for arg in one.args[having[0] :][:1]]
            if fits and (one.place, one.role) == (place, role):
                yield one
