"""Nobody keeps the administrator from its policy by making versions, and nobody makes more than its share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.cli.policy import policy
from headgate.model.changes import Advertise, DeclarePrincipal, RemoveRule
from headgate.model.rights import Action
from strategies.serving import PRICE, SALE, Served, serving
from strategies.small import grant

FILE = """\
types:
  shop.Sale: {owner: administrator, attributes: {item: string, amount: float}}
  shop.Price: {owner: administrator, attributes: {item: string, amount: float}, key: [item]}
principals: {anna: {KEY_anna}, bob: {KEY_bob}, till: {KEY_till}}
groups: {readers: RULES}
open: OPEN
connect: open
policy:
  - {id: g-anna, who: anna, may: subscribe, type: '*'}
  - {id: g-bob, who: bob, may: subscribe, type: '*'}
  - {id: pub, who: till, may: [publish, quench], type: '*'}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "shop") as made:
        yield made


def directory(shop: Served, members: str = "[anna]", opened: str = "[]") -> Path:
    text = FILE.replace("RULES", members).replace("OPEN", opened)
    for name, key in shop.keys.items():
        text = text.replace(f"KEY_{name}", f"key: {key.public.did}")
    made = shop.gateway.files.directory / "wanted"
    made.mkdir(exist_ok=True)
    (made / "shop.yaml").write_text(text)
    return made


def applied(shop: Served, *args: str, answer: str | None = None, **wanted: str) -> Result:
    files = [str(directory(shop, **wanted)), "--domain", str(shop.gateway.files.directory)]
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["policy", "apply", *files, *args], answer)


def flood(shop: Served, rounds: int = 4) -> None:
    """Versions by who may publish, and by who may only subscribe."""
    for _ in range(rounds):
        assert shop.ask("till", "PUT", f"/v1/advertisements/{SALE}").status_code in (200, 201)
        assert shop.ask("till", "DELETE", f"/v1/advertisements/{SALE}").status_code == 204
        shop.subscribe("bob", "mine")
        assert shop.ask("bob", "DELETE", "/v1/subscriptions/mine").status_code == 204


def test_policy_is_applied_over_what_others_did_meanwhile(shop: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile() -> bool:
        flood(shop)
        return True

    monkeypatch.setattr(policy, "_is_terminal", meanwhile)
    result = applied(shop, answer="y\n")
    assert result.exit_code == 0, result.output
    assert "rebased over 16 versions by others: subscriptions and advertisements" in result.output
    assert shop.domain.ledger.state().groups == {"readers": {"anna"}}


def test_and_while_they_go_on_doing_it(shop: Served) -> None:
    stop = threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            flood(shop, 1)

    flooding = threading.Thread(target=go_on)
    flooding.start()
    try:
        for members in ("[anna]", "[anna, bob]", "[bob]"):
            result = applied(shop, "--yes", members=members)
            assert result.exit_code == 0, result.output
    finally:
        stop.set()
        flooding.join()
    assert shop.domain.ledger.state().groups == {"readers": {"bob"}}


def test_a_change_of_policy_is_still_a_conflict(shop: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile() -> bool:
        flood(shop, 1)
        shop.commit(DeclarePrincipal("eve"))
        flood(shop, 1)
        return True

    before = shop.domain.ledger.version
    monkeypatch.setattr(policy, "_is_terminal", meanwhile)
    result = applied(shop, answer="y\n")
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert f"version {before + 5} changed the policy since version {before}, which is by `administrator`" in said
    assert "version-conflict" in said
    assert not shop.domain.ledger.state().groups


def test_subscriptions_that_end_with_the_plan_are_looked_for_again(
    shop: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert applied(shop, "--yes", opened="[readers]").exit_code == 0
    shop.subscribe("bob", "early", where="item in group readers")

    def meanwhile() -> bool:
        assert shop.ask("bob", "DELETE", "/v1/subscriptions/early").status_code == 204
        shop.subscribe("bob", "late", where="item in group readers")
        return True

    monkeypatch.setattr(policy, "_is_terminal", meanwhile)
    result = applied(shop, answer="y\n")
    assert result.exit_code == 0, result.output
    state = shop.domain.ledger.state()
    assert not state.open_names
    assert not state.subscriptions


def test_a_batch_that_expects_a_version_is_put_on_those_that_cannot_matter(shop: Served) -> None:
    expect = shop.domain.ledger.version
    flood(shop, 1)
    batch = {"changes": [{"op": "declare-group", "name": "readers"}], "expect": expect}
    answer = shop.ask("till", "POST", "/v1/batches", batch)
    assert answer.json()["code"] == "govern-denied"
    shop.commit(grant("rules", "till", SALE, may=(Action.GOVERN,)))
    later = shop.domain.ledger.version
    flood(shop, 1)
    rule = {"id": "t", "who": "bob", "may": "subscribe", "type": SALE}
    answer = shop.ask("till", "POST", "/v1/batches", {"changes": [{"op": "add-rule", "rule": rule}], "expect": expect})
    assert (answer.status_code, answer.json()["code"]) == (409, "version-conflict")
    assert "administrator" not in answer.json()["detail"]  # who changes what is not for everyone
    answer = shop.ask("till", "POST", "/v1/batches", {"changes": [{"op": "add-rule", "rule": rule}], "expect": later})
    assert answer.json() == {"version": later + 5, "rebased": 4}


# -- advertising ----------------------------------------------------------------------------------------------


def test_to_advertise_takes_the_right_to_publish(shop: Served) -> None:
    before = shop.domain.ledger.version
    answer = shop.ask("bob", "PUT", f"/v1/advertisements/{SALE}")
    assert (answer.status_code, answer.json()["code"]) == (403, "publish-denied")
    assert shop.ask("bob", "GET", "/v1/advertisements").json() == {"advertisements": []}
    assert shop.domain.ledger.version == before
    shop.commit(grant("b", "bob", SALE, may=(Action.PUBLISH,)))
    assert shop.ask("bob", "PUT", f"/v1/advertisements/{SALE}").status_code == 201
    shop.commit(RemoveRule("b"))
    assert shop.ask("bob", "PUT", f"/v1/advertisements/{SALE}").status_code == 200  # it stands, and gives nothing
    assert shop.ask("bob", "DELETE", f"/v1/advertisements/{SALE}").status_code == 204


# -- paces ----------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "slow", limits__versions_per_minute="4") as made:
        yield made


def test_whatever_makes_versions_is_paced_for_each_principal(slow: Served) -> None:
    flood_of_bob = [("PUT", "/v1/subscriptions/a", {"type": SALE}), ("DELETE", "/v1/subscriptions/a", None)] * 2
    assert [slow.ask("bob", *one).status_code for one in flood_of_bob] == [201, 204, 201, 204]
    refused = slow.ask("bob", "PUT", "/v1/subscriptions/a", {"type": SALE})
    assert (refused.status_code, refused.json()["code"]) == (503, "too-busy")
    assert 10 <= int(refused.headers["retry-after"]) <= 15
    assert refused.json()["detail"] == "`bob` has made as many versions as it may in 60 seconds"
    assert "limits.versions_per_minute" in refused.json()["remedy"]
    version = slow.commit(grant("rules", "bob", SALE, may=(Action.GOVERN,)))
    rule = {"id": "r", "who": "bob", "may": "subscribe", "type": SALE}
    for method, path, body in (
        ("POST", "/v1/subscriptions", {"type": SALE}),
        ("PUT", "/v1/types/b.T", {"attributes": {}}),
        ("DELETE", f"/v1/types/{SALE}", None),
        ("POST", "/v1/batches", {"changes": [{"op": "add-rule", "rule": rule}]}),
        ("POST", "/v1/certificates/x/revoke", None),
    ):
        assert slow.ask("bob", method, path, body).json()["code"] == "too-busy", path
    assert slow.domain.ledger.version == version
    assert slow.ask("anna", "PUT", "/v1/subscriptions/a", {"type": SALE}).status_code == 201  # others are not held up
    assert slow.ask("bob", "GET", "/v1/subscriptions").json() == {"subscriptions": []}  # nor what makes no version


def test_an_advertisement_that_a_publisher_left_out_counts_too(slow: Served) -> None:
    def publish(id: str, type: str) -> str:
        event = {"specversion": "1.0", "id": id, "source": "t", "type": type, "data": {"item": "tea", "amount": 1}}
        answer = slow.ask("till", "POST", "/v1/events", event, headers={"content-type": "application/cloudevents+json"})
        return str(answer.json().get("code") or answer.json()["status"])

    for at in range(2):  # two versions each
        assert publish(f"{at}", SALE) == "accepted"
        assert slow.ask("till", "DELETE", f"/v1/advertisements/{SALE}").status_code == 204
    assert publish("x", SALE) == "too-busy"
    slow.commit(Advertise("till", PRICE), author="till")
    assert publish("y", PRICE) == "accepted"  # what makes no version goes on


def test_the_administrators_policy_is_not_paced(slow: Served) -> None:
    for members in ("[anna]", "[bob]", "[anna, bob]", "[]", "[anna]", "[bob]"):
        assert applied(slow, "--yes", members=members).exit_code == 0
