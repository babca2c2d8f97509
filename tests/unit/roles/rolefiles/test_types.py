"""Types are inferred where they can be, clash where they must, and raw values become arguments of them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given

from headgate.lang.rolefile import parse_rolefile
from headgate.model.errors import BadDefinition, TypeMismatch
from headgate.model.expressions import Argument, Constant
from headgate.model.rolefiles import (
    ArgumentType,
    ClockType,
    IntegerType,
    ObjectType,
    Rolefile,
    SetType,
    StringType,
    TimestampType,
)
from headgate.roles.rolefiles.inference import Imported, Inference, Signature, Signatures
from headgate.roles.rolefiles.types import conform_argument, describe, types_of
from strategies.rolefiles import rolefiles
from strategies.running import examples

INTEGER, STRING, RWX = IntegerType(), StringType(), SetType("rwx")
USERID = ObjectType("userid", "Login")


def nobody(service: str, role: str) -> Signature | None:
    return None


def infer(rolefile: Rolefile, imported: Imported, service: str | None = None) -> Signatures:
    inference = Inference(rolefile, imported, service)
    inference.refuse_clashes()
    return inference.signatures


def login(service: str, role: str) -> Signature | None:
    return (ObjectType("userid"), STRING) if (service, role) == ("Login", "LoggedOn") else None


INFERRED: list[tuple[str, dict[str, Signature]]] = [
    ("Chair <-", {"Chair": ()}),
    ("A(u) <-", {"A": (None,)}),
    ("def A(u, r, n) u : userid r : {rwx} n : integer", {"A": (ObjectType("userid"), RWX, INTEGER)}),
    ("import Login.userid; def A(u) u : userid", {"A": (USERID,)}),
    # figure 3.1: declarations and imports may be left out
    ("Member(u) <- Login.LoggedOn(u, h) : u in staff", {"Member": (USERID,)}),
    ("At(h) <- Login.LoggedOn(u, h)", {"At": (STRING,)}),
    ("def Member(u) u : userid; Member(u) <- Login.LoggedOn(u, h)", {"Member": (USERID,)}),
    ("B(u) <- A(u); A(u) <- Login.LoggedOn(u, h)", {"B": (USERID,), "A": (USERID,)}),
    ("Login(3, u) <- Pw.Passwd(u, 'Login'); Login(0, u) <-", {"Login": (INTEGER, None)}),
    ("A(x) <- : x = y + 1", {"A": (INTEGER,)}),
    ("A(x) <- : x = count(A(_))", {"A": (INTEGER,)}),
    ("A(x) <- : x = weekday(@time)", {"A": (ClockType("weekday"),)}),
    ("A(x) <- : timeofday(@time) + 60 < x", {"A": (ClockType("timeofday"),)}),
    ("A(x) <- : timeofday(@time) < x + 60", {"A": (ClockType("timeofday"),)}),
    ("A(x) <- : timeofday(@time) < 60 + x", {"A": (ClockType("timeofday"),)}),
    ("A(x) <- : timeofday(@time) < x - 60", {"A": (ClockType("timeofday"),)}),
    ("A(x) <- : timeofday(@time) - x > 60", {"A": (ClockType("timeofday"),)}),
    ("A(x) <- : x - timeofday(@time) > 60", {"A": (ClockType("timeofday"),)}),
    ("A(x, y) <- : y = x + 60 and timeofday(@time) < y", {"A": (ClockType("timeofday"),) * 2}),
    ("A(x) <- : @time - x > 60", {"A": (TimestampType(),)}),
    ("A(x) <- : @time - Began(x) > 60", {"A": (None,)}),
    ("A(x) <- : x = @time + 3600", {"A": (TimestampType(),)}),
    ("A(x, y) <- : x = y - timestamp '2026-01-01T09:00:00Z' and y < @time", {"A": (INTEGER, TimestampType())}),
    ("A(x) <- : R(x, _) ; B <- : R(y, _) and @time < y", {"A": (TimestampType(),), "B": ()}),
    ("A(x) <- : x in 1..3", {"A": (INTEGER,)}),
    ("A(x) <- : x < 1.5", {"A": (None,)}),
    ("A(x) <- : x < 1.5 and x > 1", {"A": (INTEGER,)}),
    ("A(x) <- : x starts with 'a'", {"A": (STRING,)}),
    # text is a literal of a String and of any object type, so it alone tells neither
    ("A('x') <-", {"A": (None,)}),
    ("A('x') <- ; A(u) <- Login.LoggedOn(u, _)", {"A": (USERID,)}),
    ("A(u) <- : u in staff", {"A": (None,)}),
    ("A({r}) <- ; A({w}) <-", {"A": (SetType("rw"),)}),
    # where a set comes from elsewhere, the letters that are written here need not be all
    ("A({r}) <- ; A(x) <- Other.B(x)", {"A": (None,)}),
    ("A(r) <- : r = unixacl('a=rwx', u)", {"A": (None,)}),
    ("def A(r) r : {rwx}; A({r}) <- ; B(x) <- A(x) : {r} subseteq x", {"A": (RWX,), "B": (RWX,)}),
    ("A(x) <- B(x) : x = y and y = 3", {"A": (INTEGER,), "B": (INTEGER,)}),
    ("A(x) <- : A(x) and x = 3", {"A": (INTEGER,)}),
    ("A(x, y) <- ; B <- A", {"A": (None, None), "B": ()}),
]


@pytest.mark.parametrize(("text", "types"), INFERRED, ids=[text for text, _ in INFERRED])
def test_types_are_inferred(text: str, types: dict[str, Signature]) -> None:
    assert infer(parse_rolefile(text), login) == types


CLASHES: list[tuple[str, str, list[str]]] = [
    # text, place, in the message
    ("A(x) <- : x = 1\nA('a') <-", "line 2", ["`Integer` by line 1 (`1`)", "text by line 2 (`'a'`)"]),
    ("A(x) <- B(x) : x < 3 and x in staff", "line 1", ["`Integer`", "text by line 1 (`x in staff`)"]),
    ("def A(n) n : integer\n\nA(u) <- Login.LoggedOn(u, h)", "line 3", ["`Login.userid`", "line 1 (`def A(n)`)"]),
    ("def A(r) r : {rwx}\nA({q}) <-", "line 2", ["`{rwx}` by line 1", "a set with `q`"]),
    ("def A(r) r : {rwx}\ndef B(r) r : {ab}\nA(r) <- B(r)", "line 3", ["`{rwx}`", "`{ab}`"]),
    ("def A(u) u : userid\ndef B(u) u : host\nA(u) <- B(u)", "line 3", ["`userid`", "`host`"]),
    ("A(u) <- Login.LoggedOn(u, h) : u < 'm'", "line 1", ["`u < 'm'` compares by order", "`Login.userid`"]),
    ("A(u) <- Login.LoggedOn(u, h) : u starts with 'm'", "line 1", ["`Login.userid`", "`String`"]),
    ("A(x) <- : x subset {r} and x = 1", "line 1", ["a set", "`Integer`"]),
    ("A(x) <- : x = {r} + 1", "line 1", ["a set with `r`", "`Integer`"]),
    ("A(x) <- : x = true and x < y", "line 1", ["compares by order what is a bool"]),
    ("A(x) <- : x = weekday('a')", "line 1", ["text", "a timestamp"]),
    ("A(t) <- : @time < t\nB <- A('8am')", "line 2", ["a timestamp by line 1", "text by line 2 (`'8am'`)"]),
    ("A(s) <- : timeofday(@time) < s\nB <- A('8am')", "line 2", ["a time of day", "text by line 2 (`'8am'`)"]),
    ("A(u) <- Login.On(u) : u in staff and @time < u", "line 1", ["text by", "a timestamp by"]),
    ("A <- : @time + @time < @time", "line 1", ["a timestamp", "`Integer`"]),
    ("A(x) <- : x = @time + 1.5", "line 1", ["`1.5`, which is no whole number"]),
    ("A <- : R(x) and timeofday(@time) < x and R(y) and y in staff", "line 1", ["text by", "a time of day by"]),
    ("A(u) <- L(u)\nB <- A(x, y)", "line 2", ["`A` has 2 arguments here, but 1 by line 1"]),
    ("def A(u)\nA <-", "line 2", ["`A` has 0 arguments here, but 1 by line 1"]),
    ("A(u) <- L(u)\nA(u, v) <- M(u, v)", "line 2", ["`A` has 2 arguments here, but 1 by line 1"]),
    ("A(u) <- Login.LoggedOn(u, v, w)", "line 1", ["`Login.LoggedOn` has 3 arguments here, but 2 by its own service"]),
    ("import X.id; import Y.id; def A(u) u : id", "line 1", ["`id` is imported from `X` and `Y`"]),
]


def test_a_reference_may_leave_out_the_last_arguments() -> None:
    mixed = "Chair <- Login.LoggedOn('rmn', h)\nMember <- Login.LoggedOn(u) : u in staff"
    assert infer(parse_rolefile(mixed), lambda *_: None)["Member"] == ()
    assert infer(parse_rolefile("A <- X.B(u)\nC <- X.B(u, v)"), lambda *_: None)["C"] == ()


@pytest.mark.parametrize(("text", "place", "parts"), CLASHES, ids=[text for text, _, _ in CLASHES])
def test_types_that_do_not_unify_name_both_places(text: str, place: str, parts: list[str]) -> None:
    with pytest.raises(BadDefinition) as caught:
        infer(parse_rolefile(text), login)
    assert caught.value.place == place
    for part in parts:
        assert part in caught.value.message
    assert caught.value.remedy


def test_a_service_may_name_itself() -> None:
    rolefile = parse_rolefile("A(x) <- : x = 1\nB(y) <- Conf.A(y)")
    assert infer(rolefile, nobody, "Conf")["B"] == (INTEGER,)
    assert infer(rolefile, nobody)["B"] == (None,)


def test_describe() -> None:
    rolefile = parse_rolefile("def A(u, r) r : {rwx}\nB(3, v) <- A(v, _) : v in staff\nC({x}, r) <- : r = acl('', u)")
    assert describe(rolefile) == {
        "A": [{"name": "u", "type": "text"}, {"name": "r", "type": "{rwx}"}],
        "B": [{"name": "argument1", "type": "Integer"}, {"name": "v", "type": "text"}],
        "C": [{"name": "argument1", "type": "{x}"}, {"name": "r", "type": "a set"}],
    }


@examples(40, soak=100)
@given(rolefiles())
def test_any_rolefile_has_types_or_a_clash(rolefile: Rolefile) -> None:
    clashes = Inference(rolefile, nobody).clashes
    if clashes:
        with pytest.raises(BadDefinition, match=re.escape(clashes[0].message)):
            types_of(rolefile)
        return
    types = types_of(rolefile)
    for statement in rolefile.statements:
        assert len(types[statement.head.role]) == len(statement.head.args)
    assert set(describe(rolefile)) == set(types)


# -- raw values -----------------------------------------------------------------------------------------------

NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)

TAKEN: list[tuple[ArgumentType | None, object, Argument]] = [
    (RWX, "rw", frozenset("rw")),
    (RWX, "{rw}", frozenset("rw")),
    (RWX, ["r", "w"], frozenset("rw")),
    (RWX, {"rw": None}, frozenset("rw")),
    (RWX, {}, frozenset()),
    (RWX, "{}", frozenset()),
    (RWX, "", frozenset()),
    (RWX, frozenset("rw"), frozenset("rw")),
    (INTEGER, 3, 3),
    (TimestampType(), "2026-01-01T10:00:00+01:00", NINE),
    (TimestampType(), "timestamp '2026-01-01T09:00:00Z'", NINE),
    (ClockType("timeofday"), "09:00", 9 * 3600),
    (ClockType("timeofday"), 60, 60),
    (ClockType("weekday"), "mon", 1),
    (STRING, "3", "3"),
    (USERID, "dm", "dm"),
    (None, "dm", "dm"),
    (None, "{rw}", "{rw}"),
    (None, True, True),
    (None, 3, 3),
    (None, 1.5, 1.5),
    (None, NINE, NINE),
    (None, b"\x00", b"\x00"),
    (None, ["r", "w"], frozenset("rw")),
    (None, {"rw": None}, frozenset("rw")),
    (None, frozenset("rw"), frozenset("rw")),
]


@pytest.mark.parametrize(("type", "raw", "argument"), TAKEN, ids=str)
def test_a_raw_value_becomes_an_argument(type: ArgumentType | None, raw: object, argument: Argument) -> None:
    assert Constant(conform_argument(type, raw)) == Constant(argument)
    assert Constant(conform_argument(type, argument)) == Constant(argument)


@pytest.mark.parametrize(
    ("type", "raw"),
    [
        (RWX, "q"), (RWX, "rr"), (RWX, 3), (RWX, ["rw"]), (RWX, {"r": 1}), (RWX, {"r": None, "w": None}), (RWX, None),
        (INTEGER, "3"), (INTEGER, True), (INTEGER, 1.0), (INTEGER, 2**63), (INTEGER, None), (STRING, 3),
        (STRING, "\ud800"), (TimestampType(), "8am"), (TimestampType(), "2026-01-01T09:00:00"), (TimestampType(), True),
        (ClockType("timeofday"), "8am"), (ClockType("weekday"), "Someday"), (ClockType("weekday"), 1.5),
        (USERID, 3), (USERID, None), (None, None), (None, ["rw"]), (None, {"a": 1}),
        (None, float("nan")), (None, object()),
        (None, datetime(2026, 1, 1)),  # noqa: DTZ001 - that it has no zone is the point
    ],
    ids=str,
)  # fmt: skip
def test_a_raw_value_of_another_type_is_refused(type: ArgumentType | None, raw: object) -> None:
    with pytest.raises(TypeMismatch):
        conform_argument(type, raw)


def test_digits_are_an_integer_only_where_all_is_text() -> None:
    assert conform_argument(INTEGER, "-3", written=True) == -3
    assert conform_argument(None, "3", written=True) == "3"
    for raw in ("3.0", "x", "", "\u0663", "9" * 30):
        with pytest.raises(TypeMismatch):
            conform_argument(INTEGER, raw, written=True)


def test_an_object_type_has_its_own_parser() -> None:
    def lower(text: str) -> str:
        if not text.isalpha():
            raise ValueError("letters only")
        return text.lower()

    parsers = {"userid": lower, "broken": lambda _: 3}
    assert conform_argument(USERID, "DM", parsers=parsers) == "dm"
    assert conform_argument(ObjectType("userid"), "DM", parsers=parsers) == "dm"
    assert conform_argument(ObjectType("host"), "Ely", parsers=parsers) == "Ely"
    with pytest.raises(TypeMismatch, match="letters only"):
        conform_argument(USERID, "d m", parsers=parsers)
    with pytest.raises(TypeMismatch, match="not text"):
        conform_argument(ObjectType("broken"), "x", parsers=parsers)
