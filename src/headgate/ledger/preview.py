"""What a batch would change, in the words that the ledger has for it afterwards.

Guarantees: pure; the differences are those that `Ledger.difference` gives once the batch is committed. The batch is the
one that `roles.requests.transition` gives, in which requests of roles are worked out.
"""

from __future__ import annotations

from headgate.ledger import schema
from headgate.ledger.codec import Columns
from headgate.ledger.collections import RANKED, key_of, written
from headgate.ledger.delta import Ranks, delta
from headgate.ledger.words import WORDS, Difference, compare
from headgate.model.changes import Batch
from headgate.model.rights import Source
from headgate.model.state import State


def preview(before: State, after: State, batch: Batch) -> list[Difference]:
    """What is in force after the batch and not before, and the other way round, by kind and in order of name."""
    made = delta(before, after, batch, Ranks(0, len(written(before, Source.RULE)) - 1))
    reasons = {row["id"]: row["reason"] for row in made.begins.get(schema.endings, ())}
    differences: list[Difference] = []
    for table in WORDS:
        # Within a batch, what began again has kept its place.
        same_rank = {"rank": 0} if table in RANKED else {}
        pairs: dict[tuple[str, ...], list[Columns | None]] = {}
        for row in made.ends.get(table, ()):
            name = key_of(table, row)
            pairs[name] = [{**row, **same_rank, "reason": reasons.get(name[0])}, None]
        for row in made.begins.get(table, ()):
            begun = {**row, **same_rank, "from_version": after.version}
            pairs.setdefault(key_of(table, row), [None, None])[1] = begun
        compared = (compare(table, was, now) for was, now in pairs.values())
        differences += sorted((one for one in compared if one is not None), key=lambda one: one.name)
    return differences
