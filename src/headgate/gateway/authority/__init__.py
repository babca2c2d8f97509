"""Signed statements at a gateway: routes, issuers that are followed, the stream of revocations, and the clock."""
