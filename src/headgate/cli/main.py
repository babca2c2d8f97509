"""The `headgate` command."""

from __future__ import annotations

from collections.abc import Callable

import typer

from headgate.cli import (
    asyncapi,
    cert,
    demo,
    doctor,
    explain,
    identity,
    init,
    keys,
    policy,
    publish,
    restrictions,
    subscribe,
    test,
    token,
    typedef,
    up,
    verify,
    versions,
    wider,
)
from headgate.cli.common import shows_errors

app = typer.Typer(
    name="headgate",
    help="Share event streams across organisations; each receiver gets exactly what the owner allows.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

COMMANDS: dict[str, Callable[..., None]] = {
    "init": init.init,
    "up": up.up,
    "doctor": doctor.doctor,
    "demo": demo.demo,
    "test": test.test,
    "explain": explain.explain,
    "restrictions": restrictions.restrictions,
    "versions": versions.versions,
    "verify": verify.verify,
    "publish": publish.publish,
    "subscribe": subscribe.subscribe,
    "token": token.token,
    "asyncapi": asyncapi.asyncapi,
    "wider": wider.command,
}
for name, command in COMMANDS.items():
    app.command(name)(shows_errors(command))
app.add_typer(policy.app, name="policy")
app.add_typer(keys.app, name="keys")
app.add_typer(cert.app, name="cert")
app.add_typer(identity.app, name="identity")
app.add_typer(typedef.app, name="type")


if __name__ == "__main__":
    app()
