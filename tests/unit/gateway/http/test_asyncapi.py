"""The AsyncAPI document: its structure, and what it tells whom."""

from __future__ import annotations

import json
import re
from typing import Any

from headgate.cli.events.asyncapi import document
from headgate.protocol import messages as wire

KINDS = {"a": "string", "b": "int", "c": "float", "d": "bool", "e": "timestamp", "f": "bytes"}
TYPES = [
    wire.TypeAnswer("shop.Sale", "owner", KINDS, list(KINDS), None, ["a"]),
    wire.TypeAnswer("shop.Größe", "owner", {**KINDS, "g": "int"}, ["g"], "shop.Sale"),
    wire.TypeAnswer("shop.Secret", "owner", {"x": "int"}, ["x"]),
]


def reach(name: str, **facts: Any) -> dict[str, Any]:
    one = {"name": name, "told": True, "reason": None, "attributes": ["a", "b"], "hidden": [], "condition": None}
    return {"types": [{**one, **facts}]}


RECEIVES = {
    "shop.Sale": reach("shop.Sale", condition="b < 1000"),
    "shop.Größe": reach("shop.Größe"),
    "shop.Secret": reach("shop.Secret", reason="no-grant", attributes=[]),
}
GRANT = {"rule": "r", "effect": "grant", "told": True, "condition": "b > 1", "keeps": ["a"], "forces": {"b": 1}}
KEPT_BACK = {**GRANT, "told": False, "condition": None, "forces": {"b": None}, "nulls": ["c"]}
SENDS = {
    "shop.Sale": {"reason": None, "entries": [{**GRANT, "nulls": []}, KEPT_BACK, {"effect": "forbid", "told": True}]},
    "shop.Größe": {"reason": "no-grant", "entries": []},
    "shop.Secret": {"reason": "forbidden", "entries": []},
}
MADE = document("shop", ["https://gate.example.org:8443", "http://127.0.0.1:80"], "ann", TYPES, RECEIVES, SENDS)

KEY = re.compile(r"[\w.-]+\Z", re.ASCII)


def follow(ref: str) -> Any:
    found: Any = MADE
    assert ref.startswith("#/")
    for part in ref[2:].split("/"):
        found = found[part]
    return found


def refs(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [part["$ref"]] if "$ref" in part else []
        return own + [ref for value in part.values() for ref in refs(value)]
    return [ref for value in part for ref in refs(value)] if isinstance(part, list) else []


def test_required_parts_are_there_and_every_reference_leads_somewhere() -> None:
    assert MADE["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= MADE["info"].keys()
    for server in MADE["servers"].values():
        assert {"host", "protocol"} <= server.keys()
        assert server["protocol"] in ("ws", "wss")
    for channel in MADE["channels"].values():
        assert isinstance(channel["address"], str)
    for operation in MADE["operations"].values():
        assert operation["action"] in ("send", "receive")
        messages = follow(operation["channel"]["$ref"])["messages"]
        for message in operation["messages"]:
            assert message["$ref"].rpartition("/")[2] in messages
    for section in ("messages", "schemas", "securitySchemes"):
        assert all(KEY.match(key) for key in MADE["components"][section])
    assert all(KEY.match(key) for part in ("servers", "channels", "operations") for key in MADE[part])
    found = refs(MADE)
    assert len(found) > 10
    for ref in found:
        follow(ref)
    json.dumps(MADE)


def test_operations_are_what_the_principal_may_do() -> None:
    assert set(MADE["operations"]) == {"shop.Sale.send", "shop.Sale.receive", "shop.Gr_u00f6_u00dfe.receive"}
    assert len(MADE["channels"]) == 3


def test_what_is_visible_is_marked_and_the_rest_is_null() -> None:
    assert MADE["operations"]["shop.Sale.receive"]["x-headgate-visible"] == ["a", "b"]
    shown = MADE["components"]["schemas"]["shop.Sale.view"]["properties"]
    assert shown["b"] == {"type": ["integer", "null"], "format": "int64", "x-headgate-visible": True}
    assert shown["c"] == {"type": "null", "x-headgate-visible": False}
    assert set(MADE["components"]["schemas"]["shop.Sale"]["properties"]) == set(KINDS)


def test_conditions_only_where_disclosed() -> None:
    assert MADE["operations"]["shop.Sale.receive"]["x-headgate-condition"] == "b < 1000"
    assert "x-headgate-condition" not in MADE["operations"]["shop.Gr_u00f6_u00dfe.receive"]
    assert MADE["operations"]["shop.Sale.send"]["x-headgate-grants"] == [
        {"keeps": ["a"], "nulls": [], "forces": {"b": 1}, "condition": "b > 1"},
        {"keeps": ["a"], "nulls": ["c"], "forces": ["b"]},
    ]
