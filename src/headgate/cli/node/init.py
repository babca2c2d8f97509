"""`headgate init`, `up` and `pipeline`: a new domain, with its keys, certificate, settings and an example policy; a
whole node of it on this machine, until Ctrl-C; and its pipeline alone.

Guarantees: the directory is made whole or not at all, and nothing that is there already is touched. Every private key
is readable by its owner alone and kept out of version control. What cannot work is said before anything is started.
What is shown reads well in a file too. A node that was up once is up until it is stopped, whatever becomes of its
processes (`supervisor`). Ctrl-C and SIGTERM stop everything in order, the second time at once, and nothing of the node
is left running.
Leaves out: applying the policy, which is `headgate policy apply`'s part.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from headgate.cli.shared.common import HERE, err, on_signals, printable
from headgate.cli.shared.options import argument, option
from headgate.cli.shared.rendering import count_of, say
from headgate.model.changes import Batch, SetKey
from headgate.model.errors import BadConfig, BadDefinition
from headgate.model.limits import MAX_CERTIFICATE_DAYS, MAX_KEY_FILE_BYTES
from headgate.model.state import ADMINISTRATOR
from headgate.node.config import Files, example
from headgate.node.domain import Domain, utc_now
from headgate.node.processes import settings_from
from headgate.node.statement_register import vouch
from headgate.node.supervisor import LOG, Notice, Supervisor, What, logging_to
from headgate.node.topology import Node, check_ports, prepare
from headgate.storage.postgres import checked_address
from headgate.trust import positions, tokens
from headgate.trust.keys import PrivateKey, read_secret, sync_directory, write_secret
from headgate.trust.tls import certificate_of, expires, fingerprint, make_certificate

PUBLISHER: Final = "till"
SUBSCRIBER: Final = "ann"

POLICY: Final = """\
headgate: 1
title: the policy of {name}

# What is published.
types:
  shop.Sale:
    owner: shop
    attributes: {{item: string, amount: float, card: string}}

# Who takes part. Whoever holds a principal's key acts in its name; the shop, which owns the type, has none yet.
principals:
  administrator: {{key: {administrator}}}
  shop: {{}}
  till: {{key: {till}}}
  ann: {{key: {ann}}}

groups:
  analysts: [ann]

# Only those may connect whom a rule lets in.
connect: closed

policy:
  - {{id: till-connects, who: till, may: connect}}
  - {{id: analysts-connect, who: analysts, may: connect}}

  # The till publishes every sale.
  - {{id: till-sells, who: till, may: publish, type: shop.Sale}}

  # Analysts see what was sold and for how much, but never the card, and of large sales nothing at all.
  - {{id: analysts-read, who: analysts, may: subscribe, type: shop.Sale,
     where: "amount < 1000", attributes: [item, amount]}}
"""

GITIGNORE: Final = """\
# Secrets, and what the domain holds. The certificate, the settings and the policy may be shared.
/keys/
/tls/*.key
/data/
/logs/
"""


@dataclass(frozen=True, slots=True)
class Made:
    """A new domain, as it is shown."""

    files: Files
    name: str
    broker: str
    administrator: str
    certificate: str
    expires: datetime
    database: str | None


def init(
    directory: Annotated[Path, argument("DIR", "A directory that is absent or empty.")],
    name: Annotated[str | None, option("--name", "The domain's name.", unset="the directory's")] = None,
    host: Annotated[
        list[str] | None, option("--host HOST", "A name or address that clients will use; may be repeated.")
    ] = None,
    database: Annotated[
        str | None,
        option("--database URL", "A PostgreSQL database for ledger and shared state.", unset="files in DIR"),
    ] = None,
    keys: Annotated[
        Path | None,
        option("--keys DIR", "Keys to use, such as `broker.pem` of a domain made elsewhere.", unset="new ones"),
    ] = None,
) -> None:
    """Make a domain: keys, a TLS certificate, settings with their defaults, and a small policy to begin with.

    The certificate is for this machine (`localhost` and its own name) and for every `--host`. It makes two example
    principals, the publisher `till` and the subscriber `ann`, so that the commands it shows at the end work at once.

    With `--keys` the domain has the keys of a directory, whichever of `broker.pem`, `administrator.pem` and
    `positions.key` are there; so where a domain is made by a program, clients and policy can know its keys before.

    For example:

    `headgate init shop`

    `headgate init /srv/headgate --name shop --host gate.example.org --host 10.0.0.7`

    `headgate init shop --database postgresql://headgate@db.example/shop`
    """
    address = None if database is None else checked_address(database)
    _show(directory, make_domain(directory, name, host or (), utc_now(), address, keys=keys))


def make_domain(
    directory: Path,
    name: str | None,
    hosts: Sequence[str],
    now: datetime,
    database: str | None = None,
    *,
    keys: Path | None = None,
) -> Made:
    """Make a whole domain beside its place, or inside if there is a directory, and move it when it is finished.

    A directory that is there stays the same one: somebody may be in it, or it may be where a disk is mounted.
    """
    try:
        target = directory.resolve()
        _check_free(target, directory)
        building = Path(
            tempfile.mkdtemp(prefix=f".{target.name[:40]}-", dir=target if target.is_dir() else target.parent)
        )
    except (OSError, RuntimeError) as error:  # the latter for links that lead in a circle
        raise BadDefinition(f"`{directory}` cannot be made ({error})", remedy="name one where you may write") from None
    try:
        files = Files(building)
        files.keys.mkdir(mode=0o700)
        if keys is not None:
            _take_keys(files, keys)
        made = _build(files, target.name if name is None else name, hosts, now, database)
        _move(building, target, directory)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return replace(made, files=Files(directory))


def _check_free(place: Path, given: Path) -> None:
    if not place.parent.is_dir():
        raise BadDefinition(f"there is no directory `{given.parent}`", remedy=f"`mkdir -p {given.parent}`")
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise BadDefinition(f"`{given}` is there already, and is not an empty directory", remedy="name a new one")


def _take_keys(files: Files, given: Path) -> None:
    """Copy the keys that are given, as they are."""
    known = {one.name: one for one in (files.broker_key, files.admin_key, files.position_key)}
    for key in sorted(given.iterdir()) if given.is_dir() else [given]:
        if key.name not in known:
            raise BadDefinition(
                f"`{key}` is no key of a domain", remedy=f"name a directory with some of {', '.join(known)} and no more"
            )
        write_secret(known[key.name], read_secret(key, MAX_KEY_FILE_BYTES))


def _key(path: Path) -> PrivateKey:
    """The key of a file, made unless it is there."""
    if not path.exists():
        PrivateKey.generate().save(path)
    return PrivateKey.load(path)


def _build(files: Files, name: str, hosts: Sequence[str], now: datetime, database: str | None) -> Made:
    for private in (files.tls, files.data):
        private.mkdir(mode=0o700)
    files.policy.mkdir()
    try:
        files.config.write_text(example({"domain.name": name, "storage.database": database or ""}))
    except BadConfig as error:
        raise BadConfig(error.message, remedy=f"`--name` with {error.remedy}") from None
    make_certificate(files.tls, hosts, now, MAX_CERTIFICATE_DAYS)
    of_principals = (files.keys / f"{name}.pem" for name in (PUBLISHER, SUBSCRIBER))
    broker, administrator, till, ann = map(_key, (files.broker_key, files.admin_key, *of_principals))
    if files.position_key.exists():
        positions.Positions.load(files.position_key)
    else:
        positions.make_key(files.position_key)
    tokens.make_token(files.metrics_token)
    vouch(files, now)
    dids = {"administrator": administrator.public.did, "till": till.public.did, "ann": ann.public.did}
    (files.policy / "shop.yaml").write_text(POLICY.format(name=name, **dids))
    (files.directory / ".gitignore").write_text(GITIGNORE)
    with Domain.create(
        files.data, database=database
    ) as domain:  # with its key, the administrator can connect before there is a policy
        domain.commit(Batch(ADMINISTRATOR, (SetKey(ADMINISTRATOR, administrator.public.did),), "headgate init"))
    certificate = fingerprint(certificate_of(files.tls_certificate))
    return Made(
        files, name, broker.public.did, administrator.public.did, certificate, expires(files.tls_certificate), database
    )


def _move(building: Path, target: Path, given: Path) -> None:
    """Put the finished directory in its place, on disk: in one step, or the settings, which make a domain, last."""
    try:
        if building.parent == target:
            _move_up(building, target)
        else:
            building.rename(target)
    except OSError as error:
        raise BadDefinition(
            f"`{given}` cannot be replaced ({error.strerror})", remedy=f"name a new one, such as `{given / 'domain'}`"
        ) from None
    for directory in (target, target.parent):
        sync_directory(directory)


def _move_up(building: Path, target: Path) -> None:
    """Move everything one directory up; if something else has come there meanwhile, nothing."""
    if any(one != building for one in target.iterdir()):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
    target.chmod(0o700)  # as what is made has
    config = Files(building).config.name
    for one in sorted(building.iterdir(), key=lambda one: one.name == config):
        one.rename(target / one.name)
    building.rmdir()


def _show(directory: Path, made: Made) -> None:
    files = made.files
    say("Made the domain ", (made.name, "bold"), f" in {directory}")
    say()
    for path, what in (
        (files.config, "settings, each with its default and what it is for"),
        (files.policy, f"an example policy: {PUBLISHER} publishes, {SUBSCRIBER} subscribes"),
        (files.keys, f"private keys: broker, administrator, positions, {PUBLISHER}, {SUBSCRIBER}"),
        (files.metrics_token, "what whoever reads /metrics has to show"),
        (files.statements, "the domain's word that the gateways are its own, which they show to clients"),
        (files.tls_certificate, f"the certificate that clients pin, good until {made.expires:%Y-%m-%d}"),
        (
            files.data,
            "log and deliveries, empty; the database has the ledger"
            if made.database
            else "ledger, log and deliveries, empty",
        ),
    ):
        say((f"  {path}", "bold"))
        say((f"      {what}", "dim"))
    say()
    say(f"  broker         {made.broker}")
    say(f"  administrator  {made.administrator}")
    say(f"  certificate    {made.certificate}")
    say()
    say("Next:")
    for command, what in (
        (f"headgate policy apply {_quoted(files.policy)}", "put the example policy in force"),
        (f"headgate up {_quoted(directory)}", "start the gateway and the pipeline"),
        (
            f"headgate versions --domain {_quoted(files.data)}",
            "every change of the policy, by whom, and where it starts",
        ),
    ):
        say((f"  {command}", "bold"))
        say((f"      {what}", "dim"))


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def up(
    directory: Annotated[Path | None, argument("DIR", "The domain.", unset="the current directory")] = None,
    port: Annotated[int | None, option("--port", "The port of the first gateway.", unset="the settings'")] = None,
    gateways: Annotated[int | None, option("--gateways", "How many gateways.", unset="the settings'")] = None,
    without_pipeline: Annotated[
        bool, option("--without-pipeline", "Run gateways alone; `headgate pipeline` decides.")
    ] = False,
    settings: Annotated[
        list[str] | None, option("--set SECTION.KEY=VALUE", "Any other setting; may be repeated.")
    ] = None,
) -> None:
    """Start a node: the pipeline on Spark and one or more gateways, each a process of its own.

    It runs until Ctrl-C. What dies is started again, after waits that grow to `node.restart_pause`, and the others run
    on; `headgate doctor` and `/health` say why. Logs are in `DIR/logs`. Leaves with status 1 if the node could never
    start, and 3 if that is because data is damaged or of another format.

    For example:

    `headgate up shop`

    `headgate up shop --port 9443 --gateways 2 --set pipeline.memory=4g`
    """
    override = settings_from(settings or [])
    if port is not None:
        override["gateway.port"] = str(port)
    if gateways is not None:
        override["gateway.count"] = str(gateways)
    if without_pipeline:
        override["pipeline.run"] = "false"
    node = prepare(directory or HERE, os.environ, override)
    with node.lock():
        check_ports(node)
        status = _run(node)
    if status:
        raise typer.Exit(status)


def pipeline(
    directory: Annotated[Path | None, argument("DIR", "The domain.", unset="the current directory")] = None,
    settings: Annotated[list[str] | None, option("--set SECTION.KEY=VALUE", "A setting; may be repeated.")] = None,
) -> None:
    """Run the pipeline of a domain alone: it decides on Spark what gateways have stored.

    It runs until Ctrl-C. Where another one runs already, it waits, and takes over when that one is gone. What it does
    is one JSON object a line: on standard output when it is ready, on standard error everything else. Leaves with
    status 1 if it lost its lease or something broke that may work the next time, 2 if settings or machine do not allow
    it, and 3 if data is damaged.

    For example:

    `headgate pipeline shop`

    `headgate pipeline shop --set pipeline.master=spark://host:7077`
    """
    from headgate.node.pipeline_process import main

    given = [word for one in settings or [] for word in ("--set", one)]
    raise typer.Exit(main([str(directory or HERE), *given]))


def _run(node: Node) -> int:
    """Run the node, and say what happens to it."""
    parts = count_of(node.settings.gateway.count, "gateway")
    parts = f"the pipeline and {parts}" if node.settings.pipeline.run else f"{parts}, without a pipeline"
    say("Starting the node of ", (node.settings.domain.name, "bold"), f": {parts}; logs are in {node.logs}")
    watching = Supervisor(
        node.parts(),
        node.logs,
        _tell,
        longest=node.settings.node.restart_pause,
        report=node.report,
        all_ready=lambda: _ready(node),
    )
    log = node.settings.log
    with (
        logging_to(node.logs / LOG, log.level, log.format),
        on_signals(watching.stop, signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    ):
        try:
            return watching.run()
        finally:
            node.erase()
            say("Stopped.")


def _ready(node: Node) -> None:
    """Where to connect, and what to try."""
    node.write()
    say()
    for url in node.urls:
        say("  connect to   ", (url, "bold"))
    say(f"  broker       {node.broker}")
    if node.settings.gateway.tls:
        certificate = node.files.tls_certificate
        say(f"  certificate  {certificate}, good until {expires(certificate):%Y-%m-%d}")
    say()
    say("Try, in another terminal:")
    directory = _quoted(node.files.directory)
    trust = f" --cacert {_quoted(node.files.tls_certificate)}" if node.settings.gateway.tls else ""
    for command in (
        f"headgate policy apply {_quoted(node.files.policy)} --domain {directory} --yes",
        f"headgate subscribe shop.Sale --as ann --domain {directory}",
        f"headgate publish shop.Sale item=tea amount=3.5 --as till --domain {directory}",
        f"curl{trust} {node.urls[0]}/health",
        f"headgate doctor {directory}",
    ):
        say((f"  {command}", "bold"))
    say()
    say("Ctrl-C stops the node.")


def _tell(notice: Notice) -> None:
    """One line for a change; more only of what keeps the node from coming up."""
    words = f": {notice.words}" if notice.words else ""
    match notice.what:
        case What.GIVEN_UP:
            err.print(f"{notice.part} cannot be started{words}", style="bold red", highlight=False, markup=False)
        case What.DIED | What.FAILING | What.KILLED:
            say((f"{notice.part} {notice.what.value}", "bold yellow"), words)
        case _:
            say((notice.part, "bold"), f" {notice.what.value}", (words, "dim"))
    for line in notice.lines:
        err.print(f"  {printable(line)}", highlight=False, markup=False, soft_wrap=True)
