"""Arguments of roles survive JSON exactly, and nothing else is taken for one."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given, settings

from headgate.model.errors import TypeMismatch
from headgate.model.expressions import Argument, Constant
from headgate.model.limits import MAX_SET_LETTERS
from headgate.model.roles import dump_argument, letters_of, load_argument, sort_letters
from strategies.rolefiles import arguments


@settings(max_examples=300, deadline=None)
@given(arguments())
def test_an_argument_survives(argument: Argument) -> None:
    back = load_argument(json.loads(json.dumps(dump_argument(argument))))
    assert Constant(back) == Constant(argument)
    if isinstance(argument, float):
        assert isinstance(back, float)
        assert struct.pack("<d", back) == struct.pack("<d", argument)


def test_a_set_is_written_in_the_order_of_its_type() -> None:
    assert dump_argument(frozenset("xrw"), "rwx") == {"set": "rwx"}
    assert dump_argument(frozenset("xrw")) == {"set": "rwx"}
    assert dump_argument(frozenset("aef"), "fea") == {"set": "fea"}
    assert dump_argument(frozenset("aefz"), "fea") == {"set": "feaz"}
    assert dump_argument(frozenset()) == {"set": ""}
    assert load_argument({"set": ""}) == frozenset()
    assert sort_letters("cab", "bc") == ["b", "c", "a"]


def test_null_stays_null() -> None:
    assert dump_argument(None) is None
    assert load_argument(None) is None


@pytest.mark.parametrize(
    "data",
    [
        1.5, [], ["r"], {}, {"set": "rr"}, {"set": ["r"]}, {"set": "r1"}, {"set": "r", "float": "0x1p0"}, {"other": 1},
        {"float": "x"}, {"float": "inf"}, {"float": "nan"}, {"float": 1.5}, {"float": "0x1p99999"},
        {"timestamp": "now"}, {"timestamp": True}, {"timestamp": 10**30}, {"bytes": "0"}, {"bytes": "xyz"},
        2**63, "\ud800",
        {"set": "".join(map(chr, range(0x4E00, 0x4E00 + MAX_SET_LETTERS + 1)))},
    ],
    ids=ascii,
)  # fmt: skip
def test_what_is_no_argument_is_refused(data: object) -> None:
    with pytest.raises(TypeMismatch):
        load_argument(data)


@pytest.mark.parametrize("raw", [["rw"], [1], ["r", "r"], ["-"], ["_"], ["1"], [None]], ids=str)
def test_what_is_no_set_of_letters_is_refused(raw: list[object]) -> None:
    with pytest.raises(TypeMismatch):
        letters_of(raw)


def test_what_is_no_value_is_not_dumped() -> None:
    with pytest.raises(TypeMismatch):
        dump_argument(["r"])  # type: ignore[arg-type]
    with pytest.raises(TypeMismatch):
        dump_argument(frozenset({"rw"}))
