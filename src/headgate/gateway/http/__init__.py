"""HTTP and WebSockets of a gateway: routes, sessions, limits, and what becomes of errors."""
