"""The OpenAPI document of a gateway, made from the operations that it serves.

Guarantees: every operation, with its parameters, bodies, answers and refusals, is described by the types that check it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from headgate import __version__
from headgate.gateway.http.operations import Operation
from headgate.protocol import messages as wire
from headgate.protocol.problems import TITLES

_REFERENCE: Final = "#/components/schemas/{name}"
_PARAMETERS: Final = re.compile(r"{(\w+)(?::\w+)?}")
_ALWAYS: Final = (400, 413, 429, 431, 500, 503)
"""What any request may be refused with."""


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole document."""
    every = list(operations)
    named: dict[Any, None] = {
        wire.Problem: None,
        wire.EventResult: None,
        wire.PublishAnswer: None,
        wire.BulkAnswer: None,
    }
    for operation in every:
        for kind in (operation.request, *operation.answers.values(), *operation.bodies.values()):
            if kind is not None and not isinstance(kind, Mapping):
                named[kind] = None
    schemas, components = msgspec.json.schema_components(list(named), ref_template=_REFERENCE)
    known = dict(zip(named, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in every:
        path = _PARAMETERS.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate",
            "version": __version__,
            "description": "Access-controlled publish/subscribe. `docs/protocol.md` says what it means.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "session": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A session token: answer a challenge, or `headgate token`.",
                }
            },
        },
    }


def _operation(operation: Operation, known: Mapping[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": _responses(operation, known),
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, "maxLength": 200}}
        for name in _PARAMETERS.findall(operation.path)
    ]
    parameters += [
        {
            "name": p.name,
            "in": p.place,
            "required": p.required,
            "description": p.description,
            "schema": dict(p.schema),
        }
        for p in operation.parameters
    ]
    if parameters:
        made["parameters"] = parameters
    bodies = dict(operation.bodies) if operation.request is None else {wire.JSON: operation.request}
    if bodies:
        content = {media: {"schema": _schema(kind, known)} for media, kind in bodies.items()}
        made["requestBody"] = {"required": True, "content": content}
    if operation.session:
        made["security"] = [{"session": []}]
    return made


def _responses(operation: Operation, known: Mapping[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for status, kind in operation.answers.items():
        made[str(status)] = {"description": operation.summary}
        if kind is not None:
            made[str(status)]["content"] = {operation.media: {"schema": _schema(kind, known)}}
            if operation.streams is not None:
                made[str(status)]["content"][operation.streams] = {"schema": {"type": "string"}}
    refusals = {*_ALWAYS, *operation.errors, *((401, 403) if operation.session else ())}
    for status in sorted(refusals):
        made.setdefault(
            str(status),
            {
                "description": TITLES[status],
                "content": {wire.PROBLEM: {"schema": _schema(wire.Problem, known)}},
            },
        )
    return made


def _schema(kind: Any, known: Mapping[Any, Any]) -> Any:
    return dict(kind) if isinstance(kind, Mapping) else known[kind]
