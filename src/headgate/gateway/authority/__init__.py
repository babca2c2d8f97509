"""Signed statements at a gateway: taken up, issued, revoked, and ended by the clock."""
