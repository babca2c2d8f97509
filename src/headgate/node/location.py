"""Where a domain of this machine is reached: what a client needs to know, from the domain's directory.

Guarantees: addresses are those of the running node where it says so, else those of its settings. Of the broker's key
only the public part leaves this module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.model.errors import NotFound
from headgate.model.values import brief
from headgate.node.config import Config, Files
from headgate.trust.keys import PrivateKey

NODE: Final = "node.json"
_MAX_NODE_BYTES: Final = 100_000
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - looked for, not bound to


@dataclass(frozen=True, slots=True)
class DomainLocation:
    """How to reach a domain."""

    files: Files
    urls: list[str]
    broker: str
    certificate: Path | None

    def key(self, principal: str) -> Path:
        """The file with a principal's private key."""
        path = self.files.keys / f"{principal}.pem"
        if path.parent != self.files.keys or not path.name.removesuffix(".pem"):
            raise NotFound(f"`{brief(principal)}` is not the name of a key", remedy="name a file of `keys/`")
        if not path.exists():
            known = sorted(one.stem for one in self.files.keys.glob("*.pem") if one != self.files.broker_key)
            names = ", ".join(f"`{name}`" for name in known) or "none"
            raise NotFound(
                f"there is no key for `{brief(principal)}` in `{self.files.keys}`",
                remedy=f"there are {names}; `--key FILE` names another file",
            )
        return path


def place_of(directory: Path, environ: Mapping[str, str]) -> DomainLocation:
    """How to reach the domain in a directory."""
    files = Files(directory)
    config = Config.load(directory, environ)
    gateway = config.gateway
    host = "localhost" if gateway.host in _EVERYWHERE else gateway.host
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if gateway.tls else "http"
    urls = _running(files) or [f"{scheme}://{shown}:{gateway.port + n}" for n in range(gateway.count)]
    broker = PrivateKey.load(files.broker_key).public.did
    return DomainLocation(files, urls, broker, files.tls_certificate if gateway.tls else None)


def _running(files: Files) -> list[str]:
    """The addresses that the running node has written down, if it has."""
    try:
        with (files.data / NODE).open("rb") as file:
            document = json.loads(file.read(_MAX_NODE_BYTES))
    except (OSError, ValueError):
        return []
    urls = document.get("urls") if isinstance(document, dict) else None
    return [url for url in urls if isinstance(url, str)] if isinstance(urls, list) else []
