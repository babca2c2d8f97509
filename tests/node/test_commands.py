"""The commands and the examples, as processes against a running node."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from harness.node import Node, lines, run
from node.world import CARD, WAIT, curl, got, settled

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"


def publish(node: Node, *arguments: str | Path, status: int = 0) -> str:
    """What `headgate publish` says."""
    done = run("publish", "shop.Sale", *arguments, "--as", "till", "--domain", node.directory, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout


def test_publish_and_subscribe(node: Node, tmp_path: Path) -> None:
    """One event on the command line, and files of every format."""
    tag = str(uuid.uuid4())
    rows = [{"item": f"{tag} {n}", "amount": float(n), "card": CARD} for n in range(30)]
    ndjson, csv, table = tmp_path / "sales.ndjson", tmp_path / "sales.csv", tmp_path / "sales.parquet"
    ndjson.write_text("".join(f"{json.dumps(row)}\n" for row in rows[:10]) + '{"item": 7}\n')
    texts = [f"{tag}-{row['amount']},{row['item']},{row['amount']}\n" for row in rows[10:20]]
    csv.write_text("receipt,item,amount\n" + "".join(texts))
    parquet.write_table(pa.Table.from_pylist([{**row, "amount": row["amount"] + 990} for row in rows[5:15]]), table)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(publish, node, f"item={tag} tea", "amount=4.5", f"card={CARD}", "--id", tag)
        lines_ = pool.submit(publish, node, "--from", ndjson, status=1)
        columns = pool.submit(publish, node, "--from", csv, "--id-column", "receipt")
        arrow = pool.submit(publish, node, "--from", table)
        assert one.result() == f"accepted {tag}\n"
        assert "10 accepted" in lines_.result()
        assert "1 refused: 1 type-mismatch" in lines_.result()
        assert "10 accepted" in columns.result()
        assert "10 accepted" in arrow.result()
    again = publish(node, "--from", csv, "--id-column", "receipt")
    assert "0 accepted" in again
    assert "10 had been stored before" in again

    # From the start, a few at a time: it goes on where it was. Sales of 1,000 and more are not for her.
    visible = 1 + 10 + 10 + 5
    wish = ("shop.Sale", "--where", f"item starts with '{tag}'", "--name", f"s-{tag}", "--from", "start")
    who = ("--as", "ann", "--domain", node.directory, "--json")
    first = run("subscribe", *wish, *who, "--count", "12", timeout=WAIT)
    second = run("subscribe", *wish, *who, "--count", str(visible - 12), timeout=WAIT)
    came = [got(one) for one in lines(first.stdout) + lines(second.stdout)]
    assert settled(node).check("ann", f"s-{tag}", came) == visible
    assert {one.view["card"] for one in came} == {None}


def test_token_and_curl(node: Node) -> None:
    """A token for somebody who has no more than a key, a certificate and an address."""
    options = ("--key", node.files.keys / "ann.pem", "--certificate", node.files.tls_certificate)
    token = run("token", "--node", node.urls[1], *options, cwd="/").stdout.strip()
    for url in node.urls:
        answer = curl(node, "-H", f"Authorization: Bearer {token}", f"{url}/v1/sessions/current")
        assert json.loads(answer.stdout)["principal"] == "ann"


def test_asyncapi(node: Node) -> None:
    document = yaml.safe_load(run("asyncapi", "--as", "ann", "--domain", node.directory).stdout)
    assert document["asyncapi"] == "3.0.0"
    assert set(document["channels"]) >= {"shop.Sale", "press.Bulletin", "transit.Arrival"}
    assert document["operations"]["shop.Sale.receive"]["action"] == "receive"
    assert document["components"]["schemas"]["shop.Sale.view"]["properties"]["card"]["type"] == "null"
    assert not [name for name in document["operations"] if name.startswith("press.")], "she may see nothing of it"


def test_policy_on_a_running_node(node: Node) -> None:
    """A plan shows who gains what; applied, the node follows at once."""
    (file,) = node.files.policy.iterdir()
    before = file.read_text()
    common = (node.files.policy, "--domain", node.directory)
    node.apply()  # what other tests changed is as the files say again
    file.write_text(f"{before}  - {{id: ann-closures, who: ann, may: subscribe, type: transit.Closure}}\n")
    try:
        planned = run("policy", "plan", *common, "--check", "--json", check=False)
        assert planned.returncode == 1, planned.stderr
        plan = json.loads(planned.stdout)
        assert [change["name"] for change in plan["changes"]] == ["ann-closures"]
        assert [effect["who"] for effect in plan["effects"]] == [["ann"]]
        with node.client("ann", [1]) as ann, node.client("depot", [0]) as depot:
            with ann.subscribe("closed", "transit.Closure") as closed:
                depot.publish("transit.Closure", {"stop": "before"})
                said = run("policy", "apply", *common, "--yes", "--note", "she asked").stdout
                assert "applied as version" in said
                assert "stream `gateway-1`" in said
                assert "stream `gateway-2`" in said
                depot.publish("transit.Closure", {"stop": "after"})
                delivery = closed.next(timeout=WAIT)
                assert delivery is not None
                assert delivery.data["stop"] == "after"
            ann.unsubscribe("closed")
    finally:
        file.write_text(before)
        node.apply()


def test_doctor(node: Node) -> None:
    done = run("doctor", node.directory, "--json", check=False)
    checks = {one["name"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 0, checks
    for name in ("ledger", "log and deliveries", "pipeline", "node", *node.urls):
        assert checks[name]["finding"] == "ok", checks[name]


def example(name: str, *arguments: str | Path) -> list[str]:
    """What an example prints."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_examples(node: Node) -> None:
    ran = {"publish.py", "subscribe.py", "async_subscribe.py", "bulk.py", "lookup.py"}
    elsewhere = {"chain.py"}  # with certificates to show
    assert {path.name for path in EXAMPLES.glob("*.py")} == ran | elsewhere
    assert example("publish.py", node.directory)[0].startswith("accepted ")
    assert example("bulk.py", node.directory) == ["1000 rows", "1000 events"]
    shown = example("subscribe.py", node.directory, "3")
    assert [line.split()[0] for line in shown] == ["till"] * 3
    assert len(example("async_subscribe.py", node.directory, "2")) == 2
    with node.client("till") as till:
        for price in (1.0, 2.0):
            till.publish("shop.Price", {"item": "tea", "price": price})
    assert "now {'item': 'tea', 'price': 2.0}" in example("lookup.py", node.directory, "shop.Price")


def test_verify(node: Node) -> None:
    """Everything that was delivered until now, recomputed beside the running node."""
    settled(node)
    report = json.loads(run("verify", "--domain", node.directory, "--json", timeout=2 * WAIT).stdout)
    assert report["differences"] == []
    assert report["undecided"] == {}
    assert report["events"] > 0
    assert report["deliveries"] > 0
