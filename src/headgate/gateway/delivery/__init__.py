"""From the delivery store to readers: over a WebSocket, by server-sent events and by plain requests."""
