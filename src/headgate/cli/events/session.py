"""`headgate token` and `headgate asyncapi`: what other programs need to talk to a node."""

from __future__ import annotations

import json as json_
from typing import Annotated

from headgate.cli.shared.connection import PresentingConnection, connects
from headgate.cli.shared.options import option


@connects
def asyncapi(
    json: Annotated[bool, option("--json", "Write JSON instead of YAML.")] = False,
    *,
    connection: PresentingConnection,
) -> None:
    """Write an AsyncAPI 3.0 document of the event types, with what you may publish and see of each.

    For example:

    `headgate asyncapi --as ann > shop.yaml`

    `headgate asyncapi --as till --json --domain shop`
    """
    import yaml

    from headgate.cli.events.asyncapi import document

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


@connects
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
