"""The ledger: versions, types, rules, groups, subscriptions and starting points, kept for ever.

Guarantees: the only importer of SQLAlchemy. `Ledger` is all of it; the other modules are its parts.
"""

from headgate.ledger.collection import Difference
from headgate.ledger.ledger import Ledger
from headgate.ledger.load import Rebased
from headgate.ledger.queries import HistoryEntry, StartingPoint, SubscriptionChanges, VersionInfo
from headgate.ledger.schema import FORMAT

__all__ = [
    "FORMAT",
    "Difference",
    "HistoryEntry",
    "Ledger",
    "Rebased",
    "StartingPoint",
    "SubscriptionChanges",
    "VersionInfo",
]
