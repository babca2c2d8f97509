"""The `headgate` command: where each of its commands is, and what the list of commands says of it.

Guarantees: listing the commands, or naming one that does not exist, imports none of them; a command that is run, or
whose help is wanted, behaves as if it had been imported from the beginning.
Leaves out: whether the lines of the list are those of the commands, which a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import MarkupMode, TyperCommand, TyperGroup
from typer.main import get_group

from headgate.cli.shared.common import fail, needs_extras, shows_errors
from headgate.model.errors import BadEnvironment


@dataclass(frozen=True, slots=True)
class Later:
    """Where a command is, and what the list of commands says of it."""

    place: str
    """`module:name`, in this package."""
    line: str

    def load(self) -> Any:
        """The function of the command, or the `Typer` of a group."""
        module, _, name = self.place.partition(":")
        try:
            with needs_extras():
                return getattr(import_module(f"headgate.cli.{module}"), name)
        except BadEnvironment as error:
            fail(error)


COMMANDS = {
    "init": Later(
        "node.init:init",
        "Make a domain: keys, a TLS certificate, settings with their defaults, and a small policy to begin with.",
    ),
    "up": Later(
        "node.init:up", "Start a node: the pipeline on Spark and one or more gateways, each a process of its own."
    ),
    "pipeline": Later(
        "node.init:pipeline", "Run the pipeline of a domain alone: it decides on Spark what gateways have stored."
    ),
    "doctor": Later(
        "node.doctor:doctor",
        "Check the machine and a domain: Java, memory, disk, settings, keys, certificate, files, ports and the node.",
    ),
    "health": Later(
        "node.health:health",
        "Ask the gateways of a running node how they are; for health checks of containers and services.",
    ),
    "demo": Later(
        "stories.demo:demo", "Watch a policy at work: publish, decide on Spark, change the policy, explain, verify."
    ),
    "test": Later(
        "policy.test:test", "Test policies: run scenario files and compare what comes of them with what they expect."
    ),
    "explain": Later(
        "policy.explain:explain",
        "Explain what a principal sees of an event: by which rights, why the rest is hidden, and what was missing.",
    ),
    "restrictions": Later(
        "policy.explain:restrictions",
        "Show what a subscription comes to under its principal's rights, beside what was asked.",
    ),
    "migrate": Later(
        "node.migrate:migrate",
        "Move a domain's ledger and shared state to a database, or back to files; its node must not be up.",
    ),
    "versions": Later(
        "policy.explain:versions",
        "Show every control version: its author, its time, what it changed, and where it starts in each stream.",
    ),
    "verify": Later(
        "policy.verify:verify",
        "Recompute all deliveries from the log and the ledger on Spark, and report every difference.",
    ),
    "publish": Later("events.publish:publish", "Publish an event, or a file of events."),
    "reserve": Later("events.reserve:reserve", "Have events kept for a subscription or detection made later."),
    "heartbeat": Later("events.heartbeat:heartbeat", "Promise that none of your later events occurred before a time."),
    "subscribe": Later("events.subscribe:subscribe", "Subscribe to an event type and print what comes, until Ctrl-C."),
    "echo": Later(
        "events.subscribe:echo",
        "Echo another domain's events at home, so that our own clients see them by our own policy.",
    ),
    "token": Later(
        "events.asyncapi:token",
        "Prove who you are and print a session token, good for a quarter of an hour at every gateway of the domain.",
    ),
    "asyncapi": Later(
        "events.asyncapi:asyncapi",
        "Write an AsyncAPI 3.0 document of the event types, with what you may publish and see of each.",
    ),
    "wider": Later(
        "policy.wider:command",
        "Is the first rule wider than the second: true for every subject for whom the second is true?",
    ),
}
GROUPS = {
    "policy": Later("policy.policy:app", "Keep the policy in files: show what they would change, and make it so."),
    "keys": Later("statements.keys:app", "Make and keep the keys that principals are named by."),
    "cert": Later("statements.cert:app", "Issue certificates, look at them, and find out what they give."),
    "identity": Later(
        "statements.identity:app", "Attest who is who: attributes and policy rules of members, guests and servers."
    ),
    "role": Later(
        "roles.role:app",
        "Enter, leave, elect to, revoke and look at roles; check rolefiles; draw the credential graph.",
    ),
    "erdl": Later("policy.role_check:erdl", "Check event policy, and see how it is worked through."),
    "peer": Later(
        "node.peer:app", "Let roles of other domains count here, and let other domains follow roles of ours."
    ),
    "detect": Later("events.detect:app", "Detect composite events, check them, and see how they are evaluated."),
    "acl": Later("policy.acl:app", "Turn access control lists into rules and back, and see what a list gives."),
    "type": Later(
        "statements.typedef:app", "Sign event types as their owner, verify signed ones, and declassify them."
    ),
}
"""Commands that have commands of their own."""


class Commands(TyperGroup):
    """All of them, each imported when it is asked for."""

    later: ClassVar[Mapping[str, Later]] = COMMANDS | GROUPS

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, one in self.later.items():
            self.add_command(TyperCommand(name, help=one.line, rich_markup_mode=self.rich_markup_mode))

    def resolve_command(
        self, ctx: Any, args: list[str]
    ) -> tuple[str | None, TyperCommand | TyperGroup | None, list[str]]:
        """The command that the arguments begin with, imported now, and the arguments that are its own."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else built(name, self.later[name], self.rich_markup_mode), rest


def built(name: str, command: Later, markup: MarkupMode) -> TyperCommand | TyperGroup:
    """The command itself, which shows Headgate's errors; a group's own do that already."""
    holder = typer.Typer(rich_markup_mode=markup)
    loaded = command.load()
    if isinstance(loaded, typer.Typer):
        holder.add_typer(loaded, name=name, help=command.line)
    else:
        holder.command(name)(shows_errors(loaded))
    made = get_group(holder).commands[name]
    assert isinstance(made, TyperCommand | TyperGroup), "typer makes no others"
    return made


app = typer.Typer(
    name="headgate",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


@app.callback()
def headgate() -> None:
    """Share event streams across organisations; each receiver gets exactly what the owner allows."""


if __name__ == "__main__":
    app()
