"""The token with which figures are read (`/metrics`): a secret text in a file, for programs that cannot open a session.

Guarantees: without a file that only its owner can read, and a text of at least MIN_CHARS in it, no token is right.
Comparing takes as long whatever is offered. The file is read each time, so that a new token counts at once.
"""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path
from typing import Final

from headgate.model.errors import BadKey, HeadgateError
from headgate.trust.keys import read_secret, write_secret

MIN_CHARS: Final = 32
MAX_CHARS: Final = 512


def make_token(path: Path) -> None:
    """Write a new token."""
    write_secret(path, secrets.token_urlsafe(32).encode() + b"\n")


def load_token(path: Path) -> bytes:
    """The token of a file."""
    token = read_secret(path, MAX_CHARS).strip()
    if len(token) < MIN_CHARS:
        raise BadKey(f"`{path}` is no token", remedy=f"write at least {MIN_CHARS} random characters to it")
    return token


def is_token(path: Path, offered: str) -> bool:
    """Is this the token of a file?"""
    try:
        return hmac.compare_digest(load_token(path), offered.encode())
    except HeadgateError:
        return False
