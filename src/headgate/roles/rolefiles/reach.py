"""Which statements can ever apply?

Guarantees: a statement that is said never to apply does not, unless its service itself gives a role that it needs.
Bounded by `MAX_PAIRS`; past it nothing is said.
Leaves out: roles without any statement, which only their service gives, and how roles of other services are entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headgate.model.conditions import RoleRef
from headgate.model.rolefiles import Rolefile, Statement
from headgate.roles.rolefiles.contradictions import contradiction
from headgate.roles.rolefiles.findings import MAX_PAIRS, Finding, warning
from headgate.roles.rolefiles.inference import said
from headgate.roles.rolefiles.renaming import may_give


def never_apply(rolefile: Rolefile, service: str, known: Callable[[str], Rolefile | None]) -> Iterator[Finding]:
    """The statements that can never apply, with why."""
    needs = _Needs(rolefile, service, known)
    for number, statement in enumerate(rolefile.statements):
        why = contradiction(statement.constraint)
        if why is not None:
            needs.bar(number)
            yield warning("never-applies", statement.line, f"the constraint is never true: {why}", "correct it")
    if not needs.spread():
        return
    for number, statement in enumerate(rolefile.statements):
        if number not in needs.barred and needs.lacking[number]:
            yield _lacking(statement, [needs.refs[number][n] for n in sorted(needs.lacking[number])], needs)


def _lacking(statement: Statement, refs: list[RoleRef], needs: _Needs) -> Finding:
    never = next((ref for ref in refs if not needs.is_given(ref)), None)
    if never is not None:
        message = f"no statement gives `{said(never)}`, so this one never applies"
        return warning("never-applies", statement.line, message, "correct the arguments, or add a statement")
    message = f"every statement that gives `{said(refs[0])}` needs this one or never applies, so this one never does"
    remedy = "add a statement that does not need it, or let the service give it to the first"
    return warning("never-applies", statement.line, message, remedy)


def is_own(ref: RoleRef, service: str) -> bool:
    """Is this a role of the service itself?"""
    return ref.service in (None, service)


def needed(statement: Statement) -> list[RoleRef]:
    """The roles of the candidate and of its electors."""
    return [*(one.ref for one in statement.credentials), *(one.ref for one in statement.electors)]


class _Needs:
    """The roles that each statement needs, and those that no statement has given yet."""

    def __init__(self, rolefile: Rolefile, service: str, known: Callable[[str], Rolefile | None]) -> None:
        self._statements = rolefile.statements
        self._service = service
        self._known = known
        self._pairs = 0
        self._heads: dict[tuple[str | None, str], list[RoleRef]] = {}
        for statement in rolefile.statements:
            self._heads.setdefault((None, statement.head.role), []).append(statement.head)
        self.barred: set[int] = set()
        self.refs = [needed(statement) for statement in rolefile.statements]
        self.lacking = [{n for n, ref in enumerate(refs) if not self._at_hand(ref)} for refs in self.refs]

    def bar(self, place: int) -> None:
        """A statement never applies."""
        self.barred.add(place)

    def is_given(self, ref: RoleRef) -> bool:
        """Does any statement at all give this?"""
        return any(may_give(head, ref) for head in self._of(ref))

    def spread(self) -> bool:
        """Let each statement that applies give its role to those that need it; False if that takes too long."""
        waiting: dict[str, list[tuple[int, int]]] = {}
        for number, lacking in enumerate(self.lacking):
            for n in lacking:
                ref = self.refs[number][n]
                if is_own(ref, self._service):
                    waiting.setdefault(ref.role, []).append((number, n))
        ready = [place for place, lacking in enumerate(self.lacking) if not lacking and place not in self.barred]
        while ready:
            head = self._statements[ready.pop()].head
            for number, n in waiting.get(head.role, ()):
                self._pairs += 1
                if self._pairs > MAX_PAIRS:
                    return False
                if n in self.lacking[number] and may_give(head, self.refs[number][n]):
                    self.lacking[number].discard(n)
                    if not self.lacking[number] and number not in self.barred:
                        ready.append(number)
        return True

    def _at_hand(self, ref: RoleRef) -> bool:
        """Is this given without any statement here?"""
        heads = self._of(ref)
        if not heads:
            return True  # only its service gives it, for its own reasons
        return not is_own(ref, self._service) and any(may_give(head, ref) for head in heads)

    def _of(self, ref: RoleRef) -> list[RoleRef]:
        """The heads of the statements that give a role."""
        key = (None if is_own(ref, self._service) else ref.service, ref.role)
        if key not in self._heads:
            other = self._known(key[0]) if key[0] is not None else None
            statements = other.statements if other is not None else ()
            self._heads[key] = [one.head for one in statements if one.head.role == ref.role]
        return self._heads[key]
