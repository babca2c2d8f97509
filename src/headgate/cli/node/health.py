"""`headgate health`: do the gateways of this machine answer? For what looks after containers and services.

Guarantees: it asks over a connection that trusts exactly the domain's certificate, whatever name that is for, says one
line for each gateway, and ends soon however they are. Hardly anything is
loaded, since it is run every few seconds.
Leaves out: why, and what to do about it, which is `headgate doctor`'s part.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import typer

from headgate.cli.shared.common import HERE, printable
from headgate.cli.shared.options import argument
from headgate.node.config import Config, Files
from headgate.trust.tls import client_context

ANSWER_SECONDS: Final = 10.0
_MAX_ANSWER: Final = 65_536


@dataclass(frozen=True, slots=True)
class GatewayHealth:
    """How a gateway is, as far as its answer or silence says."""

    state: Literal["accepts", "failing", "away", "hangs"]
    words: str


def ask(url: str, certificate: Path, seconds: float) -> GatewayHealth:
    """What a gateway says of itself."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    try:
        connection = HTTPConnection(host, port, timeout=seconds)
        if parts.scheme == "https":
            context = client_context(certificate.read_bytes())
            context.check_hostname = (
                False  # the certificate itself is trusted, and `localhost` may be none of its names
            )
            connection = HTTPSConnection(host, port, timeout=seconds, context=context)
        try:
            connection.request("GET", "/health")
            reply = connection.getresponse()
            answer = json.loads(reply.read(_MAX_ANSWER))
            words = "; ".join([str(answer["status"]), *map(str, answer["reasons"])])
        finally:
            connection.close()
    except TimeoutError:
        return GatewayHealth("hangs", f"no answer within {seconds:.0f} s")
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        return GatewayHealth("away", f"does not answer ({type(error).__name__})")
    return GatewayHealth("accepts" if reply.status == 200 else "failing", words)


def health(
    directory: Annotated[Path | None, argument("DIR", "The domain.", unset="the current directory")] = None,
    hung: Annotated[
        bool, typer.Option("--hung", help="Fail only if a gateway hangs; one that ended is started again anyway.")
    ] = False,
) -> None:
    """Ask the gateways of a running node how they are; for health checks of containers and services.

    Leaves with status 0 if at least one of them accepts events, be it `degraded`, and 1 if none does. With `--hung` it
    is 1 if one takes connections and does not answer, which only a restart ends.

    For example:

    `headgate health shop`

    `headgate health /srv/headgate/domain --hung`
    """
    files = Files(directory or HERE)
    urls = Config.load(files.directory, os.environ).gateway.urls
    with ThreadPoolExecutor(len(urls)) as asking:
        found = list(asking.map(lambda url: ask(url, files.tls_certificate, ANSWER_SECONDS), urls))
    for url, one in zip(urls, found, strict=True):
        print(url, printable(one.words))
    states = {one.state for one in found}
    if "hangs" in states if hung else "accepts" not in states:
        raise typer.Exit(1)
