"""What the asking commands share: who asks."""

from __future__ import annotations

from typing import Annotated

import typer

AskerOption = Annotated[
    str | None,
    typer.Option("--as", metavar="ASKER", help="Who asks, and so what may be told.", show_default="the administrator"),
]
