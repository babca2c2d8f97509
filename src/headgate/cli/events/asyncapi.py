"""`headgate asyncapi`: what a principal may send and receive, as an AsyncAPI document."""

from __future__ import annotations

import json as json_
from typing import Annotated

import typer
import yaml

from headgate.cli.shared.connection import PresentingConnection, connects
from headgate.gateway.http.asyncapi import document


@connects
def asyncapi(
    json: Annotated[bool, typer.Option("--json", help="Write JSON instead of YAML.")] = False,
    *,
    connection: PresentingConnection,
) -> None:
    """Write an AsyncAPI 3.0 document of the event types, with what you may publish and see of each.

    For example:

    `headgate asyncapi --as ann > shop.yaml`

    `headgate asyncapi --as till --json --domain shop`
    """
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
