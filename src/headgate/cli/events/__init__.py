"""Commands that publish and receive: `publish`, `subscribe`, `echo`, `asyncapi`."""
