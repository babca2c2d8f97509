"""Where publishers and administrators come in: the publish path and the acknowledged change.

Guarantees: what is acknowledged is durable. Leaves out, for now: the network.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.gateway.domain import Domain

__all__ = ["Domain"]


def __getattr__(name: str) -> object:
    """The domain, with ledger and pipeline, once it is asked for: clients import this package too, and need neither."""
    if name != "Domain":
        raise AttributeError(name)
    from headgate.gateway.domain import Domain

    return Domain
