"""Where publishers and administrators come in: the publish path and the acknowledged change.

Guarantees: what is acknowledged is durable. Leaves out, for now: the network.
"""

from headgate.gateway.domain import Domain

__all__ = ["Domain"]
