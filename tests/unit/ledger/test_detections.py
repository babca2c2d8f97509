"""Detections in the ledger: the tree that was resolved once is what is read, in every later process."""

import json
from pathlib import Path

import pytest
from hypothesis import given

from headgate.decide.composite_check import resolve
from headgate.lang.composite import parse_composite, render_composite
from headgate.ledger import Ledger
from headgate.ledger.codec import dump
from headgate.ledger.policy_rows import DETECTION
from headgate.ledger.tree_codec import COMPOSITE
from headgate.model.changes import Batch, Change, DeclarePrincipal, DeclareType, RetireType, Subscribe, Unsubscribe
from headgate.model.composite import Composite, Template, templates
from headgate.model.errors import Damaged
from headgate.model.rights import Detection, Subscription
from headgate.model.types import SIGNAL, EventType
from headgate.model.values import EPOCH, Kind
from strategies.composites import STATE, accepted, resolved, seconds
from strategies.running import examples

TEXTS = (
    "AbsTime(5)",
    "null",
    "$Seen(b, r1); Seen(b, r) {r != r1, t <- @ + 60, timeofday(@) > 5} - {Delay = 2.5} Alarm()",
    "A(x) {x in {1, 2}} | B(x) {not (x > 3 and x < 9) or x in 4..5};{Probability = 0.99} C(x, *)",
    """$Open(x); { int t = 0; pt q = null; expr: $Deposit(x, a) - Close(x)
        event: if (t > 3) { t = t + new.a; kill hd.tl }
               elseif (hd = null) { loop (p = hd) { q = p; kill p } } else { t = 1 }
        end: if (hd) { hd.t = t; hd.@ = @; accept hd } }""",
    "max a ($Deposit(x, a) - Close(x)) by x",
)


@pytest.mark.parametrize("text", TEXTS)
def test_every_form_is_read_back(text: str) -> None:
    check(resolved(text))


@examples(300)
@given(accepted(blocks=True))
def test_random_trees_are_read_back(c: Composite) -> None:
    check(c)


def check(c: Composite) -> None:
    back = COMPOSITE.load(json.loads(dump(COMPOSITE.dump(c))))
    assert back == c
    assert render_composite(back) == render_composite(c)
    assert [one.attributes for one in templates(back)] == [one.attributes for one in templates(c)]
    assert resolve(back, STATE).composite == c  # resolving again changes nothing


def test_places_in_the_text_are_not_kept() -> None:
    back = COMPOSITE.load(COMPOSITE.dump(resolved("A(x)")))
    assert isinstance(back, Template)
    assert back.place is None


@pytest.mark.parametrize(
    "stored",
    [
        '{"format":2,"tree":{"NullEvent":[]}}',
        '{"format":1,"tree":{"Event":[]}}',
        '{"format":1,"tree":{"NullEvent":[1]}}',
        '{"format":1,"tree":{"Variable":["x"]}}',
        '{"format":1,"tree":[]}',
        '{"format":1,"tree":7}',
        "7",
    ],
)
def test_what_was_never_written_is_damage(stored: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.create(path) as ledger:
        ledger.commit(Batch("administrator", (DeclarePrincipal("ann"), subscribe("d", "null"))))
        text = json.dumps({"text": "null", "composite": json.loads(stored), "bound": [], "start": 0})
        with ledger._storage.writing() as connection:
            connection.exec_driver_sql("UPDATE subscriptions SET detection = ?", (text,))
    with Ledger.open(path) as again, pytest.raises(Damaged, match="`d`"):
        again.state()


def test_fields_that_a_class_gained_later_have_their_defaults() -> None:
    assert COMPOSITE.load({"format": 1, "tree": {"Without": [{"NullEvent": []}, {"NullEvent": []}]}}) == resolved(
        "null - null"
    )


def subscribe(id: str, text: str, **given: object) -> Change:
    detection = Detection(text, parse_composite(text), **given)  # type: ignore[arg-type]
    return Subscribe(Subscription(id, "ann", SIGNAL, detection=detection))


def test_a_detection_is_a_subscription_of_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    seen = EventType("lab.Seen", "administrator", {"b": Kind.STRING, "r": Kind.STRING})
    with Ledger.create(path) as ledger:
        ledger.commit(Batch("administrator", (DeclarePrincipal("ann"), DeclareType(seen))))
        ledger.commit(Batch("ann", (subscribe("d", "$Seen(b, r)", bound={"b": "b7"}, start=seconds(3)),)))
        ledger.commit(Batch("administrator", (DeclareType(EventType("other.Seen", "administrator", {})),)))
        ledger.commit(Batch("ann", (Unsubscribe("d"),)))
    with Ledger.open(path) as again:
        again.check()
        (opened,) = again.subscriptions(1, 4).opened
        assert again.subscriptions(1, 4).closed == [("d", 2, 4)]
        assert again.state(3).subscriptions == {"d": opened}  # though `Seen` may mean two types by now
        assert opened.detection is not None
        assert opened.detection.text == "$Seen(b, r)"
        assert opened.detection.bound == {"b": "b7"}
        assert opened.detection.start == seconds(3)
        assert opened.types == ("lab.Seen",)
        words = [one.words for one in again.difference(1, 2)]
        assert words == ["subscription `d` began: `ann` detects `$Seen(b, r)` with b = 'b7'"]


def test_a_detection_ends_with_a_type_that_it_looks_at(tmp_path: Path) -> None:
    types = [EventType(f"lab.{name}", "administrator", {}) for name in "AB"]
    with Ledger.create(tmp_path / "ledger.db") as ledger:
        ledger.commit(Batch("administrator", (DeclarePrincipal("ann"), *map(DeclareType, types))))
        ledger.commit(Batch("ann", (subscribe("d", "A() | B()"), subscribe("e", "AbsTime(5)"))))
        ledger.commit(Batch("administrator", (RetireType("lab.B"),)))
        assert list(ledger.state().subscriptions) == ["e"]


def test_the_start_is_kept_to_the_microsecond() -> None:
    made = Detection("null", parse_composite("null"), {"x": 1, "y": 1.0, "z": True}, EPOCH.replace(microsecond=1))
    back = DETECTION.load(DETECTION.dump(made))
    assert back == made
    assert repr(back.bound) == repr(made.bound)
