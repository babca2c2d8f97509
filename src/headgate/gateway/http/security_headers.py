"""What every answer says to browsers and caches, whatever it is the answer to.

Guarantees: no answer is kept by a cache, read as another type than it has, shown in a frame, or the reason for which
anything else is loaded; over TLS browsers are told to come back with TLS only. What an answer says itself goes first.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from headgate.node.logs import Application, Receive, Scope, Send

HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
OVER_TLS: Final = ((b"strict-transport-security", b"max-age=31536000"),)

_DENIAL: Final = "websocket.http.response"
_STARTS: Final = ("http.response.start", "websocket.http.response.start", "websocket.accept")


class Hardened:
    """An application whose answers carry these headers."""

    def __init__(self, app: Application, *, tls: bool) -> None:
        self._app = app
        self._headers = (*HEADERS, *(OVER_TLS if tls else ()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        begun = False

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            if message["type"] == "websocket.close" and not begun and _DENIAL in scope.get("extensions", {}):
                # The server would answer by itself, and say nothing of this.
                await sending({"type": "websocket.http.response.start", "status": 403, "headers": []})
                message = {"type": "websocket.http.response.body", "body": b""}
            if message["type"] in _STARTS:
                begun = True
                said = list(message.get("headers", ()))
                known = {bytes(name).lower() for name, _ in said}
                message["headers"] = [*said, *(one for one in self._headers if one[0] not in known)]
            await send(message)

        await self._app(scope, receive, sending)
