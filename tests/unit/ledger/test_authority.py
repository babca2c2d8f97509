"""What stands of signed statements is in the ledger as `apply` made it, whoever reads it and when."""

import tempfile
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.authority.statement_state import admitted
from headgate.lang import parse_condition
from headgate.ledger import Ledger
from headgate.ledger.load import preview
from headgate.model.authority import AttributeMap, Identity, Issuing, Provider, Succession, Validity
from headgate.model.changes import (
    AddIssuing,
    Batch,
    Change,
    Identify,
    SetCoordinator,
    SetKey,
    SetNetwork,
    SetPolicyRule,
    SetProvider,
    Succeed,
)
from headgate.model.errors import StaleList
from headgate.model.rights import Rule
from headgate.model.state import ADMINISTRATOR, State
from headgate.storage.shared import Where
from strategies.authority import (
    CCS,
    DIDS,
    MET,
    PITO,
    PLATE,
    SEES,
    SMITH,
    WORLD,
    Step,
    at,
    cert,
    chains,
    over,
    present,
    revoked,
    stories,
    told,
    world,
)
from strategies.running import examples

C1, C2 = cert("c1", PITO, SMITH, over(PLATE, SEES)), cert("c2", PITO, SMITH, over("*", SEES))


def ticking() -> Callable[[], datetime]:
    ticks = iter(range(1_000))
    return lambda: at(next(ticks))


def exact(state: State) -> list[str]:
    """All that statements bring, spelled out, so that `1`, `1.0` and `True` differ and order counts."""
    lines = [spelled(rule) for rule in chains(state)]
    lines += sorted(f"{name} {sorted(map(repr, of.items()))}" for name, of in state.principals.items())
    lines += sorted(f"{who} {rule!r} {state.attested_rules.get(who)}" for who, rule in state.policy_rules.items())
    lines += sorted(map(repr, state.bags.items()))
    for kind in (state.certificates, state.lists, state.successions, state.providers, state.identities, state.issuing):
        lines += sorted(f"{key} {plain(one)}" for key, one in kind.items())
    return [*lines, f"coordinator {state.coordinator} {state.network}", *sorted(map(repr, state.keys.items()))]


def plain(value: object) -> str:
    """A value spelled out, its sets in order."""
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(plain, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(plain, value))})"
    if is_dataclass(value):
        inner = (f"{one.name}={plain(getattr(value, one.name))}" for one in fields(value))
        return f"{type(value).__name__}({', '.join(inner)})"
    return repr(value)


def spelled(rule: Rule) -> str:
    actions = sorted(action.value for action in rule.actions)
    return repr((rule.id, rule.who, actions, rule.type, rule.where, rule.attributes, rule.forced, rule.author))


@examples(5, soak=12)
@given(stories(identities=True), st.integers(1, 3), st.data())
def test_the_ledger_holds_what_stands(story: tuple[list, list[Step]], together: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, Ledger.create(Path(folder) / "l.db") as ledger:
        ledger.commit(Batch(ADMINISTRATOR, WORLD))
        chain, times = [State(), world()], {}
        with Ledger.open(Path(folder) / "l.db") as follower:
            for state, now, batch in told(story, together=together):
                said = preview(chain[-1], state, batch)
                assert ledger.commit(batch) == state.version
                assert said == ledger.difference(state.version - 1, state.version)
                chain.append(state)
                times[state.version] = now
                assert exact(ledger.state()) == exact(state)
                if data.draw(st.booleans(), "follow"):
                    assert exact(follower.state()) == exact(state)
                    assert follower.state() == state
        with Ledger.open(Path(folder) / "l.db") as again:
            again.check()
            for version, state in enumerate(chain):
                assert exact(again.state(version)) == exact(state)
                assert again.state(version) == state
                if version in times:
                    held = {rule.id: rule for rule in chains(again.state(version))}
                    assert held == admitted(again.state(version), times[version])
            for principal in chain[-1].principals:
                seen = {entry.version for entry in again.history(principal)}
                for version in range(2, len(chain)):
                    if bearing(chain[version], principal) != bearing(chain[version - 1], principal):
                        assert version in seen


@pytest.mark.parametrize(
    "batch",
    [
        (revoked(PITO, 1, "c1"), present(SMITH, cert("c3", PITO, SMITH, over(PLATE, SEES)))),
        (SetKey(SMITH, DIDS[0]), SetKey(SMITH, None), present(SMITH, C2, C1)),
    ],
    ids=["another-chain", "shown-anew"],
)
def test_what_leaves_and_comes_back_in_one_batch_comes_last(stored_in: Where, batch: tuple[Change, ...]) -> None:
    with Ledger.create(stored_in) as ledger:
        ledger.commit(Batch(ADMINISTRATOR, (*WORLD, present(SMITH, C1, C2))))
        first = [rule.type for rule in chains(ledger.state())]
        ledger.commit(Batch(ADMINISTRATOR, batch))
        held = ledger.state()
        assert [rule.type for rule in chains(held)] == first[::-1]
        with Ledger.open(stored_in) as again:
            assert exact(again.state()) == exact(held)


def test_what_statements_change_in_words(stored_in: Where) -> None:
    with Ledger.create(stored_in, clock=ticking()) as ledger:
        ledger.commit(Batch(ADMINISTRATOR, WORLD))

        def said(*changes: Change) -> list[str]:
            version = ledger.commit(Batch(ADMINISTRATOR, changes))
            return [one.words for one in ledger.difference(version - 1, version)]

        assert said(present(SMITH, cert("c", PITO, SMITH, over(PLATE, SEES, ("lane",)), until=60))) == [
            f"by certificates of `pito`, `smith` may subscribe `{PLATE}` (`lane`)",
            "certificate `c` from `pito` to `smith` until 1970-01-01T00:01:00+00:00",
            "`smith` presented the certificate `pito#c`",
        ]
        assert said(revoked(PITO, 1, "c")) == [
            f"no longer by certificates of `pito`: `smith` may subscribe `{PLATE}` (`lane`)",
            "gone: certificate `c` from `pito` to `smith` until 1970-01-01T00:01:00+00:00",
            "revocation list 1 of `pito`, 1 revoked",
            "the certificate `pito#c` of `smith` counts no more",
        ]
        guests = AttributeMap("a", "b", ((1, 2),))
        assert said(
            SetCoordinator(MET),
            SetProvider(Provider(PITO, "home")),
            SetProvider(Provider(CCS, "away", (guests,))),
            AddIssuing(Issuing("r", SMITH, (over(),), 60)),
            SetPolicyRule(SMITH, parse_condition("$a = 1")),
            Identify(SMITH, Identity("i", PITO, SMITH, {"a": 1}, Validity(None, at(9))), at(0)),
            Succeed(Succession(CCS, DIDS[0], 0, at(9)), at(0)),
        ) == [
            "`$a` of `smith` is 1",
            "the requirements of `smith` must be narrower than `$a = 1`",
            "the network is coordinated by met",
            "`pito` attests 1 attributes of `smith`",
            "issuing rule `r` for `smith`, 60 s each time",
            "provider of guests `away`, ccs",
            "identity provider `home`, pito",
            f"`ccs` goes on as `{DIDS[0]}`, and the old key counts until 1970-01-01T00:00:09+00:00",
        ]
        assert [entry.version for entry in ledger.history(SMITH)] == [1, 2, 3, 4]
        assert said(SetCoordinator(None), SetPolicyRule(SMITH, None)) == [
            "`smith` has no policy rule any more; it was `$a = 1`",
            "this domain coordinates the network itself",
        ]
        assert said(SetNetwork("police")) == ["the network is called `police`"]
        assert said(SetNetwork(None)) == ["the network has no name any more; it was `police`"]


def test_the_rule_of_each_provider_is_kept(stored_in: Where) -> None:
    def says(id: str, issuer: str, rule: str, start: float) -> Identify:
        valid = Validity(at(start), at(90))
        return Identify(SMITH, Identity(id, issuer, SMITH, {}, valid, parse_condition(rule)), at(20))

    with Ledger.create(stored_in, clock=ticking()) as ledger:
        ledger.commit(Batch(ADMINISTRATOR, WORLD))
        home, away = SetProvider(Provider(PITO, "home")), SetProvider(Provider(CCS, "away"))
        ledger.commit(Batch(ADMINISTRATOR, (home, away, says("i", PITO, "$a = 1", 5))))
        version = ledger.commit(Batch(ADMINISTRATOR, (says("j", CCS, "$b = 2", 1),)))
        assert [one.words for one in ledger.difference(version - 1, version)] == [
            "policy rule `smith` changed: `$a = 1`; now: `$b = 2 and $a = 1`",
            "`ccs` attests 0 attributes of `smith`",
            "`ccs` attests that requirements of `smith` are narrower than `$b = 2`",
        ]
        kept = ledger.state().attested_rules[SMITH]
        assert [(one.provider, one.began) for one in kept] == [(CCS, at(1)), (PITO, at(5))]
    with Ledger.open(stored_in) as again:
        assert again.state().attested_rules == {SMITH: kept}
        with pytest.raises(StaleList):
            again.commit(Batch(ADMINISTRATOR, (says("k", PITO, "$a = 1 or $c = 1", 4),)))


def test_what_chains_add_up_to_can_be_kept(stored_in: Where) -> None:
    """A condition that no expression says would stop every batch that brings it, such as another's revocation."""

    def wordy(name: str) -> str:
        return f"{name} in {{{', '.join(map(str, range(100_000, 100_700)))}}}"

    above = cert("a", PITO, MET, over(where=wordy("lane")), over("uk.*", SEES), delegate=True)
    below = cert("b", MET, SMITH, over(where=wordy("location")), over("uk.*", SEES), freshness=60)
    whole = cert("c", PITO, SMITH, over("*", SEES))
    with Ledger.create(stored_in) as ledger:
        ledger.commit(Batch(ADMINISTRATOR, (*WORLD, present(SMITH, above, below, whole))))
        ledger.commit(Batch(ADMINISTRATOR, (revoked(MET, 1),)))
        held = {rule.id: rule for rule in chains(ledger.state())}
        assert held == admitted(ledger.state(), at(0))
        assert {rule.type for rule in held.values() if rule.author == PITO} == {"*", "uk.*", PLATE}


def bearing(state: State, principal: str) -> list[str]:
    """What statements have to do with a principal at a version."""
    mine = [spelled(rule) for rule in chains(state) if rule.who == principal]
    attributes = [repr(item) for item in state.principals.get(principal, {}).items()]
    return [*sorted(mine), *sorted(attributes), repr(state.policy_rules.get(principal))]
