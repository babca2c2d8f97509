"""A batch made for a version is committed at a later one if the policy is the same, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.ledger import Ledger, Rebased
from headgate.model.changes import (
    AddMember,
    AddRule,
    Advertise,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareType,
    GrantRole,
    RemoveMember,
    SetAttribute,
    SetKey,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from headgate.model.errors import VersionConflict
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind

GUEST = f"did:key:z6Mk{'a' * 44}"
MINE = Batch(ADMINISTRATOR, (AddRule(Rule("new", "p", frozenset({Action.SUBSCRIBE}), "a.T")),))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "ledger.db") as made:
        made.commit(
            Batch(
                ADMINISTRATOR,
                (
                    DeclarePrincipal("p"),
                    DeclarePrincipal("owner"),
                    DeclareGroup("g"),
                    DeclareType(EventType("a.T", "owner", {"n": Kind.INT})),
                    AddRule(Rule("pub", "p", frozenset({Action.PUBLISH}), "a.T")),
                ),
            )
        )
        yield made


def changed(ledger: Ledger, *changes: Change, author: str = ADMINISTRATOR) -> int:
    return ledger.commit(Batch(author, changes))


def test_what_is_not_policy_is_passed_over(ledger: Ledger) -> None:
    changed(ledger, Subscribe(Subscription("s", "p", "a.T")), author="p")
    changed(ledger, Advertise("p", "a.T"), author="p")
    changed(ledger, Unadvertise("p", "a.T"), author="p")
    changed(ledger, Unsubscribe("s"), author="p")
    with pytest.raises(VersionConflict, match="at version 5, not 1"):
        ledger.commit(MINE, expect=1)  # who does not ask for it is not put on anything
    assert ledger.commit(MINE, expect=1, rebase=lambda _: MINE) == 6
    assert [rule.id for rule in ledger.state().rules] == ["pub", "new"]
    assert ledger.passed_over(1, 6) == Rebased(4, ("subscriptions", "advertisements"))
    assert ledger.passed_over(5, 6) is None


def test_so_are_roles_and_whoever_comes_by_itself(ledger: Ledger) -> None:
    changed(ledger, GrantRole("m", "Login", "On", (), "p"))
    changed(ledger, DeclarePrincipal(GUEST), SetKey(GUEST, GUEST))
    changed(ledger, DeclareType(EventType("b.T", GUEST, {})))
    assert ledger.commit(MINE, expect=1, rebase=lambda _: MINE) == 5
    assert ledger.passed_over(1, 5) == Rebased(3, ("statements", "roles"))


@pytest.mark.parametrize(
    "change",
    [
        AddRule(Rule("other", "p", frozenset({Action.SUBSCRIBE}), "a.T")),
        AddMember("g", "p"),
        SetAttribute("p", "rank", 1),
        DeclarePrincipal("q"),
        DeclareType(EventType("a.U", "owner", {})),
        SetKey("p", GUEST),
    ],
)
def test_a_change_of_policy_is_a_conflict_that_names_the_version_and_who(ledger: Ledger, change: Change) -> None:
    changed(ledger, Advertise("p", "a.T"), author="p")
    changed(ledger, change)
    changed(ledger, Unadvertise("p", "a.T"), author="p")

    def never(state: State) -> Batch:
        raise AssertionError(state)

    with pytest.raises(VersionConflict, match="version 3 changed the policy since version 1") as refused:
        ledger.commit(MINE, expect=1, rebase=never)
    assert (refused.value.version, refused.value.author) == (3, ADMINISTRATOR)
    assert ledger.version == 4


def test_policy_that_was_changed_back_is_the_same(ledger: Ledger) -> None:
    changed(ledger, AddMember("g", "p"))
    changed(ledger, RemoveMember("g", "p"))
    assert ledger.commit(MINE, expect=1, rebase=lambda _: MINE) == 4
    assert ledger.passed_over(1, 4) == Rebased(2, ("policy that was changed back",))


def test_a_version_that_is_not_there_yet_is_a_conflict(ledger: Ledger) -> None:
    with pytest.raises(VersionConflict, match="at version 1, not 9"):
        ledger.commit(MINE, expect=9, rebase=lambda _: MINE)


def test_a_batch_is_made_for_the_version_that_it_is_put_on(ledger: Ledger) -> None:
    changed(ledger, Subscribe(Subscription("s", "p", "a.T")), author="p")
    ended = ledger.commit(
        MINE, expect=1, rebase=lambda now: Batch(ADMINISTRATOR, tuple(map(Unsubscribe, now.subscriptions)))
    )
    assert not ledger.state(ended).subscriptions
