"""`headgate asyncapi` and `headgate token`: what other programs need to talk to a node.

The first is the event types of a domain as an AsyncAPI 3.0 document, for one principal.

Guarantees: a pure function of what a gateway tells the principal: the definitions, which all who may connect can read,
and the answers to its own restriction queries. An attribute is marked visible if it may be seen at most; a condition is
there only where it is disclosed. What the principal can neither send nor receive has a channel and no operation.
"""

from __future__ import annotations

import json as json_
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from headgate.cli.shared.connection import PresentingConnection
from headgate.cli.shared.options import option
from headgate.protocol import messages as wire

VERSION: Final = "3.0.0"
VISIBLE: Final = "x-headgate-visible"
CONDITION: Final = "x-headgate-condition"

_KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "bool": {"type": ["boolean", "null"]},
    "int": {"type": ["integer", "null"], "format": "int64"},
    "float": {"type": ["number", "null"], "format": "double"},
    "string": {"type": ["string", "null"]},
    "timestamp": {"type": ["string", "null"], "format": "date-time"},
    "bytes": {"type": ["string", "null"], "pattern": "^([0-9a-f]{2})*$"},
}

Facts = Mapping[str, Any]
"""The answer to a restriction query."""


def document(
    domain: str,
    urls: Sequence[str],
    principal: str,
    types: Sequence[wire.TypeAnswer],
    receives: Mapping[str, Facts],
    sends: Mapping[str, Facts],
) -> dict[str, Any]:
    """The document of what a principal may send and receive, by the restrictions of its rights on each type."""
    made: dict[str, Any] = {
        "asyncapi": VERSION,
        "info": {
            "title": f"Events of {domain}",
            "version": "1",
            "description": f"What `{principal}` may publish and see. Attributes that it may not see come as null.",
        },
        "defaultContentType": wire.EVENT_JSON,
        "servers": {f"gateway-{n}": _server(url) for n, url in enumerate(urls, 1)},
        "channels": {},
        "operations": {},
        "components": {
            "messages": {},
            "schemas": {},
            "securitySchemes": {"session": {"type": "http", "scheme": "bearer", "bearerFormat": "hg-session+jwt"}},
        },
    }
    for one in types:
        _add(made, one, _reach(one.name, receives), _may(one.name, sends))
    return made


def _server(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "host": parts.netloc,
        "protocol": "wss" if parts.scheme == "https" else "ws",
        "pathname": "/v1/socket",
        "security": [{"$ref": "#/components/securitySchemes/session"}],
    }


def _reach(name: str, receives: Mapping[str, Facts]) -> Facts | None:
    """What comes of a type, if anything can."""
    facts = receives.get(name)
    if facts is None:
        return None
    found: Sequence[Facts] = [one for one in facts.get("types", ()) if one.get("name") == name]
    return found[0] if found and found[0].get("told") and found[0].get("reason") is None else None


def _may(name: str, sends: Mapping[str, Facts]) -> Facts | None:
    """What becomes of a type that is published, if some event of it may be accepted."""
    facts = sends.get(name)
    return facts if facts is not None and facts.get("reason") is None else None


def _add(made: dict[str, Any], event_type: wire.TypeAnswer, reach: Facts | None, may: Facts | None) -> None:
    key = _key(event_type.name)
    parts = made["components"]
    channel: dict[str, Any] = {
        "address": event_type.name,
        "title": event_type.name,
        "messages": {},
        "x-headgate-owner": event_type.owner,
    }
    if event_type.extends is not None:
        channel["x-headgate-extends"] = event_type.extends
    if event_type.key:
        channel["x-headgate-key"] = list(event_type.key)
    made["channels"][key] = channel
    parts["schemas"][key] = {
        "title": event_type.name,
        "type": "object",
        "properties": {name: dict(_KINDS[kind]) for name, kind in event_type.attributes.items()},
        "additionalProperties": False,
    }
    if may is not None:
        entries = [entry for entry in may.get("entries", ()) if entry.get("effect") == "grant"]
        _operation(
            made, key, event_type.name, "send", f"#/components/schemas/{key}", {"x-headgate-grants": _grants(entries)}
        )
    if reach is not None:
        seen = set(reach.get("attributes", ()))
        parts["schemas"][f"{key}.view"] = _view(event_type, seen)
        condition = reach.get("condition")
        marks = {VISIBLE: [name for name in event_type.attributes if name in seen]}
        if condition is not None:
            marks[CONDITION] = condition
        _operation(made, key, event_type.name, "receive", f"#/components/schemas/{key}.view", marks)


def _view(event_type: wire.TypeAnswer, seen: set[str]) -> dict[str, Any]:
    """What is delivered of a type: hidden attributes are null."""
    shown = {
        name: {**(_KINDS[kind] if name in seen else {"type": "null"}), VISIBLE: name in seen}
        for name, kind in event_type.attributes.items()
    }
    return {"title": f"{event_type.name} as it is seen", "type": "object", "properties": shown}


def _grants(entries: Sequence[Facts]) -> list[dict[str, Any]]:
    """What each grant makes of an event, the first that is true being used; conditions where they are disclosed."""
    grants = []
    for entry in (one for one in entries if not one.get("passed_over")):
        grant: dict[str, Any] = {"keeps": list(entry.get("keeps", ())), "nulls": list(entry.get("nulls", ()))}
        if entry.get("told"):
            grant |= {"forces": dict(entry.get("forces", {})), "condition": entry.get("condition")}
        else:
            grant["forces"] = sorted(entry.get("forces", {}))
        grants.append(grant)
    return grants


def _operation(made: dict[str, Any], key: str, type: str, action: str, data: str, marks: Mapping[str, Any]) -> None:
    message = f"{key}.{action}"
    made["components"]["messages"][message] = {
        "name": type,
        "contentType": wire.EVENT_JSON,
        "payload": _event(type, data, delivered=action == "receive"),
    }
    made["channels"][key]["messages"][action] = {"$ref": f"#/components/messages/{message}"}
    made["operations"][message] = {
        "action": action,
        "channel": {"$ref": f"#/channels/{key}"},
        "messages": [{"$ref": f"#/channels/{key}/messages/{action}"}],
        **marks,
    }


def _event(type: str, data: str, *, delivered: bool) -> dict[str, Any]:
    """A CloudEvent around the data."""
    properties: dict[str, Any] = {
        "specversion": {"const": "1.0"},
        "id": _text(),
        "source": _text(),
        "type": {"const": type} if not delivered else _text(),  # a subtype may come too
        "data": {"$ref": data},
    }
    if delivered:
        times = {"type": "string", "format": "date-time"}
        properties |= {"time": times, "hgpublisher": _text(), "hgposition": _text()}
    required = ["specversion", "id", "source", "type", *(["hgposition"] if delivered else [])]
    return {"type": "object", "properties": properties, "required": required}


def _text() -> dict[str, Any]:
    return {"type": "string", "minLength": 1}


def _key(name: str) -> str:
    """A type's name with nothing in it that a key of the document cannot have."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else f"_u{ord(c):04x}" for c in name)


def asyncapi(
    json: Annotated[bool, option("--json", "Write JSON instead of YAML.")] = False, *, connection: PresentingConnection
) -> None:
    """Write an AsyncAPI 3.0 document of the event types, with what you may publish and see of each.

    For example:

    `headgate asyncapi --as ann > shop.yaml`

    `headgate asyncapi --as till --json --domain shop`
    """
    import yaml

    with connection.client() as client:
        types = client.types()
        made = document(
            client.about().domain,
            client.urls,
            client.principal,
            types,
            {one.name: client.restriction_subscribe(one.name) for one in types},
            {one.name: client.restriction_publish(one.name) for one in types},
        )
    if json:
        print(json_.dumps(made, indent=2, ensure_ascii=False))
    else:
        print(yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=120), end="")


def token(*, connection: PresentingConnection) -> None:
    """Prove who you are and print a session token, good for a quarter of an hour at every gateway of the domain.

    Whoever has it acts in your name. It goes to standard output and nowhere else.

    For example:

    `curl --cacert tls/tls.crt -H "Authorization: Bearer $(headgate token --as till)" https://localhost:8443/v1/types`

    `headgate token --node https://gate.example.org:8443 --key ann.pem --certificate gate.crt`
    """
    client = connection.client()
    try:
        print(client.token())
    finally:
        client.close(end_session=False)  # it has to outlive this command
