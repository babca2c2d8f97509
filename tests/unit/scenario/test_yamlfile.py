import math
from pathlib import Path

import pytest

from headgate.model.errors import BadScenario
from headgate.scenario.format.yamlfile import MAX_DEPTH, SourcePlace, load_yaml, parse_yaml


def plain(text: str) -> object:
    return parse_yaml(text, "f.yaml").plain()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("12", 12),
        ("-7", -7),
        ("0x1F", 31),
        ("0o17", 15),
        ("010", 10),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("1.", 1.0),
        (".inf", math.inf),
        ("~", None),
        ("null", None),
        ("", None),
        ("9223372036854775808", 2**63),
        # Text in YAML 1.2, whatever YAML 1.1 made of it.
        ("NO", "NO"),
        ("on", "on"),
        ("yes", "yes"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T09:00:00Z", "2026-01-01T09:00:00Z"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("!!float 12", 12.0),
        ("! 12", "12"),
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"\ud83d"', "\ud83d"),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    found = plain(f"a: {text}")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


def test_not_a_number_is_a_float() -> None:
    assert math.isnan(plain("a: .nan")["a"])


def test_every_value_knows_its_line_and_key() -> None:
    root = parse_yaml("a: 1\nb:\n  - x\n  - {c: 2,\n     d: [3]}\n", "f.yaml")
    second = root.mapping()["b"].sequence()[1]
    assert second.mapping()["d"].place == SourcePlace("f.yaml", 5, "b[1].d")
    assert str(second.mapping()["d"].sequence()[0].place) == "f.yaml:5: key `b[1].d[0]`"
    assert root.mapping()["b"].place.line == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml: the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("---\n", "the file is empty"),
        ("a: [1, 2", "f.yaml:1: it is not YAML"),
        ("a: 1\n\tb: 2", "f.yaml:2: it is not YAML"),
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: key `a`: the key `a` is given twice; it is on line 1 already"),
        ("x: {a: 1, a: 2}", "f.yaml:1: key `x.a`: the key `a` is given twice"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: the file holds more than one document"),
        ("a: !!python/object:os.system x", "f.yaml:1: key `a`: the tag"),
        ("a: !!binary aGk=", "f.yaml:1: key `a`: the tag"),
        ("a: !!map [1]", "the tag"),
        ("a: !!int x", "`x` does not fit its tag"),
        ("a: *b", "f.yaml:1: key `a`: the alias `*b` names nothing before it"),
        ("a: &b [*b]", "the alias `*b` names nothing before it"),
        ("? [1, 2]\n: 3\n", "a list or mapping cannot be a key"),
        ("a: b\x07c", "f.yaml:1: the character `\\x07` is not allowed in YAML"),
        ("a: " + "[" * (MAX_DEPTH + 1), "it nests deeper than MAX_DEPTH"),
        ("a: " + "9" * 5000, "is too long"),
    ],
)
def test_what_is_not_such_yaml_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(BadScenario) as error:
        parse_yaml(text, "f.yaml")
    assert message in str(error.value)


def test_aliases_are_followed() -> None:
    assert plain("a: &x {n: 1}\nb: *x\nc: [*x, *x]\n") == {"a": {"n": 1}, "b": {"n": 1}, "c": [{"n": 1}, {"n": 1}]}


def test_an_alias_has_the_place_where_it_is_used() -> None:
    root = parse_yaml("a: &x 1\nb: *x\n", "f.yaml")
    assert root.mapping()["b"].place == SourcePlace("f.yaml", 2, "b")


def test_aliases_never_grow_past_the_limit() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 10):
        bomb += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"
    with pytest.raises(BadScenario, match="MAX_NODES"):
        parse_yaml(bomb, "f.yaml")


def test_a_file_must_be_there_and_be_utf_8(tmp_path: Path) -> None:
    with pytest.raises(BadScenario, match="cannot read it"):
        load_yaml(tmp_path / "none.yaml")
    with pytest.raises(BadScenario, match="cannot read it"):
        load_yaml(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: caf\xe9\n")
    with pytest.raises(BadScenario, match=r"latin.yaml:2: byte `0xe9` is not UTF-8"):
        load_yaml(tmp_path / "latin.yaml")
    (tmp_path / "wide.yaml").write_bytes("a: 1".encode("utf-16"))
    with pytest.raises(BadScenario, match="is not UTF-8"):
        load_yaml(tmp_path / "wide.yaml")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load_yaml(tmp_path / "f.yaml").plain() == {"a": 1}


def test_json_is_yaml() -> None:
    assert plain('{"a": [1, 2.5, "x\\/y", null, true], "b":{"c":1e2}}') == {
        "a": [1, 2.5, "x/y", None, True],
        "b": {"c": 100.0},
    }
