"""`headgate token`: a session token, for `curl` and other programs."""

from __future__ import annotations

from headgate.cli.shared.connection import PresentingConnection, connects


@connects
def token(
    *,
    connection: PresentingConnection,
) -> None:
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
