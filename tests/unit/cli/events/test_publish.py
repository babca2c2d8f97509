"""`headgate publish`: one event, and files of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result
from pyarrow import parquet
from typer.testing import CliRunner

from headgate.cli.main import app
from strategies.standin import SALE, World, make_directory, stage


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_directory(tmp_path_factory.mktemp("domains") / "shop")


@pytest.fixture
def world(shop: Path) -> Iterator[World]:
    with stage(shop) as start:
        yield start().world


@pytest.fixture
def publish(world: World, shop: Path):
    def run(*args: str, input: bytes | None = None) -> Result:
        return CliRunner().invoke(app, ["publish", SALE, *args, "--as", "till", "--domain", str(shop)], input=input)

    return run


def test_one_event_with_values_of_the_declared_kinds(publish, world: World) -> None:
    result = publish("item=tea=green", "amount=4", "--id", "7", "--source", "/till")
    assert result.exit_code == 0, result.output
    assert result.output == "accepted 7\n"
    assert world.events[0]["data"] == {"item": "tea=green", "amount": 4.0}
    assert world.events[0]["source"] == "/till"
    assert publish("item=tea", "--id", "7", "--source", "/till").output == "duplicate 7\n"


def test_a_refused_event_leaves_with_1(publish) -> None:
    result = publish("item=forbidden")
    assert result.exit_code == 1
    assert "publish-denied" in result.output


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["colour=red"], "there is no attribute `colour`"),
        (["amount=much"], "`much` is not of kind float"),
        (["amount=nan"], "not a finite number"),
        (["item"], "NAME=VALUE"),
        (["item=a", "item=b"], "twice"),
        (["item=a", "--from", "x.csv"], "either"),
        (["--id-column", "x"], "--from"),
        (["--from", "none.csv"], "cannot be read"),
        (["--from", __file__], "is not a file of events"),
    ],
)
def test_bad_input(publish, world: World, values: list[str], said: str) -> None:
    result = publish(*values)
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())
    assert world.events == []


def test_csv_in_pieces_and_again(publish, world: World, tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    rows = [f'"tea, {n}",{n}.5' for n in range(60_000)]
    path.write_text("item,amount\n" + "\n".join(rows) + "\n")
    result = publish("--from", str(path))
    assert result.exit_code == 0, result.output
    assert "60,000 accepted" in result.output
    assert world.events[59_999]["data"] == {"item": "tea, 59999", "amount": 59999.5}
    again = publish("--from", str(path))
    assert "0 accepted" in again.output
    assert "60,000 had been stored before" in again.output


def test_csv_nulls_and_ids_of_a_column(publish, world: World, tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text('receipt,item,amount\nr1,,1\nr2,"",\n')
    assert publish("--from", str(path), "--id-column", "receipt").exit_code == 0
    assert [(e["id"], e["data"]) for e in world.events] == [
        ("r1", {"item": None, "amount": 1.0}),
        ("r2", {"item": "", "amount": None}),
    ]


def test_csv_that_does_not_fit(publish, world: World, tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("item,colour\ntea,green\n")
    assert "`colour` is no attribute" in publish("--from", str(path)).output
    path.write_text("item,amount\ntea,much\n")
    result = publish("--from", str(path))
    assert result.exit_code == 2
    assert "much" in result.output
    assert world.events == []


def test_parquet(publish, world: World, tmp_path: Path) -> None:
    path = tmp_path / "sales.parquet"
    parquet.write_table(pa.table({"item": ["tea"] * 15_000, "amount": [1.0] * 15_000}), path)
    assert "15,000 accepted" in publish("--from", str(path)).output
    (tmp_path / "bad.parquet").write_text("no")
    assert "not Parquet" in publish("--from", str(tmp_path / "bad.parquet")).output


def test_ndjson_with_refusals(publish, world: World, tmp_path: Path) -> None:
    path = tmp_path / "sales.ndjson"
    lines = [json.dumps({"item": "forbidden" if n % 40 == 3 else f"i{n}"}) for n in range(1200)]
    lines[10] = "{"
    lines.insert(11, "")
    lines[20] = "[1]"
    path.write_text("\n".join(lines))
    result = publish("--from", str(path))
    assert result.exit_code == 1
    assert "1,168 accepted" in result.output
    assert "32 refused: 30 publish-denied, 2 type-mismatch" in result.output
    assert result.output.count("no entry admits it") == 18
    assert "4 " in result.output
    again = publish("--from", str(path))
    assert "1,168 had been stored before" in again.output


def test_standard_input_is_new_every_time(publish, world: World) -> None:
    for _ in range(2):
        assert publish("--from", "-", input=b'{"item": "tea"}\n').exit_code == 0
    assert len(world.events) == 2
    publish("--from", "-", "--id-column", "n", input=b'{"item": "tea", "n": 5}\n{"item": "x"}\n')
    assert world.events[2]["id"] == "5"
    assert world.events[2]["data"] == {"item": "tea"}
